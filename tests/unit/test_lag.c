/* SPDX-License-Identifier: Apache-2.0 */
/* test_lag.c - .lag files: what goes in comes out, and damage costs only what it hits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "random_trace.h"
#include "store/lag_chunk.h"
#include "store/lag_read.h"
#include "store/lag_ring.h"
#include "store/lag_write.h"

static char dir[] = "/tmp/laggard-test-XXXXXX";
static char path[128];

static int setup(void **state)
{
	(void)state;
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof path, "%s/t.lag", dir);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(dir);
}

struct bytes {
	uint8_t *p;
	size_t n;
};

static struct bytes slurp(const char *name)
{
	struct bytes b = { .p = NULL, .n = 0 };
	FILE *f = fopen(name, "rb");
	size_t cap = 1 << 22;

	assert_non_null(f);
	b.p = malloc(cap);
	assert_non_null(b.p);
	b.n = fread(b.p, 1, cap, f);
	assert_true(b.n < cap);
	fclose(f);
	return b;
}

static struct lg_trace *sealed(size_t rows, uint64_t seed)
{
	struct lg_builder *b;
	struct lg_trace *t;

	assert_int_equal(lg_builder_new(&b, NULL), 0);
	random_trace(b, rows, seed);
	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	return t;
}

static size_t n_diag(const struct lg_trace *t, uint32_t id)
{
	size_t n = 0;

	for (size_t i = 0; i < t->diag.n; i++)
		n += t->diag.id[i] == id;
	return n;
}

/* Every row of time table `name` of part is a row of whole, in order: a subsequence. */
static void assert_subset(const struct lg_trace *whole, const struct lg_trace *part, uint32_t table)
{
	const struct lg_table_desc *d = lg_schema_table(table);
	const struct lg_tab *w = lg_trace_table_const(whole, d), *p = lg_trace_table_const(part, d);
	const int64_t *wt = w->col[0], *pt = p->col[0];
	size_t k = 0;

	for (size_t i = 0; i < p->n; i++) {
		while (k < w->n && wt[k] != pt[i])
			k++;
		assert_true(k < w->n);
		k++;
	}
}

static void test_round_trip(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed < 6; seed++) {
		struct lg_trace *t = sealed(seed * 1500, seed), *u;

		assert_int_equal(lg_lag_save(t, path, NULL), 0);
		assert_int_equal(lg_lag_open(path, &u, NULL), 0);
		assert_int_equal(trace_differences(t, u), 0);
		assert_int_equal(t->first, u->first);
		assert_int_equal(t->last, u->last);
		lg_trace_free(t);
		lg_trace_free(u);
	}
}

/* A chunk takes 65536 rows: more must be split. */
static void test_many_rows(void **state)
{
	struct lg_builder *b;
	struct lg_trace *t, *u;

	(void)state;
	assert_int_equal(lg_builder_new(&b, NULL), 0);
	for (int i = 0; i < 200000; i++)
		lg_add_counter(b, &(struct lg_counter_row){ .ts = i * 1000ll, .value = i / 3 });
	for (int i = 0; i < 100000; i++) {
		char text[16];

		snprintf(text, sizeof text, "%x", i);
		lg_intern(b, text);
	}
	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	assert_int_equal(lg_lag_save(t, path, NULL), 0);
	assert_int_equal(lg_lag_open(path, &u, NULL), 0);
	assert_int_equal(trace_differences(t, u), 0);
	lg_trace_free(t);
	lg_trace_free(u);
}

/* The way of a recording: flushes between the rows, dictionary rows that change later. */
static void test_flushes(void **state)
{
	struct lg_builder *b, *all;
	struct lg_writer *w;
	struct lg_trace *t, *u;

	(void)state;
	assert_int_equal(lg_builder_new(&b, NULL), 0);
	assert_int_equal(lg_builder_new(&all, NULL), 0);
	assert_int_equal(lg_writer_open(&w, path, NULL), 0);
	for (uint64_t k = 0; k < 8; k++) {
		random_trace(b, 300, k);
		random_trace(all, 300, k);
		lg_thread_end(b, 100 + (int32_t)k, 5000);
		lg_thread_end(all, 100 + (int32_t)k, 5000);
		assert_int_equal(lg_builder_flush(b, &lg_writer_sink, w, NULL), 0);
		assert_int_equal(lg_builder_pending(b), 0);
	}
	assert_true(lg_writer_rows(w) > 8 * 300);
	assert_int_equal(lg_writer_close(w, NULL), 0);
	lg_builder_free(b);
	assert_int_equal(lg_builder_seal(all, &t, NULL), 0);
	assert_int_equal(lg_lag_open(path, &u, NULL), 0);
	/* The header's clocks stand in where a recording has no pair of its own; this one has. */
	assert_int_equal(trace_differences(t, u), 0);
	lg_trace_free(t);
	lg_trace_free(u);
}

