/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lag_decode.c - the payload of a table chunk to columns. The payload passed its checksum, but a
 * file may be made to lie: nothing here trusts a number that it did not check.
 */
#include <string.h>

#include "base/alloc.h"
#include "store/lag_chunk.h"

/* One encoded column: sizes checked, values not looked at yet. */
struct encoded {
	uint8_t encoding;
	const uint8_t *p, *end;
};

static int next_column(const uint8_t **p, const uint8_t *end, struct encoded *ret)
{
	uint64_t len;

	if (*p == end)
		return LG_E_FORMAT;
	ret->encoding = *(*p)++;
	if (lg_varint(p, end, &len) || len > (uint64_t)(end - *p))
		return LG_E_FORMAT;
	ret->p = *p;
	ret->end = *p += len;
	return 0;
}

static int expand(struct encoded e, int64_t *v, size_t n)
{
	const uint8_t *p = e.p;
	uint64_t u, sum = 0, run;
	size_t i;

	switch (e.encoding) {
	case LG_ENC_CONST:
		if (lg_varint(&p, e.end, &u))
			return LG_E_FORMAT;
		for (i = 0; i < n; i++)
			v[i] = lg_unzigzag(u);
		break;
	case LG_ENC_VAR:
		for (i = 0; i < n; i++) {
			if (lg_varint(&p, e.end, &u))
				return LG_E_FORMAT;
			v[i] = lg_unzigzag(u);
		}
		break;
	case LG_ENC_DELTA:
	case LG_ENC_ENDS:
		for (i = 0; i < n; i++) {
			if (lg_varint(&p, e.end, &u))
				return LG_E_FORMAT;
			sum += (uint64_t)lg_unzigzag(u);
			v[i] = (int64_t)sum;
		}
		break;
	case LG_ENC_RUNS:
		for (i = 0; i < n;) {
			if (lg_varint(&p, e.end, &run) || !run || run > n - i ||
			    lg_varint(&p, e.end, &u))
				return LG_E_FORMAT;
			while (run--)
				v[i++] = lg_unzigzag(u);
		}
		break;
	default:
		return LG_E_FORMAT;
	}
	return p == e.end ? 0 : LG_E_FORMAT;
}

static int expand_f64(struct encoded e, double *v, size_t n)
{
	size_t len = (size_t)(e.end - e.p);

	if (e.encoding == LG_ENC_PLAIN && len == n * 8) {
		memcpy(v, e.p, len);
		return 0;
	}
	if (e.encoding != LG_ENC_CONST || len != 8)
		return LG_E_FORMAT;
	for (size_t i = 0; i < n; i++)
		memcpy(&v[i], e.p, 8);
	return 0;
}

/* To types of fewer than 64 bits. Ids beyond 32 bits become all ones, which sealing clears and counts. */
static void narrow(void *col, uint8_t type, const int64_t *v, size_t n)
{
	int32_t *i32 = col;
	uint32_t *u32 = col;
	uint8_t *u8 = col;

	switch (type) {
	case LG_COL_I32:
		for (size_t i = 0; i < n; i++)
			i32[i] = (int32_t)v[i];
		break;
	case LG_COL_U32:
		for (size_t i = 0; i < n; i++)
			u32[i] = (uint32_t)v[i];
		break;
	case LG_COL_U8:
		for (size_t i = 0; i < n; i++)
			u8[i] = (uint8_t)v[i];
		break;
	default:
		for (size_t i = 0; i < n; i++)
			u32[i] = v[i] < 0 || v[i] > UINT32_MAX ? UINT32_MAX : (uint32_t)v[i];
	}
}

/* Columns lie one after another in one block, each on an 8-byte boundary. */
static int lay_out(struct lg_decoded *o, const struct lg_table_desc *d, size_t rows)
{
	size_t at = (rows * 4 + 7) & ~(size_t)7, need = at;

	for (size_t c = 0; c < d->n_cols; c++)
		need += (rows * d->cols[c].size + 7) & ~(size_t)7;
	if (lg_grow(&o->mem, &o->mem_cap, need, 1) ||
	    lg_grow(&o->wide, &o->wide_cap, rows, sizeof *o->wide) ||
	    lg_grow(&o->cols, &o->cols_cap, d->n_cols, sizeof *o->cols))
		return LG_E_NOMEM;
	o->ids = o->mem;
	for (size_t c = 0; c < d->n_cols; c++) {
		o->cols[c] = (char *)o->mem + at;
		at += (rows * d->cols[c].size + 7) & ~(size_t)7;
	}
	o->n = rows;
	return 0;
}

/* ENDS: from the end of each row back to its start. */
static void ends_to_starts(const struct lg_decoded *o)
{
	int64_t *ts = o->cols[0];
	const int64_t *dur = o->cols[1];

	for (size_t i = 0; i < o->n; i++)
		ts[i] = (int64_t)((uint64_t)ts[i] - (uint64_t)(dur[i] > 0 ? dur[i] : 0));
}

int lg_decode_rows(struct lg_decoded *o, const struct lg_table_desc *d, const uint8_t *p, size_t n,
		   size_t rows)
{
	const uint8_t *end = p + n;
	struct encoded e;
	uint64_t n_cols;
	int ends = 0;

	if (!rows || rows > LG_CHUNK_ROWS_MAX || lg_varint(&p, end, &n_cols))
		return LG_E_FORMAT;
	if (lay_out(o, d, rows))
		return LG_E_NOMEM;
	if (d->is_dict) {
		if (next_column(&p, end, &e) || expand(e, o->wide, rows))
			return LG_E_FORMAT;
		narrow(o->ids, LG_COL_STR, o->wide, rows);
	}
	/* Columns that a newer laggard appended to its schema are not looked at. */
	for (uint64_t c = 0; c < n_cols && c < d->n_cols; c++) {
		const struct lg_col_desc *col = &d->cols[c];

		if (next_column(&p, end, &e))
			return LG_E_FORMAT;
		if (e.encoding == LG_ENC_ENDS) {
			if (c || d->is_dict || d->n_cols < 2 || d->cols[1].type != LG_COL_I64)
				return LG_E_FORMAT;
			ends = 1;
		}
		if (col->type == LG_COL_F64) {
			if (expand_f64(e, o->cols[c], rows))
				return LG_E_FORMAT;
			continue;
		}
		/* Wide columns need no second step. */
		if (col->size == 8) {
			if (expand(e, o->cols[c], rows))
				return LG_E_FORMAT;
			continue;
		}
		if (expand(e, o->wide, rows))
			return LG_E_FORMAT;
		narrow(o->cols[c], col->type, o->wide, rows);
	}
	for (uint64_t c = n_cols; c < d->n_cols; c++)
		memset(o->cols[c], 0, rows * d->cols[c].size);
	if (ends)
		ends_to_starts(o);
	return 0;
}

void lg_decoded_done(struct lg_decoded *o)
{
	lg_free(o->mem);
	lg_free(o->wide);
	lg_free(o->cols);
	*o = (struct lg_decoded){ 0 };
}
