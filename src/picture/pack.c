/* SPDX-License-Identifier: Apache-2.0 */
#include "picture/pack.h"

#include <string.h>
#include <zlib.h>

#include "base/alloc.h"

void lg_column_add(struct lg_column *c, uint64_t v)
{
	if (c->failed || lg_grow(&c->v, &c->cap, c->n + 10, 1)) {
		c->failed = 1;
		return;
	}
	for (; v >= 128; v >>= 7)
		c->v[c->n++] = (uint8_t)(v | 128);
	c->v[c->n++] = (uint8_t)v;
}

void lg_column_add_signed(struct lg_column *c, int64_t v)
{
	lg_column_add(c, (uint64_t)v << 1 ^ (uint64_t)(v >> 63));
}

void lg_columns_done(struct lg_column *c, size_t n)
{
	for (size_t i = 0; i < n; i++)
		lg_free(c[i].v);
}

static void base64(struct lg_out *o, const uint8_t *p, size_t n)
{
	static const char digits[] =
	    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char line[4 * 256];
	size_t at = 0;

	for (size_t i = 0; i < n; i += 3) {
		uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) |
			     (i + 2 < n ? p[i + 2] : 0);

		line[at++] = digits[v >> 18];
		line[at++] = digits[v >> 12 & 63];
		line[at++] = i + 1 < n ? digits[v >> 6 & 63] : '=';
		line[at++] = i + 2 < n ? digits[v & 63] : '=';
		if (at == sizeof line) {
			lg_out_write(o, line, at);
			at = 0;
		}
	}
	lg_out_write(o, line, at);
}

int lg_block_write(struct lg_out *o, uint32_t id, const void *p, size_t n, size_t *ret_bytes)
{
	z_stream z = { 0 };
	uint8_t *packed LG_AUTOFREE = NULL;
	size_t room;

	/* 15 + 16: the largest window, in gzip's frame, whose header zlib fills with zeros: no
	 * time, no name. */
	if (n > UINT32_MAX / 2 ||
	    deflateInit2(&z, 7, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) != Z_OK)
		return LG_E_NOMEM;
	room = deflateBound(&z, n);
	packed = lg_calloc(room, 1);
	z.next_in = (Bytef *)(uintptr_t)p;
	z.avail_in = (uInt)n;
	z.next_out = packed;
	z.avail_out = (uInt)room;
	if (!packed || deflate(&z, Z_FINISH) != Z_STREAM_END) {
		deflateEnd(&z);
		return LG_E_NOMEM;
	}
	room = z.total_out;
	deflateEnd(&z);
	lg_out_printf(o, "<script type=\"application/octet-stream\" id=\"b%u\">", id);
	base64(o, packed, room);
	lg_out_puts(o, "</script>\n");
	if (ret_bytes)
		*ret_bytes = (room + 2) / 3 * 4 + 64;
	return 0;
}

int lg_columns_write(struct lg_out *o, uint32_t id, const struct lg_column *c, size_t n,
		     size_t *ret_bytes)
{
	size_t bytes = 4 * (n + 1), at = bytes;
	uint8_t *all LG_AUTOFREE = NULL;

	for (size_t i = 0; i < n; i++) {
		if (c[i].failed)
			return LG_E_NOMEM;
		bytes += c[i].n;
	}
	all = lg_calloc(bytes, 1);
	if (!all)
		return LG_E_NOMEM;
	for (size_t i = 0; i <= n; i++)
		for (size_t k = 0; k < 4; k++)
			all[4 * i + k] = (uint8_t)((i ? c[i - 1].n : n) >> (8 * k));
	for (size_t i = 0; i < n; i++) {
		if (c[i].n)
			memcpy(all + at, c[i].v, c[i].n);
		at += c[i].n;
	}
	return lg_block_write(o, id, all, bytes, ret_bytes);
}
