/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_memsnap.c - snapshots of a GPU's memory: pickled values as a stream, and the account of them. */
#include "fuzz_feed.h"
#include "import/memsnap/memsnap.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	fuzz_feed(&lg_import_memsnap, p, n);
	return 0;
}
