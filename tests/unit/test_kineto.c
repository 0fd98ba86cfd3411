/* SPDX-License-Identifier: Apache-2.0 */
/* test_kineto.c - rows of torch.profiler traces of every era, from hand-made text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "import/kineto/kineto.h"
#include "import/source/file_rank.h"
#include "store/args.h"

static const char *named = "test";

static struct lg_trace *read_text(const char *text, size_t block)
{
	struct lg_error err = { 0 };
	struct lg_json_source *src;
	struct lg_builder *b;
	struct lg_events r;
	struct lg_trace *t;

	assert_int_equal(lg_json_source_memory(&src, text, strlen(text), block, &err), 0);
	lg_events_start(&r, src, named);
	assert_int_equal(lg_builder_new(&b, &err), 0);
	if (lg_kineto_read(&r, b, &err))
		fail_msg("%s", err.message);
	lg_events_close(&r);
	assert_int_equal(lg_builder_seal(b, &t, &err), 0);
	return t;
}

/* The only span of that name (and kind, unless -1). */
static size_t span(const struct lg_trace *t, const char *name, int kind)
{
	size_t found = SIZE_MAX;

	for (size_t i = 0; i < t->span.n; i++)
		if (!strcmp(lg_string(t, t->span.name[i]), name) &&
		    (kind < 0 || t->span.kind[i] == kind)) {
			if (found != SIZE_MAX)
				fail_msg("two spans %s", name);
			found = i;
		}
	if (found == SIZE_MAX)
		fail_msg("no span %s", name);
	return found;
}

static void assert_arg(const struct lg_trace *t, size_t row, const char *key, const char *want)
{
	size_t n;
	const char *p = lg_span_arg(t, row, key, &n);

	if (!want) {
		assert_null(p);
		return;
	}
	if (!p)
		fail_msg("no %s in \"%s\"", key, lg_string(t, t->span.args[row]));
	assert_int_equal(n, strlen(want));
	assert_memory_equal(p, want, n);
}

static const char *meta(const struct lg_trace *t, const char *key)
{
	for (size_t i = 0; i < t->meta.n; i++)
		if (!strcmp(lg_string(t, t->meta.key[i]), key))
			return lg_string(t, t->meta.value[i]);
	return "(none)";
}

static size_t diags(const struct lg_trace *t, uint32_t id)
{
	size_t n = 0;

	for (size_t i = 0; i < t->diag.n; i++)
		n += t->diag.id[i] == id;
	return n;
}

