/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.c - natural merge sort.
 *
 * Two neighbouring runs are merged from where the first element of the right one belongs to where the
 * last of the left one does: both are found by bisection, and what lies outside does not move. Nearly
 * everything lies outside when a trace is several threads' lists one after the other.
 */
#include "base/order.h"

#include <string.h>

#include "base/alloc.h"

struct sorting {
	char *v;
	size_t size;
	int (*cmp)(const void *a, const void *b);
	char *tmp;    /* the left run while two are merged */
	size_t cap;   /* elements */
};

static char *at(const struct sorting *s, size_t i)
{
	return s->v + i * s->size;
}

/* First place in [lo, hi) whose element is greater than key (or_equal: or equal to it). */
static size_t place(const struct sorting *s, size_t lo, size_t hi, const void *key, int or_equal)
{
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		int c = s->cmp(at(s, mid), key);

		if (c > 0 || (or_equal && !c))
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

/* [a, b) and [b, c) are in order each: make them one. */
static int merge(struct sorting *s, size_t a, size_t b, size_t c)
{
	const char *left, *left_end, *right, *right_end;
	char *out;

	if (s->cmp(at(s, b - 1), at(s, b)) <= 0)
		return 0;
	a = place(s, a, b, at(s, b), 0);
	c = place(s, b, c, at(s, b - 1), 1);
	if (lg_grow(&s->tmp, &s->cap, b - a, s->size))
		return LG_E_NOMEM;
	memcpy(s->tmp, at(s, a), (b - a) * s->size);
	left = s->tmp;
	left_end = s->tmp + (b - a) * s->size;
	right = at(s, b);
	right_end = at(s, c);
	for (out = at(s, a); left < left_end && right < right_end; out += s->size) {
		/* Equal: the left one came first. */
		if (s->cmp(right, left) < 0) {
			memcpy(out, right, s->size);
			right += s->size;
		} else {
			memcpy(out, left, s->size);
			left += s->size;
		}
	}
	memcpy(out, left, (size_t)(left_end - left));
	return 0;
}

int lg_order(void *v, size_t n, size_t size, int (*cmp)(const void *a, const void *b))
{
	struct sorting s = { .v = v, .size = size, .cmp = cmp };
	size_t *run = NULL, n_runs = 0, cap = 0; /* where each begins */
	int rc = 0;

	for (size_t i = 1; i < n && !rc; i++) {
		if (cmp(at(&s, i - 1), at(&s, i)) <= 0)
			continue;
		rc = lg_grow(&run, &cap, n_runs + 3, sizeof *run);
		if (!rc && !n_runs)
			run[n_runs++] = 0;
		if (!rc)
			run[n_runs++] = i;
	}
	while (n_runs > 1 && !rc) {
		size_t k = 0;

		for (size_t i = 0; i < n_runs && !rc; i += 2) {
			if (i + 1 < n_runs)
				rc = merge(&s, run[i], run[i + 1], i + 2 < n_runs ? run[i + 2] : n);
			run[k++] = run[i];
		}
		n_runs = k;
	}
	lg_free(run);
	lg_free(s.tmp);
	return rc;
}
