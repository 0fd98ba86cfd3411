/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link_facts.c - the facts of NCCL's logs as things that can be compared, and who has less than most.
 *
 * A unit's value is its worst one. What most units have is usual: more than half of them, or, of two, the
 * better one. A unit that has less of some things and more of others of one kind is not worse but different
 * (its devices are numbered in another order), and is left alone.
 */
#include <stdlib.h>

#include "analyse/links/links.h"
#include "base/median.h"
#include "store/args.h"

enum { STRICT_UNITS = 4 };
#define SAME 0.01 /* what is printed with one decimal place is equal within that share */

static uint64_t mix(uint64_t a, uint64_t b)
{
	return lg_mix64(a ^ lg_mix64(b + 1));
}

uint64_t lg_link_hash(uint64_t h, const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		h = lg_mix64(h ^ (unsigned char)s[i]);
	return h;
}

double lg_link_number(const char *args, const char *key, double otherwise)
{
	size_t n;
	const char *v = lg_arg(args, key, &n);
	char *end;
	double x;

	if (!v || !n)
		return otherwise;
	x = strtod(v, &end);
	return end > v && x > -1e9 && x < 1e12 ? x : otherwise;
}

static uint64_t word(const char *args, const char *key)
{
	size_t n;
	const char *v = lg_arg(args, key, &n);

	return v && n ? lg_link_hash(n, v, n) | 1 : 0;
}

bool lg_link_is(const char *args, const char *key, const char *value)
{
	size_t n;
	const char *v = lg_arg(args, key, &n);

	return v && n == strlen(value) && !memcmp(v, value, n);
}

uint32_t lg_link_host_of(const struct lg_links *l, lg_str name)
{
	return lg_map_get(&l->by_host, name) - 1;
}

static struct lg_link_host *host_at(struct lg_case *c, struct lg_links *l, lg_str name)
{
	uint32_t at = LG_MAP_APPEND(&l->by_host, name, l->host, l->n_host, l->cap_host,
				    (struct lg_link_host){ .name = name });

	return lg_failed(c, at ? 0 : LG_E_NOMEM) ? NULL : &l->host[at - 1];
}

static void add(struct lg_case *c, struct lg_links *l, const struct lg_link_sample *s)
{
	(void)lg_failed(c, LG_APPEND(l->sample, l->n_sample, l->cap_sample, *s));
}

/* Whose rank is it, in that communicator? Those without an id are told apart by their size, and where several
 * have one size and a rank in two places, by nothing. */
static uint64_t place_of(const struct lg_link_comm *m, int32_t rank)
{
	return mix(m->id ? m->id : (uint64_t)m->nranks, (uint64_t)rank) | 1;
}

/* A connection over the network: are both ends of one host? In every communicator that it may be of, the
 * peer's rank must be there. */
static bool is_of_this_host(struct lg_case *c, const struct lg_links *l, size_t row)
{
	const char *v = lg_string(c->t, c->t->meta.value[row]);
	int32_t rank = (int32_t)lg_link_number(v, "rank", -1), peer = (int32_t)lg_link_number(v, "peer", -1);
	uint64_t dev = word(v, lg_link_is(v, "way", "send") ? "from" : "to");
	lg_prc p = c->t->meta.prc[row];
	bool any = false;

	for (uint32_t i = lg_map_get(&l->by_process, p); i; i = l->comm[i - 1].next) {
		const struct lg_link_comm *m = &l->comm[i - 1];

		if (m->rank != rank || m->nranks <= peer || (m->dev && m->dev != dev))
			continue;
		if (m->nodes != 1 && lg_map_get(&l->places, place_of(m, peer)) != m->host)
			return false;
		any = true;
	}
	return any;
}

static void set(struct lg_link_sample *s, enum lg_link_kind kind, uint64_t key, double value)
{
	s->kind = (uint8_t)kind;
	s->key = key;
	s->value = value;
}

