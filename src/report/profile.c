/* SPDX-License-Identifier: Apache-2.0 */
#include "report/profile.h"

#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/alloc.h"
#include "base/map.h"

static bool in_window(const struct lg_trace *t, const struct lg_window *w, size_t i)
{
	return t->sample.ts[i] >= w->from && t->sample.ts[i] < w->to;
}

bool lg_profile_only_tracepoints(const struct lg_trace *t, const struct lg_window *w)
{
	for (size_t i = 0; i < t->sample.n; i++)
		if (!(t->sample.flags[i] & LG_SAMPLE_NO_CPU) && in_window(t, w, i))
			return false;
	return true;
}

bool lg_profile_counts(const struct lg_profile *p, const struct lg_trace *t, const struct lg_window *w,
		       size_t i)
{
	uint32_t flags = t->sample.flags[i];

	if (!in_window(t, w, i) || flags & LG_SAMPLE_OFFCPU)
		return false;
	if (p->tracepoints)
		return flags & LG_SAMPLE_TRACEPOINT && t->sample.stack[i];
	return !(flags & (LG_SAMPLE_TRACEPOINT | LG_SAMPLE_IDLE));
}

bool lg_profile_counts_samples(const struct lg_trace *t, lg_str event)
{
	/* The importers' name for samples that were counted before: no event of the kernel has it. */
	return !strcmp(lg_string(t, event), "samples");
}

uint64_t lg_profile_samples(const struct lg_trace *t, size_t i)
{
	return lg_profile_counts_samples(t, t->sample.event[i]) ? lg_profile_weight(t, i) : 1;
}

uint32_t lg_profile_event_of(const struct lg_profile *p, lg_str name)
{
	uint32_t i = 0;

	while (i < p->n_event && p->event[i].name != name)
		i++;
	return i;
}

static int event_index(struct lg_profile *p, const struct lg_trace *t, lg_str name, uint32_t *ret)
{
	const char *s = lg_string(t, name);

	*ret = lg_profile_event_of(p, name);
	if (*ret < p->n_event)
		return 0;
	if (lg_grow(&p->event, &p->event_cap, p->n_event + 1, sizeof *p->event))
		return LG_E_NOMEM;
	p->event[p->n_event++] = (struct lg_profile_event){
		.name = name,
		/* cpu-clock and task-clock count ns; modifiers may follow ("cpu-clock:u") */
		.is_time = !strncmp(s, "cpu-clock", 9) || !strncmp(s, "task-clock", 10),
		.is_count = lg_profile_counts_samples(t, name),
	};
	return 0;
}

static int by_event_thread(const void *pa, const void *pb)
{
	const struct lg_profile_row *a = pa, *b = pb;

	if (a->event != b->event)
		return a->event < b->event ? -1 : 1;
	if (a->thr != b->thr)
		return a->thr < b->thr ? -1 : 1;
	return a->stack < b->stack ? -1 : a->stack > b->stack;
}

static int add(struct lg_profile *p, struct lg_map *index, const struct lg_trace *t, size_t i)
{
	const struct lg_sample_tab *s = &t->sample;
	uint32_t key[3] = { 0, s->thr[i], s->stack[i] }, at;
	uint64_t hash, weight = lg_profile_weight(t, i), count;

	if (event_index(p, t, s->event[i], &key[0]))
		return LG_E_NOMEM;
	count = p->event[key[0]].is_count ? weight : 1;
	/* A chain of probes: two keys may share a hash, and a count in the wrong stack is a lie. */
	for (hash = XXH3_64bits_withSeed(key, sizeof key, lg_map_secret);; hash++) {
		at = lg_map_get(index, hash);
		if (!at)
			break;
		if (p->row[at - 1].event == key[0] && p->row[at - 1].thr == key[1] &&
		    p->row[at - 1].stack == key[2]) {
			p->row[at - 1].count += count;
			p->row[at - 1].weight += weight;
			return 0;
		}
	}
	if (lg_grow(&p->row, &p->cap, p->n + 1, sizeof *p->row) ||
	    lg_map_set(index, hash, (uint32_t)p->n + 1))
		return LG_E_NOMEM;
	p->row[p->n++] = (struct lg_profile_row){
		.event = key[0], .thr = key[1], .stack = key[2], .count = count, .weight = weight,
	};
	return 0;
}

int lg_profile_make(struct lg_profile *ret, const struct lg_trace *t, const struct lg_window *w,
		    struct lg_error *err)
{
	struct lg_profile p = { .first = INT64_MAX, .last = INT64_MIN,
				.tracepoints = lg_profile_only_tracepoints(t, w) };
	struct lg_map index = { 0 };
	int rc = 0;

	for (size_t i = 0; i < t->sample.n && !rc; i++) {
		if (!lg_profile_counts(&p, t, w, i))
			continue;
		rc = add(&p, &index, t, i);
		p.first = t->sample.ts[i] < p.first ? t->sample.ts[i] : p.first;
		p.last = t->sample.ts[i] > p.last ? t->sample.ts[i] : p.last;
	}
	lg_map_done(&index);
	if (rc) {
		lg_profile_done(&p);
		return lg_fail(err, rc, LG_NO_OFFSET, "out of memory");
	}
	if (p.n)
		qsort(p.row, p.n, sizeof *p.row, by_event_thread);
	*ret = p;
	return 0;
}

void lg_profile_done(struct lg_profile *p)
{
	lg_free(p->event);
	lg_free(p->row);
	*p = (struct lg_profile){ 0 };
}
