/* SPDX-License-Identifier: Apache-2.0 */
#include "import/perfdata/perf_buckets.h"

#include "base/alloc.h"
#include "base/error.h"

enum { LINE = 64, BUCKETS_MIN = 1 << 12, VALUES_MAX = 1 << 18 };

static struct lg_pd_bucket *buckets(size_t n, void **ret_room)
{
	*ret_room = lg_calloc_table(n + 1, sizeof(struct lg_pd_bucket));
	return (struct lg_pd_bucket *)(((uintptr_t)*ret_room + LINE - 1) & ~(uintptr_t)(LINE - 1));
}

int lg_pd_buckets_init(struct lg_pd_buckets *b)
{
	*b = (struct lg_pd_buckets){ .mask = BUCKETS_MIN - 1 };
	b->bucket = buckets(BUCKETS_MIN, &b->room);
	return b->room ? 0 : LG_E_NOMEM;
}

void lg_pd_buckets_done(struct lg_pd_buckets *b)
{
	lg_free(b->room);
	*b = (struct lg_pd_buckets){ 0 };
}

void lg_pd_buckets_grow(struct lg_pd_buckets *b)
{
	size_t mask = 2 * b->mask + 1;
	void *room = NULL;
	struct lg_pd_bucket *next = (mask + 1) * LG_PD_WAYS <= VALUES_MAX ? buckets(mask + 1, &room) : NULL;

	if (!room)
		return;
	/* Each bucket's ways go to two new ones: there is room for all. */
	for (size_t i = 0; i <= b->mask; i++)
		for (size_t k = 0; k < LG_PD_WAYS && b->bucket[i].way[k].value; k++) {
			const struct lg_pd_way *w = &b->bucket[i].way[k];

			*lg_pd_way_of(&next[w->place & mask], w->tag, w->place) = *w;
		}
	lg_free(b->room);
	b->bucket = next;
	b->room = room;
	b->mask = mask;
}
