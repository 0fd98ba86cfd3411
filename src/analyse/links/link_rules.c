/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link_rules.c - comms.degraded_link: a host, a communicator or a port that is connected worse than its
 * peers, or than it was itself.
 *
 * One finding for each cause: what a host lacks is told under the first kind in the order of cause and effect
 * (a host without its network has fewer channels, too), and hosts that lack the same for the same reason are
 * told together. Logs do not tell what it costs.
 */
#include <math.h>
#include <stdlib.h>

#include "analyse/links/links.h"
#include "store/args.h"

enum { EVIDENCE_HOSTS = 3, PAST_SAID = 4, FEW = 2 };

/* A kind's detail and title: says[0] WHO says[1] HAS says[2] PEERS says[3] USUAL; value_first: HAS, WHO,
 * USUAL, PEERS. WHO: hosts and their ranks. PEERS: "the 3 others". */
static const struct {
	const char *detail, *says[4];
	bool value_first;
} link_kinds[LG_LINK_KINDS] = {
	[LG_LINK_NETWORK] = { "network", { "the network of ", " is ", ", that of ", " is " }, false },
	[LG_LINK_TRANSPORT] = { "transport", { "GPUs of ", " are connected by ", ", the same pairs of ", " by " }, false },
	[LG_LINK_GDR] = { "gdr", { "adapters of ", " work ", ", those of ", " " }, false },
	[LG_LINK_ADAPTERS] = { "adapters", { "NCCL uses ", " on ", ", ", " on " }, true },
	[LG_LINK_SPEED] = { "adapter_speed", { "an adapter of ", " runs at ", ", the same one of ", " at " }, false },
	[LG_LINK_NVLS] = { "nvls", { "GPUs of ", " work ", ", those of ", " " }, false },
	[LG_LINK_TOPOLOGY] = { "topology", { "NCCL finds ", " for the GPUs of ", ", ", " on " }, true },
	[LG_LINK_CHANNELS] = { "channels", { "communicators of ", " have ", ", those of the same shape on ", " have " },
			       false },
};

struct lg_finding *lg_link_finding(struct lg_case *c, const char *what, double confidence)
{
	struct lg_finding *f = lg_finding_about(c, LG_R_COMMS_DEGRADED_LINK, LG_STAGE_GRAD_SYNC,
						LG_RELATION_HARDWARE, confidence);

	f->detail = what;
	return f;
}

static int by_label(const void *a, const void *b, void *arg)
{
	const struct lg_case *c = ((void **)arg)[0];
	const struct lg_links *l = ((void **)arg)[1];
	const struct lg_link_sample *x = &l->sample[*(const uint32_t *)a];
	const struct lg_link_sample *y = &l->sample[*(const uint32_t *)b];
	int order = strverscmp(lg_string(c->t, x->a), lg_string(c->t, y->a));

	return order ? order : (x > y) - (x < y);
}

/* The shorts of one kind of one host: indices of samples, in the order of devices, and the first short. */
static size_t shorts_of(struct lg_case *c, struct lg_links *l, uint32_t host, uint32_t kind, uint32_t *ret,
			const struct lg_link_short **ret_first)
{
	size_t n = 0;

	for (size_t i = 0; i < l->n_less; i++) {
		const struct lg_link_sample *s = &l->sample[l->less[i].sample];

		if (s->kind != kind || s->strict || s->host != l->host[host].name)
			continue;
		if (!n)
			*ret_first = &l->less[i];
		ret[n++] = l->less[i].sample;
	}
	if (n)
		qsort_r(ret, n, sizeof *ret, by_label, (void *[]){ c, l });
	return n;
}

static uint32_t first_kind(uint32_t kinds)
{
	return (uint32_t)__builtin_ctz(kinds);
}

/*
 * A communicator has as few channels as its worst host: one whose only fault is to be in it with a host that
 * lacks something else is not to blame.
 */
static void excuse_company(struct lg_case *c, struct lg_links *l)
{
	struct lg_map guilty = { 0 };

	for (int pass = 0; pass < 2 && !c->failed; pass++)
		for (size_t i = 0; i < l->n_less; i++) {
			const struct lg_link_sample *s = &l->sample[l->less[i].sample];
			uint32_t h = lg_link_host_of(l, s->host);

			if (s->kind != LG_LINK_CHANNELS || h == UINT32_MAX || s->unit == s->host)
				continue;
			if (!pass && l->host[h].kinds & ((1u << LG_LINK_CHANNELS) - 1)) {
				(void)lg_failed(c, lg_map_set(&guilty, s->unit, 1));
			} else if (pass && l->host[h].kinds == 1u << LG_LINK_CHANNELS &&
				   lg_map_get(&guilty, s->unit)) {
				l->host[h].kinds = 0;
			}
		}
	lg_map_done(&guilty);
}

