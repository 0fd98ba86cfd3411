/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - the verdict as JSON, schema 1 (laggard-explain(1) documents every key). */
#include <math.h>

#include "report/json_write.h"
#include "report/report.h"

double lg_report_seconds(const struct lg_verdict *v, int64_t ts)
{
	int64_t rel;

	if (ts == INT64_MIN || !v->trace || v->trace->first > v->trace->last ||
	    __builtin_sub_overflow(ts, v->trace->first, &rel))
		return (double)NAN;
	return (double)rel / 1e9;
}

static void inputs(const struct lg_verdict *v, struct lg_json *j)
{
	lg_json_key(j, "inputs");
	lg_json_open(j, '[');
	for (size_t i = 0; i < v->n_inputs; i++) {
		const struct lg_input *in = &v->inputs[i];

		lg_json_open_flat(j, '{');
		lg_json_key_str(j, "path", in->path);
		lg_json_key_str(j, "format", in->format);
		lg_json_key_str(j, "host", in->host && *in->host ? in->host : NULL);
		lg_json_key_num(j, "duration_s", in->duration_s, 6);
		lg_json_key_count(j, "lost_events", in->lost_events);
		lg_json_key(j, "rows");
		lg_json_open(j, '{');
		lg_json_key_count(j, "sample", in->rows_sample);
		lg_json_key_count(j, "state", in->rows_state);
		lg_json_key_count(j, "span", in->rows_span);
		lg_json_key_count(j, "counter", in->rows_counter);
		lg_json_close(j, '}');
		lg_json_close(j, '}');
	}
	lg_json_close(j, ']');
}

/* There only where a trigger wrote one of the inputs. */
static void fired(const struct lg_verdict *v, struct lg_json *j)
{
	if (!v->n_fired)
		return;
	lg_json_key(j, "fired");
	lg_json_open(j, '[');
	for (size_t i = 0; i < v->n_fired; i++) {
		const struct lg_fired *f = &v->fired[i];

		lg_json_open_flat(j, '{');
		lg_json_key_str(j, "trigger", f->what);
		lg_json_key_str(j, "why", f->why);
		lg_json_key_num(j, "t_s", lg_report_seconds(v, f->ts), 6);
		lg_json_key_num(j, "dur_ms", (double)f->dur / 1e6, 3);
		lg_json_key_id(j, "rank", f->rank);
		lg_json_key_id(j, "pid", f->pid);
		lg_json_key_id(j, "step", f->step);
		lg_json_key_str(j, "finding", f->finding < v->n_findings ? v->findings[f->finding].id : NULL);
		lg_json_key_str(j, "answer", f->answer);
		lg_json_close(j, '}');
	}
	lg_json_close(j, ']');
}

/* Optional: what threads had to do with Python's lock, from a millisecond on. */
static void gil(const struct lg_verdict *v, struct lg_json *j)
{
	const struct lg_trace *t = v->trace;

	lg_json_key(j, "gil");
	lg_json_open(j, '[');
	for (size_t i = 0; i < v->n_gil; i++) {
		const struct lg_gil_row *r = &v->gil[i];

		if (r->ns < 1000000)
			continue;
		lg_json_open_flat(j, '{');
		lg_json_key_id(j, "pid", t->process.pid[t->thread.prc[r->thr]]);
		lg_json_key_id(j, "tid", t->thread.tid[r->thr]);
		lg_json_key_str(j, "did", lg_gil_did_text(r->did));
		lg_json_key_id(j, "by", r->by ? t->thread.tid[r->by] : -1);
		lg_json_key_str(j, "function", r->python ? lg_string(t, t->frame.name[r->python]) : NULL);
		lg_json_key_str(j, "file", r->python ? lg_string(t, t->frame.file[r->python]) : NULL);
		lg_json_key_id(j, "line", r->python ? (int64_t)t->frame.line[r->python] : -1);
		lg_json_key_str(j, "native", r->native ? lg_string(t, r->native) : NULL);
		lg_json_key_count(j, "times", (size_t)r->times);
		lg_json_key_num(j, "ms", (double)r->ns / 1e6, 3);
		lg_json_key_num(j, "longest_ms", r->longest ? (double)r->longest / 1e6 : (double)NAN, 3);
		lg_json_key_num(j, "refused_ms", r->did == LG_GIL_WAITED ? (double)r->refused / 1e6 : (double)NAN, 3);
		lg_json_key_num(j, "error_ms", (double)r->error / 1e6, 3);
		lg_json_close(j, '}');
	}
	lg_json_close(j, ']');
}

