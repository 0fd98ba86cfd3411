/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ready.c - CPU samples alone: which threads always want a CPU?
 *
 * One that never waits (a spinning program, at whatever priority) has whatever time the others leave. So it
 * has a CPU wherever a thread stands still, and that tells nothing of why it does: what is always there does
 * not explain what comes now and then.
 *
 * It is known by two things: it is seen in nearly every slot of the recording, and while it is not running,
 * the CPU that it ran on last is not idle either: somebody else has it. Who sleeps leaves an idle CPU sooner
 * or later, and who works in bursts is missing from most slots. Idle is what is sampled as such, and where a
 * CPU shows no sample (of hardware cycles an idle CPU gives none).
 */
#include "analyse/host/foreign.h"

enum { CPUS_MAX = 4096, STILL_PERIODS = 3 };
enum { SLOT_PERIODS = 40, SLOTS_MIN = 10 };
#define SLOT_NS 100000000ll /* a job that leaves little shows a spinner in two thirds of 50 ms */

struct seen_cpu {
	int64_t last;   /* sample */
	int64_t idle;   /* ns, so far */
};

struct seen_thread {
	int64_t idle;   /* ns that its last CPU was idle without it, so far */
	int64_t at;     /* what its CPU had been idle when it was seen last */
	int32_t cpu;
	uint32_t n;     /* samples */
	uint32_t slots, last_slot; /* number of them; the last one + 1 */
};

static void see(struct seen_thread *t, const struct seen_cpu *cpus, int32_t cpu, uint32_t slot)
{
	if (t->n++)
		t->idle += cpus[t->cpu].idle - t->at;
	t->cpu = cpu;
	t->at = cpus[cpu].idle;
	t->slots += t->last_slot != slot + 1;
	t->last_slot = slot + 1;
}

static void look(const struct lg_case *c, int64_t period, int64_t slot_ns, struct seen_cpu *cpus,
		 struct seen_thread *threads)
{
	const struct lg_sample_tab *s = &c->t->sample;
	int64_t slot_end = c->t->first + slot_ns;
	uint32_t slot = 0;

	for (size_t i = 0; i < s->n; i++) {
		int32_t cpu = s->cpu[i];
		int64_t hole;

		if (cpu < 0 || cpu >= CPUS_MAX || !lg_shows_activity(&c->scene, i))
			continue;
		if (s->ts[i] >= slot_end) { /* the table is in order of time */
			slot = (uint32_t)((s->ts[i] - c->t->first) / slot_ns);
			slot_end = c->t->first + (slot + 1) * slot_ns;
		}
		hole = s->ts[i] - (cpus[cpu].last ? cpus[cpu].last : c->t->first);
		cpus[cpu].idle += hole > STILL_PERIODS * period ? hole - period : 0;
		cpus[cpu].last = s->ts[i];
		if (s->flags[i] & LG_SAMPLE_IDLE)
			cpus[cpu].idle += period;
		else
			see(&threads[s->thr[i]], cpus, cpu, slot);
	}
}

int lg_find_always_ready(struct lg_case *c, int64_t period)
{
	int64_t slot_ns = period * SLOT_PERIODS > SLOT_NS ? period * SLOT_PERIODS : SLOT_NS;
	int64_t wall = c->t->last - c->t->first;
	double slots = (double)wall / (double)slot_ns;
	LG_AUTOFREE struct seen_cpu *cpus = lg_calloc(CPUS_MAX, sizeof *cpus);
	LG_AUTOFREE struct seen_thread *threads = lg_calloc(c->t->thread.n, sizeof *threads);

	c->always_ready = lg_arena_alloc(&c->v->arena, c->t->thread.n, sizeof *c->always_ready);
	if (!cpus || !threads || !c->always_ready)
		return LG_E_NOMEM;
	if (slots >= SLOTS_MIN)
		look(c, period, slot_ns, cpus, threads);
	for (lg_thr i = 1; i < c->t->thread.n; i++) {
		const struct seen_thread *t = &threads[i];
		double ran = (double)t->n * (double)period;
		double idle = (double)(t->idle + cpus[t->cpu].idle - t->at);

		/* Kernel threads work when there is something to do. */
		c->always_ready[i] = t->n && t->slots >= LG_N_HOST_FOREIGN_ACTIVITY_SLOTS * slots &&
				     ran >= LG_N_HOST_FOREIGN_ACTIVITY_ON_CPU * (double)wall &&
				     idle <= LG_N_HOST_FOREIGN_ACTIVITY_IDLE * ran &&
				     !(c->t->thread.flags[i] & (LG_THREAD_IDLE | LG_THREAD_KERNEL));
	}
	return 0;
}
