/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline.c - tracks, arguments, nesting, and the order of the walk.
 */
#include "report/timeline.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/printable.h"
#include "report/timeline_internal.h"
#include "store/kernel_names.h"

/* Shown numbers above PID_MAX_LIMIT (2^22, include/linux/threads.h). */
enum { PID_LATER = 1 << 24, TID_LATER = 1 << 24, PID_OWN = 0x7fffff00 };
enum { ID_PROCESS = 1, ID_THREAD, ID_TRACK, ID_OWN };

/*
 * Never 0. Traces may be put one behind the other: ids of different files rarely meet. Every packet names its
 * track: those of most tracks take 42 bits, 6 bytes in a .pftrace.
 */
static uint64_t track_id(const struct lg_timeline *c, unsigned kind, uint32_t row, unsigned lane,
			 uint32_t overlap)
{
	enum { KIND_BITS = 3, LANE_BITS = 3, ROW_BITS = 15, FILE_BITS = 21 };
	uint64_t key = (uint64_t)kind << 60 | (uint64_t)lane << 56 | (uint64_t)(overlap & 0xffffff) << 32;

	_Static_assert(ID_OWN < 1 << KIND_BITS && LG_LANE_MAX <= 1 << LANE_BITS, "they fit");
	if (!overlap && row < 1u << ROW_BITS)
		return c->file >> (64 - FILE_BITS) << (ROW_BITS + LANE_BITS + KIND_BITS) |
		       row << (LANE_BITS + KIND_BITS) | lane << KIND_BITS | kind;
	return lg_mix64(c->file ^ lg_mix64(key | row)) | 1ull << 63;
}

/* A number for the trace, which others have by accident only. */
static uint64_t file_of(const struct lg_trace *t)
{
	uint64_t h = lg_mix64((uint64_t)t->first) ^ (uint64_t)t->last;

	h = lg_mix64(h) ^ (t->sample.n + t->state.n + t->span.n);
	for (lg_prc p = 1; p < t->process.n; p++)
		h = lg_mix64(h ^ (uint32_t)t->process.pid[p]);
	return lg_mix64(h);
}

bool tl_clip(const struct lg_timeline *c, int64_t *ts, int64_t *end)
{
	if (*end < *ts)
		*end = *ts;
	if (*ts >= c->w.to || (*end <= c->w.from && *ts < c->w.from))
		return false;
	if (*ts < c->w.from)
		*ts = c->w.from;
	if (*end > c->w.to)
		*end = c->w.to;
	return true;
}

/* Give row its shown number: its own where nobody has it yet. */
static int64_t shown(struct lg_timeline *c, struct lg_map *taken, int32_t id, uint32_t row,
		     int64_t later)
{
	/* A file that we wrote may hold numbers of later lives. */
	if (row && id >= 0 && id < later && !lg_map_get(taken, (uint64_t)(uint32_t)id)) {
		if (lg_map_set(taken, (uint64_t)(uint32_t)id, row))
			c->failed = LG_E_NOMEM;
		return id;
	}
	return later + row;
}

/* Ranks in their order, who is accused, the rest of the job, everybody else, the kernel. */
static int32_t process_order(const struct lg_timeline *c, lg_prc prc)
{
	const struct lg_process_tab *p = &c->t->process;

	if (!prc)
		return 2000000;
	if (p->rank[prc] >= 0)
		return p->rank[prc] < 1000000 ? p->rank[prc] : 1000000;
	for (size_t i = 0; c->v && i < c->v->n_findings; i++)
		if (p->pid[prc] >= 0 && c->v->findings[i].culprit.pid == p->pid[prc])
			return 1000001;
	if (p->role[prc] == LG_ROLE_KERNEL)
		return 2000001;
	return p->role[prc] == LG_ROLE_JOB || p->role[prc] == LG_ROLE_LOADER ? 1000002 : 1000003;
}

