/* SPDX-License-Identifier: Apache-2.0 */
/* Which samples of task 0 found their CPU idle, in perf's files and in its text. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "import/idle.h"
#include "import/perfscript/perfscript.h"
#include "perf_file.h"

/* -- stacks -- */

/* names: from the innermost frame outwards, with blanks between. '-' = not known, '~' = of a program. */
static lg_stk stack_of(struct lg_builder *b, const char *names)
{
	const char *end = names + strlen(names);
	lg_stk stk = 0;

	while (end > names) {
		struct lg_frame_row row = { .kind = LG_FRAME_KERNEL };
		const char *p = end;

		while (p > names && p[-1] != ' ')
			p--;
		if (*p == '~') {
			row.kind = LG_FRAME_USER;
			row.pc = 0x401000;
		} else if (*p == '-') {
			row.pc = 0xffffffff81000000 + (uint64_t)(end - names);
		} else {
			row.name = lg_intern_n(b, p, (size_t)(end - p));
		}
		stk = lg_intern_stack(b, stk, lg_intern_frame(b, &row));
		end = p > names ? p - 1 : p;
	}
	return stk;
}

static void tells_the_idle_loop_from_what_interrupts_it(void **state)
{
	static const struct {
		const char *names;
		bool idle;
	} cases[] = {
		{ "", true },
		{ "- - -", true },
		{ "native_safe_halt default_idle arch_cpu_idle do_idle cpu_startup_entry", true },
		{ "intel_idle cpuidle_enter_state cpuidle_enter do_idle cpu_startup_entry -", true },
		{ "mwait_idle", true },
		{ "- - do_idle", true },
		{ "tick_nohz_idle_exit do_idle cpu_startup_entry start_secondary", true },
		{ "schedule_idle do_idle cpu_startup_entry", true },
		{ "_raw_spin_unlock_irqrestore start_secondary ~", true }, /* what is beyond the first is chance */
		{ "mlx5e_napi_poll net_rx_action __do_softirq irq_exit do_IRQ common_interrupt native_safe_halt "
		  "do_idle", false },
		{ "_raw_spin_lock _nohz_idle_balance.isra.0 run_rebalance_domains handle_softirqs intel_idle do_idle",
		  false },
		{ "memcpy call_function_interrupt poll_idle do_idle", false },
		{ "gic_handle_irq el1_irq arch_cpu_idle do_idle", false },
		{ "copy_page do_anonymous_page ~", false },
		{ "mlx5e_napi_poll", false },
		{ "- ~ ~", false },
		{ "~", false },
	};
	struct lg_error err = { 0 };
	struct lg_idle m = { 0 };
	struct lg_builder *b;

	(void)state;
	assert_int_equal(lg_builder_new(&b, &err), 0);
	for (int pass = 0; pass < 2; pass++) /* anew, and as remembered */
		for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
			if (cases[i].idle != lg_idle_stack(&m, lg_builder_trace(b),
							   stack_of(b, cases[i].names)))
				fail_msg("%s", cases[i].names);
	lg_idle_done(&m);
	lg_builder_free(b);
}

/* -- files -- */

static const struct event clocked = { .type = PD_TYPE_SOFTWARE, .period = 1000,
				      .sample_type = PDS_IP | PDS_TID | PDS_TIME | PDS_CPU,
				      .flags = PDF_SAMPLE_ID_ALL, .ids = { 1, 2 } };
/* As the one above, but with what makes the importer read it the other way. */
static const struct event raw = { .type = PD_TYPE_SOFTWARE, .period = 1000,
				  .sample_type = PDS_IP | PDS_TID | PDS_TIME | PDS_CPU | PDS_CALLCHAIN |
						 PDS_RAW,
				  .flags = PDF_SAMPLE_ID_ALL, .ids = { 1, 2 } };

static void put_sample(struct file *f, const struct event *e, uint16_t mode, uint64_t ip, uint32_t tid)
{
	size_t at = begin(f, PD_SAMPLE, mode);

	put64(f, ip);
	put32(f, tid);
	put32(f, tid);
	put64(f, 100);
	put64(f, 0);
	if (e->sample_type & PDS_CALLCHAIN) {
		put64(f, 2);
		put64(f, mode == PDM_USER ? PDC_USER : PDC_KERNEL);
		put64(f, ip);
		put32(f, 4);
		put32(f, 0);
	}
	end(f, at);
}

static void check_file(const struct event *e)
{
	static struct file f;
	struct lg_error err = { 0 };
	struct lg_trace *t;
	size_t data;

	f = (struct file){ 0 };
	file_begin(&f, e, 1, 112);
	data = f.n;
	put_sample(&f, e, PDM_KERNEL, 0xffffffff81000000, 0);
	put_sample(&f, e, PDM_USER, 0x401000, 0);
	put_sample(&f, e, PDM_KERNEL, 0xffffffff81000000, 7);
	file_done(&f, data);
	t = import_bytes(f.p, f.n, &err);
	assert_non_null(t);
	assert_int_equal(t->sample.n, 3);
	assert_true(t->sample.flags[0] & LG_SAMPLE_IDLE);
	assert_false(t->sample.flags[1] & LG_SAMPLE_IDLE);
	assert_false(t->sample.flags[2] & LG_SAMPLE_IDLE);
	lg_trace_free(t);
}

static void a_program_is_never_idle(void **state)
{
	(void)state;
	check_file(&clocked);
	check_file(&raw);
}

static void reads_it_from_text_as_well(void **state)
{
	static const char text[] =
		"swapper     0 [000] 1.000001: 1 cycles: \n"
		"\tffffffff81000010 native_safe_halt+0x10 ([kernel.kallsyms])\n"
		"\tffffffff81000020 do_idle+0x10 ([kernel.kallsyms])\n\n"
		"swapper     0 [000] 1.000002: 1 cycles: \n"
		"\t7ffd793d48ba [unknown] ([unknown])\n\n"
		"swapper     0 [000] 1.000003: 1 cycles: \n"
		"\tffffffff81000030 __do_softirq+0x10 ([kernel.kallsyms])\n"
		"\tffffffff81000020 do_idle+0x10 ([kernel.kallsyms])\n\n"
		"swapper     0 [000] 1.000004: 1 cycles: \n"
		"\tffffffff81000040 [unknown] ([kernel.kallsyms])\n\n"
		"swapper     0 [000] 1.000005: 1 cycles: \n\n";
	static const bool idle[] = { true, false, false, true, true };
	char path[] = "/tmp/lg-idle-XXXXXX";
	struct lg_error err = { 0 };
	struct lg_builder *b;
	struct lg_trace *t;
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, sizeof text - 1), (ssize_t)sizeof text - 1);
	close(fd);
	assert_int_equal(lg_builder_new(&b, &err), 0);
	assert_int_equal(lg_import_perfscript.run(path, b, &err), 0);
	unlink(path);
	assert_int_equal(lg_builder_seal(b, &t, &err), 0);
	assert_int_equal(t->sample.n, 5);
	for (size_t i = 0; i < 5; i++)
		if (idle[i] != !!(t->sample.flags[i] & LG_SAMPLE_IDLE))
			fail_msg("sample %zu", i);
	lg_trace_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tells_the_idle_loop_from_what_interrupts_it),
		cmocka_unit_test(a_program_is_never_idle),
		cmocka_unit_test(reads_it_from_text_as_well),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
