/* SPDX-License-Identifier: Apache-2.0 */
/* steps_table.c - one line a step: what its time went into, and its largest cause. */
#include <stdio.h>
#include <string.h>

#include "report/json_write.h"
#include "report/report.h"
#include "report/text.h"

struct row {
	int64_t kind[4];             /* by enum lg_part_kind */
	int64_t stage[LG_STAGE_MAX]; /* NONE counts as other */
	char cause[256];
};

/* Of a profiler's step: what its device did for most of it. */
static void tell_device(const struct lg_step_device *d, char *buf, size_t size)
{
	const struct {
		const char *name;
		int64_t ns;
	} part[] = { { "computing", d->compute }, { "collectives", d->comm }, { "copies", d->copy },
		     { d->idle_cause ? d->idle_cause : "device idle", d->idle } };
	size_t most = 0;

	for (size_t k = 1; k < sizeof part / sizeof *part; k++)
		most = part[k].ns > part[most].ns ? k : most;
	snprintf(buf, size, "%s, %.1f ms", part[most].name, (double)part[most].ns / 1e6);
}

/* Adding up the pieces of one step is presentation: the pieces come from the account. */
static void fill(const struct lg_verdict *v, const struct lg_step *s, struct row *r)
{
	int64_t best = 0, sum = 0;
	uint32_t cause = 0;

	memset(r, 0, sizeof *r);
	for (uint32_t i = 0; i < s->n_parts && s->part_first + i < v->n_parts; i++) {
		const struct lg_part *p = &v->parts[s->part_first + i];
		unsigned stage = p->stage < LG_STAGE_MAX ? p->stage : LG_STAGE_OTHER;

		r->kind[p->kind < 4 ? p->kind : LG_PART_UNEXPLAINED] += p->dur;
		r->stage[stage == LG_STAGE_NONE ? LG_STAGE_OTHER : stage] += p->dur;
	}
	/* Parts of one cause need not be adjacent: add them per cause. A step has few causes, so
	 * the quadratic walk over its parts stays short where it matters (cause != 0). */
	for (uint32_t i = 0; i < s->n_parts && s->part_first + i < v->n_parts; i++) {
		uint32_t c = v->parts[s->part_first + i].cause;

		if (!c || c >= v->n_causes || c == cause)
			continue;
		sum = 0;
		for (uint32_t k = i; k < s->n_parts && s->part_first + k < v->n_parts; k++)
			if (v->parts[s->part_first + k].cause == c)
				sum += v->parts[s->part_first + k].dur;
		if (sum > best) {
			best = sum;
			cause = c;
		}
	}
	if (s->device && !cause) {
		tell_device(s->device, r->cause, sizeof r->cause);
	} else if (r->kind[LG_PART_UNEXPLAINED] > best && r->kind[LG_PART_UNEXPLAINED] > s->dur / 20) {
		snprintf(r->cause, sizeof r->cause, "unexplained, %.1f ms",
			 (double)r->kind[LG_PART_UNEXPLAINED] / 1e6);
	} else if (cause) {
		static const char *const kinds[] = { "", "lock", "cpu", "running", "io", "stopped",
						     "other" };
		const struct lg_trace *t = v->trace;
		const struct lg_cause *c = &v->causes[cause];
		lg_prc prc = c->prc;
		const char *comm = "";
		char who[128] = "", pid[LG_PID_TEXT];

		if (!prc && c->thr && t)
			prc = t->thread.prc[c->thr];
		if (t)
			comm = lg_string(t, c->thr && t->thread.comm[c->thr] ? t->thread.comm[c->thr] :
					    t->process.comm[prc]);
		if (t && c->thr && t->thread.tid[c->thr] != t->process.pid[prc])
			snprintf(who, sizeof who, "%s%.64s %s tid %d", *comm ? " " : "", comm,
				 lg_pid_text(t->process.pid[prc], pid), t->thread.tid[c->thr]);
		else if (t && prc)
			snprintf(who, sizeof who, "%s%.64s %s", *comm ? " " : "", comm,
				 lg_pid_text(t->process.pid[prc], pid));
		snprintf(r->cause, sizeof r->cause, "%s%s%s%s%s, %.1f ms", kinds[c->kind < 7 ? c->kind : 6],
			 c->lock && t ? " " : "", c->lock && t ? lg_string(t, c->lock) : "", *who ? "," : "", who,
			 (double)best / 1e6);
	}
}

