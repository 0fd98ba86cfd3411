/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_diff.c - what changed between two runs; the gate of a CI job. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "advise/advise.h"
#include "base/alloc.h"
#include "cli/bounds.h"
#include "cli/load.h"
#include "diff/diff.h"
#include "report/diff_report.h"

enum { AS_TERM, AS_JSON, AS_MARKDOWN, AS_GITHUB };
enum { BASELINE_MAX = 64 << 20 };

struct options {
	int as;
	double fail_over; /* fraction; NAN = not asked */
	const char *junit, *html, *save, *fail_on;
	char **side[2];   /* operands: BEFORE's, AFTER's */
	size_t n_side[2];
};

struct run_side {
	struct lg_loaded l; /* empty for a baseline */
	struct lg_side *side;
};

static int parse_percent(const char *s, double *ret)
{
	char *end;
	double v;

	if (!(*s >= '0' && *s <= '9') && *s != '.')
		return -1;
	v = strtod(s, &end);
	if (end == s || (strcmp(end, "") && strcmp(end, "%")) || !isfinite(v))
		return -1;
	*ret = v / 100;
	return 0;
}

static int parse(int argc, char **argv, struct options *opt)
{
	enum { JSON = 256, MARKDOWN, HTML, JUNIT, GITHUB, FAIL_OVER, FAIL_ON, SAVE, AFTER };
	static const struct option longs[] = {
		{ "json", no_argument, NULL, JSON },
		{ "step-regex", required_argument, NULL, 'r' },
		{ "markdown", no_argument, NULL, MARKDOWN },
		{ "github", no_argument, NULL, GITHUB },
		{ "junit", required_argument, NULL, JUNIT },
		{ "html", required_argument, NULL, HTML },
		{ "fail-over", required_argument, NULL, FAIL_OVER },
		{ "fail-on", required_argument, NULL, FAIL_ON },
		{ "save-baseline", required_argument, NULL, SAVE },
		{ "after", no_argument, NULL, AFTER },
		LG_MAX_MEMORY_OPTION,
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	const struct lg_command *cmd = &lg_cmd_diff;
	size_t n = 0;
	bool split = false;
	int c, as;

	opterr = 0;
	optind = 0; /* glibc: start anew */
	/* '-': operands come in their order as option 1, as --after stands between them. They are
	 * collected at the front of argv, which this loop has passed already. */
	while ((c = getopt_long(argc, argv, "-:h", longs, NULL)) != -1) {
		switch (c) {
		case 1:
			argv[n++] = optarg;
			break;
		case AFTER:
			if (split)
				return lg_usage(cmd, "--after stands once, before the files of AFTER");
			split = true;
			opt->n_side[0] = n;
			break;
		case JSON:
		case MARKDOWN:
		case GITHUB:
			as = c == JSON ? AS_JSON : c == MARKDOWN ? AS_MARKDOWN : AS_GITHUB;
			if (opt->as && opt->as != as)
				return lg_usage(cmd, "--json, --markdown and --github all want the output: give one of "
						"them");
			opt->as = as;
			break;
		case HTML:
			opt->html = optarg;
			break;
		case JUNIT:
			opt->junit = optarg;
			break;
		case FAIL_OVER:
			if (parse_percent(optarg, &opt->fail_over))
				return lg_usage(cmd, "--fail-over wants a percentage such as 5%%, not \"%s\"",
						optarg);
			break;
		case FAIL_ON:
			c = lg_fail_on_option(cmd, optarg, &opt->fail_on);
			if (c >= 0)
				return c;
			break;
		case SAVE:
			opt->save = optarg;
			break;
		case 'r':
			c = lg_step_regex_option(cmd, optarg);
			if (c >= 0)
				return c;
			break;
		case LG_MAX_MEMORY:
			c = lg_max_memory_option(cmd, optarg);
			if (c >= 0)
				return c;
			break;
		default:
			return lg_option_rest(cmd, c, argv[optind - 1]);
		}
	}
	while (optind < argc) /* behind "--" */
		argv[n++] = argv[optind++];
	if (!split && n > 2)
		return lg_usage(cmd, "one file or folder for BEFORE and one for AFTER; with more, --after stands "
				"before those of AFTER: \"%s\"", argv[2]);
	if (!split)
		opt->n_side[0] = n == 2;
	opt->n_side[1] = n - opt->n_side[0];
	opt->side[0] = argv;
	opt->side[1] = argv + opt->n_side[0];
	/* The first baseline has nothing to be compared with. */
	if (!opt->n_side[1] || (!opt->n_side[0] && !opt->save))
		return lg_usage(cmd, "BEFORE and AFTER are needed");
	return -1;
}

/* The whole of a baseline file. 1 = it is not one. */
static int read_baseline(const char *path, struct lg_side **ret, struct lg_error *err)
{
	char head[32], *bytes = NULL;
	struct stat st;
	size_t n = 0;
	int fd, rc = 1;

	/* Not for pipes: what was read there could not be read again. */
	if (stat(path, &st) || !S_ISREG(st.st_mode))
		return 1;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 1; /* the importer says why */
	if (pread(fd, head, sizeof head, 0) > 0 && lg_baseline_sniff(head, sizeof head)) {
		rc = st.st_size > BASELINE_MAX
			? lg_fail(err, LG_E_LIMIT, LG_NO_OFFSET, "%s: too large for a baseline", path) : 0;
		bytes = rc ? NULL : lg_calloc((size_t)st.st_size + 1, 1);
		if (!rc && !bytes)
			rc = lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
		while (!rc && n < (size_t)st.st_size) {
			ssize_t got = read(fd, bytes + n, (size_t)st.st_size - n);

			if (got < 0 && errno == EINTR)
				continue;
			if (got < 0)
				rc = lg_fail_errno(err, errno, "%s", path);
			if (got <= 0)
				break;
			n += (size_t)got;
		}
		if (!rc)
			rc = lg_baseline_read(bytes, n, path, ret, err);
		lg_free(bytes);
	}
	close(fd);
	return rc;
}

static int open_side(char **paths, size_t n, struct run_side *s, struct lg_error *err)
{
	int rc = n == 1 ? read_baseline(paths[0], &s->side, err) : 1;

	if (rc <= 0)
		return rc;
	rc = lg_load_run(paths, n, &s->l, err);
	if (!rc)
		rc = lg_judge(&s->l, 0, (double)NAN, err);
	return rc ? rc : lg_side_new(s->l.verdict, &s->side, err);
}

/* Which of a side's files would `out` replace? NULL = none. */
static const char *replaced(char **paths, const struct run_side *s, const char *out)
{
	if (s->l.paths.n)
		return lg_paths_find(&s->l.paths, out);
	return s->side && lg_same_file(paths[0], out) ? paths[0] : NULL; /* a baseline */
}

/*
 * Exit status to leave with, or -1: nothing that was read may be replaced. But for the baseline that is
 * compared with: to bring that up to date is what --save-baseline is for. Known only after reading, because
 * an output may lie in a folder that was named.
 */
static int check_outputs(const struct options *opt, const struct run_side *b, const struct run_side *a)
{
	const struct run_side *side[] = { b, a };

	const char *const out[] = { opt->junit, opt->html, opt->save };
	static const char *const option[] = { "--junit", "--html", "--save-baseline" };

	for (int i = 0; i < 3; i++)
		for (int k = i + 1; k < 3; k++)
			if (out[i] && out[k] && lg_same_file(out[i], out[k]))
				return lg_usage(&lg_cmd_diff, "%s and %s name one file: %s", option[i], option[k], out[i]);
	for (int i = 0; i < 2; i++) {
		bool updates = !i && b->side && !b->l.paths.n;

		if (!opt->n_side[i])
			continue;
		for (int k = 0; k < 3; k++)
			if (out[k] && !(k == 2 && updates) && replaced(opt->side[i], side[i], out[k]))
				return lg_usage(&lg_cmd_diff, "%s %s would replace what is compared", option[k], out[k]);
	}
	return -1;
}

static void side_done(struct run_side *s)
{
	lg_side_free(s->side);
	lg_loaded_done(&s->l);
}

/*
 * AFTER becomes the baseline. Runs that an older file of that name remembers are kept, this one
 * added: from the third on, the spread between runs is known and widens every later interval.
 */
static int save(const char *path, struct lg_side *s, struct lg_error *err)
{
	struct lg_side *old = NULL;
	struct lg_out *o;
	struct stat st;
	bool again = false;
	int rc = read_baseline(path, &old, err);

	if (rc < 0)
		return rc;
	if (rc > 0 && !stat(path, &st) && S_ISREG(st.st_mode) && st.st_size)
		return lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET,
			       "%s exists and is no baseline: it is not replaced", path);
	if (!s->s.n) {
		lg_side_free(old);
		return lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET,
			       "no judged steps to make a baseline of: nothing was saved");
	}
	s->n_runs = 0;
	if (old) {
		size_t from = old->n_runs >= LG_SIDE_RUNS_MAX ? old->n_runs - LG_SIDE_RUNS_MAX + 1 : 0;

		for (size_t i = from; i < old->n_runs; i++) {
			/* A run that is saved twice would make the runs look more alike than they are. */
			if (old->run_id[i] == lg_side_run_id(s)) {
				again = true;
				continue;
			}
			s->run_id[s->n_runs] = old->run_id[i];
			s->run_mean[s->n_runs] = old->run_mean[i];
			s->run_median[s->n_runs++] = old->run_median[i];
		}
	}
	s->run_id[s->n_runs] = lg_side_run_id(s);
	s->run_mean[s->n_runs] = lg_side_mean(s);
	s->run_median[s->n_runs++] = lg_side_median(s);
	lg_side_free(old);
	rc = lg_out_open(&o, path, LG_OUT_PLAIN, err);
	if (rc)
		return rc;
	lg_baseline_write(s, o);
	rc = lg_out_close(o, err);
	if (!rc)
		lg_say("baseline of %zu run%s in %s%s", s->n_runs, s->n_runs > 1 ? "s" : "", path,
		       again ? ": this one was in it already" : "");
	return rc;
}

