/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_chromejson.c - generic Chrome traces. The first byte chooses the window's block size, so that events
 * are cut everywhere. Property: whatever could be read can be sealed, and a second reading in one
 * block gives as many rows.
 */
#include <stdint.h>
#include <stdlib.h>

#include "import/chromejson/chromejson.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* A decompressor gives out more or less before it finds the damage, as its output buffer is. */
static int faulty;

static size_t read_once(const uint8_t *p, size_t n, size_t block)
{
	struct lg_error err = { 0 };
	struct lg_json_source *src;
	struct lg_builder *b;
	struct lg_events r;
	struct lg_trace *t;
	size_t rows;

	if (lg_builder_new(&b, &err) || lg_json_source_memory(&src, p, n, block, &err))
		abort();
	lg_events_start(&r, src, "fuzz");
	if (lg_chromejson_read(&r, b, &err)) {
		faulty |= *lg_json_source_fault(src);
		lg_events_close(&r);
		lg_builder_free(b);
		return 0;
	}
	faulty |= *lg_json_source_fault(src);
	lg_events_close(&r);
	if (lg_builder_seal(b, &t, &err))
		return 0;
	rows = t->span.n + 3 * t->counter.n + 5 * t->mark.n + 7 * t->flow.n + 11 * t->sample.n;
	lg_trace_free(t);
	return rows + 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	if (n < 2)
		return 0;
	faulty = 0;
	if (read_once(p + 1, n - 1, (size_t)p[0] + 1) != read_once(p + 1, n - 1, 1 << 16) && !faulty)
		abort();
	return 0;
}
