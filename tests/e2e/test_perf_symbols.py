# SPDX-License-Identifier: Apache-2.0
"""perf record's own files: user stacks unwound here, inlined frames, lines, a stream from a pipe."""
import collections
import fcntl
import os
import re
import shutil
import struct
import subprocess
import time

import pytest

from test_profiles import Pprof, fields, folded

FEW = 5  # samples, of some sixty where nobody else wants the CPU
SOURCE = r"""
#include <stdlib.h>
static volatile unsigned long sink;
__attribute__((noinline)) void burn(long n) { for (long i = 0; i < n; i++) sink += (unsigned long)i; }
static inline __attribute__((always_inline)) void inner(long n)
{
	for (long i = 0; i < n; i++)
		sink ^= (unsigned long)i;
}
static inline __attribute__((always_inline)) void outer(long n) { inner(n); sink++; }
__attribute__((noinline)) void has_inlined(long n) { outer(n); sink++; }
__attribute__((noinline)) int level(int d)
{
	volatile char *room = __builtin_alloca(16 + 16 * (size_t)(d % 3));
	int r = d;

	room[0] = 1;
	if (d)
		r = level(d - 1);
	else
		burn(40000000);
	return r + room[0];
}
int main(int argc, char **argv)
{
	(void)argv;
	for (int i = 0; i < (argc > 1 ? 100000 : 6); i++) {
		sink += (unsigned long)level(5);
		has_inlined(40000000);
	}
	return 0;
}
"""


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """A recording with stack copies of a program without frame pointers."""
    if not shutil.which("perf") or not shutil.which("cc"):
        pytest.skip("perf and a C compiler are needed")
    where = tmp_path_factory.mktemp("perf")
    (where / "deep.c").write_text(SOURCE)
    subprocess.run(["cc", "-O2", "-g", "-fomit-frame-pointer", "-o", "deep", "deep.c"], cwd=where,
                   check=True)
    done = subprocess.run(["perf", "--buildid-dir", where / "cache", "record", "-q", "-F", "199", "-e",
                           "cpu-clock:u", "--call-graph", "dwarf", "-o", "perf.data", "./deep"],
                          cwd=where, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode or not (where / "perf.data").exists():
        pytest.skip(f"perf cannot record here: {done.stdout[-200:]}")
    return where


def test_stack_copies_become_whole_stacks(laggard, recorded, tmp_path):
    out = tmp_path / "x.folded"
    done = laggard("convert", recorded / "perf.data", "-o", out)
    assert done.returncode == 0, done.stderr
    count = collections.Counter()
    for stack, n in folded(out).items():
        if "main" in stack:
            count[stack[stack.index("main"):]] += n
    assert count[("main",) + ("level",) * 6 + ("burn",)] > FEW
    assert count[("main", "has_inlined")] > FEW
    whole = sum(n for stack, n in folded(out).items() if stack[0] == "_start")
    assert whole > 0.9 * sum(folded(out).values())


def test_inlined_functions_on_request(laggard, recorded, tmp_path):
    out = tmp_path / "x.pb.gz"
    done = laggard("convert", recorded / "perf.data", "-o", out, "--inline", "--lines")
    assert done.returncode == 0, done.stderr
    p = Pprof(out)
    stacks = collections.Counter()
    for stack, values, _ in p.samples:
        if "main" in stack:
            stacks[stack[stack.index("main"):]] += values[0]
    assert stacks[("main", "has_inlined", "outer", "inner")] > FEW
    lines = collections.defaultdict(set)
    for location in p.locations.values():
        line = fields(location[4][0]) if location[4] else None
        if line and line[2]:
            function = p.functions[line[1][0]]
            lines[p.string(function, 2)].add((p.string(function, 4).rsplit("/", 1)[-1], line[2][0]))
    source = SOURCE.splitlines()
    for name, text in (("outer", "void outer"), ("has_inlined", "void has_inlined")):
        number = next(i for i, s in enumerate(source, 1) if text in s)
        assert lines[name] == {("deep.c", number)}
    assert {f for f, _ in lines["inner"]} == {"deep.c"}


def test_a_program_that_was_built_anew_is_not_believed(laggard, recorded, tmp_path):
    out = tmp_path / "x.folded"
    program = recorded / "deep"
    kept = program.read_bytes()
    program.unlink()
    (tmp_path / "other.c").write_text("int main(void) { return 0; }")
    try:
        subprocess.run(["cc", "-o", program, tmp_path / "other.c"], check=True)
        for cache, named in ((recorded / "none", False), (recorded / "cache", True)):
            done = laggard("convert", recorded / "perf.data", "-o", out,
                           env={"PERF_BUILDID_DIR": str(cache)})
            assert done.returncode == 0, done.stderr
            names = {f for stack in folded(out) for f in stack}
            assert ("has_inlined" in names) == named
            assert "main" not in names or named
    finally:
        program.unlink(missing_ok=True)
        program.write_bytes(kept)
        program.chmod(0o755)


def test_a_stream_is_converted_as_it_comes(laggard, recorded, tmp_path):
    out = tmp_path / "x.folded"
    record = subprocess.Popen(["perf", "record", "-q", "-F", "199", "-e", "cpu-clock:u", "-g", "-o", "-",
                               "./deep"], cwd=recorded, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    done = laggard("convert", "-", "-o", out, stdin=record.stdout)
    record.stdout.close()
    assert record.wait() == 0
    assert done.returncode == 0, done.stderr
    assert sum(n for stack, n in folded(out).items() if stack[-1] in ("burn", "has_inlined")) > 2 * FEW


def test_a_32_bit_program_is_unwound_too(laggard, tmp_path):
    if not shutil.which("perf") or not shutil.which("cc"):
        pytest.skip("perf and a C compiler are needed")
    (tmp_path / "deep.c").write_text(SOURCE)
    done = subprocess.run(["cc", "-m32", "-O2", "-g", "-fomit-frame-pointer", "-o", "deep", "deep.c"], cwd=tmp_path,
                          capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("no 32-bit programs here: on amd64, run tools/install-deps test")
    done = subprocess.run(["perf", "--buildid-dir", tmp_path / "cache", "record", "-q", "-F", "199", "-e",
                           "cpu-clock:u", "--call-graph", "dwarf", "-o", "perf.data", "./deep"], cwd=tmp_path,
                          capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"perf cannot record here: {done.stderr[-200:]}")
    out = tmp_path / "x.folded"
    done = laggard("convert", tmp_path / "perf.data", "-o", out)
    assert done.returncode == 0, done.stderr
    stacks = folded(out)
    count = collections.Counter()
    for stack, n in stacks.items():
        if "main" in stack:
            count[stack[stack.index("main"):]] += n
    assert count[("main",) + ("level",) * 6 + ("burn",)] > FEW
    assert sum(n for stack, n in stacks.items() if stack[0] == "_start") > 0.9 * sum(stacks.values())


def cut(data):
    """What is left when the description behind the records, and the last of them, are missing."""
    at, size = struct.unpack_from("<QQ", data, 40)
    return data[:at + size - 99]


def convert(laggard, data, where):
    """Names in the stacks of a recording, those of the kernel, and the limits."""
    (where / "cut.data").write_bytes(data)
    out = where / "cut.folded"
    done = laggard("convert", where / "cut.data", "-o", out, env={"PERF_BUILDID_DIR": str(where / "none")})
    assert done.returncode == 0, done.stderr
    names = {f for stack in folded(out) for f in stack}
    done = laggard("explain", "-v", where / "cut.data", env={"PERF_BUILDID_DIR": str(where / "none")})
    kernel = set(re.findall(r";([A-Za-z_][\w.]*)_\[k\]", out.read_text()))
    return names, kernel, " ".join(done.stdout[done.stdout.index("\nlimits"):].split())


@pytest.fixture
def spinning(tmp_path):
    """The program, built a moment ago, and a way to record it with the kernel's frames."""
    if not shutil.which("perf") or not shutil.which("cc"):
        pytest.skip("perf and a C compiler are needed")
    (tmp_path / "deep.c").write_text(SOURCE)
    subprocess.run(["cc", "-O2", "-o", "deep", "deep.c"], cwd=tmp_path, check=True)
    time.sleep(0.1)  # a file changed in the tick in which it is mapped is not believed

    def record(*what):
        # A perf that is killed makes no links in its cache (-B): they would change the files.
        done = subprocess.run(["perf", "record", "-B", "-q", "-F", "997", "-e", "cpu-clock", "-g", "-o", "perf.data", *what],
                              cwd=tmp_path, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        if done.returncode or not (tmp_path / "perf.data").exists():
            pytest.skip(f"perf cannot record here: {done.stdout[-200:]}")
        return (tmp_path / "perf.data").read_bytes()

    return tmp_path, record


def replace(program):
    """The same bytes in another inode."""
    shutil.copy2(program, program.with_suffix(".new"))
    os.replace(program.with_suffix(".new"), program)


def test_a_cut_recording_is_believed_for_a_file_made_since_boot(laggard, spinning):
    where, record = spinning
    with open(where / "deep", "rb") as f:
        try:
            generation = fcntl.ioctl(f, 0x80087601, bytes(8))  # FS_IOC_GETVERSION
        except OSError:
            generation = bytes(8)
        if not any(generation):
            pytest.skip("this file system does not tell one inode from the next of that number")
    # dd is nearly all in the kernel: there are frames of it to be named
    data = cut(record("sh", "-c", "./deep; dd if=/dev/zero of=/dev/null bs=1M count=3000 status=none"))
    names, kernel, limits = convert(laggard, data, where)
    assert {"main", "burn", "has_inlined"} <= names
    assert ", made since this machine started" in limits
    with open("/proc/stat", encoding="ascii") as f:
        boot = next(int(line.split()[1]) for line in f if line.startswith("btime"))
    if os.stat("/bin/sh").st_ctime > boot:
        pytest.skip("believed; what is not cannot be shown here: this root's own programs were installed since the boot, too")
    assert "deep, made since this machine started" in limits
    if os.geteuid() == 0 and b"[kernel.kallsyms]_" in data:
        assert kernel

        moved = bytearray(data)
        at = data.index(b"[kernel.kallsyms]_") - 8
        struct.pack_into("<Q", moved, at, struct.unpack_from("<Q", data, at)[0] + (2 << 20))
        names, kernel, limits = convert(laggard, bytes(moved), where)
        assert not kernel and not names & {"main", "burn", "has_inlined"}
        assert "which nothing shows to be those" in limits and "names are those of this machine" not in limits

    program = where / "deep"
    kept = program.read_bytes()
    with open(program, "r+b") as f:  # the same inode, but who knows what was in it
        f.write(kept)
    names, _, limits = convert(laggard, data, where)
    assert not names & {"main", "burn", "has_inlined"}
    assert "recorded, unchanged since: 1 " in limits
    replace(program)
    names, kernel, limits = convert(laggard, data, where)
    assert not kernel and not names & {"main", "burn", "has_inlined"}
    assert "names are those of this machine" not in limits


def test_a_cut_recording_is_believed_for_a_process_that_still_runs(laggard, spinning):
    where, record = spinning
    with subprocess.Popen([where / "deep", "long"]) as run:
        try:
            data = cut(record("-p", str(run.pid), "--", "sleep", "1"))
            names, _, limits = convert(laggard, data, where)
            assert {"main", "burn", "has_inlined"} <= names
            assert f"process {run.pid} of it still runs here" in limits
            # It runs on in the old inode, and maps that.
            replace(where / "deep")
            names, _, limits = convert(laggard, data, where)
            assert not names & {"main", "burn", "has_inlined"}
        finally:
            run.kill()
