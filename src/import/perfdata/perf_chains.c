/* SPDX-License-Identifier: Apache-2.0 */
#include "import/perfdata/perf_chains.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/alloc.h"
#include "symbols/unwind.h"

enum {
	LEAF = 0x80,       /* tag: not a return address */
	DEPTH_MAX = 4096,  /* kernel.perf_event_max_stack is 127, a record holds 8000 */
	SEGMENTS_MAX = 8
};

void lg_pd_tasks_done(struct lg_pd_tasks *t)
{
	for (size_t i = 0; i < t->n; i++)
		lg_free(t->task[i].link);
	lg_free(t->task);
	lg_free(t->step);
	lg_free(t->known);
	lg_pd_buckets_done(&t->callers);
	t->known = NULL;
	t->n_known = 0;
	lg_plumbing_done(&t->plumbing);
	t->step = NULL;
	lg_map_done(&t->by_tid);
	lg_unwinder_free(t->unwinder);
	lg_free(t->unwound);
	t->task = NULL;
	t->n = t->cap = 0;
}

struct lg_pd_task *lg_pd_task_find(struct lg_pd_tasks *t, int32_t tid)
{
	size_t k = (uint32_t)tid % 64;
	uint32_t i;

	if (t->recent[k].tid == tid && t->recent[k].i)
		return &t->task[t->recent[k].i - 1];
	i = lg_map_get(&t->by_tid, (uint32_t)tid);
	if (!i)
		return NULL;
	t->recent[k].tid = tid;
	t->recent[k].i = i;
	return &t->task[i - 1];
}

static struct lg_pd_task *task_new(struct lg_pd_tasks *t, int32_t pid, int32_t tid, lg_thr thr)
{
	struct lg_pd_task *task = lg_pd_task_find(t, tid);

	if (!task) {
		if (lg_grow(&t->task, &t->cap, t->n + 1, sizeof *t->task) ||
		    lg_map_set(&t->by_tid, (uint32_t)tid, (uint32_t)t->n + 1))
			return NULL;
		task = &t->task[t->n++];
		*task = (struct lg_pd_task){ 0 };
	}
	if (task->n_lives++ && !task->ended)
		t->code->spaces.space[task->space].live--; /* its exit was not told */
	task->pid = pid;
	task->tid = tid;
	task->thr = thr;
	task->space = lg_pd_space_of(&t->code->spaces, pid);
	if (t->code->spaces.failed)
		return NULL;
	t->code->spaces.space[task->space].live++;
	task->syscall_ts = INT64_MIN;
	task->turn = (struct lg_pd_turn){ .since = INT64_MIN, .cpu = -1, .doing = LG_STATE_NONE };
	task->ended = false;
	task->n = 0;
	return task;
}

struct lg_pd_task *lg_pd_task_get(struct lg_pd_tasks *t, int32_t pid, int32_t tid)
{
	struct lg_pd_task *task = lg_pd_task_find(t, tid);
	lg_thr thr;

	/*
	 * What comes after the exit record (the last switch, samples of the way out) still
	 * belongs to that life: a new one begins with a fork record only, or under another pid.
	 * Old kernels give a dying thread's events pid or tid -1.
	 */
	if (task && (pid < 0 || task->pid == pid))
		return task;
	if (tid < 0) /* gone already when the event came: nobody's */
		return task ? task : task_new(t, pid, tid, 0);
	thr = lg_thread_get(t->b, pid, tid);
	return task_new(t, pid < 0 ? tid : pid, tid, thr);
}

struct lg_pd_task *lg_pd_task_fork(struct lg_pd_tasks *t, int32_t ppid, int32_t pid, int32_t tid,
				   int64_t ts)
{
	return task_new(t, pid, tid, lg_thread_start(t->b, ppid, pid, tid, ts));
}

