# SPDX-License-Identifier: Apache-2.0
"""Families of traces beside those of families.py: what extras.py does to a step. For each what is wrong, how much of it at random,
and the twin, in which the same thing is there and costs next to nothing, or has to be.

A function gets (rng, job, us a step) and changes the job; `much` is what it may cost as a share of the step.
"""
import math

# finding -> the fields of a job in which its cause does not exist; rows of families.WITHOUT
WITHOUT = {
    "gpu.layout": {"turns": 0},
    "gpu.math_attention": {"attention": "flash"},
    "gpu.zero_grad_fill": {"fills": 0},
    "gpu.recompute": {"recompute": False},
    "gpu.conv_autotune": {"tune_every": 0},
    "gpu.amp_misuse": {"casts": ""},
    "gpu.devices_in_turn": {"pipelined": True},
    "compile.in_step": {"compile_every": 0},
    "comms.small_messages": {"bucket_mb": 1e9},
    "comms.degraded_link": {"link_factor": 1.0},
    "comms.ddp_flags": {"search_us": 0.0, "copy_back_us": 0.0},
    "debug.left_on": {"blocking": False, "checks": False},
    "side.logging": {"log_every": 0},
    "warmup.dominates": {"cold_steps": 0},
}
# What a trace cannot price, or need not: planned is all there is to know. id -> is it so of this job?
PLANNED = {
    "gpu.no_tensor_core": lambda job: not job.tensor_cores,
    "gpu.small_batch": lambda job: job.blocks < 58 / 2 and job.small_layers > job.layers / 2,
    "debug.left_on": lambda job: job.blocking or job.checks,
}


def much(rng, low=0.02, high=1.2):
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def short(rng, job, most_us=300):
    """What is small does not take long."""
    job.kernel_us = much(rng, 30, most_us)
    job.op_us = min(job.op_us, 0.3 * job.kernel_us)
    job.batch_us, job.copy_mb, job.pause_every = job.layers * 15 * job.kernel_us * 0.3, 0.1, 0
    job.read_loss = 0


def layout(rng, job, step_us, weight):
    job.convs, job.turns = True, rng.randint(2, 3)
    job.turn_us = max(2.0, step_us * weight / (job.layers * job.turns))


def attention(rng, job, step_us, weight):
    """Of all layers or some; in half precision torch computes the path in fp32 since 2.5."""
    job.attention, job.math_layers = "math", rng.randint(1, job.layers)
    of_device(rng, job)
    job.positions, job.head_dim = rng.choice([256, 512, 1024, 2048, 4096]), rng.choice([64, 96, 128])


# TFLOP/s of matrix products, GB/s, TFLOP/s of those in fp32, and what fused kernels reach of the first: FlashAttention-2 (Dao 2023) on
# an A100, and as measured with torch 2.11 on an H100
DEVICES = ((70, 240, 18, (0.6, 0.85)), (220, 1600, 16, (0.65, 0.85)), (700, 2700, 45, (0.35, 0.55)))


def of_device(rng, job):
    job.tflops, job.gbps, fp32, fused = rng.choice(DEVICES)
    job.fp32_slower, job.fused_share = job.tflops / fp32 * rng.uniform(0.9, 1.2), rng.uniform(*fused)
    job.cast_up, job.masked, job.shapes = (rng.random() < 0.5 for _ in range(3))


def attention_twin(rng, job, step_us, weight):
    """Of few positions, so that scores are small beside queries and keys, and not cast up. Still twice what a fused kernel takes, for queries
    and keys are scaled by kernels of their own: in one layer of many; or scaled by nobody, as good as fused in all of them."""
    job.attention = "math"
    of_device(rng, job)
    job.cast_up, job.masked = False, False
    job.positions, job.head_dim = rng.choice([8, 16]), rng.choice([128, 256])
    job.scaled = rng.random() < 0.5
    if job.scaled:
        job.math_layers, job.layers = 1, rng.randint(12, 20)


