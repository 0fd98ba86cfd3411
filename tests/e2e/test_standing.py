# SPDX-License-Identifier: Apache-2.0
"""Jobs that stand still, and one that only waits: real ranks, found by their pids while they hang."""
import json
import os
import socket
import subprocess

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
    def call(what):
        script = tmp_path / "train.py"
        script.write_text(JOB)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        jobs = []
        try:
            for rank in range(3):
                env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "3",
                       "RANK": str(rank), "LOCAL_RANK": str(rank)}
                jobs.append(subprocess.Popen([torch_python, script, what], env=env, stdin=subprocess.PIPE,
                                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
            assert all(job.stdout.readline() == "ready\n" for job in jobs)
            done = laggard("record", *(w for job in jobs for w in ("-p", job.pid)), "--for", "4", "-o", tmp_path / "run.lag")
        finally:
            for job in jobs:
                job.kill()
                job.communicate()
        assert done.returncode == 0, done.stderr
        if "tier bpf" not in done.stderr:
            pytest.skip("tier bpf does not work here: " + done.stderr.split("\n")[0])
        said = laggard("explain", tmp_path / "run.lag")
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
@pytest.mark.healthy
def test_a_rank_that_others_only_wait_for(verdict):
    headline, found = verdict("evaluates")
    assert "stands still" not in headline
    assert not [f for f in found["findings"] if f["severity"] in ("medium", "high")]