void lg_pd_task_exit(struct lg_pd_tasks *t, int32_t tid, int64_t ts)
{
	struct lg_pd_task *task = lg_pd_task_find(t, tid);

	lg_thread_end(t->b, tid, ts);
	if (!task || task->ended)
		return;
	task->ended = true;
	/* The last thread took the address space with it. */
	if (--t->code->spaces.space[task->space].live <= 0)
		lg_pd_space_clear(&t->code->spaces, task->pid);
	lg_free(task->link);
	task->link = NULL;
	task->n = task->cap = 0;
}

struct segment {
	size_t first, end; /* of the chain, innermost first */
	enum lg_pd_context ctx;
};

static enum lg_pd_context context_of_misc(uint16_t misc)
{
	switch (misc & PDM_CPUMODE) {
	case PDM_KERNEL:
		return LG_PD_KERNEL;
	case PDM_HYPERVISOR:
		return LG_PD_HYPERVISOR;
	case PDM_GUEST_KERNEL:
		return LG_PD_GUEST_KERNEL;
	case PDM_GUEST_USER:
		return LG_PD_GUEST_USER;
	default:
		return LG_PD_USER;
	}
}

/* Cut the chain at its context markers. */
static size_t segments_of(const struct lg_pd_sample *s, bool swap, enum lg_pd_context ctx,
			  struct segment seg[SEGMENTS_MAX])
{
	size_t n = 0, first = 0;

	for (size_t i = 0; i <= s->n_chain; i++) {
		uint64_t v = i < s->n_chain ? pd_u64(s->chain + 8 * i, swap) : PDC_MAX;

		if (__builtin_expect(v < PDC_MAX, 1))
			continue;
		if (i > first && n < SEGMENTS_MAX)
			seg[n++] = (struct segment){ first, i, ctx };
		first = i + 1;
		switch (v) {
		case PDC_USER:
			ctx = LG_PD_USER;
			break;
		case PDC_KERNEL:
			ctx = LG_PD_KERNEL;
			break;
		case PDC_GUEST_KERNEL:
			ctx = LG_PD_GUEST_KERNEL;
			break;
		case PDC_GUEST_USER:
			ctx = LG_PD_GUEST_USER;
			break;
		case PDC_USER_DEFERRED:
			return n; /* a cookie follows, not an address */
		case (uint64_t)-32: /* PERF_CONTEXT_HV */
			ctx = LG_PD_HYPERVISOR;
			break;
		default:
			break; /* PERF_CONTEXT_GUEST, and PDC_MAX at the end */
		}
	}
	return n;
}

static int reserve(struct lg_pd_task *task, size_t n)
{
	return n <= task->cap ? 0 : lg_grow(&task->link, &task->cap, n, sizeof *task->link);
}

/* Had the thread's last chain this address at this position (outermost = 0)? */
static inline bool same(const struct lg_pd_task *task, size_t at, uint64_t ip, uint8_t tag)
{
	return at < task->n && task->link[at].ip == ip && task->link[at].tag == tag;
}

static uint64_t version_of(const struct lg_pd_tasks *t, const struct lg_pd_task *task)
{
	return (uint64_t)t->code->kernel_version << 32 | t->code->spaces.space[task->space].version;
}

/* A caller's address is where it goes on: the call is just before it. */
static uint64_t called_at(const struct lg_pd_tasks *t, uint64_t ip, uint8_t tag)
{
	return ip - (tag & LEAF || t->exact_callers ? 0 : 1);
}

/* What the frame of an address is known by, with that of its callers. */
static inline uint64_t step_key(const struct lg_pd_tasks *t, const struct lg_pd_task *task, uint64_t callers,
				uint64_t ip, uint8_t tag)
{
	enum lg_pd_context ctx = tag & (LEAF - 1);
	uint64_t addr = called_at(t, ip, tag), version = 0;
	/* Processes that run one program have their frames in common. */
	uint64_t place = ctx == LG_PD_USER ? lg_pd_code_place(t->code, task->space, addr) : 0;

	if (place && tag & LEAF) { /* most of what is new is new there */
		lg_pd_code_ahead(t->code, place);
	} else if (!place) {
		place = addr;
		version = ctx == LG_PD_USER ? t->code->spaces.space[task->space].version
					    : t->code->kernel_version;
	}
	return lg_mix64(callers ^ place) + (version << 3 | ctx) * 0x9e3779b97f4a7c15u;
}

