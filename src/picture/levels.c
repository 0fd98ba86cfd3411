/* SPDX-License-Identifier: Apache-2.0 */
#include "picture/levels.h"

#include <string.h>

#include "base/alloc.h"
#include "base/order.h"
#include "picture/sum.h"

enum { BLOCK_MARKS = 20000, COARSEST = 512, STEP = 2, WINDOWS = 600, COLUMNS = 9 };

uint32_t lg_used_number(struct lg_used *u, uint32_t row, int *failed)
{
	if (!row || row >= u->n_rows || *failed)
		return 0;
	if (!u->number[row]) {
		if (lg_grow(&u->row, &u->cap, u->n + 2, sizeof *u->row)) {
			*failed = LG_E_NOMEM;
			return 0;
		}
		u->number[row] = (uint32_t)++u->n;
		u->row[u->n] = row;
	}
	return u->number[row];
}

static int used_new(struct lg_used *u, size_t n_rows)
{
	*u = (struct lg_used){ .n_rows = n_rows,
			       .number = lg_calloc(n_rows + 1, sizeof *u->number) };
	return u->number ? 0 : LG_E_NOMEM;
}

static int64_t ns_in(const struct lg_mark *m, unsigned state)
{
	if (m->kind == LG_MARK_MIXED)
		return m->dur / 255 * (int64_t)(m->a >> (8 * (state - 1)) & 255);
	return m->kind == state ? m->dur : 0;
}

/* What [first, first + n) of one bucket become. */
static struct lg_mark together(const struct lg_mark *m, size_t n, bool states, int64_t bucket_ns)
{
	struct lg_mark sum = m[0];
	int64_t ns[3] = { 0 };

	if (n == 1)
		return sum;
	for (size_t i = 0; i < n; i++) {
		if (m[i].dur > sum.dur) {
			uint32_t was = sum.n;

			sum = m[i];
			sum.n = was;
		}
		for (unsigned s = 1; s <= 3; s++)
			ns[s - 1] = lg_sum_ns(ns[s - 1], ns_in(&m[i], s));
		sum.n += i ? m[i].n : 0;
	}
	sum.ts = m[0].ts;
	sum.dur = m[n - 1].ts + m[n - 1].dur - sum.ts;
	if (states) {
		int64_t of = LG_MAX(LG_MIN(sum.dur, 2 * bucket_ns), 1);

		sum.kind = LG_MARK_MIXED;
		sum.a = 0;
		for (unsigned s = 0; s < 3; s++)
			sum.a |= lg_share_255(ns[s], of) << (8 * s);
	}
	return sum;
}

int lg_level_of(const struct lg_lane *lane, unsigned k, struct lg_mark **ret, size_t *ret_n)
{
	struct lg_mark *v = lg_calloc(lane->n + 1, sizeof *v);
	size_t n = 0, end;

	if (!v)
		return LG_E_NOMEM;
	for (size_t i = 0; i < lane->n; i = end) {
		const struct lg_mark *m = &lane->v[i];

		end = i + 1;
		if (m->dur >> k == 0)
			while (end < lane->n && lane->v[end].depth == m->depth &&
			       lane->v[end].dur >> k == 0 && lane->v[end].ts >> k == m->ts >> k)
				end++;
		v[n++] = together(m, end - i, lane->kind == LG_ROW_STATES, INT64_C(1) << k);
	}
	*ret = v;
	*ret_n = n;
	return 0;
}

/* The lanes at one level. */
struct level {
	unsigned k;
	struct lg_mark **v;
	size_t *n, n_lanes, total;
	bool borrowed;
};

static void level_done(struct level *l)
{
	for (size_t i = 0; l->v && !l->borrowed && i < l->n_lanes; i++)
		lg_free(l->v[i]);
	lg_free(l->v);
	lg_free(l->n);
}

static int level_make(struct level *l, const struct lg_lanes *lanes, unsigned k)
{
	int rc;

	*l = (struct level){ .k = k,
			     .n_lanes = lanes->n,
			     .borrowed = !k,
			     .v = lg_calloc(lanes->n + 1, sizeof *l->v),
			     .n = lg_calloc(lanes->n + 1, sizeof *l->n) };
	rc = l->v && l->n ? 0 : LG_E_NOMEM;
	for (size_t i = 0; i < lanes->n && !rc; i++) {
		if (k) {
			rc = lg_level_of(&lanes->v[i], k, &l->v[i], &l->n[i]);
		} else {
			l->v[i] = lanes->v[i].v;
			l->n[i] = lanes->v[i].n;
		}
		l->total += rc ? 0 : l->n[i];
	}
	if (rc)
		level_done(l);
	return rc;
}

struct writer {
	struct lg_levels *l;
	const struct lg_lanes *lanes;
	const struct lg_verdict *v;
	struct lg_out *o;
	struct lg_column col[COLUMNS];
	int64_t t0;
	int failed;
};

