/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session.c - one recording from the first probe to the last chunk.
 *
 *   fork who asks devices -> fork cmd (it waits) -> scan /proc -> start sources -> scan again -> let cmd exec
 *   -> rounds until the end -> stop, last drain, finish, names, flush, close -> wait for cmd
 *
 * I1  A record that is 100 ms old when a drain begins, or older than the drain before, has been pushed:
 *     rings are read after a drain begins, and a writer takes its time and completes its record in far
 *     less. (A thread that lost its CPU in between: that much is waited for it.) A source that holds
 *     records back for a drain says so, then only the drain before counts.
 * I2  Everything a source, the queue or the file could not do is a diag row or ends the recording.
 * I3  Once cmd runs, its status is returned whatever becomes of the recording.
 */
#include "record/session.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/confine.h"
#include "base/order.h"
#include "base/patient.h"
#include "base/place.h"
#include "record/device/devices.h"
#include "record/launch.h"
#include "record/lives.h"
#include "record/session_internal.h"
#include "store/budget.h"
#include "store/redact.h"

#define PROFILER_AFTER 20 /* steps, where nothing else says when */
#define DRAIN_EVERY (100 * MS)
#define DRAIN_SELDOM (400 * MS) /* where full rings call: a round costs more than its records */
#define DRAIN_OFTEN (25 * MS)
#define SETTLED (100 * MS)
#define DRAIN_GAP (10 * MS)  /* a full ring may ask for a drain sooner, not more often than this */
#define FLUSH_EVERY (1000 * MS)
#define FLUSH_PENDING (8u << 20)
/* Of records between two drains: a burst of every CPU's rings. With what other users' names may take
 * (budgets below) the recorder stays under 256 MiB on a machine of usual size, whatever happens on it. */
#define QUEUE_DEFAULT (24u << 20)
#define QUEUE_A_CPU (2u << 20)
#define QUEUE_MOST (256u << 20)
static const struct lg_budget_limits budgets = { .job = 80u << 20, .user = 20u << 20, .users = 40u << 20 };
#define SHORT_RUN (2000 * MS)
#define READY_BEFORE (2000 * MS) /* of sources, before the moment of --at: loading them takes time */

struct lg_builder *lg_session_builder(struct lg_session *s) { return s->b; }
const struct lg_record_options *lg_session_options(const struct lg_session *s) { return s->opt; }
unsigned lg_session_source_index(const struct lg_session *s) { return s->starting; }
enum lg_tier lg_session_tier(const struct lg_session *s) { return s->tier; }
struct lg_addrs *lg_session_addrs(struct lg_session *s) { return s->addrs; }
void lg_session_set_sampler(struct lg_session *s, int prog_fd) { s->sampler = prog_fd; }
int lg_session_sampler(const struct lg_session *s) { return s->sampler; }
struct lg_lives *lg_session_lives(struct lg_session *s) { return s->lives; }
struct lg_devices *lg_session_devices(struct lg_session *s) { return s->devices; }
struct lg_moments *lg_session_moments(struct lg_session *s) { return s->moments; }

pid_t lg_session_self(const struct lg_session *s)
{
	(void)s;
	return getpid();
}

pid_t lg_session_child(const struct lg_session *s)
{
	return s->child ? lg_launch_pid(s->child) : 0;
}

bool lg_session_is_job(const struct lg_session *s, int32_t pid)
{
	return lg_lives_is_job(s->lives, pid);
}

bool lg_session_will_mark(struct lg_session *s, int32_t pid, uint32_t uid)
{
	return lg_lives_will_mark(s->lives, pid, uid);
}

void lg_session_rank(struct lg_session *s, int32_t pid, int32_t rank, int32_t world, int32_t local)
{
	lg_lives_rank(s->lives, pid, rank, world, local);
}

void lg_session_push(struct lg_session *s, unsigned src_i, int64_t ts, const void *rec, size_t n)
{
	lg_queue_push(s->q, src_i, s->run[src_i].src->late_ok, ts, rec, n);
}

/* Edge-triggered: a ring that stays above its watermark must not spin the loop. */
int lg_session_watch(struct lg_session *s, int fd, struct lg_error *err)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET, .data.fd = fd };

	if (epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &ev) && errno != EEXIST)
		return lg_fail_errno(err, errno, "epoll_ctl");
	return 0;
}

void lg_session_filled(struct lg_session *s, uint64_t found, uint64_t room)
{
	unsigned permille = found >= room ? 1000 : (unsigned)(found * 1000 / room);

	if (permille > s->fullest)
		s->fullest = permille;
}

void lg_session_holds_back(struct lg_session *s)
{
	s->held_back = true;
}

