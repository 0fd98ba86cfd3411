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

#include "symbols/kallsyms.h"
#include "symbols/perf_map.h"

static int file_of(char path[64], const char *text)
{
	int fd;

	strcpy(path, "/tmp/lg_kallsyms_XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	return fd;
}

static int load(struct lg_kallsyms **ret, const char *text, struct lg_error *err)
{
	char path[64];
	int fd = file_of(path, text), rc = lg_kallsyms_load(ret, path, err);

	close(fd);
	unlink(path);
	return rc;
}

static void finds_the_function_around_an_address(void **state)
{
	struct lg_kallsyms *k;
	const char *module;

	(void)state;
	assert_int_equal(load(&k,
			      "ffffffff81000000 T _text\n"
			      "ffffffff81000000 T second_name\n"
			      "ffffffff81000100 t smap_gather_stats\n"
			      "ffffffff81000180 D not_code\n"
			      "garbage\n"
			      "ffffffffc0000000 t nvme_poll\t[nvme]\n"
			      "ffffffffc0000080 t nvme_irq\t[nvme]\n"
			      "ffffffff81000200 W last_core", /* out of order, no newline */
			      NULL), 0);
	assert_int_equal(lg_kallsyms_count(k), 6);
	assert_string_equal(lg_kallsyms_find(k, 0xffffffff81000000, &module), "_text");
	assert_string_equal(lg_kallsyms_find(k, 0xffffffff810001ff, &module), "smap_gather_stats");
	assert_string_equal(module, "");
	assert_string_equal(lg_kallsyms_find(k, 0xffffffff81000204, &module), "last_core");
	assert_string_equal(lg_kallsyms_find(k, 0xffffffffc0000090, &module), "nvme_irq");
	assert_string_equal(module, "[nvme]");
	assert_null(lg_kallsyms_find(k, 0xffffffff80ffffff, &module));
	assert_null(lg_kallsyms_find(k, 0xffffffff91000000, &module)); /* between core and modules */
	lg_kallsyms_free(k);
}

static void learns_and_forgets_programs_loaded_later(void **state)
{
	struct lg_kallsyms *k;
	const char *module;

	(void)state;
	assert_int_equal(load(&k, "ffffffff81000000 T _text\n", NULL), 0);
	assert_int_equal(lg_kallsyms_add(k, 0xffffffffc1000000, 0x40, "bpf_prog_1"), 0);
	assert_string_equal(lg_kallsyms_find(k, 0xffffffffc100003f, &module), "bpf_prog_1");
	assert_null(lg_kallsyms_find(k, 0xffffffffc1000040, &module));
	assert_int_equal(lg_kallsyms_add(k, 0xffffffffc1000000, 0x80, "bpf_prog_2"), 0);
	assert_string_equal(lg_kallsyms_find(k, 0xffffffffc1000040, &module), "bpf_prog_2");
	lg_kallsyms_drop(k, 0xffffffffc1000000);
	assert_null(lg_kallsyms_find(k, 0xffffffffc1000000, &module));
	lg_kallsyms_free(k);
}

static void says_when_addresses_are_hidden_or_missing(void **state)
{
	struct lg_kallsyms *k;
	struct lg_error err;

	(void)state;
	assert_int_equal(load(&k, "0000000000000000 T _text\n", &err), LG_E_PERM);
	assert_non_null(strstr(err.message, "kptr_restrict"));
	assert_int_equal(load(&k, "", &err), LG_E_FORMAT);
	assert_int_equal(lg_kallsyms_load(&k, "/nonexistent/kallsyms", &err), LG_E_IO);
}

static void later_jit_code_wins(void **state)
{
	struct lg_perf_map *m;
	char path[64];
	int fd = file_of(path, "1000 100 old\n2000 20 py::train:/x.py with spaces\nbad line\n"
			       "1000 80 new\n3000 10 cut_off_by_the_wri");

	(void)state;
	assert_int_equal(lg_perf_map_open(&m, fd, NULL), 0);
	assert_string_equal(lg_perf_map_find(m, 0x1004), "new");
	assert_string_equal(lg_perf_map_find(m, 0x201f), "py::train:/x.py with spaces");
	assert_null(lg_perf_map_find(m, 0x2020));
	assert_null(lg_perf_map_find(m, 0x3000));
	assert_null(lg_perf_map_find(m, 0xfff));
	lg_perf_map_free(m);
	close(fd);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finds_the_function_around_an_address),
		cmocka_unit_test(learns_and_forgets_programs_loaded_later),
		cmocka_unit_test(says_when_addresses_are_hidden_or_missing),
		cmocka_unit_test(later_jit_code_wins),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
