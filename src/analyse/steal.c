/* SPDX-License-Identifier: Apache-2.0 */
/*
 * steal.c - an error bar: time that a hypervisor took from the machine's CPUs.
 *
 * A guest cannot see when it stood still: between two switches it counts as running. Only how much of it
 * there was is known, per CPU and second (/proc/stat, record/counters.c).
 */
#include <string.h>

#include "analyse/case.h"
#include "base/alloc.h"

#define WORTH_SAYING 0.01
#define SECOND_NS INT64_C(1000000000) /* what a row is about: the second that ends at its ts */

struct cpu {
	int64_t from, since; /* first row; until when it is summed up */
	double value, sum;   /* now; ns taken */
	bool seen;
};

int lg_say_steal(struct lg_case *c)
{
	const struct lg_counter_tab *k = &c->t->counter;
	struct cpu *v = lg_calloc(c->t->track.n, sizeof *v);
	double taken = 0, all = 0, most = 0;
	int64_t end = 0;

	if (!v)
		return LG_E_NOMEM;
	/* A row stands until the next one of its track: it is written when the value changes. */
	for (size_t i = 0; i < k->n; i++) {
		struct cpu *u = &v[k->track[i]];

		if (strcmp(lg_string(c->t, c->t->track.name[k->track[i]]), "cpu.steal") != 0)
			continue;
		if (u->seen)
			u->sum += u->value * (double)(k->ts[i] - SECOND_NS - u->since);
		else
			u->from = k->ts[i] - SECOND_NS;
		u->since = k->ts[i] - SECOND_NS;
		u->value = k->value[i] > 0 && k->value[i] <= 1 ? k->value[i] : 0;
		u->seen = true;
		most = u->value > most ? u->value : most;
		end = k->ts[i] > end ? k->ts[i] : end;
	}
	for (lg_trk t = 0; t < c->t->track.n; t++)
		if (v[t].seen) {
			taken += v[t].sum + v[t].value * (double)(end - v[t].since);
			all += (double)(end - v[t].from);
		}
	lg_free(v);
	if (all > 0 && taken >= WORTH_SAYING * all)
		lg_limit(c, lg_arena_printf(&c->v->arena,
					    "the hypervisor took %.1f %% of the CPUs' time (steal in /proc/stat; up to %.0f %% "
					    "of one CPU in a second): when is not known and it looks like running, so that "
					    "much of what is said to have run may have stood still; ask who else has this "
					    "host, or for CPUs of the guest's own", 100 * taken / all, 100 * most));
	return c->failed;
}