static void test_crash_keeps_chunks(void **state)
{
	struct lg_builder *b;
	struct lg_writer *w;
	struct lg_trace *u;

	(void)state;
	(void)unlink(path);
	assert_int_equal(lg_builder_new(&b, NULL), 0);
	assert_int_equal(lg_writer_open(&w, path, NULL), 0);
	random_trace(b, 500, 3);
	assert_int_equal(lg_builder_flush(b, &lg_writer_sink, w, NULL), 0);
	assert_int_equal(access(path, F_OK), -1); /* a name only when there is something to keep */
	assert_int_equal(lg_writer_keep(w, NULL), 0);
	assert_int_equal(lg_writer_keep(w, NULL), 0);
	lg_writer_abort(w);
	lg_builder_free(b);
	assert_int_equal(lg_lag_open(path, &u, NULL), 0);
	assert_int_equal(u->state.n, 500);
	assert_int_equal(n_diag(u, LG_DIAG_FILE_TRUNCATED), 1);
	assert_int_equal(n_diag(u, LG_DIAG_FILE_DAMAGED), 0);
	lg_trace_free(u);
}

static void test_truncation(void **state)
{
	struct lg_trace *t = sealed(40, 7), *u;
	struct lg_error err;
	struct bytes f;
	size_t readable = 0;

	(void)state;
	assert_int_equal(lg_lag_save(t, path, NULL), 0);
	f = slurp(path);
	assert_true(f.n > 2000 && f.n < 40000);
	for (size_t n = 0; n < f.n; n++) {
		struct lg_builder *b;
		int rc;

		/* A copy of exact size, so that a sanitizer sees a read beyond it. */
		uint8_t *copy = malloc(n ? n : 1);

		memcpy(copy, f.p, n);
		assert_int_equal(lg_builder_new(&b, NULL), 0);
		rc = lg_lag_read_bytes(copy, n, b, &err);
		free(copy);
		if (rc) {
			assert_int_equal(rc, LG_E_FORMAT);
			assert_true(err.offset <= n);
			assert_int_equal(readable, 0);
			lg_builder_free(b);
			continue;
		}
		readable++;
		assert_int_equal(lg_builder_seal(b, &u, NULL), 0);
		assert_true(u->state.n == 0 || u->state.n == t->state.n);
		for (size_t i = 0; i < u->n_str && i < t->n_str; i++)
			assert_string_equal(lg_string(u, (lg_str)i), lg_string(t, (lg_str)i));
		assert_int_equal(n_diag(u, LG_DIAG_FILE_TRUNCATED), 1);
		assert_int_equal(n_diag(u, LG_DIAG_FILE_DAMAGED), 0);
		lg_trace_free(u);
	}
	assert_true(readable > f.n / 2);
	free(f.p);
	lg_trace_free(t);
}

