/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_memo.c - buckets of one cache line, so that a look-up is one miss.
 *
 * I1  A key is in bucket place & mask only; its used entries come first.
 * I2  n counts the used entries of all buckets; a full bucket's newcomer takes the place of one of its own.
 */
#include "import/perfdata/perf_memo.h"

#include <stdbool.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/alloc.h"

enum { LINE = 64, WAYS = 4, BUCKETS_MIN = 1 << 12, MEMO_MAX = 1 << 18 };

struct entry {
	uint64_t tag;
	uint32_t place;
	lg_stk stk; /* 0 = free */
};

struct bucket {
	_Alignas(LINE) struct entry way[WAYS];
};

struct lg_pd_chain_memo {
	struct bucket *bucket; /* in room, at the start of a cache line */
	void *room;
	size_t mask, n;
};

static struct bucket *buckets(size_t n, void **ret_room)
{
	*ret_room = lg_calloc_table(n + 1, sizeof(struct bucket));
	return (struct bucket *)(((uintptr_t)*ret_room + LINE - 1) & ~(uintptr_t)(LINE - 1));
}

struct lg_pd_chain_memo *lg_pd_memo_new(void)
{
	struct lg_pd_chain_memo *m = lg_calloc(1, sizeof *m);

	if (!m)
		return NULL;
	m->mask = BUCKETS_MIN - 1;
	m->bucket = buckets(BUCKETS_MIN, &m->room);
	if (!m->bucket) {
		lg_free(m);
		return NULL;
	}
	return m;
}

void lg_pd_memo_free(struct lg_pd_chain_memo *m)
{
	if (!m)
		return;
	lg_free(m->room);
	lg_free(m);
}

struct lg_pd_chain_key lg_pd_memo_key(const uint8_t *chain, size_t n, size_t callers)
{
	XXH128_hash_t h = XXH3_128bits(chain, 8 * n);
	struct lg_pd_chain_key k = { .tag = h.low64, .place = (uint32_t)h.high64, .n = (uint32_t)n,
				     .n_callers = (uint32_t)callers };

	if (callers) {
		h = XXH3_128bits(chain + 8 * (n - callers), 8 * callers);
		k.callers_tag = h.low64;
		k.callers_place = (uint32_t)h.high64;
	}
	return k;
}

void lg_pd_memo_ahead(const struct lg_pd_chain_memo *m, const struct lg_pd_chain_key *k)
{
	if (!m)
		return;
	__builtin_prefetch(&m->bucket[k->place & m->mask]);
	__builtin_prefetch(&m->bucket[k->callers_place & m->mask]);
}

lg_stk lg_pd_memo_get(const struct lg_pd_chain_memo *m, uint64_t tag, uint32_t place)
{
	const struct bucket *b = &m->bucket[place & m->mask];

	for (size_t i = 0; i < WAYS; i++)
		if (b->way[i].tag == tag && b->way[i].place == place)
			return b->way[i].stk;
	return 0;
}

/* True when it took a free place. */
static bool put(struct bucket *bucket, size_t mask, const struct entry *e)
{
	struct bucket *b = &bucket[e->place & mask];

	for (size_t i = 0; i < WAYS; i++)
		if (!b->way[i].stk) {
			b->way[i] = *e;
			return true;
		}
	b->way[e->tag % WAYS] = *e;
	return false;
}

static void grow(struct lg_pd_chain_memo *m)
{
	size_t mask = 2 * m->mask + 1, n = 0;
	void *room = NULL;
	struct bucket *next = (mask + 1) * WAYS <= MEMO_MAX ? buckets(mask + 1, &room) : NULL;

	if (!next)
		return;
	for (size_t i = 0; i <= m->mask; i++)
		for (size_t k = 0; k < WAYS && m->bucket[i].way[k].stk; k++)
			n += put(next, mask, &m->bucket[i].way[k]);
	lg_free(m->room);
	m->bucket = next;
	m->room = room;
	m->mask = mask;
	m->n = n;
}

void lg_pd_memo_put(struct lg_pd_chain_memo *m, uint64_t tag, uint32_t place, lg_stk stk)
{
	if (!stk)
		return;
	if (m->n >= (m->mask + 1) * WAYS * 5 / 8)
		grow(m);
	m->n += put(m->bucket, m->mask, &(struct entry){ tag, place, stk });
}