static const int stage_order[] = { LG_STAGE_BATCH_WAIT, LG_STAGE_H2D, LG_STAGE_FORWARD,
				   LG_STAGE_BACKWARD, LG_STAGE_GRAD_SYNC, LG_STAGE_OPTIMIZER,
				   LG_STAGE_SIDE, LG_STAGE_OTHER };
enum { N_STAGES = sizeof stage_order / sizeof *stage_order };
static const char *const part_names[] = { "running_ms", "runnable_ms", "blocked_ms",
					  "unexplained_ms" };

static const char *const device_names[] = { "compute_ms", "comm_exposed_ms", "copy_exposed_ms", "idle_ms" };
enum { N_DEVICE = sizeof device_names / sizeof *device_names };

static int64_t device_ns(const struct lg_step_device *d, int k)
{
	return k == 0 ? d->compute : k == 1 ? d->comm : k == 2 ? d->copy : d->idle;
}

static bool has_device(const struct lg_verdict *v)
{
	for (size_t i = 0; i < v->n_steps; i++)
		if (v->steps[i].device)
			return true;
	return false;
}

/* Milliseconds with all six decimals, from integers: sums in a spreadsheet stay exact. */
static void put_ms(struct lg_out *o, int64_t ns)
{
	lg_out_printf(o, "%s%lld.%06lld", ns < 0 ? "-" : "", (long long)(ns / 1000000) * (ns < 0 ? -1 : 1),
		      (long long)(ns % 1000000) * (ns < 0 ? -1 : 1));
}

static int64_t start_of(const struct lg_verdict *v, const struct lg_step *s)
{
	return v->trace && v->trace->first <= s->ts ? s->ts - v->trace->first : 0;
}

static const char *flag(const struct lg_step *s)
{
	return s->warmup ? "warmup" : s->slow ? "slow" : "";
}

void lg_steps_csv(const struct lg_verdict *v, struct lg_out *o)
{
	bool device = has_device(v);

	lg_out_puts(o, "rank,number,start_s,dur_ms,flag");
	for (int k = 0; k < 4; k++)
		lg_out_printf(o, ",%s", part_names[k]);
	for (int k = 0; k < N_STAGES; k++)
		lg_out_printf(o, ",%s_ms", lg_stage_name((uint32_t)stage_order[k]));
	for (int k = 0; device && k < N_DEVICE; k++)
		lg_out_printf(o, ",%s", device_names[k]);
	lg_out_puts(o, device ? ",idle_cause,top_cause\n" : ",top_cause\n");
	for (size_t i = 0; i < v->n_steps; i++) {
		const struct lg_step *s = &v->steps[i];
		int64_t start = start_of(v, s);
		struct row r;

		fill(v, s, &r);
		lg_out_printf(o, "%d,%lld,%lld.%09lld,", s->rank, (long long)s->number,
			      (long long)(start / 1000000000), (long long)(start % 1000000000));
		put_ms(o, s->dur);
		lg_out_printf(o, ",%s", flag(s));
		for (int k = 0; k < 4; k++) {
			lg_out_puts(o, ",");
			put_ms(o, r.kind[k]);
		}
		for (int k = 0; k < N_STAGES; k++) {
			lg_out_puts(o, ",");
			put_ms(o, r.stage[stage_order[k]]);
		}
		for (int k = 0; device && k < N_DEVICE; k++) {
			lg_out_puts(o, ",");
			if (s->device)
				put_ms(o, device_ns(s->device, k));
		}
		lg_out_printf(o, ",%s%s", device && s->device && s->device->idle_cause ? s->device->idle_cause : "",
			      device ? "," : "");
		lg_csv_text(o, r.cause);
		lg_out_puts(o, "\n");
	}
}

static void json_device(struct lg_json *j, const struct lg_step_device *d)
{
	for (int k = 0; k < N_DEVICE; k++) {
		lg_json_key(j, device_names[k]);
		lg_json_num(j, (double)device_ns(d, k) / 1e6, 6);
	}
	lg_json_key_str(j, "idle_cause", d->idle_cause);
}

