/* SPDX-License-Identifier: Apache-2.0 */
/*
 * query_tables.c - sqlite3_module over the columns of a trace (sqlite.org/vtab.html).
 *
 * Column 0 is always `id`, the row's number: ids in other tables' columns (thr, prc, stack ...)
 * are these numbers, so joins are on id and cost one step. Strings come as text. Time tables are
 * sorted by ts: a range of ts is a binary search.
 */
#include "cli/query_tables.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/out.h"

struct source;

/* A derived table: its columns as SQL, its length, one cell. */
struct derived {
	const char *name, *columns;
	size_t (*rows)(const struct lg_verdict *v);
	void (*cell)(const struct lg_verdict *v, size_t row, int col, sqlite3_context *to);
};

struct table {
	sqlite3_vtab base; /* first: sqlite owns these fields */
	const struct lg_verdict *v;
	const struct lg_table_desc *desc; /* of the trace, or NULL */
	const struct derived *derived;
	int ts_col;                       /* SQL column of ts; -1 = the table is not sorted by it */
};

struct cursor {
	sqlite3_vtab_cursor base;
	size_t row, end;
};

static void text(sqlite3_context *to, const char *s)
{
	if (s)
		sqlite3_result_text(to, s, -1, SQLITE_STATIC); /* the trace outlives the query */
	else
		sqlite3_result_null(to);
}

static void number(sqlite3_context *to, double v)
{
	if (isnan(v))
		sqlite3_result_null(to);
	else
		sqlite3_result_double(to, v);
}

/* ---- derived tables ---- */

static size_t step_rows(const struct lg_verdict *v)
{
	return v->n_steps;
}

static void device_cell(const struct lg_step_device *d, int col, sqlite3_context *to)
{
	if (!d)
		sqlite3_result_null(to);
	else if (col == 4)
		text(to, d->idle_cause);
	else
		number(to, (double)(col == 0 ? d->compute : col == 1 ? d->comm : col == 2 ? d->copy
				    : d->idle) / 1e6);
}

static void step_cell(const struct lg_verdict *v, size_t row, int col, sqlite3_context *to)
{
	const struct lg_step *s = &v->steps[row];

	switch (col) {
	case 0: sqlite3_result_int64(to, s->ts); break;
	case 1: sqlite3_result_int64(to, s->dur); break;
	case 2: sqlite3_result_int64(to, s->median); break;
	case 3: sqlite3_result_int64(to, s->number); break;
	case 4: sqlite3_result_int64(to, s->prc); break;
	case 5: sqlite3_result_int64(to, s->thr); break;
	case 6: sqlite3_result_int(to, s->rank); break;
	case 7: sqlite3_result_int(to, s->slow); break;
	case 8: sqlite3_result_int(to, s->warmup); break;
	default: device_cell(s->device, col - 9, to);
	}
}

static size_t part_rows(const struct lg_verdict *v)
{
	return v->n_parts;
}

static void part_cell(const struct lg_verdict *v, size_t row, int col, sqlite3_context *to)
{
	static const char *const kinds[] = { "running", "runnable", "blocked", "unexplained" };
	const struct lg_part *p = &v->parts[row];
	size_t lo = 0, hi = v->n_steps;

	switch (col) {
	case 0: sqlite3_result_int64(to, p->ts); break;
	case 1: sqlite3_result_int64(to, p->dur); break;
	case 2: text(to, kinds[p->kind & 3]); break;
	case 3: text(to, lg_stage_name(p->stage)); break;
	case 4: sqlite3_result_int64(to, p->cause); break;
	case 5: sqlite3_result_int64(to, p->by); break;
	case 6:
		if (p->state == UINT32_MAX)
			sqlite3_result_null(to);
		else
			sqlite3_result_int64(to, p->state);
		break;
	default: /* step: parts lie in the order of their steps */
		while (lo < hi) {
			size_t mid = (lo + hi) / 2;

			if (v->steps[mid].part_first <= row)
				lo = mid + 1;
			else
				hi = mid;
		}
		/* Steps without parts share their part_first with the next one. */
		while (lo && row >= (size_t)v->steps[lo - 1].part_first + v->steps[lo - 1].n_parts)
			lo--;
		sqlite3_result_int64(to, (sqlite3_int64)lo - 1);
	}
}

static size_t cause_rows(const struct lg_verdict *v)
{
	return v->n_causes;
}

