/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_regex.c - see step_regex.h.
 *
 * A log may have millions of lines and anything in them, so what one line may cost is bounded: its first
 * 1024 bytes are looked at, by an expression whose matching is bounded.
 */
#include "import/torchlog/step_regex.h"

#include <ctype.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

#include "base/bounded_regex.h"

enum { LINE_MAX_BYTES = 1024, GROUPS = 3 };

static regex_t regex;
static bool given;

int lg_step_regex_set(const char *re, struct lg_error *err)
{
	char text[128];
	int rc;

	if (given)
		regfree(&regex);
	given = false;
	if (!re)
		return 0;
	rc = lg_regex_bounded(re, err);
	if (rc)
		return rc;
	rc = regcomp(&regex, re, REG_EXTENDED);
	if (rc) {
		regerror(rc, &regex, text, sizeof text);
		return lg_fail(err, LG_E_USAGE, LG_NO_OFFSET, "\"%.80s\" is no extended regular expression: %s",
			       re, text);
	}
	if (!regex.re_nsub) {
		regfree(&regex);
		return lg_fail(err, LG_E_USAGE, LG_NO_OFFSET, "\"%.80s\" has no group ( ) around the number of "
			       "the step", re);
	}
	given = true;
	return 0;
}

bool lg_step_regex_given(void)
{
	return given;
}

/* Digits, with commas or underscores for thousands. */
static bool whole_number(const char *p, size_t n, int64_t *ret)
{
	int64_t v = 0;
	size_t digits = 0;

	for (size_t i = 0; i < n; i++) {
		if (isdigit((unsigned char)p[i])) {
			v = v * 10 + (p[i] - '0');
			digits++;
		} else if ((p[i] != ',' && p[i] != '_' && p[i] != ' ') || (p[i] != ' ' && !digits)) {
			return false;
		}
		if (v > INT64_MAX / 16)
			return false;
	}
	*ret = v;
	return digits > 0;
}

/* 1000 where the text behind a number says seconds. */
static double scale_of(const char *behind)
{
	behind += strspn(behind, " ");
	if (!strncmp(behind, "sec", 3) || (*behind == 's' && !isalnum((unsigned char)behind[1])))
		return 1000;
	return 1;
}

bool lg_step_regex_match(const char *line, int64_t *ret_step, double *ret_ms)
{
	char text[LINE_MAX_BYTES + 1], number[64], *end;
	regmatch_t m[GROUPS];
	size_t n = strnlen(line, LINE_MAX_BYTES);
	double v;

	*ret_ms = __builtin_nan("");
	if (!given)
		return false;
	memcpy(text, line, n);
	text[n] = 0;
	/* Nearly all lines are none: asking without groups first is several times cheaper. */
	if (regexec(&regex, text, 0, NULL, 0) || regexec(&regex, text, GROUPS, m, 0) || m[1].rm_so < 0 ||
	    !whole_number(text + m[1].rm_so, (size_t)(m[1].rm_eo - m[1].rm_so), ret_step))
		return false;
	if (regex.re_nsub < 2 || m[2].rm_so < 0 || m[2].rm_eo - m[2].rm_so >= (regoff_t)sizeof number)
		return true;
	n = (size_t)(m[2].rm_eo - m[2].rm_so);
	memcpy(number, text + m[2].rm_so, n);
	number[n] = 0;
	v = strtod(number, &end);
	if (end > number && v > 0 && v < 1e9)
		*ret_ms = v * scale_of(*end ? end : text + m[2].rm_eo);
	return true;
}
