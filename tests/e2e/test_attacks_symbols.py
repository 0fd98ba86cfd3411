# SPDX-License-Identifier: Apache-2.0
"""What an unprivileged user does to the symbols that laggard reads as root: each attack runs as nobody against a
live recording (or the import of a perf.data), beside an honest process whose function must keep its name."""
import contextlib
import ctypes
import json
import os
import pathlib
import platform
import shutil
import signal
import stat
import struct
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from live import unbroken

pytestmark = [pytest.mark.live,
              pytest.mark.skipif(os.geteuid() != 0, reason="attacks by another user need root to record")]

NOBODY = 65534
FOR_S, BEYOND_S = 2, 2
MEMORY = 256 << 20
IMPORT_S = 20
PAGE = 4096
# count the first argument down to zero; return
LOOP = {"x86_64": bytes.fromhex("48ffcf75fbc3"), "aarch64": bytes.fromhex("000400f1e1ffff54c0035fd6")}
CODE = LOOP.get(platform.machine(), b"")
# the same, called from a chain of frame pointers that the second argument begins
BELOW = {"x86_64": bytes.fromhex("554889f548ffcf75fb5dc3"),
         "aarch64": bytes.fromhex("fd7bbfa9fd0301aa000400f1e1ffff54fd7bc1a8c0035fd6")}.get(platform.machine(), b"")
EM = {"x86_64": 62, "aarch64": 183}.get(platform.machine(), 0)


def doublings(n):
    """A mangled name of a few hundred bytes that stands for 2^n of them: P<A,A>, P<P<A,A>,P<A,A>> ..."""
    def ref(i):
        digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
        return f"S{digits[i] if i < 36 else digits[i // 36] + digits[i % 36]}_"
    return "_Z1f1A1PIS_S_E" + "".join(f"S0_I{ref(i)}{ref(i)}E" for i in range(1, n))


def elf(symbols, size=0, symbol=b"of_the_file", base=0):
    """A shared object: headers, code in its second page, a symbol table of that many entries. size: sparse. base: what
    is said to lie there lies at base + PAGE, in the file, too."""
    names = b"\0" + symbol + b"\0"
    text, strings = PAGE, 2 * PAGE
    table = max(3 * PAGE, strings + len(names))
    count = max(symbols, 2)
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, EM, 1, 0, 64, 120, 0, 64, 56, 1, 64, 4, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, base, base, base, 2 * PAGE, 2 * PAGE, PAGE)

    def section(kind, flags, at, n, link=0, entry=0):
        return struct.pack("<IIQQQQIIQQ", 0, kind, flags, at, at, n, link, 0, 1, entry)
    head += load + section(0, 0, 0, 0) + section(1, 6, text, PAGE) + section(3, 0, strings, len(names))
    head += section(2, 0, table, 24 * count, 2, 24)
    first = struct.pack("<IBBHQQ", 1, 0x12, 0, 1, base + text, PAGE)
    body = bytearray(table + 48)
    body[:len(head)], body[text:text + len(CODE)] = head, CODE
    body[strings:strings + len(names)] = names
    body[table + 24:table + 48] = first
    return bytes(body), max(size, table + 24 * count, base + 2 * PAGE if base else 0)


# What every process of these tests does: become somebody, make code, say that it is there, run it.
PROLOGUE = textwrap.dedent("""
    import ctypes, mmap, os, sys, time
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    code, uid, ready, page = bytes.fromhex(sys.argv[1]), int(sys.argv[2]), sys.argv[3], 4096
    def mapped(fd, offset):
        flags = mmap.MAP_PRIVATE | (mmap.MAP_ANONYMOUS if fd < 0 else 0)
        return libc.mmap(None, page, 5 if fd >= 0 else 7, flags, fd, offset)
    def run(at):
        spin = ctypes.CFUNCTYPE(None, ctypes.c_ulong)(at)
        while True:
            spin(1 << 22)
    def go():
        open(ready, "w").close()
    def anonymous():
        at = mapped(-1, 0)
        ctypes.memmove(at, code, len(code))
        return at
    def leave_root():
        os.nice(15)  # not the CPU is attacked
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    my_map = f"/tmp/perf-{os.getpid()}.map"
""")


