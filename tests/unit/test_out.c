/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include <zlib.h>

#include "base/alloc.h"
#include "base/out.h"

static char dir[] = "/tmp/laggard-test-XXXXXX";
static char path[128];

static int setup(void **state)
{
	(void)state;
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof path, "%s/out", dir);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(dir); /* fails where a temporary file was left behind */
}

static char *text_of(struct lg_out *o)
{
	size_t n;
	char *p = lg_out_take(o, &n);

	assert_non_null(p);
	assert_int_equal(strlen(p), n);
	assert_int_equal(lg_out_close(o, NULL), 0);
	return p;
}

static void test_numbers(void **state)
{
	struct lg_out *o;
	char *p;

	(void)state;
	assert_int_equal(lg_out_memory(&o, NULL), 0);
	lg_out_i64(o, 0);
	lg_out_puts(o, " ");
	lg_out_i64(o, INT64_MIN);
	lg_out_puts(o, " ");
	lg_out_i64(o, INT64_MAX);
	lg_out_printf(o, " %1000d|", 7);
	assert_int_equal(lg_out_bytes(o), 1 + 1 + 20 + 1 + 19 + 1 + 1000 + 1);
	p = text_of(o);
	assert_memory_equal(p, "0 -9223372036854775808 9223372036854775807 ", 43);
	lg_free(p);
}

static void assert_json(const char *in, size_t n, const char *want)
{
	struct lg_out *o;
	char *p;

	assert_int_equal(lg_out_memory(&o, NULL), 0);
	lg_out_json_string(o, in, n);
	p = text_of(o);
	assert_string_equal(p, want);
	lg_free(p);
}

