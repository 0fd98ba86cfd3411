/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kineto_arrows.c - arrows from operator to operator.
 *
 * Those of launches are left out: correlation ids say more, and stand where there are no arrows, too.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "import/kineto/kineto_import.h"

static uint64_t hash(uint64_t h, const struct lg_slice *s)
{
	for (uint32_t i = 0; s->p && i < s->n; i++)
		h = (h ^ (unsigned char)s->p[i]) * 0x100000001b3u; /* FNV-1a */
	return lg_mix64(h ^ s->n);
}

static bool is_launch(const struct lg_slice *cat)
{
	return LG_SLICE_IS(cat, "ac2g") || LG_SLICE_IS(cat, "async_cpu_to_gpu") || LG_SLICE_IS(cat, "async_gpu");
}

void kin_arrow(struct kineto *k, const struct lg_event *e)
{
	struct kin_arrow a = { .ph = e->ph, .order = (uint32_t)k->n_arrows };
	struct lg_event timed = *e;
	struct kin_key *t;
	int64_t pid, tid, dur;

	if (is_launch(&e->cat) || !kin_number(k, &e->pid, &pid) || !kin_number(k, &e->tid, &tid))
		return;
	t = kin_known_thread(k, pid, tid); /* an arrow makes no thread */
	if (!timed.timed)
		lg_event_times(&timed);
	if (!t || k->n_arrows >= UINT32_MAX - 1 || !kin_times(k, &timed, &a.ts, &dur))
		return;
	a.ts -= k->applied;
	a.thr = t->id;
	a.key = hash(hash(hash(0, &e->cat), &e->name), &e->id);
	if (lg_grow(&k->arrows, &k->arrows_cap, k->n_arrows + 1, sizeof a)) {
		k->failed = LG_E_NOMEM;
		return;
	}
	k->arrows[k->n_arrows++] = a;
}

static int by_key_time(const void *pa, const void *pb)
{
	const struct kin_arrow *a = pa, *b = pb;

	if (a->key != b->key)
		return a->key < b->key ? -1 : 1;
	if (a->ts != b->ts)
		return a->ts < b->ts ? -1 : 1;
	return (a->order > b->order) - (a->order < b->order);
}

void kin_arrows_pair(struct kineto *k)
{
	const struct kin_arrow *from = NULL;

	if (k->n_arrows)
		qsort(k->arrows, k->n_arrows, sizeof *k->arrows, by_key_time);
	for (size_t i = 0; i < k->n_arrows; i++) {
		const struct kin_arrow *a = &k->arrows[i];

		if (from && from->key == a->key && a->ph != 's')
			lg_add_flow(k->b, &(struct lg_flow_row){ .ts = from->ts + k->applied,
								 .ts_to = a->ts + k->applied,
								 .thr = from->thr, .thr_to = a->thr,
								 .kind = LG_FLOW_OTHER, .id = a->key });
		from = a->ph == 'f' ? NULL : a;
	}
}
