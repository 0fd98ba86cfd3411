/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_rules.c - the device idles, or it does not: cold start, launches, synchronisation, allocator.
 *
 * All by exposed time: idle nanoseconds of the device, each given to one cause by gpu_idle.c. The
 * raw length of a call (a 50 ms cudaMemcpyAsync while kernels run) is never a loss by itself.
 */
#include <math.h>

#include "analyse/device/device_rules.h"
#include "base/words.h"
#include "rules/device_names.h"

#define BIT LG_GPU_BIT
#define ALL_OF_IT 0.9 /* what a sentence may call one place */

static void cold(struct lg_case *c, const struct lg_gpu *g)
{
	LG_EACH(r, g->run, g->n) {
		double share = r->whole > 0 ? (double)r->cold / (double)r->whole : 0;
		int64_t first = r->by[LG_GPU_BY_COLD];
		struct lg_finding *f;

		if (!r->cold && r->n_cold && lg_gpu_part(r, (double)first) >= LG_N_WARMUP_DOMINATES_SAID) {
			lg_say(c, LG_SAYS_WARMUP_DOMINATES_IN_STEPS, lg_ms(first), r->n_cold,
			       lg_s(r->n_cold));
			return;
		}
		if (!r->cold || (r->scope != LG_SHOWS_COLD && !lg_gpu_judged(r)))
			continue;
		f = lg_gpu_finding(c, g, LG_R_WARMUP_DOMINATES, lg_ms(r->cold), share, 0.9, NULL);
		f->culprit.pid = c->t->process.pid[r->prc];
		lg_title(c, f, LG_SAYS_WARMUP_DOMINATES_TITLE, 100 * share);
		if (r->scope == LG_SHOWS_COLD)
			lg_evidence_add(c, f, r->from, r->to - r->from,
					LG_SAYS_WARMUP_DOMINATES_CALLS, lg_ms(r->cold));
		else
			lg_evidence_add(c, f, r->from, 0, LG_SAYS_WARMUP_DOMINATES_STEPS,
					lg_ms(r->cold), r->n_steps);
		return;
	}
}

/* NULL: the rule's words fit. */
static const char *launch_advice(const struct lg_gpu_run *r)
{
	return r->n_graph_launches ? "graphs" : r->compiled ? "compiled"
	       : r->scope == LG_SHOWS_INFERENCE ? "inference" : NULL;
}

/* Stretches in which the device waits for a launch, whatever the host does meanwhile. */
struct pauses {
	int64_t all, long_ns; /* long: no launch is as slow as that */
	int64_t at, longest;
	size_t n_long;
};

static struct pauses pauses_of(const struct lg_gpu_run *r)
{
	struct pauses p = { .at = 0 };
	int64_t begin = 0, end = INT64_MIN;

	for (size_t i = 0; i <= r->n_pieces; i++) {
		const struct lg_gpu_piece *x = i < r->n_pieces ? &r->piece[i] : NULL;

		if (x && x->cause != LG_GPU_BY_LAUNCH)
			continue;
		if (x && x->ts == end) {
			end += x->dur;
			continue;
		}
		if (end > begin && end - begin >= LG_N_GPU_LAUNCH_BOUND_PAUSE) {
			p.long_ns += end - begin;
			p.n_long++;
		}
		if (end > begin && end - begin > p.longest) {
			p.longest = end - begin;
			p.at = begin;
		}
		p.all += end > begin ? end - begin : 0;
		begin = x ? x->ts : 0;
		end = x ? x->ts + x->dur : 0;
	}
	return p;
}