/* 1: processes of the hosts in `is`; 2: of those that do not lack this kind. */
static void flag_processes(const struct lg_case *c, const struct lg_links *l, const uint8_t *is,
			   uint32_t kind, uint8_t *flag)
{
	for (lg_prc p = 1; p < c->t->process.n; p++) {
		uint32_t h = lg_link_host_of(l, c->t->process.host[p]);

		flag[p] = 0;
		if (h != UINT32_MAX)
			flag[p] = is[h] ? 1 : !(l->host[h].kinds >> kind & 1) ? 2 : 0;
	}
}

static const char *title_of(struct lg_case *c, uint32_t kind, const char *who, const char *has,
			    const char *usual, const char *peers)
{
	const char *const *says = link_kinds[kind].says;
	bool value = link_kinds[kind].value_first;

	return lg_text(c, "%s%s%s%s%s%s%s%s", says[0], value ? has : who, says[1], value ? who : has,
		       says[2], value ? usual : peers, says[3], value ? peers : usual);
}

/* One peer is no majority: then nothing but a setting that explains it tells which of the two is odd. */
static void grade(struct lg_case *c, struct lg_finding *f, uint32_t n_peers, bool proven)
{
	f->confidence = n_peers >= 3 ? 0.85 : n_peers == 2 ? 0.75 : 0.5;
	if (proven)
		f->confidence += n_peers >= 2 ? 0.1 : 0.3;
	if (n_peers >= 2 || proven)
		return;
	lg_cap(f, LG_CAP_UNEQUAL);
	lg_evidence_against(c, f, LG_SAYS_COMMS_DEGRADED_LINK_ONE_PEER);
}

static void say_setting(struct lg_case *c, struct lg_finding *f, const char *setting, const char *key,
			const char *peers, const char *where)
{
	struct lg_setting *s = lg_arena_alloc(&c->v->arena, 1, sizeof *s);

	if (!s)
		return;
	*s = (struct lg_setting){ where, key, setting + strlen(key) + 1, peers };
	f->setting = s;
	f->culprit.relation = LG_RELATION_SELF;
	lg_title(c, f, "%s: %s is set there", f->title, setting);
	lg_evidence(c, f, LG_SAYS_COMMS_DEGRADED_LINK_SETTING, setting, where, peers ? peers :
		    "unset");
}

/* What a host lacks, kind by kind, the first one first. */
static void say_shorts(struct lg_case *c, struct lg_links *l, struct lg_finding *f, const uint8_t *is,
		       uint32_t *v)
{
	size_t hosts = 0;

	for (uint32_t h = 0; h < l->n_host && hosts < EVIDENCE_HOSTS; h++) {
		if (!is[h])
			continue;
		hosts++;
		for (uint32_t k = 0; k < LG_LINK_KINDS; k++) {
			const struct lg_link_short *first = NULL;
			size_t n = l->host[h].kinds >> k & 1 ? shorts_of(c, l, h, k, v, &first) : 0;
			const char *of;

			if (!n)
				continue;
			of = lg_link_of_text(c, l, v, n);
			lg_evidence(c, f, "%s: %s%s%s; %u of %u %s: %s", lg_string(c->t, l->host[h].name),
				    of, *of ? ": " : "", lg_link_value_text(c, l, v[0]), first->n_usual,
				    first->n_units, k == LG_LINK_CHANNELS ? "communicators or hosts" :
				    "hosts", lg_link_value_text(c, l, first->usual_sample));
		}
	}
}

struct group {
	const uint8_t *is;
	const uint8_t *flag; /* by process */
	const char *setting, *key, *peers;
};

