/* SPDX-License-Identifier: Apache-2.0 */
/* test_gpu_ranks.c - loops on devices of several ranks, of which one makes the others wait in collectives. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gpu_outcome.h"

/* Twenty steps with two collectives of 100 us each. */
static struct gpu_plan four_ranks(void)
{
	struct gpu_plan p = gpu_healthy;

	p.n_ranks = 4;
	p.n_steps = 20;
	p.n_comm = 2;
	p.comm_ns = 100 * US;
	return p;
}

static void one_late_rank_and_ranks_late_in_turn(void **state)
{
	struct gpu_plan p = four_ranks();
	struct outcome o;

	(void)state;
	quiet(&p);
	p.late_ns = 4 * MS;
	p.late_rank = 2;
	o = first(&p, "comms.straggler");
	assert_int_equal(o.v->findings[0].culprit.rank, 2);
	assert_string_equal(o.v->findings[0].detail, "persistent");
	assert_true(fabs(o.v->findings[0].lost_ms - 20 * 4) < 4);
	assert_null(find(o.v, "gpu.launch_bound")); /* each nanosecond once */
	assert_int_equal(o.v->scope, LG_SCOPE_RANK_LOCAL);
	done(&o);
	p.late_rank = -2;
	o = explain(&p);
	assert_non_null(find(o.v, "comms.straggler"));
	assert_string_equal(find(o.v, "comms.straggler")->detail, "rotating");
	assert_int_equal(find(o.v, "comms.straggler")->culprit.rank, -1);
	assert_int_equal(find(o.v, "comms.straggler")->n_culprit_ranks, 4);
	assert_int_equal(find(o.v, "comms.straggler")->culprit_ranks[3], 3);
	assert_int_equal(find(o.v, "comms.straggler")->evidence_left_out, 0);
	assert_int_equal(o.v->scope, LG_SCOPE_ROTATING);
	done(&o);
	/* A line for each rank: of those that find no room it is said how many there are. */
	p.n_ranks = 16;
	o = explain(&p);
	assert_non_null(find(o.v, "comms.straggler"));
	assert_true(find(o.v, "comms.straggler")->evidence_left_out >= 4);
	done(&o);
}

/* Eight ranks in pairs, with two reductions of 100 MB a step. */
static struct gpu_plan four_pairs(void)
{
	struct gpu_plan p = gpu_healthy;

	p.n_ranks = 8;
	p.n_steps = 20;
	p.n_comm = 2;
	p.comm_ns = MS;
	p.coll = "all_reduce";
	p.coll_bytes = 100000000;
	p.groups = 4;
	return p;
}

static void a_group_whose_equal_transfers_take_longer_has_a_slow_link(void **state)
{
	struct gpu_plan p = four_pairs();
	struct outcome o;

	(void)state;
	o = explain(&p);
	assert_null(find(o.v, "comms.degraded_link"));
	done(&o);
	p.link_group = 2;
	p.link_ns = 2 * MS;
	o = first(&p, "comms.degraded_link");
	assert_non_null(strstr(o.v->findings[0].title, "takes 3.0 ms in group pg2 (ranks 4, 5), and 1.0 ms in 3 other groups"));
	assert_int_equal(o.v->findings[0].n_culprit_ranks, 2);
	assert_true(fabs(o.v->findings[0].lost_ms - 20 * 4) < 4);
	assert_null(find(o.v, "comms.straggler"));
	done(&o);
	p.coll_bytes = 0; /* of what size they are is not known: they need not be equal */
	o = explain(&p);
	assert_null(find(o.v, "comms.degraded_link"));
	done(&o);
}

static void a_link_that_becomes_slower_is_told_from_slower_devices(void **state)
{
	struct gpu_plan p = four_pairs();
	struct outcome o;

	(void)state;
	p.link_group = -1;
	p.link_from = 10;
	p.link_ns = 4 * MS;
	o = first(&p, "comms.degraded_link");
	assert_non_null(strstr(o.v->findings[0].title, "from step 11 of 20 on AllReduce of 95.37 MiB takes 5.0 ms, before"));
	assert_true(fabs(o.v->findings[0].lost_ms - 10 * 8) < 8);
	done(&o);
	p.slower_from = 10;
	o = explain(&p);
	assert_null(find(o.v, "comms.degraded_link"));
	done(&o);
}