void tl_process_track(struct lg_timeline *c, lg_prc prc, struct lg_tl_track *ret)
{
	const struct lg_process_tab *p = &c->t->process;
	bool first = c->pid[prc] == INT64_MIN;
	char name[512];
	int n = 0;

	if (first)
		c->pid[prc] = shown(c, &c->pid_taken, p->pid[prc], prc, PID_LATER);
	*ret = (struct lg_tl_track){
		.id = track_id(c, ID_PROCESS, prc, 0, 0), .kind = LG_TL_PROCESS, .pid = c->pid[prc],
		.tid = c->pid[prc], .prc = prc,
		.order = process_order(c, prc),
	};
	if (!first)
		return;
	if (!prc)
		n = snprintf(name, sizeof name, "machine");
	else if (p->rank[prc] >= 0)
		n = snprintf(name, sizeof name, "rank %d: ", p->rank[prc]);
	if (prc)
		n += snprintf(name + n, sizeof name - (size_t)n, "%.256s",
			      p->comm[prc] ? lg_string(c->t, p->comm[prc]) : "?");
	if (c->many_hosts && p->host[prc])
		n += snprintf(name + n, sizeof name - (size_t)n, " on %.64s", lg_string(c->t, p->host[prc]));
	if (prc && p->pid[prc] < 0)
		snprintf(name + n, sizeof name - (size_t)n, " (pid unknown)");
	else if (prc && c->pid[prc] != p->pid[prc])
		snprintf(name + n, sizeof name - (size_t)n, " (pid %d, another life)", p->pid[prc]);
	ret->name = name;
	c->sink->track(c->self, ret);
	ret->name = NULL;
}

static const char *const lane_names[LG_LANE_MAX] = {
	[LG_LANE_MAIN] = "", [LG_LANE_VERDICT] = "steps (laggard)",
	[LG_LANE_COLLECTIVE] = "collectives", [LG_LANE_STATE] = "state",
	[LG_LANE_LOCK_WAIT] = "lock waits", [LG_LANE_LOCK_HOLD] = "lock holds",
	[LG_LANE_SAMPLE] = "cpu samples",
};

void tl_thread_track(struct lg_timeline *c, lg_thr thr, enum lg_tl_lane lane, uint32_t overlap,
		     struct lg_tl_track *ret)
{
	const struct lg_thread_tab *t = &c->t->thread;
	const char *comm = t->comm[thr] ? lg_string(c->t, t->comm[thr]) : thr ? "?" : "marks";
	struct lg_tl_track process, thread;
	char name[512];

	tl_process_track(c, t->prc[thr], &process);
	thread = (struct lg_tl_track){
		.id = track_id(c, ID_THREAD, thr, 0, 0), .parent = process.id, .kind = LG_TL_THREAD,
		.pid = process.pid, .prc = t->prc[thr], .thr = thr,
		.order = t->flags[thr] & LG_THREAD_MAIN ? 0 : (int32_t)(thr & 0xffffff) + 1,
	};
	thread.thread_order = thread.order;
	if (!(c->lane_known[thr] & 1u << LG_LANE_MAIN)) {
		c->lane_known[thr] |= 1u << LG_LANE_MAIN;
		c->tid[thr] = shown(c, &c->tid_taken, t->tid[thr], thr, TID_LATER);
		thread.tid = c->tid[thr];
		if (thread.tid == t->tid[thr] || !thr)
			snprintf(name, sizeof name, "%.256s", comm);
		else
			snprintf(name, sizeof name, "%.256s (tid %d, another life)", comm, t->tid[thr]);
		thread.name = name;
		c->sink->track(c->self, &thread);
		thread.name = NULL;
	}
	thread.tid = c->tid[thr];
	*ret = thread;
	if (lane == LG_LANE_MAIN && !overlap)
		return;
	ret->id = track_id(c, ID_THREAD, thr, lane, overlap);
	ret->parent = thread.id;
	ret->kind = LG_TL_LANE;
	ret->lane = lane;
	ret->overlap = overlap;
	ret->order = (int32_t)(lane * 1000 + (overlap < 999 ? overlap : 999));
	if (!overlap) {
		if (c->lane_known[thr] & 1u << lane)
			return;
		c->lane_known[thr] |= (uint8_t)(1u << lane);
	}
	if (overlap)
		snprintf(name, sizeof name, "%s%s(%u)", lane_names[lane], *lane_names[lane] ? " " : "",
			 overlap + 1);
	else
		snprintf(name, sizeof name, "%s", lane_names[lane]);
	ret->name = name;
	c->sink->track(c->self, ret);
	ret->name = NULL;
}

/* ---- arguments ---- */

void tl_args_reset(struct lg_timeline *c)
{
	c->n_args = 0;
}

static struct lg_tl_arg *arg(struct lg_timeline *c, const char *key)
{
	struct lg_tl_arg *a = &c->args[c->n_args < TL_ARGS ? c->n_args++ : TL_ARGS - 1];

	*a = (struct lg_tl_arg){ .key = key };
	return a;
}

void tl_arg_int(struct lg_timeline *c, const char *key, int64_t v)
{
	struct lg_tl_arg *a = arg(c, key);

	a->type = LG_ARG_INT;
	a->i = v;
}

void tl_arg_num(struct lg_timeline *c, const char *key, double v)
{
	struct lg_tl_arg *a = arg(c, key);

	a->type = LG_ARG_NUM;
	a->f = v;
}

