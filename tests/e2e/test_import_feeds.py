# SPDX-License-Identifier: Apache-2.0
"""Feeds (nsys, nvidia-smi, logs, Flight Recorder, py-spy, folded stacks): fixtures, joining, and real files.

Real files are those of tests/data/cases, and in the large sweep (LG_CASES) some whose licence does not let them in."""
import json
import os
import pathlib

import case_files
import pytest

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parent / "data"

IMPORTED = (
    "GindaChen+nsys-ai/*.sqlite", "extra-p+extrap/*.sqlite", "laggard/*.csv", "laggard/*.log",
    "pytorch+tlparse/inputs/*.log", "pytorch+tlparse/inputs/*.txt", "pytorch+tlparse/inputs/*/*.log", "jlfwong+speedscope/speedscope/*/*.json",
    "Timez-zx+nccl-tests/*.log", "*/*memory_snapshot.pickle", "NVIDIA+nvidia-resiliency-ext/fr_traces/*/_dump_*")
REFUSED = {
    "NVIDIA+nvidia-resiliency-ext/fr_traces/*/fault_injection.log": "not a trace",
}
if case_files.SWEEP:
    IMPORTED += ("grantwilkins+training_profile/*/*", "karpathy+nanoGPT/gpu_metrics*", "text-excerpts+from-index/*",
                 "AmZu1212*/*.speedscope.json", "brendangregg+FlameGraph/ref/*", "*/memory_*.pickle", "*/*_snapshot.*.pickle")


TABLES = ("process", "sample", "span", "counter", "mark", "state", "diag")


@pytest.fixture
def rows(laggard, tmp_path):
    """rows(files...) -> {table: number of rows} of what they become together; of processes, those with an id."""
    def call(*files):
        out = tmp_path / "out.lag"
        done = laggard("convert", "--no-verdict", *files, "-o", out)
        assert done.returncode == 0, done.stderr
        counts = ", ".join(f"(SELECT count(*) FROM {table}) AS {table}" for table in TABLES)
        done = laggard("query", out, f"SELECT {counts}", "--json")
        assert done.returncode == 0, done.stderr
        row, = json.loads(done.stdout)
        assert set(row) == set(TABLES)
        return row
    return call


@pytest.mark.parametrize("name,table,n", [
    ("smi/dmon.txt", "counter", 5 * 9), ("smi/query.csv", "counter", 14), ("smi/sweeps.csv", "counter", 70),
    ("torchlog/job.log", "mark", 10), ("torchlog/job.log", "counter", 8), ("torchlog/steps.log", "mark", 9), ("torchlog/trace.log", "span", 1),
    ("nccllog/nccl.log", "mark", 3), ("pyspy/dump.txt", "sample", 2), ("pyspy/dump.json", "sample", 2),
    ("pyspy/chrometrace.json", "sample", 3), ("pyspy/sampled.speedscope.json", "sample", 7),
    ("folded/stacks.folded", "sample", 5), ("flightrec/_dump_0.pickle", "span", 4)])
def test_fixture_becomes_rows(rows, name, table, n):
    found = rows(DATA / name)
    assert found[table] == n


def test_content_decides_not_the_name(rows, tmp_path):
    for name in ("smi/query.csv", "flightrec/dump.json", "torchlog/job.log"):
        copy = tmp_path / "copy.bin"  # no number: that of a dump would be its rank
        copy.write_bytes((DATA / name).read_bytes())
        assert rows(copy) == rows(DATA / name)


def test_all_feeds_are_one_run(rows):
    files = [DATA / n for n in ("flightrec/_dump_0.pickle", "flightrec/_dump_1.pickle", "torchlog/job.log",
                                "smi/query.csv", "pyspy/dump.txt", "nccllog/nccl.log", "folded/stacks.folded")]
    found = rows(*files)
    assert (found["span"], found["sample"]) == (6, 7) and found["diag"] >= 3


@pytest.mark.cases
@pytest.mark.parametrize("pattern", IMPORTED)
def test_real_files_import(rows, pattern):
    files = case_files.find(pattern)
    assert files
    for file in files:
        found = rows(file)
        if "_dump_" not in file.name and "export" not in file.name and "_aot_" not in file.name:
            assert sum(found[t] for t in ("sample", "span", "counter", "mark", "state")) > 0, file


