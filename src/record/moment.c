/* SPDX-License-Identifier: Apache-2.0 */
#include "record/moment.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/each.h"
#include "base/median.h"
#include "base/order.h"
#include "base/words.h"

#define SECOND INT64_C(1000000000)
#define AFTER SECOND                /* of what follows is in the file */
#define PAUSE_LEAST (10 * SECOND)
#define OPEN_MOST (30 * SECOND)     /* a step that does not end is not waited for longer */
#define SIDE_MOST (600 * SECOND)    /* a save that takes longer hangs as well */
#define LONGER_LEAST INT64_C(1000000)
#define BEFORE_LEAST (10 * SECOND)

enum {
	WARM_UP = 10,
	USUAL = 64,        /* steps that the median is of */
	USUAL_LEAST = 16,
	ANEW = 16,         /* long ones in a row: the loop has changed */
	LONG_KEPT = 8,
	PAUSE_STEPS = 20,
	BEFORE_STEPS = 100,
	IDS_MAX = 65536,
};

static const double SIGMAS = 6;
static const double SIGMA_OF_MAD = 1.4826; /* of a normal distribution */
static const double LONG = 1.5;            /* from there on a step is kept out of the usual */
static const double AS_EVER = 2;           /* of those that recur, for a trigger that names a time */
static const double REARM = 0.05;

struct past {
	int64_t number, net;
};

/* One process that marks steps. */
struct loop {
	int32_t pid, rank;
	uint64_t n_steps;
	int64_t end;            /* of the last step; where the one under way began. INT64_MIN = not known */
	int64_t number;         /* of the last step */
	int64_t marked;         /* the last mark */
	int64_t side_since, side_ns; /* INT64_MIN = in none; in the step under way before that */
	unsigned side_depth;
	int64_t usual[USUAL], anew[ANEW];
	size_t n_usual, at_usual, n_anew;
	int64_t median, least_long; /* of usual[], as of the last step */
	struct past past[LONG_KEPT]; /* long steps, the oldest first */
	size_t n_past;
	uint32_t over;          /* bit i: trigger i was true of the last step */
	bool told_open, told_still;
};

struct lg_moments {
	const struct lg_trigger *trigger;
	size_t n_triggers;
	int64_t ring_ns;
	double longest;         /* least `times` of the triggers, or LONG: what counts as long */
	struct loop **loop;
	size_t n_loops, cap_loops;
	uint64_t n_steps;
	bool rss_over;
	/* What fired and is not written yet. */
	bool fired;
	struct lg_moment next;
	int64_t fired_at, usual, net;
	uint32_t fired_id;
	unsigned others;        /* ranks with the same */
	int64_t quiet_until;
};

int lg_moments_new(struct lg_moments **ret, const struct lg_trigger *t, size_t n, int64_t ring_ns,
		   struct lg_error *err)
{
	struct lg_moments *m = lg_calloc(1, sizeof *m);

	if (!m)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	m->trigger = t;
	m->n_triggers = n;
	m->ring_ns = ring_ns;
	m->longest = LONG;
	m->quiet_until = INT64_MIN;
	LG_EACH(k, t, n)
		if (k->kind == LG_TRIGGER_USUAL && k->times < m->longest)
			m->longest = k->times;
	*ret = m;
	return 0;
}

void lg_moments_free(struct lg_moments *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->n_loops; i++)
		lg_free(m->loop[i]);
	lg_free(m->loop);
	lg_free(m);
}

/* NULL: without memory, or not one that was told of. */
static struct loop *loop_of(struct lg_moments *m, uint32_t id)
{
	return id < m->n_loops ? m->loop[id] : NULL;
}

