/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_events.h - readers of Chrome traces. The first byte chooses the window's block size, so that
 * events are cut everywhere, and whether all is kept that a drawing shows. Property: whatever could be read
 * can be sealed and judged (judge.h), and a second reading in one block gives as many rows of each kind.
 */
#ifndef LG_TESTS_FUZZ_EVENTS_H
#define LG_TESTS_FUZZ_EVENTS_H
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "import/import.h"
#include "import/json/json_events.h"
#include "judge.h"

typedef int fuzz_reader(struct lg_events *r, struct lg_builder *b, struct lg_error *err);

struct fuzz_rows {
	size_t n[LG_TABLE_MAX]; /* all 0: refused */
	/* A decompressor gives out more or less before it finds the damage, as its output buffer is. */
	bool faulty;
};

static struct fuzz_rows fuzz_read(fuzz_reader *read, const uint8_t *p, size_t n, size_t block, bool judged)
{
	struct fuzz_rows rows = { .faulty = false };
	struct lg_error err = { 0 };
	struct lg_json_source *src;
	struct lg_builder *b;
	struct lg_events r;
	struct lg_trace *t;
	size_t n_tables;
	const struct lg_table_desc *d = lg_schema(&n_tables);
	int rc;

	if (lg_builder_new(&b, &err) || lg_json_source_memory(&src, p, n, block, &err))
		abort();
	lg_events_start(&r, src, "fuzz");
	rc = read(&r, b, &err);
	rows.faulty = *lg_json_source_fault(src);
	lg_events_close(&r);
	if (rc) {
		lg_builder_free(b);
		return rows;
	}
	if (lg_builder_seal(b, &t, &err))
		return rows;
	for (size_t i = 0; i < n_tables; i++)
		rows.n[d[i].id] = lg_trace_table(t, &d[i])->n + 1;
	if (judged)
		fuzz_judge(t);
	lg_trace_free(t);
	return rows;
}

static int fuzz_events(fuzz_reader *read, const uint8_t *p, size_t n)
{
	struct fuzz_rows cut, whole;

	if (n < 2)
		return 0;
	lg_import_keeps_all = p[0] & 1;
	cut = fuzz_read(read, p + 1, n - 1, (size_t)p[0] + 1, false);
	whole = fuzz_read(read, p + 1, n - 1, 1 << 16, true);
	if (!cut.faulty && !whole.faulty && memcmp(cut.n, whole.n, sizeof cut.n))
		abort();
	return 0;
}

#endif /* LG_TESTS_FUZZ_EVENTS_H */
