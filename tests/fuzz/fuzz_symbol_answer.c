/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_symbol_answer.c - packets of the process that reads symbols, as if an attacker wrote them. The input
 * is cut into packets: two bytes of length, then the packet. Properties: addresses are named in order,
 * once, and none that was not asked for; names are bounded, and no more bytes than are wanted; a debug
 * file is no path.
 */
#include <stdlib.h>
#include <string.h>

#include "symbols/symbol_answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

enum { PCS = 64, BYTES = 4096 };

struct seen {
	size_t next, bytes;
};

static void check(int ok)
{
	if (!ok)
		abort();
}

static void named(void *self, size_t first, size_t count, const char *name)
{
	struct seen *s = self;

	check(count && first >= s->next && first + count <= PCS);
	check(strlen(name) && strlen(name) < LG_SYMBOL_BYTES);
	s->next = first + count;
	s->bytes += strlen(name) + 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct lg_answer a = { .n_pcs = PCS, .bytes_left = BYTES };
	struct seen s = { 0 };

	while (n >= 2) {
		size_t len = (size_t)p[0] | (size_t)p[1] << 8;
		char id[LG_BUILD_ID_HEX];
		struct lg_debug_names d;
		struct lg_say head;
		uint8_t *packet;

		p += 2;
		n -= 2;
		len = len < n ? len : n;
		packet = malloc(len ? len : 1); /* its end is where the memory's is */
		check(packet != NULL);
		memcpy(packet, p, len);
		if (lg_answer_head(packet, len, &head)) {
			if (lg_answer_id(packet, len, id))
				check(strspn(id, "0123456789abcdef") == strlen(id));
			if (lg_answer_debug(packet, len, &d))
				check(!strchr(d.link, '/') && strlen(d.build_id) < LG_BUILD_ID_HEX);
			(void)!lg_answer_names(&a, packet, len, named, &s);
		}
		free(packet);
		p += len;
		n -= len;
	}
	check(s.bytes <= BYTES);
	return 0;
}
