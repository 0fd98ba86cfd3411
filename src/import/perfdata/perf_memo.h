/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_memo.h - call chains seen before: a hash of a chain's bytes to its stack. So are the chains
 * without their innermost address: of two new ones one differs from what is known there only.
 *
 * The key is 96 bits of a 128-bit hash and is not compared with the chain: in a file of 2^32 different
 * chains the chance that any two meet is one in 10^9. Memory is bounded: beyond MEMO_MAX entries
 * new ones replace old ones.
 */
#ifndef LG_IMPORT_PERFDATA_PERF_MEMO_H
#define LG_IMPORT_PERFDATA_PERF_MEMO_H
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"
#include "store/trace.h"

struct lg_pd_chain_memo;

struct lg_pd_chain_key {
	uint64_t tag, callers_tag;
	uint32_t place, callers_place;
	uint32_t n; /* addresses; 0 = no key */
	uint32_t n_callers; /* of them; 0 = no key of these */
	enum lg_pd_chain_first { LG_PD_ADDRESS, LG_PD_MARK_USER, LG_PD_MARK_KERNEL, LG_PD_MARK_OTHER } first;
};

/* NULL when memory is exhausted. */
struct lg_pd_chain_memo *lg_pd_memo_new(void);
void lg_pd_memo_free(struct lg_pd_chain_memo *m);
/* Of n addresses; the last `callers` of them are the callers, 0 = it has none. */
struct lg_pd_chain_key lg_pd_memo_key(const uint8_t *chain, size_t n, size_t callers);
/* What beside the addresses decides of the stack: the code's versions, and in which kind of code the
 * addresses begin, the chain's and its callers'. */
static inline void lg_pd_memo_version(struct lg_pd_chain_key *k, uint64_t version, uint64_t callers_version)
{
	k->tag ^= lg_mix64(version);
	k->callers_tag ^= lg_mix64(~callers_version); /* called from, the same addresses are other frames */
}
/* Fetch what get() will look at. */
void lg_pd_memo_ahead(const struct lg_pd_chain_memo *m, const struct lg_pd_chain_key *k);
/* 0 = not known. */
lg_stk lg_pd_memo_get(const struct lg_pd_chain_memo *m, uint64_t tag, uint32_t place);
/* Forgetting is always allowed: nothing to report when there is no memory for more. */
void lg_pd_memo_put(struct lg_pd_chain_memo *m, uint64_t tag, uint32_t place, lg_stk stk);

#endif /* LG_IMPORT_PERFDATA_PERF_MEMO_H */
