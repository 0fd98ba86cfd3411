# SPDX-License-Identifier: Apache-2.0
"""What other programs read out of `laggard convert`'s files is what `laggard query` counts in the tables.

The programs are the real ones: speedscope's importer from its npm package, run by node, and Perfetto's
trace_processor_shell, where LG_TRACE_PROCESSOR or PATH has one of v58 or later; and protoc, by Perfetto's definitions
(tests/data/perfetto; LG_PERFETTO_PROTOS may name a source tree of Perfetto, to compare with). What they should find is
worked out here from the tables alone, to the nanosecond, by the rules that laggard-convert(1) states.
"""
import collections
import csv
import io
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from trace_files import Chrome, Perfetto, fields

SPEEDSCOPE = "1.25.0"
COLLECTIVE, LOCK_WAIT, LOCK_HOLD = 6, 7, 8  # enum lg_span_kind
SPAN_LANES = {COLLECTIVE: "collectives", LOCK_WAIT: "lock waits", LOCK_HOLD: "lock holds"}
IDLE_SAMPLE, NO_CPU, KERNEL = 2, 12, 1  # LG_SAMPLE_*
IDLE_THREAD = 4  # LG_THREAD_IDLE
LATER = 1 << 24  # shown instead of the number of a later life of a tid, with the row added
LOSSES = 0x7fffff00  # the pid they are shown under
DEPTH = 500  # how deep slices nest (laggard-convert(1))

# Two CPUs at work, in functions that call themselves and each other, with pauses.
BUSY = """
import threading, time, zlib
def one(n): return zlib.crc32(bytes(2000000)) if n == 0 else one(n - 1)
def other(n): return one(n) + one(n // 2)
def work():
    end = time.monotonic() + 1.2
    while time.monotonic() < end:
        for n in range(6): other(n)
        time.sleep(0.003)
threads = [threading.Thread(target=work) for _ in range(3)]
for t in threads: t.start()
for t in threads: t.join()
"""
# One of each kind of file that is read, and what readers have refused.
SAMPLED = ("recording", "perf/tied_both.data", "perf/burn.data", "stall", "nasty", "stacks")
HTA = "cases/facebookresearch+HolisticTraceAnalysis/"
INPUTS = (*SAMPLED, "perf/sleep_switches.data", "cases/google+perf_data_converter/perf.data.systemwide.0-3.4.zst",
          "kineto/train.json.gz", "kineto/rank0.json.gz", HTA + "critical_path/simple_add_trace.json.zst",
          "cases/GindaChen+nsys-ai/healthy_1pct.sqlite.zst", "flightrec/_dump_0.pickle", "pyspy/chrometrace.json",
          "torchlog/job.log", "nccllog/nccl.log", "smi/dmon.txt", "same", "deep")


# ---- what the tables say

