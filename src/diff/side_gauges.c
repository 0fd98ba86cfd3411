/* SPDX-License-Identifier: Apache-2.0 */
/* side_gauges.c - what the devices' counters read while steps were judged, or over the whole input. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyse/device/device_rules.h"
#include "base/alloc.h"
#include "diff/side.h"

int lg_side_cmp_gauge(const struct lg_side_gauge *x, const struct lg_side_gauge *y)
{
	if (x->gpu != y->gpu)
		return (x->gpu > y->gpu) - (x->gpu < y->gpu);
	if (x->host != y->host)
		return (x->host > y->host) - (x->host < y->host);
	return strcmp(x->metric, y->metric);
}

static int cmp_gauge(const void *a, const void *b)
{
	return lg_side_cmp_gauge(a, b);
}

/* GPUs of the same number before this one: those of other machines. */
static uint32_t host_of(const struct lg_trace *t, lg_trk gpu)
{
	uint32_t n = 0;

	for (lg_trk k = 1; k < gpu; k++)
		n += t->track.kind[k] == LG_TRACK_GPU && t->track.index[k] == t->track.index[gpu];
	return n;
}

int lg_side_gauges(struct lg_side *s, const struct lg_trace *t, const struct lg_side_window *w)
{
	const struct lg_counter_tab *c = &t->counter;
	uint32_t *of = lg_calloc(t->track.n, sizeof *of); /* track -> gauge + 1 */
	size_t n = 0;

	if (!of)
		return LG_E_NOMEM;
	for (lg_trk k = 1; k < t->track.n; k++)
		/* Counts that only grow say nothing by their median. */
		if (!strncmp(lg_string(t, t->track.name[k]), "gpu.", 4) && lg_gpu_of_track(t, k) &&
		    strcmp(lg_string(t, t->track.unit[k]), "count"))
			of[k] = (uint32_t)++n;
	s->gauges = lg_arena_alloc(&s->arena, n + 1, sizeof *s->gauges);
	for (lg_trk k = 1; s->gauges && k < t->track.n; k++) {
		lg_trk gpu = of[k] ? lg_gpu_of_track(t, k) : 0;

		if (of[k])
			s->gauges[of[k] - 1] = (struct lg_side_gauge){
				.gpu = t->track.index[gpu], .host = host_of(t, gpu),
				.metric = lg_string(t, t->track.name[k]),
				.unit = lg_string(t, t->track.unit[k]) };
	}
	for (int fill = 0; s->gauges && fill < 2; fill++) {
		for (size_t i = 0; fill && i < n; i++) {
			s->gauges[i].v = lg_arena_alloc(&s->arena, s->gauges[i].n + 1, sizeof(double));
			s->gauges[i].n = 0;
		}
		for (size_t i = 0; !s->arena.failed && i < c->n; i++) {
			struct lg_side_gauge *g = of[c->track[i]] ? &s->gauges[of[c->track[i]] - 1] : NULL;

			if (!g || !isfinite(c->value[i]) || c->ts[i] < w->from || c->ts[i] > w->to)
				continue;
			if (fill)
				g->v[g->n] = c->value[i];
			g->n++;
		}
	}
	lg_free(of);
	if (s->arena.failed)
		return LG_E_NOMEM;
	qsort(s->gauges, n, sizeof *s->gauges, cmp_gauge);
	s->n_gauges = n;
	return 0;
}
