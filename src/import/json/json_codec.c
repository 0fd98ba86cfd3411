/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_codec.c - plain, gzip (RFC 1952, several members allowed) and zstd (several frames allowed).
 *
 * What is inflated here decides whether a .json.gz can be read as fast as the scanner works.
 */
#include "import/json/json_codec.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "base/alloc.h"
#include "import/source/gunzip.h"
#include "import/source/packing.h"

enum { IN_BYTES = 256 << 10 };

enum kind { PLAIN, GZIP, ZSTD };

struct lg_json_codec {
	enum kind kind;
	int fd;
	int eof, over; /* no more input; no more output */
	int began, ended; /* inside a member; behind one */
	const uint8_t *in;    /* input not used yet */
	size_t n_in;
	uint64_t packed, unpacked; /* bytes so far */
	uint8_t *buf;         /* IN_BYTES when reading from fd */
	char fault[160];
	int os_errno;         /* of the read that gzip was refused */
	struct lg_gunzip *gzip;
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
	c->packed += c->n_in;
	return 0;
}

/* Compressed bytes for lg_gunzip: at least one while there are any. */
static int64_t feed(void *ctx, void *buf, size_t n)
{
	struct lg_json_codec *c = ctx;
	int rc = refill(c, &c->os_errno);

	if (rc)
		return rc;
	n = n < c->n_in ? n : c->n_in;
	if (n)
		memcpy(buf, c->in, n);
	c->in += n;
	c->n_in -= n;
	return (int64_t)n;
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
	c->n_in = c->packed = fd < 0 ? n : 0;
	c->buf = fd < 0 ? NULL : lg_calloc(IN_BYTES, 1);
	if (fd >= 0 && !c->buf)
		goto nomem;
	if (refill(c, &os_errno)) {
		lg_json_codec_free(c);
		return lg_fail_errno(err, os_errno, "cannot read the file");
	}
	if (c->n_in >= 2 && c->in[0] == 0x1f && c->in[1] == 0x8b) {
		c->kind = GZIP;
		if (lg_gunzip_new(&c->gzip, feed, c, NULL))
			goto nomem;
	} else if (lg_is_zstd(c->in, c->n_in)) {
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
	lg_gunzip_free(c->gzip);
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

static int read_some(struct lg_json_codec *c, char *out, size_t size, size_t *ret_n, int *ret_errno)
{
	size_t n = 0;

	if (c->kind == GZIP) {
		*ret_n = lg_gunzip_get(c->gzip, out, size);
		*ret_errno = c->os_errno;
		if (*ret_n < size && *lg_gunzip_fault(c->gzip))
			fault(c, lg_gunzip_fault(c->gzip));
		return lg_gunzip_stopped(c->gzip) < 0 ? LG_E_IO : 0;
	}
	while (n < size && !c->over) {
		size_t k, left;
		int rc;

		if (c->kind == PLAIN) {
			if (!c->n_in && c->fd < 0)
				break;
			/* What was read to tell the kind; memory. */
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
		rc = refill(c, ret_errno);
		if (rc)
			return rc;
		/* Another member behind the last one? Padding (tapes, dd) is not. */
		if (c->ended && !c->began &&
		    (!c->n_in || (c->in[0] != 0x28 && (c->in[0] & 0xf0) != 0x50))) {
			c->over = 1;
			break;
		}
		left = c->n_in;
		k = unzstd(c, out + n, size - n);
		n += k;
		c->ended |= !c->began;
		if (!k && left == c->n_in && c->began && !c->over)
			fault(c, left ? "the compressed data is damaged"
				      : "the compressed data ends too early");
	}
	*ret_n = n;
	return 0;
}

int lg_json_codec_read(struct lg_json_codec *c, char *out, size_t size, size_t *ret_n,
		       int *ret_errno)
{
	int rc;

	if (c->kind != PLAIN && lg_is_swollen(c->packed, c->unpacked)) {
		*ret_n = 0;
		return 0;
	}
	rc = read_some(c, out, size, ret_n, ret_errno);
	if (rc)
		return rc;
	c->unpacked += *ret_n;
	if (c->kind != PLAIN && lg_is_swollen(c->packed, c->unpacked))
		fault(c, LG_SWOLLEN);
	return 0;
}
