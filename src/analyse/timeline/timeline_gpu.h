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
#ifndef LG_ANALYSE_TIMELINE_TIMELINE_GPU_H
#define LG_ANALYSE_TIMELINE_TIMELINE_GPU_H
#include "analyse/case.h"

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
	LG_GPU_BY_LAUNCH,   /* the host was not fast enough */
	LG_GPU_BY_OTHER,    /* another device of the process works meanwhile */
	LG_GPU_BY_QUEUED,   /* work was queued, yet the device idled: dependencies, or missing rows */
	LG_GPU_BY_UNKNOWN,  /* the launch is not in the trace */
	LG_GPU_BY_MAX
};

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
	int64_t whole;          /* ns: the window with the cold steps that were dropped from it */
	int64_t cold;           /* ns of first-time calls while the device idled */
	/* gpu_launches.c: when kernels were launched that are not in the trace, and all that were; what
	 * is to be made of it: scope_of_trace.c. */
	int64_t *unrun, *launched;
	size_t n_unrun, n_launched;
	size_t cut_head, cut_tail; /* steps left out for want of their kernels */
	double unrun_share;     /* of the launches in the window */
	size_t n_elsewhere;     /* rows of the process's other devices, */
	size_t n_others;        /* so many; */
	struct lg_gpu_iv *other; /* when any of them works: disjoint, by time */
	size_t n_other;
	/* Counted inside the window. */
	size_t n_kernels, n_comm, n_launch_calls, n_unlaunched, n_graph_launches, n_graph_built;
	size_t n_ops;
	int64_t kernel_ns, comm_ns, median_kernel;
	/* gpu_kernels.c: optimizer kernels a step where there are too many, those of zero_grad. */
	size_t optimizer_kernels, zero_kernels;
	int64_t optimizer_savable, zero_savable;
	/* The same file: kernels that are measured as candidates; by step where there are some. */
	size_t autotune_kernels;
	int64_t autotune_savable, *autotune_by_step;
	int64_t ddp_search, ddp_copy; /* overlap_rules.c: idle time in DDP's own work */
	struct lg_amp *amp;     /* amp_rules.c: what its operators say, when it was looked at */
	bool batch_known, batch; /* batch_wait.c: may a wait for batches be inferred, if that was asked; */
	struct lg_gpu_ivs *busy; /* if so, when the host was at work */
	bool has_backward, has_frames, has_side, has_compile, compiled;
	int cc_major;           /* compute capability; 0 = unknown */
	bool amd;
	const char *device;
};

static inline const struct lg_gpu_host *lg_gpu_main_host(const struct lg_gpu_run *r)
{
	const struct lg_gpu_host *h = r->host;

	while (h->thr != r->main) /* one of them is */
		h++;
	return h;
}

/* late_rank.c: for whom ranks wait in collectives. */
struct lg_gpu_late {
	struct {
		size_t last;            /* collectives in which it came last */
		int64_t caused, waited; /* ns: of the others, in the mean; of its own */
	} *rank;                    /* by run */
	uint32_t run;               /* that caused most */
	bool one, numbered;         /* it is one rank; collectives are matched by number */
	size_t matched, with_wait;  /* collectives */
	size_t episodes;            /* steps in which ranks wait */
	double repeated;            /* part of the waits, without what is longer in fewer than five steps */
	int64_t caused;
	double ns;                  /* what the others wait for the late ones and no computation hides */
	double more[LG_GPU_BY_MAX]; /* ns that the late ones have of a cause beyond the others */
	double late_by[LG_GPU_BY_MAX]; /* in turn: all that they have of it while they are late */
};

struct lg_gpu {
	struct lg_gpu_run *run;
	size_t n;
	const struct lg_gpu_late *late;    /* NULL = nobody waits, or one rank only */
	const struct lg_gpu_run *critical; /* the one late rank: the others wait for all that it does; NULL */
	uint8_t *name_class; /* by string: enum lg_name_class + 1, filled on first use */
	uint8_t *file_class; /* by string: a file of the program or of a library, filled on first use */
	lg_trk *device;      /* by track: the device it belongs to */
};

