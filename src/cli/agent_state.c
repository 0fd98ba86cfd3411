/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_state.c - what the agent tells of itself: status.json and status.txt in its folder, and a textfile
 * for node_exporter. Each is made whole beside its name and renamed. Series are bounded: names of culprits
 * are never labels.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/order.h"
#include "cli/agent.h"
#include "cli/load.h"
#include "report/json_write.h"
#include "report/text.h"

enum { RANKS_SHOWN = 512, STATUS_MAX_BYTES = 256 << 10 };
#define UNSENT_FOR_US UINT64_C(300000000)

const char *lg_agent_level_text(int level)
{
	static const char *const texts[] = {
		"within its budget: everything is recorded",
		"over its budget: no CPU samples and no Python frames are taken",
		"over its budget: steps alone are recorded, without evidence",
	};

	return texts[LG_MIN(LG_MAX(level, 0), 2)];
}

int lg_agent_lock(const struct lg_agent_settings *s, int *ret_fd, struct lg_error *err)
{
	char path[LG_AGENT_TEXT + 32];
	int fd;

	snprintf(path, sizeof path, "%s/lock", s->state);
	fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return lg_fail_errno(err, errno, "cannot open %s", path);
	if (flock(fd, LOCK_EX | LOCK_NB)) {
		close(fd);
		return lg_fail(err, LG_E_PERM, LG_NO_OFFSET, "another agent holds %s", s->state);
	}
	*ret_fd = fd;
	return 0;
}

struct summary {
	uint64_t steps, judged, unjudged, lost_us;
	size_t ranks;
	char error[LG_AGENT_TEXT];
	double cpu_share;
	bool healthy, open; /* open: as OpenMetrics */
};

static struct summary sum_up(const struct lg_agent *a)
{
	struct summary s = { .healthy = true };
	uint64_t ok = atomic_load(&a->sent->last_ok_us);
	int64_t age = lg_agent_now() - a->began;

	for (size_t i = 0; i < a->n_jobs; i++) {
		s.steps += a->job[i].n_steps;
		s.judged += a->job[i].judged;
		s.unjudged += a->job[i].unjudged;
		s.lost_us += a->job[i].lost_us;
		s.ranks += a->job[i].n;
	}
	s.cpu_share = age > 0 ? a->cpu_s / ((double)age / 1e9) : 0;
	if (!(atomic_load(&a->sent->writing) & 1))
		snprintf(s.error, sizeof s.error, "%.255s", a->sent->error);
	if (*a->said)
		snprintf(s.error, sizeof s.error, "%s", a->said);
	/* Batches wait, and nothing has gone for minutes. */
	if (a->spool.files && *a->set.store && (uint64_t)age / 1000 > UNSENT_FOR_US &&
	    (uint64_t)(lg_agent_now() + a->wall_offset) / 1000 - ok > UNSENT_FOR_US)
		s.healthy = false;
	return s;
}

static void jobs_json(const struct lg_agent *a, struct lg_json *j)
{
	lg_json_key(j, "jobs");
	lg_json_open(j, '[');
	for (size_t i = 0; i < a->n_jobs; i++) {
		const struct lg_agent_job *x = &a->job[i];

		lg_json_open_flat(j, '{');
		lg_json_key_str(j, "job", x->name);
		lg_json_key_count(j, "attempt", x->attempt);
		lg_json_key_count(j, "ranks", x->n);
		lg_json_key(j, "recorded");
		lg_json_bool(j, x->recorder > 0);
		lg_json_key_count(j, "steps", x->n_steps);
		lg_json_key_count(j, "windows_judged", x->judged);
		lg_json_key_count(j, "windows_not_judged", x->unjudged);
		lg_json_key_num(j, "lost_s", (double)x->lost_us / 1e6, 6);
		lg_json_close(j, '}');
	}
	lg_json_close(j, ']');
}

