# SPDX-License-Identifier: Apache-2.0
"""convert to speedscope and pprof: decoded from the wire, they add up to what .folded says."""
import collections
import gzip
import os
import shutil
import subprocess

import pytest

from trace_files import fields, strict_json
from test_convert import make_trace  # noqa: F401  (a fixture)

KINDS = ("stall", "nasty", "random", "threads", "empty")

SCRIPT = """\
train 900/901 [001] 10.000000: 10000000 cpu-clock:
\t          401000 inner+0x10 (/opt/a.out)
\t          402000 outer;odd+0x20 (/opt/a.out)

train 900/901 [001] 10.010000: 10000000 cpu-clock:
\t          401000 inner+0x10 (/opt/a.out)
\t          402000 outer;odd+0x20 (/opt/a.out)

train 900/900 [002] 10.010000: 10000000 cpu-clock:
\t    ffffffff810000 do_work+0x20 ([kernel.kallsyms])
\t          402000 outer;odd+0x20 (/opt/a.out)

"""


class Pprof:
    """profile.proto, https://github.com/google/pprof/blob/main/proto/profile.proto"""

    def __init__(self, path):
        data = path.read_bytes()
        assert data[:2] == b"\x1f\x8b"
        top = fields(gzip.decompress(data))
        self.strings = [s.decode("utf-8") for s in top[6]]
        assert self.strings[0] == "" and len(set(self.strings)) == len(self.strings)
        self.types = [(self.string(v, 1), self.string(v, 2)) for v in map(fields, top[1])]
        self.mappings = {m[1][0]: m for m in map(fields, top[3])}
        self.functions = {f[1][0]: f for f in map(fields, top[5])}
        self.locations = {l[1][0]: l for l in map(fields, top[4])}
        assert len(self.locations) == len(top[4]) and len(self.functions) == len(top[5])
        self.samples = [self.sample(fields(s)) for s in top[2]]
        self.top = top

    def string(self, message, field):
        return self.strings[message[field][0]] if message[field] else ""

    @staticmethod
    def packed(values):
        out, value, shift = [], 0, 0
        for byte in b"".join(values):
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                out.append(value)
                value = shift = 0
        assert shift == 0
        return out

    def name(self, location):
        loc = self.locations[location]
        m = self.mappings[loc[2][0]]
        if loc[4]:
            return self.string(self.functions[fields(loc[4][0])[1][0]], 2)
        assert (m[2] or [0])[0] <= (loc[3] or [0])[0] <= m[3][0]
        return f"{self.string(m, 5)}+{(loc[3] or [0])[0]:#x}"

    def sample(self, s):
        labels = {}
        for label in map(fields, s[3]):
            labels[self.string(label, 1)] = self.string(label, 2) if label[2] else \
                (label[3] or [0])[0]
        values = self.packed(s[2])
        assert len(values) == len(self.types)
        return tuple(self.name(i) for i in reversed(self.packed(s[1]))), values, labels


def folded(path):
    count = collections.Counter()
    for line in path.read_text(errors="replace").splitlines():
        stack, n = line.rsplit(" ", 1)
        count[tuple(f.removesuffix("_[k]") for f in stack.split(";")[1:])] += int(n)
    return count


def plain(name):
    """A name as .folded can hold it."""
    name = "".join(":" if c == ";" else "?" if ord(c) < 32 or ord(c) == 127 else c for c in name)
    return name.replace("\ufffd", "?")


