/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_memo.c - buckets of one cache line, so that a look-up is one miss.
 *
 * I1  A key is in bucket place & mask only; its used entries come first.
 * I2  n counts the used entries of all buckets, which have the numbers 1 to n; a full bucket's newcomer
 *     takes the place and the number of one of its own.
 */
#include "import/perfdata/perf_memo.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/alloc.h"
#include "base/map.h"
#include "import/perfdata/perf_abi.h"
#include "import/perfdata/perf_bytes.h"

enum { LINE = 64, WAYS = 4, BUCKETS_MIN = 1 << 12, MEMO_MAX = 1 << 18, RECENT = 64,
       AHEAD = 8, ASKED = 2 * AHEAD };

struct entry {
	uint64_t tag;
	uint32_t place;
	uint32_t number; /* 0 = free */
};

struct bucket {
	_Alignas(LINE) struct entry way[WAYS];
};

/* A question, until it has its answers: the whole chain's AHEAD calls later, its callers' ASKED calls. */
struct asked {
	const uint8_t *chain;
	size_t n, callers;
	bool swap;
	uint64_t tag, version; /* tag, place: of the whole chain, then of its callers */
	uint32_t place;
	struct lg_pd_seen *ret;
};

struct lg_pd_memo {
	struct bucket *bucket; /* in room, at the start of a cache line */
	void *room;
	size_t mask, n;
	/* Of what lies where: one counter for all processes, so that no two have the same. */
	struct lg_map version_of; /* pid -> version */
	struct { int32_t pid; uint32_t version; } recent[RECENT]; /* in front of it; version 0 = free */
	uint32_t versions, kernel;
	/* asked[i % ASKED]: in [whole, end) nothing is known yet, in [done, whole) the whole chain */
	struct asked asked[ASKED];
	size_t done, whole, end;
};

static struct bucket *buckets(size_t n, void **ret_room)
{
	*ret_room = lg_calloc_table(n + 1, sizeof(struct bucket));
	return (struct bucket *)(((uintptr_t)*ret_room + LINE - 1) & ~(uintptr_t)(LINE - 1));
}

struct lg_pd_memo *lg_pd_memo_new(void)
{
	struct lg_pd_memo *m = lg_calloc(1, sizeof *m);

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

void lg_pd_memo_free(struct lg_pd_memo *m)
{
	if (!m)
		return;
	lg_map_done(&m->version_of);
	lg_free(m->room);
	lg_free(m);
}

/* Where e is or goes to in its bucket; its own place, a free one, or that of another. */
static struct entry *way_of(struct bucket *bucket, size_t mask, uint64_t tag, uint32_t place)
{
	struct bucket *b = &bucket[place & mask];

	for (size_t i = 0; i < WAYS; i++)
		if (!b->way[i].number || (b->way[i].tag == tag && b->way[i].place == place))
			return &b->way[i];
	return &b->way[tag % WAYS];
}

static void grow(struct lg_pd_memo *m)
{
	size_t mask = 2 * m->mask + 1;
	void *room = NULL;
	struct bucket *next = (mask + 1) * WAYS <= MEMO_MAX ? buckets(mask + 1, &room) : NULL;

	if (!next)
		return;
	/* Each bucket's entries go to two new ones: there is room for all. */
	for (size_t i = 0; i <= m->mask; i++)
		for (size_t k = 0; k < WAYS && m->bucket[i].way[k].number; k++) {
			const struct entry *e = &m->bucket[i].way[k];

			*way_of(next, mask, e->tag, e->place) = *e;
		}
	lg_free(m->room);
	m->bucket = next;
	m->room = room;
	m->mask = mask;
}

static struct lg_pd_number number_of(struct lg_pd_memo *m, uint64_t tag, uint32_t place, bool *ret_known)
{
	struct entry *e = way_of(m->bucket, m->mask, tag, place);

