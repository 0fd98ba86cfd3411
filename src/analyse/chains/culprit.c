/* SPDX-License-Identifier: Apache-2.0 */
#include "analyse/chains/culprit.h"

#include "analyse/chains/chains.h"
#include <stdio.h>

#include "base/map.h"
#include "store/kernel_names.h"

enum { STACK_MAX = 64, SAMPLES_MAX = 20000 };

static bool is_plumbing(const char *name)
{
	return !*name || lg_is_plumbing(name, LG_PLUMBING_CULPRIT);
}

const char *lg_thread_text(struct lg_case *c, lg_thr thr)
{
	const struct lg_trace *t = c->t;
	lg_prc p = t->thread.prc[thr];
	char pid[LG_PID_TEXT];
	const char *of = "";

	if (t->thread.tid[thr] != t->process.pid[p])
		of = lg_text(c, ", thread %d %s", t->thread.tid[thr], lg_string(t, t->thread.comm[thr]));
	return lg_text(c, "%s (%s%s)", lg_string(t, t->process.comm[p]), lg_pid_text(t->process.pid[p], pid), of);
}

void lg_culprit_identify(struct lg_case *c, struct lg_finding *f, lg_thr thr, lg_thr victim)
{
	const struct lg_trace *t = c->t;
	lg_prc p = t->thread.prc[thr], vp = t->thread.prc[victim];

	f->culprit.pid = f->culprit.tid = -1;
	f->culprit.rank = -1;
	if (!thr)
		return;
	f->culprit.pid = t->process.pid[p];
	f->culprit.tid = t->thread.tid[thr];
	f->culprit.comm = lg_string(t, t->process.comm[p]);
	if (!*f->culprit.comm)
		f->culprit.comm = lg_string(t, t->thread.comm[thr]);
	if (t->process.cmdline[p])
		f->culprit.cmdline = lg_string(t, t->process.cmdline[p]);
	if (t->process.container[p])
		f->culprit.container = lg_string(t, t->process.container[p]);
	if (t->process.rank[p] >= 0)
		f->culprit.rank = t->process.rank[p];
	if ((t->thread.flags[thr] & LG_THREAD_KERNEL) || t->process.role[p] == LG_ROLE_KERNEL)
		f->culprit.relation = LG_RELATION_KERNEL;
	else if (thr == victim)
		f->culprit.relation = LG_RELATION_SELF;
	else if (p == vp)
		f->culprit.relation = LG_RELATION_SAME_PROCESS;
	else if (t->process.rank[p] >= 0)
		f->culprit.relation = LG_RELATION_RANK;
	else
		f->culprit.relation = LG_RELATION_OTHER_PROCESS;
}

/* "tokenize (data.py:88)" where the source is known, as it is of what an interpreter runs. */
static const char *frame_with_line(struct lg_case *c, lg_frm f, char *buf, size_t size)
{
	const char *file = lg_string(c->t, c->t->frame.file[f]);
	size_t n;

	lg_frame_text(c->t, f, buf, size);
	n = strlen(buf);
	if (c->t->frame.kind[f] == LG_FRAME_PYTHON && c->t->frame.line[f] && *file && !strchr(buf, '('))
		snprintf(buf + n, size - n, " (%s:%u)", lg_file_name(file), c->t->frame.line[f]);
	return buf;
}

void lg_culprit_set_stack(struct lg_case *c, struct lg_finding *f, lg_stk stack)
{
	const char **v = lg_arena_alloc(&c->v->arena, STACK_MAX, sizeof *v);
	char buf[512];
	size_t n = 0;

	if (!v)
		return;
	for (lg_stk s = stack; s && n < STACK_MAX; s = c->t->stack.parent[s])
		v[n++] = lg_arena_strdup(&c->v->arena,
					 frame_with_line(c, c->t->stack.frame[s], buf, sizeof buf));
	f->culprit.stack = v;
	f->culprit.n_stack = n;
}

/* Votes for one of many values; linear in distinct values, which are few. */
struct vote {
	uint32_t value, n, example;
};
struct votes {
	struct vote v[64];
	size_t n, total;
};