static void test_bit_flips(void **state)
{
	struct lg_trace *t = sealed(40, 7), *u;
	size_t unread = 0, noticed = 0, n_flips;
	struct bytes f;

	(void)state;
	assert_int_equal(lg_lag_save(t, path, NULL), 0);
	f = slurp(path);
	n_flips = f.n;
	for (size_t at = 0; at < f.n; at++) {
		struct lg_builder *b;
		int rc;

		f.p[at] ^= (uint8_t)(1u << at % 8);
		assert_int_equal(lg_builder_new(&b, NULL), 0);
		rc = lg_lag_read_bytes(f.p, f.n, b, NULL);
		f.p[at] ^= (uint8_t)(1u << at % 8);
		if (rc) {
			unread++;
			lg_builder_free(b);
			continue;
		}
		assert_int_equal(lg_builder_seal(b, &u, NULL), 0);
		assert_subset(t, u, LG_TABLE_state);
		assert_subset(t, u, LG_TABLE_span);
		assert_subset(t, u, LG_TABLE_counter);
		noticed += n_diag(u, LG_DIAG_FILE_DAMAGED) || n_diag(u, LG_DIAG_FILE_TRUNCATED);
		lg_trace_free(u);
	}
	/* Only the magic is vital; only padding (under 8 bytes a chunk) may go unnoticed. */
	assert_int_equal(unread, 8);
	assert_true(noticed + unread >= n_flips - 17 * 7);
	free(f.p);
	lg_trace_free(t);
}

/* One chunk out of the middle costs its rows and nothing else. */
static void test_resync(void **state)
{
	struct lg_trace *t = sealed(2000, 9), *u;
	struct lg_builder *b;
	struct bytes f;
	struct lg_chunk_header h;
	size_t at = LG_LAG_HEADER_BYTES;

	(void)state;
	assert_int_equal(lg_lag_save(t, path, NULL), 0);
	f = slurp(path);
	for (;; at += sizeof h + ((h.stored_bytes + 7u) & ~7u)) {
		memcpy(&h, f.p + at, sizeof h);
		assert_true(h.magic == LG_CHUNK_MAGIC);
		if (h.section == LG_TABLE_sample)
			break;
	}
	memset(f.p + at, 0xa5, 100);
	assert_int_equal(lg_builder_new(&b, NULL), 0);
	assert_int_equal(lg_lag_read_bytes(f.p, f.n, b, NULL), 0);
	assert_int_equal(lg_builder_seal(b, &u, NULL), 0);
	assert_int_equal(u->sample.n, 0);
	assert_int_equal(u->state.n, t->state.n);
	assert_int_equal(u->diag.n, t->diag.n + 1);
	assert_int_equal(n_diag(u, LG_DIAG_FILE_DAMAGED), 1);
	for (size_t i = 0; i < u->diag.n; i++)
		if (u->diag.id[i] == LG_DIAG_FILE_DAMAGED)
			assert_int_equal(u->diag.count[i], 1);
	lg_trace_free(u);
	lg_trace_free(t);
	free(f.p);
}

/* Rewrite one table chunk of a file in memory: what a laggard with another schema would write. */
static struct bytes rewrite(const struct lg_table_desc *d, const struct lg_tab *tab, size_t n)
{
	struct lg_coder *c;
	struct lg_chunk_view v;
	struct lg_lag_header h;
	struct bytes f;

	assert_int_equal(lg_coder_new(&c), 0);
	lg_lag_header_init(&h, 0);
	assert_int_equal(lg_code_rows(c, d, tab, NULL, 0, n, &v, NULL), 0);
	f.n = sizeof h + v.n;
	f.p = malloc(f.n);
	assert_non_null(f.p);
	memcpy(f.p, &h, sizeof h);
	memcpy(f.p + sizeof h, v.p, v.n);
	lg_coder_free(c);
	return f;
}

