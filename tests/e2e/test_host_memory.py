# SPDX-License-Identifier: Apache-2.0
"""Memory of the host in recordings, live: what leaks, by how much a step and where, and who was killed for it; each
with a healthy twin. And what only a device could show, by a module that stands in for torch.cuda."""
import json
import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import time

import pytest

sys.path.insert(0, os.path.dirname(__file__))
import mark_ring  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS = 12
MIB = 1 << 20

# What is kept is 2 MiB a step, or a loss with its graph; of healthy twins as much is made, and given up. How much the
# process grew by from a third of the time on, by its own reading, is the truth.
TRAIN = """
import sys, time
import torch
what, seconds, path = sys.argv[1], float(sys.argv[2]), sys.argv[3]
torch.set_num_threads(1)
kept = []

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(8, 1024), torch.nn.Linear(1024, 1)
        self.cache = {}

    def forward(self, x, step):
        if what == "cache":
            self.cache[step] = torch.ones(512 * 1024)
        elif what == "healthy":
            self.cache[step % 16] = torch.ones(512 * 1024)
        return self.last(torch.tanh(self.first(x)))

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(512 if what.startswith("graph") else 16, 8)
begin, steps, first = time.monotonic(), 0, None
while time.monotonic() < begin + seconds or steps < 250:
    loss = model(x, steps).square().mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=what.startswith("graph"))
    optimizer.step()
    if what == "graph":
        kept.append(loss)
    elif what == "graph_healthy":
        kept.append(loss.item())
    steps += 1
    if first is None and time.monotonic() > begin + seconds / 3 and steps > 80:
        first = steps, resident()
    time.sleep(0.015)
open(path, "w").write("%d" % ((resident() - first[1]) / (steps - first[0])))
"""

# The dataset is a list of Python objects, made before the fork: a look at one writes its reference count.
LOADER = """
import random, sys, time
import torch
from torch.utils.data import DataLoader, Dataset
what, seconds, path = sys.argv[1], float(sys.argv[2]), sys.argv[3]
torch.set_num_threads(1)
N = 6_000_000

class Items(Dataset):
    def __init__(self):
        self.items = torch.arange(N) if what == "arrays" else [float(i) for i in range(N)]

    def __len__(self):
        return 1 << 30

    def __getitem__(self, i):
        at = i * 2000 % N
        return float(sum(self.items[at:at + 2000]))

loader = DataLoader(Items(), batch_size=4, num_workers=2)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
end, steps = time.monotonic() + seconds, 0
for batch in loader:
    loss = model(batch.float().view(1, 4)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
    time.sleep(0.02)
    if time.monotonic() > end and steps >= 250:
        break
open(path, "w").write("%d" % steps)
"""


@pytest.fixture
def recorded(laggard, torch_python, can_record, tmp_path):
    """recorded(PROGRAM, "cache") -> findings mem.*, and the path of the recording."""
    def run(program, what, *options, seconds=SECONDS, wrap=()):
        lag, script = tmp_path / f"{what}.lag", tmp_path / "train.py"
        script.write_text(program)
        done = laggard("record", *options, "-o", lag, "--", *wrap, torch_python, script, what, seconds,
                       tmp_path / "truth", timeout=seconds * 10 + 120)
        if not wrap:
            assert done.returncode == 0, done.stderr
        verdict = json.loads(laggard("explain", lag, "--json").stdout)
        return [f for f in verdict["findings"] if f["id"].startswith("mem.")], lag
    run.truth = lambda: int((tmp_path / "truth").read_text())
    return run


