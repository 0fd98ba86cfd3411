/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merge.c - copy a sealed trace into a builder under new ids.
 *
 * Strings, frames, stacks and tracks go through the builder's interning. Processes and threads
 * are matched with rows that are there already, because two recorders on one machine saw the
 * same ones; what does not match is added as it is.
 */
#include "store/merge.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/map.h"
#include "store/merge_rows.h"

enum { BATCH_ROWS = 65536 };

struct merge {
	struct lg_builder *b;
	const struct lg_trace *src;
	lg_str host;       /* of src, in b's pool; 0 = unknown */
	int other_host;    /* b holds rows of another machine already */
	const char *label; /* the source, for people; NULL = none */
	int other_gpus;    /* its device tracks are not b's, see same_gpus() */
	struct lg_renumber to; /* to.tag: see tag_of() */
	/* processes and threads that b had before: newest row by pid/tid, older ones by chain */
	struct lg_map by_pid, by_tid;
	uint32_t *older_prc, *older_thr;
	size_t n_prc, n_thr;
	size_t batch; /* rows of a table that are rewritten at once */
};

const char *lg_meta_get(const struct lg_trace *t, const char *key)
{
	for (size_t i = 0; i < t->meta.n; i++)
		if (!t->meta.prc[i] && !strcmp(lg_string(t, t->meta.key[i]), key))
			return lg_string(t, t->meta.value[i]);
	return "";
}

/* CLOCK_REALTIME minus the trace's clock, from the pair with the smallest error. */
static int wall_offset(const struct lg_trace *t, int64_t *ret, int64_t *ret_error)
{
	int found = 0;

	for (size_t i = 0; i < t->clock.n; i++) {
		if (t->clock.clock[i] != CLOCK_REALTIME ||
		    (found && t->clock.error[i] >= *ret_error))
			continue;
		*ret = (int64_t)((uint64_t)t->clock.value[i] - (uint64_t)t->clock.ts[i]);
		*ret_error = t->clock.error[i];
		found = 1;
	}
	return found;
}

/* A file that does not say which clock its times are on was recorded here: CLOCK_MONOTONIC. */
static const char *clock_of(const struct lg_trace *t)
{
	const char *name = lg_meta_get(t, "clock.source");

	return *name ? name : "CLOCK_MONOTONIC";
}

int lg_merge_offset(const struct lg_trace *ref, const struct lg_trace *t, int64_t *ret_offset,
		    int64_t *ret_error)
{
	const char *boot_a = lg_meta_get(ref, "record.boot_id");
	const char *boot_b = lg_meta_get(t, "record.boot_id");
	const char *host_a = lg_meta_get(ref, "host.name"), *host_b = lg_meta_get(t, "host.name");
	int64_t a = 0, b = 0, error_a = 0, error_b = 0;
	/* One machine, and nothing that says it was rebooted: one clock, if both are on the same. */
	int same = *host_a && !strcmp(host_a, host_b) && !(*boot_a && *boot_b) &&
		   !strcmp(clock_of(ref), clock_of(t));

	*ret_offset = *ret_error = 0;
	if (*boot_a && *boot_b && !strcmp(boot_a, boot_b))
		return 0;
	if (wall_offset(ref, &a, &error_a) && wall_offset(t, &b, &error_b)) {
		int64_t offset = (int64_t)((uint64_t)b - (uint64_t)a), error = error_a + error_b;

		if (same && offset <= error && offset >= -error)
			return 0;
		*ret_offset = offset;
		*ret_error = error;
		return 0;
	}
	if (same)
		return 0;
	return LG_E_NOTFOUND;
}

/*
 * Kernel addresses name locks and mms on one machine only; without KASLR two machines have the same
 * ones. The upper 16 bits of an address say nothing (they repeat bit 47 on x86-64 with four levels
 * and on arm64), so those of a second machine carry a mark of its host.
 */
static uint64_t tag_of(const struct merge *m)
{
	if (!m->other_host || !m->host)
		return 0;
	return ((lg_mix64(m->host) & 0x7fff) | 1) << 48;
}

static int nomem(struct lg_error *err)
{
	return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
}

/*
 * The rows that have one of the keys of the source's, and some others: of many small sources each would else
 * have all that came before it put into a map.
 */
