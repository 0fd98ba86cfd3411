# SPDX-License-Identifier: Apache-2.0
"""Live draws: a real job of real processes, recorded, with something really done to it.

`live/job.c` trains nothing but waits, computes and meets as training does; `live/cause.c` is somebody beside it.
What a cause costs is read off the ranks' own clocks: the excess of the steps that it touched over the median
of those that it did not (an act now and then), or the time without a batch, or between the last rank's arrival
and the others' (always). That the job's own threads waited for each other's CPUs is right where the kernel counted as
much (schedstat). What others of the machine had of its CPUs meanwhile is measured, and said of each draw in
which it was much (DISTURBED): such a draw counts all the same.
"""
import bisect
import os
import pathlib
import random
import resource
import signal
import statistics
import subprocess
import tempfile
import time

import quota
import score
from families import log_uniform

SECONDS = 9
LATE_MS = 400  # what of the job's start and end is in the recording, but in no step
CPUS = os.cpu_count() or 1
DISTURBED = 0.15  # CPUs that neither the job, nor who was to disturb it, nor the recorder had

# family -> the ids that name its cause
FAMILIES = {
    "live_hog": ("host.cpu_contention",), "live_hog_always": ("host.cpu_contention",),
    "live_walk": ("host.lock_held",), "live_stop": ("host.stopped",),
    "live_straggler": ("comms.straggler",), "live_late_now_and_then": ("comms.straggler",), "live_in_turn": ("comms.straggler",),
    "live_loader": ("data.loader_wait",), "live_loader_burst": ("data.loader_wait",),
    "live_save": ("side.checkpoint",), "live_fork": ("host.self_fork",),
    "live_quota": ("host.cpu_throttled",), "live_crowd": ("host.oversubscribed",), "live_answer": ("host.waited_for",),
    "live_disk": ("host.io_wait",),
}
HEALTHY = ("live_healthy", "live_healthy_neighbours", "live_healthy_quota", "live_healthy_answer", "live_healthy_disk")
DATA_MB = 256  # the file that live_disk reads of


def job(rng):
    """A healthy one: the loader is ahead, the ranks are alike, there is CPU for all."""
    step_us = log_uniform(rng, 3e3, 150e3)
    world = rng.choice([1, 2, 2, 4] if CPUS <= 2 else [1, 2, 4, 8])
    share = rng.uniform(0.05, min(0.8, 0.4 * CPUS / world))  # of a step on the CPU
    return {"world": world, "host_us": step_us * share, "device_us": step_us * (1 - share), "noise": rng.uniform(0.01, 0.12),
            "maps": rng.choice([0, 0, 1, 4]), "mb": rng.choice([8, 64]), "pin": rng.choice([0, 1]), "seed": rng.randrange(10**6),
            "loader_us": step_us * rng.uniform(0.05, 0.5), "seconds": SECONDS}, step_us


