/* SPDX-License-Identifier: Apache-2.0 */
/* Files are written here byte by byte, in both byte orders; recorded ones are in tests/data/perf. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "import/import.h"
#include "import/perfdata/perf_abi.h"
#include "import/perfdata/perf_formats.h"
#include "import/perfdata/perfdata.h"
#include "perf_file.h"

/* -- every field of a sample -- */

#define EVERYTHING (PDS_KNOWN & ~(uint64_t)PDS_WEIGHT)

static void put_sample(struct file *f, const struct event *e, uint64_t ts, uint64_t id, int branches)
{
	size_t at = begin(f, PD_SAMPLE, PDM_USER);
	uint64_t t = e->sample_type;

	if (t & PDS_IDENTIFIER)
		put64(f, id);
	if (t & PDS_IP)
		put64(f, 0x1010);
	if (t & PDS_TID) {
		put32(f, 70);
		put32(f, 71);
	}
	if (t & PDS_TIME)
		put64(f, ts);
	if (t & PDS_ADDR)
		put64(f, 0xadd);
	if (t & PDS_ID)
		put64(f, id);
	if (t & PDS_STREAM_ID)
		put64(f, 5);
	if (t & PDS_CPU) {
		put32(f, 3);
		put32(f, 0);
	}
	if (t & PDS_PERIOD)
		put64(f, 777);
	if (t & PDS_READ) { /* group of two, with times, ids and lost */
		put64(f, 2);
		put64(f, 1000);
		put64(f, 900);
		for (int i = 0; i < 2; i++) {
			put64(f, 42);
			put64(f, id);
			put64(f, 0);
		}
	}
	if (t & PDS_CALLCHAIN) {
		put64(f, 6);
		put64(f, PDC_KERNEL);
		put64(f, 0xffffffff81000010);
		put64(f, 0xffffffff81000021);
		put64(f, PDC_USER);
		put64(f, 0x1010);
		put64(f, 0x1021);
	}
	if (t & PDS_RAW) {
		put32(f, 12);
		put_text(f, "", 12);
	}
	if (t & PDS_BRANCH_STACK) {
		put64(f, (uint64_t)branches);
		if (e->branch & PDB_HW_INDEX)
			put64(f, 0);
		put_text(f, "", 24 * (size_t)branches);
		if (e->branch & PDB_COUNTERS)
			put_text(f, "", 8 * (size_t)branches);
	}
	if (t & PDS_REGS_USER) {
		put64(f, 2);
		put_text(f, "", 8 * 3);
	}
	if (t & PDS_STACK_USER) {
		put64(f, 16);
		put_text(f, "", 16);
		put64(f, 8);
	}
	if (t & PDS_WEIGHT_STRUCT)
		put64(f, 1);
	if (t & PDS_DATA_SRC)
		put64(f, 1);
	if (t & PDS_TRANSACTION)
		put64(f, 0);
	if (t & PDS_REGS_INTR) {
		put64(f, 2);
		put_text(f, "", 8 * 3);
	}
	for (int bit = 19; bit <= 23; bit++)
		if (bit != 20 && t & 1u << bit)
			put64(f, 0);
	if (t & PDS_AUX) {
		put64(f, 8);
		put64(f, 0x1234);
	}
	end(f, at);
}

static void put_trailer(struct file *f, uint64_t t, uint64_t ts, uint64_t id)
{
	if (t & PDS_TID) {
		put32(f, 70);
		put32(f, 71);
	}
	if (t & PDS_TIME)
		put64(f, ts);
	if (t & PDS_ID)
		put64(f, id);
	if (t & PDS_STREAM_ID)
		put64(f, 5);
	if (t & PDS_CPU) {
		put32(f, 3);
		put32(f, 0);
	}
	if (t & PDS_IDENTIFIER)
		put64(f, id);
}

static void put_mmap(struct file *f, uint64_t t, uint64_t ts)
{
	size_t at = begin(f, PD_MMAP2, PDM_USER | PDM_MMAP_BUILD_ID);

	put32(f, 70);
	put32(f, 70);
	put64(f, 0x1000);
	put64(f, 0x1000);
	put64(f, 0x4000);
	f->p[f->n++] = 4;
	put_text(f, "", 3);
	put_text(f, "\x11\x22\x33\x44", 20);
	put32(f, 5);
	put32(f, 2);
	put_text(f, "/no/such/file", 16);
	put_trailer(f, t, ts, 91);
	end(f, at);
}

