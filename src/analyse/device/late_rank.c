/* SPDX-License-Identifier: Apache-2.0 */
/*
 * late_rank.c - the rank that the others wait for in collectives, and what it was late for.
 *
 * Ranks that leave every collective together have windows of one length. So what the others spend in
 * collectives beyond the late rank is what the late rank spends in other causes beyond the others, to
 * the nanosecond: that difference is the lateness, and says what it ends in. The way through the run
 * leads over the late rank; its account is the run's (lg_gpu_lost()).
 */
#include <math.h>
#include <stdlib.h>

#include "analyse/device/cpu_rules.h"
#include "timeline/comm_match.h"

#define BIT LG_GPU_BIT
/* What no rule tells by itself: the late rank's own running. */
#define OWN (BIT(LG_GPU_BY_COMPUTE) | BIT(LG_GPU_BY_LAUNCH) | BIT(LG_GPU_BY_QUEUED) | \
	     BIT(LG_GPU_BY_UNKNOWN) | BIT(LG_GPU_BY_COLD))

/* The step of r that ts is in; what lies outside belongs to the next one inside. r has steps. */
static size_t step_at(const struct lg_gpu_run *r, int64_t ts)
{
	size_t s = lg_gpu_step_of(r, ts);

	return s < r->n_steps ? s : ts < r->step[0] ? 0 : r->n_steps - 1;
}

/* The step of r that orders w, likewise. */
static size_t ordered_in(const struct lg_gpu_run *r, const struct lg_gpu_work *w)
{
	int64_t at = lg_gpu_ordered_at(w);
	size_t s = lg_gpu_asked_in(r, at);

	if (w->call == LG_NO_ROW)
		return step_at(r, at);
	return s < r->n_steps ? s : at < lg_gpu_asked_from(r) ? 0 : r->n_steps - 1;
}

/* Where most of the waiting lies, a wait takes so long: the mean over each nanosecond of them. Less than a
 * twentieth of that is the jitter of ordinary steps, and does not say who is late. */
static double jitter_of(double squares, double sum)
{
	return sum > 0 ? squares / sum / 20 : 0;
}

static void none_late(const struct lg_gpu *g, struct lg_gpu_late *l)
{
	l->n_late = 0;
	l->ns = 0;
	for (size_t i = 0; i < g->n; i++)
		l->rank[i].late = false;
	memset(l->more, 0, sizeof l->more);
	memset(l->late_by, 0, sizeof l->late_by);
}

/* Are they always the same few? Half of the ranks at most, which cause nearly all of the waiting and hardly
 * wait, for longer than chance would have only them come last. */
static void mark_few(const struct lg_gpu *g, struct lg_gpu_late *l, int64_t caused)
{
	int64_t top = l->rank[l->run].caused, sum = 0, longest = 0, shortest = INT64_MAX;
	size_t n = 0;

	for (size_t i = 0; i < g->n; i++) {
		l->rank[i].late = l->one ? i == l->run : l->rank[i].caused * 4 >= top;
		n += l->rank[i].late;
		if (l->rank[i].late) {
			sum += l->rank[i].caused;
			longest = LG_MAX(l->rank[i].waited, longest);
		} else {
			shortest = LG_MIN(l->rank[i].waited, shortest);
		}
	}
	l->n_late = n;
	if (l->one || (n * 2 <= g->n && sum * 10 >= caused * 9 && longest < shortest / 4 &&
		       l->with_wait >= 3 * g->n))
		return;
	none_late(g, l);
}