class Tables:
    def __init__(self, laggard, path):
        self.laggard, self.path = laggard, path
        self.thread = self.ask("SELECT id, tid, flags, prc FROM thread")
        self.span = self.ask("SELECT id, ts, dur, thr, track, kind, name FROM span")
        self.state = self.ask("SELECT ts, dur, thr FROM state")
        self.sample = self.ask("SELECT ts, thr, cpu, stack, flags, weight, event FROM sample")
        self.stack = self.ask("SELECT id, parent, frame FROM stack")
        self.last = self.end_of_all()
        self.ticks = collections.defaultdict(list)
        for row in self.sample:
            if not row["flags"] & (IDLE_SAMPLE | NO_CPU):
                self.ticks[row["thr"]].append(row)

    def ask(self, sql):
        done = self.laggard("query", self.path, sql, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def end_of_all(self):
        """The last moment of the trace, which cuts off what has no end of its own (dur -1)."""
        ends = self.ask("""SELECT max(t) AS t FROM (
            SELECT max(ts + max(dur, 0)) AS t FROM span UNION SELECT max(ts + max(dur, 0)) FROM state
            UNION SELECT max(ts) FROM sample UNION SELECT max(ts) FROM counter UNION SELECT max(ts) FROM mark)""")
        return ends[0]["t"]

    def end(self, row):
        return row["ts"] + row["dur"] if row["dur"] >= 0 else self.last

    def per_cpu(self):
        return collections.Counter(s["cpu"] for rows in self.ticks.values() for s in rows)

    def period(self):
        rows = [s for thr in sorted(self.ticks) for s in self.ticks[thr]]
        clock = sorted(s["weight"] for s in rows[1:] if "clock" in s["event"])
        if clock:
            return clock[len(clock) // 2]
        rows = sorted(self.sample, key=lambda s: (s["thr"], s["ts"]))
        gaps = sorted(b["ts"] - a["ts"] for a, b in zip(rows, rows[1:]) if a["thr"] == b["thr"] and
                      b["ts"] > a["ts"] and not (a["flags"] | b["flags"]) & (IDLE_SAMPLE | NO_CPU))
        return gaps[len(gaps) // 4] if len(gaps) >= 8 else 10**9 // 99

    def flames(self, thr, period):
        """[start, end, depth] of a thread's flame chart."""
        rows, done, open_ = self.ticks[thr], [], []
        last = None
        for row, after in zip(rows, rows[1:] + [None]):
            start = row["ts"]
            end = after["ts"] if after and after["ts"] - start <= period + period // 2 else start + period
            if start == end:
                continue
            frames, k = [], row["stack"]
            while k:
                frames.append(self.stack[k]["frame"])
                k = self.stack[k]["parent"]
            frames = frames[::-1][:DEPTH]
            same = 0
            if start == last:
                while same < min(len(frames), len(open_)) and open_[same][0] == frames[same]:
                    same += 1
            while len(open_) > same:
                _, begun = open_.pop()
                done.append((begun, last, len(open_)))
            open_ += [(f, start) for f in frames[same:]]
            last = end
        while open_:
            _, begun = open_.pop()
            done.append((begun, last, len(open_)))
        return sorted(done)

    def lanes(self):
        """{(thread row, lane) or ("track", row): [(start, end)]}; lane "" is the thread's own track."""
        out = collections.defaultdict(list)
        for s in self.span:
            if s["track"] or not s["thr"]:
                out["track", s["track"]].append((s["ts"], self.end(s)))
            else:
                out[s["thr"], SPAN_LANES.get(s["kind"], "")].append((s["ts"], self.end(s)))
        for s in self.state:
            if not self.thread[s["thr"]]["flags"] & IDLE_THREAD:
                out[s["thr"], "state"].append((s["ts"], self.end(s)))
        period = self.period()
        for thr in self.ticks:
            flames = [(a, b) for a, b, _ in self.flames(thr, period)]
            if flames:
                out[thr, "cpu samples"] = flames
        return out

    def row_of(self, tid, later):
        """The thread row that is shown as tid; later: the rows that are shown otherwise."""
        if tid >= LATER:
            return tid - LATER
        row, = (t["id"] for t in self.thread if t["tid"] == tid and t["id"] not in later)
        return row


def nested(intervals):
    """Those with a length that lie on a lane itself: in order, each within the last one that is still open."""
    stack, out = [], []
    for start, end in sorted(intervals, key=lambda i: (i[0], -i[1])):
        while stack and stack[-1] <= start:
            stack.pop()
        if not stack or (end <= stack[-1] and len(stack) < DEPTH):
            stack.append(end)
            if end > start:
                out.append((start, end))
    return out


# ---- the files

@pytest.fixture(scope="session")
def inputs(laggard_path, root, tmp_path_factory):
    """inputs(name) -> path: of a file of tests/data, of a made-up trace, or of a recording made now."""
    where = tmp_path_factory.mktemp("exports")
    tool = next((p / "tests/e2e/make_trace" for p in pathlib.Path(laggard_path).parents
                 if (p / "tests/e2e/make_trace").exists()), None)

    def call(name):
        path = where / f"{name}.lag"
        if "/" in name:
            return root / "tests/data" / name
        if path.exists():
            return path
        if name in MADE:
            path = where / f"{name}.json"
            path.write_text(json.dumps(MADE[name]()))
        elif name != "recording":
            assert tool, "tests/e2e/make_trace is not built"
            subprocess.run([tool, name, path], check=True)
        elif os.geteuid():
            pytest.skip("recording the whole machine needs root")
        else:
            subprocess.run([laggard_path, "record", "-q", "-o", path, "--", "/usr/bin/python3", "-c", BUSY],
                           check=True, timeout=60, stdin=subprocess.DEVNULL)
        return path
    return call


def same_names():
    """A Chrome trace of calls of one name, back to back, at odd nanoseconds, and of no length."""
    events = []

    def add(name, ts, dur):
        events.append({"ph": "X", "pid": 7, "tid": 7, "cat": "cpu_op", "name": name, "ts": ts / 1000, "dur": dur / 1000})
    at = 1_000_001
    for _ in range(50):
        add("p", at, 301)
        add("a", at, 100)
        add("a", at + 100, 100)
        add("p", at + 100, 100)
        add("a", at + 150, 0)
        add("a", at + 200, 101)
        at += 301
    return {"traceEvents": events}


def deep():
    """A torch.profiler trace: calls within calls, the last of which launches a graph of as many kernels."""
    n = 600  # readers know 512
    events = [{"ph": "X", "cat": "python_function", "name": f"f{i}", "pid": 7, "tid": 7, "ts": 1000 + i,
               "dur": 3 * n - 2 * i} for i in range(n)]
    events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 7, "tid": 7, "ts": 900,
                   "dur": 50, "args": {"correlation": 9}})
    events += [{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 20, "ts": 2000 + 10 * i, "dur": 9,
                "args": {"device": 0, "stream": 20, "correlation": 9}} for i in range(n)]
    return {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}], "traceEvents": events}


