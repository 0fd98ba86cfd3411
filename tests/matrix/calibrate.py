# SPDX-License-Identifier: Apache-2.0
"""From findings that were right or wrong to the confidence that a finding may state.

A rule states how strong its evidence is; what that is worth is measured. Pool-adjacent-violators (isotonic
regression, Barlow et al. 1972) on strength against hits, for all rules together; then for each rule, loud (medium
or high) or not, on its own draws, with that curve counting as PRIOR draws at each strength. Even draws fit, odd draws judge.
"""
import math

PRIOR = 6.0
BEYOND = 0.05  # of strength
BOTTOM, TOP = 0.02, 0.98  # nothing is surer than what so few draws can show


def isotonic(points):
    """[(strength, hits, draws)] -> [(strength from which, share, draws)], never falling."""
    blocks = []
    for strength, hits, n in sorted(points):
        blocks.append([strength, hits, n])
        # Equal strengths are one block, whatever came first.
        while len(blocks) > 1 and (blocks[-2][0] == blocks[-1][0] or
                                   blocks[-2][1] / blocks[-2][2] >= blocks[-1][1] / blocks[-1][2]):
            _, more_hits, more = blocks.pop()
            blocks[-1][1] += more_hits
            blocks[-1][2] += more
    return [(low, hits / n, n) for low, hits, n in blocks]


def value(curve, strength):
    share = curve[0][1] if curve else 0.5
    for low, worth, _ in curve:
        if strength >= low - 1e-9:
            share = worth
    return share


def by_strength(own):
    """{strength: (hits, draws)} of [(strength, hit)]. The same strength to two digits is one point: few draws of a
    continuous measure tell no more."""
    points = {}
    for s, h in own:
        hits, n = points.get(round(s, 2), (0.0, 0))
        points[round(s, 2)] = hits + bool(h), n + 1
    return points


def fit(findings):
    """[(key, strength, hit)] -> {key: curve}; key: (id, loud); None: all rules together."""
    every = isotonic([(s, float(h), 1.0) for _, s, h in findings])
    table = {None: every}
    for rule in sorted({f[0] for f in findings}):
        points = by_strength((s, h) for i, s, h in findings if i == rule)
        share = PRIOR / len(points)  # the curve counts once a rule, however many strengths it has
        curve = isotonic([(s, hits + share * value(every, s), n + share) for s, (hits, n) in points.items()])
        counted = {low: 0 for low, _, _ in curve}
        for s, (_, n) in points.items():
            counted[max(low for low in counted if low <= s + 1e-9)] += n
        table[rule] = [(low, worth, counted[low]) for low, worth, _ in curve]
        beyond = max(points) + BEYOND
        if value(every, beyond) > table[rule][-1][1]:  # stronger than all that was drawn of it: as all rules are there
            table[rule].append((beyond, value(every, beyond), 0))
    return table


def of_new_rules(findings):
    """{loud: curve}: what evidence is worth of a rule that was never drawn. Each rule is one draw at its strengths
    together; half a hit of one more keeps few rules from saying all or nothing."""
    curves = {}
    for loud in (True, False):
        points = []
        for rule in sorted({k for k, _, _ in findings if k[1] == loud}):
            own = by_strength((s, h) for k, s, h in findings if k == rule)
            points += [(s, hits / n / len(own), 1 / len(own)) for s, (hits, n) in own.items()]
        # The half weighs more where there are few: what it has made fall is one block again.
        curves[loud] = isotonic([(low, (share * n + 0.5) / (n + 1) * n, n) for low, share, n in isotonic(points)])
    return curves


def as_new(curves, rule, strength):
    """What the program says of a rule that was never drawn."""
    return min(strength, value(curves[rule[1]], strength))


def judge_new(even, odd):
    """Each rule in turn as if it had never been drawn: [(rule, stated, right, findings)]."""
    out = []
    for rule in sorted({k for k, _, _ in odd}):
        curves = of_new_rules([f for f in even if f[0][0] != rule[0]])
        mine = [(as_new(curves, rule, s), bool(h)) for k, s, h in odd if k == rule]
        out.append((rule, sum(s for s, _ in mine) / len(mine), sum(h for _, h in mine) / len(mine), len(mine)))
    return out


def worth(table, rule, strength):
    """What the program says of a rule that was drawn."""
    curve = table[rule]
    share = min(max(value(curve, strength), BOTTOM), TOP)
    return share if strength >= curve[0][0] - 1e-3 else min(share, strength)


def bins(pairs, n=5):
    """[(confidence, hit)] in n bins of equal number: [(low, high, mean confidence, hit rate, how many)]."""
    pairs = sorted(pairs)
    out = []
    for i in range(n):
        part = pairs[i * len(pairs) // n:(i + 1) * len(pairs) // n]
        if part:
            out.append((part[0][0], part[-1][0], sum(p for p, _ in part) / len(part), sum(h for _, h in part) / len(part), len(part)))
    return out


EDGES = (0, 0.6, 0.9, 0.97, 1.01)


def ranges(pairs):
    """[(confidence, hit)] by what is stated: [(low, high, mean confidence, hit rate, how many, by how much so few may differ)].

    Where most findings are as sure as any can be, equal numbers put all others into one bin: this does not.
    """
    out = []
    for low, high in zip(EDGES, EDGES[1:]):
        part = [(p, h) for p, h in pairs if low <= p < high]
        if part:
            mean, n = sum(p for p, _ in part) / len(part), len(part)
            out.append((low, min(high, 1), mean, sum(h for _, h in part) / n, n, 1.96 * math.sqrt(mean * (1 - mean) / n)))
    return out


def rows(table, curves):
    """The lines of src/rules/calibration.def."""
    for rule, curve in table.items():
        for low, share, n in curve if rule else ():
            yield f"{'LOUD' if rule[1] else 'QUIET'}({rule[0].replace('.', '_').upper()}, {low:.3f}, {min(max(share, BOTTOM), TOP):.3f}, {round(n)})"
    for loud, curve in curves.items():
        for low, share, n in curve:
            yield f"NEW_{'LOUD' if loud else 'QUIET'}({low:.3f}, {min(max(share, BOTTOM), TOP):.3f}, {max(round(n), 1)})"
