# SPDX-License-Identifier: Apache-2.0
"""Files that are cheap to write and, where a reader compares all with all, dear to read. SHAPES[name](n): bytes."""
import json
import pickle
import sqlite3

SHAPES = {}
SUFFIX = {}
MASK = 2**64 - 1


def shape(suffix):
    def register(f):
        name = f.__name__
        SHAPES[name], SUFFIX[name] = f, suffix
        return f
    return register


def slice_(name, ts, dur, pid=1, tid=1, cat="cpu_op", **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(name, ts, dur, device=0, stream=7, correlation=0, **more):
    return slice_(name, ts, dur, device, stream, "kernel",
                  **{"device": device, "stream": stream, "correlation": correlation, **more})


def launch(ts, dur, correlation, pid=1, tid=1):
    return slice_("cudaLaunchKernel", ts, dur, pid, tid, "cuda_runtime", correlation=correlation)


def step(i, ts, dur, pid=1, tid=1):
    return slice_(f"ProfilerStep#{i}", ts, dur, pid, tid, "user_annotation")


def steps(n, dur=1000, pid=1, tid=1):
    return [step(i, i * dur, dur - 1, pid, tid) for i in range(n)]


def kineto(events, rank=0, world=2):
    return json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}],
                       "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world},
                       "baseTimeNanoseconds": 0, "traceEvents": events}).encode()


@shape("json")
def kineto_steps_of_one_event(n):
    return kineto(steps(n))


@shape("json")
def kineto_nested(n):
    return kineto(steps(20, n) + [slice_("op", i, 40 * n - 2 * i) for i in range(n)])


