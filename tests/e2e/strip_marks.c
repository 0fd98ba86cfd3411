/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strip_marks IN OUT: the same recording as if the program had had no hook, for tests that compare what is
 * inferred with what was marked. Left out: every span, mark and fact that marks became, and the roles that
 * only the hook knew; ranks stay where the environment tells them.
 */
#include <stdio.h>
#include <string.h>

#include "store/lag_read.h"
#include "store/lag_write.h"

static bool is_the_kernels(uint8_t kind)
{
	return kind == LG_SPAN_LOCK_WAIT || kind == LG_SPAN_LOCK_HOLD || kind == LG_SPAN_IO ||
	       kind == LG_SPAN_IRQ || kind == LG_SPAN_MEMORY;
}

static bool stays(const struct lg_trace *t, const char *table, size_t row)
{
	if (!strcmp(table, "span"))
		return is_the_kernels(t->span.kind[row]);
	if (!strcmp(table, "meta"))
		return !t->meta.prc[row] || !strncmp(lg_string(t, t->meta.key[row]), "env.", 4);
	return strcmp(table, "mark") != 0;
}

static void leave_out(struct lg_trace *t, const struct lg_table_desc *d)
{
	struct lg_tab *tab = lg_trace_table(t, d);
	size_t k = 0;

	for (size_t row = 0; row < tab->n; row++) {
		if (!stays(t, d->name, row))
			continue;
		for (size_t c = 0; k < row && c < d->n_cols; c++) {
			char *col = tab->col[c];

			memcpy(col + k * d->cols[c].size, col + row * d->cols[c].size, d->cols[c].size);
		}
		k++;
	}
	tab->n = k;
}

int main(int argc, char **argv)
{
	struct lg_error err = { 0 };
	const struct lg_table_desc *d;
	struct lg_trace *t;
	size_t n;
	int rc;

	if (argc != 3 || lg_lag_open(argv[1], &t, &err)) {
		fprintf(stderr, "strip_marks: %s\n", argc == 3 ? err.message : "usage: strip_marks IN OUT");
		return 1;
	}
	d = lg_schema(&n);
	for (size_t i = 0; i < n; i++)
		if (!strcmp(d[i].name, "span") || !strcmp(d[i].name, "mark") || !strcmp(d[i].name, "meta"))
			leave_out(t, &d[i]);
	for (size_t p = 1; p < t->process.n; p++)
		if ((t->process.role[p] == LG_ROLE_RANK || t->process.role[p] == LG_ROLE_LOADER) &&
		    t->process.rank[p] < 0)
			t->process.role[p] = LG_ROLE_JOB;
	rc = lg_lag_save(t, argv[2], &err);
	if (rc)
		fprintf(stderr, "strip_marks: %s\n", err.message);
	lg_trace_free(t);
	return rc != 0;
}
