/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - what `laggard memory` prints. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/words.h"
#include "report/json_write.h"
#include "report/report.h"
#include "report/text.h"

enum { FRAME_TEXT = 512, FRAMES_OF_LINE = 4, SERIES_OF_ONE = 3 };

static void frames(const struct lg_verdict *v, lg_stk stack, struct lg_json *j)
{
	const struct lg_trace *t = v->trace;
	char buf[FRAME_TEXT];

	lg_json_key(j, "frames");
	lg_json_open(j, '[');
	for (; stack; stack = t->stack.parent[stack])
		lg_json_str(j, lg_memory_frame_text(t, t->stack.frame[stack], true, buf, sizeof buf));
	lg_json_close(j, ']');
}

static void held_json(const struct lg_verdict *v, const struct lg_memory_held *h, size_t n,
		      struct lg_json *j)
{
	lg_json_key(j, "by_category");
	lg_json_open(j, '[');
	for (enum lg_memory_kind k = 0; k < LG_MEMORY_KINDS; k++) {
		if (!h->by_kind[k])
			continue;
		lg_json_open_flat(j, '{');
		lg_json_key_str(j, "category", lg_memory_kind_name(k));
		lg_json_key_count(j, "bytes", h->by_kind[k]);
		lg_json_key_str(j, "told_by", lg_memory_kind_told(k));
		lg_json_close(j, '}');
	}
	lg_json_close(j, ']');
	lg_json_key(j, "by_stack");
	lg_json_open(j, '[');
	for (size_t i = 0; i < h->n_stacks && (!n || i < n); i++) {
		lg_json_open_flat(j, '{');
		lg_json_key_count(j, "bytes", h->by_stack[i].bytes);
		lg_json_key_count(j, "count", h->by_stack[i].count);
		frames(v, h->by_stack[i].stack, j);
		lg_json_close(j, '}');
	}
	lg_json_close(j, ']');
	lg_json_key_count(j, "stacks", h->n_stacks);
}

/* Of a file without a history, or in whose history nothing is held, nobody knows what was most. */
static bool has_peak(const struct lg_memory_device *d)
{
	return d->has_history && d->peak.bytes;
}

static void device_json(const struct lg_verdict *v, const struct lg_memory_device *d, size_t n,
			struct lg_json *j)
{
	lg_json_open(j, '{');
	lg_json_key_count(j, "device", (uint64_t)d->index);
	lg_json_key_id(j, "rank", d->rank);
	lg_json_key_count(j, "reserved_bytes", d->reserved);
	lg_json_key_count(j, "allocated_bytes", d->allocated);
	lg_json_key_count(j, "active_bytes", d->active);
	lg_json_key_count(j, "requested_bytes", d->requested);
	if (has_peak(d)) {
		lg_json_key_count(j, "peak_allocated_bytes", d->peak.bytes);
		lg_json_key_num(j, "peak_t_s", lg_report_seconds(v, d->peak.ts), 6);
	} else {
		lg_json_key(j, "peak_allocated_bytes");
		lg_json_null(j);
		lg_json_key(j, "peak_t_s");
		lg_json_null(j);
	}
	lg_json_key_count(j, "peak_reserved_bytes", d->peak_reserved);
	lg_json_key_count(j, "segments", d->segments);
	lg_json_key_count(j, "free_bytes", d->free);
	lg_json_key_count(j, "largest_free_bytes", d->largest_free);
	held_json(v, &d->now, n, j);
	lg_json_key(j, "at_peak");
	if (has_peak(d)) {
		lg_json_open(j, '{');
		held_json(v, &d->peak, n, j);
		lg_json_close(j, '}');
	} else {
		lg_json_null(j);
	}
	lg_json_close(j, '}');
}

/* The innermost functions of the program, else whatever there is. */
static const char *stack_line(const struct lg_trace *t, lg_stk stack, char *buf, size_t size)
{
	char frame[FRAME_TEXT];
	size_t len = 0, shown = 0;
	bool any = false;

	snprintf(buf, size, "%s", "no stack was recorded");
	for (lg_stk k = stack; k && !any; k = t->stack.parent[k])
		any = !lg_memory_is_library(t, t->stack.frame[k]);
	for (lg_stk k = stack; k && shown < FRAMES_OF_LINE && len < size; k = t->stack.parent[k]) {
		if (any && lg_memory_is_library(t, t->stack.frame[k]))
			continue;
		len += (size_t)snprintf(buf + len, size - len, "%s%s", shown++ ? " < " : "",
					lg_memory_frame_text(t, t->stack.frame[k], false, frame,
							     sizeof frame));
	}
	return buf;
}