/* Who comes last in four collectives may do so by chance. */
static void a_few_collectives_accuse_nobody(void **state)
{
	struct gpu_plan p = four_ranks();
	struct outcome o;

	(void)state;
	p.n_comm = 1;
	p.late_rank = 2;
	p.late_ns = 4 * MS;
	p.n_steps = 8;
	o = first(&p, "comms.straggler");
	done(&o);
	p.n_steps = 4;
	o = explain(&p);
	assert_null(find(o.v, "comms.straggler"));
	done(&o);
}

/* Collectives on the way, as in tensor parallelism: the first one takes all the lateness. */
static void the_first_of_many_collectives_may_take_all_the_lateness(void **state)
{
	struct gpu_plan p = gpu_healthy;
	struct outcome o;

	(void)state;
	p.n_ranks = 2;
	p.n_steps = 20;
	p.n_comm = 12;
	p.comm_ns = 20 * US;
	quiet(&p);
	p.late_ns = 4 * MS;
	p.late_rank = 1;
	o = first(&p, "comms.straggler");
	assert_string_equal(o.v->findings[0].detail, "persistent");
	assert_int_equal(o.v->findings[0].culprit.rank, 1);
	done(&o);
	p.late_once = 8; /* one episode: neither steady nor in turn, and nothing to be loud about */
	p.late_ns = 40 * MS;
	quiet(&p);
	o = explain(&p);
	assert_non_null(find(o.v, "comms.straggler"));
	assert_true(find(o.v, "comms.straggler")->severity < LG_SEVERITY_MEDIUM);
	assert_null(find(o.v, "comms.straggler")->detail);
	done(&o);
}

static void lateness_is_told_as_what_it_ends_in(void **state)
{
	struct gpu_plan p = four_ranks();
	struct outcome o;
	bool said = false;

	(void)state;
	p.late_ns = 4 * MS;
	p.late_rank = 2;
	p.late_loader = true;
	o = first(&p, "data.loader_wait");
	assert_null(find(o.v, "comms.straggler"));
	assert_int_equal(o.v->findings[0].culprit.rank, 2);
	assert_string_equal(o.v->findings[0].detail, "workers_zero");
	/* All ranks wait for it: not the mean over them. */
	assert_true(fabs(o.v->findings[0].lost_ms - 20 * 4) < 4);
	assert_int_equal(o.v->bound, LG_BOUND_DATA);
	assert_int_equal(o.v->scope, LG_SCOPE_RANK_LOCAL);
	for (size_t i = 0; i < o.v->findings[0].n_evidence; i++)
		said |= strstr(o.v->findings[0].evidence[i].text, "arrives last in 20 of the 20 collectives") != NULL;
	assert_true(said);
	done(&o);
	p.late_rank = -2; /* in turn, and for the same reason */
	o = first(&p, "data.loader_wait");
	assert_null(find(o.v, "comms.straggler"));
	/* 4 ms of each 14.2: what the late one loses, all lose. */
	assert_true(fabs(o.v->findings[0].lost_share - 4 / 14.2) < 0.03);
	assert_non_null(strstr(o.v->findings[0].title, "the others wait, which costs 2"));
	assert_int_equal(o.v->scope, LG_SCOPE_ROTATING);
	done(&o);
	p.n_ranks = 8; /* two or three times each, twenty times for all */
	o = first(&p, "data.loader_wait");
	assert_true(o.v->findings[0].severity >= LG_SEVERITY_MEDIUM && !o.v->findings[0].seen);
	done(&o);
}

/* Rank 0 warms up for seconds; then rank 2 is late in every step. */
static void steps_that_are_left_out_say_nothing_of_who_is_late(void **state)
{
	struct gpu_plan p = four_ranks();
	struct outcome o;

	(void)state;
	p.warm_ns = 2000 * MS;
	o = explain(&p); /* the twin: nobody is late afterwards */
	assert_null(find(o.v, "comms.straggler"));
	done(&o);
	p.late_ns = 4 * MS;
	p.late_rank = 2;
	o = explain(&p);
	assert_non_null(find(o.v, "comms.straggler"));
	assert_int_equal(find(o.v, "comms.straggler")->culprit.rank, 2);
	assert_int_equal(find(o.v, "comms.straggler")->severity, LG_SEVERITY_HIGH);
	assert_non_null(strstr(find(o.v, "comms.straggler")->title, "in 19 of the 19 collectives"));
	done(&o);
}

