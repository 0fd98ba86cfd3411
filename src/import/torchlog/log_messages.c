/* SPDX-License-Identifier: Apache-2.0 */
/* log_messages.c - known sentences and the step lines of training frameworks. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "import/torchlog/step_regex.h"
#include "import/torchlog/torchlog.h"

enum { STEP_TEXTS = 10000 }; /* kept whole of step lines */

/* The integer behind word; otherwise if there is none. */
static int64_t int_after(const char *text, const char *word, int64_t otherwise)
{
	const char *p = strstr(text, word);
	char *end;
	int64_t v;

	if (!p)
		return otherwise;
	p += strlen(word);
	v = strtoll(p, &end, 10);
	return end > p ? v : otherwise;
}

/* The number behind word, with commas for thousands; NaN if there is none. */
static double real_after(const char *text, const char *word)
{
	const char *p = strstr(text, word);
	char digits[64];
	size_t k = 0;

	if (!p)
		return __builtin_nan("");
	p += strlen(word);
	p += strspn(p, " \t='\":");
	for (; *p && k < sizeof digits - 1 && (isdigit((unsigned char)*p) || strchr(".,eE+-", *p)); p++)
		if (*p != ',')
			digits[k++] = *p;
	digits[k] = 0;
	return k ? strtod(digits, NULL) : __builtin_nan("");
}

/* "1.31 GiB" */
static int64_t bytes_after(const char *text, const char *word)
{
	static const char units[] = "KMGT";
	const char *p = strstr(text, word), *u;
	char *end;
	double v;

	if (!p)
		return 0;
	v = strtod(p + strlen(word), &end);
	end += strspn(end, " ");
	u = *end ? strchr(units, *end) : NULL;
	for (long i = u ? u - units + 1 : 0; i > 0; i--)
		v *= 1024;
	return v > 0 && v < 1e18 ? (int64_t)v : 0;
}

/* The number that ends where words begin; 0 = none. */
static int64_t int_before(const char *m, const char *words)
{
	const char *end = strstr(m, words), *p = end;

	while (p && p > m && end - p < 18 && isdigit((unsigned char)p[-1]))
		p--;
	return p && p < end ? strtoll(p, NULL, 10) : 0;
}

static int64_t value_of(const char *name, const char *m)
{
	if (!strcmp(name, "log.watchdog_timeout"))
		return int_after(m, "SeqNum=", -1);
	if (!strcmp(name, "log.watchdog_exception"))
		return int_after(m, "watchdog at work: ", -1);
	if (!strcmp(name, "log.collective_mismatch"))
		return int_after(m, "SequenceNumber=", -1);
	if (!strcmp(name, "log.barrier_timeout"))
		return int_after(m, "]: Rank ", int_after(m, "Rank ", -1));
	if (!strcmp(name, "log.gloo_timeout"))
		return int_after(m, "Timed out waiting ", 0);
	if (!strcmp(name, "log.oom"))
		return bytes_after(m, "Tried to allocate ");
	if (!strcmp(name, "log.alloc_retries") || !strcmp(name, "log.alloc_ooms"))
		return int_before(m, !strcmp(name, "log.alloc_ooms") ? " CUDA OOM errors" : " CUDA memory allocation");
	if (!strcmp(name, "log.loader_workers"))
		return int_after(m, "will create ", 0);
	return 0;
}

/* Which byte follows which in a text, as to their lowest six bits. */
struct pairs {
	uint64_t follows[64];
};

static struct pairs pairs_of(const char *text)
{
	struct pairs p = { 0 };

	for (; text[0] && text[1]; text++)
		p.follows[text[0] & 63] |= UINT64_C(1) << (text[1] & 63);
	return p;
}

/* False: the text surely has not these words, and need not be searched. That is so of nearly all. */
static bool can_have(const struct pairs *p, const char *words)
{
	for (; words[1]; words++)
		if (!(p->follows[words[0] & 63] >> (words[1] & 63) & 1))
			return false;
	return true;
}

/* Is it a job's process that lost its peer? Any library has connections. */
static bool is_of_job(const char *m)
{
	static const char *const words[] = { "gloo", "c10d", "NCCL", "nccl", "TCPStore", "ProcessGroup" };

	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (strstr(m, words[i]))
			return true;
	return false;
}

