/* SPDX-License-Identifier: Apache-2.0 */
/* link_words.c - hosts, ranks and ways in words, and the settings that explain a worse way. */
#include <stdlib.h>

#include "analyse/links/links.h"
#include "base/median.h"
#include "base/words.h"
#include "store/args.h"

enum { HOSTS_SAID = 3, RANGES_SAID = 6, DIFFERENCES_SAID = 4, THINGS_SAID = 6, NOTES_SAID = 2 };

const char *lg_link_hosts_text(struct lg_case *c, const struct lg_links *l, const uint8_t *is)
{
	const char *text = "";
	size_t n = 0, said = 0;

	for (size_t i = 0; i < l->n_host; i++)
		n += is[i] != 0;
	for (size_t i = 0; i < l->n_host && said < (n > HOSTS_SAID + 1 ? HOSTS_SAID : n); i++)
		if (is[i]) {
			said++;
			text = lg_text(c, "%s%s%s", text, said == 1 ? "" : said == n ? " and " : ", ",
				       lg_string(c->t, l->host[i].name));
		}
	return said < n ? lg_text(c, "%s and %zu more", text, n - said) : text;
}

const char *lg_link_ranks_text(struct lg_case *c, const struct lg_links *l, const uint8_t *is,
			       int32_t *ret_one)
{
	const struct lg_trace *t = c->t;
	LG_AUTOFREE int64_t *v = lg_scratch(c, l->n_comm + t->process.n + 1, sizeof *v);
	size_t n = 0, distinct;
	const char *text;
	uint32_t h;

	*ret_one = -1;
	if (!v)
		return "";
	for (lg_prc p = 1; p < t->process.n; p++) {
		h = lg_link_host_of(l, t->process.host[p]);
		if (h != UINT32_MAX && is[h] && t->process.rank[p] >= 0)
			v[n++] = t->process.rank[p];
	}
	/* A process of several ranks has none of its own. */
	LG_EACH(m, l->comm, l->n_comm) {
		h = lg_link_host_of(l, m->host);
		if (h != UINT32_MAX && is[h] && t->process.rank[m->prc] < 0 &&
		    m->nranks == l->host[h].nranks &&
		    m->rank >= 0)
			v[n++] = m->rank;
	}
	LG_SORT(v, n, lg_cmp_i64);
	text = lg_ranges_text(c, v, n, RANGES_SAID, &distinct);
	if (distinct == 1)
		*ret_one = (int32_t)v[0];
	return n ? lg_text(c, " (rank%s %s)", lg_s(distinct), text) : "";
}

const char *lg_link_arg(struct lg_case *c, const char *args, const char *key)
{
	size_t n;
	const char *v = lg_arg(args, key, &n);

	return v ? lg_text(c, "%.*s", (int)(n < 64 ? n : 64), v) : "";
}

const char *lg_link_value_text(struct lg_case *c, const struct lg_links *l, uint32_t sample)
{
	static const char *const way[] = { [LG_WAY_NONE] = "nothing", [LG_WAY_NET] = "the network",
					   [LG_WAY_SHM] = "shared memory of the host",
					   [LG_WAY_INDIRECT] = "another GPU (P2P/indirect)",
					   [LG_WAY_DIRECT] = "direct P2P" };
	const struct lg_link_sample *s = &l->sample[sample];
	const char *a = lg_string(c->t, s->a), *net;

	switch ((enum lg_link_kind)s->kind) {
	case LG_LINK_NETWORK:
		net = lg_link_arg(c, a, "net");
		return *net ? net : a;
	case LG_LINK_TRANSPORT:
		return way[(int)s->value];
	case LG_LINK_GDR:
		return s->value > 0 ? "with GPU Direct RDMA" : "without GPU Direct RDMA";
	case LG_LINK_ADAPTERS:
		return lg_text(c, "%.0f adapter%s", s->value, s->value > 1 ? "s" : "");
	case LG_LINK_SPEED:
		return lg_text(c, "%.4g Gbit/s", s->value / 1e3);
	case LG_LINK_NVLS:
		return s->value > 0 ? "with NVLS" : "without NVLS";
	case LG_LINK_TOPOLOGY:
		return lg_text(c, "%.1f GB/s", s->value);
	case LG_LINK_CHANNELS:
		return lg_text(c, "%.0f channel%s", s->value, s->value > 1 ? "s" : "");
	default:
		return "";
	}
}

static const char *of_text(struct lg_case *c, const struct lg_link_sample *s)
{
	const char *a = lg_string(c->t, s->a), *dev = lg_link_arg(c, a, "dev"), *name = lg_link_arg(c, a, "name");

	switch ((enum lg_link_kind)s->kind) {
	case LG_LINK_TRANSPORT:
		return lg_text(c, "device %s to %s", lg_link_arg(c, a, "from"), lg_link_arg(c, a, "to"));
	case LG_LINK_GDR:
		if (*name)
			return name;
		return lg_text(c, "device %s (%s)", dev, lg_link_arg(c, a, "way"));
	case LG_LINK_SPEED:
		return name;
	case LG_LINK_TOPOLOGY:
	case LG_LINK_CHANNELS:
		return *dev ? lg_text(c, "device %s", dev) : "";
	default:
		return "";
	}
}

const char *lg_link_of_text(struct lg_case *c, const struct lg_links *l, const uint32_t *sample, size_t n)
{
	const char *text = "", *last = "";
	size_t said = 0;

	for (size_t i = 0; i < n && said < THINGS_SAID; i++) {
		const char *one = of_text(c, &l->sample[sample[i]]);

		if (!*one || !strcmp(one, last))
			continue;
		last = one;
		text = lg_text(c, "%s%s%s", text, said++ ? ", " : "", one);
	}
	return n > THINGS_SAID && said == THINGS_SAID ? lg_text(c, "%s ...", text) : text;
}

