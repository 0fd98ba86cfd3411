# SPDX-License-Identifier: Apache-2.0
"""GPUs that are asked while a recording goes on, from the library's answers to explain. A library with the C interface
of NVIDIA's (tests/unit/nvml_stand_in.c) plays them; LD_LIBRARY_PATH leads the dynamic loader to it. What the library can
do to the recorder is in tests/unit/test_devices.c."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

import pytest

NO_FEATURE, PARTIAL = 6, 18
SETCAP = shutil.which("setcap") or shutil.which("setcap", path="/usr/sbin:/sbin")


@pytest.fixture
def devices(laggard_path):
    """devices("hot") -> the environment in which two devices play that."""
    built = pathlib.Path(laggard_path).parent / "tests/unit/nvml_stand_in.so"
    assert built.exists(), "tests/unit/nvml_stand_in.so is not built"
    # Whoever asks has no privileges: pytest's own folders are closed for it.
    with tempfile.TemporaryDirectory(prefix="laggard-nvml-", dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        shutil.copy(built, f"{folder}/libnvidia-ml.so.1")
        yield lambda plays: {"LD_LIBRARY_PATH": folder, "NVML_PLAYS": plays}


@pytest.fixture
def dump(laggard_path):
    tool = pathlib.Path(laggard_path).parent / "tests/e2e/lag_dump"

    def read(path, table):
        done = subprocess.run([tool, path, table], check=True, stdout=subprocess.PIPE, text=True)
        return [json.loads(line) for line in done.stdout.splitlines()]
    return read


@pytest.fixture
def record(laggard, tmp_path):
    """record("hot", env) -> path; 60 readings of each device."""
    def call(env, *args, seconds=6):
        out = tmp_path / "run.lag"
        done = laggard("record", "-o", out, "--tier", "procfs", *args, "--", "sleep", seconds, env=env)
        assert done.returncode == 0, done.stderr
        return out, done.stderr
    return call


def explain(laggard, path):
    done = laggard("explain", "--json", path)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def limits(laggard, path):
    """What explain prints, without its line breaks."""
    return " ".join(laggard("explain", "-v", path).stdout.split())


def said(verdict):
    return {f["id"]: f for f in verdict["findings"]}


def diags(dump, path, kind):
    return [row["text"] for row in dump(path, "diag") if row["id"] == kind and "device" in row["text"]]


@pytest.mark.live
@pytest.mark.healthy
def test_devices_under_work_are_recorded_and_healthy(laggard, record, devices, dump):
    path, lines = record(devices("healthy"), "--device-rate", "10")
    assert "asking 2 devices (NVML, driver 550.54.15) 10 times a second" in lines
    verdict = explain(laggard, path)
    assert not [f for f in said(verdict) if f.startswith("gpu.")]
    names = {t["name"]: t["unit"] for t in dump(path, "track") if t["name"].startswith("gpu.")}
    assert names["gpu.util"] == "%" and names["gpu.power"] == "W" and names["gpu.mem_used"] == "bytes"
    assert not diags(dump, path, PARTIAL) and not diags(dump, path, NO_FEATURE)
    text = limits(laggard, path)
    assert "what some counters say" not in text  # each has a row in rules/counters.def


@pytest.mark.live
def test_a_hot_device_is_throttled(laggard, record, devices):
    path, _ = record(devices("hot"), "--device-rate", "10")
    finding = said(explain(laggard, path))["gpu.throttled"]
    assert "device 1 is throttled (too hot)" in finding["title"]


@pytest.mark.live
def test_a_lowered_power_limit_is_a_throttle(laggard, record, devices):
    path, _ = record(devices("capped"), "--device-rate", "10", seconds=9)
    finding = said(explain(laggard, path))["gpu.throttled"]
    assert "device 1 is held down by the power limit" in finding["title"]


@pytest.mark.live
def test_devices_that_are_busy_with_nothing_are_told(laggard, record, devices):
    path, _ = record(devices("spins"), "--device-rate", "10")
    assert "gpu.util_lies" in said(explain(laggard, path))


@pytest.mark.live
def test_errors_are_in_the_limits(laggard, record, devices):
    path, _ = record(devices("errors"), "--device-rate", "10")
    text = limits(laggard, path)
    assert re.search(r"Xid.*gpu\.xid_\d+ of device 1", text)
    assert "gpu.ecc_dbe of device 1 is at 2, 2 more than when the input began" in text


@pytest.mark.live
def test_a_library_that_hangs_costs_no_time(laggard, devices, tmp_path, dump):
    out = tmp_path / "run.lag"
    began = time.monotonic()
    done = laggard("record", "-o", out, "--tier", "procfs", "--device-rate", "1", "--for", "3s", env=devices("hangs-at-once"))
    assert done.returncode == 0 and time.monotonic() - began < 8
    assert any("nvmlInit_v2 has not returned for" in text for text in diags(dump, out, PARTIAL))
    assert "nvmlInit_v2 has not returned for" in limits(laggard, out)


@pytest.mark.live
def test_a_library_that_crashes_ends_no_recording(laggard, record, devices, dump):
    path, lines = record(devices("crashes"), "--device-rate", "10")
    assert "devices are not asked any more" in lines
    assert any("ended the process that asks, in nvmlDeviceGetClockInfo" in t for t in diags(dump, path, PARTIAL))
    assert dump(path, "state") and laggard("explain", "-v", path).returncode == 0


@pytest.mark.live
def test_nobody_is_asked_without_a_rate_or_a_library(record, devices, dump):
    for env, args in ((devices("hangs-at-once"), ["--device-rate", "0"]), ({}, ["--device-rate", "10"]),
                      (devices("no-driver"), ["--device-rate", "10"])):
        path, lines = record(env, *args, seconds=2)
        assert "device" not in lines
        assert not [row for row in dump(path, "diag") if "device" in row["text"]]
        assert not [t for t in dump(path, "track") if t["name"].startswith("gpu.")]


@pytest.mark.live
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has privileges to give up")
def test_who_asks_has_no_privileges(laggard_path, devices, tmp_path):
    with subprocess.Popen([laggard_path, "record", "-q", "-o", tmp_path / "run.lag", "--tier", "procfs", "--device-rate", "10",
                           "--for", "4s"], env={**os.environ, **devices("healthy")}) as run:
        time.sleep(2)
        children = pathlib.Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text(encoding="ascii").split()
        found = [dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines())
                 for pid in children]
        asks = [s for s in found if s["Name"] == "laggard-devices"]
        run.wait(timeout=30)
    assert len(asks) == 1
    uids = set(asks[0]["Uid"].split())
    assert len(uids) == 1 and int(uids.pop()) not in (0, 65534)
    assert int(asks[0]["CapEff"], 16) == int(asks[0]["CapPrm"], 16) == int(asks[0]["CapBnd"], 16) == 0
    assert asks[0]["NoNewPrivs"] == "1" and asks[0]["Seccomp"] == "2"
    assert not pathlib.Path(f"/proc/{asks[0]['Pid']}").exists()


@pytest.mark.parametrize("value", ["11", "-1", "often", ""])
def test_a_rate_is_a_small_number(laggard, tmp_path, value):
    done = laggard("record", f"--device-rate={value}", "--", "true", cwd=tmp_path)
    assert done.returncode == 2 and "--device-rate" in done.stderr


def gpu_check(laggard, env):
    checks = json.loads(laggard("doctor", "--json", env=env).stdout)["checks"]
    return next((c["grade"], c["found"]) for c in checks if c["name"] == "gpu")


def test_doctor_says_who_would_be_asked(laggard, devices):
    assert gpu_check(laggard, devices("healthy")) == ("ok", "2 devices (NVML, driver 550.54.15)")
    grade, found = gpu_check(laggard, devices("no-driver"))
    assert grade == "missing" and "the driver is not loaded" in found
    grade, found = gpu_check(laggard, devices("mismatch"))
    assert grade == "missing" and "library and driver are of different versions" in found


@pytest.mark.skipif(os.geteuid() != 0 or not SETCAP, reason="giving a file capabilities needs root and setcap")
def test_with_capabilities_of_its_own_nobody_else_chooses_the_library(laggard_path, devices):
    """As for any program with file capabilities, the loader ignores LD_LIBRARY_PATH (ld.so(8), secure execution)."""
    env = {**os.environ, **devices("healthy")}
    copy = pathlib.Path(env["LD_LIBRARY_PATH"]) / "laggard"
    shutil.copy(laggard_path, copy)

    def found():
        done = subprocess.run([copy, "doctor", "--json"], check=True, stdout=subprocess.PIPE, text=True, env=env, user=65534,
                              group=65534, extra_groups=[], cwd="/")
        return next(c["found"] for c in json.loads(done.stdout)["checks"] if c["name"] == "gpu")
    assert "550.54.15" in found()
    if subprocess.run([SETCAP, "cap_sys_ptrace+ep", copy], check=False).returncode:
        pytest.skip("this file system keeps no capabilities")
    assert "550.54.15" not in found()


def smi_table(path, n, limit=True, watts=100, at_rest=0):
    """n devices at 100 % and 100 W of 700, behind some readings at rest."""
    with open(path, "w", encoding="utf-8") as f:
        f.write("timestamp, index, name, power.draw [W], " + "power.limit [W], " * limit +
                "utilization.gpu [%], utilization.memory [%], clocks.current.sm [MHz]\n")
        for k in range(60):
            for i in range(n):
                idle = k < at_rest
                f.write(f"2026/03/04 10:00:{k:02}.123, {i}, NVIDIA H100 80GB HBM3, {70 if idle else watts + i % 2} W, " +
                        "700.00 W, " * limit + f"{0 if idle else 100} %, 2 %, {300 if idle else 1980} MHz\n")
    return path


def test_a_device_alone_is_sent_to_no_table(laggard, tmp_path):
    alone, eight = (said(explain(laggard, smi_table(tmp_path / f"{n}.csv", n)))["gpu.util_lies"] for n in (1, 8))
    assert alone["detail"] == "alone" and "in this table" not in alone["fix"] and "torch.profiler" in alone["fix"]
    assert not eight.get("detail") and "the idle device in this table" in eight["fix"]


@pytest.mark.parametrize("n, who", [(1, "device 0"), (3, "device 0 (and 2 more)")])
def test_power_without_a_limit_is_not_judged_and_says_so(laggard, tmp_path, n, who):
    blind = f"not judged is whether {who} computes or only waits, busy at 100 W"
    assert blind in limits(laggard, smi_table(tmp_path / "blind.csv", n, limit=False))
    for name, more in (("limit", {"watts": 600}), ("rest", {"limit": False, "watts": 600, "at_rest": 40})):
        assert "not judged is whether" not in limits(laggard, smi_table(tmp_path / f"{name}.csv", n, **more))


@pytest.mark.parametrize("n", [8, 11])
def test_devices_beyond_those_that_are_told_are_counted(laggard, tmp_path, n):
    told = [e["text"] for e in said(explain(laggard, smi_table(tmp_path / "gpus.csv", n)))["gpu.util_lies"]["evidence"]]
    assert len([t for t in told if t.startswith("device ")]) == 8
    assert ("... and 3 more devices" in told) == (n == 11) and any("... and" in t for t in told) == (n == 11)
