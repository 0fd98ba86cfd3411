# SPDX-License-Identifier: Apache-2.0
"""torch.profiler and Chrome traces: fixtures made by torch, and the figures that are known of real ones.

The real traces are those of tests/data/cases and, in the large sweep, of LG_CASES.
"""
import csv
import decimal
import gzip
import json
import pathlib
import re
import subprocess
import sys

import case_files
import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "tests/matrix"))
import families  # noqa: E402
import job  # noqa: E402
import kineto  # noqa: E402

DATA = ROOT / "tests/data/kineto"
STEP, STAGE, KERNEL, COPY, COLLECTIVE, WAIT, RUNTIME, OVERHEAD = 1, 2, 4, 5, 6, 16, 18, 20
BATCH_WAIT, FORWARD, OPTIMIZER = 1, 3, 6
LAUNCH = 3  # enum lg_flow_kind


@pytest.fixture
def rows(laggard, laggard_path, tmp_path):
    """rows(file) -> {table: [row, ...]}"""
    tool = pathlib.Path(laggard_path).parent / "tests/e2e/lag_dump"
    assert tool.exists(), "tests/e2e/lag_dump is not built"

    def call(source):
        out = tmp_path / "out.lag"
        done = laggard("convert", source, "-o", out, "--no-verdict")
        assert done.returncode == 0, done.stderr
        text = subprocess.run([tool, out], check=True, stdout=subprocess.PIPE).stdout
        tables = {}
        for line in text.decode("utf-8", "replace").splitlines():
            row = json.loads(line)
            tables.setdefault(row["table"], []).append(row)
        return tables
    return call


def union(intervals):
    total, end = 0, None
    for a, b in sorted(i for i in intervals if i[1] > i[0]):
        if end is None or a > end:
            total += b - a
            end = b
        elif b > end:
            total += b - end
            end = b
    return total


def events_of(path):
    """The trace's events as Python reads them; lines that are not JSON are left out."""
    text = gzip.decompress(path.read_bytes()).decode()
    body = text[text.index('"traceEvents": [') + 16:text.rindex("],")]
    events = []
    for part in re.split(r"\n  \},\s*", body):
        try:
            events.append(json.loads(part.strip().removesuffix("\n  }") + "}", strict=False))
        except ValueError:
            events.append(None)
    return text, events


def test_training_fixture(rows):
    text, events = events_of(DATA / "train.json.gz")
    broken = events.count(None)
    complete = [e for e in events if e and e["ph"] == "X" and e["cat"] != "Trace"]
    base = int(re.search(r'"baseTimeNanoseconds": (\d+)', text).group(1))
    t = rows(DATA / "train.json.gz")
    spans = t["span"]
    # torch 2.6 writes a name with quotes as it is: those events are lost, and said to be.
    assert broken == 4
    assert [d["count"] for d in t["diag"]] == [broken]
    assert "damaged at byte" in t["diag"][0]["text"]
    assert len(spans) == len(complete)
    # Every time is right to the nanosecond.
    want = sorted(base + int(str(e["ts"]).replace(".", "").ljust(16, "0"))
                  for e in json.loads(json.dumps(complete), parse_float=str))
    assert [s["ts"] for s in spans] == want
    steps = [s for s in spans if s["kind"] == STEP]
    assert [s["seq"] for s in steps] == [2, 3, 4, 5]
    waits = [s for s in spans if s["kind"] == STAGE and s["stage"] == BATCH_WAIT]
    assert len(waits) == 4 and all(s["dur"] > 8e6 for s in waits)
    assert {s["name"] for s in spans if s["stage"] == FORWARD} == {"## forward ##"}
    assert {s["name"] for s in spans if s["kind"] == STAGE and s["stage"] == OPTIMIZER} == \
        {"Optimizer.step#AdamW.step", "Optimizer.zero_grad#AdamW.zero_grad"}
    dims = {s["args"].split("\t")[0] for s in spans if s["name"] == "aten::addmm"}
    assert any(d.startswith("types=") or d.startswith("dims=") for d in dims)
    assert t["clock"][0]["ts"] == t["clock"][0]["value"]
    assert {m["key"] for m in t["meta"]} >= {"torch.profiler.record_shapes", "trace.format"}
    assert {k["name"] for k in t["track"]} >= {"memory allocated", "memory reserved"}


