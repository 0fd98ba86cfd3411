/* SPDX-License-Identifier: Apache-2.0 */
#include "import/refuse.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include "base/alloc.h"
#include "import/source/packing.h"
#include "import/source/source.h"
#include "store/lag_chunk.h"

/* Beyond this nothing is looked for: a zstd block has at most 128 KiB (RFC 8878, 3.1.1.2.4), a gzip header
 * with a name longer than that is none. */
enum { LOOK_BYTES = 1 << 20, TEXT_BYTES = 4096 };

/* How far unpacking came. */
struct probe {
	uint64_t at;      /* bytes of the file that were understood */
	bool some;        /* something came out: all is well */
	bool over;        /* the data are whole, and nothing is in them */
	bool in_header;   /* where it stopped */
	const char *bad;  /* what the library says is wrong; NULL = the file ends here */
};

static bool is_gzip(const uint8_t *p, size_t n)
{
	return n >= 2 && p[0] == 0x1f && p[1] == 0x8b;
}

static void probe_gzip(struct probe *r, const uint8_t *p, size_t n)
{
	gz_header h = { 0 };
	uint8_t out[1];
	z_stream z = { .next_in = (Bytef *)(uintptr_t)p, .avail_in = (uInt)n, .next_out = out,
		       .avail_out = sizeof out };
	int rc;

	/* What cannot be looked at is not refused here. */
	*r = (struct probe){ .some = true };
	if (inflateInit2(&z, 16 + MAX_WBITS) != Z_OK)
		return;
	(void)inflateGetHeader(&z, &h);
	rc = inflate(&z, Z_SYNC_FLUSH);
	*r = (struct probe){ .at = z.total_in, .some = !z.avail_out, .over = rc == Z_STREAM_END,
			     .in_header = h.done != 1 };
	if (rc == Z_DATA_ERROR)
		r->bad = z.msg ? z.msg : "they are damaged";
	/* zlib takes method and flags (RFC 1952, 2.3.1) at once. */
	if (r->bad && r->at == 4)
		r->at = p[2] != Z_DEFLATED ? 2 : 3;
	(void)inflateEnd(&z);
}

static void probe_zstd(struct probe *r, const uint8_t *p, size_t n)
{
	ZSTD_DStream *zs = ZSTD_createDStream();
	ZSTD_inBuffer in = { .src = p, .size = n };
	uint8_t text[1];
	ZSTD_outBuffer out = { .dst = text, .size = sizeof text };
	size_t k = 0;

	*r = (struct probe){ .some = true };
	if (!zs)
		return;
	/* Several frames: the ones that pzstd writes first are empty. */
	while (in.pos < in.size && !out.pos) {
		size_t before = in.pos;

		k = ZSTD_decompressStream(zs, &out, &in);
		if (ZSTD_isError(k) || (in.pos == before && !out.pos))
			break;
	}
	*r = (struct probe){ .at = in.pos, .some = out.pos, .over = !k };
	if (ZSTD_isError(k))
		r->bad = ZSTD_getErrorName(k);
	(void)ZSTD_freeDStream(zs);
}

static const char *xz_fault(lzma_ret rc)
{
	return rc == LZMA_MEMLIMIT_ERROR ? "they take too much memory"
	       : rc == LZMA_OPTIONS_ERROR ? "they were packed in a way that is not known here" : "they are damaged";
}

static void probe_xz(struct probe *r, const uint8_t *p, size_t n)
{
	uint8_t text[1];
	lzma_stream xz = { .next_in = p, .avail_in = n, .next_out = text, .avail_out = sizeof text };
	lzma_ret rc;

	*r = (struct probe){ .some = true };
	if (lzma_stream_decoder(&xz, (uint64_t)256 << 20, 0) != LZMA_OK)
		return;
	rc = lzma_code(&xz, LZMA_RUN);
	*r = (struct probe){ .at = xz.total_in, .some = !xz.avail_out, .over = rc == LZMA_STREAM_END };
	if (rc != LZMA_OK && rc != LZMA_STREAM_END && rc != LZMA_BUF_ERROR)
		r->bad = xz_fault(rc);
	lzma_end(&xz);
}

