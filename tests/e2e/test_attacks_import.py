# SPDX-License-Identifier: Apache-2.0
"""What nobody does to root's import of a recording of the whole machine: a perf map for root's process, and programs
whose files are each within bounds, but not all of them together."""
import lzma
import os
import shutil
import signal
import struct
import subprocess
import time
import zlib

import pytest
from test_attacks_symbols import (NOBODY, holds, lost, perf_data, query, record, recorded,  # noqa: F401
                                  stage)

pytestmark = [pytest.mark.live,
              pytest.mark.skipif(os.geteuid() != 0, reason="attacks by another user need root to record")]

MIB = 1 << 20
BOMBS = 12
UNPACKED = 250 * MIB  # of each: within the bound of one file
MEMORY, SECONDS = 512 * MIB, 30


class Measured:
    """A command's status, words, seconds and most resident bytes."""

    def __init__(self, laggard_path, *args):
        start = time.monotonic()
        with subprocess.Popen([laggard_path, *map(str, args)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True) as p:
            self.err = p.stderr.read()
            _, status, used = os.wait4(p.pid, 0)
            p.returncode = self.status = os.waitstatus_to_exitcode(status)
        self.seconds, self.peak = time.monotonic() - start, used.ru_maxrss << 10
        print(f"{args[0]}: status {self.status}, {self.seconds:.1f} s, {self.peak / MIB:.0f} MiB, {self.err}")


# -- perf maps --

def named(laggard, data, name):
    return query(laggard, data, f"select count(*) n from frame where name = '{name}'")[0]["n"]


@pytest.mark.parametrize("when", ["while it runs", "after its end"])
def test_another_users_perf_map_names_nothing_in_an_import(laggard, stage, when):
    """/tmp is everybody's: who knows the pid of a process could name its code, most easily once it has ended."""
    victim = stage.start("at = anonymous(); go(); run(at)", uid=0)
    stage.honest()
    theirs = stage.start("""
        leave_root()
        at = anonymous()
        with open(my_map, "w") as f:
            f.write(f"{at:x} {page:x} their_own_function\\n")
        go(); run(at)
    """)
    data = perf_data(stage)
    if when == "after its end":
        victim.kill()
        victim.wait()
    stage.start("""
        leave_root()
        with open(sys.argv[4], "w") as f:
            f.write("0 7fffffffffff made_by_another\\n")
        go(); time.sleep(1000)
    """, f"/tmp/perf-{victim.pid}.map")
    done = laggard("explain", "--json", data)
    assert done.returncode == 0, done.stderr
    assert named(laggard, data, "made_by_another") == 0
    assert any("were not believed" in text for text in lost(laggard, data)), lost(laggard, data)
    assert named(laggard, data, "honest_function") > 0, "root's own map names root's code"
    assert theirs.poll() is None and named(laggard, data, "their_own_function") > 0, "and nobody's that of nobody"


def test_who_calls_sudo_is_believed(laggard, stage, monkeypatch):
    """His job has ended: nothing but sudo says that the map may be his."""
    job = stage.start("""
        leave_root()
        at = anonymous()
        with open(my_map, "w") as f:
            f.write(f"{at:x} {page:x} of_the_caller\\n")
        go(); run(at)
    """)
    data = perf_data(stage)
    job.kill()
    job.wait()
    assert named(laggard, data, "of_the_caller") == 0
    assert any("were not believed" in text for text in lost(laggard, data)), lost(laggard, data)
    monkeypatch.setenv("SUDO_UID", str(NOBODY))
    monkeypatch.setenv("SUDO_GID", str(NOBODY))
    assert named(laggard, data, "of_the_caller") > 0
    assert not any("were not believed" in text for text in lost(laggard, data)), lost(laggard, data)


# -- all files together --

SPIN = "__attribute__((noinline)) void {name}(void) {{ for (volatile int i = 0;; i++) ; }}\nint main(void) {{ {name}(); }}\n"


def tools():
    for tool in ("cc", "objcopy", "strip"):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is missing: run tools/install-deps build")


def compiled(path, name, *flags):
    subprocess.run(["cc", "-O1", "-Wl,--build-id=none", *flags, "-xc", "-", "-o", path], check=True, text=True,
                   input=SPIN.format(name=name))


def mark_packed(path, section):
    """Set SHF_COMPRESSED, which objcopy sets only where it has packed."""
    image = bytearray(path.read_bytes())
    at, = struct.unpack_from("<Q", image, 40)
    size, n, names = struct.unpack_from("<HHH", image, 58)
    strings, = struct.unpack_from("<Q", image, at + names * size + 24)
    for head in range(at, at + n * size, size):
        name, = struct.unpack_from("<I", image, head)
        if image[strings + name:].startswith(section.encode() + b"\0"):
            struct.pack_into("<Q", image, head + 8, 0x800)
            path.write_bytes(image)
            return
    assert False, f"no {section}"


def deflated(size):
    pack = zlib.compressobj(9)
    piece = bytes(MIB)
    body = b"".join([*(pack.compress(piece) for _ in range(size // MIB)), pack.flush()])
    return struct.pack("<IIQQ", 1, 0, size, 1) + body


def bombs(stage, kind):
    """Programs of nobody's, running."""
    tools()
    folder = stage.folder / "theirs"
    folder.mkdir()
    first, content = folder / "bomb0", folder / "content"
    compiled(first, "theirs", "-s")
    if kind == "xz":
        content.write_bytes(lzma.compress(bytes(100 * MIB)))
        assert content.stat().st_size < MIB
        more = [f"--add-section=.gnu_debugdata={content}"]
    elif kind == "link":
        content.write_bytes(b"x")
        more = [f"--add-gnu-debuglink={content}"]
    else:
        content.write_bytes(deflated(UNPACKED))
        more = [f"--add-section={kind}={content}"]
    subprocess.run(["objcopy", *more, first], check=True)
    if kind.startswith("."):
        mark_packed(first, kind)
    if kind == "link":
        os.truncate(content, 16 << 30)
    for i in range(BOMBS):
        path = folder / f"bomb{i}"
        if i:
            shutil.copy(first, path)
        os.chown(path, NOBODY, NOBODY)
    os.chown(content, NOBODY, NOBODY)
    os.chown(folder, NOBODY, NOBODY)
    stage.start("""
        leave_root()
        for i in range(int(sys.argv[5])):
            if not os.fork():
                libc.prctl(1, 9)  # ends with its parent
                os.execv(f"{sys.argv[4]}/bomb{i}", ["bomb"])
        go(); time.sleep(1000)
    """, folder, BOMBS)


def honest_program(stage):
    """A program of root's whose function is named by its mini debug info alone."""
    program, mini = stage.folder / "honest", stage.folder / "mini"
    compiled(program, "honest_program")
    subprocess.run(["objcopy", "-S", "--keep-symbol=honest_program", program, mini], check=True)
    packed = stage.folder / "mini.xz"
    packed.write_bytes(lzma.compress(mini.read_bytes()))
    subprocess.run(["strip", program], check=True)
    subprocess.run(["objcopy", f"--add-section=.gnu_debugdata={packed}", program], check=True)
    stage.running.append(subprocess.Popen([program]))


def recorded_by_perf(stage, *more):
    if not shutil.which("perf"):
        pytest.skip("perf is missing: run tools/install-deps test")
    out = stage.folder / "perf.data"
    done = subprocess.run(["perf", "record", "-q", "-B", "-N", "-a", "-F", "499", "-e", "cpu-clock", *more, "-o", out,
                           "sleep", "3"], check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.parametrize("kind,said", [("xz", "packed sections"), (".debug_frame", "packed sections"),
                                       (".debug_str", "packed sections"), ("link", "debug files")])
def test_files_cost_an_import_no_more_than_all_may(laggard, laggard_path, stage, kind, said):
    bombs(stage, kind)
    honest_program(stage)
    stage.honest()
    data = recorded_by_perf(stage, *(["--call-graph", "dwarf,1024"] if kind == ".debug_frame" else []))
    for proc in stage.running:
        proc.send_signal(signal.SIGSTOP)
    commands = [["explain", "--json", data], ["convert", data, "-o", stage.folder / "out.lag"]]
    if kind == ".debug_str":  # only they ask libdw
        commands = [["convert", "--lines", data, "-o", stage.folder / "out.lag"]]
    for command in commands:
        m = Measured(laggard_path, *command)
        assert m.status == 0, m.err
        assert m.peak < MEMORY and m.seconds < SECONDS
    out = stage.folder / "out.lag"
    assert any(said in text for text in lost(laggard, out)), lost(laggard, out)
    assert named(laggard, out, "honest_program") > 0 and named(laggard, out, "honest_function") > 0
    assert query(laggard, out, "select count(*) n from frame where dso like '%/theirs/bomb%'")[0]["n"] > 0


@pytest.mark.parametrize("kind", ["xz", ".debug_frame", "link"])
def test_files_cost_a_recording_nothing(laggard, stage, record, kind):
    bombs(stage, kind)
    stage.honest()
    holds(laggard, record())
