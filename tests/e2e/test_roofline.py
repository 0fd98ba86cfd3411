# SPDX-License-Identifier: Apache-2.0
"""laggard roofline: jobs whose loader, collectives and modules cost a known share."""
import json
import os
import pathlib
import statistics

import pytest
from live import Disturbed
from test_hook import Runner, marks_dir, runner, trainer, trixie  # noqa: F401

HERE = pathlib.Path(__file__).parent
JOB, RANKS = HERE / "roofline_job.py", HERE / "roofline_ranks.py"
LAUNCH = HERE.parents[1] / "scenarios/launch.py"
POINTS = 0.03
SHORT = ("--window", "10", "--keep", "8")
STEPS = 8 + 4 * 2 * 13 + 2  # four rounds of two windows: after a change three steps do not count


def told(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def near(told, share):
    """The share that is said is the one that is known, where the run was quiet enough to say it."""
    lo, hi = told["ci95"]
    if hi - lo > 2 * POINTS:
        raise Disturbed(f"the windows differ by themselves: {told['ci95']}")
    assert abs(told["lost_share"] - share) <= POINTS, told
    assert lo - POINTS <= share <= hi + POINTS


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.skipif(
        not os.environ.get("LG_SLOW"), reason="one share of each kind is enough for every run: set LG_SLOW=1 for all"))


@pytest.mark.live
@pytest.mark.parametrize("model, share, workers, how", [
    slow("cnn", 0.2, 0, ()), ("cnn", 0.5, 2, ()), slow("cnn", 0.2, 2, ("epochs", "shuffle")),
    slow("transformer", 0.5, 0, ("epochs",)), slow("transformer", 0.8, 2, ()), ("tables", 0.8, 0, ()), slow("tables", 0.2, 2, ()),
])
def test_a_loader_costs_what_it_costs(laggard, torch_python, model, share, workers, how):
    done = laggard("roofline", "--json", *SHORT, "--", torch_python, JOB, model, share, workers, STEPS, *how)
    got = told(done)
    near(got["roofline"], share)
    assert got["roofline"]["windows"] == 4
    assert got["text"].startswith("A faster loader would help: ")
    assert done.stderr.startswith(f"{STEPS} "), "an epoch has as many batches as ever"


@pytest.mark.live
@pytest.mark.healthy
@pytest.mark.parametrize("model", ["cnn", slow("transformer"), slow("tables")])
def test_a_loader_that_costs_nothing_would_not_help(laggard, torch_python, model):
    got = told(laggard("roofline", "--json", *SHORT, "--", torch_python, JOB, model, 0, 0, STEPS))
    near(got["roofline"], 0)
    narrow = max(map(abs, got["roofline"]["ci95"])) <= 0.03  # else so short a run does not tell
    assert got["text"].startswith("A faster loader would not help" if narrow else ("A faster loader would not help", "Not to be told"))


def steps_by_window(ring):
    steps, out = [s.ts for s in ring.steps()], {}
    for begin, end in zip(ring.marks("roofline.window"), ring.marks("roofline.end")):
        assert begin.text == end.text
        first = max(ts for ts in steps if ts <= begin.ts)
        last = max(ts for ts in steps if ts <= end.ts)
        out.setdefault(begin.text, []).append((last - first) / (steps.index(last) - steps.index(first)))
    return out


def hook_alone(run, model, share, workers, *how):
    """With the hook's own files and a ring that nobody reads: the same in any torch."""
    (run.tmp / JOB.name).write_text(JOB.read_text())
    status, out, err = run.run(run.tmp / JOB.name, model, share, workers, STEPS, *how,
                               extra={"LAGGARD_ROOFLINE": "window=10\nkeep=8\nquiet=0"})
    assert status == 0 and not err, err
    assert out.startswith(f"{STEPS} ")
    ring = trainer(run.rings())
    assert not [s for s in ring.slots_read if s.what == "off"]
    windows = steps_by_window(ring)
    windows = {kind: times[:4] for kind, times in windows.items()}
    assert [len(v) for v in windows.values()] == [4, 4]
    if max(statistics.pstdev(v) / statistics.mean(v) for v in windows.values()) > 0.05:
        raise Disturbed(f"the windows differ by themselves: {windows}")
    assert abs(1 - sum(windows["cached"]) / sum(windows["real"]) - share) <= POINTS, windows
    return ring


