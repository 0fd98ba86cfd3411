/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nsys.c - the database, its safety, and the facts in it.
 *
 * A database from elsewhere is hostile input: it is opened read-only and immutable, its schema may not
 * call functions, triggers and views are off, an authorizer lets nothing but reading of plain tables
 * pass, and tables that are not ordinary ones are not looked at (sqlite.org/security.html).
 */
#include "import/nsys/nsys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "import/source/frame.h"
#include "import/source/source.h"
#include "import/source/stamp.h"

#define SIZE_LIMIT ((size_t)4 << 30) /* of a packed file's contents: they are unpacked into memory */
enum { PID_BITS = 24 };
/*
 * A page of a table may be the child of many, and a long value's pages a circle: what a few pages hold is
 * then without end. Of a sound file each column of a row takes a byte or more and an instruction or two, and
 * a text is read a few times; beyond that it is called damaged.
 */
enum { STEPS = 1000, STEPS_A_BYTE = 16, STEPS_LEAST = 4 << 20, TEXT_A_BYTE = 8 };

/* Not a view, not virtual (those have no pages of their own), without computed columns. table is one of
 * our own names. */
static int is_plain_table(struct lg_nsys *n, const char *table)
{
	enum { HIDDEN = 6 }; /* column of table_xinfo: 2 and 3 are computed (sqlite.org/gencol.html) */
	sqlite3_stmt *q;
	char sql[128];
	int plain;

	if (sqlite3_prepare_v2(n->db, "SELECT 1 FROM sqlite_master WHERE type='table' AND name=?1 AND rootpage>0",
			       -1, &q, NULL) != SQLITE_OK)
		return 0;
	sqlite3_bind_text(q, 1, table, -1, SQLITE_STATIC);
	plain = sqlite3_step(q) == SQLITE_ROW;
	sqlite3_finalize(q);
	snprintf(sql, sizeof sql, "PRAGMA table_xinfo(\"%s\")", table);
	if (!plain || sqlite3_prepare_v2(n->db, sql, -1, &q, NULL) != SQLITE_OK)
		return 0;
	while (sqlite3_step(q) == SQLITE_ROW)
		plain &= sqlite3_column_int(q, HIDDEN) < 2;
	sqlite3_finalize(q);
	return plain;
}

int lg_nsys_open(struct lg_nsys *n, struct lg_nsys_cursor *c, const char *table,
		 const char *const *cols, size_t n_cols, const char *order)
{
	char sql[256];

	*c = (struct lg_nsys_cursor){ 0 };
	if (!is_plain_table(n, table))
		return 0;
	snprintf(sql, sizeof sql, "SELECT * FROM \"%s\"%s%s", table, order ? " ORDER BY " : "",
		 order ? order : "");
	if (sqlite3_prepare_v2(n->db, sql, -1, &c->stmt, NULL) != SQLITE_OK) {
		n->damaged++;
		return 0;
	}
	for (size_t i = 0; i < LG_NSYS_COLS; i++)
		c->col[i] = -1;
	for (int k = 0; k < sqlite3_column_count(c->stmt); k++)
		for (size_t i = 0; i < n_cols; i++)
			if (!sqlite3_stricmp(sqlite3_column_name(c->stmt, k), cols[i]))
				c->col[i] = k;
	return 1;
}

static int is_without_end(const struct lg_nsys *n)
{
	return n->steps * STEPS / STEPS_A_BYTE > n->bytes + STEPS_LEAST / STEPS_A_BYTE ||
	       n->text / TEXT_A_BYTE > n->bytes;
}

int lg_nsys_next(struct lg_nsys *n, struct lg_nsys_cursor *c)
{
	int rc = lg_builder_failed(n->b) ? SQLITE_DONE
		 : is_without_end(n)     ? SQLITE_CORRUPT
					 : sqlite3_step(c->stmt);

	if (rc == SQLITE_ROW)
		return 1;
	n->damaged += rc != SQLITE_DONE;
	sqlite3_finalize(c->stmt);
	c->stmt = NULL;
	return 0;
}

int lg_nsys_is_null(const struct lg_nsys_cursor *c, int col)
{
	return c->col[col] < 0 || sqlite3_column_type(c->stmt, c->col[col]) == SQLITE_NULL;
}

int64_t lg_nsys_int(const struct lg_nsys_cursor *c, int col, int64_t otherwise)
{
	return lg_nsys_is_null(c, col) ? otherwise : sqlite3_column_int64(c->stmt, c->col[col]);
}

double lg_nsys_real(const struct lg_nsys_cursor *c, int col)
{
	return lg_nsys_is_null(c, col) ? 0 : sqlite3_column_double(c->stmt, c->col[col]);
}

