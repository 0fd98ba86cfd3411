# SPDX-License-Identifier: Apache-2.0
"""An unprivileged user beside a recording (attack.c): the recorder's memory and time are bounded, and it says of an
honest job what it says without the attack."""
import contextlib
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import time

import live
import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "scenarios"))
from judge import FOREIGN_LIMIT, LOST_BOUNDS, LOST_SLACK_MS  # noqa: E402

PYTHON = "/usr/bin/python3"
MOST_MIB = 256
FOR_S, LATE_S = 6, 2   # recorded so long; the file is whole at the latest so much after that
STOPS, STOP_S = 6, 0.1
HZ = os.sysconf("SC_CLK_TCK")

# Steps of 50 ms by the hand API of the hook, which needs no torch: what an honest job looks like. It goes on beyond
# the recording, and says how many steps it had made a second before the recording's end.
JOB = """
import pathlib, os, sys, time
import laggard
pathlib.Path(sys.argv[1] + ".new").write_text(str(os.getpid()))
os.rename(sys.argv[1] + ".new", sys.argv[1])
begin, steps, told = time.monotonic(), 0, False
while time.monotonic() < begin + %d + 1.5:
    if not told and time.monotonic() > begin + %d - 1:
        told = True
        print(steps, flush=True)
    steps += 1
    with laggard.stage("forward"):
        end = time.monotonic() + 0.01
        while time.monotonic() < end:
            pass
        time.sleep(0.04)
    laggard.step()
""" % (FOR_S, FOR_S)

# Why it is slow, and whom every verdict has to name: another process stops it, and tells by its own clock for how long.
STOPPER = """
import os, signal, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
pid, ms = int(open(sys.argv[1]).read()), 0
time.sleep(0.8)
for i in range(%d):
    time.sleep(0.55)
    os.kill(pid, signal.SIGSTOP)
    begin = time.monotonic()
    time.sleep(%g)
    os.kill(pid, signal.SIGCONT)
    ms += 1000 * (time.monotonic() - begin)
print(ms)
""" % (STOPS, STOP_S)


@pytest.fixture
def attack(laggard_path):
    """The attacker, started as root: it becomes uid 65534 by itself."""
    tool = pathlib.Path(laggard_path).parent / "tests/e2e/attack"
    assert tool.exists(), "tests/e2e/attack is not built"
    return str(tool)


def peak_mib(pid):
    """Most resident at any time so far of a process and its children, added up."""
    total, todo = 0, [pid]
    while todo:
        p = todo.pop()
        try:
            text = pathlib.Path(f"/proc/{p}/status").read_text(encoding="utf-8")
            if p == pid or "Name:\tlaggard" in text:
                found = re.search(r"^VmHWM:\s+(\d+) kB", text, re.M)
                total += int(found[1]) if found else 0
            todo += map(int, pathlib.Path(f"/proc/{p}/task/{p}/children").read_text(encoding="utf-8").split())
        except (FileNotFoundError, ProcessLookupError):
            pass
    return total / 1024


def watch(p, seconds):
    """Waits for p; the most MiB it had and how long it took."""
    start, mib = time.monotonic(), 0
    while p.poll() is None:
        mib = max(mib, peak_mib(p.pid))
        time.sleep(0.02)
        if time.monotonic() - start > seconds:
            p.kill()
            p.wait()
            pytest.fail(f"still running after {seconds} s")
    return mib, time.monotonic() - start