int lg_torchlog_sentence(struct lg_torchlog *l, const struct lg_log_line *line, bool of_distributed)
{
	static const struct {
		const char *words, *name;
	} known[] = {
		{ "non-infra torch dispatch mode present", "log.compile_skipped" },
		{ "dynamo tracing is disabled", "log.compile_skipped" },
		{ "torch.compile will skip tracing the frame", "log.compile_skipped" },
		{ "torch.compile cannot properly resume from this graph break", "log.compile_skipped" },
		{ "found no compiled frames", "log.compile_none" },
		/* torch/_dynamo/exc.py; the others before 2.7 and 2.6 */
		{ "FailOnRecompileLimitHit", "log.recompile_limit_error" },
		{ "RecompileLimitExceeded: ", "log.recompile_limit_error" },
		{ "FailOnCacheLimitHit", "log.recompile_limit_error" },
		{ "torch._dynamo.exc.BackendCompilerFailed: ", "log.compile_failed" },
		{ "torch._inductor.exc.InductorError: ", "log.compile_failed" },
		{ "torch._dynamo.exc.InternalTorchDynamoError: ", "log.compile_failed" },
		{ "skipping cudagraphs due to", "log.cudagraph_skipped" },
		{ "Watchdog caught collective operation timeout", "log.watchdog_timeout" },
		{ "detected by watchdog at work", "log.watchdog_exception" },
		{ "watchdog thread terminated with exception", "log.watchdog_exception" },
		{ "due to ProcessGroupNCCL watchdog hang", "log.watchdog_exception" },
		{ "Detected mismatch between collectives on ranks", "log.collective_mismatch" },
		{ "failed to pass monitoredBarrier", "log.barrier_timeout" },
		{ "ms for recv operation to complete", "log.gloo_timeout" },
		{ "ms for send operation to complete", "log.gloo_timeout" },
		{ "Application timeout caused pair closure", "log.gloo_timeout" },
		{ "Connection closed by peer", "log.peer_lost" },
		{ "Connection reset by peer", "log.peer_lost" },
		{ "ncclUnhandledCudaError", "log.nccl_error" },
		{ "ncclSystemError", "log.nccl_error" },
		{ "ncclRemoteError", "log.nccl_error" },
		{ "ncclInternalError", "log.nccl_error" },
		{ "CUDA out of memory. Tried to allocate", "log.oom" },
		{ "HIP out of memory. Tried to allocate", "log.oom" },
		{ "TensorFloat32 tensor cores for float32 matrix multiplication available but not enabled",
		  "log.tf32_off" },
		{ "Not enough SMs to use max_autotune_gemm", "log.max_autotune_off" },
		{ "flex_attention called without torch.compile", "log.flex_eager" },
		{ "Using FallbackKernel: ", "log.fallback_kernel" },
		{ "does not have a deterministic implementation", "log.nondeterministic" },
		{ "find_unused_parameters=True was specified in DDP constructor, but did not find",
		  "log.ddp_find_unused" },
		{ "Grad strides do not match bucket view strides", "log.ddp_grad_strides" },
		{ "This DataLoader will create ", "log.loader_workers" },
		{ "Gradient overflow.  Skipping step", "log.grad_overflow" },
		{ "OVERFLOW! Rank ", "log.grad_overflow" }, /* DeepSpeed; its rank skips the step */
		{ " CUDA memory allocation retries.", "log.alloc_retries" }, /* torchtitan */
		{ " CUDA OOM errors thrown.", "log.alloc_ooms" },
		/* torch/autograd/anomaly_mode.py; torch/csrc/autograd/python_anomaly_mode.cpp, at a NaN */
		{ "Anomaly Detection has been enabled. This mode will increase the runtime", "log.anomaly" },
		{ "Traceback of forward call that caused the error", "log.anomaly" },
		{ "ActivityProfilerController.cpp:", "log.profiled" },
		{ ") is killed by signal: ", "log.worker_failed" }, /* torch/utils/data/_utils/signal_handling.py */
		/* aten/src/ATen/native/transformers/cuda/sdp_utils.cpp */
		{ "attention kernel not used because", "log.sdpa_fallback" },
		{ "efficient kernel not used because", "log.sdpa_fallback" },
		{ "Torch was not compiled with flash attention", "log.sdpa_fallback" },
		{ "'train_runtime': ", "log.train_summary" },
	};
	const struct pairs pairs = pairs_of(line->msg);

	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (can_have(&pairs, known[i].words) && strstr(line->msg, known[i].words)) {
			/* libkineto prints each of its stages; a trace is done once. */
			if (!strcmp(known[i].name, "log.profiled") &&
			    !strstr(line->msg, "Completed Stage: Collection"))
				return 0;
			if (!strcmp(known[i].name, "log.peer_lost") && !of_distributed && !is_of_job(line->msg))
				return 0;
			lg_torchlog_mark(l, line, known[i].name, value_of(known[i].name, line->msg), NULL);
			return 1;
		}
	return 0;
}

