/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_demangle.c - one symbol name. Properties: the answer is the name itself or ends inside the
 * buffer; a smaller buffer gives the same beginning; what is no name of Rust is left to C++.
 */
#include <stdlib.h>
#include <string.h>

#include "symbols/demangle.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void check(int ok)
{
	if (!ok)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	char *name, *large, *small;

	if (n > 4096)
		return 0;
	name = malloc(n + 1);
	large = malloc(512);
	small = malloc(32);
	check(name && large && small);
	memcpy(name, p, n);
	name[n] = 0;
	if (lg_rust_demangle(name, large, 512)) {
		size_t full = strlen(large), cut;

		check(full && full < 512 && lg_demangle(name, large, 512) == large);
		check(lg_rust_demangle(name, small, 32));
		cut = strlen(small);
		check(cut < 32 && (full < 32 ? !strcmp(small, large)
					     : cut == 31 && !memcmp(small, large, 28) &&
						       !strcmp(small + 28, "...")));
	}
	free(name);
	free(large);
	free(small);
	return 0;
}
