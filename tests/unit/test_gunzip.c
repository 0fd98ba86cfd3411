/* SPDX-License-Identifier: Apache-2.0 */
/* The gzip reader: whatever zlib writes comes back, and damage is told, at every place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/map.h"
#include "import/source/gunzip.h"
#include "import/source/head.h"
#include "import/source/source.h"

enum { TEXT = 700000 };

static uint8_t text[TEXT], packed[2 * TEXT], back[2 * TEXT];

/* The tests run twice: by what this machine has, and by zlib. */
static int (*make)(struct lg_gunzip **ret, lg_gunzip_read *read, void *ctx, struct lg_error *err);

struct input {
	const uint8_t *p;
	size_t n, at_once;
	int fails; /* after the last byte */
};

static int64_t give(void *ctx, void *buf, size_t n)
{
	struct input *in = ctx;

	n = n < in->n ? n : in->n;
	n = n < in->at_once ? n : in->at_once;
	if (!n && in->fails)
		return LG_E_IO;
	memcpy(buf, in->p, n);
	in->p += n;
	in->n -= n;
	return (int64_t)n;
}

/* Like a trace: lines that repeat with other numbers, runs of one byte, and noise. */
static void fill(size_t n, uint64_t seed)
{
	size_t at = 0;

	while (at < n) {
		char line[80];
		uint64_t r = lg_mix64(seed++);
		size_t k;

		if (r % 50 == 0) {
			k = r >> 8 & 1023;
			k = k < n - at ? k : n - at;
			memset(text + at, (int)(r >> 20), k);
		} else if (r % 50 == 1) {
			k = r >> 8 & 255;
			k = k < n - at ? k : n - at;
			for (size_t i = 0; i < k; i++)
				text[at + i] = (uint8_t)lg_mix64(seed++);
		} else {
			snprintf(line, sizeof line, "{\"ph\": \"X\", \"ts\": %llu, \"name\": \"op%llu\"},\n",
				 (unsigned long long)(r % 100000), (unsigned long long)(r % 7));
			k = strlen(line);
			k = k < n - at ? k : n - at;
			memcpy(text + at, line, k);
		}
		at += k;
	}
}

static size_t pack(const uint8_t *p, size_t n, int level, int strategy, uint8_t *out, size_t size)
{
	z_stream z = { .next_in = (Bytef *)(uintptr_t)p, .avail_in = (uInt)n, .next_out = out,
		       .avail_out = (uInt)size };
	gz_header head = { .name = (Bytef *)(uintptr_t)"a name", .extra = (Bytef *)(uintptr_t)"xtra",
			   .extra_len = 4, .comment = (Bytef *)(uintptr_t)"c", .hcrc = 1 };

	assert_int_equal(deflateInit2(&z, level, Z_DEFLATED, 15 + 16, 8, strategy), Z_OK);
	if (n % 2)
		assert_int_equal(deflateSetHeader(&z, &head), Z_OK);
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	size -= z.avail_out;
	deflateEnd(&z);
	return size;
}

static bool ended_early; /* the data that unpack() saw last */

static size_t unpack(size_t n, size_t at_once, size_t piece, const char **ret_fault)
{
	static char fault[64];
	struct input in = { packed, n, at_once, 0 };
	struct lg_gunzip *z;
	size_t made = 0, k;

	assert_int_equal(make(&z, give, &in, NULL), 0);
	do {
		k = lg_gunzip_get(z, back + made, piece < sizeof back - made ? piece : sizeof back - made);
		made += k;
	} while (k == piece);
	snprintf(fault, sizeof fault, "%s", lg_gunzip_fault(z));
	ended_early = lg_gunzip_short(z);
	*ret_fault = fault;
	lg_gunzip_free(z);
	return made;
}

