# SPDX-License-Identifier: Apache-2.0
"""Who the others wait for, from dumps of the Flight Recorder; and dumps of healthy runs, which accuse nobody."""
import json
import pathlib
import pickle

import pytest

T0 = 1758581237526848193
MS = 1000000
WORLD = [list(range(4))]


def entry(seq, group="0", op="all_reduce", dtype="Float", size=(8,), done=False, at=None, **more):
    return {"collective_seq_id": seq, "p2p_seq_id": 0, "is_p2p": False, "pg_id": int(group), "state": "scheduled",
            "process_group": [group, "default_pg"], "profiling_name": f"nccl:{op}", "retired": done,
            "input_sizes": [list(size)], "input_dtypes": [dtype], "time_created_ns": T0 + MS * (at or seq),
            "time_discovered_completed_ns": T0 + MS * (at or seq) + 500000 if done else None,
            "frames": [{"name": "step", "filename": "train.py", "line": 30 + seq}]} | more


def ring(done, pending, **more):
    """A ring whose collectives up to `done` are completed, and `pending` are not."""
    return [entry(i, done=True, **more) for i in range(1, done + 1)] + [
        entry(i, **more) for i in range(done + 1, done + pending + 1)]


def dump(folder, rank, entries, status=True, groups=None, last=None, as_json=False):
    groups = {"0": WORLD[0]} if groups is None else groups
    d = {"version": "2.9", "entries": entries,
         "pg_config": {name: {"name": name, "desc": "G" + name, "ranks": str(of)} for name, of in groups.items()}}
    if status:
        d["pg_status"] = {}
        for name in groups:
            mine = [e for e in entries if e["process_group"][0] == name and not e["is_p2p"]]
            enqueued, completed = (last or {}).get(name) or (
                max((e["collective_seq_id"] for e in mine), default=0),
                max((e["collective_seq_id"] for e in mine if e["retired"]), default=0))
            d["pg_status"][name] = {"last_enqueued_collective": enqueued, "last_started_collective": -1,
                                    "last_completed_collective": completed}
    path = pathlib.Path(folder) / f"_dump_{rank}"
    if as_json:
        path.write_text(json.dumps(d), encoding="utf-8")
    else:
        path.write_bytes(pickle.dumps(d, protocol=2))