MADE = {"same": same_names, "deep": deep}


@pytest.fixture(params=INPUTS)
def tables(request, inputs, laggard):
    return Tables(laggard, inputs(request.param))


def converted(laggard, path, out):
    done = laggard("convert", path, "-o", out)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture
def convert(laggard, tables, tmp_path):
    def call(suffix):
        return converted(laggard, tables.path, tmp_path / f"out{suffix}")
    return call


# ---- the programs

@pytest.fixture(scope="session")
def speedscope(laggard_path, tmp_path_factory):
    """speedscope(file) -> what its importer makes of it; installed once beside the program under test."""
    if not shutil.which("node") or not shutil.which("npm"):
        pytest.skip("speedscope's importer needs node and npm: run tools/install-deps test")
    home = pathlib.Path(laggard_path).parent / f"speedscope-{SPEEDSCOPE}"
    release = home / "node_modules/speedscope/dist/release"
    if not release.exists():
        home.mkdir(exist_ok=True)
        done = subprocess.run(["npm", "install", "--prefix", home, "--no-audit", "--no-fund", "--ignore-scripts",
                               f"speedscope@{SPEEDSCOPE}"], check=False, capture_output=True, text=True, timeout=120,
                              stdin=subprocess.DEVNULL)
        if done.returncode:
            pytest.skip(f"npm cannot install speedscope {SPEEDSCOPE}: {done.stderr.strip().splitlines()[:1]}")

    def call(path):
        # Deep trees need more stack than node has by default, as browsers have.
        done = subprocess.run(["node", pathlib.Path(__file__).with_name("speedscope.js"), release, path], check=False,
                              capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
    return call


@pytest.fixture(scope="session")
def trace_processor():
    """trace_processor(file, sql) -> rows as tuples of text."""
    program = os.environ.get("LG_TRACE_PROCESSOR") or shutil.which("trace_processor_shell") or \
        shutil.which("trace_processor")
    if not program:
        pytest.skip("no trace_processor_shell of Perfetto 58 or later in PATH or LG_TRACE_PROCESSOR")

    def call(path, sql):
        done = subprocess.run([program, "-q", "/dev/stdin", path], input=sql, capture_output=True, text=True,
                              timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return [tuple(row) for row in csv.reader(io.StringIO(done.stdout))][1:]
    return call


def lane_tids(chrome):
    """{(pid, tid of the file): (tid of the thread, lane)} of threads and their lanes, ("track", row) of others."""
    out = {}
    for (pid, tid), name in chrome.names.items():
        number, _, lane = name.partition(" ")
        if tid < 1 << 28:
            out[pid, tid] = (tid, "")
        elif tid < 1 << 29 and number.isdigit():
            out[pid, tid] = (int(number), lane)
        elif pid != LOSSES:
            out[pid, tid] = ("track", tid - (1 << 29))
    return out


class Lanes:
    """lanes(pid, tid or None, name of the track) -> what lane_tids() calls it, of a .pftrace."""

    def __init__(self, chrome):
        rows = [((pid, name), tid - (1 << 29)) for (pid, tid), name in chrome.names.items()
                if tid >= 1 << 29 and pid != LOSSES]
        self.tracks = dict(rows)
        assert len(self.tracks) == len(rows), "then a name does not tell them apart"

    def __call__(self, pid, tid, name):
        if (pid, name) not in self.tracks:
            name = re.sub(r" ?\(\d+\)$", "", name)  # of those that do not nest
        return (tid, name) if tid is not None else ("track", self.tracks.get((pid, name)))


def of_lanes(tables, tids):
    """lanes() as (shown tid, lane), with those that the file shows."""
    later = {tid - LATER for tid, _ in tids.values() if tid != "track" and tid >= LATER}
    lanes = tables.lanes()
    return {(tid, lane): lanes.get((tid if tid == "track" else tables.row_of(tid, later), lane), [])
            for tid, lane in tids.values() if lane != "steps (laggard)"}


# ---- the tests

def test_speedscope_reads_the_slices_of_the_tables(tables, convert, speedscope):
    path = convert(".json")
    chrome = Chrome(path)
    tids = lane_tids(chrome)
    want = of_lanes(tables, tids)
    got = speedscope(path)
    found = 0
    for profile in got["profiles"]:
        assert profile["unit"] == "microseconds"
        pid, tid = (int(profile["name"].rpartition(f"{word} ")[2].rstrip(")").partition(")")[0].partition(",")[0])
                    for word in ("(pid", "(tid"))
        lane = tids.get((pid, tid))
        if lane not in want:
            continue  # steps as judged, losses, streams: below
        # From where the profile begins; speedscope counts in floating microseconds.
        slices = sorted((round(a * 1000), round(b * 1000)) for a, b, _, _ in profile["slices"])
        expected = nested(want[lane])
        first = expected[0][0]
        assert slices == sorted((a - first, b - first) for a, b in expected), lane
        assert round(profile["total"] * 1000) == max(b for _, b in expected) - first
        found += 1
    assert found == sum(bool(nested(intervals)) for intervals in want.values())
    assert found or not any(want.values())


def test_speedscope_reads_every_slice_as_it_is_written(tables, convert, speedscope):
    """Names, depths, streams and judged steps as well."""
    path = convert(".json")
    chrome = Chrome(path)
    want = {}
    for track, slices in chrome.tracks().items():
        first = slices[0].start
        ends, rows = [], []
        for s in slices:
            while ends and ends[-1] <= s.start:
                ends.pop()
            rows.append([s.start - first, s.end - first, len(ends), s.name])
            ends.append(s.end)
        want[track] = rows
    got = speedscope(path)
    profiles = got["profiles"]
    assert len(profiles) == len(want)
    assert not got["warnings"]
    # An E with its B's arguments would not be warned of, but taken for the end of one like it that it touches.
    assert got["taken_anyway"] == sum("args" in b or "args" in b["end"] for b in chrome.nested())
    for profile, track in zip(profiles, sorted(want)):
        got = [[round(a * 1000), round(b * 1000), depth, name] for a, b, depth, name in profile["slices"]]
        assert [row[:3] for row in got] == [row[:3] for row in want[track]], profile["name"]
        # speedscope shows arguments as part of the name, and a nameless one as "(unnamed)".
        assert all(g[3].startswith(w[3] or "(unnamed)") for g, w in zip(got, want[track]))


def test_the_files_hold_the_slices_of_the_tables(tables, convert):
    """The same from the wire up, in both formats; async slices among them."""
    chrome = Chrome(convert(".json"))
    tids = lane_tids(chrome)
    want = of_lanes(tables, tids)
    got = collections.defaultdict(collections.Counter)
    for s in chrome.slices():
        got[tids.get(s.track)][s.start, s.end] += 1
    p = Perfetto(convert(".pftrace"))
    lanes = Lanes(chrome)
    others = collections.defaultdict(collections.Counter)
    shift = max(-chrome.start, 0)  # packets know no times below 0
    for s in p.slices():
        if s.start < s.end:
            others[lanes(*p.place(s.track))][s.start - shift, s.end - shift] += 1
    for lane, intervals in want.items():
        assert got[lane] == collections.Counter(i for i in intervals if i[0] < i[1]), lane
        assert got[lane] == others[lane], lane


def test_perfetto_samples_are_on_the_cpus_of_the_tables(tables, convert):
    p = Perfetto(convert(".pftrace"))
    cpus, modes = collections.Counter(), collections.Counter()
    for _, sample in p.samples:
        context = fields(sample[3][0])
        assert not context[1], "the context's iid"
        cpus[context[2][0] if context[2] else -1] += 1
        modes[context[3][0]] += 1
    rows = [s for rows in tables.ticks.values() for s in rows]
    assert cpus == tables.per_cpu()
    assert modes == collections.Counter(2 if s["flags"] & KERNEL else 1 for s in rows)


@pytest.mark.parametrize("name", ("deep", "stacks"))
def test_perfetto_files_are_no_deeper_than_their_reader_takes(inputs, laggard, tmp_path, name):
    """512, where instants of one moment lie within each other and in what is open."""
    p = Perfetto(converted(laggard, inputs(name), tmp_path / "out.pftrace"))
    depth, deepest = collections.Counter(), 0
    instants = collections.Counter()
    for ts, e in p.events:
        track = e[11][0]
        if e[9] == [3]:
            instants[track, ts] += 1
        elif e[9]:
            depth[track] += 1 if e[9] == [1] else -1
        deepest = max(deepest, depth[track] + instants[track, ts])
    assert DEPTH <= deepest <= 512
    assert all(begin[0] <= end[0] for begin, end in p.flows().values())
    assert len(p.flows()) == (600 if name == "deep" else 0)


def test_a_recording_has_samples_on_several_cpus(inputs, laggard):
    """So that the tests above can fail."""
    if os.cpu_count() < 2:
        pytest.skip("one CPU")
    tables = Tables(laggard, inputs("recording"))
    assert len(tables.per_cpu()) > 1 and -1 not in tables.per_cpu()
    assert any(len(rows) > 20 for rows in tables.ticks.values())


def decoded(path, folder, definitions):
    """What protoc reads in a .pftrace file, as text."""
    assert shutil.which("protoc"), "protoc is missing: run tools/install-deps test"
    done = subprocess.run(["protoc", "--decode=perfetto.protos.Trace", f"-I{folder}", definitions], stdin=path.open("rb"),
                          check=False, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode("utf-8")


def test_perfettos_definitions_know_every_field(inputs, laggard, root, tmp_path):
    """protoc, by the public definitions, finds each field that laggard has a use for and nothing without a name, and the
    samples' CPUs and modes. The definitions are cut to those fields: another number is not that of some other field."""
    protos = os.environ.get("LG_PERFETTO_PROTOS")
    names = set()
    for name in INPUTS:
        tables = Tables(laggard, inputs(name))
        path = converted(laggard, tables.path, tmp_path / "out.pftrace")
        text = decoded(path, root / "tests/data/perfetto", "trace.proto")
        if protos:  # the whole, of this or another version: no field has another name or type there
            assert decoded(path, protos, "protos/perfetto/trace/perfetto_trace.proto") == text
        assert not re.search(r"^ *\d+(:| \{)", text, re.M), "a field that the definitions do not have"
        names |= set(re.findall(r"^ *([a-z]\w*)(?::| \{)", text, re.M))
        contexts = collections.Counter(
            (int(cpu or -1), mode) for cpu, mode in
            re.findall(r"execution_context \{\s+(?:cpu: (\d+)\s+)?mode: MODE_(\w+)\s+\}", text))
        assert contexts == collections.Counter(
            (s["cpu"], "KERNEL" if s["flags"] & KERNEL else "USER") for rows in tables.ticks.values() for s in rows)
    definitions = (root / "tests/data/perfetto/trace.proto").read_text(encoding="utf-8")
    assert names == set(re.findall(r"([a-z]\w*) = \d+;", definitions))


def samples_are_counted(trace_processor, tables, convert, _):
    rows = trace_processor(convert(".pftrace"), """
        SELECT c.cpu, x.cpu_mode, count(*) FROM stack_sample s
        LEFT JOIN stack_sample_execution_context x ON x.id = s.execution_context_id
        LEFT JOIN cpu c ON c.id = x.ucpu GROUP BY 1, 2""")
    want = collections.Counter()
    for ticks in tables.ticks.values():
        for s in ticks:
            if s["stack"]:  # the view has no others
                want[str(s["cpu"]) if s["cpu"] >= 0 else "[NULL]", "kernel" if s["flags"] & KERNEL else "user"] += 1
    assert collections.Counter({(cpu, mode): int(n) for cpu, mode, n in rows}) == want


IN_JSON = """
    SELECT p.pid, t.tid, '', s.ts, s.dur FROM slice s JOIN thread_track k ON k.id = s.track_id
    JOIN thread t USING (utid) LEFT JOIN process p USING (upid) WHERE s.dur != 0"""
# A track of a thread is one with its utid: lanes are that, too, and say no parent.
IN_PFTRACE = """
    SELECT p.pid, t.tid, ifnull(k.name, ''), s.ts, s.dur FROM slice s JOIN thread_track k ON k.id = s.track_id
    JOIN thread t USING (utid) LEFT JOIN process p USING (upid) WHERE s.dur != 0
    UNION ALL SELECT p.pid, -1, ifnull(k.name, ''), s.ts, s.dur FROM slice s
    JOIN process_track k ON k.id = s.track_id JOIN process p USING (upid) WHERE s.dur != 0"""


def slices_are_read(trace_processor, tables, convert, suffix):
    chrome = Chrome(convert(".json"))
    tids, lanes, shift = lane_tids(chrome), Lanes(chrome), max(-chrome.start, 0)
    got = collections.defaultdict(collections.Counter)
    for pid, tid, name, ts, dur in trace_processor(convert(suffix), IN_JSON if suffix == ".json" else IN_PFTRACE):
        assert int(dur) > 0, "a slice was left open"
        if suffix == ".json":
            lane, start = tids.get((int(pid), int(tid))), int(ts) + chrome.start
        else:
            lane, start = lanes(int(pid), int(tid) if int(tid) >= 0 else None, name), int(ts) - shift
        got[lane][start, start + int(dur)] += 1
    for lane, intervals in of_lanes(tables, tids).items():
        expected = nested(intervals) if suffix == ".json" else [i for i in intervals if i[0] < i[1]]
        assert got[lane] == collections.Counter(expected), lane
        assert sum((b - a) * n for (a, b), n in got[lane].items()) == sum(b - a for a, b in expected)


def every_event_is_read(trace_processor, _, convert, suffix):
    """Names, async slices, instants, arrows and counters as well; and it finds nothing to complain of."""
    path = convert(suffix)
    if suffix == ".json":
        chrome = Chrome(path)
        want = collections.Counter((s.start - chrome.start, s.end - s.start, s.name) for s in chrome.slices())
        want.update((chrome.ns(e["ts"]), 0, e["name"]) for e in chrome.of("i"))
        arrows, counters = len(chrome.of("s")), len(chrome.of("C"))
    else:
        p = Perfetto(path)
        want = collections.Counter((s.start, s.end - s.start, s.name) for s in p.slices())
        want.update((ts, 0, p.name(e)) for ts, e in p.of_type(3))
        arrows, counters = len(p.flows()), len(p.of_type(4))
    rows = trace_processor(path, "SELECT ts, dur, hex(ifnull(name, '')) FROM slice")
    assert collections.Counter((int(ts), int(dur), bytes.fromhex(name).decode()) for ts, dur, name in rows) == want
    assert trace_processor(path, "SELECT count(*) FROM flow") == [(str(arrows),)]
    assert trace_processor(path, """SELECT count(*) FROM counter JOIN track ON track.id = track_id
                           WHERE type != 'stack_sample_session_counter'""") == [(str(counters),)]
    assert not trace_processor(path, "SELECT name, severity, value FROM stats WHERE severity != 'info' AND value")


# Not a test for each input: where there is no trace_processor, that would be a hundred skipped ones.
@pytest.mark.parametrize("check, suffix", (
    (samples_are_counted, ".pftrace"), (slices_are_read, ".json"), (slices_are_read, ".pftrace"),
    (every_event_is_read, ".json"), (every_event_is_read, ".pftrace")))
def test_trace_processor_agrees_with_the_tables(trace_processor, inputs, laggard, tmp_path, check, suffix):
    faults = []
    for name in INPUTS:
        tables = Tables(laggard, inputs(name))
        try:
            check(trace_processor, tables, lambda end, t=tables: converted(laggard, t.path, tmp_path / f"out{end}"), suffix)
        except AssertionError as e:
            faults.append(f"{name}: {e}")
    assert not faults, "\n".join(faults)


def launched(n):
    """A torch.profiler trace: n calls, each of which launches a kernel; two kernels of one stream overlap."""
    events = []
    for i in range(n):
        at = 1000 + 100 * i
        events += [
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": 7, "ts": at, "dur": 10,
             "args": {"correlation": 50 + i}},
            {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 20 + i % 2, "ts": at + 40,
             "dur": 250 if i == 4 else 55, "args": {"device": 0, "stream": 20 + i % 2, "correlation": 50 + i}},
            {"ph": "s", "id": 50 + i, "cat": "ac2g", "name": "ac2g", "pid": 7, "tid": 7, "ts": at},
            {"ph": "f", "id": 50 + i, "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 20 + i % 2, "ts": at + 40,
             "bp": "e"}]
    return {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}], "traceEvents": events}


