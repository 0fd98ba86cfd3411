# SPDX-License-Identifier: Apache-2.0
"""A simulated rank as torch.profiler writes it (schemaVersion 1, torch 2.x field names)."""
import gzip
import json

DEVICES = {
    "NVIDIA A100-SXM4-80GB": (8, 0, 108, 85_000_000_000),
    "NVIDIA H100 80GB HBM3": (9, 0, 132, 85_000_000_000),
    "NVIDIA L4": (8, 9, 58, 24_000_000_000),
}
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
BASE = 1_727_740_800_000_000_000  # baseTimeNanoseconds
START_US = 4_458_676_000.0


def document(job, rank, device="NVIDIA A100-SXM4-80GB", cut=None, lost=(), host="node-a"):
    """The trace of one rank as a dict. cut: only the first share of the events, as a full disk leaves; lost:
    (first, last, rank or -1): the share of the window in which the device's rows were dropped."""
    major, minor, sms, memory = DEVICES[device]
    pid = 41000 + rank.rank
    events = []
    ac2g = []
    device_of = {}
    rows = rank.events
    if lost and lost[2] in (-1, rank.rank):
        rows = [e for e in rows if e.cat not in ON_DEVICE or not lost[0] * rank.t <= e.ts < lost[1] * rank.t]
    for e in rows:
        if e.cat in ON_DEVICE:
            device_of[e.args["correlation"]] = e
    for e in rows:
        on_device = e.cat in ON_DEVICE
        args = dict(e.args)
        if on_device:
            args["device"] = rank.rank + e.device
        events.append({"ph": "X", "cat": e.cat, "name": e.name, "pid": rank.rank + e.device if on_device else pid,
                       "tid": e.tid if on_device else pid if e.tid == rank.MAIN else pid + 100,
                       "ts": round(START_US + e.ts, 3), "dur": round(max(e.dur, 0.001), 3), "args": args})
        if e.cat == "cuda_runtime" and e.args["correlation"] in device_of:
            k = device_of[e.args["correlation"]]
            n = e.args["correlation"]
            ac2g.append({"ph": "s", "id": n, "pid": events[-1]["pid"], "tid": events[-1]["tid"], "ts": events[-1]["ts"],
                         "cat": "ac2g", "name": "ac2g"})
            ac2g.append({"ph": "f", "id": n, "pid": rank.rank, "tid": k.tid, "ts": round(START_US + k.ts, 3),
                         "cat": "ac2g", "name": "ac2g", "bp": "e"})
    if cut:  # what the host did comes first
        host = [e for e in events if e["cat"] not in ON_DEVICE]
        events = (host + [e for e in events if e["cat"] in ON_DEVICE])[:int(len(events) * cut)]
    names = [{"ph": "M", "name": "process_name", "ts": START_US, "pid": pid, "tid": 0, "args": {"name": "python3"}},
             {"ph": "M", "name": "process_labels", "ts": START_US, "pid": pid, "tid": 0, "args": {"labels": "CPU"}},
             {"ph": "M", "name": "process_name", "ts": START_US, "pid": rank.rank, "tid": 0, "args": {"name": "python3"}},
             {"ph": "M", "name": "process_labels", "ts": START_US, "pid": rank.rank, "tid": 0, "args": {"labels": f"GPU {rank.rank}"}}]
    for more in range(1, job.devices):
        names.append({"ph": "M", "name": "process_labels", "ts": START_US, "pid": rank.rank + more, "tid": 0, "args": {"labels": f"GPU {rank.rank + more}"}})
    if job.memory_peak:
        for k, e in enumerate(e for e in rows if e.name.startswith("ProfilerStep")):
            held = int(memory * job.memory_peak * (1 - 0.1 * (k == 0)))
            names.append({"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": pid, "tid": pid, "ts": round(START_US + e.ts + 1, 3),
                          "args": {"Total Reserved": held, "Total Allocated": int(held * 0.9), "Bytes": 512, "Device Id": rank.rank, "Device Type": 1,
                                   "Ev Idx": k, "Addr": 140_000_000_000_000 + k}})
    doc = {"schemaVersion": 1,
           "deviceProperties": [{"id": i, "name": device, "totalGlobalMem": memory, "computeMajor": major, "computeMinor": minor,
                                 "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65536,
                                 "warpSize": 32, "sharedMemPerBlock": 49152, "numSms": sms, "regsPerMultiprocessor": 65536,
                                 "sharedMemPerBlockOptin": 166912, "sharedMemPerMultiprocessor": 167936}
                                for i in range(max(job.world, job.devices))],
           "cupti_version": 22, "cuda_runtime_version": job.cuda, "cuda_driver_version": 12040, "record_shapes": 0,
           "host_name": host, "displayTimeUnit": "ms", "baseTimeNanoseconds": BASE}
    if job.world > 1:
        doc["distributedInfo"] = {"backend": "nccl", "rank": rank.rank, "world_size": job.world, "pg_count": 1,
                                  "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl",
                                                 "pg_size": job.world, "ranks": list(range(job.world))}],
                                  "nccl_version": "2.21.5"}
    doc["traceEvents"] = names + events + ac2g
    doc["traceName"] = f"rank{rank.rank}.json"
    return doc


def write(path, *args, **more):
    with gzip.open(path, "wt", compresslevel=1) as f:
        json.dump(document(*args, **more), f, separators=(",", ":"))
