/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "import/import.h"
#include "import/perfscript/perfscript.h"
#include "import/perfscript/script_line.h"

/* -- lines -- */

static void assert_view(struct lg_ps_view v, const char *want)
{
	char got[256];

	snprintf(got, sizeof got, "%.*s", (int)v.n, v.p);
	assert_string_equal(got, want);
}

static void reads_event_lines_of_all_shapes(void **state)
{
	static const struct {
		const char *line, *comm, *event;
		int32_t pid, tid, cpu;
		int64_t ts; /* -1 = none */
		uint64_t period;
	} cases[] = {
		{ "noploop 21796 [001] 1410597.984841: instructions: ", "noploop", "instructions", -1,
		  21796, 1, 1410597984841000, 0 },
		{ "dd 29776 666709.771979:   10101010 cpu-clock: ", "dd", "cpu-clock", -1, 29776, -1,
		  666709771979000, 10101010 },
		{ "java  3244 cpu-clock: ", "java", "cpu-clock", -1, 3244, -1, -1, 0 },
		{ "825432/825432 339457.445933440:       1 cycles:u: ", "", "cycles:u", 825432, 825432,
		  -1, 339457445933440, 1 },
		{ "perf   977/977   [000] 7628263.042515: cycles: ", "perf", "cycles", 977, 977, 0,
		  7628263042515000, 0 },
		{ "Web Content 12 3456 [003] 1.5: 7 sched:sched_switch: prev_comm=x", "Web Content 12",
		  "sched:sched_switch", -1, 3456, 3, 1500000000, 7 },
		{ "kworker/0:1-eve 5 [000] 1.000001: cycles:", "kworker/0:1-eve", "cycles", -1, 5, 0,
		  1000001000, 0 },
		{ "swapper     0 [001] 202513.231817:    1001001 cpu-clock: ", "swapper", "cpu-clock", -1,
		  0, 1, 202513231817000, 1001001 },
		{ "   swapper     0 [001] 2.000000001: cpu-clock:pppH: ", "swapper", "cpu-clock:pppH", -1,
		  0, 1, 2000000001, 0 },
		{ "1/1 4.1: 50 branch-misses/period=50/u:  0 7fca dl_open+0x37 (/l/ld.so)", "",
		  "branch-misses/period=50/u", 1, 1, -1, 4100000000, 50 },
		{ "python3 1.25: 1 cycles: ", "python3", "cycles", -1, -1, -1, 1250000000, 1 },
		/* -F +misc */
		{ "nice 19447 U     19024.416178:     250000 cpu-clock:pppH: ", "nice", "cpu-clock:pppH", -1, 19447,
		  -1, 19024416178000, 250000 },
		{ "a K 7 [002] KH 1.5: 3 cycles: ", "a K", "cycles", -1, 7, 2, 1500000000, 3 },
		/* -F without event: the time ends the line, or the innermost frame follows */
		{ "bash 28460 72320.334910: ", "bash", "", -1, 28460, -1, 72320334910000, 0 },
		{ "bash 28460 72320.334910123:     250000 ", "bash", "", -1, 28460, -1, 72320334910123, 250000 },
		{ "bash 7 2.000001:  ffffffff8158c3e1 next_uptodate_folio ([kernel.kallsyms])", "bash", "", -1, 7, -1,
		  2000001000, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct lg_ps_line l;

		assert_int_equal(lg_ps_parse(&l, cases[i].line, strlen(cases[i].line), false), LG_PS_EVENT);
		assert_view(l.comm, cases[i].comm);
		assert_view(l.event, cases[i].event);
		assert_int_equal(l.pid, cases[i].pid);
		assert_int_equal(l.tid, cases[i].tid);
		assert_int_equal(l.cpu, cases[i].cpu);
		assert_int_equal(l.period, cases[i].period);
		assert_int_equal(l.has_time, cases[i].ts >= 0);
		if (cases[i].ts >= 0)
			assert_int_equal(l.ts, cases[i].ts);
	}
}

static void reads_frames_of_all_shapes(void **state)
{
	static const struct {
		const char *line, *name, *dso;
		uint64_t ip, offset;
		bool inlined;
	} cases[] = {
		{ "\tffffffff8104f45a native_write_msr_safe ([kernel.kallsyms])", "native_write_msr_safe",
		  "[kernel.kallsyms]", 0xffffffff8104f45a, 0, false },
		{ "\t    7f5c0c875c60 _dl_open+0xac (/usr/lib64/ld-2.28.so)", "_dl_open",
		  "/usr/lib64/ld-2.28.so", 0x7f5c0c875c60, 0xac, false },
		{ "\t 1f f(int, std::pair<a, b> (*)(int)) (/opt/my app)", "f(int, std::pair<a, b> (*)(int))",
		  "/opt/my app", 0x1f, 0, false },
		{ "            13a80b608e0a RegExp:[&<>\\\"\\'] (/tmp/perf-7539.map)", "RegExp:[&<>\\\"\\']",
		  "/tmp/perf-7539.map", 0x13a80b608e0a, 0, false },
		{ "\t 993 main (/opt/noploop (deleted))", "main", "/opt/noploop (deleted)", 0x993, 0,
		  false },
		{ "\t 12 g (inlined)", "g", "inlined", 0x12, 0, true },
		{ "\t 0 [unknown] ([unknown])", "[unknown]", "[unknown]", 0, 0, false },
		{ "\t abc foo", "foo", "", 0xabc, 0, false },
		{ "\t abc", "", "", 0xabc, 0, false },
		/* pasted without its indents */
		{ "ffffffff8104f45a native_write_msr_safe ([kernel.kallsyms])", "native_write_msr_safe",
		  "[kernel.kallsyms]", 0xffffffff8104f45a, 0, false },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct lg_ps_line l;

		assert_int_equal(lg_ps_parse(&l, cases[i].line, strlen(cases[i].line), true), LG_PS_FRAME);
		assert_view(l.name, cases[i].name);
		assert_view(l.dso, cases[i].dso);
		assert_int_equal(l.ip, cases[i].ip);
		assert_int_equal(l.offset, cases[i].offset);
		assert_int_equal(l.inlined, cases[i].inlined);
	}
}

static void calls_other_lines_odd(void **state)
{
	static const char *const lines[] = {
		"hello world", "error 12 at 3: foo", "\tnot hex (x)", "123", "a: b", "x 1.5 2.5 3.5",
		"\t1234567890abcdef0 too_long (x)", "deadbeef is no frame", "12 of them (x)", "loss 12 2.31:", "epoch 3 0.123456: loss 2.3",
	};

	(void)state;
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		struct lg_ps_line l;
		enum lg_ps_kind k = lg_ps_parse(&l, lines[i], strlen(lines[i]), true);

		if (k != LG_PS_ODD)
			fail_msg("\"%s\" was taken for kind %d", lines[i], k);
	}
}

