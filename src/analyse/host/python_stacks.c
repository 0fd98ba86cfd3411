/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python_stacks.c - profiles and dumps of Python stacks (py-spy, austin): where the main threads stand.
 *
 * Such a profile samples wall time, so the share of a main thread's samples inside the loader is the share
 * of its time that it waited for data. It has no steps and, folded, no times. Frames are told by torch's own
 * files (FRAME rows of rules/names.def), never by a program's.
 *
 * A dump is one moment: it says where everybody stood, and no more.
 */
#include <math.h>
#include <stdio.h>

#include "analyse/finders.h"
#include "analyse/chains/culprit.h"
#include "base/map.h"
#include "rules/device_names.h"

/* What stands anywhere in a stack. */
enum {
	IS_PYTHON = 1,
	IN_LOADER = 2,
	IN_QUEUE = 4,   /* waits for a worker's batch */
	IN_START = 8,   /* starts workers */
	IN_FETCH = 16,  /* the dataset and its transforms */
	IN_WORKER = 32, /* this is a worker */
	IN_COMM = 64,
	IN_SAVE = 128,
	BESIDE = 256    /* a thread that Python's threading started */
};

#define ONE_START 0.2
enum { SAMPLES_MIN = 100 };     /* of a profile without times: a second of py-spy's usual 100 Hz */
enum { DUMP_IS_PROFILE = 20 };  /* so many dumps of one process are a profile, too */

/* One process of the profile. */
struct side {
	uint64_t all, loader, queue, start, fetch, comm, save; /* weights of its main thread's samples */
	uint64_t n;             /* rows */
	size_t waits;           /* separate stretches in the loader */
	int64_t first, last;    /* of rows with times */
	lg_thr main;
	lg_stk dumped;          /* stack of the first dump */
	bool named, in_loader, worker, timed, dump;
};

struct stacks {
	struct lg_case *c;
	uint16_t *is;      /* by stack */
	struct side *side; /* by process */
	uint64_t worker_all, worker_fetch; /* samples of workers, and those in the dataset's code */
	bool waits;        /* some thread is seen that waits: idle ones were not left out */
};

static bool ends(const char *s, const char *with)
{
	size_t n = strlen(s), k = strlen(with);

	return n >= k && !strcmp(s + n - k, with) && (n == k || s[n - k - 1] == '/');
}

static uint16_t what_is(const struct lg_trace *t, lg_frm f)
{
	static const struct {
		const char *file, *function;
		uint16_t is;
	} rows[] = {
#define FRAME(file, function, is) { file, function, is },
#include "rules/names.def"
	};
	const char *name = lg_string(t, t->frame.name[f]), *file = lg_string(t, t->frame.file[f]), *dot;

	if (t->frame.kind[f] != LG_FRAME_PYTHON)
		return 0;
	dot = strrchr(name, '.'); /* with the class before it where a profiler prints qualified names */
	name = dot ? dot + 1 : name;
	if (!strcmp(name, "<module>"))
		return IS_PYTHON; /* the file is imported: what it is for does not happen yet */
	LG_EACH(x, rows, LG_COUNT(rows))
		if (ends(file, x->file) && (!x->function || !strcmp(name, x->function)))
			return IS_PYTHON | x->is;
	return IS_PYTHON;
}

static bool is_wait(const struct lg_trace *t, lg_stk k)
{
	return k && lg_on_list(LG_LIST_PYTHON_WAITS, lg_stack_file(t, k));
}

/* Rows of profilers of Python: 0, 1 = a profile without times, 2 = with, 3 = a dump. */
static int row_kind(const struct lg_trace *t, lg_str event)
{
	const char *s = lg_string(t, event);

	return !strcmp(s, "samples") ? 1 : !strcmp(s, "py-spy") ? 2 : !strcmp(s, "py-spy dump") ? 3 : 0;
}