STATES = {**{(1, why): "Running" for why in range(13)}, **{(2, why): "R" for why in range(13)},
          **{(3, why): "S" for why in range(13)}, (3, 5): "D", (3, 6): "D", (3, 7): "T", (3, 8): "T", (3, 9): "Z"}  # kind, enum lg_state_reason


def test_perfetto_fills_its_tables_of_the_scheduler(trace_processor, inputs, laggard, tmp_path):
    """thread_state and sched hold what the state table does: of each thread, and of each CPU."""
    tables = Tables(laggard, inputs("recording"))
    path = converted(laggard, tables.path, tmp_path / "out.pftrace")
    rows = collections.defaultdict(list)
    for r in tables.ask("SELECT s.thr, s.ts, s.dur, s.kind, s.reason, s.flags, s.cpu FROM state s JOIN thread t ON t.id = s.thr"
                        f" WHERE NOT t.flags & {IDLE_THREAD} ORDER BY s.thr, s.ts"):
        rows[r["thr"]].append(r)
    shown = {t["id"]: t["tid"] for t in tables.thread}
    once = collections.Counter(shown.values())
    whole = {thr: r for thr, r in rows.items() if once[shown[thr]] == 1 and not any(x["flags"] & 1 for x in r)}  # LG_STATE_SUMMED: at times
    want, cpus = collections.Counter(), collections.Counter()
    for thr, of in whole.items():
        for x in of[:-1]:  # the last is open, in Perfetto
            want[shown[thr], STATES[x["kind"], x["reason"]]] += x["dur"]
            if x["kind"] == 1:
                cpus[shown[thr], x["cpu"]] += x["dur"]
    tids = ",".join(str(shown[thr]) for thr in whole)
    got = trace_processor(path, f"""SELECT tid, state, sum(dur) FROM thread_state JOIN thread USING (utid)
                          WHERE tid IN ({tids}) AND dur >= 0 GROUP BY 1, 2""")
    ran = trace_processor(path, f"SELECT tid, cpu, sum(dur) FROM sched JOIN thread USING (utid) WHERE tid IN ({tids}) AND dur >= 0 GROUP BY 1, 2")
    assert len(whole) > 20 and {s for _, s in want} >= {"Running", "R", "S"} and len({c for _, c in cpus}) > 1
    last = {str(shown[thr]): STATES[of[-1]["kind"], of[-1]["reason"]] for thr, of in whole.items()}
    told = {(int(t), s): int(d) for t, s, d in got if s != last[t]}
    assert told == {(t, s): d for (t, s), d in want.items() if s != last[str(t)] and d}
    assert {(int(t), int(c)): int(d) for t, c, d in ran if last[t] != "Running"} == {
        (t, c): d for (t, c), d in cpus.items() if last[str(t)] != "Running" and d}
    named = dict(trace_processor(path, "SELECT DISTINCT tid, ifnull(t.name, '') FROM sched JOIN thread t USING (utid)"))
    assert all(named.values())


