# SPDX-License-Identifier: Apache-2.0
"""explain, steps, rules and the front of the program: schema 1, exit statuses, one-line errors."""
import csv
import io
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import time

import pytest
from device_trace import device_trace

STAGES = {"batch_wait", "h2d", "forward", "backward", "grad_sync", "optimizer", "side", "other"}
SHAPES = {None, "steady", "bursty", "periodic", "drift", "shift"}
SCOPES = {None, "global", "rank_local", "rotating", "single"}
BOUNDS = {None, "gpu", "data", "comms", "host", "mixed", "unknown"}
RELATIONS = {None, "other_process", "same_process", "kernel", "rank", "self", "hardware"}


@pytest.fixture(scope="session")
def trace(laggard_path, tmp_path_factory):
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


def check_schema(v):
    def number(x):
        return x is None or isinstance(x, (int, float))
    assert v["schema"] == 1 and v["laggard"]
    for i in v["inputs"]:
        assert set(i) >= {"path", "format", "host", "duration_s", "lost_events", "rows"}
        assert set(i["rows"]) == {"sample", "state", "span", "counter"}
    s = v["steps"]
    assert set(s) >= {"count", "median_ms", "p99_ms", "slow", "slow_threshold_ms", "shape",
                      "period_s", "scope", "ranks"}
    assert s["shape"] in SHAPES and s["scope"] in SCOPES
    assert all(number(s[k]) for k in ("median_ms", "p99_ms", "slow_threshold_ms", "period_s"))
    for stage in v["stages"]:
        assert stage["stage"] in STAGES
        assert set(stage) == {"stage", "median_ms", "share", "slow_excess_ms"}
    assert set(v["bound"]) == {"verdict", "confidence", "why"}
    assert v["bound"]["verdict"] in BOUNDS
    assert number(v["unexplained_share"])
    assert all(isinstance(text, str) for text in v["limits"])
    for f in v["findings"]:
        assert {"id", "severity", "confidence", "title", "stage", "lost_ms", "lost_share",
                "excess_share", "culprit", "victims", "evidence", "fix", "tradeoff", "rule"} <= set(f)
        assert f["rule"] == f["id"] and f["title"] and f["fix"] and f["tradeoff"]
        assert f["severity"] in ("high", "medium", "low", "info")
        assert f["stage"] is None or f["stage"] in STAGES
        assert set(f["culprit"]) == {"relation", "pid", "tid", "comm", "cmdline", "function",
                                     "stack", "lock", "rank", "container"}
        assert f["culprit"]["relation"] in RELATIONS
        for e in f["evidence"] + f["against"]:
            assert set(e) == {"text", "t_s", "dur_ms"} and e["text"]
        for x in f["victims"]:
            assert set(x) == {"rank", "pid", "tid"}


@pytest.mark.parametrize("kind", ("stall", "healthy", "nasty", "random", "empty"))
def test_json_keeps_schema_1(laggard, trace, kind):
    done = laggard("explain", trace(kind), "--json")
    assert done.returncode == 0, done.stderr
    check_schema(json.loads(done.stdout, parse_constant=pytest.fail))


def test_the_same_input_gives_the_same_bytes(laggard, trace):
    runs = {laggard("explain", trace("stall"), "--json").stdout for _ in range(2)}
    assert len(runs) == 1


def test_a_stall_is_named_with_proof_fix_and_cost(laggard, trace):
    done = laggard("explain", trace("stall"), "--json", "--cost-per-hour", "100")
    f = json.loads(done.stdout)["findings"][0]
    assert (f["id"], f["severity"]) == ("host.lock_held", "high")
    assert f["culprit"]["pid"] == 4711 and f["culprit"]["lock"] == "mmap_lock"
    assert f["cost_per_hour"] == pytest.approx(100 * f["lost_share"], abs=0.01)
    moments = [e for e in f["evidence"] if e["t_s"] is not None]
    assert moments and all(0 <= e["t_s"] < 60 for e in moments)
    text = laggard("explain", "-v", trace("stall")).stdout
    first = text.split("\n\n")[0].replace("\n", " ")
    assert "4711" in first and "mmap_lock" in first
    for word in ("victims", "evidence", "fix", "trade-off", "to confirm", "confidence"):
        assert word in text
    assert max(map(len, text.splitlines())) <= 96
    assert "\033" not in text
    markdown = laggard("explain", trace("stall"), "--markdown").stdout
    assert markdown.startswith("## ") and "| forward |" in markdown


