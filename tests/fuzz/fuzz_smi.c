/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_smi.c - tables of nvidia-smi. */
#include "fuzz_feed.h"
#include "import/smi/smi.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	fuzz_feed(&lg_import_smi, p, n);
	return 0;
}