static void add_ranks(const struct lg_gpu *g, struct lg_gpu_late *l)
{
	const struct lg_coll *v = g->colls->v;
	double sum = 0, squares = 0, jitter;
	int64_t caused = 0;

	for (struct lg_coll_sides x = { 0 }; lg_coll_next_sides(g, &x);) {
		uint32_t run = v[x.best].run;
		int64_t n = (int64_t)(x.to - x.from), mean = x.waited / n, others = x.waited / (n - 1);

		l->matched++;
		for (size_t k = x.from; k < x.to; k++)
			l->rank[v[k].run].waited += v[k].dur - v[x.best].dur;
		l->rank[run].caused += others;
		caused += others;
		l->caused += mean;
		sum += (double)mean;
		squares += (double)mean * (double)mean;
	}
	jitter = jitter_of(squares, sum);
	for (struct lg_coll_sides x = { 0 }; lg_coll_next_sides(g, &x);) {
		bool counts = x.waited && (double)x.waited >= jitter * (double)(x.to - x.from);

		l->with_wait += counts;
		l->rank[v[x.best].run].last += counts;
	}
	for (uint32_t i = 0; i < g->n; i++)
		if (l->rank[i].caused > l->rank[l->run].caused)
			l->run = i;
	/* Where the first collective of a step takes all the lateness, nobody waits in the others: they say
	 * nothing about who is late. */
	l->one = lg_is_late_one((double)l->rank[l->run].caused, (double)caused, l->rank[l->run].last,
				l->with_wait, g->n);
	mark_few(g, l, caused);
}

/* In how many steps ranks wait, for the one where it is one. */
static int count_steps(struct lg_case *c, const struct lg_gpu *g, struct lg_gpu_late *l)
{
	size_t n_steps = 1;
	int64_t most = 0, *by_step;
	double sum = 0, squares = 0;

	for (size_t i = 0; i < g->n; i++)
		n_steps = LG_MAX(g->run[i].n_steps, n_steps);
	l->by_step = by_step = lg_arena_alloc(&c->v->arena, n_steps, sizeof *by_step);
	if (!by_step)
		return LG_E_NOMEM;
	for (struct lg_coll_sides x = { 0 }; lg_coll_next_sides(g, &x);) {
		const struct lg_coll *late = &g->colls->v[x.best];
		const struct lg_gpu_run *r = &g->run[late->run];

		if (r->n_steps && (!l->one || late->run == l->run))
			by_step[step_at(r, r->work[late->work].ts)] += x.waited;
	}
	for (size_t s = 0; s < n_steps; s++) {
		most = LG_MAX(by_step[s], most);
		sum += (double)by_step[s];
		squares += (double)by_step[s] * (double)by_step[s];
	}
	l->in_step = most ? squares / sum / (double)g->n * (double)n_steps /
			    (double)lg_gpu_wall(&g->run[0]) : (double)NAN;
	for (size_t s = 0; s < n_steps; s++)
		l->episodes += by_step[s] && (double)by_step[s] >= jitter_of(squares, sum);
	l->proof = lg_gpu_proof_of(&g->run[l->run], by_step, n_steps);
	if (!most) { /* no steps are known */
		l->episodes = l->with_wait;
		bool often = l->with_wait >= lg_gpu_enough(&g->run[l->run]);

		l->proof = (struct lg_gpu_proof){ often ? 1 : lg_proven(l->with_wait),
						  often ? 0 : l->with_wait };
	}
	return 0;
}

/*
 * cut[run * n_steps + k]: the end of the last collective of all ranks in step k of the first run; they leave
 * it together, so that what lies between two of these has one length on all. Returns how many there are.
 */
static size_t cuts(const struct lg_gpu *g, int64_t *cut)
{
	const struct lg_gpu_run *first = &g->run[0];
	const struct lg_coll *v = g->colls->v;
	size_t n_steps = first->n_steps, kept = 0;

	LG_EACH_RUN(i, j, 0, g->colls->n, lg_coll_same(&v[j], &v[i]) && v[j].run == v[j - 1].run + 1) {
		size_t s;

		if (j - i != g->n)
			continue;
		s = ordered_in(first, &first->work[v[i].work]);
		if (first->work[v[i].work].end > cut[s])
			for (size_t k = 0; k < g->n; k++)
				cut[k * n_steps + s] = g->run[k].work[v[i + k].work].end;
	}
	for (size_t s = 0; s < n_steps; s++) {
		bool after = cut[s] != 0;

		for (size_t k = 0; k < g->n && kept; k++)
			after &= cut[k * n_steps + s] > cut[k * n_steps + kept - 1];
		for (size_t k = 0; k < g->n && after; k++)
			cut[k * n_steps + kept] = cut[k * n_steps + s];
		kept += after;
	}
	return kept;
}

