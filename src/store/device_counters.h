/* SPDX-License-Identifier: Apache-2.0 */
/* device_counters.h - device_counters.def as an enum and a table. */
#ifndef LG_STORE_DEVICE_COUNTERS_H
#define LG_STORE_DEVICE_COUNTERS_H

enum lg_device_counter {
#define C(id, name, unit, least, most) LG_DC_##id,
#include "store/device_counters.def"
#undef C
	LG_DC_MAX
};

enum { LG_DEVICES_MAX = 64 }; /* of one machine */

struct lg_device_counter_desc {
	const char *name, *unit;
	double least, most;
};

extern const struct lg_device_counter_desc lg_device_counters[LG_DC_MAX];

/*
 * NVML's clocks event reasons (nvml.h, nvmlClocksEventReason..., before driver 535
 * nvmlClocksThrottleReason...), the bits of gpu.throttle. Those of other makers' devices are put into
 * the same bits.
 */
enum lg_throttle {
	LG_THROTTLE_IDLE = 0x1, LG_THROTTLE_SETTING = 0x2, LG_THROTTLE_SW_POWER_CAP = 0x4,
	LG_THROTTLE_HW_SLOWDOWN = 0x8, LG_THROTTLE_SYNC_BOOST = 0x10, LG_THROTTLE_SW_THERMAL = 0x20,
	LG_THROTTLE_HW_THERMAL = 0x40, LG_THROTTLE_HW_POWER_BRAKE = 0x80
};

#endif /* LG_STORE_DEVICE_COUNTERS_H */
