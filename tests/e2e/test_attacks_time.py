# SPDX-License-Identifier: Apache-2.0
"""Four times the file takes about four times as long, whatever stands in it (hostile_inputs.py)."""
import os
import resource

import pytest
from hostile_inputs import SHAPES, SUFFIX

# Where laggard once took time by the square: as large as shows it.
LARGE = {"chrome_thread_names": 50000, "kineto_pids": 50000, "kineto_colliding_tids": 25000, "flight_groups": 50000,
         "flight_one_dict_as_all_entries": 12000, "folded_colliding_names": 25000}
USUAL = 6000
SLACK_S = 0.3   # what is lost to starting, and to a machine that does other things
RATIO = 7       # 4 is linear, 16 is the square


def cpu_of(call):
    """Seconds of CPU of a command and its children: a busy machine does not change them by much."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = call()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode in (0, 1), (done.returncode, done.stderr[-400:])
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("name", SHAPES)
def test_time_grows_with_the_file(laggard, tmp_path, name):
    few, files = LARGE.get(name, USUAL), []
    for n in (few, 4 * few):
        files.append(tmp_path / f"{n}.{SUFFIX[name]}")
        files[-1].write_bytes(SHAPES[name](n))
    for what in (("explain", "--json"), ("convert", "-o", tmp_path / "out.pftrace")):
        short, long = (cpu_of(lambda f=f: laggard(what[0], f, *what[1:], timeout=60)) for f in files)
        print(f"{name} {what[0]}: {os.path.getsize(files[1]) / 1e6:.1f} MB, {short:.2f} s, {long:.2f} s")
        assert long < RATIO * short + SLACK_S, (what[0], short, long)


def test_facts_of_one_file_and_processes_of_another(laggard, tmp_path):
    """Each process was asked for its facts, and all facts were looked at for each: half a minute for these 9 MB."""
    (tmp_path / "a.json").write_bytes(SHAPES["kineto_pids"](50000))
    (tmp_path / "_dump_0").write_bytes(SHAPES["flight_groups"](50000))
    assert cpu_of(lambda: laggard("explain", tmp_path, "--json", timeout=60)) < 8
