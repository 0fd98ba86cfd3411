# SPDX-License-Identifier: Apache-2.0
"""record --profiler: steps of torch.profiler in the job itself, joined with the recording of the host."""
import json
import os
import stat

import pytest
from test_hook import Runner, marks_dir, runner, trainer, trixie  # noqa: F401

JOB = """
import os, sys, time, torch
torch.set_num_threads(1)
what = sys.argv[1]
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(64, 32), torch.randint(4, (64,))
own, end, i = None, time.monotonic() + 5, 0
while time.monotonic() < end:
    if what in ("before", "meanwhile") and i == (10 if what == "before" else 25):
        own = torch.profiler.profile()
        own.start()
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    time.sleep(0.3 if what == "stall" and i == 60 else 0.010)
    optimizer.step()
    i += 1
    if own is not None and i == 40:
        own.stop()
        print("own", len(own.events()))
        own = None
print("steps", i)
"""


@pytest.fixture
def record(laggard, torch_python, tmp_path):
    def call(what, *options):
        script = tmp_path / "job.py"
        script.write_text(JOB)
        done = laggard("record", *options, "-o", tmp_path / "run.lag", "--", torch_python, script, what)
        assert done.returncode == 0, done.stderr
        print(done.stdout, done.stderr)
        marks = json.loads(laggard("query", "--json", tmp_path / "run.lag", "select name, value, text from mark where name "
                                   "like 'profiler.%' order by ts").stdout)
        print(marks)
        return done, marks, sorted(tmp_path.glob("*-profile-*.json"))
    return call


def steps_of(trace):
    """Their numbers. Without Kineto, as Debian builds torch 1.13, a trace is a bare list."""
    events = json.loads(trace.read_text())
    events = events if isinstance(events, list) else events["traceEvents"]
    return sorted({e["name"] for e in events if e["name"].startswith("ProfilerStep#")})


def explained(laggard, path):
    v = json.loads(laggard("explain", "--json", path).stdout)
    print(*v["limits"], sep="\n")
    return v


@pytest.mark.live
def test_steps_are_taken_once_and_joined(record, laggard, tmp_path):
    _, marks, traces = record("plain", "--profiler", "3")
    assert [m["name"] for m in marks] == ["profiler.began", "profiler.trace"]
    assert [str(t) for t in traces] == [marks[1]["text"]]
    assert stat.S_IMODE(os.stat(traces[0]).st_mode) == 0o600
    first = marks[0]["value"]
    assert steps_of(traces[0]) == [f"ProfilerStep#{first + i}" for i in range(3)]
    v = explained(laggard, tmp_path / "run.lag")
    assert [i["format"] for i in v["inputs"]] == ["laggard", "kineto"]
    assert any(line.startswith("1 trace of torch.profiler taken in the job") for line in v["limits"])
    assert not [f for f in v["findings"] if f["id"].startswith("side.")]
    # on one clock: each step of the trace ends where the recording has it end, and what it did lies in it
    spans = json.loads(laggard("query", "--json", tmp_path / "run.lag", "select seq, ts, dur, name from span where kind = 1 "
                               f"and seq between {first} and {first + 2} order by seq, ts").stdout)
    for n in range(first, first + 3):
        ends = [s["ts"] + s["dur"] for s in spans if s["seq"] == n]
        assert len(ends) == 2 and abs(ends[0] - ends[1]) < 2e6, spans


@pytest.mark.live
def test_where_a_trigger_fires(record, laggard, tmp_path):
    done, marks, traces = record("stall", "--ring", "20s", "--trigger", "step > 10x", "--profiler", "3")
    assert [m["name"] for m in marks] == ["profiler.began", "profiler.trace"] and len(traces) == 1
    assert "asked the job's processes for 3 steps of torch.profiler" in done.stderr
    assert marks[0]["value"] > 60
    dump, = tmp_path.glob("run-1-*.lag")
    v = json.loads(laggard("explain", "--json", dump, traces[0]).stdout)
    assert [i["format"] for i in v["inputs"]] == ["laggard", "kineto"] and v["fired"]


@pytest.mark.live
def test_every_so_often(record):
    _, marks, traces = record("plain", "--profiler", "2/2s")
    assert 2 <= len(traces) <= 4 and [m["name"] for m in marks] == ["profiler.began", "profiler.trace"] * len(traces)


@pytest.mark.live
def test_where_the_program_profiles_itself(record, laggard, tmp_path):
    done, marks, traces = record("before", "--profiler", "3")
    assert [(m["name"], m["text"]) for m in marks] == [("profiler.refused", "another profiler runs in this process")]
    assert not traces and "\nown " in "\n" + done.stdout
    assert any("torch.profiler was not used 1 time, the last time because: another profiler runs" in line
               for line in explained(laggard, tmp_path / "run.lag")["limits"])


@pytest.mark.live
def test_the_programs_own_profiler_goes_first(record):
    done, marks, traces = record("meanwhile", "--profiler", "100")
    assert [m["name"] for m in marks] == ["profiler.began", "profiler.refused"]
    assert marks[1]["text"] == "the program began to profile itself"
    assert not traces and "\nown " in "\n" + done.stdout and "Traceback" not in done.stderr


@pytest.mark.live
def test_without_the_option_there_is_nothing(record):
    _, marks, traces = record("plain")
    assert not marks and not traces


@pytest.mark.parametrize("options, said", [
    (["--profiler", "0"], "a number of steps, 1 to 1000"), (["--profiler", "3/x"], "a number of steps, 1 to 1000"),
    (["--profiler", "10000000003"], "a number of steps, 1 to 1000"), (["--no-hook", "--profiler", "3"], "needs -- CMD and the hook"),
])
def test_usage(laggard, options, said):
    done = laggard("record", *options, "--", "true")
    assert done.returncode == 2 and said in done.stderr


def takes_steps(of):
    """Without a recorder: what the hook does by itself."""
    program = of.program(JOB)
    for what, says in ("plain", "profiler.trace"), ("meanwhile", "profiler.refused"):
        steps = "3" if what == "plain" else "100"
        code, out, err = of.run(program, what, extra={"LAGGARD_PROFILER": f"{steps} 20 {of.inside(of.tmp / what)}"})
        assert code == 0 and "Traceback" not in err and ("own " in out) == (what == "meanwhile"), err
        ring, = of.rings()
        assert [s.name for s in ring.slots_read if s.what == "mark" and s.name.startswith("profiler.")] == [
            "profiler.began", says]
        for path in of.marks.iterdir():
            path.unlink()
    trace, = of.tmp.glob("*-profile-1.json")
    assert stat.S_IMODE(os.stat(trace).st_mode) == 0o600 and len(steps_of(trace)) == 3


def test_the_hook_alone(runner):  # noqa: F811
    takes_steps(runner)


def test_of_a_newer_torch(trixie):  # noqa: F811
    takes_steps(trixie)
