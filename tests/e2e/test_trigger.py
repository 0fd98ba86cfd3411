# SPDX-License-Identifier: Apache-2.0
"""record --trigger, laggard trigger and --at on real processes: what fires, what does not, what is written."""
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import textwrap
import time

import pytest
from live import Accused
from test_record import PYTHON, start, wait_for

# A loop of 10 ms steps that mark themselves. EXTRA: what it does beside computing, by the number of the step.
LOOP = """
import os, sys, time
import laggard

def compute(ms):
    end = time.process_time() + ms / 1000
    while time.process_time() < end:
        sum(range(200))

def main(steps, extra):
    open(sys.argv[1], "w").write(str(os.getpid()))
    begin = time.monotonic()
    n = 0
    while time.monotonic() < begin + steps:
        n += 1
        with laggard.stage("forward"):
            compute(8)
        extra(n)
        laggard.step()
"""


class Job:
    """A recorded loop: what the recorder said, and what it wrote."""

    def __init__(self, laggard_path, folder, extra, seconds, *options):
        self.out, self.pid_file = folder / "run.lag", folder / "pid"
        (folder / "loop.py").write_text(LOOP, encoding="utf-8")
        (folder / "job.py").write_text(textwrap.dedent(extra) + f"\nimport loop\nloop.main({seconds}, extra)\n",
                                       encoding="utf-8")
        self.recorder = start(laggard_path, "-o", self.out, *options, "--", PYTHON, folder / "job.py", self.pid_file,
                              cwd=folder)

    def pid(self):
        wait_for(self.pid_file)
        while not (text := self.pid_file.read_text(encoding="ascii")):
            time.sleep(0.02)
        return int(text)

    def stop(self, seconds):
        """Somebody stops the job for so long: a process of its own, by which the verdict is to know it. The job says
        when: not while it saves."""
        code = """
            import os, signal, sys, time
            pid, folder, seconds = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
            open(folder + "/ask", "w")
            while os.path.exists(folder + "/ask"):
                time.sleep(0.005)
            os.kill(pid, signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(pid, signal.SIGCONT)
        """
        subprocess.run([PYTHON, "-c", textwrap.dedent(code), str(self.pid()), str(self.out.parent), str(seconds)],
                       check=True, timeout=60)

    def end(self):
        _, self.said = self.recorder.communicate(timeout=120)
        assert self.recorder.returncode == 0, self.said
        return sorted(self.out.parent.glob("run-*.lag"))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.recorder.poll() is None:
            self.recorder.kill()
            self.recorder.communicate()
        if self.pid_file.exists():
            try:
                os.kill(self.pid(), signal.SIGKILL)
            except (OSError, ValueError):
                pass


NOTHING = "def extra(n): pass"


def explain(laggard, path):
    done = laggard("explain", "--json", path)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def written_at(path):
    """(number, what fired) of run-3-20260131T101502Z-rank1-step812.lag"""
    m = re.fullmatch(r"run-(\d+)-\d{8}T\d{6}Z-(.*)\.lag", path.name)
    assert m, path
    return int(m[1]), m[2]


# ---- what is refused -------------------------------------------------------------------------

@pytest.mark.parametrize("options, said", [
    (["--trigger", "step > 3", "--ring", "9s"], "'step > 3'"),
    (["--trigger", "loss > 3x", "--ring", "9s"], "accepted are 'step > 3x'"),
    (["--trigger", "step > 3x"], "--ring"),
    (["--trigger", "step > 3x", "--ring", "9s", "--no-hook"], "marks"),
    (["--trigger"] + ["rss > 90%", "--trigger"] * 8 + ["rss > 90%", "--ring", "9s"], "8 at most"),
    (["--max-dumps", "0"], "--max-dumps"),
    (["--at", "10s"], "/10s"),
    (["--at", "/10ms"], "/10s"),
])
def test_wrong_triggers_are_refused_before_anything_runs(laggard, tmp_path, options, said):
    done = laggard("record", "-o", tmp_path / "run.lag", *options, "--", "touch", tmp_path / "ran")
    assert done.returncode == 2 and said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "ran").exists() and not (tmp_path / "run.lag").exists()


def test_no_job_no_steps(laggard, tmp_path):
    done = laggard("record", "-o", tmp_path / "run.lag", "--ring", "9s", "--trigger", "step > 3x")
    assert done.returncode == 2 and "laggard env" in done.stderr


