/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perfscript.c - lines to rows: each event line is one sample, the lines below it are its stack.
 *
 * The text says less than the file: names of threads but not of processes unless both ids are
 * printed, functions but not build ids. Addresses of one function in one file become one frame.
 */
#include "import/perfscript/perfscript.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/map.h"
#include "import/idle.h"
#include "import/perfscript/script_line.h"
#include "import/perfscript/script_sched.h"
#include "import/source/source.h"

enum {
	BUFFER_BYTES = 1 << 20, /* no line is longer; C++ names reach 100 kB */
	DEPTH_MAX = 4096,
	HEAD_BYTES = 1 << 16
};

struct script {
	struct lg_builder *b;
	struct lg_map frame_of; /* name and dso -> frame */
	lg_frm frame[DEPTH_MAX]; /* of the open event, innermost first */
	size_t n_frames;
	struct lg_sample_row row;
	bool open;
	bool swapper, in_program; /* the open event: of task 0, at a program's address */
	struct lg_idle idle;
	struct lg_ps_line head; /* the open event, if it is one of the scheduler's: numbers only */
	struct lg_ps_sched_line turn;
	uint64_t turn_at;
	struct lg_ps_sched sched;
	int64_t last_ts;
	uint64_t line_no, odd, odd_at, cut, timeless, samples;
	uint64_t lost, lost_by_event; /* as in perfdata/perf_import.h */
	lg_str s_unknown;
};

static bool is(struct lg_ps_view v, const char *s)
{
	return v.n == strlen(s) && !memcmp(v.p, s, v.n);
}

static bool is_kernel(const struct lg_ps_line *l)
{
	if (l->dso.n >= 7 && !memcmp(l->dso.p + l->dso.n - 7, "vmlinux", 7))
		return true;
	if (l->dso.n && *l->dso.p == '[')
		return !is(l->dso, "[unknown]") && !is(l->dso, "[vdso]") &&
		       !is(l->dso, "[vsyscall]") && !is(l->dso, "[heap]") && !is(l->dso, "[stack]");
	return l->ip >> 63;
}

static lg_frm frame_of(struct script *s, const struct lg_ps_line *l)
{
	struct lg_frame_row row = { .pc = l->ip - l->offset, .kind = LG_FRAME_USER };
	uint64_t key;
	lg_frm f;

	if (!is(l->dso, "[unknown]"))
		row.dso = lg_intern_n(s->b, l->dso.p, l->dso.n);
	else
		row.dso = s->s_unknown;
	if (!is(l->name, "[unknown]"))
		row.name = lg_intern_n(s->b, l->name.p, l->name.n);
	row.kind = l->inlined ? LG_FRAME_INLINED : is_kernel(l) ? LG_FRAME_KERNEL : LG_FRAME_USER;
	if (!row.name && row.dso == s->s_unknown) {
		row.pc = 0; /* nowhere: the addresses tell nothing */
		row.name = s->s_unknown;
	}
	if (!row.name)
		return lg_intern_frame(s->b, &row);
	key = (uint64_t)row.name << 32 | row.dso;
	f = lg_map_get(&s->frame_of, key ^ (uint64_t)row.kind << 30);
	if (f)
		return f;
	f = lg_intern_frame(s->b, &row);
	if (f)
		(void)!lg_map_set(&s->frame_of, key ^ (uint64_t)row.kind << 30, f);
	return f;
}

static void close_event(struct script *s)
{
	lg_stk stk = 0;

	if (!s->open)
		return;
	while (s->n_frames)
		stk = lg_intern_stack(s->b, stk, s->frame[--s->n_frames]);
	s->row.stack = stk;
	if (s->swapper && !s->in_program && lg_idle_stack(&s->idle, lg_builder_trace(s->b), stk))
		s->row.flags |= LG_SAMPLE_IDLE;
	lg_add_sample(s->b, &s->row);
	if (s->turn.kind != LG_PS_NO_SCHED)
		lg_ps_sched_event(&s->sched, s->b, &s->head, &s->turn, stk, s->turn_at);
	s->samples++;
	s->open = false;
}