def explain(laggard, folder):
    done = laggard("explain", folder, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["findings"]


@pytest.mark.parametrize("status", [True, False])
@pytest.mark.parametrize("as_json", [True, False])
def test_the_rank_that_did_not_enter_is_named(laggard, tmp_path, status, as_json):
    for rank in range(4):
        dump(tmp_path, rank, ring(5, 0 if rank == 2 else 3), status, as_json=as_json)
    (finding,) = explain(laggard, tmp_path)
    assert finding["id"] == "comms.missing_rank" and finding["severity"] == "high"
    assert finding["culprit"]["rank"] == 2 and finding["lost_ms"] is None
    assert "ranks 0, 1, 3 wait" in finding["title"] and "all_reduce" in finding["title"]
    assert "number 6 of group 0" in finding["evidence"][0]["text"]
    assert "train.py:36" in finding["evidence"][0]["text"]
    ranks = json.loads(laggard("hang", "--json", tmp_path).stdout)["hang"]["ranks"]
    assert [(r["last_collective"]["seq"], r["last_collective"]["state"]) for r in ranks] == [
        (5, "completed") if rank == 2 else (6, "waiting") for rank in range(4)]


def test_a_dump_without_entries_is_the_one(laggard, tmp_path):
    for rank in range(4):
        dump(tmp_path, rank, ring(5, 0 if rank == 1 else 1)[-1 if rank != 1 else 9:], False)
    (finding,) = explain(laggard, tmp_path)
    assert (finding["id"], finding["culprit"]["rank"]) == ("comms.missing_rank", 1)


def test_the_end_of_a_chain_is_accused_and_not_who_waits_himself(laggard, tmp_path):
    """1 waits for 0 in group 1; so 1 does not come to group 0, where 2 and 3 wait."""
    groups = {0: {"0": WORLD[0], "1": [0, 1]}, 2: {"0": WORLD[0]}}
    dump(tmp_path, 0, ring(5, 0) + ring(3, 0, group="1"), groups=groups[0])
    dump(tmp_path, 1, ring(5, 0) + ring(3, 1, group="1"), groups=groups[0])
    dump(tmp_path, 2, ring(5, 1), groups=groups[2])
    dump(tmp_path, 3, ring(5, 1), groups=groups[2])
    (finding,) = explain(laggard, tmp_path)
    assert finding["culprit"]["rank"] == 0


@pytest.mark.parametrize("healthy", [False, True])
def test_ranks_that_wait_for_each_other_in_two_groups(laggard, tmp_path, healthy):
    """0 is in group 1 and 1 in group 2, of which both are; 2 and 3 wait for them in group 0. Or all have entered both."""
    groups = {"0": WORLD[0], "1": [0, 1], "2": [0, 1]}
    for rank in (0, 1):
        dump(tmp_path, rank, ring(5, 0) + ring(3, healthy or rank == 0, group="1") + ring(3, healthy or rank == 1, group="2"),
             groups=groups)
    for rank in (2, 3):
        dump(tmp_path, rank, ring(5, 0 if healthy else 1), groups={"0": WORLD[0]})
    findings = explain(laggard, tmp_path)
    assert len(findings) == (0 if healthy else 1)
    for finding in findings:
        assert finding["id"] == "comms.mismatch" and finding["severity"] == "high" and finding["culprit_ranks"] == [0, 1]
        assert finding["title"].startswith("ranks 0, 1 wait for each other in a circle")
        assert finding["evidence"][0]["text"].startswith("rank 0 waits in nccl:all_reduce number 4 of group 1")
        assert finding["evidence"][0]["text"].endswith("which rank 1 has not entered")


def test_a_rank_whose_device_stands_is_told_beside_it(laggard, tmp_path):
    dump(tmp_path, 0, ring(8, 2))
    dump(tmp_path, 1, ring(8, 2))
    dump(tmp_path, 2, ring(8, 0))
    dump(tmp_path, 3, ring(4, 6))
    findings = explain(laggard, tmp_path)
    assert [f["culprit"]["rank"] for f in findings] == [2, 3]
    assert "never entered" in findings[0]["title"] and "its device stands" in findings[1]["title"]


def test_one_absent_dump_of_many(laggard, tmp_path):
    for rank in (0, 1, 3):
        dump(tmp_path, rank, ring(5, 1))
    (finding,) = explain(laggard, tmp_path)
    assert finding["culprit"]["rank"] == 2 and finding["confidence"] < 0.7
    (tmp_path / "_dump_1").unlink()  # two of four: they were not given
    assert not explain(laggard, tmp_path)


HEALTHY = {
    "all done": lambda rank: ring(8, 0),
    "under way": lambda rank: ring(8, 3),
    "one host runs ahead": lambda rank: ring(8, 5 if rank == 1 else 2),
    "one watchdog looked later": lambda rank: ring(4 if rank == 1 else 8, 7 if rank == 1 else 3),
    "dumped one after the other": lambda rank: ring(8 + 20 * rank, 2),
}


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("status", [True, False])
def test_a_run_that_moves_accuses_nobody(laggard, tmp_path, name, status):
    for rank in range(4):
        dump(tmp_path, rank, HEALTHY[name](rank), status)
    assert not explain(laggard, tmp_path)


@pytest.mark.parametrize("odd, more", [({"op": "broadcast"}, {}), ({"size": (9,)}, {}), ({"dtype": "Double"}, {})])
def test_sequences_that_part(laggard, tmp_path, odd, more):
    for rank in range(4):  # the odd one is the first: it does not make all others odd
        dump(tmp_path, rank, ring(5, 0) + [entry(6, **(odd if rank == 0 else more))])
    (finding,) = explain(laggard, tmp_path)
    assert (finding["id"], finding["culprit"]["rank"]) == ("comms.mismatch", 0)
    assert "number 6 of group 0" in finding["title"]
    kind = {"op": "operation"}.get(*odd, *odd)
    assert finding["detail"] == kind and ("brings another " + kind in finding["title"]) == (kind != "operation")
    assert ("tensor's " in finding["confirm"]) == (kind != "operation")
    assert any(e["text"].startswith("rank 1 and 2 more: nccl:all_reduce") for e in finding["evidence"])


@pytest.mark.parametrize("n, more", [(7, None), (9, "... and 2 more ranks that enter another one than most")])
def test_ranks_that_part_are_counted_beyond_those_that_are_told(laggard, tmp_path, n, more):
    for rank in range(2 * n):  # the others agree
        dump(tmp_path, rank, ring(5, 0) + [entry(6, size=(9 + rank if rank < n - 2 else 8,))], groups={"0": list(range(2 * n))})
    (finding,) = explain(laggard, tmp_path)
    said = [e["text"] for e in finding["evidence"]]
    assert finding["id"] == "comms.mismatch" and len([t for t in said if t.startswith("rank ")]) == 6
    assert [t for t in said if t.startswith("... and")] == ([more] if more else [])


@pytest.mark.parametrize("n", [3, 5])
def test_groups_that_part_are_counted_beyond_those_that_are_told(laggard, tmp_path, n):
    groups = {str(g): WORLD[0] for g in range(n)}
    for rank in range(4):
        dump(tmp_path, rank, [e for g in groups for e in ring(5, 0, group=g) + [entry(6, group=g, size=(9 if rank == 0 else 8,))]],
             groups=groups)
    verdict = json.loads(laggard("explain", tmp_path, "--json").stdout)
    assert [f["id"] for f in verdict["findings"]] == ["comms.mismatch"] * 3
    more = "... and 2 more process groups in which ranks enter different collectives"
    assert (more in verdict["limits"]) == (n == 5) and any("... and" in t for t in verdict["limits"]) == (n == 5)


@pytest.mark.parametrize("make", [
    lambda rank: entry(6, op="all_to_all", size=(100 + rank,)),
    lambda rank: entry(6, op=f"send {rank}->{(rank + 1) % 4}", size=(4 + rank,), is_p2p=True, p2p_seq_id=6 + rank),
    lambda rank: entry(6 + rank, op="coalesced", size=(4 + rank,)),
    lambda rank: entry(6, op="scatter", size=(32,) if rank == 0 else ()),
])
def test_what_may_differ(laggard, tmp_path, make):
    for rank in range(4):
        dump(tmp_path, rank, ring(5, 0) + [make(rank)])
    assert not explain(laggard, tmp_path)


def test_a_name_that_comes_again_is_another_group(laggard, tmp_path):
    """Split groups share names: what ranks 0 and 1 do says nothing about 2 and 3."""
    for rank in range(4):
        late = 2 if rank < 2 else 0
        dump(tmp_path, rank, ring(3 + late, 1, op="all_reduce" if rank < 2 else "broadcast"),
             groups={"0": [0, 1] if rank < 2 else [2, 3]})
    assert not explain(laggard, tmp_path)


def test_groups_without_entries_are_told_by_their_order(laggard, tmp_path):
    """pg_status counts a process's groups from 0, their names are others; rank 3 hangs with an empty ring."""
    for rank in range(4):
        d = {"version": "2.9", "entries": [] if rank == 3 else [entry(9, group="35") | {"pg_id": 5}],
             "pg_config": {"35": {"name": "35", "desc": "TP", "ranks": str(WORLD[0])},
                           "4": {"name": "4", "desc": "DP", "ranks": str(WORLD[0])}},
             "pg_status": {"5": {"last_enqueued_collective": 8 if rank == 3 else 9, "last_started_collective": -1,
                                 "last_completed_collective": 8},
                           "1": {"last_enqueued_collective": 3, "last_started_collective": -1,
                                 "last_completed_collective": 3}}}
        (tmp_path / f"_dump_{rank}").write_bytes(pickle.dumps(d, protocol=2))
    (finding,) = explain(laggard, tmp_path)
    assert finding["culprit"]["rank"] == 3
    assert "entered number 8 last" in finding["evidence"][0]["text"]


@pytest.mark.parametrize("name", ["nccl_trace_10.0.{host}.1_rank_{rank}", "trace.{rank}", "nccl_trace_node1.dc2.example_{rank}",
                                  "_dump_{rank}.pickle.bak", "host{host}-rank{rank}.node7", "node1.frank4.lan_{rank}"])
def test_the_rank_is_in_the_name_whatever_the_prefix(laggard, tmp_path, name):
    for rank in range(4):
        dump(tmp_path, rank, ring(5, 0 if rank == 2 else 3))
        (tmp_path / f"_dump_{rank}").rename(tmp_path / name.format(rank=rank, host=rank // 2))
    (finding,) = explain(laggard, tmp_path)
    assert finding["culprit"]["rank"] == 2


def both_ways(laggard, paths):
    """Findings of the same files in both orders, which say the same."""
    said = []
    for order in (paths, paths[::-1]):
        done = laggard("explain", *order, "--json")
        assert done.returncode == 0, done.stderr
        said.append([(f["id"], f["culprit"]["rank"], f["title"]) for f in json.loads(done.stdout)["findings"]])
    assert said[0] == said[1]
    return said[0]


@pytest.mark.parametrize("status", [True, False])
def test_an_earlier_dump_of_a_rank_changes_nothing(laggard, tmp_path, status):
    (tmp_path / "before").mkdir()
    for rank in range(4):
        dump(tmp_path, rank, ring(5, 0 if rank == 2 else 3), status)
    for rank in (0, 3):
        dump(tmp_path / "before", rank, ring(2, 2), status)
    (said,) = both_ways(laggard, sorted(tmp_path.rglob("_dump_*")))
    assert said[:2] == ("comms.missing_rank", 2) and "all_reduce" in said[2]
    for rank in range(4):  # all came: the earlier dumps hold nothing against them
        dump(tmp_path, rank, ring(5, 3), status)
    assert not both_ways(laggard, sorted(tmp_path.rglob("_dump_*")))


def test_sequences_that_part_in_two_dumps_of_each_rank(laggard, tmp_path):
    (tmp_path / "before").mkdir()
    for rank in range(4):
        odd = entry(6, op="broadcast" if rank == 1 else "all_reduce")
        dump(tmp_path, rank, ring(5, 0) + [odd])
        dump(tmp_path / "before", rank, ring(4, 1) + [odd])
    (said,) = both_ways(laggard, sorted(tmp_path.rglob("_dump_*")))
    assert said[:2] == ("comms.mismatch", 1)


def test_dumps_of_two_runs_do_not_belong_together(laggard, tmp_path):
    """The job was started again: its numbers began anew."""
    (tmp_path / "before").mkdir()
    for rank in range(4):
        dump(tmp_path / "before", rank, ring(20, 0 if rank == 1 else 2))
        dump(tmp_path, rank, [e | {"time_created_ns": e["time_created_ns"] + 600 * 1000 * MS} for e in ring(5, 2)])
    done = laggard("explain", *tmp_path.rglob("_dump_*"), "--json")
    verdict = json.loads(done.stdout)
    assert not verdict["findings"] and any("of two runs" in x for x in verdict["limits"])


def test_entries_tell_what_no_watchdog_counted(laggard, tmp_path):
    for rank in range(4):
        dump(tmp_path, rank, ring(5, 0 if rank == 2 else 3), last={"0": (5 if rank == 2 else 8, -1)})
    (finding,) = explain(laggard, tmp_path)
    assert finding["culprit"]["rank"] == 2 and "number 6 of group 0" in finding["evidence"][0]["text"]


def test_many_that_did_not_enter_are_counted(laggard, tmp_path):
    for rank in range(40):
        dump(tmp_path, rank, ring(5, 0 if rank >= 20 else 1), groups={"0": list(range(40))})
    verdict = json.loads(laggard("explain", tmp_path, "--json").stdout)
    assert len(verdict["findings"]) == 8 and any(": 20 ranks never entered" in x for x in verdict["limits"])


def test_one_long_list_for_many_groups_is_read_in_time(laggard, tmp_path):
    """A pickle says it once, however often it stands there: a small file is no day's work."""
    ranks = str(list(range(100000)))
    groups = {str(i): {"name": str(i), "desc": "x", "ranks": ranks} for i in range(20000)}
    (tmp_path / "_dump_0").write_bytes(pickle.dumps({"version": "2.9", "entries": [], "pg_config": groups}, protocol=2))
    done = laggard("explain", tmp_path, "--json", timeout=30)
    assert done.returncode == 0 and any("ranks of some groups are left out" in x for x in json.loads(done.stdout)["limits"])


@pytest.mark.parametrize("n", [1, 200])
def test_all_inputs_of_a_collective_are_counted(laggard, tmp_path, n):
    dump(tmp_path, 0, [entry(1) | {"input_sizes": [[1024, 1024]] * n, "input_dtypes": ["Float"] * n}])
    done = laggard("query", tmp_path / "_dump_0", "select bytes from span")
    assert done.stdout.split() == ["bytes", str(n << 22)]


@pytest.mark.parametrize("started", [None, T0 + 2 * MS, 2**63 - 1])
def test_a_start_in_another_century_is_left_out(laggard, tmp_path, started):
    dump(tmp_path, 0, [entry(1) | {"retired": True, "duration_ms": 5.0, "time_discovered_started_ns": started}])
    done = laggard("query", tmp_path / "_dump_0", "select dur from span")
    assert done.stdout.split() == ["dur", str(5 * MS + (MS if started == T0 + 2 * MS else 0))]


@pytest.mark.parametrize("n, lines", [(4, 3), (16, 1)])
def test_many_files_on_one_clock_are_said_in_one_line(laggard, tmp_path, n, lines):
    for rank in range(n):
        dump(tmp_path, rank, ring(5, 3), groups={"0": list(range(n))})
    done = laggard("explain", tmp_path, "--json")
    said = [limit for limit in json.loads(done.stdout)["limits"] if "on the clock of" in limit]
    assert len(said) == lines
    assert all("wall clocks: good to" in limit for limit in said)
    assert lines > 1 or f"and {n - 2} more are on the clock of" in said[0]
