/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log_steps.c - step times that a job's log states, where nothing else tells of steps.
 *
 * A log without times, or one that prints every tenth step, gives no spans, yet its numbers (counter
 * log.step_ms) tell how long steps are and whether some stand out. What they waited for it cannot tell.
 */
#include "analyse/steps/log_steps.h"

#include <math.h>
#include <stdlib.h>

#include "analyse/steps/judge.h"
#include "analyse/steps/steps.h"
#include "base/median.h"
#include "base/words.h"
#include "timeline/timeline_gpu.h"

enum { MIN_LINES = 3, RANK_LINES = 8 };
static const int64_t BAR_GRAIN_NS = 1000000000; /* a progress bar tells whole seconds */

static enum lg_stated_kind kind_of(const struct lg_trace *t, lg_trk k)
{
	const char *name = lg_string(t, t->track.name[k]);

	if (!strcmp(name, "log.step_ms"))
		return t->track.index[k] < 0 ? LG_STATED_LINES : LG_STATED_LOOP;
	return !strcmp(name, "log.bar_ms") ? LG_STATED_BAR :
	       !strcmp(name, "log.aside_ms") ? LG_STATED_OTHER_WORK : LG_STATED_NONE;
}

struct lg_stated lg_stated_steps(const struct lg_index *x, size_t min)
{
	struct lg_stated best = { 0 };

	for (lg_trk k = 1; k < x->t->track.n; k++) {
		size_t n = x->counter_off[k + 1] - x->counter_off[k];
		enum lg_stated_kind kind = n && n >= min ? kind_of(x->t, k) : LG_STATED_NONE;

		if (kind > best.kind || (kind && kind == best.kind && n > best.n))
			best = (struct lg_stated){ .track = k, .n = n, .kind = kind };
	}
	return best;
}

double lg_steps_per_line(const struct lg_trace *t, lg_prc p)
{
	LG_AUTOFREE double *apart = lg_calloc(t->mark.n + 1, sizeof *apart);
	int64_t last = -1;
	double steps = 0, usual;
	size_t n = 0, usually = 0;

	LG_EACH_MARK_OF(i, t, p, "log.step") {
		int64_t at = t->mark.value[i];

		/* A smaller number begins the next epoch. */
		if (apart && last >= 0 && at > last)
			apart[n++] = (double)(at - last);
		last = at >= 0 ? at : last;
	}
	if (!n)
		return 1;
	usual = lg_median_f64(apart, n);
	/* Further apart: another loop, an evaluation's, was counted between them. */
	for (size_t i = 0; i < n; i++)
		if (apart[i] <= 4 * usual) {
			steps += apart[i];
			usually++;
		}
	return fmax(1, steps / (double)usually);
}

/* p: 0 = any. */
static const char *setting_of(const struct lg_trace *t, lg_prc p, const char *key)
{
	for (size_t i = 0; i < t->meta.n; i++)
		if ((!p || t->meta.prc[i] == p) && !strcmp(lg_string(t, t->meta.key[i]), key))
			return lg_string(t, t->meta.value[i]);
	return "";
}

int64_t lg_log_tick(const struct lg_trace *t, lg_prc p)
{
	int64_t tick = strtoll(setting_of(t, p, "log.tick_ns"), NULL, 10);

	return tick > 0 ? tick : 0;
}

void lg_say_log_steps(struct lg_case *c)
{
	int64_t tick = lg_log_tick(c->t, 0);
	double outside = strtod(setting_of(c->t, 0, "log.outside_ms"), NULL);
	char text[LG_MS_TEXT];

	lg_limit(c, *setting_of(c->t, 0, "log.step_times") ? LG_SAYS_STEPS_OF_STAMPS : LG_SAYS_STEPS_OF_LOG);
	if (outside > 0)
		lg_say(c, LG_SAYS_STEPS_OF_OUTSIDE, lg_ms_text(outside, text));
	if (tick)
		lg_say(c, LG_SAYS_STEPS_OF_TICKS, lg_ms_text(lg_ms(tick), text));
}

/* ", 0.98 a second as it says at its end", or by the lines' own times; "" = nothing tells. first: a line of a step. */
static const char *rate_of(struct lg_case *c, size_t first)
{
	static const char key[] = "'train_steps_per_second': ";
	const struct lg_trace *t = c->t;
	size_t last = first;
	double s, steps;

	for (size_t i = 0; i < t->mark.n; i++) {
		const char *p = strcmp(lg_string(t, t->mark.name[i]), "log.train_summary") ? NULL :
				strstr(lg_string(t, t->mark.text[i]), key);
		double rate = p ? strtod(p + sizeof key - 1, NULL) : 0;

		if (rate > 0 && rate < 1e9)
			return lg_text(c, LG_SAYS_STEPS_RATE_STATED, rate, 1000 / rate);
		if (t->mark.thr[i] == t->mark.thr[first] && t->mark.name[i] == t->mark.name[first])
			last = i;
	}
	s = (double)(t->mark.ts[last] - t->mark.ts[first]) / 1e9;
	steps = (double)t->mark.value[last] - (double)t->mark.value[first];
	if (lg_has_diag(t, LG_DIAG_NO_TIMES) || !(steps > 0 && s > 0))
		return "";
	return lg_text(c, LG_SAYS_STEPS_RATE_OF_LINES, steps, s, steps / s);
}