static void finding_of(struct lg_case *c, struct lg_links *l, uint32_t host, const struct group *g,
		       uint32_t *v)
{
	uint32_t kind = first_kind(l->host[host].kinds);
	const struct lg_link_short *first = NULL;
	const char *who, *others, *of;
	struct lg_finding *f;
	size_t one = 0, n;
	int32_t rank;
	lg_prc prc;

	n = shorts_of(c, l, host, kind, v, &first);
	if (!n)
		return;
	f = lg_link_finding(c, link_kinds[kind].detail, 0.5);
	grade(c, f, first->n_usual, g->setting != NULL);
	/* A few channels, or a little of the bandwidth: that may cost nothing. How much goes through a small
	 * communicator nobody knows: those of tensor parallelism are small and busy. */
	if ((kind == LG_LINK_CHANNELS || kind == LG_LINK_TOPOLOGY) && !g->setting &&
	    l->sample[v[0]].value > first->usual * LG_N_COMMS_DEGRADED_LINK_LITTLE)
		lg_cap(f, LG_CAP_UNMEASURED);
	prc = l->sample[v[0]].prc;
	who = lg_link_hosts_text(c, l, g->is);
	others = first->n_usual == 1 && first->n_units == 2
			 ? lg_string(c->t, l->sample[first->usual_sample].host)
			 : lg_text(c, "%u other%s", first->n_usual, first->n_usual > 1 ? "s" : "");
	/* Which of its devices, where it is not most of them. */
	of = n <= FEW && (kind == LG_LINK_TRANSPORT || kind == LG_LINK_SPEED || kind == LG_LINK_GDR)
		     ? lg_link_of_text(c, l, v, n) : "";
	f->title = title_of(c, kind,
			    lg_text(c, "%s%s%s%s", who, lg_link_ranks_text(c, l, g->is, &rank),
				    *of ? ", " : "", of),
			    lg_link_value_text(c, l, v[0]), lg_link_value_text(c, l, first->usual_sample),
			    others);
	for (lg_prc p = 1; p < c->t->process.n; p++)
		one += g->flag[p] == 1;
	if (one == 1) {
		f->culprit.pid = c->t->process.pid[prc];
		f->culprit.rank = rank;
	}
	if (g->setting)
		say_setting(c, f, g->setting, g->key, g->peers, who);
	say_shorts(c, l, f, g->is, v);
	lg_link_differences(c, f, g->flag, g->setting);
	for (uint32_t h = 0; h < l->n_host; h++)
		if (!g->is[h] && l->host[h].local && l->host[host].local &&
		    l->host[h].local != l->host[host].local) {
			lg_evidence_against(c, f, LG_SAYS_COMMS_DEGRADED_LINK_UNEQUAL,
					    l->host[host].local, l->host[h].local);
			lg_cap(f, LG_CAP_UNEQUAL);
			f->confidence *= 0.8;
			break;
		}
}

static void hosts(struct lg_case *c, struct lg_links *l)
{
	LG_AUTOFREE uint8_t *is = lg_calloc(l->n_host + 1, 1), *done = lg_calloc(l->n_host + 1, 1);
	LG_AUTOFREE uint8_t *flag = lg_calloc(c->t->process.n + 1, 1);
	LG_AUTOFREE uint32_t *v = lg_calloc(l->n_less + 1, sizeof *v);
	LG_AUTOFREE struct group *g = lg_calloc(l->n_host + 1, sizeof *g);

	if (!is || !done || !flag || !v || !g)
		c->failed = LG_E_NOMEM;
	/* Each host's own reason. */
	for (uint32_t h = 0; h < l->n_host && !c->failed; h++) {
		if (!l->host[h].kinds)
			continue;
		is[h] = 1;
		flag_processes(c, l, is, first_kind(l->host[h].kinds), flag);
		is[h] = 0;
		g[h] = (struct group){ .is = is, .flag = flag };
		g[h].setting = lg_link_setting(c, l, flag, (enum lg_link_kind)first_kind(l->host[h].kinds),
					       &g[h].key, &g[h].peers);
	}
	for (uint32_t h = 0; h < l->n_host && !c->failed; h++) {
		uint32_t kind;

		if (!l->host[h].kinds || done[h])
			continue;
		kind = first_kind(l->host[h].kinds);
		for (uint32_t o = 0; o < l->n_host; o++) {
			is[o] = o >= h && !done[o] && l->host[o].kinds &&
				first_kind(l->host[o].kinds) == kind &&
				(!g[o].setting == !g[h].setting) &&
				(!g[h].setting || !strcmp(g[o].setting, g[h].setting));
			done[o] |= is[o];
		}
		flag_processes(c, l, is, kind, flag);
		finding_of(c, l, h, &g[h], v);
	}
}