def test_ranks_are_one_run(laggard, rows, tmp_path):
    both = tmp_path / "both.lag"
    for r in (0, 1):
        t = rows(DATA / f"rank{r}.json.gz")
        ranked = [p for p in t["process"] if p["rank"] >= 0]
        assert [(p["rank"], p["world"], p["role"]) for p in ranked] == [(r, 2, 1)]
        calls = [s for s in t["span"] if s["kind"] == COLLECTIVE]
        assert len(calls) == 3 and {s["name"] for s in calls} == {"gloo:all_reduce"}
    done = laggard("convert", DATA / "rank0.json.gz", DATA / "rank1.json.gz", "-o", both,
                   "--no-verdict")
    assert done.returncode == 0, done.stderr
    t = rows(both)
    assert sorted(p["rank"] for p in t["process"] if p["rank"] >= 0) == [0, 1]
    # One clock: the ranks' collectives end together, rank 1 comes last.
    of = {th["row"]: th["prc"] for th in t["thread"]}
    by = {}
    for s in t["span"]:
        if s["kind"] == COLLECTIVE:
            by.setdefault(of[s["thr"]], []).append(s)
    ends = [[s["ts"] + s["dur"] for s in v] for v in by.values()]
    assert all(abs(a - b) < 5e6 for a, b in zip(*ends))


def test_compressed_twins_give_the_same_rows(rows, tmp_path):
    packed = DATA / "train.json.gz"
    plain = tmp_path / "a.json"
    plain.write_bytes(gzip.decompress(packed.read_bytes()))
    zst = tmp_path / "odd name.bin"
    made = subprocess.run(["zstd", "-q", plain, "-o", zst], check=False)
    want = rows(plain)["span"]
    assert rows(packed)["span"] == want
    if made.returncode == 0:
        assert rows(zst)["span"] == want
        # pzstd begins each file, and parts of it, with a skippable frame (RFC 8878, 3.1.2)
        skip = b"\x53\x2a\x4d\x18\x04\x00\x00\x00abcd"
        zst.write_bytes(skip + zst.read_bytes() + skip)
        assert rows(zst)["span"] == want


