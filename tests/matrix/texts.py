# SPDX-License-Identifier: Apache-2.0
"""Draws of what is no trace: nvidia-smi tables, job logs, torch's logs, Flight Recorder dumps.

Each function writes files into a folder and returns (paths, ids that are true, lost ms or None). The numbers come
from a simple model of the thing (a card's power follows its clock and its load; a loop prints how long a
step took), so that what is true is known before the file is written.
"""
import datetime
import json

START = datetime.datetime(2025, 10, 3, 12, 0, 0)

# name, rest W, limit W, highest SM clock
CARDS = (("NVIDIA H100 80GB HBM3", 70, 700, 1980), ("NVIDIA A100-SXM4-80GB", 55, 400, 1410), ("NVIDIA L4", 16, 72, 2040),
         ("NVIDIA A100-PCIE-40GB", 35, 250, 1410), ("Tesla V100-SXM2-32GB", 42, 300, 1530), ("NVIDIA GeForce RTX 3090", 25, 350, 2100),
         ("NVIDIA RTX 6000 Ada Generation", 24, 300, 3105), ("Tesla T4", 10, 70, 1590), ("NVIDIA B200", 140, 1000, 1965))

POWER_CAP, THERMAL = 0x4, 0x20 | 0x40


def smi(rng, folder, ill):
    """nvidia-smi --query-gpu ... -lms, in a job that trains on all cards."""
    name, rest, limit, top = rng.choice(CARDS)
    cards, period = rng.choice([1, 2, 4, 8]), rng.choice([0.1, 0.5, 1.0])
    n = rng.randint(120, 600)
    load = rng.uniform(0.55, 0.97)  # of the limit, while it computes
    sick = rng.randrange(cards)
    share = rng.uniform(0.5, 0.8)  # of its clock, when it is too hot
    spin = rest + (limit - rest) * rng.uniform(0.08, 0.2)  # a kernel that only waits draws little
    lines = ["timestamp, index, name, utilization.gpu [%], utilization.memory [%], memory.used [MiB], memory.total [MiB], "
             "power.draw [W], power.limit [W], clocks.current.sm [MHz], clocks.max.sm [MHz], "
             "clocks_event_reasons.active, temperature.gpu, pstate"]
    for i in range(n):
        now = START + datetime.timedelta(seconds=i * period)
        for card in range(cards):
            clock, reason, heat = top * rng.uniform(0.93, 0.99), 0, rng.gauss(64, 1.5)
            util = min(100, max(0, rng.gauss(96, 3)))
            power = min(limit, rest + (limit - rest) * load * rng.gauss(1, 0.03))
            memory = util * rng.uniform(0.3, 0.5)
            if power > 0.985 * limit:
                reason |= POWER_CAP
            if ill == "gpu.throttled" and card == sick and i > n * 0.2:
                clock, reason, heat = top * share * rng.gauss(1, 0.01), reason | THERMAL, rng.gauss(90, 1)
                power *= share
            if ill == "gpu.util_lies":
                util, power, memory = 100, spin * rng.gauss(1, 0.02), rng.uniform(0, 2)
            lines.append(f"{now:%Y/%m/%d %H:%M:%S}.{now.microsecond // 1000:03d}, {card}, {name}, {util:.0f} %, {memory:.0f} %, "
                         f"{61440 if limit > 300 else 14000} MiB, {81559 if limit > 300 else 16384} MiB, {power:.2f} W, {limit:.2f} W, "
                         f"{clock:.0f} MHz, {top} MHz, 0x{reason:016X}, {heat:.0f}, P0")
    path = folder / "gpus.csv"
    path.write_text("\n".join(lines) + "\n")
    return [path], [ill] if ill else [], None


def steps_log(rng, folder, ill):
    """A loop that prints how long each step and its wait for data took."""
    n, step = rng.randint(80, 600), rng.uniform(0.08, 4.0)
    wait = step * (rng.uniform(0.15, 0.6) if ill == "data.loader_wait" else rng.uniform(0.001, 0.008))
    every = rng.randint(15, 40) if ill == "side.checkpoint" else 0
    save = step * rng.uniform(0.15, 0.6) * every
    lost, total, lines, now = 0.0, 0.0, [], START
    for i in range(n):
        dt, data = step * rng.gauss(1, 0.01), wait * rng.lognormvariate(0, 0.1)
        extra = save * rng.gauss(1, 0.05) if every and i % every == every - 1 else 0.0
        if extra:
            lines.append(f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03d} INFO saving checkpoint to /data/run/step_{i}.pt")
        took = dt + data + extra
        now += datetime.timedelta(seconds=took)
        if extra:
            lines.append(f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03d} INFO saved checkpoint /data/run/step_{i}.pt")
        lines.append(f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03d} INFO step {i} loss {8 - i / n:.4f} "
                     f"step_time {took:.4f}s data_time {data:.4f}s")
        total += took
        lost += extra + (data if ill == "data.loader_wait" else 0)
    path = folder / "train.log"
    path.write_text("\n".join(lines) + "\n")
    return [path], [ill] if ill else [], lost * 1e3 if ill else None


