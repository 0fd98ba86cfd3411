# SPDX-License-Identifier: Apache-2.0
"""Snapshots of memory with a known cause, drawn at random, each with a healthy twin.

A small caching allocator of its own (best fit, splits, joins, segments that are given back before a request
fails), driven by a training loop. It shares no code with the analysis; what it did is its truth.
"""
import contextlib
import pickle
import random

KIB, MIB = 1 << 10, 1 << 20
TORCH = "/venv/lib/python3.11/site-packages/torch/"


def frame(name, file, line):
    return {"name": name, "filename": file, "line": line}


MAIN = [frame("main", "/job/train.py", 90), frame("<module>", "/job/train.py", 120)]
CALL = [frame("_call_impl", TORCH + "nn/modules/module.py", 1527)]
SITES = {
    "place": [frame("_apply", TORCH + "nn/modules/module.py", 820), frame("build", "/job/model.py", 12), *MAIN],
    "input": [frame("batch", "/job/data.py", 30), *MAIN],
    "step": [frame("step", TORCH + "optim/adamw.py", 171), frame("train", "/job/train.py", 61), *MAIN],
    "backward": [frame("backward", TORCH + "_tensor.py", 500), frame("train", "/job/train.py", 60), *MAIN],
    "zero_grad": [frame("zero_grad", TORCH + "optim/optimizer.py", 800), frame("train", "/job/train.py", 62), *MAIN],
    "metric": [frame("remember", "/job/metrics.py", 44), frame("train", "/job/train.py", 66), *MAIN],
    "cache": [frame("fill", "/job/buffers.py", 17), frame("train", "/job/train.py", 50), *MAIN],
    "work": [frame("augment", "/job/augment.py", 71), frame("train", "/job/train.py", 52), *MAIN],
    "empty": [frame("empty_cache", TORCH + "cuda/memory.py", 162), frame("train", "/job/train.py", 68), *MAIN],
}
for layer in range(64):
    SITES[f"forward{layer}"] = [frame("forward", "/job/model.py", 100 + layer), *CALL, frame("train", "/job/train.py", 58),
                                *MAIN]


class OutOfMemory(Exception):
    pass