static void add_frame(struct script *s, const struct lg_ps_line *l)
{
	if (s->n_frames >= DEPTH_MAX) {
		s->cut++;
		return;
	}
	if (!s->n_frames && is_kernel(l))
		s->row.flags |= LG_SAMPLE_KERNEL;
	else if (!s->n_frames)
		s->in_program = l->ip || l->dso.n;
	s->frame[s->n_frames++] = frame_of(s, l);
}

/* Lines of perf script --show-lost-events, --show-task-events ... */
static void other_record(struct script *s, const struct lg_ps_line *l)
{
	static const char lost[] = "lost ";
	const char *p = memmem(l->rest.p, l->rest.n, lost, sizeof lost - 1);
	uint64_t n = 0;

	bool samples = is(l->event, "PERF_RECORD_LOST_SAMPLES");

	if (!is(l->event, "PERF_RECORD_LOST") && !samples)
		return;
	if (samples && memmem(l->rest.p, l->rest.n, "(BPF)", 5)) /* left out on request */
		return;
	for (p = p ? p + sizeof lost - 1 : l->rest.p + l->rest.n;
	     p < l->rest.p + l->rest.n && *p >= '0' && *p <= '9' && n < 1u << 30; p++)
		n = n * 10 + (uint64_t)(*p - '0');
	/* perf record's count at the end: see lost_samples_record() in perfdata/perf_records.c */
	if (samples && l->has_time && !l->ts) {
		s->lost_by_event += n;
		return;
	}
	s->lost += samples ? 0 : n;
	if (!samples && l->has_time)
		lg_ps_sched_lost(&s->sched, l->ts, l->cpu);
	lg_add_diag(s->b, &(struct lg_diag_row){ .ts = l->has_time ? l->ts : s->last_ts,
						 .id = samples ? LG_DIAG_LOST_SAMPLES : LG_DIAG_LOST_EVENTS,
						 .cpu = l->cpu,
						 .count = n ? n : 1 });
}

/* What the scheduler's events say is known when their stack is. The line itself is gone by then. */
static void take_turn(struct script *s, const struct lg_ps_line *l)
{
	lg_ps_sched_parse(&s->turn, l);
	if (s->turn.kind == LG_PS_NO_SCHED) {
		s->sched.cpu_untold |= l->has_time && l->cpu < 0;
		return;
	}
	s->turn.comm_kept = s->turn.comm.n ? lg_intern_n(s->b, s->turn.comm.p, s->turn.comm.n) : 0;
	s->head = *l;
	s->turn_at = s->line_no;
}

static void open_event(struct script *s, const struct lg_ps_line *l)
{
	struct lg_ps_line at;
	lg_thr thr = 0;

	if (l->event.n > 12 && !memcmp(l->event.p, "PERF_RECORD_", 12)) {
		other_record(s, l);
		return;
	}
	if (l->tid >= 0) {
		thr = lg_thread_get(s->b, l->tid ? l->pid : 0, l->tid);
		if (l->comm.n && !is(l->comm, ":-1"))
			lg_thread_name(s->b, thr, lg_intern_n(s->b, l->comm.p, l->comm.n));
	}
	s->row = (struct lg_sample_row){
		.ts = l->has_time ? l->ts : (int64_t)s->timeless * 1000,
		.weight = l->period ? l->period : 1, .thr = thr, .cpu = l->cpu,
		.event = lg_intern_n(s->b, l->event.p, l->event.n),
	};
	take_turn(s, l);
	s->swapper = l->tid == 0;
	s->in_program = false;
	/* a name with a colon that is no modifier is a tracepoint's */
	for (size_t i = 0; i + 5 < l->event.n; i++)
		if (l->event.p[i] == ':' && l->event.p[i + 1] >= 'a' && i)
			s->row.flags |= LG_SAMPLE_TRACEPOINT;
	s->timeless += !l->has_time;
	if (l->has_time) {
		s->last_ts = l->ts;
		lg_ps_sched_seen(&s->sched, l->ts, l->cpu);
	}
	s->open = true;
	s->n_frames = 0;
	if (lg_ps_parse_rest(&at, l->rest))
		add_frame(s, &at);
}

