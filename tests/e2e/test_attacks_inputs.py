# SPDX-License-Identifier: Apache-2.0
"""Files made to do harm: names that steer terminals and CI runners, forged counts, bombs, work without end."""
import contextlib
import csv
import io
import json
import os
import pathlib
import pickle
import re
import resource
import shutil
import sqlite3
import struct
import subprocess
import time
import zlib

import pytest

NOBODY = 65534
DATA = pathlib.Path(__file__).parents[1] / "data"
HOSTILE = "::error file=x::owned\n::warning::two\x1b]0;title\x07\x9b31m\u202edrow\r##[stop-commands]x"
# What no line of a terminal or of a CI log may hold: control characters but the line's end, marks that turn text.
STEERS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
COMMAND = re.compile(r"^\s*::|##\[", re.M)


def harmless(text):
    assert not STEERS.search(text), STEERS.findall(text)
    assert not COMMAND.search(text), text
    return True


@pytest.fixture
def chrome(tmp_path):
    """A trace of a viewer's format in which every name is hostile: twenty steps of an optimizer's loop."""
    events = [{"ph": "M", "pid": 7, "tid": 7, "name": "process_name", "args": {"name": HOSTILE}},
              {"ph": "M", "pid": 7, "tid": 7, "name": "thread_name", "args": {"name": HOSTILE}}]
    for i in range(20):
        events.append({"ph": "X", "pid": 7, "tid": 7, "ts": i * 10000, "name": HOSTILE,
                       "dur": 9000 + 5000 * (i == 11), "cat": "user_annotation"})
        events.append({"ph": "X", "pid": 7, "tid": 7, "ts": i * 10000 + 10, "name": f"=cmd|{i}", "dur": 5})
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    return path


def test_csv_holds_text_and_nothing_that_acts(laggard, chrome):
    done = laggard("query", chrome, "SELECT name, dur, -1 AS minus FROM span ORDER BY ts", "--csv")
    assert done.returncode == 0, done.stderr
    rows = list(csv.reader(io.StringIO(done.stdout, newline="")))
    assert len(rows) == 41 and all(len(r) == 3 for r in rows), "a newline in a name makes no row"
    assert harmless(done.stdout.replace("\r\n", "\n"))
    names = {r[0] for r in rows[1:]}
    assert any("\\xc2\\x9b31m" in n for n in names)
    assert "'=cmd|3" in names, "a spreadsheet would compute it"
    assert {r[2] for r in rows[1:]} == {"-1"}, "numbers stay numbers"
    sql = "SELECT char(27) || '[2J' || char(10) || '::error::owned' || char(13) || '\"' AS x, '::notice::' AS y"
    done = laggard("query", chrome, sql, "--csv")
    assert harmless(done.stdout.replace("\r\n", "\n"))
    assert list(csv.reader(io.StringIO(done.stdout, newline="")))[1] == ["\\x1b[2J\\n::error::owned\\r\"", "::notice::"]


@pytest.mark.parametrize("command", (("steps", "--csv"), ("steps",), ("explain",), ("explain", "--markdown")))
def test_who_is_to_blame_is_named_with_nothing_that_acts(laggard, laggard_path, tmp_path, command):
    """A process calls itself what it likes: the cause of a step is all that steps tells of anybody's choice."""
    tool, path = pathlib.Path(laggard_path).parent / "tests/e2e/make_trace", tmp_path / "run.lag"
    assert tool.exists(), "tests/e2e/make_trace is not built"
    subprocess.run([tool, "hostile", path], check=True)
    done = laggard(command[0], path, *command[1:])
    assert done.returncode == 0 and harmless(done.stdout.replace("\r\n", "\n")), done.stderr
    assert "::error" in done.stdout, "it is named"
    if "--csv" in command:
        rows = list(csv.DictReader(io.StringIO(done.stdout, newline="")))
        assert len(rows) == done.stdout.count("\n") - 1, "a newline in a name makes no row"
        assert any("\"=x\\x1b[2J\\n::error" in row["top_cause"] for row in rows)