/* The innermost span of the main thread that nearly all of the longest pause lies in; NULL = none. */
static const char *around(struct lg_case *c, const struct lg_gpu_run *r, const struct pauses *p)
{
	const struct lg_trace *t = c->t;
	uint32_t best = LG_NO_ROW;

	LG_LISTED(row, c->idx->span, r->main) {
		int64_t ts = t->span.ts[row], end = lg_row_end(t, ts, t->span.dur[row]);
		int64_t from = LG_MAX(ts, p->at);
		int64_t to = end < p->at + p->longest ? end : p->at + p->longest;

		if (ts > p->at + p->longest)
			break;
		if (t->span.kind[row] != LG_SPAN_STEP && (double)(to - from) >= 0.9 * (double)p->longest &&
		    (best == LG_NO_ROW || t->span.dur[row] < t->span.dur[best]))
			best = row;
	}
	return best == LG_NO_ROW ? NULL : lg_gpu_place(&c->scene, LG_NO_ROW, best);
}

/* A few long pauses are no slow launches: neither compilation nor graphs help. */
static void tell_pauses(struct lg_case *c, struct lg_finding *f, const struct lg_gpu_run *r,
			const struct pauses *p, double share)
{
	const char *where = r->main ? around(c, r, p) : NULL;

	lg_title(c, f, LG_SAYS_GPU_LAUNCH_BOUND_IN_PAUSES, share * 100, f->seen ? "this window" :
		 "the time", f->seen || p->n_long < 5 ? "a few pauses" : lg_text(c,
		 "%zu pauses of %.1f ms", p->n_long, (double)p->long_ns / (double)p->n_long / 1e6),
		 lg_with(c, ", the longest in ", where));
	f->detail = "pauses";
	f->culprit.function = where;
	lg_evidence_add(c, f, p->at, p->longest, LG_SAYS_GPU_LAUNCH_BOUND_LONGEST,
			lg_ms(p->longest), lg_ms(p->all), lg_with(c, ": in ", where));
}

static bool mostly_pauses(const struct pauses *p)
{
	return (double)p->long_ns > LG_N_GPU_LAUNCH_BOUND_PAUSES * (double)p->all;
}

bool lg_gpu_pauses(struct lg_case *c, const struct lg_gpu_run *r, const char **ret_where)
{
	struct pauses p = pauses_of(r);

	*ret_where = r->main ? around(c, r, &p) : NULL;
	return mostly_pauses(&p);
}

/* Rows are missing (dropped, sampled): a gap may be a kernel that is not in the trace. The same holes that
 * leave queued work without a start make launches look late. */
static bool may_miss_rows(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r, double share)
{
	double queued = lg_gpu_share(g, BIT(LG_GPU_BY_QUEUED));

	if (queued > LG_N_GPU_LAUNCH_BOUND_MISSING && queued > 0.5 * share) {
		lg_say(c, LG_SAYS_GPU_LAUNCH_BOUND_ROWS_MISSING, share * 100);
		return true;
	}
	if (r->unrun_share > 0.5 * share) {
		lg_say(c, LG_SAYS_GPU_LAUNCH_BOUND_KERNELS_MISSING, share * 100, r->unrun_share *
		       100);
		return true;
	}
	return false;
}

/*
 * CUDA_LAUNCH_BLOCKING=1: every launch call returns only after its kernel has ended, and soon. By chance that
 * happens only to kernels shorter than the call itself, so only longer ones are looked at.
 */
static bool is_blocking(const struct lg_case *c, const struct lg_gpu_run *r, const uint8_t *launches,
			size_t *ret_blocked, size_t *ret_n)
{
	enum { KERNEL_NS = 20000, RETURNED_NS = 20000 };
	int64_t after;

	*ret_n = *ret_blocked = 0;
	LG_EACH_WHILE(lg_gpu_judged(r), w, r->work, r->n_work) {
		if (w->class != LG_GPU_COMPUTE || w->call == LG_NO_ROW || w->end - w->ts < KERNEL_NS ||
		    !launches[c->t->span.name[w->call]])
			continue;
		++*ret_n;
		after = lg_span_end(c->t, w->call) - w->end;
		*ret_blocked += after >= 0 && after <= RETURNED_NS;
	}
	return *ret_n >= 20 && *ret_blocked * 20 >= *ret_n * 19;
}

/* l: of launches; what blocking costs is taken off it. Otherwise the host would run ahead, and a step take as
 * long as the longer of what both need: the shorter one is lost. */