# ---- what fires ------------------------------------------------------------------------------

@pytest.mark.live
def test_each_stall_is_written_once_and_explained(laggard, laggard_path, tmp_path, can_record):
    """Three stalls, and a checkpoint each 50 steps that fires nothing."""
    save = """
        import os, time, laggard
        def extra(n):
            if n % 50 == 0:
                with laggard.stage("side"):
                    time.sleep(0.2)
            if n % 50 == 20 and os.path.exists("ask"):
                os.unlink("ask")
    """
    with Job(laggard_path, tmp_path, save, 42, "--ring", "20s", "--trigger", "step > 10x") as job:
        job.pid()
        time.sleep(3)
        for length in (0.4, 0.5, 0.6):
            job.stop(length)
            time.sleep(11.5)
        files = job.end()
    assert len(files) == 3, job.said
    for number, path in enumerate(files, 1):
        found = explain(laggard, path)
        text = laggard("explain", "-v", path).stdout
        assert written_at(path)[0] == number
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert found["fired"][0]["trigger"] == "step > 10x"
        assert 300 < found["fired"][0]["dur_ms"] < 900
        assert f"step{found['fired'][0]['step']}" in path.name and f"pid{found['fired'][0]['pid']}" in path.name
        assert text.startswith("fired: step > 10x: step ")
        stopped = [f for f in found["findings"] if f["id"] == "host.stopped"]
        assert stopped and "stopped" in found["fired"][0]["answer"], text
        assert "SIGSTOP" in (stopped[0]["culprit"]["cmdline"] or ""), stopped[0]["culprit"]
    assert job.said.count("step > 10x: step ") == 3


@pytest.mark.live
@pytest.mark.healthy
def test_warm_up_checkpoints_and_drift_fire_nothing(laggard_path, tmp_path, can_record):
    calm = """
        import time, laggard, loop
        def extra(n):
            if n <= 4:
                time.sleep(0.8)          # compiles
            loop.compute(n / 60)         # grows
            if n % 40 == 0:
                with laggard.stage("side"):
                    time.sleep(0.3)
    """
    with Job(laggard_path, tmp_path, calm, 20, "--ring", "20s", "--trigger", "step > 20x", "--trigger", "hang > 10s",
             "--trigger", "rss > 99%") as job:
        files = job.end()
    if files:
        raise Accused(job.said)


@pytest.mark.live
def test_a_hang_and_no_more_than_max_dumps(laggard, laggard_path, tmp_path, can_record):
    hang = """
        import time
        def extra(n):
            if n in (100, 300, 500):
                time.sleep(4)
    """
    with Job(laggard_path, tmp_path, hang, 24, "--ring", "5s", "--trigger", "hang > 2s", "--max-dumps", "2") as job:
        files = job.end()
    assert [written_at(f)[1].split("-")[0] for f in files] == ["hang", "hang"], job.said
    assert "the ring keeps 12 s" in job.said and "--max-dumps" in job.said
    found = explain(laggard, files[0])
    assert found["fired"][0]["trigger"] == "hang > 2s" and 2000 < found["fired"][0]["dur_ms"] < 3500
    assert found["fired"][0]["step"] == 100
    # The wait was under way when the file was written: it is in it, with where the thread slept.
    assert found["steps"]["count"] > 50


@pytest.mark.live
def test_memory_fires_without_marks(laggard, laggard_path, tmp_path, can_record):
    out = tmp_path / "run.lag"
    child = start(laggard_path, "-o", out, "--ring", "5s", "--trigger", "rss > 1%", "--for", "6s", "-p", os.getpid())
    _, said = child.communicate(timeout=60)
    files = sorted(tmp_path.glob("run-*.lag"))
    assert child.returncode == 0 and len(files) == 1, said
    assert written_at(files[0])[1] == "rss"
    fired = explain(laggard, files[0])["fired"][0]
    assert fired["trigger"] == "rss > 1%" and "in use" in fired["why"] and fired["rank"] is None


@pytest.mark.live
def test_triggers_without_marks_say_so(laggard_path, tmp_path):
    child = start(laggard_path, "-o", tmp_path / "run.lag", "--ring", "5s", "--tier", "procfs", "--trigger", "step > 3x",
                  "--", "sleep", "2")
    _, said = child.communicate(timeout=60)
    assert child.returncode == 0 and "step > 3x: no process has marked a step" in said


