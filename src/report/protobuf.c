/* SPDX-License-Identifier: Apache-2.0 */
#include "report/protobuf.h"

#include <string.h>

#include "base/alloc.h"

/* https://protobuf.dev/programming-guides/encoding/ */
enum { WIRE_I64 = 1, WIRE_LEN = 2, LENGTH_MAX = 4 };

size_t lg_pb_put_varint(uint8_t out[10], uint64_t v)
{
	return (size_t)(lg_pb_raw(out, v) - out);
}

bool lg_pb_grow(struct lg_pb *b, size_t n)
{
	if (b->failed || lg_grow(&b->p, &b->cap, b->n + n, 1)) {
		b->failed = true;
		return false;
	}
	return true;
}

static uint8_t *room(struct lg_pb *b, size_t n)
{
	uint8_t *at;

	if (b->failed || (b->cap - b->n < n && !lg_pb_grow(b, n)))
		return NULL;
	at = b->p + b->n;
	b->n += n;
	return at;
}

static void raw_varint(struct lg_pb *b, uint64_t v)
{
	if (b->cap - b->n < 10 && !lg_pb_grow(b, 10))
		return;
	b->n = (size_t)(lg_pb_raw(b->p + b->n, v) - b->p);
}

void lg_pb_fixed64(struct lg_pb *b, uint32_t field, uint64_t v)
{
	uint8_t *at;

	raw_varint(b, (uint64_t)field << 3 | WIRE_I64);
	at = room(b, 8);
	for (int i = 0; at && i < 8; i++)
		at[i] = (uint8_t)(v >> 8 * i);
}

void lg_pb_double(struct lg_pb *b, uint32_t field, double v)
{
	uint64_t u;

	memcpy(&u, &v, sizeof u);
	lg_pb_fixed64(b, field, u);
}

void lg_pb_bytes(struct lg_pb *b, uint32_t field, const void *p, size_t n)
{
	uint8_t *at;

	raw_varint(b, (uint64_t)field << 3 | WIRE_LEN);
	raw_varint(b, n);
	at = room(b, n);
	if (at)
		memcpy(at, p, n);
}

/* Length of the UTF-8 sequence at s (RFC 3629), 0 when it is malformed. NUL ends the string, so
 * no continuation byte is read past it. */
static size_t sequence(const unsigned char *s)
{
	size_t len = s[0] < 0x80 ? 1 : s[0] >= 0xc2 && s[0] <= 0xdf ? 2 :
		     s[0] >= 0xe0 && s[0] <= 0xef ? 3 : s[0] >= 0xf0 && s[0] <= 0xf4 ? 4 : 0;

	for (size_t i = 1; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if (len == 3 && ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f)))
		return 0;
	if (len == 4 && ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f)))
		return 0;
	return len;
}

void lg_pb_string(struct lg_pb *b, uint32_t field, const char *s)
{
	size_t n = strlen(s);
	uint8_t *at;

	raw_varint(b, (uint64_t)field << 3 | WIRE_LEN);
	raw_varint(b, n);
	at = room(b, n);
	if (!at)
		return;
	memcpy(at, s, n);
	for (size_t i = 0; i < n;) {
		size_t len = sequence((const unsigned char *)s + i);

		if (!len)
			at[i] = '?';
		i += len ? len : 1;
	}
}

void lg_pb_close_long(struct lg_pb *b, size_t at)
{
	size_t len = b->n - at, n;
	uint8_t tmp[10];

	if (b->failed)
		return;
	if (len >= (size_t)1 << 7 * LENGTH_MAX) {
		b->failed = true;
		return;
	}
	n = lg_pb_put_varint(tmp, len);
	if (!room(b, n - 1))
		return;
	memmove(b->p + at - 1 + n, b->p + at, len);
	memcpy(b->p + at - 1, tmp, n);
}

void lg_pb_reset(struct lg_pb *b)
{
	b->n = 0;
}

void lg_pb_done(struct lg_pb *b)
{
	lg_free(b->p);
	*b = (struct lg_pb){ 0 };
}
