/* SPDX-License-Identifier: Apache-2.0 */
#include "import/flightrec/flightrec.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/order.h"
#include "import/flightrec/flight_groups.h"
#include "import/source/frame.h"
#include "import/source/source.h"
#include "import/source/stamp.h"
#include "import/value/value.h"

enum { FRAMES_MAX = 512, RANKS_MAX = 1 << 17 };
#define SIZE_LIMIT ((size_t)1 << 30)
#define TEXT_MAX ((size_t)64 << 20)
#define SECOND INT64_C(1000000000)

struct dump {
	struct lg_builder *b;
	const struct lg_doc *d;
	lg_prc prc;
	lg_thr main;
	lg_str s_pending;
	int64_t first, last;
	uint64_t rows, odd, no_ranks;
	size_t text; /* bytes that groups may still take */
	/* Sizes and frames that may still be read: what a pickle says once it can mean a million times. */
	size_t visits;
	uint64_t left_out;
};

static bool may_visit(struct dump *f)
{
	if (f->visits) {
		f->visits--;
		return true;
	}
	f->left_out++;
	return false;
}

/* The number at p, where one is that a rank may have; else -1. */
static int64_t number_at(const char *p)
{
	int64_t v = 0;

	if (*p < '0' || *p > '9')
		return -1;
	for (; *p >= '0' && *p <= '9'; p++)
		v = v < RANKS_MAX ? v * 10 + (*p - '0') : v;
	/* "10.0.0.1": a host's address */
	return v < RANKS_MAX && (*p != '.' || p[1] < '0' || p[1] > '9') ? v : -1;
}

/* "pickle", "gz", "bz2": what programs put behind a name. A rank's number is none of these, but a prefix may end with
 * a dot. */
static bool is_suffix(const char *p, size_t n)
{
	static const char *const packed[] = { "bz2", "lz4", "7z" };

	for (size_t i = 0; i < sizeof packed / sizeof *packed; i++)
		if (n == strlen(packed[i]) && !memcmp(p, packed[i], n))
			return true;
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)p[i]))
			return false;
	return n && isalpha((unsigned char)*p) && !isdigit((unsigned char)p[n - 1]);
}

/*
 * torch writes <prefix><rank>, and the prefix is anybody's: "/tmp/nccl_trace_rank_3", "_dump_14", "trace.3",
 * "nccl_trace_10.0.0.1_rank_3.pickle.gz". What follows "rank", else the last number before such endings. -1 = none. A
 * path below /proc/self/fd is a copy of a pipe: its number means nothing.
 */
static int64_t rank_of_path(const char *path)
{
	const char *base = strrchr(path, '/'), *dot;
	int64_t v, named = -1;
	size_t n;

	if (!strncmp(path, "/proc/self/fd/", 14))
		return -1;
	base = base ? base + 1 : path;
	for (const char *p = base; (p = strstr(p, "rank")); p += 4) {
		v = number_at(p + 4 + (p[4] == '_' || p[4] == '-'));
		if (v >= 0 && (p == base || !isalpha((unsigned char)p[-1])))
			named = v;
	}
	if (named >= 0)
		return named;
	n = strlen(base);
	while ((dot = memrchr(base, '.', n)) && is_suffix(dot + 1, n - (size_t)(dot + 1 - base)))
		n = (size_t)(dot - base);
	while (n && !isdigit((unsigned char)base[n - 1]))
		n--;
	if (!n)
		return -1;
	while (n && isdigit((unsigned char)base[n - 1]))
		n--;
	return number_at(base + n);
}

/* Ranks of a group: a list, or in pickles its text "[0, 2]". Calls fn for each. */
static void each_rank(const struct lg_doc *d, uint32_t v, void (*fn)(void *, int64_t), void *arg)
{
	const char *p = lg_value_text(d, v);

	for (uint32_t i = 0; i < lg_value_count(d, v); i++)
		fn(arg, lg_value_int(d, lg_value_at(d, v, i), -1));
	while (*p) {
		char *end;
		long long r;

		if (*p < '0' || *p > '9') {
			p++;
			continue;
		}
		r = strtoll(p, &end, 10);
		fn(arg, r);
		p = end;
	}
}