# ---- laggard trigger -------------------------------------------------------------------------

@pytest.mark.live
def test_what_is_asked_for_is_written_while_recording_goes_on(laggard, laggard_path, tmp_path, can_record):
    with Job(laggard_path, tmp_path, NOTHING, 12, "--ring", "20s") as job:
        job.pid()
        time.sleep(4)
        done = laggard("trigger", "-p", job.recorder.pid)
        assert done.returncode == 0 and not done.stdout and str(job.recorder.pid) in done.stderr
        wait_for(tmp_path / "run-1.lag")
        done = laggard("trigger", job.recorder.pid)
        assert done.returncode == 0
        files = job.end()
    assert [f.name for f in files] == ["run-1.lag", "run-2.lag"], job.said
    first, last = explain(laggard, files[0]), explain(laggard, job.out)
    assert first["fired"][0]["trigger"] == "SIGUSR1" and "asked for it" in first["fired"][0]["why"]
    assert "fired" not in last
    assert last["steps"]["count"] > first["steps"]["count"] > 100
    # It has names, as the last file has.
    names = [set(subprocess.run([laggard_path, "query", str(f), "SELECT DISTINCT name FROM frame"], check=True,
                                stdout=subprocess.PIPE, text=True).stdout.split()) for f in (files[0], job.out)]
    assert any("compute" in n for n in names[0])
    assert len(names[0] & names[1]) > len(names[1]) / 3


@pytest.mark.live
def test_only_a_recorder_is_signalled(laggard, laggard_path, tmp_path, can_record):
    """SIGUSR1 would end each of these."""
    fake = tmp_path / "fake" / "laggard"
    fake.parent.mkdir()
    shutil.copy(os.path.realpath(PYTHON), fake)
    (fake.parent / "record").write_text("import time\nprint(1, flush=True)\ntime.sleep(60)\n", encoding="ascii")
    victims = [subprocess.Popen(["sleep", "60"]),
               subprocess.Popen([fake, "record", "--ring", "5s"], cwd=fake.parent, stdout=subprocess.PIPE),
               subprocess.Popen(["laggard", "record", "--ring", "5s"], executable=PYTHON, cwd=fake.parent,
                                stdout=subprocess.PIPE),
               start(laggard_path, "-o", tmp_path / "whole.lag", "--tier", "procfs", "-p", os.getpid())]
    try:
        for victim in victims[1:3]:
            assert victim.stdout.readline() == b"1\n"
        while "recording" not in victims[3].stderr.readline():
            pass
        for victim in victims:
            done = laggard("trigger", "-p", victim.pid)
            assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
        time.sleep(0.3)
        assert all(v.poll() is None for v in victims)
        assert laggard("trigger").returncode == 1
        assert laggard("trigger", "1").returncode == 1
        assert laggard("trigger", "x").returncode == laggard("trigger", "1", "2").returncode == 2
    finally:
        for victim in victims:
            victim.kill()
            victim.communicate()


@pytest.mark.live
def test_another_users_recorder_is_left_alone(laggard_path, tmp_path, can_record):
    tool = tmp_path / "laggard"
    shutil.copy(laggard_path, tool)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    child = start(laggard_path, "-o", tmp_path / "run.lag", "--ring", "5s", "--tier", "procfs", "-p", os.getpid())
    try:
        while "recording" not in child.stderr.readline():
            pass
        for args in (["-p", str(child.pid)], []):
            done = subprocess.run([tool, "trigger", *args], check=False, user=65534, group=65534, extra_groups=[],
                                  stderr=subprocess.PIPE, text=True)
            assert done.returncode == 1 and ("another user's" in done.stderr or "no recorder" in done.stderr)
        time.sleep(0.5)
        assert not list(tmp_path.glob("run-*"))
    finally:
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=30)


FAKE = """
import os, signal, time
os.setgid(65534), os.setuid(65534)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print(1, flush=True)
time.sleep(60)
"""


