# SPDX-License-Identifier: Apache-2.0
"""A training job on paper: hosts that launch, streams that run in order, collectives that wait for the last rank.

Nothing here is shared with what laggard analyses by: the timeline follows from the rules of the hardware
(a launch takes host time, a kernel starts when it was launched and its stream is free, a collective ends
when the last rank has come), and what a cause costs is found by running the same job, with the same
noise, without it. Times are microseconds.
"""
import collections
import contextlib
import copy
import dataclasses
import math
import random

import extras

COMPUTE, COMM, COPY = extras.COMPUTE, extras.COMM, 24  # streams
QUEUE = 1024  # launches the driver holds before it makes the host wait


@dataclasses.dataclass
class Job:
    """What one job does in a step, and what is wrong with it."""
    seed: int = 1
    world: int = 1
    steps: int = 12
    first_step: int = 3
    layers: int = 8
    op_us: float = 12.0  # host time of an operator beside its launch
    launch_us: float = 3.5
    kernel_us: float = 120.0  # mean device time of an operator
    latency_us: float = 7.0  # launch call to kernel on an idle stream
    host_noise: float = 0.15
    device_noise: float = 0.02
    work_noise: float = 0.0  # of a step's work, on all ranks alike: batches differ in length
    rank_noise: float = 0.0  # on each rank by itself
    drift: float = 0.0  # kernels slower by this share at the end of the window
    read_loss: int = 1  # .item() at the end of every n-th step; 0 = never
    # data
    loader: str = "workers"  # workers, main, none
    batch_us: float = 3000.0  # what one worker needs for a batch
    workers: int = 4
    prefetch: int = 2
    ahead: bool = True  # when the window opens, all that may be prepared is
    burst_every: int = 0  # every n-th batch costs burst_us more
    burst_us: float = 0.0
    copy_mb: float = 0.6
    copy_gbps: float = 22.0
    pinned: bool = True
    copy_stream: bool = False  # prefetched on a stream of its own
    # device
    items: int = 0  # .item() in the middle of forward
    mallocs: int = 0  # cudaMalloc + cudaFree pairs a step
    malloc_us: float = 400.0
    tensor_cores: bool = True
    optimizer: str = "fused"  # fused, foreach, single
    params: int = 60
    # ranks
    bucket_mb: float = 25.0
    grad_mb: float = 100.0
    bus_gbps: float = 150.0
    overlap: bool = True
    slow_rank: int = -1
    slow_factor: float = 1.0
    slow_every: int = 1  # in every n-th step
    # side work
    save_every: int = 0
    save_us: float = 0.0
    pause_every: int = 0  # a pause of the host that costs nothing on its own: red herring or cause
    pause_us: float = 0.0
    # what extras.py does
    convs: bool = False  # the first matrix operator of a layer is a convolution
    turns: int = 0  # of each convolution: kernels that turn its tensors
    turn_us: float = 0.0
    attention: str = "flash"  # flash, math
    math_layers: int = 0  # of which; 0 = all
    positions: int = 1024  # of a sequence
    head_dim: int = 64
    cast_up: bool = True  # the math path computes in fp32 (torch since 2.5), by as many times slower products
    fp32_slower: float = 14.0
    masked: bool = True
    scaled: bool = True  # queries and keys, by the path
    tflops: float = 220.0  # of matrix products
    gbps: float = 1600.0  # of the device's memory
    fused_share: float = 0.6  # of tflops, that a fused attention kernel reaches
    shapes: bool = False  # they are recorded
    fills: int = 0  # kernels that write zeros before each step
    fill_us: float = 0.0
    recompute: bool = False
    memory_peak: float = 0.0  # of the device's memory, as the profiler tells it; 0 = it does not
    tune_every: int = 0  # in every n-th step each convolution is measured anew
    tunes: int = 0  # candidates
    tune_us: float = 0.0  # each
    casts: str = ""  # by hand, autocast
    cast_us: float = 0.0
    compile_every: int = 0
    compile_us: float = 0.0
    blocking: bool = False  # a launch returns when its kernel is through
    checks: bool = False  # each node of autograd is searched for NaN
    stack_us: float = 90.0  # and each operator of forward keeps its stack so long
    log_every: int = 0
    log_us: float = 0.0
    log_call: str = ""
    cold_steps: int = 0  # these many steps load what they need
    cold_us: float = 0.0  # for one call of each operator
    small_layers: int = 0  # whose kernels have few blocks
    blocks: int = 216
    devices: int = 1  # of one process, layers spread over them
    pipelined: bool = False  # they need not wait for each other
    search_us: float = 0.0  # DDP's for unused parameters, of the host
    copy_back_us: float = 0.0  # DDP's out of each bucket, of the device
    link_from: int = 0  # step from which on transfers take so many times as long
    link_factor: float = 1.0
    cuda: int = 12040

    def without(self, **fields):
        return dataclasses.replace(copy.copy(self), **fields)


