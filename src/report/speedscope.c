/* SPDX-License-Identifier: Apache-2.0 */
/*
 * speedscope.c - https://www.speedscope.app/file-format-schema.json: sampled profiles.
 *
 * For each event one profile of everything, added up by process and stack (its time axis means
 * nothing, so it need not hold every sample), then one for each thread with its samples in the
 * order of time. Profiles of equal units only may be compared, hence one event a profile.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/map.h"
#include "report/convert.h"
#include "report/profile.h"

enum { DEPTH_MAX = 1024 };

struct scope {
	const struct lg_trace *t;
	const struct lg_window *w;
	struct lg_out *o;
	struct lg_profile p;
	uint32_t *frame_at;  /* frame -> index among the shared frames + 1 */
	uint32_t *comm_at;   /* process -> the same, for the frame that stands for it */
	uint32_t n_frames;
	lg_stk *path;
	uint32_t *by_thread; /* sample rows by event, thread, time */
	size_t n_by_thread;
	bool any_profile;
};

static void put_string(struct lg_out *o, const char *s)
{
	lg_out_json_string(o, s, strlen(s));
}

static void process_name(const struct lg_trace *t, lg_prc prc, char *buf, size_t size)
{
	const char *comm = lg_string(t, t->process.comm[prc]);
	char pid[LG_PID_TEXT];

	snprintf(buf, size, "%.200s (%s)", *comm ? comm : "?", lg_pid_text(t->process.pid[prc], pid));
}

static void put_frame(struct scope *s, const char *name, const char *file, uint32_t line)
{
	lg_out_puts(s->o, s->n_frames++ ? ",\n{\"name\":" : "\n{\"name\":");
	put_string(s->o, *name ? name : "?");
	if (*file) {
		lg_out_puts(s->o, ",\"file\":");
		put_string(s->o, file);
		if (line)
			lg_out_printf(s->o, ",\"line\":%u", line);
	}
	lg_out_puts(s->o, "}");
}

/* Only frames that some row's stack holds. */
static void put_frames(struct scope *s)
{
	const struct lg_trace *t = s->t;
	char name[512];

	for (size_t i = 0; i < s->p.n; i++) {
		lg_prc prc = t->thread.prc[s->p.row[i].thr];

		for (lg_stk k = s->p.row[i].stack; k; k = t->stack.parent[k]) {
			lg_frm f = t->stack.frame[k];
			const char *file = lg_string(t, t->frame.file[f]);

			if (s->frame_at[f])
				continue;
			put_frame(s, lg_frame_text(t, f, name, sizeof name),
				  *file ? file : lg_string(t, t->frame.dso[f]), t->frame.line[f]);
			s->frame_at[f] = s->n_frames;
		}
		if (!s->comm_at[prc]) {
			process_name(t, prc, name, sizeof name);
			put_frame(s, name, "", 0);
			s->comm_at[prc] = s->n_frames;
		}
	}
}

static void put_stack(struct scope *s, uint32_t root, lg_stk stk, bool first)
{
	size_t n = 0;
	bool any = root != 0;

	for (; stk && n < DEPTH_MAX; stk = s->t->stack.parent[stk])
		s->path[n++] = stk;
	lg_out_puts(s->o, first ? "[" : ",[");
	if (root)
		lg_out_i64(s->o, root - 1);
	while (n) {
		if (any)
			lg_out_puts(s->o, ",");
		any = true;
		lg_out_i64(s->o, s->frame_at[s->t->stack.frame[s->path[--n]]] - 1);
	}
	lg_out_puts(s->o, "]");
}

static void put_head(struct scope *s, uint32_t event, const char *name, uint64_t total)
{
	const struct lg_profile_event *e = &s->p.event[event];
	char text[512];

	if (s->p.n_event > 1)
		snprintf(text, sizeof text, "%.300s [%.150s]", name, lg_string(s->t, e->name));
	else
		snprintf(text, sizeof text, "%.300s", name);
	lg_out_puts(s->o, s->any_profile ? ",\n{\"type\":\"sampled\",\"name\":"
					 : "\n{\"type\":\"sampled\",\"name\":");
	s->any_profile = true;
	put_string(s->o, text);
	lg_out_printf(s->o, ",\"unit\":\"%s\",\"startValue\":0,\"endValue\":%llu,\n\"samples\":[",
		      e->is_time ? "nanoseconds" : "none", (unsigned long long)total);
}

static void put_weight(struct scope *s, uint64_t w, bool first)
{
	lg_out_printf(s->o, first ? "%llu" : ",%llu", (unsigned long long)w);
}

/* Rows [from, to) of one event, added up. */
static void put_whole(struct scope *s, size_t from, size_t to)
{
	uint64_t total = 0;

	for (size_t i = from; i < to; i++)
		total += s->p.row[i].weight;
	put_head(s, s->p.row[from].event, "all processes", total);
	for (size_t i = from; i < to; i++)
		put_stack(s, s->comm_at[s->t->thread.prc[s->p.row[i].thr]], s->p.row[i].stack,
			  i == from);
	lg_out_puts(s->o, "],\n\"weights\":[");
	for (size_t i = from; i < to; i++)
		put_weight(s, s->p.row[i].weight, i == from);
	lg_out_puts(s->o, "]}");
}

