/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.c - RFC 8259 text to values, strings decoded in place.
 *
 * A file that ends or breaks early gives what was complete, with doc->cut set: profilers are killed
 * while they write. NaN and Infinity are read, because Python writes them.
 */
#include <stdlib.h>
#include <string.h>

#include "import/value/value.h"

enum { DEPTH_MAX = 128 };

struct json {
	struct lg_doc *d;
	char *start, *p, *end;
	int nomem;
};

static int cut(struct json *j, const char *why)
{
	if (!j->d->cut) {
		j->d->cut = why;
		j->d->cut_at = (uint64_t)(j->p - j->start);
	}
	return -1;
}

static void space(struct json *j)
{
	while (j->p < j->end && (*j->p == ' ' || *j->p == '\n' || *j->p == '\t' || *j->p == '\r'))
		j->p++;
}

static unsigned hex4(const char *p)
{
	unsigned u = 0;

	for (int i = 0; i < 4; i++) {
		unsigned c = (unsigned char)p[i];

		if (c >= '0' && c <= '9')
			u = u << 4 | (c - '0');
		else if ((c | 32) >= 'a' && (c | 32) <= 'f')
			u = u << 4 | ((c | 32) - 'a' + 10);
		else
			return 0xfffd;
	}
	return u;
}

static char *put_utf8(char *to, unsigned u)
{
	if (!u || (u >= 0xd800 && u < 0xe000))
		u = 0xfffd; /* NUL and lone surrogates cannot stand in a string */
	if (u < 0x80) {
		*to++ = (char)u;
	} else if (u < 0x800) {
		*to++ = (char)(0xc0 | u >> 6);
		*to++ = (char)(0x80 | (u & 63));
	} else if (u < 0x10000) {
		*to++ = (char)(0xe0 | u >> 12);
		*to++ = (char)(0x80 | (u >> 6 & 63));
		*to++ = (char)(0x80 | (u & 63));
	} else {
		*to++ = (char)(0xf0 | u >> 18);
		*to++ = (char)(0x80 | (u >> 12 & 63));
		*to++ = (char)(0x80 | (u >> 6 & 63));
		*to++ = (char)(0x80 | (u & 63));
	}
	return to;
}

/* At the opening quote. The decoded text is never longer than its source. */
static int string(struct json *j, uint32_t *ret)
{
	char *from = j->p + 1, *to = from, *first = from;
	uint32_t v;

	for (;;) {
		unsigned u;

		if (from >= j->end)
			return cut(j, "it ends inside a string");
		if (*from == '"')
			break;
		if (*from != '\\') {
			*to++ = *from ? *from : ' ';
			from++;
			continue;
		}
		if (from + 1 >= j->end)
			return cut(j, "it ends inside a string");
		from += 2;
		switch (from[-1]) {
		case 'b': *to++ = '\b'; break;
		case 'f': *to++ = '\f'; break;
		case 'n': *to++ = '\n'; break;
		case 'r': *to++ = '\r'; break;
		case 't': *to++ = '\t'; break;
		case 'u':
			if (j->end - from < 4)
				return cut(j, "it ends inside a string");
			u = hex4(from);
			from += 4;
			if (u >= 0xd800 && u < 0xdc00 && j->end - from >= 6 && from[0] == '\\' &&
			    from[1] == 'u') {
				unsigned low = hex4(from + 2);

				if (low >= 0xdc00 && low < 0xe000) {
					u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
					from += 6;
				}
			}
			to = put_utf8(to, u);
			break;
		default: *to++ = from[-1] ? from[-1] : ' '; break;
		}
	}
	j->p = from + 1;
	*to = 0;
	v = lg_value_new(j->d, LG_TEXT);
	if (!v)
		return j->nomem = -1;
	j->d->v[v].s = first;
	j->d->v[v].n = (uint32_t)(to - first);
	*ret = v;
	return 0;
}

static int word(struct json *j, const char *w)
{
	size_t k = strlen(w);

	if ((size_t)(j->end - j->p) < k || memcmp(j->p, w, k))
		return 0;
	j->p += k;
	return 1;
}

