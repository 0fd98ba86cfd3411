/* SPDX-License-Identifier: Apache-2.0 */
#include "fleet/questions.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/order.h"

/*
 * A rank is persistently late from here on: the median over steps of its excess is so much of the median
 * step, and so many times what the middle one of its peers has. The share is that of severity medium
 * (doc/contract.md).
 */
#define LATE_SHARE 0.03
#define LATE_TIMES 4.0
/* Held up, by evidence: so much of the job's time, as severity low. */
#define HELD_SHARE 0.01
#define LEAST_STEPS 16 /* of a rank, as steps are judged from that on */
enum { WHERE_TEXT = 80, WORK_TEXT = 512 };

uint64_t lg_fleet_job_number(const char *cluster, const char *name)
{
	uint64_t h = XXH3_64bits(cluster, strlen(cluster) + 1);

	h = XXH3_64bits_withSeed(name, strlen(name), h);
	return h ? h : 1;
}

uint32_t lg_fleet_node_number(const char *name)
{
	uint32_t h = (uint32_t)XXH3_64bits(name, strlen(name));

	return h ? h : 1;
}

/* SQLite's integers have a sign, ClickHouse's have not. */
static uint64_t number(const char *s)
{
	return strtoull(s, NULL, 10);
}

static double real(const char *s)
{
	double v = strtod(s, NULL);

	return isfinite(v) ? v : 0;
}

static void copy(char *to, size_t size, const char *s)
{
	snprintf(to, size, "%s", s);
}

static int want_values(size_t want, size_t n, struct lg_error *err)
{
	return n >= want ? 0 : lg_fail(err, LG_E_FORMAT, LG_NO_OFFSET, "the store answers with %zu values, %zu are wanted",
				       n, want);
}

/* ---- jobs ----------------------------------------------------------------------------------------- */

struct jobs {
	struct lg_fleet_job_sum *v;
	size_t n, cap;
};

static int add_job(void *arg, size_t n, const char *const *v, struct lg_error *err)
{
	struct jobs *j = arg;
	struct lg_fleet_job_sum s = { 0 };
	int rc = want_values(11, n, err);

	if (rc)
		return rc;
	s.job = number(v[0]);
	s.attempt = (uint16_t)number(v[1]);
	snprintf(s.name, sizeof s.name, "%016" PRIx64, s.job);
	s.ranks = (uint32_t)number(v[2]);
	s.steps = number(v[3]);
	s.missing = number(v[4]);
	s.first_us = number(v[5]);
	s.last_us = number(v[6]);
	s.rank_s = real(v[7]) / 1e6;
	s.worst_ms = real(v[8]) / 1e3;
	s.worst_step = (uint32_t)number(v[9]);
	s.median_ms = real(v[10]) / 1e3;
	return LG_APPEND(j->v, j->n, j->cap, s) ? lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory") : 0;
}

static struct lg_fleet_job_sum *job_of(struct jobs *j, const char *job, const char *attempt)
{
	uint64_t want = number(job);
	unsigned a = (unsigned)number(attempt);

	for (size_t i = 0; i < j->n; i++)
		if (j->v[i].job == want && j->v[i].attempt == a)
			return &j->v[i];
	return NULL;
}

static int name_job(void *arg, size_t n, const char *const *v, struct lg_error *err)
{
	struct lg_fleet_job_sum *s;
	int rc = want_values(6, n, err);

	if (rc || !(s = job_of(arg, v[0], v[1])))
		return rc;
	copy(s->name, sizeof s->name, v[2]);
	copy(s->user, sizeof s->user, v[3]);
	copy(s->sched, sizeof s->sched, v[4]);
	s->world = (uint32_t)number(v[5]);
	return 0;
}

static int cost_job(void *arg, size_t n, const char *const *v, struct lg_error *err)
{
	struct lg_fleet_job_sum *s;
	int rc = want_values(4, n, err);

	if (rc || !(s = job_of(arg, v[0], v[1])))
		return rc;
	s->lost_s = real(v[2]) / 1e6;
	s->gpu_hours = real(v[3]) / 3.6e9;
	return 0;
}

/* Rows of that job alone. A number of 64 bits: SQLite's have a sign. */
static const char *of_job(const struct lg_fleet *f, const struct lg_fleet_job_sum *j, char buf[WHERE_TEXT])
{
	if (!strcmp(lg_fleet_engine_name(f), "SQLite"))
		snprintf(buf, WHERE_TEXT, " AND job = %" PRId64 " AND attempt = %u", (int64_t)j->job, j->attempt);
	else
		snprintf(buf, WHERE_TEXT, " AND job = %" PRIu64 " AND attempt = %u", j->job, j->attempt);
	return buf;
}

