#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What fingerprints of `laggard determinism` cost a step of about 10 ms: bench/determinism_cost.py [--json]

One process with the hook and a ring that nobody reads. Blocks of steps with fingerprints and without alternate, so that
what the machine does meanwhile hits both alike; of each pair of blocks the difference, of all pairs the median. Times are
CPU times of the process, which has one thread: who else wants the CPU counts less.
"""
import json
import os
import shutil
import statistics
import sys
import tempfile
import time

HOOK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src", "hook")
WIDTH, DEPTH, BATCH, BLOCK, PAIRS = 128, 5, 80, 10, 40


def main():
    where = tempfile.mkdtemp(prefix="laggard-bench-", dir="/dev/shm")
    os.environ.update(LAGGARD_MARKS=where, LAGGARD_DETERMINISM="1")
    sys.path.insert(0, HOOK)
    sys.dont_write_bytecode = True
    try:
        from laggard import _inject
        _inject.arm()
        import torch
        from laggard import _det
        torch.set_num_threads(1)
        layers = [m for _ in range(DEPTH) for m in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
        model = torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, 10))
        optimizer = torch.optim.Adam(model.parameters())
        data = torch.utils.data.TensorDataset(torch.randn(BATCH * 8, WIDTH), torch.randint(0, 10, (BATCH * 8,)))

        def batches():
            while True:
                yield from torch.utils.data.DataLoader(data, batch_size=BATCH)

        source = batches()

        def step():
            x, y = next(source)
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        def block(every):
            _det._every = every
            _det._on = False  # decided anew at the end of the first step, which is not timed
            step()
            start = time.process_time()
            for _ in range(BLOCK):
                step()
            return (time.process_time() - start) / BLOCK * 1e3

        for _ in range(20):
            step()
        plain, more = [], []
        for n in range(PAIRS):
            order = (1, 0) if n % 2 else (0, 1)
            ms = {every: block(every) for every in order}
            plain.append(ms[0])
            more.append(ms[1] - ms[0])
        base, cost = statistics.median(plain), statistics.median(more)
        out = {"step_ms": base, "fingerprint_ms": cost, "every_step_share": cost / base, "every_50th_share": cost / base / 50,
               "parameters": sum(p.numel() for p in model.parameters()), "tensors": len(list(model.parameters()))}
    finally:
        shutil.rmtree(where, ignore_errors=True)
    if "--json" in sys.argv[1:]:
        print(json.dumps(out))
    else:
        print("a step takes %.2f ms (%d parameters in %d tensors); fingerprints take %.2f ms more: %.1f %% at every step, "
              "%.2f %% at every 50th" % (base, out["parameters"], out["tensors"], cost, 100 * cost / base, 2 * cost / base))


main()