static void test_other_schemas(void **state)
{
	int64_t ts[3] = { 10, 20, 30 }, extra[3] = { 7, 8, 9 };
	uint32_t thr[3] = { 0, 0, 0 };
	const struct lg_table_desc *mark = lg_schema_table(LG_TABLE_mark);
	struct lg_col_desc cols[16];
	struct {
		size_t n, cap;
		void *col[16];
	} tab = { .n = 3, .cap = 3, .col = { ts, thr, thr, extra, thr, extra, extra } };
	struct lg_table_desc d = *mark;
	struct lg_builder *b;
	struct lg_trace *t;
	struct bytes f;

	(void)state;
	memcpy(cols, mark->cols, mark->n_cols * sizeof *cols);
	cols[5] = cols[6] = cols[3];
	d.cols = cols;
	for (uint8_t n = 1; n <= 7; n++) { /* the mark table has 5 columns */
		d.n_cols = n;
		f = rewrite(&d, (struct lg_tab *)(void *)&tab, 3);
		assert_int_equal(lg_builder_new(&b, NULL), 0);
		assert_int_equal(lg_lag_read_bytes(f.p, f.n, b, NULL), 0);
		assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
		assert_int_equal(t->mark.n, 3);
		assert_int_equal(t->mark.ts[2], 30);
		assert_int_equal(t->mark.value[1], n > 3 ? 8 : 0);
		assert_int_equal(n_diag(t, LG_DIAG_FILE_DAMAGED), 0);
		lg_trace_free(t);
		free(f.p);
	}
	/* A table that only a newer laggard has. */
	d.id = 77;
	f = rewrite(&d, (struct lg_tab *)(void *)&tab, 3);
	assert_int_equal(lg_builder_new(&b, NULL), 0);
	assert_int_equal(lg_lag_read_bytes(f.p, f.n, b, NULL), 0);
	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	assert_int_equal(t->mark.n, 0);
	assert_int_equal(n_diag(t, LG_DIAG_NOT_UNDERSTOOD), 1);
	lg_trace_free(t);
	free(f.p);
}

static void test_newer_versions(void **state)
{
	struct lg_error err;
	struct lg_builder *b;
	struct lg_lag_header h;

	(void)state;
	assert_int_equal(lg_builder_new(&b, NULL), 0);
	lg_lag_header_init(&h, 0);
	h.min_reader = LG_LAG_VERSION + 1;
	h.sum = lg_lag_sum(&h, offsetof(struct lg_lag_header, sum));
	assert_int_equal(lg_lag_read_bytes(&h, sizeof h, b, &err), LG_E_UNSUPPORTED);
	lg_lag_header_init(&h, 0);
	h.features_must = 4;
	h.sum = lg_lag_sum(&h, offsetof(struct lg_lag_header, sum));
	assert_int_equal(lg_lag_read_bytes(&h, sizeof h, b, &err), LG_E_UNSUPPORTED);
	assert_non_null(strstr(err.message, "0x4"));
	lg_builder_free(b);
}

/* A few bytes that claim a million rows, again and again. */
static void test_bomb(void **state)
{
	struct lg_trace *t = sealed(1, 1);
	static uint64_t zero[LG_CHUNK_ROWS];
	struct {
		size_t n, cap;
		void *col[16];
	} tab = { .n = LG_CHUNK_ROWS, .cap = LG_CHUNK_ROWS };
	const struct lg_table_desc *d = lg_schema_table(LG_TABLE_counter);
	struct lg_coder *c;
	struct lg_chunk_view v;
	struct lg_chunk_header h;
	struct lg_lag_header head;
	struct lg_builder *b;
	struct bytes f = { .n = 0 };

	(void)state;
	for (size_t i = 0; i < 16; i++)
		tab.col[i] = zero;
	assert_int_equal(lg_coder_new(&c), 0);
	assert_int_equal(lg_code_rows(c, d, (struct lg_tab *)(void *)&tab, NULL, 0, LG_CHUNK_ROWS,
				      &v, NULL), 0);
	/* All rows alike: 400 such chunks are 26 million rows in 50 kB. */
	lg_lag_header_init(&head, 0);
	f.p = malloc(sizeof head + 400 * v.n);
	assert_non_null(f.p);
	memcpy(f.p, &head, sizeof head);
	f.n = sizeof head;
	h = v.header;
	for (uint32_t i = 0; i < 400; i++) {
		memcpy(f.p + f.n, v.p, v.n);
		lg_chunk_number(f.p + f.n, &h, i);
		f.n += v.n;
	}
	assert_int_equal(lg_builder_new(&b, NULL), 0);
	assert_int_equal(lg_lag_read_bytes(f.p, f.n, b, NULL), 0);
	assert_true(lg_builder_trace(b)->counter.n < 10u << 20);
	assert_int_equal(lg_builder_trace(b)->diag.id[0], LG_DIAG_FILE_DAMAGED);
	lg_builder_free(b);
	lg_coder_free(c);
	lg_trace_free(t);
	free(f.p);
}

