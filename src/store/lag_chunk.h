/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lag_chunk.h - the byte layout of .lag files, and rows <-> chunk bytes. Internal to the writer,
 * the ring and the reader; described for others in laggard-format(5).
 *
 *   file  = header(64) chunk... [directory chunk, trailer(32)]     the end is missing after a crash
 *   chunk = chunk header(64) stored bytes, zero padding to 8
 *
 * All numbers are little-endian. varint = LEB128 (7 bits a byte, low first, at most 10 bytes);
 * zigzag = varint of (v << 1) ^ (v >> 63).
 */
#ifndef LG_STORE_LAG_CHUNK_H
#define LG_STORE_LAG_CHUNK_H
#include "store/trace.h"

/* The 0x89, CR LF and ^Z bytes betray transfers that are not 8-bit clean (as in PNG, RFC 2083). */
#define LG_LAG_MAGIC "\x89LAG\r\n\x1a\n"
#define LG_CHUNK_MAGIC 0xc7a1f3e59b2d8046u
#define LG_TRAILER_MAGIC 0x9e15d2b86f40ac73u

enum {
	LG_LAG_VERSION = 1,      /* what is written */
	LG_LAG_MIN_READER = 1,   /* oldest reader that understands what is written */
	LG_LAG_HEADER_BYTES = 64,
	LG_LAG_HEADER_MAX = 4096,
	LG_CHUNK_HEADER_BYTES = 64,
	LG_TRAILER_BYTES = 32,
	LG_CHUNK_ROWS = 65536,         /* most rows that we put into a chunk */
	LG_CHUNK_ROWS_MAX = 1 << 20,   /* most rows that a reader takes */
	LG_CHUNK_BYTES_MAX = 64 << 20  /* of a payload, stored or raw */
};

/* Sections that are not tables of schema.def. */
#define LG_SECTION_STRINGS 0xffffff01u
#define LG_SECTION_DIRECTORY 0xffffff02u

enum lg_chunk_codec { LG_CODEC_NONE, LG_CODEC_ZSTD, LG_CODEC_MASK = 0xff };

enum lg_col_encoding {
	LG_ENC_CONST,  /* one zigzag value (f64: 8 bytes) for all rows */
	LG_ENC_VAR,    /* zigzag of each value */
	LG_ENC_DELTA,  /* zigzag of the difference to the value before (first: to 0) */
	LG_ENC_RUNS,   /* pairs (varint length, zigzag value) */
	LG_ENC_PLAIN,  /* 8 bytes each (f64) */
	LG_ENC_ENDS    /* column ts of tables whose next column is dur: DELTA of ts + max(dur, 0),
			* because rows are written when they end */
};

/* The file header; offsets in the comment column are ABI. */
struct lg_lag_header {
	uint8_t magic[8];        /* 0 */
	uint16_t version;        /* 8 */
	uint16_t min_reader;     /* 10: a reader older than this must refuse */
	uint32_t header_bytes;   /* 12: first chunk's offset, multiple of 8 */
	uint32_t features_must;  /* 16: a reader must know every bit */
	uint32_t features_may;   /* 20: unknown bits are harmless */
	int64_t mono, real, boot;/* 24, 32, 40: CLOCK_*, ns, read together at the start; 0 = not */
	uint64_t reserved;       /* 48: 0 */
	uint64_t sum;            /* 56: XXH3-64 of bytes 0..55 */
};
_Static_assert(sizeof(struct lg_lag_header) == LG_LAG_HEADER_BYTES, "file header layout");
_Static_assert(offsetof(struct lg_lag_header, mono) == 24, "file header layout");
_Static_assert(offsetof(struct lg_lag_header, sum) == 56, "file header layout");

struct lg_chunk_header {
	uint64_t magic;          /* 0 */
	uint32_t section;        /* 8: table id or LG_SECTION_* */
	uint32_t rows;           /* 12 */
	uint32_t raw_bytes;      /* 16: payload after decompression */
	uint32_t stored_bytes;   /* 20: without padding */
	uint32_t flags;          /* 24: low byte enum lg_chunk_codec, rest 0 */
	uint32_t seq;            /* 28: number of the chunk in the file, from 0 */
	int64_t ts_min, ts_max;  /* 32, 40: time tables: earliest ts, latest end; else 0 */
	uint64_t payload_sum;    /* 48: XXH3-64 of the stored bytes */
	uint64_t sum;            /* 56: XXH3-64 of bytes 0..55 */
};
_Static_assert(sizeof(struct lg_chunk_header) == LG_CHUNK_HEADER_BYTES, "chunk header layout");
_Static_assert(offsetof(struct lg_chunk_header, ts_min) == 32, "chunk header layout");
_Static_assert(offsetof(struct lg_chunk_header, sum) == 56, "chunk header layout");

