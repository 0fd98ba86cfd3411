# SPDX-License-Identifier: Apache-2.0
"""perf.data files with a parse beside them that other tools made: our rows against every one of those.

quipper's (perf_data_converter, *.pb_text) holds all records, perf script's text the samples; perfparser's
(*.expected.txt, in the large sweep) samples and stacks. Their address spaces are replayed here from their records, so that frames can be compared, too.
"""
import collections
import json
import re

import case_files
import pytest
from conftest import ROOT

pytestmark = pytest.mark.cases
PERF = ROOT / "tests/data/perf"
QUIPPER = case_files.find("*/ref/perf.data.*.pb_text")
PERFPARSER = case_files.find("*/*/*.expected.txt")
MARKERS = {2**64 - 128: "kernel", 2**64 - 512: "user", 2**64 - 32: "hypervisor"}
PERF_CONTEXT_MAX = 2**64 - 4095
COMM_EXEC = MMAP_DATA = 1 << 13
KERNEL = 1  # LG_FRAME_KERNEL


def unquote(text):
    return text[1:-1].encode().decode("unicode_escape").encode("latin-1").decode("utf-8", "replace")


def textproto(path):
    """Text protocol buffers as nested dicts of lists."""
    root = collections.defaultdict(list)
    stack = [root]
    for line in case_files.content(path).decode().split("\n"):
        line = line.strip()
        if line.endswith("{"):
            inner = collections.defaultdict(list)
            stack[-1][line[:-1].strip()].append(inner)
            stack.append(inner)
        elif line == "}":
            stack.pop()
        elif line:
            key, value = line.split(": ", 1)
            stack[-1][key].append(unquote(value) if value[0] == '"' else
                                  int(value) if re.fullmatch(r"-?\d+", value) else value)
    return root


def one(node, key, default=None):
    return node[key][0] if node[key] else default


def signed(v):
    return v - 2**32 if v is not None and v >= 2**31 else v


class Spaces:
    """What is mapped where: newest first, exec and exit clear."""

    def __init__(self):
        self.maps = collections.defaultdict(list)

    def add(self, pid, start, n, name):
        self.maps[pid].append((start, start + n, name))

    def find(self, pid, addr):
        return next((name for start, end, name in reversed(self.maps[pid]) if start <= addr < end), None)


def chain_of(sample, misc):
    """[(context, address)], innermost first; without a chain the address alone."""
    context = {1: "kernel", 2: "user", 3: "hypervisor"}.get(misc & 7, "other")
    out, first = [], True
    for v in sample["callchain"]:
        if v >= PERF_CONTEXT_MAX:
            context, first = MARKERS.get(v, "other"), True
            continue
        out.append((context, v if first else v - 1))
        first = False
    return out or [(context, one(sample, "ip", 0))]


def replay(parse):
    """Samples with the files of their frames, comms, forks and exits, in time order like perf's own."""
    spaces, out = Spaces(), {"samples": [], "fork": {}, "exit": {}, "comm": {}}
    attr_of = {i: n for n, a in enumerate(parse["file_attrs"]) for i in a["ids"]}
    events = sorted(parse["events"], key=lambda e: one(e, "timestamp", 0))
    for e in events:
        misc, ts = one(one(e, "header"), "misc", 0), one(e, "timestamp", 0)
        for m in e["mmap_event"]:
            # A kernel's pid is -1; anonymous memory that is no code has no frames.
            if not misc & MMAP_DATA:
                spaces.add(signed(one(m, "pid")), one(m, "start", 0), one(m, "len", 0), one(m, "filename", ""))
        for m in e["comm_event"]:
            tid = signed(one(m, "tid"))
            out["comm"][tid] = one(m, "comm", "")
            if misc & COMM_EXEC:
                spaces.maps[signed(one(m, "pid"))].clear()
        for m in e["fork_event"]:
            pid, ppid, tid = (signed(one(m, k)) for k in ("pid", "ppid", "tid"))
            if pid != ppid:
                spaces.maps[pid] = list(spaces.maps[ppid])
            if ts:
                out["fork"][tid] = one(m, "fork_time_ns")  # the record's own; its trailer is later
            out["comm"].setdefault(tid, None)
        for m in e["exit_event"]:
            out["exit"].setdefault(signed(one(m, "tid")), set()).add(one(m, "fork_time_ns"))
        for m in e["sample_event"]:
            pid = signed(one(m, "pid"))
            frames = []
            for context, addr in chain_of(m, misc):
                name = spaces.find(pid, addr) if context == "user" else f"[{context}]"
                if name == "//anon":  # code made at run time: where perf looks for its names
                    name = f"/tmp/perf-{pid}.map"
                if name is None and frames and frames[-1] is None:
                    continue  # a run of addresses that lie nowhere is one frame
                frames.append(name)
            out["samples"].append({
                "ts": one(m, "sample_time_ns"), "pid": pid, "tid": signed(one(m, "tid")),
                "cpu": one(m, "cpu", -1), "weight": one(m, "period"),
                "attr": attr_of.get(one(m, "id"), 0), "frames": frames})
    return out


