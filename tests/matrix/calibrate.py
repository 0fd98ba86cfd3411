# SPDX-License-Identifier: Apache-2.0
"""From findings that were right or wrong to the confidence that a finding may state.

A rule states how strong its evidence is; what that is worth is measured. Pool-adjacent-violators (isotonic
regression, Barlow et al. 1972) on strength against hits; a rule with few draws of its own leans on all rules' curve
(the curve counts as PRIOR draws). Even draws fit, odd draws judge.
"""
PRIOR = 10.0


def isotonic(points):
    """[(strength, hit)] -> [(strength from which, rate)], never falling."""
    blocks = []
    for strength, hit in sorted(points):
        blocks.append([strength, float(hit), 1.0])
        # Equal strengths are one block, whatever came first.
        while len(blocks) > 1 and (blocks[-2][0] == blocks[-1][0] or blocks[-2][1] / blocks[-2][2] >= blocks[-1][1] / blocks[-1][2]):
            _, hits, n = blocks.pop()
            blocks[-1][1] += hits
            blocks[-1][2] += n
    return [(low, hits / n) for low, hits, n in blocks]


def value(curve, strength):
    rate = curve[0][1] if curve else 0.5
    for low, r in curve:
        if strength >= low:
            rate = r
    return rate


def fit(findings):
    """[(id, strength, hit)] -> {id: {strength: confidence}}."""
    curve = isotonic([(s, h) for _, s, h in findings])
    table = {}
    for rule in sorted({f[0] for f in findings}):
        own = [(s, h) for i, s, h in findings if i == rule]
        for strength in sorted({s for s, _ in own}):
            hits = [h for s, h in own if s == strength]
            table.setdefault(rule, {})[strength] = (sum(hits) + PRIOR * value(curve, strength)) / (len(hits) + PRIOR)
    return table


def bins(pairs, n=5):
    """[(confidence, hit)] in n bins of equal number: [(low, high, mean confidence, hit rate, how many)]."""
    pairs = sorted(pairs)
    out = []
    for i in range(n):
        part = pairs[i * len(pairs) // n:(i + 1) * len(pairs) // n]
        if part:
            out.append((part[0][0], part[-1][0], sum(p for p, _ in part) / len(part), sum(h for _, h in part) / len(part), len(part)))
    return out
