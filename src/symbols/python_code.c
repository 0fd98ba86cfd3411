/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/python_code.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

#define DUMP_MAX ((size_t)48 << 20)

struct lg_python_dump {
	uint8_t *bytes;
	size_t n;
	size_t *at; /* of each record */
	size_t n_at, cap;
};

static bool whole(const uint8_t *p, size_t left, struct lg_python_object *ret)
{
	if (left < sizeof *ret)
		return false;
	memcpy(ret, p, sizeof *ret);
	return ret->bytes >= sizeof *ret && ret->bytes <= left && ret->n_name <= LG_PYTHON_STRING_MAX &&
	       ret->n_file <= LG_PYTHON_STRING_MAX && ret->n_table <= LG_PYTHON_TABLE_MAX &&
	       sizeof *ret + ret->n_name + ret->n_file + ret->n_table <= ret->bytes;
}

int lg_python_dump_open(struct lg_python_dump **ret, int fd)
{
	struct lg_python_dump *d = lg_calloc(1, sizeof *d);
	struct lg_python_object o;
	struct stat st;
	int rc = d ? 0 : LG_E_NOMEM;

	if (!rc && (fstat(fd, &st) || st.st_size < 0 || (size_t)st.st_size > DUMP_MAX))
		rc = LG_E_IO;
	if (!rc && !(d->bytes = lg_calloc((size_t)st.st_size + 1, 1)))
		rc = LG_E_NOMEM;
	while (!rc && d->n < (size_t)st.st_size) {
		ssize_t got = pread(fd, d->bytes + d->n, (size_t)st.st_size - d->n, (off_t)d->n);

		if (got <= 0)
			break;
		d->n += (size_t)got;
	}
	for (size_t at = 0; !rc && whole(d->bytes + at, d->n - at, &o); at += o.bytes) {
		rc = lg_grow(&d->at, &d->cap, d->n_at + 1, sizeof *d->at);
		if (!rc)
			d->at[d->n_at++] = at;
	}
	if (rc) {
		lg_python_dump_free(d);
		return rc;
	}
	*ret = d;
	return 0;
}

void lg_python_dump_free(struct lg_python_dump *d)
{
	if (!d)
		return;
	lg_free(d->bytes);
	lg_free(d->at);
	lg_free(d);
}

/* -- strings: Include/cpython/unicodeobject.h -- */

struct text {
	unsigned kind; /* bytes a character */
	size_t length, at;
};

/* kind:3, compact, ascii */
static bool is_state(uint32_t bits)
{
	unsigned kind = bits & 7;

	return (kind == 1 || ((kind == 2 || kind == 4) && !(bits >> 4 & 1))) && bits >> 3 & 1;
}

static bool text_of(const uint8_t *p, size_t n, unsigned minor, struct text *ret)
{
	/* length, hash, then bits: state of being interned in two, and what is_state() knows; builds of 3.14
	 * from before its release have 16 for the first, of which the upper ones are zero. */
	size_t ascii_size = minor < 12 ? 48 : 40, compact_size = minor < 12 ? 72 : 56;
	uint64_t length;
	uint32_t bits;
	bool ascii;

	if (n < 40)
		return false;
	memcpy(&length, p + 16, 8);
	memcpy(&bits, p + 32, 4);
	bits >>= minor < 14 || is_state(bits >> 2) ? 2 : 16;
	if (!is_state(bits))
		return false;
	ret->kind = bits & 7;
	ascii = bits >> 4 & 1;
	ret->at = ascii ? ascii_size : compact_size;
	ret->length = length > 255 ? 255 : (size_t)length;
	if (ret->at > n)
		return false;
	if (ret->length > (n - ret->at) / ret->kind)
		ret->length = (n - ret->at) / ret->kind;
	return true;
}

static size_t put_utf8(char *out, uint32_t c)
{
	if (c < 0x20 || (c >= 0x7f && c < 0xa0) || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		c = '?';
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 63));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (char)(0xe0 | c >> 12);
		out[1] = (char)(0x80 | (c >> 6 & 63));
		out[2] = (char)(0x80 | (c & 63));
		return 3;
	}
	out[0] = (char)(0xf0 | c >> 18);
	out[1] = (char)(0x80 | (c >> 12 & 63));
	out[2] = (char)(0x80 | (c >> 6 & 63));
	out[3] = (char)(0x80 | (c & 63));
	return 4;
}

