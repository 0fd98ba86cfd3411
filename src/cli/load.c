/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/load.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "advise/advise.h"
#include "analyse/explain.h"
#include "base/alloc.h"
#include "base/confine.h"
#include "cli/bounds.h"
#include "import/import.h"
#include "import/torchlog/step_regex.h"
#include "symbols/options.h"

static char progress_text[128];
static unsigned progress_seconds;
static volatile sig_atomic_t progress_shown;

/* How far the inputs are read: by the kernel's count of what this process has read; all 0 = not known. */
static struct {
	uint64_t all, before;
} reading;

/* proc_pid_io(5): bytes that read(2) and its kin gave to all threads; 0 = not known. Async-signal-safe. */
static uint64_t bytes_read(void)
{
	char text[256] = "";
	int fd = open("/proc/self/io", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	uint64_t v = 0;

	if (fd >= 0)
		close(fd);
	if (n < 7 || memcmp(text, "rchar: ", 7) != 0)
		return 0;
	for (const char *at = text + 7; *at >= '0' && *at <= '9'; at++)
		v = v * 10 + (uint64_t)(*at - '0');
	return v;
}

/* Behind n characters of line: number and what it is of. */
static size_t add_number(char *line, size_t n, uint64_t number, const char *of)
{
	char digits[20];
	size_t k = 0;

	do
		digits[k++] = (char)('0' + number % 10);
	while (number /= 10);
	while (k)
		line[n++] = digits[--k];
	memcpy(line + n, of, strlen(of));
	return n + strlen(of);
}

static void show_progress(int sig)
{
	enum { NUMBERS = 96 }; /* three, and their words */
	char line[sizeof progress_text + NUMBERS];
	size_t n = strlen(progress_text);
	int was = errno;
	uint64_t done;

	(void)sig;
	/* Only what is async-signal-safe: no printf(). */
	memcpy(line, progress_text, n);
	line[n++] = ' ';
	progress_seconds++;
	n = add_number(line, n, progress_seconds, " s");
	done = reading.all ? bytes_read() - reading.before : 0;
	if (done / 1000000 / progress_seconds && done < reading.all) {
		line[n++] = ',';
		line[n++] = ' ';
		n = add_number(line, n, done / 1000000 / progress_seconds, " MB/s, ");
		n = add_number(line, n, (reading.all - done) / (done / progress_seconds) + 1, " s left");
	}
	if (write(STDERR_FILENO, line, n) > 0)
		progress_shown = 1;
	errno = was;
}

void lg_progress_say(const char *text)
{
	sigset_t alarm, was;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	sigprocmask(SIG_BLOCK, &alarm, &was);
	snprintf(progress_text, sizeof progress_text, "\r\033[K%s", text);
	sigprocmask(SIG_SETMASK, &was, NULL);
}

void lg_progress_start(const char *text)
{
	struct sigaction sa = { .sa_handler = show_progress, .sa_flags = SA_RESTART };
	struct itimerval after = { .it_value.tv_sec = 1, .it_interval.tv_sec = 1 };

	if (!isatty(STDERR_FILENO))
		return;
	lg_progress_say(text);
	progress_seconds = 0;
	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &after, NULL);
}

void lg_progress_stop(void)
{
	static const char wipe[] = "\r\033[K";
	struct itimerval off = { 0 };

	setitimer(ITIMER_REAL, &off, NULL);
	if (progress_shown && write(STDERR_FILENO, wipe, sizeof wipe - 1) < 0)
		return;
	progress_shown = 0;
}

/* Where this user keeps files that were recorded: perf's cache, and servers if there are any. */
static void symbol_sources(void)
{
	const char *urls = getenv("DEBUGINFOD_URLS"), *cache = getenv("PERF_BUILDID_DIR");
	const char *home = getenv("HOME");
	struct lg_symbol_options *o = &lg_symbol_options;
	int n = 0;

	o->debuginfod = urls && *urls;
	if (cache && *cache)
		n = snprintf(o->cache, sizeof o->cache, "%s", cache);
	else if (home && *home)
		n = snprintf(o->cache, sizeof o->cache, "%s/.debug", home);
	if (n < 0 || (size_t)n >= sizeof o->cache)
		o->cache[0] = 0;
}

/* For what can be larger than memory: /tmp often is memory. */
static void scratch_folder(void)
{
	const char *given = getenv("TMPDIR");

	lg_import_scratch = given && *given ? given : "/var/tmp";
}

