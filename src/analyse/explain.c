/* SPDX-License-Identifier: Apache-2.0 */
/* explain.c - the analyses in order, and what is said about the run as a whole. */
#include "analyse/explain.h"

#include <math.h>

#include "analyse/chains/chains.h"
#include "analyse/chains/culprit.h"
#include "analyse/chains/tally.h"
#include "analyse/finders.h"
#include "analyse/registry.h"
#include "analyse/steps/log_steps.h"
#include "analyse/steps/steps.h"
#include "base/median.h"
#include "base/words.h"
#include "timeline/timeline_gpu.h"

void lg_verdict_free(struct lg_verdict *v)
{
	if (!v)
		return;
	lg_index_free(v->index);
	lg_arena_done(&v->arena);
	lg_free(v);
}

/* The details of one kind of gap: the first different ones, and how many rows say something else. */
struct details {
	lg_str text[4];
	size_t n, rows, left_out;
	uint64_t count;
};

static void add_details(struct details *d, lg_str text, uint64_t count)
{
	bool known = !text;

	d->rows++;
	d->count = lg_count_sum(d->count, count);
	for (size_t i = 0; i < d->n && !known; i++)
		known = d->text[i] == text;
	if (!known && d->n < sizeof d->text / sizeof *d->text)
		d->text[d->n++] = text;
	else if (!known)
		d->left_out++;
}

/* One line for each kind of gap, with the count. */
static void limits_from_diag(struct lg_case *c)
{
	enum { STRANGE = 63 }; /* and all above: of a later version */
	const struct lg_diag_tab *t = &c->t->diag;

	for (uint32_t id = 1; id <= STRANGE; id++) {
		struct details d = { 0 };
		const char *line;
		char number[32];

		for (size_t i = 0; i < t->n; i++)
			if (LG_MIN(t->id[i], STRANGE) == id)
				add_details(&d, t->text[i], t->count[i]);
		if (!d.rows)
			continue;
		lg_count_text(d.count, number, sizeof number);
		line = lg_text(c, "%s%s", lg_diag_sentence(id), d.count > 1 ? lg_text(c, " (%s)", number) : "");
		for (size_t i = 0; i < d.n; i++)
			line = lg_text(c, "%s%s%s", line, i ? "; " : ": ", lg_string(c->t, d.text[i]));
		lg_limit(c, d.left_out ? lg_text(c, "%s; and %zu more like these", line, d.left_out) : line);
	}
}

static void stage_times(const struct lg_rank *r, const struct lg_step *s, double *ms)
{
	int64_t a = s->ts, end = s->ts + s->dur;

	memset(ms, 0, LG_STAGE_MAX * sizeof *ms);
	while (a < end) {
		int64_t next = lg_stage_next(r, a);
		uint8_t stage = lg_stage_at(r, a);

		next = LG_MIN(next, end);
		ms[stage ? stage : LG_STAGE_OTHER] += lg_ms(next - a);
		a = next;
	}
}

/* Stage table of the reference rank: medians of ordinary steps, and what slow steps add. */
static int stages(struct lg_case *c, uint32_t ref)
{
	struct lg_verdict *v = c->v;
	const struct lg_rank *r = &c->ranks[ref];
	/* By stage: those of ordinary steps, and behind them those of slow ones, from the end on. */
	LG_AUTOFREE double *of = lg_calloc(r->n_steps * LG_STAGE_MAX, sizeof *of);
	double sum[LG_STAGE_MAX] = { 0 }, total = 0;
	size_t n = 0, n_slow = 0;

	v->stages = lg_arena_alloc(&v->arena, LG_STAGE_MAX, sizeof *v->stages);
	if (!of || !v->stages)
		return LG_E_NOMEM;
	LG_EACH(s, &v->steps[r->step_first], r->n_steps) {
		double ms[LG_STAGE_MAX];
		size_t at = s->slow ? r->n_steps - n_slow - 1 : n;

		if (s->warmup)
			continue;
		stage_times(r, s, ms);
		for (size_t g = 0; g < LG_STAGE_MAX; g++) {
			sum[g] += ms[g];
			total += ms[g];
			of[g * r->n_steps + at] = ms[g];
		}
		*(s->slow ? &n_slow : &n) += 1;
	}
	for (uint32_t g = LG_STAGE_BATCH_WAIT; g < LG_STAGE_MAX; g++) {
		double m = n ? lg_median_f64(of + g * r->n_steps, n) : 0;
		double x = lg_median_f64(of + (g + 1) * r->n_steps - n_slow, n_slow);

		v->stages[v->n_stages++] = (struct lg_stage_sum){
			.stage = lg_stage_name(g),
			.median_ms = m,
			.share = total > 0 ? sum[g] / total : 0,
			.slow_excess_ms = n_slow ? x - m : 0,
		};
	}
	return 0;
}

