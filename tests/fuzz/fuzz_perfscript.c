/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any line as one of perf script: every view lies inside the line, and a line does not change its
 * kind when blanks are added behind it. All of them as a file.
 */
#include "fuzz_feed.h"
#include "import/perfscript/perfscript.h"
#include "import/perfscript/script_line.h"

static void inside(struct lg_ps_view v, const char *line, size_t n)
{
	if (v.n && (v.p < line || v.p + v.n > line + n))
		abort();
}

static void one(const char *line, size_t n, bool in_event)
{
	struct lg_ps_line l, again;
	enum lg_ps_kind k = lg_ps_parse(&l, line, n, in_event);
	char *copy = malloc(n + 2);

	if (!copy)
		return;
	memcpy(copy, line, n);
	copy[n] = copy[n + 1] = ' ';
	if (lg_ps_parse(&again, copy, n + 2, in_event) != k)
		abort();
	free(copy);
	inside(l.comm, line, n);
	inside(l.event, line, n);
	inside(l.rest, line, n);
	inside(l.name, line, n);
	inside(l.dso, line, n);
	if (k == LG_PS_EVENT && l.has_time && l.ts < 0)
		abort();
	if (k == LG_PS_EVENT && lg_ps_parse_rest(&again, l.rest))
		inside(again.name, line, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *p = (const char *)data, *end = p + size;

	while (p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		size_t n = (size_t)((nl ? nl : end) - p);

		one(p, n, false);
		one(p, n, true);
		p += n + 1;
	}
	fuzz_feed(&lg_import_perfscript, data, size);
	return 0;
}
