/* SPDX-License-Identifier: Apache-2.0 */
/*
 * amp_rules.c - mixed precision used against its rules, from a profiler's trace.
 *
 * How autocast shows: an operator on its lists is dispatched twice, so that its row holds the casts and a
 * row of the same name (aten::linear > aten::to, aten::linear; ATen/autocast_mode.cpp redispatches below
 * the Autocast key). How it does not:
 *
 *  - casts by hand: aten::to stands by itself before a matrix operator that has no such pair. One cast of
 *    the input, or float32 around a norm, is how models are written; casts before most matrix operators
 *    are an autocast made by hand, which casts the weights in every call (autocast keeps them).
 *  - backward under autocast: the nodes of autograd call matrix operators directly (MmBackward0 >
 *    aten::mm); a pair there means that autocast was on. Recomputed forward code and custom functions
 *    have other parents, so they are not taken for it.
 *    Profilers of torch 1.8 and before write every operator twice, autocast or not: pairs of aten::mul
 *    and aten::add, which autocast leaves alone, and pairs without any cast tell.
 *  - no loss scaling: matrix operators of float16 (told by types of inputs) in training, and nothing in
 *    the window that looks for infinities. Scaling by a constant cannot be seen: low, and said so.
 *
 * Types are known with record_shapes=True, else from the names of newer copy kernels; without either
 * nothing is said.
 */
#include "analyse/device/device_rules.h"
#include "rules/device_names.h"
#include "store/args.h"

enum { DEPTH_MAX = 256, ATEN = 0x80 };

enum op_kind { OP_OTHER, OP_MATRIX, OP_CAST, OP_COPY, OP_VIEW, OP_MATRIX_NODE, OP_FINITE, OP_NEUTRAL };
static const struct lg_name_row amp_rows[] = {
#define AMP(how, text, means) { LG_MATCH_##how, text, OP_##means },
#include "rules/device_names.def"
};

/* What one run's operators say. */
struct lg_amp {
	struct lg_ivs *hand;      /* by host: casts before matrix operators */
	struct lg_ivs *again;     /* by host: casts inside pairs of the backward pass */
	size_t n_matrix, n_pairs;     /* in forward: all, and dispatched twice */
	size_t n_hand;                /* matrix operators with a cast by hand before them */
	size_t n_casts;               /* such casts */
	size_t n_back, n_back_pairs;  /* called by nodes of autograd */
	size_t n_half, n_typed;       /* matrix operators of float16; whose types are known */
	size_t n_finite;              /* looks for infinities */
	size_t n_neutral, n_neutral_pairs; /* operators that autocast leaves alone */
	size_t n_cast_pairs;          /* pairs of forward with a cast inside */
	uint32_t row;                 /* the first matrix operator with a cast, or the first pair */
	uint8_t *float_copies;        /* names of kernels that convert; NULL = there are none */
	int rc;                       /* of the look */
};

struct level {
	int64_t ts, end;
	const struct lg_span_at *at;
	uint32_t row;
	uint8_t kind;
	bool casts;      /* a child converts between the two */
	bool pair;       /* a child has the same name */
	bool back;       /* it or one around it is of the backward pass */
	bool inner;      /* an operator is around it, annotations and nodes of autograd left out */
	int64_t cast_ts, cast_end; /* the last such child */
};

struct walk {
	const struct lg_trace *t;
	const uint8_t *class;    /* by string: 1 + enum op_kind; with ATEN */
	const struct lg_map *float_copy; /* span rows of runtime calls: its kernel converts float and half */
	struct lg_amp *a;
	struct level up[DEPTH_MAX];
	size_t depth;
	/* Casts by hand since the last outermost operator that is none and no view. */
	struct lg_iv pending[4];
	size_t n_pending, host;
	int failed;
};

enum type { T_UNKNOWN, T_OTHER, T_FLOAT, T_HALF, T_BFLOAT };

