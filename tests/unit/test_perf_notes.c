/* SPDX-License-Identifier: Apache-2.0 */
/* What a perf.data file lost, whose threads are the kernel's, and what of it was not read. */
#include <stdio.h>

#include "perf_file.h"
#include "store/merge.h"

static const struct event clocked = { .type = PD_TYPE_SOFTWARE, .period = 1000,
				      .sample_type = PDS_IP | PDS_TID | PDS_TIME | PDS_CPU,
				      .flags = PDF_SAMPLE_ID_ALL, .ids = { 1, 2 } };

/* What ends a record of another kind: who, when, where. 0: perf record made it. */
static void put_id(struct file *f, uint32_t tid, uint64_t ts)
{
	put32(f, tid);
	put32(f, tid);
	put64(f, ts);
	put64(f, 0); /* CPU 0 */
}

static void put_sample(struct file *f, uint32_t tid, uint64_t ts)
{
	size_t at = begin(f, PD_SAMPLE, PDM_KERNEL);

	put64(f, 0xffffffff81000000);
	put_id(f, tid, ts);
	end(f, at);
}

static void put_lost(struct file *f, uint64_t n, uint64_t ts)
{
	size_t at = begin(f, PD_LOST, 0);

	put64(f, 1);
	put64(f, n);
	put_id(f, 7, ts);
	end(f, at);
}

static void put_lost_samples(struct file *f, uint64_t n, uint64_t ts, uint16_t misc)
{
	size_t at = begin(f, PD_LOST_SAMPLES, misc);

	put64(f, n);
	put_id(f, ts ? 7 : 0, ts);
	end(f, at);
}

static void put_fork(struct file *f, uint32_t pid, uint32_t ppid, uint64_t ts)
{
	size_t at = begin(f, PD_FORK, 0);

	put32(f, pid);
	put32(f, ppid);
	put32(f, pid);
	put32(f, ppid);
	put64(f, ts);
	put_id(f, ts ? ppid : 0, ts);
	end(f, at);
}

static void put_comm(struct file *f, uint32_t pid, const char *name, uint64_t ts)
{
	size_t at = begin(f, PD_COMM, 0);

	put32(f, pid);
	put32(f, pid);
	put_text(f, name, 16);
	put_id(f, ts ? pid : 0, ts);
	end(f, at);
}

static void put_map(struct file *f, uint32_t pid, uint64_t ts)
{
	size_t at = begin(f, PD_MMAP, PDM_USER);

	put32(f, pid);
	put32(f, pid);
	put64(f, 0x1000);
	put64(f, 0x1000);
	put64(f, 0);
	put_text(f, "/no/such/file", 16);
	put_id(f, pid, ts);
	end(f, at);
}

static void put_exit(struct file *f, uint32_t pid, uint64_t ts)
{
	size_t at = begin(f, PD_EXIT, 0);

	put32(f, pid);
	put32(f, 1);
	put32(f, pid);
	put32(f, 1);
	put64(f, ts);
	put_id(f, pid, ts);
	end(f, at);
}

static size_t start(struct file *f)
{
	*f = (struct file){ 0 };
	file_begin(f, &clocked, 1, 112);
	return f->n;
}

static struct lg_trace *finish(struct file *f, size_t data)
{
	struct lg_error err = { 0 };
	struct lg_trace *t;

	file_done(f, data);
	t = import_bytes(f->p, f->n, &err);
	if (!t)
		fail_msg("%s", err.message);
	return t;
}

/* -- losses -- */

static struct file file;

/* Events lost in a file with LOST records of told, and perf's closing counts of counted, in two parts. */
static void check_lost(uint32_t told, uint32_t counted, uint64_t want)
{
	size_t data = start(&file);
	struct lg_trace *t;

	put_sample(&file, 7, 100);
	if (told)
		put_lost(&file, told, 150);
	put_sample(&file, 7, 200);
	put_lost_samples(&file, counted - counted / 3, 0, 0);
	put_lost_samples(&file, counted / 3, 0, 0);
	put_lost_samples(&file, 1000, 0, PDM_LOST_SAMPLES_BPF); /* a filter: no loss */
	t = finish(&file, data);
	assert_int_equal(diags(t, LG_DIAG_LOST_EVENTS), want);
	assert_int_equal(diags(t, LG_DIAG_LOST_SAMPLES), 0);
	lg_trace_free(t);
}

static void counts_a_loss_once(void **state)
{
	(void)state;
	check_lost(0, 0, 0);
	check_lost(1974, 1974, 1974);
	check_lost(17, 20, 20); /* three of a buffer to which nothing was written any more */
	check_lost(17, 5, 17);  /* of events that an older kernel does not count */
	check_lost(0, 9, 9);
}

