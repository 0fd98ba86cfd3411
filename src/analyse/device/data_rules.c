/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data_rules.c - the device waits for its next batch, or for the copy of it.
 *
 * Only idle device time counts: a loader that works while kernels run costs nothing.
 */
#include <stdlib.h>

#include "analyse/device/cpu_rules.h"
#include "base/median.h"
#include "base/words.h"

struct waits {
	int64_t *v;      /* exposed wait of each __next__, the longest last */
	size_t n;
	bool single;     /* _SingleProcessDataLoaderIter: no workers */
	int64_t longest, at, sum;
};

/* Exposed wait by call of the loader. */
static int waits_of(const struct lg_case *c, const struct lg_gpu_run *r, struct waits *w)
{
	uint32_t last = LG_NO_ROW;
	size_t cap = 0;

	*w = (struct waits){ 0 };
	LG_EACH_WHERE(p->cause == LG_GPU_BY_LOADER && p->span != LG_NO_ROW, p, r->piece,
		      r->n_pieces) {
		if (p->span != last) {
			if (LG_APPEND(w->v, w->n, cap, 0))
				return LG_E_NOMEM;
			last = p->span;
		}
		w->v[w->n - 1] += p->dur;
		w->sum += p->dur;
		lg_keep_longest(&w->longest, &w->at, p->dur, p->ts);
		w->single |= strstr(lg_span_name(c->t, p->span), "_SingleProcess") != NULL;
	}
	LG_SORT(w->v, w->n, lg_cmp_i64);
	return 0;
}

/* The longest n of them. */
static int64_t longest(const struct waits *w, size_t n)
{
	int64_t sum = 0;

	for (size_t i = 0; i < n && i < w->n; i++)
		sum += w->v[w->n - 1 - i];
	return sum;
}

/* How the waits lie; NULL: in no way that tells more. */
static const char *way_of(const struct waits *w, size_t steps)
{
	if (w->single)
		return "workers_zero";
	if (steps >= 4 && w->n && longest(w, 1) * 5 > w->sum * 4)
		return "respawn"; /* one wait is four fifths of all: workers were started */
	/* A few calls wait, the others find their batch ready: workers deliver in bursts. */
	return steps >= 8 && w->n && longest(w, steps / 3) * 5 > w->sum * 4 ? "burst" : NULL;
}

static void tell_loader(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_loss *l,
			const struct waits *w)
{
	const struct lg_gpu_run *r = l->worst;
	struct lg_finding *f = lg_gpu_idles(c, g, LG_R_DATA_LOADER_WAIT, l, 0, 0.93);
	bool respawn;

	f->detail = way_of(w, LG_MAX(r->n_steps, w->n));
	respawn = f->detail && !strcmp(f->detail, "respawn");
	lg_title(c, f, LG_SAYS_DATA_LOADER_WAIT_TITLE, l->share * 100, w->single ?
		 LG_SAYS_DATA_LOADER_WAIT_NO_WORKERS : respawn ? LG_SAYS_DATA_LOADER_WAIT_RESPAWN :
		 f->detail ? LG_SAYS_DATA_LOADER_WAIT_BURST : "");
	if (w->n)
		lg_evidence_add(c, f, w->at, w->longest, LG_SAYS_DATA_LOADER_WAIT_WAITS, w->n,
				(double)w->v[(w->n - 1) / 2] / 1e6, lg_ms(w->v[w->n - 1]));
	if (respawn)
		lg_evidence_against(c, f, LG_SAYS_DATA_LOADER_WAIT_LATE_BATCH);
	lg_gpu_moments(c, f, r, l->mask, 3, "device idle");
}

static void loader(struct lg_case *c, const struct lg_gpu *g)
{
	struct lg_gpu_loss l = lg_gpu_lost(g, LG_GPU_BIT(LG_GPU_BY_LOADER));
	struct waits w = { 0 };

	if (!l.worst || l.share < LG_N_DATA_LOADER_WAIT_DEVICE)
		return;
	if (!lg_failed(c, waits_of(c, l.worst, &w)))
		tell_loader(c, g, &l, &w);
	lg_free(w.v);
}

/* Large copies to the device in the window. */
struct large {
	size_t n, n_sizes;
	uint64_t bytes;
	int64_t ns;
};

struct copy {
	size_t step;
	uint64_t bytes;
	int64_t ts, dur;
	bool to_device;
};

LG_ORDER_BY(cmp_copy, struct copy, LG_CMP(x->bytes, y->bytes) ?: LG_CMP(x->step, y->step) ?:
	    LG_CMP(x->ts, y->ts))

static void add_copy(struct large *l, const struct copy *x)
{
	l->n++;
	l->bytes += x->bytes;
	l->ns += x->dur;
}

/* *ret_back: of them those that follow one of the same size to the host in their step. */
static int large_copies(const struct lg_case *c, const struct lg_gpu_run *r, struct large *ret,
			struct large *ret_back)
{
	LG_AUTOFREE struct copy *v = lg_calloc(r->n_work, sizeof *v);
	size_t n = 0, away = 0;

