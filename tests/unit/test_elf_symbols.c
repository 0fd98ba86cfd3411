/* SPDX-License-Identifier: Apache-2.0 */
/* The test program reads itself, the C library and damaged copies of itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "symbols/demangle.h"
#include "symbols/elf_symbols.h"
#include "symbols/file_budget.h"
#include "symbols/resolve.h"
#include "symbols/symbol_child.h"

/* Where an address of this process lies in its file: as /proc/PID/maps says. */
static int locate(uint64_t addr, char path[512], uint64_t *ret_offset)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[1024];
	int found = 0;

	assert_non_null(maps);
	while (!found && fgets(line, sizeof line, maps)) {
		unsigned long from, to, offset;
		char perm[8];

		path[0] = 0;
		if (sscanf(line, "%lx-%lx %7s %lx %*s %*s %511s", &from, &to, perm, &offset, path) < 4 ||
		    addr < from || addr >= to)
			continue;
		*ret_offset = addr - from + offset;
		found = 1;
	}
	fclose(maps);
	return found;
}

int lg_test_function_to_find(int x);
__attribute__((noinline, visibility("default"))) int lg_test_function_to_find(int x)
{
	return x * 7 + 1;
}

static void finds_its_own_function(void **state)
{
	struct lg_elf *e;
	char path[512], id[LG_BUILD_ID_HEX];
	uint64_t offset, vaddr, into;
	int fd;

	(void)state;
	assert_true(locate((uint64_t)(uintptr_t)&lg_test_function_to_find, path, &offset));
	fd = open(path, O_RDONLY);
	assert_int_equal(lg_elf_open(&e, fd, NULL, NULL), 0);
	assert_true(lg_elf_vaddr(e, offset, &vaddr));
	assert_string_equal(lg_elf_find(e, vaddr, &into), "lg_test_function_to_find");
	assert_int_equal(into, 0);
	assert_string_equal(lg_elf_find(e, vaddr + 1, &into), "lg_test_function_to_find");
	assert_false(lg_elf_vaddr(e, UINT64_MAX, &vaddr));
	assert_null(lg_elf_find(e, 0, &into));
	if (lg_elf_build_id_of(fd, id))
		assert_string_equal(id, lg_elf_build_id(e));
	lg_elf_free(e);
	close(fd);
}

static void finds_exported_functions_of_the_c_library(void **state)
{
	struct lg_elf *e;
	char path[512];
	uint64_t offset, vaddr, into;
	void *fn = dlsym(RTLD_DEFAULT, "qsort_r");
	int fd;

	(void)state;
	assert_true(locate((uint64_t)(uintptr_t)fn, path, &offset));
	fd = open(path, O_RDONLY);
	assert_int_equal(lg_elf_open(&e, fd, "/usr/lib/debug", NULL), 0);
	assert_true(lg_elf_vaddr(e, offset, &vaddr));
	assert_non_null(strstr(lg_elf_find(e, vaddr + 4, &into), "qsort_r"));
	assert_int_equal(into, 4);
	lg_elf_free(e);
	close(fd);
}

static void damaged_files_are_refused_or_read_in_bounds(void **state)
{
	struct lg_elf *e;
	struct lg_error err;
	struct stat st;
	char *image;
	uint64_t into;
	int fd = open("/proc/self/exe", O_RDONLY);

	(void)state;
	assert_int_equal(fstat(fd, &st), 0);
	image = malloc((size_t)st.st_size);
	assert_int_equal(read(fd, image, (size_t)st.st_size), st.st_size);
	for (size_t n = 0; n < (size_t)st.st_size; n += n < 4096 ? 61 : (size_t)st.st_size / 50)
		if (!lg_elf_open_memory(&e, image, n, &err)) {
			(void)lg_elf_find(e, 0x1234, &into);
			lg_elf_free(e);
		} else {
			assert_true(err.message[0]);
		}
	srand(7);
	for (int round = 0; round < 200; round++) {
		/* Mostly the headers, where the lengths and offsets are. */
		size_t at = (size_t)rand() % (round & 1 ? 4096 : (size_t)st.st_size);
		char was = image[at];

		image[at] = (char)rand();
		if (!lg_elf_open_memory(&e, image, (size_t)st.st_size, &err)) {
			for (uint64_t a = 0; a < 0x10000; a += 777)
				(void)lg_elf_find(e, a, &into);
			lg_elf_free(e);
		}
		image[at] = was;
	}
	free(image);
	close(fd);
}