const char *lg_nsys_text(struct lg_nsys *n, const struct lg_nsys_cursor *c, int col)
{
	const unsigned char *p = c->col[col] < 0 ? NULL : sqlite3_column_text(c->stmt, c->col[col]);

	n->text += p ? (uint64_t)sqlite3_column_bytes(c->stmt, c->col[col]) : 0;
	return p ? (const char *)p : "";
}

lg_str lg_nsys_string(struct lg_nsys *n, int64_t id)
{
	return id < 0 ? 0 : lg_map_get(&n->string, (uint64_t)id + 1);
}

/* globalTid: hardware and VM ids above, then 24 bits of pid, 24 of tid. */
static int32_t pid_of(int64_t global)
{
	return (int32_t)((uint64_t)global >> PID_BITS & ((1u << PID_BITS) - 1));
}

lg_prc lg_nsys_process(struct lg_nsys *n, int64_t global_pid)
{
	int32_t pid = pid_of(global_pid);

	return pid ? lg_process_get(n->b, pid) : 0;
}

lg_thr lg_nsys_thread(struct lg_nsys *n, int64_t global_tid)
{
	uint64_t key = ((uint64_t)global_tid & 0xffffffffffff) | 1ull << 48;
	int32_t tid = (int32_t)((uint64_t)global_tid & ((1u << PID_BITS) - 1));
	lg_thr thr = lg_map_get(&n->thread, key);

	if (thr)
		return thr;
	if (pid_of(global_tid) && tid)
		thr = lg_thread_get(n->b, pid_of(global_tid), tid);
	else /* reduced exports number nothing: one thread a value */
		thr = lg_thread_unnumbered(n->b, lg_process_unnumbered(n->b, "", -1, 0), "", 1);
	if (thr)
		(void)!lg_map_set(&n->thread, key, thr);
	return thr;
}

int lg_nsys_times(struct lg_nsys *n, int64_t start, int64_t end, int64_t *ret_ts, int64_t *ret_dur)
{
	const int64_t most = INT64_C(1) << 60; /* 36 years */

	if (start < -most || start > most || (end != INT64_MAX && (end < start || end > most))) {
		n->odd++;
		return 0;
	}
	*ret_ts = n->base + start;
	*ret_dur = end == INT64_MAX ? -1 : end - start;
	n->first = n->rows && n->first < *ret_ts ? n->first : *ret_ts;
	n->last = n->rows && n->last > *ret_ts ? n->last : *ret_ts;
	n->rows++;
	return 1;
}

/* Reading of real tables, and nothing else. */
static int authorize(void *self, int action, const char *a, const char *b, const char *db,
		     const char *trigger)
{
	(void)self;
	(void)b;
	(void)db;
	if (action == SQLITE_PRAGMA)
		return a && !strcmp(a, "table_xinfo") ? SQLITE_OK : SQLITE_DENY;
	return (action == SQLITE_SELECT || action == SQLITE_READ) && !trigger ? SQLITE_OK : SQLITE_DENY;
}

static int is_too_much(void *arg)
{
	struct lg_nsys *n = arg;

	n->steps++;
	return is_without_end(n);
}

static int secure(struct lg_nsys *n)
{
	sqlite3 *db = n->db;
	int off = 0;

	sqlite3_progress_handler(db, STEPS, is_too_much, n);

	sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, &off);
	sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, &off);
	sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, &off);
	sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, &off);
	sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, &off);
	sqlite3_limit(db, SQLITE_LIMIT_LENGTH, 64 << 20);
	sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 0);
	sqlite3_limit(db, SQLITE_LIMIT_COLUMN, 500);
	sqlite3_limit(db, SQLITE_LIMIT_TRIGGER_DEPTH, 1);
	/* cell_size_check costs little and finds damaged pages before they are believed */
	(void)sqlite3_exec(db, "PRAGMA cell_size_check=ON; PRAGMA mmap_size=0; PRAGMA temp_store=MEMORY;",
			   NULL, NULL, NULL);
	return sqlite3_set_authorizer(db, authorize, NULL);
}

/* "file:PATH?immutable=1" with the characters that mean something in a URI escaped. */
static char *uri_of(const char *path)
{
	static const char hex[] = "0123456789ABCDEF", rest[] = "?mode=ro&immutable=1";
	char *uri = lg_calloc(strlen(path), 3 * sizeof *uri + sizeof rest + 8), *to;

	if (!uri)
		return NULL;
	memcpy(uri, "file:", 5);
	to = uri + 5;
	for (; *path; path++) {
		unsigned char ch = (unsigned char)*path;

		if (ch == '?' || ch == '#' || ch == '%') {
			*to++ = '%';
			*to++ = hex[ch >> 4];
			*to++ = hex[ch & 15];
		} else {
			*to++ = (char)ch;
		}
	}
	memcpy(to, rest, sizeof rest);
	return uri;
}

