/* SPDX-License-Identifier: Apache-2.0 */
/* hang.c - does the run move, and where does each rank stand: what `laggard hang` prints. */
#include <math.h>
#include <string.h>

#include "report/json_write.h"
#include "report/report.h"

static const char *const states[] = {
	[LG_HANG_UNKNOWN] = "unknown", [LG_HANG_RUNNING] = "running", [LG_HANG_WAITING] = "waiting",
	[LG_HANG_HUNG] = "hung", [LG_HANG_FINISHED] = "finished",
};

static bool same(const struct lg_hang_rank *a, const struct lg_hang_rank *b)
{
	size_t i = 0;

	while (i < a->n_stack && i < b->n_stack && !strcmp(a->stack[i], b->stack[i]))
		i++;
	return a->n_stack && i == a->n_stack && i == b->n_stack;
}

/* Is rank i the first one of those with its stack? */
static bool is_first(const struct lg_verdict *v, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (same(&v->hang.ranks[k], &v->hang.ranks[i]))
			return false;
	return v->hang.ranks[i].n_stack > 0;
}

static void frames(struct lg_json *j, const char *key, const struct lg_hang_rank *r)
{
	lg_json_key(j, key);
	lg_json_open(j, '[');
	for (size_t i = 0; i < r->n_stack; i++)
		lg_json_str(j, r->stack[i]);
	lg_json_close(j, ']');
}

static void rank_json(const struct lg_verdict *v, const struct lg_hang_rank *r, struct lg_json *j)
{
	lg_json_open_flat(j, '{');
	lg_json_key_id(j, "rank", r->rank);
	lg_json_key_id(j, "pid", r->pid);
	lg_json_key_str(j, "host", v->n_inputs && v->inputs[0].host && *v->inputs[0].host ? v->inputs[0].host : NULL);
	lg_json_key_str(j, "state", states[r->state]);
	lg_json_key(j, "last_collective");
	if (r->op) {
		lg_json_open(j, '{');
		lg_json_key_str(j, "group", r->group);
		lg_json_key_id(j, "seq", r->seq);
		lg_json_key_str(j, "op", r->op);
		lg_json_key_id(j, "bytes", r->bytes);
		lg_json_key_str(j, "state", r->left ? "completed" : "waiting");
		lg_json_close(j, '}');
	} else {
		lg_json_null(j);
	}
	frames(j, "stack", r);
	lg_json_close(j, '}');
}

void lg_hang_json(const struct lg_verdict *v, struct lg_out *o)
{
	struct lg_json j = { .o = o };

	lg_json_open(&j, '{');
	lg_json_verdict(v, &j);
	lg_json_key(&j, "hang");
	lg_json_open(&j, '{');
	lg_json_key_str(&j, "state", states[v->hang.state]);
	lg_json_key_num(&j, "since_s", v->hang.since_s, 1);
	lg_json_key(&j, "ranks");
	lg_json_open(&j, '[');
	for (size_t i = 0; i < v->hang.n; i++)
		rank_json(v, &v->hang.ranks[i], &j);
	lg_json_close(&j, ']');
	lg_json_key(&j, "stacks");
	lg_json_open(&j, '[');
	for (size_t i = 0; i < v->hang.n; i++) {
		if (!is_first(v, i))
			continue;
		lg_json_open_flat(&j, '{');
		lg_json_key(&j, "ranks");
		lg_json_open(&j, '[');
		for (size_t k = i; k < v->hang.n; k++)
			if (same(&v->hang.ranks[i], &v->hang.ranks[k]))
				lg_json_int(&j, v->hang.ranks[k].rank);
		lg_json_close(&j, ']');
		frames(&j, "frames", &v->hang.ranks[i]);
		lg_json_close(&j, '}');
	}
	lg_json_close(&j, ']');
	lg_json_close(&j, '}');
	lg_json_close(&j, '}');
	lg_out_puts(o, "\n");
}

static void name(const struct lg_hang_rank *r, struct lg_out *o)
{
	if (r->rank >= 0 && r->pid >= 0)
		lg_out_printf(o, "rank %d (pid %d)", r->rank, r->pid);
	else
		lg_out_printf(o, "%s %d", r->rank >= 0 ? "rank" : "pid", r->rank >= 0 ? r->rank : r->pid);
}

void lg_hang_term(const struct lg_verdict *v, const struct lg_term_options *opt, struct lg_out *o)
{
	lg_out_printf(o, "%s", states[v->hang.state]);
	if (!isnan(v->hang.since_s))
		lg_out_printf(o, ", for %.0f s at least", v->hang.since_s);
	lg_out_puts(o, "\n\n");
	for (size_t i = 0; i < v->hang.n; i++) {
		const struct lg_hang_rank *r = &v->hang.ranks[i];

		if (r->n_stack && !is_first(v, i))
			continue;
		name(r, o);
		for (size_t k = i + 1; r->n_stack && k < v->hang.n; k++)
			if (same(r, &v->hang.ranks[k])) {
				lg_out_puts(o, ", ");
				name(&v->hang.ranks[k], o);
			}
		lg_out_printf(o, "  %s\n", states[r->state]);
		if (r->seq >= 0)
			lg_out_printf(o, "    %s %s number %lld%s%s\n", r->left ? "came out of" : "in", r->op,
				      (long long)r->seq, r->group ? " of group " : "", r->group ? r->group : "");
		for (size_t k = 0; k < r->n_stack; k++)
			lg_out_printf(o, "    %s\n", r->stack[k]);
	}
	if (v->hang.n)
		lg_out_puts(o, "\n");
	lg_report_term(v, opt, o);
}
