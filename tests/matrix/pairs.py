# SPDX-License-Identifier: Apache-2.0
"""Pairs: a job before and after one change, or none. What the change costs is the wall time of the job after it less
that of the same job, with the same noise, without it; before has noise of its own, as another day has. Each
nanosecond is one finding's (doc/contract.md#lost_ms): a change of all kernels is told of the largest, one by one, and
of the rest as a stage, so that what it costs is to be held against all that it goes by.
"""
import dataclasses
import pathlib
import random
import tempfile

import kineto
import score
from families import Draw, healthy, log_uniform
from job import run

BETWEEN_RUNS = 0.055  # doc/decisions/0012-noise-of-a-comparison.md: of two runs, one each


def change(family, rng, job):
    """(fields after it, ids that name it)"""
    step_us = job.layers * 15 * job.kernel_us
    weight = log_uniform(rng, 0.08, 0.8)  # of the step
    if family == "diff_loader":
        return {"batch_us": step_us * (1 + weight) * job.workers, "ahead": False}, ("data.loader_wait", "regress.stage")
    if family == "diff_kernels":
        return {"kernel_us": job.kernel_us * (1 + weight)}, ("regress.op", "regress.stage", "regress.step")
    if family == "diff_precision":
        return {"tensor_cores": False, "kernel_us": job.kernel_us * (1 + weight)}, ("gpu.no_tensor_core", "regress.op")
    if family == "diff_exposed":
        mb = step_us * weight * job.bus_gbps * 1e3 / 2e6
        return {"overlap": False, "grad_mb": mb, "bucket_mb": mb / 4}, ("comms.exposed", "regress.stage", "regress.op")
    if family == "diff_straggler":
        return {"slow_rank": rng.randrange(job.world), "slow_factor": 1 + weight}, ("comms.straggler",)
    if family == "diff_allocator":
        return {"mallocs": 4, "malloc_us": max(50.0, step_us * weight / 4)}, ("gpu.allocator_sync",)
    if family == "diff_pageable":
        return {"pinned": False, "copy_stream": False, "copy_mb": step_us * weight * job.copy_gbps * 0.35 / 1e3}, ("data.pageable_copy",)
    if family == "diff_recompute":
        return {"recompute": True}, ("regress.memory_saving", "gpu.recompute", "regress.op", "regress.stage")
    if family == "diff_version":
        return {"cuda": rng.choice([11080, 12010, 12060, 12080, 13000])}, ("regress.version",)
    return {}, ("regress.workload",) if family == "diff_device" else ()


# The time of a step in a log is its one stage.
LOGS = {"diff_log_step": ("regress.stage", "regress.step"), "diff_log_loss": ("det.diverged",), "diff_log_same": (),
        "diff_process": ("regress.process",), "diff_process_same": ()}
FACTS = ("diff_version", "diff_device")  # which cost nothing: that it is so is all
ILL = ("diff_loader", "diff_kernels", "diff_precision", "diff_exposed", "diff_straggler", "diff_allocator", "diff_pageable", "diff_recompute", *FACTS,
       *(f for f, ill in LOGS.items() if ill))
WELL = ("diff_same", "diff_log_same", "diff_process_same")


def draw(family, number, seed):
    """(before, after, fields that undo the change, ids, device)"""
    rng = random.Random(f"{seed}/{family}/{number}")
    before = healthy(rng, rng.random())
    while family in ("diff_exposed", "diff_straggler") and before.world < 2:
        before = healthy(rng, rng.random())
    before.steps = max(before.steps, 8)
    fields, ids = change(family, rng, before)
    after = dataclasses.replace(before, seed=rng.random(), **fields)
    return Draw(family, number, after, list(ids)), before, {k: getattr(before, k) for k in fields}


def logs(rng, folder, ill):
    """([two logs of one program with the same seed], ms that the second run lost)"""
    n, other, step, decimals = rng.randint(40, 400), rng.randint(40, 400), rng.uniform(0.02, 4.0), rng.randint(4, 6)
    weight = log_uniform(rng, 0.04, 0.8) if "regress.step" in ill else 0.0
    parts, noise, paths = rng.randint(2, min(n, other) - 5), rng.uniform(0.003, 0.05), []
    curve = random.Random(rng.random())
    losses = [9 * 0.99 ** i + 1 + curve.gauss(0, 0.05) for i in range(max(n, other))]
    lost = 0.0
    for name, count, longer in ("before", n, 0.0), ("after", other, weight):
        lines = []
        for i in range(count):
            took = step * (1 + longer) * rng.gauss(1, noise)
            lost += longer and took - took / (1 + longer)
            loss = losses[i] * (1 + 0.002 * rng.gauss(1, 0.2) if "det.diverged" in ill and name == "after" and i >= parts else 1)
            lines.append(f"step {i} loss {loss:.{decimals}f} step_time {took:.4f}s")
        paths.append(folder / f"{name}.log")
        paths[-1].write_text("\n".join(lines) + "\n")
    return paths, lost * 1e3, other * step * (1 + weight) * 1e3


