/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of CPython's code objects, laid out by hand as each version does it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "symbols/python_code.h"

struct bytes {
	uint8_t at[4096];
	uint32_t n;
};

/* A str of one, two or four bytes a character; ascii tells whether the short head is used. */
static bool early; /* of 3.14 a build from before its release */
static struct bytes str(unsigned minor, const char *text, unsigned kind, bool ascii)
{
	struct bytes s = { .n = ascii ? (minor < 12 ? 48 : 40) : (minor < 12 ? 72 : 56) };
	uint64_t length = strlen(text);
	uint32_t bits = kind | 1u << 3 | (uint32_t)ascii << 4;

	bits = minor == 14 && early ? bits << 16 | 3 : bits << 2 | 1;
	memcpy(s.at + 16, &length, 8);
	memcpy(s.at + 32, &bits, 4);
	for (; *text; text++, s.n += kind)
		s.at[s.n] = (uint8_t)*text;
	return s;
}

static void put(int fd, unsigned minor, const struct bytes *name, const void *table, uint32_t n_table)
{
	struct bytes file = str(minor, "/a/train.py", 1, true);
	struct lg_python_object o = { .minor = minor, .first_line = 10, .n_name = name->n, .n_file = file.n,
				      .n_table = n_table, .code_units = minor < 11 ? 0 : 100 };
	static const uint8_t zero[8];
	uint32_t n = (uint32_t)sizeof o + name->n + file.n + n_table;

	o.bytes = (n + 7) & ~7u;
	assert_int_equal(write(fd, &o, sizeof o), sizeof o);
	assert_int_equal(write(fd, name->at, name->n), name->n);
	assert_int_equal(write(fd, file.at, file.n), file.n);
	assert_int_equal(write(fd, table, n_table), n_table);
	assert_int_equal(write(fd, zero, o.bytes - n), o.bytes - n);
}

/* Function, file and line of one object at a unit. */
static const char *found(unsigned minor, const void *table, uint32_t n_table, uint32_t unit)
{
	static char buf[1024];
	struct bytes name = str(minor, "f", 1, true);
	int fd = memfd_create("dump", MFD_CLOEXEC);
	struct lg_python_dump *d;

	put(fd, minor, &name, table, n_table);
	assert_int_equal(lg_python_dump_open(&d, fd), 0);
	assert_ptr_equal(lg_python_dump_find(d, unit, buf, sizeof buf), buf);
	assert_null(lg_python_dump_find(d, 1 << 16 | unit, buf, sizeof buf));
	assert_memory_equal(buf, "f\n/a/train.py\n", 14);
	lg_python_dump_free(d);
	close(fd);
	return buf + 14;
}

static void lines_before_3_10_are_pairs_up_to_an_instruction(void **state)
{
	/* 6 bytes of line 10, 4 of 11, 8 of 13, then 12 */
	static const uint8_t table[] = { 6, 1, 4, 2, 8, 0xff };

	(void)state;
	for (unsigned minor = 8; minor < 10; minor++) {
		assert_string_equal(found(minor, table, sizeof table, 0), "10");
		assert_string_equal(found(minor, table, sizeof table, 2), "10");
		assert_string_equal(found(minor, table, sizeof table, 3), "11");
		assert_string_equal(found(minor, table, sizeof table, 5), "13");
		assert_string_equal(found(minor, table, sizeof table, 9), "12");
		assert_string_equal(found(minor, table, sizeof table, LG_PYTHON_NO_UNITS), "10");
	}
}

static void lines_of_3_10_are_pairs_of_a_range_and_its_line(void **state)
{
	/* 6 bytes of line 11, 4 without one (-128), 8 of 13 */
	static const uint8_t table[] = { 6, 1, 4, 0x80, 8, 2 };

	(void)state;
	assert_string_equal(found(10, table, sizeof table, 0), "11");
	assert_string_equal(found(10, table, sizeof table, 2), "11");
	assert_string_equal(found(10, table, sizeof table, 5), "13");
	assert_string_equal(found(10, table, sizeof table, 8), "13");
}

