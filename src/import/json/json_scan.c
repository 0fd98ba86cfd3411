/* SPDX-License-Identifier: Apache-2.0 */
/* json_scan.c - ends of values, strict checking, numbers and escapes. */
#include "import/json/json_scan.h"

#include <stdlib.h>

struct masks {
	uint64_t quote, back, open, close;
};

#ifdef __SSE2__
static inline void look(const char *p, char open, char close, struct masks *m)
{
	const __m128i q = _mm_set1_epi8('"'), b = _mm_set1_epi8('\\');
	const __m128i o = _mm_set1_epi8(open), c = _mm_set1_epi8(close);

	*m = (struct masks){ 0 };
	for (int i = 0; i < 4; i++) {
		__m128i v = _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i));
		int at = 16 * i;

		m->quote |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(v, q)) << at;
		m->back |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(v, b)) << at;
		m->open |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(v, o)) << at;
		m->close |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(v, c)) << at;
	}
}
#else
static inline void look(const char *p, char open, char close, struct masks *m)
{
	*m = (struct masks){ 0 };
	for (int i = 0; i < 64; i++) {
		m->quote |= (uint64_t)(p[i] == '"') << i;
		m->back |= (uint64_t)(p[i] == '\\') << i;
		m->open |= (uint64_t)(p[i] == open) << i;
		m->close |= (uint64_t)(p[i] == close) << i;
	}
}
#endif

/* Bytes that a backslash takes the meaning from; carry says that byte 0 is one. */
static inline uint64_t escaped(uint64_t back, bool *carry)
{
	uint64_t out = *carry;

	back &= ~out;
	*carry = false;
	while (back) {
		int i = __builtin_ctzll(back);

		if (i == 63) {
			*carry = true;
			break;
		}
		out |= 2ull << i;
		back &= ~(3ull << i);
	}
	return out;
}

/* Bit i = parity of bits 0..i. */
static inline uint64_t parity(uint64_t x)
{
	x ^= x << 1;
	x ^= x << 2;
	x ^= x << 4;
	x ^= x << 8;
	x ^= x << 16;
	x ^= x << 32;
	return x;
}

enum lg_json_found lg_json_object(const char *p, const char *end, const char **ret)
{
	const char *start = p;
	uint64_t inside = 0; /* all ones when byte 0 is in a string */
	bool carry = false;
	size_t depth = 0;

	for (; p < end; p += 64) {
		struct masks m;
		uint64_t in, both;

		look(p, '{', '}', &m);
		if (m.back || carry)
			m.quote &= ~escaped(m.back, &carry);
		in = parity(m.quote) ^ inside;
		inside = (uint64_t)((int64_t)in >> 63);
		m.open &= ~in;
		both = m.open | (m.close & ~in);
		while (both) {
			int i = __builtin_ctzll(both);
			const char *at = p + i, *before;

			if (at >= end)
				return LG_JSON_END;
			both &= both - 1;
			if (m.open >> i & 1) {
				for (before = at - 1; before > start && lg_json_space(*before);)
					before--;
				if (depth++ && *before != ':')
					return LG_JSON_ODD;
			} else if (!--depth) {
				*ret = at + 1;
				return LG_JSON_OK;
			}
		}
	}
	return LG_JSON_END;
}

const bool lg_json_atom_byte[256] = {
	['0' ... '9'] = true, ['a' ... 'z'] = true, ['A' ... 'Z'] = true,
	['-'] = true,	      ['+'] = true,	    ['.'] = true,
};

enum lg_json_found lg_json_check(const char *p, const char *end, const char **ret)
{
	enum { DEPTH_MAX = 63 };
	uint64_t arrays = 0; /* bit d: the container at depth d is an array */
	int depth = 0;
	bool want_key = false;

