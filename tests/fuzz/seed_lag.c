/* SPDX-License-Identifier: Apache-2.0 */
/* seed_lag.c - writes the seeds in corpus/lag anew: build/tests/fuzz/seed_lag DIR */
#include <stdio.h>
#include <stdlib.h>
#include <zstd.h>

#include "../unit/random_trace.h"
#include "store/lag_chunk.h"
#include "store/lag_write.h"

static void put(const char *dir, const char *name, uint8_t mode, const uint8_t *p, size_t n)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	f = fopen(path, "wb");
	if (!f || fputc(mode, f) == EOF || fwrite(p, 1, n, f) != n || fclose(f)) {
		perror(path);
		exit(1);
	}
}

/* The chunks of a file as a list of uncompressed ones (see fuzz_lag.c). */
static size_t as_list(const uint8_t *p, size_t n, uint8_t *out)
{
	size_t at = LG_LAG_HEADER_BYTES, o = 0;
	struct lg_chunk_header h;

	for (; at + sizeof h <= n; at += sizeof h + ((h.stored_bytes + 7u) & ~7u)) {
		memcpy(&h, p + at, sizeof h);
		if (h.magic != LG_CHUNK_MAGIC)
			break;
		if (h.raw_bytes > 65535)
			continue;
		out[o++] = (uint8_t)(h.section < 200 ? h.section : h.section - 0xffffff00u + 200);
		out[o++] = 0;
		out[o++] = (uint8_t)h.rows;
		out[o++] = (uint8_t)(h.rows >> 8);
		out[o++] = (uint8_t)h.raw_bytes;
		out[o++] = (uint8_t)(h.raw_bytes >> 8);
		if (h.flags == LG_CODEC_NONE)
			memcpy(out + o, p + at + sizeof h, h.raw_bytes);
		else
			ZSTD_decompress(out + o, h.raw_bytes, p + at + sizeof h, h.stored_bytes);
		o += h.raw_bytes;
	}
	return o;
}

int main(int argc, char **argv)
{
	static const size_t rows[] = { 1, 3, 40 };
	static uint8_t file[1 << 20], list[1 << 20];
	char tmp[4096], name[64];

	if (argc != 2)
		return 2;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct lg_builder *b;
		struct lg_trace *t;
		size_t n;
		FILE *f;

		snprintf(tmp, sizeof tmp, "%s/.tmp.lag", argv[1]);
		if (lg_builder_new(&b, NULL))
			return 1;
		random_trace(b, rows[i], i);
		if (lg_builder_seal(b, &t, NULL) || lg_lag_save(t, tmp, NULL))
			return 1;
		f = fopen(tmp, "rb");
		if (!f)
			return 1;
		n = fread(file, 1, sizeof file, f);
		fclose(f);
		remove(tmp);
		snprintf(name, sizeof name, "file-%zu", rows[i]);
		put(argv[1], name, 0, file, n);
		snprintf(name, sizeof name, "cut-%zu", rows[i]);
		put(argv[1], name, 255, file, n * 2 / 3);
		snprintf(name, sizeof name, "list-%zu", rows[i]);
		put(argv[1], name, 1, list, as_list(file, n, list));
		lg_trace_free(t);
	}
	return 0;
}