static void put_comm(struct file *f, uint64_t t, uint64_t ts, const char *name)
{
	size_t at = begin(f, PD_COMM, 0);

	put32(f, 70);
	put32(f, 71);
	put_text(f, name, 16);
	put_trailer(f, t, ts, 91);
	end(f, at);
}

static void check_everything(bool swap, uint32_t attr_size)
{
	static struct file f;
	const struct event e[] = {
		{ .type = PD_TYPE_SOFTWARE, .period = 1, .sample_type = EVERYTHING,
		  .read_format = PDR_ENABLED | PDR_RUNNING | PDR_ID | PDR_GROUP | PDR_LOST,
		  .flags = PDF_SAMPLE_ID_ALL | PDF_FREQ, .branch = PDB_HW_INDEX | PDB_COUNTERS,
		  .regs = 0x15, .ids = { 90, 91 } },
		{ .type = PD_TYPE_HARDWARE, .config = 1, .period = 1, .sample_type = EVERYTHING,
		  .read_format = PDR_ENABLED | PDR_RUNNING | PDR_ID | PDR_GROUP | PDR_LOST,
		  .flags = PDF_SAMPLE_ID_ALL, .branch = PDB_HW_INDEX | PDB_COUNTERS, .regs = 0x15,
		  .ids = { 92, 93 } },
	};
	struct lg_error err = { 0 };
	struct lg_trace *t;
	size_t data;
	lg_stk s;

	f.swap = swap;
	file_begin(&f, e, 2, attr_size);
	data = f.n;
	put_mmap(&f, EVERYTHING, 90);
	put_comm(&f, EVERYTHING, 95, "worker");
	/* later first: two CPUs' buffers, one round */
	put_sample(&f, &e[0], 200, 90, 0);
	put_sample(&f, &e[1], 100, 93, 2);
	end(&f, begin(&f, PD_FINISHED_ROUND, 0));
	put_sample(&f, &e[0], 300, 91, 1);
	file_done(&f, data);
	t = import_bytes(f.p, f.n, &err);
	if (!t)
		fail_msg("%s", err.message);
	assert_int_equal(t->sample.n, 3);
	assert_int_equal(diags(t, LG_DIAG_FILE_DAMAGED), 0);
	assert_int_equal(diags(t, LG_DIAG_FILE_TRUNCATED), 0);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(t->sample.ts[i], 100 * (int64_t)(i + 1));
		assert_int_equal(t->sample.weight[i], 777);
		assert_int_equal(t->sample.cpu[i], 3);
		assert_int_equal(t->thread.tid[t->sample.thr[i]], 71);
		assert_int_equal(t->process.pid[t->thread.prc[t->sample.thr[i]]], 70);
		assert_string_equal(lg_string(t, t->thread.comm[t->sample.thr[i]]), "worker");
		assert_string_equal(lg_string(t, t->sample.event[i]), i == 0 ? "instructions" : "cpu-clock");
	}
	s = t->sample.stack[2];
	assert_int_equal(t->stack.depth[s], 4);
	assert_int_equal(t->frame.pc[t->stack.frame[s]], 0xffffffff81000010);
	assert_int_equal(t->frame.kind[t->stack.frame[s]], LG_FRAME_KERNEL);
	s = t->stack.parent[s]; /* a return address: the call is before it */
	assert_int_equal(t->frame.pc[t->stack.frame[s]], 0xffffffff81000020);
	s = t->stack.parent[s];
	assert_int_equal(t->frame.pc[t->stack.frame[s]], 0x4010);
	assert_string_equal(lg_string(t, t->frame.dso[t->stack.frame[s]]), "/no/such/file");
	assert_string_equal(lg_string(t, t->frame.build_id[t->stack.frame[s]]), "11223344");
	s = t->stack.parent[s];
	assert_int_equal(t->frame.pc[t->stack.frame[s]], 0x4020);
	lg_trace_free(t);
}

static void reads_every_field_of_a_sample(void **state)
{
	(void)state;
	check_everything(false, 136);
}

static void reads_the_other_byte_order(void **state)
{
	(void)state;
	check_everything(true, 136);
}

static void reads_attributes_that_are_newer_than_this_program(void **state)
{
	(void)state;
	check_everything(false, 512);
}

/* -- damage -- */

static const struct event simple = { .type = PD_TYPE_SOFTWARE, .period = 1000,
				     .sample_type = PDS_IP | PDS_TID | PDS_TIME | PDS_CPU,
				     .flags = PDF_SAMPLE_ID_ALL, .ids = { 1, 2 } };

