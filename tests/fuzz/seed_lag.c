/* SPDX-License-Identifier: Apache-2.0 */
/* seed_lag.c - writes the seeds in corpus/lag anew: build/tests/fuzz/seed_lag DIR */
#include <stdio.h>
#include <stdlib.h>
#include <zstd.h>

#include "../unit/random_trace.h"
#include "../unit/synthetic_gpu.h"
#include "../unit/synthetic_run.h"
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

/* The trace as a file, as a file that breaks off, and as a list of chunks; t is freed. */
static void put_trace(const char *dir, const char *name, struct lg_trace *t)
{
	static uint8_t file[1 << 20], list[1 << 21];
	char tmp[4096], full[64];
	size_t n;
	FILE *f;

	snprintf(tmp, sizeof tmp, "%s/.tmp.lag", dir);
	if (lg_lag_save(t, tmp, NULL))
		exit(1);
	f = fopen(tmp, "rb");
	if (!f)
		exit(1);
	n = fread(file, 1, sizeof file, f);
	fclose(f);
	remove(tmp);
	snprintf(full, sizeof full, "file-%s", name);
	put(dir, full, 0, file, n);
	snprintf(full, sizeof full, "cut-%s", name);
	put(dir, full, 255, file, n * 2 / 3);
	snprintf(full, sizeof full, "list-%s", name);
	put(dir, full, 1, list, as_list(file, n, list));
	lg_trace_free(t);
}

/* Runs that the analyses have something to say about: random rows hardly ever have steps. */
static void put_runs(const char *dir)
{
	static const struct {
		const char *name;
		struct run_plan plan;
	} runs[] = {
		{ "lock", { .n_ranks = 2, .n_steps = 60, .period_ns = 300000000, .stall_ns = 40000000,
			    .stall = STALL_LOCK, .only_rank = -1, .steady_late_rank = -1 } },
		{ "cpu", { .n_ranks = 2, .n_steps = 40, .period_ns = 200000000, .stall_ns = 30000000,
			   .stall = STALL_CPU, .only_rank = 1, .steady_late_rank = -1, .no_marks = true } },
		{ "samples", { .n_ranks = 1, .n_steps = 40, .period_ns = 200000000, .stall_ns = 30000000,
			       .stall = STALL_LOCK, .only_rank = -1, .steady_late_rank = -1,
			       .samples_only = true } },
	};

	for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
		put_trace(dir, runs[i].name, synthetic_run(&runs[i].plan));
}

/* Two ranks that wait for each other's collectives, one with a pause of its own. */
static void put_device(const char *dir)
{
	struct gpu_plan p = gpu_healthy;

	p.n_ranks = 2;
	p.n_steps = 8;
	p.n_kernels = 12;
	p.n_comm = 2;
	p.comm_ns = 300000;
	p.late_rank = 1;
	p.late_ns = 4000000;
	p.sync_every = 6;
	put_trace(dir, "device", synthetic_gpu(&p));
}

int main(int argc, char **argv)
{
	static const size_t rows[] = { 1, 3, 40 };

	if (argc != 2)
		return 2;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct lg_builder *b;
		struct lg_trace *t;
		char name[16];

		if (lg_builder_new(&b, NULL))
			return 1;
		random_trace(b, rows[i], i);
		if (lg_builder_seal(b, &t, NULL))
			return 1;
		snprintf(name, sizeof name, "%zu", rows[i]);
		put_trace(argv[1], name, t);
	}
	put_runs(argv[1]);
	put_device(argv[1]);
	return 0;
}