void tl_arg_str(struct lg_timeline *c, const char *key, const char *s)
{
	struct lg_tl_arg *a = arg(c, key);

	a->type = LG_ARG_STR;
	a->s = s;
}

static void arg_text(struct lg_timeline *c, const char *key, const char *s, uint64_t id)
{
	struct lg_tl_arg *a = arg(c, key);

	a->type = LG_ARG_STR;
	a->s = s;
	a->id = id;
}

void tl_arg_static(struct lg_timeline *c, const char *key, const char *s)
{
	arg_text(c, key, s, tl_id_static(s));
}

void tl_arg_pool(struct lg_timeline *c, const char *key, lg_str s)
{
	arg_text(c, key, lg_string(c->t, s), tl_id(TL_ID_POOL, s));
}

/* Keep a text in *slot while the budget lasts; the text to use either way. */
static const char *keep(struct lg_timeline *c, const char **slot, const char *text)
{
	enum { BUDGET = 16 << 20 };
	size_t n = strlen(text) + 1;
	const char *copy;

	if (c->texts_bytes + n > BUDGET)
		return text;
	copy = lg_arena_strdup(&c->texts, text);
	if (!copy || c->texts.failed) {
		c->failed = LG_E_NOMEM;
		return text;
	}
	c->texts_bytes += n;
	return *slot = copy;
}

const char *tl_frame(struct lg_timeline *c, lg_frm f, char *buf, size_t size)
{
	if (c->t->frame.name[f] && size >= TL_FRAME) {
		const char *name = lg_string(c->t, c->t->frame.name[f]);

		/* Names are cut to what the others' buffers hold. */
		if (strnlen(name, TL_FRAME) < TL_FRAME)
			return name;
	}
	if (c->frame_text[f])
		return c->frame_text[f];
	return keep(c, &c->frame_text[f], lg_frame_text(c->t, f, buf, size));
}

void tl_arg_source(struct lg_timeline *c, lg_frm f)
{
	const struct lg_frame_tab *fr = &c->t->frame;
	struct lg_tl_arg *a;

	if (!fr->file[f])
		return;
	a = arg(c, "source");
	a->type = LG_ARG_STR;
	a->id = tl_id(TL_ID_SOURCE, f);
	a->s = c->source_text[f];
	if (!a->s) {
		char *text = c->text[a - c->args];

		snprintf(text, TL_TEXT, "%.1024s:%u", lg_string(c->t, fr->file[f]), fr->line[f]);
		a->s = keep(c, &c->source_text[f], text);
	}
}

void tl_arg_fmt(struct lg_timeline *c, const char *key, const char *fmt, ...)
{
	struct lg_tl_arg *a = arg(c, key);
	char *text = c->text[a - c->args];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, TL_TEXT, fmt, ap);
	va_end(ap);
	a->type = LG_ARG_STR;
	a->s = text;
}

static void arg_pair(struct lg_timeline *c, const char *pair, size_t n)
{
	enum { VALUE = TL_TEXT - TL_KEY - TL_NUMBER - 2 - sizeof " ..." };
	const char *eq = memchr(pair, '=', n), *text = eq ? eq + 1 : pair;
	int n_key = eq ? (int)lg_whole_chars(pair, (size_t)(eq - pair), TL_KEY) : 0;
	size_t n_text = n - (size_t)(text - pair);
	char *key = c->text[c->n_args], *value, *end;
	struct lg_tl_arg *a;
	int n_value;

	snprintf(key, TL_KEY + 1, "%.*s", n_key ? n_key : 4, n_key ? pair : "args");
	for (size_t i = 0; i < c->n_args; i++) /* strict readers refuse a repeated key */
		if (!strcmp(c->args[i].key, key))
			return;
	value = key + strlen(key) + 1;
	n_value = snprintf(value, VALUE + sizeof " ...", "%.*s%s", (int)lg_whole_chars(text, n_text, VALUE), text,
			   n_text > VALUE ? " ..." : "");
	a = arg(c, key);
	a->read = true;
	a->i = strtoll(value, &end, 10);
	a->s = value;
	/* As it was written: "0042" or what does not fit is no number. */
	snprintf(value + n_value + 1, TL_NUMBER, "%lld", (long long)a->i);
	a->type = n_value && !strcmp(value, value + n_value + 1) ? LG_ARG_INT : LG_ARG_STR;
}

void tl_arg_pairs(struct lg_timeline *c, lg_str pairs)
{
	const char *at = lg_string(c->t, pairs);

	while (*at && c->n_args < TL_ARGS - 1) {
		size_t n = strcspn(at, "\t");

		if (n)
			arg_pair(c, at, n);
		at += n + (at[n] != 0);
	}
	if (*at)
		tl_arg_static(c, "more", "...");
}