static void test_disk_full(void **state)
{
	struct lg_builder *b;
	struct lg_writer *w;
	struct lg_error err;
	struct lg_trace *t;
	struct rlimit old, small;
	int rc = 0, rounds = 0;

	(void)state;
	/* RLIMIT_FSIZE stands in for a full disk: write() fails with EFBIG. */
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small = old;
	small.rlim_cur = 200000;
	assert_int_equal(lg_builder_new(&b, NULL), 0);
	assert_int_equal(lg_writer_open(&w, path, NULL), 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	while (!rc && rounds++ < 1000) {
		random_trace(b, 200, (uint64_t)rounds);
		rc = lg_builder_flush(b, &lg_writer_sink, w, &err);
	}
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(rc, LG_E_IO);
	assert_non_null(strstr(err.message, path));
	assert_non_null(strstr(err.message, "bytes are whole and readable"));
	assert_null(strchr(err.message, '\n'));
	/* Told once. */
	assert_int_equal(lg_writer_close(w, &err), 0);
	lg_builder_free(b);
	assert_int_equal(lg_lag_open(path, &t, &err), 0);
	assert_true(t->state.n >= 200);
	assert_int_equal(n_diag(t, LG_DIAG_FILE_TRUNCATED), 1);
	assert_int_equal(n_diag(t, LG_DIAG_FILE_DAMAGED), 0);
	assert_int_equal(lg_writer_open(&w, "/nonexistent/x.lag", &err), LG_E_IO);
	/* A recording keeps what was written; a trace that is saved at once leaves nothing, so nothing of it
	 * is readable, and what was there before is still there. */
	assert_non_null(strstr(err.message, "/nonexistent/x.lag"));
	small.rlim_cur = 3000;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	rc = lg_lag_save(t, path, &err);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(rc, LG_E_IO);
	assert_null(strstr(err.message, "readable"));
	assert_null(strstr(err.message, ".tmp"));
	assert_non_null(strstr(err.message, path));
	lg_trace_free(t);
	assert_int_equal(lg_lag_open(path, &t, &err), 0);
	assert_true(t->state.n >= 200);
	lg_trace_free(t);
}

static void test_ring(void **state)
{
	struct lg_builder *b;
	struct lg_ring *r;
	struct lg_trace *t;
	int64_t ts = 0;

	(void)state;
	assert_int_equal(lg_builder_new(&b, NULL), 0);
	assert_int_equal(lg_ring_new(&r, 10000, 0, NULL), 0);
	for (int k = 0; k < 100; k++) {
		for (int i = 0; i < 10; i++) {
			char text[32];

			snprintf(text, sizeof text, "frame %d", k);
			ts += 100;
			lg_add_mark(b, &(struct lg_mark_row){ .ts = ts, .name = lg_intern(b, text) });
		}
		/* A clock that went mad once must not empty the ring. */
		if (k == 50)
			lg_add_flow(b, &(struct lg_flow_row){ .ts = INT64_MAX / 2 });
		lg_add_diag_now(b, LG_DIAG_LOST_EVENTS, ts, 1, "round %d", k);
		assert_int_equal(lg_builder_flush(b, &lg_ring_sink, r, NULL), 0);
		if (k != 30)
			continue;
		/* A dump in the middle, as on SIGUSR1. */
		assert_int_equal(lg_ring_dump(r, path, INT64_MIN, NULL), 0);
		assert_int_equal(lg_lag_open(path, &t, NULL), 0);
		assert_true(t->mark.n >= 100 && t->mark.n <= 120);
		lg_trace_free(t);
	}
	assert_int_equal(lg_ring_dump(r, path, INT64_MIN, NULL), 0);
	assert_int_equal(lg_lag_open(path, &t, NULL), 0);
	assert_int_equal(n_diag(t, LG_DIAG_LOST_EVENTS), 100);
	assert_int_equal(n_diag(t, LG_DIAG_RING_DROPPED), 1);
	assert_int_equal(n_diag(t, LG_DIAG_FILE_TRUNCATED), 0);
	assert_int_equal(n_diag(t, LG_DIAG_FILE_DAMAGED), 0);
	assert_true(t->mark.n >= 100 && t->mark.n <= 120);
	assert_int_equal(t->mark.ts[t->mark.n - 1], ts);
	assert_int_equal(lg_ring_dropped(r), 1001 - t->mark.n); /* the mad flow, too */
	for (size_t i = 0; i < t->diag.n; i++)
		if (t->diag.id[i] == LG_DIAG_RING_DROPPED) {
			assert_int_equal(t->diag.count[i], 1001 - t->mark.n);
			assert_non_null(strstr(lg_string(t, t->diag.text[i]), "older"));
			assert_int_equal(t->diag.ts[i], 100);
		}
	assert_string_equal(lg_string(t, t->mark.name[t->mark.n - 1]), "frame 99");
	lg_trace_free(t);
	lg_ring_free(r);
	lg_builder_free(b);
}

/* A trigger's file holds what is around the moment, and says that there was more. */
static void test_ring_since(void **state)
{
	struct lg_builder *b;
	struct lg_ring *r;
	struct lg_trace *t;

	(void)state;
	assert_int_equal(lg_builder_new(&b, NULL), 0);
	assert_int_equal(lg_ring_new(&r, 100000, 0, NULL), 0);
	for (int64_t k = 1; k <= 10; k++) {
		lg_add_mark(b, &(struct lg_mark_row){ .ts = k * 1000 });
		assert_int_equal(lg_builder_flush(b, &lg_ring_sink, r, NULL), 0);
	}
	assert_int_equal(lg_ring_dump(r, path, 6500, NULL), 0);
	assert_int_equal(lg_lag_open(path, &t, NULL), 0);
	assert_int_equal(t->mark.n, 4);
	assert_int_equal(t->mark.ts[0], 7000);
	assert_int_equal(t->diag.n, 1);
	assert_int_equal(t->diag.id[0], LG_DIAG_RING_DROPPED);
	assert_int_equal(t->diag.count[0], 6);
	assert_int_equal(t->diag.ts[0], 1000);
	assert_non_null(strstr(lg_string(t, t->diag.text[0]), "before what this file is about"));
	lg_trace_free(t);
	/* The ring has them still; and of nothing that is young enough there is a file all the same. */
	assert_int_equal(lg_ring_dump(r, path, INT64_MIN, NULL), 0);
	assert_int_equal(lg_lag_open(path, &t, NULL), 0);
	assert_int_equal(t->mark.n, 10);
	lg_trace_free(t);
	assert_int_equal(lg_ring_dump(r, path, INT64_MAX, NULL), 0);
	assert_int_equal(lg_lag_open(path, &t, NULL), 0);
	assert_int_equal(t->mark.n, 0);
	lg_trace_free(t);
	lg_ring_free(r);
	lg_builder_free(b);
}

/* A thread that was blocked since long before the kept part began. */
static void test_ring_cuts_states(void **state)
{
	struct lg_builder *b;
	struct lg_ring *r;
	struct lg_trace *t;

	(void)state;
	assert_int_equal(lg_builder_new(&b, NULL), 0);
	assert_int_equal(lg_ring_new(&r, 3000, 0, NULL), 0);
	for (int64_t k = 1; k <= 10; k++) {
		lg_add_state(b, &(struct lg_state_row){ .ts = k * 1000 - 500, .dur = 500 });
		if (k == 10) {
			lg_add_state(b, &(struct lg_state_row){ .ts = 10, .dur = 9980, .thr = 0 });
			lg_add_state(b, &(struct lg_state_row){ .ts = 20, .dur = -1 });
			lg_add_state(b, &(struct lg_state_row){ .ts = 30, .dur = 9970, .run = 997,
								.flags = LG_STATE_SUMMED });
			lg_add_span(b, &(struct lg_span_row){ .ts = 6500, .dur = 3000 });
		}
		assert_int_equal(lg_builder_flush(b, &lg_ring_sink, r, NULL), 0);
	}
	assert_int_equal(lg_ring_dump(r, path, INT64_MIN, NULL), 0);
	assert_int_equal(lg_lag_open(path, &t, NULL), 0);
	/* Chunks that end at 7000 or later are kept: the hole ends at 6000. */
	assert_int_equal(t->first, 6000);
	assert_int_equal(t->state.n, 4 + 3);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(t->state.ts[i], 6000);
		assert_true(t->state.flags[i] & LG_STATE_EDGE);
	}
	assert_int_equal(t->state.dur[0], 3990);
	assert_int_equal(t->state.dur[1], -1);
	assert_int_equal(t->state.dur[2], 4000);
	assert_int_equal(t->state.run[2], 400);
	assert_int_equal(t->span.ts[0], 6500);
	lg_trace_free(t);
	lg_ring_free(r);
	lg_builder_free(b);
}

