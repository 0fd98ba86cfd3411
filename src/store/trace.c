/* SPDX-License-Identifier: Apache-2.0 */
#include "store/trace.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

#define C(ctype, cname, cunit, cdoc)                                                               \
	{ .name = #cname, .unit = cunit, .doc = cdoc, .type = LG_COL_##ctype,                      \
	  .size = sizeof(LG_CTYPE_##ctype), .row_offset = offsetof(ROW, cname) },
#define ROW struct lg_process_row
static const struct lg_col_desc cols_process[] = { LG_COLS_process(C) };
#undef ROW
#define ROW struct lg_thread_row
static const struct lg_col_desc cols_thread[] = { LG_COLS_thread(C) };
#undef ROW
#define ROW struct lg_track_row
static const struct lg_col_desc cols_track[] = { LG_COLS_track(C) };
#undef ROW
#define ROW struct lg_frame_row
static const struct lg_col_desc cols_frame[] = { LG_COLS_frame(C) };
#undef ROW
#define ROW struct lg_stack_row
static const struct lg_col_desc cols_stack[] = { LG_COLS_stack(C) };
#undef ROW
#define ROW struct lg_state_row
static const struct lg_col_desc cols_state[] = { LG_COLS_state(C) };
#undef ROW
#define ROW struct lg_sample_row
static const struct lg_col_desc cols_sample[] = { LG_COLS_sample(C) };
#undef ROW
#define ROW struct lg_span_row
static const struct lg_col_desc cols_span[] = { LG_COLS_span(C) };
#undef ROW
#define ROW struct lg_counter_row
static const struct lg_col_desc cols_counter[] = { LG_COLS_counter(C) };
#undef ROW
#define ROW struct lg_flow_row
static const struct lg_col_desc cols_flow[] = { LG_COLS_flow(C) };
#undef ROW
#define ROW struct lg_mark_row
static const struct lg_col_desc cols_mark[] = { LG_COLS_mark(C) };
#undef ROW
#define ROW struct lg_clock_row
static const struct lg_col_desc cols_clock[] = { LG_COLS_clock(C) };
#undef ROW
#define ROW struct lg_meta_row
static const struct lg_col_desc cols_meta[] = { LG_COLS_meta(C) };
#undef ROW
#define ROW struct lg_diag_row
static const struct lg_col_desc cols_diag[] = { LG_COLS_diag(C) };
#undef ROW
#undef C

enum { DICT = 1, TIME = 0 };
static const struct lg_table_desc tables[] = {
#define T(tname, tid, tkind)                                                                       \
	{ .name = #tname, .id = tid, .is_dict = tkind,                                             \
	  .n_cols = sizeof cols_##tname / sizeof *cols_##tname,                                    \
	  .row_bytes = sizeof(struct lg_##tname##_row),                                            \
	  .trace_offset = offsetof(struct lg_trace, tname), .cols = cols_##tname },
	LG_TABLES(T)
#undef T
};

const struct lg_table_desc *lg_schema(size_t *ret_n)
{
	*ret_n = sizeof tables / sizeof *tables;
	return tables;
}

const struct lg_table_desc *lg_schema_table(uint32_t id)
{
	for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
		if (tables[i].id == id)
			return &tables[i];
	return NULL;
}

const char *lg_diag_sentence(uint32_t id)
{
	switch (id) {
#define D(name, id, severity, sentence)                                                            \
	case id:                                                                                   \
		return sentence;
		LG_DIAGS(D)
#undef D
	default:
		return "something this version does not know about";
	}
}

enum lg_diag_severity lg_diag_severity(uint32_t id)
{
	switch (id) {
#define D(name, id, severity, sentence)                                                            \
	case id:                                                                                   \
		return LG_DIAG_##severity;
		LG_DIAGS(D)
#undef D
	default:
		return LG_DIAG_INFO;
	}
}

const char *lg_count_text(uint64_t count, char *buf, size_t size)
{
	if (count >= LG_COUNT_MAX)
		snprintf(buf, size, "an implausible number");
	else
		snprintf(buf, size, "%llu", (unsigned long long)count);
	return buf;
}

const char *lg_stage_name(uint32_t stage)
{
	static const char *const names[LG_STAGE_MAX] = {
		[LG_STAGE_NONE] = "other",	     [LG_STAGE_BATCH_WAIT] = "batch_wait",
		[LG_STAGE_H2D] = "h2d",		     [LG_STAGE_FORWARD] = "forward",
		[LG_STAGE_BACKWARD] = "backward",    [LG_STAGE_GRAD_SYNC] = "grad_sync",
		[LG_STAGE_OPTIMIZER] = "optimizer",  [LG_STAGE_SIDE] = "side",
		[LG_STAGE_OTHER] = "other",
	};

	return stage < LG_STAGE_MAX ? names[stage] : "other";
}

bool lg_is_python_file(const char *path)
{
	const char *file = lg_file_name(path);

	return !strncmp(file, "python", 6) || !strncmp(file, "libpython", 9);
}

const char *lg_frame_text(const struct lg_trace *t, lg_frm f, char *buf, size_t size)
{
	lg_str name = t->frame.name[f], dso = t->frame.dso[f];

	if (name)
		snprintf(buf, size, "%s", lg_string(t, name));
	else if (dso)
		snprintf(buf, size, "%s+0x%llx", lg_string(t, dso),
			 (unsigned long long)t->frame.pc[f]);
	else
		snprintf(buf, size, "0x%llx", (unsigned long long)t->frame.pc[f]);
	return buf;
}

const char *lg_pid_text(int32_t pid, char buf[LG_PID_TEXT])
{
	if (pid < 0)
		snprintf(buf, LG_PID_TEXT, "pid unknown");
	else
		snprintf(buf, LG_PID_TEXT, "pid %d", pid);
	return buf;
}

void lg_trace_free(struct lg_trace *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
		struct lg_tab *tab = lg_trace_table(t, &tables[i]);

		for (size_t c = 0; c < tables[i].n_cols; c++)
			lg_free(tab->col[c]);
	}
	lg_free(t->str_bytes);
	lg_free(t->str_off);
	lg_free(t);
}