def fill(rng, job, step_us, weight):
    job.fills = rng.randint(20, 150)
    job.fill_us = max(1.5, step_us * weight / job.fills)


def recompute(rng, job, step_us, weight):
    job.recompute, job.memory_peak = True, rng.uniform(0.15, 0.6)


def recompute_twin(rng, job, step_us, weight):
    """It has to: what it saves is not there."""
    job.recompute, job.memory_peak = True, rng.uniform(0.9, 0.97)


def tune(rng, job, step_us, weight):
    """Shapes change, and each new one is measured."""
    job.convs, job.tune_every, job.tunes = True, rng.randint(1, 3), rng.randint(2, 6)
    job.tune_us = max(3.0, step_us * weight * job.tune_every / (job.tunes * job.layers))


def tune_twin(rng, job, step_us, weight):
    job.convs = True


def amp(rng, job, step_us, weight):
    job.casts = "by hand"
    job.cast_us = max(1.5, step_us * weight / (job.layers * 4))


def amp_twin(rng, job, step_us, weight):
    job.casts, job.cast_us = "autocast", max(1.5, step_us * weight / (job.layers * 2))


def in_turn(rng, job, step_us, weight):
    job.devices, job.copy_stream = rng.choice([2, 2, 4]), False
    job.layers = max(job.layers, 2 * job.devices)
    job.overlap, job.read_loss = False, 1
    job.kernel_us = max(job.kernel_us, 80.0 * job.devices)  # the devices are what takes time, not the host


def in_turn_twin(rng, job, step_us, weight):
    in_turn(rng, job, step_us, weight)
    job.pipelined, job.read_loss = True, 0


def compiles(rng, job, step_us, weight):
    job.compile_every = rng.randint(1, 3)
    job.compile_us = step_us * weight * job.compile_every
    job.read_loss = 1 if weight > 0.01 else job.read_loss


def small_messages(rng, job, step_us, weight):
    """A reduction for each parameter, once backward is through."""
    job.world, job.overlap = rng.choice([2, 2, 4]), False
    n = rng.randint(60, 240)
    short(rng, job)
    job.grad_mb = rng.uniform(0.02, 0.5) * n
    job.bucket_mb = job.grad_mb / n
    job.steps = min(job.steps, 8)


def small_messages_twin(rng, job, step_us, weight):
    """As many under compute."""
    small_messages(rng, job, step_us, weight)
    job.overlap = True
    job.kernel_us = max(job.kernel_us, 400.0)
    job.grad_mb = min(job.grad_mb, 0.03 * 60)
    job.bucket_mb = job.grad_mb / 60