def torch_log(rng, folder, ill):
    """TORCH_LOGS=graph_breaks,recompiles of torch 2.6, in a job that goes on stepping."""
    n, lines, now = rng.randint(60, 200), [], START
    file, function = rng.choice(["model.py", "layers/attention.py", "net.py"]), rng.choice(["forward", "embed", "attend", "route"])

    def stamp(place, level="V"):
        return f"{level}{now:%m%d %H:%M:%S}.{now.microsecond:06d} 28211 torch/_dynamo/{place}]"

    for i in range(n):
        now += datetime.timedelta(seconds=rng.uniform(0.3, 0.34))
        if ill == "compile.graph_breaks" and i < 12:
            line = 40 + 7 * i
            at = stamp("symbolic_convert.py:435")
            lines += [f"{at} [{i}/0] [__graph_breaks] Graph break in user code at /srv/job/{file}:{line}",
                      f"{at} [{i}/0] [__graph_breaks] Reason: Unsupported: Tensor.item",
                      f"{at} [{i}/0] [__graph_breaks] User code traceback:",
                      f'{at} [{i}/0] [__graph_breaks]   File "/srv/job/{file}", line {line}, in {function}']
        if ill in ("compile.recompiles", "compile.recompile_limit") and i % 7 == 3 and i // 7 < (8 if ill.endswith("limit") else 7):
            k = i // 7 + 1
            at = stamp("guards.py:2791")
            lines += [f"{at} [3/{k}] [__recompiles] Recompiling function {function} in /srv/job/{file}:88",
                      f"{at} [3/{k}] [__recompiles]     triggered by the following guard failure(s):",
                      f"{at} [3/{k}] [__recompiles]     - 3/{k - 1}: tensor 'L['x']' size mismatch at index 1. expected {64 + k}, actual {65 + k}"]
            if ill.endswith("limit") and k == 8:
                at = stamp("convert_frame.py:906", "W")
                lines += [f"{at} [3/8] torch._dynamo hit config.cache_size_limit (8)",
                          f"{at} [3/8]    function: '{function}' (/srv/job/{file}:88)",
                          f"{at} [3/8]    last reason: 3/0: tensor 'L['x']' size mismatch at index 1. expected 64, actual 72"]
        lines.append(f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03d} INFO step {i} loss {4 - i / n:.4f} step_time {rng.gauss(0.32, 0.003):.4f}s")
    path = folder / "job.log"
    path.write_text("\n".join(lines) + "\n")
    return [path], [ill] if ill else [], None


OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")


def flight(rng, folder, ill):
    """Flight Recorder dumps (JSON form, version 2.4) of every rank of one group."""
    world, n = rng.choice([2, 4, 8, 16]), rng.randint(20, 120)
    sick, stop = rng.randrange(world), rng.randint(n // 2, n)
    sequence = [(rng.choice(OPS), rng.choice([1024, 4096, 65536])) for _ in range(n)]
    begin = 1_758_581_237_000_000_000
    paths = []
    for r in range(world):
        last = n
        if ill == "comms.missing_rank":
            last = stop - 1 if r == sick else stop
        if ill == "comms.mismatch":
            last = stop
        entries = []
        for k in range(last):
            op, size = sequence[k]
            if ill == "comms.mismatch" and r == sick and k == stop - 1:
                op = next(o for o in OPS if o != op)
            out = size * world if op == "all_gather" else size // world if op == "reduce_scatter" else size
            stuck = bool(ill) and k == stop - 1
            made = begin + k * 40_000_000 + rng.randint(0, 900_000)
            entries.append({"record_id": k, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": k + 1,
                            "p2p_seq_id": 0, "op_id": k + 1, "profiling_name": f"nccl:{op}", "time_created_ns": made,
                            "input_sizes": [[size]], "input_dtypes": ["Float"], "output_sizes": [[out]], "output_dtypes": ["Float"],
                            "state": "scheduled" if stuck else "completed", "time_discovered_started_ns": None,
                            "time_discovered_completed_ns": None if stuck else made + 3_000_000, "retired": not stuck,
                            "timeout_ms": 600000, "is_p2p": False,
                            "frames": [{"name": op, "filename": "distributed_c10d.py", "line": 2500},
                                       {"name": "train", "filename": "train.py", "line": 100 + OPS.index(op)}]})
        done = last - (1 if ill and not (ill == "comms.missing_rank" and r == sick) else 0)
        doc = {"version": "2.4", "nccl_version": "2.21.5",
               "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(world)))}},
               "pg_status": {"0": {"last_enqueued_collective": last, "last_started_collective": -1, "last_completed_collective": done}},
               "entries": entries}
        paths.append(folder / f"nccl_trace_rank_{r}")
        paths[-1].write_text(json.dumps(doc))
    return paths, [ill] if ill else [], None


# family -> (writer, what is wrong; None = healthy)
FAMILIES = {
    "smi_throttled": (smi, "gpu.throttled"), "smi_spinning": (smi, "gpu.util_lies"), "smi_healthy": (smi, None),
    "log_loader": (steps_log, "data.loader_wait"), "log_save": (steps_log, "side.checkpoint"), "log_healthy": (steps_log, None),
    "torch_breaks": (torch_log, "compile.graph_breaks"), "torch_recompiles": (torch_log, "compile.recompiles"),
    "torch_limit": (torch_log, "compile.recompile_limit"), "torch_healthy": (torch_log, None),
    "flight_missing": (flight, "comms.missing_rank"), "flight_mismatch": (flight, "comms.mismatch"), "flight_healthy": (flight, None),
}