void lg_moments_who(struct lg_moments *m, uint32_t id, int32_t pid, int32_t rank)
{
	struct loop *l;

	if (id >= IDS_MAX)
		return;
	if (id >= m->n_loops) {
		if (lg_grow(&m->loop, &m->cap_loops, (size_t)id + 1, sizeof(struct loop *)))
			return;
		for (; m->n_loops <= id; m->n_loops++)
			m->loop[m->n_loops] = NULL;
	}
	l = m->loop[id];
	if (!l) {
		l = m->loop[id] = lg_calloc(1, sizeof *l);
		if (!l)
			return;
		l->end = l->marked = l->side_since = INT64_MIN;
	}
	l->pid = pid;
	l->rank = rank;
}

void lg_moments_gone(struct lg_moments *m, uint32_t id)
{
	if (id >= m->n_loops)
		return;
	lg_free(m->loop[id]);
	m->loop[id] = NULL;
}

void lg_moments_mark(struct lg_moments *m, uint32_t id, int64_t ts)
{
	struct loop *l = loop_of(m, id);

	if (!l)
		return;
	l->marked = LG_MAX(l->marked, ts);
	l->told_still = false;
}

void lg_moments_side(struct lg_moments *m, uint32_t id, int64_t ts, bool begins)
{
	struct loop *l = loop_of(m, id);

	if (!l)
		return;
	lg_moments_mark(m, id, ts);
	if (begins && !l->side_depth++)
		l->side_since = ts;
	if (begins || !l->side_depth || --l->side_depth)
		return;
	l->side_ns += LG_MAX(0, ts - LG_MAX(l->side_since, l->end));
	l->side_since = INT64_MIN;
}

void lg_moments_lost(struct lg_moments *m, uint32_t id, int64_t ts)
{
	struct loop *l = loop_of(m, id);

	if (!l)
		return;
	lg_moments_mark(m, id, ts);
	l->end = l->side_since = INT64_MIN;
	l->side_ns = 0;
	l->side_depth = 0;
}

/* How much of the step under way is side work, until then. */
static int64_t side_until(const struct loop *l, int64_t ts)
{
	return l->side_ns + (l->side_since == INT64_MIN ? 0 : LG_MAX(0, ts - LG_MAX(l->side_since, l->end)));
}

/* The median of the usual steps, and from where on one is out of their ordinary spread. */
static void measure(struct lg_moments *m, struct loop *l)
{
	int64_t v[USUAL];

	memcpy(v, l->usual, l->n_usual * sizeof *v);
	l->median = lg_select_i64(v, l->n_usual, l->n_usual / 2);
	for (size_t i = 0; i < l->n_usual; i++)
		v[i] = v[i] > l->median ? v[i] - l->median : l->median - v[i];
	l->least_long = l->median + LG_MAX(LONGER_LEAST,
		(int64_t)(SIGMAS * SIGMA_OF_MAD * (double)lg_select_i64(v, l->n_usual, l->n_usual / 2)));
	l->least_long = LG_MAX(l->least_long, (int64_t)(m->longest * (double)l->median));
}

static bool is_known(const struct loop *l)
{
	return l->n_usual >= USUAL_LEAST;
}

static const struct past *past_at(const struct loop *l, int64_t number)
{
	for (size_t i = 0; i < l->n_past; i++)
		if (l->past[i].number == number)
			return &l->past[i];
	return NULL;
}

/* What the three before it took, of long steps that come each so many; 0 = it is none of such a row. */
static int64_t recurs(const struct loop *l, int64_t number)
{
	for (size_t i = l->n_past; i-- > 0;) {
		int64_t every = number - l->past[i].number;
		const struct past *b = every > 1 ? past_at(l, number - 2 * every) : NULL;
		const struct past *a = b ? past_at(l, number - 3 * every) : NULL;
		int64_t v[3];

		if (!a)
			continue;
		v[0] = a->net;
		v[1] = b->net;
		v[2] = l->past[i].net;
		return lg_median_i64(v, 3);
	}
	return 0;
}