@pytest.mark.live
@pytest.mark.skipif(os.geteuid() != 0, reason="another user needs root to be made")
def test_what_others_call_a_recorder_is_in_nobodys_way(laggard_path, tmp_path, can_record):
    fake = tmp_path / "fake" / "laggard"
    fake.parent.mkdir()
    shutil.copy(os.path.realpath(PYTHON), fake)
    (fake.parent / "record").write_text(FAKE, encoding="ascii")
    other = subprocess.Popen([fake, "record", "--ring", "5s"], cwd=fake.parent, stdout=subprocess.PIPE)
    child = start(laggard_path, "-o", tmp_path / "run.lag", "--ring", "5s", "--tier", "procfs", "-p", os.getpid())
    try:
        assert other.stdout.readline() == b"1\n"
        while "recording" not in child.stderr.readline():
            pass
        done = subprocess.run([laggard_path, "trigger"], check=False, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 0 and f"asked recorder {child.pid} to" in done.stderr, done.stderr
        wait_for(tmp_path / "run-1.lag")
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=30)
        done = subprocess.run([laggard_path, "trigger"], check=False, stderr=subprocess.PIPE, text=True)
        assert f"asked recorder {other.pid} of user 65534" in done.stderr, done.stderr
    finally:
        for proc in (other, child):
            proc.kill()
            proc.communicate()


# ---- what can go wrong -----------------------------------------------------------------------

@pytest.mark.live
def test_a_full_disk_keeps_what_was_whole(laggard, laggard_path, tmp_path, can_record):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", disk], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    child = None
    try:
        child = start(laggard_path, "-o", disk / "run.lag", "--ring", "20s", "-F", "999", "-p", os.getpid())
        while "recording" not in child.stderr.readline():
            pass
        busy = subprocess.Popen(["sh", "-c", "while :; do /bin/true; done"])
        time.sleep(6)
        (disk / "old").write_bytes(b"x" * 300_000)
        child.send_signal(signal.SIGUSR1)
        time.sleep(4)
        busy.kill()
        busy.wait()
        assert child.poll() is None
        kept = sorted(p.name for p in disk.iterdir())
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=60)
        assert (disk / "old").stat().st_size == 300_000
        assert set(kept) <= {"old", "run-1.lag"}, kept # nothing half written
        if "run-1.lag" in kept:
            assert laggard("explain", "-v", disk / "run-1.lag").returncode == 0
        assert "run-1.lag" in said
    finally:
        if child and child.poll() is None:
            child.kill()
            child.communicate()
        subprocess.run(["umount", "-l", disk], check=False)


@pytest.mark.live
def test_memory_stays_bounded(laggard_path, tmp_path, can_record):
    """The ring and a copy of the recorder that writes it, again and again."""
    def resident(pid):
        try:
            text = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        except OSError:
            return 0
        return int((re.search(r"RssAnon:\s+(\d+)", text) or [0, 0])[1]) / 1024

    with Job(laggard_path, tmp_path, NOTHING, 25, "--ring", "3s") as job:
        job.pid()
        most = 0
        for _ in range(8):
            time.sleep(2)
            job.recorder.send_signal(signal.SIGUSR1)
            end = time.monotonic() + 0.5
            while time.monotonic() < end:
                most = max(most, resident(job.recorder.pid))
                time.sleep(0.02)
        files = job.end()
    assert len(files) == 8 and most < 256, (most, job.said)
    sizes = [f.stat().st_size for f in files]
    assert sizes[-1] < 3 * sizes[1]


# ---- --at ------------------------------------------------------------------------------------

@pytest.mark.live
def test_at_begins_at_the_boundary(laggard, laggard_path, tmp_path, can_record):
    out = tmp_path / "run.lag"
    done = laggard("record", "-o", out, "--at", "/5s", "--for", "1s", "--", "sh", "-c", "date +%s.%N; sleep 1.5")
    assert done.returncode == 0, done.stderr
    began = float(done.stdout)
    assert 0 <= began % 5 < 0.5, done.stderr
    assert explain(laggard, out)["inputs"][0]["duration_s"] < 4.5
    assert "wall clock" in done.stderr


@pytest.mark.live
def test_at_can_be_interrupted(laggard_path, tmp_path):
    child = start(laggard_path, "-o", tmp_path / "run.lag", "--at", "/1h", "--tier", "procfs", "--", "touch", tmp_path / "ran")
    while "beginning" not in child.stderr.readline():
        pass
    child.send_signal(signal.SIGTERM)
    try:
        _, said = child.communicate(timeout=30)
    finally:
        child.kill()
    assert child.returncode != 0 and "before the recording began" in said
    assert not (tmp_path / "ran").exists()
