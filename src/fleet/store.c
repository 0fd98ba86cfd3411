/* SPDX-License-Identifier: Apache-2.0 */
#include "fleet/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { SQL_MAX = 16 << 10 };

struct lg_fleet {
	const struct lg_fleet_engine *engine;
	void *self;
};

int lg_fleet_open(struct lg_fleet **ret, const struct lg_fleet_options *o, struct lg_error *err)
{
	static const char sqlite[] = "sqlite:";
	struct lg_fleet *f = lg_calloc(1, sizeof *f);
	int rc;

	if (!f)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	if (!strncmp(o->store, sqlite, sizeof sqlite - 1) && o->store[sizeof sqlite - 1]) {
		f->engine = &lg_fleet_sqlite;
		rc = lg_fleet_sqlite_open(&f->self, o->store + sizeof sqlite - 1, o->write, err);
	} else if (!strncmp(o->store, "http://", 7) || !strncmp(o->store, "https://", 8)) {
		f->engine = &lg_fleet_clickhouse;
		rc = lg_fleet_clickhouse_open(&f->self, o, err);
	} else {
		rc = lg_fail(err, LG_E_USAGE, LG_NO_OFFSET, "store \"%.200s\": want sqlite:PATH or http(s)://HOST:PORT/DB",
			     o->store);
	}
	if (rc)
		lg_free(f);
	else
		*ret = f;
	return rc;
}

void lg_fleet_close(struct lg_fleet *f)
{
	if (f)
		f->engine->close(f->self);
	lg_free(f);
}

const char *lg_fleet_engine_name(const struct lg_fleet *f)
{
	return f->engine->name;
}

/* Replace $F, $M, $J and $L. */
static int spell(const struct lg_fleet_engine *e, const char *sql, char *to, size_t size,
		 struct lg_error *err)
{
	size_t n = 0;

	for (; *sql; sql++) {
		const char *word = NULL;

		if (*sql == '$')
			word = sql[1] == 'F' ? e->final : sql[1] == 'M' ? e->median : sql[1] == 'J' ? e->join
			       : sql[1] == 'L' ? e->left : NULL;
		if (n + 1 + (word ? strlen(word) : 1) > size)
			return lg_fail(err, LG_E_LIMIT, LG_NO_OFFSET, "the question is too long");
		if (word) {
			memcpy(to + n, word, strlen(word));
			n += strlen(word);
			sql++;
		} else {
			to[n++] = *sql;
		}
	}
	to[n] = 0;
	return 0;
}

int lg_fleet_ask(struct lg_fleet *f, lg_fleet_row_fn *row, void *arg, struct lg_error *err, const char *sql,
		 ...)
{
	LG_AUTOFREE char *plain = lg_calloc(SQL_MAX, 1), *own = lg_calloc(SQL_MAX, 1);
	va_list ap;
	int n;

	if (!plain || !own)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	va_start(ap, sql);
	n = vsnprintf(plain, SQL_MAX, sql, ap);
	va_end(ap);
	if (n < 0 || n >= SQL_MAX)
		return lg_fail(err, LG_E_LIMIT, LG_NO_OFFSET, "the question is too long");
	return spell(f->engine, plain, own, SQL_MAX, err) ?: f->engine->ask(f->self, own, row, arg, err);
}

static int take_version(void *arg, size_t n, const char *const *value, struct lg_error *err)
{
	(void)err;
	if (n == 1)
		*(uint32_t *)arg = (uint32_t)strtoul(value[0], NULL, 10);
	return 0;
}

static int version(struct lg_fleet *f, uint32_t *ret, struct lg_error *err)
{
	*ret = 0;
	return lg_fleet_ask(f, take_version, ret, err, "SELECT max(version) FROM laggard_schema");
}

int lg_fleet_init(struct lg_fleet *f, uint32_t *ret_from, struct lg_error *err)
{
	int rc = f->engine->init(f->self, UINT32_MAX, err)
			 ?: version(f, ret_from, err); /* the table of versions */

	if (!rc && *ret_from > LG_FLEET_SCHEMA)
		rc = lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET, "the store has schema %u, of a newer laggard; this one "
			     "knows %d", *ret_from, LG_FLEET_SCHEMA);
	if (!rc && *ret_from < LG_FLEET_SCHEMA)
		rc = f->engine->init(f->self, *ret_from, err) ?:
		     lg_fleet_ask(f, take_version, &(uint32_t){ 0 }, err, "INSERT INTO laggard_schema VALUES (%d)",
				  LG_FLEET_SCHEMA);
	return rc;
}

int lg_fleet_check(struct lg_fleet *f, struct lg_error *err)
{
	struct lg_error why = { .offset = LG_NO_OFFSET };
	uint32_t v = 0;
	int rc = version(f, &v, &why);

	if ((rc && (strstr(why.message, "laggard_schema") || strstr(why.message, " exist"))) || (!rc && !v))
		return lg_fail(err, LG_E_NOTFOUND, LG_NO_OFFSET, "the store has no tables yet: laggard fleet init makes them");
	if (rc) {
		*err = why;
		return rc;
	}
	return v <= LG_FLEET_SCHEMA ? 0 : lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET, "the store has schema %u, of a "
						  "newer laggard; this one knows %d", v, LG_FLEET_SCHEMA);
}

int lg_fleet_put(struct lg_fleet *f, const void *bytes, size_t n, struct lg_error *err)
{
	return f->engine->put(f->self, bytes, n, err);
}

int lg_fleet_forget(struct lg_fleet *f, enum lg_fleet_table_id t, uint64_t before_us, uint64_t *ret,
		    struct lg_error *err)
{
	*ret = 0;
	return *lg_fleet_tables[t].day ? f->engine->forget(f->self, t, before_us, ret, err) : 0;
}
