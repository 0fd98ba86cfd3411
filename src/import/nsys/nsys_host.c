/* SPDX-License-Identifier: Apache-2.0 */
/* nsys_host.c - names, NVTX, operating system calls, scheduling, CPU samples, metrics. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "import/nsys/nsys.h"

enum { NVTX_MARK = 34, NVTX_PUSHPOP = 59, NVTX_STARTEND = 60, NVTX_PUSHPOP_T = 70, NVTX_STARTEND_T = 71,
       STACK_MAX = 1024, CPUS_MAX = 4096 };

static void read_names(struct lg_nsys *n)
{
	static const char *const prc[] = { "globalPid", "pid", "name" };
	static const char *const thr[] = { "nameId", "globalTid" };
	struct lg_nsys_cursor c;

	/* Every process of the machine is listed: only those that did something get a row. */
	if (lg_nsys_open(n, &c, "ThreadNames", thr, 2, NULL))
		while (lg_nsys_next(n, &c)) {
			uint64_t key = ((uint64_t)lg_nsys_int(&c, 1, 0) & 0xffffffffffff) | 1ull << 48;
			lg_thr t = lg_map_get(&n->thread, key);

			if (t)
				lg_thread_name(n->b, t, lg_nsys_string(n, lg_nsys_int(&c, 0, -1)));
		}
	if (!lg_nsys_open(n, &c, "PROCESSES", prc, 3, NULL))
		return;
	while (lg_nsys_next(n, &c)) {
		const struct lg_trace *t = lg_builder_trace(n->b);
		int32_t pid = (int32_t)lg_nsys_int(&c, 1, 0);

		for (size_t p = 1; p < t->process.n; p++)
			if (t->process.pid[p] == pid) {
				struct lg_process_row row = lg_process_read(n->b, (lg_prc)p);

				row.comm = lg_intern(n->b, lg_nsys_text(n, &c, 2));
				lg_process_write(n->b, (lg_prc)p, &row);
				break;
			}
	}
}

/* A word at the start of text, whatever its case, and nothing but a separator behind it. */
static const char *after_word(const char *text, const char *word)
{
	size_t k = strlen(word);

	if (strncasecmp(text, word, k) || isalpha((unsigned char)text[k]))
		return NULL;
	text += k;
	return text + strspn(text, " _#:-=/[(");
}

/* "ProfilerStep#7", "step 7", "iteration_7", "train_step": a step; its number, or -1 without one. */
static int is_step(const char *text, int64_t *ret)
{
	static const char *const words[] = { "ProfilerStep", "step", "iteration", "iter", "train_step",
					     "training_step", "train step", "global_step", "batch" };

	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		const char *rest = after_word(text, words[i]);
		char *end;

		if (!rest)
			continue;
		*ret = strtoll(rest, &end, 10);
		if (end == rest)
			*ret = -1;
		end += strspn(end, " ])");
		/* "step time" or "batch_norm" is none; a bare "batch" may be the batch's data */
		if (!*end && (*ret >= 0 || i < 8))
			return *ret >= -1;
	}
	return 0;
}

static enum lg_stage stage_of(const char *text)
{
	static const struct {
		const char *word;
		enum lg_stage stage;
	} words[] = {
		{ "forward", LG_STAGE_FORWARD }, { "fwd", LG_STAGE_FORWARD },
		{ "forward_pass", LG_STAGE_FORWARD }, { "backward", LG_STAGE_BACKWARD },
		{ "bwd", LG_STAGE_BACKWARD }, { "backward_pass", LG_STAGE_BACKWARD },
		{ "optimizer", LG_STAGE_OPTIMIZER }, { "optim", LG_STAGE_OPTIMIZER },
		{ "optimizer_step", LG_STAGE_OPTIMIZER }, { "opt_step", LG_STAGE_OPTIMIZER },
		{ "Optimizer.step", LG_STAGE_OPTIMIZER }, { "data", LG_STAGE_BATCH_WAIT },
		{ "dataloader", LG_STAGE_BATCH_WAIT }, { "data_loading", LG_STAGE_BATCH_WAIT },
		{ "next_batch", LG_STAGE_BATCH_WAIT }, { "batch_wait", LG_STAGE_BATCH_WAIT },
		{ "get_batch", LG_STAGE_BATCH_WAIT }, { "h2d", LG_STAGE_H2D },
		{ "host_to_device", LG_STAGE_H2D }, { "grad_sync", LG_STAGE_GRAD_SYNC },
		{ "allreduce", LG_STAGE_GRAD_SYNC }, { "all_reduce", LG_STAGE_GRAD_SYNC },
	};
	char clean[64];
	size_t k;

