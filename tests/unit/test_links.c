/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_links.c - comms.degraded_link: logs of made-up jobs, read and judged; for each branch one that has the
 * fault and a healthy twin.
 */
#include "floor.h"

#include "base/alloc.h"
#include "feed_trace.h"

enum fault {
	HEALTHY, SOCKET, SOCKET_SET, SHM, SHM_SET, SHM_SET_OLD, INDIRECT, NO_GDR, ADAPTER, SLOW_ADAPTER,
	NO_NVLS, NO_NVLS_THERE, TOPOLOGY, CHANNELS, CHANNELS_SET, LOCAL_NET, OTHER_ORDER, PORT, FATAL
};

struct job {
	int hosts, gpus;
	enum fault fault;
	int first, last; /* hosts that have it */
	bool one_process, same_pid, old, smaller; /* old: NCCL 2.10; smaller: bad hosts have one GPU less */
	const char *set_everywhere;
	int part;            /* of 1000: TOPOLOGY leaves so much; 0 = half */
};

struct text {
	char *p;
	size_t n, cap;
};

static void put(struct text *t, const char *fmt, ...) LG_PRINTF(2, 3);
static void put(struct text *t, const char *fmt, ...)
{
	va_list ap;
	int k;

	if (t->cap - t->n < 1024)
		t->p = realloc(t->p, t->cap = 2 * t->cap + 4096);
	va_start(ap, fmt);
	k = vsnprintf(t->p + t->n, t->cap - t->n, fmt, ap);
	va_end(ap);
	assert_true(k >= 0 && (size_t)k < t->cap - t->n);
	t->n += (size_t)k;
}

