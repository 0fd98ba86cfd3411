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


@pytest.mark.parametrize("name", CASES)
def test_scenario(name, laggard_path, torch_python, can_record, tmp_path):
    verdict = tmp_path / "verdict.json"
    done = subprocess.run(
        [PYTHON, str(ROOT / "scenarios/run.py"), name, "--laggard", laggard_path,
         "--verdict", str(verdict)],
        check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=LIMIT_S)
    print(done.stdout)
    if done.returncode == SKIP:
        pytest.skip(done.stdout.strip().splitlines()[-1].removeprefix("skipped: "))
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if line.startswith("NOT AS EXPECTED")]
        pytest.fail("; ".join(lines) or f"run.py ended with status {done.returncode}, see output",
                    pytrace=False)