static bool is_meant(const struct lg_fleet_job_sum *j, const struct lg_fleet_scope *s)
{
	char hex[20];

	snprintf(hex, sizeof hex, "%016" PRIx64, j->job);
	return !s->job || !strcmp(s->job, j->name) || !strcmp(s->job, hex);
}

int lg_fleet_jobs(struct lg_fleet *f, const struct lg_fleet_scope *s, struct lg_fleet_job_sum **ret,
		  size_t *ret_n, struct lg_error *err)
{
	struct jobs j = { 0 };
	size_t kept = 0;
	int rc = lg_fleet_ask(f, add_job, &j, err,
			      "SELECT job, attempt, count(DISTINCT rank), sum(n), sum(intDiv(missed + abs(missed), 2)), min(first_us), "
			      "max(last_us) AS until, sum(dur), max(longest), argMax(longest_step, longest), $M(med) FROM "
			      "(SELECT job, attempt, rank, sum(steps) AS n, toInt64(max(last)) - toInt64(min(step)) + 1 - "
			      "toInt64(sum(steps)) AS missed, min(t0_us) AS first_us, max(t0_us + dur_us) AS last_us, "
			      "sum(dur_us) AS dur, max(max_us) AS longest, argMax(worst, max_us) AS longest_step, "
			      "$M(dur_us * 1.0 / steps) AS med FROM rank_step$F WHERE t0_us >= %" PRIu64
			      " GROUP BY job, attempt, rank) AS r GROUP BY job, attempt ORDER BY until DESC LIMIT %d",
			      s->since_us, LG_FLEET_JOBS_MAX);

	rc = rc ?: lg_fleet_ask(f, name_job, &j, err, "SELECT job, attempt, name, user, sched, world FROM job$F");
	rc = rc ?: lg_fleet_ask(f, cost_job, &j, err,
				"SELECT job, attempt, sum(lost_us), sum(lost_us * waited) FROM stall$F WHERE t0_us >= %"
				PRIu64 " GROUP BY job, attempt", s->since_us);
	for (size_t i = 0; i < j.n; i++)
		if (is_meant(&j.v[i], s))
			j.v[kept++] = j.v[i];
	if (!rc && s->job && !kept)
		rc = lg_fail(err, LG_E_NOTFOUND, LG_NO_OFFSET, "no step of a job \"%.100s\" is in the store since then", s->job);
	if (rc) {
		lg_free(j.v);
		return rc;
	}
	*ret = j.v;
	*ret_n = kept;
	return 0;
}

/* ---- names of nodes ------------------------------------------------------------------------------- */

struct nodes {
	struct { uint32_t node; char name[LG_FLEET_NAME]; } *v;
	size_t n, cap;
};

static int add_node(void *arg, size_t n, const char *const *v, struct lg_error *err)
{
	struct nodes *x = arg;
	int rc = want_values(2, n, err);

	if (rc)
		return rc;
	if (lg_grow(&x->v, &x->cap, x->n + 1, sizeof *x->v))
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	x->v[x->n].node = (uint32_t)number(v[0]);
	copy(x->v[x->n++].name, sizeof x->v->name, v[1]);
	return 0;
}

static void name_node(const struct nodes *x, const char *node, char *to, size_t size)
{
	uint32_t want = (uint32_t)number(node);

	snprintf(to, size, "%08x", want);
	for (size_t i = 0; i < x->n; i++)
		if (x->v[i].node == want)
			copy(to, size, x->v[i].name);
}

/* ---- stragglers ----------------------------------------------------------------------------------- */

struct late {
	struct lg_fleet_straggler *v;
	size_t n, cap, first; /* first: of the job that is asked about */
	const struct lg_fleet_job_sum *job;
	const struct nodes *nodes;
	struct lg_fleet_straggler *kept; /* of all jobs */
	size_t n_kept, cap_kept;
};

static int add_excess(void *arg, size_t n, const char *const *v, struct lg_error *err)
{
	struct late *l = arg;
	struct lg_fleet_straggler s = { .job = l->job->job, .attempt = l->job->attempt, .persistent = true };
	int rc = want_values(5, n, err);

	if (rc || number(v[3]) < LEAST_STEPS)
		return rc;
	copy(s.name, sizeof s.name, l->job->name);
	s.rank = (uint32_t)number(v[0]);
	s.median_excess_ms = real(v[1]) / 1e3;
	s.mean_excess_ms = real(v[2]) / 1e3;
	s.lost_s = s.mean_excess_ms * (double)l->job->steps / fmax(l->job->ranks, 1) / 1e3;
	name_node(l->nodes, v[4], s.node, sizeof s.node);
	return LG_APPEND(l->v, l->n, l->cap, s) ? lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory") : 0;
}