def test_launches_are_arrows_onto_streams(laggard, tmp_path):
    path = tmp_path / "launches.json"
    path.write_text(json.dumps(launched(9)))
    out = tmp_path / "out.json"
    assert laggard("convert", path, "-o", out).returncode == 0
    tables = Tables(laggard, path)
    flows = tables.ask("SELECT ts, ts_to FROM flow WHERE kind = 3")
    assert len(flows) == 9
    chrome = Chrome(out)
    starts, ends = ({e["id"]: e for e in chrome.of(ph)} for ph in "sf")
    crossing = [s for s in chrome.slices() if s.name == "gemm" and s.end - s.start == 250_000]
    assert len(crossing) == 1 and len(chrome.of("b")) == 1, "the kernel after it overlaps: an async event"
    assert starts.keys() == ends.keys() and len(starts) == 8, "which no arrow can end at"
    assert chrome.doc["arrows_left_out"] == 1
    arrows = {(chrome.start + chrome.ns(s["ts"]), chrome.start + chrome.ns(ends[i]["ts"])) for i, s in starts.items()}
    assert arrows < {(f["ts"], f["ts_to"]) for f in flows}
    tracks = chrome.tracks()
    for i, end in ends.items():
        assert starts[i]["tid"] == 7 and chrome.names[end["pid"], end["tid"]].startswith("GPU 0 stream 2")
        assert any(s.name == "gemm" and s.start == chrome.ns(end["ts"]) for s in tracks[end["pid"], end["tid"]])
    pftrace = tmp_path / "out.pftrace"
    assert laggard("convert", path, "-o", pftrace).returncode == 0
    assert {(a[0], b[0]) for a, b in Perfetto(pftrace).flows().values()} == {(f["ts"], f["ts_to"]) for f in flows}


