/* SPDX-License-Identifier: Apache-2.0 */
#include "analyse/grade.h"
#include "base/each.h"
#include "base/order.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const enum lg_severity cap_most[] = {
#define CAP(name, most) [LG_CAP_##name] = LG_SEVERITY_##most,
	LG_CAPS(CAP)
};

bool lg_gradable(size_t repeats, int64_t wall_ns)
{
	return repeats >= LG_N_ANY_REPEATS && wall_ns >= LG_N_ANY_GRADED;
}

enum lg_severity lg_severity_of(double share)
{
	return share >= LG_N_ANY_HIGH ? LG_SEVERITY_HIGH
	       : share >= LG_N_ANY_MEDIUM ? LG_SEVERITY_MEDIUM
	       : share >= LG_N_ANY_LOW ? LG_SEVERITY_LOW : LG_SEVERITY_INFO;
}

static void at_most(struct lg_finding *f, enum lg_severity most)
{
	f->severity = LG_MIN(f->severity, most);
}

/* As severe as the rule may be. */
static void set(struct lg_finding *f, enum lg_severity severity)
{
	enum lg_basis basis = lg_policy(f->rule)->basis;

	f->severity = severity;
	if (basis == LG_BASIS_LOW)
		at_most(f, LG_SEVERITY_LOW);
	else if (basis == LG_BASIS_INFO)
		at_most(f, LG_SEVERITY_INFO);
}

void lg_grade_share(struct lg_finding *f, double share)
{
	set(f, lg_severity_of(share));
}

void lg_grade(struct lg_finding *f, size_t repeats, int64_t wall_ns)
{
	lg_grade_share(f, f->lost_share);
	if (!lg_gradable(repeats, wall_ns))
		at_most(f, LG_SEVERITY_LOW);
}

void lg_grade_steady(struct lg_finding *f)
{
	if (isnan(f->lost_share))
		lg_grade_unpriced(f);
	else
		lg_grade_share(f, f->lost_share);
}

void lg_grade_unpriced(struct lg_finding *f)
{
	set(f, lg_policy(f->rule)->basis == LG_BASIS_HANG ? LG_SEVERITY_HIGH : LG_SEVERITY_MEDIUM);
}

void lg_grade_fatal(struct lg_finding *f)
{
	set(f, LG_SEVERITY_HIGH);
}

void lg_grade_more(struct lg_finding *f, size_t repeats, int64_t wall_ns)
{
	enum lg_severity before = f->severity;

	lg_grade(f, repeats, wall_ns);
	f->severity = LG_MAX(f->severity, before);
}

double lg_proven(size_t seen)
{
	/* What comes k times in a window comes this often in the mean of such windows, at least, with 95 %:
	 * the rate of a Poisson process of which k and more are seen once in twenty windows. */
	static const double at_least[LG_N_ANY_REPEATS] = { 0, 0.0513, 0.3554, 0.8177, 1.3663 };

	return seen >= LG_N_ANY_REPEATS ? 1 : seen ? at_least[seen] / (double)seen : 0;
}

/* Of what came so few times: it may have been chance. */
static double sureness(size_t seen)
{
	return 1 - LG_N_ANY_ONCE / (double)seen;
}

void lg_grade_part(struct lg_finding *f, double part, size_t seen)
{
	enum lg_severity most = lg_severity_of(f->lost_share * part);

	at_most(f, most < LG_SEVERITY_LOW ? LG_SEVERITY_LOW : most);
	f->seen = seen;
	if (seen)
		f->confidence *= sureness(seen);
}

void lg_grade_anew(struct lg_finding *f, double part, size_t seen)
{
	if (f->severity == LG_SEVERITY_INFO)
		return;
	if (!f->seen) {
		lg_grade_share(f, f->lost_share);
		return;
	}
	f->confidence /= sureness(f->seen);
	f->seen = 0;
	lg_grade_share(f, f->lost_share);
	lg_grade_part(f, part, seen);
}

void lg_grade_worth_a_line(struct lg_finding *f)
{
	if (f->severity == LG_SEVERITY_INFO)
		f->severity = LG_SEVERITY_LOW;
}

void lg_cap(struct lg_finding *f, enum lg_cap why)
{
	at_most(f, cap_most[why]);
}

void lg_cap_as(struct lg_finding *f, const struct lg_finding *g)
{
	at_most(f, g->severity);
}

void lg_findings_calibrate(struct lg_verdict *v)
{
	LG_EACH(f, v->findings, v->n_findings) {
		unsigned draws;

		if (!isnan(f->strength))
			continue; /* done, where it was found */
		f->strength = f->confidence;
		f->confidence = lg_worth(f->rule, f->severity >= LG_SEVERITY_MEDIUM, f->strength, &draws);
		if (f->severity == LG_SEVERITY_LOW && draws >= LG_N_ANY_DRAWS &&
		    f->confidence < LG_N_ANY_BELIEVED)
			lg_cap(f, LG_CAP_UNBELIEVED);
	}
}

/* A process that has no memory left ends, and is missed by the others: never the other way round. */
static int tells_first(const struct lg_finding *f)
{
	return f->rule == LG_R_MEM_LEAK ? 2 : f->rule == LG_R_MEM_OOM;
}

static int cmp_unpriced(const struct lg_finding *x, const struct lg_finding *y)
{
	return LG_CMP(y->severity, x->severity) ?: tells_first(y) - tells_first(x);
}

static int cmp_finding(const void *a, const void *b)
{
	const struct lg_finding *x = a, *y = b;

	if (isnan(x->lost_ms) != isnan(y->lost_ms))
		return isnan(x->lost_ms) ? 1 : -1;
	if (!isnan(x->lost_ms) && x->lost_ms != y->lost_ms)
		return x->lost_ms < y->lost_ms ? 1 : -1;
	if (isnan(x->lost_ms) && cmp_unpriced(x, y))
		return cmp_unpriced(x, y);
	if (strcmp(x->id, y->id))
		return strcmp(x->id, y->id);
	return LG_CMP(y->confidence, x->confidence) ?: LG_CMP(x->culprit.rank, y->culprit.rank);
}

void lg_findings_rank(struct lg_verdict *v)
{
	qsort(v->findings, v->n_findings, sizeof *v->findings, cmp_finding);
}