void tl_arg_thread(struct lg_timeline *c, const char *key, lg_thr thr)
{
	const struct lg_thread_tab *t = &c->t->thread;
	struct lg_tl_arg *a;

	if (!thr)
		return;
	a = arg(c, key);
	a->type = LG_ARG_STR;
	a->id = tl_id(TL_ID_THREAD, thr);
	a->s = c->thread_text[thr];
	if (!a->s) {
		char *text = c->text[a - c->args], pid[LG_PID_TEXT];

		snprintf(text, TL_TEXT, "%s %s tid %d", lg_string(c->t, t->comm[thr]),
			 lg_pid_text(c->t->process.pid[t->prc[thr]], pid), t->tid[thr]);
		a->s = keep(c, &c->thread_text[thr], text);
	}
}

void tl_arg_stack(struct lg_timeline *c, const char *key, lg_stk stk)
{
	struct lg_tl_arg *a;
	char *text, buf[TL_FRAME];
	size_t n = 0;

	if (!stk)
		return;
	a = arg(c, key);
	a->type = LG_ARG_STR;
	a->id = tl_id(TL_ID_STACK, stk);
	a->s = c->stack_text[stk];
	if (a->s)
		return;
	text = c->text[a - c->args];
	*text = 0;
	for (lg_stk s = stk; s; s = c->t->stack.parent[s]) {
		const char *frame;
		size_t len;

		if (n + TL_FRAME + 8 > TL_TEXT) {
			snprintf(text + n, TL_TEXT - n, " ...");
			break;
		}
		frame = tl_frame(c, c->t->stack.frame[s], buf, sizeof buf);
		len = strlen(frame);
		if (n) {
			memcpy(text + n, " < ", 3);
			n += 3;
		}
		memcpy(text + n, frame, len + 1);
		n += len;
	}
	a->s = keep(c, &c->stack_text[stk], text);
}

const char *tl_function(const struct lg_trace *t, lg_stk stk, char *buf, size_t size)
{
	*buf = 0;
	for (lg_stk s = stk; s; s = t->stack.parent[s]) {
		lg_frame_text(t, t->stack.frame[s], buf, size);
		if (!lg_is_plumbing(buf, LG_PLUMBING_SHOWN))
			return buf;
	}
	return stk ? lg_frame_text(t, t->stack.frame[stk], buf, size) : buf;
}

void tl_slice(struct lg_timeline *c, const struct lg_tl_track *t, int64_t ts, int64_t end,
	      const char *name, uint64_t name_id, const char *cat, const char *colour)
{
	tl_note_open(c, t, ts, end);
	c->sink->slice(c->self, &(struct lg_tl_event){ .track = t, .ts = ts, .end = end,
						       .name = name, .name_id = name_id,
						       .cat = cat, .colour = colour,
						       .args = c->args, .n_args = c->n_args });
}

void tl_instant(struct lg_timeline *c, const struct lg_tl_track *t, int64_t ts, const char *name,
		uint64_t name_id, const char *cat)
{
	c->sink->instant(c->self, &(struct lg_tl_event){ .track = t, .ts = ts, .end = ts, .name = name,
							 .name_id = name_id, .cat = cat, .args = c->args,
							 .n_args = c->n_args });
}

/* ---- nesting ---- */

int tl_item_add(struct lg_timeline *c, int64_t ts, int64_t end, uint32_t row, uint8_t rank)
{
	if (!tl_clip(c, &ts, &end))
		return 0;
	if (lg_grow(&c->items, &c->items_cap, c->n_items + 1, sizeof *c->items))
		return c->failed = LG_E_NOMEM;
	c->items[c->n_items++] = (struct tl_item){ .ts = ts, .end = end, .row = row, .rank = rank };
	return 0;
}

static int by_nesting(const void *pa, const void *pb)
{
	const struct tl_item *a = pa, *b = pb;

	if (a->overlap != b->overlap)
		return a->overlap < b->overlap ? -1 : 1;
	if (a->ts != b->ts)
		return a->ts < b->ts ? -1 : 1;
	if (a->end != b->end)
		return a->end > b->end ? -1 : 1;
	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	return a->row < b->row ? -1 : a->row > b->row;
}

/* Rows mostly come in order; a look is cheaper than a sort. */
static void sort_items(struct lg_timeline *c)
{
	for (size_t i = 1; i < c->n_items; i++) {
		if (by_nesting(&c->items[i - 1], &c->items[i]) > 0) {
			qsort(c->items, c->n_items, sizeof *c->items, by_nesting);
			return;
		}
	}
}

