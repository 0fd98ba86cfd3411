/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A baseline of laggard diff. The checksum would keep a fuzzer from everything behind it, so each
 * input is tried as it is and with a last line that fits; what is read is compared with itself.
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/out.h"
#include "diff/diff.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void use(struct lg_side *s)
{
	struct lg_out *o;
	struct lg_diff *d;

	if (s->s.n < 64 && !lg_diff_new(s, s, NULL, 0.05, &d, NULL))
		lg_diff_free(d);
	if (!lg_out_memory(&o, NULL)) {
		lg_baseline_write(s, o);
		lg_out_abort(o);
	}
	lg_side_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct lg_side *s;
	struct lg_error err;
	char *with;

	if (!lg_baseline_read((const char *)p, n, "fuzz", &s, &err))
		use(s);
	with = lg_calloc(n + 32, 1);
	if (!with)
		return 0;
	memcpy(with, p, n);
	snprintf(with + n, 32, "end\t%016llx\n", (unsigned long long)XXH3_64bits(p, n));
	if (!lg_baseline_read(with, n + 21, "fuzz", &s, &err))
		use(s);
	lg_free(with);
	return 0;
}
