/* SPDX-License-Identifier: Apache-2.0 */
/* device_source.c - devices.h as a source of a recording. */
#include "record/device/devices.h"

static void say(void *arg, const char *line)
{
	lg_session_say(arg, "%s", line);
}

static int start(struct lg_session *s, void **ret_self, struct lg_error *err)
{
	struct lg_devices *d = lg_session_devices(s);

	(void)err;
	lg_devices_begin(d, lg_session_builder(s), say, s);
	*ret_self = d;
	return 0;
}

static int drain(void *self, struct lg_error *err)
{
	(void)err;
	lg_devices_read(self);
	return 0;
}

static void feed(void *self, int64_t ts, const void *rec, size_t n)
{
	(void)self, (void)ts, (void)rec, (void)n; /* nothing is pushed: rows are added at once */
}

static int stop(void *self, struct lg_error *err)
{
	(void)err;
	lg_devices_end(self);
	return 0;
}

static void free_nothing(void *self)
{
	(void)self; /* the session's: it was there before any source */
}

static int probe(struct lg_probe *ret, struct lg_error *err)
{
	struct lg_devices *d = lg_devices_usual(1);

	if (!d)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	lg_devices_probe(d, ret);
	lg_devices_free(d);
	return 0;
}

const struct lg_source lg_source_devices = {
	.name = "devices",
	.summary = "counters of devices",
	.probe = probe,
	.start = start,
	.drain = drain,
	.feed = feed,
	.stop = stop,
	.free = free_nothing,
};
