/* SPDX-License-Identifier: Apache-2.0 */
/* perf_bytes.h - numbers from bytes of either byte order; a cursor that cannot leave its range. */
#ifndef LG_IMPORT_PERFDATA_PERF_BYTES_H
#define LG_IMPORT_PERFDATA_PERF_BYTES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t pd_u16(const uint8_t *p, bool swap)
{
	uint16_t v;

	memcpy(&v, p, sizeof v);
	return swap ? __builtin_bswap16(v) : v;
}

static inline uint32_t pd_u32(const uint8_t *p, bool swap)
{
	uint32_t v;

	memcpy(&v, p, sizeof v);
	return swap ? __builtin_bswap32(v) : v;
}

static inline uint64_t pd_u64(const uint8_t *p, bool swap)
{
	uint64_t v;

	memcpy(&v, p, sizeof v);
	return swap ? __builtin_bswap64(v) : v;
}

struct pd_cursor {
	const uint8_t *p, *end;
	bool swap, bad; /* bad: something reached beyond end; everything read since is 0 */
};

static inline size_t pd_left(const struct pd_cursor *c)
{
	return (size_t)(c->end - c->p);
}

/* n bytes, or NULL (and bad) when there are fewer. */
static inline const uint8_t *pd_take(struct pd_cursor *c, uint64_t n)
{
	const uint8_t *p = c->p;

	if (c->bad || n > pd_left(c)) {
		c->bad = true;
		return NULL;
	}
	c->p += n;
	return p;
}

static inline uint32_t pd_take_u32(struct pd_cursor *c)
{
	const uint8_t *p = pd_take(c, 4);

	return p ? pd_u32(p, c->swap) : 0;
}

static inline uint64_t pd_take_u64(struct pd_cursor *c)
{
	const uint8_t *p = pd_take(c, 8);

	return p ? pd_u64(p, c->swap) : 0;
}

/* A NUL-terminated string; "" (and bad) when there is no NUL. */
static inline const char *pd_take_string(struct pd_cursor *c)
{
	const uint8_t *nul = c->bad ? NULL : memchr(c->p, 0, pd_left(c));
	const char *s = (const char *)c->p;

	if (!nul) {
		c->bad = true;
		return "";
	}
	c->p = nul + 1;
	return s;
}

#endif /* LG_IMPORT_PERFDATA_PERF_BYTES_H */
