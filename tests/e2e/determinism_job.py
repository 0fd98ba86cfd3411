# SPDX-License-Identifier: Apache-2.0
"""A training program that computes the same each time, but for one cause that it is asked for, from a step on.

    determinism_job.py CAUSE STEP STEPS [RANKS]

What "by chance" means is os.urandom(): another number in each run. Prints a line a step, as a log does.
"""
import os
import subprocess
import sys

CAUSE, STEP, STEPS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
RANKS = int(sys.argv[4]) if len(sys.argv) > 4 else 1
if RANKS > 1 and "RANK" not in os.environ:
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    all_of_them = [subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, **env, "RANK": str(r), "LOCAL_RANK": str(r)})
                   for r in range(RANKS)]
    sys.exit(max(abs(p.wait()) for p in all_of_them))

import torch  # noqa: E402
from torch import nn  # noqa: E402

RANK = int(os.environ.get("RANK", "0"))
torch.manual_seed(1)
torch.set_num_threads(1)
SIZE = 64
BIG = torch.randn(1 << 20, generator=torch.Generator().manual_seed(1))  # whose sum each thread makes a part of


def threads():
    """One in the first run, two in the next: as on a machine that has more CPUs."""
    again = os.environ["JOB_SEEN"]
    if os.path.exists(again):
        return 2
    with open(again, "w", encoding="ascii"):
        return 1


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8 * STEPS

    def __getitem__(self, i):
        x = torch.sin(torch.arange(SIZE) * (i + 1) * 0.37)
        if CAUSE == "workers" and i // 8 + 1 >= STEP:
            import numpy
            x += 1e-3 * float(numpy.random.default_rng().random())  # a generator of its own, never seeded
        return x, torch.tensor(i % 7)


class Scatter(torch.autograd.Function):
    """Rows of a table by index, whose gradient is added up in the order in which threads would happen to come."""

    @staticmethod
    def forward(ctx, table, index, by_chance):
        ctx.save_for_backward(index)
        ctx.rows, ctx.by_chance = table.shape[0], by_chance
        return table[index]

    @staticmethod
    def backward(ctx, grad):
        index, = ctx.saved_tensors
        order = range(len(index))
        if ctx.by_chance:
            order = sorted(order, key=lambda _: os.urandom(4))
        out = torch.zeros(ctx.rows, grad.shape[1])
        for k in order:
            out[index[k]] += grad[k] * (1 + 0.1 * k)
        return out, None, None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(2, 16))
        self.body = nn.Sequential(nn.Linear(SIZE, 64), nn.ReLU(), nn.Linear(64, 16))
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(16, 7)

    def forward(self, x, step):
        y = self.body(x)
        if CAUSE == "dropout" and step >= STEP:
            y = self.drop(y)
        index = torch.zeros(len(x), dtype=torch.long)
        y = y + Scatter.apply(self.table, index, CAUSE == "scatter" and step >= STEP)
        if CAUSE == "threads":
            y = y + BIG.sum() % 1
        if CAUSE == "forward" and step >= STEP:
            y = y + 1e-3 * int.from_bytes(os.urandom(2), "little") / 65536
        return self.head(y)


def main():
    net = model = Net()
    if RANKS > 1:
        torch.distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    sampler = torch.utils.data.distributed.DistributedSampler(Data(), RANKS, RANK, shuffle=False) if RANKS > 1 else None
    loader = torch.utils.data.DataLoader(Data(), batch_size=8, sampler=sampler, num_workers=1 if CAUSE == "workers" else 0)
    for step, (x, y) in enumerate(loader, 1):
        if step > STEPS:
            break
        if CAUSE == "dropout" and step == STEP:
            torch.seed()
        if CAUSE == "threads" and step == STEP:
            torch.set_num_threads(threads())
        loss = nn.functional.cross_entropy(model(x, step), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if CAUSE == "rank" and RANK == RANKS - 1 and step == STEP:
            with torch.no_grad():
                net.head.bias[0] += 1e-4
        if CAUSE == "rank_data" and RANK == RANKS - 1 and step == STEP:
            net.body[0].weight.data[0, 0] += 1e-4
        if RANK == 0:
            print(f"step {step} loss {loss.item():.6f}", flush=True)


main()