/* Do the windows of all judged runs have one length, but for a hundredth? Of hosts that begin the first step
 * while their devices are behind they do not. */
static bool windows_agree(const struct lg_gpu *g)
{
	int64_t least = INT64_MAX, most = 0;

	LG_EACH(r, g->run, g->n) {
		if (!lg_gpu_judged(r))
			continue;
		least = LG_MIN(least, lg_gpu_wall(r));
		most = LG_MAX(most, lg_gpu_wall(r));
	}
	return (most - least) * 100 <= most;
}

/* Of r, which came last: what the others waited for it in all, by what they did so between from and to. */
static double times_between(const struct lg_gpu *g, const struct lg_gpu_run *r, int64_t from, int64_t to)
{
	double sum = 0, inside = 0;

	for (struct lg_coll_sides x = { 0 }; lg_coll_next_sides(g, &x);) {
		const struct lg_coll *best = &g->colls->v[x.best];
		int64_t end = r->work[best->work].end;

		if (&g->run[best->run] != r)
			continue;
		sum += (double)x.waited;
		inside += end > from && end <= to ? (double)x.waited : 0;
	}
	return inside > 0 ? sum / inside : 1;
}

/*
 * share[run][k]: what part of a run's time goes to cause k; from the first cut that lies in all windows to
 * the last one, if the windows have not one length and these do. Runs that are not judged have nothing.
 * *ret_ns: what of the late one's time that stands for.
 */
static int shares(const struct lg_gpu *g, const struct lg_gpu_run *late,
		  double (*share)[LG_GPU_BY_MAX], double *ret_ns)
{
	size_t n_steps = g->run[0].n_steps, n_cuts = 0, first = 0, last;
	LG_AUTOFREE int64_t *cut = lg_calloc(g->n * n_steps + 1, sizeof *cut);

	if (!cut)
		return LG_E_NOMEM;
	if (n_steps && !windows_agree(g))
		n_cuts = cuts(g, cut);
	last = n_cuts;
	for (size_t i = 0; i < g->n; i++) {
		while (first < last && cut[i * n_steps + first] < g->run[i].from)
			first++;
		while (last > first && cut[i * n_steps + last - 1] > g->run[i].to)
			last--;
	}
	for (size_t i = 0; i < g->n; i++) {
		const struct lg_gpu_run *r = &g->run[i];
		int64_t from = r->from, to = r->to, by[LG_GPU_BY_MAX];
		size_t at = 0;

		if (!lg_gpu_judged(r) || to <= from)
			continue;
		memcpy(by, r->by, sizeof by);
		if ((last - first) * 2 > n_steps) {
			memset(by, 0, sizeof by);
			from = cut[i * n_steps + first];
			to = cut[i * n_steps + last - 1];
			lg_gpu_add_pieces(r, &at, from, to, by);
		}
		if (r == late)
			*ret_ns = (double)lg_gpu_seen(r, from, to) *
				  (from == r->from ? 1 : times_between(g, r, from, to));
		for (size_t k = 0; k < LG_GPU_BY_MAX; k++)
			share[i][k] = (double)by[k] / (double)lg_gpu_seen(r, from, to);
	}
	return 0;
}

