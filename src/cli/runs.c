/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/runs.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/order.h"
#include "import/import.h"

enum { AT_ONCE = 2 };
#define SECOND INT64_C(1000000000)
/* Files of one run that do not overlap lie no further apart: profilers write rank after rank. */
#define NEAR (600 * SECOND)

static bool read_all(int fd, void *to, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t k = read(fd, (char *)to + done, n - done);

		if (k <= 0 && !(k < 0 && errno == EINTR))
			return false;
		done += k > 0 ? (size_t)k : 0;
	}
	return true;
}

static bool write_all(int fd, const void *from, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t k = write(fd, (const char *)from + done, n - done);

		if (k <= 0 && !(k < 0 && errno == EINTR))
			return false;
		done += k > 0 ? (size_t)k : 0;
	}
	return true;
}

/* ---- one run, in a process of its own ------------------------------------------------------------- */

static int subset(const struct lg_paths *all, const uint32_t *group, uint32_t g, struct lg_paths *ret)
{
	struct lg_paths p = { .path = lg_calloc(all->n, sizeof *p.path),
			      .perhaps = lg_calloc(all->n, sizeof *p.perhaps) };

	if (!p.path || !p.perhaps)
		return LG_E_NOMEM;
	for (size_t i = 0; i < all->n; i++) {
		if (group[i] != g)
			continue;
		p.perhaps[p.n] = all->perhaps[i];
		p.path[p.n++] = all->path[i];
	}
	*ret = p;
	return 0;
}

static void judge(const struct lg_paths *all, const uint32_t *group, uint32_t g, int32_t victim, int out)
{
	struct lg_error err = { .offset = LG_NO_OFFSET };
	struct lg_run_row r = LG_RUN_FAILED;
	struct lg_loaded l;
	struct lg_paths p = { 0 };
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	/* What it would say of single files is in its row, or was said. */
	if (null >= 0)
		(void)dup2(null, STDERR_FILENO);
	if (subset(all, group, g, &p))
		_exit(LG_EXIT_FAILED);
	snprintf(r.name, sizeof r.name, "%s", p.path[0]);
	r.files = (uint32_t)p.n;
	if (lg_load_paths(&p, &l, &err) || lg_judge(&l, victim, (double)NAN, &err))
		snprintf(r.title, sizeof r.title, "%.*s", (int)sizeof r.title - 1, err.message);
	else
		lg_run_row_of(l.verdict, &r);
	_exit(write_all(out, &r, sizeof r) ? LG_EXIT_OK : LG_EXIT_FAILED);
}

/* ---- the process that starts them ------------------------------------------------------------------ */

/* What is passed on: of which group, and whether there is a row behind it. */
struct answer {
	uint32_t group;
	struct lg_run_row row;
};

struct running {
	pid_t pid;
	int fd;
	uint32_t group;
};

static void start_one(struct running *x, const struct lg_paths *all, const uint32_t *group, uint32_t g,
		      int32_t victim)
{
	int p[2];

	*x = (struct running){ .fd = -1, .group = g };
	if (pipe2(p, O_CLOEXEC))
		return;
	x->pid = fork();
	if (!x->pid) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		close(p[0]);
		judge(all, group, g, victim, p[1]);
	}
	close(p[1]);
	x->fd = p[0];
}

/* Pass its row on when it is there, or that there is none. False: nobody listens. */
static bool finish_one(struct running *x, const char *name, int out)
{
	struct answer a = { .group = x->group };

	if (x->fd < 0 || !read_all(x->fd, &a.row, sizeof a.row)) {
		a.row = (struct lg_run_row)LG_RUN_FAILED;
		snprintf(a.row.name, sizeof a.row.name, "%s", name);
		snprintf(a.row.title, sizeof a.row.title, "the process that judged it ended early");
	}
	if (x->fd >= 0)
		close(x->fd);
	if (x->pid > 0)
		(void)waitpid(x->pid, NULL, 0);
	x->pid = 0;
	return write_all(out, &a, sizeof a);
}

static const char *first_of(const struct lg_paths *all, const uint32_t *group, uint32_t g)
{
	for (size_t i = 0; i < all->n; i++)
		if (group[i] == g)
			return all->path[i];
	return "";
}

static void serve(const struct lg_paths *all, int32_t victim, int in, int out)
{
	uint32_t *group = lg_calloc(all->n, sizeof *group), n = 0, next = 1;
	struct running x[AT_ONCE] = { { 0 } };
	size_t running = 0;

	if (!group || !read_all(in, group, all->n * sizeof *group))
		_exit(LG_EXIT_OK); /* nobody asked */
	for (size_t i = 0; i < all->n; i++)
		n = LG_MAX(n, group[i]);
	for (bool heard = true; heard && (next <= n || running);) {
		struct pollfd p[AT_ONCE];

		for (size_t k = 0; k < AT_ONCE; k++) {
			if (!x[k].pid && next <= n) {
				start_one(&x[k], all, group, next++, victim);
				running++;
			}
			p[k] = (struct pollfd){ .fd = x[k].pid > 0 ? x[k].fd : -1, .events = POLLIN };
		}
		if (poll(p, AT_ONCE, -1) < 0 && errno != EINTR)
			break;
		for (size_t k = 0; k < AT_ONCE && heard; k++) {
			bool failed = x[k].pid < 0 || (x[k].group && !x[k].pid && x[k].fd < 0);

			if (!p[k].revents && !failed)
				continue;
			heard = finish_one(&x[k], first_of(all, group, x[k].group), out);
			x[k] = (struct running){ 0 };
			running--;
		}
	}
	_exit(LG_EXIT_OK);
}

