# SPDX-License-Identifier: Apache-2.0
"""nightly.py --cpu N: a batch job that wakes now and then and computes on one CPU with some threads.

Several threads, because a fair scheduler gives the rank half of the CPU against one: a step would
take just about twice as long, which is where "slow" begins.  --idle: the healthy twin, a job that
was given SCHED_IDLE and so yields to the rank.
"""
import argparse
import hashlib
import os
import sys
import threading
import time

import agent

BLOCK = bytes(1 << 20)  # hashing a large block releases the GIL: the threads really run


def burn(end):
    while time.monotonic() < end:
        hashlib.sha256(BLOCK)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cpu", type=int, required=True)
    parser.add_argument("--busy", type=float, default=0.3, help="seconds each time")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--idle", action="store_true")
    args, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    os.sched_setaffinity(0, {args.cpu})
    if args.idle:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))

    def work(_pid):
        end = time.monotonic() + args.busy
        threads = [threading.Thread(target=burn, args=(end,)) for _ in range(args.threads)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    agent.run(work)


if __name__ == "__main__":
    main()