/* Chains that lead nowhere, where they are a good part of the run: why, and what would tell. */
static void say_open_ends(struct lg_case *c, const struct lg_tally *y)
{
	double wall = (double)y->wall, unknown = (double)y->unknown / wall;
	double net = (double)y->by_end[LG_END_NET] / wall;

	if (net >= LG_N_PATH_OPEN)
		lg_say(c, LG_SAYS_PATH_NETWORK, net * 100);
	if (unknown >= LG_N_PATH_UNJUDGED && c->has_states)
		lg_not_judged(c, lg_text(c, LG_SAYS_PATH_UNSEEN, unknown * 100), NULL);
	if (unknown >= LG_N_PATH_OPEN && c->has_states)
		lg_say(c, LG_SAYS_PATH_UNEXPLAINED, unknown * 100,
		       c->gil_untold ? LG_SAYS_PATH_GIL_UNTOLD : "",
		       c->gil_untold ? LG_SAYS_PATH_ASK_PY_SPY : "");
}

/* Are stages known, and none of them a backward pass, an optimizer or a reduction of gradients? */
static bool is_inference(const struct lg_verdict *v)
{
	bool forward = false, training = false;

	for (size_t i = 0; i < v->n_stages; i++) {
		const char *s = v->stages[i].stage;

		if (!(v->stages[i].share > 0))
			continue;
		forward |= !strcmp(s, lg_stage_name(LG_STAGE_FORWARD));
		training |= !strcmp(s, lg_stage_name(LG_STAGE_BACKWARD)) ||
			    !strcmp(s, lg_stage_name(LG_STAGE_OPTIMIZER)) ||
			    !strcmp(s, lg_stage_name(LG_STAGE_GRAD_SYNC));
	}
	return forward && !training;
}

static void bound(struct lg_case *c, const struct lg_tally *y)
{
	struct lg_verdict *v = c->v;
	int64_t sum[LG_PLACES] = { 0 };
	double wall = (double)y->wall, unknown = (double)y->unknown / wall;
	double of[LG_PLACES] = { 0 }, data, comms, stall;

	for (int end = 0; end < LG_END_MAX; end++)
		sum[lg_end(end)->place] += y->by_end[end];
	for (int k = 0; k < LG_PLACES; k++)
		of[k] = (double)sum[k] / wall;
	data = of[LG_PLACE_DATA];
	comms = of[LG_PLACE_COMMS];
	stall = of[LG_PLACE_STALL];
	v->inference = is_inference(v);
	if (!(wall > 0) || unknown > LG_N_BOUND_UNKNOWN) {
		v->bound = LG_BOUND_UNKNOWN;
		v->bound_confidence = 0;
		v->bound_why = "most of the critical path was not seen";
		return;
	}
	v->bound_why = lg_text(c, LG_SAYS_PATH_BOUND,
			       v->inference ? "inference or evaluation; " : "",
			       of[LG_PLACE_RUN] * 100, stall * 100, data * 100, comms * 100,
			       of[LG_PLACE_ASLEEP] * 100, unknown * 100);
	v->bound_confidence = LG_N_BOUND_SURE - unknown;
	if (data >= LG_N_BOUND_CAUSE && data > comms && data > stall)
		v->bound = LG_BOUND_DATA;
	else if (comms >= LG_N_BOUND_CAUSE && comms > data && comms > stall)
		v->bound = LG_BOUND_COMMS;
	else if (data + comms >= LG_N_BOUND_CAUSE)
		v->bound = LG_BOUND_MIXED;
	else
		v->bound = LG_BOUND_HOST;
}

