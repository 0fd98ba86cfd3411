/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include <sys/random.h>
#include <time.h>

#include "base/alloc.h"
#include "base/error.h"

uint64_t lg_map_secret;

/* Before main(), so that no map is ever filled under another secret than it is searched with. */
__attribute__((constructor)) static void draw_secret(void)
{
	struct timespec now;

	/* An early boot without entropy: harder to guess than nothing, and never a reason to wait. */
	if (getrandom(&lg_map_secret, sizeof lg_map_secret, GRND_NONBLOCK) != sizeof lg_map_secret) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		lg_map_secret = lg_mix64((uint64_t)now.tv_nsec ^ (uint64_t)(uintptr_t)&now);
	}
}

static int rehash(struct lg_map *m, size_t cap)
{
	struct lg_map next = { .cap = cap };

	next.slot = lg_calloc_table(cap, sizeof *next.slot);
	if (!next.slot)
		return LG_E_NOMEM;
	for (size_t i = 0; i < m->cap; i++)
		if (m->slot[i].value)
			next.slot[lg_map_slot_of(&next, m->slot[i].key)] = m->slot[i];
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
	s = lg_map_slot_of(m, key);
	if (!m->slot[s].value) {
		m->slot[s].key = key;
		m->n++;
	}
	m->slot[s].value = value;
	return 0;
}

void lg_map_remove(struct lg_map *m, uint64_t key)
{
	size_t mask = m->cap - 1, i, j;

	if (!m->cap)
		return;
	i = lg_map_slot_of(m, key);
	if (!m->slot[i].value)
		return;
	/* Backward-shift deletion keeps probe sequences whole without tombstones. */
	for (j = (i + 1) & mask; m->slot[j].value; j = (j + 1) & mask) {
		size_t home = lg_map_home(m->slot[j].key, mask);

		if (((j - home) & mask) >= ((j - i) & mask)) {
			m->slot[i] = m->slot[j];
			i = j;
		}
	}
	m->slot[i].value = 0;
	m->n--;
}

void lg_map_done(struct lg_map *m)
{
	lg_free(m->slot);
	*m = (struct lg_map){ 0 };
}