static void json(const struct lg_agent *a, const struct summary *s, struct lg_out *o)
{
	struct lg_json j = { .o = o };

	lg_json_open(&j, '{');
	lg_json_key(&j, "healthy");
	lg_json_bool(&j, s->healthy);
	lg_json_key_count(&j, "pid", (uint64_t)getpid());
	lg_json_key_str(&j, "laggard", LG_VERSION);
	lg_json_key_str(&j, "node", a->set.node);
	lg_json_key_str(&j, "store", *a->set.store ? a->set.store : NULL);
	jobs_json(a, &j);
	lg_json_key_count(&j, "jobs_left_out", a->left_out);
	lg_json_key_count(&j, "jobs_without_marks", a->unmarked);
	lg_json_key_count(&j, "rows", a->rows);
	lg_json_key_count(&j, "sent_rows", atomic_load(&a->sent->rows));
	lg_json_key_count(&j, "sent_batches", atomic_load(&a->sent->batches));
	lg_json_key_count(&j, "send_failures", atomic_load(&a->sent->failures));
	lg_json_key_count(&j, "spool_batches", a->spool.files);
	lg_json_key_count(&j, "spool_rows", a->spool.rows);
	lg_json_key_count(&j, "spool_bytes", a->spool.bytes);
	lg_json_key_count(&j, "dropped_rows", a->spool.dropped_rows + atomic_load(&a->sent->damaged_rows));
	lg_json_key_num(&j, "cpu_share", s->cpu_share, 5);
	lg_json_key_num(&j, "budget", a->set.budget * (double)LG_MAX(s->ranks, (size_t)1), 5);
	lg_json_key_num(&j, "budget_left_s", a->credit_s, 3);
	lg_json_key_count(&j, "level", (uint64_t)a->level);
	lg_json_key_str(&j, "recording", lg_agent_level_text(a->level));
	lg_json_key_str(&j, "last_error", *s->error ? s->error : NULL);
	lg_json_close(&j, '}');
	lg_out_puts(o, "\n");
}

static void plain(const struct lg_agent *a, const struct summary *s, struct lg_out *o)
{
	lg_out_printf(o, "%s: pid %d on ", s->healthy ? "healthy" : "NOT SENDING", (int)getpid());
	lg_text_safe(o, a->set.node);
	lg_out_printf(o, ", %s\n", lg_agent_level_text(a->level));
	for (size_t i = 0; i < a->n_jobs; i++) {
		const struct lg_agent_job *x = &a->job[i];

		lg_out_puts(o, "  ");
		lg_text_safe(o, x->name);
		lg_out_printf(o, ": %zu rank%s, %" PRIu64 " steps, %.1f s lost, %" PRIu64 " slow windows judged, %" PRIu64 " not\n",
			      x->n, x->n == 1 ? "" : "s", x->n_steps, (double)x->lost_us / 1e6, x->judged, x->unjudged);
	}
	if (a->unmarked)
		lg_out_printf(o, "  %zu job%s without marks: start it with what laggard env prints\n", a->unmarked,
			      a->unmarked == 1 ? "" : "s");
	if (a->left_out)
		lg_out_printf(o, "  %zu beyond what is watched at once (--jobs)\n", a->left_out);
	lg_out_printf(o, "  %" PRIu64 " rows, %" PRIu64 " of them sent, %" PRIu64 " wait in %.1f MB of spool, %" PRIu64 " dropped\n",
		      a->rows, atomic_load(&a->sent->rows), a->spool.rows, (double)a->spool.bytes / 1e6,
		      a->spool.dropped_rows + atomic_load(&a->sent->damaged_rows));
	lg_out_printf(o, "  %.2f %% of a CPU so far, the budget is %.2f %%\n", 100 * s->cpu_share,
		      100 * a->set.budget * (double)LG_MAX(s->ranks, (size_t)1));
	if (*s->error) {
		lg_out_puts(o, "  last error: ");
		lg_text_safe(o, s->error);
		lg_out_puts(o, "\n");
	}
}

/* ---- Prometheus ----------------------------------------------------------------------------------- */

static void label(struct lg_out *o, const char *s)
{
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			lg_out_write(o, "\\", 1);
		lg_out_write(o, (unsigned char)*s < ' ' || (unsigned char)*s > '~' ? "?" : s, 1);
	}
}

/* OpenMetrics calls a counter's family by its name without _total, Prometheus's own format with it. */
static void family(struct lg_out *o, bool open, const char *name, const char *type, const char *help)
{
	int n = (int)strlen(name) - (open && !strcmp(type, "counter") ? 6 : 0);

	lg_out_printf(o, "# HELP %.*s %s\n# TYPE %.*s %s\n", n, name, help, n, name, type);
}

