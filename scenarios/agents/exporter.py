# SPDX-License-Identifier: Apache-2.0
"""exporter.py PID...: per-process memory metrics, as node agents collect them.

Each period reads /proc/PID/smaps_rollup of one process after the other (--all: of all of them).
The kernel walks all of a process's pages under its mmap_lock for that (fs/proc/task_mmu.c).
"""
import agent


def read_rollup(pid):
    with open(f"/proc/{pid}/smaps_rollup", "rb") as f:
        f.read()


if __name__ == "__main__":
    agent.run(read_rollup)
