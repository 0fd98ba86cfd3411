/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_source.c - blocks, filled by another thread or whoever has the time, as one moving window.
 *
 * I1  a block is free (or being filled), is in the queue, or is the window.
 * I2  each block has HEAD bytes in front of its data: what the caller keeps from the last block is
 *     copied there, so the window is contiguous without moving the new data.
 * I3  when more than HEAD bytes are kept, the window lives in `big` until little is kept again.
 * I4  block k may be filled again, as k + N_BLOCKS, once `freed` is greater than k: two blocks after it
 *     was the window, or, with hold, when who looks at the text later has said so.
 * I5  one thread at a time fills a block (`making`). Where a thread for it alone would be the third on two
 *     cores it is the caller of `more` or the one who looks later (lg_json_source_help()), whoever waits.
 */
#include "import/json/json_source.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "import/json/json_codec.h"
#include "import/source/packing.h"

enum { N_BLOCKS = 8, HEAD = 64 << 10, BLOCK = 512 << 10 };

struct block {
	char *mem; /* HEAD + size + LG_JSON_PAD */
	size_t n;
};

struct lg_json_source {
	struct lg_json_codec *codec;
	int fd;
	size_t size;          /* of a block's data */
	struct block block[N_BLOCKS];
	const char *path;

	/* Producer and consumer: `made` and `taken` count blocks; those between are in the queue. */
	pthread_mutex_t lock;
	pthread_cond_t cond;
	pthread_t thread;
	bool threaded;
	unsigned made, taken; /* of which the window holds block taken - 1 */
	unsigned freed;
	bool making;          /* someone fills block `made` */
	bool starving;        /* the consumer waits for it */
	bool hold, full;      /* who makes blocks waits until half of them are free */
	bool stop, over;      /* consumer wants out; no more blocks come */
	int rc, os_errno;

	const char *win, *win_end; /* the window */
	uint64_t at;          /* offset of win in the text */
	char *big;
	size_t big_cap;
};

/* Fill the next free block; 0 when there was something. */
static int produce(struct lg_json_source *s, struct block *b)
{
	int rc = lg_json_codec_read(s->codec, b->mem + HEAD, s->size, &b->n, &s->os_errno);

	if (rc)
		return rc;
	memset(b->mem + HEAD + b->n, 0, LG_JSON_PAD);
	return 0;
}

/* With the lock, which is let go meanwhile. */
static void make(struct lg_json_source *s)
{
	struct block *b = &s->block[s->made % N_BLOCKS];
	int rc;

	s->making = true;
	pthread_mutex_unlock(&s->lock);
	rc = produce(s, b);
	pthread_mutex_lock(&s->lock);
	s->making = false;
	s->rc = rc;
	s->over = rc || !b->n;
	s->made += !s->over;
	if (s->starving)
		pthread_cond_broadcast(&s->cond);
}

static bool room(const struct lg_json_source *s)
{
	return s->made - s->freed < N_BLOCKS;
}

/* To wake a thread for each block costs more than to fill it: for half of them at once. */
static bool wanted(const struct lg_json_source *s)
{
	return s->full && s->made - s->freed <= N_BLOCKS / 2;
}