def draw(family, number, seed):
    """(job's settings, others' arguments: [[mode, ...]])"""
    rng = random.Random(f"{seed}/{family}/{number}")
    spec, step_us = job(rng)
    period_ms = log_uniform(rng, 350, 1500)
    first_ms = rng.uniform(300, 900)
    weight = log_uniform(rng, 0.08, 0.5)  # of the run
    beside = []
    every = max(3, int(period_ms * 1e3 / step_us))  # steps
    if family == "live_hog":
        spec["pin"], spec["host_us"], spec["device_us"] = 1, 0.8 * step_us, 0.2 * step_us
        spec["world"] = rng.choice([1, 2])
        beside = [["hog", first_ms, period_ms, 2 * weight * period_ms, -1, CPUS]]
    elif family == "live_hog_always":
        spec["pin"], spec["world"] = 1, rng.choice([1, 2])
        spec["host_us"], spec["device_us"] = 0.8 * step_us, 0.2 * step_us
        beside = [["hog", first_ms, 1e5, 1e5, rng.randrange(min(spec["world"], CPUS)), 1]]
    elif family == "live_walk":
        spec["mb"], spec["maps"] = rng.choice([700, 1200, 2000]), rng.choice([2, 8, 20])
        spec["world"] = min(spec["world"], 2)
        beside = [["walk", first_ms, period_ms / 2, rng.choice(["smaps_rollup", "smaps"]), "PIDS"]]
    elif family == "live_stop":
        beside = [["stop", first_ms, period_ms, weight * period_ms, "PIDS"]]
    elif family == "live_straggler":
        spec["world"] = rng.choice([2, 4])
        spec["late_rank"], spec["late_us"] = rng.randrange(spec["world"]), step_us * weight
        spec["host_us"] = min(spec["host_us"], 0.3 * step_us)
    elif family == "live_late_now_and_then":
        spec["world"] = rng.choice([2, 4])
        spec.update(late_rank=rng.randrange(spec["world"]), late_us=max(weight * period_ms * 1e3, 1.5 * step_us), every=every)
    elif family == "live_in_turn":
        spec["world"] = rng.choice([2, 4])
        spec.update(turn=1, late_us=max(weight * period_ms * 1e3, 1.5 * step_us), every=every)
    elif family == "live_loader":
        spec["loader_us"] = step_us * (1 + weight)
    elif family == "live_loader_burst":
        spec["loader_us"] = step_us * 0.3
        spec.update(burst_every=max(every, 6), burst_us=step_us * 2 + weight * period_ms * 1e3)
    elif family == "live_save":
        spec.update(save_every=every, save_mb=rng.randint(1, 40), serialize_us=weight * period_ms * 500)
    elif family == "live_fork":
        spec.update(mb=rng.choice([400, 1000, 1800]), fork_every=every, world=min(spec["world"], 2))
    elif family in ("live_quota", "live_healthy_quota"):
        spec["world"], spec["host_us"], spec["device_us"] = rng.choice([1, min(2, CPUS)]), 0.7 * step_us, 0.3 * step_us
        used = spec["world"] * 0.7  # CPUs, while nobody holds it up
        spec["quota"] = used * rng.uniform(0.4, 0.8) if family in FAMILIES else max(1.5 * used, spec["world"])
    elif family == "live_crowd":
        spec["world"], spec["pin"], spec["host_us"], spec["device_us"] = min(2 * CPUS, 16), 1, 0.8 * step_us, 0.2 * step_us
    elif family in ("live_answer", "live_healthy_answer"):
        late = weight * period_ms if family in FAMILIES else 0
        spec["world"], spec["asks"] = min(spec["world"], CPUS), 1
        beside = [["serve", first_ms, period_ms, late, "SOCKET", rng.choice([0, 1])]]
    elif family in ("live_disk", "live_healthy_disk"):
        spec["world"] = min(spec["world"], CPUS)
        spec.update(read_every=every, read_us=weight * period_ms * 1e3 if family in FAMILIES else 200)
    if family in HEALTHY:
        spec["world"] = min(spec["world"], CPUS)  # more ranks that go on together wait for each other's CPUs
    if family == "live_healthy_neighbours":  # busy, but in nobody's way
        beside = [["walk", first_ms, period_ms, "statm", "PIDS"], ["hog", first_ms, period_ms, rng.uniform(0.2, 1), -1, 1]]
    return spec, beside


def rows(path):
    try:
        return [tuple(map(int, line.split())) for line in path.read_text().splitlines() if line.endswith(tuple("0123456789"))]
    except FileNotFoundError:
        return []


def excess_ms(steps, acts):
    """What the steps that an act touched are longer than the median of the others around."""
    ends = [a + d for a, d in acts]
    starts = [a for a, _ in acts]
    touched = [bisect.bisect_right(ends, s) < bisect.bisect_left(starts, s + d) for s, d, *_ in steps]
    free = [d for (_, d, *_), t in zip(steps, touched) if not t]
    usual = statistics.median(free) if free else 0
    return sum(d - usual for (_, d, *_), t in zip(steps, touched) if t) / 1e6, sum(touched)


def cost_ms(family, spec, ranks, acts):
    """(ms lost on rank 0, steps that lost it) by the ranks' own clocks."""
    first = ranks[0]
    if family == "live_quota":
        pushed = [max(r[i][4] for r in ranks if i < len(r)) for i in range(len(first))]
        return sum(pushed) / 1e6, sum(p > 0 for p in pushed)
    if family == "live_disk":
        return sum(s[5] for s in first) / 1e6, sum(s[5] > 0 for s in first)
    if family == "live_crowd":
        return None, len(first)  # what more CPUs would give back is not on anybody's clock
    if family in ("live_loader", "live_loader_burst"):
        return sum(max(r[i][2] for r in ranks if i < len(r)) for i in range(len(first))) / 1e6, len(first)
    if family == "live_straggler":
        n = min(map(len, ranks))
        gaps = []
        for i in range(n):
            others = [r[i][3] for k, r in enumerate(ranks) if k != spec["late_rank"]]
            gaps.append(ranks[spec["late_rank"]][i][3] - statistics.median(others))
        return sum(max(g, 0) for g in gaps) / 1e6, n
    if family == "live_hog_always":
        return None, len(first)  # without a step that was not touched there is nothing to compare with
    return excess_ms(first, acts)