static const char *packing_of(const uint8_t *p, size_t n)
{
	return is_gzip(p, n) ? "gzip" : lg_is_zstd(p, n) ? "zstd" : lg_is_xz(p, n) ? "xz" : NULL;
}

static void probe(struct probe *r, const uint8_t *p, size_t n)
{
	if (is_gzip(p, n))
		probe_gzip(r, p, n);
	else if (lg_is_xz(p, n))
		probe_xz(r, p, n);
	else
		probe_zstd(r, p, n);
}

/* More of the file than its head; the number of bytes. */
static size_t read_more(const char *path, uint8_t *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t n = 0;
	ssize_t k = 1;

	while (fd >= 0 && n < size && k) {
		k = read(fd, buf + n, size - n);
		if (k < 0 && errno != EINTR)
			break;
		n += k > 0 ? (size_t)k : 0;
	}
	if (fd >= 0)
		close(fd);
	return n;
}

int lg_refuse_packed(const char *name, const char *path, const uint8_t *head, size_t n, struct lg_error *err)
{
	const char *kind = packing_of(head, n);
	LG_AUTOFREE uint8_t *buf = NULL;
	struct probe r;

	/* 28 b5 is no text: a zstd file of less than its magic number is one that was cut. */
	if (!kind && n >= 2 && n < 4 && !memcmp(head, "\x28\xb5\x2f", n))
		kind = "zstd";
	if (!kind)
		return 0;
	probe(&r, head, n);
	if (r.some)
		return 0;
	if (!r.bad) {
		buf = lg_calloc(LOOK_BYTES, 1);
		if (!buf)
			return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
		n = read_more(path, buf, LOOK_BYTES);
		if (n == LOOK_BYTES)
			return 0;
		probe(&r, buf, n);
		if (r.some)
			return 0;
	}
	if (r.bad)
		return lg_fail(err, LG_E_FORMAT, r.at,
			       "%s: nothing can be unpacked from its %s data: %s; copy or make it again", name,
			       kind, r.bad);
	if (r.over)
		return lg_fail(err, LG_E_FORMAT, r.at, "%s is %s %s file of nothing: it unpacks to 0 bytes", name,
			       *kind == 'x' ? "an" : "a", kind);
	return lg_fail(err, LG_E_FORMAT, n, "%s: its %s data end %s; copy or make it again", name, kind,
		       r.in_header ? "inside their header" : "before anything can be unpacked");
}

static bool all_zero(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i])
			return false;
	return true;
}

/* "UTF-16LE" where the bytes are text of two bytes a character, with a byte order mark or without; or NULL. */
static const char *wide(const uint8_t *p, size_t n, bool *ret_marked)
{
	size_t low[2] = { 0, 0 }; /* zero bytes at even and at odd places; the other byte is ASCII */

	*ret_marked = true;
	if (n >= 4 && (!memcmp(p, "\xff\xfe\0\0", 4) || !memcmp(p, "\0\0\xfe\xff", 4)))
		return "UTF-32";
	if (n >= 2 && (!memcmp(p, "\xff\xfe", 2) || !memcmp(p, "\xfe\xff", 2)))
		return "UTF-16";
	*ret_marked = false;
	for (size_t i = 0; i + 1 < n; i += 2) {
		low[0] += !p[i] && (isprint(p[i + 1]) || isspace(p[i + 1]));
		low[1] += !p[i + 1] && (isprint(p[i]) || isspace(p[i]));
	}
	/* Nine of ten: a text in a Latin script, and no other kind of file. */
	if (n >= 16 && low[1] * 20 > n * 9)
		return "UTF-16LE";
	return n >= 16 && low[0] * 20 > n * 9 ? "UTF-16BE" : NULL;
}