@pytest.mark.live
@pytest.mark.parametrize("model, share, workers", [("cnn", 0.5, 2), ("transformer", 0.2, 0), ("tables", 0.8, 2)])
def test_in_torch_2(trixie, model, share, workers):  # noqa: F811
    hook_alone(trixie, model, share, workers, "epochs")


@pytest.mark.live
def test_kept_batches_are_handed_out_as_they_were(runner):  # noqa: F811
    """The job pops keys of its batches and writes into them, and would see what it wrote before."""
    ring = hook_alone(runner, "cnn", 0.5, 0, "writes", "epochs")
    assert ring.meta()["roofline.kept"] == "8 batches of 1 shapes"


def test_of_each_shape_some_batches_are_kept(runner):  # noqa: F811
    (runner.tmp / JOB.name).write_text(JOB.read_text())
    status, _, err = runner.run(runner.tmp / JOB.name, "transformer", 0, 0, 60, "bare",
                                extra={"LAGGARD_ROOFLINE": "window=10\nkeep=8\nquiet=0"})
    assert status == 0, err
    assert trainer(runner.rings()).meta()["roofline.kept"].endswith("batches of 4 shapes")


def test_a_loader_of_which_nothing_is_kept_is_waited_for(laggard, torch_python, tmp_path):
    """Its first batch is asked for while batches of the other one are handed out."""
    job = tmp_path / "job.py"
    job.write_text("""if True:
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        net = torch.nn.Linear(8, 8)
        opt = torch.optim.SGD(net.parameters(), 0.1)
        late = None
        for i, (x,) in enumerate(DataLoader(TensorDataset(torch.randn(480, 8)), batch_size=4, num_workers=1)):
            if i == 25:
                late = iter(DataLoader(TensorDataset(torch.randn(4000, 8)), batch_size=4, num_workers=1))
            if late:
                x = next(late)[0]
            opt.zero_grad()
            net(x).sum().backward()
            opt.step()
        """)
    assert told(laggard("roofline", "--json", *SHORT, "--", torch_python, job))["roofline"]["windows"] >= 3


def test_ranks_that_a_program_starts_have_windows_of_their_own(laggard, torch_python, tmp_path):
    job = tmp_path / "job.py"
    job.write_text("""if True:
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        def train(rank):
            torch.set_num_threads(1)
            net = torch.nn.Linear(8, 8)
            opt = torch.optim.SGD(net.parameters(), 0.1)
            for x, in DataLoader(TensorDataset(torch.randn(480, 8)), batch_size=4, num_workers=1):
                opt.zero_grad()
                net(x).sum().backward()
                opt.step()
        if __name__ == "__main__":
            for how in ("fork", "spawn"):
                torch.multiprocessing.start_processes(train, nprocs=2, start_method=how)
        """)
    done = laggard("roofline", *SHORT, "--", torch_python, job)
    assert done.returncode == 0, done.stderr
    assert "of 4 processes" in done.stdout


def test_the_program_is_unchanged_when_it_is_off(runner):  # noqa: F811
    (runner.tmp / JOB.name).write_text(JOB.read_text())
    said = [runner.run(runner.tmp / JOB.name, model, 0, 2, 20, "bare", "epochs", hook=hook)[:2]
            for model in ("cnn", "transformer") for hook in (False, True)]
    assert said[0] == said[1] and said[2] == said[3] and said[0][0] == 0


@pytest.mark.parametrize("workers, how", [(0, ()), (2, ()), (2, ("persistent",))])
def test_an_evaluation_is_no_step_of_either(laggard, torch_python, workers, how):
    """Nor does it wait for workers whose time stands still: they are its own, or go on."""
    got = told(laggard("roofline", "--json", *SHORT, "--", torch_python, JOB, "cnn", 0, workers, STEPS, "bare", "epochs",
                       "evaluates", *how))
    assert got["limits"] and all("with an evaluation" in line for line in got["limits"])


def launched(*ranks):
    return ("/usr/bin/python3", LAUNCH, "--nproc", *ranks)