static void steps(const struct lg_verdict *v, struct lg_json *j)
{
	lg_json_key(j, "steps");
	lg_json_open_flat(j, '{');
	lg_json_key_count(j, "count", v->n_judged);
	lg_json_key_num(j, "min_ms", v->min_ms, 4);
	lg_json_key_num(j, "median_ms", v->median_ms, 4);
	lg_json_key_num(j, "p99_ms", v->p99_ms, 4);
	lg_json_key_num(j, "max_ms", v->max_ms, 4);
	lg_json_key_count(j, "slow", v->n_slow);
	lg_json_key_num(j, "slow_threshold_ms", v->slow_threshold_ms, 4);
	lg_json_key_str(j, "shape", lg_shape_text(v->shape));
	lg_json_key_num(j, "period_s", v->period_s, 4);
	lg_json_key_str(j, "scope", lg_scope_text(v->scope));
	lg_json_key(j, "ranks");
	lg_json_open(j, '[');
	for (size_t i = 0; i < v->n_ranks; i++)
		lg_json_int(j, v->ranks[i]);
	lg_json_close(j, ']');
	if (isfinite(v->period_p))
		lg_json_key_num(j, "period_p", v->period_p, 8);
	if (isfinite(v->shift_s))
		lg_json_key_num(j, "shift_s", v->shift_s, 4);
	if (isfinite(v->slope))
		lg_json_key_num(j, "slope", v->slope, 6);
	lg_json_close(j, '}');
}

static void evidence(const struct lg_verdict *v, struct lg_json *j, const char *key,
		     const struct lg_evidence *e, size_t n)
{
	lg_json_key(j, key);
	lg_json_open(j, '[');
	for (size_t i = 0; i < n; i++) {
		bool moment = e[i].ts != INT64_MIN;

		lg_json_open_flat(j, '{');
		lg_json_key_str(j, "text", e[i].text);
		lg_json_key_num(j, "t_s", lg_report_seconds(v, e[i].ts), 6);
		lg_json_key_num(j, "dur_ms", moment && e[i].dur >= 0 ? (double)e[i].dur / 1e6 : (double)NAN, 4);
		lg_json_close(j, '}');
	}
	lg_json_close(j, ']');
}

/* Optional: lines that there was no room for. */
static void left_out(struct lg_json *j, const char *key, size_t n)
{
	if (!n)
		return;
	lg_json_key(j, key);
	lg_json_int(j, (int64_t)n);
}

static void finding(const struct lg_verdict *v, struct lg_json *j, const struct lg_finding *f)
{
	lg_json_open(j, '{');
	lg_json_key_str(j, "id", f->id);
	lg_json_key_str(j, "severity", lg_severity_text(f->severity));
	lg_json_key_num(j, "confidence", f->confidence, 3);
	lg_json_key_num(j, "strength", f->strength, 3);
	lg_json_key_str(j, "title", f->title);
	lg_json_key_str(j, "stage", f->stage);
	if (f->detail)
		lg_json_key_str(j, "detail", f->detail);
	lg_json_key_num(j, "lost_ms", f->lost_ms, 3);
	lg_json_key_num(j, "lost_share", f->lost_share, 5);
	lg_json_key_num(j, "excess_share", f->excess_share, 4);

	lg_json_key(j, "culprit");
	lg_json_open(j, '{');
	lg_json_key_str(j, "relation", lg_relation_text(f->culprit.relation));
	lg_json_key_id(j, "pid", f->culprit.pid);
	lg_json_key_id(j, "tid", f->culprit.tid);
	lg_json_key_str(j, "comm", f->culprit.comm);
	lg_json_key_str(j, "cmdline", f->culprit.cmdline);
	lg_json_key_str(j, "function", f->culprit.function);
	lg_json_key(j, "stack");
	lg_json_open_flat(j, '[');
	for (size_t i = 0; i < f->culprit.n_stack; i++)
		lg_json_str(j, f->culprit.stack[i]);
	lg_json_close(j, ']');
	lg_json_key_str(j, "lock", f->culprit.lock);
	lg_json_key_id(j, "rank", f->culprit.rank);
	lg_json_key_str(j, "container", f->culprit.container);
	lg_json_close(j, '}');

	if (f->n_culprit_ranks) { /* optional: several are accused together */
		lg_json_key(j, "culprit_ranks");
		lg_json_open_flat(j, '[');
		for (size_t i = 0; i < f->n_culprit_ranks; i++)
			lg_json_int(j, f->culprit_ranks[i]);
		lg_json_close(j, ']');
	}
	lg_json_key(j, "victims");
	lg_json_open(j, '[');
	for (size_t i = 0; i < f->n_victims; i++) {
		lg_json_open_flat(j, '{');
		lg_json_key_id(j, "rank", f->victims[i].rank);
		lg_json_key_id(j, "pid", f->victims[i].pid);
		lg_json_key_id(j, "tid", f->victims[i].tid);
		lg_json_close(j, '}');
	}
	lg_json_close(j, ']');
	evidence(v, j, "evidence", f->evidence, f->n_evidence);
	evidence(v, j, "against", f->against, f->n_against);
	left_out(j, "evidence_left_out", f->evidence_left_out);
	left_out(j, "against_left_out", f->against_left_out);
	lg_json_key_str(j, "confirm", f->confirm);
	lg_json_key_str(j, "fix", f->fix);
	lg_json_key_str(j, "tradeoff", f->tradeoff);
	if (isfinite(f->cost_per_hour))
		lg_json_key_num(j, "cost_per_hour", f->cost_per_hour, 4);
	lg_json_key_str(j, "rule", f->id);
	lg_json_close(j, '}');
}

