/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log_failures.c - how a process ended: Python's tracebacks, what launchers, schedulers and shells say.
 *
 * A traceback is kept until another line of the same process comes: a logger's line behind it says that the
 * exception was caught. Those of threads, destructors and loggers end no process.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "import/torchlog/torchlog.h"

enum { LINES_BEHIND = 20, OF_MESSAGE = 3 }; /* CUDA's errors have three more lines */

/* How far a line is indented behind what launchers and loggers put before it. */
static int indent_of(const struct lg_log_line *line)
{
	size_t n = strspn(line->msg, " ");

	for (const char *p = line->msg; p > line->text && p[-1] == ' '; p--)
		n++;
	return n < 1000 ? (int)n : 1000;
}

/* "KeyError", "torch.cuda.OutOfMemoryError": as Python names an exception; 0 = is none. */
static size_t exception_name(const char *m)
{
	size_t n = strspn(m, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_."), last = n;

	while (last && m[last - 1] != '.')
		last--;
	if (n - last < 5 || !isupper((unsigned char)m[last]) || (m[n] && m[n] != ':'))
		return 0;
	return n;
}

bool lg_log_error_name(const char *m, size_t n)
{
	return n > 5 && (!strncmp(m + n - 5, "Error", 5) || !strncmp(m + n - 5, "ption", 5));
}

/* "XError: ...", without a traceback: no word that a program may begin a sentence with. */
static bool is_bare_exception(const struct lg_log_line *line)
{
	const char *m = line->msg;
	size_t n = exception_name(m);

	return n > 5 && line->ts == INT64_MIN && !strncmp(m + n, ": ", 2) && lg_log_error_name(m, n);
}

bool lg_log_device_error(const char *m)
{
	static const char *const words[] = { "CUDA error: ", "HIP error: ", "CUDA kernel errors might be asynch",
					     "HIP kernel errors might be asynch" };

	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (!strncmp(m, words[i], strlen(words[i])))
			return true;
	return false;
}

/* A device's error without the name of an exception, and not below one that has it. */
static bool is_bare_device_error(const struct lg_torchlog *l, const struct lg_log_line *line, uint64_t key)
{
	uint32_t open = lg_map_get(&l->open_of, key);

	return line->ts == INT64_MIN && lg_log_device_error(line->msg + strspn(line->msg, " ")) &&
	       (!open || l->open[open - 1].kind != LG_LOG_TRACEBACK);
}

/* A library's frame, not one of the program. */
static bool is_of_library(const char *file, size_t n)
{
	static const char *const parts[] = { "site-packages/", "dist-packages/", "/lib/python", "<" };

	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		if (memmem(file, n, parts[i], strlen(parts[i])))
			return true;
	return false;
}

static void frame(struct lg_log_trace *t, const char *m)
{
	size_t n = strncmp(m, "File \"", 6) ? 0 : strcspn(m + 6, "\"");
	int at;

	if (!n || n > 300 || sscanf(m + 6 + n, "\", line %d", &at) != 1)
		return;
	t->of_distributed |= memmem(m + 6, n, "torch/distributed/", 18) != NULL;
	if (!is_of_library(m + 6, n))
		snprintf(t->place, sizeof t->place, " (%.*s:%d)", (int)n, m + 6, at);
}

/* Behind these words a traceback is of something that goes on. */
static bool goes_on(const char *m)
{
	return !strncmp(m, "Exception in thread", 19) || !strncmp(m, "Exception ignored", 17) ||
	       !strncmp(m, "--- Logging error ---", 21);
}

/* may_follow: see struct lg_log_open. */
static void open_exception(struct lg_torchlog *l, const struct lg_log_line *line, const char *place,
			   unsigned may_follow)
{
	char text[LG_LOG_TEXT];

	snprintf(text, sizeof text, "%.1000s%s", line->msg + strspn(line->msg, " "), place);
	lg_torchlog_open(l, line, LG_LOG_TRACEBACK, "log.traceback", 0, text)->may_follow = may_follow;
	l->known++;
}

/* The slot of a process: of so many that print at once, the oldest gives its own up. */
static struct lg_log_trace *trace_of(struct lg_torchlog *l, uint64_t key, bool make)
{
	struct lg_log_trace *t = &l->trace[key % LG_LOG_TRACES];

	if (t->key == key && t->state != LG_TRACE_NONE)
		return t;
	if (make)
		*t = (struct lg_log_trace){ .key = key };
	return make ? t : NULL;
}

int lg_torchlog_failure(struct lg_torchlog *l, const struct lg_log_line *line, uint64_t key)
{
	struct lg_log_trace *t = trace_of(l, key, false);
	const char *m = line->msg + strspn(line->msg, " ");
	bool ignored = t && t->state == LG_TRACE_IGNORED;
	int known;

	if (strstr(m, "Traceback (most recent call last):")) {
		t = trace_of(l, key, true);
		t->state = LG_TRACE_FRAMES;
		t->ignored = ignored;
		t->frames = -1;
		return 1;
	}
	if (goes_on(m)) {
		trace_of(l, key, true)->state = LG_TRACE_IGNORED;
		return 1;
	}
	if (!t || t->state == LG_TRACE_IGNORED) {
		if (t)
			t->state = LG_TRACE_NONE;
		if (!is_bare_exception(line) && !is_bare_device_error(l, line, key))
			return 0;
		if (lg_torchlog_sentence(l, line, false))
			return 1;
		open_exception(l, line, "", OF_MESSAGE); /* without a traceback: perhaps no more than a word */
		return 1;
	}
	if (t->frames < 0 && strncmp(m, "File \"", 6)) {
		t->state = LG_TRACE_NONE;
		return 0;
	}
	if (t->frames < 0 || indent_of(line) >= t->frames) {
		t->frames = t->frames < 0 ? indent_of(line) : t->frames;
		frame(t, m);
		return 1;
	}
	t->state = LG_TRACE_NONE;
	/* What has a name of its own tells more: memory, a peer that is gone. */
	l->place = t->place;
	known = lg_torchlog_sentence(l, line, t->of_distributed);
	l->place = NULL;
	if (known)
		return 1;
	/* Somebody stopped it. */
	if (t->ignored || !exception_name(m) || !strncmp(m, "KeyboardInterrupt", 17) || !strncmp(m, "SystemExit", 10))
		return t->ignored;
	open_exception(l, line, t->place, LINES_BEHIND);
	return 1;
}

/* The error of a driver, "NVRM: Xid (PCI:0000:5d:00): 79, ..."; -1 = none. */
static int64_t xid(const char *m)
{
	const char *p = strstr(m, "NVRM: Xid (");

	p = p ? strstr(p, "): ") : NULL;
	return p && isdigit((unsigned char)p[3]) ? strtoll(p + 3, NULL, 10) : -1;
}

/* "line 12: 20331 Segmentation fault      (core dumped) python train.py", as a shell says it. */
static bool shell_says(const char *m)
{
	static const char *const how[] = { "Segmentation fault", "Killed", "Bus error", "Aborted", "Illegal instruction",
					   "Floating point exception" };
	const char *p = strstr(m, ": line ");
	int used = 0;

	if (!p || (sscanf(p, ": line %*d: %*d %n", &used), !used))
		return false;
	for (size_t i = 0; i < sizeof how / sizeof *how; i++)
		if (!strncmp(p + used, how[i], strlen(how[i])))
			return true;
	return false;
}

/* Slurm ends a job, or a step of it, and says why. */
static bool slurm_says(const char *m)
{
	if (strstr(m, "slurmstepd: error: "))
		return strstr(m, "oom_kill event") || strstr(m, "oom-kill event") ||
		       (strstr(m, " CANCELLED AT ") && strstr(m, " DUE TO "));
	return strstr(m, "srun: error: ") && strstr(m, ": task") &&
	       (strstr(m, ": Out Of Memory") || strstr(m, ": Killed") || strstr(m, ": Segmentation fault") ||
		strstr(m, ": Bus error") || strstr(m, ": Aborted"));
}

/* What stands behind "name :" at the start of the message; NULL. */
static const char *field(const char *m, const char *name)
{
	size_t n = strlen(name);

	m += strspn(m, " ");
	if (strncmp(m, name, n))
		return NULL;
	m += n + strspn(m + n, " ");
	return *m == ':' ? m + 1 + strspn(m + 1, " ") : NULL;
}

/* A mark of the rank of the table; its line is the agent's. */
static void mark_worker(struct lg_torchlog *l, const struct lg_log_line *line, int32_t rank, int64_t code,
			const char *text)
{
	struct lg_log_line of = *line;

	of.rank = rank;
	of.pid = of.rank >= 0 ? -1 : of.pid;
	lg_torchlog_mark(l, &of, "log.worker_failed", code, text);
}

/*
 * torch/distributed/elastic/multiprocessing/errors/__init__.py: below "Root Cause (first observed failure):" are
 * the lines time, host, rank, exitcode, error_file and traceback of one process.
 */
static int table_line(struct lg_torchlog *l, const struct lg_log_line *line)
{
	struct lg_log_table *t = &l->table;
	const char *m = line->msg, *v;
	char text[512], *end;
	int local = -1;
	long rank;

	if (strstr(m, "Root Cause (first observed failure):")) {
		*t = (struct lg_log_table){ .open = true, .rank = -1, .local = -1 };
		return 1;
	}
	if (!t->open)
		return 0;
	if ((v = field(m, "host"))) {
		snprintf(t->host, sizeof t->host, "%s", v);
	} else if ((v = field(m, "rank"))) {
		rank = strtol(v, &end, 10);
		t->rank = end > v && rank >= 0 && rank < 1 << 20 ? (int32_t)rank : -1;
		if (sscanf(end, " (local_rank: %7d", &local) == 1)
			t->local = local;
	} else if ((v = field(m, "exitcode"))) {
		t->exit_code = strtol(v, NULL, 10);
	} else if ((v = field(m, "traceback"))) {
		t->open = false;
		if (t->rank < 0)
			return 0;
		snprintf(text, sizeof text, "exit code %lld, local rank %d, on %s: %s",
			 (long long)t->exit_code, t->local, *t->host ? t->host : "a host", *v ? v : "no traceback");
		mark_worker(l, line, t->rank, t->exit_code, text);
	} else if (strstr(m, "=====")) {
		t->open = false;
	}
	return 0;
}

/* "failed (exitcode: 1) local_rank: 3 (pid: 4103)": the job's rank, where other lines tell it of that one. */
static int worker_line(struct lg_torchlog *l, const struct lg_log_line *line)
{
	const char *p = strstr(line->msg, "failed (exitcode: "), *q = p ? strstr(p, "local_rank: ") : NULL;
	long local = q ? strtol(q + 12, NULL, 10) : -1;
	uint32_t known = local >= 0 ? lg_map_get(&l->of_local, (uint64_t)local + 1) : 0;

	if (!p)
		return 0;
	known = line->rank >= 0 || known == UINT32_MAX ? 0 : known;
	mark_worker(l, line, known ? (int32_t)known - 1 : line->rank,
		    strtol(p + 18, NULL, 10), NULL);
	return 1;
}

int lg_torchlog_end_of_process(struct lg_torchlog *l, const struct lg_log_line *line)
{
	static const char *const died[] = { "Fatal Python error: ", "terminate called after throwing an instance of",
					    "Unexpected bus error encountered in worker" };
	const char *m = line->msg;
	int64_t number = xid(m);
	bool is = shell_says(line->text) || slurm_says(line->text);

	if (table_line(l, line) || worker_line(l, line))
		return 1;
	if (number >= 0) {
		lg_torchlog_mark(l, line, "log.xid", number, NULL);
		return 1;
	}
	for (size_t i = 0; !is && i < sizeof died / sizeof *died; i++)
		is = strstr(m, died[i]) != NULL;
	if (is)
		lg_torchlog_mark(l, line, "log.process_died", 0, NULL);
	return is;
}
