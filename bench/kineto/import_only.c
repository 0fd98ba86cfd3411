/* SPDX-License-Identifier: Apache-2.0 */
/* import_only FILE: import and seal a trace and do nothing with it, for bench/kineto/run. */
#include <stdio.h>

#include "import/import.h"

int main(int argc, char **argv)
{
	const char *paths[] = { argc > 1 ? argv[1] : "-" };
	struct lg_import_info info;
	struct lg_error err = { 0 };
	struct lg_trace *t;

	if (lg_import(paths, 1, &t, &info, &err)) {
		fprintf(stderr, "import_only: %s\n", err.message);
		return 1;
	}
	printf("%zu spans, %zu flows, %zu counters\n", t->span.n, t->flow.n, t->counter.n);
	lg_trace_free(t);
	return 0;
}
