/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader_story.c - see causes.h.
 *
 * The chain of a wait for a batch ends in whoever was to make it: a worker of torch.utils.data, which
 * delivers in turn (torch/utils/data/dataloader.py: batches come back in the order of their numbers, so
 * that one late worker holds up what the others have ready), or the training process itself.
 */
#include "analyse/host/causes.h"


#include "analyse/hook/facts.h"
#include "analyse/chains/culprit.h"
#include "base/median.h"
#include "base/words.h"

enum { FETCHES_MIN = 3, SLOWER = 2 };

/* A process that makes batches. */
struct maker {
	lg_prc prc;
	lg_thr thr;       /* its thread with most of the time */
	int64_t lost;     /* of the step's */
	int64_t fetch;    /* ns: median of a batch's making; 0 = not told */
	int64_t *fetches; /* until then */
	int64_t last;     /* when its last batch was made; 0 = not told */
	size_t n, cap;
};

struct story {
	lg_prc own;       /* the training process */
	int64_t all, ran, stored, slept, by_own, spawned;
	size_t n_spawns;
	struct maker *maker;
	size_t n, cap;
	int failed;
};

static struct maker *maker_of(struct story *y, lg_prc prc)
{
	for (size_t i = 0; i < y->n; i++)
		if (y->maker[i].prc == prc)
			return &y->maker[i];
	y->failed = LG_APPEND(y->maker, y->n, y->cap, (struct maker){ .prc = prc });
	return y->failed ? NULL : &y->maker[y->n - 1];
}

/* [from, to): the training thread starts workers and has no batch yet. */
struct spawn {
	int64_t from, to;
};

static bool is_span(const struct lg_case *c, uint32_t row, const char *name)
{
	return !strcmp(lg_string(c->t, c->t->span.name[row]), name);
}

/* From each mark of the hook that workers start to the end of the first batch's wait behind it. */
static size_t spawns_of(const struct lg_case *c, const struct lg_rank *r, struct spawn **ret, int *ret_rc)
{
	const struct lg_mark_tab *m = &c->t->mark;
	struct spawn *v = NULL;
	size_t n = 0, cap = 0;

	LG_EACH_MARK_OF(i, c->t, r->prc, "loader.spawn") {
		struct spawn x = { m->ts[i], m->ts[i] };
		size_t k = 0;

		while (k < r->n_spans && (c->t->span.ts[r->spans[k]] < x.from ||
					  !is_span(c, r->spans[k], "DataLoader.__next__")))
			k++;
		if (k < r->n_spans)
			x.to = lg_row_end(c->t, c->t->span.ts[r->spans[k]], c->t->span.dur[r->spans[k]]);
		*ret_rc = LG_APPEND(v, n, cap, x);
		if (*ret_rc)
			break;
	}
	*ret = v;
	return n;
}

/* How long each worker's batches take, by the spans that the hook leaves in them. */
static void take_fetches(const struct lg_case *c, struct story *y)
{
	const struct lg_span_tab *s = &c->t->span;

	for (size_t i = 0; i < s->n && !y->failed; i++) {
		lg_prc prc = c->t->thread.prc[s->thr[i]];
		struct maker *m;

		if (!prc || c->t->process.role[prc] != LG_ROLE_LOADER || s->dur[i] < 0 ||
		    c->t->process.ppid[prc] != c->t->process.pid[y->own] || !is_span(c, (uint32_t)i, "fetch"))
			continue;
		m = maker_of(y, prc);
		if (!m || LG_APPEND(m->fetches, m->n, m->cap, s->dur[i])) {
			y->failed = LG_E_NOMEM;
			return;
		}
		m->last = LG_MAX(s->ts[i] + s->dur[i], m->last);
	}
	LG_EACH(m, y->maker, y->n)
		m->fetch = m->n >= FETCHES_MIN ? lg_median_i64(m->fetches, m->n) : 0;
}

/* Would it not be, if the workers stayed? They are started, or one that has made its last batch leaves. */
static bool is_turnover(const struct lg_case *c, const struct maker *m, const struct lg_piece *p,
			const struct spawn *spawn, size_t n_spawns)
{
	for (size_t k = 0; k < n_spawns; k++)
		if (spawn[k].from <= p->ts && p->ts < spawn[k].to)
			return true;
	return n_spawns && m && m->last && p->ts >= m->last && c->t->process.end[m->prc] != INT64_MAX;
}

static void take_pieces(struct lg_case *c, struct story *y, const struct lg_cause_sum *s,
			const struct spawn *spawn, size_t n_spawns)
{
	LG_EACH_PIECE_WHILE(!y->failed, p, s) {
		lg_prc prc = c->t->thread.prc[p->of];
		struct maker *m = maker_of(y, prc);

		y->all += p->dur;
		if (m) {
			m->lost += p->dur;
			m->thr = m->thr ?: p->of;
		}
		if (prc == y->own)
			y->by_own += p->dur;
		if (p->kind == LG_PART_RUNNING) {
			y->ran += p->dur;
		} else if (p->kind == LG_PART_BLOCKED && p->row != UINT32_MAX) {
			enum lg_wait_class class = lg_wait_class_of(c, p->row);

			/* The training process polls for its workers: that is no wait for a network. */
			if (class == LG_WAIT_DISK ||
			    ((class == LG_WAIT_SOCKET || class == LG_WAIT_POLL) && prc != y->own))
				y->stored += p->dur;
			else if (class == LG_WAIT_SLEEP)
				y->slept += p->dur;
		}
		y->spawned += is_turnover(c, m, p, spawn, n_spawns) ? p->dur : 0;
	}
}