void lg_session_say(struct lg_session *s, const char *fmt, ...)
{
	char line[1024];
	va_list ap;

	if (!s->opt->say || s->opt->quiet || s->silent)
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	s->opt->say(s->opt->say_arg, line);
}

void lg_session_fork(struct lg_session *s, int64_t ts, int32_t ppid, int32_t pid, int32_t tid)
{
	if (lg_lives_fork(s->lives, ts, ppid, pid, tid) && pid == tid)
		ADDRS(lg_addrs_fork(s->addrs, ts, ppid, pid));
}

void lg_session_exec(struct lg_session *s, int64_t ts, int32_t pid, const char *comm)
{
	if (lg_lives_exec(s->lives, ts, pid, comm))
		ADDRS(lg_addrs_exec(s->addrs, ts, pid));
}

void lg_session_exit(struct lg_session *s, int64_t ts, int32_t pid, int32_t tid)
{
	if (lg_lives_exit(s->lives, ts, pid, tid) && pid == tid)
		ADDRS(lg_addrs_exit(s->addrs, ts, pid));
}

/* Sources ------------------------------------------------------------------------------------ */

/* A source that does not start is a row in the trace; only the tier's main one is missed more. */
static int start_source(struct lg_session *s, const struct lg_source *src, struct lg_error *err)
{
	struct running *r = &s->run[s->n_run];
	int rc;

	if (s->n_run == LG_QUEUE_SOURCES)
		return lg_fail(err, LG_E_LIMIT, LG_NO_OFFSET, "too many sources");
	*r = (struct running){ .src = src };
	s->starting = s->n_run;
	rc = src->start(s, &r->self, err);
	if (rc)
		return rc;
	s->n_run++;
	return 0;
}

static void start_side_source(struct lg_session *s, const struct lg_source *src)
{
	struct lg_error err = { 0 };

	if (!start_source(s, src, &err))
		return;
	lg_add_diag_now(s->b,
			err.code == LG_E_PERM ? LG_DIAG_NO_PERMISSION : LG_DIAG_NO_FEATURE,
			lg_monotonic_ns(), 1, "%s: %s", src->name, err.message);
	lg_session_say(s, "without %s: %s", src->summary, err.message);
}

static void note_tier(void *arg, enum lg_tier tier, const struct lg_probe *p)
{
	struct lg_session *s = arg;

	lg_add_diag_now(s->b, LG_DIAG_NO_FEATURE, lg_monotonic_ns(), 1,
			"tier %s does not work here: %s", lg_tier_name(tier), p->why);
	/* The best tier's reason is the one to act on; the others are in the diag rows. */
	if (!*s->refused)
		snprintf(s->refused, sizeof s->refused, "%s%s%s", p->why,
			 *p->fix ? "; to get it: " : "", p->fix);
	snprintf(s->refused_tiers + strlen(s->refused_tiers),
		 sizeof s->refused_tiers - strlen(s->refused_tiers), "%s%s",
		 *s->refused_tiers ? ", " : "", lg_tier_name(tier));
}

static int start_sources(struct lg_session *s, struct lg_error *err)
{
	enum lg_tier first = s->opt->tier;
	bool forced = first != LG_TIER_AUTO;
	struct lg_probe failed = { 0 };
	int rc;

	for (;;) {
		rc = lg_tier_choose(first, forced, &s->tier, note_tier, s, err);
		if (rc)
			return rc;
		rc = start_source(s, lg_tier_main(s->tier), err);
		if (!rc)
			break;
		/* It probed well and yet does not start: a limit reached, a race for a resource. */
		if (forced || s->tier == LG_TIER_PROCFS)
			return lg_error_prefix(err, "tier %s: ", lg_tier_name(s->tier));
		snprintf(failed.why, sizeof failed.why, "%.*s", (int)sizeof failed.why - 1,
			 err->message);
		note_tier(s, s->tier, &failed);
		first = s->tier + 1;
	}
	if (*s->refused_tiers) {
		bool many = strchr(s->refused_tiers, ',');

		lg_session_say(s, "tier%s %s %s not work here: %s", many ? "s" : "",
			       s->refused_tiers, many ? "do" : "does", s->refused);
	}
#ifdef LG_HAVE_SOURCE_PERF
	if (s->tier == LG_TIER_BPF || s->tier == LG_TIER_PERF)
		start_side_source(s, &lg_source_perf);
#endif
#ifdef LG_HAVE_SOURCE_MARKS
	start_side_source(s, &lg_source_marks);
#endif
	if (s->tier != LG_TIER_PROCFS)
		start_side_source(s, &lg_source_procfs);
	if (s->devices)
		start_side_source(s, &lg_source_devices);
	return 0;
}