def link(rng, job, step_us, weight):
    job.world, job.overlap, job.steps = rng.choice([2, 4, 8]), rng.random() < 0.5, rng.randint(16, 30)
    job.layers = min(job.layers, 4)
    job.rank_noise = min(job.rank_noise, 0.001)
    share = rng.uniform(0.05, 0.3)
    job.grad_mb = step_us * share * job.bus_gbps * 1e3 / 2e6
    job.bucket_mb = job.grad_mb / rng.randint(1, 4)
    job.link_from, job.link_factor = rng.randint(6, job.steps // 2), 1 + weight / share


def link_twin(rng, job, step_us, weight):
    link(rng, job, step_us, weight)
    job.overlap, job.link_factor = True, 1 + rng.uniform(0, 0.1)
    job.grad_mb = step_us * 0.02 * job.bus_gbps * 1e3 / 2e6
    job.bucket_mb = job.grad_mb / job.layers


def ddp(rng, job, step_us, weight):
    job.world = rng.choice([2, 4])
    job.grad_mb = max(1.0, step_us * 0.02 * job.bus_gbps * 1e3 / 2e6)
    job.bucket_mb = job.grad_mb / max(3, job.layers)
    if rng.random() < 0.5:
        job.copy_back_us = step_us * weight
    else:
        job.search_us = step_us * weight
        job.read_loss = 1  # the host has no lead that would hide it


def ddp_twin(rng, job, step_us, weight):
    ddp(rng, job, step_us, weight)
    job.search_us, job.copy_back_us = min(job.search_us, step_us * 0.002), min(job.copy_back_us, step_us * 0.003)
    if step_us < 3e4:
        job.read_loss = 0


def blocking(rng, job, step_us, weight):
    short(rng, job, 3000)
    job.blocking = True


def anomaly(rng, job, step_us, weight):
    short(rng, job, 1000)
    job.checks, job.layers, job.steps = True, min(job.layers, 4), min(job.steps, 8)
    job.stack_us = rng.uniform(50, 180)  # measured: 55 to 110 us a node on two hosts


def logging(rng, job, step_us, weight):
    job.log_every = rng.randint(1, 3)
    job.log_us = step_us * weight * job.log_every
    job.read_loss = 1
    job.log_call = rng.choice(["torch/utils/tensorboard/writer.py(351): add_scalar", "wandb/sdk/wandb_run.py(1700): log",
                               "<built-in function print>", "/usr/lib/python3.11/logging/__init__.py(1477): info"])


def logging_twin(rng, job, step_us, weight):
    """The device has work meanwhile."""
    logging(rng, job, step_us, weight)
    job.read_loss, job.log_us = 0, min(job.log_us, step_us * 0.05)


def cold(rng, job, step_us, weight):
    job.first_step, job.cold_steps, job.steps = 0, rng.randint(1, 2), rng.randint(5, 10)
    job.cold_us = max(2e3, step_us * job.steps * weight / (job.cold_steps * 6))


def small(rng, job, step_us, weight):
    short(rng, job)
    job.blocks, job.small_layers = rng.randint(4, 28), math.ceil(job.layers * rng.uniform(0.75, 1))


def small_twin(rng, job, step_us, weight):
    short(rng, job)
    job.blocks, job.small_layers = rng.randint(4, 28), max(1, int(job.layers * rng.uniform(0.1, 0.4)))


def nothing(rng, job, step_us, weight):
    pass


# family -> (what is wrong, the twin or None: as wrong, and cheap, its ids)
FAMILIES = {
    "layout": (layout, None, ["gpu.layout"]), "math_attention": (attention, attention_twin, ["gpu.math_attention"]),
    "zero_fill": (fill, None, ["gpu.zero_grad_fill"]), "recompute": (recompute, recompute_twin, ["gpu.recompute"]),
    "autotune": (tune, tune_twin, ["gpu.conv_autotune"]), "amp": (amp, amp_twin, ["gpu.amp_misuse"]),
    "in_turn": (in_turn, in_turn_twin, ["gpu.devices_in_turn"]), "compile": (compiles, None, ["compile.in_step"]),
    "small_messages": (small_messages, small_messages_twin, ["comms.small_messages", "comms.exposed"]),
    "link": (link, link_twin, ["comms.degraded_link", "comms.exposed"]), "ddp": (ddp, ddp_twin, ["comms.ddp_flags"]),
    "blocking": (blocking, nothing, ["debug.left_on"]), "anomaly": (anomaly, nothing, ["debug.left_on"]),
    "logging": (logging, logging_twin, ["side.logging"]), "cold": (cold, nothing, ["warmup.dominates"]),
    "small_batch": (small, small_twin, ["gpu.small_batch"]), "bound": (nothing, nothing, ["gpu.bound"]),
}
MANY_RANKS = ("small_messages", "link", "ddp")


def plain(rng, job):
    """One rank, few steps: what is drawn here shows on any."""
    job.world = 1
    job.steps = min(job.steps, rng.randint(6, 14))


def ill(family, rng, job):
    plain(rng, job)
    change, _, ids = FAMILIES[family]
    change(rng, job, job.layers * 15 * job.kernel_us, much(rng))
    return list(ids)


def twin(family, rng, job):
    plain(rng, job)
    change, other, _ = FAMILIES[family]
    (other or change)(rng, job, job.layers * 15 * job.kernel_us, rng.uniform(0.0005, 0.004) if not other else much(rng))
