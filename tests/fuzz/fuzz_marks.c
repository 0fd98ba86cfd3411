/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_marks.c - the reader of mark rings and the rows it leads to.
 *
 *   first byte odd:   the rest is a ring file, read as it is (then again as if its writer were gone)
 *   first byte even:  the rest is a list of 10-byte operations on a sound small ring: marks written
 *                     whole, in part or over somebody else's slot, and reads in between
 * Properties: the position only grows; what is read and what is reported lost add up to it; spans of
 * one thread have a sensible length; the trace seals.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "record/marks.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

#define SLOTS 16u
#define NAMES_OFF (LAG_MARK_PAGE + SLOTS * 64)
#define NAMES_CAP 512u
#define SIZE (NAMES_OFF + NAMES_CAP)

static void check(int ok)
{
	if (!ok)
		abort();
}

static void put(int fd, uint64_t off, const void *p, size_t n)
{
	check(pwrite(fd, p, n, (off_t)off) == (ssize_t)n);
}

static void take(struct lg_mark_ring *r, struct lg_mark_rows *rows, int final)
{
	struct lg_mark_slot s[32];
	uint64_t before = r->pos, lost;
	size_t n = lg_mark_ring_read(r, s, 32, final, &lost);

	check(n <= 32 && r->pos == before + n + lost);
	if (lost)
		lg_mark_rows_lost(rows, 1, lost);
	for (size_t i = 0; i < n; i++)
		lg_mark_rows_add(rows, &s[i]);
	lg_mark_ring_header(r);
}

static void sound_ring(int fd, const uint8_t *names)
{
	uint64_t w[LAG_MARK_H_WORDS] = { 0 };

	check(ftruncate(fd, SIZE) == 0);
	w[LAG_MARK_H_MAGIC] = LAG_MARK_MAGIC;
	w[LAG_MARK_H_VERSION] = LAG_MARK_VERSION;
	w[LAG_MARK_H_SIZE] = SIZE;
	w[LAG_MARK_H_SLOTS] = SLOTS;
	w[LAG_MARK_H_SLOTS_OFF] = LAG_MARK_PAGE;
	w[LAG_MARK_H_NAMES_OFF] = NAMES_OFF;
	w[LAG_MARK_H_NAMES_CAP] = NAMES_CAP;
	put(fd, 0, w, sizeof w);
	for (unsigned i = 0; i < 8; i++) {
		uint32_t len = names[i];

		put(fd, NAMES_OFF + i * 64, &len, 4);
		put(fd, NAMES_OFF + i * 64 + 4, names, 8);
	}
}

static void operate(int fd, struct lg_mark_ring *r, struct lg_mark_rows *rows, const uint8_t *p,
		    size_t n)
{
	uint64_t next = 1;
	int64_t now = 1000;

	for (; n >= 10; p += 10, n -= 10) {
		uint64_t i = next, at = i % SLOTS, w[8];

		now += p[8] - 8;
		w[0] = w[7] = i;
		w[1] = (uint64_t)now;
		w[2] = (p[5] & 3u) | (uint64_t)p[1] << 32 | (uint64_t)p[2] << 40 |
		       (uint64_t)p[3] << 48 | (uint64_t)p[4] << 56;
		w[3] = p[6] | (uint64_t)p[7] << 32;
		w[4] = p[9];
		w[5] = p[8];
		w[6] = p[7] < 128 ? i - p[7] : (uint64_t)p[7] << 56;
		switch (p[0] % 8) {
		case 0: /* written in part */
			put(fd, LAG_MARK_PAGE + at * 64, w, (p[9] & 7u) * 8);
			next++;
			break;
		case 1: /* an index out of nowhere */
			w[0] = w[7] = p[9] < 8 ? UINT64_MAX >> p[9] : i + p[9];
			put(fd, LAG_MARK_PAGE + w[0] % SLOTS * 64, w, sizeof w);
			break;
		case 2:
		case 3:
			take(r, rows, p[0] & 128);
			break;
		default:
			put(fd, LAG_MARK_PAGE + at * 64, w, sizeof w);
			next++;
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct lg_builder *b = NULL;
	struct lg_mark_rows *rows = NULL;
	struct lg_mark_ring r;
	struct lg_trace *t = NULL;
	int fd;

	if (n < 10 || n > 1 << 20)
		return 0;
	fd = memfd_create("ring", 0);
	check(fd >= 0);
	if (p[0] & 1)
		put(fd, 0, p + 1, n - 1);
	else
		sound_ring(fd, p + 1);
	if (lg_mark_ring_init(&r, fd, NULL)) {
		check(p[0] & 1);
		close(fd);
		return 0;
	}
	r.delayed = p[0] & 2;
	check(lg_builder_new(&b, NULL) == 0);
	check(lg_mark_rows_new(&rows, b, 7, &r, NULL) == 0);
	if (!(p[0] & 1))
		operate(fd, &r, rows, p + 9, n - 9);
	for (int i = 0; i < 4; i++)
		take(&r, rows, i > 1);
	lg_mark_rows_end(rows, p[0] & 4 ? INT64_MAX : 5000, p[0] & 8);
	lg_mark_rows_free(rows);
	check(lg_builder_seal(b, &t, NULL) == 0);
	for (size_t i = 0; i < t->span.n; i++)
		check(t->span.dur[i] >= -1);
	lg_trace_free(t);
	close(fd);
	return 0;
}
