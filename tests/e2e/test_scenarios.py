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
