# SPDX-License-Identifier: Apache-2.0
"""Logs of jobs of many ranks: whose line it is, and of which group; each beside a healthy twin."""
import json
import math

import pytest


@pytest.fixture
def explain(laggard, tmp_path):
    """explain(lines) -> the verdict's findings."""
    def run(lines):
        path = tmp_path / "job.log"
        path.write_text("\n".join(lines) + "\n")
        done = laggard("explain", path, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["findings"]
    return run


def timeout(who, op="ALLREDUCE", head="[E1120 03:04:11.061727749 ProcessGroupNCCL.cpp:683] "):
    return (f"{head}[{who}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=78, OpType={op}, NumelIn=80, "
            "NumelOut=80, Timeout(ms)=600000) ran for 600096 milliseconds before timing out.")


@pytest.mark.parametrize("prefix", ["PG ID {0} PG GUID {0}({1})", "PG {0} ({1})"])
def test_groups_count_for_themselves(explain, prefix):
    """Two groups wait under the same number: nobody called another collective than its peers."""
    def job(names):
        return [f"[rank{r}]:" + timeout(prefix.format(3 + ["TP", "DP"].index(names[r]), names[r]) + f" Rank {r % 2}",
                                        "ALLREDUCE" if r < 2 else "ALLGATHER") for r in range(4)]
    assert [f["id"] for f in explain(job(["TP", "TP", "DP", "DP"]))] == ["comms.missing_rank"]
    (found,) = explain(job(["TP"] * 4))
    assert found["id"] == "comms.mismatch"


@pytest.mark.parametrize("who, sure", [("Rank {}", False), ("PG 0 (default_pg) Rank {}", True)])
def test_lines_without_a_group_are_less_sure(explain, who, sure):
    (found,) = explain([f"[rank{r}]:" + timeout(who.format(r), "ALLREDUCE" if r else "BROADCAST") for r in range(4)])
    assert found["id"] == "comms.mismatch"
    assert (found["confidence"] > 0.9) == sure
    assert any("do not say of which process group" in str(x) for x in found["against"]) != sure


@pytest.mark.parametrize("line", [lambda r, text: f"[default{r % 8}]:[rank{r}]:" + text,  # torchrun --tee, torch 2.2 and later
                                  lambda r, text: f"[default{r % 8}]:" + text])          # before
def test_torchrun_counts_the_ranks_of_a_host(explain, line):
    """Two hosts of eight ranks: [default3]: is rank 3 on one and rank 11 on the other."""
    (found,) = explain([line(r, timeout(f"Rank {r}")) for r in range(16) if r != 11])
    assert (found["id"], found["culprit"]["rank"]) == ("comms.missing_rank", 11)
    (found,) = explain([line(r, timeout(f"Rank {r}")) for r in range(16)])
    assert found["culprit"]["rank"] is None


def test_a_timeout_says_no_more_than_is_known(explain):
    """Nobody is accused: where those wait that report is all there is."""
    one = [f"[rank{r}]:" + timeout(f"Rank {r}") for r in range(3)]
    (found,) = explain(one)
    assert found["title"].startswith("3 ranks, all that report, wait in the same collective")
    assert (found["detail"], found["culprit"]["rank"]) == ("hang", None)
    (found,) = explain([one[0], one[2].replace("SeqNum=78, OpType=ALLREDUCE", "SeqNum=57, OpType=ALLGATHER")])
    assert found["title"].startswith("ranks wait in different collectives")
    assert (found.get("detail"), found["culprit"]["rank"]) == (None, None)
    (found,) = explain(one[1:2])
    assert found["title"].startswith("a collective timed out on rank 1: another never arrived, or ")
    assert not explain(["[rank0]:[E1120 03:04:11.061727749 ProcessGroupNCCL.cpp:683] all is well",
                        "iteration 1/ 9 | elapsed time per iteration (ms): 100.0 |"])


def test_the_rank_that_is_alone_is_named(explain):
    """Seven of eight call one collective. Two and two, or one and one, accuse nobody."""
    def job(n, odd, **other):
        return [f"[rank{r}]:" + timeout(f"PG 0 (default_pg) Rank {r}", **(other if r in odd else {})) for r in range(n)]
    (found,) = explain(job(8, [5], op="BROADCAST"))
    assert (found["id"], found["culprit"]["rank"]) == ("comms.mismatch", 5)
    assert found["title"].startswith("rank 5 calls BROADCAST of 80 elements where the 7 other ranks that report call ALLREDUCE")
    assert len([e for e in found["evidence"] if "OpType" in e["text"]]) == 2
    (found,) = explain(job(8, [0], op="BROADCAST"))  # the first one's line comes first
    assert found["culprit"]["rank"] == 0
    for n, odd in ((4, [1, 2]), (2, [0])):
        (found,) = explain(job(n, odd, op="BROADCAST"))
        assert (found["id"], found["culprit"]["rank"]) == ("comms.mismatch", None)


def test_few_silent_ranks_are_told(explain):
    (found,) = explain([f"[rank{r}]:" + timeout(f"Rank {r}") for r in range(16) if r not in (5, 9)])
    assert "ranks 5, 9, which do not report" in found["title"]
    assert found["culprit"]["rank"] is None
    (found,) = explain([f"[rank{r}]:" + timeout(f"Rank {r}") for r in range(16) if r % 2])  # half of the logs are not here
    assert "whose log is not here" in found["title"]


def test_the_rank_in_another_group_is_not_the_jobs(explain):
    """Ranks 4 to 7 have ranks 0 to 3 in their own group: it is rank 6 of the job that is silent there, and not 2."""
    lines = [timeout(f"PG ID 1 PG GUID 5(TP) Rank {r % 4}") for r in range(4, 8) if r != 6]
    (found,) = explain(lines)
    assert found["culprit"]["rank"] is None
    (found,) = explain([x.replace("PG ID 1 PG GUID 5(TP)", "PG ID 0 PG GUID 0(default_pg)") for x in lines])
    assert found["culprit"]["rank"] == 2


def test_containers_count_their_pids_alike(explain):
    head = "E1120 03:04:11.061727 28 ProcessGroupNCCL.cpp:683] "
    (found,) = explain([f"[rank{r}]:W1120 03:00:00.000000 28 torch/x.py:1] hit config.cache_size_limit" for r in range(8)] +
                       [f"[rank{r}]:" + timeout(f"Rank {r}", head=head) for r in range(8) if r != 5])
    assert (found["id"], found["culprit"]["rank"]) == ("comms.missing_rank", 5)


DYNAMO = "V1120 23:42:27.869000 {pid} torch/_dynamo/x.py:435] [0/0] [__{what}] {text}"


def dynamo(prefix, rank, what, text):
    return prefix.format(rank) + DYNAMO.format(pid=100 + rank, what=what, text=text)


@pytest.mark.parametrize("prefix", ["[rank{}]:", "", "{}: "])
@pytest.mark.parametrize("together", [True, False])
def test_lines_of_ranks_may_stand_between_each_other(explain, prefix, together):
    of = [[dynamo(prefix, r, "graph_breaks", f"Graph break in user code at /app/t{r}.py:6"),
           dynamo(prefix, r, "graph_breaks", f"Reason: Unsupported: why{r}")] for r in range(3)]
    (found,) = explain([line for rank in of for line in rank] if together else [line for lines in zip(*of) for line in lines])
    said = [e["text"] for e in found["evidence"]]
    assert [f"/app/t{r}.py:6: Unsupported: why{r}" for r in range(3)] == said[:3]


def test_a_torn_memory_summary_swallows_nothing(laggard, tmp_path):
    table = ["|" + "=" * 75 + "|", "|                  PyTorch CUDA memory summary, device ID 0                 |",
             "|            CUDA OOMs: 0            |        cudaMalloc retries: 0         |"]
    steps = [f"| 10% | iteration {i}/ 1000 | elapsed time per iteration (ms): 100.0 | lm loss: 2.0 |" for i in range(20)]
    for i, lines in enumerate([table + steps, steps]):
        path = tmp_path / f"{i}.log"
        path.write_text("\n".join(lines) + "\n")
        done = laggard("query", path, "select count(*) from mark where name = 'log.step'")
        assert done.stdout.split() == ["count(*)", "20"], done.stderr


def bar(name, i, n, rate, elapsed):
    """tqdm's line: rate in iterations a second, elapsed in seconds."""
    s = int(elapsed)
    rate = f"{rate:.2f}it/s" if rate >= 1 else f"{1 / rate:.2f}s/it"
    return f"{name} {100 * i // n}%|##   | {i}/{n} [{s // 60:02d}:{s % 60:02d}<00:30, {rate}]"


def bars(name, steps, draw=1):
    """tqdm's lines of steps that take so many seconds, the rate smoothed as it does, each drawn so often."""
    n, now, of_time, of_steps, lines = len(steps), 0, 0, 0, [f"{name} 0%|     | 0/{len(steps)} [00:00<?, ?it/s]"]
    for i, s in enumerate(steps, 1):
        now += s
        of_time, of_steps = 0.3 * s + 0.7 * of_time, 0.3 + 0.7 * of_steps
        lines += [bar(name, i, n, of_steps / of_time, now)] * draw
    return lines


@pytest.mark.parametrize("train, other", [("Epoch {}: ", "Validation DataLoader 0: "), ("", ""), ("", "Loading shards: ")])
def test_another_progress_bar_is_no_slow_step(laggard, tmp_path, train, other):
    """Twenty iterations of validation, four times as long, behind every hundred steps."""
    said = []
    for slow in (0, 20):
        lines = [text for epoch in range(6)
                 for text in bars(train.format(epoch), [1 - (i * 7 % 5) / 100 if i < 100 - slow else 4 for i in range(100)]) +
                 bars(other, [4] * (20 - slow))[:20 - slow]]
        path = tmp_path / f"{slow}.log"
        path.write_text("\r".join(lines) + "\n")
        verdict = json.loads(laggard("explain", path, "--json").stdout)
        said.append([x for x in verdict["limits"] if "step times are slow" in x])
    assert not said[0]
    assert said[1] and said[1][0].startswith("120 of the 600 step times")  # steps themselves that are


def steps_of(laggard, path, lines):
    path.write_text("\r".join(lines) + "\n")
    done = laggard("explain", path, "--json")
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    return verdict["steps"]["count"], verdict["steps"]["median_ms"], " ".join(verdict["limits"])


MEGATRON = [f"iteration {i}/ 1000 | elapsed time per iteration (ms): 100.0 | lm loss: 2.0 |" for i in range(15)]
ASIDE = "evaluates, or whose words name other work"


@pytest.mark.parametrize("first, n, ms", [("Loading checkpoint shards: ", 15, 100), ("Capturing CUDA graph shapes: ", 15, 100),
                                          ("Validation: ", 15, 100), ("Epoch 0: ", 15, 100), ("", 15, 100)])
def test_a_bar_is_weaker_than_step_lines(laggard, tmp_path, first, n, ms):
    """Nineteen lines of a bar before fifteen of a framework's steps; and fifteen alone."""
    assert steps_of(laggard, tmp_path / "a.log", bars(first, [10] * 19) + MEGATRON)[:2] == (n, ms)
    assert steps_of(laggard, tmp_path / "b.log", MEGATRON)[:2] == (n, ms)


@pytest.mark.parametrize("name, n, aside", [("Loading weights: ", 0, False), ("Fetching 19 files: ", 0, False),
                                            ("Evaluating: ", 19, True), ("", 19, False), ("Epoch 1: ", 19, False)])
def test_a_bar_alone_is_what_it_says(laggard, tmp_path, name, n, aside):
    got = steps_of(laggard, tmp_path / "a.log", bars(name, [10] * 19))
    assert got[0] == n
    assert (ASIDE in got[2]) == aside
    assert ("no marks of a training loop" in got[2]) == (n == 0)


def test_a_bar_that_trains_goes_before_one_that_does_not_say(laggard, tmp_path):
    """A bar without words over the samples of a data set, then the training's, of fewer lines."""
    data, train = bars("", [10] * 50), bars("Epoch 0: ", [2] * 20)
    assert steps_of(laggard, tmp_path / "a.log", data + train)[:2] == (20, 2000)
    assert steps_of(laggard, tmp_path / "b.log", data)[:2] == (50, 10000)


@pytest.mark.parametrize("step, late, judged", [(1.7, 31, (200, 200)), (0.3, 30, (180, 200)), (16, 60, (200, 200)),
                                                (1.7, 1.7, (200, 200)), (0.3, 0.3, (200, 200)), (16, 16, (200, 200))])
def test_the_clock_of_a_bar_shows_one_slow_step(laggard, tmp_path, step, late, judged):
    """Its smoothed rate shows ten, or none; and what is drawn twice is one step."""
    steps = [step * (1 + (i * 7 % 5 - 2) / 100) for i in range(200)]
    steps[100] = late
    path = tmp_path / "a.log"
    path.write_text("\r".join(bars("", steps, draw=2)) + "\n")
    verdict = json.loads(laggard("explain", path, "--json").stdout)
    got = verdict["steps"]
    assert judged[0] <= got["count"] <= judged[1]
    assert got["median_ms"] == pytest.approx(1000 * step, rel=0.02)
    assert got["slow"] == (late > 2 * step)
    assert any("whole seconds" in x for x in verdict["limits"]) == (step < 10)


@pytest.mark.parametrize("every, slow", [(60, 10), (0, 0)])
@pytest.mark.parametrize("evaluates", [True, False])
def test_a_stall_of_a_bar_comes_every_so_many_steps(laggard, tmp_path, every, slow, evaluates):
    """All steps count, also those whose lines its clock does not tell apart, and no other bar's."""
    steps = [0.5 + 9 * bool(every and i % every == every - 1) for i in range(600)]
    lines = bars("", steps)
    if evaluates:
        other = bars("", [0.1] * 20)
        for i in range(550, 0, -50):
            lines[i:i] = other
    path = tmp_path / "a.log"
    path.write_text("\r".join(lines) + "\n")
    got, limits = judged(laggard, path)
    assert (got["count"], got["slow"]) == (600, slow)
    assert ("one every 60 steps" in limits) == bool(slow)


def test_steps_of_changing_length_keep_their_rate(laggard, tmp_path):
    """A fifth longer and shorter by turns: the rate lags behind, and whole seconds would be no better."""
    steps = [2.8 * (1 + 0.2 * math.sin(i / 7)) for i in range(300)]
    lines = bars("", steps)
    n, median, _ = steps_of(laggard, tmp_path / "a.log", lines)
    assert n == 300 and median == pytest.approx(1000 * sorted(steps)[150], rel=0.02)
    done = laggard("query", tmp_path / "a.log", "select value from counter")
    values = [float(x) for x in done.stdout.split()[1:]]
    assert sum(x % 1000 == 0 for x in values) < 10


def test_a_bar_that_jumps_tells_the_mean(laggard, tmp_path):
    """Five steps a line, ten seconds each line; the last five took twenty."""
    lines = [bar("", 5 * i, 100, 0.5, 10 * i if i < 20 else 210) for i in range(1, 21)]
    n, median, _ = steps_of(laggard, tmp_path / "a.log", lines)
    assert (n, median) == (20, 2000)
    done = laggard("query", tmp_path / "a.log", "select value from counter")
    assert done.stdout.split()[1:] == ["2000.0"] * 19 + ["4000.0"]


@pytest.mark.parametrize("slow", [0, 5])
def test_a_running_total_shows_its_slow_steps(laggard, tmp_path, slow):
    """Every tenth step takes 1250 ms and not 250, or none does: the mean hides it."""
    total, lines = 0, []
    for i in range(201):
        total += 250 * (slow if slow and i % 10 == 1 else 1)
        lines.append(f"step:{i}/200 train_loss:5.0 train_time:{total}ms step_avg:{total / (i + 1):.2f}ms")
    n, median, limits = steps_of(laggard, tmp_path / "a.log", lines)
    assert (n, median) == (199 if slow else 200, 250)  # a slow first step is warm-up
    assert ("one every 10 steps" in limits) == bool(slow)


def test_numbers_beyond_any_loop_are_no_steps(laggard, tmp_path):
    path = tmp_path / "job.log"
    path.write_text("".join(f"iteration {n}/ 1000 | elapsed time per iteration (ms): 100.0 |\n"
                            for n in (-2**63, 2**63 - 1, 5)))
    done = laggard("query", path, "select value from mark where name = 'log.step'")
    assert done.stdout.split() == ["value", "5"]


@pytest.mark.parametrize("ms, slow, shape", [(lambda i: 5500 if i % 10 == 9 else 1500, 6, "periodic"),
                                             (lambda i: 1500 + 20 * i, 0, "drift"),
                                             (lambda i: 1500, 0, "steady")])
def test_a_coarse_clock_keeps_all_steps(laggard, tmp_path, ms, slow, shape):
    """Whole seconds, and steps about as long: the slow ones are no more there than the others."""
    path, at = tmp_path / "job.log", 0.0
    with path.open("w") as log:
        for i in range(60):
            at += ms(i) / 1000
            print(f" [2026-03-01 10:{int(at) // 60:02d}:{int(at) % 60:02d}] iteration {i + 1:8d}/  500000 | consumed "
                  f"samples: {512 * (i + 1):12d} | elapsed time per iteration (ms): {ms(i):.1f} | learning rate: "
                  f"1.5E-04 | global batch size:   512 | lm loss: {5 - i / 100:.6E} |", file=log)
    done = laggard("explain", path, "--json")
    assert done.returncode == 0, done.stderr
    steps = json.loads(done.stdout)["steps"]
    assert (steps["count"], steps["slow"], steps["shape"]) == (60, slow, shape)
    assert steps["median_ms"] == pytest.approx(sorted(map(ms, range(60)))[30], rel=0.03)


def seconds_log(path, steps, start=0.12, number=lambda i: i):
    """Lines that begin with whole seconds and state no time; steps: seconds of each."""
    at = start
    with path.open("w") as log:
        for i, s in enumerate(steps):
            at += s
            t = int(at)
            print(f"2026-03-14 {9 + t // 3600:02d}:{t // 60 % 60:02d}:{t % 60:02d} step {number(i)} loss {9 - i / 1000:.4f}",
                  file=log)
    return path


def judged(laggard, path):
    done = laggard("explain", path, "--json")
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    return verdict["steps"], " ".join(verdict["limits"])


def wobble(i):
    """Within a hundredth, and without a rhythm."""
    return 1 + ((i * i * 7919 + i * 31) % 101 - 50) / 5000


@pytest.mark.parametrize("s", [0.05, 0.35, 0.8, 1.0, 1.3, 2.1, 2.5, 2.9, 4.55, 7.3])
def test_whole_seconds_make_no_step_slow(laggard, tmp_path, s):
    """What differs by the clock alone does not differ; the median is of many steps."""
    steps, limits = judged(laggard, seconds_log(tmp_path / "job.log", [s * wobble(i) for i in range(300)]))
    assert steps["slow"] == 0 and steps["shape"] == "steady"
    assert steps["median_ms"] == pytest.approx(1000 * s, rel=0.02) and steps["count"] >= 290
    assert "the distances in time of the log's lines" in limits and "ticks of 1 s" in limits


@pytest.mark.parametrize("s, by", [(0.35, 1.5), (2.1, 1.3), (2.1, 1.41), (4.55, 1.3)])
def test_whole_seconds_hide_no_shift(laggard, tmp_path, s, by):
    steps, _ = judged(laggard, seconds_log(tmp_path / "job.log",
                                           [s * wobble(i) * (by if i >= 150 else 1) for i in range(300)]))
    assert (steps["shape"], steps["slow"]) == ("shift", 0)


@pytest.mark.parametrize("s, late", [(0.35, 6), (2.1, 6), (4.55, 9)])
def test_whole_seconds_hide_no_stall(laggard, tmp_path, s, late):
    steps, _ = judged(laggard, seconds_log(tmp_path / "job.log",
                                           [s * wobble(i) + late * (i % 40 == 39) for i in range(400)]))
    assert (steps["shape"], steps["slow"]) == ("periodic", 10)
    assert steps["period_s"] == pytest.approx(40 * s + late, rel=0.02)
    assert steps["median_ms"] == pytest.approx(1000 * s, rel=0.05)


def test_a_fine_clock_is_taken_as_it_is(laggard, tmp_path):
    at, path = 0, tmp_path / "job.log"
    with path.open("w") as log:
        for i in range(100):
            at += 700 if i % 2 else 500
            print(f"2026-03-14 09:{at // 60000:02d}:{at // 1000 % 60:02d},{at % 1000:03d} step {i} loss 2.0", file=log)
    steps, limits = judged(laggard, path)
    assert (steps["min_ms"], steps["max_ms"]) == (500, 700) and "ticks" not in limits


@pytest.mark.parametrize("gap, slow", [(0, 0), (25, 5)])
@pytest.mark.parametrize("ms", [True, False])
def test_an_epoch_begins_with_a_step(laggard, tmp_path, gap, slow, ms):
    """Numbers that begin anew make no step longer; what lies between two epochs does (a first one may be set-up)."""
    at, path = 0.12, tmp_path / "job.log"
    with path.open("w") as log:
        for i in range(420):
            at += 0.5 * wobble(i) + gap * (i % 60 == 0 and i > 0)
            part = f",{int(at * 1000) % 1000:03d}" if ms else ""
            print(f"2026-03-14 09:{int(at) // 60:02d}:{int(at) % 60:02d}{part} Epoch {i // 60} step {i % 60}/60 loss 2.5",
                  file=log)
    steps, _ = judged(laggard, path)
    assert (steps["slow"], steps["shape"]) == (slow, "periodic" if slow else "steady")


@pytest.mark.parametrize("name", ["job.log", "rank_{}.log", "attempt_0/{}/stdout.log"])
@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("slow, by", [(1, 1.5), (3, 1.2), (None, 1)])
def test_a_rank_whose_steps_take_longer_is_named(laggard, tmp_path, name, stated, slow, by):
    """Ranks that do not wait for each other: each has its own steps, told by prefix, file or folder."""
    lines = []
    for rank in range(4):
        at = 0.0
        for i in range(150):
            s = 0.4 * wobble(i + rank) * (by if rank == slow else 1)
            at += s
            lines.append((at, rank, f"2026-03-14 09:{int(at) // 60:02d}:{int(at) % 60:02d},{int(at * 1000) % 1000:03d} step {i} "
                          f"loss 2.5" + f" step_time {s:.3f}s" * stated))
    for _, rank, line in sorted(lines):
        path = tmp_path / name.format(rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as log:
            print(line if "{}" in name else f"[rank{rank}]:{line}", file=log)
    done = laggard("explain", tmp_path, "--json")
    verdict = json.loads(done.stdout)
    said = [x for x in verdict["limits"] if x.startswith("the median step of rank")]
    assert [x.split()[5] for x in said] == ([] if slow is None else [str(slow)])
    assert verdict["steps"]["scope"] == ("global" if slow is None else "rank_local")
    first = " ".join(laggard("explain", tmp_path).stdout.split())
    assert first.startswith("Nothing was found" if slow is None else f"The steps of rank {slow} take {100 * by - 100:.0f}"[:-1])


@pytest.mark.parametrize("data, found", [(0.2, ["data.loader_wait"]), (0.0, [])])
def test_waits_for_data_of_lines_with_stamps(explain, data, found):
    at, lines = 0.0, []
    for i in range(200):
        at += 0.4 * wobble(i)
        lines.append(f"2026-03-14 09:{int(at) // 60:02d}:{int(at) % 60:02d},{int(at * 1000) % 1000:03d} step {i} loss: 2.5 "
                     f"time: {0.4 * wobble(i):.4f} data_time: {data * wobble(i):.4f}")
    assert [f["id"] for f in explain(lines)] == found


def megatron(path, outside, said):
    """Lines of ten iterations each, which state their time; `outside` seconds and `said` behind each fifth."""
    at = 0.3
    with path.open("w") as log:
        for i in range(10, 610, 10):
            ms = 2300 * wobble(i)
            at += ms / 100 + outside * (i % 50 == 10 and i > 10)
            t = int(at)
            print(f" [2026-03-14 {9 + t // 3600:02d}:{t // 60 % 60:02d}:{t % 60:02d}] iteration {i:8d}/   20000 | consumed "
                  f"samples: {256 * i:12d} | elapsed time per iteration (ms): {ms:.1f} | lm loss: 2.0E+00 |", file=log)
            if i % 50 == 0 and said:
                print(said.format(i), file=log)
    return path


SAVE, EVAL = "saving checkpoint at iteration {:7d} to /ckpt", " validation loss at iteration {} | lm loss value: 1.1E+01 |"


@pytest.mark.parametrize("outside, said, slow, found", [(40, SAVE, 11, ["side.checkpoint"]), (60, EVAL, 11, []),
                                                        (0, SAVE, 0, []), (0, EVAL, 0, [])])
def test_what_megatrons_times_leave_out(laggard, tmp_path, outside, said, slow, found):
    """It stops its own clock for saves and evaluations: the stamps of its lines have them."""
    done = laggard("explain", megatron(tmp_path / "a.log", outside, said), "--json")
    verdict = json.loads(done.stdout)
    assert verdict["steps"]["slow"] == slow and [f["id"] for f in verdict["findings"]] == found
    assert any("beyond the steps that they state" in x for x in verdict["limits"]) == bool(slow)
    if found:
        assert verdict["findings"][0]["lost_ms"] == pytest.approx(11 * outside * 1000, rel=0.1)
        before = megatron(tmp_path / "before.log", 0, said)
        assert "slower" in laggard("diff", before, tmp_path / "a.log").stdout.splitlines()[0]


@pytest.mark.parametrize("other, told", ((30.1, True), (0.5, False)))
def test_memory_in_pieces_beside_another_process(explain, other, told):
    """What is unused would do in one piece, and so would what the other process holds: both are said."""
    (found,) = explain([
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB "
        f"of which 1.20 GiB is free. Process 12345 has {other:.2f} GiB memory in use. Including non-PyTorch memory, this "
        f"process has {77.95 - other:.2f} GiB memory in use. Of the allocated memory {75 - other:.2f} GiB is allocated by "
        "PyTorch, and 2.30 GiB is reserved by PyTorch but unallocated."])
    assert (found["id"], found["detail"]) == ("mem.oom", "fragmentation")
    assert [x["text"] for x in found["against"]] == [
        "other processes hold 30.10 GiB of the device: without them there is room as well"] * told


NEMO_BAR = ("Epoch 0: :  {i}%|#   | {i}/100 [00:10<01:20, v_num=0, reduced_train_loss=9.1, global_step={i}.00, "
            "consumed_samples=25600.0, train_step_timing in s={s:.3f}]")
NEMO_LINE = ("Training epoch 0, iteration {i}/99 | lr: 1.961e-06 | global_batch_size: 8 | global_step: {i} | "
             "reduced_train_loss: 1.315 | train_step_timing in s: {s:.3f} | consumed_samples: 16")


@pytest.mark.parametrize("line", [NEMO_BAR, NEMO_LINE])
@pytest.mark.parametrize("late", [7.0, 2.0])
def test_nemo_states_its_steps(laggard, tmp_path, line, late):
    """Every tenth step takes 7 s and not 2, or none does; each bar is drawn twice."""
    lines = [line.format(i=i, s=late if i % 10 == 9 else 2) for i in range(100) for _ in range(2)]
    n, median, limits = steps_of(laggard, tmp_path / "a.log", lines)
    assert (n, median) == (100, 2000)
    assert ("one every 10 steps" in limits) == (late > 2)


def deepspeed(late, stride=1):
    at, lines = 0.0, []
    for i in range(1, 301):
        at += late if i % 50 == 0 else 1
        if i % stride == 0:
            stamp = f"[2026-03-01 10:{int(at) // 60:02d}:{int(at) % 60:02d},{int(at * 1000) % 1000:03d}] [INFO] "
            lines += [f"{stamp}[logging.py:96:log_dist] [Rank 0] step={i}, skipped=4, lr=[4.9e-05], mom=[(0.9, 0.95)]",
                      f"{stamp}[timer.py:260:stop] epoch=0/micro_step={4 * i}/global_step={i}, RunningAvgSamplesPerSec="
                      "25.02, CurrSamplesPerSec=25.7, MemAllocated=4.32GB, MaxMemAllocated=38.49GB"]
    return lines


@pytest.mark.parametrize("late, slow", [(4, 5), (1, 0)])
def test_deepspeed_numbers_its_steps(laggard, tmp_path, late, slow):
    """The distance of two lines tells a step; one every ten steps tells their mean."""
    path = tmp_path / "a.log"
    for stride, n in ((1, 299), (10, 29)):
        path.write_text("\n".join(deepspeed(late, stride)) + "\n")
        verdict = json.loads(laggard("explain", path, "--json").stdout)
        assert verdict["steps"]["count"] == n
        assert verdict["steps"]["median_ms"] == 1000
        assert stride > 1 or slow <= verdict["steps"]["slow"] <= slow + 1


def test_a_bar_that_counts_deepspeeds_steps_tells_more(laggard, tmp_path):
    """Hugging Face's trainer over DeepSpeed: its bar has each step, DeepSpeed's lines every tenth."""
    bar = bars("", [1] * 300)
    every = deepspeed(1, 10)
    lines = [bar[0]]
    for i in range(1, 301):
        lines += (every[2 * (i // 10 - 1):2 * (i // 10)] if i % 10 == 0 else []) + [bar[i]]
    assert steps_of(laggard, tmp_path / "a.log", lines)[:2] == steps_of(laggard, tmp_path / "b.log", bar)[:2]


STATED = {  # step lines that tell a step's time; s and d: seconds of it, and of its wait for data
    "llm.c": lambda i, s, d: f"step {i:4d}/19560 | loss {9 - i * .01:.6f} (+nanz)| norm 1.2345 (+0.1z)| lr 3.00e-04 | "
                             f"{s * 1000:.2f} ms | 50.1% bf16 MFU | 290000 tok/s",
    "dt": lambda i, s, d: f"step {i:5d} | loss: {9 - i * .01:.6f} | norm: 1.2 | dt: {s * 1000:.2f}ms | tok/sec: 155000.2",
    "litgpt": lambda i, s, d: f"Epoch 1 | iter {i} step {i} | loss train: {9 - i * .01:.3f}, val: n/a | "
                              f"iter time: {s * 1000:.2f} ms (step) remaining time: 0:10:11",
    "seconds": lambda i, s, d: f"step {i} | loss {9 - i * .01:.4f} | time {s:.3f}s",
    "rate": lambda i, s, d: f"iter {i}: loss={9 - i * .01:.4f}, {1 / s:.3f} it/s",
    "total": lambda i, s, d: f"step {i} | loss {9 - i * .01:.4f} | elapsed {i * .3 + s:.3f}s",
    "imagenet": lambda i, s, d: f"Epoch: [1/90][{i:5d}/5005]\tTime {s:6.3f} ({s:6.3f})\tData {d:6.3f} ({d:6.3f})\t"
                                "Loss 6.9e+00 (6.9e+00)",
    "torchvision": lambda i, s, d: f"Epoch: [0]  [{i:5d}/5004]  eta: 0:30:00  lr: 0.1  img/s: 500.1  loss: 6.9 (6.9)  "
                                   f"time: {s:.4f}  data: {d:.4f}  max mem: 3000",
    "timm": lambda i, s, d: f"Train: 0 [{i:4d}/1251 (  4%)]  Loss: 6.95 (6.96)  Time: {s:.3f}s, {128 / s:.2f}/s  "
                            f"({s:.3f}s, {128 / s:.2f}/s)  LR: 1.000e-05  Data: {d:.3f} ({d:.3f})",
    "detectron2": lambda i, s, d: f"eta: 1:00:00  iter: {i}  total_loss: 2.123  loss_cls: 0.9  time: {s:.4f}  "
                                  f"last_time: 9.3  data_time: {d:.4f}  last_data_time: 9.01  lr: 1e-4",
    "mmengine": lambda i, s, d: f"Epoch(train)   [1][{i:4d}/7330]  lr: 1.0e-02  eta: 9:10:21  time: {s:.4f}  "
                                f"data_time: {d:.4f}  memory: 3889  loss: 2.1",
    "own": lambda i, s, d: f"step: {i} loss: {9 - i * .01:.4f} step_time: {s * 1000:.1f} ms data_time: {d * 1000:.1f} ms"}


@pytest.mark.parametrize("form", STATED)
def test_times_that_step_lines_state(laggard, tmp_path, form):
    tells_data = list(STATED).index(form) >= list(STATED).index("imagenet")
    for share in (0.4, 0.005):
        path = tmp_path / "job.log"
        path.write_text("".join(STATED[form](i, 0.3 + 0.004 * ((i * 7) % 5), share * 0.308) + "\n" for i in range(1, 61)))
        done = laggard("explain", path, "--json")
        assert done.returncode == 0, done.stderr
        v = json.loads(done.stdout)
        assert v["steps"]["median_ms"] == pytest.approx(308, abs=5) and v["steps"]["count"] >= 50, v["steps"]
        if share < 0.1 or not tells_data:
            assert not v["findings"]
            continue
        (found,) = v["findings"]
        assert (found["id"], found["severity"], v["bound"]["verdict"]) == ("data.loader_wait", "high", "data")
        assert found["lost_share"] == pytest.approx(0.4, abs=0.01)
        assert found["lost_ms"] == pytest.approx(60 * 0.4 * 308, rel=0.05)


@pytest.mark.parametrize("line", [
    "Train Epoch: 1 [{0}/60000 (1%)]\tLoss: 2.3",  # images, no time
    "Epoch [{0}/100], Loss: 2.3, Time: 12.3s",  # epochs
    "Epoch(val) [1][{0}/500]  time: 0.4  data_time: 0.3",
    "Test: [ {0}/98]\tTime  0.4 ( 0.4)\tData 0.3 ( 0.3)\tLoss 6.9"])
def test_what_counts_no_steps(laggard, tmp_path, line):
    path = tmp_path / "job.log"
    path.write_text("UserWarning: of no matter\n" + "".join(line.format(i) + "\n" for i in range(1, 61)))
    done = laggard("explain", path, "--json")
    assert done.returncode or json.loads(done.stdout)["steps"]["count"] == 0


def test_a_worker_that_is_always_printed_counts_once(laggard, tmp_path):
    """Every eighth batch waits, and every eighth is printed: the means know better."""
    path = tmp_path / "job.log"
    path.write_text("".join(f"Epoch: [{e}][{i:4d}/800]\tTime  1.000 ( 0.213)\tData  0.900 ( 0.113)\tLoss 2.3 (2.3)\n"
                            for e in range(3) for i in range(0, 800, 8)))
    (found,) = json.loads(laggard("explain", path, "--json").stdout)["findings"]
    assert found["lost_share"] == pytest.approx(0.113 / 0.213, abs=0.01)
    assert found["lost_ms"] == pytest.approx(3 * 792 * 113, rel=0.01)


@pytest.mark.parametrize("wait, detail", ((9.0, "respawn"), (0.001, None)))
def test_workers_that_start_anew_with_each_epoch(laggard, tmp_path, wait, detail):
    """Batch 0 of each epoch waits; the twin's batches all wait the same."""
    def line(e, i):
        data = wait if i == 0 else 0.001 if detail else 0.1
        mean = (wait + 0.001 * i) / (i + 1) if detail else 0.1 * i / (i + 1)
        return (f"Epoch: [{e}/9][{i:4d}/120]\tTime {0.9 + data:6.3f} ({0.9 + mean:6.3f})\tData {data:6.3f} ({mean:6.3f})"
                "\tLoss 2.3 (2.3)\n")
    path = tmp_path / "job.log"
    path.write_text("".join(line(e, i) for e in range(9) for i in range(0, 120, 10)))
    (found,) = json.loads(laggard("explain", path, "--json").stdout)["findings"]
    assert (found["id"], found.get("detail")) == ("data.loader_wait", detail)
    assert ("first step of each epoch" in found["title"]) == (detail == "respawn")


HEAD = "V1123 01:25:{0:09.6f} 4711 torch/_dynamo/{1}] "
SUPPRESSED = ("Graph break (details suppressed) in user code at /app/net.py:14",  # torch 2.5, 2.6
              "Graph break (user stack suppressed due to duplicate graph break) in user code at /app/net.py:14")


def compile_log(suppressed):
    """TORCH_LOGS=graph_breaks,recompiles: three breaks, the later ones told in short, and two recompilations."""
    at = [HEAD.format(26 + i / 10, "symbolic_convert.py:435") for i in range(3)]
    lines = [f"{at[0]}[0/0] [__graph_breaks] Graph break in user code at /app/net.py:14",
             f"{at[0]}[0/0] [__graph_breaks] Reason: Unsupported: 'skip function graph_break'",
             *(f"{at[i]}[1/{i}] [__graph_breaks] {suppressed}" for i in (1, 2))]
    for i in (1, 2):
        head = HEAD.format(28 + i / 10, "guards.py:2791") + f"[1/{i}] [__recompiles] "
        lines += [f"{head}Recompiling function forward in /app/net.py:10",
                  f"{head}    triggered by the following guard failure(s):",
                  f"{head}    - 1/0: tensor 'L['x']' size mismatch at index 0. expected 256, actual {256 + 8 * i}"]
    return lines


def compile_trace():
    """TORCH_TRACE of the same run: a break is told when it comes, and again when its compilation ends."""
    def record(at, what, frame, n, payload=None):
        what |= {"frame_id": frame, "frame_compile_id": n, "attempt": 0}
        return [HEAD.format(at, "utils.py:1072") + json.dumps(what), *([f"\t{payload}"] if payload else [])]
    lines = []
    for frame, n in ((0, 0), (1, 1), (1, 2)):
        at = 26 + (n if frame else 0) / 10
        lines += record(at, {"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}}, frame, n,
                        "Graph break in user code at /app/net.py:14")
        if n:
            lines += record(at + 2, {"artifact": {"name": "recompile_reasons", "encoding": "json"}}, frame, n,
                            "[\"1/0: size mismatch\"]")
        lines += record(at + 2.05, {"compilation_metrics": {
            "co_name": "forward", "co_filename": "/app/net.py", "co_firstlineno": 10, "start_time_us": 1795397126000000,
            "duration_us": 50000, "restart_reasons": ["'skip function graph_break'"]}}, frame, n)
    return lines


@pytest.mark.parametrize("suppressed", SUPPRESSED)
def test_what_a_log_and_its_torch_trace_tell_counts_once(laggard, tmp_path, suppressed):
    log, trace = tmp_path / "job.log", tmp_path / "dedicated_log_torch_trace_x.log"
    log.write_text("\n".join(compile_log(suppressed)) + "\n")
    trace.write_text("\n".join(compile_trace()) + "\n")
    for files in ((log,), (trace,), (log, trace)):
        found = json.loads(laggard("explain", *files, "--json").stdout)["findings"]
        # Two recompilations are those of a warm-up: three would be told.
        assert [f["id"] for f in found] == ["compile.graph_breaks"], files
        assert "3 times" in found[0]["title"], (files, found[0]["title"])


def test_older_torch_tells_breaks_at_the_end_only(laggard, tmp_path):
    trace = tmp_path / "dedicated_log_torch_trace_x.log"
    trace.write_text("\n".join(x for x in compile_trace() if "graph_break_reason" not in x and x[0] != "\t") + "\n")
    (found,) = json.loads(laggard("explain", trace, "--json").stdout)["findings"]
    assert found["id"] == "compile.graph_breaks" and "3 times" in found["title"]


def first(laggard, path, lines):
    path.write_text("\n".join(lines) + "\n")
    done = laggard("explain", path, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["findings"]


def test_a_break_that_torch_warns_of_has_its_place(laggard, tmp_path):
    """torch 2.6 warns of .item() by default, and tells it once more where TORCH_LOGS=graph_breaks asks for it."""
    head = HEAD.format(31.23, "variables/tensor.py:869").replace("V", "W", 1) + "[0/0] "
    warned = [head + x for x in (
        "Graph break from `Tensor.item()`, consider setting:", "    torch._dynamo.config.capture_scalar_outputs = True",
        "or:", "    env TORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS=1", "to include these operations in the captured graph.", "",
        "Graph break: from user code at:", '  File "/app/outer.py", line 3, in main', "    step(x)",
        '  File "/app/train.py", line 20, in g', "    if y.sum().item() > 0: return y * 2", "", "")]
    (found,) = first(laggard, tmp_path / "job.log", warned)
    assert found["culprit"]["function"] == "from `Tensor.item()` (/app/train.py:20)" and "1 time " in found["title"]
    asked = HEAD.format(31.23, "symbolic_convert.py:435") + "[0/0] [__graph_breaks] "
    (found,) = first(laggard, tmp_path / "job.log", [
        *warned, asked + "Graph break in user code at /app/train.py:20", asked + "Reason: Unsupported: Tensor.item"])
    assert found["culprit"]["function"] == "/app/train.py:20: Unsupported: Tensor.item" and "1 time " in found["title"]


def test_compilations_that_fail(laggard, tmp_path):
    head = HEAD.format(31.02, "convert_frame.py:1233").replace("V", "W", 1)
    (found,) = first(laggard, tmp_path / "job.log", [head + x for x in (
        "WON'T CONVERT inner /app/net.py line 43 ", "due to: ", "Traceback (most recent call last):",
        '  File "/app/net.py", line 7, in bad', "    raise RuntimeError('no such backend today')",
        "torch._dynamo.exc.BackendCompilerFailed: backend='bad' raised:", "RuntimeError: no such backend today", "")])
    assert (found["id"], found["detail"]) == ("compile.skipped", "failed") and "1 time " in found["title"]
    assert found["culprit"]["function"] == ("inner (/app/net.py:43): torch._dynamo.exc.BackendCompilerFailed: "
                                            "backend='bad' raised: RuntimeError: no such backend today")
    (found,) = first(laggard, tmp_path / "job.log", [
        "Traceback (most recent call last):", "    raise RecompileLimitExceeded(f\"{limit_type} reached\")",
        "torch._dynamo.exc.RecompileLimitExceeded: cache_size_limit reached"])
    assert found["id"] == "compile.recompile_limit" and "fullgraph=True" in found["title"]


LOST = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.2]:4123{}"


def raised(rank, frames, error):
    return [f"[rank{rank}]: {line}" for line in ["Traceback (most recent call last):", *(
        f'  File "{path}", line {n}, in main' for path, n in frames), error]]


@pytest.mark.parametrize("error, doing", [
    ("IndexError: index 50257 is out of bounds", None),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 47.53 GiB of "
     "which 1.09 GiB is free. Of the allocated memory 40.00 GiB is allocated by PyTorch, and 5.00 GiB is reserved by "
     "PyTorch but unallocated.", "/app/model.py:17")])
def test_one_ranks_exception_among_lost_peers(explain, error, doing):
    torch = ("/usr/lib/python3/dist-packages/torch/_tensor.py", 487)
    (found,) = explain(["[rank0]: step 10 loss 2.3", *raised(0, [("/app/train.py", 44), torch], LOST.format(1)),
                        *raised(1, [("/app/train.py", 42), ("/app/model.py", 17)], error),
                        *raised(2, [("/app/train.py", 50)], LOST.format(2))])
    assert found["id"] == ("mem.oom" if doing else "job.failed") and found["culprit"]["rank"] == 1
    assert found["culprit"]["function"] == doing if doing else "(/app/model.py:17)" in found["title"]
    said = [e["text"] for e in found["evidence"]]
    assert [t for t in said if t.startswith("rank ")] == ["rank 0 was at /app/train.py:44 when its peer was gone",
                                                          "rank 2 was at /app/train.py:50 when its peer was gone"]


def plain(n, *more):
    return [*(f"iter {k}: loss 2.1, time 410.00ms" for k in range(n)), *more]


KILLED = "RuntimeError: DataLoader worker (pid 22871) is killed by signal: Killed."
ANOMALY = ("UserWarning: Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled "
           "for debugging.")


def test_logs_that_differ_only_in_their_errors_are_no_copies(laggard, tmp_path):
    """Lines without times: equal steps make two ranks' logs look alike, but for what each warns of."""
    for name, more in (("a", []), ("b", [KILLED]), ("c", [ANOMALY]), ("d", [ANOMALY.replace("should", "must")])):
        (tmp_path / f"node-{name}.log").write_text("\n".join(plain(80, *more)) + "\n")
    (tmp_path / "other.log").write_text((tmp_path / "node-b.log").read_text())
    done = laggard("explain", *sorted(tmp_path.glob("node-*.log")), "--json")
    assert "is left out" not in done.stderr
    assert {f["id"] for f in json.loads(done.stdout)["findings"]} == {"job.failed", "debug.left_on"}
    assert "other.log is left out: it has the same rows as" in laggard("explain", tmp_path / "node-b.log", tmp_path / "other.log").stderr


def test_logs_that_differ_in_one_step_of_many_are_no_copies(laggard, tmp_path):
    """More lines than are kept with their words, and more readings than are looked at beside times."""
    lines = plain(12000)
    (tmp_path / "a.log").write_text("\n".join(lines) + "\n")
    lines[11501] = lines[11501].replace("410.00", "5410.00")
    for name in ("b.log", "c.log"):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    assert "is left out" not in laggard("explain", tmp_path / "a.log", tmp_path / "b.log").stderr
    assert "c.log is left out: it has the same rows as" in laggard("explain", tmp_path / "b.log", tmp_path / "c.log").stderr


def trainer(n, *more):
    """transformers' Trainer prints dicts, without steps' numbers or times."""
    return [*({"loss": 2.0, "grad_norm": 1.1, "learning_rate": 1e-05, "epoch": k / n} for k in range(n)), *more]


@pytest.mark.parametrize("lines, rate", [
    (trainer(40), None),
    (trainer(40, {"train_runtime": 41.0, "train_steps_per_second": 0.975, "train_loss": 2.0, "epoch": 1.0}),
     "on average 0.975 a second, 1026 ms each, as its last line says"),
    ([f"step {k} loss 2.1 step_time 0.31" for k in range(40)], None)])
def test_steps_of_unknown_length_are_no_missing_steps(laggard, tmp_path, lines, rate):
    path = tmp_path / "job.log"
    path.write_text("\n".join(map(str, lines)) + "\n")
    verdict = json.loads(laggard("explain", path, "--json").stdout)
    (said,) = [t for t in verdict["limits"] if t.startswith("steps are told by 40 lines of the log")]
    assert ("on average" in said) == (rate is not None) and (rate or "") in said
    assert not any("no repeating steps" in t for t in verdict["limits"])
    text = laggard("explain", path).stdout
    assert text.startswith("The log tells of steps and not how long each took: nothing is judged.")
    assert " log.loss   " in text and "log.loss," not in text
    path.write_text("\n".join(plain(40)) + "\n")  # told: they are judged
    assert not any("steps are told by" in t for t in json.loads(laggard("explain", path, "--json").stdout)["limits"])


@pytest.mark.parametrize("line, said", [
    ("|  cudaMalloc retries: 57  |", "(57 times, as the log counts them)"),
    ("[titan] WARNING - 3 CUDA memory allocation retries.", "(3 times, as the log counts them)"),
    ("[titan] WARNING - 1 CUDA memory allocation retries.", "(1 time in the log)")])
def test_retries_are_as_many_as_the_log_counts(laggard, tmp_path, line, said):
    summary = ["|" + "=" * 75 + "|", "|                  PyTorch CUDA memory summary, device ID 0                 |", "|" + "-" * 75 + "|",
               "|            CUDA OOMs: 0            |        cudaMalloc retries: 57        |"]
    (tmp_path / "job.log").write_text("\n".join(plain(40, *(summary if "cudaMalloc" in line else [line]))) + "\n")
    found = json.loads(laggard("explain", tmp_path / "job.log", "--json").stdout)["findings"]
    assert any(f["id"] == "gpu.allocator_sync" and f["title"].endswith(said) for f in found)
