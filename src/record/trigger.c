/* SPDX-License-Identifier: Apache-2.0 */
#include "record/trigger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/duration.h"

#define TIMES_LEAST 1.05 /* the median itself is no trigger */
#define TIMES_MOST 10000.0
#define LONGEST INT64_C(86400000000000) /* a day */

static const char accepted[] =
	"accepted are 'step > 3x', 'step > 200ms', 'hang > 60s' and 'rss > 90%'";

static int refuse(struct lg_error *err, const char *text, const char *why)
{
	return lg_fail(err, LG_E_USAGE, LG_NO_OFFSET, "'%.60s': %s; %s", text, why, accepted);
}

static bool is_space(char c)
{
	return c == ' ' || c == '\t';
}

/* "2.5" of "2.5x": digits with at most one point, nothing else that strtod() would take. *ret_unit: behind it. */
static bool number(const char *s, double *ret, const char **ret_unit)
{
	size_t digits = strspn(s, "0123456789"), n = digits;

	if (s[n] == '.') {
		size_t more = strspn(s + n + 1, "0123456789");

		n += 1 + more;
		digits += more;
	}
	if (!digits || n > 20)
		return false;
	*ret = strtod(s, NULL);
	*ret_unit = s + n;
	return true;
}

static int step(const char *text, const char *value, double v, const char *unit, struct lg_trigger *t,
		struct lg_error *err)
{
	if (!strcmp(unit, "x")) {
		if (!(v >= TIMES_LEAST && v <= TIMES_MOST))
			return refuse(err, text, "times the usual step, from 1.05x to 10000x");
		t->kind = LG_TRIGGER_USUAL;
		t->times = v;
		return 0;
	}
	t->kind = LG_TRIGGER_STEP;
	t->ns = *unit ? lg_parse_duration(value) : -1;
	if (t->ns <= 0 || t->ns > LONGEST)
		return refuse(err, text, "a step is compared with times the usual (3x) or with a time (200ms, 2s, 1m)");
	return 0;
}

static int parse(const char *text, const char *name, const char *value, struct lg_trigger *t,
		 struct lg_error *err)
{
	const char *unit;
	double v;

	if (!number(value, &v, &unit))
		return refuse(err, text, "a number with its unit comes after >");
	if (!strcmp(name, "step"))
		return step(text, value, v, unit, t, err);
	if (!strcmp(name, "hang")) {
		t->kind = LG_TRIGGER_HANG;
		t->ns = *unit ? lg_parse_duration(value) : -1;
		return t->ns >= 1000000000 && t->ns <= LONGEST ? 0
			: refuse(err, text, "hang wants a time of a second to a day, such as 60s or 5m");
	}
	if (!strcmp(name, "rss")) {
		t->kind = LG_TRIGGER_RSS;
		t->share = v / 100;
		return !strcmp(unit, "%") && v >= 1 && v <= 99 ? 0 : refuse(err, text, "rss wants 1% to 99%");
	}
	return refuse(err, text, "there is no such thing to watch");
}

/* name > value, with or without spaces around each of the three. */
int lg_trigger_parse(const char *text, struct lg_trigger *ret, struct lg_error *err)
{
	struct lg_trigger t = { .kind = LG_TRIGGER_ASKED };
	char name[8], value[LG_TRIGGER_TEXT - sizeof name - 4];
	const char *s = text, *over = strchr(text, '>'), *end = text + strlen(text);
	size_t n, m;
	int rc;

	while (is_space(*s))
		s++;
	if (!over)
		return refuse(err, text, "there is no > in it");
	n = (size_t)(over - s);
	while (n && is_space(s[n - 1]))
		n--;
	for (over++; is_space(*over); over++)
		;
	while (end > over && is_space(end[-1]))
		end--;
	m = (size_t)(end - over);
	if (n >= sizeof name || m >= sizeof value)
		return refuse(err, text, "that is too long");
	snprintf(name, sizeof name, "%.*s", (int)n, s);
	snprintf(value, sizeof value, "%.*s", (int)m, over);
	rc = parse(text, name, value, &t, err);
	if (rc)
		return rc;
	snprintf(t.text, sizeof t.text, "%s > %s", name, value);
	*ret = t;
	return 0;
}

bool lg_trigger_wants_marks(const struct lg_trigger *t)
{
	return t->kind == LG_TRIGGER_USUAL || t->kind == LG_TRIGGER_STEP || t->kind == LG_TRIGGER_HANG;
}
