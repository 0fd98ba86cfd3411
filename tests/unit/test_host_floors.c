/* SPDX-License-Identifier: Apache-2.0 */
/* test_host_floors.c - from which share of the time, and how often, each host cause is told (floor.h). */
#include "floor.h"
#include "run_outcome.h"

static const char *const fork_stack[] = { "entry_SYSCALL_64", "kernel_clone", "copy_process", "dup_mmap",
					  "copy_page_range", NULL };
static const char *const reclaim_stack[] = { "asm_exc_page_fault", "do_anonymous_page", "charge_memcg",
					     "try_to_free_mem_cgroup_pages", "shrink_node", NULL };

/* A stall of x in every step: none is slow beside the others, so the share of the time alone decides. */
static void in_each_step(struct run_plan *p, enum stall stall, int64_t x)
{
	p->stall = stall;
	p->stall_ns = x;
	p->period_ns = 1;
}

/* Two stalls are no repetition: there, too, the share of the time decides. */
static void twice(struct run_plan *p, enum stall stall, int64_t x)
{
	p->stall = stall;
	p->stall_ns = x;
	p->period_ns = 2000 * MS;
	p->stalls_for_ns = 5000 * MS;
}

static void lock_twice(struct run_plan *p, int64_t x)
{
	twice(p, STALL_LOCK, x);
}

/* Sixty times, and too short each to make a step slow. */
static void lock_often(struct run_plan *p, int64_t x)
{
	p->stall = STALL_LOCK;
	p->stall_ns = x;
	p->period_ns = 100 * MS;
}

static void file_lock(struct run_plan *p, int64_t x)
{
	in_each_step(p, STALL_FILE_LOCK, x);
}

static void cpu(struct run_plan *p, int64_t x)
{
	in_each_step(p, STALL_CPU, x);
}

static void own_threads(struct run_plan *p, int64_t x)
{
	in_each_step(p, STALL_CPU, x);
	p->of_job = true;
}

static void peer(struct run_plan *p, int64_t x)
{
	in_each_step(p, STALL_SOCKET, x);
}

static void disk(struct run_plan *p, int64_t x)
{
	in_each_step(p, STALL_SYNC, x);
}

static void stopped(struct run_plan *p, int64_t x)
{
	in_each_step(p, STALL_STOP, x);
}

static void quota(struct run_plan *p, int64_t x)
{
	twice(p, STALL_QUOTA, x);
	p->throttled_ns = 90e6;
}

static void forks(struct run_plan *p, int64_t x)
{
	twice(p, STALL_RUN, x);
	p->run_stack = fork_stack;
}

static void reclaim(struct run_plan *p, int64_t x)
{
	twice(p, STALL_RUN, x);
	p->run_stack = reclaim_stack;
}

static void collector(struct run_plan *p, int64_t x)
{
	in_each_step(p, STALL_GC, x);
}

static void gil(struct run_plan *p, int64_t x)
{
	twice(p, STALL_GIL, x);
	p->helper_runs = "/usr/bin/python3.11";
}

static void batches(struct run_plan *p, int64_t x)
{
	in_each_step(p, STALL_BATCH, x);
}

static void saves(struct run_plan *p, int64_t x)
{
	p->save_every = 1;
	p->save_ns = x;
}

static void writes_metrics(struct run_plan *p, int64_t x)
{
	saves(p, x);
	p->save_as = "SummaryWriter.add_scalar";
}

/* A rank that computes longer now and then; the other waits for it. */
static void late(struct run_plan *p, int64_t x)
{
	twice(p, STALL_RUN, x);
	p->n_ranks = 2;
}

/* ---- how often, how long ---- */

/* x stalls of 20 ms in half a minute: hardly anything, but all that is slow. */
static void times(struct run_plan *p, int64_t x)
{
	p->n_steps = 3000;
	p->stall = STALL_SOCKET;
	p->stall_ns = 20 * MS;
	p->period_ns = 30000 * MS / (x + 1);
}

/* Each a tenth of the run. */
static void long_ones(struct run_plan *p, int64_t x)
{
	p->n_steps = 1000;
	p->stall = STALL_SOCKET;
	p->stall_ns = 1000 * MS;
	p->period_ns = 2000 * MS;
	p->stalls_for_ns = 2000 * MS * x + 1000 * MS;
}

/* Ten of them beside ten saves of 90 ms, which are slow for another reason. */
static void beside_saves(struct run_plan *p, int64_t x)
{
	p->n_steps = 3010; /* ten saves, and ten stalls */
	p->stall = STALL_SOCKET;
	p->stall_ns = x;
	p->period_ns = 2700 * MS;
	p->stalls_for_ns = 28000 * MS;
	p->save_every = 300;
	p->save_ns = 90 * MS;
}

static double of_all_excess(int64_t x)
{
	return (double)x / (double)(x + 90 * MS);
}

/* So many steps, half of each of which is a stall. */
static void steps_of_20_ms(struct run_plan *p, int64_t x)
{
	p->n_steps = (int)x;
	p->stall = STALL_SOCKET;
	p->stall_ns = 20 * MS - 9840 * US;
	p->period_ns = 1;
}

static double ms_of_them(int64_t x)
{
	return 20 * (double)x;
}

/* ---- what the hook tells ---- */

/* Of the 600 steps' time; a step takes 9.84 ms. */
static void for_a_while(struct run_plan *p, const char *const *facts, int64_t x)
{
	p->facts = facts;
	p->facts_for_ns = x * 600 * 9840;
}

static void autocast_backward(struct run_plan *p, int64_t x)
{
	static const char *const facts[] = { "torch.autocast_backward", "1", NULL };

	for_a_while(p, facts, x);
}

