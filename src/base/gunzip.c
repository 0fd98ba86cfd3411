/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gunzip.c - see gunzip.h; the format is RFC 1951 (deflate) in RFC 1952 (gzip).
 *
 * I1  `bits` holds at least n_bits bits of the input, the next one lowest. Bits above them are either 0
 *     or those of the bytes at p: loading 8 bytes over them again changes nothing, so a load needs no
 *     loop and no branch.
 * I2  8 bytes from p on may always be loaded: behind the input lie PAD bytes. They are zeros, and looked
 *     at only when the input is over; what was decoded from them is thrown away (overrun()).
 * I3  The last HISTORY bytes of output stay in front of what is made next, so a match never wraps. A
 *     copy may write up to SLOP bytes beyond its end.
 * I4  A table's entry tells everything about a code: how many bits it and its extra bits take, and its
 *     value. Codes longer than the table's index continue in a part of their own, wide enough for the
 *     longest code there is: no set of lengths can overfill the table.
 */
#include "base/gunzip.h"

#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc32.h"

enum {
	IN_BYTES = 128 << 10, PAD = 64, HISTORY = 32 << 10, ROOM = 128 << 10, SLOP = 320,
	CODE_MAX = 15, LITERALS = 288, DISTANCES = 32, LENGTHS = 19,
	LITERAL_BITS = 11, DISTANCE_BITS = 9, LENGTH_BITS = 7,
	LITERAL_TABLE = (1 << LITERAL_BITS) + (LITERALS << (CODE_MAX - LITERAL_BITS)),
	DISTANCE_TABLE = (1 << DISTANCE_BITS) + (DISTANCES << (CODE_MAX - DISTANCE_BITS)),
};

/*
 * Entries: bits 0-7 all bits that the code takes, 8-11 those before its extra bits, 16-30 its value. A
 * literal has bit 31. ODD marks what the loop does not expect: the end of the block, a longer code
 * (MORE: bits 0-7 are the width of its part, the value is where that begins), or no code at all.
 */
#define LITERAL (UINT32_C(1) << 31)
#define ODD     (UINT32_C(1) << 15)
#define MORE    (UINT32_C(1) << 14)
#define END     (UINT32_C(1) << 13)

enum state { MEMBER, BLOCK, STORED, CODES, TRAILER, OVER };

struct lg_gunzip {
	lg_gunzip_read *read;
	void *ctx;
	int64_t stopped;
	const char *fault;
	enum state state;
	bool eof, last, again; /* no more input; last block; not the first member */
	const uint8_t *p, *end;
	uint64_t bits;
	unsigned n_bits;
	uint32_t stored;       /* bytes left of a stored block */
	uint32_t crc, size;    /* of the member, up to `summed` */
	size_t begin, from, summed, to; /* in out: the member's; not handed out; in the CRC; made */
	uint32_t literal[LITERAL_TABLE], distance[DISTANCE_TABLE];
	uint8_t in[IN_BYTES + PAD];
	uint8_t out[HISTORY + ROOM + SLOP];
};

int lg_gunzip_new(struct lg_gunzip **ret, lg_gunzip_read *read, void *ctx, struct lg_error *err)
{
	struct lg_gunzip *z = lg_calloc(1, sizeof *z);

	if (!z)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	z->read = read;
	z->ctx = ctx;
	z->fault = "";
	z->p = z->end = z->in;
	*ret = z;
	return 0;
}

void lg_gunzip_free(struct lg_gunzip *z)
{
	lg_free(z);
}

const char *lg_gunzip_fault(const struct lg_gunzip *z)
{
	return z->fault;
}

int64_t lg_gunzip_stopped(const struct lg_gunzip *z)
{
	return z->stopped;
}

static void damaged(struct lg_gunzip *z)
{
	z->fault = "the gzip data is damaged";
	z->state = OVER;
}

static void cut_off(struct lg_gunzip *z)
{
	z->fault = "the compressed data ends too early";
	z->state = OVER;
}

/* Behind every code there are at least the trailer's 8 bytes: what makes no sense nearer to the end was
 * read from behind it. */
static void senseless(struct lg_gunzip *z)
{
	if (z->eof && z->end - z->p + (z->n_bits >> 3) < 8)
		cut_off(z);
	else
		damaged(z);
}

/* ---- input ---- */