/* Stages of a pipeline send and receive, each with numbers of its own. */
static void transfers_between_two_ranks_are_no_collectives(void **state)
{
	struct gpu_plan p = four_ranks();
	struct outcome o;

	(void)state;
	p.late_ns = 4 * MS;
	p.late_rank = -2;
	p.comm_kernel = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)";
	p.coll = "all_to_allv";
	o = explain(&p);
	assert_non_null(find(o.v, "comms.straggler"));
	done(&o);
	for (int i = 0; i < 2; i++) {
		p.coll = i ? "send" : "recv";
		o = explain(&p);
		assert_null(find(o.v, "comms.straggler"));
		assert_true(!o.v->scope || o.v->scope != LG_SCOPE_ROTATING);
		done(&o);
	}
}

/* The stage with more work holds up all: by a longer kernel, or because its host orders late. */
static void the_longest_stage_of_a_pipeline_is_named(void **state)
{
	struct gpu_plan p = four_ranks();
	const struct lg_finding *f;
	struct outcome o;

	(void)state;
	p.comm_ns = 400 * US;
	p.late_rank = 2;
	p.comm_kernel = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)";
	p.coll = "recv";
	o = explain(&p); /* the twin: all stages alike, what is left is transfer and bubble */
	f = find(o.v, "comms.exposed");
	assert_true(f && !strcmp(f->detail, "send_recv"));
	done(&o);
	for (int i = 0; i < 2; i++) {
		p.late_ns = 4 * MS;
		p.late_compute = i;
		o = first(&p, "comms.exposed");
		f = &o.v->findings[0];
		assert_string_equal(f->detail, "uneven_stages");
		assert_int_equal(f->culprit.rank, 2);
		assert_non_null(strstr(f->title, "a step of rank 2 has"));
		assert_int_equal(f->n_victims, 3);
		assert_non_null(strstr(f->fix, "a layer fewer"));
		done(&o);
	}
	p.late_ns = 300 * US; /* hardly more */
	o = explain(&p);
	f = find(o.v, "comms.exposed");
	assert_true(f && !strcmp(f->detail, "send_recv"));
	done(&o);
	p.late_ns = 4 * MS; /* all have to wait for all: that is a straggler */
	p.coll = "allreduce";
	p.comm_kernel = NULL;
	o = explain(&p);
	f = find(o.v, "comms.exposed");
	assert_true(find(o.v, "comms.straggler") && (!f || !f->detail));
	done(&o);
}

static void uneven_work_is_no_cause_on_the_hosts(void **state)
{
	struct gpu_plan p = four_ranks();
	struct outcome o;

	(void)state;
	p.late_ns = 4 * MS;
	p.late_rank = -2;
	for (int i = 0; i < 2; i++) {
		p.late_compute = i;
		o = explain(&p);
		assert_non_null(find(o.v, "comms.straggler"));
		assert_true(!strstr(find(o.v, "comms.straggler")->title, "the late one's host") == !!i);
		assert_true(!strstr(find(o.v, "comms.straggler")->title, "computes longer") == !i);
		done(&o);
	}
}

/* Steps in which another rank is a little late are not this one's. */
static void steps_are_counted_of_the_rank_that_is_named(void **state)
{
	struct gpu_plan p = four_ranks();
	struct outcome o;

	(void)state;
	p.late_ns = 8 * MS;
	p.late_rank = 2;
	for (p.late_first = 0; p.late_first < 20; p.late_first += 9) {
		const struct lg_finding *f;

		o = explain(&p);
		f = find(o.v, "comms.straggler");
		assert_non_null(f);
		assert_int_equal(f->culprit.rank, 2);
		assert_non_null(strstr(f->title, p.late_first == 9 ? "in 9 of 20 steps" : p.late_first
						 ? "in 18 of 20 steps" : "in 20 of 20 steps"));
		assert_int_equal(f->detail && !strcmp(f->detail, "persistent"), p.late_first != 9);
		done(&o);
	}
}

/* One rank stops for long in every seventh step; in the others the ranks differ by chance. */
static void jitter_of_ordinary_steps_hides_no_late_rank(void **state)
{
	struct gpu_plan p = four_ranks();
	const struct lg_finding *f;
	struct outcome o;

	(void)state;
	p.n_steps = 42;
	p.n_comm = 1;
	p.late_rank = 2;
	p.late_every = 7;
	p.late_jitter_ns = p.late_ns = 200 * US;
	quiet(&p); /* the twin: nobody is late for longer than by chance */
	p.late_ns = 100 * MS;
	o = first(&p, "comms.straggler");
	f = &o.v->findings[0];
	assert_int_equal(f->culprit.rank, 2);
	assert_int_equal(o.v->scope, LG_SCOPE_RANK_LOCAL);
	assert_non_null(strstr(f->title, "rank 2 arrives last in 6 of the 6 collectives"));
	assert_true(fabs(f->lost_ms - 6 * 100) < 20);
	done(&o);
	p.late_rank = -2; /* its twin: the long ones are dealt out, too */
	o = first(&p, "comms.straggler");
	assert_string_equal(o.v->findings[0].detail, "rotating");
	assert_int_equal(o.v->scope, LG_SCOPE_ROTATING);
	done(&o);
}

