# SPDX-License-Identifier: Apache-2.0
"""What a profiler's files do not show is judged by nobody: the time between two of them, what is cut off, how long a run
that stands still would go on; and who makes few steps slow."""
import json
import random

import pytest
from device_trace import EPOCH_US, device_trace

HOUR = 3600
LOUD = ("medium", "high")


@pytest.fixture
def explain(laggard):
    """The verdict as --json tells it."""
    def call(*args):
        done = laggard("explain", "--json", *args)
        assert not done.returncode, done.stderr
        return json.loads(done.stdout)
    return call


def loud(verdict):
    return [f["id"] for f in verdict["findings"] if f["severity"] in LOUD]


def edit(path, change):
    doc = json.loads(path.read_text())
    change(doc["traceEvents"])
    path.write_text(json.dumps(doc))
    return path


def call(events, name, start_us, dur_us, pid=7):
    events.append({"ph": "X", "cat": "cuda_runtime", "name": name, "pid": pid, "tid": pid, "ts": start_us, "dur": dur_us,
                   "args": {"correlation": 900_000 + len(events)}})


def span(events, cat, name, start_us, dur_us, pid=7):
    events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": pid, "ts": start_us, "dur": dur_us})


def end_of(events):
    return max(e["ts"] + e["dur"] for e in events if e["name"].startswith("ProfilerStep"))


def without_step_marks(path):
    return edit(path, lambda ev: ev.__setitem__(slice(None), [e for e in ev if not e["name"].startswith("ProfilerStep")]))


@pytest.mark.parametrize("apart_s", [1, 30, 6 * HOUR])
def test_time_between_two_files_of_one_process_is_in_no_step_and_no_loss(explain, tmp_path, apart_s):
    for loader_us in (0, 8000):
        a = device_trace(tmp_path / f"a{loader_us}.json", rank=0, loader_us=loader_us)
        b = device_trace(tmp_path / f"b{loader_us}.json", rank=0, loader_us=loader_us, start_s=apart_s, first=500)
        alone = explain(a)
        for both in (explain(a, b), explain(b, a)):
            assert both["steps"]["count"] == 24 and not both["steps"]["slow"]
            assert both["steps"]["max_ms"] <= 1.1 * alone["steps"]["max_ms"]
            assert loud(both) == loud(alone) == (["data.loader_wait"] if loader_us else [])
            assert not any(abs(s["slow_excess_ms"]) > 1 for s in both["stages"])
            assert not any("two runs" in line for line in both["limits"])
            for f, g in zip(both["findings"], alone["findings"]):
                if f["lost_share"] is not None:
                    assert f["lost_share"] == pytest.approx(g["lost_share"], abs=0.02)
                    assert f["lost_ms"] == pytest.approx(2 * g["lost_ms"], rel=0.1)


def test_windows_without_marked_steps_are_parted_too(explain, tmp_path):
    a = without_step_marks(device_trace(tmp_path / "a.json", rank=0))
    b = without_step_marks(device_trace(tmp_path / "b.json", rank=0, start_s=60))
    both = explain(a, b)
    assert not loud(both) and both["steps"]["max_ms"] < 100


def test_a_process_that_counts_its_steps_anew_is_another_run(explain, laggard, tmp_path):
    morning, evening = device_trace(tmp_path / "m.json", rank=0), device_trace(tmp_path / "e.json", rank=0, start_s=6 * HOUR, loader_us=30_000)
    both = explain(morning, evening)
    assert not loud(both) and both["steps"]["count"] == 12
    assert any("e.json is left out: " in x and "numbers of its steps do not go on" in x for x in both["limits"])
    assert [r["finding"] for r in both["runs"]] == [None, "data.loader_wait"]
    assert "Not judged: what changed from one run to the other" in " ".join(laggard("explain", morning, evening).stdout.split())
    on = explain(morning, device_trace(tmp_path / "on.json", rank=0, start_s=6 * HOUR, first=112))
    assert on["steps"]["count"] == 24 and "runs" not in on