int lg_step_regex_option(const struct lg_command *cmd, const char *re)
{
	struct lg_error err = { 0 };

	return lg_step_regex_set(re, &err) ? lg_usage(cmd, "--step-regex: %s", err.message) : -1;
}

/* l->info: the file that x would have been placed by; NULL = it is not among them. */
static const struct lg_import_info *placed_by(const struct lg_loaded *l, const struct lg_import_info *x)
{
	for (size_t i = 0; x->join_to && i < l->n; i++)
		if (!strcmp(l->info[i].path, x->join_to))
			return &l->info[i];
	return NULL;
}

static void say_left_out(const struct lg_loaded *l, const char *path, const struct lg_import_info *x)
{
	const struct lg_import_info *to = x->other_run ? placed_by(l, x) : NULL;

	if (!to)
		lg_say("%s is left out: %s", path, x->left_out);
	else if (to->first <= x->first)
		lg_say("%s is left out: %s; laggard diff %s %s compares them", path, x->left_out, to->path, path);
	else
		lg_say("%s is left out: %s; laggard diff %s %s compares them", path, x->left_out, path, to->path);
}

/* Files of a folder that turned out to be no traces: named, and no inputs from then on. (Their paths stay:
 * what somebody named is not written over.) */
static int drop_left_out(struct lg_loaded *l, struct lg_error *err)
{
	size_t k = 0;

	for (size_t i = 0; i < l->n; i++)
		l->n_other += l->info[i].other_run;
	l->other = lg_calloc(l->n_other, sizeof *l->other);
	if (l->n_other && !l->other)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	l->n_other = 0;
	for (size_t i = 0; i < l->n; i++) {
		if (!*l->info[i].left_out) {
			l->info[k++] = l->info[i];
			continue;
		}
		if (l->info[i].unread) {
			int rc = lg_paths_unread(&l->paths, l->paths.path[i], l->info[i].left_out, err);

			if (rc)
				return rc;
			continue;
		}
		say_left_out(l, l->paths.path[i], &l->info[i]);
		if (l->info[i].other_run)
			l->other[l->n_other++] = l->info[i];
	}
	l->n = k;
	return 0;
}

/* ---- how far files are read ---- */

/* Not where the size of one is not known. */
static uint64_t bytes_of(const struct lg_paths *p)
{
	uint64_t all = 0;
	struct stat st;

	for (size_t i = 0; i < p->n; i++) {
		if (stat(p->path[i], &st) || !S_ISREG(st.st_mode))
			return 0;
		all += (uint64_t)st.st_size;
	}
	return all;
}

static void say_reading(size_t i, size_t n)
{
	char text[96];

	snprintf(text, sizeof text, "reading file %zu of %zu ...", i + 1, n);
	if (n > 1)
		lg_progress_say(text);
}

/*
 * A file may be hostile: before it is read, what root could do besides goes for good. Kept: reading what
 * others own, writing outputs into their folders, mappings of processes that a perf.data tells of and that
 * still run, and addresses in /proc/kallsyms. System calls that reading files takes no part in go, too.
 * Where that cannot be done, reading goes on as before.
 */
static void give_up_privileges(const struct lg_paths *p)
{
	static const uint8_t kept[] = { CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE, CAP_CHOWN, CAP_FOWNER,
					CAP_SYS_PTRACE, CAP_SYSLOG };
	struct lg_error ignored;
	uint64_t keep = 0;

	for (size_t i = 0; i < sizeof kept; i++)
		keep |= UINT64_C(1) << kept[i];
	lg_import_before_confined((const char *const *)p->path, p->n);
	(void)!lg_confine_capabilities(keep, &ignored);
	(void)!lg_confine_to_files(lg_symbol_options.debuginfod, &ignored);
}

int lg_load_paths(struct lg_paths *paths, struct lg_loaded *ret, struct lg_error *err)
{
	struct lg_loaded l = { .paths = *paths, .n = paths->n, .info = lg_calloc(paths->n, sizeof *l.info) };
	int rc = l.info ? 0 : lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");

	*paths = (struct lg_paths){ 0 };
	if (!rc) {
		lg_import_reads = say_reading;
		lg_bounds_set(l.paths.path, l.paths.n);
		symbol_sources();
		give_up_privileges(&l.paths);
		scratch_folder();
		reading.before = bytes_read();
		reading.all = bytes_of(&l.paths);
		lg_progress_start("reading ...");
		rc = lg_import_found((const char *const *)l.paths.path, l.n, l.paths.perhaps, &l.trace,
				     l.info, err);
		lg_progress_stop();
		reading.all = 0;
	}
	if (!rc)
		rc = drop_left_out(&l, err);
	if (rc)
		lg_loaded_done(&l);
	else
		*ret = l;
	return rc;
}

