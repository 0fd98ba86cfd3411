#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the seeds in corpus/marks anew: tests/fuzz/seed_marks.py tests/fuzz/corpus/marks"""
import os
import random
import struct
import sys

BEGIN, END, SPAN, MARK, META, STEP, OFF = range(1, 8)


def op(what, kind=0, stage=0, bits=0, tid=1, name=1, token=0, dt=10, value=0, how=4):
    return bytes((how, what, kind, stage, bits, tid, name, token, dt, value))


def ring():
    """A ring file as a process would leave it, small."""
    slots, names = 8, b"\x07\0\0\0forward\0\0\0\0\0"
    head = [int.from_bytes(b"LAGMARK1", "little"), 1, 4096 + slots * 64 + 64, 7, 1, slots, 4096,
            4096 + slots * 64, 64, 0, 16, 1, 0, 2, 0, 2, 1, 1, 0]
    body = b""
    for i in range(slots):
        n = i if i else slots
        word = 7 | (BEGIN if n % 2 else END) << 32 | (2 << 40 | 3 << 48) * (n % 2)
        body += struct.pack("<8Q", n, 1000 + n, word, 1, 0, 0, n - 1, n)
    return struct.pack("<19q", *head).ljust(4096, b"\0") + body + names.ljust(64, b"\0")


def main(out):
    os.makedirs(out, exist_ok=True)
    names = bytes(range(4, 12))
    stages = b"".join(op(BEGIN, 2, s) + op(END, token=1) for s in (1, 3, 4, 6)) + op(STEP, value=1)
    rng = random.Random(1)
    seeds = {
        "steps": b"\0" + names + stages * 3 + op(0, how=2),
        "delayed": b"\2" + names + (stages + op(0, how=2)) * 3,
        "overrun": b"\4" + names + stages * 9 + op(0, how=2) + stages,
        "torn": b"\4" + names + b"".join(
            op(rng.choice((BEGIN, END, STEP)), 2, 3, token=1, how=rng.choice((0, 1, 2, 4)),
               value=rng.randrange(256)) for _ in range(60)),
        "facts": b"\10" + names + op(MARK) + op(META) + op(OFF, token=2) + op(SPAN, 5, 2, token=200)
                 + op(BEGIN, 6, 5, 5, token=1) + op(STEP, bits=8) * 2 + op(STEP, bits=2) * 2 + op(99),
        "file": b"\1" + ring(),
    }
    for name, data in seeds.items():
        with open(os.path.join(out, name), "wb") as f:
            f.write(data)


if __name__ == "__main__":
    main(*sys.argv[1:])
