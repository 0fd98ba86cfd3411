# SPDX-License-Identifier: Apache-2.0
"""The repository's own tools: each check must fail on what it is there to find."""
import dataclasses
import importlib.machinery
import importlib.util
import json
import pathlib
import re
import shutil
import subprocess
import sys
import types

import live
import pytest
from conftest import ROOT

sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scenarios"))
import judge  # noqa: E402
import truth  # noqa: E402
from cases import CASES  # noqa: E402


def tool(name, *args):
    return subprocess.run([str(ROOT / "tools" / name), *map(str, args)], check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)


@pytest.fixture
def copy(tmp_path):
    """What the checks read, in a tree that a test may spoil. Not a git checkout."""
    for name in ("src", "doc", "include", "scenarios", "tools", "LICENSES", "tests/unit"):
        shutil.copytree(ROOT / name, tmp_path / name,
                        ignore=shutil.ignore_patterns("__pycache__", "*.lag"))
    for path in [*ROOT.glob("*.md"), ROOT / "LICENSE", ROOT / "Makefile", ROOT / "meson.build"]:
        shutil.copy(path, tmp_path)
    return tmp_path


@pytest.mark.parametrize("path, line", [
    ("src/base/map.c", '#include "store/trace.h"'),
    ("src/analyse/steps/steps.c", '#include "record/session.h"'),
    ("src/analyse/chains/chain.c", '#include "analyse/host/causes.h"'),
    ("src/timeline/gpu_idle.c", '#include "analyse/case.h"'),
    ("src/report/json.c", '#include "import/import.h"'),
    ("src/store/trace.c", '#include "nowhere/x.h"'),
])
def test_check_layers_finds_a_forbidden_include(copy, path, line):
    assert tool("check-layers", copy).returncode == 0
    with open(copy / path, "a", encoding="utf-8") as f:
        f.write(line + "\n")
    done = tool("check-layers", copy)
    assert done.returncode == 1 and path in done.stdout


@pytest.mark.parametrize("path, line, rule", [
    ("src/base/map.c", "int x = atoi(s);", "number"),
    ("src/store/trace.c", 'printf("hello");', "print"),
    ("src/analyse/steps/steps.c", 'char *home = getenv("HOME");', "environment"),
    ("src/report/json.c", "exit(1);", "exit"),
    ("src/report/json.c", "void *p = malloc(3);", "memory"),
    ("src/report/json.c", "/* see /" + "home/bob/notes */", "particular machine"),
    ("src/report/json.c", "\n" * 1001, "lines"),
    ("src/analyse/grade.c", "int f(void)\n{\n" + "\tg();\n" * 80 + "}", "a function of 83 lines"),
], ids=lambda value: value.strip()[:24] or "long")
def test_check_style_finds_it(copy, path, line, rule):
    before = tool("check-style", copy).stdout.splitlines()
    with open(copy / path, "a", encoding="utf-8") as f:
        f.write(line + "\n")
    done = tool("check-style", copy)
    new = "\n".join(set(done.stdout.splitlines()) - set(before))
    assert done.returncode == 1 and path in new and rule in new


def test_check_style_does_not_look_into_comments_and_strings(copy):
    before = tool("check-style", copy).stdout
    with open(copy / "src/base/map.c", "a", encoding="utf-8") as f:
        f.write('/* never printf("x") here, nor exit(1) */\nstatic const char *s = "atoi(3)";\n')
    assert tool("check-style", copy).stdout == before


def add(path, line):
    with open(path, "a", encoding="utf-8") as f:
        f.write(line + "\n")


@pytest.mark.parametrize("spoil, found", [
    (lambda t: (t / "doc/man/laggard-steps.1").unlink(), "command steps has no man page"),
    (lambda t: (t / "README.md").write_text("`laggard fly` and `make coffee`"), "laggard fly"),
    (lambda t: (t / "CONTRIBUTING.md").write_text("[x](doc" + "/nothing.md)"), "leads nowhere"),
    (lambda t: (t / "LICENSE").unlink(), "LICENSE is missing"),
    (lambda t: add(t / "src/base/map.c", "/* see PLAN" + ".md */"), "src/base/map.c: cites PLAN" + ".md"),
    (lambda t: add(t / "src/base/map.c", "/* PLAN " + "section 3 */"), "a section of PLAN by number"),
    (lambda t: add(t / "src/base/map.c", "/* contract.md" + "#luck */"), "has no heading #luck"),
    (lambda t: add(t / "src/base/map.c", "/* doc" + "/luck */"), "cites doc" + "/luck"),
    (lambda t: add(t / "doc/man/laggard.1", ".Xr laggard-luck 7"), "cites laggard-luck" + "(7)"),
], ids=["page", "command", "link", "file", "cited", "number", "heading", "folder", "manual"])
def test_check_docs_finds_it(copy, spoil, found):
    spoil(copy)
    done = tool("check-docs", copy)
    assert done.returncode == 1 and found in done.stdout


