/* SPDX-License-Identifier: Apache-2.0 */
/*
 * late_kernels.c - does the late rank's device take longer for the same, or has it more to do?
 *
 * Kernels of one name and grid are one kind (copies and fills: of one name and size). What a rank has beyond
 * the others is, kind by kind, the time that those which all have take longer, and the time of those which it
 * has more of. The same kinds in the same number that take longer, nearly all of them, are a slower device:
 * its clock, its power, somebody else on it. Few kinds that take longer may also be other data: a grid does
 * not tell how long a sequence is, or how many rows an expert gets.
 */
#include <math.h>

#include "analyse/device/device_rules.h"
#include "base/map.h"
#include "store/args.h"

struct kind {
	lg_str name;
	const char *shape; /* in the arguments of a row */
	size_t len;
	uint64_t bytes;
	struct {
		double n, ns; /* a step, in the mean over them */
	} late, rest;
};

struct kinds {
	struct kind *v;
	size_t n, cap;
	struct lg_map by_key; /* -> kind + 1 */
	bool shaped;          /* a kernel tells its grid */
};

static bool is_kind(const struct kind *a, const struct kind *b)
{
	return a->name == b->name && a->bytes == b->bytes && a->len == b->len &&
	       !memcmp(a->shape, b->shape, a->len);
}

/* The kind of a row; NULL without memory. */
static struct kind *kind_of(const struct lg_trace *t, struct kinds *k, uint32_t row)
{
	struct kind x = { .name = t->span.name[row], .shape = "" };
	uint64_t h;
	uint32_t at;

	if (t->span.kind[row] == LG_SPAN_KERNEL) {
		const char *grid = lg_span_arg(t, row, "grid", &x.len);

		x.shape = grid ? grid : "";
		k->shaped |= grid != NULL;
	} else {
		x.bytes = t->span.bytes[row];
	}
	h = lg_mix64(x.name ^ x.bytes << 24);
	for (size_t i = 0; i < x.len; i++)
		h = lg_mix64(h ^ (uint8_t)x.shape[i]);
	for (; (at = lg_map_get(&k->by_key, h)); h++)
		if (is_kind(&k->v[at - 1], &x))
			return &k->v[at - 1];
	if (lg_grow(&k->v, &k->cap, k->n + 1, sizeof *k->v) || lg_map_set(&k->by_key, h, (uint32_t)k->n + 1))
		return NULL;
	k->v[k->n] = x;
	return &k->v[k->n++];
}

/* What r computes in its window, a step: as one of n late ones, or of n others. */
static int add_run(const struct lg_trace *t, const struct lg_gpu_run *r, size_t n, bool late, struct kinds *k)
{
	double part = 1 / (double)n / lg_gpu_steps(r);

	LG_EACH(w, r->work, r->n_work) {
		int64_t ts = lg_gpu_ordered_at(w);
		struct kind *x;

		if (w->class != LG_GPU_COMPUTE || ts < r->from || ts >= r->to)
			continue;
		x = kind_of(t, k, w->span);
		if (!x)
			return LG_E_NOMEM;
		*(late ? &x->late.n : &x->rest.n) += part;
		*(late ? &x->late.ns : &x->rest.ns) += part * (double)(w->end - w->ts);
	}
	return 0;
}

/* ns a step that the late rank computes beyond the others, and what they are. */
struct beyond {
	double longer, more;        /* kinds that all have; those it has more of */
	double same, same_rest;     /* what the former take, there and elsewhere */
	double n, n_rest;           /* kernels a step, there and elsewhere */
	double slower;              /* of same: in kinds that take longer */
	const struct kind *longest, *most; /* that take most of longer, of more */
};

static struct beyond sum_up(const struct kinds *k)
{
	double longest = 0, most = 0;
	struct beyond b = { 0 };

	LG_EACH(x, k->v, k->n) {
		double both = fmin(x->late.n, x->rest.n), more = x->late.ns - x->rest.ns;

		b.n += x->late.n;
		b.n_rest += x->rest.n;
		if (both > 0) {
			double here = both * x->late.ns / x->late.n, there = both * x->rest.ns / x->rest.n;

			b.longer += here - there;
			b.same += here;
			b.same_rest += there;
			b.slower += here > (1 + LG_N_COMMS_STRAGGLER_DEVICE) * there ? here : 0;
			more -= here - there;
			if (here - there > longest) {
				longest = here - there;
				b.longest = x;
			}
		}
		b.more += more;
		if (more > most) {
			most = more;
			b.most = x;
		}
	}
	return b;
}

