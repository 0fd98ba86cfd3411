/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention.c - attention in single steps (torch's math path), and what one fused kernel would save.
 *
 * What it takes is in the trace: forward runs inside aten::_scaled_dot_product_attention_math, whose
 * operators each have a node of autograd's of their own. These have the sequence numbers from that operator's
 * to that of the first one behind it, and so have their rows in the backward pass.
 *
 * What a fused kernel takes is not. It keeps the scores on the chip: scaling, mask, softmax, dropout, casts
 * and copies cost it nothing, the matrix products stay, and backward has one of them again (Dao et al. 2022):
 * 5 for its own 4. The products' own time is taken for it; where shapes were recorded the longer of, and no
 * more than the products and one again,
 *  - the products' operations at {FUSED} of the rate of the trace's other matrix products: FlashAttention-2
 *    has 0.63 to 0.73 of an A100's peak where these have 0.8 to 0.9 (Dao 2023), torch 2.11 on an H100 has 0.4
 *    to 0.5 of theirs;
 *  - the part of the products' time that their traffic has without the scores: next to none for long
 *    sequences, nearly all for a few positions, for which the products are as good.
 * Without shapes, products in plain fp32 beside others on tensor cores were cast up by the path (torch since
 * 2.5): tensor cores take a {UPCAST}th of their time at most.
 */
#include <math.h>

#include "analyse/device/device_rules.h"
#include "base/order.h"
#include "base/upper_bound.h"
#include "store/args.h"

enum { DIMS_MAX = 8 };

struct numbers {
	int64_t from, to; /* of sequence: [from, to) */
};

struct attention {
	struct lg_gpu_sums sums;           /* of all its kernels; .spans: calls of forward */
	int64_t forward, backward, products, fp32; /* ns of these; of products, of these in plain fp32 */
	int64_t products_back;             /* of products, ns in backward */
	double flops, unscored;            /* of forward's products; by what of their traffic is no score's */
	size_t shaped;                     /* calls whose shapes are known */
	struct numbers *v;                 /* by from */
	size_t n, cap;
	uint8_t *mine;                     /* by work */
};

LG_ORDER_BY(cmp_numbers, struct numbers, LG_CMP(x->from, y->from))

/* Shape k of "[[4,16,1024,64],[]]": how many dimensions it has. */
static int shape(const char *list, size_t n, size_t k, double dim[DIMS_MAX])
{
	size_t at = 0;
	int depth = 0, dims = 0;

	for (size_t i = 0; list && i < n; i++) {
		if (list[i] == '[') {
			depth++;
		} else if (list[i] == ']') {
			if (depth-- == 2 && at++ == k)
				return dims;
		} else if (depth == 2 && at == k && list[i] >= '0' && list[i] <= '9') {
			double v = 0;

			for (; i < n && list[i] >= '0' && list[i] <= '9'; i++)
				v = v * 10 + (list[i] - '0');
			i--;
			if (dims == DIMS_MAX)
				return 0;
			dim[dims++] = v;
		}
	}
	return 0;
}

/* Of a matrix product, whose inputs are A [.., M, K] and B [.., K, N], behind what aten::addmm adds; 0 = not
 * told. */
static double product_flops(const struct lg_trace *t, uint32_t row)
{
	double a[DIMS_MAX], b[DIMS_MAX], flops = 2;
	bool adds = !strncmp(lg_span_name(t, row), "aten::addmm", 11) ||
		    !strncmp(lg_span_name(t, row), "aten::baddbmm", 13);
	size_t len;
	const char *list = lg_span_arg(t, row, "dims", &len);
	int n = shape(list, len, adds, a), m = shape(list, len, adds + 1, b);

	if (n < 2 || m < 2)
		return 0;
	for (int i = 0; i < n; i++)
		flops *= a[i];
	return flops * b[m - 1];
}

/* query [batch, heads, N, D] and key [.., S, D] are its inputs; grouped attention has fewer heads of keys. */
static void add_call(const struct lg_trace *t, uint32_t row, struct attention *x)
{
	double q[DIMS_MAX], k[DIMS_MAX], heads, scores, rest, flops;
	size_t len;
	const char *list = lg_span_arg(t, row, "dims", &len);

	x->sums.spans++;
	if (shape(list, len, 0, q) != 4 || shape(list, len, 1, k) != 4)
		return;
	heads = q[0] * q[1];
	scores = heads * q[2] * k[2];
	rest = heads * (q[2] + k[2]) * q[3];
	if (!(rest > 0))
		return;
	flops = 4 * scores * q[3];
	x->flops += flops;
	x->unscored += flops * rest / (rest + scores);
	x->shaped++;
}

/* The path's calls on r's main thread, which are put into a, and the numbers of their operators. Numbers are
 * a thread's own: what another one computes again for its backward pass has others. */
static int find_calls(struct lg_case *c, const struct lg_gpu_run *r, struct attention *x, struct lg_ivs *a)
{
	const struct lg_trace *t = c->t;
	LG_AUTOFREE uint8_t *picked = lg_span_pick(&c->scene, LG_LIST_MATH_ATTENTION);
	struct lg_gpu_rows rows = lg_gpu_rows(&c->scene, r, r->main, NULL);
	int64_t until = INT64_MIN, from = -1, last = -1;
	uint32_t row;
	int rc = 0;

	while (picked && !rc && lg_gpu_next_row(&rows, &row)) {
		const struct lg_span_at *s = lg_gpu_this_row(&rows);
		int64_t seq = t->span.kind[row] == LG_SPAN_OP ? t->span.seq[row] : -1;

		if (s->ts >= until && from >= 0 && seq >= from) {
			rc = LG_APPEND(x->v, x->n, x->cap, (struct numbers){ from, seq });
			from = -1;
		}
		if (s->ts >= until && picked[s->name]) {
			until = lg_span_end(t, row);
			from = last = seq;
			add_call(t, row, x);
			rc = rc ?: lg_iv_add(a, s->ts, until, row);
		}
		last = LG_MAX(last, seq);
	}
	if (!rc && from >= 0)
		rc = LG_APPEND(x->v, x->n, x->cap, (struct numbers){ from, last + 1 });
	LG_SORT(x->v, x->n, cmp_numbers);
	return rc;
}

static bool is_numbered(const struct attention *x, int64_t seq)
{
	size_t lo = 0, hi = x->n;

	LG_BISECT(lo, hi, mid, x->v[mid].from <= seq);
	return lo && seq < x->v[lo - 1].to;
}

/* Autograd's rows of these numbers on thr. */
static int find_nodes(const struct lg_case *c, const struct lg_gpu_run *r, lg_thr thr,
		      const uint8_t *nodes, const struct attention *x, struct lg_ivs *a)
{
	struct lg_gpu_rows rows = lg_gpu_rows(&c->scene, r, thr, nodes);
	uint32_t row;
	int rc = 0;

	while (x->n && !rc && lg_gpu_next_row(&rows, &row))
		if (is_numbered(x, c->t->span.seq[row]))
			rc = lg_iv_add(a, lg_gpu_this_row(&rows)->ts, lg_span_end(c->t, row), row);
	return rc;
}

static void take(struct lg_case *c, const struct lg_gpu_run *r, lg_thr thr, const struct lg_ivs *a,
		 const struct lg_ivs *products, struct attention *x, int64_t *pass)
{
	for (size_t i = 0; a->n && i < r->n_work; i++) {
		const struct lg_gpu_work *w = &r->work[i];

		if (w->class != LG_GPU_COMPUTE || !lg_gpu_called_within(w, thr, a) || x->mine[i] ||
		    !lg_gpu_in_window(r, w))
			continue;
		x->mine[i] = 1;
		lg_gpu_sum_in(&c->scene, r, i, &x->sums);
		*pass += w->end - w->ts;
		if (!lg_gpu_called_within(w, thr, products))
			continue;
		x->products += w->end - w->ts;
		if (pass == &x->backward)
			x->products_back += w->end - w->ts;
		if (lg_kernel_is_fp32(lg_span_name(c->t, w->span)))
			x->fp32 += w->end - w->ts;
	}
}

static int find(struct lg_case *c, const struct lg_gpu_run *r, struct attention *x)
{
	LG_AUTOFREE uint8_t *nodes = lg_span_pick(&c->scene, LG_LIST_NODES);
	LG_AUTO_IVS calls = { 0 };
	int rc = find_calls(c, r, x, &calls);

	LG_EACH_WHILE(calls.n && !rc, h, r->host, r->n_host) {
		LG_AUTO_IVS products = lg_gpu_spans(&c->scene, r, h->thr, LG_LIST_PRODUCTS);
		LG_AUTO_IVS back = { 0 };

		if (h->thr == r->main)
			take(c, r, h->thr, &calls, &products, x, &x->forward);
		rc = nodes ? find_nodes(c, r, h->thr, nodes, x, &back) : 0;
		if (!rc)
			take(c, r, h->thr, &back, &products, x, &x->backward);
	}
	return rc;
}

/* Operations a nanosecond of the matrix products that are no part of it; 0 = not told. *ret_tensor: most of
 * their time is on tensor cores. */
static double others_rate(struct lg_case *c, const struct lg_gpu_run *r, const struct attention *x,
			  bool *ret_tensor)
{
	int64_t ns = 0, fp32 = 0;
	double flops = 0;

	LG_EACH(h, r->host, r->n_host) {
		LG_AUTO_IVS a = lg_gpu_spans(&c->scene, r, h->thr, LG_LIST_PRODUCTS);
		size_t at = 0;

		/* Rows of one thread, and what it launched, are in order, but for several streams. */
		for (size_t i = 0; a.n && i < r->n_work; i++) {
			const struct lg_gpu_work *w = &r->work[i];

			if (x->mine[i] || w->class != LG_GPU_COMPUTE || !lg_gpu_in_window(r, w) ||
			    !lg_gpu_called_within(w, h->thr, &a))
				continue;
			ns += w->end - w->ts;
			if (lg_kernel_is_fp32(lg_span_name(c->t, w->span)))
				fp32 += w->end - w->ts;
			while (at < a.n && a.v[at].end <= w->called)
				at++;
			if (at < a.n && a.v[at].ts <= w->called) {
				flops += product_flops(c->t, a.v[at].row);
				at++;
			}
		}
	}
	*ret_tensor = ns > 2 * fp32;
	return ns ? flops / (double)ns : 0;
}

/* ns that fused kernels would take, of all calls. */
static double fused_ns(struct lg_case *c, const struct lg_gpu_run *r, const struct attention *x,
		       const char **ret_how)
{
	bool tensor;
	double rate = others_rate(c, r, x, &tensor), flops;
	double products = (double)x->products;

	if (x->shaped && x->shaped == x->sums.spans && rate > 0) {
		*ret_how = LG_SAYS_GPU_MATH_ATTENTION_BY_SHAPES;
		flops = x->flops * (x->backward ? 1 + 5.0 / 2 : 1);
		products += (double)x->products_back / 4; /* 5 for 4 */
		return fmin(products, fmax(flops / (LG_N_GPU_MATH_ATTENTION_FUSED * rate),
					   products * x->unscored / x->flops));
	}
	if (tensor && 2 * x->fp32 > x->products) {
		*ret_how = LG_SAYS_GPU_MATH_ATTENTION_BY_CAST;
		return products / LG_N_GPU_MATH_ATTENTION_UPCAST;
	}
	*ret_how = LG_SAYS_GPU_MATH_ATTENTION_BY_PRODUCTS;
	return products;
}

static bool tell(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r,
		 const struct attention *x)
{
	const char *how = NULL;
	double fused = x->products ? fused_ns(c, r, x, &how) : 0.5 * (double)x->sums.ns;
	struct lg_finding *f;

	if (!(fused < (double)x->sums.ns))
		return false;
	f = lg_gpu_costs(c, g, LG_R_GPU_MATH_ATTENTION, r, &x->sums, 1 - fused / (double)x->sums.ns, 0.8,
			 LG_N_GPU_MATH_ATTENTION_FLOOR);
	if (!f)
		return false;
	lg_title(c, f, LG_SAYS_GPU_MATH_ATTENTION_TITLE, x->sums.spans, x->sums.n);
	if (how)
		lg_evidence(c, f, LG_SAYS_GPU_MATH_ATTENTION_PASSES, lg_ms(x->forward), lg_ms(x->backward),
			    lg_ms(x->products), fused / 1e6, how);
	else
		lg_evidence_against(c, f, LG_SAYS_GPU_MATH_ATTENTION_ESTIMATE);
	if (r->has_backward && !x->backward)
		lg_evidence_against(c, f, LG_SAYS_GPU_MATH_ATTENTION_NO_BACKWARD);
	return true;
}

int lg_find_attention(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *r,
		      uint8_t **ret_mine)
{
	struct attention x = { .sums = { .row = LG_NO_ROW } };
	int rc = 0;

	*ret_mine = NULL;
	if (!r->main)
		return 0;
	x.mine = lg_calloc(r->n_work + 1, 1);
	rc = x.mine ? find(c, r, &x) : LG_E_NOMEM;
	if (!lg_failed(c, rc) && tell(c, g, r, &x)) {
		*ret_mine = x.mine;
		x.mine = NULL;
	}
	lg_free(x.mine);
	lg_free(x.v);
	return c->failed;
}
