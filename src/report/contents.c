/* SPDX-License-Identifier: Apache-2.0 */
#include "report/contents.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/agree.h"
#include "base/each.h"
#include "base/order.h"
#include "base/printable.h"
#include "report/text.h"

enum { WIDTH = 80, SHOWN = 5, NAME = 44 };

static const struct {
	const char *title, *key;
} kinds[LG_CONTENT_MAX] = {
	[LG_CONTENT_PROCESS] = { "processes, by CPU time", "processes" },
	[LG_CONTENT_FUNCTION] = { "functions, by samples", "functions" },
	[LG_CONTENT_KERNEL] = { "kernels", "kernels" },
	[LG_CONTENT_COPY] = { "copies", "copies" },
	[LG_CONTENT_COLLECTIVE] = { "collectives", "collectives" },
	[LG_CONTENT_OP] = { "operators", "operators" },
	[LG_CONTENT_EVENT] = { "events, and errors in logs", "events" },
};

bool lg_contents_wanted(const struct lg_verdict *v)
{
	return v->trace && !v->n_judged && !lg_lead(v);
}

const char *lg_content_name(const struct lg_trace *t, enum lg_content kind, uint32_t id, char *buf,
			    size_t size)
{
	char pid[LG_PID_TEXT];

	if (kind == LG_CONTENT_FUNCTION)
		return lg_frame_text(t, id, buf, size);
	if (kind != LG_CONTENT_PROCESS)
		return lg_string(t, id);
	snprintf(buf, size, "%.200s (%s)", lg_string(t, t->process.comm[id]), lg_pid_text(t->process.pid[id], pid));
	return buf;
}

/* 1e9 bytes a second; NAN = not told. */
static double gb_per_s(const struct lg_content_row *r)
{
	return r->moving > 0 ? (double)r->bytes / (double)r->moving : (double)NAN;
}

static double share_of(const struct lg_contents *c, int k, const struct lg_content_row *r)
{
	return c->of[k].ns > 0 ? (double)r->ns / (double)c->of[k].ns : 0;
}

static double seconds(const struct lg_trace *t)
{
	return t->last > t->first ? (double)(t->last - t->first) / 1e9 : 0;
}

/* ---- the terminal -------------------------------------------------------------------------------- */

static void names(const struct lg_trace *t, const struct lg_contents *c, int k, struct lg_out *o)
{
	lg_out_printf(o, "%s (%zu)\n", kinds[k].title, c->of[k].names);
	for (size_t i = 0; i < LG_MIN(c->of[k].n, (size_t)SHOWN); i++) {
		const struct lg_content_row *r = &c->of[k].top[i];
		char buf[512], cut[NAME + 1];
		const char *name = lg_content_name(t, (enum lg_content)k, r->id, buf, sizeof buf);
		size_t n = lg_whole_chars(name, strlen(name), NAME);

		snprintf(cut, sizeof cut, "%.*s", (int)n, name);
		lg_out_puts(o, "  ");
		lg_text_safe(o, cut);
		lg_out_printf(o, "%*s", (int)(NAME - n), "");
		if (k != LG_CONTENT_EVENT)
			lg_out_printf(o, " %5.1f %% %10.3f ms", 100 * share_of(c, k, r), (double)r->ns / 1e6);
		if (r->count)
			lg_out_printf(o, " %8llu x", (unsigned long long)r->count);
		if (isfinite(gb_per_s(r)))
			lg_out_printf(o, " %.3g GB/s", gb_per_s(r));
		lg_out_puts(o, "\n");
	}
}

static void head(const struct lg_verdict *v, const struct lg_contents *c, unsigned width, struct lg_out *o)
{
	const struct lg_trace *t = v->trace;
	char text[1024];
	size_t n = 0;

	n += (size_t)snprintf(text, sizeof text, "what it holds: %.3f s", seconds(t));
	for (size_t i = 0; i < v->n_inputs && n < 512; i++)
		if (v->inputs[i].host && *v->inputs[i].host &&
		    (!i || !v->inputs[i - 1].host || strcmp(v->inputs[i].host, v->inputs[i - 1].host)))
			n += (size_t)snprintf(text + n, sizeof text - n, "%s %.64s", i ? "," : "; host", v->inputs[i].host);
	for (size_t i = 0; i < c->n_ranks && n < 700; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, "%s %d", i ? "," : "; rank", c->rank[i]);
	lg_agree(text + n, sizeof text - n,
		 "; %zu processes, %zu threads; %zu samples, %zu states, %zu spans, %zu counter values",
		 LG_MAX(t->process.n, (size_t)1) - 1, LG_MAX(t->thread.n, (size_t)1) - 1, t->sample.n,
		 t->state.n, t->span.n, t->counter.n);
	lg_text_wrap(o, text, 0, 2, width);
}

static void busy(const struct lg_trace *t, const struct lg_contents *c, struct lg_out *o)
{
	double s = seconds(t);

	if (c->of[LG_CONTENT_PROCESS].ns > 0 && s > 0)
		lg_out_printf(o, "CPUs: %.2f busy in the mean\n", (double)c->of[LG_CONTENT_PROCESS].ns / 1e9 / s);
	LG_EACH(d, c->device, c->n_devices) {
		double share = s > 0 ? (double)d->busy / 1e9 / s : 0;

		lg_text_safe(o, *lg_string(t, t->track.name[d->track]) ? lg_string(t, t->track.name[d->track]) : "device");
		lg_out_printf(o, ": busy %.1f %%, idle %.1f %%\n", 100 * share, 100 * LG_MAX(1 - share, 0.));
	}
}

