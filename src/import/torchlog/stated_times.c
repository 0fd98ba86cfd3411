/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stated_times.c - how long a step took, and waited for its data, as its line says it.
 *
 *   step 10/19560 | loss 5.932 | norm 1.2 | 180.52 ms | 290000 tok/s                            llm.c
 *   step 10 | loss: 6.52 | lr 6.0e-04 | dt: 338.23ms | tok/sec: 1550000.2
 *   Epoch: [0][ 10/5005]\tTime  0.123 ( 0.200)\tData  0.010 ( 0.050)\tLoss 6.9e+00 (6.9e+00)    PyTorch
 *   Epoch: [0]  [  10/5004]  eta: 0:30:00  loss: 6.9 (6.9)  time: 0.35  data: 0.01              torchvision
 *   Train: 0 [  50/1251 (  4%)]  Time: 0.512s, 500.1/s  (0.6s, 430/s)  Data: 0.01 (0.02)        timm
 *   eta: 1:00:00  iter: 19  total_loss: 2.1  time: 0.35  last_time: 0.3  data_time: 0.0123      Detectron2
 *   Epoch(train)  [1][  50/7330]  lr: 1e-2  time: 0.3521  data_time: 0.0123  loss: 2            MMEngine
 *
 * Fields are a name, a number and perhaps a unit. Numbers without a unit are seconds where the line tells
 * both the step's and the data's (all of the above do); else nothing says what they are.
 */
#include "import/torchlog/stated_times.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_BYTES = 32, UNIT_MAX_BYTES = 16 };

struct field {
	char name[NAME_MAX_BYTES]; /* in lower case */
	char unit[UNIT_MAX_BYTES];
	double v, mean;            /* mean: in brackets behind it; NaN */
};

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), k = strlen(end);

	return n >= k && !strcmp(s + n - k, end);
}

static bool has_any(const char *s, const char *const *words)
{
	for (; *words; words++)
		if (strstr(s, *words))
			return true;
	return false;
}

/* What stands before the number at p, back to the field before it. */
static void name_before(const char *line, const char *p, char *ret)
{
	size_t n = 0;
	const char *end, *from;

	while (p > line && strchr(" \t:=~\"'", p[-1]))
		p--;
	end = from = p;
	while (from > line && end - from < NAME_MAX_BYTES - 1 && !strchr("|,;()[]{}>\t", from[-1]) &&
	       !isdigit((unsigned char)from[-1]) && !(from - 1 > line && from[-1] == ' ' && from[-2] == ' '))
		from--;
	for (from += strspn(from, " \"'"); from < end; from++)
		ret[n++] = (char)tolower((unsigned char)*from);
	ret[n] = 0;
}

/* Letters behind the number, with what stands behind a slash: "ms", "s/it", "steps/sec". */
static const char *unit_behind(const char *p, char *ret)
{
	const char *from = p + (*p == ' ' && isalpha((unsigned char)p[1]));
	size_t n = 0;

	while (n < UNIT_MAX_BYTES - 1 && (isalpha((unsigned char)from[n]) || (n && from[n] == '/'))) {
		ret[n] = (char)tolower((unsigned char)from[n]);
		n++;
	}
	ret[n] = 0;
	/* A word of the next field: "time 0.35 data 0.01" */
	if (isalnum((unsigned char)from[n]) || from[n] == '_' || from[n] == ':' || from[n] == '=') {
		ret[0] = 0;
		return p;
	}
	return n ? from + n : p;
}

/* ms of one; 0 = no unit of time. rest: what follows the unit's name. */
static double ms_of_unit(const char *unit, const char **rest)
{
	static const struct {
		const char *name;
		double ms;
	} units[] = { { "milliseconds", 1 }, { "millisecond", 1 }, { "msec", 1 }, { "ms", 1 }, { "us", 1e-3 },
		      { "seconds", 1000 }, { "second", 1000 }, { "secs", 1000 }, { "sec", 1000 }, { "s", 1000 },
		      { "minutes", 60000 }, { "min", 60000 } };

	for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
		size_t k = strlen(units[i].name);

		if (strncmp(unit, units[i].name, k) || isalpha((unsigned char)unit[k]))
			continue;
		*rest = unit + k;
		return units[i].ms;
	}
	return 0;
}

/* Is it "/it", "/step": of one step? */
static bool is_each(const char *s)
{
	static const char *const names[] = { "/it", "/iter", "/iteration", "/step", "/batch", NULL };

	for (size_t i = 0; names[i]; i++)
		if (!strcmp(s, names[i]))
			return true;
	return false;
}

