/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unread_counters.c - counters that no rule reads (rules/counters.def): those of faults, and those that
 * nobody knows and that change; and memory that grows to the end: no rule says what grows, or when it will be
 * too much. A verdict that does not say so would be an all-clear of what nobody looked at.
 */
#include <math.h>

#include "analyse/finders.h"
#include "base/median.h"
#include "rules/device_names.h"

enum kind { READ_ELSEWHERE, FAULTS_AT_ALL, FAULTS_MORE };

static const struct {
	const char *name;
	enum kind kind;
	const char *what;
} rows[] = {
#define READ(name) { name, READ_ELSEWHERE, NULL },
#define STATE(name) READ(name)
#define FAULTS(name, what) { name, FAULTS_AT_ALL, what },
#define RISES(name, what) { name, FAULTS_MORE, what },
#include "rules/counters.def"
};
enum { ROWS = sizeof rows / sizeof *rows };

/* Of one track; all NAN: it has no value. */
struct series {
	double low, high, last, rose;
};

static size_t row_of(const char *name)
{
	size_t i = 0;

	for (; i < ROWS; i++) {
		size_t n = strlen(rows[i].name);

		if (rows[i].name[n - 1] == '*' ? !strncmp(name, rows[i].name, n - 1)
					       : !strcmp(name, rows[i].name))
			break;
	}
	return i;
}

static void add_up(const struct lg_trace *t, struct series *of)
{
	for (lg_trk k = 0; k < t->track.n; k++)
		of[k] = (struct series){ NAN, NAN, NAN, 0 };
	for (size_t i = 0; i < t->counter.n; i++) {
		struct series *s = &of[t->counter.track[i]];
		double x = t->counter.value[i];

		if (!isfinite(x))
			continue;
		s->low = fmin(s->low, x);
		s->high = fmax(s->high, x);
		s->rose += x > s->last ? x - s->last : 0;
		s->last = x;
	}
}

/* The dearest series of that row. */
static void say_faults(struct lg_case *c, const struct series *of, const size_t *row, size_t i)
{
	const struct lg_trace *t = c->t;
	lg_trk worst = 0;

	for (lg_trk k = 1; k < t->track.n; k++)
		if (row[k] == i && (rows[i].kind == FAULTS_MORE ? of[k].rose > 0 : of[k].high > 0) &&
		    (!worst || of[k].rose > of[worst].rose))
			worst = k;
	if (worst)
		lg_not_judged(c, rows[i].what, lg_text(c, LG_SAYS_COUNTERS_FAULT, lg_string(t,
			      t->track.name[worst]), t->track.index[worst], of[worst].last,
			      of[worst].rose));
}

/* Which names nobody knows; each once. */
static void say_unknown(struct lg_case *c, const struct series *of, const size_t *row)
{
	enum { NAMED = 4 };
	const struct lg_trace *t = c->t;
	const char *names = NULL;
	lg_str told[NAMED] = { 0 };
	size_t n = 0;

	for (lg_trk k = 1; k < t->track.n; k++) {
		bool again = false;

		for (size_t i = 0; i < n && i < NAMED; i++)
			again |= told[i] == t->track.name[k];
		if (row[k] < ROWS || !(of[k].high > of[k].low) || again)
			continue;
		if (n < NAMED) {
			told[n] = t->track.name[k];
			names = names ? lg_text(c, "%s, %s", names, lg_string(t, told[n]))
				: lg_string(t, told[n]);
		}
		n++;
	}
	if (n > NAMED)
		names = lg_text(c, "%s, and %zu more series", names, n - NAMED);
	if (n)
		lg_not_judged(c, "what some counters say", names);
}

int lg_say_counters(struct lg_case *c)
{
	const struct lg_trace *t = c->t;
	LG_AUTOFREE struct series *of = lg_calloc(t->track.n + 1, sizeof *of);
	LG_AUTOFREE size_t *row = lg_calloc(t->track.n + 1, sizeof *row);

	if (!of || !row)
		return c->failed = LG_E_NOMEM;
	add_up(t, of);
	for (lg_trk k = 1; k < t->track.n; k++)
		row[k] = row_of(lg_string(t, t->track.name[k]));
	for (size_t i = 0; i < ROWS; i++)
		if (rows[i].what)
			say_faults(c, of, row, i);
	say_unknown(c, of, row);
	return c->failed;
}

/* ---- memory that grows from one quarter of the input to the next, to its end ---- */

enum { QUARTERS = 4 };
#define LONG_NS (LG_N_MEM_LEAK_SERIES_S * INT64_C(1000000000))

/* Medians of the quarters of the track's values in the order of time. v: room for them. */
static bool grows(const struct lg_case *c, lg_trk k, double *v, double *ret_first, double *ret_last)
{
	double m[QUARTERS], most = 0;
	size_t n = 0;

	LG_LISTED(row, c->idx->counter, k)
		v[n++] = c->t->counter.value[row];
	if (n < QUARTERS * LG_N_MEM_LEAK_OF_QUARTER)
		return false;
	for (size_t q = 0; q < QUARTERS; q++) {
		size_t from = n * q / QUARTERS, to = n * (q + 1) / QUARTERS;

		m[q] = lg_select_f64(v + from, to - from, (to - from) / 2);
		if (q && m[q] <= m[q - 1])
			return false;
		most = q && m[q] - m[q - 1] > most ? m[q] - m[q - 1] : most;
	}
	*ret_first = m[0];
	*ret_last = m[QUARTERS - 1];
	return m[0] > 0 && m[3] - m[0] >= LG_N_MEM_LEAK_SERIES * m[0] &&
	       m[3] - m[2] >= LG_N_MEM_LEAK_GOES_ON * most;
}

static const char *whose(struct lg_case *c, lg_trk k)
{
	const struct lg_trace *t = c->t;
	lg_trk of = t->track.parent[k] ? t->track.parent[k] : k;

	return t->track.index[of] >= 0 ? lg_text(c, " of device %d", t->track.index[of]) : "";
}

int lg_say_memory_growth(struct lg_case *c)
{
	const struct lg_trace *t = c->t;
	LG_AUTOFREE double *v = NULL;
	double first, last;

	/* A snapshot's history is judged by what each stack holds (device/memory_rules.c). */
	if (c->v->memory && c->v->memory->n_devices)
		return 0;
	/* Within a step memory grows as it should. Empty traces end before they begin. */
	if (t->last < t->first ||
	    (c->v->n_judged < LG_N_ANY_REPEATS && (uint64_t)t->last - (uint64_t)t->first < LONG_NS))
		return 0;
	v = lg_scratch(c, t->counter.n, sizeof *v);
	for (lg_trk k = 1; v && k < t->track.n; k++) {
		if (t->track.kind[k] != LG_TRACK_COUNTER ||
		    !lg_on_list(LG_LIST_MEMORY, lg_string(t, t->track.name[k])) ||
		    !grows(c, k, v, &first, &last))
			continue;
		lg_not_judged(c, "memory that grows to the end",
			      lg_text(c, LG_SAYS_MEMORY_GROWS, lg_string(t, t->track.name[k]),
				      whose(c, k), first / 1e6, last / 1e6));
		break; /* one is enough to look */
	}
	return c->failed;
}
