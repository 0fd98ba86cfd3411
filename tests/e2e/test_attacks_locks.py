# SPDX-License-Identifier: Apache-2.0
"""A process of another user whose mmap_lock is held for ever: whoever asks for its command line, environment or
mappings waits, as ps(1) does. As nobody, beside an honest process whose function must keep its name."""
import os
import pathlib
import stat
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from test_attacks_symbols import BEYOND_S, holds, record, recorded, stage  # noqa: E402, F401

pytestmark = [pytest.mark.live,
              pytest.mark.skipif(os.geteuid() != 0, reason="attacks by another user need root to record")]


def start(laggard_path, stage, *mode):  # noqa: F811
    """Three of them; the server, which alone can let a waiting process go, is ended with the stage."""
    if not pathlib.Path("/dev/fuse").exists():
        pytest.skip("no FUSE here")
    tool = pathlib.Path(laggard_path).parent / "tests/e2e/attack_lock"
    assert tool.exists(), "tests/e2e/attack_lock is not built"
    os.mknod(stage.folder / "fuse", stat.S_IFCHR | 0o666, os.makedev(10, 229))
    (stage.folder / "fuse").chmod(0o666)
    for i in range(3):
        folder, ready = stage.folder / f"mount{i}", stage.folder / f"held{i}"
        folder.mkdir(mode=0o777)
        proc = subprocess.Popen([tool, folder, stage.folder / "fuse", ready, *mode])
        stage.running.append(proc)
        end = time.monotonic() + 20
        while not ready.exists():
            if proc.poll() == 4:
                pytest.skip("no user namespaces here, or no FUSE in them")
            assert proc.poll() is None and time.monotonic() < end, "the attacker did not come up"
            time.sleep(0.01)


def test_a_lock_that_is_withheld(laggard, laggard_path, stage, record):  # noqa: F811
    start(laggard_path, stage)
    stage.honest()
    holds(laggard, record())


@pytest.mark.parametrize("mode", ["overlay", "passed", "chroot"])
def test_code_where_a_silent_server_is_asked(laggard, laggard_path, stage, record, mode):  # noqa: F811
    start(laggard_path, stage, mode)
    stage.honest()
    r = record()
    holds(laggard, r)
    said = laggard("query", r.path, "select text from diag").stdout
    assert "were not looked at: who runs those processes decides what is mounted there" in said


@pytest.mark.parametrize("mode", ["exec", "kept"])
def test_what_else_is_withheld(laggard, laggard_path, stage, record, mode):  # noqa: F811
    start(laggard_path, stage, mode)
    stage.honest()
    holds(laggard, record())


