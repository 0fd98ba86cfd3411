# SPDX-License-Identifier: Apache-2.0
"""Several files: ranks of one run as a table below its verdict, other runs as rows of their own, what they have in
common; and what is said where there is no verdict."""
import csv
import decimal
import gzip
import json
import re

import pytest
from conftest import ROOT
from device_trace import device_trace

DATA = ROOT / "tests/data"
HOUR = 3600


@pytest.fixture
def explain(laggard):
    def call(*args, status=0):
        done = laggard("explain", *args, "--json")
        assert done.returncode == status, done.stderr
        return json.loads(done.stdout)
    return call


def test_another_run_among_the_files_is_a_row(explain, laggard, tmp_path):
    """Another process of the same rank, an hour later: it is not mixed into the first one's steps."""
    first = device_trace(tmp_path / "before.json", pid=7, loader_us=9000)
    later = device_trace(tmp_path / "after.json", pid=8, start_s=HOUR, loader_us=4000)
    third = device_trace(tmp_path / "third.json", pid=9, start_s=2 * HOUR)
    alone, together = explain(first), explain(first, later, third)
    assert together["steps"] == alone["steps"] and together["findings"] == alone["findings"]
    assert "runs" not in alone
    runs = together["runs"]
    assert [r["path"] for r in runs] == [str(first), str(later), str(third)]
    for r, trace in zip(runs, (first, later, third)):
        v = explain(trace)
        told = [f for f in v["findings"] if f["severity"] != "info"]
        assert r["steps"] == v["steps"]["count"] == 12 and r["median_ms"] == v["steps"]["median_ms"]
        assert r["finding"] == (told[0]["id"] if told else None) and not r["failed"]
        assert r["lost_ms"] == (told[0]["lost_ms"] if told else None)
    assert [r["finding"] for r in runs] == ["data.loader_wait", "data.loader_wait", None]
    text = laggard("explain", first, later, third).stdout
    rows = text[text.index("\nruns "):].splitlines()[2:]
    assert [r.split()[0] for r in rows[:3]] == ["before.json", "after.json", "third.json"]
    assert rows[0].endswith("high data.loader_wait") and rows[2].endswith("-")
    assert any(r.startswith("in common: data.loader_wait in 2 of 3, ") for r in rows)
    # A limit, or a gate, is of all of them.
    assert any(f"{later} is left out: it is of another run: " in line for line in together["limits"])
    for given in ((first, later), (later, first)):
        assert f"; laggard diff {first} {later} compares them" in laggard("explain", *given).stderr
    assert laggard("explain", third, first, "--fail-on", "data.loader_wait").returncode == 3
    assert laggard("explain", third, "--fail-on", "data.loader_wait").returncode == 0


def html_rows(page):
    """The rows of the page's table of runs, as lists of texts; empty: it has none."""
    section = re.search(r'<section id="runs".*?</section>', page, re.S)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", section[0])] if section else []


