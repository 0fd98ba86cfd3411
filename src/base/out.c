/* SPDX-License-Identifier: Apache-2.0 */
#include "base/out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <zlib.h>

#include "base/alloc.h"
#include "base/place.h"
#include "base/writer_thread.h"

/* What is longer than two buffers is written by a thread of its own. A write() of 10 KB costs twice as much
 * a byte as one of 64 KB. */
enum { BUF_BYTES = 256 * 1024, THREAD_FROM = 2 * BUF_BYTES, WRITE_FROM = 64 * 1024 };

/* Where buffers go. Belongs to the thread while there is one and it is not waited for. */
struct device {
	int fd;           /* -1 for memory */
	const char *path; /* for people; NULL: standard output */
	z_stream z;
	int gz;
	size_t n_few; /* in few */
	uint64_t written, reserved; /* file offsets; reserved 0: not yet, UINT64_MAX: it is not to be had */
	_Atomic int failed; /* sticky LG_E_*; err is set before it */
	struct lg_error err;
	unsigned char few[WRITE_FROM]; /* pieces that wait for more; last: it need not be zero */
};

struct lg_out {
	int fd;             /* d.fd */
	struct lg_place *place; /* NULL for memory */
	char *path;         /* NULL for stdout, memory */
	unsigned char *buf; /* plain bytes waiting */
	size_t n, cap;
	uint64_t total;
	struct lg_writer_thread *writer; /* NULL: written here */
	int tried;                /* to start it */
	int failed;               /* sticky LG_E_* */
	struct lg_error err;
	struct device d; /* last, for its end */
};

/*
 * The kernel finds room for a long file page by page otherwise, which costs a third of a write(). Never more
 * than is written already, nor what others on this disk may soon need; what is left goes back at the end.
 */
static void reserve(struct device *d)
{
	enum { FROM = 4 << 20, AT_ONCE = 128 << 20, OTHERS = 8 };
	uint64_t more = d->written < AT_ONCE ? d->written : AT_ONCE;
	struct statvfs st;

	if (d->written < FROM || d->written < d->reserved)
		return;
	if (fstatvfs(d->fd, &st) || st.f_bavail * (uint64_t)st.f_frsize < more * OTHERS ||
	    fallocate(d->fd, FALLOC_FL_KEEP_SIZE, (off_t)d->written, (off_t)more))
		d->reserved = UINT64_MAX;
	else
		d->reserved = d->written + more;
}

static void give_back(struct device *d)
{
	if (d->reserved && d->reserved != UINT64_MAX && !d->failed && ftruncate(d->fd, (off_t)d->written))
		d->failed = lg_fail_errno(&d->err, errno, "cannot write %s", d->path);
}

static void write_all(struct device *d, const unsigned char *p, size_t n)
{
	reserve(d);
	d->written += n;
	while (n && !d->failed) {
		ssize_t w = write(d->fd, p, n);

		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0) {
			d->failed = lg_fail_errno(&d->err, w ? errno : ENOSPC, "cannot write %s",
						  d->path ? d->path : "standard output");
			return;
		}
		p += w;
		n -= (size_t)w;
	}
}

static void write_few(struct device *d)
{
	write_all(d, d->few, d->n_few);
	d->n_few = 0;
}

static void write_some(struct device *d, const unsigned char *p, size_t n)
{
	if (n > sizeof d->few - d->n_few)
		write_few(d);
	if (n > sizeof d->few) {
		write_all(d, p, n);
		return;
	}
	memcpy(d->few + d->n_few, p, n);
	d->n_few += n;
}

static void deflate_all(struct device *d, const unsigned char *p, size_t n, int flush)
{
	unsigned char chunk[65536];

	d->z.next_in = (z_const Bytef *)(uintptr_t)p;
	d->z.avail_in = (uInt)n;
	do {
		d->z.next_out = chunk;
		d->z.avail_out = sizeof chunk;
		deflate(&d->z, flush);
		write_all(d, chunk, sizeof chunk - d->z.avail_out);
	} while (!d->failed && d->z.avail_out == 0);
}

