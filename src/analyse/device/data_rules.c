/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data_rules.c - the device waits for its next batch, or for the copy of it.
 *
 * Only idle device time counts: a loader that works while kernels run costs nothing.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyse/device/device_rules.h"
#include "analyse/device/finders.h"
#include "analyse/timeline/cost.h"
#include "analyse/timeline/cpu_time.h"
#include "base/alloc.h"

#define BIT(cause) (1u << (cause))

struct waits {
	int64_t *v;      /* exposed wait of each __next__ */
	size_t n;
	bool single;     /* _SingleProcessDataLoaderIter: no workers */
	int64_t longest, at, sum;
};

static int cmp_desc(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x < y) - (x > y);
}

/* Exposed wait by call of the loader. */
static int waits_of(const struct lg_case *c, const struct lg_gpu_run *r, struct waits *w)
{
	uint32_t last = LG_NO_ROW;
	size_t cap = 0;

	*w = (struct waits){ 0 };
	for (size_t i = 0; i < r->n_pieces; i++) {
		const struct lg_gpu_piece *p = &r->piece[i];

		if (p->cause != LG_GPU_BY_LOADER || p->span == LG_NO_ROW)
			continue;
		if (p->span != last) {
			if (lg_grow(&w->v, &cap, w->n + 1, sizeof *w->v))
				return LG_E_NOMEM;
			w->v[w->n++] = 0;
			last = p->span;
		}
		w->v[w->n - 1] += p->dur;
		w->sum += p->dur;
		if (p->dur > w->longest) {
			w->longest = p->dur;
			w->at = p->ts;
		}
		w->single |= strstr(lg_string(c->t, c->t->span.name[p->span]), "_SingleProcess") != NULL;
	}
	if (w->n)
		qsort(w->v, w->n, sizeof *w->v, cmp_desc);
	return 0;
}

static void loader(struct lg_case *c, const struct lg_gpu *g)
{
	const struct lg_gpu_run *r = NULL;
	double share, lost = lg_gpu_lost(g, BIT(LG_GPU_BY_LOADER), &share, &r);
	struct lg_finding *f;
	struct waits w;
	size_t steps;

	if (!r || share < LG_N_DATA_LOADER_WAIT_DEVICE)
		return;
	if (waits_of(c, r, &w)) {
		lg_free(w.v);
		c->failed = LG_E_NOMEM;
		return;
	}
	f = lg_gpu_finding(c, g, LG_R_DATA_LOADER_WAIT, lost, share, 0.93, r);
	if (!f) {
		lg_free(w.v);
		return;
	}
	steps = r->n_steps > w.n ? r->n_steps : w.n;
	f->stage = lg_stage_name(LG_STAGE_BATCH_WAIT);
	lg_gpu_cap_rare(c, f, r, BIT(LG_GPU_BY_LOADER));
	if (w.single)
		f->detail = "workers_zero";
	else if (steps >= 4 && w.n && w.v[0] * 5 > w.sum * 4)
		f->detail = "respawn"; /* one wait is four fifths of all: workers were started */
	else if (steps >= 8 && w.n) {
		/* A few calls wait, the others find their batch ready: workers deliver in bursts. */
		int64_t few = 0;

		for (size_t i = 0; i < steps / 3 && i < w.n; i++)
			few += w.v[i];
		if (few * 5 > w.sum * 4)
			f->detail = "burst";
	}
	f->title = lg_arena_printf(&c->v->arena, "the device idles %.0f %% of the time waiting for the next "
				   "batch%s", share * 100,
				   w.single ? ": the loader has no workers (num_workers=0) and works on "
					      "the training thread"
				   : f->detail && !strcmp(f->detail, "respawn")
					   ? ", nearly all of it in one wait, as where workers are started anew"
				   : f->detail ? ", in some steps only: the workers deliver in bursts" : "");
	if (w.n)
		lg_evidence_add(c, f, w.at, w.longest, "%zu waits of the loader with an idle device, %.1f ms "
				"in the median, %.1f ms at most", w.n, (double)w.v[w.n / 2] / 1e6,
				(double)w.v[0] / 1e6);
	if (f->detail && !strcmp(f->detail, "respawn"))
		lg_evidence_against(c, f, "one batch that was late for another reason (storage, a large sample) looks "
				    "the same");
	lg_gpu_moments(c, f, r, BIT(LG_GPU_BY_LOADER), 3, "device idle");
	lg_free(w.v);
}

/* Large copies to the device in the window. */
struct large {
	size_t n, n_sizes;
	uint64_t bytes;
	int64_t ns;
};