static void lines_since_3_11_are_locations(void **state)
{
	static const uint8_t table[] = {
		0x80 | 0 << 3 | 1, 0x11,        /* short: 2 units, the same line */
		0x80 | 12 << 3 | 0, 0, 9,       /* one line, two on: 1 unit */
		0x80 | 13 << 3 | 2, 3,          /* no column, -1: 3 units */
		0x80 | 15 << 3 | 0,             /* none: 1 unit */
		0x80 | 14 << 3 | 0, 0x40 | 8, 2, 0, 1, 5, /* long: 8 + 2 * 64 is even: 68 on; 1 unit */
	};

	(void)state;
	for (unsigned minor = 11; minor <= 14; minor++) {
		assert_string_equal(found(minor, table, sizeof table, 99), "10");
		assert_string_equal(found(minor, table, sizeof table, 100), "10");
		assert_string_equal(found(minor, table, sizeof table, 101), "10");
		assert_string_equal(found(minor, table, sizeof table, 102), "12");
		assert_string_equal(found(minor, table, sizeof table, 103), "11");
		assert_string_equal(found(minor, table, sizeof table, 105), "11");
		assert_string_equal(found(minor, table, sizeof table, 106), "10"); /* no line: where it begins */
		assert_string_equal(found(minor, table, sizeof table, 107), "79");
		assert_string_equal(found(minor, table, sizeof table, 500), "79");
	}
}

static void text_of_any_kind_is_utf_8_without_control_characters(void **state)
{
	static const struct {
		const char *text;
		unsigned kind;
		bool ascii;
		const char *is;
	} some[] = {
		{ "go", 1, true, "go\n" }, { "g\xf6", 1, false, "g\xc3\xb6\n" }, { "ab", 2, false, "ab\n" },
		{ "ab", 4, false, "ab\n" }, { "a\nb\x1b", 1, true, "a?b?\n" }, { "", 1, true, "?\n" },
		{ "ab", 3, false, "?\n" },
	};
	struct lg_python_dump *d;
	char buf[1024];

	(void)state;
	for (unsigned version = 8; version <= 15; version++)
		for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
			unsigned minor = version > 14 ? 14 : version;
			int fd = memfd_create("dump", MFD_CLOEXEC);
			struct bytes name;

			early = version > 14;
			name = str(minor, some[i].text, some[i].kind, some[i].ascii);
			put(fd, minor, &name, "", 0);
			assert_int_equal(lg_python_dump_open(&d, fd), 0);
			assert_non_null(lg_python_dump_find(d, 0, buf, sizeof buf));
			assert_memory_equal(buf, some[i].is, strlen(some[i].is));
			lg_python_dump_free(d);
			close(fd);
		}
	early = false;
}

static void a_copy_that_is_cut_has_what_came_before(void **state)
{
	struct bytes name = str(12, "f", 1, true);
	int fd = memfd_create("dump", MFD_CLOEXEC);
	struct lg_python_dump *d;
	char buf[1024];
	off_t one;

	(void)state;
	put(fd, 12, &name, "", 0);
	one = lseek(fd, 0, SEEK_CUR);
	put(fd, 12, &name, "", 0);
	for (off_t n = 2 * one; n >= 0; n--) {
		assert_int_equal(ftruncate(fd, n), 0);
		assert_int_equal(lg_python_dump_open(&d, fd), 0);
		assert_int_equal(lg_python_dump_find(d, 0, buf, sizeof buf) != NULL, n >= one);
		assert_int_equal(lg_python_dump_find(d, 1 << 16, buf, sizeof buf) != NULL, n == 2 * one);
		lg_python_dump_free(d);
	}
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_before_3_10_are_pairs_up_to_an_instruction),
		cmocka_unit_test(lines_of_3_10_are_pairs_of_a_range_and_its_line),
		cmocka_unit_test(lines_since_3_11_are_locations),
		cmocka_unit_test(text_of_any_kind_is_utf_8_without_control_characters),
		cmocka_unit_test(a_copy_that_is_cut_has_what_came_before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
