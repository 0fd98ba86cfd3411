/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lag_ring.c - chunks as they would lie in a file, kept in memory.
 *
 * I1  chunks are in the order in which they came; keep[] holds what must stay (strings, rows that
 *     others refer to), slide[] what grows old (time tables). A dump writes keep[] first: a reader
 *     takes ids of any order, since they are checked when sealing.
 * I2  bytes = sum of all chunk sizes, <= max_bytes unless keep[] alone is larger.
 */
#include "store/lag_ring.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/place.h"
#include "store/lag_chunk.h"

#define DEFAULT_BYTES ((size_t)256 << 20)

struct held {
	uint8_t *p;
	size_t n;
	int64_t until; /* its latest time, as far as that can be believed */
	struct lg_chunk_header header;
};

struct list {
	struct held *v;
	size_t first, end, cap; /* [first, end) are alive */
};

struct lg_ring {
	struct lg_coder *coder;
	struct lg_lag_header header;
	int64_t keep_ns, newest;
	size_t max_bytes, bytes;
	struct list keep, slide;
	size_t n_str;              /* pool entries seen: the next free number */
	uint64_t dropped;
	int64_t hole_start, hole_end; /* extent of what was dropped */
	uint64_t refused;          /* dictionary rows that found no room */
};

int lg_ring_new(struct lg_ring **ret, int64_t keep_ns, size_t max_bytes, struct lg_error *err)
{
	struct lg_ring *r = lg_calloc(1, sizeof *r);

	if (!r || lg_coder_new(&r->coder)) {
		lg_free(r);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	lg_lag_header_init(&r->header, 1);
	r->keep_ns = keep_ns;
	r->max_bytes = max_bytes ? max_bytes : DEFAULT_BYTES;
	r->newest = INT64_MIN;
	r->n_str = 1;
	r->hole_start = INT64_MAX;
	r->hole_end = INT64_MIN;
	*ret = r;
	return 0;
}

static void list_free(struct list *l)
{
	for (size_t i = l->first; i < l->end; i++)
		lg_free(l->v[i].p);
	lg_free(l->v);
}

void lg_ring_free(struct lg_ring *r)
{
	if (!r)
		return;
	list_free(&r->keep);
	list_free(&r->slide);
	lg_coder_free(r->coder);
	lg_free(r);
}

static int list_add(struct lg_ring *r, struct list *l, const struct lg_chunk_view *v,
		    struct lg_error *err)
{
	struct held h = { .n = v->n, .until = v->header.ts_max, .header = v->header };

	/* Move down only when half is dead, so that a chunk moves once on average. */
	if (l->end == l->cap && l->first > l->cap / 2) {
		memmove(l->v, l->v + l->first, (l->end - l->first) * sizeof *l->v);
		l->end -= l->first;
		l->first = 0;
	}
	if (lg_grow(&l->v, &l->cap, l->end + 1, sizeof *l->v))
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	h.p = lg_calloc(h.n, 1);
	if (!h.p)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	memcpy(h.p, v->p, h.n);
	if (h.until > r->newest)
		h.until = r->newest;
	l->v[l->end++] = h;
	r->bytes += h.n;
	return 0;
}

static void drop_oldest(struct lg_ring *r)
{
	struct held *h = &r->slide.v[r->slide.first++];

	r->bytes -= h->n;
	r->dropped += h->header.rows;
	if (h->header.ts_min < r->hole_start)
		r->hole_start = h->header.ts_min;
	if (h->until > r->hole_end)
		r->hole_end = h->until;
	lg_free(h->p);
	h->p = NULL;
}

/* Chunks of one flush come table by table with about the same extent, so that the front of the
 * list is the oldest up to one flush; a young chunk at the front only delays the rest by that. */
static void expire(struct lg_ring *r)
{
	int64_t oldest;

	if (!__builtin_sub_overflow(r->newest, r->keep_ns, &oldest))
		while (r->slide.first < r->slide.end &&
		       r->slide.v[r->slide.first].until < oldest)
			drop_oldest(r);
	while (r->bytes > r->max_bytes && r->slide.first < r->slide.end)
		drop_oldest(r);
}

/* A chunk that others refer to. Once such chunks alone fill the ring, later ones are refused and
 * counted: their ids read as "none". */
static int keep(struct lg_ring *r, const struct lg_chunk_view *v, struct lg_error *err)
{
	int rc;

	if (r->bytes + v->n > r->max_bytes && r->slide.first == r->slide.end) {
		r->refused += v->header.rows;
		return 0;
	}
	rc = list_add(r, &r->keep, v, err);
	expire(r);
	return rc;
}

static int sink_strings(void *self, const struct lg_trace *t, size_t first, size_t last,
			struct lg_error *err)
{
	struct lg_ring *r = self;
	struct lg_chunk_view v;
	int rc = 0;

	while (!rc && first < last) {
		rc = lg_code_strings(r->coder, t, first, last, &first, &v, err);
		if (!rc)
			rc = keep(r, &v, err);
	}
	r->n_str = last;
	return rc;
}

/* A nonsense time in the future must not make everything else look old: nothing that was recorded
 * ends later than now. */
static void advance(struct lg_ring *r, int64_t ts)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (ts > (int64_t)now.tv_sec * 1000000000 + now.tv_nsec)
		return;
	if (ts > r->newest)
		r->newest = ts;
}

