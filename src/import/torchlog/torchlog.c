/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torchlog.c - lines to marks. Records of several lines (a graph break and its reason, a recompile and
 * its guards) are put together again: torch repeats its header on each of them.
 */
#include "import/torchlog/torchlog.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/alloc.h"
#include "import/source/file_rank.h"
#include "import/source/frame.h"
#include "import/source/source.h"
#include "import/source/stamp.h"
#include "import/torchlog/step_regex.h"

#define SECOND INT64_C(1000000000)
enum { HEAD_BYTES = 65536 };

static void remember(struct lg_torchlog *l, struct lg_map *m, uint64_t key, lg_thr thr)
{
	if (lg_map_set(m, key, thr))
		lg_builder_fail(l->b);
}

/* A process whose pid is another rank's, too: each container counts its own. */
static lg_thr another_of_pid(struct lg_torchlog *l, const struct lg_log_line *line)
{
	uint64_t key = ((uint64_t)line->rank + 1) << 32 | (uint32_t)line->pid;
	lg_thr thr = lg_map_get(&l->by_pid, key);
	lg_prc p;

	if (thr)
		return thr;
	p = lg_process_add(l->b, &(struct lg_process_row){
					 .start = INT64_MIN, .end = INT64_MAX, .pid = line->pid,
					 .rank = line->rank, .local_rank = -1, .role = LG_ROLE_RANK });
	thr = lg_thread_add(l->b, &(struct lg_thread_row){
					  .start = INT64_MIN, .end = INT64_MAX, .tid = line->pid, .prc = p,
					  .flags = LG_THREAD_MAIN });
	if (thr)
		remember(l, &l->by_pid, key, thr);
	return thr;
}

/* The thread of a pid, which is one of a rank where the line tells it. */
static lg_thr thread_of_pid(struct lg_torchlog *l, const struct lg_log_line *line)
{
	lg_thr thr = lg_map_get(&l->by_pid, (uint64_t)line->pid);
	struct lg_process_row row;
	lg_prc p;

	if (!thr) {
		thr = lg_thread_get(l->b, line->pid, line->pid);
		if (thr)
			remember(l, &l->by_pid, (uint64_t)line->pid, thr);
		l->only = l->n_pids++ ? 0 : thr;
	}
	if (!thr || line->rank < 0)
		return thr;
	p = lg_thread_process(l->b, thr);
	row = lg_process_read(l->b, p);
	if (row.rank >= 0 && row.rank != line->rank) {
		l->only = 0;
		return another_of_pid(l, line);
	}
	if (row.rank < 0) {
		row.rank = line->rank;
		row.role = LG_ROLE_RANK;
		lg_process_write(l->b, p, &row);
	}
	return thr;
}

lg_thr lg_torchlog_thread(struct lg_torchlog *l, const struct lg_log_line *line)
{
	lg_thr thr = line->pid > 0 ? thread_of_pid(l, line) : 0;

	if (line->rank < 0) {
		thr = thr ? thr : l->only ? l->only : l->nobody;
		if (!thr)
			thr = l->nobody = lg_thread_unnumbered(
				l->b, lg_process_unnumbered(l->b, "", -1, 0), "", 1);
		return thr;
	}
	if (thr) {
		remember(l, &l->by_rank, (uint64_t)line->rank + 1, thr);
		return thr;
	}
	thr = lg_map_get(&l->by_rank, (uint64_t)line->rank + 1);
	if (!thr) {
		thr = lg_thread_unnumbered(l->b, lg_process_unnumbered(l->b, "", line->rank, 0), "", 1);
		if (thr)
			remember(l, &l->by_rank, (uint64_t)line->rank + 1, thr);
	}
	return thr;
}

static void flush(struct lg_torchlog *l, struct lg_log_open *o)
{
	if (!o || o->kind == LG_LOG_NOTHING)
		return;
	o->mark.text = lg_intern(l->b, o->text);
	lg_add_mark(l->b, &o->mark);
	lg_map_remove(&l->open_of, o->key);
	o->kind = LG_LOG_NOTHING;
	l->payload = l->payload == o ? NULL : l->payload;
}

/* Whose line it is: launchers put the rank before each, torch the pid before its own. */
static uint64_t key_of(const struct lg_torchlog *l, const struct lg_log_line *line)
{
	if (line->rank >= 0)
		return (uint64_t)line->rank + 1;
	return line->pid > 0 ? (uint64_t)line->pid << 32 : l->key;
}

