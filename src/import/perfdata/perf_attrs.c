/* SPDX-License-Identifier: Apache-2.0 */
#include "import/perfdata/perf_attrs.h"

#include <stdio.h>
#include <time.h>

#include "base/alloc.h"

enum { ATTRS_MAX = 65536 }; /* a system-wide session with every tracepoint has about 2000 */

/* Order of fields: enum perf_event_sample_format in include/uapi/linux/perf_event.h. */
static void lay_out(struct lg_pd_attr *a)
{
	static const struct {
		uint32_t bit;
		size_t member;
	} fields[] = {
		{ PDS_IDENTIFIER, offsetof(struct lg_pd_layout, identifier) },
		{ PDS_IP, offsetof(struct lg_pd_layout, ip) },
		{ PDS_TID, offsetof(struct lg_pd_layout, tid) },
		{ PDS_TIME, offsetof(struct lg_pd_layout, time) },
		{ PDS_ADDR, offsetof(struct lg_pd_layout, addr) },
		{ PDS_ID, offsetof(struct lg_pd_layout, id) },
		{ PDS_STREAM_ID, offsetof(struct lg_pd_layout, stream_id) },
		{ PDS_CPU, offsetof(struct lg_pd_layout, cpu) },
		{ PDS_PERIOD, offsetof(struct lg_pd_layout, period) },
	};
	uint64_t t = a->sample_type;
	struct lg_pd_layout *l = &a->at;
	int16_t at = PD_RECORD_HEADER, back = 0;

	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
		int16_t *to = (int16_t *)(void *)((char *)l + fields[i].member);

		*to = t & fields[i].bit ? at : -1;
		if (t & fields[i].bit)
			at = (int16_t)(at + 8);
	}
	l->fixed = (uint16_t)at;
	l->back_tid = l->back_time = l->back_id = l->back_cpu = -1;
	if (!(a->flags & PDF_SAMPLE_ID_ALL))
		return;
	/* The trailer: TID, TIME, ID, STREAM_ID, CPU, IDENTIFIER; counted from the end here. */
	if (t & PDS_IDENTIFIER)
		l->back_id = back = (int16_t)(back + 8);
	if (t & PDS_CPU)
		l->back_cpu = back = (int16_t)(back + 8);
	if (t & PDS_STREAM_ID)
		back = (int16_t)(back + 8);
	if (t & PDS_ID) {
		back = (int16_t)(back + 8);
		if (l->back_id < 0)
			l->back_id = back;
	}
	if (t & PDS_TIME)
		l->back_time = back = (int16_t)(back + 8);
	if (t & PDS_TID)
		l->back_tid = back = (int16_t)(back + 8);
	l->trailer = (uint16_t)back;
}

/* Bit fields fill a byte from the other end on a machine of the other byte order. */
static uint64_t flag_word(const uint8_t *p, bool swap)
{
	uint64_t v = 0;

	for (int i = 0; i < 8; i++) {
		uint8_t byte = p[i];

		if (swap)
			for (int bit = byte = 0; bit < 8; bit++)
				byte = (uint8_t)(byte | (p[i] >> bit & 1) << (7 - bit));
		v |= (uint64_t)byte << (8 * i);
	}
	return v;
}

int lg_pd_attrs_add(struct lg_pd_attrs *a, const uint8_t *p, size_t n, uint32_t *ret_i,
		    struct lg_error *err)
{
	uint8_t full[PDA_SIZE_MAX] = { 0 }; /* what an older perf did not know is 0 */
	struct lg_pd_attr *at;
	bool swap = a->swap;

	if (n < PDA_FLAGS + 8)
		return lg_fail(err, LG_E_FORMAT, LG_NO_OFFSET,
			       "an event description of %zu bytes is too short", n);
	if (a->n >= ATTRS_MAX)
		return lg_fail(err, LG_E_LIMIT, LG_NO_OFFSET, "more than %d events", ATTRS_MAX);
	if (lg_grow(&a->attr, &a->cap, a->n + 1, sizeof *a->attr))
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	memcpy(full, p, n < sizeof full ? n : sizeof full);
	at = &a->attr[a->n];
	*at = (struct lg_pd_attr){
		.type = pd_u32(full + PDA_TYPE, swap),
		.config = pd_u64(full + PDA_CONFIG, swap),
		.period = pd_u64(full + PDA_PERIOD, swap),
		.sample_type = pd_u64(full + PDA_SAMPLE_TYPE, swap),
		.read_format = pd_u64(full + PDA_READ_FORMAT, swap),
		.flags = flag_word(full + PDA_FLAGS, swap),
		.branch_type = pd_u64(full + PDA_BRANCH_TYPE, swap),
		.clockid = -1,
	};
	at->regs_user = pd_u64(full + PDA_REGS_USER, swap);
	at->n_regs_user = (uint8_t)__builtin_popcountll(at->regs_user);
	at->n_regs_intr = (uint8_t)__builtin_popcountll(pd_u64(full + PDA_REGS_INTR, swap));
	if (at->flags & PDF_USE_CLOCKID)
		at->clockid = (int32_t)pd_u32(full + PDA_CLOCKID, swap);
	lay_out(at);
	*ret_i = (uint32_t)a->n++;
	return 0;
}

