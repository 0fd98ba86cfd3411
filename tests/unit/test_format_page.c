/* SPDX-License-Identifier: Apache-2.0 */
/* test_format_page.c - laggard-format(5) tells every table, column, type, magic and diag id as they
 * are in the code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "store/lag_chunk.h"

static char *page;

static int setup(void **state)
{
	const char *data = getenv("LG_TEST_DATA");
	char path[4096];
	size_t n, cap = 1 << 20;
	FILE *f;

	(void)state;
	/* <root>/tests/data; the folder itself need not exist. */
	if (!data || !strstr(data, "/tests/data"))
		return -1;
	snprintf(path, sizeof path, "%.*s/doc/man/laggard-format.5",
		 (int)(strstr(data, "/tests/data") - data), data);
	f = fopen(path, "rb");
	page = calloc(1, cap);
	if (!f || !page)
		return -1;
	n = fread(page, 1, cap - 1, f);
	fclose(f);
	return n ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	free(page);
	return 0;
}

static const char *type_name(uint8_t type)
{
	static const char *const names[] = { "I64", "U64", "F64", "I32", "U32", "U8",
					     "STR", "STK", "FRM", "THR", "PRC", "TRK" };

	return names[type];
}

static void test_tables(void **state)
{
	size_t n_tab;
	const struct lg_table_desc *d = lg_schema(&n_tab);
	const char *at = page;

	(void)state;
	for (size_t i = 0; i < n_tab; i++) {
		char want[256];
		const char *end;

		snprintf(want, sizeof want, "\n.Ss %s (table %u, %s)\n", d[i].name, d[i].id,
			 d[i].is_dict ? "dictionary" : "time");
		at = strstr(at, want);
		if (!at)
			fail_msg("laggard-format(5) lacks%s", want);
		at += strlen(want) - 1;
		end = strstr(at, "\n.S");
		assert_non_null(end);
		/* Columns in the order of the file, since they are known by their place. */
		for (size_t c = 0; c < d[i].n_cols; c++) {
			const struct lg_col_desc *col = &d[i].cols[c];

			snprintf(want, sizeof want, "\n.It %s Ta %s Ta %s Ta ", col->name,
				 type_name(col->type), *col->unit ? col->unit : "\\-");
			at = strstr(at, want);
			if (!at || at > end)
				fail_msg("laggard-format(5), table %s lacks, or has out of order:%s",
					 d[i].name, want);
			at++;
		}
		at = strstr(at, "\n.El");
		assert_non_null(at);
	}
}

static void magic_text(char *text, const void *p)
{
	const uint8_t *b = p;

	for (int i = 0; i < 8; i++)
		sprintf(text + 3 * i, "%02x ", b[i]);
	text[23] = 0;
}

static void test_magics(void **state)
{
	uint64_t chunk = LG_CHUNK_MAGIC, trailer = LG_TRAILER_MAGIC;
	char text[32];

	(void)state;
	magic_text(text, LG_LAG_MAGIC);
	assert_non_null(strstr(page, text));
	magic_text(text, &chunk);
	assert_non_null(strstr(page, text));
	magic_text(text, &trailer);
	assert_non_null(strstr(page, text));
}

static void test_diag_ids(void **state)
{
	const char *at = strstr(page, "\n.It diag.id\n");

	(void)state;
	assert_non_null(at);
#define D(name, id, severity, sentence)                                                            \
	{                                                                                          \
		const char *p = at;                                                                \
		char number[16];                                                                   \
                                                                                                   \
		/* The number may stand at the end of the line before. */                          \
		do                                                                                 \
			p = strstr(p + 1, #name);                                                  \
		while (p && p[strlen(#name)] != ',' && p[strlen(#name)] != '.');                   \
		if (!p)                                                                            \
			fail_msg("laggard-format(5) lacks diag id %s", #name);                     \
		snprintf(number, sizeof number, "%d", id);                                         \
		assert_memory_equal(p - 1 - strlen(number), number, strlen(number));               \
	}
	LG_DIAGS(D)
#undef D
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tables),
		cmocka_unit_test(test_magics),
		cmocka_unit_test(test_diag_ids),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