static struct lg_log_open *open_by(struct lg_torchlog *l, const struct lg_log_line *line)
{
	uint32_t at = lg_map_get(&l->open_of, key_of(l, line));

	return at ? &l->open[at - 1] : NULL;
}

/* The time of a row: the line's, else that of the last line that had one, else its number. */
int64_t lg_torchlog_now(struct lg_torchlog *l, const struct lg_log_line *line)
{
	if (line->ts != INT64_MIN)
		return line->ts;
	return l->has_time ? l->now : (int64_t)l->lines * 1000;
}

void lg_torchlog_mark(struct lg_torchlog *l, const struct lg_log_line *line, const char *name, int64_t value,
		      const char *text)
{
	char cut[LG_LOG_TEXT];

	flush(l, open_by(l, line));
	if (text || !l->place)
		snprintf(cut, sizeof cut, "%s", text ? text : line->msg);
	else
		snprintf(cut, sizeof cut, "%.*s%s", LG_LOG_TEXT - 340, line->msg, l->place);
	lg_add_mark(l->b, &(struct lg_mark_row){ .ts = lg_torchlog_now(l, line),
						 .thr = lg_torchlog_thread(l, line), .value = value,
						 .name = lg_intern(l->b, name),
							       .text = lg_intern(l->b, cut) });
	l->known++;
}

struct lg_log_open *lg_torchlog_open(struct lg_torchlog *l, const struct lg_log_line *line,
				     enum lg_log_kind kind, const char *name, int64_t value, const char *text)
{
	struct lg_log_open *o = &l->open[l->next_open++ % LG_LOG_OPEN];

	flush(l, open_by(l, line));
	flush(l, o); /* the oldest: of so many processes, nothing more follows */
	o->mark = (struct lg_mark_row){ .ts = lg_torchlog_now(l, line), .thr = lg_torchlog_thread(l, line),
					.name = lg_intern(l->b, name), .value = value };
	o->key = key_of(l, line);
	o->kind = kind;
	o->may_follow = 0;
	snprintf(o->text, sizeof o->text, "%s", text);
	if (lg_map_set(&l->open_of, o->key, (uint32_t)(o - l->open) + 1))
		lg_builder_fail(l->b);
	l->payload = kind == LG_LOG_PAYLOAD ? o : NULL;
	return o;
}

static void open_mark(struct lg_torchlog *l, const struct lg_log_line *line, enum lg_log_kind kind,
		      const char *name, int64_t value, const char *text)
{
	(void)lg_torchlog_open(l, line, kind, name, value, text);
	l->known++;
}

static void append(struct lg_log_open *o, const char *separator, const char *text)
{
	size_t n = strlen(o->text);

	snprintf(o->text + n, sizeof o->text - n, "%s%s", n ? separator : "", text);
}