static void cause_cell(const struct lg_verdict *v, size_t row, int col, sqlite3_context *to)
{
	static const char *const kinds[] = { "none", "lock", "cpu", "running", "io", "stopped", "other" };
	const struct lg_cause *c = &v->causes[row];

	switch (col) {
	case 0: text(to, c->kind < sizeof kinds / sizeof *kinds ? kinds[c->kind] : NULL); break;
	case 1: sqlite3_result_int64(to, c->thr); break;
	case 2: sqlite3_result_int64(to, c->prc); break;
	case 3: text(to, lg_string(v->trace, c->lock)); break;
	default: sqlite3_result_int64(to, c->lost);
	}
}

static size_t finding_rows(const struct lg_verdict *v)
{
	return v->n_findings;
}

static void known(sqlite3_context *to, int64_t id)
{
	if (id < 0)
		sqlite3_result_null(to);
	else
		sqlite3_result_int64(to, id);
}

static void finding_cell(const struct lg_verdict *v, size_t row, int col, sqlite3_context *to)
{
	const struct lg_finding *f = &v->findings[row];

	switch (col) {
	case 0: text(to, f->id); break;
	case 1: text(to, lg_severity_text(f->severity)); break;
	case 2: number(to, f->confidence); break;
	case 3: text(to, f->title); break;
	case 4: text(to, f->stage); break;
	case 5: text(to, f->detail); break;
	case 6: number(to, f->lost_ms); break;
	case 7: number(to, f->lost_share); break;
	case 8: number(to, f->excess_share); break;
	case 9: text(to, lg_relation_text(f->culprit.relation)); break;
	case 10: known(to, f->culprit.pid); break;
	case 11: known(to, f->culprit.tid); break;
	case 12: text(to, f->culprit.comm); break;
	case 13: text(to, f->culprit.cmdline); break;
	case 14: text(to, f->culprit.function); break;
	case 15: text(to, f->culprit.lock); break;
	case 16: known(to, f->culprit.rank); break;
	case 17: text(to, f->fix); break;
	default: text(to, f->tradeoff);
	}
}

static size_t evidence_rows(const struct lg_verdict *v)
{
	size_t n = 0;

	for (size_t i = 0; i < v->n_findings; i++)
		n += v->findings[i].n_evidence + v->findings[i].n_against;
	return n;
}

static void evidence_cell(const struct lg_verdict *v, size_t row, int col, sqlite3_context *to)
{
	const struct lg_evidence *e = NULL;
	bool against = false;
	size_t f = 0;

	for (; f < v->n_findings; f++) {
		const struct lg_finding *x = &v->findings[f];

		if (row < x->n_evidence + x->n_against) {
			against = row >= x->n_evidence;
			e = against ? &x->against[row - x->n_evidence] : &x->evidence[row];
			break;
		}
		row -= x->n_evidence + x->n_against;
	}
	if (!e)
		return;
	if (col == 0)
		sqlite3_result_int64(to, (sqlite3_int64)f);
	else if (col == 1)
		sqlite3_result_int(to, against);
	else if (col == 2)
		text(to, e->text);
	else if (e->ts == INT64_MIN)
		sqlite3_result_null(to);
	else
		sqlite3_result_int64(to, col == 3 ? e->ts : e->dur);
}

static size_t stage_rows(const struct lg_verdict *v)
{
	return v->n_stages;
}

static void stage_cell(const struct lg_verdict *v, size_t row, int col, sqlite3_context *to)
{
	const struct lg_stage_sum *s = &v->stages[row];

	switch (col) {
	case 0: text(to, s->stage); break;
	case 1: number(to, s->median_ms); break;
	case 2: number(to, s->share); break;
	default: number(to, s->slow_excess_ms);
	}
}

static size_t input_rows(const struct lg_verdict *v)
{
	return v->n_inputs;
}

static void input_cell(const struct lg_verdict *v, size_t row, int col, sqlite3_context *to)
{
	const struct lg_input *in = &v->inputs[row];

	switch (col) {
	case 0: text(to, in->path); break;
	case 1: text(to, in->format); break;
	case 2: text(to, in->host); break;
	case 3: number(to, in->duration_s); break;
	default: sqlite3_result_int64(to, (sqlite3_int64)in->lost_events);
	}
}

static size_t gil_rows(const struct lg_verdict *v)
{
	return v->n_gil;
}