/* "saving", "Saved" as a word of its own, neither "save_interval" nor "save: true"; NULL = none. */
static const char *save_word(const char *m)
{
	for (const char *p = m; (p = strcasestr(p, "sav")); p++) {
		size_t n = !strncasecmp(p, "saving", 6) ? 6 : !strncasecmp(p, "saved", 5) ? 5 :
			   !strncasecmp(p, "save", 4)	? 4 : 0;

		if (n && (p == m || !(isalnum((unsigned char)p[-1]) || strchr("_-.", p[-1]))) &&
		    !isalnum((unsigned char)p[n]) && (!p[n] || !strchr("_-=", p[n])) &&
		    (p[n] != ':' || n != 4) && (p[n] != ' ' || p[n + 1] != '='))
			return p;
	}
	return NULL;
}

/*
 * A checkpoint that is written now: of Megatron ("saving checkpoint at iteration", "successfully saved"),
 * transformers ("Saving model checkpoint to"), torchtitan ("Saving the checkpoint"), DeepSpeed ("Saving
 * .._model_states.pt"), nanoGPT and loops of one's own. No plan of it, and no old one that is read. 1 = it is no
 * step line, though it may count a step and tell its loss.
 */
static int checkpoint(struct lg_torchlog *l, const struct lg_log_line *line)
{
	static const char *const what[] = { "checkpoint", "ckpt", "model_states", "model weights" };
	static const char *const others[] = { "load", "resum", "restor", "will ", "would ", "to be ", " not ", "n't ",
					      "no ", "never", "every", "fail", "skip", "delet", "remov", "last saved" };
	const char *m = line->msg, *word = save_word(m), *loss;
	bool found = false;

	for (size_t i = 0; word && !found && i < sizeof what / sizeof *what; i++)
		found = strcasestr(m, what[i]) != NULL;
	for (size_t i = 0; found && i < sizeof others / sizeof *others; i++)
		found = !strcasestr(m, others[i]);
	if (!found)
		return 0;
	lg_torchlog_mark(l, line, "log.checkpoint", 0, NULL);
	loss = strcasestr(m, "loss");
	return !strstr(m, "%|") && (!loss || word < loss);
}

void lg_torchlog_counter(struct lg_torchlog *l, const struct lg_log_line *line, const char *name,
			 const char *unit, int32_t index, double v)
{
	lg_prc p = lg_thread_process(l->b, lg_torchlog_thread(l, line));
	struct lg_track_row track = { .kind = LG_TRACK_COUNTER, .name = lg_intern(l->b, name), .prc = p,
				      .unit = lg_intern(l->b, unit), .index = index };

	if (isfinite(v))
		lg_add_counter(l->b, &(struct lg_counter_row){ .ts = lg_torchlog_now(l, line), .value = v,
							       .track = lg_track_get(l->b, &track) });
}

static void counter(struct lg_torchlog *l, const struct lg_log_line *line, const char *name, const char *unit,
		    double v)
{
	lg_torchlog_counter(l, line, name, unit, -1, v);
}

/* A run of weeks has millions of these lines, no two alike: what they say is in the counters. */
void lg_torchlog_mark_step(struct lg_torchlog *l, const struct lg_log_line *line, int64_t number)
{
	lg_torchlog_mark(l, line, "log.step", number, l->step_lines++ < STEP_TEXTS ? NULL : "");
	if (line->ts == INT64_MIN)
		return;
	l->step_at = line->ts;
	l->step_thr = lg_torchlog_thread(l, line);
	l->other_work = false;
}