static enum type type_of(const char *p, size_t n)
{
	if (n >= 8 && memmem(p, n, "BFloat16", 8))
		return T_BFLOAT;
	if (n >= 4 && (memmem(p, n, "Half", 4)))
		return T_HALF;
	return n == 5 && !memcmp(p, "float", 5) ? T_FLOAT : n ? T_OTHER : T_UNKNOWN;
}

/* Type of input k: types=["c10::Half","float"]. */
static enum type input_type(const struct lg_trace *t, uint32_t row, size_t k)
{
	size_t n;
	const char *list = lg_span_arg(t, row, "types", &n), *type = lg_arg_listed(list, n, k, &n);

	return type ? type_of(type, n) : T_UNKNOWN;
}

static bool is_half(enum type k)
{
	return k == T_HALF || k == T_BFLOAT;
}

static bool converts(const struct lg_trace *t, uint32_t row)
{
	enum type to = input_type(t, row, 0), from = input_type(t, row, 1);

	return (to == T_FLOAT && is_half(from)) || (is_half(to) && from == T_FLOAT);
}

/* A cast by hand ended. Where forward goes on with a matrix operator, it was made for that. */
static void hand_cast(struct walk *w, const struct level *l)
{
	if (w->n_pending < sizeof w->pending / sizeof *w->pending)
		w->pending[w->n_pending++] = (struct lg_iv){ l->ts, l->end, l->row };
}

static void hand_matrix(struct walk *w, uint32_t row)
{
	struct lg_amp *a = w->a;

	if (!w->n_pending)
		return;
	if (!a->n_hand++)
		a->row = row;
	a->n_casts += w->n_pending;
	for (size_t i = 0; i < w->n_pending && !w->failed; i++)
		w->failed = lg_iv_add(&a->hand[w->host], w->pending[i].ts, w->pending[i].end,
					  w->pending[i].row);
}

static void leave(struct walk *w)
{
	struct level *l = &w->up[w->depth - 1], *up = w->depth > 1 ? l - 1 : NULL;
	struct lg_amp *a = w->a;
	bool outer = !l->inner, back = l->back;

	if (up && l->casts) {
		up->casts = true;
		up->cast_ts = l->kind == OP_CAST ? l->ts : l->cast_ts;
		up->cast_end = l->kind == OP_CAST ? l->end : l->cast_end;
	}
	if (l->kind == OP_MATRIX) {
		enum type k = input_type(w->t, l->row, 0);

		if (k == T_UNKNOWN || k == T_OTHER)
			k = input_type(w->t, l->row, 1);
		if (!l->pair && !back && (k == T_HALF || k == T_BFLOAT || k == T_FLOAT)) {
			a->n_typed++;
			a->n_half += k == T_HALF;
		}
		if (up && up->kind == OP_MATRIX_NODE &&
		    lg_on_list(LG_LIST_FORMULA_CALLS, lg_string(w->t, w->t->span.name[l->row]))) {
			a->n_back++;
			a->n_back_pairs += l->pair;
			if (l->pair && a->n_back_pairs == 1 && !a->n_hand)
				a->row = l->row;
			if (l->pair && l->casts && !w->failed)
				w->failed = lg_iv_add(&a->again[w->host], l->cast_ts, l->cast_end,
							  l->row);
		}
		if (outer && !back) {
			a->n_matrix++;
			a->n_pairs += l->pair;
			a->n_cast_pairs += l->pair && l->casts;
			if (!l->pair)
				hand_matrix(w, l->row);
		}
	}
	a->n_finite += l->kind == OP_FINITE;
	a->n_neutral += l->kind == OP_NEUTRAL;
	a->n_neutral_pairs += l->kind == OP_NEUTRAL && l->pair;
	if (outer && !back) {
		if (l->kind == OP_CAST && l->casts)
			hand_cast(w, l);
		else if (l->kind != OP_VIEW && l->kind != OP_CAST &&
			 l->at->kind == LG_SPAN_OP)
			w->n_pending = 0;
	}
	w->depth--;
}