struct lg_lag_trailer {
	uint64_t magic;     /* 0 */
	uint64_t directory; /* 8: offset of the directory chunk */
	uint64_t n_chunks;  /* 16: before the directory */
	uint64_t sum;       /* 24: XXH3-64 of bytes 0..23 */
};
_Static_assert(sizeof(struct lg_lag_trailer) == LG_TRAILER_BYTES, "trailer layout");

uint64_t lg_lag_sum(const void *p, size_t n);
/* magic, version and checksum. live: the file records this machine now, its clocks are read here;
 * otherwise they stay 0 (a converted trace has its clock rows, or none). */
void lg_lag_header_init(struct lg_lag_header *h, int live);
void lg_lag_trailer_init(struct lg_lag_trailer *t, uint64_t directory, uint64_t n_chunks);

/* Turns rows into chunks; buffers are reused from chunk to chunk. */
struct lg_coder;
int lg_coder_new(struct lg_coder **ret) LG_MUST_CHECK; /* only LG_E_NOMEM */
void lg_coder_free(struct lg_coder *c);
/* A whole chunk (header, payload, padding), valid until the next call. */
struct lg_chunk_view {
	const uint8_t *p;
	size_t n;
	struct lg_chunk_header header;
};
/* n (1 .. LG_CHUNK_ROWS) rows: rows[0..n) of tab, or first.. where rows is NULL. */
int lg_code_rows(struct lg_coder *c, const struct lg_table_desc *d, const struct lg_tab *tab,
		 const uint32_t *rows, size_t first, size_t n, struct lg_chunk_view *ret,
		 struct lg_error *err) LG_MUST_CHECK;
/* Pool entries from first; *ret_last is the first entry that did not fit any more. */
int lg_code_strings(struct lg_coder *c, const struct lg_trace *t, size_t first, size_t last,
		    size_t *ret_last, struct lg_chunk_view *ret, struct lg_error *err) LG_MUST_CHECK;

struct lg_dir_entry {
	uint64_t offset;
	struct lg_chunk_header header;
};
int lg_code_directory(struct lg_coder *c, const struct lg_dir_entry *e, size_t n,
		      struct lg_chunk_view *ret, struct lg_error *err) LG_MUST_CHECK;
/* Set the chunk's number (and so its checksum) in bytes made by lg_code_*. */
void lg_chunk_number(uint8_t *chunk, struct lg_chunk_header *h, uint32_t seq);

/* Decoded columns of one table chunk; memory is reused from chunk to chunk. */
struct lg_decoded {
	uint32_t *ids;          /* dictionary tables */
	void **cols;            /* schema order, schema types; columns the file lacks are 0 */
	size_t n;
	/* internal */
	void *mem;
	int64_t *wide;
	size_t mem_cap, wide_cap, cols_cap;
};
/* LG_E_FORMAT where the payload contradicts itself, LG_E_NOMEM. */
int lg_decode_rows(struct lg_decoded *o, const struct lg_table_desc *d, const uint8_t *p, size_t n,
		   size_t rows) LG_MUST_CHECK;
void lg_decoded_done(struct lg_decoded *o);

/* LEB128 at *p, never beyond end; 0 or LG_E_FORMAT. */
static inline int lg_varint(const uint8_t **p, const uint8_t *end, uint64_t *ret)
{
	const uint8_t *s = *p;
	uint64_t v = 0;

	/* Most numbers are small. */
	if (s != end && *s < 0x80) {
		*ret = *s;
		*p = s + 1;
		return 0;
	}
	for (unsigned shift = 0; shift < 70; shift += 7) {
		uint8_t byte;

		if (s == end)
			return LG_E_FORMAT;
		byte = *s++;
		v |= shift < 64 ? (uint64_t)(byte & 0x7f) << shift : 0;
		if (byte < 0x80) {
			*ret = v;
			*p = s;
			return 0;
		}
	}
	return LG_E_FORMAT;
}
static inline uint64_t lg_zigzag(int64_t v)
{
	return (uint64_t)v << 1 ^ (uint64_t)(v >> 63);
}
static inline int64_t lg_unzigzag(uint64_t u)
{
	return (int64_t)(u >> 1 ^ (0 - (u & 1)));
}

#endif /* LG_STORE_LAG_CHUNK_H */