struct members {
	uint32_t *seen; /* in how many groups a rank is */
	int64_t size, end; /* end: behind the highest rank */
};

static void count_rank(void *arg, int64_t r)
{
	struct members *m = arg;

	if (r >= 0 && r < RANKS_MAX) {
		m->seen[r]++;
		m->end = LG_MAX(m->end, r + 1);
	}
	m->size++;
}

/* The rank that dumped, and the world's size. A dump lists only the groups that its rank is in. */
static int64_t whose(const struct dump *f, const char *path, int32_t *ret_world)
{
	const struct lg_doc *d = f->d;
	uint32_t groups = lg_value_get(d, d->root, "pg_config"), n = lg_value_count(d, groups);
	struct members m = { .seen = lg_calloc(RANKS_MAX, sizeof *m.seen) };
	int64_t named = rank_of_path(path), only = -1, common = 0, world = 0;
	size_t room = TEXT_MAX;
	uint32_t read = 0;

	if (!m.seen) {
		lg_builder_fail(f->b);
		return -1;
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t ranks = lg_value_get(d, lg_value_item(d, groups, i), "ranks");
		size_t size = strlen(lg_value_text(d, ranks)) + lg_value_count(d, ranks);

		/* A pickle may give one long list to a million groups. */
		if (size > room)
			continue;
		room -= size;
		m.size = 0;
		read++;
		each_rank(d, ranks, count_rank, &m);
		world = m.size > world ? m.size : world;
	}
	for (int64_t r = 0; r < m.end; r++)
		if (m.seen[r] >= read) {
			only = r;
			common++;
		}
	if (named >= 0 && read && m.seen[named] < read)
		named = -1; /* a number in the name, but not its rank */
	lg_free(m.seen);
	*ret_world = (int32_t)(world <= RANKS_MAX ? world : 0);
	return named >= 0 ? named : common == 1 ? only : -1;
}

static uint64_t dtype_bytes(const char *t)
{
	static const struct {
		const char *name;
		uint64_t bytes;
	} known[] = { { "BFloat16", 2 }, { "Half", 2 }, { "Float", 4 }, { "Double", 8 }, { "Long", 8 },
		      { "Int", 4 }, { "Short", 2 }, { "Byte", 1 }, { "Char", 1 }, { "Bool", 1 },
		      { "Float8_e4m3fn", 1 }, { "Float8_e5m2", 1 }, { "Float8_e4m3fnuz", 1 },
		      { "Float8_e5m2fnuz", 1 }, { "ComplexFloat", 8 }, { "ComplexDouble", 16 } };

	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (!strcmp(t, known[i].name))
			return known[i].bytes;
	return 0;
}

/* Bytes of the inputs; their sizes as text into out. */
static uint64_t input_bytes(struct dump *f, uint32_t e, char *out, size_t size)
{
	const struct lg_doc *d = f->d;
	uint32_t sizes = lg_value_get(d, e, "input_sizes"), types = lg_value_get(d, e, "input_dtypes");
	uint64_t total = 0;
	size_t at = 0, cut = 0;

	out[0] = 0;
	for (uint32_t i = 0; i < lg_value_count(d, sizes) && may_visit(f); i++) {
		uint32_t one = lg_value_at(d, sizes, i);
		uint64_t elements = 1;
		bool said = at + 64 < size; /* of hundreds of inputs the first */

		if (said)
			at += (size_t)snprintf(out + at, size - at, "%s[", i ? "," : "");
		else if (!cut++)
			at += (size_t)snprintf(out + at, size - at, ",...");
		for (uint32_t k = 0; k < lg_value_count(d, one) && may_visit(f); k++) {
			int64_t dim = lg_value_int(d, lg_value_at(d, one, k), 0);

			if (dim < 0 || __builtin_mul_overflow(elements, (uint64_t)dim, &elements))
				elements = 0;
			if (said && at + 32 < size)
				at += (size_t)snprintf(out + at, size - at, "%s%lld", k ? "," : "", (long long)dim);
		}
		if (said)
			at += (size_t)snprintf(out + at, size - at, "]");
		if (!__builtin_mul_overflow(elements, dtype_bytes(lg_value_text(d, lg_value_at(d, types, i))),
					    &elements))
			total += elements;
	}
	return total;
}

