/* SPDX-License-Identifier: Apache-2.0 */
#include "picture/samples.h"

#include <string.h>

#include "base/alloc.h"
#include "base/median.h"
#include "base/order.h"
#include "store/index.h"

enum { MOST_SAMPLES = 200000, MOST_WAITS = 40000, STEP_COLUMNS = 8, DEVICE_COLUMNS = 4 };

static bool is_cpu_sample(const struct lg_trace *t, size_t i)
{
	return !(t->sample.flags[i] & (LG_SAMPLE_NO_CPU | LG_SAMPLE_IDLE)) && t->sample.stack[i];
}

int lg_samples_write(struct lg_levels *used, const struct lg_verdict *v, struct lg_out *o,
		     size_t *ret_n, size_t *ret_every)
{
	const struct lg_trace *t = v->trace;
	struct lg_column c[4] = { 0 };
	size_t n = 0, every;
	int64_t last = t->first;
	int failed = 0, rc;

	for (size_t i = 0; i < t->sample.n; i++)
		n += is_cpu_sample(t, i);
	every = n / MOST_SAMPLES + 1;
	*ret_n = n;
	*ret_every = every;
	n = 0;
	for (size_t i = 0; i < t->sample.n; i++) {
		if (!is_cpu_sample(t, i) || n++ % every)
			continue;
		lg_column_add_signed(&c[0], t->sample.ts[i] - last);
		last = t->sample.ts[i];
		lg_column_add(&c[1], lg_used_number(&used->thread, t->sample.thr[i], &failed));
		lg_column_add(&c[2], lg_used_number(&used->stack, t->sample.stack[i], &failed));
		lg_column_add(&c[3], LG_MIN(t->sample.weight[i], UINT64_C(1) << 44) * every);
	}
	rc = failed ? failed : lg_columns_write(o, used->next_id++, c, 4, NULL);
	lg_columns_done(c, 4);
	return rc;
}

static int64_t wait_ns(const struct lg_trace *t, size_t i)
{
	bool blocked = t->state.kind[i] == LG_BLOCKED && t->state.stack[i] &&
		       !(t->state.flags[i] & LG_STATE_SUMMED);

	return blocked ? lg_row_end(t, t->state.ts[i], t->state.dur[i]) - t->state.ts[i] : 0;
}

int lg_waits_write(struct lg_levels *used, const struct lg_verdict *v, struct lg_out *o,
		   size_t *ret_n, int64_t *ret_left_ns)
{
	const struct lg_trace *t = v->trace;
	struct lg_column c[4] = { 0 };
	int64_t *length LG_AUTOFREE = lg_calloc(t->state.n + 1, sizeof *length), least = 1,
			last = t->first;
	size_t n = 0;
	int failed = 0, rc;

	if (!length)
		return LG_E_NOMEM;
	for (size_t i = 0; i < t->state.n; i++)
		if (wait_ns(t, i) > 0)
			length[n++] = wait_ns(t, i);
	if (n > MOST_WAITS)
		least = lg_select_i64(length, n, n - MOST_WAITS);
	*ret_left_ns = 0;
	*ret_n = n;
	for (size_t i = 0, kept = 0; i < t->state.n; i++) {
		int64_t ns = wait_ns(t, i);

		if (ns < least || ns <= 0 || kept++ >= MOST_WAITS) {
			*ret_left_ns += ns;
			continue;
		}
		lg_column_add_signed(&c[0], t->state.ts[i] - last);
		last = t->state.ts[i];
		lg_column_add(&c[1], (uint64_t)ns);
		lg_column_add(&c[2], lg_used_number(&used->thread, t->state.thr[i], &failed));
		lg_column_add(&c[3], lg_used_number(&used->stack, t->state.stack[i], &failed));
	}
	rc = failed ? failed : lg_columns_write(o, used->next_id++, c, 4, NULL);
	lg_columns_done(c, 4);
	return rc;
}

static void choose_active(struct lg_active *a, const struct lg_verdict *v, const int64_t *ran)
{
	const struct lg_trace *t = v->trace;

	for (size_t i = 0; i < v->n_findings && a->n < LG_ACTIVE / 2; i++)
		for (lg_prc p = 1;
		     v->findings[i].culprit.pid >= 0 && p < t->process.n && a->n < LG_ACTIVE / 2;
		     p++) {
			bool there = t->process.pid[p] != v->findings[i].culprit.pid ||
				     v->findings[i].severity == LG_SEVERITY_INFO;

			for (size_t k = 0; k < a->n; k++)
				there |= a->prc[k] == p;
			if (!there)
				a->prc[a->n++] = p;
		}
	a->n_accused = a->n;
	while (a->n < LG_ACTIVE) {
		lg_prc best = 0;

		for (lg_prc p = 1; p < t->process.n; p++) {
			bool there = false;

			for (size_t k = 0; k < a->n; k++)
				there |= a->prc[k] == p;
			if (!there && ran[p] > (best ? ran[best] : 0))
				best = p;
		}
		if (!best)
			return;
		a->prc[a->n++] = best;
	}
}

