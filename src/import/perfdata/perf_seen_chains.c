/* SPDX-License-Identifier: Apache-2.0 */
#include "import/perfdata/perf_seen_chains.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/alloc.h"
#include "base/map.h"
#include "import/perfdata/perf_abi.h"
#include "import/perfdata/perf_buckets.h"
#include "import/perfdata/perf_bytes.h"

enum { RECENT = 64, AHEAD = 8 };

/* A question, until it has its answer AHEAD calls later. */
struct asked {
	uint64_t tag;
	uint32_t place;
	struct lg_pd_seen *ret;
};

struct lg_pd_seen_chains {
	struct lg_pd_buckets numbers; /* 1 to numbers.n; a full bucket's newcomer takes that of another */
	/* Of what lies where: one counter for all processes, so that no two have the same. */
	struct lg_map version_of; /* pid -> version */
	struct { int32_t pid; uint32_t version; } recent[RECENT]; /* in front of it; version 0 = free */
	uint32_t versions, kernel;
	struct asked asked[AHEAD]; /* [i % AHEAD]: without an answer in [done, end) */
	size_t done, end;
};

struct lg_pd_seen_chains *lg_pd_seen_chains_new(void)
{
	struct lg_pd_seen_chains *m = lg_calloc(1, sizeof *m);

	if (!m)
		return NULL;
	if (lg_pd_buckets_init(&m->numbers)) {
		lg_free(m);
		return NULL;
	}
	return m;
}

void lg_pd_seen_chains_free(struct lg_pd_seen_chains *m)
{
	if (!m)
		return;
	lg_map_done(&m->version_of);
	lg_pd_buckets_done(&m->numbers);
	lg_free(m);
}

static uint32_t version_of(struct lg_pd_seen_chains *m, int32_t pid)
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

void lg_pd_seen_chains_changed(struct lg_pd_seen_chains *m, int32_t pid)
{
	size_t k = (uint32_t)pid % RECENT;

	if (m->recent[k].pid == pid)
		m->recent[k].version = 0;
	lg_map_remove(&m->version_of, (uint32_t)pid);
}

void lg_pd_seen_chains_kernel_changed(struct lg_pd_seen_chains *m)
{
	m->kernel++;
}

static void answer(struct lg_pd_seen_chains *m)
{
	const struct asked *a = &m->asked[m->done++ % AHEAD];
	bool known;
	uint32_t *number = lg_pd_buckets_put(&m->numbers, a->tag, a->place, &known);

	if (!*number)
		*number = (uint32_t)m->numbers.n;
	a->ret->whole = (struct lg_pd_number){ *number, (uint32_t)(a->tag >> 32) };
	a->ret->fresh = !known;
}

/* Beside the addresses it says in which kind of code they begin, which a chain without a mark in front does
 * not say itself. */
void lg_pd_seen_chains_look(struct lg_pd_look *look, const uint8_t *chain, size_t n, bool swap)
{
	uint64_t first = pd_u64(chain, swap);
	XXH128_hash_t h = XXH3_128bits(chain, 8 * n);

	look->tag = h.low64;
	look->place = (uint32_t)h.high64;
	look->n = (uint16_t)n;
	look->begins = first == PDC_USER ? 8 : first == PDC_KERNEL ? 9 : look->misc & PDM_CPUMODE;
}

void lg_pd_seen_chains_ask(struct lg_pd_seen_chains *m, const struct lg_pd_look *look, struct lg_pd_seen *ret)
{
	/* What a stack depends on, too. */
	uint64_t version = (uint64_t)m->kernel << 40 ^ (uint64_t)version_of(m, look->pid) << 8;
	uint64_t tag = look->tag ^ lg_mix64(version ^ (look->misc & PDM_CPUMODE));

	if (m->end - m->done == AHEAD)
		answer(m);
	m->asked[m->end++ % AHEAD] = (struct asked){ tag, look->place, ret };
	lg_pd_buckets_fetch(&m->numbers, look->place);
	ret->version = version ^ look->begins;
}

void lg_pd_seen_chains_settle(struct lg_pd_seen_chains *m)
{
	while (m->done < m->end)
		answer(m);
}
