/* SPDX-License-Identifier: Apache-2.0 */
#include "import/perfdata/perf_stream.h"

#include <errno.h>
#include <unistd.h>

#include "base/alloc.h"
#include "import/perfdata/perf_abi.h"

enum {
	BLOCK_BYTES = 256 << 10, /* stays in the second-level cache between reading and decoding */
	POOL_MAX = 64,           /* blocks kept for reuse: the first touch of a page is dear */
	RESYNC_CHAIN = 3
};

void lg_pd_pool_done(struct lg_pd_pool *p)
{
	while (p->free) {
		struct lg_pd_block *b = p->free;

		p->free = b->next;
		lg_free(b);
	}
	p->n_free = 0;
}

static struct lg_pd_block *block_new(struct lg_pd_pool *pool, size_t need)
{
	struct lg_pd_block *b = pool->free;

	if (b && need <= b->cap) {
		pool->free = b->next;
		pool->n_free--;
	} else {
		size_t cap = need > BLOCK_BYTES ? need : BLOCK_BYTES;

		b = lg_realloc(NULL, sizeof *b + cap, 1);
		if (!b)
			return NULL;
		b->cap = cap;
	}
	b->refs = 1;
	b->next = NULL;
	return b;
}

void lg_pd_block_drop(struct lg_pd_pool *pool, struct lg_pd_block *b)
{
	if (!b || --b->refs)
		return;
	if (b->cap != BLOCK_BYTES || pool->n_free >= (pool->max ? pool->max : POOL_MAX)) {
		lg_free(b);
		return;
	}
	b->next = pool->free;
	pool->free = b;
	pool->n_free++;
}

void lg_pd_stream_init(struct lg_pd_stream *s, struct lg_pd_pool *pool, int fd, const uint8_t *head,
		       size_t n_head)
{
	*s = (struct lg_pd_stream){ .pool = pool, .fd = fd, .limit = UINT64_MAX,
				    .head = head, .n_head = n_head };
}

void lg_pd_stream_done(struct lg_pd_stream *s)
{
	lg_pd_block_drop(s->pool, s->block);
	s->block = NULL;
	s->at = s->end = 0;
}

uint8_t *lg_pd_stream_room(struct lg_pd_stream *s, size_t n, size_t *ret_n)
{
	size_t left = s->end - s->at;

	if (!s->block || s->block->cap - s->end < n) {
		struct lg_pd_block *b = block_new(s->pool, left + n);

		if (!b) {
			s->nomem = true;
			return NULL;
		}
		if (left)
			memcpy(b->bytes, s->block->bytes + s->at, left);
		lg_pd_block_drop(s->pool, s->block);
		s->block = b;
		s->at = 0;
		s->end = left;
	}
	*ret_n = s->block->cap - s->end;
	return s->block->bytes + s->end;
}

void lg_pd_stream_filled(struct lg_pd_stream *s, size_t n)
{
	s->end += n;
}

/* Some more bytes, at most room and never beyond limit. 0 at the end. */
static size_t pull(struct lg_pd_stream *s, uint8_t *to, size_t room)
{
	uint64_t have = s->pos + (s->end - s->at);
	ssize_t k;

	if (have >= s->limit)
		return 0;
	if (room > s->limit - have)
		room = (size_t)(s->limit - have);
	if (s->n_head) {
		size_t n = s->n_head < room ? s->n_head : room;

		memcpy(to, s->head, n);
		s->head += n;
		s->n_head -= n;
		return n;
	}
	if (s->fd < 0 || s->eof)
		return 0;
	do {
		k = read(s->fd, to, room);
	} while (k < 0 && errno == EINTR);
	if (k < 0)
		s->read_errno = errno;
	if (k <= 0)
		s->eof = true;
	return k > 0 ? (size_t)k : 0;
}

int lg_pd_stream_ensure(struct lg_pd_stream *s, size_t n)
{
	while (s->end - s->at < n) {
		size_t room, got;
		uint8_t *to;

		if (s->fd < 0 && !s->n_head)
			return 0;
		to = lg_pd_stream_room(s, n - (s->end - s->at), &room);
		if (!to)
			return LG_E_NOMEM;
		got = pull(s, to, room);
		if (!got)
			return 0;
		s->end += got;
	}
	return 1;
}

