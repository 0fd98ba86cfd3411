/* SPDX-License-Identifier: Apache-2.0 */
#include "store/redact.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/order.h"
#include "store/builder.h"
#include "store/lag_read.h"
#include "store/lag_write.h"

/* What a column's strings are; TEXT where nothing is said. */
enum what { TEXT, PATH, ARGS, COMM, NAME, PAIRS, VALUE, N_WHAT };

static const struct {
	uint32_t table;
	const char *column;
	enum what what;
} columns[] = {
	{ LG_TABLE_process, "cmdline", ARGS }, { LG_TABLE_process, "container", NAME },
	{ LG_TABLE_process, "host", NAME },    { LG_TABLE_frame, "dso", PATH },
	{ LG_TABLE_frame, "file", PATH },      { LG_TABLE_meta, "value", VALUE },
	{ LG_TABLE_process, "comm", COMM },    { LG_TABLE_span, "args", PAIRS },
};

/* Facts by the start of their key; other facts are TEXT. */
static const struct {
	const char *key;
	enum what what;
} facts[] = {
	{ "env.", NAME }, { "host.name", NAME }, { "record.boot_id", NAME }, { "record.cmdline", ARGS },
	{ "python.executable", PATH },
};

/* Folders that a distribution or the kernel fills: they say nothing of who recorded. */
static const char *const public_folders[] = {
	"/usr/lib/", "/usr/lib64/", "/usr/lib32/", "/usr/bin/", "/usr/sbin/", "/usr/libexec/",
	"/usr/local/lib/", "/usr/local/cuda/", "/usr/local/cuda-", "/lib/", "/lib64/", "/lib32/", "/bin/",
	"/sbin/", "/proc/", "/sys/",
};

/* What analyses read of span.args: of others nobody knows what they say, but for numbers. */
static const char *const known_args[] = {
	"coll", "dims", "dtype", "types", "in", "net", "hca", "p2p", "kind", "module",
};

struct redaction {
	struct lg_trace *t;
	struct lg_builder *pool; /* of the new strings */
	uint32_t *done[N_WHAT];  /* old id -> new id + 1 */
	unsigned names;          /* that were replaced by a number */
	char *buf;
	size_t n, cap;
	int failed;
};

static void put(struct redaction *r, const char *s, size_t n)
{
	if (!r->failed && lg_grow(&r->buf, &r->cap, r->n + n + 1, 1))
		r->failed = LG_E_NOMEM;
	if (r->failed)
		return;
	memcpy(r->buf + r->n, s, n);
	r->n += n;
}

static void put_text(struct redaction *r, const char *s)
{
	put(r, s, strlen(s));
}

static const char *last_of(const char *s, size_t n, const char *part)
{
	size_t k = strlen(part);

	for (size_t i = n; i >= k; i--)
		if (!memcmp(s + i - k, part, k))
			return s + i - k;
	return NULL;
}

static void put_path(struct redaction *r, const char *s, size_t n)
{
	const char *from = NULL;

	for (size_t i = 0; i < LG_COUNT(public_folders); i++) {
		size_t k = strlen(public_folders[i]);

		if (n > k && !memcmp(s, public_folders[i], k) && !memmem(s, n, "/../", 4)) {
			put(r, s, n);
			return;
		}
	}
	from = last_of(s, n, "/site-packages/") ?: last_of(s, n, "/dist-packages/") ?: memrchr(s, '/', n);
	if (!from) {
		put(r, s, n);
		return;
	}
	put_text(r, "...");
	put(r, from, (size_t)(s + n - from));
}

static bool ends_path(char c)
{
	return !c || isspace((unsigned char)c) || strchr("\"'`<>()[]{},;|&=", c);
}

