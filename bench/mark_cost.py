#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What one mark costs the program, in ns: bench/mark_cost.py [--json]

Medians over many short batches, so that a batch that was preempted does not count. "forward", "backward",
"optimizer" and "batch_wait" are what such a call costs over the same call unmarked, with everything that
hangs on it (two marks, the samples of every tenth forward, the step mark behind the optimizer), where the
call itself does nothing; "nested" is what every module below the root one pays although it is not marked.
"""
import json
import os
import shutil
import statistics
import sys
import tempfile
import time

HOOK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src", "hook")
BATCH, BATCHES = 200, 300


def cost(f):
    now, ns = time.perf_counter_ns, []
    for _ in range(BATCHES):
        start = now()
        for _ in range(BATCH):
            f()
        ns.append((now() - start) / BATCH)
    return statistics.median(ns)


def main():
    where = tempfile.mkdtemp(prefix="laggard-bench-", dir="/dev/shm")
    os.environ["LAGGARD_MARKS"] = where
    sys.path.insert(0, HOOK)
    sys.dont_write_bytecode = True
    out = {}
    try:
        from laggard import _ring
        empty = cost(lambda: None)
        try:
            import torch

            class Root(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.weight = torch.nn.Parameter(torch.zeros(1))

                def forward(self, x):
                    return x

            module = Root()
            plain_root = cost(lambda: module(1))
        except ImportError:
            torch = None
        _ring.open_ring()
        word, name = _ring.BEGIN | _ring.K_STAGE | _ring.S_FORWARD, _ring.intern("forward")

        def pair():
            _ring.end(_ring.begin(word, name))

        out["mark"] = (cost(pair) - empty) / 2
        out["step"] = cost(lambda: _ring.step(1)) - empty
        out["span"] = cost(lambda: _ring.span(word, 1, 1, name)) - empty
        out["value"] = cost(lambda: _ring.mark("loss", 1)) - empty
        if torch is not None:
            from laggard import _torch
            optimizer = torch.optim.Optimizer

            class Still(optimizer):
                def __init__(self):
                    super().__init__([torch.nn.Parameter(torch.zeros(1))], {})

                def step(self):
                    pass

                step.hooked = True  # without torch's own 7 us for its profiler, in which ours drown

            def nothing(*args, **kwargs):
                pass

            still = Still()
            plain = {"forward": plain_root, "optimizer": cost(still.step), "backward": cost(nothing),
                     "batch_wait": cost(nothing)}
            torch.autograd.backward = nothing
            _torch.patch(torch)
            still = Still()  # an optimizer was made: steps end with it, not with a forward
            module(1)
            waiting = _torch.simple(nothing, word, "wait", "batch_wait")
            for what, f in (("forward", lambda: module(1)), ("optimizer", still.step),
                            ("backward", torch.autograd.backward), ("batch_wait", waiting)):
                out[what] = cost(f) - plain[what]
            _torch._busy = True
            out["nested"] = cost(lambda: module(1)) - plain_root
            _torch._busy = False
    finally:
        shutil.rmtree(where)
    if "--json" in sys.argv:
        print(json.dumps({k: round(v, 1) for k, v in out.items()}))
    else:
        for k, v in out.items():
            print(f"{k:10} {v:7.0f} ns")
    return 0 if out["mark"] <= 1000 else 1


if __name__ == "__main__":
    sys.exit(main())