/* *ret_mem: the contents of a packed file, to be freed after the database. *ret_bytes: its size. */
static int open_db(const char *path, sqlite3 **ret, char **ret_mem, uint64_t *ret_bytes, struct lg_error *err)
{
	const int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX;
	LG_AUTOFREE char *uri = NULL;
	struct lg_source *in;
	const char *damage;
	struct stat st;
	char magic[16] = "";
	size_t n = 0;
	int rc = lg_source_open(&in, path, err), plain;

	if (rc)
		return rc;
	n = lg_source_read(in, magic, sizeof magic);
	lg_source_close(in);
	if (n < 15 || memcmp(magic, "SQLite format 3", 15))
		return lg_fail(err, LG_E_FORMAT, 0, "this is not an SQLite database");
	uri = uri_of(path);
	if (!uri)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	/* Is the file itself the database, or packed? */
	{
		FILE *f = fopen(path, "rbe");
		char raw[15] = "";

		/* SQLite resolves the link of a pipe's copy to a name that cannot be opened. */
		plain = strncmp(path, "/proc/self/fd/", 14) && f && fread(raw, 1, sizeof raw, f) == sizeof raw && !memcmp(raw, magic, sizeof raw);
		*ret_bytes = f && !fstat(fileno(f), &st) && st.st_size > 0 ? (uint64_t)st.st_size : 0;
		if (f)
			fclose(f);
	}
	if (plain) {
		if (sqlite3_open_v2(uri, ret, flags, NULL) == SQLITE_OK)
			return 0;
	} else {
		rc = lg_source_all(path, SIZE_LIMIT, ret_mem, &n, &damage, err);
		if (rc)
			return rc;
		*ret_bytes = n;
		if (sqlite3_open_v2(":memory:", ret, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) ==
			    SQLITE_OK &&
		    sqlite3_deserialize(*ret, "main", (unsigned char *)*ret_mem, (sqlite3_int64)n,
					(sqlite3_int64)n, SQLITE_DESERIALIZE_READONLY) == SQLITE_OK)
			return 0;
	}
	rc = lg_fail(err, LG_E_FORMAT, 0, "the database cannot be opened: %s", sqlite3_errmsg(*ret));
	sqlite3_close(*ret);
	*ret = NULL;
	return rc;
}

static void read_strings(struct lg_nsys *n)
{
	static const char *const cols[] = { "id", "value" };
	struct lg_nsys_cursor c;

	if (!lg_nsys_open(n, &c, "StringIds", cols, 2, NULL))
		return;
	while (lg_nsys_next(n, &c)) {
		int64_t id = lg_nsys_int(&c, 0, -1);
		lg_str s = lg_intern(n->b, lg_nsys_text(n, &c, 1));

		if (id >= 0 && s)
			(void)!lg_map_set(&n->string, (uint64_t)id + 1, s);
	}
}

static void read_clock(struct lg_nsys *n)
{
	static const char *const cols[] = { "utcEpochNs" };
	struct lg_nsys_cursor c;

	n->base = INT64_MIN;
	if (lg_nsys_open(n, &c, "TARGET_INFO_SESSION_START_TIME", cols, 1, NULL))
		while (lg_nsys_next(n, &c))
			n->base = lg_nsys_int(&c, 0, INT64_MIN);
	if (n->base <= 0 || n->base > INT64_C(1) << 62)
		n->base = INT64_MIN;
}

static void read_exporter(struct lg_nsys *n)
{
	static const char *const tables[] = { "META_DATA_EXPORT", "EXPORT_META_DATA" };
	static const char *const cols[] = { "name", "value" };
	struct lg_nsys_cursor c;
	int told = 0;

	for (size_t i = 0; i < 2; i++) {
		if (!lg_nsys_open(n, &c, tables[i], cols, 2, NULL))
			continue;
		while (lg_nsys_next(n, &c)) {
			const char *name = lg_nsys_text(n, &c, 0), *value = lg_nsys_text(n, &c, 1);

			if (!strcmp(name, "EXPORT_SCHEMA_VERSION")) {
				lg_meta_set(n->b, 0, "nsys.schema", value);
				told = 1;
			} else if (!strcmp(name, "EXPORT_PRODUCT_VERSION")) {
				lg_meta_set(n->b, 0, "nsys.version", value);
			}
		}
	}
	if (!told)
		lg_meta_set(n->b, 0, "nsys.schema", "before 2.0");
	lg_meta_set(n->b, 0, "trace.format", "nsys");
}