/* ---- settings ---- */

enum effect { ANY, NOT_ZERO, ZERO, SOCKET };
#define K(k) (1u << LG_LINK_##k)
static const struct {
	const char *key;
	enum effect effect;
	uint32_t kinds;
} settings[] = {
#define SETTING(key, effect, kinds) { key, effect, kinds },
#include "rules/names.def"
};
#undef K

static bool has_effect(const char *value, enum effect e)
{
	switch (e) {
	case NOT_ZERO:
		return strtol(value, NULL, 10) != 0;
	case ZERO:
		return !strcmp(value, "0");
	case SOCKET:
		return !strcmp(value, "Socket");
	default:
		return true;
	}
}

int lg_link_read_settings(struct lg_case *c, struct lg_links *l)
{
	const struct lg_trace *t = c->t;

	for (size_t i = 0; i < t->meta.n; i++) {
		const char *key = lg_string(t, t->meta.key[i]);
		uint32_t k = 0;

		if (!t->meta.prc[i] || strncmp(key, "env.NCCL_", 9))
			continue;
		while (k < LG_COUNT(settings) && strcmp(key + 4, settings[k].key))
			k++;
		if (k == LG_COUNT(settings))
			continue;
		if (lg_failed(c, LG_APPEND(l->env, l->n_env, l->cap_env,
					   (struct lg_link_env){ (uint32_t)i, k })))
			break;
	}
	return c->failed;
}

const char *lg_link_setting(struct lg_case *c, const struct lg_links *l, const uint8_t *flag,
			    enum lg_link_kind kind, const char **ret_key, const char **ret_peers)
{
	enum { N = LG_COUNT(settings) };
	const struct lg_trace *t = c->t;
	lg_str have[N] = { 0 }, others[N] = { 0 };
	bool same[N] = { false };

	for (size_t i = 0; i < l->n_env; i++) {
		uint32_t k = l->env[i].setting;
		lg_str value = t->meta.value[l->env[i].row];
		uint8_t who = flag[t->meta.prc[l->env[i].row]];

		if (!(settings[k].kinds >> kind & 1))
			continue;
		if (who == 1 && !have[k] && has_effect(lg_string(t, value), settings[k].effect))
			have[k] = value;
		if (who == 2)
			others[k] = value;
	}
	for (size_t i = 0; i < l->n_env; i++)
		same[l->env[i].setting] |= flag[t->meta.prc[l->env[i].row]] == 2 &&
					   t->meta.value[l->env[i].row] == have[l->env[i].setting];
	for (size_t k = 0; k < N; k++) {
		if (!have[k] || same[k])
			continue;
		*ret_key = settings[k].key;
		*ret_peers = others[k] ? lg_string(t, others[k]) : NULL;
		return lg_text(c, "%s=%s", settings[k].key, lg_string(t, have[k]));
	}
	return NULL;
}

/* Facts in which a difference may matter. */
static bool is_telling(const char *key)
{
	return (!strncmp(key, "env.NCCL_", 9) && strncmp(key, "env.NCCL_DEBUG", 14)) || !strcmp(key, "nccl.note") ||
	       !strcmp(key, "dist.nccl") || !strcmp(key, "cuda.driver");
}

static const char *difference_text(struct lg_case *c, const char *key, const char *value)
{
	if (!strncmp(key, "env.", 4))
		return lg_text(c, "%s=%s", key + 4, value);
	if (!strcmp(key, "nccl.note"))
		return lg_text(c, "\"%s\"", value);
	return lg_text(c, "%s %s", !strcmp(key, "dist.nccl") ? "NCCL" : "CUDA driver", value);
}

void lg_link_differences(struct lg_case *c, struct lg_finding *f, const uint8_t *flag, const char *setting)
{
	const struct lg_trace *t = c->t;
	struct lg_map value[3] = { 0 }, key[3] = { 0 };
	size_t said = 0, notes = 0;

	for (size_t i = 0; i < t->meta.n; i++) {
		uint8_t who = flag[t->meta.prc[i]];

		if ((who != 1 && who != 2) || !is_telling(lg_string(t, t->meta.key[i])))
			continue;
		if (lg_map_set(&value[who], (uint64_t)t->meta.key[i] << 32 | t->meta.value[i], 1) ||
		    lg_map_set(&key[who], t->meta.key[i], 1))
			c->failed = LG_E_NOMEM;
	}
	for (int side = 1; side <= 2 && !c->failed; side++)
		for (size_t i = 0; i < t->meta.n && said < DIFFERENCES_SAID; i++) {
			uint64_t id = (uint64_t)t->meta.key[i] << 32 | t->meta.value[i];
			const char *name = lg_string(t, t->meta.key[i]), *text;
			bool version = !strncmp(name, "dist.", 5) || !strncmp(name, "cuda.", 5);

			/* A version is told by some ranks only: where one side has none, nothing differs. */
			if (flag[t->meta.prc[i]] != side || !lg_map_get(&value[side], id) ||
			    lg_map_get(&value[3 - side], id) ||
			    ((version || side == 2) &&
			     version != !!lg_map_get(&key[3 - side], t->meta.key[i])))
				continue;
			lg_map_remove(&value[side], id);
			text = difference_text(c, name, lg_string(t, t->meta.value[i]));
			if (setting && !strcmp(text, setting))
				continue;
			if (!strcmp(name, "nccl.note") && notes++ >= NOTES_SAID)
				continue;
			lg_evidence(c, f, side == 1 ? "only there: %s" : "only on the others: %s", text);
			said++;
		}
	for (int i = 1; i <= 2; i++) {
		lg_map_done(&value[i]);
		lg_map_done(&key[i]);
	}
}
