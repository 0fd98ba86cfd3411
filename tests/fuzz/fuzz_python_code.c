/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_python_code.c - copies of code objects out of a process that may have any.
 *
 * Properties: what is found is terminated text of three lines without control characters, asking twice gives
 * the same, and no object but those of whole records.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "symbols/python_code.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void check(int ok)
{
	if (!ok)
		abort();
}

static bool three_lines(const char *text)
{
	int lines = 1;

	for (; *text; text++) {
		if ((unsigned char)*text < 0x20 && *text != '\n')
			return false;
		lines += *text == '\n';
	}
	return lines == 3;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static const uint32_t units[] = { 0, 1, 95, 100, 104, 110, 300, 65534, LG_PYTHON_NO_UNITS };
	int fd = memfd_create("dump", MFD_CLOEXEC);
	struct lg_python_dump *d;
	char buf[1024], again[1024];

	if (fd < 0 || write(fd, p, n) != (ssize_t)n || lg_python_dump_open(&d, fd)) {
		close(fd);
		return 0;
	}
	for (uint64_t object = 0; object < 64; object++)
		for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
			const char *text = lg_python_dump_find(d, object << 16 | units[i], buf, sizeof buf);

			check(!text || (three_lines(text) && object < n / sizeof(struct lg_python_object)));
			check(!lg_python_dump_find(d, object << 16 | units[i], again, sizeof again) == !text);
			check(!text || !strcmp(buf, again));
		}
	lg_python_dump_free(d);
	close(fd);
	return 0;
}
