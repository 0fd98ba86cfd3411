/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_selftest.c - does what is installed work here? A trace and a job with a known cause, through the
 * same commands that a user types, held against what is known of them.
 *
 * The job is this program itself: its steps take some milliseconds, and in every tenth it waits for
 * another process, which computes for long. So it needs no Python, no framework and no second machine.
 */
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/command.h"
#include "cli/own_command.h"
#include "import/value/value.h"
#include "laggard/mark.h"
#include "record/runtime_dir.h"

extern char **environ;

enum { STEPS = 120, SLOW_EVERY = 10, STEP_MS = 5, SLOW_MS = 40, TRACE_STEPS = 20, ANSWER_BYTES = 4 << 20 };

/* ---- the job ------------------------------------------------------------------------------------- */

static void compute(int ms)
{
	struct timespec t;
	int64_t end = INT64_MAX;

	do {
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
		if (end == INT64_MAX)
			end = t.tv_sec * INT64_C(1000000000) + t.tv_nsec + ms * INT64_C(1000000);
	} while (t.tv_sec * INT64_C(1000000000) + t.tv_nsec < end);
}

/* Answers each byte when it has computed. */
static void help_slowly(int asked, int answer)
{
	char byte;

	prctl(PR_SET_NAME, "slow-helper"); /* what is called laggard is taken for a recorder */
	while (read(asked, &byte, 1) == 1) {
		compute(SLOW_MS);
		if (write(answer, &byte, 1) != 1)
			break;
	}
	_exit(0);
}

/* A process that is no part of the job, and the ends of pipes that the job will find open. */
struct helper {
	pid_t pid;
	int ask, answer;
};

static bool start_helper(struct helper *ret)
{
	int ask[2], answer[2];

	if (pipe(ask) || pipe(answer)) /* at worst they end with us */
		return false;
	ret->pid = fork();
	if (!ret->pid) {
		close(ask[1]);
		close(answer[0]);
		help_slowly(ask[0], answer[1]);
	}
	close(ask[0]);
	close(answer[1]);
	ret->ask = ask[1];
	ret->answer = answer[0];
	return ret->pid > 0;
}

static void end_helper(const struct helper *h)
{
	close(h->ask);
	close(h->answer);
	kill(h->pid, SIGKILL);
	(void)waitpid(h->pid, NULL, 0);
}

static int job(int ask, int answer)
{
	char byte = 0;

	for (int i = 0; i < STEPS; i++) {
		uint64_t stage = lag_mark_stage_begin(LAG_STAGE_FORWARD);

		compute(STEP_MS);
		if (i % SLOW_EVERY == SLOW_EVERY - 1 &&
		    (write(ask, &byte, 1) != 1 || read(answer, &byte, 1) != 1))
			return LG_EXIT_FAILED;
		lag_mark_stage_end(stage);
		lag_mark_step(i);
	}
	return LG_EXIT_OK;
}

/* ---- our commands -------------------------------------------------------------------------------- */

/* Run one of them; what it prints is the caller's to free. NULL: it failed, which it has said itself on
 * standard error. */
static char *run_command(char *const *argv)
{
	struct lg_printed out = { .p = lg_calloc(1, ANSWER_BYTES), .max = ANSWER_BYTES - 1 };

	if (out.p && lg_run_own_command(argv, &out, NULL) != LG_EXIT_OK) {
		lg_free(out.p);
		return NULL;
	}
	return out.p;
}

/* What explain --json says of a file. */
struct verdict {
	char *text;
	struct lg_doc doc;
	int64_t steps, slow, culprit; /* culprit: pid of the first finding's; -1 */
	const char *id, *title;       /* of the first finding; "" */
};

static bool explain(char *path, struct verdict *ret)
{
	char *const argv[] = { "laggard", "explain", "--json", "--", path, NULL };
	const struct lg_doc *d = &ret->doc;
	struct lg_error err;
	uint32_t steps, first;

	*ret = (struct verdict){ .text = run_command(argv) };
	if (!ret->text)
		return false;
	if (lg_doc_json(&ret->doc, ret->text, strlen(ret->text), &err)) {
		lg_say("what explain printed is no JSON");
		return false;
	}
	steps = lg_value_get(d, d->root, "steps");
	first = lg_value_at(d, lg_value_get(d, d->root, "findings"), 0);
	ret->steps = lg_value_int(d, lg_value_get(d, steps, "count"), -1);
	ret->slow = lg_value_int(d, lg_value_get(d, steps, "slow"), -1);
	ret->culprit = lg_value_int(d, lg_value_get(d, lg_value_get(d, first, "culprit"), "pid"), -1);
	ret->id = lg_value_text(d, lg_value_get(d, first, "id"));
	ret->title = lg_value_text(d, lg_value_get(d, first, "title"));
	return true;
}

static void verdict_done(struct verdict *v)
{
	lg_doc_done(&v->doc);
	lg_free(v->text);
}

