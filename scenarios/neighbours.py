# SPDX-License-Identifier: Apache-2.0
"""Who else used the CPUs meanwhile, by the kernel's own account (/proc/PID/stat).

A verdict that blames a process which is no part of the scenario is either true, and then the run says
nothing about the scenario, or false. This tells which: it shares nothing with the program under test.
"""
import os
import pathlib
import time

PERIOD_S = 1.0  # a look costs a few ms


def cpu_ms():
    """{(pid, start): CPU time so far in ms} of every process and what it started.

    A verdict names the program that started short-lived ones (make, not each of its compilers): what they
    used is its own, as long as it lives or has waited for them.
    """
    own, parent, tick = {}, {}, 1000 / os.sysconf("SC_CLK_TCK")
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(path.parent.name)
        own[pid] = int(words[19]), sum(map(int, words[11:15])) * tick
        parent[pid] = int(words[1])
    total = dict.fromkeys(own, 0.0)
    for pid, (_, ms) in own.items():
        while pid in total and pid > 1:
            total[pid] += ms
            pid = parent[pid]
    return {(pid, start): total[pid] for pid, (start, _) in own.items()}


class Neighbours:
    """look() now and then; ms: {pid: CPU time since the first look}, of whoever was there at a look."""

    def __init__(self):
        self.before, self.seen, self.next = cpu_ms(), {}, 0.0

    def look(self):
        if time.monotonic() >= self.next:
            self.next = time.monotonic() + PERIOD_S
            for key, ms in cpu_ms().items():  # what started others may lose them to init
                self.seen[key] = max(ms, self.seen.get(key, 0))

    @property
    def ms(self):
        out = {}
        for key, ms in self.seen.items():
            out[key[0]] = out.get(key[0], 0) + ms - self.before.get(key, 0)
        return out