@dataclasses.dataclass
class Event:
    cat: str
    name: str
    tid: int
    ts: float
    dur: float
    args: dict
    device: int = 0  # of its process


class Rank:
    """One process: a main thread, autograd's thread, and the streams of its device."""
    MAIN, AUTOGRAD, PIN = 1001, 1033, 1044

    def __init__(self, job, rank):
        self.job, self.rank = job, rank
        self.t = 0.0
        self.events = []
        self.free = collections.defaultdict(float)  # stream -> when its last work ends
        self.queue = collections.deque()  # ends of launched kernels, in order
        self.correlation = 100 + rank
        self.external = 0
        self.sequence = collections.Counter()  # thread -> numbers of its operators that autograd knows
        self.nodes = {}  # (layer, operator of it) -> those of the last forward
        self.section = None
        self.device_no = 0  # on which it launches
        self.blocks = job.blocks
        self.cold_us = 0.0  # of the next launch

    # -- noise: of a place, not of a sequence, so that a cause that is taken away changes nothing else --

    def at(self, *place):
        self.section = random.Random(f"{self.job.seed}/{self.rank}/{'/'.join(map(str, place))}")

    def host(self, us):
        return us * self.section.lognormvariate(0, self.job.host_noise)

    @contextlib.contextmanager
    def apart(self, *place):
        """What is done in here has noise of its own, and leaves that of what follows as it is."""
        before = self.section
        self.at("apart", *place)
        yield
        self.section = before

    def device(self, us):
        return max(1.2, us * self.section.gauss(1, self.job.device_noise))

    # -- host --

    def emit(self, cat, name, ts, dur, tid=None, **args):
        e = Event(cat, name, tid or self.tid, ts, dur, args)
        self.events.append(e)
        return e

    def open(self, name, cat="cpu_op", **args):
        self.external += 1
        args = {"External id": self.external, **args}
        return self.emit(cat, name, self.t, 0.0, **args)

    def close(self, e):
        e.dur = max(self.t - e.ts, 0.05)

    def runtime(self, name, us, **args):
        self.correlation += 1
        e = self.emit("cuda_runtime", name, self.t, us, correlation=self.correlation,
                      **{"External id": self.external}, **args)
        self.t += us
        return e

    def launch(self, kernel, us, stream=COMPUTE, after=0.0, call="cudaLaunchKernel", cat="kernel", **args):
        """Launch; returns when it ends on the device."""
        while self.queue and self.queue[0] <= self.t:
            self.queue.popleft()
        cost = self.host(self.job.launch_us) + self.cold_us
        self.cold_us = 0.0
        if len(self.queue) >= QUEUE:
            cost += max(0.0, self.queue.popleft() - self.t)
        begin = self.t
        e = self.runtime(call, cost)
        queue = self.stream(stream)
        if not self.job.pipelined and self.job.devices > 1:
            after = max(after, *(self.free[stream + 100 * d] for d in range(self.job.devices)))
        start = max(begin + self.job.latency_us, self.t, self.free[queue], after)
        end = start + us
        self.free[queue] = end + 0.9  # the gap that streams have between two kernels
        self.queue.append(end)
        if self.job.blocking and end > self.t:
            self.t = end + 2.0
            e.dur = self.t - begin
        if cat == "kernel":
            args = {"grid": [self.blocks, 1, 1], "block": [256, 1, 1], "registers per thread": 64, "shared memory": 0,
                    "blocks per SM": 2.0, "warps per SM": 16.0, "est. achieved occupancy %": 50, "queued": 0, **args}
        self.emit(cat, kernel, start, us, tid=stream, correlation=e.args["correlation"], device=0, context=1,
                  stream=stream, **{"External id": self.external}, **args).device = self.device_no
        return end

    def stream(self, stream):
        return stream + 100 * self.device_no

    def wait_for(self, name, until):
        """A call that returns when the device has come to `until`."""
        begin = self.t
        e = self.runtime(name, self.host(4.0))
        if until > self.t:
            self.t = until + 3.0
            e.dur = self.t - begin

    def item(self, name="aten::item"):
        outer = self.open(name)
        self.t += self.host(2.0)
        inner = self.open("aten::_local_scalar_dense")
        self.t += self.host(3.0)
        end = self.launch("Memcpy DtoH (Device -> Pageable)", 1.6, call="cudaMemcpyAsync", cat="gpu_memcpy",
                          bytes=4, **{"memory bandwidth (GB/s)": 0.002})
        self.wait_for("cudaStreamSynchronize", end)
        self.t += self.host(2.0)
        self.close(inner)
        self.close(outer)


