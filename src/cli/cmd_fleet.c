/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_fleet.c - laggard fleet: the questions to a store of many jobs and nodes, and its upkeep. */
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/order.h"
#include "cli/load.h"
#include "cli/pids.h"
#include "fleet/questions.h"
#include "report/json_write.h"
#include "report/text.h"

#define SECOND INT64_C(1000000000)
#define DAY (86400 * SECOND)

struct options {
	struct lg_fleet_options store;
	struct lg_fleet_scope scope;
	int64_t since_ns, keep_ns;
	long limit;
	double fail_over; /* GPU-hours; NAN = not asked */
	bool json;
};

struct answer {
	struct lg_out *o;
	struct lg_json j;
	const struct options *opt;
};

static uint64_t wall_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static uint64_t before(int64_t ago_ns)
{
	uint64_t now = wall_us(), ago = (uint64_t)ago_ns / 1000;

	return ago < now ? now - ago : 0;
}

static const char *or_null(const char *s)
{
	return *s ? s : NULL;
}

/* A name from outside in a column of so much, or as it is. */
static void column(struct lg_out *o, const char *name, int width)
{
	char text[64];

	snprintf(text, sizeof text, "%.*s", (int)LG_MIN((size_t)width, sizeof text - 1), *name ? name : "-");
	lg_text_safe(o, text);
	for (size_t n = strlen(text); n < (size_t)width + 2; n++)
		lg_out_write(o, " ", 1);
}

/* ---- jobs ----------------------------------------------------------------------------------------- */

static void job_json(struct lg_json *j, const struct lg_fleet_job_sum *s)
{
	char id[20];

	snprintf(id, sizeof id, "%016" PRIx64, s->job);
	lg_json_open_flat(j, '{');
	lg_json_key_str(j, "job", s->name);
	lg_json_key_str(j, "id", id);
	lg_json_key_count(j, "attempt", s->attempt);
	lg_json_key_str(j, "user", or_null(s->user));
	lg_json_key_str(j, "scheduler", or_null(s->sched));
	lg_json_key_count(j, "world", s->world);
	lg_json_key_count(j, "ranks", s->ranks);
	lg_json_key_count(j, "steps", s->steps);
	lg_json_key_count(j, "missing_steps", s->missing);
	lg_json_key_num(j, "first_s", (double)s->first_us / 1e6, 6);
	lg_json_key_num(j, "last_s", (double)s->last_us / 1e6, 6);
	lg_json_key_num(j, "median_ms", s->median_ms, 3);
	lg_json_key_num(j, "worst_ms", s->worst_ms, 3);
	lg_json_key_count(j, "worst_step", s->worst_step);
	lg_json_key_num(j, "rank_hours", s->rank_s / 3600, 6);
	lg_json_key_num(j, "lost_s", s->lost_s, 6);
	lg_json_key_num(j, "gpu_hours", s->gpu_hours, 9);
	lg_json_close(j, '}');
}

static int jobs(struct lg_fleet *f, struct answer *a, struct lg_error *err)
{
	struct lg_fleet_job_sum *v = NULL;
	size_t n = 0;
	int rc = lg_fleet_jobs(f, &a->opt->scope, &v, &n, err);

	n = LG_MIN(n, (size_t)a->opt->limit);
	if (!rc && !a->opt->json)
		lg_out_puts(a->o, n ? "job                       ranks      steps  missing    step ms   worst ms   at step   "
				      "GPU-hours  lost\n" : "no steps are in the store since then\n");
	for (size_t i = 0; i < n && !rc; i++) {
		const struct lg_fleet_job_sum *s = &v[i];

		if (a->opt->json) {
			job_json(&a->j, s);
			continue;
		}
		column(a->o, s->name, 24);
		lg_out_printf(a->o, "%5u %10" PRIu64 " %8" PRIu64 " %10.1f %10.1f %9u %11.2f  %.2f h\n",
			      s->ranks, s->steps, s->missing, s->median_ms, s->worst_ms, s->worst_step,
			      s->rank_s / 3600, s->gpu_hours);
	}
	lg_free(v);
	return rc;
}

/* ---- stragglers ----------------------------------------------------------------------------------- */

