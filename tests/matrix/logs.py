# SPDX-License-Identifier: Apache-2.0
"""Draws of what logs and snapshots tell beside texts.py: what torch warns of, processes that end, requests for memory
that fail, NCCL's word on links, snapshots of the allocator. Nothing of it has a price: it is true that it was planned.

Functions as in texts.py. Sentences are torch's, torchrun's, NCCL's, the driver's and Slurm's own.
"""
import datetime
import pathlib
import random
import sys

from texts import START

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
import snapshot_draws  # noqa: E402

LIB = "/venv/lib/python3.11/site-packages/torch/"
# Like what is looked for, and nothing of it.
HERRINGS = ("INFO watching for CUDA out of memory errors", "INFO torch.compile is off", "INFO detect_anomaly=False num_workers=4",
            "INFO worker 3 of 4 finished warm-up", "INFO find_unused_parameters: false", "WARNING a checkpoint is missing, starting from scratch",
            "INFO max retries of requests: 3", "INFO exit code of the last job was 0", "INFO loading 128 shards, 0 failed")


def loop(rng, n, now=START):
    """Lines of a loop that steps, and the time of the last."""
    step, lines, first = rng.uniform(0.05, 3.0), [], rng.randint(0, 4000)
    for i in range(n):
        now += datetime.timedelta(seconds=step * rng.gauss(1, 0.02))
        lines.append(f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03d} INFO step {first + i} loss {4 - i / n:.4f} step_time {step * rng.gauss(1, 0.01):.4f}s")
    for text in rng.sample(HERRINGS, rng.randint(0, 4)):
        lines.insert(rng.randrange(len(lines)), f"{START:%Y-%m-%d %H:%M:%S},000 {text}")
    return lines, now


def written(folder, lines, ill):
    path = folder / "job.log"
    path.write_text("\n".join(lines) + "\n")
    return [path], [ill] if ill else [], None


def hint(rng, folder, ill):
    """A warning of torch's, once or for each rank, somewhere before the loop or in it."""
    lines, now = loop(rng, rng.randint(20, 300))
    have, want = rng.randint(1, 64), rng.randint(1, 128)
    said = {
        "data.workers_oversubscribed": [f"{LIB}utils/data/dataloader.py:{rng.choice([557, 617, 624])}: UserWarning: This DataLoader will create {have + want} worker "
                                        f"processes in total. Our suggested max number of worker in current system is {have}, which is smaller than what this DataLoader is "
                                        "going to create. Please be aware that excessive worker creation might get DataLoader running slow or even freeze, lower the worker "
                                        "number to avoid potential slowness/freeze if necessary.", "  warnings.warn("],
        "debug.left_on": [f"{LIB}autograd/anomaly_mode.py:70: UserWarning: Anomaly Detection has been enabled. This mode will increase the runtime and should only be "
                          "enabled for debugging.", "  warnings.warn("],
        "comms.ddp_flags": [rng.choice([
            f"[W{now:%m%d %H:%M:%S}.123456789 reducer.cpp:1430] Warning: find_unused_parameters=True was specified in DDP constructor, but did not find any unused "
            "parameters in the forward pass. This flag results in an extra traversal of the autograd graph every iteration,  which can adversely affect performance. "
            "(function operator())",
            f"{LIB}autograd/graph.py:825: UserWarning: Grad strides do not match bucket view strides. This may indicate grad was not created according to the gradient "
            "layout contract, or that the param's strides changed since DDP was constructed.  This is not an error, but may impair performance."])],
        "compile.skipped": [rng.choice([
            f"V{now:%m%d %H:%M:%S}.891000 6239 torch/_dynamo/convert_frame.py:1345] skipping: forward (reason: non-infra torch dispatch mode present, this is not "
            "supported today in torch.compile, file: /app/train.py)",
            f"V{now:%m%d %H:%M:%S}.891000 6239 torch/_dynamo/convert_frame.py:1345] skipping: step (reason: dynamo tracing is disabled, file: /app/train.py)",
            "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:"])],
        None: [f"{LIB}utils/data/dataloader.py:617: UserWarning: 'pin_memory' argument is set as true but no accelerator is found.",
               f"V{now:%m%d %H:%M:%S}.891000 6239 torch/_dynamo/convert_frame.py:1345] skipping: __init__ (reason: in skipfiles, file: {LIB}nn/modules/module.py)"],
    }[ill]
    many = rng.choice([1, 1, 2, 8])
    for r in range(many):
        at = rng.randrange(1, len(lines))
        lines[at:at] = [f"[rank{r}]: {s}" if many > 1 and not s.startswith("V") else s for s in said]
    return written(folder, lines, ill)