def test_truncated_file_is_read_to_its_end(rows, tmp_path):
    text = gzip.decompress((DATA / "rank0.json.gz").read_bytes())
    cut = tmp_path / "cut.json"
    cut.write_bytes(text[:len(text) // 2])
    t = rows(cut)
    full = rows(DATA / "rank0.json.gz")
    assert 0.3 * len(full["span"]) < len(t["span"]) < 0.7 * len(full["span"])
    (diag,) = [d for d in t["diag"] if "ends at byte" in d["text"]]
    assert len(text) // 2 - 2000 < int(diag["text"].split()[-1]) <= len(text) // 2
    # The base stands at the end of the file and is lost with it: no claim about the time of day.
    assert "clock" not in t


def costs(draw):
    """Part of a drawn job's time that its cause takes; 0 where it has none."""
    wall = job.run(draw.job)[1]
    return sum(1 - job.run(draw.job.without(**families.WITHOUT[cause]))[1] / wall for cause in draw.causes)


def drawn(family, number):
    """(document, events of the host, those of the device) of a drawn rank, as tests/matrix writes it; where the family
    has a cause, of the first draw from number on of one rank in which that takes most of the time."""
    draw = next(d for d in (families.draw(family, n, 1) for n in range(number, number + 1000))
                if not d.causes or (d.job.world == 1 and costs(d) > 0.5))
    ranks, _ = job.run(draw.job)
    document = kineto.document(draw.job, ranks[0], draw.device)
    device = [e for e in document["traceEvents"] if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset", "ac2g")]
    return document, [e for e in document["traceEvents"] if e not in device], device


@pytest.mark.parametrize("family", ("loader", "healthy"))
@pytest.mark.parametrize("share, judged", ((0.2, False), (0.3, False), (0.5, False), (0.97, True), (1, True)))
def test_a_trace_that_is_cut_before_its_kernels_is_not_judged(laggard, tmp_path, family, share, judged):
    """The profiler writes what the host did first: what is left of half a file is a host that waits for nothing."""
    document, host, device = drawn(family, 1)
    document["traceEvents"] = host + device
    text = json.dumps(document)
    path = tmp_path / "rank0.json"
    path.write_text(text[:int(len(text) * share)])
    verdict = json.loads(laggard("explain", "--json", path).stdout)
    said = " ".join(laggard("explain", "-v", path).stdout.split())
    assert ("file is cut" in said) == (share < 1)
    if judged:
        assert verdict["bound"]["verdict"] == {"loader": "data", "healthy": "gpu"}[family]
        assert (" file is cut: what it ends before is not judged." in said) == (share < 1)
    else:
        assert said.startswith("The file is cut before the work of its device: nothing is judged.")
        assert verdict["bound"] | {"why": ""} == {"verdict": "unknown", "confidence": 0, "why": ""}
        assert not verdict["findings"]


@pytest.mark.parametrize("text, says", [
    ('{"model": "gpt", "layers": 12}', "no traceEvents"),
    ('{"traceEvents": []}', "without events"),
    ('{"schemaVersion": 1, "traceEvents": [', "without events"),
])
def test_refused_with_one_true_line(laggard, tmp_path, text, says):
    path = tmp_path / "x.json"
    path.write_text(text)
    done = laggard("convert", path, "-o", tmp_path / "o.lag", "--no-verdict")
    assert done.returncode != 0
    assert says in done.stderr and len(done.stderr.strip().splitlines()) == 1


FIGURES = re.compile(r"^\| (\S+\.json(?:\.gz|\.zst)?) \|.*window ([\d.]+) ms, GPU busy (\d+)%, "
                     r"NCCL exposed (\d+)%, DataLoader (\d+)%, sync API (\d+)%, "
                     r"memcpy API (\d+)%", re.M)


def figures():
    """(file, figures ...) as whoever chose the files computed them, without laggard."""
    return [(root / case[0], *case[1:]) for root, text in case_files.tables() for case in FIGURES.findall(text)]


def test_there_are_real_traces_with_figures():
    assert len(figures()) >= 20


@pytest.mark.cases
@pytest.mark.parametrize("case", figures(), ids=lambda c: case_files.label(c[0]))
def test_sums_of_real_traces(rows, case):
    name, window, busy, exposed, loader, sync, copies = case[0], *map(float, case[1:])
    t = rows(name)
    spans = t["span"]
    base = [s for s in spans if s["kind"] == STEP] or \
        [s for s in spans if s["kind"] != OVERHEAD]
    begin = min(s["ts"] for s in base)
    end = max(s["ts"] + s["dur"] for s in base)

    def clip(kinds):
        return [(max(s["ts"], begin), min(s["ts"] + s["dur"], end))
                for s in spans if s["track"] and s["kind"] in kinds]

    def calls(test):
        return sum(s["dur"] for s in spans if not s["track"] and begin <= s["ts"] < end and test(s))

    def share(ns):
        return 100 * ns / (end - begin)

    # Without steps the window's edges are a matter of taste.
    assert (end - begin) / 1e6 == pytest.approx(window, rel=0.003, abs=0.06)
    assert share(union(clip((KERNEL, COPY, COLLECTIVE)))) == pytest.approx(busy, abs=1)
    other = clip((KERNEL, COPY))
    assert share(union(other + clip((COLLECTIVE,))) - union(other)) == pytest.approx(exposed, abs=1)
    # Only torch's own loader was counted, not "## data_load ##".
    assert share(calls(lambda s: s["stage"] == BATCH_WAIT and "DataLoader" in s["name"])) == \
        pytest.approx(loader, abs=1)
    assert share(calls(lambda s: s["kind"] == RUNTIME and "emcpy" in s["name"])) == \
        pytest.approx(copies, abs=1)
    # The figure counts the profiler's own last synchronisation, which begins behind the last step.
    assert share(calls(lambda s: s["kind"] == WAIT)) <= sync + 1
    launched = [s for s in spans if s["track"] and s["kind"] in (KERNEL, COPY, COLLECTIVE)
                and s["peer"]]
    # What is kept for a drawing beside them goes elsewhere: onto waits of a stream, and from operator to operator.
    onto = {(s["ts"], s["seq"]) for s in launched}
    assert sum(f["kind"] == LAUNCH and (f["ts_to"], f["id"]) in onto for f in t.get("flow", [])) == len(launched)


@pytest.mark.cases
def test_every_chrome_case_is_read(rows):
    files = case_files.find("*/trace-event/*.json")
    assert len(files) >= 10
    for path in files:
        t = rows(path)
        assert t.get("span") or t.get("sample"), path


def test_steps_of_a_profiler_have_their_stages(laggard):
    """Without scheduler states nobody knows what the thread did, but its stages are marked."""
    table = list(csv.DictReader(laggard("steps", DATA / "rank0.json.gz", "--csv").stdout.splitlines()))
    assert len(table) == 3
    stages = [name for name in table[0] if name.endswith("_ms") and name.split("_ms")[0] in
              ("batch_wait", "h2d", "forward", "backward", "grad_sync", "optimizer", "side", "other")]
    assert len(stages) == 8
    for row in table:
        dur = decimal.Decimal(row["dur_ms"])
        assert decimal.Decimal(row["unexplained_ms"]) == dur
        assert sum(decimal.Decimal(row[name]) for name in stages) == dur
        assert 0 < decimal.Decimal(row["forward_ms"]) < dur and decimal.Decimal(row["optimizer_ms"]) > 0


def cpu_trace(path, loader_us=0, gloo_us=0, pause_us=0, **top):
    """Ten steps of 10 ms of operators, with a wait for the batch before and a collective behind them."""
    events, now = [], 1000
    for step in range(10):
        begin = now
        if loader_us:
            events.append(("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 7, now,
                           loader_us))
            now += loader_us
        for _ in range(20):
            events.append(("cpu_op", "aten::addmm", 7, now, 490))
            now += 500
        if gloo_us:
            events.append(("user_annotation", "gloo:all_reduce", 99, now, gloo_us))
            now += gloo_us
        events.append(("user_annotation", "Optimizer.step#SGD.step", 7, now, 100))
        now += 100 + pause_us
        events.append(("user_annotation", f"ProfilerStep#{step}", 7, begin, now - begin))
    path.write_text(json.dumps({"schemaVersion": 1, **top, "traceEvents": [
        {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur, "args": {}}
        for cat, name, tid, ts, dur in events]}))
    return path


@pytest.mark.parametrize("waits, bound", (({}, "host"), ({"loader_us": 12000}, "data"), ({"gloo_us": 9000}, "comms"),
                                          ({"loader_us": 400, "gloo_us": 400}, "host")))
def test_a_trace_of_the_cpu_says_what_bounds_it(laggard, tmp_path, waits, bound):
    verdict = json.loads(laggard("explain", "--json", cpu_trace(tmp_path / "t.json", **waits)).stdout)
    assert verdict["bound"]["verdict"] == bound, verdict["bound"]
    assert verdict["bound"]["confidence"] > 0.8
    # A loader of 4 % is told, and no trouble.
    loaders = [f["severity"] for f in verdict["findings"] if f["id"] == "data.loader_wait"]
    assert loaders == (["high"] if bound == "data" else ["low"] if "loader_us" in waits else [])
    # Beside a device that was not traced, operators may have waited for it.
    gpu = {"deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "computeMajor": 8, "computeMinor": 0}]}
    verdict = json.loads(laggard("explain", "--json", cpu_trace(tmp_path / "g.json", **waits, **gpu)).stdout)
    assert verdict["bound"]["verdict"] == (bound if bound == "data" else "unknown")


@pytest.mark.parametrize("pause_us, headline", ((9000, "No cause proven: for 48 % of the steps' time nothing runs that this"),
                                                (500, "Nothing is wrong that this input can show"),
                                                (0, "Nothing is wrong that this input can show")))
def test_a_pause_in_every_step_is_not_nothing(laggard, tmp_path, pause_us, headline):
    """A callback or a sleep leaves no event: that it is not known does not make it healthy."""
    text = laggard("explain", "-v", cpu_trace(tmp_path / "t.json", pause_us=pause_us)).stdout
    assert " ".join(text.split()).startswith(headline), text


@pytest.mark.parametrize("name, plain", (("t_rank1.json", False), ("train.log", False), ("t2.json.gz", False),
                                         ("notes.txt", True), ("requirements", True), (None, True)))
def test_what_could_not_be_read_is_no_all_clear(laggard, tmp_path, name, plain):
    """Of a file beside the trace nothing is known: by its name it may be of the run."""
    cpu_trace(tmp_path / "t.json")
    if name:
        (tmp_path / name).write_bytes(bytes(range(256)) * 8)
    words = "Nothing is wrong that this input can show" if plain else "Nothing was found in what could be judged"
    limits = json.loads(laggard("explain", "--json", tmp_path).stdout)["limits"]
    assert [x for x in limits if "could not be read" in x] == (
        [f"1 file could not be read: {tmp_path}/{name}: no trace of a kind that laggard reads"] if name else [])
    for form in ("-v", "--markdown"):
        text = " ".join(laggard("explain", form, tmp_path).stdout.split()).removeprefix("## ")
        assert text.startswith(words) and ("1 file that could not be read." in text) != plain, text
        assert name is None or "1 file could not be read" in text


def two_devices(path, in_turn):
    """Ten steps, each of 5 ms of kernels on device 0 and 5 ms on device 1: behind them, or at the same time."""
    events, now, corr = [], 1000, 0

    def row(cat, name, pid, tid, ts, dur, **args):
        events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args})

    for step in range(10):
        begin, end = now, 0
        for device in (0, 1):
            at = begin if device == 0 or not in_turn else begin + 5020
            now = max(now, at)
            for k in range(10):
                corr += 1
                row("cpu_op", "aten::linear", 7, 7, now, 9)
                row("cuda_runtime", "cudaLaunchKernel", 7, 7, now + 2, 5, correlation=corr)
                start = max(at + 20 + 500 * k, now + 8)
                row("kernel", "gemm", device, 7, start, 500, device=device, stream=7, correlation=corr)
                now, end = now + 10, max(end, start + 500)
            if in_turn:
                row("cuda_runtime", "cudaStreamSynchronize", 7, 7, now, end - now + 2)
                now = end + 3
        row("cuda_runtime", "cudaStreamSynchronize", 7, 7, now, max(end - now, 0) + 2)
        now = max(now, end) + 4
        row("user_annotation", f"ProfilerStep#{step}", 7, 7, begin, now - begin)
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": i, "name": "NVIDIA H100 80GB HBM3"}
                                                                        for i in (0, 1)], "traceEvents": events}))
    return path


