/* SPDX-License-Identifier: Apache-2.0 */
/* perf record --kcore: names of kernel functions from the folder, whole, damaged or of another kernel. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "import/import.h"
#include "perf_kernel_file.h"

#define TEXT UINT64_C(0xffff9a5d01200000) /* no kernel lies there: it cannot be this machine's */
#define MODULE UINT64_C(0xffffffffc0801000)

static const uint64_t ips[] = { TEXT + 0x110, TEXT + 0x210, TEXT + 0x310, MODULE + 0x10 };
static const char whole[] = "0000000000000000 A fixed_percpu_data\n"
			    "ffff9a5d01200000 T _text\n"
			    "ffff9a5d01200100 t first_one\n"
			    "ffff9a5d01200200 T second_one\n"
			    "ffff9a5d01200300 t third_one\n"
			    "ffffffffc0801000 t of_module\t[some_module]\n"
			    "ffffffffc0801100 t last_of_module\t[some_module]\n";

static char folder[32], kcore_dir[64], kallsyms[96], data_path[64];

static void put_data(void)
{
	static struct file f;
	size_t data, at;

	f = (struct file){ 0 };
	file_begin(&f, &kernel_samples, 1, 112);
	data = f.n;
	at = begin(&f, PD_MMAP, PDM_KERNEL);
	put32(&f, UINT32_MAX);
	put32(&f, 0);
	put64(&f, TEXT);
	put64(&f, 0x400);
	put64(&f, TEXT);
	put_text(&f, "[kernel.kallsyms]_text", 24);
	put_text(&f, "", 24); /* made up: no time */
	end(&f, at);
	put_kernel_samples(&f, ips, sizeof ips / sizeof *ips);
	file_done(&f, data);
	put_file(data_path, f.p, f.n);
}

static int make(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/lg-kcore-XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(data_path, sizeof data_path, "%s/data", folder);
	snprintf(kcore_dir, sizeof kcore_dir, "%s/kcore_dir", folder);
	snprintf(kallsyms, sizeof kallsyms, "%s/kallsyms", kcore_dir);
	assert_int_equal(mkdir(kcore_dir, 0700), 0);
	put_data();
	return 0;
}

static int unmake(void **state)
{
	(void)state;
	unlink(kallsyms);
	rmdir(kcore_dir);
	unlink(data_path);
	return rmdir(folder);
}

/* "a b - d": the names of the samples' functions; why: what a limit says of the table, "" = nothing. */
static void check(const char *path, const char *want, const char *why)
{
	const char *said = "";
	struct lg_trace *t = import_file(path);

	check_names(t, want, "of_module");
	for (size_t i = 0; i < t->diag.n; i++)
		if (strstr(lg_string(t, t->diag.text[i]), "kcore_dir/kallsyms"))
			said = lg_string(t, t->diag.text[i]);
	if (*why ? !strstr(said, why) : *said)
		fail_msg("\"%s\" does not say \"%s\"", said, why);
	lg_trace_free(t);
}

static void names_functions_by_the_folder(void **state)
{
	char guest[96];

	(void)state;
	put_file(kallsyms, whole, strlen(whole));
	assert_true(lg_import_is_folder(folder));
	check(folder, "first_one second_one third_one of_module", "");
	check(data_path, "first_one second_one third_one of_module", "");
	/* A guest's is another kernel. */
	snprintf(guest, sizeof guest, "%s__4711", kcore_dir);
	assert_int_equal(rename(kcore_dir, guest), 0);
	assert_false(lg_import_is_folder(folder));
	check(data_path, "- - - -", "");
	assert_int_equal(rename(guest, kcore_dir), 0);
}

static void believes_the_kernel_that_was_recorded_only(void **state)
{
	char other[sizeof whole];

	(void)state;
	strcpy(other, whole);
	memcpy(strstr(other, "ffff9a5d01200000"), "ffff9a5d01100000", 16);
	put_file(kallsyms, other, strlen(other));
	check(folder, "- - - -", "is of another kernel or boot: _text ");
	memcpy(strstr(other, "_text"), "_xetx", 5);
	put_file(kallsyms, other, strlen(other));
	check(folder, "- - - -", "is of another kernel or boot: _text ");
}

static void says_what_is_wrong_with_it(void **state)
{
	(void)state;
	unlink(kallsyms);
	assert_true(lg_import_is_folder(folder));
	check(folder, "- - - -", "cannot be read: No such file");
	assert_int_equal(mkfifo(kallsyms, 0600), 0); /* nobody writes: it must not wait */
	check(folder, "- - - -", "is no file");
	unlink(kallsyms);
	assert_int_equal(mkdir(kallsyms, 0700), 0);
	check(folder, "- - - -", "is no file");
	rmdir(kallsyms);
	put_file(kallsyms, "", 0);
	check(folder, "- - - -", "has no functions");
	put_file(kallsyms, "0000000000000000 T _text\n", 25);
	check(folder, "- - - -", "has no addresses");
	assert_int_equal(truncate(kallsyms, (off_t)65 << 20), 0);
	check(folder, "- - - -", "more than any kernel's");
}

/* Cut at every byte: never a wrong name, and a limit wherever the end shows it. */
static void survives_truncation_at_every_byte(void **state)
{
	/* By the whole lines behind _text: where the last one ends nobody knows; modules' are in no order. */
	static const char *const want[] = { "- - - -", "- - - -", "first_one - - -",
					    "first_one second_one - -", "first_one second_one third_one -" };
	size_t lines = 0, cut = (size_t)(strstr(whole, "ffff9a5d01200100") - whole);

	(void)state;
	for (; cut < strlen(whole); cut++) {
		if (whole[cut - 1] == '\n') {
			lines++;
			continue; /* no less a table than another */
		}
		put_file(kallsyms, whole, cut);
		check(folder, want[lines - 1], "ends inside a line");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(names_functions_by_the_folder, make, unmake),
		cmocka_unit_test_setup_teardown(believes_the_kernel_that_was_recorded_only, make, unmake),
		cmocka_unit_test_setup_teardown(says_what_is_wrong_with_it, make, unmake),
		cmocka_unit_test_setup_teardown(survives_truncation_at_every_byte, make, unmake),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