def a_step(finding):
    """Bytes a step, of the title."""
    number, unit = re.search(r"([0-9.]+) (bytes|KiB|MiB|GiB) a step", finding["title"]).groups()
    return float(number) * {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[unit]


def near(a, b):
    return abs(a - b) <= 0.1 * b


@pytest.mark.live
def test_a_cache_that_grows_is_told_by_step_and_by_name(recorded, laggard):
    found, lag = recorded(TRAIN, "cache", "--memory")
    assert [f["id"] for f in found] == ["mem.leak"], found
    (leak,) = found
    assert near(a_step(leak), 2 * MIB) and near(a_step(leak), recorded.truth()), leak["title"]
    assert "kept in dict Net.cache" in leak["title"] and leak["culprit"]["function"] == "dict Net.cache", leak
    assert any("forward (train.py:" in e["text"] for e in leak["evidence"]), leak
    told = json.loads(laggard("memory", "--json", lag).stdout)
    assert any(s["name"].endswith("process.anon") for s in told["memory_series"])
    assert [f["id"] for f in told["findings"] if f["id"].startswith("mem.")] == ["mem.leak"]
    assert "process.anon" in laggard("memory", lag).stdout


@pytest.mark.live
def test_without_the_option_the_process_is_told_and_that_more_is_not_known(recorded):
    (leak,), _ = recorded(TRAIN, "cache")
    assert near(a_step(leak), recorded.truth()), leak["title"]
    assert "kept in" not in leak["title"] and not leak["culprit"]["function"]
    assert any("--memory" in e["text"] for e in leak["against"])


@pytest.mark.live
def test_losses_that_keep_their_graphs(recorded):
    (leak,), _ = recorded(TRAIN, "graph", "--memory")
    # tanh keeps its result of 512 x 1024 floats: 2 MiB. What malloc loses beside it is in the truth.
    assert near(a_step(leak), recorded.truth()), leak["title"]
    assert leak["detail"] == "host_graph", leak
    assert "kept in list kept of __main__, whose items keep their graphs" in leak["title"], leak


@pytest.mark.live
@pytest.mark.parametrize("what", ("healthy", "graph_healthy"))
def test_healthy_twins_of_these_are_told_nothing(recorded, what):
    assert recorded(TRAIN, what, "--memory")[0] == []


@pytest.mark.live
def test_workers_that_copy_on_write(recorded):
    found, _ = recorded(LOADER, "list", "--memory")
    assert [f["detail"] for f in found] == ["copy_on_write"], found
    # A float takes 24 bytes, in steps of 16, a step 4 items of 2000: what two workers copy together.
    assert "2 loader workers" in found[0]["title"] and near(a_step(found[0]), 4 * 2000 * 32), found[0]["title"]
    assert "in Items.__getitem__ (train.py:" in found[0]["title"], found[0]


@pytest.mark.live
def test_workers_that_read_arrays_copy_nothing(recorded):
    assert recorded(LOADER, "arrays")[0] == []


@pytest.fixture
def cgroup():
    """A memory cgroup of 1200 MiB below our own; a skip with the reason where there is no such controller."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        base = {"memory": "/sys/fs/cgroup/memory", "": "/sys/fs/cgroup"}.get(controllers)
        if not base or (controllers == "" and "memory" not in
                        pathlib.Path(base + "/cgroup.controllers").read_text().split()
                        if os.path.exists(base + "/cgroup.controllers") else controllers == ""):
            continue
        group = pathlib.Path(base + path) / f"laggard-test-{os.getpid()}"
        limit = "memory.max" if controllers == "" else "memory.limit_in_bytes"
        try:
            group.mkdir()
            (group / limit).write_text(str(1200 * MIB))
        except OSError as e:
            pytest.skip(f"no memory cgroup can be made: {e}")
        yield group
        group.rmdir()
        return
    pytest.skip("no memory controller of cgroups")


@pytest.mark.live
def test_who_the_kernel_killed_for_its_cgroup(recorded, cgroup):
    into = ("sh", "-c", f'echo $$ > {cgroup}/cgroup.procs; exec "$@"', "sh")
    found, _ = recorded(TRAIN, "cache", "--memory", seconds=60, wrap=into)
    kinds = {f["id"]: f for f in found}
    assert kinds["mem.oom"]["detail"] == "cgroup" and kinds["mem.oom"]["severity"] == "high", found
    assert kinds["mem.oom"]["culprit"]["pid"] and "1.17 GiB" in kinds["mem.oom"]["title"]
    assert "mem.leak" in kinds


@pytest.mark.live
def test_a_cgroup_with_room_kills_nobody(recorded, cgroup):
    into = ("sh", "-c", f'echo $$ > {cgroup}/cgroup.procs; exec "$@"', "sh")
    assert recorded(TRAIN, "healthy", seconds=8, wrap=into)[0] == []


# ---- what only a device can show: a stand-in for torch.cuda, never run on CUDA itself ----------------------

STAND_IN = """
import os, sys, types
import torch
calls = []
state = {"n": 0}

def memory_stats(device):
    state["n"] += 1
    return {"allocated_bytes.all.current": 3 << 30, "allocated_bytes.all.peak": 4 << 30,
            "reserved_bytes.all.current": 6 << 30, "reserved_bytes.all.peak": 6 << 30,
            "inactive_split_bytes.all.current": 2 << 30, "inactive_split_bytes.all.peak": 2 << 30,
            "num_alloc_retries": state["n"], "num_ooms": 0, "other": 1}

def record(enabled="all", context="all", stacks="all", max_entries=1):
    calls.append(("history", enabled, context, stacks, max_entries))

def record_old(enabled, record_context=True, trace_alloc_max_entries=1, trace_alloc_record_context=False):
    calls.append(("history", enabled, trace_alloc_max_entries))

old = "old" in sys.argv
memory = types.SimpleNamespace(_record_memory_history=record_old if old else record,
                               _snapshot=lambda: {"segments": [], "device_traces": [[]]})
torch.cuda = types.SimpleNamespace(is_initialized=lambda: "late" not in sys.argv, current_device=lambda: 1,
                                   memory_stats=memory_stats, memory=memory, is_available=lambda: True,
                                   amp=torch.cuda.amp)
observers = []
torch._C._cuda_attach_out_of_memory_observer = observers.append
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(400):
    model(torch.zeros(2, 4)).sum().backward()
    optimizer.step()
    if step == 300 and observers:
        observers[0](1, 1 << 30, 1 << 30, 5)
    if step == 320:
        import laggard
        calls.append(("asked", laggard.memory_snapshot()))
print(calls, state["n"])
"""


def stand_in(tmp_path, torch_python, *words, memory=True):
    script, marks = tmp_path / "stand_in.py", tmp_path / "marks"
    script.write_text(textwrap.dedent(STAND_IN))
    marks.mkdir()
    env = {k: v for k, v in os.environ.items() if k not in ("LAGGARD_MEMORY", "RANK")}
    env.update(PYTHONPATH=str(ROOT / "src/hook"), LAGGARD_MARKS=str(marks), OMP_NUM_THREADS="1",
               PYTHONDONTWRITEBYTECODE="1", **({"LAGGARD_MEMORY": str(tmp_path / "run")} if memory else {}))
    done = subprocess.run([torch_python, script, *words], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and not done.stderr, done.stderr
    (ring,) = mark_ring.read_all(marks)
    return done.stdout, ring


def test_the_hook_tells_statistics_and_writes_snapshots(tmp_path, torch_python):
    said, ring = stand_in(tmp_path, torch_python)
    assert "('history', 'all', 'all', 'python', 100000)" in said
    told = ring.marks("memory reserved")
    assert told and all((m.seq, m.text) == (6 << 30, "1") for m in told)
    assert len(told) <= 40  # each tenth of 400 steps, or fewer
    assert [m.seq for m in ring.marks("memory retries")][:1] == [1]
    assert [m.seq for m in ring.marks("memory.oom")] == [1 << 30]
    written = sorted(tmp_path.glob("run-*.pickle"))
    assert ["oom" in w.name for w in written] == [False, True] or ["oom" in w.name for w in written] == [True, False]
    for path in written:
        assert path.stat().st_mode & 0o777 == 0o600
        assert pickle.loads(path.read_bytes())["segments"] == []


def test_the_hook_knows_the_history_of_before_torch_2_1(tmp_path, torch_python):
    assert "('history', True, 100000)" in stand_in(tmp_path, torch_python, "old")[0]


@pytest.mark.parametrize("words, memory", [((), False), (("late",), True)])
def test_the_hook_asks_nothing_unasked_or_before_there_is_a_device(tmp_path, torch_python, words, memory):
    said, ring = stand_in(tmp_path, torch_python, *words, memory=memory)
    assert said.startswith("[('asked', None)] 0" if not memory else "[('asked'")
    assert not ring.marks("memory reserved") and "history" not in said


def test_the_hook_writes_a_snapshot_that_the_trigger_asks_for(laggard_path, laggard, tmp_path, torch_python):
    script, ready = tmp_path / "stand_in.py", tmp_path / "ready"
    script.write_text(STAND_IN.replace("range(400)", "range(20000)").replace(
        "if step == 320:", f"open({str(ready)!r}, 'w').close() if step == 50 else None\n    time.sleep(0.002)\n    if False:"
    ).replace("import os, sys", "import os, time, sys"))
    recorder = subprocess.Popen([laggard_path, "record", "--memory", "--for", "60s", "-o", tmp_path / "run.lag", "--",
                                 torch_python, script], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    try:
        wait_for(ready.exists)
        done = laggard("trigger", recorder.pid)
        assert done.returncode == 0, done.stderr
        wait_for(lambda: list(tmp_path.glob("run-*-asked-*.pickle")))
    finally:
        recorder.send_signal(signal.SIGINT)
        for child in pathlib.Path(f"/proc/{recorder.pid}/task/{recorder.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGTERM)
        said = recorder.communicate(timeout=60)[1]
    assert "asked the job's processes for snapshots" in said, said


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)


# ---- what jobs print ------------------------------------------------------------------------------------

STATS = {"active_bytes.all.current": 1, "allocated_bytes.all.current": 2 << 30, "allocated_bytes.all.peak": 2 << 30,
         "reserved_bytes.all.current": 4 << 30, "reserved_bytes.all.peak": 4 << 30,
         "inactive_split_bytes.all.current": 2 << 30, "inactive_split_bytes.all.peak": 2 << 30,
         "num_alloc_retries": 3, "num_ooms": 1}
HEALTHY = {**STATS, "allocated_bytes.all.peak": (4 << 30) - 1, "num_alloc_retries": 0, "num_ooms": 0}


def summary(stats):
    row = "| {:<21} | {:>10} | {:>10} | {:>10} | {:>10} |".format
    kib = {k: "%d KiB" % (v >> 10) for k, v in stats.items()}
    rows = [("Allocated memory", "allocated"), ("GPU reserved memory", "reserved"), ("Non-releasable memory", "inactive_split")]
    return "\n".join(["|" + "=" * 75 + "|", "|                  PyTorch CUDA memory summary, device ID 3                 |",
                      "|" + "-" * 75 + "|",
                      "|            CUDA OOMs: {:<12} |        cudaMalloc retries: {:<8}  |".format(
                          stats["num_ooms"], stats["num_alloc_retries"]),
                      "|" + "=" * 75 + "|", row("Metric", "Cur Usage", "Peak Usage", "Tot Alloc", "Tot Freed")] +
                     [row(name, kib[f"{k}_bytes.all.current"], kib[f"{k}_bytes.all.peak"], "1 KiB", "0 B")
                      for name, k in rows]) + "\n"


FORMS = {"json": json.dumps, "pretty": lambda s: json.dumps(s, indent=2), "print": lambda s: repr(s) + "\n",
         "ordered": lambda s: f"2026-01-01 00:00:00 INFO OrderedDict({list(s.items())!r})\n", "summary": summary}


@pytest.mark.parametrize("form", FORMS)
def test_statistics_of_the_allocator_as_files_and_in_logs(laggard, tmp_path, form):
    path = tmp_path / "stats.txt"
    path.write_text(FORMS[form](STATS))
    told = json.loads(laggard("memory", "--json", path).stdout)
    series = {s["name"].split(": ")[1]: s["peak_bytes"] for s in told["memory_series"]}
    assert (series["memory allocated"], series["memory reserved peak"]) == (2 << 30, 4 << 30)
    assert {f["id"] for f in told["findings"]} == {"mem.oom", "mem.fragmentation", "gpu.allocator_sync"}, told["findings"]
    path.write_text(FORMS[form](HEALTHY))
    told = json.loads(laggard("explain", "--json", path).stdout)
    assert [f["id"] for f in told["findings"]] == []
