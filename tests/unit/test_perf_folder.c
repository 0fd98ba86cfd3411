/* SPDX-License-Identifier: Apache-2.0 */
/* perf record --threads: a folder of files is one recording, in time order, whatever of it is there. */
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
#include "perf_file.h"
#include "store/merge.h"

enum { MEMBERS = 32, ROUNDS = 15, ROUND = 50 };

static const struct event sampled = {
	.type = PD_TYPE_SOFTWARE, .period = 1, .flags = PDF_SAMPLE_ID_ALL,
	.sample_type = PDS_IP | PDS_TID | PDS_TIME | PDS_CPU, .ids = { 1, 2 },
};

static struct file file[1 + MEMBERS];

/* version: of the folder's layout; 0 = all is in this file. */
static void put_data(struct file *f, uint64_t version, uint64_t n_threads)
{
	size_t data, n;

	*f = (struct file){ 0 };
	file_begin(f, &sampled, 1, 112);
	data = f->n;
	for (uint64_t i = 0; i < n_threads; i++) {
		size_t at = begin(f, PD_COMM, 0);

		put32(f, 70);
		put32(f, (uint32_t)(71 + i));
		put_text(f, "worker", 8);
		put_text(f, "", 24); /* made up: no time */
		end(f, at);
	}
	file_done(f, data);
	f->p[72 + PDH_DIR_FORMAT / 8] |= 1 << PDH_DIR_FORMAT % 8;
	n = f->n;
	put64(f, n + 16);
	put64(f, 8);
	put64(f, version);
}

static void put_sample(struct file *f, uint64_t ts, uint32_t cpu)
{
	size_t at = begin(f, PD_SAMPLE, PDM_USER);

	put64(f, 0x1010);
	put32(f, 70);
	put32(f, 71);
	put64(f, ts);
	put32(f, cpu);
	put32(f, 0);
	end(f, at);
}

/* Two CPUs' buffers, one after the other in each round: not in order. */
static void put_member(struct file *f, uint32_t k, uint32_t rounds)
{
	*f = (struct file){ 0 };
	for (uint32_t r = 0; r < rounds; r++)
		for (uint32_t cpu = 0; cpu < 2; cpu++)
			for (uint64_t i = 0; i < ROUND; i++)
				put_sample(f, 1000000 + (r * ROUND + i) * 1000 + 10 * k + cpu, 2 * k + cpu);
}

/* As one compressed record for each hundred bytes: records begin in one and end in the next. */
static void pack(struct file *f)
{
	static struct file plain;
	static uint8_t packed[1 << 16];
	ZSTD_CStream *z = ZSTD_createCStream();
	ZSTD_inBuffer in = { .src = plain.p };

	plain = *f;
	*f = (struct file){ 0 };
	while (in.pos < plain.n) {
		ZSTD_outBuffer out = { packed, sizeof packed, 0 };
		size_t at;

		in.size = plain.n - in.pos < 100 ? plain.n : in.pos + 100;
		while (in.pos < in.size)
			assert_false(ZSTD_isError(ZSTD_compressStream(z, &out, &in)));
		assert_int_equal(ZSTD_flushStream(z, &out), 0);
		at = begin(f, PD_COMPRESSED, 0);
		memcpy(f->p + f->n, packed, out.pos);
		f->n += out.pos;
		end(f, at);
	}
	ZSTD_freeCStream(z);
}

static struct lg_trace *import_parts(size_t n, struct lg_error *err)
{
	struct lg_perfdata_part part[1 + MEMBERS];
	struct lg_trace *t = NULL;
	struct lg_builder *b;
	int rc;

	for (size_t i = 0; i < n; i++)
		part[i] = (struct lg_perfdata_part){ file[i].p, file[i].n };
	rc = lg_builder_new(&b, err);
	if (rc)
		return NULL;
	rc = lg_perfdata_read_parts(part, n, b, err);
	if (rc)
		lg_builder_free(b);
	else if (lg_builder_seal(b, &t, err))
		t = NULL;
	return t;
}

static size_t losses(const struct lg_trace *t)
{
	return diags(t, LG_DIAG_FILE_TRUNCATED) + diags(t, LG_DIAG_FILE_DAMAGED) + diags(t, LG_DIAG_PARTIAL);
}