	text += strspn(text, "# ");
	snprintf(clean, sizeof clean, "%s", text);
	for (k = strlen(clean); k && strchr("# 0123456789_", clean[k - 1]); k--)
		clean[k - 1] = 0;
	if (!strncmp(text, "enumerate(DataLoader)#", 22))
		return LG_STAGE_BATCH_WAIT;
	if (!strncmp(text, "Optimizer.step#", 15) || !strncmp(text, "Optimizer.zero_grad#", 20))
		return LG_STAGE_OPTIMIZER;
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (!strcasecmp(clean, words[i].word))
			return words[i].stage;
	return LG_STAGE_NONE;
}

/* emit_nvtx: "aten::mm, seq = 42, op_id = 5, sizes = [[2, 3]]" */
static void operator_range(struct lg_nsys *n, struct lg_span_row *row, const char *text)
{
	const char *comma = strchr(text, ','), *seq = strstr(text, ", seq = "), *sizes = strstr(text, "sizes = ");
	char dims[256];

	row->kind = LG_SPAN_OP;
	row->seq = seq ? strtoll(seq + 8, NULL, 10) : -1;
	if (sizes) {
		snprintf(dims, sizeof dims, "dims=%s", sizes + 8);
		row->args = lg_intern(n->b, dims);
	}
	row->name = comma ? lg_intern_n(n->b, text, (size_t)(comma - text)) : lg_intern(n->b, text);
	if (!strncmp(text, "autograd::engine::evaluate_function", 35))
		row->stage = LG_STAGE_BACKWARD;
}

/* The text between the quotes that begin at p; NULL = there is none. */
static const char *quoted(const char *p, size_t *ret_n)
{
	const char *end = *p == '\'' || *p == '"' ? strchr(p + 1, *p) : NULL;

	*ret_n = end ? (size_t)(end - p - 1) : 0;
	return end ? p + 1 : NULL;
}

/* Where pyprof saw a call: the innermost "file.py:line" that no installed package has; NULL = unreadable. */
static const char *marker_of(const char *text, size_t *ret_n)
{
	const char *p = strstr(text, "'traceMarker': ["), *best = NULL, *at;
	bool own = false;
	size_t k;

	for (p = p ? p + strlen("'traceMarker': [") : NULL; p && (at = quoted(p, &k)); ) {
		bool mine = !memmem(at, k, "-packages/", 10);

		if (mine || !own) {
			best = at;
			*ret_n = k;
			own = mine;
		}
		p = at + k + 1;
		p += strspn(p, ", ");
	}
	return best;
}

/*
 * Apex's and NVIDIA's pyprof (DLProf) write dictionaries as ranges: {'traceMarker': ['net.py:41', ...],
 * 'funcStack': '/main/forward/linear'} is a Python call, {'mod': 'torch', 'op': 'relu', ...} an operator.
 */
static bool payload_range(struct lg_nsys *n, struct lg_span_row *row, const char *text)
{
	size_t len = 0, mod_len = 0, op_len = 0, call_len;
	const char *at = marker_of(text, &len), *mod = strstr(text, "{'mod': "), *op = strstr(text, "'op': ");
	struct lg_frame_row f = { .kind = LG_FRAME_PYTHON };
	const char *colon = at ? memrchr(at, ':', len) : NULL, *call;
	char name[256];

	mod = mod ? quoted(mod + strlen("{'mod': "), &mod_len) : NULL;
	op = op ? quoted(op + strlen("'op': "), &op_len) : NULL;
	if (mod && op) {
		snprintf(name, sizeof name, "%.*s.%.*s", (int)mod_len, mod, (int)op_len, op);
		row->name = lg_intern(n->b, name);
		row->kind = LG_SPAN_OP;
		return true;
	}
	if (!colon)
		return false;
	call = strstr(at, "'funcStack': ");
	call = call && strrchr(call, '/') ? strrchr(call, '/') + 1 : "";
	call_len = strcspn(call, "'\"}");
	f.line = (uint32_t)strtoul(colon + 1, NULL, 10);
	f.file = lg_intern_n(n->b, at, (size_t)(colon - at));
	f.name = lg_intern_n(n->b, call, call_len);
	snprintf(name, sizeof name, "%.*s(%u): %.*s", (int)(colon - at), at, f.line, (int)call_len, call);
	row->name = lg_intern(n->b, name);
	row->kind = LG_SPAN_PYTHON;
	row->stack = lg_intern_stack(n->b, 0, lg_intern_frame(n->b, &f));
	return true;
}