/* Spreads [ts, end) over the buckets, of which a share ran. */
static void spread(int64_t *bucket, const struct lg_active *a, int64_t ts, int64_t end, int64_t run)
{
	int64_t len = end - ts;

	for (int64_t at = LG_MAX(ts, 0); at < end;) {
		size_t b = (size_t)(at / a->bucket_ns);
		int64_t to = LG_MIN(end, (int64_t)(b + 1) * a->bucket_ns);

		if (b >= a->n_buckets)
			return;
		bucket[b] += run == len ? to - at
					: (int64_t)((double)run * (double)(to - at) / (double)len);
		at = to;
	}
}

int lg_active_write(struct lg_levels *used, const struct lg_verdict *v, struct lg_out *o,
		    struct lg_active *ret)
{
	const struct lg_trace *t = v->trace;
	struct lg_active a = { .bucket_ns = 1 };
	struct lg_column c[LG_ACTIVE] = { 0 };
	int64_t *ran LG_AUTOFREE = NULL, *ns LG_AUTOFREE = NULL;
	uint8_t *place LG_AUTOFREE = lg_calloc(t->process.n + 1, 1);
	bool told[LG_ACTIVE + 1] = { false }; /* by states, of that place */
	int rc = 0;

	if (!place || lg_running_ns(v, &ran, NULL))
		return LG_E_NOMEM;
	choose_active(&a, v, ran);
	while ((t->last - t->first) / a.bucket_ns >= LG_ACTIVE_BUCKETS)
		a.bucket_ns *= 2;
	a.n_buckets = (size_t)((t->last - t->first) / a.bucket_ns) + 1;
	ns = lg_calloc(LG_ACTIVE * a.n_buckets, sizeof *ns);
	if (!ns)
		return LG_E_NOMEM;
	for (size_t k = 0; k < a.n; k++)
		place[a.prc[k]] = (uint8_t)(k + 1);
	for (size_t i = 0; i < t->state.n; i++) {
		uint8_t k = place[t->thread.prc[t->state.thr[i]]];
		int64_t ts = t->state.ts[i] - t->first,
			end = lg_row_end(t, t->state.ts[i], t->state.dur[i]) - t->first;
		bool summed = t->state.flags[i] & LG_STATE_SUMMED;

		if (!lg_ran_for_sure(t, i))
			continue;
		told[k] = true;
		if (k && end > ts)
			spread(ns + (k - 1) * a.n_buckets, &a, ts, end,
			       summed ? t->state.run[i] : end - ts);
	}
	for (size_t i = 0; i < t->sample.n; i++) {
		uint8_t k = place[t->thread.prc[t->sample.thr[i]]];
		size_t b = (size_t)((t->sample.ts[i] - t->first) / a.bucket_ns);

		if (k && !told[k] && is_cpu_sample(t, i) && b < a.n_buckets)
			ns[(k - 1) * a.n_buckets + b] += (int64_t)LG_MIN(t->sample.weight[i],
									 UINT64_C(1) << 44);
	}
	for (size_t k = 0; k < a.n; k++)
		for (size_t b = 0; b < a.n_buckets; b++)
			lg_column_add(&c[k], (uint64_t)LG_MAX(ns[k * a.n_buckets + b], 0));
	rc = lg_columns_write(o, used->next_id++, c, a.n, NULL);
	lg_columns_done(c, LG_ACTIVE);
	*ret = a;
	return rc;
}

int lg_steps_write(struct lg_levels *used, const struct lg_verdict *v, const struct lg_accounts *a,
		   struct lg_out *o)
{
	struct lg_column c[STEP_COLUMNS + LG_ACCOUNT_SLOTS + LG_STAGE_MAX + DEVICE_COLUMNS] = { 0 };
	size_t at = STEP_COLUMNS + a->n_slots + LG_STAGE_MAX, n = at + DEVICE_COLUMNS;
	int64_t last = v->trace->first;
	int rc;

	for (size_t i = 0; i < v->n_steps; i++) {
		const struct lg_step *s = &v->steps[i];

		lg_column_add_signed(&c[0], s->number);
		lg_column_add_signed(&c[1], s->rank);
		lg_column_add_signed(&c[2], s->ts - last);
		last = s->ts;
		lg_column_add(&c[3], (uint64_t)LG_MAX(s->dur, 0));
		lg_column_add(&c[4], (uint64_t)LG_MAX(s->median, 0));
		lg_column_add(&c[5], (s->slow ? 1 : 0) | (s->warmup ? 2 : 0));
		lg_column_add_signed(&c[6], a->own_ns[i]);
		lg_column_add_signed(&c[7], a->late_ns[i]);
		for (size_t k = 0; k < a->n_slots; k++)
			lg_column_add_signed(&c[STEP_COLUMNS + k], a->ns[i * a->n_slots + k]);
		for (size_t k = 0; k < LG_STAGE_MAX; k++)
			lg_column_add_signed(&c[STEP_COLUMNS + a->n_slots + k],
					     a->stage_ns[i * LG_STAGE_MAX + k]);
		lg_column_add_signed(&c[at], s->device ? s->device->compute : 0);
		lg_column_add_signed(&c[at + 1], s->device ? s->device->comm : 0);
		lg_column_add_signed(&c[at + 2], s->device ? s->device->copy : 0);
		lg_column_add_signed(&c[at + 3], s->device ? s->device->idle : -1); /* not known */
	}
	rc = lg_columns_write(o, used->next_id++, c, n, NULL);
	lg_columns_done(c, LG_COUNT(c));
	return rc;
}