class Stage:
    """Processes of a test, what they leave in /tmp, and the folder that nobody may write to."""

    def __init__(self, folder):
        self.folder, self.running = folder, []
        folder.chmod(0o777)

    def start(self, script, *args, uid=NOBODY, **more):
        ready = self.folder / f"ready{len(self.running)}"
        proc = subprocess.Popen([sys.executable, "-c", PROLOGUE + textwrap.dedent(script), CODE.hex(), str(uid),
                                 str(ready), *map(str, args)], **more)
        self.running.append(proc)
        end = time.monotonic() + 60
        while not ready.exists():
            assert proc.poll() is None and time.monotonic() < end, "the attacker did not come up"
            time.sleep(0.01)
        return proc

    def honest(self):
        """A process of root whose code has a name in its perf map."""
        return self.start("""
            at = anonymous()
            with open(my_map, "w") as f:
                f.write(f"{at:x} {page:x} honest_function\\n")
            go(); run(at)
        """, uid=0)

    def end(self):
        for proc in self.running:
            proc.kill()
            proc.wait()
            path = pathlib.Path(f"/tmp/perf-{proc.pid}.map")
            if path.is_symlink() or path.exists():
                path.unlink()


@pytest.fixture
def stage():
    if not CODE:
        pytest.skip("no machine code for this processor here")
    folder = pathlib.Path(subprocess.check_output(["mktemp", "-d", "/tmp/attack.XXXXXX"], text=True).strip())
    s = Stage(folder)
    yield s
    s.end()
    shutil.rmtree(folder)


def status_of(pid, tid=None):
    try:
        text = pathlib.Path(f"/proc/{pid}/task/{tid or pid}/status").read_text()
    except OSError:
        return {}
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


def family(pid):
    """pid and all below it."""
    found = [pid]
    for p in found:
        try:
            found += map(int, pathlib.Path(f"/proc/{p}/task/{p}/children").read_text().split())
        except OSError:
            pass
    return found


def threads_of(pid):
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