static void counters(const struct lg_trace *t, const struct lg_contents *c, struct lg_out *o)
{
	char num[3][32];

	if (c->n_counters)
		lg_out_printf(o, "%-*s %12s %12s %12s\n", NAME + 2, "readings", "least", "mean", "most");
	LG_EACH(x, c->counter, c->n_counters) {
		char name[256], index[24] = "", cut[NAME + 1];
		const char *unit;
		size_t n;

		if (!x->n)
			continue;
		if (t->track.index[x->track] >= 0)
			snprintf(index, sizeof index, " %d", t->track.index[x->track]);
		unit = lg_string(t, t->track.unit[x->track]);
		snprintf(name, sizeof name, "%.120s%s%s%.60s", lg_string(t, t->track.name[x->track]), index,
			 *unit ? ", " : "", unit);
		n = lg_whole_chars(name, strlen(name), NAME);
		snprintf(cut, sizeof cut, "%.*s", (int)n, name);
		lg_out_puts(o, "  ");
		lg_text_safe(o, cut);
		lg_out_printf(o, "%*s %12s %12s %12s\n", (int)(NAME - n), "", lg_text_num(num[0], 32, x->least, 2),
			      lg_text_num(num[1], 32, x->sum / (double)x->n, 2),
			      lg_text_num(num[2], 32, x->most, 2));
	}
	if (c->counters_left)
		lg_out_printf(o, "  and %zu more\n", c->counters_left);
}

void lg_report_contents(const struct lg_verdict *v, const struct lg_contents *c,
			const struct lg_term_options *opt, struct lg_out *o)
{
	const struct lg_trace *t = v->trace;
	unsigned width = opt->width ? opt->width : WIDTH;

	lg_out_puts(o, "\n");
	head(v, c, width, o);
	busy(t, c, o);
	if (c->pending) {
		lg_out_printf(o, "pending collectives: %zu, the first ", c->pending);
		lg_text_safe(o, lg_string(t, t->span.name[c->pending_span]));
		lg_out_printf(o, " number %lld\n", (long long)t->span.seq[c->pending_span]);
	}
	for (int k = LG_CONTENT_MAX - 1; k >= 0; k--)
		if (c->of[k].n)
			names(t, c, k, o);
	counters(t, c, o);
}

/* ---- JSON ---------------------------------------------------------------------------------------- */

static void json_names(const struct lg_trace *t, const struct lg_contents *c, int k, struct lg_json *j)
{
	lg_json_key(j, kinds[k].key);
	lg_json_open(j, '[');
	LG_EACH(r, c->of[k].top, c->of[k].n) {
		char buf[512];

		lg_json_open_flat(j, '{');
		lg_json_key_str(j, "name", lg_content_name(t, (enum lg_content)k, r->id, buf, sizeof buf));
		if (k != LG_CONTENT_EVENT) {
			lg_json_key_num(j, "ms", (double)r->ns / 1e6, 6);
			lg_json_key_num(j, "share", share_of(c, k, r), 4);
		}
		if (r->count) {
			lg_json_key_int(j, "count", (int64_t)r->count);
		}
		if (isfinite(gb_per_s(r))) {
			lg_json_key_num(j, "gb_per_s", gb_per_s(r), 4);
		}
		lg_json_close(j, '}');
	}
	lg_json_close(j, ']');
}

void lg_json_contents(const struct lg_verdict *v, const struct lg_contents *c, struct lg_json *j)
{
	const struct lg_trace *t = v->trace;
	double s = seconds(t);

	lg_json_key(j, "contents");
	lg_json_open(j, '{');
	lg_json_key_num(j, "duration_s", s, 6);
	lg_json_key(j, "ranks");
	lg_json_open_flat(j, '[');
	LG_EACH(r, c->rank, c->n_ranks)
		lg_json_int(j, *r);
	lg_json_close(j, ']');
	lg_json_key_num(j, "cpus_busy", s > 0 ? (double)c->of[LG_CONTENT_PROCESS].ns / 1e9 / s : 0, 4);
	lg_json_key(j, "devices");
	lg_json_open(j, '[');
	LG_EACH(d, c->device, c->n_devices) {
		lg_json_open_flat(j, '{');
		lg_json_key_str(j, "name", lg_string(t, t->track.name[d->track]));
		lg_json_key_num(j, "busy_share", s > 0 ? (double)d->busy / 1e9 / s : 0, 4);
		lg_json_close(j, '}');
	}
	lg_json_close(j, ']');
	lg_json_key_int(j, "pending_collectives", (int64_t)c->pending);
	for (int k = 0; k < LG_CONTENT_MAX; k++)
		json_names(t, c, k, j);
	lg_json_key(j, "counters");
	lg_json_open(j, '[');
	LG_EACH(x, c->counter, c->n_counters) {
		if (!x->n)
			continue;
		lg_json_open_flat(j, '{');
		lg_json_key_str(j, "name", lg_string(t, t->track.name[x->track]));
		lg_json_key_int(j, "index", t->track.index[x->track]);
		lg_json_key_str(j, "unit", lg_string(t, t->track.unit[x->track]));
		lg_json_key_int(j, "count", (int64_t)x->n);
		lg_json_key_num(j, "least", x->least, 3);
		lg_json_key_num(j, "mean", x->sum / (double)x->n, 3);
		lg_json_key_num(j, "most", x->most, 3);
		lg_json_close(j, '}');
	}
	lg_json_close(j, ']');
	lg_json_close(j, '}');
}