struct flat {
	int64_t end;
	uint32_t overlap;
};

static bool flat_less(const struct flat *a, const struct flat *b)
{
	return a->end != b->end ? a->end < b->end : a->overlap < b->overlap;
}

static void heap_down(struct flat *h, size_t n, size_t i)
{
	for (;;) {
		size_t k = 2 * i + 1;

		if (k >= n)
			return;
		if (k + 1 < n && flat_less(&h[k + 1], &h[k]))
			k++;
		if (!flat_less(&h[k], &h[i]))
			return;
		struct flat swap = h[i];

		h[i] = h[k];
		h[k] = swap;
		i = k;
	}
}

static void heap_up(struct flat *h, size_t i)
{
	while (i && flat_less(&h[i], &h[(i - 1) / 2])) {
		struct flat swap = h[i];

		h[i] = h[(i - 1) / 2];
		h[(i - 1) / 2] = swap;
		i = (i - 1) / 2;
	}
}

/*
 * I1  stack[] holds the ends of the open slices of overlap 0, each >= the next.
 * I2  heap[] holds one entry per flat track: when its last slice ends; smallest first, so that
 *     the number of flat tracks is the greatest number of overlapping slices (interval
 *     partitioning), in O(n log n) however many there are.
 */
int tl_deal(struct lg_timeline *c)
{
	struct flat *heap = NULL;
	int64_t *stack = NULL;
	size_t depth = 0, stack_cap = 0, n_heap = 0, heap_cap = 0;

	sort_items(c);
	for (size_t i = 0; i < c->n_items; i++) {
		struct tl_item *it = &c->items[i];

		while (depth && stack[depth - 1] <= it->ts)
			depth--;
		if (!depth || (stack[depth - 1] >= it->end && depth < TL_DEPTH)) {
			if (lg_grow(&stack, &stack_cap, depth + 1, sizeof *stack))
				goto nomem;
			stack[depth++] = it->end;
			continue;
		}
		if (n_heap && heap[0].end <= it->ts) {
			it->overlap = heap[0].overlap;
			heap[0].end = it->end;
			heap_down(heap, n_heap, 0);
			continue;
		}
		if (lg_grow(&heap, &heap_cap, n_heap + 1, sizeof *heap))
			goto nomem;
		it->overlap = (uint32_t)n_heap + 1;
		heap[n_heap] = (struct flat){ it->end, it->overlap };
		heap_up(heap, n_heap++);
	}
	if (n_heap)
		sort_items(c);
	lg_free(stack);
	lg_free(heap);
	return 0;
nomem:
	lg_free(stack);
	lg_free(heap);
	return c->failed = LG_E_NOMEM;
}

/* ---- what belongs to no thread ---- */

enum own { OWN_LOSSES = 1, OWN_FINDINGS };

/* A lane of the process that shows what we say ourselves. */
static struct lg_tl_track own_lane(struct lg_timeline *c, const char *what, enum own own, uint32_t overlap)
{
	struct lg_tl_track process = { .id = track_id(c, ID_OWN, 0, 0, 0), .kind = LG_TL_PROCESS,
				       .pid = PID_OWN, .tid = PID_OWN, .order = -1,
				       .name = "laggard: findings and losses" };
	struct lg_tl_track lane = { .id = track_id(c, ID_OWN, 0, own, overlap), .parent = process.id,
				    .kind = LG_TL_LANE, .pid = PID_OWN, .tid = PID_OWN,
				    .lane = LG_LANE_MAIN, .overlap = overlap, .order = own == OWN_LOSSES };
	char name[48];

	if (!c->own_known)
		c->sink->track(c->self, &process);
	c->own_known = true;
	snprintf(name, sizeof name, overlap ? "%s (%u)" : "%s", what, overlap + 1);
	lane.name = name;
	c->sink->track(c->self, &lane);
	lane.name = NULL;
	return lane;
}

/* What a finding rests on, moment by moment: those that its loss was added up from, else its evidence. */
struct rests_on {
	const struct lg_finding *f;
	const char *text; /* NULL = a part of the loss */
};

static bool rest(struct lg_timeline *c, struct rests_on **list, size_t *n, size_t *cap, struct rests_on on,
		 int64_t ts, int64_t dur)
{
	int64_t end;

	if (ts == INT64_MIN || dur < 0 || __builtin_add_overflow(ts, dur, &end))
		return true;
	if (lg_grow(list, cap, *n + 1, sizeof **list)) {
		c->failed = LG_E_NOMEM;
		return false;
	}
	(*list)[*n] = on;
	return !tl_item_add(c, ts, end, (uint32_t)(*n)++, on.text != NULL);
}

