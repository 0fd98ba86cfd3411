/* SPDX-License-Identifier: Apache-2.0 */
#include "import/perfdata/perf_syscalls.h"

#include <stddef.h>
#include <string.h>

enum machine { X86_64, AARCH64, I386, NONE };

static const struct {
	int16_t by_machine[3]; /* enum machine */
	const char *name;
} calls[] = {
#define S(x86_64, aarch64, i386, name) { { x86_64, aarch64, i386 }, #name },
#include "import/perfdata/syscalls.def"
#undef S
};

const char *lg_pd_syscall_name(const char *arch, bool is_32, uint64_t nr)
{
	int machine = !strcmp(arch, "x86_64") ? X86_64 : !strcmp(arch, "aarch64") ? AARCH64 : NONE;

	if (arch[0] == 'i' && arch[1] && !strcmp(arch + 2, "86"))
		machine = I386;
	if (is_32)
		machine = machine == X86_64 || machine == I386 ? I386 : NONE;
	if (machine == NONE || nr > INT16_MAX)
		return NULL;
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
		if (calls[i].by_machine[machine] == (int)nr)
			return calls[i].name;
	return NULL;
}