static void put_thread(struct scope *s, uint32_t event, const uint32_t *rows, size_t n)
{
	const struct lg_trace *t = s->t;
	lg_thr thr = t->sample.thr[rows[0]];
	lg_prc prc = t->thread.prc[thr];
	const char *comm = lg_string(t, t->thread.comm[thr]);
	uint64_t total = 0;
	char name[400], process[256];

	for (size_t i = 0; i < n; i++)
		total += lg_profile_weight(t, rows[i]);
	process_name(t, prc, process, sizeof process);
	if (t->thread.tid[thr] == t->process.pid[prc])
		snprintf(name, sizeof name, "%s", process);
	else
		snprintf(name, sizeof name, "%.100s (tid %d) of %s", *comm ? comm : "?",
			 t->thread.tid[thr], process);
	put_head(s, event, name, total);
	for (size_t i = 0; i < n; i++)
		put_stack(s, 0, t->sample.stack[rows[i]], !i);
	lg_out_puts(s->o, "],\n\"weights\":[");
	for (size_t i = 0; i < n; i++)
		put_weight(s, lg_profile_weight(t, rows[i]), !i);
	lg_out_puts(s->o, "]}");
}

/* Sort sample rows by (event, thread) and keep their order of time: two counting passes. */
static int order_rows(struct scope *s)
{
	const struct lg_sample_tab *tab = &s->t->sample;
	size_t n_thr = s->t->thread.n, slots = s->p.n_event * n_thr + 1;
	uint64_t *at = lg_calloc(slots + 1, sizeof *at);

	s->by_thread = lg_calloc(tab->n, sizeof *s->by_thread);
	if (!at || !s->by_thread) {
		lg_free(at);
		return LG_E_NOMEM;
	}
	for (int pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < tab->n; i++) {
			size_t k;

			if (!lg_profile_counts(&s->p, s->t, s->w, i))
				continue;
			k = lg_profile_event_of(&s->p, tab->event[i]) * n_thr + tab->thr[i];
			if (pass)
				s->by_thread[at[k]++] = (uint32_t)i;
			else
				at[k + 1]++;
		}
		for (size_t k = 1; !pass && k <= slots; k++)
			at[k] += at[k - 1];
		if (!pass)
			s->n_by_thread = at[slots];
	}
	lg_free(at);
	return 0;
}

static void put_profiles(struct scope *s)
{
	const struct lg_sample_tab *tab = &s->t->sample;
	size_t at = 0;

	for (size_t i = 0, end; i < s->p.n; i = end) {
		uint32_t e = s->p.row[i].event;

		for (end = i; end < s->p.n && s->p.row[end].event == e; end++)
			;
		put_whole(s, i, end);
		while (at < s->n_by_thread && tab->event[s->by_thread[at]] == s->p.event[e].name) {
			size_t from = at;

			while (at < s->n_by_thread &&
			       tab->event[s->by_thread[at]] == s->p.event[e].name &&
			       tab->thr[s->by_thread[at]] == tab->thr[s->by_thread[from]])
				at++;
			put_thread(s, e, s->by_thread + from, at - from);
		}
	}
}

static void put_document(struct scope *s)
{
	static const char schema[] = "https://www.speedscope.app/file-format-schema.json";

	lg_out_printf(s->o, "{\"$schema\":\"%s\",\"exporter\":\"laggard %s\",\n", schema, LG_VERSION);
	lg_out_puts(s->o, "\"name\":\"CPU samples\",\"activeProfileIndex\":0,\n\"shared\":{\"frames\":[");
	put_frames(s);
	lg_out_puts(s->o, "]},\n\"profiles\":[");
	put_profiles(s);
	lg_out_puts(s->o, "]}\n");
}

int lg_speedscope_write(const struct lg_trace *t, const struct lg_window *w, struct lg_out *o,
			struct lg_error *err)
{
	struct scope s = { .t = t, .w = w, .o = o };
	int rc = lg_profile_make(&s.p, t, w, err);

	if (rc)
		return rc;
	s.frame_at = lg_calloc(t->frame.n, sizeof *s.frame_at);
	s.comm_at = lg_calloc(t->process.n, sizeof *s.comm_at);
	s.path = lg_calloc(DEPTH_MAX, sizeof *s.path);
	rc = s.frame_at && s.comm_at && s.path ? order_rows(&s) : LG_E_NOMEM;
	if (!rc)
		put_document(&s);
	lg_free(s.frame_at);
	lg_free(s.comm_at);
	lg_free(s.path);
	lg_free(s.by_thread);
	lg_profile_done(&s.p);
	return rc ? lg_fail(err, rc, LG_NO_OFFSET, "out of memory") : 0;
}
