/* SPDX-License-Identifier: Apache-2.0 */
/*
 * script_sched.c - see script_sched.h.
 *
 * Two forms: the kernel's own (include/trace/events/sched.h)
 *	prev_comm=a b prev_pid=7 prev_prio=120 prev_state=R+ ==> next_comm=c next_pid=8 next_prio=120
 *	comm=a b pid=7 prio=120 target_cpu=001
 * and that of libtraceevent's plugin, which perf prefers where it is installed (plugin_sched_switch.c)
 *	a b:7 [120] R+ ==> c:8 [120]
 *	a b:7 [120] success=1 CPU:001
 */
#include "import/perfscript/script_sched.h"

#include <string.h>

#include "base/alloc.h"
#include "import/idle.h"

/* Names have spaces; what follows them does not. */
struct cursor {
	const char *p, *end;
	bool bad;
};

static bool skip(struct cursor *c, const char *word)
{
	size_t n = strlen(word);

	while (c->p < c->end && *c->p == ' ')
		c->p++;
	if ((size_t)(c->end - c->p) < n || memcmp(c->p, word, n))
		return false;
	c->p += n;
	return true;
}

static int32_t number(struct cursor *c)
{
	int64_t v = 0;
	const char *first = c->p;
	bool minus = c->p < c->end && *c->p == '-';

	c->p += minus;
	for (; c->p < c->end && *c->p >= '0' && *c->p <= '9' && v < INT32_MAX / 10; c->p++)
		v = v * 10 + (*c->p - '0');
	c->bad |= c->p == first + minus || (c->p < c->end && *c->p >= '0' && *c->p <= '9');
	return (int32_t)(minus ? -v : v);
}

/* "NAME=value of any characters NEXT=": up to next, which is left behind the cursor. */
static struct lg_ps_view name_up_to(struct cursor *c, const char *next)
{
	const char *at = memmem(c->p, (size_t)(c->end - c->p), next, strlen(next));
	struct lg_ps_view v = { c->p, at ? (size_t)(at - c->p) : 0 };

	c->bad |= !at;
	c->p = at ? at + strlen(next) : c->end;
	return v;
}

static void drop_number(struct cursor *c, const char *label)
{
	if (skip(c, label))
		(void)number(c);
	else
		c->bad = true;
}

/* "S", "R+", "D|K": letters that this program does not know have no bit. */
static uint64_t letters(struct cursor *c)
{
	uint64_t state = 0;
	const char *first;

	(void)skip(c, "");
	for (first = c->p; c->p < c->end && *c->p != ' '; c->p++) {
		state |= lg_sched_state_bit(*c->p);
		c->bad |= !strchr("RSDTtXxZPIKWN|+", *c->p);
	}
	c->bad |= c->p == first;
	return state;
}

static void kernel_switch(struct lg_ps_sched_line *e, struct cursor *c)
{
	(void)name_up_to(c, " prev_pid=");
	e->prev_tid = number(c);
	drop_number(c, "prev_prio=");
	c->bad |= !skip(c, "prev_state=");
	e->prev_state = letters(c);
	c->bad |= !skip(c, "==>") || !skip(c, "next_comm=");
	e->comm = name_up_to(c, " next_pid=");
	e->next_tid = number(c);
	drop_number(c, "next_prio=");
}

static void kernel_waking(struct lg_ps_sched_line *e, struct cursor *c)
{
	e->comm = name_up_to(c, " pid=");
	e->tid = number(c);
	drop_number(c, "prio=");
	if (skip(c, "success="))
		(void)number(c);
	e->target_cpu = skip(c, "target_cpu=") ? number(c) : -1;
}

static void kernel_move(struct lg_ps_sched_line *e, struct cursor *c)
{
	e->comm = name_up_to(c, " pid=");
	e->tid = number(c);
	drop_number(c, "prio=");
	c->bad |= !skip(c, "orig_cpu=");
	e->from_cpu = number(c);
	c->bad |= !skip(c, "dest_cpu=");
	e->target_cpu = number(c);
}

