/* SPDX-License-Identifier: Apache-2.0 */
/*
 * html_data.c - what the page's script draws, behind all that is read without it (web/README.md has
 * the layout). Block 0, the last one in the page, says what is in the others.
 */
#include <math.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/each.h"
#include "base/order.h"
#include "base/printable.h"
#include "picture/samples.h"
#include "report/html_text.h"
#include "report/json_write.h"
#include "report/report.h"

enum { NAME = 200, LOSSES = 2000 };

/* Bytes in the page of all levels of detail: 60 s of eight ranks stay below 5 MB, an hour below 30.
 */
static size_t budget_of(const struct lg_trace *t)
{
	double s = (double)(t->last - t->first) / 1e9;

	return (size_t)LG_MIN(LG_MAX(3.0e6, 3.0e6 * s / 60), 20e6);
}

static void text(struct lg_json *j, const char *s)
{
	char buf[NAME];

	lg_json_str(j, lg_show(buf, sizeof buf, s, false));
}

/* An open list whose elements go on one line. */
static void list(struct lg_json *j, const char *key)
{
	lg_json_key(j, key);
	lg_json_open_flat(j, '[');
}

static void lanes(struct lg_json *j, const struct lg_lanes *l, struct lg_levels *used, int *failed)
{
	list(j, "lanes");
	for (size_t i = 0; i < l->n; i++) {
		const struct lg_lane *lane = &l->v[i];

		lg_json_open(j, '[');
		lg_json_str(j, lane->group);
		lg_json_str(j, lane->name);
		lg_json_int(j, lane->kind);
		lg_json_int(j, lg_used_number(&used->thread, lane->thr, failed));
		lg_json_int(j, lane->depth);
		lg_json_int(j, lane->folded);
		lg_json_int(j, (int64_t)lane->n);
		lg_json_close(j, ']');
	}
	lg_json_close(j, ']');
}

static void blocks(struct lg_json *j, const struct lg_levels *l)
{
	list(j, "blocks");
	for (size_t i = 0; i < l->n; i++) {
		const struct lg_block *b = &l->block[i];

		lg_json_open(j, '[');
		lg_json_int(j, b->id);
		lg_json_int(j, b->k);
		lg_json_int(j, b->from);
		lg_json_int(j, b->to);
		lg_json_int(j, b->n);
		lg_json_close(j, ']');
	}
	lg_json_close(j, ']');
}

/* Thread number -> tid, pid, name, process' name, rank. */
static void threads(struct lg_json *j, const struct lg_trace *t, const struct lg_used *u)
{
	list(j, "threads");
	for (size_t i = 1; i <= u->n; i++) {
		lg_thr thr = u->row[i];
		lg_prc prc = t->thread.prc[thr];

		lg_json_open(j, '[');
		lg_json_int(j, t->thread.tid[thr]);
		lg_json_int(j, t->process.pid[prc]);
		text(j, lg_string(t, t->thread.comm[thr]));
		text(j, lg_string(t, t->process.comm[prc]));
		lg_json_int(j, t->process.rank[prc]);
		lg_json_close(j, ']');
	}
	lg_json_close(j, ']');
}

static void names(struct lg_json *j, const struct lg_trace *t, const struct lg_used *u)
{
	lg_json_open(j, '[');
	for (size_t i = 1; i <= u->n; i++)
		text(j, lg_string(t, u->row[i]));
	lg_json_close(j, ']');
}

/* [texts of frames, kinds of frames, [parent, frame] of each stack]. Callers get numbers here, too.
 */
static void stacks(struct lg_json *j, const struct lg_trace *t, struct lg_used *u,
		   struct lg_used *frame, int *failed)
{
	char buf[2 * NAME];

	lg_json_open(j, '{');
	list(j, "stack");
	for (size_t i = 1; i <= u->n; i++) { /* u->n grows */
		lg_stk s = u->row[i];

		lg_json_int(j, lg_used_number(u, t->stack.parent[s], failed));
		lg_json_int(j, lg_used_number(frame, t->stack.frame[s], failed));
	}
	lg_json_close(j, ']');
	list(j, "frame");
	for (size_t i = 1; i <= frame->n; i++)
		text(j, lg_frame_text(t, frame->row[i], buf, sizeof buf));
	lg_json_close(j, ']');
	list(j, "kind");
	for (size_t i = 1; i <= frame->n; i++)
		lg_json_int(j, t->frame.kind[frame->row[i]]);
	lg_json_close(j, ']');
	lg_json_close(j, '}');
}

static void losses(struct lg_json *j, const struct lg_trace *t)
{
	size_t n = 0;

	list(j, "losses");
	for (size_t i = 0; i < t->diag.n && n < LOSSES; i++) {
		/* What has no moment is drawn at none: the page's list of losses says it in words. */
		if (lg_diag_severity(t->diag.id[i]) == LG_DIAG_INFO || t->diag.ts[i] == INT64_MIN)
			continue;
		n++;
		lg_json_open(j, '[');
		lg_json_int(j, t->diag.ts[i] - t->first);
		lg_json_int(j, LG_MAX(t->diag.dur[i], 0));
		text(j, lg_diag_sentence(t->diag.id[i]));
		lg_json_close(j, ']');
	}
	lg_json_close(j, ']');
}

static void slots(struct lg_json *j, const struct lg_accounts *a)
{
	list(j, "slots");
	for (size_t k = 0; k < a->n_slots; k++) {
		lg_json_open(j, '[');
		lg_json_str(j, a->slot[k].name);
		lg_json_int(j, a->slot[k].kind);
		lg_json_int(j, a->slot[k].cause != 0);
		lg_json_close(j, ']');
	}
	lg_json_close(j, ']');
}