def ends(laggard_path, *args):
    """Its status and output, and after how long it ended by itself."""
    began = time.monotonic()
    with subprocess.Popen([laggard_path, *map(str, args)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True) as proc:
        try:
            text, _ = proc.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            proc.kill()
            raise
    return proc.returncode, text, time.monotonic() - began


def ends_in_time(laggard_path, stage, attack, *args):  # noqa: F811
    """Its status and output while attack() attacks: BEYOND_S later at most than without. Where it is later, the
    machine may have become slower, too: the attack is ended, and it runs once more."""
    alone, honest = ends(laggard_path, *args)[2], len(stage.running)
    attack()
    status, text, seconds = ends(laggard_path, *args)
    print(f"{seconds:.1f} s, without the attack {alone:.1f} s")
    if seconds > alone + BEYOND_S:
        for proc in stage.running[honest:]:
            proc.kill()
            proc.wait()
        again = ends(laggard_path, *args)[2]
        assert seconds <= max(alone, again) + BEYOND_S, f"{seconds:.1f} s, not {alone:.1f} or {again:.1f} s\n{text}"
    return status, text


@pytest.mark.parametrize("args", [
    ["doctor"], ["trigger"], ["hang", "-p", "PID", "--for", "1s"], ["record", "--job", "match:no[.]such", "--for", "1s"],
    ["record", "--tier", "procfs", "--for", "1s"], ["record", "--tier", "perf", "--for", "1s"]], ids=" ".join)
def test_every_command_that_asks_others(laggard_path, stage, tmp_path, args):  # noqa: F811
    honest = stage.honest()
    args = [str(honest.pid) if arg == "PID" else arg for arg in args]
    status, text = ends_in_time(laggard_path, stage, lambda: start(laggard_path, stage, "exec"), *args,
                                *(["-o", tmp_path / "run.lag"] if args[0] == "record" else []))
    assert status in (0, 1), text


def test_who_calls_himself_of_the_job_is_not_trusted(laggard, laggard_path, stage, tmp_path):  # noqa: F811
    out = tmp_path / "run.lag"
    stage.start("go(); time.sleep(1000)", "my_training_job", uid=0)  # whom the command finds without the attack
    status, text = ends_in_time(laggard_path, stage, lambda: start(laggard_path, stage, "overlay", "my_training_job"),
                                "record", "--job", "match:my_training_job", "--for", "2s", "-o", out)
    assert status == 0, text
    assert "were not looked at" in laggard("query", out, "select text from diag").stdout


NAMESPACES = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def put(path, text):
    with open(path, "w") as f:
        f.write(text)
for i in range(int(sys.argv[1])):
    if os.fork():
        continue
    libc.prctl(1, 9)  # PR_SET_PDEATHSIG: to go with who started it
    if libc.unshare(0x10000000 | 0x20000):  # CLONE_NEWUSER, CLONE_NEWNS
        os._exit(4)
    put("/proc/self/setgroups", "deny")
    put("/proc/self/uid_map", "0 65534 1")
    put("/proc/self/gid_map", "0 65534 1")
    if libc.mount(b"t", b"/dev/shm", b"tmpfs", 0, None):
        os._exit(4)
    os.makedirs("/dev/shm/laggard-65534/kept", 0o755)
    open(f"{sys.argv[2]}/up{i}", "w").close()
    os.execve("/bin/sleep", ["sleep", "60"],
              {"RANK": "0", "WORLD_SIZE": "1", "LAGGARD_MARKS": "/dev/shm/laggard-65534/kept"})
time.sleep(60)
"""

JOB = """
import os, time
import laggard
end = time.monotonic() + 20
while time.monotonic() < end:
    with laggard.stage("forward"):
        time.sleep(.01)
    laggard.step()
"""


def test_others_folders_of_marks_take_no_places(laggard, laggard_path, stage, tmp_path):  # noqa: F811
    """Seventy of one user, in namespaces of his own; the marks of an honest job, in the one that `laggard env`
    makes, are read all the same."""
    n = 70

    def attack():
        proc = subprocess.Popen([sys.executable, "-c", NAMESPACES, str(n), stage.folder], user=65534, group=65534,
                                extra_groups=[])
        stage.running.append(proc)
        end = time.monotonic() + 20
        while len(list(stage.folder.glob("up*"))) < n:
            if time.monotonic() > end:
                pytest.skip("no user namespaces here")
            time.sleep(0.05)
    stage.running.append(subprocess.Popen(
        ["sh", "-c", 'eval "$("$0" env)" && exec "$@"', laggard_path, sys.executable, "-c", JOB],
        env={**os.environ, "RANK": "0", "WORLD_SIZE": "1"}, stderr=subprocess.DEVNULL))
    time.sleep(2)
    out = tmp_path / "run.lag"
    status, text = ends_in_time(laggard_path, stage, attack, "record", "--for", "3s", "-o", out)
    assert status == 0, text
    spans = laggard("query", out, "select count(*) n from span where name = 'forward'").stdout.split()
    assert int(spans[-1]) > 100, (spans, text)
    assert "more folders of marks than are read" in laggard("query", out, "select text from diag").stdout
