# SPDX-License-Identifier: Apache-2.0
"""Draws: a job with a cause, or its healthy twin, with everything else at random.

What a cause costs is the wall time of the job less that of the same job without it (WITHOUT). A finding
that a draw did not plan is judged by the same rule: it is right if taking its cause away gives back at
least half of what it claims.
"""
import dataclasses
import math
import random

import more
from job import Job

# finding -> the fields of a job in which its cause does not exist
WITHOUT = {
    "data.loader_wait": {"loader": "none"},
    "data.pageable_copy": {"copy_mb": 0.0},
    "data.serial_copy": {"copy_mb": 0.0},
    "gpu.launch_bound": {"op_us": 0.01, "launch_us": 0.01},
    "gpu.host_sync": {"items": 0, "read_loss": 0},
    "gpu.allocator_sync": {"mallocs": 0},
    "gpu.unfused_optimizer": {"optimizer": "fused"},
    "comms.exposed": {"bus_gbps": 1e7},
    "comms.straggler": {"slow_factor": 1.0, "rank_noise": 0.0},
    "side.checkpoint": {"save_every": 0},
    **more.WITHOUT,
}


@dataclasses.dataclass
class Draw:
    family: str
    number: int
    job: Job
    causes: list  # ids, the planned ones; empty = healthy
    device: str = "NVIDIA A100-SXM4-80GB"
    cut: float = 0.0  # the file ends after this share
    lost: tuple = ()  # (first, last) share of the window of which the device's rows are lost, in one rank or all (rank, -1)


