# SPDX-License-Identifier: Apache-2.0
"""Causes that only a live recording shows: who is behind the wait, and what is said where nobody is."""
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "matrix"))
import quota  # noqa: E402

pytestmark = pytest.mark.live

PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable

SERVER = """
import socket, time
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
c, _ = s.accept()
while c.recv(64):
    time.sleep(0.025)
    c.sendall(b"answer")
"""

# A loop of 12 ms steps; every tenth one does something else. Marks by hand: no framework is needed.
LOOP = """
import os, socket, sys, time
import laggard
what, arg, end, i = sys.argv[1], sys.argv[2], time.monotonic() + 3, 0
link = socket.create_connection(("127.0.0.1", int(arg))) if what == "ask" else None
file = open(arg, "wb") if what == "sync" else None
if what in ("fork", "spawn"):
    import mmap, subprocess
    table = mmap.mmap(-1, 700 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    table.madvise(15)  # MADV_NOHUGEPAGE
    for at in range(0, len(table), 4096):
        table[at] = 1
    end = time.monotonic() + 3
if what == "hold":
    import threading

    def hold():
        while True:
            time.sleep(0.3)
            sum(range(3_000_000))
    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
while time.monotonic() < end:
    with laggard.stage("forward"):
        stop = time.perf_counter() + 0.012
        while time.perf_counter() < stop:
            pass
    if i % 10 == 5 and link:
        link.sendall(b"ask")
        link.recv(64)
    if i % 10 == 5 and file:
        file.seek(0)
        file.write(bytes(48 << 20))
        file.flush()
        os.fsync(file.fileno())
    if i % 10 == 5 and what == "fork":
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
    if i % 10 == 5 and what == "spawn":
        subprocess.run(["/bin/true"])
    laggard.step()
    i += 1
"""


