/* SPDX-License-Identifier: Apache-2.0 */
/* changes.c - what differs between two sides, table by table; causes.c says what it means. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "diff/diff.h"

#define MOST_OF_IT 0.7 /* of a module's change: that is told of the inner one */

/*
 * The bootstrap sees the noise inside two runs. A baseline of three or more runs also shows how
 * much runs differ from each other: a prediction interval for one more run, added in quadrature.
 */
static void widen(const struct lg_diff *d, const double *runs, struct lg_ratio *r)
{
	const struct lg_side *b = d->before;
	double mean = 0, var = 0, k = (double)b->n_runs, between, half_lo, half_hi;

	if (b->n_runs < 3 || !(r->value > 0) || !(r->lo > 0))
		return;
	for (size_t i = 0; i < b->n_runs; i++)
		mean += log(runs[i]) / k;
	for (size_t i = 0; i < b->n_runs; i++)
		var += pow(log(runs[i]) - mean, 2) / (k - 1);
	between = lg_student95(k - 1) * sqrt(var * (1 + 1 / k));
	half_lo = hypot(log(r->value / r->lo), between);
	half_hi = hypot(log(r->hi / r->value), between);
	r->lo = r->value * exp(-half_lo);
	r->hi = r->value * exp(half_hi);
}

static double run_noise(const struct lg_side *b)
{
	double mean = 0, var = 0, k = (double)b->n_runs;

	if (b->n_runs < 3)
		return (double)NAN;
	for (size_t i = 0; i < b->n_runs; i++)
		mean += log(b->run_mean[i]) / k;
	for (size_t i = 0; i < b->n_runs; i++)
		var += pow(log(b->run_mean[i]) - mean, 2) / (k - 1);
	return sqrt(var);
}

static int step_ratios(struct lg_diff *d)
{
	const struct lg_side *side[2] = { d->before, d->after };
	struct lg_bootstrap r;

	for (int i = 0; i < 2; i++) {
		size_t n = side[i]->s.n;
		double *v = lg_calloc(n, sizeof *v);

		if (!v)
			return LG_E_NOMEM;
		if (n)
			memcpy(v, side[i]->s.step, n * sizeof *v);
		d->mean_ms[i] = lg_side_mean(side[i]);
		d->median_ms[i] = lg_quantile_of(v, n, 0.5);
		d->p99_ms[i] = lg_quantile_of(v, n, 0.99);
		lg_free(v);
	}
	if (!lg_bootstrap(d->before->s.step, d->before->s.n, d->after->s.step, d->after->s.n, &r))
		return LG_E_NOMEM;
	d->mean = r.mean;
	d->median = r.median;
	d->delta_ms = d->mean_ms[1] - d->mean_ms[0];
	d->noise = run_noise(d->before);
	widen(d, d->before->run_mean, &d->mean);
	widen(d, d->before->run_median, &d->median);
	return 0;
}

static int stages(struct lg_diff *d)
{
	d->stages = lg_arena_alloc(&d->v.arena, LG_STAGE_MAX, sizeof *d->stages);
	if (!d->stages)
		return LG_E_NOMEM;
	for (uint32_t g = 1; g < LG_STAGE_MAX; g++) {
		const struct lg_series *b = &d->before->s, *a = &d->after->s;
		struct lg_change c = { .kind = "stage", .name = lg_stage_name(g), .shape = "" };
		struct lg_bootstrap r;

		c.before = lg_mean_of(b->clean[g], b->n);
		c.after = lg_mean_of(a->clean[g], a->n);
		if (!(c.before > 0) && !(c.after > 0))
			continue;
		if (!lg_bootstrap(b->clean[g], b->n, a->clean[g], a->n, &r))
			return LG_E_NOMEM;
		c.delta = c.after - c.before;
		c.lo = r.delta_lo;
		c.hi = r.delta_hi;
		c.sure = (c.lo > 0 || c.hi < 0) && fabs(c.delta) > 0.002 * d->mean_ms[0];
		c.count_before = c.count_after = NAN;
		d->stages[d->n_stages++] = c;
	}
	return 0;
}

static int cmp_item(const struct lg_item *x, const struct lg_item *y)
{
	int c = x->kind - y->kind;

	if (!c)
		c = strcmp(x->name, y->name);
	return c ? c : strcmp(x->shape, y->shape);
}

static int cmp_change(const void *a, const void *b)
{
	const struct lg_change *x = a, *y = b;
	double p = fabs(x->delta), q = fabs(y->delta);

	return p != q ? (p < q) - (p > q) : strcmp(x->name, y->name);
}

static bool has_kind(const struct lg_side *s, uint8_t kind)
{
	for (size_t i = 0; i < s->n_items; i++)
		if (s->items[i].kind == kind)
			return true;
	return false;
}