/* More than is handed out at once, so that order is made while more is read. */
static void merges_files_that_are_not_in_order(void **state)
{
	(void)state;
	for (int packed = 0; packed < 2; packed++) {
		struct lg_error err = { 0 };
		struct lg_trace *t;

		put_data(&file[0], 1, 1);
		for (uint32_t k = 0; k < MEMBERS; k++) {
			put_member(&file[1 + k], k, ROUNDS);
			if (packed && k % 2)
				pack(&file[1 + k]);
		}
		t = import_parts(1 + MEMBERS, &err);
		if (!t)
			fail_msg("%s", err.message);
		assert_int_equal(t->sample.n, MEMBERS * ROUNDS * 2 * ROUND);
		assert_string_equal(lg_meta_get(t, "record.late"), "");
		assert_string_equal(lg_string(t, t->thread.comm[t->sample.thr[0]]), "worker");
		assert_int_equal(losses(t), 0);
		for (size_t i = 0; i < t->sample.n; i++)
			assert_int_equal(t->sample.cpu[i],
					 2 * (t->sample.ts[i] % 1000 / 10) + t->sample.ts[i] % 10);
		lg_trace_free(t);
	}
}

/* perf record --kcore makes a folder as well, for another reason. */
static void a_folder_of_one_file_lacks_nothing(void **state)
{
	struct lg_error err = { 0 };
	struct lg_trace *t;

	(void)state;
	for (uint64_t version = 0; version < 2; version++) {
		put_data(&file[0], version, 3);
		t = import_parts(1, &err);
		assert_non_null(t);
		assert_int_equal(diags(t, LG_DIAG_PARTIAL), version);
		lg_trace_free(t);
	}
}

/* Each file cut at every byte: as far as it is whole, and never silently. */
static void survives_truncation_at_every_byte(void **state)
{
	(void)state;
	for (size_t i = 0; i < 3; i++) {
		size_t most = 0, n;

		put_data(&file[0], 1, 1);
		put_member(&file[1], 0, 1);
		put_member(&file[2], 1, 1);
		pack(&file[2]);
		n = file[i].n;
		for (size_t cut = 0; cut <= n; cut++) {
			struct lg_error err = { 0 };
			struct lg_trace *t;

			file[i].n = cut;
			t = import_parts(3, &err);
			if (!t) {
				assert_int_equal(i, 0);
				assert_int_equal(err.code, LG_E_FORMAT);
				assert_true(err.message[0] && err.offset <= cut);
				continue;
			}
			assert_true(t->sample.n >= most);
			assert_true(t->sample.n >= (i ? 2 * ROUND : 4 * ROUND));
			if (i == 1 && cut % 40)
				assert_int_equal(diags(t, LG_DIAG_FILE_TRUNCATED), 1);
			most = t->sample.n;
			lg_trace_free(t);
		}
		assert_true(most == 4 * ROUND);
	}
}

static void survives_every_failing_allocation(void **state)
{
	uint64_t n = 1;
	struct lg_trace *t;
	struct lg_error err;

	(void)state;
	put_data(&file[0], 1, 1);
	put_member(&file[1], 0, 1);
	put_member(&file[2], 1, 1);
	pack(&file[2]);
	do {
		err = (struct lg_error){ 0 };
		lg_alloc_fail_at(n++);
		t = import_parts(3, &err);
		if (!t)
			assert_int_equal(err.code, LG_E_NOMEM);
		lg_trace_free(t);
	} while (lg_alloc_count() >= n - 1);
	lg_alloc_fail_at(0);
	assert_non_null(t);
	assert_true(n > 50);
}

/* -- how many there were -- */

/* As put_data(), of perf record WORDS on n_cpus; config: of its only event. */
static void put_index(struct file *f, const char *const words[3], uint64_t n_cpus, uint64_t config)
{
	struct event e = sampled;
	size_t data, at, table;

	e.config = config;
	*f = (struct file){ 0 };
	file_begin(f, &e, 1, 112);
	data = f->n;
	at = begin(f, PD_ID_INDEX, 0);
	put64(f, n_cpus);
	for (uint64_t i = 0; i < n_cpus; i++) {
		put64(f, 1 + i % 2);
		put64(f, i);
		put64(f, i);
		put64(f, UINT64_MAX);
	}
	end(f, at);
	file_done(f, data);
	f->p[72 + PDH_CMDLINE / 8] |= 1 << PDH_CMDLINE % 8;
	f->p[72 + PDH_DIR_FORMAT / 8] |= 1 << PDH_DIR_FORMAT % 8;
	table = f->n;
	put64(f, table + 32 + 8);
	put64(f, 4 + 3 * (4 + 16));
	put64(f, table + 32);
	put64(f, 8);
	put64(f, 1);
	put32(f, 3);
	for (size_t i = 0; i < 3; i++) {
		put32(f, 16);
		put_text(f, words[i], 16);
	}
}

