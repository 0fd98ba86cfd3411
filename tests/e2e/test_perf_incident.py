# SPDX-License-Identifier: Apache-2.0
"""Live: four seconds of plain `perf record -a -g`, as anybody would type it, beside the incident.

No marks, no switches, no lock events: CPU samples of two ranks that train and of an agent that reads
smaps_rollup of one after the other. And the healthy twin: an agent as busy, on an unrelated process.
Both also beside a program that spins at idle priority on every CPU: it has what the others leave.
"""
import dataclasses
import json
import os
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT
from live import Accused, Disturbed

sys.path.insert(0, str(ROOT / "scenarios"))
from cases import CASES, ROLLUP  # noqa: E402
from judge import Disturbance, unexpected  # noqa: E402
from run import CannotRun, Run  # noqa: E402

PERIOD_S = 0.6
pytestmark = pytest.mark.live


class Captured(Run):
    """A run without laggard, in the middle of which perf looks at the whole machine."""

    spins = False

    def start_causes(self, pids):
        super().start_causes(pids)
        for i in range(os.cpu_count() if self.spins else 0):
            self.causes[f"spinner{i}"] = subprocess.Popen(["chrt", "-i", "0", "sh", "-c", "while :; do :; done"])
        self.perf = subprocess.Popen(
            ["perf", "record", "-q", "-a", "-g", "-o", str(self.recording), "--", "sleep", "4"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def capture(tmp_path, target, tenant, spins):
    case = dataclasses.replace(
        CASES["agent_in_turn"], seconds=7, tenant=tenant,
        causes={"agent": ("exporter.py", "--period", str(PERIOD_S), target)})
    work = tmp_path / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    run = Captured(case, work, tmp_path / "perf.data", None)
    run.spins = spins
    try:
        truth = run(lambda _text: None)
    except CannotRun as e:
        pytest.skip(str(e))
    assert run.perf.wait(timeout=60) == 0
    print(truth.summary())
    return truth


def explain(laggard, path):
    done = laggard("explain", "--json", path)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def perf_works(can_record, torch_python, tmp_path):
    if not shutil.which("perf"):
        pytest.skip("perf is not installed: run tools/install-deps test")
    probe = tmp_path / "probe.data"
    done = subprocess.run(["perf", "record", "-q", "-a", "-g", "-o", str(probe), "--", "true"], check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        pytest.skip("perf record -a does not work here: " + done.stderr.strip().splitlines()[-1])


def faults_of(truth, verdict):
    loud = [f for f in verdict["findings"] if f["severity"] in ("medium", "high")]
    if not loud:
        return ["nothing found: " + "; ".join(verdict["limits"])[:300]]
    first, out = loud[0]["culprit"], []
    if loud[0]["id"] not in ("host.foreign_activity", "host.lock_held"):
        out.append(f"first is {loud[0]['id']}: {loud[0]['title']}")
    if first["pid"] != truth.cause_pids["agent"]:
        out.append(f"pid {first['pid']}, the agent is {truth.cause_pids['agent']}")
    if (first["function"] or "").split(".")[0] not in ROLLUP:
        out.append(f"function {first['function']}")
    text = json.dumps(loud[0], ensure_ascii=False)
    if f"{PERIOD_S:.2f} s" not in text and f"{PERIOD_S:.1f}" not in text:
        out.append(f"no period: {loud[0]['title']}")
    return out


@pytest.mark.parametrize("spins", [False, True])
def test_four_seconds_of_plain_perf_name_the_reader(laggard, perf_works, tmp_path, spins):
    truth = capture(tmp_path, "{pids}", False, spins)
    verdict = explain(laggard, tmp_path / "perf.data")
    print(json.dumps([(f["severity"], f["title"]) for f in verdict["findings"]], indent=1))
    assert faults_of(truth, verdict) == []


@pytest.mark.healthy
@pytest.mark.parametrize("spins", [False, True])
def test_an_agent_as_busy_elsewhere_is_not_named(laggard, perf_works, tmp_path, spins):
    truth = capture(tmp_path, "{tenant}", True, spins)
    loud = []
    for f in explain(laggard, tmp_path / "perf.data")["findings"]:
        if (f["culprit"] or {}).get("pid") in truth.cause_pids.values():
            raise Accused(f["title"])
        if f["severity"] in ("medium", "high"):
            loud.append(unexpected(f, truth))
    wrong = [fault for fault in loud if not isinstance(fault, Disturbance)]
    assert not wrong
    if loud:
        raise Disturbed("; ".join(loud))