static void read_stacks(struct stacks *s)
{
	const struct lg_trace *t = s->c->t;

	for (lg_stk k = 1; k < t->stack.n; k++) /* a parent is older than its child */
		s->is[k] = (uint16_t)(s->is[t->stack.parent[k]] |
				      what_is(t, t->stack.frame[k]));
	for (lg_thr i = 1; i < t->thread.n; i++)
		s->side[t->thread.prc[i]].named |= !strcmp(lg_string(t, t->thread.comm[i]), "MainThread");
	for (size_t i = 0; i < t->sample.n; i++)
		if (row_kind(t, t->sample.event[i]) && (s->is[t->sample.stack[i]] & IN_WORKER))
			s->side[t->thread.prc[t->sample.thr[i]]].worker = true;
}

/* Is it a sample of the thread that trains? */
static bool of_main(const struct stacks *s, size_t i)
{
	const struct lg_trace *t = s->c->t;
	const struct side *p = &s->side[t->thread.prc[t->sample.thr[i]]];

	if (p->worker || !(s->is[t->sample.stack[i]] & IS_PYTHON))
		return false;
	if (p->named)
		return !strcmp(lg_string(t, t->thread.comm[t->sample.thr[i]]), "MainThread");
	return !(s->is[t->sample.stack[i]] & BESIDE);
}

static void add_up(struct stacks *s)
{
	const struct lg_trace *t = s->c->t;

	for (size_t i = 0; i < t->sample.n; i++) {
		int kind = row_kind(t, t->sample.event[i]);
		struct side *p = &s->side[t->thread.prc[t->sample.thr[i]]];
		uint64_t w = t->sample.weight[i];
		uint16_t is = s->is[t->sample.stack[i]];

		if (!kind)
			continue;
		s->waits = s->waits || (is & (IN_QUEUE | IN_COMM)) || is_wait(t, t->sample.stack[i]);
		if (is & IN_WORKER) {
			s->worker_all += w;
			s->worker_fetch += is & IN_FETCH ? w : 0;
		}
		if (!of_main(s, i))
			continue;
		if (!p->n++) {
			p->main = t->sample.thr[i];
			p->first = t->sample.ts[i];
			p->dumped = t->sample.stack[i];
		}
		p->timed = kind == 2;
		p->dump = kind == 3;
		p->last = t->sample.ts[i] + (kind == 2 && w < INT64_MAX / 4 ? (int64_t)w : 0);
		p->waits += (is & IN_LOADER) && !p->in_loader;
		p->in_loader = is & IN_LOADER;
		p->all += w;
		p->loader += is & IN_LOADER ? w : 0;
		p->queue += is & IN_QUEUE ? w : 0;
		p->start += is & IN_START ? w : 0;
		p->fetch += (is & IN_LOADER) && (is & IN_FETCH) ? w : 0;
		p->comm += (is & IN_COMM) && !(is & IN_LOADER) ? w : 0;
		p->save += is & IN_SAVE ? w : 0;
	}
}

/* The innermost function with most of the weight, in stacks that have all of want; its share of theirs. */
static const char *hottest(const struct stacks *s, lg_prc of, bool workers, uint16_t want, double *ret_share)
{
	const struct lg_trace *t = s->c->t;
	LG_AUTOFREE uint64_t *by_frame = lg_scratch(s->c, t->frame.n + 1, sizeof *by_frame);
	uint64_t all = 0;
	struct lg_map first = { 0 }; /* name and file -> frame: lines of one function are one */
	lg_frm best = 0;

	*ret_share = 0;
	for (size_t i = 0; by_frame && i < t->sample.n; i++) {
		lg_stk k = t->sample.stack[i];
		lg_frm f = k ? t->stack.frame[k] : 0;
		uint64_t key = (uint64_t)t->frame.name[f] << 32 | t->frame.file[f];

		if (!row_kind(t, t->sample.event[i]) || (s->is[k] & want) != want || !f ||
		    (workers ? !(s->is[k] & IN_WORKER)
			     : t->thread.prc[t->sample.thr[i]] != of || !of_main(s, i)))
			continue;
		if (lg_map_get(&first, key))
			f = lg_map_get(&first, key);
		else if (lg_map_set(&first, key, f))
			s->c->failed = LG_E_NOMEM;
		by_frame[f] += t->sample.weight[i];
		all += t->sample.weight[i];
		best = by_frame[f] > by_frame[best] ? f : best;
	}
	lg_map_done(&first);
	if (!best)
		return NULL;
	*ret_share = (double)by_frame[best] / (double)all;
	return lg_text(s->c, "%s (%s)", lg_string(t, t->frame.name[best]), lg_string(t, t->frame.file[best]));
}

