/* SPDX-License-Identifier: Apache-2.0 */
/* diff_json.c - schema 1 with the object "diff" (laggard-diff(1) documents every key). */
#include <math.h>

#include "report/diff_report.h"
#include "report/json_write.h"

enum { ITEMS_SHOWN = 100 };

void lg_diff_facts_json(struct lg_json *j, const char *key, const struct lg_fact_change *v, size_t n)
{
	lg_json_key(j, key);
	lg_json_open(j, '[');
	for (size_t i = 0; i < n; i++) {
		lg_json_open_flat(j, '{');
		lg_json_key_str(j, "key", v[i].key);
		lg_json_key_str(j, "before", v[i].before);
		lg_json_key_str(j, "after", v[i].after);
		lg_json_close(j, '}');
	}
	lg_json_close(j, ']');
}

static void ratio(struct lg_json *j, const char *key, const struct lg_ratio *r)
{
	lg_json_key(j, key);
	lg_json_open_flat(j, '{');
	lg_json_key_num(j, "ratio", r->value, 5);
	lg_json_key_num(j, "lo", r->lo, 5);
	lg_json_key_num(j, "hi", r->hi, 5);
	lg_json_close(j, '}');
}

static void side(struct lg_json *j, const char *key, const struct lg_diff *d, int i)
{
	const struct lg_side *s = i ? d->after : d->before;

	lg_json_key(j, key);
	lg_json_open_flat(j, '{');
	lg_json_key_str(j, "path", s->n_inputs ? s->inputs[0].path : NULL);
	lg_json_key_int(j, "steps", (int64_t)s->s.n);
	lg_json_key_num(j, "mean_ms", d->mean_ms[i], 4);
	lg_json_key_num(j, "median_ms", d->median_ms[i], 4);
	lg_json_key_num(j, "p99_ms", d->p99_ms[i], 4);
	lg_json_key_num(j, "steps_per_s", d->mean_ms[i] > 0 ? 1000 / d->mean_ms[i] : (double)NAN, 4);
	lg_json_key_num(j, "compiled_regions", s->compile.regions, 2);
	lg_json_key_num(j, "compiled_frames", s->compile.frames, 0);
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
		lg_json_key_num(j, "before_ms", v[i].before, 5);
		lg_json_key_num(j, "after_ms", v[i].after, 5);
		lg_json_key_num(j, "delta_ms", v[i].delta, 5);
		lg_json_key_num(j, "lo_ms", v[i].lo, 5);
		lg_json_key_num(j, "hi_ms", v[i].hi, 5);
		if (!isnan(v[i].count_before)) {
			lg_json_key_num(j, "calls_before", v[i].count_before, 3);
			lg_json_key_num(j, "calls_after", v[i].count_after, 3);
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
		lg_json_key_id(j, "pid", p->pid);
		lg_json_key_str(j, "comm", p->comm);
		lg_json_key_str(j, "cmdline", p->cmdline);
		lg_json_key_num(j, "cpus", p->cpu, 4);
		lg_json_close(j, '}');
	}
	lg_json_close(j, ']');
	lg_json_key(j, "lock_holders");
	lg_json_open(j, '[');
	for (size_t i = 0; i < d->n_holders; i++) {
		const struct lg_holder_change *h = &d->holders[i];

		lg_json_open_flat(j, '{');
		lg_json_key_id(j, "pid", h->pid);
		lg_json_key_str(j, "comm", h->comm);
		lg_json_key_str(j, "command", h->key);
		lg_json_key_str(j, "lock", h->lock);
		lg_json_key_num(j, "held_before_ms", h->ms_before, 4);
		lg_json_key_num(j, "held_after_ms", h->ms_after, 4);
		lg_json_key_num(j, "period_before_s", h->period_before, 4);
		lg_json_key_num(j, "period_after_s", h->period_after, 4);
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
		lg_json_key_int(j, "gpu", g->gpu);
		lg_json_key_int(j, "machine", g->host);
		lg_json_key_str(j, "metric", g->metric);
		lg_json_key_str(j, "unit", g->unit);
		lg_json_key_num(j, "before", g->before, 4);
		lg_json_key_num(j, "after", g->after, 4);
		lg_json_key_num(j, "delta", g->delta, 4);
		lg_json_key_num(j, "lo", g->lo, 4);
		lg_json_key_num(j, "hi", g->hi, 4);
		lg_json_key_int(j, "readings_before", (int64_t)g->n_before);
		lg_json_key_int(j, "readings_after", (int64_t)g->n_after);
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
	lg_json_key_num(&j, "delta_ms", d->delta_ms, 5);
	lg_json_key_num(&j, "run_noise", d->noise, 5);
	lg_json_key(&j, "explained");
	lg_json_open(&j, '[');
	for (size_t i = 0; i < d->n_shares; i++) {
		lg_json_open_flat(&j, '{');
		lg_json_key_str(&j, "what", d->shares[i].what);
		lg_json_key_str(&j, "id", d->shares[i].id);
		lg_json_key_num(&j, "ms_per_step", d->shares[i].ms, 5);
		lg_json_key_num(&j, "share", d->shares[i].share, 4);
		lg_json_close(&j, '}');
	}
	lg_json_close(&j, ']');
	changes(&j, "stages", d->stages, d->n_stages);
	changes(&j, "items", d->items, d->n_items);
	host(&j, d);
	gauges(&j, d);
	lg_diff_facts_json(&j, "facts", d->facts, d->n_facts);
	lg_json_key(&j, "gate");
	lg_json_open_flat(&j, '{');
	lg_json_key_num(&j, "limit", d->gate.limit, 6);
	lg_json_key_str(&j, "verdict", d->gate.verdict);
	lg_json_key_str(&j, "why", d->gate.why);
	lg_json_close(&j, '}');
	lg_json_close(&j, '}');
	lg_json_close(&j, '}');
	lg_out_puts(o, "\n");
}
