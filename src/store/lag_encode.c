/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lag_encode.c - rows and strings to chunk bytes.
 *
 * Each column is first made small and regular (an encoding is chosen by counting bytes), then
 * the whole payload is one zstd frame of level 1: the numbers left are close to random, so that
 * higher levels cost time and gain little.
 */
#include <string.h>
#include <time.h>
#define XXH_INLINE_ALL
#include <xxhash.h>
#include <zstd.h>

#include "base/alloc.h"
#include "store/lag_chunk.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the .lag layout is written and read as it lies in memory: little-endian only"
#endif

struct lg_coder {
	ZSTD_CCtx *z;
	uint8_t *raw, *out;
	size_t raw_n, raw_cap, out_cap;
	int64_t *v; /* one column, widened */
	size_t v_cap;
};

uint64_t lg_lag_sum(const void *p, size_t n)
{
	return XXH3_64bits(p, n);
}

static int64_t now(clockid_t id)
{
	struct timespec ts = { 0 };

	clock_gettime(id, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

void lg_lag_header_init(struct lg_lag_header *h, int live)
{
	*h = (struct lg_lag_header){ .version = LG_LAG_VERSION,
				     .min_reader = LG_LAG_MIN_READER,
				     .header_bytes = LG_LAG_HEADER_BYTES };
	if (live) {
		h->mono = now(CLOCK_MONOTONIC);
		h->real = now(CLOCK_REALTIME);
		h->boot = now(CLOCK_BOOTTIME);
	}
	memcpy(h->magic, LG_LAG_MAGIC, sizeof h->magic);
	h->sum = lg_lag_sum(h, offsetof(struct lg_lag_header, sum));
}

void lg_lag_trailer_init(struct lg_lag_trailer *t, uint64_t directory, uint64_t n_chunks)
{
	*t = (struct lg_lag_trailer){ .magic = LG_TRAILER_MAGIC,
				      .directory = directory,
				      .n_chunks = n_chunks };
	t->sum = lg_lag_sum(t, offsetof(struct lg_lag_trailer, sum));
}

int lg_coder_new(struct lg_coder **ret)
{
	struct lg_coder *c = lg_calloc(1, sizeof *c);

	if (!c)
		return LG_E_NOMEM;
	c->z = ZSTD_createCCtx();
	if (!c->z || ZSTD_isError(ZSTD_CCtx_setParameter(c->z, ZSTD_c_compressionLevel, 1))) {
		lg_coder_free(c);
		return LG_E_NOMEM;
	}
	*ret = c;
	return 0;
}

void lg_coder_free(struct lg_coder *c)
{
	if (!c)
		return;
	ZSTD_freeCCtx(c->z);
	lg_free(c->raw);
	lg_free(c->out);
	lg_free(c->v);
	lg_free(c);
}

static inline size_t varint_size(uint64_t v)
{
	/* ceil(bits / 7) for 1..64 bits without a division. */
	return (size_t)((63 - __builtin_clzll(v | 1)) * 9 + 73) / 64;
}

/*
 * Callers have reserved the room: 10 bytes hold any varint. How many a value takes is not to be predicted, so
 * up to 8 bytes are made without a branch: groups of 7 bits are spread in halves, and all 8 are written.
 */
static inline uint8_t *put_varint(uint8_t *p, uint64_t v)
{
	size_t n = varint_size(v);

	if (n > 8) {
		for (; v >= 0x80; v >>= 7)
			*p++ = (uint8_t)(v | 0x80);
		*p++ = (uint8_t)v;
		return p;
	}
	v = (v & 0xfffffff) | (v & 0xfffffff0000000) << 4;
	v = (v & 0x3fff00003fff) | (v & 0xfffc0000fffc000) << 2;
	v = (v & 0x7f007f007f007f) | (v & 0x3f803f803f803f80) << 1;
	v |= 0x8080808080808080 & ((UINT64_C(1) << (8 * n - 8)) - 1);
	memcpy(p, &v, sizeof v);
	return p + n;
}

static inline int64_t minus(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a - (uint64_t)b);
}

/* n values, or their differences. Most columns are narrow, and most stretches of the others: what lies below
 * 128 is a byte as it is, and sixty-four such bytes are made at once. */
static inline uint8_t *put_varints(uint8_t *p, const int64_t *v, size_t n, bool differences)
{
	enum { BLOCK = 64 };
	uint64_t z[BLOCK];

	for (size_t i = 0; i < n; i += BLOCK) {
		size_t m = n - i < BLOCK ? n - i : BLOCK;
		uint64_t all = 0;

		z[0] = lg_zigzag(differences && i ? minus(v[i], v[i - 1]) : v[i]);
		for (size_t k = 1; k < m; k++)
			z[k] = lg_zigzag(differences ? minus(v[i + k], v[i + k - 1]) : v[i + k]);
		for (size_t k = 0; k < m; k++)
			all |= z[k];
		if (all < 0x80)
			for (size_t k = 0; k < m; k++)
				*p++ = (uint8_t)z[k];
		else
			for (size_t k = 0; k < m; k++)
				p = put_varint(p, z[k]);
	}
	return p;
}

static int reserve(struct lg_coder *c, size_t more)
{
	return lg_grow(&c->raw, &c->raw_cap, c->raw_n + more, 1);
}

static void widen(int64_t *v, uint8_t type, const void *col, const uint32_t *rows, size_t first,
		  size_t n)
{
#define WIDEN(ctype)                                                                               \
	do {                                                                                       \
		const ctype *s = col;                                                              \
		if (rows)                                                                          \
			for (size_t i = 0; i < n; i++)                                             \
				v[i] = (int64_t)s[rows[i]];                                        \
		else                                                                               \
			for (size_t i = 0; i < n; i++)                                             \
				v[i] = (int64_t)s[first + i];                                      \
	} while (0)
	switch (type) {
	case LG_COL_I64:
		WIDEN(int64_t);
		break;
	case LG_COL_U64:
	case LG_COL_F64: /* bit pattern */
		WIDEN(uint64_t);
		break;
	case LG_COL_I32:
		WIDEN(int32_t);
		break;
	case LG_COL_U8:
		WIDEN(uint8_t);
		break;
	default:
		WIDEN(uint32_t);
	}
#undef WIDEN
}

struct sizes {
	size_t var, delta, runs;
	int constant;
};

static void measure_part(struct sizes *s, const int64_t *v, size_t n)
{
	size_t run = 0;

	for (size_t i = 0; i < n; i++) {
		size_t size = varint_size(lg_zigzag(v[i]));
		int64_t d = minus(v[i], i ? v[i - 1] : 0);

		s->var += size;
		s->delta += varint_size(lg_zigzag(d));
		if (i && !d)
			continue;
		s->runs += size + (i ? varint_size(i - run) : 0);
		run = i;
	}
	s->runs += varint_size(n - run);
}

/* Of long columns a few parts are as telling as the whole, for a tenth of a recorder's time. */
static struct sizes measure(const int64_t *v, size_t n)
{
	enum { PART = 64, PARTS = 6 };
	struct sizes s = { 0 };
	size_t i;

	for (i = 1; i < n && v[i] == v[0]; i++)
		;
	if (i == n) {
		s.constant = 1;
	} else if (n <= PARTS * PART) {
		measure_part(&s, v, n);
	} else {
		for (i = 0; i < PARTS; i++)
			measure_part(&s, v + i * (n - PART) / (PARTS - 1), PART);
	}
	return s;
}

/*
 * The smallest wins, with one bias: ids and addresses repeat, and zstd finds a repeated value
 * only where its bytes stay the same, so differences must gain a quarter to be taken for ids, and
 * are never taken for addresses.
 */
static enum lg_col_encoding choose(const struct sizes *s, uint8_t type)
{
	size_t best = s->var;
	enum lg_col_encoding e = LG_ENC_VAR;

	if (s->constant)
		return LG_ENC_CONST;
	if (type == LG_COL_F64)
		return LG_ENC_PLAIN;
	if (type != LG_COL_U64 && s->delta < (type == LG_COL_I64 ? best : best - best / 4)) {
		best = s->delta;
		e = LG_ENC_DELTA;
	}
	return s->runs < best ? LG_ENC_RUNS : e;
}

static int put_column(struct lg_coder *c, enum lg_col_encoding e, uint8_t type, size_t n)
{
	const int64_t *v = c->v;
	uint8_t *p, *len_at, *start;
	size_t len;

	/* 20 bytes a row hold the worst case, a run of one; 16 for encoding and length. */
	if (reserve(c, n * 20 + 16))
		return LG_E_NOMEM;
	p = c->raw + c->raw_n;
	*p++ = (uint8_t)e;
	len_at = p;
	p += 5; /* a length of fixed width, so that no byte has to move */
	start = p;
	switch (e) {
	case LG_ENC_CONST:
		if (type == LG_COL_F64) {
			memcpy(p, v, 8);
			p += 8;
		} else {
			p = put_varint(p, lg_zigzag(v[0]));
		}
		break;
	case LG_ENC_VAR:
		p = put_varints(p, v, n, false);
		break;
	case LG_ENC_DELTA:
	case LG_ENC_ENDS:
		p = put_varints(p, v, n, true);
		break;
	case LG_ENC_RUNS:
		for (size_t i = 0, k; i < n; i = k) {
			for (k = i + 1; k < n && v[k] == v[i]; k++)
				;
			p = put_varint(p, k - i);
			p = put_varint(p, lg_zigzag(v[i]));
		}
		break;
	case LG_ENC_PLAIN:
		memcpy(p, v, n * 8);
		p += n * 8;
		break;
	}
	len = (size_t)(p - start);
	for (int i = 0; i < 5; i++)
		len_at[i] = (uint8_t)((len >> (7 * i) & 0x7f) | (i < 4 ? 0x80 : 0));
	c->raw_n = (size_t)(p - c->raw);
	return 0;
}

void lg_chunk_number(uint8_t *chunk, struct lg_chunk_header *h, uint32_t seq)
{
	h->seq = seq;
	h->sum = lg_lag_sum(h, offsetof(struct lg_chunk_header, sum));
	memcpy(chunk, h, sizeof *h);
}

/* Compress c->raw into a chunk behind the header fields that are given. */
static int finish(struct lg_coder *c, struct lg_chunk_header h, struct lg_chunk_view *ret,
		  struct lg_error *err)
{
	size_t bound = ZSTD_compressBound(c->raw_n), n, total;
	uint8_t *payload;

	if (c->raw_n > LG_CHUNK_BYTES_MAX)
		return lg_fail(err, LG_E_LIMIT, LG_NO_OFFSET, "a chunk of %zu bytes is too large",
			       c->raw_n);
	if (lg_grow(&c->out, &c->out_cap, sizeof h + bound + 8, 1))
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	payload = c->out + sizeof h;
	n = ZSTD_compress2(c->z, payload, bound, c->raw, c->raw_n);
	if (ZSTD_isError(n))
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "cannot compress: %s",
			       ZSTD_getErrorName(n));
	h.flags = LG_CODEC_ZSTD;
	if (n >= c->raw_n) {
		memcpy(payload, c->raw, c->raw_n);
		n = c->raw_n;
		h.flags = LG_CODEC_NONE;
	}
	h.magic = LG_CHUNK_MAGIC;
	h.raw_bytes = (uint32_t)c->raw_n;
	h.stored_bytes = (uint32_t)n;
	h.payload_sum = lg_lag_sum(payload, n);
	total = (n + 7) & ~(size_t)7;
	memset(payload + n, 0, total - n);
	lg_chunk_number(c->out, &h, 0);
	*ret = (struct lg_chunk_view){ .p = c->out, .n = sizeof h + total, .header = h };
	return 0;
}

