/* SPDX-License-Identifier: Apache-2.0 */
#include "picture/contents.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/each.h"
#include "base/order.h"
#include "picture/lanes.h"
#include "picture/sum.h"

/* Rows come by id: of two that are equal the first stays in front. */
static void put_by_size(struct lg_content_row *top, size_t *n, const struct lg_content_row *row)
{
	size_t at = *n;

	while (at && top[at - 1].ns < row->ns)
		at--;
	if (at == LG_CONTENT_TOP)
		return;
	*n += *n < LG_CONTENT_TOP;
	memmove(top + at + 1, top + at, (*n - at - 1) * sizeof *top);
	top[at] = *row;
}

static void top_of(struct lg_contents *c, enum lg_content kind, struct lg_content_row *row,
		   size_t n)
{
	for (size_t i = 1; i < n; i++) {
		if (row[i].ns <= 0)
			continue;
		row[i].id = (uint32_t)i;
		c->of[kind].names++;
		c->of[kind].ns = lg_sum_ns(c->of[kind].ns, row[i].ns);
		put_by_size(c->of[kind].top, &c->of[kind].n, &row[i]);
	}
}

static int spans(struct lg_contents *c, const struct lg_trace *t, enum lg_content kind,
		 uint8_t span_kind)
{
	struct lg_content_row *row LG_AUTOFREE = lg_calloc(t->n_str + 1, sizeof *row);

	if (!row)
		return LG_E_NOMEM;
	for (size_t i = 0; i < t->span.n; i++)
		if (t->span.kind[i] == span_kind) {
			struct lg_content_row *r = &row[t->span.name[i]];

			r->ns = lg_sum_ns(r->ns, lg_span_end(t, (uint32_t)i) - t->span.ts[i]);
			r->count++;
			if (!t->span.bytes[i] || t->span.dur[i] <= 0)
				continue;
			r->bytes += LG_MIN(t->span.bytes[i], UINT64_C(1) << 50);
			r->moving = lg_sum_ns(r->moving, t->span.dur[i]);
		}
	top_of(c, kind, row, t->n_str);
	return 0;
}

static int functions(struct lg_contents *c, const struct lg_trace *t)
{
	struct lg_content_row *row LG_AUTOFREE = lg_calloc(t->frame.n + 1, sizeof *row);

	if (!row)
		return LG_E_NOMEM;
	for (size_t i = 0; i < t->sample.n; i++) {
		lg_frm f = t->stack.n ? t->stack.frame[t->sample.stack[i]] : 0;

		if (t->sample.flags[i] & (LG_SAMPLE_NO_CPU | LG_SAMPLE_IDLE))
			continue;
		row[f].ns = lg_sum_ns(row[f].ns, (int64_t)LG_MIN(t->sample.weight[i], UINT64_C(1) << 40));
		row[f].count++;
	}
	top_of(c, LG_CONTENT_FUNCTION, row, t->frame.n);
	return 0;
}

static int processes(struct lg_contents *c, const struct lg_verdict *v)
{
	size_t n = v->trace->process.n;
	struct lg_content_row *row LG_AUTOFREE = lg_calloc(n + 1, sizeof *row);
	int64_t *ran LG_AUTOFREE = NULL;

	if (!row || lg_running_ns(v, &ran, NULL))
		return LG_E_NOMEM;
	for (size_t i = 0; i < n; i++)
		row[i].ns = ran[i];
	top_of(c, LG_CONTENT_PROCESS, row, n);
	return 0;
}

static int events(struct lg_contents *c, const struct lg_trace *t)
{
	struct lg_content_row *row LG_AUTOFREE = lg_calloc(t->n_str + 1, sizeof *row);

	if (!row)
		return LG_E_NOMEM;
	for (size_t i = 0; i < t->mark.n; i++)
		row[t->mark.name[i]].ns = (int64_t)++row[t->mark.name[i]].count;
	top_of(c, LG_CONTENT_EVENT, row, t->n_str);
	return 0;
}

