# SPDX-License-Identifier: Apache-2.0
"""convert: what is drawn is strict, nested, exact to the nanosecond, and the same everywhere."""
import collections
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess

import pytest

from trace_files import Chrome, Perfetto, check_nesting, fields

KINDS = ("stall", "nasty", "random", "threads", "stacks", "empty")


@pytest.fixture(scope="session")
def make_trace(laggard_path, tmp_path_factory):
    """make_trace(kind) -> path of a made-up .lag file; the program is built beside laggard."""
    tool = next((p / "tests/e2e/make_trace" for p in pathlib.Path(laggard_path).parents
                 if (p / "tests/e2e/make_trace").exists()), None)
    assert tool, "tests/e2e/make_trace is not built"
    where = tmp_path_factory.mktemp("traces")

    def make(kind):
        path = where / f"{kind}.lag"
        if not path.exists():
            subprocess.run([tool, kind, path], check=True)
        return path
    return make


@pytest.fixture
def convert(laggard, make_trace, tmp_path):
    def call(kind, suffix, *more):
        out = tmp_path / f"{kind}{suffix}"
        done = laggard("convert", make_trace(kind), "-o", out, *more)
        assert done.returncode == 0, done.stderr
        assert not done.stdout
        return out
    return call


@pytest.mark.parametrize("kind", KINDS)
def test_chrome_json_is_strict_and_nested(convert, kind):
    c = Chrome(convert(kind, ".json"))
    for track, slices in c.tracks().items():
        check_nesting(slices)
        assert track in c.names
    for e in c.events:
        assert e["pid"] in c.process_names
    times = re.findall(rb'"(?:ts|dur)":([^,}]*)', c.text)
    assert all(re.fullmatch(rb"\d+\.\d{3}", t) for t in times)
    assert kind == "empty" or times


@pytest.mark.parametrize("suffix, name", [
    (".json", "json"), (".json.gz", "json.gz"), (".pftrace", "perfetto"), (".folded", "folded"),
    (".speedscope.json", "speedscope"), (".pb.gz", "pprof"), (".lag", ".lag")])