def ask(laggard, path, sql):
    done = laggard("query", path, sql, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def stacks(laggard, path):
    frame = {r["id"]: r for r in ask(laggard, path, "SELECT id, dso, kind, name, pc FROM frame")}
    row = {r["id"]: r for r in ask(laggard, path, "SELECT id, parent, frame FROM stack")}

    def walk(stk):
        out = []
        while stk:
            out.append(frame[row[stk]["frame"]])
            stk = row[stk]["parent"]
        return out
    return walk


SAMPLES = ("SELECT s.id, s.ts, s.weight, s.cpu, s.stack, s.event, t.tid AS tid, t.comm AS comm, p.pid AS pid "
           "FROM sample s JOIN thread t ON t.id = s.thr JOIN process p ON p.id = t.prc ORDER BY s.id")


def kind_of(frame):
    """The name that replay() gives to what a frame lies in."""
    if frame["kind"] == KERNEL:
        return "[kernel]"
    return None if frame["dso"] == "[unknown]" or frame["name"] == "[unknown]" else frame["dso"]


def parsed(ref):
    """The file that was parsed, packed or not."""
    name = case_files.plain(ref).removesuffix(".pb_text")
    return next(p for end in case_files.PACKED if (p := ref.parent.parent / (name + end)).exists())


@pytest.mark.parametrize("ref", QUIPPER, ids=case_files.label)
def test_rows_are_those_of_quipper(laggard, ref):
    path = parsed(ref)
    want = replay(textproto(ref))
    have = ask(laggard, path, SAMPLES)
    assert len(have) == len(want["samples"])

    key = ("ts", "pid", "tid", "weight", "cpu")
    timed = any(s["ts"] for s in want["samples"])
    for s in want["samples"]:
        if s["weight"] is None:  # not recorded per sample
            key = ("ts", "pid", "tid", "cpu")
    if not timed:
        key = key[1:]
    assert collections.Counter(tuple(s[k] for k in key) for s in have) == \
        collections.Counter(tuple(s[k] for k in key) for s in want["samples"])

    # Samples of one moment and thread may stand in either order: compare where there is only one.
    by_key = collections.defaultdict(list)
    for s in have:
        by_key[tuple(s[k] for k in key)].append(s)
    walk, names, checked, wrong = stacks(laggard, path), collections.defaultdict(set), 0, []
    for s in want["samples"]:
        same = by_key[tuple(s[k] for k in key)]
        if len(same) != 1:
            continue
        names[s["attr"]].add(same[0]["event"])
        found = [kind_of(f) for f in walk(same[0]["stack"])]
        if found != s["frames"]:
            wrong.append((s, found))
        checked += 1
    assert all(len(n) == 1 for n in names.values()), names
    assert checked > len(have) / 2
    assert not wrong, f"{len(wrong)} of {checked} stacks, such as {wrong[0]}"


@pytest.mark.parametrize("ref", QUIPPER, ids=case_files.label)
def test_threads_are_those_of_quipper(laggard, ref):
    path = parsed(ref)
    parse = textproto(ref)
    want = replay(parse)
    threads = ask(laggard, path, "SELECT id, tid, comm, start, \"end\" FROM thread WHERE id > 0")
    last = {t["tid"]: t for t in threads}  # ids grow: the last life
    for tid, comm in want["comm"].items():
        if comm is not None:
            assert last[tid]["comm"] == comm, (tid, comm, last[tid])
    started = {(t["tid"], t["start"]) for t in threads}
    for tid, ts in want["fork"].items():
        assert (tid, ts) in started, (tid, ts, last.get(tid))
    for tid, times in want["exit"].items():
        if tid not in want["comm"]:
            continue  # all that is known of it is that it ended
        ends = [t["end"] for t in threads if t["tid"] == tid]
        assert times & set(ends), (tid, times, ends)

    texts = one(parse, "string_metadata")
    facts = {r["key"]: r["value"] for r in ask(laggard, path, "SELECT key, value FROM meta WHERE prc = 0")}
    for theirs, ours in (("hostname", "host.name"), ("kernel_version", "kernel.release"),
                         ("architecture", "host.arch"), ("cpu_description", "host.cpu"),
                         ("perf_version", "record.perf_version")):
        if texts and texts[theirs]:
            assert facts[ours] == one(one(texts, theirs), "value")


def perfparser_samples(path):
    """[(comm, pid, tid, ns, event, period, kernel frames, files of user functions)]"""
    out = []
    for line in path.read_text(encoding="utf-8").splitlines():
        head = re.fullmatch(r"(\S.*)\t(\d+)\t(\d+)\t(\d+)\.(\d{9})", line)
        event = re.fullmatch(r"\t([\w:-]+): (\d+)", line)
        frame = re.fullmatch(r"\t([0-9a-f]+) [0-9a-f]+\t.*", line)
        inside = re.fullmatch(r"\t[0-9a-f]+ [0-9a-f]+\t\S+\t?.* (\S+) (\S+) ?", line)
        if head:
            out.append([head[1], int(head[2]), int(head[3]), int(head[4] + head[5]), None, 0, 0])
        elif event:
            out[-1][4:6] = event[1], int(event[2])
        elif frame and int(frame[1], 16) >= 1 << 63:
            out[-1][6] += 1
        assert head or event or frame or inside or not line.strip(), line
    return [tuple(s) for s in out]


def samples_are_those_of_perfparser(laggard, ref):
    path = ref.with_name(ref.name[:-len(".expected.txt")])
    walk = stacks(laggard, path)
    have = [(s["comm"], s["pid"], s["tid"], s["ts"], s["event"], s["weight"],
             sum(f["kind"] == KERNEL for f in walk(s["stack"]))) for s in ask(laggard, path, SAMPLES)]
    want = perfparser_samples(ref)
    assert len(want) > 30
    assert collections.Counter(have) == collections.Counter(want)


if PERFPARSER:  # GPL: in the sweep only
    test_samples_are_those_of_perfparser = pytest.mark.parametrize("ref", PERFPARSER, ids=case_files.label)(
        samples_are_those_of_perfparser)


# perf.data and what perf script printed of the same recording
TEXTS = [(PERF / f"{name}.data", PERF / f"script/{name}.txt") for name in
         ("burn", "two_events", "names", "tied_switches", "sleep_switches")]
TEXTS += zip(case_files.find("*/nbody.*.perf.data"), case_files.find("*/parallel.perf.txt"))


@pytest.mark.parametrize("binary, text", TEXTS, ids=[b.name for b, _ in TEXTS])
def test_samples_are_those_of_perf_script(laggard, binary, text):
    def read(path):
        walk, out = stacks(laggard, path), []
        for s in ask(laggard, path, SAMPLES):
            files = []
            for f in walk(s["stack"]):
                # A run of addresses that lie nowhere is one frame; the text says what perf looked up.
                name = "[kernel]" if f["kind"] == KERNEL else f["dso"] or "[unknown]"
                if name != "[unknown]" or not files or files[-1] != name:
                    files.append(name)
            out.append((s["ts"] // 1000, s["tid"], s["weight"], s["event"], tuple(files)))
        return out
    a, b = read(binary), read(text)
    assert len(a) >= 20
    wrong = [(x, y) for x, y in zip(sorted(a), sorted(b)) if x != y]
    assert len(a) == len(b) and not wrong, (len(wrong), wrong[0])


def counted():
    """(file, samples) of the tables: what perf itself counted, where it could open the file."""
    return [(root / f, int(n)) for root, text in case_files.tables()
            for f, n in re.findall(r"^\| ([^ |]+) \|.*\[(\d+) samples by perf", text, re.M) if int(n)]


def test_samples_are_as_many_as_perf_counts(laggard):
    files = counted()
    wrong = [(f, n, have) for f, n in files
             if (have := ask(laggard, f, "SELECT count(*) AS n FROM sample")[0]["n"]) != n]
    assert len(files) > 15 and not wrong, wrong
