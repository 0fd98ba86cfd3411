/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_gunzip.c - the gzip reader against zlib. The first byte chooses how many bytes it is given at a
 * time. Property: one of them finds fault with the data if and only if the other does, and without
 * fault they give the same bytes.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "import/source/gunzip.h"

enum { TEXT_MAX = 8 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

struct input {
	const uint8_t *p;
	size_t n, at_once;
};

static int64_t give(void *ctx, void *buf, size_t n)
{
	struct input *in = ctx;

	n = n < in->n ? n : in->n;
	n = n < in->at_once ? n : in->at_once;
	memcpy(buf, in->p, n);
	in->p += n;
	in->n -= n;
	return (int64_t)n;
}

/* True where zlib reads all members without fault. */
static bool reference(const uint8_t *p, size_t n, uint8_t *out, size_t *ret_n)
{
	z_stream z = { .next_in = (Bytef *)(uintptr_t)p, .avail_in = (uInt)n, .next_out = out,
		       .avail_out = TEXT_MAX };
	int rc;

	if (inflateInit2(&z, 15 + 16) != Z_OK)
		abort();
	do {
		rc = inflate(&z, Z_NO_FLUSH);
		/* As the reader has it, which may see no more than one byte: what begins so is a member. */
		if (rc == Z_STREAM_END && z.avail_in && z.next_in[0] == 0x1f)
			rc = inflateReset(&z);
		else
			break;
	} while (rc == Z_OK);
	*ret_n = TEXT_MAX - z.avail_out;
	inflateEnd(&z);
	return rc == Z_STREAM_END;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static uint8_t want[TEXT_MAX], got[TEXT_MAX];
	struct input in = { p + 1, n - 1, n ? (size_t)p[0] + 1 : 0 };
	size_t n_want, n_got;
	struct lg_gunzip *z;
	bool good;

	if (n < 2)
		return 0;
	if (in.at_once == 256)
		in.at_once = SIZE_MAX;
	good = reference(in.p, in.n, want, &n_want);
	if (lg_gunzip_new(&z, give, &in, NULL))
		abort();
	n_got = lg_gunzip_get(z, got, sizeof got);
	if (n_want < TEXT_MAX && n_got < TEXT_MAX &&
	    (good != !*lg_gunzip_fault(z) || (good && n_want != n_got)))
		abort();
	if (memcmp(want, got, n_want < n_got ? n_want : n_got))
		abort();
	lg_gunzip_free(z);
	return 0;
}