static void *producer(void *arg)
{
	struct lg_json_source *s = arg;

	pthread_mutex_lock(&s->lock);
	while (!s->stop && !s->over) {
		s->full = !room(s);
		while (!s->stop && s->full && !wanted(s))
			pthread_cond_wait(&s->cond, &s->lock);
		s->full = false;
		if (!s->stop)
			make(s);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static int nomem(struct lg_error *err)
{
	return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
}

static int source_new(struct lg_json_source **ret, size_t size, struct lg_error *err)
{
	struct lg_json_source *s = lg_calloc(1, sizeof *s);

	if (!s)
		return nomem(err);
	s->fd = -1;
	s->size = size;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->cond, NULL);
	for (size_t i = 0; i < N_BLOCKS; i++) {
		s->block[i].mem = lg_calloc(HEAD + size + LG_JSON_PAD, 1);
		if (!s->block[i].mem) {
			lg_json_source_close(s);
			return nomem(err);
		}
	}
	*ret = s;
	return 0;
}

int lg_json_source_open(struct lg_json_source **ret, const char *path, struct lg_error *err)
{
	struct lg_json_source *s;
	int rc = source_new(&s, BLOCK, err);

	if (rc)
		return rc;
	s->path = path;
	s->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (s->fd < 0) {
		rc = lg_fail_errno(err, errno, "cannot open %s", path);
		lg_json_source_close(s);
		return rc;
	}
	rc = lg_json_codec_new(&s->codec, s->fd, NULL, 0, err);
	if (rc) {
		lg_json_source_close(s);
		return rc;
	}
	s->threaded = sysconf(_SC_NPROCESSORS_ONLN) > 2 && !pthread_create(&s->thread, NULL, producer, s);
	*ret = s;
	return 0;
}

int lg_json_source_memory(struct lg_json_source **ret, const void *data, size_t n, size_t block,
			  struct lg_error *err)
{
	struct lg_json_source *s;
	int rc = source_new(&s, block ? block : BLOCK, err);

	if (rc)
		return rc;
	s->path = "memory";
	rc = lg_json_codec_new(&s->codec, -1, data, n, err);
	if (rc) {
		lg_json_source_close(s);
		return rc;
	}
	*ret = s;
	return 0;
}

/* The next block: 1, at the end 0. */
static int take(struct lg_json_source *s, struct block **ret, struct lg_error *err)
{
	bool wake = false;
	int rc;

	pthread_mutex_lock(&s->lock);
	while (!s->stop && !s->over && s->made == s->taken) {
		if (!s->threaded && !s->making && room(s)) {
			make(s);
			continue;
		}
		if (!s->threaded)
			s->full = !room(s);
		s->starving = true;
		pthread_cond_wait(&s->cond, &s->lock);
		s->starving = false;
		if (!s->threaded)
			s->full = false;
	}
	rc = s->stop ? LG_E_IO : s->made != s->taken ? 1 : s->rc;
	if (rc == 1) {
		*ret = &s->block[s->taken++ % N_BLOCKS];
		/* This one is the window, the one before it is being copied from. */
		if (!s->hold && s->taken > 2)
			s->freed = s->taken - 2;
		wake = wanted(s);
	}
	pthread_mutex_unlock(&s->lock);
	if (wake)
		pthread_cond_broadcast(&s->cond);
	return rc < 0 ? lg_fail_errno(err, s->os_errno, "cannot read %s", s->path) : rc;
}

bool lg_json_source_help(struct lg_json_source *s)
{
	bool can;

	pthread_mutex_lock(&s->lock);
	can = !s->threaded && !s->making && !s->stop && !s->over && room(s);
	if (can)
		make(s);
	pthread_mutex_unlock(&s->lock);
	return can;
}

int lg_json_source_more(struct lg_json_source *s, const char *keep, const char **p,
			const char **end, struct lg_error *err)
{
	size_t kept = keep ? (size_t)(s->win_end - keep) : 0;
	struct block *b = NULL;
	int rc;

	if (kept > LG_JSON_KEEP_MAX)
		return LG_E_LIMIT; /* not a failure of the file: the caller decides */
	if (kept > HEAD && keep != s->big) {
		/* Out of its block before the producer gets it back. */
		size_t skip = (size_t)(keep - s->win);
		bool inside = s->win == s->big;

		if (lg_grow(&s->big, &s->big_cap, kept + s->size + LG_JSON_PAD, 1))
			return nomem(err);
		memmove(s->big, inside ? s->big + skip : keep, kept);
		s->at += skip;
		s->win = keep = s->big;
		s->win_end = s->big + kept;
		memset(s->big + kept, 0, LG_JSON_PAD);
		*p = keep;
		*end = s->win_end;
	}
	rc = take(s, &b, err);
	if (rc <= 0)
		return rc;
	if (keep)
		s->at += (uint64_t)(keep - s->win);
	if (kept > HEAD) {
		if (lg_grow(&s->big, &s->big_cap, kept + b->n + LG_JSON_PAD, 1))
			return nomem(err);
		memcpy(s->big + kept, b->mem + HEAD, b->n + LG_JSON_PAD);
		s->win = s->big;
		s->win_end = s->big + kept + b->n;
	} else {
		if (kept)
			memcpy(b->mem + HEAD - kept, keep, kept);
		s->win = b->mem + HEAD - kept;
		s->win_end = b->mem + HEAD + b->n;
	}
	*p = s->win;
	*end = s->win_end;
	return 1;
}

bool lg_json_source_moves(const struct lg_json_source *s, const char *keep)
{
	return s->win && (s->win == s->big || (keep && s->win_end - keep > HEAD));
}

bool lg_json_source_hold(struct lg_json_source *s)
{
	if (!s->threaded && s->fd < 0)
		return false;
	pthread_mutex_lock(&s->lock);
	s->hold = true;
	pthread_mutex_unlock(&s->lock);
	return true;
}

void lg_json_source_unhold(struct lg_json_source *s)
{
	pthread_mutex_lock(&s->lock);
	s->hold = false;
	if (s->taken > 2)
		s->freed = s->taken - 2;
	pthread_cond_broadcast(&s->cond);
	pthread_mutex_unlock(&s->lock);
}

unsigned lg_json_source_taken(const struct lg_json_source *s)
{
	return s->taken;
}

void lg_json_source_release(struct lg_json_source *s, unsigned taken)
{
	bool wake;

	pthread_mutex_lock(&s->lock);
	/* The window itself may still be copied from. */
	if (taken > s->freed + 1)
		s->freed = taken - 1;
	wake = wanted(s);
	pthread_mutex_unlock(&s->lock);
	if (wake)
		pthread_cond_broadcast(&s->cond);
}

void lg_json_source_stop(struct lg_json_source *s)
{
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	pthread_cond_broadcast(&s->cond);
	pthread_mutex_unlock(&s->lock);
}

uint64_t lg_json_source_offset(const struct lg_json_source *s, const char *p)
{
	return s->at + (uint64_t)(p - s->win);
}

const char *lg_json_source_fault(const struct lg_json_source *s)
{
	return lg_json_codec_fault(s->codec);
}

void lg_json_source_close(struct lg_json_source *s)
{
	if (!s)
		return;
	if (s->threaded) {
		lg_json_source_stop(s);
		pthread_join(s->thread, NULL);
	}
	lg_json_codec_free(s->codec);
	if (s->fd >= 0)
		close(s->fd);
	for (size_t i = 0; i < N_BLOCKS; i++)
		lg_free(s->block[i].mem);
	pthread_cond_destroy(&s->cond);
	pthread_mutex_destroy(&s->lock);
	lg_free(s->big);
	lg_free(s);
}
