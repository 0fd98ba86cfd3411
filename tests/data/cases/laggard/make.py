#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""make.py: write the files of this folder that no program here can make: readings of GPUs and a snapshot of their memory.

Each shows what files with the same cause show that may not be copied, and its answer is known by construction. The
columns are those of `nvidia-smi --query-gpu=timestamp,index,power.draw,utilization.gpu,memory.used --format=csv -lms`.
"""
import datetime
import pathlib
import pickle
import random

HERE = pathlib.Path(__file__).resolve().parent
BEGIN = datetime.datetime(2026, 3, 1, 10, 0, 0)
REST_W, WORK_W, SPIN_W = 71, 440, 146  # of a card of 700 W: idle, in matrix products, in a loop that waits


def readings(name, seconds, of):
    """of(gpu, second) -> (W, %): eight GPUs, five times a second, with the noise that power readings have."""
    rng = random.Random(name)
    lines = ["timestamp, index, power.draw [W], utilization.gpu [%], memory.used [MiB]"]
    for tick in range(5 * seconds):
        at = BEGIN + datetime.timedelta(seconds=tick / 5)
        for gpu in range(8):
            watt, percent = of(gpu, tick / 5)
            lines.append(f"{at:%Y/%m/%d %H:%M:%S}.{at.microsecond // 1000:03d}, {gpu}, "
                         f"{watt * rng.uniform(0.97, 1.03):.2f} W, {percent} %, {61000 if percent else 17} MiB")
    (HERE / name).write_text("\n".join(lines) + "\n", encoding="ascii")


def saves(every, length):
    """Of `every` seconds rank 0 saves for `length`; the others wait in a collective, which spins on the device."""
    def of(gpu, second):
        if second < 5:
            return REST_W, 0
        if second % every >= length:
            return WORK_W, 98
        return (REST_W + 20, 0) if gpu == 0 else (SPIN_W, 100)
    return of


def snapshot():
    """What torch.cuda.memory._dump_snapshot() writes: the keys, and four segments."""
    frames = [{"filename": "train.py", "line": 10, "name": "forward"}]
    segments, events = [], []
    for i in range(4):
        at = 0x7f0000000000 + (i << 30)
        segments.append({"device": 0, "address": at, "total_size": 2 << 20, "allocated_size": 1 << 20,
                         "active_size": 1 << 20, "stream": 0, "segment_type": "large", "blocks": [
                             {"size": 1 << 20, "requested_size": 1000000, "address": at, "state": "active_allocated",
                              "frames": frames},
                             {"size": 1 << 20, "requested_size": 0, "address": at + (1 << 20), "state": "inactive",
                              "frames": []}]})
        events.append({"action": "alloc", "addr": at, "size": 1000000, "stream": 0,
                       "time_us": 1772359200000000 + i, "frames": frames})
    with open(HERE / "memory_snapshot.pickle", "wb") as out:
        pickle.dump({"segments": segments, "device_traces": [events], "allocator_settings": {}}, out, 4)


if __name__ == "__main__":
    readings("save_every_step.csv", 60, saves(5, 4))
    readings("save_now_and_then.csv", 60, saves(50, 1))
    snapshot()