/* "torch._dynamo.exc.BackendCompilerFailed: ...", "RuntimeError: ...", not a line of source that raises it. */
static bool is_exception(const char *m)
{
	size_t n = strspn(m, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.");

	return n > 5 && !strncmp(m + n, ": ", 2) && (!strncmp(m, "torch.", 6) || lg_log_error_name(m, n));
}

/* The traceback of a compilation that failed; torch's other warnings are not of it. */
static int continues_failed(struct lg_log_open *o, const struct lg_log_line *line)
{
	static const char *const others[] = { "WON'T CONVERT ", "torch._dynamo hit config.", "Graph break" };

	if (!line->is_glog || line->level != 'W')
		return 0;
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		if (!strncmp(line->msg, others[i], strlen(others[i])))
			return 0;
	if (is_exception(line->msg) && !strstr(o->text, line->msg))
		append(o, o->text[strlen(o->text) - 1] == ':' ? " " : ": ", line->msg);
	return 1;
}

/* Below "Graph break from `Tensor.item()`": advice, and where it is, the innermost function last. */
static int continues_warning(struct lg_log_open *o, const struct lg_log_line *line)
{
	const char *m = line->msg + strspn(line->msg, " ");
	char *open = strstr(o->text, " ("), place[LG_LOG_TEXT];
	size_t n = strncmp(m, "File \"", 6) ? 0 : strcspn(m + 6, "\"");
	int at;

	if (!line->is_glog || line->level != 'W' || !strncmp(m, "Graph break from `", 18) ||
	    !strncmp(m, "Graph break in user code", 24))
		return 0;
	if (n && n < 400 && sscanf(m + 6 + n, "\", line %d", &at) == 1) {
		if (open)
			*open = 0;
		snprintf(place, sizeof place, "(%.*s:%d)", (int)n, m + 6, at);
		append(o, " ", place);
	}
	return 1;
}

/* A further line of the open record. 1 = it was one. */
static int continues(struct lg_log_open *o, const struct lg_log_line *line)
{
	static const char *const reasons[] = { "Reason: ", "Graph Break Reason: ", "Explanation: " };
	const char *m = line->msg + strspn(line->msg, " ");

	if (o->kind == LG_LOG_FAILED)
		return continues_failed(o, line);
	if (o->kind == LG_LOG_GRAPH_BREAK && !strncmp(o->text, "from `", 6))
		return continues_warning(o, line);
	if (o->kind == LG_LOG_GRAPH_BREAK && (!line->is_glog || !strcmp(line->artifact, "graph_breaks") ||
					    line->level == 'W')) {
		for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
			if (!strncmp(m, reasons[i], strlen(reasons[i]))) {
				append(o, ": ", m + strlen(reasons[i]));
				return 1;
			}
		return strncmp(m, "Graph break", 11) && (m > line->msg || !strncmp(m, "Hint:", 5) ||
							 !strncmp(m, "Developer debug", 15) ||
							 !strncmp(m, "User code trace", 15) || !*m);
	}
	if (o->kind == LG_LOG_RECOMPILE && m > line->msg) {
		if (!strncmp(m, "- ", 2))
			append(o, strstr(o->text, "): ") ? "; " : ": ", m + 2);
		return 1;
	}
	if (o->kind == LG_LOG_LIMIT && m > line->msg) {
		append(o, ", ", m);
		return 1;
	}
	return 0;
}

/* "Recompiling function g in /app/train.py:8" -> "g (/app/train.py:8)" */
static void recompile(struct lg_torchlog *l, const struct lg_log_line *line, const char *m)
{
	const char *in = strstr(m, " in ");
	char text[512];

	if (in)
		snprintf(text, sizeof text, "%.*s (%s)", (int)(in - m < 200 ? in - m : 200), m, in + 4);
	else
		snprintf(text, sizeof text, "%s", m);
	open_mark(l, line, LG_LOG_RECOMPILE, "log.recompile", line->compile, text);
}

static int compile_record(struct lg_torchlog *l, const struct lg_log_line *line)
{
	static const struct {
		const char *before;
		enum lg_log_kind kind;
	} starts[] = {
		{ "Graph break in user code at ", LG_LOG_GRAPH_BREAK },
		/* one that was told before; to torch 2.6, and since */
		{ "Graph break (details suppressed) in user code at ", LG_LOG_GRAPH_BREAK },
		{ "Graph break (user stack suppressed due to duplicate graph break) in user code at ",
		  LG_LOG_GRAPH_BREAK },
		{ "Recompiling function ", LG_LOG_RECOMPILE },
		{ "torch._dynamo hit config.", LG_LOG_LIMIT },
	};
	char function[128], file[256], text[512];
	const char *m = line->msg;
	int at;

	for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
		size_t k = strlen(starts[i].before);
		const char *open;

		if (strncmp(m, starts[i].before, k))
			continue;
		if (starts[i].kind == LG_LOG_RECOMPILE) {
			recompile(l, line, m + k);
		} else if (starts[i].kind == LG_LOG_LIMIT) {
			open = strchr(m, '(');
			open_mark(l, line, LG_LOG_LIMIT, "log.recompile_limit", open ? strtol(open + 1, NULL, 10) : 0, m + k);
		} else {
			open_mark(l, line, LG_LOG_GRAPH_BREAK, "log.graph_break", 0, m + k);
		}
		return 1;
	}
	if (!strncmp(m, "Graph break from `", 18)) {
		snprintf(text, sizeof text, "%.*s", (int)strcspn(m + 12, ","), m + 12);
		open_mark(l, line, LG_LOG_GRAPH_BREAK, "log.graph_break", 0, text);
		return 1;
	}
	/* torch/_dynamo/convert_frame.py, with config.suppress_errors */
	if (sscanf(m, "WON'T CONVERT %127s %255s line %d", function, file, &at) == 3) {
		snprintf(text, sizeof text, "%s (%s:%d)", function, file, at);
		open_mark(l, line, LG_LOG_FAILED, "log.compile_failed", 0, text);
		return 1;
	}
	return 0;
}

