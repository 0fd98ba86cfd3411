/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_send.c - the process that takes batches from the spool to the store.
 *
 * It has the network and what a server answers, so it has no capability. A batch stays in the spool until
 * the store has it; what is sent a second time replaces itself there. After a failure it waits, twice as
 * long each time up to a minute, and by a random part of that, so that not all nodes come back at once.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/confine.h"
#include "base/order.h"
#include "cli/agent.h"

#define LEAST_WAIT (LG_AGENT_SECOND / 2)
#define MOST_WAIT (60 * LG_AGENT_SECOND)

static void tell_error(struct lg_agent_sent *sent, const char *text)
{
	atomic_fetch_add(&sent->writing, 1);
	snprintf(sent->error, sizeof sent->error, "%.255s", text);
	atomic_fetch_add(&sent->writing, 1);
}

static void rest(int64_t ns)
{
	struct timespec t = { ns / LG_AGENT_SECOND, ns % LG_AGENT_SECOND };

	(void)nanosleep(&t, NULL);
}

static int send_one(struct lg_fleet *f, struct lg_spool *spool, struct lg_agent_sent *sent, bool *ret_any,
		    struct lg_error *err)
{
	struct timespec now;
	struct lg_spooled one;
	int rc = lg_spool_oldest(spool, &one, err);

	*ret_any = rc > 0;
	if (rc <= 0)
		return rc;
	rc = lg_fleet_put(f, one.bytes, one.n, err);
	if (rc == LG_E_FORMAT) { /* torn, or not of our making: never will it be taken */
		atomic_fetch_add(&sent->damaged_rows, one.rows);
		tell_error(sent, err->message);
		lg_spool_done(spool, &one, true);
		return 0;
	}
	if (!rc) {
		clock_gettime(CLOCK_REALTIME, &now);
		atomic_store(&sent->last_ok_us, (uint64_t)now.tv_sec * 1000000u);
		atomic_fetch_add(&sent->batches, 1);
		atomic_fetch_add(&sent->rows, one.rows);
	}
	lg_spool_done(spool, &one, !rc);
	return rc;
}

static void send_all(const struct lg_agent_settings *s, struct lg_agent_sent *sent)
{
	struct lg_fleet_options o = { .store = s->store, .user = *s->user ? s->user : NULL,
				      .token_file = *s->token_file ? s->token_file : NULL,
				      .ca_file = *s->ca_file ? s->ca_file : NULL, .write = true };
	char path[LG_AGENT_TEXT + 16];
	int64_t wait = LEAST_WAIT;
	struct lg_fleet *f = NULL;
	struct lg_spool spool = { .dir = -1 };

	snprintf(path, sizeof path, "%s/spool", s->state);
	for (;;) {
		struct lg_error err = { .offset = LG_NO_OFFSET };
		bool any = false;
		int rc = spool.dir >= 0 ? 0 : lg_spool_open(&spool, path, s->spool_bytes, &err);

		if (!rc && !f) {
			rc = lg_fleet_open(&f, &o, &err) ?: lg_fleet_check(f, &err);
			if (rc) {
				lg_fleet_close(f);
				f = NULL;
			}
		}
		rc = rc ?: send_one(f, &spool, sent, &any, &err);
		if (!rc) {
			wait = LEAST_WAIT;
			if (!any)
				rest(LEAST_WAIT);
			continue;
		}
		atomic_fetch_add(&sent->failures, 1);
		tell_error(sent, err.message);
		lg_fleet_close(f); /* a server that was restarted is another one */
		f = NULL;
		rest(wait / 2 + (int64_t)((double)wait / 2 * drand48()));
		wait = LG_MIN(2 * wait, MOST_WAIT);
	}
}

pid_t lg_agent_send_start(const struct lg_agent_settings *s, struct lg_agent_sent *sent, int lock)
{
	struct lg_error ignored;
	sigset_t none;
	pid_t parent = getpid(), pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(0);
	close(lock);
	signal(SIGTERM, SIG_DFL);
	signal(SIGINT, SIG_IGN); /* a terminal's comes to all: the agent ends this one */
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	(void)setpriority(PRIO_PROCESS, 0, 10);
	(void)!lg_confine_capabilities(0, &ignored);
	srand48((long)lg_agent_now() ^ getpid());
	send_all(s, sent);
	_exit(0);
}
