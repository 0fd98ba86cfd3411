/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_pyspy.c - py-spy dumps, speedscope files, chrometraces, and what is concluded from them. */
#include "fuzz_feed.h"
#include "import/pyspy/pyspy.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	fuzz_feed(&lg_import_pyspy_dump, p, n);
	fuzz_feed(&lg_import_speedscope, p, n);
	fuzz_feed(&lg_import_pyspy_trace, p, n);
	return 0;
}