/* "[default3]:" counts the ranks of a host: where lines tell of both, which one it is of the job's. */
static void rank_of_local(struct lg_torchlog *l, struct lg_log_line *line)
{
	uint32_t known;

	if (line->local < 0)
		return;
	known = lg_map_get(&l->of_local, (uint64_t)line->local + 1);
	if (line->rank < 0) {
		line->rank = !known ? line->local : known == UINT32_MAX ? -1 : (int32_t)known - 1;
	} else if (known != (uint32_t)line->rank + 1 &&
		   lg_map_set(&l->of_local, (uint64_t)line->local + 1,
			      known ? UINT32_MAX : (uint32_t)line->rank + 1)) {
		lg_builder_fail(l->b);
	}
}

/* What a job does besides steps, or that it is through. */
static bool is_other_work(const char *m)
{
	static const char *const words[] = { "eval", "valid", "test", "sav", "checkpoint", "upload", "finish",
					     "complete", "done", "succe" };

	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (strcasestr(m, words[i]))
			return true;
	return false;
}

/* A log that goes on where its steps have ended says so by nothing but its lines' times. */
static void add_last_line(struct lg_torchlog *l)
{
	if (!l->step_thr || l->now - l->step_at < SECOND)
		return;
	lg_add_mark(l->b, &(struct lg_mark_row){ .ts = l->now, .thr = l->step_thr, .value = l->other_work,
						 .name = lg_intern(l->b, "log.last_line"),
						 .text = lg_intern(l->b, l->last_said) });
}

static void time_of(struct lg_torchlog *l, const struct lg_log_line *line)
{
	if (line->ts == INT64_MIN)
		return;
	l->first = !l->has_time || line->ts < l->first ? line->ts : l->first;
	l->last = !l->has_time || line->ts > l->last ? line->ts : l->last;
	l->now = line->ts;
	l->resolution = line->resolution;
	l->has_time = 1;
	l->has_zone |= line->has_zone;
	l->has_year |= line->has_year;
	l->has_day |= line->has_day;
	l->timed++;
	if (!l->step_thr)
		return;
	l->other_work = l->other_work || is_other_work(line->msg);
	snprintf(l->last_said, sizeof l->last_said, "%s", line->msg);
}

/*
 * Does the process print on, by a line that says nothing known? Then what was raised was caught. Behind an
 * exception that ends it trackers of runs, launchers and shells print some lines; not that it has finished.
 */
static bool goes_on(struct lg_log_open *o, const struct lg_log_line *line)
{
	static const char *const over[] = { "finished", "complete", "done", "succe" };

	if (!o || o->kind != LG_LOG_TRACEBACK || !line->msg[strspn(line->msg, " -=*~^")])
		return false;
	o->mark.value = !o->may_follow;
	for (size_t i = 0; i < sizeof over / sizeof *over; i++)
		o->mark.value |= strcasestr(line->msg, over[i]) != NULL;
	o->may_follow -= o->may_follow > 0;
	return o->mark.value;
}

/* A time of day is that of the line before or the day after, the first that of the day on which the file was
 * last written to. */
static void day_of(struct lg_torchlog *l, struct lg_log_line *line)
{
	const int64_t day = 86400 * SECOND;
	int64_t near = l->has_time ? l->now : l->written;

	if (line->ts == INT64_MIN || line->has_day)
		return;
	if (!l->has_time && l->written >= INT64_MAX - day)
		near = lg_days(l->year, 1, 1) * day;
	line->ts += near / day * day;
	if (l->has_time && line->ts < near - day / 2)
		line->ts += day;
	else if (line->ts > near + day / 2)
		line->ts -= day;
}

static void take_line(struct lg_torchlog *l, char *text)
{
	struct lg_log_line line;
	struct lg_log_open *o;

	l->lines++;
	if (*text == '\t') { /* the payload of a TORCH_TRACE record */
		if (l->payload && strlen(l->payload->text) < 1000)
			append(l->payload, " ", text + 1 + strspn(text + 1, " \t"));
		if (l->structured)
			return;
	} else {
		flush(l, l->payload);
	}
	if (lg_nccl_take(&l->nccl, text, l->has_time ? l->now : (int64_t)l->lines * 1000)) {
		l->known++;
		return;
	}
	lg_log_line_parse(text, l->year, &line);
	/* Without a year: no line is younger than the file. A day for the zone. */
	if (line.has_day && !line.has_year && line.ts > l->written + 86400 * SECOND)
		lg_log_line_parse(text, l->year - 1, &line);
	day_of(l, &line);
	rank_of_local(l, &line);
	l->ranks_told |= line.rank >= 0;
	time_of(l, &line);
	o = open_by(l, &line);
	l->key = key_of(l, &line);
	if (line.is_glog && line.msg[0] == '{' && line.msg[1] == '"') {
		flush(l, o);
		l->structured = 1;
		l->known++;
		lg_torchlog_record(l, &line, text + (line.msg - text));
		return;
	}
	if (o && o->kind == LG_LOG_TRACEBACK && line.ts != INT64_MIN && !line.is_glog) {
		o->mark.value = 1; /* a logger goes on */
		flush(l, o);
		o = NULL;
	}
	if (o && continues(o, &line))
		return;
	if (compile_record(l, &line) || lg_torchlog_failure(l, &line, l->key) ||
	    lg_torchlog_message(l, &line))
		return;
	o = open_by(l, &line);
	if (line.is_glog || goes_on(o, &line))
		flush(l, o);
}