class Watch(threading.Thread):
    """What the recorder and its children have, looked at all the time."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.stop, self.peak, self.children, self.sum = pid, False, {}, {}, 0
        self.recorder, self.threads = {}, []

    def run(self):
        while not self.stop:
            now = 0
            for pid in family(self.pid):
                s = status_of(pid)
                if "VmHWM" not in s:
                    continue
                now += int(s["VmRSS"].split()[0]) << 10
                self.peak[pid] = max(self.peak.get(pid, 0), int(s["VmHWM"].split()[0]) << 10)
                if pid == self.pid:
                    self.recorder = s
                    self.threads = [status_of(pid, t) for t in threads_of(pid)]
                elif s["Name"] == "laggard-names":
                    self.children[pid] = s
            self.sum = max(self.sum, now)
            time.sleep(0.005)


class Recorded:
    def __init__(self, path, beyond_s, watch, text):
        self.path, self.beyond_s, self.watch, self.text = path, beyond_s, watch, text


@pytest.fixture
def recorded(laggard_path, tmp_path):
    def call(*during):
        """during: what happens halfway, and what it is told behind the recorder's pid."""
        out = tmp_path / "run.lag"
        proc = subprocess.Popen([laggard_path, "record", "-a", "--for", f"{FOR_S}s", "-o", out],
                                stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        watch = Watch(proc.pid)
        watch.start()
        line = proc.stderr.readline()
        began = time.monotonic()
        timer = threading.Timer(FOR_S + 60, proc.kill)
        timer.start()
        if during:
            time.sleep(FOR_S / 2)
            during[0](proc.pid, *during[1:])
        text = line + proc.stderr.read()
        status = proc.wait()
        beyond = time.monotonic() - began - FOR_S
        timer.cancel()
        unbroken(status in (0, -signal.SIGKILL), f"status {status}\n{text}")
        watch.stop = True
        watch.join()
        assert status == 0, f"status {status}, {beyond:.1f} s beyond --for\n{text}"
        return Recorded(out, beyond, watch, text)
    return call


@pytest.fixture
def record(stage, recorded):
    """A recording of what the stage has: its end is late by what the machine costs, which one without the attack
    tells, and by what the attack does."""
    def call():
        attacked = recorded()
        if attacked.beyond_s >= BEYOND_S:
            for proc in stage.running:
                proc.send_signal(signal.SIGSTOP)
            attacked.text += f"without the attack: {recorded_beside(recorded, attacked):.2f} s beyond --for"
            for proc in stage.running:
                proc.send_signal(signal.SIGCONT)
        return attacked
    return call


def recorded_beside(recorded, attacked):
    """What the machine itself costs now; the attacked recording is late only by what is above it."""
    kept = attacked.path.with_suffix(".kept")
    attacked.path.rename(kept)
    alone = recorded().beyond_s
    kept.rename(attacked.path)
    attacked.beyond_s -= alone
    return alone


def query(laggard, path, sql):
    done = laggard("query", "--json", path, sql)
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    return got if isinstance(got, list) else got["rows"]


def holds(laggard, r, name="honest_function"):
    """The recording ended in time, is whole, cost no more memory than it may, and others kept their names."""
    # One process after the other reads: the sum at any moment, and the peaks of the largest two.
    peaks = sorted(r.watch.peak.values())
    recorder = r.watch.peak[r.watch.pid]
    others = [v for pid, v in r.watch.peak.items() if pid != r.watch.pid]
    unbroken(recorder + max(others, default=0) <= MEMORY, (r.watch.peak, peaks))
    unbroken(r.watch.sum <= MEMORY, r.watch.peak)
    done = laggard("explain", "--json", r.path)
    unbroken(done.returncode == 0, done.stderr)
    assert r.beyond_s < BEYOND_S, f"{r.beyond_s:.2f} s beyond --for\n{r.text}"
    names = [row["n"] for row in query(laggard, r.path, f"select count(*) n from frame where name = '{name}'")]
    assert names[0] > 0, f"{name} lost its name\n{r.text}"


def lost(laggard, path):
    return [row["text"] for row in query(laggard, path, "select text from diag where xid = 27")]


def test_the_process_that_reads_symbols_may_do_nothing(laggard, stage, record):
    stage.honest()
    r = record()
    holds(laggard, r)
    assert r.watch.children, "no process of its own reads symbols"
    assert not int(r.watch.recorder["CapEff"], 16) & (1 << 21 | 1 << 12 | 1 << 16 | 1 << 17), "SYS_ADMIN, NET_ADMIN ..."
    assert r.watch.recorder["CapBnd"] == r.watch.recorder["CapEff"] and r.watch.recorder["NoNewPrivs"] == "1"
    for s in filter(None, r.watch.threads):
        assert s["CapEff"] == r.watch.recorder["CapEff"] and s["CapPrm"] == r.watch.recorder["CapPrm"], s
    for s in r.watch.children.values():
        assert (s["CapEff"], s["CapPrm"], s["CapInh"], s["CapAmb"], s["CapBnd"]) == ("0" * 16,) * 5, s
        assert (s["Seccomp"], s["NoNewPrivs"]) == ("2", "1")
        users = set(s["Uid"].split()) | set(s["Gid"].split())
        assert len(users) == 1 and int(users.pop()) >= 0x7f000000, "a user that nobody else is"
        assert not s["Groups"].strip()


SIGNALS = """
    import signal
    leave_root()
    go()
    while not os.path.exists(sys.argv[4]):
        time.sleep(0.01)
    for pid in map(int, open(sys.argv[4]).read().split()):
        for n in (signal.SIGSTOP, signal.SIGKILL):
            try:
                os.kill(pid, n)
                print("done", flush=True)
            except PermissionError:
                print("refused", flush=True)
"""


def keeper_and_reader(recorder):
    pids = [p for p in family(recorder) if status_of(p).get("Name") == "laggard-names"]
    assert len(pids) == 2
    return pids


def test_no_other_user_can_signal_the_process_that_reads_symbols(laggard, stage, recorded, monkeypatch):
    """Who is nobody, and who called sudo."""
    caller = 54321
    monkeypatch.setenv("SUDO_UID", str(caller))
    monkeypatch.setenv("SUDO_GID", str(caller))
    stage.honest()
    said, pids = [stage.folder / f"said.{uid}" for uid in (NOBODY, caller)], stage.folder / "pids"

    def tell(recorder):
        new = stage.folder / "pids.new"
        new.write_text(" ".join(map(str, keeper_and_reader(recorder))))
        new.rename(pids)
    for uid, path in zip((NOBODY, caller), said):
        with path.open("w") as f:
            stage.start(SIGNALS, pids, uid=uid, stdout=f)
    r = recorded(tell)
    assert [path.read_text().split() for path in said] == [["refused"] * 4] * 2
    assert query(laggard, r.path, "select count(*) n from frame where name = 'honest_function'")[0]["n"] > 0


@contextlib.contextmanager
def freezer():
    """A function that freezes processes: of the first version of control groups where there is one, in which
    a process that is frozen does not even die."""
    for root, file, on, off in (("/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED"),
                                ("/sys/fs/cgroup", "cgroup.freeze", "1", "0")):
        group = pathlib.Path(root) / f"laggard-attack-{os.getpid()}"
        with contextlib.suppress(OSError):
            group.mkdir()
            break
    else:
        pytest.skip("no control groups to freeze a process in")

    def freeze(pids):
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))
        (group / file).write_text(on)
    try:
        yield freeze
    finally:
        (group / file).write_text(off)
        end = time.monotonic() + 20
        while (group / "cgroup.procs").read_text() and time.monotonic() < end:
            time.sleep(0.05)
        group.rmdir()


