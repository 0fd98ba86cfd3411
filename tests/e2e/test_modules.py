# SPDX-License-Identifier: Apache-2.0
"""record --modules and explain --modules: a model whose parts take known times; the same from a profiler's trace."""
import json

import pytest
from live import Disturbed
from test_hook import Runner, marks_dir, runner, trainer, trixie  # noqa: F401

MODEL = """
import sys, time, torch
from torch.utils.data import DataLoader, TensorDataset
class Wait(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, f, b):
        ctx.b = b
        time.sleep(f)
        return x.clone()
    @staticmethod
    def backward(ctx, g):
        time.sleep(ctx.b)
        return g, None, None
class Attn(torch.nn.Module):
    def __init__(self, f, b):
        super().__init__()
        self.f, self.b = f, b
        self.q, self.out = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)
    def forward(self, x):
        return self.out(Wait.apply(torch.relu(self.q(x)), self.f, self.b))
class Layer(torch.nn.Module):
    def __init__(self, f, b):
        super().__init__()
        self.attn, self.norm = Attn(f, b), torch.nn.LayerNorm(16)
    def forward(self, x):
        return self.norm(x + self.attn(x))
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)
        self.layers = torch.nn.ModuleList([Layer(0.002, 0.004), Layer(0.010, 0.020)])
    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return Wait.apply(self.head(x), 0.003, 0.001)
torch.manual_seed(0)
torch.set_num_threads(1)
net = Net()
"""
TRAIN = MODEL + """
net.layers[0].attn.f += float(sys.argv[1])
opt = torch.optim.Adam(net.parameters())
for x, in DataLoader(TensorDataset(torch.randn(8 * int(sys.argv[2]), 8)), batch_size=8):
    opt.zero_grad()
    loss = net(x).sum()
    loss.backward()
    opt.step()
print(loss.item().hex())
"""
OWN = {"Net": (3, 1), "Net.layers.0.attn": (2, 4), "Net.layers.1.attn": (10, 20)}  # ms forward, backward


def modules_of(laggard, path):
    done = laggard("explain", "--modules", "--json", path)
    assert done.returncode == 0, done.stderr
    return {m["path"]: m for m in json.loads(done.stdout)["modules"]}


def recorded(laggard, python, tmp_path, name, *args):
    (tmp_path / "job.py").write_text(TRAIN)
    out = tmp_path / name
    done = laggard("record", "-q", "--modules", "--tier", "procfs", "-o", out, "--", python, tmp_path / "job.py", *args)
    assert done.returncode == 0, done.stderr
    return out, done.stdout


@pytest.mark.live
def test_each_module_has_its_own_time(laggard, torch_python, tmp_path):
    path, _ = recorded(laggard, torch_python, tmp_path, "run.lag", 0, 100)
    got = modules_of(laggard, path)
    for name, (forward, backward) in OWN.items():
        own = got[name]["self_ms"]
        assert own >= forward + backward, (name, own)
        if own > 1.4 * (forward + backward) + 1:
            raise Disturbed(f"{name} slept for {forward + backward} ms and took {own}")
    for name in ("Net.layers.0.norm", "Net.embed", "Net.layers.1.attn.q"):
        assert 0 < got[name]["self_ms"] < 3, got[name]
    layer, attn, net = (got[n] for n in ("Net.layers.1", "Net.layers.1.attn", "Net"))
    assert layer["forward_ms"] >= attn["forward_ms"] >= 10 and layer["backward_ms"] >= attn["backward_ms"] >= 20
    assert abs(sum(m["self_ms"] for m in got.values()) - net["forward_ms"] - net["backward_ms"]) < 0.01
    assert 0.8 < net["share"] <= 1.01 and all(m["calls"] == 1 and not m["compiled"] for m in got.values())
    shown = laggard("explain", "--modules", path).stdout
    assert shown.index("layers.1 ") < shown.index("layers.0 ") and "-v shows them" in shown and "embed" not in shown
    assert "embed" in laggard("explain", "--modules", "-v", path).stdout


@pytest.mark.live
def test_a_module_that_got_slower_is_named_by_its_path(laggard, torch_python, tmp_path):
    before, _ = recorded(laggard, torch_python, tmp_path, "before.lag", 0, 150)
    after, _ = recorded(laggard, torch_python, tmp_path, "after.lag", 0.008, 150)
    done = laggard("diff", before, after)
    lines = done.stdout.split("modules with what they call")
    if len(lines) == 1:
        raise Disturbed("no module's change is more than the noise")
    first = lines[1].splitlines()[1].split()
    assert first[-1] == "Net.layers.0.attn", lines[1]
    change = [x for x in json.loads(laggard("diff", "--json", before, after).stdout)["diff"]["items"]
              if x["kind"] == "module" and x["name"] == "Net.layers.0.attn"]
    assert 6 < change[0]["delta_ms"] < 14 and change[0]["sure"] and not change[0]["compiled_before"]


