/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_worker.h - the process that asks devices, and who it asks.
 *
 * A maker's library is code that nobody here has read, and a call into a driver may never return. So
 * it is loaded and called in a process of its own, which has given up everything before: it has a user
 * of its own, no capability, no descriptor but its end of a socket, and starts and signals nothing
 * (base/confine.h). Before each call it writes on a page that it shares with the recorder which one it
 * is, so that a call that hangs has a name.
 */
#ifndef LG_RECORD_DEVICE_DEVICE_WORKER_H
#define LG_RECORD_DEVICE_DEVICE_WORKER_H
#include <sys/types.h>

#include "base/error.h"
#include "record/device/device_wire.h"

/* The shared page. */
struct lg_device_doing {
	uint32_t call;  /* number of lg_device_reader.call_name */
	int32_t device; /* -1 = of none */
};

struct lg_device_out {
	int sock;
	volatile struct lg_device_doing *doing;
	int64_t period; /* ns between two sweeps */
	uint64_t dropped; /* packets that found no room */
	struct lg_device_packet p; /* of the sample that is being made */
};

/* A way to ask devices. */
struct lg_device_reader {
	const char *name;
	/* What open() is to use instead of what is usual: a library, a root of /sys. For tests: no option
	 * and no variable of the environment sets it. NULL = the usual. */
	const char *arg;
	int32_t first;   /* number of its first device */
	/* Says READY and what the devices are; or NONE, or FAILED, and then it is NULL. */
	void *(*open)(const struct lg_device_reader *r, struct lg_device_out *o);
	/* One SAMPLE a device. seldom: also what changes rarely or takes long to ask; about once a second. */
	void (*sweep)(void *self, struct lg_device_out *o, bool seldom);
	const char *(*call_name)(uint32_t call); /* NULL: there is none such */
};

/* For readers. */
void lg_device_say(struct lg_device_out *o, enum lg_device_say kind, int32_t device, uint32_t n,
		   const char *fmt, ...) LG_PRINTF(5, 6);
void lg_device_begin(struct lg_device_out *o, int32_t device); /* a SAMPLE, of now */
void lg_device_put(struct lg_device_out *o, enum lg_device_counter what, double value);
void lg_device_end(struct lg_device_out *o);
void lg_device_send(struct lg_device_out *o, const struct lg_device_packet *p);
static inline void lg_device_doing(struct lg_device_out *o, uint32_t call, int32_t device)
{
	o->doing->call = call;
	o->doing->device = device;
}

/* Be that process, which recorder has just forked, until it ends. hz: sweeps a second. */
void lg_device_worker(const struct lg_device_reader *r, int sock, pid_t recorder,
		      volatile struct lg_device_doing *doing, unsigned hz) __attribute__((noreturn));

#endif /* LG_RECORD_DEVICE_DEVICE_WORKER_H */
