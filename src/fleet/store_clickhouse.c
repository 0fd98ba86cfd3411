/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_clickhouse.c - a store over HTTP (libcurl, opened when a server is to be asked).
 *
 * Tables and questions keep to what ClickHouse 18.16 (Debian 12) and current ones understand alike. A newer
 * server gets codecs and a time to live in addition, after it was asked for its version. Rows go as they
 * lie in the batch: RowBinary, packed by gzip. Tables are ReplacingMergeTree by ver: what is sent again
 * replaces itself. An answer comes from another machine: bounded, and its text is data.
 */
#include <curl/curl.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/order.h"
#include "fleet/store.h"

enum {
	ANSWER_MAX = 64 << 20,
	COLUMNS_MAX = 24,
	SQL_MAX = 4096,
	TOKEN_MAX = 512,
	PATIENCE_S = 60,
	CONNECT_S = 10
};

static struct {
	__typeof__(curl_easy_init) *init;
	__typeof__(curl_easy_setopt) *set;
	__typeof__(curl_easy_perform) *perform;
	__typeof__(curl_easy_getinfo) *info;
	__typeof__(curl_easy_cleanup) *cleanup;
	__typeof__(curl_easy_escape) *escape;
	__typeof__(curl_easy_strerror) *strerror;
	__typeof__(curl_slist_append) *append;
	__typeof__(curl_slist_free_all) *free_list;
	__typeof__(curl_free) *free;
} lib;

struct clickhouse {
	CURL *curl;
	struct curl_slist *plain, *packed; /* headers */
	char *base, *db;                   /* "https://host:8443", "laggard" */
	char *answer;
	size_t n, cap;
	bool too_much, nomem;
	uint32_t version; /* 2405 of 24.5; 0 = not asked yet */
};

static int open_library(struct lg_error *err)
{
	static const char file[] = "libcurl.so.4";
	void *so = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	const struct {
		const char *name;
		void *at;
	} wanted[] = {
		{ "curl_easy_init", &lib.init }, { "curl_easy_setopt", &lib.set },
		{ "curl_easy_perform", &lib.perform }, { "curl_easy_getinfo", &lib.info },
		{ "curl_easy_cleanup", &lib.cleanup }, { "curl_easy_escape", &lib.escape },
		{ "curl_easy_strerror", &lib.strerror }, { "curl_slist_append", &lib.append },
		{ "curl_slist_free_all", &lib.free_list }, { "curl_free", &lib.free },
	};

	if (!so)
		return lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET, "%s is not here: apt-get install libcurl4", file);
	for (size_t i = 0; i < LG_COUNT(wanted); i++) {
		*(void **)wanted[i].at = dlsym(so, wanted[i].name);
		if (!*(void **)wanted[i].at)
			return lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET, "%s has no %s", file, wanted[i].name);
	}
	return 0;
}

static size_t take_answer(char *p, size_t one, size_t n, void *arg)
{
	struct clickhouse *c = arg;

	n *= one;
	if (n > ANSWER_MAX - c->n) {
		c->too_much = true;
		return 0;
	}
	if (lg_grow(&c->answer, &c->cap, c->n + n + 1, 1)) {
		c->nomem = true;
		return 0;
	}
	memcpy(c->answer + c->n, p, n);
	c->n += n;
	c->answer[c->n] = 0;
	return n;
}

/* The first line of what the server said, without what is no text. */
static const char *first_line(struct clickhouse *c)
{
	size_t n = c->n ? strcspn(c->answer, "\r\n") : 0;

	if (!n)
		return "it said nothing";
	c->answer[LG_MIN(n, (size_t)300)] = 0;
	return c->answer;
}

/* sql goes in the address, body (or nothing) behind it. The answer is in c->answer. */
static int call(struct clickhouse *c, bool in_db, const char *sql, const void *body, size_t n, bool packed,
		struct lg_error *err)
{
	char *query = body ? lib.escape(c->curl, sql, 0) : NULL;
	size_t size = strlen(c->base) + strlen(c->db) + (query ? strlen(query) : 0) + 200;
	LG_AUTOFREE char *url = lg_calloc(size, 1);
	char why[CURL_ERROR_SIZE] = "";
	long status = 0;
	CURLcode rc;

