#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the fixtures of this folder with torch (CPU): generate.py OUT_DIR.

train.json      a small model, DataLoader with a slow dataset on the main thread, 4 profiled steps,
                shapes and memory on (with_stack crashes torch 2.6 under Python 3.13).
rank0.json ..   two gloo ranks under DistributedDataParallel, rank 1 slow to arrive.
"""
import gzip
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.profiler import ProfilerActivity, profile, schedule


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        time.sleep(0.002)
        return torch.full((16,), float(i)), torch.tensor(i % 4)


def net():
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))


def save(prof, path):
    prof.export_chrome_trace(str(path))
    path.with_suffix(".json.gz").write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
    path.unlink()


def train(out):
    model, loss_fn = net(), torch.nn.CrossEntropyLoss()
    opt = torch.optim.AdamW(model.parameters())
    loader = torch.utils.data.DataLoader(Slow(), batch_size=4)
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=4),
                 record_shapes=True, profile_memory=True) as prof:
        for step, (x, y) in enumerate(loader):
            if step == 6:
                break
            opt.zero_grad()
            with torch.profiler.record_function("## forward ##"):
                loss = loss_fn(model(x), y)
            loss.backward()
            opt.step()
            with torch.profiler.record_function('odd "name"\\ with\ttab'):
                loss.item()
            prof.step()
    save(prof, out / "train.json")


def rank(r, out):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29617", RANK=str(r), WORLD_SIZE="2",
                      USE_LIBUV="0", GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(net())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    with profile(activities=[ProfilerActivity.CPU],
                 schedule=schedule(wait=1, warmup=1, active=3)) as prof:
        for _ in range(5):
            time.sleep(0.02 * r)
            opt.zero_grad()
            model(torch.ones(4, 16)).sum().backward()
            opt.step()
            prof.step()
    save(prof, out / f"rank{r}.json")
    dist.destroy_process_group()


def main():
    out = pathlib.Path(sys.argv[1])
    torch.set_num_threads(1)
    train(out)
    mp.spawn(rank, args=(out,), nprocs=2)


if __name__ == "__main__":
    main()
