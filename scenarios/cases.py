# SPDX-License-Identifier: Apache-2.0
"""The scenarios: what runs, for how long, and what the verdict must say.

A program in `causes` starts when every rank is past its warm-up.  Its arguments may use {pids}
(all ranks), {cpu0} (the CPU rank 0 is pinned to), {tenant} (an unrelated process with memory) and
{work} (the folder that the ranks know as OUT).
`Expect.culprit` names a cause by its key: the verdict must name that process's pid and command.
"""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Expect:
    id: str
    culprit: str = ""           # key in Case.causes; empty = no process to blame
    relation: str = ""
    functions: tuple = ()       # any of these, a compiler's suffix such as .part.0 aside
    lock: str = ""
    victims: tuple = ()         # ranks, all of them
    severity: str = "low"       # at least


@dataclasses.dataclass(frozen=True)
class Case:
    what: str
    train: tuple = ()                                # arguments of train.py
    causes: dict = dataclasses.field(default_factory=dict)
    expect: tuple = ()                               # empty = healthy: nothing at medium or above
    seconds: float = 25
    nproc: int = 2
    big: bool = False                                # ranks with a large resident table
    tenant: bool = False
    trixie: bool = False                             # needs torch 2: runs in a Debian 13 chroot
    periods: tuple = ()                              # any of these, within 5 %
    scopes: tuple = ()                               # any of these
    may: tuple = ()                                  # ids allowed beside the expected ones


ROLLUP = ("smap_gather_stats", "show_smaps_rollup", "smaps_pte_range")
PLACEMENT = ("gather_pte_stats", "show_numa_map")
LOCK = {"id": "host.lock_held", "relation": "other_process", "lock": "mmap_lock"}

CASES = {
    "agent_in_turn": Case(
        what="an agent looks at one rank after the other, each 2.5 s",
        big=True,
        causes={"agent": ("exporter.py", "--period", "2.5", "{pids}")},
        expect=(Expect(culprit="agent", functions=ROLLUP, victims=(0, 1), **LOCK),),
        seconds=30, periods=(2.5,), scopes=("rotating",)),
    "agent_all": Case(
        what="the same agent looks at all ranks at each tick",
        big=True,
        causes={"agent": ("exporter.py", "--all", "--period", "3.3", "{pids}")},
        expect=(Expect(culprit="agent", functions=ROLLUP, victims=(0, 1), **LOCK),),
        seconds=25, periods=(3.3,), scopes=("rotating", "global")),
    "other_reader": Case(
        what="another reader of the ranks' memory map, at another period, under another name",
        big=True,
        causes={"agent": ("inventory.py", "--period", "1.7", "{pids}")},
        expect=(Expect(culprit="agent", functions=PLACEMENT, victims=(0, 1), **LOCK),),
        seconds=20, periods=(1.7,), scopes=("rotating",)),
    "cpu_hog": Case(
        what="a batch job wakes every 3 s on rank 0's CPU",
        causes={"job": ("nightly.py", "--cpu", "{cpu0}", "--period", "3")},
        expect=(Expect("host.cpu_contention", "job", "other_process", victims=(0,),
                       severity="medium"),),
        seconds=25, periods=(3.0,), scopes=("rank_local",)),
    "file_lock": Case(
        what="a program keeps the lock of the file that the ranks append to",
        train=("--journal",),
        causes={"archiver": ("archiver.py", "--file", "{work}/journal", "--period", "1.6")},
        expect=(Expect("host.lock_held", "archiver", "other_process", lock="file lock",
                       severity="medium"),),
        seconds=20, periods=(1.6,)),
    "slow_service": Case(
        what="each step asks a service that now and then does not answer for a while",
        train=("--ask", "--step-ms", "28"),
        causes={"registry": ("registry.py", "--socket", "{work}/registry", "--period", "1.4")},
        expect=(Expect("host.waited_for", "registry", "other_process", severity="medium"),),
        seconds=20, periods=(1.4,), may=("host.cpu_contention",)),
    "two_causes": Case(
        what="the agent and the batch job at once",
        big=True,
        causes={"agent": ("exporter.py", "--period", "1.9", "{pids}"),
                "job": ("nightly.py", "--cpu", "{cpu0}", "--period", "3.7")},
        expect=(Expect(culprit="agent", functions=ROLLUP, **LOCK),
                Expect("host.cpu_contention", "job", "other_process", victims=(0,))),
        seconds=30),
    "red_herring": Case(
        what="the agent, and beside it a loud 500 ms garbage collection in rank 1 and 0, once or twice",
        big=True, train=("--garbage", "16", "0.5"),
        causes={"agent": ("exporter.py", "--period", "1.1", "{pids}")},
        expect=(Expect(culprit="agent", functions=ROLLUP, victims=(0, 1), **LOCK),),
        seconds=26, may=("python.gc_pause", "comms.straggler")),
    "late_in_turn": Case(
        what="one rank has 60 ms more to compute every 25 steps, each time another one",
        train=("--late-in-turn", "25", "60"),
        expect=(Expect("comms.straggler", relation="rank", victims=(0, 1), severity="medium"),),
        seconds=15, scopes=("rotating",)),
    "flop_counter": Case(
        what="torch.compile, and a FLOP counter that was left on switches it off",
        trixie=True, nproc=1, train=("--compile", "aot_eager", "--flop-counter"),
        expect=(Expect("compile.skipped", severity="medium"),),
        seconds=8, may=("debug.left_on",)),
    # Healthy twins.
    "healthy": Case(
        what="the same ranks, nobody interferes", big=True, seconds=15),
    "healthy_agent": Case(
        what="the same agent, as busy, looks at an unrelated process",
        big=True, tenant=True,
        causes={"agent": ("exporter.py", "--period", "2.5", "{tenant}"),
                "other": ("inventory.py", "--period", "1.7", "{tenant}")},
        seconds=20),
    "healthy_service": Case(
        what="journal and service are used in each step, but nobody keeps them long",
        train=("--journal", "--ask", "--step-ms", "28"),  # of shorter ones, gloo needs a tenth on the same CPU
        causes={"registry": ("registry.py", "--socket", "{work}/registry", "--period", "1.4",
                             "--busy", "0"),
                "archiver": ("archiver.py", "--file", "{work}/other", "--period", "1.6")},
        seconds=15),
    "healthy_job": Case(
        what="the batch job on rank 0's CPU, but at idle priority: it yields",
        causes={"job": ("nightly.py", "--idle", "--cpu", "{cpu0}", "--period", "3")},
        seconds=15),
    "healthy_compile": Case(
        what="torch.compile, nothing left on",
        trixie=True, nproc=1, train=("--compile", "aot_eager"), seconds=8),
}
