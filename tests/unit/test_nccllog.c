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

static void a_process_is_a_pid_of_a_host(void **state)
{
	struct lg_trace *t = feed_text("a:7:8 [0] NCCL INFO Using network IB\nb:7:8 [0] NCCL INFO Using network Socket\n"
				       "[1,3]<stdout>:c-d.e:7:8 [0] NCCL INFO Using network OFI\n", "NCCL log");
	static const char *const host[] = { "", "a", "b", "c-d.e" }, *const net[] = { "", "IB", "Socket", "OFI" };

	(void)state;
	assert_int_equal(t->process.n, 4);
	for (lg_prc p = 1; p < 4; p++) {
		assert_int_equal(t->process.pid[p], 7);
		assert_string_equal(lg_string(t, t->process.host[p]), host[p]);
		for (size_t i = 0; i < t->meta.n; i++)
			if (t->meta.prc[i] == p && !strcmp(lg_string(t, t->meta.key[i]), "nccl.net"))
				assert_string_equal(lg_string(t, t->meta.value[i]), net[p]);
	}
	lg_trace_free(t);
}

/* Writers of one stream break into each other's lines. */
static void broken_lines_are_counted_not_misread(void **state)
{
	struct lg_trace *t = feed_text("nodeA:7:8 [0] NCCL INFO cudaDriverVersion 12040\n"
				       "nodeB:9:9 [0] NCCL INFO cudaDriverVersion 12040\n"
				       "nodeA:7:8 [0] NCCL INFO Using network SocnodeB:9:9 [0] NCCL INFO Using network IB\n"
				       "some words -1nodeA:7:8 [0] NCCL INFO NCCL_ALGO set by environment to Ring\n"
				       "nodeA:7:8 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPnodeX:5:5 [0] NCCL INFO CC\n"
				       "nodeA:7:8 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IP\n"
				       "a-nodeA:7:8 [0] NCCL INFO cudaDriverVersion 11000\n", "NCCL log");

	(void)state;
	assert_int_equal(t->process.n, 4); /* a-nodeA is a name of its own: nothing stands before it */
	assert_int_equal(feed_diags(t, LG_DIAG_NOT_UNDERSTOOD), 1);
	assert_int_equal(t->diag.count[0], 2);
	assert_string_equal(feed_meta(t, "nccl.net"), "IB");
	assert_string_equal(feed_meta(t, "env.NCCL_ALGO"), "Ring");
	assert_string_equal(feed_meta(t, "nccl.link"), "");
	lg_trace_free(t);
}

static void warnings_name_their_place(void **state)
{
	struct lg_trace *t = feed_text("\nn:7:8 [3] transport/net_ib.cc:101 NCCL WARN NET/IB : mlx5_0:1 Got async event : "
				       "port error\n\nn:7:8 [3] NCCL WARN NET/IB : Got async event : port active\n"
				       "[2025-11-20 12:00:00] n:7:8 [3] misc/ibvwrap.cc:9 NCCL WARN Call to ibv_x failed\n",
				       "NCCL log");

	(void)state;
	feed_expect_mark(t, "nccl.warn", 0, 3, "mlx5_0:1");
	feed_expect_mark(t, "nccl.warn", 2, 3, "ibv_x");
	feed_expect_mark(t, "nccl.link_event", 0, 0, "hca=mlx5_0:1\twhat=port error\tfatal=0");
	feed_expect_mark(t, "nccl.link_event", 1, 0, "hca=\twhat=port active\tfatal=0");
	lg_trace_free(t);
}

