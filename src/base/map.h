/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map.h - open-addressing hash map from a 64-bit key to a 32-bit value.
 *
 * The value 0 means "absent", which fits the ids of the store (0 = none). Keys are mixed
 * before use, so raw pointers, pids and counters are fine. Not thread-safe.
 *
 * Keys come out of files that others write: with a mix that everybody can compute, ids can be chosen
 * that all want one slot, and every look-up walks past all of them. So each process mixes its own way.
 */
#ifndef LG_BASE_MAP_H
#define LG_BASE_MAP_H
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"

/* Key and value side by side: a look-up in a big map is one cache miss. 12 bytes, not 16: maps are
 * a good part of what an import holds. */
struct __attribute__((packed, aligned(4))) lg_map_slot {
	uint64_t key;
	uint32_t value; /* 0 = free */
};

struct lg_map {
	struct lg_map_slot *slot;
	size_t n, cap; /* cap is 0 or a power of two */
};

/* Insert or replace; value must not be 0. 0 or LG_E_NOMEM. */
int lg_map_set(struct lg_map *m, uint64_t key, uint32_t value) __attribute__((warn_unused_result));
void lg_map_remove(struct lg_map *m, uint64_t key);
void lg_map_done(struct lg_map *m);

/* splitmix64 finaliser (Steele, Lea, Flood 2014): a cheap full-avalanche mix. */
static inline uint64_t lg_mix64(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

/* Drawn when the process starts: for hashes that never leave it. Nothing that is written may depend on it. */
extern uint64_t lg_map_secret;

/* For map.c and what is below: the slot a key wants. */
static inline size_t lg_map_home(uint64_t key, size_t mask)
{
	return (size_t)lg_mix64(key ^ lg_map_secret) & mask;
}

/* For map.c and what is below: where key is or would be; cap is not 0. */
static inline size_t lg_map_slot_of(const struct lg_map *m, uint64_t key)
{
	size_t mask = m->cap - 1;
	size_t i = lg_map_home(key, mask);

	while (m->slot[i].value && m->slot[i].key != key)
		i = (i + 1) & mask;
	return i;
}

/* Fetch what a look-up of key will see first. */
static inline void lg_map_ahead(const struct lg_map *m, uint64_t key)
{
	if (m->cap)
		__builtin_prefetch(&m->slot[lg_map_home(key, m->cap - 1)]);
}

/* Find; 0 when absent. */
static inline uint32_t lg_map_get(const struct lg_map *m, uint64_t key)
{
	return m->cap ? m->slot[lg_map_slot_of(m, key)].value : 0;
}

/*
 * Where the element with that key is in v, which grows as by LG_APPEND(): its index + 1. Where there is none
 * yet, the one given is put behind the others; 0 = without memory.
 */
#define LG_MAP_APPEND(m, key, v, n, cap, ...)                                                             \
	({                                                                                                \
		uint64_t key_ = (key);                                                                    \
		uint32_t at_ = lg_map_get((m), key_);                                                     \
		if (!at_ && !lg_map_set((m), key_, (uint32_t)(n) + 1))                                    \
			at_ = LG_APPEND((v), (n), (cap), __VA_ARGS__) ? 0 : (uint32_t)(n);                \
		at_;                                                                                      \
	})

#endif /* LG_BASE_MAP_H */
