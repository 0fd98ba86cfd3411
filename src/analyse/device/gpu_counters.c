/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_counters.c - what nvidia-smi or NVML sampled: throttling, and utilisation that is no work.
 *
 * "Utilisation" is the share of time with any kernel on the device, so a collective that spins for
 * a late rank counts 100 %. Power tells them apart: between what a device draws at rest and the most
 * it may draw, work shows. The most is its power limit; where no limit was read, what it was seen to
 * draw, and a multiple of rest at least (cards of four makers have 4 to 14 times that, most of them 5
 * to 10). A reading tells nothing where the clock is down, so that full work takes little power, or
 * where the memory is busy. One device is named among several only where it stands apart from them.
 */
#include <math.h>
#include <stdlib.h>

#include "analyse/device/device_rules.h"
#include "analyse/device/finders.h"
#include "base/median.h"
#include "store/merge.h"

/* NVML clocks event reasons that mean the device is slower than it could be. */
enum { SETTING = 0x2, SW_POWER_CAP = 0x4, HW_SLOWDOWN = 0x8, SYNC_BOOST = 0x10, SW_THERMAL = 0x20,
       HW_THERMAL = 0x40, HW_BRAKE = 0x80, CHOSEN = SETTING | SYNC_BOOST,
       SLOWER = HW_SLOWDOWN | SW_THERMAL | HW_THERMAL | HW_BRAKE };

enum { DEVICES_TOLD = 8 };

struct reading {
	int64_t ts;
	double util, power, clock, mem, top; /* top: the highest clock it may have */
	uint64_t reasons;
};

struct device {
	lg_trk track;
	int32_t index;
	struct reading *v;
	size_t n, cap;
	double limit, line; /* W; busy and below the line, it does not work; */
	double line_unfed;  /* and below this one where its memory is not used either: what computes reads */
	double below;       /* the higher of the two that a reading was below */
	size_t n_busy, n_spin, n_idle;
	bool used; /* in more than one reading of a hundred */
};

struct devices {
	struct device *v;
	size_t n, cap;
	bool has_util, has_power, has_reasons, has_clock;
	size_t n_used;
	int64_t wall;
	int64_t from, to;    /* readings of other times do not count */
	size_t n_other;
};

lg_trk lg_gpu_of_track(const struct lg_trace *t, lg_trk k)
{
	for (int i = 0; k && i < 8; i++, k = t->track.parent[k])
		if (t->track.kind[k] == LG_TRACK_GPU)
			return k;
	return 0;
}

enum metric { UTIL, POWER, CLOCK, TOP, MEM, REASONS, LIMIT, REASON_FLAG, NO_METRIC };

static enum metric metric_of(const char *name, uint64_t *ret_bit)
{
	static const struct { const char *name; enum metric m; uint64_t bit; } known[] = {
#define DEVICE(name, metric, bit) { name, metric, bit },
#include "rules/counters.def"
	};

	for (size_t i = 0; i < LG_COUNT(known); i++)
		if (!strcmp(name, known[i].name)) {
			*ret_bit = known[i].bit;
			return known[i].m;
		}
	return NO_METRIC;
}

/* How long readings were taken: hours in which nobody read, between two logs, are nobody's loss. */
static int time_read(struct devices *d)
{
	LG_EACH(g, d->v, d->n) {
		size_t n = g->n ? g->n - 1 : 0;
		LG_AUTOFREE int64_t *apart = lg_calloc(n + 1, sizeof *apart);
		int64_t sum = 0, most;

		if (!apart)
			return LG_E_NOMEM;
		for (size_t k = 0; k < n; k++)
			apart[k] = g->v[k + 1].ts - g->v[k].ts;
		most = n ? 100 * lg_median_i64(apart, n) : 0;
		for (size_t k = 0; k < n; k++)
			sum += LG_MIN(apart[k], most);
		d->wall = LG_MAX(sum, d->wall);
	}
	return 0;
}