static int chain(struct lg_map *map, uint32_t **ret_older, const int32_t *key, size_t n, const int32_t *of,
		 size_t n_of)
{
	uint64_t wanted = 0; /* by their lowest six bits */

	*ret_older = lg_calloc(n, sizeof **ret_older);
	if (!*ret_older)
		return LG_E_NOMEM;
	for (size_t i = 1; i < n_of; i++)
		wanted |= of[i] < 0 ? 0 : UINT64_C(1) << (of[i] & 63);
	for (size_t i = 1; i < n && wanted; i++) {
		if (key[i] < 0 || !(wanted >> (key[i] & 63) & 1))
			continue;
		(*ret_older)[i] = lg_map_get(map, (uint32_t)key[i]);
		if (lg_map_set(map, (uint32_t)key[i], (uint32_t)i))
			return LG_E_NOMEM;
	}
	return 0;
}

static int overlap(int64_t a_start, int64_t a_end, int64_t b_start, int64_t b_end)
{
	return a_start < b_end && b_start < a_end;
}

/* A device that no process owns, as nvidia-smi tells of it. */
static int is_bare_gpu(const struct lg_trace *t, lg_trk k)
{
	return k && t->track.kind[k] == LG_TRACK_GPU && !t->track.prc[k] && !t->track.thr[k] &&
	       !t->track.parent[k];
}

/* Only those tracks take another name where devices are others: see track_name(). */
static bool has_bare_gpu(const struct lg_trace *t)
{
	for (lg_trk k = 1; k < t->track.n; k++)
		if (is_bare_gpu(t, k))
			return true;
	return false;
}

struct extent {
	int64_t first, last;
};

/* When each counter was read; *ret is freed by the caller. */
static int counter_extents(const struct lg_trace *t, struct extent **ret)
{
	struct extent *e = lg_calloc(t->track.n + 1, sizeof *e);

	if (!e)
		return LG_E_NOMEM;
	for (size_t k = 0; k < t->track.n; k++)
		e[k] = (struct extent){ INT64_MAX, INT64_MIN };
	for (size_t i = 0; i < t->counter.n; i++) {
		struct extent *x = &e[t->counter.track[i]];

		if (t->counter.ts[i] < x->first)
			x->first = t->counter.ts[i];
		if (t->counter.ts[i] > x->last)
			x->last = t->counter.ts[i];
	}
	*ret = e;
	return 0;
}

/*
 * Tables of nvidia-smi do not name their machine, and every machine has a GPU 0. A device is known by
 * its UUID where both tables have it. Else: the same reading of one index from two tables at one time
 * means two machines; a table that begins where the other ends, or has other columns, is of the same.
 */
static int find_other_gpus(struct merge *m)
{
	const struct lg_trace *s = m->src, *t = lg_builder_trace(m->b);
	struct extent *es = NULL, *et = NULL;
	int rc = 0, known = 0;

	if (!has_bare_gpu(s))
		return 0;
	rc = counter_extents(s, &es);
	if (!rc)
		rc = counter_extents(t, &et);
	for (size_t i = 0; i < s->meta.n && !rc; i++) {
		const char *key = lg_string(s, s->meta.key[i]), *value = lg_string(s, s->meta.value[i]);
		size_t n = strlen(key);
		int seen = 0, equal = 0;

		if (s->meta.prc[i] || strncmp(key, "gpu.", 4) || n < 5 || strcmp(key + n - 5, ".uuid"))
			continue;
		for (size_t k = 0; k < t->meta.n; k++)
			if (!t->meta.prc[k] && !strcmp(lg_string(t, t->meta.key[k]), key)) {
				seen = 1;
				equal |= !strcmp(lg_string(t, t->meta.value[k]), value);
			}
		known |= seen;
		m->other_gpus |= seen && !equal;
	}
	for (lg_trk i = 1; i < s->track.n && !rc && !known && !m->other_gpus; i++) {
		lg_trk up = s->track.parent[i];
		const char *gpu = lg_string(s, s->track.name[up]), *name = lg_string(s, s->track.name[i]);

		if (s->track.kind[i] != LG_TRACK_COUNTER || !is_bare_gpu(s, up) || es[i].first > es[i].last)
			continue;
		for (lg_trk k = 1; k < t->track.n && !m->other_gpus; k++) {
			lg_trk over = t->track.parent[k];

			m->other_gpus = t->track.kind[k] == LG_TRACK_COUNTER && is_bare_gpu(t, over) &&
					t->track.index[over] == s->track.index[up] &&
					!strcmp(lg_string(t, t->track.name[over]), gpu) &&
					!strcmp(lg_string(t, t->track.name[k]), name) &&
					overlap(et[k].first, et[k].last,
						lg_renumber_time(&m->to, es[i].first),
						lg_renumber_time(&m->to, es[i].last));
		}
	}
	lg_free(es);
	lg_free(et);
	return rc;
}