static void enter(struct walk *w, uint32_t row, const struct lg_span_at *s)
{
	const struct lg_trace *t = w->t;
	struct level *up = w->depth ? &w->up[w->depth - 1] : NULL, *l;

	if (w->depth == DEPTH_MAX)
		return;
	l = &w->up[w->depth++];
	*l = (struct level){ .ts = s->ts, .end = lg_row_end(t, s->ts, s->dur), .at = s,
			     .row = row, .kind = (uint8_t)((w->class[s->name] & ~ATEN) - 1),
			     .back = s->stage == LG_STAGE_BACKWARD };
	if (up) {
		l->back |= up->back;
		l->inner = up->inner || (up->at->kind == LG_SPAN_OP && up->at->stage != LG_STAGE_BACKWARD &&
					 w->class[up->at->name] & ATEN);
		l->end = LG_MIN(l->end, up->end);
		up->pair |= up->at->name == s->name;
	}
	if ((l->kind == OP_COPY && converts(t, row)) || (w->float_copy->n && lg_map_get(w->float_copy, row)))
		l->casts = true;
}

static int walk_host(struct lg_case *c, const struct lg_gpu_run *r, size_t host, const uint8_t *class,
		     const struct lg_map *float_copy, struct lg_amp *a)
{
	const struct lg_trace *t = c->t;
	LG_AUTOFREE struct walk *w = lg_calloc(1, sizeof *w);
	struct lg_gpu_rows rows = lg_gpu_rows(&c->scene, r, r->host[host].thr, NULL);
	uint32_t row;

	if (!w)
		return LG_E_NOMEM;
	*w = (struct walk){ .t = t, .class = class, .float_copy = float_copy, .a = a, .host = host };
	while (!w->failed && lg_gpu_next_row(&rows, &row)) {
		const struct lg_span_at *s = lg_gpu_this_row(&rows);

		if (s->kind != LG_SPAN_OP && s->kind != LG_SPAN_RUNTIME && s->kind != LG_SPAN_STAGE &&
		    s->kind != LG_SPAN_NOTE)
			continue;
		while (w->depth && w->up[w->depth - 1].end <= s->ts)
			leave(w);
		enter(w, row, s);
	}
	while (w->depth)
		leave(w);
	return w->failed;
}

/* Once a run: what it says does not depend on where its time went. All of it is the arena's. */
int lg_amp_begin(struct lg_case *c, struct lg_gpu_run *r)
{
	struct lg_arena *arena = &c->v->arena;
	struct lg_amp *a = lg_arena_alloc(arena, 1, sizeof *a);

	if (a) {
		a->row = LG_NO_ROW;
		a->float_copies = lg_arena_adopt(arena, lg_span_pick(&c->scene, LG_LIST_FLOAT_COPIES));
		a->hand = lg_arena_alloc(arena, r->n_host + 1, sizeof *a->hand);
		a->again = lg_arena_alloc(arena, r->n_host + 1, sizeof *a->again);
	}
	if (!a || !a->hand || !a->again)
		return LG_E_NOMEM;
	r->notes->amp = a;
	return 0;
}

void lg_amp_walk(struct lg_case *c, struct lg_gpu_run *r)
{
	const struct lg_trace *t = c->t;
	LG_AUTOFREE uint8_t *class = lg_calloc(t->n_str + 1, 1);
	struct lg_map copies = { 0 };
	int rc = class ? 0 : LG_E_NOMEM;

	for (size_t i = 0; !rc && i < c->scene.n_span_names; i++) {
		const char *name = lg_string(t, c->scene.span_names[i]);

		class[c->scene.span_names[i]] =
			(uint8_t)((lg_name_means(amp_rows, LG_COUNT(amp_rows), name) + 1) |
				  (strncmp(name, "aten::", 6) ? 0 : ATEN));
	}
	LG_EACH_WHILE(!rc && r->notes->amp->float_copies, w, r->work, r->n_work)
		if (w->call != LG_NO_ROW && r->notes->amp->float_copies[t->span.name[w->span]])
			rc = lg_map_set(&copies, w->call, 1);
	for (size_t h = 0; !rc && h < r->n_host; h++)
		rc = walk_host(c, r, h, class, &copies, r->notes->amp);
	lg_map_done(&copies);
	r->notes->amp->rc = rc;
}