	for (;;) {
		uint8_t esc = 0;
		const char *q;

		p = lg_json_skip(p, end);
		if (p >= end)
			return LG_JSON_END;
		*ret = p;
		if (want_key) {
			if (*p != '"')
				return LG_JSON_ODD;
			q = lg_json_string_end(p + 1, end, &esc);
			if (!q)
				return LG_JSON_END;
			p = lg_json_skip(q + 1, end);
			if (p >= end)
				return LG_JSON_END;
			*ret = p;
			if (*p++ != ':')
				return LG_JSON_ODD;
			want_key = false;
			continue;
		}
		if (*p == '{' || *p == '[') {
			bool array = *p == '[';

			if (depth >= DEPTH_MAX)
				return LG_JSON_ODD;
			depth++;
			arrays = (arrays & ~(1ull << depth)) | (uint64_t)array << depth;
			p = lg_json_skip(p + 1, end);
			if (p >= end)
				return LG_JSON_END;
			if (*p != (array ? ']' : '}')) {
				want_key = !array;
				continue;
			}
		} else if (*p == '"') {
			p = lg_json_string_end(p + 1, end, &esc);
			if (!p)
				return LG_JSON_END;
			p++;
		} else {
			q = lg_json_atom(p, end);
			if (!q)
				return LG_JSON_ODD;
			p = q;
		}
		/* Behind a value (or at the end of an empty container). */
		for (;;) {
			if (!depth) {
				*ret = p;
				return LG_JSON_OK;
			}
			p = lg_json_skip(p, end);
			if (p >= end)
				return LG_JSON_END;
			*ret = p;
			if (*p == ',') {
				p++;
				want_key = !(arrays >> depth & 1);
				break;
			}
			if (*p != (arrays >> depth & 1 ? ']' : '}'))
				return LG_JSON_ODD;
			p++;
			depth--;
		}
	}
}

/* The byte behind the array at p; NULL: it does not end, or has a backslash outside a string. */
static const char *array(const char *p, const char *end, uint8_t *ret_esc)
{
	uint64_t inside = 0; /* as in lg_json_object() */
	bool carry = false;
	size_t depth = 0;

	for (; p < end; p += 64) {
		struct masks m;
		uint64_t in, odd, esc, both;

		look(p, '[', ']', &m);
		if (m.back || carry)
			m.quote &= ~escaped(m.back, &carry);
		in = parity(m.quote) ^ inside;
		inside = (uint64_t)((int64_t)in >> 63);
		esc = m.back & in;
		odd = m.back & ~in;
		m.open &= ~in;
		for (both = m.open | (m.close & ~in) | odd; both; both &= both - 1) {
			int i = __builtin_ctzll(both);

			if (p + i >= end || odd >> i & 1)
				return NULL;
			if (m.open >> i & 1) {
				depth++;
			} else if (!--depth) {
				*ret_esc |= (esc & ((1ull << i) - 1)) != 0;
				return p + i + 1;
			}
		}
		*ret_esc |= esc != 0;
	}
	return NULL;
}

const char *lg_json_value(const char *p, const char *end, struct lg_slice *s)
{
	const char *q;

	s->esc = 0;
	s->kind = (uint8_t)*p;
	s->p = p;
	if (*p == '"') {
		s->p = p + 1;
		q = lg_json_string_end(p + 1, end, &s->esc);
		if (!q)
			return NULL;
		s->n = (uint32_t)(q - s->p);
		return q + 1;
	}
	if (*p == '{') {
		enum lg_json_found f = lg_json_object(p, end, &q);

		if (f == LG_JSON_ODD)
			f = lg_json_check(p, end, &q);
		if (f != LG_JSON_OK)
			return NULL;
	} else if (*p == '[') {
		q = array(p, end, &s->esc);
		if (!q)
			return NULL;
	} else {
		q = lg_json_atom(p, end);
		if (!q)
			return NULL;
	}
	s->n = (uint32_t)(q - p);
	return q;
}

int lg_json_member(const char **pp, const char *end, struct lg_slice *key, struct lg_slice *value)
{
	const char *p = lg_json_skip(*pp, end), *q;

	if (p < end && *p == ',')
		p = lg_json_skip(p + 1, end);
	if (p >= end || *p != '"')
		return 0;
	key->esc = 0;
	key->kind = '"';
	key->p = p + 1;
	q = lg_json_string_end(p + 1, end, &key->esc);
	if (!q)
		return 0;
	key->n = (uint32_t)(q - key->p);
	p = lg_json_skip(q + 1, end);
	if (p >= end || *p != ':')
		return 0;
	p = lg_json_skip(p + 1, end);
	if (p >= end)
		return 0;
	p = lg_json_value(p, end, value);
	if (!p)
		return 0;
	*pp = p;
	return 1;
}