def counted(path, first):
    """As in a real trace: autograd's operators have numbers of their process, and so have the driver's calls."""
    def change(ev):
        for k, e in enumerate(e for e in ev if e["name"] == "aten::mm"):
            e["args"]["Sequence number"] = first + k
        for e in ev:
            if "correlation" in e.get("args", {}):
                e["args"]["correlation"] += first
    return edit(path, change)


def test_two_profiles_of_one_process_are_one_run(explain, laggard, tmp_path):
    """Both count their steps from 0; the process does not begin anew, and does where it was started again."""
    a = counted(device_trace(tmp_path / "a.json", rank=0, first=0), 1000)
    for start_s in (60, 6 * HOUR):
        b = counted(device_trace(tmp_path / "b.json", rank=0, first=0, start_s=start_s), 9000)
        for both in (explain(a, b), explain(b, a)):
            assert both["steps"]["count"] == 24 and not loud(both) and "runs" not in both
            assert any("begins" in x and "another profile() of the same process" in x for x in both["limits"])
        again = counted(device_trace(tmp_path / "again.json", rank=0, first=0, start_s=start_s), 1)
        both = explain(a, again)
        assert both["steps"]["count"] == 12 and len(both["runs"]) == 2
        assert any("again.json is left out: " in x for x in both["limits"])


def test_a_trace_that_ends_in_one_wait_is_no_healthy_run(explain, laggard, tmp_path):
    def told(wait_us, kernel=False):
        def change(ev):
            end = end_of(ev)
            if kernel:
                call(ev, "cudaLaunchKernel", end + 5, 5)
                ev.append({"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)",
                           "pid": 0, "tid": 20, "ts": end + 20, "dur": wait_us,
                           "args": {"device": 0, "stream": 20, "correlation": ev[-1]["args"]["correlation"]}})
            call(ev, "cudaStreamSynchronize", end + 30, wait_us)
        path = edit(device_trace(tmp_path / f"{wait_us}{kernel}.json"), change)
        return " ".join(laggard("explain", path).stdout.split()), explain(path)["limits"]

    for wait_us in (30_000_000, 5_000_000):
        for kernel, what in ((False, "cudaStreamSynchronize"), (True, "ncclDevKernel_AllReduce")):
            text, limits = told(wait_us, kernel)
            assert "Nothing is wrong" not in text and f"for {wait_us // 1_000_000}" in text.split("run ")[0] + text
            assert any(what in x and "stands still" in x and "began no step from 0.12 s on" in x and "a step takes 10 ms" in x
                       for x in limits)
            assert ("The run stands still" in text) == (wait_us == 30_000_000)
    for cat, name in (("cpu_op", "c10d::barrier"), ("python_function", "threading.py(359): wait")):
        path = edit(device_trace(tmp_path / f"{cat}.json"), lambda ev, c=cat, n=name: span(ev, c, n, end_of(ev) + 30, 40_000_000))
        text = " ".join(laggard("explain", path).stdout.split())
        assert text.startswith("The run stands still") and f"for 40 s in {name}" in text, text
    for cat, name in (("user_annotation", "evaluate"), ("user_annotation", "save_checkpoint")):  # may be anything, and ends
        path = edit(device_trace(tmp_path / f"{name}.json"), lambda ev, c=cat, n=name: span(ev, c, n, end_of(ev) + 30, 40_000_000))
        assert "The run stands still" not in laggard("explain", path).stdout
    text, limits = told(90_000)
    assert text.startswith("Nothing is wrong") and not any("stands still" in x for x in limits)


