# SPDX-License-Identifier: Apache-2.0
"""What else a step of job.py may do, each switched on by fields of its Job: what torch and its libraries do when they
are told to, with the rows that torch.profiler writes of it."""
COMPUTE, COMM = 7, 20  # streams
CONV = "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_tensor16x8x16_kernel_cudnn"
TURN = ("void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float, false, true, (cudnnKernelDataType_t)9>(cudnn::ops::nchw2nhwc_params_t<float>, __nv_bfloat16 const*, __nv_bfloat16*)",
        "void cudnn::ops::nhwcToNchwKernel<__nv_bfloat16, __nv_bfloat16, float, true, false, (cudnnKernelDataType_t)9>(cudnn::ops::nhwc2nchw_params_t<float>, __nv_bfloat16 const*, __nv_bfloat16*)")
BMM = "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_nn"
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


def check(rank, step, layer, k):
    """Autograd's anomaly detection: is there a NaN in what the node returns? The host waits for the answer."""
    if not rank.job.checks:
        return
    with rank.apart("check", step, layer, k):
        op(rank, ["aten::isnan", "aten::ne"], ISNAN, 3.0)
        op(rank, ["aten::any"], ANY, 3.0)
        outer = rank.open("aten::is_nonzero")
        rank.item()
        rank.close(outer)


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
        attention(rank, at, us * job.math_factor)
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


def attention(rank, at, us):
    job = rank.job
    rows = [rank.open("aten::scaled_dot_product_attention"), rank.open("aten::_scaled_dot_product_attention_math")]
    rank.t += rank.host(job.op_us * 0.3)
    with rank.apart("math", *at):
        op(rank, ["aten::matmul", "aten::bmm"], BMM, us * 0.3, job.op_us * 0.3)
        op(rank, ["aten::softmax", "aten::_softmax"], SOFTMAX, us * 0.4, job.op_us * 0.3)
        op(rank, ["aten::matmul", "aten::bmm"], BMM, us * 0.3, job.op_us * 0.3)
    for e in reversed(rows):
        rank.close(e)
    rank.t += rank.host(job.op_us * 0.3)


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