/* The one late rank, or the few, against the others. */
static int compare(struct lg_gpu *g, struct lg_gpu_late *l)
{
	const struct lg_gpu_run *r = &g->run[l->run];
	double wall = (double)lg_gpu_wall(r), ns = 0, mean[2][LG_GPU_BY_MAX] = { { 0 } };
	LG_AUTOFREE double (*share)[LG_GPU_BY_MAX] = lg_calloc(g->n, sizeof *share);
	size_t n[2] = { 0 };

	if (!share || shares(g, r, share, &ns))
		return LG_E_NOMEM;
	for (size_t i = 0; i < g->n; i++) {
		const struct lg_gpu_run *o = &g->run[i];

		if (!lg_gpu_judged(o) || o->to <= o->from)
			continue;
		n[l->rank[i].late]++;
		for (size_t k = 0; k < LG_GPU_BY_MAX; k++)
			mean[l->rank[i].late][k] += share[i][k];
	}
	l->ns = l->one ? (double)l->rank[l->run].caused : 0;
	if (!n[0] || !n[1] || !lg_gpu_judged(r) || wall <= 0)
		return 0; /* only lengths of collectives are known */
	for (size_t k = 0; k < LG_GPU_BY_MAX; k++) {
		l->late_by[k] = mean[1][k] / (double)n[1] * ns;
		l->more[k] = l->late_by[k] - mean[0][k] / (double)n[0] * ns;
	}
	/* Waits that computation hides cost nothing. */
	l->ns = fmax(0, -l->more[LG_GPU_BY_COMM]);
	g->critical = l->one && l->ns * 100 >= wall ? r : NULL;
	return 0;
}

/* Ranks late in turn: between two cuts it is the one that is in collectives for the shortest time. */
static int compare_in_turn(const struct lg_gpu *g, struct lg_gpu_late *l)
{
	size_t n_steps = g->run[0].n_steps, n_cuts;
	LG_AUTOFREE int64_t *cut = lg_calloc(g->n * n_steps, sizeof *cut);
	LG_AUTOFREE int64_t (*by)[LG_GPU_BY_MAX] = lg_calloc(g->n, sizeof *by);
	LG_AUTOFREE size_t *at = lg_calloc(g->n, sizeof *at);
	double scale, covered = 0;

	for (size_t i = 0; i < g->n; i++)
		if (!lg_gpu_judged(&g->run[i]))
			return 0;
	if (!cut || !at || !by)
		return LG_E_NOMEM;
	n_cuts = n_steps ? cuts(g, cut) : 0;
	for (size_t s = 1; s < n_cuts; s++) {
		size_t late = 0;
		bool whole = true;

		/* The device goes on behind the window, unjudged. */
		for (size_t i = 0; i < g->n; i++)
			whole &= cut[i * n_steps + s - 1] >= g->run[i].from &&
				 cut[i * n_steps + s] <= g->run[i].to;
		if (!whole)
			continue;
		covered += (double)lg_gpu_seen(&g->run[0], cut[s - 1], cut[s]);
		memset(by, 0, g->n * sizeof *by);
		for (size_t i = 0; i < g->n; i++) {
			lg_gpu_add_pieces(&g->run[i], &at[i], cut[i * n_steps + s - 1], cut[i * n_steps + s],
					  by[i]);
			if (by[i][LG_GPU_BY_COMM] < by[late][LG_GPU_BY_COMM])
				late = i;
		}
		for (size_t k = 0; k < LG_GPU_BY_MAX; k++) {
			double others = 0;

			for (size_t i = 0; i < g->n; i++)
				others += i == late ? 0 : (double)by[i][k] / (double)(g->n - 1);
			l->more[k] += (double)by[late][k] - others;
			l->late_by[k] += (double)by[late][k];
		}
	}
	if (covered > 0) {
		scale = (double)lg_gpu_wall(&g->run[0]) / covered;
		for (size_t k = 0; k < LG_GPU_BY_MAX; k++) {
			l->more[k] *= scale;
			l->late_by[k] *= scale;
		}
		l->ns = fmax(0, -l->more[LG_GPU_BY_COMM]);
	}
	return 0;
}

