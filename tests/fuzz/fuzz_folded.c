/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_folded.c - folded stacks, and what is concluded from them. */
#include "fuzz_feed.h"
#include "import/folded/folded.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	fuzz_feed(&lg_import_folded, p, n);
	return 0;
}
