/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_query.c - SQL over every table of a trace and of its verdict. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/bounds.h"
#include "cli/load.h"
#include "cli/query_tables.h"
#include "report/json_write.h"
#include "report/text.h"

enum { AS_TABLE, AS_CSV, AS_JSON };
enum { LOOK_AHEAD = 200, COLUMN_MAX = 60 }; /* rows that set the widths; columns of text */

/* Columns of a UTF-8 string. */
static unsigned width_of(const char *s)
{
	unsigned n = 0;

	for (; *s; s++)
		n += (*s & 0xc0) != 0x80;
	return n;
}

struct printer {
	struct lg_out *o;
	struct lg_json j;
	int as, n;
	unsigned *width;
	char **ahead;    /* cells of the first rows, until the widths are known */
	size_t n_ahead;
	bool flowing;    /* widths are set */
	char *escaped;   /* of cell() */
	size_t escaped_cap;
	bool nomem;
};

/* The text of a column, until the next call; zero bytes, at which a C string would end, as \x00. */
static const char *cell(struct printer *p, sqlite3_stmt *q, int i)
{
	const char *s = (const char *)sqlite3_column_text(q, i);
	size_t n = s ? (size_t)sqlite3_column_bytes(q, i) : 0, k = 0;

	if (!s || strlen(s) >= n)
		return s ? s : "";
	if (lg_grow(&p->escaped, &p->escaped_cap, 4 * n + 1, 1)) {
		p->nomem = true;
		return "";
	}
	for (size_t c = 0; c < n; c++) {
		if (s[c]) {
			p->escaped[k++] = s[c];
			continue;
		}
		memcpy(p->escaped + k, "\\x00", 4);
		k += 4;
	}
	p->escaped[k] = 0;
	return p->escaped;
}

static void aligned(struct printer *p, int col, const char *s)
{
	unsigned w = width_of(s);

	lg_text_safe(p->o, s);
	if (col + 1 < p->n) {
		for (; w < p->width[col]; w++)
			lg_out_write(p->o, " ", 1);
		lg_out_write(p->o, "  ", 2);
	}
}

static void flow(struct printer *p)
{
	if (p->flowing)
		return;
	p->flowing = true;
	for (size_t k = 0; k < p->n_ahead; k++) {
		for (int i = 0; i < p->n; i++) {
			aligned(p, i, p->ahead[k * (size_t)p->n + (size_t)i]);
			lg_free(p->ahead[k * (size_t)p->n + (size_t)i]);
		}
		lg_out_puts(p->o, "\n");
	}
}

static int table_row(struct printer *p, sqlite3_stmt *q, bool names)
{
	if (p->flowing || p->n_ahead == LOOK_AHEAD) {
		flow(p);
		for (int i = 0; i < p->n; i++)
			aligned(p, i, cell(p, q, i));
		lg_out_puts(p->o, "\n");
		return 0;
	}
	for (int i = 0; i < p->n; i++) {
		const char *s = names ? sqlite3_column_name(q, i) : cell(p, q, i);
		unsigned w = width_of(s ? s : "");
		char *copy = lg_strdup(s ? s : "");

		if (!copy) {
			while (i--)
				lg_free(p->ahead[p->n_ahead * (size_t)p->n + (size_t)i]);
			return LG_E_NOMEM;
		}
		p->ahead[p->n_ahead * (size_t)p->n + (size_t)i] = copy;
		w = w < COLUMN_MAX ? w : COLUMN_MAX;
		if (w > p->width[i])
			p->width[i] = w;
	}
	p->n_ahead++;
	return 0;
}

static void csv_row(struct printer *p, sqlite3_stmt *q, bool names)
{
	for (int i = 0; i < p->n; i++) {
		int type = names ? SQLITE_TEXT : sqlite3_column_type(q, i);

		if (i)
			lg_out_write(p->o, ",", 1);
		if (type == SQLITE_TEXT || type == SQLITE_BLOB)
			lg_csv_text(p->o, names ? sqlite3_column_name(q, i) : cell(p, q, i));
		else
			lg_out_puts(p->o, cell(p, q, i));
	}
	lg_out_puts(p->o, "\r\n");
}

static void json_row(struct printer *p, sqlite3_stmt *q)
{
	lg_json_open_flat(&p->j, '{');
	for (int i = 0; i < p->n; i++) {
		const char *name = sqlite3_column_name(q, i);

		lg_json_key(&p->j, name ? name : "");
		switch (sqlite3_column_type(q, i)) {
		case SQLITE_INTEGER:
			lg_json_int(&p->j, sqlite3_column_int64(q, i));
			break;
		case SQLITE_FLOAT:
			lg_json_num(&p->j, sqlite3_column_double(q, i), 9);
			break;
		case SQLITE_NULL:
			lg_json_null(&p->j);
			break;
		default: {
			const char *s = (const char *)sqlite3_column_text(q, i);

			lg_json_str_n(&p->j, s ? s : "", s ? (size_t)sqlite3_column_bytes(q, i) : 0);
		}
		}
	}
	lg_json_close(&p->j, '}');
}

