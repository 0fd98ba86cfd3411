/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_judge.c - what slow steps were lost to, from the file of a ring: in a process of its own, which
 * reads files as every other command does and writes packets of one size to a pipe.
 *
 * A ring holds more than the window that is asked about, so that a wait which began before it is seen
 * whole. What was lost before or after the window was, or will be, judged with that one: no moment counts
 * twice.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/order.h"
#include "base/printable.h"
#include "cli/agent.h"
#include "cli/load.h"
#include "rules/rules.h"

enum { CPU_S = 60, VICTIMS = 8, FRAMES = 12 };

/* Whole characters, and none that acts on a terminal. */
static void text(char *to, size_t size, const char *from)
{
	char shown[1024];

	snprintf(shown, sizeof shown, "%.1000s", from ? from : "");
	for (char *p = shown; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 127)
			*p = '?';
	snprintf(to, size, "%.*s", (int)lg_whole_chars(shown, strlen(shown), size - 1), shown);
}

/* An interpreter is many programs: the script's name, without its folder, else the process's. */
static void process_name(char *to, size_t size, const struct lg_finding *f)
{
	const char *line = f->culprit.cmdline, *end = line ? strstr(line, ".py") : NULL, *at;

	while (end && end[3] && end[3] != ' ')
		end = strstr(end + 3, ".py");
	if (!end || !f->culprit.comm || strncmp(f->culprit.comm, "python", 6)) {
		text(to, size, f->culprit.comm);
		return;
	}
	for (at = end; at > line && at[-1] != '/' && at[-1] != ' ';)
		at--;
	{
		char name[64];

		snprintf(name, sizeof name, "%.*s", (int)LG_MIN((size_t)(end + 3 - at), sizeof name - 1), at);
		text(to, size, name);
	}
}

static void stack_text(char *to, size_t size, const struct lg_finding *f)
{
	char all[1024] = "";
	size_t n = 0;

	for (size_t i = 0; i < f->culprit.n_stack && i < FRAMES && n < sizeof all - 2; i++)
		n += (size_t)snprintf(all + n, sizeof all - n, "%s%.100s", i ? ";" : "", f->culprit.stack[i]);
	text(to, size, all);
}

/* Of what it lost, in the window; where moments are not kept, by the window's share. *ret_ts: of the first
 * moment. */
static int64_t lost_within(const struct lg_verdict *v, const struct lg_finding *f, int64_t from, int64_t to,
			   int64_t *ret_ts, uint32_t *ret_seen)
{
	double run = v->n_inputs ? v->inputs[0].duration_s * 1e9 : 0;
	int64_t lost = 0, end = INT64_MIN;

	*ret_ts = from;
	*ret_seen = 0;
	if (!f->n_moments) {
		*ret_seen = 1;
		return isfinite(f->lost_ms) && run > 0
			       ? (int64_t)(f->lost_ms * 1e6 * fmin(1, (double)(to - from) / run)) : 0;
	}
	for (size_t i = 0; i < f->n_moments; i++) {
		int64_t a = LG_MAX(f->moments[i].ts, from),
			b = LG_MIN(f->moments[i].ts + f->moments[i].dur, to);

		if (b <= a)
			continue;
		if (!lost || a < *ret_ts)
			*ret_ts = a;
		lost += b - a;
		/* Moments of one blow touch, or nearly so. */
		*ret_seen += a > end + 10000000 || a < end - 10000000;
		end = b;
	}
	return lost;
}

static int64_t step_at(const struct lg_verdict *v, int32_t rank, int64_t ts)
{
	for (size_t i = 0; i < v->n_steps; i++)
		if (v->steps[i].ts <= ts && ts < v->steps[i].ts + v->steps[i].dur &&
		    (rank < 0 || v->steps[i].rank == rank))
			return v->steps[i].number;
	return -1;
}

static bool put(int fd, const struct lg_agent_stall *s)
{
	return write(fd, s, sizeof *s) == (ssize_t)sizeof *s;
}

static void tell(const struct lg_verdict *v, int64_t from, int64_t to, int fd)
{
	size_t left = LG_AGENT_STALLS;

	for (size_t i = 0; i < v->n_findings && left; i++) {
		const struct lg_finding *f = &v->findings[i];
		size_t n = LG_MIN(LG_MAX(f->n_victims, (size_t)1), (size_t)VICTIMS);
		struct lg_agent_stall s = { .rank = -1, .pid = f->culprit.pid };
		int64_t lost = lost_within(v, f, from, to, &s.ts, &s.seen);

		if (lost <= 0 || f->severity < LG_SEVERITY_LOW)
			continue;
		s.conf = (uint8_t)(100 * fmin(fmax(f->confidence, 0), 1));
		text(s.rule, sizeof s.rule, f->id);
		text(s.stage, sizeof s.stage, f->stage);
		process_name(s.process, sizeof s.process, f);
		text(s.func, sizeof s.func, f->culprit.function);
		text(s.object, sizeof s.object, f->culprit.lock);
		stack_text(s.stack, sizeof s.stack, f);
		text(s.said, sizeof s.said, f->title);
		/* Several were held up in turn, or together: each has its part, and all parts are the
		 * whole. */
		for (size_t k = 0; k < n && left; k++, left--) {
			s.rank = f->n_victims ? f->victims[k].rank : -1;
			s.step = step_at(v, s.rank, s.ts);
			s.lost = lost / (int64_t)n + (k < (size_t)(lost % (int64_t)n));
			if (!put(fd, &s))
				return;
		}
	}
}

void lg_agent_judge(char *path, int64_t from, int64_t to, int fd)
{
	struct rlimit cpu = { CPU_S, CPU_S };
	struct lg_error err = { .offset = LG_NO_OFFSET };
	struct lg_loaded l;
	int rc;

	signal(SIGPIPE, SIG_IGN);
	(void)setpriority(PRIO_PROCESS, 0, 19);
	(void)setrlimit(RLIMIT_CPU, &cpu);
	rc = lg_load(&path, 1, &l, &err) ?: lg_judge(&l, 0, (double)NAN, &err);
	if (rc) {
		lg_complain(&err);
		_exit(LG_EXIT_FAILED);
	}
	tell(l.verdict, from, to, fd);
	_exit(LG_EXIT_OK);
}