void lg_steps_json(const struct lg_verdict *v, struct lg_out *o)
{
	struct lg_json j = { .o = o };

	lg_json_open(&j, '{');
	lg_json_key_int(&j, "schema", 1);
	lg_json_key_str(&j, "laggard", LG_VERSION);
	lg_json_key(&j, "steps");
	lg_json_open(&j, '[');
	for (size_t i = 0; i < v->n_steps; i++) {
		const struct lg_step *s = &v->steps[i];
		struct row r;

		fill(v, s, &r);
		lg_json_open_flat(&j, '{');
		lg_json_key_id(&j, "rank", s->rank);
		lg_json_key_int(&j, "number", s->number);
		lg_json_key_num(&j, "start_s", (double)start_of(v, s) / 1e9, 9);
		lg_json_key_num(&j, "dur_ms", (double)s->dur / 1e6, 6);
		lg_json_key_num(&j, "median_ms", (double)s->median / 1e6, 6);
		lg_json_key(&j, "slow");
		lg_json_bool(&j, s->slow);
		lg_json_key(&j, "warmup");
		lg_json_bool(&j, s->warmup);
		for (int k = 0; k < 4; k++) {
			lg_json_key(&j, part_names[k]);
			lg_json_num(&j, (double)r.kind[k] / 1e6, 6);
		}
		lg_json_key(&j, "stages_ms");
		lg_json_open(&j, '{');
		for (int k = 0; k < N_STAGES; k++) {
			if (!r.stage[stage_order[k]])
				continue;
			lg_json_key(&j, lg_stage_name((uint32_t)stage_order[k]));
			lg_json_num(&j, (double)r.stage[stage_order[k]] / 1e6, 6);
		}
		lg_json_close(&j, '}');
		if (s->device)
			json_device(&j, s->device);
		lg_json_key_str(&j, "top_cause", *r.cause ? r.cause : NULL);
		lg_json_close(&j, '}');
	}
	lg_json_close(&j, ']');
	lg_json_close(&j, '}');
	lg_out_puts(o, "\n");
}

enum { CAUSE = 26 };

static void put_device(struct lg_out *o, const struct lg_step_device *d)
{
	for (int k = 0; k < N_DEVICE; k++)
		if (d)
			lg_out_printf(o, " %9.3f", (double)device_ns(d, k) / 1e6);
		else
			lg_out_printf(o, " %9s", "-");
	lg_out_printf(o, "  %-*s", CAUSE, d && d->idle_cause ? d->idle_cause : "-");
}

void lg_steps_table(const struct lg_verdict *v, struct lg_out *o)
{
	bool device = has_device(v), host = !device;
	int64_t total[LG_STAGE_MAX] = { 0 };
	char why[4096];
	struct row r;

	if (!v->n_steps) {
		lg_text_safe(o, lg_headline(v, why, sizeof why));
		lg_out_puts(o, "\n");
		return;
	}
	/* Columns of stages that never occur are left out, and where a device tells, those of a thread's
	 * states that nobody saw. */
	for (size_t i = 0; i < v->n_steps; i++) {
		fill(v, &v->steps[i], &r);
		for (int k = 0; k < N_STAGES; k++)
			total[stage_order[k]] += r.stage[stage_order[k]];
		host |= r.kind[LG_PART_RUNNING] || r.kind[LG_PART_RUNNABLE] || r.kind[LG_PART_BLOCKED];
	}
	lg_out_printf(o, "%4s %7s %10s %10s %-6s", "rank", "number", "start s", "ms", "");
	if (host)
		lg_out_printf(o, " %9s %9s %9s %9s", "running", "runnable", "blocked", "unexpl.");
	if (device)
		lg_out_printf(o, " %9s %9s %9s %9s  %-*s", "compute", "comm exp.", "copy exp.", "idle", CAUSE,
			      "idle for");
	for (int k = 0; k < N_STAGES; k++)
		if (total[stage_order[k]])
			lg_out_printf(o, " %10s", lg_stage_name((uint32_t)stage_order[k]));
	lg_out_puts(o, "  top cause\n");
	for (size_t i = 0; i < v->n_steps; i++) {
		const struct lg_step *s = &v->steps[i];

		fill(v, s, &r);
		if (s->rank < 0)
			lg_out_printf(o, "%4s", "-");
		else
			lg_out_printf(o, "%4d", s->rank);
		lg_out_printf(o, " %7lld %10.4f %10.3f %-6s", (long long)s->number,
			      (double)start_of(v, s) / 1e9, (double)s->dur / 1e6, flag(s));
		for (int k = 0; host && k < 4; k++)
			lg_out_printf(o, " %9.3f", (double)r.kind[k] / 1e6);
		if (device)
			put_device(o, s->device);
		for (int k = 0; k < N_STAGES; k++)
			if (total[stage_order[k]])
				lg_out_printf(o, " %10.3f", (double)r.stage[stage_order[k]] / 1e6);
		if (*r.cause) {
			lg_out_puts(o, "  ");
			lg_text_safe(o, r.cause);
		}
		lg_out_puts(o, "\n");
	}
}