static void remember_long(struct loop *l, int64_t number, int64_t net)
{
	if (l->n_past == LONG_KEPT)
		memmove(l->past, l->past + 1, --l->n_past * sizeof *l->past);
	l->past[l->n_past++] = (struct past){ number, net };
}

static void remember_usual(struct loop *l, int64_t net)
{
	l->usual[l->at_usual] = net;
	l->at_usual = (l->at_usual + 1) % USUAL;
	l->n_usual = LG_MIN(l->n_usual + 1, (size_t)USUAL);
}

/* A long step is not usual, unless there are none but long ones any more. */
static void keep_long(struct loop *l, int64_t net)
{
	l->anew[l->n_anew++] = net;
	if (l->n_anew < ANEW)
		return;
	memcpy(l->usual, l->anew, sizeof l->anew);
	l->n_usual = l->at_usual = ANEW;
	l->n_anew = 0;
	l->n_past = 0;
}

static const char *who(const struct loop *l, char *buf, size_t size)
{
	if (l->rank >= 0)
		snprintf(buf, size, "rank %d", (int)l->rank);
	else
		snprintf(buf, size, "process %d", (int)l->pid);
	return buf;
}

/* Said of a step, ended or not. net: without its side work. */
static void say_step(const struct loop *l, const struct lg_trigger *t, int64_t net, int64_t usual,
		     int64_t side, bool open, struct lg_moment *ret)
{
	char took[LG_MS_TEXT], than[LG_MS_TEXT], also[LG_MS_TEXT], name[32], compared[96] = "", saving[64] = "";

	lg_ms_text((double)net / 1e6, took);
	if (t->kind == LG_TRIGGER_USUAL)
		snprintf(compared, sizeof compared, ", %.1f times the usual %s", (double)net / (double)usual,
			 lg_ms_text((double)usual / 1e6, than));
	else if (usual)
		snprintf(compared, sizeof compared, ", usually %s", lg_ms_text((double)usual / 1e6, than));
	if (side)
		snprintf(saving, sizeof saving, ", beside %s of side work",
			 lg_ms_text((double)side / 1e6, also));
	who(l, name, sizeof name);
	if (open)
		snprintf(ret->why, sizeof ret->why, "step %" PRId64 " of %s has not ended after %s%s%s",
			 ret->step, name, took, compared, saving);
	else
		snprintf(ret->why, sizeof ret->why, "step %" PRId64 " of %s took %s%s%s", ret->step, name, took,
			 compared, saving);
}

/* All that are late together are one; the latest of them gives it its name. */
static bool is_next(struct lg_moments *m, uint32_t id, int64_t ts, int64_t net)
{
	if (m->fired) {
		if (id != m->fired_id && m->next.kind <= LG_TRIGGER_STEP && ts < m->next.ts + m->next.dur) {
			m->others++;
			return net > m->net;
		}
		return false;
	}
	return ts + net > m->quiet_until;
}

static void fire(struct lg_moments *m, uint32_t id, const struct lg_moment *what, int64_t at, int64_t usual,
		 int64_t net)
{
	if (!m->fired) {
		m->fired_at = at;
		m->others = 0;
	}
	m->fired = true;
	m->next = *what;
	m->fired_id = id;
	m->usual = usual;
	m->net = net;
}

static void fire_step(struct lg_moments *m, uint32_t id, const struct lg_trigger *t, int64_t ts, int64_t dur,
		      int64_t usual, int64_t side, bool open)
{
	const struct loop *l = m->loop[id];
	struct lg_moment what = { .kind = t->kind, .what = t->text, .ts = ts, .dur = dur, .pid = l->pid,
				  .rank = l->rank, .step = open ? l->number + 1 : l->number };

	if (!is_next(m, id, ts, dur - side))
		return;
	/* As many as it takes to know the usual, or more: findings are graded by their share of the file. */
	what.need_ns = LG_MAX(BEFORE_LEAST, 2 * dur);
	if (usual < INT64_MAX / BEFORE_STEPS)
		what.need_ns = LG_MAX(what.need_ns, BEFORE_STEPS * usual);
	say_step(l, t, dur - side, usual, side, open, &what);
	fire(m, id, &what, ts + dur, usual, dur - side);
}