/* Is `a` of such a mark a row of the thread table? */
static bool names_thread(const struct lg_lane *lane, const struct lg_mark *m)
{
	bool device = m->kind == LG_SPAN_KERNEL || m->kind == LG_SPAN_COPY ||
		      m->kind == LG_SPAN_RUNTIME;

	if (lane->kind == LG_ROW_SPANS || lane->kind == LG_ROW_DEVICE)
		return !device;
	return lane->kind != LG_ROW_STATES || m->kind != LG_MARK_MIXED;
}

/* Positions [*a, *b) of v, of one depth, whose marks touch [from, to). */
static void touching(const struct lg_mark *v, size_t n, int64_t from, int64_t to, size_t *a,
		     size_t *b)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (v[mid].ts + v[mid].dur < from)
			lo = mid + 1;
		else
			hi = mid;
	}
	*a = lo;
	for (hi = n; lo < hi;) {
		size_t mid = (lo + hi) / 2;

		if (v[mid].ts < to)
			lo = mid + 1;
		else
			hi = mid;
	}
	*b = lo;
}

static void put(struct writer *w, const struct lg_lane *lane, const struct lg_mark *m,
		int64_t *last)
{
	struct lg_column *c = w->col;

	lg_column_add_signed(&c[1], m->ts - w->t0 - *last);
	*last = m->ts - w->t0 + m->dur;
	lg_column_add(&c[2], (uint64_t)m->dur);
	lg_column_add(&c[3], lg_used_number(&w->l->name, m->name, &w->failed));
	lg_column_add(&c[4], m->kind);
	lg_column_add(&c[5], m->tone);
	lg_column_add(&c[6], names_thread(lane, m)
				 ? lg_used_number(&w->l->thread, (uint32_t)m->a, &w->failed)
				 : m->a);
	lg_column_add(&c[7], lg_used_number(&w->l->stack, m->stack, &w->failed));
	lg_column_add(&c[8], m->n);
}

/* Of [from, to), ns since the first row. A mark that reaches into several blocks is in each of
 * them. */
static int block(struct writer *w, const struct level *l, int64_t from, int64_t to)
{
	struct lg_block b = { .from = from, .to = to, .k = l->k, .id = w->l->next_id };
	size_t bytes = 0;
	int rc;

	for (size_t i = 0; i < COLUMNS; i++)
		w->col[i].n = 0;
	for (size_t i = 0; i < l->n_lanes; i++) {
		size_t end;

		for (size_t p = 0; p < l->n[i]; p = end) {
			const struct lg_mark *v = l->v[i] + p;
			size_t first, past;
			int64_t last = from;
			/* The end of this depth: depths are few, marks many. */
			size_t lo = p, hi = l->n[i];

			while (lo < hi) {
				size_t mid = (lo + hi) / 2;

				if (l->v[i][mid].depth <= v->depth)
					lo = mid + 1;
				else
					hi = mid;
			}
			end = lo;
			touching(v, end - p, w->t0 + from, w->t0 + to, &first, &past);
			if (first == past)
				continue;
			lg_column_add(&w->col[0], i);
			lg_column_add(&w->col[0], v->depth);
			lg_column_add(&w->col[0], past - first);
			for (size_t m = first; m < past; m++)
				put(w, &w->lanes->v[i], &v[m], &last);
			b.n += (uint32_t)(past - first);
		}
	}
	rc = w->failed;
	if (!b.n || rc)
		return rc;
	rc = lg_columns_write(w->o, b.id, w->col, COLUMNS, &bytes);
	w->l->next_id++;
	w->l->bytes += bytes;
	return rc ? rc : LG_APPEND(w->l->block, w->l->n, w->l->cap, b);
}

static int whole_level(struct writer *w, const struct level *l, int64_t len)
{
	int64_t n = (int64_t)(l->total / BLOCK_MARKS) + 1;
	int rc = 0;

	for (int64_t i = 0; i < n && !rc; i++)
		rc = block(w, l, len / n * i, i + 1 == n ? len + 1 : len / n * (i + 1));
	return rc;
}

struct window {
	int64_t from, to, weight;
};
LG_ORDER_BY(earlier, struct window, LG_CMP(x->from, y->from))
LG_ORDER_BY(weightier, struct window, LG_CMP(y->weight, x->weight) ?: LG_CMP(x->from, y->from))

/* Around slow steps and around what is evidence; those that touch are one, unless that gets long.
 */