static void launch_blocking(struct lg_case *c, const struct lg_gpu *g, struct lg_gpu_loss *l)
{
	LG_AUTOFREE uint8_t *launches = lg_span_pick(&c->scene, LG_LIST_LAUNCHES);
	double all = l->ms, busy = lg_gpu_lost(g, BIT(LG_GPU_BY_COMPUTE)).ms;
	struct lg_gpu_loss lost = *l;
	size_t n = 0, blocked = 0;
	struct lg_finding *f;
	const struct lg_gpu_run *r = launches ? g->run : g->run + g->n;

	while (r < g->run + g->n && !is_blocking(c, r, launches, &blocked, &n))
		r++;
	if (r == g->run + g->n)
		return;
	lost.ms = fmin(all, busy);
	lost.share = all > 0 ? l->share * lost.ms / all : 0;
	f = lg_gpu_idles(c, g, LG_R_DEBUG_LEFT_ON, &lost, 0, 0.9) ?:
	    lg_gpu_unpriced(c, g, LG_R_DEBUG_LEFT_ON, 0.9, r);
	lg_grade_worth_a_line(f);
	f->stage = lg_stage_name(LG_STAGE_FORWARD);
	f->title = LG_SAYS_DEBUG_LEFT_ON_EVERY_LAUNCH;
	f->culprit.function = "CUDA_LAUNCH_BLOCKING";
	lg_evidence_add(c, f, r->from, r->to - r->from, LG_SAYS_DEBUG_LEFT_ON_BLOCKING, blocked, n);
	if (isfinite(f->lost_ms))
		lg_evidence(c, f, LG_SAYS_DEBUG_LEFT_ON_IN_TURN, all, busy);
	l->ms -= lost.ms;
	l->share -= lost.share;
}

static void launch_bound(struct lg_case *c, struct lg_gpu *g)
{
	struct lg_gpu_loss l = lg_gpu_lost(g, BIT(LG_GPU_BY_LAUNCH));
	const struct lg_gpu_run *r = l.worst;
	struct lg_finding *f;
	struct pauses p;
	bool pauses, slower;
	double fast, slow;

	launch_blocking(c, g, &l);
	/* Below the floor the device is fed well enough that other levers come first. */
	if (!r || l.share < LG_N_GPU_LAUNCH_BOUND_FLOOR || may_miss_rows(c, g, r, l.share))
		return;
	f = lg_gpu_idles(c, g, LG_R_GPU_LAUNCH_BOUND, &l, 0, l.share > 0.2 ? 0.92 : 0.85);
	lg_title(c, f, LG_SAYS_GPU_LAUNCH_BOUND_TITLE, l.share * 100, (double)r->n_kernels /
		 lg_gpu_steps(r), lg_gpu_a_step(r), (double)r->median_kernel / 1e3);
	p = pauses_of(r);
	pauses = mostly_pauses(&p) || f->seen;
	if (pauses)
		tell_pauses(c, f, r, &p, l.share);
	if (pauses && !f->culprit.function && r->scope == LG_SHOWS_INFERENCE && !r->steps_marked) {
		f->confidence *= 0.6;
		lg_evidence_against(c, f, LG_SAYS_GPU_LAUNCH_BOUND_NO_REQUESTS);
	} else if (!pauses)
		f->advice = launch_advice(r);
	f->culprit.tid = r->main ? c->t->thread.tid[r->main] : -1;
	slower = !pauses && lg_host_varies(c, r, &fast, &slow);
	if (slower) {
		f->detail = "host_slower";
		f->advice = NULL;
		lg_title(c, f, LG_SAYS_GPU_LAUNCH_BOUND_HOST_SLOWER, l.share * 100, slow, fast);
	}
	/* Nsight and traces without operators cannot show a compiled region. */
	if (!pauses && !slower && f->severity != LG_SEVERITY_LOW && !r->compiled && !r->n_graph_launches &&
	    r->n_ops) {
		f->detail = "not_compiled";
		lg_evidence(c, f, LG_SAYS_GPU_LAUNCH_BOUND_EAGER);
	}
	lg_evidence(c, f, LG_SAYS_GPU_LAUNCH_BOUND_COUNTS, lg_gpu_share(g, BIT(LG_GPU_BY_COMPUTE)) *
		    100, r->n_kernels, (double)lg_gpu_wall(r) / 1e6, lg_gpu_launch_calls(&c->scene, g, r),
		    r->compiled ? ", compiled regions in use" : "", r->n_graph_launches ?
		    ", graphs replayed" : "");
	lg_gpu_moments(c, f, r, l.mask, 4, "no kernel queued for");
	/* The recorder of Python calls runs on the host's thread: it alone takes a device from well fed to
	 * somewhat starved. */
	if (r->has_frames && l.share < LG_N_GPU_LAUNCH_BOUND_STACKS)
		lg_cap(f, LG_CAP_ORDINARY);
	if (r->has_frames)
		lg_evidence_against(c, f, LG_SAYS_GPU_LAUNCH_BOUND_WITH_STACKS);
	if (r->n_steps < 3)
		lg_evidence_against(c, f, LG_SAYS_GPU_LAUNCH_BOUND_UNUSUAL, r->n_steps ?
				    "fewer than three steps in the window" : "no marked steps");
}

