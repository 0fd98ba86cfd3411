/* SPDX-License-Identifier: Apache-2.0 */
/* pyspy_json.c - py-spy dump --json, speedscope files and py-spy's chrometrace. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/map.h"
#include "import/pyspy/pyspy.h"
#include "import/source/frame.h"
#include "import/source/source.h"
#include "import/source/stamp.h"
#include "import/value/value.h"

enum { DEPTH_MAX = 4096 };
#define SIZE_LIMIT ((size_t)1 << 30)

struct text {
	char *p;
	size_t n;
	const char *damage;
	bool nomem;
	struct lg_doc doc;
};

static int text_open(struct text *t, const char *path, struct lg_error *err)
{
	int rc = lg_source_all(path, SIZE_LIMIT, &t->p, &t->n, &t->damage, err);

	if (rc)
		return rc;
	rc = lg_doc_json(&t->doc, t->p, t->n, err);
	if (rc)
		lg_free(t->p);
	return rc;
}

/* What every one of the three ends with. */
static int text_close(struct text *t, struct lg_builder *b, uint64_t rows, const char *what,
		      struct lg_error *err)
{
	int rc = 0;

	if (t->nomem || lg_builder_failed(b))
		rc = lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	else if (!rows)
		rc = lg_fail(err, LG_E_FORMAT, t->doc.cut ? t->doc.cut_at : 0,
			     t->doc.cut ? "%s without a sample: at byte %llu %s" : "%s without a sample",
			     what, (unsigned long long)t->doc.cut_at, t->doc.cut);
	else if (t->damage)
		lg_add_diag_now(b, LG_DIAG_FILE_TRUNCATED, 0, 1, "%s", t->damage);
	else if (t->doc.cut)
		lg_add_diag_now(b, LG_DIAG_FILE_TRUNCATED, 0, 1,
				"byte %llu: %s; what came before is kept",
				(unsigned long long)t->doc.cut_at, t->doc.cut);
	lg_doc_done(&t->doc);
	lg_free(t->p);
	return rc;
}

static lg_frm frame_of(struct lg_builder *b, const struct lg_doc *d, uint32_t v)
{
	const char *name = lg_value_text(d, lg_value_get(d, v, "name"));
	const char *file = lg_value_text(d, lg_value_get(d, v, "file"));
	int64_t line = lg_value_int(d, lg_value_get(d, v, "line"), 0);

	if (!*file)
		file = lg_value_text(d, lg_value_get(d, v, "filename"));
	if (!*file)
		return lg_frame_from_text(b, name, strlen(name));
	return lg_frame_python(b, name, file, line > 0 && line < UINT32_MAX ? (uint32_t)line : 0);
}

int lg_pyspy_dump_json(const char *path, struct lg_builder *b, struct lg_error *err)
{
	struct text t = { 0 };
	const struct lg_doc *d = &t.doc;
	uint64_t n = 0;
	int rc = text_open(&t, path, err);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < lg_value_count(d, d->root); i++) {
		uint32_t th = lg_value_at(d, d->root, i), frames = lg_value_get(d, th, "frames");
		int64_t pid = lg_value_int(d, lg_value_get(d, th, "pid"), 0);
		int64_t os = lg_value_int(d, lg_value_get(d, th, "os_thread_id"), 0);
		const char *name = lg_value_text(d, lg_value_get(d, th, "thread_name"));
		int state = (int)lg_value_int(d, lg_value_get(d, th, "owns_gil"), 0) ? 2
			    : lg_value_int(d, lg_value_get(d, th, "active"), 0) != 0;
		lg_stk stk = 0;
		uint32_t k = lg_value_count(d, frames);

		if (!lg_value_is(d, th, LG_DICT))
			continue;
		for (k = k < DEPTH_MAX ? k : DEPTH_MAX; k-- > 0;) /* innermost first in the file */
			stk = lg_intern_stack(b, stk, frame_of(b, d, lg_value_at(d, frames, k)));
		lg_pyspy_thread(b, lg_pyspy_thread_get(b, pid > 0 && pid <= 4194304 ? (int32_t)pid : -1,
						       os > 0 ? (uint64_t)os : 0, name),
				stk, state, n++);
	}
	if (n) {
		lg_time_base(b, LG_TIME_NONE, 0, 0, "");
		lg_meta_set(b, 0, "trace.format", "py-spy dump");
	}
	return text_close(&t, b, n, "a dump of py-spy", err);
}

/* ---- speedscope: https://www.speedscope.app/file-format-schema.json ---- */

struct unit {
	const char *name;
	double ns; /* 0 = not a time */
};

