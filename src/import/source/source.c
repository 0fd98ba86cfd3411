/* SPDX-License-Identifier: Apache-2.0 */
/* source.c - see source.h. Several gzip members, zstd frames or xz streams in a row are one input. */
#include "import/source/source.h"

#include <errno.h>
#include <fcntl.h>
#include <lzma.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "base/alloc.h"
#include "import/source/gunzip.h"
#include "import/source/packing.h"

enum { RAW_BYTES = 1 << 16, LINE_BYTES = 1 << 20 };
enum packing { PLAIN, GZIP, ZSTD, XZ };

struct lg_source {
	int fd;
	enum packing packing;
	size_t raw_at, raw_n; /* of raw */
	int raw_end;
	struct lg_gunzip *gzip;
	ZSTD_DStream *zs;
	int zs_open;        /* inside a frame */
	lzma_stream xz;
	uint64_t offset, cut, packed; /* packed: bytes of the file so far */
	const char *damage;
	int end;
	/* lines: text[line_at, text_n) is unread */
	char *text;
	size_t text_at, text_n;
	int skipping; /* inside a line that was cut */
	int begun;    /* a line was given */
	uint8_t raw[RAW_BYTES]; /* last: it need not be zero */
};

static enum packing packing_of(const uint8_t *p, size_t n)
{
	if (lg_is_gzip(p, n))
		return GZIP;
	if (lg_is_zstd(p, n))
		return ZSTD;
	if (lg_is_xz(p, n))
		return XZ;
	return PLAIN;
}

static void fill(struct lg_source *s)
{
	ssize_t k;

	if (s->raw_at < s->raw_n || s->raw_end)
		return;
	do
		k = read(s->fd, s->raw, sizeof s->raw);
	while (k < 0 && errno == EINTR);
	if (k < 0)
		s->damage = "it cannot be read further";
	s->raw_end = k <= 0;
	s->raw_at = 0;
	s->raw_n = k > 0 ? (size_t)k : 0;
	s->packed += s->raw_n;
}

/* Up to n bytes as the file has them. */
static size_t take(struct lg_source *s, void *buf, size_t n)
{
	fill(s);
	n = n < s->raw_n - s->raw_at ? n : s->raw_n - s->raw_at;
	memcpy(buf, s->raw + s->raw_at, n);
	s->raw_at += n;
	return n;
}

/* For lg_gunzip. */
static int64_t feed(void *ctx, void *buf, size_t n)
{
	struct lg_source *s = ctx;
	size_t k = take(s, buf, n);

	return k || !s->damage ? (int64_t)k : LG_E_IO;
}