static void test_ring_bytes(void **state)
{
	struct lg_builder *b;
	struct lg_ring *r;
	struct lg_trace *t;

	(void)state;
	assert_int_equal(lg_builder_new(&b, NULL), 0);
	assert_int_equal(lg_ring_new(&r, INT64_MAX, 100000, NULL), 0);
	for (uint64_t k = 0; k < 30; k++) {
		random_trace(b, 300, k);
		assert_int_equal(lg_builder_flush(b, &lg_ring_sink, r, NULL), 0);
		assert_true(lg_ring_bytes(r) <= 100000);
	}
	assert_int_equal(lg_ring_dump(r, path, INT64_MIN, NULL), 0);
	assert_int_equal(lg_lag_open(path, &t, NULL), 0);
	assert_true(t->state.n > 0 && t->state.n < 30 * 300);
	assert_int_equal(n_diag(t, LG_DIAG_RING_DROPPED), 1);
	lg_trace_free(t);
	lg_ring_free(r);
	lg_builder_free(b);
}

/* What a full disk has no room for is the oldest part; the rest is a whole file. */
static void test_ring_on_a_full_disk(void **state)
{
	struct rlimit old, small;
	struct lg_builder *b;
	struct lg_ring *r;
	struct lg_trace *t;
	struct lg_error err;
	size_t all, before;

	(void)state;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small = old;
	assert_int_equal(lg_builder_new(&b, NULL), 0);
	assert_int_equal(lg_ring_new(&r, INT64_MAX / 2, 0, NULL), 0);
	for (uint64_t i = 0; i < 60; i++) {
		random_trace(b, 300, i);
		assert_int_equal(lg_builder_flush(b, &lg_ring_sink, r, NULL), 0);
	}
	assert_int_equal(lg_ring_dump(r, path, INT64_MIN, NULL), 0);
	assert_int_equal(lg_lag_open(path, &t, NULL), 0);
	all = before = t->state.n;
	lg_trace_free(t);
	for (small.rlim_cur = lg_ring_bytes(r); before > all / 4; small.rlim_cur -= lg_ring_bytes(r) / 10) {
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
		assert_int_equal(lg_ring_dump(r, path, INT64_MIN, &err), LG_E_IO);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
		assert_non_null(strstr(err.message, path));
		assert_non_null(strstr(err.message, "only the newest"));
		assert_int_equal(lg_lag_open(path, &t, &err), 0);
		assert_int_equal(n_diag(t, LG_DIAG_RING_DROPPED), 1);
		assert_int_equal(n_diag(t, LG_DIAG_FILE_TRUNCATED), 0);
		assert_true(t->state.n > 0 && t->state.n < before);
		before = t->state.n;
		lg_trace_free(t);
	}
	/* Names alone are no recording: the file before stays as it is. */
	small.rlim_cur = 3000;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(lg_ring_dump(r, path, INT64_MIN, &err), LG_E_IO);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(lg_lag_open(path, &t, NULL), 0);
	assert_int_equal(t->state.n, before);
	lg_trace_free(t);
	/* Nothing was taken from the ring: where there is room again, all of it is written. */
	assert_int_equal(lg_ring_dump(r, path, INT64_MIN, NULL), 0);
	assert_int_equal(lg_lag_open(path, &t, NULL), 0);
	assert_int_equal(t->state.n, all);
	lg_trace_free(t);
	lg_ring_free(r);
	lg_builder_free(b);
}

