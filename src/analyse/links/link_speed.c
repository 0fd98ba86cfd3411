/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link_speed.c - what nccl-tests measured, and what adapters reported.
 *
 * A result is compared with the same test of the same sizes: again on the same devices (later values that are
 * all below all earlier ones), and by other runs (one run clearly apart from the others, which agree). The
 * best of a sweep on one host is held against the links that NCCL found there itself. Small messages measure
 * latency and are left out.
 */
#include <math.h>
#include <stdlib.h>

#include "analyse/links/links.h"
#include "base/median.h"
#include "store/args.h"
#include "base/words.h"

enum { LARGE = 1 << 20, FULL = 32 << 20, EACH_SIDE = 3, SIZES_SAID = 3 };

struct result {
	uint64_t test, where; /* hashes: operation, type, ranks; hosts and devices */
	int64_t size, ts;
	uint32_t mark;
	lg_prc prc;
	double bus;
};

static uint64_t hash(uint64_t h, const char *s, size_t n)
{
	return lg_mix64(lg_link_hash(h, s, n) + n);
}

static uint64_t arg(uint64_t h, const char *text, const char *key)
{
	size_t n;
	const char *v = lg_arg(text, key, &n);

	return v ? hash(h, v, n) : lg_mix64(h);
}

static int collect(struct lg_case *c, struct result **ret, size_t *ret_n)
{
	const struct lg_trace *t = c->t;
	size_t cap = 0;

	LG_EACH_MARK(i, t, "nccl.bandwidth") {
		const char *text = lg_string(t, t->mark.text[i]);
		double count = lg_link_number(text, "count", 0);
		struct result r = { .size = t->mark.value[i], .ts = t->mark.ts[i], .mark = (uint32_t)i,
				    .prc = t->thread.prc[t->mark.thr[i]],
				    .bus = lg_link_number(text, "bus", 0) };

		if (r.size < LARGE || !(r.bus > 0.01 && r.bus < 1e6))
			continue;
		r.test = arg(arg(hash(1, text, strcspn(text, ":")), text, "test"), text, "ranks");
		/* Without a name: tests differ in how many bytes an element of the count stands for. */
		r.test = lg_mix64(r.test + (uint64_t)(count >= 1 ? (double)r.size / count + 0.5 : 0));
		r.where = arg(2, text, "where");
		if (LG_APPEND(*ret, *ret_n, cap, r))
			return LG_E_NOMEM;
	}
	return 0;
}

LG_ORDER_BY(by_place, struct result,
	    LG_CMP(x->where, y->where) ?: LG_CMP(x->test, y->test) ?: LG_CMP(x->size, y->size) ?:
	    LG_CMP(x->ts, y->ts) ?: LG_CMP(x->mark, y->mark))

LG_ORDER_BY(by_run, struct result,
	    LG_CMP(x->test, y->test) ?: LG_CMP(x->size, y->size) ?: LG_CMP(x->prc, y->prc) ?:
	    LG_CMP(x->mark, y->mark))