def test_standard_output_gets_what_a_file_gets(convert, laggard, laggard_path, make_trace, tmp_path, suffix,
                                                  name):
    want = convert("stacks", suffix).read_bytes()
    trace = make_trace("stacks")
    done = laggard("convert", trace, "-o", "-", "--format", name, text=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == want
    other = tmp_path / "named.otherwise"
    assert laggard("convert", trace, "-o", other, "--format", name).returncode == 0
    assert other.read_bytes() == want
    piped = subprocess.run([laggard_path, "convert", "-", "-o", "-", "--format", name],
                           input=trace.read_bytes(), capture_output=True)
    assert (piped.returncode, piped.stdout) == (0, want)


def test_standard_output_needs_a_format(laggard, make_trace):
    for more, word in (((), "--format"), (("--format", "svg"), "svg")):
        done = laggard("convert", make_trace("stall"), "-o", "-", *more)
        assert done.returncode == 2 and word in done.stderr and not done.stdout


def test_no_terminal_gets_bytes(laggard_path, make_trace):
    us, them = os.openpty()
    done = subprocess.run([laggard_path, "convert", make_trace("empty"), "-o", "-", "--format", "pftrace"],
                          stdout=them, stderr=subprocess.PIPE, text=True)
    os.close(them)
    os.close(us)
    assert done.returncode == 2 and "terminal" in done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_perfetto_holds_the_same_events(convert, kind):
    c = Chrome(convert(kind, ".json"))
    p = Perfetto(convert(kind, ".pftrace"))

    def as_utf8(s):  # what is not UTF-8 shows as U+FFFD in one and '?' in the other
        return s.replace("\ufffd", "?")
    count = collections.Counter((s.start, s.end, as_utf8(s.name), s.cat) for s in c.slices())
    for e in c.of("i"):  # slices of length 0 among them
        ts = c.start + c.ns(e["ts"])
        count[ts, ts, as_utf8(e["name"]), e["cat"]] += 1
    others = collections.Counter((s.start, s.end, s.name, s.cat) for s in p.slices())
    others.update((ts, ts, p.name(e), p.cat(e)) for ts, e in p.of_type(3) if not e[47] and not e[48])
    assert count == others
    assert len(c.of("C")) == len(p.of_type(4))
    assert len(c.of("s")) == len(c.of("f"))
    assert len(c.of("s")) + c.doc["arrows_left_out"] == len(p.flows())
    assert kind == "empty" or count


@pytest.mark.parametrize("kind", ("nasty", "random"))
def test_arrows_between_open_slices_draw_no_instants(convert, kind):
    """They would be a second row of slices without length below each lane."""
    c = Chrome(convert(kind, ".json"))
    p = Perfetto(convert(kind, ".pftrace"))
    tied = {fields(raw)[6][0] for _, e in p.events for raw in e[6]}
    assert tied == {e["id"] for e in c.of("s")} != set()
    hung = {struct.unpack("<Q", raw)[0] for _, e in p.of_type(3) for raw in e[47]}
    assert len(hung) == c.doc["arrows_left_out"] and not hung & tied


def is_open(slices, ts):
    return any(s.start <= ts < s.end for s in slices)


@pytest.mark.parametrize("kind", KINDS)
def test_flows_join_slices_of_both_ends(convert, kind):
    """Perfetto's reader counts an error for an arrow that does not."""
    c = Chrome(convert(kind, ".json"))
    by_track = c.tracks()
    starts = {e["id"]: e for e in c.of("s")}
    assert len(starts) == len(c.of("s"))
    for f in c.of("f"):
        s = starts.pop(f["id"])
        assert (s["name"], s["cat"]) == (f["name"], f["cat"]) and f["bp"] == "e"
        assert c.ns(s["ts"]) <= c.ns(f["ts"])
        for end in (s, f):
            assert is_open(by_track[end["pid"], end["tid"]], c.ns(end["ts"])), end
    assert not starts


@pytest.mark.parametrize("kind", KINDS)
def test_flows_are_left_out_where_no_slice_is_open(convert, kind):
    """And nowhere else; the other format has them all, between threads."""
    c = Chrome(convert(kind, ".json"))
    p = Perfetto(convert(kind, ".pftrace"))
    by_track = collections.defaultdict(list)
    for s in p.slices():
        by_track[s.track].append(s)
    drawn = {e["id"] for e in c.of("s")}
    left_out = [ends for flow, ends in p.flows().items() if flow not in drawn]
    assert len(left_out) == c.doc["arrows_left_out"]
    assert not any(all(is_open(by_track[track], ts) for ts, track in ends) for ends in left_out)
    # stall: whoever woke them has left its lock, and there is nothing else to be seen of it.
    assert len(left_out) == {"stall": 12, "nasty": 0}.get(kind, len(left_out))


@pytest.mark.parametrize("kind", KINDS)
def test_perfetto_is_well_formed(convert, kind):
    path = convert(kind, ".pftrace")
    p = Perfetto(path)
    pids = [d for d in p.tracks.values() if d[3]]
    assert len({int.from_bytes(d[3][0], "little") for d in pids}) == len(pids)
    assert p.snapshots and {3, 6} <= set(p.snapshots[0])
    for _, e in p.events:
        p.args(e)
    for _, s in p.samples:
        assert s[2][0] in p.interned[48]
        if s[6]:
            for frame in p.interned[7][s[6][0]][2]:
                entry = p.interned[6][frame]
                assert p.text(5, entry[2][0])
                if entry[3]:
                    assert p.interned[19][entry[3][0]] and entry[4]
    if shutil.which("protoc"):
        done = subprocess.run(["protoc", "--decode_raw"], stdin=path.open("rb"), check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count(b"\n1 {") + done.stdout.startswith(b"1 {") == \
            len(p.events) + len(p.samples) + len(p.tracks) + len(p.snapshots) + p.n_for_others


def test_nasty_rows_are_drawn_as_they_are(convert):
    c = Chrome(convert("nasty", ".json"))
    p = Perfetto(convert("nasty", ".pftrace"))
    ms = 1000000
    t0 = 1234567890123456789
    assert c.start == t0
    by_name = collections.defaultdict(list)
    for s in c.slices():
        by_name[s.name].append((s.start - t0, s.end - t0))
    assert by_name["outer"] == [(1, 10 * ms + 1)]
    assert by_name["inner"] == [(2 * ms, 5 * ms + 1)]
    nothing, = (e for e in c.of("i") if e["name"] == "nothing at the start")
    assert c.ns(nothing["ts"]) == 1
    end = max(s.end for s in c.slices()) - t0
    assert by_name["cut off"] == [(20 * ms, by_name["blocked: sleep"][0][1])]
    assert by_name["cut off"][0][1] <= end
    # What crosses is async, the rest is not.
    crossing = {e["name"] for e in c.of("b")}
    assert {"crosses outer", "crosses both", "all_reduce"} <= crossing
    assert not {"outer", "inner", "same interval"} & crossing
    # The lock: who held it, doing what, whose memory.
    wait, = (e for e in c.nested() if e["cat"] == "lock_wait")
    assert wait["args"]["holder"] == "agent pid 4711 tid 4711"
    assert wait["args"]["holder_function"] == "smap_gather_stats"
    assert wait["args"]["mm_of"].startswith("pid 900 ")
    hold, = (e for e in c.nested() if e["cat"] == "lock_hold")
    assert hold["name"].startswith("holds mmap_lock of pid 900 ")
    assert hold["name"].endswith("(smap_gather_stats)")
    assert "smap_gather_stats < vfs_read < read" in hold["args"]["stack"]
    # NaN and infinity are not drawn; the last fact of a key counts; the wakes from interrupts
    # are nobody's.
    assert len(c.of("C")) == 2
    assert c.doc["otherData"]["meta.torch.version"] == "2.6.0"
    assert [e["name"] for e in c.of("s")].count("lock") == 1
    blocked_by_agent = [e for e in c.nested() if e["name"].startswith("blocked: ")
                        and e.get("args", {}).get("waker_context") == "task"]
    assert [e["name"] for e in c.of("s")].count("wake") == len(blocked_by_agent) == 4
    # A reused pid is another process with its own number and its own name.
    reused = [pid for pid, name in c.process_names.items() if "pid 4711, another life" in name]
    assert len(reused) == 1 and reused[0] > 1 << 22
    assert 4711 in c.process_names
    # Losses are drawn.
    losses = {e["name"]: e for e in c.nested() + c.of("i") if e["cat"] == "loss"}
    lost = losses["events were lost because a buffer was full"]
    assert lost["args"]["count"] == 77 and c.ns(lost["dur"]) == 2 * ms
    assert "what the recording itself cost" in losses
    # Clock readings: 1 us between MONOTONIC and BOOTTIME.
    assert p.snapshots[0][6] - p.snapshots[0][3] == 1000
    assert p.snapshots[0][1] == 1790000000000000000


def test_samples_become_a_flame_chart(convert):
    c = Chrome(convert("nasty", ".json"))
    p = Perfetto(convert("nasty", ".pftrace"))
    t0, ms = 1234567890123456789, 1000000
    flames = collections.defaultdict(list)
    for s in c.slices():
        if s.cat.startswith("sample"):
            flames[s.name].append(((s.start - t0) / ms, (s.end - t0) / ms))
    # Samples at 0..50 ms and 260..290 ms, 10 ms apart: main is open throughout both runs (the
    # sample at 290 ms has no stack), foo wherever baz is not.
    assert flames["main"] == [(0, 20), (20, 30), (30, 50), (50, 60), (260, 270), (270, 280),
                              (280, 290)] or flames["main"][0][0] == 0
    covered = sum(b - a for a, b in flames["main"])
    assert covered == 60 + 30
    assert len(p.samples) == 11
    assert len({s[6][0] for _, s in p.samples if s[6]}) == 3


def test_window_cuts_to_the_part_asked_for(convert):
    c = Chrome(convert("nasty", ".json", "--from", "3ms", "--to", "6ms"))
    ms = 1000000
    slices = [s for s in c.slices() if s.cat != "loss"]
    assert slices
    for s in slices:
        assert 3 * ms <= s.start - c.start <= s.end - c.start <= 6 * ms
    assert {"outer", "crosses outer", "inner"} <= {s.name for s in slices}
    assert "cut off" not in {s.name for s in slices}
    for e in c.of("i", "C", "s", "f"):
        assert 3 * ms <= c.ns(e["ts"]) < 6 * ms


WINDOWS = (("100ms", "700ms"), ("0", "50ms"), ("300ms", None), (None, "800ms"), ("500ms", "500.1ms"), (3, 40))


@pytest.mark.parametrize("start, end", WINDOWS)
def test_both_formats_cut_the_flame_chart_alike(convert, start, end):
    if isinstance(start, int):  # the moments of samples
        whole = Chrome(convert("stacks", ".json"))
        times = sorted({s.start - whole.start for s in whole.slices()})
        start, end = (f"{times[i] / 1e6:.6f}ms" for i in (start, end))
    window = [x for option, at in (("--from", start), ("--to", end)) if at for x in (option, at)]
    c = Chrome(convert("stacks", ".json", *window))
    p = Perfetto(convert("stacks", ".pftrace", *window))

    def flames(trace):
        return collections.Counter((s.start, s.end, s.name) for s in trace.slices() if s.cat.startswith("sample"))
    assert flames(c) == flames(p)
    assert len(flames(p)) > 1


def test_gzip_holds_the_same_bytes(convert):
    assert Chrome(convert("stall", ".json.gz")).text == Chrome(convert("stall", ".json")).text


def test_lag_again_draws_the_same(convert, laggard, tmp_path):
    out = tmp_path / "again.json"
    whole = Chrome(convert("nasty", ".json")).slices()
    assert laggard("convert", convert("nasty", ".lag"), "-o", out).returncode == 0
    assert Chrome(out).slices() == whole
    # A part keeps the rows that touch it, at their full length.
    part = convert("nasty", ".lag", "--from", "3ms", "--to", "6ms")
    assert laggard("convert", part, "-o", out, "--no-verdict").returncode == 0
    ops = {s[1:4] for s in Chrome(out).slices() if s.cat == "op"}
    touching = {s[1:4] for s in whole if s.cat == "op" and s.name in
                ("outer", "same interval", "inner", "crosses outer", "crosses both")}
    assert ops == touching


def test_folded_counts_every_sample(convert):
    lines = convert("nasty", ".folded").read_bytes().decode("utf-8", "replace").splitlines()
    counts = {stack.split(";", 1)[1] if ";" in stack else "": int(n)
              for stack, n in (line.rsplit(" ", 1) for line in lines)}
    assert sum(counts.values()) == 11
    assert counts["main;baz"] == 3
    assert "\x1b" not in "".join(lines)


def test_ten_thousand_threads_keep_their_names(convert):
    c = Chrome(convert("threads", ".json"))
    assert len(c.process_names) == 100
    assert sum(name.endswith(" state") for name in c.names.values()) == 10000


def test_slow_steps_are_drawn_with_their_account(convert):
    c = Chrome(convert("stall", ".json"))
    lanes = {t for t, name in c.names.items() if name.endswith("steps (laggard)")}
    assert len(lanes) == 2
    slow = [e for e in c.nested() if e["cat"] == "step" and e["name"].endswith("(slow)")]
    assert slow
    parts = collections.defaultdict(int)
    for e in c.nested():
        if e["cat"] == "account":
            parts[e["tid"]] += c.ns(e["dur"])
    for tid in {e["tid"] for e in slow}:  # the pieces of the slow steps fill them exactly
        assert parts[tid] == sum(c.ns(e["dur"]) for e in slow if e["tid"] == tid)


@pytest.mark.parametrize("name", ("out", "out.txt", "out.html", "out.pb", ""))
def test_unknown_suffix_names_the_known_ones(laggard, make_trace, tmp_path, name):
    done = laggard("convert", make_trace("empty"), "-o", f"{tmp_path}/{name}")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and ".pftrace" in done.stderr
    assert not list(tmp_path.iterdir())


def test_failures_are_one_line_and_leave_no_file(laggard, make_trace, tmp_path):
    out = tmp_path / "x.json"
    done = laggard("convert", tmp_path / "absent.lag", "-o", out)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    done = laggard("convert", make_trace("nasty"), "-o", tmp_path / "no/such/dir.json")
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    for args in ((), ("--from", "abc"), ("--from", "2s", "--to", "1s"), ("--bogus",), ("-o",)):
        done = laggard("convert", make_trace("nasty"), *([] if "-o" in args else ["-o", out]), *args) \
            if args else laggard("convert", make_trace("nasty"))
        assert done.returncode == 2, args
        assert done.stderr.count("\n") == 1 and "--help" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", (".json", ".pftrace", ".folded", ".lag"))
def test_a_window_behind_the_data_is_said(convert, laggard, make_trace, tmp_path, suffix):
    length = json.loads(laggard("explain", make_trace("stall"), "--json").stdout)["inputs"][0]["duration_s"]
    out = tmp_path / f"behind{suffix}"
    done = laggard("convert", make_trace("stall"), "-o", out, "--from", "2h")
    assert done.returncode == 1 and not out.exists()
    assert done.stderr.count("\n") == 1 and f"the data are {length:.6g}" in done.stderr
    assert laggard("convert", make_trace("stall"), "-o", out, "--from", f"{length / 2:.6f}s", "--to",
                   "2h").returncode == 0


@pytest.mark.parametrize("suffix", (".folded", ".speedscope.json", ".pb.gz"))
def test_a_profile_of_nothing_is_said(laggard, root, make_trace, tmp_path, suffix):
    out = tmp_path / f"out{suffix}"
    done = laggard("convert", root / "tests/data/torchlog/steps.log", "-o", out)
    assert done.returncode == 0 and done.stderr.count("\n") == 1 and "there are no CPU samples" in done.stderr and str(out) in done.stderr
    done = laggard("convert", make_trace("stacks"), "-o", out)
    assert (done.returncode, done.stderr) == (0, "")


def test_many_short_slices_are_not_drawn_as_one_long_run(convert):
    for trace in (Chrome(convert("summed", ".json")), Perfetto(convert("summed", ".pftrace"))):
        names = {s.name: s.end - s.start for s in trace.slices()}
        assert names == {"running at times": 10_000_000_000, "running": 1_000_000_000}


def test_never_replaces_what_it_reads(laggard, convert, make_trace, tmp_path):
    trace = convert("stall", ".json")
    (tmp_path / "link.json").symlink_to(trace)
    before = trace.read_bytes()
    for out in (trace, tmp_path / "link.json"):
        done = laggard("convert", trace, "-o", out)
        assert done.returncode == 2 and "would replace" in done.stderr, done.stderr
        assert trace.read_bytes() == before
    folder = tmp_path / "fold"
    folder.mkdir()
    (folder / "in.lag").write_bytes(make_trace("stall").read_bytes())
    before = (folder / "in.lag").read_bytes()
    for named in (folder, f"{folder}/"):
        done = laggard("convert", named, "-o", folder / "in.lag", "--from", "0.5")
        assert done.returncode == 2 and "would replace" in done.stderr and done.stderr.count("\n") == 1
        assert (folder / "in.lag").read_bytes() == before
    # Beside what is read there is room.
    assert laggard("convert", folder, "-o", folder / "out.pftrace").returncode == 0


@pytest.mark.parametrize("suffix", (".json", ".pftrace"))
def test_findings_have_a_lane_of_their_own(convert, laggard, make_trace, suffix):
    """Each of its slices is a moment of the loss or of the evidence that --json tells; a healthy trace has none."""
    told = json.loads(laggard("explain", make_trace("stall"), "--json").stdout)["findings"]
    path = convert("stall", suffix)
    drawn = [s for s in (Chrome(path) if suffix == ".json" else Perfetto(path)).slices() if s.cat == "finding"]
    assert {s.name for s in drawn} == {f["title"] for f in told} and len(told) == 1
    start = Chrome(convert("stall", ".json")).start
    at = {round((s.start - start) / 1e6) for s in drawn}
    moments = {round(e["t_s"] * 1e3) for e in told[0]["evidence"] if e["t_s"] is not None and e["dur_ms"]}
    assert moments and moments <= at
    for kind in ("nasty", "empty"):
        assert not [s for s in Chrome(convert(kind, ".json")).slices() if s.cat == "finding"]