def sched(rng, path, period, strangers):
    """What perf script prints of two ranks that wake each other in every step, and of programs with CPUs of their own:
    {name: share of a CPU}. The step's length in seconds."""
    events, t = [], rng.uniform(100, 1e5)
    idle, ranks = ("swapper", 0), (("python3", 2100), ("python3", 2101))

    def line(at, cpu, who, event):
        events.append((at, f"{who[0]:>16} {who[1]:>6}/{who[1]:<6} [{cpu:03d}] {at:12.6f}: sched:{event}\n"))

    def switch(at, cpu, a, b, state):
        line(at, cpu, a, f"sched_switch: prev_comm={a[0]} prev_pid={a[1]} prev_prio=120 prev_state={state} ==> next_comm={b[0]} next_pid={b[1]} next_prio=120")

    def wake(at, cpu, who, whom, target):
        line(at, cpu, who, f"sched_waking: comm={whom[0]} pid={whom[1]} prio=120 target_cpu={target:03d}")

    begin, steps = t, rng.randint(80, 200)
    switch(t, 0, idle, ranks[0], "R")
    switch(t, 1, idle, ranks[1], "R")
    for _ in range(steps):
        early, late = t + period * rng.uniform(0.85, 0.9), t + period * rng.uniform(0.95, 1.0)
        switch(early, 0, ranks[0], idle, "S")
        wake(late, 1, ranks[1], ranks[0], 0)
        switch(late + 5e-5, 1, ranks[1], idle, "S")
        switch(late + 7e-5, 0, idle, ranks[0], "R")
        wake(late + 3e-4, 0, ranks[0], ranks[1], 1)
        t = late + 4e-4
        switch(t, 1, idle, ranks[1], "R")
    for cpu, (name, share) in enumerate(strangers.items(), 2):
        who, every, now = (name, rng.randint(3000, 9000)), rng.uniform(0.02, 0.5), begin
        while now + every < t:
            took = every * share * rng.uniform(0.8, 1.2)
            switch(now + 1e-4, cpu, idle, who, "R")
            switch(now + 1e-4 + took, cpu, who, idle, "S")
            now += every
    path.write_text("".join(text for _, text in sorted(events)))
    return (t - begin) / steps


def schedules(rng, folder, ill):
    """([perf script's text of a job, and of it again], 0, ms): in the second one program more runs, on a CPU that nobody else wants.
    Others are in both: a file that shows none may be of one program alone."""
    period, beside = rng.uniform(0.004, 0.08), {f"agent{i}": log_uniform(rng, 0.006, 0.5) for i in range(rng.randint(1, 3))}
    new = {rng.choice(["exporter", "scand", "updater"]): log_uniform(rng, 0.01, 0.6)}
    sched(rng, folder / "before.txt", period, beside if ill else {**beside, **new})
    took = sched(rng, folder / "after.txt", period, {**beside, **new})
    return [folder / "before.txt", folder / "after.txt"], 0.0, took * 1e3


def ask_logs(laggard, family, number, seed):
    ill = LOGS[family]
    with tempfile.TemporaryDirectory(prefix="matrix-") as folder:
        paths, lost, wall = (schedules if "process" in family else logs)(random.Random(f"{seed}/{family}/{number}"), pathlib.Path(folder), ill)
        answer = score.Answer(family, number, wall, {}, [], "", (0, 0), shown_ms=lost - BETWEEN_RUNS * (wall - lost) if lost else None)
        said = score.ask(laggard, ["diff", "--json", *paths], answer)
    found = said["findings"] if said else []
    if ill:
        answer.causes = {next((f["id"] for f in found if f["id"] in ill), ill[0]): lost or None}
    for f in found:
        answer.findings.append({"id": f["id"], "severity": f["severity"], "confidence": f["confidence"], "strength": f["strength"],
                                "lost_ms": f["lost_ms"], "truth_ms": lost or None,
                                "right": f["id"] in ill and (not f["lost_ms"] or lost >= 0.5 * f["lost_ms"])})
    return answer


def ask(laggard, family, number, seed):
    if family in LOGS:
        return ask_logs(laggard, family, number, seed)
    drawn, before, undo = draw(family, number, seed)
    after, ids = drawn.job, drawn.causes
    ranks, wall_us = run(after)
    cost = (wall_us - run(after.without(**undo))[1]) / 1e3
    ranks_before, before_us = run(before)
    answer = score.Answer(family, number, wall_us / 1e3, {}, [], "", (0, after.steps),
                          shown_ms=(wall_us - (1 + BETWEEN_RUNS) * before_us) / 1e3)
    with tempfile.TemporaryDirectory(prefix="matrix-") as folder:
        sides = []
        for name, job, of, device in (("before", before, ranks_before, "NVIDIA L4" if family == "diff_device" else drawn.device), ("after", after, ranks, drawn.device)):
            sides.append(pathlib.Path(folder) / name)
            sides[-1].mkdir()
            for r in of:
                kineto.write(sides[-1] / f"rank{r.rank}.json.gz", job, r, device)
        said = score.ask(laggard, ["diff", "--json", *sides], answer)
    found = said["findings"] if said else []
    if ids:  # one change may go by several names: the first that is told, else the best
        answer.causes = {next((f["id"] for f in found if f["id"] in ids), ids[0]): None if family in FACTS else cost}
        answer.told_ms = sum(f["lost_ms"] or 0 for f in found if f["id"] in ids) or None
    for f in found:
        truth = cost if ids else 0.0
        right = f["id"] in ids and (f["lost_ms"] is None or truth >= 0.5 * f["lost_ms"])
        if f["id"] == "regress.workload" and family != "diff_device":  # other copies or gradients are other work: that is so
            right = None
        answer.findings.append({"id": f["id"], "severity": f["severity"], "confidence": f["confidence"], "strength": f["strength"],
                                "lost_ms": f["lost_ms"], "truth_ms": truth, "right": right})
    return answer
