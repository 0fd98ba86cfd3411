# SPDX-License-Identifier: Apache-2.0
"""Live: each scenario is recorded and explained; its verdict must be the known truth."""
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "scenarios"))
from cases import CASES  # noqa: E402


def marked(name):
    """Who has nothing to find must find nothing, the first time and every time."""
    return pytest.param(name, marks=[pytest.mark.live] + [pytest.mark.healthy] * (not CASES[name].expect))


@pytest.mark.parametrize("name", map(marked, CASES))
def test_scenario(name, scenario, torch_python, can_record, tmp_path):
    scenario("run.py", name, "--verdict", str(tmp_path / "verdict.json"))


# A reader of the ranks' maps, a neighbour on one rank's CPU, ranks that are late in turn; and nobody.
@pytest.mark.parametrize("name", map(marked, ["agent_in_turn", "cpu_hog", "late_in_turn", "healthy", "healthy_job"]))
def test_a_job_that_runs_already(name, scenario, torch_python, can_record, tmp_path):
    """Recorded by its ranks' pids, without marks: the same culprit and the same period as with them."""
    scenario("run.py", name, "--attach", "--verdict", str(tmp_path / "verdict.json"))
