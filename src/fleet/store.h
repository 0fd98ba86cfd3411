/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - where the rows of a fleet lie, whichever engine keeps them.
 *
 *	sqlite:PATH		a file of this machine: one node, a small site, tests
 *	http(s)://HOST:PORT/DB	ClickHouse, over HTTP
 *
 * Both have the same tables (fleet.def) and answer the same questions. Rows that come twice, late or in
 * another order leave the store as one delivery in order would. Questions are written once, in SQL that
 *SQLite 3.40 and ClickHouse from 18.16 on understand alike; what they spell differently is written as
 *
 *	$F	behind a table: the last version of each row alone
 *	$M(x)	the lower median of x
 *	$J, $L	joins: all pairs; each row of the left with one of the right at most (both need USING)
 *
 * intDiv, toInt64, any and argMax are ClickHouse's, made for SQLite here.
 */
#ifndef LG_FLEET_STORE_H
#define LG_FLEET_STORE_H
#include "fleet/rows.h"

struct lg_fleet_options {
	const char *store;      /* as above */
	const char *user;       /* ClickHouse's; NULL = its default one */
	const char *token_file; /* whose first line is that user's token, sent as X-ClickHouse-Key; NULL =
				   none */
	const char *ca_file;    /* who vouches for the server; NULL = whom this machine trusts */
	int64_t patience_ns;    /* of one request; 0 = 60 s */
	bool write;             /* sqlite: the file may be made and written */
};

struct lg_fleet;

/* LG_E_USAGE: the text names no store. Nothing is asked of a server yet. */
int lg_fleet_open(struct lg_fleet **ret, const struct lg_fleet_options *o,
		  struct lg_error *err) LG_MUST_CHECK;
void lg_fleet_close(struct lg_fleet *f);
/* Make the tables, or bring them to LG_FLEET_SCHEMA; *ret_from: the version that was there, 0 = none. */
int lg_fleet_init(struct lg_fleet *f, uint32_t *ret_from, struct lg_error *err) LG_MUST_CHECK;
/* Is the schema there, and one that this laggard knows? LG_E_NOTFOUND, LG_E_UNSUPPORTED. */
int lg_fleet_check(struct lg_fleet *f, struct lg_error *err) LG_MUST_CHECK;
/* A batch's bytes (rows.h). Whatever fails, it may be put again. LG_E_FORMAT: never will it be taken. */
int lg_fleet_put(struct lg_fleet *f, const void *bytes, size_t n, struct lg_error *err) LG_MUST_CHECK;

/* Of a row of an answer, each value as text. Not 0: no more. */
typedef int lg_fleet_row_fn(void *arg, size_t n, const char *const *value, struct lg_error *err);
int lg_fleet_ask(struct lg_fleet *f, lg_fleet_row_fn *row, void *arg, struct lg_error *err, const char *sql,
		 ...) LG_PRINTF(5, 6) LG_MUST_CHECK;
/* Remove what began before that, of the tables that have days; ClickHouse: whole days. *ret: rows or days
 * removed. */
int lg_fleet_forget(struct lg_fleet *f, enum lg_fleet_table_id t, uint64_t before_us, uint64_t *ret,
		    struct lg_error *err) LG_MUST_CHECK;
const char *lg_fleet_engine_name(const struct lg_fleet *f); /* "SQLite", "ClickHouse" */

/* What an engine does. sql is its own dialect. */
struct lg_fleet_engine {
	const char *name, *final, *median, *join, *left;
	int (*ask)(void *self, const char *sql, lg_fleet_row_fn *row, void *arg, struct lg_error *err);
	int (*init)(void *self, uint32_t from, struct lg_error *err);
	int (*put)(void *self, const void *bytes, size_t n, struct lg_error *err);
	int (*forget)(void *self, enum lg_fleet_table_id t, uint64_t before_us, uint64_t *ret,
		      struct lg_error *err);
	void (*close)(void *self);
};
extern const struct lg_fleet_engine lg_fleet_sqlite, lg_fleet_clickhouse;
int lg_fleet_sqlite_open(void **ret, const char *path, bool write, struct lg_error *err) LG_MUST_CHECK;
int lg_fleet_clickhouse_open(void **ret, const struct lg_fleet_options *o,
			     struct lg_error *err) LG_MUST_CHECK;

#endif /* LG_FLEET_STORE_H */