static int judge(struct lg_case *c, struct lg_gpu *g, struct lg_gpu_late *l)
{
	int rc = lg_colls_find(&c->scene, g);

	if (rc)
		return rc;
	add_ranks(g, l);
	rc = count_steps(c, g, l);
	l->numbered = g->colls->numbered * 2 > g->colls->n;
	if (!rc && l->n_late)
		rc = compare(g, l);
	/* The few may be in a group of their own, which is slow: then it is not their time that differs. */
	if (!l->one && l->ns * 4 < (double)l->caused)
		none_late(g, l);
	return !rc && !l->n_late && l->with_wait ? compare_in_turn(g, l) : rc;
}

int lg_gpu_late(struct lg_case *c, struct lg_gpu *g)
{
	struct lg_gpu_late *l;
	size_t judged = 0;

	for (size_t i = 0; i < g->n; i++)
		judged += lg_gpu_judged(&g->run[i]);
	if (judged < 2 || lg_is_told(c, LG_R_COMMS_STRAGGLER))
		return 0;
	l = lg_arena_alloc(&c->v->arena, 1, sizeof *l);
	if (!l)
		return LG_E_NOMEM;
	l->rank = lg_arena_alloc(&c->v->arena, g->n, sizeof *l->rank);
	if (!l->rank || judge(c, g, l))
		return LG_E_NOMEM;
	l->hosts = !l->one && l->ns > 0 && l->more[LG_GPU_BY_LAUNCH] * 2 > l->ns &&
		   l->in_step >= LG_N_COMMS_STRAGGLER_JITTER &&
		   l->ns >= LG_N_COMMS_STRAGGLER_FLOOR * (double)lg_gpu_wall(&g->run[l->run]);
	if (l->matched >= LG_N_COMMS_STRAGGLER_MATCHED && l->with_wait)
		g->late = l;
	else
		g->critical = NULL;
	return 0;
}

/* f is what makes now this, now that rank late: all lose what the late one loses, not the mean over ranks. */
static void all_wait_in_turn(struct lg_case *c, struct lg_finding *f, const struct lg_gpu_late *l, double own,
			     double ns, double wall)
{
	lg_title(c, f, LG_SAYS_COMMS_STRAGGLER_CAUSE_IN_TURN, f->title);
	lg_evidence(c, f, LG_SAYS_COMMS_STRAGGLER_TURNS, l->with_wait, l->matched, ns / 1e6);
	if (own / 1e6 <= f->lost_ms)
		return;
	f->lost_ms = own / 1e6;
	f->lost_share = own / wall;
	/* The title's share is the mean over the ranks. */
	lg_title(c, f, LG_SAYS_COMMS_STRAGGLER_COSTS, f->title, f->lost_share * 100);
	lg_grade_anew(f, l->proof.part, l->proof.seen);
}

/* What the late rank has of them beyond the others, ns. */
static double more_of(const struct lg_gpu_late *l, uint32_t mask)
{
	double ns = 0;

	for (uint32_t k = 0; k < LG_GPU_BY_MAX; k++)
		ns += mask >> k & 1 && l->more[k] > 0 ? l->more[k] : 0;
	return ns;
}

