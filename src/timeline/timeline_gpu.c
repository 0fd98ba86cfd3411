/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline_gpu.c - collect what each process's device did.
 *
 * Of several devices of one process the busiest is judged: a union over devices would hide that
 * one of them idles.
 */
#include <stdlib.h>

#include "base/side_thread.h"
#include "timeline/cost.h"

bool lg_gpu_only(const struct lg_trace *t)
{
	if (t->state.n || t->sample.n)
		return false;
	for (size_t i = 0; i < t->span.n; i++)
		if (t->span.kind[i] == LG_SPAN_OP || t->span.kind[i] == LG_SPAN_KERNEL ||
		    t->span.kind[i] == LG_SPAN_COPY)
			return true;
	return lg_only_ranges(t);
}

bool lg_only_ranges(const struct lg_trace *t)
{
	bool ranges = false;

	if (t->state.n || t->sample.n)
		return false;
	for (size_t i = 0; i < t->span.n; i++) {
		uint8_t kind = t->span.kind[i];

		/* Marked steps are judged without this. */
		if (kind == LG_SPAN_OP || kind == LG_SPAN_KERNEL || kind == LG_SPAN_COPY ||
		    kind == LG_SPAN_STEP)
			return false;
		ranges |= kind == LG_SPAN_NOTE && t->span.thr[i];
	}
	return ranges;
}

/* The device a stream belongs to: the outermost track of its branch that is a device. */
static lg_trk device_of(const struct lg_trace *t, lg_trk k)
{
	lg_trk d = k;

	for (int i = 0; k && i < 8; i++, k = t->track.parent[k])
		if (t->track.kind[k] == LG_TRACK_GPU)
			d = k;
	return d;
}

static bool on_device(const struct lg_trace *t, size_t row)
{
	lg_trk k = t->span.track[row];
	uint8_t kind = t->span.kind[row];

	if (!k || t->span.thr[row] || t->span.dur[row] < 0 || t->span.dur[row] > LG_GPU_WEEK_NS)
		return false;
	if (t->track.kind[k] != LG_TRACK_STREAM && t->track.kind[k] != LG_TRACK_GPU)
		return false;
	return kind == LG_SPAN_KERNEL || kind == LG_SPAN_COPY || kind == LG_SPAN_COLLECTIVE ||
	       kind == LG_SPAN_MEMORY;
}

/* By start. */
struct device_rows {
	uint32_t *row;
	size_t n, cap;
};

static void classify(const struct lg_scene *sc, struct lg_gpu *g, struct lg_gpu_work *w)
{
	const char *name = lg_span_name(sc->t, w->span);

	w->class = LG_GPU_COMPUTE;
	if (sc->t->span.kind[w->span] == LG_SPAN_COLLECTIVE ||
	    lg_gpu_name(sc, g, sc->t->span.name[w->span]) == LG_NAME_COMM) {
		w->class = LG_GPU_COMM;
		return;
	}
	if (sc->t->span.kind[w->span] != LG_SPAN_COPY && !lg_on_list(LG_LIST_COPIES, name))
		return;
	if (lg_on_list(LG_LIST_COPIES_IN, name))
		w->class = LG_GPU_H2D;
	else if (lg_on_list(LG_LIST_COPIES_OUT, name))
		w->class = LG_GPU_D2H;
	w->pageable = lg_on_list(LG_LIST_COPIES_PAGEABLE, name);
}

static const char *meta_of(const struct lg_scene *sc, lg_prc prc, const char *key)
{
	const struct lg_meta_tab *m = &sc->t->meta;
	const char *v = NULL;

	for (size_t i = 0; i < m->n; i++)
		if ((m->prc[i] == prc || !m->prc[i]) && !strcmp(lg_string(sc->t, m->key[i]), key))
			v = lg_string(sc->t, m->value[i]);
	return v;
}

static void device_facts(const struct lg_scene *sc, struct lg_gpu_run *r, lg_trk device)
{
	int index = device && sc->t->track.index[device] > 0 ? sc->t->track.index[device] : 0;
	const char *v;

	v = meta_of(sc, r->prc, lg_arena_printf(sc->arena, "gpu.%d.name", index));
	r->device = v && *v ? v : NULL;
	v = meta_of(sc, r->prc, lg_arena_printf(sc->arena, "gpu.%d.compute", index));
	r->cc_major = v ? (int)strtol(v, NULL, 10) : 0; /* "9.0" */
	r->amd = meta_of(sc, r->prc, "hip.runtime") != NULL || (r->device && strstr(r->device, "AMD"));
}

/* Rows of device work by the process that owns them: row[off[prc] .. off[prc + 1]), by start. */
struct owned {
	uint32_t *off, *row;
};

static int sort_by_owner(const struct lg_trace *t, const lg_prc *owner, const struct device_rows *all,
			 struct owned *ret)
{
	LG_AUTOFREE lg_prc *of = lg_calloc(all->n, sizeof *of);