/* ts first, dur second: those tables get ENDS and a ts_max that includes the duration. */
static int has_dur(const struct lg_table_desc *d)
{
	return !d->is_dict && d->n_cols > 1 && !strcmp(d->cols[1].name, "dur");
}

/* The ts column with its extent. The column is left in c->v as ENDS wants it when that is
 * smaller; *ret_ends says so. */
static void time_column(struct lg_coder *c, const struct lg_table_desc *d, const struct lg_tab *tab,
			const uint32_t *rows, size_t first, size_t n, struct lg_chunk_header *h,
			int *ret_ends)
{
	const int64_t *dur = has_dur(d) ? tab->col[1] : NULL;
	enum { TELLING = 1024 }; /* rows that tell which is smaller */
	size_t as_ts = 0, as_end = 0;
	int64_t was_ts = 0, was_end = 0;

	h->ts_min = INT64_MAX;
	h->ts_max = INT64_MIN;
	for (size_t i = 0; i < n; i++) {
		int64_t ts = c->v[i], len = dur ? dur[rows ? rows[i] : first + i] : 0, end;

		end = (int64_t)((uint64_t)ts + (uint64_t)(len > 0 ? len : 0));
		if (ts < h->ts_min)
			h->ts_min = ts;
		if (end > h->ts_max)
			h->ts_max = end;
		if (i >= TELLING)
			continue;
		as_ts += varint_size(lg_zigzag(minus(ts, was_ts)));
		as_end += varint_size(lg_zigzag(minus(end, was_end)));
		was_ts = ts;
		was_end = end;
	}
	*ret_ends = dur && as_end < as_ts;
	if (!*ret_ends)
		return;
	for (size_t i = 0; i < n; i++) {
		int64_t len = dur[rows ? rows[i] : first + i];

		c->v[i] = (int64_t)((uint64_t)c->v[i] + (uint64_t)(len > 0 ? len : 0));
	}
}

