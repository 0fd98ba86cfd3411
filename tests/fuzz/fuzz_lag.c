/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_lag.c - the reader of .lag files.
 *
 * A fuzzer does not find 64-bit checksums, so the input says how it is made into a file:
 *   first byte even: the rest is a file; wrong checksums of headers and payloads are repaired
 *   first byte odd:  the rest is a list of chunks {section, flags, rows (2), bytes (2), payload}
 *                    that get headers and checksums and lie uncompressed in a new file
 *   first byte 255:  the rest is a file and stays as it is
 * Property: whatever could be read can be sealed, indexed, written and read again, the second
 * reading gives what the first gave, and can be judged (judge.h).
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "judge.h"
#include "store/index.h"
#include "store/lag_chunk.h"
#include "store/lag_read.h"
#include "store/lag_write.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static size_t padded(size_t n)
{
	return (n + 7) & ~(size_t)7;
}

static void repair(uint8_t *p, size_t n)
{
	struct lg_lag_header *file = (void *)p;
	struct lg_chunk_header h;
	size_t at = LG_LAG_HEADER_BYTES;

	if (n < LG_LAG_HEADER_BYTES)
		return;
	file->sum = lg_lag_sum(file, offsetof(struct lg_lag_header, sum));
	while (at + sizeof h <= n) {
		memcpy(&h, p + at, sizeof h);
		if (h.magic != LG_CHUNK_MAGIC || h.stored_bytes > n - at - sizeof h) {
			at += 8;
			continue;
		}
		h.payload_sum = lg_lag_sum(p + at + sizeof h, h.stored_bytes);
		lg_chunk_number(p + at, &h, h.seq);
		at += sizeof h + padded(h.stored_bytes);
	}
}

static uint8_t *build(const uint8_t *p, size_t n, size_t *ret_n)
{
	uint8_t *out = calloc(1, LG_LAG_HEADER_BYTES + n * 13 + 128);
	struct lg_lag_header head;
	size_t at = LG_LAG_HEADER_BYTES;

	if (!out)
		abort();
	lg_lag_header_init(&head, 0);
	memcpy(out, &head, sizeof head);
	for (uint32_t seq = 0; n >= 6; seq++) {
		size_t len = (size_t)p[4] | (size_t)p[5] << 8;
		struct lg_chunk_header h = { .magic = LG_CHUNK_MAGIC,
					     .section = p[0] < 200 ? p[0] : 0xffffff00u + p[0] - 200,
					     .flags = p[1] > 250 ? p[1] : 0,
					     .rows = (uint32_t)p[2] | (uint32_t)p[3] << 8 };

		p += 6;
		n -= 6;
		len = len < n ? len : n;
		h.raw_bytes = h.stored_bytes = (uint32_t)len;
		h.payload_sum = lg_lag_sum(p, len);
		lg_chunk_number(out + at, &h, seq);
		memcpy(out + at + sizeof h, p, len);
		at += sizeof h + padded(len);
		p += len;
		n -= len;
	}
	*ret_n = at;
	return out;
}

static struct lg_trace *read_again(const struct lg_trace *t)
{
	static char path[] = "/tmp/laggard-fuzz-XXXXXX";
	static int made;
	struct lg_trace *u;

	if (!made) {
		int fd = mkstemp(path);

		if (fd < 0)
			abort();
		close(fd);
		made = 1;
	}
	if (lg_lag_save(t, path, NULL) || lg_lag_open(path, &u, NULL))
		abort();
	truncate(path, 0) ? abort() : (void)0;
	return u;
}

static void check_same(const struct lg_trace *a, const struct lg_trace *b)
{
	size_t n_tab;
	const struct lg_table_desc *d = lg_schema(&n_tab);

	for (size_t i = 0; i < n_tab; i++) {
		const struct lg_tab *x = lg_trace_table_const(a, &d[i]);
		const struct lg_tab *y = lg_trace_table_const(b, &d[i]);

		if (x->n != y->n)
			abort();
		for (size_t c = 0; c < d[i].n_cols && x->n; c++)
			if (memcmp(x->col[c], y->col[c], x->n * d[i].cols[c].size))
				abort();
	}
}

static void use(const uint8_t *p, size_t n)
{
	struct lg_builder *b;
	struct lg_trace *t, *u;
	struct lg_index *x;

	if (lg_builder_new(&b, NULL))
		abort();
	if (lg_lag_read_bytes(p, n, b, NULL)) {
		lg_builder_free(b);
		return;
	}
	if (lg_builder_seal(b, &t, NULL) || lg_index_new(&x, t, NULL))
		abort();
	for (size_t i = 0; i < t->n_str; i++)
		if (strlen(lg_string(t, (lg_str)i)) >= t->str_off[i + 1] - t->str_off[i])
			abort();
	for (size_t i = 0; i < x->n_thr; i++)
		(void)lg_index_state_at(x, (lg_thr)i, t->first);
	u = read_again(t);
	check_same(t, u);
	lg_index_free(x);
	lg_trace_free(t);
	fuzz_judge(u);
	lg_trace_free(u);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	uint8_t *copy;
	size_t size;

	if (n < 1)
		return 0;
	if (p[0] % 2 && p[0] != 255) {
		copy = build(p + 1, n - 1, &size);
	} else {
		size = n - 1;
		copy = malloc(size + 1);
		if (!copy)
			abort();
		memcpy(copy, p + 1, size);
		if (p[0] != 255)
			repair(copy, size);
	}
	use(copy, size);
	free(copy);
	return 0;
}