static double unit_ns(const char *name)
{
	static const struct unit units[] = { { "nanoseconds", 1 }, { "microseconds", 1e3 },
					     { "milliseconds", 1e6 }, { "seconds", 1e9 } };

	for (size_t i = 0; i < sizeof units / sizeof *units; i++)
		if (!strcmp(name, units[i].name))
			return units[i].ns;
	return 0;
}

/* 'Process 7 Thread 123 "MainThread"' and 'Thread 18939 "MainThread"'; else the profile's name. */
static lg_thr profile_thread(struct lg_builder *b, const char *name, lg_prc *other)
{
	const char *thread = strstr(name, "Thread "), *quote = strchr(name, '"');
	char text[128] = "";
	int pid = -1;
	uint64_t id = 0;

	if (quote)
		(void)!sscanf(quote, "\"%127[^\"]", text);
	else
		snprintf(text, sizeof text, "%s", name);
	(void)!sscanf(name, "Process %d", &pid);
	if (thread)
		id = strtoull(thread + 7, NULL, 0);
	if (thread && pid <= 0 && id && id <= 4194304) {
		lg_thr thr = lg_thread_get(b, -1, (int32_t)id);

		lg_thread_name(b, thr, lg_intern(b, text));
		return thr;
	}
	if (pid > 0 && pid <= 4194304)
		return lg_pyspy_thread_get(b, pid, id, text);
	if (!*other)
		*other = lg_process_unnumbered(b, "python", -1, 0);
	return lg_thread_unnumbered(b, *other, text, strstr(text, "MainThread") != NULL);
}

struct speedscope {
	struct lg_builder *b;
	const struct lg_doc *d;
	lg_frm *frame;
	uint32_t n_frames;
	lg_thr thr;
	lg_str event;
	double ns, start;
	uint64_t rows, odd, cut;
};

static int64_t whole(double v)
{
	return v > -9e18 && v < 9e18 ? (int64_t)llround(v) : 0;
}

static void sample(struct speedscope *s, double at, double weight, lg_stk stk)
{
	double k = s->ns > 0 ? s->ns : 1;

	if (!(weight > 0))
		return;
	lg_add_sample(s->b, &(struct lg_sample_row){
				    .ts = whole((at - s->start) * (s->ns > 0 ? s->ns : 1000)),
				    .weight = (uint64_t)whole(weight * k), .thr = s->thr, .cpu = -1,
				    .stack = stk, .event = s->event });
	s->rows++;
}

static lg_frm frame_at(struct speedscope *s, uint32_t v)
{
	int64_t i = lg_value_int(s->d, v, -1);

	if (i < 0 || i >= s->n_frames) {
		s->odd++;
		return 0;
	}
	return s->frame[i];
}

static void sampled(struct speedscope *s, uint32_t profile)
{
	uint32_t list = lg_value_get(s->d, profile, "samples");
	uint32_t weights = lg_value_get(s->d, profile, "weights");
	double at = s->start;

	for (uint32_t i = 0; i < lg_value_count(s->d, list); i++) {
		uint32_t one = lg_value_at(s->d, list, i), n = lg_value_count(s->d, one);
		double w = lg_value_real(s->d, lg_value_at(s->d, weights, i), 0);
		lg_stk stk = 0;

		s->cut += n > DEPTH_MAX;
		for (uint32_t k = 0; k < n && k < DEPTH_MAX; k++) {
			lg_frm f = frame_at(s, lg_value_at(s->d, one, k));

			stk = f ? lg_intern_stack(s->b, stk, f) : stk;
		}
		sample(s, at, w, stk);
		at += w;
	}
}

/* Openings and closings: the stack between two events is a sample of that length. */
static void evented(struct speedscope *s, uint32_t profile)
{
	uint32_t list = lg_value_get(s->d, profile, "events");
	LG_AUTOFREE lg_frm *open = lg_calloc(DEPTH_MAX, sizeof *open);
	LG_AUTOFREE lg_stk *stack = lg_calloc(DEPTH_MAX + 1, sizeof *stack);
	double last = s->start;
	size_t n = 0;

	for (uint32_t i = 0; open && stack && i < lg_value_count(s->d, list); i++) {
		uint32_t e = lg_value_at(s->d, list, i);
		double at = lg_value_real(s->d, lg_value_get(s->d, e, "at"), last);
		lg_frm f = frame_at(s, lg_value_get(s->d, e, "frame"));

		if (at > last && n)
			sample(s, last, at - last, stack[n]);
		last = at;
		if (*lg_value_text(s->d, lg_value_get(s->d, e, "type")) == 'O') {
			if (n < DEPTH_MAX) {
				open[n] = f;
				stack[n + 1] = f ? lg_intern_stack(s->b, stack[n], f) : stack[n];
				n++;
			} else {
				s->cut++;
			}
		} else if (n && open[n - 1] == f) {
			n--;
		} else {
			s->odd++;
		}
	}
}