@pytest.mark.parametrize("in_turn", (True, False))
def test_devices_of_one_process_work_in_turn_or_together(laggard, tmp_path, in_turn):
    verdict = json.loads(laggard("explain", "--json", two_devices(tmp_path / "t.json", in_turn)).stdout)
    loud = [(f["id"], round(f["lost_share"], 1)) for f in verdict["findings"] if f["severity"] in ("medium", "high")]
    assert loud == ([("gpu.devices_in_turn", 0.5)] if in_turn else [])
    assert verdict["bound"]["verdict"] == "gpu"


@pytest.mark.parametrize("what, sure", ((None, False), ("postprocess", True)))
def test_a_server_may_have_nothing_to_do(laggard, tmp_path, what, sure):
    """Requests of 5 ms, 20 ms apart: nobody asked, or the program works in between and says so."""
    events, now = [], 1000

    def row(cat, name, pid, ts, dur, **args):
        events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": 7, "ts": ts, "dur": dur, "args": args})

    for request in range(30):
        begin = now
        for k in range(10):
            row("cpu_op", "aten::linear", 7, now, 9)
            row("cuda_runtime", "cudaLaunchKernel", 7, now + 2, 5, correlation=10 * request + k + 1)
            row("kernel", "gemm", 0, begin + 20 + 500 * k, 500, device=0, stream=7, correlation=10 * request + k + 1)
            now += 10
        row("cuda_runtime", "cudaStreamSynchronize", 7, now, begin + 5025 - now)
        now = begin + 5030
        row("user_annotation", "handle_request", 7, begin, now - begin)
        if what:
            row("user_annotation", what, 7, now + 1, 20000)
        now += 20010
    (tmp_path / "t.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events, "deviceProperties": [
        {"id": 0, "name": "NVIDIA H100 80GB HBM3"}]}))
    found = json.loads(laggard("explain", "--json", tmp_path / "t.json").stdout)["findings"][0]
    assert (found["id"], found["detail"]) == ("gpu.launch_bound", "pauses")
    assert any("nobody sends requests" in str(x) for x in found["against"]) != sure
    assert (found["confidence"] > 0.9) == sure
    assert found["culprit"]["function"] == what