static void check_missing(const char *first, const char *second, uint64_t config, size_t n, size_t want)
{
	const char *const words[3] = { "perf", first, second };
	struct lg_error err = { 0 };
	struct lg_trace *t;

	put_index(&file[0], words, 4, config);
	for (uint32_t k = 0; k < n; k++)
		put_member(&file[1 + k], k, 1);
	t = import_parts(1 + n, &err);
	if (!t)
		fail_msg("%s", err.message);
	assert_int_equal(t->sample.n, n * 2 * ROUND);
	assert_int_equal(diags(t, LG_DIAG_PARTIAL), want);
	lg_trace_free(t);
}

/* perf lists its events' CPUs: where it has a thread for each, so many files there were. */
static void misses_files_behind_the_last(void **state)
{
	(void)state;
	check_missing("--threads", "sleep", 0, 4, 0);
	check_missing("--threads", "sleep", 0, 3, 1);
	check_missing("--threads", "sleep", 0, 1, 3);
	check_missing("--threads=cpu", "sleep", 0, 2, 2);
	check_missing("--thr", "sleep", 0, 2, 2);
	/* A thread for more than one CPU; or whose word that is, is not known. */
	check_missing("--threads=core", "sleep", 0, 2, 0);
	check_missing("--threads", "--threads=1", 0, 2, 0);
	check_missing("-a", "sleep", 0, 2, 0);
	/* perf's own event may be on CPUs that were not asked for */
	check_missing("--threads", "sleep", 9, 2, 0);
}

/* -- on disk -- */

static void put_on_disk(const char *folder, const char *name, const struct file *f)
{
	char path[256];
	FILE *to;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	to = fopen(path, "wb");
	assert_non_null(to);
	assert_int_equal(fwrite(f->p, 1, f->n, to), f->n);
	assert_int_equal(fclose(to), 0);
}

static size_t samples_of(const char *path, size_t *ret_partial, struct lg_error *err)
{
	struct lg_import_info info;
	struct lg_trace *t;
	size_t n;

	if (lg_import(&path, 1, &t, &info, err))
		return 0;
	n = t->sample.n;
	*ret_partial = diags(t, LG_DIAG_PARTIAL);
	lg_trace_free(t);
	return n;
}

/* By the folder's name or that of its first file; of the others, a word that helps. */
static void knows_a_folder_by_content(void **state)
{
	char folder[] = "/tmp/lg-folder-XXXXXX", path[256];
	static const char *const names[] = { "data", "data.0", "data.1", "data.3", "data.old" };
	struct lg_error err = { 0 };
	size_t partial;

	(void)state;
	assert_non_null(mkdtemp(folder));
	assert_false(lg_import_is_folder(folder));
	put_data(&file[0], 1, 1);
	put_member(&file[1], 0, 1);
	put_on_disk(folder, "data", &file[0]);
	put_on_disk(folder, "data.0", &file[1]);
	put_on_disk(folder, "data.1", &(struct file){ 0 }); /* a CPU on which nothing was */
	put_on_disk(folder, "data.old", &file[1]);          /* perf writes no such name */
	assert_true(lg_import_is_folder(folder));
	assert_int_equal(lg_import_knows(folder), LG_IMPORT_YES);
	assert_int_equal(samples_of(folder, &partial, &err), 2 * ROUND);
	assert_int_equal(partial, 0);
	snprintf(path, sizeof path, "%s/data", folder);
	assert_int_equal(samples_of(path, &partial, &err), 2 * ROUND);
	snprintf(path, sizeof path, "%s/data.0", folder);
	assert_int_equal(samples_of(path, &partial, &err), 0);
	assert_non_null(strstr(err.message, "name its folder"));
	put_on_disk(folder, "data.3", &file[1]);
	assert_int_equal(samples_of(folder, &partial, &err), 4 * ROUND);
	assert_int_equal(partial, 1); /* data.2 */
	/* Nothing is told by the name alone. */
	put_data(&file[0], 1, 1);
	file[0].p[72 + PDH_DIR_FORMAT / 8] = 0;
	put_on_disk(folder, "data", &file[0]);
	assert_false(lg_import_is_folder(folder));
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		snprintf(path, sizeof path, "%s/%s", folder, names[i]);
		assert_int_equal(unlink(path), 0);
	}
	assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(merges_files_that_are_not_in_order),
		cmocka_unit_test(a_folder_of_one_file_lacks_nothing),
		cmocka_unit_test(survives_truncation_at_every_byte),
		cmocka_unit_test(survives_every_failing_allocation),
		cmocka_unit_test(misses_files_behind_the_last),
		cmocka_unit_test(knows_a_folder_by_content),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
