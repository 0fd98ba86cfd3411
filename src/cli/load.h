/* SPDX-License-Identifier: Apache-2.0 */
/* load.h - what explain, steps and convert share: files to a trace, a trace to a verdict. */
#ifndef LG_CLI_LOAD_H
#define LG_CLI_LOAD_H
#include "analyse/verdict.h"
#include "base/out.h"
#include "cli/command.h"
#include "cli/paths.h"
#include "report/report.h"

struct lg_import_info;

struct lg_loaded {
	struct lg_trace *trace;
	struct lg_paths paths;       /* folders replaced by their files */
	struct lg_import_info *info; /* [n] */
	size_t n;
	struct lg_import_info *other; /* [n_other]: traces that are of other runs, and so left out */
	size_t n_other;
	struct lg_verdict *verdict; /* NULL until lg_judge() */
};

/* Read paths, files or folders of them, as one run. */
int lg_load(char **paths, size_t n, struct lg_loaded *ret, struct lg_error *err) LG_MUST_CHECK;
/* The same where several runs in one would mislead: files of others are left out and named. */
int lg_load_run(char **paths, size_t n, struct lg_loaded *ret, struct lg_error *err) LG_MUST_CHECK;
/* As lg_load() for files that are known already; takes paths over, also where it fails. */
int lg_load_paths(struct lg_paths *paths, struct lg_loaded *ret, struct lg_error *err) LG_MUST_CHECK;
/* The value of --step-regex. -1: taken; else the exit status, after one line about it. */
int lg_step_regex_option(const struct lg_command *cmd, const char *re);
/* The value of --fail-on. -1: taken; else the exit status, after one line about it. */
int lg_fail_on_option(const struct lg_command *cmd, const char *what, const char **ret);
/* Is there a finding of that id, or of that severity and above? */
bool lg_fails(const struct lg_verdict *v, const char *on);
/* Analyse and advise; fills l->verdict. cost_per_hour NAN = not asked. */
int lg_judge(struct lg_loaded *l, int32_t victim_pid, double cost_per_hour,
	     struct lg_error *err) LG_MUST_CHECK;
void lg_loaded_done(struct lg_loaded *l);

/* A line on stderr if it is a terminal and the work takes over a second; stop wipes it. */
void lg_progress_start(const char *text);
/* From now on that text, if there is a line. */
void lg_progress_say(const char *text);
void lg_progress_stop(void);

/* Colour and width of standard output; neither when it is no terminal. */
struct lg_term_options lg_terminal(void);

/* Standard output; NULL where it cannot be had, of which is complained. */
struct lg_out *lg_stdout_open(void);
/* Close o and complain on failure. Returns the exit status. */
int lg_finish(struct lg_out *o);

#endif /* LG_CLI_LOAD_H */