void lg_session_source_failed(struct lg_session *s, struct running *r, const struct lg_error *err)
{
	r->failed = true;
	lg_add_diag_now(s->b, LG_DIAG_PARTIAL, lg_monotonic_ns(), 1, "%s ended early: %s",
			r->src->name, err->message);
	lg_session_say(s, "%s ended early: %s", r->src->name, err->message);
}

static void feed(void *arg, unsigned src, int64_t ts, const void *rec, size_t n)
{
	struct lg_session *s = arg;

	s->run[src].src->feed(s->run[src].self, ts, rec, n);
	lg_builder_for(s->b, 0);
}

static void note_losses(struct lg_session *s)
{
	for (unsigned i = 0; i < s->n_run; i++) {
		struct lg_queue_loss l = lg_queue_losses(s->q, i);
		struct lg_diag_row d = { .cpu = -1 };

		if (l.first > l.last)
			continue;
		d.ts = l.first;
		d.dur = l.last - l.first;
		if (l.full) {
			d.id = LG_DIAG_LOST_EVENTS;
			d.count = l.full;
			d.text = lg_intern(s->b, "the recorder's queue was full");
			lg_add_diag(s->b, &d);
		}
		if (l.late) {
			d.id = LG_DIAG_OUT_OF_ORDER;
			d.count = l.late;
			d.text = lg_intern(s->b, s->run[i].src->name);
			lg_add_diag(s->b, &d);
		}
	}
}

/* Often enough that no ring is found more than a quarter full, and not more often. */
static void choose_pace(struct lg_session *s)
{
	int64_t seldom = s->tier == LG_TIER_BPF ? DRAIN_SELDOM : DRAIN_EVERY;

	if (s->fullest > 250 && s->drain_every > DRAIN_OFTEN)
		s->drain_every /= 2;
	else if (s->fullest < 60 && s->drain_every < seldom)
		s->drain_every *= 2;
	s->fullest = 0;
}

static void drain(struct lg_session *s, int64_t now)
{
	int64_t settled = s->drain_began;

	for (unsigned i = 0; i < s->n_run; i++) {
		struct lg_error err = { 0 };

		if (!s->run[i].failed && s->run[i].src->drain(s->run[i].self, &err))
			lg_session_source_failed(s, &s->run[i], &err);
	}
	note_losses(s);
	if (!s->held_back && now - SETTLED > settled)
		settled = now - SETTLED;
	lg_queue_round(s->q, settled, feed, s);
	s->drain_began = now;
	choose_pace(s);
	s->last_drain = lg_monotonic_ns();
}

/* Output ------------------------------------------------------------------------------------- */

/* Rows that are about to leave the builder: events for the summary, losses for its last number. */
static void count_rows(struct lg_session *s)
{
	const struct lg_trace *t = lg_builder_trace(s->b);

	s->events += t->state.n + t->sample.n + t->span.n + t->counter.n + t->flow.n + t->mark.n;
	for (size_t i = 0; i < t->diag.n; i++)
		switch (t->diag.id[i]) {
		case LG_DIAG_LOST_EVENTS:
		case LG_DIAG_LOST_SAMPLES:
		case LG_DIAG_MARKS_LOST:
		case LG_DIAG_TABLE_FULL:
		case LG_DIAG_OUT_OF_ORDER:
			s->lost = lg_count_sum(s->lost, t->diag.count[i]);
			break;
		default:
			break;
		}
}

int lg_session_flush(struct lg_session *s, struct lg_error *err)
{
	int rc;

	lg_builder_tell_budget(s->b, lg_monotonic_ns());
	count_rows(s);
	if (s->ring)
		rc = lg_builder_flush(s->b, &lg_ring_sink, s->ring, err);
	else
		rc = lg_builder_flush(s->b, &lg_writer_sink, s->writer, err);
	s->flushed = lg_monotonic_ns();
	return rc;
}

static uint64_t output_bytes(const struct lg_session *s)
{
	return s->ring ? lg_ring_bytes(s->ring) : lg_writer_bytes(s->writer);
}

/* A share means nothing where the last drain and the names outweigh the rounds. */
static const char *cost_text(const struct lg_cost *c, char *buf, size_t size)
{
	if (c->wall_ns < SHORT_RUN)
		snprintf(buf, size, "%.0f ms of CPU time", (double)c->cpu_ns * 1e-6);
	else
		snprintf(buf, size, "%.1f %% of one CPU",
			 100 * (double)c->cpu_ns / (double)c->wall_ns);
	return buf;
}

