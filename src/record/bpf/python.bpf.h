/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * python.bpf.h - the frames of CPython's interpreter, read in the thread's own context.
 * Part of laggard.bpf.c.
 *
 * Only addresses and small numbers leave the kernel; what they are called is looked up later (python_code.c).
 * Nothing can be paged in from here: a frame whose page is not there ends the walk, which loses callers.
 */
#ifndef LG_PYTHON_BPF_H
#define LG_PYTHON_BPF_H

/* Since Linux 6.3 a sample has its time before the program runs, and its frames are to be there before it. */
#define BEFORE_SAMPLE_NS 20000
/* nptl/descr.h of glibc: the kernel's number of the thread, in what its thread-local storage begins with. */
#define GLIBC_TID_AT 0x2d0

static __always_inline __u64 user_word(__u64 at)
{
	__u64 v = 0;

	bpf_probe_read_user(&v, sizeof(v), (void *)at);
	return v;
}

static __always_inline __u64 thread_base(struct task_struct *t)
{
	struct task_struct___x86 *x86 = (void *)t;

	return bpf_core_field_exists(x86->thread.fsbase) ? x86->thread.fsbase : 0;
}

/* Of the current thread; 0 = it has none. */
static __always_inline __u64 python_state(const struct lg_bpf_python_layout *l, struct task_struct *t,
					  struct thread *th)
{
	__u64 base, state;

	/* A main thread's is there for as long as its program. */
	if (th->python_state && th->tid == th->tgid)
		return th->python_state;
	base = thread_base(t);
	state = base ? user_word(base + (__s64)l->tls) : 0;
	if (!state || state == th->python_state)
		return state;
	/* A state that says it is another thread's is none, or the layout is not this build's. */
	if (user_word(state + l->state_pthread) != base)
		return 0;
	return th->python_state = state;
}

/* The innermost frame of that state's thread; 0 = it runs no Python. */
static __always_inline __u64 python_innermost(const struct lg_bpf_python_layout *l, __u64 state)
{
	__u64 frame;

	if (!state)
		return 0;
	frame = user_word(state + l->state_frame);
	if (l->frame_behind != LG_BPF_PYTHON_DIRECT && frame)
		frame = user_word(frame + l->frame_behind);
	return frame;
}

/*
 * ---- the interpreter's lock. What a thread waits for is told by the address of its futex, which lies in the
 * lock: the C library's condition and mutex are there (glibc: their words are among the first bytes of each).
 */
struct gil {
	__u64 holder;
	__u32 locked, zero;
};

static __always_inline bool has_gil(const struct gil *g, __u64 state)
{
	return state && g->holder == state && g->locked == 1;
}

static __always_inline bool read_gil(const struct thread *th, struct gil *ret)
{
	return th->gil && !bpf_probe_read_user(ret, sizeof(*ret), (void *)(th->gil + LG_BPF_GIL_HOLDER));
}

/* The word that the current thread's futex() is about; 0 = it is in no such call. */
static __always_inline __u64 futex_word(struct task_struct *t)
{
	struct pt_regs___x86 *regs = (void *)bpf_task_pt_regs(t);
	struct pt_regs___arm64 *arm = (void *)regs;

	if (bpf_core_field_exists(regs->orig_ax))
		return regs->orig_ax == 202 ? regs->di : 0;
	if (bpf_core_field_exists(arm->syscallno))
		return arm->syscallno == 98 ? arm->orig_x0 : 0;
	return 0;
}

/* A thread goes to sleep: has it the lock, or does it wait for it? state: its own, 0 = it has none. */
static __always_inline void gil_sleeps(struct thread *th, struct task_struct *t,
				       const struct lg_bpf_python_layout *l, __u64 state)
{
	bool waits = futex_word(t) - th->gil - LG_BPF_GIL_COND < LG_BPF_GIL_BYTES - LG_BPF_GIL_COND;
	struct gil g = {};
	__u64 base;

	if ((!waits && !state) || !read_gil(th, &g))
		return;
	if (has_gil(&g, state)) {
		th->gil_is = LG_BPF_GIL_HELD;
	} else if (waits) {
		th->gil_is = LG_BPF_GIL_WAIT;
		base = l && g.locked == 1 && g.holder ? user_word(g.holder + l->state_pthread) : 0;
		th->gil_holder = base ? (__u32)user_word(base + GLIBC_TID_AT) : 0;
	}
}

struct python_frames {
	__u64 v[LG_BPF_PYTHON_FRAMES];
};

/*
 * What was read of the thread's frames. One on each CPU: switches and samples do not interrupt each other.
 * A frame may begin at the last of WINDOW_WORDS.
 */
#define WINDOW_WORDS 128
struct python_window {
	__u64 word[WINDOW_WORDS + 16];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct python_window);
} python_window SEC(".maps");

/* Of the line in the innermost frame. */
static __always_inline __u32 nap_place(__u64 told)
{
	return (told * 0x9e3779b97f4a7c15ull >> 32) % PYTHON_PLACES;
}

