/* SPDX-License-Identifier: Apache-2.0 */
/*
 * floor.h - from where on is a finding told? One knob of a healthy run is turned until it comes: there what
 * the rule judges by must be what its threshold says (laggard rules ID), neither less (an accusation for
 * nothing) nor much more (a cause that is kept quiet). A number of src/rules that somebody lowers, or raises,
 * moves that place; so no row states the number that stands in the table, but what the run shows.
 */
#ifndef LG_TESTS_FLOOR_H
#define LG_TESTS_FLOOR_H
#include "outcome.h"
#include "store/builder.h"

struct gpu_plan;
struct run_plan;

struct floor {
	const char *id;
	double from, until;   /* told from a share of the time (or another truth) in here */
	union {               /* the knob, by the kind of run */
		void (*turn)(struct gpu_plan *p, int64_t x);
		void (*stall)(struct run_plan *p, int64_t x);
		struct lg_trace *(*made)(int64_t x);
	};
	int64_t silent, told; /* at these of the knob; which of them is the larger depends */
	/* What the rule judges by, by the knob, where that is not the finding's share of the time. */
	double (*truth)(int64_t x);
	const char *says;     /* in its title, or its detail; NULL = anything */
	bool loudly;          /* told means loud: it is told before that, too */
	bool others;          /* that are loud on the way are no matter of this row */
};

/* A run with the knob at x. */
typedef struct outcome floor_run(const struct floor *f, int64_t x);

static inline double as_it_is(int64_t x)
{
	return (double)x;
}

static inline double per_mille(int64_t x)
{
	return (double)x / 1000;
}

static inline const struct lg_finding *floor_finding(const struct floor *f, const struct lg_verdict *v)
{
	for (size_t i = 0; i < v->n_findings; i++) {
		const struct lg_finding *x = &v->findings[i];

		if (!strcmp(x->id, f->id) && (!f->loudly || is_loud(x)) &&
		    (!f->says || strstr(x->title, f->says) || (x->detail && !strcmp(x->detail, f->says))))
			return x;
	}
	return NULL;
}

static inline bool floor_told(const struct floor *f, floor_run *run, int64_t x)
{
	struct outcome o = run(f, x);
	bool told = floor_finding(f, o.v) != NULL;

	done(&o);
	return told;
}

/* The knob's last silent and first told positions. */
static inline void floor_edge(const struct floor *f, floor_run *run, int64_t *ret_silent, int64_t *ret_told)
{
	int64_t silent = f->silent, told = f->told;

	while (llabs(told - silent) > 1 + (silent < told ? silent : told) / 200) {
		int64_t x = silent + (told - silent) / 2;

		*(floor_told(f, run, x) ? &told : &silent) = x;
	}
	*ret_silent = silent;
	*ret_told = told;
}

/* 1: it is not told from its threshold on, or somebody is accused below it. */
static inline int floor_judge(const struct floor *f, floor_run *run)
{
	const char *says = f->says ? f->says : "";
	int64_t silent, told;
	struct outcome o;
	double share;
	int bad = 0;

	if (floor_told(f, run, f->silent)) {
		print_error("%s %s: not silent at %lld\n", f->id, says, (long long)f->silent);
		return 1;
	}
	if (!floor_told(f, run, f->told)) {
		print_error("%s %s: not told at %lld\n", f->id, says, (long long)f->told);
		return 1;
	}
	floor_edge(f, run, &silent, &told);
	o = run(f, told);
	share = f->truth ? f->truth(told) : floor_finding(f, o.v)->lost_share;
	done(&o);
	if (share < f->from || share > f->until) {
		print_error("%s %s: told from %.4f on, its threshold is %.4f to %.4f\n", f->id, says, share, f->from,
			    f->until);
		bad = 1;
	}
	o = run(f, silent);
	for (size_t k = 0; !f->others && k < o.v->n_findings; k++)
		if (is_loud(&o.v->findings[k])) {
			print_error("%s %s: below its threshold %s is %s: %s\n", f->id, says, o.v->findings[k].id,
				    lg_severity_text(o.v->findings[k].severity), o.v->findings[k].title);
			bad = 1;
		}
	done(&o);
	return bad;
}

/* LG_FLOORS_OF=ID: these rows alone (tools/mutants, which asks for one rule's). */
static inline void floors_judge(const struct floor *f, size_t n, floor_run *run)
{
	const char *only = getenv("LG_FLOORS_OF");
	int bad = 0;

	for (size_t i = 0; i < n; i++)
		bad += only && strcmp(only, f[i].id) ? 0 : floor_judge(&f[i], run);
	assert_int_equal(bad, 0);
}

#endif /* LG_TESTS_FLOOR_H */
