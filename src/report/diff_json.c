/* SPDX-License-Identifier: Apache-2.0 */
/* diff_json.c - schema 1 with the object "diff" (laggard-diff(1) documents every key). */
#include <math.h>

#include "report/diff_report.h"
#include "report/json_write.h"

enum { ITEMS_SHOWN = 100 };

static void key_num(struct lg_json *j, const char *key, double v, int decimals)
{
	lg_json_key(j, key);
	lg_json_num(j, v, decimals);
}

/* -1: not known. */
static void key_pid(struct lg_json *j, int32_t pid)
{
	lg_json_key(j, "pid");
	if (pid >= 0)
		lg_json_int(j, pid);
	else
		lg_json_null(j);
}

static void ratio(struct lg_json *j, const char *key, const struct lg_ratio *r)
{
	lg_json_key(j, key);
	lg_json_open_flat(j, '{');
	key_num(j, "ratio", r->value, 5);
	key_num(j, "lo", r->lo, 5);
	key_num(j, "hi", r->hi, 5);
	lg_json_close(j, '}');
}

static void side(struct lg_json *j, const char *key, const struct lg_diff *d, int i)
{
	const struct lg_side *s = i ? d->after : d->before;

	lg_json_key(j, key);
	lg_json_open_flat(j, '{');
	lg_json_key_str(j, "path", s->n_inputs ? s->inputs[0].path : NULL);
	lg_json_key(j, "steps");
	lg_json_int(j, (int64_t)s->s.n);
	key_num(j, "mean_ms", d->mean_ms[i], 4);
	key_num(j, "median_ms", d->median_ms[i], 4);
	key_num(j, "p99_ms", d->p99_ms[i], 4);
	key_num(j, "steps_per_s", d->mean_ms[i] > 0 ? 1000 / d->mean_ms[i] : (double)NAN, 4);
	key_num(j, "compiled_regions", s->compile.regions, 2);
	key_num(j, "compiled_frames", s->compile.frames, 0);
	lg_json_key_str(j, "dispatch_mode", s->compile.mode && *s->compile.mode ? s->compile.mode : NULL);
	lg_json_close(j, '}');
}

static void changes(struct lg_json *j, const char *key, const struct lg_change *v, size_t n)
{
	lg_json_key(j, key);
	lg_json_open(j, '[');
	for (size_t i = 0; i < n && i < ITEMS_SHOWN; i++) {
		lg_json_open_flat(j, '{');
		lg_json_key_str(j, "kind", v[i].kind);
		lg_json_key_str(j, "name", v[i].name);
		if (*v[i].shape)
			lg_json_key_str(j, "shape", v[i].shape);
		key_num(j, "before_ms", v[i].before, 5);
		key_num(j, "after_ms", v[i].after, 5);
		key_num(j, "delta_ms", v[i].delta, 5);
		key_num(j, "lo_ms", v[i].lo, 5);
		key_num(j, "hi_ms", v[i].hi, 5);
		if (!isnan(v[i].count_before)) {
			key_num(j, "calls_before", v[i].count_before, 3);
			key_num(j, "calls_after", v[i].count_after, 3);
		}
		if (!strcmp(v[i].kind, "module")) {
			lg_json_key(j, "compiled_before");
			lg_json_bool(j, v[i].was_compiled);
			lg_json_key(j, "compiled_after");
			lg_json_bool(j, v[i].is_compiled);
		}
		lg_json_key(j, "sure");
		lg_json_bool(j, v[i].sure);
		lg_json_close(j, '}');
	}
	lg_json_close(j, ']');
}

static void host(struct lg_json *j, const struct lg_diff *d)
{
	lg_json_key(j, "processes");
	lg_json_open(j, '[');
	for (size_t i = 0; i < d->n_processes; i++) {
		const struct lg_side_process *p = d->processes[i].p;

		lg_json_open_flat(j, '{');
		lg_json_key_str(j, "change", d->processes[i].gone ? "gone" : "new");
		key_pid(j, p->pid);
		lg_json_key_str(j, "comm", p->comm);
		lg_json_key_str(j, "cmdline", p->cmdline);
		key_num(j, "cpus", p->cpu, 4);
		lg_json_close(j, '}');
	}
	lg_json_close(j, ']');
	lg_json_key(j, "lock_holders");
	lg_json_open(j, '[');
	for (size_t i = 0; i < d->n_holders; i++) {
		const struct lg_holder_change *h = &d->holders[i];

		lg_json_open_flat(j, '{');
		key_pid(j, h->pid);
		lg_json_key_str(j, "comm", h->comm);
		lg_json_key_str(j, "command", h->key);
		lg_json_key_str(j, "lock", h->lock);
		key_num(j, "held_before_ms", h->ms_before, 4);
		key_num(j, "held_after_ms", h->ms_after, 4);
		key_num(j, "period_before_s", h->period_before, 4);
		key_num(j, "period_after_s", h->period_after, 4);
		lg_json_close(j, '}');
	}
	lg_json_close(j, ']');
}

