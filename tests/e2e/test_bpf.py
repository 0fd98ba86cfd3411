# SPDX-License-Identifier: Apache-2.0
"""The eBPF source alone (tests/e2e/bpf_dump.c), on live causes with a known answer."""
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

pytestmark = pytest.mark.live

RUNNABLE_NEW, SLEEP, DISK, STOPPED = 3, 4, 5, 7
LOCK_WAIT, LOCK_HOLD = 7, 8
FOREIGN, MMAP_LOCK = 64, 128
EDGE = 2
LOST_EVENTS, PARTIAL = 1, 18


def tool(name):
    here = pathlib.Path(os.environ.get("LAGGARD_BUILD", pathlib.Path(__file__).parents[2] / "build"))
    for path in (here / "tests/e2e" / name, here / "bench/bpf_cost" / name):
        if path.exists():
            return str(path)
    raise AssertionError(f"{name} is not built (no libbpf, clang or bpftool? tools/install-deps build test)")


@pytest.fixture(scope="module")
def dump():
    if os.geteuid():
        pytest.skip("loading BPF programs needs root")
    path = tool("bpf_dump")
    probe = json.loads(subprocess.run([path, "-p"], check=True, stdout=subprocess.PIPE, text=True).stdout)
    if not probe["works"]:
        pytest.skip("bpf: " + probe["why"])
    return path


class Recording:
    """Runs bpf_dump around a with-block; rows are there after it."""

    def __init__(self, path, seconds, *args):
        self.out = tempfile.TemporaryFile("w+")
        self.child = subprocess.Popen([path, str(seconds), *map(str, args)], stdout=self.out,
                                      stderr=subprocess.PIPE, text=True)
        line = self.child.stderr.readline()
        assert line == "recording\n", line

    def rows(self):
        _, talk = self.child.communicate(timeout=120)
        assert self.child.returncode == 0, talk
        self.out.seek(0)
        self.all = [json.loads(line) for line in self.out]
        return self.all

    def of(self, table):
        return [row for row in self.all if row["table"] == table]


def lost(rec):
    return [d for d in rec.of("diag") if d["id"] == LOST_EVENTS]


VICTIM = r"""
import ctypes, mmap, sys, time
n = int(sys.argv[1]) << 20
libc = ctypes.CDLL(None, use_errno=True)
big = mmap.mmap(-1, n, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
address = ctypes.addressof(ctypes.c_char.from_buffer(big))
assert libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(n), 15) == 0  # MADV_NOHUGEPAGE
for i in range(0, n, 4096):
    big[i] = 1
print("ready", flush=True)
while True:
    m = mmap.mmap(-1, 1 << 16)
    m[0] = 1
    m.close()
    time.sleep(0.001)
"""


