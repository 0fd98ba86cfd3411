/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/perf_map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "symbols/file_budget.h"

/* Ten times what the largest known JITs write. More is refused whole: what stands at its end may have taken
 * the place of what stands before it. */
#define FILE_MAX_BYTES (48u << 20)
#define CODES_MAX (1u << 20)

struct code {
	uint64_t start, size;
	uint32_t name, line; /* offset in text; order in the file */
};

struct lg_perf_map {
	char *text;
	struct code *code;
	size_t n, cap;
};

static int by_start(const void *a, const void *b)
{
	const struct code *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return x->line < y->line ? -1 : x->line > y->line;
}

static int parse(struct lg_perf_map *m, size_t n)
{
	size_t pos = 0;
	uint32_t line = 0;

	while (pos < n) {
		char *s = m->text + pos, *nl = memchr(s, '\n', n - pos), *end, *name;
		struct code c = { .line = line++ };

		if (!nl)
			break; /* the JIT is writing this line right now */
		*nl = 0;
		pos = (size_t)(nl - m->text) + 1;
		c.start = strtoull(s, &end, 16);
		if (end == s || *end != ' ')
			continue;
		s = end + 1;
		c.size = strtoull(s, &end, 16);
		if (end == s || *end != ' ' || !end[1])
			continue;
		name = end + 1;
		c.name = (uint32_t)(name - m->text);
		if (m->n == CODES_MAX)
			return LG_E_LIMIT;
		if (lg_grow(&m->code, &m->cap, m->n + 1, sizeof *m->code))
			return LG_E_NOMEM;
		m->code[m->n++] = c;
	}
	if (m->n)
		qsort(m->code, m->n, sizeof *m->code, by_start);
	return 0;
}

int lg_perf_map_open(struct lg_perf_map **ret, int fd, struct lg_error *err)
{
	struct lg_perf_map *m;
	struct stat st;
	size_t n = 0;
	int rc;

	if (fstat(fd, &st))
		return lg_fail_errno(err, errno, "perf map");
	if (!S_ISREG(st.st_mode) || st.st_size > FILE_MAX_BYTES)
		return lg_fail(err, LG_E_LIMIT, LG_NO_OFFSET, "perf map: too large or no file");
	if (!lg_file_spend(LG_COST_KEPT, st.st_uid, (uint64_t)st.st_size))
		return lg_fail(err, LG_E_LIMIT, LG_NO_OFFSET, "perf map: too large beside others");
	m = lg_calloc(1, sizeof *m);
	if (m)
		m->text = lg_calloc((size_t)st.st_size + 1, 1);
	if (!m || !m->text) {
		lg_perf_map_free(m);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	while (n < (size_t)st.st_size) {
		ssize_t got = pread(fd, m->text + n, (size_t)st.st_size - n, (off_t)n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		n += (size_t)got;
	}
	rc = parse(m, n);
	if (!rc && !lg_file_spend(LG_COST_KEPT, st.st_uid, m->cap * sizeof *m->code))
		rc = LG_E_LIMIT;
	if (rc) {
		lg_perf_map_free(m);
		return lg_fail(err, rc, LG_NO_OFFSET, "%s", lg_error_text(rc));
	}
	*ret = m;
	return 0;
}

void lg_perf_map_free(struct lg_perf_map *m)
{
	if (!m)
		return;
	lg_free(m->text);
	lg_free(m->code);
	lg_free(m);
}

const char *lg_perf_map_find(const struct lg_perf_map *m, uint64_t addr)
{
	size_t lo = 0, hi = m->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (m->code[mid].start <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo || addr - m->code[lo - 1].start >= m->code[lo - 1].size)
		return NULL;
	return m->text + m->code[lo - 1].name;
}
