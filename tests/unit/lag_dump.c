/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lag_dump.c - developer's tool, not a test: tables of a .lag file as TSV, ids resolved.
 *   lag_dump FILE [TABLE...]   (stacks are written innermost last, frames joined by ';')
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "store/lag_read.h"

static void print_stack(const struct lg_trace *t, lg_stk s)
{
	char buf[512];

	if (t->stack.parent[s]) {
		print_stack(t, t->stack.parent[s]);
		putchar(';');
	}
	fputs(lg_frame_text(t, t->stack.frame[s], buf, sizeof buf), stdout);
}

static void print_cell(const struct lg_trace *t, const struct lg_col_desc *c, const void *col, size_t i)
{
	uint32_t id = c->size == 4 ? ((const uint32_t *)col)[i] : 0;

	switch (c->type) {
	case LG_COL_I64:
		printf("%" PRId64, ((const int64_t *)col)[i]);
		break;
	case LG_COL_U64:
		printf("%" PRIx64, ((const uint64_t *)col)[i]);
		break;
	case LG_COL_F64:
		printf("%g", ((const double *)col)[i]);
		break;
	case LG_COL_I32:
		printf("%" PRId32, (int32_t)id);
		break;
	case LG_COL_U8:
		printf("%u", ((const uint8_t *)col)[i]);
		break;
	case LG_COL_STR:
		fputs(lg_string(t, id), stdout);
		break;
	case LG_COL_THR:
		if (id)
			printf("%d/%d:%s", t->process.pid[t->thread.prc[id]], t->thread.tid[id],
			       lg_string(t, t->thread.comm[id]));
		break;
	case LG_COL_PRC:
		if (id)
			printf("%d:%s", t->process.pid[id], lg_string(t, t->process.comm[id]));
		break;
	case LG_COL_STK:
		if (id && c->row_offset) /* not the stack table's own parent column */
			print_stack(t, id);
		break;
	default:
		printf("%u", id);
	}
}

int main(int argc, char **argv)
{
	struct lg_error err;
	struct lg_trace *t;
	size_t n;
	const struct lg_table_desc *d = lg_schema(&n);

	if (argc < 2 || lg_lag_open(argv[1], &t, &err)) {
		fprintf(stderr, "%s\n", argc < 2 ? "lag_dump FILE [TABLE...]" : err.message);
		return 1;
	}
	for (size_t i = 0; i < n; i++) {
		const struct lg_tab *tab = lg_trace_table_const(t, &d[i]);
		int wanted = argc == 2;

		for (int k = 2; k < argc; k++)
			wanted |= !strcmp(argv[k], d[i].name);
		if (argc == 2)
			printf("%s\t%zu\n", d[i].name, tab->n);
		else if (wanted)
			for (size_t r = 0; r < tab->n; r++)
				for (size_t c = 0; c < d[i].n_cols; c++) {
					print_cell(t, &d[i].cols[c], tab->col[c], r);
					putchar(c + 1 < d[i].n_cols ? '\t' : '\n');
				}
	}
	lg_trace_free(t);
	return 0;
}