/* Wall time of the profile that the side was seen in, as weight. */
static double whole(const struct side *p)
{
	double all = (double)p->all, span = (double)p->last - (double)p->first;

	return p->timed && span > all ? span : all;
}

static void tell_workers(struct stacks *s, struct lg_finding *f)
{
	struct lg_case *c = s->c;
	double busy, of;
	const char *hot;

	if (!s->worker_all) {
		lg_evidence(c, f, LG_SAYS_DATA_LOADER_WAIT_NO_WORKERS_SEEN);
		return;
	}
	busy = (double)s->worker_fetch / (double)s->worker_all;
	hot = hottest(s, 0, true, IN_FETCH, &of);
	lg_evidence(c, f, LG_SAYS_DATA_LOADER_WAIT_IN_DATASET, busy * 100,
		    hot ? ", most of them in " : "", hot ?: "",
		    hot ? lg_text(c, " (%.0f %% of those)", of * 100) : "");
	if (busy < 0.5 || !hot)
		return;
	f->detail = lg_on_list(LG_LIST_PYTHON_READS, hot) ? "io" : "transform";
	f->culprit.function = hot;
	lg_title(c, f, "%s: the workers are busy in %s", f->title, hot);
}

static const char *who(struct stacks *s, lg_prc p)
{
	const struct lg_trace *t = s->c->t;

	if (t->process.rank[p] >= 0)
		return lg_text(s->c, "rank %d", t->process.rank[p]);
	return lg_text(s->c, "pid %d", t->process.pid[p]);
}

/* Its main thread; with a name where there are several. */
static const char *main_of(struct stacks *s, lg_prc prc)
{
	const struct lg_process_tab *p = &s->c->t->process;
	size_t n = 0;

	for (lg_prc k = 1; k < p->n; k++)
		n += s->side[k].n > 0;
	if (n < 2 || (p->rank[prc] < 0 && p->pid[prc] <= 0))
		return "the main thread";
	return lg_text(s->c, "the main thread of %s", who(s, prc));
}

/* Of the main thread that spends ns, such a share of its time, in that. */
static struct lg_finding *finding_of(struct lg_case *c, const struct side *p, enum lg_rule_id rule,
				     uint32_t stage, uint64_t ns, double share, double confidence)
{
	struct lg_finding *f = lg_finding_about(c, rule, stage, LG_RELATION_SELF, confidence);

	lg_culprit_identify(c, f, p->main, p->main);
	f->lost_ms = p->timed ? lg_ms(ns) : (double)NAN;
	f->lost_share = share;
	lg_grade(f, 0, 0);
	return f;
}

