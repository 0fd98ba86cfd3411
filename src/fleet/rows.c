/* SPDX-License-Identifier: Apache-2.0 */
#include "fleet/rows.h"

#include <string.h>
#include <xxhash.h>
#include <zlib.h>

#include "base/alloc.h"
#include "base/order.h"

static const char magic[8] = "LGBATCH1";

#define COLUMN(name, type) { #name, LG_FLEET_##type },
#define T(NAME, name, key, day) \
	static const struct lg_fleet_column columns_##NAME[] = { LG_FLEET_##NAME(COLUMN) };
LG_FLEET_TABLES(T)
#undef T
const struct lg_fleet_table lg_fleet_tables[LG_FLEET_N_TABLES] = {
#define T(NAME, name, key, day) { #name, key, day, columns_##NAME, LG_COUNT(columns_##NAME) },
	LG_FLEET_TABLES(T)
#undef T
};
enum { COLUMNS_MAX = 24 };

struct lg_fleet_batch {
	struct lg_out *rows[LG_FLEET_N_TABLES]; /* NULL = none yet */
	uint32_t n[LG_FLEET_N_TABLES];
	bool failed;
};

struct part_head {
	uint32_t table, rows, raw_bytes, gzip_bytes;
	uint64_t sum; /* XXH3 of what follows it */
};

int lg_fleet_batch_new(struct lg_fleet_batch **ret, struct lg_error *err)
{
	*ret = lg_calloc(1, sizeof **ret);
	return *ret ? 0 : lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
}

void lg_fleet_batch_free(struct lg_fleet_batch *b)
{
	for (size_t i = 0; b && i < LG_FLEET_N_TABLES; i++)
		if (b->rows[i])
			lg_out_abort(b->rows[i]);
	lg_free(b);
}

static struct lg_out *row_of(struct lg_fleet_batch *b, enum lg_fleet_table_id t)
{
	struct lg_error ignored;

	if (!b->rows[t] && lg_out_memory(&b->rows[t], &ignored)) {
		b->failed = true;
		return NULL;
	}
	b->n[t]++;
	return b->rows[t];
}

static void put_number(struct lg_out *o, uint64_t v, size_t bytes)
{
	uint8_t le[8];

	for (size_t i = 0; i < bytes; i++)
		le[i] = (uint8_t)(v >> (8 * i));
	lg_out_write(o, le, bytes);
}

static void put_U8(struct lg_out *o, uint8_t v)
{
	put_number(o, v, 1);
}

static void put_U16(struct lg_out *o, uint16_t v)
{
	put_number(o, v, 2);
}

static void put_U32(struct lg_out *o, uint32_t v)
{
	put_number(o, v, 4);
}

static void put_U64(struct lg_out *o, uint64_t v)
{
	put_number(o, v, 8);
}

static void put_STR(struct lg_out *o, const char *s)
{
	size_t n = s ? strnlen(s, LG_FLEET_TEXT) : 0, left = n;
	uint8_t byte;

	do {
		byte = (uint8_t)((left & 127) | (left > 127 ? 128 : 0));
		lg_out_write(o, &byte, 1);
		left >>= 7;
	} while (left);
	if (n)
		lg_out_write(o, s, n);
}

