/* SPDX-License-Identifier: Apache-2.0 */
/* lag_dump FILE [TABLE...]: the rows of a .lag file as JSON lines, for end-to-end tests. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/out.h"
#include "store/lag_read.h"

static void value(struct lg_out *o, const struct lg_trace *t, const struct lg_col_desc *c,
		  const char *p)
{
	switch ((enum lg_col_type)c->type) {
	case LG_COL_STR: {
		const char *s = lg_string(t, *(const uint32_t *)(const void *)p);

		lg_out_json_string(o, s, strlen(s));
		break;
	}
	case LG_COL_I64:
		lg_out_i64(o, *(const int64_t *)(const void *)p);
		break;
	case LG_COL_U64:
		lg_out_printf(o, "%" PRIu64, *(const uint64_t *)(const void *)p);
		break;
	case LG_COL_F64:
		lg_out_printf(o, "%.9g", *(const double *)(const void *)p);
		break;
	case LG_COL_I32:
		lg_out_i64(o, *(const int32_t *)(const void *)p);
		break;
	case LG_COL_U8:
		lg_out_i64(o, *(const uint8_t *)(const void *)p);
		break;
	default:
		lg_out_i64(o, *(const uint32_t *)(const void *)p);
		break;
	}
}

int main(int argc, char **argv)
{
	struct lg_error err = { 0 };
	const struct lg_table_desc *d;
	struct lg_trace *t;
	struct lg_out *o;
	size_t n;

	if (argc < 2 || lg_lag_open(argv[1], &t, &err) || lg_out_open(&o, "-", LG_OUT_PLAIN, &err)) {
		fprintf(stderr, "lag_dump: %s\n", argc < 2 ? "which file?" : err.message);
		return 1;
	}
	d = lg_schema(&n);
	for (size_t i = 0; i < n; i++) {
		const struct lg_tab *tab = lg_trace_table_const(t, &d[i]);
		int wanted = argc == 2;

		for (int k = 2; k < argc; k++)
			wanted |= !strcmp(argv[k], d[i].name);
		for (size_t r = d[i].is_dict; wanted && r < tab->n; r++) {
			lg_out_printf(o, "{\"table\": \"%s\", \"row\": %zu", d[i].name, r);
			for (size_t c = 0; c < d[i].n_cols; c++) {
				lg_out_printf(o, ", \"%s\": ", d[i].cols[c].name);
				value(o, t, &d[i].cols[c],
				      (const char *)tab->col[c] + r * d[i].cols[c].size);
			}
			lg_out_puts(o, "}\n");
		}
	}
	lg_trace_free(t);
	return lg_out_close(o, &err) ? 1 : 0;
}