static struct lg_change change_of(const struct lg_diff *d, const struct lg_item *b,
				  const struct lg_item *a)
{
	const struct lg_item *any = b ? b : a;
	double nb = (double)d->before->s.n, na = (double)d->after->s.n, se;
	struct lg_change c = { .kind = lg_item_kind_names[any->kind], .name = any->name,
			       .shape = any->shape, .before = b ? b->ms : 0, .after = a ? a->ms : 0,
			       .count_before = b ? b->count : 0, .count_after = a ? a->count : 0,
			       .was_compiled = b && b->compiled, .is_compiled = a && a->compiled };

	c.delta = c.after - c.before;
	se = sqrt((b && nb > 0 ? b->var / nb : 0) + (a && na > 0 ? a->var / na : 0));
	se *= d->steadiness;
	c.lo = c.delta - 1.96 * se;
	c.hi = c.delta + 1.96 * se;
	/* Hundreds of items are looked at: four standard errors, not two. */
	c.sure = nb >= 4 && na >= 4 && fabs(c.delta) > 4 * se &&
		 fabs(c.delta) > 0.002 * d->mean_ms[0];
	return c;
}

static int items(struct lg_diff *d)
{
	const struct lg_side *b = d->before, *a = d->after;
	size_t i = 0, k = 0;
	bool both[LG_ITEM_MAX];

	/* A kind that one input does not record at all has not vanished. Compiled regions are
	 * operators that can. */
	for (uint8_t g = 0; g < LG_ITEM_MAX; g++)
		both[g] = has_kind(b, g) && has_kind(a, g);
	both[LG_ITEM_REGION] = !isnan(b->compile.regions) && !isnan(a->compile.regions);
	d->items = lg_arena_alloc(&d->v.arena, b->n_items + a->n_items + 1, sizeof *d->items);
	if (!d->items)
		return LG_E_NOMEM;
	while (i < b->n_items || k < a->n_items) {
		int c = i == b->n_items ? 1 : k == a->n_items ? -1 : cmp_item(&b->items[i], &a->items[k]);
		const struct lg_item *x = c <= 0 ? &b->items[i++] : NULL;
		const struct lg_item *y = c >= 0 ? &a->items[k++] : NULL;

		if (both[(x ? x : y)->kind])
			d->items[d->n_items++] = change_of(d, x, y);
	}
	qsort(d->items, d->n_items, sizeof *d->items, cmp_change);
	return 0;
}

bool lg_diff_is_within(const struct lg_diff *d, const struct lg_change *x)
{
	size_t n = strlen(x->name);

	for (size_t i = 0; i < d->n_items; i++) {
		const struct lg_change *y = &d->items[i];

		if (!strcmp(y->kind, x->kind) && y->sure && !strncmp(y->name, x->name, n) &&
		    y->name[n] == '.' && y->count_before > 0 && y->count_after > 0 &&
		    y->delta / x->delta > MOST_OF_IT)
			return true;
	}
	return false;
}

/* "model.0.device" and "model.1.device": the hook numbers modules as they come. Without the number. */
static const char *past_number(const char *key, size_t *ret_prefix)
{
	const char *dot = strchr(key, '.'), *end = dot ? dot + 1 : NULL;

	while (end && isdigit((unsigned char)*end))
		end++;
	*ret_prefix = dot ? (size_t)(dot - key) : 0;
	return end && end > dot + 1 && *end == '.' ? end : NULL;
}

/* A module like it was there under another number: a warm-up or a probe of the batch size came first. */
static bool of_another_number(const struct lg_side *other, const struct lg_side_fact *f)
{
	size_t prefix, len;
	const char *end = past_number(f->key, &prefix);

	for (size_t i = 0; end && i < other->n_facts; i++) {
		const char *x = past_number(other->facts[i].key, &len);

		if (x && len == prefix && !strncmp(f->key, other->facts[i].key, len) && !strcmp(x, end) &&
		    !strcmp(other->facts[i].value, f->value))
			return true;
	}
	return false;
}

