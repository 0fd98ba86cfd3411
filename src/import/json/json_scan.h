/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_scan.h - find the ends of JSON values in memory without building anything.
 *
 * Text is looked at 64 bytes a time as bit masks (SSE2 where the compiler has it): quotes give a
 * mask of what is inside strings, what is left of the braces says where an object ends. All of it may
 * read up to LG_JSON_PAD bytes beyond `end`: the buffer must have them.
 */
#ifndef LG_IMPORT_JSON_SCAN_H
#define LG_IMPORT_JSON_SCAN_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { LG_JSON_PAD = 64 };

/* A value where it lies in the text: a string without its quotes, anything else as written. */
struct lg_slice {
	const char *p; /* NULL = not there */
	uint32_t n;
	uint8_t kind;  /* first byte: '"' string, '{' '[' containers, else a number or literal */
	uint8_t esc;   /* string: has backslashes */
};

static inline bool lg_json_space(char c)
{
	return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static inline const char *lg_json_skip(const char *p, const char *end)
{
	while (p < end && lg_json_space(*p))
		p++;
	return p;
}

/* First quote or backslash in [p, end); end when there is none. */
static inline const char *lg_json_quote(const char *p, const char *end)
{
#ifdef __SSE2__
	const __m128i quote = _mm_set1_epi8('"'), back = _mm_set1_epi8('\\');

	for (; p < end; p += 16) {
		__m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
		unsigned m = (unsigned)_mm_movemask_epi8(
			_mm_or_si128(_mm_cmpeq_epi8(v, quote), _mm_cmpeq_epi8(v, back)));

		if (m) {
			p += __builtin_ctz(m);
			return p < end ? p : end;
		}
	}
	return end;
#else
	while (p < end && *p != '"' && *p != '\\')
		p++;
	return p;
#endif
}

/* p is behind an opening quote: the closing one, or NULL. *ret_esc is set when it has escapes. */
static inline const char *lg_json_string_end(const char *p, const char *end, uint8_t *ret_esc)
{
	for (;;) {
		p = lg_json_quote(p, end);
		if (p >= end)
			return NULL;
		if (*p == '"')
			return p;
		*ret_esc = 1;
		if (end - p < 2)
			return NULL;
		p += 2;
	}
}

enum lg_json_found {
	LG_JSON_OK,
	LG_JSON_END,    /* the text ends before the value does */
	LG_JSON_ODD     /* looks wrong: let lg_json_check() say */
};

/* Bytes of numbers and literals: old profilers wrote nan and inf, hand-made traces write +1. */
extern const bool lg_json_atom_byte[256];

/* A number or literal: the byte behind it, NULL when that cannot follow one. Needs the padding. */
static inline const char *lg_json_atom(const char *p, const char *end)
{
	const char *q = p;

#ifdef __SSE2__
	/* Nearly all are digits and a point. */
	for (; q < end; q += 16) {
		__m128i v = _mm_loadu_si128((const __m128i *)(const void *)q);
		__m128i other = _mm_cmpgt_epi8(_mm_add_epi8(v, _mm_set1_epi8((char)(0x80 - '0'))),
					       _mm_set1_epi8((char)(0x80 + 9)));
		__m128i point = _mm_cmpeq_epi8(v, _mm_set1_epi8('.'));
		unsigned m = (unsigned)_mm_movemask_epi8(_mm_andnot_si128(point, other));

		if (m) {
			q += __builtin_ctz(m);
			break;
		}
	}
	q = q < end ? q : end;
#endif
	while (q < end && lg_json_atom_byte[(unsigned char)*q])
		q++;
	return q > p && (q == end || *q == ',' || *q == '}' || *q == ']' || lg_json_space(*q)) ? q
												: NULL;
}

/*
 * p is at '{': *ret becomes the byte behind the matching '}'. ODD when an inner '{' does not follow
 * a colon: an object in an array, or the next event where this one lost its closing brace.
 */
enum lg_json_found lg_json_object(const char *p, const char *end, const char **ret);

/*
 * Check one value by the letter (control characters in strings and any escape pass: old profilers
 * wrote them). OK: *ret is behind it. END: the text ends first. ODD: *ret is where it is wrong.
 */
enum lg_json_found lg_json_check(const char *p, const char *end, const char **ret);

/*
 * The value at p (not a space): fills s, returns the byte behind it, or NULL when it does not end
 * before `end`.
 */
const char *lg_json_value(const char *p, const char *end, struct lg_slice *s);

/* Members of an object: start with p behind '{'. 1 = key and value are set, 0 = no more or broken. */
int lg_json_member(const char **p, const char *end, struct lg_slice *key, struct lg_slice *value);
/* Elements of an array: p behind '['. */
int lg_json_element(const char **p, const char *end, struct lg_slice *value);

/*
 * A decimal number times 10^scale as an integer, exactly; further digits are cut. Also from inside a
 * string ("ts": "123"). false: not a number, or beyond int64.
 */
bool lg_json_fixed(const struct lg_slice *s, int scale, int64_t *ret);
/* The same, for a slice of a window (LG_JSON_PAD bytes may be read behind it). */
static inline bool lg_json_decimal(const struct lg_slice *s, int scale, int64_t *ret);
/* For values that are shown and not added up. */
bool lg_json_real(const struct lg_slice *s, double *ret);

/* Undo the escapes of s into buf (at least s->n bytes; never longer). Returns the length. Lone
 * surrogates become U+FFFD, control characters a space. */
size_t lg_json_decode(const struct lg_slice *s, char *buf);

/* Value of the n <= 8 digits that v begins with: moved to the end, zeros in front; then by halves (Lemire,
 * "Quickly parsing eight digits", 2018). */
static inline uint64_t lg_json_digits(uint64_t v, int n)
{
	v = n ? v << (64 - 8 * n) : 0;
	v = (v & 0x0f0f0f0f0f0f0f0fu) * 2561 >> 8;
	v = (v & 0x00ff00ff00ff00ffu) * 6553601 >> 16;
	return (v & 0x0000ffff0000ffffu) * 42949672960001u >> 32;
}

/* How many of the 8 bytes of v are digits before the first that is none. */
static inline int lg_json_n_digits(uint64_t v)
{
	uint64_t other = ((v & 0xf0f0f0f0f0f0f0f0u) ^ 0x3030303030303030u) |
			 (((v + 0x0606060606060606u) & 0xf0f0f0f0f0f0f0f0u) ^ 0x3030303030303030u);

	return other ? __builtin_ctzll(other) / 8 : 8;
}

static inline bool lg_json_decimal(const struct lg_slice *s, int scale, int64_t *ret)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	enum { SCALE_MAX = 3 }; /* 16 + 3 digits fit into an uint64_t */
	static const uint32_t tens[9] = { 1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000 };
	const char *p = s->p, *q = p;
	uint64_t v, whole = 0;
	int n;

	/* Up to 16 digits, a point, up to 8 more: what is odd in any way is read by the letter. */
	if (p && scale <= SCALE_MAX) {
		memcpy(&v, q, sizeof v);
		n = lg_json_n_digits(v);
		whole = lg_json_digits(v, n);
		q += n;
		if (n == 8) {
			memcpy(&v, q, sizeof v);
			n = lg_json_n_digits(v);
			whole = whole * tens[n] + lg_json_digits(v, n);
			q += n;
		}
		if (q > p) {
			n = 0;
			if (*q == '.') {
				int all;

				memcpy(&v, ++q, sizeof v);
				all = lg_json_n_digits(v);
				n = all < scale ? all : scale;
				whole = whole * tens[n] + lg_json_digits(v, n);
				q += all;
			}
			whole *= tens[scale - n];
			if (q == p + s->n && whole <= INT64_MAX) {
				*ret = (int64_t)whole;
				return true;
			}
		}
	}
#endif
	return lg_json_fixed(s, scale, ret);
}

