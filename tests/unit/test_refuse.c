/* SPDX-License-Identifier: Apache-2.0 */
/* A file from which nothing can be read is told by what is wrong with it, and where. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <cmocka.h>

#include "import/import.h"
#include "import/refuse.h"

enum { ROOM = 1 << 20 };

static const char trace[] = "{\"traceEvents\":[{\"ph\":\"X\",\"ts\":1,\"dur\":5,\"pid\":1,\"tid\":1,\"name\":\"a\"}]}";
static uint8_t bytes[ROOM], noise[600000];
static struct lg_error err;

/* What is said of a file of these bytes; "" = it is read. */
static const char *said(const void *p, size_t n)
{
	char path[] = "/tmp/laggard-refuse-XXXXXX";
	const char *paths[] = { path };
	struct lg_import_info info;
	struct lg_trace *t = NULL;
	int fd = mkstemp(path), rc;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, p, n), n);
	close(fd);
	memset(&err, 0, sizeof err);
	rc = lg_import(paths, 1, &t, &info, &err);
	unlink(path);
	if (rc)
		assert_int_equal(rc, LG_E_FORMAT);
	else
		lg_trace_free(t);
	return rc ? err.message : "";
}

static void says(const void *p, size_t n, const char *what, uint64_t at)
{
	const char *got = said(p, n);

	if (!strstr(got, what))
		fail_msg("\"%s\" is not in: %s", what, got);
	assert_int_equal(err.offset, at);
}

static size_t gzip(const void *p, size_t n)
{
	z_stream z = { .next_in = (Bytef *)(uintptr_t)p, .avail_in = (uInt)n, .next_out = bytes,
		       .avail_out = ROOM };

	assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	n = z.total_out;
	deflateEnd(&z);
	return n;
}

static size_t zstd(const void *p, size_t n)
{
	n = ZSTD_compress(bytes, ROOM, p, n, 1);
	assert_false(ZSTD_isError(n));
	return n;
}

static void a_gzip_file_that_is_cut(void **state)
{
	size_t n = gzip(trace, sizeof trace - 1);

	(void)state;
	assert_string_equal(said(bytes, n), "");
	for (size_t k = 2; k < 10; k++)
		says(bytes, k, "its gzip data end inside their header; copy or make it again", k);
	says(bytes, 10, "its gzip data end before anything can be unpacked", 10);
	says(bytes, 15, "ends too early, before the first event", 4);
	n = gzip("", 0);
	says(bytes, n, "a gzip file of nothing: it unpacks to 0 bytes", n);
}

static void a_gzip_file_that_is_odd(void **state)
{
	size_t n = gzip(trace, sizeof trace - 1);

	(void)state;
	bytes[2] = 7;
	says(bytes, n, "its gzip data: unknown compression method", 2);
	bytes[2] = 8;
	bytes[3] = 0xe0;
	says(bytes, n, "its gzip data: unknown header flags set", 3);
	bytes[3] = 0;
	memset(bytes + 10, 0xff, n - 10);
	says(bytes, n, "its gzip data: invalid block type", 11);
	/* A name that never ends. */
	bytes[3] = 8;
	memset(bytes + 10, 'n', 9000);
	says(bytes, 9010, "its gzip data end inside their header", 9010);
}

static size_t xz(const void *p, size_t n)
{
	size_t at = 0;

	assert_int_equal(lzma_easy_buffer_encode(1, LZMA_CHECK_CRC64, NULL, p, n, bytes, &at, ROOM), LZMA_OK);
	return at;
}

static void an_xz_file_of_which_nothing_comes_out(void **state)
{
	size_t n = xz(trace, sizeof trace - 1);

	(void)state;
	assert_string_equal(said(bytes, n), "");
	for (size_t k = 6; k < 24; k++)
		says(bytes, k, "its xz data end before anything can be unpacked", k);
	bytes[8] ^= 1; /* the header's own checksum */
	says(bytes, n, "nothing can be unpacked from its xz data: they are damaged", 12);
	n = xz("", 0);
	says(bytes, n, "an xz file of nothing: it unpacks to 0 bytes", n);
	n = xz("#!/bin/sh\n", 10);
	says(bytes, n, "is an xz file; unpacked it is a script, not a trace", 0);
	says("BZh91AY&SY\0\1", 12, "is a bzip2 file, not a trace", 0);
}

