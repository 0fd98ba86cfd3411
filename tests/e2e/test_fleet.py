# SPDX-License-Identifier: Apache-2.0
"""laggard fleet: questions to rows whose answer is known, in SQLite and in a real ClickHouse."""
import json
import random
import time

import pytest
from fleet_stores import clickhouse, put, stall, steps, store  # noqa: F401

HOUR = 3_600_000_000


@pytest.fixture
def ask(laggard, store):  # noqa: F811
    def call(*args):
        done = laggard("fleet", *args, *store, "--json")
        assert done.returncode in (0, 3), done.stderr
        return json.loads(done.stdout)
    return call


def now_us():
    return time.time_ns() // 1000


def jobs(now, *names):
    return [("job", n + 1, 0, name, "user1", "torchrun", 16, now - HOUR, now) for n, name in enumerate(names)] + \
           [("node", n, f"node{n}", "6.1", now) for n in (1, 2)]


def test_which_rank_is_late(ask, laggard_path, store):  # noqa: F811
    """One rank of 16 works 8 % longer, in every step; the other job is healthy."""
    now = now_us()
    put(laggard_path, store, [jobs(now, "ill", "healthy"), list(steps(1, 16, 300, now, 1, late=11, excess=0.08)),
                              list(steps(2, 16, 300, now, 2))])
    found = ask("stragglers")
    assert [(f["job"], f["rank"], f["node"], f["kind"]) for f in found] == [("ill", 11, "node2", "persistent")]
    assert 16 <= found[0]["median_excess_ms"] <= 22  # 8 % of 250 ms, less the noise of the median rank
    assert found[0]["gpu_hours"] == pytest.approx(found[0]["lost_s"] * 16 / 3600)
    assert ask("stragglers", "--job", "healthy") == []


def test_of_two_ranks_the_late_one_is_named(ask, laggard_path, store):  # noqa: F811
    now = now_us()
    put(laggard_path, store, [list(steps(1, 2, 100, now, 3, late=1, excess=0.2)), list(steps(2, 2, 100, now, 4))])
    assert [(f["job"], f["rank"]) for f in ask("stragglers")] == [(f"{1:016x}", 1)]


def test_ranks_that_fold_differently_are_compared(ask, laggard_path, store):  # noqa: F811
    """Half of the ranks have rows of 4 steps, the others of 8: what they did in the same steps is what counts."""
    now = now_us()
    narrow = list(steps(1, 8, 200, now, 5, late=3, excess=0.1))
    wide = [(*row[:4], row[4] + 8, *row[5:]) for row in steps(1, 8, 100, now, 6, width=8)]
    put(laggard_path, store, [narrow, [tuple(r) for r in wide]])
    assert [f["rank"] for f in ask("stragglers")] == [3]


def test_a_rank_slightly_late_is_not_named(ask, laggard_path, store):  # noqa: F811
    now = now_us()
    put(laggard_path, store, [list(steps(1, 16, 200, now, 7, late=5, excess=0.025))])
    assert ask("stragglers") == []


def test_who_costs_the_most(ask, laggard, laggard_path, store):  # noqa: F811
    """By GPU-hours over all jobs: the one that 64 ranks waited for is before the one that took longer of two."""
    now = now_us()
    rows = [stall(1, 0, n, now - HOUR + n, 500_000, 2, "exporter", "smap_gather_stats") for n in range(100)] + \
           [stall(2, 1, n, now - HOUR + n, 100_000, 64, "backup.py", "vfs_read", "host.io_wait") for n in range(50)]
    put(laggard_path, store, [jobs(now, "a", "b"), list(steps(1, 2, 60, now, 8)), list(steps(2, 2, 60, now, 9)), rows])
    found = ask("culprits")
    assert [(c["process"], c["function"], c["rule"], c["jobs"], c["job"], c["node"]) for c in found] == [
        ("backup.py", "vfs_read", "host.io_wait", 1, "b", "node1"),
        ("exporter", "smap_gather_stats", "host.lock_held", 1, "a", "node1")]
    assert [c["gpu_hours"] for c in found] == pytest.approx([50 * 0.1 * 64 / 3600, 100 * 0.5 * 2 / 3600])
    assert [c["lost_s"] for c in found] == pytest.approx([5, 50])
    assert [c["process"] for c in ask("culprits", "--job", "a")] == ["exporter"]
    assert len(ask("culprits", "-n", "1")) == 1 and ask("culprits", "--since", "30m") == []
    assert laggard("fleet", "culprits", *store, "--fail-over", "0.05").returncode == 3
    assert laggard("fleet", "culprits", *store, "--fail-over", "1").returncode == 0
    held = [s for s in ask("stragglers") if s["kind"] == "held_up"]
    assert {(s["job"], s["rank"]) for s in held} == {("a", 0), ("b", 1)}


