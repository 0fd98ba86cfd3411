# SPDX-License-Identifier: Apache-2.0
"""Python frames of a recording against what the interpreter says of itself at the same moment."""
import csv
import datetime
import glob
import io
import json
import os
import pathlib
import shutil
import subprocess

import pytest

PYTHON = "/usr/bin/python3"
EDGE_NS = 100_000  # between the program's clock and the moment that it tells of
WRONG = 0.005      # a sample may strike while a frame is being made
MISSING = 0.03     # or be told so late by its own interrupt that it is not recognised
FOUND_NS = 1_500_000_000  # from a process's start until it is known to be Python
WALKS = r"""
import functools, json, os, random, sys, time
clock, log, NAPS = time.monotonic_ns, [], 300


def stack(frame):
    found = []
    while frame:
        code = frame.f_code
        found.append([getattr(code, "co_qualname", code.co_name), os.path.basename(code.co_filename), frame.f_lineno])
        frame = frame.f_back
    return found


def spin(path, until):
    callers = stack(sys._getframe(1))
    begin = clock()
    while clock() < until:
        pass
    log.append(["spin", begin, clock(), callers])


def nap(path, until):
    callers = stack(sys._getframe(1))
    begin = clock()
    time.sleep(0.003)
    log.append(["nap", begin, clock(), callers])


def plain(path, until):
    first = path[0]
    return first(path[1:], until)


def through_c(path, until):
    return sorted([0], key=lambda _: path[0](path[1:], until) or 0)


def generator(path, until):
    def inner():
        yield path[0](path[1:], until)
    for value in inner():
        pass


class Layer:
    def __call__(self, path, until):
        return functools.reduce(
            lambda a, b: path[0](path[1:], until),
            [1, 2])

    @staticmethod
    def forward(path, until):
        if until:
            return (
                path[0](
                    path[1:],
                    until))


def main():
    random.seed(int(sys.argv[2]))
    end = clock() + int(float(sys.argv[3]) * 1e9)
    while clock() < end:
        path = random.choices([plain, through_c, generator, Layer(), Layer.forward], k=random.randrange(1, 5))
        random.choice([spin, nap])
        plain(path + [random.choice([spin, nap])], clock() + 5_000_000)
    with open(sys.argv[1] + f".{os.getpid()}", "w") as out:
        json.dump({"pid": os.getpid(), "log": log}, out)


if len(sys.argv) > 4 and os.fork() == 0:  # as a loader's worker
    main()
    os._exit(0)
main()
if len(sys.argv) > 4:
    os.wait()
"""


def some_interpreters():
    """The system's and one more of those there are, each day another; all that there are where LG_PYTHONS names some."""
    every = interpreters()
    others = [found for found in every if found[1] != PYTHON]
    if os.environ.get("LG_PYTHONS") or len(others) < 2:
        return every
    return [found for found in every if found[1] == PYTHON] + [others[datetime.date.today().toordinal() % len(others)]]


