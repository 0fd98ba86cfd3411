/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fleet_rows.c - rows of standard input into a store, for test_fleet.py: "TABLE<TAB>value<TAB>value...", all columns
 * of fleet.def in order. An empty line ends a batch. STORE may be - : the bytes of one batch to standard
 * output. fleet_rows STORE [TOKEN_FILE] [again]: again = each batch twice.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "fleet/store.h"

static char *next(char **at)
{
	char *s = *at, *tab = s ? strpbrk(s, "\t\n") : NULL;

	if (!s)
		return (char *)(uintptr_t)"";
	*at = tab && *tab == '\t' ? tab + 1 : NULL;
	if (tab)
		*tab = 0;
	return s;
}

#define READ_U8 (uint8_t)strtoull(next(&at), NULL, 10)
#define READ_U16 (uint16_t)strtoull(next(&at), NULL, 10)
#define READ_U32 (uint32_t)strtoull(next(&at), NULL, 10)
#define READ_U64 strtoull(next(&at), NULL, 10)
#define READ_STR next(&at)
#define READ(name, type) r.name = READ_##type;
#define ROW(NAME, row, add)                              \
	if (!strcmp(table, lg_fleet_tables[LG_FLEET_T_##NAME].name)) { \
		struct row r;                            \
		LG_FLEET_##NAME(READ)                    \
		add(b, &r);                              \
	}

static void add(struct lg_fleet_batch *b, char *line)
{
	char *at = line, *table = next(&at);

	ROW(RANK_STEP, lg_fleet_rank_step, lg_fleet_add_rank_step)
	ROW(STALL, lg_fleet_stall, lg_fleet_add_stall)
	ROW(JOB, lg_fleet_job, lg_fleet_add_job)
	ROW(FACT, lg_fleet_fact, lg_fleet_add_fact)
	ROW(NODE, lg_fleet_node, lg_fleet_add_node)
	ROW(BATCH, lg_fleet_batch_row, lg_fleet_add_batch)
}

static int put(struct lg_fleet *f, struct lg_fleet_batch *b, int times, struct lg_error *err)
{
	char *bytes;
	size_t n;
	int rc = lg_fleet_batch_pack(b, &bytes, &n, err);

	if (rc)
		return rc;
	if (!f)
		fwrite(bytes, 1, n, stdout);
	for (int i = 0; f && i < times && !rc; i++)
		rc = lg_fleet_put(f, bytes, n, err);
	lg_free(bytes);
	return rc;
}

int main(int argc, char **argv)
{
	struct lg_fleet_options o = { .store = argc > 1 ? argv[1] : "-", .write = true,
				      .token_file = argc > 2 && *argv[2] ? argv[2] : NULL };
	int times = argc > 3 ? 2 : 1, rc = 0;
	struct lg_fleet_batch *b;
	struct lg_fleet *f = NULL;
	struct lg_error err = { 0 };
	static char line[1 << 14];
	bool any = false;

	if (lg_fleet_batch_new(&b, &err) || (strcmp(o.store, "-") && lg_fleet_open(&f, &o, &err))) {
		fprintf(stderr, "%s\n", err.message);
		return 1;
	}
	while (!rc && fgets(line, sizeof line, stdin)) {
		if (*line != '\n') {
			add(b, line);
			any = true;
		}
		if (any && (*line == '\n' || lg_fleet_batch_full(b))) {
			rc = put(f, b, times, &err);
			any = false;
		}
	}
	if (!rc && any)
		rc = put(f, b, times, &err);
	if (rc)
		fprintf(stderr, "%s\n", err.message);
	lg_fleet_batch_free(b);
	lg_fleet_close(f);
	return rc != 0;
}
