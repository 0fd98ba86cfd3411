/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/jitdump.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "symbols/file_budget.h"

enum {
	MAGIC = 0x4a695444, HEAD_BYTES = 40, RECORD_BYTES = 16,
	CODE_LOAD = 0, CODE_MOVE = 1, CODE_CLOSE = 3,
	LOAD_BYTES = 40, MOVE_BYTES = 48,
	NAME_MAX_BYTES = 4096, CODES_MAX = 1 << 22,
	LOOK_BACK = 4096,
	MOVES_LOOK_MAX = 1 << 30 /* codes that are passed by in search of those that were moved */
};

struct code {
	uint64_t start, end, ts;
	uint32_t name; /* offset in names */
};

struct lg_jitdump {
	struct code *code; /* by start, then time */
	size_t n, cap;
	char *names;
	size_t n_names, names_cap;
	uint64_t longest;
	uint64_t *reuse; /* sorted moments */
	size_t n_reuse, reuse_cap;
	size_t moves_looked;
	uid_t owner;
};

static uint32_t u32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof v);
	return v;
}

static uint64_t u64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof v);
	return v;
}

static int add(struct lg_jitdump *j, uint64_t start, uint64_t size, uint64_t ts, uint32_t name)
{
	if (!size || start > UINT64_MAX - size || j->n >= CODES_MAX)
		return 0;
	if (!lg_file_spend(LG_COST_KEPT, j->owner, sizeof *j->code + 2 * sizeof *j->reuse))
		return LG_E_LIMIT;
	if (lg_grow(&j->code, &j->cap, j->n + 1, sizeof *j->code))
		return LG_E_NOMEM;
	j->code[j->n++] = (struct code){ start, start + size, ts, name };
	j->longest = size > j->longest ? size : j->longest;
	return 0;
}

static int load(struct lg_jitdump *j, FILE *f, uint32_t left, uint64_t ts)
{
	uint8_t b[LOAD_BYTES];
	char name[NAME_MAX_BYTES];
	size_t n, len;

	if (left < LOAD_BYTES || fread(b, LOAD_BYTES, 1, f) != 1)
		return 0;
	n = left - LOAD_BYTES < sizeof name ? left - LOAD_BYTES : sizeof name;
	n = fread(name, 1, n, f);
	len = strnlen(name, n); /* the code follows the name */
	if (j->n_names > UINT32_MAX - NAME_MAX_BYTES - 1)
		return 0;
	if (!lg_file_spend(LG_COST_KEPT, j->owner, len + 1))
		return LG_E_LIMIT;
	if (lg_grow(&j->names, &j->names_cap, j->n_names + len + 1, 1))
		return LG_E_NOMEM;
	memcpy(j->names + j->n_names, name, len);
	j->names[j->n_names + len] = 0;
	j->n_names += len + 1;
	/* vma is where it runs, code_addr where it was made; they differ in no JIT yet */
	return add(j, u64(b + 8), u64(b + 24), ts, (uint32_t)(j->n_names - len - 1));
}

static int moved(struct lg_jitdump *j, FILE *f, uint32_t left, uint64_t ts)
{
	uint8_t b[MOVE_BYTES];

	if (left < MOVE_BYTES || fread(b, MOVE_BYTES, 1, f) != 1)
		return 0;
	for (size_t i = j->n; i-- > 0 && j->moves_looked++ < MOVES_LOOK_MAX;)
		if (j->code[i].start == u64(b + 16))
			return add(j, u64(b + 24), u64(b + 32), ts, j->code[i].name);
	return 0;
}

static int by_place(const void *pa, const void *pb)
{
	const struct code *a = pa, *b = pb;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	return a->ts < b->ts ? -1 : a->ts > b->ts;
}

static int by_value(const void *pa, const void *pb)
{
	const uint64_t *a = pa, *b = pb;

	return *a < *b ? -1 : *a > *b;
}