/* "# hostname : bgregg-test" */
static void comment(struct script *s, const char *line, size_t n)
{
	static const struct {
		const char *label, *key;
	} facts[] = {
		{ "# hostname : ", "host.name" }, { "# os release : ", "kernel.release" },
		{ "# perf version : ", "record.perf_version" }, { "# arch : ", "host.arch" },
		{ "# nrcpus online : ", "host.cpus" }, { "# cpudesc : ", "host.cpu" },
		{ "# cmdline : ", "record.cmdline" },
	};

	for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
		size_t k = strlen(facts[i].label);

		if (n <= k || memcmp(line, facts[i].label, k))
			continue;
		while (n > k && (line[n - 1] == ' ' || line[n - 1] == '\r'))
			n--;
		lg_add_meta(s->b, &(struct lg_meta_row){ .ts = INT64_MIN,
							 .key = lg_intern(s->b, facts[i].key),
							 .value = lg_intern_n(s->b, line + k, n - k) });
	}
}

static void one_line(struct script *s, const char *line, size_t n)
{
	struct lg_ps_line l;

	s->line_no++;
	switch (lg_ps_parse(&l, line, n, s->open)) {
	case LG_PS_BLANK:
		close_event(s);
		break;
	case LG_PS_COMMENT:
		comment(s, line, n);
		break;
	case LG_PS_EVENT:
		close_event(s);
		open_event(s, &l);
		break;
	case LG_PS_FRAME:
		add_frame(s, &l);
		break;
	default:
		if (!s->odd++)
			s->odd_at = s->line_no;
		break;
	}
}

/* Lines of the file. */
static int each_line(struct script *s, struct lg_source *in, char *buf)
{
	size_t have = 0;
	bool skipping = false; /* inside a line that is longer than the buffer */

	for (;;) {
		size_t got = lg_source_read(in, buf + have, BUFFER_BYTES - have);
		char *line = buf, *nl;

		if (!got)
			break;
		have += got;
		while ((nl = memchr(line, '\n', have - (size_t)(line - buf)))) {
			if (!skipping)
				one_line(s, line, (size_t)(nl - line));
			skipping = false;
			line = nl + 1;
		}
		have -= (size_t)(line - buf);
		memmove(buf, line, have);
		if (have == BUFFER_BYTES) {
			have = 0;
			skipping = true;
			s->odd++;
		}
		if (lg_builder_failed(s->b))
			return LG_E_NOMEM;
	}
	if (have && !skipping)
		one_line(s, buf, have);
	close_event(s);
	return lg_builder_failed(s->b);
}

static void notes(struct script *s, uint64_t bytes, const char *bad)
{
	if (bad)
		lg_add_diag_now(s->b, LG_DIAG_FILE_TRUNCATED, s->last_ts, 1,
				"the file cannot be unpacked beyond byte %llu of its text (line %llu)",
				(unsigned long long)bytes, (unsigned long long)s->line_no);
	if (s->lost_by_event > s->lost)
		lg_add_diag_now(s->b, LG_DIAG_LOST_EVENTS, s->last_ts, s->lost_by_event - s->lost,
				"perf's buffer was full; when is not told: only perf's count at the end has "
				"these");
	if (s->odd)
		lg_add_diag_now(s->b, LG_DIAG_NOT_UNDERSTOOD, s->last_ts, s->odd,
				"%llu lines are neither event nor frame, the first is line %llu",
				(unsigned long long)s->odd, (unsigned long long)s->odd_at);
	if (s->cut)
		lg_add_diag_now(s->b, LG_DIAG_STACK_TRUNCATED, s->last_ts, s->cut,
				"call chains of more than %d frames", DEPTH_MAX);
	if (s->timeless)
		lg_add_diag_now(s->b, LG_DIAG_NO_TIMES, s->last_ts, s->timeless,
				"%llu events were printed without time: they are numbered in the order "
				"of the file, 1 us apart",
				(unsigned long long)s->timeless);
}