static void emit_finding(struct lg_timeline *c, const struct lg_tl_track *lane, const struct tl_item *it,
			 const struct rests_on *on)
{
	const struct lg_finding *f = on->f;

	tl_args_reset(c);
	tl_arg_str(c, "id", f->id);
	tl_arg_static(c, "severity", lg_severity_text(f->severity));
	if (f->lost_ms - f->lost_ms == 0)
		tl_arg_num(c, "lost_ms_in_all", f->lost_ms);
	if (on->text)
		tl_arg_str(c, "evidence", on->text);
	tl_slice(c, lane, it->ts, it->end, f->title, 0, "finding", "bad");
}

static void findings(struct lg_timeline *c)
{
	struct rests_on *list = NULL;
	struct lg_tl_track lane = { 0 };
	size_t n = 0, cap = 0;
	bool go_on = true;

	c->n_items = 0;
	for (size_t i = 0; c->v && i < c->v->n_findings && go_on; i++) {
		const struct lg_finding *f = &c->v->findings[i];

		for (size_t k = 0; k < f->n_moments && go_on; k++)
			go_on = rest(c, &list, &n, &cap, (struct rests_on){ f, NULL }, f->moments[k].ts,
				     f->moments[k].dur);
		for (size_t k = 0; k < f->n_evidence && go_on; k++)
			go_on = rest(c, &list, &n, &cap, (struct rests_on){ f, f->evidence[k].text },
				     f->evidence[k].ts, f->evidence[k].dur);
	}
	if (go_on && c->n_items && !tl_deal(c)) {
		for (size_t i = 0; i < c->n_items && !c->failed; i++) {
			if (!i || c->items[i].overlap != lane.overlap) {
				if (i)
					c->sink->track_end(c->self, &lane);
				lane = own_lane(c, "findings", OWN_FINDINGS, c->items[i].overlap);
			}
			emit_finding(c, &lane, &c->items[i], &list[c->items[i].row]);
		}
		c->sink->track_end(c->self, &lane);
	}
	lg_free(list);
}

static void losses(struct lg_timeline *c)
{
	const struct lg_diag_tab *d = &c->t->diag;
	struct lg_tl_track lane = { 0 };

	c->n_items = 0;
	for (size_t i = 0; i < d->n; i++) {
		int64_t ts = d->ts[i], end = lg_row_end(c->t, ts, d->dur[i]);

		/* A note without a moment of its own stands at the edge of the trace. */
		if (c->t->first <= c->t->last) {
			ts = ts < c->t->first ? c->t->first : ts > c->t->last ? c->t->last : ts;
			end = end < ts ? ts : end > c->t->last ? c->t->last : end;
		} else {
			ts = end = 0; /* a trace of notes alone has no time */
		}
		if (tl_item_add(c, ts, end, (uint32_t)i, 0))
			return;
	}
	if (!c->n_items || tl_deal(c))
		return;
	for (size_t i = 0; i < c->n_items && !c->failed; i++) {
		const struct tl_item *it = &c->items[i];
		uint32_t row = it->row;

		if (!i || it->overlap != lane.overlap) {
			if (i)
				c->sink->track_end(c->self, &lane);
			lane = own_lane(c, "losses", OWN_LOSSES, it->overlap);
		}
		tl_args_reset(c);
		tl_arg_int(c, "count", (int64_t)(d->count[row] > INT64_MAX ? INT64_MAX : d->count[row]));
		if (d->cpu[row] >= 0)
			tl_arg_int(c, "cpu", d->cpu[row]);
		if (d->text[row])
			tl_arg_str(c, "text", lg_string(c->t, d->text[row]));
		tl_slice(c, &lane, it->ts, it->end, lg_diag_sentence(d->id[row]), 0, "loss", "terrible");
	}
	c->sink->track_end(c->self, &lane);
}

const char *tl_track_name(const struct lg_timeline *c, lg_trk id, const char *none, char *buf, size_t size)
{
	const struct lg_track_tab *tr = &c->t->track;
	const char *own = tr->name[id] ? lg_string(c->t, tr->name[id]) : none;
	lg_str over = tr->parent[id] != id ? tr->name[tr->parent[id]] : 0;

	if (over)
		snprintf(buf, size, "%.100s %.200s", lg_string(c->t, over), own);
	else if (tr->kind[id] == LG_TRACK_COUNTER && tr->index[id] >= 0) /* the CPU's */
		snprintf(buf, size, "%.200s %d", own, tr->index[id]);
	else
		snprintf(buf, size, "%.200s", own);
	return buf;
}

