/* SPDX-License-Identifier: Apache-2.0 */
#include "store/device_counters.h"

const struct lg_device_counter_desc lg_device_counters[LG_DC_MAX] = {
#define C(id, name, unit, least, most) { name, unit, least, most },
#include "store/device_counters.def"
};
