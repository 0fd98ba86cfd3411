/* SPDX-License-Identifier: Apache-2.0 */
/* pyspy_dump.c - the text of py-spy dump; several dumps may follow each other in one file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "import/pyspy/pyspy.h"
#include "import/source/frame.h"
#include "import/source/source.h"
#include "import/source/stamp.h"

enum { DEPTH_MAX = 2048, PID_MAX = 4194304 };

struct dump {
	struct lg_builder *b;
	int32_t pid;
	lg_thr thr;
	int open, state;
	lg_frm frame[DEPTH_MAX]; /* innermost first */
	size_t n_frames;
	uint64_t threads, odd, odd_line, line_no, cut;
};

void lg_pyspy_thread(struct lg_builder *b, lg_thr thr, lg_stk stack, int state, uint64_t n)
{
	const struct lg_trace *t = lg_builder_trace(b);
	char text[512] = "";

	lg_add_sample(b, &(struct lg_sample_row){ .ts = (int64_t)n * 1000, .weight = 1, .thr = thr,
						  .cpu = -1, .stack = stack,
						  .event = lg_intern(b, "py-spy dump") });
	if (stack)
		(void)lg_frame_text(t, t->stack.frame[stack], text, sizeof text);
	lg_add_mark(b, &(struct lg_mark_row){ .ts = (int64_t)n * 1000, .thr = thr, .value = state,
					      .name = lg_intern(b, "pyspy.thread"),
					      .text = lg_intern(b, text) });
}

lg_thr lg_pyspy_thread_get(struct lg_builder *b, int32_t pid, uint64_t id, const char *name)
{
	int is_main = !strcmp(name, "MainThread");
	lg_thr thr;

	if (is_main && pid > 0)
		id = (uint64_t)pid;
	if (id && id <= PID_MAX && pid > 0)
		thr = lg_thread_get(b, pid, (int32_t)id);
	else
		thr = lg_thread_unnumbered(b, pid > 0 ? lg_process_get(b, pid)
						      : lg_process_unnumbered(b, "python", -1, 0),
					   name, is_main);
	if (*name)
		lg_thread_name(b, thr, lg_intern(b, name));
	return thr;
}

static void close_thread(struct dump *d)
{
	lg_stk stk = 0;

	if (!d->open)
		return;
	while (d->n_frames)
		stk = lg_intern_stack(d->b, stk, d->frame[--d->n_frames]);
	lg_pyspy_thread(d->b, d->thr, stk, d->state, d->threads++);
	d->open = 0;
}

/* "Process 123: python train.py" */
static int process_line(struct dump *d, const char *line)
{
	int pid, used = 0;
	struct lg_process_row row;
	lg_prc p;

	if (sscanf(line, "Process %d: %n", &pid, &used) != 1 || !used || pid <= 0 || pid > PID_MAX)
		return 0;
	d->pid = pid;
	p = lg_process_get(d->b, pid);
	row = lg_process_read(d->b, p);
	row.cmdline = lg_intern(d->b, line + used);
	lg_process_write(d->b, p, &row);
	return 1;
}

/* 'Thread 123 (active+gil): "MainThread"', 'Thread 0x7F.. (idle)' */
static int thread_line(struct dump *d, const char *line)
{
	char id[32], state[32], name[128] = "";
	int k = sscanf(line, "Thread %31s (%31[^)]): \"%127[^\"]", id, state, name);

	if (k < 2)
		return 0;
	d->state = strstr(state, "gil") ? 2 : !strncmp(state, "active", 6);
	d->thr = lg_pyspy_thread_get(d->b, d->pid, strtoull(id, NULL, 0), name);
	d->open = 1;
	d->n_frames = 0;
	return 1;
}

static void take_line(struct dump *d, const char *p, size_t n)
{
	d->line_no++;
	if (!n)
		return;
	if (*p != ' ') {
		close_thread(d);
		if (process_line(d, p) || thread_line(d, p))
			return;
		if (!strncmp(p, "Python v", 8)) {
			if (d->pid > 0)
				lg_meta_set(d->b, lg_process_get(d->b, d->pid), "python.version", p + 7);
			return;
		}
		if (strncmp(p, "Parent Process", 14) && !d->odd++)
			d->odd_line = d->line_no;
		return;
	}
	/* Locals and arguments are indented by eight. */
	if (!d->open || n < 5 || strncmp(p, "    ", 4) || p[4] == ' ')
		return;
	d->cut += d->n_frames == DEPTH_MAX;
	if (d->n_frames < DEPTH_MAX)
		d->frame[d->n_frames++] = lg_frame_from_text(d->b, p + 4, n - 4);
}

static int is_json(const char *path)
{
	struct lg_source *in;
	char c = 0;

	if (lg_source_open(&in, path, NULL))
		return 0;
	while (lg_source_read(in, &c, 1) && (c == ' ' || c == '\n' || c == '\t' || c == '\r'))
		;
	lg_source_close(in);
	return c == '[' || c == '{';
}

static int run(const char *path, struct lg_builder *b, struct lg_error *err)
{
	struct dump *d;
	struct lg_source *in = NULL;
	char *line;
	size_t n;
	int rc;

	if (is_json(path))
		return lg_pyspy_dump_json(path, b, err);
	d = lg_calloc(1, sizeof *d);
	rc = d ? lg_source_open(&in, path, err)
	       : lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	if (!rc) {
		d->b = b;
		while (lg_source_line(in, &line, &n))
			take_line(d, line, n);
		close_thread(d);
		if (lg_builder_failed(b))
			rc = lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
		else if (!d->threads)
			rc = lg_fail(err, LG_E_FORMAT, lg_source_offset(in),
				     "a dump of py-spy without a thread (%llu lines)",
				     (unsigned long long)d->line_no);
	}
	if (!rc) {
		lg_time_base(b, LG_TIME_NONE, 0, 0, "");
		lg_meta_set(b, 0, "trace.format", "py-spy dump");
		if (d->odd)
			lg_add_diag_now(b, LG_DIAG_NOT_UNDERSTOOD, 0, d->odd,
					"%llu lines are not py-spy's, the first is line %llu",
					(unsigned long long)d->odd, (unsigned long long)d->odd_line);
		if (d->cut)
			lg_add_diag_now(b, LG_DIAG_STACK_TRUNCATED, 0, d->cut,
					"frames further out than %d from the innermost", DEPTH_MAX);
		if (lg_source_damage(in))
			lg_add_diag_now(b, LG_DIAG_FILE_TRUNCATED, 0, 1, "%s", lg_source_damage(in));
	}
	lg_source_close(in);
	lg_free(d);
	return rc;
}

static int sniff(const struct lg_head *h)
{
	if (lg_head_is_binary(h))
		return 0;
	if (*h->text == '[' && lg_head_has(h, "\"thread_id\"") &&
	    lg_head_has(h, "\"frames\""))
		return 90;
	if (lg_head_has(h, "\nPython v") && lg_head_has(h, "Process "))
		return 90;
	if (!strncmp(h->text, "Thread ", 7) && lg_head_has(h, "\n    "))
		return lg_head_has(h, ".py:") ? 75 : 0;
	return 0;
}

const struct lg_importer lg_import_pyspy_dump = {
	.name = "py-spy dump",
	.summary = "py-spy dump",
	.sniff = sniff,
	.run = run,
};
