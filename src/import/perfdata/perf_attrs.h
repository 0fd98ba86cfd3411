/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_attrs.h - the events of a recording: what each of its samples contains and is called.
 */
#ifndef LG_IMPORT_PERFDATA_PERF_ATTRS_H
#define LG_IMPORT_PERFDATA_PERF_ATTRS_H
#include "base/map.h"
#include "import/perfdata/perf_abi.h"
#include "import/perfdata/perf_bytes.h"
#include "store/builder.h"

/* Position of the fixed fields of a sample, -1 = not there. */
struct lg_pd_layout {
	int16_t identifier, ip, tid, time, addr, id, stream_id, cpu, period;
	uint16_t fixed;                             /* bytes before the first field of varying size */
	int16_t back_tid, back_time, back_id, back_cpu; /* other records: distance from their end */
	uint16_t trailer;                           /* bytes of it; 0 = sample_id_all is off */
};

struct lg_pd_attr {
	uint64_t config, period, sample_type, read_format, flags, branch_type;
	uint32_t type;
	int32_t clockid;       /* -1 = perf's own clock */
	uint64_t regs_user;    /* which registers a user stack comes with */
	uint8_t n_regs_user, n_regs_intr;
	struct lg_pd_layout at;
	lg_str name;
	uint32_t event;        /* tracing: index + 1 of the tracepoint; 0 = none */
};

struct lg_pd_attrs {
	struct lg_pd_attr *attr;
	size_t n, cap;
	size_t named;          /* so many have a name */
	struct lg_map by_id;   /* id -> index + 1 */
	struct { uint64_t id; uint32_t attr; } recent[8]; /* by low bits: one id a CPU, they take turns */
	bool swap;
	uint64_t unknown_ids;  /* samples of no known event */
};

/* perf_event_attr of n bytes. *ret_i its index. LG_E_FORMAT when too short to be one. */
int lg_pd_attrs_add(struct lg_pd_attrs *a, const uint8_t *p, size_t n, uint32_t *ret_i,
		    struct lg_error *err) LG_MUST_CHECK;
int lg_pd_attrs_id(struct lg_pd_attrs *a, uint64_t id, uint32_t attr_i) LG_MUST_CHECK;
void lg_pd_attrs_done(struct lg_pd_attrs *a);
/* Names for events that no feature named and that came since the last call; those of tracepoints come from
 * tracing data. */
void lg_pd_attrs_name(struct lg_pd_attrs *a, struct lg_builder *b);

/* Slow path of lg_pd_attr_of(): more than one event. */
struct lg_pd_attr *lg_pd_attr_by_id(struct lg_pd_attrs *a, const uint8_t *rec, uint16_t size,
				    bool sample);

/* The event that wrote this record; NULL when there is none. */
static inline struct lg_pd_attr *lg_pd_attr_of(struct lg_pd_attrs *a, const uint8_t *rec,
					       uint16_t size, bool sample)
{
	return a->n == 1 ? a->attr : lg_pd_attr_by_id(a, rec, size, sample);
}

#endif /* LG_IMPORT_PERFDATA_PERF_ATTRS_H */
