/* SPDX-License-Identifier: Apache-2.0 */
/* gunzip.c - two libraries behind one interface; members and padding are handled here. */
#include "import/source/gunzip.h"

#include <string.h>
#include <zlib.h>
#ifdef LG_HAVE_ISAL
#include <dlfcn.h>
#include <isa-l/igzip_lib.h>
#include <pthread.h>
#endif

#include "base/alloc.h"

enum {
	IN_BYTES = 256 << 10,
	AT_ONCE = 1 << 30,
	/* ISA-L takes up to eight bytes ahead and hands them back at a member's end, also those of the chunk
	 * before: the last bytes of each chunk stay in front of the next. */
	BEFORE = 16
};

struct lg_gunzip {
	lg_gunzip_read *read;
	void *ctx;
	uint8_t *buf;          /* BEFORE + IN_BYTES */
	const uint8_t *in;     /* not used yet */
	size_t n_in;
	bool eof, over;        /* no more input; no more output */
	bool inside;           /* a member; false before the first and behind each */
	bool ended;            /* a member has */
	bool cut;              /* the input ended inside one */
	const char *fault;
	int64_t stopped;
	z_stream z;
	bool z_up;
#ifdef LG_HAVE_ISAL
	struct inflate_state *isal; /* NULL: all members by zlib */
	bool by_isal;               /* this member */
	bool begins;                /* it has given nothing yet */
#endif
};

#ifdef LG_HAVE_ISAL
/* The functions of libisal.so.2; NULL where it is not there. Never unloaded. */
static struct {
	void (*init)(struct inflate_state *s);
	void (*reset)(struct inflate_state *s);
	int (*inflate)(struct inflate_state *s);
} isal;
static pthread_once_t looked = PTHREAD_ONCE_INIT;

static void look_for_isal(void)
{
	void *lib = dlopen("libisal.so.2", RTLD_NOW | RTLD_LOCAL);

	if (!lib)
		return;
	/* POSIX's way to a function pointer: dlsym() returns an object's. */
	*(void **)&isal.init = dlsym(lib, "isal_inflate_init");
	*(void **)&isal.reset = dlsym(lib, "isal_inflate_reset");
	*(void **)&isal.inflate = dlsym(lib, "isal_inflate");
}
#endif

static int nomem(struct lg_gunzip *z, struct lg_error *err)
{
	lg_gunzip_free(z);
	return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
}

static int gunzip_new(struct lg_gunzip **ret, lg_gunzip_read *read, void *ctx, bool by_zlib,
		      struct lg_error *err)
{
	struct lg_gunzip *z = lg_calloc(1, sizeof *z);

	if (!z)
		return nomem(z, err);
	z->read = read;
	z->ctx = ctx;
	z->fault = "";
	z->buf = lg_realloc(NULL, BEFORE + IN_BYTES, 1);
	if (!z->buf)
		return nomem(z, err);
	z->in = z->buf + BEFORE;
#ifdef LG_HAVE_ISAL
	pthread_once(&looked, look_for_isal);
	if (!by_zlib && isal.init && isal.reset && isal.inflate) {
		z->isal = lg_calloc(1, sizeof *z->isal);
		if (!z->isal)
			return nomem(z, err);
		isal.init(z->isal);
	}
#endif
	(void)by_zlib;
	if (inflateInit2(&z->z, 15 + 16) != Z_OK)
		return nomem(z, err);
	z->z_up = true;
	*ret = z;
	return 0;
}

int lg_gunzip_new(struct lg_gunzip **ret, lg_gunzip_read *read, void *ctx, struct lg_error *err)
{
	return gunzip_new(ret, read, ctx, false, err);
}

int lg_gunzip_new_zlib(struct lg_gunzip **ret, lg_gunzip_read *read, void *ctx, struct lg_error *err)
{
	return gunzip_new(ret, read, ctx, true, err);
}

void lg_gunzip_free(struct lg_gunzip *z)
{
	if (!z)
		return;
#ifdef LG_HAVE_ISAL
	lg_free(z->isal);
#endif
	if (z->z_up)
		inflateEnd(&z->z);
	lg_free(z->buf);
	lg_free(z);
}

const char *lg_gunzip_fault(const struct lg_gunzip *z)
{
	return z->fault;
}

bool lg_gunzip_short(const struct lg_gunzip *z)
{
	return z->cut;
}

int64_t lg_gunzip_stopped(const struct lg_gunzip *z)
{
	return z->stopped;
}

