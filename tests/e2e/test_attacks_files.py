# SPDX-License-Identifier: Apache-2.0
"""A user without rights against root's laggard: what can be done with files, folders and names."""
import contextlib
import os
import pathlib
import pwd
import shutil
import stat
import subprocess
import tempfile
import time

import pytest

NOBODY = 65534
PYTHON = "/usr/bin/python3"
NO_CAUSE = ["--tier", "procfs"]  # the cheapest recording: what is attacked here is the same in each tier
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="an attack on root needs root")


@pytest.fixture
def field():
    """A folder that both root and the attacker can reach."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="laggard-attack-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def theirs(field):
    """The attacker's own folder, in which root is made to write."""
    path = field / "theirs"
    path.mkdir(mode=0o755)
    os.chown(path, NOBODY, NOBODY)
    return path


@pytest.fixture
def victim(field):
    """root's file, which the attacker must not change."""
    path = field / "victim"
    path.write_text("precious")
    path.chmod(0o600)
    yield path
    assert path.read_text() == "precious" and path.stat().st_uid == 0


def attacker(function):
    """function() in a process of uid 65534; what it raises is raised here."""
    pid = os.fork()
    if pid == 0:
        status = 1
        with contextlib.suppress(BaseException):
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            function()
            status = 0
        os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0, "the attack itself could not be laid out"


def is_private_file(path, uid=0):
    st = path.lstat()
    return stat.S_ISREG(st.st_mode) and stat.S_IMODE(st.st_mode) == 0o600 and st.st_uid == uid


@pytest.fixture
def recording(laggard, field):
    out = field / "source.lag"
    done = laggard("record", "-q", *NO_CAUSE, "--for", "100ms", "-o", out)
    assert done.returncode == 0, done.stderr
    return out


# Output files ------------------------------------------------------------------------------------

@pytest.mark.parametrize("ring", [False, True])
def test_a_command_that_cannot_start_leaves_the_older_recording(laggard, field, ring):
    old = field / "old.lag"
    old.write_text("older recording")
    done = laggard("record", "-o", old, *NO_CAUSE, *(["--ring", "5s"] if ring else []), "--", "no-such-command")
    assert done.returncode == 127
    assert old.read_text() == "older recording"
    assert [p.name for p in field.iterdir()] == ["old.lag"]


@pytest.mark.parametrize("command", ["true", "no-such-command"])
@pytest.mark.parametrize("ring", [False, True])
def test_a_device_stays_a_device(laggard, field, command, ring):
    node = field / "null"
    os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    laggard("record", "-q", *NO_CAUSE, *(["--ring", "5s"] if ring else []), "-o", node, "--", command)
    assert stat.S_ISCHR(node.lstat().st_mode)
    assert [p.name for p in field.iterdir()] == ["null"]


def test_a_disk_and_a_link_to_a_device_are_refused(laggard, field, recording):
    disk, link = field / "disk", field / "link"
    os.mknod(disk, 0o666 | stat.S_IFBLK, os.makedev(7, 250))
    link.symlink_to("/dev/null")
    for out in (disk, link):
        for args in (("record", *NO_CAUSE, "-o", out, "--", "true"),
                     ("convert", recording, "--format", "json", "-o", out)):
            done = laggard(*args)
            assert done.returncode == 1 and done.stderr.count("\n") == 1 and str(out) in done.stderr
    assert stat.S_ISBLK(disk.lstat().st_mode) and link.is_symlink()


def outputs(recording):
    """Every command that writes a file, as arguments that the path of the file follows."""
    return {
        "record": ["record", "-q", *NO_CAUSE, "--for", "100ms", "-o"],
        "ring": ["record", "-q", *NO_CAUSE, "--for", "300ms", "--ring", "5s", "-o"],
        "json": ["convert", recording, "--format", "json", "-o"],
        "lag": ["convert", recording, "--format", "lag", "-o"],
        "junit": ["diff", recording, recording, "--junit"],
    }


@pytest.mark.parametrize("command", ["record", "ring", "json", "lag", "junit"])
def test_a_link_at_the_wanted_name_is_not_written_through(laggard, theirs, victim, recording, command):
    out = theirs / "out"
    attacker(lambda: out.symlink_to(victim))
    laggard(*outputs(recording)[command], out)
    assert is_private_file(out) and out.stat().st_size > 0
    assert [p.name for p in theirs.iterdir()] == ["out"]


