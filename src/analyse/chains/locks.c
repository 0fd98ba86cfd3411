/* SPDX-License-Identifier: Apache-2.0 */
/*
 * locks.c - who held the kernel lock that somebody waited for.
 *
 * Proof, best first:
 *   HOLD   an interval in which another thread held this very lock (mmap_lock: the tracepoints
 *          give both edges in the holder's own context)
 *   OWNER  the owner field of the lock when the wait began (a writer, or a mutex)
 *   OWNER_READER  the same for a rwsem held for reading: only the last reader is stored there
 *   WAKER  who woke the waiter at the end: the releasing thread, or the one that handed it on
 *
 * A hold may end while the wait goes on (a reader that drops the lock when contended queues
 * behind the writer, contract.md#mmap_lock): the wait is tiled by all holds that overlap it. A gap
 * right after a hold is the hand-over and belongs to that hold.
 */
#include "analyse/chains/chains.h"
#include "base/map.h"
#include "base/upper_bound.h"

enum { HANDOVER_NS = 2000000 };

struct lg_lock_table {
	struct lg_map object_i;    /* lock object -> list number + 1 */
	uint32_t *hold_off, *hold; /* by list: hold rows sorted by ts */
	int64_t *reach;            /* latest end of the list up to this position */
	size_t n_objects;
};

static bool is_hold(const struct lg_span_tab *s, size_t i)
{
	return s->kind[i] == LG_SPAN_LOCK_HOLD && s->object[i];
}

int lg_locks_new(struct lg_case *c)
{
	const struct lg_span_tab *s = &c->t->span;
	struct lg_lock_table *l = lg_calloc(1, sizeof *l);
	size_t n_hold = 0, cap = 0, cap_object = 0;
	LG_AUTOFREE uint32_t *object = NULL, *row = NULL; /* of each hold */

	if (!l)
		return LG_E_NOMEM;
	c->locks = l;
	for (size_t i = 0; i < s->n; i++) {
		uint32_t o;

		if (!is_hold(s, i))
			continue;
		o = lg_map_get(&l->object_i, s->object[i]);
		if (!o && lg_map_set(&l->object_i, s->object[i], o = (uint32_t)++l->n_objects))
			return LG_E_NOMEM;
		if (lg_grow(&object, &cap_object, n_hold + 1, sizeof *object) ||
		    LG_APPEND(row, n_hold, cap, (uint32_t)i))
			return LG_E_NOMEM;
		object[n_hold - 1] = o;
	}
	l->reach = lg_calloc(n_hold, sizeof *l->reach);
	if (!l->reach || lg_index_lists(object, n_hold, l->n_objects + 1, &l->hold_off, &l->hold))
		return LG_E_NOMEM;
	for (size_t o = 0; o <= l->n_objects; o++)
		for (uint32_t p = l->hold_off[o]; p < l->hold_off[o + 1]; p++) {
			uint32_t i = l->hold[p] = row[l->hold[p]];
			int64_t end = lg_row_end(c->t, s->ts[i], s->dur[i]);

			l->reach[p] = p > l->hold_off[o] && l->reach[p - 1] > end ? l->reach[p - 1] : end;
		}
	return 0;
}

void lg_locks_free(struct lg_lock_table *l)
{
	if (!l)
		return;
	lg_map_done(&l->object_i);
	lg_free(l->hold_off);
	lg_free(l->hold);
	lg_free(l->reach);
	lg_free(l);
}

uint32_t lg_lock_wait_in(struct lg_case *c, lg_thr thr, int64_t a, int64_t b)
{
	struct lg_rows spans = lg_spans_in(&c->scene, thr, a, b);

	while (lg_next_row(&c->scene, &spans))
		if (c->t->span.kind[spans.row] == LG_SPAN_LOCK_WAIT &&
		    !(c->t->span.flags[spans.row] & LG_SPAN_SPIN))
			return spans.row;
	return UINT32_MAX;
}

/* The hold of this lock by somebody else that covers ts and lasts longest; *ret_next is when the
 * next hold begins if none covers ts. */