/* Counters of one moment become one reading; a metric that is not sampled then keeps its last. */
static int collect(const struct lg_case *c, struct devices *d)
{
	const struct lg_trace *t = c->t;
	LG_AUTOFREE size_t *of = lg_calloc(t->track.n, sizeof *of);
	LG_AUTOFREE enum metric *m = lg_calloc(t->track.n, sizeof *m);
	LG_AUTOFREE uint64_t *bit = lg_calloc(t->track.n, sizeof *bit);
	int64_t other = INT64_MIN;
	int rc = of && m && bit ? 0 : LG_E_NOMEM;

	for (lg_trk k = 1; !rc && k < t->track.n; k++) {
		lg_trk gpu = lg_gpu_of_track(t, k);
		size_t i = 0;

		m[k] = metric_of(lg_string(t, t->track.name[k]), &bit[k]);
		if (m[k] == NO_METRIC || !gpu)
			continue;
		while (i < d->n && d->v[i].track != gpu)
			i++;
		if (i == d->n) {
			rc = LG_APPEND(d->v, d->n, d->cap,
				       (struct device){ .track = gpu, .index = t->track.index[gpu] });
			if (rc)
				break;
		}
		of[k] = i + 1;
	}
	for (size_t i = 0; !rc && i < t->counter.n; i++) {
		lg_trk k = t->counter.track[i];
		double x = t->counter.value[i];
		struct reading *r;
		struct device *g;

		if (!of[k] || !isfinite(x))
			continue;
		if (t->counter.ts[i] < d->from || t->counter.ts[i] > d->to) {
			d->n_other += t->counter.ts[i] != other;
			other = t->counter.ts[i];
			continue;
		}
		g = &d->v[of[k] - 1];
		if (!g->n || g->v[g->n - 1].ts != t->counter.ts[i]) {
			rc = lg_grow(&g->v, &g->cap, g->n + 1, sizeof *g->v);
			if (rc)
				break;
			g->v[g->n] = g->n ? g->v[g->n - 1]
					  : (struct reading){ .util = NAN, .power = NAN, .clock = NAN,
							      .mem = NAN, .top = NAN };
			g->v[g->n].reasons = 0;
			g->v[g->n++].ts = t->counter.ts[i];
		}
		r = &g->v[g->n - 1];
		switch (m[k]) {
		case UTIL: r->util = x; d->has_util = true; break;
		case POWER: r->power = x; d->has_power = true; break;
		case CLOCK: r->clock = x; d->has_clock = true; break;
		case TOP: r->top = x; break;
		case MEM: r->mem = x; break;
		case LIMIT: g->limit = x; break;
		case REASONS:
			r->reasons |= x >= 0 && x < 1e15 ? (uint64_t)x : 0;
			d->has_reasons = true;
			break;
		case REASON_FLAG: r->reasons |= x > 0 ? bit[k] : 0; d->has_reasons = true; break;
		default: break;
		}
	}
	return rc ? rc : time_read(d);
}

/* What a reading was taken in. */
enum state { ANY, AT_REST, IDLE, BUSY, VERY_BUSY, CAPPED, HOT, FREE, SET };

static bool is_in(const struct reading *r, enum state s)
{
	switch (s) {
	case AT_REST: return r->util < 5;
	case IDLE: return r->util < 10;
	case BUSY: return r->util >= 50;
	case VERY_BUSY: return r->util >= LG_N_GPU_UTIL_LIES_BUSY;
	case CAPPED: return is_in(r, BUSY) && (r->reasons & SW_POWER_CAP) && !(r->reasons & SLOWER);
	case HOT: return is_in(r, BUSY) && (r->reasons & SLOWER);
	case SET: return is_in(r, BUSY) && (r->reasons & CHOSEN) && !(r->reasons & (SLOWER | SW_POWER_CAP));
	case FREE: return is_in(r, BUSY) && !r->reasons;
	default: return true;
	}
}

static size_t count_in(const struct device *g, enum state s)
{
	size_t n = 0;

	for (size_t k = 0; k < g->n; k++)
		n += is_in(&g->v[k], s);
	return n;
}

/* In more than one reading of a hundred. */
static void count_used(struct devices *d)
{
	LG_EACH(g, d->v, d->n) {
		g->n_idle = count_in(g, IDLE);
		g->n_busy = count_in(g, VERY_BUSY);
		g->used = (g->n - g->n_idle) * 100 > g->n;
		d->n_used += g->used;
	}
}

/* q-quantile of m (POWER, CLOCK, or TOP: the highest clock that is known) over all devices' readings in that
 * state for which it is a number; NAN when too few. */
static double quantile(const struct devices *d, const struct device *only, double q, enum state when,
		       enum metric m)
{
	LG_AUTOFREE double *v = NULL;
	size_t n = 0, cap = 0;

	LG_EACH(x, d->v, d->n)
		LG_EACH_WHILE(!only || only == x, r, x->v, x->n) {
			double y = m == POWER ? r->power : m == TOP && !isnan(r->top) ? r->top : r->clock;

			if (!isnan(y) && is_in(r, when) && LG_APPEND(v, n, cap, y))
				return NAN;
		}
	if (n < LG_N_GPU_THROTTLED_READINGS)
		return NAN;
	return lg_select_f64(v, n, (size_t)(q * (double)(n - 1)));
}