GEMM = {True: "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", False: "ampere_sgemm_128x128_tn"}
ELEMENT = "void at::native::vectorized_elementwise_kernel<4, at::native::{}, at::detail::Array<char*, 3> >(int, {}, at::detail::Array<char*, 3>)"
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float, c10::BFloat16 const*, c10::BFloat16 const*, c10::BFloat16 const*, float*, float*, c10::BFloat16*)"
FLASH = "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t> >(pytorch_flash::Flash_fwd_params)"

# operator, the one inside that launches, kernel, share of the layer's device time
LAYER = (("aten::linear", "aten::addmm", "gemm", 1.8), ("aten::scaled_dot_product_attention", "aten::_flash_attention_forward", FLASH, 0.9),
         ("aten::linear", "aten::addmm", "gemm", 1.0), ("aten::add", None, ELEMENT.format("CUDAFunctor_add<float>", "CUDAFunctor_add<float>"), 0.35),
         ("aten::layer_norm", "aten::native_layer_norm", NORM, 0.35), ("aten::gelu", None, ELEMENT.format("GeluCUDAKernelImpl", "Gelu"), 0.6))

BACKWARD = {"gemm": 1.0, FLASH: 2.5}  # as long as forward, each of its kernels


def numbered(rank, place=None):
    """Arguments of an operator of forward that makes a node, which its place will ask for."""
    rank.sequence[rank.tid] += 1
    if place and rank.tid == Rank.MAIN:
        rank.nodes[place] = rank.sequence[rank.tid]
    return {"Sequence number": rank.sequence[rank.tid], "Fwd thread id": 0}


def of_node(rank, place):
    return {"Sequence number": rank.nodes[place], "Fwd thread id": 1} if place in rank.nodes else {}


def factor(job, rank, step):
    slow = rank.rank == job.slow_rank and step % job.slow_every == 0
    work = random.Random(f"{job.seed}/work/{step}").gauss(0, job.work_noise)
    own = random.Random(f"{job.seed}/{rank.rank}/work/{step}").gauss(0, job.rank_noise)
    return (job.slow_factor if slow else 1.0) * (1 + job.drift * step / max(job.steps - 1, 1)) * math.exp(work + own)


def matrix_dims(job, name, us):
    """Two operations for each element of A and column of B."""
    if not job.shapes:
        return {}
    k = 1024
    shapes = [[max(1, round(us * job.tflops * 1e6 / (2 * k * k))), k], [k, k]]
    return {"Input Dims": [[k], *shapes, [], []] if name == "aten::addmm" else shapes}