/* Give whole bytes back, so that p is the next one that is not (partly) in bits. */
static void give_back(struct lg_gunzip *z)
{
	z->p -= z->n_bits >> 3;
	z->n_bits &= 7;
	z->bits &= (1u << z->n_bits) - 1;
}

/* Have PAD bytes or more at p, or all that there is. */
static void top_up(struct lg_gunzip *z)
{
	size_t n;

	give_back(z);
	n = (size_t)(z->end - z->p);
	if (n >= PAD || z->eof)
		return;
	memmove(z->in, z->p, n);
	while (n < PAD && !z->eof) {
		int64_t got = z->read(z->ctx, z->in + n, IN_BYTES - n);

		if (got < 0)
			z->stopped = got;
		z->eof = got <= 0;
		n += got > 0 ? (size_t)got : 0;
	}
	z->p = z->in;
	z->end = z->in + n;
	memset(z->in + n, 0, PAD);
}

static inline uint64_t load_64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof v);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	v = __builtin_bswap64(v);
#endif
	return v;
}

/* More was taken than there is. */
static inline bool overrun(const struct lg_gunzip *z)
{
	return z->p - (z->n_bits >> 3) > z->end;
}

/* Have 56 bits or more; behind the end they are 0. */
static void refill(struct lg_gunzip *z)
{
	if (z->end - z->p < 8)
		top_up(z);
	if (overrun(z))
		return;
	z->bits |= load_64(z->p) << z->n_bits;
	z->p += (63 - z->n_bits) >> 3;
	z->n_bits |= 56;
}

/* The next n (up to 32) bits. Once more was taken than there is, 0 for ever: see overrun(). */
static uint32_t take(struct lg_gunzip *z, unsigned n)
{
	uint32_t v;

	if (z->n_bits < n)
		refill(z);
	if (z->n_bits < n)
		return 0;
	v = (uint32_t)(z->bits & ((UINT64_C(1) << n) - 1));
	z->bits >>= n;
	z->n_bits -= n;
	return v;
}

/* A byte; only where the input stands between two. -1 = there is none. */
static int byte(struct lg_gunzip *z)
{
	if (z->p == z->end)
		top_up(z);
	return z->p < z->end ? *z->p++ : -1;
}

/* ---- codes ---- */

static unsigned reverse(unsigned code, unsigned n)
{
	unsigned r = 0;

	for (unsigned i = 0; i < n; i++)
		r |= (code >> i & 1) << (n - 1 - i);
	return r;
}

/* Canonical codes from their lengths (RFC 1951, 3.2.2); value[i] is symbol i's entry without its bits. */
static bool table_of(uint32_t *table, unsigned index_bits, const uint8_t *length, unsigned n,
		     const uint32_t *value)
{
	unsigned count[CODE_MAX + 1] = { 0 }, code[CODE_MAX + 2] = { 0 }, longest = 0;
	unsigned used = 1u << index_bits, mask = used - 1;
	int left = 1;

	for (unsigned i = 0; i < n; i++)
		count[length[i]]++;
	count[0] = 0;
	for (unsigned b = 1; b <= CODE_MAX; b++) {
		left = 2 * left - (int)count[b];
		if (left < 0)
			return false; /* more codes than there can be */
		code[b + 1] = (code[b] + count[b]) << 1;
		if (count[b])
			longest = b;
	}
	if (left > 0 && longest > 1)
		return false; /* only a single code may leave others unused */
	for (unsigned i = 0; i < used; i++)
		table[i] = ODD;
	for (unsigned i = 0; i < n; i++) {
		unsigned b = length[i], wide = longest - index_bits, at, *link;
		uint32_t extra = value[i] & 0xff, entry = value[i] & ~UINT32_C(0xff);

		if (!b)
			continue;
		at = reverse(code[b]++, b);
		if (b <= index_bits) {
			entry |= b << 8 | (b + extra);
			for (; at < 1u << index_bits; at += 1u << b)
				table[at] = entry;
			continue;
		}
		link = &table[at & mask];
		if (!(*link & MORE)) {
			*link = ODD | MORE | wide | used << 16;
			for (unsigned k = 0; k < 1u << wide; k++)
				table[used + k] = ODD;
			used += 1u << wide;
		}
		b -= index_bits;
		entry |= b << 8 | (b + extra);
		for (at >>= index_bits; at < 1u << wide; at += 1u << b)
			table[(*link >> 16) + at] = entry;
	}
	return true;
}

