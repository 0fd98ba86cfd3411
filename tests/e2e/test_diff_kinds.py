# SPDX-License-Identifier: Apache-2.0
"""diff over every pair of kinds of input: an honest sentence always, no loss where nothing changed, and the
changes that a kind can show are told."""
import gzip
import itertools
import json
import random
import re

import pytest
from conftest import ROOT

DATA = ROOT / "tests/data"
KINDS = {
    "kineto": DATA / "kineto/train.json.gz",
    "perf": DATA / "perf/burn.data",
    "log": DATA / "torchlog/steps.log",
    "smi": DATA / "smi/query.csv",
    "dmon": DATA / "smi/dmon.txt",
    "nccl": DATA / "nccllog/nccl.log",
    "py-spy": DATA / "pyspy/sampled.speedscope.json",
    "flight recorder": DATA / "flightrec/_dump_0.pickle",
    "folded": DATA / "folded/stacks.folded",
    "nsys": DATA / "cases/GindaChen+nsys-ai/mfu_2gpu_before.sqlite.zst",
}


def diff(laggard, *args):
    done = laggard("diff", *args, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout, parse_constant=pytest.fail)


def loud(verdict):
    return [(f["id"], f["title"]) for f in verdict["findings"] if f["severity"] in ("high", "medium")]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_file_does_not_differ_from_itself(laggard, kind):
    verdict = diff(laggard, KINDS[kind], KINDS[kind])
    assert not loud(verdict) and not verdict["diff"]["unfair"]
    for fmt in ((), ("--markdown",), ("--github",)):
        done = laggard("diff", KINDS[kind], KINDS[kind], *fmt)
        assert done.returncode == 0 and done.stdout


@pytest.mark.parametrize("before, after", itertools.permutations(sorted(KINDS), 2))
def test_two_kinds_are_not_comparable_and_that_is_said(laggard, before, after):
    verdict = diff(laggard, KINDS[before], KINDS[after])
    d = verdict["diff"]
    formats = [i["format"] for i in verdict["inputs"]]
    if formats[0] != formats[1]:
        assert any("different tools" in line for line in d["unfair"]), d["unfair"]
        # No news and no advice from what only one of them can know.
        assert all(f["before"] is not None and f["after"] is not None for f in d["facts"]), d["facts"]
        if len(d["unfair"]) == 1:
            (work,) = [f for f in verdict["findings"] if f["id"] == "regress.workload"]
            assert "batch" not in work["fix"] + work["confirm"] and "same tool" in work["fix"], work
        text = laggard("diff", KINDS[before], KINDS[after]).stdout
        assert not re.search(r"^ +-? +-? *[+]? +-\?", text, re.M) and "(not told)" not in text, text
    assert d["headline"] and d["gate"]["verdict"] is None
    assert {f for f, _ in loud(verdict)} <= {"regress.workload"} or d["mean"]["lo"] is not None



def megatron(step_ms, steps=60, batch=256):
    lines = []
    at = 0.0
    for i in range(1, steps + 1):
        ms = step_ms * (1 + 0.02 * ((i * 7919) % 13 - 6) / 6)
        at += ms / 1000
        lines.append(f" [2026-11-21 10:{int(at) // 60 % 60:02d}:{int(at) % 60:02d}] iteration {i:8d}/ 1000 | "
                     f"consumed samples: {i * batch:12d} | elapsed time per iteration (ms): {ms:.1f} | "
                     f"learning rate: 1.0E-04 | global batch size: {batch:5d} | lm loss: 2.5E+00 |")
    return "\n".join(lines) + "\n"


def test_logs_tell_that_steps_got_longer(laggard, tmp_path):
    paths = {}
    for name, args in (("before", (400,)), ("same", (402,)), ("slow", (520,)), ("big", (760, 60, 512))):
        paths[name] = tmp_path / f"{name}.log"
        paths[name].write_text(megatron(*args))
    assert not loud(diff(laggard, paths["before"], paths["same"]))
    verdict = diff(laggard, paths["before"], paths["slow"])
    assert [f for f, _ in loud(verdict)] == ["regress.stage"]
    assert verdict["diff"]["mean"]["ratio"] == pytest.approx(1.3, abs=0.02)
    # Twice the samples in less than twice the time is no regression, and is said to be other work.
    verdict = diff(laggard, paths["before"], paths["big"])
    assert any("batch size: 256 before, 512 after" in line for line in verdict["diff"]["unfair"])
    assert verdict["diff"]["samples_per_s"]["ratio"] == pytest.approx(2 * 400 / 760, abs=0.02)
    done = laggard("diff", paths["before"], paths["big"], "--fail-over", "5%")
    assert done.returncode == 0


