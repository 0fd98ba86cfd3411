/* SPDX-License-Identifier: Apache-2.0 */
#include "import/folded/folded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/map.h"
#include "import/source/frame.h"
#include "import/source/source.h"
#include "import/source/stamp.h"

enum { DEPTH_MAX = 4096 };

struct folded {
	struct lg_builder *b;
	struct lg_map thread_of; /* name -> thread, for those without a number */
	uint64_t line_no, samples, odd, odd_line, cut;
	lg_str event;
};

/* The count at the end; 0 when there is none. *ret_n: bytes of the stack before it. */
static uint64_t count_of(const char *p, size_t n, size_t *ret_n)
{
	uint64_t v = 0;
	size_t i = n;

	while (i && p[i - 1] >= '0' && p[i - 1] <= '9')
		i--;
	if (i == n || n - i > 18 || i < 2 || p[i - 1] != ' ')
		return 0;
	for (size_t k = i; k < n; k++)
		v = v * 10 + (uint64_t)(p[k] - '0');
	while (i && p[i - 1] == ' ')
		i--;
	*ret_n = i;
	return i ? v : 0;
}

static lg_thr unnumbered(struct folded *f, const char *name)
{
	lg_str s = lg_intern(f->b, name);
	lg_thr thr = lg_map_get(&f->thread_of, s);

	if (thr)
		return thr;
	thr = lg_thread_unnumbered(f->b, lg_process_unnumbered(f->b, name, -1, 0), name, 1);
	if (thr)
		(void)!lg_map_set(&f->thread_of, s, thr);
	return thr;
}

/*
 * The thread of a line from its first element, and whether that element is only a thread:
 *   "python-4711", "python-4711/4712"   stackcollapse-perf --pid, --tid
 *   "thread (0x7f..): MainThread"       py-spy -t
 *   'process 4711:"python train.py"'    py-spy --subprocesses; a child's comes behind its parents', and with
 *                                       -t the thread is the next element
 *   "python"                            stackcollapse-perf
 *   "main (train.py:3)"                 py-spy: no thread, the outermost function
 */
static lg_thr thread_of(struct folded *f, const char *p, size_t n, int *ret_only)
{
	char text[256];
	const char *dash;
	int pid, tid, used = 0;

	snprintf(text, sizeof text, "%.*s", (int)(n < 250 ? n : 250), p);
	*ret_only = 1;
	if (sscanf(text, "process %d:%n", &pid, &used) == 1 && used && pid > 0) {
		lg_prc prc = lg_process_get(f->b, pid);
		struct lg_process_row row = lg_process_read(f->b, prc);

		if (!row.cmdline) {
			size_t k = strlen(text);

			if (text[used] == '"' && text[k - 1] == '"' && k > (size_t)used + 1) {
				text[k - 1] = 0;
				used++;
			}
			row.cmdline = lg_intern(f->b, text + used);
			lg_process_write(f->b, prc, &row);
		}
		return lg_thread_get(f->b, pid, pid);
	}
	if (sscanf(text, "thread (%*[^)]): %n", &used) == 0 && used)
		return unnumbered(f, text + used);
	dash = strrchr(text, '-');
	if (dash && dash > text && sscanf(dash + 1, "%d/%d%n", &pid, &tid, &used) == 2 &&
	    !dash[1 + used] && pid > 0 && tid > 0) {
		lg_thr thr = lg_thread_get(f->b, pid, tid);

		lg_thread_name(f->b, thr, lg_intern_n(f->b, text, (size_t)(dash - text)));
		return thr;
	}
	used = 0;
	if (dash && dash > text && sscanf(dash + 1, "%d%n", &pid, &used) == 1 && !dash[1 + used] &&
	    pid > 0) {
		lg_thr thr = lg_thread_get(f->b, pid, pid);

		lg_thread_name(f->b, thr, lg_intern_n(f->b, text, (size_t)(dash - text)));
		return thr;
	}
	if (n && p[n - 1] == ')') { /* "name (file:line)": a function */
		*ret_only = 0;
		return unnumbered(f, "python");
	}
	return unnumbered(f, text);
}

/* The thread of that name in the process that the line named before. */
static lg_thr thread_in(struct folded *f, lg_thr thr, const char *p, size_t n)
{
	lg_prc prc = lg_thread_process(f->b, thr);
	uint64_t key;
	lg_str s;
	int used = 0;
	char text[256];

	snprintf(text, sizeof text, "%.*s", (int)(n < 250 ? n : 250), p);
	if (sscanf(text, "thread (%*[^)]): %n", &used) != 0 || !used)
		return 0;
	s = lg_intern(f->b, text + used);
	if (!strcmp(text + used, "MainThread")) {
		lg_thread_name(f->b, thr, s);
		return thr;
	}
	key = (uint64_t)prc << 32 | s;
	thr = lg_map_get(&f->thread_of, key);
	if (!thr) {
		thr = lg_thread_unnumbered(f->b, prc, text + used, 0);
		if (thr)
			(void)!lg_map_set(&f->thread_of, key, thr);
	}
	return thr;
}

static bool is_process(const char *p, size_t n)
{
	return n > 9 && !memcmp(p, "process ", 8) && p[8] > '0' && p[8] <= '9';
}