def test_every_report_has_the_table_of_runs(explain, laggard, tmp_path):
    """Rows and what they have in common, in each format; a single run has none in any."""
    first = device_trace(tmp_path / "before.json", pid=7, loader_us=9000)
    later = device_trace(tmp_path / "after_x.json", pid=8, start_s=HOUR, loader_us=4000)
    runs = explain(first, later)["runs"]
    common = "in common: data.loader_wait in 2 of 2, 28.5 to 47.3 % lost"
    brief = laggard("explain", first, later, "--brief").stdout.splitlines()
    assert brief[1:] == ["run before.json: high data.loader_wait, 19.04 ms a step, lost 47.27 %",
                         "run after_x.json: high data.loader_wait, 14.04 ms a step, lost 28.49 %", common]
    text = laggard("explain", first, later, "--markdown").stdout
    assert "| before.json | kineto | - | 12 | 19.04 | 47.27 % | high data.loader\\_wait |\n" in text
    assert "| after\\_x.json | kineto | - | 12 | 14.04 | 28.49 % | high data.loader\\_wait |\n" in text
    assert "\n- " + common.replace("_", "\\_") + "\n" in text
    sarif = json.loads(laggard("explain", first, later, "--sarif").stdout)
    assert sarif["runs"][0]["properties"]["runs"] == runs
    page = laggard("explain", first, later, "--html", "-").stdout
    assert html_rows(page) == [["runs", "kind", "rank", "steps", "median ms", "lost", "first finding"],
                               ["before.json", "kineto", "-", "12", "19.04", "47.27 %", "high data.loader_wait"],
                               ["after_x.json", "kineto", "-", "12", "14.04", "28.49 %", "high data.loader_wait"]]
    assert f"<li>{common}</li>" in page
    alone = {how: laggard("explain", first, *how).stdout for how in (("--brief",), ("--markdown",), ("--sarif",), ("--html", "-"))}
    assert len(alone["--brief",].splitlines()) == 1 and "in common" not in "".join(alone.values())
    assert "| first finding |" not in alone["--markdown",] and not html_rows(alone["--html", "-"])
    assert "runs" not in json.loads(alone["--sarif",])["runs"][0]["properties"]


def test_every_report_has_the_table_of_ranks(explain, laggard, tmp_path):
    ranks = [device_trace(tmp_path / f"rank{r}.json", pid=10 + r, rank=r, loader_us=9000) for r in range(2)]
    runs = explain(*ranks)["runs"]
    brief = laggard("explain", *ranks, "--brief").stdout.splitlines()
    assert brief[1] == "rank 0, rank0.json: high data.loader_wait, 19.04 ms a step, lost 47.27 %"
    assert brief[2].startswith("all 2 ranks: high data.loader_wait: ") and len(brief) == 3
    text = laggard("explain", *ranks, "--markdown").stdout
    assert "| rank1.json | kineto | 1 | 12 | 19.04 | - | - |\n" in text and "\n- all 2 ranks: high data.loader\\_wait: " in text
    assert json.loads(laggard("explain", *ranks, "--sarif").stdout)["runs"][0]["properties"]["runs"] == runs
    page = laggard("explain", *ranks, "--html", "-").stdout
    assert [row[2] for row in html_rows(page)] == ["rank", "0", "1"] and "<li>all 2 ranks: high data.loader_wait: " in page


def test_of_many_ranks_those_are_shown_that_a_finding_names(laggard, tmp_path):
    ranks = [device_trace(tmp_path / f"rank{r:02}.json", pid=10 + r, rank=r, loader_us=9000) for r in range(18)]
    text = laggard("explain", *ranks, "--markdown").stdout
    assert "| rank00.json |" in text and "| rank01.json |" not in text
    assert "\n- 17 ranks that no finding names are not in the table\n" in text
    assert len(html_rows(laggard("explain", *ranks, "--html", "-").stdout)) == 1 + 18


def test_other_commands_keep_to_one_run_and_say_so(laggard, tmp_path):
    """As explain does: what comes out is of the first run alone, and a line names what is not in it."""
    first = device_trace(tmp_path / "before.json", pid=7)
    later = device_trace(tmp_path / "after.json", pid=8, start_s=HOUR)
    window = device_trace(tmp_path / "window.json", pid=7, start_s=HOUR, first=5000)
    out = tmp_path / "out.json"

    def rows(command, *files):
        out.unlink(missing_ok=True)
        args = {"query": ("SELECT number FROM step ORDER BY ts", "--json"), "steps": ("--json",), "convert": ("-o", out)}[command]
        done = laggard(command, *files, *args)
        assert done.returncode == 0, done.stderr
        told = json.loads(out.read_text() if command == "convert" else done.stdout)
        # What is not in it is among what the written trace says of itself.
        return [e for e in told["traceEvents"] if e["ph"] in "BE"] if command == "convert" else told, done.stderr.splitlines()

    for command in ("steps", "query", "convert"):
        alone, quiet = rows(command, first)
        both, said = rows(command, first, later)
        assert both == alone and not quiet
        assert (f"laggard: {later} is left out: it is of another run: 3600 s after before.json; laggard diff {first} {later} "
                "compares them") in said
        assert any("laggard explain has a table of all" in line for line in said)
        # Two windows of one process are one run.
        windows, said = rows(command, first, window)
        assert windows != alone and not said


