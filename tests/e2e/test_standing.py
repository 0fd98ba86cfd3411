# SPDX-License-Identifier: Apache-2.0
"""Jobs that stand still, and one that only waits: real ranks, found by their pids while they hang."""
import json
import os
import socket
import subprocess
import time

import pytest

JOB = """
import os, sys, threading, time, torch
import torch.distributed as dist
torch.set_num_threads(1)
rank, what = int(os.environ["RANK"]), sys.argv[1]
dist.init_process_group("gloo")


def lost():
    held = threading.Lock()
    held.acquire()
    held.acquire()


def asks():
    os.read(0, 1)


def evaluates():
    while True:
        torch.randn(256, 256) @ torch.randn(256, 256)


def step():
    dist.all_reduce(torch.ones(8))


for i in range(20):
    step()
print("ready", flush=True)
if rank == 1 and what != "parts":
    {"lost": lost, "asks": asks, "evaluates": evaluates}[what]()
elif rank == 1:
    dist.broadcast(torch.ones(8), 0)
step()
"""


@pytest.fixture
def verdict(laggard, torch_python, can_record, tmp_path):
    """What explain says of four seconds of it, or what `look` makes of the ranks' pids."""
    def call(what, look=None):
        script = tmp_path / "train.py"
        script.write_text(JOB)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        jobs = []
        try:
            for rank in range(3):
                env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "3",
                       "RANK": str(rank), "LOCAL_RANK": str(rank), "USE_LIBUV": "0"}
                jobs.append(subprocess.Popen([torch_python, script, what], env=env, stdin=subprocess.PIPE,
                                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
            assert all(job.stdout.readline() == "ready\n" for job in jobs)
            if look:
                return look([job.pid for job in jobs])
            done = laggard("record", *(w for job in jobs for w in ("-p", job.pid)), "--for", "4", "-o", tmp_path / "run.lag")
        finally:
            for job in jobs:
                job.kill()
                job.communicate()
        assert done.returncode == 0, done.stderr
        if "tier bpf" not in done.stderr:
            pytest.skip("tier bpf does not work here: " + done.stderr.split("\n")[0])
        said = laggard("explain", "-v", tmp_path / "run.lag")
        print(said.stdout)
        return " ".join(said.stdout.split("\n\n")[0].split()), json.loads(laggard("explain", "--json", tmp_path / "run.lag").stdout)
    return call


@pytest.mark.live
@pytest.mark.parametrize("what, where", [("lost", "lost (train.py:12)"), ("asks", "asks (train.py:16)")])
def test_the_rank_that_never_comes(verdict, what, where):
    """No step, no mark, nothing that runs: where each sleeps says it."""
    headline, _ = verdict(what)
    assert headline == (f"The run stands still: rank 1 sleeps in {where}, ranks 0, 2 wait in all_reduce at step (train.py:25)")


@pytest.mark.live
def test_ranks_that_part(verdict):
    headline, _ = verdict("parts")
    assert "ranks 0, 2 wait in all_reduce at step (train.py:25)" in headline
    assert "rank 1 waits in broadcast at <module> (train.py:34)" in headline


@pytest.mark.live
def test_hang_shows_where_each_rank_stands(laggard, verdict):
    def look(pids):
        time.sleep(3)
        begin = time.monotonic()
        done = laggard("hang", "--json", "-p", ",".join(map(str, pids)))
        assert time.monotonic() - begin < 10 and not done.returncode, done.stderr
        return pids, json.loads(done.stdout), laggard("hang", "-p", ",".join(map(str, pids)), "--for", "2500ms").stdout
    pids, found, text = verdict("lost", look)
    hang = found["hang"]
    if not hang["ranks"] or not hang["ranks"][0]["stack"]:
        pytest.skip("tier bpf does not work here: " + " ".join(found["limits"])[:200])
    assert hang["state"] == "waiting" and 4 <= hang["since_s"] <= 20
    assert [(r["rank"], r["pid"], r["state"]) for r in hang["ranks"]] == [(i, p, "waiting") for i, p in enumerate(pids)]
    assert [r["last_collective"] and r["last_collective"]["op"] for r in hang["ranks"]] == ["all_reduce", None, "all_reduce"]
    assert [s["ranks"] for s in hang["stacks"]] == [[0, 2], [1]]
    assert hang["ranks"][1]["stack"] == ["lost (train.py:12)", "<module> (train.py:32)"]
    assert text.startswith("waiting, for ")
    assert f"rank 0 (pid {pids[0]}), rank 2 (pid {pids[2]})  waiting\n    all_reduce (distributed_c10d.py:" in text
    assert "The run stands still: rank 1 sleeps in lost (train.py:12), ranks 0, 2 wait in" in " ".join(text.split())


@pytest.mark.live
@pytest.mark.healthy
def test_hang_of_a_job_that_moves(laggard, verdict):
    found = verdict("evaluates", lambda pids: json.loads(laggard("hang", "--json", "-p", ",".join(map(str, pids))).stdout))
    assert found["hang"]["state"] == "running" and found["hang"]["since_s"] is None
    assert not [f for f in found["findings"] if f["severity"] in ("medium", "high")]


def test_hang_of_files_and_of_nothing(laggard, root):
    dumps = root / "tests/data/cases/NVIDIA+nvidia-resiliency-ext/fr_traces/lock_gil_1st"
    found = json.loads(laggard("hang", "--json", dumps).stdout)
    assert [f["id"] for f in found["findings"]][:1] == ["comms.missing_rank"]
    hang = found["hang"]
    assert hang["state"] == "hung" and hang["since_s"] is None and not hang["stacks"]
    assert [r["rank"] for r in hang["ranks"]] == list(range(16)) and {r["state"] for r in hang["ranks"]} == {"hung"}
    waits = hang["ranks"][8]["last_collective"]
    assert (waits["op"], waits["seq"], waits["state"]) == ("nccl:all_to_all", 45265, "waiting"), hang["ranks"][8]
    done = laggard("hang")
    assert done.returncode == 2 and "nor a FILE given" in done.stderr
    assert laggard("hang", "-p", "1", dumps).returncode == 2
    assert laggard("hang", "-p", "2147483646").returncode == 2


@pytest.mark.live
@pytest.mark.healthy
def test_a_rank_that_others_only_wait_for(verdict):
    headline, found = verdict("evaluates")
    assert "stands still" not in headline
    assert not [f for f in found["findings"] if f["severity"] in ("medium", "high")]
