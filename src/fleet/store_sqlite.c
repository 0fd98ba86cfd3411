/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_sqlite.c - a store that is one file. A batch is one transaction, and a row replaces one of its key
 * only where it is no older.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/order.h"
#include "fleet/store.h"

enum { PATIENCE_MS = 10000, COLUMNS_MAX = 24, SQL_MAX = 4096 };

struct sqlite {
	sqlite3 *db;
	sqlite3_stmt *insert[LG_FLEET_N_TABLES];
};

static int fail(struct sqlite *s, struct lg_error *err)
{
	int code = sqlite3_errcode(s->db);

	return lg_fail(err, code == SQLITE_NOMEM ? LG_E_NOMEM : LG_E_IO, LG_NO_OFFSET, "SQLite: %.400s",
		       sqlite3_errmsg(s->db));
}

/* ---- functions of ClickHouse ---------------------------------------------------------------------- */

static void int_div(sqlite3_context *c, int n, sqlite3_value **v)
{
	int64_t by = sqlite3_value_int64(v[1]);

	(void)n;
	if (by)
		sqlite3_result_int64(c, sqlite3_value_int64(v[0]) / by);
}

static void to_int64(sqlite3_context *c, int n, sqlite3_value **v)
{
	(void)n;
	sqlite3_result_int64(c, sqlite3_value_int64(v[0]));
}

struct numbers {
	double *v;
	size_t n, cap;
	bool nomem;
};

static void median_step(sqlite3_context *c, int n, sqlite3_value **v)
{
	struct numbers *x = sqlite3_aggregate_context(c, sizeof *x);

	(void)n;
	if (x && sqlite3_value_type(v[0]) != SQLITE_NULL)
		x->nomem |= LG_APPEND(x->v, x->n, x->cap, sqlite3_value_double(v[0])) != 0;
}

LG_ORDER_BY(cmp_double, double, LG_CMP(*x, *y))

static void median_end(sqlite3_context *c)
{
	struct numbers *x = sqlite3_aggregate_context(c, 0);

	if (!x || !x->n)
		return;
	if (x->nomem)
		sqlite3_result_error_nomem(c);
	LG_SORT(x->v, x->n, cmp_double);
	/* As quantileExact(0.499): of two the lower one, which of two ranks is the one that is not late. */
	sqlite3_result_double(c, x->v[(size_t)(0.499 * (double)x->n)]);
	lg_free(x->v);
	x->v = NULL;
}

/* any(x), argMax(x, y): the value to be told, and by what it was chosen. */
struct choice {
	sqlite3_value *best;
	double by;
};

static void choose(sqlite3_context *c, int n, sqlite3_value **v)
{
	struct choice *x = sqlite3_aggregate_context(c, sizeof *x);
	double by = n == 2 ? sqlite3_value_double(v[1]) : 0;

	if (!x || (x->best && by <= x->by))
		return;
	sqlite3_value_free(x->best);
	x->best = sqlite3_value_dup(v[0]);
	x->by = by;
}

static void choose_end(sqlite3_context *c)
{
	struct choice *x = sqlite3_aggregate_context(c, 0);

	if (!x || !x->best)
		return;
	sqlite3_result_value(c, x->best);
	sqlite3_value_free(x->best);
	x->best = NULL;
}

static int add_functions(struct sqlite *s, struct lg_error *err)
{
	enum { PURE = SQLITE_UTF8 | SQLITE_DETERMINISTIC };
	int rc = sqlite3_create_function(s->db, "intDiv", 2, PURE, NULL, int_div, NULL, NULL) ?:
		 sqlite3_create_function(s->db, "toInt64", 1, PURE, NULL, to_int64, NULL, NULL) ?:
		 sqlite3_create_function(s->db, "lg_median", 1, PURE, NULL, NULL, median_step, median_end) ?:
		 sqlite3_create_function(s->db, "any", 1, PURE, NULL, NULL, choose, choose_end) ?:
		 sqlite3_create_function(s->db, "argMax", 2, PURE, NULL, NULL, choose, choose_end);

	return rc ? fail(s, err) : 0;
}

