/* SPDX-License-Identifier: Apache-2.0 */
/* gil_story.c - what a thread did while others waited for Python's lock, which it had. */
#include <math.h>

#include "analyse/chains/culprit.h"
#include "analyse/host/causes.h"
#include "base/words.h"

enum { PLACES_MAX = 64 };

/* By function, of all the moments. */
struct places {
	struct place {
		lg_str name;
		int64_t ns;
		lg_stk example;
	} v[PLACES_MAX];
	size_t n;
};

struct story {
	struct places python, native;
	int64_t waited, refused, asleep; /* refused: it had been asked for the lock */
	size_t n_samples;
	lg_str asleep_in;
};

static void vote(struct places *p, lg_str name, lg_stk example, int64_t ns)
{
	size_t i = 0;

	while (i < p->n && p->v[i].name != name)
		i++;
	if (!name || i == PLACES_MAX)
		return;
	if (i == p->n)
		p->v[p->n++] = (struct place){ .name = name, .example = example };
	p->v[i].ns = lg_sum_ns(p->v[i].ns, ns);
}

static const struct place *most(const struct places *p)
{
	const struct place *best = NULL;

	for (size_t i = 0; i < p->n; i++)
		if (!best || p->v[i].ns > best->ns)
			best = &p->v[i];
	return best;
}

static void see_stack(const struct lg_case *c, struct story *y, lg_stk stack, lg_str native, int64_t ns)
{
	struct lg_gil_place at = lg_gil_place_of(c->t, stack);

	vote(&y->python, at.python ? c->t->frame.name[at.python] : 0, stack, ns);
	vote(&y->native, native ?: at.native, stack, ns);
}

static void see_piece(struct lg_case *c, struct story *y, const struct lg_piece *p)
{
	int64_t end = p->ts + p->dur;
	const struct lg_gil_wait *w = lg_gil_wait_in(c, p->of, p->ts, end);
	struct lg_cpu_samples samples = lg_cpu_samples(&c->scene, p->thr, p->ts, end);
	struct lg_rows states = lg_states_in(&c->scene, p->thr, p->ts, end);
	uint32_t row;

	y->waited = lg_sum_ns(y->waited, p->dur);
	if (w && w->asked < end)
		y->refused = lg_sum_ns(y->refused, end - LG_MAX(w->asked, p->ts));
	while (lg_next_cpu_sample(&c->scene, &samples, &row)) {
		see_stack(c, y, c->t->sample.stack[row], 0, lg_gil_weight(c->t, row));
		y->n_samples++;
	}
	while (lg_next_row(&c->scene, &states)) {
		if (c->t->state.kind[states.row] != LG_BLOCKED)
			continue;
		y->asleep = lg_sum_ns(y->asleep, states.to - states.from);
		y->asleep_in = lg_wait_name_of(c, states.row) ?: y->asleep_in;
		see_stack(c, y, c->t->state.stack[states.row], y->asleep_in, states.to - states.from);
	}
}

/* What the whole run says of both. */
static void say_run(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s)
{
	int64_t waited = 0, refused = 0, longest = 0, ran = 0, asleep = 0;
	double variance = 0;
	uint64_t times = 0;

	for (size_t i = 0; i < c->v->n_gil; i++) {
		const struct lg_gil_row *r = &c->v->gil[i];

		if (r->thr == s->victim && r->did == LG_GIL_WAITED) {
			times += r->times;
			waited = lg_sum_ns(waited, r->ns);
			refused = lg_sum_ns(refused, r->refused);
			longest = LG_MAX(longest, r->longest);
		} else if (r->thr == s->thr && r->did == LG_GIL_ASLEEP) {
			asleep = lg_sum_ns(asleep, r->ns);
		} else if (r->thr == s->thr && (r->did == LG_GIL_PYTHON || r->did == LG_GIL_NATIVE ||
						r->did == LG_GIL_LIBRARY)) {
			ran = lg_sum_ns(ran, r->ns);
			variance += (double)r->error * (double)r->error;
		}
	}
	lg_evidence(c, f, LG_SAYS_PYTHON_GIL_WAIT_RUN, lg_thread_text(c, s->victim), (size_t)times,
		    lg_s(times), lg_ms(waited), lg_ms(refused), lg_ms(longest), c->t->thread.tid[s->thr],
		    lg_ms(ran), sqrt(variance) / 1e6, lg_ms(asleep));
}

/* Does the recording tell of the lock in that thread's process? */
static bool is_told(const struct lg_case *c, lg_thr thr)
{
	for (size_t i = 0; i < c->v->n_gil; i++)
		if (c->t->thread.prc[c->v->gil[i].thr] == c->t->thread.prc[thr])
			return true;
	return false;
}

size_t lg_gil_tell(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s)
{
	const struct place *python, *native;
	struct story y = { 0 };
	size_t samples = 0;

	if (!is_told(c, s->thr)) { /* only by the shape of the waits: who held it ran Python */
		lg_culprit_of_samples(c, f, s->pieces, s->n_pieces, &samples);
		return samples;
	}
	LG_EACH_PIECE(p, s)
		see_piece(c, &y, p);
	python = most(&y.python);
	native = most(&y.native);
	f->detail = y.refused > y.waited / 2 ? "native_call" : "python";
	if (python ?: native) {
		f->culprit.function = lg_string(c->t, (python ?: native)->name);
		lg_culprit_set_stack(c, f, (python ?: native)->example);
	}
	if (y.refused > y.waited / 2)
		lg_evidence(c, f, LG_SAYS_PYTHON_GIL_WAIT_KEPT, lg_ms(y.refused), lg_ms(y.waited),
			    y.asleep > y.waited / 2 ? ", asleep in " : native ? ", in " : "",
			    native ? lg_file_name(lg_string(c->t, native->name)) : "");
	say_run(c, f, s);
	return y.n_samples;
}