static void say_cut(const struct speedscope *s)
{
	if (s->cut)
		lg_add_diag_now(s->b, LG_DIAG_STACK_TRUNCATED, 0, s->cut, "stacks of more than %d frames",
				DEPTH_MAX);
}

static int run_speedscope(const char *path, struct lg_builder *b, struct lg_error *err)
{
	struct text t = { 0 };
	const struct lg_doc *d = &t.doc;
	struct speedscope s = { .b = b, .d = d };
	uint32_t frames, profiles;
	lg_prc other = 0;
	int rc = text_open(&t, path, err), timed = 0;

	if (rc)
		return rc;
	frames = lg_value_get(d, lg_value_get(d, d->root, "shared"), "frames");
	profiles = lg_value_get(d, d->root, "profiles");
	s.n_frames = lg_value_count(d, frames);
	s.frame = lg_calloc(s.n_frames, sizeof *s.frame);
	t.nomem = s.n_frames && !s.frame;
	for (uint32_t i = 0; s.frame && i < s.n_frames; i++)
		s.frame[i] = frame_of(b, d, lg_value_at(d, frames, i));
	for (uint32_t i = 0; s.frame && i < lg_value_count(d, profiles); i++) {
		uint32_t p = lg_value_at(d, profiles, i);
		const char *unit = lg_value_text(d, lg_value_get(d, p, "unit"));
		const char *exporter = lg_value_text(d, lg_value_get(d, d->root, "exporter"));

		s.ns = unit_ns(unit);
		timed |= s.ns > 0;
		s.event = lg_intern(b, s.ns > 0 ? strstr(exporter, "py-spy") ? "py-spy" : "samples"
						: *unit && strcmp(unit, "none") ? unit : "samples");
		s.start = lg_value_real(d, lg_value_get(d, p, "startValue"), 0);
		s.thr = profile_thread(b, lg_value_text(d, lg_value_get(d, p, "name")), &other);
		if (!strcmp(lg_value_text(d, lg_value_get(d, p, "type")), "evented"))
			evented(&s, p);
		else
			sampled(&s, p);
	}
	if (s.rows) {
		lg_time_base(b, timed ? LG_TIME_RELATIVE : LG_TIME_NONE, 0, 0, "");
		lg_meta_set(b, 0, "trace.format", "speedscope");
		if (s.odd)
			lg_add_diag_now(b, LG_DIAG_FILE_DAMAGED, 0, s.odd,
					"frames that are not in the list, or closed before they were open");
		say_cut(&s);
	}
	lg_free(s.frame);
	return text_close(&t, b, s.rows, "a speedscope file", err);
}

/* ---- chrometrace: B and E where a frame enters or leaves the sampled stack ---- */

struct track {
	lg_thr thr;
	double last;
	size_t n, over; /* over: open frames beyond the deepest that is kept */
	lg_stk stack[DEPTH_MAX + 1];
};

/* "140203: MainThread": py-spy puts Python's number of the thread before its name, and renumbers tids. */
static const char *bare_name(const char *name)
{
	size_t digits = strspn(name, "0123456789");

	return digits && name[digits] == ':' && name[digits + 1] == ' ' ? name + digits + 2 : name;
}

struct tracks {
	struct track **v;
	size_t n, cap;
	struct lg_map by_tid;
};

static void tracks_done(struct tracks *a)
{
	for (size_t i = 0; i < a->n; i++)
		lg_free(a->v[i]);
	lg_free(a->v);
	lg_map_done(&a->by_tid);
}

/* The track of e's thread, made on first sight; name: where e tells it. NULL without memory. */
static struct track *track_of(struct tracks *a, struct lg_builder *b, const struct lg_doc *d, uint32_t e,
			      const char *name)
{
	int64_t pid = lg_value_int(d, lg_value_get(d, e, "pid"), -1);
	int64_t tid = lg_value_int(d, lg_value_get(d, e, "tid"), -1);
	uint64_t key = lg_mix64((uint64_t)pid ^ lg_mix64((uint64_t)tid)) | 1;
	uint32_t at = lg_map_get(&a->by_tid, key);
	struct track *k;

	if (at) {
		if (*name)
			lg_thread_name(b, a->v[at - 1]->thr, lg_intern(b, name));
		return a->v[at - 1];
	}
	if (lg_grow(&a->v, &a->cap, a->n + 1, sizeof(struct track *)))
		return NULL;
	k = lg_calloc(1, sizeof *k);
	if (!k)
		return NULL;
	/* A name is told under a number of its own in py-spy's list: not the thread's id. */
	k->thr = lg_pyspy_thread_get(b, pid > 0 && pid <= 4194304 ? (int32_t)pid : -1,
				     tid > 0 && !*name ? (uint64_t)tid : 0, name);
	a->v[a->n++] = k;
	return lg_map_set(&a->by_tid, key, (uint32_t)a->n) ? NULL : k;
}

