/* SPDX-License-Identifier: Apache-2.0 */
/* Which clock the times of a perf.data file are on, how files are joined by it; names of system calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "import/perfdata/perf_syscalls.h"
#include "perf_file.h"
#include "store/merge.h"

#define S INT64_C(1000000000)
#define WALL (INT64_C(1764000000) * S)

enum { NO_CLOCK = -1, FIRST = 50, LAST = 60 }; /* seconds on the file's clock */

/* Two samples; with a pair: at second pair_at of clock pair_clock the wall clock showed WALL. */
static struct lg_trace *recorded(int clockid, int pair_clock, int64_t pair_at, const char *host)
{
	static struct file f;
	struct event e = { .type = PD_TYPE_SOFTWARE, .period = 1000, .ids = { 1, 2 },
			   .sample_type = PDS_IP | PDS_TID | PDS_TIME,
			   .flags = PDF_SAMPLE_ID_ALL | (clockid == NO_CLOCK ? 0 : PDF_USE_CLOCKID) };
	struct lg_error err = { 0 };
	struct lg_trace *t;
	size_t data, table, n;

	f = (struct file){ 0 };
	file_begin(&f, &e, 1, 112);
	if (clockid != NO_CLOCK) {
		n = f.n;
		f.n = PD_FILE_HEADER + 16 + PDA_CLOCKID;
		put32(&f, (uint32_t)clockid);
		f.n = n;
	}
	data = f.n;
	for (int64_t s = FIRST; s <= LAST; s += LAST - FIRST) {
		size_t at = begin(&f, PD_SAMPLE, PDM_USER);

		put64(&f, 0x1010);
		put32(&f, 70);
		put32(&f, 71);
		put64(&f, (uint64_t)(s * S));
		end(&f, at);
	}
	file_done(&f, data);
	/* Features: bits in the header, behind the records a pair (place, size) for each. */
	n = f.n;
	f.n = 72;
	put64(&f, 1u << PDH_HOSTNAME | (pair_clock == NO_CLOCK ? 0 : 1u << PDH_CLOCK_DATA));
	f.n = n;
	table = n;
	put_text(&f, "", 32);
	n = f.n;
	put32(&f, 16);
	put_text(&f, host, 16);
	if (pair_clock != NO_CLOCK) {
		put32(&f, 1);
		put32(&f, (uint32_t)pair_clock);
		put64(&f, (uint64_t)WALL);
		put64(&f, (uint64_t)(pair_at * S));
	}
	f.n = table;
	put64(&f, n);
	put64(&f, 20);
	put64(&f, n + 20);
	put64(&f, 24);
	t = import_bytes(f.p, n + 44, &err);
	if (!t)
		fail_msg("%s", err.message);
	assert_int_equal(t->sample.n, 2);
	assert_int_equal(diags(t, LG_DIAG_FILE_DAMAGED), 0);
	assert_string_equal(lg_meta_get(t, "host.name"), host);
	return t;
}

/* What the wall clock showed at the first sample; fails without exactly one pair. */
static int64_t wall_of_first(const struct lg_trace *t, int64_t *ret_error)
{
	assert_int_equal(t->clock.n, 1);
	assert_int_equal(t->clock.clock[0], CLOCK_REALTIME);
	*ret_error = t->clock.error[0];
	return t->clock.value[0] - t->clock.ts[0] + t->sample.ts[0];
}