/* Tables whose rows grow old; the others are few and later rows refer to them. */
static int slides(const struct lg_table_desc *d)
{
	switch (d->id) {
	case LG_TABLE_state:
	case LG_TABLE_sample:
	case LG_TABLE_span:
	case LG_TABLE_counter:
	case LG_TABLE_flow:
	case LG_TABLE_mark:
		return 1;
	default:
		return 0;
	}
}

static int sink_rows(void *self, const struct lg_table_desc *d, const struct lg_tab *tab,
		     const uint32_t *rows, size_t n, struct lg_error *err)
{
	struct lg_ring *r = self;
	struct lg_chunk_view v;
	int rc = 0;

	for (size_t i = 0; i < n && !rc; i += LG_CHUNK_ROWS) {
		size_t k = n - i < LG_CHUNK_ROWS ? n - i : LG_CHUNK_ROWS;

		rc = lg_code_rows(r->coder, d, tab, rows ? rows + i : NULL, i, k, &v, err);
		if (rc)
			break;
		if (!slides(d)) {
			rc = keep(r, &v, err);
			continue;
		}
		advance(r, v.header.ts_max);
		rc = list_add(r, &r->slide, &v, err);
		expire(r);
	}
	return rc;
}

const struct lg_sink lg_ring_sink = { .strings = sink_strings, .rows = sink_rows };

struct dump {
	int fd;
	const char *path;
	uint64_t at, written;      /* written: what the disk has taken of at bytes */
	size_t wanted, from;       /* first of slide[] that is asked for, and that goes into the file */
	uint64_t too_old, left_out; /* rows before the one; between the two */
	struct lg_dir_entry *dir;
	size_t n_dir, dir_cap;
};