/* The track that a stream lies in; 0 = it is no device's. */
static lg_trk device_of(const struct lg_trace *t, lg_trk k)
{
	if (t->track.kind[k] == LG_TRACK_STREAM && t->track.parent[k])
		k = t->track.parent[k];
	return t->track.kind[k] == LG_TRACK_GPU || t->track.kind[k] == LG_TRACK_STREAM ? k : 0;
}

/* Spans are in order of time: what overlaps the end of those before counts from there on. */
static void devices(struct lg_contents *c, const struct lg_trace *t)
{
	int64_t end[LG_CONTENT_DEVICES];

	for (size_t i = 0; i < t->span.n; i++) {
		lg_trk k = t->span.track[i] ? device_of(t, t->span.track[i]) : 0;
		int64_t to = lg_span_end(t, (uint32_t)i), from = t->span.ts[i];
		size_t d = 0;

		if (t->span.kind[i] == LG_SPAN_COLLECTIVE && t->span.dur[i] < 0 && !c->pending++)
			c->pending_span = (uint32_t)i;
		if (!k)
			continue;
		while (d < c->n_devices && c->device[d].track != k)
			d++;
		if (d == LG_CONTENT_DEVICES)
			continue;
		if (d == c->n_devices) {
			c->device[c->n_devices++].track = k;
			end[d] = INT64_MIN;
		}
		from = LG_MAX(from, end[d]);
		if (to > from)
			c->device[d].busy = lg_sum_ns(c->device[d].busy, to - from);
		end[d] = LG_MAX(end[d], to);
	}
}

static int counters(struct lg_contents *c, const struct lg_trace *t)
{
	uint8_t *row LG_AUTOFREE = lg_calloc(t->track.n + 1, sizeof *row); /* plus 1 */

	if (!row)
		return LG_E_NOMEM;
	for (lg_trk k = 1; k < t->track.n; k++) {
		if (t->track.kind[k] != LG_TRACK_COUNTER)
			continue;
		if (c->n_counters == LG_CONTENT_COUNTERS) {
			c->counters_left++;
			continue;
		}
		c->counter[c->n_counters++].track = k;
		row[k] = (uint8_t)c->n_counters;
	}
	for (size_t i = 0; i < t->counter.n; i++) {
		uint8_t at = row[t->counter.track[i]];
		double v = t->counter.value[i];
		struct lg_content_counter *x;

		if (!at || !isfinite(v))
			continue;
		x = &c->counter[at - 1];
		x->least = x->n ? fmin(x->least, v) : v;
		x->most = x->n ? fmax(x->most, v) : v;
		x->sum += v;
		x->n++;
	}
	return 0;
}

static void ranks(struct lg_contents *c, const struct lg_trace *t)
{
	for (lg_prc p = 1; p < t->process.n && c->n_ranks < LG_CONTENT_RANKS; p++) {
		size_t k = 0;

		while (k < c->n_ranks && c->rank[k] != t->process.rank[p])
			k++;
		if (t->process.rank[p] >= 0 && k == c->n_ranks)
			c->rank[c->n_ranks++] = t->process.rank[p];
	}
}

int lg_contents_make(struct lg_contents *ret, const struct lg_verdict *v, struct lg_error *err)
{
	struct lg_contents c = { 0 };
	int rc = 0;

	if (v->trace)
		rc = processes(&c, v) ?: functions(&c, v->trace) ?:
		     spans(&c, v->trace, LG_CONTENT_KERNEL, LG_SPAN_KERNEL) ?:
		     spans(&c, v->trace, LG_CONTENT_COPY, LG_SPAN_COPY) ?:
		     spans(&c, v->trace, LG_CONTENT_COLLECTIVE, LG_SPAN_COLLECTIVE) ?:
		     spans(&c, v->trace, LG_CONTENT_OP, LG_SPAN_OP) ?: events(&c, v->trace) ?:
		     counters(&c, v->trace);
	if (rc)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	if (v->trace) {
		devices(&c, v->trace);
		ranks(&c, v->trace);
	}
	*ret = c;
	return 0;
}
