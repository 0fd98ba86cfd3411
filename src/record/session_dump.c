/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session_dump.c - the ring of a session, written while it records: by a signal, or by a trigger.
 *
 * A copy of the process writes it (aside.h), as if the recording ended there: with the waits that are under
 * way, and with names, which take their time. The recording goes on meanwhile. What the copy shares with it
 * are descriptors: it has a reader of symbols and one of memory of its own (lg_addrs_apart()), and leaves
 * perf events, programs and rings as they are (look instead of stop in struct lg_source).
 */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/order.h"
#include "record/hook_inject.h"
#include "record/session_internal.h"

/* A job whose first step is not there by then may have no marks; one that runs already has them at once. */
#define STEPS_BY (60000 * MS)
#define STEPS_BY_NOW (10000 * MS)

static void note_moment(struct lg_session *s, const struct lg_moment *m)
{
	lg_prc prc = m->pid > 0 ? lg_process_get(s->b, m->pid) : 0;
	char dur[32], step[32];
	const char *const rows[][2] = { { "record.trigger", m->what }, { "record.trigger.why", m->why },
					{ "record.trigger.dur_ns", dur }, { "record.trigger.step", step } };

	snprintf(dur, sizeof dur, "%" PRId64, m->dur);
	snprintf(step, sizeof step, "%" PRId64, m->step);
	for (size_t i = 0; i < LG_COUNT(rows); i++)
		if (i < 3 || m->step >= 0)
			lg_add_meta(s->b, &(struct lg_meta_row){ .ts = m->ts, .prc = prc,
								 .key = lg_intern(s->b, rows[i][0]),
								 .value = lg_intern(s->b, rows[i][1]) });
}

static int write_dump(struct lg_session *s, struct lg_error *err)
{
	int64_t since;

	if (__builtin_sub_overflow(s->dumped.ts, s->dumped.need_ns, &since))
		since = INT64_MIN;
	return lg_ring_dump(s->ring, s->dump_path, since, err) ?: lg_session_redact(s, s->dump_path, err);
}

/* In a copy of this process: as if the recording ended here. */
static int dump_aside(void *arg, struct lg_error *err)
{
	struct lg_session *s = arg;
	struct lg_error later = { 0 };
	unsigned ranks;
	int rc;

	s->silent = true;
	s->cost.cpu_ns -= s->cpu_ns;
	ADDRS(lg_addrs_apart(s->addrs));
	for (unsigned i = 0; i < s->n_run; i++)
		if (!s->run[i].failed && s->run[i].src->look && s->run[i].src->look(s->run[i].self, &later))
			lg_session_source_failed(s, &s->run[i], &later);
	note_moment(s, &s->dumped);
	rc = lg_session_last_rows(s, &ranks, err);
	return rc ? rc : write_dump(s, err);
}

/* run.lag -> run-1.lag for a signal, run-2-20260131T101502Z-rank3-step812.lag for a trigger: the order in
 * which they were written, then what fired them. None ever replaces the final file. */
static void name_dump(struct lg_session *s, const struct lg_moment *m)
{
	const char *out = s->opt->out, *dot = strrchr(out, '.');
	char when[32] = "", who[32] = "", what[32] = "";
	struct timespec wall;
	struct tm tm;

	if (!dot || strchr(dot, '/'))
		dot = out + strlen(out);
	clock_gettime(CLOCK_REALTIME, &wall);
	wall.tv_sec -= (time_t)((lg_monotonic_ns() - m->ts) / (1000 * MS));
	if (m->kind != LG_TRIGGER_ASKED && gmtime_r(&wall.tv_sec, &tm))
		strftime(when, sizeof when, "-%Y%m%dT%H%M%SZ", &tm);
	if (m->rank >= 0)
		snprintf(who, sizeof who, "-rank%d", (int)m->rank);
	else if (m->pid > 0)
		snprintf(who, sizeof who, "-pid%d", (int)m->pid);
	if (m->step >= 0)
		snprintf(what, sizeof what, "-step%" PRId64, m->step);
	snprintf(s->dump_path, sizeof s->dump_path, "%.*s-%u%s%s%s%s%s", (int)(dot - out), out, ++s->dumps, when,
		 m->kind == LG_TRIGGER_HANG ? "-hang" : m->kind == LG_TRIGGER_RSS ? "-rss" : "", who, what, dot);
}

static void say_dumped(struct lg_session *s, const struct lg_moment *m, int rc, const struct lg_error *err)
{
	if (rc)
		lg_session_say(s, "%s: %s", m->why, err->message);
	else if (m->kind == LG_TRIGGER_ASKED)
		lg_session_say(s, "dumped the last %.0f s -> %s", (double)s->opt->ring_ns * 1e-9, s->dump_path);
	else
		lg_session_say(s, "%s: %s -> %s", m->what, m->why, s->dump_path);
}

static void dump_ended(struct lg_session *s, bool wait)
{
	struct lg_error err = { .offset = LG_NO_OFFSET };
	int rc;

	if (lg_aside_ended(&s->aside, wait, &rc, &err))
		say_dumped(s, &s->dumped, rc, &err);
}