static void classify(struct lg_nsys *n, struct lg_span_row *row, const char *text, int64_t *steps)
{
	static const char *const ops[] = { "ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclBroadcast",
					   "ncclReduce", "ncclSend", "ncclRecv", "ncclAlltoAll",
					   "ncclAllToAll", "ncclGather", "ncclScatter" };
	int64_t number;

	row->seq = -1;
	if (*text == '{' && payload_range(n, row, text))
		return;
	row->name = lg_intern(n->b, text);
	row->kind = LG_SPAN_NOTE;
	for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
		if (!strcmp(text, ops[i])) {
			row->kind = LG_SPAN_COLLECTIVE;
			row->flags = LG_SPAN_ASYNC; /* the call enqueues */
			return;
		}
	if (is_step(text, &number)) {
		row->kind = LG_SPAN_STEP;
		row->seq = number >= 0 ? number : (*steps)++;
	} else if (stage_of(text)) {
		row->kind = LG_SPAN_STAGE;
		row->stage = (uint8_t)stage_of(text);
	} else if (strstr(text, "op_id = ") || !strncmp(text, "aten::", 6) || strstr(text, ", seq = ") ||
		   !strncmp(text, "autograd::", 10)) {
		operator_range(n, row, text);
	}
}

static void read_nvtx(struct lg_nsys *n)
{
	enum { START, END, TYPE, TEXT, TEXT_ID, TID };
	static const char *const cols[] = { "start", "end", "eventType", "text", "textId", "globalTid" };
	lg_str mark = lg_intern(n->b, "nvtx.mark");
	struct lg_nsys_cursor c;
	int64_t steps = 0;

	if (!lg_nsys_open(n, &c, "NVTX_EVENTS", cols, 6, NULL))
		return;
	while (lg_nsys_next(n, &c)) {
		int64_t type = lg_nsys_int(&c, TYPE, 0);
		struct lg_span_row row = { 0 };
		LG_AUTOFREE char *copy = NULL;
		const char *text = lg_nsys_text(n, &c, TEXT);

		if (type != NVTX_MARK && type != NVTX_PUSHPOP && type != NVTX_STARTEND &&
		    type != NVTX_PUSHPOP_T && type != NVTX_STARTEND_T)
			continue;
		if (!*text) {
			/* interning may move the pool under the text */
			copy = lg_strdup(lg_string(lg_builder_trace(n->b),
						   lg_nsys_string(n, lg_nsys_int(&c, TEXT_ID, -1))));
			text = copy ? copy : "";
		}
		if (!lg_nsys_times(n, lg_nsys_int(&c, START, 0), type == NVTX_MARK
				   ? lg_nsys_int(&c, START, 0) : lg_nsys_int(&c, END, INT64_MAX),
				   &row.ts, &row.dur))
			continue;
		row.thr = lg_nsys_thread(n, lg_nsys_int(&c, TID, 0));
		if (type == NVTX_MARK) {
			lg_add_mark(n->b, &(struct lg_mark_row){ .ts = row.ts, .thr = row.thr, .name = mark,
								 .text = lg_intern(n->b, text) });
			continue;
		}
		classify(n, &row, text, &steps);
		if (row.kind == LG_SPAN_STEP || row.kind == LG_SPAN_STAGE)
			row.flags |= LG_SPAN_HAND;
		lg_add_span(n->b, &row);
	}
}