static uint32_t hold_at(struct lg_case *c, uint64_t object, lg_thr waiter, int64_t ts,
			int64_t *ret_next)
{
	const struct lg_span_tab *s = &c->t->span;
	struct lg_lock_table *l = c->locks;
	uint32_t o = lg_map_get(&l->object_i, object), best = UINT32_MAX;
	uint32_t p, end;
	int64_t best_end = ts;

	*ret_next = INT64_MAX;
	if (!o)
		return UINT32_MAX;
	p = l->hold_off[o];
	end = l->hold_off[o + 1];
	/* From the first on that reaches beyond ts. */
	for (p += (uint32_t)lg_upper_bound(l->reach + p, end - p, sizeof *l->reach, 0, ts); p < end; p++) {
		uint32_t row = l->hold[p];
		int64_t row_end = lg_row_end(c->t, s->ts[row], s->dur[row]);

		if (s->thr[row] == waiter || row_end <= ts)
			continue;
		if (s->ts[row] > ts) {
			*ret_next = s->ts[row];
			break;
		}
		if (row_end > best_end) {
			best = row;
			best_end = row_end;
		}
	}
	return best;
}

static struct lg_piece no_holder(struct lg_case *c, uint32_t wait, lg_thr of)
{
	const struct lg_span_tab *s = &c->t->span;
	struct lg_piece p = { .of = of, .end = LG_END_UNKNOWN, .kind = LG_PART_BLOCKED,
			      .row = wait, .hold = UINT32_MAX, .lock = s->name[wait] };
	uint32_t state;

	if (s->peer[wait] && s->peer[wait] != of) {
		p.end = LG_END_LOCK;
		p.thr = s->peer[wait];
		p.proof = s->flags[wait] & LG_SPAN_OWNER_READER ? LG_PROOF_OWNER_READER
								: LG_PROOF_OWNER;
		return p;
	}
	/* Last resort: the thread that ended the sleep. Never one in interrupt context. */
	state = lg_index_state_at(c->idx, of, s->ts[wait] + (s->dur[wait] > 0 ? s->dur[wait] / 2 : 0));
	if (state != LG_NO_ROW && c->t->state.kind[state] == LG_BLOCKED &&
	    c->t->state.waker_ctx[state] == LG_CTX_TASK && c->t->state.waker[state] &&
	    c->t->state.waker[state] != of) {
		p.end = LG_END_LOCK;
		p.thr = c->t->state.waker[state];
		p.proof = LG_PROOF_WAKER;
	}
	return p;
}

void lg_lock_pieces(struct lg_case *c, uint32_t wait, lg_thr of, int64_t a, int64_t b, int hops,
		    struct lg_pieces *out)
{
	const struct lg_span_tab *s = &c->t->span;
	uint64_t object = s->object[wait];
	uint32_t last = UINT32_MAX;
	int64_t last_end = INT64_MIN;

	while (a < b) {
		int64_t next, end;
		uint32_t hold = hold_at(c, object, of, a, &next);
		struct lg_piece p;

		if (hold != UINT32_MAX) {
			end = lg_row_end(c->t, s->ts[hold], s->dur[hold]);
			last = hold;
			last_end = end;
		} else {
			end = next;
		}
		end = LG_MIN(end, b);
		if (hold == UINT32_MAX && last != UINT32_MAX && a - last_end < HANDOVER_NS &&
		    end - last_end < HANDOVER_NS)
			hold = last;
		if (hold != UINT32_MAX)
			p = (struct lg_piece){ .of = of, .thr = s->thr[hold], .end = LG_END_LOCK,
					       .proof = LG_PROOF_HOLD, .kind = LG_PART_BLOCKED,
					       .row = wait, .hold = hold, .lock = s->name[wait] };
		else
			p = no_holder(c, wait, of);
		p.ts = a;
		p.dur = end - a;
		p.hops = (uint8_t)(hops + 1);
		lg_piece_add(c, out, &p);
		a = end;
	}
}