static void note_cost(struct lg_session *s)
{
	struct lg_cost c = lg_facts_cost(&s->cost);
	char text[48], lost[32];

	lg_meta_setf(s->b, 0, "record.cost.cpu_ns", "%" PRId64, c.cpu_ns);
	lg_meta_setf(s->b, 0, "record.cost.wall_ns", "%" PRId64, c.wall_ns);
	lg_meta_setf(s->b, 0, "record.cost.rss_bytes", "%" PRId64, c.rss_bytes);
	lg_meta_setf(s->b, 0, "record.events", "%" PRIu64, s->events);
	lg_meta_setf(s->b, 0, "record.lost", "%" PRIu64, s->lost);
	lg_meta_setf(s->b, 0, "record.bytes", "%" PRIu64, output_bytes(s));
	lg_add_diag_now(s->b, LG_DIAG_OWN_COST, lg_monotonic_ns(), 1,
			"recorder: %s, %.1f MB of memory, %" PRIu64 " events, %.1f MB written, %s lost",
			cost_text(&c, text, sizeof text), (double)c.rss_bytes * 1e-6, s->events,
			(double)output_bytes(s) * 1e-6, lg_count_text(s->lost, lost, sizeof lost));
	s->cost = c;
}

int lg_session_last_rows(struct lg_session *s, unsigned *ret_ranks, struct lg_error *err)
{
	struct lg_error later = { 0 };
	int rc;

	lg_queue_round(s->q, INT64_MAX, feed, s);
	note_losses(s);
	for (unsigned i = 0; i < s->n_run; i++)
		if (s->run[i].src->finish && s->run[i].src->finish(s->run[i].self, &later))
			lg_session_source_failed(s, &s->run[i], &later);
	lg_lives_finish(s->lives, ret_ranks);
	lg_facts_clocks(s->b, &s->clocks, lg_monotonic_ns(), true);
	rc = lg_session_flush(s, err);
	note_cost(s);
	ADDRS(lg_addrs_resolve(s->addrs, !s->hurry, 200 * MS));
	return rc ? rc : lg_session_flush(s, err);
}

/* Rounds ------------------------------------------------------------------------------------- */

static void note_alive(void *arg, int32_t pid)
{
	(void)pid;
	*(bool *)arg = true;
}

/* A job that was asked for by name lives as long as anybody of it, whoever was there when it was. */
static bool any_alive(const struct lg_session *s)
{
	const struct lg_record_options *opt = s->opt;
	bool alive = false;

	for (size_t i = 0; i < opt->n_pids; i++)
		if (!kill(opt->pids[i], 0) || errno == EPERM)
			return true;
	if (opt->job)
		lg_lives_each_job(s->lives, note_alive, &alive);
	return alive;
}

/*
 * The terminal sends Ctrl-C to cmd as well: laggard waits for it to end, at the second one it
 * leaves it alone and ends. SIGTERM and SIGHUP from a supervisor reach only laggard: passed on.
 */
static void take_signals(struct lg_session *s)
{
	struct signalfd_siginfo si;

	while (read(s->signals, &si, sizeof si) == (ssize_t)sizeof si) {
		switch (si.ssi_signo) {
		case SIGUSR1:
			s->dump = true;
			s->asked_by = (pid_t)si.ssi_pid;
			s->asked_by_user = si.ssi_uid;
			break;
		case SIGCHLD:
			if (s->child && lg_launch_ended(s->child, false))
				s->stop = true;
			break;
		default:
			if (si.ssi_signo != SIGINT && s->child && si.ssi_code <= 0)
				lg_launch_signal(s->child, (int)si.ssi_signo);
			s->interrupts++;
			if (!s->child || s->interrupts > 1)
				s->stop = true;
			s->hurry = s->interrupts > 1;
			break;
		}
	}
}

static void wait_for_work(struct lg_session *s)
{
	struct epoll_event ev[16];
	int64_t due = s->last_drain + (s->woken ? DRAIN_GAP : s->drain_every);
	int64_t left = due - lg_monotonic_ns();
	int n;

	if (s->opt->for_ns && s->began + s->opt->for_ns - lg_monotonic_ns() < left)
		left = s->began + s->opt->for_ns - lg_monotonic_ns();
	n = epoll_wait(s->epoll, ev, 16, left > 0 ? (int)((left + MS - 1) / MS) : 0);
	for (int i = 0; i < n; i++) {
		if (ev[i].data.fd == s->signals)
			take_signals(s);
		else
			s->woken = true;
	}
}