/* Communicators with one rank a host, among their siblings on the other devices. */
static void siblings(struct lg_case *c, struct lg_links *l)
{
	struct lg_finding *f = lg_told(c, LG_R_COMMS_DEGRADED_LINK);

	LG_EACH(x, l->less, l->n_less) {
		const struct lg_link_sample *s = &l->sample[x->sample];
		const char *has = lg_link_value_text(c, l, x->sample);
		const char *usual = lg_link_value_text(c, l, x->usual_sample), *on;

		if (!s->strict)
			continue;
		on = lg_with(c, ", on ", lg_link_of_text(c, l, &x->sample, 1));
		if (!f) {
			f = lg_link_finding(c, link_kinds[LG_LINK_CHANNELS].detail, 0.7);
			lg_title(c, f, LG_SAYS_COMMS_DEGRADED_LINK_SIBLING, on, has, x->n_usual,
				 x->n_units - 1, usual);
			if (s->value > x->usual * LG_N_COMMS_DEGRADED_LINK_LITTLE)
				lg_cap(f, LG_CAP_UNMEASURED);
			lg_evidence_against(c, f, LG_SAYS_COMMS_DEGRADED_LINK_BY_DESIGN);
		}
		lg_evidence(c, f, LG_SAYS_COMMS_DEGRADED_LINK_SIBLINGS, on, has, x->n_usual, x->n_units,
			    usual);
	}
}

/* ---- its own past ---- */

LG_ORDER_BY(by_life, struct lg_link_comm,
	    LG_CMP(x->host, y->host) ?: LG_CMP(x->dev, y->dev) ?: LG_CMP(y->nranks, x->nranks) ?:
	    LG_CMP(x->rank, y->rank) ?: LG_CMP(x->nth, y->nth) ?: LG_CMP(x->again, y->again) ?:
	    LG_CMP(x->mark, y->mark))

/*
 * Is y what x was, set up again? One process may make a group of a pair of devices, and when that is gone
 * another one with another pair: only of the job's largest communicator are the members certain. Its
 * successor makes the same ones in the same order.
 */
static bool is_again(const struct lg_links *l, const struct lg_link_comm *x, const struct lg_link_comm *y)
{
	uint32_t h = lg_link_host_of(l, y->host);

	if (x->host != y->host || x->dev != y->dev || x->nranks != y->nranks || x->rank != y->rank ||
	    x->nth != y->nth || y->again != x->again + 1 || h == UINT32_MAX)
		return false;
	return x->prc != y->prc || x->life != y->life || y->nranks == l->host[h].nranks;
}

/* What y lacks that it had as x. LG_LINK_KINDS = nothing: also where its ranks lie otherwise now. */
static enum lg_link_kind lost(const struct lg_link_comm *x, const struct lg_link_comm *y)
{
	if (x->nodes != y->nodes || x->local != y->local)
		return LG_LINK_KINDS;
	if (y->socket && x->has_net && !x->socket)
		return LG_LINK_NETWORK;
	if (x->bw > 0 && y->bw > 0 && y->bw < x->bw * 0.99)
		return LG_LINK_TOPOLOGY;
	if (x->coll > 0 && y->coll > 0 && y->coll < x->coll)
		return LG_LINK_CHANNELS;
	return LG_LINK_KINDS;
}

static const char *past_text(struct lg_case *c, enum lg_link_kind k, const struct lg_link_comm *m)
{
	size_t n;
	const char *net = lg_arg(lg_string(c->t, c->t->mark.text[m->mark]), "net", &n);

	if (k == LG_LINK_NETWORK)
		return lg_text(c, "network %.*s", net ? (int)n : 0, net ? net : "");
	if (k == LG_LINK_TOPOLOGY)
		return lg_text(c, "%.1f GB/s", m->bw);
	return lg_text(c, "%d channel%s", m->coll, m->coll > 1 ? "s" : "");
}