static bool is_log_step(const struct lg_trace *t, size_t span)
{
	return !strcmp(lg_string(t, t->span.name[span]), "log step");
}

/* Are its steps lines of a log? They tell how long a step took, and nothing of what is in it. */
static bool is_of_log(const struct lg_case *c, const struct lg_rank *r)
{
	for (size_t i = 0; i < r->n_spans; i++)
		if (c->t->span.kind[r->spans[i]] == LG_SPAN_STEP)
			return is_log_step(c->t, r->spans[i]);
	return false;
}

static uint32_t reference_rank(const struct lg_case *c)
{
	uint32_t best = UINT32_MAX;
	int64_t most = -1;
	bool seen = false;

	for (uint32_t i = 0; i < c->n_ranks; i++)
		seen |= c->ranks[i].n_steps && !is_of_log(c, &c->ranks[i]);

	for (uint32_t i = 0; i < c->n_ranks; i++) {
		const struct lg_rank *r = &c->ranks[i];
		size_t matched = 0;
		int64_t excess;

		if (!r->n_steps || (seen && is_of_log(c, r)))
			continue;
		for (size_t k = 0; k < r->n_arrivals; k++)
			matched += r->arrivals[k].late_rank != UINT32_MAX;
		if (matched)
			return i; /* collectives tie the ranks together: any of them will do */
		excess = lg_excess_of(r, c->v->steps);
		if (excess > most) {
			most = excess;
			best = i;
		}
	}
	return best;
}

/* Who was only taken for the training because it is busy, and repeats nothing, is not one of its ranks. */
static uint32_t drop_stepless(struct lg_case *c, uint32_t ref)
{
	uint32_t n = 0, kept = ref;

	for (uint32_t i = 0; i < c->n_ranks; i++) {
		const struct lg_rank *r = &c->ranks[i];
		bool keep = !r->inferred || r->rank >= 0 || r->n_steps;

		c->rank_of_thr[r->thr] = keep ? n + 1 : 0;
		c->rank_of_prc[r->prc] = keep ? n + 1 : 0;
		kept = i == ref ? n : kept;
		if (keep)
			c->ranks[n++] = *r;
	}
	c->n_ranks = n;
	return kept;
}

/* A loop that is seen for an instant shows what it did then, not what it does. */
static void say_short(struct lg_case *c, const struct lg_tally *y)
{
	char wall[LG_MS_TEXT];

	if (lg_gradable(c->v->n_judged, y->wall))
		return;
	lg_say(c, LG_SAYS_STEPS_TOO_SHORT, c->v->n_judged, lg_s(c->v->n_judged),
	       lg_ms_text(lg_ms(y->wall), wall), LG_N_ANY_REPEATS, lg_seconds(LG_N_ANY_GRADED));
}

enum { FEW_WAITS = 12 }; /* of which infer.c could make steps */

/* Nobody marked anything, and the job's own waits do not tell its steps: why, and what would. False: no
 * job was named, or its states are a poll's. */
static bool say_no_repetition(struct lg_case *c)
{
	const struct lg_state_tab *s = &c->t->state;
	const struct lg_rank *r;
	int64_t ran = 0, queued = 0, all = 0;
	size_t waits = 0;

	if (!c->n_ranks || lg_is_polled(c))
		return false;
	r = &c->ranks[0];
	if (!r->inferred || !lg_was_named(c, r->prc))
		return false;
	LG_EACH_ROW(row, r->states, r->n_states) {
		int64_t dur = lg_row_end(c->t, s->ts[row], s->dur[row]) - s->ts[row];

		ran += s->kind[row] == LG_RUNNING ? dur : 0;
		queued += s->kind[row] == LG_RUNNABLE ? dur : 0;
		waits += s->kind[row] == LG_BLOCKED;
		all += dur;
	}
	if (all <= 0)
		return false;
	lg_say(c, LG_SAYS_STEPS_NO_REPETITION, lg_thread_text(c, r->thr), lg_percent(ran, all),
	       lg_seconds(all), lg_percent(queued, all), waits, lg_s(waits),
	       waits < FEW_WAITS ? LG_SAYS_STEPS_HARDLY_WAITS : "those have no rhythm");
	return true;
}

