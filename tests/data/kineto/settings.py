#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make settings/*.json.gz with torch 2 (CPU), whose profiler writes Kineto's format: settings.py OUT_DIR.

The same small model, trained with mixed precision in ways that are right and wrong, and with batches that
come late from a generator of one's own. tests/e2e/test_settings.py says what must be found in each.
"""
import contextlib
import gzip
import pathlib
import sys
import time

import torch
import torch.utils.checkpoint
from torch.profiler import ProfilerActivity, profile, schedule

OUT = pathlib.Path(sys.argv[1])
torch.manual_seed(0)
torch.set_num_threads(1)


class ByHand(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(n))

    def forward(self, x):
        for layer in self.layers:
            y = torch.nn.functional.linear(x.to(torch.bfloat16), layer.weight.to(torch.bfloat16),
                                           layer.bias.to(torch.bfloat16))
            x = torch.relu(y.float())
        return x


class Normed(torch.nn.Module):
    # bfloat16 throughout but for float32 norms, as language models are written
    def __init__(self, n):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(n)).bfloat16()

    def forward(self, x):
        x = x.bfloat16()
        for layer in self.layers:
            f = x.float()
            x = layer((f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x) * 1.01)
        return x


def plain(n):
    return torch.nn.Sequential(*[m for _ in range(n) for m in (torch.nn.Linear(64, 64),
                                                               torch.nn.ReLU())])


def batches(wait):
    while True:
        time.sleep(wait)
        yield torch.stack([torch.randn(64) for _ in range(32)])


def train(name, model, autocast=False, backward_inside=False, wait=0, checkpoint=False):
    opt = torch.optim.SGD(model.parameters(), lr=1e-3)

    def amp():
        return torch.autocast("cpu", dtype=torch.bfloat16) if autocast else contextlib.nullcontext()

    data = batches(wait)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True,
                 schedule=schedule(wait=1, warmup=1, active=4)) as prof:
        for step in range(6):
            x = next(data)
            opt.zero_grad()
            with amp():
                if checkpoint:
                    y = torch.utils.checkpoint.checkpoint(model, x.requires_grad_())
                else:
                    y = model(x)
                loss = y.float().pow(2).mean()
                if backward_inside:
                    loss.backward()
            if not backward_inside:
                loss.backward()
            opt.step()
            prof.step()
    path = OUT / f"{name}.json"
    prof.export_chrome_trace(str(path))
    path.with_suffix(".json.gz").write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
    path.unlink()


train("plain", plain(6))
train("autocast", plain(6), autocast=True)
train("backward", plain(6), autocast=True, backward_inside=True)
train("checkpoint", plain(6), autocast=True, checkpoint=True)
train("by_hand", ByHand(6))
train("normed", Normed(6))
train("loader", plain(6), wait=0.03)
train("many_layers", plain(20), wait=0.0005)
