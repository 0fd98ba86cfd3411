# SPDX-License-Identifier: Apache-2.0
"""A run compared with itself: the first half of its steps with the second. Nothing was changed, so
nothing may be told at medium or above, in either direction, whatever the run drifted by.

Real traces: those of tests/data, and in the large sweep those of LG_CASES.
"""
import json

import case_files
import pytest
from conftest import ROOT

STEPS_MIN = 6  # three a side
SUFFIXES = {".gz", ".zst", ".json", ".sqlite", ".data", ".lag", ".log", ".txt", ".csv"}


def candidates():
    roots = {ROOT / "tests/data", *case_files.ROOTS} - {case_files.OWN}  # which lies in the first
    return [p for root in sorted(roots) for p in sorted(root.rglob("*"))
            if p.is_file() and p.suffix in SUFFIXES and p.parent.name != "ref" and p.stat().st_size < 16 << 20]


def steps_of(laggard, path):
    """The judged steps of the lowest rank, in time order; [] where there are none."""
    done = laggard("steps", path, "--json")
    if done.returncode:
        return []
    steps = [s for s in json.loads(done.stdout)["steps"] if not s["warmup"]]
    rank = min((s["rank"] or 0 for s in steps), default=0)
    return sorted((s for s in steps if (s["rank"] or 0) == rank), key=lambda s: s["start_s"])


def halves(laggard, path, out):
    steps = steps_of(laggard, path)
    if len(steps) < STEPS_MIN:
        return None
    middle, first = steps[len(steps) // 2]["start_s"], steps[0]["start_s"]
    for name, args in (("first", ("--from", f"{first:.9f}", "--to", f"{middle:.9f}")),
                       ("second", ("--from", f"{middle:.9f}"))):
        done = laggard("convert", path, "-o", out / f"{name}.lag", "--no-verdict", *args)
        assert done.returncode == 0, done.stderr
    return out / "first.lag", out / "second.lag"


def loud(verdict):
    return [(f["id"], f["severity"], f["title"], f["lost_ms"]) for f in verdict["findings"]
            if f["severity"] in ("high", "medium")]


@pytest.mark.cases
def test_halves_of_one_run_do_not_differ(laggard, tmp_path):
    wrong, compared = [], 0
    for path in candidates():
        if "mem.oom" in {f["id"] for f in json.loads(laggard("explain", path, "--json").stdout or '{"findings": []}')["findings"]}:
            continue  # it ran out of memory at its end: the second half has what the first has not
        pair = halves(laggard, path, tmp_path)
        if not pair:
            continue
        compared += 1
        for before, after in (pair, pair[::-1]):
            done = laggard("diff", before, after, "--json")
            assert done.returncode == 0, (path, done.stderr)
            wrong += [(path.name, before.name, *f) for f in loud(json.loads(done.stdout))]
    assert compared >= 3  # most files of others have fewer steps
    assert not wrong, "\n".join(map(str, wrong))
