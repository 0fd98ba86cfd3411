# SPDX-License-Identifier: Apache-2.0
"""Real files with known answers: laggard's first finding. Runs where ../shared/cases (or LG_CASES) is."""
import importlib.machinery
import importlib.util
import os
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CASES = pathlib.Path(os.environ.get("LG_CASES", ROOT.parent / "shared/cases"))


def tool():
    loader = importlib.machinery.SourceFileLoader("cases", str(ROOT / "tools/cases"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("cases", loader))
    loader.exec_module(module)
    return module


def finding(name, severity):
    return {"id": name, "severity": severity}


def test_the_table_judges_as_it_says():
    judge = tool().verdict
    assert judge("none", [finding("gpu.bound", "info")], None, None)[0]
    assert not judge("none", [finding("gpu.bound", "info"), finding("x.y", "medium")], None, None)[0]
    assert judge("a.b,c.d", [finding("c.d", "high")], None, None)[0]
    assert not judge("a.b", [], None, None)[0]
    assert not judge("a.b", [], "refused", None)[0]
    assert judge("-", [], "refused", None)[0]
    assert not judge("-", [], None, "exit -11")[0]
    assert judge("a.b+c.d", [finding("c.d", "high"), finding("a.b", "high")], None, None)[0]
    assert not judge("no-gpu", [finding("gpu.launch_bound", "low")], None, None)[0]


@pytest.mark.skipif(not CASES.is_dir(), reason="the case files are not here (LG_CASES=DIR)")
def test_every_case_gets_its_known_answer(laggard_path):
    rows = list(tool().table(laggard_path, CASES))
    wrong = [f"{name}: {expected} expected, {found}" for name, expected, found, ok in rows if not ok]
    assert not wrong, "\n".join(wrong)
    assert sum(expected not in ("-", "reads") for _, expected, _, _ in rows) >= 20