static void names_all_frames_of_a_builder(void **state)
{
	struct lg_builder *b;
	struct lg_symbol_child *child;
	struct lg_symbolizer *s;
	struct lg_symbolizer_stats st;
	struct lg_trace *t;
	char path[512], exe[512] = "/";
	uint64_t offset, vdso = getauxval(AT_SYSINFO_EHDR);
	lg_frm mine, gone, clock, other;

	(void)state;
	assert_true(locate((uint64_t)(uintptr_t)&lg_test_function_to_find, path, &offset));
	assert_true(readlink("/proc/self/exe", exe + 1, sizeof exe - 2) > 0); /* another name than path */
	assert_int_equal(lg_builder_new(&b, NULL), 0);
	mine = lg_intern_frame(b, &(struct lg_frame_row){ .pc = offset + 2, .dso = lg_intern(b, path) });
	gone = lg_intern_frame(b, &(struct lg_frame_row){ .pc = 4096,
							  .dso = lg_intern(b, "/nonexistent/lib.so") });
	other = lg_intern_frame(b, &(struct lg_frame_row){ .pc = offset + 9,
							   .dso = lg_intern(b, exe),
							   .build_id = lg_intern(b, "00ff") });
	clock = 0;
	if (vdso) {
		ElfW(Ehdr) *h = (ElfW(Ehdr) *)vdso;

		clock = lg_intern_frame(b, &(struct lg_frame_row){ .pc = h->e_entry + 4096,
								   .dso = lg_intern(b, "[vdso]") });
	}
	assert_int_equal(lg_symbol_child_new(&child, NULL), 0);
	assert_int_equal(lg_symbolizer_new(&s, b, child, NULL), 0);
	assert_int_equal(lg_symbolizer_run(s, 1, &st, NULL), 0);
	t = lg_builder_trace(b);
	assert_string_equal(lg_string(t, t->frame.name[mine]), "lg_test_function_to_find");
	assert_int_equal(t->frame.name[gone], 0);
	assert_int_equal(t->frame.name[other], 0);
	assert_int_equal(st.frames, 3 + (clock ? 1 : 0));
	assert_int_equal(st.other_build, 1);
	assert_true(st.no_file >= 1);
	lg_symbolizer_free(s);
	lg_symbol_child_free(child);
	lg_builder_free(b);
}

static void demangles_and_cuts_long_names(void **state)
{
	char buf[64], small[12];

	(void)state;
	assert_string_equal(lg_demangle("malloc", buf, sizeof buf), "malloc");
	assert_string_equal(lg_demangle("_ZN2at6native3addEv", buf, sizeof buf), "at::native::add()");
	assert_string_equal(lg_demangle("_ZN2at6native3addEv", small, sizeof small), "at::nati...");
	assert_string_equal(lg_demangle("_Z", buf, sizeof buf), "_Z");
}

/* -- files that were stripped; what they were stripped of lies elsewhere -- */

/* Run tools on a copy of this program; false when one is missing. */
static bool run(const char *dir, const char *commands)
{
	char text[4096];

	snprintf(text, sizeof text, "exec 2>/dev/null; set -e; cd '%s'; %s", dir, commands);
	return system(text) == 0;
}

