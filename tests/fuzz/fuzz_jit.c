/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_jit.c - what JITs leave behind: a jitdump, else a perf map. Property: what is found at an
 * address starts at or before it.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "symbols/file_budget.h"
#include "symbols/jitdump.h"
#include "symbols/perf_map.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void check(int ok)
{
	if (!ok)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct lg_jitdump *j;
	struct lg_perf_map *m;
	uint64_t addr = 0x1000, ts = 0, start;
	int fd = memfd_create("jit", MFD_CLOEXEC);

	lg_file_budget_begin();
	check(fd >= 0 && write(fd, p, n) == (ssize_t)n && lseek(fd, 0, SEEK_SET) == 0);
	if (n >= 16) {
		memcpy(&addr, p + n - 8, 8);
		memcpy(&ts, p + n - 16, 8);
	}
	if (!lg_jitdump_open(&j, fd, NULL)) {
		const char *name = lg_jitdump_find(j, addr, ts, &start);

		check(!name || (start <= addr && strlen(name) <= n));
		check(lg_jitdump_next_reuse(j, ts) > ts || ts == UINT64_MAX);
		lg_jitdump_free(j);
	}
	check(lseek(fd, 0, SEEK_SET) == 0);
	if (!lg_perf_map_open(&m, fd, NULL)) {
		const char *name = lg_perf_map_find(m, addr);

		check(!name || strlen(name) <= n);
		lg_perf_map_free(m);
	}
	close(fd);
	return 0;
}
