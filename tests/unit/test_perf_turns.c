/* SPDX-License-Identifier: Apache-2.0 */
/* What threads did, of recordings in which each tells of itself only: switch records, and perf record -p. */
#include <stdio.h>
#include <stdlib.h>

#include "perf_file.h"
#include "store/merge.h"

/* No CPU in what perf record -p writes. */
static const struct event of_task = { .type = PD_TYPE_SOFTWARE, .period = 1000,
				      .sample_type = PDS_IP | PDS_TID | PDS_TIME,
				      .flags = PDF_SAMPLE_ID_ALL | PDF_CONTEXT_SWITCH, .ids = { 1, 2 } };
static const struct event of_cpu = { .type = PD_TYPE_SOFTWARE, .period = 1000,
				     .sample_type = PDS_IP | PDS_TID | PDS_TIME | PDS_CPU,
				     .flags = PDF_SAMPLE_ID_ALL | PDF_CONTEXT_SWITCH, .ids = { 1, 2 } };

static void put_who(struct file *f, uint32_t tid, uint64_t ts, bool cpu)
{
	put32(f, tid);
	put32(f, tid);
	put64(f, ts);
	if (cpu)
		put64(f, 3);
}

static void put_switch(struct file *f, uint32_t tid, uint64_t ts, uint16_t misc, bool cpu)
{
	size_t at = begin(f, cpu ? PD_SWITCH_CPU_WIDE : PD_SWITCH, misc);

	if (cpu) {
		put32(f, 0);
		put32(f, 0);
	}
	put_who(f, tid, ts, cpu);
	end(f, at);
}

static void put_one_sample(struct file *f, uint32_t tid, uint64_t ts, bool cpu)
{
	size_t at = begin(f, PD_SAMPLE, PDM_USER);

	put64(f, 0x1000);
	put_who(f, tid, ts, cpu);
	end(f, at);
}

static struct lg_trace *turns(const struct event *e, bool cpu)
{
	static struct file f;
	struct lg_error err = { 0 };
	struct lg_trace *t;
	size_t data;

	f = (struct file){ 0 };
	file_begin(&f, e, 1, 112);
	data = f.n;
	put_one_sample(&f, 7, 1000, cpu);
	put_switch(&f, 7, 2000, PDM_SWITCH_OUT, cpu);
	put_switch(&f, 7, 5000, 0, cpu);
	put_switch(&f, 7, 6000, PDM_SWITCH_OUT | PDM_SWITCH_PREEMPT, cpu);
	put_switch(&f, 7, 9000, 0, cpu);
	put_one_sample(&f, 7, 9500, cpu);
	file_done(&f, data);
	t = import_bytes(f.p, f.n, &err);
	assert_non_null(t);
	return t;
}

static void is_state(const struct lg_trace *t, size_t i, int64_t ts, int64_t dur, enum lg_state_kind kind,
		     int32_t cpu)
{
	assert_true(i < t->state.n);
	assert_int_equal(t->state.ts[i], ts);
	assert_int_equal(t->state.dur[i], dur);
	assert_int_equal(t->state.kind[i], kind);
	assert_int_equal(t->state.cpu[i], cpu);
}

static void makes_states_of_switch_records(void **state)
{
	(void)state;
	for (int cpu = 0; cpu < 2; cpu++) {
		struct lg_trace *t = turns(cpu ? &of_cpu : &of_task, cpu);
		int32_t nr = cpu ? 3 : -1;

		assert_int_equal(t->state.n, 4);
		is_state(t, 0, 2000, 3000, LG_BLOCKED, -1);
		is_state(t, 1, 5000, 1000, LG_RUNNING, nr);
		is_state(t, 2, 6000, 3000, LG_RUNNABLE, nr); /* the CPU that was taken from it */
		is_state(t, 3, 9000, 500, LG_RUNNING, nr);
		assert_int_equal(t->state.reason[0], LG_WHY_NONE);
		assert_int_equal(t->state.reason[2], LG_WHY_PREEMPTED);
		lg_trace_free(t);
	}
}

static struct lg_trace *fixture(const char *name)
{
	static uint8_t bytes[1 << 16];
	const char *data = getenv("LG_TEST_DATA");
	struct lg_error err = { 0 };
	struct lg_trace *t;
	char path[4096];
	FILE *f;
	size_t n;

	snprintf(path, sizeof path, "%s/perf/%s", data ? data : "tests/data", name);
	f = fopen(path, "rb");
	assert_non_null(f);
	n = fread(bytes, 1, sizeof bytes, f);
	fclose(f);
	t = import_bytes(bytes, n, &err);
	assert_non_null(t);
	return t;
}