/* p: the main thread that waits most. */
static void loader(struct stacks *s, lg_prc prc)
{
	struct lg_case *c = s->c;
	const struct side *p = &s->side[prc];
	double share = (double)p->loader / whole(p), of;
	bool single = !p->queue && p->fetch * 2 > p->loader;
	/* Without times, the one start of workers that every run has looks as one in every epoch does. */
	bool starts = !single && p->start * 2 > p->loader;
	bool steady = p->timed ? lg_gradable(p->waits, (int64_t)fmin(whole(p), 9e18))
			       : p->all >= SAMPLES_MIN && !(starts && share < ONE_START);
	struct lg_finding *f;

	if (share < LG_N_DATA_LOADER_WAIT_STACKS || lg_is_told(c, LG_R_DATA_LOADER_WAIT))
		return;
	f = finding_of(c, p, LG_R_DATA_LOADER_WAIT, LG_STAGE_BATCH_WAIT, p->loader, share, 0.8);
	if (steady)
		lg_grade_steady(f);
	for (lg_prc k = 1; k < c->t->process.n; k++) {
		const struct side *o = &s->side[k];

		if (o->n && (double)o->loader >= LG_N_DATA_LOADER_WAIT_STACKS * whole(o))
			lg_victim_add(c, f, c->t->process.n, c->t->process.rank[k], k, o->main);
	}
	lg_title(c, f, LG_SAYS_DATA_LOADER_WAIT_OF_STACKS, main_of(s, prc), share * 100,
		 p->timed ? "time" : "samples");
	lg_evidence(c, f, LG_SAYS_DATA_LOADER_WAIT_IN_LOADER, lg_percent(p->loader, p->all),
		    lg_percent(p->queue, p->all), lg_percent(p->fetch, p->all),
		    lg_percent(p->comm, p->all),
		    (unsigned long long)(p->timed ? p->loader / 1000000 : p->loader),
		    (unsigned long long)(p->timed ? p->all / 1000000 : p->all),
		    p->timed ? " ms" : " samples");
	if (single) {
		f->detail = "workers_zero";
		f->culprit.function = hottest(s, prc, false, IN_LOADER | IN_FETCH, &of);
		lg_title(c, f, LG_SAYS_DATA_LOADER_WAIT_SINGLE, f->title,
			 f->culprit.function ? ", in " : "",
			 f->culprit.function ? f->culprit.function : "");
	} else if (starts) {
		f->detail = "respawn";
		lg_title(c, f, LG_SAYS_DATA_LOADER_WAIT_STARTS, f->title,
			 lg_percent(p->start, p->loader));
	} else {
		tell_workers(s, f);
	}
	lg_evidence_against(c, f, LG_SAYS_DATA_LOADER_WAIT_DEVICE_UNSEEN);
	if (!p->timed)
		lg_evidence_against(c, f, LG_SAYS_DATA_LOADER_WAIT_UNTIMED);
	lg_bound_by_data(c, share, lg_text(c, LG_SAYS_DATA_LOADER_WAIT_BOUND_BY_STACKS,
			 share * 100));
}

static void save(struct stacks *s, lg_prc prc)
{
	struct lg_case *c = s->c;
	const struct side *p = &s->side[prc];
	double share = (double)p->save / whole(p);
	struct lg_finding *f;

	/* Without times one save at the end is as good as one in every tenth step. */
	if (!p->timed || share < LG_N_SIDE_CHECKPOINT_STACKS)
		return;
	f = finding_of(c, p, LG_R_SIDE_CHECKPOINT, LG_STAGE_SIDE, p->save, share, 0.75);
	lg_title(c, f, LG_SAYS_SIDE_CHECKPOINT_OF_STACKS, main_of(s, prc), share * 100);
	lg_evidence(c, f, "%.1f ms of %.1f ms of its samples", lg_ms(p->save), whole(p) / 1e6);
}

/* Torch's function of that kind, else the innermost one, of a dumped main thread. */
static const char *stands_in(struct stacks *s, const struct side *p, uint16_t of)
{
	const struct lg_trace *t = s->c->t;
	char text[300] = "no Python frame";
	lg_frm f = 0;

	for (lg_stk k = p->dumped; k && !f; k = t->stack.parent[k])
		if (what_is(t, t->stack.frame[k]) & (of ?: IS_PYTHON))
			f = t->stack.frame[k];
	if (f && of)
		snprintf(text, sizeof text, "%s", lg_string(t, t->frame.name[f]));
	else if (f)
		snprintf(text, sizeof text, "%s (%s:%u)", lg_string(t, t->frame.name[f]),
			 lg_string(t, t->frame.file[f]), t->frame.line[f]);
	return lg_arena_strdup(&s->c->v->arena, text);
}

