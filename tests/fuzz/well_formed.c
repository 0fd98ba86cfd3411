/* SPDX-License-Identifier: Apache-2.0 */
/* well_formed.c - is it JSON, is it a protocol buffer? Readers of their own: laggard's forgive too much. */
#include <stdbool.h>
#include <string.h>

#include "judge.h"

enum { DEPTH_MAX = 64 };

struct text {
	const char *p, *end, *fault;
	unsigned depth;
};

static void value(struct text *t);

static int look(const struct text *t)
{
	return t->p < t->end ? (unsigned char)*t->p : -1;
}

static bool fault(struct text *t, const char *why)
{
	if (!t->fault)
		t->fault = why;
	t->p = t->end;
	return false;
}

static bool take(struct text *t, char c)
{
	if (look(t) != c)
		return false;
	t->p++;
	return true;
}

static void blanks(struct text *t)
{
	while (take(t, ' ') || take(t, '\t') || take(t, '\n') || take(t, '\r'))
		;
}

static size_t digits(struct text *t)
{
	const char *from = t->p;

	while (look(t) >= '0' && look(t) <= '9')
		t->p++;
	return (size_t)(t->p - from);
}

static void number(struct text *t)
{
	take(t, '-');
	if (!take(t, '0') && !digits(t))
		fault(t, "not a value");
	if (take(t, '.') && !digits(t))
		fault(t, "no digit behind a point");
	if (take(t, 'e') || take(t, 'E')) {
		if (!take(t, '+'))
			take(t, '-');
		if (!digits(t))
			fault(t, "no digit in an exponent");
	}
}

/* The rest of a character of several bytes (RFC 3629), whose first one is c. */
static void utf8(struct text *t, unsigned c)
{
	size_t n = c >= 0xf0 && c < 0xf5 ? 3 : c >= 0xe0 && c < 0xf0 ? 2 : c >= 0xc2 && c < 0xe0 ? 1 : 0;
	uint32_t code = c & (0x3fu >> n);
	static const uint32_t least[] = { 0, 0x80, 0x800, 0x10000 };

	for (size_t i = 0; i < n; i++) {
		int next = look(t);

		if (next < 0x80 || next > 0xbf) {
			fault(t, "not UTF-8");
			return;
		}
		code = code << 6 | ((unsigned)next & 0x3f);
		t->p++;
	}
	if (!n || code < least[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
		fault(t, "not UTF-8");
}

static void string(struct text *t)
{
	if (!take(t, '"')) {
		fault(t, "no string where one must be");
		return;
	}
	while (look(t) >= 0 && !take(t, '"')) {
		unsigned c = (unsigned char)*t->p++;

		if (c < 0x20) {
			fault(t, "control character in a string");
		} else if (c == '\\' && take(t, 'u')) {
			for (int i = 0; i < 4; i++)
				if (look(t) <= 0 || !strchr("0123456789abcdefABCDEF", *t->p++))
					fault(t, "not four digits behind \\u");
		} else if (c == '\\') {
			if (look(t) <= 0 || !strchr("\"\\/bfnrt", *t->p++))
				fault(t, "unknown escape");
		} else if (c >= 0x80) {
			utf8(t, c);
		}
	}
	if (t->p[-1] != '"')
		fault(t, "string without an end");
}

static void members(struct text *t, char close)
{
	blanks(t);
	if (take(t, close))
		return;
	do {
		blanks(t);
		if (close == '}') {
			string(t);
			blanks(t);
			if (!take(t, ':'))
				fault(t, "no colon behind a key");
		}
		value(t);
	} while (take(t, ','));
	if (!take(t, close))
		fault(t, "neither comma nor bracket");
}

static void value(struct text *t)
{
	static const char *const words[] = { "true", "false", "null" };

	blanks(t);
	if (look(t) == '"') {
		string(t);
	} else if (look(t) == '{' || look(t) == '[') {
		char close = *t->p++ == '{' ? '}' : ']';

		if (++t->depth > DEPTH_MAX)
			fault(t, "nested too deep");
		else
			members(t, close);
		t->depth--;
	} else {
		size_t i = 0, n = 0;

		for (; i < 3; i++) {
			n = strlen(words[i]);
			if ((size_t)(t->end - t->p) >= n && !memcmp(t->p, words[i], n))
				break;
		}
		if (i < 3)
			t->p += n;
		else
			number(t);
	}
	blanks(t);
}

const char *fuzz_json_fault(const char *text, size_t n)
{
	struct text t = { .p = text, .end = text + n };

	if (!n)
		return "empty";
	value(&t);
	return t.fault ? t.fault : t.p == t.end ? NULL : "more behind the value";
}

static bool varint(const char **p, const char *end, uint64_t *ret)
{
	*ret = 0;
	for (unsigned shift = 0; *p < end && shift < 70; shift += 7) {
		unsigned char c = (unsigned char)*(*p)++;

		if (shift < 64)
			*ret |= (uint64_t)(c & 0x7f) << shift;
		if (c < 0x80)
			return true;
	}
	return false;
}

const char *fuzz_protobuf_fault(const char *p, size_t n)
{
	const char *end = p + n;
	uint64_t tag, v;

	while (p < end) {
		if (!varint(&p, end, &tag) || tag >> 3 == 0 || tag >> 3 > 0x1fffffff)
			return "not a tag";
		switch (tag & 7) {
		case 0:
			if (!varint(&p, end, &v))
				return "number without an end";
			break;
		case 1:
		case 5:
			v = (tag & 7) == 1 ? 8 : 4;
			if ((uint64_t)(end - p) < v)
				return "fixed number beyond the end";
			p += v;
			break;
		case 2:
			if (!varint(&p, end, &v) || v > (uint64_t)(end - p))
				return "field beyond the end";
			p += v;
			break;
		default:
			return "unknown wire type";
		}
	}
	return NULL;
}