@pytest.mark.parametrize("share", range(30, 100, 10))
def test_the_step_in_which_a_file_is_cut_is_not_judged(explain, laggard, tmp_path, share):
    def change(ev):  # the host orders a whole step, and then waits for its device
        for e in [e for e in ev if e["name"].startswith("ProfilerStep")]:
            own = [x for x in ev if x.get("cat") in ("cuda_runtime", "cpu_op") and e["ts"] <= x["ts"] < e["ts"] + e["dur"]]
            for k, x in enumerate(own):
                x["ts"], x["dur"] = e["ts"] + 2 + 4 * k, 3
            call(ev, "cudaDeviceSynchronize", e["ts"] + 300, e["dur"] - 301)
        ev.sort(key=lambda e: e["ts"])

    whole = edit(device_trace(tmp_path / "whole.json", steps=30), change)
    text = whole.read_text()
    cut = tmp_path / "cut.json"
    cut.write_text(text[:len(text) * share // 100])
    verdict = explain(cut)
    assert not loud(verdict) and not any("and then is away" in f["title"] for f in verdict["findings"])
    assert verdict["steps"]["max_ms"] == pytest.approx(verdict["steps"]["median_ms"], rel=0.02)
    assert "The file is cut" in " ".join(laggard("explain", cut).stdout.split())
    assert explain(whole)["steps"]["count"] == 30


def allocates(path, first, us):
    """us[i]: of cudaMalloc in step i, while the device idles."""
    device_trace(path, steps=len(us), first=first)

    def change(ev):
        for e in ev:
            step = int((e["ts"] + 60 - EPOCH_US) // 10_040)
            if not e["name"].startswith("ProfilerStep"):
                e["ts"] += sum(us[:min(step, len(us) - 1) + 1])
            else:
                e["ts"] += sum(us[:step])
                e["dur"] += us[step]
        for e in [e for e in ev if e["name"].startswith("ProfilerStep")]:
            call(ev, "cudaMalloc", e["ts"] + 1, us[int(e["name"].split("#")[1]) - first])
    return edit(path, change)


def test_what_comes_again_in_two_steps_or_late_in_a_run_is_no_cold_start(laggard, explain, tmp_path):
    for name, first, us in (("equal", 0, [40_000, 40_000]), ("old", 550, [40_000, 40_000]), ("one", 550, [40_000])):
        path = allocates(tmp_path / f"{name}.json", first, us)
        assert "gpu.allocator_sync" in loud(explain(path)), name
        assert laggard("explain", path, "--fail-on", "medium").returncode == 3
    for us in ([80_000, 100], [80_000]):
        cold = explain(allocates(tmp_path / "cold.json", 0, us))
        assert [f["id"] for f in cold["findings"]] == ["warmup.dominates"] and not loud(cold)


def hot(path, devices):
    rows = ["timestamp, index, name, utilization.gpu [%], power.draw [W], clocks.current.sm [MHz], "
            "clocks_event_reasons.active"]
    for s in range(300):
        for k in range(devices):
            bad = k == 0 and s > 60
            rows.append(f"2026/11/20 10:{s // 60:02}:{s % 60:02}.000, {k}, NVIDIA A100-SXM4-80GB, {98 + s % 2} %, "
                        f"{300 if bad else 390} W, {900 if bad else 1410} MHz, {'0x40' if bad else '0x0'}")
    path.write_text("\n".join(rows) + "\n")
    return path


def test_with_one_device_nobody_waits_for_the_slowest(laggard, tmp_path):
    words = ("all ranks", "Swap the rank", "neighbours of that device")
    alone = " ".join(laggard("explain", "-v", hot(tmp_path / "one.csv", 1)).stdout.split())
    several = " ".join(laggard("explain", "-v", hot(tmp_path / "eight.csv", 8)).stdout.split())
    assert "is throttled (too hot)" in alone and "is throttled (too hot)" in several
    assert not any(w in alone for w in words) and all(w in several for w in words)


def two_ranks(tmp_path, name, late_us, every=25, steps=150):
    """Each step 12 kernels and a collective, which both ranks leave together."""
    rnd, paths, now = random.Random(3), [], 0
    events = [[], []]
    for step in range(steps):
        late = step // every % 2 if late_us and step % every == every - 1 else None
        work = [[500 * (1 + rnd.uniform(-.02, .02)) + (late_us / 12 if rank == late else 0) for _ in range(12)]
                for rank in range(2)]
        end = now + 60 + max(map(sum, work)) + 800
        for rank, ev in enumerate(events):
            ts = now + 60
            for k, us in enumerate([*work[rank], None]):
                corr = 1 + step * 13 + k
                ev.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7 + rank, "tid": 7 + rank,
                           "ts": EPOCH_US + now + 3 * k, "dur": 2, "args": {"correlation": corr}})
                args = {"device": rank, "stream": 7, "correlation": corr}
                if us is None:
                    us = end - ts
                    args |= {"Collective name": "allreduce", "In msg nelems": 25_000_000, "dtype": "BFloat16", "Group size": 2,
                             "Process Group Name": "0"}
                ev.append({"ph": "X", "cat": "kernel", "name": "gemm" if k < 12 else "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
                           "pid": rank, "tid": 7, "ts": round(EPOCH_US + ts, 3), "dur": round(us, 3), "args": args})
                ts += us
            ev.append({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7 + rank, "tid": 7 + rank, "ts": EPOCH_US + now,
                       "dur": 40, "args": {}})
            ev.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 7 + rank, "tid": 7 + rank,
                       "ts": EPOCH_US + now, "dur": end - now, "args": {}})
        now = end + 5
    for rank, ev in enumerate(events):
        paths.append(tmp_path / f"{name}{rank}.json")
        paths[-1].write_text(json.dumps({
            "schemaVersion": 1, "traceEvents": ev, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2},
            "deviceProperties": [{"id": rank, "name": "NVIDIA H100", "computeMajor": 9, "computeMinor": 0}]}))
    return paths