static int one_round(struct lg_session *s, struct lg_error *err)
{
	int64_t now = lg_monotonic_ns();

	s->woken = false;
	drain(s, now);
	lg_lives_work(s->lives, now);
	lg_facts_clocks(s->b, &s->clocks, now, false);
	if (now - s->flushed >= FLUSH_EVERY || lg_builder_pending(s->b) > FLUSH_PENDING) {
		ADDRS(lg_addrs_resolve(s->addrs, false, 2 * MS));
		if (lg_session_flush(s, err))
			return err->code;
	}
	lg_session_dumps(s, now, now >= s->next_check);
	if (now >= s->next_check) {
		s->next_check = now + 1000 * MS;
		if (s->opt->n_pids && !s->child && !any_alive(s))
			s->stop = true;
		if (s->opt->report)
			s->opt->report(s->opt->say_arg, (double)(now - s->began) * 1e-9,
				       s->events, output_bytes(s), s->lost);
	}
	if (s->opt->for_ns && now - s->began >= s->opt->for_ns)
		s->stop = true;
	return lg_builder_failed(s->b) ? lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory")
				       : 0;
}

static int rounds(struct lg_session *s, struct lg_error *err)
{
	while (!s->stop) {
		int64_t now;
		bool asked;
		int rc;

		wait_for_work(s);
		now = lg_monotonic_ns();
		asked = s->dump && !s->aside.pid; /* else it has to wait anyway */
		if (!s->stop && !asked && now - s->last_drain < DRAIN_GAP)
			continue;
		if (!s->stop && !asked && !s->woken && now - s->last_drain < s->drain_every &&
		    !(s->opt->for_ns && now - s->began >= s->opt->for_ns))
			continue;
		rc = one_round(s, err);
		if (rc)
			return rc;
	}
	return 0;
}

/* Begin and end ------------------------------------------------------------------------------ */

static int block_signals(struct lg_session *s, struct lg_error *err)
{
	static const int taken[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD };
	struct sigaction ignore = { .sa_handler = SIG_IGN };
	struct epoll_event ev = { .events = EPOLLIN };
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
		sigaddset(&set, taken[i]);
	sigprocmask(SIG_BLOCK, &set, &s->old_mask);
	sigaction(SIGPIPE, &ignore, &s->old_pipe); /* a closed stderr must not end a recording */
	s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	s->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (s->signals < 0 || s->epoll < 0)
		return lg_fail_errno(err, errno, "cannot watch signals");
	ev.data.fd = s->signals;
	if (epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->signals, &ev))
		return lg_fail_errno(err, errno, "cannot watch signals");
	return 0;
}

/* cmd's environment: the hook's, or laggard's own as it is; with the hook comes a token by which
 * descendants are known that no fork event tied to the job. */
/* Beside the recording: run.lag, run-rank0-4711-oom-1.pickle, run-rank0-4711-profile-1.json. */
static void name_snapshots(struct lg_session *s)
{
	const char *out = s->opt->out, *end = strrchr(out, '.');
	size_t n = end && !strcmp(end, ".lag") ? (size_t)(end - out) : strlen(out);
	char here[PATH_MAX] = "";

	if (!s->hook || (*out != '/' && !getcwd(here, sizeof here)))
		return;
	if (s->opt->memory && snprintf(s->snapshots, sizeof s->snapshots, "LAGGARD_MEMORY=%s%s%.*s", here,
				       *here ? "/" : "", (int)n, out) >= (int)sizeof s->snapshots)
		s->snapshots[0] = 0;
	/* Steps, after how many by itself (0: when it is asked), and where: _profiler.py of the hook. */
	if (s->opt->profiler &&
	    snprintf(s->profiler, sizeof s->profiler, "LAGGARD_PROFILER=%u %u %s%s%.*s", s->opt->profiler,
		     s->opt->ring_ns || s->opt->profiler_every_ns ? 0 : PROFILER_AFTER, here, *here ? "/" : "",
		     (int)n, out) >= (int)sizeof s->profiler)
		s->profiler[0] = 0;
}

static int prepare_env(struct lg_session *s, struct lg_error *err)
{
	char **env = s->opt->env;
	uint64_t random[2];
	size_t n = 0, k = 0;

	if (!s->opt->hook)
		return 0;
#ifdef LG_HAVE_HOOK
	{
		struct lg_error herr = { 0 };

		if (lg_hook_prepare(&s->hook, s->opt->user, env, &env, &herr)) {
			lg_add_diag_now(s->b, LG_DIAG_MARKS_OFF, lg_monotonic_ns(), 1, "%s",
					herr.message);
			lg_session_say(s, "without the Python hook: %s", herr.message);
			env = s->opt->env;
		}
	}
#endif
	while (env && env[n])
		n++;
	name_snapshots(s);
	s->env = lg_calloc(n + 4, sizeof *s->env);
	if (!s->env)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	/* Not to be guessed: with it any process could make itself part of the job. */
	if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
		return lg_fail_errno(err, errno, "getrandom");
	snprintf(s->token, sizeof s->token, "LAGGARD_SESSION=%016" PRIx64 "%016" PRIx64, random[0], random[1]);
	s->env[k++] = s->token;
	if (*s->snapshots)
		s->env[k++] = s->snapshots;
	if (*s->profiler)
		s->env[k++] = s->profiler;
	for (size_t i = 0; i < n; i++)
		if (strncmp(env[i], "LAGGARD_SESSION=", 16) && strncmp(env[i], "LAGGARD_MEMORY=", 15) &&
		    strncmp(env[i], "LAGGARD_PROFILER=", 17))
			s->env[k++] = env[i];
	return 0;
}

