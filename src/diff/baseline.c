/* SPDX-License-Identifier: Apache-2.0 */
/*
 * baseline.c - a side as a text file that can be kept beside the code it speaks of.
 *
 * First line "laggard-baseline<TAB>1"; then a record a line, its fields separated by tabs, the
 * first of them its kind; last line "end<TAB>HASH", the XXH3 of everything before that line. In
 * fields, backslash escapes tab, newline and itself. Unknown kinds of record are skipped, so that
 * an older laggard reads a newer file. Numbers are decimal, "-" = not known.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/out.h"
#include "diff/side.h"
#include "diff/diff.h"

enum {
	STEPS_KEPT = 2000,  /* the last ones: enough for the bootstrap, 150 kB */
	ITEMS_KEPT = 4000,
	FIELDS_MAX = 24, LINE_MAX_BYTES = 16384, ROWS_MAX = 1 << 20
};
static const char magic[] = "laggard-baseline\t1\n";

bool lg_baseline_sniff(const void *head, size_t n)
{
	return n >= sizeof magic - 1 && !memcmp(head, magic, sizeof magic - 1);
}

/* ---- writing ---- */

static void text(struct lg_out *o, const char *s)
{
	lg_out_write(o, "\t", 1);
	for (; s && *s; s++) {
		const char *e = *s == '\t' ? "\\t" : *s == '\n' ? "\\n" : *s == '\\' ? "\\\\" : NULL;

		if (e)
			lg_out_write(o, e, 2);
		else
			lg_out_write(o, s, 1);
	}
}

static void num(struct lg_out *o, double v)
{
	if (isfinite(v))
		lg_out_printf(o, "\t%.7g", v);
	else
		lg_out_puts(o, "\t-");
}

uint64_t lg_side_run_id(const struct lg_side *s)
{
	size_t from = s->s.n > STEPS_KEPT ? s->s.n - STEPS_KEPT : 0;
	XXH64_hash_t h = 0;
	char one[32];

	/* The digits that are written, not the bits: those are gone in what was read back. */
	for (size_t i = from; i < s->s.n; i++) {
		int n = snprintf(one, sizeof one, "%.7g\n", s->s.step[i]);

		h = XXH3_64bits_withSeed(one, n > 0 ? (size_t)n : 0, h);
	}
	return h ? h : 1;
}

static void write_rows(const struct lg_side *s, struct lg_out *o)
{
	for (size_t i = 0; i < s->n_facts; i++) {
		lg_out_puts(o, "fact");
		text(o, s->facts[i].key);
		text(o, s->facts[i].value);
		lg_out_puts(o, "\n");
	}
	for (size_t i = 0; i < s->n_items && i < ITEMS_KEPT; i++) {
		const struct lg_item *x = &s->items[i];

		lg_out_puts(o, "item");
		text(o, lg_item_kind_names[x->kind]);
		text(o, x->name);
		text(o, x->shape);
		num(o, x->ms);
		num(o, x->var);
		num(o, x->count);
		lg_out_puts(o, "\n");
	}
	for (size_t i = 0; i < s->n_processes; i++) {
		const struct lg_side_process *p = &s->processes[i];

		if (p->cpu < 0.001 && !p->own)
			continue;
		lg_out_puts(o, "process");
		text(o, p->key);
		text(o, p->comm);
		num(o, p->cpu);
		num(o, p->own);
		lg_out_puts(o, "\n");
	}
	for (size_t i = 0; i < s->n_holders; i++) {
		const struct lg_side_holder *h = &s->holders[i];

		lg_out_puts(o, "holder");
		text(o, h->key);
		text(o, h->comm);
		text(o, h->lock);
		num(o, h->n);
		num(o, h->ms);
		num(o, h->period_s);
		lg_out_puts(o, "\n");
	}
	for (size_t i = 0; i < s->n_findings; i++) {
		lg_out_puts(o, "finding");
		text(o, s->findings[i].id);
		text(o, s->findings[i].key);
		text(o, s->findings[i].severity);
		num(o, s->findings[i].ms);
		num(o, s->findings[i].half);
		lg_out_puts(o, "\n");
	}
}

