/* SPDX-License-Identifier: Apache-2.0 */
/* bursts.c - see bursts.h. */
#include "timeline/bursts.h"

#include <stdlib.h>

#include "base/median.h"
#include "base/upper_bound.h"

enum { BURSTS_MAX = 4096, JOIN_PERIODS = 5 };
enum { DISTANCES = 1 << 14 }; /* of all that a thread's samples have: enough for a median */
enum { STILL_PERIODS = 3, BURST_PERIODS = 4 }; /* shorter is below what the sampling can tell */

int lg_stretch_add(struct lg_stretches *l, int64_t ts, int64_t end)
{
	return LG_APPEND(l->v, l->n, l->cap, (struct lg_stretch){ .ts = ts, .end = end });
}

int64_t lg_stretches_time(const struct lg_stretches *l)
{
	int64_t sum = 0;

	LG_EACH(x, l->v, l->n)
		sum += x->end - x->ts;
	return sum;
}

double lg_stretches_typical(const struct lg_stretches *l)
{
	double sum = 0, squares = 0;

	LG_EACH(x, l->v, l->n) {
		sum += (double)(x->end - x->ts);
		squares += (double)(x->end - x->ts) * (double)(x->end - x->ts);
	}
	return sum > 0 ? squares / sum : 0;
}

int lg_stretches_index(struct lg_stretches *l)
{
	uint64_t span;
	size_t i = 0;

	if (!l->n)
		return 0;
	l->from = l->v[0].ts;
	span = (uint64_t)(l->v[l->n - 1].end - l->from);
	for (l->shift = 0; span >> l->shift >= 4 * l->n;)
		l->shift++;
	l->n_at = (size_t)(span >> l->shift) + 1;
	l->at = lg_calloc(l->n_at, sizeof *l->at);
	if (!l->at)
		return LG_E_NOMEM;
	for (size_t k = 0; k < l->n_at; k++) {
		while (i < l->n && (uint64_t)(l->v[i].end - l->from) <= (uint64_t)k << l->shift)
			i++;
		l->at[k] = (uint32_t)i;
	}
	return 0;
}

void lg_stretches_done(struct lg_stretches *l)
{
	lg_free(l->v);
	lg_free(l->at);
}

struct lg_stretch lg_sampled_life(const struct lg_scene *sc, lg_prc prc)
{
	const struct lg_process_tab *p = &sc->t->process;

	return (struct lg_stretch){ .ts = p->start[prc] > sc->t->first ? p->start[prc] : sc->t->first,
				    .end = p->end[prc] < sc->t->last ? p->end[prc] : sc->t->last };
}

int64_t lg_sampling_period(const struct lg_scene *sc, lg_thr thr)
{
	const struct lg_index *x = sc->idx;
	const uint32_t *row = x->sample + x->sample_off[thr];
	size_t n = x->sample_off[thr + 1] - x->sample_off[thr], stride = n / DISTANCES + 1, k = 0;
	LG_AUTOFREE int64_t *d = NULL;

	if (n < 8)
		return 0;
	d = lg_calloc(n < DISTANCES ? n : DISTANCES, sizeof *d);
	if (lg_scene_failed(sc, d ? 0 : LG_E_NOMEM))
		return 0;
	for (size_t i = 1, last; i < n; i += stride) {
		if (!lg_shows_activity(sc, row[i]))
			continue;
		for (last = i - 1; last && !lg_shows_activity(sc, row[last]);)
			last--;
		if (lg_shows_activity(sc, row[last]))
			d[k++] = sc->t->sample.ts[row[i]] - sc->t->sample.ts[row[last]];
	}
	return k ? lg_select_i64(d, k, k / 2) : 0;
}

/* A thread's rows lie all over the table: have those that come soon. */
static inline void fetch(const struct lg_scene *sc, uint32_t p)
{
	enum { AHEAD = 24 };
	uint32_t row;

	if (p + AHEAD >= sc->t->sample.n)
		return;
	row = sc->idx->sample[p + AHEAD];
	__builtin_prefetch(&sc->t->sample.ts[row]);
	__builtin_prefetch(&sc->t->sample.flags[row]);
	__builtin_prefetch(&sc->t->sample.cpu[row]);
}

int lg_find_gaps(const struct lg_scene *sc, lg_thr thr, int64_t period, struct lg_stretch life,
		 struct lg_stretches *gaps)
{
	const struct lg_index *x = sc->idx;
	const struct lg_sample_tab *s = &sc->t->sample;
	int64_t last = life.ts;
	int rc = 0;