/* Nothing but lines of a log tells of steps. */
static bool are_of_log(const struct lg_case *c)
{
	const struct lg_trace *t = c->t;
	size_t lines = 0;

	for (size_t i = 0; i < t->span.n; i++) {
		if (t->span.kind[i] == LG_SPAN_STAGE)
			return false;
		if (t->span.kind[i] != LG_SPAN_STEP)
			continue;
		if (!is_log_step(t, i))
			return false;
		lines++;
	}
	return lines > 0;
}

/* What is proven of the threads' waits, else what coincides with their stalls. */
static int judge_without_steps(struct lg_case *c)
{
	bool found = false;
	int rc = lg_judge_stepless(c, &found);

	return !rc && c->t->sample.n && !found ? lg_find_foreign(c) : rc;
}

/* A recording that holds nothing, which its importer says. */
static bool is_empty(const struct lg_trace *t)
{
	return !t->sample.n && !t->state.n && !t->span.n && lg_has_diag(t, LG_DIAG_NO_SAMPLES);
}

/* Whose computing in slow steps the step waited for longest, of the job's threads but the ranks' own. 0 =
 * nobody's for most of it. */
static lg_thr who_ran(struct lg_case *c, const struct lg_tally *y)
{
	const struct lg_rank *r = &c->ranks[y->ref];
	const struct lg_step *s = &c->v->steps[r->step_first], *end = s + r->n_steps;
	LG_AUTOFREE int64_t *ran = lg_scratch(c, c->t->thread.n, sizeof *ran);
	lg_thr most = 0;

	if (!ran)
		return 0;
	LG_EACH(p, y->path, y->n_path) {
		while (s < end && s->ts + s->dur <= p->ts)
			s++;
		if (s == end)
			break;
		if (p->ts < s->ts || !s->slow || p->end != LG_END_RUN || c->rank_of_thr[p->thr])
			continue;
		ran[p->thr] += p->dur;
		most = ran[p->thr] > ran[most] ? p->thr : most;
	}
	return ran[most] * 2 > y->own_excess ? most : 0;
}

/* Nobody else's: of ranks that others wait for, straggler() says more. */
static void say_own_doing(struct lg_case *c, const struct lg_tally *y)
{
	bool told = c->n_ranks > 1 && !c->ranks[y->ref].inferred;
	double own;
	lg_thr who;

	if (y->own_excess * 10 <= y->excess || y->excess <= 0)
		return;
	own = c->v->own_share = fmin(1, (double)y->own_excess / (double)y->excess);
	if (told && (y->own_excess - y->straggler.slow_lost) * 10 <= y->excess)
		return;
	who = who_ran(c, y);
	if (told)
		own -= (double)y->straggler.slow_lost / (double)y->excess;
	lg_say(c, LG_SAYS_PATH_OWN_DOING, 100 * own, who ? ", most of it for what " : "",
	       who ? lg_thread_text(c, who) : "", who ? " computed" : "");
}

