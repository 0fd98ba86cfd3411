/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_nccllog.c - logs of NCCL, and what is concluded from them. */
#include "fuzz_feed.h"
#include "import/nccllog/nccllog.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	fuzz_feed(&lg_import_nccllog, p, n);
	return 0;
}
