/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_shape.h - the text between the values of an object, as it was the last time.
 *
 * A profiler writes every event with the same printf: behind "cat"'s value comes `, "name": "`, byte for
 * byte. What stood between one member's value and the next is kept with what it meant; where the same
 * bytes come again, one comparison takes the place of finding the quotes, the colon, the spaces and the
 * key's meaning. It only ever repeats what the reading of the letters gave for the same bytes.
 */
#ifndef LG_IMPORT_JSON_SHAPE_H
#define LG_IMPORT_JSON_SHAPE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { LG_SHAPE_BYTES = 32, LG_SHAPE_WAYS = 4 };

/* From behind a value to the next value's first byte, or behind an opening quote. */
struct lg_shape_text {
	char text[LG_SHAPE_BYTES];
	unsigned char mask[LG_SHAPE_BYTES]; /* all ones where text is */
	uint8_t n;    /* 0 = none */
	uint8_t what; /* the member whose value follows */
	bool quote;   /* ends with the opening quote of a string */
};

/* What came behind one member; zeros = nothing seen yet. */
struct lg_shape {
	struct lg_shape_text way[LG_SHAPE_WAYS];
	uint8_t turn;
};

/* The text at p, of which LG_SHAPE_BYTES may be read, when it was seen here before; else NULL. */
static inline const struct lg_shape_text *lg_shape_find(const struct lg_shape *s, const char *p)
{
#ifdef __SSE2__
	const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)p);
	const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(p + 16));

	for (const struct lg_shape_text *t = s->way; t < s->way + LG_SHAPE_WAYS && t->n; t++) {
		const __m128i *text = (const __m128i *)(const void *)t->text;
		const __m128i *mask = (const __m128i *)(const void *)t->mask;
		__m128i low = _mm_and_si128(_mm_xor_si128(a, _mm_loadu_si128(text)), _mm_loadu_si128(mask));
		__m128i high = _mm_and_si128(_mm_xor_si128(b, _mm_loadu_si128(text + 1)),
					     _mm_loadu_si128(mask + 1));

		if (_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_or_si128(low, high), _mm_setzero_si128())) == 0xffff)
			return t;
	}
#else
	for (const struct lg_shape_text *t = s->way; t < s->way + LG_SHAPE_WAYS && t->n; t++)
		if (!memcmp(p, t->text, t->n))
			return t;
#endif
	return NULL;
}

/* [from, to) was read by the letter and leads to the value of `what`. Longer texts, and those with a zero
 * (which stands behind the end of what may be read), are not kept. */
static inline void lg_shape_keep(struct lg_shape *s, const char *from, const char *to, uint8_t what)
{
	struct lg_shape_text *t = &s->way[s->turn % LG_SHAPE_WAYS];
	size_t n = (size_t)(to - from);

	if (!n || n > LG_SHAPE_BYTES || memchr(from, 0, n))
		return;
	s->turn++;
	memset(t, 0, sizeof *t);
	memcpy(t->text, from, n);
	memset(t->mask, 0xff, n);
	t->n = (uint8_t)n;
	t->what = what;
	t->quote = to[-1] == '"';
}

#endif /* LG_IMPORT_JSON_SHAPE_H */