static void gil_cell(const struct lg_verdict *v, size_t row, int col, sqlite3_context *to)
{
	const struct lg_gil_row *r = &v->gil[row];
	const struct lg_frame_tab *f = &v->trace->frame;

	switch (col) {
	case 0: sqlite3_result_int64(to, r->thr); break;
	case 1: text(to, lg_gil_did_text(r->did)); break;
	case 2: known(to, r->by ? (int64_t)r->by : -1); break;
	case 3: text(to, r->python ? lg_string(v->trace, f->name[r->python]) : NULL); break;
	case 4: text(to, r->python ? lg_string(v->trace, f->file[r->python]) : NULL); break;
	case 5: known(to, r->python ? (int64_t)f->line[r->python] : -1); break;
	case 6: text(to, r->native ? lg_string(v->trace, r->native) : NULL); break;
	case 7: sqlite3_result_int64(to, (sqlite3_int64)r->times); break;
	case 8: sqlite3_result_int64(to, r->ns); break;
	case 9: sqlite3_result_int64(to, r->longest); break;
	case 10: sqlite3_result_int64(to, r->refused); break;
	default: sqlite3_result_int64(to, r->error);
	}
}

static const struct derived derived_tables[] = {
	{ "step", "ts, dur, median, number, prc, thr, rank, slow, warmup, compute_ms, comm_exposed_ms, "
		  "copy_exposed_ms, idle_ms, idle_cause", step_rows, step_cell },
	{ "part", "ts, dur, kind, stage, cause, by, state, step", part_rows, part_cell },
	{ "cause", "kind, thr, prc, lock, lost", cause_rows, cause_cell },
	{ "finding", "rule, severity, confidence, title, stage, detail, lost_ms, lost_share, excess_share, "
		     "relation, pid, tid, comm, cmdline, function, lock, rank, fix, tradeoff",
	  finding_rows, finding_cell },
	{ "evidence", "finding, against, text, ts, dur", evidence_rows, evidence_cell },
	{ "stage", "stage, median_ms, share, slow_excess_ms", stage_rows, stage_cell },
	{ "gil", "thr, did, by, function, file, line, native, times, ns, longest, refused, error", gil_rows, gil_cell },
	{ "input", "path, format, host, duration_s, lost_events", input_rows, input_cell },
};

/* ---- the module ---- */

static const struct lg_tab *tab_of(const struct table *t)
{
	return lg_trace_table_const(t->v->trace, t->desc);
}

static size_t rows_of(const struct table *t)
{
	return t->desc ? tab_of(t)->n : t->derived->rows(t->v);
}

static int connect(sqlite3 *db, void *aux, int argc, const char *const *argv, sqlite3_vtab **ret,
		   char **ret_err)
{
	const struct lg_verdict *v = aux;
	struct table *t;
	struct lg_out *sql;
	char *decl;
	int rc;

	(void)argc;
	(void)ret_err;
	t = sqlite3_malloc64(sizeof *t);
	if (!t || lg_out_memory(&sql, NULL)) {
		sqlite3_free(t);
		return SQLITE_NOMEM;
	}
	*t = (struct table){ .v = v, .ts_col = -1 };
	lg_out_puts(sql, "CREATE TABLE x(id INTEGER");
	for (size_t i = 0; i < sizeof derived_tables / sizeof *derived_tables; i++)
		if (!strcmp(argv[2], derived_tables[i].name)) {
			t->derived = &derived_tables[i];
			lg_out_printf(sql, ", %s", t->derived->columns);
		}
	if (!t->derived) {
		size_t n;
		const struct lg_table_desc *d = lg_schema(&n);

		for (size_t i = 0; i < n; i++)
			if (!strcmp(argv[2], d[i].name))
				t->desc = &d[i];
		for (size_t i = 0; t->desc && i < t->desc->n_cols; i++) {
			const struct lg_col_desc *c = &t->desc->cols[i];

			/* "id" is the row: the flow's and diag's own become xid. "index" and "group"
			 * are words of SQL. */
			lg_out_printf(sql, ", \"%s%s\"", strcmp(c->name, "id") ? "" : "x", c->name);
			if (!t->desc->is_dict && !strcmp(c->name, "ts"))
				t->ts_col = (int)i + 1;
		}
	}
	lg_out_puts(sql, ")");
	decl = lg_out_take(sql, &(size_t){ 0 });
	lg_out_abort(sql);
	rc = decl ? sqlite3_declare_vtab(db, decl) : SQLITE_NOMEM;
	lg_free(decl);
	if (rc)
		sqlite3_free(t);
	else
		*ret = &t->base;
	return rc;
}

static int disconnect(sqlite3_vtab *base)
{
	sqlite3_free(base);
	return SQLITE_OK;
}