/* A perf event is a file and there are several a CPU: the usual 1024 end at some 100 CPUs. Only
 * after the fork: cmd has the limit that it would have had. */
static void raise_files(struct lg_session *s)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &s->old_files))
		return;
	r = s->old_files;
	r.rlim_cur = r.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &r);
}

/*
 * What is still needed once every event is open:
 *   SYS_PTRACE          environ, maps and root of other users' processes; which inode a mapping has
 *   CHECKPOINT_RESTORE  a mapped file whose path leads elsewhere (map_files)
 *   DAC_READ_SEARCH     their mark rings, perf maps and libraries
 *   DAC_OVERRIDE, CHOWN, FOWNER  the recording, in a folder of the user who called sudo
 *   KILL                signals for the command, which may be another user's, and the end of the reader
 *   PERFMON, BPF        reading the programs' maps and lists
 *   SYSLOG              addresses in /proc/kallsyms, read when the first kernel frame comes
 * Before Linux 5.8 SYS_ADMIN stands for PERFMON and BPF, before 5.9 for CHECKPOINT_RESTORE.
 */
static uint64_t needed_capabilities(void)
{
	static const uint8_t needed[] = {
		CAP_SYS_PTRACE, CAP_CHECKPOINT_RESTORE, CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE, CAP_CHOWN,
		CAP_FOWNER, CAP_KILL, CAP_PERFMON, CAP_BPF, CAP_SYSLOG,
	};
	uint64_t keep = 0;

	for (size_t i = 0; i < sizeof needed; i++)
		keep |= UINT64_C(1) << needed[i];
	if (prctl(PR_CAPBSET_READ, CAP_CHECKPOINT_RESTORE, 0, 0, 0) < 0)
		keep |= UINT64_C(1) << CAP_SYS_ADMIN;
	return keep;
}

static void confine(struct lg_session *s)
{
	struct lg_error err;

	if (s->opt->confine && lg_confine_capabilities(needed_capabilities(), &err)) {
		lg_add_diag_now(s->b, LG_DIAG_NO_FEATURE, lg_monotonic_ns(), 1,
				"the recorder keeps all its capabilities: %s", err.message);
		lg_session_say(s, "keeping all capabilities: %s", err.message);
	}
	lg_patient_anew();
}

/* What a ring holds is written at the end: whether it can be is tried before the command starts. */
static int open_output(struct lg_session *s, struct lg_error *err)
{
	struct lg_place *tried;
	int rc;

	if (!s->opt->ring_ns)
		return lg_writer_open(&s->writer, s->opt->out, err);
	rc = lg_place_open(&tried, s->opt->out, err);
	if (rc)
		return rc;
	lg_place_free(tried);
	rc = lg_session_watch_moments(s, err);
	return rc ? rc : lg_ring_new(&s->ring, s->opt->ring_ns, 0, err);
}

static size_t queue_bytes(const struct lg_record_options *opt)
{
	long cpus = sysconf(_SC_NPROCESSORS_CONF);
	size_t n = QUEUE_DEFAULT + (size_t)(cpus > 0 ? cpus : 1) * QUEUE_A_CPU;

	return opt->queue_bytes ? opt->queue_bytes : n < QUEUE_MOST ? n : QUEUE_MOST;
}

/* --at: sources that run already are drained meanwhile. */
static int wait_until(struct lg_session *s, int64_t then, struct lg_error *err)
{
	int64_t now;
	int rc = 0;

	while (!rc && !s->stop && (now = lg_monotonic_ns()) < then) {
		int64_t left = LG_MIN(then - now, DRAIN_EVERY);
		struct epoll_event ev;

		if (epoll_wait(s->epoll, &ev, 1, (int)((left + MS - 1) / MS)) == 1 &&
		    ev.data.fd == s->signals)
			take_signals(s);
		if (s->interrupts) /* cmd has not begun: there is nothing to wait for */
			s->stop = true;
		if (s->n_run)
			rc = one_round(s, err);
	}
	if (!rc && s->stop)
		rc = lg_fail(err, LG_E_IO, LG_NO_OFFSET, "ended before the recording began");
	return rc;
}