static lg_stk stack_of(struct dump *f, uint32_t frames)
{
	lg_stk stk = 0;
	uint32_t n = lg_value_count(f->d, frames);

	for (uint32_t i = n < FRAMES_MAX ? n : FRAMES_MAX; i > 0 && may_visit(f);) { /* innermost first */
		uint32_t v = lg_value_at(f->d, frames, --i);
		int64_t line = lg_value_int(f->d, lg_value_get(f->d, v, "line"), 0);

		stk = lg_intern_stack(f->b, stk,
				      lg_frame_python(f->b,
						      lg_value_text(f->d, lg_value_get(f->d, v, "name")),
						      lg_value_text(f->d, lg_value_get(f->d, v, "filename")),
						      line > 0 && line < UINT32_MAX ? (uint32_t)line : 0));
	}
	return stk;
}

static void entry(struct dump *f, uint32_t e, uint32_t status)
{
	const struct lg_doc *d = f->d;
	uint32_t group = lg_value_get(d, e, "process_group");
	int64_t ts = lg_value_int(d, lg_value_get(d, e, "time_created_ns"), 0);
	int64_t started = lg_value_int(d, lg_value_get(d, e, "time_discovered_started_ns"), 0);
	int64_t completed = lg_value_int(d, lg_value_get(d, e, "time_discovered_completed_ns"), 0);
	int64_t p2p = lg_value_int(d, lg_value_get(d, e, "is_p2p"), 0);
	int64_t seq = lg_value_int(d, lg_value_get(d, e, p2p ? "p2p_seq_id" : "collective_seq_id"), -1);
	double ms = lg_value_real(d, lg_value_get(d, e, "duration_ms"), -1);
	const char *name = lg_value_text(d, lg_value_get(d, e, "profiling_name"));
	const char *state = lg_value_text(d, lg_value_get(d, e, "state"));
	const char *pg = lg_value_text(d, lg_value_at(d, group, 0));
	char id[24], sizes[512], text[1024];
	uint32_t pgs;
	int done;
	struct lg_span_row row = { .ts = ts, .kind = LG_SPAN_COLLECTIVE, .flags = LG_SPAN_ASYNC,
				   .seq = seq, .name = lg_intern(f->b, name), .thr = f->main };

	if (!lg_value_is(d, e, LG_DICT) || ts <= 0 || ts > INT64_MAX / 2 || !*name) {
		f->odd++;
		return;
	}
	snprintf(id, sizeof id, "%lld", (long long)lg_value_int(d, lg_value_get(d, e, "pg_id"), -1));
	pgs = lg_value_get(d, status, id);
	/* "scheduled" is all that is known without TORCH_NCCL_ENABLE_TIMING: the watchdog's number of
	 * the last completed collective says more. */
	done = !strcmp(state, "completed") || lg_value_int(d, lg_value_get(d, e, "retired"), 0) ||
	       (!p2p && seq >= 0 && seq <= lg_value_int(d, lg_value_get(d, pgs, "last_completed_collective"),
							-1));
	row.group = lg_intern(f->b, pg);
	row.bytes = input_bytes(f, e, sizes, sizeof sizes);
	row.stack = stack_of(f, lg_value_get(d, e, "frames"));
	if (!done)
		row.dur = -1;
	else if (completed > ts && completed < ts + 86400 * SECOND)
		row.dur = completed - ts;
	else if (ms > 0 && ms < 86400e3)
		row.dur = (int64_t)(ms * 1e6) +
			  (started > ts && started < ts + 86400 * SECOND ? started - ts : 0);
	snprintf(text, sizeof text, "%sstate=%s\tin=%s\tdtype=%s\tpgdesc=%s", p2p ? "p2p=1\t" : "", state, sizes,
		 lg_value_text(d, lg_value_at(d, lg_value_get(d, e, "input_dtypes"), 0)),
		 lg_value_text(d, lg_value_at(d, group, 1)));
	row.args = lg_intern(f->b, text);
	lg_add_span(f->b, &row);
	f->rows++;
	f->first = !f->first || ts < f->first ? ts : f->first;
	f->last = ts > f->last ? ts : f->last;
	if (done)
		return;
	snprintf(text, sizeof text, "%s in group %s (%s), %s, inputs %s %s", name, pg,
		 lg_value_text(d, lg_value_at(d, group, 1)), state, sizes,
		 lg_value_text(d, lg_value_at(d, lg_value_get(d, e, "input_dtypes"), 0)));
	lg_add_mark(f->b, &(struct lg_mark_row){ .ts = ts, .thr = row.thr, .name = f->s_pending,
						 .value = seq, .text = lg_intern(f->b, text) });
}