int lg_code_rows(struct lg_coder *c, const struct lg_table_desc *d, const struct lg_tab *tab,
		 const uint32_t *rows, size_t first, size_t n, struct lg_chunk_view *ret,
		 struct lg_error *err)
{
	struct lg_chunk_header h = { .section = d->id, .rows = (uint32_t)n };

	c->raw_n = 0;
	if (reserve(c, 16) || lg_grow(&c->v, &c->v_cap, n, sizeof *c->v))
		goto nomem;
	c->raw_n = (size_t)(put_varint(c->raw, d->n_cols) - c->raw);
	if (d->is_dict) {
		struct sizes s;

		for (size_t i = 0; i < n; i++)
			c->v[i] = rows ? rows[i] : (int64_t)(first + i);
		s = measure(c->v, n);
		if (put_column(c, choose(&s, LG_COL_I64), LG_COL_I64, n))
			goto nomem;
	}
	for (size_t k = 0; k < d->n_cols; k++) {
		uint8_t type = d->cols[k].type;
		enum lg_col_encoding e;
		int ends = 0;

		widen(c->v, type, tab->col[k], rows, first, n);
		if (!k && !d->is_dict)
			time_column(c, d, tab, rows, first, n, &h, &ends);
		if (ends) {
			e = LG_ENC_ENDS;
		} else {
			struct sizes s = measure(c->v, n);

			e = choose(&s, type);
		}
		if (put_column(c, e, type, n))
			goto nomem;
	}
	return finish(c, h, ret, err);
nomem:
	return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
}