static void a_pair_of_readings_tells_the_wall_clock(void **state)
{
	static const int clocks[] = { CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_BOOTTIME, CLOCK_TAI };
	static const char *const names[] = { "CLOCK_MONOTONIC", "CLOCK_MONOTONIC_RAW", "CLOCK_BOOTTIME",
					     "CLOCK_TAI" };
	struct lg_trace *t;
	int64_t error, late;

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		t = recorded(clocks[i], clocks[i], FIRST - 1, "a");
		assert_string_equal(lg_meta_get(t, "clock.source"), names[i]);
		assert_int_equal(wall_of_first(t, &error), WALL + S);
		assert_true(error > 0 && error < 20 * S / 1000);
		lg_trace_free(t);
	}
	/* What is not slewed with the wall clock runs away from it: 0.5 ms a second at most. */
	t = recorded(CLOCK_MONOTONIC_RAW, CLOCK_MONOTONIC_RAW, FIRST, "a");
	(void)wall_of_first(t, &error);
	lg_trace_free(t);
	t = recorded(CLOCK_MONOTONIC_RAW, CLOCK_MONOTONIC_RAW, FIRST - 40, "a");
	assert_int_equal(wall_of_first(t, &late), WALL + 40 * S);
	assert_int_equal(late - error, 40 * S / 2000);
	lg_trace_free(t);
}

static void the_wall_clock_itself_needs_no_pair(void **state)
{
	struct lg_trace *t = recorded(CLOCK_REALTIME, NO_CLOCK, 0, "a");
	int64_t error;

	(void)state;
	assert_int_equal(wall_of_first(t, &error), FIRST * S);
	assert_int_equal(error, 0);
	lg_trace_free(t);
}

static void nothing_is_made_up(void **state)
{
	struct lg_trace *t = recorded(CLOCK_BOOTTIME, NO_CLOCK, 0, "a");

	(void)state;
	assert_int_equal(t->clock.n, 0);
	lg_trace_free(t);
	t = recorded(NO_CLOCK, NO_CLOCK, 0, "a");
	assert_int_equal(t->clock.n, 0);
	assert_non_null(strstr(lg_meta_get(t, "clock.source"), "sched_clock"));
	lg_trace_free(t);
	/* A pair of another clock than that of the times says nothing about them. */
	t = recorded(NO_CLOCK, CLOCK_MONOTONIC, FIRST, "a");
	assert_int_equal(t->clock.n, 0);
	lg_trace_free(t);
}

/* [0] is the offset that the join gives, where it gives one. */
static int join(struct lg_trace *a, struct lg_trace *b, int64_t *ret)
{
	int64_t error;
	int rc = lg_merge_offset(a, b, ret, &error);

	lg_trace_free(a);
	lg_trace_free(b);
	return rc;
}

static void files_are_joined_by_what_is_known(void **state)
{
	int64_t off;

	(void)state;
	/* The wall clock showed the same at second 40 of one and 45 of the other. */
	assert_int_equal(join(recorded(CLOCK_MONOTONIC, CLOCK_MONOTONIC, 40, "a"),
			      recorded(CLOCK_BOOTTIME, CLOCK_BOOTTIME, 45, "a"), &off), 0);
	assert_int_equal(off, -5 * S);
	/* One clock of one machine: no pair is needed. */
	assert_int_equal(join(recorded(CLOCK_MONOTONIC, NO_CLOCK, 0, "a"),
			      recorded(CLOCK_MONOTONIC, CLOCK_MONOTONIC, 45, "a"), &off), 0);
	assert_int_equal(off, 0);
	assert_int_equal(join(recorded(NO_CLOCK, NO_CLOCK, 0, "a"), recorded(NO_CLOCK, NO_CLOCK, 0, "a"),
			      &off), 0);
	/* Another clock is not taken for it, another machine's neither. */
	assert_int_equal(join(recorded(CLOCK_MONOTONIC, NO_CLOCK, 0, "a"),
			      recorded(NO_CLOCK, NO_CLOCK, 0, "a"), &off), LG_E_NOTFOUND);
	assert_int_equal(join(recorded(CLOCK_MONOTONIC, CLOCK_MONOTONIC, 40, "a"),
			      recorded(CLOCK_BOOTTIME, NO_CLOCK, 0, "a"), &off), LG_E_NOTFOUND);
	assert_int_equal(join(recorded(CLOCK_MONOTONIC, NO_CLOCK, 0, "a"),
			      recorded(CLOCK_MONOTONIC, NO_CLOCK, 0, "b"), &off), LG_E_NOTFOUND);
}

