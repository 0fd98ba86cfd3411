# SPDX-License-Identifier: Apache-2.0
"""The BPF programs under kernels of distributions, in an emulated machine (tools/guest): one of them a day, in turn.

LG_KERNELS=all for each that apt knows, or names of packages or files, separated by commas.
"""
import datetime
import json
import os
import pathlib
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
GUEST = HERE.parents[1] / "tools/guest"
SKIP = 77
LOCK_WAIT, LOCK_HOLD, FOREIGN, MMAP_LOCK = 7, 8, 64, 128
CTX_SOFTIRQ, CTX_HARDIRQ = 2, 3

SCRIPT = r"""
laggard doctor
laggard record -o /tmp/run.lag -- python3 /guest_cause.py
ask() { echo "@ask $1"; laggard query --json /tmp/run.lag "$2"; }
ask lacks "SELECT text FROM diag WHERE text LIKE '%kernel lacks%'"
ask spans "SELECT span.kind, span.flags, span.dur, process.pid FROM span JOIN thread ON thread.id = span.thr
           JOIN process ON process.id = thread.prc WHERE span.kind IN (7, 8)"
ask wakers "SELECT state.waker_ctx AS ctx, count(*) AS n FROM state JOIN thread ON thread.id = state.thr
            JOIN process ON process.id = thread.prc WHERE process.pid = thread.tid AND state.reason = 2
            AND thread.comm LIKE 'python%' GROUP BY state.waker_ctx"
ask python "SELECT name, count(*) AS n FROM frame WHERE kind = 2 GROUP BY name"
echo "@end"
"""


def kernels():
    asked = os.environ.get("LG_KERNELS")
    if asked and asked != "all":
        return asked.split(",")
    known = subprocess.run([GUEST, "--list"], check=False, capture_output=True, text=True).stdout.split()
    if not known:
        return ["linux-image-amd64"]
    return known if asked else [known[datetime.date.today().toordinal() % len(known)]]


def answers(said):
    """{what was asked: rows} of what the script printed."""
    named = (part.partition("\n") for part in said.partition("\n@end")[0].split("\n@ask ")[1:])
    return {name: json.loads(rows) for name, _, rows in named}


@pytest.mark.parametrize("kernel", kernels())
def test_records_under_a_distribution_s_kernel(kernel, tmp_path):
    script = tmp_path / "script"
    script.write_text(SCRIPT, encoding="ascii")
    done = subprocess.run([GUEST, "--kernel", kernel, script, HERE / "guest_cause.py"], check=False, capture_output=True,
                          text=True, timeout=400)
    if done.returncode == SKIP:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    said, rows = done.stdout, answers(done.stdout)
    assert "record would use tier bpf" in said and "recording with tier bpf" in said, said
    assert not rows["lacks"] and " 0 lost " in said, said
    job, reader = map(int, said.split("@pids")[1].split()[:2])
    long = [s for s in rows["spans"] if s["flags"] & MMAP_LOCK and s["dur"] > 100_000]
    foreign = [s for s in long if s["kind"] == LOCK_HOLD and s["flags"] & FOREIGN]
    assert len([s for s in foreign if s["pid"] == reader]) >= 5, foreign
    assert [s for s in long if s["kind"] == LOCK_HOLD and not s["flags"] & FOREIGN and s["pid"] == job], long
    assert [s for s in long if s["kind"] == LOCK_WAIT and s["pid"] == job], long
    woken = {w["ctx"]: w["n"] for w in rows["wakers"]}
    if "-rt-" not in kernel:  # there timers wake from threads
        assert woken.get(CTX_SOFTIRQ, 0) + woken.get(CTX_HARDIRQ, 0) > sum(woken.values()) / 2, woken
    assert {"protect_again_and_again", "<module>"} <= {f["name"] for f in rows["python"]}, rows["python"]