	c->n = 0;
	c->too_much = c->nomem = false;
	if (!url || (body && !query))
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	/* A failure half-way is a status, not the end of an answer that looks whole. */
	snprintf(url, size, "%s/?wait_end_of_query=1%s%s%s%s", c->base, in_db ? "&database=" : "", in_db ? c->db : "",
		 query ? "&query=" : "", query ? query : "");
	lib.free(query);
	(void)lib.set(c->curl, CURLOPT_URL, url);
	(void)lib.set(c->curl, CURLOPT_HTTPHEADER, packed ? c->packed : c->plain);
	(void)lib.set(c->curl, CURLOPT_POSTFIELDS, body ? body : sql);
	(void)lib.set(c->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)(body ? n : strlen(sql)));
	(void)lib.set(c->curl, CURLOPT_ERRORBUFFER, why);
	rc = lib.perform(c->curl);
	(void)lib.set(c->curl, CURLOPT_ERRORBUFFER, NULL);
	if (c->nomem)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	if (c->too_much)
		return lg_fail(err, LG_E_LIMIT, LG_NO_OFFSET, "%s answers with more than %d MiB", c->base, ANSWER_MAX >> 20);
	if (rc != CURLE_OK)
		return lg_fail(err, LG_E_IO, LG_NO_OFFSET, "%s: %s", c->base, *why ? why : lib.strerror(rc));
	(void)lib.info(c->curl, CURLINFO_RESPONSE_CODE, &status);
	if (status == 200)
		return 0;
	return lg_fail(err, status == 401 || status == 403 ? LG_E_PERM : LG_E_IO, LG_NO_OFFSET, "%s: HTTP status %ld: %s",
		       c->base, status, first_line(c));
}

/* Undo TabSeparated in place; the next field, or NULL at the end of a line. */
static char *field(char **at, bool *ret_last)
{
	char *start = *at, *to = start, *p = start;

	while (*p && *p != '\t' && *p != '\n') {
		if (*p == '\\' && p[1]) {
			static const char from[] = "tnrb0\\'", into[] = "\t\n\r\b?\\'";
			const char *k = strchr(from, p[1]);

			*to++ = k ? into[k - from] : p[1];
			p += 2;
		} else {
			*to++ = *p++;
		}
	}
	*ret_last = *p != '\t';
	*at = *p ? p + 1 : p;
	*to = 0;
	return start;
}

static int clickhouse_ask(void *self, const char *sql, lg_fleet_row_fn *row, void *arg, struct lg_error *err)
{
	struct clickhouse *c = self;
	const char *value[COLUMNS_MAX];
	char *at;
	int rc = call(c, true, sql, NULL, 0, false, err);

	at = c->n ? c->answer : NULL;
	while (!rc && at && *at) {
		size_t n = 0;
		bool last = false;

		while (!last) {
			char *f = field(&at, &last);

			if (n < COLUMNS_MAX)
				value[n++] = f;
		}
		rc = row(arg, n, value, err);
	}
	return rc;
}

static int tell(struct clickhouse *c, bool in_db, struct lg_error *err, const char *fmt, ...) LG_PRINTF(4, 5);
static int tell(struct clickhouse *c, bool in_db, struct lg_error *err, const char *fmt, ...)
{
	char sql[SQL_MAX];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(sql, sizeof sql, fmt, ap);
	va_end(ap);
	if (n < 0 || n >= SQL_MAX)
		return lg_fail(err, LG_E_LIMIT, LG_NO_OFFSET, "the question is too long");
	return call(c, in_db, sql, NULL, 0, false, err);
}

static int ask_version(struct clickhouse *c, struct lg_error *err)
{
	unsigned major, minor;
	int rc = c->version ? 0 : tell(c, false, err, "SELECT version()");

	if (rc || c->version)
		return rc;
	if (!c->n || sscanf(c->answer, "%u.%u.", &major, &minor) != 2 || major > 1000 || minor > 99)
		return lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET, "%s is no ClickHouse: it says %s", c->base, first_line(c));
	c->version = 100 * major + minor;
	return 0;
}

/* So long are rows kept where the server can do it by itself; laggard fleet gc does it on every version. */
static int lasting(struct clickhouse *c, const struct lg_fleet_table *t, unsigned days, struct lg_error *err)
{
	int rc = 0;

	if (c->version < 2408)
		return 0;
	for (size_t i = 0; i < t->n && !rc; i++)
		if (t->columns[i].type == LG_FLEET_U32)
			rc = tell(c, true, err, "ALTER TABLE %s MODIFY COLUMN %s UInt32 CODEC(T64, ZSTD(1))", t->name,
				  t->columns[i].name);
	return rc ?: tell(c, true, err, "ALTER TABLE %s MODIFY TTL toDateTime(intDiv(%s, 1000000)) + INTERVAL %u DAY", t->name,
			  t->day, days);
}

