/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the files of perf record --threads: the sizes of `data` and data.0 (u32 each, little-endian),
 * then these and the rest as data.1. As fuzz_perfdata.c.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "import/perfdata/perfdata.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Up to want bytes, which are gone from the input then. */
static struct lg_perfdata_part take(const uint8_t **p, size_t *n, size_t want)
{
	struct lg_perfdata_part part = { *p, want < *n ? want : *n };

	*p += part.n;
	*n -= part.n;
	return part;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct lg_error err = { .offset = LG_NO_OFFSET };
	struct lg_perfdata_part part[3];
	struct lg_builder *b;
	struct lg_trace *t;
	uint32_t sizes[2];

	if (size < sizeof sizes)
		return 0;
	memcpy(sizes, data, sizeof sizes);
	data += sizeof sizes;
	size -= sizeof sizes;
	part[0] = take(&data, &size, sizes[0]);
	part[1] = take(&data, &size, sizes[1]);
	part[2] = take(&data, &size, size);
	if (lg_builder_new(&b, &err))
		return 0;
	if (lg_perfdata_read_parts(part, 3, b, &err)) {
		if (!err.message[0])
			abort();
		lg_builder_free(b);
		return 0;
	}
	if (lg_builder_seal(b, &t, &err))
		return 0;
	lg_trace_free(t);
	return 0;
}
