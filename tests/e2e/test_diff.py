# SPDX-License-Identifier: Apache-2.0
"""diff: formats, baselines, the limit's exit statuses; live, both halves of the founding incident."""
import json
import os
import pathlib
import random
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest
from conftest import PYTHON, ROOT
from test_explain import check_schema


@pytest.fixture(scope="session")
def trace(laggard_path, tmp_path_factory):
    tool = next((p / "tests/e2e/make_trace" for p in pathlib.Path(laggard_path).parents
                 if (p / "tests/e2e/make_trace").exists()), None)
    assert tool, "tests/e2e/make_trace is not built"
    where = tmp_path_factory.mktemp("diff")
    for kind in ("stall", "healthy", "nasty", "random", "empty"):
        subprocess.run([tool, kind, where / f"{kind}.lag"], check=True)
    return lambda kind: where / f"{kind}.lag"


def diff(laggard, *args):
    done = laggard("diff", *args, "--json")
    return done.returncode, json.loads(done.stdout, parse_constant=pytest.fail)


def loud(verdict):
    return [f["id"] for f in verdict["findings"] if f["severity"] in ("high", "medium")]


@pytest.mark.parametrize("before", ("stall", "healthy", "nasty", "random", "empty"))
@pytest.mark.parametrize("after", ("stall", "nasty", "random", "empty"))
def test_any_pair_gives_schema_1_and_a_diff(laggard, trace, before, after):
    status, verdict = diff(laggard, trace(before), trace(after))
    assert status == 0
    check_schema(verdict)
    d = verdict["diff"]
    assert set(d) == {"headline", "unfair", "before", "after", "mean", "median", "samples_per_s",
                      "delta_ms", "run_noise", "explained", "stages", "items", "processes",
                      "lock_holders", "devices", "facts", "gate"}
    assert len(verdict["inputs"]) == 2 and d["gate"]["verdict"] is None
    if d["delta_ms"] is not None:
        told = sum(x["ms_per_step"] for x in d["explained"])
        assert told == pytest.approx(d["delta_ms"], abs=0.002 * d["after"]["mean_ms"] + 1e-4)
    for fmt in ((), ("--markdown",), ("--github",)):
        done = laggard("diff", trace(before), trace(after), *fmt)
        assert done.returncode == 0 and done.stdout and "\033" not in done.stdout
        if fmt == ("--github",):
            assert all(line.startswith("::") for line in done.stdout.splitlines())


def test_what_is_new_is_named_with_its_loss(laggard, trace):
    status, verdict = diff(laggard, trace("healthy"), trace("stall"))
    assert status == 0 and loud(verdict) == ["host.lock_held"]
    f, d = verdict["findings"][0], verdict["diff"]
    assert f["culprit"]["pid"] == 4711
    per_step = f["lost_ms"] / d["after"]["steps"]
    assert per_step == pytest.approx(d["delta_ms"], rel=0.1)
    assert d["explained"][0]["id"] == "host.lock_held"
    assert d["explained"][0]["share"] == pytest.approx(1, abs=0.1)
    (holder,) = d["lock_holders"]
    assert holder["held_before_ms"] == 0 and holder["period_after_s"] == pytest.approx(0.4, rel=0.05)
    # The same the other way round is no fault, and twice the same is no difference.
    assert not loud(diff(laggard, trace("stall"), trace("healthy"))[1])
    _, same = diff(laggard, trace("stall"), trace("stall"))
    assert not same["findings"] and same["diff"]["mean"]["ratio"] == 1


def test_the_limit_fails_only_when_the_interval_lies_above_it(laggard, trace):
    for limit, status, word in (("5%", 3, "fail"), ("5", 3, "fail"), ("24", 0, "pass"), ("99%", 0, "pass")):
        done = laggard("diff", trace("healthy"), trace("stall"), "--fail-over", limit, "--json")
        gate = json.loads(done.stdout)["diff"]["gate"]
        # 24 is below the estimate (24.4) and inside the interval: noise is not excluded.
        assert (done.returncode, gate["verdict"]) == (status, word), (limit, gate)
    done = laggard("diff", trace("healthy"), trace("empty"), "--fail-over", "5%")
    assert done.returncode == 1 and "fewer than three" in done.stderr


def test_junit_says_what_the_exit_status_says(laggard, trace, tmp_path):
    out = tmp_path / "out.xml"
    for limit, failures in (("5%", 2), ("99%", 0)):
        laggard("diff", trace("healthy"), trace("stall"), "--fail-over", limit, "--junit", out)
        suite = ET.parse(out).getroot().find("testsuite")
        cases = suite.findall("testcase")
        assert int(suite.get("tests")) == len(cases) >= 2
        assert int(suite.get("failures")) == len(suite.findall("testcase/failure")) == failures
        assert cases[0].get("name") == "step time"
    for kind in ("nasty", "random"):  # names that XML cannot hold
        assert laggard("diff", trace(kind), trace("stall"), "--junit", out).returncode == 0
        ET.parse(out)