static size_t simple_file(struct file *f, int n_samples)
{
	size_t data;

	*f = (struct file){ 0 };
	file_begin(f, &simple, 1, 112);
	data = f->n;
	put_mmap(f, simple.sample_type, 1);
	for (int i = 0; i < n_samples; i++)
		put_sample(f, &simple, 100 + (uint64_t)i, 1, 0);
	file_done(f, data);
	return data;
}

static void resumes_behind_a_damaged_record(void **state)
{
	static struct file f;
	struct lg_error err = { 0 };
	size_t data = simple_file(&f, 10), sample = 40, map = f.n - data - 10 * sample;
	struct lg_trace *t;

	(void)state;
	/* the fourth sample's header becomes zeros: size 0 */
	memset(f.p + data + map + 3 * sample, 0, 8);
	t = import_bytes(f.p, f.n, &err);
	assert_non_null(t);
	assert_int_equal(t->sample.n, 9);
	assert_int_equal(diags(t, LG_DIAG_FILE_DAMAGED), 1);
	for (size_t i = 0; i < t->diag.n; i++)
		if (t->diag.id[i] == LG_DIAG_FILE_DAMAGED) {
			char want[64];

			snprintf(want, sizeof want, "at byte %zu; 40 bytes", data + map + 3 * sample);
			assert_non_null(strstr(lg_string(t, t->diag.text[i]), want));
		}
	lg_trace_free(t);
}

static void says_where_nothing_can_be_read(void **state)
{
	static struct file f;
	struct lg_error err = { 0 };
	size_t data = simple_file(&f, 3);

	(void)state;
	memset(f.p + data, 0xff, f.n - data);
	assert_null(import_bytes(f.p, f.n, &err));
	assert_int_equal(err.code, LG_E_FORMAT);
	assert_int_equal(err.offset, data);
	assert_null(import_bytes(f.p, 10, &err));
	assert_int_equal(err.code, LG_E_FORMAT);
	assert_null(import_bytes(f.p, data, &err)); /* no record at all */
	assert_int_equal(err.code, LG_E_FORMAT);
}

static void tells_losses_with_their_times(void **state)
{
	static struct file f;
	struct lg_error err = { 0 };
	struct lg_trace *t;
	size_t data, at;

	(void)state;
	f = (struct file){ 0 };
	file_begin(&f, &simple, 1, 112);
	data = f.n;
	put_sample(&f, &simple, 100, 1, 0);
	at = begin(&f, PD_LOST, 0);
	put64(&f, 1);
	put64(&f, 17);
	put_trailer(&f, simple.sample_type, 150, 1);
	end(&f, at);
	at = begin(&f, PD_LOST_SAMPLES, 0);
	put64(&f, 4);
	put_trailer(&f, simple.sample_type, 160, 1);
	end(&f, at);
	for (int i = 0; i < 2; i++) {
		at = begin(&f, i ? PD_UNTHROTTLE : PD_THROTTLE, 0);
		put64(&f, 0);
		put64(&f, 1);
		put64(&f, 1);
		put_trailer(&f, simple.sample_type, 170 + 10 * (uint64_t)i, 1);
		end(&f, at);
	}
	file_done(&f, data);
	t = import_bytes(f.p, f.n, &err);
	assert_non_null(t);
	assert_int_equal(diags(t, LG_DIAG_LOST_EVENTS), 17);
	assert_int_equal(diags(t, LG_DIAG_LOST_SAMPLES), 4);
	assert_int_equal(diags(t, LG_DIAG_THROTTLED), 1);
	for (size_t i = 0; i < t->diag.n; i++)
		if (t->diag.id[i] == LG_DIAG_LOST_EVENTS) {
			assert_int_equal(t->diag.ts[i], 100);
			assert_int_equal(t->diag.dur[i], 50);
			assert_int_equal(t->diag.cpu[i], 3);
		} else if (t->diag.id[i] == LG_DIAG_THROTTLED) {
			assert_int_equal(t->diag.ts[i], 170);
			assert_int_equal(t->diag.dur[i], 10);
		}
	lg_trace_free(t);
}

/* -- compression: records that begin in one compressed record and end in the next -- */