static bool says(const struct lg_finding *f, const char *what)
{
	bool said = false;

	for (size_t i = 0; i < f->n_evidence; i++)
		said |= strstr(f->evidence[i].text, what) != NULL;
	return said;
}

/* The same kernels for longer are the device; others, or more of them, are the work. */
static void the_late_rank_has_a_slow_device_or_more_work(void **state)
{
	struct gpu_plan p = four_ranks();
	const struct lg_finding *f;
	struct outcome o;

	(void)state;
	p.grid = 216;
	p.coll = "allreduce"; /* numbered */
	quiet(&p);
	p.late_rank = 2;
	p.late_compute = true;
	p.late_ns = 3 * MS;
	o = first(&p, "comms.straggler");
	f = &o.v->findings[0];
	assert_non_null(strstr(f->title, "more or other kernels"));
	assert_true(says(f, "void longer") && says(f, "1.0 a step there, 0.0 on the others"));
	assert_non_null(strstr(f->fix, "balance batches"));
	done(&o);
	p.late_slower = 30;
	o = first(&p, "comms.straggler");
	f = &o.v->findings[0];
	assert_non_null(strstr(f->title, "1.30 times as long for the same kernels"));
	assert_true(says(f, "with the same grids") && f->n_against == 0);
	assert_non_null(strstr(f->fix, "nvidia-smi"));
	done(&o);
	p.grid = 0;
	o = first(&p, "comms.straggler");
	f = &o.v->findings[0];
	assert_true(!says(f, "with the same grids") && f->n_against == 1);
	done(&o);
	p.grid = 216;
	p.late_slower = 90;
	p.late_slower_every = 3;
	o = first(&p, "comms.straggler");
	f = &o.v->findings[0];
	assert_non_null(strstr(f->title, "some of them take longer"));
	assert_true(says(f, "vectorized_elementwise_kernel") && says(f, "95.0 us each, 50.0 us on the others"));
	done(&o);
}

/* Not its work: then it is not told to balance batches. */
static void the_late_rank_has_a_host_that_stops_or_is_slow_or_a_device_that_is_held(void **state)
{
	struct gpu_plan p = four_ranks();
	const struct lg_finding *f;
	struct outcome o;

	(void)state;
	p.grid = 216;
	quiet(&p);
	p.late_rank = 2;
	p.late_ns = 4 * MS;
	o = first(&p, "comms.straggler");
	f = &o.v->findings[0];
	assert_non_null(strstr(f->title, "its host pauses, in code that the trace does not show"));
	assert_true(strstr(f->fix, "laggard record") && !says(f, "its device computes"));
	done(&o);
	p.late_launch_ns = 70 * US; /* 20 us more than each of 200 kernels */
	o = first(&p, "comms.straggler");
	f = &o.v->findings[0];
	assert_non_null(strstr(f->title, "its host takes 8.8 times as long between two launches"));
	assert_true(says(f, "35.0 us in the median, the others' hosts 4.0 us"));
	assert_non_null(strstr(f->fix, "NUMA"));
	done(&o);
	p.late_launch_ns = 0;
	p.unseen_ns = 400 * US;
	p.late_unseen = true;
	o = first(&p, "comms.straggler");
	f = &o.v->findings[0];
	assert_non_null(strstr(f->title, "its device stands still while work is queued"));
	assert_non_null(strstr(f->fix, "query-compute-apps"));
	done(&o);
	p.late_unseen = false; /* the twin: it does not differ from the others' */
	o = explain(&p);
	f = find(o.v, "comms.straggler");
	assert_true(!f || !strstr(f->title, "stands still"));
	done(&o);
}

