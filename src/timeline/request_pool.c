/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request_pool.c - requests that the threads of a pool serve, each its own: ranges (record_function, NVTX),
 * or else Python functions, of one name that come back on several threads and hold the work.
 *
 * They overlap, so they are no steps of the process: nothing divides its time into them, and its window is
 * judged as one piece. How many there were and how long each took is told.
 */
#include "timeline/cost.h"
#include "base/map.h"
#include "base/upper_bound.h"

enum { REQUESTS_MIN = 3, A_THREAD_MIN = 2, NAMES_MAX = 512 };

struct name {
	lg_str name;
	size_t n, threads;
	int64_t ns;
	size_t host;   /* the last one that has it, */
	int64_t until; /* and until when: a function that calls itself is one */
};

struct names {
	struct name *v;
	size_t n, cap;
	bool frames;   /* Python functions, not ranges */
};

static bool is_like(const struct lg_trace *t, bool frames, lg_str a, lg_str b)
{
	return a == b || (!frames && lg_range_same_name(lg_string(t, a), lg_string(t, b)));
}

/* The next row of h that may be a request; of frames *at is the place in the thread's rows. */
static bool next_row(const struct lg_scene *sc, struct lg_gpu *g, bool frames, struct lg_range_walk *w,
		     uint32_t *at, uint32_t *ret)
{
	const struct lg_trace *t = sc->t;

	while (!frames && lg_range_next(t, w, ret))
		if (lg_range_may_be_step(sc, g, *ret))
			return true;
	while (frames && *at < sc->idx->span_off[w->h->thr + 1]) {
		*ret = sc->idx->span[(*at)++];
		if (t->span.kind[*ret] == LG_SPAN_PYTHON &&
		    lg_gpu_name(sc, g, t->span.name[*ret]) == LG_NAME_FRAME)
			return true;
	}
	return false;
}

static int add_name(struct names *a, struct lg_map *by_name, const struct lg_trace *t, uint32_t row,
		    size_t host)
{
	int64_t ts = t->span.ts[row], end = lg_span_end(t, row);
	lg_str name = t->span.name[row];
	uint32_t k = lg_map_get(by_name, name);
	struct name *x;

	for (size_t i = 0; !k && !a->frames && i < a->n; i++)
		k = is_like(t, false, a->v[i].name, name) ? (uint32_t)i + 1 : 0;
	if (k > NAMES_MAX)
		return 0;
	if (!k && a->n == NAMES_MAX) /* remembered, so that it is looked for once */
		return lg_map_set(by_name, name, NAMES_MAX + 1);
	if (!k) {
		if (LG_APPEND(a->v, a->n, a->cap, (struct name){ .name = name, .host = SIZE_MAX }))
			return LG_E_NOMEM;
		k = (uint32_t)a->n;
	}
	if (!lg_map_get(by_name, name) && lg_map_set(by_name, name, k))
		return LG_E_NOMEM;
	x = &a->v[k - 1];
	if (x->host == host && ts < x->until)
		return 0;
	x->threads += x->host != host;
	x->host = host;
	x->until = end;
	x->n++;
	x->ns += end - ts;
	return 0;
}

/* The name that takes most time of those that come back on several threads; 0 = none. */
static int best_name(const struct lg_scene *sc, struct lg_gpu *g, const struct lg_gpu_run *r, bool frames,
		     lg_str *ret)
{
	struct names a = { .frames = frames };
	struct lg_map by_name = { 0 };
	int64_t most = 0;
	int rc = 0;

	*ret = 0;
	for (size_t h = 0; h < r->n_host; h++) {
		struct lg_range_walk w = lg_range_walk(&r->host[h]);
		uint32_t at = sc->idx->span_off[r->host[h].thr], row;

		while (!rc && next_row(sc, g, frames, &w, &at, &row))
			rc = add_name(&a, &by_name, sc->t, row, h);
	}
	for (size_t i = 0; i < a.n; i++)
		if (a.v[i].threads >= 2 && a.v[i].n >= REQUESTS_MIN &&
		    a.v[i].n >= A_THREAD_MIN * a.v[i].threads && a.v[i].ns > most) {
			most = a.v[i].ns;
			*ret = a.v[i].name;
		}
	lg_free(a.v);
	lg_map_done(&by_name);
	return rc;
}

