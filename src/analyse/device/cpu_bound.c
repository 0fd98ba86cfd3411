/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_bound.c - what bounds a training of which only operators on the CPU were traced.
 *
 * Nothing hides the wait for a batch there, nor a collective while no thread of the process computes. Where
 * the machine has a device that was not traced, operators may have waited for it: then only the loader's own
 * time says anything.
 */
#include <math.h>

#include "analyse/device/cpu_rules.h"
#include "analyse/hook/facts.h"

#define PYTHON_MIN 0.1 /* of the steps' time, to be told where it goes */

enum lg_cpu_part lg_cpu_part_of(const struct lg_finding *f)
{
	static const enum lg_rule_id of[LG_CPU_PARTS] = {
		[LG_CPU_DATA] = LG_R_DATA_LOADER_WAIT, [LG_CPU_SAVE] = LG_R_SIDE_CHECKPOINT,
		[LG_CPU_LOG] = LG_R_SIDE_LOGGING, [LG_CPU_COMPILE] = LG_R_COMPILE_IN_STEP };
	enum lg_cpu_part p = LG_CPU_DATA;

	while (p < LG_CPU_PARTS && (!of[p] || f->rule != of[p]))
		p++;
	return p;
}

/* What was found to be waiting for batches, also where no event says so (batch_wait.c). */
static const struct lg_finding *told_wait(const struct lg_verdict *v)
{
	LG_EACH(f, v->findings, v->n_findings)
		if (f->rule == LG_R_DATA_LOADER_WAIT && !isnan(f->lost_share))
			return f;
	return NULL;
}

/* What torch.compile does runs in operators' place. */
static const char *compiling(struct lg_case *c)
{
	const struct lg_verdict *v = c->v;

	LG_EACH(f, v->findings, v->n_findings)
		if (f->rule == LG_R_COMPILE_IN_STEP && f->lost_share > 0)
			return lg_text(c, " (%.0f %% compiling them)", 100 * f->lost_share);
	return "";
}

static const char *saving(struct lg_case *c, double share)
{
	return share < 0.005 ? "" : lg_text(c, "%.0f %% saving and writing messages, ", share * 100);
}

/* Where stacks or annotations say what ran between operators: of the run that has most of such time. */
static void tell_python(struct lg_case *c, const struct lg_gpu_run *most, int64_t longest)
{
	const char *in = most ? lg_cpu_python(&c->scene, most, most->from, most->to) : NULL;

	if (!in)
		return;
	c->v->untraced_in = in;
	lg_say(c, LG_SAYS_CPU_BETWEEN_OPERATORS, lg_ms(longest), most->rank >= 0 ? " on " : "",
	       most->rank >= 0 ? lg_cpu_who(c, most) : "", in, most->has_frames ? "" :
	       " (with_stack=True tells the lines)");
}

int lg_bound_on_cpu(struct lg_case *c, const struct lg_gpu *g)
{
	struct lg_verdict *v = c->v;
	bool device = false, training = false;
	const struct lg_finding *told = told_wait(v);
	const struct lg_gpu_run *most = NULL; /* of what has steps: the one with most between operators */
	int64_t longest = 0;
	size_t n_ranks = 0;
	bool has_peers = false;
	double wall = 0, data = 0, side = 0, compute = 0, comm = 0, unknown;

	LG_EACH(r, g->run, g->n) {
		const int64_t window[] = { r->from, r->to };
		int64_t by[1][LG_CPU_PARTS];

		if (r->scope != LG_SHOWS_CPU || !r->main || (r->n_steps < 3 && !r->n_requests) ||
		    r->to <= r->from)
			continue;
		if (lg_cpu_parts(&c->scene, r, window, 1, by, NULL))
			return LG_E_NOMEM;
		training |= r->has_backward;
		n_ranks++;
		has_peers |= c->t->process.world[r->prc] != 1;
		device |= lg_index_fact(c->idx, r->prc, "gpu.0.name") != NULL;
		wall += (double)lg_gpu_wall(r);
		data += (double)by[0][LG_CPU_DATA];
		side += (double)(by[0][LG_CPU_SAVE] + by[0][LG_CPU_LOG]);
		compute += (double)(by[0][LG_CPU_COMPILE] + by[0][LG_CPU_OPERATORS]);
		comm += (double)by[0][LG_CPU_COMM];
		if (r->n_steps >= 3 && by[0][LG_CPU_BETWEEN] > longest) {
			most = r;
			longest = by[0][LG_CPU_BETWEEN];
		}
	}
	if (!(wall > 0))
		return 0;
	v->inference = !training;
	data = fmax(data / wall, told ? fmin(told->lost_share, 1 - (side + compute + comm) / wall) : 0);
	side /= wall;
	compute /= wall;
	comm /= wall;
	unknown = fmax(0, 1 - data - side - compute - comm);
	if (device && data < LG_N_BOUND_CAUSE) {
		v->bound_why = LG_SAYS_CPU_DEVICE_UNTRACED;
		return 0;
	}
	v->bound_why = lg_arena_printf(&v->arena, LG_SAYS_CPU_BOUND, lg_scope_name(training ?
				       LG_SHOWS_TRAINING : LG_SHOWS_INFERENCE), compute * 100,
				       compiling(c), data * 100, comm * 100, saving(c, side),
				       unknown * 100);
	v->untraced_share = unknown;
	v->alone_share = n_ranks == 1 && has_peers ? comm : 0;
	if (unknown >= PYTHON_MIN)
		tell_python(c, most, longest);
	if (c->failed)
		return c->failed;
	if (unknown > LG_N_BOUND_UNKNOWN)
		return 0;
	v->bound_confidence = (device ? LG_N_BOUND_SURE_UNTRACED : LG_N_BOUND_SURE) - unknown;
	if (told)
		v->bound_confidence = fmin(v->bound_confidence, told->confidence);
	if (data >= LG_N_BOUND_CAUSE && data > comm)
		v->bound = LG_BOUND_DATA;
	else if (comm >= LG_N_BOUND_CAUSE)
		v->bound = LG_BOUND_COMMS;
	else
		v->bound = data + comm >= LG_N_BOUND_CAUSE ? LG_BOUND_MIXED : LG_BOUND_HOST;
	return 0;
}