	for (size_t i = 0; of && i < all->n; i++)
		of[i] = owner[t->span.track[all->row[i]]];
	if (!of || lg_index_lists(of, all->n, t->process.n, &ret->off, &ret->row))
		return LG_E_NOMEM;
	for (size_t i = 0; i < all->n; i++)
		ret->row[i] = all->row[ret->row[i]];
	return 0;
}

/* Rows come by start. */
static void works_elsewhere(const struct lg_trace *t, struct lg_gpu_run *r, uint32_t row)
{
	int64_t ts = t->span.ts[row], end = ts + t->span.dur[row];
	struct lg_iv *last = r->n_other ? &r->other[r->n_other - 1] : NULL;

	r->n_elsewhere++;
	if (!last || ts > last->end)
		r->other[r->n_other++] = (struct lg_iv){ ts, end, row };
	else if (end > last->end)
		last->end = end;
}

/* The rows come in a moment. */
static void ahead(const struct lg_trace *t, const uint32_t *row, size_t n, size_t i)
{
	uint32_t k = row[i + LG_ROWS_AHEAD < n ? i + LG_ROWS_AHEAD : i];

	__builtin_prefetch(&t->span.ts[k]);
	__builtin_prefetch(&t->span.dur[k]);
	__builtin_prefetch(&t->span.track[k]);
	__builtin_prefetch(&t->span.name[k]);
	__builtin_prefetch(&t->span.kind[k]);
}

/* Work of prc's busiest device, by start. */
static int collect_work(const struct lg_scene *sc, struct lg_gpu *g, struct lg_gpu_run *r,
			const struct owned *owned)
{
	const struct lg_trace *t = sc->t;
	const uint32_t *row = owned->row + owned->off[r->prc];
	size_t n_rows = owned->off[r->prc + 1] - owned->off[r->prc], n = 0;
	LG_AUTOFREE int64_t *busy = NULL;
	lg_trk device = 0;

	if (!n_rows)
		return 0;
	busy = lg_calloc(t->track.n, sizeof *busy);
	if (!busy)
		return LG_E_NOMEM;
	for (size_t i = 0; i < n_rows; i++) {
		ahead(t, row, n_rows, i);
		busy[g->device[t->span.track[row[i]]]] += t->span.dur[row[i]] + 1;
	}
	for (lg_trk k = 1; k < t->track.n; k++) {
		r->n_others += busy[k] > 0;
		if (busy[k] > busy[device])
			device = k;
	}
	r->n_others -= r->n_others > 0;
	if (!device)
		return 0;
	for (size_t i = 0; i < n_rows; i++)
		n += g->device[t->span.track[row[i]]] == device;
	r->work = lg_arena_alloc(sc->arena, n + 1, sizeof *r->work);
	r->other = n < n_rows ? lg_arena_alloc(sc->arena, n_rows - n, sizeof *r->other) : NULL;
	if (!r->work || (n < n_rows && !r->other))
		return LG_E_NOMEM;
	for (size_t i = 0; i < n_rows; i++) {
		struct lg_gpu_work *w = &r->work[r->n_work];
		uint32_t k = row[i];

		ahead(t, row, n_rows, i);
		if (g->device[t->span.track[k]] != device) {
			works_elsewhere(t, r, k);
			continue;
		}
		*w = (struct lg_gpu_work){ .ts = t->span.ts[k], .end = t->span.ts[k] + t->span.dur[k],
					   .span = k, .call = LG_NO_ROW, .stream = t->span.track[k] };
		classify(sc, g, w);
		r->n_work++;
	}
	device_facts(sc, r, device);
	return 0;
}

/* Processes that own a device track, or ran operators (or where there is nothing else: have ranges); and the
 * rows of device work. */
static int find_runs(const struct lg_scene *sc, struct lg_gpu *g, lg_prc *owner, struct device_rows *rows)
{
	const struct lg_trace *t = sc->t;
	LG_AUTOFREE uint8_t *has = lg_calloc(t->process.n, 1);
	uint8_t host = lg_only_ranges(t) ? LG_SPAN_NOTE : LG_SPAN_OP;
	lg_prc only = 0;
	size_t n = 0;

	if (!has)
		return LG_E_NOMEM;
	for (uint32_t i = 0; i < t->span.n; i++) {
		if (t->span.thr[i]) {
			if (t->span.kind[i] == host)
				has[t->thread.prc[t->span.thr[i]]] = 1;
			continue;
		}
		if (!on_device(t, i))
			continue;
		if (LG_APPEND(rows->row, rows->n, rows->cap, i))
			return LG_E_NOMEM;
	}
	for (lg_prc p = 1; p < t->process.n; p++)
		if (has[p]) {
			only = n ? 0 : p;
			n++;
		}
	for (lg_trk k = 1; k < t->track.n; k++) {
		lg_trk up = k;

		for (int i = 0; up && !owner[k] && i < 8; i++, up = t->track.parent[up])
			owner[k] = t->track.prc[up] ? t->track.prc[up]
				   : t->track.thr[up] ? t->thread.prc[t->track.thr[up]] : 0;
		if (!owner[k])
			owner[k] = only; /* one process with operators: the device is its own */
	}
	for (size_t i = 0; i < rows->n; i++)
		if (owner[t->span.track[rows->row[i]]])
			has[owner[t->span.track[rows->row[i]]]] = 1;
	g->run = lg_arena_alloc(sc->arena, t->process.n + 1, sizeof *g->run);
	for (lg_prc p = 1; g->run && p < t->process.n; p++)
		if (has[p])
			g->run[g->n++] = (struct lg_gpu_run){ .prc = p, .rank = t->process.rank[p] };
	return g->run ? 0 : LG_E_NOMEM;
}

