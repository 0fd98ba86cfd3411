/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lag_read.c - one pass from the first byte to the last; the directory is for tools that want
 * single chunks. The file is read, not mapped: a recording that is cut short under a mapping
 * raises SIGBUS, and mapped pages count as resident memory.
 *
 * I1  buf[pos .. n) are the bytes from file offset at; at - pos never grows beyond what was read.
 * I2  a chunk is used only after both of its checksums matched.
 * I3  memory taken for rows is bounded by the bytes read so far (budget_rows): a few bytes
 *     cannot claim millions of rows.
 */
#include "store/lag_read.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

#include "base/alloc.h"
#include "store/lag_chunk.h"

/*
 * Bytes looked at in vain: passed by in search of a chunk, summed or unpacked for nothing. A hole of
 * terabytes costs its writer nothing, nor does a header every 64 bytes that claims the next 64 MB.
 */
#define IN_VAIN_MAX ((uint64_t)1 << 30)

struct reader {
	const char *path;
	struct lg_builder *b;
	int fd;               /* -1: all bytes are in buf from the start */
	uint8_t *own;         /* buf, when it is ours */
	const uint8_t *buf;
	size_t pos, n, cap;
	uint64_t at;          /* file offset of buf[pos] */
	int eof;

	struct lg_decoded cols;
	ZSTD_DCtx *z;
	uint8_t *raw;
	size_t raw_cap;

	uint32_t next_seq;
	uint64_t n_good, rows;
	uint64_t n_bad;       /* stretches of damage */
	uint64_t in_vain;
	uint64_t first_bad;   /* file offset */
	uint64_t n_missing;   /* chunks that the numbering says are gone */
	uint64_t n_unknown;   /* chunks of sections of a newer laggard */
	int complete;         /* the trailer was there */
	int over_budget;
	struct lg_lag_header header;
};

/*
 * Our writer puts at most 65536 rows behind a header of 64 bytes, so an honest file has fewer than
 * 1024 rows a byte even if all rows are alike; a large one in which that goes on is a bomb.
 */
static uint64_t budget_rows(const struct reader *r)
{
	uint64_t bytes = r->at + (r->n - r->pos);
	uint64_t few = (1u << 17) + bytes * 1024, many = (8u << 20) + bytes * 8;

	return few < many ? few : many;
}

static int oom(struct lg_error *err)
{
	return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
}

/* Make need bytes available at buf[pos]; *ret says how many there are (fewer at the end). */
static int fill(struct reader *r, size_t need, size_t *ret, struct lg_error *err)
{
	enum { READ_AHEAD = 1 << 20 };

	if (r->n - r->pos < need && !r->eof) {
		if (r->pos)
			memmove(r->own, r->own + r->pos, r->n - r->pos);
		r->n -= r->pos;
		r->pos = 0;
		if (lg_grow(&r->own, &r->cap, need + READ_AHEAD, 1))
			return oom(err);
		r->buf = r->own;
		while (r->n < need) {
			ssize_t k = read(r->fd, r->own + r->n, r->cap - r->n);

			if (k < 0 && errno == EINTR)
				continue;
			if (k < 0)
				return lg_fail_errno(err, errno, "cannot read %s", r->path);
			if (!k) {
				r->eof = 1;
				break;
			}
			r->n += (size_t)k;
		}
	}
	*ret = r->n - r->pos;
	return 0;
}

static void skip(struct reader *r, size_t n)
{
	r->pos += n;
	r->at += n;
}

static void damaged(struct reader *r)
{
	if (!r->n_bad++)
		r->first_bad = r->at;
}

static int put_strings(struct reader *r, const uint8_t *p, size_t n, size_t rows,
		       struct lg_error *err)
{
	struct lg_trace *t = lg_builder_trace(r->b);
	const uint8_t *end = p + n, *len_at, *text;
	uint64_t first, len, sum = 0;