/* Pairs that lie over each other: from the later one's time on, the address is another function. */
static int find_reuse(struct lg_jitdump *j)
{
	uint64_t reach = 0;

	for (size_t i = 0; i < j->n; i++) {
		const struct code *c = &j->code[i];

		if (i && c->start < reach) {
			/* Which of the two came later is not asked: one moment too many is harmless. */
			uint64_t both[2] = { c->ts, j->code[i - 1].ts };

			if (lg_grow(&j->reuse, &j->reuse_cap, j->n_reuse + 2, sizeof *j->reuse))
				return LG_E_NOMEM;
			memcpy(j->reuse + j->n_reuse, both, sizeof both);
			j->n_reuse += 2;
		}
		reach = c->end > reach ? c->end : reach;
	}
	if (j->n_reuse)
		qsort(j->reuse, j->n_reuse, sizeof *j->reuse, by_value);
	return 0;
}

static int read_records(struct lg_jitdump *j, FILE *f)
{
	uint8_t b[RECORD_BYTES];
	int rc = 0;

	while (!rc && fread(b, RECORD_BYTES, 1, f) == 1) {
		uint32_t id = u32(b), size = u32(b + 4);
		off_t at = ftello(f);

		if (size < RECORD_BYTES || id == CODE_CLOSE)
			break;
		if (id == CODE_LOAD)
			rc = load(j, f, size - RECORD_BYTES, u64(b + 8));
		else if (id == CODE_MOVE)
			rc = moved(j, f, size - RECORD_BYTES, u64(b + 8));
		if (at < 0 || fseeko(f, at + (off_t)size - RECORD_BYTES, SEEK_SET))
			break;
	}
	if (!rc && j->n) {
		qsort(j->code, j->n, sizeof *j->code, by_place);
		rc = find_reuse(j);
	}
	return rc;
}

int lg_jitdump_open(struct lg_jitdump **ret, int fd, struct lg_error *err)
{
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 3), rc;
	FILE *f = own < 0 ? NULL : fdopen(own, "re");
	struct lg_jitdump *j;
	uint8_t head[HEAD_BYTES];
	struct stat st;

	if (!f) {
		rc = lg_fail_errno(err, errno, "jitdump");
		if (own >= 0)
			close(own);
		return rc;
	}
	if (fread(head, sizeof head, 1, f) != 1 || u32(head) != MAGIC || u32(head + 8) < HEAD_BYTES ||
	    fseeko(f, u32(head + 8), SEEK_SET)) {
		fclose(f);
		return lg_fail(err, LG_E_FORMAT, 0, "not a jitdump of a machine of this byte order");
	}
	j = lg_calloc(1, sizeof *j);
	if (j)
		j->owner = fstat(fd, &st) ? (uid_t)-1 : st.st_uid;
	rc = j ? read_records(j, f) : LG_E_NOMEM;
	fclose(f);
	if (rc) {
		lg_jitdump_free(j);
		return lg_fail(err, rc, LG_NO_OFFSET, "%s", lg_error_text(rc));
	}
	*ret = j;
	return 0;
}

void lg_jitdump_free(struct lg_jitdump *j)
{
	if (!j)
		return;
	lg_free(j->code);
	lg_free(j->names);
	lg_free(j->reuse);
	lg_free(j);
}

size_t lg_jitdump_count(const struct lg_jitdump *j)
{
	return j->n;
}

const char *lg_jitdump_find(const struct lg_jitdump *j, uint64_t addr, uint64_t ts, uint64_t *ret_start)
{
	const struct code *best = NULL;
	size_t lo = 0, hi = j->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (j->code[mid].start <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (size_t back = 0; back < LOOK_BACK && back < lo; back++) {
		const struct code *c = &j->code[lo - 1 - back];

		if (addr - c->start >= j->longest)
			break;
		if (addr >= c->end)
			continue;
		/* The latest that was there; if all came later, the clocks are a little apart. */
		if (!best || (best->ts > ts ? c->ts < best->ts : c->ts <= ts && c->ts > best->ts))
			best = c;
	}
	if (!best)
		return NULL;
	*ret_start = best->start;
	return j->names + best->name;
}

uint64_t lg_jitdump_next_reuse(const struct lg_jitdump *j, uint64_t ts)
{
	size_t lo = 0, hi = j->n_reuse;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (j->reuse[mid] <= ts)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < j->n_reuse ? j->reuse[lo] : UINT64_MAX;
}