/* Everything from builder to reader, told to fail at its n-th allocation. */
static int whole_life(void)
{
	struct lg_builder *b = NULL;
	struct lg_writer *w = NULL;
	struct lg_ring *r = NULL;
	struct lg_trace *t;
	struct lg_error err;
	int rc = lg_builder_new(&b, &err);

	if (rc)
		return rc;
	rc = lg_writer_open(&w, path, &err);
	if (!rc)
		rc = lg_ring_new(&r, 1000000, 0, &err);
	if (!rc) {
		random_trace(b, 30, 5);
		rc = lg_builder_failed(b);
	}
	if (!rc)
		rc = lg_builder_flush(b, &lg_writer_sink, w, &err);
	if (!rc) {
		random_trace(b, 30, 6);
		rc = lg_builder_flush(b, &lg_ring_sink, r, &err);
	}
	if (!rc)
		rc = lg_ring_dump(r, path, INT64_MIN, &err);
	lg_ring_free(r);
	if (!rc)
		rc = lg_writer_close(w, &err);
	else
		lg_writer_abort(w);
	lg_builder_free(b);
	if (rc)
		return rc;
	rc = lg_lag_open(path, &t, &err);
	if (!rc)
		lg_trace_free(t);
	return rc;
}

static void test_no_memory(void **state)
{
	uint64_t n = 1;
	int rc;

	(void)state;
	lg_alloc_fail_at(0);
	assert_int_equal(whole_life(), 0);
	assert_true(lg_alloc_count() > 100);
	do {
		lg_alloc_fail_at(n++);
		rc = whole_life();
		assert_true(rc == 0 || rc == LG_E_NOMEM);
	} while (lg_alloc_count() >= n - 1);
	lg_alloc_fail_at(0);
	assert_int_equal(rc, 0);
}

