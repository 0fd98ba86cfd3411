/* SPDX-License-Identifier: Apache-2.0 */
/*
 * saves.c - checkpoints that the loop writes itself: how long everybody waits for them, and what they
 * take of the storage's bandwidth.
 *
 * All saves count, also those too short for a finding: they are paid for all the same. Bytes are known
 * where the hook saw the file grow (mark "side.saved"); a save into memory writes nothing to storage.
 */
#include <math.h>

#include "analyse/finders.h"
#include "rules/device_names.h"

/* The hook's stage, or the call itself where the profiler took Python stacks. known: by string, what
 * was found out about a Python call's name: 0 nothing, 1 no save, 2 a save. */
static bool is_save(const struct lg_trace *t, size_t row, uint8_t *known)
{
	if (t->span.kind[row] == LG_SPAN_PYTHON) {
		lg_str name = t->span.name[row];

		if (!known[name])
			known[name] = lg_on_list(LG_LIST_SAVE_FRAMES, lg_string(t, name)) ? 2 : 1;
		return known[name] == 2 && t->span.dur[row] > 0 && t->span.thr[row];
	}
	return t->span.kind[row] == LG_SPAN_STAGE && t->span.stage[row] == LG_STAGE_SIDE &&
	       t->span.dur[row] > 0 && t->span.thr[row] &&
	       lg_on_list(LG_LIST_SIDE_SAVES, lg_string(t, t->span.name[row]));
}

/* The time of the judged steps; of the whole trace where there are none. */
static void window(const struct lg_case *c, int64_t *ret_from, int64_t *ret_to)
{
	const struct lg_verdict *v = c->v;

	*ret_from = INT64_MAX;
	*ret_to = INT64_MIN;
	LG_EACH(s, v->steps, v->n_steps) {
		if (s->warmup)
			continue;
		*ret_from = s->ts < *ret_from ? s->ts : *ret_from;
		*ret_to = s->ts + s->dur > *ret_to ? s->ts + s->dur : *ret_to;
	}
	if (*ret_from >= *ret_to) {
		*ret_from = c->t->first;
		*ret_to = c->t->last;
	}
}

static void tell(struct lg_case *c, struct lg_finding *f)
{
	const struct lg_verdict *v = c->v;

	if (isfinite(v->saves.bytes) && v->saves.n)
		lg_evidence(c, f, LG_SAYS_SIDE_CHECKPOINT_BANDWIDTH, v->saves.n,
			    v->saves.bytes / 1e6 / (double)v->saves.n, v->saves.bytes_per_s / 1e6,
			    v->saves.bytes_per_hour / 1e9);
}

int lg_find_saves(struct lg_case *c)
{
	const struct lg_trace *t = c->t;
	struct lg_verdict *v = c->v;
	LG_AUTOFREE int64_t *of_prc = lg_calloc(t->process.n, sizeof *of_prc);
	int64_t from, to, all = 0, most = 0;
	LG_AUTOFREE uint8_t *names = lg_calloc(t->n_str, 1);
	double bytes = 0;
	bool known = false;

	if (!of_prc || !names)
		return c->failed = LG_E_NOMEM;
	window(c, &from, &to);
	v->saves.bytes = v->saves.bytes_per_s = v->saves.bytes_per_hour = NAN;
	for (size_t i = 0; i < t->span.n; i++) {
		int64_t *sum;

		if (!is_save(t, i, names) || t->span.ts[i] < from || t->span.ts[i] >= to)
			continue;
		sum = &of_prc[t->thread.prc[t->span.thr[i]]];
		*sum += t->span.dur[i];
		all += t->span.dur[i];
		most = *sum > most ? *sum : most;
		v->saves.n++;
	}
	LG_EACH_MARK(i, t, "side.saved")
		if (t->mark.ts[i] >= from && t->mark.ts[i] <= to && t->mark.value[i] > 0) {
			bytes += (double)t->mark.value[i];
			known = true;
		}
	if (!v->saves.n || to <= from)
		return 0;
	/* Ranks that save at the same time wait once, so the one that saves longest counts. */
	v->saves.stall_share = fmin((double)most / (double)(to - from), 1);
	if (known) {
		v->saves.bytes = bytes;
		v->saves.bytes_per_s = bytes / (lg_seconds(all));
		v->saves.bytes_per_hour = bytes / ((double)(to - from) / 3600e9);
	}
	LG_EACH(f, v->findings, v->n_findings)
		if (f->rule == LG_R_SIDE_CHECKPOINT)
			tell(c, f);
	return 0;
}