static int wait_for_sources_time(struct lg_session *s, struct lg_error *err)
{
	int64_t every = s->opt->at_ns, wall;
	struct timespec t;

	if (!every)
		return 0;
	clock_gettime(CLOCK_REALTIME, &t);
	wall = t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
	s->begins = lg_monotonic_ns() + every - wall % every;
	lg_meta_setf(s->b, 0, "record.at_ns", "%" PRId64, wall + every - wall % every);
	lg_session_say(s, "beginning in %.1f s, when the wall clock is a multiple of %.3g s",
		       (double)(every - wall % every) * 1e-9, (double)every * 1e-9);
	return wait_until(s, s->begins - READY_BEFORE, err);
}

static int wait_for_time(struct lg_session *s, struct lg_error *err)
{
	int64_t late = lg_monotonic_ns() - s->begins;

	if (!s->begins)
		return 0;
	if (late > 100 * MS)
		lg_session_say(s, "ready %.1f s after that moment", (double)late * 1e-9);
	s->began = s->begins; /* --for counts from there */
	return wait_until(s, s->begins, err);
}

static int begin(struct lg_session *s, struct lg_error *err)
{
	const struct lg_record_options *opt = s->opt;
	struct lg_lives_options lo = { .self = getpid(), .pids = opt->pids, .n_pids = opt->n_pids,
				       .job = opt->job };
	struct lg_cost began;
	int rc;

	/* While there is nothing to hide from a maker's library. */
	s->devices = lg_devices_usual(opt->device_hz);
	if ((rc = lg_builder_new(&s->b, err)) ||
	    (rc = lg_queue_new(&s->q, queue_bytes(opt), err)) ||
	    (rc = open_output(s, err)) || /* a FIFO may wait for its reader: Ctrl-C must end that */
	    (rc = block_signals(s, err)))
		return rc;
	if (opt->cmd) {
		if ((rc = prepare_env(s, err)) ||
		    (rc = lg_launch_fork(&s->child, opt->cmd, s->env ? s->env : opt->env, opt->user,
					 &s->old_mask, err)))
			return rc;
		lo.child = lg_launch_pid(s->child);
		lo.token = *s->token ? s->token : NULL;
	}
	raise_files(s);
	if ((rc = lg_lives_new(&s->lives, s->b, &lo, err)))
		return rc;
#ifdef LG_HAVE_ADDRS
	if ((rc = lg_addrs_new(&s->addrs, s, err)))
		return rc;
#endif
	lg_lives_scan(s->lives, lg_monotonic_ns());
	if ((rc = wait_for_sources_time(s, err)))
		return rc;
	s->cost = lg_facts_cost(NULL);
	s->began = s->drain_began = s->last_drain = s->flushed = lg_monotonic_ns();
	if ((rc = start_sources(s, err)))
		return rc;
	confine(s);
	lg_lives_scan(s->lives, lg_monotonic_ns());
	lg_facts_machine(s->b, opt, s->tier);
	lg_facts_clocks(s->b, &s->clocks, lg_monotonic_ns(), true);
	lg_session_say(s, "recording with tier %s%s%s", lg_tier_name(s->tier),
		       *lg_tier_limits(s->tier) ? "; not seen: " : "", lg_tier_limits(s->tier));
	if (!s->child && !opt->n_pids)
		lg_session_say(s, "recording the whole machine%s",
			       opt->for_ns ? "" : "; Ctrl-C ends it");
	lg_builder_limit(s->b, &budgets);
	s->began = lg_monotonic_ns();
	if ((rc = wait_for_time(s, err)))
		return rc;
	began = lg_facts_cost(&s->cost);
	lg_meta_setf(s->b, 0, "record.cost.start_cpu_ns", "%" PRId64, began.cpu_ns);
	s->cost = lg_facts_cost(NULL); /* loading programs is paid once, before cmd runs */
	if (!s->child)
		return 0;
	rc = lg_launch_go(s->child, err);
	/* Sources may tell as well; in tier procfs nobody does. */
	if (!rc)
		(void)lg_lives_exec(s->lives, lg_monotonic_ns(), lg_launch_pid(s->child), NULL);
	return rc;
}

static void say_summary(struct lg_session *s, unsigned ranks, uint64_t bytes)
{
	const char *unit = s->events >= 10000 ? "k" : "";
	char who[32] = "", cost[48], lost[32];

	if (ranks)
		snprintf(who, sizeof who, "%u rank%s, ", ranks, ranks == 1 ? "" : "s");
	lg_session_say(s, "recorded %.1f s, %s%" PRIu64 "%s events, %.1f MB, cost %s, %s lost -> %s",
		       (double)s->cost.wall_ns * 1e-9, who,
		       *unit ? s->events / 1000 : s->events, unit, (double)bytes * 1e-6,
		       cost_text(&s->cost, cost, sizeof cost),
		       lg_count_text(s->lost, lost, sizeof lost), s->opt->out);
	lg_session_say(s, "next: laggard explain %s", s->opt->out);
}