#define PUT(name, type) put_##type(o, r->name);
#define ADD(NAME, function, row)                                            \
	void function(struct lg_fleet_batch *b, const struct row *r)        \
	{                                                                   \
		struct lg_out *o = row_of(b, LG_FLEET_T_##NAME);            \
                                                                            \
		if (o) {                                                    \
			LG_FLEET_##NAME(PUT)                                \
		}                                                           \
	}
ADD(RANK_STEP, lg_fleet_add_rank_step, lg_fleet_rank_step)
ADD(STALL, lg_fleet_add_stall, lg_fleet_stall)
ADD(JOB, lg_fleet_add_job, lg_fleet_job)
ADD(FACT, lg_fleet_add_fact, lg_fleet_fact)
ADD(NODE, lg_fleet_add_node, lg_fleet_node)
ADD(BATCH, lg_fleet_add_batch, lg_fleet_batch_row)

size_t lg_fleet_batch_rows(const struct lg_fleet_batch *b, enum lg_fleet_table_id t)
{
	return b->n[t];
}

bool lg_fleet_batch_full(const struct lg_fleet_batch *b)
{
	for (size_t i = 0; i < LG_FLEET_N_TABLES; i++)
		if (b->n[i] >= LG_FLEET_PART_ROWS / 2 ||
		    (b->rows[i] && lg_out_bytes(b->rows[i]) > LG_FLEET_PART_BYTES / 2))
			return true;
	return false;
}

/* One member, fast: what is repeated in neighbouring rows is most of it. */
static int pack(const char *raw, size_t n, struct lg_out *o, uint32_t table, uint32_t rows,
		struct lg_error *err)
{
	enum { GZIP = 16 + MAX_WBITS };
	z_stream z = { 0 };
	struct part_head h = { table, rows, (uint32_t)n, 0, 0 };
	LG_AUTOFREE uint8_t *to = NULL;
	uLong most;

	if (deflateInit2(&z, 1, Z_DEFLATED, GZIP, 8, Z_DEFAULT_STRATEGY) != Z_OK)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	most = deflateBound(&z, n);
	to = lg_calloc(most, 1);
	if (!to) {
		(void)deflateEnd(&z);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	z.next_in = (uint8_t *)(uintptr_t)raw;
	z.avail_in = (uInt)n;
	z.next_out = to;
	z.avail_out = (uInt)most;
	if (deflate(&z, Z_FINISH) != Z_STREAM_END) {
		(void)deflateEnd(&z);
		return lg_fail(err, LG_E_LIMIT, LG_NO_OFFSET, "rows of %s could not be packed", lg_fleet_tables[table].name);
	}
	h.gzip_bytes = (uint32_t)z.total_out;
	(void)deflateEnd(&z);
	h.sum = XXH3_64bits(to, h.gzip_bytes);
	lg_out_write(o, &h, sizeof h);
	lg_out_write(o, to, h.gzip_bytes);
	return 0;
}

int lg_fleet_batch_pack(struct lg_fleet_batch *b, char **ret, size_t *ret_n, struct lg_error *err)
{
	struct part_head end = { .table = UINT32_MAX };
	struct lg_out *o;
	int rc = lg_out_memory(&o, err);

	if (rc)
		return rc;
	lg_out_write(o, magic, sizeof magic);
	for (uint32_t t = 0; t < LG_FLEET_N_TABLES && !rc; t++) {
		struct lg_out *rows = b->rows[t];

		if (!rows)
			continue;
		if (lg_out_failed(rows) || lg_out_bytes(rows) > LG_FLEET_PART_BYTES)
			rc = lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
		rc = rc ?: pack(lg_out_view(rows), lg_out_bytes(rows), o, t, b->n[t], err);
		lg_out_abort(rows);
		b->rows[t] = NULL;
		b->n[t] = 0;
	}
	if (b->failed)
		rc = rc ?: lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	b->failed = false;
	lg_out_write(o, &end, sizeof end);
	*ret = rc ? NULL : lg_out_take(o, ret_n);
	lg_out_abort(o);
	return rc ?: *ret ? 0 : lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
}

int lg_fleet_batch_next(const void *bytes, size_t n, size_t *at, struct lg_fleet_part *ret,
			struct lg_error *err)
{
	const uint8_t *p = bytes;
	struct part_head h;

	if (!*at) {
		if (n < sizeof magic || memcmp(p, magic, sizeof magic))
			return lg_fail(err, LG_E_FORMAT, 0, "this is no batch of rows");
		*at = sizeof magic;
	}
	if (n - *at < sizeof h)
		return lg_fail(err, LG_E_FORMAT, *at, "the batch is cut off");
	memcpy(&h, p + *at, sizeof h);
	if (h.table == UINT32_MAX)
		return *at + sizeof h == n ? 0 : lg_fail(err, LG_E_FORMAT, *at, "something follows the end of the batch");
	if (h.table >= LG_FLEET_N_TABLES || !h.rows || h.rows > LG_FLEET_PART_ROWS ||
	    h.raw_bytes > LG_FLEET_PART_BYTES)
		return lg_fail(err, LG_E_FORMAT, *at, "a part of the batch has no possible head");
	if (n - *at - sizeof h < h.gzip_bytes)
		return lg_fail(err, LG_E_FORMAT, *at, "the batch is cut off");
	*ret = (struct lg_fleet_part){ h.table, h.rows, h.raw_bytes, p + *at + sizeof h, h.gzip_bytes };
	if (XXH3_64bits(ret->gzip, h.gzip_bytes) != h.sum)
		return lg_fail(err, LG_E_FORMAT, *at, "a part of the batch is not what was written");
	*at += sizeof h + h.gzip_bytes;
	return 1;
}

static int unpack(const struct lg_fleet_part *p, uint8_t *to, struct lg_error *err)
{
	enum { GZIP = 16 + MAX_WBITS };
	z_stream z = { .next_in = (uint8_t *)(uintptr_t)p->gzip,
		       .avail_in = (uInt)p->gzip_bytes,
		       .next_out = to,
		       .avail_out = p->raw_bytes };
	int rc;

	if (inflateInit2(&z, GZIP) != Z_OK)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	rc = inflate(&z, Z_FINISH);
	(void)inflateEnd(&z);
	return rc == Z_STREAM_END && z.total_out == p->raw_bytes && !z.avail_in
		       ? 0 : lg_fail(err, LG_E_FORMAT, LG_NO_OFFSET, "a part of the batch does not unpack to its size");
}

/* One value; false: the bytes end before. */
static bool take(const uint8_t **at, const uint8_t *end, enum lg_fleet_type type, struct lg_fleet_value *ret)
{
	static const uint8_t sizes[] = { 1, 2, 4, 8 };
	size_t n = type == LG_FLEET_STR ? 0 : sizes[type];

	*ret = (struct lg_fleet_value){ 0 };
	if (type != LG_FLEET_STR) {
		if ((size_t)(end - *at) < n)
			return false;
		for (size_t i = 0; i < n; i++)
			ret->n |= (uint64_t)*(*at)++ << (8 * i);
		return true;
	}
	for (unsigned shift = 0; shift <= 14; shift += 7) {
		if (*at == end)
			return false;
		ret->n |= (uint64_t)(**at & 127) << shift;
		if (!(*(*at)++ & 128)) {
			ret->text = (const char *)*at;
			if (ret->n > LG_FLEET_TEXT || ret->n > (size_t)(end - *at))
				return false;
			*at += ret->n;
			return true;
		}
	}
	return false;
}

int lg_fleet_part_rows(const struct lg_fleet_part *p, lg_fleet_values_fn *f, void *arg, struct lg_error *err)
{
	const struct lg_fleet_table *t = &lg_fleet_tables[p->table];
	LG_AUTOFREE uint8_t *raw = lg_calloc((size_t)p->raw_bytes + 1, 1);
	const uint8_t *at = raw, *end;
	struct lg_fleet_value v[COLUMNS_MAX];
	int rc;

	_Static_assert(LG_COUNT(columns_RANK_STEP) <= COLUMNS_MAX && LG_COUNT(columns_STALL) <= COLUMNS_MAX,
		       "room for a row");
	if (!raw)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	rc = unpack(p, raw, err);
	end = raw + p->raw_bytes;
	for (uint32_t i = 0; i < p->rows && !rc; i++) {
		for (size_t c = 0; c < t->n; c++)
			if (!take(&at, end, t->columns[c].type, &v[c]))
				return lg_fail(err, LG_E_FORMAT, LG_NO_OFFSET, "row %u of %s is cut off", i, t->name);
		rc = f(arg, v, err);
	}
	if (!rc && at != end)
		rc = lg_fail(err, LG_E_FORMAT, LG_NO_OFFSET, "rows of %s have something behind them", t->name);
	return rc;
}
