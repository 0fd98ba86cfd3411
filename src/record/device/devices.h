/* SPDX-License-Identifier: Apache-2.0 */
/* devices.h - every process that asks devices. */
#ifndef LG_RECORD_DEVICE_DEVICES_H
#define LG_RECORD_DEVICE_DEVICES_H
#include "record/session.h"

struct lg_device_reader;
struct lg_devices;
/*
 * Fork them, one for each reader (borrowed until the end). As early as possible: each is a copy of the
 * process, in which a maker's library will run. hz: readings a second; 0 = none. NULL: there are none;
 * nothing else is lost.
 */
struct lg_devices *lg_devices_new(const struct lg_device_reader *const *readers, size_t n, unsigned hz);
/* All that laggard knows. */
struct lg_devices *lg_devices_usual(unsigned hz);
/* NULL is fine. */
void lg_devices_free(struct lg_devices *d);

/* What they say goes to b from here on. say: a line for the user; NULL = silence. */
void lg_devices_begin(struct lg_devices *d, struct lg_builder *b,
		      void (*say)(void *arg, const char *line), void *arg);
void lg_devices_read(struct lg_devices *d);
/* The last of it, and what is missing; ends them. */
void lg_devices_end(struct lg_devices *d);

/* Instead of all that: what there is to ask, in words. Waits for their first word, some seconds at most. */
void lg_devices_probe(struct lg_devices *d, struct lg_probe *ret);

#endif /* LG_RECORD_DEVICE_DEVICES_H */
