/* SPDX-License-Identifier: Apache-2.0 */
/* standing_words.c - where the ranks of a job stand, and what they were told of it, in words. */
#include <stdlib.h>

#include "analyse/hook/facts.h"
#include "analyse/host/standing.h"
#include "base/median.h"
#include "base/words.h"

enum { RANGES_MAX = 8, STACK_MAX = 6, WORLD_MAX = 4096 };

const char *lg_place_text(struct lg_case *c, lg_stk s)
{
	return lg_text(c, "%s (%s:%u)", lg_stack_name(c->t, s), lg_file_name(lg_stack_file(c->t, s)),
		       c->t->frame.line[c->t->stack.frame[s]]);
}

/* "rank 1", "ranks 0, 2-7"; by their pids where one has no number. */
static const char *numbers(struct lg_case *c, const struct stands *all, const uint8_t *is, size_t *ret_n)
{
	int64_t *v = lg_arena_alloc(&c->v->arena, all->n, sizeof *v);
	bool ranks = true;
	size_t n = 0;

	if (!v)
		return "";
	LG_EACH(s, all->v, all->n)
		ranks &= s->rank >= 0;
	LG_EACH(s, all->v, all->n)
		if (is[s - all->v])
			v[n++] = ranks ? s->rank : c->t->process.pid[s->prc];
	*ret_n = n;
	qsort(v, n, sizeof *v, lg_cmp_i64);
	return lg_text(c, "%s%s %s", ranks ? "rank" : "pid", lg_s(n), lg_ranges_text(c, v, n, RANGES_MAX, &n));
}

/* What s and those that stand as it does are doing. */
static const char *doing(struct lg_case *c, const struct stand *s, size_t n)
{
	const char *at = !s->in ? NULL : s->in == s->user ? lg_place_text(c, s->in)
			 : lg_text(c, "%s at %s", lg_stack_name(c->t, s->in), lg_place_text(c, s->user)),
		   *end = n == 1 ? "s" : "";

	if (s->stopped)
		return lg_text(c, "%s stopped%s%s", n == 1 ? "is" : "are", at ? " in " : "",
			       at ?: "");
	if (s->child)
		return lg_text(c, LG_SAYS_STILL_FOR_CHILD, end, c->t->process.pid[s->child],
			       lg_place_text(c, s->child_user));
	return lg_text(c, "%s%s in %s", s->waits ? "wait" : "sleep", end, at);
}

const char *lg_stands_text(struct lg_case *c, struct stands *all)
{
	uint8_t *is = lg_arena_alloc(&c->v->arena, all->n, 1);
	const char *text = "";

	for (int waits = 0; is && waits <= 1; waits++)
		LG_EACH(s, all->v, all->n) {
			const char *who;
			size_t n = 0;

			if (s->told || s->waits != waits || !s->stands)
				continue;
			LG_EACH(k, all->v, all->n) {
				is[k - all->v] = k->stands && lg_stand_alike(c, k, s);
				k->told |= is[k - all->v];
			}
			who = numbers(c, all, is, &n);
			text = lg_text(c, "%s%s%s %s", text, *text ? ", " : "", who, doing(c, s, n));
		}
	return text;
}

const char *lg_python_stack_text(struct lg_case *c, lg_stk s)
{
	const char *text = "";

	for (int n = 0; s && n < STACK_MAX; s = c->t->stack.parent[s])
		if (c->t->frame.kind[c->t->stack.frame[s]] == LG_FRAME_PYTHON) {
			text = lg_text(c, "%s%s%s", text, n ? " < " : "", lg_place_text(c, s));
			n++;
		}
	return text;
}

/* ---- what they were told ---- */

/* "ranks 0, 2 were given WORLD_SIZE 3, rank 1 4"; NULL = all have the same, or one does not tell. */
static const char *parted(struct lg_case *c, const struct stands *all, const char *key,
			  const struct stand **ret_odd)
{
	const char **value = lg_arena_alloc(&c->v->arena, all->n, sizeof *value), *text = NULL;
	uint8_t *is = lg_arena_alloc(&c->v->arena, all->n, 1);

	for (size_t i = 0; value && is && i < all->n; i++) {
		value[i] = lg_index_fact(c->idx, all->v[i].prc, key);
		if (!value[i])
			return NULL;
	}
	for (size_t i = 0; value && is && i < all->n; i++) {
		bool first = true;
		const char *who;
		size_t n = 0;

		for (size_t k = 0; k < all->n; k++) {
			is[k] = !strcmp(value[i], value[k]);
			n += is[k];
			first &= k >= i || !is[k];
		}
		if (n == all->n)
			return NULL;
		if (n == 1 && all->n > 2)
			*ret_odd = &all->v[i];
		if (!first)
			continue;
		who = numbers(c, all, is, &n);
		text = text ? lg_text(c, "%s, %s %s", text, who, value[i])
			    : lg_text(c, "%s %s given %s %s", who, n == 1 ? "was" : "were",
				      key + strlen("env."), value[i]);
	}
	return text;
}

struct lg_world lg_world_of(struct lg_case *c, const struct stands *all)
{
	static const char *const keys[] = { "env.MASTER_ADDR", "env.MASTER_PORT", "env.WORLD_SIZE" };
	const struct lg_process_tab *p = &c->t->process;
	int32_t world = all->n ? p->world[all->v[0].prc] : 0;
	uint8_t here[WORLD_MAX] = { 0 };
	int64_t absent[WORLD_MAX];
	struct lg_world told = { .absent = -1 };
	const char *local;
	size_t n = 0;

	for (size_t i = 0; i < LG_COUNT(keys); i++) {
		const char *text = parted(c, all, keys[i], &told.odd);

		if (text) {
			told.text = lg_text(c, "%s: they never meet", text);
			return told;
		}
	}
	LG_EACH(s, all->v, all->n) {
		if (s->rank < 0 || s->rank >= WORLD_MAX || p->world[s->prc] != world)
			return told;
		LG_EACH(k, all->v, s - all->v)
			if (k->rank == s->rank && p->host[k->prc] == p->host[s->prc] && !k->ended &&
			    !s->ended) {
				told.text = lg_text(c, LG_SAYS_STILL_RANK_TWICE, p->pid[k->prc],
						    p->pid[s->prc], s->rank);
				return told;
			}
		here[s->rank] |= !s->ended;
	}
	for (int32_t r = 0; r < world && r < WORLD_MAX; r++)
		if (!here[r])
			absent[n++] = r;
	if (!n || world > WORLD_MAX)
		return told;
	/* Those of other hosts are seen there. */
	local = lg_index_fact(c->idx, all->v[0].prc, "env.LOCAL_WORLD_SIZE");
	told.absent = n == 1 && local && !strcmp(local, lg_text(c, "%d", world)) ? (int32_t)absent[0] : -1;
	told.text = lg_text(c, "rank%s %s of %d %s not here", lg_s(n),
			    lg_ranges_text(c, absent, n, RANGES_MAX, &n), world, n == 1 ? "is" : "are");
	return told;
}
