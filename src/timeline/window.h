/* SPDX-License-Identifier: Apache-2.0 */
/* window.h - launches, host rows, steps and the window that is judged, and where its time went. */
#ifndef LG_TIMELINE_WINDOW_H
#define LG_TIMELINE_WINDOW_H
#include "base/map.h"
#include "timeline/timeline_gpu.h"

/* ---- gpu_launches.c ---- */
struct lg_launches;
/* Find r->work[].call, in a thread; until finish() nobody else may look at it. */
int lg_launches_start(const struct lg_scene *sc, struct lg_gpu *g, struct lg_gpu_run *r,
		      struct lg_launches **ret) LG_MUST_CHECK;
/* Meanwhile: the calls (rows) of r's copies, and of what. */
enum { LG_COPY_PAGEABLE = 1, LG_COPY_OTHER };
int lg_launches_copies(const struct lg_launches *l, struct lg_map *copies) LG_MUST_CHECK;
int lg_launches_finish(struct lg_launches *l) LG_MUST_CHECK;

/* ---- gpu_hosts.c ---- */
/* What is asked of every row is found once for each name and file; then threads only read it. */
void lg_gpu_classify_names(const struct lg_scene *sc, struct lg_gpu *g);
/* r->host, and what is told by one look at the rows of r's threads. */
int lg_gpu_hosts(const struct lg_scene *sc, struct lg_gpu *g, struct lg_gpu_run *r,
		 const struct lg_launches *l) LG_MUST_CHECK;
/* Does any of r's threads do that in the window? */
bool lg_gpu_does(const struct lg_gpu_run *r, enum lg_host_class class);
static inline bool lg_host_in_window(const struct lg_gpu_run *r, const struct lg_host_seg *s)
{
	return s->end > r->from && s->ts < r->to;
}
/* The first segment that ends after ts; h->n = none. */
size_t lg_host_after(const struct lg_gpu_host *h, int64_t ts);
/* What thr did at ts; NULL when it is in no span. */
const struct lg_host_seg *lg_host_at(const struct lg_gpu_host *h, int64_t ts);

/* ---- scope_of_trace.c ---- */
#define LG_COLD_CALL_NS 1000000ll   /* a call that only queues work takes microseconds */
#define LG_COLD_ALLOC_NS 10000000ll
/* May a row mark a step, or be a call for the first time? Few are: they are listed. */
static inline bool lg_scope_wants(uint8_t kind, enum lg_name_class name, int64_t dur)
{
	return kind == LG_SPAN_STEP || kind == LG_SPAN_NOTE || kind == LG_SPAN_STAGE ||
	       name == LG_NAME_STEP || name == LG_NAME_OPTIMIZER || name == LG_NAME_LOADER ||
	       (dur >= LG_COLD_CALL_NS && (name == LG_NAME_LAUNCH || name == LG_NAME_RUNTIME ||
					   name == LG_NAME_ALLOC || name == LG_NAME_FREE));
}
/* Steps and window of r, and what kind of run it is. */
int lg_scope_of_trace(const struct lg_scene *sc, struct lg_gpu *g, struct lg_gpu_run *r) LG_MUST_CHECK;
const char *lg_scope_name(enum lg_trace_shows k);
/* Does device work fill more than a tenth of (a, b)? One long collective may run beside all the others:
 * ends[i], when the last of the work up to i ends, says from where on to look; NULL: from the first on. */
bool lg_gpu_at_work(const struct lg_gpu_run *r, int64_t a, int64_t b, const int64_t *ends);
/* The step that ts lies in; n_steps when it is in none. */
size_t lg_gpu_step_of(const struct lg_gpu_run *r, int64_t ts);
/* The step in which the host was at ts, which may be ahead. */
size_t lg_gpu_asked_in(const struct lg_gpu_run *r, int64_t ts);

/* ---- step_ends.c ---- */
/* Where the device does much of the steps' work behind their end on the host, make them the device's. */
int lg_steps_of_device(const struct lg_scene *sc, struct lg_gpu_run *r) LG_MUST_CHECK;
/* From when the host's rows belong to the window. */
static inline int64_t lg_gpu_asked_from(const struct lg_gpu_run *r)
{
	return r->asked && r->asked[0] < r->from ? r->asked[0] : r->from;
}

/* ---- range_steps.c ---- */
/* Boundaries of steps told from ranges of thread m that come back, r's whole extent being known: *ret, freed
 * by the caller, *ret_n = 0: none. */
int lg_range_steps(const struct lg_scene *sc, struct lg_gpu *g, const struct lg_gpu_run *r,
		   const struct lg_gpu_host *m, const char **ret_name, int64_t **ret, size_t *ret_n)
	LG_MUST_CHECK;
/* Next of h's ranges that lie in no other one. */
struct lg_range_walk {
	const struct lg_gpu_host *h;
	size_t next;
	int64_t covered;
};
static inline struct lg_range_walk lg_range_walk(const struct lg_gpu_host *h)
{
	return (struct lg_range_walk){ .h = h, .covered = INT64_MIN + LG_GPU_ROUNDING_NS };
}
bool lg_range_next(const struct lg_trace *t, struct lg_range_walk *w, uint32_t *ret);
/* Names are equal but for the numbers in them. */
bool lg_range_same_name(const char *a, const char *b);
/* May ranges of that name be steps? A profiler's payload ({'mod': ...}) is no name. */
bool lg_range_may_be_step(const struct lg_scene *sc, struct lg_gpu *g, uint32_t row);
/* r->request and what belongs to it, of a run that has no steps. */
int lg_request_pool(const struct lg_scene *sc, struct lg_gpu *g, struct lg_gpu_run *r)
	LG_MUST_CHECK; /* request_pool.c */
/* Where the last of n steps ends, whose range ends at `end`; not after `to`. */
int64_t lg_last_step_end(const int64_t *begin, size_t n, int64_t end, int64_t to);

/* ---- unnamed_saves.c ---- */
/* What the main thread does becomes LG_HOST_SIDE where it fetches tensor after tensor; r->to is known. */
int lg_gpu_unnamed_saves(const struct lg_scene *sc, struct lg_gpu_run *r) LG_MUST_CHECK;

/* ---- unseen.c ---- */
/* r->unseen; its work and hosts are known. */
int lg_gpu_unseen(const struct lg_scene *sc, struct lg_gpu *g, struct lg_gpu_run *r) LG_MUST_CHECK;

/* ---- gpu_idle.c ---- */
/* Give every nanosecond of r's window to one cause. Pieces tile [from, to), but for r->unseen. Of several
 * runs each may be done in a thread of its own. Afterwards, also after a failure, the arena gets each one's
 * pieces. */
int lg_gpu_account(const struct lg_scene *sc, struct lg_gpu *g, struct lg_gpu_run *r) LG_MUST_CHECK;
int lg_gpu_keep_account(const struct lg_scene *sc, struct lg_gpu_run *r) LG_MUST_CHECK;

/* ---- timeline_gpu.c ---- */
/* Calls in r's window that launch kernels or graphs. */
size_t lg_gpu_launch_calls(const struct lg_scene *sc, struct lg_gpu *g, const struct lg_gpu_run *r);

#endif /* LG_TIMELINE_WINDOW_H */