@pytest.mark.parametrize("command", ["memory", "hang"])
def test_commands_of_one_question_keep_to_one_run(laggard, tmp_path, command):
    first = device_trace(tmp_path / "before.json", pid=7, loader_us=9000)
    later = device_trace(tmp_path / "after.json", pid=8, start_s=HOUR)
    other_rank = device_trace(tmp_path / "rank1.json", pid=9, rank=1, loader_us=9000)

    def steps(*files):
        done = laggard(command, *files, "--json")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        return len(told["inputs"]), told["steps"], "laggard explain has a table of all" in done.stderr

    one, alone, said = steps(first)
    assert one == 1 and alone["count"] == 12 and not said
    assert steps(first, later) == (1, alone, True)
    two, _, said = steps(first, other_rank)
    assert two == 2 and not said


def test_a_side_of_a_diff_is_one_run(laggard, tmp_path):
    for side in ("a", "b"):
        (tmp_path / side).mkdir()
        device_trace(tmp_path / side / "run.json", pid=7, loader_us=9000)
    alone = json.loads(laggard("diff", tmp_path / "a", tmp_path / "b", "--json").stdout)
    device_trace(tmp_path / "b/the_later.json", pid=8, start_s=HOUR)
    done = laggard("diff", tmp_path / "a", tmp_path / "b", "--json")
    both = json.loads(done.stdout)
    assert both["steps"] == alone["steps"] and both["steps"]["count"] == 12
    assert [i["path"] for i in both["inputs"]] == [i["path"] for i in alone["inputs"]]
    assert "laggard explain has a table of all" in done.stderr


def test_windows_of_one_process_are_one_run(explain, tmp_path):
    first = device_trace(tmp_path / "w1.json")
    later = device_trace(tmp_path / "w2.json", start_s=HOUR, first=5000)
    both = explain(first, later)
    assert len(both["inputs"]) == 2 and "runs" not in both


def test_ranks_of_one_run_are_rows_below_its_verdict(explain, laggard, tmp_path):
    ranks = [device_trace(tmp_path / f"rank{r}.json", pid=10 + r, rank=r, loader_us=9000) for r in range(2)]
    v = explain(*ranks)
    assert [(r["rank"], r["path"], r["ranks"]) for r in v["runs"]] == [(r, str(p), 1) for r, p in enumerate(ranks)]
    assert len(v["inputs"]) == 2 and all(r["steps"] == 12 for r in v["runs"])
    text = laggard("explain", *ranks).stdout
    assert "\nranks " in text and "\nall 2 ranks: high data.loader_wait: " in text
    # The verdict is what it was.
    assert text.startswith("the device idles 47 % of the time waiting for the next batch")


def test_runs_in_a_folder_are_put_together(explain, tmp_path):
    """Two ranks each: four files, two rows, however they are named."""
    deep = tmp_path / "jobs" / "second"
    deep.mkdir(parents=True)
    for run, folder in ((0, tmp_path / "jobs"), (1, deep)):
        for r in range(2):
            device_trace(folder / f"r{r}.json", pid=100 + 10 * run + r, rank=r, start_s=run * HOUR, loader_us=9000)
    v = explain(tmp_path / "jobs")
    assert [(r["files"], r["ranks"], r["finding"]) for r in v["runs"]] == [(2, 2, "data.loader_wait")] * 2