static inline struct lg_pd_step *step_at(struct lg_pd_tasks *t, uint64_t key)
{
	return &t->step[(key * 0x9e3779b97f4a7c15u) >> (64 - LG_PD_STEPS_BITS)];
}

static inline lg_stk step_known(struct lg_pd_tasks *t, uint64_t key)
{
	const struct lg_pd_step *e = step_at(t, key);

	return e->key == key ? e->stk : 0;
}

/* One frame further in. */
static lg_stk step(struct lg_pd_tasks *t, const struct lg_pd_task *task, lg_stk parent, uint64_t key,
		   uint64_t ip, uint8_t tag)
{
	const struct lg_trace *trace = lg_builder_trace(t->b);
	lg_stk stk = parent;
	lg_frm f = lg_pd_code_frame(t->code, tag & (LEAF - 1), task->space, called_at(t, ip, tag));

	/* A run of addresses that lie nowhere is one unknown frame. */
	if (f != t->code->unknown || !parent || trace->stack.frame[parent] != f)
		stk = lg_intern_stack(t->b, parent, f);
	/* --inline: what was inlined there, outermost first. */
	for (size_t k = 0; k < t->code->n_here; k++)
		stk = lg_intern_stack(t->b, stk, t->code->here[k]);
	/* The look-up itself may have loaded kernel symbols: the key is of before. */
	*step_at(t, key) = (struct lg_pd_step){ key, stk };
	return stk;
}

/*
 * First the keys of all addresses that the thread's last chain did not have, so that what they lead to is
 * on its way from memory together; then from the innermost one outwards, until one is known; and back.
 */
static lg_stk walk(struct lg_pd_tasks *t, struct lg_pd_task *task, const struct lg_pd_sample *s,
		   const struct segment *seg, size_t n_seg)
{
	uint64_t version = version_of(t, task), key = 0;
	size_t n = 0, known;
	bool shared = task->version == version;

	task->version = version;
	for (size_t g = n_seg; g-- > 0;) {
		for (size_t i = seg[g].end; i-- > seg[g].first;) {
			uint64_t ip = pd_u64(s->chain + 8 * i, t->swap);
			uint8_t tag = (uint8_t)(seg[g].ctx | (i == seg[g].first ? LEAF : 0));

			if (shared && same(task, n, ip, tag)) {
				key = task->link[n++].key;
				continue;
			}
			shared = false;
			if (n >= DEPTH_MAX) {
				t->cut++;
				goto out;
			}
			if (__builtin_expect(n >= task->cap, 0) && reserve(task, n + 16)) {
				t->code->spaces.failed = LG_E_NOMEM;
				goto out;
			}
			key = step_key(t, task, key, ip, tag);
			__builtin_prefetch(step_at(t, key));
			task->link[n++] = (struct lg_pd_link){ ip, key, 0, tag };
		}
	}
out:
	task->n = n;
	for (known = n; known; known--) {
		struct lg_pd_link *l = &task->link[known - 1];

		if (l->stk || (l->stk = step_known(t, l->key)))
			break;
	}
	for (; known < n; known++) {
		struct lg_pd_link *l = &task->link[known];

		l->stk = step(t, task, known ? l[-1].stk : 0, l->key, l->ip, l->tag);
	}
	return n ? task->link[n - 1].stk : 0;
}

struct place {
	struct lg_pd_code *code;
	uint32_t space;
};