static void take(void *self, const unsigned char *p, size_t n)
{
	struct device *d = self;

	if (d->failed || !n)
		return;
	if (!p) {
		d->failed = lg_fail(&d->err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
		return;
	}
	if (d->gz)
		deflate_all(d, p, n, Z_NO_FLUSH);
	else
		write_some(d, p, n);
}

static void look(struct lg_out *o)
{
	if (o->failed || !o->d.failed)
		return;
	o->err = o->d.err;
	o->failed = o->d.failed;
}

static void start_thread(struct lg_out *o)
{
	o->tried = 1;
	o->writer = lg_writer_thread_new(BUF_BYTES, take, &o->d);
}

static void flush_buf(struct lg_out *o)
{
	if (o->fd < 0 || o->failed)
		return;
	if (!o->tried && o->total >= THREAD_FROM)
		start_thread(o);
	if (o->writer)
		o->buf = lg_writer_thread_give(o->writer, o->buf, o->n);
	else
		take(&o->d, o->buf, o->n);
	look(o);
	o->n = 0;
}

void lg_out_later(struct lg_out *o, void (*make)(void *arg, struct lg_pen *pen), void *arg)
{
	struct lg_pen pen = { 0 };

	if (o->failed)
		return;
	if (!o->tried && o->fd >= 0)
		start_thread(o);
	if (o->writer) {
		if (o->n)
			flush_buf(o);
		lg_writer_thread_later(o->writer, make, arg);
		look(o);
		return;
	}
	make(arg, &pen);
	if (pen.failed)
		o->failed = lg_fail(&o->err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	else if (pen.n) /* of nothing there is no buffer */
		lg_out_write(o, pen.p, pen.n);
	lg_free(pen.p);
}

void lg_out_settle(struct lg_out *o)
{
	if (!o->writer)
		return;
	o->total += lg_writer_thread_settle(o->writer);
	look(o);
}

static struct lg_out *out_new(struct lg_error *err)
{
	struct lg_out *o = lg_realloc(NULL, 1, sizeof *o);

	if (o) {
		memset(o, 0, offsetof(struct lg_out, d.few));
		o->fd = -1;
		o->cap = BUF_BYTES;
		o->buf = lg_realloc(NULL, 1, o->cap);
	}
	if (!o || !o->buf) {
		lg_free(o);
		(void)lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
		return NULL;
	}
	return o;
}

static void out_free(struct lg_out *o)
{
	lg_writer_thread_free(o->writer);
	if (o->d.gz)
		deflateEnd(&o->d.z);
	lg_place_free(o->place);
	lg_free(o->path);
	lg_free(o->buf);
	lg_free(o);
}

int lg_out_open(struct lg_out **ret, const char *path, enum lg_out_codec codec,
		struct lg_error *err)
{
	struct lg_out *o = out_new(err);
	int rc;

	if (!o)
		return LG_E_NOMEM;
	rc = lg_place_open(&o->place, path, err);
	if (!rc && strcmp(path, "-") && !(o->path = lg_strdup(path)))
		rc = lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	if (rc) {
		out_free(o);
		return rc;
	}
	o->fd = lg_place_fd(o->place);
	o->d.fd = o->fd;
	o->d.path = o->path;
	/* Of what is not a new file the offset is not known. */
	o->d.reserved = lg_place_is_file(o->place) ? 0 : UINT64_MAX;
	if (codec == LG_OUT_GZIP) {
		/* Level 1: traces are re-read by viewers once; time matters more than size. */
		if (deflateInit2(&o->d.z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
			lg_out_abort(o);
			return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "cannot start gzip");
		}
		o->d.gz = 1;
	}
	*ret = o;
	return 0;
}

int lg_out_memory(struct lg_out **ret, struct lg_error *err)
{
	struct lg_out *o = out_new(err);

	if (!o)
		return LG_E_NOMEM;
	*ret = o;
	return 0;
}

void lg_out_write(struct lg_out *o, const void *p, size_t n)
{
	const unsigned char *s = p;

	if (o->failed)
		return;
	o->total += n;
	if (n < o->cap - o->n) {
		memcpy(o->buf + o->n, s, n);
		o->n += n;
		return;
	}
	if (o->fd < 0) {
		if (lg_grow(&o->buf, &o->cap, o->n + n + 1, 1)) {
			o->failed = lg_fail(&o->err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
			return;
		}
		memcpy(o->buf + o->n, s, n);
		o->n += n;
		return;
	}
	while (n) {
		size_t room = o->cap - o->n, take = n < room ? n : room;

		memcpy(o->buf + o->n, s, take);
		o->n += take;
		s += take;
		n -= take;
		if (o->n == o->cap)
			flush_buf(o);
		if (o->failed)
			return;
	}
}

char *lg_out_reserve(struct lg_out *o, size_t n)
{
	if (o->failed || n > BUF_BYTES)
		return NULL;
	if (o->cap - o->n <= n) {
		if (o->fd >= 0) {
			flush_buf(o);
		} else if (lg_grow(&o->buf, &o->cap, o->n + n + 1, 1)) {
			o->failed = lg_fail(&o->err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
		}
		if (o->failed)
			return NULL;
	}
	return (char *)o->buf + o->n;
}

void lg_out_commit(struct lg_out *o, const char *end)
{
	size_t n = (size_t)((const unsigned char *)end - (o->buf + o->n));

	o->n += n;
	o->total += n;
}

void lg_out_puts(struct lg_out *o, const char *s)
{
	lg_out_write(o, s, strlen(s));
}

void lg_out_printf(struct lg_out *o, const char *fmt, ...)
{
	char stack[512];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(stack, sizeof stack, fmt, ap);
	va_end(ap);
	if (n < 0)
		return;
	if ((size_t)n < sizeof stack) {
		lg_out_write(o, stack, (size_t)n);
	} else {
		char *big = lg_calloc((size_t)n + 1, 1);

		if (!big) {
			o->failed = lg_fail(&o->err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
			return;
		}
		va_start(ap, fmt);
		vsnprintf(big, (size_t)n + 1, fmt, ap);
		va_end(ap);
		lg_out_write(o, big, (size_t)n);
		lg_free(big);
	}
}

char *lg_put_u64(char *at, uint64_t v)
{
	static const char pairs[] = "00010203040506070809101112131415161718192021222324252627282930"
				    "31323334353637383940414243444546474849505152535455565758596061"
				    "62636465666768697071727374757677787980818283848586878889909192"
				    "93949596979899";
	char b[24], *p = b + sizeof b;

	while (v >= 100) {
		p -= 2;
		memcpy(p, pairs + 2 * (v % 100), 2);
		v /= 100;
	}
	if (v >= 10) {
		p -= 2;
		memcpy(p, pairs + 2 * v, 2);
	} else {
		*--p = (char)('0' + v);
	}
	memcpy(at, p, (size_t)(b + sizeof b - p));
	return at + (b + sizeof b - p);
}

void lg_out_i64(struct lg_out *o, int64_t v)
{
	char b[24], *end;

	b[0] = '-';
	end = lg_put_u64(b + 1, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
	lg_out_write(o, v < 0 ? b : b + 1, (size_t)(end - (v < 0 ? b : b + 1)));
}

/* Length of the well-formed UTF-8 sequence at s (RFC 3629), 0 when there is none. */
static size_t utf8_len(const unsigned char *s, size_t n)
{
	unsigned c = s[0];

	if (c < 0x80)
		return 1;
	if (c >= 0xc2 && c <= 0xdf)
		return n >= 2 && (s[1] & 0xc0) == 0x80 ? 2 : 0;
	if (c >= 0xe0 && c <= 0xef) {
		if (n < 3 || (s[1] & 0xc0) != 0x80 || (s[2] & 0xc0) != 0x80)
			return 0;
		if ((c == 0xe0 && s[1] < 0xa0) || (c == 0xed && s[1] > 0x9f))
			return 0;
		return 3;
	}
	if (c >= 0xf0 && c <= 0xf4) {
		if (n < 4 || (s[1] & 0xc0) != 0x80 || (s[2] & 0xc0) != 0x80 ||
		    (s[3] & 0xc0) != 0x80)
			return 0;
		if ((c == 0xf0 && s[1] < 0x90) || (c == 0xf4 && s[1] > 0x8f))
			return 0;
		return 4;
	}
	return 0;
}

/* Does one of eight bytes need a look: below 0x20, '"', '\\', 0x7f or above? ("Determine if a
 * word has a byte less than n", Bit Twiddling Hacks; x ^ c has a zero byte where x has c.) A byte
 * may be taken for suspicious that is not, never the other way round. */
static int suspicious(const unsigned char *s)
{
	const uint64_t ones = 0x0101010101010101u, high = ones * 0x80;
	uint64_t x, quote, slash, del;

	memcpy(&x, s, sizeof x);
	quote = x ^ ones * '"';
	slash = x ^ ones * '\\';
	del = x ^ ones * 0x7f;
	return (((x - ones * 0x20) | (quote - ones) | (slash - ones) | (del - ones) | x) & high) != 0;
}

/* What needs no look, eight bytes at a time, straight into the buffer: nearly every string. */
static size_t plain_prefix(struct lg_out *o, const unsigned char *s, size_t n)
{
	unsigned char *to = o->buf + o->n;
	size_t i = 0;

	if (o->failed || o->cap - o->n <= n)
		return 0;
	for (; n - i >= 8 && !suspicious(s + i); i += 8)
		memcpy(to + i, s + i, 8);
	o->n += i;
	o->total += i;
	return i;
}

void lg_out_json_string(struct lg_out *o, const char *str, size_t n)
{
	const unsigned char *s = (const unsigned char *)str;
	size_t from, i;

	lg_out_write(o, "\"", 1);
	from = i = plain_prefix(o, s, n);
	while (i < n) {
		unsigned char c;
		size_t len;

		while (n - i >= 8 && !suspicious(s + i))
			i += 8;
		if (i == n)
			break;
		c = s[i];
		if (c >= 0x20 && c < 0x80 && c != '"' && c != '\\' && c != 0x7f) {
			i++;
			continue;
		}
		len = c >= 0x80 ? utf8_len(s + i, n - i) : 0;
		if (len) {
			i += len;
			continue;
		}
		lg_out_write(o, s + from, i - from);
		if (c == '"' || c == '\\')
			lg_out_printf(o, "\\%c", c);
		else if (c < 0x80)
			lg_out_printf(o, "\\u%04x", c);
		else
			lg_out_puts(o, "\\ufffd");
		from = ++i;
	}
	lg_out_write(o, s + from, n - from);
	lg_out_write(o, "\"", 1);
}

uint64_t lg_out_bytes(const struct lg_out *o)
{
	return o->total;
}

int lg_out_failed(const struct lg_out *o)
{
	return o->failed;
}

const char *lg_out_view(const struct lg_out *o)
{
	return (const char *)o->buf;
}

void lg_out_clear(struct lg_out *o)
{
	if (o->fd < 0)
		o->n = o->total = 0;
}

char *lg_out_take(struct lg_out *o, size_t *ret_n)
{
	char *p;

	if (o->failed || o->fd >= 0 || lg_grow(&o->buf, &o->cap, o->n + 1, 1))
		return NULL;
	p = (char *)o->buf;
	p[o->n] = 0;
	*ret_n = o->n;
	o->buf = NULL;
	o->cap = o->n = 0;
	return p;
}

int lg_out_close(struct lg_out *o, struct lg_error *err)
{
	int rc;

	flush_buf(o);
	if (o->writer)
		lg_writer_thread_wait(o->writer);
	if (o->d.gz && !o->failed && !o->d.failed)
		deflate_all(&o->d, NULL, 0, Z_FINISH);
	write_few(&o->d);
	give_back(&o->d);
	look(o);
	if (o->place) {
		struct lg_error late;

		rc = lg_place_close(o->place, &late);
		if (!rc && !o->failed)
			rc = lg_place_keep(o->place, &late);
		if (rc && !o->failed) {
			o->err = late;
			o->failed = rc;
		}
	}
	rc = o->failed;
	if (rc && err)
		*err = o->err;
	out_free(o);
	return rc;
}

void lg_out_abort(struct lg_out *o)
{
	if (!o)
		return;
	if (o->writer)
		lg_writer_thread_wait(o->writer);
	out_free(o);
}
