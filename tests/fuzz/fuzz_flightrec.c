/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_flightrec.c - Flight Recorder dumps: the reader of pickles, and of JSON. */
#include "fuzz_feed.h"
#include "import/flightrec/flightrec.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	fuzz_feed(&lg_import_flightrec, p, n);
	return 0;
}