/* One rank's lines; what: which of its parts, so that ranks interleave. */
static void rank_lines(struct text *t, const struct job *j, int h, int g, int what)
{
	bool bad = j->fault && h >= j->first && h <= j->last;
	int gpus = j->gpus - (bad && j->smaller), r = h * j->gpus + g, world = j->hosts * j->gpus;
	int pid = j->one_process ? 500 + (j->same_pid ? 0 : h) : 1000 + g + (j->same_pid ? 0 : 100 * h);
	const char *net = bad && (j->fault == SOCKET || j->fault == SOCKET_SET) ? "Socket" : "IB";
	bool gdr = strcmp(net, "Socket") && !(bad && j->fault == NO_GDR);
	char me[64], dev[3][16];
	enum fault f = bad ? j->fault : HEALTHY;
	double bw = f == TOPOLOGY ? 0.24 * (j->part ? j->part : 500) : 240;

	if (g >= gpus)
		return;
	snprintf(me, sizeof me, "node%d:%d:%d [%d] NCCL INFO", h, pid, pid + 50 + g, g);
	for (int i = 0; i < 3; i++)
		snprintf(dev[i], sizeof dev[i], j->old ? "%x000" : "%d", j->old ? 0x1b + 16 * ((g + i) % j->gpus)
									       : (g + i) % j->gpus);
	if (what == 0) {
		put(t, "%s cudaDriverVersion 12040\n", me);
		if (j->set_everywhere)
			put(t, "%s %s\n", me, j->set_everywhere);
		if (f == SHM_SET)
			put(t, "%s NCCL_P2P_DISABLE set by environment to 1.\n", me);
		if (f == SHM_SET_OLD)
			put(t, "%s NCCL_P2P_LEVEL set by environment to LOC\n", me);
		if (f == SOCKET_SET)
			put(t, "%s NCCL_IB_DISABLE set by environment to 1.\n", me);
		if (f == CHANNELS_SET)
			put(t, "%s NCCL_MAX_NCHANNELS set by environment to 2.\n", me);
		if (f == SOCKET)
			put(t, "%s NET/IB : No device found.\n", me);
		for (int i = 0; i < 4 && strcmp(net, "Socket"); i++)
			put(t, "%s NET/IB: [%d] mlx5_%d:uverbs%d:1/IB provider=Mlx5 speed=%d context=0x7f pciPath=/sys/x ar=1\n",
			    me, i, i, i, f == SLOW_ADAPTER && i == 2 ? 100000 : 400000);
		if (strcmp(net, "Socket"))
			put(t, "%s NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB %s[RO]; OOB eth0:10.0.0.1<0>\n", me,
			    f == ADAPTER ? "" : "[2]mlx5_2:1/IB [3]mlx5_3:1/IB ");
		put(t, "%s Using network %s\n", me, net);
	} else if (what == 1) {
		if (!j->old)
			put(t, "%s ncclCommInitRankConfig comm 0x55%x rank %d nranks %d cudaDev %d nvmlDev %d busId %d000 commId "
			       "0x54fe - Init START\n", me, r, r, world, g, g, g + 1);
		for (int i = 0; i < 2 && !j->old; i++)
			put(t, "%s NET/IB : GPU Direct RDMA %s for HCA %d 'mlx5_%d'%s\n", me,
			    f == NO_GDR ? "Disabled" : "Enabled", i, i, f == NO_GDR ? " (no module)" : "");
		put(t, j->old ? "%s === System : maxWidth %.1f totalWidth %.1f ===\n"
			      : "%s === System : maxBw %.1f totalBw %.1f ===\n", me, bw, bw);
		if (!j->old)
			put(t, "%s NVLS multicast support is %savailable on dev %d\n", me, f == NO_NVLS ? "not " : "", g);
		if (!j->old)
			put(t, "%s comm 0x55%x rank %d nRanks %d nNodes %d localRanks %d localRank %d MNNVL 0\n", me, r, r, world,
			    j->hosts, gpus, g);
		put(t, j->old ? "%s 16 coll channels, 16 p2p channels, 2 p2p channels per peer\n"
			      : "%s 16 coll channels, 16 collnet channels, 0 nvls channels, 16 p2p channels, 2 p2p channels per "
				"peer\n", me);
		if (j->old)
			put(t, "%s comm 0x55%x rank %d nranks %d cudaDev %d busId %s - Init COMPLETE\n", me, r, r, world, g, dev[0]);
		else
			put(t, "%s ncclCommInitRankConfig comm 0x55%x rank %d nranks %d cudaDev %d nvmlDev %d busId %d000 commId "
			       "0x54fe - Init COMPLETE\n", me, r, r, world, g, g, g + 1);
	} else if (what == 2) {
		/* Another numbering: the same machine, its slots counted from the other end. */
		bool near = g % 2 == (f == OTHER_ORDER);
		const char *way = f == SHM || f == SHM_SET || f == SHM_SET_OLD ? j->old ? "direct shared memory" : "SHM/direct/direct"
				  : f == INDIRECT ? "P2P/indirect/9[9]" : j->old ? "P2P/IPC" : "P2P/CUMEM/read";

		if (j->fault == OTHER_ORDER && !near)
			way = "SHM/direct/direct";
		for (int c = 0; c < 2; c++) {
			if (g + 1 < gpus && f == LOCAL_NET)
				put(t, "%s Channel %02d/0 : %d[%s] -> %d[%s] [send] via NET/IB/%d/GDRDMA\n", me, c, r,
				    dev[0], r + 1, dev[1], c);
			else if (g + 1 < gpus)
				put(t, j->old ? "%s Channel %02d : %d[%s] -> %d[%s] via %s\n"
					      : "%s Channel %02d/0 : %d[%s] -> %d[%s] via %s\n", me, c, r, dev[0], r + 1, dev[1], way);
			else
				put(t, "%s Channel %02d/0 : %d[%s] -> %d[%s] [send] via NET/%s/%d(4)%s/Shared\n", me, c, r, dev[0],
				    (r + 1) % world, dev[1], net, c, gdr ? "/GDRDMA" : "");
			if (!g)
				put(t, "%s Channel %02d/0 : %d[9] -> %d[%s] [receive] via NET/%s/%d%s\n", me, c, (r + world - 1) % world,
				    r, dev[0], net, c, gdr ? "/GDRDMA" : "");
		}
	} else if (what == 3 && !j->old) { /* a communicator of the host's own devices */
		bool few = f == CHANNELS || f == CHANNELS_SET || f == SHM || f == SHM_SET;

		put(t, "%s ncclCommSplit comm 0x66%x rank %d nranks %d cudaDev %d nvmlDev %d busId %d000 parent 0x55 splitCount 1 "
		       "color %d key %d- Init START\n", me, r, g, gpus, g, g, g + 1, h, g);
		put(t, "%s comm 0x66%x rank %d nRanks %d nNodes 1 localRanks %d localRank %d MNNVL 0\n", me, r, g, gpus, gpus, g);
		put(t, "%s %d coll channels, %d collnet channels, %d nvls channels, 32 p2p channels, 32 p2p channels per peer\n", me,
		    few ? 2 : 24, few ? 2 : 24, f == NO_NVLS_THERE ? 0 : 16);
		put(t, "%s ncclCommSplit comm 0x66%x rank %d nranks %d cudaDev %d nvmlDev %d busId %d000 parent 0x55 splitCount 1 "
		       "color %d key %d - Init COMPLETE\n", me, r, g, gpus, g, g, g + 1, h, g);
	} else if (what == 4 && (f == PORT || f == FATAL)) {
		static const char *const words[] = { "Got async event : port error", "Got async error event: port error",
						     "Got non-fatal async event: port error(10)" };

		snprintf(me, sizeof me, "node%d:%d:%d [%d]", h, pid, pid + 50 + g, g);
		if (f == FATAL) {
			put(t, "\n%s transport/net_ib.cc:190 NCCL WARN NET/IB : mlx5_1:1 async fatal event on QP (0x7f00): QP access "
			       "violation\n", me);
			put(t, "\n%s transport/net_ib.cc:1909 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<33057> with "
			       "status=12 opcode=0 len=0 vendor err 129 (Send)\n", me);
			put(t, "%s NCCL INFO RAS declaring peer 10.0.0.2<5> as DEAD; rasDeadPeersHash 0x1\n", me);
			put(t, "%s NCCL INFO RAS dead peer 0: socket 10.0.0.2<5>, pid 4, GPU 1\n", me);
			return;
		}
		for (int i = 0; i < 2; i++)
			put(t, "\n%s transport/net_ib.cc:101 NCCL WARN NET/IB : mlx5_1:1 %s\n", me, words[(g + i) % 3]);
		put(t, "\n%s transport/net_ib.cc:101 NCCL WARN NET/IB : mlx5_1:1 Got async event : port active\n", me);
	}
}

