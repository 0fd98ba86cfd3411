/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_child.h - the recorder's side of device_worker.h. Nothing here waits: a process that is
 * silent for too long is killed, and what it was doing then is said.
 */
#ifndef LG_RECORD_DEVICE_DEVICE_CHILD_H
#define LG_RECORD_DEVICE_DEVICE_CHILD_H
#include "record/device/device_worker.h"

struct lg_device_child;

/*
 * Fork it. While the process has one thread and holds nothing that a maker's library should not have:
 * it is a copy. hz: sweeps a second. NULL: it could not be.
 */
struct lg_device_child *lg_device_child_new(const struct lg_device_reader *r, unsigned hz);
/* Kills it. Who cannot die now (a driver's call that nothing interrupts) is left to do so. NULL is fine. */
void lg_device_child_free(struct lg_device_child *c);
const struct lg_device_reader *lg_device_child_reader(const struct lg_device_child *c);

enum lg_device_heard {
	LG_HEARD_NOTHING, /* for now */
	LG_HEARD_PACKET,  /* *ret */
	LG_HEARD_ENDED,   /* it is no more; told once. why: "" where it had said why itself, or is not missed */
};
/*
 * The next thing it said, if any. Packets that come more often than they were asked for, or whose time
 * cannot be, are left out; after many of those it is ended. now: CLOCK_MONOTONIC, ns.
 */
enum lg_device_heard lg_device_child_hear(struct lg_device_child *c, int64_t now,
					  struct lg_device_packet *ret, char *why, size_t size);
/* The recording ends: does it owe an answer for longer than it may? Then why, and true. */
bool lg_device_child_owes(const struct lg_device_child *c, int64_t now, char *why, size_t size);
/* Values and packets of it that were not believed. */
uint64_t lg_device_child_refused(const struct lg_device_child *c);
/* For waiting on it; -1: it is no more. */
int lg_device_child_fd(const struct lg_device_child *c);

#endif /* LG_RECORD_DEVICE_DEVICE_CHILD_H */