static void one(struct lg_out *o, bool open, const char *name, const char *type, const char *help, double v)
{
	family(o, open, name, type, help);
	lg_out_printf(o, "%s %.9g\n", name, v);
}

static double value_of(const struct lg_agent_rank *r, unsigned which)
{
	const double v[] = { r->last_s, (double)r->steps, r->step_s, r->wait_s, r->late_s };

	return v[which];
}

static void rank_series(const struct lg_agent *a, bool open, struct lg_out *o)
{
	static const char *const of[][3] = {
		{ "laggard_step_duration_seconds", "gauge", "Mean step of the last second." },
		{ "laggard_steps_total", "counter", "Steps." },
		{ "laggard_step_seconds_total", "counter", "Time in steps." },
		{ "laggard_wait_seconds_total", "counter", "Time in collectives." },
		{ "laggard_slow_seconds_total", "counter", "Time of slow steps beyond the usual one." },
	};

	for (unsigned f = 0; f < LG_COUNT(of); f++) {
		size_t left = RANKS_SHOWN;

		family(o, open, of[f][0], of[f][1], of[f][2]);
		for (size_t i = 0; i < a->n_jobs; i++)
			for (size_t k = 0; k < a->job[i].n && left; k++, left--) {
				lg_out_printf(o, "%s{job=\"", of[f][0]);
				label(o, a->job[i].name);
				lg_out_printf(o, "\",attempt=\"%u\",user=\"%u\",rank=\"%d\"} %.9g\n", a->job[i].attempt, a->job[i].uid,
					      (int)a->job[i].rank[k].rank, value_of(&a->job[i].rank[k], f));
			}
	}
	family(o, open, "laggard_lost_seconds_total", "counter", "Time of the job that evidence says was lost to somebody.");
	for (size_t i = 0; i < a->n_jobs; i++) {
		lg_out_puts(o, "laggard_lost_seconds_total{job=\"");
		label(o, a->job[i].name);
		lg_out_printf(o, "\",attempt=\"%u\",user=\"%u\"} %.9g\n", a->job[i].attempt, a->job[i].uid, (double)a->job[i].lost_us / 1e6);
	}
}

static void metrics(const struct lg_agent *a, const struct summary *s, struct lg_out *o)
{
	rank_series(a, s->open, o);
	one(o, s->open, "laggard_agent_jobs", "gauge", "Jobs that are watched.", (double)a->n_jobs);
	one(o, s->open, "laggard_agent_jobs_left_out", "gauge", "Jobs and ranks beyond the limits.", (double)a->left_out);
	one(o, s->open, "laggard_agent_cpu_seconds_total", "counter", "CPU time of the agent and its processes.", a->cpu_s);
	one(o, s->open, "laggard_agent_level", "gauge", "What is shed to stay within the budget: 0 nothing, 1 CPU samples, 2 evidence.",
	    a->level);
	one(o, s->open, "laggard_agent_rows_total", "counter", "Rows made.", (double)a->rows);
	one(o, s->open, "laggard_agent_sent_rows_total", "counter", "Rows that the store has.", (double)atomic_load(&a->sent->rows));
	one(o, s->open, "laggard_agent_dropped_rows_total", "counter", "Rows that found no room in the spool.",
	    (double)(a->spool.dropped_rows + atomic_load(&a->sent->damaged_rows)));
	one(o, s->open, "laggard_agent_spool_bytes", "gauge", "Bytes that wait to be sent.", (double)a->spool.bytes);
	one(o, s->open, "laggard_agent_healthy", "gauge", "1, or 0 where batches wait and none was sent for five minutes.", s->healthy);
}

static void serve_metrics(struct lg_agent *a, struct summary s)
{
	struct lg_error err;
	struct lg_out *o;

	if (!a->page || lg_out_memory(&o, &err))
		return;
	s.open = true;
	metrics(a, &s, o);
	lg_out_puts(o, "# EOF\n");
	if (!lg_out_failed(o) && !lg_live_write(a->page, lg_out_view(o), lg_out_bytes(o)))
		lg_agent_trouble(a, "the metrics have more than %d bytes", LG_LIVE_BYTES);
	lg_out_abort(o);
}