struct lg_log_step *lg_torchlog_last_step(struct lg_torchlog *l, lg_thr thr, int64_t otherwise)
{
	uint32_t at = lg_map_get(&l->step_of, thr);

	if (!at) {
		at = (uint32_t)l->n_step + 1;
		if (lg_grow(&l->step, &l->cap_step, at, sizeof *l->step) ||
		    lg_map_set(&l->step_of, thr, at)) {
			lg_builder_fail(l->b);
			return NULL;
		}
		l->step[l->n_step++] = (struct lg_log_step){ .step = otherwise, .first = otherwise + 1,
							   .ts = INT64_MIN };
	}
	return &l->step[at - 1];
}

/*
 * How many steps the line tells of; 0 = unknown. A smaller number begins another epoch: where each step so
 * far had a line, and this is the number that the one before began with, one step.
 */
static int64_t steps_since(const struct lg_log_step *s, int64_t number)
{
	if (number > s->step)
		return number - s->step;
	return number < s->step && number == s->first && !s->skips;
}

void lg_torchlog_step(struct lg_torchlog *l, const struct lg_log_line *line, int64_t number, double ms)
{
	int64_t now = lg_torchlog_now(l, line), steps;
	bool stamped = line->ts != INT64_MIN;
	struct lg_log_step *s;

	if (number < 0 || number > LG_LOG_STEPS_MAX)
		return;
	lg_torchlog_mark_step(l, line, number);
	s = lg_torchlog_last_step(l, lg_torchlog_thread(l, line), number - 1);
	if (!s)
		return;
	steps = steps_since(s, number);
	s->n_stated += ms > 0;
	if (stamped && (!isfinite(ms) || (ms > 0 && ms < 1e9)))
		lg_torchlog_stamped_step(l, line, number, !s->stamped || now >= s->ts ? steps : 0, ms,
					 s->stamped ? s->ts : INT64_MIN);
	else if (isfinite(ms) && ms > 0 && ms < 1e9)
		counter(l, line, "log.step_ms", "ms", ms);
	s->skips |= steps > 1;
	s->first = number < s->step ? number : s->first;
	s->step = number;
	s->ts = now;
	s->stamped = stamped;
}

/* "512ms", "1.5s", "2.5 min" behind word, in ms; NaN without a unit. */
static double time_after(const char *text, const char *word)
{
	static const struct {
		const char *unit;
		double ms;
	} units[] = { { "ms", 1 }, { "us", 1e-3 }, { "sec", 1000 }, { "s", 1000 }, { "min", 60000 },
		      { "m", 60000 } };
	const char *p = strstr(text, word);
	char *end;
	double v = p ? strtod(p + strlen(word), &end) : 0;

	if (!p || end == p + strlen(word) || !(v >= 0))
		return (double)NAN;
	end += strspn(end, " ");
	for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
		size_t k = strlen(units[i].unit);

		if (!strncmp(end, units[i].unit, k) && !isalpha((unsigned char)end[k]))
			return v * units[i].ms;
	}
	return (double)NAN;
}

void lg_torchlog_step_of_total(struct lg_torchlog *l, const struct lg_log_line *line, int64_t number,
			       double total)
{
	struct lg_log_step *s = lg_torchlog_last_step(l, lg_torchlog_thread(l, line), number - 1);
	double ms = (double)NAN;

	if (!s || (s->has_total && number == s->total_at))
		return;
	if (s->has_total && number > s->total_at && total >= s->total_ms) {
		/* A total of whole seconds may stand still: the next that moves divides by all. */
		if (total == s->total_ms) {
			lg_torchlog_mark_step(l, line, number);
			return;
		}
		ms = (total - s->total_ms) / (double)(number - s->total_at);
	}
	s->has_total = isfinite(total);
	s->total_ms = total;
	s->total_at = number;
	lg_torchlog_step(l, line, number, ms);
}