static bool find_map(void *self, uint64_t addr, struct lg_unwind_map *ret)
{
	const struct place *at = self;

	return lg_pd_code_map(at->code, at->space, addr, ret);
}

static uint64_t *room_for_chain(struct lg_pd_tasks *t)
{
	if (!t->unwound)
		t->unwound = lg_calloc(2 * DEPTH_MAX + SEGMENTS_MAX + 2, sizeof *t->unwound);
	return t->unwound;
}

/*
 * A pipe may not tell its machine. Which registers were taken does: perf asks for all that there are of a
 * program (PERF_REGS_MASK of tools/perf/arch), and no two machines of 64 bits have the same. Bit 46 is the
 * length of Arm's vectors, where there are some.
 */
static enum lg_machine machine_of(const char *arch, const struct lg_pd_sample *s)
{
	const uint64_t x86_64 = 0xff0fff, aarch64 = 0x1ffffffff;

	if (*arch || s->regs_abi != 2)
		return lg_machine_of(arch);
	return s->regs_mask == x86_64 ? LG_MACHINE_X86_64
	       : (s->regs_mask & ~(1ull << 46)) == aarch64 ? LG_MACHINE_AARCH64
							   : LG_MACHINE_NONE;
}

/*
 * A sample with user registers and a copy of the stack (--call-graph dwarf): its user callers are
 * found here and take the place of what the kernel put there. The kernel part stays.
 */
static bool unwind(struct lg_pd_tasks *t, struct lg_pd_task *task, struct lg_pd_sample *s,
		   enum lg_pd_context ctx)
{
	struct place at = { t->code, task->space };
	struct segment seg[SEGMENTS_MAX];
	struct lg_unwind_regs regs;
	enum lg_machine machine = machine_of(t->code->h->arch, s);
	size_t n = 0, n_seg = segments_of(s, t->swap, ctx, seg), user;
	bool whole;

	/* PERF_SAMPLE_REGS_ABI_32: a 32-bit program, whatever the machine */
	if (s->regs_abi == 1)
		machine = lg_machine_32(machine);
	if (t->swap || (s->regs_abi != 2 && s->regs_abi != 1) ||
	    !lg_unwind_regs_of_perf(&regs, machine, s->regs_mask, s->regs, s->n_regs)) {
		t->n_no_unwind++;
		return false;
	}
	if (!t->unwinder && lg_unwinder_new(&t->unwinder, NULL))
		return false;
	if (!room_for_chain(t))
		return false;
	for (size_t g = 0; g < n_seg; g++) {
		if (seg[g].ctx != LG_PD_KERNEL)
			continue;
		t->unwound[n++] = PDC_KERNEL;
		for (size_t i = seg[g].first; i < seg[g].end && n < DEPTH_MAX; i++)
			t->unwound[n++] = pd_u64(s->chain + 8 * i, false);
	}
	if (!n && ctx == LG_PD_KERNEL && s->ip) {
		t->unwound[n++] = PDC_KERNEL;
		t->unwound[n++] = s->ip;
	}
	t->unwound[n++] = PDC_USER;
	user = lg_unwind(t->unwinder, &regs, s->stack, s->n_stack, find_map, &at, t->unwound + n,
			 DEPTH_MAX - 1, &whole);
	t->n_unwound++;
	t->n_part += !whole;
	s->chain = (const uint8_t *)t->unwound;
	s->n_chain = n + user;
	return true;
}

/*
 * --call-graph lbr: the processor kept the calls that have not returned. They take the place of the user
 * part, as in resolve_lbr_callchain_sample() of tools/perf/util/machine.c: where the innermost call went, and
 * where each came from. That is the call itself, not where it returns to.
 */