def failed(rng, folder, ill):
    """A process of the job ends, in one of the ways in which launchers, loaders, drivers and schedulers say so."""
    lines, now = loop(rng, rng.randint(20, 300))
    rank, pid = rng.randint(0, 63), rng.randint(300, 90000)
    code, name = rng.choice([(-9, "SIGKILL"), (-11, "SIGSEGV"), (-6, "SIGABRT"), (-7, "SIGBUS")])
    root = ["=" * 60, "train.py FAILED", "-" * 60, "Failures:", "  <NO_OTHER_FAILURES>", "-" * 60, "Root Cause (first observed failure):", "[0]:",
            f"  time      : {now:%Y-%m-%d_%H:%M:%S}", "  host      : gpu-b17", f"  rank      : {rank} (local_rank: {rank % 8})", f"  exitcode  : {code} (pid: {pid})",
            "  error_file: <N/A>", f"  traceback : Signal {-code} ({name}) received by PID {pid}", "=" * 60]
    ends = [
        [f"E{now:%m%d %H:%M:%S}.881000 80 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: {code}) local_rank: {rank % 8} (pid: {pid}) of binary: "
         "/venv/bin/python3", *root],
        [f"RuntimeError: DataLoader worker (pid {pid}) is killed by signal: {rng.choice(['Killed', 'Bus error', 'Segmentation fault'])}. "],
        [f"[{now:%a %b %d %H:%M:%S %Y}] NVRM: Xid (PCI:0000:5d:00): {rng.choice([79, 48, 63, 94, 119])}, pid={pid}, name=python3, GPU has fallen off the bus."],
        [f"slurmstepd: error: *** JOB {pid} ON n1 CANCELLED AT {now:%Y-%m-%dT%H:%M:%S} DUE TO TIME LIMIT ***"],
        ["Traceback (most recent call last):", '  File "/app/train.py", line 210, in <module>', "    main()", '  File "/app/train.py", line 188, in main',
         "    batch = sample[key]", "            ~~~~~~^^^^^", rng.choice(["KeyError: 'labels'", "ValueError: Expected more than 1 value per channel when training",
                                                                      "FileNotFoundError: [Errno 2] No such file or directory: '/data/x.bin'"])],
        [f"/var/spool/job/script: line 12: {pid} {rng.choice(['Segmentation fault', 'Killed', 'Bus error'])}      (core dumped) python train.py"],
    ]
    # The healthy one had an error and caught it.
    lines += ends[rng.randrange(len(ends))] if ill else ["WARNING retrying: ConnectionError, attempt 1 of 3"] + loop(rng, 30, now)[0]
    return written(folder, lines, ill)


def unit(mib):
    return f"{mib / 1024:.2f} GiB" if mib >= 1024 else f"{mib:.2f} MiB"


