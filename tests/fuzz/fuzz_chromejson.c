/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_chromejson.c - generic Chrome traces; the property is in fuzz_events.h. */
#include "fuzz_events.h"
#include "import/chromejson/chromejson.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	return fuzz_events(lg_chromejson_read, p, n);
}
