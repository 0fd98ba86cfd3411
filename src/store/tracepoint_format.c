/* SPDX-License-Identifier: Apache-2.0 */
#include "store/tracepoint_format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "field:unsigned char prev_comm[16];	offset:8;	size:16;	signed:0;" */
static bool parse_field(struct lg_tp_field *f, const char *line, size_t n)
{
	const char *end = memchr(line, ';', n), *name, *stop;
	const char *offset, *size, *sign;
	char rest[128];

	if (!end || (size_t)(line + n - end) >= sizeof rest)
		return false;
	memcpy(rest, end, (size_t)(line + n - end));
	rest[line + n - end] = 0;
	stop = memchr(line, '[', (size_t)(end - line));
	/* "__data_loc char[] comm": the brackets belong to the type there */
	if (!stop || memchr(stop, ' ', (size_t)(end - stop)))
		stop = end;
	for (name = stop; name > line && name[-1] != ' ' && name[-1] != '*' && name[-1] != ':';)
		name--;
	offset = strstr(rest, "offset:");
	size = strstr(rest, "size:");
	sign = strstr(rest, "signed:");
	if (!offset || !size || name == stop || (size_t)(stop - name) >= sizeof f->name)
		return false;
	memcpy(f->name, name, (size_t)(stop - name));
	f->name[stop - name] = 0;
	f->offset = (uint32_t)strtoul(offset + 7, NULL, 10);
	f->size = (uint32_t)strtoul(size + 5, NULL, 10);
	f->is_signed = sign && sign[7] == '1';
	return true;
}

int lg_tp_format_parse(struct lg_tp_format *ret, const char *text, struct lg_error *err)
{
	struct lg_tp_format f = { 0 };
	bool has_id = false;

	for (const char *line = text, *next; *line; line = next) {
		size_t n = strcspn(line, "\n");
		const char *at;

		next = line + n + (line[n] == '\n');
		if (!strncmp(line, "print fmt:", 10))
			break;
		if (!strncmp(line, "name: ", 6)) {
			snprintf(f.name, sizeof f.name, "%.*s", (int)(n - 6), line + 6);
		} else if (!strncmp(line, "ID: ", 4)) {
			f.id = (uint32_t)strtoul(line + 4, NULL, 10);
			has_id = true;
		} else if ((at = memmem(line, n, "field:", 6))) {
			if (f.n == LG_TP_FIELDS ||
			    !parse_field(&f.field[f.n], at, n - (size_t)(at - line)))
				return lg_fail(err, LG_E_FORMAT, (uint64_t)(line - text),
					       "tracepoint %s: a field is not understood", f.name);
			f.n++;
		}
	}
	if (!has_id || !f.n)
		return lg_fail(err, LG_E_FORMAT, 0, "not the format of a tracepoint");
	*ret = f;
	return 0;
}

const struct lg_tp_field *lg_tp_field(const struct lg_tp_format *f, const char *name)
{
	for (uint32_t i = 0; i < f->n; i++)
		if (!strcmp(f->field[i].name, name))
			return &f->field[i];
	return NULL;
}

int64_t lg_tp_int(const struct lg_tp_field *f, const uint8_t *raw, size_t n)
{
	union {
		uint8_t u8;
		uint16_t u16;
		uint32_t u32;
		uint64_t u64;
	} v = { .u64 = 0 };

	if (!f || f->offset > n || f->size > n - f->offset)
		return 0;
	switch (f->size) {
	case 1:
		v.u8 = raw[f->offset];
		return f->is_signed ? (int8_t)v.u8 : v.u8;
	case 2:
		memcpy(&v, raw + f->offset, 2);
		return f->is_signed ? (int16_t)v.u16 : v.u16;
	case 4:
		memcpy(&v, raw + f->offset, 4);
		return f->is_signed ? (int64_t)(int32_t)v.u32 : (int64_t)v.u32;
	case 8:
		memcpy(&v, raw + f->offset, 8);
		return (int64_t)v.u64;
	default:
		return 0;
	}
}
