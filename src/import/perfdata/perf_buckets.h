/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_buckets.h - values by 96-bit keys, in buckets of one cache line: a look-up is one miss.
 *
 * A key is the hash of something and all there is of it: of 2^32 different ones the chance that any two meet
 * is one in 10^9. Bounded: beyond some 10^5 values a new one takes the place of an old one, so what is kept
 * here is only what can be found out again.
 */
#ifndef LG_IMPORT_PERFDATA_PERF_BUCKETS_H
#define LG_IMPORT_PERFDATA_PERF_BUCKETS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LG_PD_WAYS = 4 };

struct lg_pd_bucket {
	_Alignas(64) struct lg_pd_way {
		uint64_t tag;
		uint32_t place;
		uint32_t value; /* 0 = free */
	} way[LG_PD_WAYS];
};

/*
 * I1  A key is in bucket place & mask only; its used ways come first.
 * I2  n counts the used ways.
 */
struct lg_pd_buckets {
	struct lg_pd_bucket *bucket; /* in room, at the start of a cache line */
	void *room;
	size_t mask, n;
};

/* LG_E_NOMEM, then nothing needs to be freed. */
int lg_pd_buckets_init(struct lg_pd_buckets *b);
void lg_pd_buckets_done(struct lg_pd_buckets *b);
/* As many again, where there may be more and there is memory. */
void lg_pd_buckets_grow(struct lg_pd_buckets *b);

/* Some hundred ns before it is asked for. */
static inline void lg_pd_buckets_fetch(const struct lg_pd_buckets *b, uint32_t place)
{
	__builtin_prefetch(&b->bucket[place & b->mask]);
}

/* Where a key is or goes to: its own way, a free one, or that of another. */
static inline struct lg_pd_way *lg_pd_way_of(struct lg_pd_bucket *bucket, uint64_t tag, uint32_t place)
{
	for (size_t i = 0; i < LG_PD_WAYS; i++)
		if (!bucket->way[i].value || (bucket->way[i].tag == tag && bucket->way[i].place == place))
			return &bucket->way[i];
	return &bucket->way[tag % LG_PD_WAYS];
}

/* 0 = not known. */
static inline uint32_t lg_pd_buckets_find(const struct lg_pd_buckets *b, uint64_t tag, uint32_t place)
{
	const struct lg_pd_way *w = lg_pd_way_of(&b->bucket[place & b->mask], tag, place);

	return w->tag == tag && w->place == place ? w->value : 0;
}

/*
 * The value of a key. Where it was not known it is now, and its value is that of the one whose way it took,
 * or 0 when there was none: the caller sets one that is not.
 */
static inline uint32_t *lg_pd_buckets_put(struct lg_pd_buckets *b, uint64_t tag, uint32_t place,
					  bool *ret_known)
{
	struct lg_pd_way *w = lg_pd_way_of(&b->bucket[place & b->mask], tag, place);

	*ret_known = w->value && w->tag == tag && w->place == place;
	if (*ret_known)
		return &w->value;
	if (!w->value && b->n >= (b->mask + 1) * LG_PD_WAYS * 5 / 8) {
		lg_pd_buckets_grow(b);
		w = lg_pd_way_of(&b->bucket[place & b->mask], tag, place);
	}
	b->n += !w->value;
	w->tag = tag;
	w->place = place;
	return &w->value;
}

#endif /* LG_IMPORT_PERFDATA_PERF_BUCKETS_H */
