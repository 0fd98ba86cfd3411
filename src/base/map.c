/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include "base/alloc.h"
#include "base/error.h"

static size_t slot_of(const struct lg_map *m, uint64_t key)
{
	size_t mask = m->cap - 1;
	size_t i = (size_t)lg_mix64(key) & mask;

	while (m->values[i] && m->keys[i] != key)
		i = (i + 1) & mask;
	return i;
}

uint32_t lg_map_get(const struct lg_map *m, uint64_t key)
{
	return m->cap ? m->values[slot_of(m, key)] : 0;
}

static int rehash(struct lg_map *m, size_t cap)
{
	struct lg_map next = { .cap = cap };

	next.keys = lg_calloc(cap, sizeof *next.keys);
	next.values = lg_calloc(cap, sizeof *next.values);
	if (!next.keys || !next.values) {
		lg_map_done(&next);
		return LG_E_NOMEM;
	}
	for (size_t i = 0; i < m->cap; i++) {
		size_t s;

		if (!m->values[i])
			continue;
		s = slot_of(&next, m->keys[i]);
		next.keys[s] = m->keys[i];
		next.values[s] = m->values[i];
	}
	next.n = m->n;
	lg_map_done(m);
	*m = next;
	return 0;
}

int lg_map_set(struct lg_map *m, uint64_t key, uint32_t value)
{
	size_t s;

	/* 0 marks a free slot: storing it would make an entry that is counted but not there. */
	if (!value) {
		lg_map_remove(m, key);
		return 0;
	}
	if ((m->n + 1) * 3 > m->cap * 2) {
		int rc = rehash(m, m->cap ? m->cap * 2 : 64);

		if (rc)
			return rc;
	}
	s = slot_of(m, key);
	if (!m->values[s]) {
		m->keys[s] = key;
		m->n++;
	}
	m->values[s] = value;
	return 0;
}

void lg_map_remove(struct lg_map *m, uint64_t key)
{
	size_t mask = m->cap - 1, i, j;

	if (!m->cap)
		return;
	i = slot_of(m, key);
	if (!m->values[i])
		return;
	/* Backward-shift deletion keeps probe sequences whole without tombstones. */
	for (j = (i + 1) & mask; m->values[j]; j = (j + 1) & mask) {
		size_t home = (size_t)lg_mix64(m->keys[j]) & mask;

		if (((j - home) & mask) >= ((j - i) & mask)) {
			m->keys[i] = m->keys[j];
			m->values[i] = m->values[j];
			i = j;
		}
	}
	m->values[i] = 0;
	m->n--;
}

void lg_map_done(struct lg_map *m)
{
	lg_free(m->keys);
	lg_free(m->values);
	*m = (struct lg_map){ 0 };
}
