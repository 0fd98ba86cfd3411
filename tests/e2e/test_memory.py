# SPDX-License-Identifier: Apache-2.0
"""laggard memory: totals against a reference reader, known causes and healthy twins, hostile pickles."""
import collections
import gzip
import json
import pickle
import resource
import struct
import subprocess

import case_files
import pytest
import snapshot_draws as draws

MIB = 1 << 20


class Plain(pickle.Unpickler):
    """The reference reader: nothing is looked up, so nothing can run."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name}")


def reference(path):
    """What the file says of device 0, by a walk over its dictionaries that shares nothing with laggard."""
    with open(path, "rb") as f:
        d = Plain(f).load()
    segments = [s for s in d["segments"] if s["device"] == 0]
    events = (d.get("device_traces") or [[]])[0]
    blocks = [b for s in segments for b in s["blocks"]]
    held = [b for b in blocks if b["state"] == "active_allocated"]
    stacks = collections.Counter()
    wanted = 0
    for b in held:
        old = (b.get("history") or [{}])[0]
        frames = b.get("frames", old.get("frames", []))
        stacks[tuple((f["name"], f["line"]) for f in frames)] += b["size"]
        wanted += b["requested_size"]
    # How much was held when the history begins: what is held now, back through all events.
    opened, steps = {}, []
    for e in events:
        if e["action"] == "alloc":
            opened[e["addr"]] = e["size"]
            steps.append(e["size"])
        elif e["action"] == "free_requested":
            steps.append(-opened.pop(e["addr"], e["size"]))
    now = peak = wanted - sum(steps)
    for s in steps:
        now += s
        peak = max(peak, now)
    return {"reserved": sum(s["total_size"] for s in segments), "allocated": sum(b["size"] for b in held),
            "active": sum(b["size"] for b in blocks if b["state"] != "inactive"), "segments": len(segments),
            "free": sum(b["size"] for b in blocks if b["state"] == "inactive"),
            "largest": max([b["size"] for b in blocks if b["state"] == "inactive"], default=0),
            "peak": peak if steps else None, "stacks": stacks}  # without a history nobody knows


def ask(laggard, *words):
    done = laggard("memory", "--json", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def compare(laggard, path):
    truth = reference(path)
    device = ask(laggard, "--top", "0", path)["memory"][0]
    told = {"reserved": device["reserved_bytes"], "allocated": device["allocated_bytes"],
            "active": device["active_bytes"], "segments": device["segments"], "free": device["free_bytes"],
            "largest": device["largest_free_bytes"], "peak": device["peak_allocated_bytes"]}
    stacks = collections.Counter()
    for s in device["by_stack"]:
        key = []
        for text in s["frames"]:
            name, _, where = text.rpartition(" (")
            line = where.rstrip(")").rpartition(":")[2]
            key.append((name, int(line)) if where.endswith(")") and line.isdigit() else (text, 0))
        stacks[tuple(key)] += s["bytes"]
    assert told == {k: truth[k] for k in told}
    assert sorted(stacks.values()) == sorted(truth["stacks"].values())
    python = [k for k in truth["stacks"] if not any("(" in name for name, _ in k)]
    assert {k: stacks[k] for k in python} == {k: truth["stacks"][k] for k in python}
    assert sum(k["bytes"] for k in device["by_category"]) == truth["allocated"]
    assert (device["at_peak"] is None) == (truth["peak"] is None)
    assert truth["peak"] is None or sum(k["bytes"] for k in device["at_peak"]["by_category"]) == truth["peak"]


REAL = sorted({p for pattern in ("*/*snapshot*.pickle", "*/memory_*.pickle", "*/*/memory_*.pickle", "*/*/*/memory_*.pickle")
               for p in case_files.find(pattern)})


@pytest.mark.parametrize("path", REAL, ids=case_files.label)
def test_totals_equal_those_of_a_reference_reader(laggard, tmp_path, path):
    plain = tmp_path / "s.pickle"
    plain.write_bytes(case_files.content(path))
    compare(laggard, plain)
    assert ask(laggard, path)["memory"][0]["reserved_bytes"]  # as it is, packed


@pytest.mark.parametrize("protocol", (2, 3, 4, 5))
def test_all_protocols_say_the_same(laggard, tmp_path, protocol):
    job, _ = draws.leak(protocol, "profiler")
    compare(laggard, draws.write(job.d.snapshot(), tmp_path / "s.pickle", protocol))


def told(laggard, tmp_path, draw, seed):
    notes = ("profiler", "optimizer", "none")[seed % 3]
    job, truth = draw(seed, notes)
    path = draws.write(job.d.snapshot(), tmp_path / "s.pickle", 2 + seed % 4)
    found = ask(laggard, path)["findings"]
    return {f["id"]: f for f in found if f["id"].startswith("mem.")}, truth


SEEDS = range(6)


def grows_by(finding):
    """Bytes a step, of the title."""
    number, unit = finding["title"].split("grows by ")[1].split()[:2]
    return float(number) * {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[unit]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_list_that_grows_is_a_leak(laggard, tmp_path, seed):
    found, size = told(laggard, tmp_path, draws.leak, seed)
    assert set(found) == {"mem.leak"} and found["mem.leak"]["severity"] == "medium"
    assert found["mem.leak"]["culprit"]["function"] == "remember (metrics.py:44)"
    assert abs(grows_by(found["mem.leak"]) - size) <= 0.1 * size


@pytest.mark.parametrize("seed", SEEDS)
def test_kept_graphs_are_a_leak_of_many_stacks(laggard, tmp_path, seed):
    found, size = told(laggard, tmp_path, draws.graph, seed)
    assert set(found) == {"mem.leak"} and found["mem.leak"]["detail"] == "graph"
    assert abs(grows_by(found["mem.leak"]) - size) <= 0.1 * size


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("draw", (draws.healthy, draws.cache, draws.once, draws.pieces_early))
def test_healthy_twins_are_told_nothing(laggard, tmp_path, draw, seed):
    assert told(laggard, tmp_path, draw, seed)[0] == {}


@pytest.mark.parametrize("seed", SEEDS)
def test_segments_that_go_and_come_are_churn(laggard, tmp_path, seed):
    found, _ = told(laggard, tmp_path, draws.churn, seed)
    assert set(found) == {"mem.churn"} and found["mem.churn"]["detail"] == "empty_cache"
    assert "empty_cache()" in found["mem.churn"]["title"]


@pytest.mark.parametrize("seed", SEEDS)
def test_small_blocks_in_large_segments_are_fragmentation(laggard, tmp_path, seed):
    found, _ = told(laggard, tmp_path, draws.pieces, seed)
    assert set(found) == {"mem.fragmentation"}
    assert found["mem.fragmentation"]["culprit"]["function"] == "fill (buffers.py:17)"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_request_that_fails_for_the_pieces(laggard, tmp_path, seed):
    found, _ = told(laggard, tmp_path, draws.joined, seed)
    assert set(found) == {"mem.oom"} and found["mem.oom"]["detail"] == "fragmentation"
    text = " ".join(e["text"] for e in found["mem.oom"]["evidence"])
    assert "expandable_segments:True would have" in text and "fill (buffers.py:17)" in text


def test_pieces_of_pages_that_expandable_segments_cannot_move(laggard):
    """Taken on an H100, where the same program with expandable segments ran out of memory at the same line."""
    (path,) = case_files.find("*/memory_pieces_h100.pickle")
    (found,) = [f for f in ask(laggard, path)["findings"] if f["id"] == "mem.oom"]
    assert found["detail"] == "fragmentation" and "700.00 MiB were asked for" in found["title"]
    assert any("expandable_segments:True would not have" in e["text"] for e in found["evidence"])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_request_that_is_too_large(laggard, tmp_path, seed):
    found, _ = told(laggard, tmp_path, draws.too_large, seed)
    assert set(found) == {"mem.oom"} and found["mem.oom"]["detail"] == "too_large"
    text = " ".join(e["text"] for e in found["mem.oom"]["evidence"])
    assert "are missing" in text and "a batch smaller by" in text


def test_folded_stacks_and_counters(laggard, tmp_path):
    job, _ = draws.healthy(1, "profiler")
    path = draws.write(job.d.snapshot(), tmp_path / "s.pickle", 4)
    done = laggard("memory", "--folded", path)
    device = ask(laggard, path)["memory"][0]
    assert done.returncode == 0
    assert sum(int(line.rpartition(" ")[2]) for line in done.stdout.splitlines()) == device["allocated_bytes"]
    done = laggard("memory", "--folded", "--peak", path)
    assert sum(int(line.rpartition(" ")[2]) for line in done.stdout.splitlines()) == device["peak_allocated_bytes"]
    assert laggard("memory", "--markdown", path).stdout.startswith("```text\nGPU 0: ")
    assert laggard("memory", "--peak", path).returncode == 2
    out = tmp_path / "out.json"
    assert laggard("convert", path, "-o", out).returncode == 0
    events = json.loads(out.read_text())["traceEvents"]
    drawn = [e["args"] for e in events if e["ph"] == "C" and "memory allocated" in e["name"]]
    assert max(max(a.values()) for a in drawn) == device["peak_allocated_bytes"]
    assert not [e for e in events if e.get("name") == "alloc"]


def evil():
    """Pickles that no snapshot is, by what is bad about them."""
    head = b"\x80\x04}\x94(\x8c\x08segments\x94]\x94"
    yield "reduce", head + b"cos\nsystem\n\x8c\x02id\x85R."
    yield "stack_global", head + b"\x8c\x02os\x8c\x06system\x93."
    yield "build", head + b"}b."
    yield "inst", head + b"(ios\nsystem\n."
    yield "newobj", head + b")\x81."
    yield "persid", head + b"Pid\n."
    yield "unknown", head + b"\xff."
    yield "memo far away", head + b"r\xf0\xff\xff\x03."
    yield "memo not there", head + b"j\xf0\xff\xff\x03."
    yield "length", head + b"\x8d" + struct.pack("<Q", 1 << 62) + b"x"
    yield "text length", head + b"X\xff\xff\xff\x7fx"
    yield "depth", head + b"]\x94" * 1_000_000
    yield "marks", head + b"(" * 5_000_000
    yield "laughs", head + b"]q\x01" + b"".join(b"(" + b"h" + bytes([i]) * 1 + b"".join(
        b"h" + bytes([i]) for _ in range(9)) + b"l" * 0 + b"t" + b"q" + bytes([i + 1]) for i in range(1, 60)) + b"."
    yield "itself", head + b"h\x02a" * 100_000 + b"u."
    yield "blocks shared", (head + b"]q\x05(" + b"}" * 30_000 + b"e0(" +
                            b"}(\x8c\x06blocksh\x05\x8c\x06deviceK\x00u" * 20_000 + b"eu.")


def run_bounded(binary, path):
    """The program in at most 256 MiB of data: (what it did, seconds of CPU time)."""
    def limit():
        resource.setrlimit(resource.RLIMIT_DATA, (256 * MIB, 256 * MIB))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([binary, "memory", path], capture_output=True, text=True, preexec_fn=limit, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("name,data", evil(), ids=[n for n, _ in evil()])
def test_hostile_pickles_are_one_line_soon(laggard_path, tmp_path, name, data):
    path = tmp_path / "s.pickle"
    path.write_bytes(data)
    done, took = run_bounded(laggard_path, path)
    if name in ("length", "text length", "depth", "marks", "itself", "blocks shared"):
        assert done.returncode in (0, 1), done.stderr
    else:
        assert done.returncode == 1
    if done.returncode:
        assert done.stderr.count("\n") == 1 and "byte" in done.stderr
    assert took < 1


@pytest.mark.parametrize("unit", (b"]", b"N0", b"K\x01", b"}\x94", b"\x80\x04", b"((11"))
def test_a_megabyte_that_unpacks_to_gigabytes(laggard_path, tmp_path, unit):
    path = tmp_path / "s.pickle.gz"
    block = unit * (MIB // len(unit))
    with gzip.open(path, "wb", compresslevel=6) as f:
        f.write(b"\x80\x04}\x94(\x8c\x08segments\x94]\x94(")
        for _ in range(300):
            f.write(block)
    done, took = run_bounded(laggard_path, path)
    assert done.returncode in (0, 1) and done.stderr.count("\n") <= 1
    assert took < 1


def test_every_cut_is_read_as_far_as_it_goes(laggard, tmp_path):
    job, _ = draws.leak(3, "profiler")
    whole = draws.write(job.d.snapshot(), tmp_path / "s.pickle", 4).read_bytes()
    for cut in range(200, len(whole), max(1, len(whole) // 40)):
        path = tmp_path / "cut.pickle"
        path.write_bytes(whole[:cut])
        done = laggard("memory", "--json", path)
        assert done.returncode == 0, (cut, done.stderr)
        assert any("ends before" in line or "ends early" in line for line in json.loads(done.stdout)["limits"])


def test_memory_that_was_only_watched_and_a_log(laggard, tmp_path):
    table = tmp_path / "smi.csv"
    table.write_text("timestamp, index, memory.used [MiB], utilization.gpu [%]\n" + "".join(
        f"2025/10/03 18:37:{i:02d}.000, 0, {used} MiB, 90 %\n" for i, used in enumerate((100, 300, 50, 200))))
    series = ask(laggard, table)["memory_series"]
    assert [s["name"] for s in series] == ["GPU 0: gpu.mem_used"]
    assert [series[0][k] // MIB for k in ("first_bytes", "last_bytes", "peak_bytes", "least_bytes")] == [100, 200, 300, 50]
    assert (series[0]["peak_t_s"], series[0]["least_t_s"], series[0]["readings"]) == (1, 2, 4)
    log = tmp_path / "job.log"
    log.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
                   "47.53 GiB of which 1.09 GiB is free. Of the allocated memory 40.00 GiB is allocated by PyTorch, and "
                   "5.00 GiB is reserved by PyTorch but unallocated.\n")
    told_of = ask(laggard, log)
    assert told_of["memory"] == [] and [f["detail"] for f in told_of["findings"]] == ["fragmentation"]
    assert "nothing of the memory" not in laggard("memory", log).stdout
