/* SPDX-License-Identifier: Apache-2.0 */
/*
 * builder.c - interning and appending.
 *
 * I1  str_off has n_str + 1 entries; str_off[0] = 0 and string 0 is "".
 * I2  row 0 of every dictionary table is the zero row ("none"); it is never flushed.
 * I3  pid_life / tid_life map an id to the row of its newest life.
 * I4  a dictionary row is in `dirty` at most once between two flushes (bit in dirty_mark).
 * I5  frame_key[f] is what frame f was interned with; lg_frame_set_name() adds a second key, so
 *     that both the bare address and the named frame find it.
 * I6  seen[thr] is set once a time row names thr: then its life began before any later fork.
 */
#include "store/builder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/agree.h"
#include "base/alloc.h"
#include "base/map.h"
#include "base/printable.h"
#include "store/budget.h"
#include "store/seal.h"

struct dirty {
	uint32_t *rows;
	size_t n, cap;
	uint8_t *mark; /* one byte a row */
	size_t mark_cap;
};

struct lg_builder {
	struct lg_trace *t;
	int failed;
	size_t str_cap, off_cap;
	struct lg_map strings, frames, tracks; /* content hash -> id; probed on collision */
	struct lg_map stacks; /* parent and frame -> id */
	struct lg_map pid_life, tid_life;
	struct dirty dirty[LG_TABLE_MAX];
	size_t str_flushed;
	struct frame_key {
		lg_str name, file;
		uint32_t line;
	} *frame_key;
	uint8_t *seen;
	size_t frame_key_cap, seen_cap;
	struct lg_budget budget;
	int32_t for_pid;
	bool unlimited;       /* for rows of the budgets' own */
	lg_str s_over;
};

#define DICT_ROWS_MAX 0xfffffff0u
/* No name of anything is longer; command lines are (ARG_MAX allows 2 MiB) and get cut. */
enum { STRING_MAX = 1 << 20 };

static int tab_reserve(struct lg_tab *tab, const struct lg_table_desc *d, size_t need)
{
	size_t cap = tab->cap ? tab->cap : 64;

	if (need <= tab->cap)
		return 0;
	while (cap < need)
		cap += cap / 2;
	for (size_t c = 0; c < d->n_cols; c++) {
		void *p = lg_realloc(tab->col[c], cap, d->cols[c].size);

		if (!p)
			return LG_E_NOMEM;
		tab->col[c] = p;
	}
	tab->cap = cap;
	return 0;
}