static void copy_self(char dir[64])
{
	char text[128];

	strcpy(dir, "/tmp/lg-test-elf-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(text, sizeof text, "cp /proc/%d/exe '%s'/prog", (int)getpid(), dir);
	assert_int_equal(system(text), 0);
}

static void remove_copy(const char *dir)
{
	char text[128];

	snprintf(text, sizeof text, "rm -r '%s'", dir);
	assert_int_equal(system(text), 0);
}

/* The name at our function in dir/prog; "" when there is none. */
static void name_in(const char *dir, const char *debug_dir, char name[64])
{
	char path[512];
	uint64_t offset, vaddr, into;
	struct lg_elf *e;
	const char *s;
	int fd;

	assert_true(locate((uint64_t)(uintptr_t)&lg_test_function_to_find, path, &offset));
	snprintf(path, sizeof path, "%s/prog", dir);
	fd = open(path, O_RDONLY);
	assert_true(fd >= 0);
	assert_int_equal(lg_elf_open(&e, fd, debug_dir, NULL), 0);
	close(fd);
	assert_true(lg_elf_vaddr(e, offset, &vaddr));
	s = lg_elf_find(e, vaddr, &into);
	snprintf(name, 64, "%s", s ? s : "");
	lg_elf_free(e);
}

#define STRIPPED "objcopy --only-keep-debug prog full.debug; strip prog; "

/* Of what is unpacked, until no more is to be had for files of that user. */
static void spend_all(uid_t owner)
{
	uint64_t n = 0;

	while (lg_file_spend(LG_COST_UNPACKED, owner, 4096))
		n += 4096;
	assert_true(n >= 127u << 20);
}

static void strangers_have_a_quarter(void **state)
{
	uid_t stranger = geteuid() + 1;

	(void)state;
	lg_file_budget_begin();
	assert_true(lg_file_spend(LG_COST_SUMMED, stranger, 1ull << 30));
	assert_false(lg_file_spend(LG_COST_SUMMED, stranger, 1));
	assert_false(lg_file_spend(LG_COST_SUMMED, stranger + 1, 1));
	assert_true(lg_file_spend(LG_COST_KEPT, stranger, 1));
	assert_false(lg_file_spend(LG_COST_SUMMED, 0, UINT64_MAX));
	assert_true(lg_file_spend(LG_COST_SUMMED, 0, 3ull << 30));
	assert_false(lg_file_spend(LG_COST_SUMMED, geteuid(), 1));
	assert_int_equal(lg_file_over_budget(LG_COST_SUMMED), 4);
	/* Nor do they come to their quarter where one's own have taken it all. */
	lg_file_budget_begin();
	assert_true(lg_file_spend(LG_COST_SUMMED, 0, 4ull << 30));
	assert_false(lg_file_spend(LG_COST_SUMMED, stranger, 1));
	lg_file_budget_begin();
}

static void reads_mini_debug_info(void **state)
{
	char dir[64], name[64];

	(void)state;
	copy_self(dir);
	/* As Fedora's find-debuginfo makes it: a symbol table alone, packed with xz. */
	if (!run(dir, "cp prog mini; objcopy --remove-section .comment prog; "
		      "objcopy -S --keep-symbol=lg_test_function_to_find mini; "
		      "strip prog; xz -k mini; objcopy --add-section .gnu_debugdata=mini.xz prog")) {
		remove_copy(dir);
		print_message("needs gcc, objcopy, strip and xz\n");
		skip();
	}
	name_in(dir, NULL, name);
	assert_string_equal(name, "lg_test_function_to_find");
	/* Strangers have spent what is theirs: one's own is read. */
	lg_file_budget_begin();
	spend_all(geteuid() + 1);
	name_in(dir, NULL, name);
	assert_string_equal(name, "lg_test_function_to_find");
	assert_int_equal(lg_file_over_budget(LG_COST_UNPACKED), 1);
	/* All is spent: this file has no names, and that is counted. */
	spend_all(geteuid());
	name_in(dir, NULL, name);
	assert_string_equal(name, "");
	assert_int_equal(lg_file_over_budget(LG_COST_UNPACKED), 3);
	lg_file_budget_begin();
	assert_int_equal(lg_file_over_budget(LG_COST_UNPACKED), 0);
	/* A damaged one is as good as none. */
	assert_true(run(dir, "dd if=/dev/zero of=mini.xz bs=1 seek=200 count=64 conv=notrunc; "
			     "objcopy --update-section .gnu_debugdata=mini.xz prog"));
	name_in(dir, NULL, name);
	assert_string_equal(name, "");
	remove_copy(dir);
}

static void follows_debug_links(void **state)
{
	char dir[64], name[64];

	(void)state;
	copy_self(dir);
	if (!run(dir, STRIPPED "objcopy --add-gnu-debuglink=full.debug prog")) {
		remove_copy(dir);
		print_message("needs gcc, objcopy and strip\n");
		skip();
	}
	name_in(dir, NULL, name);
	assert_string_equal(name, "lg_test_function_to_find");
	assert_true(run(dir, "mkdir .debug; mv full.debug .debug"));
	name_in(dir, NULL, name);
	assert_string_equal(name, "lg_test_function_to_find");
	/* Without build ids the checksum decides, and here it is another file's. */
	assert_true(run(dir, "objcopy -R .note.gnu.build-id prog; printf x >> .debug/full.debug"));
	name_in(dir, NULL, name);
	assert_string_equal(name, "");
	remove_copy(dir);
}

static void finds_debug_files_by_build_id(void **state)
{
	char dir[64], name[64], id[LG_BUILD_ID_HEX], path[256], text[512];
	int fd;

	(void)state;
	copy_self(dir);
	snprintf(path, sizeof path, "%s/prog", dir);
	fd = open(path, O_RDONLY);
	if (!lg_elf_build_id_of(fd, id) || !run(dir, STRIPPED)) {
		close(fd);
		remove_copy(dir);
		print_message("needs a build id, objcopy and strip\n");
		skip();
	}
	close(fd);
	name_in(dir, dir, name);
	assert_string_equal(name, "");
	snprintf(text, sizeof text, "mkdir -p .build-id/%.2s; mv full.debug .build-id/%.2s/%s.debug", id,
		 id, id + 2);
	assert_true(run(dir, text));
	name_in(dir, dir, name);
	assert_string_equal(name, "lg_test_function_to_find");
	/* Another build's file under that name is not believed. */
	snprintf(text, sizeof text, "f=.build-id/%.2s/%s.debug; objcopy -R .note.gnu.build-id $f", id,
		 id + 2);
	assert_true(run(dir, text));
	name_in(dir, dir, name);
	assert_string_equal(name, "");
	remove_copy(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finds_its_own_function),
		cmocka_unit_test(finds_exported_functions_of_the_c_library),
		cmocka_unit_test(damaged_files_are_refused_or_read_in_bounds),
		cmocka_unit_test(names_all_frames_of_a_builder),
		cmocka_unit_test(demangles_and_cuts_long_names),
		cmocka_unit_test(strangers_have_a_quarter),
		cmocka_unit_test(reads_mini_debug_info),
		cmocka_unit_test(follows_debug_links),
		cmocka_unit_test(finds_debug_files_by_build_id),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
