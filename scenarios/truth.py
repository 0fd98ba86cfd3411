# SPDX-License-Identifier: Apache-2.0
"""What really happened in a scenario, from the ranks' step times and the agents' logs.

Uses the definitions of doc/contract.md#slow-step (over twice the rolling median and more than 1 ms above it),
computed here from scratch: nothing is shared with the program under test.
"""
import bisect
import dataclasses
import statistics

from judge import Wrong

WINDOW = 101  # steps of the rolling median, centred


def rolling_median(values):
    half, recent, out = WINDOW // 2, [], []
    n = len(values)
    for i in range(min(half, n)):
        bisect.insort(recent, values[i])
    for i in range(n):
        if i + half < n:
            bisect.insort(recent, values[i + half])
        if i - half - 1 >= 0:
            recent.pop(bisect.bisect_left(recent, values[i - half - 1]))
        out.append(recent[len(recent) // 2])
    return out


def read_rows(path):
    try:
        with open(path, encoding="ascii") as f:
            return [tuple(map(int, line.split())) for line in f]
    except FileNotFoundError:
        return []


def covered(rows, begin, end):
    """How much of [begin, end) the rows, of several ranks, cover together."""
    total, last = 0, begin
    for ts, dur in sorted(rows):
        total += max(min(ts + dur, end) - max(ts, last), 0)
        last = max(last, ts + dur)
    return total


@dataclasses.dataclass
class Truth:
    pids: list       # of the ranks
    steps: list      # per rank: [(start, length)] in ns
    slow: list       # per rank: [(start, length, excess)]
    acts: dict       # cause -> [(start, length, pid)]
    cause_pids: dict
    foreign: float   # share of the machine's CPU time used by nobody of this scenario
    cpu_ms: dict = dataclasses.field(default_factory=dict)  # pid -> CPU time it had meanwhile, of everybody
    own: list = dataclasses.field(default_factory=list)  # [(start, length)] of pauses that ranks made on purpose
    kernel: list = dataclasses.field(default_factory=list)  # per rank: (CPU time, wait for a CPU) of its main thread, ns

    @classmethod
    def read(cls, work, pids, causes, logs, foreign, cpu_ms):
        steps = [read_rows(work / f"steps.{rank}") for rank in range(len(pids))]
        slow = []
        for rows in steps:
            medians = rolling_median([dur for _, dur in rows])
            slow.append([(ts, dur, dur - median) for (ts, dur), median in zip(rows, medians)
                         if dur > 2 * median and dur - median > 1_000_000])
        return cls(pids, steps, slow, {key: read_rows(log) for key, log in logs.items()},
                   {key: process.pid for key, process in causes.items()}, foreign, cpu_ms,
                   [row for rank in range(len(pids)) for row in read_rows(work / f"own.{rank}")],
                   [row for rank in range(len(pids)) for row in read_rows(work / f"kernel.{rank}")])

    def median_ms(self):
        return statistics.median(dur for _, dur in self.steps[0]) / 1e6

    def excess_ms(self, cause=None):
        """Excess of rank 0's slow steps that overlap an act of the cause (None: of all).

        What a rank paused for on purpose in such a step is not the cause's: others wait for it as long.
        """
        acts = self.acts.get(cause, [])
        return sum(excess if cause is None else max(excess - covered(self.own, ts, ts + dur), 0)
                   for ts, dur, excess in self.slow[0]
                   if cause is None or any(a < ts + dur and ts < a + d for a, d, _ in acts)) / 1e6

    def own_ms(self):
        """What the pauses made on purpose cost rank 0's slow steps."""
        return sum(min(excess, covered(self.own, ts, ts + dur)) for ts, dur, excess in self.slow[0]) / 1e6

    def waited_ms(self):
        """How long the ranks' main threads waited for a CPU, by the kernel's count."""
        return sum(wait for _, wait in self.kernel) / 1e6

    def more_ms(self, rank):
        """CPU time that a rank needed beyond what another did for the same work: its CPU is slower."""
        if rank is None or rank >= len(self.kernel):
            return 0
        return (self.kernel[rank][0] - min(cpu for cpu, _ in self.kernel)) / 1e6

    def bites(self, cause):
        """How many of the cause's acts overlap a slow step of some rank."""
        slow = sorted(s for rank in self.slow for s in rank)
        return sum(any(ts < a + d and a < ts + dur for ts, dur, _ in slow)
                   for a, d, _ in self.acts[cause])

    def wall_ms(self):
        first, last = self.steps[0][0], self.steps[0][-1]
        return (last[0] + last[1] - first[0]) / 1e6

    def faults(self, case):
        """Why this run proves nothing: a cause that was named in expect and did not bite."""
        out = []
        for key in {e.culprit for e in case.expect if e.culprit}:
            if self.bites(key) < 5:
                out.append(Wrong(f"{key} made fewer than 5 episodes of slow steps ({self.bites(key)} of "
                                 f"{len(self.acts[key])} acts): the scenario did not happen"))
        return out

    def summary(self):
        lines = [f"truth: {len(self.steps[0])} steps, median {self.median_ms():.1f} ms, slow "
                 + " ".join(f"rank{r}:{len(s)}" for r, s in enumerate(self.slow))
                 + f", excess {self.excess_ms():.0f} ms of {self.wall_ms():.0f} ms"
                 + f", others used {self.foreign:.0%} of the machine",
                 "truth: by the kernel, ranks' main threads had " + ", ".join(
                     f"{cpu / 1e6:.0f} ms of CPU and waited {wait / 1e6:.0f} ms for one" for cpu, wait in self.kernel)]
        for key, acts in self.acts.items():
            if acts:
                lines.append(f"truth: {key} (pid {self.cause_pids[key]}) acted {len(acts)} times, "
                             f"{statistics.median(d for _, d, _ in acts) / 1e6:.0f} ms each, "
                             f"{self.bites(key)} made slow steps, excess there "
                             f"{self.excess_ms(key):.0f} ms")
        return "\n".join(lines)