/* The token of before, or a new one: 256 bits. */
static int token_of(struct lg_agent *a, struct lg_error *err)
{
	char path[LG_AGENT_TEXT + 32];
	uint8_t word[32];
	ssize_t n;
	int fd;

	snprintf(path, sizeof path, "%s/metrics.token", a->set.state);
	fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	n = fd < 0 ? -1 : read(fd, a->token, 64);
	if (n == 0 && getrandom(word, sizeof word, 0) == (ssize_t)sizeof word) {
		for (size_t i = 0; i < sizeof word; i++)
			snprintf(a->token + 2 * i, 3, "%02x", word[i]);
		n = write(fd, a->token, 64);
	}
	if (n == 64) {
		a->token[64] = 0;
		close(fd);
		return 0;
	}
	if (fd >= 0)
		close(fd);
	return lg_fail(err, LG_E_IO, LG_NO_OFFSET, "%s: cannot read or make the token", path);
}

int lg_agent_serve(struct lg_agent *a, struct lg_error *err)
{
	static const char type[] = "application/openmetrics-text; version=1.0.0; charset=utf-8";
	int rc = a->set.metrics ? token_of(a, err) : 0;

	if (rc || !a->set.metrics)
		return rc;
	a->page = mmap(NULL, sizeof *a->page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (a->page == MAP_FAILED) {
		a->page = NULL;
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	return lg_serve_live(&a->server, (uint16_t)a->set.metrics, "/metrics", type, a->token, a->page, err);
}

/* mode: 0644 for node_exporter, which is another user; there are only numbers and names of jobs in it. */
static void write_file(struct lg_agent *a, const char *path, mode_t mode, const struct summary *s,
		       void (*make)(const struct lg_agent *a, const struct summary *s, struct lg_out *o))
{
	struct lg_error err = { .offset = LG_NO_OFFSET };
	struct lg_out *o;
	int fd;

	if (lg_out_open(&o, path, LG_OUT_PLAIN, &err)) {
		lg_agent_trouble(a, "%s", err.message);
		return;
	}
	make(a, s, o);
	if (lg_out_close(o, &err)) {
		lg_agent_trouble(a, "%s", err.message);
		return;
	}
	if (mode == 0600)
		return;
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0) {
		(void)!fchmod(fd, mode);
		close(fd);
	}
}

void lg_agent_write_state(struct lg_agent *a)
{
	struct summary s = sum_up(a);
	char path[LG_AGENT_TEXT + 32];

	snprintf(path, sizeof path, "%s/status.json", a->set.state);
	write_file(a, path, 0600, &s, json);
	snprintf(path, sizeof path, "%s/status.txt", a->set.state);
	write_file(a, path, 0600, &s, plain);
	if (*a->set.textfile)
		write_file(a, a->set.textfile, 0644, &s, metrics);
	serve_metrics(a, s);
}

/* ---- laggard agent status ------------------------------------------------------------------------- */

int lg_agent_status(const struct lg_agent_settings *s, bool as_json)
{
	static char text[STATUS_MAX_BYTES];
	char path[LG_AGENT_TEXT + 32];
	struct lg_error err = { .offset = LG_NO_OFFSET };
	int lock = -1, fd, rc = lg_agent_lock(s, &lock, &err);
	struct lg_out *o;
	ssize_t n;

	if (!rc) {
		close(lock);
		lg_say("no agent runs with %s", s->state);
		return LG_EXIT_FAILED;
	}
	if (rc != LG_E_PERM || err.os_errno) {
		lg_complain(&err);
		return LG_EXIT_FAILED;
	}
	snprintf(path, sizeof path, "%s/status.%s", s->state, as_json ? "json" : "txt");
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (fd >= 0)
		close(fd);
	if (n <= 0) {
		lg_say("the agent has not told anything yet");
		return LG_EXIT_FAILED;
	}
	text[n] = 0;
	o = lg_stdout_open();
	if (!o)
		return LG_EXIT_FAILED;
	lg_out_write(o, text, (size_t)n);
	rc = lg_finish(o);
	return rc ?: strstr(text, as_json ? "\"healthy\": false" : "NOT SENDING") ? LG_EXIT_FINDING : LG_EXIT_OK;
}