static int rows(struct printer *p, sqlite3 *db, sqlite3_stmt *q, struct lg_error *err)
{
	int rc;

	p->n = sqlite3_column_count(q);
	p->width = lg_calloc((size_t)p->n, sizeof *p->width);
	p->ahead = lg_calloc((size_t)p->n * LOOK_AHEAD, sizeof *p->ahead);
	if (!p->width || !p->ahead)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	if (p->as == AS_JSON)
		lg_json_open(&p->j, '[');
	else if (p->as == AS_CSV)
		csv_row(p, q, true);
	else if (table_row(p, q, true))
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
		if (p->as == AS_JSON)
			json_row(p, q);
		else if (p->as == AS_CSV)
			csv_row(p, q, false);
		else if (table_row(p, q, false))
			p->nomem = true;
		if (p->nomem)
			return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	if (rc == SQLITE_AUTH) /* what VACUUM is made of is seen only when it runs */
		return lg_fail(err, LG_E_USAGE, LG_NO_OFFSET, "SQL: %s (only SELECT is allowed)",
			       sqlite3_errmsg(db));
	if (rc != SQLITE_DONE)
		return lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET, "SQL: %s", sqlite3_errmsg(db));
	if (p->as == AS_JSON) {
		lg_json_close(&p->j, ']');
		lg_out_puts(p->o, "\n");
	}
	return 0;
}

static int query(sqlite3 *db, const char *sql, int as, struct lg_error *err)
{
	struct printer p = { .as = as };
	sqlite3_stmt *q = NULL;
	const char *tail = NULL;
	int rc = 0;

	if (sqlite3_prepare_v2(db, sql, -1, &q, &tail))
		return lg_fail(err, LG_E_USAGE, LG_NO_OFFSET, "SQL: %s%s", sqlite3_errmsg(db),
			       sqlite3_errcode(db) == SQLITE_AUTH ? " (only SELECT is allowed)" : "");
	while (tail && *tail && strchr(" \t\r\n;", *tail))
		tail++;
	if (!q || (tail && *tail))
		rc = lg_fail(err, LG_E_USAGE, LG_NO_OFFSET, q ? "SQL: one statement at a time, not also \"%.60s\""
							      : "SQL: there is no statement%.0s", tail ? tail : "");
	if (!rc)
		rc = lg_out_open(&p.o, "-", LG_OUT_PLAIN, err);
	if (!rc) {
		p.j.o = p.o;
		rc = rows(&p, db, q, err);
		flow(&p);
		lg_free(p.width);
		lg_free(p.ahead);
		lg_free(p.escaped);
		if (rc)
			lg_out_abort(p.o);
		else
			rc = lg_out_close(p.o, err);
	}
	sqlite3_finalize(q);
	return rc;
}

static int run(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "csv", no_argument, NULL, 'c' },
		LG_MAX_MEMORY_OPTION,
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	struct lg_loaded l = { 0 };
	struct lg_error err = { .offset = LG_NO_OFFSET };
	sqlite3 *db = NULL;
	int c, as = AS_TABLE, rc;

	opterr = 0;
	optind = 0; /* glibc: start anew */
	while ((c = getopt_long(argc, argv, ":h", longs, NULL)) != -1) {
		if (c == LG_MAX_MEMORY) {
			rc = lg_max_memory_option(&lg_cmd_query, optarg);
			if (rc >= 0)
				return rc;
			continue;
		}
		if (c != 'j' && c != 'c')
			return lg_option_rest(&lg_cmd_query, c, argv[optind - 1]);
		as = c == 'j' ? AS_JSON : AS_CSV;
	}
	if (argc - optind < 2)
		return lg_usage(&lg_cmd_query, "FILE and SQL are needed");
	rc = lg_load_run(argv + optind, (size_t)(argc - optind) - 1, &l, &err);
	if (!rc)
		rc = lg_judge(&l, 0, (double)NAN, &err);
	if (!rc)
		rc = lg_query_open(&db, l.verdict, &err);
	if (!rc)
		rc = query(db, argv[argc - 1], as, &err);
	if (rc)
		lg_complain(&err);
	sqlite3_close(db);
	lg_loaded_done(&l);
	return !rc ? LG_EXIT_OK : rc == LG_E_USAGE ? LG_EXIT_USAGE : LG_EXIT_FAILED;
}

const struct lg_command lg_cmd_query = {
	.name = "query",
	.args = "FILE... SQL [--json|--csv]",
	.summary = "SQL (SQLite) over every table of the trace and of its verdict",
	.help =
	"Tables: those of the trace (laggard-format(5)), and step, part, cause, finding, evidence,\n"
	"stage, input. Every table has id, the row's number, which the columns thr, prc, track, stack,\n"
	"frame ... of other tables hold. Only SELECT is allowed. Tables and columns: laggard-query(1).\n\n"
	"  --json     an array of objects\n"
	"  --csv      RFC 4180; control characters as \\n, \\r, \\t or \\xNN (of a JSON file's names, an import\n"
	"             makes spaces), text that begins with = + - @ behind a '\n"
	LG_MAX_MEMORY_HELP
	"\n"
	"example:\n"
	"  laggard query run.lag \"SELECT name, count(*), sum(dur)/1e6 AS ms FROM span\n"
	"                        GROUP BY name ORDER BY ms DESC LIMIT 10\"\n",
	.run = run,
};
