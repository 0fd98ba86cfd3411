/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_flightrec.c - Flight Recorder dumps: the reader of pickles, and of JSON; and what is concluded from
 * the dumps of several ranks, which follow one another in an input.
 */
#include "fuzz_feed.h"
#include "import/flightrec/flightrec.h"

static const char between[] = "\n==dump==\n";
enum { RANKS = 6 };

/* Into b, as a rank of its own. An error leaves what came before. */
static void add(struct lg_builder *b, const uint8_t *p, size_t n, int rank)
{
	lg_prc first = (lg_prc)lg_builder_trace(b)->process.n;
	struct lg_error err = { 0 };
	char path[32];
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (fd < 0 || write(fd, p, n) != (ssize_t)n)
		abort();
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (lg_import_flightrec.run(path, b, &err) &&
	    (!err.code || !*err.message || strchr(err.message, '\n')))
		abort();
	for (lg_prc k = first; k < lg_builder_trace(b)->process.n; k++) {
		struct lg_process_row row = lg_process_read(b, k);

		row.rank = rank;
		lg_process_write(b, k, &row);
	}
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct lg_builder *b;
	struct lg_trace *t;

	fuzz_feed(&lg_import_flightrec, p, n);
	if (!memmem(p, n, between, sizeof between - 1))
		return 0;
	if (lg_builder_new(&b, NULL))
		abort();
	for (int rank = 0; rank < RANKS && n; rank++) {
		const uint8_t *end = memmem(p, n, between, sizeof between - 1);
		size_t len = end ? (size_t)(end - p) : n;

		add(b, p, len, rank);
		len += end ? sizeof between - 1 : 0;
		p += len;
		n -= len;
	}
	if (lg_builder_seal(b, &t, NULL))
		abort();
	fuzz_judge(t);
	lg_trace_free(t);
	return 0;
}