def test_each_file_is_judged_alone_where_all_have_no_room(explain, laggard, tmp_path):
    paths = [device_trace(tmp_path / f"rank{r}.json", pid=10 + r, rank=r, steps=20, loader_us=9000, padding=6000) for r in range(6)]
    v = explain(*paths, "--max-memory", "64M")
    assert v["inputs"] == [] and v["findings"] == [] and "more memory than there is" in v["limits"][0]
    assert [(r["path"], r["finding"], r["failed"]) for r in v["runs"]] == [(str(p), "data.loader_wait", False) for p in paths]
    assert laggard("explain", *paths, "--max-memory", "64M", "--fail-on", "high").returncode == 3
    text = laggard("explain", *paths, "--max-memory", "64M").stdout
    assert "in common: data.loader_wait in 6 of 6" in text


def test_names_of_files_steer_no_terminal(laggard, tmp_path):
    paths = [device_trace(tmp_path / f"a\x1b]0;x\x07{i}\n::error::x.json", pid=i, start_s=i * HOUR) for i in (1, 2)]
    text = laggard("explain", *paths).stdout
    assert "\nruns " in text and "\x1b" not in text and "\x07" not in text and "\n::error" not in text


def test_a_step_says_what_its_device_did(laggard, tmp_path):
    path = device_trace(tmp_path / "t.json", loader_us=3000, copy_us=400, comm_us=600)
    done = laggard("steps", path, "--csv")
    table = list(csv.DictReader(done.stdout.splitlines()))
    assert [int(r["number"]) for r in table] == list(range(100, 112))
    names = ("compute_ms", "comm_exposed_ms", "copy_exposed_ms", "idle_ms")
    told = [r for r in table if r["compute_ms"]]
    assert len(told) >= 10
    for r in told:
        ms = [decimal.Decimal(r[n]) for n in names]
        assert sum(ms) == decimal.Decimal(r["dur_ms"])
        assert ms[0] == 10 and ms[1] == decimal.Decimal("0.6") and ms[2] == decimal.Decimal("0.4")
        assert r["idle_cause"] == "loader" and ms[3] > 3
    objects = json.loads(laggard("steps", path, "--json").stdout)["steps"]
    rows = json.loads(laggard("query", path, f"SELECT number, {', '.join(names)}, idle_cause FROM step ORDER BY ts", "--json").stdout)
    for r, o, q in zip(table, objects, rows):
        assert q["number"] == o["number"] == int(r["number"])
        for n in names:
            assert (o.get(n) is None) == (q[n] is None) == (r[n] == "")
            if r[n]:
                assert o[n] == pytest.approx(float(r[n])) and q[n] == pytest.approx(float(r[n]))
        assert (r["idle_cause"] or None) == o.get("idle_cause") == q["idle_cause"]
    text = laggard("steps", path).stdout
    assert "idle for" in text and "loader" in text and "runnable" not in text


def test_steps_without_a_device_say_nothing_of_one(laggard):
    path = DATA / "kineto/rank0.json.gz"
    assert "compute_ms" not in laggard("steps", path, "--csv").stdout.splitlines()[0]
    assert "idle for" not in laggard("steps", path).stdout
    row, = json.loads(laggard("query", path, "SELECT count(*) AS n, count(compute_ms) AS told FROM step", "--json").stdout)
    assert row["n"] and not row["told"]


def test_where_there_is_no_verdict_the_contents_are_told(laggard, explain):
    path = DATA / "perf/burn.data"
    v = explain(path)
    assert not v["steps"]["count"]
    holds = v["contents"]
    assert "/burn+0x" in holds["functions"][0]["name"] and holds["processes"][0]["name"].startswith("burn (pid ")
    assert holds["functions"][0]["share"] > 0 and holds["duration_s"] > 0
    text = laggard("explain", path).stdout
    assert "what it holds: " in text and "functions, by samples" in text and "CPUs: " in text