@pytest.mark.parametrize("how", ["stopped", "frozen", "killed"])
def test_the_process_that_reads_symbols_does_not_answer(laggard, stage, recorded, how):
    """Whatever stops it (root may; a read can hang): the recording is whole, in time, and the loss is said."""
    def stop(recorder, do):
        do(keeper_and_reader(recorder))

    def signals(number):
        return lambda pids: [os.kill(p, number) for p in pids]
    stage.honest()
    with contextlib.ExitStack() as stack:
        do = {"stopped": lambda: signals(signal.SIGSTOP), "killed": lambda: signals(signal.SIGKILL),
              "frozen": lambda: stack.enter_context(freezer())}[how]()
        r = recorded(stop, do)
    if r.beyond_s >= BEYOND_S:
        recorded_beside(recorded, r)
    assert r.beyond_s < BEYOND_S, f"{r.beyond_s:.2f} s beyond --for\n{r.text}"
    assert any("the process that reads symbols" in text for text in lost(laggard, r.path)), lost(laggard, r.path)
    done = laggard("explain", "--json", r.path)
    assert done.returncode == 0 and "ends before" not in done.stdout, done.stderr
    assert query(laggard, r.path, "select count(*) n from sample")[0]["n"] > 0


def test_a_pipe_in_place_of_a_perf_map(laggard, stage, record):
    stage.honest()
    stage.start("""
        leave_root()
        os.mkfifo(my_map, 0o666)
        at = anonymous()
        go(); run(at)
    """)
    holds(laggard, record())


@pytest.mark.parametrize("what", ["text", "ELF", "link to an ELF"])
def test_another_users_perf_map_names_nothing(laggard, stage, record, what):
    """/tmp is everybody's: who knows the pid of a process could name its code. Nor is the file taken for what was
    mapped."""
    base, image = 0x10000000, stage.folder / "image"
    victim = stage.start("""
        at = libc.mmap(int(sys.argv[4]), page, 7, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10, -1, 0)
        ctypes.memmove(at, code, len(code))
        go(); run(at)
    """, base + PAGE, uid=0)
    content, size = elf(2, symbol=b"made_by_another", base=base)
    text = b"0 7fffffffffff made_by_another\n"
    with open(image, "wb") as f:
        f.write(text if what == "text" else content)
        f.truncate(len(text) if what == "text" else size)
    stage.start("""
        leave_root()
        if sys.argv[6] == "link to an ELF":
            os.symlink(sys.argv[5], sys.argv[4])
        else:
            with open(sys.argv[4], "wb") as f, open(sys.argv[5], "rb") as image:
                f.write(image.read(1 << 20))
                f.truncate(os.path.getsize(sys.argv[5]))
        go(); time.sleep(1000)
    """, f"/tmp/perf-{victim.pid}.map", image, what)
    stage.honest()
    r = record()
    holds(laggard, r)
    assert query(laggard, r.path, "select count(*) n from frame where name = 'made_by_another'")[0]["n"] == 0