int lg_amp_end(struct lg_case *c, struct lg_gpu_run *r)
{
	struct lg_arena *arena = &c->v->arena;
	struct lg_amp *a = r->notes->amp;
	int rc = a->rc;

	for (size_t h = 0; h < r->n_host; h++) {
		if (a->hand[h].v && !lg_arena_adopt(arena, a->hand[h].v))
			rc = LG_E_NOMEM;
		if (a->again[h].v && !lg_arena_adopt(arena, a->again[h].v))
			rc = LG_E_NOMEM;
	}
	if (rc)
		r->notes->amp = NULL;
	return rc;
}

static int look(struct lg_case *c, struct lg_gpu_run *r)
{
	if (r->notes->amp)
		return 0;
	if (lg_amp_begin(c, r))
		return LG_E_NOMEM;
	lg_amp_walk(c, r);
	return lg_amp_end(c, r);
}

/* An autocast made by hand: most matrix operators have a cast before them, hardly any is a pair. */
static bool by_hand(const struct lg_amp *a, const struct lg_gpu_run *r)
{
	return a->n_matrix >= LG_N_GPU_AMP_MISUSE_MATRIX &&
	       (double)a->n_hand >= LG_N_GPU_AMP_MISUSE_MATRIX * lg_gpu_steps(r) &&
	       a->n_hand * 2 >= a->n_matrix && a->n_pairs * 10 <= a->n_matrix;
}

static bool backward_too(const struct lg_amp *a)
{
	return a->n_back >= LG_N_GPU_AMP_MISUSE_MATRIX && a->n_back_pairs * 5 >= a->n_back * 4 &&
	       a->n_cast_pairs && a->n_neutral_pairs * 20 <= a->n_neutral;
}

int lg_gpu_refine_amp(struct lg_case *c, struct lg_gpu *g)
{
	LG_EACH(r, g->run, g->n) {
		const uint32_t of = LG_GPU_BIT(LG_GPU_BY_LAUNCH);
		int rc = 0;

		if (!lg_gpu_judged(r) || !r->n_ops)
			continue;
		if (look(c, r))
			return c->failed = LG_E_NOMEM;
		for (size_t h = 0; h < r->n_host && !rc; h++) {
			if (by_hand(r->notes->amp, r))
				rc = lg_gpu_carve(&c->scene, r, &r->notes->amp->hand[h], of, LG_GPU_BY_CAST);
			if (!rc && backward_too(r->notes->amp))
				rc = lg_gpu_carve(&c->scene, r, &r->notes->amp->again[h], of,
						  LG_GPU_BY_CAST);
		}
		if (rc)
			return c->failed = rc;
	}
	return 0;
}

/* Time that goes with the casts: kernels that others waited for, and launches that the device waited for. On
 * a CPU the casts' own time. */
static struct lg_finding *cost_of(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r,
				  const struct lg_ivs *ivs, double confidence)
{
	struct lg_gpu_sums s = { .row = LG_NO_ROW };
	int64_t lost = r->scope == LG_SHOWS_CPU ? 0 : r->by[LG_GPU_BY_CAST];
	struct lg_finding *f;

	for (size_t h = 0; h < r->n_host; h++) {
		lg_gpu_sum_within(&c->scene, r, r->host[h].thr, &ivs[h], &s);
		lost += r->scope == LG_SHOWS_CPU ? lg_iv_sum(&ivs[h]) : 0;
	}
	lost += s.savable;
	f = lg_gpu_finding(c, g, LG_R_GPU_AMP_MISUSE, lg_ms(lost), lg_gpu_part(r, (double)lost),
			   confidence, r);
	lg_grade_worth_a_line(f);
	if (s.n)
		lg_evidence_add(c, f, s.at, s.longest, LG_SAYS_GPU_AMP_MISUSE_CONVERT, s.n,
				lg_ms(s.ns));
	return f;
}