def test_times_that_are_rounded_cost_no_stage(laggard, tmp_path):
    """A microsecond of the optimizer lies in the next wait for a batch, which is no part of it."""
    path = cpu_trace(tmp_path / "t.json", loader_us=4000)
    doc = json.loads(path.read_text())
    for event in doc["traceEvents"]:
        event["dur"] += event["name"].startswith("Optimizer.step")
    path.write_text(json.dumps(doc))
    table = list(csv.DictReader(laggard("steps", path, "--csv").stdout.splitlines()))
    assert [round(float(row["batch_wait_ms"])) for row in table] == [4] * 10


@pytest.mark.parametrize("at_end", (True, False))
def test_a_pause_at_the_end_of_a_step_is_no_wait_for_a_batch(laggard, tmp_path, at_end):
    """Of two loops one pauses behind its optimizer, in the step that it marks; the other where a batch is asked for."""
    events, now = [], 1000
    for step in range(16):
        begin, pause = now, 60000 * (step % 3 == 1)
        now += 30 if at_end else 30 + pause
        for _ in range(20):
            events.append(("cpu_op", "aten::addmm", now, 490))
            now += 500
        events.append(("user_annotation", "Optimizer.step#SGD.step", now, 100))
        now += 100 + (pause if at_end else 0)
        events.append(("user_annotation", f"ProfilerStep#{step}", begin, now - begin))
        now += 20
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [
        {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": 7, "ts": ts, "dur": dur, "args": {}}
        for cat, name, ts, dur in events]}))
    found = json.loads(laggard("explain", "--json", path).stdout)["findings"]
    assert [f["id"] for f in found] == ([] if at_end else ["data.loader_wait"])