/* RFC 1951, 3.2.5 */
static const uint16_t length_base[] = { 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43,
					51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258 };
static const uint8_t length_extra[] = { 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3,
					3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0 };

static bool literal_table(struct lg_gunzip *z, const uint8_t *length, unsigned n)
{
	uint32_t value[LITERALS];

	for (unsigned i = 0; i < n; i++)
		value[i] = i < 256 ? LITERAL | i << 16
			 : i == 256 ? ODD | END
			 : i < 286 ? (uint32_t)length_base[i - 257] << 16 | length_extra[i - 257] : ODD;
	return table_of(z->literal, LITERAL_BITS, length, n, value);
}

static bool distance_table(struct lg_gunzip *z, const uint8_t *length, unsigned n)
{
	uint32_t value[DISTANCES];

	for (unsigned i = 0; i < n; i++) {
		unsigned extra = i < 4 ? 0 : i / 2 - 1, base = i < 2 ? i + 1 : ((2 | (i & 1)) << extra) + 1;

		value[i] = i < 30 ? base << 16 | extra : ODD;
	}
	return table_of(z->distance, DISTANCE_BITS, length, n, value);
}

static bool fixed_codes(struct lg_gunzip *z)
{
	uint8_t length[LITERALS], five[DISTANCES];

	for (unsigned i = 0; i < LITERALS; i++)
		length[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
	memset(five, 5, sizeof five);
	return literal_table(z, length, LITERALS) && distance_table(z, five, DISTANCES);
}

/* RFC 1951, 3.2.7 */
static bool dynamic_codes(struct lg_gunzip *z)
{
	static const uint8_t order[LENGTHS] = { 16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1,
						15 };
	uint8_t length[LITERALS + DISTANCES] = { 0 };
	uint32_t value[LENGTHS], table[1 << LENGTH_BITS];
	unsigned n_literal = take(z, 5) + 257, n_distance = take(z, 5) + 1, n = take(z, 4) + 4, i;

	for (i = 0; i < n; i++)
		length[order[i]] = (uint8_t)take(z, 3);
	for (i = 0; i < LENGTHS; i++)
		value[i] = i << 16;
	if (n_literal > 286 || n_distance > 30 || !table_of(table, LENGTH_BITS, length, LENGTHS, value))
		return false;
	memset(length, 0, LENGTHS);
	for (i = 0; i < n_literal + n_distance && !overrun(z);) {
		uint32_t e, what;
		unsigned repeat = 1, of = 0;

		if (z->n_bits < LENGTH_BITS)
			refill(z);
		e = table[z->bits & ((1u << LENGTH_BITS) - 1)];
		if (e & ODD)
			return false;
		(void)take(z, e & 0xff);
		what = e >> 16;
		if (what < 16)
			of = what;
		else if (what == 16 && !i)
			return false;
		if (what == 16) {
			of = length[i - 1];
			repeat = 3 + take(z, 2);
		} else if (what > 16) {
			repeat = what == 17 ? 3 + take(z, 3) : 11 + take(z, 7);
		}
		if (repeat > n_literal + n_distance - i)
			return false;
		memset(length + i, (int)of, repeat);
		i += repeat;
	}
	if (overrun(z) || !length[256]) /* cut off, or a block without an end */
		return false;
	return literal_table(z, length, n_literal) && distance_table(z, length + n_literal, n_distance);
}

/* ---- output ---- */

static inline void copy(uint8_t *to, size_t distance, size_t n)
{
	const uint8_t *from = to - distance;
	uint8_t *end = to + n;

	if (distance >= 16) {
		do {
			memcpy(to, from, 16);
			to += 16;
			from += 16;
		} while (to < end);
	} else if (distance >= 8) {
		do {
			memcpy(to, from, 8);
			to += 8;
			from += 8;
		} while (to < end);
	} else if (distance == 1) {
		memset(to, *from, n);
	} else {
		while (to < end)
			*to++ = *from++;
	}
}

/* Decode until the block ends, out is full, or more input is needed. */
static void codes(struct lg_gunzip *z)
{
	const uint32_t *literal = z->literal, *distances = z->distance;
	const uint8_t *p = z->p, *stop = z->eof ? z->end + PAD : z->end - 16;
	uint8_t *to = z->out + z->to, *full = z->out + HISTORY + ROOM, *begin = z->out + z->begin, *was = to;
	uint64_t bits = z->bits;
	unsigned n_bits = z->n_bits;
	enum state state = CODES;
	bool bad = false;

#define REFILL() (bits |= load_64(p) << n_bits, p += (63 - n_bits) >> 3, n_bits |= 56)
#define DROP(n)  (bits >>= (n), n_bits -= (unsigned)(n))
#define VALUE(e) (((e) >> 16 & 0x7fff) + \
		  (size_t)((bits & ((UINT64_C(1) << ((e) & 0x3f)) - 1)) >> ((e) >> 8 & 0xf)))
	while (to < full && p < stop) {
		uint32_t e;
		size_t n, back;

		/* The input is over: was this symbol still in it? */
		if (z->eof && p - (n_bits >> 3) > z->end)
			break;
		was = to;
		REFILL();
		e = literal[bits & ((1u << LITERAL_BITS) - 1)];
		if (e & LITERAL) {
			DROP(e & 0x3f);
			*to++ = (uint8_t)(e >> 16);
			e = literal[bits & ((1u << LITERAL_BITS) - 1)];
			if (e & LITERAL) {
				DROP(e & 0x3f);
				*to++ = (uint8_t)(e >> 16);
				e = literal[bits & ((1u << LITERAL_BITS) - 1)];
				if (e & LITERAL) {
					DROP(e & 0x3f);
					*to++ = (uint8_t)(e >> 16);
					continue;
				}
			}
			REFILL();
		}
		if (e & ODD) {
			if (e & MORE) {
				DROP(LITERAL_BITS);
				e = literal[(e >> 16) + (bits & ((1u << (e & 0x3f)) - 1))];
				if (e & LITERAL) {
					DROP(e & 0x3f);
					*to++ = (uint8_t)(e >> 16);
					continue;
				}
			}
			if (e & ODD) {
				bad = !(e & END);
				DROP(e & 0x3f);
				state = BLOCK;
				break;
			}
		}
		/* A length: 15 + 5 bits, and a distance: 15 + 13. REFILL gave 56. */
		n = VALUE(e);
		DROP(e & 0x3f);
		e = distances[bits & ((1u << DISTANCE_BITS) - 1)];
		if (e & MORE) {
			DROP(DISTANCE_BITS);
			e = distances[(e >> 16) + (bits & ((1u << (e & 0x3f)) - 1))];
		}
		back = VALUE(e);
		if (e & ODD || back > (size_t)(to - begin)) {
			bad = true;
			break;
		}
		DROP(e & 0x3f);
		copy(to, back, n);
		to += n;
	}
#undef REFILL
#undef DROP
#undef VALUE
	z->p = p;
	z->bits = bits;
	z->n_bits = n_bits;
	z->state = state;
	if (z->eof && overrun(z)) {
		z->to = (size_t)(was - z->out); /* made of what is not there */
		cut_off(z);
		return;
	}
	z->to = (size_t)(to - z->out);
	if (bad)
		senseless(z);
}

