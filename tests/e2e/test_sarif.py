# SPDX-License-Identifier: Apache-2.0
"""explain --sarif: what SARIF 2.1.0 wants of a file, and the verdict's own numbers in it."""
import json
import pathlib
import subprocess
import urllib.parse

import pytest
from test_html import BAD_NAMES, hostile_trace

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOG = ROOT / "tests/data/torchlog/job.log"
LEVELS = {"high": "error", "medium": "warning", "low": "note", "info": "note"}


@pytest.fixture
def sarif(laggard):
    def call(*files):
        done = laggard("explain", "--sarif", *files)
        assert (done.returncode, done.stderr) == (0, "")
        whole = json.loads(done.stdout)
        assert whole["version"] == "2.1.0" and whole["$schema"].endswith("sarif-2.1.0.json") and len(whole["runs"]) == 1
        run = whole["runs"][0]
        rules = [r["id"] for r in run["tool"]["driver"]["rules"]]
        assert len(set(rules)) == len(rules) and run["tool"]["driver"]["name"] == "laggard"
        for result in run["results"]:
            assert rules[result["ruleIndex"]] == result["ruleId"] and result["message"]["text"]
            assert len(result["locations"]) == 1 and len(result["partialFingerprints"]["cause/v1"]) == 16
            uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
            assert urllib.parse.quote(urllib.parse.unquote(uri.removeprefix("file://")), safe="/~") == uri.removeprefix("file://")
        return run
    return call


@pytest.mark.parametrize("files", [(LOG,), (ROOT / "tests/data/kineto/rank0.json.gz", ROOT / "tests/data/kineto/rank1.json.gz"),
                                   (ROOT / "tests/data/kineto/train.json.gz",)], ids=["log", "ranks", "healthy"])
def test_it_says_what_the_verdict_says(sarif, laggard, files):
    verdict = json.loads(laggard("explain", "--json", *files).stdout)
    run = sarif(*files)
    assert [(r["ruleId"], r["level"], r["message"]["text"], r["properties"]["lost_ms"], r["properties"]["fix"]) for r in run["results"]] == \
        [(f["id"], LEVELS[f["severity"]], f["title"], f["lost_ms"], f["fix"]) for f in verdict["findings"]]
    assert [n["message"]["text"] for n in run["invocations"][0]["toolExecutionNotifications"]] == verdict["limits"]
    assert run["properties"]["headline"] in laggard("explain", "--markdown", *files).stdout.replace("\\", "")


def test_the_same_cause_is_the_same_alert(sarif, laggard_path, tmp_path):
    """In another file, by a process with another number; another cause is another one."""
    tool = next(p / "tests/e2e/make_trace" for p in pathlib.Path(laggard_path).parents if (p / "tests/e2e/make_trace").exists())
    prints = {}
    for kind, name in (("stall", "a b.lag"), ("stall", "c.lag"), ("steady", "d.lag")):
        subprocess.run([tool, kind, tmp_path / name], check=True, timeout=60)
        prints[name] = [r["partialFingerprints"]["cause/v1"] for r in sarif(tmp_path / name)["results"]]
    assert prints["a b.lag"] and prints["a b.lag"] == prints["c.lag"] != prints["d.lag"]
    other = [r["partialFingerprints"]["cause/v1"] for r in sarif(LOG)["results"]]
    assert len(set(other)) == len(other) and not set(other) & set(prints["a b.lag"])


def test_names_are_text(sarif, tmp_path):
    folder = tmp_path / 'a%2f"<b>\n:é'
    folder.mkdir()
    run = sarif(hostile_trace(folder / "t.json"))
    text = json.dumps(run)
    assert all(chr(c) not in text for c in range(32)) and len(BAD_NAMES) > 10


def test_one_output_at_a_time(laggard):
    for other in ("--json", "--markdown", "--brief", "-v"):
        assert laggard("explain", "--sarif", other, LOG).returncode == 2
