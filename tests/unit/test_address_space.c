/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "record/address_space.h"

static struct lg_spaces spaces;

static int begin(void **state)
{
	(void)state;
	spaces = (struct lg_spaces){ 0 };
	return lg_builder_new(&spaces.b, NULL);
}

static int end(void **state)
{
	struct lg_builder *b = spaces.b;

	(void)state;
	lg_spaces_done(&spaces);
	lg_builder_free(b);
	return 0;
}

static void put(int pid, uint64_t start, uint64_t stop, uint64_t pgoff, const char *name)
{
	struct lg_mapping m = { .start = start, .end = stop, .pgoff = pgoff,
				.name = lg_intern(spaces.b, name) };

	lg_space_put(&spaces, lg_space_get(&spaces, pid), &m);
}

static void a_mapping_inside_another_splits_it(void **state)
{
	struct lg_space *p;
	struct lg_mapping *m;

	(void)state;
	put(9, 0x1000, 0x9000, 0x100000, "/lib/a.so");
	put(9, 0x3000, 0x4000, 0, "/lib/b.so");
	p = lg_space_get(&spaces, 9);
	assert_int_equal(p->n, 3);
	m = lg_space_find(p, 0x4000);
	assert_int_equal(m->start, 0x4000);
	assert_int_equal(m->pgoff, 0x103000);
	assert_int_equal(lg_space_find(p, 0x2fff)->pgoff, 0x100000);
	assert_string_equal(lg_string(lg_builder_trace(spaces.b), lg_space_find(p, 0x3fff)->name),
			    "/lib/b.so");
	assert_null(lg_space_find(p, 0xfff));
	assert_null(lg_space_find(p, 0x9000));
}

/* Pages 0..255, each belongs to the mapping put last over it: the plain model. */
static void any_sequence_agrees_with_a_page_table(void **state)
{
	uint64_t seed = 4711;

	(void)state;
	for (int round = 0; round < 50; round++) {
		struct { lg_str name; uint64_t offset; } page[256] = { 0 };
		int pid = 100 + round;
		struct lg_space *p;

		for (int n = 0; n < 60; n++) {
			char name[16];
			unsigned from, to;

			seed = lg_mix64(seed);
			from = (unsigned)(seed % 255);
			to = from + 1 + (unsigned)((seed >> 20) % (256 - from));
			snprintf(name, sizeof name, "f%d", n % 7);
			put(pid, from, to, 1000u * (unsigned)n, name);
			for (unsigned a = from; a < to && a < 256; a++) {
				page[a].name = lg_intern(spaces.b, name);
				page[a].offset = 1000u * (unsigned)n + a - from;
			}
			p = lg_space_get(&spaces, pid);
			for (size_t i = 1; i < p->n; i++)
				assert_true(p->map[i - 1].end <= p->map[i].start);
		}
		p = lg_space_get(&spaces, pid);
		for (unsigned a = 0; a < 256; a++) {
			struct lg_mapping *m = lg_space_find(p, a);

			assert_int_equal(m ? m->name : 0, page[a].name);
			if (m)
				assert_int_equal(a - m->start + m->pgoff, page[a].offset);
		}
	}
}

static void a_child_has_its_parents_code_until_it_execs(void **state)
{
	uint64_t before;

	(void)state;
	put(9, 0x1000, 0x2000, 0, "/bin/parent");
	lg_space_get(&spaces, 9)->whole = 1;
	lg_space_fork(&spaces, 9, 10);
	assert_non_null(lg_space_find(lg_space_get(&spaces, 10), 0x1800));
	before = lg_space_get(&spaces, 10)->version;
	lg_space_exec(&spaces, 10);
	assert_null(lg_space_find(lg_space_get(&spaces, 10), 0x1800));
	assert_true(lg_space_get(&spaces, 10)->version > before);
	assert_true(lg_space_get(&spaces, 10)->whole);
	assert_non_null(lg_space_find(lg_space_get(&spaces, 9), 0x1800));
}

static void reads_what_was_mapped_before(void **state)
{
	struct lg_space *p = lg_space_get(&spaces, getpid());
	struct lg_mapping *m;

	(void)state;
	lg_space_fill(&spaces, p);
	m = lg_space_find(p, (uint64_t)(uintptr_t)&reads_what_was_mapped_before);
	assert_non_null(m);
	assert_non_null(strstr(lg_string(lg_builder_trace(spaces.b), m->name), "test_address_space"));
	assert_int_equal(spaces.failed, 0);
	/* A process that is not there costs one try and is counted. */
	p = lg_space_get(&spaces, 0x7ffffff0);
	lg_space_fill(&spaces, p);
	lg_space_fill(&spaces, p);
	assert_int_equal(p->reads, 1);
	assert_int_equal(spaces.failed, 1);
}

static void many_dead_processes_are_forgotten_but_the_newest(void **state)
{
	size_t kept = 0;

	(void)state;
	for (int pid = 1000; pid < 4000; pid++) {
		put(pid, 0x1000, 0x2000, 0, "/bin/sh");
		lg_space_exit(&spaces, pid * INT64_C(10000000), pid);
	}
	for (size_t i = 0; i < spaces.n; i++)
		kept += spaces.space[i].n > 0;
	assert_true(kept < 1200);
	assert_non_null(lg_space_find(lg_space_get(&spaces, 3999), 0x1000));
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_mapping_inside_another_splits_it),
		TEST(any_sequence_agrees_with_a_page_table),
		TEST(a_child_has_its_parents_code_until_it_execs),
		TEST(reads_what_was_mapped_before),
		TEST(many_dead_processes_are_forgotten_but_the_newest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