/* Names of programs that are hexadecimal numbers, behind an event of one line (perf record without -g). */
static void names_like_addresses_are_events(void **state)
{
	static const struct {
		const char *line, *comm, *event;
		int32_t tid;
	} events[] = {
		{ "              dd 26144 88594.276976:     250000 cpu-clock:pppH:      7f1f69b21f02 a+0x122 (/l/ld.so)",
		  "dd", "cpu-clock:pppH", 26144 },
		{ "             cc1 15142 [000] 86138.972358:     250000 cycles:  816276 [unknown] (/usr/lib/cc1)", "cc1",
		  "cycles", 15142 },
		{ "            fade  77/77   [000] 100.001000: cycles: ", "fade", "cycles", 77 },
		{ "              bc  77 U [000] 100.001000000: cycles: ", "bc", "cycles", 77 },
		{ "            ed 1 d    77 100.001000: cycles: ", "ed 1 d", "cycles", 77 },
		{ "              dd    77 [001] d..2. 100.001000: sched:sched_switch: prev_comm=dd", "dd",
		  "sched:sched_switch", 77 },
		{ "              dd    77 100.001000:  7f1f69b21f02 a+0x122 (/l/ld.so)", "dd", "", 77 },
		{ "\t  dd    77 [001] 100.001000: cycles: ", "dd", "cycles", 77 },
		/* -F without comm, without tid, without time */
		{ "  26144 88594.276976:     250000 cycles:  7f1f69b21f02 a+0x122 (/l/ld.so)", "", "cycles", 26144 },
		{ "  26144/26144 [001] 88594.276976: cycles: ", "", "cycles", 26144 },
		{ "              dd [001] 100.001000: 250000 cycles: ", "dd", "cycles", -1 },
		{ "              dd 100.001000: 250000 cycles:  10 a (/bin/dd)", "dd", "cycles", -1 },
		{ "              dd 77 cycles:  10 a (/bin/dd)", "dd", "cycles", 77 },
		{ "              dd 77 250000 cycles: ", "dd", "cycles", 77 },
		{ "              dd 77 sched:sched_switch: prev_comm=dd", "dd", "sched:sched_switch", 77 },
		{ "deadbeef 77 100.001000: 250000 cycles:  10 a (/bin/dd)", "deadbeef", "cycles", 77 },
	};
	static const struct {
		const char *line, *name;
	} frames[] = {
		{ "            dd 77: (/bin/x)", "77:" },
		{ "            7f1f69b21f02 LazyCompile:~read 1.5: (/tmp/perf-1.map)", "LazyCompile:~read 1.5:" },
		{ "            7f1f69b21f 12 of: them (/l/ld.so)", "12 of: them" },
		{ "\t    816276 12 of: 4 them+0x1 (/l/ld.so)", "12 of: 4 them" },
		{ "\t    816276 f(int, 3, 1.5: x) (/l/ld.so)", "f(int, 3, 1.5: x)" },
		{ "\t    816276 a 2.000001: b (/l/ld.so)", "a 2.000001: b" },
		{ "    816276 std::array<int, 3ul>::at (/l/ld.so)", "std::array<int, 3ul>::at" },
		{ "    ffffffff81000100 77 [000] 100.001000: cycles: (x)", "77 [000] 100.001000: cycles:" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
		struct lg_ps_line l;

		for (int inside = 0; inside < 2; inside++) {
			if (lg_ps_parse(&l, events[i].line, strlen(events[i].line), inside) != LG_PS_EVENT)
				fail_msg("\"%s\" is no event (%d)", events[i].line, inside);
			assert_view(l.comm, events[i].comm);
			assert_view(l.event, events[i].event);
			assert_int_equal(l.tid, events[i].tid);
		}
	}
	for (size_t i = 0; i < sizeof frames / sizeof *frames; i++) {
		struct lg_ps_line l;

		if (lg_ps_parse(&l, frames[i].line, strlen(frames[i].line), true) != LG_PS_FRAME)
			fail_msg("\"%s\" is no frame", frames[i].line);
		assert_view(l.name, frames[i].name);
	}
}

/* -- files -- */

static struct lg_trace *import_text(const char *text, struct lg_error *err)
{
	char path[] = "/tmp/laggard-script-XXXXXX";
	int fd = mkstemp(path);
	struct lg_import_info info;
	struct lg_trace *t = NULL;
	const char *p = path;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	if (lg_import(&p, 1, &t, &info, err))
		t = NULL;
	else
		assert_string_equal(info.format, "perf script");
	close(fd);
	unlink(path);
	return t;
}

static void makes_a_sample_of_every_event_line(void **state)
{
	static const char text[] =
		"# ========\n# hostname : box\n# ========\n#\n"
		"a b 7/8 [002] 10.000000500: 250 cycles:u: \n"
		"\t10 leaf+0x4 (/bin/x)\n\t30 main (/bin/x)\n\n"
		"a b 7/8 [002] 10.5: 250 cycles:u: \n"
		"\t11 leaf+0x5 (/bin/x)\n\t30 main (/bin/x)\n\n"
		"this line is odd\n"
		"c 9 [000] 11.0: sched:sched_stat_wait: comm=x\n"
		"perf 0 [001] 11.5: PERF_RECORD_LOST lost 42\n"
		"c 9 [000] 12.0: 5 cycles:u:  ffffffff81000000 _text ([kernel.kallsyms])\n";
	struct lg_error err = { 0 };
	struct lg_trace *t = import_text(text, &err);

	(void)state;
	assert_non_null(t);
	assert_int_equal(t->sample.n, 4);
	assert_int_equal(t->sample.ts[0], 10000000500);
	assert_int_equal(t->sample.weight[0], 250);
	assert_int_equal(t->sample.cpu[0], 2);
	assert_int_equal(t->sample.stack[0], t->sample.stack[1]); /* one function, one frame */
	assert_int_equal(t->stack.depth[t->sample.stack[0]], 2);
	assert_string_equal(lg_string(t, t->frame.name[t->stack.frame[t->sample.stack[0]]]), "leaf");
	assert_int_equal(t->frame.pc[t->stack.frame[t->sample.stack[0]]], 0xc);
	assert_int_equal(t->process.pid[t->thread.prc[t->sample.thr[0]]], 7);
	assert_int_equal(t->thread.tid[t->sample.thr[0]], 8);
	assert_string_equal(lg_string(t, t->thread.comm[t->sample.thr[0]]), "a b");
	assert_true(t->sample.flags[2] & LG_SAMPLE_TRACEPOINT);
	assert_false(t->sample.flags[0] & LG_SAMPLE_TRACEPOINT);
	assert_true(t->sample.flags[3] & LG_SAMPLE_KERNEL);
	assert_int_equal(t->diag.n, 2);
	for (size_t i = 0; i < 2; i++) {
		if (t->diag.id[i] == LG_DIAG_LOST_EVENTS) {
			assert_int_equal(t->diag.count[i], 42);
			assert_int_equal(t->diag.ts[i], 11500000000);
		} else {
			assert_int_equal(t->diag.id[i], LG_DIAG_NOT_UNDERSTOOD);
			assert_non_null(strstr(lg_string(t, t->diag.text[i]), "line 13"));
		}
	}
	lg_trace_free(t);
}

static void counts_every_event_of_one_line(void **state)
{
	static const char text[] =
		"      dd 77 [000] 1.000001: 250000 cycles:  7f1f69b21f02 leaf+0x2 (/l/ld.so)\n"
		"      dd 77 [000] 1.000002: 250000 cycles:  7f1f69b21f03 leaf+0x3 (/l/ld.so)\n"
		"      ed 78 [001] 1.000003: 250000 cycles: \n"
		"            7f1f69b21f03 leaf+0x3 (/l/ld.so)\n"
		"                  30 main (/bin/ed)\n"
		"     cc1 79 [001] 1.000004: 250000 cycles:  816276 [unknown] (/usr/lib/cc1)\n";
	static const char *const comm[] = { "dd", "dd", "ed", "cc1" };
	static const unsigned depth[] = { 1, 1, 2, 1 };
	struct lg_error err = { 0 };
	struct lg_trace *t = import_text(text, &err);

	(void)state;
	assert_non_null(t);
	assert_int_equal(t->sample.n, 4);
	for (size_t i = 0; i < 4; i++) {
		assert_string_equal(lg_string(t, t->thread.comm[t->sample.thr[i]]), comm[i]);
		assert_int_equal(t->stack.depth[t->sample.stack[i]], depth[i]);
	}
	assert_int_equal(t->diag.n, 0);
	lg_trace_free(t);
}

static uint64_t lost(const struct lg_trace *t, enum lg_diag_id id)
{
	uint64_t n = 0;

	for (size_t i = 0; i < t->diag.n; i++)
		n += t->diag.id[i] == (uint32_t)id ? t->diag.count[i] : 0;
	return n;
}

#define LOSSES                                          \
	"a 9 [000] 11.0: cycles: \n"                    \
	"a 9 [000] 11.1: PERF_RECORD_LOST lost 40\n"    \
	"a 9 [000] 11.2: PERF_RECORD_LOST lost 2\n"

/* perf record's own count at the end is of the same losses, and has no time. */
static void counts_a_loss_once(void **state)
{
	static const struct {
		const char *text;
		uint64_t events, samples;
	} cases[] = {
		{ LOSSES, 42, 0 },
		{ LOSSES "swapper 0 [000] 0.000000: PERF_RECORD_LOST_SAMPLES lost 42\n", 42, 0 },
		{ LOSSES "swapper 0 [000] 0.000000: PERF_RECORD_LOST_SAMPLES lost 50\n", 50, 0 },
		{ LOSSES "swapper 0 [000] 0.000000: PERF_RECORD_LOST_SAMPLES lost 70 (BPF)\n", 42, 0 },
		{ LOSSES "a 9 [000] 11.3: PERF_RECORD_LOST_SAMPLES lost 3\n", 42, 3 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct lg_error err = { 0 };
		struct lg_trace *t = import_text(cases[i].text, &err);

		assert_non_null(t);
		assert_int_equal(lost(t, LG_DIAG_LOST_EVENTS), cases[i].events);
		assert_int_equal(lost(t, LG_DIAG_LOST_SAMPLES), cases[i].samples);
		lg_trace_free(t);
	}
}

static void refuses_text_without_events(void **state)
{
	struct lg_error err = { 0 };

	(void)state;
	assert_null(import_text("# ========\n# hostname : box\nnothing here\n", &err));
	assert_int_equal(err.code, LG_E_FORMAT);
	assert_true(err.offset != LG_NO_OFFSET && *err.message);
	assert_null(import_text("dear diary, at 12: I wrote\n", &err));
}

#define STACKED "bash 28460 72320.334910: cpu-clock: \n\t10 leaf (/bin/x)\n\t30 main (/bin/x)\n\n"

static void lines_before_the_first_event_do_not_matter(void **state)
{
	static const char *const texts[] = {
		"Warning:\nProcessed 5421 events and lost 3 chunks!\n\n" STACKED STACKED,
		"[ perf record: Woken up 1 times to write data ]\n" STACKED STACKED,
		"Warning: 3 lost\na 1 1.000001: cycles: \na 1 1.000002: cycles: \n",
		/* -F comm,tid,time,ip,sym */
		"bash 28460 72320.334910: \n\t10 leaf\n\t30 main\n\nbash 28460 72320.334911: \n\t10 leaf\n\n",
		/* neither time nor stack */
		"java 3244 sched:sched_stat_wait: comm=java pid=3244\njava 3244 cpu-clock: \n",
	};

	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct lg_error err = { 0 };
		struct lg_trace *t = import_text(texts[i], &err);
		bool odd = false;

		if (!t)
			fail_msg("%s", err.message);
		assert_int_equal(t->sample.n, 2);
		for (size_t k = 0; k < t->diag.n; k++)
			odd |= t->diag.id[k] == LG_DIAG_NOT_UNDERSTOOD;
		assert_int_equal(odd, i < 3); /* counted */
		lg_trace_free(t);
	}
}

static void prose_with_the_fields_of_an_event_is_none(void **state)
{
	static const char *const texts[] = {
		"step: 1 loss: 2.3\nstep: 2 loss: 2.2\nstep: 3 loss: 2.1\n",
		"2026-03-01 10:00:01,123 - root - INFO - step:  1  loss:  7.1  tps: 16,384\n"
		"2026-03-01 10:00:02,123 - root - INFO - step:  2  loss:  7.1  tps: 16,384\n",
		"[rank0]:[titan] 2026-03-01 10:00:01,123 - root - INFO - step:  1  loss:  7.1  tps: 16,384\n"
		"[rank0]:[titan] 2026-03-01 10:00:02,123 - root - INFO - step:  2  loss:  7.1  tps: 16,384\n",
		"worker 3 says:\nthis is prose\nworker 4 says:\n",
	};

	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct lg_head h;

		assert_int_equal(lg_head_open(&h, (const uint8_t *)texts[i], strlen(texts[i])), 0);
		assert_int_equal(lg_import_perfscript.sniff(&h), 0);
		lg_head_done(&h);
	}
}

