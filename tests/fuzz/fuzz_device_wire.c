/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_device_wire.c - packets of the process that asks devices, as if its library wrote them. The
 * input is cut into packets: two bytes of length, then the packet. Properties: what is taken is of a
 * device that can be, texts end and are printable, values are numbers within their bounds, each once.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "record/device/device_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void check(int ok)
{
	if (!ok)
		abort();
}

static void check_text(const char *text, size_t size)
{
	check(memchr(text, 0, size) != NULL);
	for (; *text; text++)
		check(*text >= ' ' && *text <= '~');
}

static void check_packet(const struct lg_device_packet *p)
{
	uint64_t seen = 0;

	switch (p->kind) {
	case LG_DEVICE_IS:
		check_text(p->u.is.name, sizeof p->u.is.name);
		check_text(p->u.is.uuid, sizeof p->u.is.uuid);
		break;
	case LG_DEVICE_SAMPLE:
		check(p->n <= LG_DC_MAX);
		for (uint32_t i = 0; i < p->n; i++) {
			const struct lg_device_value *v = &p->u.value[i];

			check(v->what < LG_DC_MAX && !(seen >> v->what & 1) && isfinite(v->value));
			check(v->value >= lg_device_counters[v->what].least &&
			      v->value <= lg_device_counters[v->what].most);
			seen |= UINT64_C(1) << v->what;
		}
		break;
	case LG_DEVICE_USERS:
		check(p->n <= LG_DEVICE_USERS_MAX);
		for (uint32_t i = 0; i < p->n; i++)
			check(p->u.user[i].pid > 0);
		break;
	case LG_DEVICE_XID:
		check(p->n <= LG_DEVICE_XID_MAX);
		break;
	default:
		check_text(p->u.text, sizeof p->u.text);
		break;
	}
	if (p->kind >= LG_DEVICE_IS && p->kind <= LG_DEVICE_XID)
		check(p->device >= 0 && p->device < LG_DEVICES_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	while (n >= 2) {
		size_t len = (size_t)p[0] | (size_t)p[1] << 8;
		struct lg_device_packet out;
		uint32_t refused;
		uint8_t *packet;

		p += 2;
		n -= 2;
		len = len < n ? len : n;
		packet = malloc(len ? len : 1); /* its end is where the memory's is */
		check(packet != NULL);
		memcpy(packet, p, len);
		if (lg_device_packet_take(packet, len, &out, &refused))
			check_packet(&out);
		free(packet);
		p += len;
		n -= len;
	}
	return 0;
}