static void write_all(const struct lg_side *s, struct lg_out *o)
{
	size_t from = s->s.n > STEPS_KEPT ? s->s.n - STEPS_KEPT : 0;

	lg_out_puts(o, magic);
	lg_out_puts(o, "laggard\t" LG_VERSION "\n");
	for (size_t i = 0; i < s->n_inputs; i++) {
		lg_out_puts(o, "input");
		text(o, s->inputs[i].path);
		text(o, s->inputs[i].format);
		text(o, s->inputs[i].host);
		num(o, s->inputs[i].duration_s);
		lg_out_puts(o, "\n");
	}
	lg_out_printf(o, "run\t%d\t%d\t%zu", s->ref_rank, s->has_states, s->n_ranks);
	num(o, s->wall_ms);
	num(o, s->stolen_ms);
	lg_out_puts(o, "\ncompile");
	num(o, s->compile.asked);
	num(o, s->compile.frames);
	num(o, s->compile.regions);
	text(o, s->compile.mode);
	lg_out_puts(o, "\n");
	for (size_t i = 0; i < s->n_runs; i++) {
		lg_out_puts(o, "history");
		num(o, s->run_mean[i]);
		num(o, s->run_median[i]);
		lg_out_printf(o, "\t%016llx\n", (unsigned long long)s->run_id[i]);
	}
	write_rows(s, o);
	for (size_t i = from; i < s->s.n; i++) {
		lg_out_puts(o, "step");
		num(o, s->s.step[i]);
		for (int g = 1; g < LG_STAGE_MAX; g++)
			num(o, s->s.clean[g][i]);
		lg_out_puts(o, "\n");
	}
}

void lg_baseline_write(const struct lg_side *s, struct lg_out *o)
{
	struct lg_out *m;
	size_t n = 0;
	char *bytes;

	/* Into memory first: the last line holds the hash of what stands before it. */
	if (lg_out_memory(&m, NULL))
		return;
	write_all(s, m);
	bytes = lg_out_take(m, &n);
	lg_out_abort(m);
	if (!bytes)
		return;
	lg_out_write(o, bytes, n);
	lg_out_printf(o, "end\t%016llx\n", (unsigned long long)XXH3_64bits(bytes, n));
	lg_free(bytes);
}

/* ---- reading ---- */

struct reader {
	struct lg_side *s;
	size_t cap_items, cap_facts, cap_processes, cap_holders, cap_findings, cap_inputs, cap_steps;
	char *field[FIELDS_MAX];
	size_t n_fields;
	bool failed;
};

static double num_of(const struct reader *r, size_t i)
{
	char *end;
	double v;

	if (i >= r->n_fields)
		return (double)NAN;
	v = strtod(r->field[i], &end);
	return end == r->field[i] || *end || !isfinite(v) ? (double)NAN : v;
}

static double or_0(double v)
{
	return isnan(v) ? 0 : v;
}

static const char *text_of(struct reader *r, size_t i)
{
	return i < r->n_fields ? lg_arena_strdup(&r->s->arena, r->field[i]) : "";
}

/* Split in place and undo the escapes. */
static void split(struct reader *r, char *line)
{
	char *to = line, *from = line;

	r->n_fields = 0;
	r->field[r->n_fields++] = line;
	for (; *from; from++) {
		if (*from == '\t') {
			*to++ = 0;
			if (r->n_fields == FIELDS_MAX)
				return;
			r->field[r->n_fields++] = to;
		} else if (*from == '\\' && from[1]) {
			from++;
			*to++ = *from == 't' ? '\t' : *from == 'n' ? '\n' : *from;
		} else {
			*to++ = *from;
		}
	}
	*to = 0;
}

/* Arrays grow in heap memory and move to the arena at the end. */
#define PUSH(r, array, n, cap)                                                                     \
	((r)->failed || (n) >= ROWS_MAX || lg_grow(&(array), &(cap), (n) + 1, sizeof *(array))     \
		 ? ((r)->failed = true, NULL) : &(array)[(n)++])

static void read_item(struct reader *r)
{
	struct lg_side *s = r->s;
	struct lg_item *x;
	uint8_t kind = 0;

	while (kind < LG_ITEM_MAX && (r->n_fields < 2 || strcmp(r->field[1], lg_item_kind_names[kind])))
		kind++;
	if (kind == LG_ITEM_MAX)
		return; /* of a newer laggard */
	x = PUSH(r, s->items, s->n_items, r->cap_items);
	if (x)
		*x = (struct lg_item){ .kind = kind, .name = text_of(r, 2), .shape = text_of(r, 3),
				       .ms = or_0(num_of(r, 4)), .var = or_0(num_of(r, 5)),
				       .count = or_0(num_of(r, 6)) };
}