static void vote(struct votes *vs, uint32_t value, uint32_t example, uint32_t weight)
{
	vs->total += weight;
	for (size_t i = 0; i < vs->n; i++)
		if (vs->v[i].value == value) {
			vs->v[i].n += weight;
			return;
		}
	if (vs->n < sizeof vs->v / sizeof *vs->v)
		vs->v[vs->n++] = (struct vote){ value, weight, example };
}

static const struct vote *winner(const struct votes *vs)
{
	const struct vote *best = NULL;

	for (size_t i = 0; i < vs->n; i++)
		if (!best || vs->v[i].n > best->n)
			best = &vs->v[i];
	return best;
}

/* Innermost frame of the acquisition stack that is not plumbing. */
static lg_stk acquirer_of(const struct lg_case *c, lg_stk stack)
{
	for (lg_stk s = stack; s; s = c->t->stack.parent[s])
		if (!is_plumbing(lg_stack_name(c->t, s)))
			return s;
	return 0;
}

static size_t from_outermost(const struct lg_case *c, lg_stk s, lg_stk *v, size_t max)
{
	size_t n = 0;

	for (lg_stk k = s; k && n < max; k = c->t->stack.parent[k])
		n++;
	for (size_t i = n; i-- > 0; s = c->t->stack.parent[s])
		v[i] = s;
	return n;
}

static lg_str name_of(const struct lg_case *c, lg_stk s)
{
	return c->t->frame.name[c->t->stack.frame[s]];
}

static lg_str file_of(const struct lg_case *c, lg_stk s)
{
	return c->t->frame.dso[c->t->stack.frame[s]];
}

/*
 * What the holder did in this sample: where it left the path on which it had taken the lock. The
 * callee of the acquiring function (show_smaps_rollup -> smap_gather_stats), or, where the lock is
 * taken in a function that has returned (seq_read_iter: m_start, then show_numa_map), the sibling
 * that runs under it. 0 when the sample has nothing to do with the acquisition.
 */
static lg_str work_of(const struct lg_case *c, lg_stk acquired, lg_stk sample)
{
	lg_stk a[STACK_MAX], b[STACK_MAX];
	size_t n = from_outermost(c, acquired, a, STACK_MAX);
	size_t m = from_outermost(c, sample, b, STACK_MAX), k = 0;
	lg_str callee;

	while (k < n && k < m && name_of(c, a[k]) == name_of(c, b[k]))
		k++;
	/* Entry code alone is no common ground. */
	if (k < 3 && k < n)
		return 0;
	callee = k < m ? name_of(c, b[k]) : 0;
	if (callee && !is_plumbing(lg_string(c->t, callee)))
		return callee;
	while (k > 0) {
		lg_str name = name_of(c, b[--k]);

		if (!is_plumbing(lg_string(c->t, name)))
			return name;
	}
	return 0;
}