static void dump(struct lg_session *s, const struct lg_moment *m)
{
	struct lg_error err = { .offset = LG_NO_OFFSET };
	int rc;

	s->dumped = *m;
	name_dump(s, m);
	s->cpu_ns = lg_facts_cost(NULL).cpu_ns;
	ADDRS(lg_addrs_lend(s->addrs));
	if (!lg_aside_start(&s->aside, dump_aside, s, &err))
		return;
	/* No memory for a copy, when that may be what fired: better here and now, without names, than not. */
	note_moment(s, m);
	rc = lg_session_flush(s, &err);
	if (!rc)
		rc = write_dump(s, &err);
	say_dumped(s, m, rc, &err);
}

/* Once, where the triggers wait for marks that do not come. */
static void say_stepless(struct lg_session *s, bool at_end)
{
	const char *what = NULL;

	if (!s->moments || s->told_stepless || lg_moments_steps(s->moments))
		return;
	for (size_t i = 0; i < s->opt->n_triggers && !what; i++)
		if (lg_trigger_wants_marks(&s->opt->triggers[i]))
			what = s->opt->triggers[i].text;
	if (!what || (!at_end && lg_monotonic_ns() - s->began < (s->child ? STEPS_BY : STEPS_BY_NOW)))
		return;
	s->told_stepless = true;
	lg_session_say(s, "%s: no process has marked a step%s: see Triggers in laggard-record(1)", what,
		       at_end ? ", so it could not fire" : " so far, so it cannot fire");
}

static void look_at_memory(struct lg_session *s, int64_t now)
{
	char what[200];
	double share;

	if (!s->memory)
		return;
	share = lg_memory_watch_look(s->memory, s->lives, now, what, sizeof what);
	if (share >= 0)
		lg_moments_memory(s->moments, now, share, what);
}

int lg_session_watch_moments(struct lg_session *s, struct lg_error *err)
{
	const struct lg_record_options *opt = s->opt;
	int rc = 0;

	if (opt->n_triggers)
		rc = lg_moments_new(&s->moments, opt->triggers, opt->n_triggers, opt->ring_ns, err);
	for (size_t i = 0; i < opt->n_triggers && !rc && !s->memory; i++)
		if (opt->triggers[i].kind == LG_TRIGGER_RSS)
			rc = lg_memory_watch_new(&s->memory, err);
	return rc;
}

/* The hook looks at the file now and then (_memory.py, _profiler.py); a link there is not followed. */
static void ask_hook(struct lg_session *s, const char *file, const char *for_what)
{
	const char *dir = lg_hook_current_dir();
	char path[PATH_MAX];
	int fd;

	if (!dir || snprintf(path, sizeof path, "%s/%s", dir, file) >= (int)sizeof path)
		return;
	fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (fd >= 0) {
		(void)futimens(fd, NULL);
		close(fd);
	}
	lg_session_say(s, "asked the job's processes for %s", for_what);
}

static void ask_for_profile(struct lg_session *s, int64_t now)
{
	char what[64];

	if (!*s->profiler)
		return;
	s->profiled = now;
	snprintf(what, sizeof what, "%u step%s of torch.profiler", s->opt->profiler, s->opt->profiler == 1 ? "" : "s");
	ask_hook(s, "profiler", what);
}

void lg_session_dumps(struct lg_session *s, int64_t now, bool often)
{
	struct lg_moment m = { .kind = LG_TRIGGER_ASKED, .what = "SIGUSR1", .ts = now, .need_ns = INT64_MAX,
			       .pid = -1, .rank = -1, .step = -1 };

	if (often) {
		look_at_memory(s, now);
		say_stepless(s, false);
	}
	dump_ended(s, false);
	if (s->dump && !s->aside.pid && *s->snapshots)
		ask_hook(s, "memory", "snapshots of their devices' memory");
	if ((s->dump && !s->aside.pid) ||
	    (s->opt->profiler_every_ns && now - LG_MAX(s->profiled, s->began) >= s->opt->profiler_every_ns))
		ask_for_profile(s, now);
	if (s->dump && !s->ring) {
		s->dump = false;
		if (!*s->snapshots && !*s->profiler)
			lg_session_say(s, "SIGUSR1 dumps the ring of --ring DUR; there is none");
	}
	if (s->aside.pid)
		return;
	if (s->dump) {
		s->dump = false;
		snprintf(m.why, sizeof m.why, "process %d of user %u asked for it", (int)s->asked_by,
			 (unsigned)s->asked_by_user);
		dump(s, &m);
		return;
	}
	if (!s->moments || !lg_moments_due(s->moments, now, &m))
		return;
	if (s->triggered >= s->opt->max_dumps)
		return;
	ask_for_profile(s, now);
	dump(s, &m);
	if (++s->triggered == s->opt->max_dumps)
		lg_session_say(s, "%u dump%s, no more are written (--max-dumps)", s->triggered,
			       s->triggered == 1 ? "" : "s");
}

bool lg_session_is_copy(const struct lg_session *s)
{
	return s->silent;
}

void lg_session_dumps_end(struct lg_session *s)
{
	dump_ended(s, true);
	say_stepless(s, true);
}