static void judge(struct lg_moments *m, uint32_t id, int64_t ts, int64_t dur, int64_t side, int64_t as_ever)
{
	struct loop *l = m->loop[id];
	int64_t net = dur - side, usual = is_known(l) ? l->median : 0;
	uint32_t was = l->over;

	l->over = 0;
	for (size_t i = 0; i < m->n_triggers; i++) {
		const struct lg_trigger *t = &m->trigger[i];
		int64_t than = as_ever ? as_ever : usual;
		bool over = t->kind == LG_TRIGGER_USUAL
				    ? usual && net > l->least_long && (double)net > t->times * (double)than
				    : t->kind == LG_TRIGGER_STEP && net > t->ns &&
					      !(as_ever && (double)net <= AS_EVER * (double)as_ever);

		if (!over)
			continue;
		l->over |= UINT32_C(1) << i;
		if (!(was >> i & 1) && !l->told_open)
			fire_step(m, id, t, ts, dur, than, side, false);
	}
}

void lg_moments_step(struct lg_moments *m, uint32_t id, int64_t number, int64_t ts, int64_t dur)
{
	struct loop *l = loop_of(m, id);
	int64_t side, net, as_ever = 0;
	bool is_long, whole;

	if (!l || dur < 0)
		return;
	lg_moments_mark(m, id, ts + dur);
	whole = l->end == ts; /* else it is not known how much of it was side work */
	side = LG_MIN(side_until(l, ts + dur), dur);
	net = dur - side;
	l->number = number;
	l->end = ts + dur;
	l->side_ns = 0;
	m->n_steps++;
	if (++l->n_steps <= WARM_UP || !whole)
		return;
	is_long = is_known(l) && net > l->least_long;
	if (is_long && !l->n_anew)
		as_ever = recurs(l, number);
	judge(m, id, ts, dur, side, as_ever);
	l->told_open = false;
	if (is_long) {
		remember_long(l, number, net);
		keep_long(l, net);
	} else {
		l->n_anew = 0;
		remember_usual(l, net);
	}
	if (l->n_usual)
		measure(m, l);
}

void lg_moments_memory(struct lg_moments *m, int64_t now, double share, const char *of_what)
{
	bool over = false, below = true;

	for (size_t i = 0; i < m->n_triggers; i++) {
		const struct lg_trigger *t = &m->trigger[i];
		struct lg_moment what = { .kind = t->kind, .what = t->text, .ts = now, .need_ns = INT64_MAX,
					  .pid = -1, .rank = -1, .step = -1 };

		if (t->kind != LG_TRIGGER_RSS)
			continue;
		below &= share < t->share - REARM;
		if (!(share > t->share) || over)
			continue;
		over = true;
		if (m->rss_over || m->fired)
			continue;
		snprintf(what.why, sizeof what.why, "%.0f %% of %s is in use", 100 * share, of_what);
		fire(m, UINT32_MAX, &what, now, 0, 0);
		m->rss_over = true;
	}
	if (below)
		m->rss_over = false;
}

/* Does any process save? Then others may wait for it. */
static bool anyone_saves(const struct lg_moments *m, int64_t now)
{
	for (size_t i = 0; i < m->n_loops; i++) {
		const struct loop *l = m->loop[i];

		if (l && l->side_since != INT64_MIN && now - l->side_since < SIDE_MOST)
			return true;
	}
	return false;
}

