# SPDX-License-Identifier: Apache-2.0
"""What else a step of job.py may do, each switched on by fields of its Job: what torch and its libraries do when they
are told to, with the rows that torch.profiler writes of it."""
COMPUTE, COMM = 7, 20  # streams
CONV = "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_tensor16x8x16_kernel_cudnn"
TURN = ("void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float, false, true, (cudnnKernelDataType_t)9>(cudnn::ops::nchw2nhwc_params_t<float>, __nv_bfloat16 const*, __nv_bfloat16*)",
        "void cudnn::ops::nhwcToNchwKernel<__nv_bfloat16, __nv_bfloat16, float, true, false, (cudnnKernelDataType_t)9>(cudnn::ops::nhwc2nchw_params_t<float>, __nv_bfloat16 const*, __nv_bfloat16*)")
BMM = "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_nn"
SGEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas"
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 10, false, false>(c10::BFloat16*, c10::BFloat16 const*, int, int, int, bool const*, int, bool)"
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, at::detail::Array<char*, 1> >(int, at::native::FillFunctor<float>, at::detail::Array<char*, 1>)"
CAST = "void at::native::unrolled_elementwise_kernel<at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}>(int)"
COPY = "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>(int)"
ISNAN = "void at::native::vectorized_elementwise_kernel<4, at::native::isnan_kernel>(int)"
ANY = "void at::native::reduce_kernel<512, 1, at::native::or_kernel_cuda>(at::native::ReduceOp)"


def op(rank, names, kernel, us, host_us=6.0, cat="cpu_op", **args):
    """Operators one inside the other, and the kernel that the innermost launches."""
    rows = [rank.open(n, cat, **args) for n in names]
    rank.t += rank.host(host_us)
    if kernel:
        rank.launch(kernel, rank.device(us))
    rank.t += rank.host(host_us * 0.3)
    for e in reversed(rows):
        rank.close(e)


def place(rank, layer):
    """Where this layer lies, and how much of the device its kernels fill."""
    job = rank.job
    rank.blocks = job.blocks if layer < job.small_layers or not job.small_layers else 512
    rank.device_no = layer * job.devices // job.layers if job.devices > 1 else 0


def before_forward(rank, step):
    job = rank.job
    place(rank, 0)
    if job.compile_every and step % job.compile_every == job.compile_every - 1:
        with rank.apart("compile", step):
            outer = rank.open("Torch-Compiled Region: 0/0")
            e = rank.open("_compile.compile_inner (dynamo_timed)", cat="user_annotation")
            rank.t += rank.host(job.compile_us)
            rank.close(e)
            rank.close(outer)
    if job.fills:
        with rank.apart("zero", step):
            note = rank.open("Optimizer.zero_grad#AdamW.zero_grad", cat="user_annotation")
            for _ in range(job.fills):
                op(rank, ["aten::zero_", "aten::fill_"], FILL, job.fill_us, 2.0)
            rank.close(note)


def before_backward(rank, step):
    job = rank.job
    if job.search_us:
        with rank.apart("search", step):
            e = rank.open("torch.distributed.ddp.reducer::search_unused_parameters", cat="user_annotation")
            rank.t += rank.host(job.search_us)
            rank.close(e)


def copy_back(rank, step, buckets):
    job = rank.job
    if not job.copy_back_us:
        return
    with rank.apart("back", step):
        # Behind the reduction, of which the compute stream takes over.
        rank.free[COMPUTE] = max(rank.free[COMPUTE], rank.free[COMM])
        for _ in range(buckets):
            e = rank.open("torch.distributed.ddp.reducer::copy_bucket_to_grad", cat="user_annotation")
            op(rank, ["aten::copy_"], COPY, job.copy_back_us / buckets, 4.0)
            rank.close(e)


def check(rank, at, outputs, us):
    """Autograd's anomaly detection (engine.cpp): is there a NaN in what the node returns? The host waits for each answer. us: what
    an operator takes that reads two tensors and writes one."""
    if not rank.job.checks:
        return
    with rank.apart("check", *at):
        for _ in range(outputs):
            op(rank, ["aten::isnan", "aten::ne"], ISNAN, us / 2)
            op(rank, ["aten::_is_any_true", "aten::any"], ANY, us / 6)
            rank.item()