static void fault(struct lg_gunzip *z, const char *what)
{
	z->fault = what;
	z->over = true;
}

static size_t by_zlib(struct lg_gunzip *z, uint8_t *out, size_t size)
{
	size_t n_in = z->n_in;
	int rc;

	z->z.next_in = (Bytef *)(uintptr_t)z->in;
	z->z.avail_in = (uInt)n_in;
	z->z.next_out = out;
	z->z.avail_out = (uInt)size;
	rc = inflate(&z->z, Z_NO_FLUSH);
	z->in += n_in - z->z.avail_in;
	z->n_in = z->z.avail_in;
	if (rc == Z_STREAM_END)
		inflateReset(&z->z);
	else if (rc != Z_OK && rc != Z_BUF_ERROR)
		fault(z, "the gzip data is damaged");
	z->inside = rc != Z_STREAM_END;
	return size - z->z.avail_out;
}

#ifdef LG_HAVE_ISAL
/*
 * A member is ISA-L's if its first piece gives text; else zlib begins it anew. Because ISA-L 2.30
 *  - forgets a header's flags where the piece ends inside a header (igzip_inflate.c, isal_inflate(): a
 *    structure on the stack), and then reads a comment that there is not;
 *  - takes a block whose codes are no complete set for an end of the text. A text's checksum would
 *    tell, but that of an empty one is 0, as in many a damaged trailer.
 */
static size_t by_isal(struct lg_gunzip *z, uint8_t *out, size_t size)
{
	struct inflate_state *s = z->isal;
	int rc;

	s->next_in = (uint8_t *)(uintptr_t)z->in;
	s->avail_in = (uint32_t)z->n_in;
	s->next_out = out;
	s->avail_out = (uint32_t)size;
	rc = isal.inflate(s);
	if (z->begins && s->avail_out == size) {
		z->by_isal = false;
		return by_zlib(z, out, size);
	}
	z->begins = false;
	z->in = s->next_in; /* may be before where it was */
	z->n_in = s->avail_in;
	if (rc < 0)
		fault(z, "the gzip data is damaged");
	z->inside = s->block_state != ISAL_BLOCK_FINISH;
	return size - s->avail_out;
}

/*
 * At a member's begin. ISA-L 2.30 takes a header with a checksum of its own (FHCRC) for damaged when it
 * comes in pieces, and reads one with reserved flags, which RFC 1952 (2.3.1.2) forbids: such a member, or
 * one whose flags are not there yet, is zlib's.
 */
static void choose(struct lg_gunzip *z)
{
	z->by_isal = z->n_in >= 4 && !(z->in[3] & 0xe2);
	if (!z->by_isal)
		return;
	isal.reset(z->isal);
	z->isal->crc_flag = ISAL_GZIP;
	z->begins = true;
}
#endif

/* At least one byte of input while there are any. */
static void refill(struct lg_gunzip *z)
{
	int64_t k;

	if (z->n_in || z->eof)
		return;
	memmove(z->buf, z->in - BEFORE, BEFORE);
	k = z->read(z->ctx, z->buf + BEFORE, IN_BYTES);
	if (k < 0) {
		z->stopped = k;
		z->over = true;
	}
	z->eof = k <= 0;
	z->in = z->buf + BEFORE;
	z->n_in = k > 0 ? (size_t)k : 0;
}

size_t lg_gunzip_get(struct lg_gunzip *z, void *out, size_t size)
{
	size_t n = 0;

	while (n < size && !z->over) {
		size_t room = size - n < AT_ONCE ? size - n : AT_ONCE, k, had;

		refill(z);
		if (z->over)
			break;
		/* Another member behind the last one? Padding (tapes, dd) is not. */
		if (z->ended && !z->inside && (!z->n_in || z->in[0] != 0x1f)) {
			z->over = true;
			break;
		}
		had = z->n_in;
#ifdef LG_HAVE_ISAL
		if (!z->inside && z->isal)
			choose(z);
		if (z->by_isal)
			k = by_isal(z, (uint8_t *)out + n, room);
		else
#endif
			k = by_zlib(z, (uint8_t *)out + n, room);
		n += k;
		z->ended |= !z->inside;
		if (!k && had == z->n_in && z->inside && !z->over) {
			z->cut = !had;
			fault(z, had ? "the gzip data is damaged" : "the compressed data ends too early");
		}
	}
	return n;
}