/* What other rules told of the late rank: the others wait for that. ns of the lateness. */
static double ends_elsewhere(struct lg_case *c, const struct lg_gpu *g, double wall)
{
	const struct lg_gpu_late *l = g->late;
	const struct lg_gpu_run *r = g->critical;
	uint32_t seen = 0;
	double sum = 0;

	LG_EACH_WHILE((r || !l->one) && l->ns > 0, f, c->v->findings, c->v->n_findings) {
		uint32_t mask = f->device_causes & ~(OWN | BIT(LG_GPU_BY_COMM));
		double ns = more_of(l, mask), own = 0;

		for (uint32_t k = 0; k < LG_GPU_BY_MAX; k++)
			own += mask >> k & 1 ? r ? (double)r->by[k] : l->late_by[k] : 0;
		/* A tenth of the wait: the rest may be chance. */
		if (ns * 10 < l->ns)
			continue;
		sum += more_of(l, mask & ~seen); /* of two findings that share a cause it counts once */
		seen |= mask;
		f->device_causes |= BIT(LG_GPU_BY_COMM);
		if (!r) {
			all_wait_in_turn(c, f, l, own, ns, wall);
			continue;
		}
		lg_title(c, f, LG_SAYS_COMMS_STRAGGLER_MOST_ON, f->title, ns * 10 >= own * 9 ?
			 "only on " : "most on ", lg_cpu_who(c, r));
		lg_evidence(c, f, LG_SAYS_COMMS_STRAGGLER_CAUSE_OF_LAST, lg_cpu_who(c, r),
			    l->rank[l->run].last, l->with_wait, l->matched, ns / 1e6);
	}
	return fmin(sum, l->ns);
}

/* What of its own the late rank has most of beyond the others gives the title, if that is most of it. */
static void say_own(struct lg_case *c, const struct lg_gpu *g, struct lg_finding *f, uint32_t mask)
{
	const struct lg_gpu_late *l = g->late;

	if (mask & BIT(LG_GPU_BY_LAUNCH)) {
		lg_late_host(c, g, &g->run[l->run], f, "its host");
	} else if (!(mask & BIT(LG_GPU_BY_COMPUTE)) && l->more[LG_GPU_BY_QUEUED] * 2 > l->ns) {
		lg_title(c, f, LG_SAYS_COMMS_STRAGGLER_DEVICE_HELD, f->title);
		f->advice = "device_held";
	}
}

static void one_rank(struct lg_case *c, const struct lg_gpu *g, struct lg_finding *f)
{
	static const struct {
		uint32_t mask;
		const char *does, *what;
	} own[] = {
		{ BIT(LG_GPU_BY_COMPUTE), "computes", "" },
		{ BIT(LG_GPU_BY_LAUNCH), "waits", " for its host to launch" },
		{ OWN & ~(BIT(LG_GPU_BY_COMPUTE) | BIT(LG_GPU_BY_LAUNCH)), "idles",
		  " for what the trace does not show" },
	};
	const struct lg_gpu_late *l = g->late;
	const struct lg_gpu_run *r = &g->run[l->run];
	const char *title;
	uint32_t top = 0;

	f->culprit.relation = LG_RELATION_RANK;
	f->culprit.rank = r->rank;
	if (!r->n_steps || l->episodes * 2 >= r->n_steps)
		f->detail = "persistent";
	lg_title(c, f, LG_SAYS_COMMS_STRAGGLER_LAST_IN_STEPS, lg_cpu_who(c, r),
		 l->rank[l->run].last, l->with_wait, r->n_steps ? lg_text(c,
		 ", in %zu of %zu steps", l->episodes, r->n_steps) : "");
	title = f->title;
	for (size_t i = 0; g->critical && i < LG_COUNT(own); i++) {
		double ns = more_of(l, own[i].mask);

		if (ns * 2 > l->ns)
			top = own[i].mask;
		if (ns * 10 < l->ns)
			continue;
		lg_evidence(c, f, LG_SAYS_COMMS_STRAGGLER_ITS_DEVICE, own[i].does, ns / 1e6,
			    own[i].what);
		if (own[i].mask & BIT(LG_GPU_BY_LAUNCH))
			lg_gpu_moments(c, f, r, BIT(LG_GPU_BY_LAUNCH), 2, "no kernel queued for");
		if (own[i].mask & BIT(LG_GPU_BY_COMPUTE) && lg_late_kernels(c, g, f))
			return;
		f->device_causes |= own[i].mask;
	}
	if (!top || top & BIT(LG_GPU_BY_COMPUTE))
		return;
	f->title = title;
	f->advice = NULL;
	say_own(c, g, f, top);
}

