# SPDX-License-Identifier: Apache-2.0
"""train.py: a small, real DDP training (gloo, CPU), one process a rank, with a known step time.

What makes it a good victim, and why:
- Each rank keeps a large resident table of 4 KiB pages (embeddings, a dataset cache): whoever walks
  its page tables needs long.  Huge pages would be walked 512 times faster, hence MADV_NOHUGEPAGE;
  pages are touched in random order, so that the walker misses the cache on every struct page.
- Each step maps, touches and unmaps workspaces, as an allocator does: mmap_lock is needed in the
  step's normal course.  (glibc raises its mmap threshold by itself, so malloc would not do.)
- The batch is sized at start so that one step computes for about --step-ms on this machine: on two
  cores, shorter steps lose their time to gloo's own threads.

Nothing here is slow on purpose; causes are separate programs (agents/), except the modes named in
--also.  When a rank is past its warm-up it writes OUT/ready.RANK (its pid); at the end
OUT/steps.RANK holds the start and length of each step in ns of CLOCK_MONOTONIC (OUT/own.RANK: of each pause that
the job made itself, on purpose), and OUT/kernel.RANK the CPU time that the rank's main thread had meanwhile and
how long it waited for a CPU, in ns, as the kernel counted them: the truth that a verdict is compared with.
"""
import argparse
import contextlib
import fcntl
import gc
import mmap
import os
import pathlib
import signal
import socket
import statistics
import time

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

PAGE = 4096
MADV_NOHUGEPAGE = 15
WIDTH = 64  # small gradients: gloo's own threads share the CPU that a rank is pinned to


def workspace(n_bytes):
    """Map, touch and unmap: what a caching allocator's miss costs."""
    with mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as m:
        for at in range(0, n_bytes, n_bytes // 4):
            m[at] = 1


class Workspace(nn.Module):
    """Between two layers: an operator that needs scratch memory."""

    def forward(self, x):
        workspace(1 << 20)
        return x


def on_cpu():
    """(CPU time, time spent waiting for a CPU) of this thread in ns: Documentation/scheduler/sched-stats.rst."""
    with open("/proc/thread-self/schedstat", encoding="ascii") as f:
        return tuple(map(int, f.read().split()[:2]))


class RandomBatches(Dataset):
    def __init__(self, batch, n_steps):
        self.batch, self.n_steps = batch, n_steps

    def __len__(self):
        return self.n_steps

    def __getitem__(self, i):
        return torch.full((self.batch, WIDTH), float(i % 7)), torch.zeros(self.batch, 16)


def make_model():
    layers = []
    for _ in range(4):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU(), Workspace()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 16))


def rollup_seconds():
    """CPU time, not wall time: being preempted meanwhile does not make a walk longer."""
    start = time.thread_time()
    with open("/proc/self/smaps_rollup", "rb") as f:
        f.read()
    return time.thread_time() - start