def secret(stage):
    """A file of root's that nobody else may read."""
    path = stage.folder / "secret"
    path.write_bytes(elf(2)[0])
    path.chmod(0o600)
    return path


def test_a_link_in_place_of_a_perf_map_opens_nothing(laggard, stage, record):
    stage.honest()
    stage.start("""
        leave_root()
        os.symlink(sys.argv[4], my_map)
        at = anonymous()
        go(); run(at)
    """, secret(stage))
    opens = Opens(stage.folder / "secret")
    r = record()
    unbroken(opens.count() == 0, "root opened the file that the attacker chose")
    holds(laggard, r)


def evil_program(stage, debug):
    """A stripped program of nobody's, in a folder of his, that names that debug file. debug(path) makes one first."""
    if not shutil.which("cc") or not shutil.which("objcopy"):
        pytest.skip("cc or objcopy is missing: run tools/install-deps build")
    folder, evil = stage.folder / "theirs", stage.folder / "theirs/evil"
    folder.mkdir()
    subprocess.run(["cc", "-xc", "-", "-o", evil], check=True, text=True,
                   input="int main(void) { for (volatile int i = 0;; i++) ; }")
    debug(evil, folder / "secret")
    subprocess.run(["strip", evil], check=True)
    subprocess.run(["objcopy", f"--add-gnu-debuglink={folder / 'secret'}", evil], check=True)
    for path in folder, evil, folder / "secret":
        os.chown(path, NOBODY, NOBODY)
    return folder, evil


RUN_EVIL = """
    leave_root()
    go()
    os.execv(sys.argv[4], [sys.argv[4]])
"""


@pytest.mark.parametrize("where", ["a link", "a link on the way"])
def test_a_debug_file_that_leads_elsewhere(laggard, stage, record, where):
    """A file names its debug file, which is looked for beside it and in .debug."""
    target = secret(stage)
    folder, evil = evil_program(stage, lambda _, path: path.write_bytes(target.read_bytes()))
    (folder / "secret").unlink()
    if where == "a link":
        (folder / "secret").symlink_to(target)
    else:
        (folder / ".debug").symlink_to(stage.folder)
    stage.honest()
    stage.start(RUN_EVIL, evil)
    opens = Opens(target)
    r = record()
    unbroken(opens.count() == 0, "root opened the file that the attacker chose")
    holds(laggard, r)


class Opens:
    """Counts opens of an inode: inotify(7), IN_OPEN. O_PATH is none."""

    def __init__(self, path):
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self.fd >= 0 and libc.inotify_add_watch(self.fd, os.fsencode(path), 0x20) >= 0

    def count(self):
        try:
            return len(os.read(self.fd, 1 << 16)) // 16
        except BlockingIOError:
            return 0


SWAPPED = """
    path = sys.argv[4]
    leave_root()
    with open(path, "wb") as f:
        f.write(open(sys.argv[5], "rb").read())
    fd = os.open(path, os.O_RDONLY)
    at = mapped(fd, page)
    os.unlink(path)
    # What the kernel calls a mapped file that is gone is a path that one may make.
    os.symlink(sys.argv[6], path)
    os.symlink(sys.argv[6], path + " (deleted)")
    go(); run(at)
"""


def test_a_link_in_place_of_a_mapped_file(laggard, stage, record):
    """The device at its end is opened by nobody; the function is named from the file that was mapped."""
    device, image = stage.folder / "device", stage.folder / "image"
    os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 7))
    image.write_bytes(elf(2)[0])
    stage.honest()
    stage.start(SWAPPED, stage.folder / "evil.so", image, device)
    opens = Opens(device)
    r = record()
    unbroken(opens.count() == 0, "root opened the device that the attacker chose")
    holds(laggard, r)
    assert query(laggard, r.path, "select count(*) n from frame where name = 'of_the_file'")[0]["n"] > 0