/*
 * The number of frames from `frame` on: one only at a line whose last sleeps were all naps (which may be
 * NULL). Not static: the verifier then looks at this once, not at calls.
 *
 * Since 3.11 frames lie one above the other in a thread's chunk of stack, so that one read brings several of
 * them: what is below this one in its page, which is there as the frame is.
 */
__noinline int lg_python_walk(struct lg_bpf_python_layout *l, __u64 frame, const struct naps *naps,
			       struct python_frames *ret)
{
	__u32 zero = 0, i, below = 0;
	__u64 from = 0, at, page;
	struct python_window *w = bpf_map_lookup_elem(&python_window, &zero);

	if (!l || !ret || !w)
		return 0;
	for (i = 0; i < LG_BPF_PYTHON_FRAMES && frame; i++) {
		at = frame - from;
		if (at > below) {
			page = frame & 4095;
			below = i || !naps ? l->window : 0;
			if (below > page)
				below = (__u32)page;
			from = frame - below;
			if (bpf_probe_read_user(w, (below + l->frame_bytes) & 1023, (void *)from))
				break;
			at = below;
		}
		if (i == 1 && naps && naps->n[nap_place(ret->v[0])] >= PYTHON_NAPS)
			break;
		ret->v[i] = lg_bpf_python_told(l, w->word + (at >> 3 & (WINDOW_WORDS - 1)));
		frame = w->word[(at >> 3 & (WINDOW_WORDS - 1)) + (l->frame_previous & 15)];
	}
	return (int)i;
}

static __always_inline struct lg_bpf_python_layout *python_layout(__u32 i)
{
	return i ? bpf_map_lookup_elem(&python_layouts, &i) : 0;
}

/*
 * Where a thread goes to sleep. How long for is not known yet, and most sleeps are too short to be told of.
 * At a line of Python whose last sleeps were all short only the innermost frame is read: if a long one
 * follows after all, its function and line are known, and its callers are not.
 */
static __always_inline void python_sleeps(struct thread *th, struct task_struct *t)
{
	struct python_frames *frames = (struct python_frames *)th->python_frames;
	struct lg_bpf_python_layout *l = python_layout(th->python);
	__u64 frame, state;
	__u32 n;

	/* Most threads of a training process never run Python: they are asked now and then. */
	if (th->stateless >= STATELESS_ENOUGH && ++th->stateless % STATELESS_ENOUGH) {
		gil_sleeps(th, t, l, 0);
		return;
	}
	state = l ? python_state(l, t, th) : 0;
	gil_sleeps(th, t, l, state);
	frame = state ? python_innermost(l, state) : 0;
	n = frame ? (__u32)lg_python_walk(l, frame, &th->naps, frames) : 0;
	if (!n) {
		if (th->stateless < STATELESS_ENOUGH)
			th->stateless++;
		return;
	}
	th->stateless = 0;
	th->n_python = (__u8)n;
	th->nap = (__u8)nap_place(frames->v[0]);
}

/* It is over: was it one that a step can feel? */
static __always_inline void python_wakes(struct thread *th, __u64 slept)
{
	__u8 *naps = &th->naps.n[th->nap % PYTHON_PLACES];

	if (slept >= JOB_NAP_NS)
		*naps = 0;
	else if (*naps < PYTHON_NAPS)
		(*naps)++;
}

/*
 * On the sampling event of perf_source.c, before its sample is written. An interrupt finds all of this in no
 * cache: what it touches costs, not what it does.
 */
SEC("perf_event")
int lg_sample(void *ctx)
{
	struct lg_bpf_python_layout *l;
	struct task_struct *t;
	struct lg_bpf_python *r;
	struct thread *th;
	struct gil g = {};
	__u64 frame, state;
	void *ring;

	(void)ctx;
	if (!enabled || !cfg_user_stacks)
		return 1;
	t = bpf_get_current_task_btf();
	th = t->pid ? thread_of(t) : 0;
	if (!th)
		return 1;
	if (th->job_version != job_version)
		is_job_now(th);
	l = python_layout(th->python);
	state = l ? python_state(l, t, th) : 0;
	frame = state ? python_innermost(l, state) : 0;
	ring = frame ? ring_of(bpf_get_smp_processor_id()) : 0;
	if (!ring)
		return 1;
	r = bpf_ringbuf_reserve(ring, sizeof(*r) + sizeof(struct python_frames), 0);
	if (!r) {
		count_lost(LG_BPF_PYTHON);
		return 1;
	}
	fill(&r->h, bpf_ktime_get_ns() - BEFORE_SAMPLE_NS, th->tid, th->tgid, LG_BPF_PYTHON);
	if (read_gil(th, &g))
		r->h.flags = has_gil(&g, state) ? LG_BPF_SAMPLE_GIL : LG_BPF_SAMPLE_NO_GIL;
	r->h.n_python = (__u8)lg_python_walk(l, frame, 0, (struct python_frames *)(r + 1));
	bpf_ringbuf_submit(r, wake_flag(ring));
	return 1;
}

#endif /* LG_PYTHON_BPF_H */