bool lg_say_untimed_steps(struct lg_case *c)
{
	size_t n = 0, first = 0;

	LG_EACH_MARK(i, c->t, "log.step")
		first = n++ ? first : i;
	if (!n || !lg_is_log_alone(c))
		return false;
	c->v->unjudged = "The log tells of steps and not how long each took";
	lg_say(c, LG_SAYS_STEPS_UNTIMED, n, rate_of(c, first));
	return true;
}

/*
 * Ranks that wait for each other in each step take equally long. Where they do not (local SGD, evaluation, no
 * collectives yet) each says its own.
 */
int lg_compare_log_ranks(struct lg_case *c)
{
	const struct lg_trace *t = c->t;
	double longest = 0, next = 0, least = INFINITY;
	char one[LG_MS_TEXT], other[LG_MS_TEXT], most[LG_MS_TEXT];
	int32_t rank = -1;
	size_t n_ranks = 0;

	for (lg_trk k = 1; k < t->track.n; k++) {
		size_t n = c->idx->counter_off[k + 1] - c->idx->counter_off[k], i = 0;
		lg_prc p = t->track.prc[k];
		LG_AUTOFREE double *ms = NULL;
		double median;

		if (n < RANK_LINES || kind_of(t, k) != LG_STATED_LINES || !p || t->process.rank[p] < 0)
			continue;
		ms = lg_calloc(n, sizeof *ms);
		if (!ms)
			return LG_E_NOMEM;
		LG_LISTED(row, c->idx->counter, k)
			ms[i++] = t->counter.value[row];
		median = lg_median_f64(ms, n);
		n_ranks++;
		least = fmin(least, median);
		next = fmax(next, fmin(median, longest));
		rank = median > longest ? t->process.rank[p] : rank;
		longest = fmax(longest, median);
	}
	/* Further above the next one than all others are apart, and than noise reaches. */
	if (n_ranks < 2 || longest <= lg_slow_beyond(next, LG_N_ANY_SLOW, 1) ||
	    longest - next <= 2 * (next - least))
		return 0;
	c->v->rank_longer = rank;
	c->v->rank_apart = longest / next - 1;
	c->v->scope = LG_SCOPE_RANK_LOCAL;
	lg_say(c, LG_SAYS_STEPS_RANK_APART, rank, lg_ms_text(longest, one), n_ranks - 1, lg_s(n_ranks - 1),
	       lg_ms_text(least, other), lg_ms_text(next, most));
	return 0;
}

bool lg_is_log_alone(const struct lg_case *c)
{
	return !c->has_states && !c->t->sample.n && !lg_gpu_only(c->t);
}

size_t lg_step_lines_after(const struct lg_trace *t, size_t mark, bool of_rank)
{
	size_t n = 0;

	LG_EACH_MARK(i, t, "log.step")
		n += t->mark.ts[i] > t->mark.ts[mark] &&
		     (!of_rank || lg_rank_of_mark(t, i) == lg_rank_of_mark(t, mark));
	return n;
}

/* The stated times in the order of their lines, and where the k-th step began. */
struct told {
	struct lg_step *step;
	size_t n, warm;     /* leading slow ones: compilation, first touch of memory */
	int64_t total;
	int64_t spacing;    /* of lines with times, on average */
	bool has_times;     /* lines have times of their own; else a step begins where the one before ends */
};

static void read_lines(const struct lg_case *c, lg_trk track, struct told *l)
{
	const struct lg_counter_tab *t = &c->t->counter;
	int64_t first = INT64_MAX, last = INT64_MIN;

	LG_LISTED(i, c->idx->counter, track) {
		double ns = t->value[i] * 1e6;

		l->step[l->n] = (struct lg_step){ .ts = t->ts[i],
						  .dur = ns > 0 && ns < 1e18 ? (int64_t)ns : 0 };
		if (__builtin_add_overflow(l->total, l->step[l->n].dur, &l->total))
			l->total = INT64_MAX;
		first = l->step[l->n].ts < first ? l->step[l->n].ts : first;
		last = l->step[l->n].ts > last ? l->step[l->n].ts : last;
		l->n++;
	}
	/* Without times the importer numbers lines a microsecond apart: far less than the steps took. */
	l->has_times = first < last && last / 2 - first / 2 > l->total / 4;
	if (l->has_times) {
		l->spacing = (int64_t)(((uint64_t)last - (uint64_t)first) / l->n);
		return;
	}
	for (size_t i = 1; i < l->n; i++)
		if (__builtin_add_overflow(l->step[i - 1].ts, l->step[i - 1].dur, &l->step[i].ts))
			l->step[i].ts = INT64_MAX;
}

