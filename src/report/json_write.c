/* SPDX-License-Identifier: Apache-2.0 */
#include "report/json_write.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void before_value(struct lg_json *j)
{
	if (j->after_key) {
		j->after_key = false;
		return;
	}
	if (j->has_item)
		lg_out_write(j->o, ",", 1);
	if (j->depth) {
		if (j->flat) {
			if (j->has_item)
				lg_out_write(j->o, " ", 1);
		} else {
			lg_out_write(j->o, "\n", 1);
			for (unsigned i = 0; i < j->depth; i++)
				lg_out_write(j->o, "  ", 2);
		}
	}
	j->has_item = true;
}

void lg_json_open(struct lg_json *j, char bracket)
{
	before_value(j);
	lg_out_write(j->o, &bracket, 1);
	j->depth++;
	j->has_item = false;
}

void lg_json_open_flat(struct lg_json *j, char bracket)
{
	lg_json_open(j, bracket);
	if (!j->flat) {
		j->flat = true;
		j->flat_from = j->depth;
	}
}

void lg_json_close(struct lg_json *j, char bracket)
{
	j->depth--;
	if (j->flat && j->depth < j->flat_from)
		j->flat = false;
	else if (!j->flat && j->has_item) {
		lg_out_write(j->o, "\n", 1);
		for (unsigned i = 0; i < j->depth; i++)
			lg_out_write(j->o, "  ", 2);
	}
	lg_out_write(j->o, &bracket, 1);
	j->has_item = true;
}

void lg_json_key(struct lg_json *j, const char *key)
{
	before_value(j);
	lg_out_json_string(j->o, key, strlen(key));
	lg_out_write(j->o, ": ", 2);
	j->after_key = true;
}

void lg_json_str(struct lg_json *j, const char *s)
{
	before_value(j);
	if (s)
		lg_out_json_string(j->o, s, strlen(s));
	else
		lg_out_puts(j->o, "null");
}

void lg_json_str_n(struct lg_json *j, const char *s, size_t n)
{
	before_value(j);
	lg_out_json_string(j->o, s, n);
}

void lg_json_key_str(struct lg_json *j, const char *key, const char *s)
{
	lg_json_key(j, key);
	lg_json_str(j, s);
}

void lg_json_key_num(struct lg_json *j, const char *key, double v, int decimals)
{
	lg_json_key(j, key);
	lg_json_num(j, v, decimals);
}

void lg_json_key_int(struct lg_json *j, const char *key, int64_t v)
{
	lg_json_key(j, key);
	lg_json_int(j, v);
}

void lg_json_key_count(struct lg_json *j, const char *key, uint64_t v)
{
	lg_json_key_int(j, key, v > INT64_MAX ? INT64_MAX : (int64_t)v);
}

void lg_json_key_id(struct lg_json *j, const char *key, int64_t v)
{
	lg_json_key(j, key);
	if (v < 0)
		lg_json_null(j);
	else
		lg_json_int(j, v);
}

void lg_json_bool(struct lg_json *j, bool v)
{
	before_value(j);
	lg_out_puts(j->o, v ? "true" : "false");
}

void lg_json_int(struct lg_json *j, int64_t v)
{
	before_value(j);
	lg_out_i64(j->o, v);
}

void lg_json_null(struct lg_json *j)
{
	before_value(j);
	lg_out_puts(j->o, "null");
}

const char *lg_num_text(char *buf, size_t size, double v, int decimals)
{
	size_t n;

	if (!isfinite(v)) {
		snprintf(buf, size, "null");
		return buf;
	}
	/* Beyond 1e15 a double has no decimals left and %f would print hundreds of digits. */
	if (fabs(v) >= 1e15) {
		snprintf(buf, size, "%.6g", v);
		return buf;
	}
	snprintf(buf, size, "%.*f", decimals, v);
	n = strlen(buf);
	if (strchr(buf, '.')) {
		while (n && buf[n - 1] == '0')
			buf[--n] = 0;
		if (n && buf[n - 1] == '.')
			buf[--n] = 0;
	}
	if (!strcmp(buf, "-0"))
		snprintf(buf, size, "0");
	return buf;
}

void lg_json_num(struct lg_json *j, double v, int decimals)
{
	char buf[64];

	before_value(j);
	lg_out_puts(j->o, lg_num_text(buf, sizeof buf, v, decimals));
}