def test_a_healthy_run_is_said_to_be_healthy(laggard, trace):
    done = laggard("explain", "-v", trace("healthy"), "--fail-on", "medium")
    assert done.returncode == 0
    assert done.stdout.startswith("Nothing is wrong")
    done = laggard("explain", "-v", trace("empty"), "--fail-on", "info")
    assert done.returncode == 0
    assert done.stdout.startswith("No repeating training steps")


def test_a_recording_of_nothing_is_said_to_be_one(laggard, tmp_path):
    """A perf.data file of one event and one COMM record, as perf record -- true may leave it."""
    attr = struct.pack("<IIQQQQQ", 1, 112, 0, 1000, 0x7, 0, 1 << 18).ljust(112, b"\0") + struct.pack("<QQ", 0, 0)
    comm = struct.pack("<IHHII16sIIQ", 3, 0, 48, 7, 7, b"true", 7, 7, 100)
    head = struct.pack("<8s7Q", b"PERFILE2", 104, 128, 104, 128, 104 + 128, len(comm), 0).ljust(104, b"\0")
    path = tmp_path / "perf.data"
    path.write_bytes(head + attr + comm)
    done = laggard("explain", "-v", path)
    assert done.returncode == 0
    assert done.stdout.startswith("The recording holds no samples") and "over at once" in done.stdout
    assert "no repeating steps" not in done.stdout


@pytest.mark.parametrize("on, status", (("high", 3), ("medium", 3), ("low", 3), ("info", 3),
                                        ("host.lock_held", 3), ("host.io_wait", 0)))
def test_fail_on_exits_3_and_still_prints(laggard, trace, on, status):
    done = laggard("explain", trace("stall"), "--json", "--fail-on", on)
    assert done.returncode == status
    check_schema(json.loads(done.stdout))


@pytest.mark.parametrize("args, word", (
    (("explain",), "no FILE"), (("explain", "x", "--nonsense"), "--nonsense"),
    (("explain", "x", "--fail-on", "bogus"), "bogus"), (("explain", "x", "--fail-on"), "--fail-on"),
    (("explain", "x", "--victim", "-3"), "-3"), (("explain", "x", "--cost-per-hour", "nan"), "nan"),
    (("explain", "x", "--html"), "--html"), (("explain", "x", "--baseline", "b"), "--baseline"),
    (("steps",), "no FILE"), (("rules", "no.such"), "no.such"), (("explian", "x"), "explain"),
    (("frobnicate",), "--help"),
))
def test_wrong_usage_is_one_line_and_exit_2(laggard, args, word):
    done = laggard(*args)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.count("\n") == 1 and word in done.stderr and done.stderr.startswith("laggard")


def test_unreadable_input_is_one_line_with_the_reason(laggard, tmp_path):
    junk = tmp_path / "junk.lag"
    junk.write_bytes(os.urandom(5000))
    for path in (tmp_path / "absent.lag", junk, tmp_path):
        done = laggard("explain", "-v", path)
        assert done.returncode == 1 and not done.stdout
        assert done.stderr.count("\n") == 1 and str(path) in done.stderr, done.stderr


