# SPDX-License-Identifier: Apache-2.0
"""What is told of a job without marks, against what its marks tell of the same recording."""
import json
import os
import pathlib
import subprocess
import time

import pytest
from conftest import PYTHON, ROOT

LOADER = """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset
class Rows(Dataset):
    def __len__(self):
        return 10**7
    def __getitem__(self, i):
        return torch.ones(64)
def main():
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for n, x in enumerate(DataLoader(Rows(), batch_size=64, num_workers=1)):
        for _ in range(8):
            loss = model(x).sum() * 1e-9
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if n == 40:
            print("ready", flush=True)
main()
"""
SERVER = """
import selectors, time
waits = selectors.DefaultSelector()
print("ready", flush=True)
while True:
    waits.select(0.02)
    until = time.thread_time() + 0.001
    while time.thread_time() < until:
        pass
"""


@pytest.fixture
def without(laggard_path, tmp_path):
    """The same recording as if nothing had been marked."""
    def call(recording):
        out = tmp_path / "without.lag"
        build = pathlib.Path(os.environ.get("LAGGARD_BUILD", pathlib.Path(laggard_path).parent))
        subprocess.run([build / "tests/e2e/strip_marks", recording, out], check=True)
        return out
    return call


@pytest.fixture
def running(torch_python, job_env, tmp_path):
    """running("ddp"): pids of a job that marks, past its warm-up."""
    jobs = []

    def call(what):
        if what in ("ddp", "single"):
            ranks = 2 if what == "ddp" else 1
            jobs.append(subprocess.Popen([PYTHON, ROOT / "scenarios/launch.py", "--nproc", str(ranks), "--pin",
                                          ROOT / "scenarios/train.py", "--out", tmp_path, "--seconds", "60"],
                                         env=job_env, stdout=subprocess.DEVNULL))
            ready = [tmp_path / f"ready.{rank}" for rank in range(ranks)]
            deadline = time.monotonic() + 120
            while not all(path.exists() for path in ready):
                assert jobs[0].poll() is None and time.monotonic() < deadline
                time.sleep(0.1)
            return [int(path.read_text()) for path in ready]
        script = tmp_path / "job.py"
        script.write_text(LOADER if what == "loader" else SERVER)
        jobs.append(subprocess.Popen([PYTHON, script], env=job_env, stdout=subprocess.PIPE, text=True))
        assert jobs[0].stdout.readline() == "ready\n"
        return [jobs[0].pid]
    yield call
    for job in jobs:
        job.terminate()
        job.wait(30)


@pytest.fixture
def recorded(laggard, can_record, tmp_path):
    def call(pids):
        run = tmp_path / "run.lag"
        done = laggard("record", "-p", ",".join(map(str, pids)), "--for", "12", "-o", run)
        assert done.returncode == 0, done.stderr
        if "tier bpf" not in done.stderr:
            pytest.skip("tier bpf does not work here: " + done.stderr.split("\n")[0])
        return run
    return call


def verdict_of(laggard, recording):
    done = laggard("explain", "--json", recording)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.live
@pytest.mark.parametrize("what", ["ddp", "single", "loader"])
def test_inferred_steps_are_the_marked_ones_or_none(laggard, running, recorded, without, what):
    run = recorded(running(what))
    marked, inferred = verdict_of(laggard, run), verdict_of(laggard, without(run))
    print({key: (marked["steps"][key], inferred["steps"][key]) for key in ("count", "median_ms", "p99_ms", "slow", "shape")})
    assert marked["steps"]["count"] > 200
    assert not any("inferred" in text for text in marked["limits"])
    if not inferred["steps"]["count"]:
        assert what != "ddp", inferred["limits"]
        assert any("no repeating steps" in text or "not inferred" in text for text in inferred["limits"]), inferred["limits"]
        return
    assert any("inferred" in text for text in inferred["limits"])
    for key, least in (("count", 2), ("median_ms", 0)):
        told, truth = inferred["steps"][key], marked["steps"][key]
        assert abs(told - truth) <= max(0.02 * truth, least), (key, told, truth)
    # A stage that is told is told rightly.
    truth = {s["stage"]: s["share"] for s in marked["stages"]}
    for stage in inferred["stages"]:
        if stage["stage"] != "other" and stage["share"]:
            assert abs(stage["share"] - truth.get(stage["stage"], 0)) <= 0.05, (stage, truth)


@pytest.mark.live
@pytest.mark.healthy
def test_a_server_that_polls_has_no_steps(laggard, running, recorded):
    verdict = verdict_of(laggard, recorded(running("server")))
    assert not verdict["steps"]["count"], verdict["steps"]
    assert any("these are no steps" in text for text in verdict["limits"]), verdict["limits"]
    assert not [f for f in verdict["findings"] if f["severity"] in ("medium", "high")]
