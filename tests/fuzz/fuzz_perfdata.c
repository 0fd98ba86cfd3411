/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a perf.data file: read or refused with one line and an offset inside the file, and
 * what is read can be walked without a check and judged (judge.h). The files of this machine are not
 * looked at.
 */
#include <stdint.h>
#include <stdlib.h>

#include "import/perfdata/perfdata.h"
#include "judge.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct lg_error err = { .offset = LG_NO_OFFSET };
	struct lg_builder *b;
	struct lg_trace *t;

	if (lg_builder_new(&b, &err))
		return 0;
	if (lg_perfdata_read_memory(data, size, b, &err)) {
		if (!err.message[0] || (err.offset != LG_NO_OFFSET && err.offset > size))
			abort();
		lg_builder_free(b);
		return 0;
	}
	if (lg_builder_seal(b, &t, &err))
		return 0;
	for (size_t i = 0; i < t->sample.n; i++)
		for (lg_stk s = t->sample.stack[i]; s; s = t->stack.parent[s])
			if (t->stack.parent[s] >= s || t->stack.frame[s] >= t->frame.n)
				abort();
	for (size_t i = 0; i < t->state.n; i++)
		if (t->state.dur[i] < -1 || t->state.thr[i] >= t->thread.n)
			abort();
	fuzz_judge(t);
	lg_trace_free(t);
	return 0;
}