def test_a_truncated_input_is_read_as_far_as_it_goes(laggard, trace, tmp_path):
    whole = trace("stall").read_bytes()
    part, read = tmp_path / "part.lag", []
    for n in (64, len(whole) // 3, len(whole) * 2 // 3, len(whole) - 1):
        part.write_bytes(whole[:n])
        done = laggard("explain", part, "--json")
        if done.returncode:  # no chunk is whole
            assert done.returncode == 1 and done.stderr.count("\n") == 1 and str(part) in done.stderr
        else:
            assert any(f"it ends at byte {n} " in limit for limit in json.loads(done.stdout)["limits"])
            read.append(n)
    assert read and 64 not in read


def test_writing_to_a_full_device_fails(laggard_path, trace):
    for args in (("explain", trace("stall")), ("steps", trace("stall")), ("rules",), ("--help",),
                 ("--version",)):
        with open("/dev/full", "w", encoding="ascii") as full:
            done = subprocess.run([laggard_path, *args], check=False, stdout=full,
                                  stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1, args
        assert "standard output" in done.stderr


def test_steps_sum_to_their_duration(laggard, trace):
    text = laggard("steps", trace("stall"), "--csv").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) > 780
    assert any("4711" in row["top_cause"] for row in rows if row["flag"] == "slow")
    for row in rows:
        def ns(key, row=row):
            return round(float(row[key]) * 1e6)
        kinds = [ns(f"{k}_ms") for k in ("running", "runnable", "blocked", "unexplained")]
        assert sum(kinds) == ns("dur_ms")
        assert sum(ns(f"{s}_ms") for s in STAGES) == ns("dur_ms")
    table = laggard("steps", trace("stall")).stdout.splitlines()
    assert len(table) == len(rows) + 1 and "top cause" in table[0]
    steps = json.loads(laggard("steps", trace("stall"), "--json").stdout)["steps"]
    assert len(steps) == len(rows) and sum(s["slow"] for s in steps) == \
        sum(row["flag"] == "slow" for row in rows)


def test_help_and_version(laggard):
    done = laggard("--help")
    assert done.returncode == 0 and "explain" in done.stdout
    for command in ("explain", "convert", "steps", "rules"):
        done = laggard(command, "--help")
        assert done.returncode == 0 and "example:" in done.stdout
        assert laggard("help", command).stdout == done.stdout
    done = laggard()
    assert done.returncode == 2 and done.stderr.count("laggard record") == 1
    for words in (("extra",), ("--json", "extra")):
        done = laggard("--version", *words)
        assert done.returncode == 2 and not done.stdout and "extra" in done.stderr
    version = json.loads(laggard("--version", "--json").stdout)
    assert laggard("--version").stdout == f"laggard {version['laggard']}\n"


@pytest.mark.parametrize("rule, said", [
    ("regress.process", ["At least 0.5 % of a CPU, and less than 20 % of that before; always info", "severity info: it is no loss"]),
    ("regress.version", ["severity medium, or lower where the threshold says so"]),
    ("regress.memory_saving", ["grew by at least 1 % of the step"]),
    ("comms.small_messages", ["with 50 collectives a step and more, most of them under 1 MB, or under 0.5 ms in the mean"]),
    ("gpu.host_sync", ["stretches of 2 ms and more"])])
def test_rules_print_what_they_judge_by(laggard, rule, said):
    """Once: in the threshold, where the numbers are the table's."""
    text = " ".join(laggard("rules", rule).stdout.split())
    assert all(words in text for words in said) and "Fifty" not in text


def test_rules_are_printed_whole(laggard):
    ids = [r["id"] for r in json.loads(laggard("rules", "--json").stdout)]
    assert len(ids) == len(set(ids)) >= 11
    listing = laggard("rules").stdout
    for rule in ids:
        assert rule in listing
        text = laggard("rules", rule).stdout
        for word in ("signal", "threshold", "confidence", "fix", "trade-off", "sources"):
            assert f"  {word}" in text
    # What confidence is worth is the table that verdicts take it from.
    (rule,) = json.loads(laggard("rules", "data.loader_wait", "--json").stdout)
    loud = [w for w in rule["worth"] if w["severity"] == "medium"]
    assert loud and all(w["draws"] and 0 < w["right"] < 1 for w in loud)
    assert f"right in {100 * loud[-1]['right']:.0f} %" in " ".join(laggard("rules", "data.loader_wait").stdout.split())
    # Of some nothing was drawn, which is said.
    undrawn = [r["id"] for r in json.loads(laggard("rules", "--json").stdout) if not r["worth"]]
    assert undrawn and all("no jobs were drawn" in laggard("rules", rule).stdout for rule in undrawn)


def test_every_id_that_the_analyses_emit_has_a_rule(laggard, root):
    """And every rule is told by somebody; which tests see it told is tests/findings.tsv."""
    ids = {r["id"] for r in json.loads(laggard("rules", "--json").stdout)}
    of = {i.upper().replace(".", "_"): i for i in ids}
    texts = [path.read_text(encoding="utf-8") for folder in ("analyse", "diff")
             for path in (root / "src" / folder).rglob("*.[ch]")]
    assert len(texts) > 50
    added, named = set(), set()
    for text in texts:
        added |= {of[name] for name in re.findall(r"_(?:add|finding|idles|lost)\(c, (?:g, )?LG_R_([A-Z_]+)", text)}
        named |= {of[name] for name in re.findall(r"\bLG_R_([A-Z_]+)", text) if name in of}
    # What the end of a chain is told by stands in the table of ends.
    ends = (root / "src/rules/ends.def").read_text(encoding="utf-8")
    named |= {of[name] for name in re.findall(r"\b[A-Z_]{6,}\b", ends) if name in of}
    assert {"comms.straggler", "gpu.launch_bound", "comms.missing_rank", "regress.stage"} <= added <= ids
    assert ids <= named


@pytest.fixture(scope="module")
def stall(laggard_path, tmp_path_factory):
    """A made-up trace in which somebody holds a lock of two ranks in turn, periodically."""
    tool = next((p / "tests/e2e/make_trace" for p in pathlib.Path(laggard_path).parents
                 if (p / "tests/e2e/make_trace").exists()), None)
    assert tool, "tests/e2e/make_trace is not built"
    path = tmp_path_factory.mktemp("screen") / "stall.lag"
    subprocess.run([tool, "stall", path], check=True)
    return path


@pytest.mark.parametrize("locale, drawn", (("C", "#"), ("C.UTF-8", "\u2588")))
def test_one_screen_says_who_and_what_to_do(laggard_path, stall, locale, drawn):
    done = subprocess.run([laggard_path, "explain", stall], capture_output=True, check=True,
                          env={**os.environ, "LC_ALL": locale})
    text = done.stdout.decode("utf-8")
    lines = text.splitlines()
    assert len(lines) <= 24 and all(len(line) <= 80 for line in lines)
    assert locale == "C.UTF-8" or text.isascii()
    assert "\x1b" not in text, "standard output is no terminal"
    strip, = (line for line in lines if line.startswith("steps  "))
    marks = lines[lines.index(strip) + 1]
    assert [i for i, c in enumerate(strip) if c == drawn] == [i for i, c in enumerate(marks) if c == "^"]
    assert len(marks[10:].split()) == 12, "as many as there are slow steps, a long one over several columns"
    assert " " not in strip[10:], "no hole where a step goes on"
    tree = [re.sub(r"^\W+", "", line) for line in lines[lines.index(next(x for x in lines if x.startswith("waits"))):]]
    assert tree[1:3] == ["for mmap_lock", "held by pid 4711 (watcher) in gather_stats"]
    assert any(line.startswith("fix") for line in lines) and lines[-1].startswith("-v ")


def test_brief_is_a_line_a_finding(laggard, stall):
    findings = json.loads(laggard("explain", "--json", stall).stdout)["findings"]
    lines = laggard("explain", "--brief", stall).stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == [f"{f['severity']} {f['id']}" for f in findings] != []
    for both in (("-v", "--brief"), ("--json", "-v"), ("--brief", "--markdown")):
        assert laggard("explain", stall, *both).returncode == 2


def test_nothing_found_is_a_screen_as_well(laggard, root):
    done = laggard("explain", root / "tests/data/perf/burn.data")
    assert done.returncode == 0 and "nothing is judged" in done.stdout and "limits" in done.stdout
    assert len(done.stdout.splitlines()) <= 24


def test_reading_that_takes_long_says_how_fast_and_how_long_yet(laggard_path, tmp_path):
    """On a terminal, from a second on. It is held up while it reads, which is no less time to who waits."""
    path = device_trace(tmp_path / "long.json", steps=20, padding=40_000)
    size = path.stat().st_size
    master, slave = pty.openpty()
    process = subprocess.Popen([laggard_path, "explain", "--max-memory", "4G", path], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=slave)

    def has_read():
        return int(re.search(r"^rchar: (\d+)", pathlib.Path(f"/proc/{process.pid}/io").read_text(encoding="ascii"), re.M)[1])
    while has_read() < size // 20 and process.poll() is None:
        pass
    process.send_signal(signal.SIGSTOP)
    time.sleep(1.2)
    process.send_signal(signal.SIGCONT)
    assert process.wait(timeout=60) == 0
    os.close(slave)
    said = b""
    while select.select([master], [], [], 0.2)[0]:
        try:
            said += os.read(master, 65536)
        except OSError:
            break
    os.close(master)
    assert re.search(rb"reading \.\.\. 1 s, \d+ MB/s, \d+ s left", said), said
    assert said.endswith(b"\r\x1b[K")  # nothing of it stays
