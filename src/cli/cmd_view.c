/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_view.c - the report and the trace for a browser, over loopback (serve/serve.h says who gets them). */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/bounds.h"
#include "cli/load.h"
#include "cli/runs.h"
#include "import/import.h"
#include "record/runtime_dir.h"
#include "report/convert.h"
#include "report/report.h"
#include "serve/serve.h"

extern char **environ;

enum { PORT = 256, NO_OPEN, UI, STEP_REGEX, PORT_MIN = 1024 };
#define PERFETTO_UI "https://ui.perfetto.dev"

struct options {
	uint16_t port; /* 0 = any */
	bool no_open;
	const char *ui;
};

static int set_port(struct options *opt, const char *text)
{
	char *end;
	long n = strtol(text, &end, 10);

	if (end == text || *end || n < PORT_MIN || n > UINT16_MAX)
		return lg_usage(&lg_cmd_view, "--port wants a number from %d to %d, not \"%s\"", PORT_MIN, UINT16_MAX,
				text);
	opt->port = (uint16_t)n;
	return -1;
}

/* The exit status, or -1: go on. */
static int parse(int argc, char **argv, struct options *opt)
{
	static const struct option longs[] = {
		{ "port", required_argument, NULL, PORT },
		{ "no-open", no_argument, NULL, NO_OPEN },
		{ "ui", required_argument, NULL, UI },
		{ "step-regex", required_argument, NULL, STEP_REGEX },
		LG_MAX_MEMORY_OPTION,
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int c, rc = -1;

	opterr = 0;
	optind = 0; /* glibc: start anew */
	while (rc < 0 && (c = getopt_long(argc, argv, ":h", longs, NULL)) != -1) {
		if (c == PORT)
			rc = set_port(opt, optarg);
		else if (c == NO_OPEN)
			opt->no_open = true;
		else if (c == UI && strncmp(optarg, "http://", 7) && strncmp(optarg, "https://", 8))
			rc = lg_usage(&lg_cmd_view, "--ui wants an address that begins with http:// or https://, "
						    "not \"%s\"", optarg);
		else if (c == UI)
			opt->ui = optarg;
		else if (c == STEP_REGEX)
			rc = lg_step_regex_option(&lg_cmd_view, optarg);
		else if (c == LG_MAX_MEMORY)
			rc = lg_max_memory_option(&lg_cmd_view, optarg);
		else
			rc = lg_option_rest(&lg_cmd_view, c, argv[optind - 1]);
	}
	if (rc < 0 && optind >= argc)
		return lg_usage(&lg_cmd_view, "no FILE given");
	return rc;
}

/* ---- what is served ------------------------------------------------------------------------------ */

enum { REPORT, TRACE, HANDOFF, N_PAGES };
static const struct lg_document documents[N_PAGES] = {
	[REPORT] = { "", "text/html; charset=utf-8" },
	[TRACE] = { "trace.pftrace", "application/octet-stream" },
	[HANDOFF] = { "perfetto", "text/html; charset=utf-8" },
};

/* Write one into dir, and open it; it loses its name: nothing of it stays, however we end. */
static int make_page(const struct lg_runtime_dir *dir, const struct lg_loaded *l,
		     const struct lg_run_table *runs, const char *ui, int which, int *ret_file,
		     struct lg_error *err)
{
	static const struct lg_window all = { INT64_MIN, INT64_MAX };
	char path[sizeof dir->path + 16], title[4096];
	struct lg_out *o;
	int rc;

	snprintf(path, sizeof path, "%s/page", dir->path);
	rc = lg_out_open(&o, path, LG_OUT_PLAIN, err);
	if (rc)
		return rc;
	if (which == REPORT)
		rc = lg_report_html(l->verdict, runs, o, err);
	else if (which == TRACE)
		rc = lg_perfetto_write(l->trace, l->verdict, &all, o, err);
	else
		lg_report_handoff(ui, lg_headline(l->verdict, title, sizeof title), o);
	if (rc) {
		lg_out_abort(o);
		return rc;
	}
	rc = lg_out_close(o, err);
	if (rc)
		return rc;
	*ret_file = openat(dir->fd, "page", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (*ret_file < 0 || unlinkat(dir->fd, "page", 0))
		return lg_fail(err, LG_E_IO, LG_NO_OFFSET, "%s: %s", path, strerror(errno));
	return 0;
}

static int make_pages(int file[N_PAGES], const struct lg_loaded *l, const struct lg_run_table *runs,
		      const char *ui, struct lg_error *err)
{
	struct lg_runtime_dir dir;
	int rc = lg_runtime_dir_make(&dir, false, environ, err);

	if (rc)
		return rc;
	lg_progress_start("drawing ...");
	for (int i = 0; i < N_PAGES && !rc; i++)
		rc = make_page(&dir, l, runs, ui, i, &file[i], err);
	lg_progress_stop();
	lg_runtime_dir_remove(&dir);
	return rc;
}

/* ---- who looks at it ----------------------------------------------------------------------------- */

/* A browser of who called us: not root's, and only where there is a screen. */
static bool has_browser(const struct options *opt)
{
	return !opt->no_open && geteuid() != 0 && !getenv("SSH_CONNECTION") &&
	       (getenv("DISPLAY") || getenv("WAYLAND_DISPLAY")) && isatty(STDOUT_FILENO);
}

/* Later no program can be started: one waits until it is told, or we end. Returns where to tell it; or -1. */
static int browser_later(const char *address)
{
	int ends[2], null;
	sigset_t none;
	char byte;

	if (pipe2(ends, O_CLOEXEC))
		return -1;
	switch (fork()) {
	case -1:
		close(ends[0]);
		close(ends[1]);
		return -1;
	case 0:
		close(ends[1]);
		null = open("/dev/null", O_RDWR | O_CLOEXEC);
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		if (read(ends[0], &byte, 1) == 1 && null >= 0 && dup2(null, 0) == 0 && dup2(null, 1) == 1 &&
		    dup2(null, 2) == 2 && setsid() > 0)
			execlp("xdg-open", "xdg-open", address, (char *)NULL);
		_exit(127);
	}
	close(ends[0]);
	return ends[1];
}

static void tell(const struct lg_server *s)
{
	char host[256] = "HOST";

	printf("report    %s\ntimeline  %sperfetto\n", lg_serve_address(s), lg_serve_address(s));
	if (getenv("SSH_CONNECTION") && !gethostname(host, sizeof host - 1))
		printf("From where you sit: ssh -L %u:127.0.0.1:%u %s, and the same addresses there.\n",
		       lg_serve_port(s), lg_serve_port(s), host);
	printf("Ctrl-C ends it.\n");
	fflush(stdout);
}

/* runs: takes no part any more when it returns. */
static int view(struct lg_paths *paths, struct lg_runs *runs, const struct options *opt, struct lg_server *s,
		int browser, struct lg_error *err)
{
	struct lg_loaded l = { 0 };
	struct lg_run_table t = { 0 };
	int file[N_PAGES] = { -1, -1, -1 };
	sigset_t ends;
	int rc = lg_load_paths(paths, &l, err) ?: lg_judge(&l, 0, (double)NAN, err) ?:
		 lg_runs_table(runs, &l, &t, err) ?: make_pages(file, &l, &t, opt->ui, err);

	lg_runs_done(runs);
	lg_loaded_done(&l);
	lg_free(t.row);
	rc = rc ?: lg_serve_start(s, file, err);
	for (int i = 0; i < N_PAGES; i++)
		if (file[i] >= 0)
			close(file[i]);
	if (rc)
		return rc;
	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGHUP);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	tell(s);
	if (browser >= 0)
		(void)!write(browser, "", 1);
	return lg_serve_until(s, &ends, err);
}

static int run(int argc, char **argv)
{
	struct options opt = { .ui = PERFETTO_UI };
	struct lg_paths paths = { 0 };
	struct lg_runs runs = { 0 };
	struct lg_error err = { 0 };
	struct lg_server *s;
	int rc = parse(argc, argv, &opt), browser = -1;

	if (rc >= 0)
		return rc;
	rc = lg_paths_operands(&paths, argv + optind, (size_t)(argc - optind), &err);
	if (!rc && paths.n > 1) /* before there is an address: it shall not hold one */
		lg_runs_start(&runs, &paths, 0);
	lg_import_parts_runs = true;
	lg_import_keeps_all = true; /* as convert */
	rc = rc ?: lg_serve_open(&s, opt.port, documents, N_PAGES, &err);
	if (!rc) {
		browser = has_browser(&opt) ? browser_later(lg_serve_address(s)) : -1;
		rc = view(&paths, &runs, &opt, s, browser, &err);
		lg_serve_close(s);
	}
	if (browser >= 0)
		close(browser);
	lg_runs_done(&runs);
	lg_paths_done(&paths);
	if (rc)
		lg_complain(&err);
	return rc ? LG_EXIT_FAILED : LG_EXIT_OK;
}

const struct lg_command lg_cmd_view = {
	.name = "view",
	.args = "FILE... [OPTION]...",
	.summary = "show the report in a browser, and hand the timeline to Perfetto",
	.help =
	"Serves what explain --html writes, and the trace as convert writes it for Perfetto, to browsers on this\n"
	"machine, and prints the addresses. They hold a random word: who has not seen them finds nothing.\n\n"
	"  --port N         listen there, on 127.0.0.1 (default: any port that is free)\n"
	"  --no-open        only print the addresses\n"
	"  --ui ADDRESS     where Perfetto's interface is (default " PERFETTO_UI ")\n"
	"  --step-regex RE  what a step's line looks like in a job's log (laggard-explain(1))\n"
	LG_MAX_MEMORY_HELP
	"\n"
	"example:\n"
	"  laggard view run.lag\n",
	.run = run,
};