	if (lg_varint(&p, end, &first) || !first)
		return LG_E_FORMAT;
	len_at = p;
	for (size_t i = 0; i < rows; i++) {
		if (lg_varint(&p, end, &len) || len > (uint64_t)(end - p))
			return LG_E_FORMAT;
		sum += len;
	}
	if (sum != (uint64_t)(end - p))
		return LG_E_FORMAT;
	/* Entries before first were in a chunk that is gone: keep the numbering. */
	if (first > t->n_str && first - t->n_str > budget_rows(r))
		return LG_E_FORMAT;
	while (t->n_str < first)
		if (lg_builder_put_string(r->b, "", 0))
			return oom(err);
	text = p;
	for (size_t i = 0; i < rows; i++) {
		if (lg_varint(&len_at, end, &len))
			return LG_E_FORMAT;
		if (first + i >= t->n_str && lg_builder_put_string(r->b, (const char *)text, len))
			return oom(err);
		text += len;
	}
	return 0;
}

static int put_rows(struct reader *r, const struct lg_table_desc *d, const uint8_t *p, size_t n,
		    size_t rows, struct lg_error *err)
{
	int rc = lg_decode_rows(&r->cols, d, p, n, rows);

	if (rc)
		return rc == LG_E_NOMEM ? oom(err) : rc;
	for (size_t i = 0; d->is_dict && i < rows; i++)
		if (r->cols.ids[i] > budget_rows(r))
			return LG_E_FORMAT;
	rc = lg_builder_put_columns(r->b, d, rows, r->cols.ids, (const void *const *)r->cols.cols);
	return rc == LG_E_NOMEM ? oom(err) : rc;
}

/* A chunk whose checksums are right. LG_E_FORMAT: its content is not; anything else is fatal. */
static int use_chunk(struct reader *r, const struct lg_chunk_header *h, const uint8_t *stored,
		     struct lg_error *err)
{
	const struct lg_table_desc *d = lg_schema_table(h->section);
	const uint8_t *raw = stored;
	size_t n = h->stored_bytes;

	if (h->section == LG_SECTION_DIRECTORY)
		return 0;
	if (!d && h->section != LG_SECTION_STRINGS) {
		r->n_unknown++;
		return 0;
	}
	r->rows += h->rows;
	if (r->rows > budget_rows(r)) {
		r->over_budget = 1;
		return LG_E_FORMAT;
	}
	if ((h->flags & LG_CODEC_MASK) == LG_CODEC_ZSTD) {
		if (lg_grow(&r->raw, &r->raw_cap, (size_t)h->raw_bytes + 1, 1))
			return oom(err);
		n = ZSTD_decompressDCtx(r->z, r->raw, h->raw_bytes, stored, h->stored_bytes);
		raw = r->raw;
		if (ZSTD_isError(n))
			return LG_E_FORMAT;
	} else if ((h->flags & LG_CODEC_MASK) != LG_CODEC_NONE) {
		return LG_E_FORMAT;
	}
	if (n != h->raw_bytes)
		return LG_E_FORMAT;
	return d ? put_rows(r, d, raw, n, h->rows, err) : put_strings(r, raw, n, h->rows, err);
}

/* Move to the next place that could be a chunk or the trailer; 0 bytes left = none. */
static int resync(struct reader *r, struct lg_error *err)
{
	static const uint8_t zeros[8];
	uint64_t chunk = LG_CHUNK_MAGIC, trailer = LG_TRAILER_MAGIC;
	size_t have, n;
	int rc;

	while (r->in_vain <= IN_VAIN_MAX) {
		uint8_t low = (uint8_t)(chunk & 0xff), tail = (uint8_t)(trailer & 0xff);

		rc = fill(r, 8, &have, err);
		if (rc)
			return rc;
		if (have < 8) {
			skip(r, have);
			return 0;
		}
		while (have >= 8) {
			const uint8_t *p = r->buf + r->pos;

			if ((*p == low && !memcmp(p, &chunk, 8)) ||
			    (*p == tail && !memcmp(p, &trailer, 8)))
				return 0;
			/* Neither begins with a zero: holes go by in words. */
			n = memcmp(p, zeros, 8) ? 1 : 8;
			skip(r, n);
			r->in_vain += n;
			have -= n;
		}
	}
	return 0;
}

