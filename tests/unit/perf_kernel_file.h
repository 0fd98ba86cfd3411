/* SPDX-License-Identifier: Apache-2.0 */
/* perf_kernel_file.h - recordings of kernel addresses, and the names that an import gives them. */
#ifndef LG_TEST_PERF_KERNEL_FILE_H
#define LG_TEST_PERF_KERNEL_FILE_H
#include <stdio.h>

#include "import/import.h"
#include "perf_file.h"

static const struct event kernel_samples = {
	.type = PD_TYPE_SOFTWARE, .period = 1, .flags = PDF_SAMPLE_ID_ALL,
	.sample_type = PDS_IP | PDS_TID | PDS_TIME | PDS_CPU, .ids = { 1, 2 },
};

static inline void put_file(const char *path, const void *p, size_t n)
{
	FILE *to = fopen(path, "wb");

	assert_non_null(to);
	assert_int_equal(fwrite(p, 1, n, to), n);
	assert_int_equal(fclose(to), 0);
}

/* One sample of kernel_samples at each address. */
static inline void put_kernel_samples(struct file *f, const uint64_t *ips, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		size_t at = begin(f, PD_SAMPLE, PDM_KERNEL);

		put64(f, ips[i]);
		put32(f, 70);
		put32(f, 71);
		put64(f, 1000000 + i);
		put64(f, 0);
		end(f, at);
	}
}

static inline struct lg_trace *import_file(const char *path)
{
	struct lg_error err = { 0 };
	struct lg_import_info info;
	struct lg_trace *t;

	if (lg_import(&path, 1, &t, &info, &err))
		fail_msg("%s", err.message);
	return t;
}

/* want: "a b - d", the functions of the samples; of_module: the one that belongs to some_module, NULL = none. */
static inline void check_names(const struct lg_trace *t, const char *want, const char *of_module)
{
	char got[256] = "";

	for (size_t i = 0; i < t->sample.n; i++) {
		lg_frm f = t->stack.frame[t->sample.stack[i]];
		const char *name = lg_string(t, t->frame.name[f]), *dso = lg_string(t, t->frame.dso[f]);

		strcat(strcat(got, i ? " " : ""), *name ? name : "-");
		if (!of_module)
			assert_string_equal(dso, "[kernel.kallsyms]");
		else if (!strcmp(name, of_module))
			assert_string_equal(dso, "[some_module]");
	}
	assert_string_equal(got, want);
}

#endif /* LG_TEST_PERF_KERNEL_FILE_H */
