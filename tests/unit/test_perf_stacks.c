/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks that are not only the sample's chain. */
#include <stdio.h>

#include "perf_file.h"

static const struct event called = {
	.type = PD_TYPE_SOFTWARE, .period = 1000,
	.sample_type = PDS_IP | PDS_TID | PDS_TIME | PDS_CPU | PDS_CALLCHAIN | PDS_BRANCH_STACK,
	.flags = PDF_SAMPLE_ID_ALL, .branch = PDB_CALL_STACK | 1, .ids = { 1, 2 } };

/* One file a page, so that each frame tells where it was looked for. */
static void put_maps(struct file *f)
{
	for (uint64_t i = 1; i <= 8; i++) {
		size_t at = begin(f, PD_MMAP, PDM_USER);
		char name[16] = "";

		snprintf(name, sizeof name, "/no/file%d", (int)i);
		put32(f, 7);
		put32(f, 7);
		put64(f, 0x1000 * i);
		put64(f, 0x1000);
		put64(f, 0);
		put_text(f, name, 16);
		put32(f, 7);
		put32(f, 7);
		put64(f, 0);
		put64(f, 0);
		end(f, at);
	}
}

/* kernel: in a system call, of which the chain knows where it was made. Calls 2 -> 3 -> 4. */
static void put_sample(struct file *f, bool kernel, uint64_t n_calls)
{
	size_t at = begin(f, PD_SAMPLE, kernel ? PDM_KERNEL : PDM_USER);

	put64(f, kernel ? 0xffffffff81000000 : 0x4100);
	put32(f, 7);
	put32(f, 7);
	put64(f, 100);
	put64(f, 0);
	put64(f, kernel ? 4 : 2);
	if (kernel) {
		put64(f, PDC_KERNEL);
		put64(f, 0xffffffff81000000);
	}
	put64(f, PDC_USER);
	put64(f, 0x4100);
	put64(f, n_calls);
	for (uint64_t i = 0; i < n_calls; i++) {
		put64(f, 0x3000 - 0x1000 * i); /* from: its first byte, so that one less is elsewhere */
		put64(f, 0x4000 - 0x1000 * i);
		put64(f, 0);
	}
	end(f, at);
}

/* The files of a stack's program part, innermost first. */
static const char *files_of(const struct lg_trace *t, lg_stk stk, char *buf, size_t size)
{
	size_t at = 0;

	buf[0] = 0;
	for (; stk; stk = t->stack.parent[stk]) {
		lg_frm f = t->stack.frame[stk];
		const char *dso = lg_string(t, t->frame.dso[f]);

		if (t->frame.kind[f] == LG_FRAME_USER && at < size)
			at += (size_t)snprintf(buf + at, size - at, "%s ",
					       strncmp(dso, "/no/file", 8) ? "?" : dso + 8);
	}
	return buf;
}

static void check(const struct event *e, bool swap, bool kernel, uint64_t n_calls, const char *want)
{
	static struct file f;
	struct lg_error err = { 0 };
	struct lg_trace *t;
	char buf[256];
	size_t data;

	f = (struct file){ .swap = swap };
	file_begin(&f, e, 1, 112);
	data = f.n;
	put_maps(&f);
	put_sample(&f, kernel, n_calls);
	put_sample(&f, kernel, n_calls);
	file_done(&f, data);
	t = import_bytes(f.p, f.n, &err);
	if (!t)
		fail_msg("%s", err.message);
	assert_int_equal(t->sample.n, 2);
	assert_int_equal(diags(t, LG_DIAG_FILE_DAMAGED), 0);
	assert_string_equal(files_of(t, t->sample.stack[0], buf, sizeof buf), want);
	assert_string_equal(files_of(t, t->sample.stack[1], buf, sizeof buf), want);
	lg_trace_free(t);
}