static double median(const struct result *v, size_t n, double *x)
{
	for (size_t i = 0; i < n; i++)
		x[i] = v[i].bus;
	qsort(x, n, sizeof *x, lg_cmp_f64);
	return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* A drop in v[0..n), in the order of time: *ret_at = the first one after it. Returns how probable the order
 * is by chance, 1 = there is no drop. */
static double drop_of(const struct result *v, size_t n, double *x, size_t *ret_at)
{
	double low = (double)INFINITY, p = 1;

	/* x[i] = the highest from i on */
	for (size_t i = n; i-- > 0;)
		x[i] = fmax(v[i].bus, i + 1 < n ? x[i + 1] : 0);
	for (size_t k = 1; k + EACH_SIDE <= n; k++) {
		low = fmin(low, v[k - 1].bus);
		if (k < EACH_SIDE || x[k] >= low)
			continue;
		/* 1 / (n over k) */
		for (size_t i = 0; i < k; i++)
			p *= (double)(i + 1) / (double)(n - i);
		*ret_at = k;
		return p;
	}
	return 1;
}

/* Who tries out settings measures them one after the other: v[0..at) before the drop, v[at..n) after it. */
static void say_changes(struct lg_case *c, struct lg_finding *f, const struct result *v, size_t at, size_t n)
{
	LG_AUTOFREE uint8_t *flag = lg_scratch(c, c->t->process.n + 1, 1);
	size_t before = f->n_evidence;

	if (!flag)
		return;
	for (size_t i = 0; i < n; i++)
		flag[v[i].prc] |= i < at ? 2 : 1;
	lg_link_differences(c, f, flag, NULL); /* a run that is on both sides is 3, of neither */
	if (f->n_evidence == before)
		return;
	lg_cap(f, LG_CAP_UNEQUAL);
	lg_evidence_against(c, f, LG_SAYS_COMMS_DEGRADED_LINK_RUNS_CHANGED);
}

/* One test on the same devices. */
static bool same_sweep(const struct result *a, const struct result *b)
{
	return a->where == b->where && a->test == b->test;
}

static void own_past(struct lg_case *c, struct lg_links *l, struct result *v, size_t n, double *x)
{
	struct { size_t first, at, n; double before, after, p; } hit[SIZES_SAID];
	size_t sizes = 0, hits = 0, all = 0;
	double best = 1;
	struct lg_finding *f;

	LG_SORT(v, n, by_place);
	LG_EACH_RUN(i, j, 0, n, same_sweep(&v[j], &v[i]) && v[j].size == v[i].size) {
		double p, before, after;
		size_t at = 0;

		if (j - i < 2 * EACH_SIDE)
			continue;
		sizes++;
		p = drop_of(v + i, j - i, x, &at);
		if (p >= 1)
			continue;
		before = median(v + i, at, x);
		after = median(v + i + at, j - i - at, x);
		if (after > before * (1 - LG_N_COMMS_DEGRADED_LINK_DROP))
			continue;
		all++;
		best = LG_MIN(p, best);
		if (hits < SIZES_SAID)
			hit[hits++] = (typeof(hit[0])){ i, at, j - i, before, after, p };
	}
	l->n_compared += sizes;
	/* One series by chance less than once in a hundred, or several that agree. */
	if (!all || (best * (double)sizes > 0.01 && (all < 2 || all * 2 < sizes)))
		return;
	f = lg_link_finding(c, "own_bandwidth", all > 1 ? 0.85 : 0.75);
	lg_title(c, f, LG_SAYS_COMMS_DEGRADED_LINK_FELL, hit[0].after, hit[0].before, 100 * (1 -
		 hit[0].after / hit[0].before));
	for (size_t i = 0; i < hits; i++)
		lg_evidence_add(c, f, v[hit[i].first + hit[i].at].ts, 0,
				LG_SAYS_COMMS_DEGRADED_LINK_SIZES, (long long)v[hit[i].first].size,
				hit[i].at, lg_s(hit[i].at), hit[i].before, hit[i].n - hit[i].at,
				lg_s(hit[i].n - hit[i].at), hit[i].after, hit[i].p < 1e-6 ?
				"less than once in a million" : lg_text(c, "once in %.0f", 1 /
				hit[i].p));
	lg_evidence(c, f, LG_SAYS_COMMS_DEGRADED_LINK_SHOWN_BY, all, sizes);
	say_changes(c, f, v + hit[0].first, hit[0].at, hit[0].n);
}

/* Bandwidth of the links of that host, GB/s, as NCCL found it for a communicator of so many ranks that has no
 * other host; 0 = not told. */
static double class_of(const struct lg_links *l, lg_str host, int64_t ranks)
{
	double bw = 0;

	LG_EACH(m, l->comm, l->n_comm)
		if (m->host == host && m->nodes == 1 && m->nranks == ranks && m->bw > 0)
			bw = bw > 0 ? fmin(bw, m->bw) : m->bw;
	return bw;
}

/* v, by place: sweeps whose best is far below the class of the links that they went over. */
static void below_class(struct lg_case *c, struct lg_links *l, const struct result *v, size_t n)
{
	const struct lg_trace *t = c->t;
	struct lg_finding *f = NULL;

	LG_EACH_RUN(i, j, 0, n, same_sweep(&v[j], &v[i])) {
		const struct result *best = NULL;
		lg_str host = t->process.host[v[i].prc];
		const char *name = lg_string(t, host);
		double class;

		LG_EACH_WHERE(x->size >= FULL, x, &v[i], j - i)
			best = !best || x->bus > best->bus ? x : best;
		class = !best ? 0 : class_of(l, host, (int64_t)lg_link_number(
				lg_string(t, t->mark.text[best->mark]), "ranks", 0));
		if (!(class > 0))
			continue;
		l->n_compared++;
		if (best->bus >= LG_N_COMMS_DEGRADED_LINK_CLASS * class)
			continue;
		if (!f) {
			f = lg_link_finding(c, "below_class", 0.8);
			lg_title(c, f, LG_SAYS_COMMS_DEGRADED_LINK_BELOW_CLASS, name, best->bus,
				 class);
		}
		lg_evidence_add(c, f, best->ts, 0, LG_SAYS_COMMS_DEGRADED_LINK_SWEEP, name,
				(long long)best->size, best->bus, 100 * best->bus / class, class);
	}
}

struct run {
	lg_prc prc;
	double ratio; /* to the middle of all runs, over the sizes */
};

LG_ORDER_BY(by_ratio, struct run, LG_CMP(x->ratio, y->ratio))

static const char *run_text(struct lg_case *c, lg_prc p)
{
	const struct lg_trace *t = c->t;

	return lg_text(c, "the run on %s (pid %d)", lg_string(t, t->process.host[p]), t->process.pid[p]);
}

static void say_run(struct lg_case *c, const struct lg_links *l, const struct run *run, size_t n,
		    size_t sizes, double example, double usual, int64_t size)
{
	LG_AUTOFREE uint8_t *flag = lg_calloc(c->t->process.n + 1, 1);
	const struct run *low = &run[0];
	double spread = 0;
	const char *setting, *key = NULL, *peers = NULL;
	struct lg_finding *f;

	if (!flag)
		return;
	for (size_t i = 1; i < n; i++) {
		spread = fmax(spread, fabs(1 - run[i].ratio));
		flag[run[i].prc] = 2;
	}
	flag[low->prc] = 1;
	/* Clear of the noise of the others; of two, nobody knows the noise. */
	if ((n > 2 && (1 - low->ratio < LG_N_COMMS_DEGRADED_LINK_DROP || 1 - low->ratio < 3 * spread)) ||
	    (n == 2 && low->ratio / run[1].ratio > 1 - LG_N_COMMS_DEGRADED_LINK_ALONE)) {
		return;
	}
	f = lg_link_finding(c, "run_bandwidth", n > 3 ? 0.85 : n == 3 ? 0.75 : 0.5);
	f->culprit.pid = c->t->process.pid[low->prc];
	lg_title(c, f, LG_SAYS_COMMS_DEGRADED_LINK_RUN, run_text(c, low->prc), 100 * (1 - (n == 2 ?
		 low->ratio / run[1].ratio : low->ratio)), n == 2 ? run_text(c, run[1].prc) :
		 lg_text(c, "the middle of %zu runs of the same test", n));
	lg_evidence(c, f, LG_SAYS_COMMS_DEGRADED_LINK_SAME_TEST, sizes, (long long)size, example,
		    usual);
	if (n > 2) {
		lg_evidence(c, f, LG_SAYS_COMMS_DEGRADED_LINK_OTHERS_AGREE, 100 * spread);
	} else {
		lg_cap(f, LG_CAP_UNEQUAL);
		lg_evidence_against(c, f, LG_SAYS_COMMS_DEGRADED_LINK_TWO_RUNS);
	}
	setting = lg_link_setting(c, l, flag, LG_LINK_CHANNELS, &key, &peers);
	if (setting)
		lg_evidence(c, f, LG_SAYS_COMMS_DEGRADED_LINK_RUN_SETTING, setting, peers ? "at " :
			    "unset", peers ? peers : "");
}

struct field {
	struct run *run;
	size_t n, cap, sizes;
	struct lg_map index; /* process -> of run + 1 */
	double *own, *mid;   /* by run: of one size */
	double *ratio;       /* by size, then by run */
	int64_t size;        /* the largest one that all measured, its lowest value and its middle */
	double example, usual;
};

static int runs_in(struct field *f, const struct result *v, size_t n)
{
	LG_EACH(x, v, n)
		if (x->prc && !LG_MAP_APPEND(&f->index, x->prc, f->run, f->n, f->cap,
					     (struct run){ .prc = x->prc }))
			return LG_E_NOMEM;
	return 0;
}

/* v[0..n): one size, by run. */
static void compare_size(struct field *f, const struct result *v, size_t n, double *x)
{
	size_t units = 0;
	double m;

	LG_EACH_RUN(i, j, 0, n, v[j].prc == v[i].prc) {
		if (!v[i].prc)
			continue;
		m = median(v + i, j - i, x);
		f->mid[units++] = m;
		f->own[lg_map_get(&f->index, v[i].prc) - 1] = m;
	}
	if (units != f->n)
		return; /* not all of them measured it */
	qsort(f->mid, units, sizeof *f->mid, lg_cmp_f64);
	m = f->mid[units / 2]; /* of two, the better one */
	for (size_t r = 0; r < f->n; r++)
		f->ratio[f->sizes * f->n + r] = f->own[r] / m;
	f->sizes++;
	if (v->size >= f->size) {
		f->size = v->size;
		f->example = f->mid[0];
		f->usual = m;
	}
}

/* v[0..n): one test, by size and run. Each run's median over the sizes of its values by the middle of all
 * runs. */
static void runs_of(struct lg_case *c, struct lg_links *l, const struct result *v, size_t n, double *x)
{
	struct field f = { 0 };
	bool ok = !runs_in(&f, v, n);

	if (ok && f.n > 1) {
		f.own = lg_calloc(f.n, sizeof *f.own);
		f.mid = lg_calloc(f.n, sizeof *f.mid);
		f.ratio = lg_calloc(n, sizeof *f.ratio);
		ok = f.own && f.mid && f.ratio;
	}
	LG_EACH_RUN_WHILE(ok && f.n > 1, i, j, 0, n, v[j].size == v[i].size)
		compare_size(&f, v + i, j - i, x);
	for (size_t r = 0; f.sizes && r < f.n; r++) {
		for (size_t k = 0; k < f.sizes; k++)
			x[k] = f.ratio[k * f.n + r];
		qsort(x, f.sizes, sizeof *x, lg_cmp_f64);
		f.run[r].ratio = x[f.sizes / 2];
	}
	l->n_compared += f.sizes;
	if (f.sizes) {
		qsort(f.run, f.n, sizeof *f.run, by_ratio);
		say_run(c, l, f.run, f.n, f.sizes, f.example, f.usual, f.size);
	}
	if (!ok)
		c->failed = LG_E_NOMEM;
	lg_map_done(&f.index);
	lg_free(f.run);
	lg_free(f.own);
	lg_free(f.mid);
	lg_free(f.ratio);
}

int lg_find_link_speed(struct lg_case *c, struct lg_links *l)
{
	LG_AUTOFREE struct result *v = NULL;
	size_t n = 0;
	LG_AUTOFREE double *x = NULL;

	if (!l->n_tests)
		return 0;
	if (collect(c, &v, &n) || !(x = lg_calloc(n + 1, sizeof *x)))
		c->failed = LG_E_NOMEM;
	if (n && !c->failed) {
		own_past(c, l, v, n, x);
		below_class(c, l, v, n);
		qsort(v, n, sizeof *v, by_run);
		LG_EACH_RUN_WHILE(!c->failed, i, j, 0, n, v[j].test == v[i].test)
			runs_of(c, l, v + i, j - i, x);
	}
	return c->failed;
}

/* ---- events of adapters ---- */

struct event {
	lg_str host, hca;
	lg_prc prc;
	uint32_t mark;
	bool down, up;
};

LG_ORDER_BY(by_port, struct event,
	    LG_CMP(x->host, y->host) ?: LG_CMP(x->hca, y->hca) ?: LG_CMP(x->prc, y->prc) ?:
	    LG_CMP(x->mark, y->mark))

/* One port, or, of a version that does not name them, the ports of a host: every process of the host tells of
 * it, so the one that tells most counts. */
static void port(struct lg_case *c, const struct event *v, size_t n)
{
	const struct lg_trace *t = c->t;
	size_t down = 0, up = 0, k;
	const struct event *first = NULL;
	const char *hca = lg_arg(lg_string(t, t->mark.text[v->mark]), "hca", &k), *name, *times, *end;
	bool back = false, named = hca && k;
	struct lg_finding *f;

	LG_EACH_RUN(i, j, 0, n, v[j].prc == v[i].prc) {
		size_t d = 0, u = 0;

		LG_EACH(x, &v[i], j - i) {
			d += x->down;
			u += x->up;
			if (x->down && (!first || t->mark.ts[x->mark] < t->mark.ts[first->mark]))
				first = x;
		}
		if (d > down || (d == down && u > up)) {
			down = d;
			up = u;
			back = v[j - 1].up; /* the last that it tells of */
		}
	}
	if (!first)
		return;
	f = lg_link_finding(c, "port_error", 0.9);
	name = named ? lg_text(c, "port %.*s of %s", (int)k, hca, lg_string(t, v->host))
		     : lg_text(c, "ports of %s", lg_string(t, v->host));
	times = lg_text(c, "%zu time%s", down, down == 1 ? "" : "s");
	/* Whether each of several came back, lines without their names do not tell. */
	if (!named)
		end = up ? ", all of them together" : ", all of them together, and no line says that one came back";
	else
		end = back ? " and came back" : up ? ", and after the last time no line says that it came back"
						   : ", and no line says that it came back";
	lg_title(c, f, "%s lost %s link %s%s", name, named ? "its" : "their", times, end);
	lg_evidence_add(c, f, t->mark.ts[first->mark], 0, LG_SAYS_COMMS_DEGRADED_LINK_EVENTS, name,
			times, up, up == 1 ? "" : "s");
}

int lg_find_link_events(struct lg_case *c)
{
	const struct lg_trace *t = c->t;
	LG_AUTOFREE struct event *v = NULL;
	size_t n = 0, cap = 0, fatal = 0, failed = 0, ras = 0;

	for (size_t i = 0; i < t->mark.n && !c->failed; i++) {
		const char *name = lg_string(t, t->mark.name[i]), *text = lg_string(t, t->mark.text[i]), *hca;
		struct event e = { .mark = (uint32_t)i, .prc = t->thread.prc[t->mark.thr[i]] };
		size_t k;

		if (strncmp(name, "nccl.", 5))
			continue;
		failed += !strcmp(name, "nccl.warn") && strstr(text, "Got completion ") &&
			  (strstr(text, " with status=") || strstr(text, " with error "));
		ras += !strcmp(name, "nccl.ras");
		if (strcmp(name, "nccl.link_event"))
			continue;
		fatal += lg_link_is(text, "fatal", "1");
		e.down = lg_link_is(text, "what", "port error");
		e.up = lg_link_is(text, "what", "port active");
		if (!e.down && !e.up)
			continue;
		e.host = t->process.host[e.prc];
		hca = lg_arg(text, "hca", &k);
		e.hca = hca ? (lg_str)(hash(3, hca, k) >> 32) : 0;
		if (lg_failed(c, LG_APPEND(v, n, cap, e)))
			break;
	}
	LG_SORT(v, n, by_port);
	LG_EACH_RUN_WHILE(!c->failed, i, j, 0, n, v[j].host == v[i].host && v[j].hca == v[i].hca)
		port(c, v + i, j - i);
	if (fatal || failed || ras)
		lg_say(c, LG_SAYS_NCCL_FAILURES, failed, fatal, ras);
	return c->failed;
}