static bool take_calls(struct lg_pd_tasks *t, struct lg_pd_sample *s)
{
	uint64_t exact = t->exact_callers ? 0 : 1, *to;
	size_t user = 0, n;

	while (user < s->n_chain && pd_u64(s->chain + 8 * user, t->swap) != PDC_USER)
		user++;
	if (user == s->n_chain || user >= DEPTH_MAX || s->n_calls > DEPTH_MAX || !room_for_chain(t))
		return false;
	to = t->unwound;
	memcpy(to, s->chain, 8 * (user + 1));
	n = user + 1;
	memcpy(&to[n++], s->calls + 8, 8);
	for (size_t i = 0; i < s->n_calls; i++) {
		uint64_t from = pd_u64(s->calls + 24 * i, t->swap) + exact;

		to[n++] = t->swap ? __builtin_bswap64(from) : from;
	}
	s->chain = (const uint8_t *)to;
	s->n_chain = n;
	return true;
}

/* Where the chain was found with the same number and nothing was forgotten since; 0 = not known. */
static lg_stk known_by(const struct lg_pd_tasks *t, struct lg_pd_number n)
{
	return n.i < t->n_known && t->known[n.i].check == (n.check ^ t->known_since) ? t->known[n.i].stk : 0;
}

/* Forgetting is always allowed: nothing to report when there is no memory for more. */
static void keep(struct lg_pd_tasks *t, struct lg_pd_number n, lg_stk stk)
{
	size_t old = t->n_known;

	if (!n.i)
		return;
	if (n.i >= old) {
		if (lg_grow(&t->known, &t->n_known, (size_t)n.i + 1, sizeof *t->known))
			return;
		memset(t->known + old, 0, (t->n_known - old) * sizeof *t->known);
	}
	t->known[n.i] = (struct lg_pd_known){ stk, n.check ^ t->known_since };
}

void lg_pd_known_ahead(const struct lg_pd_tasks *t, const struct lg_pd_seen *seen)
{
	if (seen->whole.i < t->n_known)
		__builtin_prefetch(&t->known[seen->whole.i]);
}

/*
 * How many addresses the innermost one has for callers: 0 where it is alone or what comes next is of
 * another kind of code, and where the chain begins in a rare one (hypervisor, guest).
 */
static size_t callers_of(const uint8_t *chain, size_t n, bool swap)
{
	uint64_t first = pd_u64(chain, swap);
	size_t leaf = first >= PDC_MAX;

	if ((leaf && first != PDC_USER && first != PDC_KERNEL) || n < leaf + 2 ||
	    pd_u64(chain + 8 * leaf, swap) >= PDC_MAX || pd_u64(chain + 8 * (leaf + 1), swap) >= PDC_MAX)
		return 0;
	return n - leaf - 1;
}

void lg_pd_callers_ahead(struct lg_pd_tasks *t, const uint8_t *chain, size_t n, uint64_t version, size_t slot)
{
	size_t callers = callers_of(chain, n, t->swap);
	XXH128_hash_t h;

	t->called_by[slot].any = callers && t->callers.room;
	if (!t->called_by[slot].any)
		return;
	h = XXH3_128bits(chain + 8 * (n - callers), 8 * callers);
	t->called_by[slot].tag = h.low64 ^ lg_mix64(version);
	t->called_by[slot].place = (uint32_t)h.high64;
	lg_pd_buckets_fetch(&t->callers, (uint32_t)h.high64);
}

/* What addresses mean may have changed without a record of it. */
static uint64_t callers_tag(const struct lg_pd_tasks *t)
{
	return t->called_by[t->slot].tag ^ t->known_since;
}

static lg_stk known_callers(const struct lg_pd_tasks *t)
{
	return lg_pd_buckets_find(&t->callers, callers_tag(t), t->called_by[t->slot].place);
}

static void keep_callers(struct lg_pd_tasks *t, lg_stk stk)
{
	bool known;

	if (stk)
		*lg_pd_buckets_put(&t->callers, callers_tag(t), t->called_by[t->slot].place, &known) = stk;
}

