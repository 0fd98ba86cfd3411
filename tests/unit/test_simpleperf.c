/* SPDX-License-Identifier: Apache-2.0 */
/* What simpleperf writes otherwise than perf does: its tracing data, its own records and features. */
#include <stdio.h>

#include "perf_file.h"
#include "store/merge.h"

static const char switch_format[] =
	"name: sched_switch\nID: 47\nformat:\n"
	"\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
	"\tfield:pid_t prev_pid;\toffset:4;\tsize:4;\tsigned:1;\n"
	"\tfield:long prev_state;\toffset:8;\tsize:8;\tsigned:1;\n"
	"\tfield:pid_t next_pid;\toffset:16;\tsize:4;\tsigned:1;\n\n"
	"print fmt: \"%s\", REC->prev_state & (4-1) ? __print_flags(REC->prev_state & (4-1), \"|\", "
	"{ 1, \"S\"} , { 2, \"D\" }) : \"R\", REC->prev_state & 4 ? \"+\" : \"\"\n";

static const struct event events[] = {
	{ .type = PD_TYPE_TRACEPOINT, .config = 47, .period = 1,
	  .sample_type = PDS_IDENTIFIER | PDS_IP | PDS_TID | PDS_TIME | PDS_CPU | PDS_RAW,
	  .flags = PDF_SAMPLE_ID_ALL, .ids = { 1, 2 } },
	{ .type = PD_TYPE_TRACEPOINT, .config = 63, .period = 1,
	  .sample_type = PDS_IDENTIFIER | PDS_IP | PDS_TID | PDS_TIME | PDS_CPU | PDS_RAW,
	  .flags = PDF_SAMPLE_ID_ALL, .ids = { 3, 4 } },
};

/* How the tracing data stands in the file. */
enum how { BEHIND, INSIDE, OWN, LONG, SPLIT };

/* One format and, so that it fills room bytes, printk formats. */
static size_t put_tracing(struct file *f, size_t room)
{
	size_t at = f->n, n = sizeof switch_format - 1;

	put_text(f, "\x17\x08\x44tracing0.5", 14);
	put_text(f, "\0\x8", 2);
	put32(f, 4096);
	put_text(f, "header_page", 12);
	put64(f, 0);
	put_text(f, "header_event", 13);
	put64(f, 0);
	put32(f, 0);
	put32(f, 1);
	put_text(f, "sched", 6);
	put32(f, 1);
	put64(f, n);
	put_text(f, switch_format, n);
	put32(f, 0); /* symbols */
	n = f->n - at + 4;
	n = room > n ? room - n : 0;
	put32(f, (uint32_t)n);
	put_text(f, "", n);
	return f->n - at;
}

/* simpleperf's header: the size's high half, then its low one. */
static void begin_own(struct file *f, uint32_t type, size_t size)
{
	put32(f, type);
	put16(f, (uint16_t)(size >> 16));
	put16(f, (uint16_t)size);
}

static void pad(struct file *f, size_t to)
{
	put_text(f, "", (to - f->n % to) % to);
}

static void put_split(struct file *f, const struct file *whole)
{
	for (size_t at = 0, n; at < whole->n; at += n) {
		n = whole->n - at < 400 ? whole->n - at : 400;
		begin_own(f, PD_SIMPLE_SPLIT, 8 + n);
		memcpy(f->p + f->n, whole->p + at, n);
		f->n += n;
	}
	begin_own(f, PD_SIMPLE_SPLIT_END, 8);
}

static void put_tracing_record(struct file *f, enum how how)
{
	static struct file data, whole;
	struct file *to = how == SPLIT ? &whole : f;
	size_t at = f->n, n;

	data.n = whole.n = 0;
	n = put_tracing(&data, how == LONG ? 70000 : 0);
	pad(&data, how == BEHIND ? 8 : 64);
	if (how == BEHIND || how == INSIDE)
		(void)begin(f, PD_HEADER_TRACING_DATA, 0);
	else
		begin_own(to, PD_SIMPLE_TRACING_DATA, 12 + data.n);
	put32(to, (uint32_t)(how == BEHIND ? data.n : n));
	if (how == BEHIND)
		end(f, at);
	memcpy(to->p + to->n, data.p, data.n);
	to->n += data.n;
	if (how == INSIDE)
		end(f, at);
	if (how == SPLIT)
		put_split(f, &whole);
}