static int make_table(struct clickhouse *c, const struct lg_fleet_table *t, struct lg_error *err)
{
	static const char *const types[] = { "UInt8", "UInt16", "UInt32", "UInt64", "String" };
	char sql[SQL_MAX];
	size_t n = (size_t)snprintf(sql, sizeof sql, "CREATE TABLE IF NOT EXISTS %s (", t->name);

	for (size_t i = 0; i < t->n; i++)
		n += (size_t)snprintf(sql + n, sizeof sql - n, "%s%s %s", i ? ", " : "", t->columns[i].name,
				      types[t->columns[i].type]);
	n += (size_t)snprintf(sql + n, sizeof sql - n, ") ENGINE = ReplacingMergeTree(ver)");
	if (*t->day)
		n += (size_t)snprintf(sql + n, sizeof sql - n, " PARTITION BY toYYYYMMDD(toDateTime(intDiv(%s, 1000000)))",
				      t->day);
	n += (size_t)snprintf(sql + n, sizeof sql - n, " ORDER BY (%s)", t->key);
	if (n >= sizeof sql)
		return lg_fail(err, LG_E_LIMIT, LG_NO_OFFSET, "%s has too many columns", t->name);
	return tell(c, true, err, "%s", sql);
}

static int clickhouse_init(void *self, uint32_t from, struct lg_error *err)
{
	struct clickhouse *c = self;
	int rc = ask_version(c, err);

	if (!rc && from == UINT32_MAX)
		return tell(c, false, err, "CREATE DATABASE IF NOT EXISTS %s", c->db) ?:
		       tell(c, true, err, "CREATE TABLE IF NOT EXISTS laggard_schema (version UInt32) ENGINE = "
			    "MergeTree ORDER BY version");
	for (size_t i = 0; i < LG_FLEET_N_TABLES && !rc; i++)
		rc = make_table(c, &lg_fleet_tables[i], err);
	return rc ?: lasting(c, &lg_fleet_tables[LG_FLEET_T_RANK_STEP], 14, err) ?:
	       lasting(c, &lg_fleet_tables[LG_FLEET_T_STALL], 90, err);
}

static int count_row(void *arg, const struct lg_fleet_value *v, struct lg_error *err)
{
	(void)arg;
	(void)v;
	(void)err;
	return 0;
}

/* Each part is looked through before it is sent: of bytes that are no rows a server takes what it can. */
static int clickhouse_put(void *self, const void *bytes, size_t n, struct lg_error *err)
{
	struct clickhouse *c = self;
	struct lg_fleet_part p;
	size_t at = 0;
	int rc;

	while ((rc = lg_fleet_batch_next(bytes, n, &at, &p, err)) > 0)
		if ((rc = lg_fleet_part_rows(&p, count_row, NULL, err)))
			return rc;
	at = 0;
	while (!rc && (rc = lg_fleet_batch_next(bytes, n, &at, &p, err)) > 0) {
		char sql[100];

		snprintf(sql, sizeof sql, "INSERT INTO %s FORMAT RowBinary", lg_fleet_tables[p.table].name);
		rc = call(c, true, sql, p.gzip, p.gzip_bytes, true, err);
	}
	return rc;
}

static int clickhouse_forget(void *self, enum lg_fleet_table_id t, uint64_t before_us, uint64_t *ret,
			     struct lg_error *err)
{
	struct clickhouse *c = self;
	const char *name = lg_fleet_tables[t].name;
	uint64_t *day = NULL;
	size_t n = 0, cap = 0;
	char *at;
	int rc = tell(c, true, err, "SELECT DISTINCT partition FROM system.parts WHERE active AND database = '%s' AND "
		      "table = '%s' AND toUInt32OrZero(partition) < toYYYYMMDD(toDateTime(intDiv(%" PRIu64 ", 1000000)))",
		      c->db, name, before_us);

	for (at = c->n ? c->answer : NULL; !rc && at && *at;) {
		bool last;

		rc = LG_APPEND(day, n, cap, strtoull(field(&at, &last), NULL, 10));
	}
	for (size_t i = 0; i < n && !rc; i++)
		rc = tell(c, true, err, "ALTER TABLE %s DROP PARTITION %" PRIu64, name, day[i]);
	*ret = rc ? 0 : n;
	lg_free(day);
	return rc;
}

static void clickhouse_close(void *self)
{
	struct clickhouse *c = self;

	if (c->curl)
		lib.cleanup(c->curl);
	if (lib.free_list) {
		lib.free_list(c->plain);
		lib.free_list(c->packed);
	}
	lg_free(c->base);
	lg_free(c->db);
	lg_free(c->answer);
	lg_free(c);
}

/* ---- opening -------------------------------------------------------------------------------------- */

static int read_token(const char *path, char *ret, size_t size, struct lg_error *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n = fd < 0 ? -1 : read(fd, ret, size - 1);
	int e = errno;

	if (fd >= 0)
		close(fd);
	if (n < 0)
		return lg_fail_errno(err, e, "cannot read the token in %.300s", path);
	ret[n] = 0;
	ret[strcspn(ret, "\r\n")] = 0;
	for (const char *p = ret; *p; p++)
		if (*p < ' ' || *p > '~')
			return lg_fail(err, LG_E_FORMAT, LG_NO_OFFSET, "%.300s: its first line is no token", path);
	return *ret ? 0 : lg_fail(err, LG_E_FORMAT, LG_NO_OFFSET, "%.300s: its first line is no token", path);
}

