/* SPDX-License-Identifier: Apache-2.0 */
/* head.c - see head.h. */
#include "import/source/head.h"

#include <lzma.h>
#include <string.h>
#include <zstd.h>

#include "base/alloc.h"
#include "import/source/gunzip.h"
#include "import/source/packing.h"

enum { TEXT_BYTES = 1 << 16 };

struct rest {
	const uint8_t *p;
	size_t n;
};

/* For lg_gunzip. */
static int64_t feed(void *ctx, void *buf, size_t n)
{
	struct rest *r = ctx;

	n = n < r->n ? n : r->n;
	memcpy(buf, r->p, n);
	r->p += n;
	r->n -= n;
	return (int64_t)n;
}

static size_t from_gzip(const struct lg_head *h)
{
	struct rest r = { h->p, h->n };
	struct lg_gunzip *z;
	size_t k;

	/* zlib gives all that can be told from data that are cut off. */
	if (lg_gunzip_new_zlib(&z, feed, &r, NULL))
		return 0;
	k = lg_gunzip_get(z, h->text, TEXT_BYTES);
	lg_gunzip_free(z);
	return k;
}

static size_t from_zstd(const struct lg_head *h)
{
	ZSTD_DStream *zs = ZSTD_createDStream();
	ZSTD_inBuffer in = { .src = h->p, .size = h->n };
	ZSTD_outBuffer to = { .dst = h->text, .size = TEXT_BYTES };

	while (zs && in.pos < in.size && to.pos < to.size &&
	       !ZSTD_isError(ZSTD_decompressStream(zs, &to, &in)))
		;
	(void)ZSTD_freeDStream(zs);
	return to.pos;
}

static size_t from_xz(const struct lg_head *h)
{
	lzma_stream xz = { .next_in = h->p, .avail_in = h->n, .next_out = (uint8_t *)h->text,
			   .avail_out = TEXT_BYTES };

	/* What came out before an end is what is wanted. */
	if (lzma_stream_decoder(&xz, LG_XZ_MEMORY, LZMA_CONCATENATED) != LZMA_OK ||
	    lzma_code(&xz, LZMA_RUN) == LZMA_PROG_ERROR)
		xz.avail_out = TEXT_BYTES;
	lzma_end(&xz);
	return TEXT_BYTES - xz.avail_out;
}

int lg_head_open(struct lg_head *h, const uint8_t *p, size_t n)
{
	bool packed = lg_is_packed(p, n);
	size_t mark;

	*h = (struct lg_head){ .p = p, .n = n };
	h->text = lg_realloc(NULL, (packed ? TEXT_BYTES : n) + 1, 1);
	if (!h->text)
		return LG_E_NOMEM;
	if (packed) {
		h->n_text = lg_is_gzip(p, n) ? from_gzip(h) : lg_is_zstd(p, n) ? from_zstd(h) : from_xz(h);
	} else {
		memcpy(h->text, p, n);
		h->n_text = n;
	}
	mark = lg_mark_size(h->text, h->n_text);
	h->n_text -= mark;
	memmove(h->text, h->text + mark, h->n_text);
	h->text[h->n_text] = 0;
	return 0;
}

void lg_head_done(struct lg_head *h)
{
	lg_free(h->text);
	*h = (struct lg_head){ 0 };
}

bool lg_head_has(const struct lg_head *h, const char *word)
{
	return memmem(h->text, h->n_text, word, strlen(word)) != NULL;
}

bool lg_head_is_binary(const struct lg_head *h)
{
	return memchr(h->text, 0, h->n_text) != NULL;
}