/* ---- the engine ----------------------------------------------------------------------------------- */

static void sqlite_close(void *self)
{
	struct sqlite *s = self;

	for (size_t i = 0; i < LG_FLEET_N_TABLES; i++)
		sqlite3_finalize(s->insert[i]);
	sqlite3_close(s->db);
	lg_free(s);
}

int lg_fleet_sqlite_open(void **ret, const char *path, bool write, struct lg_error *err)
{
	struct sqlite *s = lg_calloc(1, sizeof *s);
	int rc = 0, fd;

	if (!s)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	/* SQLite gives its log and its index the mode of the file, which is its owner's alone, and no
	 * link. */
	fd = open(path, (write ? O_RDWR | O_CREAT : O_RDONLY) | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
	if (fd < 0) {
		rc = errno == ENOENT && !write
			     ? lg_fail(err, LG_E_NOTFOUND, LG_NO_OFFSET, "%.300s: there is no such store: laggard fleet init "
				       "makes one", path)
			     : lg_fail_errno(err, errno, "cannot open the store %.300s", path);
		lg_free(s);
		return rc;
	}
	close(fd);
	if (sqlite3_open_v2(path, &s->db,
			    (write ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY) | SQLITE_OPEN_NOFOLLOW,
			    NULL))
		rc = fail(s, err);
	if (!rc) {
		sqlite3_busy_timeout(s->db, PATIENCE_MS);
		/* The file may be another's: its schema runs no functions of ours. */
		sqlite3_db_config(s->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
		sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
		rc = add_functions(s, err);
	}
	if (!rc && write && sqlite3_exec(s->db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL", NULL, NULL, NULL))
		rc = fail(s, err);
	if (rc)
		sqlite_close(s);
	else
		*ret = s;
	return rc;
}

static int sqlite_ask(void *self, const char *sql, lg_fleet_row_fn *row, void *arg, struct lg_error *err)
{
	struct sqlite *s = self;
	const char *value[COLUMNS_MAX];
	sqlite3_stmt *q;
	int n, got, rc = 0;

	if (sqlite3_prepare_v2(s->db, sql, -1, &q, NULL))
		return fail(s, err);
	n = LG_MIN(sqlite3_column_count(q), COLUMNS_MAX);
	while (!rc && (got = sqlite3_step(q)) == SQLITE_ROW) {
		for (int i = 0; i < n; i++) {
			const char *text = (const char *)sqlite3_column_text(q, i);

			value[i] = text ? text : "";
		}
		rc = row(arg, (size_t)n, value, err);
	}
	if (!rc && got != SQLITE_DONE)
		rc = fail(s, err);
	sqlite3_finalize(q);
	return rc;
}

static int make_table(struct sqlite *s, const struct lg_fleet_table *t, struct lg_error *err)
{
	char sql[SQL_MAX];
	size_t n = (size_t)snprintf(sql, sizeof sql, "CREATE TABLE IF NOT EXISTS %s (", t->name);

	for (size_t i = 0; i < t->n; i++)
		n += (size_t)snprintf(sql + n, sizeof sql - n, "%s %s NOT NULL, ", t->columns[i].name,
				      t->columns[i].type == LG_FLEET_STR ? "TEXT" : "INTEGER");
	n += (size_t)snprintf(sql + n, sizeof sql - n, "PRIMARY KEY (%s)) WITHOUT ROWID", t->key);
	if (n >= sizeof sql)
		return lg_fail(err, LG_E_LIMIT, LG_NO_OFFSET, "%s has too many columns", t->name);
	return sqlite3_exec(s->db, sql, NULL, NULL, NULL) ? fail(s, err) : 0;
}

static int sqlite_init(void *self, uint32_t from, struct lg_error *err)
{
	struct sqlite *s = self;
	int rc = 0;

	if (from == UINT32_MAX)
		return sqlite3_exec(s->db, "CREATE TABLE IF NOT EXISTS laggard_schema (version INTEGER NOT NULL)",
				    NULL, NULL, NULL) ? fail(s, err) : 0;
	for (size_t i = 0; i < LG_FLEET_N_TABLES && !rc; i++)
		rc = make_table(s, &lg_fleet_tables[i], err);
	return rc;
}

static int prepare(struct sqlite *s, enum lg_fleet_table_id id, struct lg_error *err)
{
	const struct lg_fleet_table *t = &lg_fleet_tables[id];
	char sql[SQL_MAX];
	size_t n = (size_t)snprintf(sql, sizeof sql, "INSERT INTO %s VALUES (", t->name);

	if (s->insert[id])
		return 0;
	for (size_t i = 0; i < t->n; i++)
		n += (size_t)snprintf(sql + n, sizeof sql - n, "%s?", i ? "," : "");
	n += (size_t)snprintf(sql + n, sizeof sql - n, ") ON CONFLICT (%s) DO UPDATE SET ", t->key);
	for (size_t i = 0; i < t->n; i++)
		n += (size_t)snprintf(sql + n, sizeof sql - n, "%s%s=excluded.%s", i ? "," : "", t->columns[i].name,
				      t->columns[i].name);
	n += (size_t)snprintf(sql + n, sizeof sql - n, " WHERE excluded.ver > %s.ver", t->name);
	if (n >= sizeof sql)
		return lg_fail(err, LG_E_LIMIT, LG_NO_OFFSET, "%s has too many columns", t->name);
	return sqlite3_prepare_v3(s->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &s->insert[id], NULL)
		       ? fail(s, err)
		       : 0;
}

struct putting {
	struct sqlite *s;
	enum lg_fleet_table_id t;
};

static int put_row(void *arg, const struct lg_fleet_value *v, struct lg_error *err)
{
	struct putting *p = arg;
	const struct lg_fleet_table *t = &lg_fleet_tables[p->t];
	sqlite3_stmt *q = p->s->insert[p->t];
	int rc = 0;

	for (size_t i = 0; i < t->n && !rc; i++)
		rc = t->columns[i].type == LG_FLEET_STR
			     ? sqlite3_bind_text(q, (int)i + 1, v[i].text, (int)v[i].n, SQLITE_STATIC)
			     : sqlite3_bind_int64(q, (int)i + 1, (sqlite3_int64)v[i].n);
	if (!rc && sqlite3_step(q) != SQLITE_DONE)
		rc = 1;
	rc = rc ? fail(p->s, err) : 0;
	(void)sqlite3_reset(q);
	return rc;
}

static int sqlite_put(void *self, const void *bytes, size_t n, struct lg_error *err)
{
	struct sqlite *s = self;
	struct lg_fleet_part part;
	struct putting p = { .s = s };
	size_t at = 0;
	int rc;

	if (sqlite3_exec(s->db, "BEGIN IMMEDIATE", NULL, NULL, NULL))
		return fail(s, err);
	while ((rc = lg_fleet_batch_next(bytes, n, &at, &part, err)) > 0) {
		p.t = part.table;
		rc = prepare(s, part.table, err) ?: lg_fleet_part_rows(&part, put_row, &p, err);
		if (rc)
			break;
	}
	if (!rc && sqlite3_exec(s->db, "COMMIT", NULL, NULL, NULL))
		rc = fail(s, err);
	if (rc)
		(void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
	return rc;
}

static int sqlite_forget(void *self, enum lg_fleet_table_id t, uint64_t before_us, uint64_t *ret,
			 struct lg_error *err)
{
	struct sqlite *s = self;
	char sql[200];

	snprintf(sql, sizeof sql, "DELETE FROM %s WHERE %s < %" PRIu64, lg_fleet_tables[t].name, lg_fleet_tables[t].day,
		 before_us);
	if (sqlite3_exec(s->db, sql, NULL, NULL, NULL))
		return fail(s, err);
	*ret = (uint64_t)sqlite3_changes64(s->db);
	return 0;
}

const struct lg_fleet_engine lg_fleet_sqlite = {
	.name = "SQLite", .final = "", .median = "lg_median", .join = "JOIN", .left = "LEFT JOIN", .ask = sqlite_ask,
	.init = sqlite_init, .put = sqlite_put, .forget = sqlite_forget, .close = sqlite_close,
};