/* "device 3", or "node2/gpu.csv: GPU 3" where several machines were merged. */
static const char *name_of(struct lg_case *c, const struct device *g)
{
	const char *name = lg_string(c->t, c->t->track.name[g->track]);

	return strstr(name, ": ") ? name : lg_text(c, "device %d", g->index);
}

/* Of devices' badness, how many are like the worst: those on its side of the widest gap, where no two of a
 * side are so far apart and who is on the other side is half as bad at most; else all that are bad at all.
 * NAN: was not read. */
static size_t like_the_worst(const double *bad, size_t n)
{
	LG_AUTOFREE double *v = lg_calloc(n + 1, sizeof *v);
	size_t k = 0, at = 0, some = 0;
	double gap = 0;

	for (size_t i = 0; v && i < n; i++)
		if (!isnan(bad[i])) {
			v[k++] = bad[i];
			some += bad[i] > 0;
		}
	if (k < 2)
		return k;
	qsort(v, k, sizeof *v, lg_cmp_f64);
	for (size_t i = 1; i < k; i++)
		if (v[i] - v[i - 1] > gap) {
			gap = v[i] - v[i - 1];
			at = i;
		}
	return at && 2 * gap > v[at] && gap > v[at - 1] - v[0] && gap > v[k - 1] - v[at] ? k - at : some;
}

/* "device 3 is", or "4 of 8 devices are": who is as bad as `worst`; what all lose by it. */
static const char *who_is(struct lg_case *c, const struct devices *d, size_t worst, const double *bad)
{
	size_t n = like_the_worst(bad, d->n);

	return n > 1 ? lg_text(c, "%zu of %zu devices are", n, d->n)
		     : lg_text(c, "%s is", name_of(c, &d->v[worst]));
}

/* Who has memory of it, where the recorder asked: a rank before all others, else who has most. */
static void say_user(struct lg_case *c, struct lg_finding *f, const struct device *g)
{
	const struct lg_trace *t = c->t;
	LG_AUTOFREE double *most = lg_calloc(t->track.n + 1, sizeof *most);
	lg_trk best = 0;

	for (size_t i = 0; most && i < t->counter.n; i++)
		most[t->counter.track[i]] = fmax(most[t->counter.track[i]], t->counter.value[i]);
	for (lg_trk k = 1; most && k < t->track.n; k++) {
		lg_prc p = t->track.prc[k], b = t->track.prc[best];
		bool rank = p && t->process.role[p] == LG_ROLE_RANK;
		bool before = best && t->process.role[b] == LG_ROLE_RANK;

		if (t->track.parent[k] == g->track && p &&
		    !strcmp(lg_string(t, t->track.name[k]), "gpu.process_mem") &&
		    (!best || rank > before || (rank == before && most[k] > most[best])))
			best = k;
	}
	if (!best)
		return;
	if (t->process.role[t->track.prc[best]] == LG_ROLE_RANK && t->process.rank[t->track.prc[best]] >= 0)
		lg_evidence(c, f, LG_SAYS_GPU_THROTTLED_RANKS, name_of(c, g),
			    t->process.rank[t->track.prc[best]], t->process.pid[t->track.prc[best]],
			    most[best] / 1e9);
	else
		lg_evidence(c, f, LG_SAYS_GPU_THROTTLED_USED_BY, name_of(c, g),
			    t->process.pid[t->track.prc[best]], most[best] / 1e9);
}

static const char *who_waits(const struct devices *d)
{
	return d->n_used > 1 ? "; ranks that work together wait for the slowest" : "";
}

static struct lg_finding *add(struct lg_case *c, const struct devices *d, enum lg_rule_id rule, double share,
			      double confidence)
{
	struct lg_finding *f = lg_finding_about(c, rule, LG_STAGE_OTHER, LG_RELATION_HARDWARE, confidence);

	f->lost_share = share;
	f->lost_ms = share * (double)d->wall / 1e6;
	lg_grade_steady(f);
	return f;
}