static int judge(struct lg_case *c)
{
	struct lg_pieces path = { 0 };
	struct lg_tally y;
	uint32_t ref = reference_rank(c);
	int rc;

	if (ref == UINT32_MAX && !c->t->sample.n) {
		rc = lg_steps_of_log(c);
		if (rc > 0)
			lg_say_log_steps(c);
		if (rc > 0 && lg_compare_log_ranks(c))
			rc = LG_E_NOMEM;
		if (rc)
			return rc > 0 ? 0 : rc;
	}
	if (is_empty(c->t))
		c->v->unjudged = "The recording holds no samples";
	if (ref == UINT32_MAX && !c->v->unjudged && !say_no_repetition(c) && !lg_say_untimed_steps(c))
		lg_limit(c, c->has_states && !c->victim_pid ? LG_SAYS_STEPS_NONE_OF_NAMED
			 : LG_SAYS_STEPS_NONE);
	if (ref == UINT32_MAX)
		return judge_without_steps(c);
	if (c->ranks[ref].inferred) {
		lg_limit(c, LG_SAYS_STEPS_INFERRED);
		lg_say_candidates(c, c->ranks[ref].thr, "the one whose slow steps lose the most");
	}
	ref = drop_stepless(c, ref);
	for (size_t i = 0; i + 1 < c->n_ranks; i++)
		if (c->ranks[i].rank >= 0 && c->ranks[i].rank == c->ranks[i + 1].rank) {
			char one[LG_PID_TEXT], other[LG_PID_TEXT];

			lg_say(c, LG_SAYS_STEPS_RANK_TWICE, c->ranks[i].rank,
			       lg_pid_text(c->t->process.pid[c->ranks[i].prc], one),
			       lg_pid_text(c->t->process.pid[c->ranks[i + 1].prc], other));
			break;
		}
	rc = lg_critical_path(c, ref, &path) ?: lg_tally(c, ref, &path, &y) ?: lg_judge_run(c, &y) ?:
	     lg_find_causes(c, &y) ?: stages(c, ref);
	if (!rc) {
		bound(c, &y);
		say_short(c, &y);
		c->v->unexplained_share =
			y.excess > 0 ? 1 - (double)y.explained / (double)y.excess
			: y.wall > 0 ? (double)y.unknown / (double)y.wall
				     : (double)NAN;
		say_open_ends(c, &y);
		lg_judge_fired(c, &y);
		say_own_doing(c, &y);
		if (!c->has_states && are_of_log(c)) {
			rc = lg_compare_log_ranks(c);
			lg_say_log_steps(c);
		} else if (!c->has_states) {
			lg_limit(c, LG_SAYS_STEPS_NO_STATES);
		}
	}
	lg_free(path.v);
	return rc;
}

/* A profiler's trace has no scheduler states: there are no chains to follow, only its stages. */
static int judge_what_there_is(struct lg_case *c)
{
	uint32_t ref;

	if (!lg_gpu_only(c->t))
		return judge(c);
	ref = reference_rank(c);
	return ref != UINT32_MAX ? stages(c, ref) : 0;
}

static uint8_t samples_without_activity(const struct lg_trace *t)
{
	for (size_t i = 0; i < t->sample.n; i++)
		if (!(t->sample.flags[i] & LG_SAMPLE_NO_CPU))
			return LG_SAMPLE_NO_CPU;
	return LG_SAMPLE_OFFCPU;
}

/* Of other hosts, or their files were not given. */
static void say_absent_ranks(struct lg_case *c)
{
	enum { WORLD_MAX = 1 << 24 };
	const struct lg_trace *t = c->t;
	LG_AUTOFREE uint8_t *seen = NULL;
	long long world = 0, n;
	size_t here = 0;

	for (size_t i = 0; i < t->meta.n; i++) {
		const char *key = lg_string(t, t->meta.key[i]);

		n = strcmp(key, "dist.world") && strcmp(key, "distributed.world")
			    ? 0 : strtoll(lg_string(t, t->meta.value[i]), NULL, 10);
		world = LG_MAX(world, n);
	}
	if (world < 2 || world > WORLD_MAX || !(seen = lg_scratch(c, (size_t)world, 1)))
		return;
	for (lg_prc p = 1; p < t->process.n; p++) {
		int32_t rank = t->process.rank[p];

		if (rank < 0 || rank >= world || seen[rank])
			continue;
		seen[rank] = 1;
		here++;
	}
	if (here && (long long)here < world)
		lg_say(c, LG_SAYS_RUN_ABSENT_RANKS, here, world, here == 1 ? "is" : "are");
}