#define T_TAB(tname)                                                                               \
	static inline int reserve_##tname(struct lg_builder *b)                                    \
	{                                                                                          \
		struct lg_##tname##_tab *tab = &b->t->tname;                                       \
                                                                                                   \
		if (__builtin_expect(tab->n < tab->cap, 1))                                        \
			return 0;                                                                  \
		if (!b->failed && tab_reserve((struct lg_tab *)(void *)tab,                        \
					      lg_schema_table(LG_TABLE_##tname), tab->n + 1))      \
			b->failed = LG_E_NOMEM;                                                    \
		return b->failed;                                                                  \
	}

#define C(type, name, unit, doc) tab->name[i] = r->name;
#define T_COPY(tname)                                                                              \
	static inline void put_##tname(struct lg_builder *b, size_t i,                             \
				       const struct lg_##tname##_row *r)                           \
	{                                                                                          \
		struct lg_##tname##_tab *tab = &b->t->tname;                                       \
                                                                                                   \
		LG_COLS_##tname(C)                                                                 \
	}

static inline void see(struct lg_builder *b, lg_thr thr)
{
	size_t old = b->seen_cap;

	if (__builtin_expect(thr >= old, 0)) {
		/* Ids that no thread row has are cleared when sealing. */
		if (thr >= b->t->thread.n)
			return;
		if (lg_grow(&b->seen, &b->seen_cap, (size_t)thr + 1, 1)) {
			b->failed = LG_E_NOMEM;
			return;
		}
		memset(b->seen + old, 0, b->seen_cap - old);
	}
	b->seen[thr] = 1;
}
#define SEE_state(b, r) see(b, (r)->thr)
#define SEE_sample(b, r) see(b, (r)->thr)
#define SEE_span(b, r) see(b, (r)->thr)
#define SEE_mark(b, r) see(b, (r)->thr)
#define SEE_counter(b, r) ((void)0)
#define SEE_flow(b, r) ((void)0)
#define SEE_clock(b, r) ((void)0)
#define SEE_meta(b, r) ((void)0)
#define SEE_diag(b, r) ((b)->t->diag.count[(b)->t->diag.n - 1] = lg_count_sum((r)->count, 0))

#define T_DICT(tname)
#define T_TIME(tname)                                                                              \
	void lg_add_##tname(struct lg_builder *b, const struct lg_##tname##_row *r)                \
	{                                                                                          \
		if (reserve_##tname(b))                                                            \
			return;                                                                    \
		put_##tname(b, b->t->tname.n++, r);                                                \
		SEE_##tname(b, r);                                                                 \
	}
#define T(tname, id, kind) T_TAB(tname) T_COPY(tname) T_##kind(tname)
LG_TABLES(T)
#undef T
#undef T_TIME
#undef T_DICT
#undef C

static void touch(struct lg_builder *b, uint32_t table, uint32_t row)
{
	struct dirty *d = &b->dirty[table];
	size_t old = d->mark_cap;

	if (row >= d->mark_cap) {
		if (lg_grow(&d->mark, &d->mark_cap, (size_t)row + 1, 1)) {
			b->failed = LG_E_NOMEM;
			return;
		}
		memset(d->mark + old, 0, d->mark_cap - old);
	}
	if (d->mark[row])
		return;
	if (lg_grow(&d->rows, &d->cap, d->n + 1, sizeof *d->rows)) {
		b->failed = LG_E_NOMEM;
		return;
	}
	d->mark[row] = 1;
	d->rows[d->n++] = row;
}

#define DICT_ADD(tname)                                                                            \
	static uint32_t add_##tname(struct lg_builder *b, const struct lg_##tname##_row *r)        \
	{                                                                                          \
		size_t i = b->t->tname.n;                                                          \
                                                                                                   \
		if (reserve_##tname(b) || i >= DICT_ROWS_MAX)                                      \
			return 0;                                                                  \
		put_##tname(b, i, r);                                                              \
		b->t->tname.n++;                                                                   \
		if (i)                                                                             \
			touch(b, LG_TABLE_##tname, (uint32_t)i);                                   \
		return (uint32_t)i;                                                                \
	}
DICT_ADD(process)
DICT_ADD(thread)
DICT_ADD(track)
DICT_ADD(frame)
DICT_ADD(stack)

int lg_builder_new(struct lg_builder **ret, struct lg_error *err)
{
	struct lg_builder *b = lg_calloc(1, sizeof *b);

	if (!b)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	b->t = lg_calloc(1, sizeof *b->t);
	if (!b->t)
		goto nomem;
	b->t->mutable_ = 1;
	if (lg_grow(&b->t->str_off, &b->off_cap, 64, sizeof *b->t->str_off) ||
	    lg_grow(&b->t->str_bytes, &b->str_cap, 4096, 1))
		goto nomem;
	b->t->str_off[0] = 0;
	b->t->str_bytes[0] = 0;
	b->t->str_off[1] = 1;
	b->t->n_str = 1;
	b->str_flushed = 1;
	add_process(b, &(struct lg_process_row){ .rank = -1, .local_rank = -1 });
	add_thread(b, &(struct lg_thread_row){ 0 });
	add_track(b, &(struct lg_track_row){ 0 });
	add_frame(b, &(struct lg_frame_row){ 0 });
	add_stack(b, &(struct lg_stack_row){ 0 });
	if (b->failed)
		goto nomem;
	*ret = b;
	return 0;
nomem:
	lg_builder_free(b);
	return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
}

void lg_builder_free(struct lg_builder *b)
{
	if (!b)
		return;
	lg_trace_free(b->t);
	lg_map_done(&b->strings);
	lg_map_done(&b->frames);
	lg_map_done(&b->stacks);
	lg_map_done(&b->tracks);
	lg_map_done(&b->pid_life);
	lg_map_done(&b->tid_life);
	lg_budget_done(&b->budget);
	lg_free(b->frame_key);
	lg_free(b->seen);
	for (size_t i = 0; i < LG_TABLE_MAX; i++) {
		lg_free(b->dirty[i].rows);
		lg_free(b->dirty[i].mark);
	}
	lg_free(b);
}

void lg_builder_fail(struct lg_builder *b)
{
	b->failed = LG_E_NOMEM;
}

int lg_builder_failed(const struct lg_builder *b)
{
	return b->failed;
}

struct lg_trace *lg_builder_trace(struct lg_builder *b)
{
	return b->t;
}

/* Budgets ------------------------------------------------------------------------------------ */

/* What one more of each takes at most: its row, its entries in maps (up to 36 bytes each while one grows). */
enum { STRING_COST = 64, FRAME_COST = 192, STACK_COST = 80, THREAD_COST = 160, PROCESS_COST = 480 };

static uint64_t id_key(int32_t id)
{
	return (uint32_t)id;
}

static uint32_t account_of(struct lg_builder *b, int32_t pid)
{
	lg_prc p = lg_map_get(&b->pid_life, id_key(pid));
	uint32_t role = b->t->process.role[p];
	bool job = role == LG_ROLE_RANK || role == LG_ROLE_JOB || role == LG_ROLE_LOADER;

	return lg_budget_account(&b->budget, job, b->t->process.uid[p]);
}

bool lg_builder_charge(struct lg_builder *b, int32_t pid, size_t bytes, uint32_t *ret_account)
{
	*ret_account = LG_JOB_ACCOUNT;
	if (!lg_budget_counts(&b->budget) || !pid)
		return true;
	*ret_account = account_of(b, pid);
	return lg_budget_take(&b->budget, *ret_account, bytes);
}

/* May who this is done for have one more of something? */
static bool affords(struct lg_builder *b, size_t bytes)
{
	uint32_t account;

	return b->unlimited || lg_builder_charge(b, b->for_pid, bytes, &account);
}

void lg_builder_give_back(struct lg_builder *b, uint32_t account, size_t bytes)
{
	if (lg_budget_counts(&b->budget))
		lg_budget_give_back(&b->budget, account, bytes);
}

void lg_builder_limit(struct lg_builder *b, const struct lg_budget_limits *limits)
{
	b->s_over = lg_intern(b, "[over budget]");
	b->budget.limits = *limits;
}

void lg_builder_for(struct lg_builder *b, int32_t pid)
{
	b->for_pid = pid;
}

void lg_builder_tell_budget(struct lg_builder *b, int64_t ts)
{
	b->unlimited = true;
	for (size_t i = 0; i < b->budget.n; i++) {
		struct lg_account *a = &b->budget.all[i];
		uint64_t n = a->denied - a->told;

		if (!n)
			continue;
		a->told = a->denied;
		if (a->job)
			lg_add_diag_now(b, LG_DIAG_OVER_BUDGET, ts, n, "of the job");
		else
			lg_add_diag_now(b, LG_DIAG_OVER_BUDGET, ts, n, "of user %u", a->uid);
	}
	b->unlimited = false;
}

int lg_builder_put_string(struct lg_builder *b, const char *s, size_t n)
{
	struct lg_trace *t = b->t;
	size_t at = t->str_off[t->n_str];
	/* s may point into the pool (the end of a path that is interned): it moves with it. */
	uintptr_t inside = (uintptr_t)s - (uintptr_t)t->str_bytes;

	if (b->failed)
		return b->failed;
	if (t->n_str >= DICT_ROWS_MAX || lg_grow(&t->str_bytes, &b->str_cap, at + n + 1, 1) ||
	    lg_grow(&t->str_off, &b->off_cap, t->n_str + 2, sizeof *t->str_off))
		return b->failed = LG_E_NOMEM;
	memcpy(t->str_bytes + at, inside < at ? t->str_bytes + inside : s, n);
	t->str_bytes[at + n] = 0;
	t->str_off[++t->n_str] = at + n + 1;
	return 0;
}

/* Content maps key on the hash; different content with one hash probes hash+1, hash+2 ... */
/* 0 = not there; *ret_hash is free for it then. Inlined by force: gcc 12 would inline lg_intern_n() instead,
 * and then warns of its limit in callers whose text is shorter. */
static inline __attribute__((always_inline)) lg_str find_string(const struct lg_builder *b, const char *s,
								 size_t n, uint64_t *ret_hash)
{
	uint64_t h;
	uint32_t id;

	for (h = XXH3_64bits_withSeed(s, n, lg_map_secret); (id = lg_map_get(&b->strings, h)); h++) {
		uint64_t off = b->t->str_off[id];

		if (b->t->str_off[id + 1] - off == n + 1 && !memcmp(b->t->str_bytes + off, s, n))
			break;
	}
	*ret_hash = h;
	return id;
}

lg_str lg_interned(const struct lg_builder *b, const char *s)
{
	uint64_t h;

	return *s ? find_string(b, s, strlen(s), &h) : 0;
}

lg_str lg_intern_n(struct lg_builder *b, const char *s, size_t n)
{
	const char *nul = s && n ? memchr(s, 0, n) : NULL;
	uint64_t h;
	uint32_t id;

	if (nul)
		n = (size_t)(nul - s);
	if (!s || !n || b->failed)
		return 0;
	n = lg_whole_chars(s, n, STRING_MAX);
	id = find_string(b, s, n, &h);
	if (id)
		return id;
	if (!affords(b, n + STRING_COST))
		return b->s_over;
	id = (uint32_t)b->t->n_str;
	if (lg_builder_put_string(b, s, n))
		return 0;
	if (lg_map_set(&b->strings, h, id))
		b->failed = LG_E_NOMEM;
	return id;
}

lg_str lg_intern(struct lg_builder *b, const char *s)
{
	return s ? lg_intern_n(b, s, strlen(s)) : 0;
}

static uint64_t frame_hash(const struct lg_frame_row *f)
{
	/* Two files' <module> or forward() may begin at the same line. */
	uint64_t key[4] = { f->pc, (uint64_t)f->dso << 32 | f->name, (uint64_t)f->kind << 32 | f->line,
			    f->file };

	return XXH3_64bits_withSeed(key, sizeof key, lg_map_secret);
}

lg_frm lg_intern_frame(struct lg_builder *b, const struct lg_frame_row *f)
{
	struct lg_frame_tab *t = &b->t->frame;
	uint64_t h = frame_hash(f);
	uint32_t id;

	for (; (id = lg_map_get(&b->frames, h)); h++)
		if (t->pc[id] == f->pc && t->dso[id] == f->dso && t->kind[id] == f->kind &&
		    ((t->name[id] == f->name && t->line[id] == f->line && t->file[id] == f->file) ||
		     (b->frame_key[id].name == f->name && b->frame_key[id].line == f->line &&
		      b->frame_key[id].file == f->file)))
			return id;
	if (!affords(b, FRAME_COST))
		return 0;
	if (lg_grow(&b->frame_key, &b->frame_key_cap, t->n + 1, sizeof *b->frame_key)) {
		b->failed = LG_E_NOMEM;
		return 0;
	}
	id = add_frame(b, f);
	if (!id)
		return 0;
	b->frame_key[id] = (struct frame_key){ .name = f->name, .file = f->file, .line = f->line };
	if (lg_map_set(&b->frames, h, id))
		b->failed = LG_E_NOMEM;
	return id;
}

lg_stk lg_intern_stack(struct lg_builder *b, lg_stk parent, lg_frm frame)
{
	uint64_t key = (uint64_t)parent << 32 | frame; /* all of the content: nothing to compare */
	struct lg_stack_tab *t = &b->t->stack;
	uint32_t id;

	if (parent >= t->n || frame >= b->t->frame.n)
		return 0;
	if (!frame && lg_budget_counts(&b->budget))
		return parent; /* one beyond the budget */
	/* The newest stack is nobody's parent yet. */
	id = parent && parent + 1 == t->n ? 0 : lg_map_get(&b->stacks, key);
	if (id)
		return id;
	if (!affords(b, STACK_COST))
		return parent;
	id = add_stack(b, &(struct lg_stack_row){ .parent = parent,
						  .frame = frame,
						  .depth = t->depth[parent] + 1 });
	if (id && lg_map_set(&b->stacks, key, id))
		b->failed = LG_E_NOMEM;
	return id;
}

void lg_frame_set_name(struct lg_builder *b, lg_frm f, lg_str name, lg_str file, uint32_t line)
{
	struct lg_frame_tab *t = &b->t->frame;
	uint64_t h;
	uint32_t id;

	if (!f || f >= t->n)
		return;
	t->name[f] = name;
	if (file)
		t->file[f] = file;
	if (line)
		t->line[f] = line;
	touch(b, LG_TABLE_frame, f);
	h = frame_hash(&(struct lg_frame_row){ .pc = t->pc[f],
					       .dso = t->dso[f],
					       .name = name,
					       .kind = t->kind[f],
					       .file = t->file[f],
					       .line = t->line[f] });
	for (; (id = lg_map_get(&b->frames, h)); h++)
		if (id == f)
			return;
	if (lg_map_set(&b->frames, h, f))
		b->failed = LG_E_NOMEM;
}

lg_trk lg_track_get(struct lg_builder *b, const struct lg_track_row *r)
{
	uint64_t h = XXH3_64bits_withSeed(r, sizeof *r, lg_map_secret);
	struct lg_track_tab *t = &b->t->track;
	uint32_t id;

	for (; (id = lg_map_get(&b->tracks, h)); h++)
		if (t->kind[id] == r->kind && t->name[id] == r->name && t->unit[id] == r->unit &&
		    t->prc[id] == r->prc && t->thr[id] == r->thr && t->parent[id] == r->parent &&
		    t->index[id] == r->index)
			return id;
	id = add_track(b, r);
	if (id && lg_map_set(&b->tracks, h, id))
		b->failed = LG_E_NOMEM;
	return id;
}

/*
 * The process row of all lives of the account beyond its budget, and its one thread: nothing is told of it
 * but that it is there. Ids lead to it until their end.
 */
static struct lg_account *crowd_of(struct lg_builder *b)
{
	struct lg_account *a = &b->budget.all[account_of(b, b->for_pid)];

	if (a->prc)
		return a;
	b->unlimited = true;
	a->prc = add_process(b, &(struct lg_process_row){ .start = INT64_MIN, .end = INT64_MAX, .pid = -1,
							  .rank = -1, .local_rank = -1,
							  .uid = a->uid, .comm = b->s_over });
	a->thr = add_thread(b, &(struct lg_thread_row){ .start = INT64_MIN, .end = INT64_MAX, .tid = -1,
							.prc = a->prc, .comm = b->s_over });
	b->unlimited = false;
	return a;
}

/* Rows that stand for many are nobody's to change. */
static bool is_crowd(const struct lg_builder *b, lg_prc p)
{
	return p && b->t->process.pid[p] == -1 && lg_budget_counts(&b->budget);
}

static lg_prc process_new(struct lg_builder *b, int32_t pid, int32_t ppid, int64_t start)
{
	bool known = affords(b, PROCESS_COST);
	lg_prc p = !known ? crowd_of(b)->prc : add_process(b, &(struct lg_process_row){ .start = start,
							    .end = INT64_MAX,
							    .pid = pid,
							    .ppid = ppid,
							    .rank = -1,
							    .local_rank = -1 });

	if (p && lg_map_set(&b->pid_life, id_key(pid), p))
		b->failed = LG_E_NOMEM;
	return p;
}

static lg_thr thread_new(struct lg_builder *b, lg_prc p, int32_t pid, int32_t tid, int64_t start)
{
	uint32_t flags = (pid == tid && tid ? LG_THREAD_MAIN : 0u) | (!tid ? LG_THREAD_IDLE : 0u);
	lg_thr thr;

	if (is_crowd(b, p) || !affords(b, THREAD_COST))
		thr = crowd_of(b)->thr;
	else
		thr = add_thread(b, &(struct lg_thread_row){ .start = start,
							     .end = INT64_MAX,
							     .tid = tid,
							     .prc = p,
							     .flags = flags });

	if (thr && lg_map_set(&b->tid_life, id_key(tid), thr))
		b->failed = LG_E_NOMEM;
	return thr;
}

lg_prc lg_process_get(struct lg_builder *b, int32_t pid)
{
	lg_prc p = lg_map_get(&b->pid_life, id_key(pid));

	/* An ended one too: see lg_thread_end(). */
	return p ? p : process_new(b, pid, 0, INT64_MIN);
}

/* A thread seen without its pid was filed under a process row of its own: give that row the right
 * pid, or, where the right process has one already, leave a row that never lived. */
static void correct_process(struct lg_builder *b, lg_thr thr, int32_t pid)
{
	lg_prc ghost = b->t->thread.prc[thr], p = lg_map_get(&b->pid_life, id_key(pid));

	lg_map_remove(&b->pid_life, id_key(b->t->process.pid[ghost]));
	b->t->thread.flags[thr] &= ~(uint32_t)LG_THREAD_MAIN;
	if (p && b->t->process.end[p] == INT64_MAX) {
		b->t->thread.prc[thr] = p;
		b->t->process.end[ghost] = INT64_MIN;
	} else {
		b->t->process.pid[ghost] = pid;
		b->t->process.comm[ghost] = 0; /* it was the thread's */
		if (lg_map_set(&b->pid_life, id_key(pid), ghost))
			b->failed = LG_E_NOMEM;
	}
	touch(b, LG_TABLE_thread, thr);
	touch(b, LG_TABLE_process, ghost);
}

lg_thr lg_thread_get(struct lg_builder *b, int32_t pid, int32_t tid)
{
	lg_thr thr = lg_map_get(&b->tid_life, id_key(tid));
	int64_t start = INT64_MIN;
	lg_prc p;

	if (thr && b->t->thread.end[thr] == INT64_MAX) {
		p = b->t->thread.prc[thr];
		if (pid < 0 || b->t->process.pid[p] == pid)
			return thr;
		if (b->t->process.pid[p] == tid && b->t->thread.start[thr] == INT64_MIN) {
			correct_process(b, thr, pid);
			return thr;
		}
		/* The same tid under another pid: the old life ended unseen. */
	} else if (thr) {
		p = b->t->thread.prc[thr];
		if (pid < 0 || b->t->process.pid[p] == pid)
			return thr; /* its last moments */
		start = b->t->thread.end[thr];
	}
	if (pid < 0)
		pid = tid;
	p = lg_process_get(b, pid);
	return thread_new(b, p, pid, tid, start);
}

/*
 * A life that was learnt of (from /proc, say) before its fork was told is the same life, unless
 * something was recorded of it before: then the id was reused and the exit was lost.
 */
static int adopt(struct lg_builder *b, lg_thr thr, int32_t ppid, int32_t pid, int32_t tid, int64_t ts)
{
	lg_prc p = b->t->thread.prc[thr];

	if (b->t->thread.start[thr] != INT64_MIN || b->t->process.pid[p] != pid ||
	    (thr < b->seen_cap && b->seen[thr]))
		return 0;
	b->t->thread.start[thr] = ts;
	touch(b, LG_TABLE_thread, thr);
	if (pid == tid && b->t->process.start[p] == INT64_MIN) {
		b->t->process.start[p] = ts;
		b->t->process.ppid[p] = ppid;
		touch(b, LG_TABLE_process, p);
	}
	return 1;
}

lg_thr lg_thread_find(const struct lg_builder *b, int32_t tid)
{
	return lg_map_get(&b->tid_life, id_key(tid));
}

lg_thr lg_thread_start(struct lg_builder *b, int32_t ppid, int32_t pid, int32_t tid, int64_t ts)
{
	lg_thr old = lg_map_get(&b->tid_life, id_key(tid));
	lg_prc p;

	if (old && b->t->thread.end[old] == INT64_MAX) {
		if (b->t->thread.start[old] == ts || adopt(b, old, ppid, pid, tid, ts))
			return old; /* told twice, or known already */
		lg_thread_end(b, tid, ts);
	}
	if (pid == tid) {
		lg_prc was = lg_map_get(&b->pid_life, id_key(pid));

		if (was && b->t->process.end[was] == INT64_MAX && !is_crowd(b, was)) {
			b->t->process.end[was] = ts;
			touch(b, LG_TABLE_process, was);
		}
		p = process_new(b, pid, ppid, ts);
	} else {
		p = lg_process_get(b, pid);
	}
	return thread_new(b, p, pid, tid, ts);
}

void lg_thread_end(struct lg_builder *b, int32_t tid, int64_t ts)
{
	lg_thr thr = lg_map_get(&b->tid_life, id_key(tid));
	lg_prc p;

	if (!thr || !tid || b->t->thread.end[thr] != INT64_MAX)
		return;
	if (is_crowd(b, b->t->thread.prc[thr])) {
		lg_map_remove(&b->tid_life, id_key(tid));
		if (is_crowd(b, lg_map_get(&b->pid_life, id_key(tid))))
			lg_map_remove(&b->pid_life, id_key(tid));
		return;
	}
	b->t->thread.end[thr] = ts;
	touch(b, LG_TABLE_thread, thr);
	p = b->t->thread.prc[thr];
	if (p && b->t->process.pid[p] == tid && b->t->process.end[p] == INT64_MAX) {
		b->t->process.end[p] = ts;
		touch(b, LG_TABLE_process, p);
	}
}

void lg_thread_name(struct lg_builder *b, lg_thr thr, lg_str comm)
{
	lg_prc p;

	if (!thr || thr >= b->t->thread.n || b->t->thread.comm[thr] == comm ||
	    is_crowd(b, b->t->thread.prc[thr]))
		return;
	p = b->t->thread.prc[thr];
	b->t->thread.comm[thr] = comm;
	touch(b, LG_TABLE_thread, thr);
	if (p && ((b->t->thread.flags[thr] & LG_THREAD_MAIN) || !b->t->process.comm[p])) {
		b->t->process.comm[p] = comm;
		touch(b, LG_TABLE_process, p);
	}
}

#define C(type, name, unit, doc) r.name = t->name[i];
struct lg_process_row lg_process_read(const struct lg_builder *b, lg_prc i)
{
	const struct lg_process_tab *t = &b->t->process;
	struct lg_process_row r;

	if (i >= t->n)
		i = 0;
	LG_COLS_process(C)
	return r;
}

struct lg_thread_row lg_thread_read(const struct lg_builder *b, lg_thr i)
{
	const struct lg_thread_tab *t = &b->t->thread;
	struct lg_thread_row r;

	if (i >= t->n)
		i = 0;
	LG_COLS_thread(C)
	return r;
}
#undef C

int64_t lg_thread_ended(const struct lg_builder *b, lg_thr i)
{
	return b->t->thread.end[i < b->t->thread.n ? i : 0];
}

void lg_process_write(struct lg_builder *b, lg_prc p, const struct lg_process_row *row)
{
	if (!p || p >= b->t->process.n || is_crowd(b, p))
		return;
	put_process(b, p, row);
	touch(b, LG_TABLE_process, p);
}

void lg_thread_write(struct lg_builder *b, lg_thr thr, const struct lg_thread_row *row)
{
	if (!thr || thr >= b->t->thread.n || is_crowd(b, b->t->thread.prc[thr]))
		return;
	put_thread(b, thr, row);
	touch(b, LG_TABLE_thread, thr);
}

lg_prc lg_process_add(struct lg_builder *b, const struct lg_process_row *row)
{
	lg_prc p = add_process(b, row);

	if (p && row->end == INT64_MAX && lg_map_set(&b->pid_life, id_key(row->pid), p))
		b->failed = LG_E_NOMEM;
	return p;
}

lg_thr lg_thread_add(struct lg_builder *b, const struct lg_thread_row *row)
{
	lg_thr thr = add_thread(b, row);

	if (thr && row->end == INT64_MAX && lg_map_set(&b->tid_life, id_key(row->tid), thr))
		b->failed = LG_E_NOMEM;
	return thr;
}

lg_prc lg_thread_process(const struct lg_builder *b, lg_thr thr)
{
	return thr < b->t->thread.n ? b->t->thread.prc[thr] : 0;
}

void lg_add_diag_now(struct lg_builder *b, enum lg_diag_id id, int64_t ts, uint64_t count,
		     const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	lg_vagree(text, sizeof text, fmt, ap);
	va_end(ap);
	lg_add_diag(b, &(struct lg_diag_row){ .ts = ts, .id = id, .cpu = -1, .count = count,
					      .text = lg_intern(b, text) });
}

void lg_meta_set(struct lg_builder *b, lg_prc prc, const char *key, const char *value)
{
	lg_add_meta(b, &(struct lg_meta_row){ .ts = INT64_MIN, .prc = prc,
					      .key = lg_intern(b, key),
					      .value = lg_intern(b, value) });
}

void lg_meta_setf(struct lg_builder *b, lg_prc prc, const char *key, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	lg_meta_set(b, prc, key, text);
}

size_t lg_builder_pending(const struct lg_builder *b)
{
	size_t n, sum = 0;
	const struct lg_table_desc *d = lg_schema(&n);

	for (size_t i = 0; i < n; i++)
		if (!d[i].is_dict)
			sum += lg_trace_table_const(b->t, &d[i])->n * d[i].row_bytes;
	return sum;
}

int lg_builder_flush(struct lg_builder *b, const struct lg_sink *sink, void *self,
		     struct lg_error *err)
{
	size_t n;
	const struct lg_table_desc *d = lg_schema(&n);
	int rc;

	if (b->failed)
		return lg_fail(err, b->failed, LG_NO_OFFSET, "out of memory");
	if (b->str_flushed < b->t->n_str) {
		rc = sink->strings(self, b->t, b->str_flushed, b->t->n_str, err);
		if (rc)
			return rc;
		b->str_flushed = b->t->n_str;
	}
	for (size_t i = 0; i < n; i++) {
		struct lg_tab *tab = lg_trace_table(b->t, &d[i]);
		struct dirty *dirty = &b->dirty[d[i].id];

		if (d[i].is_dict) {
			if (!dirty->n)
				continue;
			rc = sink->rows(self, &d[i], tab, dirty->rows, dirty->n, err);
			if (rc)
				return rc;
			for (size_t k = 0; k < dirty->n; k++)
				dirty->mark[dirty->rows[k]] = 0;
			dirty->n = 0;
		} else if (tab->n) {
			rc = sink->rows(self, &d[i], tab, NULL, tab->n, err);
			if (rc)
				return rc;
			tab->n = 0;
		}
	}
	return 0;
}

int lg_builder_put_columns(struct lg_builder *b, const struct lg_table_desc *d, size_t n,
			   const uint32_t *ids, const void *const *cols)
{
	struct lg_tab *tab = lg_trace_table(b->t, d);

	if (b->failed)
		return b->failed;
	if (!d->is_dict) {
		if (tab_reserve(tab, d, tab->n + n))
			return b->failed = LG_E_NOMEM;
		for (size_t c = 0; c < d->n_cols; c++)
			memcpy((char *)tab->col[c] + tab->n * d->cols[c].size, cols[c],
			       n * d->cols[c].size);
		tab->n += n;
		return 0;
	}
	for (size_t i = 0; i < n; i++) {
		size_t id = ids[i];

		if (!id || id >= DICT_ROWS_MAX || id > tab->n + (1u << 24))
			return LG_E_FORMAT;
		if (id >= tab->n) {
			if (tab_reserve(tab, d, id + 1))
				return b->failed = LG_E_NOMEM;
			/* Rows that were never told are copies of "none" (rank -1 ...). */
			for (; tab->n <= id; tab->n++)
				for (size_t c = 0; c < d->n_cols; c++)
					memcpy((char *)tab->col[c] + tab->n * d->cols[c].size,
					       tab->col[c], d->cols[c].size);
		}
		for (size_t c = 0; c < d->n_cols; c++) {
			size_t size = d->cols[c].size;

			memcpy((char *)tab->col[c] + id * size, (const char *)cols[c] + i * size,
			       size);
		}
	}
	return 0;
}

int lg_builder_take_columns(struct lg_builder *b, const struct lg_table_desc *d, size_t n, void *const *cols)
{
	struct lg_tab *tab = lg_trace_table(b->t, d);

	if (b->failed || tab->n || d->is_dict)
		return b->failed ? b->failed : LG_E_USAGE;
	for (size_t c = 0; c < d->n_cols; c++) {
		lg_free(tab->col[c]);
		tab->col[c] = cols[c];
	}
	tab->n = tab->cap = n;
	return 0;
}

int lg_builder_seal(struct lg_builder *b, struct lg_trace **ret, struct lg_error *err)
{
	int rc = b->failed;

	if (rc)
		(void)lg_fail(err, rc, LG_NO_OFFSET, "out of memory");
	else
		rc = lg_seal(b->t, err);
	if (!rc) {
		*ret = b->t;
		b->t = NULL;
	}
	lg_builder_free(b);
	return rc;
}
