/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_data.h - names of the kernel's static locks, from the data symbols of /proc/kallsyms. */
#ifndef LG_RECORD_KERNEL_DATA_H
#define LG_RECORD_KERNEL_DATA_H
#include <stdint.h>

struct lg_kernel_data;

/* 0, or LG_E_*: then static locks have no names, which costs no more than that. */
int lg_kernel_data_load(struct lg_kernel_data **ret);
void lg_kernel_data_free(struct lg_kernel_data *d);
/* Symbol that contains addr, borrowed; NULL for anything allocated at run time. */
const char *lg_kernel_data_find(const struct lg_kernel_data *d, uint64_t addr);

#endif /* LG_RECORD_KERNEL_DATA_H */
