/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/symbol_answer.h"

#include <string.h>

bool lg_answer_head(const void *packet, size_t n, struct lg_say *ret)
{
	if (n < sizeof *ret || n > LG_PACKET_BYTES)
		return false;
	memcpy(ret, packet, sizeof *ret);
	return ret->kind >= LG_SAY_OPENED && ret->kind <= LG_SAY_EXPORTS;
}

static bool is_hex(const char *s, size_t size)
{
	size_t n = strnlen(s, size);

	return n < size && strspn(s, "0123456789abcdef") == n;
}

bool lg_answer_id(const void *packet, size_t n, char ret_hex[LG_BUILD_ID_HEX])
{
	struct lg_say_id id;

	if (n != sizeof(struct lg_say) + sizeof id)
		return false;
	memcpy(&id, (const char *)packet + sizeof(struct lg_say), sizeof id);
	if (!is_hex(id.hex, sizeof id.hex))
		return false;
	memcpy(ret_hex, id.hex, sizeof id.hex);
	return true;
}

bool lg_answer_exports(const void *packet, size_t n, struct lg_say_exports *ret)
{
	if (n != sizeof(struct lg_say) + sizeof *ret)
		return false;
	memcpy(ret, (const char *)packet + sizeof(struct lg_say), sizeof *ret);
	return true;
}

bool lg_answer_names(struct lg_answer *a, const void *packet, size_t n, lg_named_fn *named, void *self)
{
	const char *p = (const char *)packet + sizeof(struct lg_say), *end = (const char *)packet + n;
	char name[LG_SYMBOL_BYTES];

	while (p < end) {
		struct lg_say_name r;

		if ((size_t)(end - p) < sizeof r)
			return false;
		memcpy(&r, p, sizeof r);
		p += sizeof r;
		if (r.len > (size_t)(end - p) || r.len >= sizeof name || !r.len || memchr(p, 0, r.len) ||
		    r.first < a->next || r.first > a->n_pcs || !r.count || r.count > a->n_pcs - r.first)
			return false;
		a->next = (size_t)r.first + r.count;
		if (r.len >= a->bytes_left) {
			a->cut = true;
			return true;
		}
		a->bytes_left -= r.len + 1u;
		memcpy(name, p, r.len);
		name[r.len] = 0;
		named(self, r.first, r.count, name);
		p += r.len;
	}
	return true;
}

bool lg_answer_debug(const void *packet, size_t n, struct lg_debug_names *ret)
{
	struct lg_debug_names d;

	if (n != sizeof(struct lg_say) + sizeof d)
		return false;
	memcpy(&d, (const char *)packet + sizeof(struct lg_say), sizeof d);
	if (!is_hex(d.build_id, sizeof d.build_id) || !memchr(d.link, 0, sizeof d.link) ||
	    strchr(d.link, '/'))
		return false;
	*ret = d;
	return true;
}