def operator(rank, name, inner, kernel, us, tensor=True, place=None):
    job = rank.job
    dims = matrix_dims(job, inner or name, us) if kernel == "gemm" else {}
    outer = rank.open(name, **(numbered(rank, place) if place else {} if inner else dims))
    rank.t += rank.host(job.op_us * 0.35)
    if job.checks and place:
        rank.t += job.stack_us
    deep = rank.open(inner, **dims) if inner else None
    rank.t += rank.host(job.op_us * 0.2)
    rank.launch(GEMM[tensor] if kernel == "gemm" else kernel, rank.device(us))
    rank.t += rank.host(job.op_us * 0.15)
    if deep:
        rank.close(deep)
    rank.close(outer)
    rank.t += rank.host(job.op_us * 0.3)


class Loader:
    """Workers with a bounded number of batches ahead; the k-th batch is worker k % n's."""

    def __init__(self, job, rank):
        self.job, self.rank = job, rank
        if job.ahead:
            self.ready, self.free = [0.0] * (job.workers * job.prefetch), [0.0] * job.workers
            return
        self.ready = []
        # The window opens on workers that are at it, one after the other.
        self.free = [(w + 1) / job.workers * job.batch_us - job.batch_us for w in range(job.workers)]
        for k in range(job.workers * job.prefetch):
            self.produce(k, 0.0)

    def produce(self, k, asked):
        job = self.job
        draw = random.Random(f"{job.seed}/{self.rank.rank}/batch/{k}")
        cost = job.batch_us * draw.lognormvariate(0, 0.05)
        if job.burst_every and k % job.burst_every == job.burst_every - 1:
            cost += job.burst_us
        w = k % len(self.free)
        self.free[w] = (max(asked, self.free[w]) if asked else self.free[w]) + cost
        self.ready.append(self.free[w])

    def next(self, k):
        job, rank = self.job, self.rank
        if job.loader == "none":
            return
        kind = "_MultiProcessingDataLoaderIter" if job.loader == "workers" else "_SingleProcessDataLoaderIter"
        e = rank.open(f"enumerate(DataLoader)#{kind}.__next__", cat="user_annotation")
        rank.at("load", k)
        if job.loader == "main":
            end = rank.t + rank.host(job.batch_us)
            if job.burst_every and k % job.burst_every == job.burst_every - 1:
                end += job.burst_us
            while rank.t < end:
                op = rank.open("aten::stack")
                rank.t = min(end, rank.t + rank.host(max(job.batch_us / 8, 20)))
                rank.close(op)
                rank.t = min(end, rank.t + 5)
        else:
            rank.t = max(rank.t, self.ready[k]) + rank.host(90.0)
            self.produce(k + job.workers * job.prefetch, rank.t)
        rank.close(e)


def copy_batch(rank):
    job = rank.job
    n = int(job.copy_mb * 1e6)
    if not n:
        return
    us = n / (job.copy_gbps * (1.0 if job.pinned else 0.35)) / 1e3
    op = rank.open("aten::to")
    deep = rank.open("aten::_to_copy")
    inner = rank.open("aten::copy_")
    rank.t += rank.host(4.0)
    kind = "Memcpy HtoD (Pinned -> Device)" if job.pinned else "Memcpy HtoD (Pageable -> Device)"
    stream = COPY if job.copy_stream else COMPUTE
    end = rank.launch(kind, us, stream=stream, call="cudaMemcpyAsync", cat="gpu_memcpy", bytes=n,
                      **{"memory bandwidth (GB/s)": n / us / 1e3})
    if not job.pinned:
        # The driver stages pageable memory through a buffer of its own: the call returns when it is through.
        rank.events[-2].dur = end - rank.events[-2].ts
        rank.t = max(rank.t, end)
        rank.wait_for("cudaStreamSynchronize", end)
    for e in (inner, deep, op):
        rank.close(e)
    if job.copy_stream:
        rank.free[COMPUTE] = max(rank.free[COMPUTE], 0.0)


def allocate(rank):
    job = rank.job
    for _ in range(job.mallocs):
        op = rank.open("aten::empty")
        rank.runtime("cudaMalloc", rank.host(job.malloc_us))
        rank.close(op)
        # cudaFree waits until the device is idle (CUDA programming guide, implicit synchronisation).
        begin = rank.t
        e = rank.runtime("cudaFree", rank.host(job.malloc_us * 0.6))
        idle = max(rank.free[COMPUTE], rank.free[COMM])
        if idle > rank.t:
            rank.t = idle + 5
            e.dur = rank.t - begin


