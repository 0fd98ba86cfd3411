/* SPDX-License-Identifier: Apache-2.0 */
#include "base/patient.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"

enum {
	PATIENCE_MS = 500,
	IN_ALL = 4,        /* left behind: from then on */
	IMPATIENCE_MS = 20,
	OF_A_USER = 2,
	USERS = 64,
};

struct errand {
	char path[96];
	int flags, error;
	int fd;            /* of lg_patient_open() */
	size_t size;       /* 0 = open only */
	size_t n;
	char buf[];
};

/* The thread that asks: one for all errands, until it is left behind with one. */
struct asker {
	pthread_mutex_t lock;
	pthread_cond_t sent, ended;
	struct errand *errand; /* NULL = done */
	bool left;
};

/* Users who withheld a lock, and how often. The recorder's own thread alone sends. */
static struct {
	uint64_t who;
	unsigned n;
} withheld[USERS];
static unsigned n_users, n_left;
static struct asker *asker;
static pid_t asker_of; /* a forked copy has no such thread */

static void end(struct errand *e)
{
	if (e->fd >= 0)
		close(e->fd);
	lg_free(e);
}

static void ask(struct errand *e)
{
	int fd = open(e->path, e->flags);
	ssize_t got = 1;

	e->error = fd < 0 ? errno : 0;
	while (fd >= 0 && e->size && got > 0 && e->n + 1 < e->size) {
		got = read(fd, e->buf + e->n, e->size - 1 - e->n);
		if (got < 0 && !e->n)
			e->error = errno;
		e->n += got > 0 ? (size_t)got : 0;
	}
	if (e->size && fd >= 0) {
		close(fd);
		fd = -1;
	}
	e->fd = fd;
}

static void *run(void *arg)
{
	struct asker *a = arg;

	pthread_mutex_lock(&a->lock);
	while (!a->left) {
		struct errand *e = a->errand;

		if (!e) {
			pthread_cond_wait(&a->sent, &a->lock);
			continue;
		}
		pthread_mutex_unlock(&a->lock);
		ask(e);
		pthread_mutex_lock(&a->lock);
		a->errand = NULL;
		if (a->left)
			end(e);
		else
			pthread_cond_signal(&a->ended);
	}
	pthread_mutex_unlock(&a->lock);
	pthread_cond_destroy(&a->sent);
	pthread_cond_destroy(&a->ended);
	pthread_mutex_destroy(&a->lock);
	lg_free(a);
	return NULL;
}

/*
 * Whom a lock that is withheld is held against: the process's user, status takes no such lock. But of root
 * and of who runs this the one process alone: they attack nobody, and whoever walks a large process of theirs
 * holds its lock for long, which may be what is to be explained.
 */
static uint64_t who_is(int32_t pid)
{
	char path[48], text[4096], *p;
	uint32_t uid;
	int fd;
	ssize_t n;

	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	p = strstr(text, "\nUid:");
	uid = p ? (uint32_t)strtoul(p + 5, NULL, 10) : UINT32_MAX;
	return uid && uid != geteuid() ? uid : UINT64_C(1) << 32 | (uint32_t)pid;
}

static bool is_withheld(int32_t pid)
{
	uint64_t who = n_users ? who_is(pid) : 0;

	for (unsigned i = 0; i < n_users; i++)
		if (withheld[i].who == who)
			return withheld[i].n >= OF_A_USER;
	return false;
}

static void note(int32_t pid)
{
	uint64_t who = who_is(pid);
	unsigned i = 0;

	n_left++;
	while (i < n_users && withheld[i].who != who)
		i++;
	if (i == USERS)
		return;
	n_users += i == n_users;
	withheld[i].who = who;
	withheld[i].n++;
}

/* NULL: there can be none. */
static struct asker *asker_here(void)
{
	struct asker *a = asker;
	pthread_t thread;
	sigset_t all, old;
	bool threaded;

	if (a && asker_of == getpid())
		return a;
	a = asker = lg_calloc(1, sizeof *a);
	if (!a)
		return NULL;
	asker_of = getpid();
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->sent, NULL);
	pthread_cond_init(&a->ended, NULL);
	sigfillset(&all); /* signals are the caller's business */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	threaded = !pthread_create(&thread, NULL, run, a);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (threaded) {
		pthread_detach(thread);
		return a;
	}
	lg_free(a);
	asker = NULL;
	return NULL;
}

void lg_patient_anew(void)
{
	struct asker *a = asker_of == getpid() ? asker : NULL;

	asker = NULL;
	if (!a)
		return;
	pthread_mutex_lock(&a->lock);
	a->left = true;
	pthread_cond_signal(&a->sent);
	pthread_mutex_unlock(&a->lock);
}

/* Does a do it in time? Otherwise the errand is its own. */
static bool done(struct asker *a, struct errand *e)
{
	struct timespec until;
	bool left;
	int rc = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (n_left < IN_ALL ? PATIENCE_MS : IMPATIENCE_MS) * 1000000l;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&a->lock);
	a->errand = e;
	pthread_cond_signal(&a->sent);
	while (a->errand && !rc)
		rc = pthread_cond_clockwait(&a->ended, &a->lock, CLOCK_MONOTONIC, &until);
	left = a->left = a->errand != NULL;
	pthread_mutex_unlock(&a->lock);
	if (left)
		asker = NULL; /* which ends itself */
	return !left;
}

/* NULL with errno. */
static struct errand *sent(int32_t pid, const char *path, int flags, size_t size)
{
	struct errand *e;
	struct asker *a;

	if (is_withheld(pid) || !(a = asker_here())) {
		errno = EAGAIN;
		return NULL;
	}
	e = lg_calloc(1, sizeof *e + size);
	if (!e) {
		errno = ENOMEM;
		return NULL;
	}
	e->fd = -1;
	e->flags = flags;
	e->size = size;
	snprintf(e->path, sizeof e->path, "%s", path);
	if (!done(a, e)) {
		note(pid);
		errno = EAGAIN;
		return NULL;
	}
	return e;
}

ssize_t lg_patient_read(int32_t pid, const char *path, char *buf, size_t size)
{
	struct errand *e = sent(pid, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, size);
	ssize_t n;

	if (!e)
		return -errno;
	n = e->error ? -e->error : (ssize_t)e->n;
	memcpy(buf, e->buf, e->n);
	buf[e->n] = 0;
	end(e);
	return n;
}

int lg_patient_open(int32_t pid, const char *path, int flags)
{
	struct errand *e = sent(pid, path, flags | O_CLOEXEC, 0);
	int fd, error;

	if (!e)
		return -1;
	fd = e->fd;
	error = e->error;
	e->fd = -1;
	end(e);
	errno = error;
	return fd;
}
