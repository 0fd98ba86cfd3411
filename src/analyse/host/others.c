/* SPDX-License-Identifier: Apache-2.0 */
/*
 * others.c - the job's threads push each other aside: because the job has more of them than there are CPUs,
 * or because strangers have the rest?
 */
#include "analyse/steps/steps.h"
#include "analyse/chains/culprit.h"
#include "analyse/chains/tally.h"
#include "store/merge.h"

enum { PIECES_MAX = 1000 }; /* looked at */
#define MOST 0.5            /* of the other CPUs' time */

/* Of the busiest that were taken for ranks only equal ones are of one job, with what they started. */
static bool is_stranger(struct lg_case *c, lg_prc p, lg_prc of)
{
	uint32_t r = c->rank_of_prc[of];

	if (!r || !c->ranks[r - 1].inferred || c->ranks[r - 1].rank >= 0)
		return !lg_in_job(c, p);
	return p != of && !lg_is_worker(c, p) && !lg_are_of_one_job(c, p, of) && !lg_descends(c, p, of);
}

/* Time of [a, b) that strangers had on the CPU; ns: by process, added to. */
static int64_t strangers_on(struct lg_case *c, lg_thr of, int32_t cpu, int64_t a, int64_t b, int64_t *ns)
{
	struct lg_rows runs = lg_runs_in(&c->scene, of, cpu, a, b);
	int64_t sum = 0;

	while (lg_next_row(&c->scene, &runs)) {
		lg_prc prc = c->t->thread.prc[c->t->state.thr[runs.row]];
		int64_t dur = is_stranger(c, prc, c->t->thread.prc[of]) ? runs.to - runs.from : 0;

		ns[prc] += dur;
		sum += dur;
	}
	return sum;
}

void lg_doubt_oversubscribed(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s)
{
	const struct lg_state_tab *t = &c->t->state;
	size_t stride = s->n_pieces / PIECES_MAX + 1, cpus = c->idx->n_cpu;
	LG_AUTOFREE int64_t *ns = NULL;
	int64_t waited = 0, taken = 0;
	lg_prc most = 0;

	if (!strcmp(lg_meta_get(c->t, "record.scope"), "processes")) {
		lg_cap(f, LG_CAP_GUESS);
		lg_evidence_against(c, f, LG_SAYS_HOST_OVERSUBSCRIBED_ONLY_THESE);
		return;
	}
	ns = lg_scratch(c, c->t->process.n, sizeof *ns);
	for (size_t i = 0; ns && i < s->n_pieces; i += stride) {
		const struct lg_piece *p = s->pieces[i];
		uint32_t row = lg_index_state_at(c->idx, p->thr, p->ts);

		for (uint32_t k = 0; row != LG_NO_ROW && k < cpus; k++)
			if ((int32_t)k != t->cpu[row])
				taken += strangers_on(c, p->of, (int32_t)k, p->ts, p->ts + p->dur, ns);
		waited += p->dur;
	}
	for (lg_prc i = 1; ns && i < c->t->process.n; i++)
		most = ns[i] > ns[most] ? i : most;
	if (cpus > 1 && waited > 0 && (double)taken >= MOST * (double)waited * (double)(cpus - 1)) {
		lg_cap(f, LG_CAP_GUESS);
		f->confidence *= 0.5;
		lg_evidence_against(c, f, LG_SAYS_HOST_OVERSUBSCRIBED_STRANGERS,
				    100 * (double)taken / ((double)waited * (double)(cpus - 1)),
				    lg_thread_text(c, c->idx->main_of[most]));
	}
}
