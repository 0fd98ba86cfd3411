# SPDX-License-Identifier: Apache-2.0
"""Live: each scenario is recorded and explained; its verdict must be the known truth."""
import subprocess
import sys

import pytest
from conftest import PYTHON, ROOT

sys.path.insert(0, str(ROOT / "scenarios"))
from cases import CASES  # noqa: E402

SKIP = 77
LIMIT_S = 420  # twice a run, with a slow first touch of memory


ATTEMPTS = 3


def attempt(name, laggard_path, verdict):
    done = subprocess.run(
        [PYTHON, str(ROOT / "scenarios/run.py"), name, "--laggard", laggard_path,
         "--verdict", str(verdict)],
        check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=LIMIT_S)
    print(done.stdout)
    return done


@pytest.mark.parametrize("name", CASES)
def test_scenario(name, laggard_path, torch_python, can_record, tmp_path):
    """A live run on a shared virtual machine is an experiment: another tenant's second can spoil it
    (stolen time is not in /proc/stat here). A verdict that is wrong is wrong in every repetition;
    a test that fails once in ten quiet runs tells nothing. Every attempt's output is kept."""
    faults = []
    for i in range(ATTEMPTS):
        done = attempt(name, laggard_path, tmp_path / f"verdict.{i}.json")
        if done.returncode == SKIP:
            pytest.skip(done.stdout.strip().splitlines()[-1].removeprefix("skipped: "))
        if not done.returncode:
            return
        lines = [line for line in done.stdout.splitlines() if line.startswith("NOT AS EXPECTED")]
        faults.append("; ".join(lines) or f"run.py ended with status {done.returncode}, see output")
    pytest.fail(f"{ATTEMPTS} attempts: " + " | ".join(faults), pytrace=False)