def honest(laggard, laggard_path, folder, beside=""):
    """The job, stopped by another, recorded: ({what matters of the verdict}, MiB, seconds, last words). beside: what
    a shell starts in the job before it."""
    out, pid = folder / "run.lag", folder / "pid"
    with subprocess.Popen([PYTHON, "-c", STOPPER, pid], stdout=subprocess.PIPE, text=True) as stopper, \
         subprocess.Popen([laggard_path, "record", "--for", f"{FOR_S}s", "-o", out, "--",
                           "sh", "-c", beside + 'exec "$@"', "sh", PYTHON, "-c", JOB, pid],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
        mib, _ = watch(p, 60)
        said = p.stderr.read().decode()
        stopped_ms = float(stopper.stdout.read())
        made = int(p.stdout.read())
    assert p.returncode == 0, said
    done = laggard("explain", out, "--json")
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    top = (verdict["findings"] or [{"id": None, "lost_ms": 0}])[0]
    return {"id": top["id"], "severity": top.get("severity"), "lost_ms": top["lost_ms"], "stopped_ms": stopped_ms,
            "by": (top.get("culprit") or {}).get("pid"), "stopper": stopper.pid, "steps": verdict["steps"],
            "stages": verdict["stages"],
            "made": made,
            "honest": {stopper.pid, p.pid, int(pid.read_text(encoding="ascii"))},
            "others": [f for f in verdict["findings"][1:] if f["severity"] in ("medium", "high")],
            }, mib, out.stat().st_mtime - pid.stat().st_mtime, said  # from the job's start until the last row is written


def right(v):
    """What an honest verdict says of this job: who stopped it, and for how long, within the judge's bounds."""
    low, high = LOST_BOUNDS
    assert v["id"] == "host.stopped" and v["by"] == v["stopper"] and v["severity"] in ("medium", "high"), v
    assert low * v["stopped_ms"] <= v["lost_ms"] <= high * v["stopped_ms"] + LOST_SLACK_MS, v
    assert abs(v["steps"]["slow"] - STOPS) <= 1 and v["steps"]["count"] >= v["made"] - 1, (v["steps"], v["made"])
    assert all(s["stage"] for s in v["stages"])


@contextlib.contextmanager
def unless_disturbed():
    """Who else had the CPUs, by the kernel's own account, may change a verdict, and is no part of the attack."""
    def others():
        used, total = live.cpu_ticks()
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used / HZ - spent.ru_utime - spent.ru_stime, total / HZ

    before = others()
    try:
        yield
    except AssertionError as e:
        now = others()
        if now[0] - before[0] > FOREIGN_LIMIT * (now[1] - before[1]):
            raise live.Disturbed(str(e)) from e
        raise


KNOWN = []


@pytest.fixture
def undisturbed(laggard, laggard_path, can_record, tmp_path):
    """The verdict of the same job without any attack: recorded once, anew where that went wrong."""
    if not KNOWN:
        folder = tmp_path / "undisturbed"
        folder.mkdir()
        with unless_disturbed():
            v = honest(laggard, laggard_path, folder)[0]
            right(v)
        KNOWN.append(v)
    return KNOWN[0]


@contextlib.contextmanager
def attacked(attack, what, folder):
    """Two attackers as uid 65534 for as long."""
    folder.mkdir()
    folder.chmod(0o777)
    for p in folder.parents:
        if p.owner() == "root" and p != pathlib.Path("/") and str(p).startswith("/tmp/"):
            p.chmod(p.stat().st_mode | 0o711)
    attackers = [subprocess.Popen([attack, what, folder], env={**os.environ, "ATTACK_SECONDS": "30"})
                 for _ in range(2)]
    try:
        yield
        assert all(a.poll() is None for a in attackers), "the attack ended before the recording did"
        assert all(pathlib.Path(f"/proc/{a.pid}").stat().st_uid == 65534 for a in attackers)
    finally:
        for a in attackers:
            a.kill()
            a.wait()


@pytest.mark.live
@pytest.mark.parametrize("what", ("names", "threads", "processes", "maps", "stacks"))
def test_a_storm_beside_the_job(laggard, laggard_path, attack, undisturbed, tmp_path, what):
    with unless_disturbed():
        with attacked(attack, what, tmp_path / "open"):
            v, mib, seconds, said = honest(laggard, laggard_path, tmp_path)
        print(f"{what}: {mib:.0f} MiB, {seconds:.1f} s, lost {v['lost_ms']:.0f} of {v['stopped_ms']:.0f} ms (without it "
              f"{undisturbed['lost_ms']:.0f}), {v['steps']['count']} steps of {v['made']} and more: "
              f"{said.splitlines()[-2]}")
        assert mib <= MOST_MIB, "the recorder and its child"
        assert seconds <= FOR_S + LATE_S, "the recording was to take --for"
        right(v)
        assert v["id"] == undisturbed["id"]
        # Two that spin take CPUs, and so may another who uses this machine: that may be said of them, but nothing else.
        assert all(f["id"] == "host.cpu_contention" and f["culprit"]["pid"] not in v["honest"] for f in v["others"]), \
            v["others"]


@pytest.mark.live
def test_a_ring_of_hostile_names(laggard, laggard_path, attack, undisturbed, tmp_path):
    """The job's own user fills a ring: 4 KiB a name, two names a slot, 300000 slots a second. Of the job's other
    process the same is said as without it."""
    with unless_disturbed():
        v, mib, seconds, said = honest(laggard, laggard_path, tmp_path, f'{attack} ring "$LAGGARD_MARKS/mark.$$.9" & ')
        print(f"ring: {mib:.0f} MiB, {seconds:.1f} s, lost {v['lost_ms']:.0f} of {v['stopped_ms']:.0f} ms (without it "
              f"{undisturbed['lost_ms']:.0f}), {v['steps']['count']} steps of {v['made']} and more: "
              f"{said.splitlines()[-2]}")
        assert mib <= MOST_MIB, said
        assert seconds <= FOR_S + LATE_S, "the recording was to take --for"
        right(v)
        assert v["id"] == undisturbed["id"] and not v["others"], v["others"]
    assert ", an implausible number lost -> " in said, "the ring's own count of lost names is forged"
    out = tmp_path / "run.lag"
    done = laggard("query", out, "SELECT count(*) AS n FROM mark", "--json")
    assert json.loads(done.stdout)[0]["n"] > 10000, "the ring was read"
    limits = json.loads(laggard("explain", out, "--json").stdout)["limits"]
    assert any("more names than are kept of one process" in line for line in limits), limits
