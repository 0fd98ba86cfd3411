# SPDX-License-Identifier: Apache-2.0
"""--job: a job that runs already, by a word for it."""
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest
from conftest import PYTHON


@pytest.mark.parametrize("command", [["record"], ["hang"]])
def test_nobody_is_of_it(laggard, tmp_path, command):
    """One line: what was looked for, and at how many. Nothing is recorded."""
    out = tmp_path / "run.lag"
    for job, words in (("slurm:987654321", "Slurm's job 987654321"), ("ray:no-such-job", "RAY_JOB_ID=no-such-job"),
                       ("container:0123456789abcdef", "container 0123456789abcdef"),
                       ("cgroup:/no.slice/such", "cgroup /no.slice/such"),
                       ("match:no[-]such[-]command", 'command line matches "no[-]such[-]command"')):
        done = laggard(*command, *(["-o", out] if command == ["record"] else []), "--job", job)
        assert done.returncode == 1 and not done.stdout and not out.exists()
        assert re.fullmatch(r"laggard: no process [^\n]*looked at \d+ process[^\n]*\n", done.stderr), done.stderr
        assert words in done.stderr


@pytest.mark.parametrize("job, says", [("4711", "want slurm:ID"), ("slurm:x", "number of a job"), ("match:(", "regular expression"),
                                       ("match:(a)\\1", "back references"), ("cgroup:/", "want a path")])
def test_no_job_at_all(laggard, job, says):
    for command in ("record", "hang"):
        done = laggard(command, "--job", job)
        assert done.returncode == 2 and says in done.stderr and done.stderr.count("\n") == 1


def test_the_expression_in_our_own_command_line_is_nobody(laggard_path, laggard):
    """Nor is the shell that starts us."""
    done = subprocess.run(["sh", "-c", f"{laggard_path} hang --job match:only-here-47; echo $?"], capture_output=True,
                          text=True, check=True, timeout=60)
    assert done.stdout == "1\n" and "no process" in done.stderr
    assert laggard("hang", "--job", "match:a", "--job", "match:b").returncode == 2


ROLE_RANK, ROLE_JOB = 1, 2  # enum lg_role, src/store/trace.h

# Workers that nobody's child is: their launcher forks twice and is gone, as a raylet's are somebody else's.
LAUNCHER = """
import os, sys
for rank in sys.argv[2:]:
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        env = {**os.environ, "RAY_JOB_ID": sys.argv[1], "RANK": rank, "WORLD_SIZE": "3"}
        os.execve(sys.executable, [sys.executable, "-c", '''
import os, time
os.write(1, b"%d\\\\n" % os.getpid())  # at once: two print into one pipe
until = time.monotonic() + 40
while time.monotonic() < until and os.getppid() != 0:
    sum(range(20000))
    time.sleep(0.005)
'''], env)
"""


@pytest.fixture
def launch():
    """launch(job, ranks): pids by rank of workers that were adopted."""
    pids = []

    def call(job, ranks):
        done = subprocess.Popen([PYTHON, "-c", LAUNCHER, job, *map(str, ranks)], stdout=subprocess.PIPE, text=True)
        told = [int(done.stdout.readline()) for _ in ranks]
        done.wait(10)
        pids.extend(told)
        env = {pid: pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") for pid in told}
        return {int(next(v for v in env[pid] if v.startswith(b"RANK="))[5:]): pid for pid in told}
    yield call
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


@pytest.fixture
def processes(laggard_path):
    """Rows of the processes in a recording, by pid."""
    def call(recording):
        build = pathlib.Path(os.environ.get("LAGGARD_BUILD", pathlib.Path(laggard_path).parent))
        lines = subprocess.run([build / "tests/e2e/lag_dump", recording, "process"], check=True, capture_output=True,
                               text=True).stdout.splitlines()
        return {row["pid"]: row for row in map(json.loads, lines)}
    return call


@pytest.mark.live
def test_workers_of_a_launcher_that_is_gone(laggard_path, launch, processes, can_record, tmp_path):
    """Found by their variable, in the order of their ranks; one that comes later is taken in, another job's is not."""
    job, run = f"test{os.getpid()}", tmp_path / "run.lag"
    pids, other = launch(job, [1, 0]), launch(job + "x", [0])
    assert all(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1] != str(os.getpid()) for pid in pids.values())
    record = subprocess.Popen([laggard_path, "record", "--job", f"ray:{job}", "-o", run], stderr=subprocess.PIPE, text=True)
    said = record.stderr.readline()
    assert said == f"laggard: the job: 2 processes, ranks 0, 1 (pids {pids[0]}, {pids[1]})\n"
    while "recording with tier" not in said:
        said = record.stderr.readline()
        assert said
    pids.update(launch(job, [2]))
    time.sleep(2.5)
    for pid in (pids[0], pids[1]):
        os.kill(pid, signal.SIGKILL)
    time.sleep(2.5)
    assert record.poll() is None  # somebody of the job still lives
    os.kill(pids[2], signal.SIGKILL)
    assert record.wait(20) == 0
    rows = processes(run)
    assert [rows[pids[rank]]["rank"] for rank in range(3)] == [0, 1, 2]
    assert len({rows[pid]["role"] for pid in pids.values()}) == 1
    assert rows[other[0]]["rank"] == -1 and rows[other[0]]["role"] != rows[pids[0]]["role"]


@pytest.fixture
def cgroup():
    """A cgroup of our own, or a skip with the reason."""
    root = pathlib.Path("/sys/fs/cgroup")
    for base in (root, root / "unified"):
        path = base / f"laggard-test-{os.getpid()}"
        try:
            if (base / "cgroup.procs").exists():
                path.mkdir()
                break
        except OSError as e:
            pytest.skip(f"no cgroup can be made here: {e}")
    else:
        pytest.skip("no cgroup v2 is mounted here")
    yield path
    for _ in range(50):
        try:
            path.rmdir()
            break
        except OSError:
            time.sleep(0.1)


@pytest.mark.live
def test_a_cgroup_and_what_is_put_into_it_later(laggard_path, laggard, launch, processes, cgroup, can_record, tmp_path):
    run = tmp_path / "run.lag"
    pids = launch(f"cgroup{os.getpid()}", [0, 1])
    (cgroup / "cgroup.procs").write_text(str(pids[0]))
    done = laggard("record", "--job", f"cgroup:{cgroup}", "--for", "1", "-o", run)
    assert done.returncode == 0, done.stderr
    assert f"the job: 1 process, rank 0 (pid {pids[0]})" in done.stderr
    rows = processes(run)
    assert rows[pids[0]]["rank"] == 0 and rows[pids[1]]["rank"] == -1
    # By its path as /proc names it; one that is started in it while it is recorded is taken in.
    path = pathlib.Path(f"/proc/{pids[0]}/cgroup").read_text().split("::")[1].strip()
    record = subprocess.Popen([laggard_path, "record", "--job", f"cgroup:{path}", "--for", "3", "-o", run], stderr=subprocess.PIPE, text=True)
    while "recording with tier" not in (record.stderr.readline() or "recording with tier"):
        pass
    sleeper = subprocess.Popen(["sh", "-c", f"echo $$ >{cgroup}/cgroup.procs; exec sleep 10"])
    assert record.wait(20) == 0
    sleeper.kill()
    sleeper.wait()
    rows = processes(run)
    assert rows[sleeper.pid]["role"] == ROLE_JOB and rows[pids[0]]["role"] == ROLE_RANK
    assert rows[pids[1]]["role"] not in (ROLE_JOB, ROLE_RANK)