	for (uint32_t p = lg_index_sample_from(x, thr, life.ts); !rc && p < x->sample_off[thr + 1]; p++) {
		uint32_t row = x->sample[p];

		if (s->ts[row] >= life.end)
			break;
		fetch(sc, p);
		if (!lg_shows_activity(sc, row))
			continue;
		if (s->ts[row] - last > STILL_PERIODS * period)
			rc = lg_stretch_add(gaps, last + period / 2, s->ts[row] - period / 2);
		last = s->ts[row];
	}
	if (!rc && life.end - last > STILL_PERIODS * period)
		rc = lg_stretch_add(gaps, last + period / 2, life.end);
	return rc;
}

size_t lg_first_sample(const struct lg_sample_tab *s, int64_t ts)
{
	return ts > INT64_MIN ? lg_upper_bound(s->ts, s->n, sizeof *s->ts, 0, ts - 1) : 0;
}

int32_t lg_cpu_before(const struct lg_scene *sc, lg_thr thr, int64_t ts)
{
	uint32_t p = lg_index_sample_from(sc->idx, thr, ts);

	return p > sc->idx->sample_off[thr] ? sc->t->sample.cpu[sc->idx->sample[p - 1]] : -1;
}

int lg_find_seen(const struct lg_scene *sc, lg_prc prc, const uint8_t *leave_out, struct lg_seen *ret)
{
	const struct lg_index *x = sc->idx;
	const struct lg_sample_tab *s = &sc->t->sample;
	size_t cap = 0;

	*ret = (struct lg_seen){ 0 };
	LG_LISTED(thr, x->thread, prc)
		cap += x->sample_off[thr + 1] - x->sample_off[thr];
	ret->v = lg_calloc(cap, sizeof *ret->v);
	if (!ret->v)
		return LG_E_NOMEM;
	LG_LISTED(thr, x->thread, prc) {
		if (leave_out && leave_out[thr])
			continue;
		for (uint32_t p = x->sample_off[thr]; p < x->sample_off[thr + 1]; p++) {
			uint32_t row = x->sample[p];

			fetch(sc, p);
			if (lg_shows_activity(sc, row))
				ret->v[ret->n++] = (struct lg_moment){ s->ts[row], s->cpu[row] };
		}
	}
	/* Of one thread they are in order; lg_cmp_i64() compares by what comes first. */
	if (x->thread_off[prc + 1] > x->thread_off[prc] + 1)
		qsort(ret->v, ret->n, sizeof *ret->v, lg_cmp_i64);
	return 0;
}

int lg_find_bursts(const struct lg_seen *seen, int64_t period, struct lg_stretch life,
		   struct lg_stretches *out)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < seen->n; i++) {
		struct lg_moment m = seen->v[i];

		if (m.ts < life.ts || m.ts >= life.end)
			continue;
		if (out->n && m.ts - out->v[out->n - 1].end <= JOIN_PERIODS * period) {
			out->v[out->n - 1].end = m.ts + period;
		} else if (out->n < BURSTS_MAX) {
			rc = lg_stretch_add(out, m.ts, m.ts + period);
			if (!rc)
				out->v[out->n - 1].cpu = m.cpu;
		}
	}
	return rc;
}

size_t lg_join_occasions(struct lg_stretches *b, int64_t period)
{
	size_t n = 0;

	for (size_t i = 0; i < b->n; i++) {
		struct lg_stretch *v = &b->v[i];
		int64_t len = v->end - v->ts, last = i ? v[-1].end - v[-1].ts : 0;

		v->with_last = i && v->ts - v[-1].end < (len > last ? len : last) + STILL_PERIODS * period;
		n += !v->with_last;
	}
	return n;
}

int64_t lg_keep_long(struct lg_stretches *b, int64_t period)
{
	LG_KEEP(x, b->v, b->n, x->end - x->ts >= BURST_PERIODS * period);
	return lg_stretches_time(b);
}

void lg_mark_beats(struct lg_stretches *all)
{
	int64_t longest = 0;

	for (size_t i = 0; i < all->n; i++)
		longest = LG_MAX(all->v[i].end - all->v[i].ts, longest);
	for (size_t i = 0; i < all->n; i++)
		all->v[i].beat = !i || all->v[i].ts - all->v[i - 1].end > longest;
}
