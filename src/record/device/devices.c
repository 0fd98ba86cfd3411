/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devices.c - counters of the machine's devices: what the processes that ask them say (device_child.h), as
 * rows of the same names and units as tables of nvidia-smi give (store/device_counters.def).
 *
 *   track "GPU 3" > "gpu.power" ... one row a sweep
 *                 > "gpu.process_mem" of a process, bytes
 *                 > "gpu.xid_79": how many of that error so far, 0 a moment before the first
 */
#include "record/device/devices.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/order.h"
#include "record/device/device_child.h"
#include "record/device/nvml.h"
#include "record/device/sysfs_gpu.h"

enum { CHILDREN = 2, PACKETS_A_DRAIN = 4096, XIDS_MOST = 16, WHY = 320, FIRST_WORD_MS = 4000 };

struct device {
	lg_trk track, counter[LG_DC_MAX];
	struct {
		uint32_t number;
		double n;
	} xid[XIDS_MOST];
	size_t n_xids;
};

struct lg_devices {
	struct lg_device_child *child[CHILDREN];
	size_t n;
	/* while a recording goes on */
	struct lg_builder *b;
	void (*say)(void *arg, const char *line);
	void *say_arg;
	unsigned hz;
	uint64_t strangers; /* processes that no source knows */
	struct device device[LG_DEVICES_MAX];
};

struct lg_devices *lg_devices_new(const struct lg_device_reader *const *readers, size_t n, unsigned hz)
{
	struct lg_devices *d = hz ? lg_calloc(1, sizeof *d) : NULL;

	if (!d)
		return NULL;
	d->hz = hz;
	for (size_t i = 0; i < n && d->n < CHILDREN; i++) {
		d->child[d->n] = lg_device_child_new(readers[i], hz);
		d->n += d->child[d->n] != NULL;
	}
	return d;
}

struct lg_devices *lg_devices_usual(unsigned hz)
{
	/* The children have their own copies, of this moment. */
	static struct lg_device_reader sysfs;
	const struct lg_device_reader *readers[] = { &lg_device_nvml, &sysfs };

	if (!hz)
		return NULL;
	sysfs = lg_device_sysfs;
	sysfs.first = lg_sysfs_count_nvidia(NULL);
	return lg_devices_new(readers, lg_sysfs_has_gpus(NULL) ? 2 : 1, hz);
}

static void end_all(struct lg_devices *d)
{
	for (size_t i = 0; i < d->n; i++)
		lg_device_child_free(d->child[i]);
	d->n = 0;
}

void lg_devices_free(struct lg_devices *d)
{
	if (d)
		end_all(d);
	lg_free(d);
}

/* What one of them says first; false: nothing in time. */
static bool first_word(struct lg_device_child *c, struct lg_device_packet *p, char *why, size_t size)
{
	for (int left_ms = FIRST_WORD_MS;;) {
		struct pollfd f = { .fd = lg_device_child_fd(c), .events = POLLIN };
		int64_t now = lg_monotonic_ns();

		switch (lg_device_child_hear(c, now, p, why, size)) {
		case LG_HEARD_PACKET:
			return true;
		case LG_HEARD_ENDED:
			return false;
		default:
			break;
		}
		if (left_ms <= 0) {
			(void)lg_device_child_owes(c, now, why, size);
			return false;
		}
		(void)poll(&f, 1, left_ms < 100 ? left_ms : 100);
		left_ms -= (int)((lg_monotonic_ns() - now) / 1000000);
	}
}

/* Adds to text. */
static void say_more(char *text, size_t size, const char *more)
{
	size_t n = strlen(text);

	snprintf(text + n, size - n, "%s%s", n ? "; " : "", more);
}

void lg_devices_probe(struct lg_devices *d, struct lg_probe *ret)
{
	for (size_t i = 0; i < d->n; i++) {
		const char *name = lg_device_child_reader(d->child[i])->name;
		struct lg_device_packet p;
		char why[WHY], line[WHY];

		if (!first_word(d->child[i], &p, why, sizeof why)) {
			say_more(ret->why, sizeof ret->why, *why ? why : name);
		} else if (p.kind == LG_DEVICE_READY) {
			snprintf(line, sizeof line, "%u device%s (%s)", p.n, p.n == 1 ? "" : "s", p.u.text);
			say_more(ret->found, sizeof ret->found, line);
			ret->works = true;
		} else {
			snprintf(line, sizeof line, "%s: %s", name, p.u.text);
			say_more(ret->why, sizeof ret->why, line);
		}
	}
}

/* -- rows -- */

static lg_trk track_of(struct lg_devices *d, int32_t gpu)
{
	struct device *g = &d->device[gpu];
	char name[16];

	if (!g->track) {
		snprintf(name, sizeof name, "GPU %d", gpu);
		g->track = lg_track_get(d->b, &(struct lg_track_row){ .kind = LG_TRACK_GPU,
								      .name = lg_intern(d->b, name),
								      .index = gpu });
	}
	return g->track;
}

static lg_trk counter_of(struct lg_devices *d, int32_t gpu, const char *name, const char *unit, lg_prc prc)
{
	struct lg_track_row t = { .kind = LG_TRACK_COUNTER, .prc = prc, .index = gpu };

	t.name = lg_intern(d->b, name);
	t.unit = lg_intern(d->b, unit);
	t.parent = track_of(d, gpu);
	return lg_track_get(d->b, &t);
}

static void put(struct lg_devices *d, lg_trk counter, int64_t ts, double value)
{
	lg_add_counter(d->b, &(struct lg_counter_row){ .ts = ts, .track = counter, .value = value });
}