static void read_os_calls(struct lg_nsys *n)
{
	static const char *const cols[] = { "start", "end", "globalTid", "nameId" };
	struct lg_nsys_cursor c;

	if (!lg_nsys_open(n, &c, "OSRT_API", cols, 4, NULL))
		return;
	while (lg_nsys_next(n, &c)) {
		struct lg_span_row row = { .kind = LG_SPAN_SYSCALL, .seq = -1 };

		/* "profiling started" is a row without a thread */
		if (lg_nsys_int(&c, 2, 0) <= 0xffffff ||
		    !lg_nsys_times(n, lg_nsys_int(&c, 0, 0), lg_nsys_int(&c, 1, INT64_MAX), &row.ts,
			       &row.dur))
			continue;
		row.thr = lg_nsys_thread(n, lg_nsys_int(&c, 2, 0));
		row.name = lg_nsys_string(n, lg_nsys_int(&c, 3, -1));
		lg_add_span(n->b, &row);
	}
}

static void read_scheduling(struct lg_nsys *n)
{
	static const char *const cols[] = { "start", "cpu", "isSchedIn", "globalTid" };
	struct on_cpu {
		lg_thr thr;
		int64_t ts;
	} *cpu = lg_calloc(CPUS_MAX, sizeof *cpu);
	struct lg_nsys_cursor c;

	if (!cpu || !lg_nsys_open(n, &c, "SCHED_EVENTS", cols, 4, "start")) {
		lg_free(cpu);
		return;
	}
	while (lg_nsys_next(n, &c)) {
		int64_t at = lg_nsys_int(&c, 1, -1), ts, dur;
		lg_thr thr = lg_nsys_thread(n, lg_nsys_int(&c, 3, 0));

		if (at < 0 || at >= CPUS_MAX || !thr ||
		    !lg_nsys_times(n, lg_nsys_int(&c, 0, 0), lg_nsys_int(&c, 0, 0), &ts, &dur))
			continue;
		if (lg_nsys_int(&c, 2, 0)) {
			cpu[at] = (struct on_cpu){ .thr = thr, .ts = ts };
		} else if (cpu[at].thr == thr && ts > cpu[at].ts) {
			lg_add_state(n->b, &(struct lg_state_row){ .ts = cpu[at].ts, .dur = ts - cpu[at].ts,
								   .thr = thr, .cpu = (int32_t)at,
								   .kind = LG_RUNNING });
			cpu[at].thr = 0;
		}
	}
	lg_free(cpu);
}

/* Stacks by the id of their sample; callers are deeper rows. */
static void read_stacks(struct lg_nsys *n, struct lg_map *ret)
{
	enum { ID, SYMBOL, MODULE, KERNEL, DEPTH };
	static const char *const cols[] = { "id", "symbol", "module", "kernelMode", "stackDepth" };
	lg_frm *frame = lg_calloc(STACK_MAX, sizeof *frame);
	struct lg_nsys_cursor c;
	int64_t id = -1;
	size_t k = 0;
	int more = 1;

	if (!frame || !lg_nsys_open(n, &c, "SAMPLING_CALLCHAINS", cols, 5, "id, stackDepth")) {
		lg_free(frame);
		return;
	}
	while (more) {
		int64_t now;

		more = lg_nsys_next(n, &c);
		now = more ? lg_nsys_int(&c, ID, -1) : -1;
		if (now != id && k) {
			lg_stk stk = 0;

			while (k)
				stk = lg_intern_stack(n->b, stk, frame[--k]);
			if (id >= 0 && stk)
				(void)!lg_map_set(ret, (uint64_t)id + 1, stk);
		}
		id = now;
		if (more && k < STACK_MAX)
			frame[k++] = lg_intern_frame(
				n->b, &(struct lg_frame_row){
					      .name = lg_nsys_string(n, lg_nsys_int(&c, SYMBOL, -1)),
					      .dso = lg_nsys_string(n, lg_nsys_int(&c, MODULE, -1)),
					      .kind = lg_nsys_int(&c, KERNEL, 0) ? LG_FRAME_KERNEL
										 : LG_FRAME_USER });
	}
	lg_free(frame);
}

