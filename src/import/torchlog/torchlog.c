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
#include "import/source/frame.h"
#include "import/source/source.h"
#include "import/source/stamp.h"
#include "import/torchlog/step_regex.h"

#define SECOND INT64_C(1000000000)
enum { HEAD_BYTES = 65536 };
enum open_kind { NOTHING, GRAPH_BREAK, RECOMPILE, LIMIT, PAYLOAD };

static void remember(struct lg_torchlog *l, struct lg_map *m, uint64_t key, lg_thr thr)
{
	if (lg_map_set(m, key, thr))
		lg_builder_fail(l->b);
}

lg_thr lg_torchlog_thread(struct lg_torchlog *l, const struct lg_log_line *line)
{
	lg_thr thr = line->pid > 0 ? lg_map_get(&l->by_pid, (uint64_t)line->pid) : 0;
	struct lg_process_row row;
	lg_prc p;

	if (!thr && line->pid > 0) {
		thr = lg_thread_get(l->b, line->pid, line->pid);
		if (thr)
			remember(l, &l->by_pid, (uint64_t)line->pid, thr);
		l->only = l->n_pids++ ? 0 : thr;
	}
	if (line->rank < 0) {
		thr = thr ? thr : l->only ? l->only : l->nobody;
		if (!thr)
			thr = l->nobody = lg_thread_unnumbered(
				l->b, lg_process_unnumbered(l->b, "", -1, 0), "", 1);
		return thr;
	}
	if (thr) {
		p = lg_thread_process(l->b, thr);
		row = lg_process_read(l->b, p);
		if (row.rank != line->rank) {
			row.rank = line->rank;
			row.role = LG_ROLE_RANK;
			lg_process_write(l->b, p, &row);
		}
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

static void flush(struct lg_torchlog *l)
{
	if (l->open_kind == NOTHING)
		return;
	l->open.text = lg_intern(l->b, l->text);
	lg_add_mark(l->b, &l->open);
	l->open_kind = NOTHING;
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

	flush(l);
	snprintf(cut, sizeof cut, "%s", text ? text : line->msg);
	lg_add_mark(l->b, &(struct lg_mark_row){ .ts = lg_torchlog_now(l, line),
						 .thr = lg_torchlog_thread(l, line), .value = value,
						 .name = lg_intern(l->b, name),
							       .text = lg_intern(l->b, cut) });
	l->known++;
}

static void open_mark(struct lg_torchlog *l, const struct lg_log_line *line, enum open_kind kind,
		      const char *name, int64_t value, const char *text)
{
	flush(l);
	l->open = (struct lg_mark_row){ .ts = lg_torchlog_now(l, line), .thr = lg_torchlog_thread(l, line),
					.name = lg_intern(l->b, name), .value = value };
	snprintf(l->text, sizeof l->text, "%s", text);
	l->open_kind = kind;
	l->known++;
}

static void append(struct lg_torchlog *l, const char *separator, const char *text)
{
	size_t n = strlen(l->text);

	snprintf(l->text + n, sizeof l->text - n, "%s%s", n ? separator : "", text);
}

/* A further line of the open record. 1 = it was one. */
static int continues(struct lg_torchlog *l, const struct lg_log_line *line)
{
	static const char *const reasons[] = { "Reason: ", "Graph Break Reason: ", "Explanation: " };
	const char *m = line->msg + strspn(line->msg, " ");

	if (l->open_kind == GRAPH_BREAK && (!line->is_glog || !strcmp(line->artifact, "graph_breaks") ||
					    line->level == 'W')) {
		for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
			if (!strncmp(m, reasons[i], strlen(reasons[i]))) {
				append(l, ": ", m + strlen(reasons[i]));
				return 1;
			}
		return strncmp(m, "Graph break", 11) && (m > line->msg || !strncmp(m, "Hint:", 5) ||
							 !strncmp(m, "Developer debug", 15) ||
							 !strncmp(m, "User code trace", 15) || !*m);
	}
	if (l->open_kind == RECOMPILE && m > line->msg) {
		if (!strncmp(m, "- ", 2))
			append(l, strstr(l->text, "): ") ? "; " : ": ", m + 2);
		return 1;
	}
	if (l->open_kind == LIMIT && m > line->msg) {
		append(l, ", ", m);
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
	open_mark(l, line, RECOMPILE, "log.recompile", line->compile, text);
}

static int compile_record(struct lg_torchlog *l, const struct lg_log_line *line)
{
	static const struct {
		const char *before;
		enum open_kind kind;
	} starts[] = {
		{ "Graph break in user code at ", GRAPH_BREAK },
		{ "Graph break (user stack suppressed due to duplicate graph break) in user code at ", GRAPH_BREAK },
		{ "Recompiling function ", RECOMPILE },
		{ "torch._dynamo hit config.", LIMIT },
	};
	const char *m = line->msg;

	for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
		size_t k = strlen(starts[i].before);
		const char *open;

		if (strncmp(m, starts[i].before, k))
			continue;
		if (starts[i].kind == RECOMPILE) {
			recompile(l, line, m + k);
		} else if (starts[i].kind == LIMIT) {
			open = strchr(m, '(');
			open_mark(l, line, LIMIT, "log.recompile_limit", open ? strtol(open + 1, NULL, 10) : 0, m + k);
		} else {
			open_mark(l, line, GRAPH_BREAK, "log.graph_break", 0, m + k);
		}
		return 1;
	}
	if (!strncmp(m, "Graph break from `", 18)) {
		open_mark(l, line, GRAPH_BREAK, "log.graph_break", 0, m + 12);
		return 1;
	}
	return 0;
}

static void take_line(struct lg_torchlog *l, char *text)
{
	struct lg_log_line line;

	l->lines++;
	if (*text == '\t') { /* the payload of a TORCH_TRACE record */
		if (l->open_kind == PAYLOAD && strlen(l->text) < 1000)
			append(l, " ", text + 1 + strspn(text + 1, " \t"));
		if (l->structured)
			return;
	} else if (l->open_kind == PAYLOAD) {
		flush(l);
	}
	if (lg_nccl_take(&l->nccl, text, l->has_time ? l->now : (int64_t)l->lines * 1000)) {
		l->known++;
		return;
	}
	lg_log_line_parse(text, l->year, &line);
	/* Without a year: no line is younger than the file. A day for the zone. */
	if (line.is_glog && line.ts > l->written + 86400 * SECOND)
		lg_log_line_parse(text, l->year - 1, &line);
	if (line.ts != INT64_MIN) {
		l->first = !l->has_time || line.ts < l->first ? line.ts : l->first;
		l->last = !l->has_time || line.ts > l->last ? line.ts : l->last;
		l->now = line.ts;
		l->resolution = line.resolution;
		l->has_time = 1;
		l->has_zone |= line.has_zone;
		l->has_year |= line.has_year;
		l->timed++;
	}
	if (line.is_glog && line.msg[0] == '{' && line.msg[1] == '"') {
		flush(l);
		l->structured = 1;
		l->known++;
		if (lg_torchlog_record(l, &line, text + (line.msg - text)))
			l->open_kind = PAYLOAD;
		return;
	}
	if (l->open_kind != NOTHING && continues(l, &line))
		return;
	if (compile_record(l, &line) || lg_torchlog_message(l, &line))
		return;
	if (line.is_glog)
		flush(l);
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
		if (l->has_time && !l->has_year)
			lg_meta_set(l->b, 0, "import.year", "guessed");
		lg_time_base(l->b,
			       !l->has_time ? LG_TIME_NONE : l->has_zone ? LG_TIME_REALTIME : LG_TIME_LOCAL,
			     l->first, SECOND, "log");
	}
	if (!l->has_time)
		lg_add_diag_now(l->b, LG_DIAG_TIME_CLAMPED, 0, l->known,
				"the log has no times: its lines are numbered 1 us apart");
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
		flush(l);
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
		lg_map_done(&l->step_of);
		lg_map_done(&l->file_of);
		lg_map_done(&l->code_of);
		lg_free(l->step);
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
static int sniff(const uint8_t *head, size_t n)
{
	static const char *const words[] = { "torch/_dynamo", "ProcessGroupNCCL", "Watchdog caught", " NCCL INFO ",
					     "CUDA out of memory", "elapsed time per iteration", "it/s]",
					     "UserWarning:", "torch.distributed", "torchrun", "__recompiles" };
	LG_AUTOFREE char *text = lg_calloc(HEAD_BYTES + 1, 1);
	struct lg_log_line line;
	char *p = text, *nl;
	int printable = 0;

	if (!text)
		return 0;
	n = lg_source_head(head, n, text, HEAD_BYTES);
	if (!n || memchr(text, 0, n))
		return 0;
	for (size_t i = 0; i < n; i++) {
		if ((unsigned char)text[i] < 0x20 && !strchr("\t\n\r\f\x1b\a\b", text[i]))
			return 0;
		printable |= isalpha((unsigned char)text[i]) != 0;
	}
	if (user_says_so(text))
		return 90;
	p += strspn(p, " \t\r\n");
	if (!strncmp(p, "laggard-baseline\t", 17)) /* ours, no log */
		return 0;
	if (!printable || *p == '{' || !strncmp(p, "[{", 2) || !strncmp(p, "#!", 2) ||
	    (*p == '<' && !names_no_file(p)))
		return 0;
	if (*p == '[' && strspn(p + 1, " \r\n\t") && strchr("{[]", p[1 + strspn(p + 1, " \r\n\t")]))
		return 0;
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (lg_head_has(text, n, words[i]))
			return 50;
	for (; (nl = strchr(p, '\n')); p = nl + 1) {
		*nl = 0;
		lg_log_line_parse(p, 2000, &line);
		if (line.is_glog || line.ts != INT64_MIN)
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
