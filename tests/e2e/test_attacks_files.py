# SPDX-License-Identifier: Apache-2.0
"""A user without rights against root's laggard: what can be done with files, folders and names."""
import contextlib
import json
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
    flood = "import os, time\nwhile time.process_time() < 5: os.sched_yield()\n"  # as many samples each time
    command = ["record", "--ring", "60s", "-F", "5000", "-o", out, "--", PYTHON, "-c", flood]
    assert laggard(*command[:-2], "-c", "").returncode == 0
    names = out.stat().st_size
    assert laggard(*command).returncode == 0
    # More than the names take, and less than all: what else runs may treble the names, and double or halve the rest.
    size = 3 * names + (out.stat().st_size - names) // 5
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


# The hook's folder -------------------------------------------------------------------------------

# A job that lives on when its recorder has ended, and then starts programs in every way there is.
LIVES_ON = """
import os, pathlib, subprocess, sys, time
field = pathlib.Path(sys.argv[1])
copied = dict(os.environ)
if os.fork():
    while not (field / "hook").exists():
        time.sleep(0.02)
    os._exit(0)
os.setsid()
(field / "hook.new").write_text(os.environ["PYTHONPATH"].split(":")[0])
(field / "hook.new").rename(field / "hook")
while not (field / "go").exists():
    time.sleep(0.02)
tell = [sys.executable, "-c", "import os, sys; print(os.environ.get('PYTHONPATH'), sys.path)"]
said = [subprocess.run(tell, stdout=subprocess.PIPE, text=True).stdout,
        subprocess.run(tell, stdout=subprocess.PIPE, text=True, env=copied).stdout,
        subprocess.run(tell, stdout=subprocess.PIPE, text=True, close_fds=False).stdout]
os.system(sys.executable + " -c 'import os; print(os.environ.get(\\"PYTHONPATH\\"))' > %s" % (field / "system"))
said.append((field / "system").read_text())
import multiprocessing.util
r, w = os.pipe()
os.set_inheritable(w, True)
os.dup2(w, 1)
pid = multiprocessing.util.spawnv_passfds(os.fsencode(tell[0]), tell, [1])
os.close(w); os.close(1)
os.waitpid(pid, 0)
said.append(os.read(r, 65536).decode())
said.append(repr(sys.path))
(field / "said.new").write_text("\\n".join(said))
(field / "said.new").rename(field / "said")
subprocess.run(["sh", "-c", "exec \\"$@\\"", "sh", *tell], env=copied, stdout=subprocess.DEVNULL)
(field / "done").touch()
"""


def wait_for(path, seconds=20):
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"{path} never came"
        time.sleep(0.02)


@pytest.mark.parametrize("how", ["ends", "is killed"])
def test_the_hooks_folder_cannot_be_taken_over(laggard_path, field, how):
    job, marker = field / "job.py", field / "marker"
    job.write_text(LIVES_ON)
    (field / "out").mkdir()
    field.chmod(0o1777)
    child = subprocess.Popen([laggard_path, "record", "-q", *NO_CAUSE, "-o", field / "out/run.lag", "--",
                              PYTHON, job, field], stdout=subprocess.DEVNULL)
    wait_for(field / "hook")
    hook = pathlib.Path((field / "hook").read_text())
    if how == "is killed":
        child.kill()
    child.wait(timeout=30)

    def plant():
        with contextlib.suppress(OSError):
            hook.mkdir(parents=True)
        with contextlib.suppress(OSError):
            (hook / "sitecustomize.py").write_text(
                f"import os\nopen({str(marker)!r}, 'a').write('ran as %d\\n' % os.getuid())\n")
    attacker(plant)
    (field / "go").touch()
    wait_for(field / "done")
    assert not marker.exists(), marker.read_text()
    said = (field / "said").read_text()
    assert said.count("None") >= 4 and str(hook) not in said, said


def test_a_fifo_called_lock_holds_nobody(laggard, field):
    """In a folder such as those that older versions made, which is where a forger looks first."""
    forged = pathlib.Path("/dev/shm/laggard-AbCdEf")

    def forge():
        forged.mkdir()
        os.mkfifo(forged / "lock")
    attacker(forge)
    try:
        done = laggard("record", "-q", *NO_CAUSE, "-o", field / "run.lag", "--", "true", timeout=20)
        assert done.returncode == 0, done.stderr
        assert laggard("doctor", timeout=60).returncode == 0
        assert (forged / "lock").exists()
    finally:
        shutil.rmtree(forged)