/* As lg_meta_get(), of what was merged so far: that grows with each file, and is asked for each. */
static const char *told(struct lg_builder *b, const char *key)
{
	const struct lg_trace *t = lg_builder_trace(b);
	lg_str k = lg_interned(b, key);

	for (size_t i = 0; k && i < t->meta.n; i++)
		if (t->meta.key[i] == k && !t->meta.prc[i])
			return lg_string(t, t->meta.value[i]);
	return "";
}

static int prepare(struct merge *m)
{
	const struct lg_trace *s = m->src, *t = lg_builder_trace(m->b);
	const char *host = lg_meta_get(s, "host.name"), *boot = lg_meta_get(s, "record.boot_id");
	const char *first = told(m->b, "host.name");
	const char *first_boot = told(m->b, "record.boot_id");
	/* Containers of one machine have host names of their own, but one boot id. */
	int same_boot = *boot && !strcmp(boot, first_boot);

	m->other_host = *first && strcmp(first, host) && !same_boot;
	m->host = lg_intern(m->b, same_boot && *first ? first : host);
	m->to.tag = tag_of(m);
	m->n_prc = t->process.n;
	m->n_thr = t->thread.n;
	m->to.str = lg_calloc(s->n_str, sizeof *m->to.str);
	m->to.prc = lg_calloc(s->process.n, sizeof *m->to.prc);
	m->to.thr = lg_calloc(s->thread.n, sizeof *m->to.thr);
	m->to.frm = lg_calloc(s->frame.n, sizeof *m->to.frm);
	m->to.stk = lg_calloc(s->stack.n, sizeof *m->to.stk);
	m->to.trk = lg_calloc(s->track.n, sizeof *m->to.trk);
	if (!m->to.str || !m->to.prc || !m->to.thr || !m->to.frm || !m->to.stk || !m->to.trk ||
	    chain(&m->by_pid, &m->older_prc, t->process.pid, m->n_prc, s->process.pid, s->process.n) ||
	    chain(&m->by_tid, &m->older_thr, t->thread.tid, m->n_thr, s->thread.tid, s->thread.n) ||
	    (m->label && !m->other_host && find_other_gpus(m)))
		return LG_E_NOMEM;
	return lg_builder_failed(m->b);
}

static void done(struct merge *m)
{
	lg_free(m->older_prc);
	lg_free(m->older_thr);
	lg_map_done(&m->by_pid);
	lg_map_done(&m->by_tid);
}

/* One machine, or one rank where a source (a profiler's file) does not name its machine. */
static int same_process(const struct lg_process_row *a, const struct lg_process_row *b)
{
	if (a->pid != b->pid || !overlap(a->start, a->end, b->start, b->end))
		return 0;
	if (a->rank >= 0 && b->rank >= 0 && a->rank != b->rank)
		return 0;
	if (a->host && b->host)
		return a->host == b->host;
	return (a->host || b->host) || (a->rank >= 0 && a->rank == b->rank);
}

/*
 * A source that numbers no processes (a log, a Flight Recorder dump: pid -1), or numbers them as its
 * container does, still knows their ranks. One row of that rank on the same machine; 0 = none.
 */
static lg_prc process_of_rank(const struct merge *m, const struct lg_process_row *r)
{
	const int32_t *rank = lg_builder_trace(m->b)->process.rank;

	for (size_t p = 1; p < m->n_prc && r->rank >= 0; p++) {
		struct lg_process_row old;

		if (rank[p] != r->rank)
			continue;
		old = lg_process_read(m->b, (lg_prc)p);
		if ((old.host && r->host && old.host != r->host) ||
		    !overlap(old.start, old.end, r->start, r->end))
			continue;
		if (r->pid < 0 || old.pid < 0 || (old.ns_pid && old.ns_pid == r->pid) ||
		    (r->ns_pid && r->ns_pid == old.pid))
			return (lg_prc)p;
	}
	return 0;
}