static void anomaly_detection(struct run_plan *p, int64_t x)
{
	static const char *const facts[] = { "debug.anomaly", "1", NULL };

	for_a_while(p, facts, x);
}

static void half_model(struct run_plan *p, int64_t x)
{
	static char types[64];
	static const char *const facts[] = { "torch.autocast_backward", "0", "model.0.parameters", types, NULL };

	snprintf(types, sizeof types, "float16=%d,float32=%d", (int)x, (int)(1000 - x));
	p->facts = facts;
}

static void buckets(struct run_plan *p, int64_t x)
{
	static char mb[16];
	static const char *const facts[] = { "ddp.0.bucket_cap_mb", mb, "model.0.parameters", "float32=900000000",
					     NULL };

	snprintf(mb, sizeof mb, "%d", (int)x);
	p->facts = facts;
}

static void dispatch_modes(struct run_plan *p, int64_t x)
{
	p->modes = (int)x;
}

static void recompiles(struct run_plan *p, int64_t x)
{
	p->recompiles = (int)x;
	p->recompiles_from = 100;
}

static void warm_up(struct run_plan *p, int64_t x)
{
	p->n_steps = 60;
	p->warm_steps = 3;
	p->warm_ns = x;
}

/* Where the first of them began is not seen. */
static double two_of_sixty(int64_t x)
{
	return 2 * (double)x / (2 * (double)x + 59 * 9840e3);
}

static const struct floor floors[] = {
	{ "host.lock_held", 0.002, 0.00203, { .stall = lock_often }, US, .told = 900 * US },
	{ "host.lock_held", 0.01, 0.0102, { .stall = lock_twice }, MS, .told = 400 * MS },
	{ "host.lock_held", 0.01, 0.0102, { .stall = file_lock }, US, .told = MS },
	{ "host.cpu_contention", 0.01, 0.0102, { .stall = cpu }, US, .told = MS },
	{ "host.oversubscribed", 0.00333, 0.0034, { .stall = own_threads }, US, .told = MS },
	{ "host.waited_for", 0.01, 0.0102, { .stall = peer }, US, .told = MS },
	{ "host.io_wait", 0.01, 0.0102, { .stall = disk }, US, .told = MS },
	{ "host.stopped", 0.01, 0.0102, { .stall = stopped }, US, .told = MS },
	{ "host.cpu_throttled", 0.01, 0.0102, { .stall = quota }, MS, .told = 400 * MS },
	{ "host.self_fork", 0.01, 0.0102, { .stall = forks }, MS, .told = 400 * MS },
	{ "host.memory_pressure", 0.01, 0.0102, { .stall = reclaim }, MS, .told = 400 * MS },
	{ "python.gc_pause", 0.01, 0.0102, { .stall = collector }, US, .told = MS },
	{ "python.gil_wait", 0.01, 0.0102, { .stall = gil }, MS, .told = 400 * MS },
	{ "data.loader_wait", 0.10, 0.102, { .stall = batches }, US, .told = 9 * MS },
	{ "side.checkpoint", 0.01, 0.0102, { .stall = saves }, US, .told = MS },
	{ "side.logging", 0.01, 0.0102, { .stall = writes_metrics }, US, .told = MS },
	{ "host.waited_for", 3, 3, { .stall = times }, 1, .told = 9, .truth = as_it_is },
	{ "host.waited_for", 5, 5, { .stall = long_ones }, 1, .told = 8, .truth = as_it_is, .loudly = true },
	{ "host.waited_for", 0.098, 0.102, { .stall = beside_saves }, 2 * MS, .told = 15 * MS, .truth = of_all_excess,
	  .others = true },
	{ "host.waited_for", 333, 360, { .stall = steps_of_20_ms }, 8, .told = 60, .truth = ms_of_them,
	  .loudly = true },
	{ "gpu.amp_misuse", 0.24, 0.265, { .stall = autocast_backward }, 10, .told = 900, .truth = per_mille },
	{ "gpu.amp_misuse", 0.5, 0.502, { .stall = half_model }, 10, .told = 900, .truth = per_mille },
	{ "debug.left_on", 0.49, 0.515, { .stall = anomaly_detection }, 10, .told = 990, .truth = per_mille },
	{ "debug.left_on", 2, 2, { .stall = dispatch_modes }, 0, .told = 9, .truth = as_it_is },
	{ "comms.ddp_flags", 4, 4, { .stall = buckets }, 40, .told = 1, .truth = as_it_is },
	{ "compile.recompiles", 3, 3, { .stall = recompiles }, 1, .told = 30, .truth = as_it_is },
	{ "warmup.dominates", 0.25, 0.26, { .stall = warm_up }, 20 * MS, .told = 400 * MS, .truth = two_of_sixty },
	{ "comms.straggler", 0.01, 0.0102, { .stall = late }, MS, .told = 400 * MS },
};

static struct outcome at(const struct floor *f, int64_t x)
{
	struct run_plan p = base;
	struct lg_trace *t;

	p.n_ranks = 1;
	p.n_steps = 600;
	p.only_rank = 0;
	f->stall(&p, x);
	t = synthetic_run(&p);
	for (lg_prc i = 1; p.of_job && i < t->process.n; i++)
		if (t->process.pid[i] == CULPRIT_PID)
			t->process.role[i] = LG_ROLE_LOADER;
	return judge(t);
}

static void told_from_its_threshold_on(void **state)
{
	(void)state;
	floors_judge(floors, sizeof floors / sizeof *floors, at);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(told_from_its_threshold_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