int lg_load(char **paths, size_t n, struct lg_loaded *ret, struct lg_error *err)
{
	struct lg_paths p = { 0 };

	return lg_paths_operands(&p, paths, n, err) ?: lg_load_paths(&p, ret, err);
}

int lg_load_run(char **paths, size_t n, struct lg_loaded *ret, struct lg_error *err)
{
	int rc;

	lg_import_parts_runs = true;
	rc = lg_load(paths, n, ret, err);
	if (!rc && ret->n_other)
		lg_say("this is of one run: give the files of another one by themselves; laggard explain has a table of all");
	return rc;
}

static int fill_inputs(struct lg_loaded *l, struct lg_error *err)
{
	struct lg_verdict *v = l->verdict;

	v->inputs = lg_arena_alloc(&v->arena, l->n, sizeof *v->inputs);
	if (!v->inputs)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	v->n_inputs = l->n;
	for (size_t i = 0; i < l->n; i++) {
		const struct lg_import_info *f = &l->info[i];

		v->inputs[i] = (struct lg_input){
			.path = f->path, .format = f->format, .host = f->host,
			.rank = f->rank,
			.duration_s = f->last > f->first ? (double)(f->last - f->first) / 1e9 : 0,
			.lost_events = f->lost_events, .rows_sample = f->rows_sample,
			.rows_state = f->rows_state, .rows_span = f->rows_span,
			.rows_counter = f->rows_counter,
		};
	}
	return 0;
}

/* "3.2 ms" */
static const char *length(int64_t ns, char *buf, size_t size)
{
	if (ns >= 1000000000)
		snprintf(buf, size, "%.3g s", (double)ns / 1e9);
	else if (ns >= 1000000)
		snprintf(buf, size, "%.3g ms", (double)ns / 1e6);
	else
		snprintf(buf, size, "%.3g us", (double)ns / 1e3);
	return buf;
}

/* Files that got their place in time in the same way; many of them are said in one line. */
#define JOINS_EACH 3

static bool joined(const struct lg_import_info *f)
{
	/* An uncertain place is a diag row, and a limit, already. */
	return f->join_how && f->join_sure && f->first <= f->last;
}

static bool joined_alike(const struct lg_import_info *a, const struct lg_import_info *b)
{
	return joined(a) && joined(b) && !strcmp(a->join_how, b->join_how) &&
	       !strcmp(a->join_to, b->join_to) && !a->join_matches == !b->join_matches;
}

static const char *by_what(const struct lg_import_info *f, size_t least, size_t most, char *buf, size_t size)
{
	const char *how = f->join_how;

	if (f->join_matches && least < most)
		snprintf(buf, size, "%zu to %zu common %s", least, most, how);
	else if (f->join_matches)
		snprintf(buf, size, "%zu common %s", least, how);
	else
		snprintf(buf, size, "%s", !strcmp(how, "boot")    ? "the clock of one boot"
					  : !strcmp(how, "zone")  ? "its local time's zone"
					  : !strcmp(how, "local") ? "local times of one zone"
								  : "their wall clocks");
	return buf;
}

/* The lines of file i and of those joined as it was; none where an earlier one spoke for them. */
static size_t say_alike(struct lg_loaded *l, size_t i, const char **ret)
{
	const struct lg_import_info *f = &l->info[i], *worst = f;
	size_t alike = 0, least = f->join_matches, most = f->join_matches, n = 0;
	char error[32], by[96];

	for (size_t k = 0; k < l->n; k++) {
		const struct lg_import_info *x = &l->info[k];

		if (!joined_alike(f, x))
			continue;
		if (k < i && !alike)
			return 0;
		alike++;
		worst = x->join_error > worst->join_error ? x : worst;
		least = x->join_matches < least ? x->join_matches : least;
		most = x->join_matches > most ? x->join_matches : most;
	}
	if (alike > JOINS_EACH) {
		ret[n++] = lg_arena_printf(&l->verdict->arena,
					   "%s and %zu more are on the clock of %s by %s: good to %s at worst (%s)",
					   f->path, alike - 1, f->join_to,
					   by_what(f, least, most, by, sizeof by),
					   length(worst->join_error, error, sizeof error), worst->path);
		return n;
	}
	for (size_t k = i; k < l->n; k++) {
		const struct lg_import_info *x = &l->info[k];

		if (!joined_alike(f, x))
			continue;
		ret[n++] = lg_arena_printf(&l->verdict->arena, "%s is on the clock of %s by %s: good to %s%s",
					   x->path, x->join_to,
					   by_what(x, x->join_matches, x->join_matches, by, sizeof by),
					   length(x->join_error, error, sizeof error),
					   x->join_matches ? " in nine of ten" : "");
	}
	return n;
}