enum { BY_ID = 1, FROM_TS = 2, TO_TS = 4 };

static int best_index(sqlite3_vtab *base, sqlite3_index_info *info)
{
	struct table *t = (struct table *)base;
	double n = (double)rows_of(t) + 1;
	int from = -1, to = -1, id = -1, argv = 1;

	for (int i = 0; i < info->nConstraint; i++) {
		const struct sqlite3_index_constraint *c = &info->aConstraint[i];

		if (!c->usable)
			continue;
		if (c->iColumn <= 0 && c->op == SQLITE_INDEX_CONSTRAINT_EQ)
			id = i; /* 0: the id column; -1: the rowid, which is the same */
		if (t->ts_col < 0 || c->iColumn != t->ts_col)
			continue;
		if (c->op == SQLITE_INDEX_CONSTRAINT_GE || c->op == SQLITE_INDEX_CONSTRAINT_GT)
			from = i;
		if (c->op == SQLITE_INDEX_CONSTRAINT_LE || c->op == SQLITE_INDEX_CONSTRAINT_LT)
			to = i;
	}
	info->idxNum = 0;
	info->estimatedCost = n;
	info->estimatedRows = (sqlite3_int64)n;
	if (id >= 0) {
		info->idxNum = BY_ID;
		info->aConstraintUsage[id].argvIndex = 1;
		info->estimatedCost = 1;
		info->estimatedRows = 1;
		return SQLITE_OK;
	}
	/* SQLite checks the conditions again: the window need not be tight. */
	if (from >= 0) {
		info->idxNum |= FROM_TS;
		info->aConstraintUsage[from].argvIndex = argv++;
		info->estimatedCost /= 4;
	}
	if (to >= 0) {
		info->idxNum |= TO_TS;
		info->aConstraintUsage[to].argvIndex = argv++;
		info->estimatedCost /= 4;
	}
	if (info->nOrderBy == 1 && info->aOrderBy[0].iColumn == t->ts_col && t->ts_col > 0 &&
	    !info->aOrderBy[0].desc)
		info->orderByConsumed = 1;
	return SQLITE_OK;
}

static int open_cursor(sqlite3_vtab *base, sqlite3_vtab_cursor **ret)
{
	struct cursor *c = sqlite3_malloc64(sizeof *c);

	(void)base;
	if (!c)
		return SQLITE_NOMEM;
	*c = (struct cursor){ 0 };
	*ret = &c->base;
	return SQLITE_OK;
}

static int close_cursor(sqlite3_vtab_cursor *base)
{
	sqlite3_free(base);
	return SQLITE_OK;
}

