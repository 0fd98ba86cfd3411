# SPDX-License-Identifier: Apache-2.0
"""profiled.py --out FILE: train.py's model under torch.profiler, for the tests of laggard diff.

The same work with and without --flop-counter: the trace shows what the compiler lost.
"""
import argparse
import contextlib

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

from train import WIDTH, flop_counter

STEPS = 24


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--compile", metavar="BACKEND")
    parser.add_argument("--flop-counter", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    if args.compile:
        model = torch.compile(model, backend=args.compile)
    x, y = torch.ones(64, WIDTH), torch.zeros(64, WIDTH)
    with flop_counter() if args.flop_counter else contextlib.nullcontext(), \
         profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=5, active=STEPS),
                 on_trace_ready=lambda p: p.export_chrome_trace(args.out)) as p:
        for _ in range(STEPS + 6):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            p.step()


if __name__ == "__main__":
    main()