@pytest.mark.parametrize("command", (("query", "SELECT name, name FROM span"), ("query", "SELECT comm FROM thread"),
                                     ("steps",), ("steps", "--csv"), ("explain",), ("explain", "--markdown")))
def test_reports_hold_nothing_that_acts(laggard, chrome, command):
    done = laggard(command[0], chrome, *command[1:])
    assert done.returncode == 0, done.stderr
    assert done.stdout and harmless(done.stdout.replace("\r\n", "\n"))
    assert harmless(done.stderr)


def test_names_of_files_are_one_line_on_stderr(laggard, tmp_path):
    name = tmp_path / "a\n::error::owned\x1b[2J\u202e.json"
    for args in (("explain", name), ("convert", name, "-o", tmp_path / "o.json"), ("steps", name),
                 ("query", name, "SELECT 1"), ("diff", name, name), ("explain", f"--{name}"), (name,),
                 ("record", "-o", tmp_path / "absent" / name.name, "--", "true")):
        done = laggard(*args)
        assert done.returncode in (1, 2, 127), args
        assert done.stderr.count("\n") == 1 and harmless(done.stderr), (args, done.stderr)
    name.write_text("{}", encoding="utf-8")
    (tmp_path / "::error::x\n").write_bytes(b"\0" * 100)
    done = laggard("explain", "-v", tmp_path)
    assert harmless(done.stderr) and done.stderr.count("\n") >= 2, done.stderr


# -- bombs: what memory, disk and time an input may take --------------------------------------------------------------

MIB = 1 << 20


def peak_mib(pid):
    """What was resident at most so far; 0 once the process is gone. (ru_maxrss counts what the parent had.)"""
    try:
        text = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    found = re.search(r"^VmHWM:\s+(\d+) kB", text, re.M)
    return int(found[1]) / 1024 if found else 0


@pytest.fixture
def measured(laggard_path, tmp_path):
    """measured(command, ...) -> exit status, stdout, stderr, most resident MiB, seconds. A bound of 60 s for a hang."""
    def call(*args, **more):
        start, mib = time.monotonic(), 0
        with open(tmp_path / "out", "w+b") as out, open(tmp_path / "err", "w+b") as err:
            with subprocess.Popen([laggard_path, *map(str, args)], stdout=out, stderr=err,
                                  env={**os.environ, "TMPDIR": str(tmp_path)}, **more) as p:
                while p.poll() is None:
                    mib = max(mib, peak_mib(p.pid))
                    time.sleep(0.005)
                    if time.monotonic() - start > 60:
                        p.kill()
                        p.wait()
            seconds = time.monotonic() - start
            out.seek(0), err.seek(0)
            return p.returncode, out.read().decode(), err.read().decode(), mib, seconds
    return call


