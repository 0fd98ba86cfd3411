/* SPDX-License-Identifier: Apache-2.0 */
/* device_names.h - what a name means, by the tables of device_names.def. */
#ifndef LG_RULES_DEVICE_NAMES_H
#define LG_RULES_DEVICE_NAMES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum lg_name_match { LG_MATCH_IS, LG_MATCH_STARTS, LG_MATCH_HAS, LG_MATCH_HAS_CASELESS,
		     LG_MATCH_STARTS_CASELESS, LG_MATCH_LIKE };

struct lg_name_row {
	uint8_t how; /* enum lg_name_match */
	const char *text;
	int means;
};

/* Of the first of n rows that fits; 0 = none does. */
int lg_name_means(const struct lg_name_row *row, size_t n, const char *name);

enum lg_name_list {
	LG_LIST_LIBRARY, LG_LIST_SAVES_ALL, LG_LIST_SAVERS, LG_LIST_WRITES, LG_LIST_LOGS,
	LG_LIST_FLOAT_COPIES, LG_LIST_FORMULA_CALLS, LG_LIST_CHECKPOINT_NODES, LG_LIST_NEXT,
	LG_LIST_COMPILED, LG_LIST_REGIONS, LG_LIST_LAUNCHES, LG_LIST_MATH_ATTENTION,
	LG_LIST_NODES, LG_LIST_PRODUCTS,
	LG_LIST_ZERO_GRAD, LG_LIST_OPTIMIZER_STEPS, LG_LIST_CONVOLUTIONS, LG_LIST_EVENT_WAITS,
	LG_LIST_NO_TENSOR_CORES, LG_LIST_DDP_SEARCH, LG_LIST_DDP_COPY, LG_LIST_FSDP_PREFETCH,
	LG_LIST_FSDP_FORWARD, LG_LIST_FSDP_BACKWARD, LG_LIST_FSDP_LIMITER, LG_LIST_GATHERS,
	LG_LIST_COMM_RANGES, LG_LIST_TRAINING_KERNELS, LG_LIST_SPINS,
	LG_LIST_PYTHON_WAITS, LG_LIST_PYTHON_READS, LG_LIST_MEMORY, LG_LIST_PINS,
	LG_LIST_COPIES, LG_LIST_COPIES_IN, LG_LIST_COPIES_OUT, LG_LIST_COPIES_PAGEABLE,
	LG_LIST_MANY_TENSORS, LG_LIST_CUDNN, LG_LIST_NO_STEP, LG_LIST_WAITS_FOR_DEVICE,
	LG_LIST_SIDE_SAVES, LG_LIST_SIDE_LOGS, LG_LIST_SIDE_PROFILER, LG_LIST_SAVE_FRAMES
};
bool lg_on_list(enum lg_name_list list, const char *name);

/* ---- name_class.c ---- */
/* What a span's name says it is. Names are API of torch, CUDA and HIP, cited in name_class.c. */
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
/* Is it a call of the device's runtime library? */
static inline bool lg_is_runtime_name(enum lg_name_class k)
{
	return k >= LG_NAME_LAUNCH && k <= LG_NAME_RUNTIME;
}

#endif /* LG_RULES_DEVICE_NAMES_H */