static int windows_of(const struct writer *w, int64_t len, struct window **ret, size_t *ret_n)
{
	const struct lg_verdict *v = w->v;
	struct window *p = NULL;
	size_t n = 0, cap = 0, kept = 0;
	int64_t most = LG_MAX(len / 50, 200000000);
	int rc = 0;

	for (size_t i = 0; i < v->n_steps && !rc; i++) {
		const struct lg_step *s = &v->steps[i];
		int64_t edge = s->dur / 10 + 1000000, from = s->ts - w->t0 - edge;

		if (s->slow)
			rc = LG_APPEND(p, n, cap,
				       (struct window){ from,
							from + LG_MIN(s->dur + 2 * edge, most),
							s->dur - s->median });
	}
	for (size_t i = 0; i < v->n_findings && !rc; i++)
		for (size_t k = 0; k < v->findings[i].n_evidence && k < 8 && !rc; k++) {
			const struct lg_evidence *e = &v->findings[i].evidence[k];
			int64_t dur = e->dur > 0 ? LG_MIN(e->dur, LG_MOST_NS) : 1000000;
			int64_t from = e->ts - w->t0 - dur / 4;

			if (e->ts != INT64_MIN && from < len && from + dur > 0)
				rc = LG_APPEND(p, n, cap,
					       (struct window){ from,
								from + LG_MIN(dur + dur / 2, most),
								dur + (INT64_C(1) << 40) });
		}
	LG_SORT(p, n, earlier);
	for (size_t i = 0; i < n; i++) {
		struct window *last = kept ? &p[kept - 1] : NULL;

		if (last && p[i].from <= last->to &&
		    LG_MAX(p[i].to, last->to) - last->from <= 2 * most) {
			last->to = LG_MAX(last->to, p[i].to);
			last->weight = lg_sum_ns(last->weight, p[i].weight);
		} else {
			p[kept++] = p[i];
		}
	}
	LG_SORT(p, kept, weightier);
	*ret = p;
	*ret_n = LG_MIN(kept, (size_t)WINDOWS);
	return rc;
}

/* All of the trace, where that turns out to fit. Numbers that names got meanwhile stay. */
static int try_whole(struct writer *w, const struct level *full, int64_t len, size_t budget)
{
	struct lg_out *o = w->o, *memory;
	size_t n = w->l->n, bytes = w->l->bytes;
	uint32_t id = w->l->next_id;
	int rc = lg_out_memory(&memory, NULL);

	if (rc)
		return rc;
	w->o = memory;
	rc = whole_level(w, full, len);
	w->o = o;
	rc = rc ? rc : lg_out_failed(memory);
	w->l->whole = !rc && w->l->bytes <= budget;
	if (w->l->whole) {
		lg_out_write(o, lg_out_view(memory), (size_t)lg_out_bytes(memory));
	} else {
		w->l->n = n;
		w->l->bytes = bytes;
		w->l->next_id = id;
	}
	lg_out_abort(memory);
	return rc;
}

static int write_all(struct writer *w, int64_t len, size_t budget)
{
	struct level full, l;
	struct window *win = NULL;
	size_t n_win = 0, marks = 0, per_mark = 8;
	unsigned k = 0;
	int rc = level_make(&full, w->lanes, 0);

	if (rc)
		return rc;
	while (len >> k > COARSEST)
		k++;
	for (; !rc && k > STEP; k -= STEP) {
		rc = level_make(&l, w->lanes, k);
		if (rc)
			break;
		/* The full one is no larger than twice this, or this one takes too much of what is
		 * left. */
		if (l.total * 2 > full.total || w->l->bytes + l.total * per_mark > budget / 2) {
			level_done(&l);
			break;
		}
		rc = whole_level(w, &l, len);
		marks += l.total;
		per_mark = marks > 5000 ? w->l->bytes / marks + 1 : per_mark;
		level_done(&l);
	}
	if (!rc && (w->l->bytes + full.total * per_mark <= 2 * budget || full.total < BLOCK_MARKS))
		rc = try_whole(w, &full, len, full.total < BLOCK_MARKS ? SIZE_MAX : budget);
	if (!rc && !w->l->whole)
		rc = windows_of(w, len, &win, &n_win);
	for (size_t i = 0; i < n_win && !rc && w->l->bytes < budget; i++)
		rc = block(w, &full, LG_MAX(win[i].from, 0), LG_MIN(win[i].to, len + 1));
	lg_free(win);
	level_done(&full);
	return rc;
}

int lg_levels_write(struct lg_levels *ret, const struct lg_lanes *lanes, const struct lg_verdict *v,
		    size_t budget, struct lg_out *o, struct lg_error *err)
{
	const struct lg_trace *t = v->trace;
	struct lg_levels l = { .next_id = ret->next_id };
	struct writer w = { .l = &l, .lanes = lanes, .v = v, .o = o, .t0 = t->first };
	int rc = used_new(&l.name, t->n_str) ?: used_new(&l.stack, t->stack.n) ?:
		 used_new(&l.thread, t->thread.n);

	if (!rc && lanes->n_marks && t->last >= t->first)
		rc = write_all(&w, t->last - t->first, budget);
	lg_columns_done(w.col, COLUMNS);
	if (rc) {
		lg_levels_done(&l);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	*ret = l;
	return 0;
}

void lg_levels_done(struct lg_levels *l)
{
	struct lg_used *u[] = { &l->name, &l->stack, &l->thread };

	for (size_t i = 0; i < LG_COUNT(u); i++) {
		lg_free(u[i]->number);
		lg_free(u[i]->row);
	}
	lg_free(l->block);
	*l = (struct lg_levels){ 0 };
}