/* What stops one stops all, and is told once. Of uneven work an even share is still to be done. */
static void pauses_in_turn_cost_all_that_the_late_one_loses(void **state)
{
	struct gpu_plan p = four_ranks();
	const struct lg_finding *f;
	struct outcome o;

	(void)state;
	p.n_ranks = 2;
	quiet(&p);
	p.late_rank = -2;
	p.late_ns = 8 * MS;
	o = first(&p, "comms.straggler");
	f = &o.v->findings[0];
	assert_true(fabs(f->lost_ms - 20 * 8) < 20);
	assert_non_null(strstr(f->title, "the late one's host pauses"));
	assert_non_null(strstr(f->fix, "laggard record"));
	assert_true(says(f, "rank 0: last in 9, made the others wait 72.0 ms, waited 80.0 ms itself"));
	assert_null(find(o.v, "gpu.launch_bound"));
	done(&o);
	p.late_compute = true;
	o = first(&p, "comms.straggler");
	f = &o.v->findings[0];
	assert_true(fabs(f->lost_ms - 20 * 8 / 2.) < 20);
	assert_non_null(strstr(f->fix, "balance batches"));
	done(&o);
}

/* Two of four, on one host: the last one changes, and they are the same two. */
static void devices_of_a_few_ranks_may_be_slow(void **state)
{
	struct gpu_plan p = four_ranks();
	const struct lg_finding *f;
	struct outcome o;

	(void)state;
	p.grid = 216;
	p.late_rank = 2;
	p.late_ranks = 2;
	p.late_slower = 30;
	p.late_ns = 3 * MS;
	o = first(&p, "comms.straggler");
	f = &o.v->findings[0];
	assert_non_null(strstr(f->title, "rank 2 and rank 3 arrive last in 20 of the 20 collectives"));
	assert_non_null(strstr(f->title, "their devices take 1.30 times as long for the same kernels"));
	assert_non_null(strstr(f->fix, "nvidia-smi"));
	assert_true(f->n_culprit_ranks == 2 && f->culprit_ranks[0] == 2 && f->culprit_ranks[1] == 3);
	done(&o);
	p.late_slower = 0; /* the twin: all four in turn, by more work */
	p.late_ranks = 0;
	p.late_rank = -2;
	p.late_compute = true;
	o = first(&p, "comms.straggler");
	f = &o.v->findings[0];
	assert_true(strstr(f->title, "in turn") && !strstr(f->title, "their devices"));
	assert_int_equal(f->n_culprit_ranks, 4);
	done(&o);
}

/* Rank 2 stops before the window begins, while the others' hosts go on: their windows begin earlier. */
static void windows_of_different_lengths_are_compared_between_the_same_collectives(void **state)
{
	struct gpu_plan p = four_ranks();
	const struct lg_finding *f;
	struct outcome o;

	(void)state;
	p.n_steps = 72;
	p.unseen_steps = 9;
	p.sync_at_end = true;
	p.late_rank = 2;
	p.late_every = 9;
	quiet(&p);
	p.late_ns = 10 * MS;
	for (int i = 0; i < 2; i++) {
		p.late_compute = i;
		o = first(&p, "comms.straggler");
		f = &o.v->findings[0];
		assert_true(says(f, "its device computes") == !!i);
		assert_true(fabs(f->lost_ms - 7 * 10) < 4);
		done(&o);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_late_rank_and_ranks_late_in_turn),
		cmocka_unit_test(a_group_whose_equal_transfers_take_longer_has_a_slow_link),
		cmocka_unit_test(a_link_that_becomes_slower_is_told_from_slower_devices),
		cmocka_unit_test(a_few_collectives_accuse_nobody),
		cmocka_unit_test(the_first_of_many_collectives_may_take_all_the_lateness),
		cmocka_unit_test(lateness_is_told_as_what_it_ends_in),
		cmocka_unit_test(steps_that_are_left_out_say_nothing_of_who_is_late),
		cmocka_unit_test(steps_are_counted_of_the_rank_that_is_named),
		cmocka_unit_test(jitter_of_ordinary_steps_hides_no_late_rank),
		cmocka_unit_test(transfers_between_two_ranks_are_no_collectives),
		cmocka_unit_test(the_longest_stage_of_a_pipeline_is_named),
		cmocka_unit_test(the_late_rank_has_a_slow_device_or_more_work),
		cmocka_unit_test(the_late_rank_has_a_host_that_stops_or_is_slow_or_a_device_that_is_held),
		cmocka_unit_test(pauses_in_turn_cost_all_that_the_late_one_loses),
		cmocka_unit_test(devices_of_a_few_ranks_may_be_slow),
		cmocka_unit_test(windows_of_different_lengths_are_compared_between_the_same_collectives),
		cmocka_unit_test(uneven_work_is_no_cause_on_the_hosts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
