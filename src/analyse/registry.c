/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registry.c - who is asked, in this order. A new rule is a row of a table in rules/, a function, and a line
 * here.
 *
 * The causes of slow steps of a recording come first (host/cause_rules.c, by chains of waits, which reach
 * furthest); then what the program told of itself, what its device's timeline shows, and what files say that
 * have nothing else.
 */
#include "analyse/registry.h"

#include "analyse/finders.h"
#include "analyse/device/finders.h"
#include "analyse/links/links.h"

#define ALONE LG_NEEDS_TRACE_ONLY

static const struct lg_finder finders[] = {
	/* What the hook saw of the living program. */
	{ .of_run = lg_find_compile },
	{ .of_run = lg_find_flags },
	{ .of_run = lg_find_ranks_part },
	/* What the timelines of devices show. */
	{ .of_device = lg_find_gpu, .yields = { LG_R_SIDE_CHECKPOINT, LG_R_SIDE_LOGGING } },
	{ .of_device = lg_find_gpu_kernels },
	{ .of_device = lg_find_backward, .yields = { LG_R_DEBUG_LEFT_ON } },
	{ .of_device = lg_find_data, .yields = { LG_R_DATA_LOADER_WAIT } },
	{ .of_device = lg_find_side_on_cpu, .needs = ALONE,
	  .yields = { LG_R_SIDE_CHECKPOINT, LG_R_SIDE_LOGGING } },
	{ .of_device = lg_find_batch_wait, .yields = { LG_R_DATA_LOADER_WAIT } },
	{ .of_device = lg_find_amp },
	{ .of_device = lg_find_slow_links, .needs = LG_NEEDS_RUNS },
	{ .of_device = lg_find_comms },
	{ .of_device = lg_find_overlap },
	{ .of_device = lg_find_compile_trace },
	{ .of_run = lg_find_log_signals },
	{ .of_device = lg_compile_absent }, /* where no line says why */
	{ .of_device = lg_find_late },
	{ .of_device = lg_find_late_on_cpu, .needs = ALONE },
	{ .of_device = lg_find_gpu_counters },
	{ .of_device = lg_gpu_slow_steps, .needs = ALONE | LG_NEEDS_RUNS },
	{ .of_device = lg_conclude_devices, .needs = LG_NEEDS_RUNS },
	{ .of_device = lg_say_device_still, .needs = ALONE | LG_NEEDS_RUNS },
	/* What logs and profiles tell that have nothing else, and what is told of all. */
	{ .of_run = lg_find_links },
	{ .of_run = lg_find_data_in_log },
	{ .of_run = lg_join_saves },
	{ .of_run = lg_find_saves },
	{ .of_run = lg_find_python_stacks, .yields = { LG_R_DATA_LOADER_WAIT, LG_R_SIDE_CHECKPOINT } },
	{ .of_run = lg_find_memory },
	{ .of_run = lg_find_host_memory },
	{ .of_run = lg_find_oom, .yields = { LG_R_MEM_OOM } },
	{ .of_run = lg_find_memory_stats },
	{ .of_run = lg_find_failure },
	{ .of_run = lg_say_memory_growth },
	{ .of_run = lg_say_counters },
	{ .of_run = lg_find_standing },
	{ .of_run = lg_say_still },
	{ .of_run = lg_say_pending },
	{ .of_run = lg_say_steal },
};

static bool may_ask(const struct lg_case *c, const struct lg_gpu *g, const struct lg_finder *f)
{
	return !(f->needs & LG_NEEDS_TRACE_ONLY && !lg_gpu_only(c->t)) &&
	       !(f->needs & LG_NEEDS_RUNS && !g->n);
}

int lg_ask_finders(struct lg_case *c)
{
	struct lg_gpu g = { 0 };
	bool prepared = false;
	int rc = 0;

	LG_EACH_WHILE(!rc, f, finders, sizeof finders / sizeof *finders) {
		if (f->of_device && !prepared) {
			prepared = true;
			rc = lg_prepare_devices(c, &g);
		}
		if (rc || !may_ask(c, &g, f))
			continue;
		c->yields = f->yields;
		c->told_before = c->v->n_findings;
		rc = f->of_device ? f->of_device(c, &g) : f->of_run(c);
		if (!rc)
			rc = c->failed;
	}
	c->yields = NULL;
	return rc;
}