static int keep(struct late *l, const struct lg_fleet_straggler *s, struct lg_error *err)
{
	return LG_APPEND(l->kept, l->n_kept, l->cap_kept, *s) ? lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory") : 0;
}

LG_ORDER_BY(cmp_double, double, LG_CMP(*x, *y))

/* Who of the ranks is late enough to be named. */
static int judge_late(struct late *l, struct lg_error *err)
{
	LG_AUTOFREE double *size = lg_calloc(l->n + 1, sizeof *size);
	double floor_ms = LATE_SHARE * l->job->median_ms, usual;
	int rc = 0;

	if (!size)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	if (l->n < 2)
		return 0; /* nobody to be late for */
	for (size_t i = 0; i < l->n; i++)
		size[i] = fabs(l->v[i].median_excess_ms);
	LG_SORT(size, l->n, cmp_double);
	usual = size[(l->n - 1) / 2];
	for (size_t i = 0; i < l->n && !rc; i++) {
		struct lg_fleet_straggler *s = &l->v[i];

		if (s->median_excess_ms < floor_ms || s->median_excess_ms < LATE_TIMES * usual)
			continue;
		s->lost_s = fmax(s->lost_s, 0);
		s->share = s->mean_excess_ms / l->job->median_ms;
		s->gpu_hours = s->lost_s * (double)l->job->ranks / 3600;
		/* How far beyond the floor: at it the next day may say otherwise. */
		s->confidence = fmin(0.95, 0.6 + 0.1 * (s->median_excess_ms / floor_ms - 1));
		rc = keep(l, s, err);
	}
	return rc;
}

static int add_held(void *arg, size_t n, const char *const *v, struct lg_error *err)
{
	struct late *l = arg;
	struct lg_fleet_straggler s = { .job = l->job->job, .attempt = l->job->attempt };
	double all_s = l->job->rank_s / fmax(l->job->ranks, 1);
	int rc = want_values(5, n, err);

	if (rc)
		return rc;
	copy(s.name, sizeof s.name, l->job->name);
	s.rank = (uint32_t)number(v[0]);
	s.lost_s = real(v[1]) / 1e6;
	s.gpu_hours = real(v[2]) / 3.6e9;
	s.confidence = real(v[3]) / 100;
	s.share = all_s > 0 ? s.lost_s / all_s : 0;
	name_node(l->nodes, v[4], s.node, sizeof s.node);
	return s.share >= HELD_SHARE ? keep(l, &s, err) : 0;
}

static int take_number(void *arg, size_t n, const char *const *v, struct lg_error *err)
{
	(void)err;
	if (n)
		*(uint64_t *)arg = number(v[0]);
	return 0;
}

/*
 * Ranks fold their steps by powers of two (fold.h), not all by the same: what covers the widest is
 * compared. Of the steps' own work: its median over ranks, and how much longer each rank's was. A mean of
 * rows is the same where one is there twice, so the last version of each need not be looked for, which is
 * most of the time; what was lost is counted by the steps of lg_fleet_jobs(), which has done that.
 */
static int ask_late(struct lg_fleet *f, struct late *l, const struct lg_fleet_scope *s, struct lg_error *err)
{
	char where[WHERE_TEXT], work[WORK_TEXT];
	uint64_t widest = 1, k = 1;
	int rc;

	of_job(f, l->job, where);
	rc = lg_fleet_ask(f, take_number, &widest, err, "SELECT max(last - step + 1) FROM rank_step WHERE t0_us >= %" PRIu64
			  "%s", s->since_us, where);
	while (k < widest && k < UINT64_C(1) << 20)
		k *= 2;
	l->n = 0;
#define OWN "toInt64(dur_us) - toInt64(wait_us) - toInt64(side_us)"
	if (k == 1) /* a row is a step: nothing is to be added up, and of steps of a second and more there
		       are many */
		snprintf(work, sizeof work, "SELECT step AS part, rank, node AS at, steps AS n, (" OWN ") * 1.0 / steps AS w "
			 "FROM rank_step WHERE t0_us >= %" PRIu64 "%s", s->since_us, where);
	else
		snprintf(work, sizeof work, "SELECT intDiv(step, %" PRIu64 ") AS part, rank, any(node) AS at, max(steps) AS n, "
			 "sum(" OWN ") * 1.0 / sum(steps) AS w FROM rank_step WHERE t0_us >= %" PRIu64 "%s GROUP BY part, rank",
			 k, s->since_us, where);
#undef OWN
	rc = rc ?: lg_fleet_ask(f, add_excess, l, err, "SELECT rank, $M(w - med) AS m, avg(w - med), sum(n), any(at) FROM "
				"(%s) AS a $J (SELECT part, $M(w) AS med FROM (%s) AS c GROUP BY part) AS b USING (part) "
				"GROUP BY rank ORDER BY m DESC LIMIT 20000", work, work);
	rc = rc ?: judge_late(l, err);
	return rc ?: lg_fleet_ask(f, add_held, l, err, "SELECT rank, sum(lost_us) AS lost, sum(lost_us * waited), avg(conf), "
				  "any(node) FROM stall$F WHERE t0_us >= %" PRIu64 "%s GROUP BY rank ORDER BY lost DESC "
				  "LIMIT 100", s->since_us, where);
}