def log_uniform(rng, low, high):
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def healthy(rng, seed, kernel_us=0.0):
    """A job whose device is busy: what a good loop looks like, at any size: steps of 1 ms to 10 s, 1 to 16 ranks."""
    layers = rng.randint(2, 12)
    kernel_us = kernel_us or max(log_uniform(rng, 1e3, 1e7) / (15 * layers), 30)
    step_us = layers * 15 * kernel_us
    # Ranks that meet in steps of a few ms pay for it; that is what comms.exposed is of.
    world = rng.choice([1, 1, 1, 2, 2, 4, 8, 16]) if step_us > 8e3 else 1
    job = Job(seed=seed, world=world, steps=max(5, min(rng.randint(5, 40), 800 // (world * layers))), first_step=rng.randint(0, 5000),
              layers=layers, kernel_us=kernel_us, op_us=rng.uniform(3, min(18, 0.35 * kernel_us)), latency_us=rng.uniform(4, 10),
              host_noise=log_uniform(rng, 0.03, 0.6), device_noise=rng.uniform(0.002, 0.06), work_noise=rng.choice([0, 0, 0.03, 0.12]),
              rank_noise=rng.uniform(0, 0.003), drift=rng.choice([0, 0, 0, 0.03, 0.06]), workers=rng.randint(1, 16), prefetch=rng.randint(2, 4),
              pinned=True, copy_stream=rng.random() < 0.5, optimizer=rng.choice(["fused", "foreach"]), params=rng.randint(20, 400))
    # Reading the loss lets the device run dry for as long as the host takes to come back.
    job.read_loss = rng.choice([0, 0, 1, 5]) if step_us > 3e4 else rng.choice([0, 10])
    job.batch_us = step_us * job.workers * rng.uniform(0.05, 0.7)
    job.copy_mb = min(step_us * rng.uniform(0.0005, 0.004) * job.copy_gbps / 1e3, 200)
    if job.world > 1:
        # Half of backward hides what the ranks send, but for the last bucket: of that, a hundredth of the step.
        share, buckets = rng.uniform(0.05, 0.25), rng.randint(max(2, layers // 3), layers)
        job.grad_mb = max(1.0, step_us * min(share, 0.01 * buckets) * job.bus_gbps * 1e3 / 2e6)
        job.bucket_mb = max(job.grad_mb / buckets, 0.25)
    return job


def herring(rng, job):
    """Loud, now and then, and cheap."""
    if rng.random() < 0.3:
        job.pause_every, job.pause_us = rng.randint(5, 9), job.layers * 15 * job.kernel_us * rng.uniform(0.005, 0.02)
    return job


def twin(family, rng, seed):
    """Looks like the family's, and costs next to nothing."""
    if family in more.FAMILIES:
        job = healthy(rng, seed)
        more.twin(family, rng, job)
        return herring(rng, job)
    job = ill(family, rng, seed)[0] if family not in SHORT else healthy(rng, seed, log_uniform(rng, *BUSY.get(family, (60, 4000))))
    step_us = job.layers * 15 * job.kernel_us
    little = step_us * rng.uniform(0.0005, 0.004)
    if step_us < 3e4:
        job.read_loss = rng.choice([0, 10])
    if family == "loader":
        job.batch_us, job.ahead = step_us * job.workers * rng.uniform(0.6, 0.85), True  # all but too slow
    elif family == "loader_main":
        job.batch_us = little
    elif family == "loader_burst":
        job.burst_us, job.ahead = step_us * job.workers * 0.4, True  # what is ahead is enough
    elif family == "host_sync":
        job.items = job.layers
    elif family == "launch_bound":
        job.op_us, job.world, job.read_loss = rng.uniform(1, 5), 1, 0
    elif family == "launch_latency":
        job.latency_us = rng.uniform(10, 30)  # behind a queue nobody sees it
        job.op_us = min(job.op_us, 10)
    elif family == "allocator":
        job.malloc_us, job.mallocs = little / 2, 1
        if step_us < 3e4:  # cudaFree lets the device run dry
            job.mallocs = 0
    elif family == "exposed":
        job.overlap, job.bucket_mb = True, job.grad_mb / 8
        job.grad_mb = step_us * rng.uniform(0.02, 0.06) * job.bus_gbps * 1e3 / 2e6
        job.bucket_mb = job.grad_mb / max(4, job.layers)
    elif family == "straggler":
        job.slow_factor = 1 + rng.uniform(0, 0.004)
    elif family == "pageable":
        job.copy_mb = little * job.copy_gbps * 0.35 / 1e3
    elif family == "serial_copy":
        # Beside the kernels there is room for it; a copy as long as the step makes the link the limit.
        job.copy_stream, job.copy_mb = True, min(job.copy_mb, 0.7 * step_us * job.copy_gbps / 1e3)
    elif family == "optimizer":
        job.optimizer = "foreach"
    elif family == "checkpoint":
        job.save_us = little * job.save_every
    return herring(rng, job)


BUSY = {"host_sync": (3000, 20000), "launch_bound": (25, 60)}  # of their twins
SHORT = {"host_sync": (15, 60), "launch_bound": (2, 9), "launch_latency": (2, 5), "optimizer": (15, 60)}  # kernels, us


def ill(family, rng, seed):
    job = healthy(rng, seed, log_uniform(rng, *SHORT[family]) if family in SHORT else 0.0)
    step_us = job.layers * 15 * job.kernel_us
    if family in more.FAMILIES:
        return job, more.ill(family, rng, job)
    weight = log_uniform(rng, 0.06, 1.5)  # of the step
    if family == "loader":
        job.loader, job.batch_us, job.ahead = "workers", step_us * (1 + weight) * job.workers, False
        return job, ["data.loader_wait"]
    if family == "loader_main":
        job.loader, job.batch_us = "main", step_us * weight
        job.read_loss = 1
        return job, ["data.loader_wait"]
    if family == "loader_burst":
        job.steps = rng.randint(24, 48)
        job.burst_every, job.ahead = rng.randint(4, 8), False
        job.workers = rng.randint(1, 2)
        job.batch_us = step_us * job.workers * 0.5
        job.burst_us = step_us * (job.workers * job.prefetch + 1 + weight * job.burst_every)
        return job, ["data.loader_wait"]
    if family == "host_sync":
        # Short kernels behind a pause of the host: each read of a number leaves the device without work.
        job.items = rng.randint(job.layers // 2, job.layers)
        job.op_us = rng.uniform(8, 14)
        return job, ["gpu.host_sync", "gpu.launch_bound"]  # the shortest kernels are shorter than their launch
    if family == "launch_bound":
        job.op_us = rng.uniform(12, 60)
        job.world = 1
        return job, ["gpu.launch_bound"]
    if family == "launch_latency":
        # A slow driver call, and a device that takes as long again: kernels are launched while the last one runs,
        # and yet none is there when it ends.
        job.launch_us, job.op_us, job.world = rng.uniform(7, 12), rng.uniform(1, 6), 1
        job.latency_us = job.launch_us + rng.uniform(2, 12)
        job.host_noise = rng.uniform(0.05, 0.2)
        return job, ["gpu.launch_bound"]
    if family == "allocator":
        job.mallocs = rng.randint(1, 10)
        job.malloc_us = max(50.0, step_us * weight / job.mallocs)
        return job, ["gpu.allocator_sync"]
    if family == "exposed":
        job.world = rng.choice([2, 4, 8, 16])
        job.grad_mb = step_us * weight * job.bus_gbps * 1e3 / 2e6
        job.overlap = False
        job.bucket_mb = job.grad_mb / rng.randint(1, 6)
        return job, ["comms.exposed"]
    if family == "straggler":
        job.world = rng.choice([2, 4, 8, 16])
        job.slow_rank, job.slow_factor = rng.randrange(job.world), 1 + weight
        return job, ["comms.straggler"]
    if family == "pageable":
        job.pinned, job.copy_stream = False, False
        job.copy_mb = step_us * weight * job.copy_gbps * 0.35 / 1e3
        return job, ["data.pageable_copy"]
    if family == "serial_copy":
        job.copy_stream = False
        job.copy_mb = step_us * weight * job.copy_gbps / 1e3
        return job, ["data.serial_copy"]
    if family == "optimizer":
        job.optimizer, job.params = "single", rng.randint(40, 300)
        job.world = 1
        return job, ["gpu.unfused_optimizer"]
    if family == "checkpoint":
        job.steps = rng.randint(16, 40)
        job.save_every = rng.randint(4, 12)
        job.save_us = step_us * weight * job.save_every
        return job, ["side.checkpoint"]
    raise KeyError(family)


ILL = ("loader", "loader_main", "loader_burst", "host_sync", "launch_bound", "launch_latency", "allocator", "exposed", "straggler", "pageable",
       "serial_copy", "optimizer", "checkpoint")
CUT = ILL[:-1]  # whose windows may end anywhere
ILL += tuple(more.FAMILIES)
WELL = ("healthy", "cut", "lost", *(f"twin_{f}" for f in ILL))


def draw(family, number, seed):
    rng = random.Random(f"{seed}/{family}/{number}")
    device = rng.choice(["NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA L4"])
    if family == "healthy":
        return Draw(family, number, herring(rng, healthy(rng, rng.random())), [], device)
    if family.startswith("twin_"):
        return Draw(family, number, twin(family[5:], rng, rng.random()), [], device)
    if family == "lost":  # a buffer of CUPTI's overflowed: nothing is known of the device in between
        job, begin = herring(rng, healthy(rng, rng.random())), rng.uniform(0, 0.9)
        return Draw(family, number, job, [], device, lost=(begin, begin + rng.uniform(0.02, 0.3), rng.choice([-1, rng.randrange(job.world)])))
    if family == "cut":  # whatever it is, nothing is known of its device
        job, _ = ill(rng.choice(CUT), rng, rng.random())
        return Draw(family, number, job, [], device, cut=rng.uniform(0.1, 0.8))
    if family == "two":
        first, second = rng.sample(list(TOUCHES), 2)
        one, causes = ill(first, rng, rng.random())
        other, further = ill(second, rng, one.seed)
        for field in dataclasses.fields(Job):
            if field.name in TOUCHES[second]:
                setattr(one, field.name, getattr(other, field.name))
        return Draw(family, number, one, causes + further, device)
    job, causes = ill(family, rng, rng.random())
    return Draw(family, number, herring(rng, job), causes, device)


TOUCHES = {
    "loader": ("loader", "batch_us", "workers", "ahead"), "loader_main": ("loader", "batch_us"),
    "allocator": ("mallocs", "malloc_us"), "exposed": ("world", "grad_mb", "overlap", "bucket_mb", "bus_gbps"),
    "straggler": ("world", "slow_rank", "slow_factor", "grad_mb", "bucket_mb"), "pageable": ("pinned", "copy_stream", "copy_mb"),
    "serial_copy": ("pinned", "copy_stream", "copy_mb"),
}
