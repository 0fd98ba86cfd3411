/* SPDX-License-Identifier: Apache-2.0 */
#include "fleet/fold.h"

#include <string.h>

#include "base/order.h"

/* A step is late from so much above the usual one on: 10 % and 1 ms (doc/contract.md). */
#define LATE_SHARE 10
#define LATE_NS INT64_C(1000000)
#define ROW_NS INT64_C(1000000000)
#define ROW_US UINT64_C(1000000)
enum { WIDEST = 1 << 20, FEWEST = 8 };

/* Of enum lg_stage. */
enum { BATCH = 1, H2D, FORWARD, BACKWARD, SYNC, OPTIMIZER, SIDE };

static uint32_t us(int64_t ns)
{
	return ns <= 0 ? 0 : ns / 1000 > UINT32_MAX ? UINT32_MAX : (uint32_t)(ns / 1000);
}

static void close_row(struct lg_fold *f, struct lg_fleet_rank_step *ret)
{
	struct lg_fleet_rank_step *r = &f->row;

	r->dur_us = us(f->dur);
	r->max_us = us(f->longest);
	r->wait_us = us(f->wait);
	r->data_us = us(f->sum[BATCH]);
	r->h2d_us = us(f->sum[H2D]);
	r->fwd_us = us(f->sum[FORWARD]);
	r->bwd_us = us(f->sum[BACKWARD]);
	r->sync_us = us(f->sum[SYNC]);
	r->opt_us = us(f->sum[OPTIMIZER]);
	r->side_us = us(f->sum[SIDE]);
	*ret = *r;
	f->last_row_us = r->t0_us;
	*r = (struct lg_fleet_rank_step){ 0 };
	memset(f->sum, 0, sizeof f->sum);
	f->dur = f->wait = f->longest = 0;
}

LG_ORDER_BY(cmp_time, int64_t, LG_CMP(*x, *y))

/* The median of the last ones, and how many of those make a second. Looked at anew each few steps. */
static void learn(struct lg_fold *f, int64_t dur)
{
	int64_t sorted[LG_FOLD_USUAL];
	uint32_t n;

	f->recent[f->n_recent++ % LG_FOLD_USUAL] = dur;
	n = LG_MIN(f->n_recent, (uint32_t)LG_FOLD_USUAL);
	if (n < LG_FOLD_USUAL ? f->n_recent & (f->n_recent - 1) : f->n_recent % (LG_FOLD_USUAL / 4))
		return;
	memcpy(sorted, f->recent, n * sizeof *sorted);
	LG_SORT(sorted, n, cmp_time);
	f->usual = sorted[n / 2];
}

/* How wide the next row is to be. Rows that come too fast, whatever the steps say of themselves, are
 * widened. */
static void choose_width(struct lg_fold *f, uint64_t t0_us)
{
	uint64_t w = 1;

	/* The first steps tell little: a warm-up, a step that was joined in its middle. */
	while (f->n_recent >= FEWEST && w < WIDEST && (int64_t)w * f->usual < ROW_NS)
		w *= 2;
	if (f->last_row_us && t0_us - f->last_row_us < ROW_US / 2 && w <= f->width)
		w = LG_MIN(2 * f->width, (uint64_t)WIDEST);
	f->width = w;
}

bool lg_fold_add(struct lg_fold *f, const struct lg_fold_step *s, struct lg_fleet_rank_step *ret,
		 int64_t *ret_late)
{
	struct lg_fleet_rank_step *r = &f->row;
	uint32_t number = s->number < 0 ? 0 : s->number > UINT32_MAX ? UINT32_MAX : (uint32_t)s->number;
	int64_t dur = LG_MAX(s->dur, 0), late = dur - f->usual;
	bool whole = r->steps && (number < r->last || number / f->width != r->step / f->width);

	*ret_late = f->n_recent > FEWEST && late >= LATE_NS && late >= f->usual / LATE_SHARE ? late : 0;
	/* Steps have become much longer: the row does not wait for as many as it was meant for. */
	if (!whole && r->steps && f->dur > 4 * ROW_NS && f->width > 1 && !(number % (f->width / 2)))
		whole = true;
	if (whole)
		close_row(f, ret);
	if (!f->usual)
		f->usual = dur;
	if (!r->steps) {
		choose_width(f, s->t0_us);
		r->step = number;
		r->t0_us = s->t0_us;
	}
	r->steps++;
	r->last = number;
	if (dur > f->longest || r->steps == 1) {
		f->longest = dur;
		r->worst = number;
	}
	f->dur += dur;
	f->wait += LG_MIN(LG_MAX(s->wait, 0), dur);
	for (size_t i = 0; i < LG_FOLD_STAGES; i++)
		f->sum[i] += LG_MIN(LG_MAX(s->stage[i], 0), dur);
	learn(f, dur);
	return whole;
}

bool lg_fold_end(struct lg_fold *f, struct lg_fleet_rank_step *ret)
{
	if (!f->row.steps)
		return false;
	close_row(f, ret);
	return true;
}
