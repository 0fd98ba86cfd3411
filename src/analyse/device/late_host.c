/* SPDX-License-Identifier: Apache-2.0 */
/*
 * late_host.c - what the host of a late rank does while its device has nothing queued.
 *
 * It pauses a few times, for long: then the place tells (a save, images that are written, a call of
 * the runtime in which the thread lost its CPU, the garbage collector where nothing was traced). Or it
 * is slow all the time: then it takes longer between two launches than the others' hosts do.
 */
#include "analyse/device/device_rules.h"
#include "base/median.h"

/* Median ns from the end of a launch to the next one, on any thread; 0: too few of them. A launch itself
 * waits for room where the host is far ahead. */
static int64_t pace_of(struct lg_case *c, const struct lg_gpu_run *r)
{
	LG_AUTOFREE int64_t *apart = NULL;
	size_t all = 0, n = 0;

	LG_EACH(h, r->host, r->n_host)
		all += h->n;
	apart = lg_calloc(all + 1, sizeof *apart);
	if (!apart) {
		c->failed = LG_E_NOMEM;
		return 0;
	}
	LG_EACH(h, r->host, r->n_host) {
		const struct lg_host_seg *last = NULL;

		LG_EACH(s, h->seg, h->n) {
			if (s->class != LG_HOST_LAUNCH || !lg_host_in_window(r, s))
				continue;
			if (last && last->span != s->span) /* one call may be in pieces */
				apart[n++] = s->ts - last->end;
			last = s;
		}
	}
	return n < LG_N_ANY_REPEATS ? 0 : lg_median_i64(apart, n);
}

struct gap {
	size_t step;
	int64_t ns;
};

LG_ORDER_BY(cmp_gap, struct gap, LG_CMP(x->step, y->step) ?: LG_CMP(x->ns, y->ns))

/* What lies between the launches of the thread that makes most of them, by step; freed by the caller. */
static struct gap *gaps_of(struct lg_case *c, const struct lg_gpu_run *r, size_t *ret_n)
{
	const struct lg_gpu_host *most = NULL;
	const struct lg_host_seg *last = NULL;
	struct gap *v;

	*ret_n = 0;
	LG_EACH(h, r->host, r->n_host)
		most = !most || h->n > most->n ? h : most;
	v = most ? lg_scratch(c, most->n + 1, sizeof *v) : NULL;
	LG_EACH_WHILE(v, s, most->seg, most->n) {
		if (s->class != LG_HOST_LAUNCH || !lg_host_in_window(r, s))
			continue;
		if (last && last->span != s->span)
			v[(*ret_n)++] = (struct gap){ lg_gpu_asked_in(r, s->ts), s->ts - last->end };
		last = s;
	}
	LG_SORT(v, *ret_n, cmp_gap);
	return v;
}

bool lg_host_varies(struct lg_case *c, const struct lg_gpu_run *r, double *ret_fast_us, double *ret_slow_us)
{
	enum { THIRD_LEAST = 3 };
	size_t n = 0, steps = 0, least = SIZE_MAX, most = 0, third;
	LG_AUTOFREE struct gap *v = r->n_steps < 3 * THIRD_LEAST ? NULL : gaps_of(c, r, &n);
	LG_AUTOFREE int64_t *pace = lg_scratch(c, r->n_steps + 1, sizeof *pace);

	LG_EACH_RUN_WHILE(v && pace, i, j, 0, n, v[j].step == v[i].step) {
		if (v[i].step >= r->n_steps)
			continue;
		pace[steps++] = v[i + (j - i) / 2].ns;
		least = LG_MIN(j - i, least);
		most = LG_MAX(j - i, most);
	}
	third = steps / 3;
	/* Steps that launch more are other work. */
	if (third < THIRD_LEAST || least < LG_N_GPU_LAUNCH_BOUND_LAUNCHES || (most - least) * 10 > most)
		return false;
	LG_SORT(pace, steps, lg_cmp_i64);
	*ret_fast_us = (double)pace[third / 2] / 1e3;
	*ret_slow_us = (double)pace[steps - 1 - third / 2] / 1e3;
	return *ret_slow_us >= (1 + LG_N_GPU_LAUNCH_BOUND_SLOWER) * *ret_fast_us;
}

/* Of the others' hosts, in the mean; 0: not told. */
static double pace_of_others(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *late)
{
	double sum = 0;
	size_t n = 0;

	LG_EACH(r, g->run, g->n) {
		bool other = r != late && !g->late->rank[r - g->run].late && lg_gpu_judged(r);
		double pace = other ? (double)pace_of(c, r) : 0;

		sum += pace;
		n += pace > 0;
	}
	return n ? sum / (double)n : 0;
}

void lg_late_host(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *late,
		  struct lg_finding *f, const char *whose)
{
	const char *where;
	double here, there;

	if (lg_gpu_pauses(c, late, &where)) {
		if (where)
			f->culprit.function = where;
		lg_title(c, f, LG_SAYS_COMMS_STRAGGLER_HOST_PAUSES, f->title, whose, where ?
			 lg_text(c, "is in %s", where) : "pauses, in code that the trace does not show");
		f->advice = "late_host_pauses";
		return;
	}
	here = (double)pace_of(c, late);
	there = pace_of_others(c, g, late);
	f->advice = "late_host_slow";
	if (here <= 0 || there <= 0 || here < (1 + LG_N_COMMS_STRAGGLER_HOST) * there) {
		lg_title(c, f, LG_SAYS_COMMS_STRAGGLER_HOST_LATE, f->title, whose);
		return;
	}
	lg_title(c, f, LG_SAYS_COMMS_STRAGGLER_HOST_SLOW, f->title, whose, here / there);
	lg_evidence(c, f, LG_SAYS_COMMS_STRAGGLER_HOST_PACE, here / 1e3, there / 1e3);
}