static int run(const char *path, struct lg_builder *b, struct lg_error *err)
{
	struct script *s = lg_calloc(1, sizeof *s);
	char *buf = lg_realloc(NULL, BUFFER_BYTES, 1);
	struct lg_source *in = NULL;
	int rc = 0;

	if (!s || !buf)
		rc = lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	else
		rc = lg_source_open(&in, path, err);
	if (!rc) {
		s->b = b;
		s->s_unknown = lg_intern(b, "[unknown]");
		rc = each_line(s, in, buf);
		if (rc)
			rc = lg_fail(err, rc, LG_NO_OFFSET, "out of memory");
		else
			rc = lg_ps_sched_finish(&s->sched, b, s->last_ts, err);
		if (!rc && !s->samples)
			rc = lg_fail(err, LG_E_FORMAT, lg_source_offset(in),
				     "%llu lines of text and none is an event of perf script",
				     (unsigned long long)s->line_no);
		else if (!rc)
			notes(s, lg_source_offset(in), lg_source_damage(in));
	}
	lg_source_close(in);
	if (s)
		lg_map_done(&s->frame_of);
	if (s)
		lg_idle_done(&s->idle);
	if (s)
		lg_ps_sched_done(&s->sched);
	lg_free(s);
	lg_free(buf);
	return rc;
}

/* What the first lines were. */
struct first_lines {
	unsigned timed, stacked, bare, prose, odd;
	bool inside, open; /* behind an event; behind one that has no frame yet */
};

/* Only perf prints "sched:sched_switch: prev_comm=x", or an event with nothing behind its colon. */
static bool like_perf(const struct lg_ps_line *l)
{
	const char *colon = memchr(l->event.p, ':', l->event.n), *end = l->event.p + l->event.n;
	struct lg_ps_line at;

	return !l->rest.n || lg_ps_parse_rest(&at, l->rest) ||
	       (colon && colon + 1 < end && colon[1] >= 'a' && memchr(l->rest.p, '=', l->rest.n));
}

static void look_at(struct first_lines *f, const char *line, size_t n)
{
	struct lg_ps_line l;

	switch (lg_ps_parse(&l, line, n, f->inside)) {
	case LG_PS_EVENT:
		f->timed += l.has_time && (l.event.n || l.rest.n);
		f->bare += !l.event.n || (!l.has_time && like_perf(&l));
		f->prose += !l.has_time && !like_perf(&l);
		f->inside = f->open = true;
		break;
	case LG_PS_FRAME:
		f->stacked += f->open;
		f->open = false;
		break;
	case LG_PS_ODD:
		f->odd++;
		f->inside = f->open = false;
		break;
	default:
		f->inside &= n > 0;
		break;
	}
}

/*
 * The first lines decide: a header of perf's, an event with its time, an event with a stack below it. Lines
 * that are neither (a warning of perf's own, what a script printed before it) do not matter then, if the
 * events are more. "step 10 loss: 2.3" has the fields of an event without time: such lines alone are no
 * perf script, and nor are a few such lines among prose.
 */
static int sniff_text(const char *p, size_t n)
{
	struct first_lines f = { 0 };
	unsigned lines = 0;

	if (n >= 10 && !memcmp(p, "# ========", 10))
		return 80;
	for (const char *end = p + n, *nl; p < end; p = nl + 1) {
		nl = memchr(p, '\n', (size_t)(end - p));
		if (!nl && lines) /* the last one may be cut off */
			break;
		nl = nl ? nl : end;
		look_at(&f, p, (size_t)(nl - p));
		lines++;
		if (!f.odd && !f.prose && (f.timed || f.stacked))
			return 70;
	}
	if (f.stacked && f.stacked >= f.prose)
		return 70;
	if (f.timed > f.odd + f.prose)
		return 70;
	return f.bare && !f.odd && !f.prose ? 40 : 0;
}

static int sniff(const struct lg_head *h)
{
	return lg_head_is_binary(h) ? 0 : sniff_text(h->text, h->n_text);
}

const struct lg_importer lg_import_perfscript = {
	.name = "perf script",
	.summary = "text of perf script",
	.sniff = sniff,
	.run = run,
};
