# SPDX-License-Identifier: Apache-2.0
"""An honest job that another process stops, recorded while somebody attacks: the recorder's memory and time are
bounded, and it says of the job what it says without the attack."""
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
# the recording, and says how many steps it had made a second before the recording's end; and what CPU time it had
# at last, with what was started beside it: nobody waits for these processes, who could count it.
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
ticks = 0
for pid in (os.getpid(), *open("/proc/self/task/%%d/children" %% os.getpid()).read().split()):
    ticks += sum(map(int, open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[11:13]))
print(ticks)
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


def honest(laggard, laggard_path, folder, beside="", options=()):
    """The job, stopped by another, recorded: ({what matters of the verdict}, MiB, seconds, last words). beside: what
    a shell starts in the job before it."""
    out, pid = folder / "run.lag", folder / "pid"
    with subprocess.Popen([PYTHON, "-c", STOPPER, pid], stdout=subprocess.PIPE, text=True) as stopper, \
         subprocess.Popen([laggard_path, "record", *options, "--for", f"{FOR_S}s", "-o", out, "--",
                           "sh", "-c", beside + 'exec "$@"', "sh", PYTHON, "-c", JOB, pid], cwd="/",
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
        mib, _ = watch(p, 60)
        said = p.stderr.read().decode()
        stopped_ms = float(stopper.stdout.read())
        made, ticks = map(int, p.stdout.read().split())
    live.unbroken(p.returncode == 0, said)
    live.unbroken(mib <= MOST_MIB, f"the recorder and its child had {mib:.0f} MiB: {said}")
    done = laggard("explain", out, "--json")
    live.unbroken(done.returncode == 0, done.stderr)
    verdict = json.loads(done.stdout)
    top = (verdict["findings"] or [{"id": None, "lost_ms": 0}])[0]
    return {"id": top["id"], "severity": top.get("severity"), "lost_ms": top["lost_ms"], "stopped_ms": stopped_ms,
            "by": (top.get("culprit") or {}).get("pid"), "stopper": stopper.pid, "steps": verdict["steps"],
            "stages": verdict["stages"],
            "made": made, "uid": pid.stat().st_uid, "job_s": ticks / HZ,
            "honest": {stopper.pid, p.pid, int(pid.read_text(encoding="ascii"))},
            "loud": [f for f in verdict["findings"] if f["severity"] in ("medium", "high")],
            }, mib, out.stat().st_mtime - pid.stat().st_mtime, said  # from the job's start until the last row is written


def accuses_nobody_else(v):
    """Who else takes CPUs, an attacker or another who uses this machine, may be told of that, but of nothing else."""
    for first, f in zip([True] + [False] * len(v["loud"]), v["loud"]):
        pid = (f["culprit"] or {}).get("pid")
        if pid is None or (f["id"], pid) == ("host.stopped", v["stopper"]):
            continue
        if pid in v["honest"] or f["id"] == "host.stopped" or (first and f["id"] != "host.cpu_contention"):
            raise live.Accused(f"{f['id']} names {f['culprit']}; honest are {v['honest']}, the stopper is {v['stopper']}")


def right(v):
    """What an honest verdict says of this job: who stopped it, and for how long, within the judge's bounds."""
    low, high = LOST_BOUNDS
    assert v["id"] == "host.stopped" and v["by"] == v["stopper"] and v["severity"] in ("medium", "high"), v
    assert low * v["stopped_ms"] <= v["lost_ms"] <= high * v["stopped_ms"] + LOST_SLACK_MS, v
    assert abs(v["steps"]["slow"] - STOPS) <= 1 and v["steps"]["count"] >= v["made"] - 1, (v["steps"], v["made"])
    assert all(s["stage"] for s in v["stages"])


class Others:
    """What others have of the CPUs from now on, by the kernel's own account: that may change a verdict, and is no
    part of the attack."""

    def __init__(self):
        self.begin = self.so_far()

    @staticmethod
    def so_far():
        used, total = live.cpu_ticks()
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used / HZ - spent.ru_utime - spent.ru_stime, total / HZ

    def share(self, left_s):
        """left_s: CPU time of processes that nobody here waits for."""
        now = self.so_far()
        return (now[0] - self.begin[0] - left_s) / (now[1] - self.begin[1])


@contextlib.contextmanager
def unless_disturbed(share):
    """A wrong verdict means little where others had that share of the CPUs; that somebody is accused, or that
    something broke, means what it means."""
    try:
        yield
    except (live.Accused, live.Broken):
        raise
    except AssertionError as e:
        if share > FOREIGN_LIMIT:
            raise live.Disturbed(f"others had {100 * share:.0f} % of the CPUs: {e}") from e
        raise


KNOWN = []


@pytest.fixture
def undisturbed(laggard, laggard_path, can_record, tmp_path):
    """The verdict of the same job without any attack: recorded once, anew where that went wrong."""
    if not KNOWN:
        folder = tmp_path / "undisturbed"
        folder.mkdir()
        others = Others()
        v = honest(laggard, laggard_path, folder)[0]
        accuses_nobody_else(v)
        with unless_disturbed(others.share(v["job_s"])):
            right(v)
        KNOWN.append(v)
    return KNOWN[0]


def unharmed(laggard, laggard_path, folder, undisturbed, attack, beside_it=("host.cpu_contention",), **more):
    """The job is recorded during an attack: in time, and with the verdict that it has without. attack: a context; its
    value, if any, is a list of CPU times, at its end, of what its processes left behind. beside_it: what else may be
    told. (verdict, last words)"""
    others = Others()
    with attack as left_s:
        v, mib, seconds, said = honest(laggard, laggard_path, folder, **more)
    share = others.share(v["job_s"] + sum(left_s or ()))
    print(f"{mib:.0f} MiB, {seconds:.1f} s, lost {v['lost_ms']:.0f} of {v['stopped_ms']:.0f} ms (without it "
          f"{undisturbed['lost_ms']:.0f}), {v['steps']['count']} steps of {v['made']} and more; others had "
          f"{100 * share:.0f} % of the CPUs: {said.splitlines()[-2]}")
    accuses_nobody_else(v)
    late = seconds - FOR_S
    if late > LATE_S:  # by what the machine costs just now, which the same recording without the attack tells, too
        alone = folder / "alone"
        alone.mkdir()
        late = seconds - honest(laggard, laggard_path, alone, options=more.get("options", ()))[2]
    assert late <= LATE_S, f"the recording was to take --for: {late:.1f} s more"
    with unless_disturbed(share):
        right(v)
        assert v["id"] == undisturbed["id"]
        assert all(f["id"] in beside_it for f in v["loud"][1:]), v["loud"]
    return v, said