/* Those that stand, of those that train. ret_first: which has stood longest. */
static unsigned standing(const struct lg_moments *m, int64_t now, int64_t since, uint32_t *ret_first,
			 bool *ret_told)
{
	int64_t first = INT64_MAX;
	unsigned n = 0;

	*ret_told = false;
	for (size_t i = 0; i < m->n_loops; i++) {
		const struct loop *l = m->loop[i];

		if (!l || !l->n_steps || now - l->marked <= since)
			continue;
		n++;
		*ret_told |= l->told_still;
		if (l->marked < first) {
			first = l->marked;
			*ret_first = (uint32_t)i;
		}
	}
	return n;
}

static void look_for_hang(struct lg_moments *m, const struct lg_trigger *t, int64_t now)
{
	struct lg_moment what = { .kind = t->kind, .what = t->text, .need_ns = INT64_MAX };
	char name[32], still[LG_MS_TEXT], others[64] = "";
	const struct loop *l;
	uint32_t id = 0;
	bool told;
	unsigned n = standing(m, now, t->ns, &id, &told);

	if (!n || told || m->fired || anyone_saves(m, now))
		return;
	l = m->loop[id];
	what.ts = l->marked;
	what.dur = now - l->marked;
	what.pid = l->pid;
	what.rank = l->rank;
	what.step = l->number + 1;
	if (n > 1)
		snprintf(others, sizeof others, ", and %u more stand%s", n - 1, n == 2 ? "s" : "");
	snprintf(what.why, sizeof what.why, "%s has marked nothing for %s, in step %" PRId64 "%s",
		 who(l, name, sizeof name), lg_ms_text((double)what.dur / 1e6, still), what.step, others);
	fire(m, id, &what, now, 0, what.dur);
	for (size_t i = 0; i < m->n_loops; i++)
		if (m->loop[i])
			m->loop[i]->told_still = true;
}

/* A step that does not end must be told of before what led to it has left the ring. */
static void look_at_open(struct lg_moments *m, const struct lg_trigger *t, int64_t now)
{
	int64_t hold = LG_MIN(OPEN_MOST, m->ring_ns / 2);

	for (size_t i = 0; i < m->n_loops; i++) {
		struct loop *l = m->loop[i];
		int64_t net, side;
		bool over;

		if (!l || l->end == INT64_MIN || l->n_steps <= WARM_UP || l->told_open ||
		    now - l->marked < hold || l->side_since != INT64_MIN)
			continue;
		side = side_until(l, now);
		net = now - l->end - side;
		over = t->kind == LG_TRIGGER_USUAL ? is_known(l) && net > l->least_long &&
							     (double)net > t->times * (double)l->median
						   : net > t->ns;
		if (!over)
			continue;
		fire_step(m, (uint32_t)i, t, l->end, now - l->end, is_known(l) ? l->median : 0, side, true);
		l->told_open = true;
	}
}

uint64_t lg_moments_steps(const struct lg_moments *m)
{
	return m->n_steps;
}

bool lg_moments_due(struct lg_moments *m, int64_t now, struct lg_moment *ret)
{
	char also[64];
	int64_t pause;

	LG_EACH(t, m->trigger, m->n_triggers)
		switch (t->kind) {
		case LG_TRIGGER_USUAL:
		case LG_TRIGGER_STEP:
			look_at_open(m, t, now);
			break;
		case LG_TRIGGER_HANG:
			look_for_hang(m, t, now);
			break;
		default:
			break;
		}
	if (!m->fired || now < m->fired_at + AFTER)
		return false;
	*ret = m->next;
	if (m->others) {
		snprintf(also, sizeof also, "; %u other rank%s late with it", m->others,
			 m->others == 1 ? " was" : "s were");
		strncat(ret->why, also, sizeof ret->why - strlen(ret->why) - 1);
	}
	pause = m->usual < INT64_MAX / PAUSE_STEPS ? m->usual * PAUSE_STEPS : INT64_MAX;
	pause = LG_MAX(LG_MIN(pause, m->ring_ns), PAUSE_LEAST);
	m->quiet_until = m->fired_at + pause;
	m->fired = false;
	return true;
}