static void a_zstd_file_of_which_nothing_comes_out(void **state)
{
	size_t n = zstd(trace, sizeof trace - 1);
	uint32_t x = 1;

	(void)state;
	assert_string_equal(said(bytes, n), "");
	for (size_t k = 2; k < 10; k++)
		says(bytes, k, "its zstd data end before anything can be unpacked", k);
	memset(bytes + 6, 0xff, 60);
	says(bytes, 66, "nothing can be unpacked from its zstd data: ", 0);
	n = zstd("", 0);
	says(bytes, n, "a zstd file of nothing: it unpacks to 0 bytes", n);
	/* The first block is longer than what a file is told by: whole, it is no such case; cut, it is. */
	memcpy(noise, "{\"traceEvents\":[{\"ph\":\"X\",\"ts\":1,\"dur\":5,\"pid\":1,\"tid\":1,\"name\":\"", 66);
	for (size_t i = 66; i < sizeof noise - 4; i++) {
		x = x * 1664525 + 1013904223;
		noise[i] = (uint8_t)('0' + (x >> 20) % 75);
		noise[i] = noise[i] == '\\' ? '_' : noise[i];
	}
	memcpy(noise + sizeof noise - 4, "\"}]}", 4);
	n = zstd(noise, sizeof noise);
	assert_string_equal(said(bytes, n), "");
	says(bytes, 50000, "its zstd data end before anything can be unpacked", 50000);
}

static void text_in_two_bytes_a_character(void **state)
{
	uint8_t wide[2 + 2 * sizeof trace] = { 0xff, 0xfe };
	size_t n;

	(void)state;
	for (size_t i = 0; i < sizeof trace - 1; i++)
		wide[2 + 2 * i] = (uint8_t)trace[i];
	n = 2 * sizeof trace;
	says(wide, n, "is UTF-16 text (it begins with a byte order mark): convert it first: iconv -f UTF-16", 0);
	says(wide + 2, n - 2, "is UTF-16LE text (every other byte is zero)", 0);
	says(wide + 3, n - 4, "is UTF-16BE text", 0);
	n = gzip(wide, n);
	says(bytes, n, "is a gzip file; unpacked it is UTF-16 text", 0);
	/* Not every file with zero bytes is text. */
	memset(wide, 0, sizeof wide);
	for (size_t i = 0; i < sizeof wide; i += 2)
		wide[i] = (uint8_t)(i * 37 | 0x80);
	says(wide, sizeof wide, "of no kind that is known here", 0);
}

/* As many formats as there is room for, none of them cut. */
static void lists_whole_formats(void **state)
{
	static const char formats[] = "a (x, y), bb, c d (as long as what stands for it, or longer)";
	char name[512], want[128];
	size_t lengths[3] = { 0 };

	(void)state;
	for (size_t n = 1; n < sizeof name; n++) {
		struct lg_error e = { 0 };
		struct lg_head h;
		const char *list;

		memset(name, 'n', n);
		name[n] = 0;
		assert_int_equal(lg_head_open(&h, (const uint8_t *)"hello", 5), 0);
		(void)lg_refuse_unknown(name, &h, formats, &e);
		lg_head_done(&h);
		assert_int_equal(e.code, LG_E_FORMAT);
		list = strstr(e.message, LG_REFUSE_LIST);
		if (!list)
			continue;
		list += strlen(LG_REFUSE_LIST);
		for (size_t k = 0; k < 3; k++) {
			const char *const parts[] = { formats, "a (x, y), bb", "a (x, y)" };

			snprintf(want, sizeof want, "%s%s", parts[k],
				 k ? " and others, see laggard-import-feeds(7)" : "");
			lengths[k] += !strcmp(list, want);
		}
		assert_int_equal(lengths[0] + lengths[1] + lengths[2], n);
	}
	for (size_t k = 0; k < 3; k++)
		assert_true(lengths[k]);
	/* The real list, behind a short name. */
	says("\xee\x01", 2, "table of nvidia-smi (dmon or --query-gpu), ", 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_gzip_file_that_is_cut),
		cmocka_unit_test(a_gzip_file_that_is_odd),
		cmocka_unit_test(an_xz_file_of_which_nothing_comes_out),
		cmocka_unit_test(a_zstd_file_of_which_nothing_comes_out),
		cmocka_unit_test(text_in_two_bytes_a_character),
		cmocka_unit_test(lists_whole_formats),
	};

	return cmocka_run_group_tests_name("refuse", tests, NULL, NULL);
}