/* A whole number of up to 15 digits, which a double holds exactly (of a window, as above). */
static inline bool lg_json_whole(const struct lg_slice *s, double *ret)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	uint32_t sign = s->n && *s->p == '-', n = s->n - sign;
	uint64_t v, w;

	if (n && n <= 15 && s->kind != '"') {
		uint32_t head = n < 8 ? n : 8;

		memcpy(&v, s->p + sign, sizeof v);
		memcpy(&w, s->p + sign + 8, sizeof w);
		if ((uint32_t)lg_json_n_digits(v) >= head && (uint32_t)lg_json_n_digits(w) >= n - head) {
			v = lg_json_digits(v, (int)head);
			for (uint32_t i = head; i < n; i++)
				v *= 10;
			v += lg_json_digits(w, (int)(n - head));
			*ret = sign ? -(double)v : (double)v;
			return true;
		}
	}
#endif
	return lg_json_real(s, ret);
}

static inline bool lg_slice_is(const struct lg_slice *s, const char *text, size_t n)
{
	return s->n == n && !memcmp(s->p, text, n);
}
#define LG_SLICE_IS(s, literal) lg_slice_is(s, literal, sizeof(literal) - 1)
#define LG_SLICE_STARTS(s, literal)                                                                \
	((s)->n >= sizeof(literal) - 1 && !memcmp((s)->p, literal, sizeof(literal) - 1))

#endif /* LG_IMPORT_JSON_SCAN_H */