@pytest.mark.parametrize("tables", SAMPLED, indirect=True)
@pytest.mark.parametrize("suffix", (".speedscope.json", ".folded", ".pb.gz"))
def test_speedscope_adds_samples_up_as_the_tables(tables, convert, speedscope, suffix):
    total = collections.Counter()
    for rows in tables.ticks.values():
        for s in rows:
            total[s["event"]] += s["weight"]
    n = sum(tables.per_cpu().values())
    profiles = speedscope(convert(suffix))["profiles"]
    if suffix == ".folded":
        assert sum(p["total"] for p in profiles) == n
    elif suffix == ".pb.gz":
        assert [p["total"] for p in profiles] == [total[max(total)]]
    else:
        whole = [p["total"] for p in profiles if p["name"].startswith("all processes")]
        assert sorted(whole) == sorted(total.values())
        assert sum(p["total"] for p in profiles) == 2 * sum(total.values())


@pytest.mark.parametrize("name", (HTA + "critical_path/simple_add_trace.json.zst", "kineto/rank0.json.gz",
                                  "cases/pytorch+kineto/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.zst"))
def test_what_a_profiler_told_survives_a_second_import(laggard, root, tmp_path, name):
    """Slices, arrows, counters and arguments of what was written, read and written again are the same."""
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    for path, out in ((root / "tests/data" / name, first), (first, second)):
        done = laggard("convert", path, "-o", out, "--no-verdict")
        assert done.returncode == 0, done.stderr

    def held(path):
        chrome = Chrome(path)
        def place(e):
            return chrome.start + chrome.ns(e["ts"]) - zero
        losses = {pid for pid, name in chrome.process_names.items() if name.startswith("laggard: ")}
        zero = min(chrome.start + chrome.ns(e["ts"]) for e in chrome.of("B"))
        begun = [e for e in chrome.of("B", "b") if e["pid"] not in losses]
        slices = collections.Counter((place(e), e["name"]) for e in begun)
        arguments = collections.Counter((e["name"], key, str(value)) for e in begun
                                        for key, value in e.get("args", {}).items() if key != "cat")
        arrows = collections.Counter(place(e) for e in chrome.of("s", "f"))
        return slices, arguments, arrows, len(chrome.of("C"))
    one, two = held(first), held(second)
    for mine, again in zip(one, two):
        assert mine == again
    assert one[0] and one[1]