def test_waiting_for_a_late_rank_is_no_exposed_communication(explain, tmp_path):
    verdict = explain(*two_ranks(tmp_path, "turn", 6000))
    found = {f["id"]: f for f in verdict["findings"]}
    assert verdict["steps"]["slow"] == 6 and verdict["steps"]["scope"] == "rotating"
    assert found["comms.exposed"]["excess_share"] < 0.05
    assert found["comms.straggler"]["excess_share"] > 0.9
    assert found["comms.straggler"]["severity"] == "low" and found["comms.straggler"]["confidence"] > 0.5
    healthy = explain(*two_ranks(tmp_path, "even", 0))
    assert not healthy["steps"]["slow"]
    assert not [f for f in healthy["findings"] if f["id"] == "comms.straggler" and f["severity"] != "info"]


def test_a_steps_table_of_a_profiler_names_what_the_device_did(laggard, tmp_path):
    computes = laggard("steps", device_trace(tmp_path / "c.json")).stdout.splitlines()[1:13]
    assert all("computing, 10.0 ms" in row and "unexplained" not in row for row in computes)
    waits = laggard("steps", device_trace(tmp_path / "w.json", loader_us=30_000)).stdout.splitlines()[2:12]
    assert all("loader, 30." in row for row in waits)


def test_the_headline_of_a_finding_says_that_kernels_are_missing(laggard, tmp_path):
    def lose(ev):  # those of every sixth step
        steps = [e for e in ev if e["name"].startswith("ProfilerStep")][::6]
        ev[:] = [e for e in ev if e["cat"] != "kernel" or not any(s["ts"] <= e["ts"] < s["ts"] + s["dur"] for s in steps)]

    whole = " ".join(laggard("explain", device_trace(tmp_path / "whole.json", loader_us=5000, steps=24)).stdout.split())
    lost = " ".join(laggard("explain", edit(device_trace(tmp_path / "lost.json", loader_us=5000, steps=24), lose)).stdout.split())
    assert "next batch" in whole and "not whole" not in whole
    assert "next batch" in lost.split(" lost ")[0] and "the trace is not whole: 17 % of the kernels are not in it." in lost, lost
