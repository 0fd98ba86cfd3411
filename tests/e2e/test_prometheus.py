# SPDX-License-Identifier: Apache-2.0
"""The rules for Prometheus, by Prometheus's own tool: they are rules, and say what they should of known series."""
import re
import shutil
import subprocess

import pytest
from conftest import ROOT

RULES = ROOT / "doc/prometheus/laggard.rules.yml"


@pytest.fixture
def promtool():
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed: apt-get install prometheus")

    def call(*args, cwd):
        return subprocess.run(["promtool", *args], cwd=cwd, check=False, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
    return call


def test_the_rules_say_what_they_should(promtool, tmp_path):
    shutil.copy(RULES, tmp_path)
    shutil.copy(ROOT / "tests/e2e/prometheus_cases.yml", tmp_path / "cases.yml")
    assert "SUCCESS" in promtool("check", "rules", "laggard.rules.yml", cwd=tmp_path).stdout
    done = promtool("test", "rules", "cases.yml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    # Each alert has a series that raises it and one that does not.
    cases = (tmp_path / "cases.yml").read_text()
    for name in re.findall(r"- alert: (\w+)", RULES.read_text()):
        assert cases.count(name) >= 2, name


def test_a_wrong_rule_fails(promtool, tmp_path):
    (tmp_path / "laggard.rules.yml").write_text(RULES.read_text().replace("1.1 * quantile", "1.6 * quantile"))
    shutil.copy(ROOT / "tests/e2e/prometheus_cases.yml", tmp_path / "cases.yml")
    assert promtool("test", "rules", "cases.yml", cwd=tmp_path).returncode != 0


def test_the_rules_ask_for_series_that_there_are():
    """Each name in the rules is one that the agent writes."""
    made = (ROOT / "src/cli/agent_state.c").read_text()
    for name in set(re.findall(r"\blaggard_\w+", RULES.read_text())):
        assert f'"{name}' in made, name
