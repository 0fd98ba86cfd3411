# SPDX-License-Identifier: Apache-2.0
"""roofline_ranks.py STEPS: ranks in DDP, of which one after the other comes LATE_S late to its step's collectives. Without
them each is late in its own turn only. Besides what DDP does they reduce and gather the loss.
"""
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

STEP_S, LATE_S = 0.100, 0.100


def main(steps):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Linear(64, 4)))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loader = DataLoader(TensorDataset(torch.randn(steps * 4, 32), torch.randn(steps * 4, 4)), batch_size=4)
    turn = 0
    for x, y in loader:
        began = time.monotonic()
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        # In turn: without collectives nobody waits, and all take as long.
        late = LATE_S if turn % world == rank else 0
        time.sleep(max(0, STEP_S + late - (time.monotonic() - began)))
        loss.backward()
        total = loss.detach().clone()
        dist.all_reduce(total)
        every = [torch.zeros_like(total) for _ in range(world)]
        dist.all_gather(every, total)
        work = dist.all_reduce(total, async_op=True)
        work.wait()
        optimizer.step()
        turn += 1
    dist.barrier()
    if rank == 0:
        print("steps", turn, bool(torch.isfinite(total)))
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main(int(sys.argv[1]))