/* Two pairs of one clock differ by what reading them took: that is no distance between the files. */
static void the_same_clock_twice_is_not_moved(void **state)
{
	struct lg_trace *a = recorded(CLOCK_MONOTONIC, CLOCK_MONOTONIC, 40, "a");
	struct lg_trace *b = recorded(CLOCK_MONOTONIC, CLOCK_MONOTONIC, 40, "a");
	int64_t off;

	(void)state;
	b->clock.value[0] += 30000;
	assert_int_equal(join(a, b, &off), 0);
	assert_int_equal(off, 0);
}

/* -- names of system calls -- */

static void calls_have_their_names(void **state)
{
#if defined __x86_64__
	const char *here = "x86_64";
#else
	const char *here = "aarch64";
#endif
	static const struct {
		int nr;
		const char *name;
	} some[] = { { SYS_read, "read" }, { SYS_futex, "futex" }, { SYS_mmap, "mmap" }, { SYS_ppoll, "ppoll" },
		     { SYS_munmap, "munmap" }, { SYS_clone3, "clone3" }, { SYS_statx, "statx" },
		     { SYS_io_uring_enter, "io_uring_enter" }, { SYS_process_vm_readv, "process_vm_readv" },
		     { SYS_exit_group, "exit_group" }, { SYS_epoll_pwait, "epoll_pwait" } };

	(void)state;
	for (size_t i = 0; i < sizeof some / sizeof *some; i++)
		assert_string_equal(lg_pd_syscall_name(here, false, (uint64_t)some[i].nr), some[i].name);
	assert_string_equal(lg_pd_syscall_name("x86_64", false, 202), "futex");
	assert_string_equal(lg_pd_syscall_name("aarch64", false, 98), "futex");
	assert_string_equal(lg_pd_syscall_name("aarch64", false, 222), "mmap");
	assert_string_equal(lg_pd_syscall_name("x86_64", false, 4), "stat");
	assert_string_equal(lg_pd_syscall_name("x86_64", true, 4), "write");
	assert_string_equal(lg_pd_syscall_name("i686", false, 4), "write");
	assert_string_equal(lg_pd_syscall_name("i686", true, 403), "clock_gettime64");
	assert_null(lg_pd_syscall_name("aarch64", true, 4)); /* numbers of 32-bit ARM */
	assert_null(lg_pd_syscall_name("aarch64", false, 1 << 20));
	assert_null(lg_pd_syscall_name("x86_64", false, UINT64_MAX)); /* -1: a call that a filter refused */
	assert_null(lg_pd_syscall_name("riscv64", false, 63));
	assert_null(lg_pd_syscall_name("", false, 0));
	for (uint64_t a = 0; a < 500; a++) {
		const char *x = lg_pd_syscall_name("x86_64", false, a), *i = lg_pd_syscall_name("i386", false, a);
		const char *arm = lg_pd_syscall_name("aarch64", false, a);

		/* From 424 on all machines count alike. */
		if (a >= 424 && x && arm)
			assert_string_equal(x, arm);
		if (a >= 424 && x && i)
			assert_string_equal(x, i);
		for (uint64_t b = 0; b < a; b++) {
			const char *y = lg_pd_syscall_name("x86_64", false, b);
			const char *z = lg_pd_syscall_name("aarch64", false, b);

			assert_false(x && y && !strcmp(x, y));
			assert_false(arm && z && !strcmp(arm, z));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pair_of_readings_tells_the_wall_clock),
		cmocka_unit_test(the_wall_clock_itself_needs_no_pair),
		cmocka_unit_test(nothing_is_made_up),
		cmocka_unit_test(files_are_joined_by_what_is_known),
		cmocka_unit_test(the_same_clock_twice_is_not_moved),
		cmocka_unit_test(calls_have_their_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