/* "a b:7 [120]": the name may have colons, what follows the last one before the bracket is the id. */
static int32_t plugin_task(struct cursor *c, struct lg_ps_view *ret_comm)
{
	const char *bracket, *colon;
	int32_t tid;

	(void)skip(c, "");
	bracket = memmem(c->p, (size_t)(c->end - c->p), " [", 2);
	colon = bracket ? memrchr(c->p, ':', (size_t)(bracket - c->p)) : NULL;
	if (!colon) {
		c->bad = true;
		return 0;
	}
	*ret_comm = (struct lg_ps_view){ c->p, (size_t)(colon - c->p) };
	c->p = colon + 1;
	tid = number(c);
	c->bad |= c->p != bracket;
	drop_number(c, "[");
	c->bad |= !skip(c, "]");
	return tid;
}

static void plugin_switch(struct lg_ps_sched_line *e, struct cursor *c)
{
	struct lg_ps_view prev;

	e->prev_tid = plugin_task(c, &prev);
	e->prev_state = letters(c);
	c->bad |= !skip(c, "==>");
	e->next_tid = plugin_task(c, &e->comm);
}

static void plugin_waking(struct lg_ps_sched_line *e, struct cursor *c)
{
	e->tid = plugin_task(c, &e->comm);
	e->target_cpu = -1;
	if (c->bad)
		return;
	(void)name_up_to(c, "CPU:");
	e->target_cpu = c->bad ? -1 : number(c);
	c->bad = false; /* it is not always there */
}

static enum lg_ps_sched_kind kind_of(struct lg_ps_view event)
{
	static const struct {
		const char *name;
		enum lg_ps_sched_kind kind;
	} known[] = { { "sched:sched_switch", LG_PS_SWITCH },
		      { "sched:sched_waking", LG_PS_WAKING },
		      { "sched:sched_wakeup", LG_PS_WAKEUP },
		      { "sched:sched_wakeup_new", LG_PS_WAKEUP_NEW },
		      { "sched:sched_migrate_task", LG_PS_MOVE } };

	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (event.n == strlen(known[i].name) && !memcmp(event.p, known[i].name, event.n))
			return known[i].kind;
	return LG_PS_NO_SCHED;
}

void lg_ps_sched_parse(struct lg_ps_sched_line *ret, const struct lg_ps_line *l)
{
	struct cursor c = { .p = l->rest.p, .end = l->rest.p + l->rest.n };

	*ret = (struct lg_ps_sched_line){ .kind = kind_of(l->event), .target_cpu = -1, .from_cpu = -1 };
	if (ret->kind == LG_PS_NO_SCHED)
		return;
	if (ret->kind == LG_PS_SWITCH) {
		if (skip(&c, "prev_comm="))
			kernel_switch(ret, &c);
		else
			plugin_switch(ret, &c);
		c.bad |= ret->prev_tid < 0 || ret->next_tid < 0;
	} else {
		if (skip(&c, "comm="))
			(ret->kind == LG_PS_MOVE ? kernel_move : kernel_waking)(ret, &c);
		else
			plugin_waking(ret, &c);
		c.bad |= ret->tid < 0;
	}
	ret->understood = !c.bad && l->has_time && (l->cpu >= 0 || ret->kind != LG_PS_SWITCH);
}

static bool feed_is_there(struct lg_ps_sched *s, struct lg_builder *b, int64_t ts)
{
	struct lg_sched_options opt = { .start = ts };

	return s->feed || !lg_sched_feed_new(&s->feed, b, &opt, NULL);
}

