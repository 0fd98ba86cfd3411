# SPDX-License-Identifier: Apache-2.0
"""The loop that all agents share: a period, a list of processes, a log of what was really done.

The log (start and length in ns of CLOCK_MONOTONIC, pid) is the truth that a verdict's lost time
and period are compared with; it is written at the end, so that logging disturbs nothing.
"""
import argparse
import signal
import sys
import time


def stop(_signum, _frame):
    raise SystemExit(0)


def run(action):
    parser = argparse.ArgumentParser()
    parser.add_argument("--period", type=float, default=2.5)
    parser.add_argument("--all", action="store_true", help="every process at each tick")
    parser.add_argument("--log")
    parser.add_argument("pids", type=int, nargs="*")
    args = parser.parse_args()
    pids = args.pids or [0]
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)

    done = []
    tick, begin = 0, time.monotonic()
    try:
        while True:
            tick += 1
            # Absolute deadlines: the period does not grow by the time the work takes.
            time.sleep(max(begin + tick * args.period - time.monotonic(), 0))
            for pid in pids if args.all else [pids[tick % len(pids)]]:
                start = time.monotonic_ns()
                try:
                    action(pid)
                except (FileNotFoundError, ProcessLookupError):
                    sys.exit(0)  # the process ended
                done.append((start, time.monotonic_ns() - start, pid))
    finally:
        if args.log:
            with open(args.log, "w", encoding="ascii") as f:
                f.writelines(f"{a} {b} {c}\n" for a, b, c in done)