/* "[0, 2]" of a list, as pickles have it. */
static char *ranks_text(const struct lg_doc *d, uint32_t list)
{
	uint32_t n = lg_value_count(d, list);
	size_t size = n * (size_t)22 + 3, len = 1; /* 20 digits, ", " */
	char *text = lg_calloc(size, 1);

	if (!text)
		return NULL;
	text[0] = '[';
	for (uint32_t i = 0; i < n; i++)
		len += (size_t)snprintf(text + len, size - len, "%s%lld", i ? ", " : "",
					(long long)lg_value_int(d, lg_value_at(d, list, i), -1));
	text[len] = ']';
	return text;
}

/* flight.group.NAME = its description and ranks: of thousands of ranks that is a long text. */
static void group_fact(struct dump *f, const char *name, uint32_t group)
{
	const struct lg_doc *d = f->d;
	uint32_t ranks = lg_value_get(d, group, "ranks");
	const char *desc = lg_value_text(d, lg_value_get(d, group, "desc")), *text = lg_value_text(d, ranks);
	LG_AUTOFREE char *list = NULL;
	LG_AUTOFREE char *all = NULL;
	size_t size = strlen(desc) + strlen(text) + lg_value_count(d, ranks) * (size_t)22 + 2;
	char key[128];

	/* A pickle may give one long list to a million groups. */
	if (size > f->text) {
		f->no_ranks++;
		return;
	}
	f->text -= size;
	if (lg_value_is(d, ranks, LG_LIST)) {
		list = ranks_text(d, ranks);
		text = list ? list : "";
	}
	all = lg_calloc(size, 1);
	if (!all) {
		lg_builder_fail(f->b);
		return;
	}
	snprintf(all, size, "%s %s", desc, text);
	snprintf(key, sizeof key, "flight.group.%.64s", name);
	lg_meta_set(f->b, f->prc, key, all);
}

static void facts(struct dump *f)
{
	static const char *const last[] = { "enqueued", "started", "completed" };
	const struct lg_doc *d = f->d;
	uint32_t status = lg_value_get(d, d->root, "pg_status");
	uint32_t groups = lg_value_get(d, d->root, "pg_config");
	const char *nccl = lg_value_text(d, lg_value_get(d, d->root, "nccl_version"));
	char key[128], from[64];

	lg_meta_set(f->b, 0, "trace.format", "flight recorder");
	lg_meta_set(f->b, f->prc, "flight.version", lg_value_text(d, lg_value_get(d, d->root, "version")));
	if (!*nccl)
		nccl = lg_value_text(d, lg_value_get(d, d->root, "comm_lib_version"));
	if (*nccl)
		lg_meta_set(f->b, f->prc, "dist.nccl", nccl);
	for (uint32_t i = 0; i < lg_value_count(d, status); i++) {
		uint32_t one = lg_value_item(d, status, i);

		for (size_t k = 0; k < sizeof last / sizeof *last; k++) {
			snprintf(key, sizeof key, "flight.pg.%.32s.last_%s", lg_value_key(d, status, i), last[k]);
			snprintf(from, sizeof from, "last_%s_collective", last[k]);
			lg_meta_setf(f->b, f->prc, key, "%lld",
				     (long long)lg_value_int(d, lg_value_get(d, one, from), -1));
		}
	}
	for (uint32_t i = 0; i < lg_value_count(d, groups); i++)
		group_fact(f, lg_value_key(d, groups, i), lg_value_item(d, groups, i));
	if (lg_flight_groups(f->b, f->prc, d))
		lg_builder_fail(f->b);
}

