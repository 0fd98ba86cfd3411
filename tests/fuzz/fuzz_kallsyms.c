/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_kallsyms.c - a kernel's symbols beside a recording (perf record --kcore). Property: the names that are
 * found are those of the file, and a table that was cut off has no function more than a whole one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "symbols/kallsyms.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void check(int ok)
{
	if (!ok)
		abort();
}

static void look(struct lg_kallsyms *k, uint64_t addr, size_t n)
{
	const char *module = NULL, *name = lg_kallsyms_find(k, addr, &module);

	if (!name)
		return;
	check(strlen(name) <= n && module && strlen(module) <= n);
	if (*name && !*module)
		check(lg_kallsyms_address(k, name) != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct lg_kallsyms *k, *all;
	uint64_t addr = 0xffffffff81000010;
	int fd = memfd_create("kallsyms", MFD_CLOEXEC);
	char path[64];
	bool cut;

	check(fd >= 0 && write(fd, p, n) == (ssize_t)n && lseek(fd, 0, SEEK_SET) == 0);
	if (n >= 8)
		memcpy(&addr, p + n - 8, 8);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (!lg_kallsyms_read(&k, fd, "kallsyms", &cut, NULL)) {
		check(!lg_kallsyms_load(&all, path, NULL));
		check(lg_kallsyms_count(k) > 0 && lg_kallsyms_count(k) <= lg_kallsyms_count(all));
		look(k, addr, n);
		look(k, 0xffffffff81000010, n);
		look(all, addr, n);
		lg_kallsyms_free(all);
		lg_kallsyms_free(k);
	}
	close(fd);
	return 0;
}