/* Writes what is in memory as the block and empties it. */
static int flush(struct lg_out *memory, struct lg_out *o, uint32_t id)
{
	int rc = lg_out_failed(memory);

	rc = rc ? rc
		: lg_block_write(o, id, lg_out_view(memory), (size_t)lg_out_bytes(memory), NULL);
	lg_out_clear(memory);
	return rc;
}

/* That of the steps, else that of the first finding that comes back. */
static double period_of(const struct lg_verdict *v)
{
	if (isfinite(v->period_s))
		return v->period_s;
	LG_EACH(f, v->findings, v->n_findings)
		if (f->severity >= LG_SEVERITY_LOW && f->period_s > 0)
			return f->period_s;
	return (double)NAN;
}

struct data {
	const struct lg_verdict *v;
	const struct lg_accounts *a;
	struct lg_lanes lanes;
	struct lg_levels l;
	struct lg_active active;
	struct lg_used frame;
	size_t n_samples, every, n_waits;
	int64_t waits_left_ns;
	uint32_t id[6]; /* samples, waits, active, steps, stacks, names */
	int failed;
};

static void meta(struct data *d, struct lg_json *j)
{
	const struct lg_trace *t = d->v->trace;
	static const char *const keys[] = {
		"samples", "waits", "active", "steps", "stacks", "names"
	};

	lg_json_open(j, '{');
	lg_json_key_int(j, "layout", 1);
	lg_json_key_int(j, "length", LG_MAX(t->last - t->first, 0));
	for (size_t i = 0; i < LG_COUNT(keys); i++)
		lg_json_key_int(j, keys[i], d->id[i]);
	lg_json_key_int(j, "whole", d->l.whole);
	lg_json_key_int(j, "n_steps", (int64_t)d->v->n_steps);
	lg_json_key_int(j, "n_samples", (int64_t)d->n_samples);
	lg_json_key_int(j, "every", (int64_t)d->every);
	lg_json_key_int(j, "n_waits", (int64_t)d->n_waits);
	lg_json_key_int(j, "waits_left", d->waits_left_ns);
	lg_json_key_int(j, "lanes_left", (int64_t)d->lanes.left_out);
	lg_json_key_int(j, "marks_left", (int64_t)d->lanes.marks_left_out);
	lg_json_key_num(j, "period", period_of(d->v), 6);
	lg_json_key_int(j, "bucket", d->active.bucket_ns);
	lg_json_key_int(j, "n_accused", (int64_t)d->active.n_accused);
	list(j, "active_names");
	for (size_t k = 0; k < d->active.n; k++) {
		char buf[NAME], pid[LG_PID_TEXT];

		snprintf(buf, sizeof buf, "%.100s (%s)",
			 lg_string(t, t->process.comm[d->active.prc[k]]),
			 lg_pid_text(t->process.pid[d->active.prc[k]], pid));
		text(j, buf);
	}
	lg_json_close(j, ']');
	list(j, "stages");
	for (uint32_t s = 0; s < LG_STAGE_MAX; s++)
		lg_json_str(j, lg_stage_name(s));
	lg_json_close(j, ']');
	slots(j, d->a);
	lanes(j, &d->lanes, &d->l, &d->failed);
	blocks(j, &d->l);
	losses(j, t);
	threads(j, t, &d->l.thread);
	lg_json_close(j, '}');
}

static int write_blocks(struct data *d, struct lg_out *o, struct lg_out *memory,
			struct lg_error *err)
{
	const struct lg_verdict *v = d->v;
	int rc = lg_levels_write(&d->l, &d->lanes, v, budget_of(v->trace), o, err);
	struct lg_json j = { .o = memory };

	for (uint32_t i = 0; i < LG_COUNT(d->id); i++)
		d->id[i] = d->l.next_id + i;
	rc = rc ? rc : lg_samples_write(&d->l, v, o, &d->n_samples, &d->every);
	rc = rc ? rc : lg_waits_write(&d->l, v, o, &d->n_waits, &d->waits_left_ns);
	rc = rc ? rc : lg_active_write(&d->l, v, o, &d->active);
	rc = rc ? rc : lg_steps_write(&d->l, v, d->a, o);
	if (rc)
		return rc;
	d->frame.n_rows = v->trace->frame.n;
	d->frame.number = lg_calloc(v->trace->frame.n + 1, sizeof *d->frame.number);
	if (!d->frame.number)
		return LG_E_NOMEM;
	stacks(&j, v->trace, &d->l.stack, &d->frame, &d->failed);
	rc = flush(memory, o, d->id[4]);
	j = (struct lg_json){ .o = memory };
	names(&j, v->trace, &d->l.name);
	rc = rc ? rc : flush(memory, o, d->id[5]);
	j = (struct lg_json){ .o = memory };
	meta(d, &j);
	rc = rc ? rc : flush(memory, o, 0);
	return rc ? rc : d->failed;
}

int lg_html_data(const struct lg_verdict *v, const struct lg_accounts *a, struct lg_out *o,
		 struct lg_error *err)
{
	struct data d = { .v = v, .a = a, .l.next_id = 1 };
	struct lg_out *memory;
	int rc;

	if (!v->trace || v->trace->first > v->trace->last)
		return 0;
	rc = lg_out_memory(&memory, err);
	if (rc)
		return rc;
	rc = lg_lanes_make(&d.lanes, v, a, err);
	if (!rc && write_blocks(&d, o, memory, err))
		rc = lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	lg_out_abort(memory);
	lg_free(d.frame.number);
	lg_free(d.frame.row);
	lg_levels_done(&d.l);
	lg_lanes_done(&d.lanes);
	return rc;
}
