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
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool done, left;
	char path[96];
	int flags, error;
	int fd;            /* of lg_patient_open() */
	size_t size;       /* 0 = open only */
	size_t n;
	char buf[];
};

/* Users who withheld a lock, and how often. The recorder's own thread alone asks. */
static struct {
	uint32_t uid;
	unsigned n;
} withheld[USERS];
static unsigned n_users, n_left;

static void end(struct errand *e)
{
	if (e->fd >= 0)
		close(e->fd);
	pthread_cond_destroy(&e->ended);
	pthread_mutex_destroy(&e->lock);
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
	struct errand *e = arg;
	bool left;

	ask(e);
	pthread_mutex_lock(&e->lock);
	e->done = true;
	left = e->left;
	pthread_cond_signal(&e->ended);
	pthread_mutex_unlock(&e->lock);
	if (left)
		end(e);
	return NULL;
}

/* The user of a process; status takes no such lock. */
static uint32_t user_of(int32_t pid)
{
	char path[48], text[4096], *p;
	int fd;
	ssize_t n;

	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	p = strstr(text, "\nUid:");
	return p ? (uint32_t)strtoul(p + 5, NULL, 10) : UINT32_MAX;
}

static bool is_withheld(int32_t pid)
{
	uint32_t uid = n_users ? user_of(pid) : 0;

	for (unsigned i = 0; i < n_users; i++)
		if (withheld[i].uid == uid)
			return withheld[i].n >= OF_A_USER;
	return false;
}

static void note(int32_t pid)
{
	uint32_t uid = user_of(pid);
	unsigned i = 0;

	n_left++;
	while (i < n_users && withheld[i].uid != uid)
		i++;
	if (i == USERS)
		return;
	n_users += i == n_users;
	withheld[i].uid = uid;
	withheld[i].n++;
}

/* Is it done in time? Otherwise it is the thread's. */
static bool waited(struct errand *e)
{
	struct timespec until;
	bool done;
	int rc = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (n_left < IN_ALL ? PATIENCE_MS : IMPATIENCE_MS) * 1000000l;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&e->lock);
	while (!e->done && !rc)
		rc = pthread_cond_clockwait(&e->ended, &e->lock, CLOCK_MONOTONIC, &until);
	done = e->done;
	e->left = !done;
	pthread_mutex_unlock(&e->lock);
	return done;
}

/* NULL with errno. */
static struct errand *sent(int32_t pid, const char *path, int flags, size_t size)
{
	struct errand *e;
	pthread_t thread;
	sigset_t all, old;
	bool threaded;

	if (is_withheld(pid)) {
		errno = EAGAIN;
		return NULL;
	}
	e = lg_calloc(1, sizeof *e + size);
	if (!e) {
		errno = ENOMEM;
		return NULL;
	}
	pthread_mutex_init(&e->lock, NULL);
	pthread_cond_init(&e->ended, NULL);
	e->fd = -1;
	e->flags = flags;
	e->size = size;
	snprintf(e->path, sizeof e->path, "%s", path);
	sigfillset(&all); /* signals are the caller's business */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	threaded = !pthread_create(&thread, NULL, run, e);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!threaded) {
		end(e);
		errno = EAGAIN;
		return NULL;
	}
	pthread_detach(thread);
	if (!waited(e)) {
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