@pytest.mark.live
def test_collectives_are_taken_out(laggard, torch_python):
    done = laggard("roofline", "--json", "--window", "6", "--keep", "8", "--collectives", "off", "--", *launched(2), RANKS,
                   8 + 4 * 3 * 9 + 2)
    got = told(done)
    parts = got["roofline"]["parts"]
    assert [p["part"] for p in parts] == ["collectives"]
    near(parts[0], 0.25)  # each is late in every other step: 200 ms with the other, 150 ms alone
    near(got["roofline"], 0)
    assert "True" in done.stderr


def test_what_cannot_be_taken_out_is_said(laggard, torch_python):
    got = told(laggard("roofline", "--json", *SHORT, "--collectives", "off", "--without", "no.such", "--", torch_python,
                       JOB, "cnn", 0, 0, STEPS, "bare"))
    assert got["limits"] == ["collectives was not taken out: there is one rank.",
                             "without:no.such was not taken out: the model has no such module."]


@pytest.mark.live
def test_a_module_is_taken_out(laggard, torch_python, tmp_path):
    job = tmp_path / "job.py"
    job.write_text("""if True:
        import time, torch
        from torch.utils.data import DataLoader, TensorDataset
        class Slow(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                time.sleep(0.010)
                return x.clone()
            @staticmethod
            def backward(ctx, g):
                time.sleep(0.010)
                return g
        class Part(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = torch.nn.Linear(8, 8)
            def forward(self, x):
                return Slow.apply(self.inner(x))
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), Part(), Part())
        opt = torch.optim.Adam(model.parameters())
        for x, in DataLoader(TensorDataset(torch.randn(680, 8)), batch_size=4):
            opt.zero_grad()
            model(x).sum().backward()
            assert all(p.grad is not None for p in model.parameters())
            opt.step()
        """)
    got = told(laggard("roofline", "--json", *SHORT, "--without", "1", "--without", "2", "--", torch_python, job))
    assert [p["part"] for p in got["roofline"]["parts"]] == ["1", "2"]
    for part in got["roofline"]["parts"]:
        near(part, 0.5)


@pytest.mark.parametrize("text, says", [
    ("import torch", "no training step was seen"),
    ("print(1)", "no training step was seen"),
    ("""import torch
m = torch.nn.Linear(2, 2)
o = torch.optim.SGD(m.parameters(), 0.1)
for _ in range(60):
    m(torch.ones(1, 2)).sum().backward()
    o.step()""", "60 steps, but no torch DataLoader was iterated over"),
    ("""import torch
m = torch.nn.Linear(2, 2)
o = torch.optim.SGD(m.parameters(), 0.1)
for x in torch.utils.data.DataLoader(torch.ones(40, 2)):
    m(x).sum().backward()
    o.step()""", "40 steps are too few: with --window 10 and --keep 8 about 86 are wanted"),
])
def test_what_it_needs_is_said(laggard, torch_python, tmp_path, text, says):
    (tmp_path / "job.py").write_text(text)
    done = laggard("roofline", *SHORT, "--", torch_python, tmp_path / "job.py")
    assert done.returncode == 1 and not done.stdout
    assert says in done.stderr, done.stderr


def test_a_job_that_fails_is_a_failure(laggard, torch_python, tmp_path):
    done = laggard("roofline", "--", torch_python, "-c", "raise SystemExit(7)")
    assert done.returncode == 1 and "the command ended with status 7" in done.stderr
    assert laggard("roofline", "--", tmp_path / "nothing").returncode == 1


@pytest.mark.parametrize("args, says", [
    ((), "no command given"), (("--window", "1", "--", "x"), "want a number, 2 to 100000"),
    (("--collectives", "on", "--", "x"), "off is all there is"), (("--for", "soon", "--", "x"), "want a duration"),
    (("--without", "", "--", "x"), "wants a module's path"),
])
def test_usage(laggard, args, says):
    done = laggard("roofline", *args)
    assert done.returncode == 2 and says in done.stderr


def test_a_job_without_end_is_ended(laggard, torch_python):
    done = laggard("roofline", "--json", *SHORT, "--for", "20s", "--", torch_python, JOB, "cnn", 0, 0, 10**7, "bare")
    assert told(done)["roofline"]["windows"] >= 3