static void read_step(struct reader *r)
{
	struct lg_side *s = r->s;
	double *row;

	if (s->s.n >= ROWS_MAX ||
	    lg_grow(&s->s.step, &r->cap_steps, (s->s.n + 1) * LG_STAGE_MAX, sizeof(double))) {
		r->failed = true;
		return;
	}
	/* A row of numbers, [0] = the step; made into columns at the end. */
	row = s->s.step + s->s.n++ * LG_STAGE_MAX;
	row[0] = fmax(0, or_0(num_of(r, 1)));
	for (size_t g = 1; g < LG_STAGE_MAX; g++)
		row[g] = fmax(0, or_0(num_of(r, g + 1)));
}

static void read_line(struct reader *r, char *line)
{
	struct lg_side *s = r->s;
	const char *kind = line;

	split(r, line);
	if (!strcmp(kind, "step")) {
		read_step(r);
	} else if (!strcmp(kind, "item")) {
		read_item(r);
	} else if (!strcmp(kind, "fact")) {
		struct lg_side_fact *x = PUSH(r, s->facts, s->n_facts, r->cap_facts);

		if (x)
			*x = (struct lg_side_fact){ text_of(r, 1), text_of(r, 2) };
	} else if (!strcmp(kind, "process")) {
		struct lg_side_process *x = PUSH(r, s->processes, s->n_processes, r->cap_processes);

		if (x)
			*x = (struct lg_side_process){ .key = text_of(r, 1), .comm = text_of(r, 2),
						       .cmdline = text_of(r, 1), .pid = -1,
						       .cpu = or_0(num_of(r, 3)), .own = num_of(r, 4) > 0 };
	} else if (!strcmp(kind, "holder")) {
		struct lg_side_holder *x = PUSH(r, s->holders, s->n_holders, r->cap_holders);

		if (x)
			*x = (struct lg_side_holder){ .key = text_of(r, 1), .comm = text_of(r, 2),
						      .lock = text_of(r, 3), .pid = -1,
						      .n = or_0(num_of(r, 4)), .ms = or_0(num_of(r, 5)),
						      .period_s = num_of(r, 6) };
	} else if (!strcmp(kind, "finding")) {
		struct lg_side_finding *x = PUSH(r, s->findings, s->n_findings, r->cap_findings);

		if (x)
			*x = (struct lg_side_finding){ text_of(r, 1), text_of(r, 2), text_of(r, 3),
						       num_of(r, 4), num_of(r, 5), UINT32_MAX };
	} else if (!strcmp(kind, "input")) {
		struct lg_input *x = PUSH(r, s->inputs, s->n_inputs, r->cap_inputs);

		if (x)
			*x = (struct lg_input){ .path = text_of(r, 1), .format = text_of(r, 2),
						.host = text_of(r, 3), .duration_s = or_0(num_of(r, 4)) };
	} else if (!strcmp(kind, "run")) {
		s->ref_rank = (int32_t)fmin(fmax(or_0(num_of(r, 1)), -1), 1 << 30);
		s->has_states = num_of(r, 2) > 0;
		s->n_ranks = (size_t)fmin(fmax(or_0(num_of(r, 3)), 0), 1 << 30);
		s->wall_ms = or_0(num_of(r, 4));
		s->stolen_ms = num_of(r, 5);
	} else if (!strcmp(kind, "compile")) {
		s->compile.asked = num_of(r, 1) > 0;
		s->compile.frames = num_of(r, 2);
		s->compile.regions = num_of(r, 3);
		s->compile.mode = text_of(r, 4);
	} else if (!strcmp(kind, "history") && s->n_runs < LG_SIDE_RUNS_MAX && num_of(r, 1) > 0 &&
		   num_of(r, 2) > 0) {
		s->run_id[s->n_runs] = r->n_fields > 3 ? strtoull(r->field[3], NULL, 16) : 0;
		s->run_mean[s->n_runs] = num_of(r, 1);
		s->run_median[s->n_runs++] = num_of(r, 2);
	}
}

/* Heap array -> arena, so that the side has one owner. */
static void *adopt(struct lg_side *s, void *heap, size_t n, size_t size)
{
	void *p = lg_arena_alloc(&s->arena, n + 1, size);

	if (p && n)
		memcpy(p, heap, n * size);
	lg_free(heap);
	return p;
}