# A mount namespace of one's own, in which every user may bind what he can name to any name.
BINDS = """
    leave_root()
    libc.prctl(4, 1, 0, 0, 0)  # dumpable again: /proc/self is one's own
    was, group = os.getuid(), os.getgid()
    if libc.unshare(0x10000000 | 0x20000):  # CLONE_NEWUSER | CLONE_NEWNS
        print("refused", flush=True)
        go(); time.sleep(1000)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {was} 1"), ("gid_map", f"0 {group} 1")):
        with open("/proc/self/" + name, "w") as f:
            f.write(text)
    def mount(what, where, kind, flags):
        assert not libc.mount(os.fsencode(what), os.fsencode(where), kind, flags, None), ctypes.get_errno()
"""
BOUND_MAP = BINDS + """
    open(my_map, "w").close()
    mount("/proc/kmsg", my_map, None, 4096)
    at = anonymous()
    go(); run(at)
"""
# The recorder compares inodes: a tmpfs counts them from 1, and so does sysfs.
BOUND_FILE = BINDS + """
    image, folder, target = sys.argv[4:7]
    mount("tmpfs", folder, b"tmpfs", 0)
    path, wanted = folder + "/evil.so", os.stat(target).st_ino
    while True:
        with open(path, "wb") as f:
            f.write(open(image, "rb").read())
        if os.stat(path).st_ino >= wanted:
            break
        os.unlink(path)
    at = mapped(os.open(path, os.O_RDONLY), page)
    mount(target, path, None, 4096)
    go(); run(at)
"""


@pytest.mark.parametrize("where", ["perf map", "ELF"])
def test_a_file_of_the_kernels_bound_to_a_name(laggard, stage, record, where):
    """It is a regular file, and to open or to read it may act (/proc/kmsg, tracefs): root must not."""
    target = pathlib.Path("/proc/kmsg" if where == "perf map" else "/sys/kernel/notes")
    image, folder = stage.folder / "image", stage.folder / "mount"
    image.write_bytes(elf(2)[0])
    folder.mkdir()
    folder.chmod(0o777)
    opens = Opens(target)
    stage.honest()
    with (stage.folder / "said").open("w") as f:
        stage.start(BOUND_MAP if where == "perf map" else BOUND_FILE, image, folder, target, stdout=f)
    if (stage.folder / "said").read_text():
        pytest.skip("no user namespaces for users here")
    opens.count()
    r = record()
    holds(laggard, r)
    assert opens.count() == 0, f"root opened {target}"  # or another who uses this machine did


SHRINKING = """
    path, image, size = sys.argv[4:7]
    leave_root()
    with open(path, "wb") as f:
        f.write(open(image, "rb").read())
        f.truncate(int(size))
    fd = os.open(path, os.O_RDWR)
    at = mapped(fd, page)
    if not os.fork():
        parent = os.getppid()
        go()
        while os.getppid() == parent:
            os.ftruncate(fd, 2 * page)
            os.ftruncate(fd, int(size))
        os._exit(0)
    run(at)
"""


def test_a_mapped_file_that_shrinks(laggard, stage, record):
    """libelf maps a file; a page beyond its end is SIGBUS for who reads it."""
    image = stage.folder / "image"
    body, size = elf(symbols=40_000_000)
    image.write_bytes(body)
    stage.honest()
    for i in range(4):
        stage.start(SHRINKING, stage.folder / f"shrinks{i}.so", image, size)
    r = record()
    holds(laggard, r)
    # A file that was whole when it was read has its name; one that was not is told of.
    named = query(laggard, r.path, "select count(*) n from frame where name = 'of_the_file'")[0]["n"]
    gone = query(laggard, r.path, "select count(*) n from frame where dso like '%/shrinks%' and ifnull(name, '') = ''")
    assert named + gone[0]["n"] > 0, "no sample was taken of the attackers"
    print(named, gone, lost(laggard, r.path))