def test_a_drawing_keeps_the_arguments_and_arrows_that_no_analysis_reads(laggard, tmp_path):
    event = {"ph": "X", "pid": 7, "tid": 7, "dur": 50, "cat": "cpu_op"}
    path = tmp_path / "in.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [
        {**event, "name": "aten::add", "ts": 1000, "args": {"External id": 3, "Ev Idx": 0, "a=b\tc": "x\ty", "on": "0042"}},
        {**event, "name": "AddBackward0", "ts": 2000, "tid": 8},
        {"ph": "s", "id": 5, "cat": "fwdbwd", "name": "fwdbwd", "pid": 7, "tid": 7, "ts": 1010},
        {"ph": "f", "id": 5, "cat": "fwdbwd", "name": "fwdbwd", "pid": 7, "tid": 8, "ts": 2010, "bp": "e"}]}))
    out = tmp_path / "out.json"
    assert laggard("convert", path, "-o", out).returncode == 0
    chrome = Chrome(out)
    add, = (e for e in chrome.nested() if e["name"] == "aten::add")
    assert add["args"] == {"External id": 3, "Ev Idx": 0, "a_b c": "x y", "on": "0042"}
    long, many = "\u00e4" * 4000, {f"key {i}": i for i in range(60)}
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [
        {**event, "name": "aten::add", "ts": 1000, "args": {"Input": long, "k" * 300: 1}},
        {**event, "name": "aten::mul", "ts": 2000, "args": many}]}))
    cut = tmp_path / "cut.json"
    assert laggard("convert", path, "-o", cut).returncode == 0
    add, mul = sorted((e for e in Chrome(cut).nested() if e["name"].startswith("aten::")), key=lambda e: e["name"])
    assert add["args"]["Input"].endswith("\u00e4 ...") and len(add["args"]["Input"]) > 300 and add["args"]["k" * 64] == 1
    assert mul["args"]["key 37"] == 37 and mul["args"]["more"] == "..." and "key 59" not in mul["args"]
    (start,), (end,) = chrome.of("s"), chrome.of("f")
    assert (start["tid"], end["tid"]) == (7, 8) and chrome.ns(end["ts"]) - chrome.ns(start["ts"]) == 1000000


def test_a_redacted_drawing_keeps_only_what_analyses_read(laggard, tmp_path):
    path, out = tmp_path / "in.json", tmp_path / "out.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [
        {"ph": "X", "pid": 7, "tid": 7, "ts": 1, "dur": 50, "cat": "cpu_op", "name": "aten::add",
         "args": {"token": "secret", "Input Dims": [[2, 3]]}}]}))
    for more, is_there in (((), True), (("--redact",), False)):
        assert laggard("convert", path, "-o", out, *more).returncode == 0
        assert ("secret" in out.read_text()) == is_there and "[2, 3]" in out.read_text().replace("],[", "], [")