@pytest.fixture
def victim():
    child = subprocess.Popen([sys.executable, "-c", VICTIM, "700"], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    yield child
    child.kill()
    child.wait()


def overlap(a, b):
    end = min(a["ts"] + a["dur"], b["ts"] + b["dur"])
    return end - max(a["ts"], b["ts"])


def test_names_the_reader_of_another_process_s_memory_map(dump, victim):
    rec = Recording(dump, 2.5, "-j", victim.pid, "-f", victim.pid)
    reader = subprocess.Popen([sys.executable, "-c", f"""
import time
end = time.time() + 1.8
while time.time() < end:
    open('/proc/{victim.pid}/smaps_rollup').read()
    time.sleep(0.2)
"""])
    reader.wait()
    rec.rows()
    spans = rec.of("span")
    holds = [s for s in spans if s["kind"] == LOCK_HOLD and s["flags"] & FOREIGN and s["dur"] > 1_000_000]
    assert len(holds) >= 4
    for hold in holds:
        assert hold["flags"] & MMAP_LOCK
        assert hold["thr"]["pid"] == reader.pid
        assert hold["peer"]["pid"] == hold["peer"]["tid"] == victim.pid
        assert "show_smaps_rollup" in hold["stack"]
        assert not any("trace" in frame for frame in hold["stack"])
    mm = {h["object"] for h in holds}
    assert len(mm) == 1
    waits = [s for s in spans if s["kind"] == LOCK_WAIT and s["thr"]["pid"] == victim.pid and
             s["object"] in mm and s["dur"] > 1_000_000]
    assert waits
    for wait in waits:
        assert wait["peer"]["pid"] == reader.pid
        assert wait["name"] == "mmap_lock"
        assert any(f.startswith(("rwsem_down", "down_")) for f in wait["stack"])
    # a wait goes on until its thread has the CPU again, so a hold too short to be told may start one
    assert sum(any(overlap(w, h) > 0 for h in holds) for w in waits) > 0.7 * len(waits)
    blocked = [s for s in rec.of("state") if s["kind"] == "blocked" and s["object"] in mm and
               s["thr"]["pid"] == victim.pid]
    assert blocked
    for b in blocked:
        assert b["reason"] == DISK and b["blocker"]["pid"] == reader.pid, b


# A thread that works on the memory of its own process, now and then; the other wants the lock all the time.
PROTECT = r"""
import threading
def protect():
    while True:
        for what in (1, 3):  # PROT_READ, and PROT_WRITE
            began = time.monotonic_ns()
            assert libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(n), what) == 0
            print(began, time.monotonic_ns(), threading.get_native_id(), flush=True)
        time.sleep(0.1)
threading.Thread(target=protect, daemon=True).start()
"""


def test_a_hold_of_ones_own_is_told_from_when_another_waits(dump):
    ready = 'print("ready", flush=True)\n'
    child = subprocess.Popen([sys.executable, "-c", VICTIM.replace(ready, ready + PROTECT), "700"],
                             stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    rec = Recording(dump, 2.5, "-j", child.pid, "-f", child.pid)
    rec.rows()
    child.kill()
    calls = [tuple(map(int, line.split())) for line in child.communicate()[0].splitlines()]
    spans = [s for s in rec.of("span") if s["thr"]["pid"] == child.pid]
    protects = calls[0][2]
    waits = [s for s in spans if s["kind"] == LOCK_WAIT and s["thr"]["tid"] == child.pid and s["flags"] & MMAP_LOCK
             and s["dur"] > 1_000_000]
    holds = [s for s in spans if s["kind"] == LOCK_HOLD and not s["flags"] & FOREIGN]
    assert len(waits) >= 4
    for hold in holds:
        # Nobody is said to hold it for longer than he did, and only while somebody waits for it.
        if hold["thr"]["tid"] == protects and hold["dur"] > 1_000_000:
            assert any(began <= hold["ts"] and hold["ts"] + hold["dur"] <= end for began, end, _ in calls), hold
            assert any("mprotect" in frame for frame in hold["stack"]), hold["stack"]
        assert hold["dur"] < 1_000_000 or hold["thr"]["tid"] == protects, hold
    explained = [max((overlap(w, h) for h in holds), default=0) / w["dur"] for w in waits]
    assert sum(share > 0.8 for share in explained) > 0.7 * len(waits), explained


def test_states_of_a_thread_join_without_overlap(dump, victim):
    rec = Recording(dump, 1.5, "-j", victim.pid, "-f", victim.pid)
    rec.rows()
    states = sorted((s for s in rec.of("state") if s["thr"]["tid"] == victim.pid),
                    key=lambda s: s["ts"])
    assert len(states) > 1000
    holes = 0
    for a, b in zip(states, states[1:]):
        assert a["ts"] + a["dur"] <= b["ts"], (a, b)
        holes += a["ts"] + a["dur"] != b["ts"]  # a job's thread: to the nanosecond
    # but where the kernel did not report a switch, which the trace says
    unreported = sum(d["count"] for d in rec.of("diag") if d["id"] == PARTIAL)
    assert holes <= 2 * unreported and holes < 0.01 * len(states), (holes, unreported)
    assert states[-1]["dur"] == -1 and states[-1]["flags"] & EDGE
    asleep = [s for s in states if s["kind"] == "blocked" and s["reason"] == SLEEP and s["dur"] > 1_000_000]
    assert len(asleep) > 500
    assert sum("stack" in s for s in asleep) > 0.99 * len(asleep)
    # timers wake from interrupt context: nobody may be blamed for that
    assert sum(s["ctx"] in (2, 3) and "waker" not in s for s in asleep) > 0.9 * len(asleep)


HOG = """
import os, sys, time
victim = int(sys.argv[1])
os.sched_setaffinity(0, {0})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
while True:
    end = time.monotonic() + 0.04
    while time.monotonic() < end:
        pass
    os.sched_setaffinity(victim, {1})  # out of this CPU's queue
    time.sleep(0.1)
    os.sched_setaffinity(victim, {0})
    time.sleep(0.1)
"""


def test_a_wait_for_a_cpu_is_told_of_each_queue(dump):
    """It waits for 40 ms in the queue of CPU 0, and then runs on CPU 1: whoever has that one is not why."""
    if not {0, 1} <= os.sched_getaffinity(0):
        pytest.skip("needs two CPUs")
    victim = subprocess.Popen([sys.executable, "-c", "import os; os.sched_setaffinity(0, {0})\nwhile True: pass"])
    hog = None
    try:
        rec = Recording(dump, 2, "-j", victim.pid, "-f", victim.pid)
        hog = subprocess.Popen([sys.executable, "-c", HOG, str(victim.pid)])
        rec.rows()
    finally:
        for child in filter(None, (victim, hog)):
            child.kill()
            child.wait()
    states = sorted((s for s in rec.of("state") if s["thr"]["tid"] == victim.pid), key=lambda s: s["ts"])
    waits = [(a, b) for a, b in zip(states, states[1:]) if a["kind"] == "runnable" and a["dur"] > 30_000_000]
    moved = [(a, b) for a, b in waits if a["cpu"] == 0 and b["cpu"] == 1 and b["ts"] == a["ts"] + a["dur"]]
    assert len(moved) >= 4, waits
    assert all(a["dur"] < 60_000_000 for a, _ in moved), moved


def test_says_who_stopped_whom(dump):
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        rec = Recording(dump, 1.5, "-f", child.pid)
        time.sleep(0.3)
        child.send_signal(signal.SIGSTOP)
        time.sleep(0.4)
        child.send_signal(signal.SIGCONT)
        rec.rows()
    finally:
        child.kill()
        child.wait()
    marks = [m["text"] for m in rec.of("mark") if m["name"] == "signal"]
    assert any(m.startswith("SIGSTOP") and f"pid {os.getpid()} " in m for m in marks), marks
    assert any(m.startswith("SIGCONT") for m in marks), marks
    stopped = [s for s in rec.of("state") if s["kind"] == "blocked" and s["reason"] == STOPPED]
    assert len(stopped) == 1
    assert 0.35e9 < stopped[0]["dur"] < 0.6e9
    assert stopped[0]["waker"]["pid"] == os.getpid()


def test_what_never_ends_is_there(dump):
    child = subprocess.Popen(["sleep", "60"])
    time.sleep(0.2)
    try:
        rec = Recording(dump, 0.5, "-f", child.pid)
        rec.rows()
    finally:
        child.kill()
        child.wait()
    states = rec.of("state")
    assert len(states) == 1 and states[0]["dur"] == -1
    assert states[0]["kind"] == "blocked" and states[0]["flags"] & EDGE
    assert any("nanosleep" in f for f in states[0]["stack"])


def test_running_time_agrees_with_perf(dump, tmp_path):
    if not shutil.which("perf"):
        pytest.skip("perf is missing")
    load = subprocess.Popen([tool("switch_load"), "8", "2000"], stdout=subprocess.DEVNULL)
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    data = tmp_path / "perf.data"
    try:
        rec = Recording(dump, 5, *[a for p in (load, *hogs) for a in ("-j", p.pid)])
        perf = subprocess.run(["perf", "record", "-q", "-a", "-k", "CLOCK_MONOTONIC", "-m", "4M", "-e",
                               "sched:sched_switch", "-o", str(data), "--", "sleep", "3"], check=False,
                              stderr=subprocess.PIPE, text=True)
        rec.rows()
    finally:
        for p in (load, *hogs):
            p.kill()
            p.wait()
    if perf.returncode:
        pytest.skip("perf record: " + perf.stderr[:200])
    script = subprocess.run(["perf", "script", "-i", str(data), "--ns", "-F", "cpu,time,event,trace"],
                            check=True, stdout=subprocess.PIPE, text=True).stdout
    pattern = re.compile(r"\[(\d+)\]\s+(\d+)\.(\d{9}):.*prev_pid=(\d+) .*next_pid=(\d+)")
    switches = [(int(m[2]) * 10**9 + int(m[3]), int(m[1]), int(m[4]), int(m[5]))
                for m in map(pattern.search, script.splitlines()) if m]
    assert len(switches) > 10000
    by_cpu = collections.defaultdict(list)
    for ts, cpu, prev, following in switches:
        by_cpu[cpu].append((ts, prev, following))
    # the interval in which every CPU is known from both sides
    first = max(rows[0][0] for rows in by_cpu.values())
    last = min(rows[-1][0] for rows in by_cpu.values())
    theirs, ours, hole, missed = *(collections.Counter() for _ in range(3)), 0
    for rows in by_cpu.values():
        for (ts, _, tid), (end, prev, _) in zip(rows, rows[1:]):
            if prev != tid:
                # perf drops some (seen: switches away from one thread); either may have run
                missed += 1
                for t in (prev, tid):
                    hole[t] += end - ts
                continue
            theirs[tid] += max(0, min(end, last) - max(ts, first))
    if missed > 1e-2 * len(switches):
        pytest.skip(f"perf itself missed {missed} of {len(switches)} switches (throttled)")
    for s in rec.of("state"):
        if s["kind"] == "running" and not s["flags"] & 1:
            end = rec.of("extent")[0]["last"] if s["dur"] < 0 else s["ts"] + s["dur"]
            ours[s["thr"]["tid"]] += max(0, min(end, last) - max(s["ts"], first))
    big = [tid for tid, ns in theirs.items() if tid and ns > 50_000_000]
    assert len(big) >= 2
    for tid in big:
        low, high = 0.99 * theirs[tid] - hole[tid], 1.01 * theirs[tid] + hole[tid]
        assert low <= ours[tid] <= high, (tid, ours[tid], theirs[tid], hole[tid])
    assert not lost(rec)


def test_running_time_agrees_with_the_kernel_s_own_account(dump, cpu_taken):
    load = subprocess.Popen([tool("switch_load"), "8", "2000"], stdout=subprocess.DEVNULL)
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]

    def account():
        now, run = time.monotonic_ns(), {-1: cpu_taken()}
        for path in pathlib.Path("/proc").glob("[0-9]*/schedstat"):
            try:
                run[int(path.parent.name)] = int(path.read_text().split()[0])
            except (OSError, IndexError, ProcessLookupError):
                pass
        return now, run, time.monotonic_ns()

    try:
        rec = Recording(dump, 5, *[a for p in (load, *hogs) for a in ("-j", p.pid)])
        time.sleep(0.5)
        first = account()
        time.sleep(3.5)
        last = account()
        rec.rows()
    finally:
        for p in (load, *hogs):
            p.kill()
            p.wait()
    ours = collections.Counter()
    for s in rec.of("state"):
        if s["kind"] == "running" and not s["flags"] & 1:
            end = rec.of("extent")[0]["last"] if s["dur"] < 0 else s["ts"] + s["dur"]
            ours[s["thr"]["tid"]] += max(0, min(end, last[2]) - max(s["ts"], first[0]))
        elif s["flags"] & 1 and s["ts"] >= first[0] and s["ts"] + s["dur"] <= last[2]:
            ours[s["thr"]["tid"]] += s["run"]  # an unreported switch: the length alone is known
    slack = (first[2] - first[0]) + (last[2] - last[0]) + 8_000_000  # read somewhere in between, by ticks
    taken = last[1].pop(-1) - first[1].pop(-1)
    checked = 0
    for tid, run in last[1].items():
        run -= first[1].get(tid, run)
        if run > 200_000_000:
            checked += 1
            bound = 0.01 * run + slack
            assert -bound <= ours[tid] - run <= bound + taken, (tid, ours[tid], run, slack, taken)
    assert checked >= 2


def test_nothing_is_lost_at_100_000_switches_a_second(dump):
    rec = Recording(dump, 5, "-q")
    load = subprocess.run([tool("switch_load"), "4", str(55000 / len(os.sched_getaffinity(0)))],
                          check=True, stdout=subprocess.PIPE, text=True).stdout
    rec.rows()
    rate = float(re.search(r"([\d.]+) switches/s", load)[1])
    if rate < 90000:
        pytest.skip(f"this machine makes only {rate} switches a second")
    assert not lost(rec)


def test_a_small_ring_says_what_it_lost(dump):
    rec = Recording(dump, 2, "-q", "-r", "8192")
    subprocess.run([tool("switch_load"), "1", "0"], check=True, stdout=subprocess.DEVNULL)
    rec.rows()
    assert sum(d["count"] for d in lost(rec)) > 1000
    assert all(d["cpu"] >= 0 and "full" in d["text"] for d in lost(rec))


def test_light_profile_sums_what_it_does_not_record(dump):
    load = subprocess.Popen([tool("switch_load"), "5", "3000"], stdout=subprocess.DEVNULL)
    try:
        rec = Recording(dump, 2, "-l")
        rec.rows()
    finally:
        load.kill()
        load.wait()
    first, last = rec.of("extent")[0]["first"], rec.of("extent")[0]["last"]
    pairs = [s for s in rec.of("sum") if s["thr"]["comm"] == "switch_load" and s["run"] > 10_000_000]
    assert len(pairs) >= 2
    for s in pairs:
        assert s["rows"] < 2000  # the pair makes 3000 round trips a second
        assert s["known"] > 0.97 * (last - first)
