/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows.h - rows of the fleet's tables, and the batches in which they travel.
 *
 * A batch is a file: a head, then a part for each table that has rows, packed by gzip, in ClickHouse's
 * RowBinary (integers little-endian, strings behind their length in LEB128): an engine that speaks it gets
 * the part as it lies there. What is in a batch has come from another machine, maybe from a stranger: it is
 * checked before a row of it is believed.
 */
#ifndef LG_FLEET_ROWS_H
#define LG_FLEET_ROWS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/out.h"
#include "fleet/fleet.def"

enum { LG_FLEET_SCHEMA = 1 };
enum lg_fleet_type { LG_FLEET_U8, LG_FLEET_U16, LG_FLEET_U32, LG_FLEET_U64, LG_FLEET_STR };

struct lg_fleet_column {
	const char *name;
	enum lg_fleet_type type;
};

struct lg_fleet_table {
	const char *name, *key, *day; /* key: columns; day: the column that tells a row's day, "" = none */
	const struct lg_fleet_column *columns;
	size_t n;
};

enum lg_fleet_table_id {
#define T(NAME, name, key, day) LG_FLEET_T_##NAME,
	LG_FLEET_TABLES(T)
#undef T
	LG_FLEET_N_TABLES
};
extern const struct lg_fleet_table lg_fleet_tables[LG_FLEET_N_TABLES];

/* A row of each table. Strings are borrowed; NULL is "". */
#define LG_FLEET_C_U8 uint8_t
#define LG_FLEET_C_U16 uint16_t
#define LG_FLEET_C_U32 uint32_t
#define LG_FLEET_C_U64 uint64_t
#define LG_FLEET_C_STR const char *
#define LG_FLEET_MEMBER(name, type) LG_FLEET_C_##type name;
struct lg_fleet_rank_step { LG_FLEET_RANK_STEP(LG_FLEET_MEMBER) };
struct lg_fleet_stall { LG_FLEET_STALL(LG_FLEET_MEMBER) };
struct lg_fleet_job { LG_FLEET_JOB(LG_FLEET_MEMBER) };
struct lg_fleet_fact { LG_FLEET_FACT(LG_FLEET_MEMBER) };
struct lg_fleet_node { LG_FLEET_NODE(LG_FLEET_MEMBER) };
struct lg_fleet_batch_row { LG_FLEET_BATCH(LG_FLEET_MEMBER) };

/* Longest string in a row, in bytes: longer ones are cut. Rows and bytes of one part of a batch, at most. */
enum { LG_FLEET_TEXT = 2048, LG_FLEET_PART_ROWS = 1 << 17, LG_FLEET_PART_BYTES = 16 << 20 };

struct lg_fleet_batch; /* rows that are being gathered */

int lg_fleet_batch_new(struct lg_fleet_batch **ret, struct lg_error *err) LG_MUST_CHECK;
void lg_fleet_batch_free(struct lg_fleet_batch *b);
void lg_fleet_add_rank_step(struct lg_fleet_batch *b, const struct lg_fleet_rank_step *r);
void lg_fleet_add_stall(struct lg_fleet_batch *b, const struct lg_fleet_stall *r);
void lg_fleet_add_job(struct lg_fleet_batch *b, const struct lg_fleet_job *r);
void lg_fleet_add_fact(struct lg_fleet_batch *b, const struct lg_fleet_fact *r);
void lg_fleet_add_node(struct lg_fleet_batch *b, const struct lg_fleet_node *r);
void lg_fleet_add_batch(struct lg_fleet_batch *b, const struct lg_fleet_batch_row *r);
size_t lg_fleet_batch_rows(const struct lg_fleet_batch *b, enum lg_fleet_table_id t);
/* No more fit: it is to be packed. */
bool lg_fleet_batch_full(const struct lg_fleet_batch *b);
/* The bytes of the file (lg_free() them), and the batch is empty again. */
int lg_fleet_batch_pack(struct lg_fleet_batch *b, char **ret, size_t *ret_n,
			struct lg_error *err) LG_MUST_CHECK;

struct lg_fleet_part {
	enum lg_fleet_table_id table;
	uint32_t rows, raw_bytes;
	const uint8_t *gzip;
	size_t gzip_bytes;
};

/*
 * The parts of a batch's bytes, in order: *at is 0 at first. 1 = there is one, 0 = that was the last,
 * LG_E_FORMAT: the bytes are no batch, or not the whole of one.
 */
int lg_fleet_batch_next(const void *bytes, size_t n, size_t *at, struct lg_fleet_part *ret,
			struct lg_error *err);
/*
 * Unpack a part and call f for each of its rows, value by value as its table has them: strings with their
 * length. LG_E_FORMAT: it is not what its head says; rows before the bad one have been told by then.
 */
struct lg_fleet_value {
	uint64_t n; /* a number, or the bytes of text */
	const char *text;
};
typedef int lg_fleet_values_fn(void *arg, const struct lg_fleet_value *v, struct lg_error *err);
int lg_fleet_part_rows(const struct lg_fleet_part *p, lg_fleet_values_fn *f, void *arg,
		       struct lg_error *err) LG_MUST_CHECK;

#endif /* LG_FLEET_ROWS_H */