static void straggler_json(struct lg_json *j, const struct lg_fleet_straggler *s)
{
	lg_json_open_flat(j, '{');
	lg_json_key_str(j, "job", s->name);
	lg_json_key_count(j, "attempt", s->attempt);
	lg_json_key_count(j, "rank", s->rank);
	lg_json_key_str(j, "node", or_null(s->node));
	lg_json_key_str(j, "kind", s->persistent ? "persistent" : "held_up");
	lg_json_key_num(j, "median_excess_ms", s->persistent ? s->median_excess_ms : (double)NAN, 3);
	lg_json_key_num(j, "share", s->share, 4);
	lg_json_key_num(j, "lost_s", s->lost_s, 6);
	lg_json_key_num(j, "gpu_hours", s->gpu_hours, 9);
	lg_json_key_num(j, "confidence", s->confidence, 2);
	lg_json_close(j, '}');
}

static int stragglers(struct lg_fleet *f, struct answer *a, struct lg_error *err)
{
	struct lg_fleet_straggler *v = NULL;
	size_t n = 0;
	int rc = lg_fleet_stragglers(f, &a->opt->scope, &v, &n, err);

	n = LG_MIN(n, (size_t)a->opt->limit);
	if (!rc && !a->opt->json && !n)
		lg_out_puts(a->o, "no rank is late enough to be named\n");
	for (size_t i = 0; i < n && !rc; i++) {
		const struct lg_fleet_straggler *s = &v[i];

		if (a->opt->json) {
			straggler_json(&a->j, s);
			continue;
		}
		column(a->o, s->name, 24);
		lg_out_printf(a->o, "rank %-6u on ", s->rank);
		column(a->o, s->node, 20);
		if (s->persistent)
			lg_out_printf(a->o, "its own work takes %.1f ms longer than its peers' in the usual step (%.0f %%), ",
				      s->median_excess_ms, 100 * s->share);
		else
			lg_out_printf(a->o, "it was held up for %.1f s (%.0f %% of the job's time), ", s->lost_s, 100 * s->share);
		lg_out_printf(a->o, "%.3f GPU-hours\n", s->gpu_hours);
	}
	lg_free(v);
	return rc;
}

/* ---- culprits ------------------------------------------------------------------------------------- */

static void culprit_json(struct lg_json *j, const struct lg_fleet_culprit *c)
{
	lg_json_open_flat(j, '{');
	lg_json_key_str(j, "process", or_null(c->process));
	lg_json_key_str(j, "function", or_null(c->function));
	lg_json_key_str(j, "rule", c->rule);
	lg_json_key_str(j, "object", or_null(c->object));
	lg_json_key_str(j, "stage", or_null(c->stage));
	lg_json_key_count(j, "jobs", c->jobs);
	lg_json_key_count(j, "ranks", c->ranks);
	lg_json_key_count(j, "seen", c->seen);
	lg_json_key_num(j, "lost_s", c->lost_s, 6);
	lg_json_key_num(j, "gpu_hours", c->gpu_hours, 9);
	lg_json_key_num(j, "confidence", c->confidence, 2);
	lg_json_key_str(j, "job", or_null(c->job));
	lg_json_key_str(j, "node", or_null(c->node));
	lg_json_key_str(j, "said", or_null(c->said));
	lg_json_close(j, '}');
}

static int culprits(struct lg_fleet *f, struct answer *a, struct lg_error *err)
{
	struct lg_fleet_culprit *v = NULL;
	size_t n = 0;
	int rc = lg_fleet_culprits(f, &a->opt->scope, &v, &n, err);

	n = LG_MIN(n, (size_t)a->opt->limit);
	if (!rc && !a->opt->json)
		lg_out_puts(a->o, n ? "GPU-hours  lost s     jobs  process           function                  why\n"
				    : "no step was lost to anybody that evidence names\n");
	for (size_t i = 0; i < n && !rc; i++) {
		const struct lg_fleet_culprit *c = &v[i];

		if (a->opt->json) {
			culprit_json(&a->j, c);
			continue;
		}
		lg_out_printf(a->o, "%9.3f  %-9.1f  %4" PRIu64 "  ", c->gpu_hours, c->lost_s, c->jobs);
		column(a->o, c->process, 16);
		column(a->o, c->function, 24);
		lg_text_safe(a->o, *c->said ? c->said : c->rule);
		lg_out_puts(a->o, "\n");
	}
	if (!rc && n && isfinite(a->opt->fail_over) && v[0].gpu_hours > a->opt->fail_over)
		rc = LG_EXIT_FINDING;
	lg_free(v);
	return rc;
}

/* ---- upkeep --------------------------------------------------------------------------------------- */

