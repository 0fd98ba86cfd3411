/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_data.h - from /proc/kallsyms: names of static locks, and the functions of tracing. */
#ifndef LG_RECORD_KERNEL_DATA_H
#define LG_RECORD_KERNEL_DATA_H
#include <stdbool.h>
#include <stdint.h>

struct lg_kernel_data;

/* 0, or LG_E_*: then static locks have no names, which costs no more than that. */
int lg_kernel_data_load(struct lg_kernel_data **ret);
void lg_kernel_data_free(struct lg_kernel_data *d);
/* Symbol that contains addr, borrowed; NULL for anything allocated at run time. */
const char *lg_kernel_data_find(const struct lg_kernel_data *d, uint64_t addr);
/* Does pc lie in the code between a tracepoint and a BPF program? */
bool lg_kernel_data_is_tracing(const struct lg_kernel_data *d, uint64_t pc);

#endif /* LG_RECORD_KERNEL_DATA_H */