int lg_pd_attrs_id(struct lg_pd_attrs *a, uint64_t id, uint32_t attr_i)
{
	a->recent[id % 8].id = 0;
	return lg_map_set(&a->by_id, id, attr_i + 1);
}

void lg_pd_attrs_done(struct lg_pd_attrs *a)
{
	lg_free(a->attr);
	lg_map_done(&a->by_id);
	*a = (struct lg_pd_attrs){ 0 };
}

struct lg_pd_attr *lg_pd_attr_by_id(struct lg_pd_attrs *a, const uint8_t *rec, uint16_t size,
				    bool sample)
{
	/* perf demands one place for the id in all events of a file (evlist__valid_sample_type). */
	const struct lg_pd_layout *l;
	int at;
	uint64_t id;
	uint32_t i;

	if (!a->n)
		return NULL;
	l = &a->attr[0].at;
	if (sample)
		at = l->identifier >= 0 ? l->identifier : l->id;
	else
		at = l->back_id > 0 ? size - l->back_id : -1;
	if (at < PD_RECORD_HEADER || at + 8 > size)
		return sample ? a->attr : &a->attr[0];
	id = pd_u64(rec + at, a->swap);
	if (id == a->recent[id % 8].id && id)
		return &a->attr[a->recent[id % 8].attr];
	i = lg_map_get(&a->by_id, id);
	if (!i) {
		/* 0: what perf itself made up while it attached to running processes. */
		if (sample && id)
			a->unknown_ids++;
		return sample && id && a->by_id.n ? NULL : a->attr;
	}
	a->recent[id % 8].id = id;
	a->recent[id % 8].attr = i - 1;
	return &a->attr[i - 1];
}

static const char *const hardware[] = { "cycles", "instructions", "cache-references",
					"cache-misses", "branches", "branch-misses", "bus-cycles",
					"stalled-cycles-frontend", "stalled-cycles-backend",
					"ref-cycles" };
static const char *const software[] = { "cpu-clock", "task-clock", "page-faults",
					"context-switches", "cpu-migrations", "minor-faults",
					"major-faults", "alignment-faults", "emulation-faults",
					"dummy", "bpf-output", "cgroup-switches" };

static const char *name_of(const struct lg_pd_attr *a, char *buf, size_t size)
{
	static const char *const cache[] = { "L1-dcache", "L1-icache", "LLC", "dTLB", "iTLB",
					     "branch", "node" };
	static const char *const op[] = { "loads", "stores", "prefetches" };
	/* The high half of a hardware event's config names the kind of core (hybrid CPUs). */
	uint32_t low = (uint32_t)a->config;

	if (a->type == PD_TYPE_HARDWARE && low < sizeof hardware / sizeof *hardware)
		return hardware[low];
	if (a->type == PD_TYPE_SOFTWARE && a->config < sizeof software / sizeof *software)
		return software[a->config];
	if (a->type == PD_TYPE_CACHE && (low & 0xff) < 7 && (low >> 8 & 0xff) < 3)
		snprintf(buf, size, "%s-%s%s", cache[low & 0xff], op[low >> 8 & 0xff],
			 low >> 16 & 1 ? "-misses" : "");
	else if (a->type == PD_TYPE_RAW)
		snprintf(buf, size, "r%llx", (unsigned long long)a->config);
	else
		snprintf(buf, size, "%s:%llu", a->type == PD_TYPE_TRACEPOINT ? "tracepoint" : "event",
			 (unsigned long long)a->config);
	return buf;
}

void lg_pd_attrs_name(struct lg_pd_attrs *a, struct lg_builder *b)
{
	char buf[64];

	for (; a->named < a->n; a->named++)
		if (!a->attr[a->named].name)
			a->attr[a->named].name = lg_intern(b, name_of(&a->attr[a->named], buf, sizeof buf));
}