static int cmp_size(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static int large_copies(const struct lg_case *c, const struct lg_gpu_run *r, struct large *ret)
{
	LG_AUTOFREE uint64_t *size = lg_calloc(r->n_work, sizeof *size);

	*ret = (struct large){ 0 };
	if (!size)
		return LG_E_NOMEM;
	for (size_t i = 0; i < r->n_work; i++) {
		const struct lg_gpu_work *w = &r->work[i];
		uint64_t bytes = c->t->span.bytes[w->span];

		if (w->class != LG_GPU_H2D || w->ts < r->from || w->end > r->to ||
		    bytes < LG_N_DATA_SERIAL_COPY_MEGABYTES * 1000000ull)
			continue;
		size[ret->n++] = bytes;
		ret->bytes += bytes;
		ret->ns += w->end - w->ts;
	}
	qsort(size, ret->n, sizeof *size, cmp_size);
	for (size_t i = 0; i < ret->n; i++)
		ret->n_sizes += !i || size[i] != size[i - 1];
	return 0;
}

/* Many copies of few sizes are no batches, which are one or two a step: layers of a model lie on the host. */
static void tell_weights(struct lg_case *c, struct lg_finding *f, const struct lg_gpu_run *r, double share)
{
	struct large l;
	double parts = r->n_steps ? (double)r->n_steps : 1;

	if (large_copies(c, r, &l)) {
		c->failed = LG_E_NOMEM;
		return;
	}
	if (l.n < LG_N_DATA_SERIAL_COPY_WEIGHTS || l.n_sizes * 8 > l.n || (double)l.n < 8 * parts)
		return;
	f->detail = "weights";
	f->title = lg_arena_printf(&c->v->arena, "weights are streamed from the host: %.0f copies a %s, %.2f GB at %.1f "
				   "GB/s, for which the device idles %.0f %% of the time", (double)l.n / parts,
				   r->n_steps ? "step" : "window", (double)l.bytes / parts / 1e9,
				   (double)l.bytes / (double)l.ns, share * 100);
	lg_evidence_add(c, f, INT64_MIN, 0, "%zu copies of %zu size%s, %.1f MB in the mean: batches are one or two a step",
			l.n, l.n_sizes, l.n_sizes == 1 ? "" : "s", (double)l.bytes / (double)l.n / 1e6);
}

static void pageable(struct lg_case *c, const struct lg_gpu *g)
{
	const struct lg_gpu_run *r = NULL;
	double share, lost = lg_gpu_lost(g, BIT(LG_GPU_BY_PAGEABLE), &share, &r);
	uint64_t bytes = 0;
	size_t n = 0;
	struct lg_finding *f;

	if (!r || share < LG_N_DATA_PAGEABLE_COPY_FLOOR)
		return;
	for (size_t i = 0; i < r->n_work; i++)
		if (r->work[i].class == LG_GPU_H2D && r->work[i].pageable &&
		    r->work[i].ts >= r->from && r->work[i].ts < r->to) {
			bytes += c->t->span.bytes[r->work[i].span];
			n++;
		}
	if (!n)
		return;
	f = lg_gpu_finding(c, g, LG_R_DATA_PAGEABLE_COPY, lost, share, r->amd ? 0.75 : 0.88, r);
	if (!f)
		return;
	f->stage = lg_stage_name(LG_STAGE_H2D);
	lg_gpu_cap_rare(c, f, r, BIT(LG_GPU_BY_PAGEABLE));
	lg_gpu_moments(c, f, r, BIT(LG_GPU_BY_PAGEABLE), 4, "device idle");
	f->title = lg_arena_printf(&c->v->arena, "host to device copies that make the host wait (%s) cost "
				   "%.0f %% of the device's time: the copy itself, and the lead that "
				   "the host loses", r->amd ? "synchronous copy calls" : "pageable memory",
				   share * 100);
	tell_weights(c, f, r, share);
	lg_evidence_add(c, f, INT64_MIN, 0, "%zu such copies, %.1f MB", n, (double)bytes / 1e6);
	if (r->amd)
		lg_evidence_against(c, f, "ROCm's trace does not say whether the memory was pinned: the calls "
				     "waited, that is measured");
}

/* How long copies to the device take that an optimizer's step orders: parameters, and no batch. */
static int64_t optimizers_copies(struct lg_case *c, struct lg_gpu *g, const struct lg_gpu_run *r)
{
	const struct lg_trace *t = c->t;
	struct lg_gpu_ivs steps = { 0 };
	int64_t sum = 0;

	for (size_t h = 0; h < r->n_host; h++)
		for (size_t p = 0; r->host[h].thr == r->main && p < r->host[h].n_marks; p++) {
			uint32_t row = r->host[h].mark[p];

			if (lg_gpu_name(c, g, t->span.name[row]) == LG_NAME_OPTIMIZER &&
			    lg_gpu_iv_add(&steps, t->span.ts[row],
					  lg_row_end(t, t->span.ts[row], t->span.dur[row]), row))
				c->failed = LG_E_NOMEM;
		}
	for (size_t i = 0; steps.n && i < r->n_work; i++) {
		const struct lg_gpu_work *w = &r->work[i];

		if (w->class == LG_GPU_H2D && w->call != LG_NO_ROW &&
		    lg_gpu_within(&steps, t->span.ts[w->call]))
			sum += w->end - w->ts;
	}
	lg_free(steps.v);
	return sum;
}

/* Pinned copies that nothing overlapped. On the compute stream they cannot overlap. */
static void serial(struct lg_case *c, struct lg_gpu *g)
{
	const struct lg_gpu_run *r = NULL;
	double share, lost = lg_gpu_lost(g, BIT(LG_GPU_BY_PINNED), &share, &r);
	int64_t same = 0, all = 0;
	lg_trk compute = 0;
	int64_t *busy;
	struct lg_finding *f;

	if (!r || share < LG_N_DATA_SERIAL_COPY_FLOOR)
		return;
	busy = lg_calloc(c->t->track.n, sizeof *busy);
	if (!busy) {
		c->failed = LG_E_NOMEM;
		return;
	}
	for (size_t i = 0; i < r->n_work; i++)
		if (r->work[i].class == LG_GPU_COMPUTE)
			busy[r->work[i].stream] += r->work[i].end - r->work[i].ts;
	for (lg_trk k = 1; k < c->t->track.n; k++)
		if (busy[k] > busy[compute])
			compute = k;
	lg_free(busy);
	for (size_t i = 0; i < r->n_work; i++)
		if (r->work[i].class == LG_GPU_H2D) {
			all += r->work[i].end - r->work[i].ts;
			same += r->work[i].stream == compute ? r->work[i].end - r->work[i].ts : 0;
		}
	f = lg_gpu_finding(c, g, LG_R_DATA_SERIAL_COPY, lost, share, same * 2 > all ? 0.88 : 0.7, r);
	if (!f)
		return;
	f->stage = lg_stage_name(LG_STAGE_H2D);
	f->title = lg_arena_printf(&c->v->arena, "host to device copies run alone for %.0f %% of the device's "
				   "time: %s", share * 100,
				   same * 2 > all ? "they are on the compute stream, so nothing can overlap them"
						  : "no kernel is ready while they run");
	if (optimizers_copies(c, g, r) * 2 > all) {
		f->detail = "optimizer";
		f->stage = lg_stage_name(LG_STAGE_OPTIMIZER);
		f->title = lg_arena_printf(&c->v->arena, "copies to the device run alone for %.0f %% of its time: the "
					   "optimizer's step orders them, as where it works on the host", share * 100);
	} else {
		tell_weights(c, f, r, share);
	}
	lg_gpu_cap_rare(c, f, r, BIT(LG_GPU_BY_PINNED));
	lg_gpu_moments(c, f, r, BIT(LG_GPU_BY_PINNED), 3, "copying alone");
}

/* Does the loader work in the main process? */
static bool in_process(const struct lg_trace *t, const struct lg_cpu_time *l)
{
	return l->row != LG_NO_ROW && strstr(lg_string(t, t->span.name[l->row]), "_SingleProcess");
}

/* Training on the CPU: the loader's time on the main thread is exposed as it is. Of several ranks, the one
 * that waits longest for its batches makes the others wait. */
static void loader_on_cpu(struct lg_case *c, const struct lg_gpu *g)
{
	struct lg_cpu_time l;
	struct lg_finding *f;
	const char *because;
	bool little;

	if (lg_cpu_time_most(c, g, LG_HOST_LOADER, &l)) {
		c->failed = LG_E_NOMEM;
		return;
	}
	if (!l.r || lg_cpu_share(&l) < LG_N_DATA_LOADER_WAIT_CPU)
		return;
	little = lg_cpu_share(&l) < LG_N_DATA_LOADER_WAIT_CPU_LITTLE;
	f = lg_gpu_finding(c, g, LG_R_DATA_LOADER_WAIT, (double)l.sum / 1e6, lg_cpu_share(&l), 0.85, l.r);
	if (!f)
		return;
	f->stage = lg_stage_name(LG_STAGE_BATCH_WAIT);
	lg_gpu_cap_steps(c, f, l.r, l.by_step);
	/* To take a batch that is ready has its cost, too: little of it is no trouble. */
	f->ordinary = little;
	if (little)
		lg_cap(f, LG_CAP_ORDINARY);
	f->detail = in_process(c->t, &l) ? "workers_zero" : NULL;
	because = f->detail ? ": the loader has no workers (num_workers=0)" : "";
	f->title = lg_arena_printf(&c->v->arena, little ? "the loader takes %.1f %% of the step's time%s" :
				   "the step waits %.0f %% of its time for the next batch%s",
				   100 * f->lost_share, because);
	f->title = lg_arena_printf(&c->v->arena, "%s%s", f->title,
				   little ? "" : lg_cpu_only_on(c, f, &l));
	if (little && !f->detail)
		lg_evidence_against(c, f, "to take a batch that is ready has its cost, too: not all of this "
				    "is a wait");
	lg_evidence_add(c, f, l.at, l.longest, "%zu stretches in the loader, %.1f ms in all; longest", l.n,
			(double)l.sum / 1e6);
}

int lg_find_data(struct lg_case *c, struct lg_gpu *g)
{
	loader(c, g);
	pageable(c, g);
	serial(c, g);
	if (lg_gpu_only(c->t)) /* a recording judges its loader by wait chains */
		loader_on_cpu(c, g);
	return c->failed;
}