/* Who spins, and who idles meanwhile. */
static void name_devices(struct lg_case *c, const struct devices *d, struct lg_finding *f)
{
	const struct device *lazy = NULL;
	size_t n_lazy = 0;

	LG_EACH(x, d->v, d->n)
		if (x->used && x->n_spin * 10 < x->n && x->n_idle * 3 > x->n) {
			lazy = x;
			n_lazy++;
		}
	if (n_lazy == 1)
		lg_evidence(c, f, LG_SAYS_GPU_UTIL_LIES_LAZY, name_of(c, lazy), 100 *
			    (double)lazy->n_idle / (double)lazy->n);
	for (size_t i = 0; i < d->n && i < DEVICES_TOLD; i++) {
		const struct device *g = &d->v[i];
		double n = fmax(1, (double)g->n);

		lg_evidence(c, f, LG_SAYS_GPU_UTIL_LIES_DEVICE, name_of(c, g), 100 *
			    (double)g->n_busy / n, g->n, 100 * (double)g->n_spin / n);
	}
	if (d->n > DEVICES_TOLD)
		lg_evidence(c, f, LG_SAYS_GPU_UTIL_LIES_MORE_DEVICES, d->n - DEVICES_TOLD);
	lg_evidence(c, f, "%s", n_lazy == 1 ? LG_SAYS_GPU_UTIL_LIES_RECORD_HOST :
		    LG_SAYS_GPU_UTIL_LIES_PROFILE);
}

/* Power of g at rest, W: its own readings, else all devices'. A device whose clock is up is not at rest,
 * however little it is asked for. NAN: that was not seen. */
static double rest_of(const struct devices *d, const struct device *g)
{
	double up = LG_N_GPU_UTIL_LIES_CLOCK * quantile(d, g, 0.99, ANY, CLOCK);
	double rest;

	if (quantile(d, g, 0.5, AT_REST, CLOCK) >= up)
		return NAN;
	rest = quantile(d, g, 0.1, AT_REST, POWER);
	if (isnan(rest))
		rest = quantile(d, NULL, 0.1, AT_REST, POWER);
	return rest >= 5 ? rest : (double)NAN;
}

/* g->line, and what it is held against; NULL: this table does not tell. */
static const char *line_of(struct lg_case *c, const struct devices *d, struct device *g)
{
	double rest = rest_of(d, g), seen = quantile(d, NULL, 0.995, ANY, POWER);
	double part = d->n_used > 1 ? LG_N_GPU_UTIL_LIES_RANGE : LG_N_GPU_UTIL_LIES_ALONE, most = g->limit;
	bool known = most > 0, rests = !isnan(rest);

	if (!rests)
		rest = quantile(d, g, 0.01, ANY, POWER);
	if (!rests && known)
		rest = fmin(rest, most / LG_N_GPU_UTIL_LIES_MOST);
	if (!known)
		most = rests ? fmax(seen, LG_N_GPU_UTIL_LIES_FULL * rest) : seen;
	if (!(most >= (known ? 1 : LG_N_GPU_UTIL_LIES_FULL) * rest))
		return NULL;
	g->line = rest + part * (most - rest);
	g->line_unfed = rest + LG_N_GPU_UTIL_LIES_RANGE * (most - rest);
	return known ? lg_text(c, "their limit is %.0f W", most)
	       : most <= seen ? lg_text(c, "they reach %.0f W", seen)
			      : lg_text(c, LG_SAYS_GPU_UTIL_LIES_REST, rest,
					LG_N_GPU_UTIL_LIES_FULL);
}

/* Busy, at little power, with a clock that would take more and a memory that is not the reason. */
static bool spins(struct device *g, const struct reading *r, double top)
{
	double line = r->mem < LG_N_GPU_UTIL_LIES_FED ? g->line_unfed : g->line;

	if (!(r->util >= LG_N_GPU_UTIL_LIES_BUSY) || !(r->power < line) ||
	    r->mem >= LG_N_GPU_UTIL_LIES_MEMORY || r->clock < LG_N_GPU_UTIL_LIES_CLOCK * top)
		return false;
	g->below = LG_MAX(line, g->below);
	return true;
}

/* Busy, and nothing read to hold its power against. */
static void say_blind(struct lg_case *c, const struct devices *d, const struct device *first, size_t n)
{
	const char *name = n ? name_of(c, first) : "";

	if (n)
		lg_say(c, LG_SAYS_GPU_UTIL_LIES_NO_LINE, n > 1 ? lg_text(c, "%s (and %zu more)", name, n - 1)
			: name, quantile(d, first, 0.5, VERY_BUSY, POWER));
}