/* As UTF-8, with its NUL; "?" where it cannot be read. */
static size_t decode(const uint8_t *p, size_t n, unsigned minor, char *buf, size_t size)
{
	size_t used = 0;
	struct text t;

	if (!text_of(p, n, minor, &t) || !t.length)
		return (size_t)snprintf(buf, size, "?");
	for (size_t i = 0; i < t.length && used + 5 < size; i++) {
		const uint8_t *at = p + t.at + i * t.kind;
		uint32_t c = at[0];

		if (t.kind > 1)
			c |= (uint32_t)at[1] << 8;
		if (t.kind > 2)
			c |= (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
		used += put_utf8(buf + used, c);
	}
	buf[used] = 0;
	return used;
}

/* -- lines -- */

struct table {
	const uint8_t *p, *end;
};

static uint32_t varint(struct table *t)
{
	uint32_t v = 0;

	for (unsigned shift = 0; t->p < t->end && shift < 32; shift += 6) {
		uint8_t b = *t->p++;

		v |= (uint32_t)(b & 63) << shift;
		if (!(b & 64))
			break;
	}
	return v;
}

static int64_t signed_varint(struct table *t)
{
	uint32_t v = varint(t);

	return v & 1 ? -(int64_t)(v >> 1) : (int64_t)(v >> 1);
}

/* Entries of locations; *ret_known: the entry has a line at all. */
static int64_t line_of_locations(struct table *t, uint32_t units, int64_t line, bool *ret_known)
{
	uint32_t at = 0;

	while (t->p < t->end) {
		uint8_t first = *t->p++, code = first >> 3 & 15;

		if (code == 14 || code == 13)
			line += signed_varint(t);
		if (code == 14) {
			varint(t);
			varint(t);
			varint(t);
		} else if (code >= 10 && code <= 12) {
			line += code - 10;
			t->p += 2;
		} else if (code < 10) {
			t->p++;
		}
		at += (first & 7u) + 1;
		if (units < at) {
			*ret_known = code != 15;
			return line;
		}
	}
	return line;
}

/* co_linetable of 3.10, co_lnotab before: pairs of bytes and lines gone on. */
static int64_t line_of_pairs(const struct table *t, uint32_t units, int64_t line, bool ten)
{
	uint32_t at = 0, offset = units * 2;

	for (const uint8_t *p = t->p; p + 1 < t->end; p += 2) {
		at += p[0];
		if (ten) {
			if ((int8_t)p[1] != -128)
				line += (int8_t)p[1];
			if (at > offset)
				break;
		} else {
			if (at > offset)
				break;
			line += (int8_t)p[1];
		}
	}
	return line;
}

static int64_t line_of(const struct lg_python_object *o, const uint8_t *table, uint32_t units)
{
	struct table t = { table, table + o->n_table };
	bool known = true;
	int64_t line;

	if (units == LG_PYTHON_NO_UNITS || !o->n_table)
		return o->first_line;
	if (o->minor < 11) {
		line = line_of_pairs(&t, units, o->first_line, o->minor == 10);
	} else {
		/* Before its first instruction it is where it begins. */
		units = units > o->code_units ? units - o->code_units : 0;
		line = line_of_locations(&t, units, o->first_line, &known);
	}
	return known && line > 0 && line <= INT32_MAX ? line : o->first_line;
}

const char *lg_python_dump_find(const struct lg_python_dump *d, uint64_t pc, char *buf, size_t size)
{
	const uint8_t *name, *file, *table;
	char function[512], path[512];
	struct lg_python_object o;

	if (pc >> 16 >= d->n_at)
		return NULL;
	name = d->bytes + d->at[pc >> 16] + sizeof o;
	memcpy(&o, name - sizeof o, sizeof o);
	file = name + o.n_name;
	table = file + o.n_file;
	decode(name, o.n_name, o.minor, function, sizeof function);
	decode(file, o.n_file, o.minor, path, sizeof path);
	snprintf(buf, size, "%.400s\n%.500s\n%lld", function, path,
		 (long long)line_of(&o, table, (uint32_t)(pc & 0xffff)));
	return buf;
}