static struct text log_of(const struct job *j)
{
	struct text t = { 0 };

	for (int what = 0; what < 5; what++)
		for (int g = 0; g < j->gpus; g++)
			for (int h = 0; h < j->hosts; h++)
				rank_lines(&t, j, h, g, what);
	return t;
}

static struct outcome judge_text(const char *text, const char *format)
{
	return judge(feed_text(text, format));
}

static struct outcome judge_job(const struct job *j)
{
	struct text t = log_of(j);
	struct outcome o = judge_text(t.p, "NCCL log");

	free(t.p);
	return o;
}

static void assert_quiet(const struct outcome *o)
{
	for (size_t i = 0; i < o->v->n_findings; i++)
		fail_msg("healthy, but %s: %s", o->v->findings[i].detail, o->v->findings[i].title);
}

/* The only finding, with that detail. */
static const struct lg_finding *only(const struct outcome *o, const char *detail)
{
	if (!o->v->n_findings)
		fail_msg("nothing found, wanted %s", detail);
	if (o->v->n_findings > 1)
		fail_msg("two findings: %s; %s", o->v->findings[0].title, o->v->findings[1].title);
	assert_string_equal(o->v->findings[0].id, "comms.degraded_link");
	assert_string_equal(o->v->findings[0].detail, detail);
	assert_true(isnan(o->v->findings[0].lost_ms) && isnan(o->v->findings[0].lost_share));
	return &o->v->findings[0];
}

static bool told(const struct lg_finding *f, const char *words)
{
	for (size_t i = 0; i < f->n_evidence; i++)
		if (strstr(f->evidence[i].text, words))
			return true;
	return false;
}

static void assert_words(const char *text, const char *words)
{
	if (!strstr(text, words))
		fail_msg("\"%s\" is not in \"%s\"", words, text);
}