static void takes_callers_from_the_calls_that_the_processor_kept(void **state)
{
	struct event any = called;

	(void)state;
	for (int swap = 0; swap < 2; swap++) {
		check(&called, swap, false, 2, "4 3 2 ");
		check(&called, swap, true, 2, "4 3 2 ");
		check(&called, swap, true, 0, "4 ");
		/* branches that are no calls: of no use */
		any.branch = 1 << 3;
		check(&any, swap, true, 2, "4 ");
	}
}

static const struct event chained = {
	.type = PD_TYPE_SOFTWARE, .period = 1000,
	.sample_type = PDS_IP | PDS_TID | PDS_TIME | PDS_CPU | PDS_CALLCHAIN,
	.flags = PDF_SAMPLE_ID_ALL, .ids = { 1, 2 } };

/* As simpleperf and old kernels wrote some: an address in the kernel's part that is none. */
static void names_no_function_at_address_0(void **state)
{
	static struct file f;
	struct lg_error err = { 0 };
	struct lg_trace *t;
	size_t data, at;
	lg_stk stk;

	(void)state;
	f = (struct file){ 0 };
	file_begin(&f, &chained, 1, 112);
	data = f.n;
	at = begin(&f, PD_SAMPLE, PDM_KERNEL);
	put64(&f, 0xffffffff81000000);
	put32(&f, 7);
	put32(&f, 7);
	put64(&f, 100);
	put64(&f, 0);
	put64(&f, 4);
	put64(&f, PDC_KERNEL);
	put64(&f, 0xffffffff81000000);
	put64(&f, 0);
	put64(&f, 0xffffffff81000100);
	end(&f, at);
	file_done(&f, data);
	t = import_bytes(f.p, f.n, &err);
	assert_non_null(t);
	stk = t->stack.parent[t->sample.stack[0]];
	assert_string_equal(lg_string(t, t->frame.name[t->stack.frame[stk]]), "[unknown]");
	stk = t->stack.parent[stk];
	assert_string_equal(lg_string(t, t->frame.dso[t->stack.frame[stk]]), "[kernel.kallsyms]");
	lg_trace_free(t);
}

/* In a system call, with the program's registers and nothing of its stack. */
static void put_registers(struct file *f, unsigned n, unsigned sp, unsigned pc)
{
	size_t at = begin(f, PD_SAMPLE, PDM_KERNEL);

	put64(f, 0xffffffff81000000);
	put32(f, 7);
	put32(f, 7);
	put64(f, 100);
	put64(f, 0);
	put64(f, 2);
	put64(f, PDC_KERNEL);
	put64(f, 0xffffffff81000000);
	put64(f, 2);
	for (unsigned i = 0; i < n; i++)
		put64(f, i == pc ? 0x4100 : i == sp ? 0x7ffc00000000 : 0);
	put64(f, 16);
	put_text(f, "", 16);
	put64(f, 16);
	end(f, at);
}

static void check_registers(uint64_t mask, unsigned n, unsigned sp, unsigned pc, const char *want)
{
	struct event e = chained;
	static struct file f;
	struct lg_error err = { 0 };
	struct lg_trace *t;
	char buf[256];
	size_t data;

	e.sample_type |= PDS_REGS_USER | PDS_STACK_USER;
	e.regs = mask;
	f = (struct file){ 0 };
	file_begin(&f, &e, 1, 112);
	data = f.n;
	put_maps(&f);
	put_registers(&f, n, sp, pc);
	file_done(&f, data);
	t = import_bytes(f.p, f.n, &err);
	assert_non_null(t);
	assert_string_equal(files_of(t, t->sample.stack[0], buf, sizeof buf), want);
	lg_trace_free(t);
}

static void knows_the_machine_by_its_registers(void **state)
{
	(void)state;
	check_registers(0xff0fff, 20, 7, 8, "4 ");
	check_registers(0x1ffffffff, 33, 31, 32, "4 ");
	check_registers(0x4001ffffffff, 34, 31, 32, "4 ");
	check_registers(0x1ff, 9, 7, 8, ""); /* some of them: nothing is guessed */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(takes_callers_from_the_calls_that_the_processor_kept),
		cmocka_unit_test(names_no_function_at_address_0),
		cmocka_unit_test(knows_the_machine_by_its_registers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