/* The main thread of p among the rows that were there; 0 = none. */
static lg_thr main_thread(const struct merge *m, lg_prc p)
{
	const struct lg_thread_tab *t = &lg_builder_trace(m->b)->thread;

	for (size_t i = 1; i < m->n_thr; i++) {
		if (t->prc[i] == p && t->flags[i] & LG_THREAD_MAIN)
			return (lg_thr)i;
	}
	return 0;
}

/* What one source did not know the other may. */
static void combine(struct lg_process_row *a, const struct lg_process_row *b)
{
	a->start = a->start == INT64_MIN ? b->start : a->start;
	a->end = a->end == INT64_MAX ? b->end : a->end;
	a->pid = a->pid >= 0 ? a->pid : b->pid;
	a->ppid = a->ppid ? a->ppid : b->ppid;
	a->ns_pid = a->ns_pid ? a->ns_pid : b->ns_pid;
	a->rank = a->rank >= 0 ? a->rank : b->rank;
	a->world = a->world ? a->world : b->world;
	a->local_rank = a->local_rank >= 0 ? a->local_rank : b->local_rank;
	a->uid = a->uid ? a->uid : b->uid;
	a->role = a->role ? a->role : b->role;
	a->mm = a->mm ? a->mm : b->mm;
	a->comm = a->comm ? a->comm : b->comm;
	a->cmdline = a->cmdline ? a->cmdline : b->cmdline;
	a->container = a->container ? a->container : b->container;
	a->host = a->host ? a->host : b->host;
}

static void merge_processes(struct merge *m)
{
	const struct lg_process_tab *s = &m->src->process;
	const char *host = lg_meta_get(m->src, "host.name");
	struct lg_process_row r, old;

	for (size_t i = 1; i < s->n; i++) {
		lg_prc p;
		int named;

#define C(type, name, unit, doc) r.name = s->name[i];
		LG_COLS_process(C)
#undef C
		r.start = lg_renumber_time(&m->to, r.start);
		r.end = lg_renumber_time(&m->to, r.end);
		r.mm ^= r.mm ? m->to.tag : 0;
		r.comm = m->to.str[r.comm];
		r.cmdline = m->to.str[r.cmdline];
		r.container = m->to.str[r.container];
		/* The log of a job names several machines; a container's name stands for its machine. */
		named = r.host && strcmp(lg_string(m->src, r.host), host);
		r.host = r.host && (named || !m->host) ? m->to.str[r.host] : m->host;
		p = r.pid >= 0 ? lg_map_get(&m->by_pid, (uint32_t)r.pid) : 0;
		for (; p; p = m->older_prc[p]) {
			old = lg_process_read(m->b, p);
			if (same_process(&old, &r))
				break;
		}
		if (!p && (p = process_of_rank(m, &r)))
			old = lg_process_read(m->b, p);
		if (p) {
			combine(&old, &r);
			lg_process_write(m->b, p, &old);
		} else {
			p = lg_process_add(m->b, &r);
		}
		m->to.prc[i] = p;
	}
}

static void merge_threads(struct merge *m)
{
	const struct lg_thread_tab *s = &m->src->thread;
	const int32_t *s_pid = m->src->process.pid;
	struct lg_thread_row r, old;

	for (size_t i = 1; i < s->n; i++) {
		lg_thr thr = 0;

#define C(type, name, unit, doc) r.name = s->name[i];
		LG_COLS_thread(C)
#undef C
		r.start = lg_renumber_time(&m->to, r.start);
		r.end = lg_renumber_time(&m->to, r.end);
		r.comm = m->to.str[r.comm];
		r.prc = m->to.prc[r.prc];
		if (r.prc < m->n_prc && r.tid >= 0)
			thr = lg_map_get(&m->by_tid, (uint32_t)r.tid);
		for (; thr; thr = m->older_thr[thr]) {
			old = lg_thread_read(m->b, thr);
			if (old.prc == r.prc && overlap(old.start, old.end, r.start, r.end))
				break;
		}
		if (!thr && r.prc < m->n_prc && r.flags & LG_THREAD_MAIN &&
		    (thr = main_thread(m, r.prc))) {
			old = lg_thread_read(m->b, thr);
			/* Two numbers in one pid namespace are two threads, whatever they are called. */
			if (old.tid >= 0 && r.tid >= 0 &&
			    lg_process_read(m->b, r.prc).pid == s_pid[s->prc[i]])
				thr = 0;
			else
				old.tid = old.tid >= 0 ? old.tid : r.tid;
		}
		if (thr) {
			old.start = old.start == INT64_MIN ? r.start : old.start;
			old.end = old.end == INT64_MAX ? r.end : old.end;
			old.comm = old.comm ? old.comm : r.comm;
			old.flags |= r.flags;
			lg_thread_write(m->b, thr, &old);
		} else {
			thr = lg_thread_add(m->b, &r);
		}
		m->to.thr[i] = thr;
	}
}