static void columns(struct lg_side *s)
{
	double *rows = s->s.step;

	s->s.step = lg_arena_alloc(&s->arena, s->s.n + 1, sizeof(double));
	for (int g = 0; g < LG_STAGE_MAX; g++)
		s->s.clean[g] = lg_arena_alloc(&s->arena, s->s.n + 1, sizeof(double));
	for (size_t i = 0; !s->arena.failed && i < s->s.n; i++) {
		s->s.step[i] = rows[i * LG_STAGE_MAX];
		for (size_t g = 1; g < LG_STAGE_MAX; g++) {
			s->s.clean[g][i] = rows[i * LG_STAGE_MAX + g];
			s->s.clean[0][i] += s->s.clean[g][i];
		}
	}
	lg_free(rows);
}

/* The tables are searched by order: do not trust the file for it. */
static int cmp_item(const void *a, const void *b)
{
	const struct lg_item *x = a, *y = b;
	int c = x->kind - y->kind;

	if (!c)
		c = strcmp(x->name, y->name);
	return c ? c : strcmp(x->shape, y->shape);
}

static int cmp_fact(const void *a, const void *b)
{
	return strcmp(((const struct lg_side_fact *)a)->key, ((const struct lg_side_fact *)b)->key);
}

static int finish(struct reader *r)
{
	struct lg_side *s = r->s;

	s->items = adopt(s, s->items, s->n_items, sizeof *s->items);
	s->facts = adopt(s, s->facts, s->n_facts, sizeof *s->facts);
	s->processes = adopt(s, s->processes, s->n_processes, sizeof *s->processes);
	s->holders = adopt(s, s->holders, s->n_holders, sizeof *s->holders);
	s->findings = adopt(s, s->findings, s->n_findings, sizeof *s->findings);
	s->inputs = adopt(s, s->inputs, s->n_inputs, sizeof *s->inputs);
	columns(s);
	if (s->arena.failed)
		return LG_E_NOMEM;
	qsort(s->items, s->n_items, sizeof *s->items, cmp_item);
	qsort(s->facts, s->n_facts, sizeof *s->facts, cmp_fact);
	return 0;
}

int lg_baseline_read(const char *bytes, size_t n, const char *path, struct lg_side **ret,
		     struct lg_error *err)
{
	struct reader r = { 0 };
	const char *end = bytes + n, *p = bytes;
	unsigned long long line_no = 0;
	bool whole = false;
	int rc = 0;
	char *line;

	if (!lg_baseline_sniff(bytes, n))
		return lg_fail(err, LG_E_FORMAT, 0, "%s: not a laggard baseline", path);
	r.s = lg_calloc(1, sizeof *r.s);
	line = lg_calloc(LINE_MAX_BYTES, 1);
	if (!r.s || !line) {
		lg_free(r.s);
		lg_free(line);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	r.s->stored = true;
	r.s->ref_rank = r.s->ref_pid = -1;
	r.s->stolen_ms = NAN;
	r.s->compile = (struct lg_side_compile){ .frames = NAN, .regions = NAN, .mode = "" };
	while (!rc && !whole && p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		size_t len = (size_t)((nl ? nl : end) - p);

		line_no++;
		if (!nl)
			break; /* cut off */
		if (len >= LINE_MAX_BYTES || memchr(p, 0, len)) {
			rc = lg_fail(err, LG_E_FORMAT, (uint64_t)(p - bytes), "%s: line %llu is no line of a "
				     "baseline", path, line_no);
			break;
		}
		memcpy(line, p, len);
		line[len] = 0;
		if (!strncmp(line, "end\t", 4)) {
			unsigned long long hash = XXH3_64bits(bytes, (size_t)(p - bytes));
			char want[24];

			snprintf(want, sizeof want, "%016llx", hash);
			whole = true;
			if (strcmp(want, line + 4))
				rc = lg_fail(err, LG_E_FORMAT, (uint64_t)(p - bytes), "%s: the checksum does not "
					     "match: the file was changed or damaged", path);
		} else {
			read_line(&r, line);
		}
		p = nl + 1;
		if (r.failed)
			rc = lg_fail(err, LG_E_LIMIT, (uint64_t)(p - bytes), "%s: out of memory, or too many rows", path);
	}
	if (!rc && !whole)
		rc = lg_fail(err, LG_E_FORMAT, n, "%s: the file ends before its last line", path);
	if (finish(&r) && !rc)
		rc = lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	lg_free(line);
	if (rc)
		lg_side_free(r.s);
	else
		*ret = r.s;
	return rc;
}
