/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_join.c - several files of one run. The input is cut at each SEPARATOR. Property: reading
 * them together ends with an error of one line, or with a trace, one description a file whose times
 * lie in order, and the way in which each file but one was joined, or why it was left out; and which can be
 * judged (judge.h).
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "import/import.h"
#include "judge.h"
#include "store/merge.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

enum { FILES_MAX = 4 };
static const char SEPARATOR[] = "\n%%%%\n";

static size_t joined(const struct lg_trace *t)
{
	size_t n = 0;

	for (size_t i = 0; i < t->meta.n; i++) {
		const char *key = lg_string(t, t->meta.key[i]);

		n += !strncmp(key, "join.", 5) && strlen(key) > 8 && !strcmp(key + strlen(key) - 4, ".how");
	}
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	char path[FILES_MAX][32];
	const char *paths[FILES_MAX];
	struct lg_import_info info[FILES_MAX];
	struct lg_error err = { 0 };
	struct lg_trace *t = NULL;
	int fd[FILES_MAX];
	size_t k = 0;

	while (k < FILES_MAX) {
		const uint8_t *cut = k + 1 < FILES_MAX ? memmem(p, n, SEPARATOR, sizeof SEPARATOR - 1) : NULL;
		size_t len = cut ? (size_t)(cut - p) : n;

		fd[k] = memfd_create("fuzz", MFD_CLOEXEC);
		if (fd[k] < 0 || write(fd[k], p, len) != (ssize_t)len)
			abort();
		snprintf(path[k], sizeof path[k], "/proc/self/fd/%d", fd[k]);
		paths[k] = path[k];
		k++;
		if (!cut)
			break;
		p = cut + sizeof SEPARATOR - 1;
		n -= len + sizeof SEPARATOR - 1;
	}
	if (lg_import(paths, k, &t, info, &err)) {
		if (!err.code || !*err.message || strchr(err.message, '\n'))
			abort();
	} else {
		size_t left_out = 0;

		for (size_t i = 0; i < k; i++) {
			if (info[i].path != paths[i] || (!info[i].format && !*info[i].left_out))
				abort();
			left_out += *info[i].left_out != 0;
		}
		if (k > 1 && joined(t) + left_out + 1 != k)
			abort();
		fuzz_judge(t);
		lg_trace_free(t);
	}
	for (size_t i = 0; i < k; i++)
		close(fd[i]);
	return 0;
}