/* Files beside those of the trace may be of the same run, and what they would tell is not known. */
static void say_unread(struct lg_case *c, const struct lg_explain_options *opt)
{
	enum { NAMED = 3 };
	const char *text = "";
	size_t n = opt ? opt->n_unread : 0;

	if (!n)
		return;
	for (size_t i = 0; i < LG_MIN(n, NAMED); i++)
		text = lg_text(c, "%s%s%s", text, i ? "; " : "", opt->unread[i]);
	if (n > NAMED)
		text = lg_text(c, "%s; and %zu more", text, n - NAMED);
	if (opt->n_missed)
		lg_not_judged(c, lg_text(c, LG_SAYS_RUN_UNREAD, opt->n_missed, lg_s(opt->n_missed)), NULL);
	lg_say(c, LG_SAYS_RUN_LEFT, n, lg_s(n), text);
}

static void conclude(struct lg_case *c)
{
	struct lg_verdict *v = c->v;

	if (lg_has_diag(c->t, LG_DIAG_OTHER_TIME))
		lg_not_judged(c, LG_SAYS_RUN_CHANGED, NULL);
	if (v->n_judged && !c->has_states && v->bound <= LG_BOUND_UNKNOWN)
		lg_not_judged(c, LG_SAYS_RUN_WAITS_UNTOLD, NULL);
	say_absent_ranks(c);
	if (c->n_findings_left_out)
		lg_say(c, LG_SAYS_RUN_LEFT_OUT, c->n_findings_left_out);
	lg_findings_calibrate(v);
	lg_findings_rank(v);
	lg_tell_profiled(c);
	lg_fired_findings(c);
	limits_from_diag(c);
}

/* All that may fail here is memory. */
static int explain(struct lg_case *c)
{
	static int (*const questions[])(struct lg_case *c) = {
		lg_note_fired, lg_waits_new, lg_find_steps, lg_locks_new, lg_match_collectives,
		lg_find_gil_waits, lg_account_gil, lg_find_chores, lg_account, judge_what_there_is,
		lg_ask_finders,
	};
	int rc = 0;

	for (size_t i = 0; !rc && i < sizeof questions / sizeof *questions; i++)
		rc = questions[i](c);
	if (!rc)
		conclude(c);
	return rc ?: c->v->arena.failed || c->failed ? LG_E_NOMEM : 0;
}

static bool is_there(const struct lg_trace *t, int32_t pid)
{
	for (lg_prc p = 1; p < t->process.n; p++)
		if (t->process.pid[p] == pid)
			return true;
	return false;
}

int lg_explain(const struct lg_trace *t, const struct lg_explain_options *opt,
	       struct lg_verdict **ret, struct lg_error *err)
{
	struct lg_case c = { .t = t, .victim_pid = opt ? opt->victim_pid : 0 };
	struct lg_verdict *v = lg_calloc(1, sizeof *v);
	int rc;

	if (!v)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	c.v = v;
	v->trace = t;
	v->cut = lg_has_diag(t, LG_DIAG_FILE_TRUNCATED);
	v->min_ms = v->median_ms = v->p99_ms = v->max_ms = v->slow_threshold_ms = NAN;
	v->period_s = v->period_p = v->shift_s = NAN;
	v->unexplained_share = NAN;
	v->hang.since_s = NAN;
	v->bound_confidence = NAN;
	v->findings = lg_arena_alloc(&v->arena, LG_FINDINGS_MAX, sizeof *v->findings);
	c.has_states = t->state.n > 0;
	rc = lg_index_new(&v->index, t, err);
	c.idx = v->index;
	c.scene = (struct lg_scene){ .t = t, .idx = v->index, .arena = &v->arena,
				     .no_activity = samples_without_activity(t) };
	if (!rc && c.victim_pid && !is_there(t, c.victim_pid)) {
		rc = lg_fail(err, LG_E_NOTFOUND, LG_NO_OFFSET, "there is no process with pid %d in this input",
			     c.victim_pid);
	} else if (!rc) {
		say_unread(&c, opt);
		rc = v->findings ? explain(&c) : LG_E_NOMEM;
		if (rc)
			lg_fail(err, rc, LG_NO_OFFSET, "out of memory");
	}
	lg_locks_free(c.locks);
	lg_waits_free(c.waits);
	if (rc)
		lg_verdict_free(v);
	else
		*ret = v;
	return rc;
}