LG_ORDER_BY(cmp_request, struct lg_request, LG_CMP(x->thr, y->thr) ?: LG_CMP(x->ts, y->ts))

/* r->request[], by thread. */
static int collect(const struct lg_scene *sc, struct lg_gpu *g, struct lg_gpu_run *r, bool frames,
		   lg_str name)
{
	const struct lg_trace *t = sc->t;
	size_t cap = 0, n = 0;
	LG_AUTOFREE struct lg_request *v = NULL;

	r->n_request_threads = 0;
	for (size_t h = 0; h < r->n_host; h++) {
		struct lg_range_walk w = lg_range_walk(&r->host[h]);
		uint32_t at = sc->idx->span_off[r->host[h].thr], row;
		size_t first = n;

		while (next_row(sc, g, frames, &w, &at, &row)) {
			int64_t ts = t->span.ts[row], end = lg_span_end(t, row);

			if (!is_like(t, frames, name, t->span.name[row]) || end <= ts ||
			    (n > first && ts < v[n - 1].end))
				continue;
			if (LG_APPEND(v, n, cap, (struct lg_request){ ts, end, r->host[h].thr }))
				return LG_E_NOMEM;
		}
		r->n_request_threads += n > first;
	}
	r->request = lg_arena_alloc(sc->arena, n + 1, sizeof *r->request);
	if (r->request && n) {
		memcpy(r->request, v, n * sizeof *v);
		LG_SORT(r->request, n, cmp_request);
	}
	r->n_requests = n;
	r->requests_from = lg_string(t, name);
	return r->request ? 0 : LG_E_NOMEM;
}

/* The last one of thr that does not begin after ts. */
static bool in_request(const struct lg_gpu_run *r, lg_thr thr, int64_t ts)
{
	const struct lg_request key = { .ts = ts, .thr = thr }, *x;
	size_t lo = 0, hi = r->n_requests;

	LG_BISECT(lo, hi, mid, cmp_request(&r->request[mid], &key) <= 0);
	x = lo ? &r->request[lo - 1] : NULL;
	return x && x->thr == thr && ts < x->end;
}

/* ns in which at least one request is served; *ret_sum: of all. */
static int served(const struct lg_gpu_run *r, int64_t *ret, int64_t *ret_sum)
{
	LG_AUTO_IVS a = { 0 };
	int rc = 0;

	*ret_sum = 0;
	for (size_t i = 0; i < r->n_requests && !rc; i++) {
		rc = lg_iv_put(&a, a.n, r->request[i].ts, r->request[i].end);
		*ret_sum += r->request[i].end - r->request[i].ts;
	}
	rc = rc ? rc : lg_iv_join(&a);
	*ret = lg_iv_sum(&a);
	return rc;
}

/* Is half of the device's time ordered in them, or without a device half of the window served? Of many rows
 * every k-th is asked for. */
static int hold_the_work(struct lg_gpu_run *r, bool *ret)
{
	size_t stride = r->n_work / 4096 + 1;
	int64_t in = 0, all = 0, any, sum;
	int rc = served(r, &any, &sum);

	for (size_t i = 0; i < r->n_work && !rc; i += stride) {
		const struct lg_gpu_work *w = &r->work[i];

		all += w->end - w->ts;
		if (w->call != LG_NO_ROW && in_request(r, w->caller, w->called))
			in += w->end - w->ts;
	}
	*ret = r->n_work ? in * 2 >= all : any * 2 >= r->to - r->from;
	r->requests_at_once = any > 0 ? (double)sum / (double)any : 0;
	return rc;
}

int lg_request_pool(const struct lg_scene *sc, struct lg_gpu *g, struct lg_gpu_run *r)
{
	for (int frames = 0; frames < 2 && r->n_host > 1; frames++) {
		lg_str name;
		bool hold = false;

		if (frames && !r->has_frames)
			break;
		if (best_name(sc, g, r, frames, &name) || (name && collect(sc, g, r, frames, name)) ||
		    (name && hold_the_work(r, &hold)))
			return LG_E_NOMEM;
		if (hold)
			return 0;
		r->n_requests = 0;
	}
	return 0;
}