static int dump_bytes(struct dump *d, const void *buf, size_t n, struct lg_error *err)
{
	const uint8_t *p = buf;

	d->at += n;
	while (n) {
		ssize_t k = write(d->fd, p, n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return lg_fail_errno(err, k ? errno : ENOSPC, "cannot write %s", d->path);
		d->written += (uint64_t)k;
		p += k;
		n -= (size_t)k;
	}
	return 0;
}

static int dump_chunk(struct dump *d, const uint8_t *p, size_t n, struct lg_chunk_header h,
		      struct lg_error *err)
{
	uint8_t head[LG_CHUNK_HEADER_BYTES];
	int rc;

	if (lg_grow(&d->dir, &d->dir_cap, d->n_dir + 1, sizeof *d->dir))
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	/* Held chunks are numbered anew in each dump, so the bytes held stay as they are. */
	lg_chunk_number(head, &h, (uint32_t)d->n_dir);
	d->dir[d->n_dir++] = (struct lg_dir_entry){ .offset = d->at, .header = h };
	rc = dump_bytes(d, head, sizeof head, err);
	return rc ? rc : dump_bytes(d, p + sizeof head, n - sizeof head, err);
}

static int dump_list(struct dump *d, const struct list *l, size_t from, struct lg_error *err)
{
	int rc = 0;

	for (size_t i = from; i < l->end && !rc; i++)
		rc = dump_chunk(d, l->v[i].p, l->v[i].n, l->v[i].header, err);
	return rc;
}

/* Rows of [first, end) of slide[] are not in the file. */
static void note_left_out(struct lg_ring *r, struct lg_builder *b, size_t first, size_t end, uint64_t rows,
			  size_t text)
{
	int64_t from = r->slide.v[first].header.ts_min, hole;

	if (__builtin_sub_overflow(r->slide.v[end - 1].until, from, &hole) || hole < 0)
		hole = 0;
	lg_add_diag(b, &(struct lg_diag_row){ .ts = from, .dur = hole, .id = LG_DIAG_RING_DROPPED, .cpu = -1,
					      .count = rows, .text = (lg_str)(r->n_str + text) });
}

/* What the ring left out, as diag rows of this dump alone: their text takes pool numbers that the
 * recording has not given out yet. */
static int dump_notes(struct lg_ring *r, struct dump *d, struct lg_error *err)
{
	struct lg_builder *b;
	struct lg_trace *t;
	struct lg_chunk_view v;
	char text[4][160] = { "" };
	size_t last, n = 0;
	int64_t hole;
	int rc;

	if (!r->dropped && !r->refused && !d->left_out && !d->too_old)
		return 0;
	rc = lg_builder_new(&b, err);
	if (rc)
		return rc;
	t = lg_builder_trace(b);
	/* Numbers 1 .. n_str - 1 are the recording's. Empty entries stand in for them here, and
	 * only the ones from n_str on are written. */
	while (t->n_str < r->n_str && !rc)
		rc = lg_builder_put_string(b, "", 0);
	if (__builtin_sub_overflow(r->hole_end, r->hole_start, &hole) || hole < 0)
		hole = 0;
	if (r->dropped) {
		snprintf(text[n], sizeof text[n], "%llu rows older than the ring keeps (%.3g s, %zu MiB)",
			 (unsigned long long)r->dropped, (double)r->keep_ns / 1e9,
			 r->max_bytes >> 20);
		lg_add_diag(b, &(struct lg_diag_row){
				       .ts = r->hole_start,
				       .dur = hole,
				       .id = LG_DIAG_RING_DROPPED, .cpu = -1, .count = r->dropped,
				       .text = (lg_str)(r->n_str + n) });
		n++;
	}
	if (d->too_old) {
		snprintf(text[n], sizeof text[n], "%llu rows from before what this file is about",
			 (unsigned long long)d->too_old);
		note_left_out(r, b, r->slide.first, d->wanted, d->too_old, n++);
	}
	if (d->left_out) {
		snprintf(text[n], sizeof text[n],
			 "the disk is full: the oldest %llu rows are not in this file",
			 (unsigned long long)d->left_out);
		note_left_out(r, b, d->wanted, d->from, d->left_out, n++);
	}
	if (r->refused) {
		snprintf(text[n], sizeof text[n], "names and stacks alone fill the ring's %zu MiB; "
			 "later ones are missing", r->max_bytes >> 20);
		lg_add_diag(b, &(struct lg_diag_row){
				       .ts = r->newest, .id = LG_DIAG_TABLE_FULL, .cpu = -1,
				       .count = r->refused, .text = (lg_str)(r->n_str + n) });
		n++;
	}
	for (size_t i = 0; i < n && !rc; i++)
		rc = lg_builder_put_string(b, text[i], strlen(text[i]));
	if (rc || lg_builder_failed(b)) {
		lg_builder_free(b);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	rc = lg_code_strings(r->coder, t, r->n_str, t->n_str, &last, &v, err);
	if (!rc)
		rc = dump_chunk(d, v.p, v.n, v.header, err);
	if (!rc)
		rc = lg_code_rows(r->coder, lg_schema_table(LG_TABLE_diag),
				  (const struct lg_tab *)(const void *)&t->diag, NULL, 0, n, &v, err);
	if (!rc)
		rc = dump_chunk(d, v.p, v.n, v.header, err);
	lg_builder_free(b);
	return rc;
}

static int dump_all(struct lg_ring *r, struct dump *d, struct lg_error *err)
{
	struct lg_chunk_view v;
	struct lg_lag_trailer t;
	uint64_t n_chunks, at;
	int rc = dump_bytes(d, &r->header, sizeof r->header, err);

	if (!rc)
		rc = dump_list(d, &r->keep, r->keep.first, err);
	if (!rc)
		rc = dump_list(d, &r->slide, d->from, err);
	if (!rc)
		rc = dump_notes(r, d, err);
	if (rc)
		return rc;
	n_chunks = d->n_dir;
	at = d->at;
	rc = lg_code_directory(r->coder, d->dir, d->n_dir, &v, err);
	if (!rc)
		rc = dump_chunk(d, v.p, v.n, v.header, err);
	lg_lag_trailer_init(&t, at, n_chunks);
	return rc ? rc : dump_bytes(d, &t, sizeof t, err);
}

static bool disk_is_full(const struct lg_error *err)
{
	return err->os_errno == ENOSPC || err->os_errno == EDQUOT || err->os_errno == EFBIG;
}

/* Leave out the oldest chunks, so many that the rest fits where the disk was full. False: nothing
 * would be left that is worth a file. */
static bool lighten(const struct lg_ring *r, struct dump *d)
{
	size_t n_slide = r->slide.end - d->from, n_keep = r->keep.end - r->keep.first;
	/* Directory, trailer and the note on what is left out, none of it compressed. */
	uint64_t need = sizeof r->header + (n_slide + n_keep) * sizeof(struct lg_dir_entry) + 8192;
	size_t from = r->slide.end, least = d->from + n_slide / 8 + 1;

	for (size_t i = r->keep.first; i < r->keep.end; i++)
		need += r->keep.v[i].n;
	while (from > least && need + r->slide.v[from - 1].n <= d->written)
		need += r->slide.v[--from].n;
	if (!n_slide || from >= r->slide.end)
		return false;
	for (; d->from < from; d->from++)
		d->left_out += r->slide.v[d->from].header.rows;
	d->at = d->written = d->n_dir = 0;
	return !ftruncate(d->fd, 0) && lseek(d->fd, 0, SEEK_SET) == 0;
}

int lg_ring_dump(struct lg_ring *r, const char *path, int64_t since, struct lg_error *err)
{
	struct dump d = { .path = path, .wanted = r->slide.first };
	struct lg_place *place;
	struct lg_error ignored;
	int rc;

	err = err ? err : &ignored;
	while (d.wanted < r->slide.end && r->slide.v[d.wanted].until < since)
		d.too_old += r->slide.v[d.wanted++].header.rows;
	d.from = d.wanted;
	rc = lg_place_open(&place, path, err);
	if (rc)
		return rc;
	d.fd = lg_place_fd(place);
	rc = dump_all(r, &d, err);
	while (rc && disk_is_full(err) && lg_place_is_file(place) && lighten(r, &d))
		rc = dump_all(r, &d, err);
	lg_free(d.dir);
	if (!rc)
		rc = lg_place_close(place, err);
	if (!rc)
		rc = lg_place_keep(place, err);
	lg_place_free(place);
	if (rc || !d.left_out)
		return rc;
	return lg_fail_errno(err, ENOSPC, "only the newest %.1f MB are in %s", (double)d.at * 1e-6, path);
}

size_t lg_ring_bytes(const struct lg_ring *r)
{
	return r->bytes;
}

uint64_t lg_ring_dropped(const struct lg_ring *r)
{
	return r->dropped;
}
