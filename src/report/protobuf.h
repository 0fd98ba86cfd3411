/* SPDX-License-Identifier: Apache-2.0 */
/*
 * protobuf.h - write protocol buffers forward into one growing buffer.
 *
 * A nested message reserves one byte for its length. Nearly all are shorter than 128 bytes and
 * need no more; a longer one is moved up when it is closed, so nothing is measured beforehand.
 * A nested message must stay below 2^28 bytes. Sticky failure: check `failed`.
 */
#ifndef LG_REPORT_PROTOBUF_H
#define LG_REPORT_PROTOBUF_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct lg_pb {
	uint8_t *p;
	size_t n, cap;
	bool failed;
};

/* Room for n more bytes at b->p + b->n. */
bool lg_pb_grow(struct lg_pb *b, size_t n);

static inline uint8_t *lg_pb_raw(uint8_t *at, uint64_t v)
{
	while (v >= 0x80) {
		*at++ = (uint8_t)(v | 0x80);
		v >>= 7;
	}
	*at++ = (uint8_t)v;
	return at;
}

/* A number that is written again and again, and mostly has several bytes. */
struct lg_pb_number {
	uint64_t v, word; /* word: as it stands in memory, where that is not more than 8 bytes */
	size_t n;         /* bytes */
};

enum { LG_PB_WORDS = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ };

static inline struct lg_pb_number lg_pb_number(uint64_t v)
{
	size_t n = (70 - (size_t)__builtin_clzll(v | 1)) / 7;
	uint64_t w = v;

	/* Seven bits a byte: halves of 28 bits apart, quarters of 14, then single ones. */
	w = (w & 0x000000000fffffff) | (w & 0x00fffffff0000000) << 4;
	w = (w & 0x00003fff00003fff) | (w & 0x0fffc0000fffc000) << 2;
	w = (w & 0x007f007f007f007f) | (w & 0x3f803f803f803f80) << 1;
	/* More comes behind all but the last. */
	w |= 0x8080808080808080 & ((UINT64_C(1) << 8 * ((n - 1) % 8)) - 1);
	return (struct lg_pb_number){ v, w, n };
}

/* 10 bytes at `at` are writable. */
static inline uint8_t *lg_pb_put_number(uint8_t *at, const struct lg_pb_number *num)
{
	if (__builtin_expect(!LG_PB_WORDS || num->n > 8, 0))
		return lg_pb_raw(at, num->v);
	memcpy(at, &num->word, sizeof num->word);
	return at + num->n;
}

/* As lg_pb_raw(), for a number that mostly has several bytes, all at once; 10 bytes at `at` are writable. */
static inline uint8_t *lg_pb_long(uint8_t *at, uint64_t v)
{
	const struct lg_pb_number num = lg_pb_number(v);

	return lg_pb_put_number(at, &num);
}

/* Inline: millions of events are little else, and constant fields fold into one or two stores. */
static inline void lg_pb_varint(struct lg_pb *b, uint32_t field, uint64_t v)
{
	if (b->cap - b->n < 20 && !lg_pb_grow(b, 20))
		return;
	b->n = (size_t)(lg_pb_raw(lg_pb_raw(b->p + b->n, (uint64_t)field << 3), v) - b->p);
}

/* A nested message; returns what lg_pb_close() wants. */
static inline size_t lg_pb_open(struct lg_pb *b, uint32_t field)
{
	if (b->cap - b->n < 20 && !lg_pb_grow(b, 20))
		return b->n;
	b->n = (size_t)(lg_pb_raw(b->p + b->n, (uint64_t)field << 3 | 2) - b->p) + 1;
	return b->n;
}

void lg_pb_close_long(struct lg_pb *b, size_t at);

static inline void lg_pb_close(struct lg_pb *b, size_t at)
{
	if (b->n - at < 0x80 && !b->failed)
		b->p[at - 1] = (uint8_t)(b->n - at);
	else
		lg_pb_close_long(b, at);
}

void lg_pb_fixed64(struct lg_pb *b, uint32_t field, uint64_t v);
void lg_pb_double(struct lg_pb *b, uint32_t field, double v);
void lg_pb_bytes(struct lg_pb *b, uint32_t field, const void *p, size_t n);
/* As bytes, with what is not UTF-8 replaced by '?' (a string field must be UTF-8). */
void lg_pb_string(struct lg_pb *b, uint32_t field, const char *s);
void lg_pb_reset(struct lg_pb *b); /* keeps the memory */
void lg_pb_done(struct lg_pb *b);
/* A varint alone; returns its length (at most 10). */
size_t lg_pb_put_varint(uint8_t out[10], uint64_t v);

#endif /* LG_REPORT_PROTOBUF_H */