/*
 * NeMo states a step's seconds, in the text of a bar ("global_step=99.00, .., train_step_timing in s=3.130]") or
 * in a line of its own ("| global_step: 1 | .. | train_step_timing in s: 2.505"). A bar is drawn more than once.
 */
static int nemo_step(struct lg_torchlog *l, const struct lg_log_line *line)
{
	static const char timing[] = "train_step_timing in s";
	const char *p = strstr(line->msg, timing);
	double number = p ? real_after(line->msg, "global_step") : (double)NAN;
	struct lg_log_step *s;

	if (!(number >= 0 && number <= (double)LG_LOG_STEPS_MAX))
		return 0;
	s = lg_torchlog_last_step(l, lg_torchlog_thread(l, line), (int64_t)number - 1);
	if (s && s->step == (int64_t)number) {
		l->known++;
		return 1;
	}
	lg_torchlog_step(l, line, (int64_t)number, real_after(p, timing) * 1000);
	counter(l, line, "log.loss", "", real_after(line->msg, "reduced_train_loss"));
	return 1;
}

/*
 * DeepSpeed: "[Rank 0] step=10, skipped=0, lr=[..], mom=[..]", every so many steps. Where a progress bar counts the
 * same steps one by one (Hugging Face's), that one tells more.
 */
static int deepspeed_step(struct lg_torchlog *l, const struct lg_log_line *line)
{
	const char *p = strstr(line->msg, "step=");
	long long n;
	int used = 0;

	if (!p || sscanf(p, "step=%lld, skipped=%*d, lr=[%n", &n, &used) != 1 || !used)
		return 0;
	if (lg_torchlog_bar_counts(l, n))
		l->known++;
	else
		lg_torchlog_step(l, line, n, (double)NAN);
	return 1;
}

/*
 * transformers' Trainer: "{'loss': 2.31, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'epoch': 0.1}", behind whatever a
 * logger puts before it, every logging_steps steps, and without their number: lines are counted. Where its
 * bar counts the steps themselves, that one tells more.
 */
static int trainer_dict(struct lg_torchlog *l, const struct lg_log_line *line)
{
	const char *m = strstr(line->msg, "{'loss': ");
	struct lg_log_step *s;

	if (!m || !strstr(m, "'epoch': "))
		return 0;
	s = lg_torchlog_last_step(l, lg_torchlog_thread(l, line), -1);
	if (l->bars_of_steps || (l->by_framework && !l->by_trainer) || !s) {
		lg_torchlog_mark_step(l, line, -1);
	} else {
		lg_torchlog_step(l, line, s->step + 1, (double)NAN);
		l->by_trainer++;
	}
	m += strlen("{'loss': ");
	counter(l, line, "log.loss", "", strtod(m + (*m == '\''), NULL));
	return 1;
}

static int framework_step(struct lg_torchlog *l, const struct lg_log_line *line)
{
	const char *m = line->msg, *p;
	long long n;
	int used = 0;
	double ms;

	/* Megatron: "iteration 10/ 1000 | consumed samples: .. | elapsed time per iteration (ms): 512.3 | .." */
	if ((p = strstr(m, "elapsed time per iteration (ms):")) && (m = strstr(m, "iteration")) && m < p &&
	    sscanf(m, "iteration %lld/", &n) == 1) {
		lg_torchlog_step(l, line, n, real_after(p, "(ms):"));
		counter(l, line, "log.loss", "", real_after(m, "lm loss:"));
		ms = real_after(m, "global batch size:");
		if (ms >= 1 && ms < 1e9)
			lg_meta_setf(l->b, lg_thread_process(l->b, lg_torchlog_thread(l, line)), "batch.global",
				     "%.0f", ms);
		return 1;
	}
	m = line->msg;
	/* torchtitan: "step: 10  loss: 7.1  memory: 30GiB(40%)  tps: 1,234  tflops: .." */
	if ((p = strstr(m, "step:")) && strstr(p, "tps:") && sscanf(p, "step: %lld", &n) == 1) {
		lg_torchlog_step(l, line, n, __builtin_nan(""));
		counter(l, line, "log.tokens_per_s", "1/s", real_after(p, "tps:"));
		counter(l, line, "log.loss", "", real_after(p, "loss:"));
		return 1;
	}
	/* nanoGPT: "iter 100: loss 2.31, time 123.45ms, mfu 31.2%" */
	if (sscanf(m, "iter %lld: loss %*f, time %lf%n", &n, &ms, &used) == 2 && used) {
		lg_torchlog_step(l, line, n, !strncmp(m + used, "ms", 2) ? ms : ms * 1000);
		counter(l, line, "log.loss", "", real_after(m, "loss "));
		return 1;
	}
	/* modded-nanogpt: "step:10/5100 train_loss:9.24 train_time:25859ms step_avg:143.66ms" (a mean of all) */
	if (sscanf(m, "step:%lld%n", &n, &used) == 1 && used && (p = strstr(m + used, " train_time:")) &&
	    (n >= 0 && n <= LG_LOG_STEPS_MAX)) {
		lg_torchlog_step_of_total(l, line, n, time_after(p, "train_time:"));
		counter(l, line, "log.loss", "", real_after(m, "train_loss:"));
		return 1;
	}
	if (lg_torchlog_epoch_step(l, line))
		return 1;
	if (nemo_step(l, line) || deepspeed_step(l, line))
		return 1;
	return trainer_dict(l, line);
}