/* A fact of a process: nccl.KEY. */
static void fact(struct lg_case *c, struct lg_links *l, size_t row, const char *key)
{
	const struct lg_trace *t = c->t;
	lg_prc p = t->meta.prc[row];
	const char *v = lg_string(t, t->meta.value[row]);
	struct lg_link_sample s = { .prc = p, .host = t->process.host[p], .unit = t->process.host[p],
				    .a = t->meta.value[row] };

	if (!strcmp(key, "link")) {
		set(&s, LG_LINK_TRANSPORT, mix(word(v, "from"), word(v, "to")),
		    lg_link_is(v, "by", "direct") ? LG_WAY_DIRECT : lg_link_is(v, "by", "indirect") ? LG_WAY_INDIRECT
		    : lg_link_is(v, "by", "shm") ? LG_WAY_SHM : LG_WAY_NET);
		l->n_pairs[(int)s.value]++;
	} else if (!strcmp(key, "near")) {
		if (!is_of_this_host(c, l, row))
			return;
		set(&s, LG_LINK_TRANSPORT, mix(word(v, "from"), word(v, "to")), LG_WAY_NET);
		l->n_pairs[LG_WAY_NET] += lg_link_is(v, "way", "send");
	} else if (!strcmp(key, "net")) {
		set(&s, LG_LINK_NETWORK, 0, strcmp(v, "Socket") != 0);
	} else if (!strcmp(key, "provider")) {
		/* libfabric falls back to sockets, too; "tcp;ofi_rxm" */
		set(&s, LG_LINK_NETWORK, 0,
		    strncmp(v, "tcp", 3) && strncmp(v, "sockets", 7) && strncmp(v, "udp", 3));
	} else if (!strcmp(key, "nic")) {
		if (!lg_arg(v, "net", &(size_t){ 0 }))
			return;
		set(&s, LG_LINK_NETWORK, 0, !lg_link_is(v, "net", "Socket"));
		add(c, l, &s);
		if (!(s.value > 0))
			return;
		set(&s, LG_LINK_GDR, mix(word(v, "dev"), word(v, "way")), lg_link_number(v, "gdr", 0));
	} else if (!strcmp(key, "hca_gdr")) {
		set(&s, LG_LINK_GDR, mix(word(v, "name"), 77), lg_link_number(v, "gdr", 0));
	} else if (!strcmp(key, "hcas")) {
		set(&s, LG_LINK_ADAPTERS, 0, strtod(v, NULL));
	} else if (!strcmp(key, "hca_speed")) {
		set(&s, LG_LINK_SPEED, word(v, "name"), lg_link_number(v, "speed", 0));
	} else if (!strcmp(key, "nvls")) {
		set(&s, LG_LINK_NVLS, 0, !strcmp(v, "on"));
	} else {
		return;
	}
	add(c, l, &s);
}

static void communicator(struct lg_case *c, struct lg_links *l, size_t i)
{
	const struct lg_trace *t = c->t;
	const char *v = lg_string(t, t->mark.text[i]);
	lg_prc p = t->thread.prc[t->mark.thr[i]];
	struct lg_link_host *h;
	struct lg_link_comm m = { .mark = (uint32_t)i, .prc = p, .host = t->process.host[p] };
	uint32_t at;

	if (!p || !m.host || t->mark.value[i] <= 0 || t->mark.value[i] > INT32_MAX)
		return;
	m.nranks = (int32_t)t->mark.value[i];
	m.rank = (int32_t)lg_link_number(v, "rank", -1);
	m.nodes = (int32_t)lg_link_number(v, "nodes", 0);
	m.local = (int32_t)lg_link_number(v, "local", 0);
	m.coll = (int32_t)lg_link_number(v, "coll", -1);
	m.nvls = (int32_t)lg_link_number(v, "nvls", -1);
	m.nth = (int32_t)lg_link_number(v, "nth", 0);
	m.again = (int32_t)lg_link_number(v, "again", 0);
	m.life = (int32_t)lg_link_number(v, "life", 0);
	m.bw = lg_link_number(v, "bw", 0);
	m.total = lg_link_number(v, "total", 0);
	m.dev = word(v, "dev");
	m.id = word(v, "id");
	m.has_net = word(v, "net") != 0;
	m.socket = lg_link_is(v, "net", "Socket");
	if (lg_grow(&l->comm, &l->cap_comm, l->n_comm + 1, sizeof *l->comm) || !(h = host_at(c, l, m.host))) {
		c->failed = LG_E_NOMEM;
		return;
	}
	if (m.nranks > h->nranks) {
		h->nranks = m.nranks;
		h->local = m.local;
	}
	m.next = lg_map_get(&l->by_process, p);
	l->comm[l->n_comm++] = m;
	at = lg_map_get(&l->places, place_of(&m, m.rank));
	if (lg_map_set(&l->by_process, p, (uint32_t)l->n_comm) ||
	    lg_map_set(&l->places, place_of(&m, m.rank), at && at != m.host ? UINT32_MAX : m.host))
		c->failed = LG_E_NOMEM;
}

