# SPDX-License-Identifier: Apache-2.0
"""pairs.py NAME: two recordings of one training, before and after something changed, compared.

`laggard diff` must name what changed, in the order of what it cost, and nothing else at medium or
above. The truth comes from the ranks' own step times and the agent's log, as in run.py: what the
compiler lost is the difference of the two runs' mean steps less what the agent took, and that is the
excess of the steps that it touched.

Exit: as of run.py.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from cases import ROLLUP, Case, Expect
from judge import Wrong, at_least, match, status, unexpected
from run import ROOT, SKIP, CannotRun, Run, show_progress

AGENT = {"agent": ("exporter.py", "--period", "0.9", "{pids}")}
COMPILED = Case(what="torch.compile, no agent", trixie=True, big=True, seconds=20,
                train=("--compile", "aot_eager"))


@dataclasses.dataclass(frozen=True)
class Pair:
    what: str
    before: Case
    after: Case
    expect: tuple = ()


PAIRS = {
    "founding_incident": Pair(
        what="a library that counts FLOPs switches torch.compile off, and a node agent is installed",
        before=COMPILED,
        after=dataclasses.replace(COMPILED, train=(*COMPILED.train, "--flop-counter"), causes=AGENT),
        expect=(Expect("compile.skipped", severity="medium"),
                Expect("host.lock_held", "agent", "other_process", ROLLUP, "mmap_lock",
                       severity="medium"))),
    "nothing_changed": Pair(what="the same training twice", before=COMPILED, after=COMPILED),
}


def record(case, work, laggard):
    """One run; its work directory keeps run.lag and the batch size."""
    work.mkdir()
    return Run(case, work, work / "run.lag", laggard)(show_progress)


def truths_ms(before, after):
    """What each change cost in the second run, by the ranks' own clocks.

    What the agent did not take of the longer steps, the compiler lost. Means, not medians: a machine
    that gets slower for a part of a run moves both runs' sums, and laggard's account is of sums.
    """
    agent = after.excess_ms("agent") if "agent" in after.acts else 0
    slower = statistics.mean(d for _, d in after.steps[0]) - statistics.mean(d for _, d in before.steps[0])
    return {"compile.skipped": slower / 1e6 * len(after.steps[0]) - agent, "host.lock_held": agent}


def judge(pair, before, after, verdict):
    out = []
    findings = verdict["findings"]
    cost = truths_ms(before, after)
    places = {}
    for expect in pair.expect:
        tries = [(match(expect, after, f), i) for i, f in enumerate(findings)]
        good = [i for wrong, i in tries if not wrong]
        if not good:
            near = min((wrong for wrong, i in tries if findings[i]["id"] == expect.id), key=len,
                       default=["is missing"])
            out.append(Wrong(f"{expect.id}: {'; '.join(near)}"))
            continue
        places[expect.id] = good[0]
        lost, real = findings[good[0]]["lost_ms"], cost[expect.id]
        if lost is None or not 0.5 * real <= lost <= 1.6 * real + 50:
            out.append(Wrong(f"{expect.id}: lost_ms {lost}, by the ranks' own clocks {real:.0f}"))
    for i, finding in enumerate(findings):
        if i not in places.values() and at_least(finding, "medium"):
            out.append(unexpected(finding, after))
    if len(places) == 2:
        first, second = sorted(places, key=places.get)
        if cost[first] < 0.8 * cost[second]:
            out.append(Wrong(f"{first} is told before {second}, which cost more: {cost}"))
    return out


def attempt(name, args, work):
    pair = PAIRS[name]
    before = record(pair.before, work / "before", args.laggard)
    # The same work in both runs, whatever a step then takes.
    batch = (work / "before/batch").read_text().strip()
    after = record(dataclasses.replace(pair.after, train=(*pair.after.train, "--batch", batch)),
                   work / "after", args.laggard)
    print(f"before: {before.summary()}\nafter: {after.summary()}\ncost: {truths_ms(before, after)}")
    paths = [str(work / side / "run.lag") for side in ("before", "after")]
    if args.keep:
        args.keep.mkdir(parents=True, exist_ok=True)
        for side, path in zip(("before", "after"), paths):
            (args.keep / f"{side}.lag").write_bytes(pathlib.Path(path).read_bytes())
    done = subprocess.run([args.laggard, "diff", "--json", *paths], check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    if done.returncode != 0:
        raise RuntimeError(f"laggard diff ended with status {done.returncode}")
    verdict = json.loads(done.stdout)
    print(verdict["diff"]["headline"])
    for f in verdict["findings"]:
        print(f"  {f['severity']:6s} {f['id']} lost {f['lost_ms']} ms: {f['title']}")
    faults = judge(pair, before, after, verdict)
    if len(after.steps[0]) < 300 or (pair.after.causes and after.bites("agent") < 5):
        faults.append(Wrong("the scenario did not happen: too few steps, or the agent did not bite"))
    return faults, max(before, after, key=lambda side: side.foreign)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("name", choices=PAIRS, metavar="NAME", help=", ".join(PAIRS))
    parser.add_argument("--keep", type=pathlib.Path, help="keep the recordings in this folder")
    parser.add_argument("--laggard", default=os.environ.get("LAGGARD", str(ROOT / "build/laggard")))
    args = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="pair-") as work:
            faults, truth = attempt(args.name, args, pathlib.Path(work))
    except CannotRun as e:
        print(f"skipped: {e}")
        return SKIP
    for fault in faults:
        print(f"{fault.says}: {fault}")
    return status(faults, truth)


if __name__ == "__main__":
    sys.exit(main())