/* What a span's name says it is. Names are API of torch, CUDA and HIP, cited in names_gpu.c. */
enum lg_name_class {
	LG_NAME_OTHER, LG_NAME_LAUNCH, LG_NAME_GRAPH_LAUNCH, LG_NAME_GRAPH_BUILD, LG_NAME_SYNC,
	LG_NAME_COPY_CALL, LG_NAME_BLOCKING_COPY, LG_NAME_ALLOC, LG_NAME_FREE, LG_NAME_RUNTIME,
	LG_NAME_LOADER,
	LG_NAME_COMPILE, LG_NAME_SIDE, LG_NAME_LOG, LG_NAME_OPTIMIZER, LG_NAME_BACKWARD, LG_NAME_STEP,
	LG_NAME_COMPILED_REGION, LG_NAME_FRAME, LG_NAME_TORCH_FRAME, LG_NAME_MODULE, LG_NAME_COMM
};
enum lg_name_class lg_name_class_of(const char *name);
/* Is this source file torch's or the interpreter's, not the program's? */
bool lg_is_library_path(const char *file);

/* Runs of all processes, windows and causes; everything lives in the verdict's arena. */
int lg_gpu_new(struct lg_case *c, struct lg_gpu *ret, struct lg_error *err) LG_MUST_CHECK;
/* Class of a string id, remembered: every row is asked for it several times. */
static inline enum lg_name_class lg_gpu_name(const struct lg_case *c, struct lg_gpu *g, lg_str s)
{
	if (!g->name_class[s])
		g->name_class[s] = (uint8_t)(lg_name_class_of(lg_string(c->t, s)) + 1);
	return (enum lg_name_class)(g->name_class[s] - 1);
}

/* Is it a call of the device's runtime library? */
static inline bool lg_is_runtime_name(enum lg_name_class k)
{
	return k >= LG_NAME_LAUNCH && k <= LG_NAME_RUNTIME;
}

/* ---- gpu_launches.c ---- */
struct lg_launches;
/* Find r->work[].call, in a thread; until finish() nobody else may look at it. */
int lg_launches_start(struct lg_case *c, struct lg_gpu *g, struct lg_gpu_run *r,
		      struct lg_launches **ret) LG_MUST_CHECK;
/* Meanwhile: mark the calls (rows) of r's pageable copies. */
int lg_launches_copies(const struct lg_launches *l, uint8_t *copies) LG_MUST_CHECK;
int lg_launches_finish(struct lg_launches *l) LG_MUST_CHECK;

/* ---- gpu_hosts.c ---- */
/* r->host, and what is told by one look at the rows of r's threads. */
int lg_gpu_hosts(struct lg_case *c, struct lg_gpu *g, struct lg_gpu_run *r, const struct lg_launches *l)
	LG_MUST_CHECK;
/* The first segment that ends after ts; h->n = none. */
size_t lg_host_after(const struct lg_gpu_host *h, int64_t ts);
/* What thr did at ts; NULL when it is in no span. */
const struct lg_host_seg *lg_host_at(const struct lg_gpu_host *h, int64_t ts);

/* ---- scope_of_trace.c ---- */
#define LG_COLD_CALL_NS 1000000ll   /* a call that only queues work takes microseconds */
#define LG_COLD_ALLOC_NS 10000000ll
/* May a row mark a step, or be a call for the first time? Few are: they are listed. */
static inline bool lg_scope_wants(uint8_t kind, enum lg_name_class name, int64_t dur)
{
	return kind == LG_SPAN_STEP || kind == LG_SPAN_NOTE || kind == LG_SPAN_STAGE ||
	       name == LG_NAME_STEP || name == LG_NAME_OPTIMIZER || name == LG_NAME_LOADER ||
	       (dur >= LG_COLD_CALL_NS && (name == LG_NAME_LAUNCH || name == LG_NAME_RUNTIME ||
					   name == LG_NAME_ALLOC || name == LG_NAME_FREE));
}
/* Steps and window of r, and what kind of run it is. */
int lg_scope_of_trace(struct lg_case *c, struct lg_gpu *g, struct lg_gpu_run *r) LG_MUST_CHECK;
const char *lg_scope_name(enum lg_trace_shows k);
/* The step that ts lies in; n_steps when it is in none. */
size_t lg_gpu_step_of(const struct lg_gpu_run *r, int64_t ts);
/* The step in which the host was at ts, which may be ahead. */
size_t lg_gpu_asked_in(const struct lg_gpu_run *r, int64_t ts);