static void kinds_text(const struct lg_memory_device *d, struct lg_out *o)
{
	char size[LG_BYTES_TEXT];

	for (enum lg_memory_kind k = 0; k < LG_MEMORY_KINDS; k++) {
		if (!d->now.by_kind[k] && !d->peak.by_kind[k])
			continue;
		lg_out_printf(o, " %-16s %12s now", lg_memory_kind_name(k),
			      lg_bytes_text((double)d->now.by_kind[k], size));
		if (d->has_history)
			lg_out_printf(o, "  %12s at the peak", lg_bytes_text((double)d->peak.by_kind[k], size));
		lg_out_printf(o, "  (%s)\n", lg_memory_kind_told(k));
	}
}

static void stacks_text(const struct lg_verdict *v, const char *title, const struct lg_memory_held *h,
			size_t n, struct lg_out *o)
{
	char line[2048], size[LG_BYTES_TEXT];

	if (!h->n_stacks)
		return;
	lg_out_printf(o, "\n%s, by stack\n", title);
	for (size_t i = 0; i < h->n_stacks && (!n || i < n); i++) {
		lg_out_printf(o, " %12s in %llu  ", lg_bytes_text((double)h->by_stack[i].bytes, size),
			      (unsigned long long)h->by_stack[i].count);
		lg_text_safe(o, stack_line(v->trace, h->by_stack[i].stack, line, sizeof line));
		lg_out_puts(o, "\n");
	}
	if (n && h->n_stacks > n)
		lg_out_printf(o, " and %zu stacks more (--top 0 lists all)\n", h->n_stacks - n);
}

static void device_text(const struct lg_verdict *v, const struct lg_memory_device *d, size_t n,
			struct lg_out *o)
{
	char a[LG_BYTES_TEXT], b[LG_BYTES_TEXT], c[LG_BYTES_TEXT];

	lg_out_printf(o, "GPU %d", d->index);
	if (d->rank >= 0)
		lg_out_printf(o, " of rank %d", d->rank);
	if (d->segments || d->has_blocks)
		lg_out_printf(o, ": %s allocated of %s reserved in %zu segment%s; %s free in them",
			      lg_bytes_text((double)d->allocated, a),
			      lg_bytes_text((double)d->reserved, b), d->segments, lg_s(d->segments),
			      lg_bytes_text((double)d->free, c));
	if (d->free)
		lg_out_printf(o, ", in one piece %s", lg_bytes_text((double)d->largest_free, a));
	lg_out_puts(o, "\n");
	if (has_peak(d))
		lg_out_printf(o,
			      "peak: %s were asked for and not given back, %.3f s into the history of "
			      "%.3f s\n",
			      lg_bytes_text((double)d->peak.bytes, a),
			      (double)(d->peak.ts - d->first) / 1e9,
			      (double)(d->last - d->first) / 1e9);
	else if (!d->has_history)
		lg_out_puts(o, "no history: when it was allocated, and what came and went before, is "
			       "not in the file\n");
	kinds_text(d, o);
	stacks_text(v, "held now", &d->now, n, o);
	if (d->has_history)
		stacks_text(v, "held at the peak", &d->peak, n, o);
}

/* "GPU 3: gpu.mem_used", "rank 0 (pid 4711, python3): process.anon" */
static const char *series_name(const struct lg_trace *t, lg_trk k, char *buf, size_t size)
{
	lg_trk parent = t->track.parent[k];
	lg_prc p = t->track.prc[k];
	char rank[32] = "", whose[FRAME_TEXT / 2] = "";

	if (t->process.rank[p] >= 0)
		snprintf(rank, sizeof rank, "rank %d ", t->process.rank[p]);
	if (parent)
		snprintf(whose, sizeof whose, "%s: ", lg_string(t, t->track.name[parent]));
	else if (p && t->process.pid[p] >= 0)
		snprintf(whose, sizeof whose, "%s(pid %d, %s): ", rank, t->process.pid[p],
			 lg_string(t, t->process.comm[p]));
	snprintf(buf, size, "%s%s", whose, lg_string(t, t->track.name[k]));
	return buf;
}

static void series_text(const struct lg_verdict *v, const struct lg_memory_series *s, struct lg_out *o)
{
	char name[FRAME_TEXT], a[LG_BYTES_TEXT], b[LG_BYTES_TEXT], c[LG_BYTES_TEXT], d[LG_BYTES_TEXT];

	lg_text_safe(o, series_name(v->trace, s->track, name, sizeof name));
	lg_out_printf(
		o,
		": %s at first, %s at the end; most %s at %.3f s, least %s at %.3f s (%zu readings)\n",
		lg_bytes_text(s->first_bytes, a), lg_bytes_text(s->last_bytes, b),
		lg_bytes_text(s->peak_bytes, c), lg_report_seconds(v, s->peak_ts),
		lg_bytes_text(s->least_bytes, d), lg_report_seconds(v, s->least_ts), s->n);
}

