/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_formats.h - where the fields of each tracepoint's payload are.
 *
 * Reads the TRACING_DATA of perf.data, which holds the kernel's events/SYSTEM/NAME/format files
 * (Documentation/trace/events.rst). Own code and not libtraceevent: the import needs offsets
 * only, libtraceevent prints to stderr, must be present at run time, and parses the C of the
 * print format, which an input file must not be trusted with.
 */
#ifndef LG_IMPORT_PERFDATA_PERF_FORMATS_H
#define LG_IMPORT_PERFDATA_PERF_FORMATS_H
#include "store/tracepoint_format.h"

struct lg_pd_format {
	char name[96]; /* "sched:sched_switch" */
	struct lg_tp_format tp;
	/* sched_switch: bits of prev_state by letter, and the bit that means "preempted" */
	struct {
		uint32_t bit;
		char letter;
	} state[16];
	uint8_t n_states;
	uint32_t preempted;
};

struct lg_pd_formats {
	struct lg_pd_format **format;
	size_t n, cap;
	char *kallsyms; /* the recording machine's, NUL-terminated; NULL = not in the file */
	size_t n_kallsyms;
	uint8_t long_size;
	uint32_t page_size;
};

/*
 * LG_E_FORMAT: damaged from some point on; what was read before stays.
 */
int lg_pd_formats_read(struct lg_pd_formats *f, const uint8_t *p, size_t n, uint64_t *ret_used,
		       struct lg_error *err) LG_MUST_CHECK;
void lg_pd_formats_done(struct lg_pd_formats *f);
/* NULL when there is none. */
const struct lg_pd_format *lg_pd_formats_by_id(const struct lg_pd_formats *f, uint64_t id);
/* One format file. LG_E_FORMAT when its fields are not understood. For tests, too. */
int lg_pd_format_parse(struct lg_pd_format *f, const char *system, const char *text, size_t n);
/* prev_state of this kernel in the encoding that Linux has since 4.14 (TASK_REPORT bits). */
uint64_t lg_pd_format_state(const struct lg_pd_format *f, uint64_t prev_state);

#endif /* LG_IMPORT_PERFDATA_PERF_FORMATS_H */