static void consume(struct lg_pd_stream *s, size_t n)
{
	s->at += n;
	s->pos += n;
}

uint64_t lg_pd_stream_skip(struct lg_pd_stream *s, uint64_t n)
{
	uint64_t done = 0;

	while (done < n) {
		size_t have = s->end - s->at;

		if (!have) {
			int rc = lg_pd_stream_ensure(s, 1);

			if (rc <= 0)
				break;
			have = s->end - s->at;
		}
		if (have > n - done)
			have = (size_t)(n - done);
		consume(s, have);
		done += have;
	}
	return done;
}

static bool known_type(uint32_t type)
{
	/* Some room for kinds that are younger than this program. */
	return (type > 0 && type <= PD_CALLCHAIN_DEFERRED + 10) ||
	       (type >= PD_USER && type <= PD_SCHEDSTAT_DOMAIN + 10) ||
	       (type >= PD_SIMPLE_FIRST && type <= PD_SIMPLE_LAST);
}

static bool plausible(const uint8_t *p, bool swap)
{
	uint16_t size = pd_u16(p + 6, swap);

	return known_type(pd_u32(p, swap)) && size >= PD_RECORD_HEADER;
}

/* simpleperf's own records may be longer than 16 bits can say: what then follows the header is payload. */
static bool is_long(const struct lg_pd_stream *s, const uint8_t *p)
{
	uint32_t type = pd_u32(p, s->swap), high = pd_u16(p + 4, s->swap);

	return type >= PD_SIMPLE_FIRST && type <= PD_SIMPLE_LAST && high &&
	       (high << 16 | pd_u16(p + 6, s->swap)) <= s->limit - s->pos;
}

/* Three records in a row, or up to the very end, that make sense. */
static int chain_at(struct lg_pd_stream *s)
{
	size_t n = 0;

	for (int i = 0; i < RESYNC_CHAIN; i++) {
		int rc = lg_pd_stream_ensure(s, n + PD_RECORD_HEADER);
		const uint8_t *p;

		if (rc < 0)
			return rc;
		if (!rc)
			return i && s->end - s->at == n;
		p = s->block->bytes + s->at + n;
		if (!plausible(p, s->swap) || pd_u16(p + 6, s->swap) % 8)
			return 0;
		n += pd_u16(p + 6, s->swap);
	}
	return 1;
}

static int resync(struct lg_pd_stream *s)
{
	int rc = 0;

	s->skipped_at = s->pos;
	do {
		consume(s, 8);
		s->skipped += 8;
		rc = lg_pd_stream_ensure(s, PD_RECORD_HEADER);
		if (rc <= 0)
			return rc;
		rc = plausible(s->block->bytes + s->at, s->swap) ? chain_at(s) : 0;
	} while (!rc);
	return rc;
}

int lg_pd_stream_next(struct lg_pd_stream *s, struct lg_pd_record *ret)
{
	const uint8_t *p;
	uint16_t size;
	int rc;

	s->skipped = 0;
	rc = lg_pd_stream_ensure(s, PD_RECORD_HEADER);
	if (rc <= 0)
		return rc;
	p = s->block->bytes + s->at;
	if (__builtin_expect(!plausible(p, s->swap) && !is_long(s, p), 0)) {
		rc = resync(s);
		if (rc <= 0)
			return rc;
	}
	p = s->block->bytes + s->at;
	size = __builtin_expect(is_long(s, p), 0) ? PD_RECORD_HEADER : pd_u16(p + 6, s->swap);
	rc = lg_pd_stream_ensure(s, size);
	if (rc <= 0)
		return rc;
	p = s->block->bytes + s->at;
	*ret = (struct lg_pd_record){ .p = p, .type = pd_u32(p, s->swap),
				      .misc = pd_u16(p + 4, s->swap), .size = size,
				      .offset = s->pos, .block = s->block };
	consume(s, size);
	return 1;
}