static void util_lies(struct lg_case *c, struct devices *d)
{
	const struct device *blind = NULL;
	const char *against = NULL;
	size_t n = 0, spin = 0, with = 0, n_blind = 0;
	double line = 0, share;
	struct lg_finding *f;

	LG_EACH_WHILE(d->has_util && d->has_power, g, d->v, d->n) {
		double top = quantile(d, g, 0.99, ANY, TOP);
		const char *of = g->used ? line_of(c, d, g) : NULL;

		if (g->used && !of && !(g->limit > 0) && g->n_busy >= LG_N_GPU_UTIL_LIES_READINGS &&
		    !isnan(quantile(d, g, 0.5, VERY_BUSY, POWER))) {
			blind = n_blind++ ? blind : g;
		}
		for (size_t k = 0; of && k < g->n; k++)
			g->n_spin += spins(g, &g->v[k], top);
		n += g->used ? g->n : 0;
		spin += g->n_spin;
		with += g->n_spin * 50 > g->n;
		if (g->below > line) {
			line = g->below;
			against = of;
		}
	}
	say_blind(c, d, blind, n_blind);
	share = n ? (double)spin / (double)n : 0;
	if (share < LG_N_GPU_UTIL_LIES_FLOOR || spin < LG_N_GPU_UTIL_LIES_READINGS)
		return;
	f = add(c, d, LG_R_GPU_UTIL_LIES, share, 0.85);
	/* Now and then is how runs are: checkpoints, the end of an epoch. */
	if (share < LG_N_GPU_UTIL_LIES_OFTEN)
		lg_cap(f, LG_CAP_ORDINARY);
	lg_title(c, f, LG_SAYS_GPU_UTIL_LIES_TITLE, with, d->n, LG_N_GPU_UTIL_LIES_BUSY, share *
		 100, line, against, d->n_used > 1 ? LG_SAYS_GPU_UTIL_LIES_AS_WAITING :
		 LG_SAYS_GPU_UTIL_LIES_ALONE);
	f->detail = d->n_used > 1 ? NULL : "alone";
	name_devices(c, d, f);
}

static const char *reason_text(uint64_t r)
{
	return r & (HW_THERMAL | SW_THERMAL) ? "too hot"
	       : r & HW_BRAKE ? "power brake by the machine" : "hardware slowdown";
}

/*
 * A software power cap is how large devices normally run: heavy kernels draw all that there is, and the clock
 * gives way. It is a throttle where the clock falls and the device does not draw more than at its full clock:
 * then the limit came down, not the work up.
 */
static bool power_capped(struct lg_case *c, struct devices *d)
{
	size_t worst = d->n;
	LG_AUTOFREE double *bad = lg_calloc(d->n, sizeof *bad);
	double most = 0, share = 0, low = 0, full = 0, lost = 0, peers[2] = { 0 };
	bool asked = false;
	struct lg_finding *f;

	for (size_t i = 0; bad && d->has_reasons && d->has_clock && d->has_power && i < d->n; i++) {
		struct device *g = &d->v[i];
		double now = quantile(d, g, 0.5, CAPPED, CLOCK);
		double watts = quantile(d, g, 0.5, CAPPED, POWER);
		double then = quantile(d, g, 0.5, FREE, CLOCK);
		double usual = quantile(d, g, 0.5, FREE, POWER);
		size_t n = count_in(g, BUSY), capped = count_in(g, CAPPED);

		if (isnan(now) || isnan(watts))
			continue;
		if (isnan(then) || isnan(usual)) { /* capped all the time: as its peers run */
			if (!asked) {
				peers[0] = quantile(d, NULL, 0.5, FREE, CLOCK);
				peers[1] = quantile(d, NULL, 0.5, FREE, POWER);
				asked = true;
			}
			then = peers[0];
			usual = peers[1];
		}
		if (!(now < (1 - LG_N_GPU_THROTTLED_CLOCK) * then) ||
		    !(watts <= LG_N_GPU_THROTTLED_POWER * usual) ||
		    (double)capped < LG_N_GPU_THROTTLED_REASON * (double)n)
			continue;
		bad[i] = (1 - now / then) * (double)capped / (double)n;
		if (bad[i] <= most)
			continue;
		share = (double)capped / (double)n;
		most = bad[i];
		lost = most * (double)n / (double)g->n;
		low = now;
		full = then;
		worst = i;
	}
	if (worst == d->n)
		return false;
	f = add(c, d, LG_R_GPU_THROTTLED, lost, 0.8);
	f->detail = d->n == 1 ? "power_alone" : "power";
	lg_title(c, f, LG_SAYS_GPU_THROTTLED_POWER_LIMIT, who_is(c, d, worst, bad), share * 100, 100
		 * (1 - low / full), who_waits(d));
	lg_evidence(c, f, LG_SAYS_GPU_THROTTLED_CLOCK_CAPPED, low, full);
	if (like_the_worst(bad, d->n) == 1)
		say_user(c, f, &d->v[worst]);
	lg_evidence_against(c, f, LG_SAYS_GPU_THROTTLED_HEAVIER);
	return true;
}