@shape("json")
def kineto_nested_one_name_kernels(n):
    return kineto(steps(20, n) + [slice_("op", i, 20 * n - 2 * i) for i in range(n // 2)]
                  + [launch(n + i, 0.5, i + 1) for i in range(n // 2)]
                  + [kernel("k", n + i, 0.9, correlation=i + 1) for i in range(n // 2)])


@shape("json")
def kineto_overlapping(n):
    """Each starts a little later than the one before and ends a little later: none nests."""
    return kineto(steps(20, n) + [slice_("op", i, 5 * n) for i in range(n)])


@shape("json")
def kineto_same_time(n):
    return kineto(steps(20, n) + [slice_(f"op{i % 7}", 1000, 5) for i in range(n)])


@shape("json")
def kineto_zero_length(n):
    return kineto(steps(20, n) + [slice_("op", 1000, 0) for i in range(n)] + [kernel("k", 1000, 0) for i in range(n)])


@shape("json")
def kineto_threads(n):
    return kineto(steps(20, n) + [slice_("op", i, 50 * n, tid=10 + i) for i in range(n)])


@shape("json")
def kineto_threads_and_steps(n):
    return kineto(steps(n // 2) + [slice_("op", i * 1000, 500000, tid=10 + i) for i in range(n // 2)])


@shape("json")
def kineto_pids(n):
    return kineto([step(j, i + j * 100, 90, pid=i + 1, tid=i + 1) for i in range(n // 4) for j in range(4)])


@shape("json")
def kineto_devices(n):
    return kineto(steps(20, n) + [kernel("k", i, 10, device=i, correlation=i + 1) for i in range(n)])


@shape("json")
def kineto_streams(n):
    return kineto(steps(20, n) + [launch(i, 1, i + 1) for i in range(n)]
                  + [kernel("k", i, 10 * n, stream=i, correlation=i + 1) for i in range(n)])


@shape("json")
def kineto_streams_and_steps(n):
    m = n // 3
    return kineto(steps(m) + [launch(i * 1000, 1, i + 1) for i in range(m)]
                  + [kernel("k", i * 1000, 900, stream=i, correlation=i + 1) for i in range(m)])


@shape("json")
def kineto_correlations_equal(n):
    return kineto(steps(20, n) + [launch(i, 0.5, 5) for i in range(n)] + [kernel("k", i, 0.9, correlation=5) for i in range(n)])


@shape("json")
def kineto_kernels_overlap(n):
    return kineto(steps(20, n) + [launch(i, 0.5, i + 1) for i in range(n)]
                  + [kernel(f"k{i % 9}", i, 10 * n, correlation=i + 1) for i in range(n)])


@shape("json")
def kineto_kernel_names(n):
    return kineto(steps(20, n) + [launch(i, 0.5, i + 1) for i in range(n)]
                  + [kernel(f"void k<{i}>", i, 0.9, correlation=i + 1) for i in range(n)])


@shape("json")
def kineto_groups(n):
    return kineto(steps(20, n) + [kernel("ncclDevKernel_AllReduce", i, 0.9, correlation=i + 1,
                                         **{"Process Group Name": f"g{i}", "Collective name": "allreduce", "Group size": 2,
                                            "Seq": i, "In msg nelems": i, "dtype": "Float"}) for i in range(n)])


@shape("json")
def kineto_collectives_same(n):
    return kineto(steps(20, n) + [kernel("ncclDevKernel_AllReduce", i, 10 * n, stream=i % 50, correlation=i + 1,
                                         **{"Process Group Name": "0", "Collective name": "allreduce", "Group size": 2,
                                            "Seq": 7, "In msg nelems": 8, "dtype": "Float"}) for i in range(n)])


@shape("json")
def kineto_collectives_nested(n):
    return kineto(steps(20, n) + [slice_("gloo:all_reduce", i, 40 * n - 2 * i, cat="user_annotation") for i in range(n)])


@shape("json")
def kineto_flows_unmatched(n):
    return kineto(steps(20, n) + [{"ph": "s", "id": i, "pid": 1, "tid": 1, "ts": i, "cat": "fwdbwd", "name": "f"} for i in range(n)])


@shape("json")
def kineto_flow_reused(n):
    return kineto(steps(20, n) + [{"ph": "sf"[i % 2], "id": 5, "pid": 1, "tid": 1 + i % 3, "ts": i, "cat": "ac2g", "name": "f"}
                                  for i in range(n)])


@shape("json")
def kineto_counters(n):
    return kineto(steps(20, n) + [{"ph": "C", "name": f"c{i}", "pid": 1, "tid": 1, "ts": i, "args": {"v": i}} for i in range(n)])


@shape("json")
def kineto_counter_keys(n):
    return kineto(steps(20, n) + [{"ph": "C", "name": "c", "pid": 1, "ts": 5, "args": {f"v{i}": i for i in range(n)}}])


@shape("json")
def kineto_long_names(n):
    return kineto(steps(20, n) + [slice_("x" * 1000000 + str(i), i, 1) for i in range(n // 4000 + 1)])


@shape("json")
def kineto_python_deep(n):
    return kineto(steps(20, n) + [slice_(f"f.py({i}): f{i % 99}", i, 40 * n - 2 * i, cat="python_function",
                                         **{"Python id": i, "Python parent id": i - 1}) for i in range(n)])


@shape("json")
def kineto_loader_waits(n):
    """Every step waits for its batch, while helper threads, one each, collect garbage."""
    m = n // 4
    return kineto([step(i, i * 1000, 999) for i in range(m)]
                  + [slice_("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", i * 1000 + 1, 100 + i % 7 * 100,
                            cat="user_annotation") for i in range(m)]
                  + [slice_("Optimizer.step#SGD.step", i * 1000 + 900, 50, cat="user_annotation") for i in range(m)]
                  + [slice_("gc.collect", i * 1000 + 5, 500, tid=10 + i) for i in range(m)])


@shape("json")
def kineto_pids_that_reduce(n):
    m = n // 12
    return kineto([e for p in range(1, m + 1) for i in range(6) for e in
                   (step(i, i * 1000 + p % 5, 990, p, p),
                    slice_("gloo:all_reduce", i * 1000 + 10 + p % 50, 500, p, p, "user_annotation", seq=i))])


@shape("json")
def kineto_copies_and_waits(n):
    m = n // 5
    return kineto([step(i, i * 1000, 999) for i in range(m)] + [launch(i * 1000 + 10, 1, 2 * i + 1) for i in range(m)]
                  + [slice_("cudaStreamSynchronize", i * 1000 + 20, 900, cat="cuda_runtime", correlation=2 * i + 2) for i in range(m)]
                  + [kernel("Memcpy HtoD (Pageable -> Device)", i * 1000 + 30, 800, correlation=2 * i + 1) | {"cat": "gpu_memcpy"}
                     for i in range(m)]
                  + [slice_("aten::item", i * 1000 + 15, 950) for i in range(m)])


@shape("json")
def kineto_memory(n):
    return kineto(steps(20, n) + [{"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": i,
                                   "args": {"Device Type": 1, "Device Id": i, "Addr": i, "Bytes": 512, "Total Allocated": i,
                                            "Total Reserved": i}} for i in range(n)])


@shape("json")
def kineto_syncs(n):
    return kineto(steps(20, n) + [launch(i, 0.1, i + 1) for i in range(n)]
                  + [slice_("cudaStreamSynchronize", i + 0.2, 5 * n, cat="cuda_runtime", correlation=n + i + 1) for i in range(n)]
                  + [kernel("k", i, 6 * n, correlation=i + 1) for i in range(n)])


def unmix(x):
    """The key that splitmix64's finaliser turns into x."""
    x ^= x >> 31 ^ x >> 62
    x = x * pow(0x94d049bb133111eb, -1, 2**64) & MASK
    x ^= x >> 27 ^ x >> 54
    x = x * pow(0xbf58476d1ce4e5b9, -1, 2**64) & MASK
    x ^= x >> 30 ^ x >> 60
    return (x - 0x9e3779b97f4a7c15) & MASK


def mix(x):
    x = (x + 0x9e3779b97f4a7c15) & MASK
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 & MASK
    x = (x ^ x >> 27) * 0x94d049bb133111eb & MASK
    return x ^ x >> 31


def colliding(n):
    """Keys of which the lowest 24 bits of the mix are alike: one place in every map of up to 2**24."""
    return [unmix(i << 24) for i in range(n)]


def signed(x):
    x &= MASK
    return x - 2**64 if x >> 63 else x


@shape("json")
def kineto_colliding_tids(n):
    return kineto(steps(20, n) + [slice_("op", i, 1, tid=signed(key - mix(1))) for i, key in enumerate(colliding(n))])


@shape("json")
def kineto_colliding_ids(n):
    keys = [signed(k) for k in colliding(n)]
    return kineto(steps(20, n) + [launch(i, 0.5, k) for i, k in enumerate(keys)]
                  + [kernel("k", i, 0.9, correlation=k) for i, k in enumerate(keys)]
                  + [{"ph": "s", "id": k, "pid": 1, "tid": 1, "ts": i, "cat": "fwdbwd", "name": "f"} for i, k in enumerate(keys)])


@shape("json")
def chrome_begins(n):
    return json.dumps([{"ph": "B", "name": f"s{i % 9}", "pid": 1, "tid": 1, "ts": i} for i in range(n)]).encode()


@shape("json")
def chrome_ends(n):
    return json.dumps([{"ph": "B", "name": "s", "pid": 1, "tid": 1, "ts": 0}]
                      + [{"ph": "E", "pid": 1, "tid": i, "ts": i} for i in range(n)]).encode()


@shape("json")
def chrome_async(n):
    return json.dumps([{"ph": "b", "name": "s", "cat": "c", "id": i, "pid": 1, "tid": 1, "ts": i} for i in range(n)]
                      + [{"ph": "e", "name": "s", "cat": "c", "id": n - i, "pid": 1, "tid": 1, "ts": n + i} for i in range(n)]).encode()


@shape("json")
def chrome_async_one_id(n):
    return json.dumps([{"ph": "b", "name": "s", "cat": "c", "id": 1, "pid": 1, "tid": 1, "ts": i} for i in range(n)]
                      + [{"ph": "e", "name": "s", "cat": "c", "id": 1, "pid": 1, "tid": 1, "ts": n + i} for i in range(n)]).encode()


@shape("json")
def chrome_thread_names(n):
    return json.dumps([{"ph": "M", "name": "thread_name", "pid": 1 + i % 300, "tid": i, "args": {"name": f"t{i}"}} for i in range(n)]
                      + [{"ph": "X", "name": "s", "pid": 1 + i % 300, "tid": i, "ts": i, "dur": n} for i in range(n)]).encode()


@shape("json")
def chrome_samples(n):
    return json.dumps({"traceEvents": [], "stackFrames": {str(i): {"name": f"f{i}", "parent": str(i - 1)} if i else {"name": "f"}
                                                          for i in range(n)},
                       "samples": [{"cpu": 0, "tid": 1, "ts": i, "name": "c", "sf": str(n - 1), "weight": 1}
                                   for i in range(n)]}).encode()


@shape("json")
def chrome_deep_args(n):
    return (b'[{"ph":"X","name":"s","pid":1,"tid":1,"ts":1,"dur":1,"args":' + b'{"a":' * n + b"1" + b"}" * n + b"}]")


@shape("txt")
def script_tids(n):
    return "".join(f"t{i} {i}/{i} [000] {i / 1000:.6f}: cycles: \n\t {i:x} f{i} (/bin/a{i})\n\n" for i in range(1, n)).encode()


@shape("txt")
def script_switches_same_time(n):
    return "".join(f"a {i % 50 + 1}/{i % 50 + 1} [000] 1.000000: sched:sched_switch: prev_comm=a prev_pid={i % 50 + 1} prev_prio=120 "
                   f"prev_state=S ==> next_comm=a next_pid={(i + 1) % 50 + 1} next_prio=120\n\n" for i in range(n)).encode()


@shape("txt")
def script_waker_chain(n):
    out = []
    for i in range(1, n // 2):
        t = i / 1e5
        out.append(f"a {i}/{i} [000] {t:.6f}: sched:sched_wakeup: comm=a pid={i + 1} prio=120 target_cpu=000\n\n")
        out.append(f"a {i}/{i} [000] {t:.6f}: sched:sched_switch: prev_comm=a prev_pid={i} prev_prio=120 prev_state=S ==> "
                   f"next_comm=a next_pid={i + 1} next_prio=120\n\n")
    return "".join(out).encode()


@shape("txt")
def script_few_threads_switch(n):
    out, k = [], 40
    for i in range(n):
        a, b, t = 1 + i % k, 1 + (i * 7 + 1) % k, i / 1e4
        out.append(f"a {a}/1 [000] {t:.6f}: sched:sched_wakeup: comm=a pid={b} prio=120 target_cpu=000\n\n")
        out.append(f"a {a}/1 [000] {t:.6f}: sched:sched_switch: prev_comm=a prev_pid={a} prev_prio=120 prev_state=D ==> "
                   f"next_comm=a next_pid={b} next_prio=120\n\n")
    return "".join(out).encode()


@shape("txt")
def script_wakes_many(n):
    """All sleep, one wakes all, and the next does so again."""
    out, k = [], 400
    for i in range(n // (2 * k)):
        for j in range(2, k):
            t = i + j / 1000
            out.append(f"a 1/1 [000] {t:.6f}: sched:sched_wakeup: comm=b pid={j} prio=120 target_cpu=000\n\n")
            out.append(f"b {j}/{j} [{j % 8:03d}] {t + 0.0001:.6f}: sched:sched_switch: prev_comm=b prev_pid={j} prev_prio=120 "
                       f"prev_state=S ==> next_comm=b next_pid={j + 1} next_prio=120\n\n")
    return "".join(out).encode()


@shape("txt")
def script_deep_stacks(n):
    return "".join(f"a 1/1 [000] {i / 1000:.6f}: cycles: \n" + "".join(f"\t {j:x} f{j} (/bin/a)\n" for j in range(n // 40)) + "\n"
                   for i in range(40)).encode()


@shape("folded")
def folded_deep(n):
    return (";".join(f"f{i}" for i in range(n)) + " 1\n" + ";".join(f"f{i}" for i in range(n // 2)) + " 1\n").encode()


@shape("folded")
def folded_suffixes(n):
    line = [f"f{i}" for i in range(200)]
    return "".join(";".join(line[i % 200:] + [f"g{i}"]) + " 1\n" for i in range(n // 50)).encode()


@shape("folded")
def folded_wide(n):
    return "".join(f"main;f{i};g{i} 1\n" for i in range(n)).encode()


@shape("csv")
def smi_devices(n):
    return ("timestamp, index, utilization.gpu [%], power.draw [W]\n" + "".join(
        f"2025/10/03 10:00:00.000, {i}, 5 %, 60.00 W\n" for i in range(n))).encode()


@shape("csv")
def smi_sweep(n):
    return ("timestamp, power.draw [W], utilization.gpu [%]\n" + "".join(
        f"2025/10/03 10:{i // 60000 % 60:02d}:{i // 1000 % 60:02d}.{i % 1000:03d}, {i}.0 W, 0 %\n" for i in range(n))).encode()


@shape("csv")
def smi_headers(n):
    return ("timestamp, index, utilization.gpu [%], power.draw [W]\n" * (n // 2)
            + "2025/10/03 10:00:00.000, 0, 5 %, 60.00 W\n").encode()


@shape("csv")
def smi_columns(n):
    return ("timestamp, index" + "".join(f", c{i} [%]" for i in range(n)) + "\n2025/10/03 10:00:00.000, 0" + ", 5 %" * n
            + "\n2025/10/03 10:00:01.000, 0" + ", 5 %" * n + "\n").encode()


def line(i, text, rank=0):
    return f"[rank{rank}]:V1120 23:{i // 60000 % 60:02d}:{i // 1000 % 60:02d}.{i % 1000:03d}000 {28211 + rank} torch/x.py:435] {text}\n"


@shape("log")
def torchlog_ranks(n):
    return "".join(line(i, "[0/0] [__graph_breaks] Graph break in user code at /app/train.py:6", i) for i in range(n)).encode()


@shape("log")
def torchlog_breaks(n):
    return "".join(line(i, f"[{i}/0] [__graph_breaks] Graph break in user code at /app/t{i}.py:{i}")
                   + line(i, f"Reason: Unsupported: r{i}") for i in range(n // 2)).encode()


@shape("log")
def torchlog_recompiles(n):
    return "".join(line(i, f"[{i % 9}/{i}] [__recompiles] Recompiling function f{i} in /app/t.py:{i}")
                   + line(i, f"[{i % 9}/{i}] [__recompiles]     triggered by the following guard failure(s):")
                   + line(i, f"[{i % 9}/{i}] [__recompiles]     - 0/0: tensor 'x' size mismatch {i}") for i in range(n // 3)).encode()


@shape("log")
def torchlog_iterations(n):
    return "".join(f" [2024-03-01 12:{i // 6000 % 60:02d}:{i // 100 % 60:02d}.{i % 100:02d}0] iteration {i:8d}/ 999999 | elapsed time per "
                   f"iteration (ms): 10.0 |\n" for i in range(1, n)).encode()


@shape("log")
def torchlog_bars(n):
    return "".join(f"\rname{i}: {i % 99}%|xx| {i % 99}/99 [00:{i % 60:02d}<00:30,  3.00it/s]" for i in range(n)).encode() + b"\n"


@shape("log")
def torchlog_timeouts(n):
    return "".join(f"[rank{i}]:[E1120 03:04:11.061727749 ProcessGroupNCCL.cpp:683] [Rank {i}] Watchdog caught collective operation timeout: "
                   f"WorkNCCL(SeqNum={i}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600000 milliseconds "
                   f"before timing out.\n" for i in range(n // 2)).encode()


@shape("log")
def nccl_channels(n):
    head = ("nodeA:4711:4720 [0] NCCL INFO ncclCommInitRankConfig comm 0x55 rank 3 nranks 99999 cudaDev 0 nvmlDev 0 busId 17000 "
            "commId 0x54 - Init START\n")
    return (head + "".join(f"nodeA:4711:4720 [0] NCCL INFO Channel {i % 64:02d}/0 : {i}[0] -> {i + 1}[1] via NET/Socket/0\n"
                           for i in range(n))).encode()


@shape("log")
def nccl_comms(n):
    return "".join(f"node{i}:{i + 1}:{i + 1} [0] NCCL INFO ncclCommInitRankConfig comm 0x{i:x} rank {i} nranks {n} cudaDev 0 nvmlDev 0 "
                   f"busId {i:x} commId 0x54 - Init START\nnode{i}:{i + 1}:{i + 1} [0] NCCL INFO comm 0x{i:x} rank {i} nranks {n} cudaDev 0 "
                   f"busId {i:x} commId 0x54 - Init COMPLETE\n" for i in range(n // 2)).encode()


def entry(seq, group="0", **more):
    return {"collective_seq_id": seq, "p2p_seq_id": 0, "is_p2p": False, "pg_id": 0, "state": "scheduled",
            "process_group": [group, "default_pg"], "profiling_name": "nccl:all_reduce", "retired": False,
            "input_sizes": [[8]], "input_dtypes": ["Float"], "time_created_ns": 1758581237526848193 + seq,
            "frames": [{"name": f"s{seq % 50}", "filename": "train.py", "line": seq}]} | more


def flight(entries, groups):
    return {"version": "2.9", "rank": 0, "entries": entries,
            "pg_config": {g: {"name": g, "desc": "G", "ranks": str(of)} for g, of in groups.items()},
            "pg_status": {g: {"last_enqueued_collective": 9, "last_started_collective": -1, "last_completed_collective": 1} for g in groups}}


@shape("pickle")
def flight_groups(n):
    return pickle.dumps(flight([entry(i, str(i)) for i in range(n // 4)], {str(i): [0, 1, i] for i in range(n // 4)}), protocol=2)


@shape("json")
def flight_entries(n):
    return json.dumps(flight([entry(i) for i in range(n // 4)], {"0": list(range(n // 4))})).encode()


@shape("json")
def flight_one_seq(n):
    return json.dumps(flight([entry(5) for i in range(n // 4)], {"0": [0, 1]})).encode()


@shape("json")
def flight_p2p(n):
    return json.dumps(flight([entry(5, is_p2p=True, p2p_seq_id=i, profiling_name=f"nccl:send 0->{i}") for i in range(n // 4)],
                             {"0": list(range(n // 4))})).encode()


@shape("pickle")
def flight_one_dict_as_all_entries(n):
    return pickle.dumps(flight([{f"k{i}": i for i in range(n)} | entry(1)] * n, {"0": [0, 1]}), protocol=2)


@shape("pickle")
def flight_one_list_as_all_sizes(n):
    """Each means n * n numbers, and costs two bytes."""
    e = entry(1, input_sizes=[[1] * n] * n, frames=[{"name": "f", "filename": "a.py", "line": 1}] * n)
    return pickle.dumps(flight([e] * n, {"0": [0, 1]}), protocol=2)


@shape("folded")
def folded_colliding_names(n):
    """XXH3 multiplies what stands here with what comes next, minus a published constant: 0 for all of these."""
    return b"".join(b"main;" + bytes.fromhex("b8fe6c3923a44bbe") + b"%08x" % i + b"y" * 16 + b" 1\n" for i in range(n))


@shape("pickle")
def flight_deep_pickle(n):
    return b"\x80\x02" + b"]" * n + b"a" * (n - 1) + b"."


@shape("json")
def pyspy_threads(n):
    return json.dumps([{"pid": 1 + i % 50, "thread_id": i, "thread_name": f"t{i}", "os_thread_id": i + 1, "active": True, "owns_gil": False,
                        "frames": [{"name": f"f{i}", "filename": "a.py", "line": i}]} for i in range(n)]).encode()


@shape("json")
def speedscope_deep(n):
    return json.dumps({"$schema": "https://www.speedscope.app/file-format-schema.json", "exporter": "py-spy@0.4.1", "name": "x",
                       "shared": {"frames": [{"name": f"f{i}"} for i in range(n)]},
                       "profiles": [{"type": "evented", "name": "o", "unit": "seconds", "startValue": 0, "endValue": 2 * n,
                                     "events": [{"type": "O", "frame": i, "at": i} for i in range(n)]
                                     + [{"type": "C", "frame": n - 1 - i, "at": n + i} for i in range(n)]}]}).encode()


@shape("json")
def speedscope_profiles(n):
    return json.dumps({"$schema": "https://www.speedscope.app/file-format-schema.json", "exporter": "py-spy@0.4.1", "name": "x",
                       "shared": {"frames": [{"name": "f"}]},
                       "profiles": [{"type": "sampled", "name": f"Thread {i} \"t\"", "unit": "seconds", "startValue": 0, "endValue": 1,
                                     "samples": [[0]], "weights": [1]} for i in range(n)]}).encode()


def nsys(ranges, kernels=(), calls=()):
    """An export of Nsight Systems; rows as its tables have them."""
    db = sqlite3.connect(":memory:")
    db.executescript("""
        CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
        CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
        CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, textId INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER,
                                                  nameId INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
                                                 correlationId INTEGER, globalPid INTEGER, shortName INTEGER,
                                                 demangledName INTEGER);
        INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel'), (2, 'kernel');
        INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.11.0');""")
    db.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, ?, ?, NULL)", ranges)
    db.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, 2, 2)", kernels)
    db.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, 1)", calls)
    db.commit()
    return db.serialize()


def global_id(pid, tid=0):
    return 1 << 56 | (pid & 0xffffff) << 24 | tid & 0xffffff


@shape("sqlite")
def nsys_nested(n):
    return nsys([(i, 4 * n - i, f"r{i % 9}", global_id(1, 1)) for i in range(n)])


@shape("sqlite")
def nsys_processes(n):
    return nsys([(i, i + 50, f"step {i}", global_id(i + 1, i + 1)) for i in range(n)])


@shape("sqlite")
def nsys_one_correlation(n):
    return nsys([(i * 1000, i * 1000 + 999, f"step {i}", global_id(1, 1)) for i in range(50)],
                [(i, i + n, i % 3, i, 5, global_id(1)) for i in range(n)], [(i, i + 1, global_id(1, 1), 5) for i in range(n)])