/* ---- what is known ------------------------------------------------------------------------------- */

static bool write_trace(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
	long ts = 0;

	if (!f)
		return false;
	fputs("{\"traceEvents\": [", f);
	for (int i = 0; i < TRACE_STEPS; i++) {
		int ms = i == TRACE_STEPS / 2 ? SLOW_MS : STEP_MS;

		fprintf(f, "%s{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"ProfilerStep#%d\", \"pid\": 1, "
			"\"tid\": 1, \"ts\": %ld, \"dur\": %d}", i ? ", " : "", i, ts, ms * 1000);
		ts += ms * 1000;
	}
	fputs("]}", f);
	return !fclose(f);
}

static bool reads(const struct lg_runtime_dir *dir)
{
	char path[sizeof dir->path + 16];
	struct verdict v = { 0 };
	bool ok;

	snprintf(path, sizeof path, "%s/trace.json", dir->path);
	ok = write_trace(path) && explain(path, &v);
	printf("reads    ");
	if (!ok)
		printf("no: a trace could not be written, or not be read\n");
	else if (v.steps != TRACE_STEPS || v.slow != 1)
		printf("no: a trace of %d steps, one slow, is said to have %" PRId64 ", %" PRId64 " slow\n", TRACE_STEPS,
		       v.steps, v.slow);
	else
		printf("yes: a trace of %d steps, one slow\n", TRACE_STEPS);
	ok = ok && v.steps == TRACE_STEPS && v.slow == 1;
	verdict_done(&v);
	return ok;
}

static bool records(const struct lg_runtime_dir *dir)
{
	char path[sizeof dir->path + 16], ask[16], answer[16], *said = NULL;
	char *const argv[] = { "laggard", "record", "-q", "-o", path, "--", "/proc/self/exe", "selftest", "job", ask,
			       answer, NULL };
	struct verdict v = { 0 };
	struct helper h;
	bool ok = start_helper(&h);

	snprintf(path, sizeof path, "%s/run.lag", dir->path);
	if (ok) {
		snprintf(ask, sizeof ask, "%d", h.ask);
		snprintf(answer, sizeof answer, "%d", h.answer);
		said = run_command(argv);
		end_helper(&h);
	}
	printf("records  ");
	if (!said || !explain(path, &v)) {
		printf("no: what it said is above; laggard doctor says what is missing\n");
		verdict_done(&v);
		lg_free(said);
		return false;
	}
	lg_free(said);
	/* What else runs here may make others slow as well. */
	ok = v.steps >= STEPS * 9 / 10 && v.steps <= STEPS && v.slow >= STEPS / SLOW_EVERY * 3 / 4;
	printf("%s: a job of %d steps, %d slow, is said to have %" PRId64 ", %" PRId64 " slow\n", ok ? "yes" : "no", STEPS,
	       STEPS / SLOW_EVERY, v.steps, v.slow);
	if (v.culprit == h.pid)
		printf("names    yes: %s: %s\n", v.id, v.title);
	else
		printf("names    no: whom its slow steps waited for (pid %d); %s: laggard doctor says what is not seen here\n",
		       (int)h.pid, *v.title ? v.title : "nobody is named");
	verdict_done(&v);
	return ok;
}

static int run(int argc, char **argv)
{
	static const struct option longs[] = { { "help", no_argument, NULL, 'h' }, { 0 } };
	struct lg_error err = { 0 };
	struct lg_runtime_dir dir;
	bool ok;
	int c;

	opterr = 0;
	optind = 0; /* glibc: start anew */
	while ((c = getopt_long(argc, argv, ":h", longs, NULL)) != -1)
		return lg_option_rest(&lg_cmd_selftest, c, argv[optind - 1]);
	if (optind + 3 == argc && !strcmp(argv[optind], "job"))
		return job((int)strtol(argv[optind + 1], NULL, 10), (int)strtol(argv[optind + 2], NULL, 10));
	if (optind < argc)
		return lg_usage(&lg_cmd_selftest, "it takes no argument");
	if (lg_runtime_dir_make(&dir, false, environ, &err)) {
		lg_complain(&err);
		return LG_EXIT_FAILED;
	}
	ok = reads(&dir);
	fflush(stdout);
	ok = records(&dir) && ok;
	lg_runtime_dir_remove(&dir);
	return ok ? LG_EXIT_OK : LG_EXIT_FAILED;
}

const struct lg_command lg_cmd_selftest = {
	.name = "selftest",
	.args = "",
	.summary = "does what is installed work here: a trace and a job with a known cause",
	.help =
	"Reads a small trace, records a job of a second, and holds what is said of them against what is known. A line\n"
	"each; exit 1 if reading or recording does not work. Whether the cause is named depends on what the machine\n"
	"permits (laggard doctor): that alone is no failure.\n"
	"\n"
	"example:\n"
	"  sudo laggard selftest\n",
	.run = run,
};