/* ---- gpu_slow.c: how much longer slow steps took, by cause ---- */
/* Are there slow ones, and enough of the others to know what is usual? */
bool lg_gpu_tells_slow(const struct lg_step *step, size_t n);
/* by: n rows of `kinds`; usual[kinds]: the medians of the steps that are not slow; scratch: n. */
void lg_gpu_usual(const struct lg_step *step, size_t n, const int64_t *by, size_t kinds, int64_t *scratch,
		  int64_t *usual);
/* Add to of[kinds] what a slow step has above the usual, scaled down where that is more than the step's own
 * excess, because another kind is shorter. Returns the scale; *ret_more: the sum before it. */
double lg_gpu_add_excess(const struct lg_step *step, const int64_t *by, const int64_t *usual, size_t kinds,
			 double *of, double *ret_more);

/* ---- step_ends.c ---- */
/* Where the device does much of the steps' work behind their end on the host, make them the device's. */
int lg_steps_of_device(struct lg_case *c, struct lg_gpu_run *r) LG_MUST_CHECK;
/* From when the host's rows belong to the window. */
static inline int64_t lg_gpu_asked_from(const struct lg_gpu_run *r)
{
	return r->asked && r->asked[0] < r->from ? r->asked[0] : r->from;
}
/* ready and done of r's steps. */
void lg_step_ends(const struct lg_trace *t, const struct lg_gpu_run *r, struct lg_step *step);

/* ---- range_steps.c ---- */
/* Boundaries of steps told from ranges of thread m that come back, r's whole extent being known: *ret, freed
 * by the caller, *ret_n = 0: none. */
int lg_range_steps(struct lg_case *c, struct lg_gpu *g, const struct lg_gpu_run *r,
		   const struct lg_gpu_host *m, const char **ret_name, int64_t **ret, size_t *ret_n)
	LG_MUST_CHECK;
/* v->bound_why, and where slow steps took longer, of runs that have nothing but ranges. */
int lg_range_times(struct lg_case *c, const struct lg_gpu *g) LG_MUST_CHECK; /* range_times.c */
/* Next of h's ranges that lie in no other one; *w: { h, 0, INT64_MIN + LG_GPU_ROUNDING_NS } at first. */
struct lg_range_walk {
	const struct lg_gpu_host *h;
	size_t next;
	int64_t covered;
};
bool lg_range_next(const struct lg_trace *t, struct lg_range_walk *w, uint32_t *ret);
/* Names are equal but for the numbers in them. */
bool lg_range_same_name(const char *a, const char *b);
/* May ranges of that name be steps? A profiler's payload ({'mod': ...}) is no name. */
bool lg_range_may_be_step(struct lg_case *c, struct lg_gpu *g, uint32_t row);
/* r->request and what belongs to it, of a run that has no steps. */
int lg_request_pool(struct lg_case *c, struct lg_gpu *g, struct lg_gpu_run *r)
	LG_MUST_CHECK; /* request_pool.c */
/* Where the last of n steps ends, whose range ends at `end`; not after `to`. */
int64_t lg_last_step_end(const int64_t *begin, size_t n, int64_t end, int64_t to);

/* ---- gpu_idle.c ---- */
/* Give every nanosecond of r's window to one cause. Pieces tile [from, to). lg_gpu_new() does it for what
 * lg_gpu_judged(). */
