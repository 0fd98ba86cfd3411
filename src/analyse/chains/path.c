/* SPDX-License-Identifier: Apache-2.0 */
/*
 * path.c - the critical path of the run: for every nanosecond, the one thread that everybody was
 * waiting for, so that time is counted once and not once a rank.
 *
 * Walk backwards from the end of the reference rank's last step. Where that thread waits in a
 * collective, the path jumps to the rank that came last, at the moment it came, and goes on from
 * there (Yang and Miller 1988: critical path of a message-passing program). Everything between the
 * last arrival and the release is the transfer itself.
 */
#include "analyse/chains/chains.h"

static void reverse(struct lg_piece *v, size_t n)
{
	for (struct lg_piece *z = v + n, tmp; n && v < --z; v++) {
		tmp = *v;
		*v = *z;
		*z = tmp;
	}
}

/* Follow [a, b) of thr and append its pieces last first. */
static void follow_backwards(struct lg_case *c, lg_thr thr, int64_t a, int64_t b,
			     struct lg_pieces *out)
{
	size_t mark = out->n;

	lg_follow(c, thr, a, b, 0, out);
	reverse(out->v + mark, out->n - mark);
}

int lg_critical_path(struct lg_case *c, uint32_t ref, struct lg_pieces *out)
{
	const struct lg_state_tab *s = &c->t->state;
	const struct lg_rank *r = &c->ranks[ref];
	const struct lg_step *first = &c->v->steps[r->step_first];
	const struct lg_step *last = first + r->n_steps - 1;
	int64_t t, t0;
	size_t jumps = 0;

	while (first < last && first->warmup)
		first++;
	t0 = first->ts;
	t = last->ts + last->dur;
	while (t > t0 && !c->failed) {
		uint32_t row = lg_index_state_at(c->idx, r->thr, t - 1);
		int64_t a = t0;

		if (row == LG_NO_ROW) {
			/* A hole: back to the end of the state before it. */
			uint32_t p = lg_index_state_from(c->idx, r->thr, t - 1);
			uint32_t off = c->idx->state_off[r->thr];

			if (p > off) {
				uint32_t prev = c->idx->state[p - 1];
				int64_t end = lg_row_end(c->t, s->ts[prev], s->dur[prev]);

				a = end > t0 && end < t ? end : t0;
			}
		} else {
			a = s->ts[row] > t0 ? s->ts[row] : t0;
			if (s->kind[row] == LG_BLOCKED) {
				const struct lg_arrival *arr = lg_arrival_at(r, t - 1);
				uint32_t me = (uint32_t)(r - c->ranks);

				if (arr && a < arr->ts)
					a = arr->ts; /* what precedes the arrival is its own */
				if (arr && arr->late_rank != UINT32_MAX && arr->late_rank != me &&
				    arr->late_ts > a && jumps < c->n_ranks &&
				    lg_lock_wait_in(c, r->thr, t - 1, t) == UINT32_MAX) {
					int64_t cut = arr->late_ts < t ? arr->late_ts : t;

					lg_piece_add(c, out, &(struct lg_piece){
						.ts = cut, .dur = t - cut, .of = r->thr, .end = LG_END_COMM,
						.proof = LG_PROOF_SCHED, .kind = LG_PART_BLOCKED, .hops = 1,
						.row = arr->span, .hold = UINT32_MAX });
					jumps = cut < t ? 0 : jumps + 1;
					t = cut;
					r = &c->ranks[arr->late_rank];
					continue;
				}
			}
		}
		follow_backwards(c, r->thr, a, t, out);
		t = a;
		jumps = 0;
	}
	reverse(out->v, out->n);
	return c->failed;
}