static void notes(struct lg_torchlog *l, const struct lg_source *in)
{
	char text[16];

	lg_meta_set(l->b, 0, "trace.format", l->structured ? "torch trace" : "log");
	if (l->has_time && l->zone_known) {
		snprintf(text, sizeof text, "%+.2f", (double)l->zone / 3600e9);
		lg_meta_set(l->b, 0, "log.hours_before_utc", text);
		lg_meta_set(l->b, 0, "import.clock", lg_time_base_name(LG_TIME_REALTIME));
		lg_add_clock(l->b, &(struct lg_clock_row){ .ts = l->first, .value = l->first - l->zone,
							   .clock = CLOCK_REALTIME, .error = SECOND / 100,
							   .source = lg_intern(l->b, "TORCH_TRACE") });
	} else {
		if (l->has_day && !l->has_year)
			lg_meta_set(l->b, 0, "import.year", "guessed");
		lg_time_base(l->b,
			     !l->has_time ? LG_TIME_NONE : !l->has_day ? LG_TIME_RELATIVE
			     : l->has_zone ? LG_TIME_REALTIME : LG_TIME_LOCAL, l->first, SECOND, "log");
	}
	if (!l->has_time)
		lg_add_diag_now(l->b, LG_DIAG_NO_TIMES, 0, l->known,
				"the log's lines are numbered 1 us apart");
	if (l->by_trainer)
		lg_add_diag_now(l->b, LG_DIAG_PARTIAL, l->first, l->by_trainer,
				"Trainer prints a line every logging_steps steps: what is called a step here is as many");
	if (lg_step_regex_given() && !l->by_regex)
		lg_add_diag_now(l->b, LG_DIAG_NOT_UNDERSTOOD, l->first, l->lines,
				"no line of the log matches --step-regex");
	if (lg_source_cut(in))
		lg_add_diag_now(l->b, LG_DIAG_NOT_UNDERSTOOD, l->first, lg_source_cut(in),
				"lines of more than 1 MiB were cut");
	if (lg_source_damage(in))
		lg_add_diag_now(l->b, LG_DIAG_FILE_TRUNCATED, l->last, 1, "%s (byte %llu)", lg_source_damage(in),
				(unsigned long long)lg_source_offset(in));
}

/* torch's own stamps have no year: it is the one in which the file was last written to. */
static void date_of(struct lg_torchlog *l, const char *path)
{
	struct stat st;
	struct tm tm;

	l->year = 2026;
	l->written = INT64_MAX - 86400 * SECOND;
	if (stat(path, &st) || !gmtime_r(&st.st_mtime, &tm) || st.st_mtime <= 0 || st.st_mtime > 9000000000)
		return;
	l->year = tm.tm_year + 1900;
	l->written = st.st_mtime * SECOND;
}

/* Whose lines are those of a file in which none says so, by the file's name. */
static void rank_of_name(struct lg_torchlog *l, const char *path)
{
	int32_t rank = lg_log_file_rank(path);
	lg_thr thr = l->nobody ? l->nobody : l->only;
	struct lg_process_row row;
	lg_prc p;

	/* Lines of a rank beside them: then these are the launcher's, or anybody's. */
	if (rank < 0 || !thr || l->ranks_told || (l->nobody && l->n_pids))
		return;
	p = lg_thread_process(l->b, thr);
	row = lg_process_read(l->b, p);
	if (row.rank < 0) {
		row.rank = rank;
		row.role = LG_ROLE_RANK;
		lg_process_write(l->b, p, &row);
	}
}

