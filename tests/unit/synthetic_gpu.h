/* SPDX-License-Identifier: Apache-2.0 */
/*
 * synthetic_gpu.h - a training loop on a device, simulated: a host that launches, streams that work
 * in order, a launch queue of finite length. What makes it slow is known by construction.
 */
#ifndef LG_TESTS_SYNTHETIC_GPU_H
#define LG_TESTS_SYNTHETIC_GPU_H
#include <stdbool.h>

#include "store/builder.h"

enum gpu_stream { STREAM_COMPUTE = 7, STREAM_COPY = 13, STREAM_COMM = 20 };

struct gpu_plan {
	int n_ranks, n_steps, n_kernels;
	int64_t kernel_ns, launch_ns;
	int slow_launches;      /* in every third step they take so many percent longer */
	int64_t latency_ns;     /* from the launch call to the idle device; 0 = 4 us */
	const char *kernel;     /* name; NULL = an ordinary one */
	const char *op;         /* operator around each launch; NULL = aten::linear */
	bool inference;         /* no backward, no optimizer */
	bool no_step_marks;
	const char *step_marks; /* what is before the number; NULL = ProfilerStep# */
	int first_step;         /* the number of the first one */
	int64_t loader_ns;
	bool loader_single;
	int loader_every;       /* wait only in every n-th step; 0 = always */
	int heavy_every;        /* every n-th step has a kernel of heavy_ns; 0 = none */
	int64_t heavy_ns;
	int sync_every;         /* .item() after so many kernels; 0 = never */
	const char *sync_other; /* every third one is in that operator */
	bool sync_at_end;       /* the host waits for the device at the end of the last step */
	int64_t copy_ns;        /* one host to device copy a step */
	enum { COPY_PAGEABLE = 1, COPY_PINNED_SAME, COPY_PINNED_SIDE, COPY_INSIDE } copy;
	int copies;             /* so many of them; 0 = 1 */
	uint64_t copy_bytes;    /* of each; 0 = 8 MB */
	bool copies_back;       /* the step has put them on the host itself */
	bool copy_in_optimizer; /* the optimizer's step orders it */
	int n_alloc;            /* cudaMalloc calls a step, each of alloc_ns, after a drain */
	const char *alloc_call; /* instead of it */
	int64_t alloc_ns;
	int n_comm;
	int64_t comm_ns;
	bool comm_overlaps;
	int late_rank;          /* -1 = none, -2 = in turn */
	int64_t late_ns;
	bool late_loader;       /* because of its loader; else a pause in Python before its collectives */
	bool late_compute;      /* because of a longer kernel */
	int late_slower;        /* no: its kernels take so many percent longer; late_ns has to be that */
	int late_slower_every;  /* only every n-th of them; 0 = all */
	int64_t late_launch_ns; /* no: each of its launches takes so long; late_ns has to be that */
	bool late_unseen;       /* no: unseen_ns is its alone; likewise */
	int late_once;          /* in step late_once - 1 only; 0 = in all */
	int late_first;         /* in so many steps; behind them rank 0, by a tenth; 0 = in all */
	int late_ranks;         /* so many from late_rank on have slower kernels; 0 = that one */
	int late_every;         /* in every n-th step only; in the others all are in turn, */
	int64_t late_jitter_ns; /* by so much */
	int64_t warm_ns;        /* rank 0 alone is so late in the first step, which all wait for */
	const char *coll;       /* "Collective name" of device rows, numbered; NULL = no arguments */
	const char *coll_other; /* of every second one */
	uint64_t coll_bytes;    /* of each, where they are numbered */
	int groups;             /* of as many ranks each; 0 = one, of which nothing is told */
	int64_t link_ns;        /* longer takes each collective, */
	int link_from;          /* from that step on, */
	int link_group;         /* in that group; -1 = in all */
	int optimizer_kernels, zero_kernels;
	int64_t compile_ns;     /* inside every step */
	int n_layout;           /* nchwToNhwc kernels a step */
	bool blocking;          /* CUDA_LAUNCH_BLOCKING */
	bool capture;           /* cudaGraphInstantiate inside */
	int64_t cold_ns;        /* the first launch takes this long */
	int drop_rows;          /* every n-th device row is missing; 0 = none */
	bool no_launches;       /* no runtime calls in the trace */
	bool no_device;
	bool no_gpu;            /* the machine has none, either */
	int autotune;           /* cudaEventSynchronize calls inside aten::cudnn_convolution a step */
	int64_t autotune_ns;    /* of each of five more candidates; the allocator is emptied behind them */
	bool autotune_once;     /* in the fourth step only */
	int region_versions;    /* Torch-Compiled Region 0/k changes so often */
	int grid;               /* blocks of each kernel; 0 = not told */
	bool checkpointing;
	double reserved;        /* counter, share of the device's memory; 0 = none */
	int64_t hole_ns;        /* Python without an event before the step's first work */
	bool hole_once;         /* of the last rank alone */
	int64_t hole_op_ns;     /* and an operator that orders nothing at its end */
	int64_t next_ns;        /* so much of it in an iterator's __next__, which calls another */
	int optimizers;         /* a step has so many more */
	int64_t python_ns;      /* Python between operators, everywhere */
	/* How forward's matrix operators get their types; backward's are called by nodes of autograd. */
	enum { CAST_BY_HAND = 1, CAST_AUTOCAST, CAST_NORM, CAST_HALF_MODEL } casts;
	bool untyped;           /* without record_shapes */
	bool back_pairs;        /* backward under autocast */
	bool recompute_pairs;   /* forward code under autocast inside the backward pass */
	bool scaler;            /* GradScaler's check for infinities */
	int64_t unused_ns;      /* DDP's search for unused parameters */
	int copy_back;          /* kernels of copy_bucket_to_grad */
	const char *comm_hook;  /* annotation around the launch of each collective */
	const char *comm_kernel;
	int convs;              /* aten::cudnn_convolution a step, of 50 us */
	bool conv_benchmark, conv_shapes_change, conv_shape_a_step;
	int conv_batch;         /* 0 = 32 */
	int ddp_buckets;        /* collectives of comm_ns that backward orders, on the compute stream */
	int64_t comm_tail_ns;   /* one more collective behind the backward pass */
	bool optimizer_foreach; /* its kernels handle many parameters each, 40 us */
	bool frames;            /* Python calls in the trace */
	int64_t pause_ns;       /* Python without an event after the backward pass, the device has run dry */
	const char *side;       /* a call (or annotation) of side_ns behind the backward pass */
	bool side_note;
	int64_t side_ns, side_copy_ns; /* within it, a copy to the host, */
	bool side_copy_lost;    /* of which the device has no row */
	/* Tensors that are copied to the host one by one behind the backward pass, and written. */
	struct gpu_fetch {
		int n;
		uint64_t bytes; /* of each; 50 us */
		int64_t write_ns, after_ns;
		int kernels;    /* before each */
		bool back;      /* and what the host made of it back to the device */
	} fetch;
	int only_every;         /* pauses, calls on the side, allocations and compilation: 0 = in all steps */
	bool kernel_at_times;   /* .kernel, too */
	int lost_steps;         /* kernels of so many first steps are missing */
	int lost_from, lost_until; /* kernels of that step and of those after it; 0 = none, and to the end */
	const char *device, *compute; /* NULL: an A100 */
	int slower_from;        /* from that step on kernels take 1.7 times as long; 0 = never */
	int unseen_steps;       /* so many first steps are not in the trace at all */
	int lost_every;         /* every n-th kernel is missing; 0 = none */
	int64_t unseen_ns;      /* before every 20th kernel it works so long, of which there is no trace */
	int64_t overlap_ns;     /* a step's mark ends so much after the next one's begin */
	/* Backward as nodes of autograd, a kernel each: with forward code in every tenth, that many pairs of
	 * operators (in such a Python call); with a search for NaN behind it. */
	bool nodes, search_nan;
	int64_t stack_ns;       /* so long each operator of forward keeps its stack before it launches */
	int again;
	const char *again_in;
	const char *again_op;   /* NULL = aten::linear, aten::gelu */
	/* What the device's calls are called; NULL: as CUDA's. */
	const char *launch_call, *sync_call;
	bool autograd_heavy;    /* the autograd thread launches most */
	/* Calls of a Python function in every step, and as many of another. */
	struct gpu_python {
		const char *file, *name;
	} python[2];
	int python_calls;
	bool regions_once;      /* a new version in each step, not in turn */
	int regions, breaks;    /* compiled modules, and graph breaks in each */
	int64_t break_ns;       /* Python at each break */
	bool resumes;           /* frames that go on behind a break */
	bool resumes_eagerly;   /* these are not compiled */
	/* More of every step, before its other work: n kernels of that name, each under that operator. */
	struct gpu_extra {
		const char *kernel, *op;
		int n, grid;
		int64_t ns;
	} extra;
	/* Calls of torch's math path at the beginning of each step, and their nodes in backward: two and four
	 * matrix products, and a kernel for the rest of either pass. */
	struct gpu_attention {
		int calls;
		const char *product;    /* the kernel */
		int64_t product_ns, rest_ns;
		const char *dims, *other_dims; /* of the call; of backward's other products */
		bool unnumbered;        /* operators have no sequence numbers */
	} attention;
	int64_t gloo_ns;        /* a collective on the CPU; all leave it when the last has come */
	bool compile_logged;    /* the job's log says that torch.compile worked */
	int64_t other_ns;       /* behind all of a step another device of the process works so long */
};

extern const struct gpu_plan gpu_healthy;

/* Into b, which may hold other rows. */
void synthetic_gpu_into(struct lg_builder *b, const struct gpu_plan *p);
struct lg_trace *synthetic_gpu(const struct gpu_plan *p);

#endif /* LG_TESTS_SYNTHETIC_GPU_H */
