/* SPDX-License-Identifier: Apache-2.0 */
/* side_host.c - who else was on the machine while the steps ran, and who held whose locks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyse/steps/steps.h"
#include "base/alloc.h"
#include "base/map.h"
#include "diff/side.h"

static int cmp_process(const void *a, const void *b)
{
	return strcmp(((const struct lg_side_process *)a)->key,
		      ((const struct lg_side_process *)b)->key);
}

static int cmp_holder(const void *a, const void *b)
{
	const struct lg_side_holder *x = a, *y = b;
	int d = strcmp(x->key, y->key);

	return d ? d : strcmp(x->lock, y->lock);
}

static int64_t overlap(const struct lg_side_window *w, int64_t ts, int64_t end)
{
	int64_t a = ts > w->from ? ts : w->from, z = end < w->to ? end : w->to;

	return z > a ? z - a : 0;
}

static int processes(struct lg_side *s, const struct lg_trace *t, const struct lg_side_window *w)
{
	double *cpu = lg_calloc(t->process.n, sizeof *cpu), wall = (double)(w->to - w->from);
	size_t n = 0;

	s->processes = lg_arena_alloc(&s->arena, t->process.n + 1, sizeof *s->processes);
	if (!cpu || !s->processes) {
		lg_free(cpu);
		return LG_E_NOMEM;
	}
	for (size_t i = 0; i < t->state.n; i++)
		if (t->state.kind[i] == LG_RUNNING) {
			int64_t end = lg_row_end(t, t->state.ts[i], t->state.dur[i]);
			int64_t len = overlap(w, t->state.ts[i], end);

			if (t->state.flags[i] & LG_STATE_SUMMED && t->state.run[i] < len)
				len = t->state.run[i];
			cpu[t->thread.prc[t->state.thr[i]]] += (double)len;
		}
	for (size_t i = 0; !t->state.n && i < t->sample.n; i++)
		if (!(t->sample.flags[i] & (LG_SAMPLE_NO_CPU | LG_SAMPLE_IDLE)) &&
		    t->sample.ts[i] >= w->from && t->sample.ts[i] < w->to &&
		    strstr(lg_string(t, t->sample.event[i]), "clock"))
			cpu[t->thread.prc[t->sample.thr[i]]] += (double)t->sample.weight[i];
	for (lg_prc p = 1; p < t->process.n; p++) {
		uint32_t role = t->process.role[p];
		const char *comm = lg_string(t, t->process.comm[p]);
		const char *cmdline = lg_string(t, t->process.cmdline[p]);

		if (role == LG_ROLE_RECORDER || t->process.pid[p] == 0 || (!*comm && !*cmdline))
			continue;
		s->processes[s->n_processes++] = (struct lg_side_process){
			.key = lg_side_key(&s->arena, cmdline, comm), .comm = comm, .cmdline = cmdline,
			.pid = t->process.pid[p], .cpu = wall > 0 ? cpu[p] / wall : 0,
			.own = role == LG_ROLE_RANK || role == LG_ROLE_JOB || role == LG_ROLE_LOADER ||
			       p == w->prc };
	}
	lg_free(cpu);
	qsort(s->processes, s->n_processes, sizeof *s->processes, cmp_process);
	/* Several lives of one command are one row, the busiest life's pid. */
	for (size_t i = 0; i < s->n_processes; i++) {
		struct lg_side_process *last = n ? &s->processes[n - 1] : NULL;
		struct lg_side_process p = s->processes[i];

		if (!last || strcmp(last->key, p.key)) {
			s->processes[n++] = p;
			continue;
		}
		p.cpu += last->cpu;
		if (s->processes[i].cpu < last->cpu)
			p.pid = last->pid;
		p.own |= last->own;
		*last = p;
	}
	s->n_processes = n;
	return 0;
}

/* Holds in quick succession (a read per file, a hold per area) are one visit. */
#define VISIT 200000000 /* ns */

struct hold_list {
	struct lg_burst *v;
	size_t n, cap;
};

/* Kernel locks of the job that others held: rows that the recorder marked as foreign. */
static int holders(struct lg_side *s, const struct lg_trace *t, const struct lg_side_window *w)
{
	const struct lg_span_tab *sp = &t->span;
	struct lg_map by_key = { 0 };
	struct hold_list *lists = NULL;
	size_t lists_cap = 0, cap = 0, n = 0;
	struct lg_side_holder *v = NULL;
	int rc = 0;

	for (size_t i = 0; !rc && i < sp->n; i++) {
		lg_prc p = t->thread.prc[sp->thr[i]];
		uint64_t key = (uint64_t)p << 32 | sp->name[i];
		int64_t len = overlap(w, sp->ts[i], lg_row_end(t, sp->ts[i], sp->dur[i]));
		struct hold_list *l;
		uint32_t at;

		if (sp->kind[i] != LG_SPAN_LOCK_HOLD || !(sp->flags[i] & LG_SPAN_FOREIGN) || !len ||
		    t->process.role[p] == LG_ROLE_RECORDER)
			continue;
		/* Somebody else's memory is nobody's business here, unless it is the job's. */
		if (sp->peer[i] && t->process.role[t->thread.prc[sp->peer[i]]] != LG_ROLE_RANK &&
		    t->thread.prc[sp->peer[i]] != w->prc)
			continue;
		at = lg_map_get(&by_key, key);
		if (!at) {
			rc = lg_grow(&v, &cap, n + 1, sizeof *v);
			if (!rc)
				rc = lg_grow(&lists, &lists_cap, n + 1, sizeof *lists);
			if (!rc)
				rc = lg_map_set(&by_key, key, (uint32_t)n + 1);
			if (rc)
				break;
			lists[n] = (struct hold_list){ 0 };
			v[n++] = (struct lg_side_holder){
				.key = lg_side_key(&s->arena, lg_string(t, t->process.cmdline[p]),
						   lg_string(t, t->process.comm[p])),
				.comm = lg_string(t, t->process.comm[p]), .pid = t->process.pid[p],
				.lock = lg_string(t, sp->name[i]), .period_s = NAN };
			at = (uint32_t)n;
		}
		v[at - 1].n += 1;
		v[at - 1].ms += (double)len / 1e6;
		l = &lists[at - 1];
		rc = lg_grow(&l->v, &l->cap, l->n + 1, sizeof *l->v);
		if (!rc)
			l->v[l->n++] = (struct lg_burst){ sp->ts[i], sp->ts[i] + len, len };
	}
	s->holders = lg_arena_alloc(&s->arena, n + 1, sizeof *s->holders);
	if (!s->holders)
		rc = LG_E_NOMEM;
	for (size_t i = 0; i < n; i++) {
		if (!rc) {
			v[i].period_s = lg_rhythm_of(lists[i].v, lists[i].n, VISIT).period_s;
			s->holders[s->n_holders++] = v[i];
		}
		lg_free(lists[i].v);
	}
	if (!rc)
		qsort(s->holders, n, sizeof *s->holders, cmp_holder);
	lg_free(lists);
	lg_free(v);
	lg_map_done(&by_key);
	return rc;
}

int lg_side_host(struct lg_side *s, const struct lg_trace *t, const struct lg_side_window *w)
{
	int rc = processes(s, t, w);

	return rc ? rc : holders(s, t, w);
}