def all_reduce(rank, step, bucket, mb):
    """Coroutine: gives (place, start, transfer time), gets when it ends on every rank."""
    job = rank.job
    ranks = str(list(range(job.world)))
    meta = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": int(mb * 262144), "Out msg nelems": int(mb * 262144),
            "Group size": job.world, "Process Group Name": "0", "Process Group Description": "default_pg",
            "Process Group Ranks": ranks, "Seq": step * 1000 + bucket}
    op = rank.open("c10d::allreduce_")
    rank.t += rank.host(6.0)
    note = rank.open("nccl:all_reduce", cat="user_annotation")
    inner = rank.open("record_param_comms", **meta)
    rank.t += rank.host(8.0)
    begin = rank.t
    call = rank.runtime("cudaLaunchKernelExC", rank.host(5.0))
    stream = COMM if job.overlap else COMPUTE
    start = max(begin + job.latency_us, rank.free[stream], rank.free[COMPUTE])
    us = (job.link_factor if job.link_from <= step else 1.0) * (12.0 + mb * 1e6 * 2 * (job.world - 1) / job.world / (job.bus_gbps * 1e3))
    end = yield (step, bucket), start, us
    rank.free[stream] = max(rank.free[stream], end + 0.9)
    rank.queue.append(end)
    rank.emit("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", start, end - start,
              tid=stream, correlation=call.args["correlation"], device=0, context=1, stream=stream,
              grid=[24, 1, 1], block=[544, 1, 1], **{"registers per thread": 96, "shared memory": 87568, "queued": 0,
              "blocks per SM": 0.2, "warps per SM": 3.0, "est. achieved occupancy %": 0, "External id": rank.external}, **meta)
    for e in (inner, note, op):
        rank.close(e)


def forward_layer(rank, step, layer, each):
    job = rank.job
    for k, (name, inner, kernel, share) in enumerate(LAYER):
        if not extras.instead(rank, (step, layer, k), name, kernel, each * share):
            operator(rank, name, inner, kernel, each * share, job.tensor_cores, (layer, k))