@pytest.fixture
def verdict(laggard, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("recording who wakes whom needs root")

    def of(*command, record=()):
        done = laggard("record", "-o", tmp_path / "run.lag", *record, *(["--", *command] if command else []))
        assert done.returncode == 0, done.stderr
        if "tier bpf" not in done.stderr:
            pytest.skip("no BPF here")
        return json.loads(laggard("explain", tmp_path / "run.lag", "--json").stdout)
    return of


def of_id(verdict, name):
    return [f for f in verdict["findings"] if f["id"] == name]


def test_the_server_behind_the_loopback_is_named(verdict):
    server = subprocess.Popen([PYTHON, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    try:
        v = verdict(PYTHON, "-c", LOOP, "ask", server.stdout.readline().strip())
    finally:
        server.kill()
        server.communicate()
    found = of_id(v, "host.waited_for")
    assert len(found) == 1, v["findings"]
    assert found[0]["culprit"]["pid"] == server.pid
    assert found[0]["culprit"]["relation"] == "other_process"
    assert found[0]["excess_share"] > 0.5


def test_the_thread_that_holds_pythons_lock_is_named(verdict):
    v = verdict(PYTHON, "-c", LOOP, "hold", "")
    found = of_id(v, "python.gil_wait")
    assert len(found) == 1, v["findings"]
    assert found[0]["culprit"]["relation"] == "same_process"
    assert found[0]["culprit"]["tid"] != found[0]["culprit"]["pid"] == found[0]["victims"][0]["pid"]


def test_a_fork_of_a_large_process_is_told(verdict):
    found = of_id(verdict(PYTHON, "-c", LOOP, "fork", ""), "host.self_fork")
    assert len(found) == 1
    assert found[0]["culprit"]["relation"] == "self"
    assert found[0]["lost_ms"] > 50  # of some twenty forks; what others do to the steps is not the point


@pytest.mark.healthy
def test_a_vfork_is_not_told(verdict):
    assert not of_id(verdict(PYTHON, "-c", LOOP, "spawn", ""), "host.self_fork")


# The collector is told of by the hook, which is where torch is.
COLLECTS = """
import gc, sys, time
import torch
torch.set_num_threads(1)
gc.disable()
heap = [[i, [i]] for i in range(400_000)]
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
end, i = time.monotonic() + 4, 0
while time.monotonic() < end:
    stop = time.perf_counter() + 0.012
    while time.perf_counter() < stop:
        pass
    loss = model(torch.zeros(4, 8)).sum()
    optimizer.zero_grad()
    loss.backward()
    if i % 10 == 5:
        gc.collect()
    optimizer.step()
    if not i and sys.argv[1] == "frozen":
        gc.freeze()  # as much to do, and nothing of the heap to look at, nor of what torch 2 imports in a first step
    i += 1
"""


def test_the_collector_is_told(verdict, torch_python):
    v = verdict(torch_python, "-c", COLLECTS, "all")
    found, = of_id(v, "python.gc_pause")
    assert found["culprit"]["relation"] == "self"
    assert found["severity"] in ("medium", "high")
    assert found["lost_ms"] > 200  # of some twenty; what others do to the steps is not the point
    assert "gc." in found["fix"]


@pytest.mark.healthy
def test_a_collector_with_nothing_to_do_is_not_told(verdict, torch_python):
    v = verdict(torch_python, "-c", COLLECTS, "frozen")
    assert v["steps"]["count"] > 50
    assert not [f for f in of_id(v, "python.gc_pause") if f["severity"] != "info"]


def sync_takes_s(path):
    """What LOOP does, on its own: the shortest of three."""
    times = []
    with open(path, "wb") as file:
        for _ in range(3):
            file.seek(0)
            file.write(bytes(48 << 20))
            file.flush()
            start = time.monotonic()
            os.fsync(file.fileno())
            times.append(time.monotonic() - start)
    return min(times)


def test_ones_own_sync_is_nobody_elses_fault(verdict, tmp_path):
    if sync_takes_s(tmp_path / "checkpoint") < 0.01:
        pytest.skip("this directory's file system does not wait for a disk")
    v = verdict(PYTHON, "-c", LOOP, "sync", tmp_path / "checkpoint")
    found = of_id(v, "host.io_wait")
    assert found, v["findings"]
    assert found[0]["detail"] in ("own_sync", "own_write")
    assert found[0]["culprit"]["relation"] == "self"
    assert "checkpoint" in found[0]["fix"] or "own writes" in found[0]["fix"]


def test_of_two_jobs_one_is_judged_and_it_says_which(verdict):
    v = verdict("sh", "-c", f"{PYTHON} -c '{LOOP}' none 0 & {PYTHON} -c '{LOOP}' none 0; wait")
    line = [text for text in v["limits"] if "several jobs" in text]
    assert len(line) == 1 and "--victim" in line[0], v["limits"]


def test_a_loop_that_never_waits_is_told_what_would_help(verdict):
    loop = subprocess.Popen([PYTHON, "-c", "while True: pass"])
    try:
        v = verdict(record=("-p", str(loop.pid), "--for", "2s"))
    finally:
        loop.kill()
        loop.wait()
    assert v["findings"] == [] and v["steps"]["count"] in (0, None)
    assert any("no repeating steps" in text and "laggard.step()" in text and f"pid {loop.pid}" in text
               for text in v["limits"]), v["limits"]


COMPUTES = """
import time
import laggard
end = time.monotonic() + 5
while time.monotonic() < end:
    with laggard.stage("forward"):
        stop = time.process_time() + 0.012
        while time.process_time() < stop:
            pass
    laggard.step()
"""


@pytest.mark.parametrize("cpus", (0.6, 2))
def test_a_used_up_quota_costs_what_the_kernel_counts(verdict, cpus):
    """From the first second on: the group is one that the job puts itself into when it starts."""
    try:
        with quota.group(cpus) as (within, group):
            v = verdict(*within, PYTHON, "-c", COMPUTES)
            counted = quota.throttled_ms(group)
    except RuntimeError as e:
        pytest.skip(str(e))
    found = of_id(v, "host.cpu_throttled")
    if cpus == 2:
        assert not found and counted < 50, (v["findings"], counted)
        return
    assert len(found) == 1 and found[0]["severity"] == "high" and group.name in found[0]["title"], v["findings"]
    # While another program has the CPU that it was taken off, that one is told.
    assert 0.7 * counted < found[0]["lost_ms"] < 1.1 * counted, (found[0]["lost_ms"], counted)