#define LINE 1000000000 /* as a time */

/* The slow ones, each up to the next line: in time, or with each line taken for a second. */
static size_t slow_ones(const struct told *l, bool lines, struct lg_burst *ret)
{
	size_t n = 0;

	for (size_t i = l->warm; i < l->n; i++)
		if (l->step[i].slow && lines)
			ret[n++] = (struct lg_burst){ (int64_t)i * LINE, (int64_t)(i + 1) * LINE, 1 };
		else if (l->step[i].slow)
			ret[n++] = (struct lg_burst){ l->step[i].ts, l->step[i + (i + 1 < l->n)].ts, 1 };
	return n;
}

/* Since when: in time where lines carry it, and always as who reads the log finds it. */
static void say_shift(struct lg_case *c, const struct told *l, const struct lg_trend *trend)
{
	char before[LG_MS_TEXT], after[LG_MS_TEXT], at[LG_ORDINAL_TEXT];

	if (l->has_times)
		c->v->shift_s = trend->shift_s;
	lg_say(c, LG_SAYS_STEPS_LEVEL, lg_ordinal_text(l->warm + trend->at + 1, at), l->n,
	       lg_ms_text(trend->before_ms, before), lg_ms_text(trend->after_ms, after));
}

/* How the slow ones lie: in a rhythm of time or of lines, in one change of the level, or anyhow. */
static int shape_of(struct lg_case *c, struct told *l, double per_line, double excess)
{
	struct lg_verdict *v = c->v;
	LG_AUTOFREE struct lg_burst *b = lg_calloc(l->n + 1, sizeof *b);
	struct lg_rhythm in_time = { .period_s = NAN }, in_lines;
	struct lg_trend trend;
	size_t slow;
	int rc;

	if (!b)
		return LG_E_NOMEM;
	/* Lines that follow each other touch. */
	if (l->has_times)
		in_time = lg_rhythm_of(b, slow_ones(l, false, b), l->spacing / 4);
	slow = slow_ones(l, true, b);
	in_lines = lg_rhythm_of(b, slow, LINE / 4);
	rc = lg_trend_of_steps(l->step + l->warm, l->n - l->warm, &trend);
	if (rc)
		return rc;
	lg_judge_shape(v, !isnan(in_time.period_s) || !isnan(in_lines.period_s), &trend, excess);
	if (v->shape == LG_SHAPE_PERIODIC) {
		v->period_s = in_time.period_s;
		v->period_p = isnan(in_time.period_s) ? in_lines.p : in_time.p;
		v->period_p_at_most = isnan(in_time.period_s) ? in_lines.at_most : in_time.at_most;
	} else if (v->shape == LG_SHAPE_SHIFT) {
		say_shift(c, l, &trend);
	}
	/* A loop that does something every so many steps (evaluation, checkpoint) slows those. */
	if (!isnan(in_lines.period_s))
		lg_say(c, LG_SAYS_STEPS_LINES_SLOW, slow, l->n, in_lines.period_s * per_line);
	return 0;
}

int lg_steps_of_log(struct lg_case *c)
{
	struct lg_verdict *v = c->v;
	struct told l = { 0 };
	double excess = 0, all = 1e-9, noise = INFINITY;
	struct lg_stated of = lg_stated_steps(c->idx, MIN_LINES);
	LG_AUTOFREE double *ms = NULL;
	int rc;

	if (!of.track)
		return 0;
	if (of.kind == LG_STATED_OTHER_WORK)
		lg_limit(c, LG_SAYS_STEPS_OTHER_WORK);
	ms = lg_calloc(of.n, sizeof *ms);
	l.step = lg_arena_alloc(&v->arena, of.n, sizeof *l.step);
	if (!ms || !l.step)
		return c->failed = LG_E_NOMEM;
	read_lines(c, of.track, &l);
	rc = lg_judge_steps(l.step, l.n, LG_STEPS_OF_RUN,
			    of.kind != LG_STATED_LINES ? BAR_GRAIN_NS
			    : lg_log_tick(c->t, c->t->track.prc[of.track]), &noise);
	for (size_t i = 0; !rc && i < l.n; i++) {
		l.warm += l.step[i].warmup;
		ms[i] = lg_ms(l.step[i].dur);
		v->n_slow += l.step[i].slow;
		all += ms[i];
		excess += l.step[i].slow ? lg_ms(l.step[i].dur - l.step[i].median) : 0;
	}
	v->n_judged = l.n - l.warm;
	lg_sum_up_steps(v, ms + l.warm, l.n - l.warm, noise);
	if (of.kind != LG_STATED_LINES && v->median_ms < 10000)
		lg_limit(c, LG_SAYS_STEPS_OF_BAR);
	v->slow_excess_ms = excess;
	/* Nothing but lines: nothing of it can be explained. */
	if (excess > 0)
		v->unexplained_share = 1;
	rc = rc ?: shape_of(c, &l, lg_steps_per_line(c->t, c->t->track.prc[of.track]), excess / all);
	return rc ? c->failed = rc : 1;
}