static void what_the_hardware_dropped_comes_on_top(void **state)
{
	size_t data = start(&file);
	struct lg_trace *t;

	(void)state;
	put_sample(&file, 7, 100);
	put_lost(&file, 17, 150);
	put_lost_samples(&file, 4, 160, 0);
	put_sample(&file, 7, 200);
	put_lost_samples(&file, 17, 0, 0);
	t = finish(&file, data);
	assert_int_equal(diags(t, LG_DIAG_LOST_EVENTS), 17);
	assert_int_equal(diags(t, LG_DIAG_LOST_SAMPLES), 4);
	lg_trace_free(t);
}

/* Two halves of what 64 bits hold, and one more, are no small number: nor would any sum of them be. */
static void forged_counts_stay_large(void **state)
{
	size_t data = start(&file);
	struct lg_trace *t;

	(void)state;
	put_sample(&file, 7, 100);
	put_lost(&file, UINT64_C(1) << 63, 150);
	put_lost(&file, (UINT64_C(1) << 63) + 1, 160);
	put_lost_samples(&file, UINT64_MAX, 170, 0);
	put_sample(&file, 7, 200);
	put_lost_samples(&file, UINT64_MAX, 0, 0);
	put_lost_samples(&file, 7, 0, 0);
	t = finish(&file, data);
	assert_int_equal(diags(t, LG_DIAG_LOST_EVENTS), 2 * LG_COUNT_MAX);
	assert_int_equal(diags(t, LG_DIAG_LOST_SAMPLES), LG_COUNT_MAX);
	lg_trace_free(t);
}

/* -- the kernel's threads -- */

static bool is_kernel(const struct lg_trace *t, int32_t pid)
{
	for (lg_thr i = 1; i < t->thread.n; i++) {
		lg_prc p = t->thread.prc[i];
		bool flag = t->thread.flags[i] & LG_THREAD_KERNEL;

		if (t->process.pid[p] != pid)
			continue;
		assert_int_equal(t->process.role[p] == LG_ROLE_KERNEL, flag);
		return flag;
	}
	fail_msg("no process %d", pid);
	return false;
}

/* name: of process 2. */
static struct lg_trace *with_threads(const char *name)
{
	size_t data = start(&file);

	put_fork(&file, 1, 0, 0);
	put_comm(&file, 1, "init", 0);
	put_map(&file, 1, 0);
	put_fork(&file, 2, 0, 0);
	put_comm(&file, 2, name, 0);
	put_fork(&file, 30, 2, 0);
	put_comm(&file, 30, "kswapd0", 0);
	put_fork(&file, 40, 2, 0); /* a program that the kernel started */
	put_comm(&file, 40, "modprobe", 0);
	put_map(&file, 40, 0);
	put_fork(&file, 50, 1, 0); /* nothing mapped, but init's child */
	put_comm(&file, 50, "daemon", 0);
	put_fork(&file, 41, 2, 0); /* has ended when the file does */
	put_map(&file, 41, 0);
	put_sample(&file, 1, 90);
	put_exit(&file, 41, 95);
	put_fork(&file, 31, 2, 100);
	put_comm(&file, 31, "kworker/0:1", 110);
	put_sample(&file, 30, 120);
	put_sample(&file, 31, 130);
	put_sample(&file, 50, 140);
	return finish(&file, data);
}

static void tells_the_threads_of_the_kernel(void **state)
{
	static const int32_t kernel[] = { 2, 30, 31 }, user[] = { 1, 40, 41, 50 };
	struct lg_trace *t = with_threads("kthreadd");

	(void)state;
	for (size_t i = 0; i < sizeof kernel / sizeof *kernel; i++)
		if (!is_kernel(t, kernel[i]))
			fail_msg("%d is the kernel's", kernel[i]);
	for (size_t i = 0; i < sizeof user / sizeof *user; i++)
		if (is_kernel(t, user[i]))
			fail_msg("%d is a program's", user[i]);
	lg_trace_free(t);
}

/* In a container's PID namespace. */
static void process_2_may_be_anybody(void **state)
{
	static const int32_t pids[] = { 1, 2, 30, 31, 40, 41, 50 };
	struct lg_trace *t = with_threads("bash");

	(void)state;
	for (size_t i = 0; i < sizeof pids / sizeof *pids; i++)
		assert_false(is_kernel(t, pids[i]));
	lg_trace_free(t);
}

/* -- what is behind the end -- */

static const char *behind(const struct lg_trace *t, enum lg_diag_id id)
{
	for (size_t i = 0; i < t->diag.n; i++)
		if (t->diag.id[i] == (uint32_t)id)
			return lg_string(t, t->diag.text[i]);
	return "";
}