static void put_switch(struct file *f, uint64_t id, uint64_t ts, uint32_t prev, uint64_t prev_state,
		       uint32_t next)
{
	size_t at = begin(f, PD_SAMPLE, PDM_KERNEL);

	put64(f, id);
	put64(f, 0xffffffff81000000);
	put32(f, prev);
	put32(f, prev);
	put64(f, ts);
	put64(f, 0); /* CPU 0 */
	put32(f, 20);
	put64(f, (uint64_t)prev << 32); /* common_type, padding, prev_pid */
	put64(f, prev_state);
	put32(f, next);
	end(f, at);
}

static void put_meta_info(struct file *f)
{
	static const char info[] = "timestamp\0001512941771\0event_type_info\0sched:sched_switch,2,47\n"
				   "cpu-cycles,0,0\nsched:sched_stat_runtime,2,63\0trace_offcpu\0false";
	size_t table = f->n, bit = 72 + PDH_SIMPLE_META_INFO / 64 * 8;

	put64(f, table + 16);
	put64(f, sizeof info);
	put_text(f, "", sizeof info);
	memcpy(f->p + table + 16, info, sizeof info);
	f->p[bit] |= 1 << PDH_SIMPLE_META_INFO % 64;
}

static struct lg_trace *recording(enum how how, bool meta_info)
{
	static struct file f;
	struct lg_error err = { 0 };
	struct lg_trace *t;
	size_t data;

	f = (struct file){ 0 };
	file_begin(&f, events, 2, 112);
	data = f.n;
	put_tracing_record(&f, how);
	for (uint32_t i = 0; i < 10; i++) { /* 7 runs for 60 ns, waits for 40 */
		put_switch(&f, 1, 1000 + 100 * i, 8, 1, 7);
		put_switch(&f, 1, 1060 + 100 * i, 7, 1, 8);
	}
	put_switch(&f, 3, 2000, 7, 0, 8);
	file_done(&f, data);
	if (meta_info)
		put_meta_info(&f);
	t = import_bytes(f.p, f.n, &err);
	if (!t)
		fail_msg("%s", err.message);
	return t;
}

static size_t states_of(const struct lg_trace *t, int32_t tid, enum lg_state_kind kind)
{
	size_t n = 0;

	for (size_t i = 0; i < t->state.n; i++)
		n += t->thread.tid[t->state.thr[i]] == tid && t->state.kind[i] == kind;
	return n;
}

static void check(enum how how)
{
	struct lg_trace *t = recording(how, false);

	assert_int_equal(t->sample.n, 21);
	assert_int_equal(diags(t, LG_DIAG_FILE_DAMAGED) + diags(t, LG_DIAG_FILE_TRUNCATED), 0);
	assert_string_equal(lg_string(t, t->sample.event[0]), "sched:sched_switch");
	assert_true(states_of(t, 7, LG_RUNNING) >= 9);
	assert_true(states_of(t, 7, LG_BLOCKED) >= 9);
	lg_trace_free(t);
}

static void finds_tracing_data_wherever_it_is(void **state)
{
	(void)state;
	check(BEHIND);
	check(INSIDE);
	check(OWN);
	check(LONG);
	check(SPLIT);
}

/* Of these the tracing data has no format. */
static void names_events_as_the_file_does(void **state)
{
	struct lg_trace *t = recording(INSIDE, true);

	(void)state;
	assert_string_equal(lg_string(t, t->sample.event[20]), "sched:sched_stat_runtime");
	assert_int_equal(diags(t, LG_DIAG_NOT_UNDERSTOOD), 0);
	lg_trace_free(t);
}

/* -- unwinding -- */

static const struct event unwound = {
	.type = PD_TYPE_SOFTWARE, .period = 1000, .regs = 3,
	.sample_type = PDS_IP | PDS_TID | PDS_TIME | PDS_CPU | PDS_CALLCHAIN | PDS_REGS_USER | PDS_STACK_USER,
	.flags = PDF_SAMPLE_ID_ALL, .ids = { 1, 2 } };

/* With registers and a stack, or with callers in their place. */
static void put_unwound(struct file *f, uint32_t tid, uint64_t ts, bool callers)
{
	size_t at = begin(f, PD_SAMPLE, PDM_USER);

	put64(f, 0x1010);
	put32(f, 7);
	put32(f, tid);
	put64(f, ts);
	put64(f, 0);
	put64(f, callers ? 4 : 0);
	for (uint64_t i = 0; callers && i < 4; i++)
		put64(f, i ? 0x1000 + 16 * i : PDC_USER);
	put64(f, callers ? 0 : 2);
	put_text(f, "", callers ? 0 : 16);
	put64(f, callers ? 0 : 16);
	put_text(f, "", callers ? 0 : 24);
	end(f, at);
}