@pytest.mark.parametrize("text, path, file", [
    ("files('new.c')", "src/base/meson.build", "src/base/new.c"),
    ("x = {'new': [base_lib]}", "tests/unit/meson.build", "tests/unit/test_new.c"),
    ("subdir('new')", "src/base/meson.build", "src/base/new/meson.build"),
    ('#include "base/new.h"', "src/base/map.c", "src/base/new.h"),
], ids=["source", "test", "folder", "header"])
def test_check_committed_finds_what_a_clone_would_lack(copy, text, path, file):
    def git(*args):
        subprocess.run(["git", "-C", str(copy), *args], check=True, stdout=subprocess.DEVNULL)
    git("init", "-q")
    git("add", "-f", ".")
    assert tool("check-committed", copy).returncode == 0
    with open(copy / path, "a", encoding="utf-8") as f:
        f.write(text + "\n")
    (copy / file).parent.mkdir(exist_ok=True)
    (copy / file).write_text("\n")
    done = tool("check-committed", copy)
    assert done.returncode == 1 and file in done.stdout and path in done.stdout
    git("add", "-f", file)
    assert tool("check-committed", copy).returncode == 0


@pytest.fixture
def findings(copy):
    shutil.copytree(ROOT / "tests/e2e", copy / "tests/e2e", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "tests/findings.tsv", copy / "tests")
    return copy


