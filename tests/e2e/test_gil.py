# SPDX-License-Identifier: Apache-2.0
"""Python's lock, told of real threads, and held against what the program's own clock says."""
import json
import re

import pytest
from test_python_frames import PYTHON, some_interpreters

JOB = """
import ctypes, hashlib, json, sys, threading, time
import laggard
what, done = sys.argv[1], False
own = {"begun_s": 0, "helper_s": 0, "helper_cpu_s": 0, "calls": 0, "gaps_s": 0, "gaps": 0, "longest_s": 0}
usleep = (ctypes.PyDLL if what == "keeps" else ctypes.CDLL)(None).usleep
block = bytes(1 << 20)


def helper():
    while not done:
        time.sleep(0.2)
        begin, cpu = time.perf_counter(), time.thread_time()
        if what in ("keeps", "releases"):
            usleep(40000)
        elif what == "hashes":
            while time.perf_counter() < begin + 0.1:
                hashlib.sha256(block)
        elif what == "builtin":
            sum(range(3_000_000))
        else:
            while time.perf_counter() < begin + 0.04:
                pass
        own["helper_s"] += time.perf_counter() - begin
        own["helper_cpu_s"] += time.thread_time() - cpu
        own["calls"] += 1


time.sleep(1.5)  # until then it may not be known to be Python
thread = threading.Thread(target=helper)
thread.start()
end = time.monotonic() + 4
last = time.perf_counter()
while time.monotonic() < end:
    stop = time.perf_counter() + 0.012
    while last < stop:
        now = time.perf_counter()
        if now - last > 0.002:
            own["gaps"] += 1
            own["gaps_s"] += now - last
            own["longest_s"] = max(own["longest_s"], now - last)
        last = now
    laggard.step()
done = True
thread.join()
print(json.dumps(own))
"""


@pytest.fixture
def run(laggard, can_record, tmp_path):
    """The verdict, and what the program measured itself: ready_s is how long its main thread waited for a CPU."""
    def of(what, python=PYTHON):
        script = tmp_path / "job.py"
        script.write_text(JOB)
        done = laggard("record", "-o", tmp_path / "run.lag", "--", python, script, what)
        assert done.returncode == 0, done.stderr
        if "tier bpf" not in done.stderr:
            pytest.skip("tier bpf does not work here: " + done.stderr.split("\n")[0])
        own = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
        v = json.loads(laggard("explain", "--json", tmp_path / "run.lag").stdout)
        ready = laggard("query", "--json", tmp_path / "run.lag", "select sum(dur) / 1e9 as s from state join thread on "
                        f"thread.id = thr where state.kind = 2 and tid = {v['gil'][0]['pid']}")
        own["ready_s"] = json.loads(ready.stdout)[0]["s"]
        print(own, laggard("explain", "-v", tmp_path / "run.lag").stdout, v.get("gil"), sep="\n")
        return v, own
    return of


def rows(v, main, did):
    return [r for r in v["gil"] if r["did"] == did and (r["pid"] == r["tid"]) == main]


def ms(found):
    return sum(r["ms"] for r in found)


def agrees(waited, own, error):
    """The program saw itself stand still for that long; of that it waited for a CPU at most as long as the kernel says."""
    assert ms(waited) <= (1 + error) * own["gaps_s"] * 1e3 + 2 * own["calls"]
    assert ms(waited) >= (1 - error) * (own["gaps_s"] - own["ready_s"]) * 1e3


def finding(v):
    return [f for f in v["findings"] if f["id"] == "python.gil_wait"]


@pytest.mark.live
@pytest.mark.parametrize("version,python", some_interpreters())
def test_a_native_call_that_keeps_the_lock(run, version, python):
    """It sleeps with the lock, so that no CPU sample shows it: all of this is exact."""
    v, own = run("keeps", python)
    f, = finding(v)
    assert f["detail"] == "native_call" and f["culprit"]["function"] == "helper"
    assert "helper (job.py:15)" in f["culprit"]["stack"]
    assert "in a native call that does not give it up" in f["title"]
    assert "Py_BEGIN_ALLOW_THREADS" in f["fix"]
    asleep = rows(v, False, "asleep")
    assert [(r["function"], r["line"]) for r in asleep] == [("helper", 15)]
    # the program's clock also sees the call, and the way back to Python
    times = asleep[0]["times"]
    assert 0 <= own["calls"] - times <= 2  # on a busy machine it is found to be Python a call later
    assert 40 * times <= ms(asleep) <= own["helper_s"] * 1e3
    waited = [r for r in rows(v, True, "waited") if r["by"] == asleep[0]["tid"]]
    agrees(waited, {**own, "ready_s": own["ready_s"] + 0.045 * (own["calls"] - times)}, 0.02)
    assert 38 < waited[0]["longest_ms"] <= own["longest_s"] * 1e3 + 0.5
    assert waited[0]["refused_ms"] > 0.7 * waited[0]["ms"]


@pytest.mark.live
@pytest.mark.healthy
def test_the_same_call_without_the_lock(run):
    v, own = run("releases")
    assert own["helper_s"] > 0.4 and not finding(v)
    assert not [r for r in rows(v, False, "asleep") if r["ms"] > 5]
    assert all(r["refused_ms"] < 5 for r in rows(v, True, "waited"))


@pytest.mark.live
def test_a_builtin_keeps_the_lock_as_well(run, laggard, root, tmp_path):
    v, _ = run("builtin")
    f, = finding(v)
    assert f["detail"] == "native_call" and f["culprit"]["function"] == "helper"
    page = (root / "doc/man/laggard-query.1").read_text(encoding="utf-8")
    sql, = re.findall(r'laggard query gil\.lag "(.*?)"', page, re.S)
    said = json.loads(laggard("query", "--json", tmp_path / "run.lag", sql).stdout)
    assert (said[0]["tid"], said[0]["had_it"]) == (f["victims"][0]["tid"], f["culprit"]["tid"])
    assert said[0]["kept_ms"] > 0.3 * said[0]["ms"]  # on a busy machine the holder waits for a CPU meanwhile


@pytest.mark.live
def test_python_code_gives_the_lock_up_when_it_is_asked(run):
    v, own = run("python")
    f, = finding(v)
    assert f["detail"] == "python" and f["culprit"]["function"] == "helper"
    assert "multiprocessing" in f["fix"] and "Py_BEGIN_ALLOW_THREADS" not in f["fix"]
    waited = rows(v, True, "waited")
    agrees(waited, own, 0.05)
    assert sum(r["refused_ms"] for r in waited) < 0.2 * ms(waited)


@pytest.mark.live
@pytest.mark.healthy
def test_native_code_that_released_the_lock_is_told_from_that_which_keeps_it(run, laggard, tmp_path):
    v, own = run("hashes")
    assert not finding(v)
    released, kept = rows(v, False, "released"), rows(v, False, "native") + rows(v, False, "library")
    assert {r["function"] for r in released} == {"helper"}
    # by samples: what is said of their error holds, and nearly all of its time is of that kind
    error = sum(r["error_ms"] ** 2 for r in released) ** 0.5
    assert abs(ms(released) - own["helper_cpu_s"] * 1e3) < error + 0.1 * own["helper_cpu_s"] * 1e3
    assert ms(kept) < 0.1 * ms(released)
    table = laggard("query", "--json", tmp_path / "run.lag", "select function, sum(ns) / 1e6 as ms from gil join thread on "
                    f"thread.id = gil.thr where did = 'released' and tid = {released[0]['tid']} group by 1")
    assert [r["function"] for r in json.loads(table.stdout)] == ["helper"], table.stderr