static void gauges(struct lg_json *j, const struct lg_diff *d)
{
	lg_json_key(j, "devices");
	lg_json_open(j, '[');
	for (size_t i = 0; i < d->n_gauges; i++) {
		const struct lg_gauge_change *g = &d->gauges[i];

		lg_json_open_flat(j, '{');
		lg_json_key(j, "gpu");
		lg_json_int(j, g->gpu);
		lg_json_key(j, "machine");
		lg_json_int(j, g->host);
		lg_json_key_str(j, "metric", g->metric);
		lg_json_key_str(j, "unit", g->unit);
		key_num(j, "before", g->before, 4);
		key_num(j, "after", g->after, 4);
		key_num(j, "delta", g->delta, 4);
		key_num(j, "lo", g->lo, 4);
		key_num(j, "hi", g->hi, 4);
		lg_json_key(j, "readings_before");
		lg_json_int(j, (int64_t)g->n_before);
		lg_json_key(j, "readings_after");
		lg_json_int(j, (int64_t)g->n_after);
		lg_json_key(j, "sure");
		lg_json_bool(j, g->sure);
		lg_json_close(j, '}');
	}
	lg_json_close(j, ']');
}

void lg_diff_json(const struct lg_diff *d, struct lg_out *o)
{
	struct lg_json j = { .o = o };

	lg_json_open(&j, '{');
	lg_json_verdict(&d->v, &j);
	lg_json_key(&j, "diff");
	lg_json_open(&j, '{');
	lg_json_key_str(&j, "headline", d->headline);
	lg_json_key(&j, "unfair");
	lg_json_open(&j, '[');
	for (size_t i = 0; i < d->n_unfair; i++)
		lg_json_str(&j, d->unfair[i]);
	lg_json_close(&j, ']');
	side(&j, "before", d, 0);
	side(&j, "after", d, 1);
	ratio(&j, "mean", &d->mean);
	ratio(&j, "median", &d->median);
	ratio(&j, "samples_per_s", &d->samples);
	key_num(&j, "delta_ms", d->delta_ms, 5);
	key_num(&j, "run_noise", d->noise, 5);
	lg_json_key(&j, "explained");
	lg_json_open(&j, '[');
	for (size_t i = 0; i < d->n_shares; i++) {
		lg_json_open_flat(&j, '{');
		lg_json_key_str(&j, "what", d->shares[i].what);
		lg_json_key_str(&j, "id", d->shares[i].id);
		key_num(&j, "ms_per_step", d->shares[i].ms, 5);
		key_num(&j, "share", d->shares[i].share, 4);
		lg_json_close(&j, '}');
	}
	lg_json_close(&j, ']');
	changes(&j, "stages", d->stages, d->n_stages);
	changes(&j, "items", d->items, d->n_items);
	host(&j, d);
	gauges(&j, d);
	lg_json_key(&j, "facts");
	lg_json_open(&j, '[');
	for (size_t i = 0; i < d->n_facts; i++) {
		lg_json_open_flat(&j, '{');
		lg_json_key_str(&j, "key", d->facts[i].key);
		lg_json_key_str(&j, "before", d->facts[i].before);
		lg_json_key_str(&j, "after", d->facts[i].after);
		lg_json_close(&j, '}');
	}
	lg_json_close(&j, ']');
	lg_json_key(&j, "gate");
	lg_json_open_flat(&j, '{');
	key_num(&j, "limit", d->gate.limit, 6);
	lg_json_key_str(&j, "verdict", d->gate.verdict);
	lg_json_key_str(&j, "why", d->gate.why);
	lg_json_close(&j, '}');
	lg_json_close(&j, '}');
	lg_json_close(&j, '}');
	lg_out_puts(o, "\n");
}