static const char now_text[] =
	"{\"schemaVersion\": 1, \"deviceProperties\": [{\"id\": 0, \"name\": \"NVIDIA H100\", "
	"\"totalGlobalMem\": 85018279936, \"computeMajor\": 9, \"computeMinor\": 0, \"numSms\": 132}],\n"
	"\"distributedInfo\": {\"backend\": \"nccl\", \"rank\": 3, \"world_size\": 8, "
	"\"nccl_version\": \"2.21.5\"}, \"with_stack\": 1,\n"
	"\"INFO\": [\"line one\", \"line \\\"two\\\"\"],\n"
	"\"traceEvents\": [\n"
	"{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"ProfilerStep#7\", \"pid\": 40, \"tid\": 40, "
	"\"ts\": 4400191451544.818, \"dur\": 1000.001, \"args\": {\"External id\": 1}},\n"
	"{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm\", \"pid\": 40, \"tid\": 40, "
	"\"ts\": 4400191451600.000, \"dur\": 20, \"args\": {\"External id\": 2, \"Sequence number\": 55, "
	"\"Fwd thread id\": 0, \"Input Dims\": [[8, 3], [3, 4]], \"Input type\": [\"float\", \"float\"]}},\n"
	"{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"autograd::engine::evaluate_function: MmBackward0\", "
	"\"pid\": 40, \"tid\": 41, \"ts\": 4400191451700, \"dur\": 9, \"args\": {\"Sequence number\": 55, "
	"\"Fwd thread id\": 1}},\n"
	"{\"ph\": \"X\", \"cat\": \"python_function\", \"name\": \"train.py(12): main\", \"pid\": 0, \"tid\": 0, "
	"\"ts\": 4400191451590, \"dur\": 400, \"args\": {\"Python id\": 1}},\n"
	"{\"ph\": \"X\", \"cat\": \"python_function\", \"name\": \"<built-in method zeros>\", \"pid\": 0, "
	"\"tid\": 0, \"ts\": 4400191451591, \"dur\": 4, \"args\": {\"Python id\": 2}},\n"
	/* The kernel stands before the call that launched it; External id lies. */
	"{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"gemm\", \"pid\": 0, \"tid\": 7, "
	"\"ts\": 4400191451650.5, \"dur\": 12.25, \"args\": {\"External id\": 900, \"device\": 0, "
	"\"stream\": 7, \"correlation\": 501, \"registers per thread\": 32, \"shared memory\": 0, "
	"\"grid\": [4, 1, 1], \"block\": [128, 1, 1], \"est. achieved occupancy %\": 47, \"graph id\": 0}},\n"
	"{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 40, \"tid\": 40, "
	"\"ts\": 4400191451610, \"dur\": 5, \"args\": {\"External id\": 2, \"cbid\": 211, "
	"\"correlation\": 501}},\n"
	"{\"ph\": \"s\", \"id\": 501, \"pid\": 40, \"tid\": 40, \"ts\": 4400191451610, \"cat\": \"ac2g\", "
	"\"name\": \"ac2g\"},\n"
	/* The id again, an hour of training later in the same file: not this kernel's. */
	"{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaMemcpyAsync\", \"pid\": 40, \"tid\": 41, "
	"\"ts\": 4400191451900, \"dur\": 5, \"args\": {\"correlation\": 501}},\n"
	"{\"ph\": \"X\", \"cat\": \"gpu_memcpy\", \"name\": \"Memcpy HtoD (Pageable -> Device)\", \"pid\": 0, "
	"\"tid\": 7, \"ts\": 4400191451910, \"dur\": 3, \"args\": {\"correlation\": 501, \"bytes\": 4096}},\n"
	"{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"orphan\", \"pid\": 0, \"tid\": 7, "
	"\"ts\": 4400191451920, \"dur\": 3, \"args\": {\"correlation\": 777}},\n"
	"{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"record_param_comms\", \"pid\": 40, \"tid\": 41, "
	"\"ts\": 4400191451930, \"dur\": 30, \"args\": {\"Collective name\": \"allreduce\", "
	"\"dtype\": \"BFloat16\", \"In msg nelems\": 100, \"Out msg nelems\": 100, \"Group size\": 8, "
	"\"Process Group Name\": \"0\", \"Seq\": 17}},\n"
	"{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"nccl:all_reduce\", \"pid\": 40, \"tid\": 41, "
	"\"ts\": 4400191451935, \"dur\": 10, \"args\": {}},\n"
	"{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)\", "
	"\"pid\": 0, \"tid\": 24, \"ts\": 4400191451940, \"dur\": 50, \"args\": {\"correlation\": 778, "
	"\"stream\": 24, \"Collective name\": \"allreduce\", \"dtype\": \"BFloat16\", \"In msg nelems\": 100, "
	"\"Process Group Name\": \"0\", \"Seq\": 17}},\n"
	"{\"ph\": \"X\", \"cat\": \"cuda_sync\", \"name\": \"Stream Sync\", \"pid\": 0, \"tid\": 1000007, "
	"\"ts\": 4400191451941, \"dur\": 5, \"args\": {\"stream\": 7, \"correlation\": 5}},\n"
	"{\"ph\": \"X\", \"cat\": \"gpu_user_annotation\", \"name\": \"ProfilerStep#7\", \"pid\": 0, \"tid\": 7, "
	"\"ts\": 4400191451650, \"dur\": 300, \"args\": {}},\n"
	"{\"ph\": \"X\", \"cat\": \"overhead\", \"name\": \"Buffer Flush\", \"pid\": -1, \"tid\": 0, "
	"\"ts\": 4400191451942, \"dur\": 5, \"args\": {}},\n"
	"{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"broken end time\", \"pid\": 0, \"tid\": 7, "
	"\"ts\": 4400191451943, \"dur\": 18446744073709551.6, \"args\": {}},\n"
	"{\"ph\": \"i\", \"cat\": \"cpu_instant_event\", \"s\": \"t\", \"name\": \"[memory]\", \"pid\": 40, "
	"\"tid\": 40, \"ts\": 4400191451944, \"args\": {\"Total Reserved\": 2000, \"Total Allocated\": 1500, "
	"\"Bytes\": 100, \"Device Id\": 0, \"Device Type\": 1}},\n"
	"{\"name\": \"process_name\", \"ph\": \"M\", \"ts\": 1, \"pid\": 40, \"tid\": 0, "
	"\"args\": {\"name\": \"python3\"}},\n"
	"{\"name\": \"process_name\", \"ph\": \"M\", \"ts\": 1, \"pid\": 0, \"tid\": 0, "
	"\"args\": {\"name\": \"python3\"}},\n"
	"{\"ph\": \"X\", \"cat\": \"Trace\", \"ts\": 4400191451544, \"dur\": 900000, \"pid\": \"Spans\", "
	"\"tid\": \"PyTorch Profiler\", \"name\": \"PyTorch Profiler (0)\"},\n"
	"{\"name\": \"Record Window End\", \"ph\": \"i\", \"s\": \"g\", \"pid\": \"\", \"tid\": \"\", "
	"\"ts\": 4400191452600}\n"
	"], \"traceName\": \"x.json\", \"baseTimeNanoseconds\": 1790857026000000000}\n";