static void stored(struct lg_gunzip *z)
{
	size_t n = z->stored, room = HISTORY + ROOM - z->to, there;

	give_back(z);
	if (z->p == z->end)
		top_up(z);
	there = (size_t)(z->end - z->p);
	if (!there && n) {
		cut_off(z);
		return;
	}
	n = n < room ? n : room;
	n = n < there ? n : there;
	memcpy(z->out + z->to, z->p, n);
	z->p += n;
	z->to += n;
	z->stored -= (uint32_t)n;
	if (!z->stored)
		z->state = BLOCK;
}

/* ---- the format around it ---- */

/* A byte of a header; -1 = there is none. */
static int head_byte(struct lg_gunzip *z)
{
	int c = byte(z);
	uint8_t b = (uint8_t)c;

	if (c >= 0)
		z->crc = lg_crc32(z->crc, &b, 1);
	return c;
}

static bool skip(struct lg_gunzip *z, int n)
{
	while (n > 0 && head_byte(z) >= 0)
		n--;
	return !n;
}

static bool skip_text(struct lg_gunzip *z)
{
	int c;

	while ((c = head_byte(z)) > 0)
		;
	return c == 0;
}

/* RFC 1952, 2.3. Behind the last member there may be padding (tapes, dd): it ends the text. */
static void member(struct lg_gunzip *z)
{
	enum { METHOD_DEFLATE = 8, HAS_CRC = 2, HAS_EXTRA = 4, HAS_NAME = 8, HAS_COMMENT = 16 };
	int head[10], low, high;
	bool ok = true;

	z->crc = 0;
	for (int i = 0; i < 10; i++) {
		head[i] = head_byte(z);
		if (z->again && i < 2 && head[i] != (i ? 0x8b : 0x1f)) {
			z->state = OVER;
			return;
		}
		if (head[i] < 0) {
			cut_off(z);
			return;
		}
	}
	if (head[0] != 0x1f || head[1] != 0x8b || head[2] != METHOD_DEFLATE || head[3] & 0xe0) {
		damaged(z);
		return;
	}
	if (head[3] & HAS_EXTRA) {
		low = head_byte(z);
		high = head_byte(z);
		ok = low >= 0 && high >= 0 && skip(z, low | high << 8);
	}
	if (ok && head[3] & HAS_NAME)
		ok = skip_text(z);
	if (ok && head[3] & HAS_COMMENT)
		ok = skip_text(z);
	if (ok && head[3] & HAS_CRC) {
		low = byte(z);
		high = byte(z);
		ok = low >= 0 && high >= 0;
		if (ok && (uint32_t)(low | high << 8) != (z->crc & 0xffff)) {
			damaged(z);
			return;
		}
	}
	if (!ok) {
		cut_off(z);
		return;
	}
	z->bits = z->n_bits = 0;
	z->crc = z->size = 0;
	z->last = false;
	z->begin = z->summed = z->to;
	z->state = BLOCK;
}

