# SPDX-License-Identifier: Apache-2.0
"""Settings that cost time: in traces that torch.profiler wrote (tests/data/kineto/settings.py made them), and
in what the hook tells of real programs."""
import json
import random
import re

import pytest


def explain(laggard, *args):
    done = laggard("explain", "--json", *args)
    assert done.returncode == 0, done.stderr
    v = json.loads(done.stdout)
    return {(f["id"], f.get("detail")): f for f in v["findings"]}, v


@pytest.mark.parametrize("name, expected", (
    ("plain", None), ("autocast", None), ("checkpoint", None), ("normed", None), ("many_layers", None),
    ("backward", ("gpu.amp_misuse", "backward_under_autocast")),
    ("by_hand", ("gpu.amp_misuse", "manual_casts")),
    ("loader", ("data.loader_wait", "inferred")),
))
def test_what_torch_writes_is_told_apart(laggard, root, name, expected):
    found, v = explain(laggard, root / f"tests/data/kineto/settings/{name}.json.gz")
    assert list(found) == ([expected] if expected else [])
    if name == "loader":
        f = found[expected]
        assert "inferred" in f["title"] and f["confidence"] < 0.7 and f["lost_ms"] > 4 * 30
        assert any("inferred" in text for text in v["limits"])


STEP_RE = r"i=([0-9]+) .*took ([0-9.]+)"


def test_the_user_says_what_a_step_line_is(laggard, tmp_path):
    log = tmp_path / "job.log"
    log.write_text("".join(f"2025-10-03 18:37:{s:02d},000 worker | i={100 + s} loss 1.0 took 990.0 ms\n"
                           for s in range(40)))
    assert laggard("explain", "-v", log).returncode == 1
    found, v = explain(laggard, log, "--step-regex", STEP_RE)
    assert v["steps"]["count"] >= 30 and v["steps"]["median_ms"] == pytest.approx(990, abs=15)
    rows = laggard("steps", log, "--csv", "--step-regex", STEP_RE).stdout.splitlines()
    assert len(rows) > 30
    assert laggard("convert", log, "-o", tmp_path / "o.lag", "--step-regex", STEP_RE).returncode == 0


def test_a_log_without_times_still_tells_how_long_steps_are(laggard, tmp_path):
    log = tmp_path / "job.log"
    log.write_text("".join(f"it {10 * i} loss 2.0 dt {900 if i == 7 else 100 + i % 3}.5ms\n" for i in range(40)))
    _, v = explain(laggard, log, "--step-regex", r"it ([0-9]+) .*dt ([0-9.]+)ms")
    assert v["steps"]["count"] == 40 and v["steps"]["median_ms"] == pytest.approx(101.5, abs=1)
    assert v["steps"]["slow"] == 1 and v["steps"]["shape"] == "bursty"
    assert any("log states" in text for text in v["limits"])


def log_of(path, ms, clock=False):
    """ms of each step; with clock, each line begins with its time."""
    at, lines = 0.0, []
    for i, x in enumerate(ms):
        at += x / 1000
        stamp = f"2026-03-01 10:{int(at) // 60:02d}:{int(at) % 60:02d},{int(at * 1000) % 1000:03d} " if clock else ""
        lines.append(f"{stamp}it {10 * i if clock else i} took {x} ms\n")
    path.write_text("".join(lines))
    return path


NTH = [2000 if i % 10 == 9 else 100 + i % 3 for i in range(300)]
CHANCE = random.Random(7)
ANYHOW = [2000 if CHANCE.random() < 0.1 else 100 + i % 3 for i in range(300)]


@pytest.mark.parametrize("ms, shape", ((NTH, "periodic"), (ANYHOW, "bursty"),
                                       ([100] * 150 + [260] * 150, "shift"),
                                       ([100, 101, 99, 100] * 3 + [159, 160, 161] * 3, "shift")))
