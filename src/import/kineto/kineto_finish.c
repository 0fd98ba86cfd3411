/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kineto_finish.c - what can be told only when the whole file was read: the time base that may stand
 * behind the events, which thread is the main one, who launched which kernel.
 *
 * Rows are corrected in place: nothing was flushed and nothing is sorted yet.
 */
#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "import/import.h"
#include "import/kineto/kineto_import.h"
#include "import/source/file_rank.h"

/* A time that a wall clock of 2001 .. 2100 shows. */
static bool epoch(int64_t ns)
{
	return ns > 1000000000ll * 1000000000 && ns < 4102444800ll * 1000000000;
}

static void shift(int64_t *ts, size_t n, int64_t by)
{
	for (size_t i = 0; i < n; i++)
		ts[i] += by;
}

void kin_clocks(struct kineto *k)
{
	enum { ERROR_NS = 1000000 };
	struct lg_trace *t = lg_builder_trace(k->b);
	int64_t by = k->base - k->applied, first = INT64_MAX;

	if (by) {
		shift(t->span.ts, t->span.n, by);
		shift(t->mark.ts, t->mark.n, by);
		shift(t->counter.ts, t->counter.n, by);
		shift(t->flow.ts, t->flow.n, by);
		shift(t->flow.ts_to, t->flow.n, by);
		k->last_ts += by;
		k->applied = k->base;
	}
	for (size_t i = 0; i < t->span.n; i++)
		if (t->span.ts[i] < first)
			first = t->span.ts[i];
	if (!t->span.n || !epoch(first) || !epoch(k->last_ts))
		return;
	/* Kineto converts its own clocks to the wall clock when it starts. */
	for (int i = 0; i < 2; i++) {
		int64_t at = i ? k->last_ts : first;

		lg_add_clock(k->b, &(struct lg_clock_row){ .ts = at,
							   .value = at,
							   .clock = CLOCK_REALTIME,
							   .error = ERROR_NS,
							   .source = lg_intern(k->b, "kineto") });
	}
}

/* The training thread: steps, else the one that the process started with, else most operators. */
static struct kin_key *main_thread(struct kineto *k)
{
	struct kin_key *best = NULL;
	int best_score = -1;

	for (size_t i = 0; i < k->n_threads; i++) {
		struct kin_key *t = &k->threads[i];
		int score = t->steps ? 2 : t->pid == t->tid && t->n_ops ? 1 : 0;

		/* A word in place of a pid: torch without Kineto, or rows of the profiler's own. */
		if ((t->pid < 0 && !t->n_ops) || (!t->n_ops && best))
			continue;
		if (score > best_score || (score == best_score && t->n_ops > best->n_ops)) {
			best = t;
			best_score = score;
		}
	}
	return best;
}

static lg_prc processes(struct kineto *k)
{
	struct kin_key *main = main_thread(k);
	struct lg_process_row p;
	struct lg_thread_row t;
	lg_prc prc;

	if (!main)
		return 0;
	t = lg_thread_read(k->b, main->id);
	t.flags |= LG_THREAD_MAIN;
	lg_thread_write(k->b, main->id, &t);
	prc = t.prc;
	p = lg_process_read(k->b, prc);
	p.role = LG_ROLE_RANK;
	if (k->rank >= 0 && k->rank <= INT32_MAX)
		p.rank = (int32_t)k->rank;
	else if (k->rank < 0) /* traces of 2021 and of single devices do not say it */
		p.rank = lg_file_rank(k->path);
	if (k->world > 0 && k->world <= INT32_MAX)
		p.world = (int32_t)k->world;
	lg_process_write(k->b, prc, &p);
	return prc;
}

/* The process of a name: that of the first thread of its pid. */
static void name_process(struct kineto *k, const struct kin_name *n, const struct lg_map *first)
{
	uint32_t at = lg_map_get(first, (uint64_t)n->pid);
	struct lg_process_row p;
	lg_prc prc;

	if (!at)
		return;
	prc = lg_thread_process(k->b, k->threads[at - 1].id);
	p = lg_process_read(k->b, prc);
	p.comm = n->name;
	lg_process_write(k->b, prc, &p);
}