int lg_json_element(const char **pp, const char *end, struct lg_slice *value)
{
	const char *p = lg_json_skip(*pp, end);

	if (p < end && *p == ',')
		p = lg_json_skip(p + 1, end);
	if (p >= end || *p == ']')
		return 0;
	p = lg_json_value(p, end, value);
	if (!p)
		return 0;
	*pp = p;
	return 1;
}

/*
 * The n digits of which the first `whole` stand before the decimal point, times 10^scale. Digits that
 * fall below 1 are cut.
 */
static bool fixed(const char *digits, size_t n, int64_t whole, int64_t scale, uint64_t *ret)
{
	int64_t want = whole + scale; /* digits of the result */
	uint64_t v = 0;

	for (int64_t i = 0; i < want; i++) {
		unsigned d = i < (int64_t)n ? (unsigned)(digits[i] - '0') : 0;

		if (v > ((uint64_t)INT64_MAX - d) / 10)
			return false;
		if (!v && i >= (int64_t)n)
			break; /* zero stays zero, whatever its exponent */
		v = v * 10 + d;
	}
	*ret = v;
	return true;
}

/* Eight digits at a time where there are: a number in one word, by halves (Lemire, "Quickly parsing
 * eight digits", 2018). false: p does not start with eight digits. */
static inline bool eight_digits(const char *p, uint64_t *ret)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	uint64_t v;

	memcpy(&v, p, sizeof v);
	if ((((v & 0xf0f0f0f0f0f0f0f0u) ^ 0x3030303030303030u) |
	     (((v + 0x0606060606060606u) & 0xf0f0f0f0f0f0f0f0u) ^ 0x3030303030303030u)))
		return false;
	v = (v & 0x0f0f0f0f0f0f0f0fu) * 2561 >> 8;
	v = (v & 0x00ff00ff00ff00ffu) * 6553601 >> 16;
	*ret = (v & 0x0000ffff0000ffffu) * 42949672960001u >> 32;
	return true;
#else
	(void)p;
	(void)ret;
	return false;
#endif
}

bool lg_json_fixed(const struct lg_slice *s, int scale, int64_t *ret)
{
	enum { DIGITS_MAX = 64, EXP_MAX = 400, SCALE_MAX = 9 };
	static const uint64_t tens[SCALE_MAX + 1] = { 1, 10, 100, 1000, 10000, 100000, 1000000, 10000000,
						      100000000, 1000000000 };
	const char *p = s->p, *end = p ? p + s->n : NULL;
	char digits[DIGITS_MAX];
	size_t n = 0, whole = 0;
	uint64_t v = 0;
	int64_t exp = 0;
	bool neg = false, point = false, eneg = false;

	while (p < end && *p == ' ')
		p++;
	if (p < end && (*p == '-' || *p == '+'))
		neg = *p++ == '-';
	/* The usual: up to 19 digits (any of them fits), at most `scale` of them behind a point. */
	if (end - p <= 20 && scale <= SCALE_MAX) {
		const char *q = p;
		uint64_t eight;
		int left = scale, dot = 0;

		for (; end - q >= 8 && eight_digits(q, &eight); q += 8)
			v = v * 100000000 + eight;
		for (; q < end && (unsigned char)(*q - '0') <= 9; q++)
			v = v * 10 + (unsigned)(*q - '0');
		if (q > p && q < end && *q == '.')
			for (q++, dot = 1; q < end && left && (unsigned char)(*q - '0') <= 9; q++, left--)
				v = v * 10 + (unsigned)(*q - '0');
		if (q == end && q > p && end - p - dot <= 19 && v <= (uint64_t)INT64_MAX / tens[left]) {
			v *= tens[left];
			*ret = neg ? -(int64_t)v : (int64_t)v;
			return true;
		}
		v = 0;
	}
	for (; p < end; p++) {
		if (*p == '.' && !point) {
			point = true;
			continue;
		}
		if ((unsigned char)(*p - '0') > 9)
			break;
		whole += !point;
		if (n < DIGITS_MAX)
			digits[n++] = *p;
	}
	if (!n)
		return false;
	if (p < end && (*p == 'e' || *p == 'E')) {
		p++;
		if (p < end && (*p == '-' || *p == '+'))
			eneg = *p++ == '-';
		if (p >= end)
			return false;
		for (; p < end && (unsigned char)(*p - '0') <= 9; p++)
			if (exp < EXP_MAX)
				exp = exp * 10 + (*p - '0');
	}
	if (p != end || !fixed(digits, n, (int64_t)whole, scale + (eneg ? -exp : exp), &v))
		return false;
	*ret = neg ? -(int64_t)v : (int64_t)v;
	return true;
}

