/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_torchlog.c - logs of training jobs and TORCH_TRACE files, and what is concluded from them. */
#include "fuzz_feed.h"
#include "import/torchlog/torchlog.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	fuzz_feed(&lg_import_torchlog, p, n);
	return 0;
}