/* Where the element at p ends. A command line between quotes may have semicolons of its own. */
static const char *element_end(const char *p, const char *end)
{
	const char *semi = memchr(p, ';', (size_t)(end - p)), *quote;

	if (!semi || !is_process(p, (size_t)(end - p)))
		return semi;
	quote = memchr(p, ':', (size_t)(semi - p));
	if (!quote || quote[1] != '"')
		return semi;
	quote = memmem(quote + 2, (size_t)(end - quote - 2), "\";", 2);
	return quote ? quote + 1 : semi;
}

static void take_line(struct folded *f, const char *p, size_t n)
{
	struct lg_sample_row row = { .cpu = -1, .event = f->event };
	const char *end, *at = p;
	unsigned depth = 0;
	bool inside = false; /* behind elements that only tell the process */
	int only = 0;
	lg_thr in;

	f->line_no++;
	while (n && (p[n - 1] == ' ' || p[n - 1] == '\t'))
		n--;
	if (!n || *p == '#')
		return;
	row.weight = count_of(p, n, &n);
	if (!row.weight) {
		if (!f->odd++)
			f->odd_line = f->line_no;
		return;
	}
	end = p + n;
	while (at <= end) {
		const char *semi = element_end(at, end), *stop = semi ? semi : end;

		if (!depth) {
			row.thr = thread_of(f, at, (size_t)(stop - at), &only);
			inside = is_process(at, (size_t)(stop - at));
		} else if (inside && semi && is_process(at, (size_t)(stop - at))) {
			row.thr = thread_of(f, at, (size_t)(stop - at), &only);
			depth++;
			at = stop + 1;
			continue;
		} else if (inside && semi && (in = thread_in(f, row.thr, at, (size_t)(stop - at)))) {
			row.thr = in;
			inside = false;
			depth++;
			at = stop + 1;
			continue;
		} else {
			inside = false;
		}
		/* A line of one element keeps it as a frame, too: else the stack would be empty. */
		if (stop > at && (depth || !only || !semi)) {
			if (depth < DEPTH_MAX)
				row.stack = lg_intern_stack(f->b, row.stack,
							    lg_frame_from_text(f->b, at,
									       (size_t)(stop - at)));
			else
				f->cut++;
			if (!semi && stop - at > 4 && !memcmp(stop - 4, "_[k]", 4))
				row.flags |= LG_SAMPLE_KERNEL;
		}
		depth++;
		at = stop + 1;
	}
	row.ts = (int64_t)f->samples++ * 1000;
	lg_add_sample(f->b, &row);
}

static int run(const char *path, struct lg_builder *b, struct lg_error *err)
{
	struct folded f = { .b = b, .event = lg_intern(b, "samples") };
	struct lg_source *in;
	char *line;
	size_t n;
	int rc = lg_source_open(&in, path, err);

	if (rc)
		return rc;
	while (lg_source_line(in, &line, &n))
		take_line(&f, line, n);
	lg_map_done(&f.thread_of);
	if (lg_builder_failed(b))
		rc = lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	else if (!f.samples)
		rc = lg_fail(err, LG_E_FORMAT, lg_source_offset(in),
			     "%llu lines and none is a folded stack with its count",
			     (unsigned long long)f.line_no);
	if (!rc) {
		lg_time_base(b, LG_TIME_NONE, 0, 0, "");
		lg_add_diag_now(b, LG_DIAG_NO_TIMES, 0, f.samples,
				"samples of folded stacks are numbered 1 us apart");
		if (f.odd)
			lg_add_diag_now(b, LG_DIAG_NOT_UNDERSTOOD, 0, f.odd,
					"%llu lines are no folded stacks, the first is line %llu",
					(unsigned long long)f.odd, (unsigned long long)f.odd_line);
		if (f.cut || lg_source_cut(in))
			lg_add_diag_now(b, LG_DIAG_STACK_TRUNCATED, 0, f.cut + lg_source_cut(in),
					"stacks of more than %d frames or 1 MiB of text", DEPTH_MAX);
		if (lg_source_damage(in))
			lg_add_diag_now(b, LG_DIAG_FILE_TRUNCATED, 0, 1, "%s (byte %llu)",
					lg_source_damage(in),
					(unsigned long long)lg_source_offset(in));
	}
	lg_source_close(in);
	return rc;
}

/* Most whole lines of the head end with a count and have a semicolon. */
static int sniff(const struct lg_head *h)
{
	size_t lines = 0, stacks = 0, odd = 0, k;

	if (lg_head_is_binary(h))
		return 0;
	for (const char *p = h->text, *end = p + h->n_text, *nl; p < end; p = nl + 1) {
		nl = memchr(p, '\n', (size_t)(end - p));
		if (!nl && lines)
			break; /* cut off by the head's end */
		if (!nl)
			nl = end;
		k = (size_t)(nl - p);
		while (k && (p[k - 1] == '\r' || p[k - 1] == ' '))
			k--;
		if (!k || *p == '#')
			continue;
		lines++;
		if (lines == 1 && (*p == '{' || *p == '['))
			return 0;
		if (!count_of(p, k, &k))
			odd++;
		else
			stacks += memchr(p, ';', k) != NULL;
	}
	return stacks * 2 >= lines && odd * 4 <= lines ? lines ? 60 : 0 : 0;
}

const struct lg_importer lg_import_folded = {
	.name = "folded stacks",
	.summary = "folded stacks (FlameGraph, py-spy raw)",
	.sniff = sniff,
	.run = run,
};