def test_ranks_of_both_sides_are_joined(laggard, tmp_path):
    ranks = [DATA / "kineto/rank0.json.gz", DATA / "kineto/rank1.json.gz"]
    verdict = diff(laggard, *ranks, "--after", *ranks)
    assert len(verdict["inputs"]) == 4 and not loud(verdict) and not verdict["diff"]["unfair"]
    for side in ("old", "new"):
        (tmp_path / side).mkdir()
        for path in ranks:
            (tmp_path / side / path.name).symlink_to(path)
    by_folder = diff(laggard, tmp_path / "old", tmp_path / "new")
    assert by_folder["diff"]["mean"] == verdict["diff"]["mean"] and len(by_folder["inputs"]) == 4
    # One rank against two is another world; another rank is another point of view.
    alone = diff(laggard, ranks[0], "--after", *ranks)
    assert any("number of ranks" in line for line in alone["diff"]["unfair"]) or \
        alone["diff"]["before"]["steps"] == 0
    other = diff(laggard, ranks[0], ranks[1])
    assert any("rank whose steps are compared: 0 before, 1 after" in line for line in other["diff"]["unfair"])


def test_a_profiler_trace_tells_how_many_ranks_there_are(laggard, tmp_path):
    path = DATA / "kineto/rank0.json.gz"
    text = gzip.decompress(path.read_bytes()).decode()
    more, n = re.subn(r'("world_size": *)2', r"\g<1>4", text)
    assert n == 1
    (tmp_path / "of4.json").write_text(more)
    assert diff(laggard, path, tmp_path / "of4.json")["diff"]["unfair"] == ["number of ranks: 2 before, 4 after"]


@pytest.mark.parametrize("args, word", (
    (("--after", "a"), "BEFORE"), (("a", "--after"), "AFTER"), (("a", "--after", "b", "--after", "c"), "--after")))
def test_wrong_usage_of_after(laggard, args, word):
    done = laggard("diff", *args)
    assert done.returncode == 2 and word in done.stderr and done.stderr.count("\n") == 1


def readings(path, seed, clock=1980, util=97, hot=0.0, gpus=2, rows=240, mib=60000):
    """nvidia-smi --query-gpu, twice a second; the last GPU as told, the others healthy."""
    draw = random.Random(seed)
    lines = ["timestamp, index, utilization.gpu [%], clocks.sm [MHz], power.draw [W], memory.used [MiB], "
             "clocks_event_reasons.active"]
    for i in range(rows):
        for g in range(gpus):
            odd = g == gpus - 1
            reasons = 0x4 | (0x20 if odd and draw.random() < hot else 0)
            lines.append(f"2026/11/21 10:{i // 120:02d}:{i // 2 % 60:02d}.{i % 2 * 500:03d}, {g}, "
                         f"{min(100, int(draw.gauss(util if odd else 97, 2)))} %, "
                         f"{int(draw.gauss(clock if odd else 1980, 10))} MHz, {draw.gauss(650, 15):.2f} W, "
                         f"{(mib if odd else 60000) + draw.randint(0, 40)} MiB, 0x{reasons:016x}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_devices_of_two_healthy_runs_do_not_differ(laggard, tmp_path):
    for seed in range(1, 9):
        d = diff(laggard, readings(tmp_path / "a.csv", seed), readings(tmp_path / "b.csv", seed + 100))["diff"]
        assert len(d["devices"]) == 10 and not [x for x in d["devices"] if x["sure"]], d["devices"]
        assert "none changed beyond the noise" in d["headline"]


def test_devices_that_got_slower_are_told(laggard, tmp_path):
    before = readings(tmp_path / "a.csv", 1)
    after = readings(tmp_path / "b.csv", 2, clock=1500, util=80, hot=0.4, mib=30000)
    verdict = diff(laggard, before, after)
    got = {x["metric"]: x for x in verdict["diff"]["devices"] if x["sure"]}
    assert all(x["gpu"] == 1 for x in got.values())
    assert set(got) == {"gpu.clock_sm", "gpu.util", "gpu.mem_used", "gpu.throttle: sw thermal slowdown"}
    clock, memory = got["gpu.clock_sm"], got["gpu.mem_used"]
    assert 1970 < clock["before"] < 1990 and 1490 < clock["after"] < 1510
    assert clock["lo"] <= clock["delta"] <= clock["hi"] < -450
    assert memory["unit"] == "MiB" and -30100 < memory["delta"] < -29900
    hot = got["gpu.throttle: sw thermal slowdown"]
    assert hot["before"] == 0 and 30 < hot["after"] < 50 and hot["unit"] == "% of readings"
    for fmt in ((), ("--markdown",)):
        text = laggard("diff", before, after, *fmt).stdout
        assert "4 of 11 readings of the devices changed" in " ".join(text.split())
        assert "GPU 1 gpu.clock_sm, MHz" in text.replace("\\", "")


def test_few_readings_prove_nothing(laggard, tmp_path):
    d = diff(laggard, readings(tmp_path / "a.csv", 1, rows=4), readings(tmp_path / "b.csv", 2, rows=4, clock=1500))
    assert d["diff"]["devices"] and not [x for x in d["diff"]["devices"] if x["sure"]]