static void joins_records_over_compressed_ones(void **state)
{
	static struct file f, plain;
	static uint8_t packed[1 << 16];
	struct lg_error err = { 0 };
	struct lg_trace *t;
	size_t data;
	ZSTD_CStream *z = ZSTD_createCStream();
	ZSTD_inBuffer in = { .src = plain.p };

	(void)state;
	plain = (struct file){ 0 };
	for (int i = 0; i < 50; i++)
		put_sample(&plain, &simple, 100 + (uint64_t)i, 1, 0);
	f = (struct file){ 0 };
	file_begin(&f, &simple, 1, 112);
	data = f.n;
	for (size_t done = 0, chunk = 0; done < plain.n; done += chunk) {
		ZSTD_outBuffer out = { packed, sizeof packed, 0 };
		bool two = done / 100 % 2;
		size_t at;

		chunk = plain.n - done < 100 ? plain.n - done : 100; /* samples have 40 bytes */
		in.size = done + chunk;
		while (in.pos < in.size)
			assert_false(ZSTD_isError(ZSTD_compressStream(z, &out, &in)));
		assert_int_equal(ZSTD_flushStream(z, &out), 0);
		at = begin(&f, two ? PD_COMPRESSED2 : PD_COMPRESSED, 0);
		if (two)
			put64(&f, out.pos);
		memcpy(f.p + f.n, packed, out.pos);
		f.n += two ? (out.pos + 7) & ~(size_t)7 : out.pos;
		end(&f, at);
	}
	ZSTD_freeCStream(z);
	file_done(&f, data);
	t = import_bytes(f.p, f.n, &err);
	if (!t)
		fail_msg("%s", err.message);
	assert_int_equal(t->sample.n, 50);
	assert_int_equal(diags(t, LG_DIAG_FILE_DAMAGED) + diags(t, LG_DIAG_FILE_TRUNCATED), 0);
	lg_trace_free(t);
	/* cut in the middle: as far as it is whole */
	t = import_bytes(f.p, data + (f.n - data) / 2, &err);
	assert_non_null(t);
	assert_true(t->sample.n >= 15 && t->sample.n < 50);
	assert_true(diags(t, LG_DIAG_FILE_TRUNCATED) > 0);
	lg_trace_free(t);
}

/* -- tracepoint formats of old and new kernels -- */

static void knows_the_states_of_old_and_new_kernels(void **state)
{
	static const char now[] =
		"name: sched_switch\nID: 314\nformat:\n"
		"\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
		"\tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\n"
		"print fmt: \"%s\", (REC->prev_state & (1 + 2)) ? __print_flags(REC->prev_state & 3, \"|\", "
		"{ 0x00000001, \"S\" }, { 0x00000002, \"D\" }, { 0x00000004, \"T\" }, { 0x00000008, \"t\" }, "
		"{ 0x00000010, \"X\" }, { 0x00000020, \"Z\" }, { 0x00000040, \"P\" }, { 0x00000080, \"I\" }) : "
		"\"R\", REC->prev_state & (256) ? \"+\" : \"\"\n";
	static const char then[] =
		"name: sched_switch\nID: 50\nformat:\n"
		"\tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\n"
		"print fmt: \"%s\", REC->prev_state & (1024-1) ? __print_flags(REC->prev_state & (1024-1), "
		"\"|\", { 1, \"S\"} , { 2, \"D\" }, { 4, \"T\" }, { 8, \"t\" }, { 16, \"Z\" }, { 32, \"X\" }, "
		"{ 64, \"x\" }, { 128, \"K\"}, { 256, \"W\" }, { 512, \"P\" }) : \"R\", "
		"REC->prev_state & 1024 ? \"+\" : \"\"\n";
	struct lg_pd_format f;

	(void)state;
	assert_int_equal(lg_pd_format_parse(&f, "sched", now, sizeof now - 1), 0);
	assert_string_equal(f.name, "sched:sched_switch");
	assert_int_equal(lg_pd_format_state(&f, 0), 0);
	assert_int_equal(lg_pd_format_state(&f, 2), 2);
	assert_int_equal(lg_pd_format_state(&f, 16), 16);
	assert_int_equal(lg_pd_format_state(&f, 256), 256);
	assert_int_equal(lg_pd_format_parse(&f, "sched", then, sizeof then - 1), 0);
	assert_int_equal(lg_pd_format_state(&f, 1), 1);
	assert_int_equal(lg_pd_format_state(&f, 16), 32);  /* a zombie then */
	assert_int_equal(lg_pd_format_state(&f, 512), 64); /* parked */
	assert_int_equal(lg_pd_format_state(&f, 1024), 256);
}

/* -- recorded files -- */

