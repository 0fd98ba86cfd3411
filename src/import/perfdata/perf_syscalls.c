/* SPDX-License-Identifier: Apache-2.0 */
#include "import/perfdata/perf_syscalls.h"

#include <stddef.h>
#include <string.h>

static const struct {
	int16_t x86_64, aarch64;
	const char *name;
} calls[] = {
#define S(x86_64, aarch64, name) { x86_64, aarch64, #name },
#include "import/perfdata/syscalls.def"
#undef S
};

const char *lg_pd_syscall_name(const char *arch, uint64_t nr)
{
	int arm = !strcmp(arch, "aarch64");

	if ((!arm && strcmp(arch, "x86_64")) || nr > INT16_MAX)
		return NULL;
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
		if ((arm ? calls[i].aarch64 : calls[i].x86_64) == (int)nr)
			return calls[i].name;
	return NULL;
}