/* The host reads a result and then works, before it launches again. waited: where. */
static void tell_work(struct lg_case *c, struct lg_finding *f, const struct lg_after_sync *a,
		      const char *waited, double share)
{
	double each = (double)a->ns / (double)a->n / 1e6, part = (double)a->where_ns / (double)a->ns;
	const char *does = a->where && part >= ALL_OF_IT ? lg_text(c, "is %.1f ms in %s",
					      (double)a->where_ns / (double)a->n / 1e6, a->where)
			 : lg_text(c, "is away for %.1f ms%s", each, !a->where ? "" :
				   lg_text(c, ", %.0f %% of it in %s,", part * 100, a->where));

	lg_title(c, f, LG_SAYS_GPU_HOST_SYNC_WORKS_AFTER, lg_with(c, " in ", waited), does, share * 100);
	f->detail = "work_after_sync";
	if (a->where)
		f->culprit.function = a->where;
	lg_evidence_add(c, f, a->at, a->longest, LG_SAYS_GPU_HOST_SYNC_STRETCHES, a->n, each,
			a->where ? lg_text(c, "%.0f %% in %s", 100 * (double)a->where_ns /
			(double)a->ns, a->where) : LG_SAYS_GPU_HOST_SYNC_NOWHERE);
}

static void host_sync(struct lg_case *c, const struct lg_gpu *g)
{
	struct lg_gpu_loss l = lg_gpu_lost(g, BIT(LG_GPU_BY_SYNC) | BIT(LG_GPU_BY_D2H));
	struct lg_finding *f = lg_gpu_idles(c, g, LG_R_GPU_HOST_SYNC, &l, LG_N_GPU_HOST_SYNC_FLOOR, 0.85);
	double copies = lg_gpu_share(g, BIT(LG_GPU_BY_D2H));
	struct lg_after_sync after;
	const char *where;

	if (!f)
		return;
	where = lg_gpu_moments(c, f, l.worst, l.mask, 5, "device idle");
	lg_title(c, f, LG_SAYS_GPU_HOST_SYNC_TITLE, lg_with(c, " in ", where), l.share * 100);
	if (copies * 2 > l.share) {
		f->detail = "copies_to_host";
		where = where && !lg_on_list(LG_LIST_COPIES, where) ? where : NULL;
		lg_title(c, f, LG_SAYS_GPU_HOST_SYNC_COPIES, copies * 100, lg_with(c, ", in ", where));
	} else if (lg_gpu_after_sync(c, l.worst, &after)) {
		tell_work(c, f, &after, where, l.share);
	}
	if (!l.worst->has_frames)
		lg_evidence(c, f, LG_SAYS_GPU_HOST_SYNC_NO_STACKS);
	lg_evidence_against(c, f, LG_SAYS_GPU_HOST_SYNC_CHARGED);
}

