/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link_paths.c - pairs of devices whose path is wider one way than back, by NCCL's own topology. Links work
 * both ways at one speed: one way that is less is a lane that is lost, or a bridge that is off. One log
 * shows it.
 */
#include <stdlib.h>

#include "analyse/links/links.h"

enum { PAIRS_MAX = 64 }; /* each is looked for among all */

struct path {
	lg_prc prc;
	double gbps;
	const char *from, *to, *class;
};

static struct path *read_paths(struct lg_case *c, size_t *ret_n)
{
	const struct lg_trace *t = c->t;
	struct path *v = NULL;
	size_t n = 0, cap = 0;

	for (size_t i = 0; i < t->meta.n; i++) {
		const char *args = lg_string(t, t->meta.value[i]);
		struct path x = { .prc = t->meta.prc[i] };

		if (strcmp(lg_string(t, t->meta.key[i]), "nccl.path"))
			continue;
		x.from = lg_link_arg(c, args, "from");
		x.to = lg_link_arg(c, args, "to");
		x.class = lg_link_arg(c, args, "class");
		x.gbps = strtod(lg_link_arg(c, args, "gbps"), NULL);
		if (x.gbps > 0 && lg_failed(c, LG_APPEND(v, n, cap, x)))
			break;
	}
	*ret_n = n;
	return v;
}

LG_ORDER_BY(by_pair, struct path,
	    LG_CMP(x->prc, y->prc) ?: strcmp(x->from, y->from) ?: strcmp(x->to, y->to))

static const struct path *back_of(const struct path *v, size_t n, const struct path *x)
{
	struct path key = { .prc = x->prc, .from = x->to, .to = x->from };

	return n ? bsearch(&key, v, n, sizeof *v, by_pair) : NULL;
}

/* Every rank of a host prints the same: a pair is told once. */
static bool seen_before(const struct lg_case *c, const struct path *v, size_t n, const struct path *x)
{
	const struct lg_trace *t = c->t;

	for (size_t i = 0; i < n && v[i].prc < x->prc; i++)
		if (t->process.host[v[i].prc] == t->process.host[x->prc] && !strcmp(v[i].from, x->from) &&
		    !strcmp(v[i].to, x->to) && back_of(v, n, &v[i]))
			return true;
	return false;
}

static const char *title_of(struct lg_case *c, const struct path *x, const struct path *back)
{
	const char *host = lg_string(c->t, c->t->process.host[x->prc]);

	return lg_text(c, LG_SAYS_COMMS_DEGRADED_LINK_ONE_WAY_TITLE, *host ? host : "this host",
		       x->from, x->to, x->gbps, back->gbps);
}

void lg_find_link_paths(struct lg_case *c)
{
	struct lg_finding *f = NULL;
	size_t n, pairs = 0;
	struct path *v = read_paths(c, &n);

	LG_SORT(v, n, by_pair);
	LG_EACH_WHILE(pairs < PAIRS_MAX && !c->failed, x, v, n) {
		const struct path *back = back_of(v, n, x);

		if (!back || x->gbps >= LG_N_COMMS_DEGRADED_LINK_ONE_WAY * back->gbps ||
		    seen_before(c, v, n, x))
			continue;
		pairs++;
		if (!f) {
			f = lg_link_finding(c, "one_way", 0.9);
			f->title = title_of(c, x, back);
		}
		lg_evidence(c, f, LG_SAYS_COMMS_DEGRADED_LINK_PATHS, x->from, x->to, x->gbps,
			    x->class, back->gbps, back->class);
	}
	if (f && pairs > 1)
		lg_title(c, f, "%s; %zu such pairs%s", f->title, pairs,
			 pairs == PAIRS_MAX ? " and more" : "");
	lg_free(v);
}