/* Sleeps of 10 ms of a program that computes 4 ms between them, and what it computed. */
static size_t sleeps_of(const struct lg_trace *t, int64_t least, int64_t most, double *ret_ran_ms)
{
	size_t sleeps = 0;

	*ret_ran_ms = 0;
	for (size_t i = 0; i < t->state.n; i++) {
		*ret_ran_ms += t->state.kind[i] == LG_RUNNING ? (double)t->state.dur[i] / 1e6 : 0;
		if (t->state.kind[i] != LG_BLOCKED)
			continue;
		assert_in_range(t->state.dur[i], least, most);
		assert_int_equal(t->state.reason[i], LG_WHY_SLEEP);
		assert_true(t->state.stack[i] != 0);
		sleeps++;
	}
	return sleeps;
}

/* sched_switch of a program tells only that it leaves. It is back for no longer than a period (1 ms) when its
 * next sample comes. */
static void sees_by_samples_that_it_is_back(void **state)
{
	struct lg_trace *t = fixture("tied_switches.data");
	double ran_ms;

	(void)state;
	/* Behind the last one there was no sample any more. */
	assert_int_equal(sleeps_of(t, 9000000, 10300000, &ran_ms), 11);
	assert_true(ran_ms > 24 && ran_ms < 60);
	assert_int_equal(diags(t, LG_DIAG_PARTIAL), 1); /* that it is so */
	lg_trace_free(t);
}

/* The switch records tell when it is back, the tracepoint why it left. */
static void joins_switch_records_and_tracepoints(void **state)
{
	struct lg_trace *t = fixture("tied_both.data");
	double ran_ms;

	(void)state;
	assert_int_equal(sleeps_of(t, 10000000, 11000000, &ran_ms), 12);
	assert_true(ran_ms > 42 && ran_ms < 60);
	assert_string_equal(lg_meta_get(t, "record.scope"), "processes");
	assert_int_equal(diags(t, LG_DIAG_PARTIAL), 0);
	lg_trace_free(t);
}

static void put_cmdline(struct file *f, const char *const *words, uint32_t n)
{
	size_t at = begin(f, PD_HEADER_FEATURE, 0);

	put64(f, 11); /* HEADER_CMDLINE */
	put32(f, n);
	for (uint32_t i = 0; i < n; i++) {
		put32(f, 64);
		put_text(f, words[i], 64);
	}
	end(f, at);
}

static void put_comm(struct file *f, uint32_t tid, const char *comm)
{
	size_t at = begin(f, PD_COMM, 0);

	put32(f, tid);
	put32(f, tid);
	put_text(f, comm, 16);
	put_who(f, tid, 0, false);
	end(f, at);
}

/* Whom perf record -p names the user asks about; one of two programs may be whom he suspects. */
static void who_was_named_is_the_job(void **state)
{
	static const struct {
		const char *words[6], *other;
		bool job[2];
	} cases[] = {
		{ { "perf", "record", "-g", "-p", "7", "-q" }, "b", { true, false } },
		{ { "perf", "record", "--pid=7", "-g", "-q", "-v" }, "b", { true, false } },
		{ { "perf", "record", "-g", "-q", "-v", "-p7,8" }, "a", { true, true } },
		{ { "perf", "record", "-g", "--pid", "7,8", "-v" }, "b", { false, false } },
		{ { "perf", "record", "-ag", "--", "-p", "7" }, "b", { false, false } },
		{ { "perf", "record", "-t", "7", "-q", "-v" }, "b", { false, false } },
	};
	static struct file f;

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct lg_error err = { 0 };
		struct lg_trace *t;
		size_t at;

		f = (struct file){ 0 };
		put64(&f, PD_MAGIC2);
		put64(&f, PD_PIPE_HEADER);
		at = begin(&f, PD_HEADER_ATTR, 0);
		put_attr(&f, &of_task, 112);
		put64(&f, 1);
		end(&f, at);
		put_cmdline(&f, cases[i].words, 6);
		put_comm(&f, 7, "a");
		put_comm(&f, 8, cases[i].other);
		put_one_sample(&f, 7, 1000, false);
		put_one_sample(&f, 8, 2000, false);
		t = import_bytes(f.p, f.n, &err);
		assert_non_null(t);
		for (size_t k = 1; k < t->process.n; k++)
			if (t->process.pid[k] == 7 || t->process.pid[k] == 8)
				assert_int_equal(t->process.role[k] == LG_ROLE_JOB,
						 cases[i].job[t->process.pid[k] - 7]);
		lg_trace_free(t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(makes_states_of_switch_records),
		cmocka_unit_test(sees_by_samples_that_it_is_back),
		cmocka_unit_test(who_was_named_is_the_job),
		cmocka_unit_test(joins_switch_records_and_tracepoints),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