static void test_json(void **state)
{
	(void)state;
	assert_json("", 0, "\"\"");
	assert_json("a\"b\\c\n\x7f", 7, "\"a\\\"b\\\\c\\u000a\\u007f\"");
	assert_json("a\0b", 3, "\"a\\u0000b\"");
	assert_json("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9, "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
	/* Overlong, surrogate, above U+10FFFF, stray, cut off: one U+FFFD a byte. */
	assert_json("\xc0\xaf", 2, "\"\\ufffd\\ufffd\"");
	assert_json("\xed\xa0\x80", 3, "\"\\ufffd\\ufffd\\ufffd\"");
	assert_json("\xf4\x90\x80\x80", 4, "\"\\ufffd\\ufffd\\ufffd\\ufffd\"");
	assert_json("x\x80y", 3, "\"x\\ufffdy\"");
	assert_json("\xe2\x82", 2, "\"\\ufffd\\ufffd\"");
}

/* Strings are scanned eight bytes at a time: every byte, at every place, between plain ones. */
static void test_json_every_byte(void **state)
{
	(void)state;
	for (unsigned c = 0; c < 256; c++) {
		for (size_t at = 0; at < 20; at++) {
			char in[20], want[64], mid[8];

			memset(in, 'p', sizeof in);
			in[at] = (char)c;
			if (c == '"' || c == '\\')
				snprintf(mid, sizeof mid, "\\%c", c);
			else if (c < 0x20 || c == 0x7f)
				snprintf(mid, sizeof mid, "\\u%04x", c);
			else if (c >= 0x80)
				snprintf(mid, sizeof mid, "\\ufffd");
			else
				snprintf(mid, sizeof mid, "%c", c);
			snprintf(want, sizeof want, "\"%.*s%s%.*s\"", (int)at, in, mid,
				 (int)(sizeof in - at - 1), in + at + 1);
			assert_json(in, sizeof in, want);
		}
	}
}

/* Numbers of every length, in place and at the edge of the file writer's buffer. */
static void test_reserve(void **state)
{
	char want[64], line[64], *at, *text;
	struct lg_out *o;
	FILE *f;

	(void)state;
	assert_int_equal(lg_out_memory(&o, NULL), 0);
	for (uint64_t v = 1; v; v = v > UINT64_MAX / 7 ? 0 : v * 7) {
		at = lg_out_reserve(o, 20);
		assert_non_null(at);
		snprintf(want, sizeof want, "%llu", (unsigned long long)v);
		assert_int_equal(lg_put_u64(at, v) - at, strlen(want));
		assert_memory_equal(at, want, strlen(want));
	}
	at = lg_out_reserve(o, 20);
	lg_out_commit(o, lg_put_u64(at, UINT64_MAX));
	text = text_of(o);
	assert_string_equal(text, "18446744073709551615"); /* what was not committed is not there */
	lg_free(text);

	assert_int_equal(lg_out_open(&o, path, LG_OUT_PLAIN, NULL), 0);
	for (unsigned i = 0; i < 100000; i++) {
		at = lg_out_reserve(o, 500);
		assert_non_null(at);
		at = lg_put_u64(at, 1000000 + i);
		*at++ = '\n';
		lg_out_commit(o, at);
	}
	assert_int_equal(lg_out_bytes(o), 800000);
	assert_int_equal(lg_out_close(o, NULL), 0);
	f = fopen(path, "r");
	assert_non_null(f);
	for (unsigned i = 0; i < 100000; i++) {
		snprintf(want, sizeof want, "%u\n", 1000000 + i);
		assert_non_null(fgets(line, sizeof line, f));
		assert_string_equal(line, want);
	}
	fclose(f);
	unlink(path);
}

static void write_much(struct lg_out *o)
{
	for (int i = 0; i < 100000; i++)
		lg_out_printf(o, "line %d\n", i);
}

static void test_file(void **state)
{
	struct lg_out *o;
	struct stat st;
	char line[64];
	gzFile z;
	int n = 0;

	(void)state;
	assert_int_equal(lg_out_open(&o, path, LG_OUT_PLAIN, NULL), 0);
	write_much(o);
	/* Not there before it is whole. */
	assert_int_not_equal(stat(path, &st), 0);
	n = (int)lg_out_bytes(o);
	assert_int_equal(lg_out_close(o, NULL), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, n);
	z = gzopen(path, "rb"); /* reads plain files as well */
	assert_non_null(z);
	for (n = 0; gzgets(z, line, sizeof line); n++)
		assert_int_equal(atoi(line + 5), n);
	assert_int_equal(n, 100000);
	assert_int_equal(gzclose(z), 0);
	n = (int)st.st_size;

	assert_int_equal(lg_out_open(&o, path, LG_OUT_GZIP, NULL), 0);
	write_much(o);
	assert_int_equal(lg_out_close(o, NULL), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size < n / 2);
	z = gzopen(path, "rb");
	assert_non_null(z);
	for (n = 0; gzgets(z, line, sizeof line); n++) {
		char want[64];

		snprintf(want, sizeof want, "line %d\n", n);
		assert_string_equal(line, want);
	}
	assert_int_equal(n, 100000);
	assert_int_equal(gzclose(z), 0);
}

/* A failure leaves what was there before, and no temporary file. */
static void test_failure_keeps_old(void **state)
{
	struct rlimit old, small;
	struct lg_out *o;
	struct lg_error err;
	struct stat before, after;

	(void)state;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(lg_out_open(&o, path, LG_OUT_PLAIN, NULL), 0);
	lg_out_puts(o, "precious");
	assert_int_equal(lg_out_close(o, NULL), 0);
	assert_int_equal(stat(path, &before), 0);

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small = old;
	/* The second: when a thread writes already. */
	for (small.rlim_cur = 300000; small.rlim_cur < 1000000; small.rlim_cur += 600000) {
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
		assert_int_equal(lg_out_open(&o, path, LG_OUT_PLAIN, NULL), 0);
		write_much(o);
		assert_int_equal(lg_out_close(o, &err), LG_E_IO);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
		assert_non_null(strstr(err.message, path));
	}

	assert_int_equal(lg_out_open(&o, path, LG_OUT_PLAIN, NULL), 0);
	write_much(o);
	lg_out_abort(o);
	assert_int_equal(stat(path, &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	assert_int_equal(lg_out_open(&o, "/nonexistent/x", LG_OUT_PLAIN, &err), LG_E_IO);
}

struct made {
	size_t n, i;
};

static void make_piece(void *arg, struct lg_pen *pen)
{
	const struct made *m = arg;
	unsigned char *at = m->n ? lg_pen_room(pen, m->n) : NULL;

	if (!at)
		return;
	memset(at, (int)('a' + m->i % 26), m->n);
	pen->n += m->n;
}

/* Pieces that are made in whatever order stand where they were announced, among what is written. */
static void test_later(void **state)
{
	enum { PIECES = 300 };
	static struct made made[PIECES];
	struct lg_error err;
	struct lg_out *o;
	struct rlimit old, small;
	char *all;
	size_t at = 0, total = 0;
	FILE *f;

	(void)state;
	assert_int_equal(lg_out_open(&o, path, LG_OUT_PLAIN, NULL), 0);
	for (size_t i = 0; i < PIECES; i++) {
		made[i] = (struct made){ .n = i * 7919 % 40000, .i = i };
		lg_out_puts(o, "<");
		lg_out_later(o, make_piece, &made[i]);
		lg_out_puts(o, ">");
		total += made[i].n + 2;
	}
	lg_out_settle(o);
	assert_int_equal(lg_out_bytes(o), total);
	assert_int_equal(lg_out_close(o, NULL), 0);
	all = lg_calloc(total + 1, 1);
	f = fopen(path, "r");
	assert_true(f && fread(all, 1, total + 1, f) == total);
	fclose(f);
	for (size_t i = 0; i < PIECES; i++) {
		assert_int_equal(all[at++], '<');
		for (size_t k = 0; k < made[i].n; k++)
			assert_int_equal(all[at++], 'a' + i % 26);
		assert_int_equal(all[at++], '>');
	}
	lg_free(all);

	/* Pieces of which nothing comes, where they are made at once. */
	assert_int_equal(lg_out_memory(&o, NULL), 0);
	lg_out_later(o, make_piece, &(struct made){ 0 });
	lg_out_later(o, make_piece, &(struct made){ .n = 3 });
	assert_int_equal(lg_out_bytes(o), 3);
	assert_memory_equal(lg_out_view(o), "aaa", 3);
	lg_out_abort(o);

	/* The disk is full; nothing is to be had for a piece. */
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small = old;
	small.rlim_cur = 300000;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(lg_out_open(&o, path, LG_OUT_PLAIN, NULL), 0);
	for (size_t i = 0; i < PIECES; i++)
		lg_out_later(o, make_piece, &made[i]);
	lg_out_settle(o);
	assert_int_equal(lg_out_close(o, &err), LG_E_IO);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(lg_out_open(&o, path, LG_OUT_PLAIN, NULL), 0);
	lg_out_later(o, make_piece, &made[1]);
	lg_out_settle(o);
	lg_alloc_fail_at(1);
	made[2].n = 1 << 20;
	lg_out_later(o, make_piece, &made[2]);
	lg_out_settle(o);
	lg_alloc_fail_at(0);
	assert_int_equal(lg_out_close(o, &err), LG_E_NOMEM);
}

/* Room that is reserved ahead of a long file's end goes back: all of it is the file's when that is closed. */
static void test_long_file(void **state)
{
	enum { PIECE = 100000, PIECES = 90 };
	static char piece[PIECE];
	struct stat st;
	struct lg_out *o;

	(void)state;
	memset(piece, 'x', sizeof piece);
	assert_int_equal(lg_out_open(&o, path, LG_OUT_PLAIN, NULL), 0);
	for (size_t i = 0; i < PIECES; i++)
		lg_out_write(o, piece, sizeof piece);
	assert_int_equal(lg_out_close(o, NULL), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, PIECE * PIECES);
	assert_true(st.st_blocks * 512 < st.st_size + (1 << 20));
}

static void test_no_memory(void **state)
{
	struct lg_error err;
	struct lg_out *o;
	int rc;

	(void)state;
	for (uint64_t n = 1;; n++) {
		lg_alloc_fail_at(n);
		rc = lg_out_memory(&o, &err);
		if (!rc) {
			write_much(o);
			rc = lg_out_close(o, &err);
		}
		if (lg_alloc_count() < n)
			break;
		assert_int_equal(rc, LG_E_NOMEM);
	}
	lg_alloc_fail_at(0);
	assert_int_equal(rc, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers),	 cmocka_unit_test(test_json),
		cmocka_unit_test(test_json_every_byte), cmocka_unit_test(test_reserve),
		cmocka_unit_test(test_file),	 cmocka_unit_test(test_failure_keeps_old),
		cmocka_unit_test(test_later),	 cmocka_unit_test(test_long_file),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