static void one_host_is_worse(void **state)
{
	static const struct {
		enum fault fault;
		const char *detail, *has, *usual;
	} row[] = {
		{ SOCKET, "network", "Socket", "IB" }, { SHM, "transport", "shared memory", "direct P2P" },
		{ INDIRECT, "transport", "indirect", "direct P2P" },
		{ LOCAL_NET, "transport", "by the network", "direct P2P" },
		{ NO_GDR, "gdr", "without GPU Direct RDMA", "with GPU Direct RDMA" },
		{ ADAPTER, "adapters", "2 adapters", "4 adapters" },
		{ SLOW_ADAPTER, "adapter_speed", "100 Gbit/s", "400 Gbit/s" },
		{ NO_NVLS, "nvls", "without NVLS", "with NVLS" },
		{ NO_NVLS_THERE, "nvls", "without NVLS", "with NVLS" }, { TOPOLOGY, "topology", "120.0 GB/s", "240.0 GB/s" },
		{ CHANNELS, "channels", "2 channels", "24 channels" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct outcome o = judge_job(&(struct job){ .hosts = 4, .gpus = 4, .fault = row[i].fault,
							    .first = 2, .last = 2 });
		const struct lg_finding *f = only(&o, row[i].detail);

		assert_words(f->title, "node2 (ranks 8-11)");
		assert_words(f->title, row[i].has);
		assert_words(f->title, row[i].usual);
		assert_int_equal(f->severity, LG_SEVERITY_MEDIUM);
		assert_int_equal(f->culprit.relation, LG_RELATION_HARDWARE);
		assert_true(f->confidence >= 0.8);
		assert_true(has_limit(o.v, "4 hosts, 16 ranks"));
		done(&o);
	}
}

/* Ranks of the first host are those of its own communicator, too. */
static void the_network_inside_the_first_host(void **state)
{
	struct outcome o = judge_job(&(struct job){ .hosts = 4, .gpus = 4, .fault = LOCAL_NET });

	(void)state;
	assert_words(only(&o, "transport")->title, "GPUs of node0 (ranks 0-3) are connected by the network");
	done(&o);
}

/* libfabric has sockets of its own to fall back to, and NCCL calls both by one name. */
static struct outcome over_libfabric(const char *provider, int nics)
{
	struct text t = { 0 };
	struct outcome o;

	for (int h = 0; h < 3; h++)
		put(&t, "h%d:9:10 [0] NCCL INFO NET/OFI Selected Provider is %s (found %d nics)\n"
			"h%d:9:10 [0] NCCL INFO Using network AWS Libfabric\n", h, h == 1 ? provider : "efa", h == 1 ? nics : 4, h);
	o = judge_text(t.p, "NCCL log");
	free(t.p);
	return o;
}

static void libfabric_s_provider_counts(void **state)
{
	struct outcome o = over_libfabric("tcp;ofi_rxm", 1);
	const struct lg_finding *f = only(&o, "network");

	(void)state;
	assert_words(f->title, "the network of h1 is tcp;ofi_rxm");
	assert_true(told(f, "1 adapter"));
	done(&o);
	o = over_libfabric("efa", 3);
	(void)only(&o, "adapters");
	done(&o);
	o = over_libfabric("efa", 4);
	assert_quiet(&o);
	done(&o);
}

static void all_alike_is_healthy(void **state)
{
	static const enum fault everywhere[] = { HEALTHY, SOCKET, SOCKET_SET, SHM_SET, INDIRECT, LOCAL_NET,
						 NO_GDR, ADAPTER, SLOW_ADAPTER, NO_NVLS, NO_NVLS_THERE,
						 TOPOLOGY, CHANNELS };

	(void)state;
	for (size_t i = 0; i < sizeof everywhere / sizeof *everywhere; i++) {
		struct outcome o = judge_job(&(struct job){ .hosts = 4, .gpus = 4, .fault = everywhere[i],
							    .last = 3 });

		assert_quiet(&o);
		assert_true(has_limit(o.v, "nothing stands out"));
		done(&o);
	}
}

static void one_host_alone_is_not_judged(void **state)
{
	struct outcome o = judge_job(&(struct job){ .hosts = 1, .gpus = 4, .fault = OTHER_ORDER });

	(void)state;
	assert_quiet(&o); /* some pairs through memory, some directly: a topology */
	assert_true(has_limit(o.v, "1 host, 4 ranks"));
	assert_true(has_limit(o.v, "nothing to compare it with"));
	done(&o);
}

static void devices_in_another_order_are_not_worse(void **state)
{
	struct outcome o = judge_job(&(struct job){ .hosts = 4, .gpus = 5, .fault = OTHER_ORDER, .first = 1,
						    .last = 1 });

	(void)state;
	assert_quiet(&o);
	done(&o);
}

static void a_setting_is_the_reason(void **state)
{
	struct outcome o = judge_job(&(struct job){ .hosts = 3, .gpus = 2, .fault = SHM_SET, .first = 1,
						    .last = 1 });
	const struct lg_finding *f = only(&o, "transport");

	(void)state;
	assert_words(f->title, "NCCL_P2P_DISABLE=1 is set there");
	assert_words(f->fix, "unset NCCL_P2P_DISABLE");
	assert_int_equal(f->culprit.relation, LG_RELATION_SELF);
	assert_true(told(f, "2 channels")); /* a consequence, no finding of its own */
	done(&o);

	o = judge_job(&(struct job){ .hosts = 3, .gpus = 2, .fault = SOCKET_SET, .first = 1, .last = 1 });
	f = only(&o, "network");
	assert_words(f->fix, "unset NCCL_IB_DISABLE");
	done(&o);

	o = judge_job(&(struct job){ .hosts = 3, .gpus = 2, .fault = CHANNELS_SET, .first = 1, .last = 1,
				     .set_everywhere = "NCCL_SOCKET_IFNAME set by environment to eth0" });
	f = only(&o, "channels");
	assert_words(f->title, "NCCL_MAX_NCHANNELS=2");
	assert_null(strstr(f->title, "IFNAME"));
	done(&o);

	/* What all have explains nothing. */
	o = judge_job(&(struct job){ .hosts = 3, .gpus = 2, .fault = SHM, .first = 1, .last = 1,
				     .set_everywhere = "NCCL_P2P_DISABLE set by environment to 1." });
	f = only(&o, "transport");
	assert_null(strstr(f->title, "NCCL_P2P_DISABLE"));
	assert_int_equal(f->culprit.relation, LG_RELATION_HARDWARE);
	done(&o);
}

static void one_peer_is_little(void **state)
{
	struct outcome o = judge_job(&(struct job){ .hosts = 2, .gpus = 4, .fault = SHM, .first = 1,
						    .last = 1 });
	const struct lg_finding *f = only(&o, "transport");

	(void)state;
	assert_int_equal(f->severity, LG_SEVERITY_LOW);
	assert_true(f->confidence < 0.7 && f->n_against > 0);
	done(&o);

	o = judge_job(&(struct job){ .hosts = 2, .gpus = 4, .fault = SHM_SET, .first = 1, .last = 1 });
	f = only(&o, "transport");
	assert_int_equal(f->severity, LG_SEVERITY_MEDIUM);
	done(&o);
}

static void without_a_majority_nothing_is_usual(void **state)
{
	struct outcome o = judge_job(&(struct job){ .hosts = 4, .gpus = 4, .fault = SHM, .first = 2,
						    .last = 3 });

	(void)state;
	assert_quiet(&o);
	assert_true(has_limit(o.v, "no majority"));
	done(&o);
}

static void several_hosts_with_one_fault_are_one_finding(void **state)
{
	struct outcome o = judge_job(&(struct job){ .hosts = 6, .gpus = 2, .fault = SHM_SET, .first = 1,
						    .last = 2 });
	const struct lg_finding *f = only(&o, "transport");

	(void)state;
	assert_words(f->title, "node1 and node2 (ranks 2-5)");
	done(&o);
}

static void hosts_of_another_size_may_be_of_another_kind(void **state)
{
	struct outcome o = judge_job(&(struct job){ .hosts = 4, .gpus = 4, .fault = SHM, .first = 2,
						    .last = 2, .smaller = true });

	(void)state;
	assert_int_equal(loud(o.v), 0);
	done(&o);
}

static void processes_of_several_hosts_may_share_a_pid(void **state)
{
	struct job j = { .hosts = 4, .gpus = 4, .fault = SHM, .first = 2, .last = 2, .same_pid = true };
	struct outcome o = judge_job(&j);

	(void)state;
	assert_words(only(&o, "transport")->title, "node2 (ranks 8-11)");
	assert_int_equal(o.t->process.n, 17);
	done(&o);
	j.one_process = true; /* threads with a device each */
	o = judge_job(&j);
	assert_words(only(&o, "transport")->title, "node2 (ranks 8-11)");
	assert_int_equal(o.t->process.n, 5);
	assert_true(only(&o, "transport")->culprit.pid == 500);
	done(&o);
}

static void old_versions_name_devices_by_their_bus(void **state)
{
	struct job j = { .hosts = 4, .gpus = 4, .fault = SHM_SET_OLD, .first = 2, .last = 2, .old = true };
	struct outcome o = judge_job(&j);

	(void)state;
	assert_words(only(&o, "transport")->title, "NCCL_P2P_LEVEL=LOC");
	assert_true(told(only(&o, "transport"), "device 1b000 to 2b000"));
	done(&o);
	j.fault = HEALTHY;
	o = judge_job(&j);
	assert_quiet(&o);
	done(&o);
	j.fault = TOPOLOGY;
	o = judge_job(&j);
	(void)only(&o, "topology");
	done(&o);
}

static void ports_that_fail_are_named(void **state)
{
	struct outcome o = judge_job(&(struct job){ .hosts = 2, .gpus = 3, .fault = PORT, .first = 1,
						    .last = 1 });
	const struct lg_finding *f = only(&o, "port_error");

	(void)state;
	/* Every process tells of the same two events. */
	assert_words(f->title, "port mlx5_1:1 of node1 lost its link 2 times and came back");
	done(&o);
	o = judge_job(&(struct job){ .hosts = 2, .gpus = 3, .fault = FATAL, .first = 1, .last = 1 });
	assert_quiet(&o);
	assert_true(has_limit(o.v, "3 transfers ended with an error, 3 fatal events of adapters, 3 reports"));
	done(&o);
}

/* ---- communicators among their siblings, and again ---- */

static void communicator(struct text *t, int h, int g, int pid, int rank, int nranks, int nodes, int local,
			 int id, const char *net, int channels)
{
	char me[64];

	snprintf(me, sizeof me, "node%d:%d:%d [%d] NCCL INFO", h, pid, pid + 1, g);
	put(t, "%s Using network %s\n", me, net);
	put(t, "%s ncclCommInitRank comm 0x%x rank %d nranks %d cudaDev %d nvmlDev %d busId 1b000 commId 0x%x - Init START\n", me,
	    id + g, rank, nranks, g, g, id);
	put(t, "%s comm 0x%x rank %d nRanks %d nNodes %d localRanks %d localRank 0 MNNVL 0\n", me, id + g, rank, nranks, nodes,
	    local);
	put(t, "%s %d coll channels, %d collnet channels, 0 nvls channels, %d p2p channels, 2 p2p channels per peer\n", me,
	    channels, channels, channels);
	put(t, "%s ncclCommInitRank comm 0x%x rank %d nranks %d cudaDev %d nvmlDev %d busId 1b000 commId 0x%x - Init COMPLETE\n",
	    me, id + g, rank, nranks, g, g, id);
}

static void destroyed(struct text *t, int h, int g, int pid, int rank, int nranks, int id)
{
	put(t, "node%d:%d:%d [%d] NCCL INFO comm 0x%x rank %d nranks %d cudaDev %d busId 1b000 - Destroy COMPLETE\n", h, pid,
	    pid + 1, g, id + g, rank, nranks, g);
}

/* Data-parallel groups: device g of all hosts. */
static struct outcome siblings(int bad, int n_bad)
{
	struct text t = { 0 };
	struct outcome o;

	for (int g = 0; g < 8; g++)
		for (int h = 0; h < 2; h++)
			communicator(&t, h, g, 100 + g, h, 2, 2, 1, 0x100 * (g + 1), "IB",
				     g >= bad && g < bad + n_bad ? 2 : 16);
	o = judge_text(t.p, "NCCL log");
	free(t.p);
	return o;
}

static void a_communicator_is_compared_with_its_siblings(void **state)
{
	struct outcome o = siblings(5, 1);
	const struct lg_finding *f = only(&o, "channels");

	(void)state;
	assert_words(f->title, "device 5 has 2 channels, 7 of its 7 siblings have 16 channels");
	assert_true(f->n_against > 0);
	done(&o);
	o = siblings(0, 0);
	assert_quiet(&o);
	done(&o);
	o = siblings(5, 3); /* too many for a fault of one */
	assert_quiet(&o);
	done(&o);
	o = siblings(4, 4); /* half of the devices are far from the adapter */
	assert_quiet(&o);
	done(&o);
}

/* Groups of two hosts have 16 channels each, one has 2, because one of its hosts lost its network. */
static void company_is_no_guilt(void **state)
{
	struct text t = { 0 };
	struct outcome o;
	const struct lg_finding *f;

	(void)state;
	for (int h = 0; h < 8; h++)
		for (int g = 0; g < 2; g++)
			communicator(&t, h, g, 100 + g, h % 2 * 2 + g, 4, 2, 2, 0x1000 * (h / 2 + 1), h == 5 ? "Socket" : "IB",
				     h / 2 == 2 ? 2 : 16);
	o = judge_text(t.p, "NCCL log");
	f = only(&o, "network");
	assert_words(f->title, "node5");
	assert_null(strstr(f->title, "node4"));
	done(&o);
	free(t.p);
}

/* The same ranks, set up again: later in the same processes, or by their successors. */
static struct outcome again(bool destroy, int pid, const char *net, int channels, int nodes)
{
	struct text t = { 0 };
	struct outcome o;

	for (int g = 0; g < 4; g++)
		communicator(&t, 0, g, 100 + g, g, 4, 1, 4, 0x100, "IB", 16);
	for (int g = 0; g < 4 && destroy; g++)
		destroyed(&t, 0, g, 100 + g, g, 4, 0x100);
	for (int g = 0; g < 4; g++)
		communicator(&t, 0, g, pid + g, g, 4, nodes, 4 / nodes, 0x200, net, channels);
	o = judge_text(t.p, "NCCL log");
	free(t.p);
	return o;
}

static void what_comes_back_worse_is_compared_with_its_past(void **state)
{
	struct outcome o = again(true, 100, "IB", 4, 1);

	(void)state;
	assert_words(only(&o, "channels")->title, "4 ranks was set up again with 4 channels, it had 16 channels before");
	done(&o);
	o = again(false, 300, "Socket", 16, 1);
	assert_words(only(&o, "network")->title, "network Socket, it had network IB before");
	done(&o);
	o = again(true, 100, "IB", 16, 1);
	assert_quiet(&o);
	done(&o);
	o = again(false, 300, "IB", 24, 1);
	assert_quiet(&o);
	done(&o);
	o = again(true, 100, "IB", 4, 2); /* ranks lie on more hosts than before */
	assert_quiet(&o);
	done(&o);
	o = again(false, 100, "IB", 4, 1); /* a second one beside the first may be asked for fewer */
	assert_quiet(&o);
	done(&o);
}

/* ---- nccl-tests ---- */

static void run_of(struct text *t, const char *host, int pid, int cycles, int drop_at, double factor,
		   double noise)
{
	put(t, "# Collective test starting: all_reduce_perf\n# nThread 1 nGpus 2 minBytes 1048576 maxBytes 4194304\n#\n"
	       "# Using devices\n");
	for (int g = 0; g < 2; g++)
		put(t, "#  Rank  %d Group  0 Pid  %d on %s device  %d [0000:1%d:00] GPU\n", g, pid, host, g, g);
	put(t, "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw "
	       "#wrong\n");
	for (int i = 0; i < cycles; i++)
		for (int k = 0; k < 3; k++) {
			double bus = 100 * (k + 1) * (i >= drop_at ? factor : 1) *
				     (1 + noise * ((i * 7 + k * 3) % 5 - 2));

			put(t, "  %d  %d  float  sum  -1  99.1  %.2f  %.2f  0  98.2  %.2f  %.2f  0\n", 1 << (20 + k), 1 << (18 + k),
			    bus, bus, bus, bus);
		}
}

static struct outcome repeated(int cycles, int drop_at, double factor, double noise)
{
	struct text t = { 0 };
	struct outcome o;

	run_of(&t, "h0", 77, cycles, drop_at, factor, noise);
	o = judge_text(t.p, "NCCL log");
	free(t.p);
	return o;
}

static void bandwidth_that_falls_and_stays_low(void **state)
{
	struct outcome o = repeated(10, 6, 0.6, 0.02);
	const struct lg_finding *f = only(&o, "own_bandwidth");

	(void)state;
	assert_words(f->title, "fell by");
	assert_true(told(f, "6 times before the drop") && told(f, "4 times after"));
	done(&o);
	o = repeated(10, 99, 1, 0.02);
	assert_quiet(&o);
	done(&o);
	o = repeated(10, 6, 0.95, 0.01); /* less than a tenth */
	assert_quiet(&o);
	done(&o);
	o = repeated(10, 6, 0.85, 0.10); /* the values overlap */
	assert_quiet(&o);
	done(&o);
	o = repeated(4, 2, 0.5, 0.01); /* too few */
	assert_quiet(&o);
	done(&o);
}

static struct outcome runs(int n, int bad, double factor, double noise)
{
	struct lg_import_info info[8];
	struct lg_trace *t = NULL;
	struct lg_error err = { 0 };
	const char *path[8] = { 0 };
	struct outcome o;

	for (int i = 0; i < n; i++) {
		struct text x = { 0 };
		char host[8];

		snprintf(host, sizeof host, "h%d", i);
		run_of(&x, host, 77, 2, 0, (i == bad ? factor : 1) * (1 + noise * (i % 3 - 1)), 0.005);
		path[i] = feed_file(x.p, x.n);
		free(x.p);
	}
	if (lg_import(path, (size_t)n, &t, info, &err))
		fail_msg("%s", err.message);
	for (int i = 0; i < n; i++)
		unlink(path[i]);
	o = judge(t);
	return o;
}

static void one_run_among_others(void **state)
{
	struct outcome o = runs(5, 3, 0.7, 0.01);
	const struct lg_finding *f = only(&o, "run_bandwidth");

	(void)state;
	assert_words(f->title, "the run on h3 (pid 77) measures 3");
	assert_int_equal(f->severity, LG_SEVERITY_MEDIUM);
	done(&o);
	o = runs(5, 3, 1, 0.01);
	assert_quiet(&o);
	done(&o);
	o = runs(5, 3, 0.8, 0.12); /* the others differ by as much */
	assert_quiet(&o);
	done(&o);
	o = runs(2, 1, 0.7, 0);
	f = only(&o, "run_bandwidth");
	assert_int_equal(f->severity, LG_SEVERITY_LOW);
	assert_true(f->n_against > 0);
	done(&o);
	o = runs(2, 1, 0.9, 0);
	assert_quiet(&o);
	done(&o);
}

/* ---- from where on (floor.h) ---- */

static struct outcome fallen_to(const struct floor *f, int64_t x)
{
	(void)f;
	return repeated(10, 6, (double)x / 1000, 0.001);
}

static struct outcome one_of_five_at(const struct floor *f, int64_t x)
{
	(void)f;
	return runs(5, 3, (double)x / 1000, 0.001);
}

static struct outcome one_of_two_at(const struct floor *f, int64_t x)
{
	(void)f;
	return runs(2, 1, (double)x / 1000, 0);
}

static struct outcome topology_of(const struct floor *f, int64_t x)
{
	(void)f;
	return judge_job(&(struct job){ .hosts = 4, .gpus = 2, .fault = TOPOLOGY, .first = 1, .last = 1,
					.part = (int)x });
}

/* The way back between two of a host's devices has so much of the 240 GB/s there. */
static struct outcome way_back_of(const struct floor *f, int64_t x)
{
	struct job j = { .hosts = 1, .gpus = 2 };
	struct text t = log_of(&j);
	struct outcome o;

	(void)f;
	put(&t, "node0:1000:1050 [0] NCCL INFO GPU/1000 :GPU/1000 (0/5000.0/LOC) GPU/2000 (1/240.0/NVL)\n"
		"node0:1000:1050 [0] NCCL INFO GPU/2000 :GPU/1000 (1/%.1f/NVL) GPU/2000 (0/5000.0/LOC)\n",
	    0.24 * (double)x);
	o = judge_text(t.p, "NCCL log");
	free(t.p);
	return o;
}

/* nccl-tests on the devices of one host: its best has so much of the 240 GB/s there. */
static struct outcome sweep_of(const struct floor *f, int64_t x)
{
	struct job j = { .hosts = 1, .gpus = 2 };
	struct text t = log_of(&j);
	struct outcome o;
	double bus = 0.24 * (double)x;

	(void)f;
	run_of(&t, "node0", 1000, 0, 0, 1, 0);
	put(&t, "  1073741824  268435456  float  sum  -1  99.1  %.2f  %.2f  0  98.2  %.2f  %.2f  0\n", bus, bus, bus, bus);
	o = judge_text(t.p, "NCCL log");
	free(t.p);
	return o;
}

static void told_from_its_threshold_on(void **state)
{
	static const struct {
		struct floor f;
		floor_run *run;
	} rows[] = {
		{ { "comms.degraded_link", 0.89, 0.905, { NULL }, 990, .told = 500, .truth = per_mille,
		    .says = "own_bandwidth" }, fallen_to },
		{ { "comms.degraded_link", 0.89, 0.905, { NULL }, 990, .told = 500, .truth = per_mille,
		    .says = "run_bandwidth" }, one_of_five_at },
		{ { "comms.degraded_link", 0.79, 0.805, { NULL }, 990, .told = 500, .truth = per_mille,
		    .says = "run_bandwidth" }, one_of_two_at },
		{ { "comms.degraded_link", 0.79, 0.805, { NULL }, 990, .told = 300, .truth = per_mille,
		    .loudly = true }, topology_of },
		{ { "comms.degraded_link", 0.49, 0.5, { NULL }, 990, .told = 100, .truth = per_mille,
		    .says = "one_way" }, way_back_of },
		{ { "comms.degraded_link", 0.24, 0.25, { NULL }, 990, .told = 100, .truth = per_mille,
		    .says = "below_class" }, sweep_of },
	};
	int bad = 0;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		bad += floor_judge(&rows[i].f, rows[i].run);
	assert_int_equal(bad, 0);
}

/* ---- the same lines elsewhere ---- */

static void a_job_log_is_judged_too(void **state)
{
	struct job j = { .hosts = 4, .gpus = 2, .fault = SHM_SET, .first = 3, .last = 3 };
	struct text t = log_of(&j), job = { 0 };
	struct outcome o;

	(void)state;
	put(&job, "hello\nfoo\nbar\n[rank0]: UserWarning: flex_attention called without torch.compile\n");
	for (char *p = t.p, *nl; (nl = strchr(p, '\n')); p = nl + 1)
		put(&job, "%s[rank%d]: %.*s\n", (p - t.p) % 2 ? "some text of the program\nmore of it\n" : "", 1, (int)(nl - p), p);
	o = judge_text(job.p, "log");
	for (size_t i = 0; i < o.v->n_findings; i++)
		if (!strcmp(o.v->findings[i].id, "comms.degraded_link"))
			assert_words(o.v->findings[i].title, "node3 (ranks 6-7)");
	assert_non_null(find(o.v, "comms.degraded_link"));
	done(&o);
	free(t.p);
	free(job.p);
}

/* Whatever allocation fails, in reading or in judging: that is said, or the outcome is as with memory. */
static void without_memory_it_is_said(void **state)
{
	struct job j = { .hosts = 3, .gpus = 2, .fault = SHM_SET, .first = 1, .last = 1 };
	struct text t = log_of(&j);
	struct lg_import_info info;
	const char *path;
	struct outcome o;
	uint64_t n = 0, made;

	(void)state;
	run_of(&t, "node0", 4242, 8, 4, 0.5, 0.01);
	path = feed_file(t.p, t.n);
	o = judge(feed_read(path, "NCCL log"));
	assert_int_equal(o.v->n_findings, 2);
	do {
		struct lg_trace *trace;
		int rc;

		lg_alloc_fail_at(++n);
		rc = lg_import(&path, 1, &trace, &info, NULL);
		made = lg_alloc_count();
		lg_alloc_fail_at(0);
		if (rc) {
			/* Who cannot look does not know the format. */
			assert_true(rc == LG_E_NOMEM || rc == LG_E_FORMAT);
			continue;
		}
		assert_int_equal(trace->mark.n, o.t->mark.n);
		assert_int_equal(trace->meta.n, o.t->meta.n);
		lg_trace_free(trace);
	} while (made >= n);
	assert_true(n > 50);
	judged_without_memory(&o);
	unlink(path);
	free(t.p);
	done(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_host_is_worse),
		cmocka_unit_test(the_network_inside_the_first_host),
		cmocka_unit_test(libfabric_s_provider_counts),
		cmocka_unit_test(all_alike_is_healthy),
		cmocka_unit_test(one_host_alone_is_not_judged),
		cmocka_unit_test(devices_in_another_order_are_not_worse),
		cmocka_unit_test(a_setting_is_the_reason),
		cmocka_unit_test(one_peer_is_little),
		cmocka_unit_test(without_a_majority_nothing_is_usual),
		cmocka_unit_test(several_hosts_with_one_fault_are_one_finding),
		cmocka_unit_test(hosts_of_another_size_may_be_of_another_kind),
		cmocka_unit_test(processes_of_several_hosts_may_share_a_pid),
		cmocka_unit_test(old_versions_name_devices_by_their_bus),
		cmocka_unit_test(ports_that_fail_are_named),
		cmocka_unit_test(a_communicator_is_compared_with_its_siblings),
		cmocka_unit_test(company_is_no_guilt),
		cmocka_unit_test(what_comes_back_worse_is_compared_with_its_past),
		cmocka_unit_test(bandwidth_that_falls_and_stays_low),
		cmocka_unit_test(one_run_among_others),
		cmocka_unit_test(told_from_its_threshold_on),
		cmocka_unit_test(a_job_log_is_judged_too),
		cmocka_unit_test(without_memory_it_is_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