static void counters(struct lg_timeline *c)
{
	const struct lg_counter_tab *k = &c->t->counter;
	const struct lg_track_tab *tr = &c->t->track;
	uint8_t *known = lg_calloc(tr->n + 1, 1);

	if (!known) {
		c->failed = LG_E_NOMEM;
		return;
	}
	for (size_t i = 0; i < k->n && !c->failed; i++) {
		lg_trk id = k->track[i];
		struct lg_tl_track process, track;
		char name[TL_FRAME];

		/* JSON holds no NaN or infinity, and a hole in the curve says the same. */
		if (k->ts[i] < c->w.from || k->ts[i] >= c->w.to || !(k->value[i] - k->value[i] == 0))
			continue;
		tl_process_track(c, tr->prc[id], &process);
		track = (struct lg_tl_track){
			.id = track_id(c, ID_TRACK, id, 0, 0), .parent = process.id,
			.kind = LG_TL_COUNTER, .pid = process.pid, .tid = process.pid,
			.name = tl_track_name(c, id, "counter", name, sizeof name),
			.unit = lg_string(c->t, tr->unit[id]), .order = (int32_t)(id & 0xffffff) };
		if (!known[id]) {
			known[id] = 1;
			c->sink->track(c->self, &track);
		}
		c->sink->counter(c->self, &track, k->ts[i], k->value[i]);
	}
	lg_free(known);
}

static void marks(struct lg_timeline *c)
{
	const struct lg_mark_tab *m = &c->t->mark;

	for (size_t i = 0; i < m->n && !c->failed; i++) {
		struct lg_tl_track track;

		if (m->ts[i] < c->w.from || m->ts[i] >= c->w.to)
			continue;
		tl_thread_track(c, m->thr[i], LG_LANE_MAIN, 0, &track);
		tl_args_reset(c);
		if (m->value[i])
			tl_arg_int(c, "value", m->value[i]);
		if (m->text[i])
			tl_arg_str(c, "text", lg_string(c->t, m->text[i]));
		tl_instant(c, &track, m->ts[i], m->name[i] ? lg_string(c->t, m->name[i]) : "mark",
			   m->name[i] ? tl_id(TL_ID_POOL, m->name[i]) : 0, "mark");
	}
}

/* Steps as judged, and for the slow ones the pieces of their account. */
static void verdict_lane(struct lg_timeline *c, size_t first, size_t n)
{
	static const char *const kinds[] = { "running", "runnable", "blocked", "unexplained" };
	static const char *const colours[] = { "thread_state_running", "thread_state_runnable",
					       "thread_state_uninterruptible", "grey" };
	static const char *const causes[] = { "", "lock", "cpu", "running", "io", "stopped", "other" };
	const struct lg_verdict *v = c->v;
	lg_thr thr = v->steps[first].thr;
	struct lg_tl_track track = { 0 };
	int64_t done = INT64_MIN;
	char name[256];

	for (size_t i = first; i < first + n; i++) {
		const struct lg_step *s = &v->steps[i];
		int64_t ts = s->ts, end = s->ts + s->dur;

		if (!tl_clip(c, &ts, &end) || ts < done)
			continue;
		done = end;
		tl_thread_track(c, thr, LG_LANE_VERDICT, 0, &track);
		snprintf(name, sizeof name, "step %lld%s", (long long)s->number,
			 s->warmup ? " (warm-up)" : s->slow ? " (slow)" : "");
		tl_args_reset(c);
		tl_arg_num(c, "median_ms", (double)s->median / 1e6);
		if (s->rank >= 0)
			tl_arg_int(c, "rank", s->rank);
		tl_slice(c, &track, ts, end, name, 0, "step", s->slow ? "terrible" : "good");
		for (uint32_t k = 0; s->slow && k < s->n_parts && s->part_first + k < v->n_parts; k++) {
			const struct lg_part *p = &v->parts[s->part_first + k];
			int64_t a = p->ts, b = p->ts + p->dur;
			const struct lg_cause *cause = p->cause && p->cause < v->n_causes ?
						       &v->causes[p->cause] : NULL;
			unsigned kind = p->kind < 4 ? p->kind : LG_PART_UNEXPLAINED;

			if (!tl_clip(c, &a, &b) || a < ts || b > end)
				continue;
			tl_args_reset(c);
			tl_arg_str(c, "stage", lg_stage_name(p->stage));
			tl_arg_thread(c, "by", p->by);
			if (cause) {
				tl_arg_str(c, "cause", causes[cause->kind < 7 ? cause->kind : 6]);
				tl_arg_thread(c, "culprit", cause->thr);
				if (cause->lock)
					tl_arg_str(c, "lock", lg_string(c->t, cause->lock));
			}
			tl_slice(c, &track, a, b, kinds[kind], 0, "account", colours[kind]);
		}
	}
	if (track.id)
		c->sink->track_end(c->self, &track);
}