/* In turn: is it the work that the late ones have more of? */
static bool uneven(const struct lg_gpu_late *l)
{
	return l->ns > 0 && l->more[LG_GPU_BY_COMPUTE] * 2 > l->ns;
}

static void say_hosts(struct lg_case *c, const struct lg_gpu *g, struct lg_finding *f, const char *whose)
{
	const struct lg_gpu_late *l = g->late;
	const struct lg_gpu_run *r = &g->run[l->run];

	lg_evidence(c, f, LG_SAYS_COMMS_STRAGGLER_NOT_QUEUED, l->more[LG_GPU_BY_LAUNCH] / 1e6);
	lg_gpu_moments(c, f, r, BIT(LG_GPU_BY_LAUNCH), 2, lg_text(c, "%s: no kernel queued for",
		       lg_cpu_who(c, r)));
	lg_late_host(c, g, r, f, whose);
}

/* Always the same few: what do they have in common? */
static void several(struct lg_case *c, const struct lg_gpu *g, struct lg_finding *f)
{
	const struct lg_gpu_late *l = g->late;
	const struct lg_gpu_run *r = &g->run[l->run];
	const char *who = "";
	size_t last = 0, n = 0;

	for (size_t i = 0; i < g->n; i++) {
		if (!l->rank[i].late)
			continue;
		last += l->rank[i].last;
		who = lg_text(c, "%s%s%s", who, !n ? "" : n + 1 < l->n_late ? ", " : " and ",
			      lg_cpu_who(c, &g->run[i]));
		n++;
	}
	lg_title(c, f, LG_SAYS_COMMS_STRAGGLER_SEVERAL, who, last, l->with_wait);
	f->detail = !r->n_steps || l->episodes * 2 >= r->n_steps ? "persistent" : NULL;
	if (l->hosts) {
		say_hosts(c, g, f, lg_text(c, "the host of %s", lg_cpu_who(c, r)));
	} else if (uneven(l)) {
		lg_evidence(c, f, LG_SAYS_COMMS_STRAGGLER_COMPUTE, l->more[LG_GPU_BY_COMPUTE] / 1e6);
		f->device_causes |= BIT(LG_GPU_BY_COMPUTE);
		(void)lg_failed(c, lg_late_kernels(c, g, f));
	}
}

/* What the late ones have more of says whether it is the work or the hosts that differ. */
static void in_turn(struct lg_case *c, const struct lg_gpu *g, struct lg_finding *f)
{
	const struct lg_gpu_late *l = g->late;

	if (!c->v->scope)
		c->v->scope = LG_SCOPE_ROTATING;
	f->culprit.relation = LG_RELATION_NONE;
	f->culprit.rank = f->culprit.pid = -1;
	f->detail = "rotating";
	for (size_t i = 0; i < g->n; i++)
		if (l->rank[i].last)
			lg_culprit_rank_add(c, f, g->run[i].rank);
	if (l->in_step < LG_N_COMMS_STRAGGLER_JITTER) {
		/* Of ranks whose time varies by s, n wait for the last one of them: 1.8 s of 16 ranks. */
		f->ordinary = true;
		lg_cap(f, LG_CAP_ORDINARY);
		lg_evidence_against(c, f, LG_SAYS_COMMS_STRAGGLER_BY_CHANCE, 100 * l->in_step);
	}
	if (l->n_late && l->ns > 0) {
		several(c, g, f);
		return;
	}
	lg_title(c, f, LG_SAYS_COMMS_STRAGGLER_IN_TURN, l->with_wait);
	if (l->hosts) {
		say_hosts(c, g, f, "the late one's host");
		return;
	}
	lg_title(c, f, LG_SAYS_COMMS_STRAGGLER_IN_TURN_BY, f->title, uneven(l) ?
		 LG_SAYS_COMMS_STRAGGLER_UNEVEN_WORK : l->ns > 0 ?
		 "a cause on the hosts, not one rank" : "not one rank, rather what the hosts "
		 "share");
	if (!uneven(l))
		return;
	lg_evidence(c, f, LG_SAYS_COMMS_STRAGGLER_COMPUTES, l->more[LG_GPU_BY_COMPUTE] / 1e6);
	f->device_causes |= BIT(LG_GPU_BY_COMPUTE);
}