static bool add_header(struct clickhouse *c, const char *text)
{
	struct curl_slist *a = lib.append(c->plain, text), *b = lib.append(c->packed, text);

	c->plain = a ? a : c->plain;
	c->packed = b ? b : c->packed;
	return a && b;
}

static int add_headers(struct clickhouse *c, const struct lg_fleet_options *o, struct lg_error *err)
{
	char token[TOKEN_MAX], line[TOKEN_MAX + 32];
	struct curl_slist *gz;
	int rc = 0;

	/* Not "Expect: 100-continue": an old server keeps us waiting a second for it. */
	if (!add_header(c, "Expect:") || !add_header(c, "Content-Type: application/octet-stream"))
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	if (o->user || o->token_file) {
		const char *user = o->user ? o->user : "default"; /* a key alone is nobody's on an old server */

		snprintf(line, sizeof line, "X-ClickHouse-User: %.200s", user);
		if (strpbrk(user, "\r\n") || !add_header(c, line))
			return lg_fail(err, LG_E_USAGE, LG_NO_OFFSET, "the user's name cannot be sent");
	}
	if (o->token_file) {
		rc = read_token(o->token_file, token, sizeof token, err);
		snprintf(line, sizeof line, "X-ClickHouse-Key: %s", rc ? "" : token);
		if (!rc && !add_header(c, line))
			rc = lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	gz = rc ? NULL : lib.append(c->packed, "Content-Encoding: gzip");
	c->packed = gz ? gz : c->packed;
	return rc ?: gz ? 0 : lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
}

/* http(s)://HOST:PORT/DB, whose last part is a name that needs no quotes. */
static int parse(struct clickhouse *c, const char *store, struct lg_error *err)
{
	const char *slash = strrchr(store, '/'), *host = strstr(store, "://") + 3;
	size_t n = slash >= host ? strlen(slash + 1) : 0;

	if (slash <= host || !n || n > 64 || strcspn(host, "/") != (size_t)(slash - host) ||
	    strspn(slash + 1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != n ||
	    strcspn(host, "@?#&% ") < (size_t)(slash - host))
		return lg_fail(err, LG_E_USAGE, LG_NO_OFFSET, "store \"%.200s\": want http(s)://HOST:PORT/DB, DB of letters, "
			       "digits and _", store);
	c->base = lg_strdup(store);
	c->db = lg_strdup(slash + 1);
	if (!c->base || !c->db)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	c->base[slash - store] = 0;
	return 0;
}

int lg_fleet_clickhouse_open(void **ret, const struct lg_fleet_options *o, struct lg_error *err)
{
	struct clickhouse *c = lg_calloc(1, sizeof *c);
	int rc;

	if (!c)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	rc = parse(c, o->store, err) ?: open_library(err);
	if (!rc && !(c->curl = lib.init()))
		rc = lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	rc = rc ?: add_headers(c, o, err);
	if (rc) {
		clickhouse_close(c);
		return rc;
	}
	(void)lib.set(c->curl, CURLOPT_WRITEFUNCTION, take_answer);
	(void)lib.set(c->curl, CURLOPT_WRITEDATA, c);
	(void)lib.set(c->curl, CURLOPT_POST, 1L);
	(void)lib.set(c->curl, CURLOPT_NOSIGNAL, 1L);
	(void)lib.set(c->curl, CURLOPT_FOLLOWLOCATION, 0L); /* the token is for this server */
	(void)lib.set(c->curl, CURLOPT_PROXY, ""); /* nor does the environment choose who sees it */
	(void)lib.set(c->curl, CURLOPT_PROTOCOLS_STR, "http,https");
	(void)lib.set(c->curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
	(void)lib.set(c->curl, CURLOPT_TIMEOUT_MS,
		      o->patience_ns ? (long)(o->patience_ns / 1000000) : PATIENCE_S * 1000L);
	if (o->ca_file)
		(void)lib.set(c->curl, CURLOPT_CAINFO, o->ca_file);
	*ret = c;
	return 0;
}

const struct lg_fleet_engine lg_fleet_clickhouse = {
	.name = "ClickHouse", .final = " FINAL", .median = "quantileExact(0.499)", .join = "ALL INNER JOIN",
	.left = "ANY LEFT JOIN", .ask = clickhouse_ask, .init = clickhouse_init, .put = clickhouse_put,
	.forget = clickhouse_forget, .close = clickhouse_close,
};