static void sum(struct lg_gunzip *z)
{
	size_t n = z->to - z->summed;

	z->crc = lg_crc32(z->crc, z->out + z->summed, n);
	z->size += (uint32_t)n;
	z->summed = z->to;
}

static void trailer(struct lg_gunzip *z)
{
	uint32_t crc, size;

	(void)take(z, z->n_bits & 7);
	crc = take(z, 32);
	size = take(z, 32);
	give_back(z);
	sum(z);
	z->again = true;
	if (overrun(z))
		cut_off(z);
	else if (crc != z->crc || size != z->size)
		damaged(z);
	else
		z->state = MEMBER;
}

static void block(struct lg_gunzip *z)
{
	bool ok = true;

	if (z->last) {
		z->state = TRAILER;
		return;
	}
	z->last = take(z, 1);
	switch (take(z, 2)) {
	case 0:
		(void)take(z, z->n_bits & 7);
		z->stored = take(z, 16);
		ok = (take(z, 16) ^ 0xffff) == z->stored;
		z->state = z->stored ? STORED : BLOCK;
		break;
	case 1:
		ok = fixed_codes(z);
		z->state = CODES;
		break;
	case 2:
		ok = dynamic_codes(z);
		z->state = CODES;
		break;
	default:
		ok = false;
	}
	if (overrun(z))
		cut_off(z);
	else if (!ok)
		senseless(z);
}

/* Make more output, if there is any. */
static void make(struct lg_gunzip *z)
{
	if (z->to > HISTORY) {
		size_t gone = z->to - HISTORY;

		memmove(z->out, z->out + gone, HISTORY);
		z->begin -= z->begin < gone ? z->begin : gone;
		z->from = z->summed = z->to = HISTORY;
	}
	while (z->state != OVER && z->to < HISTORY + ROOM) {
		if (z->state == CODES || z->state == BLOCK)
			top_up(z);
		if (z->state == MEMBER)
			member(z);
		else if (z->state == BLOCK)
			block(z);
		else if (z->state == STORED)
			stored(z);
		else if (z->state == CODES)
			codes(z);
		else if (z->state == TRAILER)
			trailer(z);
	}
	sum(z);
}

size_t lg_gunzip_get(struct lg_gunzip *z, void *out, size_t size)
{
	size_t n = 0;

	while (n < size) {
		size_t k = z->to - z->from;

		if (!k && z->state == OVER)
			break;
		if (!k) {
			make(z);
			continue;
		}
		k = k < size - n ? k : size - n;
		memcpy((uint8_t *)out + n, z->out + z->from, k);
		z->from += k;
		n += k;
	}
	return n;
}