def test_a_baseline_stands_for_its_recording(laggard, trace, tmp_path):
    base = tmp_path / "main.baseline"
    done = laggard("diff", trace("healthy"), "--save-baseline", base)
    assert done.returncode == 0 and not done.stdout and "1 run" in done.stderr
    _, direct = diff(laggard, trace("healthy"), trace("stall"))
    status, stored = diff(laggard, base, trace("stall"))
    assert status == 0 and loud(stored) == loud(direct)
    assert stored["findings"][0]["lost_ms"] == pytest.approx(direct["findings"][0]["lost_ms"], rel=0.01)
    # Runs add up; a run over the limit is not taken in.
    others = [tmp_path / f"{i}.lag" for i in range(2)]
    for i, other in enumerate(others):
        assert laggard("convert", trace("healthy"), "-o", other, "--from", f"{0.5 + 0.4 * i}").returncode == 0
    done = laggard("diff", base, others[0], "--fail-over", "5%", "--save-baseline", base)
    assert done.returncode == 0 and "2 runs" in done.stderr
    # The same run again, the last one or an older one, is no new run.
    for again in (others[0], trace("healthy"), others[0]):
        done = laggard("diff", base, again, "--save-baseline", base)
        assert done.returncode == 0 and "2 runs" in done.stderr and "already" in done.stderr
    assert diff(laggard, base, trace("healthy"))[1]["diff"]["run_noise"] is None
    before = base.read_bytes()
    done = laggard("diff", base, trace("stall"), "--fail-over", "5%", "--save-baseline", base)
    assert done.returncode == 3 and base.read_bytes() == before
    done = laggard("diff", base, others[1], "--save-baseline", base)
    assert "3 runs" in done.stderr and "already" not in done.stderr
    assert diff(laggard, base, trace("healthy"))[1]["diff"]["run_noise"] is not None


