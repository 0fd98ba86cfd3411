# SPDX-License-Identifier: Apache-2.0
"""Draws: a job with a cause, or its healthy twin, with everything else at random.

What a cause costs is the wall time of the job less that of the same job without it (WITHOUT). A finding
that a draw did not plan is judged by the same rule: it is right if taking its cause away gives back at
least half of what it claims.
"""
import dataclasses
import math
import random

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
    "comms.straggler": {"slow_factor": 1.0},
    "side.checkpoint": {"save_every": 0},
}


@dataclasses.dataclass
class Draw:
    family: str
    number: int
    job: Job
    causes: list  # ids, the planned ones; empty = healthy
    device: str = "NVIDIA A100-SXM4-80GB"
    cut: float = 0.0  # the file ends after this share
    truth_rank: int = -1


def log_uniform(rng, low, high):
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def healthy(rng, seed, kernel_us=0.0):
    """A job whose device is busy: what a good loop looks like, at any size."""
    kernel_us = kernel_us or log_uniform(rng, 60, 4000)
    job = Job(seed=seed, world=rng.choice([1, 1, 1, 2, 2, 4, 8]), steps=rng.randint(5, 24), first_step=rng.randint(0, 5000),
              layers=rng.randint(4, 12), kernel_us=kernel_us, op_us=rng.uniform(5, 18), latency_us=rng.uniform(4, 10),
              host_noise=rng.uniform(0.05, 0.4), device_noise=rng.uniform(0.002, 0.04), drift=rng.choice([0, 0, 0, 0.04]),
              read_loss=rng.choice([0, 0, 1, 5]), workers=rng.randint(2, 8), prefetch=2, pinned=True)
    step_us = job.layers * 15 * kernel_us
    job.batch_us = step_us * job.workers * rng.uniform(0.05, 0.5)
    job.copy_mb = min(step_us * rng.uniform(0.0005, 0.004) * job.copy_gbps / 1e3, 200)
    job.copy_stream = rng.random() < 0.5
    job.optimizer = rng.choice(["fused", "foreach"])
    if job.world > 1:
        # Half of backward hides what the ranks send, but for the last bucket: of that, a hundredth of the step.
        share, buckets = rng.uniform(0.05, 0.25), rng.randint(4, job.layers)
        job.grad_mb = max(1.0, step_us * min(share, 0.01 * buckets) * job.bus_gbps * 1e3 / 2e6)
        job.bucket_mb = max(job.grad_mb / buckets, 0.25)
    if step_us < 4000:
        job.read_loss = rng.choice([0, 10])
    return job


SHORT = {"host_sync": (15, 60), "launch_bound": (2, 9), "launch_latency": (2, 5), "optimizer": (15, 60)}  # kernels, us


def ill(family, rng, seed):
    job = healthy(rng, seed, log_uniform(rng, *SHORT[family]) if family in SHORT else 0.0)
    step_us = job.layers * 15 * job.kernel_us
    weight = log_uniform(rng, 0.06, 1.5)  # of the step
    if family == "loader":
        job.loader, job.batch_us = "workers", step_us * (1 + weight) * job.workers
        return job, ["data.loader_wait"]
    if family == "loader_main":
        job.loader, job.batch_us = "main", step_us * weight
        job.read_loss = 1
        return job, ["data.loader_wait"]
    if family == "loader_burst":
        job.steps = rng.randint(24, 48)
        job.burst_every = rng.randint(4, 8)
        job.workers = rng.randint(1, 2)
        job.batch_us = step_us * job.workers * 0.5
        job.burst_us = step_us * (job.workers * job.prefetch + 1 + weight * job.burst_every)
        return job, ["data.loader_wait"]
    if family == "host_sync":
        # Short kernels behind a pause of the host: each read of a number leaves the device without work.
        job.items = rng.randint(job.layers // 2, job.layers)
        job.op_us = rng.uniform(8, 14)
        return job, ["gpu.host_sync"]
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
        job.world = rng.choice([2, 4, 8])
        job.grad_mb = step_us * weight * job.bus_gbps * 1e3 / 2e6
        job.overlap = False
        job.bucket_mb = job.grad_mb / rng.randint(1, 6)
        return job, ["comms.exposed"]
    if family == "straggler":
        job.world = rng.choice([2, 4, 8])
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


def draw(family, number, seed):
    rng = random.Random(f"{seed}/{family}/{number}")
    device = rng.choice(["NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA L4"])
    if family == "healthy":
        return Draw(family, number, healthy(rng, rng.random()), [], device)
    if family == "cut":  # whatever it is, nothing is known of its device
        job, _ = ill(rng.choice([f for f in ILL if f != "checkpoint"]), rng, rng.random())
        return Draw(family, number, job, [], device, cut=rng.uniform(0.1, 0.8))
    if family == "two":
        first, second = rng.sample([f for f in ILL if f not in ("launch_bound", "launch_latency", "host_sync", "optimizer", "checkpoint", "loader_burst")], 2)
        one, causes = ill(first, rng, rng.random())
        other, more = ill(second, rng, one.seed)
        for field in dataclasses.fields(Job):
            if field.name in TOUCHES[second]:
                setattr(one, field.name, getattr(other, field.name))
        return Draw(family, number, one, causes + more, device)
    job, causes = ill(family, rng, rng.random())
    if rng.random() < 0.3:  # a red herring: loud, now and then, and cheap
        job.pause_every, job.pause_us = rng.randint(5, 9), job.layers * 15 * job.kernel_us * rng.uniform(0.005, 0.02)
    return Draw(family, number, job, causes, device)


TOUCHES = {
    "loader": ("loader", "batch_us", "workers"), "loader_main": ("loader", "batch_us"),
    "allocator": ("mallocs", "malloc_us"), "exposed": ("world", "grad_mb", "overlap", "bucket_mb", "bus_gbps"),
    "straggler": ("world", "slow_rank", "slow_factor", "grad_mb", "bucket_mb"), "pageable": ("pinned", "copy_stream", "copy_mb"),
    "serial_copy": ("pinned", "copy_stream", "copy_mb"),
}