	*ret = *ret_back = (struct large){ 0 };
	if (!v)
		return LG_E_NOMEM;
	LG_EACH_WHERE(w->class == LG_GPU_H2D || w->class == LG_GPU_D2H, w, r->work, r->n_work) {
		uint64_t bytes = c->t->span.bytes[w->span];
		int64_t at = lg_gpu_ordered_at(w);

		if (lg_gpu_in_window(r, w) && bytes >= LG_N_DATA_SERIAL_COPY_MEGABYTES * 1000000ull)
			v[n++] = (struct copy){ lg_gpu_asked_in(r, at), bytes, at, w->end - w->ts,
						w->class == LG_GPU_H2D };
	}
	LG_SORT(v, n, cmp_copy);
	LG_EACH_RUN(i, j, 0, n, v[j].bytes == v[i].bytes) {
		size_t before = ret->n;

		LG_EACH(x, &v[i], j - i) {
			if (x > &v[i] && x->step != x[-1].step)
				away = 0;
			away += !x->to_device;
			if (x->to_device)
				add_copy(ret, x);
			if (x->to_device && away) {
				away--;
				add_copy(ret_back, x);
			}
		}
		away = 0;
		ret->n_sizes += ret->n > before;
	}
	return 0;
}

/* What the step itself has put on the host is no batch. */
static bool tell_offloaded(struct lg_case *c, struct lg_finding *f, const struct lg_gpu_run *r,
			   const struct large *all, const struct large *back, double share)
{
	double parts = lg_gpu_steps(r);

	if (back->bytes * 4 < all->bytes * 3 || back->n < LG_N_DATA_SERIAL_COPY_BACK ||
	    (double)back->n < 2 * parts)
		return false;
	f->detail = "offloaded";
	lg_title(c, f, LG_SAYS_DATA_SERIAL_COPY_CAME_BACK, (double)back->n / parts, lg_gpu_a_step(r),
		 (double)back->bytes / parts / 1e9, (double)back->bytes / (double)back->ns, share * 100);
	return true;
}

/* Many copies of few sizes are no batches, which are one or two a step: layers of a model lie on the host. */
static void tell_weights(struct lg_case *c, struct lg_finding *f, const struct lg_gpu_run *r, double share)
{
	struct large l, back;
	double parts = lg_gpu_steps(r);

	if (lg_failed(c, large_copies(c, r, &l, &back)) || tell_offloaded(c, f, r, &l, &back, share) ||
	    l.n < LG_N_DATA_SERIAL_COPY_WEIGHTS || l.n_sizes * 8 > l.n || (double)l.n < 8 * parts)
		return;
	f->detail = "weights";
	lg_title(c, f, LG_SAYS_DATA_SERIAL_COPY_STREAMED, (double)l.n / parts, lg_gpu_a_step(r),
		 (double)l.bytes / parts / 1e9, (double)l.bytes / (double)l.ns, share * 100);
	lg_evidence(c, f, LG_SAYS_DATA_SERIAL_COPY_FEW_SIZES, l.n, l.n_sizes, lg_s(l.n_sizes),
		    (double)l.bytes / (double)l.n / 1e6);
}

static void pageable(struct lg_case *c, const struct lg_gpu *g)
{
	struct lg_gpu_loss l = lg_gpu_lost(g, LG_GPU_BIT(LG_GPU_BY_PAGEABLE));
	const struct lg_gpu_run *r = l.worst;
	uint64_t bytes = 0;
	size_t n = 0;
	struct lg_finding *f;

	for (size_t i = 0; r && i < r->n_work; i++)
		if (r->work[i].class == LG_GPU_H2D && r->work[i].pageable &&
		    r->work[i].ts >= r->from && r->work[i].ts < r->to) {
			bytes += c->t->span.bytes[r->work[i].span];
			n++;
		}
	f = n ? lg_gpu_idles(c, g, LG_R_DATA_PAGEABLE_COPY, &l, LG_N_DATA_PAGEABLE_COPY_FLOOR,
			     r->amd ? 0.75 : 0.88)
	      : NULL;
	if (!f)
		return;
	lg_gpu_moments(c, f, r, l.mask, 4, "device idle");
	lg_title(c, f, LG_SAYS_DATA_PAGEABLE_COPY_TITLE, r->amd ? "synchronous copy calls" :
		 "pageable memory", l.share * 100);
	tell_weights(c, f, r, l.share);
	lg_evidence(c, f, "%zu such copies, %.1f MB", n, lg_ms(bytes));
	if (r->amd)
		lg_evidence_against(c, f, LG_SAYS_DATA_PAGEABLE_COPY_ROCM);
}