static void read_machine(struct lg_nsys *n)
{
	static const char *const env[] = { "name", "value" };
	static const char *const gpu[] = { "id", "deviceId", "name", "totalMemory", "smCount",
					   "computeMajor", "computeMinor" };
	struct lg_nsys_cursor c;
	char key[64];

	if (lg_nsys_open(n, &c, "TARGET_INFO_SYSTEM_ENV", env, 2, NULL))
		while (lg_nsys_next(n, &c))
			if (!strcmp(lg_nsys_text(n, &c, 0), "Hostname") && *lg_nsys_text(n, &c, 1))
				lg_meta_set(n->b, 0, "host.name", lg_nsys_text(n, &c, 1));
	if (!lg_nsys_open(n, &c, "TARGET_INFO_GPU", gpu, 7, NULL))
		return;
	while (lg_nsys_next(n, &c)) {
		int id = (int)lg_nsys_int(&c, 0, lg_nsys_int(&c, 1, -1));

		if (id < 0 || id > 1023)
			continue;
		snprintf(key, sizeof key, "gpu.%d.name", id);
		lg_meta_set(n->b, 0, key, lg_nsys_text(n, &c, 2));
		snprintf(key, sizeof key, "gpu.%d.memory", id);
		if (lg_nsys_int(&c, 3, 0) > 0)
			lg_meta_set(n->b, 0, key, lg_nsys_text(n, &c, 3));
		snprintf(key, sizeof key, "gpu.%d.sms", id);
		if (lg_nsys_int(&c, 4, 0) > 0)
			lg_meta_set(n->b, 0, key, lg_nsys_text(n, &c, 4));
		snprintf(key, sizeof key, "gpu.%d.compute", id);
		if (lg_nsys_int(&c, 5, 0) > 0)
			lg_meta_setf(n->b, 0, key, "%d.%d", (int)lg_nsys_int(&c, 5, 0),
				     (int)lg_nsys_int(&c, 6, 0));
	}
}

static int finish(struct lg_nsys *n, struct lg_error *err)
{
	int relative = n->base == 0;

	if (lg_builder_failed(n->b))
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	if (!n->rows)
		return lg_fail(err, LG_E_FORMAT, 0, n->damaged
			       ? "an export of Nsight Systems whose tables cannot be read: %s"
			       : "an SQLite database without a table of Nsight Systems that has rows",
			       is_without_end(n) ? "its pages hold one another" :
			       n->damaged ? sqlite3_errmsg(n->db) : "");
	/* The start is read when the session begins: a few milliseconds beside the first event. */
	lg_time_base(n->b, relative ? LG_TIME_RELATIVE : LG_TIME_REALTIME, n->first, 10000000, "nsys");
	if (n->damaged)
		lg_add_diag_now(n->b, LG_DIAG_FILE_DAMAGED, n->last, (uint64_t)n->damaged,
				"%d tables could not be read to their end", n->damaged);
	if (n->odd)
		lg_add_diag_now(n->b, LG_DIAG_FILE_DAMAGED, n->last, n->odd,
				"rows that end before they start");
	if (n->orphans)
		lg_add_diag_now(n->b, LG_DIAG_PARTIAL, n->first, n->orphans,
				"of %llu GPU rows, %llu have no API call in the file",
				(unsigned long long)n->gpu_rows, (unsigned long long)n->orphans);
	return 0;
}

static int run(const char *path, struct lg_builder *b, struct lg_error *err)
{
	struct lg_nsys n = { .b = b };
	char *mem = NULL;
	int rc = open_db(path, &n.db, &mem, &n.bytes, err);

	if (!rc) {
		if (secure(&n) != SQLITE_OK) {
			rc = lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET, "SQLite cannot be secured");
		} else {
			read_strings(&n);
			read_clock(&n);
			n.base = n.base == INT64_MIN ? 0 : n.base;
			read_exporter(&n);
			read_machine(&n);
			lg_nsys_read_gpu(&n);
			lg_nsys_read_host(&n);
			rc = finish(&n, err);
		}
		sqlite3_close(n.db);
	}
	lg_map_done(&n.string);
	lg_map_done(&n.thread);
	lg_map_done(&n.call_of);
	lg_free(n.call);
	lg_free(mem);
	return rc;
}

static int sniff(const struct lg_head *h)
{
	return h->n_text >= 15 && !memcmp(h->text, "SQLite format 3", 15) ? 60 : 0;
}

const struct lg_importer lg_import_nsys = {
	.name = "nsys",
	.summary = "SQLite export of Nsight Systems",
	.sniff = sniff,
	.run = run,
};