/* "3.2 it/s": how many steps a second. */
static bool is_rate(const char *unit)
{
	static const char *const names[] = { "it/s", "its/s", "iter/s", "iters/s", "step/s", "steps/s", "batches/s",
					     "it/sec", "iter/sec", "iters/sec", "step/sec", "steps/sec", NULL };

	for (size_t i = 0; names[i]; i++)
		if (!strcmp(unit, names[i]))
			return true;
	return false;
}

enum sort { OTHER, MAYBE_STEP, STEP, DATA };

static enum sort sort_of(const char *name)
{
	/* Of more than a step, of a part of it, or of no single one. */
	static const char *const others[] = { "eta", "remain", "wall", "forw", "fwd", "back", "bwd",
					      "val", "eval", "test", "optim", "comm", "epoch", "avg", "aver", "mean",
					      "last", "start", "since", "sav", "left", "until", "timeout", "sync",
					      "compil", "warm", "gen", NULL };
	static const char *const times[] = { "time", "took", "elapsed", "dt", "duration", "latency", "/step", "/iter", "/it",
					     "per step", "per iter", "per iteration", NULL };
	static const char *const steps[] = { "step", "iter", "batch", "/it", NULL };
	bool is_time = false, is_data = ends_with(name, "data") || (strstr(name, "load") && strstr(name, "time"));

	is_data |= strstr(name, "data") && (strstr(name, "time") || strstr(name, "load"));
	for (size_t i = 0; !is_data && times[i]; i++)
		is_time |= ends_with(name, times[i]);
	if ((!is_data && !is_time) || strstr(name, "timestep") || has_any(name, others))
		return OTHER;
	if (is_data)
		return DATA;
	return has_any(name, steps) || ends_with(name, "dt") ? STEP : MAYBE_STEP;
}

/* The next field at or behind *p, which moves behind it. */
static bool next_field(const char *line, const char **p, struct field *f)
{
	for (const char *q = *p; *q; q++) {
		char *end, *close;

		if (!isdigit((unsigned char)*q) ||
		    (q > line && (isalnum((unsigned char)q[-1]) || strchr("._-+", q[-1])))) {
			continue;
		}
		f->v = strtod(q, &end);
		name_before(line, q, f->name);
		*p = unit_behind(end, f->unit);
		f->mean = (double)NAN;
		q = *p + strspn(*p, " \t");
		if (*q == '(') {
			q += 1 + strspn(q + 1, " ");
			f->mean = isdigit((unsigned char)*q) ? strtod(q, &close) : (double)NAN;
			*p = isfinite(f->mean) ? close : *p;
		}
		return true;
	}
	return false;
}

/* What is known of one sort: the first of the surest fields. scale: ms of one, 0 = no unit. */
struct seen {
	enum sort sort;
	double v, mean, scale;
};

static void take(const struct field *f, struct seen *step, struct seen *data)
{
	const char *rest = "";
	double scale = *f->unit ? ms_of_unit(f->unit, &rest) : 0;
	enum sort sort;

	if (*f->unit && !(scale > 0)) { /* "500 samples/s" */
		if (is_rate(f->unit) && f->v > 0 && step->sort != STEP)
			*step = (struct seen){ STEP, 1000 / f->v, (double)NAN, 1 };
		return;
	}
	sort = sort_of(f->name);
	if (scale > 0 && is_each(rest) && sort != DATA)
		sort = STEP;
	else if (*rest)
		return;
	if (sort == OTHER && !*f->name && scale == 1)
		sort = STEP; /* "| 180.52 ms |" */
	if (sort == DATA && !data->sort)
		*data = (struct seen){ sort, f->v, f->mean, scale };
	else if (sort != OTHER && sort != DATA && sort > step->sort)
		*step = (struct seen){ sort, f->v, f->mean, scale };
}

void lg_stated_times_of(const char *line, struct lg_stated_times *ret)
{
	struct seen step = { 0 }, data = { 0 };
	const char *p = line;
	struct field f;

	*ret = (struct lg_stated_times){ .ms = NAN, .data_ms = NAN, .mean = NAN, .data_mean = NAN };
	while (next_field(line, &p, &f))
		take(&f, &step, &data);
	if (step.sort && data.sort) {
		step.scale = step.scale > 0 ? step.scale : data.scale > 0 ? data.scale : 1000;
		data.scale = data.scale > 0 ? data.scale : step.scale;
		step.sort = STEP;
	}
	if (!step.sort || !(step.scale > 0))
		return;
	ret->ms = step.v * step.scale;
	ret->maybe_total = step.sort == MAYBE_STEP && step.scale != 1;
	if (!data.sort || data.v * data.scale > ret->ms)
		return;
	ret->data_ms = data.v * data.scale;
	ret->mean = step.mean * step.scale;
	ret->data_mean = data.mean * data.scale;
}
