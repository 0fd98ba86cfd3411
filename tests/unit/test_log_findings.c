/* SPDX-License-Identifier: Apache-2.0 */
/* test_log_findings.c - what is concluded from the text of a log alone. */
#include "feed_trace.h"
#include "outcome.h"
#include "report/report.h"

#define STEPS "iteration 10/ 100 | elapsed time per iteration (ms): 512.3 |\n" \
	      "iteration 11/ 100 | elapsed time per iteration (ms): 512.3 |\n"
#define TRACED "STAGE:2023-03-01 10:00:00 77:77 ActivityProfilerController.cpp:294] Completed Stage: Warm Up\n" \
	       "STAGE:2023-03-01 10:00:01 77:77 ActivityProfilerController.cpp:300] Completed Stage: Collection\n"

static void debugging_aids_speak_up_in_the_log(void **state)
{
	static const struct {
		const char *text, *detail, *severity;
	} rows[] = {
		{ "<stdin>:2: UserWarning: Anomaly Detection has been enabled. This mode will increase the runtime and "
		  "should only be enabled for debugging.\n", "anomaly", "medium" },
		{ "train.py:12: UserWarning: Anomaly Detection has been enabled. This mode will increase the runtime and "
		  "should only be enabled for debugging.\n  with torch.autograd.detect_anomaly():\n" STEPS,
		  "anomaly", "medium" },
		{ STEPS "[W python_anomaly_mode.cpp:104] Warning: Error detected in LogBackward0. Traceback of forward call "
		  "that caused the error:\n", "anomaly", "medium" },
		{ TRACED TRACED TRACED TRACED TRACED, "profiler", "low" },
		/* a few traces are what a profiler is for; a job's own words are no sign of torch's */
		{ STEPS TRACED TRACED TRACED, NULL, NULL },
		{ STEPS "enabling anomaly detection for sensor data\nAnomaly Detection has been trained\n", NULL, NULL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct outcome o = judge(feed_text(rows[i].text, "log"));
		const struct lg_finding *f = find(o.v, "debug.left_on");

		if (rows[i].detail) {
			assert_non_null(f);
			assert_string_equal(f->detail, rows[i].detail);
			assert_string_equal(lg_severity_text(f->severity), rows[i].severity);
		} else if (o.v->n_findings) {
			fail_msg("healthy log %zu: %s", i, o.v->findings[0].title);
		}
		done(&o);
	}
}

#define LIMIT "W0110 12:27:06.332000 158 torch/_dynamo/convert_frame.py:1551] [2/8] torch._dynamo hit config." \
	      "recompile_limit (8)\n" \
	      "W0110 12:27:06.332000 158 torch/_dynamo/convert_frame.py:1551] [2/8]    function: 'f' (/app/train.py:6)\n"
#define RAISED "torch._dynamo.exc.FailOnRecompileLimitHit: recompile_limit reached with fullgraph=True.\n"

static void a_function_at_its_recompile_limit_runs_eagerly_or_fails(void **state)
{
	static const struct {
		const char *text, *title, *function;
	} rows[] = {
		{ LIMIT, "from then on it runs eagerly", "/app/train.py:6" },
		{ LIMIT RAISED, "torch raises an error", "/app/train.py:6" },
		{ RAISED, "torch raises an error", "FailOnRecompileLimitHit" },
		{ STEPS, NULL, NULL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct outcome o = judge(feed_text(rows[i].text, "log"));
		const struct lg_finding *f = find(o.v, "compile.recompile_limit");

		if (!f != !rows[i].title || o.v->n_findings > 1 || (f && !strstr(f->title, rows[i].title)) ||
		    (f && !strstr(f->culprit.function, rows[i].function)))
			fail_msg("log %zu: %s", i, f ? f->title : "nothing");
		done(&o);
	}
}

#define OOM "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
#define HAS " GPU 0 has a total capacity of 40.00 GiB of which "
#define HELD(in_use, unused) "Of the allocated memory " in_use " is allocated by PyTorch, and " unused \
	     " is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting ...\n"

static void a_failed_request_tells_why(void **state)
{
	static const struct {
		const char *text, *detail, *title;
	} rows[] = {
		{ OOM "2.00 GiB." HAS "512.00 MiB is free. Including non-PyTorch memory, this process has 39.00 GiB memory "
		  "in use. " HELD("30.00 GiB", "8.00 GiB"), "fragmentation", "2.00 GiB were asked for; the allocator holds 8.00" },
		{ OOM "2.00 GiB." HAS "512.00 MiB is free. Including non-PyTorch memory, this process has 39.00 GiB memory "
		  "in use. " HELD("38.00 GiB", "100.00 MiB"), "too_large", "leaves no room" },
		/* one process: it is this one, by another pid */
		{ OOM "2.00 GiB." HAS "512.00 MiB is free. Process 77 has 39.00 GiB memory in use. "
		  HELD("38.00 GiB", "100.00 MiB"), "too_large", "leaves no room" },
		{ OOM "2.00 GiB." HAS "512.00 MiB is free. Process 77 has 19.00 GiB memory in use. Process 78 has 20.00 GiB "
		  "memory in use. " HELD("18.00 GiB", "100.00 MiB"), "co_tenant", "other processes hold 20.00 GiB" },
		{ OOM "900.00 GiB." HAS "512.00 MiB is free. Process 77 has 19.00 GiB memory in use. Process 78 has 20.00 GiB "
		  "memory in use. " HELD("18.00 GiB", "100.00 MiB"), "too_large", "more than the device has" },
		{ OOM "20.00 MiB." HAS "10.00 GiB is free. " HELD("8.00 GiB", "25.00 MiB"), "limit", "had 10.00 GiB free" },
		/* torch 2.11 on an H100, of which the process was allowed a fraction */
		{ OOM "64.00 MiB. GPU 0 has a total capacity of 79.18 GiB of which 19.55 GiB is free. Process 1328 has 10.92 GiB "
		  "memory in use. Including non-PyTorch memory, this process has 4.63 GiB memory in use. Process 1354 has 9.84 "
		  "GiB memory in use. 3.96 GiB allowed; " HELD("3.86 GiB", "48.80 MiB"), "limit", "is allowed 3.96 GiB" },
		{ OOM "700.00 MiB. GPU 0 has a total capacity of 79.18 GiB of which 70.32 GiB is free. Including non-PyTorch "
		  "memory, this process has 2.36 GiB memory in use. 1.98 GiB allowed; " HELD("397.02 MiB", "1.25 GiB"),
		  "fragmentation", "holds 1.25 GiB" },
		/* torch before 2.1, and before 1.5 */
		{ "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 39.59 GiB total capacity; 30.00 GiB "
		  "already allocated; 1.00 GiB free; 33.00 GiB reserved in total by PyTorch)\n", "fragmentation", "3.00 GiB" },
		{ "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 39.59 GiB total capacity; 30.00 GiB "
		  "already allocated; 1.00 GiB free; 4.68 MiB cached)\n", "too_large", "leaves no room" },
		{ "CUDA out of memory. Tried to allocate 2.00 GiB\n", NULL, "2.00 GiB were asked for" },
		/* a program that says something like it */
		{ STEPS "watching for CUDA out of memory errors\nhost out of memory. Tried to allocate too much\n", NULL, NULL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct outcome o = judge(feed_text(rows[i].text, "log"));
		const struct lg_finding *f = find(o.v, "mem.oom");

		if (!rows[i].title != !f || (f && !strstr(f->title, rows[i].title)))
			fail_msg("log %zu: %s", i, f ? f->title : "nothing");
		if (f && (!rows[i].detail != !f->detail || (f->detail && strcmp(f->detail, rows[i].detail)) ||
			  f->severity != LG_SEVERITY_HIGH))
			fail_msg("log %zu: %s, %s", i, f->detail ? f->detail : "-",
				 lg_severity_text(f->severity));
		done(&o);
	}
}

#define SUMMARY(ooms, retries) "|                  PyTorch CUDA memory summary, device ID 0                 |\n" \
	"|            CUDA OOMs: " ooms "            |        cudaMalloc retries: " retries "         |\n"

#define OVERFLOWED "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempting loss scale: 65536, reducing to 32768\n"
#define OVERFLOWS OVERFLOWED OVERFLOWED OVERFLOWED OVERFLOWED OVERFLOWED
#define TRACEBACK "Traceback (most recent call last):\n  File \"/app/train.py\", line 210, in <module>\n    main()\n" \
		  "  File \"/usr/lib/python3/dist-packages/x.py\", line 3, in f\n    y()\n    ^^^\n"

#define DEVICE_ERROR "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously " \
	"reported at some other API call, so the stacktrace below might be incorrect.\nFor debugging consider passing " \
	"CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"

/* Each is a finding, or the verdict says that nobody judges it; and a log without them has neither. */
static void no_line_that_is_kept_goes_by_unjudged(void **state)
{
	static const struct {
		const char *text, *id, *severity, *not_judged;
	} rows[] = {
		{ "[rank1]: torch.distributed.elastic ERROR failed (exitcode: -9) local_rank: 1 (pid: 4242) of binary: python\n",
		  "job.failed", "high", NULL },
		{ "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed.\n", "job.failed", "high", NULL },
		{ "[rank3]: torch.distributed.DistBackendError: NCCL error in: x.cpp:93, ncclSystemError: System call failed\n",
		  "job.failed", "high", NULL },
		{ TRACEBACK "KeyError: 'input_ids'\n", "job.failed", "high", NULL },
		{ "slurmstepd: error: *** JOB 8 ON n1 CANCELLED AT 2026-03-14T12:00:01 DUE TO TIME LIMIT ***\n", "job.failed",
		  "high", NULL },
		{ "srun: error: n1: task 3: Out Of Memory\n", "job.failed", "high", NULL },
		{ "run.sh: line 12: 20331 Segmentation fault      (core dumped) python train.py\n", "job.failed", "high", NULL },
		{ "[Sat Mar 14 09:28:01 2026] NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus.\n", "job.failed",
		  "high", NULL },
		{ "ERROR: Unexpected bus error encountered in worker.\n", "job.failed", "high", NULL },
		{ "OSError: [Errno 28] No space left on device\n", "job.failed", "high", NULL },
		{ STEPS DEVICE_ERROR, "job.failed", "high", NULL },
		{ STEPS "[rank3]: CUDA error: device-side assert triggered\n", "job.failed", "high", NULL },
		{ STEPS "HIP error: the operation cannot be performed in the present state\n", "job.failed", "high", NULL },
		{ "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might "
		  "be incorrect.\n", "job.failed", "high", NULL },
		{ "skipping cudagraphs due to mutated inputs (1 instances)\n", "gpu.launch_bound", "low", NULL },
		{ "x.py:3: UserWarning: Memory efficient kernel not used because: (Triggered internally at sdp_utils.h)\n",
		  "gpu.math_attention", "low", NULL },
		{ SUMMARY("0", "3"), "gpu.allocator_sync", "low", NULL },
		{ SUMMARY("2", "0"), "mem.oom", "low", NULL },
		{ "x.py:3: UserWarning: cumsum_cuda_kernel does not have a deterministic implementation, but you set\n", NULL,
		  NULL, "without a deterministic implementation (1 line)" },
		{ "2025-10-03 18:37:01,832 - root - WARNING - 5 CUDA memory allocation retries.\n", "gpu.allocator_sync", "low",
		  NULL },
		{ OVERFLOWS OVERFLOWS, NULL, NULL, "gradients overflowed (10 lines)" },
		{ "iteration 12/ 100 | elapsed time per iteration (ms): 512.3 | number of nan iterations:   1 |\n", NULL, NULL,
		  "loss is no finite number (1 line)" },
		{ "iteration 12/ 100 | elapsed time per iteration (ms): 512.3 | lm loss: nan |\n", NULL, NULL,
		  "loss is no finite number (1 line)" },
		{ "host1:77:78 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: connect to 10.0.0.1<53> failed\n", NULL,
		  NULL, "what NCCL warns of" },
		{ TRACEBACK "OSError: x\n2025-10-03 18:37:01,832 uploading failed, and we go on\n", NULL, NULL,
		  "errors after which the run went on (1 line)" },
		{ "RuntimeError: NCCL communicator was aborted on rank 3.\n" STEPS, NULL, NULL,
		  "errors after which the run went on (1 line)" },
		{ "RuntimeError: CUDA error: an illegal memory access was encountered\n" STEPS "ValueError: x\n" STEPS, NULL,
		  NULL, "errors after which the run went on (2 lines)" },
		{ DEVICE_ERROR STEPS, NULL, NULL, "errors after which the run went on (1 line)" },
		{ "2025-10-03 18:37:01,832 - train - ERROR - CUDA error: an illegal memory access was encountered\n" STEPS, NULL,
		  NULL, "errors that CUDA or HIP reported (1 line)" },
		{ "2025-10-03 18:37:01,832 - train - ERROR - step 7: HIP error: device-side assert triggered\n" STEPS, NULL,
		  NULL, "errors that CUDA or HIP reported (1 line)" },
		{ STEPS "2025-10-03 18:37:01,832 - train - INFO - looking for CUDA errors, validation error: 0.3\n"
		  "checked for each CUDA error and found none\nCUDA errors: 0\n", NULL, NULL, NULL },
		/* healthy: what a log never tells is all that is left */
		{ SUMMARY("0", "0"), NULL, NULL, NULL },
		{ "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0\n", NULL, NULL, NULL },
		{ OVERFLOWS, NULL, NULL, NULL },
		{ "iteration 12/ 100 | elapsed time per iteration (ms): 512.3 | lm loss: 2.1 | number of skipped iterations:   0 "
		  "| number of nan iterations:   0 |\nlm loss: information\n", NULL, NULL, NULL },
		{ TRACEBACK "KeyboardInterrupt\n", NULL, NULL, NULL },
		{ "Exception in thread Thread-5:\n" TRACEBACK "OSError: x\n", NULL, NULL, NULL },
		{ "slurmstepd: error: *** JOB 8 ON n1 CANCELLED AT 2026-03-14T12:00:01 ***\n", NULL, NULL, NULL },
		{ "script.sh: line 12: Killed is a word\nXid 79 is dear\nError: is it\n", NULL, NULL, NULL },
		{ "wandb: WARNING ConnectionResetError(104, 'Connection reset by peer'), retrying\n", NULL, NULL, NULL },
		{ "Using FallbackKernel: aten.sort\nwe are skipping cudagraphs in this talk\n", NULL, NULL, NULL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char text[4096];
		struct outcome o;
		const struct lg_finding *f;

		snprintf(text, sizeof text, STEPS STEPS "%s", rows[i].text);
		o = judge(feed_text(text, "log"));
		f = o.v->n_findings ? &o.v->findings[0] : NULL;
		if (!rows[i].id != !f || (f && (strcmp(f->id, rows[i].id) ||
						strcmp(lg_severity_text(f->severity), rows[i].severity))))
			fail_msg("log %zu: %s %s", i, f ? f->id : "nothing", f ? lg_severity_text(f->severity) : "");
		if (rows[i].not_judged && (!o.v->not_judged || !strstr(o.v->not_judged, rows[i].not_judged)))
			fail_msg("log %zu leaves out: %s", i, o.v->not_judged ? o.v->not_judged : "nothing");
		if (!rows[i].not_judged && o.v->n_not_judged > (o.v->n_judged > 0))
			fail_msg("log %zu leaves out: %s", i, o.v->not_judged);
		done(&o);
	}
}

/* An elastic launcher starts it anew; and where a rank that is missing says why, that is told. */
static void a_failure_is_told_where_nothing_says_why(void **state)
{
#define KILLED "[rank1]: failed (exitcode: -9) local_rank: 1 (pid: 4242) of binary: python\n"
	struct outcome o = judge(feed_text(KILLED STEPS STEPS, "log"));

	(void)state;
	assert_int_equal(find(o.v, "job.failed")->severity, LG_SEVERITY_LOW);
	done(&o);
	o = judge(feed_text(STEPS KILLED OOM "2.00 GiB." HAS "0 bytes is free. " HELD("38.00 GiB", "1.00 MiB"), "log"));
	assert_null(find(o.v, "job.failed"));
	assert_non_null(find(o.v, "mem.oom"));
	done(&o);
}

/* What was raised before steps go on was caught; of chained exceptions the last is told. */
static void the_last_exception_is_told_where_nothing_follows(void **state)
{
	struct outcome o = judge(feed_text(STEPS "[rank1]: Traceback (most recent call last):\n"
		"[rank1]:   File \"/app/a.py\", line 7, in f\n[rank1]:     g()\n[rank1]: ValueError: 1\n[rank1]: \n"
		"[rank1]: During handling of the above exception, another exception occurred:\n[rank1]: \n"
		"[rank1]: Traceback (most recent call last):\n[rank1]:   File \"/app/b.py\", line 8, in f\n"
		"[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/app/a.py\", line 1, in f\n"
		"[rank1]:     h()\n[rank1]: KeyError: 2\n"
		"[rank0]: RuntimeError: [gloo/pair.cc:553] Connection closed by peer [10.0.0.1]:34181\n", "log"));
	const struct lg_finding *f = find(o.v, "job.failed");

	(void)state;
	assert_non_null(f);
	assert_int_equal(f->culprit.rank, 1);
	assert_non_null(strstr(f->title, "(rank 1): KeyError: 2 (/app/b.py:8)"));
	done(&o);
	o = judge(feed_text(STEPS TRACEBACK "KeyError: 1\n" STEPS, "log"));
	assert_null(find(o.v, "job.failed"));
	done(&o);
}

/* Lines of `to` steps, a second each, or of every `every` of them; rank -1 = nobody says whose. */
static size_t stamped(char *text, int rank, int to, int every, int pause)
{
	size_t k = 0;

	for (int i = 1; i <= to; i++) {
		int at = i + (i > 20 ? pause : 0);

		if (i % every)
			continue;
		if (rank >= 0)
			k += (size_t)sprintf(text + k, "[rank%d]: ", rank);
		k += (size_t)sprintf(text + k, "2026-11-20 10:%02d:%02d,100 INFO step %d loss 2.5\n", at / 60,
				     at % 60, i);
	}
	return k;
}

static void a_log_that_goes_on_without_steps_stands_still(void **state)
{
	static const struct {
		int to, every, pause;
		const char *then, *still, *not_judged;
	} rows[] = {
		{ 60, 1, 0, "2026-11-20 10:31:00,100 INFO heartbeat ok\n2026-11-20 10:51:00,100 INFO heartbeat ok\n",
		  "no step in its last 3000 s (its last one is step 60), though it goes on: \"INFO heartbeat ok\"", NULL },
		{ 60, 1, 0, "2026-11-20 10:31:00,100 INFO received SIGTERM, exiting\n", "in its last 1800 s", NULL },
		/* healthy: the loop is through, a pause was as long before, or the next line is due */
		{ 60, 1, 0, "", NULL, NULL },
		{ 60, 1, 0, "2026-11-20 10:01:20,100 INFO heartbeat ok\n", NULL, NULL },
		{ 60, 1, 180, "2026-11-20 10:20:00,100 INFO heartbeat ok\n", NULL, NULL },
		{ 600, 60, 0, "2026-11-20 10:14:00,100 INFO heartbeat ok\n", NULL, NULL },
		{ 5, 1, 0, "2026-11-20 10:31:00,100 INFO heartbeat ok\n", NULL, NULL },
		/* it does something else, and says what */
		{ 60, 1, 0, "2026-11-20 10:01:01,100 INFO evaluating\n2026-11-20 10:21:00,100 INFO heartbeat ok\n", NULL,
		  "the last 1200 s of the log, in which it tells of other work" },
		/* why it stands is told */
		{ 60, 1, 0, "KeyError: 1\n2026-11-20 10:31:00,100 ERROR failed (exitcode: -9) local_rank: 1 (pid: 4242) of "
			    "binary: python\n", NULL, NULL },
	};
	char text[1 << 16];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct outcome o;
		char head[1024];

		strcpy(text + stamped(text, -1, rows[i].to, rows[i].every, rows[i].pause), rows[i].then);
		o = judge(feed_text(text, "log"));
		lg_headline(o.v, head, sizeof head);
		if (!rows[i].still != !o.v->still ||
		    (rows[i].still && (!strstr(o.v->still, rows[i].still) || strncmp(head, "The run stands still", 20))))
			fail_msg("log %zu: %s", i, head);
		if (rows[i].not_judged ? !strstr(o.v->not_judged, rows[i].not_judged)
				       : o.v->n_not_judged > (o.v->n_judged > 0))
			fail_msg("log %zu: %s", i, head);
		done(&o);
	}
}

static void a_rank_whose_log_ends_before_the_others_is_told(void **state)
{
	static const struct {
		int of_other;
		bool told;
	} rows[] = { { 60, true }, { 100, true }, { 110, false }, { 120, false } };
	char text[1 << 16];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct outcome o;
		bool told;

		(void)stamped(text + stamped(text, 0, 120, 1, 0), 1, rows[i].of_other, 1, 0);
		o = judge(feed_text(text, "log"));
		told = o.v->not_judged && strstr(o.v->not_judged, "why rank 1 tells of no step");
		if (told != rows[i].told || o.v->still)
			fail_msg("row %zu: %s", i, o.v->not_judged);
		done(&o);
	}
}

#define TEN(line) line line line line line line line line line line

static void what_prints_on_or_says_that_it_has_finished_has_not_failed(void **state)
{
	static const struct {
		const char *text;
		bool failed;
	} rows[] = {
		{ STEPS TRACEBACK "KeyError: 1\nwandb: run offline\nwandb: find logs at ./wandb\n", true },
		{ STEPS TRACEBACK "KeyError: 1\nwandb: run offline\nTraining finished.\n", false },
		{ TRACEBACK "ModuleNotFoundError: No module named 'triton'\n" TEN("a shard is read\n" "and one more\n")
			  "and the last\n", false },
		{ STEPS "RuntimeError: CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors might be\n"
			"For debugging consider\nCompile with `TORCH_USE_CUDA_DSA`\n", true },
		{ STEPS "ImportError: no wandb here\n" "a\nb\nc\nd\n", false },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct outcome o = judge(feed_text(rows[i].text, "log"));

		if (!find(o.v, "job.failed") == rows[i].failed)
			fail_msg("row %zu", i);
		done(&o);
	}
}

#define TABLE(cause) "Failures:\n[1]:\n  rank      : 9 (local_rank: 1)\n  traceback : x\n" cause \
		     "\n[0]:\n  time      : 2026-03-14_09:29:33\n  host      : gpu-b17\n  rank      : 11 (local_rank: 3)\n" \
		     "  exitcode  : -9 (pid: 803)\n  error_file: <N/A>\n  traceback : Signal 9 (SIGKILL) received by PID 803\n"

/* Its word on the root cause, and only that. */
static void the_table_of_torchrun_names_the_rank(void **state)
{
	struct outcome o = judge(feed_text(STEPS "failed (exitcode: -9) local_rank: 3 (pid: 803) of binary: python\n"
					   TABLE("Root Cause (first observed failure):"), "log"));
	const struct lg_finding *f = find(o.v, "job.failed");

	(void)state;
	assert_non_null(f);
	assert_int_equal(f->culprit.rank, 11);
	assert_non_null(strstr(f->title, "(rank 11): exit code -9, local rank 3, on gpu-b17: Signal 9 (SIGKILL)"));
	done(&o);
	o = judge(feed_text(STEPS TABLE("Settings:"), "log"));
	assert_null(find(o.v, "job.failed"));
	done(&o);
	o = judge(feed_text(STEPS "[rank5]: " OOM "2.00 GiB." HAS "0 bytes is free.\n", "log"));
	assert_non_null(strstr(find(o.v, "mem.oom")->title, "(rank 5)"));
	done(&o);
}

/* A search for the batch size runs into it on purpose. */
static void a_failed_request_that_was_caught_is_low(void **state)
{
	struct outcome o = judge(feed_text(OOM "2.00 GiB." HAS "0 bytes is free. " HELD("38.00 GiB", "1.00 MiB") STEPS, "log"));
	const struct lg_finding *f = find(o.v, "mem.oom");

	(void)state;
	assert_non_null(f);
	assert_int_equal(f->severity, LG_SEVERITY_LOW);
	done(&o);
	o = judge(feed_text(STEPS OOM "2.00 GiB." HAS "0 bytes is free. " HELD("38.00 GiB", "1.00 MiB"), "log"));
	assert_int_equal(find(o.v, "mem.oom")->severity, LG_SEVERITY_HIGH);
	done(&o);
}

/* Who ran out of memory is missed by the others, minutes later. */
static void a_failed_request_is_told_before_what_it_led_to(void **state)
{
	struct outcome o = judge(feed_text(
		STEPS "[rank1]: " OOM "2.00 GiB." HAS "0 bytes is free.\n"
		"[rank0]:[E1120 23:52:27.869 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation "
		"timeout: WorkNCCL(SeqNum=42, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for "
		"600056 milliseconds before timing out.\n", "log"));

	(void)state;
	assert_true(o.v->n_findings >= 2);
	assert_string_equal(o.v->findings[0].id, "mem.oom");
	assert_non_null(find(o.v, "comms.missing_rank"));
	done(&o);
}

#define HEAD "V1120 23:42:01.869000 28211 torch/_dynamo/x.py:1] "
#define AT(frame, compile) "\"rank\": 0, \"frame_id\": " frame ", \"frame_compile_id\": " compile ", \"attempt\": 0"
#define AGAIN(compile) \
	HEAD "{\"artifact\": {\"name\": \"recompile_reasons\", \"encoding\": \"json\"}, " AT("0", compile) \
	     ", \"has_payload\": \"0\"}\n\t[\"0/" compile ": tensor 'x' size mismatch\"]\n"

static void recompiles_of_a_structured_trace_name_their_function(void **state)
{
	struct outcome o = judge(feed_text(
		HEAD "{\"str\": [\"/app/train.py\", 3]}\n"
		HEAD "{\"str\": [\"/app/other.py\", 4]}\n"
		HEAD "{\"dynamo_start\": {\"stack\": [{\"line\": 80, \"name\": \"main\", \"filename\": 4}, {\"line\": 6, \"name\": "
		     "\"f\", \"filename\": 3}]}, " AT("0", "0") "}\n"
		HEAD "{\"dynamo_start\": {\"stack\": [{\"line\": 9, \"name\": \"g\", \"filename\": 4}]}, " AT("1", "0") "}\n"
		AGAIN("1") AGAIN("2") AGAIN("3"), "log"));
	const struct lg_finding *f = find(o.v, "compile.recompiles");

	(void)state;
	assert_non_null(f);
	assert_string_equal(f->culprit.function, "f (/app/train.py:6) [0/1]: [\"0/1: tensor 'x' size mismatch\"]");
	done(&o);
	/* A file number that was never told: the id alone. */
	o = judge(feed_text(HEAD "{\"dynamo_start\": {\"stack\": [{\"line\": 9, \"name\": \"g\", \"filename\": 4}]}, "
				 AT("0", "0") "}\n" AGAIN("1") AGAIN("2") AGAIN("3"), "log"));
	f = find(o.v, "compile.recompiles");
	assert_non_null(f);
	assert_string_equal(f->culprit.function, "[0/1]: [\"0/1: tensor 'x' size mismatch\"]");
	done(&o);
}

static void a_failed_compilation_gets_its_own_advice(void **state)
{
	static const char metrics[] =
		HEAD "{\"compilation_metrics\": {\"co_name\": \"g\", \"co_filename\": \"/app/train.py\", \"co_firstlineno\": 9, "
		     "\"fail_type\": \"Unsupported\", \"fail_reason\": \"dynamic control flow\"}, " AT("0", "0") "}\n";
	struct outcome o = judge(feed_text(metrics, "log"));
	const struct lg_finding *f = find(o.v, "compile.skipped");

	(void)state;
	assert_non_null(f);
	assert_string_equal(f->detail, "failed");
	assert_null(strstr(f->fix, "FlopCounterMode"));
	done(&o);
	o = judge(feed_text("V1120 23:49:11.891000 6239 torch/_dynamo/convert_frame.py:1345] skipping: z (reason: non-infra "
			    "torch dispatch mode present, this is not supported today in torch.compile, file: /app/t.py)\n",
			    "log"));
	f = find(o.v, "compile.skipped");
	assert_non_null(f);
	assert_null(f->detail);
	assert_non_null(strstr(f->fix, "FlopCounterMode"));
	done(&o);
}

/* Steps that are lines of a log have no waits to look into: no word about schedulers and Python's lock. */
static void steps_of_a_log_are_called_that(void **state)
{
	static char text[16384];
	struct outcome o;
	size_t k = 0;
	bool said = false;

	(void)state;
	for (int i = 1; i < 40; i++)
		k += (size_t)sprintf(text + k, "[titan] 2026-03-01 10:00:%02d,123 - root - INFO - step: %d  loss:  7.1  tps: 16,384\n",
				     i, i);
	o = judge(feed_text(text, "log"));
	assert_true(o.v->n_judged > 30);
	for (size_t i = 0; i < o.v->n_limits; i++) {
		assert_null(strstr(o.v->limits[i], "GIL"));
		assert_null(strstr(o.v->limits[i], "scheduler"));
		said |= strstr(o.v->limits[i], "the distances in time of the log's lines") != NULL;
		assert_null(strstr(o.v->limits[i], "that the log states"));
	}
	assert_true(said);
	done(&o);
}

enum { LOGGED = 120 };

/* Steps of which every 20th from the 10th is slow; a save's line at every so many, `shift` off them. */
static struct outcome with_saves(const char *save, int shift, int every, bool timed, bool slow)
{
	static char text[1 << 15];
	size_t k = 0;
	int64_t ms = 0;

	for (int i = 0; i < LOGGED; i++) {
		int dur = (slow && i % 20 == 10 ? 2600 : 400) + i * 37 % 11;

		ms += dur;
		if ((i + every - shift) % every == 10)
			k += (size_t)sprintf(text + k, "%s\n", save);
		if (timed)
			k += (size_t)sprintf(text + k, "[2026-03-01 10:%02d:%02d.%03d] ", (int)(ms / 60000),
					     (int)(ms / 1000 % 60), (int)(ms % 1000));
		k += (size_t)sprintf(text + k, "iteration %d/ 1000 | elapsed time per iteration (ms): %d.0 |\n", i + 1,
				     dur);
	}
	return judge(feed_text(text, "log"));
}

static void saves_that_the_slow_steps_hold_are_their_cause(void **state)
{
	static const char *const saves[] = {
		"saving checkpoint at iteration      30 to /ckpt in torch_dist format",
		"  successfully saved checkpoint from iteration      30 to /ckpt",
		"Saving model checkpoint to out/checkpoint-30\nConfiguration saved in out/checkpoint-30/config.json",
		"saving checkpoint to out",
		"[Torch] Saving out/global_step30/mp_rank_00_model_states.pt...",
		"Saved checkpoint at step 30, loss 2.31",
	};

	(void)state;
	for (size_t i = 0; i < sizeof saves / sizeof *saves * 2; i++) {
		struct outcome o = with_saves(saves[i / 2], 0, 20, i % 2, true);
		const struct lg_finding *f = find(o.v, "side.checkpoint");

		if (!f)
			fail_msg("log %zu: nothing", i);
		assert_int_equal(f->severity, LG_SEVERITY_HIGH);
		assert_true(f->lost_ms > 6 * 2150 && f->lost_ms < 6 * 2250);
		assert_true(f->lost_share > 0.2 && f->lost_share < 0.25);
		assert_true(f->excess_share > 0.99 && o.v->unexplained_share < 0.01);
		assert_non_null(strstr(f->title, "6 of the 6 slow steps"));
		assert_int_equal(o.v->n_findings, 1);
		done(&o);
	}
}

static void saves_beside_slow_steps_are_not_blamed(void **state)
{
	static const struct {
		const char *save;
		int shift, every;
		bool slow;
	} rows[] = {
		{ "saving checkpoint to out", 7, 20, true },  /* other steps hold them */
		{ "saving checkpoint to out", 1, 20, true },
		{ "saving checkpoint to out", 0, 20, false }, /* they cost nothing */
		{ "saving checkpoint to out", 0, 40, true }, /* half of the slow ones hold one */
		{ "checkpoints will be saved to out", 0, 20, true },
		{ "save_checkpoint: true, ckpt=1", 0, 20, true },
		{ "loading checkpoint saved at step 10", 0, 20, true },
		{ "saving the plot to out.png", 0, 20, true },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows * 2; i++) {
		struct outcome o = with_saves(rows[i / 2].save, rows[i / 2].shift, rows[i / 2].every, i % 2,
					      rows[i / 2].slow);

		if (o.v->n_findings)
			fail_msg("log %zu: %s", i, o.v->findings[0].title);
		assert_true(o.v->n_judged > 100);
		done(&o);
	}
}

static void markup_is_no_log(void **state)
{
	static const char *const texts[] = { "<html>iteration 1 it/s]\n", "<?xml version=\"1.0\"?>\n<a>UserWarning: 1</a>\n",
					     "<a>:\nUserWarning: x\n" };

	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		(void)feed_refused(texts[i], strlen(texts[i]));
}

/* Lines of two ranks a tenth of a second apart; the second one's end so many tenths before. */
static void logs_of_two_ranks_agree_to_two_seconds(void **state)
{
	static const struct {
		int tenths;
		bool told;
	} rows[] = { { 25, true }, { 18, false }, { 0, false } };
	char text[16384];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct outcome o;
		size_t n = 0;

		for (int s = 0; s < 80; s++)
			for (int rank = 0; rank < (s < 80 - rows[i].tenths ? 2 : 1); rank++)
				n += (size_t)snprintf(text + n, sizeof text - n, "[rank%d]: 2025-10-03 18:37:%02d,%d00 - root - "
						      "INFO - step: %d loss: 2.3\n", rank, s / 10, s % 10, s);
		assert_true(n < sizeof text);
		o = judge(feed_text(text, "log"));
		if (rows[i].told != (o.v->not_judged && strstr(o.v->not_judged, "why rank 1 tells of no step") != NULL))
			fail_msg("row %zu: %s", i, o.v->not_judged ? o.v->not_judged : "silent");
		done(&o);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_failed_request_tells_why),
		cmocka_unit_test(logs_of_two_ranks_agree_to_two_seconds),
		cmocka_unit_test(no_line_that_is_kept_goes_by_unjudged),
		cmocka_unit_test(a_failure_is_told_where_nothing_says_why),
		cmocka_unit_test(the_table_of_torchrun_names_the_rank),
		cmocka_unit_test(the_last_exception_is_told_where_nothing_follows),
		cmocka_unit_test(a_log_that_goes_on_without_steps_stands_still),
		cmocka_unit_test(a_rank_whose_log_ends_before_the_others_is_told),
		cmocka_unit_test(what_prints_on_or_says_that_it_has_finished_has_not_failed),
		cmocka_unit_test(a_failed_request_that_was_caught_is_low),
		cmocka_unit_test(a_failed_request_is_told_before_what_it_led_to),
		cmocka_unit_test(a_function_at_its_recompile_limit_runs_eagerly_or_fails),
		cmocka_unit_test(debugging_aids_speak_up_in_the_log),
		cmocka_unit_test(recompiles_of_a_structured_trace_name_their_function),
		cmocka_unit_test(a_failed_compilation_gets_its_own_advice),
		cmocka_unit_test(markup_is_no_log),
		cmocka_unit_test(saves_beside_slow_steps_are_not_blamed),
		cmocka_unit_test(saves_that_the_slow_steps_hold_are_their_cause),
		cmocka_unit_test(steps_of_a_log_are_called_that),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
