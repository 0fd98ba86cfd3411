# SPDX-License-Identifier: Apache-2.0
"""Real files with known answers: laggard's first finding and its severity."""
import fnmatch
import importlib.machinery
import importlib.util
import re

import case_files
from conftest import ROOT


def tool():
    loader = importlib.machinery.SourceFileLoader("cases", str(ROOT / "tools/cases"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("cases", loader))
    loader.exec_module(module)
    return module


def finding(name, severity):
    return {"id": name, "severity": severity}


def test_the_table_judges_as_it_says():
    judge = tool().verdict
    assert judge("none", "-", [finding("gpu.bound", "info")], None, None)[0]
    assert not judge("none", "-", [finding("gpu.bound", "info"), finding("x.y", "medium")], None, None)[0]
    assert judge("a.b,c.d", "-", [finding("c.d", "high")], None, None)[0]
    assert not judge("a.b", "-", [], None, None)[0]
    assert not judge("a.b", "-", [], "refused", None)[0]
    assert judge("-", "-", [], "refused", None)[0]
    assert not judge("-", "-", [], None, "exit -11")[0]
    assert judge("a.b+c.d", "-", [finding("c.d", "high"), finding("a.b", "high")], None, None)[0]
    assert not judge("no-gpu", "-", [finding("gpu.launch_bound", "low")], None, None)[0]


def test_the_table_judges_how_bad_it_is():
    judge = tool().verdict
    assert judge("a.b", "high", [finding("a.b", "high")], None, None)[0]
    assert not judge("a.b", "high", [finding("a.b", "medium")], None, None)[0]
    assert "medium" in judge("a.b", "high", [finding("a.b", "medium")], None, None)[1]
    assert judge("a.b,c.d", "high,low", [finding("c.d", "low")], None, None)[0]
    assert not judge("a.b,c.d", "high,low", [finding("c.d", "high")], None, None)[0]
    assert judge("a.b+c.d", "high+low", [finding("c.d", "low"), finding("a.b", "high")], None, None)[0]
    assert not judge("a.b+c.d", "high+low", [finding("c.d", "high"), finding("a.b", "high")], None, None)[0]
    ranks = [{**finding("a.b", "high"), "culprit": {"rank": r}} for r in (3, 5)]
    assert judge("a.b#3+a.b#5", "high+high", ranks, None, None)[0]
    ranks[1]["severity"] = "medium"
    assert not judge("a.b#3+a.b#5", "high+high", ranks, None, None)[0]


def test_every_line_of_the_table_has_a_severity_for_each_id():
    for pattern, expected, severity in tool().expectations():
        if expected not in ("none", "no-gpu", "reads", "refused"):
            assert severity.count("+") == expected.count("+") and severity.count(",") == expected.count(","), pattern


def test_every_file_has_its_origin_and_its_licence():
    names = re.findall(r"^\| (\S+(?:, \S+)*) \|", (case_files.OWN / "README.md").read_text(encoding="utf-8"), re.M)
    rows = [pattern for name in names for pattern in name.split(", ")]
    for path in case_files.OWN.rglob("*"):
        name = str(path.relative_to(case_files.OWN))
        beside = path.name in tool().SKIP or path.suffix == ".py" or path.parent.name == "reference_outputs" or \
            path.name == "fault_injection.log"
        if path.is_file() and not beside:
            assert any(fnmatch.fnmatch(name, row) for row in rows), name
            assert name.startswith("laggard/") or (case_files.OWN / name.split("/", 1)[0] / "LICENSE").exists(), name
    assert sum(p.stat().st_size for p in case_files.OWN.rglob("*") if p.is_file()) <= 10_000_000


def test_every_case_gets_its_known_answer(laggard_path):
    rows = list(tool().table(laggard_path, case_files.OWN))
    wrong = [f"{name}: {expected} ({severity}) expected, {found}" for name, expected, severity, found, ok in rows
             if not ok]
    assert not wrong, "\n".join(wrong)
    assert sum(expected not in ("-", "reads") for _, expected, *_ in rows) >= 20