/* -- foldings of stackcollapse-perf.pl --all -- */

struct fold {
	char *text;
	unsigned long count;
};

struct folds {
	struct fold *f;
	size_t n, cap;
};

static void fold_add(struct folds *fs, const char *text, unsigned long count)
{
	for (size_t i = 0; i < fs->n; i++)
		if (!strcmp(fs->f[i].text, text)) {
			fs->f[i].count += count;
			return;
		}
	if (fs->n == fs->cap) {
		fs->cap = fs->cap ? 2 * fs->cap : 64;
		fs->f = realloc(fs->f, fs->cap * sizeof *fs->f); /* style: memory */
		assert_non_null(fs->f);
	}
	fs->f[fs->n++] = (struct fold){ strdup(text), count }; /* style: memory */
}

static void folds_done(struct folds *fs)
{
	for (size_t i = 0; i < fs->n; i++)
		free(fs->f[i].text);
	free(fs->f);
}

/* That script's own tidying, applied to our names: it is no part of reading the text. */
static void tidy(char *out, size_t size, const struct lg_trace *t, lg_frm f, const char *comm)
{
	const char *name = lg_string(t, t->frame.name[f]), *dso = lg_string(t, t->frame.dso[f]);
	const char *base = strrchr(dso, '/'), *from = name;
	size_t n = 0;

	if (!*name || !strcmp(name, "[unknown]")) {
		snprintf(out, size, "[%s]",
			 strcmp(dso, "[unknown]") ? (base ? base + 1 : dso) : "unknown");
	} else {
		bool go = false;
		const char *dot = strstr(name, ".(");

		while (dot && !go) {
			go = strstr(dot, ").") != NULL;
			dot = strstr(dot + 1, ".(");
		}
		if (!strcmp(comm, "java") && *from == 'L' && strchr(from, '/'))
			from++;
		for (; *from && n + 1 < size; from++) {
			if (!go && *from == '(' && strncmp(from, "(anonymous namespace)", 21))
				break;
			if (*from != '"' && *from != '\'')
				out[n++] = *from == ';' ? ':' : *from;
		}
		out[n] = 0;
	}
	n = strlen(out);
	if ((dso[0] == '[' && !strstr(dso, "unknown")) ||
	    (strlen(dso) >= 7 && !strcmp(dso + strlen(dso) - 7, "vmlinux")))
		snprintf(out + n, size - n, "_[k]");
	else if (!strncmp(dso, "/tmp/perf-", 10))
		snprintf(out + n, size - n, "_[j]");
}

