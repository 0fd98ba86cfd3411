/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline_gpu.h - what a device did, who launched it, and why it stood idle.
 *
 * One lg_gpu_run per process that drives a device (or, without a device, whose operators were
 * traced). Device work is joined to the runtime call that launched it by correlation number, the
 * nearest call before it (numbers repeat in long or joined traces), never by an operator's
 * external id. Every nanosecond of the window is then given to exactly one cause (gpu_idle.c), so
 * that losses may be added and compared.
 */
#ifndef LG_TIMELINE_TIMELINE_GPU_H
#define LG_TIMELINE_TIMELINE_GPU_H
#include "rules/device_names.h"
#include "timeline/scene.h"

enum lg_gpu_class {
	LG_GPU_COMPUTE, /* kernels, memset, copies inside the device */
	LG_GPU_COMM,    /* collective kernels */
	LG_GPU_H2D,
	LG_GPU_D2H
};

/* One row of device work. */
struct lg_gpu_work {
	int64_t ts, end;
	uint32_t span;  /* row */
	uint32_t call;  /* row of the runtime call that launched it; LG_NO_ROW = not in the trace */
	lg_thr caller;  /* whose call it is, and when it began, where there is one */
	int64_t called;
	lg_trk stream;
	uint8_t class;
	bool pageable;  /* copy from or to memory that the device cannot reach by itself */
};

/* What a host thread does, as far as the device's idleness is concerned; the larger wins where
 * spans nest, except that the inside of a loader or compiler stays theirs. */
enum lg_host_class {
	LG_HOST_NONE,     /* between spans: interpreter, or not traced */
	LG_HOST_OP,       /* operators and annotations */
	LG_HOST_LOG,      /* metrics and messages are written; not what the device is asked for */
	LG_HOST_LAUNCH,   /* a runtime call that only queues work */
	LG_HOST_SYNC,     /* waits for the device */
	LG_HOST_COPY,     /* a copy call that waits: pageable memory */
	LG_HOST_ALLOC,    /* device memory taken or given back */
	LG_HOST_SIDE,     /* a checkpoint is saved */
	LG_HOST_COMPILE,
	LG_HOST_LOADER
};

struct lg_host_seg {
	int64_t ts, end;
	uint32_t span;  /* the row that gave it its class; LG_NO_ROW */
	uint32_t op;    /* outermost operator around it inside its annotation; LG_NO_ROW */
	uint32_t site;  /* innermost frame or annotation of the user's code; LG_NO_ROW */
	uint8_t class;
	bool note;      /* LG_HOST_OP, but nothing runs there that was traced: the program's own annotation */
};
/* Is nothing traced there but Python, and what the program calls it? */
static inline bool lg_host_is_python(const struct lg_host_seg *s)
{
	return s->class == LG_HOST_NONE || (s->class == LG_HOST_OP && s->note);
}

/* A row longer than a week is CUPTI's overflow, not work (HolisticTraceAnalysis drops them, too). */
#define LG_GPU_WEEK_NS (7 * 86400ll * 1000000000)

/* Times are rounded, to a microsecond at the coarsest: a row may seem to begin within the one before it. */
#define LG_GPU_ROUNDING_NS 2000ll

struct lg_gpu_host {
	lg_thr thr;
	int64_t first, last;     /* begin and end of its operators and annotations; INT64_MAX, _MIN: none */
	uint32_t *mark;          /* its rows that lg_scope_wants(), by time */
	size_t n_marks;
	struct lg_host_seg *seg; /* by time, disjoint */
	size_t n, n_launches;
	size_t *near;            /* where lg_host_after() found what was asked last */
};

/* Where each nanosecond of the window went. */
enum lg_gpu_cause {
	LG_GPU_BY_COMPUTE,
	LG_GPU_BY_COMM,     /* collective, nothing else ran */
	LG_GPU_BY_PAGEABLE, /* host to device from pageable memory, and the host waiting for it */
	LG_GPU_BY_PINNED,   /* host to device, pinned, nothing else ran */
	LG_GPU_BY_D2H,      /* device to host, nothing else ran */
	LG_GPU_BY_LOADER,
	LG_GPU_BY_SYNC,     /* the host had waited for the device and lost its lead */
	LG_GPU_BY_ALLOC,
	LG_GPU_BY_COMPILE,
	LG_GPU_BY_SIDE,     /* a checkpoint */
	LG_GPU_BY_LOG,      /* metrics and messages */
	LG_GPU_BY_COLD,     /* first-time work: context, modules, autotuning */
	LG_GPU_BY_AUTOTUNE, /* convolution algorithms measured inside steps */
	LG_GPU_BY_OPTIMIZER, /* launches of an optimizer that goes parameter by parameter */
	LG_GPU_BY_ZERO,     /* launches of zero_grad() */
	LG_GPU_BY_BATCH,    /* before a step's first work: the next batch, as is inferred */
	LG_GPU_BY_CAST,     /* launches of casts between float32 and half precision made by hand */
	LG_GPU_BY_WRAPPER,  /* what DDP need not do */
	LG_GPU_BY_CHECK,    /* what anomaly detection asks, waits for and keeps */
	LG_GPU_BY_LAUNCH,   /* the host was not fast enough */
	LG_GPU_BY_OTHER,    /* another device of the process works meanwhile */
	LG_GPU_BY_QUEUED,   /* work was queued, yet the device idled: dependencies, or missing rows */
	LG_GPU_BY_UNKNOWN,  /* the launch is not in the trace */
	LG_GPU_BY_MAX
};