static void says_what_is_behind_the_last_part(void **state)
{
	size_t data = start(&file), n;
	struct lg_error err = { 0 };
	struct lg_trace *t;
	char want[128];

	(void)state;
	put_sample(&file, 7, 100);
	file_done(&file, data);
	/* a feature: the machine's name */
	n = file.n;
	file.n = 72;
	put64(&file, 1u << PDH_HOSTNAME);
	file.n = n;
	put64(&file, n + 16);
	put64(&file, 12);
	put32(&file, 8);
	put_text(&file, "box", 8);
	n = file.n;
	t = import_bytes(file.p, n, &err);
	assert_non_null(t);
	assert_string_equal(lg_meta_get(t, "host.name"), "box");
	assert_int_equal(t->diag.n - diags(t, LG_DIAG_UNRESOLVED), 0);
	lg_trace_free(t);

	memcpy(file.p + n, file.p, n);
	t = import_bytes(file.p, 2 * n, &err);
	assert_non_null(t);
	assert_int_equal(t->sample.n, 1);
	snprintf(want, sizeof want, "another perf.data file begins at byte %zu: it and what may follow, %zu bytes, ", n,
		 n);
	assert_ptr_equal(strstr(behind(t, LG_DIAG_PARTIAL), want), behind(t, LG_DIAG_PARTIAL));
	lg_trace_free(t);

	t = import_bytes(file.p, n + 5, &err);
	assert_non_null(t);
	snprintf(want, sizeof want, "from byte %zu on, 5 bytes were not read: they lie behind the last part", n);
	assert_ptr_equal(strstr(behind(t, LG_DIAG_NOT_UNDERSTOOD), want), behind(t, LG_DIAG_NOT_UNDERSTOOD));
	assert_string_equal(behind(t, LG_DIAG_PARTIAL), "");
	lg_trace_free(t);
}

/* -- what a processor wrote itself -- */

static void put_aux(struct file *f, uint32_t kind, size_t n)
{
	size_t at = begin(f, PD_AUXTRACE_INFO, 0);

	put32(f, kind);
	put32(f, 0);
	end(f, at);
	for (int i = 0; i < 2 && n; i++) {
		at = begin(f, PD_AUXTRACE, 0);
		put64(f, n);
		put_text(f, "", 32); /* offset, reference, idx, tid, cpu, reserved */
		end(f, at);
		put_text(f, "", n);
	}
}

static const char *text_of(const struct lg_trace *t, enum lg_diag_id id)
{
	for (size_t i = 0; i < t->diag.n; i++)
		if (t->diag.id[i] == (uint32_t)id)
			return lg_string(t, t->diag.text[i]);
	return "";
}

static void check_aux(uint32_t kind, size_t bytes, const char *want)
{
	size_t data = start(&file);
	struct lg_trace *t;

	if (kind)
		put_aux(&file, kind, bytes);
	put_sample(&file, 7, 100);
	t = finish(&file, data);
	assert_int_equal(t->sample.n, 1);
	assert_int_equal(diags(t, LG_DIAG_HW_TRACE), kind != 0);
	assert_non_null(strstr(text_of(t, LG_DIAG_HW_TRACE), want));
	lg_trace_free(t);
}

static void says_what_it_does_not_decode(void **state)
{
	(void)state;
	check_aux(1, 4096, "8192 bytes of Intel PT; let perf make samples");
	check_aux(3, 64, "128 bytes of Arm CoreSight");
	check_aux(4, 0, "it was Arm SPE; nothing of it is in the file");
	check_aux(1000, 8, "16 bytes of an unknown kind");
	check_aux(0, 0, "");
}

/* -- nothing -- */

static struct lg_trace *without_samples(uint32_t type)
{
	size_t data = start(&file), at;

	put_comm(&file, 7, "true", 100);
	if (type) {
		at = begin(&file, type, 0);
		put_text(&file, "", 32);
		end(&file, at);
	}
	return finish(&file, data);
}

static void says_that_there_are_no_samples(void **state)
{
	struct lg_trace *t = without_samples(0);
	size_t data;

	(void)state;
	assert_int_equal(diags(t, LG_DIAG_NO_SAMPLES), 1);
	assert_non_null(strstr(text_of(t, LG_DIAG_NO_SAMPLES), "over at once"));
	lg_trace_free(t);
	t = without_samples(PD_STAT);
	assert_non_null(strstr(text_of(t, LG_DIAG_NO_SAMPLES), "perf stat"));
	lg_trace_free(t);
	data = start(&file);
	put_sample(&file, 7, 100);
	t = finish(&file, data);
	assert_int_equal(diags(t, LG_DIAG_NO_SAMPLES), 0);
	lg_trace_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts_a_loss_once),
		cmocka_unit_test(what_the_hardware_dropped_comes_on_top),
		cmocka_unit_test(forged_counts_stay_large),
		cmocka_unit_test(tells_the_threads_of_the_kernel),
		cmocka_unit_test(process_2_may_be_anybody),
		cmocka_unit_test(says_what_is_behind_the_last_part),
		cmocka_unit_test(says_what_it_does_not_decode),
		cmocka_unit_test(says_that_there_are_no_samples),
	};

	return cmocka_run_group_tests_name("perf notes", tests, NULL, NULL);
}
