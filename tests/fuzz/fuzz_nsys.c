/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_nsys.c - databases as Nsight Systems exports them, and hostile ones. */
#include "fuzz_feed.h"
#include "import/nsys/nsys.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	fuzz_feed(&lg_import_nsys, p, n);
	return 0;
}
