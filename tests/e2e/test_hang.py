# SPDX-License-Identifier: Apache-2.0
"""Jobs that hang, for real and all at once: half a minute later laggard hang looks at each, and names the rank."""
import json
import os
import signal
import socket
import subprocess
import time

import pytest

TRAIN = """
import os, signal, sys, threading, time, torch
import torch.distributed as dist
torch.set_num_threads(1)
rank, what = int(os.environ["RANK"]), sys.argv[1]


class Rows(torch.utils.data.Dataset):
    lock = threading.Lock()

    def __len__(self):
        return 1000

    def __getitem__(self, i):
        with self.lock:
            return torch.ones(8)


def step():
    dist.all_reduce(torch.ones(8))


def loads():
    if rank == 1:
        Rows.lock.acquire()  # some thread has it just when the workers are forked
    for _ in torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=2):
        step()


def raises():
    if rank == 1:
        try:
            raise ValueError("shard 7 is not there")
        except ValueError:
            time.sleep(10000)  # the launcher's cleanup waits for the others


def reads():
    if rank == 1:
        open(sys.argv[2]).read()


def stops():
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)


def parts():
    if rank == 1:
        dist.broadcast(torch.ones(8), 0)


def retries():
    while rank == 1:
        time.sleep(20)


def evaluates():
    while rank == 0:
        torch.randn(256, 256) @ torch.randn(256, 256)


def saves():
    while rank == 0:
        with open(sys.argv[3], "wb") as f:
            torch.save([torch.zeros(1 << 20)] * 8, f)
            f.flush()
            os.fsync(f.fileno())


def comes():
    if rank == 1:
        time.sleep(10000)


if what != "meets":
    if what == "comes":
        comes()
    dist.init_process_group("gloo")
    for i in range(20):
        step()
    print("ready", flush=True)
    globals()[what]()
    step()
else:
    print("ready", flush=True)
    dist.init_process_group("gloo")
"""
RANKS = 3
HUNG_AFTER = 30  # seconds: comms.missing_rank's LONG_S


def line_of(text, nth=0):
    return [i + 1 for i, line in enumerate(TRAIN.split("\n")) if text in line][nth]


# what rank 1 (or nobody) does, in the words of the title
HANGS = {
    "loads": f"which sleeps in Rows.__getitem__ (train.py:{line_of('with self.lock')})",
    "raises": f"rank 1 sleeps in raises (train.py:{line_of('time.sleep(10000)')})",
    "reads": f"rank 1 sleeps in reads (train.py:{line_of('open(sys.argv[2])')})",
    "stops": f"rank 1 is stopped in stops (train.py:{line_of('SIGSTOP')})",
    "parts": f"rank 1 waits in broadcast at parts (train.py:{line_of('dist.broadcast')})",
    "retries": f"rank 1 sleeps in retries (train.py:{line_of('time.sleep(20)')})",
    "comes": f"rank 1 sleeps in comes (train.py:{line_of('time.sleep(10000)', 1)})",
    "meets": "were given MASTER_PORT",
}
MOVES = ["evaluates", "saves"]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory, torch_python, can_record):
    """Name -> pids by rank, all of them started half a minute ago."""
    work = tmp_path_factory.mktemp("hang")
    (work / "train.py").write_text(TRAIN)
    os.mkfifo(work / "fifo")
    started, pids = [], {}
    try:
        for what in (*HANGS, *MOVES):
            port = free_port()
            ranks = []
            for rank in range(RANKS):
                own = free_port() if what == "meets" and rank == 1 else port
                env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(own), "WORLD_SIZE": str(RANKS),
                       "RANK": str(rank), "LOCAL_RANK": str(rank), "USE_LIBUV": "0"}
                ranks.append(subprocess.Popen([torch_python, work / "train.py", what, work / "fifo", work / "model.pt"],
                                              env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                              stderr=subprocess.DEVNULL, text=True, start_new_session=True))
            started += ranks
            if what != "comes":
                assert all(job.stdout.readline() == "ready\n" for job in ranks), what
            else:
                time.sleep(5)
            pids[what] = [job.pid for job in ranks]
            if what in MOVES:
                for pid in pids[what]:
                    os.killpg(pid, signal.SIGSTOP)  # until its turn: it would disturb the others
        time.sleep(HUNG_AFTER + 3)
        yield pids
    finally:
        for job in started:
            os.killpg(job.pid, signal.SIGKILL)
            job.communicate()


def look(laggard, pids):
    begin = time.monotonic()
    done = laggard("hang", "--json", "-p", ",".join(map(str, pids)))
    took = time.monotonic() - begin
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    if not any(rank["stack"] for rank in found["hang"]["ranks"]) and found["hang"]["state"] != "running":
        pytest.skip("tier bpf does not work here: " + " ".join(found["limits"])[:200])
    print(json.dumps({**found["hang"], "titles": [f["title"] for f in found["findings"]]}, indent=1))
    assert took < 10
    return found


@pytest.mark.live
@pytest.mark.parametrize("what", HANGS)
def test_the_right_rank_for_the_right_reason(laggard, jobs, what):
    found = look(laggard, jobs[what])
    hang = found["hang"]
    assert hang["state"] == "hung" and hang["since_s"] >= HUNG_AFTER, (hang, found["limits"])
    finding = found["findings"][0]
    assert [(r["rank"], r["pid"], r["state"]) for r in hang["ranks"]] == \
        [(rank, pid, "hung") for rank, pid in enumerate(jobs[what])]
    assert finding["id"] == ("comms.mismatch" if what == "parts" else "comms.missing_rank")
    assert finding["severity"] == "high" and HANGS[what] in finding["title"]
    if what != "parts":
        assert finding["culprit_ranks"] == [1] and finding["culprit"]["pid"] == jobs[what][1]


@pytest.mark.live
@pytest.mark.healthy
@pytest.mark.parametrize("what", MOVES)
def test_a_rank_that_still_works_is_waited_for(laggard, jobs, what):
    for pid in jobs[what]:
        os.killpg(pid, signal.SIGCONT)
    time.sleep(2)
    found = look(laggard, jobs[what])
    for pid in jobs[what]:
        os.killpg(pid, signal.SIGSTOP)
    assert found["hang"]["state"] == "running"
    assert not [f for f in found["findings"] if f["id"].startswith("comms.") and f["severity"] in ("medium", "high")]


def test_a_dump_alone_does_not_say_that_a_job_runs(laggard, root):
    """One moment of one process, which looks at the clock or waits: nobody knows."""
    hang = json.loads(laggard("hang", "--json", root / "tests/data/pyspy/dump.txt").stdout)["hang"]
    assert [r["state"] for r in hang["ranks"]] == ["unknown"] and hang["state"] == "unknown"