def interpreters():
    """Each version of CPython that this machine has, by its own words."""
    found = {}
    paths = [PYTHON, *glob.glob("/usr/bin/python3.*"), *glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python3")),
             shutil.which("python3") or PYTHON, *os.environ.get("LG_PYTHONS", "").split()]
    for path in paths:
        if os.access(path, os.X_OK) and "config" not in path:
            done = subprocess.run([path, "-c", "import sys; print(sys.version.split()[0], sys.executable)"], check=False,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            if not done.returncode:
                found.setdefault(done.stdout.strip().split()[0], path)
    return sorted((v, path) for v, path in found.items() if (3, 8) <= tuple(map(int, v.split(".")[:2])) <= (3, 14))


def table(laggard, path, sql):
    done = laggard("query", path, sql, "--csv")
    assert done.returncode == 0, done.stderr
    return list(csv.DictReader(io.StringIO(done.stdout)))


class Stacks:
    """The Python frames of each stack of a recording, innermost first: [name, file, line]."""

    def __init__(self, laggard, path):
        self.frame = {int(f["id"]): f for f in table(laggard, path, "SELECT id, kind, name, file, line FROM frame")}
        self.stack = {int(s["id"]): (int(s["parent"] or 0), int(s["frame"] or 0))
                      for s in table(laggard, path, "SELECT id, parent, frame FROM stack")}

    def python(self, stack):
        found = []
        while stack:
            stack, frame = self.stack[stack]
            f = self.frame[frame]
            if f["kind"] == "2":
                found.append([f["name"], os.path.basename(f["file"]), int(f["line"])])
        return found


def moments(log, kind):
    return sorted((begin + EDGE_NS, end - EDGE_NS, callers) for what, begin, end, callers in log if what == kind)


def compare(rows, spans, stacks, name, lines):
    """(rows compared, wrong ones, without frames): rows are (time, stack) within the time of a leaf."""
    n, wrong, missing, k = 0, [], 0, 0
    known = next((ts for ts, stack in sorted(rows) if stacks.python(stack)), None)
    assert known and known - min(begin for begin, _, _ in spans) < FOUND_NS
    for ts, stack in sorted(rows):
        while k < len(spans) and spans[k][1] < ts:
            k += 1
        if k == len(spans):
            break
        if ts < max(known, spans[k][0]):
            continue
        n += 1
        found, callers = stacks.python(stack), spans[k][2]
        missing += not found
        right = not found or found[0][0] == name and found[0][2] in lines and found[1:] == callers[:len(found) - 1]
        if not right or 0 < len(found) < min(len(callers) + 1, 12):
            wrong.append((ts, found, callers))
    return n, wrong, missing


def lines_of(text):
    """The lines of WALKS that hold it."""
    return [i + 1 for i, line in enumerate(WALKS.split("\n")) if text in line]


@pytest.fixture
def walk(laggard, tmp_path):
    def call(python, *more):
        script = tmp_path / "walks.py"
        script.write_text(WALKS)
        done = laggard("record", "--no-hook", "-F", "499", "-o", tmp_path / "run.lag", "--", python, script,
                       tmp_path / "log", "7", "4", *more)
        assert done.returncode == 0, done.stderr
        if "tier bpf" not in done.stderr:
            pytest.skip("tier bpf does not work here: " + done.stderr.split("\n")[0])
        return tmp_path / "run.lag", [json.loads(path.read_text()) for path in tmp_path.glob("log.*")]
    return call


def check(laggard, path, log):
    stacks = Stacks(laggard, path)
    pid = log["pid"]
    thr = table(laggard, path, f"SELECT id FROM thread WHERE tid = {pid}")
    mine = " OR ".join(f"thr = {t['id']}" for t in thr)
    samples = [(int(s["ts"]), int(s["stack"])) for s in table(laggard, path, f"SELECT ts, stack FROM sample WHERE {mine}")]
    # In the middle of a nap; a sleep whose switch the kernel did not report has no stack at all.
    sleeps = [(int(s["ts"]) + int(s["dur"]) // 2, int(s["stack"])) for s in table(
        laggard, path, f"SELECT ts, dur, stack FROM state WHERE ({mine}) AND kind = 3 AND dur > 2000000 AND stack > 0")]
    first = lines_of("while clock() < until:")[0]
    for kind, rows, lines in (("spin", samples, (first, first + 1)), ("nap", sleeps, lines_of("time.sleep("))):
        n, wrong, missing = compare(rows, moments(log["log"], kind), stacks, kind, lines)
        print(f"pid {pid}: {kind}: {n} moments, {len(wrong)} wrong, {missing} without frames")
        for ts, found, callers in wrong[:4]:
            print(ts, "\n  found  ", found, "\n  callers", callers)
        assert n > 50
        assert len(wrong) <= WRONG * n and missing <= MISSING * n


@pytest.mark.live
@pytest.mark.parametrize("version,python", some_interpreters())
def test_frames_are_those_of_the_moment(laggard, walk, version, python):
    path, logs = walk(python)
    assert len(logs) == 1
    check(laggard, path, logs[0])


@pytest.mark.live
def test_a_forked_worker_has_frames_too(laggard, walk):
    path, logs = walk(PYTHON, "fork")
    assert len(logs) == 2
    for log in logs:
        check(laggard, path, log)


RARE = r"""
import json, os, sys, time
clock, log = time.monotonic_ns, []


def nap(seconds, caller):
    begin = clock()
    time.sleep(seconds)
    if seconds > 0.01:
        log.append([begin, clock(), caller])


def one(seconds):
    nap(seconds, "one")


def two(seconds):
    nap(seconds, "two")


end = clock() + 4_000_000_000
while clock() < end:
    for i in range(60):
        (one if i % 3 else two)(0.0002)
    (one if len(log) % 2 else two)(0.02)
with open(sys.argv[1], "w") as out:
    json.dump({"pid": os.getpid(), "log": log}, out)
"""


@pytest.mark.live
def test_a_long_sleep_where_all_others_are_short(laggard, tmp_path):
    """There the function is read, and callers are not: told ones must not be those of another sleep."""
    script, out = tmp_path / "rare.py", tmp_path / "log"
    script.write_text(RARE)
    done = laggard("record", "--no-hook", "-o", tmp_path / "run.lag", "--", PYTHON, script, out)
    assert done.returncode == 0, done.stderr
    if "tier bpf" not in done.stderr:
        pytest.skip("tier bpf does not work here: " + done.stderr.split("\n")[0])
    told, stacks = json.loads(out.read_text()), Stacks(laggard, tmp_path / "run.lag")
    rows = table(laggard, tmp_path / "run.lag", "SELECT state.ts AS ts, state.stack AS stack FROM state JOIN thread "
                 f"ON thread.id = state.thr WHERE thread.tid = {told['pid']} AND state.kind = 3 AND state.dur > 15000000 "
                 "AND state.stack > 0")
    line = [i + 1 for i, text in enumerate(RARE.split("\n")) if "time.sleep(" in text][0]
    n = 0
    for row in rows:
        caller = [c for begin, end, c in told["log"] if begin <= int(row["ts"]) < end]
        found = stacks.python(int(row["stack"]))
        if caller and found:
            n += 1
            assert found[0][0] == "nap" and found[0][2] == line, found
            assert [f[0] for f in found[1:]] in ([], caller + ["<module>"]), (found, caller)
    print(f"{len(told['log'])} long sleeps, {n} with frames")
    assert n >= 0.6 * len(told["log"])
    done = laggard("record", "--no-hook", "--no-python", "-o", tmp_path / "none.lag", "--", PYTHON, script, out)
    assert done.returncode == 0, done.stderr
    assert rows and not table(laggard, tmp_path / "none.lag", "SELECT id FROM frame WHERE kind = 2")


LATE = """
import time
def late():
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        pass
late()
"""


@pytest.mark.live
def test_an_interpreter_that_was_looked_at_before_it_was_one(laggard, laggard_path, tmp_path):
    """Until it has made its key, what is there says 0, which another library's key is here."""
    script, late = tmp_path / "late.py", pathlib.Path(laggard_path).parent / "tests/e2e/late_start.so"
    assert late.exists(), "tests/e2e/late_start is not built"
    script.write_text(LATE)
    done = laggard("record", "--no-hook", "-o", tmp_path / "run.lag", "--", "/usr/bin/env",
                   f"LD_PRELOAD={late}", PYTHON, script)
    assert done.returncode == 0, done.stderr
    if "tier bpf" not in done.stderr:
        pytest.skip("tier bpf does not work here: " + done.stderr.split("\n")[0])
    frames = table(laggard, tmp_path / "run.lag", "SELECT name FROM frame WHERE kind = 2")
    assert "late" in [f["name"] for f in frames], frames


STANDS = """
import threading, sys
held = threading.Lock()
held.acquire()


def waits(depth):
    if depth:
        waits(depth - 1)
    else:
        held.acquire()


for n in range(3):
    threading.Thread(target=waits, args=(n,), daemon=True).start()
print("ready", flush=True)
waits(3)
"""


@pytest.mark.live
@pytest.mark.parametrize("version,python", some_interpreters())
def test_threads_that_do_not_run_at_all(laggard, tmp_path, version, python):
    """Nobody sees them go to sleep: what they sleep in is read at the end."""
    script = tmp_path / "stands.py"
    script.write_text(STANDS)
    with subprocess.Popen([python, script], stdout=subprocess.PIPE, text=True) as job:
        try:
            assert job.stdout.readline() == "ready\n"
            done = laggard("record", "-p", job.pid, "--for", "1.5", "-o", tmp_path / "run.lag")
        finally:
            job.kill()
    assert done.returncode == 0, done.stderr
    if "tier bpf" not in done.stderr:
        pytest.skip("tier bpf does not work here: " + done.stderr.split("\n")[0])
    stacks = Stacks(laggard, tmp_path / "run.lag")
    rows = table(laggard, tmp_path / "run.lag", "SELECT thread.tid AS tid, state.stack AS stack FROM state JOIN thread "
                 f"ON thread.id = state.thr JOIN process ON process.id = thread.prc WHERE process.pid = {job.pid} "
                 "AND state.kind = 3 AND state.dur < 0")
    found = [stacks.python(int(row["stack"])) for row in rows]
    depths = sorted(sum(name == "waits" for name, _, _ in f) for f in found)
    assert depths == [1, 2, 3, 4], found
    for frames in found:
        assert frames[0] == ["waits", "stands.py", 11], frames
        assert {line for name, _, line in frames[1:] if name == "waits"} <= {9}, frames
    main, = [stacks.python(int(row["stack"])) for row in rows if row["tid"] == str(job.pid)]
    assert main[-1] == ["<module>", "stands.py", 17]