def change(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert text.count(old) >= 1
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.parametrize("path, old, new, found", [
    ("tests/findings.tsv", "regress.step\t", "#", "regress.step has no row"),
    ("tests/findings.tsv", "\nhost.steal\t", "\nhost.steel\t", "host.steel is no finding"),
    ("tests/findings.tsv", "test_floors:stolen_time_is_told_from_three_percent_on\ttest", "\ttest",
     "host.steal has no positive test"),
    ("tests/unit/test_diff_rest.c", "cmocka_unit_test(processes_that_are_no_news_are_not_told)", "",
     "there is no test test_diff_rest:processes_that_are_no_news_are_not_told"),
    ("tests/e2e/test_import_kineto.py", "def test_devices_of_one_process", "def toast_devices_of_one_process",
     "there is no test test_import_kineto:test_devices_of_one_process"),
], ids=["row", "id", "positive", "unit", "e2e"])
def test_check_findings_finds_it(findings, path, old, new, found):
    assert tool("check-findings", findings).returncode == 0
    change(findings / path, old, new)
    done = tool("check-findings", findings)
    assert done.returncode == 1 and found in done.stdout, done.stdout


def test_check_findings_believes_what_the_tests_were_told(findings):
    """A log in which everything is as the table says, and each way in which it may not be."""
    rows = [line.split("\t") for line in (findings / "tests/findings.tsv").read_text(encoding="utf-8").splitlines()
            if not line.startswith("#")]
    good = [f"{test} 1 {name} low" for name, positive, _ in rows for test in positive.split()]
    good += [f"{test} 2 - -" for _, _, healthy in rows for test in healthy.split()]
    log = findings / "log"

    def says(lines):
        log.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return tool("check-findings", findings, "--log", log, "unit").stdout
    assert says(good) == ""
    assert "regress.step: " in says([line for line in good if " regress.step " not in line])
    twin = "test_diff_rest:processes_that_are_no_news_are_not_told"
    assert f"{twin} has no verdict without it" in says([line for line in good if not line.startswith(twin)])
    accused = [line.replace("2 - -", "2 regress.process info") if line.startswith(twin) else line for line in good]
    assert f"{twin} has no verdict without it" in says(accused)


def test_install_deps_refuses_an_unknown_set():
    done = tool("install-deps", "--check", "everything")
    assert done.returncode == 2 and "unknown set" in done.stdout


def test_install_deps_names_the_exact_command(tmp_path):
    """With a dpkg-query that knows no package, the one line is a complete command."""
    (tmp_path / "dpkg-query").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "dpkg-query").chmod(0o755)
    done = subprocess.run([str(ROOT / "tools/install-deps"), "--check", "build"], check=False,
                          env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "apt-get install -y gcc" in done.stderr and "|" not in done.stderr


@pytest.mark.parametrize("machine", ("amd64", "arm64"))
def test_install_deps_wants_32_bit_programs_where_they_run(tmp_path, machine):
    """By the compiler's version: the package without one takes cross compilers away (it conflicts with them)."""
    for name, does in (("dpkg-query", "exit 1"), ("dpkg", f"echo {machine}"), ("gcc", "echo 13.2.0")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run([str(ROOT / "tools/install-deps"), "--check", "test"], check=False, text=True,
                          env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert "libcap2-bin" in done.stderr and ("multilib" in done.stderr) == (machine == "amd64")
    assert "multilib" not in done.stderr.replace("gcc-13-multilib", "")


def load_run_tests():
    loader = importlib.machinery.SourceFileLoader("run_tests", str(ROOT / "tools/run-tests"))
    spec = importlib.util.spec_from_loader("run_tests", loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_tests"] = module  # dataclasses look their module up
    loader.exec_module(module)
    return module


def test_the_sum_counts_failures_errors_and_skips_with_reasons(tmp_path):
    total = load_run_tests().Sum()
    path = tmp_path / "x.xml"
    path.write_text("""<testsuites><testsuite>
      <testcase classname="a" name="good"/>
      <testcase classname="a" name="bad"><failure message="one is not two"/></testcase>
      <testcase classname="a" name="broken"><error>no such file</error></testcase>
      <testcase classname="a" name="later"><skipped message="needs root"/></testcase>
    </testsuite></testsuites>""")
    assert total.add_junit(path, "s") == 4
    assert total.passed == 1
    assert [why for _, why in total.failed] == ["one is not two", "no such file"]
    assert [why for _, why in total.skipped] == ["needs root"]
    total.add_junit(tmp_path / "missing.xml", "s")
    assert len(total.failed) == 3


LIVE = """
import pathlib, pytest
from live import Accused, Broken, Disturbed

def script(words):
    # Does these things in turn, one an attempt; how many it did is counted in a file.
    said = pathlib.Path(__file__).with_name("said." + words.replace(" ", "-"))
    n = len(said.read_text()) if said.exists() else 0
    said.write_text("x" * (n + 1))
    word = words.split()[n]
    if word == "wrong":
        assert False, f"hiccup {n}"
    if word == "accused":
        raise Accused("who did nothing")
    if word == "broken":
        raise Broken("too much memory")
    if word == "disturbed":
        raise Disturbed("by make")
    if word == "skip":
        pytest.skip("no more")

@pytest.mark.live
@pytest.mark.parametrize("words", ["right", "wrong right right", "wrong right wrong", "wrong wrong", "accused",
                                   "wrong accused", "wrong broken", "disturbed right", "disturbed disturbed disturbed",
                                   "wrong disturbed disturbed disturbed", "skip", "wrong skip"])
def test_live(words):
    script(words)

@pytest.mark.live
@pytest.mark.healthy
@pytest.mark.parametrize("words", ["right ", "wrong ", "disturbed wrong ", "disturbed right "])
def test_healthy(words):
    script(words)

def test_other():
    script("wrong  ")
"""


def test_who_may_run_again_and_how_often(tmp_path):
    """As many attempts as stand in each test's name: one more would be an IndexError, one less is seen below."""
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_x.py").write_text(LIVE)
    (tests / "conftest.py").write_text("import live\nfrom live import *\nlive.QUIET_LIMIT_S = live.QUIET_S = 0\nlive.TAKEN_SHARE = 2\n")
    module, log, total = load_run_tests(), tmp_path / "x.xml", load_run_tests().Sum()
    module.ROOT = tmp_path
    _, out = module.call([module.PYTHON, "-m", "pytest", "-q", "--strict-markers", "-p", "no:cacheprovider",
                          f"--junitxml={log}", "tests"],
                         {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(ROOT / "tests/e2e")}, quiet=True)
    assert total.add_junit(log, "s") == 17, out
    for said in tests.glob("said.*"):
        assert len(said.read_text()) == len(said.name.removeprefix("said.").strip("-").split("-")), said.name
    failed = {re.search(r"\[(.*)\]|(test_other)", name)[0] for name, _ in total.failed}
    assert failed == {"[wrong right wrong]", "[wrong wrong]", "[accused]", "[wrong accused]", "[wrong broken]",
                      "[wrong skip]", "[wrong disturbed disturbed disturbed]", "[wrong ]", "[disturbed wrong ]", "test_other"}
    assert (total.passed, len(total.skipped)) == (5, 2)
    unjudged, = (why for name, why in total.skipped if "[disturbed disturbed disturbed]" in name)
    assert "disturbed 3 times" in unjudged and "by make" in unjudged
    lines = list(total.live_lines())
    assert lines[-1] == "15 live tests: right in 7 of 21 attempts, 9 more disturbed; 15 were repeats"
    repeated, = (line for line in lines if "[wrong right right]" in line)
    assert "right in 2 of 3" in repeated and "hiccup 0" in repeated


@pytest.mark.parametrize("healthy, raised, taken, counts", [
    (False, AssertionError, 0.3, False), (False, AssertionError, 0.01, True), (True, AssertionError, 0.3, True),
    (False, live.Accused, 0.3, True), (False, live.Broken, 0.3, True)])
def test_what_went_wrong_while_the_hypervisor_had_the_cpus(healthy, raised, taken, counts):
    report = types.SimpleNamespace(raised=raised, longrepr="it went wrong")
    attempts = live.Attempts(healthy)
    decided = attempts.add(report, taken)
    assert (attempts.wrong, attempts.disturbed) == ((1, 0) if counts else (0, 1))
    assert decided == (counts and (healthy or raised in (live.Accused, live.Broken)))
    assert attempts.said[0].startswith("the hypervisor took 30 %") == (not counts)


# -- the judge: a verdict that is right, and every way in which it may be wrong ------------------

def case_and_truth():
    case = CASES["agent_in_turn"]
    ms = 1_000_000
    steps, ts = [], 0
    for i in range(2000):
        dur = 60 * ms if i % 180 == 179 else 14 * ms
        steps.append((ts, dur))
        ts += dur
    acts = [(t, 40 * ms, 900) for t, dur in steps if dur > 50 * ms]
    slow = [(t, dur, dur - 14 * ms) for t, dur in steps if dur > 50 * ms]
    return case, truth.Truth([900, 901], [steps, steps], [slow, slow], {"agent": acts},
                             {"agent": 4711}, 0.0)


def right_verdict():
    return {
        "schema": 1, "laggard": "0.1.0", "inputs": [{"lost_events": 0}], "bound": {}, "limits": [],
        "steps": {"count": 2000, "median_ms": 14.0, "shape": "periodic", "period_s": 2.52,
                  "scope": "rotating", "ranks": [0, 1]},
        "findings": [{
            "id": "host.lock_held", "severity": "medium", "confidence": 0.97, "title": "t",
            "lost_ms": 480.0, "fix": "f", "tradeoff": "o", "rule": "host.lock_held",
            "culprit": {"relation": "other_process", "pid": 4711, "cmdline": "python3 exporter.py",
                        "function": "smap_gather_stats.part.0", "lock": "mmap_lock"},
            "victims": [{"rank": 0}, {"rank": 1}], "evidence": [{"text": "e"}]}]}


def test_judge_accepts_the_truth():
    case, facts = case_and_truth()
    assert facts.faults(case) == []
    assert judge.judge(case, facts, right_verdict()) == []


@pytest.mark.parametrize("change, found", [
    (lambda v: v["findings"][0]["culprit"].update(pid=4712), "pid 4712"),
    (lambda v: v["findings"][0]["culprit"].update(function="munmap"), "function munmap"),
    (lambda v: v["findings"][0]["culprit"].update(relation="self"), "relation self"),
    (lambda v: v["findings"][0]["culprit"].update(lock=None), "lock None"),
    (lambda v: v["findings"][0].update(severity="info"), "severity info"),
    (lambda v: v["findings"][0].update(lost_ms=670.0), "lost_ms 670"),
    (lambda v: v["findings"][0].update(lost_ms=340.0), "lost_ms 340"),
    (lambda v: v["findings"][0].update(victims=[{"rank": 0}]), "victims"),
    (lambda v: v["findings"][0].update(evidence=[]), "no evidence"),
    (lambda v: v["findings"][0].update(fix=""), "no fix"),
    (lambda v: v["findings"].clear(), "host.lock_held is missing"),
    (lambda v: v["findings"].append({**v["findings"][0], "id": "comms.straggler", "lost_ms": 400}),
     "unexpected medium comms.straggler"),
    (lambda v: v["steps"].update(period_s=5.0), "period_s 5.0"),
    (lambda v: v["steps"].update(shape="bursty"), "shape bursty"),
    (lambda v: v["steps"].update(scope="rank_local"), "scope rank_local"),
    (lambda v: v["steps"].update(count=900), "steps.count 900"),
    (lambda v: v["steps"].update(median_ms=7.0), "steps.median_ms 7.0"),
    (lambda v: v["inputs"][0].update(lost_events=3), "3 events were lost"),
    (lambda v: v.pop("limits"), "lacks limits"),
])
def test_judge_rejects(change, found):
    case, facts = case_and_truth()
    verdict = json.loads(json.dumps(right_verdict()))
    change(verdict)
    assert any(found in fault for fault in judge.judge(case, facts, verdict))


def test_only_what_others_really_did_is_a_disturbance():
    case, facts = case_and_truth()
    verdict = right_verdict()
    hog = {**verdict["findings"][0], "id": "host.cpu_contention", "lost_ms": 400.0}
    verdict["findings"].append({**hog, "culprit": {"relation": "other_process", "pid": 77}})
    facts.cpu_ms.update({77: 500.0, 78: 100.0, 4711: 500.0, 900: 500.0})
    assert [type(f) for f in judge.judge(case, facts, verdict)] == [judge.Disturbance]
    for pid in (78, 79, 900, 4711, None):  # who had less, somebody unseen, a rank, the agent, nobody
        verdict["findings"][1]["culprit"]["pid"] = pid
        faults = judge.judge(case, facts, verdict)
        # What the agent is named for counts as one: its lost time is wrong as well.
        assert {type(f) for f in faults} - ({judge.Wrong} if pid == 4711 else set()) == {judge.Accusation}
        assert judge.status(faults, facts) == 3
    facts.foreign = 0.9  # which excuses nothing but a run that was wrong
    assert judge.status(faults, facts) == 3 and judge.status([], facts) == 0
    assert judge.status([judge.Wrong("x")], facts) == 75
    facts.foreign = 0.0
    assert judge.status([judge.Wrong("x")], facts) == 1


def test_the_innocent_are_not_named_at_any_severity():
    case, facts = CASES["healthy_agent"], case_and_truth()[1]
    facts.cause_pids, facts.cpu_ms = {"agent": 4711, "other": 4712}, {4711: 300.0}
    verdict = right_verdict()
    verdict["findings"][0].update(severity="info", lost_ms=20.0)
    assert judge.Accusation in map(type, judge.judge(case, facts, verdict))
    verdict["findings"][0].update(id="host.cpu_contention")  # it did have a CPU
    assert judge.judge(case, facts, verdict) == []
    verdict["findings"][0].update(lost_ms=600.0)  # not that long
    assert list(map(type, judge.judge(case, facts, verdict))) == [judge.Accusation]


def test_a_red_herring_may_not_come_first():
    case, facts = case_and_truth()
    case = dataclasses.replace(case, may=("python.gc_pause",))
    verdict = right_verdict()
    herring = {**verdict["findings"][0], "id": "python.gc_pause", "culprit": {"relation": "self", "pid": 900}}
    verdict["findings"].append({**herring, "lost_ms": 400.0})
    assert judge.judge(case, facts, verdict) == []
    verdict["findings"].reverse()
    verdict["findings"][0]["lost_ms"] = 600.0
    assert judge.judge(case, facts, verdict) == ["python.gc_pause is told before host.lock_held"]
    facts.own = [(ts, 25_000_000) for ts, _, _ in facts.slow[0]]  # unless it did cost more
    assert not any("told before" in fault for fault in judge.judge(case, facts, verdict))


def test_what_a_rank_paused_for_itself_is_not_the_causes():
    _, facts = case_and_truth()
    whole, (ts, dur, excess) = facts.excess_ms("agent"), facts.slow[0][0]
    facts.own = [(ts + 10_000_000, 20_000_000), (ts + 15_000_000, 20_000_000)]  # of two ranks
    assert facts.excess_ms("agent") == whole - 25 and facts.own_ms() == 25
    facts.own = [(ts - dur, 3 * dur)]
    assert facts.excess_ms("agent") == whole - excess / 1e6


def test_two_causes_come_in_the_order_of_their_cost():
    case, facts = CASES["two_causes"], case_and_truth()[1]
    facts.cause_pids["job"], facts.acts["job"] = 4712, facts.acts["agent"][:4]
    lock = right_verdict()["findings"][0]
    hog = {**lock, "id": "host.cpu_contention", "lost_ms": 190.0, "culprit": {**lock["culprit"], "pid": 4712}}
    facts.cpu_ms[4712] = 1000.0
    verdict = {**right_verdict(), "findings": [lock, hog]}
    assert judge.judge(case, facts, verdict) == []
    verdict["findings"] = [{**hog, "lost_ms": 520.0}, lock]
    assert any("order of their cost" in fault for fault in judge.judge(case, facts, verdict))


def test_a_scenario_whose_cause_did_not_bite_proves_nothing():
    case, facts = case_and_truth()
    facts.acts["agent"] = [(a + 1_000_000_000, 1000, p) for a, _, p in facts.acts["agent"]]
    assert "did not happen" in facts.faults(case)[0]


def test_rolling_median_is_the_median_of_its_window():
    import statistics
    values = [(i * 7919) % 1000 for i in range(400)]
    half = truth.WINDOW // 2
    got = truth.rolling_median(values)
    for i in range(half, len(values) - half):
        assert got[i] == statistics.median(values[i - half:i + half + 1])


def test_every_scenario_can_be_checked():
    for name, case in CASES.items():
        for expect in case.expect:
            assert not expect.culprit or expect.culprit in case.causes, name
        for program, *_ in case.causes.values():
            assert (ROOT / "scenarios/agents" / program).exists(), name


def test_install_follows_destdir_and_prefix(laggard_path, tmp_path):
    build = pathlib.Path(laggard_path).parent
    while not (build / "meson-info").exists():
        assert build != build.parent, "the program under test is in no Meson build"
        build = build.parent
    done = subprocess.run(["meson", "install", "-C", str(build), "--no-rebuild", "--quiet",
                           "--destdir", str(tmp_path)], check=False, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    installed = [p for p in tmp_path.rglob("bin/laggard") if p.is_file()]
    assert len(installed) == 1
    assert list(tmp_path.rglob("man1/laggard.1*"))
    assert len(list(tmp_path.rglob("include/laggard/mark.h"))) == 1
    module = next(tmp_path.rglob("laggard/__init__.py"))
    done = subprocess.run(["/usr/bin/python3", "-c", """if True:
        import laggard
        with laggard.stage("forward"): pass
        laggard.step(); laggard.mark("x", 1); print(laggard.recording(), laggard.__file__)"""],
        env={"PYTHONPATH": str(module.parent.parent), "PYTHONDONTWRITEBYTECODE": "1"}, check=False,
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.stdout.split() == ["False", str(module)]
    for name in ("bash-completion/completions/laggard", "zsh/site-functions/_laggard", "fish/vendor_completions.d/laggard.fish"):
        assert len(list(tmp_path.rglob(name))) == 1
    subprocess.run(["make", "-s", "uninstall", f"B={build}"], check=True, cwd=ROOT, stdin=subprocess.DEVNULL)
    assert not list(tmp_path.rglob("*"))


def archive_of_libelf_is_whole(tmp_path):
    """Debian 13's is not: what it calls itself (eu_tsearch ...) is in no archive of the package."""
    source = "#include <libelf.h>\nint main(void) { return !elf_getdata_rawchunk(0, 0, 0, 0); }\n"
    return not subprocess.run(["cc", "-x", "c", "-", "-o", tmp_path / "whole", "-Wl,-Bstatic", "-lelf", "-lz", "-lzstd",
                               "-Wl,-Bdynamic"], input=source, text=True, check=False, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL).returncode


def test_the_program_needs_the_c_library_only(laggard_path, tmp_path):
    out = subprocess.run(["readelf", "-d", laggard_path], check=True, stdout=subprocess.PIPE,
                         text=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", out)
    assert "libc.so.6" in needed
    more = "" if archive_of_libelf_is_whole(tmp_path) else "|elf|dw"
    assert [n for n in needed if not re.match(rf"(lib(c|m|dl|pthread|rt{more})|ld-linux.*)\.so", n)] == []


def test_the_program_is_one_file(laggard_path, tmp_path):
    """Copied alone into an empty directory, with no environment, it works."""
    alone = tmp_path / "laggard"
    shutil.copy(laggard_path, alone)
    for args in (["--version"], ["--help"], ["rules"], ["doctor"],
                 ["record", "-o", "a.lag", "--", "/bin/true"], ["explain", "a.lag"]):
        done = subprocess.run([str(alone), *args], cwd=tmp_path, env={}, check=False, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=120)
        assert done.returncode == 0, (args, done.stderr)
        assert done.stdout or args[0] == "record", args
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.lag", "laggard"]