static void all_text(const struct lg_verdict *v, size_t n, struct lg_out *o)
{
	const struct lg_memory *m = v->memory;
	bool told = m != NULL;

	for (size_t i = 0; i < v->n_findings; i++)
		told |= !strncmp(v->findings[i].id, "mem.", 4);
	if (!told)
		lg_out_puts(o, "This input tells nothing of the memory of a device or of a process.\n");
	for (size_t i = 0; m && i < m->n_devices; i++) {
		if (i)
			lg_out_puts(o, "\n");
		device_text(v, &m->device[i], n, o);
	}
	for (size_t i = 0, shown = 0; m && i < m->n_series; i++) {
		if (!m->series[i].n)
			continue;
		if (n && shown++ == SERIES_OF_ONE * n) {
			lg_out_puts(o, "and more series (--top 0 lists all)\n");
			break;
		}
		series_text(v, &m->series[i], o);
	}
}

static void series_json(const struct lg_verdict *v, const struct lg_memory_series *s, struct lg_json *j)
{
	char name[FRAME_TEXT];

	lg_json_open_flat(j, '{');
	lg_json_key_str(j, "name", series_name(v->trace, s->track, name, sizeof name));
	lg_json_key_count(j, "first_bytes", (uint64_t)s->first_bytes);
	lg_json_key_count(j, "last_bytes", (uint64_t)s->last_bytes);
	lg_json_key_count(j, "peak_bytes", (uint64_t)s->peak_bytes);
	lg_json_key_num(j, "peak_t_s", lg_report_seconds(v, s->peak_ts), 6);
	lg_json_key_count(j, "least_bytes", (uint64_t)s->least_bytes);
	lg_json_key_num(j, "least_t_s", lg_report_seconds(v, s->least_ts), 6);
	lg_json_key_count(j, "readings", s->n);
	lg_json_close(j, '}');
}

void lg_memory_json(const struct lg_verdict *v, size_t n, struct lg_out *o)
{
	struct lg_json j = { .o = o };

	lg_json_open(&j, '{');
	lg_json_verdict(v, &j);
	lg_json_key(&j, "memory");
	lg_json_open(&j, '[');
	for (size_t i = 0; v->memory && i < v->memory->n_devices; i++)
		device_json(v, &v->memory->device[i], n, &j);
	lg_json_close(&j, ']');
	lg_json_key(&j, "memory_series");
	lg_json_open(&j, '[');
	for (size_t i = 0; v->memory && i < v->memory->n_series; i++)
		if (v->memory->series[i].n)
			series_json(v, &v->memory->series[i], &j);
	lg_json_close(&j, ']');
	lg_json_close(&j, '}');
	lg_out_puts(o, "\n");
}

void lg_memory_term(const struct lg_verdict *v, size_t n, const struct lg_term_options *opt,
		    struct lg_out *o)
{
	all_text(v, n, o);
	lg_term_findings(v, opt, o);
}

void lg_memory_markdown(const struct lg_verdict *v, size_t n, struct lg_out *o)
{
	lg_out_puts(o, "```text\n");
	all_text(v, n, o);
	lg_out_puts(o, "```\n\n");
	lg_markdown_findings(v, o);
}

/* ';' ends a frame and the last space the stack. */
static void put_folded(struct lg_out *o, const char *s)
{
	for (; *s; s++) {
		char c = *s == ';' ? ':' : (unsigned char)*s < 0x20 || *s == 0x7f ? '?' : *s;

		lg_out_write(o, &c, 1);
	}
}

static void fold(const struct lg_trace *t, const struct lg_memory_stack *s, struct lg_out *o)
{
	enum { DEPTH_MAX = 1024 };
	lg_stk path[DEPTH_MAX];
	char frame[FRAME_TEXT];
	size_t n = 0;

	for (lg_stk k = s->stack; k && n < DEPTH_MAX; k = t->stack.parent[k])
		path[n++] = k;
	if (!n)
		lg_out_puts(o, ";[no stack]");
	while (n--) {
		lg_out_puts(o, ";");
		put_folded(o, lg_memory_frame_text(t, t->stack.frame[path[n]], false, frame, sizeof frame));
	}
	lg_out_printf(o, " %llu\n", (unsigned long long)s->bytes);
}

void lg_memory_folded(const struct lg_verdict *v, bool at_peak, struct lg_out *o)
{
	for (size_t i = 0; v->memory && i < v->memory->n_devices; i++) {
		const struct lg_memory_device *d = &v->memory->device[i];
		const struct lg_memory_held *h = at_peak ? &d->peak : &d->now;

		for (size_t k = 0; k < h->n_stacks; k++) {
			lg_out_printf(o, "GPU %d", d->index);
			fold(v->trace, &h->by_stack[k], o);
		}
	}
}
