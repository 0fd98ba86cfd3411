/* SPDX-License-Identifier: Apache-2.0 */
#include "base/intervals.h"

#include "base/each.h"
#include "base/order.h"
#include "base/upper_bound.h"

int lg_iv_add(struct lg_ivs *a, int64_t ts, int64_t end, uint32_t row)
{
	if (a->n && ts < a->v[a->n - 1].end)
		ts = a->v[a->n - 1].end;
	if (end <= ts)
		return 0;
	return LG_APPEND(a->v, a->n, a->cap, (struct lg_iv){ ts, end, row });
}

LG_ORDER_BY(by_start, struct lg_iv, LG_CMP(x->ts, y->ts))

int lg_iv_put(struct lg_ivs *a, size_t own, int64_t ts, int64_t end)
{
	if (a->n > own && ts <= a->v[a->n - 1].end) {
		a->v[a->n - 1].end = end;
		return 0;
	}
	return LG_APPEND(a->v, a->n, a->cap, (struct lg_iv){ ts, end, UINT32_MAX });
}

int lg_iv_join(struct lg_ivs *a)
{
	size_t n = 0;

	if (lg_order(a->v, a->n, sizeof *a->v, by_start))
		return LG_E_NOMEM;
	for (size_t i = 0; i < a->n; i++)
		if (!n || a->v[i].ts > a->v[n - 1].end)
			a->v[n++] = a->v[i];
		else if (a->v[i].end > a->v[n - 1].end)
			a->v[n - 1].end = a->v[i].end;
	a->n = n;
	return 0;
}

int64_t lg_iv_sum(const struct lg_ivs *a)
{
	int64_t sum = 0;

	LG_EACH(x, a->v, a->n)
		sum += x->end - x->ts;
	return sum;
}

int64_t lg_iv_shared(const struct lg_ivs *a, size_t *at, int64_t from, int64_t to)
{
	int64_t sum = 0;

	while (*at < a->n && a->v[*at].end <= from)
		++*at;
	for (size_t i = *at; i < a->n && a->v[i].ts < to; i++)
		sum += LG_MIN(a->v[i].end, to) - LG_MAX(a->v[i].ts, from);
	return sum;
}

bool lg_iv_within(const struct lg_ivs *a, int64_t ts)
{
	size_t k = LG_UPPER_BOUND(a->v, a->n, ts, ts);

	return k && ts < a->v[k - 1].end;
}