static void now_at(struct lg_pd_tasks *t, uint64_t time)
{
	t->code->now = time;
	if (__builtin_expect(time >= t->code->reuse_at, 0) && t->code->reuse_at != UINT64_MAX) {
		lg_pd_code_reused(t->code);
		t->known_since += 0x9e3779b9;
	}
}

lg_stk lg_pd_stack_known(struct lg_pd_tasks *t, uint64_t time, const struct lg_pd_seen *seen)
{
	now_at(t, time);
	return known_by(t, seen->whole);
}

/* Of a chain whose callers are known. */
static lg_stk with_callers(struct lg_pd_tasks *t, const struct lg_pd_task *task, const struct lg_pd_sample *s,
			   enum lg_pd_context ctx, lg_stk callers)
{
	uint64_t ip = pd_u64(s->chain, t->swap), key;
	uint8_t tag;
	lg_stk stk;

	if (ip >= PDC_MAX) {
		ctx = ip == PDC_USER ? LG_PD_USER : LG_PD_KERNEL;
		ip = pd_u64(s->chain + 8, t->swap);
	}
	tag = (uint8_t)(ctx | LEAF);
	key = step_key(t, task, lg_mix64(callers), ip, tag);
	stk = step_known(t, key);
	return stk ? stk : step(t, task, callers, key, ip, tag);
}

/* By its number, or from its callers and the innermost address, or anew. */
static lg_stk any_chain(struct lg_pd_tasks *t, struct lg_pd_task *task, const struct lg_pd_sample *s,
			enum lg_pd_context ctx, const struct lg_pd_seen *seen)
{
	uint64_t cut = t->cut;
	struct segment seg[SEGMENTS_MAX];
	size_t n;
	lg_stk stk = known_by(t, seen->whole);
	bool called = seen->fresh && t->called_by[t->slot].any;

	if (stk)
		return stk;
	stk = called ? known_callers(t) : 0;
	if (stk) {
		stk = with_callers(t, task, s, ctx, stk);
		keep(t, seen->whole, stk);
		return stk;
	}
	n = segments_of(s, t->swap, ctx, seg);
	if (!n)
		return 0;
	stk = walk(t, task, s, seg, n);
	/* One that is too long is counted each time. */
	if (t->cut != cut)
		return stk;
	keep(t, seen->whole, stk);
	if (called && task->n > 1) {
		const struct lg_pd_link *l = &task->link[task->n - 2];

		keep_callers(t, l->stk ? l->stk : step_known(t, l->key));
	}
	return stk;
}

lg_stk lg_pd_stack_of(struct lg_pd_tasks *t, struct lg_pd_task *task, const struct lg_pd_sample *s,
		      uint16_t misc, const struct lg_pd_seen *seen)
{
	static const struct lg_pd_seen never;
	enum lg_pd_context ctx = context_of_misc(misc);
	struct lg_pd_sample own;
	lg_stk stk;

	now_at(t, s->time);
	if (__builtin_expect(!t->step, 0)) {
		t->step = lg_calloc_table(1 << LG_PD_STEPS_BITS, sizeof *t->step);
		if (!t->step)
			return 0;
		/* Without memory for it nobody's callers are known. */
		(void)lg_pd_buckets_init(&t->callers);
	}
	if (__builtin_expect((s->regs && s->n_stack) || s->n_calls, 0)) {
		own = *s;
		if (s->n_calls ? take_calls(t, &own) : unwind(t, task, &own, ctx))
			s = &own;
		seen = &never; /* it was of the record's chain */
	}
	stk = s->n_chain ? any_chain(t, task, s, ctx, seen) : 0;
	if (stk || !s->ip)
		return stk;
	stk = lg_intern_stack(t->b, 0, lg_pd_code_frame(t->code, ctx, task->space, s->ip));
	for (size_t k = 0; k < t->code->n_here; k++)
		stk = lg_intern_stack(t->b, stk, t->code->here[k]);
	return stk;
}