/* path NULL: it was not asked for. */
static int write_to(const struct lg_diff *d, const char *path,
		    void (*report)(const struct lg_diff *d, struct lg_out *o), struct lg_error *err)
{
	struct lg_out *o;
	int rc = path ? lg_out_open(&o, path, LG_OUT_PLAIN, err) : 0;

	if (rc || !path)
		return rc;
	report(d, o);
	return lg_out_close(o, err);
}

static int print(const struct lg_diff *d, const struct options *opt)
{
	struct lg_term_options t = lg_terminal();
	struct lg_error err = { 0 };
	struct lg_out *o;

	if (write_to(d, opt->junit, lg_diff_junit, &err) || write_to(d, opt->html, lg_diff_html, &err)) {
		lg_complain(&err);
		return LG_EXIT_FAILED;
	}
	o = lg_stdout_open();
	if (!o)
		return LG_EXIT_FAILED;
	if (opt->as == AS_JSON)
		lg_diff_json(d, o);
	else if (opt->as == AS_MARKDOWN)
		lg_diff_markdown(d, o);
	else if (opt->as == AS_GITHUB)
		lg_diff_github(d, o);
	else
		lg_diff_term(d, &t, o);
	return lg_finish(o);
}

static int run(int argc, char **argv)
{
	struct options opt = { .fail_over = (double)NAN };
	struct run_side b = { 0 }, a = { 0 };
	struct lg_error err = { .offset = LG_NO_OFFSET };
	struct lg_diff *d = NULL;
	int rc = parse(argc, argv, &opt);
	bool alone;

	if (rc >= 0)
		return rc;
	alone = !opt.n_side[0];
	rc = alone ? 0 : open_side(opt.side[0], opt.n_side[0], &b, &err);
	if (!rc)
		rc = open_side(opt.side[1], opt.n_side[1], &a, &err);
	if (!rc) {
		rc = check_outputs(&opt, &b, &a);
		if (rc >= 0) {
			side_done(&b);
			side_done(&a);
			return rc;
		}
		rc = 0;
	}
	if (!rc && !alone)
		rc = lg_diff_new(b.side, a.side, a.l.verdict, opt.fail_over, &d, &err);
	if (!rc && d)
		rc = lg_advise(&d->v, (double)NAN, &err);
	if (rc) {
		lg_complain(&err);
		rc = LG_EXIT_FAILED;
	} else if (d) {
		rc = print(d, &opt);
		if (!rc && d->gate.verdict && !strcmp(d->gate.verdict, "unknown")) {
			/* A gate that cannot judge must not look like one that let through. */
			lg_say("--fail-over: %s", d->gate.why);
			rc = LG_EXIT_FAILED;
		}
		if (!rc && d->gate.verdict && !strcmp(d->gate.verdict, "fail"))
			rc = LG_EXIT_FINDING;
		if (!rc && opt.fail_on && lg_fails(&d->v, opt.fail_on))
			rc = LG_EXIT_FINDING;
	}
	/* A regression never becomes the measure of the next run. */
	if (opt.save && rc == LG_EXIT_OK) {
		if (save(opt.save, a.side, &err)) {
			lg_complain(&err);
			rc = LG_EXIT_FAILED;
		}
	} else if (opt.save && rc == LG_EXIT_FINDING) {
		lg_say("over the limit: %s is left as it was", opt.save);
	}
	lg_diff_free(d);
	side_done(&b);
	side_done(&a);
	return rc;
}

