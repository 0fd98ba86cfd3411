/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torchlog.h - what training jobs print: TORCH_LOGS and C++ logs of torch, TORCH_TRACE files, output of
 * Megatron, torchtitan, Hugging Face, nanoGPT and its kin, the ImageNet example, torchrun; NCCL_DEBUG lines.
 *
 * Marks (name; value; text), their names are stable:
 *   log.compile_skipped      -; reason          a function that torch.compile runs eagerly
 *   log.compile_failed       -; function, reason
 *   log.compile_none         -; line            fullgraph=True found no compiled frames
 *   log.compile_start        compile id; function
 *   log.graph_break          -; file:line: reason
 *   log.recompile            compile id; function (file:line): failed guards
 *   log.recompile_limit      limit; function, last reason
 *   log.recompile_limit_error   -; line         it was raised as an error (fullgraph=True)
 *   log.cache_hit .cache_miss .cache_bypass     -; which cache
 *   log.cudagraph_skipped    -; reason
 *   log.watchdog_timeout     sequence number; operation, sizes, times
 *   log.watchdog_exception   work; line
 *   log.collective_mismatch  sequence number; line
 *   log.barrier_timeout      rank that is missing; line
 *   log.gloo_timeout         ms; line
 *   log.peer_lost            -; line (file:line of the program, at the end of a traceback)
 *   log.nccl_error           -; line
 *   log.worker_failed        exit code; line
 *   log.traceback            1 = its process logged on; exception and message (file:line of the program)
 *   log.process_died         -; line            by a shell, a scheduler, Python or C++
 *   log.xid                  its number; line   an error of a device, by its driver
 *   log.device_error         -; line            the same, by CUDA or HIP, in a line of a logger
 *   log.oom                  bytes asked for; line (the same)
 *   log.alloc_ooms           their number; line  that a trainer counted
 *   log.alloc_retries        their number; line  the same, and as memory_summary() counts them, if any
 *   log.sdpa_fallback        -; line            why an attention kernel is not used
 *   log.memory_summary       device; allocated and reserved, now and peak, OOMs, retries
 *   log.anomaly              -; autograd's anomaly mode is on, and where it said so
 *   log.profiled             -; line            torch.profiler finished a trace
 *   log.tf32_off .max_autotune_off .flex_eager .fallback_kernel .nondeterministic .grad_overflow
 *   log.ddp_find_unused .ddp_grad_strides       -; line
 *   log.nan_loss             -; line            a step's loss is no finite number
 *   log.loader_workers       workers asked for; line
 *   log.step                 step; line
 *   log.last_line            1 = other work was told since the last step; the last line that has a time,
 *                            where it is a second or more behind the last step's
 *   log.checkpoint           -; line            a checkpoint is being saved, or was just now
 *   log.train_summary        -; line
 * Counters: log.step_ms (ms), log.data_ms (ms), log.tokens_per_s, log.loss, and of whole epochs, where lines
 * tell the mean of a step so far, log.epoch_ms and log.epoch_data_ms (ms); parent none, owner the rank;
 * index -1. Of progress bars, index 1, 2, ... each: log.step_ms of those that name a training loop
 * (log_bars.c), log.bar_ms of those that do not say what they count, log.aside_ms of evaluation and other
 * work (all ms). Bars that load, download or capture are no steps at all.
 * Of memory_summary() and memory_stats(), below a track "GPU N" of their process, or "GPU" (index -1) where
 * the device is not told: memory allocated, reserved, inactive (in segments that are split: not to be given
 * back), each now and with " peak" (bytes); memory retries, memory ooms.
 * Spans: STEP between two lines of consecutive steps, or of the length that the line states, where times
 * are finer than most of them; COMPILE from TORCH_TRACE's compilation_metrics.
 * Lines that match the user's expression (step_regex.h) are steps before anything else is.
 * A process's settings: log.step_times, "stamps" where those tell most of its log.step_ms and no line does;
 * log.outside_ms, what passed between its lines beyond the steps that they state, which counts with those;
 * log.tick_ns, where its stamps count in ticks about as long as its steps (log_clock.c).
 * Times: lines have neither zone nor (torch's own) year. The year is the file's, the zone is unknown unless
 * a TORCH_TRACE tells both clocks.
 */
#ifndef LG_IMPORT_TORCHLOG_TORCHLOG_H
#define LG_IMPORT_TORCHLOG_TORCHLOG_H
#include "base/map.h"
#include "import/import.h"
#include "import/nccllog/nccl_line.h"
#include "import/value/value.h"

extern const struct lg_importer lg_import_torchlog;

/* A line cut into what is before the message and the message. */
struct lg_log_line {
	int64_t ts;           /* ns since 1970, zone as printed; INT64_MIN = none */
	int64_t resolution;   /* of ts in ns */
	int32_t rank, local, pid; /* -1 = not told; local: among those of its host */
	int has_zone, has_year;
	int has_day;          /* else ts is since midnight */
	int is_glog;          /* torch's own header: level, time, file:line */
	char level;           /* of it: V I W E C, or 0 */
	int32_t frame, compile; /* [frame/compile]; -1 */
	char artifact[32];    /* [__recompiles] -> "recompiles" */
	const char *msg;      /* NUL-terminated */
	const char *text;     /* the whole line */
};
/* year: for stamps without one. text is changed: escape sequences of terminals go. */
void lg_log_line_parse(char *text, int year, struct lg_log_line *ret);

enum { LG_LOG_TEXT = 1400, LG_LOG_OPEN = 256 };
enum lg_log_kind {
	LG_LOG_NOTHING, LG_LOG_GRAPH_BREAK, LG_LOG_RECOMPILE, LG_LOG_LIMIT, LG_LOG_FAILED, LG_LOG_PAYLOAD,
	LG_LOG_TRACEBACK
};

#define LG_LOG_STEPS_MAX (INT64_C(1) << 53) /* no loop counts further */
/* What a progress bar counts, the surer the greater. */
enum lg_log_bar_kind {
	LG_LOG_BAR_NONE,
	LG_LOG_BAR_SETUP,   /* loads, downloads, captures: no steps */
	LG_LOG_BAR_ASIDE,   /* evaluates, or does what has another name than training */
	LG_LOG_BAR_UNNAMED, /* does not say */
	LG_LOG_BAR_LOOP,    /* trains */
};

/* A mark that lines of the same process may still be added to: others' lines stand between them. */
struct lg_log_open {
	struct lg_mark_row mark;
	uint64_t key; /* whose */
	enum lg_log_kind kind;
	unsigned may_follow; /* lines that say nothing known, of a process that an exception ended */
	char text[LG_LOG_TEXT];
};

/* A traceback that is being printed. */
enum { LG_LOG_TRACES = 64 };
struct lg_log_trace {
	uint64_t key; /* whose */
	/* IGNORED: of one that ends no process */
	enum { LG_TRACE_NONE, LG_TRACE_IGNORED, LG_TRACE_FRAMES } state;
	bool ignored, of_distributed;
	int frames; /* how far frames are indented; -1 = none yet */
	char place[320];
};

/* torchrun's table of the failure that it saw first. */
struct lg_log_table {
	bool open;
	int32_t rank, local; /* -1 = not told yet */
	int64_t exit_code;
	char host[80];
};

struct lg_torchlog {
	struct lg_builder *b;
	struct lg_nccl_log nccl;
	struct lg_map by_rank, by_pid; /* rank + 1, pid (and rank + 1 << 32) -> thread */
	struct lg_map of_local; /* local rank + 1 -> rank + 1; UINT32_MAX = several hosts */
	lg_thr nobody, only; /* only: of the one pid that was seen so far */
	unsigned n_pids;
	bool ranks_told; /* a line says whose it is */
	int year;
	int64_t written; /* the file, ns since 1970 */
	int64_t now, first, last, resolution; /* time of the last stamped line */
	int has_time, has_zone, has_year, has_day;
	int by_framework; /* a step line of a known framework was there */
	int bars_of_steps; /* a bar that may count a training's steps was there */
	uint64_t by_trainer; /* lines of transformers' Trainer that were counted as steps */
	struct lg_map bar_of; /* words before a progress bar, or its length, and whose -> index + 1 */
	struct lg_log_bar *bar;
	size_t n_bar, cap_bar;
	struct lg_log_open open[LG_LOG_OPEN], *payload; /* payload: of the record before this line */
	struct lg_map open_of; /* key -> of open + 1 */
	unsigned next_open;
	struct lg_log_trace trace[LG_LOG_TRACES];
	const char *place; /* of the traceback that this line ends, " (file:line)"; NULL = none */
	struct lg_log_table table;
	uint64_t key; /* of the last line that told */
	/* steps, by thread of the last one */
	struct lg_map step_of; /* thr -> index + 1 */
	struct lg_log_step {
		int64_t step, ts;
		int64_t first; /* the number that the run or its last epoch began with */
		int stamped, has_total, skips; /* skips: not every step has a line */
		size_t n_stated; /* lines that say themselves how long a step took */
		double total_ms; /* of all steps up to total_at */
		int64_t total_at;
		/* plain_steps.c */
		double maybe_ms; /* the last time that may be a total, how often it rose, */
		unsigned rises;
		int fell;        /* and whether it fell as only the time of a step does */
		int64_t epoch_at; /* steps of this epoch; 0 = it has no means; */
		double epoch[2];  /* those of a step and of its wait for data, ms */
		lg_thr thr;
	} *step;
	size_t n_step, cap_step;
	struct lg_log_span { /* a step's line; spans are added when all are known */
		int64_t ts, dur, before, tick, number;
		int64_t steps; /* since the line before, which tell how long by stamps; 0 = not so */
		bool stated;   /* the line itself says how long: dur */
		bool bar;      /* a progress bar's */
		double data_ms; /* of it, waited for its data; NaN = not told */
		uint64_t line;
		lg_thr thr;
		size_t order;
	} *span;
	size_t n_span, cap_span;
	/* TORCH_TRACE */
	int64_t zone;  /* printed time minus UTC */
	int zone_known, structured;
	struct lg_map file_of; /* pid and interned number -> name of a file */
	struct lg_map code_of; /* pid and frame -> "function (file:line)" */
	struct lg_map broken;  /* pid, frame and compilation whose graph break was told -> 1 */
	/* memory_summary() */
	int summary_device;
	char summary[512];
	/* The last step's line that had a time, and the last line that has one (log.last_line). */
	int64_t step_at;
	lg_thr step_thr; /* 0 = there was none */
	bool other_work;
	char last_said[160];
	uint64_t lines, known, timed, by_regex, step_lines;
};

lg_thr lg_torchlog_thread(struct lg_torchlog *l, const struct lg_log_line *line);
/* Close what is open and add a mark. A text of NULL is the message. */
void lg_torchlog_mark(struct lg_torchlog *l, const struct lg_log_line *line, const char *name, int64_t value,
		      const char *text);
int64_t lg_torchlog_now(struct lg_torchlog *l, const struct lg_log_line *line);
/* A mark whose text is not complete. */
struct lg_log_open *lg_torchlog_open(struct lg_torchlog *l, const struct lg_log_line *line,
				     enum lg_log_kind kind, const char *name, int64_t value,
				     const char *text);
/* log_messages.c: one known sentence or step in the message. 1 = known. */
int lg_torchlog_message(struct lg_torchlog *l, const struct lg_log_line *line);
/* log_memory.c: a row of memory_summary(), or what memory_stats() returns. 1 = known. */
int lg_torchlog_memory(struct lg_torchlog *l, const struct lg_log_line *line);
/* The same of a sentence alone; of_distributed: in a traceback through torch.distributed. */
int lg_torchlog_sentence(struct lg_torchlog *l, const struct lg_log_line *line, bool of_distributed);
/* log_failures.c: do n characters end as most names of Python's errors, "KeyError", "SomeException"? */
bool lg_log_error_name(const char *m, size_t n);
/* Does a message begin with what torch says of an error of CUDA or HIP (c10/cuda/CUDAException.cpp)? */
bool lg_log_device_error(const char *m);
/* A line of a traceback of that key's process; one that says how a process ended. */
int lg_torchlog_failure(struct lg_torchlog *l, const struct lg_log_line *line, uint64_t key);
int lg_torchlog_end_of_process(struct lg_torchlog *l, const struct lg_log_line *line);
void lg_torchlog_mark_step(struct lg_torchlog *l, const struct lg_log_line *line, int64_t number);
/*
 * One step line. ms: length of a step as the line says it, NaN when it does not; then the distance of two
 * lines tells it. A span only for the step after the last one that was seen, or the first of another epoch.
 */
void lg_torchlog_step(struct lg_torchlog *l, const struct lg_log_line *line, int64_t number, double ms);
/*
 * A step line that tells the ms of all steps so far: steps are differences. The total starts anew behind
 * the warm-up and with another run, and a line about a step that was told (its validation's) is none.
 */
void lg_torchlog_step_of_total(struct lg_torchlog *l, const struct lg_log_line *line, int64_t number,
			       double total);
/* What the thread's last step line told; otherwise: the number before its first. NULL: out of memory. */
struct lg_log_step *lg_torchlog_last_step(struct lg_torchlog *l, lg_thr thr, int64_t otherwise);
/*
 * plain_steps.c: what loops of one's own print ("step 10 loss 2.3", "iter: 10, loss=2.3", "[Step 10/500] train
 * loss: 2.3"), and those that count within an epoch and state a time ("Epoch: [0][ 10/5005] Time 0.1 ..."). A
 * line about validation counts the same steps again, and so do the first beside a framework's. 1 = was one.
 */
int lg_torchlog_plain_step(struct lg_torchlog *l, const struct lg_log_line *line);
int lg_torchlog_epoch_step(struct lg_torchlog *l, const struct lg_log_line *line);
void lg_torchlog_end_epochs(struct lg_torchlog *l); /* after the last line */
void lg_torchlog_counter(struct lg_torchlog *l, const struct lg_log_line *line, const char *name,
			 const char *unit, int32_t index, double v);
/* log_spans.c: a step that ended with the line; before: when the one before ended, INT64_MIN = unknown. */
void lg_torchlog_span(struct lg_torchlog *l, const struct lg_log_line *line, int64_t number, int64_t dur,
		      int64_t before);
/* How long the step of this line, which was told, waited for its data: NaN = not told. */
void lg_torchlog_waited(struct lg_torchlog *l, const struct lg_log_line *line, double ms);
/*
 * A line that has a stamp, and states that a step took ms, or nothing: NaN. steps: since the line before, the
 * stamp of which was `before`; 0 = its stamp tells nothing.
 */
void lg_torchlog_stamped_step(struct lg_torchlog *l, const struct lg_log_line *line, int64_t number,
			      int64_t steps, double ms, int64_t before);
/* After the last line: log.step_ms by stamps, and the spans of threads most of whose steps are longer than
 * what the clock tells apart. */
void lg_torchlog_add_spans(struct lg_torchlog *l);
/* log_clock.c: lines of a run, and when they were printed by a clock of such ticks. */
struct lg_log_point {
	int64_t stamp, step; /* step: steps since the first line, rising */
	double at;           /* found: ns since the first stamp */
};
/* False: out of memory. */
bool lg_torchlog_pull_taut(struct lg_log_point *p, size_t n, int64_t tick);
/* log_bars.c: NONE = the line is no progress bar. */
enum lg_log_bar_kind lg_torchlog_bar(struct lg_torchlog *l, const struct lg_log_line *line);
bool lg_torchlog_bar_counts(const struct lg_torchlog *l, int64_t step); /* a bar of steps is at it */
/* log_trace.c: a TORCH_TRACE record; text is changed. */
void lg_torchlog_record(struct lg_torchlog *l, const struct lg_log_line *line, char *json);

#endif /* LG_IMPORT_TORCHLOG_TORCHLOG_H */