def oom(rng, folder, ill):
    """A request that fails, in torch's words of three versions; the numbers are those of a device that is full."""
    lines, _ = loop(rng, rng.randint(5, 200))
    total = rng.choice([15.77, 23.69, 39.39, 79.1, 139.8]) * 1024
    free = total * rng.uniform(0.001, 0.02)
    context = rng.uniform(300, 900)
    mine = total - free - context
    unused = mine * rng.uniform(0.001, 0.3)
    ask = (free + unused) * rng.uniform(1.1, 4) if rng.random() < 0.5 else max(free * 1.5, unused * rng.uniform(0.5, 0.9))
    held = f"{unit(mine - unused)} is allocated by PyTorch, and {unit(unused)} is reserved by PyTorch but unallocated."
    texts = [f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {unit(ask)}. GPU 0 has a total capacity of {unit(total)} of which {unit(free)} is free. "
             f"Including non-PyTorch memory, this process has {unit(total - free)} memory in use. Of the allocated memory {held} If reserved but unallocated memory is "
             "large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.",
             f"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate {unit(ask)}. GPU 0 has a total capacity of {unit(total)} of which {unit(free)} is free. "
             f"Process 2483754 has {unit(total - free)} memory in use. Of the allocated memory {held} If reserved but unallocated memory is large try setting "
             "max_split_size_mb to avoid fragmentation.",
             f"RuntimeError: CUDA out of memory. Tried to allocate {unit(ask)} (GPU 0; {unit(total)} total capacity; {unit(mine - unused)} already allocated; {unit(free)} "
             f"free; {unit(mine)} reserved in total by PyTorch)"]
    if ill:
        lines += ["Traceback (most recent call last):", '  File "/app/train.py", line 210, in <module>', "    main()", '  File "/app/model.py", line 51, in forward',
                  "    return x @ w", rng.choice(texts)]
    else:
        lines.insert(len(lines) // 2, f"INFO peak memory {unit(mine)} of {unit(total)}, allocated {unit(mine - unused)}")
    return written(folder, lines, ill)


def snapshot(kind):
    def write(rng, folder, ill):
        job, _ = getattr(snapshot_draws, kind)(rng.randrange(10**9), rng.choice(["profiler", "optimizer"]))
        return [snapshot_draws.write(job.d.snapshot(), folder / "memory.pickle", rng.choice([2, 4, 5]))], [ill] if ill else [], None
    return write


def nccl(rng, folder, ill):
    """What the ranks of some hosts print while a communicator is set up; one host is worse, in one of two ways, or none."""
    hosts, gpus = rng.randint(3, 8), rng.choice([1, 2, 4, 8])
    bad, fault = rng.randrange(hosts), rng.choice(["network", "P2P off"] if gpus > 1 else ["network"])
    channels, net, world = rng.choice([4, 8, 16, 24]), rng.choice(["IB", "AWS Libfabric", "IB"]), hosts * gpus
    logs = []
    for h in range(hosts):
        wrong, out = fault if ill and h == bad else None, []
        for g in range(gpus):
            rank, pid = h * gpus + g, rng.randint(100, 30000)
            me = f"worker-{h}:{pid}:{pid + 20} [{g}] NCCL INFO"
            init = f"comm 0x7f{rank:02x} rank {rank} nranks {world} cudaDev {g} nvmlDev {g} busId {g + 1}b000 commId 0xabc - Init"
            mine = "Socket" if wrong == "network" else net
            way = "SHM/direct/direct" if wrong == "P2P off" else "P2P/CUMEM"
            out += [f"{me} cudaDriverVersion 12040"] + ([f"{me} NCCL_P2P_DISABLE set by environment to 1."] if wrong == "P2P off" else [])
            out += [f"{me} NCCL_SOCKET_IFNAME set by environment to eth0"] + ([f"{me} NET/IB : No device found."] if wrong == "network" else [])
            out += [f"{me} Using network {mine}", f"{me} {init} START",
                    f"{me} comm 0x7f{rank:02x} rank {rank} nRanks {world} nNodes {hosts} localRanks {gpus} localRank {g} MNNVL 0",
                    f"{me} {channels} coll channels, {channels} collnet channels, 0 nvls channels, {channels} p2p channels, 2 p2p channels per peer"]
            for c in range(rng.choice([1, channels])):
                out.append(f"{me} Channel {c:02d}/0 : {rank}[{g}] -> {rank + 1}[{g + 1}] via {way}" if g + 1 < gpus else
                           f"{me} Channel {c:02d}/0 : {rank}[{g}] -> {(rank + 1) % world}[0] [send] via NET/{mine}/0")
            out.append(f"{me} {init} COMPLETE")
        logs.append(out)
    paths = []
    for i, out in enumerate(logs):
        paths.append(folder / f"{i}.log")
        paths[-1].write_text("\n".join(out) + "\n")
    return paths, [ill] if ill else [], None


def bandwidth(rng, folder, ill):
    """nccl-tests again and again on the same devices, with the noise that it has; in one of them a link is slower from some run on, or on one host."""
    usual, noise = rng.uniform(8, 400), rng.uniform(0.003, 0.02)
    runs, size = rng.randint(8, 16), 1 << rng.randint(25, 30)
    drop, since = rng.uniform(0.12, 0.7), rng.randint(4, runs - 4)
    lines = []
    for i in range(runs):
        lines += ["# nThread 1 nGpus 1", f"#  Rank  0 Group  0 Pid  {1000 + 2 * i} on n1 device  0 [0x1b] NVIDIA H100",
                  f"#  Rank  1 Group  0 Pid  {1001 + 2 * i} on n1 device  1 [0x1c] NVIDIA H100"]
        for _ in range(2):
            x = usual * (1 - drop if ill and i >= since else 1) * rng.gauss(1, noise)
            us = size / x / 1e3
            lines.append(f"  {size}  {size // 4}  float  sum  -1  {us:.1f}  {x:.2f}  {x:.2f}  0  {us:.1f}  {x:.2f}  {x:.2f}  0")
    path = folder / "nccl-tests.log"
    path.write_text("\n".join(lines) + "\n")
    return [path], [ill] if ill else [], None


# family -> (writer, what is wrong; None = healthy)
FAMILIES = {
    "log_workers": (hint, "data.workers_oversubscribed"), "log_anomaly": (hint, "debug.left_on"), "log_ddp": (hint, "comms.ddp_flags"),
    "log_skipped": (hint, "compile.skipped"), "log_hints": (hint, None), "log_failed": (failed, "job.failed"), "log_caught": (failed, None),
    "log_oom": (oom, "mem.oom"), "log_full": (oom, None),
    "memory_leak": (snapshot("leak"), "mem.leak"), "memory_graph": (snapshot("graph"), "mem.leak"), "memory_churn": (snapshot("churn"), "mem.churn"),
    "memory_pieces": (snapshot("pieces"), "mem.fragmentation"), "memory_pieces_early": (snapshot("pieces_early"), None),
    "memory_joined": (snapshot("joined"), "mem.oom"), "memory_too_large": (snapshot("too_large"), "mem.oom"),
    "memory_healthy": (snapshot("healthy"), None), "memory_cache": (snapshot("cache"), None), "memory_once": (snapshot("once"), None),
    "nccl_host": (nccl, "comms.degraded_link"), "nccl_healthy": (nccl, None),
    "nccl_tests": (bandwidth, "comms.degraded_link"), "nccl_tests_healthy": (bandwidth, None),
}