#define LG_GPU_BIT(cause) (1u << (cause))
#define LG_GPU_DATA (LG_GPU_BIT(LG_GPU_BY_LOADER) | LG_GPU_BIT(LG_GPU_BY_BATCH) | \
		     LG_GPU_BIT(LG_GPU_BY_PAGEABLE) | LG_GPU_BIT(LG_GPU_BY_PINNED))
/* All that the host does or leaves undone, but for batches and collectives. */
#define LG_GPU_HOST                                                                                  \
	((LG_GPU_BIT(LG_GPU_BY_OTHER) - 1) & ~(LG_GPU_BIT(LG_GPU_BY_COMPUTE) | LG_GPU_BIT(LG_GPU_BY_COMM) | \
					       LG_GPU_DATA))

struct lg_gpu_piece {
	int64_t ts, dur;
	uint8_t cause;
	uint32_t span; /* host or device row that is charged; LG_NO_ROW */
	uint32_t op, site;
};

enum lg_trace_shows {
	LG_SHOWS_NONE,     /* not a device or operator trace */
	LG_SHOWS_TRAINING,
	LG_SHOWS_INFERENCE,
	LG_SHOWS_CAPTURE,  /* graphs are being built */
	LG_SHOWS_EMPTY,    /* too little work to say anything */
	LG_SHOWS_COLD,     /* one cold start */
	LG_SHOWS_LOST,     /* launches whose kernels are missing, so many that idle and lost look alike */
	LG_SHOWS_CPU,      /* operators, no device */
	LG_SHOWS_RANGES    /* ranges that the program marks, nothing else */
};

struct lg_gpu_run {
	lg_prc prc;
	lg_thr main;
	int32_t rank;
	enum lg_trace_shows scope;
	const char *steps_from; /* what the steps were told from; NULL = no steps */
	bool steps_marked;      /* from marks of the steps themselves */
	int64_t from, to;       /* the window that is judged */
	struct lg_gpu_work *work;
	size_t n_work;
	struct lg_gpu_host *host;
	size_t n_host;
	int64_t *step;          /* n_steps + 1 boundaries */
	int64_t *asked;         /* the host's, where step[] are of a device that is behind; else NULL */
	size_t n_steps;
	bool behind;            /* at both ends of the window: what ran in it was ordered before, in part */
	struct lg_request {
		int64_t ts, end;
		lg_thr thr;
	} *request;             /* by thread; only where there are no steps */
	size_t n_requests, n_request_threads;
	double requests_at_once; /* in the mean, while there are any */
	const char *requests_from;
	struct lg_gpu_piece *piece;
	size_t n_pieces, cap_pieces;
	int64_t by[LG_GPU_BY_MAX];
	struct lg_iv *unseen;   /* between its files, disjoint, by time: no profiler ran (unseen.c) */
	size_t n_unseen;
	int64_t whole;          /* ns: the window with the cold steps that were dropped from it */
	int64_t cold;           /* ns of first-time calls while the device idled */
	size_t n_cold;          /* leading steps that are judged, and whose long launch calls are such */
	/* gpu_launches.c: when kernels were launched that are not in the trace, and all that were; what
	 * is to be made of it: scope_of_trace.c. */
	int64_t *unrun, *launched;
	size_t n_unrun, n_launched;
	size_t cut_head, cut_tail; /* steps left out for want of their kernels */
	double unrun_share;     /* of the launches in the window */
	size_t n_elsewhere;     /* rows of the process's other devices, */
	size_t n_others;        /* so many; */
	struct lg_iv *other; /* when any of them works: disjoint, by time */
	size_t n_other;
	/* Counted inside the window. */
	size_t n_kernels, n_comm, n_unlaunched, n_graph_launches, n_graph_built;
	size_t n_ops;
	int64_t kernel_ns, comm_ns, median_kernel;
	size_t n_saves, save_copies; /* unnamed_saves.c: what looks like a save, and the tensors in them */
	int64_t save_bytes;
	bool has_backward, has_frames, has_side, has_compile, compiled;
	int cc_major;           /* compute capability; 0 = unknown */
	bool amd;
	const char *device;
	struct lg_gpu_notes *notes; /* of the rules, theirs */
};

static inline const struct lg_gpu_host *lg_gpu_main_host(const struct lg_gpu_run *r)
{
	const struct lg_gpu_host *h = r->host;

	while (h->thr != r->main) /* one of them is */
		h++;
	return h;
}

