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

enum { LG_SHAPE_BYTES = 32, LG_SHAPE_WAYS = 4 };

/* From behind a value to the next value's first byte, or behind an opening quote. */
struct lg_shape_text {
	uint64_t word[LG_SHAPE_BYTES / 8], mask[LG_SHAPE_BYTES / 8];
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
	uint64_t at[LG_SHAPE_BYTES / 8];

	memcpy(at, p, sizeof at);
	for (const struct lg_shape_text *t = s->way; t < s->way + LG_SHAPE_WAYS && t->n; t++)
		if (!(((at[0] ^ t->word[0]) & t->mask[0]) | ((at[1] ^ t->word[1]) & t->mask[1]) |
		      ((at[2] ^ t->word[2]) & t->mask[2]) | ((at[3] ^ t->word[3]) & t->mask[3])))
			return t;
	return NULL;
}

/* [from, to) was read by the letter and leads to the value of `what`. Longer texts, and those with a zero
 * (which stands behind the end of what may be read), are not kept. */
static inline void lg_shape_keep(struct lg_shape *s, const char *from, const char *to, uint8_t what)
{
	struct lg_shape_text *t = &s->way[s->turn % LG_SHAPE_WAYS];
	size_t n = (size_t)(to - from);
	unsigned char ones[LG_SHAPE_BYTES] = { 0 };

	if (!n || n > LG_SHAPE_BYTES || memchr(from, 0, n))
		return;
	s->turn++;
	memset(t, 0, sizeof *t);
	memcpy(t->word, from, n);
	memset(ones, 0xff, n);
	memcpy(t->mask, ones, sizeof ones);
	t->n = (uint8_t)n;
	t->what = what;
	t->quote = to[-1] == '"';
}

#endif /* LG_IMPORT_JSON_SHAPE_H */