def test_a_baseline_is_no_trace_and_said_to_be_one(laggard, trace, tmp_path):
    base = tmp_path / "b"
    laggard("diff", trace("healthy"), "--save-baseline", base)
    done = laggard("explain", "-v", base)
    assert done.returncode == 1 and "is a baseline, which laggard diff" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_damaged_baseline_is_refused(laggard, trace, tmp_path):
    base = tmp_path / "b"
    laggard("diff", trace("healthy"), "--save-baseline", base)
    whole = base.read_bytes()
    for bytes_ in (whole[:-9], whole[:len(whole) // 2], whole.replace(b"step\t", b"step\t1", 1),
                   whole.replace(b"run\t", b"\0un\t", 1)):
        base.write_bytes(bytes_)
        done = laggard("diff", base, trace("stall"))
        assert done.returncode == 1 and not done.stdout
        assert done.stderr.count("\n") == 1 and str(base) in done.stderr


@pytest.mark.parametrize("args, word", (
    ((), "BEFORE and AFTER"), (("a",), "BEFORE and AFTER"), (("a", "b", "c"), "c"),
    (("a", "b", "--fail-over", "x"), "percentage"), (("a", "b", "--fail-over", "-5"), "percentage"),
    (("a", "b", "--fail-over", "nan"), "percentage"), (("a", "b", "--fail-over"), "--fail-over"),
    (("a", "b", "--nonsense"), "--nonsense")))
def test_wrong_usage_is_one_line_and_exit_2(laggard, args, word):
    done = laggard("diff", *args)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.count("\n") == 1 and word in done.stderr


def test_output_that_cannot_be_written_is_a_failure(laggard_path, trace, tmp_path):
    pair = [str(trace("healthy")), str(trace("stall"))]
    with open("/dev/full", "w", encoding="ascii") as full:
        done = subprocess.run([laggard_path, "diff", *pair], check=False, stdout=full,
                              stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "standard output" in done.stderr
    done = subprocess.run([laggard_path, "diff", *pair, "--junit", "/dev/full"], check=False,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "/dev/full" in done.stderr and "standard output" not in done.stderr
    for option in ("--junit", "--save-baseline"):
        done = subprocess.run([laggard_path, "diff", *pair, option, str(tmp_path / "no/x")],
                              check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1 and done.stderr.count("\n") == 1


def test_what_is_read_is_never_replaced(laggard, trace, tmp_path):
    a, b, folder = tmp_path / "a.lag", tmp_path / "b.lag", tmp_path / "ranks"
    folder.mkdir()
    for to in (a, folder / "r.lag"):
        to.write_bytes(trace("healthy").read_bytes())
    b.write_bytes(trace("stall").read_bytes())
    (tmp_path / "link.lag").symlink_to(b)
    base, z = tmp_path / "x.base", tmp_path / "z"
    assert laggard("diff", a, "--save-baseline", base).returncode == 0
    kept = {p: p.read_bytes() for p in (a, b, folder / "r.lag", base)}
    for args in ((a, "--save-baseline", a), (a, b, "--save-baseline", b), (a, b, "--save-baseline", a),
                 (a, b, "--save-baseline", tmp_path / "link.lag"), (base, b, "--save-baseline", b),
                 (base, b, "--junit", b), (base, b, "--junit", base), (a, base, "--save-baseline", base),
                 (folder, b, "--save-baseline", folder / "r.lag"), (folder, b, "--junit", folder / "r.lag"),
                 (a, b, "--junit", z, "--save-baseline", z), (a, b, "--junit", z, "--save-baseline", f"{tmp_path}/./z")):
        done = laggard("diff", *args)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and not done.stdout, (args, done)
        assert {p: p.read_bytes() for p in kept} == kept and not z.exists(), args
    # A recording that is not even read: a slip of the finger, no baseline to bring up to date.
    done = laggard("diff", base, a, "--save-baseline", folder / "r.lag")
    assert done.returncode == 1 and "is no baseline" in done.stderr
    assert {p: p.read_bytes() for p in kept} == kept
    # The baseline that is compared with is brought up to date; an empty file is room for one.
    z.touch()
    for to in (base, z):
        assert laggard("diff", base, a, "--junit", tmp_path / "j.xml", "--save-baseline", to).returncode == 0
        assert to.read_bytes().startswith(b"laggard-baseline")


def test_the_same_input_gives_the_same_bytes(laggard, trace):
    assert len({laggard("diff", trace("healthy"), trace("stall"), "--json").stdout
                for _ in range(2)}) == 1


def test_every_id_that_diff_emits_has_a_rule(laggard, root):
    import re
    ids = {r["id"] for r in json.loads(laggard("rules", "--json").stdout)}
    text = "".join(p.read_text(encoding="utf-8") for p in (root / "src/diff").glob("causes*.c"))
    of = {"LG_R_" + i.upper().replace(".", "_"): i for i in ids}
    emitted = {of[name] for name in re.findall(r"lg_cause_add\(c, (LG_R_[A-Z_]+)", text)}
    assert {"compile.skipped", *(i for i in ids if i.startswith("regress."))} <= emitted <= ids


# Stands for laggard where only the recipes are looked at: notes its words, makes the baseline.
STUB = """#!/bin/sh
echo "$@" >> words
case "$1 $*" in
record*) exit $RECORD ;;
*--save-baseline*) echo x > main.baseline ;;
esac
exit $DIFF
"""


@pytest.fixture
def recipe(tmp_path):
    page = (ROOT / "doc/ci-gate.md").read_text(encoding="utf-8")
    (tmp_path / "laggard").write_text(STUB)
    (tmp_path / "laggard").chmod(0o755)

    def run(begin, end, record=0, diff=0, shell=("sh", "-e", "-c"), **env):
        """The shell text between two lines of the page; its status, and what laggard was called with."""
        text = page[page.index(begin) + len(begin):]
        (tmp_path / "words").write_text("")
        done = subprocess.run([*shell, text[:text.index(end)]], check=False, cwd=tmp_path,
                              stdout=subprocess.DEVNULL,
                              env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}",
                                   "GITHUB_STEP_SUMMARY": "/dev/null", "RECORD": str(record),
                                   "DIFF": str(diff), **env})
        return done.returncode, (tmp_path / "words").read_text().splitlines()
    return run


@pytest.mark.parametrize("record, status, bisect", ((0, 0, 0), (0, 3, 1), (0, 1, 125), (0, 2, 125),
                                                    (0, 127, 125), (1, 0, 125), (3, 0, 125)))
def test_bisect_skips_what_cannot_be_judged(recipe, record, status, bisect):
    # git bisect run: 0 good, 125 skip, others below 128 bad.
    assert recipe("git bisect run sh -c '", "'\n```", record, status, ("sh", "-c"))[0] == bisect


def test_the_recipes_save_each_run_once_and_on_main_only(recipe, tmp_path):
    for i in range(3):
        for begin, end in (("name: Compare\n        run: |\n", "      - name: Remember"),
                           ("refs/heads/main'\n        run: |\n", "      - uses")):
            status, words = recipe(begin, end)
            saves = [w for w in words if "--save-baseline" in w]
            assert status == 0 and len(saves) == (begin[0] == "r"), words
            assert i or begin[0] == "r" or not words
            assert not i or all("main.baseline run.lag" in w for w in words)
    assert recipe("name: Compare\n        run: |\n", "      - name: Remember", diff=3)[0] == 3
    (tmp_path / "main.baseline").unlink()
    gitlab = ("max-steps 400\n    - |\n", "  artifacts:")
    assert recipe(*gitlab, CACHE="pull") == (0, [])  # a merge request, before there is a baseline
    assert recipe(*gitlab, CACHE="pull-push") == (0, ["diff run.lag --save-baseline main.baseline"])
    for cache in ("pull-push", "pull"):
        status, (words,) = recipe(*gitlab, CACHE=cache)
        assert status == 0 and "--fail-over" in words
        assert ("--save-baseline" in words) == (cache == "pull-push")
        assert recipe(*gitlab, CACHE=cache, diff=3)[0] == 3


@pytest.mark.live
@pytest.mark.parametrize("name", ("founding_incident", pytest.param("nothing_changed", marks=pytest.mark.healthy)))
def test_live_pair(name, scenario, can_record):
    scenario("pairs.py", name)


TRIXIE = os.environ.get("LG_TRIXIE") or str(ROOT / "build/trixie")


@pytest.mark.parametrize("backend", ("aot_eager", "inductor"))
def test_profiler_traces_name_the_lost_compilation(laggard, tmp_path, backend):
    """The same pair as torch.profiler traces of torch 2.6."""
    if os.geteuid() != 0 or not (pathlib.Path(TRIXIE) / "usr/bin/python3").exists():
        pytest.skip("needs torch 2 in a Debian 13 root: run sudo tools/make-trixie")
    if backend == "inductor" and not (pathlib.Path(TRIXIE) / "usr/lib/python3/dist-packages/setuptools").exists():
        pytest.skip("the Debian 13 root lacks what Inductor builds with: make it anew with sudo tools/make-trixie")
    for side, more in (("before", ()), ("after", ("--flop-counter",))):
        done = subprocess.run([str(ROOT / "scenarios/in_root"), TRIXIE, PYTHON, "/mnt/profiled.py",
                               "--compile", backend, "--out", str(tmp_path / f"{side}.json"), *more],
                              check=False, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              timeout=240)
        assert done.returncode == 0, done.stderr[-2000:]
    status, verdict = diff(laggard, tmp_path / "before.json", tmp_path / "after.json")
    assert status == 0
    assert loud(verdict) == ["compile.skipped"], [(f["id"], f["title"]) for f in verdict["findings"]]
    f = verdict["findings"][0]
    d = verdict["diff"]
    assert d["before"]["compiled_regions"] >= 1 and d["after"]["compiled_regions"] == 0
    assert f["lost_ms"] > 0 and f["fix"] and f["evidence"]
    # The other way round the compiler came back.
    assert not loud(diff(laggard, tmp_path / "after.json", tmp_path / "before.json")[1])


def profile_with_loader(path, wait_us):
    """As torch 1.13's profiler writes it: no categories, no scheduler states, one thread."""
    rng, ts, events = random.Random(7), 100, []
    for step in range(18):
        wait, work = wait_us + rng.randrange(500), 40_000 + rng.randrange(4000)
        loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        for name, at, dur in ((f"ProfilerStep#{step}", ts, wait + work), (loader, ts + 5, wait),
                              *(("aten::linear", ts + wait + 10 + k * 1500, 1400) for k in range(25)),
                              ("Optimizer.step#SGD.step", ts + wait + work - 2000, 1500)):
            events.append({"name": name, "ph": "X", "ts": at, "dur": dur, "tid": 1, "pid": "CPU functions", "args": {}})
        ts += wait + work + 20
    path.write_text(json.dumps(events))
    return path


def test_a_slow_loader_in_traces_without_states_is_named(laggard, tmp_path):
    ok, slow = profile_with_loader(tmp_path / "ok.json", 500), profile_with_loader(tmp_path / "slow.json", 30_000)
    status, verdict = diff(laggard, ok, slow)
    assert status == 0
    assert loud(verdict) == ["data.loader_wait"], [(f["id"], f["title"]) for f in verdict["findings"]]
    waits = [s for s in verdict["diff"]["stages"] if s["name"] == "batch_wait"]
    assert len(waits) == 1 and 28 < waits[0]["delta_ms"] < 31, waits
    _, twin = diff(laggard, ok, profile_with_loader(tmp_path / "twin.json", 600))
    assert loud(twin) == []
