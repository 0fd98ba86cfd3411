# SPDX-License-Identifier: Apache-2.0
"""Several files of one run: a recording and a profiler's trace of the same process, for real; ranks whose
clocks lie; folders."""
import datetime
import gzip
import json
import os
import pathlib
import random
import shutil
import subprocess

import case_files
import pytest
from conftest import PYTHON, ROOT

DATA = ROOT / "tests/data/kineto"
TRIXIE = os.environ.get("LG_TRIXIE") or str(ROOT / "build/trixie")
BLOCKED = 3  # enum lg_state_kind

# A sleep is the one thing that both sides see to the microsecond: as a span of the profiler, and as
# a thread that the scheduler took off its CPU.
PROGRAM = """
import sys, time, torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule
torch.set_num_threads(1)
model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)])
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.ones(64, 256)
with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=2, active=30),
             on_trace_ready=lambda p: p.export_chrome_trace(sys.argv[1])) as p:
    for step in range(33):
        with record_function("pause"):
            time.sleep(0.012)
        opt.zero_grad()
        model(x).sum().backward()
        opt.step()
        p.step()
"""


def dumped(laggard, laggard_path, tmp_path, *files):
    tool = pathlib.Path(laggard_path).parent / "tests/e2e/lag_dump"
    assert tool.exists(), "tests/e2e/lag_dump is not built"
    out = tmp_path / "joined.lag"
    done = laggard("convert", *files, "-o", out, "--no-verdict")
    assert done.returncode == 0, done.stderr
    tables = {}
    for line in subprocess.run([tool, out], check=True, stdout=subprocess.PIPE).stdout.splitlines():
        row = json.loads(line)
        tables.setdefault(row["table"], []).append(row)
    return tables


def meta(tables, key):
    return next(r["value"] for r in tables["meta"] if r["key"] == key)


def check_joined(laggard, laggard_path, tmp_path, lag, trace):
    """What the trace knows of its clock decides: a wall clock, or (Debian's torch 1.13 is built without
    Kineto) none at all."""
    clock = '"schemaVersion"' in trace.read_text()
    done = laggard("explain", trace, lag, "--json")
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert {i["format"] for i in verdict["inputs"]} == {"kineto", "laggard"}
    stated = [line for line in verdict["limits"] if "is on the clock of" in line]
    assert len(stated) == 1 and str(trace) in stated[0], verdict["limits"]
    assert ("wall clocks: good to" if clock else "common steps: good to") in stated[0]
    assert not any("several jobs" in line for line in verdict["limits"])
    alone = json.loads(laggard("explain", lag, "--json").stdout)
    assert verdict["steps"]["count"] == alone["steps"]["count"]
    t = dumped(laggard, laggard_path, tmp_path, trace, lag)
    assert meta(t, f"join.{trace.name}.how") == ("clocks" if clock else "steps")
    error = int(meta(t, f"join.{trace.name}.error_ns"))
    assert 0 < error < 2_000_000
    pauses = [s for s in t["span"] if s["name"] == "pause" and s["dur"] > 0]
    assert len(pauses) == 30 and len({s["thr"] for s in pauses}) == 1
    # The process that slept as often as the program did.
    long = [s for s in t["state"] if s["kind"] == BLOCKED and 8_000_000 < s["dur"] < 100_000_000]
    thr = max({s["thr"] for s in long}, key=lambda k: sum(
        s["thr"] == k and any(abs(s["ts"] - p["ts"]) < 4_000_000 for p in pauses) for s in long))
    naps = [s for s in long if s["thr"] == thr]
    # "Good to" is said of nine in ten of the steps: a profiler's clock may wander for one of them.
    late = []
    for span in pauses:
        inside = [s for s in naps if s["ts"] > span["ts"] - 2_500_000 and
                  s["ts"] + s["dur"] < span["ts"] + span["dur"] + 2_500_000]
        assert len(inside) <= 1, (span, inside)
        # The span opens before the sleep and closes after it: by little, never the other way round.
        late += [(s["ts"] - span["ts"], span["ts"] + span["dur"] - s["ts"] - s["dur"]) for s in inside]
    assert len(late) >= 27, (len(late), pauses, naps)
    assert sum(min(pair) > -error - 2000 for pair in late) >= 27, (error, late)
    assert sorted(a for a, _ in late)[15] < 1_000_000 + error, late
    if clock:  # and pids: one process, one main thread, in both
        assert thr == pauses[0]["thr"]
        # Evidence of both kinds in one account: the profiler's steps, the scheduler's waiting in them.
        steps = json.loads(laggard("steps", trace, lag, "--json").stdout)["steps"]
        assert 28 <= len(steps) <= 33 and sum(s["blocked_ms"] > 8 for s in steps) >= 25, steps[:3]


