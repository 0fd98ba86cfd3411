# SPDX-License-Identifier: Apache-2.0
"""The Python hook: what it marks, and that the program never notices.

Runs src/hook/ straight from the source tree, without a recorder, and decodes the rings with
mark_ring.py. LG_TRIXIE names a Debian trixie root with python3-torch 2.x for the compile tests.
"""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap

import pytest

sys.path.insert(0, os.path.dirname(__file__))
import mark_ring  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOOK = ROOT / "src/hook"
PYTHON = "/usr/bin/python3"
TRIXIE = os.environ.get("LG_TRIXIE") or str(ROOT / "build/trixie")

TRAIN = """
    import io, sys, torch
    import torch.utils.data as data
    torch.manual_seed(0)
    def main(workers):
        loader = data.DataLoader(data.TensorDataset(torch.randn(48, 16), torch.randn(48, 4)),
                                 batch_size=8, num_workers=workers)
        model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(),
                                    torch.nn.Linear(32, 4))
        optimizer = torch.optim.Adam(model.parameters())
        for epoch in range(2):
            for x, y in loader:
                loss = torch.nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        out = io.BytesIO()
        torch.save(model.state_dict(), out)
        print(loss.item().hex(), len(out.getvalue()))
        print([p.double().sum().item().hex() for p in model.parameters()])
    if __name__ == "__main__":
        main(int(sys.argv[1]))
"""


