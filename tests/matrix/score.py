# SPDX-License-Identifier: Apache-2.0
"""Ask laggard about a draw and hold the answer against what the simulation knows."""
import dataclasses
import json
import pathlib
import random
import re
import subprocess
import tempfile

import kineto
import logs
import more
import texts
from families import WITHOUT
from job import run

# Always info: what they say is right or wrong all the same, where a draw plans it or its contrary.
FACTS = ("gpu.bound", "warmup.dominates", "regress.process", "regress.version", "regress.workload")
TEXTS = {**texts.FAMILIES, **logs.FAMILIES}


@dataclasses.dataclass
class Answer:
    family: str
    number: int
    wall_ms: float
    causes: dict  # planned id -> what it costs, ms
    findings: list  # {id, severity, confidence, lost_ms, truth_ms, right}
    bound: str
    steps: tuple  # said, true
    scope: str = ""
    touched: int = 0  # steps that the cause made longer
    error: str = ""
    told_ms: float | None = None  # pairs: of all findings that are the cause's
    shown_ms: float | None = None  # pairs: what the second run takes longer, beyond what may lie between runs of one program
    seed: int | None = None  # that it was drawn with
    one_loss: bool = False  # its causes are one loss, which goes by either name
    others_cpus: float = 0.0  # live: CPUs that strangers to the draw had


def cost_ms(job, wall_us, finding):
    """What the job would gain without the cause of a finding; None where the simulation has no such cause."""
    if finding not in WITHOUT:
        return None
    return (wall_us - run(job.without(**WITHOUT[finding]))[1]) / 1e3


def is_one_loss(job, wall_us, costs):
    """Whether taking all of the causes away gives back hardly more than one of them: the same time by several names."""
    if len(costs) < 2 or not all(c in WITHOUT and v for c, v in costs.items()):
        return False
    without = {k: v for c in costs for k, v in WITHOUT[c].items()}
    return (wall_us - run(job.without(**without))[1]) / 1e3 < max(costs.values()) + 0.5 * min(costs.values())


def is_right(job, found, truth_ms):
    """None where the simulation cannot tell."""
    if found["id"] in more.PLANNED:
        return more.PLANNED[found["id"]](job)
    if truth_ms is None:
        return None
    return truth_ms >= 0.5 * (found["lost_ms"] or 0) and truth_ms > 0


def explain(laggard, paths, answer):
    return ask(laggard, ["explain", "--json", *paths], answer)


def ask(laggard, words, answer):
    """The verdict; None, and answer.error, where there is none."""
    done = subprocess.run([laggard, *map(str, words)], check=False, capture_output=True, text=True, timeout=120)
    if done.returncode:
        answer.error = done.stderr.strip()[:200] or f"status {done.returncode}"
        return None
    return json.loads(done.stdout)


def ask_trace(laggard, draw):
    job = draw.job
    ranks, wall_us = run(job)
    answer = Answer(draw.family, draw.number, wall_us / 1e3, {c: cost_ms(job, wall_us, c) for c in draw.causes}, [], "", (0, job.steps))
    answer.one_loss = is_one_loss(job, wall_us, answer.causes)
    with tempfile.TemporaryDirectory(prefix="matrix-") as folder:
        paths = [pathlib.Path(folder) / f"rank{r.rank}.json.gz" for r in ranks]
        for path, r in zip(paths, ranks):
            kineto.write(path, job, r, draw.device, draw.cut, draw.lost)
        said = explain(laggard, paths, answer)
    if not said:
        return answer
    answer.bound = said["bound"]["verdict"]
    answer.steps = (said["steps"]["count"], job.steps)
    for f in said["findings"]:
        truth = answer.causes.get(f["id"])
        if truth is None and (f["severity"] != "info" or f["id"] in FACTS or (f["lost_ms"] or 0) >= 10 * answer.wall_ms / 1e3):
            truth = cost_ms(job, wall_us, f["id"])
        answer.findings.append({"id": f["id"], "severity": f["severity"], "confidence": f["confidence"], "strength": f["strength"],
                                "lost_ms": f["lost_ms"], "truth_ms": truth,
                                "right": computes(ranks, f) if f["id"] == "gpu.bound" else is_right(job, f, truth)})
    return answer


def computes(ranks, found):
    """gpu.bound says for which share of the time the device computes: so it is, or not, within three hundredths."""
    said = float(re.search(r"(\d+) %", found["title"])[1]) / 100
    shares = []
    for r in ranks:
        kernels = sorted((e.ts, e.ts + e.dur) for e in r.events if e.cat == "kernel" and not e.name.startswith("nccl"))
        busy = end = 0.0
        for begin, stop in kernels:
            busy += max(0.0, stop - max(begin, end))
            end = max(end, stop)
        shares.append(busy / r.t)
    return min(shares) - 0.03 <= said <= max(shares) + 0.03


def ask_text(laggard, family, number, seed):
    write, ill = TEXTS[family]
    with tempfile.TemporaryDirectory(prefix="matrix-") as folder:
        paths, ids, lost = write(random.Random(f"{seed}/{family}/{number}"), pathlib.Path(folder), ill)
        answer = Answer(family, number, 0.0, dict.fromkeys(ids, lost), [], "", (0, 0))
        said = explain(laggard, paths, answer)
    for f in said["findings"] if said else []:
        # A limit that was hit is also that many recompilations.
        also = ill == "compile.recompile_limit" and f["id"] == "compile.recompiles"
        answer.findings.append({"id": f["id"], "severity": f["severity"], "confidence": f["confidence"], "strength": f["strength"], "lost_ms": f["lost_ms"],
                                "truth_ms": lost if f["id"] in ids else None, "right": f["id"] in ids or also})
    return answer
