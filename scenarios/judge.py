# SPDX-License-Identifier: Apache-2.0
"""Compare a verdict (explain --json, schema 1) with a scenario's expectation and with the truth."""
import math


# Of lost_ms, as a share of what the steps that a cause touched lost by the ranks' own clocks. Measured on a quiet
# machine, readers of the ranks' maps: 0.80, 0.83, 0.84, 0.87; by the lock alone 0.71, 0.81 in two runs more. In the
# rest of the excess the job's own threads pushed each other aside.
LOST_BOUNDS = 0.7, 1.2
SHARED_LOW = 0.5      # where two causes are at work: a step that both touched is in the truth of each (0.65, 0.74)
LOST_SLACK_MS = 30      # what an act leaves behind in the next steps
FOREIGN_LIMIT = 0.10  # share of the machine that others may use before a wrong verdict means little
OWN_PART = 0.4        # of their waits, what host.oversubscribed may count as lost: a third, by its own words
UNSEEN_MS = 250       # CPU time that neighbours.py may miss of a process: a tick a thread, its last second


class Wrong(str):
    """Not as expected; a live run is an experiment, and may be made again."""
    says = "NOT AS EXPECTED"


class Accusation(str):
    """Somebody is named who did nothing, or not that much. Final."""
    says = "ACCUSED"


class Disturbance(str):
    """True, by the kernel's own account, of somebody who is no part of the scenario."""
    says = "DISTURBED"


SEVERITY = ("info", "low", "medium", "high")
REQUIRED = ("schema", "laggard", "inputs", "steps", "bound", "findings", "limits")


def at_least(finding, severity):
    return SEVERITY.index(finding["severity"]) >= SEVERITY.index(severity)


def base_name(function):
    """smap_gather_stats.part.0 -> smap_gather_stats: gcc's clones are the same function."""
    return (function or "").split(".")[0]


def match(expect, truth, finding):
    """What differs between a finding and what is expected of it; [] = this is it."""
    culprit = finding.get("culprit") or {}
    out = []
    if finding["id"] != expect.id:
        return [f"id {finding['id']}"]
    if expect.culprit and culprit.get("pid") != truth.cause_pids[expect.culprit]:
        out.append(f"pid {culprit.get('pid')}, expected {truth.cause_pids[expect.culprit]}")
    if expect.culprit and ".py" not in (culprit.get("cmdline") or ""):
        out.append(f"command line {culprit.get('cmdline')!r}")
    if expect.relation and culprit.get("relation") != expect.relation:
        out.append(f"relation {culprit.get('relation')}, expected {expect.relation}")
    if expect.functions and base_name(culprit.get("function")) not in expect.functions:
        out.append(f"function {culprit.get('function')}, expected one of {expect.functions}")
    if expect.lock and culprit.get("lock") != expect.lock:
        out.append(f"lock {culprit.get('lock')}, expected {expect.lock}")
    ranks = {v.get("rank") for v in finding.get("victims") or []}
    if not set(expect.victims) <= ranks:
        out.append(f"victims {sorted(map(str, ranks))}, expected {expect.victims}")
    if not at_least(finding, expect.severity):
        out.append(f"severity {finding['severity']}, expected {expect.severity} or more")
    for field in ("title", "fix", "tradeoff", "rule"):
        if not finding.get(field):
            out.append(f"no {field}")
    if finding["lost_ms"] is not None and not finding.get("evidence"):
        out.append("no evidence")
    if not 0 <= (finding["confidence"] or -1) <= 1:
        out.append(f"confidence {finding['confidence']}")
    return out


def judge_lost(expect, truth, finding, findings):
    """Lost time against the excess of the steps that the cause really touched, by the ranks' own clocks.

    A step knows no reason: who holds a lock while it computes costs its waiters the lock and their neighbours
    the CPU, and both are in the excess. So all that the culprit is named for counts.
    """
    if not expect.culprit or finding["lost_ms"] is None:
        return []
    pid = truth.cause_pids[expect.culprit]
    told = sum(f["lost_ms"] or 0 for f in findings if (f.get("culprit") or {}).get("pid") == pid)
    excess = truth.excess_ms(expect.culprit)
    low, high = LOST_BOUNDS
    if len(truth.cause_pids) > 1:
        low = SHARED_LOW
    if not low * excess <= told <= high * excess + LOST_SLACK_MS:
        return [Wrong(f"{expect.id}: lost_ms {told:.0f} for all that {expect.culprit} did, "
                      f"the steps it touched lost {excess:.0f}")]
    return []


def judge_steps(case, truth, verdict):
    out = []
    steps = verdict["steps"]
    n = len(truth.steps[0])
    # explain sees the warm-up too, and may count per rank.
    if steps["count"] is None or steps["count"] < 0.9 * n:
        out.append(Wrong(f"steps.count {steps['count']}, the ranks made {n}"))
    median = truth.median_ms()
    if steps["median_ms"] is None or abs(steps["median_ms"] - median) > 0.1 * median:
        # explain sees the warm-up too, and a neighbour may have been busy during one of them.
        out.append(Wrong(f"steps.median_ms {steps['median_ms']}, the ranks measured {median:.2f}"))
    if case.nproc > 1 and steps.get("ranks") != list(range(case.nproc)):
        out.append(Wrong(f"steps.ranks {steps.get('ranks')}"))
    if case.scopes and steps["scope"] not in case.scopes:
        out.append(Wrong(f"scope {steps['scope']}, expected {' or '.join(case.scopes)}"))
    if case.periods:
        period = steps["period_s"]
        if steps["shape"] != "periodic":
            out.append(Wrong(f"shape {steps['shape']}, expected periodic"))
        elif not any(abs(period - p) <= 0.05 * p for p in case.periods):
            out.append(Wrong(f"period_s {period}, expected {case.periods} within 5 %"))
    return out


