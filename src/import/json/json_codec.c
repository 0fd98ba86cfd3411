/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_codec.c - plain, gzip (RFC 1952, several members allowed) and zstd (several frames allowed).
 *
 * gzip is inflated by ISA-L where it was there at build time: about twice zlib's speed, which decides
 * whether a .json.gz can be read as fast as the scanner works.
 */
#include "import/json/json_codec.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#ifdef LG_HAVE_ISAL
#include <isa-l/igzip_lib.h>
#endif

#include "base/alloc.h"

enum { IN_BYTES = 256 << 10 };

enum kind { PLAIN, GZIP, ZSTD };

struct lg_json_codec {
	enum kind kind;
	int fd;
	int eof, over; /* no more input; no more output */
	int began, ended; /* inside a member; behind one */
	const uint8_t *in;    /* input not used yet */
	size_t n_in;
	uint8_t *buf;         /* IN_BYTES when reading from fd */
	char fault[128];
#ifdef LG_HAVE_ISAL
	struct inflate_state isal;
#else
	z_stream z;
	int z_up;
#endif
	ZSTD_DCtx *zstd;
};

/* Get more input when there is none. */
static int refill(struct lg_json_codec *c, int *ret_errno)
{
	ssize_t k;

	if (c->n_in || c->eof)
		return 0;
	if (c->fd < 0) {
		c->eof = 1;
		return 0;
	}
	do
		k = read(c->fd, c->buf, IN_BYTES);
	while (k < 0 && errno == EINTR);
	if (k < 0) {
		*ret_errno = errno;
		return LG_E_IO;
	}
	c->eof = !k;
	c->in = c->buf;
	c->n_in = (size_t)k;
	return 0;
}

int lg_json_codec_new(struct lg_json_codec **ret, int fd, const void *data, size_t n,
		      struct lg_error *err)
{
	struct lg_json_codec *c = lg_calloc(1, sizeof *c);
	int os_errno = 0;

	if (!c)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	c->fd = fd;
	c->in = data;
	c->n_in = fd < 0 ? n : 0;
	c->buf = fd < 0 ? NULL : lg_calloc(IN_BYTES, 1);
	if (fd >= 0 && !c->buf)
		goto nomem;
	if (refill(c, &os_errno)) {
		lg_json_codec_free(c);
		return lg_fail_errno(err, os_errno, "cannot read the file");
	}
	if (c->n_in >= 2 && c->in[0] == 0x1f && c->in[1] == 0x8b) {
		c->kind = GZIP;
#ifdef LG_HAVE_ISAL
		isal_inflate_init(&c->isal);
		c->isal.crc_flag = ISAL_GZIP;
#else
		if (inflateInit2(&c->z, 15 + 16) != Z_OK)
			goto nomem;
		c->z_up = 1;
#endif
	} else if (c->n_in >= 4 && !memcmp(c->in, "\x28\xb5\x2f\xfd", 4)) {
		c->kind = ZSTD;
		c->zstd = ZSTD_createDCtx();
		if (!c->zstd)
			goto nomem;
	}
	*ret = c;
	return 0;
nomem:
	lg_json_codec_free(c);
	return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
}

void lg_json_codec_free(struct lg_json_codec *c)
{
	if (!c)
		return;
#ifndef LG_HAVE_ISAL
	if (c->z_up)
		inflateEnd(&c->z);
#endif
	ZSTD_freeDCtx(c->zstd);
	lg_free(c->buf);
	lg_free(c);
}

const char *lg_json_codec_fault(const struct lg_json_codec *c)
{
	return c->fault;
}

static void fault(struct lg_json_codec *c, const char *what)
{
	snprintf(c->fault, sizeof c->fault, "%s", what);
	c->over = 1;
}