def cpu_s():
    """Seconds of CPU that this machine gave, or was kept from giving, and those of our children that ended."""
    ticks = [int(x) for x in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    ours = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK"), ours.ru_utime + ours.ru_stime


def data_file(build):
    """A file on the disk that the build is on; its pages are no longer in memory."""
    path = build / "matrix.data"
    if not path.exists() or path.stat().st_size < DATA_MB << 20:
        path.write_bytes(os.urandom(1 << 20) * DATA_MB)
    with path.open("rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path


def run(laggard, build, spec, beside, folder):
    """(ranks' steps, acts, ms that they waited for CPUs, pids of those beside, recording) of one recorded run."""
    with quota.group(spec.get("quota")) as (within, _):
        return run_within(within, laggard, build, spec, beside, folder)


def run_within(within, laggard, build, spec, beside, folder):
    recording, socket = folder / "run.lag", folder / "socket"
    args = [f"{k}={v}" for k, v in spec.items()] + [f"out={folder}", f"server={socket}"]
    if "read_every" in spec:
        args.append(f"data={data_file(build)}")
    as_root = ["--user", "root"] if os.geteuid() == 0 else []
    with open(folder / "record.log", "wb") as log:
        job_ = subprocess.Popen([laggard, "record", *as_root, "-o", str(recording), "--", *within, str(build / "matrix_job"), *args],
                                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    others = []
    try:
        ready = [folder / f"ready.{r}" for r in range(spec["world"])]
        end = time.monotonic() + 30
        while not all(p.exists() for p in ready):
            if time.monotonic() > end or job_.poll() is not None:
                raise RuntimeError("the job did not start: " + (folder / "record.log").read_text()[-300:])
            time.sleep(0.02)
        pids = ranks_of(job_.pid)
        for i, argv in enumerate(beside):
            words = [str(w) for word in argv[1:] for w in (pids if word == "PIDS" else [socket] if word == "SOCKET" else [word])]
            others.append(subprocess.Popen([str(build / "matrix_cause"), argv[0], str(folder / f"beside.{i}"), *words]))
        if job_.wait(SECONDS * 10 + 60):
            raise RuntimeError("the recording failed: " + (folder / "record.log").read_text()[-300:])
    finally:
        for p in others:
            p.kill()
            p.wait()
        if job_.poll() is None:
            job_.send_signal(signal.SIGTERM)
            job_.wait()
    acts = [a for i in range(len(beside)) for a in rows(folder / f"beside.{i}")]
    acts += [a for r in range(spec["world"]) for a in rows(folder / f"acts.{r}")]
    delay = sum(ns for r in range(spec["world"]) for (ns,) in rows(folder / f"delay.{r}"))
    return [rows(folder / f"steps.{r}") for r in range(spec["world"])], sorted(acts), delay / 1e6, [p.pid for p in others], recording


def ranks_of(recorder):
    """Pids of the ranks, in order: the job's children."""
    out = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            env = dict(e.split("=", 1) for e in path.read_bytes().decode(errors="replace").split("\0") if "=" in e)
        except OSError:
            continue
        if "JOB_FD" in env and descends(int(path.parent.name), recorder):
            out[int(env["RANK"])] = int(path.parent.name)
    return [out[r] for r in sorted(out)]


def descends(pid, ancestor):
    while pid > 1:
        if pid == ancestor:
            return True
        try:
            pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            return False
    return False


def ask(laggard, build, family, number, seed):
    """One draw: what was done, what laggard says of it."""
    spec, beside = draw(family, number, seed)
    with tempfile.TemporaryDirectory(prefix="matrix-") as folder:
        folder = pathlib.Path(folder)
        ids = FAMILIES.get(family, ())
        # What is not known to have cost little counts, also where the run failed.
        answer = score.Answer(family, number, 0.0, dict.fromkeys(ids[:1]), [], "", (0, 0))
        before, begun = cpu_s(), time.monotonic()
        try:
            ranks, acts, delay_ms, pids, recording = run(laggard, build, spec, beside, folder)
            if not all(len(r) > 1 for r in ranks):
                raise RuntimeError("a rank made no steps")
        except (RuntimeError, subprocess.TimeoutExpired) as e:
            answer.error = str(e)
            return answer
        (busy, ours), took = (y - x for x, y in zip(before, cpu_s())), time.monotonic() - begun
        answer.others_cpus = max(0.0, busy - ours) / took
        first = ranks[0]
        answer.wall_ms = (first[-1][0] + first[-1][1] - first[0][0]) / 1e6
        cost = None
        if ids:
            cost, answer.touched = cost_ms(family, spec, ranks, acts)
            answer.causes = {ids[0]: cost}
        said = score.explain(laggard, [recording], answer)
    if not said:
        return answer
    answer.bound = said["bound"]["verdict"]
    answer.steps = (said["steps"]["count"], len(first))
    answer.scope = said["steps"]["scope"]
    for f in said["findings"]:
        culprit = (f.get("culprit") or {}).get("pid")
        right = f["id"] in ids
        if f["id"] == "host.cpu_contention" and culprit not in pids:
            right = None  # somebody of this machine had the CPU, or nobody: not known here
        elif right and beside:
            right = culprit in pids
        elif right and family in ("live_straggler", "live_late_now_and_then"):
            right = (f.get("culprit") or {}).get("rank") in (spec["late_rank"], None)
        elif f["id"] == "host.oversubscribed":
            right = delay_ms >= 0.5 * (f["lost_ms"] or 0)
        answer.findings.append({"id": f["id"], "severity": f["severity"], "confidence": f["confidence"], "strength": f["strength"], "lost_ms": f["lost_ms"],
                                "truth_ms": None if not right else delay_ms if f["id"] == "host.oversubscribed" else cost, "right": right, "title": f["title"]})
    return answer