def fill_table(limit_bytes, target_s):
    """Touch pages of one mapping until walking them takes target_s, or the limit is reached.

    How long a walk takes differs five-fold between machines (struct page cache misses), and the
    length of the hold is what the scenario is about, not the number of bytes.
    """
    n_pages = max(limit_bytes // PAGE, 1)
    table = mmap.mmap(-1, n_pages * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    table.madvise(MADV_NOHUGEPAGE)
    pages = numpy.frombuffer(table, dtype=numpy.uint8).reshape(n_pages, PAGE)
    order = numpy.random.default_rng(1).permutation(n_pages)
    touched = 0
    for part in numpy.array_split(order, 16):
        pages[part, 0] = 1
        touched += len(part)
        if min(rollup_seconds() for _ in range(3)) >= target_s:
            break
    return pages, touched * PAGE


def compute(model, batch):
    loss = nn.functional.mse_loss(model(torch.ones(batch, WIDTH)), torch.zeros(batch, 16))
    loss.backward()


def batch_for(step_ms):
    """The batch that computes for step_ms here; every rank takes the same.

    In CPU time of this thread: a neighbour that is busy during the warm-up must not shrink the batch.
    """
    model = make_model()
    seconds = {}
    for batch in (16, 64):
        times = []
        for _ in range(12):
            start = time.thread_time()
            compute(model, batch)
            times.append(time.thread_time() - start)
        seconds[batch] = statistics.median(times)
    slope = max(seconds[64] - seconds[16], 1e-4) / 48
    batch = torch.tensor([(step_ms / 1e3 - seconds[16]) / slope + 16])
    if dist.is_initialized():
        dist.all_reduce(batch)
        batch /= dist.get_world_size()
    return int(min(max(batch.item(), 4), 16384))


class Journal:
    """One line a step into a file that other programs use too, under its lock."""

    def __init__(self, path):
        self.file = open(path, "ab", buffering=0)

    def __call__(self):
        fcntl.flock(self.file, fcntl.LOCK_EX)
        self.file.write(b"step\n")
        fcntl.flock(self.file, fcntl.LOCK_UN)


class Question:
    """One question a step to a service of this host, as soon as there is one."""

    def __init__(self, path):
        self.path, self.socket = path, None

    def __call__(self):
        if self.socket is None and self.path.exists():
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(str(self.path))
        if self.socket is not None:
            try:
                self.socket.sendall(b"step?\n")
                if self.socket.recv(64):
                    return
            except OSError:
                pass  # the service has ended
            self.socket, self.path = None, pathlib.Path("/nonexistent")


class Garbage:
    """A full collection of many objects every few seconds: loud, and not the cause in question."""

    def __init__(self, period_s, pause_s):
        self.period, self.next = period_s, time.monotonic() + period_s
        self.heap, self.ran = [], []
        gc.disable()
        while self.heap == [] or self.measure() < pause_s:
            self.heap += [[i, [i]] for i in range(200_000)]

    @staticmethod
    def measure():
        start = time.monotonic()
        gc.collect()
        return time.monotonic() - start

    def __call__(self):
        if time.monotonic() >= self.next:
            self.next += self.period
            start = time.monotonic_ns()
            gc.collect()
            self.ran.append((start, time.monotonic_ns() - start))


class LateInTurn:
    """Now and then one rank has more to compute than the others: a long sequence, in the next one's shard later."""

    def __init__(self, rank, every, more_ms):
        self.rank, self.every, self.more_s, self.step = rank, int(every), more_ms / 1e3, 0

    def __call__(self):
        self.step += 1
        if self.step % self.every or self.step // self.every % dist.get_world_size() != self.rank:
            return
        end = time.thread_time() + self.more_s
        while time.thread_time() < end:
            pass


@contextlib.contextmanager
def flop_counter():
    """As left on by a library that logs MFU: a dispatch mode that is active for the whole run."""
    from torch.utils.flop_counter import FlopCounterMode
    with FlopCounterMode(display=False):
        yield


def train(args, out, rank):
    if dist.is_initialized():
        dist.barrier()
    batch = args.batch or batch_for(args.step_ms)
    if rank == 0:
        (out / "batch").write_text(f"{batch}\n")  # a second run can be given the same work
    table, table_bytes = fill_table(int(args.gb * 1e9), args.hold_ms / 1e3)
    model = make_model()
    if args.compile:
        model = torch.compile(model, backend=args.compile)
    if dist.is_initialized():
        dist.barrier()  # tables fill at different speeds
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loader = DataLoader(RandomBatches(batch, 10_000_000), batch_size=None)
    garbage = Garbage(*args.garbage) if args.garbage else None
    each_step = [Journal(out / "journal")] if args.journal else []
    each_step += [Question(out / "registry")] if args.ask else []
    each_step += [lambda: time.sleep(args.idle_ms / 1e3)] if args.idle_ms else []
    each_step += [LateInTurn(rank, *args.late_in_turn)] if args.late_in_turn else []

    steps = []
    end = None
    asked = []  # SIGTERM ends the run in order, with its step times written
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
    stop = torch.zeros(1)
    last = time.monotonic_ns()
    for i, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        workspace(1 << 20)
        if garbage and end is not None:
            garbage()
        for also in each_step:
            also()
        now = time.monotonic_ns()
        steps.append((last, now - last))
        last = now
        if i == args.warmup:
            print(f"rank {rank}: table {table_bytes / 1e9:.1f} GB, batch {batch}, "
                  f"walk {rollup_seconds() * 1e3:.0f} ms", flush=True)
            (out / f"ready.tmp.{rank}").write_text(f"{os.getpid()}\n")
            (out / f"ready.tmp.{rank}").rename(out / f"ready.{rank}")
            end = now + int(args.seconds * 1e9)
            had = on_cpu()
            last = time.monotonic_ns()
        # All ranks leave after the same step: rank 0 decides, each 32 steps.
        if i % 32 == 31 and end is not None:
            stop.fill_(float(now >= end or bool(asked)))
            if dist.is_initialized():
                dist.broadcast(stop, 0)
            if stop.item():
                break
    with open(out / f"kernel.{rank}", "w", encoding="ascii") as f:
        f.write("{} {}\n".format(*(now - then for now, then in zip(on_cpu(), had))))
    with open(out / f"steps.{rank}", "w", encoding="ascii") as f:
        f.writelines(f"{ts} {dur}\n" for ts, dur in steps[args.warmup + 1:])
    if garbage:
        with open(out / f"own.{rank}", "w", encoding="ascii") as f:
            f.writelines(f"{ts} {dur}\n" for ts, dur in garbage.ran)
    del table


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, default=25, help="after the warm-up")
    parser.add_argument("--step-ms", type=float, default=14)
    parser.add_argument("--batch", type=int, help="this many samples, whatever a step then takes")
    parser.add_argument("--warmup", type=int, default=40, help="steps")
    parser.add_argument("--gb", type=float, default=0.001, help="limit of the resident table")
    parser.add_argument("--hold-ms", type=float, default=80, help="walking the table shall take this")
    parser.add_argument("--garbage", type=float, nargs=2, metavar=("EVERY_S", "PAUSE_S"))
    parser.add_argument("--journal", action="store_true", help="append to OUT/journal each step")
    parser.add_argument("--ask", action="store_true", help="ask OUT/registry, a socket, each step")
    parser.add_argument("--late-in-turn", type=float, nargs=2, metavar=("STEPS", "MORE_MS"))
    parser.add_argument("--idle-ms", type=float, help="asleep in each step, as who waits for a device")
    parser.add_argument("--compile", metavar="BACKEND")
    parser.add_argument("--flop-counter", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1:
        dist.init_process_group("gloo", rank=rank, world_size=world)
    with flop_counter() if args.flop_counter else contextlib.nullcontext():
        train(args, args.out, rank)
    if world > 1:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