/* A device says itself that it is slowed down. Only busy readings tell: an idle one's clock is low anyway. */
static bool hot(struct lg_case *c, struct devices *d)
{
	size_t worst = d->n, n_hot = 0, n = 0;
	LG_AUTOFREE double *bad = lg_calloc(d->n, sizeof *bad);
	double most = 0, full, low = 0, slow = LG_N_GPU_THROTTLED_CLOCK;
	uint64_t all = 0;
	struct lg_finding *f;

	for (size_t i = 0; bad && d->has_reasons && i < d->n; i++) {
		const struct device *g = &d->v[i];
		size_t busy = count_in(g, BUSY), of = count_in(g, HOT);

		bad[i] = busy >= LG_N_GPU_THROTTLED_READINGS ? (double)of / (double)busy : (double)NAN;
		if (bad[i] > most) {
			most = bad[i];
			n_hot = of;
			worst = i;
		}
	}
	if (worst == d->n || most < LG_N_GPU_THROTTLED_REASON)
		return false;
	full = quantile(d, NULL, 0.95, VERY_BUSY, CLOCK);
	LG_EACH_WHERE(is_in(r, HOT), r, d->v[worst].v, d->v[worst].n) {
		all |= r->reasons;
		if (!isnan(r->clock)) {
			low += r->clock;
			n++;
		}
	}
	if (n && full > 0)
		slow = fmax(0, 1 - low / (double)n / full);
	f = add(c, d, LG_R_GPU_THROTTLED, slow * (double)n_hot / (double)d->v[worst].n, 0.9);
	lg_title(c, f, LG_SAYS_GPU_THROTTLED_TITLE, who_is(c, d, worst, bad), reason_text(all), most
		 * 100, who_waits(d));
	f->detail = d->n == 1 ? "alone" : NULL;
	if (n)
		lg_evidence(c, f, LG_SAYS_GPU_THROTTLED_CLOCK_THEN, low / (double)n, full);
	else
		lg_evidence_against(c, f, LG_SAYS_GPU_THROTTLED_NO_CLOCKS);
	if (like_the_worst(bad, d->n) == 1)
		say_user(c, f, &d->v[worst]);
	return true;
}

/* Readings of a device under load with a clock below `full`: at no less power only where it is so always. */
struct slowed {
	double full, usual; /* MHz; W at that clock, NAN = not known */
	double low, watts;  /* means while it is slowed */
	double lost;        /* parts of readings */
	size_t n, busy;
	bool always;
};

static bool is_slow(const struct slowed *s, const struct reading *r)
{
	return is_in(r, VERY_BUSY) && r->clock <= (1 - LG_N_GPU_THROTTLED_CLOCK) * s->full &&
	       (s->always || r->power <= (1 - LG_N_GPU_THROTTLED_CLOCK) * s->usual);
}

/* Median power under load at a clock that is not low. */
static double usual_power(const struct device *g, double full)
{
	LG_AUTOFREE double *v = lg_calloc(g->n + 1, sizeof *v);
	double low = (1 - LG_N_GPU_THROTTLED_CLOCK) * full;
	size_t n = 0;

	LG_EACH_WHILE(v, r, g->v, g->n)
		if (is_in(r, VERY_BUSY) && !isnan(r->power) && r->clock > low)
			v[n++] = r->power;
	return n >= LG_N_GPU_THROTTLED_READINGS ? lg_median_f64(v, n) : (double)NAN;
}

/*
 * A clock that gives way to heavy kernels comes with all the power that there is; one that is held down,
 * with less. A burst's last reading may show its load and a clock that is down already: what lasts counts.
 */
static struct slowed slowed_of(const struct devices *d, const struct device *g, double peers)
{
	double own = quantile(d, g, 0.5, VERY_BUSY, CLOCK);
	struct slowed s = { .full = fmax(quantile(d, g, 0.95, VERY_BUSY, CLOCK), peers) };
	size_t run = 0, told;

	s.always = d->n > 1 && own <= (1 - LG_N_GPU_THROTTLED_CLOCK) * peers;
	s.usual = usual_power(g, s.full);
	for (size_t i = 0; i < g->n; i++) {
		s.busy += is_in(&g->v[i], VERY_BUSY);
		run = is_slow(&s, &g->v[i]) ? run + 1 : 0;
		told = run == LG_N_GPU_THROTTLED_LASTS ? run : run > LG_N_GPU_THROTTLED_LASTS;
		for (const struct reading *r = &g->v[i + 1] - told; r <= &g->v[i]; r++) {
			s.n++;
			s.low += r->clock;
			s.watts += r->power;
			s.lost += 1 - r->clock / s.full;
		}
	}
	s.low /= (double)LG_MAX(s.n, 1);
	s.watts /= (double)LG_MAX(s.n, 1);
	return s;
}