@pytest.mark.live
@pytest.mark.healthy
def test_equal_runs_differ_in_no_module(laggard, torch_python, tmp_path):
    before, _ = recorded(laggard, torch_python, tmp_path, "before.lag", 0, 150)
    after, _ = recorded(laggard, torch_python, tmp_path, "after.lag", 0, 150)
    found = [x for x in json.loads(laggard("diff", "--json", before, after).stdout)["diff"]["items"]
             if x["kind"] == "module"]
    assert found
    for x in found:
        if x["sure"] and abs(x["delta_ms"]) > 1:
            raise Disturbed(f"the machine differs: {x}")


def test_the_program_is_as_it_was(laggard, torch_python, runner):  # noqa: F811
    program = runner.program(TRAIN)
    plain = runner.run(program, 0, 12, hook=False)
    assert runner.run(program, 0, 12, extra={"LAGGARD_MODULES": "1"}) == plain and plain[0] == 0
    ring = trainer(runner.rings())
    assert not [s for s in ring.slots_read if s.what == "off"]
    assert ring.marks("module.backward")


COMPILED = MODEL + """
import torch._dynamo
net.layers[1] = torch.compile(net.layers[1], backend="eager")
mixed = torch.compile(net.layers[0].attn, backend="eager")
net.layers[0].attn = mixed
opt = torch.optim.Adam(net.parameters())
for x, in DataLoader(TensorDataset(torch.randn(8 * 12, 8)), batch_size=8):
    opt.zero_grad()
    net(x).sum().backward()
    opt.step()
c = torch._dynamo.utils.counters
print({k: dict(v) for k, v in c.items() if k in ("frames", "stats", "graph_break")})
"""


def test_compiled_modules_stay_compiled_and_are_told(trixie):  # noqa: F811
    program = trixie.program(COMPILED.replace("time.sleep(f)", "pass").replace("time.sleep(ctx.b)", "pass"))
    plain = trixie.run(program, hook=False)
    with_modules = trixie.run(program, extra={"LAGGARD_MODULES": "1"})
    assert with_modules == plain and plain[0] == 0, (plain, with_modules)
    ring = trainer(trixie.rings())
    last = {s.text: s.seq for s in ring.marks("module.compiled")}
    assert last.get("Net.layers.1") == 1 and last.get("Net.layers.0.attn") == 1, last
    # What is within a compiled module is not called in Python.
    assert "Net.layers.1.attn" not in {s.text for s in ring.marks("module.forward")}


def kineto(slow=0, compiled=True):
    """Steps of a profiler with Python stacks; slow: µs that Attn_1 takes longer, its region gone."""
    events, at = [], 0

    def row(cat, name, ts, dur, **args):
        events.append({"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": 7, "ts": at + ts, "dur": dur, "args": args})

    for step in range(12):
        jitter = 10 * (step % 3)
        row("user_annotation", f"ProfilerStep#{step}", 0, 20000 + slow)
        row("python_function", "nn.Module: Net_0", 1000, 8000 + slow)
        row("python_function", "nn.Module: Attn_0", 1500, 2000 + jitter)
        row("cpu_op", "aten::linear", 1600, 500, **{"Sequence number": 10 * step})
        row("python_function", "nn.Module: Attn_1", 4000, 4000 + slow + jitter)
        if compiled:
            row("cpu_op", "Torch-Compiled Region: 0/0", 4100, 3000)
        row("cpu_op", "aten::linear", 4200, 500, **{"Sequence number": 10 * step + 1})
        row("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 12000 + slow, 3000 + jitter,
            **{"Sequence number": 10 * step + 1, "Fwd thread id": 1})
        at += 20000 + slow
    return json.dumps({"schemaVersion": 1, "traceEvents": events})


def test_modules_of_a_profilers_trace(laggard, tmp_path):
    for name, text in (("before.json", kineto()), ("after.json", kineto(4100, False)), ("same.json", kineto())):
        (tmp_path / name).write_text(text)
    got = modules_of(laggard, tmp_path / "before.json")
    attn = got["Net_0.Attn_1"]
    assert attn["compiled"] and not got["Net_0.Attn_0"]["compiled"]
    assert attn["forward_ms"] == pytest.approx(4.01, abs=0.02) and attn["backward_ms"] == pytest.approx(3.01, abs=0.02)
    assert got["Net_0"]["self_ms"] == pytest.approx(2, abs=0.05)
    text = laggard("diff", tmp_path / "before.json", tmp_path / "after.json").stdout
    assert "module Net_0.Attn_1\n      its compiled region is gone" in text
    assert "4.100   module Net_0.Attn_1" in text
    assert "modules with" not in laggard("diff", tmp_path / "before.json", tmp_path / "same.json").stdout


def test_what_tells_of_no_module_says_so(laggard, tmp_path):
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{i}", "pid": 1, "tid": 1, "ts": i * 9000, "dur": 9000}
        for i in range(20)]}))
    done = laggard("explain", "--modules", tmp_path / "t.json")
    assert done.returncode == 0 and done.stdout.startswith("No module is told of: record with laggard record --modules")


@pytest.mark.parametrize("args", [("record", "--modules", "-p", "1"), ("record", "--modules", "--no-hook", "--", "true"),
                                  ("explain", "--modules", "--brief", "x")])
def test_usage(laggard, args):
    assert laggard(*args).returncode == 2