/*
 * py-spy without --idle takes no sample of a thread that waits; in a chrometrace, what was on its stack
 * before is drawn over the wait. Some thread of a training process always waits for something.
 */
static void say_unseen(struct stacks *s)
{
	uint64_t n = 0;

	for (lg_prc p = 1; p < s->c->t->process.n; p++)
		n += s->side[p].dump ? 0 : s->side[p].n;
	if (n && !s->waits)
		lg_limit(s->c, LG_SAYS_PROFILE_NO_WAITS);
}

enum { NAMED_MAX = 4 };

/* Where each main thread stood when it was dumped. */
static void say_dumps(struct stacks *s)
{
	struct lg_case *c = s->c;
	const char *list = "", *comm = NULL;
	size_t n = 0, in_comm = 0, named = 0;

	for (lg_prc p = 1; p < c->t->process.n; p++) {
		struct side *x = &s->side[p];
		uint16_t is = s->is[x->dumped];

		if (!x->n || !x->dump || x->n >= DUMP_IS_PROFILE)
			continue;
		n++;
		if ((is & IN_COMM) && !(is & IN_LOADER)) {
			in_comm++;
			comm = comm ?: stands_in(s, x, IN_COMM);
		} else if (named++ < NAMED_MAX) {
			const uint16_t of = is & IN_LOADER ? IN_LOADER : is & IN_SAVE;

			list = lg_text(c, "%s%s%s %s %s", list, *list ? ", " : "", who(s, p),
				       of == IN_LOADER ? "waits for its next batch in" : of
				       ? "saves in" : "is in", stands_in(s, x, of));
		}
	}
	if (!n)
		return;
	if (named > NAMED_MAX)
		list = lg_text(c, "%s and %zu more", list, named - NAMED_MAX);
	if (in_comm && named)
		lg_say(c, LG_SAYS_PROFILE_DUMP_OF_SOME, in_comm, n, comm, list);
	else if (in_comm)
		lg_say(c, LG_SAYS_PROFILE_DUMP_OF_ALL,
		       n > 1 ? lg_text(c, "all %zu main threads are", n) : "the main thread is",
		       comm);
	else
		lg_say(c, LG_SAYS_PROFILE_DUMP, list);
}

int lg_find_python_stacks(struct lg_case *c)
{
	struct stacks s = { .c = c };
	LG_AUTOFREE uint16_t *is = NULL;
	LG_AUTOFREE struct side *side = NULL;
	lg_prc waits = 0, saves = 0;
	lg_str last = 0;
	bool any = false;

	if (c->has_states) /* wait chains tell more */
		return 0;
	for (size_t i = 0; i < c->t->sample.n && !any; i++)
		if (c->t->sample.event[i] != last) { /* millions of rows of a perf.data have one name */
			last = c->t->sample.event[i];
			any = row_kind(c->t, last);
		}
	if (!any)
		return 0;
	s.is = is = lg_calloc(c->t->stack.n + 1, sizeof *is);
	s.side = side = lg_calloc(c->t->process.n + 1, sizeof *side);
	if (!is || !side)
		return LG_E_NOMEM;
	read_stacks(&s);
	add_up(&s);
	for (lg_prc p = 1; p < c->t->process.n; p++) {
		const struct side *x = &side[p], *w = &side[waits], *v = &side[saves];

		if (!x->n || (x->dump && x->n < DUMP_IS_PROFILE))
			continue;
		if (!waits || (double)x->loader * whole(w) > (double)w->loader * whole(x))
			waits = p;
		if (!saves || (double)x->save * whole(v) > (double)v->save * whole(x))
			saves = p;
	}
	if (waits)
		loader(&s, waits);
	if (saves)
		save(&s, saves);
	say_unseen(&s);
	say_dumps(&s);
	return c->failed;
}