def deflated(path, head, piece, mib):
    """A .gz of head and mib MiB of a repeated piece: behind a full flush the same block is the same bytes again."""
    pack = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = piece * (MIB // len(piece))
    first = pack.compress(head) + pack.flush(zlib.Z_FULL_FLUSH)
    again = pack.compress(block) + pack.flush(zlib.Z_FULL_FLUSH)
    crc = zlib.crc32(head)
    for _ in range(mib):
        crc = zlib.crc32(block, crc)
    size = len(head) + mib * len(block)
    path.write_bytes(b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + first + again * mib + pack.flush() +
                     struct.pack("<II", crc, size & 0xffffffff))
    return path


def dump_bomb(path):
    head = pickle.dumps({"version": "2.4", "pg_config": {}, "entries": [{"record_id": 0, "pg_id": 0}]}, 2)[:-3]
    return deflated(path, head, b"]", 900)


def perf_bomb(path):
    return deflated(path, (DATA / "perf/tiny.data").read_bytes(), b"\0", 2000)


BOMBS = {
    "dump.pickle.gz": dump_bomb,
    "perf.data.gz": perf_bomb,
    "trace.json.gz": lambda p: deflated(p, b'{"schemaVersion": 1, "traceEvents": [', b" ", 2000),
    "events.json.gz": lambda p: deflated(p, b'{"schemaVersion": 1, "traceEvents": [',
                                         b'{"ph":"X","ts":1,"dur":1,"pid":1,"tid":1,"name":"a"},', 1200),
    "report.sqlite.gz": lambda p: deflated(p, b"SQLite format 3\0\x10\0\1\1\0\x40\x20\x20" + bytes(76), b"\0", 2000),
    "job.log.gz": lambda p: deflated(p, (DATA / "torchlog/job.log").read_bytes(), b"x" * 4000 + b"\n", 1200),
    "stacks.folded.gz": lambda p: deflated(p, b"a;b 1\n", b"python;main;train;forward 17\n", 1200),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_bounded_and_said(measured, tmp_path, name):
    bomb = BOMBS[name](tmp_path / name)
    status, out, err, mib, seconds = measured("explain", "-v", bomb)
    print(f"{name}: {bomb.stat().st_size / MIB:.1f} MiB packed, status {status}, {mib:.0f} MiB, {seconds:.1f} s")
    assert status in (0, 1), err
    assert mib < 1300 and seconds < 30
    said = (out if status == 0 else err).replace("\n  ", "")
    assert re.search(r"times its size|may take|larger than|unpacks to more|without a table", re.sub(r"\s+", " ", said)), said
    assert status == 0 or err.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted((name, "out", "err")), "nothing is left behind"


PAGE = 4096


def many_parents(path, sql, depth=6):
    """A database whose first table is one leaf of pages that are each 501 times the next one's: 501^depth rows."""
    db = sqlite3.connect(path)
    db.executescript(f"PRAGMA page_size={PAGE};{sql}")
    db.close()
    data = bytearray(path.read_bytes())
    root, n = PAGE, len(data) // PAGE  # the first table's page is the second
    assert data[root] == 13, "a leaf of a table (sqlite.org/fileformat2.html)"

    def parent_of(child):
        page, at, count = bytearray(PAGE), PAGE, 500
        for i in range(count):
            at -= 5
            page[at:at + 5] = struct.pack(">IB", child, i % 127)
            page[12 + 2 * i:14 + 2 * i] = struct.pack(">H", at)
        page[:12] = struct.pack(">BHHHBI", 5, 0, count, at, 0, child)
        return page
    pages = [data[root:root + PAGE]]
    for _ in range(depth - 1):
        pages.append(parent_of(n + len(pages)))
    data[root:root + PAGE] = parent_of(n + len(pages))
    data[28:32] = struct.pack(">I", n + len(pages))
    path.write_bytes(b"".join([data, *pages]))
    return path


STRINGS = "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT); INSERT INTO StringIds VALUES (1, 'x');"
SORTED = "CREATE TABLE SCHED_EVENTS (start INT, cpu INT, isSchedIn INT, globalTid INT);" \
         "INSERT INTO SCHED_EVENTS VALUES (1, 1, 1, 1);"


@pytest.mark.parametrize("sql", [STRINGS, SORTED])
def test_pages_that_hold_one_another_end(measured, tmp_path, sql):
    """40 KB of a database in which a page is the child of many: 10^16 rows, which SQLite reads without a complaint."""
    status, _, err, mib, seconds = measured("explain", many_parents(tmp_path / "report.sqlite", sql))
    assert status == 1 and "its pages hold one another" in err, err
    assert seconds < 5 and mib < 300, (seconds, mib)


def test_a_bomb_of_disk_is_bounded(measured, tmp_path):
    """zstd makes 32000 bytes of one: 64 times the size and 256 MiB is all that is written."""
    zstd = shutil.which("zstd")
    assert zstd, "zstd is missing: run tools/install-deps test"
    data = (DATA / "perf/tiny.data").read_bytes()
    with open(tmp_path / "plain", "wb") as f:
        f.write(data)
        f.truncate(600 * MIB)
    subprocess.run([zstd, "-q", "--rm", tmp_path / "plain", "-o", tmp_path / "b.data.zst"], check=True)
    assert (tmp_path / "b.data.zst").stat().st_size < MIB
    before = os.statvfs(tmp_path)
    status, _, err, mib, _ = measured("explain", tmp_path / "b.data.zst", preexec_fn=lambda: resource.setrlimit(
        resource.RLIMIT_FSIZE, (400 * MIB, 400 * MIB)))
    assert before.f_bavail * before.f_frsize > 2 * 400 * MIB, "too little room to tell"
    assert status in (0, 1) and mib < 300, err


def test_a_pipe_without_end_is_bounded(laggard_path, tmp_path):
    """What a pipe delivers is kept in memory: no more than the option allows."""
    with subprocess.Popen([laggard_path, "explain", "-", "--max-memory", "100M"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
        sent = 0
        try:
            p.stdin.write(b"0.1 a;b;c 1\n" * 10)
            while sent < 400:
                p.stdin.write(b"name;of;a;stack 1\n" * (MIB // 18))
                sent += 1
        except BrokenPipeError:
            pass
        out, err = p.communicate(timeout=60)
    assert 90 < sent < 200 and p.returncode == 1, (sent, out[-300:], err)
    assert b"--max-memory" in err and err.count(b"\n") == 1


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """Enough distinct names and rows that 64 MiB do not suffice."""
    path = tmp_path_factory.mktemp("wide") / "trace.json"
    events = [{"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1 + i % 50, "ts": i * 3, "dur": 2,
               "name": f"aten::op{i * 7919 % 200000}"} for i in range(300000)]
    events += [{"ph": "X", "cat": "user_annotation", "pid": 1, "tid": 1, "ts": i * 3000, "dur": 2990,
                "name": f"ProfilerStep#{i}"} for i in range(300)]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), encoding="utf-8")
    return path


def in_folder_as_nobody(folder, function):
    """function() there, by a user without rights where this one is root; what it raises is raised here."""
    pid = os.fork()
    if pid == 0:
        status = 1
        with contextlib.suppress(BaseException):
            os.chdir(folder)  # before: the way there may be closed for him
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            function()
            status = 0
        os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0, "the attack itself could not be laid out"


def test_a_folder_leads_to_no_device_and_no_file_of_the_kernel(laggard, tmp_path):
    """Who reads /proc/kmsg takes the log's messages, and waits for the next one."""
    tmp_path.chmod(0o777)
    targets = {"kmsg.json": "/proc/kmsg", "zero.json": "/dev/zero", "all": "/", "here": tmp_path,
               "mem.json": "/proc/self/mem"}

    def attack():
        os.mkfifo("pipe.json")
        for name, target in targets.items():
            os.symlink(target, name)
    in_folder_as_nobody(tmp_path, attack)
    done = laggard("explain", "-v", tmp_path, timeout=10)
    assert done.returncode == 1 and "holds no trace\n" in done.stderr

    for name in ("kmsg.json", "zero.json", "mem.json", "pipe.json"):
        def link():
            os.unlink(name)
            os.symlink(DATA / "perf/tiny.data", name)
        in_folder_as_nobody(tmp_path, link)
        done = laggard("explain", "--json", tmp_path, timeout=20)
        assert done.returncode == 0, done.stderr
        assert [os.path.basename(i["path"]) for i in json.loads(done.stdout)["inputs"]] == [name], "it is looked at"
        in_folder_as_nobody(tmp_path, lambda: os.unlink(name))


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full", "/dev/null"])
def test_a_device_is_no_file(laggard, device):
    done = laggard("explain", "-v", device, timeout=5)
    assert done.returncode == 1
    assert done.stderr == f"laggard: {device} is a device: name a file\n"


@pytest.mark.parametrize("command", (("explain",), ("steps",), ("query", "SELECT count(*) FROM span"), ("diff",)))
def test_the_memory_is_what_the_option_says(measured, wide, command):
    files = (wide, wide) if command[0] == "diff" else (wide,)
    done = 0
    for limit in (64, 68, 72, 80, 88, 96, 400):
        status, out, err, mib, _ = measured(command[0], *files, *command[1:], f"--max-memory={limit}M")
        assert status in (0, 1) and mib < limit + 24, (limit, status, mib, err)
        if status:
            assert not out and err.count("\n") == 1 and "--max-memory" in err and f"{limit} MiB" in err, err
        done += status == 0
    assert 0 < done < 7, "the smallest does not suffice, the largest does"


def test_sizes_of_memory(laggard, chrome):
    for good in ("64M", "1g", "2GiB", "100000000", "1.5G"):
        assert laggard("explain", "-v", chrome, "--max-memory", good).returncode == 0
    for bad in ("", "1", "63M", "-1G", "G", "1X", "nan", "1e30"):
        done = laggard("explain", "-v", chrome, "--max-memory", bad)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, bad


def test_forged_counts_are_told_in_words(laggard, tmp_path):
    """A perf.data file in which two buffers claim to have lost 2^63 - 1 and 365518 events: beyond 2^63 together."""
    attr = struct.pack("<IIQQQQQ", 1, 112, 0, 1000, 0x7, 0, 1 << 18).ljust(112, b"\0") + struct.pack("<QQ", 0, 0)
    body = b"".join(struct.pack("<IHHQQIIQ", 2, 0, 40, 1, n, 7, 7, 100 + n % 7) for n in ((1 << 63) - 1, 365518))
    head = struct.pack("<8s7Q", b"PERFILE2", 104, 128, 104, 128, 104 + 128, len(body), 0).ljust(104, b"\0")
    path = tmp_path / "perf.data"
    path.write_bytes(head + attr + body)
    done = laggard("explain", "-v", path)
    assert done.returncode == 0, done.stderr
    assert "(an implausible number)" in re.sub(r"\s+", " ", done.stdout)
    assert not re.search(r"\d{12}", done.stdout), done.stdout
    assert json.loads(laggard("explain", path, "--json").stdout)["inputs"][0]["lost_events"] == 10**15
    done = laggard("query", path, "SELECT sum(count) AS n FROM diag WHERE xid = 1", "--json")
    assert 10**15 <= json.loads(done.stdout)[0]["n"] < 2 * 10**15, done.stdout


def test_a_recording_of_a_terabyte_of_nothing(laggard, chrome, tmp_path):
    """Damage is searched for what lies behind it, but not without end."""
    path = tmp_path / "hole.lag"
    assert laggard("convert", chrome, "-o", path).returncode == 0
    whole = path.stat().st_size
    os.truncate(path, whole - 100)  # in the middle of the directory, that is behind all rows
    os.truncate(path, 1 << 40)
    for command in (("explain", path), ("query", path, "SELECT count(*) FROM span")):
        done = laggard(*command, timeout=20)
        assert done.returncode == 0 and done.stderr.count("\n") <= 2, done.stderr
    done = laggard("query", path, "SELECT text FROM diag WHERE xid IN (7, 8)", "--json")
    assert json.loads(done.stdout), "what was not read is said"


def filters(pid):
    """How many filters of system calls a process has (Linux 5.9 and later)."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(re.search(r"^Seccomp_filters:\s+(\d+)", status, re.M)[1])


@pytest.mark.parametrize("command", (("explain", "-"), ("steps", "-"), ("convert", "-o", "out.lag", "-"),
                                     ("query", "-", "SELECT 1"), ("diff", "-", DATA / "perf/tiny.data")),
                         ids=lambda c: c[0])
def test_a_reader_has_no_privilege_to_lose(laggard_path, can_record, tmp_path, command):
    """While it waits for its input, root's capabilities are those for files, calls are filtered."""
    mine = filters(os.getpid())
    with subprocess.Popen([laggard_path, *command], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, cwd=tmp_path) as p:
        end = time.monotonic() + 20
        while time.monotonic() < end:
            status = pathlib.Path(f"/proc/{p.pid}/status").read_text(encoding="utf-8")
            if "NoNewPrivs:\t1" in status and filters(p.pid) > mine:
                break
            time.sleep(0.02)
        p.stdin.close()
        p.wait()
    # CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, SYS_PTRACE (mappings of who still runs), SYSLOG
    files = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 19 | 1 << 34
    assert "NoNewPrivs:\t1" in status
    assert "Seccomp:\t2" in status and int(re.search(r"^Seccomp_filters:\s+(\d+)", status, re.M)[1]) == mine + 1
    for name in ("CapEff", "CapPrm", "CapBnd"):
        assert not int(re.search(rf"^{name}:\s+(\w+)", status, re.M)[1], 16) & ~files, status