/* A CPU's or machine's track of a second machine needs a name of its own, and so has a device's of a
 * machine without a name: that of its file. */
static lg_str track_name(struct merge *m, const struct lg_track_row *r, lg_str name)
{
	const struct lg_trace *t = lg_builder_trace(m->b);
	char text[512];

	if (r->prc || r->thr || r->parent)
		return name;
	if (m->other_host && m->host)
		snprintf(text, sizeof text, "%s: %s", lg_string(t, m->host), lg_string(t, name));
	else if (m->other_gpus && r->kind == LG_TRACK_GPU)
		snprintf(text, sizeof text, "%s: %s", m->label, lg_string(t, name));
	else
		return name;
	return lg_intern(m->b, text);
}

static void merge_dictionaries(struct merge *m)
{
	const struct lg_trace *s = m->src;

	for (size_t i = 1; i < s->n_str; i++)
		m->to.str[i] = lg_intern_n(m->b, lg_string(s, (lg_str)i),
					s->str_off[i + 1] - s->str_off[i] - 1);
	merge_processes(m);
	merge_threads(m);
	for (size_t i = 1; i < s->frame.n; i++)
		m->to.frm[i] = lg_intern_frame(
			m->b, &(struct lg_frame_row){ .pc = s->frame.pc[i],
						      .dso = m->to.str[s->frame.dso[i]],
						      .name = m->to.str[s->frame.name[i]],
						      .file = m->to.str[s->frame.file[i]],
						      .line = s->frame.line[i],
						      .kind = s->frame.kind[i],
						      .build_id = m->to.str[s->frame.build_id[i]] });
	/* A parent is an older row than its child (seal.c), so it is mapped already. */
	for (size_t i = 1; i < s->stack.n; i++)
		m->to.stk[i] = lg_intern_stack(m->b, m->to.stk[s->stack.parent[i]],
					    m->to.frm[s->stack.frame[i]]);
	for (size_t i = 1; i < s->track.n; i++) {
		struct lg_track_row r = { .kind = s->track.kind[i],
					  .unit = m->to.str[s->track.unit[i]],
					  .prc = m->to.prc[s->track.prc[i]],
					  .thr = m->to.thr[s->track.thr[i]],
					  .parent = m->to.trk[s->track.parent[i]],
					  .index = s->track.index[i] };

		r.name = track_name(m, &r, m->to.str[s->track.name[i]]);
		m->to.trk[i] = lg_track_get(m->b, &r);
	}
}

/* One batch of a time table: columns that change are rewritten into mem, others are borrowed. */
static int merge_rows(struct merge *m, const struct lg_table_desc *d, size_t first, size_t n,
		      uint64_t *mem, const void **cols)
{
	const struct lg_tab *tab = lg_trace_table_const(m->src, d);

	for (size_t c = 0; c < d->n_cols; c++) {
		const char *at = (const char *)tab->col[c] + first * d->cols[c].size;
		const uint32_t *map = lg_renumber_ids(&m->to, d->cols[c].type), *id = (const void *)at;
		const int64_t *ts = (const void *)at;
		uint32_t *id_to = (uint32_t *)(mem + c * m->batch);
		int64_t *ts_to = (int64_t *)(mem + c * m->batch);
		uint64_t *u_to = mem + c * m->batch;
		const uint64_t *u = (const void *)at;

		cols[c] = at;
		if (map) {
			for (size_t i = 0; i < n; i++)
				id_to[i] = map[id[i]];
			cols[c] = id_to;
		} else if (m->to.offset && lg_is_time(&d->cols[c])) {
			for (size_t i = 0; i < n; i++)
				ts_to[i] = lg_renumber_time(&m->to, ts[i]);
			cols[c] = ts_to;
		} else if (m->to.tag && lg_is_object(&d->cols[c])) {
			for (size_t i = 0; i < n; i++)
				u_to[i] = u[i] ? u[i] ^ m->to.tag : 0;
			cols[c] = u_to;
		}
	}
	return lg_builder_put_columns(m->b, d, n, NULL, cols);
}