/* That script prints a stack at the blank line behind it: none there, and the stack is missing. */
static bool ends_blank(const char *path)
{
	char buf[65536], last[2] = { 0 };
	gzFile f = gzopen(path, "rb");
	int n;

	assert_non_null(f);
	while ((n = gzread(f, buf, sizeof buf)) > 0) {
		last[0] = n > 1 ? buf[n - 2] : last[1];
		last[1] = buf[n - 1];
	}
	gzclose(f);
	return last[0] == '\n' && last[1] == '\n';
}

static void fold_trace(struct folds *fs, const struct lg_trace *t, size_t n_samples)
{
	for (size_t i = 0; i < n_samples; i++) {
		static char line[65536], frame[4096];
		const char *comm = lg_string(t, t->thread.comm[t->sample.thr[i]]);
		lg_stk path[512], s = t->sample.stack[i];
		size_t n = 0, depth = 0;

		if (t->sample.event[i] != t->sample.event[0])
			continue; /* it counts the first event only */
		n = (size_t)snprintf(line, sizeof line, "%s", comm);
		for (char *c = line; *c; c++)
			*c = *c == ' ' ? '_' : *c;
		for (; s && depth < 512; s = t->stack.parent[s])
			path[depth++] = s;
		while (depth) {
			tidy(frame, sizeof frame, t, t->stack.frame[path[--depth]], comm);
			n += (size_t)snprintf(line + n, sizeof line - n, ";%s", frame);
		}
		fold_add(fs, line, t->sample.weight[i]);
	}
}

