/* SPDX-License-Identifier: Apache-2.0 */
#include "picture/contents.h"

#include "base/alloc.h"
#include "base/each.h"
#include "base/order.h"
#include "picture/lanes.h"
#include "picture/sum.h"

LG_ORDER_BY(larger, struct lg_content_row, LG_CMP(y->ns, x->ns) ?: LG_CMP(x->id, y->id))

static void top_of(struct lg_contents *c, enum lg_content kind, struct lg_content_row *row,
		   size_t n)
{
	for (size_t i = 0; i < n; i++)
		row[i].id = (uint32_t)i;
	LG_KEEP(one, row, n, one->id && one->ns > 0);
	LG_SORT(row, n, larger);
	c->of[kind].names = n;
	LG_EACH (one, row, n)
		c->of[kind].ns = lg_sum_ns(c->of[kind].ns, one->ns);
	for (size_t i = 0; i < n && i < LG_CONTENT_TOP; i++)
		c->of[kind].top[c->of[kind].n++] = row[i];
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

int lg_contents_make(struct lg_contents *ret, const struct lg_verdict *v, struct lg_error *err)
{
	struct lg_contents c = { 0 };
	int rc = 0;

	if (v->trace)
		rc = processes(&c, v) ?: functions(&c, v->trace) ?:
		     spans(&c, v->trace, LG_CONTENT_KERNEL, LG_SPAN_KERNEL) ?:
		     spans(&c, v->trace, LG_CONTENT_COPY, LG_SPAN_COPY) ?:
		     spans(&c, v->trace, LG_CONTENT_COLLECTIVE, LG_SPAN_COLLECTIVE) ?:
		     spans(&c, v->trace, LG_CONTENT_OP, LG_SPAN_OP);
	if (rc)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	*ret = c;
	return 0;
}