@pytest.mark.parametrize("run", ["writable", "missing"])
def test_a_forged_folder_is_passed_over(laggard_path, run):
    """On a machine where root never ran laggard the attacker is first at the names that root would take."""
    setup = f"""
        mount -t tmpfs -o mode=1777 tmpfs /dev/shm
        mount -t tmpfs -o mode=1777 tmpfs /tmp
        mount -t tmpfs -o mode=755{"" if run == "writable" else ",ro"} tmpfs /run
        setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups sh -c '
            mkdir -m 777 /dev/shm/laggard-0 && mkfifo /dev/shm/laggard-0/lock
            mkdir -m 777 /dev/shm/laggard-0/0123456789abcdef && mkfifo /dev/shm/laggard-0/0123456789abcdef/lock
            ln -s /dev/shm/laggard-0 /tmp/laggard-1' || exit 99
        exec "$@" """
    where = "import os, sys; p = os.environ['PYTHONPATH']; print(p, os.path.exists(p), 'laggard' in sys.modules)"
    store = pathlib.Path(tempfile.mkdtemp(prefix="laggard-attack-", dir="/var/tmp"))
    try:
        copy = shutil.copy(laggard_path, store)  # the build may lie in /tmp
        done = subprocess.run(["unshare", "--mount", "sh", "-c", setup, "sh", copy, "record", *NO_CAUSE, "-o",
                               store / "run.lag", "--", PYTHON, "-c", where], check=False, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        shutil.rmtree(store)
    if "cannot change root filesystem propagation" in done.stderr:
        pytest.skip("/ is no mount point here (a chroot): no mounts can be hidden from others (mount --bind ROOT ROOT)")
    assert done.returncode == 0, done.stderr
    path, there, loaded = done.stdout.split()
    assert path.startswith("/run/laggard/" if run == "writable" else "/dev/shm/laggard-0-")
    assert (there, loaded) == ("True", "True")


@pytest.mark.parametrize("home", ["without a cache", "none"])
def test_who_is_first_at_a_users_names_takes_no_marks(laggard_path, home):
    """A service's account: everybody may write where its folder would be made, and somebody did."""
    uid, names = 54321, [pathlib.Path(f"/dev/shm/laggard-{54321}"), pathlib.Path(f"/tmp/laggard-{54321}")]

    def squat():
        names[0].symlink_to("/etc")
        names[1].mkdir(mode=0o777)
    attacker(squat)
    store = pathlib.Path(tempfile.mkdtemp(prefix="laggard-attack-", dir="/var/tmp"))
    try:
        copy, own = shutil.copy(laggard_path, store), store / "home"
        own.mkdir()
        for path in (store, own):
            os.chown(path, uid, uid)
        env = {k: v for k, v in os.environ.items() if k != "XDG_RUNTIME_DIR"}
        env["HOME"] = str(own if home == "without a cache" else store / "missing")
        where = "import os, sys; p = os.environ['PYTHONPATH']; print(p, os.path.exists(p), 'laggard' in sys.modules)"
        done = subprocess.run(["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", copy, "record",
                               *NO_CAUSE, "-o", store / "run.lag", "--", PYTHON, "-c", where], check=False, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        assert done.returncode == 0, done.stderr
        path, there, loaded = done.stdout.split()
        assert path.startswith(f"{own}/.cache/laggard/" if home == "without a cache" else f"{names[0]}-")
        assert (there, loaded) == ("True", "True")
        assert "without the Python hook" not in done.stderr
    finally:
        shutil.rmtree(store)
        names[0].unlink()
        names[1].rmdir()
        for left in pathlib.Path("/dev/shm").glob(f"laggard-{uid}-*"):
            shutil.rmtree(left)


def test_doctor_runs_nothing_from_the_folder_it_stands_in(laggard, theirs, field):
    marker = field / "marker"

    def plant():
        for name in ("csv", "email", "zipfile", "textwrap", "importlib_metadata", "json"):
            (theirs / f"{name}.py").write_text(f"open({str(marker)!r}, 'w')\n")
    attacker(plant)
    assert laggard("doctor", cwd=theirs, timeout=120).returncode == 0
    assert not marker.exists()


# Another user's command --------------------------------------------------------------------------

WHO = """
import json, os, sys, laggard
for i in range(12):
    with laggard.stage("forward"):
        sum(range(20000))
    laggard.step()
print(json.dumps([os.getresuid(), os.getresgid(), os.getgroups(),
                  *map(os.environ.get, ("HOME", "USER", "LOGNAME", "SHELL"))]))
import time
time.sleep(0.5)
sys.exit(7)
"""


@pytest.mark.parametrize("how", ["name", "number", "sudo"])
def test_the_command_runs_as_the_user_with_its_marks(laggard, field, how):
    out = field / "run.lag"
    args = {"name": ["--user", "nobody"], "number": ["--user", str(NOBODY)], "sudo": []}[how]
    env = {"SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY)} if how == "sudo" else {}
    done = laggard("record", *args, "-o", out, "--", PYTHON, "-c", WHO, env=env, cwd="/")
    assert done.returncode == 7, done.stderr
    user = pwd.getpwuid(NOBODY)
    assert json.loads(done.stdout) == [[NOBODY] * 3, [user.pw_gid] * 3, [user.pw_gid], user.pw_dir, "nobody",
                                       "nobody", user.pw_shell]
    assert "hook disabled" not in done.stderr and "without the Python hook" not in done.stderr
    assert is_private_file(out, NOBODY if how == "sudo" else 0)
    steps = laggard("steps", "--csv", out)
    assert len(steps.stdout.splitlines()) >= 11, steps.stdout + steps.stderr


def test_root_stays_root_where_nothing_else_is_said(laggard, field):
    for args, env in (([], {}), (["--user", "root"], {"SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY)})):
        done = laggard("record", "-q", *NO_CAUSE, *args, "-o", field / "run.lag", "--", "id", "-u", env=env)
        assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_users_that_cannot_be_are_refused(laggard, laggard_path, field):
    for args, env, says in ((["--user", "no-such-user", "--", "true"], {}, "there is no such user"),
                            (["--user", "nobody"], {}, "for a CMD"),
                            (["--", "true"], {"SUDO_UID": "54321", "SUDO_GID": "54321"}, "SUDO_UID 54321")):
        done = laggard("record", *NO_CAUSE, "-o", field / "run.lag", *args, env=env)
        assert done.returncode == 2 and says in done.stderr and done.stderr.count("\n") == 1
    copy = field / "laggard"
    shutil.copy(laggard_path, copy)
    refused = field / "refused"

    def try_it():
        done = subprocess.run([copy, "record", "--user", "root", "-o", "/tmp/x.lag", "--", "true"], check=False,
                              stderr=subprocess.PIPE, text=True, timeout=20, cwd="/")
        assert done.returncode == 2 and "only root" in done.stderr
    attacker(try_it)
    assert not refused.exists() and not (field / "run.lag").exists()


def test_a_ring_that_the_job_truncates_ends_nothing(laggard, field):
    out = field / "run.lag"
    program = """
import os, time, laggard
for i in range(300):
    with laggard.stage("forward"):
        pass
    laggard.step()
where = os.environ["LAGGARD_MARKS"]
if os.fork() == 0:
    ring = [where + "/" + n for n in os.listdir(where) if n.startswith("mark.")][0]
    end = time.monotonic() + 1
    while time.monotonic() < end:
        for size in (0, 4096, 5000, 1 << 40, 70000):
            os.truncate(ring, size)
            time.sleep(0.01)
    os._exit(0)
os.wait()
"""
    done = laggard("record", "--user", "nobody", "-o", out, "--", PYTHON, "-c", program, cwd="/", timeout=60)
    assert done.returncode == 0, done.stderr
    assert "ends before" not in laggard("explain", "--json", out).stdout


def test_marks_of_another_users_process_are_refused(laggard, field):
    """A ring that says it is root's process, to draw its own steps there."""
    out = field / "run.lag"
    program = """
import os, time
from laggard import _ring
victim = os.getppid()
start = int(open("/proc/%d/stat" % victim).read().rpartition(")")[2].split()[19])
_ring.os.getpid, _ring._start_time = lambda: victim, lambda: start
_ring.open_ring()
for i in range(20):
    _ring.step(i)
time.sleep(1)
"""
    done = laggard("record", "--user", "nobody", "-o", out, "--", PYTHON, "-c", program, cwd="/", timeout=60)
    assert done.returncode == 0, done.stderr
    assert "its process is another user's" in laggard("explain", "--json", out).stdout