/* How each file got its place in time, and how far that can be off. */
static int say_joins(struct lg_loaded *l, struct lg_error *err)
{
	struct lg_verdict *v = l->verdict;
	const char **limits = lg_arena_alloc(&v->arena, v->n_limits + l->n, sizeof *limits);
	size_t n = v->n_limits;

	if (limits && n)
		memcpy(limits, v->limits, n * sizeof *limits);
	for (size_t i = 0; limits && i < l->n; i++)
		if (joined(&l->info[i]))
			n += say_alike(l, i, limits + n);
	v->limits = limits;
	v->n_limits = n;
	return limits && !v->arena.failed ? 0 : lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
}

int lg_judge(struct lg_loaded *l, int32_t victim_pid, double cost_per_hour, struct lg_error *err)
{
	struct lg_explain_options opt = { .victim_pid = victim_pid, .unread = l->paths.unread,
					  .n_unread = l->paths.n_unread,
					  .n_missed = lg_paths_missed(&l->paths) };
	int rc;

	lg_progress_start("analysing ...");
	rc = lg_explain(l->trace, &opt, &l->verdict, err);
	if (!rc)
		rc = fill_inputs(l, err);
	if (!rc && l->n > 1)
		rc = say_joins(l, err);
	if (!rc)
		rc = lg_advise(l->verdict, cost_per_hour, err);
	lg_progress_stop();
	return rc;
}

void lg_loaded_done(struct lg_loaded *l)
{
	if (l->verdict)
		lg_verdict_free(l->verdict);
	lg_trace_free(l->trace);
	lg_free(l->info);
	lg_free(l->other);
	lg_paths_done(&l->paths);
	*l = (struct lg_loaded){ 0 };
}

/* By the first of these that says anything, as setlocale() takes them. */
static bool is_utf8(void)
{
	static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		const char *v = getenv(names[i]);

		if (v && *v)
			return strcasestr(v, "utf-8") || strcasestr(v, "utf8");
	}
	return false;
}

struct lg_term_options lg_terminal(void)
{
	struct lg_term_options t = { .utf8 = is_utf8() };
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
	struct winsize w;

	if (!isatty(STDOUT_FILENO))
		return t;
	/* no-color.org: set and not empty. */
	t.colour = !(no && *no) && !(term && !strcmp(term, "dumb"));
	if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) && w.ws_col)
		t.width = w.ws_col < 100 ? w.ws_col : 100;
	return t;
}

struct lg_out *lg_stdout_open(void)
{
	struct lg_error err = { 0 };
	struct lg_out *o;

	if (!lg_out_open(&o, "-", LG_OUT_PLAIN, &err))
		return o;
	lg_complain(&err);
	return NULL;
}

int lg_finish(struct lg_out *o)
{
	struct lg_error err = { 0 };

	if (!lg_out_close(o, &err))
		return LG_EXIT_OK;
	lg_complain(&err);
	return LG_EXIT_FAILED;
}

int lg_fail_on_option(const struct lg_command *cmd, const char *what, const char **ret)
{
	if (!lg_severity_from(what, &(enum lg_severity){ 0 }) && !lg_rule_find(what))
		return lg_usage(cmd, "--fail-on wants high, medium, low, info or a rule id (laggard rules lists them), "
				"not \"%s\"", what);
	*ret = what;
	return -1;
}

bool lg_fails(const struct lg_verdict *v, const char *on)
{
	enum lg_severity least;
	bool by_severity = lg_severity_from(on, &least);

	for (size_t i = 0; i < v->n_findings; i++) {
		const struct lg_finding *f = &v->findings[i];

		if (by_severity ? f->severity >= least : !strcmp(f->id, on))
			return true;
	}
	return false;
}