/* First row with ts >= limit (after: > limit). */
static size_t at_ts(const struct table *t, double limit, bool after)
{
	const int64_t *ts = tab_of(t)->col[t->ts_col - 1];
	size_t lo = 0, hi = tab_of(t)->n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (after ? (double)ts[mid] <= limit : (double)ts[mid] < limit)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static int filter(sqlite3_vtab_cursor *base, int idx, const char *name, int argc, sqlite3_value **argv)
{
	struct cursor *c = (struct cursor *)base;
	const struct table *t = (const struct table *)c->base.pVtab;
	size_t n = rows_of(t);
	int a = 0;

	(void)name;
	(void)argc;
	c->row = 0;
	c->end = n;
	if (idx == BY_ID) {
		int type = sqlite3_value_numeric_type(argv[0]);
		sqlite3_int64 id = sqlite3_value_int64(argv[0]);

		/* 1.5 and "x" equal no id; SQLite tests again what is given to it. */
		if ((type != SQLITE_INTEGER && type != SQLITE_FLOAT) || id < 0 || (uint64_t)id >= n) {
			c->end = 0;
		} else {
			c->row = (size_t)id;
			c->end = c->row + 1;
		}
		return SQLITE_OK;
	}
	/* Only numbers: text or NULL compares by SQLite's own rules, over all rows. */
	if (idx & FROM_TS) {
		if (sqlite3_value_numeric_type(argv[a]) == SQLITE_INTEGER ||
		    sqlite3_value_numeric_type(argv[a]) == SQLITE_FLOAT)
			c->row = at_ts(t, sqlite3_value_double(argv[a]), false);
		a++;
	}
	if ((idx & TO_TS) && (sqlite3_value_numeric_type(argv[a]) == SQLITE_INTEGER ||
			      sqlite3_value_numeric_type(argv[a]) == SQLITE_FLOAT))
		c->end = at_ts(t, sqlite3_value_double(argv[a]), true);
	return SQLITE_OK;
}

static int next(sqlite3_vtab_cursor *base)
{
	((struct cursor *)base)->row++;
	return SQLITE_OK;
}

static int eof(sqlite3_vtab_cursor *base)
{
	const struct cursor *c = (const struct cursor *)base;

	return c->row >= c->end;
}

static int column(sqlite3_vtab_cursor *base, sqlite3_context *to, int col)
{
	const struct cursor *c = (const struct cursor *)base;
	const struct table *t = (const struct table *)c->base.pVtab;
	const struct lg_trace *trace = t->v->trace;
	const void *v;

	if (col == 0) {
		sqlite3_result_int64(to, (sqlite3_int64)c->row);
		return SQLITE_OK;
	}
	if (!t->desc) {
		t->derived->cell(t->v, c->row, col - 1, to);
		return SQLITE_OK;
	}
	v = tab_of(t)->col[col - 1];
	switch (t->desc->cols[col - 1].type) {
	case LG_COL_I64: sqlite3_result_int64(to, ((const int64_t *)v)[c->row]); break;
	/* Addresses: SQLite's integers are signed; the bits are kept. */
	case LG_COL_U64: sqlite3_result_int64(to, (sqlite3_int64)((const uint64_t *)v)[c->row]); break;
	case LG_COL_F64: number(to, ((const double *)v)[c->row]); break;
	case LG_COL_I32: sqlite3_result_int(to, ((const int32_t *)v)[c->row]); break;
	case LG_COL_U8: sqlite3_result_int(to, ((const uint8_t *)v)[c->row]); break;
	case LG_COL_STR: text(to, lg_string(trace, ((const lg_str *)v)[c->row])); break;
	default: sqlite3_result_int64(to, ((const uint32_t *)v)[c->row]);
	}
	return SQLITE_OK;
}

static int rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *ret)
{
	*ret = (sqlite3_int64)((const struct cursor *)base)->row;
	return SQLITE_OK;
}

static sqlite3_module module = {
	.iVersion = 1, .xCreate = connect, .xConnect = connect, .xBestIndex = best_index,
	.xDisconnect = disconnect, .xDestroy = disconnect, .xOpen = open_cursor,
	.xClose = close_cursor, .xFilter = filter, .xNext = next, .xEof = eof, .xColumn = column,
	.xRowid = rowid,
};

/* A query reads; nothing else. Reading is all that a pasted statement may do to this machine. */
static int allow(void *aux, int action, const char *a, const char *b, const char *db, const char *trigger)
{
	(void)aux;
	(void)a;
	(void)db;
	(void)trigger;
	/* SQLite refuses it by itself, but only when it runs. */
	if (action == SQLITE_FUNCTION && b && !sqlite3_stricmp(b, "load_extension"))
		return SQLITE_DENY;
	return action == SQLITE_SELECT || action == SQLITE_READ || action == SQLITE_FUNCTION ||
	       action == SQLITE_RECURSIVE ? SQLITE_OK : SQLITE_DENY;
}

static int make(sqlite3 *db, const struct lg_verdict *v, const char *name)
{
	char *sql;
	int rc = sqlite3_create_module(db, name, &module, (void *)(uintptr_t)v);

	/* The module is named like its table: connect() is told that name. */
	sql = sqlite3_mprintf("CREATE VIRTUAL TABLE temp.\"%w\" USING \"%w\"", name, name);
	if (!sql)
		return SQLITE_NOMEM;
	if (!rc)
		rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
	sqlite3_free(sql);
	return rc;
}

int lg_query_open(sqlite3 **ret, const struct lg_verdict *v, struct lg_error *err)
{
	size_t n;
	const struct lg_table_desc *d = lg_schema(&n);
	sqlite3 *db = NULL;
	int rc = sqlite3_open_v2(":memory:", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL);

	for (size_t i = 0; !rc && i < n; i++)
		rc = make(db, v, d[i].name);
	for (size_t i = 0; !rc && i < sizeof derived_tables / sizeof *derived_tables; i++)
		rc = make(db, v, derived_tables[i].name);
	if (!rc)
		rc = sqlite3_set_authorizer(db, allow, NULL);
	if (rc) {
		lg_fail(err, rc == SQLITE_NOMEM ? LG_E_NOMEM : LG_E_UNSUPPORTED, LG_NO_OFFSET, "SQLite: %s",
			db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
		sqlite3_close(db);
		return err ? err->code : LG_E_UNSUPPORTED;
	}
	*ret = db;
	return 0;
}