static uint8_t *slurp(const char *path, size_t *ret_n)
{
	FILE *f = fopen(path, "rb");
	struct stat st;
	uint8_t *p;

	if (!f)
		return NULL;
	assert_int_equal(fstat(fileno(f), &st), 0);
	p = malloc((size_t)st.st_size + 1); /* style: memory */
	assert_non_null(p);
	*ret_n = fread(p, 1, (size_t)st.st_size, f);
	fclose(f);
	return p;
}

static uint8_t *fixture(const char *name, size_t *ret_n)
{
	const char *data = getenv("LG_TEST_DATA");
	char path[4096];
	uint8_t *p;

	snprintf(path, sizeof path, "%s/perf/%s", data ? data : "tests/data", name);
	p = slurp(path, ret_n);
	if (!p)
		fail_msg("no %s", path);
	return p;
}

/* sleep_switches.data: 20 sleeps of 10 ms by one thread. Of two neither the waking nor the switch-in
 * was told, only the next switch-out: it may as well have computed, so they get no row. */
static void turns_switches_into_states(void **state)
{
	size_t n;
	uint8_t *p = fixture("sleep_switches.data", &n);
	struct lg_error err = { 0 };
	struct lg_trace *t = import_bytes(p, n, &err);
	size_t sleeps = 0;

	(void)state;
	free(p);
	assert_non_null(t);
	for (size_t i = 0; i < t->state.n; i++) {
		const char *comm = lg_string(t, t->thread.comm[t->state.thr[i]]);

		if (strcmp(comm, "naps") || t->state.kind[i] != LG_BLOCKED || t->state.dur[i] < 9900000)
			continue;
		assert_int_equal(t->state.reason[i], LG_WHY_SLEEP);
		assert_true(t->state.dur[i] < 200000000);
		assert_true(t->state.stack[i] != 0);
		sleeps++;
	}
	assert_int_equal(sleeps, 18);
	assert_int_equal(diags(t, LG_DIAG_SUBSAMPLED), 0);
	lg_trace_free(t);
}

static void computes_no_states_from_subsampled_switches(void **state)
{
	size_t n;
	uint8_t *p = fixture("subsampled.data", &n);
	struct lg_error err = { 0 };
	struct lg_trace *t = import_bytes(p, n, &err);

	(void)state;
	free(p);
	assert_non_null(t);
	assert_true(t->sample.n > 10);
	assert_int_equal(t->state.n, 0);
	assert_true(diags(t, LG_DIAG_SUBSAMPLED) > 0);
	lg_trace_free(t);
}

/* The same workload as a file, through a pipe and compressed: each is read like the file. */
static void reads_pipes_and_compressed_files(void **state)
{
	static const char *const names[] = { "burn.data", "burn.pipe.data", "burn.zstd.data" };

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		size_t n, user = 0;
		uint8_t *p = fixture(names[i], &n);
		struct lg_error err = { 0 };
		struct lg_trace *t = import_bytes(p, n, &err);

		free(p);
		if (!t)
			fail_msg("%s: %s", names[i], err.message);
		assert_true(t->sample.n > 50);
		for (size_t k = 0; k < t->sample.n; k++) {
			lg_stk s = t->sample.stack[k];

			assert_non_null(strstr(lg_string(t, t->sample.event[k]), "cpu-clock"));
			user += !(t->sample.flags[k] & LG_SAMPLE_KERNEL) &&
				strstr(lg_string(t, t->frame.dso[t->stack.frame[s]]), "/burn") != NULL;
		}
		assert_true(user > t->sample.n / 2);
		assert_int_equal(diags(t, LG_DIAG_FILE_DAMAGED) + diags(t, LG_DIAG_FILE_TRUNCATED), 0);
		lg_trace_free(t);
	}
}

/* Every prefix is read as far as it is whole or refused with one line; samples never grow less. */
static void survives_truncation_at_every_byte(void **state)
{
	static const char *const names[] = { "tiny.data", "tiny.pipe.data", "tiny.zstd.data" };

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		size_t n, most = 0;
		uint8_t *p = fixture(names[i], &n);

		for (size_t cut = 0; cut <= n; cut++) {
			struct lg_error err = { 0 };
			struct lg_trace *t = import_bytes(p, cut, &err);

			if (!t) {
				assert_int_equal(err.code, LG_E_FORMAT);
				assert_true(err.message[0] && err.offset <= cut);
				continue;
			}
			assert_true(t->sample.n >= most);
			most = t->sample.n;
			lg_trace_free(t);
		}
		assert_true(most > 0);
		free(p);
	}
}