/* Calls in the window that take memory from the driver or give it back. */
struct driver_memory {
	size_t taken;
	int64_t ns, pinned_ns; /* all; of the host's memory */
};

static struct driver_memory driver_memory(const struct lg_case *c, const struct lg_gpu_run *r)
{
	const struct lg_span_tab *s = &c->t->span;
	struct driver_memory m = { 0 };

	for (size_t h = 0; h < r->n_host; h++)
		LG_EACH(x, r->host[h].seg, r->host[h].n) {
			const char *name = lg_string(c->t, s->name[x->span]);

			if (x->class != LG_HOST_ALLOC || x->ts != s->ts[x->span] || x->ts < r->from ||
			    x->ts >= r->to)
				continue;
			m.taken += lg_name_class_of(name) == LG_NAME_ALLOC;
			m.ns += s->dur[x->span];
			m.pinned_ns += lg_on_list(LG_LIST_PINS, name) ? s->dur[x->span] : 0;
		}
	return m;
}

static void allocator(struct lg_case *c, const struct lg_gpu *g)
{
	struct lg_gpu_loss l = lg_gpu_lost(g, BIT(LG_GPU_BY_ALLOC));
	struct lg_finding *f =
		lg_gpu_idles(c, g, LG_R_GPU_ALLOCATOR_SYNC, &l, LG_N_GPU_ALLOCATOR_SYNC_FLOOR, 0.9);
	struct driver_memory m;

	if (!f)
		return;
	lg_gpu_moments(c, f, l.worst, l.mask, 4, "device idle");
	lg_title(c, f, LG_SAYS_GPU_ALLOCATOR_SYNC_TITLE, l.share * 100);
	m = driver_memory(c, l.worst);
	if (2 * m.pinned_ns > m.ns) {
		f->detail = "pinned";
		lg_title(c, f, LG_SAYS_GPU_ALLOCATOR_SYNC_PINNED_TITLE, l.share * 100);
	} else if ((double)m.taken >= LG_N_GPU_ALLOCATOR_SYNC_UNCACHED * (double)l.worst->n_kernels) {
		f->detail = "uncached";
		lg_title(c, f, LG_SAYS_GPU_ALLOCATOR_SYNC_UNCACHED_TITLE, m.taken, l.worst->n_kernels,
			 l.share * 100);
	}
	if (l.worst->n_steps < 3) {
		f->confidence *= 0.7;
		lg_evidence_against(c, f, LG_SAYS_GPU_ALLOCATOR_SYNC_FIRST_STEPS);
	}
}

/* Nothing in the trace calls it a save. */
static void tell_unnamed(struct lg_case *c, struct lg_finding *f, const struct lg_gpu_run *r, double share)
{
	double each = (double)r->save_copies / (double)r->n_saves;

	lg_title(c, f, LG_SAYS_SIDE_CHECKPOINT_UNNAMED, each, (double)r->save_bytes /
		 (double)r->n_saves / 1e6, share * 100);
	f->confidence *= 0.9;
	lg_evidence(c, f, LG_SAYS_SIDE_CHECKPOINT_TIMES, r->n_saves, lg_s(r->n_saves),
		    lg_ms(r->save_bytes));
	lg_evidence_against(c, f, LG_SAYS_SIDE_CHECKPOINT_NO_NAME);
}

/* What a step does on the side, synchronously. */
static void on_the_side(struct lg_case *c, const struct lg_gpu *g, enum lg_rule_id rule, uint32_t mask,
			const char *what)
{
	struct lg_gpu_loss l = lg_gpu_lost(g, mask);
	struct lg_finding *f = lg_gpu_idles(c, g, rule, &l, lg_rule_floor(rule), 0.85);

	if (!f)
		return;
	lg_gpu_moments(c, f, l.worst, mask, 4, "device idle");
	lg_title(c, f, LG_SAYS_SIDE_ON_DEVICE, what, l.share * 100);
	if (rule == LG_R_SIDE_CHECKPOINT && l.worst->n_saves)
		tell_unnamed(c, f, l.worst, l.share);
	if (l.worst->has_frames)
		lg_evidence_against(c, f, LG_SAYS_ANY_PYTHON_SLOWER);
}

