/* SPDX-License-Identifier: Apache-2.0 */
#include "import/perfdata/perf_sample.h"

static void skip_read(struct pd_cursor *c, const struct lg_pd_attr *a)
{
	uint64_t f = a->read_format, n = 1;
	uint64_t times = (f & PDR_ENABLED ? 1u : 0u) + (f & PDR_RUNNING ? 1u : 0u);
	uint64_t per = 1 + (f & PDR_ID ? 1u : 0u) + (f & PDR_LOST ? 1u : 0u);

	if (f & PDR_GROUP)
		n = pd_take_u64(c);
	if (n > pd_left(c) / 8)
		c->bad = true;
	else
		(void)pd_take(c, 8 * (times + n * per));
}

static void take_chain(struct pd_cursor *c, struct lg_pd_sample *s)
{
	uint64_t n = pd_take_u64(c);
	const uint8_t *p;

	/* A chain that is longer than its record is cut there. */
	if (n > pd_left(c) / 8) {
		n = pd_left(c) / 8;
		c->bad = true;
		p = c->p;
	} else {
		p = pd_take(c, 8 * n);
	}
	s->chain = p;
	s->n_chain = p ? (size_t)n : 0;
}

/* Branches tell nothing that is asked here but where they are the calls that have not returned. */
static void take_branches(struct pd_cursor *c, const struct lg_pd_attr *a, struct lg_pd_sample *s)
{
	uint64_t n = pd_take_u64(c);
	const uint8_t *entries;

	if (n > pd_left(c) / 24) {
		c->bad = true;
		return;
	}
	if (a->branch_type & PDB_HW_INDEX)
		(void)pd_take_u64(c);
	entries = pd_take(c, 24 * n);
	if (entries && a->branch_type & PDB_CALL_STACK) {
		s->calls = entries;
		s->n_calls = (size_t)n;
	}
	if (a->branch_type & PDB_COUNTERS)
		(void)pd_take(c, 8 * n);
}

static void take_user_regs(struct pd_cursor *c, const struct lg_pd_attr *a, struct lg_pd_sample *s)
{
	s->regs_abi = pd_take_u64(c);
	if (s->regs_abi)
		s->regs = pd_take(c, 8ull * a->n_regs_user);
	s->regs_mask = a->regs_user;
	s->n_regs = s->regs ? a->n_regs_user : 0;
}

static void take_user_stack(struct pd_cursor *c, struct lg_pd_sample *s)
{
	uint64_t n = pd_take_u64(c), copied;

	if (!n)
		return;
	s->stack = pd_take(c, n);
	copied = pd_take_u64(c);
	s->n_stack = s->stack ? (size_t)(copied < n ? copied : n) : 0;
}

/* Fields of varying size, in the order of perf_output_sample() in kernel/events/core.c. */
static void read_rest(struct lg_pd_sample *s, const struct lg_pd_attr *a, struct pd_cursor *c)
{
	uint64_t t = a->sample_type;

	if (t & PDS_READ)
		skip_read(c, a);
	if (t & PDS_CALLCHAIN)
		take_chain(c, s);
	if (t & PDS_RAW) {
		uint32_t n = pd_take_u32(c);

		s->raw = pd_take(c, n);
		s->n_raw = s->raw ? n : 0;
	}
	if (!(t & ~(uint64_t)(PDS_RAW | (PDS_RAW - 1)) & ~(uint64_t)PDS_IDENTIFIER))
		return;
	if (t & PDS_BRANCH_STACK)
		take_branches(c, a, s);
	if (t & PDS_REGS_USER)
		take_user_regs(c, a, s);
	if (t & PDS_STACK_USER)
		take_user_stack(c, s);
	if (t & (PDS_WEIGHT | PDS_WEIGHT_STRUCT))
		(void)pd_take_u64(c);
	if (t & PDS_DATA_SRC)
		(void)pd_take_u64(c);
	if (t & PDS_TRANSACTION)
		(void)pd_take_u64(c);
	if (t & PDS_REGS_INTR && pd_take_u64(c))
		(void)pd_take(c, 8ull * a->n_regs_intr);
	if (t & PDS_PHYS_ADDR)
		(void)pd_take_u64(c);
	if (t & PDS_CGROUP)
		(void)pd_take_u64(c);
	if (t & PDS_DATA_PAGE_SIZE)
		(void)pd_take_u64(c);
	if (t & PDS_CODE_PAGE_SIZE)
		(void)pd_take_u64(c);
	if (t & PDS_AUX)
		(void)pd_take(c, pd_take_u64(c));
}

static void nothing_known(struct lg_pd_sample *s, const struct lg_pd_attr *a)
{
	*s = (struct lg_pd_sample){ .time = LG_PD_NO_TIME, .pid = -1, .tid = -1, .cpu = -1,
				    .period = lg_pd_usual_period(a) };
}

static void read_fixed(struct lg_pd_sample *s, const struct lg_pd_attr *a, const uint8_t *rec, bool swap)
{
	const struct lg_pd_layout *l = &a->at;

	nothing_known(s, a);
	lg_pd_sample_who(a, rec, swap, &s->pid, &s->tid, &s->cpu);
	if (l->ip >= 0)
		s->ip = pd_u64(rec + l->ip, swap);
	if (l->time >= 0)
		s->time = pd_u64(rec + l->time, swap);
	if (l->addr >= 0)
		s->addr = pd_u64(rec + l->addr, swap);
	if (l->identifier >= 0 || l->id >= 0)
		s->id = pd_u64(rec + (l->identifier >= 0 ? l->identifier : l->id), swap);
	if (l->stream_id >= 0)
		s->stream_id = pd_u64(rec + l->stream_id, swap);
	s->period = lg_pd_sample_period(a, rec, swap);
}

size_t lg_pd_sample_read(struct lg_pd_sample *s, const struct lg_pd_attr *a, const uint8_t *rec,
			 uint16_t size, bool swap)
{
	const struct lg_pd_layout *l = &a->at;
	struct pd_cursor c;

	if (__builtin_expect(size < l->fixed, 0)) {
		nothing_known(s, a);
		return size;
	}
	read_fixed(s, a, rec, swap);
	c = (struct pd_cursor){ .p = rec + l->fixed, .end = rec + size, .swap = swap };
	read_rest(s, a, &c);
	return c.bad ? (size_t)(c.p - rec) : 0;
}

void lg_pd_trailer_read(struct lg_pd_sample *s, const struct lg_pd_attr *a, const uint8_t *rec,
			uint16_t size, bool swap)
{
	*s = (struct lg_pd_sample){ .time = LG_PD_NO_TIME, .pid = -1, .tid = -1, .cpu = -1 };
	if (!a || size < PD_RECORD_HEADER + a->at.trailer)
		return;
	if (a->at.back_tid > 0) {
		s->pid = (int32_t)pd_u32(rec + size - a->at.back_tid, swap);
		s->tid = (int32_t)pd_u32(rec + size - a->at.back_tid + 4, swap);
	}
	if (a->at.back_time > 0)
		s->time = pd_u64(rec + size - a->at.back_time, swap);
	if (a->at.back_cpu > 0)
		s->cpu = (int32_t)pd_u32(rec + size - a->at.back_cpu, swap);
	if (a->at.back_id > 0)
		s->id = pd_u64(rec + size - a->at.back_id, swap);
}