class Device:
    def __init__(self, capacity=1 << 60):
        self.capacity, self.now, self.top = capacity, 1_700_000_000_000_000, 0x7F0000000000
        self.segments, self.events, self.notes, self.live = [], [], [], {}

    def tell(self, action, addr, size, site, **more):
        self.now += 7
        self.events.append({"action": action, "addr": addr, "size": size, "stream": 0, "time_us": self.now,
                            "frames": SITES[site], **more})

    def reserved(self):
        return sum(s["size"] for s in self.segments)

    def best(self, size, small):
        fits = [(b["size"], s["addr"], i, s) for s in self.segments if s["small"] == small
                for i, b in enumerate(s["blocks"]) if not b["site"] and b["size"] >= size]
        return min(fits, key=lambda f: f[:3], default=None)

    def give_back(self, site):
        """As the allocator does before it fails, or in empty_cache(): segments in which nothing lives."""
        for s in [s for s in self.segments if not any(b["site"] for b in s["blocks"])]:
            self.segments.remove(s)
            self.tell("segment_free", s["addr"], s["size"], site)

    def alloc(self, want, site):
        size = -(-want // 512) * 512
        small = size <= MIB
        found = self.best(size, small)
        if not found:
            room = 2 * MIB if small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
            if self.reserved() + room > self.capacity:
                self.give_back(site)
            if self.reserved() + room > self.capacity:
                self.tell("oom", 0, size, site, device_free=self.capacity - self.reserved())
                del self.events[-1]["addr"]
                raise OutOfMemory
            s = {"addr": self.top, "size": room, "small": small, "blocks": [{"size": room, "site": None}]}
            self.top += room + 64 * MIB
            self.segments.append(s)
            self.tell("segment_alloc", s["addr"], room, site)
            found = self.best(size, small)
        _, _, i, s = found
        block, rest = s["blocks"][i], s["blocks"][i]["size"] - size
        if rest >= 512 if small else rest > MIB:
            block["size"] = size
            s["blocks"].insert(i + 1, {"size": rest, "site": None})
        addr = s["addr"] + sum(b["size"] for b in s["blocks"][:i])
        block.update(site=site, want=want)
        self.tell("alloc", addr, want, site)
        self.live[addr] = (s, block, want)
        return addr

    def free(self, addr, site):
        s, block, want = self.live.pop(addr)
        self.tell("free_requested", addr, want, site)
        self.tell("free_completed", addr, want, site)
        block.update(site=None)
        i = next(k for k, b in enumerate(s["blocks"]) if b is block)
        for k in (i, i - 1):
            if 0 <= k < len(s["blocks"]) - 1 and not s["blocks"][k]["site"] and not s["blocks"][k + 1]["site"]:
                s["blocks"][k]["size"] += s["blocks"].pop(k + 1)["size"]

    def note(self, name, stage):
        self.now += 7
        self.notes.append({"name": name, "stage": stage, "device": 0, "time_us": self.now})

    def snapshot(self):
        segments = []
        for s in sorted(self.segments, key=lambda s: s["addr"]):
            addr, blocks = s["addr"], []
            for b in s["blocks"]:
                held = b["site"] is not None
                blocks.append({"address": addr, "size": b["size"], "requested_size": b["want"] if held else 0,
                               "state": "active_allocated" if held else "inactive",
                               "frames": SITES[b["site"]] if held else []})
                addr += b["size"]
            used = sum(b["size"] for b in s["blocks"] if b["site"])
            segments.append({"device": 0, "address": s["addr"], "total_size": s["size"], "allocated_size": used,
                             "active_size": used, "requested_size": used, "stream": 0,
                             "segment_type": "small" if s["small"] else "large", "segment_pool_id": (0, 0),
                             "is_expandable": False, "frames": [], "blocks": blocks})
        return {"segments": segments, "device_traces": [self.events],
                "allocator_settings": {"expandable_segments": False}, "external_annotations": self.notes}


class Job:
    """A training loop whose every step takes and gives back the same."""

    def __init__(self, seed, notes="profiler", **more):
        r = self.r = random.Random(seed)
        self.d, self.notes, self.n = Device(**more), notes, 0
        self.layers = r.randrange(4, 24)
        self.weights = [r.randrange(64 * KIB, 6 * MIB) for _ in range(self.layers)]
        self.activations = [r.randrange(256 * KIB, 12 * MIB) for _ in range(self.layers)]
        self.held = [self.d.alloc(w, "place") for w in self.weights]
        self.grads = []

    def step(self, extra=lambda job: None, before=lambda job: None):
        d, layers = self.d, self.layers
        if self.notes == "profiler":
            d.note(f"ProfilerStep#{self.n}", "START")
        before(self)
        batch = d.alloc(3 * MIB, "input")
        kept = []
        for k in range(layers):
            scratch = d.alloc(self.activations[k] // 3 + 512, f"forward{k}")
            kept.append(d.alloc(self.activations[k], f"forward{k}"))
            d.free(scratch, f"forward{k}")
        extra(self)
        for k in reversed(range(layers)):
            self.grads.append(d.alloc(self.weights[k], "backward"))
            d.free(kept[k], "backward")
        if self.notes == "optimizer":
            d.note("Optimizer.step#AdamW.step", "START")
        if self.n == 0:
            self.held += [d.alloc(w, "step") for w in self.weights for _ in (1, 2)]
        scratch = d.alloc(max(self.weights), "step")
        d.free(scratch, "step")
        if self.notes == "optimizer":
            d.note("Optimizer.step#AdamW.step", "END")
        for g in self.grads:
            d.free(g, "zero_grad")
        self.grads = []
        d.free(batch, "input")
        if self.notes == "profiler":
            d.note(f"ProfilerStep#{self.n}", "END")
        self.n += 1


def write(snapshot, path, protocol):
    with open(path, "wb") as f:
        pickle.dump(snapshot, f, protocol=protocol)
    return path


def healthy(seed, notes):
    job = Job(seed, notes)
    for _ in range(job.r.randrange(9, 20)):
        job.step()
    return job, None


def leak(seed, notes):
    """A list that keeps a little of each step."""
    job = Job(seed, notes)
    size = job.r.randrange(128 * KIB, 3 * MIB)
    for _ in range(job.r.randrange(9, 20)):
        job.step(lambda j: j.d.alloc(size, "metric"))
    return job, size


def graph(seed, notes):
    """Of each step some activations are kept: a list of losses with their graphs."""
    job = Job(seed, notes)
    sizes = [(k, job.r.randrange(64 * KIB, MIB)) for k in range(job.layers)]
    for _ in range(job.r.randrange(9, 20)):
        job.step(lambda j: [j.d.alloc(size, f"forward{k}") for k, size in sizes])
    return job, sum(size for _, size in sizes)


def cache(seed, notes):
    """Healthy: a cache that is filled in the first two steps, and one that is kept at its size."""
    job = Job(seed, notes)
    ring = []

    def keep(j):
        ring.append(j.d.alloc(2 * MIB + 512 * (j.n % 3), "cache"))
        if len(ring) > 2:
            j.d.free(ring.pop(0), "cache")
    for _ in range(job.r.randrange(12, 20)):
        job.step(keep)
    return job, None


def work(size):
    """Something large in each step that leaves a whole segment idle."""
    return lambda j: j.d.free(j.d.alloc(size, "work"), "work")


def churn(seed, notes):
    job = Job(seed, notes)
    size = job.r.randrange(30, 90) * MIB
    for _ in range(job.r.randrange(9, 20)):
        job.step(before=work(size))
        job.d.give_back("empty")
    return job, None


def once(seed, notes):
    """Healthy: empty_cache() once, after the first step."""
    job = Job(seed, notes)
    for n in range(job.r.randrange(9, 20)):
        job.step(before=work(40 * MIB))
        if n == 0:
            job.d.give_back("empty")
    return job, None


def pieces(seed, notes, early=False):
    """Blocks that stay are cut out of large segments that were used once; early: they were there before."""
    job = Job(seed, notes)
    r = job.r
    n, pin = r.randrange(8, 20), 21 * MIB + 512 * r.randrange(1, 100)
    big = r.randrange(300, 400) * 2 * MIB
    if early:
        for _ in range(n):
            job.d.alloc(pin, "cache")
    blocks = [job.d.alloc(big, "work") for _ in range(n)]
    for b in [] if early else blocks:
        # Only what was just given back has room: the rest of it is taken at once.
        job.d.free(b, "work")
        job.d.alloc(pin, "cache")
        blocks = [job.d.alloc(big - pin, "work") if x == b else x for x in blocks]
    for b in blocks:
        job.d.free(b, "work")
    if early:
        job.d.give_back("work")
    for _ in range(r.randrange(9, 16)):
        job.step(before=lambda j: j.held.append(j.d.alloc(big, "work")) if j.n == 1 else None)
    return job, None


def pieces_early(seed, notes):
    return pieces(seed, notes, early=True)


def joined(seed, notes):
    """A request fails although what lies idle would do, but in pieces."""
    job, _ = pieces(seed, notes)
    idle = sum(b["size"] for s in job.d.segments for b in s["blocks"] if not b["site"] and not s["small"])
    job.d.capacity = job.d.reserved() + 3 * MIB
    with contextlib.suppress(OutOfMemory):
        job.d.alloc(idle // 2 + 80 * MIB, "work")
    return job, None


def too_large(seed, notes):
    """A request is larger than all that lies idle and all that the device has left, put together."""
    job = Job(seed, notes)
    job.step()

    def ask(j):
        j.d.capacity = j.d.reserved() + j.r.randrange(0, 64) * MIB
        idle = sum(b["size"] for s in j.d.segments for b in s["blocks"] if not b["site"])
        j.d.alloc(idle + j.d.capacity - j.d.reserved() + j.r.randrange(20, 200) * MIB, "forward0")
    with contextlib.suppress(OutOfMemory):
        job.step(ask)
    return job, None
