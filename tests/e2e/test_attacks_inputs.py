# SPDX-License-Identifier: Apache-2.0
"""Files made to do harm: names that steer terminals and CI runners, forged counts, bombs, work without end."""
import csv
import io
import json
import re

import pytest

HOSTILE = "::error file=x::owned\n::warning::two\x1b]0;title\x07\x9b31m\u202edrow\r##[stop-commands]x"
# What no line of a terminal or of a CI log may hold: control characters but the line's end, marks that turn text.
STEERS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
COMMAND = re.compile(r"^\s*::|##\[", re.M)


def harmless(text):
    assert not STEERS.search(text), STEERS.findall(text)
    assert not COMMAND.search(text), text
    return True


@pytest.fixture
def chrome(tmp_path):
    """A trace of a viewer's format in which every name is hostile: twenty steps of an optimizer's loop."""
    events = [{"ph": "M", "pid": 7, "tid": 7, "name": "process_name", "args": {"name": HOSTILE}},
              {"ph": "M", "pid": 7, "tid": 7, "name": "thread_name", "args": {"name": HOSTILE}}]
    for i in range(20):
        events.append({"ph": "X", "pid": 7, "tid": 7, "ts": i * 10000, "name": HOSTILE,
                       "dur": 9000 + 5000 * (i == 11), "cat": "user_annotation"})
        events.append({"ph": "X", "pid": 7, "tid": 7, "ts": i * 10000 + 10, "name": f"=cmd|{i}", "dur": 5})
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    return path


def test_csv_holds_text_and_nothing_that_acts(laggard, chrome):
    done = laggard("query", chrome, "SELECT name, dur, -1 AS minus FROM span ORDER BY ts", "--csv")
    assert done.returncode == 0, done.stderr
    rows = list(csv.reader(io.StringIO(done.stdout, newline="")))
    assert len(rows) == 41 and all(len(r) == 3 for r in rows), "a newline in a name makes no row"
    assert harmless(done.stdout.replace("\r\n", "\n"))
    names = {r[0] for r in rows[1:]}
    assert any("\\xc2\\x9b31m" in n for n in names)
    assert "'=cmd|3" in names, "a spreadsheet would compute it"
    assert {r[2] for r in rows[1:]} == {"-1"}, "numbers stay numbers"
    sql = "SELECT char(27) || '[2J' || char(10) || '::error::owned' || char(13) || '\"' AS x, '::notice::' AS y"
    done = laggard("query", chrome, sql, "--csv")
    assert harmless(done.stdout.replace("\r\n", "\n"))
    assert list(csv.reader(io.StringIO(done.stdout, newline="")))[1] == ["\\x1b[2J\\n::error::owned\\r\"", "::notice::"]


@pytest.mark.parametrize("command", (("query", "SELECT name, name FROM span"), ("query", "SELECT comm FROM thread"),
                                     ("steps",), ("steps", "--csv"), ("explain",), ("explain", "--markdown")))
def test_reports_hold_nothing_that_acts(laggard, chrome, command):
    done = laggard(command[0], chrome, *command[1:])
    assert done.returncode == 0, done.stderr
    assert done.stdout and harmless(done.stdout.replace("\r\n", "\n"))
    assert harmless(done.stderr)


def test_names_of_files_are_one_line_on_stderr(laggard, tmp_path):
    name = tmp_path / "a\n::error::owned\x1b[2J\u202e.json"
    for args in (("explain", name), ("convert", name, "-o", tmp_path / "o.json"), ("steps", name),
                 ("query", name, "SELECT 1"), ("diff", name, name), ("explain", f"--{name}"), (name,),
                 ("record", "-o", tmp_path / "absent" / name.name, "--", "true")):
        done = laggard(*args)
        assert done.returncode in (1, 2, 127), args
        assert done.stderr.count("\n") == 1 and harmless(done.stderr), (args, done.stderr)
    name.write_text("{}", encoding="utf-8")
    (tmp_path / "::error::x\n").write_bytes(b"\0" * 100)
    done = laggard("explain", tmp_path)
    assert harmless(done.stderr) and done.stderr.count("\n") >= 2, done.stderr