static int init(struct lg_fleet *f, struct answer *a, struct lg_error *err)
{
	uint32_t from = 0;
	int rc = lg_fleet_init(f, &from, err);

	if (rc)
		return rc;
	if (a->opt->json) {
		lg_json_open_flat(&a->j, '{');
		lg_json_key_str(&a->j, "engine", lg_fleet_engine_name(f));
		lg_json_key_count(&a->j, "from", from);
		lg_json_key_count(&a->j, "schema", LG_FLEET_SCHEMA);
		lg_json_close(&a->j, '}');
	} else if (from == LG_FLEET_SCHEMA) {
		lg_out_printf(a->o, "%s has schema %d already\n", lg_fleet_engine_name(f), LG_FLEET_SCHEMA);
	} else {
		lg_out_printf(a->o, "%s has schema %d now\n", lg_fleet_engine_name(f), LG_FLEET_SCHEMA);
	}
	return 0;
}

static int gc(struct lg_fleet *f, struct answer *a, struct lg_error *err)
{
	/* Days; evidence is small and is asked for longer. */
	static const struct { enum lg_fleet_table_id t; int days; } rows[] = {
		{ LG_FLEET_T_RANK_STEP, 14 }, { LG_FLEET_T_STALL, 90 }, { LG_FLEET_T_BATCH, 14 },
	};
	int rc = 0;

	for (size_t i = 0; i < LG_COUNT(rows) && !rc; i++) {
		int64_t keep = a->opt->keep_ns ? a->opt->keep_ns : rows[i].days * DAY;
		uint64_t n = 0;

		rc = lg_fleet_forget(f, rows[i].t, before(keep), &n, err);
		if (rc)
			break;
		if (a->opt->json) {
			lg_json_open_flat(&a->j, '{');
			lg_json_key_str(&a->j, "table", lg_fleet_tables[rows[i].t].name);
			lg_json_key_count(&a->j, "removed", n);
			lg_json_close(&a->j, '}');
		} else {
			lg_out_printf(a->o, "%s: %" PRIu64 " %s removed\n", lg_fleet_tables[rows[i].t].name, n,
				      strcmp(lg_fleet_engine_name(f), "SQLite") ? "days" : "rows");
		}
	}
	return rc;
}

/* ---- the command ---------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	int (*run)(struct lg_fleet *f, struct answer *a, struct lg_error *err);
	bool writes, makes;
} verbs[] = {
	{ "init", init, true, true },	    { "jobs", jobs, false, false },
	{ "stragglers", stragglers, false, false }, { "culprits", culprits, false, false },
	{ "gc", gc, true, false },
};

static int duration(const char *name, const char *text, int64_t *ret)
{
	*ret = lg_parse_duration(text);
	return *ret > 0 ? 0 : lg_usage(&lg_cmd_fleet, "%s %s: want a duration such as 90m, 24h or 7d", name, text);
}

/* The exit status, or -1: go on. */
static int parse(int argc, char **argv, struct options *opt)
{
	enum { STORE = 256, JSON, SINCE, JOB, USER, TOKEN, CA, KEEP, FAIL };
	static const struct option longs[] = {
		{ "store", required_argument, NULL, STORE }, { "json", no_argument, NULL, JSON },
		{ "since", required_argument, NULL, SINCE }, { "job", required_argument, NULL, JOB },
		{ "limit", required_argument, NULL, 'n' }, { "user", required_argument, NULL, USER },
		{ "token-file", required_argument, NULL, TOKEN }, { "ca-file", required_argument, NULL, CA },
		{ "keep", required_argument, NULL, KEEP }, { "fail-over", required_argument, NULL, FAIL },
		{ "help", no_argument, NULL, 'h' }, { 0 },
	};
	const struct lg_command *cmd = &lg_cmd_fleet;
	char *end;
	int c, rc = 0;

	opterr = 0;
	optind = 0; /* glibc: start anew */
	while (!rc && (c = getopt_long(argc, argv, ":hn:", longs, NULL)) != -1) {
		switch (c) {
		case STORE: opt->store.store = optarg; break;
		case JSON: opt->json = true; break;
		case SINCE: rc = duration("--since", optarg, &opt->since_ns); break;
		case JOB: opt->scope.job = optarg; break;
		case USER: opt->store.user = optarg; break;
		case TOKEN: opt->store.token_file = optarg; break;
		case CA: opt->store.ca_file = optarg; break;
		case KEEP: rc = duration("--keep", optarg, &opt->keep_ns); break;
		case 'n':
			if (!lg_parse_number(optarg, 1, LG_FLEET_ANSWERS_MAX, &opt->limit))
				return lg_usage(cmd, "-n wants a number from 1 to %d, not \"%s\"", LG_FLEET_ANSWERS_MAX, optarg);
			break;
		case FAIL:
			opt->fail_over = strtod(optarg, &end);
			if (*end || end == optarg || !(opt->fail_over >= 0))
				return lg_usage(cmd, "--fail-over wants GPU-hours, not \"%s\"", optarg);
			break;
		default: return lg_option_rest(cmd, c, argv[optind - 1]);
		}
	}
	return rc ? rc : -1;
}