/* A recording that took no clock pair has those of its header, a converted one has none. */
static void test_header_clocks(void **state)
{
	struct lg_builder *b;
	struct lg_writer *w;
	struct lg_trace *t, *u;

	(void)state;
	assert_int_equal(lg_builder_new(&b, NULL), 0);
	lg_add_mark(b, &(struct lg_mark_row){ .ts = 5 });
	assert_int_equal(lg_writer_open(&w, path, NULL), 0);
	assert_int_equal(lg_builder_flush(b, &lg_writer_sink, w, NULL), 0);
	assert_int_equal(lg_writer_close(w, NULL), 0);
	assert_int_equal(lg_lag_open(path, &t, NULL), 0);
	assert_int_equal(t->clock.n, 2);
	assert_true(t->clock.value[0] > t->clock.ts[0]);
	assert_int_equal(t->clock.clock[0] + t->clock.clock[1], CLOCK_REALTIME + CLOCK_BOOTTIME);
	t->clock.n = 0;
	assert_int_equal(lg_lag_save(t, path, NULL), 0);
	assert_int_equal(lg_lag_open(path, &u, NULL), 0);
	assert_int_equal(u->clock.n, 0);
	lg_trace_free(t);
	lg_trace_free(u);
	lg_builder_free(b);
}

static void test_errors(void **state)
{
	struct lg_builder *b;
	struct lg_error err;

	(void)state;
	assert_int_equal(lg_builder_new(&b, NULL), 0);
	assert_int_equal(lg_lag_read_bytes("", 0, b, &err), LG_E_FORMAT);
	assert_int_equal(lg_lag_read_bytes("{\"traceEvents\":[]}", 18, b, &err), LG_E_FORMAT);
	assert_int_equal(err.offset, 0);
	assert_int_equal(lg_lag_read("/nonexistent/x.lag", b, &err), LG_E_IO);
	assert_non_null(strstr(err.message, "/nonexistent/x.lag"));
	lg_builder_free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),	cmocka_unit_test(test_many_rows),
		cmocka_unit_test(test_flushes),		cmocka_unit_test(test_crash_keeps_chunks),
		cmocka_unit_test(test_truncation),	cmocka_unit_test(test_bit_flips),
		cmocka_unit_test(test_resync),		cmocka_unit_test(test_other_schemas),
		cmocka_unit_test(test_newer_versions),	cmocka_unit_test(test_bomb),
		cmocka_unit_test(test_disk_full),	cmocka_unit_test(test_ring),
		cmocka_unit_test(test_ring_since), cmocka_unit_test(test_ring_bytes),
		cmocka_unit_test(test_ring_cuts_states), cmocka_unit_test(test_ring_bytes),
		cmocka_unit_test(test_ring_on_a_full_disk),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_errors),		cmocka_unit_test(test_header_clocks),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