static void tell_by_hand(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r,
			 const struct lg_amp *a)
{
	struct lg_finding *f = cost_of(c, g, r, a->hand, 0.8);

	f->detail = "manual_casts";
	f->stage = lg_stage_name(LG_STAGE_FORWARD);
	lg_title(c, f, LG_SAYS_GPU_AMP_MISUSE_BY_HAND, a->n_hand, a->n_matrix, a->n_casts /
		 (r->n_steps ? r->n_steps : 1), lg_gpu_a_step(r));
	f->culprit.function = lg_gpu_place(&c->scene, a->row, LG_NO_ROW);
	lg_evidence_add(c, f, c->t->span.ts[a->row], c->t->span.dur[a->row],
			LG_SAYS_GPU_AMP_MISUSE_FIRST_CAST, lg_span_name(c->t, a->row));
	if (!a->n_finite && a->n_half)
		lg_evidence(c, f, LG_SAYS_GPU_AMP_MISUSE_UNSCALED_TOO);
	lg_evidence_against(c, f, LG_SAYS_GPU_AMP_MISUSE_SOME_NEEDED);
}

static void tell_backward(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r,
			  const struct lg_amp *a)
{
	struct lg_finding *f = cost_of(c, g, r, a->again, 0.85);

	f->detail = "backward_under_autocast";
	f->stage = lg_stage_name(LG_STAGE_BACKWARD);
	lg_title(c, f, LG_SAYS_GPU_AMP_MISUSE_BACKWARD, a->n_back_pairs, a->n_back);
	lg_evidence_add(c, f, c->t->span.ts[a->row], c->t->span.dur[a->row],
			LG_SAYS_GPU_AMP_MISUSE_FIRST_PAIR, lg_span_name(c->t, a->row));
}

static void tell_unscaled(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r,
			  const struct lg_amp *a)
{
	struct lg_finding *f;

	/* Two steps at least: a scaler that is there shows in each. */
	if (!r->has_backward || r->scope == LG_SHOWS_INFERENCE || r->n_steps < 2 || !a->n_typed ||
	    a->n_half * 2 < a->n_typed || a->n_half < LG_N_GPU_AMP_MISUSE_MATRIX || a->n_finite)
		return;
	f = lg_gpu_unpriced(c, g, LG_R_GPU_AMP_MISUSE, 0.5, r);
	f->detail = "no_loss_scaling";
	lg_cap(f, LG_CAP_UNMEASURED);
	f->stage = lg_stage_name(LG_STAGE_BACKWARD);
	f->title = LG_SAYS_GPU_AMP_MISUSE_UNSCALED;
	lg_evidence(c, f, LG_SAYS_GPU_AMP_MISUSE_HALF, a->n_half, a->n_typed);
	lg_evidence_against(c, f, LG_SAYS_GPU_AMP_MISUSE_SCALED_OTHERWISE);
}

int lg_find_amp(struct lg_case *c, struct lg_gpu *g)
{
	bool said[3] = { false };

	LG_EACH_WHERE(lg_gpu_traced(r) && r->n_ops, r, g->run, g->n) {
		if (look(c, r))
			return c->failed = LG_E_NOMEM;
		/* Ranks run the same program: the first that shows it speaks for all. */
		if (by_hand(r->notes->amp, r) && !said[0]) {
			tell_by_hand(c, g, r, r->notes->amp);
			said[0] = true;
		}
		if (backward_too(r->notes->amp) && !said[1] && !lg_is_told(c, LG_R_GPU_AMP_MISUSE)) {
			tell_backward(c, g, r, r->notes->amp);
			said[1] = true;
		}
		if (!said[2] && !lg_is_told(c, LG_R_GPU_AMP_MISUSE)) {
			tell_unscaled(c, g, r, r->notes->amp);
			said[2] = true;
		}
	}
	return c->failed;
}