int lg_source_open(struct lg_source **ret, const char *path, struct lg_error *err)
{
	struct lg_source *s = lg_realloc(NULL, 1, sizeof *s);

	if (!s)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	memset(s, 0, offsetof(struct lg_source, raw));
	s->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (s->fd < 0) {
		int rc = lg_fail_errno(err, errno, "cannot open %s", path);

		lg_free(s);
		return rc;
	}
	fill(s);
	s->packing = packing_of(s->raw, s->raw_n);
	if (s->packing == ZSTD)
		s->zs = ZSTD_createDStream();
	if ((s->packing == GZIP && lg_gunzip_new(&s->gzip, feed, s, NULL)) ||
	    (s->packing == ZSTD && !s->zs) ||
	    (s->packing == XZ && lzma_stream_decoder(&s->xz, LG_XZ_MEMORY, LZMA_CONCATENATED) != LZMA_OK)) {
		lg_source_close(s);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	*ret = s;
	return 0;
}

void lg_source_close(struct lg_source *s)
{
	if (!s)
		return;
	close(s->fd);
	lg_gunzip_free(s->gzip);
	(void)ZSTD_freeDStream(s->zs);
	lzma_end(&s->xz);
	lg_free(s->text);
	lg_free(s);
}

static size_t read_gzip(struct lg_source *s, void *buf, size_t n)
{
	size_t k = lg_gunzip_get(s->gzip, buf, n);

	/* A file that cannot be read further has said so already. */
	if (*lg_gunzip_fault(s->gzip))
		s->damage = lg_gunzip_short(s->gzip) ? "its gzip data ends early" : "its gzip data is damaged";
	return k;
}

static size_t read_zstd(struct lg_source *s, uint8_t *buf, size_t n)
{
	ZSTD_outBuffer out = { .dst = buf, .size = n };

	while (!out.pos) {
		ZSTD_inBuffer in;
		size_t k;

		fill(s);
		in = (ZSTD_inBuffer){ .src = s->raw, .size = s->raw_n, .pos = s->raw_at };
		if (s->raw_at == s->raw_n && s->raw_end) {
			if (s->zs_open)
				s->damage = "its zstd data ends early";
			break;
		}
		k = ZSTD_decompressStream(s->zs, &out, &in);
		s->raw_at = in.pos;
		if (ZSTD_isError(k)) {
			s->damage = "its zstd data is damaged";
			s->raw_end = 1;
			s->raw_at = s->raw_n;
			break;
		}
		s->zs_open = k != 0;
	}
	return out.pos;
}

static size_t read_xz(struct lg_source *s, uint8_t *buf, size_t n)
{
	lzma_ret rc = LZMA_OK;

	s->xz.next_out = buf;
	s->xz.avail_out = n;
	while (s->xz.avail_out == n && rc == LZMA_OK) {
		fill(s);
		s->xz.next_in = s->raw + s->raw_at;
		s->xz.avail_in = s->raw_n - s->raw_at;
		rc = lzma_code(&s->xz, s->raw_end ? LZMA_FINISH : LZMA_RUN);
		s->raw_at = s->raw_n - s->xz.avail_in;
	}
	if (rc == LZMA_BUF_ERROR)
		s->damage = "its xz data ends early";
	else if (rc == LZMA_MEMLIMIT_ERROR)
		s->damage = "its xz data takes more than 256 MiB to unpack";
	else if (rc != LZMA_OK && rc != LZMA_STREAM_END)
		s->damage = "its xz data is damaged";
	return n - s->xz.avail_out;
}

size_t lg_source_read(struct lg_source *s, void *buf, size_t n)
{
	size_t k = 0;

	if (s->end || !n)
		return 0;
	n = n < (1u << 30) ? n : 1u << 30;
	if (s->packing == GZIP) {
		k = read_gzip(s, buf, n);
	} else if (s->packing == ZSTD) {
		k = read_zstd(s, buf, n);
	} else if (s->packing == XZ) {
		k = read_xz(s, buf, n);
	} else {
		k = take(s, buf, n);
	}
	s->offset += k;
	if (s->packing != PLAIN && lg_is_swollen(s->packed, s->offset)) {
		s->damage = LG_SWOLLEN;
		k = 0;
	}
	s->end = !k;
	return k;
}

/* The end of the line that starts at text_at; NULL when it is not in the buffer yet. */
static char *line_end(const struct lg_source *s)
{
	char *p = s->text + s->text_at;
	size_t n = s->text_n - s->text_at;
	char *nl = memchr(p, '\n', n);
	char *cr = memchr(p, '\r', nl ? (size_t)(nl - p) : n);

	/* "\r\n" is one end; whether "\n" follows is unknown at the buffer's edge. */
	if (cr && (cr + 1 < s->text + s->text_n || s->end))
		return cr;
	return cr ? NULL : nl;
}

int lg_source_line(struct lg_source *s, char **ret_line, size_t *ret_n)
{
	if (!s->text)
		s->text = lg_calloc(LINE_BYTES + 1, 1);
	if (!s->text)
		return 0;
	for (;;) {
		char *p = s->text + s->text_at, *e = line_end(s);
		size_t k;

		if (e || (s->end && s->text_at < s->text_n)) {
			char *stop = e ? e : s->text + s->text_n;
			int skip = s->skipping;

			s->text_at = (size_t)(stop - s->text) + (e != NULL);
			if (e && *e == '\r' && s->text_at < s->text_n && e[1] == '\n')
				s->text_at++;
			*stop = 0;
			s->skipping = 0;
			if (skip)
				continue;
			if (!s->begun)
				p += lg_mark_size(p, (size_t)(stop - p));
			s->begun = 1;
			*ret_line = p;
			*ret_n = (size_t)(stop - p);
			return 1;
		}
		if (s->end)
			return 0;
		memmove(s->text, p, s->text_n - s->text_at);
		s->text_n -= s->text_at;
		s->text_at = 0;
		if (s->text_n == LINE_BYTES) {
			int first = !s->skipping;

			s->cut += (uint64_t)first;
			s->text_at = s->text_n;
			s->skipping = 1;
			if (first) {
				s->text[LINE_BYTES] = 0;
				*ret_line = s->text;
				*ret_n = LINE_BYTES;
				return 1;
			}
			continue;
		}
		k = lg_source_read(s, s->text + s->text_n, LINE_BYTES - s->text_n);
		s->text_n += k;
	}
}

uint64_t lg_source_cut(const struct lg_source *s)
{
	return s->cut;
}

uint64_t lg_source_offset(const struct lg_source *s)
{
	return s->offset;
}

const char *lg_source_damage(const struct lg_source *s)
{
	return s->damage;
}

int lg_source_all(const char *path, size_t limit, char **ret, size_t *ret_n,
		  const char **ret_damage, struct lg_error *err)
{
	struct lg_source *s;
	char *buf = NULL;
	size_t n = 0, cap = 0, k = 1;
	int rc = lg_source_open(&s, path, err);

	if (rc)
		return rc;
	while (!rc && k) {
		if (lg_grow(&buf, &cap, n + RAW_BYTES + 1, 1)) {
			rc = lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
			break;
		}
		k = lg_source_read(s, buf + n, cap - n - 1);
		n += k;
		if (n > limit)
			rc = lg_fail(err, LG_E_LIMIT, n, "%s is larger than %zu MiB unpacked",
				     path, limit >> 20);
	}
	*ret_damage = s->damage;
	lg_source_close(s);
	if (rc) {
		lg_free(buf);
		return rc;
	}
	buf[n] = 0;
	*ret = buf;
	*ret_n = n;
	return 0;
}