static int facts(struct lg_diff *d)
{
	const struct lg_side *b = d->before, *a = d->after;
	size_t i = 0, k = 0;

	d->facts = lg_arena_alloc(&d->v.arena, b->n_facts + a->n_facts + 1, sizeof *d->facts);
	if (!d->facts)
		return LG_E_NOMEM;
	if (!b->n_facts || !a->n_facts)
		return 0; /* one of them tells no facts at all */
	while (i < b->n_facts || k < a->n_facts) {
		int c = i == b->n_facts ? 1 : k == a->n_facts ? -1
						: strcmp(b->facts[i].key, a->facts[k].key);
		const struct lg_side_fact *x = c <= 0 ? &b->facts[i++] : NULL;
		const struct lg_side_fact *y = c >= 0 ? &a->facts[k++] : NULL;

		if ((!x || !y) && d->other_tool)
			continue; /* a kind of file that cannot tell it has not lost it */
		if ((!x || of_another_number(a, x)) && (!y || of_another_number(b, y)))
			continue;
		if (x && y && !strcmp(x->key, "input.shapes") && strtod(y->value, NULL) <= strtod(x->value, NULL))
			continue; /* fewer of them cost nothing */
		if (!x || !y || strcmp(x->value, y->value))
			d->facts[d->n_facts++] = (struct lg_fact_change){
				(x ? x : y)->key, x ? x->value : NULL, y ? y->value : NULL };
	}
	return 0;
}

static int processes(struct lg_diff *d)
{
	const struct lg_side *side[2] = { d->before, d->after };

	d->processes = lg_arena_alloc(&d->v.arena, side[0]->n_processes + side[1]->n_processes + 1,
				      sizeof *d->processes);
	if (!d->processes)
		return LG_E_NOMEM;
	/* A trace of one program shows no others: that is no news about the machine. */
	for (int s = 0; s < 2; s++) {
		size_t others = 0;

		for (size_t i = 0; i < side[s]->n_processes; i++)
			others += !side[s]->processes[i].own;
		if (!others)
			return 0;
	}
	for (int s = 1; s >= 0; s--) {
		for (size_t i = 0; i < side[s]->n_processes; i++) {
			const struct lg_side_process *p = &side[s]->processes[i];
			double other = 0;

			for (size_t k = 0; k < side[!s]->n_processes; k++)
				if (!strcmp(side[!s]->processes[k].key, p->key))
					other = side[!s]->processes[k].cpu;
			if (!p->own && p->cpu >= LG_N_REGRESS_PROCESS_FLOOR &&
			    other < LG_N_REGRESS_PROCESS_BEFORE * p->cpu)
				d->processes[d->n_processes++] = (struct lg_process_change){ p, s == 0 };
		}
	}
	return 0;
}

static const struct lg_side_holder *holder(const struct lg_side *s, const char *key, const char *lock)
{
	for (size_t i = 0; i < s->n_holders; i++)
		if (!strcmp(s->holders[i].key, key) && !strcmp(s->holders[i].lock, lock))
			return &s->holders[i];
	return NULL;
}

static double per_step(const struct lg_side *s, const struct lg_side_holder *h)
{
	return h && s->s.n ? h->ms / (double)s->s.n : 0;
}

static int holders(struct lg_diff *d)
{
	const struct lg_side *b = d->before, *a = d->after;

	d->holders = lg_arena_alloc(&d->v.arena, b->n_holders + a->n_holders + 1, sizeof *d->holders);
	if (!d->holders)
		return LG_E_NOMEM;
	for (int s = 1; s >= 0; s--) {
		const struct lg_side *one = s ? a : b;

		for (size_t i = 0; i < one->n_holders; i++) {
			const struct lg_side_holder *h = &one->holders[i];
			const struct lg_side_holder *x = holder(b, h->key, h->lock);
			const struct lg_side_holder *y = holder(a, h->key, h->lock);
			double was = per_step(b, x), is = per_step(a, y);

			if ((!s && y) || fabs(is - was) < 0.002 * d->mean_ms[0])
				continue; /* told with AFTER's, or not worth a line */
			d->holders[d->n_holders++] = (struct lg_holder_change){
				.comm = h->comm, .lock = h->lock, .key = h->key, .pid = h->pid,
				.ms_before = was, .ms_after = is,
				.period_before = x ? x->period_s : (double)NAN,
				.period_after = y ? y->period_s : (double)NAN };
		}
	}
	return 0;
}

/* Facts that set how much work a step is, or on what. */
static const struct {
	const char *key, *says;
} workload[] = {
	{ "loader.batch_size", "batch size" }, { "batch.global", "batch size" }, { "distributed.world", "number of ranks" },
	{ "distributed.backend", "backend of torch.distributed" },
	{ "torch.num_threads", "torch threads" }, { "cpu.quota", "CPU quota" },
	{ "cpu.affinity", "CPUs the rank may use" }, { "host.cpu_model", "CPU model" },
	{ "host.cpus", "CPUs of the host" }, { "host.arch", "architecture" },
	{ "gpu.0.name", "GPU" }, { "dist.world", "number of ranks" },
	{ "dist.backend", "backend of torch.distributed" }, { "torch.autocast", "autocast" },
};

bool lg_diff_is_workload(const struct lg_fact_change *f)
{
	for (size_t i = 0; i < sizeof workload / sizeof *workload; i++)
		if (f->before && f->after && !strcmp(f->key, workload[i].key))
			return true;
	return false;
}