@pytest.mark.parametrize("ops, us, pause, says", ((20, 500, 0, None),
                                                  (20, 500, 90000, "for 100 % nothing that was traced"),
                                                  (200, 500, 0, "200 operators on its thread, another 20: more work"),
                                                  (20, 5000, 0, "20: the same work took longer")))
def test_slow_steps_on_the_cpu_say_where_their_time_is(laggard, tmp_path, ops, us, pause, says):
    """Every fifth step has so many operators of that length, and so long a pause; others have 20 of 500 us."""
    events, now = [], 1000
    for step in range(20):
        begin, odd = now, step % 5 == 4
        now += 30
        for _ in range(ops if odd else 20):
            events.append(("cpu_op", "aten::addmm", now, us if odd else 500))
            now += (us if odd else 500) + 2
        events.append(("user_annotation", "Optimizer.step#SGD.step", now, 100))
        now += 110 + (pause if odd else 0)
        events.append(("user_annotation", f"ProfilerStep#{step}", begin, now - begin))
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [
        {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": 7, "ts": ts, "dur": dur, "args": {}}
        for cat, name, ts, dur in events]}))
    verdict = json.loads(laggard("explain", "--json", path).stdout)
    assert verdict["findings"] == []
    said = [x for x in verdict["limits"] if x.startswith("slow steps took")]
    assert says in said[0] if says else not said
    assert verdict["unexplained_share"] == (1 if says else None)
    assert ("follows Optimizer.step" in "".join(said)) == bool(pause)
    assert ("No cause proven" in laggard("explain", "-v", path).stdout) == bool(says)


