# SPDX-License-Identifier: Apache-2.0
"""query: every table of the trace and of the verdict, read-only."""
import csv
import io
import json
import pathlib
import re
import subprocess

import pytest


@pytest.fixture(scope="session")
def trace(laggard_path, tmp_path_factory):
    tool = next((p / "tests/e2e/make_trace" for p in pathlib.Path(laggard_path).parents
                 if (p / "tests/e2e/make_trace").exists()), None)
    assert tool, "tests/e2e/make_trace is not built"
    where = tmp_path_factory.mktemp("query")
    for kind in ("stall", "nasty", "random", "empty", "threads", "summed"):
        subprocess.run([tool, kind, where / f"{kind}.lag"], check=True)
    return lambda kind: where / f"{kind}.lag"


@pytest.fixture
def ask(laggard, trace):
    def call(kind, sql):
        done = laggard("query", trace(kind), sql, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
    return call


DERIVED = ("step", "part", "cause", "finding", "evidence", "stage", "input")


def tables(root):
    text = (root / "src/store/schema.def").read_text(encoding="utf-8")
    return re.findall(r"^\s*T\((\w+), \d+", text, re.M)


@pytest.mark.parametrize("kind", ("stall", "nasty", "random", "empty", "threads"))
def test_every_table_and_column_can_be_read(ask, root, kind):
    for table in (*tables(root), *DERIVED):
        n = ask(kind, f"SELECT count(*) AS n FROM {table}")[0]["n"]
        rows = ask(kind, f"SELECT * FROM {table} ORDER BY id DESC LIMIT 3")
        assert len(rows) == min(n, 3)
        assert all(row["id"] == n - 1 - i for i, row in enumerate(rows))


def test_the_numbers_are_those_of_the_verdict(ask, laggard, trace):
    verdict = json.loads(laggard("explain", trace("stall"), "--json").stdout)
    rows = ask("stall", "SELECT rule, severity, lost_ms, pid, function FROM finding ORDER BY id")
    assert [r["rule"] for r in rows] == [f["id"] for f in verdict["findings"]]
    assert rows[0]["pid"] == 4711
    assert rows[0]["lost_ms"] == pytest.approx(verdict["findings"][0]["lost_ms"], abs=0.01)
    evidence = ask("stall", "SELECT count(*) AS n FROM evidence WHERE finding = 0")[0]["n"]
    assert evidence == len(verdict["findings"][0]["evidence"]) + len(verdict["findings"][0]["against"])
    slow = ask("stall", "SELECT count(DISTINCT number) AS n FROM step WHERE slow AND NOT warmup")
    assert slow[0]["n"] == verdict["steps"]["slow"]


def test_parts_sum_to_their_steps(ask):
    bad = ask("stall", "SELECT step.id FROM step JOIN part ON part.step = step.id GROUP BY step.id "
                       "HAVING sum(part.dur) != step.dur OR min(part.ts) != step.ts")
    assert not bad


def test_ranges_of_time_and_ids_are_exact(ask):
    """The fast paths must give what a scan gives: +ts hides the column from the index."""
    for table in ("span", "state", "sample", "mark"):
        for cond in ("{} >= 1500000000", "{} > 1500000000", "{} < 1200000000", "{} <= 1200000000",
                     "{} BETWEEN 1100000000 AND 1100000001", "{} > 1.2e9 AND {} < 1300000000.5",
                     "{} = 1000000000", "{} > '1500000000'", "{} < NULL", "{} > -1"):
            fast, slow = (ask("stall", f"SELECT count(*) AS n, min(id) AS a, max(id) AS z FROM {table} "
                                       f"WHERE {cond.format(ts, ts)}") for ts in ("ts", "+ts"))
            assert fast == slow, (table, cond)
    for value in ("0", "1", "-1", "99999999", "1.0", "1.5", "NULL", "'x'"):
        fast, slow = (ask("stall", f"SELECT id FROM thread WHERE {c} = {value}") for c in ("id", "+id"))
        assert fast == slow, value
    ts = [r["ts"] for r in ask("stall", "SELECT ts FROM span ORDER BY ts")]
    assert ts == sorted(ts) and len(ts) > 1000
    ts = [r["ts"] for r in ask("stall", "SELECT ts FROM span ORDER BY ts DESC")]
    assert ts == sorted(ts, reverse=True)


def test_joins_on_ids_name_who(ask):
    rows = ask("stall", "SELECT DISTINCT p.pid FROM span s JOIN thread t ON t.id = s.thr "
                        "JOIN process p ON p.id = t.prc WHERE s.kind = 8")
    assert rows == [{"pid": 4711}]
    rows = ask("stall", "WITH RECURSIVE up(s, n) AS (SELECT max(stack), 0 FROM sample UNION ALL "
                        "SELECT stack.parent, n + 1 FROM up JOIN stack ON stack.id = up.s WHERE up.s) "
                        "SELECT count(*) AS n FROM up")
    assert rows[0]["n"] > 3


def test_csv_and_table(laggard, trace):
    sql = "SELECT comm, 'a,\"b' AS \"q,\"\"\", NULL AS absent FROM process WHERE pid = 4711"
    done = laggard("query", trace("stall"), sql, "--csv")
    assert list(csv.reader(io.StringIO(done.stdout))) == [["comm", 'q,"', "absent"],
                                                          ["watcher", 'a,"b', ""]]
    done = laggard("query", trace("nasty"), "SELECT pid, comm, cmdline FROM process")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["pid", "comm", "cmdline"] and "\033" not in done.stdout
    n = len(laggard("query", trace("stall"), "SELECT id FROM span").stdout.splitlines())
    assert n > 1000
    assert json.loads(laggard("query", trace("empty"), "SELECT * FROM span", "--json").stdout) == []


@pytest.mark.parametrize("sql", (
    "DROP TABLE span", "DELETE FROM span", "UPDATE span SET ts = 0", "INSERT INTO span(ts) VALUES (1)",
    "ATTACH 'x.db' AS x", "PRAGMA writable_schema = 1", "CREATE TABLE t(a)", "VACUUM INTO 'x.db'",
    "SELECT load_extension('x')", "SELECT 1; SELECT 2", "", "  ;", "SELEC 1", "SELECT * FROM nothing",
    "BEGIN", "SELECT writefile('x', 'y')"))
def test_only_one_select_is_allowed(laggard, trace, tmp_path, sql):
    done = laggard("query", trace("stall"), sql, cwd=tmp_path)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.count("\n") == 1 and "SQL" in done.stderr
    assert not list(tmp_path.iterdir())


def test_usage(laggard, trace, tmp_path):
    for args in ((), ("x",), ("x", "SELECT 1", "--nonsense")):
        done = laggard("query", *args)
        assert done.returncode == 2 and done.stderr.count("\n") == 1
    done = laggard("query", tmp_path / "absent", "SELECT 1")
    assert done.returncode == 1 and "absent" in done.stderr


def test_the_examples_of_the_man_page_run(laggard, trace, root):
    page = (root / "doc/man/laggard-query.1").read_text(encoding="utf-8")
    examples = re.findall(r'laggard query run\.lag "(.*?)"', page, re.S)
    assert len(examples) >= 2
    for sql in examples:
        done = laggard("query", trace("stall"), sql)
        assert done.returncode == 0 and len(done.stdout.splitlines()) > 1, (sql, done.stderr)


def test_the_example_counts_what_ran_in_short_slices(ask, root):
    page = (root / "doc/man/laggard-query.1").read_text(encoding="utf-8")
    sql = next(x for x in re.findall(r'laggard query run\.lag "(.*?)"', page, re.S) if "cpu_s" in x)
    assert ask("summed", sql) == [{"pid": 80, "comm": "worker", "cpu_s": 1.0},
                                  {"pid": 70, "comm": "watcher", "cpu_s": 0.1}]


def test_text_with_zero_bytes_is_whole(laggard, trace):
    sql = "SELECT 'a' || char(0) || 'b' || char(0) AS x, 'y' AS y"
    assert json.loads(laggard("query", trace("stall"), sql, "--json").stdout) == [{"x": "a\0b\0", "y": "y"}]
    assert list(csv.reader(io.StringIO(laggard("query", trace("stall"), sql, "--csv").stdout))) == [
        ["x", "y"], ["a\\x00b\\x00", "y"]]
    assert laggard("query", trace("stall"), sql).stdout.splitlines()[1].split() == ["a\\x00b\\x00", "y"]
