/* SPDX-License-Identifier: Apache-2.0 */
/* device_names.h - what a name means, by the tables of device_names.def. */
#ifndef LG_RULES_DEVICE_NAMES_H
#define LG_RULES_DEVICE_NAMES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum lg_name_match { LG_MATCH_IS, LG_MATCH_STARTS, LG_MATCH_HAS, LG_MATCH_HAS_CASELESS, LG_MATCH_LIKE };

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
	LG_LIST_ZERO_GRAD, LG_LIST_OPTIMIZER_STEPS, LG_LIST_CONVOLUTIONS, LG_LIST_EVENT_WAITS,
	LG_LIST_NO_TENSOR_CORES, LG_LIST_DDP_SEARCH, LG_LIST_DDP_COPY, LG_LIST_FSDP_PREFETCH,
	LG_LIST_FSDP_FORWARD, LG_LIST_FSDP_BACKWARD, LG_LIST_FSDP_LIMITER, LG_LIST_GATHERS,
	LG_LIST_COMM_RANGES, LG_LIST_TRAINING_KERNELS, LG_LIST_SPINS
};
bool lg_on_list(enum lg_name_list list, const char *name);

#endif /* LG_RULES_DEVICE_NAMES_H */