/* Memory runs out at every allocation in turn: refused for that reason, nothing worse. */
static void survives_every_failing_allocation(void **state)
{
	static const char *const names[] = { "sleep_switches.data", "tied_both.data", "tiny.zstd.data",
					     "tiny.pipe.data" };

	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		size_t size;
		uint8_t *p = fixture(names[i], &size);
		uint64_t n = 1;
		int rc;

		do {
			struct lg_error err = { 0 };
			struct lg_builder *b = NULL;
			struct lg_trace *t = NULL;

			lg_alloc_fail_at(n);
			rc = lg_builder_new(&b, &err);
			if (!rc) {
				rc = lg_perfdata_read_memory(p, size, b, &err);
				if (rc)
					lg_builder_free(b);
				else
					rc = lg_builder_seal(b, &t, &err);
			}
			if (rc)
				assert_int_equal(rc, LG_E_NOMEM);
			lg_trace_free(t);
			n++;
			/* done when a whole import made fewer allocations than n */
		} while (lg_alloc_count() >= n - 1);
		lg_alloc_fail_at(0);
		assert_int_equal(rc, 0);
		assert_true(n > 50);
		free(p);
	}
}

static void put_header_attr(struct file *f, const struct event *e)
{
	size_t at = begin(f, PD_HEADER_ATTR, 0);

	put_attr(f, e, 112);
	put64(f, e->ids[0]);
	put64(f, e->ids[1]);
	end(f, at);
}

static void put_chained(struct file *f, uint64_t id, uint64_t ts)
{
	size_t at = begin(f, PD_SAMPLE, PDM_USER);

	put64(f, id);
	put64(f, 0x1010);
	put32(f, 70);
	put32(f, 71);
	put64(f, ts);
	put64(f, 2);
	put64(f, PDC_USER);
	put64(f, 0x1010);
	end(f, at);
}

/* A pipe that describes an event behind its first samples, which wait to be put in order. */
static void knows_events_that_come_late(void **state)
{
	const uint64_t type = PDS_IDENTIFIER | PDS_IP | PDS_TID | PDS_TIME | PDS_CALLCHAIN;
	const struct event first = { .type = PD_TYPE_SOFTWARE, .config = 0, .period = 10, .sample_type = type,
				     .ids = { 1, 2 } };
	const struct event late = { .type = PD_TYPE_SOFTWARE, .config = 2, .period = 20, .sample_type = type,
				    .ids = { 3, 4 } };
	static struct file f;
	struct lg_error err = { 0 };
	struct lg_trace *t;

	(void)state;
	for (int swap = 0; swap < 2; swap++) {
		f = (struct file){ .swap = swap };
		put64(&f, PD_MAGIC2);
		put64(&f, PD_PIPE_HEADER);
		put_header_attr(&f, &first);
		for (uint64_t i = 0; i < 20; i++)
			put_chained(&f, i % 2 ? 3 : 1, 1000 + i);
		put_header_attr(&f, &late);
		for (uint64_t i = 20; i < 40; i++)
			put_chained(&f, i % 2 ? 4 : 2, 1000 + i);
		t = import_bytes(f.p, f.n, &err);
		assert_non_null(t);
		assert_int_equal(t->sample.n, 40);
		for (size_t i = 0; i < 40; i++) {
			assert_string_equal(lg_string(t, t->sample.event[i]),
					    i % 2 ? "page-faults" : "cpu-clock");
			assert_int_equal(t->sample.weight[i], i % 2 ? 20 : 10);
		}
		lg_trace_free(t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_every_field_of_a_sample),
		cmocka_unit_test(reads_the_other_byte_order),
		cmocka_unit_test(reads_attributes_that_are_newer_than_this_program),
		cmocka_unit_test(resumes_behind_a_damaged_record),
		cmocka_unit_test(says_where_nothing_can_be_read),
		cmocka_unit_test(tells_losses_with_their_times),
		cmocka_unit_test(joins_records_over_compressed_ones),
		cmocka_unit_test(knows_the_states_of_old_and_new_kernels),
		cmocka_unit_test(turns_switches_into_states),
		cmocka_unit_test(computes_no_states_from_subsampled_switches),
		cmocka_unit_test(reads_pipes_and_compressed_files),
		cmocka_unit_test(knows_events_that_come_late),
		cmocka_unit_test(survives_truncation_at_every_byte),
		cmocka_unit_test(survives_every_failing_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
