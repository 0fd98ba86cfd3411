/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_wire.h - what a process that asks devices (device_worker.h) says to the recorder.
 *
 * One packet a message over a socket pair (SOCK_SEQPACKET): a head, then what the kind says, no longer
 * than that. Both ends are the same program, so bytes are as the compiler lays them. The recorder
 * believes nothing of it: code of a maker of devices runs in that process.
 *
 *   READY    text: whom it asks, "NVML, driver 550.54.15"; n = devices
 *   NONE     text: why there is nothing to ask. Nothing follows.
 *   FAILED   text: there should be something, and it cannot be asked. Nothing follows.
 *   DEVICE   its name and UUID
 *   SAMPLE   n values of a device at ts
 *   USERS    n processes that hold memory of a device at ts
 *   XID      an error that the driver reported of a device; n = its number
 *   NOTE     text: what is not seen
 */
#ifndef LG_RECORD_DEVICE_DEVICE_WIRE_H
#define LG_RECORD_DEVICE_DEVICE_WIRE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/device_counters.h"

enum lg_device_say {
	LG_DEVICE_READY = 1, LG_DEVICE_NONE, LG_DEVICE_FAILED, LG_DEVICE_IS, LG_DEVICE_SAMPLE,
	LG_DEVICE_USERS, LG_DEVICE_XID, LG_DEVICE_NOTE, LG_DEVICE_SAYS
};

enum { LG_DEVICE_TEXT = 200, LG_DEVICE_NAME = 96, LG_DEVICE_USERS_MAX = 64, LG_DEVICE_XID_MAX = 9999 };

struct lg_device_value {
	uint32_t what; /* enum lg_device_counter */
	uint32_t zero;
	double value;
};

struct lg_device_user {
	int32_t pid; /* as the driver's own PID namespace numbers it: the host's */
	uint32_t zero;
	uint64_t bytes;
};

struct lg_device_packet {
	uint32_t kind, n;
	int32_t device;
	uint32_t zero;
	int64_t ts; /* CLOCK_MONOTONIC, ns */
	union {
		char text[LG_DEVICE_TEXT];
		struct {
			char name[LG_DEVICE_NAME], uuid[LG_DEVICE_NAME];
		} is;
		struct lg_device_value value[LG_DC_MAX];
		struct lg_device_user user[LG_DEVICE_USERS_MAX];
	} u;
};

/* Bytes of a packet of that kind with n of what it has; 0: there is none such. */
size_t lg_device_packet_size(uint32_t kind, uint32_t n);
/*
 * A packet as a stranger's: false where its kind, length or device cannot be. What it holds is made
 * harmless: texts end and have only printable ASCII, values that no device can have and processes that
 * cannot be are left out, and counted.
 */
bool lg_device_packet_take(const void *bytes, size_t n, struct lg_device_packet *ret, uint32_t *ret_refused);

#endif /* LG_RECORD_DEVICE_DEVICE_WIRE_H */