/* No reason says so: a device that runs slower under load than its peers, or than at other times. */
static void slower_than_usual(struct lg_case *c, struct devices *d)
{
	LG_AUTOFREE double *bad = lg_calloc(d->n, sizeof *bad);
	struct slowed worst = { 0 };
	const struct device *who = NULL;
	double peers;
	struct lg_finding *f;

	if (!bad || !d->has_clock)
		return;
	peers = quantile(d, NULL, 0.5, VERY_BUSY, CLOCK);
	for (size_t i = 0; i < d->n; i++) {
		struct slowed s = slowed_of(d, &d->v[i], peers);

		if (s.n < LG_N_GPU_THROTTLED_READINGS ||
		    (double)s.n < LG_N_GPU_THROTTLED_REASON * (double)s.busy)
			continue;
		bad[i] = s.lost / (double)s.busy;
		if (who && s.lost <= worst.lost)
			continue;
		worst = s;
		who = &d->v[i];
	}
	if (!who)
		return;
	f = add(c, d, LG_R_GPU_THROTTLED, worst.lost / (double)who->n, 0.65);
	lg_title(c, f, LG_SAYS_GPU_THROTTLED_SLOWER, who_is(c, d, (size_t)(who - d->v), bad),
		 100 * (1 - worst.low / worst.full),
		 d->n > 1 && like_the_worst(bad, d->n) == 1 ? "its peers" : "at other times",
		 100 * (double)worst.n / (double)worst.busy);
	f->detail = d->n == 1 ? "alone" : NULL;
	lg_evidence(c, f, LG_SAYS_GPU_THROTTLED_CLOCK_THEN, worst.low, worst.full);
	if (!isnan(worst.watts) && !isnan(worst.usual))
		lg_evidence(c, f, LG_SAYS_GPU_THROTTLED_POWER_THEN, worst.watts, worst.usual);
	say_user(c, f, who);
	lg_evidence_against(c, f, d->has_reasons ? LG_SAYS_GPU_THROTTLED_NO_REASON :
			    LG_SAYS_GPU_THROTTLED_REASONS_UNREAD);
}

static void throttled(struct lg_case *c, struct devices *d)
{
	if (!hot(c, d) && !power_capped(c, d))
		slower_than_usual(c, d);
}

/*
 * The time of the steps, or of the device's work: a log of readings mostly covers hours around a trace of
 * seconds, and what happened then cost these steps nothing. Where the readings' place beside the steps is not
 * known, all count.
 */
static void window(const struct lg_case *c, const struct lg_gpu *g, struct devices *d)
{
	const struct lg_verdict *v = c->v;
	int64_t from = INT64_MAX, to = INT64_MIN;

	d->from = INT64_MIN;
	d->to = INT64_MAX;
	if (*lg_meta_get(c->t, "join.unplaced"))
		return;
	LG_EACH(s, v->steps, v->n_steps) {
		from = LG_MIN(s->ts, from);
		to = s->ts + s->dur > to ? s->ts + s->dur : to;
	}
	LG_EACH_WHILE(!v->n_steps, r, g->run, g->n)
		if (r->n_work) {
			from = LG_MIN(r->from, from);
			to = LG_MAX(r->to, to);
		}
	if (from < to) {
		d->from = from;
		d->to = to;
	}
}

/* Clocks that somebody set: no rule knows whether they were meant to be. */
static void say_set(struct lg_case *c, const struct devices *d)
{
	LG_EACH(g, d->v, d->n) {
		size_t busy = count_in(g, BUSY), set = count_in(g, SET);

		if (set < LG_N_GPU_THROTTLED_READINGS ||
		    (double)set < LG_N_GPU_THROTTLED_REASON * (double)busy)
			continue;
		lg_not_judged(c, "clocks that a setting holds down", lg_text(c,
			      LG_SAYS_READINGS_CLOCKS_SET, name_of(c, g), 100 * (double)set /
			      (double)busy));
		return; /* one is enough to look */
	}
}

/* How much of the time the device had work, once it had; NAN: too few readings, or it spun. */
static double busy_share(const struct device *g)
{
	double sum = 0;
	size_t k = 0, from;

	/* Utilisation is of the time before a reading, up to a second: the first ones rise. */
	while (k < g->n && !is_in(&g->v[k], BUSY))
		k++;
	from = k + 1;
	if (g->n < from + LG_N_READINGS_BOUND || g->n_spin * 50 > g->n)
		return (double)NAN;
	for (k = from; k < g->n; k++)
		sum += g->v[k].util;
	return sum / 100 / (double)(g->n - from);
}