void lg_ps_sched_event(struct lg_ps_sched *s, struct lg_builder *b, const struct lg_ps_line *l,
		       const struct lg_ps_sched_line *e, lg_stk stk, uint64_t line_no)
{
	const struct lg_trace *t = lg_builder_trace(b);
	int32_t named = e->kind == LG_PS_SWITCH ? e->next_tid : e->tid;

	if (!e->understood) {
		if (!s->odd++)
			s->odd_at = line_no;
		return;
	}
	s->subsampled += l->period > 1;
	if (!feed_is_there(s, b, l->ts))
		return;
	stk = lg_without_plumbing(&s->plumbing, t, stk);
	if (named > 0 && e->comm_kept) {
		lg_thr thr = lg_thread_get(b, -1, named);

		if (!lg_thread_read(b, thr).comm)
			lg_thread_name(b, thr, e->comm_kept);
	}
	if (e->kind == LG_PS_SWITCH) {
		s->switches++;
		lg_sched_switched(s->feed, &(struct lg_sched_switch){
			.ts = l->ts, .cpu = l->cpu, .prev_tid = e->prev_tid,
			.prev_pid = l->tid == e->prev_tid ? l->pid : -1, .prev_state = e->prev_state,
			.next_tid = e->next_tid, .next_pid = -1, .stack = stk });
		return;
	}
	s->has_waking |= e->kind == LG_PS_WAKING;
	/* sched_waking told who woke it; sched_wakeup comes when it has its place. */
	if (e->kind == LG_PS_MOVE || (e->kind == LG_PS_WAKEUP && s->has_waking)) {
		if (e->target_cpu >= 0)
			lg_sched_moved(s->feed, &(struct lg_sched_move){ l->ts, e->tid, e->from_cpu,
									 e->target_cpu });
		return;
	}
	lg_sched_woke(s->feed, &(struct lg_sched_waking){
		.ts = l->ts, .cpu = l->cpu, .tid = e->tid, .waker_pid = l->pid, .waker_tid = l->tid,
		.target_cpu = e->target_cpu, .ctx = lg_context_of_stack(t, stk), .stack = stk });
}

void lg_ps_sched_seen(struct lg_ps_sched *s, int64_t ts, int32_t cpu)
{
	enum { CPUS_MAX = 65536 };
	size_t old = s->n_cpu;

	if (cpu < 0 || cpu >= CPUS_MAX)
		return;
	if ((size_t)cpu >= old) {
		if (lg_grow(&s->last, &s->cpu_cap, (size_t)cpu + 1, sizeof *s->last))
			return;
		s->n_cpu = (size_t)cpu + 1;
		for (size_t i = old; i < s->n_cpu; i++)
			s->last[i] = INT64_MIN;
	}
	s->last[cpu] = ts;
}

void lg_ps_sched_lost(struct lg_ps_sched *s, int64_t ts, int32_t cpu)
{
	int64_t from = INT64_MAX;

	for (size_t i = 0; i < s->n_cpu; i++)
		if ((cpu < 0 || (size_t)cpu == i) && s->last[i] != INT64_MIN && s->last[i] < from)
			from = s->last[i];
	if (s->feed && from < ts)
		lg_sched_gap(s->feed, from, ts, cpu);
}

static void without_states(struct lg_builder *b, int64_t last, enum lg_diag_id id, uint64_t n,
			   const char *why)
{
	lg_builder_trace(b)->state.n = 0;
	lg_add_diag_now(b, id, last, n, "%llu lines of sched_switch: %s", (unsigned long long)n, why);
}

int lg_ps_sched_finish(struct lg_ps_sched *s, struct lg_builder *b, int64_t last, struct lg_error *err)
{
	struct lg_sched_stats stats = { 0 };
	int rc = 0;

	if (s->odd)
		lg_add_diag_now(b, LG_DIAG_NOT_UNDERSTOOD, last, s->odd,
				"%llu sched_switch, sched_waking or sched_wakeup lines lack fields, a time or "
				"a CPU, the first is line %llu", (unsigned long long)s->odd, (unsigned long long)s->odd_at);
	if (!s->feed)
		return 0;
	stats = lg_sched_feed_stats(s->feed);
	if (s->subsampled)
		without_states(b, last, LG_DIAG_SUBSAMPLED, s->switches,
			       "some stand for more than one (perf record -F)");
	else if (s->cpu_untold || stats.mismatch * 2 > stats.switches)
		without_states(b, last, LG_DIAG_PARTIAL, s->switches,
			       "of single programs (perf record -p), not of the whole machine, so that they do not "
			       "tell when a thread came back; the perf.data itself tells more");
	else
		rc = lg_sched_feed_finish(s->feed, last, err);
	return rc;
}

void lg_ps_sched_done(struct lg_ps_sched *s)
{
	lg_sched_feed_free(s->feed);
	lg_plumbing_done(&s->plumbing);
	lg_free(s->last);
}
