# SPDX-License-Identifier: Apache-2.0
"""A torch.profiler trace of one rank with a device, made up: steps of a wait for the batch, launches and kernels."""
import json

EPOCH_US = 1_763_800_000_000_000  # 2025-11-22


def device_trace(path, pid=7, rank=None, start_s=0, steps=12, loader_us=0, kernels=20, kernel_us=500, gap_us=0, first=100,
                 copy_us=0, comm_us=0, padding=0):
    """Each step: loader_us of waiting, a copy, `kernels` kernels that the host launches in time, gap_us apart, and a
    collective. padding: so many operators more a step."""
    events, now, corr = [], EPOCH_US + start_s * 1_000_000, 0

    def host(cat, name, ts, dur, **args):
        events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": pid, "ts": ts, "dur": dur, "args": args})

    def device(cat, name, ts, dur, stream=7, **args):
        nonlocal corr
        corr += 1
        host("cuda_runtime", "cudaMemcpyAsync" if cat == "gpu_memcpy" else "cudaLaunchKernel", ts - 30, 5, correlation=corr)
        events.append({"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur,
                       "args": {"device": 0, "stream": stream, "correlation": corr, **args}})

    for step in range(steps):
        begin = now
        if loader_us:
            host("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", now, loader_us)
            now += loader_us
        now += 40
        if copy_us:
            device("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", now, copy_us, bytes=copy_us * 10_000)
            now += copy_us
        for k in range(kernels):
            host("cpu_op", "aten::mm", now - 35, 20)
            device("kernel", f"gemm_{k % 3}", now, kernel_us)
            now += kernel_us + gap_us
        if comm_us:
            device("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", now, comm_us)
            now += comm_us
        for k in range(padding):
            host("cpu_op", "aten::view", begin + k % 50, 1, **{"Input Dims": [[32, 32]], "Call stack": "x" * 175})
        host("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", now - 400, 100)
        host("user_annotation", "Optimizer.step#SGD.step", now - 200, 100)
        host("user_annotation", f"ProfilerStep#{first + step}", begin, now - begin)
    doc = {"schemaVersion": 1, "traceEvents": events,
           "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "computeMajor": 9, "computeMinor": 0}]}
    if rank is not None:
        doc["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 2}
    path.write_text(json.dumps(doc))
    return path