class Runner:
    """Runs a program with and without the hook and keeps what it left."""

    def __init__(self, tmp, shm, python=(PYTHON,), prefix="", inside=None):
        self.tmp, self.marks, self.python, self.prefix = tmp, shm, list(python), prefix
        self.inside = inside or (lambda p: str(p))

    def program(self, text, name="program.py"):
        path = self.tmp / name
        path.write_text(textwrap.dedent(text))
        return path

    def env(self, hook, extra=None):
        env = {k: v for k, v in os.environ.items()
               if k not in ("PYTHONPATH", "LAGGARD_MARKS", "RANK", "WORLD_SIZE", "LOCAL_RANK")}
        env.update(OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1", PYTHONHASHSEED="0")
        if hook:
            env.update(PYTHONPATH=self.inside(HOOK if not self.prefix else self.tmp / "hook"),
                       LAGGARD_MARKS=self.inside(self.marks))
        env.update(extra or {})
        return env

    def start(self, path, *args, hook=True, flags=(), extra=None):
        return subprocess.Popen([*self.python, *flags, self.inside(path), *map(str, args)],
                                env=self.env(hook, extra), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                cwd=self.tmp)

    def run(self, path, *args, **more):
        p = self.start(path, *args, **more)
        out, err = p.communicate(timeout=300)
        return p.returncode, out, err

    def rings(self):
        return mark_ring.read_all(self.marks)


@pytest.fixture
def marks_dir():
    d = tempfile.mkdtemp(prefix="laggard-test-", dir="/dev/shm")
    yield pathlib.Path(d)
    shutil.rmtree(d)


@pytest.fixture
def runner(tmp_path, marks_dir, torch_python):
    return Runner(tmp_path, marks_dir, (torch_python,))


@pytest.fixture
def trixie(request):
    """torch 2.x in a chroot; everything it needs is copied below its /tmp."""
    if not (pathlib.Path(TRIXIE) / "usr/bin/python3").exists():
        pytest.skip("needs torch 2 in a Debian 13 root (LG_TRIXIE or build/trixie): run sudo tools/make-trixie")
    if os.geteuid() != 0:
        pytest.skip("chroot needs root")
    root = pathlib.Path(TRIXIE)
    tmp = pathlib.Path(tempfile.mkdtemp(prefix="laggard-test-", dir=root / "tmp"))
    shutil.copytree(HOOK, tmp / "hook", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp / "marks").mkdir()
    # torch reads /proc: mounted in a namespace that ends with the command
    enter = f"mount --rbind /proc {root}/proc && mount --rbind /dev {root}/dev && exec chroot {root} \"$@\""
    yield Runner(tmp, tmp / "marks",
                 ("unshare", "--mount", "--propagation", "private", "sh", "-c", enter, "sh", "/usr/bin/python3"),
                 prefix=str(root),
                 inside=lambda p: "/" + str(pathlib.Path(p).relative_to(root)))
    shutil.rmtree(tmp)


def trainer(rings):
    found = [r for r in rings if r.role == 1]
    assert len(found) == 1, [(r.pid, r.role) for r in rings]
    return found[0]


def nests(ring):
    """Spans of one thread are properly nested."""
    open_ = {}
    for begin, end in ring.spans():
        stack = open_.setdefault(begin.tid, [])
        while stack and stack[-1] <= begin.ts:
            stack.pop()
        assert not stack or end <= stack[-1], begin
        stack.append(end)


def test_results_output_and_status_are_those_without_the_hook(runner):
    program = runner.program(TRAIN)
    for workers in (0, 2):
        plain = runner.run(program, workers, hook=False)
        assert plain[0] == 0
        assert runner.run(program, workers) == plain


def test_stages_come_in_order_and_nest(runner):
    assert runner.run(runner.program(TRAIN), 0)[0] == 0
    ring = trainer(runner.rings())
    stages = ring.stages()
    one = [("batch_wait", "DataLoader.__next__"), ("forward", "Sequential"),
           ("backward", "backward"), ("optimizer", "Adam.step")]
    epoch = [("batch_wait", "DataLoader.__iter__")] + one * 6 + one[:1]
    assert stages == epoch * 2 + [("side", "torch.save")]
    assert [s.seq for s in ring.steps()] == list(range(1, 13))
    ends = [end for begin, end in ring.spans() if begin.stage == "optimizer"]
    begins = [b.ts for b, _ in ring.spans() if b.kind == "stage"]
    for s, end in zip(ring.steps(), ends):
        assert end <= s.ts and not any(end < t < s.ts for t in begins), "a step ends with its optimizer"
    nests(ring)
    assert not ring.unfinished and ring.flags == 2, "closed cleanly"
    assert ring.rank == -1 and ring.pid == ring.slots_read[0].tid
    meta = ring.meta()
    assert meta["optimizer.class"] == "torch.optim.adam.Adam"
    assert meta["torch.num_threads"] == "1" and meta["env.OMP_NUM_THREADS"] == "1"
    assert meta["loader.num_workers"] == "0" and meta["torch.version"][0] in "12"
    assert meta["torch.matmul_precision"] == "highest" and meta["cudnn.allow_tf32"] == "1"
    assert meta["model.0.tensors"] == "4" and meta["model.0.device"] == "cpu"


def test_loader_workers_have_rings_of_their_own(runner):
    program = runner.program(TRAIN)
    assert runner.run(program, 2, extra={"RANK": "3", "WORLD_SIZE": "8"})[0] == 0
    rings = runner.rings()
    main = trainer(rings)
    assert (main.rank, main.world) == (3, 8)
    workers = [r for r in rings if r is not main]
    assert len(workers) == 4, "two workers, made anew for each epoch"
    for w in workers:
        assert w.role == 2 and w.rank == -1 and w.pid != main.pid
        assert {s.tid for s in w.slots_read if s.kind != "gc"} == {w.pid}  # a feeder thread may collect garbage
        assert [b.name for b, _ in w.spans() if b.kind != "gc"] == ["fetch"] * 3
    assert {s.tid for s in main.slots_read if s.kind != "gc"} == {main.pid}
    assert len(main.marks("loader.spawn")) == 2


def test_spawned_workers_are_no_ranks(runner):
    program = runner.program(TRAIN.replace("num_workers=workers)",
                                           "num_workers=workers, multiprocessing_context='spawn')"))
    plain = runner.run(program, 1, hook=False)
    assert runner.run(program, 1, extra={"RANK": "0"}) == plain and plain[0] == 0
    rings = runner.rings()
    assert sorted(r.role for r in rings) == [1, 2, 2]
    assert all(r.rank == -1 for r in rings if r.role == 2)


def test_a_forked_child_leaves_its_parents_ring_alone(runner):
    program = runner.program("""
        import os, torch
        m = torch.nn.Linear(2, 2)
        def work(n):
            for _ in range(n):
                m(torch.randn(1, 2))  # no backward: torch 2 has none in a child of a process that had one
        work(2)
        pid = os.fork()
        work(5 if pid == 0 else 3)
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    """)
    assert runner.run(program)[0] == 0
    counts = {}
    for r in runner.rings():
        assert {s.tid for s in r.slots_read} == {r.pid}
        counts[sum(1 for b, _ in r.spans() if b.stage == "forward")] = r
    assert sorted(counts) == [5, 5] or set(counts) == {5}
    assert len(runner.rings()) == 2


DDP = """
    import os, sys, torch, torch.distributed as dist
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(7)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    other = dist.new_group([0, 1])
    for step in range(4):
        x = torch.full((2, 8), float(rank + step))
        if step == 2:
            with model.no_sync():
                model(x).sum().backward()
        model(x).sum().backward()
        t = torch.ones(16) * rank
        dist.all_reduce(t)
        work = dist.all_reduce(t, group=other, async_op=True)
        work.wait()
        optimizer.step()
        optimizer.zero_grad()
    if rank == 0:
        dist.send(torch.ones(3), dst=1)
    else:
        dist.recv(torch.zeros(3), src=0)
    objects = [None, None]
    dist.all_gather_object(objects, rank)
    dist.barrier()
    print(rank, objects, t.tolist()[0], [p.double().sum().item().hex() for p in model.parameters()])
    sys.exit(3 + rank)
"""


def run_ranks(runner, program, n=2, hook=True, extra=None):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    ps = [runner.start(program, hook=hook, extra={
        "RANK": str(r), "WORLD_SIZE": str(n), "LOCAL_RANK": str(r), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo", "USE_LIBUV": "0", **(extra or {})}) for r in range(n)]
    out = []
    for p in ps:
        o, e = p.communicate(timeout=300)
        out.append((p.returncode, o, e))
    return out


def check_ddp(runner):
    program = runner.program(DDP)
    plain = run_ranks(runner, program, hook=False)
    assert [p[0] for p in plain] == [3, 4], plain
    assert run_ranks(runner, program) == plain
    rings = sorted(runner.rings(), key=lambda r: r.rank)
    assert [(r.rank, r.world, r.local_rank, r.role) for r in rings] == [(0, 2, 0, 1), (1, 2, 1, 1)]
    seen = []
    for r in rings:
        nests(r)
        seen.append([(b.name, b.text, b.seq, b.bytes, b.flags) for b, _ in r.spans()
                     if b.kind == "collective" and ":p2p:" not in b.text])
    assert seen[0] == seen[1]
    by_group = {}
    for name, group, seq, nbytes, flags in seen[0]:
        by_group.setdefault(group, []).append((seq, name, nbytes, flags))
    default = by_group.pop("default")
    assert [s for s, *_ in default] == list(range(len(default)))
    assert [n for _, n, *_ in default] == ["all_reduce"] * 4 + ["all_gather_object", "barrier"]
    ddp = by_group.pop("ddp:0")
    assert ddp == [(i, "ddp.all_reduce", (8 * 4 + 4) * 4, mark_ring.IMPLICIT) for i in range(4)], \
        "no_sync() does not count"
    (group, rest), = by_group.items()
    assert group.startswith("pg:")
    assert rest == [(i, "all_reduce", 64, mark_ring.ASYNC) for i in range(4)]
    for r, name in zip(rings, ("send", "recv")):
        p2p, = [b for b, _ in r.spans() if ":p2p:" in b.text]
        assert (p2p.name, p2p.text, p2p.seq, p2p.bytes) == (name, "default:p2p:0>1", 0, 12)
        waits = [b for b, _ in r.spans() if b.kind == "wait"]
        assert [(w.name, w.text, w.seq) for w in waits] == [("Work.wait", group, i) for i in range(4)]
        assert r.meta()["group.default.ranks"] == "0,1"
        assert r.meta()["ddp.0.bucket_cap_mb"] == "25"
        assert len(r.steps()) == 4
        backward = [(b.ts, e) for b, e in r.spans() if b.stage == "backward"]
        for b, e in r.spans():
            if b.flags & mark_ring.IMPLICIT:
                assert any(s <= b.ts and e <= t for s, t in backward)


def test_collectives_are_numbered_alike_on_every_rank(runner):
    check_ddp(runner)


def test_collectives_with_torch_2(trixie):
    check_ddp(trixie)


def test_dispatch_mode_is_named_with_the_place_that_entered_it(runner):
    program = runner.program("""
        import torch
        from torch.utils._python_dispatch import TorchDispatchMode
        class Counting(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                return func(*args, **(kwargs or {}))
        model = torch.nn.Linear(2, 2)
        with Counting():
            model(torch.randn(1, 2))
        for _ in range(3):
            model(torch.randn(1, 2))
    """)
    assert runner.run(program)[0] == 0
    mark, = runner.rings()[0].marks("dispatch_mode")
    assert mark.text.startswith("__main__.Counting ") and mark.text.endswith("program.py:8")


def test_inference_steps_begin_with_the_root_forward(runner):
    program = runner.program("""
        import torch
        model, loss = torch.nn.Linear(2, 2), torch.nn.MSELoss()
        for _ in range(4):
            with torch.no_grad():
                loss(model(torch.randn(1, 2)), torch.zeros(1, 2))
    """)
    assert runner.run(program)[0] == 0
    ring, = runner.rings()
    assert [(s.seq, s.flags) for s in ring.steps()] == [(n, mark_ring.START) for n in range(1, 5)]


def test_scaler_closures_and_copies(runner):
    program = runner.program("""
        import torch
        model = torch.nn.Linear(2, 2)
        adam = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.cuda.amp.GradScaler(enabled=False)
        for _ in range(3):
            scaler.scale(model(torch.randn(1, 2)).sum()).backward()
            scaler.unscale_(adam)
            scaler.step(adam)
            scaler.update()
        lbfgs = torch.optim.LBFGS(model.parameters(), max_iter=2)
        def closure():
            lbfgs.zero_grad()
            loss = model(torch.randn(1, 2)).sum()
            loss.backward()
            return loss
        lbfgs.step(closure)
        torch.randn(4, 4).to("meta")
        torch.randn(4).to(torch.float64)
    """)
    assert runner.run(program, extra={"LAGGARD_COPIES": "1"})[0] == 0
    ring = trainer(runner.rings())
    nests(ring)
    names = [b.name for b, _ in ring.spans() if b.stage == "optimizer"]
    assert names == ["GradScaler.unscale_", "GradScaler.step", "GradScaler.update"] * 3 + ["LBFGS.step"]
    assert len(ring.steps()) == 3, "the first optimizer counts"
    copy, = [b for b, _ in ring.spans() if b.kind == "copy"]
    assert (copy.name, copy.stage, copy.bytes) == ("Tensor.to", "h2d", 64)


SETTINGS = """
    import io, sys, torch
    wrong = sys.argv[1] == "wrong"
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(2 * 36, 4))
    half = torch.nn.Linear(4, 4).bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(30):
        x = torch.randn(2 + (step % 10 == 0 if wrong else 0), 1, 8, 8)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(x).float().sum()
            if wrong:
                loss.backward()
        if not wrong:
            loss.backward()
        optimizer.step()
        half(torch.ones(1, 4, dtype=torch.bfloat16)).sum().backward()
    torch.save(model.state_dict(), sys.argv[2])
    with open(sys.argv[2] + ".open", "wb") as f:
        f.write(b"head")
        torch.save(torch.zeros(1000), f)
    torch.save(torch.zeros(1000), io.BytesIO())
"""


def test_a_trace_function_is_told(runner):
    program = runner.program("""
        import sys, torch
        model = torch.nn.Linear(2, 2)
        if sys.argv[1] == "on":
            sys.settrace(lambda *a: None)
        for _ in range(12):
            model(torch.randn(1, 2))
    """)
    for how in ("on", "off"):
        shutil.rmtree(runner.marks)
        runner.marks.mkdir()
        assert runner.run(program, how)[0] == 0
        ring, = runner.rings()
        assert ring.meta()["debug.trace_function"] == str(int(how == "on"))


def test_settings_are_told(runner, tmp_path):
    program = runner.program(SETTINGS)
    for how in ("right", "wrong"):
        shutil.rmtree(runner.marks)
        runner.marks.mkdir()
        out = tmp_path / "state.pt"
        status, _, err = runner.run(program, how, out)
        assert status == 0 and not err, err
        ring = trainer(runner.rings())
        meta = ring.meta()
        assert meta["torch.autocast"] == "0" and meta["torch.autocast_cpu"] in ("0", "1")
        backward = [s.text for s in ring.slots_read if s.what == "meta" and s.name == "torch.autocast_backward"]
        assert ("1" in backward) == (how == "wrong")
        assert meta["model.0.parameters"] == "float32=312" and meta["model.0.convolutions"] == "1"
        assert meta["model.0.device"] == "cpu"
        assert meta["model.1.parameters"] == "bfloat16=20" and meta["model.1.convolutions"] == "0"
        assert meta["input.shapes"] == ("2" if how == "wrong" else "1")
        # Files have bytes; what goes into memory takes no storage.
        sizes = [m.seq for m in ring.marks("side.saved")]
        assert sizes == [out.stat().st_size, (tmp_path / "state.pt.open").stat().st_size - 4]
        assert len([s for s in ring.stages() if s[0] == "side"]) == 3


def test_marks_by_hand_replace_the_automatic_ones(runner):
    program = runner.program("""
        import laggard, torch
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for i in range(3):
            with laggard.stage("forward"):
                out = model(torch.randn(1, 2))
            with laggard.stage("my part"):
                out.sum().backward()
            optimizer.step()
            laggard.mark("loss", i, "text")
            laggard.step()
    """)
    assert runner.run(program, hook=False, extra={"PYTHONPATH": str(HOOK)}) == (0, "", "")
    assert runner.rings() == []
    assert runner.run(program) == (0, "", "")
    ring = trainer(runner.rings())
    by_hand = mark_ring.HAND
    assert [(s.seq, s.flags) for s in ring.steps()] == [(1, 0), (1, by_hand), (2, by_hand), (3, by_hand)], \
        "the first optimizer step came before the program was known to mark its own"
    forward = [b for b, _ in ring.spans() if b.stage == "forward"]
    assert len(forward) == 3 and all(b.flags == mark_ring.HAND for b in forward)
    assert [b.name for b, _ in ring.spans() if b.kind == "other"] == ["my part"] * 3
    assert [(m.seq, m.text) for m in ring.marks("loss")] == [(0, "text"), (1, "text"), (2, "text")]


def test_nothing_happens_without_torch(runner):
    program = runner.program("import sys; print('torch' in sys.modules, 'laggard._ring' in sys.modules)")
    assert runner.run(program) == (0, "False False\n", "")
    assert runner.rings() == [] and (runner.marks / "reached").exists()
    (runner.marks / "reached").unlink()
    assert runner.run(program, flags=["-I"]) == (0, "False False\n", "")
    assert not (runner.marks / "reached").exists()


def test_virtual_environments_are_reached(runner, tmp_path):
    if subprocess.run([PYTHON, "-m", "venv", "--without-pip", "--system-site-packages",
                       str(tmp_path / "venv")], check=False, capture_output=True).returncode:
        pytest.skip("python3-venv is missing")
    runner.python = [str(tmp_path / "venv/bin/python3")]
    program = runner.program("import torch; torch.nn.Linear(2, 2)(torch.randn(1, 2)).sum().backward()")
    assert runner.run(program) == (0, "", "")
    assert trainer(runner.rings()).meta()["python.executable"].startswith(str(tmp_path))


def test_other_sitecustomize_still_runs(runner, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text("import builtins; builtins.chained = 1\n")
    program = runner.program("import sitecustomize; print(chained, sitecustomize.__file__)")
    got = runner.run(program, extra={"PYTHONPATH": f"{HOOK}:{tmp_path}/site"})
    assert got == (0, f"1 {tmp_path}/site/sitecustomize.py\n", "")
    # one recording inside another: two of ours, and the user's own behind them
    shutil.copytree(HOOK, tmp_path / "outer", ignore=shutil.ignore_patterns("__pycache__"))
    nested = runner.run(program, extra={"PYTHONPATH": f"{HOOK}:{tmp_path}/outer:{tmp_path}/site"})
    assert nested == got
    plain = runner.run(runner.program("import sys; print('sitecustomize' in sys.modules)"), hook=False)
    assert runner.run(tmp_path / "program.py") == plain


@pytest.mark.parametrize("fault, says", [
    ("full", "no mark ring"), ("missing", "no mark ring"), ("broken", "ZeroDivisionError")])
def test_a_failing_hook_disables_itself_with_one_line(runner, tmp_path, fault, says):
    text = textwrap.dedent(TRAIN)
    extra = {}
    if fault == "full":
        text = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))\n" + text
    elif fault == "missing":
        extra["LAGGARD_MARKS"] = str(tmp_path / "nowhere")
    else:
        text = ("import torch, laggard._ring as r\n"
                "def broken(*a): 1 / 0\n"
                "r._pack = broken\n") + text
    program = tmp_path / "program.py"
    program.write_text(text)
    plain = runner.run(runner.program(TRAIN, "plain.py"), 0, hook=False)
    rc, out, err = runner.run(program, 0, extra=extra)
    assert (rc, out) == plain[:2]
    lines = [line for line in err.splitlines() if line not in plain[2].splitlines()]
    assert len(lines) == 1 and lines[0].startswith("laggard: hook disabled: ") and says in lines[0]


def test_exceptions_and_interrupts_pass_through(runner):
    program = runner.program("""
        import torch
        class Bad(torch.nn.Module):
            def forward(self, x):
                raise ValueError("from the program")
        try:
            Bad()(1)
        except ValueError as e:
            print(e)
        torch.nn.Linear(2, 2)(torch.randn(1, 2)).sum().backward()
        raise SystemExit(7)
    """)
    assert runner.run(program) == (7, "from the program\n", "")
    ring, = runner.rings()
    assert not ring.unfinished
    assert [b.stage for b, _ in ring.spans() if b.kind == "stage"] == ["forward", "forward", "backward"]


def test_a_killed_process_leaves_a_readable_ring(runner):
    program = runner.program("""
        import time, torch
        class Slow(torch.nn.Module):
            def forward(self, x):
                print("in", flush=True)
                time.sleep(60)
        torch.nn.Linear(2, 2)(torch.randn(1, 2)).sum().backward()
        Slow()(1)
    """)
    p = runner.start(program)
    assert p.stdout.readline() == "in\n"
    p.send_signal(signal.SIGKILL)
    p.communicate()
    ring = trainer(runner.rings())
    last, = ring.unfinished
    assert (last.stage, last.name) == ("forward", "Slow") and ring.flags == 0


COMPILE = """
    import json, sys, torch
    import torch._dynamo as dynamo
    from torch.utils.flop_counter import FlopCounterMode
    torch.manual_seed(0)
    torch.set_num_threads(1)
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        def forward(self, x):
            x = torch.relu(self.a(x))
            if x.sum() > 0:          # a graph break
                x = x * 2
            return self.b(x)
    out = []
    def train(model, optimizer, n, size):
        for i in range(n):
            x = torch.randn(size(i), 8)
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            out.append(loss.item().hex())
    def fresh():
        dynamo.reset()
        torch.manual_seed(1)
        m = Block()
        return m, torch.optim.Adam(m.parameters())
    backend = sys.argv[1]
    m, o = fresh()
    train(torch.compile(m, backend=backend), o, 4, lambda i: 4)          # wrapped module
    m, o = fresh()
    train(torch.compile(m, backend=backend), o, 6, lambda i: 2 + i)      # recompiles: shapes
    m, o = fresh()
    m.compile(backend=backend)                                           # in place
    train(m, o, 3, lambda i: 4)
    m, o = fresh()
    @torch.compile(backend=backend)
    def whole(x):                                                        # backward inside
        loss = m(x).square().mean()
        loss.backward()
        o.step()
        o.zero_grad()
        return loss
    for i in range(3):
        out.append(whole(torch.randn(4, 8)).item().hex())
    m, o = fresh()
    step = torch.compile(o.step, backend=backend)                        # compiled optimizer
    for i in range(3):
        m(torch.randn(4, 8)).sum().backward()
        step()
    out.append([p.double().sum().item().hex() for p in m.parameters()])
    m, o = fresh()
    c = torch.compile(m, backend=backend)
    with FlopCounterMode(display=False):
        train(c, o, 3, lambda i: 4)
    @torch.compile(backend=backend, fullgraph=True)
    def full(x):                                                         # no break allowed
        return torch.nn.functional.relu(m.a(x)).to(torch.float64)
    out.append(full(torch.randn(2, 8)).sum().item().hex())
    counters = {k: dict(v) for k, v in dynamo.utils.counters.items() if k != "inductor"}
    failures = sorted(len(v) for v in dynamo.utils.guard_failures.values())
    print(json.dumps([out, counters, failures], sort_keys=True, default=str))
"""


DDP_COMPILE = """
    import json, torch, torch._dynamo as dynamo, torch.distributed as dist
    dist.init_process_group("gloo")
    torch.manual_seed(7)
    torch.set_num_threads(1)
    DDP = torch.nn.parallel.DistributedDataParallel
    def net():
        return torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    out = []
    def train(model, n=3):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(n):
            loss = model(torch.full((2, 8), float(dist.get_rank() + step))).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            out.append(loss.item().hex())
    train(torch.compile(DDP(net(), bucket_cap_mb=0.001), backend="aot_eager"))
    train(DDP(torch.compile(net(), backend="aot_eager")))
    m = net()
    @torch.compile(backend="aot_eager")
    def reduced(x):
        y = m(x)
        t = y.detach().clone()
        dist.all_reduce(t)              # Dynamo rewrites this one
        return y + t
    for i in range(3):
        out.append(reduced(torch.full((2, 8), float(i))).sum().item().hex())
    counters = {k: dict(v) for k, v in dynamo.utils.counters.items() if k != "inductor"}
    print(json.dumps([out, counters], sort_keys=True, default=str))
"""


def test_compile_with_ddp_sees_the_same_program(trixie):
    program = trixie.program(DDP_COMPILE)
    plain = run_ranks(trixie, program, hook=False)
    assert [p[0] for p in plain] == [0, 0], plain[0][2][-3000:]
    hooked = run_ranks(trixie, program)
    assert [p[:2] for p in hooked] == [p[:2] for p in plain]
    rings = sorted(trixie.rings(), key=lambda r: r.rank)
    seen = [[(b.name, b.text, b.seq) for b, _ in r.spans() if b.flags & mark_ring.IMPLICIT]
            for r in rings]
    assert seen[0] == seen[1] == [("ddp.all_reduce", f"ddp:{n}", i) for n in (0, 1) for i in range(3)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.skipif(
    not os.environ.get("LG_SLOW"), reason="compiling C++ takes minutes: set LG_SLOW=1"))])
def test_compile_sees_the_same_program(trixie, backend):
    program = trixie.program(COMPILE)
    extra = {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1", "LAGGARD_COPIES": "1"}
    plain = trixie.run(program, backend, hook=False, extra=extra)
    assert plain[0] == 0, plain[2][-2000:]
    hooked = trixie.run(program, backend, extra=extra)
    assert hooked[:2] == plain[:2], hooked[2][-3000:]
    ring = trainer(trixie.rings())
    nests(ring)
    meta = ring.meta()
    assert meta["torch.version"].startswith("2.") and meta["compile.requested"] == backend
    assert meta["sdpa.flash"] == meta["sdpa.mem_efficient"] == meta["sdpa.math"] == "1"
    assert ring.marks("dynamo.frames.total")[-1].seq > 0
    assert ring.marks("dynamo.graph_breaks")[-1].seq > 0
    modes = {m.text.split()[0].rpartition(".")[2] for m in ring.marks("dispatch_mode")}
    assert "_FlopCounterMode" in modes or "FlopCounterMode" in modes
    where = [m.text.split()[1] for m in ring.marks("dispatch_mode") if "FlopCounterMode" in m.text]
    assert where and all("program.py:" in w for w in where)


def test_c_header_writes_the_same_format(tmp_path, marks_dir):
    source = tmp_path / "marker.c"
    source.write_text(textwrap.dedent("""
        #include <laggard/mark.h>
        static void *other(void *arg)
        {
            (void)arg;
            for (int i = 0; i < 1000; i++)
                lag_mark_stage_end(lag_mark_stage_begin(LAG_STAGE_SIDE));
            return NULL;
        }
        int main(void)
        {
            pthread_t t[3];
            uint64_t a, b;
            int i;
            for (i = 0; i < 3; i++)
                pthread_create(&t[i], NULL, other, NULL);
            for (i = 0; i < 3; i++)
                pthread_join(t[i], NULL);
            if (fork() == 0)
                return lag_mark_recording();
            a = lag_mark_stage_begin(LAG_STAGE_FORWARD);
            b = lag_mark_begin("inner");
            lag_mark_end(b);
            lag_mark_stage_end(a);
            lag_mark_value("loss", -7);
            a = lag_mark_collective_begin("all_reduce", "default", 5, 64);
            lag_mark_collective_end(a);
            lag_mark_step(1);
            return lag_mark_recording() ? 9 : 0;
        }
    """))
    for cc, std in (("gcc", "c99"), ("g++", "c++11"), ("clang-14", "c11"), ("clang++-14", "c++17")):
        if not shutil.which(cc):
            continue
        for f in marks_dir.iterdir():
            f.unlink()
        exe = tmp_path / "marker"
        subprocess.run([cc, "-std=" + std, "-D_DEFAULT_SOURCE", "-x", "c++" if "++" in cc else "c",
                        "-O2", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror",
                        "-I", str(ROOT / "include"), str(source), "-o", str(exe), "-pthread"],
                       check=True)
        env = {k: v for k, v in os.environ.items() if k != "LAGGARD_MARKS"}
        assert subprocess.run([exe], env=env, check=False).returncode == 0
        assert subprocess.run([exe], env={**env, "LAGGARD_MARKS": str(marks_dir)},
                              check=False).returncode == 9
        ring, = mark_ring.read_all(marks_dir)
        nests(ring)
        assert len(ring.slots_read) == 6000 + 8, "none lost while threads race for the first mark"
        assert [s.index for s in ring.slots_read] == list(range(1, len(ring.slots_read) + 1))
        names = [(b.kind, b.stage, b.name, b.text, b.seq) for b, _ in ring.spans()][3000:]
        assert names == [("stage", "forward", "", "", 0), ("other", "none", "inner", "", 0),
                         ("collective", "none", "all_reduce", "default", 5)]
        assert ring.marks("loss")[0].seq == -7 and ring.steps()[0].seq == 1 and ring.role == 1


def test_record_says_when_python_could_not_be_reached(laggard, tmp_path, can_record):
    out = tmp_path / "run.lag"
    wait = "import time; time.sleep(0.8)"
    for command, says, told in (
            (["/usr/bin/python3", "-I", "-c", wait], "with -I Python ignores PYTHONPATH", True),
            (["sh", "-c", f"/usr/bin/python3 -BS -c '{wait}'; true"],
             "with -S Python does not load sitecustomize", True),
            (["env", "-u", "PYTHONPATH", "/usr/bin/python3", "-c", wait], "the hook did not reach it", True),
            (["sleep", "0.3"], "-I, -E or -S", False),
            (["/usr/bin/python3", "-c", wait], "no process imported torch", False)):
        done = laggard("record", "-o", out, "--", *command)
        assert done.returncode == 0
        lines = [line for line in done.stderr.splitlines() if "no marks came from pid" in line]
        assert len(lines) == told and (not told or says in lines[0]), done.stderr
        limits = laggard("explain", "--json", out).stdout
        assert says in limits, limits[-2000:]


@pytest.mark.live
def runtime_folders():
    """What a recording made for itself; the folders around that stay."""
    return {path for base in ("/run/laggard", "/dev/shm/laggard-0", "/tmp/laggard-0")
            for path in pathlib.Path(base).glob("*")}


def test_record_turns_marks_into_steps(laggard, tmp_path, can_record, torch_python):
    program = tmp_path / "train.py"
    program.write_text(textwrap.dedent(TRAIN))
    before = runtime_folders()
    out = tmp_path / "run.lag"
    done = laggard("record", "-o", out, "--", torch_python, program, 2)
    assert done.returncode == 0, done.stderr
    table = laggard("steps", out).stdout.splitlines()
    assert len(table) == 1 + 12, table
    assert runtime_folders() <= before