static int number(struct json *j, uint32_t *ret)
{
	char *p = j->p, *after;
	int negative = *p == '-', digits = 0, real = 0;
	uint64_t u = 0;
	uint32_t v;

	for (p += negative; p < j->end && *p >= '0' && *p <= '9'; p++, digits++)
		u = digits < 19 ? u * 10 + (uint64_t)(*p - '0') : u;
	real = digits > 18 || (p < j->end && (*p == '.' || *p == 'e' || *p == 'E'));
	if (!digits)
		return cut(j, "an unexpected character");
	if (!real) {
		v = lg_value_new_int(j->d, negative ? -(int64_t)u : (int64_t)u);
	} else {
		v = lg_value_new(j->d, LG_REAL);
		if (v)
			j->d->v[v].d = strtod(j->p, &after); /* the text ends with NUL */
		if (v && after > p)
			p = after;
		if (digits == 19 && v && !(p < j->end && strchr(".eE", *p)) && after == p &&
		    u <= INT64_MAX) {
			/* nanoseconds since 1970 have 19 digits: a double would lose some */
			const char *dot = memchr(j->p, '.', (size_t)(p - j->p));
			const char *exp = memchr(j->p, 'e', (size_t)(p - j->p));

			if (!dot && !exp && !memchr(j->p, 'E', (size_t)(p - j->p))) {
				j->d->v[v].kind = LG_INT;
				j->d->v[v].i = negative ? -(int64_t)u : (int64_t)u;
			}
		}
	}
	if (!v)
		return j->nomem = -1;
	j->p = p;
	*ret = v;
	return 0;
}

static int value(struct json *j, uint32_t *ret, int depth);

/* At the opening bracket. What is complete stays in the container whatever happens. */
static int container(struct json *j, uint32_t *ret, int depth)
{
	int is_dict = *j->p == '{';
	char close = is_dict ? '}' : ']';
	uint32_t v = lg_value_new(j->d, is_dict ? LG_DICT : LG_LIST);

	if (!v)
		return j->nomem = -1;
	*ret = v;
	if (depth >= DEPTH_MAX)
		return cut(j, "it is nested too deeply");
	j->p++;
	for (;;) {
		uint32_t key = 0, item = 0;
		int rc;

		space(j);
		if (j->p >= j->end)
			return cut(j, "it ends early");
		if (*j->p == close) {
			j->p++;
			return 0;
		}
		if (is_dict) {
			if (*j->p != '"')
				return cut(j, "a name is missing");
			if (string(j, &key))
				return -1;
			space(j);
			if (j->p >= j->end || *j->p != ':')
				return cut(j, "a colon is missing");
			j->p++;
		}
		rc = value(j, &item, depth + 1);
		if ((!rc || item) && (is_dict ? lg_value_put(j->d, v, key, item)
					      : lg_value_push(j->d, v, item)))
			return j->nomem = -1;
		if (rc)
			return rc;
		space(j);
		if (j->p < j->end && *j->p == ',')
			j->p++;
		else if (j->p >= j->end || *j->p != close)
			return cut(j, j->p < j->end ? "a comma is missing" : "it ends early");
	}
}

static int value(struct json *j, uint32_t *ret, int depth)
{
	uint32_t v;

	space(j);
	if (j->p >= j->end)
		return cut(j, "it ends early");
	*ret = 0;
	switch (*j->p) {
	case '{':
	case '[':
		return container(j, ret, depth);
	case '"':
		return string(j, ret);
	case 'n':
		return word(j, "null") ? 0 : cut(j, "an unexpected character");
	case 't':
	case 'f':
		v = lg_value_new(j->d, LG_BOOL);
		if (!v)
			return j->nomem = -1;
		j->d->v[v].i = *j->p == 't';
		*ret = v;
		return word(j, "true") || word(j, "false") ? 0 : cut(j, "an unexpected character");
	case 'N':
		return word(j, "NaN") ? 0 : cut(j, "an unexpected character");
	case 'I':
		return word(j, "Infinity") ? 0 : cut(j, "an unexpected character");
	default:
		if (*j->p == '-' && j->p + 1 < j->end && j->p[1] == 'I') {
			j->p++;
			return word(j, "Infinity") ? 0 : cut(j, "an unexpected character");
		}
		return number(j, ret);
	}
}

int lg_doc_json(struct lg_doc *d, char *text, size_t n, struct lg_error *err)
{
	struct json j = { .d = d, .start = text, .p = text, .end = text + n };
	int rc = lg_doc_init(d, err);

	if (rc)
		return rc;
	if (n >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
		j.p += 3;
	(void)value(&j, &d->root, 0);
	if (j.nomem || lg_doc_index(d)) {
		lg_doc_done(d);
		return lg_fail(err, LG_E_NOMEM, (uint64_t)(j.p - text), "out of memory");
	}
	return 0;
}