enum step { STEP_MORE, STEP_END, STEP_DAMAGE };

static int one_chunk(struct reader *r, enum step *ret, struct lg_error *err)
{
	struct lg_chunk_header h;
	struct lg_lag_trailer t;
	size_t have, padded;
	int rc = fill(r, sizeof h, &have, err);

	if (rc)
		return rc;
	*ret = STEP_END;
	if (!have)
		return 0;
	if (have >= sizeof t) {
		memcpy(&t, r->buf + r->pos, sizeof t);
		if (t.magic == LG_TRAILER_MAGIC && have == sizeof t &&
		    t.sum == lg_lag_sum(&t, offsetof(struct lg_lag_trailer, sum))) {
			r->complete = 1;
			if (t.n_chunks > r->next_seq)
				r->n_missing += t.n_chunks - r->next_seq;
			skip(r, have);
			return 0;
		}
	}
	*ret = STEP_DAMAGE;
	if (have < sizeof h) {
		/* The tail of a write that was cut off: an end, not damage. */
		skip(r, have);
		*ret = STEP_END;
		return 0;
	}
	memcpy(&h, r->buf + r->pos, sizeof h);
	if (h.magic != LG_CHUNK_MAGIC ||
	    h.sum != lg_lag_sum(&h, offsetof(struct lg_chunk_header, sum)) ||
	    h.rows > LG_CHUNK_ROWS_MAX || h.raw_bytes > LG_CHUNK_BYTES_MAX ||
	    h.stored_bytes > LG_CHUNK_BYTES_MAX)
		return 0;
	padded = ((size_t)h.stored_bytes + 7) & ~(size_t)7;
	rc = fill(r, sizeof h + padded, &have, err);
	if (rc)
		return rc;
	if (have < sizeof h + h.stored_bytes) {
		skip(r, have);
		*ret = STEP_END;
		return 0;
	}
	if (lg_lag_sum(r->buf + r->pos + sizeof h, h.stored_bytes) != h.payload_sum) {
		r->in_vain += h.stored_bytes;
		return 0;
	}
	/* Numbers that run backwards are another recording appended to this one: its ids mean
	 * something else. */
	if (h.seq < r->next_seq)
		return 0;
	r->n_missing += h.seq - r->next_seq;
	r->next_seq = h.seq + (h.section != LG_SECTION_DIRECTORY);
	rc = use_chunk(r, &h, r->buf + r->pos + sizeof h, err);
	if (rc == LG_E_FORMAT) {
		damaged(r);
		r->in_vain += h.raw_bytes;
	} else if (rc) {
		return rc;
	} else if (h.section != LG_SECTION_DIRECTORY) {
		r->n_good++;
	}
	skip(r, have < sizeof h + padded ? have : sizeof h + padded);
	*ret = r->over_budget ? STEP_END : STEP_MORE;
	return 0;
}

static int read_header(struct reader *r, struct lg_error *err)
{
	size_t have;
	int rc = fill(r, LG_LAG_HEADER_BYTES, &have, err);

	if (rc)
		return rc;
	if (have < 8 || memcmp(r->buf + r->pos, LG_LAG_MAGIC, 8))
		return lg_fail(err, LG_E_FORMAT, 0, "%s: not a .lag file: no magic",
			       r->path);
	if (have < LG_LAG_HEADER_BYTES)
		return lg_fail(err, LG_E_FORMAT, have, "%s: nothing is readable: the file ends inside its header", r->path);
	memcpy(&r->header, r->buf + r->pos, sizeof r->header);
	if (r->header.sum != lg_lag_sum(&r->header, offsetof(struct lg_lag_header, sum))) {
		/* What it says cannot be believed, but the chunks speak for themselves. */
		damaged(r);
		memset(&r->header, 0, sizeof r->header);
		skip(r, LG_LAG_HEADER_BYTES);
		return 0;
	}
	if (r->header.min_reader > LG_LAG_VERSION)
		return lg_fail(err, LG_E_UNSUPPORTED, 10,
			       "%s: written by a newer laggard (format %u, needs a reader of %u or "
			       "newer, this one is %d)",
			       r->path, r->header.version, r->header.min_reader, LG_LAG_VERSION);
	if (r->header.features_must)
		return lg_fail(err, LG_E_UNSUPPORTED, 16,
			       "%s: needs features 0x%x, which this laggard does not have", r->path,
			       r->header.features_must);
	if (r->header.header_bytes < LG_LAG_HEADER_BYTES ||
	    r->header.header_bytes > LG_LAG_HEADER_MAX || r->header.header_bytes % 8) {
		damaged(r);
		skip(r, LG_LAG_HEADER_BYTES);
		return 0;
	}
	rc = fill(r, r->header.header_bytes, &have, err);
	if (!rc)
		skip(r, have < r->header.header_bytes ? have : r->header.header_bytes);
	return rc;
}