bool lg_json_real(const struct lg_slice *s, double *ret)
{
	char buf[64], *stop;
	size_t n = s->n < sizeof buf - 1 ? s->n : sizeof buf - 1;
	uint32_t sign = s->p && s->n && *s->p == '-', i = sign;
	uint64_t whole = 0;

	/* Up to 15 digits are exact: counts of bytes. */
	for (; s->p && s->kind != '"' && s->n <= 15 && i < s->n && (unsigned char)(s->p[i] - '0') <= 9; i++)
		whole = whole * 10 + (unsigned)(s->p[i] - '0');
	if (i > sign && i == s->n) {
		*ret = sign ? -(double)whole : (double)whole;
		return true;
	}

	if (!s->p || !n || s->kind == '{' || s->kind == '[')
		return false;
	memcpy(buf, s->p, n);
	buf[n] = 0;
	*ret = strtod(buf, &stop);
	return stop != buf && *ret == *ret && *ret - *ret == 0;
}

static int hex4(const char *p, const char *end, uint32_t *ret)
{
	uint32_t v = 0;

	if (end - p < 4)
		return 0;
	for (int i = 0; i < 4; i++) {
		char c = p[i];
		unsigned d = c >= '0' && c <= '9' ? (unsigned)(c - '0')
			     : (c | 32) >= 'a' && (c | 32) <= 'f' ? (unsigned)((c | 32) - 'a' + 10)
								  : 16;

		if (d > 15)
			return 0;
		v = v << 4 | d;
	}
	*ret = v;
	return 1;
}

static char *utf8(char *o, uint32_t c)
{
	if (c < 0x80) {
		*o++ = c < 0x20 || c == 0x7f ? ' ' : (char)c;
	} else if (c < 0x800) {
		*o++ = (char)(0xc0 | c >> 6);
		*o++ = (char)(0x80 | (c & 0x3f));
	} else if (c < 0x10000) {
		*o++ = (char)(0xe0 | c >> 12);
		*o++ = (char)(0x80 | (c >> 6 & 0x3f));
		*o++ = (char)(0x80 | (c & 0x3f));
	} else {
		*o++ = (char)(0xf0 | c >> 18);
		*o++ = (char)(0x80 | (c >> 12 & 0x3f));
		*o++ = (char)(0x80 | (c >> 6 & 0x3f));
		*o++ = (char)(0x80 | (c & 0x3f));
	}
	return o;
}

size_t lg_json_decode(const struct lg_slice *s, char *buf)
{
	const char *p = s->p, *end = p + s->n;
	char *o = buf;

	while (p < end) {
		uint32_t c, low;

		if (*p != '\\' || end - p < 2) {
			*o++ = (unsigned char)*p < 0x20 ? ' ' : *p;
			p++;
			continue;
		}
		c = (unsigned char)p[1];
		if (c == 'u' && hex4(p + 2, end, &c)) {
			p += 6;
			if (c >= 0xd800 && c < 0xdc00 && end - p >= 6 && p[0] == '\\' &&
			    p[1] == 'u' && hex4(p + 2, end, &low) && low >= 0xdc00 &&
			    low < 0xe000) {
				c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
				p += 6;
			}
			if (c >= 0xd800 && c < 0xe000)
				c = 0xfffd;
			o = utf8(o, c);
			continue;
		}
		p += 2;
		if (c == 'b' || c == 'f' || c == 'n' || c == 'r' || c == 't')
			*o++ = ' ';
		else
			*o++ = (char)c; /* \" \\ \/, and whatever else was written */
	}
	return (size_t)(o - buf);
}