/*
 * What communicators of one shape have, device by device. Restarts are compared with what was before them
 * only. One with one rank a host has its siblings on the other devices of the same hosts, and devices
 * need not be alike; all others have them on other hosts.
 */
static void shapes(struct lg_case *c, struct lg_links *l)
{
	LG_EACH_WHILE(!c->failed, m, l->comm, l->n_comm) {
		uint64_t shape = mix(mix((uint64_t)m->nranks << 32 | (uint32_t)m->nodes, (uint64_t)m->local),
				     (uint64_t)m->nth);
		bool across = m->local == 1 && m->nodes > 1;
		struct lg_link_sample s = { .prc = m->prc, .host = m->host, .unit = m->host,
					    .a = c->t->mark.text[m->mark] };

		if (m->again)
			continue;
		if (m->bw > 0) {
			set(&s, LG_LINK_TOPOLOGY, mix(mix(shape, m->dev), 1), m->bw);
			add(c, l, &s);
		}
		if (m->total > 0) {
			set(&s, LG_LINK_TOPOLOGY, mix(mix(shape, m->dev), 2), m->total);
			add(c, l, &s);
		}
		if (m->nvls >= 0 && m->nodes == 1) {
			set(&s, LG_LINK_NVLS, mix(mix(shape, m->dev), (uint64_t)m->rank + 4), m->nvls > 0);
			add(c, l, &s);
		}
		if (m->coll < 0)
			continue;
		s.strict = across;
		s.unit = m->id ? m->id : across ? m->dev : (uint64_t)m->host;
		set(&s, LG_LINK_CHANNELS,
		    across ? mix(shape, 3) : mix(mix(shape, m->dev), (uint64_t)m->rank + 4), m->coll);
		add(c, l, &s);
	}
}

LG_ORDER_BY(by_key, struct lg_link_sample,
	    LG_CMP(x->kind, y->kind) ?: LG_CMP(x->key, y->key) ?: LG_CMP(x->unit, y->unit) ?:
	    LG_CMP(x->value, y->value) ?: LG_CMP(x->prc, y->prc))

static bool below(double v, double usual)
{
	return v < usual * (1 - SAME);
}

/* Worst samples of the units of one key: v[0..n), indices; x: room for as many values. */
static void vote(struct lg_case *c, struct lg_links *l, const uint32_t *v, size_t n, double *x,
		 struct lg_map *score)
{
	size_t best = 0, count = 0, low = 0;
	double usual = 0;

