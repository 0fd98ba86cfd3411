/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_stream.h - the records of a perf.data file, one after the other, from a file or a pipe.
 *
 * Bytes are read into blocks; a record is always contiguous in one block and stays readable as
 * long as somebody holds that block (lg_pd_block_hold/drop). So memory is what is held, not the
 * file: pages of a mapped input would count as resident. Blocks are recycled.
 */
#ifndef LG_IMPORT_PERFDATA_PERF_STREAM_H
#define LG_IMPORT_PERFDATA_PERF_STREAM_H
#include <stdbool.h>

#include "base/error.h"
#include "import/perfdata/perf_bytes.h"

struct lg_pd_block {
	struct lg_pd_block *next; /* in the pool's free list */
	size_t cap;
	uint32_t refs;
	uint8_t bytes[];
};

struct lg_pd_pool {
	struct lg_pd_block *free;
	size_t n_free, max; /* max: kept for reuse; 0 = as many as for a pipe */
};

struct lg_pd_record {
	const uint8_t *p; /* starts with perf_event_header */
	uint32_t type;
	uint16_t misc, size;
	uint64_t offset;  /* in the file; of the compressed record where it came from one */
	struct lg_pd_block *block;
};

struct lg_pd_stream {
	struct lg_pd_pool *pool;
	int fd;             /* -1: fed by lg_pd_stream_room()/_filled() */
	bool swap, eof, nomem;
	uint64_t pos;       /* file offset of the byte at `at` */
	uint64_t limit;     /* file offset where the records end; UINT64_MAX = at end of file */
	struct lg_pd_block *block;
	size_t at, end;     /* unread bytes of block */
	const uint8_t *head;
	size_t n_head;      /* bytes that somebody read from fd before */
	uint64_t skipped, skipped_at; /* damaged: bytes left out by the last next() and where */
	int read_errno;
};

void lg_pd_pool_done(struct lg_pd_pool *p);
/* head: what was read already (borrowed until consumed), fd continues behind it. */
void lg_pd_stream_init(struct lg_pd_stream *s, struct lg_pd_pool *pool, int fd, const uint8_t *head,
		       size_t n_head);
void lg_pd_stream_done(struct lg_pd_stream *s);

/*
 * 1 and the next record; 0 at the end (s->end - s->at > 0: a record is cut off there, or
 * s->read_errno says why); LG_E_NOMEM. Where a header cannot be one, the stream looks for the
 * next place where three records in a row make sense and says how much it left out.
 */
int lg_pd_stream_next(struct lg_pd_stream *s, struct lg_pd_record *ret) LG_MUST_CHECK;
/* n contiguous bytes at the current position, not consumed. 1, 0 = there are fewer, LG_E_NOMEM. */
int lg_pd_stream_ensure(struct lg_pd_stream *s, size_t n) LG_MUST_CHECK;
/* Consume up to n bytes; returns how many there were. */
uint64_t lg_pd_stream_skip(struct lg_pd_stream *s, uint64_t n);

/* Space for at least n bytes behind the unread ones; NULL when memory is exhausted. */
uint8_t *lg_pd_stream_room(struct lg_pd_stream *s, size_t n, size_t *ret_n);
void lg_pd_stream_filled(struct lg_pd_stream *s, size_t n);

static inline void lg_pd_block_hold(struct lg_pd_block *b)
{
	b->refs++;
}
void lg_pd_block_drop(struct lg_pd_pool *pool, struct lg_pd_block *b);

#endif /* LG_IMPORT_PERFDATA_PERF_STREAM_H */