static void reads_a_trace_of_today(void **state)
{
	/* The base stands behind the events; no double holds these times. */
	const int64_t base = 1790857026000000000;

	(void)state;
	for (size_t block = 64; block < 20000; block *= 3) {
		struct lg_trace *t = read_text(now_text, block);
		size_t step = span(t, "ProfilerStep", LG_SPAN_STEP), i, call, mem = 0;
		lg_thr main = t->span.thr[step];
		lg_prc prc = t->thread.prc[main];

		assert_int_equal(t->span.ts[step], base + 4400191451544818);
		assert_int_equal(t->span.dur[step], 1000001);
		assert_int_equal(t->span.seq[step], 7);
		assert_int_equal(t->thread.flags[main], LG_THREAD_MAIN);
		assert_int_equal(t->process.pid[prc], 40);
		assert_int_equal(t->process.rank[prc], 3);
		assert_int_equal(t->process.world[prc], 8);
		assert_string_equal(lg_string(t, t->process.comm[prc]), "python3");
		assert_int_equal(t->process.n, 2); /* pid 0 and -1 are none */

		i = span(t, "aten::mm", LG_SPAN_OP);
		assert_int_equal(t->span.seq[i], 55);
		assert_arg(t, i, "dims", "[[8, 3], [3, 4]]");
		assert_arg(t, i, "types", "[\"float\", \"float\"]");
		assert_arg(t, i, "fwd", NULL);
		i = span(t, "autograd::engine::evaluate_function: MmBackward0", LG_SPAN_OP);
		assert_int_equal(t->span.stage[i], LG_STAGE_BACKWARD);
		assert_int_equal(t->span.seq[i], 55);
		assert_int_not_equal(t->span.thr[i], main);

		i = span(t, "train.py(12): main", LG_SPAN_PYTHON);
		assert_int_equal(t->span.thr[i], main); /* pid 0, tid 0: not known to the profiler */
		assert_int_equal(t->frame.line[t->stack.frame[t->span.stack[i]]], 12);
		assert_string_equal(lg_string(t, t->frame.file[t->stack.frame[t->span.stack[i]]]),
				    "train.py");
		assert_string_equal(lg_string(t, t->frame.name[t->stack.frame[t->span.stack[i]]]),
				    "main");
		i = span(t, "<built-in method zeros>", LG_SPAN_PYTHON);
		assert_int_equal(t->frame.line[t->stack.frame[t->span.stack[i]]], 0);

		i = span(t, "gemm", LG_SPAN_KERNEL);
		call = span(t, "cudaLaunchKernel", LG_SPAN_RUNTIME);
		assert_int_equal(t->span.thr[i], 0);
		assert_int_equal(t->span.peer[i], main);
		assert_int_equal(t->span.seq[i], 501);
		assert_arg(t, i, "grid", "4,1,1");
		assert_arg(t, i, "block", "128,1,1");
		assert_arg(t, i, "regs", "32");
		assert_arg(t, i, "occ", "47");
		assert_arg(t, i, "graph", NULL);
		assert_int_equal(t->track.kind[t->span.track[i]], LG_TRACK_STREAM);
		assert_int_equal(t->track.index[t->span.track[i]], 7);
		assert_int_equal(t->track.prc[t->span.track[i]], prc);
		assert_int_equal(t->track.kind[t->track.parent[t->span.track[i]]], LG_TRACK_GPU);
		assert_int_equal(t->flow.n, 2);
		assert_int_equal(t->flow.ts[0], t->span.ts[call]);
		assert_int_equal(t->flow.ts_to[0], t->span.ts[i]);
		assert_int_equal(t->flow.thr[0], main);
		assert_int_equal(t->flow.id[0], 501);
		i = span(t, "Memcpy HtoD (Pageable -> Device)", LG_SPAN_COPY);
		assert_int_equal(t->span.bytes[i], 4096);
		assert_int_not_equal(t->span.peer[i], main); /* the second call with this id */
		assert_int_equal(t->span.peer[span(t, "orphan", -1)], 0);
		assert_int_equal(diags(t, LG_DIAG_PARTIAL), 1);

		i = span(t, "nccl:all_reduce", LG_SPAN_COLLECTIVE);
		assert_int_equal(t->span.seq[i], 17);
		assert_int_equal(t->span.bytes[i], 200);
		assert_string_equal(lg_string(t, t->span.group[i]), "0");
		assert_int_equal(t->span.flags[i], LG_SPAN_ASYNC);
		assert_int_equal(t->span.kind[span(t, "record_param_comms", -1)], LG_SPAN_OP);
		i = span(t, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", LG_SPAN_COLLECTIVE);
		assert_arg(t, i, "seq", "17");
		assert_int_equal(t->span.bytes[i], 200);
		assert_int_equal(t->track.index[t->span.track[i]], 24);
		i = span(t, "Stream Sync", LG_SPAN_WAIT);
		assert_int_equal(t->track.index[t->span.track[i]], 7);
		assert_int_not_equal(t->span.track[span(t, "ProfilerStep#7", LG_SPAN_NOTE)], 0);
		assert_int_not_equal(t->span.track[span(t, "Buffer Flush", LG_SPAN_OVERHEAD)], 0);
		assert_int_equal(diags(t, LG_DIAG_NOT_UNDERSTOOD), 1); /* the endless kernel */

		assert_int_equal(t->counter.n, 2);
		for (i = 0; i < 2; i++)
			mem += (size_t)t->counter.value[i];
		assert_int_equal(mem, 3500);
		assert_string_equal(meta(t, "gpu.0.name"), "NVIDIA H100");
		assert_string_equal(meta(t, "gpu.0.compute"), "9.0");
		assert_string_equal(meta(t, "gpu.0.sms"), "132");
		assert_string_equal(meta(t, "dist.nccl"), "2.21.5");
		assert_string_equal(meta(t, "torch.profiler.with_stack"), "1");
		assert_int_equal(t->mark.n, 3);
		assert_string_equal(lg_string(t, t->mark.text[1]), "line \"two\"");
		assert_int_equal(t->clock.n, 2);
		assert_int_equal(t->clock.ts[0], t->clock.value[0]);
		assert_int_equal(t->last, base + 4400191452600000); /* Trace rows do not count */
		assert_int_equal(diags(t, LG_DIAG_FILE_DAMAGED) + diags(t, LG_DIAG_FILE_TRUNCATED), 0);
		lg_trace_free(t);
	}
}

static void reads_a_trace_of_2021(void **state)
{
	struct lg_trace *t = read_text(
		"{\"schemaVersion\": 1, \"traceEvents\": [\n"
		"{\"ph\": \"X\", \"cat\": \"Operator\", \"name\": \"ProfilerStep#2\", \"pid\": 5555, "
		"\"tid\": \"5555\", \"ts\": 1623212388426902, \"dur\": 100},\n"
		"{\"ph\": \"X\", \"cat\": \"Operator\", \"name\": "
		"\"enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__\", \"pid\": 5555, "
		"\"tid\": \"5555\", \"ts\": 1623212388426903, \"dur\": 35, \"args\": {\"Input Dims\": [], "
		"\"Call stack\": \"/a/b.py(611): inner;run.py(54): <module>\"}},\n"
		"{\"ph\": \"X\", \"cat\": \"Memcpy\", \"name\": \"Memcpy HtoD (Pageable -> Device)\", "
		"\"pid\": 0, \"tid\": \"stream 7\", \"ts\": 1623212388426950, \"dur\": 36, "
		"\"args\": {\"stream\": 7, \"correlation\": 34486, \"external id\": 43, \"bytes\": 192}},\n"
		"{\"ph\": \"f\", \"id\": 34486, \"pid\": 0, \"tid\": \"stream 7\", \"ts\": 1, "
		"\"cat\": \"async\", \"name\": \"launch\", \"bp\": \"e\"},\n"
		"{\"ph\": \"X\", \"cat\": \"Runtime\", \"name\": \"cudaMemcpyAsync\", \"pid\": 5555, "
		"\"tid\": \"5555\", \"ts\": 1623212388426940, \"dur\": 40, "
		"\"args\": {\"cbid\": 41, \"correlation\": 34486}},\n"
		"{\"ph\": \"i\", \"s\": \"t\", \"name\": \"[memory]\", \"pid\": 5555, \"tid\": 5555, "
		"\"ts\": 1623212388426919, \"args\": {\"Device Type\": 0, \"Device Id\": -1, \"Bytes\": -4}}\n"
		"]}\n", 100);
	size_t i = span(t, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
			LG_SPAN_STAGE);
	lg_stk stk = t->span.stack[i];

	(void)state;
	assert_int_equal(t->span.stage[i], LG_STAGE_BATCH_WAIT);
	assert_int_equal(t->span.ts[i], 1623212388426903000);
	assert_string_equal(lg_string(t, t->frame.name[t->stack.frame[stk]]), "inner");
	assert_int_equal(t->frame.line[t->stack.frame[t->stack.parent[stk]]], 54);
	assert_int_equal(t->span.seq[span(t, "ProfilerStep", LG_SPAN_STEP)], 2);
	i = span(t, "Memcpy HtoD (Pageable -> Device)", LG_SPAN_COPY);
	assert_int_equal(t->track.index[t->span.track[i]], 7);
	assert_int_equal(t->flow.n, 1);
	assert_int_equal(t->process.n, 2);
	assert_int_equal(t->counter.n, 1);
	assert_int_equal(t->clock.n, 2); /* epoch microseconds without a base */
	lg_trace_free(t);
}

static void reads_rocm(void **state)
{
	struct lg_trace *t = read_text(
		"[{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"hipLaunchKernel\", \"pid\": 9, "
		"\"tid\": 9, \"ts\": 10, \"dur\": 4, \"args\": {\"correlation\": 3}},\n"
		"{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"hipDeviceSynchronize\", \"pid\": 9, "
		"\"tid\": 9, \"ts\": 20, \"dur\": 40, \"args\": {\"correlation\": 4}},\n"
		"{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"Cijk_Ailk\", \"pid\": 2, \"tid\": 0, "
		"\"ts\": 15.5, \"dur\": 30, \"args\": {\"kind\": \"Dispatch Kernel\", \"correlation\": 3, "
		"\"grid\": [1, 2, 3]}},\n"
		"{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"rcclGenericKernel\", \"pid\": 2, \"tid\": 1, "
		"\"ts\": 16, \"dur\": 1, \"args\": {}}]", 0);
	size_t i = span(t, "Cijk_Ailk", LG_SPAN_KERNEL);

	(void)state;
	assert_int_equal(t->span.ts[i], 15500);
	assert_int_equal(t->track.index[t->track.parent[t->span.track[i]]], 2);
	assert_int_not_equal(t->span.peer[i], 0);
	assert_int_equal(t->span.kind[span(t, "hipDeviceSynchronize", -1)], LG_SPAN_WAIT);
	assert_int_equal(t->span.kind[span(t, "rcclGenericKernel", -1)], LG_SPAN_COLLECTIVE);
	assert_int_equal(t->clock.n, 0); /* 15.5 us is no time of day */
	assert_int_equal(diags(t, LG_DIAG_FILE_TRUNCATED), 0);
	lg_trace_free(t);
}

/* Ids come again and again: each kernel belongs to the last call before it. */
static void repeated_ids_are_told_apart_by_time(void **state)
{
	enum { N = 500 };
	char *text = malloc(N * 400 + 64), *o = text;
	struct lg_trace *t;

	(void)state;
	o += sprintf(o, "[");
	for (int i = 0; i < N; i++) /* half the pairs stand the other way round */
		for (int k = 0; k < 2; k++)
			if ((i + k) % 2)
				o += sprintf(o, "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k%d\",\"pid\":0,"
						"\"tid\":7,\"ts\":%d,\"dur\":1,\"args\":{\"correlation\":%d}},",
					     i, i * 10000 + 5000, i % 3 + 1);
			else
				o += sprintf(o, "{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"c%d\","
						"\"pid\":1,\"tid\":%d,\"ts\":%d,\"dur\":1,"
						"\"args\":{\"correlation\":%d}},",
					     i, i + 1, i * 10000, i % 3 + 1);
	sprintf(o - 1, "]");
	t = read_text(text, 0);
	assert_int_equal(t->flow.n, N);
	for (size_t i = 0; i < t->flow.n; i++) {
		assert_int_equal(t->flow.ts_to[i] - t->flow.ts[i], 5000000);
		assert_int_equal(t->thread.tid[t->flow.thr[i]], i + 1);
	}
	lg_trace_free(t);
	free(text);
}

/* torch built without Kineto: EventList.export_chrome_trace() of torch/autograd/profiler_util.py. */
static void a_pid_that_is_a_word_is_unknown(void **state)
{
	static const char text[] = "[{\"name\": \"aten::mm\", \"ph\": \"X\", \"ts\": 178, \"dur\": 62, "
				   "\"tid\": 1, \"pid\": \"CPU functions\", \"args\": {}}]";
	struct lg_trace *t = read_text(text, 0);
	char buf[LG_PID_TEXT];
	lg_thr thr = t->span.thr[span(t, "aten::mm", LG_SPAN_OP)];

	(void)state;
	assert_int_equal(t->thread.tid[thr], 1);
	assert_int_equal(t->process.pid[t->thread.prc[thr]], -1);
	assert_string_equal(lg_pid_text(t->process.pid[t->thread.prc[thr]], buf), "pid unknown");
	assert_string_equal(lg_pid_text(INT32_MAX, buf), "pid 2147483647");
	lg_trace_free(t);
}

static void no_memory_is_an_error_and_not_a_crash(void **state)
{
	int failed = 0;

	(void)state;
	for (uint64_t n = 1;; n++) {
		struct lg_error err = { 0 };
		struct lg_json_source *src;
		struct lg_builder *b;
		struct lg_events r;
		struct lg_trace *t;
		int rc;

		if (lg_builder_new(&b, &err))
			fail();
		lg_alloc_fail_at(n);
		rc = lg_json_source_memory(&src, now_text, strlen(now_text), 300, &err);
		if (!rc) {
			lg_events_start(&r, src, "test");
			rc = lg_kineto_read(&r, b, &err);
			lg_events_close(&r);
		}
		if (rc) {
			lg_alloc_fail_at(0);
			assert_int_equal(rc, LG_E_NOMEM);
			lg_builder_free(b);
			failed++;
			continue;
		}
		rc = lg_builder_seal(b, &t, &err);
		lg_alloc_fail_at(0);
		if (!rc) {
			lg_trace_free(t);
			break;
		}
	}
	assert_true(failed > 20);
}

static void the_name_of_a_file_tells_its_rank(void **state)
{
	static const struct {
		const char *path;
		int32_t rank;
	} names[] = {
		{ "/a/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz", 34 },
		{ "rank7_trace.json", 7 },
		{ "capture_trace_rank_0.json.gz", 0 },
		{ "global_rank12-local_rank4.json", 12 },
		{ "worker3.1623212756351.pt.trace.json.gz", 3 },
		{ "worker11", 11 },
		{ "RANK=2.json", 2 },
		{ "rank3/trace.json", -1 },
		{ "host_2.json", -1 },
		{ "rank_non_gpu.json.gz", -1 },
		{ "local_rank_1.json", -1 },
		{ "crank3.json", -1 },
		{ "job-worker-3_4711.1690000000.pt.trace.json", -1 }, /* a host and a pid */
		{ "worker-3_4711.1690000000.pt.trace.json", -1 },
		{ "rank99999999999.json", -1 },
		{ "/proc/self/fd/rank3", -1 },
		{ "rank", -1 },
		{ "", -1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (lg_file_rank(names[i].path) != names[i].rank)
			fail_msg("%s: %d", names[i].path, lg_file_rank(names[i].path));
}

static int32_t rank_read(const char *text)
{
	struct lg_trace *t = read_text(text, 300);
	int32_t rank = t->process.rank[t->thread.prc[t->span.thr[span(t, "aten::mm", -1)]]];

	lg_trace_free(t);
	return rank;
}

/* What the trace says itself is right, whatever somebody called the file. */
static void a_trace_that_names_no_rank_has_its_files(void **state)
{
	static const char text[] = "{\"schemaVersion\": 1, \"traceEvents\": [\n"
		"{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm\", \"pid\": 40, \"tid\": 40, "
		"\"ts\": 4400191451600.000, \"dur\": 20}]}";

	(void)state;
	assert_int_equal(rank_read(text), -1);
	named = "/a/rank-5.Jul_15.pt.trace.json";
	assert_int_equal(rank_read(text), 5);
	assert_int_equal(rank_read(now_text), 3);
	named = "test";
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_a_trace_of_today),
		cmocka_unit_test(reads_a_trace_of_2021),
		cmocka_unit_test(reads_rocm),
		cmocka_unit_test(repeated_ids_are_told_apart_by_time),
		cmocka_unit_test(the_name_of_a_file_tells_its_rank),
		cmocka_unit_test(a_trace_that_names_no_rank_has_its_files),
		cmocka_unit_test(a_pid_that_is_a_word_is_unknown),
		cmocka_unit_test(no_memory_is_an_error_and_not_a_crash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