void lg_culprit_of_hold(struct lg_case *c, struct lg_finding *f, const struct lg_piece *const *p,
			size_t n, size_t *ret_samples)
{
	const struct lg_span_tab *sp = &c->t->span;
	const struct lg_sample_tab *sm = &c->t->sample;
	struct votes acquirers = { 0 }, work = { 0 };
	const struct vote *a, *b;
	uint32_t last_hold = UINT32_MAX;
	size_t inside = 0;

	*ret_samples = 0;
	for (size_t i = 0; i < n && work.total < SAMPLES_MAX; i++) {
		uint32_t hold = p[i]->hold, row;
		int64_t from = p[i]->ts, to = p[i]->ts + p[i]->dur;
		lg_stk taken = hold != UINT32_MAX ? sp->stack[hold]
			       : p[i]->row != UINT32_MAX ? sp->peer_stack[p[i]->row] : 0;
		lg_stk at = acquirer_of(c, taken);
		struct lg_cpu_samples samples;

		if (at)
			vote(&acquirers, name_of(c, at), taken, 1);
		if (hold != UINT32_MAX) {
			if (hold == last_hold)
				continue;
			last_hold = hold;
			from = sp->ts[hold];
			to = lg_row_end(c->t, from, sp->dur[hold]);
		}
		samples = lg_cpu_samples(&c->scene, p[i]->thr, from, to);
		while (lg_next_cpu_sample(&c->scene, &samples, &row)) {
			lg_str name;

			inside++;
			name = taken ? work_of(c, taken, sm->stack[row]) : 0;
			if (!taken) {
				at = acquirer_of(c, sm->stack[row]);
				name = at ? name_of(c, at) : 0;
			}
			if (name)
				vote(&work, name, sm->stack[row], 1);
		}
	}
	a = winner(&acquirers);
	b = winner(&work);
	if (b) {
		*ret_samples = work.total;
		if (b->n * 2 > work.total)
			f->culprit.function = lg_string(c->t, b->value);
		lg_culprit_set_stack(c, f, b->example);
	} else if (a) {
		lg_culprit_set_stack(c, f, a->example);
	}
	if (!f->culprit.function && a)
		f->culprit.function = lg_string(c->t, a->value);
	/* Nothing tells where it took the lock, and its innermost frames are many: what they share. */
	if (!f->culprit.function && inside)
		lg_culprit_shared_function(c, f, p, n, ret_samples);
	if (!*ret_samples)
		*ret_samples = inside;
}

/* The Python function for which the interpreter's own code at s runs; s itself, where that is none of its. */
static lg_stk interpreted(const struct lg_case *c, lg_stk s)
{
	lg_stk at = s;

	while (at && lg_is_interpreters(c->t, c->t->stack.frame[at]))
		at = c->t->stack.parent[at];
	return at && c->t->frame.kind[c->t->stack.frame[at]] == LG_FRAME_PYTHON ? at : s;
}

/*
 * What the thread itself was at: the innermost frame that no interrupt put there. Entries:
 * arch/x86/include/asm/idtentry.h, arch/arm64/kernel/entry.S (el0t_64_irq and the like). A fault
 * (asm_exc_page_fault) is the thread's own doing.
 */
static lg_stk own_frame(const struct lg_case *c, lg_stk stack)
{
	lg_stk own = stack;

	for (lg_stk s = stack; s && c->t->frame.kind[c->t->stack.frame[s]] == LG_FRAME_KERNEL;
	     s = c->t->stack.parent[s]) {
		const char *name = lg_stack_name(c->t, s);

		if (!strncmp(name, "asm_sysvec_", 11) || !strcmp(name, "asm_common_interrupt") ||
		    (!strncmp(name, "el", 2) && strstr(name, "_64_irq")))
			own = c->t->stack.parent[s];
	}
	return interpreted(c, own);
}

/* The culprit's samples in its pieces, one after the other. */
struct piece_samples {
	const struct lg_piece *const *p, *const *end; /* the piece of the last one; behind the pieces */
	struct lg_cpu_samples in;
	bool began;
	lg_stk stack; /* the sample's */
};

static bool next_sample(const struct lg_case *c, struct piece_samples *w)
{
	uint32_t row;

	for (; w->p < w->end; w->p++, w->began = false) {
		if (!w->began)
			w->in = lg_cpu_samples(&c->scene, (*w->p)->thr, (*w->p)->ts,
					       (*w->p)->ts + (*w->p)->dur);
		w->began = true;
		if (lg_next_cpu_sample(&c->scene, &w->in, &row)) {
			w->stack = c->t->sample.stack[row];
			return true;
		}
	}
	return false;
}

