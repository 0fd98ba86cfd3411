/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disks.h - what every disk carried and which process asked for it, as counter rows.
 *
 *   disk.read DEV  disk.written DEV   bytes that the device moved in the time that ends at ts
 *   disk.busy DEV                     ns of that time in which it had something to do
 *   io.read  io.written               bytes of the track's process in that time: what it had read from
 *                                     a device, what it gave to be written to one (sooner or later)
 *
 * A row is a sum of its own: what there is no row for is nothing. Whole disks only, and those below
 * others (dm, md): bytes are counted once. The processes are read only while a disk has work.
 */
#ifndef LG_RECORD_DISKS_H
#define LG_RECORD_DISKS_H
#include <stdbool.h>

#include "store/builder.h"

struct lg_disks;
int lg_disks_new(struct lg_disks **ret, struct lg_builder *b, struct lg_error *err) LG_MUST_CHECK;
void lg_disks_free(struct lg_disks *d);
/* About once a second, and once at the end. */
void lg_disks_read(struct lg_disks *d, int64_t now);
/* The two sums of /proc/PID/io that count here; false: not such a text. */
bool lg_disks_parse_io(const char *text, uint64_t *ret_read, uint64_t *ret_written);

#endif /* LG_RECORD_DISKS_H */