def at_end(rank, step):
    job = rank.job
    if job.log_every and step % job.log_every == job.log_every - 1:
        with rank.apart("log", step):
            caller = rank.open("train.py(88): report", cat="python_function")
            rank.t += 3
            e = rank.open(job.log_call, cat="python_function")
            rank.t += rank.host(job.log_us)
            rank.close(e)
            rank.t += 3
            rank.close(caller)


def is_math(job, layer):
    return job.attention == "math" and (not job.math_layers or layer < job.math_layers)


def instead(rank, at, name, kernel, us):
    """True: the operator was run, in a way that job.py's plain one does not know."""
    job = rank.job
    step = at[0]
    if step < job.cold_steps and at[1] == 0:
        rank.cold_us = job.cold_us  # its module is loaded by the first launch
    if name == "aten::scaled_dot_product_attention" and is_math(job, at[1]):
        attention(rank, at, us)
        return True
    if kernel != "gemm":
        return False
    if job.convs and at[2] == 0:
        convolution(rank, at, us)
        return True
    if job.casts:
        linear(rank, at, us)
        return True
    return False


class Path:
    """What the math path's kernels take, by what they read, write and multiply, of as many heads as a fused kernel takes `us` for."""

    def __init__(self, job, us):
        n, d = job.positions, job.head_dim
        fused = max(4 * n * n * d / (job.fused_share * job.tflops * 1e6), 8 * n * d / (job.gbps * 1e3))
        self.job, self.heads = job, us / fused
        self.n, self.d, self.size = n, d, 4 if job.cast_up else 2

    def moves(self, elements, size=0):
        return self.heads * elements * (size or self.size) / (self.job.gbps * 1e3)

    def product(self):
        rate = self.job.tflops * 1e6 / (self.job.fp32_slower if self.job.cast_up else 1)
        return max(self.heads * 2 * self.n * self.n * self.d / rate, self.moves(2 * self.n * self.d + self.n * self.n))

    def dims(self):
        shape = [1, max(1, round(self.heads)), self.n, self.d]
        return {"Input Dims": [shape, shape, shape, [], [], [], [], [], []]} if self.job.shapes else {}


def steps_of(path):
    """[(operator, those inside, its node, forward's kernel and us, backward's)]: torch/.../transformers/attention.cpp."""
    job, one, all_ = path.job, path.n * path.d, path.n * path.n
    bmm = SGEMM if job.cast_up else BMM
    cast = ("aten::to", ["aten::_to_copy", "aten::copy_"], "ToCopyBackward0", [(COPY, path.moves(3 * one, 2))], [(COPY, path.moves(3 * one, 2))])
    scale = ("aten::mul", [], "MulBackward0", [(COPY, path.moves(2 * one))], [(COPY, path.moves(2 * one))])
    product = ("aten::matmul", ["aten::bmm"], "BmmBackward0", [(bmm, path.product())], [(bmm, path.product())] * 2)
    mask = ("aten::add", [], "AddBackward0", [(COPY, path.moves(2 * all_))], [])
    softmax = [("aten::softmax", ["aten::_softmax"], "SoftmaxBackward0", [(SOFTMAX, path.moves(2 * all_))], [(SOFTMAX, path.moves(3 * all_))])]
    if job.cast_up:  # _safe_softmax looks for rows that are masked out, and the weights are cast back
        softmax = [("aten::_safe_softmax", ["aten::softmax", "aten::_softmax"], "SafeSoftmaxBackward0",
                    [(SOFTMAX, path.moves(2 * all_)), (ISNAN, path.moves(1.25 * all_)), (ANY, path.moves(0.25 * all_))],
                    [(SOFTMAX, path.moves(3 * all_))]), ("aten::to", ["aten::_to_copy", "aten::copy_"], "", [(COPY, path.moves(1.5 * all_))], [])]
    casts = [cast] * 3 if job.cast_up else []
    return [*casts, *([scale, scale] if job.scaled else []), product, *([mask] if job.masked else []), *softmax, product, *casts[:1]]


