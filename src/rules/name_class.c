/* SPDX-License-Identifier: Apache-2.0 */
/*
 * name_class.c - what the name of a span says it is.
 *
 * Sources: torch/utils/data/dataloader.py and torch/optim/optimizer.py (record_function names),
 * torch/csrc/autograd/engine.cpp (evaluate_function), torch/_dynamo (dynamo_timed, Torch-Compiled
 * Region), CUDA runtime and driver API, HIP runtime API. Exports of Nsight carry versions
 * (cudaLaunchKernel_v7000): prefixes are compared.
 */
#include <ctype.h>
#include <string.h>

#include "rules/device_names.h"

static bool starts(const char *s, const char *prefix)
{
	return !strncmp(s, prefix, strlen(prefix));
}

/* The API behind cuda..., cu..., hip..., and Intel's ze (Level Zero) and ur (Unified Runtime, before it pi):
 * its name without the prefix; NULL when it is none. */
static const char *api(const char *s)
{
	if (starts(s, "cuda") && isupper((unsigned char)s[4]))
		return s + 4;
	if (starts(s, "hip") && isupper((unsigned char)s[3]))
		return s + 3;
	if (starts(s, "cu") && isupper((unsigned char)s[2]))
		return s + 2;
	if ((starts(s, "ze") || starts(s, "ur") || starts(s, "pi")) && isupper((unsigned char)s[2]))
		return s + 2;
	return NULL;
}

static const struct lg_name_row runtime_rows[] = {
#define RUNTIME(how, text, class) { LG_MATCH_##how, text, LG_NAME_##class },
#include "rules/device_names.def"
};

static const struct lg_name_row span_rows[] = {
#define SPAN(how, text, class) { LG_MATCH_##how, text, LG_NAME_##class },
#include "rules/device_names.def"
};

static enum lg_name_class runtime_class(const char *a)
{
	bool async = strstr(a, "Async") != NULL;
	int k;

	/* hipMemcpyWithStream waits for its copy (HIP API: synchronous with respect to the host);
	 * cudaMemcpy, cuMemcpyHtoD and hipMemcpy without Async do, too. */
	if (starts(a, "Memcpy"))
		return async ? LG_NAME_COPY_CALL : LG_NAME_BLOCKING_COPY;
	k = starts(a, "Malloc") && !starts(a, "MallocHost") && async
		    ? 0 : lg_name_means(runtime_rows, sizeof runtime_rows / sizeof *runtime_rows, a);
	return k ? (enum lg_name_class)k : LG_NAME_RUNTIME;
}

bool lg_is_library_path(const char *s)
{
	return lg_on_list(LG_LIST_LIBRARY, s);
}

/* A Python frame, "file.py(LINE): function": does it save the state or write metrics? */
static enum lg_name_class side_frame(const char *file, const char *function)
{
	static const char *const writer_of[] = { "torch/utils/tensorboard/", "tensorboardX/", "tensorboard/",
						 "wandb/", "mlflow/", "comet_ml/", "neptune/", "clearml/",
						 "aim/", "swanlab/", "loguru/", NULL };

	if (lg_on_list(LG_LIST_SAVES_ALL, function) ||
	    (lg_on_list(LG_LIST_SAVERS, file) && starts(function, "save")))
		return LG_NAME_SIDE;
	if ((starts(file, "logging/") || strstr(file, "/logging/")) && lg_on_list(LG_LIST_LOGS, function))
		return LG_NAME_LOG;
	for (size_t i = 0; writer_of[i]; i++) {
		const char *at = strstr(file, writer_of[i]);

		if (at && (at == file || at[-1] == '/') && lg_on_list(LG_LIST_WRITES, function))
			return LG_NAME_LOG;
	}
	return LG_NAME_OTHER;
}

/* The same of an annotation made by hand. "checkpoint" alone may be of activations. */
static enum lg_name_class side_note(const char *s)
{
	if (!strchr(s, '.') && !strstr(s, "::") && strcasestr(s, "sav") &&
	    (strcasestr(s, "checkpoint") || strcasestr(s, "ckpt")))
		return LG_NAME_SIDE;
	if (!strcasecmp(s, "logging") || !strcasecmp(s, "log_metrics") || starts(s, "SummaryWriter."))
		return LG_NAME_LOG;
	return LG_NAME_OTHER;
}

enum lg_name_class lg_name_class_of(const char *s)
{
	const char *a = api(s), *py;
	int k;

	if (a && !strchr(s, ' ') && !strchr(s, '(') && !strchr(s, ':'))
		return runtime_class(a);
	k = lg_name_means(span_rows, sizeof span_rows / sizeof *span_rows, s);
	if (k)
		return (enum lg_name_class)k;
	py = strstr(s, ".py(");
	if (py && strstr(py, "): ")) {
		enum lg_name_class side = side_frame(s, strstr(py, "): ") + 3);

		if (side != LG_NAME_OTHER)
			return side;
		return lg_is_library_path(s) ? LG_NAME_TORCH_FRAME : LG_NAME_FRAME;
	}
	if (starts(s, "<built-in function print>"))
		return LG_NAME_LOG;
	if (starts(s, "<built-in"))
		return LG_NAME_TORCH_FRAME;
	for (py = s; *py; py++) {
		/* ncclKernel_, ncclDevKernel_ (NCCL), rccl... (ROCm). */
		if ((py == s || !isalpha((unsigned char)py[-1])) &&
		    (!strncasecmp(py, "ncclKernel", 10) || !strncasecmp(py, "ncclDevKernel", 13) ||
		     !strncasecmp(py, "rccl", 4)))
			return LG_NAME_COMM;
		if (py - s > 40)
			break;
	}
	/* Symmetric-memory collectives of torch: multimem_all_reduce_kernel, one_shot_all_reduce... */
	if (strstr(s, "multimem_all_") || strstr(s, "_shot_all_reduce") || strstr(s, "cross_device_reduce"))
		return LG_NAME_COMM;
	return side_note(s);
}