static void what_zlib_packs_comes_back(void **state)
{
	static const int strategies[] = { Z_DEFAULT_STRATEGY, Z_FILTERED, Z_HUFFMAN_ONLY, Z_RLE, Z_FIXED };
	static const size_t sizes[] = { 0, 1, 2, 300, 4097, 65536, 200001, TEXT };
	const char *fault;

	(void)state;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++)
			for (int level = 0; level <= 9; level += 3) {
				size_t n = sizes[i], k;

				fill(n, i * 100 + s * 10 + (size_t)level);
				k = pack(text, n, level, strategies[s], packed, sizeof packed);
				assert_int_equal(unpack(k, SIZE_MAX, sizeof back, &fault), n);
				assert_string_equal(fault, "");
				assert_memory_equal(back, text, n);
				memset(back, 0, n);
				assert_int_equal(unpack(k, 1 + n % 7, 1000 + n % 13, &fault), n);
				assert_string_equal(fault, "");
				assert_memory_equal(back, text, n);
			}
}

static void members_are_one_text_and_padding_is_none(void **state)
{
	const char *fault;
	size_t n = 0;

	(void)state;
	fill(100000, 7);
	for (size_t i = 0; i < 10; i++)
		n += pack(text + i * 10000, 10000, 6, Z_DEFAULT_STRATEGY, packed + n, sizeof packed - n);
	memset(packed + n, 0, 512);
	assert_int_equal(unpack(n + 512, 3, 777, &fault), 100000);
	assert_string_equal(fault, "");
	assert_memory_equal(back, text, 100000);
}

static void what_is_cut_off_gives_its_beginning(void **state)
{
	const char *fault;
	size_t n, made, last = 0;

	(void)state;
	for (int level = 0; level <= 6; level += 6) {
		fill(3000, 9);
		n = pack(text, 3000, level, Z_DEFAULT_STRATEGY, packed, sizeof packed);
		for (size_t cut = 0; cut < n; cut++) {
			made = unpack(cut, SIZE_MAX, sizeof back, &fault);
			assert_string_equal(fault, "the compressed data ends too early");
			assert_true(ended_early);
			assert_true(made <= 3000 && made + 600 >= last);
			assert_memory_equal(back, text, made);
			last = made;
		}
		assert_true(last > 2700);
		last = 0;
	}
}

static void a_changed_bit_is_noticed(void **state)
{
	const char *fault;
	size_t n, seen = 0;

	(void)state;
	fill(2000, 11);
	n = pack(text, 2000, 6, Z_DEFAULT_STRATEGY, packed, sizeof packed);
	/* Behind the header, whose time and system may be anything; the byte before the trailer may end in
	 * bits that mean nothing. */
	for (size_t bit = 80; bit < 8 * n; bit++) {
		if (bit / 8 == n - 9)
			continue;
		packed[bit / 8] ^= (uint8_t)(1 << bit % 8);
		(void)unpack(n, 64, 500, &fault);
		seen += *fault != 0;
		packed[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	assert_int_equal(seen, 8 * n - 80 - 8);
}

/* Deflate's bits, RFC 1951 3.1.1: from the least significant on; codes with their first bit first. */
static void put(size_t *at, unsigned value, unsigned bits)
{
	for (; bits; bits--, value >>= 1, ++*at)
		packed[*at / 8] = (uint8_t)(packed[*at / 8] | (value & 1) << *at % 8);
}

/*
 * A member that ends at once: one block with codes of its own, in which only the end of block has one,
 * of `length` bits. One bit is a valid set of one code; two bits leave codes that mean nothing
 * (zlib 1.2.13, inftrees.c: "incomplete set"), and ISA-L does not look.
 */
static size_t pack_nothing(unsigned length)
{
	static const uint8_t header[10] = { 0x1f, 0x8b, 8 };
	size_t at = 8 * sizeof header;

	memset(packed, 0, 64);
	memcpy(packed, header, sizeof header);
	put(&at, 1 | 2 << 1, 3);  /* the last block, with codes of its own */
	put(&at, 0, 5 + 5);       /* 257 codes for literals and lengths, one for distances */
	put(&at, 18 - 4, 4);
	for (int i = 0; i < 18; i++) /* for 16 17 18 0 8 7 9 6 10 5 11 4 12 3 13 2 14 1 */
		put(&at, i == 2 ? 1 : i == 15 || i == 17 ? 2 : 0, 3);
	put(&at, 0, 1);           /* 256 literals have none: 138 and */
	put(&at, 138 - 11, 7);
	put(&at, 0, 1);           /* 118 */
	put(&at, 118 - 11, 7);
	put(&at, length == 1 ? 1 : 3, 2);
	put(&at, 1, 2);           /* the distance: one bit */
	put(&at, 0, length);      /* the end */
	return (at + 7) / 8 + 8;
}

static void codes_that_are_no_set_are_damage_also_of_an_empty_text(void **state)
{
	const char *fault;

	(void)state;
	for (size_t at_once = 1; at_once < 40; at_once++) {
		size_t n = pack_nothing(1), more;

		assert_int_equal(unpack(n, at_once, 10, &fault), 0);
		assert_string_equal(fault, "");
		more = pack(text, 2000, 6, Z_DEFAULT_STRATEGY, packed + n, sizeof packed - n);
		assert_int_equal(unpack(n + more, at_once, sizeof back, &fault), 2000);
		assert_string_equal(fault, "");
		assert_memory_equal(back, text, 2000);
		assert_int_equal(unpack(pack_nothing(2), at_once, 10, &fault), 0);
		assert_string_equal(fault, "the gzip data is damaged");
	}
}

static void what_cannot_be_read_is_not_called_damaged(void **state)
{
	struct input in = { packed, 0, SIZE_MAX, 1 };
	struct lg_gunzip *z;

	(void)state;
	fill(50000, 13);
	in.n = pack(text, 50000, 6, Z_DEFAULT_STRATEGY, packed, sizeof packed) / 2;
	assert_int_equal(make(&z, give, &in, NULL), 0);
	assert_true(lg_gunzip_get(z, back, sizeof back) < 50000);
	assert_int_equal(lg_gunzip_stopped(z), LG_E_IO);
	lg_gunzip_free(z);
}

/* The first n packed bytes as a file, by the reader of logs and texts; the damage it tells, or NULL. */
static const char *as_source(size_t n, size_t *ret_n)
{
	char path[] = "/tmp/laggard-gunzip-XXXXXX", *got = NULL;
	const char *damage = NULL;
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, packed, n), n);
	close(fd);
	assert_int_equal(lg_source_all(path, sizeof back, &got, ret_n, &damage, NULL), 0);
	unlink(path);
	memcpy(back, got, *ret_n);
	lg_free(got);
	return damage;
}