/* "loss nan", "lm loss: inf", "'loss': nan": the number behind the word. */
static bool loss_is_no_number(const char *m)
{
	for (const char *p = m; (p = strcasestr(p, "loss")); p += 4) {
		const char *v = p + 4 + strspn(p + 4, " \t='\":");
		bool is;

		v += *v == '-';
		is = !strncasecmp(v, "nan", 3) || !strncasecmp(v, "inf", 3);
		if (v > p + 4 && is && !isalnum((unsigned char)v[3]))
			return true;
	}
	return false;
}

/* A step that trained nothing: of a loss that is no number, or, as Megatron says it, skipped. */
static void useless_step(struct lg_torchlog *l, const struct lg_log_line *line)
{
	if (int_after(line->msg, "number of nan iterations:", 0) > 0 || loss_is_no_number(line->msg))
		lg_torchlog_mark(l, line, "log.nan_loss", 0, NULL);
	else if (int_after(line->msg, "number of skipped iterations:", 0) > 0)
		lg_torchlog_mark(l, line, "log.grad_overflow", 0, NULL);
}

static int step_line(struct lg_torchlog *l, const struct lg_log_line *line)
{
	int bar = 0;

	if (!framework_step(l, line)) {
		bar = lg_torchlog_bar(l, line);
		if (!bar) {
			if (!lg_torchlog_plain_step(l, line))
				return 0;
			useless_step(l, line);
			return 1;
		}
	}
	l->bars_of_steps |= bar > LG_LOG_BAR_ASIDE;
	/* A bar that loads or evaluates says nothing of how the loop prints its steps. */
	if (!bar)
		useless_step(l, line);
	l->by_framework |= bar != LG_LOG_BAR_SETUP && bar != LG_LOG_BAR_ASIDE;
	return 1;
}

/* What the user calls a step line: the word of who knows the job goes before what is known here. */
static int user_step(struct lg_torchlog *l, const struct lg_log_line *line)
{
	int64_t number;
	double ms;

	if (!lg_step_regex_match(line->text, &number, &ms))
		return 0;
	l->by_regex++;
	lg_torchlog_step(l, line, number, ms);
	return 1;
}

/* A logger tells of it: whether it ended the program it does not tell. */
static int device_error(struct lg_torchlog *l, const struct lg_log_line *line)
{
	const char *m = line->msg, *word;

	if (line->ts == INT64_MIN || !strstr(m, "error"))
		return 0;
	while (m && !lg_log_device_error(m))
		m = (word = strchr(m, ' ')) ? word + 1 : NULL;
	if (!m)
		return 0;
	lg_torchlog_mark(l, line, "log.device_error", 0, NULL);
	return 1;
}

int lg_torchlog_message(struct lg_torchlog *l, const struct lg_log_line *line)
{
	return user_step(l, line) || lg_torchlog_memory(l, line) || lg_torchlog_sentence(l, line, false) ||
	       lg_torchlog_end_of_process(l, line) || device_error(l, line) ||
	       checkpoint(l, line) || step_line(l, line);
}