static void name_thread(struct kineto *k, const struct kin_name *n)
{
	struct kin_key *t = kin_known_thread(k, n->pid, n->tid);
	struct lg_thread_row row;

	if (!t)
		return;
	row = lg_thread_read(k->b, t->id);
	row.comm = n->name;
	lg_thread_write(k->b, t->id, &row);
}

void kin_names(struct kineto *k)
{
	struct lg_map first = { 0 }; /* pid -> index + 1 of its first thread */

	for (size_t i = 0; k->n_names && i < k->n_threads; i++)
		if (!lg_map_get(&first, (uint64_t)k->threads[i].pid) &&
		    lg_map_set(&first, (uint64_t)k->threads[i].pid, (uint32_t)i + 1))
			k->failed = LG_E_NOMEM;
	for (size_t i = 0; i < k->n_names; i++) {
		if (k->names[i].gpu)
			continue;
		if (k->names[i].process)
			name_process(k, &k->names[i], &first);
		else
			name_thread(k, &k->names[i]);
	}
	lg_map_done(&first);
}

/*
 * Calls by correlation id: bucket c holds calls[first[c] .. first[c + 1]), in time order. The ids
 * count up, so that buckets are as good as sorted; a long trace may use an id again.
 */
struct calls {
	uint32_t *first, *row;
	size_t mask;
};

static bool is_call(const struct lg_span_tab *s, size_t i)
{
	return !s->track[i] && s->seq[i] > 0 &&
	       (s->kind[i] == LG_SPAN_RUNTIME || s->kind[i] == LG_SPAN_WAIT);
}

static int by_time(const void *a, const void *b, void *arg)
{
	const int64_t *ts = arg;
	int64_t x = ts[*(const uint32_t *)a], y = ts[*(const uint32_t *)b];

	return (x > y) - (x < y);
}

static int calls_index(struct calls *c, const struct lg_span_tab *s)
{
	size_t n = 0, size = 64;

	for (size_t i = 0; i < s->n; i++)
		n += is_call(s, i);
	while (size < n)
		size *= 2;
	c->mask = size - 1;
	c->first = lg_calloc(size + 2, sizeof *c->first);
	c->row = lg_calloc(n + 1, sizeof *c->row);
	if (!c->first || !c->row)
		return LG_E_NOMEM;
	for (size_t i = 0; i < s->n; i++)
		if (is_call(s, i))
			c->first[((size_t)s->seq[i] & c->mask) + 2]++;
	for (size_t i = 2; i < size + 2; i++)
		c->first[i] += c->first[i - 1];
	for (size_t i = 0; i < s->n; i++)
		if (is_call(s, i))
			c->row[c->first[((size_t)s->seq[i] & c->mask) + 1]++] = (uint32_t)i;
	for (size_t i = 0; i < size; i++) {
		uint32_t from = c->first[i], to = c->first[i + 1], j;

		for (j = from + 1; j < to && s->ts[c->row[j]] >= s->ts[c->row[j - 1]]; j++)
			;
		if (j < to)
			qsort_r(c->row + from, to - from, sizeof *c->row, by_time, s->ts);
	}
	return 0;
}

/*
 * The last call with this id that began before the work did, else the first just after it (the
 * clocks of GPU and CPU are not quite one); UINT32_MAX when there is none.
 */