/* A model split over devices of one process, a layer here and the next one there. */
static void in_turn(struct lg_case *c, const struct lg_gpu *g)
{
	struct lg_gpu_loss l = lg_gpu_lost(g, BIT(LG_GPU_BY_OTHER));
	struct lg_finding *f =
		lg_gpu_idles(c, g, LG_R_GPU_DEVICES_IN_TURN, &l, LG_N_GPU_DEVICES_IN_TURN_FLOOR, 0.85);

	if (!f)
		return;
	lg_title(c, f, LG_SAYS_GPU_DEVICES_IN_TURN_TITLE, l.worst->n_others + 1, l.share * 100);
	lg_gpu_moments(c, f, l.worst, l.mask, 2, "another device works for");
	f->culprit.function = NULL; /* each kernel there is as good as any */
	lg_evidence(c, f, LG_SAYS_GPU_DEVICES_IN_TURN_ROWS, l.worst->n_elsewhere, l.worst->n_work);
}

/* Time in which the device copies from its own memory to its own memory, as a share of the window. */
static double copies_inside(const struct lg_case *c, const struct lg_gpu_run *r, size_t *ret_n)
{
	int64_t ns = 0;

	*ret_n = 0;
	LG_EACH_WHERE(w->class == LG_GPU_COMPUTE && c->t->span.kind[w->span] == LG_SPAN_COPY &&
		      lg_gpu_in_window(r, w), w, r->work, r->n_work) {
		ns += w->end - w->ts;
		++*ret_n;
	}
	return lg_gpu_part(r, (double)ns);
}

static void gpu_bound(struct lg_case *c, const struct lg_gpu *g)
{
	struct lg_gpu_loss l = lg_gpu_lost(g, BIT(LG_GPU_BY_COMPUTE)); /* no loss, but for once */
	const struct lg_gpu_run *r = l.worst;
	struct lg_finding *f =
		!r || l.share < LG_N_GPU_BOUND_FLOOR ? NULL : lg_gpu_unpriced(c, g, LG_R_GPU_BOUND, 0.9, r);
	double copies;
	size_t n_copies;

	if (!f)
		return;
	/* Where a tenth and more is lost, the rest does not keep up. */
	lg_title(c, f, LG_SAYS_GPU_BOUND_TITLE, l.share * 100, l.share < LG_N_GPU_BOUND_DENSE ?
		 LG_SAYS_GPU_BOUND_BESIDE : LG_SAYS_GPU_BOUND_PACKED);
	copies = copies_inside(c, r, &n_copies);
	if (copies >= LG_N_GPU_BOUND_COPIES) {
		lg_title(c, f, LG_SAYS_GPU_BOUND_WITH_COPIES, l.share * 100, copies * 100);
		f->detail = "copies";
		lg_evidence(c, f, LG_SAYS_GPU_BOUND_COPIES_INSIDE, n_copies, (double)n_copies /
			    lg_gpu_steps(r));
	}
	lg_evidence_add(c, f, r->from, r->to - r->from, "%zu kernels, median %.0f us", r->n_kernels,
			(double)r->median_kernel / 1e3);
}

int lg_find_gpu(struct lg_case *c, struct lg_gpu *g)
{
	cold(c, g);
	launch_bound(c, g);
	host_sync(c, g);
	in_turn(c, g);
	allocator(c, g);
	on_the_side(c, g, LG_R_SIDE_CHECKPOINT, BIT(LG_GPU_BY_SIDE), "saves synchronously");
	on_the_side(c, g, LG_R_SIDE_LOGGING, BIT(LG_GPU_BY_LOG), "writes metrics or messages synchronously");
	gpu_bound(c, g);
	return c->failed;
}