def test_roots_large_files_that_others_run(laggard, stage, record):
    """What root owns may take its time, but not for whoever maps it: there may be thousands of libraries."""
    body, size = elf(symbols=40_000_000)
    images = [stage.folder / f"large{i}.so" for i in range(360)]
    images[0].write_bytes(body)
    os.truncate(images[0], size)
    for link in images[1:]:
        link.hardlink_to(images[0])
    stage.honest()
    attack = """
        leave_root()
        chain = (ctypes.c_uint64 * (2 * len(sys.argv)))()
        begin, images = ctypes.addressof(chain), sys.argv[5:]
        for i, path in enumerate(images):
            chain[2 * i] = begin + 16 * (i + 1) if i + 1 < len(images) else 0
            chain[2 * i + 1] = mapped(os.open(path, os.O_RDONLY), page) + 8
        code = bytes.fromhex(sys.argv[4])
        below = ctypes.CFUNCTYPE(None, ctypes.c_ulong, ctypes.c_void_p)(anonymous())
        go()
        while True:
            below(1 << 22, begin)
    """
    for mine in images[:120], images[120:240], images[240:]:
        stage.start(attack, BELOW.hex(), *mine, env={**os.environ, "RANK": "0", "WORLD_SIZE": "2"})
    r = record()
    holds(laggard, r)
    assert query(laggard, r.path, "select count(*) n from frame where dso like '%/large%'")[0]["n"] > 0
    assert any("took too long" in text for text in lost(laggard, r.path)), lost(laggard, r.path)


@pytest.mark.parametrize("where", ["perf map", "ELF"])
def test_thirty_doublings_in_a_name(laggard, stage, record, where):
    stage.honest()
    if where == "ELF":
        image = stage.folder / "image"
        image.write_bytes(elf(2, symbol=doublings(30).encode())[0])
        stage.start("""
            leave_root()
            at = mapped(os.open(sys.argv[4], os.O_RDONLY), page)
            go(); run(at)
        """, image)
    else:
        stage.start("""
            leave_root()
            at = anonymous()
            with open(my_map, "w") as f:
                f.write(f"{at:x} {page:x} {sys.argv[4]}\\n")
            go(); run(at)
        """, doublings(30))
    r = record()
    holds(laggard, r)
    names = query(laggard, r.path, "select name from frame where name like 'f(A, P<A, A>%'")
    assert names and all(len(row["name"]) < 1024 for row in names)


def test_perf_maps_of_100_mb(laggard, stage, record):
    stage.honest()
    for _ in range(4):
        stage.start("""
            leave_root()
            at = anonymous()
            with open(my_map, "w") as f:
                lines = "".join(f"{i:x} 1 a{i}\\n" for i in range(1, 65536))
                for _ in range(100 * 2**20 // len(lines) + 1):
                    f.write(lines)
                f.write(f"{at:x} {page:x} large\\n")
            go(); run(at)
        """)
    r = record()
    holds(laggard, r)


# -- imports: whoever wrote the file, or the files it names, does the same to who reads it --

def perf_data(stage, seconds=1):
    """perf's own recording of the attackers: what others run here costs memory, too."""
    if not shutil.which("perf"):
        pytest.skip("perf is missing: run tools/install-deps test")
    out = stage.folder / "perf.data"
    done = subprocess.run(["perf", "record", "-q", "-B", "-N", "-e", "cpu-clock", "-o", out, "-p",
                           ",".join(str(proc.pid) for proc in stage.running), "sleep", str(seconds)],
                          check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          text=True)
    assert done.returncode == 0, done.stderr
    return out