/* Facts about a second machine are kept apart by a key "<host>/<key>"; facts that the first source
 * of a machine gave already are not repeated. */
static int merge_meta(struct merge *m)
{
	const struct lg_meta_tab *s = &m->src->meta;
	struct lg_trace *t = lg_builder_trace(m->b);
	size_t had = t->meta.n;

	for (size_t i = 0; i < s->n; i++) {
		struct lg_meta_row r = { .ts = lg_renumber_time(&m->to, s->ts[i]),
					 .prc = m->to.prc[s->prc[i]],
					 .key = m->to.str[s->key[i]],
					 .value = m->to.str[s->value[i]] };
		size_t k = 0;

		if (!r.prc && m->other_host && m->host) {
			char text[512];

			snprintf(text, sizeof text, "%s/%s", lg_string(t, m->host),
				 lg_string(t, r.key));
			r.key = lg_intern(m->b, text);
		}
		while (k < had && (t->meta.key[k] != r.key || t->meta.prc[k] != r.prc ||
				   t->meta.value[k] != r.value))
			k++;
		if (k == had)
			lg_add_meta(m->b, &r);
	}
	return lg_builder_failed(m->b);
}

/* Sources of one process may lie apart: what it did between them nobody looked at (timeline/unseen.c). */
static void say_profiled(struct merge *m)
{
	const struct lg_trace *s = m->src;
	LG_AUTOFREE uint8_t *has = lg_calloc(s->process.n, 1);

	for (size_t i = 0; has && i < s->span.n; i++) {
		uint8_t kind = s->span.kind[i];

		if (s->span.thr[i] && (kind == LG_SPAN_OP || kind == LG_SPAN_RUNTIME || kind == LG_SPAN_NOTE))
			has[s->thread.prc[s->span.thr[i]]] = 1;
	}
	for (lg_prc p = 1; has && p < s->process.n; p++) {
		struct lg_meta_row r = { .ts = lg_renumber_time(&m->to, s->first),
					 .prc = m->to.prc[p],
					 .value = lg_intern(m->b, m->label) };

		if (!has[p])
			continue;
		r.key = lg_intern(m->b, LG_META_PROFILED_FROM);
		lg_add_meta(m->b, &r);
		r.ts = lg_renumber_time(&m->to, s->last);
		r.key = lg_intern(m->b, LG_META_PROFILED_TO);
		lg_add_meta(m->b, &r);
		r.key = lg_intern(m->b, LG_META_PROFILED_CUT);
		if (lg_has_diag(s, LG_DIAG_FILE_TRUNCATED))
			lg_add_meta(m->b, &r);
	}
}

static bool is_meta(const struct lg_trace *t, size_t row, lg_prc prc, const char *key)
{
	return t->meta.prc[row] == prc && !strcmp(lg_string(t, t->meta.key[row]), key);
}

bool lg_profiled_cut(const struct lg_trace *t, lg_prc prc)
{
	bool merged = false, cut = false;

	for (size_t i = 0; i < t->meta.n; i++) {
		merged |= is_meta(t, i, prc, LG_META_PROFILED_FROM);
		cut |= is_meta(t, i, prc, LG_META_PROFILED_CUT);
	}
	return merged ? cut : lg_has_diag(t, LG_DIAG_FILE_TRUNCATED);
}

