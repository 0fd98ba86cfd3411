# SPDX-License-Identifier: Apache-2.0
"""laggard env: the hook in processes that laggard does not start."""
import json
import os
import pathlib
import re
import subprocess
import time

import mark_ring
import pytest

TRAIN = """
import os, sys, time, torch
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
until, n = time.monotonic() + float(sys.argv[1]), 0
while time.monotonic() < until:
    model(torch.ones(8, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    n += 1
    time.sleep(0.02)
    if n == 10:
        print("ready", flush=True)
"""


def test_the_three_forms_say_the_same(laggard, own_folder):
    ray = json.loads(laggard("env", "--json", "--dir", own_folder).stdout)
    assert set(ray) == {"env_vars"} and set(ray["env_vars"]) == {"PYTHONPATH", "LAGGARD_MARKS"}
    path, marks = ray["env_vars"]["PYTHONPATH"], ray["env_vars"]["LAGGARD_MARKS"]
    assert path.startswith(f"{own_folder}/env-") and marks == f"/dev/shm/laggard-{os.geteuid()}/kept"
    yaml = laggard("env", "--yaml", "--dir", own_folder).stdout
    assert yaml == f'- name: PYTHONPATH\n  value: "{path}"\n- name: LAGGARD_MARKS\n  value: "{marks}"\n'
    plain = laggard("env", "--dir", own_folder)
    for before, after in (("", path), ("/x:/y", f"{path}:/x:/y")):
        shown = subprocess.run(["sh", "-c", f'{plain.stdout}\nprintf "%s %s" "$PYTHONPATH" "$LAGGARD_MARKS"'], check=True,
                               env={"PYTHONPATH": before, "PATH": os.environ["PATH"]}, capture_output=True, text=True)
        assert shown.stdout == f"{after} {marks}"
    # What has to stay, and for how long.
    assert re.search(rf"keep {re.escape(path)} until the last process", plain.stderr)
    assert len(list(own_folder.iterdir())) == 1
    assert laggard("env", "--json", "--dir", own_folder, "--user", "4711").stdout.count("/dev/shm/laggard-4711/kept") == 1


def test_a_folder_that_another_could_take_over_is_none(laggard, tmp_path):
    """pytest's folders are this user's own, in /tmp: when a cleaner empties it they can be anybody's."""
    done = laggard("env", "--dir", tmp_path / "hook")
    assert done.returncode == 1 and not done.stdout and "others may write to" in done.stderr
    assert laggard("env", "--dir", "relative").returncode == 2
    assert laggard("env", "more").returncode == 2 and laggard("env", "--json", "--yaml").returncode == 2


def test_workers_mark_and_clear_up_after_the_dead(torch_python, job_env):
    marks = pathlib.Path(job_env["LAGGARD_MARKS"])
    for _ in range(2):
        job = subprocess.Popen([torch_python, "-c", TRAIN, "1"], env=job_env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert job.communicate()[1] == "" and job.returncode == 0
        assert (marks / f"mark.{job.pid}.0").stat().st_mode & 0o777 == 0o600
    rings = [p.name for p in marks.glob("mark.*") if not pathlib.Path(f"/proc/{p.name.split('.')[1]}").exists()]
    assert rings == [f"mark.{job.pid}.0"]  # the first one's is gone
    ring = mark_ring.Ring(marks / rings[0])
    assert sum(s.what == "step" for s in ring.slots_read) >= 10
    assert marks.stat().st_mode & 0o777 == 0o700


def test_a_folder_of_marks_that_is_anothers_is_not_used(torch_python, job_env):
    """One line, and the job goes on."""
    if os.geteuid() != 0:
        pytest.skip("needs root: another user's folder")
    base = pathlib.Path("/dev/shm/laggard-4294967000")
    base.mkdir()
    os.chown(base, 65534, 65534)
    try:
        done = subprocess.run([torch_python, "-c", TRAIN, "0.5"], env={**job_env, "LAGGARD_MARKS": f"{base}/kept"},
                              capture_output=True, text=True, check=True)
        assert done.stderr.count("\n") == 1 and "not this user's own folder" in done.stderr
        assert not any(base.iterdir()) or not any((base / "kept").iterdir())
    finally:
        subprocess.run(["rm", "-r", base], check=True)
    assert done.stdout == "ready\n"


@pytest.mark.live
@pytest.mark.parametrize("by", ["-p", "--job"])
def test_a_job_that_runs_already_has_its_marks(laggard, torch_python, job_env, can_record, tmp_path, by):
    """Twice in a row: what was marked before is not of the recording, and its ring stays while it lives."""
    script = tmp_path / "train_with_marks.py"
    script.write_text(TRAIN)
    job = subprocess.Popen([torch_python, script, "30"], env=job_env, stdout=subprocess.PIPE, text=True)
    try:
        assert job.stdout.readline() == "ready\n"
        time.sleep(1)
        for n in (1, 2):
            run = tmp_path / f"run{n}.lag"
            who = ("-p", job.pid) if by == "-p" else ("--job", f"match:^[^ ]*python[^ ]* {script}")
            done = laggard("record", *who, "--for", "3", "-o", run)
            assert done.returncode == 0, done.stderr
            verdict = json.loads(laggard("explain", "--json", run).stdout)
            assert not any("inferred" in text for text in verdict["limits"]), verdict["limits"]
            assert not any("lost" in text and "mark" in text for text in verdict["limits"]), verdict["limits"]
            stages = {s["stage"] for s in verdict["stages"]}
            assert {"forward", "backward", "optimizer"} <= stages
            assert 100 <= verdict["steps"]["count"] <= 160, verdict["steps"]
            assert 19 <= verdict["steps"]["median_ms"] <= 30
    finally:
        job.kill()
        job.communicate()