/* The end of the data read so far: where a note about the file's end belongs. */
static int64_t newest(const struct lg_trace *t)
{
	int64_t last = INT64_MIN;

	for (size_t i = 0; i < t->state.n; i++)
		last = t->state.ts[i] > last ? t->state.ts[i] : last;
	for (size_t i = 0; i < t->sample.n; i++)
		last = t->sample.ts[i] > last ? t->sample.ts[i] : last;
	for (size_t i = 0; i < t->span.n; i++)
		last = t->span.ts[i] > last ? t->span.ts[i] : last;
	return last;
}

static int notes(struct reader *r, struct lg_error *err)
{
	uint64_t lost = r->n_missing > r->n_bad ? r->n_missing : r->n_bad;
	int64_t last;

	if (r->complete && !lost && !r->n_unknown)
		return lg_builder_failed(r->b) ? oom(err) : 0;
	last = newest(lg_builder_trace(r->b));
	if (r->over_budget)
		lg_add_diag_now(r->b, LG_DIAG_FILE_DAMAGED, last, 1,
				"reading stopped at byte %llu: more rows than a file of this size "
				"can hold",
				(unsigned long long)r->at);
	if (r->n_bad)
		lg_add_diag_now(r->b, LG_DIAG_FILE_DAMAGED, last, lost,
				"damaged from byte %llu on; %llu chunks skipped, %llu read",
				(unsigned long long)r->first_bad, (unsigned long long)lost,
				(unsigned long long)r->n_good);
	else if (r->n_missing)
		lg_add_diag_now(r->b, LG_DIAG_FILE_DAMAGED, last, r->n_missing,
				"%llu chunks are missing, %llu read",
				(unsigned long long)r->n_missing, (unsigned long long)r->n_good);
	if (!r->complete)
		lg_add_diag_now(r->b, LG_DIAG_FILE_TRUNCATED, last, 1,
				"the recording was not closed: it ends at byte %llu after %llu "
				"whole chunks",
				(unsigned long long)r->at, (unsigned long long)r->n_good);
	if (r->n_unknown)
		lg_add_diag_now(r->b, LG_DIAG_NOT_UNDERSTOOD, last, r->n_unknown,
				"%llu chunks of tables that only a newer laggard knows",
				(unsigned long long)r->n_unknown);
	return lg_builder_failed(r->b) ? oom(err) : 0;
}

/*
 * A dump of the ring begins where its older part was dropped, but a state row that ended later may
 * have started long before: cut it there (LG_STATE_EDGE), else the recording would seem to cover the
 * hole. Spans stay whole, since the length of a step or a hold is what they are about.
 */