int lg_gpu_account(struct lg_case *c, struct lg_gpu *g, struct lg_gpu_run *r) LG_MUST_CHECK;

/* ---- after_sync.c ---- */
struct lg_after_sync {
	size_t n;               /* stretches of milliseconds between a synchronisation and the next launch */
	int64_t ns, longest, at;
	const char *where;      /* what most of them is spent in; NULL = not told */
	int64_t where_ns;
};
/* Is most of what synchronisations cost r spent in such stretches? */
bool lg_gpu_after_sync(struct lg_case *c, const struct lg_gpu_run *r, struct lg_after_sync *ret);

/* ---- late_rank.c ---- */
/* g->late and g->critical; after all causes are told apart, before the rules. */
int lg_gpu_late(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;
/* comms.straggler, for what no other rule told of the late rank; after all of them. */
int lg_find_late(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;

/* What a rank computes longer than the others: the same kernels, or more of them? f tells that it does. */
int lg_late_kernels(struct lg_case *c, const struct lg_gpu *g, const struct lg_gpu_run *late,
		    struct lg_finding *f) LG_MUST_CHECK; /* late_kernels.c */
/* The same of ranks without a device; after lg_find_data(). */
int lg_find_late_on_cpu(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK; /* cpu_late.c */

/* ---- rules: each looks at all runs and adds its findings ---- */
int lg_find_gpu(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;         /* gpu_rules.c */
/* Take optimizer, zero_grad and autotuning out of the other causes; before all rules. */
void lg_gpu_refine(struct lg_case *c, struct lg_gpu *g);                    /* gpu_kernels.c */
int lg_find_gpu_kernels(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK; /* gpu_kernels.c */
int lg_find_backward(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;    /* backward_rules.c */
int lg_find_data(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;        /* data_rules.c */
int lg_find_comms(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;       /* comms_rules.c */
/* The same from dumps of the Flight Recorder. */
int lg_find_flight(struct lg_case *c) LG_MUST_CHECK;                        /* flight_rules.c */
/* The same from the hook's marks. */
int lg_find_sequences(struct lg_case *c) LG_MUST_CHECK;                     /* sequences.c */
/* "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)" -> "AllReduce". */
void lg_comm_op(const char *name, char *ret, size_t size);                  /* comms_rules.c */

/* ---- comm_traffic.c ---- */
/* What moves over the links, as far as the advice depends on it. */
enum lg_traffic {
	LG_TRAFFIC_REDUCE, LG_TRAFFIC_SHARDS, LG_TRAFFIC_EXCHANGE, LG_TRAFFIC_PAIRS,
	LG_TRAFFIC_UNTOLD, /* sends and receives, perhaps of one all-to-all */
	LG_TRAFFIC_MAX
};
/* What r's exposed time is spent on: each kind that is a quarter of it, at least the largest. */
struct lg_exposed_kind {
	enum lg_traffic is;
	double share;  /* of the exposed time; 0 = nothing tells */
	char op[32];   /* what its collectives are called */
};
/* ret: room for LG_TRAFFIC_MAX. Returns how many; the largest first. */
size_t lg_exposed_kinds(struct lg_case *c, const struct lg_gpu_run *r, struct lg_exposed_kind *ret);

/* ---- pipeline_stages.c ---- */
/* A rank with more work of its own than the others, which wait for what it sends. */
struct lg_long_stage {
	const struct lg_gpu_run *run;
	size_t replicas;          /* further ranks with as much */
	double own_ms, others_ms; /* a step; the mean of those with less */
};
bool lg_long_stage(const struct lg_gpu *g, struct lg_long_stage *ret);

int lg_find_compile_trace(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK; /* compile_trace.c */
int lg_find_gpu_counters(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK; /* gpu_counters.c */

/* Runs, their steps, and where all their time went, each cause told apart: before the rules. */
int lg_prepare_devices(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;  /* gpu_explain.c */
/* What bounds the run, and what is in doubt; after the rules. */
int lg_conclude_devices(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;
/* Is this a trace of operators and devices only, without scheduler states or CPU samples? */
bool lg_gpu_only(const struct lg_trace *t);
/* And of such a trace, are there no operators nor device rows, but ranges? */
bool lg_only_ranges(const struct lg_trace *t);

/* ---- gpu_cost.c: names that are looked for ---- */
/* Collect the names that spans have, once; before the next one. */
int lg_span_names(struct lg_case *c) LG_MUST_CHECK;
/* The span names that pick() accepts: a byte for each string, freed by the caller; NULL = none does, so
 * that there is nothing to look for. */
int lg_span_pick(const struct lg_case *c, bool (*pick)(const char *name), uint8_t **ret) LG_MUST_CHECK;

/* ---- gpu_cost.c: places on the host, and what the work launched there costs ---- */
struct lg_gpu_sums {
	int64_t ns, savable, longest, at;
	size_t n, spans;
	uint32_t row;  /* of the longest */
	int64_t *by_step; /* savable, where there are steps to tell apart; of the arena */
};
/* Stretches of one host thread: by start, disjoint. */
struct lg_gpu_ivs {
	struct lg_gpu_iv {
		int64_t ts, end;
		uint32_t row;
	} *v;
	size_t n, cap;
};
/* Must come in order; what overlaps the last one is cut. LG_E_NOMEM. */
int lg_gpu_iv_add(struct lg_gpu_ivs *a, int64_t ts, int64_t end, uint32_t row) LG_MUST_CHECK;
/* Rows that were put in otherwise, by their begin; they may overlap. */
int lg_gpu_iv_order(struct lg_gpu_ivs *a) LG_MUST_CHECK;
bool lg_gpu_within(const struct lg_gpu_ivs *a, int64_t ts);
/* Add work i of r to s. */
void lg_gpu_sum_in(struct lg_case *c, const struct lg_gpu_run *r, size_t i, struct lg_gpu_sums *s);
/* Add the work that thr launched within a. */
void lg_gpu_sum_within(struct lg_case *c, const struct lg_gpu_run *r, lg_thr thr, const struct lg_gpu_ivs *a,
		       struct lg_gpu_sums *s);
/* Work launched inside the outermost spans of r's threads whose name pick() accepts. */
int lg_gpu_sum_under(struct lg_case *c, const struct lg_gpu_run *r, bool (*pick)(const char *name),
		     struct lg_gpu_sums *ret) LG_MUST_CHECK;
/* Adds what [from, to) of r's window is, by cause; *at: a piece that does not end before from, afterwards one
 * that does not end before to. */
void lg_gpu_add_pieces(const struct lg_gpu_run *r, size_t *at, int64_t from, int64_t to, int64_t *by);
/* Idle time for want of launches that lies within a. */
int64_t lg_gpu_late_within(const struct lg_gpu_run *r, const struct lg_gpu_ivs *a);
/* Give that time to another cause, so that it is not counted twice. */
int lg_gpu_carve(struct lg_case *c, struct lg_gpu_run *r, const struct lg_gpu_ivs *a,
		 uint8_t into) LG_MUST_CHECK;
/* A finding of estimated cost: `part` of the savable time; NULL below floor. */
struct lg_finding *lg_gpu_costs(struct lg_case *c, const struct lg_gpu *g, enum lg_rule_id rule,
				const struct lg_gpu_run *r, const struct lg_gpu_sums *s, double part,
				double confidence, double floor);

/*
 * What does not depend on where the time went can be looked at while that is found out, in another thread:
 * begin() and end() belong to the caller's thread, walk() to either.
 */
int lg_amp_begin(struct lg_case *c, struct lg_gpu_run *r) LG_MUST_CHECK;      /* amp_rules.c */
void lg_amp_walk(struct lg_case *c, struct lg_gpu_run *r);
int lg_amp_end(struct lg_case *c, struct lg_gpu_run *r) LG_MUST_CHECK;
/* May a wait for batches be inferred? Then r->busy will be asked for. */
bool lg_batch_may_infer(const struct lg_gpu_run *r);                          /* batch_wait.c */
int lg_batch_busy(const struct lg_case *c, const struct lg_gpu_run *r, struct lg_gpu_ivs *ret) LG_MUST_CHECK;

void lg_compile_absent(struct lg_case *c, const struct lg_gpu *g);            /* compile_absent.c */
void lg_compile_regions(struct lg_case *c, const struct lg_gpu *g);           /* compile_regions.c */
/* v->bound where nothing but operators on the CPU was traced. */
int lg_bound_on_cpu(struct lg_case *c, const struct lg_gpu *g) LG_MUST_CHECK; /* cpu_bound.c */
/* What a process does that has no device: each nanosecond is of the first that any of its threads is in. */
enum lg_cpu_part {
	LG_CPU_DATA,      /* the loader */
	LG_CPU_SAVE,      /* the main thread saves, */
	LG_CPU_LOG,       /* or writes metrics and messages, */
	LG_CPU_COMPILE,   /* or compiles */
	LG_CPU_OPERATORS,
	LG_CPU_COMM,      /* collectives */
	LG_CPU_BETWEEN,   /* nothing that was traced */
	LG_CPU_PARTS
};
/* by: a row for each of the n stretches from at[i] to at[i + 1]: ns. *ret_any, which may be NULL: when
 * anything ran, disjoint, in order; ret_any->v is the caller's. */
int lg_cpu_parts(const struct lg_case *c, const struct lg_gpu_run *r, const int64_t *at, size_t n,
		 int64_t (*by)[LG_CPU_PARTS], struct lg_gpu_ivs *ret_any) LG_MUST_CHECK;
/* What part of a step a finding is about; LG_CPU_PARTS = of another kind. */
enum lg_cpu_part lg_cpu_part_of(const struct lg_finding *f);
/* What r's main thread spends in stretches of one class: without a device, all of it is exposed. */
struct lg_cpu_time {
	const struct lg_gpu_run *r;
	int64_t sum, longest, at; /* ns; at: where the longest stretch begins */
	int64_t *by_step;
	size_t n;                 /* stretches */
	double others;            /* share of it in the other runs, in the mean; NAN = there are none */
	uint32_t row;             /* in the longest: what gives it its class */
};
/* cpu_side.c: of all runs without a device, the one that has most of it; ret->r NULL: none has. */
int lg_cpu_time_most(struct lg_case *c, const struct lg_gpu *g, enum lg_host_class class,
		     struct lg_cpu_time *ret) LG_MUST_CHECK;
/* "; only on rank 0", where it is: of t->r's rank f tells. "" else. */
const char *lg_cpu_only_on(struct lg_case *c, struct lg_finding *f, const struct lg_cpu_time *t);
const char *lg_cpu_who(struct lg_case *c, const struct lg_gpu_run *r); /* "rank 0" */
static inline double lg_cpu_share(const struct lg_cpu_time *t)
{
	return t->r ? (double)t->sum / (double)(t->r->to - t->r->from) : 0;
}
/* ---- cpu_places.c ---- */
struct lg_cpu_place {
	uint32_t site, call; /* rows or none: the innermost function of the program; what that calls */
	int64_t ns, longest, at;
};
/* Stretches of a class in [from, to), without what lies in busy, if that is not NULL. */
struct lg_cpu_time_of {
	enum lg_host_class class;
	int64_t from, to;
	const struct lg_gpu_ivs *busy;
};
/* Where r's main thread spends that time, the most first, at most n. */
size_t lg_cpu_places(struct lg_case *c, const struct lg_gpu_run *r, const struct lg_cpu_time_of *what,
		     struct lg_cpu_place *ret, size_t n);
/* "train.py:97 flush_metrics, in <built-in function sleep>" */
const char *lg_cpu_where(struct lg_case *c, const struct lg_cpu_place *p);
/* The same of the time in which nothing of r is traced but Python's stacks and the program's annotations:
 * "31.2 ms at train.py:97 ..., 4.1 ms at ..."; NULL = there are none, or they tell less than half of it. */
const char *lg_cpu_python(struct lg_case *c, const struct lg_gpu_run *r, int64_t from, int64_t to);

/* side.checkpoint and side.logging where there is no device; after lg_find_data(). */
int lg_find_side_on_cpu(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;
/* The excess of slow steps that have no device: a limit says where it lies. */
int lg_cpu_slow_steps(struct lg_case *c, const struct lg_gpu *g) LG_MUST_CHECK; /* cpu_slow.c */

/* ---- questions of their own; the refine ones come before all rules ---- */
int lg_gpu_refine_batch(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;   /* batch_wait.c */
int lg_find_batch_wait(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;
int lg_gpu_refine_amp(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;     /* amp_rules.c */
int lg_find_amp(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;
int lg_gpu_refine_overlap(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK; /* overlap_rules.c */
int lg_find_overlap(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;

/* ---- gpu_slow.c ---- */
/* The excess of a profiler's slow steps, by the findings that it belongs to; after all rules. */
int lg_gpu_slow_steps(struct lg_case *c, struct lg_gpu *g) LG_MUST_CHECK;

/* Told by two rules, once. */
#define LG_ANOMALY_DETECTION "autograd anomaly detection"

/* ---- shared by the rules (gpu_explain.c) ---- */
/* May r be diagnosed at all? */
static inline bool lg_gpu_judged(const struct lg_gpu_run *r)
{
	return r->scope == LG_SHOWS_TRAINING || r->scope == LG_SHOWS_INFERENCE;
}
/* Sum over judged runs of their causes in mask (bit 1 << cause), each divided by the number of runs:
 * wall time of the run, each nanosecond once. *ret_worst = run that lost most (may be NULL).
 * Where all wait for one rank (g->critical) its account is the run's, but for the launches by which it is
 * later than the others: these are comms.straggler's. */
double lg_gpu_lost(const struct lg_gpu *g, uint32_t mask, double *ret_share,
		   const struct lg_gpu_run **ret_worst);
/* A finding with lost time, share and severity; confidence as given, lowered for a short window.
 * at_most caps the severity (NULL = by share). */
struct lg_finding *lg_gpu_finding(struct lg_case *c, const struct lg_gpu *g, enum lg_rule_id rule,
				  double lost_ms, double share, double confidence,
				  const struct lg_gpu_run *worst);
/* So many episodes carry a grade: five, or one in (nearly) every step of fewer. */
size_t lg_gpu_enough(const struct lg_gpu_run *r);
/* What part of by_step, of n steps, is left if none counts for more than the last of lg_gpu_enough(). */
double lg_gpu_repeated_steps(const struct lg_gpu_run *r, const int64_t *by_step, size_t n);
/* A cause that came up fewer than five times is no more than low. When it did is kept in f->moments. */
void lg_gpu_cap_rare(struct lg_case *c, struct lg_finding *f, const struct lg_gpu_run *r, uint32_t mask);
/* The same of what is told by step; r has two and more. */
void lg_gpu_cap_steps(struct lg_case *c, struct lg_finding *f, const struct lg_gpu_run *r,
		      const int64_t *by_step);
/* Add the n longest pieces of cause as evidence, merged by place. */
void lg_gpu_moments(struct lg_case *c, struct lg_finding *f, const struct lg_gpu_run *r, uint32_t mask,
		    size_t n, const char *what);
/* "train.py:42 step" or a module or an operator: where in the user's code. NULL = not in the trace. */
const char *lg_gpu_place(struct lg_case *c, uint32_t op, uint32_t site);
/* The GPU that a counter's track belongs to; 0 = none. */
lg_trk lg_gpu_of_track(const struct lg_trace *t, lg_trk k);
void lg_gpu_limit(struct lg_case *c, const char *fmt, ...) LG_PRINTF(2, 3);

#endif /* LG_ANALYSE_TIMELINE_TIMELINE_GPU_H */