LG_ORDER_BY(cmp_lost, struct maker, LG_CMP(y->lost, x->lost))

/* The one with most of the time, if it is as slow as slow_worker asks; *ret_usual: the others' median. */
static const struct maker *slow_one(struct story *y, int64_t *ret_usual)
{
	const struct maker *worst;
	LG_AUTOFREE int64_t *others = lg_calloc(y->n, sizeof *others);
	size_t n = 0;

	if (!others) {
		y->failed = LG_E_NOMEM;
		return NULL;
	}
	LG_SORT(y->maker, y->n, cmp_lost);
	worst = y->maker;
	for (size_t i = 1; i < y->n; i++)
		if (y->maker[i].fetch)
			others[n++] = y->maker[i].fetch;
	*ret_usual = lg_median_i64(others, n);
	return n && worst->prc != y->own && worst->fetch >= SLOWER * *ret_usual && worst->lost * 2 > y->all
		       ? worst : NULL;
}

static void say_settings(struct lg_case *c, struct lg_finding *f, const struct story *y, const char *workers)
{
	const char *keep = lg_index_fact(c->idx, y->own, "loader.persistent_workers");
	const char *ahead = lg_index_fact(c->idx, y->own, "loader.prefetch_factor");

	lg_evidence(c, f, LG_SAYS_DATA_LOADER_WAIT_SETTINGS, workers,
		    keep ? ", persistent_workers=" : "", keep ?: "",
		    ahead ? ", prefetch_factor=" : "", ahead ?: "");
}

void lg_loader_tell(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s)
{
	struct story y = { 0 };
	LG_AUTOFREE struct spawn *spawn = NULL;
	const struct maker *slow;
	const char *workers;
	const struct lg_rank *r = NULL;
	int64_t usual = 0;
	size_t samples;

	for (size_t i = 0; i < c->n_ranks && !r; i++)
		r = s->of_rank[i] ? &c->ranks[i] : NULL;
	if (!r)
		return;
	y.own = r->prc;
	workers = lg_index_fact(c->idx, y.own, "loader.num_workers");
	y.n_spawns = spawns_of(c, r, &spawn, &y.failed);
	take_fetches(c, &y);
	take_pieces(c, &y, s, spawn, y.n_spawns);
	slow = slow_one(&y, &usual);
	if (y.failed) {
		c->failed = y.failed;
	} else if (y.spawned * 2 > y.all) {
		f->detail = "respawn";
		lg_evidence(c, f, LG_SAYS_DATA_LOADER_WAIT_SPAWNED, lg_percent(y.spawned, y.all),
			    y.n_spawns, lg_s(y.n_spawns));
	} else if (workers ? !strcmp(workers, "0") : y.by_own * 2 > y.all) {
		f->detail = "workers_zero";
	} else if (slow) {
		f->detail = "slow_worker";
		lg_culprit_identify(c, f, slow->thr, r->thr);
		lg_evidence(c, f, LG_SAYS_DATA_LOADER_WAIT_SLOW_WORKER,
			    c->t->process.pid[slow->prc], lg_ms(slow->fetch), lg_ms(usual),
			    lg_percent(slow->lost, y.all));
	} else if (y.stored * 2 > y.all) {
		f->detail = "io";
	} else if ((y.ran + y.slept) * 2 > y.all) {
		f->detail = "transform"; /* the dataset's own code, whether it computes or waits for a time */
	}
	if (!c->failed && y.all > 0) {
		lg_culprit_of_time(c, f, s->pieces, s->n_pieces, &samples);
		lg_evidence(c, f, LG_SAYS_DATA_LOADER_WAIT_MEANWHILE,
			    y.by_own * 2 > y.all ? "the training process itself"
			    : "the loader's workers", lg_percent(y.ran, y.all),
			    lg_percent(y.stored, y.all), lg_percent(y.slept, y.all));
		if (workers)
			say_settings(c, f, &y, workers);
	}
	for (size_t i = 0; i < y.n; i++)
		lg_free(y.maker[i].fetches);
	lg_free(y.maker);
}

const char *lg_loader_title(struct lg_case *c, const struct lg_finding *f, const char *ranks,
			    const char *every)
{
	static const struct {
		const char *detail, *words;
	} ends[] = {
		{ "respawn", ": its workers are started anew" },
		{ "workers_zero", ": the loader has no workers (num_workers=0) and works on the training thread" },
		{ "io", ": the loader waits for disk or network" },
	};
	const char *detail = f->detail ?: "", *end = "";

	LG_EACH(x, ends, LG_COUNT(ends))
		end = strcmp(x->detail, detail) ? end : x->words;
	if (!strcmp(detail, "slow_worker"))
		end = lg_text(c, LG_SAYS_DATA_LOADER_WAIT_END_SLOW, f->culprit.pid);
	if (!strcmp(detail, "transform"))
		end = lg_text(c, LG_SAYS_DATA_LOADER_WAIT_END_BUSY, lg_in_text(c, f));
	return lg_text(c, LG_SAYS_DATA_LOADER_WAIT_CHAIN, ranks, every, end);
}