static void a_source_reads_the_same_and_says_it_in_its_words(void **state)
{
	struct lg_head head;
	size_t n = 0, got;

	(void)state;
	fill(300000, 15);
	for (size_t i = 0; i < 3; i++)
		n += pack(text + i * 100000, 100000, 6, Z_DEFAULT_STRATEGY, packed + n, sizeof packed - n);
	memset(packed + n, 0, 700);
	assert_null(as_source(n + 700, &got));
	assert_int_equal(got, 300000);
	assert_memory_equal(back, text, got);
	assert_int_equal(lg_head_open(&head, packed, 4096), 0);
	assert_true(head.n_text > 100);
	assert_memory_equal(head.text, text, head.n_text);
	lg_head_done(&head);
	assert_string_equal(as_source(n - 9, &got), "its gzip data ends early");
	assert_true(got > 250000);
	assert_memory_equal(back, text, got);
	packed[n / 2] ^= 0x40;
	assert_string_equal(as_source(n, &got), "its gzip data is damaged");
	assert_true(got <= 200000);
}

static int by_either(void **state)
{
	(void)state;
	make = lg_gunzip_new;
	return 0;
}

static int by_zlib(void **state)
{
	(void)state;
	make = lg_gunzip_new_zlib;
	return 0;
}

int main(void)
{
#define BOTH(f) cmocka_unit_test_setup(f, by_either), { #f ".zlib", f, by_zlib, NULL, NULL }
	const struct CMUnitTest tests[] = {
		BOTH(what_zlib_packs_comes_back),
		BOTH(members_are_one_text_and_padding_is_none),
		BOTH(what_is_cut_off_gives_its_beginning),
		BOTH(a_changed_bit_is_noticed),
		BOTH(codes_that_are_no_set_are_damage_also_of_an_empty_text),
		BOTH(what_cannot_be_read_is_not_called_damaged),
		cmocka_unit_test(a_source_reads_the_same_and_says_it_in_its_words),
	};

	return cmocka_run_group_tests_name("gunzip", tests, NULL, NULL);
}
