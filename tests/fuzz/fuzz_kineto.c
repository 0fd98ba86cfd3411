/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_kineto.c - torch.profiler's JSON; the property is in fuzz_events.h. */
#include "fuzz_events.h"
#include "import/kineto/kineto.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	return fuzz_events(lg_kineto_read, p, n);
}