	*ret_known = e->number && e->tag == tag && e->place == place;
	if (!*ret_known) {
		if (!e->number && m->n >= (m->mask + 1) * WAYS * 5 / 8) {
			grow(m);
			e = way_of(m->bucket, m->mask, tag, place);
		}
		*e = (struct entry){ tag, place, e->number ? e->number : (uint32_t)++m->n };
	}
	return (struct lg_pd_number){ e->number, (uint32_t)(tag >> 32) };
}

static uint32_t version_of(struct lg_pd_memo *m, int32_t pid)
{
	size_t k = (uint32_t)pid % RECENT;
	uint32_t v;

	if (m->recent[k].pid == pid && m->recent[k].version)
		return m->recent[k].version;
	v = lg_map_get(&m->version_of, (uint32_t)pid);
	if (!v) {
		v = ++m->versions;
		if (lg_map_set(&m->version_of, (uint32_t)pid, v))
			return v; /* asked again it is another: nothing known, nothing wrong */
	}
	m->recent[k].pid = pid;
	m->recent[k].version = v;
	return v;
}

void lg_pd_memo_changed(struct lg_pd_memo *m, int32_t pid)
{
	size_t k = (uint32_t)pid % RECENT;

	if (m->recent[k].pid == pid)
		m->recent[k].version = 0;
	lg_map_remove(&m->version_of, (uint32_t)pid);
}

void lg_pd_memo_kernel_changed(struct lg_pd_memo *m)
{
	m->kernel++;
}

/*
 * How many addresses the innermost one has for callers: 0 where it is alone or what comes next is of
 * another kind of code, and where the chain begins in a rare one (hypervisor, guest).
 */
static size_t callers_of(const uint8_t *chain, size_t n, bool swap)
{
	uint64_t first = pd_u64(chain, swap);
	size_t leaf = first >= PDC_MAX;

	if ((leaf && first != PDC_USER && first != PDC_KERNEL) || n < leaf + 2 ||
	    pd_u64(chain + 8 * leaf, swap) >= PDC_MAX || pd_u64(chain + 8 * (leaf + 1), swap) >= PDC_MAX)
		return 0;
	return n - leaf - 1;
}

static void fetch(const struct lg_pd_memo *m, const struct asked *a)
{
	__builtin_prefetch(&m->bucket[a->place & m->mask]);
}

static void answer_whole(struct lg_pd_memo *m, struct asked *a)
{
	XXH128_hash_t h;
	bool known;

	a->ret->whole = number_of(m, a->tag, a->place, &known);
	a->ret->fresh = !known;
	a->callers = known ? 0 : callers_of(a->chain, a->n, a->swap);
	if (!a->callers)
		return;
	h = XXH3_128bits(a->chain + 8 * (a->n - a->callers), 8 * a->callers);
	a->tag = h.low64 ^ lg_mix64(~a->version); /* called from, the same addresses are other frames */
	a->place = (uint32_t)h.high64;
	fetch(m, a);
}

static void answer_callers(struct lg_pd_memo *m, struct asked *a)
{
	bool known;

	if (a->callers)
		a->ret->callers = number_of(m, a->tag, a->place, &known);
}

static void answer(struct lg_pd_memo *m, size_t whole_ahead, size_t ahead)
{
	while (m->end - m->whole > whole_ahead)
		answer_whole(m, &m->asked[m->whole++ % ASKED]);
	while (m->end - m->done > ahead)
		answer_callers(m, &m->asked[m->done++ % ASKED]);
}

/* Beside the addresses it says in which kind of code they begin, which a chain without a mark in front does
 * not say itself. */
void lg_pd_memo_look(struct lg_pd_look *look, const uint8_t *chain, size_t n, bool swap)
{
	uint64_t first = pd_u64(chain, swap);
	XXH128_hash_t h = XXH3_128bits(chain, 8 * n);

	look->tag = h.low64;
	look->place = (uint32_t)h.high64;
	look->n = (uint16_t)n;
	look->begins = first == PDC_USER ? 8 : first == PDC_KERNEL ? 9 : look->misc & PDM_CPUMODE;
}

void lg_pd_memo_ask(struct lg_pd_memo *m, const struct lg_pd_look *look, const uint8_t *chain, bool swap,
		    struct lg_pd_seen *ret)
{
	/* What a stack depends on, too. */
	uint64_t version = (uint64_t)m->kernel << 40 ^ (uint64_t)version_of(m, look->pid) << 8;
	uint64_t tag = look->tag ^ lg_mix64(version ^ (look->misc & PDM_CPUMODE));
	struct asked *a;

	answer(m, AHEAD, ASKED - 1);
	a = &m->asked[m->end++ % ASKED];
	*a = (struct asked){ .chain = chain, .n = look->n, .swap = swap, .tag = tag, .place = look->place,
			     .version = version ^ look->begins, .ret = ret };
	*ret = (struct lg_pd_seen){ 0 };
	fetch(m, a);
}

void lg_pd_memo_settle(struct lg_pd_memo *m)
{
	answer(m, 0, 0);
}