static void folds_like_the_reference(void **state)
{
	static const char *const names[][2] = { /* text, what stackcollapse-perf.pl --all made of it */
		{ "perf/script/burn.txt", "burn" },
		{ "perf/script/two_events.txt", "two_events" },
		{ "perf/script/names.txt", "names" },
		{ "cases/jlfwong+speedscope/simple-with-header.linux-perf.txt", "simple-with-header" },
		{ "cases/jlfwong+speedscope/system-wide.linux-perf.txt", "system-wide" },
	};
	const char *data = getenv("LG_TEST_DATA");

	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		struct folds ours = { 0 }, theirs = { 0 };
		static char line[65536];
		char path[4352], ref[4352];
		struct lg_import_info info;
		struct lg_error err = { 0 };
		struct lg_trace *t;
		const char *p = path;
		FILE *f;

		snprintf(path, sizeof path, "%s/%s", data ? data : "tests/data", names[i][0]);
		snprintf(ref, sizeof ref, "%s/perf/script/%s.folded", data ? data : "tests/data", names[i][1]);
		f = fopen(ref, "r");
		assert_non_null(f);
		while (fgets(line, sizeof line, f)) {
			char *space = strrchr(line, ' ');

			unsigned long count;

			assert_non_null(space);
			count = strtoul(space + 1, NULL, 10);
			*space = 0;
			/* A frame without a name in libc becomes a blank there, its file's name here. */
			if (space - line > 2 && !strcmp(space - 2, "; "))
				snprintf(space - 1, 16, "[libc-2.15.so]");
			fold_add(&theirs, line, count);
		}
		fclose(f);
		if (lg_import(&p, 1, &t, &info, &err))
			fail_msg("%s", err.message);
		fold_trace(&ours, t, t->sample.n - !ends_blank(path));
		lg_trace_free(t);
		for (size_t k = 0; k < theirs.n; k++) {
			size_t m;

			for (m = 0; m < ours.n && strcmp(ours.f[m].text, theirs.f[k].text); m++)
				;
			if (m == ours.n || ours.f[m].count != theirs.f[k].count)
				fail_msg("%s: %s %lu, ours %lu", names[i][1], theirs.f[k].text,
					 theirs.f[k].count, m < ours.n ? ours.f[m].count : 0);
		}
		for (size_t k = 0; k < ours.n; k++) {
			size_t m;

			for (m = 0; m < theirs.n && strcmp(ours.f[k].text, theirs.f[m].text); m++)
				;
			if (m == theirs.n)
				fail_msg("%s: only ours: %s %lu", names[i][1], ours.f[k].text, ours.f[k].count);
		}
		folds_done(&ours);
		folds_done(&theirs);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_event_lines_of_all_shapes),
		cmocka_unit_test(reads_frames_of_all_shapes),
		cmocka_unit_test(calls_other_lines_odd),
		cmocka_unit_test(names_like_addresses_are_events),
		cmocka_unit_test(makes_a_sample_of_every_event_line),
		cmocka_unit_test(counts_every_event_of_one_line),
		cmocka_unit_test(counts_a_loss_once),
		cmocka_unit_test(refuses_text_without_events),
		cmocka_unit_test(lines_before_the_first_event_do_not_matter),
		cmocka_unit_test(prose_with_the_fields_of_an_event_is_none),
		cmocka_unit_test(folds_like_the_reference),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