static void put_chain(struct file *f, uint32_t tid, uint64_t ts, uint64_t kind)
{
	begin_own(f, PD_SIMPLE_CALLCHAIN, 8 + 32 + 48);
	put32(f, 7);
	put32(f, tid);
	put64(f, kind);
	put64(f, ts);
	put64(f, 3);
	for (uint64_t i = 1; i < 4; i++)
		put64(f, 0x1000 + 16 * i);
	put_text(f, "", 24); /* where their stacks were */
}

static void put_result(struct file *f, uint64_t ts, size_t more)
{
	begin_own(f, PD_SIMPLE_UNWINDING, 8 + 48 + more);
	put64(f, ts);
	put_text(f, "", 40 + more);
}

static size_t begin_unwound(struct file *f)
{
	size_t data, at;

	*f = (struct file){ 0 };
	file_begin(f, &unwound, 1, 112);
	data = f->n;
	at = begin(f, PD_MMAP, PDM_USER);
	put32(f, 7);
	put32(f, 7);
	put64(f, 0x1000);
	put64(f, 0x1000);
	put64(f, 0);
	put_text(f, "/system/bin/app", 16);
	put_text(f, "", 24); /* made up: no time */
	end(f, at);
	return data;
}

static size_t depth_of(const struct lg_trace *t, size_t i)
{
	size_t n = 0;

	for (lg_stk s = t->sample.stack[i]; s; s = t->stack.parent[s])
		n++;
	return n;
}

/* simpleperf debug-unwind: a sample is there with its stack and again with its callers. other: the callers
 * are said to be of another thread (1) or time (2), so nothing shows that they are the same. */
static void check_twins(uint32_t other, size_t want)
{
	static struct file f;
	struct lg_error err = { 0 };
	struct lg_trace *t;
	size_t data;

	data = begin_unwound(&f);
	for (uint64_t ts = 1000; ts < 11000; ts += 1000) {
		put_result(&f, ts, 0);
		put_unwound(&f, 8, ts, false);
		put_chain(&f, other == 1 ? 9 : 8, other == 2 ? ts + 1 : ts, 0);
		put_chain(&f, 8, ts, 2);
		put_unwound(&f, 8, ts, true);
	}
	file_done(&f, data);
	t = import_bytes(f.p, f.n, &err);
	assert_non_null(t);
	assert_int_equal(t->sample.n, want);
	for (size_t i = 0; i < want; i++)
		assert_int_equal(depth_of(t, i), want == 10 || i % 2 ? 3 : 1);
	assert_int_equal(*lg_meta_get(t, "record.twins") != 0, want == 10);
	assert_int_equal(diags(t, LG_DIAG_NOT_UNDERSTOOD) + diags(t, LG_DIAG_FILE_DAMAGED), 0);
	lg_trace_free(t);
}

static void counts_an_unwound_sample_once(void **state)
{
	(void)state;
	check_twins(0, 10);
	check_twins(1, 20);
	check_twins(2, 20);
}

/* simpleperf record --keep-failed-unwinding-result: the sample with what was found is the only one. */
static void tells_of_stacks_that_could_not_be_unwound(void **state)
{
	static struct file f;
	struct lg_error err = { 0 };
	struct lg_trace *t;
	size_t data;

	(void)state;
	data = begin_unwound(&f);
	for (uint64_t ts = 1000; ts < 11000; ts += 1000) {
		if (ts % 3000 == 0)
			put_result(&f, ts, ts == 6000 ? 70000 : 40); /* with the stack it is long */
		put_unwound(&f, 8, ts, true);
	}
	file_done(&f, data);
	t = import_bytes(f.p, f.n, &err);
	assert_non_null(t);
	assert_int_equal(t->sample.n, 10);
	assert_int_equal(diags(t, LG_DIAG_STACK_TRUNCATED), 3);
	assert_int_equal(diags(t, LG_DIAG_FILE_DAMAGED) + diags(t, LG_DIAG_FILE_TRUNCATED), 0);
	lg_trace_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finds_tracing_data_wherever_it_is),
		cmocka_unit_test(names_events_as_the_file_does),
		cmocka_unit_test(counts_an_unwound_sample_once),
		cmocka_unit_test(tells_of_stacks_that_could_not_be_unwound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