static void verdict_lanes(struct lg_timeline *c)
{
	/* Steps are sorted by (rank, ts): a thread's steps are runs; one thread may have several
	 * (restarted under another rank) and then only its first run is drawn as a lane. */
	for (size_t i = 0, n; c->v && i < c->v->n_steps && !c->failed; i += n) {
		lg_thr thr = c->v->steps[i].thr;

		for (n = 1; i + n < c->v->n_steps && c->v->steps[i + n].thr == thr; n++)
			;
		if (thr && !(c->lane_known[thr] & 1u << LG_LANE_VERDICT))
			verdict_lane(c, i, n);
	}
}

static int init(struct lg_timeline *c, struct lg_error *err)
{
	const struct lg_process_tab *p = &c->t->process;
	int rc = c->v ? 0 : lg_index_new(&c->own_x, c->t, err);

	if (rc)
		return rc;
	c->x = c->v ? c->v->index : c->own_x;
	c->file = file_of(c->t);
	c->batch_size = TL_FIRST_BATCH;
	c->pid = lg_calloc(p->n + 1, sizeof *c->pid);
	c->tid = lg_calloc(c->t->thread.n + 1, sizeof *c->tid);
	c->lane_known = lg_calloc(c->t->thread.n + 1, 1);
	c->frame_text = lg_calloc(c->t->frame.n + 1, sizeof *c->frame_text);
	c->source_text = lg_calloc(c->t->frame.n + 1, sizeof *c->source_text);
	c->stack_text = lg_calloc(c->t->stack.n + 1, sizeof *c->stack_text);
	c->thread_text = lg_calloc(c->t->thread.n + 1, sizeof *c->thread_text);
	c->frame_known = lg_calloc(c->t->frame.n + 1, 1);
	c->stack_known = lg_calloc(c->t->stack.n + 1, 1);
	if (!c->frame_known || !c->stack_known || !c->pid || !c->tid || !c->lane_known || !c->frame_text ||
	    !c->source_text || !c->stack_text || !c->thread_text)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	for (size_t i = 0; i <= p->n; i++)
		c->pid[i] = INT64_MIN;
	for (size_t i = 1, seen = 0; i < p->n; i++) {
		if (p->host[i] && seen && p->host[i] != seen)
			c->many_hosts = true;
		seen = p->host[i] ? p->host[i] : seen;
	}
	for (size_t i = 1; i < p->n; i++)
		if (p->mm[i] && lg_map_set(&c->mm_owner, p->mm[i], (uint32_t)i))
			return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	return 0;
}

int lg_timeline(const struct lg_trace *t, const struct lg_verdict *v, const struct lg_window *w,
		const struct lg_tl_sink *sink, void *self, struct lg_error *err)
{
	struct lg_timeline *c = lg_calloc(1, sizeof *c);
	int rc;

	if (!c)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	c->t = t;
	c->v = v;
	c->w = *w;
	c->sink = sink;
	c->self = self;
	rc = init(c, err);
	if (!rc) {
		c->period = tl_sample_period(c);
		findings(c);
		losses(c);
		verdict_lanes(c);
		for (lg_thr thr = 1; thr < t->thread.n && !c->failed; thr++) {
			tl_spans(c, thr);
			tl_states(c, thr);
			tl_samples(c, thr);
		}
		tl_batch_write(c, true);
		tl_track_spans(c);
		marks(c);
		counters(c);
		tl_flows(c);
		if (c->failed)
			rc = lg_fail(err, c->failed, LG_NO_OFFSET, "%s", lg_error_text(c->failed));
	}
	lg_index_free(c->own_x);
	lg_map_done(&c->pid_taken);
	lg_map_done(&c->tid_taken);
	lg_map_done(&c->mm_owner);
	lg_map_done(&c->launch);
	lg_map_done(&c->opens_of);
	lg_free(c->opens);
	lg_free(c->open);
	lg_free(c->items);
	for (size_t i = 0; i < 2; i++)
		lg_free(c->batch[i].part);
	lg_free(c->frame_known);
	lg_free(c->stack_known);
	lg_free(c->pid);
	lg_free(c->tid);
	lg_free(c->lane_known);
	lg_free(c->frame_text);
	lg_free(c->source_text);
	lg_free(c->stack_text);
	lg_free(c->thread_text);
	lg_arena_done(&c->texts);
	lg_free(c);
	return rc;
}
