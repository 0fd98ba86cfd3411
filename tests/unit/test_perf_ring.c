/* SPDX-License-Identifier: Apache-2.0 */
/* Real rings where the machine permits (else skipped with the reason), and the record parsers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "record/perf_lost.h"
#include "record/perf_ring.h"

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* So much of a CPU's time, however long others have it meanwhile. */
static void burn(clock_t ms)
{
	clock_t end = clock() + ms * (CLOCKS_PER_SEC / 1000);

	while (clock() < end)
		;
}

struct seen {
	struct lg_perf_set *set;
	uint32_t ev_sample;
	int64_t last[4096];
	uint64_t mine, in_order, disorder, bad, comm, fork, lost, records;
	uint64_t weight;
	int deepest;
};

static void look(void *arg, int cpu, const struct perf_event_header *h)
{
	struct seen *s = arg;
	struct lg_perf_head head;
	struct lg_perf_chain c;

	s->records++;
	if (!lg_perf_head(s->set, h, h->size, &head)) {
		s->bad++;
		return;
	}
	/* A record's time is taken before its room in the ring: an interrupt in between writes first. */
	if (head.ts < s->last[cpu] - 1000000)
		s->disorder++;
	s->last[cpu] = head.ts > s->last[cpu] ? head.ts : s->last[cpu];
	if (h->type == PERF_RECORD_LOST)
		s->lost++;
	if (h->type == PERF_RECORD_COMM && head.pid == getpid())
		s->comm += !strncmp((const char *)head.body + 8, "lg_renamed", 10);
	if (h->type == PERF_RECORD_FORK && head.pid == getpid())
		s->fork++;
	if (h->type != PERF_RECORD_SAMPLE)
		return;
	if (head.event != s->ev_sample || head.n_body < 16 ||
	    !lg_perf_chain(head.body + 8, head.n_body - 8, &c)) {
		s->bad++;
		return;
	}
	if (head.pid == getpid()) {
		uint64_t w;

		memcpy(&w, head.body, 8);
		s->weight += w;
		s->mine++;
		if (c.n_user && (int)c.n_user > s->deepest)
			s->deepest = (int)c.n_user;
	}
}

static void samples_this_process_on_the_monotonic_clock(void **state)
{
	static struct seen s;
	struct lg_error err;
	struct perf_event_attr sample = { .type = PERF_TYPE_SOFTWARE,
					  .config = PERF_COUNT_SW_CPU_CLOCK, .freq = 1,
					  .sample_freq = 999, .exclude_idle = 1,
					  .sample_type = PERF_SAMPLE_PERIOD | PERF_SAMPLE_CALLCHAIN };
	struct perf_event_attr side = { .type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_DUMMY,
					.task = 1, .comm = 1, .mmap = 1, .mmap2 = 1 };
	uint32_t ev = 0; /* clang does not know that skip() never returns */
	int64_t before, after;
	pid_t child;

	(void)state;
	assert_int_equal(lg_perf_set_new(&s.set, 1 << 20, -1, &err), 0);
	if (lg_perf_set_add(s.set, &sample, NULL, "cpu-clock", &s.ev_sample, &err) ||
	    lg_perf_set_add(s.set, &side, NULL, "dummy", &ev, &err)) {
		print_message("skipped: %s\n", err.message);
		lg_perf_set_free(s.set);
		skip();
	}
	assert_int_equal(s.ev_sample, 0);
	assert_int_equal(ev, 1);
	assert_true(lg_perf_set_fd(s.set, 0) >= 0);
	assert_int_equal(lg_perf_set_enable(s.set, &err), 0);
	before = now_ns();
	burn(100);
	FILE *comm = fopen("/proc/self/comm", "w");
	assert_non_null(comm);
	fputs("lg_renamed", comm);
	fclose(comm);
	child = fork();
	if (!child)
		_exit(0);
	waitpid(child, NULL, 0);
	after = now_ns();
	assert_int_equal(lg_perf_set_rescan(s.set, &err), 0);
	lg_perf_set_disable(s.set);
	assert_int_equal(lg_perf_set_drain(s.set, look, &s, &err), 0);
	assert_int_equal(s.bad, 0);
	assert_int_equal(s.disorder, 0);
	assert_true(s.records > 0);
	for (int c = 0; c < 4096; c++)
		assert_true(!s.last[c] || (s.last[c] >= before - 10000000 &&
					   s.last[c] <= after + 100000000));
	assert_true(s.mine >= 10); /* of 100 */
	assert_true(s.weight <= (uint64_t)(after - before) * 2);
	assert_true(s.deepest >= 1);
	assert_int_equal(s.comm, 1);
	assert_int_equal(s.fork, 1);
	s.records = 0;
	assert_int_equal(lg_perf_set_drain(s.set, look, &s, &err), 0);
	assert_int_equal(s.records, 0); /* everything was handed back */
	lg_perf_set_free(s.set);
}