def one_step(rank, loader, step):
    job = rank.job
    slow = factor(job, rank, step)
    rank.tid = Rank.MAIN
    mark = rank.open(f"ProfilerStep#{job.first_step + step}", cat="user_annotation")
    loader.next(step)
    rank.at("copy", step)
    copy_batch(rank)
    rank.at("pause", step)
    if job.pause_every and step % job.pause_every == job.pause_every - 1:
        rank.t += job.pause_us
    each = job.kernel_us * slow
    extras.before_forward(rank, step)
    rank.at("forward", step)
    for layer in range(job.layers):
        extras.place(rank, layer)
        forward_layer(rank, step, layer, each)
        if job.items and layer % max(job.layers // job.items, 1) == 0:
            rank.item()
        if layer == job.layers // 2 and job.mallocs:
            allocate(rank)
    extras.before_backward(rank, step)
    # backward: autograd's thread launches, the main thread waits for it
    rank.tid = Rank.AUTOGRAD
    rank.at("backward", step)
    buckets = max(1, round(job.grad_mb / job.bucket_mb)) if job.world > 1 and job.grad_mb else 0
    for layer in range(job.layers):
        extras.place(rank, job.layers - 1 - layer)
        for k, (name, _, kernel, share) in enumerate(reversed(LAYER)):
            node = {"gemm": "AddmmBackward0", FLASH: "ScaledDotProductFlashAttentionBackward0", NORM: "NativeLayerNormBackward0"}.get(
                kernel, "GeluBackward0" if name == "aten::gelu" else "AddBackward0")
            at = job.layers - 1 - layer
            if kernel == FLASH and extras.is_math(job, at):
                extras.attention_backward(rank, step, at, each * share)
                continue
            made = of_node(rank, (at, len(LAYER) - 1 - k))
            outer = rank.open(f"autograd::engine::evaluate_function: {node}", **made)
            if job.recompute and k == 0:  # what its first node needs was not kept
                with rank.apart("again", step, layer):
                    forward_layer(rank, step, layer, each)
            inner = rank.open(node, **made)
            for part in range(2 if kernel == "gemm" else 1):
                operator(rank, "aten::mm" if kernel == "gemm" else f"{name}_backward", None,
                         kernel.replace("fwd", "bwd"), each * share * BACKWARD.get(kernel, 1.6), job.tensor_cores)
            rank.close(inner)
            extras.check(rank, (step, layer, k), 2 if kernel == "gemm" else 1, each * 0.35)
            rank.close(outer)
        done = (layer + 1) * buckets // job.layers
        for b in range(layer * buckets // job.layers, done):
            if job.overlap:
                yield from all_reduce(rank, step, b, job.grad_mb / buckets)
    if not job.overlap:
        for b in range(buckets):
            yield from all_reduce(rank, step, b, job.grad_mb / buckets)
    extras.place(rank, 0)
    if buckets:
        extras.copy_back(rank, step, buckets)
        rank.runtime("cudaStreamWaitEvent", rank.host(1.2))
        rank.free[COMPUTE] = max(rank.free[COMPUTE], rank.free[COMM])
    rank.tid = Rank.MAIN
    rank.t += rank.host(30.0)
    rank.at("optimizer", step)
    opt = rank.open("Optimizer.step#AdamW.step", cat="user_annotation")
    if job.optimizer == "single":
        for _ in range(job.params):
            for name, kernel in (("aten::mul_", "MulFunctor<float>"), ("aten::lerp_", "lerp_scalar_kernel"), ("aten::mul_", "MulFunctor<float>"),
                                 ("aten::addcmul_", "addcmul_cuda_kernel"), ("aten::sqrt", "sqrt_kernel_cuda"), ("aten::addcdiv_", "addcdiv_cuda_kernel")):
                operator(rank, name, None, ELEMENT.format(kernel, kernel), 2.2)
    else:
        for _ in range(max(1, job.params // 60)):
            operator(rank, "aten::_fused_adamw_" if job.optimizer == "fused" else "aten::_foreach_lerp_", None,
                     "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)1, false> >()", each * 0.8)
    rank.close(opt)
    rank.at("end", step)
    if job.save_every and step % job.save_every == job.save_every - 1:
        save(rank)
    if (job.read_loss and step % job.read_loss == job.read_loss - 1) or step == job.steps - 1:
        rank.item()
    extras.at_end(rank, step)
    rank.t += rank.host(25.0)
    rank.close(mark)


def save(rank):
    """torch.save of a model on the device: every tensor is copied to the host, then written."""
    job = rank.job
    for _ in range(min(job.params, 40)):
        op = rank.open("aten::to")
        end = rank.launch("Memcpy DtoH (Device -> Pageable)", 180.0, call="cudaMemcpyAsync", cat="gpu_memcpy", bytes=2_000_000,
                          **{"memory bandwidth (GB/s)": 11.0})
        rank.wait_for("cudaStreamSynchronize", end)
        rank.close(op)
        rank.t += rank.host(10.0)
    rank.t += job.save_us


def run(job):
    """Simulate: ([Rank], wall time of the window in us)."""
    ranks = [Rank(job, r) for r in range(job.world)]
    loaders = [Loader(job, r) for r in ranks]

    def whole(rank, loader):
        for step in range(job.steps):
            yield from one_step(rank, loader, step)

    threads = [whole(r, l) for r, l in zip(ranks, loaders)]
    waiting = [next(t, None) for t in threads]
    while any(w is not None for w in waiting):
        places = {w[0] for w in waiting if w is not None}
        assert len(places) == 1, "ranks parted"
        # It moves data once all are there, and ends everywhere at about the same time.
        end = max(w[1] for w in waiting) + waiting[0][2]
        nxt = []
        for t in threads:
            try:
                nxt.append(t.send(end))
            except StopIteration:
                nxt.append(None)
        waiting = nxt
    return ranks, max(r.t for r in ranks)