def explained(laggard_path, path, most=MEMORY):
    """It ends by itself, in time, and never had more memory (ru_maxrss counts what pytest has, too)."""
    began = time.monotonic()
    with subprocess.Popen([laggard_path, "explain", "--json", path], stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as proc:
        timer = threading.Timer(60, proc.kill)
        timer.start()
        said = proc.stderr.read()
        _, status, usage = os.wait4(proc.pid, 0)
        timer.cancel()
        proc.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - began
    print(f"{usage.ru_maxrss >> 10} MiB, {seconds:.1f} s")
    unbroken(proc.returncode in (0, -signal.SIGKILL), f"status {proc.returncode}\n{said}")
    unbroken(usage.ru_maxrss << 10 <= most, f"{usage.ru_maxrss >> 10} MiB")
    assert proc.returncode == 0 and seconds < IMPORT_S, f"status {proc.returncode}, {seconds:.1f} s\n{said}"


def named(laggard, data, name, dso="%"):
    return query(laggard, data, f"select count(*) n from frame where name like '{name}' and dso like '{dso}'")[0]["n"]


def asked_for(laggard, data, path, name="asked_for"):
    """Is that perf map looked for? With another one of the same user in its place the code has a name."""
    assert not named(laggard, data, name)
    path.unlink()
    path.write_text(f"0 7fffffffffff {name}\n")
    os.chown(path, NOBODY, NOBODY)
    return named(laggard, data, name) > 0


def test_an_import_opens_no_device(laggard, laggard_path, stage):
    device, image, path = (stage.folder / name for name in ("device", "image", "evil.so"))
    os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 7))
    image.write_bytes(elf(2)[0])
    stage.start("""
        leave_root()
        with open(sys.argv[4], "wb") as f:
            f.write(open(sys.argv[5], "rb").read())
        at = mapped(os.open(sys.argv[4], os.O_RDONLY), page)
        go(); run(at)
    """, path, image)
    data = perf_data(stage)
    assert path.stat().st_uid == NOBODY and named(laggard, data, "of_the_file", path) > 0, "the file is asked for"
    path.unlink()
    path.symlink_to(device)
    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    opens = Opens(device)
    explained(laggard_path, data)
    unbroken(opens.count() == 0, "root opened the device that the attacker chose")
    assert not named(laggard, data, "of_the_file", path)


def test_an_import_demangles_in_bounded_time(laggard, laggard_path, stage):
    stage.start("""
        leave_root()
        at = anonymous()
        with open(my_map, "w") as f:
            f.write(f"{at:x} {page:x} {sys.argv[4]}\\n")
        go(); run(at)
    """, doublings(30))
    data = perf_data(stage)
    explained(laggard_path, data)
    assert named(laggard, data, "f(A, P<A, A>%") > 0, "the name was read"


def test_an_import_waits_for_no_pipe_in_place_of_a_perf_map(laggard, laggard_path, stage):
    proc = stage.start("""
        leave_root()
        os.mkfifo(my_map, 0o666)
        at = anonymous()
        go(); run(at)
    """)
    data = perf_data(stage)
    explained(laggard_path, data)
    assert asked_for(laggard, data, pathlib.Path(f"/tmp/perf-{proc.pid}.map"))


@pytest.mark.parametrize("mib, read", [(47, True), (100, False)])
def test_an_import_reads_a_large_perf_map_or_none(laggard, laggard_path, stage, mib, read):
    """As many lines as fit into it, a name for each address: what is larger yet is not read at all."""
    proc = stage.start("""
        leave_root()
        at = anonymous()
        with open(my_map, "w") as f:
            f.write(f"{at:x} {page:x} large\\n")
            lines = "".join(f"{i:x} 1 {i:040}\\n" for i in range(4096, 65536))
            for _ in range((int(sys.argv[4]) << 20) // len(lines)):
                f.write(lines)
        go(); run(at)
    """, mib)
    data = perf_data(stage)
    explained(laggard_path, data)
    assert (named(laggard, data, "large") > 0) == read
    assert read or asked_for(laggard, data, pathlib.Path(f"/tmp/perf-{proc.pid}.map"))


def test_an_import_waits_for_no_pipe_in_place_of_a_debug_file(laggard, laggard_path, stage):
    folder, evil = evil_program(stage, lambda evil, path: subprocess.run(
        ["objcopy", "--only-keep-debug", evil, path], check=True))
    path, kept = folder / "secret", folder / "kept"
    path.rename(kept)
    os.mkfifo(path)
    os.chown(path, NOBODY, NOBODY)
    stage.start(RUN_EVIL, evil)
    data = perf_data(stage)
    explained(laggard_path, data)
    assert not named(laggard, data, "main", evil)
    kept.rename(path)
    assert named(laggard, data, "main", evil) > 0, "the debug file is asked for"


def test_an_import_survives_a_file_that_shrinks(laggard, laggard_path, stage):
    image = stage.folder / "image"
    body, size = elf(symbols=40_000_000)
    image.write_bytes(body)
    stage.start(SHRINKING, stage.folder / "shrinks.so", image, size)
    data = perf_data(stage)
    for _ in range(10):
        explained(laggard_path, data)