static void add_sample(struct lg_devices *d, const struct lg_device_packet *p)
{
	for (uint32_t i = 0; i < p->n; i++) {
		const struct lg_device_counter_desc *what = &lg_device_counters[p->u.value[i].what];
		lg_trk *counter = &d->device[p->device].counter[p->u.value[i].what];

		if (!*counter)
			*counter = counter_of(d, p->device, what->name, what->unit, 0);
		put(d, *counter, p->ts, p->u.value[i].value);
	}
}

static void add_users(struct lg_devices *d, const struct lg_device_packet *p)
{
	for (uint32_t i = 0; i < p->n; i++) {
		lg_thr thr = lg_thread_find(d->b, p->u.user[i].pid);
		lg_prc prc = thr ? lg_thread_process(d->b, thr) : 0;

		if (prc && lg_process_read(d->b, prc).pid == p->u.user[i].pid)
			put(d, counter_of(d, p->device, "gpu.process_mem", "bytes", prc), p->ts,
			    (double)p->u.user[i].bytes);
		else
			d->strangers++;
	}
}

static void add_xid(struct lg_devices *d, const struct lg_device_packet *p)
{
	struct device *g = &d->device[p->device];
	char name[24];
	lg_trk counter;
	size_t i = 0;

	while (i < g->n_xids && g->xid[i].number != p->n)
		i++;
	if (i == XIDS_MOST)
		return;
	snprintf(name, sizeof name, "gpu.xid_%u", p->n);
	counter = counter_of(d, p->device, name, "count", 0);
	if (i == g->n_xids) {
		g->xid[g->n_xids++].number = p->n;
		put(d, counter, p->ts - 1, 0);
	}
	put(d, counter, p->ts, ++g->xid[i].n);
}

static void add_names(struct lg_devices *d, const struct lg_device_packet *p)
{
	char key[24];

	snprintf(key, sizeof key, "gpu.%d.name", p->device);
	if (*p->u.is.name)
		lg_meta_set(d->b, 0, key, p->u.is.name);
	snprintf(key, sizeof key, "gpu.%d.uuid", p->device);
	if (*p->u.is.uuid)
		lg_meta_set(d->b, 0, key, p->u.is.uuid);
}

static void say(struct lg_devices *d, const char *fmt, ...) LG_PRINTF(2, 3);
static void say(struct lg_devices *d, const char *fmt, ...)
{
	char line[WHY + 64];
	va_list ap;

	if (!d->say)
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	d->say(d->say_arg, line);
}

static void take(struct lg_devices *d, const struct lg_device_child *c, const struct lg_device_packet *p)
{
	switch (p->kind) {
	case LG_DEVICE_READY:
		lg_meta_setf(d->b, 0, "record.devices", "%u of %s", p->n, p->u.text);
		say(d, "asking %u device%s (%s) %u time%s a second", p->n, p->n == 1 ? "" : "s", p->u.text,
		    d->hz, d->hz == 1 ? "" : "s");
		break;
	case LG_DEVICE_FAILED:
		lg_add_diag_now(d->b, LG_DIAG_NO_FEATURE, p->ts, 1, "counters of devices, %s: %s",
				lg_device_child_reader(c)->name, p->u.text);
		say(d, "without counters of devices: %s", p->u.text);
		break;
	case LG_DEVICE_IS:
		add_names(d, p);
		break;
	case LG_DEVICE_SAMPLE:
		add_sample(d, p);
		break;
	case LG_DEVICE_USERS:
		add_users(d, p);
		break;
	case LG_DEVICE_XID:
		add_xid(d, p);
		break;
	case LG_DEVICE_NOTE:
		lg_add_diag_now(d->b, LG_DIAG_PARTIAL, p->ts, 1, "devices, %s: %s",
				lg_device_child_reader(c)->name, p->u.text);
		break;
	default: /* NONE: nothing is missed */
		break;
	}
}

/* -- rounds -- */

void lg_devices_begin(struct lg_devices *d, struct lg_builder *b,
		      void (*tell)(void *arg, const char *line), void *arg)
{
	d->b = b;
	d->say = tell;
	d->say_arg = arg;
}

static void given_up(struct lg_devices *d, const char *why, int64_t now)
{
	lg_add_diag_now(d->b, LG_DIAG_PARTIAL, now, 1, "devices, %s; they are not asked any more", why);
	say(d, "devices are not asked any more: %s", why);
}

void lg_devices_read(struct lg_devices *d)
{
	for (size_t i = 0; i < d->n; i++)
		for (int k = 0; k < PACKETS_A_DRAIN; k++) {
			int64_t now = lg_monotonic_ns();
			struct lg_device_packet p;
			enum lg_device_heard heard;
			char why[WHY];

			heard = lg_device_child_hear(d->child[i], now, &p, why, sizeof why);
			if (heard == LG_HEARD_ENDED && *why)
				given_up(d, why, now);
			if (heard != LG_HEARD_PACKET)
				break;
			take(d, d->child[i], &p);
		}
}

void lg_devices_end(struct lg_devices *d)
{
	int64_t now = lg_monotonic_ns();
	uint64_t refused = 0;
	char why[WHY];

	lg_devices_read(d);
	for (size_t i = 0; i < d->n; i++) {
		if (lg_device_child_owes(d->child[i], now, why, sizeof why))
			lg_add_diag_now(d->b, LG_DIAG_PARTIAL, now, 1, "devices, %s, when the recording ended",
					why);
		refused += lg_device_child_refused(d->child[i]);
	}
	if (refused)
		lg_add_diag_now(d->b, LG_DIAG_NOT_UNDERSTOOD, now, refused,
				"readings of devices that cannot be were left out");
	if (d->strangers)
		lg_add_diag_now(d->b, LG_DIAG_PARTIAL, now, d->strangers,
				"memory of devices that processes hold which are not seen here");
	end_all(d); /* a command may go on for long after its recording */
}
