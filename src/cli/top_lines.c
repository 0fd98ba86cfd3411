/* SPDX-License-Identifier: Apache-2.0 */
/*
 * top_lines.c - search, filter and order of top's picture.
 *
 * On its text, not on the verdict: live, that was made by a child that is gone when a key is pressed, and a
 * key is to be heard at once. report/top.c says how its tables begin and end.
 */
#include "cli/top_lines.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/order.h"

enum { PLAIN_BYTES = 4096 };

static const char *const columns[LG_TOP_COLUMNS] = {
	NULL, "RANK", "PID", "STEPS/S", "MEDIAN", "P99", "MAX", "OWN", "SLOW"
};

const char *lg_top_column(unsigned sort)
{
	return sort < LG_TOP_COLUMNS ? columns[sort] : NULL;
}

/* Without colours. */
static const char *plain(const struct lg_top_line *l, char *buf)
{
	size_t n = 0;

	for (size_t i = 0; i < l->n && n + 1 < PLAIN_BYTES; i++) {
		if (l->at[i] == 27)
			while (i < l->n && l->at[i] != 'm')
				i++;
		else
			buf[n++] = l->at[i];
	}
	buf[n] = 0;
	return buf;
}

bool lg_top_holds(const struct lg_top_line *l, const char *text)
{
	char buf[PLAIN_BYTES];

	return *text && strcasestr(plain(l, buf), text);
}

static bool begins(const struct lg_top_line *l, const char *text)
{
	char buf[PLAIN_BYTES];

	return !strncmp(plain(l, buf), text, strlen(text));
}

/* The number in a column; of no rank ("-"): before all. */
static double key_of(const struct lg_top_line *l, unsigned sort)
{
	char buf[PLAIN_BYTES], *at, *save = NULL;

	plain(l, buf);
	at = strtok_r(buf, " ", &save);
	for (unsigned i = 1; at && i < sort; i++)
		at = strtok_r(NULL, " ", &save);
	return at && strcmp(at, "-") ? strtod(at, NULL) : -1;
}

LG_ORDER_BY(cmp_line, struct lg_top_line, LG_CMP(x->key, y->key) ?: LG_CMP(x->place, y->place))

/* Names ascend, and what costs stands first, as in htop. */
static void sort(struct lg_top_line *l, size_t n, const struct lg_top_view *v)
{
	bool down = (v->sort > 2) != v->turned;

	for (size_t i = 0; i < n; i++) {
		l[i].key = (down ? -1 : 1) * key_of(&l[i], v->sort);
		l[i].place = i;
	}
	LG_SORT(l, n, cmp_line);
}

struct lg_top_line *lg_top_lines(const char *picture, size_t n, const struct lg_top_view *v, size_t *ret_n)
{
	enum { ELSEWHERE, RANKS, WAITS } table = ELSEWHERE;
	const char *end = picture + n;
	size_t most = 1, kept = 0, first = 0;
	struct lg_top_line *l;

	for (const char *at = picture; at < end; at++)
		most += *at == '\n';
	l = lg_calloc(most, sizeof *l);
	*ret_n = 0;
	if (!l)
		return NULL;
	for (const char *at = picture; at < end;) {
		const char *nl = memchr(at, '\n', (size_t)(end - at));
		struct lg_top_line one = { .at = at, .n = (size_t)((nl ?: end) - at) };

		at += one.n + 1;
		if (table == RANKS && begins(&one, "in ms, ")) {
			if (v->sort)
				sort(l + first, kept - first, v);
			table = ELSEWHERE;
		} else if (table == WAITS && !begins(&one, " ")) {
			table = ELSEWHERE;
		}
		if (table != ELSEWHERE && *v->filter && !lg_top_holds(&one, v->filter))
			continue;
		l[kept++] = one;
		if (begins(&one, "RANK ") || begins(&one, "  LOST MS ")) {
			table = begins(&one, "RANK ") ? RANKS : WAITS;
			first = kept;
		}
	}
	*ret_n = kept;
	return l;
}