bool lg_profiled_within(const struct lg_trace *t, lg_prc prc, struct lg_iv *ret)
{
	*ret = (struct lg_iv){ INT64_MAX, INT64_MIN, UINT32_MAX };
	for (size_t i = 0; i < t->meta.n; i++) {
		if (is_meta(t, i, prc, LG_META_PROFILED_FROM) && t->meta.ts[i] < ret->ts)
			ret->ts = t->meta.ts[i];
		if (is_meta(t, i, prc, LG_META_PROFILED_TO) && t->meta.ts[i] > ret->end)
			ret->end = t->meta.ts[i];
	}
	return ret->ts <= ret->end;
}

int lg_profiled_gaps(const struct lg_trace *t, lg_prc prc, struct lg_ivs *ret)
{
	const struct lg_meta_tab *m = &t->meta;
	LG_AUTO_IVS seen = { 0 };
	int rc = 0;

	*ret = (struct lg_ivs){ 0 };
	for (size_t i = 0; !rc && i < m->n; i++) {
		if (!is_meta(t, i, prc, LG_META_PROFILED_FROM))
			continue;
		for (size_t k = 0; !rc && k < m->n; k++)
			if (m->value[k] == m->value[i] && m->ts[k] >= m->ts[i] &&
			    is_meta(t, k, prc, LG_META_PROFILED_TO))
				rc = lg_iv_put(&seen, seen.n, m->ts[i], m->ts[k]);
	}
	rc = rc ?: lg_iv_join(&seen);
	for (size_t i = 1; !rc && i < seen.n; i++)
		rc = lg_iv_add(ret, seen.v[i - 1].end, seen.v[i].ts, UINT32_MAX);
	return rc;
}

static int merge_times(struct merge *m)
{
	size_t n_tab, n_cols = 0;
	const struct lg_table_desc *d = lg_schema(&n_tab);
	LG_AUTOFREE uint64_t *mem = NULL;
	LG_AUTOFREE const void **cols = NULL;
	int rc = 0;

	for (size_t i = 0; i < n_tab; i++) {
		size_t n = lg_trace_table_const(m->src, &d[i])->n;

		n_cols = d[i].n_cols > n_cols ? d[i].n_cols : n_cols;
		m->batch = n > m->batch ? n : m->batch;
	}
	m->batch = m->batch < BATCH_ROWS ? m->batch : BATCH_ROWS;
	mem = lg_calloc(n_cols * m->batch + 1, sizeof *mem);
	cols = lg_calloc(n_cols, sizeof *cols);
	if (!mem || !cols)
		return LG_E_NOMEM;
	for (size_t i = 0; i < n_tab && !rc; i++) {
		size_t n = lg_trace_table_const(m->src, &d[i])->n;

		if (d[i].is_dict || d[i].id == LG_TABLE_meta || lg_is_large(d[i].id))
			continue;
		for (size_t first = 0; first < n && !rc; first += m->batch)
			rc = merge_rows(m, &d[i], first, n - first < m->batch ? n - first : m->batch, mem,
					cols);
	}
	return rc ? rc : merge_meta(m);
}

static int merge(struct merge *m)
{
	int rc = prepare(m);

	if (!rc) {
		merge_dictionaries(m);
		rc = lg_builder_failed(m->b);
	}
	rc = rc ? rc : merge_times(m);
	if (!rc && m->label)
		say_profiled(m);
	return rc ? rc : lg_builder_failed(m->b);
}

int lg_merge_add(struct lg_merger *g, struct lg_builder *b, struct lg_trace *src, int64_t offset,
		 const char *label, struct lg_error *err)
{
	struct merge m = { .b = b, .src = src, .to.offset = offset, .label = label };
	int rc = lg_grow(&g->from, &g->cap, g->n + 1, sizeof *g->from);

	rc = rc ? rc : merge(&m);
	done(&m);
	if (rc) {
		lg_renumber_done(&m.to);
		lg_trace_free(src);
		return nomem(err);
	}
	g->from[g->n++] = (struct lg_merge_from){ src, m.to };
	return 0;
}

int lg_merge_finish(struct lg_merger *g, struct lg_builder *b, struct lg_error *err)
{
	int rc = g->n ? lg_merge_rows(b, g->from, g->n) : 0;

	return rc ? nomem(err) : 0;
}

void lg_merger_done(struct lg_merger *g)
{
	for (size_t i = 0; i < g->n; i++) {
		lg_renumber_done(&g->from[i].to);
		lg_trace_free(g->from[i].t);
	}
	lg_free(g->from);
	*g = (struct lg_merger){ 0 };
}