static uint32_t launcher(const struct calls *c, const struct lg_span_tab *s, int64_t seq, int64_t ts)
{
	/* No queue is longer than an hour. */
	const int64_t skew = 1000000, window = 3600ll * 1000000000;
	size_t at = (size_t)seq & c->mask;
	uint32_t lo = c->first[at], hi = c->first[at + 1], from = lo, to = hi, i;
	int tries = 64; /* other ids in the bucket */

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (s->ts[c->row[mid]] <= ts)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (i = lo; i > from && tries-- && s->ts[c->row[i - 1]] >= ts - window; i--)
		if (s->seq[c->row[i - 1]] == seq)
			return c->row[i - 1];
	for (i = lo, tries = 64; i < to && tries-- && s->ts[c->row[i]] <= ts + skew; i++)
		if (s->seq[c->row[i]] == seq)
			return c->row[i];
	return UINT32_MAX;
}

static int launches(struct kineto *k)
{
	struct lg_trace *t = lg_builder_trace(k->b);
	struct lg_span_tab *s = &t->span;
	struct calls c = { 0 };
	int rc = calls_index(&c, s);

	for (size_t i = 0; !rc && i < s->n; i++) {
		uint32_t call;

		/* Of a stream: it gets an arrow, and nothing else. */
		bool waits = s->kind[i] == LG_SPAN_WAIT && lg_import_keeps_all;

		if (!s->track[i] || s->seq[i] <= 0 ||
		    (s->kind[i] != LG_SPAN_KERNEL && s->kind[i] != LG_SPAN_COPY &&
		     s->kind[i] != LG_SPAN_COLLECTIVE && !waits))
			continue;
		call = launcher(&c, s, s->seq[i], s->ts[i]);
		if (call == UINT32_MAX) {
			k->n_unlinked += !waits;
			continue;
		}
		s->peer[i] = s->thr[call];
		lg_add_flow(k->b, &(struct lg_flow_row){ .ts = s->ts[call],
							 .ts_to = s->ts[i],
							 .thr = s->thr[call],
							 .kind = LG_FLOW_LAUNCH,
							 .id = (uint64_t)s->seq[i] });
	}
	lg_free(c.first);
	lg_free(c.row);
	return rc;
}

/* Each GPU belongs to the process that launched most on it; merged files keep theirs apart. */
static void owners(struct kineto *k, lg_prc prc)
{
	struct lg_trace *t = lg_builder_trace(k->b);
	const struct lg_span_tab *s = &t->span;
	bool many = false;

	for (size_t i = 0; i < k->n_threads && !many; i++)
		many = k->threads[i].pid >= 0 && lg_thread_process(k->b, k->threads[i].id) != prc &&
		       k->threads[i].n_ops;
	for (lg_trk i = 1; i < t->track.n; i++)
		t->track.prc[i] = prc;
	if (!many)
		return;
	for (size_t i = 0; i < s->n; i++)
		if (s->track[i] && s->peer[i]) {
			t->track.prc[s->track[i]] = t->thread.prc[s->peer[i]];
			t->track.prc[t->track.parent[s->track[i]]] = t->thread.prc[s->peer[i]];
		}
	t->track.prc[0] = 0;
}

void kin_diag(struct kineto *k)
{
	if (k->n_bad_time)
		lg_add_diag_now(k->b, LG_DIAG_NOT_UNDERSTOOD, k->last_ts, k->n_bad_time,
				"%s: events without a usable time", k->path);
	if (k->n_bad_dur)
		lg_add_diag_now(k->b, LG_DIAG_NOT_UNDERSTOOD, k->last_ts, k->n_bad_dur,
				"%s: events with a negative length or one of weeks", k->path);
}

int kin_finish(struct kineto *k, struct lg_error *err)
{
	lg_prc prc;

	kin_clocks(k);
	prc = processes(k);
	kin_names(k);
	kin_arrows_pair(k);
	if (launches(k) || k->failed || lg_builder_failed(k->b))
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	owners(k, prc);
	kin_facts_add(k, prc);
	kin_diag(k);
	if (k->n_unlinked)
		lg_add_diag_now(k->b, LG_DIAG_PARTIAL, k->last_ts, k->n_unlinked,
				"%s: %llu of %llu GPU rows have no launch in the trace", k->path,
				(unsigned long long)k->n_unlinked, (unsigned long long)k->n_gpu);
	return 0;
}
