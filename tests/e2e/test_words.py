# SPDX-License-Identifier: Apache-2.0
"""What is said in so many words: headlines that promise no more than was judged, numbers, folders, outputs."""
import datetime
import json
import pathlib

import pytest

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def steps(n=60, ms=500, slow=()):
    """Lines of a training loop with times of its own."""
    at, lines = datetime.datetime(2026, 1, 2, 3, 4, 5), []
    for i in range(n):
        at += datetime.timedelta(milliseconds=ms * (10 if i in slow else 1))
        lines.append(f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03d} INFO step {i} loss {3 - i / 100:.3f}")
    return lines


def explain(laggard, *paths):
    done = laggard("explain", "-v", *paths)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_one_output_at_a_time(laggard, tmp_path):
    path = write(tmp_path / "job.log", steps())
    for both in (["--json", "--markdown"], ["--markdown", "--json"]):
        done = laggard("explain", "-v", path, *both)
        assert done.returncode == 2 and "one of them" in done.stderr and not done.stdout
    assert laggard("explain", path, "--json", "--json").returncode == 0
    assert laggard("diff", path, path, "--json", "--markdown").returncode == 2


def test_folders_are_read_with_those_in_them(laggard, tmp_path):
    write(tmp_path / "run/host1/deep/rank0.log", steps())
    (tmp_path / "run/host1/back").symlink_to(tmp_path / "run")
    write(tmp_path / "run/.hidden/other.log", steps())
    done = laggard("explain", tmp_path / "run", "--json")
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert [i["path"] for i in verdict["inputs"]] == [str(tmp_path / "run/host1/deep/rank0.log")]
    assert verdict["steps"]["count"] > 50
    (tmp_path / "empty/within").mkdir(parents=True)
    done = laggard("explain", "-v", tmp_path / "empty")
    assert done.returncode == 1 and "holds no trace" in done.stderr


@pytest.mark.parametrize("text", ["%PDF-1.4\nnothing", ""])
def test_what_is_refused_from_its_first_byte_on_says_so(laggard, tmp_path, text):
    path = tmp_path / "odd.json"
    path.write_text(text)
    done = laggard("explain", "-v", path)
    assert done.returncode == 1 and "byte 0" not in done.stderr and done.stderr.count("\n") == 1


TRAINER = "{{'loss': {:.4f}, 'grad_norm': 1.25, 'learning_rate': 4.5e-05, 'epoch': {:.2f}}}"


def test_the_trainers_own_lines_are_steps(laggard, tmp_path):
    """transformers prints dictionaries, with or without a logger's words before them."""
    stamped = [f"{line.split(' step')[0]} - {TRAINER.format(3 - i / 60, i / 20)}"
               for i, line in enumerate(steps(slow=(9, 19, 29, 39, 49)))]
    verdict = json.loads(laggard("explain", write(tmp_path / "a.log", stamped), "--json").stdout)
    assert verdict["steps"]["count"] == 59 and abs(verdict["steps"]["median_ms"] - 500) < 1
    assert verdict["steps"]["slow"] == 5 and verdict["steps"]["shape"] == "periodic"
    assert any("logging_steps" in limit for limit in verdict["limits"])
    bare = write(tmp_path / "b.log", [TRAINER.format(3 - i / 60, i / 20) for i in range(60)])
    assert "The log tells of steps and not how long each took" in explain(laggard, bare)


def test_the_trainers_bar_counts_better_than_its_lines(laggard, tmp_path):
    lines = []
    for i in range(1, 61):
        lines.append(f"  {i}%|##  | {i}/600 [{i // 60:02d}:{i % 60:02d}<10:00,  1.00s/it]")
        if not i % 10:
            lines.append(TRAINER.format(3 - i / 60, i / 20))
    verdict = json.loads(laggard("explain", write(tmp_path / "c.log", lines), "--json").stdout)
    assert verdict["steps"]["count"] >= 50 and abs(verdict["steps"]["median_ms"] - 1000) < 1
    assert not any("logging_steps" in limit for limit in verdict["limits"])


def test_how_steps_lie_is_said_in_numbers(laggard, tmp_path):
    path = write(tmp_path / "few.log", [f"iteration {i}/ 5 | elapsed time per iteration (ms): {ms:.1f} |"
                                        for i, ms in enumerate((118, 116, 1015, 1068, 1076), 1)])
    done = laggard("explain", path, "--json")
    steps_of = json.loads(done.stdout)["steps"]
    assert steps_of["shape"] is None and steps_of["max_ms"] == 1076
    text = " ".join(explain(laggard, path).split())
    assert "max 1076.00 ms" in text and "steady" not in text and "Nothing is wrong" not in text


def test_files_of_two_runs_point_at_diff(laggard, tmp_path):
    first = write(tmp_path / "a.log", steps())
    second = write(tmp_path / "b.log", [line.replace("2026-01-02 03", "2026-01-02 09") for line in steps(ms=700)])
    text = " ".join(explain(laggard, first, second).split())
    assert "two runs" in text and "6 hours after a.log" in text
    assert "(laggard diff BEFORE AFTER)" in text.split("steps:", maxsplit=1)[0]
    same = write(tmp_path / "c.log", [line.replace("INFO", "[rank1] INFO") for line in steps()])
    assert "two runs" not in explain(laggard, first, same)


def test_shares_of_a_change_are_shares(laggard, tmp_path):
    """Two stages go opposite ways: what the one takes is more than all of the change."""
    def trace(path, wait, forward):
        events, at = [], 0
        for i in range(40):
            jitter = i * i % 7 * 10
            for name, dur in (("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", wait + jitter),
                              ("aten::mm", forward + jitter)):
                events.append({"ph": "X", "cat": "cpu_op", "name": name, "pid": 7, "tid": 7, "ts": at, "dur": dur})
                at += dur
            events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{i}", "pid": 7, "tid": 7,
                           "ts": at - wait - forward - 2 * jitter, "dur": wait + forward + 2 * jitter})
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
        return path
    before = trace(tmp_path / "before.json", 50000, 40000)
    after = trace(tmp_path / "after.json", 6000, 60000)
    done = laggard("diff", before, after, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["diff"]
    assert all(x["share"] is None or 0 <= x["share"] <= 1 for x in told["explained"]), told["explained"]
    head = " ".join(laggard("diff", before, after).stdout.split())
    assert "faster: mean step" in head and "Most of it: " in head and "-44." in head.split("What is worse")[0]


def test_one_rank_of_many_does_not_say_whom_it_waits_for(laggard):
    ranks = [DATA / f"kineto/rank{i}.json.gz" for i in range(2)]
    alone, both = (" ".join(explain(laggard, *files).split()) for files in (ranks[:1], ranks))
    assert alone.startswith("No cause proven: for 93 %") and "give the files of all ranks" in alone
    assert "give the files of all ranks" not in both


def test_a_table_of_no_steps_says_why(laggard):
    done = laggard("steps", DATA / "flightrec/dump.json")
    assert done.returncode == 0, done.stderr
    headline = laggard("explain", "-v", DATA / "flightrec/dump.json").stdout.split("\n\n")[0]
    assert done.stdout.split() == headline.split()