LG_ORDER_BY(cmp_run, struct lg_gpu_run, LG_CMP(x->rank, y->rank) ?: LG_CMP(x->prc, y->prc))

static int collect_launches_and_hosts(const struct lg_scene *sc, struct lg_gpu *g, struct lg_gpu_run *r)
{
	struct lg_launches *l;
	int rc = lg_launches_start(sc, g, r, &l), also;

	if (rc)
		return rc;
	rc = lg_gpu_hosts(sc, g, r, l);
	also = lg_launches_finish(l);
	return rc ? rc : also;
}

size_t lg_gpu_launch_calls(const struct lg_scene *sc, struct lg_gpu *g, const struct lg_gpu_run *r)
{
	size_t n = 0;

	for (size_t h = 0; h < r->n_host; h++)
		LG_EACH(s, r->host[h].seg, r->host[h].n) {
			enum lg_name_class name;

			if (s->class != LG_HOST_LAUNCH || s->span == LG_NO_ROW ||
			    s->ts < lg_gpu_asked_from(r) ||
			    s->ts >= r->to || s->ts != sc->t->span.ts[s->span])
				continue;
			name = lg_gpu_name(sc, g, sc->t->span.name[s->span]);
			n += name == LG_NAME_LAUNCH || name == LG_NAME_GRAPH_LAUNCH;
		}
	return n;
}

static int look_at(const struct lg_scene *sc, struct lg_gpu *g, struct lg_gpu_run *r,
		   const struct owned *owned)
{
	int rc = collect_work(sc, g, r, owned) ?: collect_launches_and_hosts(sc, g, r) ?:
		 lg_gpu_unseen(sc, g, r) ?: lg_scope_of_trace(sc, g, r);

	return rc || !lg_gpu_judged(r) ? rc : lg_gpu_unnamed_saves(sc, r);
}

/* Every other run, from the first on. */
struct half {
	struct lg_scene sc;
	struct lg_gpu *g;
	const struct owned *owned;
	size_t first;
	int rc;
};

static void look_at_half(void *arg)
{
	struct half *h = arg;

	for (size_t i = h->first; i < h->g->n && !h->rc; i += 2)
		h->rc = look_at(&h->sc, h->g, &h->g->run[i], h->owned);
}

static int look_at_all(const struct lg_scene *sc, struct lg_gpu *g, const struct owned *owned)
{
	enum { WORTH_A_THREAD = 1 << 18 };
	struct lg_arena arena = { 0 };
	struct half one = { .sc = *sc, .g = g, .owned = owned }, other = one;
	struct lg_side_thread beside;

	other.sc.arena = &arena;
	other.first = 1;
	lg_side_thread_start(&beside, g->n > 1 && sc->t->span.n > WORTH_A_THREAD, look_at_half, &other);
	look_at_half(&one);
	lg_side_thread_wait(&beside);
	lg_arena_join(sc->arena, &arena);
	return one.rc ? one.rc : other.rc;
}

int lg_gpu_new(struct lg_scene *sc, struct lg_gpu *ret, struct lg_error *err)
{
	LG_AUTOFREE lg_prc *owner = lg_calloc(sc->t->track.n + 1, sizeof *owner);
	struct device_rows rows = { 0 };
	struct owned owned = { 0 };
	int rc = 0;

	*ret = (struct lg_gpu){ 0 };
	ret->device = lg_arena_alloc(sc->arena, sc->t->track.n + 1, sizeof *ret->device);
	ret->name_class = lg_arena_alloc(sc->arena, sc->t->n_str + 1, 1);
	ret->file_class = lg_arena_alloc(sc->arena, sc->t->n_str + 1, 1);
	if (!owner || !ret->device || !ret->name_class || !ret->file_class)
		rc = LG_E_NOMEM;
	for (lg_trk k = 1; !rc && k < sc->t->track.n; k++)
		ret->device[k] = device_of(sc->t, k);
	if (!rc)
		rc = find_runs(sc, ret, owner, &rows);
	LG_SORT(ret->run, ret->n, cmp_run);
	if (!rc)
		rc = sort_by_owner(sc->t, owner, &rows, &owned);
	if (!rc)
		rc = lg_span_names(sc);
	if (!rc) {
		lg_gpu_classify_names(sc, ret);
		rc = look_at_all(sc, ret, &owned);
	}
	lg_free(rows.row);
	lg_free(owned.off);
	lg_free(owned.row);
	return rc ? lg_fail(err, rc, LG_NO_OFFSET, "out of memory") : 0;
}
