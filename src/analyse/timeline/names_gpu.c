/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names_gpu.c - what the name of a span says it is.
 *
 * Sources: torch/utils/data/dataloader.py and torch/optim/optimizer.py (record_function names),
 * torch/csrc/autograd/engine.cpp (evaluate_function), torch/_dynamo (dynamo_timed, Torch-Compiled
 * Region), CUDA runtime and driver API, HIP runtime API. Exports of Nsight carry versions
 * (cudaLaunchKernel_v7000): prefixes are compared.
 */
#include <ctype.h>
#include <string.h>

#include "analyse/timeline/timeline_gpu.h"

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

static enum lg_name_class runtime_class(const char *a)
{
	if (starts(a, "GraphLaunch"))
		return LG_NAME_GRAPH_LAUNCH;
	if (starts(a, "GraphInstantiate"))
		return LG_NAME_GRAPH_BUILD;
	if (strstr(a, "LaunchKernel") || strstr(a, "LaunchCooperative") || starts(a, "EnqueueKernelLaunch") ||
	    starts(a, "EnqueueCooperativeKernelLaunch"))
		return LG_NAME_LAUNCH;
	if (starts(a, "StreamSynchronize") || starts(a, "DeviceSynchronize") ||
	    starts(a, "EventSynchronize") || starts(a, "CtxSynchronize") || strstr(a, "HostSynchronize") ||
	    starts(a, "CommandQueueSynchronize") || starts(a, "QueueFinish") || !strcmp(a, "EventWait") ||
	    !strcmp(a, "EventsWait"))
		return LG_NAME_SYNC;
	if (strstr(a, "AppendMemoryCopy") || strstr(a, "AppendMemoryFill") || starts(a, "EnqueueUSM") ||
	    starts(a, "EnqueueMemBuffer"))
		return LG_NAME_COPY_CALL;
	/* hipMemcpyWithStream waits for its copy (HIP API: synchronous with respect to the host);
	 * cudaMemcpy, cuMemcpyHtoD and hipMemcpy without Async do, too. */
	if (starts(a, "Memcpy") || starts(a, "Memset"))
		return strstr(a, "Async") || starts(a, "Memset") ? LG_NAME_COPY_CALL
								: LG_NAME_BLOCKING_COPY;
	if (starts(a, "MallocHost") || starts(a, "HostAlloc") || starts(a, "HostMalloc") ||
	    starts(a, "HostRegister"))
		return LG_NAME_ALLOC;
	if ((starts(a, "Malloc") && !strstr(a, "Async")) || starts(a, "MemAlloc") ||
	    starts(a, "MemCreate") || starts(a, "MemMap") || starts(a, "USMDeviceAlloc") ||
	    starts(a, "USMHostAlloc") || starts(a, "USMSharedAlloc"))
		return LG_NAME_ALLOC;
	if (starts(a, "Free") || starts(a, "MemFree") || starts(a, "MemUnmap") ||
	    starts(a, "MemRelease") || starts(a, "HostFree") || starts(a, "USMFree"))
		return LG_NAME_FREE;
	return LG_NAME_RUNTIME;
}

bool lg_is_library_path(const char *s)
{
	static const char *const part[] = { "/torch/", "site-packages/", "dist-packages/", "/lib/python3",
					    NULL };
	static const char *const head[] = { "torch/", "<", "contextlib.py", "threading.py", "runpy.py",
					    "typing.py", "functools.py", "multiprocessing/",
					    "concurrent/", "asyncio/", "importlib/", NULL };

	for (size_t i = 0; part[i]; i++)
		if (strstr(s, part[i]))
			return true;
	for (size_t i = 0; head[i]; i++)
		if (starts(s, head[i]))
			return true;
	return false;
}

/* Is the function of a Python frame, "file.py(LINE): function", one of these? A word that ends in "*" is how
 * it begins. */
static bool function_is(const char *function, const char *const *words)
{
	for (; *words; words++) {
		size_t n = strlen(*words);

		if ((*words)[n - 1] == '*' ? !strncmp(function, *words, n - 1) : !strcmp(function, *words))
			return true;
	}
	return false;
}

/*
 * Python calls that save the state or write metrics: torch.save, torch.distributed.checkpoint, safetensors;
 * what trainers name save_checkpoint (DeepSpeed, Lightning, Megatron, transformers); writers of metrics with
 * their functions only, since some wrap the whole program (mlflow's autologging, wandb.agent).
 */
static enum lg_name_class side_frame(const char *file, const char *function)
{
	static const char *const save[] = { "save", "save*", NULL };
	static const char *const save_of[] = { "torch/serialization.py(", "torch/distributed/checkpoint/",
					       "safetensors/", "torch/jit/_serialization.py(", NULL };
	static const char *const checkpoint[] = { "save_checkpoint", "_save_checkpoint", "save_ckpt",
						  "async_save", NULL };
	static const char *const writer[] = { "add_*", "flush", "close", "log", "_log", "log_*", "track",
					      "report_*", "write", NULL };
	static const char *const writer_of[] = { "torch/utils/tensorboard/", "tensorboardX/", "tensorboard/",
						 "wandb/", "mlflow/", "comet_ml/", "neptune/", "clearml/",
						 "aim/", "swanlab/", "loguru/", NULL };
	static const char *const logger[] = { "debug", "info", "warning", "error", "critical", "exception",
					      "log", "_log", "handle", "emit", "flush", NULL };

	if (function_is(function, checkpoint))
		return LG_NAME_SIDE;
	for (size_t i = 0; save_of[i]; i++)
		if (strstr(file, save_of[i]) && function_is(function, save))
			return LG_NAME_SIDE;
	if ((starts(file, "logging/") || strstr(file, "/logging/")) && function_is(function, logger))
		return LG_NAME_LOG;
	for (size_t i = 0; writer_of[i]; i++) {
		const char *at = strstr(file, writer_of[i]);

		if (at && (at == file || at[-1] == '/') && function_is(function, writer))
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

	if (a && !strchr(s, ' ') && !strchr(s, '(') && !strchr(s, ':'))
		return runtime_class(a);
	if (starts(s, "enumerate(Data"))
		return LG_NAME_LOADER;
	if (starts(s, "Optimizer.step#") || starts(s, "## optimizer"))
		return LG_NAME_OPTIMIZER;
	if (starts(s, "ProfilerStep"))
		return LG_NAME_STEP;
	if (starts(s, "autograd::engine::evaluate_function") || starts(s, "## backward"))
		return LG_NAME_BACKWARD;
	if (starts(s, "Torch-Compiled Region") || starts(s, "CompiledFunction") ||
	    starts(s, "## Call CompiledFxGraph") || starts(s, "TorchDynamo Cache Lookup"))
		return LG_NAME_COMPILED_REGION;
	if (strstr(s, "(dynamo_timed)"))
		return LG_NAME_COMPILE;
	if (starts(s, "nn.Module: "))
		return LG_NAME_MODULE;
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