/* How long copies to the device take that an optimizer's step orders: parameters, and no batch. */
static int64_t optimizers_copies(struct lg_case *c, struct lg_gpu *g, const struct lg_gpu_run *r)
{
	const struct lg_trace *t = c->t;
	LG_AUTO_IVS steps = { 0 };
	int64_t sum = 0;

	for (size_t h = 0; h < r->n_host; h++)
		for (size_t p = 0; r->host[h].thr == r->main && p < r->host[h].n_marks; p++) {
			uint32_t row = r->host[h].mark[p];

			if (lg_gpu_name(&c->scene, g, t->span.name[row]) == LG_NAME_OPTIMIZER)
				(void)lg_failed(c, lg_iv_add(&steps, t->span.ts[row],
								 lg_span_end(t, row), row));
		}
	LG_EACH_WHILE(steps.n, w, r->work, r->n_work)
		if (w->class == LG_GPU_H2D && w->call != LG_NO_ROW &&
		    lg_iv_within(&steps, w->called))
			sum += w->end - w->ts;
	return sum;
}

/* How long r's copies to the device take, and *ret_same: those on the stream that computes most. -1 without
 * memory. */
static int64_t copies_of(const struct lg_case *c, const struct lg_gpu_run *r, int64_t *ret_same)
{
	LG_AUTOFREE int64_t *busy = lg_calloc(c->t->track.n, sizeof *busy);
	lg_trk compute = 0;
	int64_t all = 0;

	*ret_same = 0;
	if (!busy)
		return -1;
	for (size_t i = 0; i < r->n_work; i++)
		if (r->work[i].class == LG_GPU_COMPUTE)
			busy[r->work[i].stream] += r->work[i].end - r->work[i].ts;
	for (lg_trk k = 1; k < c->t->track.n; k++)
		if (busy[k] > busy[compute])
			compute = k;
	for (size_t i = 0; i < r->n_work; i++)
		if (r->work[i].class == LG_GPU_H2D) {
			all += r->work[i].end - r->work[i].ts;
			*ret_same += r->work[i].stream == compute ? r->work[i].end - r->work[i].ts : 0;
		}
	return all;
}

/* Pinned copies that nothing overlapped. On the compute stream they cannot overlap. */
static void serial(struct lg_case *c, struct lg_gpu *g)
{
	struct lg_gpu_loss l = lg_gpu_lost(g, LG_GPU_BIT(LG_GPU_BY_PINNED));
	const struct lg_gpu_run *r = l.worst;
	int64_t same, all;
	struct lg_finding *f;

	if (!r || l.share < LG_N_DATA_SERIAL_COPY_FLOOR)
		return;
	all = copies_of(c, r, &same);
	f = lg_failed(c, all < 0 ? LG_E_NOMEM : 0) ? NULL
	    : lg_gpu_idles(c, g, LG_R_DATA_SERIAL_COPY, &l, 0, same * 2 > all ? 0.88 : 0.7);
	if (!f)
		return;
	lg_title(c, f, LG_SAYS_DATA_SERIAL_COPY_TITLE, l.share * 100, same * 2 > all ?
		 LG_SAYS_DATA_SERIAL_COPY_SAME_STREAM : "no kernel is ready while they run");
	if (optimizers_copies(c, g, r) * 2 > all) {
		f->detail = "optimizer";
		f->stage = lg_stage_name(LG_STAGE_OPTIMIZER);
		lg_title(c, f, LG_SAYS_DATA_SERIAL_COPY_OPTIMIZER, l.share * 100);
	} else {
		tell_weights(c, f, r, l.share);
	}
	lg_gpu_moments(c, f, r, l.mask, 3, "copying alone");
}

/* Does the loader work in the main process? */
static bool in_process(const struct lg_trace *t, const struct lg_cpu_time *l)
{
	return l->row != LG_NO_ROW && strstr(lg_span_name(t, l->row), "_SingleProcess");
}

/* Training on the CPU: the loader's time on the main thread is exposed as it is. Of several ranks, the one
 * that waits longest for its batches makes the others wait. */
static void loader_on_cpu(struct lg_case *c, const struct lg_gpu *g)
{
	struct lg_cpu_time l;
	struct lg_finding *f = lg_cpu_exposed(c, g, LG_R_DATA_LOADER_WAIT, LG_HOST_LOADER,
					      LG_N_DATA_LOADER_WAIT_CPU, 0.85, &l);
	const char *because;
	bool little;

	if (!f)
		return;
	little = lg_cpu_share(&l) < LG_N_DATA_LOADER_WAIT_CPU_LITTLE;
	/* To take a batch that is ready has its cost, too: little of it is no trouble. */
	f->ordinary = little;
	if (little)
		lg_cap(f, LG_CAP_ORDINARY);
	f->detail = in_process(c->t, &l) ? "workers_zero" : NULL;
	because = f->detail ? ": the loader has no workers (num_workers=0)" : "";
	lg_title(c, f, little ? LG_SAYS_DATA_LOADER_WAIT_CPU_LITTLE : LG_SAYS_DATA_LOADER_WAIT_CPU,
		 100 * f->lost_share, because, little ? "" : lg_cpu_only_on(c, f, &l));
	if (little && !f->detail)
		lg_evidence_against(c, f, LG_SAYS_DATA_LOADER_WAIT_TAKING_ONE);
	lg_evidence_add(c, f, l.at, l.longest, LG_SAYS_DATA_LOADER_WAIT_STRETCHES, l.n,
			lg_ms(l.sum));
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
