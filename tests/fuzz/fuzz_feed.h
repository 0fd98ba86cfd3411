/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_feed.h - an importer that reads files by path, on bytes in memory.
 *
 * Property: sniffing never fails; reading ends with an error of one line, or with rows that can be sealed
 * and judged (judge.h).
 */
#ifndef LG_FUZZ_FEED_H
#define LG_FUZZ_FEED_H
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "import/import.h"
#include "judge.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static inline void fuzz_feed(const struct lg_importer *imp, const uint8_t *p, size_t n)
{
	struct lg_error err = { 0 };
	struct lg_builder *b;
	struct lg_trace *t;
	char path[32];
	int fd = memfd_create("fuzz", MFD_CLOEXEC), score;
	struct lg_head h;

	if (lg_head_open(&h, p, n < 4096 ? n : 4096))
		abort();
	score = imp->sniff(&h);
	lg_head_done(&h);
	if (fd < 0 || write(fd, p, n) != (ssize_t)n || lg_builder_new(&b, NULL) || score < 0 || score > 100)
		abort();
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (imp->run(path, b, &err)) {
		if (!err.code || !*err.message || strchr(err.message, '\n'))
			abort();
		lg_builder_free(b);
	} else {
		if (lg_builder_seal(b, &t, NULL))
			abort();
		fuzz_judge(t);
		lg_trace_free(t);
	}
	close(fd);
}

#endif /* LG_FUZZ_FEED_H */