def by_the_kernel(finding, truth):
    """What the kernel's own count says for a finding that is no part of the scenario; "" = nothing.

    A rank is pinned to one CPU, where gloo's thread needs more of it on some days, and one CPU may be slower than
    the other (its sibling belongs to somebody else): both are true of this machine, and no fault of the verdict.
    """
    culprit = finding.get("culprit") or {}
    lost = finding["lost_ms"] or math.inf
    had = truth.cpu_ms.get(culprit.get("pid"), 0)
    ours = {None, *truth.pids, *truth.cause_pids.values()}
    if finding["id"] == "host.cpu_contention" and culprit.get("relation") == "other_process" and \
       culprit["pid"] not in ours and lost <= had + UNSEEN_MS:
        return f"it had {had:.0f} ms"
    if finding["id"] == "host.oversubscribed" and culprit.get("pid") in truth.pids and lost <= OWN_PART * truth.waited_ms():
        return f"they waited {truth.waited_ms():.0f} ms for a CPU"
    if finding["id"] == "comms.straggler" and lost <= LOST_BOUNDS[1] * truth.more_ms(culprit.get("rank")):
        return f"it needed {truth.more_ms(culprit.get('rank')):.0f} ms more of CPU time"
    return ""


def unexpected(finding, truth):
    """What a finding that is no part of the scenario is: a disturbance where the kernel says the same."""
    text = f"unexpected {finding['severity']} {finding['id']}: {finding['title']}"
    kernel = by_the_kernel(finding, truth)
    return Disturbance(f"{text} ({kernel})") if kernel else Accusation(text)


def innocent(case, truth, finding):
    """Whoever is named for having the CPU did have it, and a cause that is not expected to bite is no holder.

    At every severity: small contention on a busy machine is true, and may be told; what is not true may not.
    """
    culprit = finding.get("culprit") or {}
    pid, causes = culprit.get("pid"), {v: k for k, v in truth.cause_pids.items()}
    if culprit.get("relation") != "other_process" or pid is None:
        return []
    if finding["id"] == "host.cpu_contention":
        had = truth.cpu_ms.get(pid)
        if had is not None and finding["lost_ms"] > had + UNSEEN_MS:
            return [Accusation(f"{finding['severity']} {finding['id']}: pid {pid} shall have cost "
                               f"{finding['lost_ms']:.0f} ms, it had {had:.0f} ms of CPU time")]
    elif pid in causes and not any(e.culprit == causes[pid] and e.id == finding["id"] for e in case.expect):
        return [Accusation(f"{finding['severity']} {finding['id']} names {causes[pid]}: {finding['title']}")]
    return []


def judge_order(case, truth, findings, used):
    """The causes come first, in the order of what they cost by the ranks' own clocks."""
    out = []
    cost = [truth.excess_ms(e.culprit) for i, e in sorted(zip(used, case.expect)) if e.culprit]
    for i, finding in enumerate(findings[:max(used, default=0)]):
        if i not in used and (finding["id"] not in case.may or truth.own_ms() < 0.8 * max(cost, default=math.inf)):
            text = f"{finding['id']} is told before {findings[max(used)]['id']}"
            fault = unexpected(finding, truth)
            out.append(Disturbance(text) if isinstance(fault, Disturbance) else Wrong(text))
    if any(a < 0.8 * b for a, b in zip(cost, cost[1:])):
        out.append(Wrong(f"causes are not told in the order of their cost, which is {cost}"))
    return out


def judge(case, truth, verdict):
    """Everything in the verdict that is not as expected, in sentences."""
    missing = [key for key in REQUIRED if key not in verdict]
    if missing:
        return [Wrong(f"the verdict lacks {', '.join(missing)}")]
    out = judge_steps(case, truth, verdict)
    findings = verdict["findings"]
    measured = [f["lost_ms"] for f in findings if f["lost_ms"] is not None]
    if measured != sorted(measured, reverse=True):
        out.append(Wrong("findings are not ranked by lost_ms"))
    used = []
    for expect in case.expect:
        tries = [(match(expect, truth, f), i) for i, f in enumerate(findings)]
        good = [i for wrong, i in tries if not wrong]
        if good:
            used.append(good[0])
            out += judge_lost(expect, truth, findings[good[0]], findings)
            continue
        near = min((wrong for wrong, i in tries if findings[i]["id"] == expect.id),
                   key=len, default=None)
        out.append(Wrong(f"{expect.id} is missing" if near is None else f"{expect.id}: {'; '.join(near)}"))
    if len(used) == len(case.expect):
        out += judge_order(case, truth, findings, used)
    for i, finding in enumerate(findings):
        out += innocent(case, truth, finding)
        if i not in used and at_least(finding, "medium") and finding["id"] not in case.may:
            out.append(unexpected(finding, truth))
    for given in verdict["inputs"]:
        # One of 100,000 is no full buffer: a program that an interrupt found in the middle of itself.
        if given.get("lost_events", 0) * 100000 > sum((given.get("rows") or {}).values()):
            out.append(Wrong(f"{given['lost_events']} events were lost"))
    return out


def status(faults, truth):
    """run.py's exit status: 0 as expected, 1 not, 3 somebody innocent was accused, 75 the run was disturbed."""
    kinds = {type(fault) for fault in faults}
    if Accusation in kinds:
        return 3
    if Disturbance in kinds or faults and truth.foreign > FOREIGN_LIMIT:
        return 75
    return 1 if faults else 0
