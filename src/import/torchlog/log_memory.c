/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log_memory.c - what jobs print of torch's allocator of device memory: torch.cuda.memory_summary(), a table,
 * and torch.cuda.memory_stats(), as Python or as JSON, in one line or a key a line (torch/cuda/memory.py).
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "import/torchlog/torchlog.h"

/* device -1: not told. */
static void reading(struct lg_torchlog *l, const struct lg_log_line *line, int device, const char *name,
		    bool bytes, double v)
{
	lg_prc prc = lg_thread_process(l->b, lg_torchlog_thread(l, line));
	struct lg_track_row gpu = { .kind = LG_TRACK_GPU, .prc = prc, .index = device };
	struct lg_track_row track = { .kind = LG_TRACK_COUNTER,
				      .prc = prc,
				      .index = device,
				      .name = lg_intern(l->b, name),
				      .unit = lg_intern(l->b, bytes ? "bytes" : "count") };
	char text[16];

	if (!(v >= 0 && v < 9e18))
		return;
	snprintf(text, sizeof text, device >= 0 ? "GPU %d" : "GPU", device);
	gpu.name = lg_intern(l->b, text);
	track.parent = lg_track_get(l->b, &gpu);
	lg_add_counter(l->b, &(struct lg_counter_row){ .ts = lg_torchlog_now(l, line),
						       .value = v,
						       .track = lg_track_get(l->b, &track) });
}

/* ---- memory_stats() ---- */

/* The number behind a key in quotes: 'key': 12, "key": 12, ('key', 12). NaN: it is not there. */
static double value_of(const char *m, const char *key)
{
	size_t n = strlen(key);

	for (const char *p = m; (p = strstr(p, key)); p += n) {
		const char *v = p + n;

		if (p == m || (p[-1] != '\'' && p[-1] != '"') || *v != p[-1])
			continue;
		v += 1 + strspn(v + 1, " :,");
		if (isdigit((unsigned char)*v))
			return strtod(v, NULL);
	}
	return (double)NAN;
}

static int memory_stats(struct lg_torchlog *l, const struct lg_log_line *line)
{
	static const struct {
		const char *key, *name;
		bool bytes;
	} told[] = {
		{ "allocated_bytes.all.current", "memory allocated", true },
		{ "allocated_bytes.all.peak", "memory allocated peak", true },
		{ "reserved_bytes.all.current", "memory reserved", true },
		{ "reserved_bytes.all.peak", "memory reserved peak", true },
		{ "inactive_split_bytes.all.current", "memory inactive", true },
		{ "inactive_split_bytes.all.peak", "memory inactive peak", true },
		{ "num_alloc_retries", "memory retries", false },
		{ "num_ooms", "memory ooms", false },
	};
	const char *m = line->msg;
	int known = 0;

	if (!strstr(m, "_bytes.all.") && !strstr(m, "num_alloc_retries") && !strstr(m, "num_ooms"))
		return 0;
	for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
		double v = value_of(m, told[i].key);

		if (isnan(v))
			continue;
		reading(l, line, -1, told[i].name, told[i].bytes, v);
		known = 1;
	}
	l->known += (uint64_t)known;
	return known;
}

/* ---- memory_summary() ---- */

/* "  2048 KiB " -> bytes (_format_size: B, KiB, MiB, GiB, TiB, PiB); NaN. */
static double size_of(const char *text)
{
	static const char units[] = "BKMGTP";
	char *end;
	double v = strtod(text, &end);
	const char *u;

	end += strspn(end, " ");
	u = end == text || !*end ? NULL : strchr(units, *end);
	return u ? ldexp(v, (int)(u - units) * 10) : (double)NAN;
}

static long long count_after(const char *m, const char *words)
{
	const char *p = strstr(m, words);

	return p ? strtoll(p + strlen(words), NULL, 10) : 0;
}

static void counts(struct lg_torchlog *l, const struct lg_log_line *line)
{
	long long ooms = count_after(line->msg, "CUDA OOMs: "),
		  retries = count_after(line->msg, "cudaMalloc retries: ");

	reading(l, line, l->summary_device, "memory ooms", false, (double)ooms);
	reading(l, line, l->summary_device, "memory retries", false, (double)retries);
	if (retries > 0)
		lg_torchlog_mark(l, line, "log.alloc_retries", retries, NULL);
	snprintf(l->summary, sizeof l->summary, "OOMs %lld, cudaMalloc retries %lld", ooms, retries);
}

/* Spaces at the end go. */
static void trim(char *s)
{
	for (size_t n = strlen(s); n && s[n - 1] == ' '; n--)
		s[n - 1] = 0;
}

/* |  Allocated memory      |   2048 KiB |   4096 KiB | ... | */
static int memory_summary(struct lg_torchlog *l, const struct lg_log_line *line)
{
	static const struct {
		const char *row, *now, *peak;
	} rows[] = {
		{ "Allocated memory", "memory allocated", "memory allocated peak" },
		{ "GPU reserved memory", "memory reserved", "memory reserved peak" },
		{ "Non-releasable memory", "memory inactive", "memory inactive peak" },
	};
	const char *m = line->msg;
	size_t n = strlen(l->summary);

	if (*m != '|')
		return 0;
	if (strstr(m, "memory summary, device ID ")) {
		l->summary_device = (int)count_after(m, "device ID ");
		l->summary[0] = 0;
		return 1;
	}
	if (l->summary_device < 0)
		return 0;
	if (strstr(m, "CUDA OOMs: ")) {
		counts(l, line);
		return 1;
	}
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char now[24], peak[24];
		const char *p = strstr(m, rows[i].row), *bar = p ? strchr(p, '|') : NULL;

		if (!bar || sscanf(bar, "| %23[^|]| %23[^|]|", now, peak) != 2)
			continue;
		trim(now);
		trim(peak);
		reading(l, line, l->summary_device, rows[i].now, true, size_of(now));
		reading(l, line, l->summary_device, rows[i].peak, true, size_of(peak));
		snprintf(l->summary + n, sizeof l->summary - n, "%s%s %s (peak %s)", n ? ", " : "",
			 rows[i].row, now, peak);
		if (i == 2) { /* the last one that is wanted */
			lg_torchlog_mark(l, line, "log.memory_summary", l->summary_device, l->summary);
			l->summary_device = -1;
		}
		return 1;
	}
	return 0; /* another row, or a line of another program's */
}

int lg_torchlog_memory(struct lg_torchlog *l, const struct lg_log_line *line)
{
	return memory_summary(l, line) || memory_stats(l, line);
}