void lg_runs_start(struct lg_runs *r, const struct lg_paths *paths, int32_t victim_pid)
{
	int ask[2], answer[2];

	*r = (struct lg_runs){ .ask = -1, .answer = -1, .n_paths = paths->n };
	if (pipe2(ask, O_CLOEXEC))
		return;
	if (pipe2(answer, O_CLOEXEC)) {
		close(ask[0]);
		close(ask[1]);
		return;
	}
	r->pid = fork();
	if (!r->pid) {
		/* The end of whoever asks ends it, also by a signal, and its end those that it started. */
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		close(ask[1]);
		close(answer[0]);
		serve(paths, victim_pid, ask[0], answer[1]);
	}
	close(ask[0]);
	close(answer[1]);
	r->ask = ask[1];
	r->answer = answer[0];
}

/* ---- who asks -------------------------------------------------------------------------------------- */

struct placed {
	const struct lg_import_info *info;
	size_t path;
};

LG_ORDER_BY(by_time, struct placed, LG_CMP(x->info->first, y->info->first) ?: LG_CMP(x->path, y->path))
LG_ORDER_BY(by_group, struct answer, LG_CMP(x->group, y->group))

static size_t path_of(const struct lg_paths *p, const struct lg_import_info *info)
{
	size_t i = 0;

	while (i + 1 < p->n && p->path[i] != info->path)
		i++;
	return i;
}

/* One run: files that overlap or lie near each other, and no rank twice. */
static int find_groups(const struct lg_loaded *l, uint32_t *group)
{
	LG_AUTOFREE struct placed *at = lg_calloc(l->n_other + 1, sizeof *at);
	int64_t end = INT64_MIN;
	uint32_t g = 0;
	size_t from = 0;

	if (!at)
		return LG_E_NOMEM;
	for (size_t i = 0; i < l->n_other; i++)
		at[i] = (struct placed){ &l->other[i], path_of(&l->paths, &l->other[i]) };
	LG_SORT(at, l->n_other, by_time);
	for (size_t i = 0; i < l->n_other; i++) {
		bool apart = !i || (double)at[i].info->first - (double)end > 0, anew = !i;

		for (size_t k = from; k < i && apart; k++)
			anew |= at[k].info->rank == at[i].info->rank;
		if (anew || (apart && (double)at[i].info->first - (double)end > (double)NEAR)) {
			g++;
			from = i;
			end = INT64_MIN;
		}
		end = LG_MAX(end, at[i].info->last);
		group[at[i].path] = g;
	}
	return 0;
}

int lg_runs_judge(struct lg_runs *r, const struct lg_loaded *l,
		  struct lg_run_row **ret, size_t *ret_n, struct lg_error *err)
{
	uint32_t *group = lg_calloc(r->n_paths, sizeof *group), n = 0;
	struct answer *a = NULL;
	time_t began = time(NULL);
	char text[96];
	size_t got = 0;
	int rc = group ? 0 : LG_E_NOMEM;

	*ret = NULL;
	*ret_n = 0;
	if (!rc && l)
		rc = find_groups(l, group);
	for (size_t i = 0; !rc && i < r->n_paths; i++) {
		if (!l)
			group[i] = (uint32_t)i + 1;
		n = LG_MAX(n, group[i]);
	}
	a = rc ? NULL : lg_calloc(n, sizeof *a);
	*ret = rc ? NULL : lg_calloc(n, sizeof **ret);
	if (!a || !*ret)
		rc = LG_E_NOMEM;
	if (!rc && r->pid > 0 && write_all(r->ask, group, r->n_paths * sizeof *group)) {
		lg_progress_start("judging the other runs ...");
		while (got < n && read_all(r->answer, &a[got], sizeof *a)) {
			lg_run_row_check(&a[got++].row);
			snprintf(text, sizeof text, "judging the other runs: %zu of %u done, %ld s left ...", got, n,
				 (long)((double)(time(NULL) - began) / (double)got * (double)(n - got)) + 1);
			lg_progress_say(text);
		}
		lg_progress_stop();
	}
	LG_SORT(a, rc ? 0 : got, by_group);
	for (size_t i = 0; !rc && i < got; i++)
		(*ret)[(*ret_n)++] = a[i].row;
	lg_free(a);
	lg_free(group);
	return rc ? lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory") : 0;
}

int lg_runs_table(struct lg_runs *r, const struct lg_loaded *l, struct lg_run_table *ret,
		  struct lg_error *err)
{
	struct lg_run_row *others;
	size_t n;
	int rc;

	if (!l->n_other) {
		ret->of = l->verdict;
		/* The ranks of one recording are in its verdict, which shall fit a screen. */
		if (l->n < 2 || !lg_run_ranks(l->verdict, &ret->row, &ret->n))
			return 0;
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	rc = lg_runs_judge(r, l, &others, &n, err);
	ret->row = rc ? NULL : lg_calloc(n + 1, sizeof *ret->row);
	if (ret->row) {
		lg_run_row_of(l->verdict, &ret->row[ret->n++]);
		for (size_t i = 0; i < n; i++)
			ret->row[ret->n++] = others[i];
	}
	lg_free(others);
	return rc || ret->row ? rc : lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
}

void lg_runs_done(struct lg_runs *r)
{
	if (r->pid <= 0)
		return;
	close(r->ask);
	close(r->answer);
	while (waitpid(r->pid, NULL, 0) < 0 && errno == EINTR)
		;
	r->pid = 0;
}