static void enter_frame(struct speedscope *s, struct track *k, uint32_t e)
{
	uint32_t args = lg_value_get(s->d, e, "args");
	int64_t line = lg_value_int(s->d, lg_value_get(s->d, args, "line"), 0);
	lg_frm frame;

	if (k->n == DEPTH_MAX) {
		k->over++;
		s->cut++;
		return;
	}
	frame = lg_frame_python(s->b, lg_value_text(s->d, lg_value_get(s->d, e, "name")),
				lg_value_text(s->d, lg_value_get(s->d, args, "filename")),
				line > 0 && line < UINT32_MAX ? (uint32_t)line : 0);
	k->stack[k->n + 1] = lg_intern_stack(s->b, k->stack[k->n], frame);
	k->n++;
}

static void leave_frame(struct speedscope *s, struct track *k)
{
	if (k->over) {
		k->over--;
	} else {
		s->odd += !k->n;
		k->n -= k->n > 0;
	}
}

/* One B, E or M; what else there is says nothing of a stack. */
static int trace_event(struct speedscope *s, struct tracks *a, uint32_t e)
{
	const struct lg_doc *d = s->d;
	const char *ph = lg_value_text(d, lg_value_get(d, e, "ph"));
	double ts = lg_value_real(d, lg_value_get(d, e, "ts"), -1);
	struct track *k;

	if (*ph == 'M') {
		uint32_t args = lg_value_get(d, e, "args");
		const char *name = bare_name(lg_value_text(d, lg_value_get(d, args, "name")));

		if (!*name || strcmp(lg_value_text(d, lg_value_get(d, e, "name")), "thread_name"))
			return 0;
		return track_of(a, s->b, d, e, name) ? 0 : LG_E_NOMEM;
	}
	if ((*ph != 'B' && *ph != 'E') || ts < 0)
		return 0;
	k = track_of(a, s->b, d, e, "");
	if (!k)
		return LG_E_NOMEM;
	s->thr = k->thr;
	if (ts > k->last && k->n)
		sample(s, k->last, ts - k->last, k->stack[k->n]);
	k->last = ts;
	if (*ph == 'B')
		enter_frame(s, k, e);
	else
		leave_frame(s, k);
	return 0;
}

static int run_trace(const char *path, struct lg_builder *b, struct lg_error *err)
{
	struct text t = { 0 };
	const struct lg_doc *d = &t.doc;
	struct speedscope s = { .b = b, .d = d, .ns = 1e3, .event = lg_intern(b, "py-spy") };
	struct tracks tracks = { 0 };
	uint32_t list;
	int rc = text_open(&t, path, err);

	if (rc)
		return rc;
	list = lg_value_is(d, d->root, LG_DICT) ? lg_value_get(d, d->root, "traceEvents") : d->root;
	for (uint32_t i = 0; !t.nomem && i < lg_value_count(d, list); i++)
		t.nomem = trace_event(&s, &tracks, lg_value_at(d, list, i)) != 0;
	if (s.rows) {
		lg_time_base(b, LG_TIME_RELATIVE, 0, 0, "");
		lg_meta_set(b, 0, "trace.format", "py-spy chrometrace");
		if (s.odd)
			lg_add_diag_now(b, LG_DIAG_FILE_DAMAGED, 0, s.odd, "frames end that never began");
		say_cut(&s);
	}
	tracks_done(&tracks);
	return text_close(&t, b, s.rows, "a chrometrace of py-spy", err);
}

static int head_score(const struct lg_head *h, const char *a, const char *b, int score)
{
	const char *p = h->text + strspn(h->text, " \n\r\t");

	return (*p == '{' || *p == '[') && (lg_head_has(h, a) || (b && lg_head_has(h, b))) ? score : 0;
}

static int sniff_speedscope(const struct lg_head *h)
{
	return head_score(h, "speedscope.app/file-format-schema", NULL, 95);
}

static int sniff_trace(const struct lg_head *h)
{
	return head_score(h, "\"cat\":\"py-spy\"", "\"cat\": \"py-spy\"", 97);
}

const struct lg_importer lg_import_speedscope = {
	.name = "speedscope",
	.summary = "speedscope file (py-spy)",
	.sniff = sniff_speedscope,
	.run = run_speedscope,
};
const struct lg_importer lg_import_pyspy_trace = {
	.name = "py-spy chrometrace",
	.summary = "py-spy chrometrace",
	.sniff = sniff_trace,
	.run = run_trace,
};