def gloo_ranks(folder, work, loader=lambda rank, step: 200, pause=lambda rank, step: 0, legacy=False):
    """Three ranks whose gradients are reduced on a thread of gloo's: work(rank, step) us of operators before it."""
    ranks, now = [[] for _ in range(3)], [1000, 1700, 2500]
    for step in range(12):
        begin, arrive = list(now), []
        for r, events in enumerate(ranks):
            wait = loader(r, step)
            events.append(("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 1,
                           now[r], wait))
            at = now[r] + wait
            for _ in range(10):
                events.append(("cpu_op", "aten::addmm", 1, at, work(r, step) // 10 - 1))
                at += work(r, step) // 10
            arrive.append(at + pause(r, step) - 700 * r)  # their clocks differ
        for r, events in enumerate(ranks):
            end = max(arrive) + 900 + 700 * r
            events.append(("user_annotation", "gloo:all_reduce", 2, arrive[r] + 700 * r, end - arrive[r] - 700 * r))
            events.append(("user_annotation", "Optimizer.step#SGD.step", 1, end, 100))
            events.append(("user_annotation", f"ProfilerStep#{step}", 1, begin[r], end + 100 - begin[r]))
            now[r] = end + 110
    for r, events in enumerate(ranks):
        rows = [{"ph": "X", "name": name, "pid": "CPU functions", "tid": tid, "ts": ts, "dur": dur, "args": {}} if legacy
                else {"ph": "X", "cat": cat, "name": name, "pid": 40 + r, "tid": 40 * tid, "ts": ts, "dur": dur}
                for cat, name, tid, ts, dur in events]
        (folder / f"rank{r}.json").write_text(json.dumps(rows if legacy else {"schemaVersion": 1, "traceEvents": rows}))
    return [folder / f"rank{r}.json" for r in range(3)]


def test_torch_without_kineto_needs_no_mark_of_a_step(laggard, tmp_path):
    """Its events have no category and a word for a process; the ends of the optimizer tell the steps."""
    rows = json.loads(gloo_ranks(tmp_path, lambda r, s: 5000, legacy=True)[0].read_text())
    path = tmp_path / "t.json"
    path.write_text(json.dumps([e for e in rows if not e["name"].startswith(("ProfilerStep", "enumerate"))]))
    verdict = json.loads(laggard("explain", "--json", path).stdout)
    assert verdict["steps"]["count"] == 12 and verdict["inputs"][0]["format"] == "kineto"


@pytest.mark.parametrize("legacy", (False, True))
@pytest.mark.parametrize("late, rule, says", (
    ({"work": lambda r, s: 13000 if r == 2 else 5000}, "comms.straggler", "% in operators"),
    ({"pause": lambda r, s: 8000 if r == 2 else 0}, "comms.straggler", "% in nothing that was traced"),
    ({"loader": lambda r, s: 8000 if r == 2 else 200}, "data.loader_wait", None),
    ({}, None, None),
    ({"pause": lambda r, s: 60000 if (r, s) == (2, 4) else 50 if r == 2 else 0}, None, None),
    ({"pause": lambda r, s: 8000 if r == 2 and s % 12 < 7 else 4000 if r == s % 2 and s % 12 > 6 else 0}, None, "in turn"),
    ({"work": lambda r, s: 5000 + (r * 7 + s * 5) % 11 * 40}, None, None)))
def test_ranks_on_the_cpu_wait_for_the_late_one(laggard, tmp_path, late, rule, says, legacy):
    """Without a device, without a number on the collectives and without a common clock; or nobody is late for long."""
    paths = gloo_ranks(tmp_path, **{"work": lambda r, s: 5000, **late}, legacy=legacy)
    verdict = json.loads(laggard("explain", "--json", *paths).stdout)
    found = [f for f in verdict["findings"] if f["severity"] in ("high", "medium")]
    assert [f["id"] for f in found] == ([rule] if rule else [])
    if rule:
        assert "rank 2" in found[0]["title"] and found[0]["culprit"]["rank"] == 2
        assert verdict["steps"]["scope"] == "rank_local"
        assert found[0]["lost_share"] == pytest.approx(8000 / 14200, rel=0.05)
    turns = [line for line in verdict["limits"] if "who comes last changes" in line]
    assert not (rule and turns)
    if says == "in turn":
        assert "rank 0 in 2, rank 1 in 3, rank 2 in 7 of 12" in turns[0]
    elif says:
        (most,) = [e["text"] for e in found[0]["evidence"] if e["text"].startswith("of its time")]
        share = float(most.split(says)[0].split()[-1])
        assert 50 < share < 65


@pytest.mark.parametrize("late", (0, 2))
def test_a_loader_of_one_rank_explains_what_all_got_slower_by(laggard, tmp_path, late):
    """Whichever rank is compared: the others spend that time in collectives, in whatever stage these lie."""
    folders = [tmp_path / name for name in ("before", "again", "after")]
    for folder in folders:
        folder.mkdir()
    for folder in folders[:2]:
        gloo_ranks(folder, lambda r, s: 5000)
    gloo_ranks(folders[2], lambda r, s: 5000, loader=lambda r, s: 8000 if r == late else 200)
    verdict = json.loads(laggard("diff", folders[0], folders[2], "--json").stdout)
    found = verdict["findings"][0]
    assert found["id"] == "data.loader_wait" and found["severity"] == "high" and found["culprit"]["rank"] == late
    assert f"only on rank {late}" in found["title"]
    assert found["lost_ms"] / verdict["steps"]["count"] == pytest.approx(7.8, rel=0.1)
    assert not json.loads(laggard("diff", *folders[:2], "--json").stdout)["findings"]


def test_what_the_profiler_says_of_its_own_losses_is_a_limit(laggard, tmp_path):
    def limits(**top):
        return json.loads(laggard("explain", "--json", cpu_trace(tmp_path / "t.json", **top)).stdout)["limits"]

    counts = ("INFO:2026-01-01 10:00:00 7:7 CuptiActivityProfiler.cpp:333] Record counts: Out-of-range = 4181, "
              "Blocklisted runtime = 37458, Invalid ext correlations = 0, CPU GPU out-of-order = 0, "
              "Unexpected CUDA events = {}, CUPTI stopped early? = {}")
    healthy = limits(INFO=[counts.format(0, 0), "INFO: something else"])
    assert healthy == limits()
    (line,) = set(limits(INFO=[counts.format(0, 1)])) - set(healthy)
    assert "CUPTI stopped early" in line
    (line,) = set(limits(INFO=[counts.format(7, 0)])) - set(healthy)
    assert "(7)" in line and "Unexpected CUDA events = 7" in line
    (line,) = set(limits(ERROR=["one went wrong", "two"])) - set(healthy)
    assert "2 errors: one went wrong" in line


def test_compiled_code_that_a_log_tells_of_is_missed_in_the_trace(laggard, tmp_path):
    def skipped(*files):
        findings = json.loads(laggard("explain", "--json", *files).stdout)["findings"]
        return [f for f in findings if f["id"] == "compile.skipped"]

    log = tmp_path / "trace.log"  # torch's structured log: it compiled a frame
    log.write_text("".join(line for line in (ROOT / "tests/data/torchlog/trace.log").open()
                           if "dynamo_start" in line))
    eager, compiled = cpu_trace(tmp_path / "eager.json"), tmp_path / "compiled.json"
    doc = json.loads(eager.read_text())
    for e in doc["traceEvents"]:
        if e["name"] == "aten::addmm":
            e["name"] = "Torch-Compiled Region: 0/0"
    compiled.write_text(json.dumps(doc))
    (found,) = skipped(eager, log)
    assert found["severity"] == "medium" and found["lost_ms"] is None and "10 profiled steps" in found["title"]
    assert not skipped(compiled, log) and not skipped(eager) and not skipped(log)