static void past_of(struct lg_case *c, struct lg_links *l, enum lg_link_kind kind, uint8_t *is, uint8_t *flag)
{
	struct lg_finding *f = NULL;
	const char *key = NULL, *peers = NULL, *setting;
	size_t n = 0, n_hosts = 0;
	int32_t rank;

	memset(is, 0, l->n_host);
	memset(flag, 0, c->t->process.n);
	for (size_t i = 1; i < l->n_comm; i++) {
		const struct lg_link_comm *y = &l->comm[i], *x = y - 1;
		uint32_t h = lg_link_host_of(l, y->host);

		if (!is_again(l, x, y) || lost(x, y) != kind)
			continue;
		n++;
		n_hosts += !is[h];
		is[h] = 1;
		flag[y->prc] = 1;
		if (flag[x->prc] != 1)
			flag[x->prc] = 2;
		if (!f) {
			f = lg_link_finding(c, link_kinds[kind].detail, 0.75);
			lg_title(c, f, LG_SAYS_COMMS_DEGRADED_LINK_SET_UP_AGAIN, y->nranks,
				 past_text(c, kind, y), past_text(c, kind, x));
		}
		if (n <= PAST_SAID)
			lg_evidence_add(c, f, c->t->mark.ts[y->mark], 0,
					LG_SAYS_COMMS_DEGRADED_LINK_BEFORE, y->rank, y->nranks,
					lg_string(c->t, y->host), past_text(c, kind, y),
					past_text(c, kind, x));
	}
	if (!f)
		return;
	f->confidence = n > 1 ? 0.85 : 0.75;
	if (n_hosts == 1)
		lg_title(c, f, "%s (on %s%s)", f->title, lg_link_hosts_text(c, l, is),
			 lg_link_ranks_text(c, l, is, &rank));
	setting = lg_link_setting(c, l, flag, kind, &key, &peers);
	if (setting)
		say_setting(c, f, setting, key, peers, lg_link_hosts_text(c, l, is));
	lg_link_differences(c, f, flag, setting);
}

static void past(struct lg_case *c, struct lg_links *l)
{
	static const enum lg_link_kind kinds[] = { LG_LINK_NETWORK, LG_LINK_TOPOLOGY, LG_LINK_CHANNELS };
	LG_AUTOFREE uint8_t *is = lg_calloc(l->n_host + 1, 1), *flag = lg_calloc(c->t->process.n + 1, 1);

	if (!is || !flag)
		c->failed = LG_E_NOMEM;
	LG_SORT(l->comm, l->n_comm, by_life);
	for (size_t i = 0; i < LG_COUNT(kinds) && !c->failed; i++)
		past_of(c, l, kinds[i], is, flag);
}

/* ---- what was compared ---- */

static void say_compared(struct lg_case *c, const struct lg_links *l)
{
	const char *net = NULL, *mixed = "";
	int32_t world = 0;
	size_t direct = l->n_pairs[LG_WAY_DIRECT] + l->n_pairs[LG_WAY_INDIRECT];
	const char *end;

	for (size_t i = 0; i < c->t->meta.n; i++) {
		const char *v = lg_string(c->t, c->t->meta.value[i]);

		if (!c->t->meta.prc[i] || strcmp(lg_string(c->t, c->t->meta.key[i]), "nccl.net"))
			continue;
		if (net && strcmp(net, v))
			mixed = " and others";
		net = net ? net : v;
	}
	for (size_t i = 0; i < l->n_host; i++)
		world = LG_MAX(l->host[i].nranks, world);
	if (lg_told(c, LG_R_COMMS_DEGRADED_LINK))
		end = "what stands out is a finding";
	else if (l->n_compared)
		end = l->n_undecided ? lg_text(c, "in %zu of them hosts differ, but no majority tells what "
					       "is usual", l->n_undecided)
				     : "nothing stands out";
	else
		end = "nothing to compare it with: give the logs of all hosts, or of an earlier run, together";
	lg_say(c, LG_SAYS_NCCL_COMPARED, l->n_host, l->n_host == 1 ? "" : "s", world, world == 1 ?
	       "" : "s", net ? net : "not told", mixed, direct, l->n_pairs[LG_WAY_SHM],
	       l->n_pairs[LG_WAY_NET], l->n_comm, l->n_tests, l->n_compared, end);
}

int lg_find_links(struct lg_case *c)
{
	struct lg_links l = { 0 };
	int rc = lg_links_read(c, &l);

	if (!rc) {
		excuse_company(c, &l);
		hosts(c, &l);
		siblings(c, &l);
		past(c, &l);
	}
	lg_find_link_paths(c);
	if (!c->failed)
		rc = lg_find_link_speed(c, &l);
	if (!c->failed)
		rc = lg_find_link_events(c);
	if (!c->failed && l.n_host && (l.n_comm || l.n_sample || l.n_tests))
		say_compared(c, &l);
	lg_links_done(&l);
	return rc ? rc : c->failed;
}