@pytest.mark.parametrize("command", ["record", "ring", "json", "lag", "junit"])
def test_a_link_at_the_temporary_name_is_not_written_through(laggard_path, theirs, victim, recording, command):
    """The old names were NAME.PID.tmp; the attacker knows the pid as soon as it exists."""
    out = theirs / "out"
    child = subprocess.Popen(["sh", "-c", 'read go; exec "$@"', "sh", laggard_path,
                              *map(str, outputs(recording)[command]), str(out)], stdin=subprocess.PIPE,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    planted = theirs / f"out.{child.pid}.tmp"
    attacker(lambda: planted.symlink_to(victim))
    child.communicate(b"\n", timeout=60)
    assert is_private_file(out) and out.stat().st_size > 0
    assert planted.is_symlink(), "what this run did not make it must not remove"


def test_a_fifo_of_another_user_holds_nobody(laggard, theirs, recording):
    out = theirs / "out"
    attacker(lambda: os.mkfifo(out))
    for command in outputs(recording).values():
        began = time.monotonic()
        done = laggard(*command, out, timeout=20)
        assert done.returncode and str(out) in done.stderr
        assert time.monotonic() - began < 2.5
    assert stat.S_ISFIFO(out.lstat().st_mode)


def test_a_fifo_of_ones_own_is_written_into(laggard_path, field, recording):
    out = field / "fifo"
    os.mkfifo(out)
    reader = subprocess.Popen(["timeout", "60", "cat", out], stdout=subprocess.PIPE)
    writer = subprocess.run([laggard_path, "convert", recording, "--format", "json", "-o", out], check=False, timeout=60)
    assert writer.returncode == 0
    assert reader.communicate(timeout=60)[0].startswith(b"{")


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "-"])
def test_names_of_open_files_are_written_into(laggard_path, field, recording, name):
    out = field / "plain"
    before = os.readlink("/dev/stdout")
    try:
        with out.open("wb") as f:
            f.write(b"before\n")
            f.flush()
            subprocess.run([laggard_path, "convert", recording, "--format", "json", "-o", name], check=True,
                           stdout=f)
        assert os.path.islink("/dev/stdout")
    finally:
        if not os.path.islink("/dev/stdout"):  # a build that fails here must not spoil the machine
            os.unlink("/dev/stdout")
            os.symlink(before, "/dev/stdout")
    assert out.read_bytes().startswith(b"before\n{")


@pytest.mark.parametrize("command", ["record", "ring", "json", "lag", "junit"])
def test_a_file_is_private_and_belongs_to_who_ran_sudo(laggard, field, recording, command):
    old_umask = os.umask(0)
    try:
        for env, uid in (({}, 0), ({"SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY)}, NOBODY)):
            out = field / f"out.{uid}"
            out.write_text("an older file, which all may read")
            out.chmod(0o644)
            laggard(*outputs(recording)[command], out, env=env)
            assert is_private_file(out, uid) and out.stat().st_gid == uid
    finally:
        os.umask(old_umask)


def test_only_root_is_believed_about_sudo(laggard_path, theirs):
    """Without rights SUDO_UID names nobody: the file stays its maker's."""
    out = theirs / "out"
    env = {**os.environ, "SUDO_UID": "0", "SUDO_GID": "0"}
    copy = theirs.parent / "laggard"
    shutil.copy(laggard_path, copy)
    attacker(lambda: subprocess.run([copy, "record", "-q", *NO_CAUSE, "--for", "100ms", "-o", out], env=env,
                                    check=True, timeout=60, cwd="/"))
    assert is_private_file(out, NOBODY)


def test_a_ring_on_a_full_disk_keeps_what_fits(laggard, field):
    disk = field / "disk"
    disk.mkdir()
    out = disk / "run.lag"
    flood = "import os, time\nend = time.monotonic() + 3\nwhile time.monotonic() < end: os.sched_yield()\n"
    command = ["record", "--ring", "60s", "-F", "5000", "-o", out, "--", PYTHON, "-c", flood]
    assert laggard(*command).returncode == 0
    size = out.stat().st_size * 2 // 3  # more than the names take, less than all
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], check=True)
    try:
        done = laggard(*command)
        assert done.returncode == 1
        said = [line for line in done.stderr.splitlines() if "only the newest" in line]
        assert len(said) == 1 and "No space left" in said[0], done.stderr
        assert [p.name for p in disk.iterdir()] == ["run.lag"] and out.stat().st_size > size // 3
        done = laggard("explain", "--json", out)
        assert done.returncode in (0, 3) and "disk is full" in done.stdout, done.stderr
        assert "ends before" not in done.stdout
        # Not a byte is free: nothing can be kept, one line says so, and the file before stays.
        (disk / "filler").write_bytes(b"")
        with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as f:
            while f.write(bytes(4096)):
                pass
        before = out.read_bytes()
        done = laggard("record", "-q", "--ring", "60s", "-o", out, "--", "sleep", "0.3")
        assert done.returncode == 1 and done.stderr.count("\n") == 1 and "No space left" in done.stderr
        assert out.read_bytes() == before and len(list(disk.iterdir())) == 2
    finally:
        subprocess.run(["umount", disk], check=True)