	if (n < 2)
		return;
	l->n_compared++;
	for (size_t i = 0; i < n; i++)
		x[i] = l->sample[v[i]].value;
	qsort(x, n, sizeof *x, lg_cmp_f64);
	/* The longest run of equal ones; of several, the highest. */
	LG_EACH_RUN(i, j, 0, n, !below(x[i], x[j]))
		if (j - i >= count) {
			count = j - i;
			usual = x[j - 1];
		}
	while (l->sample[v[best]].value != usual) /* one of them is */
		best++;
	if (count * 2 <= n && n != 2) {
		l->n_undecided++;
		return;
	}
	for (size_t i = 0; i < n; i++)
		low += below(l->sample[v[i]].value, usual);
	if (l->sample[v[0]].strict && (n < STRICT_UNITS || low * 4 > n))
		return;
	for (size_t i = 0; i < n && !c->failed; i++) {
		const struct lg_link_sample *s = &l->sample[v[i]];
		uint64_t who = mix(s->unit, s->kind);

		/* Even: how often more, odd: how often less. */
		if (below(usual, s->value)) {
			if (lg_map_set(score, who & ~1ull, lg_map_get(score, who & ~1ull) + 1))
				c->failed = LG_E_NOMEM;
		} else if (below(s->value, usual)) {
			if (lg_map_set(score, who | 1, lg_map_get(score, who | 1) + 1) ||
			    LG_APPEND(l->less, l->n_less, l->cap_less,
				      (struct lg_link_short){
					      .sample = v[i], .usual_sample = v[best], .usual = usual,
					      .n_usual = (uint32_t)count, .n_units = (uint32_t)n }))
				c->failed = LG_E_NOMEM;
		}
	}
}

static void compare(struct lg_case *c, struct lg_links *l)
{
	LG_AUTOFREE uint32_t *v = lg_scratch(c, l->n_sample + 1, sizeof *v);
	LG_AUTOFREE double *x = lg_scratch(c, l->n_sample + 1, sizeof *x);
	struct lg_map score = { 0 };
	size_t n = 0, to = 0;

	if (!v || !x)
		return;
	LG_SORT(l->sample, l->n_sample, by_key);
	for (size_t i = 0; i < l->n_sample && !c->failed; i++) {
		const struct lg_link_sample *s = &l->sample[i], *before = s - 1;

		if (i && (s->kind != before->kind || s->key != before->key)) {
			vote(c, l, v, n, x, &score);
			n = 0;
		}
		if (!n || l->sample[v[n - 1]].unit != s->unit)
			v[n++] = (uint32_t)i;
	}
	vote(c, l, v, n, x, &score);
	for (size_t i = 0; i < l->n_less && !c->failed; i++) {
		const struct lg_link_sample *s = &l->sample[l->less[i].sample];
		uint64_t who = mix(s->unit, s->kind);
		struct lg_link_host *h;

		if (lg_map_get(&score, who & ~1ull) * 2 >= lg_map_get(&score, who | 1))
			continue;
		h = host_at(c, l, s->host);
		if (h && !s->strict)
			h->kinds |= 1u << s->kind;
		l->less[to++] = l->less[i];
	}
	l->n_less = to;
	lg_map_done(&score);
}

int lg_links_read(struct lg_case *c, struct lg_links *l)
{
	const struct lg_trace *t = c->t;

	LG_EACH_MARK(i, t, "nccl.comm")
		communicator(c, l, i);
	LG_EACH_MARK(i, t, "nccl.bandwidth")
		l->n_tests++;
	for (size_t i = 0; i < t->meta.n && !c->failed; i++) {
		const char *key = lg_string(t, t->meta.key[i]);
		lg_prc p = t->meta.prc[i];

		if (!p || strncmp(key, "nccl.", 5) || !t->process.host[p])
			continue;
		if (host_at(c, l, t->process.host[p]))
			fact(c, l, i, key + 5);
	}
	if (!c->failed && l->n_host && lg_link_read_settings(c, l))
		return c->failed;
	if (!c->failed)
		shapes(c, l);
	if (!c->failed)
		compare(c, l);
	return c->failed;
}

void lg_links_done(struct lg_links *l)
{
	lg_map_done(&l->by_host);
	lg_map_done(&l->by_process);
	lg_map_done(&l->places);
	lg_free(l->env);
	lg_free(l->comm);
	lg_free(l->sample);
	lg_free(l->less);
	lg_free(l->host);
}