static void cut_at_hole(struct lg_trace *t)
{
	const int64_t max = INT64_MAX / 4; /* what sealing leaves as it is, and some way off */
	int64_t hole = INT64_MIN, end = 0;

	for (size_t i = 0; i < t->diag.n; i++) {
		int64_t ts = t->diag.ts[i], dur = t->diag.dur[i];

		if (t->diag.id[i] == LG_DIAG_RING_DROPPED && ts > -max && ts < max && dur > 0 &&
		    dur < max && ts + dur > hole)
			hole = ts + dur;
	}
	for (size_t i = 0; hole != INT64_MIN && i < t->state.n; i++) {
		int64_t ts = t->state.ts[i], dur = t->state.dur[i];

		if (ts >= hole || (dur >= 0 && (__builtin_add_overflow(ts, dur, &end) || end <= hole)))
			continue;
		t->state.ts[i] = hole;
		t->state.flags[i] |= LG_STATE_EDGE;
		if (dur < 0)
			continue;
		t->state.dur[i] = (int64_t)((uint64_t)end - (uint64_t)hole);
		/* A sum of slices: its part of the running time, as evenly as it is known. */
		if ((t->state.flags[i] & LG_STATE_SUMMED) && t->state.run[i] > 0 &&
		    t->state.run[i] <= dur)
			t->state.run[i] = (int64_t)((double)t->state.run[i] *
						    ((double)t->state.dur[i] / (double)dur));
	}
}

/* A recording that was killed before its source took a pair still has those of its start. The
 * three readings were not bracketed: the bound is what a preemption in between may cost. */
static void header_clocks(struct reader *r)
{
	const struct lg_lag_header *h = &r->header;
	struct lg_clock_row row = { .ts = h->mono, .error = 1000000 };

	if (!h->mono || lg_builder_trace(r->b)->clock.n)
		return;
	row.source = lg_intern(r->b, "file header");
	row.clock = CLOCK_REALTIME;
	row.value = h->real;
	lg_add_clock(r->b, &row);
	row.clock = CLOCK_BOOTTIME;
	row.value = h->boot;
	lg_add_clock(r->b, &row);
}

static int read_all(struct reader *r, struct lg_error *err)
{
	enum step step = STEP_MORE;
	int rc;

	r->z = ZSTD_createDCtx();
	if (!r->z)
		return oom(err);
	rc = read_header(r, err);
	while (!rc && step != STEP_END && r->in_vain <= IN_VAIN_MAX) {
		rc = one_chunk(r, &step, err);
		if (!rc && step == STEP_DAMAGE) {
			damaged(r);
			skip(r, 1);
			rc = resync(r, err);
		}
	}
	if (rc)
		return rc;
	if (!r->n_good && !r->complete)
		return lg_fail(err, LG_E_FORMAT, r->n_bad ? r->first_bad : r->at,
			       "%s: nothing is readable: %s", r->path,
			       r->n_bad ? "damaged" : "the file ends before any data");
	header_clocks(r);
	cut_at_hole(lg_builder_trace(r->b));
	return notes(r, err);
}

static void reader_done(struct reader *r)
{
	ZSTD_freeDCtx(r->z);
	lg_decoded_done(&r->cols);
	lg_free(r->raw);
	lg_free(r->own);
}

int lg_lag_read(const char *path, struct lg_builder *b, struct lg_error *err)
{
	struct reader r = { .path = path, .b = b };
	int rc;

	r.fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
	if (r.fd < 0)
		return lg_fail_errno(err, errno, "cannot open %s", path);
	rc = read_all(&r, err);
	if (r.fd != STDIN_FILENO)
		close(r.fd);
	reader_done(&r);
	return rc;
}

int lg_lag_read_bytes(const void *p, size_t n, struct lg_builder *b, struct lg_error *err)
{
	struct reader r = { .path = "input", .b = b, .fd = -1, .buf = p, .n = n, .eof = 1 };
	int rc = read_all(&r, err);

	reader_done(&r);
	return rc;
}

int lg_lag_open(const char *path, struct lg_trace **ret, struct lg_error *err)
{
	struct lg_builder *b;
	int rc = lg_builder_new(&b, err);

	if (rc)
		return rc;
	rc = lg_lag_read(path, b, err);
	if (!rc)
		return lg_builder_seal(b, ret, err);
	lg_builder_free(b);
	return rc;
}

int lg_lag_sniff(const uint8_t *head, size_t n)
{
	return n >= 8 && !memcmp(head, LG_LAG_MAGIC, 8) ? 100 : 0;
}