struct lg_gpu {
	struct lg_gpu_run *run;
	size_t n;
	uint8_t *name_class; /* by string: enum lg_name_class + 1, filled on first use */
	uint8_t *file_class; /* by string: a file of the program or of a library, filled on first use */
	lg_trk *device;      /* by track: the device it belongs to */
	const struct lg_colls *colls; /* comm_match.h: what its ranks are in together; NULL = not asked for */
	/* What the rules make of it, theirs. */
	const struct lg_gpu_late *late;    /* NULL = nobody waits, or one rank only */
	const struct lg_gpu_run *critical; /* the one late rank: the others wait for all that it does; NULL */
	const struct lg_gpu_slow_link *slow_link; /* NULL = none was told */
};

/* Runs of all processes and their windows; everything lives in the scene's arena. lg_gpu_account() says where
 * the time of each went. */
int lg_gpu_new(struct lg_scene *sc, struct lg_gpu *ret, struct lg_error *err) LG_MUST_CHECK;
/* Class of a string id, remembered: every row is asked for it several times. */
static inline enum lg_name_class lg_gpu_name(const struct lg_scene *sc, struct lg_gpu *g, lg_str s)
{
	if (!g->name_class[s])
		g->name_class[s] = (uint8_t)(lg_name_class_of(lg_string(sc->t, s)) + 1);
	return (enum lg_name_class)(g->name_class[s] - 1);
}

/* Is this a trace of operators and devices only, without scheduler states or CPU samples? */
bool lg_gpu_only(const struct lg_trace *t);
/* And of such a trace, are there no operators nor device rows, but ranges? */
bool lg_only_ranges(const struct lg_trace *t);
/* May r be diagnosed at all? */
static inline bool lg_gpu_judged(const struct lg_gpu_run *r)
{
	return r->scope == LG_SHOWS_TRAINING || r->scope == LG_SHOWS_INFERENCE;
}
/* Or can at least its operators be looked at? */
static inline bool lg_gpu_traced(const struct lg_gpu_run *r)
{
	return lg_gpu_judged(r) || r->scope == LG_SHOWS_CPU;
}
/* Ranks run the same program: the first of these says what it does. NULL: there is none. */
static inline const struct lg_gpu_run *lg_gpu_first_traced(const struct lg_gpu *g)
{
	for (size_t i = 0; i < g->n; i++)
		if (lg_gpu_traced(&g->run[i]))
			return &g->run[i];
	return NULL;
}
/* Is it judged by what its main thread does, as there is no device? */
static inline bool lg_cpu_judged(const struct lg_gpu_run *r)
{
	return r->scope == LG_SHOWS_CPU && r->main && r->n_steps >= 3 && r->to > r->from;
}
/* What is counted in a window is told for each step, or, without any, for the window. */
static inline double lg_gpu_steps(const struct lg_gpu_run *r)
{
	return r->n_steps ? (double)r->n_steps : 1;
}
static inline const char *lg_gpu_a_step(const struct lg_gpu_run *r)
{
	return r->n_steps ? "step" : "window";
}
/* ns from a to b, without those in which no profiler ran (unseen.c). */
int64_t lg_gpu_seen_of(const struct lg_gpu_run *r, int64_t a, int64_t b);
static inline int64_t lg_gpu_seen(const struct lg_gpu_run *r, int64_t a, int64_t b)
{
	return r->n_unseen ? lg_gpu_seen_of(r, a, b) : b - a;
}
/* ns of r's window, and of one of its steps. */
static inline int64_t lg_gpu_wall(const struct lg_gpu_run *r)
{
	return lg_gpu_seen(r, r->from, r->to);
}
static inline int64_t lg_gpu_step_ns(const struct lg_gpu_run *r, size_t step)
{
	return lg_gpu_seen(r, r->step[step], r->step[step + 1]);
}
/* What part of r's window is that? */
static inline double lg_gpu_part(const struct lg_gpu_run *r, double ns)
{
	return r->to > r->from ? ns / (double)lg_gpu_wall(r) : 0;
}
/* When the host asked for it: it may be steps ahead of its device, and a row is of the step that orders it.
 */
static inline int64_t lg_gpu_ordered_at(const struct lg_gpu_work *w)
{
	return w->call != LG_NO_ROW ? w->called : w->ts;
}
/*
 * Is it one of the window's? Of a device that is steps behind its host at both ends, what was ordered in
 * it: who ordered what it did at the beginning is not in the trace, and as much follows the end.
 */
static inline bool lg_gpu_in_window(const struct lg_gpu_run *r, const struct lg_gpu_work *w)
{
	return r->behind ? w->call != LG_NO_ROW && w->called >= r->from && w->called < r->to
			 : w->ts >= r->from && w->end <= r->to;
}

#endif /* LG_TIMELINE_TIMELINE_GPU_H */
