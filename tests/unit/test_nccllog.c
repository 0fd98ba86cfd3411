/* SPDX-License-Identifier: Apache-2.0 */
#include "feed_trace.h"

static void facts_are_the_process_s(void **state)
{
	struct lg_trace *t = feed_fixture("nccllog/nccl.log", "NCCL log");

	(void)state;
	assert_string_equal(feed_meta(t, "dist.nccl"), "2.27.7+cuda13.0");
	assert_string_equal(feed_meta(t, "nccl.net"), "Socket");
	assert_string_equal(feed_meta(t, "nccl.max_bw"), "24.0");
	assert_string_equal(feed_meta(t, "nccl.via.net"), "1");
	assert_string_equal(feed_meta(t, "nccl.via.shm"), "1");
	assert_string_equal(feed_meta(t, "env.NCCL_SOCKET_IFNAME"), "eth0");
	assert_string_equal(feed_meta(t, "nccl.busbw_avg"), "62.88");
	assert_string_equal(feed_meta(t, "import.clock"), "none");
	assert_string_equal(feed_meta(t, "host.name"), "nodeA");
	assert_int_equal(t->process.n, 2);
	assert_int_equal(t->process.pid[1], 4711);
	assert_int_equal(t->process.rank[1], 3);
	assert_int_equal(t->process.world[1], 8);
	feed_expect_mark(t, "nccl.warn", 0, 0, "Connection refused");
	feed_expect_mark(t, "nccl.bandwidth", 0, 8388608, "busbw 62.88 GB/s");
	lg_trace_free(t);
}

static void a_process_of_several_ranks_has_none(void **state)
{
	struct lg_trace *t = feed_text("h:7:7 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 - Init START\n"
				       "h:7:8 [1] NCCL INFO comm 0x2 rank 1 nranks 2 cudaDev 1 - Init START\n",
				       "NCCL log");

	(void)state;
	assert_int_equal(t->process.rank[1], -1);
	assert_int_equal(t->process.world[1], 2);
	lg_trace_free(t);
}

static void lines_inside_a_job_log_are_found_too(void **state)
{
	struct lg_trace *t = feed_text("hello\nfoo\nbar\nbaz\n"
				       "[rank0]: UserWarning: flex_attention called without torch.compile\n"
				       "glued h:7:7 [0] NCCL WARN broken\n", "log");

	(void)state;
	feed_expect_mark(t, "nccl.warn", 0, 0, "broken");
	feed_expect_mark(t, "log.flex_eager", 0, 0, NULL);
	lg_trace_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(facts_are_the_process_s),
		cmocka_unit_test(a_process_of_several_ranks_has_none),
		cmocka_unit_test(lines_inside_a_job_log_are_found_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