/* What the host's waits can have cost at most: they overlap with the device's work but for its idle time. */
static void limit_loss(struct lg_case *c, struct lg_finding *f, double idle, double busy)
{
	double wall = f->lost_ms / f->lost_share;
	const struct lg_finding was = *f;

	if (lg_policy(f->rule)->loss_of != LG_LOSS_OF_HOST ||
	    !(f->lost_share > idle + LG_N_READINGS_ERROR))
		return;
	f->lost_share = idle + LG_N_READINGS_ERROR;
	f->lost_ms = f->lost_share * wall;
	lg_grade_share(f, f->lost_share);
	lg_cap_as(f, &was);
	lg_evidence_against(c, f, LG_SAYS_READINGS_BUSY_MEANWHILE, busy * 100, f->lost_share * 100);
}

/* Copies that the host waits for, and so the device: no more than it idled. */
static void price_copies(struct lg_case *c, struct lg_finding *f, double idle, double busy)
{
	double copies = 0, wall = 0;

	if (f->rule != LG_R_DATA_PAGEABLE_COPY || !isnan(f->lost_share))
		return;
	LG_EACH(s, c->v->stages, c->v->n_stages)
		if (!strcmp(s->stage, lg_stage_name(LG_STAGE_H2D)))
			copies = s->share;
	LG_EACH(s, c->v->steps, c->v->n_steps)
		wall += (double)s->dur;
	f->lost_share = fmin(copies, idle);
	f->lost_ms = f->lost_share * wall / 1e6;
	lg_grade(f, c->v->n_judged, (int64_t)wall);
	lg_evidence(c, f, LG_SAYS_READINGS_IDLE_MEANWHILE, (1 - busy) * 100, f->lost_share * 100);
}

/*
 * Of a recording without a trace of the device: a host thread that waits for it spins, and looks as if it
 * computed. Where one process drives one device, and that has work nearly all the time, it is what the steps
 * take. Of several ranks a collective that waits for another one counts as work.
 */
static void bound_by_device(struct lg_case *c, const struct lg_gpu *g, const struct devices *d)
{
	struct lg_verdict *v = c->v;
	const struct device *only = NULL;
	double busy;

	if (!v->n_judged || !c->has_states || c->n_ranks != 1 || d->n_used != 1 || !d->has_util)
		return;
	LG_EACH(r, g->run, g->n)
		if (lg_gpu_judged(r))
			return;
	LG_EACH_WHERE(x->used, x, d->v, d->n)
		only = x;
	busy = busy_share(only);
	if (!(busy >= 0))
		return;
	LG_EACH(f, v->findings, v->n_findings)
		price_copies(c, f, 1 - busy, busy);
	if (busy < LG_N_READINGS_BUSY)
		return;
	v->bound = LG_BOUND_GPU;
	v->bound_why = lg_text(c, LG_SAYS_READINGS_BOUND_BY, busy * 100, only->n, v->bound_why ?: "");
	LG_EACH(f, v->findings, v->n_findings)
		limit_loss(c, f, 1 - busy, busy);
}

/* Why there is no word about the readings that somebody gave. */
static void say_other(struct lg_case *c, const struct devices *d)
{
	size_t n = 0;

	for (size_t i = 0; i < d->n; i++)
		n = LG_MAX(d->v[i].n, n);
	if (d->n_other && n < LG_N_GPU_THROTTLED_READINGS)
		lg_say(c, LG_SAYS_READINGS_FEW_IN_STEPS, n, d->n_other);
	else if (n && n < LG_N_GPU_THROTTLED_READINGS && d->has_util && (d->has_power || d->has_clock))
		lg_say(c, LG_SAYS_READINGS_FEW, n, (int)LG_N_GPU_THROTTLED_READINGS);
}

int lg_find_gpu_counters(struct lg_case *c, struct lg_gpu *g)
{
	struct devices d = { 0 };

	if (!c->t->counter.n)
		return 0;
	window(c, g, &d);
	if (collect(c, &d))
		c->failed = LG_E_NOMEM;
	count_used(&d);
	if (!c->failed && d.n) {
		util_lies(c, &d);
		throttled(c, &d);
		say_set(c, &d);
		bound_by_device(c, g, &d);
		say_other(c, &d);
	}
	for (size_t i = 0; d.v && i < d.n; i++)
		lg_free(d.v[i].v);
	lg_free(d.v);
	return c->failed;
}