LG_ORDER_BY(cmp_late, struct lg_fleet_straggler,
	    LG_CMP(y->gpu_hours, x->gpu_hours) ?: LG_CMP(x->job, y->job) ?: LG_CMP(x->rank, y->rank))

int lg_fleet_stragglers(struct lg_fleet *f, const struct lg_fleet_scope *s, struct lg_fleet_straggler **ret,
			size_t *ret_n, struct lg_error *err)
{
	struct lg_fleet_job_sum *jobs = NULL;
	struct nodes nodes = { 0 };
	struct late l = { .nodes = &nodes };
	size_t n = 0;
	int rc = lg_fleet_jobs(f, s, &jobs, &n, err) ?:
		 lg_fleet_ask(f, add_node, &nodes, err, "SELECT node, name FROM node$F");

	for (size_t i = 0; i < n && !rc; i++) {
		l.job = &jobs[i];
		rc = ask_late(f, &l, s, err);
	}
	LG_SORT(l.kept, l.n_kept, cmp_late);
	lg_free(l.v);
	lg_free(nodes.v);
	lg_free(jobs);
	if (rc) {
		lg_free(l.kept);
		return rc;
	}
	*ret = l.kept;
	*ret_n = l.n_kept;
	return 0;
}

/* ---- culprits ------------------------------------------------------------------------------------- */

struct culprits {
	struct lg_fleet_culprit *v;
	size_t n, cap;
	struct jobs jobs;
	const struct nodes *nodes;
};

static int add_culprit(void *arg, size_t n, const char *const *v, struct lg_error *err)
{
	struct culprits *c = arg;
	struct lg_fleet_culprit x = { 0 };
	const struct lg_fleet_job_sum *job;
	int rc = want_values(15, n, err);

	if (rc)
		return rc;
	copy(x.process, sizeof x.process, v[0]);
	copy(x.function, sizeof x.function, v[1]);
	copy(x.rule, sizeof x.rule, v[2]);
	copy(x.object, sizeof x.object, v[3]);
	copy(x.stage, sizeof x.stage, v[4]);
	x.jobs = number(v[5]);
	x.ranks = number(v[6]);
	x.seen = number(v[7]);
	x.lost_s = real(v[8]) / 1e6;
	x.gpu_hours = real(v[9]) / 3.6e9;
	x.confidence = real(v[10]) / 100;
	copy(x.said, sizeof x.said, v[11]);
	job = job_of(&c->jobs, v[12], v[13]);
	if (job)
		copy(x.job, sizeof x.job, job->name);
	else
		snprintf(x.job, sizeof x.job, "%016" PRIx64, number(v[12]));
	name_node(c->nodes, v[14], x.node, sizeof x.node);
	return LG_APPEND(c->v, c->n, c->cap, x) ? lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory") : 0;
}

int lg_fleet_culprits(struct lg_fleet *f, const struct lg_fleet_scope *s, struct lg_fleet_culprit **ret,
		      size_t *ret_n, struct lg_error *err)
{
	struct nodes nodes = { 0 };
	struct culprits c = { .nodes = &nodes };
	char where[WHERE_TEXT] = "";
	int rc = lg_fleet_jobs(f, s, &c.jobs.v, &c.jobs.n, err) ?:
		 lg_fleet_ask(f, add_node, &nodes, err, "SELECT node, name FROM node$F");

	if (!rc && s->job) /* of several attempts the last one */
		of_job(f, &c.jobs.v[0], where);
	rc = rc ?: lg_fleet_ask(f, add_culprit, &c, err,
				"SELECT any(process), any(func), any(rule), any(object), argMax(stage, lost_us), "
				"count(DISTINCT job), count(DISTINCT rank), sum(seen), sum(lost_us), sum(lost_us * waited) AS "
				"cost, avg(conf), argMax(said, lost_us), argMax(job, lost_us), argMax(attempt, lost_us), "
				"argMax(node, lost_us) FROM stall$F WHERE t0_us >= %" PRIu64 "%s GROUP BY culprit ORDER BY "
				"cost DESC LIMIT %d", s->since_us, where, LG_FLEET_ANSWERS_MAX);
	lg_free(c.jobs.v);
	lg_free(nodes.v);
	if (rc) {
		lg_free(c.v);
		return rc;
	}
	*ret = c.v;
	*ret_n = c.n;
	return 0;
}