/* Inflate what is there into out; the number of bytes made. */
static size_t gunzip(struct lg_json_codec *c, char *out, size_t size)
{
#ifdef LG_HAVE_ISAL
	size_t in = c->n_in < UINT32_MAX ? c->n_in : UINT32_MAX;
	int rc;

	if (c->isal.block_state == ISAL_BLOCK_FINISH) {
		isal_inflate_reset(&c->isal);
		c->isal.crc_flag = ISAL_GZIP;
	}
	c->isal.next_in = (uint8_t *)(uintptr_t)c->in;
	c->isal.avail_in = (uint32_t)in;
	c->isal.next_out = (uint8_t *)out;
	c->isal.avail_out = size < UINT32_MAX ? (uint32_t)size : UINT32_MAX;
	size = c->isal.avail_out;
	rc = isal_inflate(&c->isal);
	c->in += in - c->isal.avail_in;
	c->n_in -= in - c->isal.avail_in;
	if (rc < 0)
		fault(c, "the gzip data is damaged");
	c->began = c->isal.block_state != ISAL_BLOCK_FINISH;
	return size - c->isal.avail_out;
#else
	uInt in = c->n_in < (1u << 30) ? (uInt)c->n_in : 1u << 30;
	int rc;

	size = size < (1u << 30) ? size : 1u << 30;
	c->z.next_in = (Bytef *)(uintptr_t)c->in;
	c->z.avail_in = in;
	c->z.next_out = (Bytef *)out;
	c->z.avail_out = (uInt)size;
	rc = inflate(&c->z, Z_NO_FLUSH);
	c->in += in - c->z.avail_in;
	c->n_in -= in - c->z.avail_in;
	c->began = rc != Z_STREAM_END;
	if (rc == Z_STREAM_END)
		inflateReset(&c->z);
	else if (rc != Z_OK && rc != Z_BUF_ERROR)
		fault(c, "the gzip data is damaged");
	return size - c->z.avail_out;
#endif
}

static size_t unzstd(struct lg_json_codec *c, char *out, size_t size)
{
	ZSTD_inBuffer in = { c->in, c->n_in, 0 };
	ZSTD_outBuffer to = { out, size, 0 };
	size_t rc = ZSTD_decompressStream(c->zstd, &to, &in);

	c->in += in.pos;
	c->n_in -= in.pos;
	if (ZSTD_isError(rc))
		fault(c, "the zstd data is damaged");
	c->began = rc != 0;
	return to.pos;
}

int lg_json_codec_read(struct lg_json_codec *c, char *out, size_t size, size_t *ret_n,
		       int *ret_errno)
{
	size_t n = 0;

	while (n < size && !c->over) {
		size_t k, left;
		int rc = refill(c, ret_errno);

		if (rc)
			return rc;
		if (c->kind == PLAIN) {
			if (!c->n_in)
				break;
			k = c->n_in < size - n ? c->n_in : size - n;
			memcpy(out + n, c->in, k);
			c->in += k;
			c->n_in -= k;
			n += k;
			/* Straight into the caller's block while it lasts. */
			while (c->fd >= 0 && n < size) {
				ssize_t got = read(c->fd, out + n, size - n);

				if (got < 0 && errno == EINTR)
					continue;
				if (got < 0) {
					*ret_errno = errno;
					return LG_E_IO;
				}
				if (!got) {
					c->eof = c->over = 1;
					break;
				}
				n += (size_t)got;
			}
			continue;
		}
		/* Another member behind the last one? Padding (tapes, dd) is not. */
		if (c->ended && !c->began &&
		    (!c->n_in || c->in[0] != (c->kind == GZIP ? 0x1f : 0x28))) {
			c->over = 1;
			break;
		}
		left = c->n_in;
		k = c->kind == GZIP ? gunzip(c, out + n, size - n) : unzstd(c, out + n, size - n);
		n += k;
		c->ended |= !c->began;
		if (!k && left == c->n_in && c->began && !c->over)
			fault(c, left ? "the compressed data is damaged"
				      : "the compressed data ends too early");
	}
	*ret_n = n;
	return 0;
}