void lg_culprit_of_samples(struct lg_case *c, struct lg_finding *f, const struct lg_piece *const *p,
			   size_t n, size_t *ret_samples)
{
	struct piece_samples samples = { .p = p, .end = p + n };
	struct votes leaves = { 0 };
	const struct vote *w;

	while (leaves.total < SAMPLES_MAX && next_sample(c, &samples)) {
		lg_stk at = own_frame(c, samples.stack);

		/* One sample stands for the time around it, in which others saw something else. */
		if ((*samples.p)->end == LG_END_FORK && !lg_is_chore(c->t, at))
			continue;
		while (at && !name_of(c, at) && !file_of(c, at))
			at = c->t->stack.parent[at];
		/* Of a file without symbols the file is known; its callers are not where it is. */
		if (at)
			vote(&leaves, name_of(c, at) ?: file_of(c, at), at, 1);
	}
	*ret_samples = leaves.total;
	w = winner(&leaves);
	if (!w)
		return;
	f->culprit.function = lg_string(c->t, w->value);
	if (!name_of(c, w->example))
		f->culprit.function = lg_file_name(f->culprit.function);
	lg_culprit_set_stack(c, f, w->example);
}

void lg_culprit_of_time(struct lg_case *c, struct lg_finding *f, const struct lg_piece *const *p, size_t n,
			size_t *ret_samples)
{
	const struct lg_state_tab *s = &c->t->state;
	struct votes asleep = { 0 };
	const struct vote *w;
	int64_t ran = 0, slept = 0;

	for (size_t i = 0; i < n; i++) {
		struct lg_rows states = lg_states_in(&c->scene, p[i]->thr, p[i]->ts, p[i]->ts + p[i]->dur);

		while (lg_next_row(&c->scene, &states)) {
			int64_t dur = states.to - states.from;
			bool runs = s->kind[states.row] != LG_BLOCKED;
			lg_str name = runs ? 0 : lg_wait_name_of(c, states.row);

			*(runs ? &ran : &slept) += dur;
			if (name)
				vote(&asleep, name, s->stack[states.row], (uint32_t)(dur / 1000));
		}
	}
	w = winner(&asleep);
	if (slept <= ran || !w) {
		lg_culprit_of_samples(c, f, p, n, ret_samples);
		return;
	}
	f->culprit.function = lg_string(c->t, w->value);
	lg_culprit_set_stack(c, f, w->example);
}

/* Frames from the outermost inwards, up to the first page-walk frame: callbacks below it are the
 * walker's business, not the caller's. */
static size_t path_inwards(const struct lg_case *c, lg_stk s, lg_stk *v, size_t max)
{
	size_t n = from_outermost(c, s, v, max), k;

	for (k = 0; k < n; k++)
		if (!strncmp(lg_stack_name(c->t, v[k]), "walk_page", 9) ||
		    !strncmp(lg_stack_name(c->t, v[k]), "__walk_page", 11))
			break;
	return k;
}

void lg_culprit_shared_function(struct lg_case *c, struct lg_finding *f,
				const struct lg_piece *const *p, size_t n, size_t *ret_samples)
{
	struct piece_samples first = { .p = p, .end = p + n }, again = first;
	struct lg_map votes = { 0 };
	lg_stk path[STACK_MAX], example = 0;
	size_t total = 0, deepest = 0;

	for (; total < SAMPLES_MAX && next_sample(c, &first); total++) {
		size_t depth = path_inwards(c, first.stack, path, STACK_MAX);

		for (size_t d = 0; d < depth; d++) {
			lg_str name = name_of(c, path[d]);
			bool seen = false;

			for (size_t e = 0; e < d && !seen; e++)
				seen = name_of(c, path[e]) == name;
			if (name && !seen && lg_map_set(&votes, name, lg_map_get(&votes, name) + 1))
				c->failed = LG_E_NOMEM;
		}
		example = example ?: first.stack;
	}
	*ret_samples = total;
	/* Among the samples that go through it, whichever: one that ended elsewhere is no example. */
	for (size_t left = total; left && next_sample(c, &again); left--)
		for (size_t depth = path_inwards(c, again.stack, path, STACK_MAX); depth-- > deepest;) {
			lg_str name = name_of(c, path[depth]);

			if (!name || is_plumbing(lg_string(c->t, name)) ||
			    lg_map_get(&votes, name) * 5 < total * 4)
				continue;
			f->culprit.function = lg_string(c->t, name);
			example = again.stack;
			deepest = depth;
			break;
		}
	if (example)
		lg_culprit_set_stack(c, f, example);
	lg_map_done(&votes);
}
