/* SPDX-License-Identifier: Apache-2.0 */
/* perf_sample.h - one PERF_RECORD_SAMPLE taken apart, and the trailer of other records. */
#ifndef LG_IMPORT_PERFDATA_PERF_SAMPLE_H
#define LG_IMPORT_PERFDATA_PERF_SAMPLE_H
#include "import/perfdata/perf_attrs.h"

#define LG_PD_NO_TIME UINT64_MAX

struct lg_pd_sample {
	uint64_t time;         /* LG_PD_NO_TIME = not in the event */
	uint64_t ip, addr, id, stream_id, period;
	int32_t pid, tid, cpu; /* -1 = not in the event */
	const uint8_t *chain;  /* n_chain u64 in the file's byte order, innermost first */
	size_t n_chain;
	const uint8_t *raw;
	size_t n_raw;
	const uint8_t *regs, *stack; /* user registers and stack, for unwinding */
	uint64_t regs_abi, regs_mask; /* enum perf_sample_regs_abi; which registers */
	const uint8_t *calls;  /* --call-graph lbr: n_calls of from, to, flags, innermost first */
	size_t n_calls;
	size_t n_regs;
	size_t n_stack;        /* bytes of it that were really copied (dyn_size) */
};

/* 0, or the first byte of the record that does not fit it; then the fields before it are set. */
size_t lg_pd_sample_read(struct lg_pd_sample *s, const struct lg_pd_attr *a, const uint8_t *rec,
			 uint16_t size, bool swap);
/* Time only, for ordering. */
static inline uint64_t lg_pd_sample_time(const struct lg_pd_attr *a, const uint8_t *rec,
					 uint16_t size, bool swap)
{
	int at = a->at.time;

	return at >= 0 && at + 8 <= size ? pd_u64(rec + at, swap) : LG_PD_NO_TIME;
}
/* 0: perf made the record up, about what was there before. */
static inline bool lg_pd_is_timed(uint64_t ts)
{
	return ts != 0 && ts != LG_PD_NO_TIME;
}
/* The chain alone, where it comes right behind the fixed fields; NULL elsewhere. What it finds is what
 * lg_pd_sample_read() finds. */
static inline const uint8_t *lg_pd_sample_chain(const struct lg_pd_attr *a, const uint8_t *rec,
						uint16_t size, bool swap, size_t *ret_n)
{
	size_t at = a->at.fixed;
	uint64_t n;

	if ((a->sample_type & (PDS_READ | PDS_CALLCHAIN)) != PDS_CALLCHAIN || at + 8 > size)
		return NULL;
	n = pd_u64(rec + at, swap);
	*ret_n = n <= (size - at - 8) / 8 ? (size_t)n : (size - at - 8) / 8;
	return rec + at + 8;
}
/* Nothing but fixed fields and a chain, so that the ones above and lg_pd_sample_chain() are all there is
 * to read. */
static inline bool lg_pd_sample_is_plain(const struct lg_pd_attr *a)
{
	const uint64_t fixed = PDS_IP | PDS_TID | PDS_TIME | PDS_ADDR | PDS_ID | PDS_STREAM_ID | PDS_CPU |
			       PDS_PERIOD | PDS_IDENTIFIER;

	return !(a->sample_type & ~(fixed | PDS_CALLCHAIN));
}
/* Where a sample does not say its own. */
static inline uint64_t lg_pd_usual_period(const struct lg_pd_attr *a)
{
	return a->flags & PDF_FREQ ? 1 : a->period;
}
/* Some of the fields of fixed size, alone; the record has a->at.fixed bytes at least. */
static inline uint64_t lg_pd_sample_period(const struct lg_pd_attr *a, const uint8_t *rec, bool swap)
{
	return a->at.period >= 0 ? pd_u64(rec + a->at.period, swap) : lg_pd_usual_period(a);
}
static inline void lg_pd_sample_who(const struct lg_pd_attr *a, const uint8_t *rec, bool swap,
				    int32_t *ret_pid, int32_t *ret_tid, int32_t *ret_cpu)
{
	const struct lg_pd_layout *l = &a->at;

	*ret_pid = l->tid >= 0 ? (int32_t)pd_u32(rec + l->tid, swap) : -1;
	*ret_tid = l->tid >= 0 ? (int32_t)pd_u32(rec + l->tid + 4, swap) : -1;
	*ret_cpu = l->cpu >= 0 ? (int32_t)pd_u32(rec + l->cpu, swap) : -1;
}
/* Who and when of a record that is not a sample; what it does not say is -1 or LG_PD_NO_TIME. */
void lg_pd_trailer_read(struct lg_pd_sample *s, const struct lg_pd_attr *a, const uint8_t *rec,
			uint16_t size, bool swap);

#endif /* LG_IMPORT_PERFDATA_PERF_SAMPLE_H */