def test_what_comes_twice_or_late_counts_once(ask, laggard_path, store):  # noqa: F811
    now = now_us()
    rows = list(steps(1, 4, 100, now, 10)) + [stall(1, 0, n, now - n, 1000, 4, "p", "f") for n in range(20)]
    batches = [rows[i:i + 37] for i in range(0, len(rows), 37)]
    random.Random(1).shuffle(batches)
    put(laggard_path, store, batches, again=True)
    put(laggard_path, store, batches[::-1])
    (job,) = ask("jobs")
    assert (job["steps"], job["missing_steps"], job["ranks"]) == (4 * 100 * 4, 0, 4)
    assert ask("culprits")[0]["seen"] == 20 and job["lost_s"] == pytest.approx(0.02)


def test_what_never_came_is_counted(ask, laggard_path, store):  # noqa: F811
    now = now_us()
    rows = list(steps(1, 2, 50, now, 11))
    del rows[41], rows[20]  # two rows of 4 steps, not the last of a rank
    put(laggard_path, store, [rows])
    (job,) = ask("jobs")
    assert (job["steps"], job["missing_steps"]) == (2 * 200 - 8, 8)


def test_of_two_versions_the_later_counts(ask, laggard_path, store):  # noqa: F811
    now = now_us()
    later, earlier = ("job", 1, 0, "later", "u", "slurm", 4, now, now), ("job", 1, 0, "earlier", "u", "", 4, now, now - 1)
    put(laggard_path, store, [list(steps(1, 2, 20, now, 12)), [later], [earlier]])
    assert [j["job"] for j in ask("jobs")] == ["later"]


def test_gc_removes_what_is_old(ask, laggard_path, store):  # noqa: F811
    now, day = now_us(), 24 * HOUR
    put(laggard_path, store, [list(steps(1, 2, 20, now - 20 * day, 13)), list(steps(2, 2, 20, now, 14))])
    assert len(ask("jobs", "--since", "30d")) == 2
    assert {r["table"]: r["removed"] > 0 for r in ask("gc")} == {"rank_step": True, "stall": False, "batch": False}
    assert [j["id"] for j in ask("jobs", "--since", "30d")] == [f"{2:016x}"]


def test_names_from_outside_are_data(ask, laggard, laggard_path, store):  # noqa: F811
    now = now_us()
    name = "x'; DROP TABLE job; -- \\' \x1b[2J"
    put(laggard_path, store, [list(steps(1, 2, 20, now, 15)), [("job", 1, 0, name, "u", "", 2, now, now)]])
    assert [j["job"] for j in ask("jobs")] == [name]
    shown = laggard("fleet", "jobs", *store)
    assert shown.returncode == 0 and "\x1b" not in shown.stdout
    assert [j["job"] for j in ask("jobs", "--job", name)] == [name]


def test_one_clear_line(laggard, store, tmp_path):  # noqa: F811
    """A store that is none, has no tables, or does not answer."""
    missing = laggard("fleet", "jobs", "--store", f"sqlite:{tmp_path}/none.db")
    assert missing.returncode == 1 and missing.stderr.count("\n") == 1 and "laggard fleet init" in missing.stderr
    (tmp_path / "link.db").symlink_to(tmp_path / "fleet.db")
    assert laggard("fleet", "init", "--store", f"sqlite:{tmp_path}/link.db").returncode == 1
    away = laggard("fleet", "jobs", "--store", "http://127.0.0.1:9/laggard")
    assert away.returncode == 1 and away.stderr.count("\n") == 1 and "127.0.0.1" in away.stderr
    for bad in ("redis:x", "http://h:1/a/b", "http://u@h:1/db", "http://h:1/d'b", "http://"):
        assert laggard("fleet", "jobs", "--store", bad).returncode == 2, bad
    assert laggard("fleet", "jobs", *store, "--job", "nobody").returncode == 1
    assert laggard("fleet", "dance", *store).returncode == 2
    if store[1].startswith("http"):
        none = laggard("fleet", "jobs", "--store", store[1].rsplit("/", 1)[0] + "/nothing", *store[2:])
        assert none.returncode == 1 and "laggard fleet init" in none.stderr
        wrong = laggard("fleet", "jobs", "--store", store[1])
        assert wrong.returncode == 1 and "401" in wrong.stderr and wrong.stderr.count("\n") == 1
