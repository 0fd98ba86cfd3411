/* SPDX-License-Identifier: Apache-2.0 */
#include "record/device/device_wire.h"

#include <math.h>
#include <string.h>

enum { HEAD = offsetof(struct lg_device_packet, u), PID_MOST = 1 << 22 /* linux/threads.h, PID_MAX_LIMIT */ };

size_t lg_device_packet_size(uint32_t kind, uint32_t n)
{
	switch (kind) {
	case LG_DEVICE_READY:
	case LG_DEVICE_NONE:
	case LG_DEVICE_FAILED:
	case LG_DEVICE_NOTE:
		return HEAD + LG_DEVICE_TEXT;
	case LG_DEVICE_IS:
		return HEAD + 2 * LG_DEVICE_NAME;
	case LG_DEVICE_SAMPLE:
		return n > LG_DC_MAX ? 0 : HEAD + n * sizeof(struct lg_device_value);
	case LG_DEVICE_USERS:
		return n > LG_DEVICE_USERS_MAX ? 0 : HEAD + n * sizeof(struct lg_device_user);
	case LG_DEVICE_XID:
		return HEAD;
	default:
		return 0;
	}
}

static void make_harmless(char *text, size_t size)
{
	size_t n = strnlen(text, size - 1);

	for (size_t i = 0; i < n; i++)
		if (text[i] < ' ' || text[i] > '~')
			text[i] = '?';
	memset(text + n, 0, size - n);
}

static bool is_of_a_device(uint32_t kind)
{
	return kind >= LG_DEVICE_IS && kind <= LG_DEVICE_XID;
}

static uint32_t keep_values(struct lg_device_packet *p)
{
	uint32_t kept = 0;
	uint64_t seen = 0;

	_Static_assert(LG_DC_MAX <= 64, "one bit each");
	for (uint32_t i = 0; i < p->n; i++) {
		struct lg_device_value v = p->u.value[i];

		if (v.what >= LG_DC_MAX || seen >> v.what & 1 || !isfinite(v.value) ||
		    v.value < lg_device_counters[v.what].least || v.value > lg_device_counters[v.what].most)
			continue;
		seen |= UINT64_C(1) << v.what;
		p->u.value[kept++] = v;
	}
	return kept;
}

static uint32_t keep_users(struct lg_device_packet *p)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < p->n; i++) {
		struct lg_device_user v = p->u.user[i];

		if (v.pid > 0 && v.pid <= PID_MOST &&
		    (double)v.bytes <= lg_device_counters[LG_DC_MEM_TOTAL].most)
			p->u.user[kept++] = v;
	}
	return kept;
}

bool lg_device_packet_take(const void *bytes, size_t n, struct lg_device_packet *ret, uint32_t *ret_refused)
{
	uint32_t had;

	*ret_refused = 0;
	memset(ret, 0, sizeof *ret);
	if (n < HEAD || n > sizeof *ret)
		return false;
	memcpy(ret, bytes, n);
	if (lg_device_packet_size(ret->kind, ret->n) != n ||
	    (is_of_a_device(ret->kind) && (ret->device < 0 || ret->device >= LG_DEVICES_MAX)))
		return false;
	had = ret->n;
	switch (ret->kind) {
	case LG_DEVICE_IS:
		make_harmless(ret->u.is.name, sizeof ret->u.is.name);
		make_harmless(ret->u.is.uuid, sizeof ret->u.is.uuid);
		break;
	case LG_DEVICE_SAMPLE:
		ret->n = keep_values(ret);
		*ret_refused = had - ret->n;
		break;
	case LG_DEVICE_USERS:
		ret->n = keep_users(ret);
		*ret_refused = had - ret->n;
		break;
	case LG_DEVICE_XID:
		return ret->n <= LG_DEVICE_XID_MAX;
	default:
		make_harmless(ret->u.text, sizeof ret->u.text);
		break;
	}
	return true;
}