static void read_samples(struct lg_nsys *n)
{
	enum { ID, START, CPU, TID, CYCLES };
	static const char *const cols[] = { "id", "start", "cpu", "globalTid", "cpuCycles" };
	lg_str event = lg_intern(n->b, "cycles");
	struct lg_map stack = { 0 };
	struct lg_nsys_cursor c;

	if (!lg_nsys_open(n, &c, "COMPOSITE_EVENTS", cols, 5, NULL))
		return;
	read_stacks(n, &stack);
	while (lg_nsys_next(n, &c)) {
		int64_t at = lg_nsys_int(&c, START, 0), cycles = lg_nsys_int(&c, CYCLES, 1), dur;
		struct lg_sample_row row = { .event = event, .weight = cycles > 0 ? (uint64_t)cycles : 1 };

		if (!lg_nsys_times(n, at, at, &row.ts, &dur))
			continue;
		row.thr = lg_nsys_thread(n, lg_nsys_int(&c, TID, 0));
		row.cpu = (int32_t)lg_nsys_int(&c, CPU, -1);
		row.stack = lg_map_get(&stack, (uint64_t)lg_nsys_int(&c, ID, -2) + 1);
		lg_add_sample(n->b, &row);
	}
	lg_map_done(&stack);
}

static void read_metrics(struct lg_nsys *n)
{
	static const char *const info[] = { "typeId", "metricId", "metricName" };
	static const char *const cols[] = { "timestamp", "typeId", "metricId", "value" };
	struct lg_map track = { 0 };
	struct lg_nsys_cursor c;

	if (lg_nsys_open(n, &c, "TARGET_INFO_GPU_METRICS", info, 3, NULL))
		while (lg_nsys_next(n, &c)) {
			/* the low byte of typeId is the GPU (nsys documentation, "GPU metrics") */
			int64_t type = lg_nsys_int(&c, 0, 0), metric = lg_nsys_int(&c, 1, 0);
			int32_t gpu = (int32_t)(type & 0xff);
			const char *name = lg_nsys_text(n, &c, 2), *unit = strrchr(name, '[');
			char label[16], text[128];
			lg_trk parent, trk;

			snprintf(label, sizeof label, "GPU %d", gpu);
			snprintf(text, sizeof text, "%.*s", unit ? (int)strcspn(unit + 1, "]") : 0,
				 unit ? unit + 1 : "");
			parent = lg_track_get(n->b, &(struct lg_track_row){ .kind = LG_TRACK_GPU,
				       .index = gpu,
									    .name = lg_intern(n->b, label) });
			trk = lg_track_get(n->b, &(struct lg_track_row){ .kind = LG_TRACK_COUNTER,
									 .name = lg_intern(n->b, name),
									 .unit = lg_intern(n->b, text),
									 .parent = parent, .index = gpu });
			if (trk)
				(void)!lg_map_set(&track,
					       lg_mix64((uint64_t)type * 4096 + (uint64_t)metric) | 1,
						  trk);
		}
	if (lg_nsys_open(n, &c, "GPU_METRICS", cols, 4, NULL))
		while (lg_nsys_next(n, &c)) {
			int64_t at = lg_nsys_int(&c, 0, 0), ts, dur;
			uint64_t key = (uint64_t)lg_nsys_int(&c, 1,
				       0) * 4096 + (uint64_t)lg_nsys_int(&c, 2, 0);
			lg_trk trk = lg_map_get(&track, lg_mix64(key) | 1);

			if (trk && lg_nsys_times(n, at, at, &ts, &dur))
				lg_add_counter(n->b, &(struct lg_counter_row){
							    .ts = ts, .track = trk,
							    .value = lg_nsys_real(&c, 3) });
		}
	lg_map_done(&track);
}

/* What the profiler says of itself; only with rows of its own beside it. */
static void read_diagnostics(struct lg_nsys *n)
{
	static const char *const cols[] = { "timestamp", "severity", "text" };
	lg_str name = lg_intern(n->b, "nsys.diagnostic");
	struct lg_nsys_cursor c;

	if (!n->rows || !lg_nsys_open(n, &c, "DIAGNOSTIC_EVENT", cols, 3, NULL))
		return;
	while (lg_nsys_next(n, &c)) {
		int64_t at = lg_nsys_int(&c, 0, 0);

		if (at >= 0 && at < INT64_C(1) << 60)
			lg_add_mark(n->b, &(struct lg_mark_row){ .ts = n->base + at, .name = name,
								 .value = lg_nsys_int(&c, 1, 0),
								 .text = lg_intern(n->b,
									       lg_nsys_text(n, &c, 2)) });
	}
}

void lg_nsys_read_host(struct lg_nsys *n)
{
	read_nvtx(n);
	read_os_calls(n);
	read_scheduling(n);
	read_samples(n);
	read_metrics(n);
	read_names(n);
	read_diagnostics(n);
}