static void what_a_communicator_is_set_up_with(void **state)
{
	struct lg_trace *t = feed_text(
		"n:7:8 [0] NCCL INFO Using network IBext_v8\n"
		"n:7:9 [1] NCCL INFO Using network Other\n"
		"n:7:8 [0] NCCL INFO comm 0x1 rank 5 nranks 16 cudaDev 0 nvmlDev 4 busId 9b000 commId 0xab - Init START\n"
		"n:7:8 [0] NCCL INFO === System : maxBw 24.0 totalBw 48.0 ===\n"
		"n:7:8 [0] NCCL INFO comm 0x1 rank 5 nRanks 16 nNodes 2 localRanks 8 localRank 5 MNNVL 0\n"
		"n:7:8 [0] NCCL INFO 24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels, 2 p2p channels "
		"per peer\n"
		"n:7:8 [0] NCCL INFO comm 0x1 rank 5 nranks 16 cudaDev 0 nvmlDev 4 busId 9b000 commId 0xab - Init COMPLETE\n"
		"n:7:8 [0] NCCL INFO 24 coll channels, 24 collnet channels, 0 nvls channels, 3\n", "NCCL log");

	(void)state;
	assert_int_equal(feed_marks(t, "nccl.comm"), 1);
	feed_expect_mark(t, "nccl.comm", 0, 16, "rank=5\tdev=4\tnodes=2\tlocal=8\tid=0xab\tnet=IBext_v8\tcoll=24\tp2p=32\t"
		       "nvls=16\tbw=24.0\ttotal=48.0\tnth=0\tagain=0");
	lg_trace_free(t);
}

/* The columns changed with the versions, and NCCL's own lines stand in the middle of rows. */
static void results_of_every_layout(void **state)
{
	struct lg_trace *t = feed_text(
		"# nThread 1 nGpus 2 minBytes 8 maxBytes 128\n# Using devices\n"
		"#   Rank  0 Pid   1320 on h-1 device  0 [0x00] GPU\n#  Rank  1 Group  0 Pid   1321 on h-1 device  1 [0x01] GPU\n"
		"#       size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n"
		"  64  16  float  sum  -1  10094  1.50  2.50  0  99.0  3.50  4.50  0\n"
		"  65  16  float  sum  9.5  1.51  2.51  0e+00  9.4  3.51  4.51  0e+00\n"
		"  66  16  float  16.57  1.52  2.52  0e+00  13.83  3.52  4.52  0e+00\n"
		"[1,0]<stdout>:  67  16  float  none  -1  9.5  1.53  2.53  N/A  9.4  3.53  4.53  N/A\n"
		"  68  16  float  sum  -1h-1:1320:1320 [0] NCCL INFO AllReduce: opCount 0\n"
		"h-1:1320:1320 [0] NCCL INFO AllReduce: opCount 1\n"
		"  9.5  1.54  2.54  0h-1:1320:1320 [0] NCCL INFO AllReduce: opCount 2\n  9.4  3.54  4.54  0\n"
		"  12  13  14\n  1  100  train  2.31  0.50  0.10  9  1.0  2.0  3.0  0\n", "NCCL log");
	char want[64];

	(void)state;
	assert_int_equal(feed_marks(t, "nccl.bandwidth"), 5);
	for (int i = 0; i < 5; i++) {
		snprintf(want, sizeof want, "bus=2.5%.*d\tin_place=4.5%.*d", i > 0, i, i > 0, i);
		feed_expect_mark(t, "nccl.bandwidth", i, 64 + i, want);
		feed_expect_mark(t, "nccl.bandwidth", i, 64 + i, "count=16\tranks=2");
		assert_int_equal(t->process.pid[t->thread.prc[t->mark.thr[feed_mark(t, "nccl.bandwidth", i)]]], 1320);
	}
	feed_expect_mark(t, "nccl.bandwidth", 0, 64, "10094.00 us");
	lg_trace_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(facts_are_the_process_s),
		cmocka_unit_test(a_process_of_several_ranks_has_none),
		cmocka_unit_test(lines_inside_a_job_log_are_found_too),
		cmocka_unit_test(a_process_is_a_pid_of_a_host),
		cmocka_unit_test(broken_lines_are_counted_not_misread),
		cmocka_unit_test(warnings_name_their_place),
		cmocka_unit_test(what_a_communicator_is_set_up_with),
		cmocka_unit_test(results_of_every_layout),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