static void unfair_fact(struct lg_diff *d, const char *says, const char *b, const char *a)
{
	if (d->n_unfair < sizeof workload / sizeof *workload + 8)
		d->unfair[d->n_unfair++] = lg_arena_printf(&d->v.arena, "%s: %s before, %s after", says, b, a);
}

/* Samples in a step of one rank, or of the whole job; 0 = not told. */
static double batch_of(const struct lg_side *s, bool *ret_all)
{
	const char *all = lg_side_fact(s, "batch.global"), *one = lg_side_fact(s, "loader.batch_size");
	const char *x = all ? all : one;
	char *end = NULL;
	double n = x ? strtod(x, &end) : 0;

	*ret_all = all != NULL;
	return x && end != x && !*end && n > 0 ? n : 0;
}

/* How much more is done in a step, and in how much of the time. */
static int work(struct lg_diff *d)
{
	const struct lg_side *side[2] = { d->before, d->after };
	double batch[2], ranks[2];
	bool all[2];
	int rc = 0;

	for (int i = 0; i < 2; i++) {
		batch[i] = batch_of(side[i], &all[i]);
		ranks[i] = side[i]->n_ranks ? (double)side[i]->n_ranks : 1;
	}
	d->samples = (struct lg_ratio){ NAN, NAN, NAN };
	d->work = (struct lg_work){ .times = (double)NAN };
	if (batch[0] > 0 && batch[1] > 0) {
		for (int i = 0; i < 2; i++)
			batch[i] *= all[i] ? 1 : ranks[i];
		d->work.times = batch[1] / ranks[1] / (batch[0] / ranks[0]);
		d->work.batch = true;
	} else {
		rc = lg_diff_work_of_shapes(d, &d->work);
		batch[0] = ranks[0];
		batch[1] = d->work.times * ranks[1];
		if (d->work.from)
			unfair_fact(d, d->work.batch ? "batch size (by the shapes of the operators' inputs)"
						     : "shapes of the operators' inputs, a dimension of them",
				    lg_arena_printf(&d->v.arena, "%llu", (unsigned long long)d->work.from),
				    lg_arena_printf(&d->v.arena, "%llu", (unsigned long long)d->work.to));
	}
	if (d->work.batch && d->mean.value > 0) {
		double more = batch[1] / batch[0];

		d->samples = (struct lg_ratio){ more / d->mean.value, more / d->mean.hi, more / d->mean.lo };
	}
	return rc;
}

static int unfair(struct lg_diff *d)
{
	const struct lg_side *b = d->before, *a = d->after;
	bool world = false;

	d->unfair = lg_arena_alloc(&d->v.arena, sizeof workload / sizeof *workload + 8, sizeof *d->unfair);
	if (!d->unfair)
		return LG_E_NOMEM;
	for (size_t i = 0; i < sizeof workload / sizeof *workload; i++) {
		const char *x = lg_side_fact(b, workload[i].key), *y = lg_side_fact(a, workload[i].key);

		if (x && y && strcmp(x, y)) {
			unfair_fact(d, workload[i].says, x, y);
			world |= strstr(workload[i].key, ".world") != NULL;
		}
	}
	if (!world && b->n_ranks && a->n_ranks && b->n_ranks != a->n_ranks)
		unfair_fact(d, "number of ranks", lg_arena_printf(&d->v.arena, "%zu", b->n_ranks),
			    lg_arena_printf(&d->v.arena, "%zu", a->n_ranks));
	if (b->ref_rank >= 0 && a->ref_rank >= 0 && b->ref_rank != a->ref_rank)
		unfair_fact(d, "rank whose steps are compared", lg_arena_printf(&d->v.arena, "%d", b->ref_rank),
			    lg_arena_printf(&d->v.arena, "%d", a->ref_rank));
	if (d->other_tool)
		unfair_fact(d, "measured with different tools", b->inputs[0].format, a->inputs[0].format);
	return work(d);
}

static bool other_tool(const struct lg_side *b, const struct lg_side *a)
{
	return b->n_inputs && a->n_inputs && b->inputs[0].format && a->inputs[0].format && !b->stored &&
	       strcmp(b->inputs[0].format, a->inputs[0].format);
}

int lg_diff_changes(struct lg_diff *d)
{
	int rc = step_ratios(d);

	d->other_tool = other_tool(d->before, d->after);
	lg_diff_noise(d);
	if (!rc)
		rc = stages(d);
	if (!rc)
		rc = items(d);
	if (!rc)
		rc = facts(d);
	if (!rc)
		rc = processes(d);
	if (!rc)
		rc = holders(d);
	if (!rc)
		rc = lg_diff_gauges(d);
	return rc ? rc : unfair(d);
}