/* Absolute paths and addresses of the web, wherever they stand in a sentence. */
static void put_sentence(struct redaction *r, const char *s)
{
	for (const char *p = s; *p;) {
		const char *end = p;

		/* Also behind ~ and -I. */
		bool begins = p == s || ends_path(p[-1]) || p[-1] == ':' || p[-1] == '~' ||
			      (p - s > 1 && p[-2] == '-');

		if (*p == '/' && begins && !ends_path(p[1]) && p[1] != '/') {
			while (!ends_path(*end) && *end != ':')
				end++;
			put_path(r, p, (size_t)(end - p));
		} else if (!strncmp(p, "://", 3)) {
			while (!ends_path(*end))
				end++;
			put_text(r, "://[redacted]");
		} else {
			put(r, p, 1);
			end++;
		}
		p = end;
	}
}

static bool ends_in(const char *s, size_t n, const char *end)
{
	size_t k = strlen(end);

	return n > k && !memcmp(s + n - k, end, k);
}

static size_t word(const char *s)
{
	return strcspn(s, " ");
}

/* The program, its module or script: "python3 -u /x/train.py --token=y" -> "python3 train.py [redacted]". */
static void put_args(struct redaction *r, const char *s)
{
	static const char *const scripts[] = { ".py", ".sh", ".pl", ".rb", ".js", ".jar" };
	size_t n = word(s);
	bool left_out = false;

	put_path(r, s, n);
	for (const char *p = s + n; *p; p += n) {
		bool script = false;

		p += strspn(p, " ");
		n = word(p);
		if (!n)
			break;
		for (size_t i = 0; i < LG_COUNT(scripts); i++)
			script |= ends_in(p, n, scripts[i]);
		if (*p == '-' && !(n == 2 && (p[1] == 'm' || p[1] == 'c'))) {
			left_out = true;
			continue;
		}
		if (n == 2 && p[1] == 'm' && p[2] == ' ') {
			put_text(r, " ");
			n = 3 + word(p + 3);
			put(r, p, n);
		} else if (script) {
			put_text(r, " ");
			put_path(r, p, n);
		} else {
			left_out = true;
		}
		left_out |= p[n] != 0;
		break;
	}
	if (left_out)
		put_text(r, " [redacted]");
}

/* 8, 0.5, 0,1,2, 0-3, 1:8; not 10.0.0.1. */
static bool is_numbers(const char *s)
{
	unsigned dots = 0;

	for (; *s; s++) {
		dots = *s == '.' ? dots + 1 : isdigit((unsigned char)*s) ? dots : 0;
		if (dots > 1 || !strchr("0123456789.,:-+", *s))
			return false;
	}
	return true;
}

static void put_name(struct redaction *r, const char *s)
{
	static const char *const plain[] = { "true", "false", "yes", "no", "on", "off", "none", "auto", "INFO", "WARN" };
	char name[32];

	for (size_t i = 0; i < LG_COUNT(plain); i++)
		if (!strcasecmp(s, plain[i])) {
			put_text(r, s);
			return;
		}
	if (is_numbers(s)) {
		put_text(r, s);
		return;
	}
	snprintf(name, sizeof name, "redacted-%u", ++r->names);
	put_text(r, name);
}

/* Numbers and shapes: [2, 3], (1,1,1), 0.5. */
static bool is_shape(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strchr("0123456789[](){}, x.-+e", s[i]))
			return false;
	return true;
}

static void put_pairs(struct redaction *r, const char *s)
{
	for (const char *end; *s; s = *end ? end + 1 : end) {
		const char *eq = memchr(s, '=', (size_t)((end = strchrnul(s, '\t')) - s));
		bool kept = eq && is_shape(eq + 1, (size_t)(end - eq - 1));

		for (size_t i = 0; eq && i < LG_COUNT(known_args); i++)
			kept |= strlen(known_args[i]) == (size_t)(eq - s) &&
				!strncmp(s, known_args[i], (size_t)(eq - s));
		if (!kept)
			continue;
		if (r->n)
			put_text(r, "\t");
		put(r, s, (size_t)(end - s));
	}
}

