# SPDX-License-Identifier: Apache-2.0
"""perf.data and perf script, recorded here and now: names, counts, the pipe, the text."""
import collections
import gzip
import json
import lzma
import os
import re
import shutil
import struct
import subprocess

import pytest

BURN = r"""
#include <time.h>
static volatile unsigned long sink;
__attribute__((noinline)) static void innermost_work(void) { for (int i = 0; i < 1000; i++) sink += i; }
__attribute__((noinline)) static void middle_work(void) { innermost_work(); sink++; }
int main(void)
{
	struct timespec t;
	do {
		for (int i = 0; i < 100; i++)
			middle_work();
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	} while (!t.tv_sec && t.tv_nsec < 400000000);
	return 0;
}
"""


@pytest.fixture(scope="module")
def burn(tmp_path_factory):
    if not shutil.which("perf") or not shutil.which("cc"):
        pytest.skip("needs perf and cc: run tools/install-deps test")
    work = tmp_path_factory.mktemp("burn")
    (work / "burn.c").write_text(BURN)
    subprocess.run(["cc", "-O0", "-fno-omit-frame-pointer", "-o", work / "burn", work / "burn.c"], check=True)
    done = subprocess.run(["perf", "record", "-q", "-g", "-F", "999", "-e", "cpu-clock", "-o",
                           work / "perf.data", "--", work / "burn"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"perf record: {done.stderr.strip()[:200]}")
    return work


def perf_count(path):
    text = subprocess.run(["perf", "report", "--stats", "-i", path], capture_output=True, text=True,
                          check=True).stdout
    return int(re.search(r"SAMPLE events: *(\d+)", text).group(1))


def inner_frames(folded):
    """Samples by innermost function."""
    counts = collections.Counter()
    for line in folded.splitlines():
        stack, count = line.rsplit(" ", 1)
        counts[stack.rsplit(";", 1)[1]] += int(count)
    return counts


def rows(laggard, path):
    done = laggard("explain", path, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["inputs"][0]["rows"]["sample"]


def test_every_sample_is_a_row(laggard, burn):
    assert rows(laggard, burn / "perf.data") == perf_count(burn / "perf.data") > 200


def test_functions_have_their_names(laggard, burn, tmp_path):
    out = tmp_path / "burn.folded"
    done = laggard("convert", burn / "perf.data", "-o", out)
    assert done.returncode == 0, done.stderr
    folded = out.read_text()
    counts = inner_frames(folded)
    assert counts["innermost_work"] > 0.8 * sum(counts.values())
    assert "burn;" in folded and "main;middle_work;innermost_work" in folded


def test_a_pipe_is_read_as_it_comes(laggard, laggard_path, burn, tmp_path):
    out = tmp_path / "pipe.folded"
    record = subprocess.Popen(["perf", "record", "-q", "-g", "-F", "999", "-e", "cpu-clock", "-o", "-", "--",
                               burn / "burn"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    done = subprocess.run([laggard_path, "convert", "-", "-o", out], stdin=record.stdout,
                          capture_output=True, text=True)
    record.stdout.close()
    assert record.wait() == 0
    assert done.returncode == 0, done.stderr
    counts = inner_frames(out.read_text())
    assert counts["innermost_work"] > 0.8 * sum(counts.values())


def test_the_text_of_perf_script_says_the_same(laggard, burn, tmp_path):
    text = subprocess.run(["perf", "script", "--header", "-i", burn / "perf.data"], capture_output=True,
                          check=True).stdout
    path = tmp_path / "script.txt.gz"
    path.write_bytes(gzip.compress(text))
    assert rows(laggard, path) == perf_count(burn / "perf.data")
    assert laggard("convert", path, "-o", tmp_path / "t.folded").returncode == 0
    assert laggard("convert", burn / "perf.data", "-o", tmp_path / "d.folded").returncode == 0
    ours = inner_frames((tmp_path / "d.folded").read_text())
    theirs = inner_frames((tmp_path / "t.folded").read_text())
    assert ours["innermost_work"] == theirs["innermost_work"]


@pytest.fixture(scope="module", params=["gz", "xz", "zst"])
def pack(request):
    def run(content):
        if request.param == "zst":
            return subprocess.run(["zstd", "-qc"], input=content, capture_output=True, check=True).stdout
        return {"gz": gzip, "xz": lzma}[request.param].compress(content)

    if request.param == "zst" and not shutil.which("zstd"):
        pytest.skip("needs zstd: run tools/install-deps test")
    return run


def test_a_packed_file_is_read_like_a_plain_one(laggard, laggard_path, burn, pack, tmp_path):
    plain = burn / "perf.data"
    packed = pack(plain.read_bytes())
    path = tmp_path / "job" / "rank0"
    path.parent.mkdir()
    path.write_bytes(packed)
    assert laggard("convert", plain, "-o", tmp_path / "plain.lag").returncode == 0
    outs = {}
    for name in (path, path.parent, plain):
        out = tmp_path / "out.folded"
        done = laggard("convert", name, "-o", out)
        assert done.returncode == 0, done.stderr
        outs[name] = out.read_text()
    assert outs[path] == outs[path.parent] == outs[plain]
    piped = subprocess.run([laggard_path, "explain", "-", "--json"], input=packed, capture_output=True, check=True)
    assert json.loads(piped.stdout)["inputs"][0]["rows"]["sample"] == perf_count(plain)
    lag = tmp_path / "x"
    lag.write_bytes(pack((tmp_path / "plain.lag").read_bytes()))
    assert rows(laggard, lag) == perf_count(plain)
    text = subprocess.run(["perf", "script", "-i", plain], capture_output=True, check=True).stdout
    lag.write_bytes(pack(text))
    assert rows(laggard, lag) == perf_count(plain)


def test_a_packed_file_that_is_cut_is_read_as_far_as_it_goes(laggard, burn, pack, tmp_path):
    whole = (burn / "perf.data").read_bytes()
    packed = pack(whole + os.urandom(600000))  # zstd's blocks have 128 KiB
    path = tmp_path / "cut"
    path.write_bytes(packed[:-20])
    done = laggard("explain", path, "--json")
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["inputs"][0]["rows"]["sample"] == perf_count(burn / "perf.data")
    assert any("data ends early" in limit for limit in verdict["limits"]), verdict["limits"]
    path.write_bytes(packed[:40])
    done = laggard("explain", "-v", path)
    assert done.returncode == 1 and done.stderr.count("\n") == 1


def test_where_there_is_no_room_to_unpack_memory_is_taken(laggard, burn, tmp_path):
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress((burn / "perf.data").read_bytes()))
    for folder in (tmp_path / "none", tmp_path):
        done = laggard("explain", path, "--json", env={"TMPDIR": str(folder)})
        assert done.returncode == 0, done.stderr
    assert sorted(f.name for f in tmp_path.iterdir()) == ["x.gz"]


def test_a_cut_file_is_read_and_said_to_be_cut(laggard, burn, tmp_path):
    whole = (burn / "perf.data").read_bytes()
    path = tmp_path / "cut.data"
    data_at, data_size = struct.unpack_from("<QQ", whole, 40)
    path.write_bytes(whole[:data_at + data_size * 2 // 3])
    done = laggard("explain", path, "--json")
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert 0 < verdict["inputs"][0]["rows"]["sample"] < perf_count(burn / "perf.data")
    assert any("ends" in limit for limit in verdict["limits"]), verdict["limits"]
    path.write_bytes(whole[:50])
    done = laggard("explain", "-v", path)
    assert done.returncode == 1
    assert re.search(r"byte \d+", done.stderr) and done.stderr.count("\n") == 1


@pytest.fixture(scope="module", params=[["--threads"], ["--threads=core", "-z"]], ids=["plain", "zstd"])
def folder(request, burn, tmp_path_factory):
    """perf record --threads: a folder of files."""
    path = tmp_path_factory.mktemp("threads") / "perf.data"
    done = subprocess.run(["perf", "record", "-q", *request.param, "-a", "-g", "-F", "999", "-e", "cpu-clock", "-o",
                           path, "--", burn / "burn"], capture_output=True, text=True)
    if done.returncode or not path.is_dir():
        pytest.skip(f"perf record --threads: {done.stderr.strip()[:200]}")
    return path


def test_every_sample_of_a_folder_is_a_row(laggard, folder, tmp_path):
    assert rows(laggard, folder) == rows(laggard, folder / "data") == perf_count(folder) > 200
    done = laggard("explain", "-v", folder / "data.0")
    assert done.returncode == 1 and str(folder) in done.stderr and done.stderr.count("\n") == 1
    out = tmp_path / "folder.folded"
    assert laggard("convert", folder, "-o", out).returncode == 0
    assert inner_frames(out.read_text())["innermost_work"] > 100


def test_folders_lie_in_a_folder_and_files_may_be_missing(laggard, folder, tmp_path):
    for rank in ("rank0", "rank1"):
        shutil.copytree(folder, tmp_path / "job" / rank)
    done = laggard("explain", tmp_path / "job", "--json")
    assert done.returncode == 0, done.stderr
    (first,) = json.loads(done.stdout)["inputs"]  # a copy of it counts once
    assert first["path"].endswith("rank0") and first["rows"]["sample"] == perf_count(folder)
    assert "rank1 is left out: it has the same rows as" in done.stderr
    whole = json.loads(laggard("explain", folder, "--json").stdout)
    assert not any("missing" in limit for limit in whole["limits"])
    if not (folder / "data.1").exists():
        return
    (tmp_path / "job" / "rank0" / "data.0").unlink()
    part = json.loads(laggard("explain", tmp_path / "job" / "rank0", "--json").stdout)
    assert part["inputs"][0]["rows"]["sample"] < perf_count(folder)
    assert any("data.0" in limit for limit in part["limits"])


def two_ranks(path, hog=True, name="python3"):
    """Text of perf script without stacks: rank 0 waits for rank 1 in each step and then wakes it; in every tenth of them
    a stranger has the CPU of rank 0 for 30 ms, so that rank 1, which computes longest, waits for it in vain."""
    lines, t = [], 1000.0
    ranks, idle = (("python3", 100), (name, 101)), ("swapper", 0)

    def line(at, cpu, who, event):
        lines.append((at, f"{who[0]:>16} {who[1]:>6}/{who[1]:<6} [{cpu:03d}] {at:12.6f}: sched:{event}\n"))

    def switch(at, cpu, a, b, state):
        line(at, cpu, a, f"sched_switch: prev_comm={a[0]} prev_pid={a[1]} prev_prio=120 prev_state={state} ==> "
                         f"next_comm={b[0]} next_pid={b[1]} next_prio=120")

    def wake(at, cpu, who, whom, target):
        line(at, cpu, who, f"sched_waking: comm={whom[0]} pid={whom[1]} prio=120 target_cpu={target:03d}")

    switch(t, 0, idle, ranks[0], "R")
    switch(t, 2, idle, ranks[1], "R")
    for i in range(200):
        early, late, held = t + 0.018 + i * 7 % 5 * 1e-4, t + 0.020 + i * 3 % 7 * 1e-4, hog and i % 10 == 9
        other = ("backupd", 900) if held else idle
        switch(early, 0, ranks[0], idle, "S")
        if held:
            switch(early + 5e-4, 0, idle, other, "R")
        wake(late, 2, ranks[1], ranks[0], 0)
        switch(late + 5e-5, 2, ranks[1], idle, "S")
        go = late + (0.03 if held else 2e-5)
        switch(go, 0, other, ranks[0], "S" if held else "R")
        wake(go + 3e-4, 0, ranks[0], ranks[1], 2)
        switch(go + 3.2e-4, 2, idle, ranks[1], "R")
        t = go + 4e-4
    path.write_text("".join(text for _, text in sorted(lines)))
    return path


def test_ranks_that_wake_each_other_need_no_stacks(laggard, tmp_path):
    verdict = json.loads(laggard("explain", "--json", two_ranks(tmp_path / "ill.txt")).stdout)
    first = verdict["findings"][0]
    assert first["id"] == "host.cpu_contention" and first["culprit"]["pid"] == 900, first
    assert verdict["unexplained_share"] < 0.1
    healthy = json.loads(laggard("explain", "--json", two_ranks(tmp_path / "well.txt", hog=False)).stdout)
    assert not [f for f in healthy["findings"] if f["severity"] in ("medium", "high")], healthy["findings"]
    # Another program may only have run when an interrupt woke it: nobody is followed into that.
    other = json.loads(laggard("explain", "--json", "--victim", "101", two_ranks(tmp_path / "other.txt", name="solver")).stdout)
    assert not [f for f in other["findings"] if f["culprit"]["pid"] == 900], other["findings"]
