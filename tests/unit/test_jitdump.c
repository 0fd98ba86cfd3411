/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "symbols/jitdump.h"

struct file {
	uint8_t b[4096];
	size_t n;
};

static void put(struct file *f, uint64_t v, size_t n)
{
	memcpy(f->b + f->n, &v, n); /* the tests' machine is little-endian, as the dump's */
	f->n += n;
}

static void head(struct file *f)
{
	f->n = 0;
	put(f, 0x4a695444, 4);
	put(f, 1, 4);
	put(f, 40, 4);
	put(f, 62, 4);
	put(f, 0, 4);
	put(f, 900, 4);
	put(f, 1000, 8);
	put(f, 0, 8);
}

static void code(struct file *f, uint64_t ts, uint64_t at, uint64_t size, const char *name)
{
	size_t n = strlen(name) + 1;

	put(f, 0, 4);
	put(f, 16 + 40 + n + size, 4);
	put(f, ts, 8);
	put(f, 900, 4);
	put(f, 900, 4);
	put(f, at, 8);
	put(f, at, 8);
	put(f, size, 8);
	put(f, 1, 8);
	memcpy(f->b + f->n, name, n);
	f->n += n;
	memset(f->b + f->n, 0xcc, size);
	f->n += size;
}

static struct lg_jitdump *open_dump(const struct file *f, size_t n)
{
	int fd = memfd_create("jit", MFD_CLOEXEC);
	struct lg_jitdump *j = NULL;

	assert_int_equal(write(fd, f->b, n), n);
	lseek(fd, 0, SEEK_SET);
	if (lg_jitdump_open(&j, fd, NULL))
		j = NULL;
	close(fd);
	return j;
}

static const char *at(const struct lg_jitdump *j, uint64_t addr, uint64_t ts)
{
	uint64_t start;
	const char *s = lg_jitdump_find(j, addr, ts, &start);

	if (s)
		assert_true(start <= addr);
	return s ? s : "";
}

static struct file f;

static void an_address_names_the_function_of_the_moment(void **state)
{
	struct lg_jitdump *j;

	(void)state;
	head(&f);
	code(&f, 2000, 0x1000, 64, "first");
	code(&f, 3000, 0x1100, 16, "other");
	put(&f, 2, 4); /* debug info: skipped */
	put(&f, 32, 4);
	put(&f, 0, 8);
	put(&f, 0, 8);
	put(&f, 0, 8);
	code(&f, 5000, 0x1020, 64, "second");
	put(&f, 1, 4); /* "other" moves */
	put(&f, 16 + 48, 4);
	put(&f, 6000, 8);
	put(&f, 900, 8);
	put(&f, 0x1100, 8);
	put(&f, 0x1100, 8);
	put(&f, 0x2000, 8);
	put(&f, 16, 8);
	put(&f, 1, 8);
	j = open_dump(&f, f.n);
	assert_non_null(j);
	assert_int_equal(lg_jitdump_count(j), 4);
	assert_string_equal(at(j, 0x1000, 2500), "first");
	assert_string_equal(at(j, 0x1030, 2500), "first");
	assert_string_equal(at(j, 0x1030, 5000), "second");
	assert_string_equal(at(j, 0x1010, 9000), "first");
	assert_string_equal(at(j, 0x105f, 9000), "second");
	assert_string_equal(at(j, 0x1060, 9000), "");
	assert_string_equal(at(j, 0xfff, 9000), "");
	assert_string_equal(at(j, 0x1108, 1), "other"); /* clocks a little apart */
	assert_string_equal(at(j, 0x2008, 7000), "other");
	assert_int_equal(lg_jitdump_next_reuse(j, 0), 2000);
	assert_int_equal(lg_jitdump_next_reuse(j, 2000), 5000);
	assert_true(lg_jitdump_next_reuse(j, 5000) == UINT64_MAX);
	lg_jitdump_free(j);
}

static void cut_files_are_read_as_far_as_they_go(void **state)
{
	size_t most = 0;

	(void)state;
	head(&f);
	code(&f, 2000, 0x1000, 64, "first");
	code(&f, 3000, 0x1100, 16, "other");
	for (size_t n = 0; n <= f.n; n++) {
		struct lg_jitdump *j = open_dump(&f, n);

		assert_true((j != NULL) == (n >= 40));
		if (!j)
			continue;
		assert_true(lg_jitdump_count(j) >= most && lg_jitdump_count(j) <= 2);
		most = lg_jitdump_count(j);
		lg_jitdump_free(j);
	}
	assert_int_equal(most, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_address_names_the_function_of_the_moment),
		cmocka_unit_test(cut_files_are_read_as_far_as_they_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