/* The new id of an old string. */
static lg_str redacted(struct redaction *r, lg_str id, enum what what)
{
	const char *s = lg_string(r->t, id);

	if (!id || r->failed)
		return 0;
	if (r->done[what][id])
		return r->done[what][id] - 1;
	r->n = 0;
	switch (what) {
	case PATH:
		put_path(r, s, strlen(s));
		break;
	case ARGS:
		put_args(r, s);
		break;
	case COMM: /* a profiler writes the whole command line there */
		if (strchr(s, ' '))
			put_args(r, s);
		else
			put_sentence(r, s);
		break;
	case NAME:
		put_name(r, s);
		break;
	case PAIRS:
		put_pairs(r, s);
		break;
	default:
		put_sentence(r, s);
	}
	if (r->failed)
		return 0;
	r->done[what][id] = lg_intern_n(r->pool, r->buf, r->n) + 1;
	return r->done[what][id] - 1;
}

static enum what what_of(const struct lg_table_desc *d, size_t c)
{
	for (size_t i = 0; i < LG_COUNT(columns); i++)
		if (columns[i].table == d->id && !strcmp(columns[i].column, d->cols[c].name))
			return columns[i].what;
	return TEXT;
}

static enum what what_of_fact(const char *key)
{
	for (size_t i = 0; i < LG_COUNT(facts); i++)
		if (!strncmp(key, facts[i].key, strlen(facts[i].key)))
			return facts[i].what;
	return TEXT;
}

static void redact_tables(struct redaction *r)
{
	size_t n_tab;
	const struct lg_table_desc *d = lg_schema(&n_tab);
	lg_str *value = r->t->meta.value;
	size_t facts_n = r->t->meta.n;

	/* Before their keys become new ids. */
	for (size_t i = 0; i < facts_n; i++)
		value[i] = redacted(r, value[i], what_of_fact(lg_string(r->t, r->t->meta.key[i])));
	for (size_t i = 0; i < n_tab; i++) {
		struct lg_tab *tab = lg_trace_table(r->t, &d[i]);

		for (size_t c = 0; c < d[i].n_cols; c++) {
			enum what what = what_of(&d[i], c);
			lg_str *ids = tab->col[c];

			if (d[i].cols[c].type != LG_COL_STR || what == VALUE)
				continue;
			for (size_t k = 0; k < tab->n; k++)
				ids[k] = redacted(r, ids[k], what);
		}
	}
}

/* The new strings take the place of the old ones. */
static int take_strings(struct redaction *r, struct lg_error *err)
{
	struct lg_trace *fresh;
	int rc = lg_builder_seal(r->pool, &fresh, err);
	struct lg_trace old = *r->t;

	r->pool = NULL;
	if (rc)
		return rc;
	r->t->str_bytes = fresh->str_bytes;
	r->t->str_off = fresh->str_off;
	r->t->n_str = fresh->n_str;
	fresh->str_bytes = old.str_bytes;
	fresh->str_off = old.str_off;
	fresh->n_str = old.n_str;
	lg_trace_free(fresh);
	return 0;
}

int lg_redact(struct lg_trace *t, struct lg_error *err)
{
	struct redaction r = { .t = t };
	int rc = lg_builder_new(&r.pool, err);

	if (rc)
		return rc;
	for (size_t i = 0; i < N_WHAT; i++) {
		r.done[i] = lg_calloc(t->n_str, sizeof *r.done[i]);
		r.failed |= r.done[i] ? 0 : LG_E_NOMEM;
	}
	if (!r.failed)
		redact_tables(&r);
	rc = r.failed ? lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory") : take_strings(&r, err);
	for (size_t i = 0; i < N_WHAT; i++)
		lg_free(r.done[i]);
	lg_free(r.buf);
	if (r.pool)
		lg_builder_free(r.pool);
	return rc;
}

int lg_redact_file(const char *path, struct lg_error *err)
{
	struct lg_trace *t;
	int rc = lg_lag_open(path, &t, err);

	if (rc)
		return rc;
	rc = lg_redact(t, err);
	if (!rc)
		rc = lg_lag_save(t, path, err);
	lg_trace_free(t);
	return rc;
}
