# SPDX-License-Identifier: Apache-2.0
"""An unprivileged user beside a recording (attack.c): the recorder's memory is bounded, the job's steps are whole."""
import json
import os
import pathlib
import re
import subprocess
import time

import pytest

PYTHON = "/usr/bin/python3"
MOST_MIB = 256
STEPS = 40

# Steps of 50 ms by the hand API of the hook, which needs no torch: what an honest job looks like.
JOB = """
import sys, time
import laggard
for i in range(%d):
    with laggard.stage("forward"):
        end = time.monotonic() + 0.01
        while time.monotonic() < end:
            pass
        time.sleep(0.04)
    laggard.step()
""" % STEPS


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


@pytest.mark.live
@pytest.mark.parametrize("what", ("names", "threads", "processes", "maps", "stacks"))
def test_a_storm_beside_the_job(laggard, laggard_path, attack, can_record, tmp_path, what):
    out, folder = tmp_path / "run.lag", tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    for p in [tmp_path, *tmp_path.parents]:
        if p.owner() == "root" and p != pathlib.Path("/") and str(p).startswith("/tmp/"):
            p.chmod(p.stat().st_mode | 0o711)
    attackers = [subprocess.Popen([attack, what, folder], env={**os.environ, "ATTACK_SECONDS": "30"})
                 for _ in range(2)]
    try:
        with subprocess.Popen([laggard_path, "record", "-o", out, "--", PYTHON, "-c", JOB],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
            mib, seconds = watch(p, 60)
            said = p.stderr.read().decode()
        assert all(a.poll() is None for a in attackers), "the attack ended before the recording did"
        assert all(pathlib.Path(f"/proc/{a.pid}").stat().st_uid == 65534 for a in attackers)
    finally:
        for a in attackers:
            a.kill()
            a.wait()
    print(f"{what}: {mib:.0f} MiB, {seconds:.1f} s: {said.splitlines()[-2]}")
    assert p.returncode == 0, said
    assert mib <= MOST_MIB
    done = laggard("explain", out, "--json")
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["steps"]["count"] >= STEPS - 6, verdict["steps"]
    assert all(s["stage"] for s in verdict["stages"])


@pytest.mark.live
def test_a_ring_of_hostile_names(laggard, laggard_path, attack, can_record, tmp_path):
    """The job's own user fills the ring: 4 KiB a name, two names a slot, 300000 slots a second."""
    out = tmp_path / "run.lag"
    script = f'{attack} ring "$LAGGARD_MARKS/mark.$$.9" & sleep 4; kill $!; exit 0'
    with subprocess.Popen([laggard_path, "record", "-o", out, "--", "sh", "-c", script], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
        mib, seconds = watch(p, 60)
        said = p.stderr.read().decode()
    print(f"ring: {mib:.0f} MiB, {seconds:.1f} s: {said.splitlines()[-2]}")
    assert p.returncode == 0 and mib <= MOST_MIB, said
    assert seconds < 4 + 2, "the command runs for 4 s"
    assert ", an implausible number lost -> " in said, "the ring's own count of lost names is forged"
    done = laggard("query", out, "SELECT count(*) AS n FROM mark", "--json")
    assert json.loads(done.stdout)[0]["n"] > 10000, "the ring was read"
    limits = json.loads(laggard("explain", out, "--json").stdout)["limits"]
    assert any("more names than are kept of one process" in line for line in limits), limits