/* A word for what the bytes seem to be. */
static const char *looks_like(const uint8_t *p, size_t n)
{
	static const struct {
		const char *magic, *what;
		size_t n;
	} known[] = {
		{ "\x1f\x8b", "a gzip file", 2 },
		{ "\x28\xb5\x2f\xfd", "a zstd file", 4 },
		{ "\xfd" "7zXZ", "an xz file", 6 },
		{ "BZh", "a bzip2 file", 3 },
		{ "\x7f" "ELF", "an ELF file", 4 },
		{ "PERFILE2", "a perf.data file", 8 },
		{ LG_LAG_MAGIC, "a recording of laggard", 8 },
		{ "SQLite format 3", "an SQLite database", 15 },
		{ "PK\x03\x04", "a zip file (a torch checkpoint is one)", 4 },
		{ "{", "JSON", 1 },
		{ "[", "JSON", 1 },
		{ "#!", "a script", 2 },
		{ "laggard-baseline\t", "a baseline, which laggard diff compares a run with", 17 },
	};

	if (!n)
		return "empty";
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (n >= known[i].n && !memcmp(p, known[i].magic, known[i].n))
			return known[i].what;
	if (all_zero(p, n))
		return "nothing but zero bytes where a format would be named";
	for (size_t i = 0; i < n; i++)
		if (!p[i] || (p[i] < 0x20 && !strchr("\t\n\r\f", p[i])))
			return "of no kind that is known here";
	return "text";
}

/* How much of a list of formats fits into room bytes: whole formats. */
static size_t whole_items(const char *list, size_t room)
{
	size_t fits = 0;
	int depth = 0;

	for (size_t i = 0; i <= room; i++) {
		if (!list[i])
			return i;
		depth += (list[i] == '(') - (list[i] == ')');
		if (!depth && !strncmp(list + i, ", ", 2))
			fits = i;
	}
	return fits;
}

/* The list is as long as the message may be: names of files take from it, never half a word. */
static int refuse_listing(struct lg_error *err, const char *name, const char *inside, const char *what,
			  const char *formats)
{
	static const char more[] = " and others, see laggard-import-feeds(7)";
	size_t room, n;
	int rc = lg_fail(err, LG_E_FORMAT, 0, "%s is %s%s, not a trace", name, inside, what);

	if (!err)
		return rc;
	n = strlen(err->message);
	room = sizeof err->message - n;
	if (room <= sizeof LG_REFUSE_LIST - 1 + sizeof more)
		return rc;
	room -= sizeof LG_REFUSE_LIST - 1 + sizeof more;
	if (strlen(formats) <= room + sizeof more - 1)
		room = strlen(formats);
	room = whole_items(formats, room);
	if (room)
		snprintf(err->message + n, sizeof err->message - n, "%s%.*s%s", LG_REFUSE_LIST, (int)room,
			 formats, formats[room] ? more : "");
	return rc;
}

int lg_refuse_unknown(const char *name, const struct lg_head *h, const char *formats, struct lg_error *err)
{
	const char *enc, *packing = packing_of(h->p, h->n);
	const uint8_t *head = h->p;
	size_t n = h->n;
	char inside[48] = "";
	bool marked;

	if (packing && h->n_text) {
		snprintf(inside, sizeof inside, "%s %s file; unpacked it is ", *packing == 'x' ? "an" : "a",
			 packing);
		head = (const uint8_t *)h->text;
		n = h->n_text < TEXT_BYTES ? h->n_text : TEXT_BYTES;
	}
	enc = wide(head, n, &marked);
	if (enc)
		return lg_fail(err, LG_E_FORMAT, 0,
			       "%s is %s%s text (%s): convert it first: iconv -f %s -t UTF-8", name, inside, enc,
			       marked ? "it begins with a byte order mark" : "every other byte is zero", enc);
	return refuse_listing(err, name, inside, looks_like(head, n), formats);
}