def test_slow_steps_that_a_log_only_states_are_no_clean_bill(laggard, tmp_path, ms, shape):
    log = log_of(tmp_path / "job.log", ms)
    _, v = explain(laggard, log, "--step-regex", r"it ([0-9]+) took ([0-9.]+) ms")
    text = laggard("explain", "-v", log, "--step-regex", r"it ([0-9]+) took ([0-9.]+) ms").stdout
    assert v["steps"]["shape"] == shape and not v["findings"]
    if shape == "shift":  # the level changed: the median is of either half, and no step stands out
        assert text.startswith(f"Steps got {max(ms) // 10 * 10 - 100} % slower"), text
        at = max(i for i, x in enumerate(ms) if x < 150) + 2
        assert any(f"changes at the {at}{'th' if at == 13 else 'st'} of the {len(ms)} step times" in x for x in v["limits"]), v["limits"]
        back = log_of(tmp_path / "back.log", ms[::-1])  # faster is nothing wrong
        text = laggard("explain", "-v", back, "--step-regex", r"it ([0-9]+) took ([0-9.]+) ms").stdout
        assert text.startswith("Nothing was found in what could be judged"), text
        return
    slow = sum(x > 1000 for x in ms)
    share = 100 * (slow * 1900) / sum(ms)
    assert v["unexplained_share"] == 1 and v["steps"]["slow"] == slow
    assert text.startswith("No cause proven"), text
    told = float(re.search(r"took ([0-9]+) % of", " ".join(text.split())).group(1))
    assert told == pytest.approx(share, abs=1)
    assert any("one every 10 steps" in x for x in v["limits"]) == (shape == "periodic")
    assert v["steps"]["period_s"] is None


def test_a_log_with_times_tells_the_period(laggard, tmp_path):
    log = log_of(tmp_path / "job.log", NTH, clock=True)
    _, v = explain(laggard, log, "--step-regex", r"it ([0-9]+) took ([0-9.]+) ms")
    assert v["steps"]["shape"] == "periodic" and v["steps"]["period_s"] == pytest.approx(2.9, abs=0.05)


@pytest.mark.parametrize("ms", ([100 + i % 3 for i in range(300)],
                                [5000, 4000, 3000, 900] + [100 + i % 3 for i in range(296)],
                                [900 if i == 70 else 100 for i in range(300)]))
def test_a_log_of_steady_steps_accuses_nobody_and_clears_nobody(laggard, tmp_path, ms):
    log = log_of(tmp_path / "job.log", ms)
    done = laggard("explain", "-v", log, "--step-regex", r"it ([0-9]+) took ([0-9.]+) ms")
    assert done.stdout.startswith("Nothing was found in what could be judged"), done.stdout
    assert "Not judged: what the steps waited for" in " ".join(done.stdout.split())


@pytest.mark.parametrize("command", ("explain", "steps", "convert", "diff"))
def test_a_bad_expression_is_one_line_and_exit_2(laggard, command):
    for bad in ("(", "no group", "(a)\\1", "((a{1,200}){1,200})", "x" * 2000 + "()"):
        done = laggard(command, "x.log", "--step-regex", bad)
        assert done.returncode == 2 and not done.stdout
        assert done.stderr.count("\n") == 1 and "--step-regex" in done.stderr


def test_money(laggard, root):
    path = root / "tests/data/kineto/settings/loader.json.gz"
    found, v = explain(laggard, path, "--cost-per-hour", "2.5", "--gpus", "16")
    share = found["data.loader_wait", "inferred"]["lost_share"]
    assert v["cost"]["per_hour"] == 40 and v["cost"]["lost_share"] == pytest.approx(share, abs=1e-4)
    assert v["cost"]["lost_per_hour"] == pytest.approx(40 * share, abs=0.01)
    assert v["cost"]["per_training_hour"] == pytest.approx(40 / (1 - share), rel=1e-3)
    text = laggard("explain", "-v", path, "--cost-per-hour", "40").stdout
    assert "an hour of training done costs" in text
    assert "cost" not in explain(laggard, path)[1]
    done = laggard("explain", "-v", path, "--gpus", "8")
    assert done.returncode == 2 and "--cost-per-hour" in done.stderr