static int read_dump(struct dump *f, const char *path, struct lg_error *err)
{
	const struct lg_doc *d = f->d;
	uint32_t entries = lg_value_get(d, d->root, "entries");
	uint32_t status = lg_value_get(d, d->root, "pg_status");
	int32_t world = 0;
	int64_t rank;

	if (!lg_value_count(d, entries) && !lg_value_count(d, lg_value_get(d, d->root, "pg_config"))) {
		return lg_fail(err, LG_E_FORMAT, 0,
			       "this holds neither a Flight Recorder dump (no entries, no process groups) nor a "
			       "snapshot of memory");
	}
	rank = whose(f, path, &world);
	f->prc = lg_process_unnumbered(f->b, "", (int32_t)rank, world);
	f->main = lg_thread_unnumbered(f->b, f->prc, "", 1);
	f->s_pending = lg_intern(f->b, "flight.pending");
	for (uint32_t i = 0; i < lg_value_count(d, entries); i++)
		entry(f, lg_value_at(d, entries, i), status);
	facts(f);
	if (rank < 0)
		lg_add_diag_now(f->b, LG_DIAG_PARTIAL, f->first, 1,
				"the dump does not say its rank: name its file ..._<rank>");
	/* An empty ring has no time: it says only that this rank had nothing under way. */
	lg_time_base(f->b, f->rows ? LG_TIME_REALTIME : LG_TIME_NONE, f->first, 1000000,
		     "flight recorder");
	if (!lg_value_count(d, entries))
		lg_meta_set(f->b, f->prc, "flight.entries", "0");
	if (f->odd)
		lg_add_diag_now(f->b, LG_DIAG_FILE_DAMAGED, f->last, f->odd,
				"entries without a name or a time");
	if (f->left_out)
		lg_add_diag_now(f->b, LG_DIAG_PARTIAL, f->last, f->left_out,
				"sizes and stacks are cut: what the file says once it means more often than is read");
	if (f->no_ranks)
		lg_add_diag_now(f->b, LG_DIAG_PARTIAL, f->last, f->no_ranks,
				"the ranks of some groups are left out: more than 64 MiB of text");
	if (d->cut)
		lg_add_diag_now(f->b, LG_DIAG_FILE_TRUNCATED, f->last, 1,
				"byte %llu: %s; what came before is kept", (unsigned long long)d->cut_at,
				d->cut);
	return lg_builder_failed(f->b) ? lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory") : 0;
}

static int run(const char *path, struct lg_builder *b, struct lg_error *err)
{
	struct lg_doc d;
	struct dump f = { .b = b, .d = &d, .text = TEXT_MAX };
	const char *damage;
	char *p;
	size_t n;
	int rc = lg_source_all(path, SIZE_LIMIT, &p, &n, &damage, err);

	if (rc)
		return rc;
	f.visits = 4 * n + (1 << 20);
	rc = n && (uint8_t)*p == 0x80 ? lg_doc_pickle(&d, p, n, err) : lg_doc_json(&d, p, n, err);
	if (!rc) {
		rc = read_dump(&f, path, err);
		if (!rc && damage && !d.cut)
			lg_add_diag_now(b, LG_DIAG_FILE_TRUNCATED, f.last, 1, "%s", damage);
		lg_doc_done(&d);
	}
	lg_free(p);
	return rc;
}

/* Any pickle is taken, to say in one line what is wrong with it. */
static int sniff(const struct lg_head *h)
{
	const char *text = h->text;

	if (h->n_text > 3 && (uint8_t)text[0] == 0x80 && text[1] >= 2 && text[1] <= 5)
		return lg_head_has(h, "pg_config") || lg_head_has(h, "collective_seq_id") ? 95 : 20;
	if (*text == '{' &&
	    (lg_head_has(h, "\"collective_seq_id\"") || lg_head_has(h, "\"pg_config\"")) &&
	    !lg_head_has(h, "\"traceEvents\"") && !lg_head_has(h, "\"distributedInfo\""))
		return 90;
	return 0;
}

const struct lg_importer lg_import_flightrec = {
	.name = "flight recorder",
	.summary = "Flight Recorder dump",
	.sniff = sniff,
	.run = run,
};