static int run(const char *path, struct lg_builder *b, struct lg_error *err)
{
	struct lg_torchlog *l = lg_calloc(1, sizeof *l);
	struct lg_source *in = NULL;
	char *line;
	size_t n;
	int rc = l ? lg_source_open(&in, path, err) : lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");

	if (!rc) {
		l->b = l->nccl.b = b;
		date_of(l, path);
		l->summary_device = -1;
		while (lg_source_line(in, &line, &n))
			take_line(l, line);
		for (size_t i = 0; i < LG_LOG_OPEN; i++)
			flush(l, &l->open[i]);
		rank_of_name(l, path);
		lg_torchlog_end_epochs(l);
		lg_torchlog_add_spans(l);
		add_last_line(l);
		lg_nccl_finish(&l->nccl);
		if (lg_builder_failed(b))
			rc = lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
		else if (!l->known)
			rc = lg_fail(err, LG_E_FORMAT, LG_NO_OFFSET,
				     "text, not a trace: in its %llu lines is nothing that laggard knows from "
				     "training logs%s", (unsigned long long)l->lines,
				     lg_step_regex_given() ? ", and none matches --step-regex" : "");
		else
			notes(l, in);
	}
	lg_source_close(in);
	if (l) {
		lg_nccl_done(&l->nccl);
		lg_map_done(&l->by_rank);
		lg_map_done(&l->by_pid);
		lg_map_done(&l->of_local);
		lg_map_done(&l->open_of);
		lg_map_done(&l->bar_of);
		lg_map_done(&l->step_of);
		lg_map_done(&l->file_of);
		lg_map_done(&l->code_of);
		lg_map_done(&l->broken);
		lg_free(l->step);
		lg_free(l->span);
		lg_free(l->bar);
	}
	lg_free(l);
	return rc;
}

/* Is there a step's line, as the user describes it? text is cut into lines. */
static bool user_says_so(char *text)
{
	double ms;
	int64_t number;

	if (!lg_step_regex_given())
		return false;
	for (char *p = text, *nl; (nl = strchr(p, '\n')); p = nl + 1) {
		bool is;

		*nl = 0;
		is = lg_step_regex_match(p, &number, &ms);
		*nl = '\n';
		if (is)
			return true;
	}
	return false;
}

/* Python's "<stdin>:2: UserWarning:", and no markup. */
static bool names_no_file(const char *p)
{
	const char *end = *p == '<' ? strpbrk(p, ">\n") : NULL;

	return end && *end == '>' && end[1] == ':' && isdigit((unsigned char)end[2]);
}

/* A line of torch's own or a known word is a log for certain; any other text may still be one, because
 * jobs print pages of their own before anything of torch's: run() decides then. */
static int sniff(const struct lg_head *h)
{
	static const char *const words[] = { "torch/_dynamo", "ProcessGroupNCCL", "Watchdog caught", " NCCL INFO ",
					     "CUDA out of memory", "elapsed time per iteration", "it/s]",
					     "UserWarning:", "torch.distributed", "torchrun", "__recompiles",
					     "{'loss': " };
	LG_AUTOFREE char *text = lg_strdup(h->text);
	struct lg_log_line line;
	char *p = text, *nl;
	int printable = 0;

	if (!text || lg_head_is_binary(h))
		return 0;
	for (size_t i = 0; i < h->n_text; i++) {
		if ((unsigned char)text[i] < 0x20 && !strchr("\t\n\r\f\x1b\a\b", text[i]))
			return 0;
		printable |= isalpha((unsigned char)text[i]) != 0;
	}
	if (user_says_so(text))
		return 90;
	p += strspn(p, " \t\r\n");
	if (!strncmp(p, "laggard-baseline\t", 17)) /* ours, no log */
		return 0;
	if (lg_head_has(h, "allocated_bytes.all.") || lg_head_has(h, "memory summary, device ID "))
		return 60; /* also a JSON file of memory_stats() alone */
	if (!printable || (*p == '{' && p[1] != '\'') || !strncmp(p, "[{", 2) || !strncmp(p, "#!", 2) ||
	    (*p == '<' && !names_no_file(p)))
		return 0;
	if (*p == '[' && strspn(p + 1, " \r\n\t") && strchr("{[]", p[1 + strspn(p + 1, " \r\n\t")]))
		return 0;
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (lg_head_has(h, words[i]))
			return 50;
	for (; (nl = strchr(p, '\n')); p = nl + 1) {
		*nl = 0;
		lg_log_line_parse(p, 2000, &line);
		if (line.has_day)
			return 45;
	}
	return 3;
}

const struct lg_importer lg_import_torchlog = {
	.name = "log",
	.summary = "log of a training job",
	.sniff = sniff,
	.run = run,
};