def attention(rank, at, us):
    job, path = rank.job, Path(rank.job, us)
    rows = [rank.open("aten::scaled_dot_product_attention"),
            rank.open("aten::_scaled_dot_product_attention_math", **{"Sequence number": rank.sequence[rank.tid] + 1, "Fwd thread id": 0}, **path.dims())]
    rank.t += rank.host(job.op_us * 0.3)
    made = []
    with rank.apart("math", *at):
        for name, inner, node, kernels, _ in steps_of(path):
            if node:
                rank.sequence[rank.tid] += 1
                made.append(rank.sequence[rank.tid])
            several(rank, [name, *inner], kernels, **({"Sequence number": made[-1], "Fwd thread id": 0} if node else {}))
    if rank.tid == rank.MAIN:
        rank.nodes[at[1], "math"] = made
    for e in reversed(rows):
        rank.close(e)
    rank.t += rank.host(job.op_us * 0.3)


def attention_backward(rank, step, layer, us):
    nodes = [s for s in steps_of(Path(rank.job, us)) if s[2]]
    with rank.apart("math back", step, layer):
        for (name, inner, node, _, kernels), number in reversed(list(zip(nodes, rank.nodes[layer, "math"]))):
            made = {"Sequence number": number, "Fwd thread id": 1}
            outer, own = rank.open(f"autograd::engine::evaluate_function: {node}", **made), rank.open(node, **made)
            for kernel in kernels:
                several(rank, [inner[-1] if inner else name], [kernel])
            rank.close(own)
            rank.close(outer)


def several(rank, names, kernels, **args):
    """Operators one inside the other, the outermost with these arguments, and what the innermost launches."""
    rows = [rank.open(n, **(args if n == names[0] else {})) for n in names]
    for kernel, us in kernels:
        rank.t += rank.host(rank.job.op_us * 0.3)
        rank.launch(kernel, rank.device(us))
    for e in reversed(rows):
        rank.close(e)


def convolution(rank, at, us):
    job = rank.job
    rows = [rank.open(n) for n in ("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution")]
    rank.t += rank.host(job.op_us * 0.55)
    with rank.apart("turn", *at):
        if job.tune_every and at[0] % job.tune_every == job.tune_every - 1:
            for _ in range(job.tunes):
                rank.runtime("cudaEventRecord", rank.host(1.5))
                end = rank.launch(CONV, rank.device(job.tune_us))
                rank.runtime("cudaEventRecord", rank.host(1.5))
                rank.wait_for("cudaEventSynchronize", end)
        for k in range(job.turns):
            rank.launch(TURN[k % 2 if k < job.turns - 1 else 1], rank.device(job.turn_us))
    rank.launch(CONV, rank.device(us))
    rank.t += rank.host(job.op_us * 0.15)
    for e in reversed(rows):
        rank.close(e)
    rank.t += rank.host(job.op_us * 0.3)


HALF, FULL = "c10::BFloat16", "float"


def cast(rank, us):
    rows = [rank.open("aten::to", **{"Input type": [FULL, "Scalar", "", "", ""]}),
            rank.open("aten::_to_copy", **{"Input type": [FULL, "Scalar", "", "", "", ""]}),
            rank.open("aten::copy_", **{"Input type": [HALF, FULL, ""]})]
    rank.t += rank.host(3.0)
    rank.launch(CAST, rank.device(us))
    for e in reversed(rows):
        rank.close(e)


def linear(rank, at, us):
    """A matrix operator and what its inputs are cast by: two by hand before it, or autocast's one inside."""
    job = rank.job
    typed = {"Input type": [HALF, HALF, HALF]}
    if job.casts == "by hand":
        with rank.apart("cast", *at):
            cast(rank, job.cast_us)
            cast(rank, job.cast_us)
    outer = rank.open("aten::linear", **typed if job.casts == "by hand" else {"Input type": [FULL, FULL, FULL]})
    pair = None
    if job.casts == "autocast":
        with rank.apart("cast", *at):
            cast(rank, job.cast_us)
        pair = rank.open("aten::linear", **typed)
    rank.t += rank.host(job.op_us * 0.35)
    inner = rank.open("aten::addmm", **{"Input type": [HALF, HALF, HALF, "Scalar", "Scalar"]})
    rank.t += rank.host(job.op_us * 0.2)
    rank.launch("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", rank.device(us))
    rank.t += rank.host(job.op_us * 0.15)
    for e in (inner, pair, outer):
        if e:
            rank.close(e)
    rank.t += rank.host(job.op_us * 0.3)