/* Optional keys: what the loop's own checkpoints cost, and money where it was asked for. */
static void money(const struct lg_verdict *v, struct lg_json *j)
{
	if (v->saves.n) {
		lg_json_key(j, "checkpoints");
		lg_json_open_flat(j, '{');
		lg_json_key_int(j, "count", (int64_t)v->saves.n);
		lg_json_key_num(j, "stall_share", v->saves.stall_share, 5);
		lg_json_key_num(j, "bytes", v->saves.bytes, 0);
		lg_json_key_num(j, "bytes_per_s", v->saves.bytes_per_s, 0);
		lg_json_key_num(j, "bytes_per_hour", v->saves.bytes_per_hour, 0);
		lg_json_close(j, '}');
	}
	if (v->cost.per_hour > 0) {
		lg_json_key(j, "cost");
		lg_json_open_flat(j, '{');
		lg_json_key_num(j, "per_hour", v->cost.per_hour, 4);
		lg_json_key_num(j, "lost_share", v->cost.lost_share, 5);
		lg_json_key_num(j, "lost_per_hour", v->cost.per_hour * v->cost.lost_share, 4);
		lg_json_key_num(j, "per_training_hour", v->cost.per_training_hour, 4);
		lg_json_key_num(j, "checkpoints_per_hour",
			v->saves.n ? v->cost.per_hour * v->saves.stall_share : (double)NAN, 4);
		lg_json_close(j, '}');
	}
}

void lg_json_verdict(const struct lg_verdict *v, struct lg_json *to)
{
	struct lg_json j = *to;

	lg_json_key_int(&j, "schema", 1);
	lg_json_key_str(&j, "laggard", LG_VERSION);
	inputs(v, &j);
	fired(v, &j);
	steps(v, &j);
	lg_json_key(&j, "stages");
	lg_json_open(&j, '[');
	for (size_t i = 0; i < v->n_stages; i++) {
		lg_json_open_flat(&j, '{');
		lg_json_key_str(&j, "stage", v->stages[i].stage);
		lg_json_key_num(&j, "median_ms", v->stages[i].median_ms, 4);
		lg_json_key_num(&j, "share", v->stages[i].share, 4);
		lg_json_key_num(&j, "slow_excess_ms", v->stages[i].slow_excess_ms, 3);
		lg_json_close(&j, '}');
	}
	lg_json_close(&j, ']');
	lg_json_key(&j, "bound");
	lg_json_open_flat(&j, '{');
	lg_json_key_str(&j, "verdict", lg_bound_text(v->bound));
	lg_json_key_num(&j, "confidence", v->bound ? v->bound_confidence : (double)NAN, 3);
	lg_json_key_str(&j, "why", v->bound_why);
	lg_json_close(&j, '}');
	lg_json_key(&j, "findings");
	lg_json_open(&j, '[');
	for (size_t i = 0; i < v->n_findings; i++)
		finding(v, &j, &v->findings[i]);
	lg_json_close(&j, ']');
	if (v->n_gil)
		gil(v, &j);
	lg_json_key_num(&j, "unexplained_share", v->unexplained_share, 4);
	money(v, &j);
	lg_json_key(&j, "limits");
	lg_json_open(&j, '[');
	for (size_t i = 0; i < v->n_limits; i++)
		lg_json_str(&j, v->limits[i]);
	lg_json_close(&j, ']');
	*to = j;
}

void lg_report_json(const struct lg_verdict *v, struct lg_out *o)
{
	struct lg_json j = { .o = o };

	lg_json_open(&j, '{');
	lg_json_verdict(v, &j);
	lg_json_close(&j, '}');
	lg_out_puts(o, "\n");
}