int lg_code_strings(struct lg_coder *c, const struct lg_trace *t, size_t first, size_t last,
		    size_t *ret_last, struct lg_chunk_view *ret, struct lg_error *err)
{
	enum { STRING_BYTES = 4 << 20 };
	struct lg_chunk_header h = { .section = LG_SECTION_STRINGS };
	size_t end = first, bytes = 0;
	uint8_t *p;

	while (end < last && end - first < LG_CHUNK_ROWS) {
		size_t len = t->str_off[end + 1] - t->str_off[end] - 1;

		if (bytes && bytes + len > STRING_BYTES)
			break;
		bytes += len;
		end++;
	}
	c->raw_n = 0;
	if (reserve(c, 10 + (end - first) * 10 + bytes))
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	p = put_varint(c->raw, first);
	for (size_t i = first; i < end; i++)
		p = put_varint(p, t->str_off[i + 1] - t->str_off[i] - 1);
	for (size_t i = first; i < end; i++) {
		size_t len = t->str_off[i + 1] - t->str_off[i] - 1;

		memcpy(p, t->str_bytes + t->str_off[i], len);
		p += len;
	}
	c->raw_n = (size_t)(p - c->raw);
	h.rows = (uint32_t)(end - first);
	*ret_last = end;
	return finish(c, h, ret, err);
}

int lg_code_directory(struct lg_coder *c, const struct lg_dir_entry *e, size_t n,
		      struct lg_chunk_view *ret, struct lg_error *err)
{
	struct lg_chunk_header h = { .section = LG_SECTION_DIRECTORY };
	uint64_t was = 0;
	uint8_t *p;

	/* The newest that fit: a directory is a convenience, the chunks stand on their own. */
	if (n > LG_CHUNK_ROWS_MAX) {
		e += n - LG_CHUNK_ROWS_MAX;
		n = LG_CHUNK_ROWS_MAX;
	}
	c->raw_n = 0;
	if (reserve(c, n * 50 + 1))
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	p = c->raw;
	for (size_t i = 0; i < n; i++) {
		p = put_varint(p, (e[i].offset - was) / 8);
		p = put_varint(p, e[i].header.section);
		p = put_varint(p, e[i].header.rows);
		p = put_varint(p, lg_zigzag(e[i].header.ts_min));
		p = put_varint(p, lg_zigzag(e[i].header.ts_max));
		was = e[i].offset;
	}
	c->raw_n = (size_t)(p - c->raw);
	h.rows = (uint32_t)n;
	return finish(c, h, ret, err);
}