const struct lg_command lg_cmd_diff = {
	.name = "diff",
	.args = "BEFORE AFTER | FILE... --after FILE... [OPTION]...",
	.summary = "say what changed between two runs, and how much of it each difference explains",
	.help =
	"BEFORE and AFTER are recordings, traces laggard can import, folders of them (the ranks, hosts\n"
	"or sources of one run), or saved baselines. Several files a side: FILE... --after FILE...\n\n"
	"  --json               schema 1 with the object \"diff\" (laggard-diff(1))\n"
	"  --markdown           for a pull request or a job summary\n"
	"  --github             annotations of a GitHub Actions run\n"
	"  --junit OUT          also write a JUnit XML file\n"
	"  --html OUT           also write one page: the steps of both on one scale, and what explains the change\n"
	"  --step-regex RE      what a step's line looks like in a job's log (laggard-explain(1))\n"
	"  --fail-over PCT      exit 3 if the step time surely grew by more than PCT %: the whole 95 %\n"
	"                       interval of the mean or of the median lies above it\n"
	"  --fail-on WHAT       exit 3 if there is a finding with this id (det.diverged), or at least this severity\n"
	"  --save-baseline F    write AFTER's numbers to F, to stand for BEFORE later; with one file,\n"
	"                       only that. A file that fails the limit is not saved\n"
	LG_MAX_MEMORY_HELP
	"\n"
	"example:\n"
	"  laggard diff main.baseline pr.lag --fail-over 5% --junit laggard.xml\n"
	"  laggard diff old/rank*.json --after new/rank*.json\n",
	.run = run,
};
