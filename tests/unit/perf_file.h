/* SPDX-License-Identifier: Apache-2.0 */
/* perf_file.h - perf.data files written byte by byte, in both byte orders. */
#ifndef LG_TEST_PERF_FILE_H
#define LG_TEST_PERF_FILE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "import/perfdata/perf_abi.h"
#include "import/perfdata/perfdata.h"

struct file {
	uint8_t p[1 << 17];
	size_t n;
	bool swap;
};

static inline void put16(struct file *f, uint16_t v)
{
	v = f->swap ? __builtin_bswap16(v) : v;
	memcpy(f->p + f->n, &v, 2);
	f->n += 2;
}

static inline void put32(struct file *f, uint32_t v)
{
	v = f->swap ? __builtin_bswap32(v) : v;
	memcpy(f->p + f->n, &v, 4);
	f->n += 4;
}

static inline void put64(struct file *f, uint64_t v)
{
	v = f->swap ? __builtin_bswap64(v) : v;
	memcpy(f->p + f->n, &v, 8);
	f->n += 8;
}

static inline void put_text(struct file *f, const char *s, size_t room)
{
	memset(f->p + f->n, 0, room);
	memcpy(f->p + f->n, s, strlen(s));
	f->n += room;
}

static inline void put_flags(struct file *f, uint64_t flags)
{
	/* The other byte order fills bit fields from the other end. */
	for (int i = 0; i < 8; i++) {
		uint8_t byte = (uint8_t)(flags >> (8 * i)), back = 0;

		for (int k = 0; k < 8; k++)
			back = (uint8_t)(back | (byte >> k & 1) << (7 - k));
		f->p[f->n++] = f->swap ? back : byte;
	}
}

static inline size_t begin(struct file *f, uint32_t type, uint16_t misc)
{
	size_t at = f->n;

	put32(f, type);
	put16(f, misc);
	put16(f, 0);
	return at;
}

static inline void end(struct file *f, size_t at)
{
	size_t n = f->n;

	f->n = at + 6;
	put16(f, (uint16_t)(n - at));
	f->n = n;
}

struct event {
	uint64_t type, config, period, sample_type, read_format, flags, branch, regs;
	uint64_t ids[2];
};

static inline void put_attr(struct file *f, const struct event *e, uint32_t size)
{
	size_t at = f->n;

	memset(f->p + at, 0, size);
	put32(f, (uint32_t)e->type);
	put32(f, size);
	put64(f, e->config);
	put64(f, e->period);
	put64(f, e->sample_type);
	put64(f, e->read_format);
	put_flags(f, e->flags);
	f->n = at + PDA_BRANCH_TYPE;
	if (size > PDA_BRANCH_TYPE)
		put64(f, e->branch);
	if (size > PDA_REGS_USER)
		put64(f, e->regs);
	if (size > PDA_REGS_INTR) {
		f->n = at + PDA_REGS_INTR;
		put64(f, e->regs);
	}
	f->n = at + size;
}

/* A file header; the size of the records is filled in by file_done(). */
static inline void file_begin(struct file *f, const struct event *e, size_t n, uint32_t attr_size)
{
	size_t ids;

	f->n = 0;
	put64(f, PD_MAGIC2);
	put64(f, PD_FILE_HEADER);
	put64(f, attr_size + 16);
	put64(f, PD_FILE_HEADER + 16 * n);
	put64(f, n * (attr_size + 16));
	put64(f, PD_FILE_HEADER + 16 * n + n * (attr_size + 16));
	put64(f, 0);
	put_text(f, "", 48);
	ids = f->n;
	for (size_t i = 0; i < n; i++) {
		put64(f, e[i].ids[0]);
		put64(f, e[i].ids[1]);
	}
	for (size_t i = 0; i < n; i++) {
		put_attr(f, &e[i], attr_size);
		put64(f, ids + 16 * i);
		put64(f, 16);
	}
}

static inline void file_done(struct file *f, size_t data_at)
{
	size_t n = f->n;

	f->n = 48;
	put64(f, n - data_at);
	f->n = n;
}

static inline struct lg_trace *import_bytes(const uint8_t *p, size_t n, struct lg_error *err)
{
	struct lg_builder *b;
	struct lg_trace *t = NULL;

	assert_int_equal(lg_builder_new(&b, err), 0);
	if (lg_perfdata_read_memory(p, n, b, err)) {
		lg_builder_free(b);
		return NULL;
	}
	assert_int_equal(lg_builder_seal(b, &t, err), 0);
	return t;
}

static inline uint64_t diags(const struct lg_trace *t, enum lg_diag_id id)
{
	uint64_t n = 0;

	for (size_t i = 0; i < t->diag.n; i++)
		n += t->diag.id[i] == (uint32_t)id ? t->diag.count[i] : 0;
	return n;
}

#endif /* LG_TEST_PERF_FILE_H */