static int answer(size_t verb, struct options *opt)
{
	struct lg_error err = { .offset = LG_NO_OFFSET };
	struct answer a = { .opt = opt };
	struct lg_fleet *f = NULL;
	int rc;

	opt->store.write = verbs[verb].writes;
	a.o = lg_stdout_open();
	if (!a.o)
		return LG_EXIT_FAILED;
	a.j = (struct lg_json){ .o = a.o };
	rc = lg_fleet_open(&f, &opt->store, &err);
	if (!rc && !verbs[verb].makes)
		rc = lg_fleet_check(f, &err);
	if (opt->json && !rc && !verbs[verb].makes)
		lg_json_open(&a.j, '[');
	rc = rc ?: verbs[verb].run(f, &a, &err);
	lg_fleet_close(f);
	if (rc < 0) {
		lg_out_abort(a.o);
		lg_complain(&err);
		return rc == LG_E_USAGE ? LG_EXIT_USAGE : LG_EXIT_FAILED;
	}
	if (opt->json && !verbs[verb].makes)
		lg_json_close(&a.j, ']');
	if (opt->json)
		lg_out_puts(a.o, "\n");
	return lg_finish(a.o) ?: rc;
}

static int run(int argc, char **argv)
{
	struct options opt = {
		.store.patience_ns = 600 * SECOND, .since_ns = 7 * DAY, .limit = 50, .fail_over = (double)NAN
	};
	size_t verb = 0;
	int rc = parse(argc, argv, &opt);

	if (rc >= 0)
		return rc;
	if (optind >= argc)
		return lg_usage(&lg_cmd_fleet, "what is asked? init, jobs, stragglers, culprits or gc");
	while (verb < LG_COUNT(verbs) && strcmp(verbs[verb].name, argv[optind]))
		verb++;
	if (verb == LG_COUNT(verbs))
		return lg_usage(&lg_cmd_fleet, "no \"%s\": init, jobs, stragglers, culprits or gc", argv[optind]);
	if (optind + 1 < argc)
		return lg_usage(&lg_cmd_fleet, "no argument \"%s\"", argv[optind + 1]);
	if (!opt.store.store)
		opt.store.store = getenv("LAGGARD_STORE");
	if (!opt.store.store || !*opt.store.store)
		return lg_usage(&lg_cmd_fleet, "which store? --store sqlite:PATH or --store http(s)://HOST:PORT/DB, or "
					       "LAGGARD_STORE in the environment");
	opt.scope.since_us = before(opt.since_ns);
	return answer(verb, &opt);
}

const struct lg_command lg_cmd_fleet = {
	.name = "fleet",
	.args = "init|jobs|stragglers|culprits|gc [OPTION]...",
	.summary = "many jobs and nodes: which rank is late, who costs the most GPU-hours",
	.help =
	"Asks the store that laggard agent sends to: a file of SQLite, or ClickHouse.\n\n"
	"  init                 make the tables of the store, or bring them up to date\n"
	"  jobs                 steps, their time, and what was lost, job by job\n"
	"  stragglers           ranks whose own work takes longer than their peers', or that were held up\n"
	"  culprits             who held the steps up: process and function, by GPU-hours of all jobs\n"
	"  gc                   remove what is old\n\n"
	"  --store STORE        sqlite:PATH or http(s)://HOST:PORT/DB (default: LAGGARD_STORE)\n"
	"  --user NAME          ClickHouse's user\n"
	"  --token-file FILE    its token, in the first line of FILE\n"
	"  --ca-file FILE       who vouches for an https server (default: whom this machine trusts)\n"
	"  --since DUR          of the last 90m, 24h, 7d (default 7d)\n"
	"  --job NAME           of this job alone\n"
	"  -n N, --limit N      N answers at most (default 50)\n"
	"  --fail-over HOURS    culprits: exit status 3 where one cost more GPU-hours\n"
	"  --keep DUR           gc: remove what is older (default: steps 14d, evidence 90d)\n"
	"  --json               as JSON\n\n"
	"example:\n"
	"  laggard fleet culprits --store sqlite:/var/lib/laggard/fleet.db --since 24h\n",
	.run = run,
};
