# SPDX-License-Identifier: Apache-2.0
"""archiver.py --file F: takes the lock of a journal now and then and keeps it while it reads it over.

Whoever appends to the journal under its lock (flock(2), as many loggers do) waits meanwhile.
"""
import argparse
import fcntl
import hashlib
import os
import sys
import time

import agent


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--file", required=True)
    parser.add_argument("--busy", type=float, default=0.12, help="seconds each time")
    args, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    fd = os.open(args.file, os.O_RDWR | os.O_CREAT, 0o600)

    def work(_pid):
        fcntl.flock(fd, fcntl.LOCK_EX)
        end = time.monotonic() + args.busy
        while time.monotonic() < end:
            hashlib.sha256(os.pread(fd, 1 << 16, 0)).digest()
            time.sleep(0.002)
        fcntl.flock(fd, fcntl.LOCK_UN)
    agent.run(work)


if __name__ == "__main__":
    main()