def test_a_recording_and_a_profilers_trace_of_one_process(laggard, laggard_path, tmp_path, torch_python,
                                                          can_record):
    program, trace, lag = tmp_path / "program.py", tmp_path / "trace.json", tmp_path / "run.lag"
    program.write_text(PROGRAM)
    done = laggard("record", "-o", lag, "--", torch_python, program, trace, timeout=240)
    assert done.returncode == 0, done.stderr
    check_joined(laggard, laggard_path, tmp_path, lag, trace)


def test_the_same_with_torch_2(laggard, laggard_path, tmp_path, can_record):
    if not (pathlib.Path(TRIXIE) / "usr/bin/python3").exists():
        pytest.skip("needs torch 2 in a Debian 13 root: run sudo tools/make-trixie")
    program, trace, lag = tmp_path / "program.py", tmp_path / "trace.json", tmp_path / "run.lag"
    program.write_text(PROGRAM)
    done = laggard("record", "-o", lag, "--", ROOT / "scenarios/in_root", TRIXIE, PYTHON, program, trace,
                   timeout=240)
    assert done.returncode == 0, done.stderr
    check_joined(laggard, laggard_path, tmp_path, lag, trace)


# ---- ranks ----

def load(path):
    return json.loads(case_files.content(path), strict=False)


def real_ranks():
    """Real traces with enough collectives on a GPU to be recognised by."""
    return [p for name in ("df_index_resolver", "nccl_data", "control") for p in case_files.find(f"**/{name}.json")]


def other_rank(trace, shift_us, seed):
    """The same collectives seen by another rank of another host: its clock is shift_us ahead, they end
    some microseconds apart and begin when they like, and its profiler ran a little later."""
    rng = random.Random(seed)
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X" and float(e["ts"]) > 0]
    begin, end = min(float(e["ts"]) for e in events), max(float(e["ts"]) for e in events)
    out = []
    for e in trace["traceEvents"]:
        if "ts" not in e or float(e["ts"]) <= 0:
            out.append(e)
            continue
        if float(e["ts"]) < begin + (end - begin) * 0.15:
            continue
        e = dict(e)
        if e.get("cat", "").lower() == "kernel" and rng.random() < 0.02:
            continue  # a buffer was full
        e["ts"] = float(e["ts"]) + shift_us
        if e.get("cat", "").lower() == "kernel" and "nccl" in e["name"].lower():
            over = rng.uniform(-4, 4)
            early = rng.uniform(0, 0.5) * float(e["dur"])
            e["dur"] = max(1, float(e["dur"]) - early + over)
            e["ts"] += early
        out.append(e)
    info = dict(trace.get("distributedInfo", {}), rank=int(trace.get("distributedInfo", {}).get("rank", 0)) + 1)
    return dict(trace, traceEvents=out, distributedInfo=info)


@pytest.mark.cases
@pytest.mark.parametrize("path", real_ranks(), ids=lambda p: p.name)
@pytest.mark.parametrize("shift_us", (3_600_000_000, -2_500_000, 40_000, 0))
def test_ranks_whose_clocks_differ_are_aligned_by_their_collectives(laggard, laggard_path, tmp_path, path,
                                                                    shift_us):
    a, b = tmp_path / "a.json.gz", tmp_path / "b.json.gz"
    a.write_bytes(gzip.compress(case_files.content(path), 1))
    b.write_bytes(gzip.compress(json.dumps(other_rank(load(path), shift_us, 5)).encode(), 1))
    t = dumped(laggard, laggard_path, tmp_path, a, b)
    offset = int(meta(t, "join.b.json.gz.offset_ns"))
    error = int(meta(t, "join.b.json.gz.error_ns"))
    assert abs(offset + shift_us * 1000) <= max(error, 5000), (offset, error)
    assert error < 100_000
    assert meta(t, "join.b.json.gz.how") == "collectives"
    stated = [line for line in json.loads(laggard("explain", a, b, "--json").stdout)["limits"]
              if "is on the clock of" in line]
    assert len(stated) == 1 and "common collectives" in stated[0]


