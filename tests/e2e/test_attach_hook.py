# SPDX-License-Identifier: Apache-2.0
"""record --attach-hook: steps and stages of a job that was started without laggard, and runs already."""
import json
import os
import subprocess
import sys
import time

import pytest
from test_python_frames import interpreters

# Steps by hand as soon as there is a hook; without torch, which few interpreters have.
PLAIN = r"""
import os, sys, time
print(os.getpid(), flush=True)
end, steps = time.monotonic() + float(sys.argv[1]), 0
while time.monotonic() < end:
    time.sleep(0.02)
    if "laggard" in sys.modules:
        sys.modules["laggard"].step()
        steps += 1
print(steps, [name for name in globals() if "laggard" in name], flush=True)
"""
TORCH = r"""
import os, sys, time
import torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
optimizer = torch.optim.Adam(model.parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100) if "scheduler" in sys.argv else None
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(4096, 256)), batch_size=64)
print(os.getpid(), flush=True)
end, ends = time.monotonic() + float(sys.argv[1]), []
while time.monotonic() < end:
    for x, in loader:
        optimizer.zero_grad()
        model(x).mean().backward()
        time.sleep(0.015)
        optimizer.step()
        ends.append(time.monotonic_ns())
        if time.monotonic() > end:
            break
    if scheduler:
        scheduler.step()
print(ends, flush=True)
"""


def version_of(python):
    return tuple(map(int, python[0].split(".")[:2]))


def has_torch(python):
    return not subprocess.run([python, "-c", "import torch"], check=False, stderr=subprocess.DEVNULL).returncode


@pytest.fixture
def attached(laggard, can_record, tmp_path):  # pylint: disable=unused-argument
    """attached(PYTHON, PROGRAM, ...) -> (recorder's words, verdict, the program's last line)."""
    def call(python, text, *args, env=None, options=("--attach-hook",)):
        program = tmp_path / "program.py"
        program.write_text(text)
        with subprocess.Popen([python, program, "10", *args], stdout=subprocess.PIPE, text=True,
                              env={**os.environ, **(env or {})}) as job:
            pid = job.stdout.readline().strip()
            time.sleep(1)
            done = laggard("record", *options, "-p", pid, "--for", "6s", "-o", tmp_path / "run.lag")
            assert done.returncode == 0, done.stderr
            said = job.stdout.read().strip().split("\n")[-1]
        if "tier bpf" not in done.stderr:
            pytest.skip("tier bpf does not work here: " + done.stderr.split("\n")[0])
        assert job.returncode == 0  # it ran on, unharmed
        verdict = json.loads(laggard("explain", tmp_path / "run.lag", "--json").stdout)
        limits = laggard("query", tmp_path / "run.lag", "SELECT text FROM diag", "--csv").stdout
        return limits, verdict, said
    return call


def newest(least):
    found = [path for version, path in interpreters() if version_of((version,)) >= least]
    if not found:
        pytest.skip(f"no Python {least[0]}.{least[1]} here: tools/make-pythons, LG_PYTHONS")
    return found[-1]


@pytest.mark.live
def test_a_program_that_runs_is_marked(attached):
    limits, verdict, said = attached(newest((3, 14)), PLAIN)
    assert "takes no hook" not in limits
    steps, left = said.split(" ", 1)
    assert int(steps) > 200 and left == "[]"
    assert verdict["steps"]["count"] == pytest.approx(6 / 0.0202, rel=0.1)
    assert verdict["steps"]["median_ms"] == pytest.approx(20.2, rel=0.05)


@pytest.mark.live
@pytest.mark.parametrize("more", [[], ["scheduler"]])
def test_torch_is_marked_as_if_it_had_been_from_the_start(attached, more):
    python = newest((3, 14))
    if not has_torch(python):
        pytest.skip(f"{python} has no torch")
    _, verdict, said = attached(python, TORCH, *more)
    ends = json.loads(said)
    own = sorted(b - a for a, b in zip(ends, ends[1:]))[len(ends) // 2] / 1e6
    assert verdict["steps"]["median_ms"] == pytest.approx(own, rel=0.02)
    stages = {s["stage"]: s for s in verdict["stages"]}
    assert {"batch_wait", "forward", "backward", "optimizer"} <= {name for name, s in stages.items() if s["share"] > 0}


@pytest.mark.live
@pytest.mark.healthy
def test_who_does_not_want_it_is_left_alone(attached):
    python = newest((3, 14))
    limits, _, said = attached(python, PLAIN, env={"PYTHON_DISABLE_REMOTE_DEBUG": "1"})
    assert "takes no hook while it runs" in limits and said == "0 []"
    limits, _, said = attached(python, PLAIN, options=())
    assert "takes no hook" not in limits and said == "0 []"


@pytest.mark.live
@pytest.mark.healthy
def test_an_older_one_is_left_alone_and_the_recording_says_so(attached):
    old = [path for version, path in interpreters() if version_of((version,)) < (3, 14)]
    limits, _, said = attached(old[-1] if old else sys.executable, PLAIN)
    assert "takes no hook while it runs (3.14 does)" in limits and "laggard env" in limits and said == "0 []"


def test_it_is_for_jobs_that_run(laggard):
    done = laggard("record", "--attach-hook", "--", "true")
    assert done.returncode == 2 and "--attach-hook needs -p or --job" in done.stderr
