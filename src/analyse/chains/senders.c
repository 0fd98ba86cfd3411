/* SPDX-License-Identifier: Apache-2.0 */
/*
 * senders.c - who ended a wait: the thread that was on the waking CPU, unless it was only struck by an
 * interrupt.
 *
 * A packet to this host's own address is received inside the sender's system call: the loopback device
 * (veth, too) puts it on the CPU's backlog (net/core/dev.c, __netif_rx()), and the sender itself runs the
 * receiving soft interrupt when it enables them again (kernel/softirq.c, __local_bh_enable_ip()). Then its
 * stack reads, from the inside: process_backlog, __local_bh_enable_ip, its own sending. Where any entry of
 * an interrupt lies in between, or ksoftirqd, or another device's poll instead of the backlog, who ran is
 * a bystander.
 */
#include "analyse/chains/chains.h"
#include "rules/names.h"

/* Does the stack of a waking in a soft interrupt show that its thread sent what came? */
static bool was_sent(const struct lg_case *c, lg_stk stack)
{
	const struct lg_trace *t = c->t;
	bool backlog = false, inside = false;

	for (lg_stk s = stack; s; s = t->stack.parent[s]) {
		lg_frm f = t->stack.frame[s];
		const char *name = lg_string(t, t->frame.name[f]);

		if (t->frame.kind[f] != LG_FRAME_KERNEL)
			break;
		if (inside) {
			if (lg_is_named(name, LG_NAMED_SEND))
				return true;
			continue;
		}
		if (lg_is_named(name, LG_NAMED_INTERRUPT))
			return false;
		backlog |= !strcmp(name, "process_backlog");
		if (!strncmp(name, "__local_bh_enable", 17)) {
			if (!backlog)
				return false;
			inside = true;
		}
	}
	return false;
}

lg_thr lg_waker_of(const struct lg_case *c, uint32_t row)
{
	const struct lg_state_tab *s = &c->t->state;
	lg_thr waker = s->waker[row];

	if (!waker || waker == s->thr[row] || (c->t->thread.flags[waker] & LG_THREAD_IDLE))
		return 0;
	if (s->waker_ctx[row] == LG_CTX_TASK)
		return waker;
	return s->waker_ctx[row] == LG_CTX_SOFTIRQ && was_sent(c, s->waker_stack[row]) ? waker : 0;
}

bool lg_until_own_timer(const struct lg_case *c, uint32_t row)
{
	enum { WAITS_MAX = 256, SHORT = 10 }; /* it ran for less than a tenth of what it waited */
	const struct lg_state_tab *s = &c->t->state;
	lg_thr thr = s->thr[row];
	uint32_t p = lg_index_state_from(c->idx, thr, s->ts[row]), end = c->idx->state_off[thr + 1];
	uint32_t last = row;
	int64_t ran = 0;

	if (!s->stack[row])
		return false;
	for (size_t n = 0; p < end && n < WAITS_MAX; p++) {
		uint32_t next = c->idx->state[p];

		if (s->ts[next] <= s->ts[row])
			continue;
		if (s->kind[next] == LG_RUNNING)
			ran += s->dur[next];
		if (ran > s->dur[last] / SHORT)
			break;
		if (s->kind[next] != LG_BLOCKED)
			continue;
		if (s->stack[next] != s->stack[row])
			break;
		last = next;
		ran = 0;
		n++;
	}
	return last != row && !lg_waker_of(c, last) && s->waker_ctx[last] == LG_CTX_HARDIRQ;
}
