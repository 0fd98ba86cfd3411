/* SPDX-License-Identifier: Apache-2.0 */
/* Names of kernel functions from perf's copy of a kernel that is not (or no longer) this machine's. */
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
#include "symbols/options.h"

#define TEXT UINT64_C(0xffff9a5d01200000) /* no kernel lies there: it cannot be this machine's */
#define INIT (TEXT + 0x900000)            /* behind the text that the recording tells of */
#define MODULE UINT64_C(0xffffffffc0801000)
#define PROGRAM UINT64_C(0xffffffffc0a01000)

static const uint64_t ips[] = { TEXT + 0x110, TEXT + 0x210, INIT + 0x10, MODULE + 0x10, PROGRAM + 0x10 };
/* Another boot: the core lies 2 MB and 4 KiB farther on, the module where it was (that is chance). */
static const char copy[] = "0000000000000000 A fixed_percpu_data\n"
			   "ffff9a5d01401000 T _text\n"
			   "ffff9a5d01401100 t first_one\n"
			   "ffff9a5d01401200 T second_one\n"
			   "ffff9a5d01401300 T _etext\n"
			   "ffff9a5d01d01000 t first_of_all\n"
			   "ffff9a5d01d01100 t last_of_core\n"
			   "ffffffffc0801000 t of_module\t[some_module]\n"
			   "ffffffffc0a02000 t of_another_module\t[some_module]\n";

static char cache[32], shelf[64], folder[128], kallsyms[160], data_path[64];

static void put_records(struct file *f)
{
	size_t at = begin(f, PD_MMAP2, PDM_KERNEL | PDM_MMAP_BUILD_ID);

	put32(f, UINT32_MAX);
	put32(f, 0);
	put64(f, TEXT);
	put64(f, 0x300);
	put64(f, TEXT);
	put32(f, 20); /* size of the id, behind it three bytes of nothing */
	put_text(f, "\xab\xcd\xef", 20);
	put64(f, 0); /* prot, flags */
	put_text(f, "[kernel.kallsyms]_text", 24);
	put_text(f, "", 24); /* made up: no time */
	end(f, at);
	at = begin(f, PD_KSYMBOL, 0);
	put64(f, PROGRAM);
	put32(f, 0x40);
	put16(f, 1);
	put16(f, 0);
	put_text(f, "bpf_prog_one", 16);
	put_text(f, "", 24);
	end(f, at);
	put_kernel_samples(f, ips, sizeof ips / sizeof *ips);
}

static int make(void **state)
{
	static struct file f;
	size_t data;

	(void)state;
	strcpy(cache, "/tmp/lg-kernel-XXXXXX");
	assert_non_null(mkdtemp(cache));
	snprintf(lg_symbol_options.cache, sizeof lg_symbol_options.cache, "%s", cache);
	snprintf(shelf, sizeof shelf, "%s/.build-id", cache);
	assert_int_equal(mkdir(shelf, 0700), 0);
	snprintf(folder, sizeof folder, "%s/ab", shelf);
	assert_int_equal(mkdir(folder, 0700), 0);
	snprintf(folder, sizeof folder, "%s/ab/cdef0000000000000000000000000000000000", shelf);
	assert_int_equal(mkdir(folder, 0700), 0);
	snprintf(kallsyms, sizeof kallsyms, "%s/kallsyms", folder);
	snprintf(data_path, sizeof data_path, "%s/perf.data", cache);
	f = (struct file){ 0 };
	file_begin(&f, &kernel_samples, 1, 112);
	data = f.n;
	put_records(&f);
	file_done(&f, data);
	put_file(data_path, f.p, f.n);
	return 0;
}

static int unmake(void **state)
{
	(void)state;
	lg_symbol_options.cache[0] = 0;
	unlink(kallsyms);
	unlink(data_path);
	rmdir(folder);
	*strrchr(folder, '/') = 0;
	rmdir(folder);
	rmdir(shelf);
	return rmdir(cache);
}

static void check(const char *want)
{
	struct lg_trace *t = import_file(data_path);

	check_names(t, want, NULL);
	lg_trace_free(t);
}

/* What starts the machine is on the stack of every idle CPU's task. */
static void names_the_core_of_another_boot(void **state)
{
	(void)state;
	put_file(kallsyms, copy, strlen(copy));
	check("first_one second_one first_of_all - bpf_prog_one");
}

static void needs_no_copy_to_name_programs(void **state)
{
	(void)state;
	check("- - - - bpf_prog_one");
}

static void believes_no_table_without_the_symbol(void **state)
{
	char other[sizeof copy];

	(void)state;
	strcpy(other, copy);
	memcpy(strstr(other, "_text"), "_xetx", 5);
	put_file(kallsyms, other, strlen(other));
	check("- - - - bpf_prog_one");
	/* A kernel moves by whole pages. */
	strcpy(other, copy);
	memcpy(strstr(other, "ffff9a5d01401000"), "ffff9a5d01401010", 16);
	put_file(kallsyms, other, strlen(other));
	check("- - - - bpf_prog_one");
	put_file(kallsyms, "", 0);
	check("- - - - bpf_prog_one");
	put_file(kallsyms, "0000000000000000 T _text\n", 25);
	check("- - - - bpf_prog_one");
}

/* Where the last function that is there ends nobody knows. */
static void survives_truncation_at_every_byte(void **state)
{
	static const struct {
		const char *line, *want; /* cut inside of it */
	} want[] = {
		{ "ffff9a5d01401300", "first_one - - - bpf_prog_one" },
		{ "ffff9a5d01d01000", "first_one second_one - - bpf_prog_one" },
		{ "ffff9a5d01d01100", "first_one second_one - - bpf_prog_one" },
		{ "ffffffffc0801000", "first_one second_one first_of_all - bpf_prog_one" },
		{ "ffffffffc0a02000", "first_one second_one first_of_all - bpf_prog_one" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
		size_t cut = (size_t)(strstr(copy, want[i].line) - copy) + 1;

		for (; copy[cut - 1] != '\n'; cut++) {
			put_file(kallsyms, copy, cut);
			check(want[i].want);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(names_the_core_of_another_boot, make, unmake),
		cmocka_unit_test_setup_teardown(needs_no_copy_to_name_programs, make, unmake),
		cmocka_unit_test_setup_teardown(believes_no_table_without_the_symbol, make, unmake),
		cmocka_unit_test_setup_teardown(survives_truncation_at_every_byte, make, unmake),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