static void count_lost(void *arg, int cpu, const struct perf_event_header *h)
{
	struct seen *s = arg;
	struct lg_perf_head head;

	(void)cpu;
	assert_true(lg_perf_head(s->set, h, h->size, &head));
	s->records++;
	s->lost += h->type == PERF_RECORD_LOST;
}

static void a_full_ring_says_so_and_goes_on(void **state)
{
	static struct seen s;
	struct lg_error err;
	struct perf_event_attr attr = { .type = PERF_TYPE_SOFTWARE,
					.config = PERF_COUNT_SW_CONTEXT_SWITCHES,
					.sample_period = 1, .sample_type = PERF_SAMPLE_CALLCHAIN };
	struct timespec nap = { .tv_nsec = 1000 };

	(void)state;
	assert_int_equal(lg_perf_set_new(&s.set, 4096, -1, &err), 0);
	if (lg_perf_set_add(s.set, &attr, NULL, "context-switches", &s.ev_sample, &err)) {
		print_message("skipped: %s\n", err.message);
		lg_perf_set_free(s.set);
		skip();
	}
	assert_int_equal(lg_perf_set_enable(s.set, &err), 0);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 400; i++)
			nanosleep(&nap, NULL);
		assert_int_equal(lg_perf_set_drain(s.set, count_lost, &s, &err), 0);
	}
	assert_true(s.lost >= 1);
	assert_true(s.records > s.lost + 50); /* many wraps, all whole */
	lg_perf_set_free(s.set);
}

static void tells_why_an_event_cannot_be_opened(void **state)
{
	struct lg_perf_set *set;
	struct lg_error err = { 0 };
	struct perf_event_attr attr = { .type = PERF_TYPE_TRACEPOINT, .config = 0xfffffff };
	uint32_t ev = 77;

	(void)state;
	assert_int_equal(lg_perf_set_new(&set, 4096, -1, &err), 0);
	assert_true(lg_perf_set_add(set, &attr, NULL, "no:such_event", &ev, &err) < 0);
	assert_int_equal(ev, 77);
	assert_non_null(strstr(err.message, "no:such_event"));
	lg_perf_set_free(set);
}

static void splits_a_callchain_into_kernel_and_user(void **state)
{
	uint64_t f[] = { 6, (uint64_t)PERF_CONTEXT_KERNEL, 0xffffffff81000010, 0xffffffff81000020,
			 (uint64_t)PERF_CONTEXT_USER, 0x4010, 0x4020, 99 };
	struct lg_perf_chain c;

	(void)state;
	assert_true(lg_perf_chain((const uint8_t *)f, sizeof f, &c));
	assert_int_equal(c.n_kernel, 2);
	assert_int_equal(c.kernel[1], 0xffffffff81000020);
	assert_int_equal(c.n_user, 2);
	assert_int_equal(c.user[0], 0x4010);
	assert_int_equal(c.bytes, 56);
	for (size_t n = 0; n < 56; n++)
		assert_false(lg_perf_chain((const uint8_t *)f, n, &c));
	f[0] = UINT64_MAX;
	assert_false(lg_perf_chain((const uint8_t *)f, sizeof f, &c));
}

static void a_hole_begins_at_the_record_before_it(void **state)
{
	struct lg_perf_lost l = { 0 };
	struct perf_event_header h = { .type = PERF_RECORD_LOST };
	uint64_t body[2] = { 5, 321 };
	struct lg_perf_head head = { .ts = 900, .body = (const uint8_t *)body, .n_body = 16 };
	struct lg_perf_hole hole;

	(void)state;
	lg_perf_lost_seen(&l, 3, 500);
	hole = lg_perf_lost_hole(&l, 3, &h, &head);
	assert_int_equal(hole.from, 500);
	assert_int_equal(hole.to, 900);
	assert_int_equal(hole.count, 321);
	head.ts = 950;
	assert_int_equal(lg_perf_lost_hole(&l, 3, &h, &head).from, 900);
	assert_int_equal(lg_perf_lost_hole(&l, 200, &h, &head).from, 950);
	lg_perf_lost_done(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(samples_this_process_on_the_monotonic_clock),
		cmocka_unit_test(a_full_ring_says_so_and_goes_on),
		cmocka_unit_test(tells_why_an_event_cannot_be_opened),
		cmocka_unit_test(splits_a_callchain_into_kernel_and_user),
		cmocka_unit_test(a_hole_begins_at_the_record_before_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