static void say_device(struct lg_case *c, struct lg_finding *f, const struct beyond *b, bool shaped,
		       bool several)
{
	double times = b->same / b->same_rest;

	lg_title(c, f, LG_SAYS_COMMS_STRAGGLER_SLOWER_DEVICE, f->title, several ?
		 "their devices take" : "its device takes", times);
	lg_evidence(c, f, LG_SAYS_COMMS_STRAGGLER_SAME_KERNELS, shaped ? ", with the same grids" :
		    "", b->same / 1e6, b->same_rest / 1e6, 100 * b->slower / b->same);
	if (!shaped)
		lg_evidence_against(c, f, LG_SAYS_COMMS_STRAGGLER_NO_GRIDS);
	f->advice = "slower_device";
}

static void say_few_kinds(struct lg_case *c, struct lg_finding *f, const struct beyond *b, bool several)
{
	const struct lg_trace *t = c->t;

	lg_title(c, f, LG_SAYS_COMMS_STRAGGLER_SOME_LONGER, f->title, several ? "they have" : "it has");
	lg_evidence(c, f, LG_SAYS_COMMS_STRAGGLER_KINDS_LONGER, b->same / 1e6, b->same_rest / 1e6,
		    100 * b->slower / b->same, lg_string(t, b->longest->name), b->longest->late.ns /
		    b->longest->late.n / 1e3, b->longest->rest.ns / b->longest->rest.n / 1e3);
}

static void say_work(struct lg_case *c, struct lg_finding *f, const struct beyond *b, bool several)
{
	const struct kind *x = b->most;

	bool as_many = fabs(b->n - b->n_rest) < 0.5;

	lg_title(c, f, LG_SAYS_COMMS_STRAGGLER_MORE_KERNELS, f->title, several ? "they have" : "it has", as_many ?
		 "as many kernels as the others, and other or larger ones" : "more or other kernels to run");
	lg_evidence(c, f, LG_SAYS_COMMS_STRAGGLER_KERNELS_OF_ITS_OWN, b->more / 1e6, lg_string(c->t,
		    x->name), x->len ? " with grid " : "", (int)x->len, x->shape, x->late.n,
		    x->rest.n, b->same_rest > 0 ? 100 * (b->same / b->same_rest - 1) : 0);
}

static void say(struct lg_case *c, struct lg_finding *f, const struct kinds *k, bool several)
{
	const double most = LG_N_COMMS_STRAGGLER_MOST; /* the rest is no second cause */
	struct beyond b = sum_up(k);
	double all = b.longer + b.more;

	if (all <= 0 || all < LG_N_COMMS_STRAGGLER_DEVICE * b.same_rest)
		return;
	if (b.longer >= most * all && b.slower >= most * b.same)
		say_device(c, f, &b, k->shaped, several);
	else if (b.longer >= most * all && b.longest)
		say_few_kinds(c, f, &b, several);
	else if (b.more >= most * all && b.most)
		say_work(c, f, &b, several);
	else
		lg_evidence(c, f, LG_SAYS_COMMS_STRAGGLER_BOTH, all / 1e6, b.longer / 1e6, b.more /
			    1e6);
}

/* Is r's window comparable, of a late one or of the others? */
static bool is_of(const struct lg_gpu *g, size_t i, bool late)
{
	const struct lg_gpu_run *r = &g->run[i];

	return g->late->rank[i].late == late && lg_gpu_judged(r) &&
	       !r->n_steps == !g->run[g->late->run].n_steps;
}

int lg_late_kernels(struct lg_case *c, const struct lg_gpu *g, struct lg_finding *f)
{
	struct kinds k = { 0 };
	size_t n[2] = { 0 };
	int rc = 0;

	for (size_t i = 0; i < g->n; i++) {
		n[0] += is_of(g, i, false);
		n[1] += is_of(g, i, true);
	}
	for (size_t i = 0; n[0] && n[1] && !rc && i < g->n; i++)
		for (int late = 0; late < 2 && !rc; late++)
			if (is_of(g, i, late))
				rc = add_run(c->t, &g->run[i], n[late], late, &k);
	if (n[0] && n[1] && !rc)
		say(c, f, &k, n[1] > 1);
	lg_free(k.v);
	lg_map_done(&k.by_key);
	return rc ? c->failed = LG_E_NOMEM : 0;
}