@pytest.mark.cases
@pytest.mark.parametrize("pattern", REFUSED)
def test_real_files_of_other_kinds_are_refused_in_one_line(laggard, tmp_path, pattern):
    files = case_files.find(pattern)
    assert files
    for file in files:
        done = laggard("convert", "--no-verdict", file, "-o", tmp_path / "x.lag")
        assert done.returncode != 0
        assert REFUSED[pattern] in done.stderr and done.stderr.count("\n") == 1


def test_a_set_of_dumps_is_sixteen_ranks(rows):
    found = rows(*sorted(case_files.OWN.glob("NVIDIA+nvidia-resiliency-ext/fr_traces/lock_gil_1st/_dump_*")))
    assert (found["process"], found["span"]) == (17, 142)


def dump(folder, rank, world, states):
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(world)))}}
    entries = [{"collective_seq_id": i + 1, "p2p_seq_id": 0, "is_p2p": False, "pg_id": 0, "state": state,
                "process_group": ["0", "default_pg"], "profiling_name": "nccl:all_reduce", "retired": False,
                "input_sizes": [[8]], "input_dtypes": ["Float"], "frames": [],
                "time_created_ns": 1758581237526848193 + 1000000 * i} for i, state in enumerate(states)]
    (folder / f"trace_{rank}").write_text(json.dumps({"version": "2.4", "pg_config": groups, "entries": entries}))


def flight_limits(laggard, folder):
    done = laggard("explain", folder, "--json")
    assert done.returncode == 0, done.stderr
    return [x for x in json.loads(done.stdout)["limits"] if x.startswith("Flight Recorder")]


def test_what_dumps_leave_open_is_said(laggard, tmp_path):
    for rank in range(8):
        if rank != 6:
            dump(tmp_path, rank, 8, [] if rank == 3 else ["completed", "scheduled", "started"])
    (limit,) = flight_limits(laggard, tmp_path)
    assert "12 collectives had not completed on ranks 0-2, 4-5, 7;" in limit
    assert "nothing is in the dump of rank 3;" in limit and limit.endswith("no dump of rank 6")
    # All are there and done: nothing is left open.
    for rank in range(8):
        dump(tmp_path, rank, 8, ["completed"] * 3)
    assert not flight_limits(laggard, tmp_path)


def test_a_byte_order_mark_is_no_text(laggard, tmp_path):
    """PowerShell and spreadsheets put one in front of UTF-8: of the first column, of a log's first line."""
    for name in ("smi/query.csv", "torchlog/job.log", "folded/stacks.folded"):
        plain = (DATA / name).read_bytes()
        said = []
        for data in (plain, b"\xef\xbb\xbf" + plain):
            path = tmp_path / pathlib.Path(name).name
            path.write_bytes(data)
            os.utime(path, (1760000000, 1760000000))  # a log without a year takes the file's
            done = laggard("explain", path, "--json")
            assert done.returncode == 0, done.stderr
            said.append(done.stdout)
        assert said[0] == said[1], name


def test_a_copy_of_a_dump_counts_once(rows, laggard, tmp_path):
    """It has neither times nor eight rows, by which copies of other files are known: what it says counts."""
    text = (DATA / "pyspy/dump.txt").read_text()
    (tmp_path / "one.txt").write_text(text)
    (tmp_path / "copy.txt").write_text(text)
    (tmp_path / "later.txt").write_text(text.replace("get (queue.py:180)", "put (queue.py:140)"))
    (tmp_path / "other.txt").write_text(text.replace("4711", "4712"))
    one, copy, later, other = (tmp_path / f"{n}.txt" for n in ("one", "copy", "later", "other"))
    assert rows(one)["sample"] == rows(one, copy)["sample"] == 2
    assert f"{copy.name} is left out: it has the same rows as" in laggard("explain", one, copy).stderr
    assert rows(one, later)["sample"] == rows(one, other)["sample"] == 4
    same = laggard("explain", one, one)
    assert same.returncode == 1 and "are one file: its rows would count twice" in same.stderr
