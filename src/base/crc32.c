/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc32.c - see crc32.h.
 *
 * A CRC is the remainder of a polynomial over GF(2), so 16 bytes may be replaced by any 16 later bytes
 * that leave the same remainder: a block times x^n mod P, added to the block n bits on. (V. Gopal et
 * al., Fast CRC Computation for Generic Polynomials Using PCLMULQDQ, Intel 2009.) Four blocks are
 * carried on side by side; zlib's table does what is left, fewer than 80 bytes.
 */
#include "base/crc32.h"

#include <string.h>
#include <zlib.h>
#if defined __x86_64__
#include <immintrin.h>
#endif

#if defined __x86_64__
__attribute__((target("pclmul,sse4.1")))
static __m128i fold(__m128i v, __m128i by, __m128i next)
{
	__m128i low = _mm_clmulepi64_si128(v, by, 0x00), high = _mm_clmulepi64_si128(v, by, 0x11);

	return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

static inline __attribute__((target("sse4.1"), always_inline)) __m128i load(const uint8_t *p)
{
	return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* n >= 64 */
__attribute__((target("pclmul,sse4.1")))
static uint32_t folded(uint32_t crc, const uint8_t *p, size_t n)
{
	/* Bit-reflected x^(512+32), x^(512-32), x^(128+32), x^(128-32) mod P, one bit to the left because a
	 * product of reflected numbers comes out one bit short. */
	const __m128i by_64 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
	const __m128i by_16 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
	__m128i v[4];
	uint8_t rest[16];

	for (int i = 0; i < 4; i++)
		v[i] = load(p + 16 * i);
	v[0] = _mm_xor_si128(v[0], _mm_cvtsi32_si128((int)~crc));
	p += 64;
	n -= 64;
	for (; n >= 64; p += 64, n -= 64)
		for (int i = 0; i < 4; i++)
			v[i] = fold(v[i], by_64, load(p + 16 * i));
	for (int i = 1; i < 4; i++)
		v[0] = fold(v[0], by_16, v[i]);
	for (; n >= 16; p += 16, n -= 16)
		v[0] = fold(v[0], by_16, load(p));
	_mm_storeu_si128((__m128i *)(void *)rest, v[0]);
	/* crc32() inverts its state on the way in and out; what was folded starts from a state of 0. */
	crc = (uint32_t)crc32(0xffffffff, rest, sizeof rest);
	return (uint32_t)crc32(crc, p, (uInt)n);
}
#endif

uint32_t lg_crc32(uint32_t crc, const void *p, size_t n)
{
#if defined __x86_64__
	if (n >= 64 && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"))
		return folded(crc, p, n);
#endif
	return (uint32_t)crc32_z(crc, p, n);
}