def test_devices_copies_and_pending_work_are_told(explain, laggard, tmp_path):
    """One launch after the other, and no step in it."""
    path = device_trace(tmp_path / "one.json", steps=1, copy_us=400)
    doc = json.loads(path.read_text())
    doc["traceEvents"] = [e for e in doc["traceEvents"] if e["cat"] != "user_annotation"]
    path.write_text(json.dumps(doc))
    v = explain(path)
    assert not v["steps"]["count"]
    holds = v["contents"]
    assert sum(k["count"] for k in holds["kernels"]) == 20 and sum(k["share"] for k in holds["kernels"]) == pytest.approx(1, abs=1e-3)
    copy, = holds["copies"]
    assert copy["gb_per_s"] == pytest.approx(10, rel=1e-3)
    assert 0.9 < holds["devices"][0]["busy_share"] <= 1
    text = laggard("explain", path).stdout
    assert ": busy " in text and " GB/s" in text and "kernels (3)" in text


def test_what_a_log_tells_of_is_listed(explain, laggard, tmp_path):
    log = tmp_path / "train.log"
    log.write_text("2026-03-01 10:00:00,000 INFO starting\n" + 3 * "Not enough SMs to use max_autotune_gemm mode\n")
    event, = explain(log)["contents"]["events"]
    assert event == {"name": "log.max_autotune_off", "count": 3}
    assert "errors in logs (1)" in laggard("explain", log).stdout


def test_readings_are_told(explain, laggard):
    holds = explain(DATA / "smi/dmon.txt")["contents"]
    util = next(c for c in holds["counters"] if c["name"] == "gpu.util" and c["index"] == 0)
    assert 0 <= util["least"] <= util["mean"] <= util["most"] <= 100 and util["count"] > 1
    assert "gpu.util" in laggard("explain", DATA / "smi/dmon.txt").stdout


def test_a_verdict_needs_no_list_of_contents(explain, tmp_path):
    assert "contents" not in explain(device_trace(tmp_path / "t.json", loader_us=9000))


def test_two_traces_read_at_once_say_what_they_say_one_by_one(explain, laggard, tmp_path):
    """Large ones are read two at a time; a packed one, which is small, is not. Whatever comes of one of a pair, the other
    has nothing of it, and what is said first is of the first."""
    ranks = [device_trace(tmp_path / f"rank{r}.json", pid=10 + r, rank=r, steps=20, loader_us=9000, padding=900) for r in range(3)]
    assert all(r.stat().st_size > 1 << 20 for r in ranks)

    def verdict(*files):
        return json.loads(json.dumps(explain(*files)).replace(str(files[0].parent), ""))

    packed = []
    for path in ranks:
        packed.append(tmp_path / "packed" / path.name)
        packed[-1].parent.mkdir(exist_ok=True)
        packed[-1].write_bytes(gzip.compress(path.read_bytes()))
        assert packed[-1].stat().st_size < 1 << 20
    assert verdict(*ranks) == verdict(*packed)
    whole = ranks[1].read_bytes()
    for damage in (whole[:len(whole) // 2], whole + b"}", b'{"schemaVersion": 1, "traceEvents": [}' + b" " * (1 << 20), whole[1:]):
        bad, packed_bad = tmp_path / "bad.json", tmp_path / "packed/bad.json"
        bad.write_bytes(damage)
        packed_bad.write_bytes(gzip.compress(damage))
        for files, others in (((ranks[0], bad, ranks[2]), (packed[0], packed_bad, packed[2])),
                              ((bad, ranks[0]), (packed_bad, packed[0]))):
            done, alone = laggard("explain", "--json", *files), laggard("explain", "--json", *others)
            assert done.returncode == alone.returncode
            assert done.stderr.replace(str(bad), "BAD") == alone.stderr.replace(str(packed_bad), "BAD")
            if not done.returncode:
                assert json.loads(done.stdout)["findings"] == json.loads(alone.stdout)["findings"]
    twice = laggard("explain", ranks[0], ranks[0])
    assert twice.returncode == 1 and "are one file" in twice.stderr