/* ns that comms.straggler is about; negative: other rules told it. */
static double left_to_tell(struct lg_case *c, const struct lg_gpu *g, double wall)
{
	const struct lg_gpu_late *l = g->late;
	double ns, elsewhere, slow;

	if (l->one) {
		if (l->ns >= LG_N_COMMS_STRAGGLER_FLOOR * wall && !c->v->scope)
			c->v->scope = LG_SCOPE_RANK_LOCAL;
		/* Only what ends in the rank's own running (contract.md#late-rank). */
		ns = l->ns - ends_elsewhere(c, g, wall);
		return ns * 5 < l->ns ? -1 : ns;
	}
	elsewhere = wall > 0 && l->ns * 100 >= wall ? ends_elsewhere(c, g, wall) : 0;
	if (elsewhere > 0 && !c->v->scope)
		c->v->scope = LG_SCOPE_ROTATING;
	if (elsewhere > l->ns * 0.8)
		return -1;
	/* What stops one stops all; work that is shared out evenly is still to be done by somebody. */
	/* Ranks that a slow link holds up are late for the others. */
	slow = g->slow_link && g->slow_link->runs < g->n ? g->slow_link->most : 0;
	if (l->ns > 0 && (l->n_late || !uneven(l)) && l->in_step >= LG_N_COMMS_STRAGGLER_JITTER)
		return l->ns - slow < l->ns / 5 ? -1 : fmin(l->ns - slow, l->ns - elsewhere);
	ns = lg_gpu_lost(g, BIT(LG_GPU_BY_COMM)).ms * 1e6;
	ns = fmin((double)l->caused, ns > 0 ? ns : (double)l->caused);
	if (ns - slow < ns / 5)
		return -1;
	ns -= slow;
	return elsewhere > 0 ? fmin(ns, l->ns - elsewhere) : ns;
}

int lg_find_late(struct lg_case *c, struct lg_gpu *g)
{
	const struct lg_gpu_late *l = g->late;
	const struct lg_gpu_run *r = l ? &g->run[l->run] : NULL;
	double ns, wall = 0;
	struct lg_finding *f;

	if (!l)
		return 0;
	for (size_t i = 0; i < g->n; i++)
		wall += (double)lg_gpu_wall(&g->run[i]) / (double)g->n;
	ns = left_to_tell(c, g, wall);
	if (wall <= 0 || ns < 0 || ns < LG_N_COMMS_STRAGGLER_FLOOR * wall)
		return c->failed;
	f = lg_gpu_finding(c, g, LG_R_COMMS_STRAGGLER, ns / 1e6, ns / wall,
			   (l->one ? 0.85 : 0.7) * (l->numbered ? 1 : 0.85), r);
	f->device_causes = BIT(LG_GPU_BY_COMM);
	lg_gpu_keep_steps(c, f, r, l->by_step);
	lg_grade_part(f, l->proof.part, l->proof.seen);
	for (size_t i = 0; i < g->n; i++)
		lg_evidence(c, f, LG_SAYS_COMMS_STRAGGLER_RANK, lg_cpu_who(c, &g->run[i]),
			    l->rank[i].last, lg_ms(l->rank[i].caused), lg_ms(l->rank[i].waited));
	if (l->one)
		one_rank(c, g, f);
	else
		in_turn(c, g, f);
	if (!l->numbered)
		lg_evidence_against(c, f, LG_SAYS_COMMS_STRAGGLER_OLD_FORMAT);
	return c->failed;
}