def check_speedscope(path):
    doc = strict_json(path.read_bytes())
    assert doc["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = doc["shared"]["frames"]
    assert all(isinstance(f["name"], str) and f["name"] for f in frames)
    assert all(set(f) <= {"name", "file", "line", "col"} for f in frames)
    for p in doc["profiles"]:
        assert p["type"] == "sampled" and p["unit"] in ("nanoseconds", "none") and p["name"]
        assert len(p["samples"]) == len(p["weights"]) > 0
        assert p["startValue"] == 0 and sum(p["weights"]) == p["endValue"]
        assert all(0 <= f < len(frames) for s in p["samples"] for f in s)
        assert all(w > 0 for w in p["weights"])
    return doc


@pytest.fixture
def three(laggard, tmp_path):
    def call(source, *more):
        out = [tmp_path / f"out{s}" for s in (".folded", ".speedscope.json", ".pb.gz")]
        for path in out:
            done = laggard("convert", source, "-o", path, *more)
            assert done.returncode == 0, done.stderr
        return out
    return call


@pytest.mark.parametrize("kind", KINDS)
def test_three_formats_count_the_same(three, make_trace, kind):  # noqa: F811
    stacks, scope, pprof = three(make_trace(kind))
    want = collections.Counter()
    for stack, n in folded(stacks).items():
        want[tuple(plain(f) for f in stack)] += n
    p = Pprof(pprof)
    have = collections.Counter()
    for stack, values, _ in p.samples:
        have[tuple(plain(f) for f in stack)] += values[0]
    assert have == want
    doc = check_speedscope(scope)
    names = [f["name"] for f in doc["shared"]["frames"]]
    have = collections.Counter()
    for profile in doc["profiles"]:
        if profile["name"].startswith("all processes"):
            continue
        for s in profile["samples"]:
            have[tuple(plain(names[f]) for f in s)] += 1
    assert have == want
    assert kind in ("empty", "threads") or want


def test_known_samples_are_exact(three, tmp_path):
    script = tmp_path / "perf.txt"
    script.write_text(SCRIPT)
    stacks, scope, pprof = three(script)
    assert sorted(stacks.read_text().splitlines()) == [
        "train;outer:odd;do_work_[k] 1", "train;outer:odd;inner 2"]
    p = Pprof(pprof)
    assert p.types == [("samples", "count"), ("cpu", "nanoseconds")]
    assert {(s, tuple(v), (x["process"], x["pid"], x["tid"])) for s, v, x in p.samples} == {
        (("outer;odd", "inner"), (2, 20000000), ("train", 900, 901)),
        (("outer;odd", "do_work"), (1, 10000000), ("train", 900, 900))}
    assert {p.string(m, 5) for m in p.mappings.values()} == {"/opt/a.out", "[kernel.kallsyms]"}
    assert p.top[10] == [10000000]
    doc = check_speedscope(scope)
    assert [(x["name"], x["unit"], x["endValue"], len(x["samples"])) for x in doc["profiles"]] == [
        ("all processes", "nanoseconds", 30000000, 2),
        ("train (tid 901) of train (pid 900)", "nanoseconds", 20000000, 2),
        ("train (pid 900)", "nanoseconds", 10000000, 1)]


def test_samples_that_were_counted_before_keep_their_numbers(three, tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("main;train;forward 300\nmain;train;backward 700\nmain;train;forward 5\n")
    stacks, scope, pprof = three(source)
    assert sorted(stacks.read_text().splitlines()) == [
        "main;train;backward 700", "main;train;forward 305"]
    p = Pprof(pprof)
    assert p.types == [("samples", "count")]
    assert {(s, tuple(v)) for s, v, _ in p.samples} == {
        (("train", "backward"), (700,)), (("train", "forward"), (305,))}
    assert check_speedscope(scope)["profiles"][0]["endValue"] == 1005
    again = three(stacks.rename(source))[0]
    assert folded(again) == {("train", "backward"): 700, ("train", "forward"): 305}


def test_a_window_cuts_samples(three, tmp_path):
    script = tmp_path / "perf.txt"
    script.write_text(SCRIPT)
    _, scope, pprof = three(script, "--from", "5ms")
    assert sum(v[0] for _, v, _ in Pprof(pprof).samples) == 2
    assert check_speedscope(scope)["profiles"][0]["endValue"] == 20000000


@pytest.mark.skipif(not shutil.which("protoc"), reason="no protoc")
def test_protoc_decodes_pprof(three, tmp_path):
    script = tmp_path / "perf.txt"
    script.write_text(SCRIPT)
    raw = gzip.decompress(three(script)[2].read_bytes())
    done = subprocess.run(["protoc", "--decode_raw"], input=raw, check=False, stdout=subprocess.PIPE)
    assert done.returncode == 0
    assert done.stdout.count(b"\n2 {") == 2


@pytest.mark.parametrize("suffix", (".pb.gz", ".json", ".pftrace", ".lag"))
def test_a_pipe_is_read_like_the_file(laggard, make_trace, tmp_path, suffix):  # noqa: F811
    source = make_trace("stall")
    laggard("convert", source, "-o", tmp_path / f"file{suffix}")
    read, write = os.pipe()
    if os.fork() == 0:  # the writer: a pipe holds less than the file
        os.close(read)
        data = source.read_bytes()
        while data:
            data = data[os.write(write, data):]
        os._exit(0)
    os.close(write)
    done = laggard("convert", "-", "-o", tmp_path / f"pipe{suffix}", stdin=read)
    os.close(read)
    os.wait()
    assert done.returncode == 0, done.stderr
    assert (tmp_path / f"file{suffix}").read_bytes() == (tmp_path / f"pipe{suffix}").read_bytes()