def test_a_folder_is_the_files_in_it(laggard, tmp_path):
    folder = tmp_path / "ranks"
    folder.mkdir()
    for name in ("rank0.json.gz", "rank1.json.gz"):
        shutil.copy(DATA / name, folder)
    (folder / ".hidden").write_text("x")
    (folder / "deeper").mkdir()
    (folder / "core.bin").write_bytes(bytes(range(256)) * 40)
    done = laggard("explain", folder, "--json")
    assert done.returncode == 0, done.stderr
    assert [pathlib.Path(i["path"]).name for i in json.loads(done.stdout)["inputs"]] == \
        ["rank0.json.gz", "rank1.json.gz"]
    assert "core.bin is left out" in done.stderr and done.stderr.count("\n") == 1
    # What may be a log or a trace by its first bytes, and is neither, costs no verdict.
    others = {"env.yaml": "a: 1\n", "notes.md": "2026-11-21 10:00:00 began, see torchrun's page\n",
              "run.sh": "#!/bin/sh\ntorchrun train.py\n", "cfg.json": '{"lr": 1}', "list.json": "[1, 2]",
              "fault_injection.log": "[2026-03-01 10:00:00] injected lock_gil on rank 3\n",
              "0.pkl": b"\x80\x04]q\x00."}
    for name, text in others.items():
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    more = laggard("explain", folder, "--json")
    assert more.returncode == 0, more.stderr
    verdict, clean = json.loads(more.stdout), json.loads(done.stdout)
    told = [line for line in verdict.pop("limits") if "could not be read" not in line]
    assert told == [line for line in clean.pop("limits") if "could not be read" not in line] and verdict == clean
    assert more.stderr.count("\n") == 1 + len(others)
    assert all(f"{name} is left out: " in more.stderr for name in others), more.stderr
    # One trace beside them is as it is alone.
    one = tmp_path / "one"
    one.mkdir()
    shutil.copy(DATA / "rank0.json.gz", one)
    alone = laggard("explain", one, "--json")
    (one / "env.yaml").write_text("a: 1\n")
    verdict, clean = json.loads(laggard("explain", one, "--json").stdout), json.loads(alone.stdout)
    assert verdict["limits"].pop(0).startswith("1 file could not be read: ") and verdict == clean
    # A file that is named must be one; so must what is a trace for certain and damaged.
    assert laggard("explain", "-v", one / "rank0.json.gz", one / "env.yaml").returncode == 1
    (one / "bad.perf.data").write_bytes(b"PERFILE2" + bytes(100))
    assert laggard("explain", "-v", one).returncode == 1
    none = tmp_path / "none"
    none.mkdir()
    for name in ("a.yaml", "b.yaml"):
        (none / name).write_text("a: 1\n")
        done = laggard("explain", "-v", none)
        assert done.returncode == 1 and "not a trace" in done.stderr and done.stderr.count("\n") == 1
    # A log is still read.
    (none / "job.log").write_text("".join(f"[{i}] iteration {i}/ 99 | elapsed time per iteration (ms): 10{i % 10}.0 |\n"
                                          for i in range(30)))
    done = laggard("explain", none, "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["inputs"][0]["path"].endswith("job.log")
    empty = tmp_path / "empty"
    empty.mkdir()
    done = laggard("explain", "-v", empty)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "holds no trace" in done.stderr


def job_log(path, ms=400, steps=200):
    """A log of steps that tells its times, from 10:00:00 on."""
    lines = []
    for i in range(1, steps + 1):
        at = i * ms
        lines.append(f" [2026-03-01 10:{at // 60000:02d}:{at // 1000 % 60:02d}.{at % 1000:03d}] iteration {i:8d}/ 1000 | "
                     f"consumed samples: {i * 64:12d} | elapsed time per iteration (ms): {ms:.1f} | "
                     f"learning rate: 1.0E-04 | global batch size:    64 | lm loss: 2.5E+00 |")
    path.write_text("\n".join(lines) + "\n")
    return path


def smi_log(path, hot, day="2026-03-01", first_s=-120, last_s=300):
    """nvidia-smi twice a second; too hot while hot(seconds after 10:00)."""
    begin = datetime.datetime.fromisoformat(f"{day}T10:00:00")
    lines = ["timestamp, index, utilization.gpu [%], power.draw [W], clocks.sm [MHz], clocks_throttle_reasons.active"]
    for i in range(2 * first_s, 2 * last_s):
        t = begin + datetime.timedelta(seconds=i / 2)
        slow = hot(i / 2)
        lines.append(f"{t:%Y/%m/%d %H:%M:%S}.{t.microsecond // 1000:03d}, 0, 97 %, 300.00 W, "
                     f"{1200 if slow else 1900} MHz, 0x{0x40 if slow else 0:016x}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_readings_of_other_times_cost_the_steps_nothing(laggard, tmp_path):
    def explain(*files):
        done = laggard("explain", "--json", *files)
        assert done.returncode == 0, done.stderr
        verdict = json.loads(done.stdout)
        return verdict, [f for f in verdict["findings"] if f["id"] == "gpu.throttled"], done.stderr

    log = job_log(tmp_path / "job.log")  # 80 s
    # Hot while the steps ran: as much is lost as they took, not as long as somebody read.
    verdict, found, _ = explain(log, smi_log(tmp_path / "hot.csv", lambda s: s > 40))
    assert found and found[0]["lost_ms"] < 80e3 * found[0]["lost_share"] * 1.02
    assert 0.1 < found[0]["lost_share"] < 0.25
    # Hot before and after only.
    verdict, found, _ = explain(log, smi_log(tmp_path / "not.csv", lambda s: not -1 < s < 81))
    assert not found and len(verdict["inputs"]) == 2
    assert explain(tmp_path / "not.csv")[1]
    # Too short to tell: that is said.
    verdict, found, _ = explain(job_log(tmp_path / "short.log", steps=20), tmp_path / "hot.csv")
    assert not found and any("too few to judge clocks" in line for line in verdict["limits"])
    # Another month is another run.
    for day in ("2025-06-10", "2026-03-20"):
        verdict, found, stderr = explain(log, smi_log(tmp_path / "old.csv", lambda s: True, day))
        assert not found and len(verdict["inputs"]) == 1 and "another time" in stderr
        assert any("old.csv is left out" in line and "days" in line for line in verdict["limits"])
        assert explain(tmp_path / "old.csv")[1]


def test_a_log_beside_a_trace_tells_no_stages(laggard, tmp_path):
    """The stages are those of the trace's steps, whatever steps a log beside it states, of this run or not."""
    step, events = 20_000, []
    for k in range(12):
        t = 1_000_000 + k * step
        for name, cat, ts, dur in ((f"ProfilerStep#{k}", "user_annotation", t, step - 10),
                                   ("aten::linear", "cpu_op", t + 100, 14_000),
                                   ("Optimizer.step#SGD.step", "user_annotation", t + 15_000, 4_500),
                                   ("aten::add_", "cpu_op", t + 15_100, 4_300)):
            events.append({"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": 7, "ts": ts, "dur": dur})
    trace, log = tmp_path / "trace.json", tmp_path / "train.log"
    base = 1_763_800_000_000_000_000
    trace.write_text(json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": base, "traceEvents": events}))
    alone = verdict_of(laggard, trace)
    for late in (0, 500):
        now, lines = datetime.datetime.fromtimestamp(base / 1e9 + 1 + late, datetime.timezone.utc), ""
        for k in range(40):
            took = 0.2 if k % 5 == 4 else 0.082
            now += datetime.timedelta(seconds=took)
            lines += f"{now:%Y-%m-%d %H:%M:%S.%f}"[:23] + f" INFO rank 0 step {k} loss 1.0 step_time {took:.4f}\n"
        log.write_text(lines)
        both = verdict_of(laggard, trace, log)
        assert both["steps"]["count"] == alone["steps"]["count"] == 12
        assert both["stages"] == alone["stages"]
        assert next(s for s in both["stages"] if s["stage"] == "optimizer")["median_ms"] > 4


def test_a_copy_of_a_file_counts_once(laggard, tmp_path):
    """Packed and plain, or in two folders: a rank does not wait for itself. Whoever copied it is told."""
    ranks, copy = [DATA / "rank0.json.gz", DATA / "rank1.json.gz"], tmp_path / "rank0.json"
    copy.write_bytes(gzip.decompress(ranks[0].read_bytes()))
    once = verdict_of(laggard, *ranks)
    assert not any("same rows" in line for line in once["limits"])
    for files in ((*ranks, copy), (copy, *ranks)):
        twice = verdict_of(laggard, *files)
        assert twice["steps"] == once["steps"] and twice["findings"] == once["findings"]
        assert sum("is left out: it has the same rows as" in line for line in twice["limits"]) == 1


def test_steps_that_take_longer_in_one_file_are_told(laggard, tmp_path):
    """Joined by their numbers, for want of a clock: a file of another run has these numbers, too."""
    def trace(name, us):
        rows = [{"name": n, "ph": "X", "ts": k * us, "dur": us - gap, "tid": 1, "pid": "CPU functions", "args": {}}
                for k in range(30) for n, gap in ((f"ProfilerStep#{k}", 1), ("aten::addmm", us // 9))]
        (tmp_path / name).write_text(json.dumps(rows))
        return tmp_path / name

    def told(first, second):
        return sum("is it of that run?" in line for line in verdict_of(laggard, first, second)["limits"])

    here = trace("a.json", 50_000)
    assert told(here, trace("b.json", 200_000)) == 1
    assert told(here, trace("c.json", 51_000)) == 0


def test_an_empty_log_hides_nothing(laggard, tmp_path):
    """Output that is still buffered when somebody looks; alone, there is nothing to read."""
    trace, log = DATA / "rank0.json.gz", tmp_path / "train.log"
    log.write_text("")
    alone, both = verdict_of(laggard, trace), verdict_of(laggard, trace, log)
    assert both["steps"] == alone["steps"] and both["findings"] == alone["findings"]
    assert any(f"{log} is empty" in line for line in both["limits"])
    for files in ((log,), (log, tmp_path / "second.log")):
        files[-1].write_text("")
        done = laggard("explain", "-v", *files)
        assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1 and "is empty" in done.stderr


def verdict_of(laggard, *files):
    done = laggard("explain", *files, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
