# SPDX-License-Identifier: Apache-2.0
"""Compare a verdict (explain --json, schema 1) with a scenario's expectation and with the truth."""


class Soft(str):
    """A fault that other work on the machine can cause: excused when there was much of it."""


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


def judge_lost(expect, truth, finding, others_ms=0):
    """Lost time against the excess of the steps that the cause really touched.

    others_ms: what the verdict gives to other causes, which may fall into the same steps (a long
    garbage collection beside the agent's visit): the touched steps' excess is theirs as well.
    """
    if not expect.culprit or finding["lost_ms"] is None:
        return []
    excess = truth.excess_ms(expect.culprit)
    # An act that ends inside a step which stays below "slow" is lost time too, and a rank that
    # is not rank 0 may add steps of its own: hence wide bounds.
    if not 0.4 * excess - others_ms <= finding["lost_ms"] <= 1.6 * excess + 50:
        return [f"{expect.id}: lost_ms {finding['lost_ms']:.0f}, "
                f"the steps it touched lost {excess:.0f}"]
    return []


def judge_steps(case, truth, verdict):
    out = []
    steps = verdict["steps"]
    n = len(truth.steps[0])
    # explain sees the warm-up too, and may count per rank.
    if steps["count"] is None or steps["count"] < 0.9 * n:
        out.append(f"steps.count {steps['count']}, the ranks made {n}")
    median = truth.median_ms()
    if steps["median_ms"] is None or abs(steps["median_ms"] - median) > 0.1 * median:
        # explain sees the warm-up too, and a neighbour may have been busy during one of them.
        out.append(Soft(f"steps.median_ms {steps['median_ms']}, the ranks measured {median:.2f}"))
    if case.nproc > 1 and steps.get("ranks") != list(range(case.nproc)):
        out.append(f"steps.ranks {steps.get('ranks')}")
    if case.scopes and steps["scope"] not in case.scopes:
        out.append(Soft(f"scope {steps['scope']}, expected {' or '.join(case.scopes)}"))
    if case.periods:
        period = steps["period_s"]
        if steps["shape"] != "periodic":
            out.append(Soft(f"shape {steps['shape']}, expected periodic"))
        elif not any(abs(period - p) <= 0.05 * p for p in case.periods):
            out.append(Soft(f"period_s {period}, expected {case.periods} within 5 %"))
    return out


def is_foreign(finding, truth):
    """Contention for a CPU by a process that is no part of the scenario: real, and not ours."""
    culprit = finding.get("culprit") or {}
    ours = {*truth.pids, *truth.cause_pids.values()}
    return (finding["id"] == "host.cpu_contention" and culprit.get("relation") == "other_process"
            and culprit.get("pid") is not None and culprit["pid"] not in ours)


def judge(case, truth, verdict):
    """Everything in the verdict that is not as expected, in sentences."""
    missing = [key for key in REQUIRED if key not in verdict]
    if missing:
        return [f"the verdict lacks {', '.join(missing)}"]
    out = judge_steps(case, truth, verdict)
    findings = verdict["findings"]
    measured = [f["lost_ms"] for f in findings if f["lost_ms"] is not None]
    if measured != sorted(measured, reverse=True):
        out.append("findings are not ranked by lost_ms")
    used = []
    for expect in case.expect:
        tries = [(match(expect, truth, f), i) for i, f in enumerate(findings)]
        good = [i for wrong, i in tries if not wrong]
        if good:
            used.append(good[0])
            out += judge_lost(expect, truth, findings[good[0]],
                              sum(measured) - (findings[good[0]]["lost_ms"] or 0))
            continue
        near = min((wrong for wrong, i in tries if findings[i]["id"] == expect.id),
                   key=len, default=None)
        out.append(f"{expect.id} is missing" if near is None else f"{expect.id}: {'; '.join(near)}")
    for i, finding in enumerate(findings):
        if i not in used and at_least(finding, "medium") and finding["id"] not in case.may:
            fault = f"unexpected {finding['severity']} {finding['id']}: {finding['title']}"
            out.append(Soft(fault) if is_foreign(finding, truth) else fault)
    for given in verdict["inputs"]:
        if given.get("lost_events"):
            out.append(Soft(f"{given['lost_events']} events were lost"))
    return out