/* What cannot be redacted is not left to be shared. */
int lg_session_redact(struct lg_session *s, const char *path, struct lg_error *err)
{
	int rc = s->opt->redact ? lg_redact_file(path, err) : 0;

	if (rc)
		lg_session_say(s, unlink(path) ? "%s: could not be redacted, nor removed" : "%s: could not be redacted: removed",
			       path);
	return rc;
}

/* Everything after the last round. The file is closed whatever fails on the way. */
static int end(struct lg_session *s, struct lg_error *err)
{
	struct lg_error later = { 0 };
	unsigned ranks = 0;
	uint64_t bytes;
	int rc;

	for (unsigned i = 0; i < s->n_run; i++)
		if (!s->run[i].failed && s->run[i].src->stop(s->run[i].self, &later))
			lg_session_source_failed(s, &s->run[i], &later);
	drain(s, INT64_MAX);
	lg_session_dumps_end(s);
	rc = lg_session_last_rows(s, &ranks, err);
	if (s->ring) {
		bytes = lg_ring_bytes(s->ring);
		if (!rc)
			rc = lg_ring_dump(s->ring, s->opt->out, INT64_MIN, err);
	} else {
		int closed;

		bytes = lg_writer_bytes(s->writer);
		closed = lg_writer_close(s->writer, rc ? NULL : err);
		s->writer = NULL;
		rc = rc ? rc : closed;
	}
	if (!rc)
		rc = lg_session_redact(s, s->opt->out, err);
	if (!rc)
		say_summary(s, ranks, bytes);
	return rc;
}

static void session_free(struct lg_session *s)
{
	for (unsigned i = s->n_run; i-- > 0;)
		s->run[i].src->free(s->run[i].self);
	lg_devices_free(s->devices);
	ADDRS(lg_addrs_free(s->addrs));
	lg_moments_free(s->moments);
	lg_memory_watch_free(s->memory);
	lg_lives_free(s->lives);
	lg_queue_free(s->q);
	lg_builder_free(s->b);
	lg_ring_free(s->ring);
	lg_writer_abort(s->writer); /* there only if nothing was recorded into it */
	lg_launch_free(s->child);
#ifdef LG_HAVE_HOOK
	lg_hook_free(s->hook);
#endif
	lg_free(s->env);
	if (s->old_files.rlim_max)
		(void)setrlimit(RLIMIT_NOFILE, &s->old_files);
	if (s->epoll >= 0)
		close(s->epoll);
	if (s->signals >= 0) {
		close(s->signals);
		sigaction(SIGPIPE, &s->old_pipe, NULL);
		sigprocmask(SIG_SETMASK, &s->old_mask, NULL);
	}
	lg_free(s);
}

/* The recording is over (--for, a full disk), the command is not. */
static int wait_for_child(struct lg_session *s)
{
	struct epoll_event ev[16];
	unsigned before = s->interrupts;

	if (!lg_launch_ended(s->child, false))
		lg_session_say(s, "waiting for the command to end");
	while (!lg_launch_ended(s->child, false)) {
		if (s->interrupts > before + 1)
			return 128 + SIGINT;
		(void)epoll_wait(s->epoll, ev, 16, -1);
		take_signals(s);
	}
	return lg_launch_status(s->child);
}

int lg_record(const struct lg_record_options *opt, int *ret_status, struct lg_error *err)
{
	struct lg_session *s = lg_calloc(1, sizeof *s);
	struct lg_error ignored;
	int rc, ended;

	if (!s)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	if (!err)
		err = &ignored;
	s->opt = opt;
	s->epoll = s->signals = s->sampler = -1;
	s->drain_every = DRAIN_EVERY;
	*ret_status = 1;
	rc = begin(s, err);
	if (rc) {
		if (s->child && lg_launch_status(s->child) > 0)
			*ret_status = lg_launch_status(s->child); /* 126, 127: it cannot be run */
		session_free(s);
		return rc;
	}
	/* cmd runs: what lay under this name gives way only now, and a kill leaves what came so far. */
	rc = s->writer ? lg_writer_keep(s->writer, err) : 0;
	if (!rc)
		rc = rounds(s, err);
	ended = end(s, rc ? NULL : err);
	rc = rc ? rc : ended;
	if (!s->child) {
		*ret_status = rc ? 1 : 0;
	} else if (s->interrupts > 1 && !lg_launch_ended(s->child, false)) {
		*ret_status = 128 + SIGINT; /* asked to leave at once: cmd goes on without laggard */
	} else {
		*ret_status = wait_for_child(s);
		if (rc && !*ret_status)
			*ret_status = 1;
	}
	session_free(s);
	return rc;
}
