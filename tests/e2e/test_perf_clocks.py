# SPDX-License-Identifier: Apache-2.0
"""perf record on every clock that it offers: where the wall clock lies, how files are joined; system calls' names."""
import concurrent.futures
import json
import platform
import shutil
import subprocess
import time

import pytest

CLOCKS = {"CLOCK_REALTIME": time.CLOCK_REALTIME, "CLOCK_MONOTONIC": time.CLOCK_MONOTONIC,
          "CLOCK_MONOTONIC_RAW": time.CLOCK_MONOTONIC_RAW, "CLOCK_BOOTTIME": time.CLOCK_BOOTTIME,
          "CLOCK_TAI": time.CLOCK_TAI}
MS = 1_000_000


def record(where, clock, *what):
    if not shutil.which("perf"):
        pytest.skip("needs perf: run tools/install-deps test")
    out = where / f"{clock or 'own'}.data"
    done = subprocess.run(["perf", "record", "-q", *(["-k", clock] if clock else []), "-o", out, *what],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode or not out.exists():
        pytest.skip(f"perf record -k {clock}: {done.stderr.strip()[:200]}")
    return out


def ask(laggard, path, sql):
    done = laggard("query", path, sql, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


BUSY = ("-F", "999", "-e", "cpu-clock", "--", "sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")


@pytest.mark.parametrize("clock", CLOCKS)
def test_the_wall_clock_of_every_sample_is_known(laggard, tmp_path, clock):
    before = time.time_ns()
    path = record(tmp_path, clock, *BUSY)
    after = time.time_ns()
    assert ask(laggard, path, "SELECT value FROM meta WHERE key = 'clock.source'") == [{"value": clock}]
    pair, = ask(laggard, path, "SELECT * FROM clock")
    assert pair["clock"] == time.CLOCK_REALTIME and 0 <= pair["error"] < 5 * MS
    first, = ask(laggard, path, f"SELECT min(ts) AS a, max(ts) AS z, count(*) AS n FROM sample")
    assert first["n"] > 20
    wall = pair["value"] - pair["ts"]
    assert before - MS <= first["a"] + wall <= first["z"] + wall <= after + MS
    # The pair itself, against the clocks of this machine.
    now = time.clock_gettime_ns(time.CLOCK_REALTIME) - time.clock_gettime_ns(CLOCKS[clock])
    assert abs(now - wall) < pair["error"] + 2 * MS


def joined(laggard, tmp_path, ref, other):
    out = tmp_path / "joined.lag"
    done = laggard("convert", ref, other, "-o", out)
    assert done.returncode == 0, done.stderr
    facts = {r["key"]: r["value"] for r in ask(laggard, out, "SELECT key, value FROM meta WHERE key LIKE 'join.%'")}
    how, = (v for k, v in facts.items() if k.endswith(".how"))
    offset, = (int(v) for k, v in facts.items() if k.endswith(".offset_ns"))
    limits, = ask(laggard, out, "SELECT count(*) AS n FROM diag WHERE text LIKE '%nothing relates its clock%'")
    return how, offset, limits["n"]


def test_files_on_different_clocks_lie_where_they_were(laggard, tmp_path):
    """All at once: one after the other they would be runs of their own."""
    clocks = ("CLOCK_MONOTONIC_RAW", "CLOCK_BOOTTIME", "CLOCK_REALTIME", None, None)
    folders = [tmp_path / str(i) for i in range(len(clocks))]
    for folder in folders:
        folder.mkdir()
    long = (*BUSY[:-1], BUSY[-1].replace("100000", "1000000"))
    with concurrent.futures.ThreadPoolExecutor(len(clocks)) as pool:
        raw, boot, real, own, again = pool.map(lambda folder, clock: record(folder, clock, *long), folders, clocks)
    how, offset, limits = joined(laggard, tmp_path, raw, boot)
    assert how == "clocks" and not limits
    apart = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert abs(abs(offset) - abs(apart)) < 5 * MS
    how, offset, limits = joined(laggard, tmp_path, boot, real)
    assert how == "clocks" and not limits
    apart = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.time_ns()
    assert abs(abs(offset) - abs(apart)) < 2 * MS
    # perf's own clock is none of them, and is not taken for one.
    how, offset, limits = joined(laggard, tmp_path, boot, own)
    assert (how, offset, limits) == ("none", 0, 1)
    # Two recordings on it have one zero.
    how, offset, limits = joined(laggard, tmp_path, own, again)
    assert (offset, limits) == (0, 0)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="no names for this machine's calls")
def test_raw_system_calls_have_their_names(laggard, tmp_path):
    path = record(tmp_path, None, "-e", "raw_syscalls:sys_enter", "-e", "raw_syscalls:sys_exit", "--", "dd",
                  "if=/dev/zero", "of=/dev/null", "bs=1", "count=500", "status=none")
    calls = {r["name"]: r["n"] for r in ask(laggard, path, "SELECT name, count(*) AS n FROM span GROUP BY name")}
    assert calls["read"] >= 500 and calls["write"] >= 500
    assert 500 <= calls["read"] < 550  # not some other call's number
    assert not any(name.startswith("syscall ") for name in calls), calls


def test_calls_of_32_bit_programs_are_not_given_names_of_others(laggard, tmp_path):
    (tmp_path / "w.c").write_text("#include <unistd.h>\nint main(void) { for (int i = 0; i < 300; i++) "
                                  "if (write(1, \"\", 0)) return 1; return 0; }\n")
    done = subprocess.run(["cc", "-m32", "-o", "w", "w.c"], cwd=tmp_path, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("no 32-bit programs here: on amd64, run tools/install-deps test")
    path = record(tmp_path, None, "-e", "raw_syscalls:sys_enter", "-e", "raw_syscalls:sys_exit", "--", tmp_path / "w")
    calls = {r["name"]: r["n"] for r in ask(laggard, path, "SELECT name, count(*) AS n FROM span GROUP BY name")}
    assert calls["write"] == 300 and not calls.get("stat")  # 4 is write on i386, stat on x86-64
