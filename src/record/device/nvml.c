/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvml.c - see nvml.h. Runs in a process of its own (device_worker.h), for the library as for the
 * driver behind it.
 *
 * What a card has not (NOT_SUPPORTED: power on a laptop's, utilisation with MIG) or an old library has
 * not is not asked again, and its counter is not there. Any other error costs one value.
 *
 * nvmlDeviceGetPcieThroughput() measures for 20 ms, twice a card: once a second a card at most, and
 * not longer than a quarter of a period in one sweep.
 */
#include "record/device/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "record/device/nvml_api.h"
#include "record/session.h"

#define SECOND INT64_C(1000000000)

enum call {
	NO_CALL, LOAD, /* as lg_device_doing() knows them */
#define CALL(id, args, name, older) id,
	LG_NVML_CALLS(CALL)
#undef CALL
	CALLS
};

struct call_name {
	const char *name, *older;
};

static const struct call_name names[CALLS] = {
	[LOAD] = { "dlopen(libnvidia-ml.so.1)", "" },
#define CALL(id, args, name, older) [id] = { name, older },
	LG_NVML_CALLS(CALL)
#undef CALL
};

enum { EVENTS_AT_ONCE = 16 };
_Static_assert(CALLS <= 64, "a bit each");

struct device {
	void *handle;
	uint64_t has_not; /* a bit for each call that is not supported */
	int64_t pcie;     /* when its throughput was asked */
	bool lost;
};

struct nvml {
	struct lg_device_out *o;
	int32_t first;
	/* NULL: this library has it not */
#define CALL(id, args, name, older) int(*f_##id) args;
	LG_NVML_CALLS(CALL)
#undef CALL
	void *events; /* NULL: none are told */
	unsigned n, first_pcie;
	struct device device[LG_DEVICES_MAX];
	struct lg_nvml_process processes[LG_DEVICE_USERS_MAX];
};

/* dlsym() returns an object's address for a function's: POSIX says that they are of one size. */
#define FIND(n, lib, id)                                                                              \
	do {                                                                                          \
		void *at_ = dlsym(lib, names[id].name);                                               \
		if (!at_ && *names[id].older)                                                         \
			at_ = dlsym(lib, names[id].older);                                            \
		memcpy(&(n)->f_##id, &at_, sizeof at_);                                               \
	} while (0)

/* Of no device. */
#define CALL_IT(n, id, ...)                                                                            \
	(lg_device_doing((n)->o, id, -1), (n)->f_##id ? (n)->f_##id(__VA_ARGS__) : LG_NVML_FUNCTION_NOT_FOUND)

static int32_t number_of(const struct nvml *n, const struct device *d)
{
	return n->first + (int32_t)(d - n->device);
}

static bool asks(const struct nvml *n, const struct device *d, enum call id, bool there)
{
	lg_device_doing(n->o, id, number_of(n, d));
	return there && !(d->has_not >> id & 1) && !d->lost;
}

static bool answered(struct nvml *n, struct device *d, enum call id, int rc)
{
	if (rc == LG_NVML_NOT_SUPPORTED || rc == LG_NVML_FUNCTION_NOT_FOUND)
		d->has_not |= UINT64_C(1) << id;
	if (rc == LG_NVML_GPU_IS_LOST) {
		d->lost = true;
		lg_device_say(n->o, LG_DEVICE_NOTE, -1, 0,
			      "%s says that device %d is lost: it has fallen off the bus or has stopped answering",
			      names[id].name, number_of(n, d));
	}
	return rc == LG_NVML_OK;
}

/* Of a device: true where it was answered. */
#define ASK(n, d, id, ...)                                                                             \
	(asks(n, d, id, (n)->f_##id != NULL) && answered(n, d, id, (n)->f_##id((d)->handle, __VA_ARGS__)))

static const char *call_name(uint32_t call)
{
	return call && call < CALLS ? names[call].name : NULL;
}

/* -- opening -- */

static void *refuse(struct nvml *n, enum lg_device_say kind, enum call id, int rc)
{
	const char *why = rc == LG_NVML_NO_PERMISSION
				  ? ": its device files (/dev/nvidia*) may not be opened by every user, and laggard asks as "
				    "nobody"
			  : rc == LG_NVML_DRIVER_NOT_LOADED   ? ": the driver is not loaded"
			  : rc == LG_NVML_VERSIONS_DIFFER ? ": library and driver are of different versions (a "
								     "driver was updated without a restart)"
							      : "";

	lg_device_say(n->o, kind, -1, 0, "%s: error %d of NVML%s", names[id].name, rc, why);
	lg_free(n);
	return NULL;
}

static void name_device(struct nvml *n, struct device *d)
{
	struct lg_device_packet p = { .kind = LG_DEVICE_IS, .device = number_of(n, d) };
	unsigned now = 0, then = 0;

	if (!ASK(n, d, NAME, p.u.is.name, sizeof p.u.is.name - 1))
		p.u.is.name[0] = 0;
	if (!ASK(n, d, UUID, p.u.is.uuid, sizeof p.u.is.uuid - 1))
		p.u.is.uuid[0] = 0;
	lg_device_send(n->o, &p);
	if (ASK(n, d, MIG, &now, &then) && now)
		lg_device_say(n->o, LG_DEVICE_NOTE, -1, 0,
			      "device %d is parted (MIG): how busy its parts are is not told", p.device);
}

static void open_devices(struct nvml *n, unsigned count)
{
	bool told = false;

	for (unsigned i = 0; i < count && n->n < LG_DEVICES_MAX; i++) {
		/* The number of a device is its place, also behind one that does not answer. */
		struct device *d = &n->device[n->n++];
		int rc = CALL_IT(n, HANDLE, i, &d->handle);

		d->lost = rc != LG_NVML_OK;
		if (!d->lost)
			name_device(n, d);
		else if (!told)
			lg_device_say(n->o, LG_DEVICE_NOTE, -1, 0, "device %d cannot be asked: error %d of NVML",
				      n->first + (int)i, rc);
		told |= d->lost;
	}
	if (count > LG_DEVICES_MAX)
		lg_device_say(n->o, LG_DEVICE_NOTE, -1, 0, "only %d of %u devices are asked", LG_DEVICES_MAX, count);
}

static void open_events(struct nvml *n)
{
	if (!n->f_WAIT || !n->f_REGISTER || CALL_IT(n, EVENTS, &n->events) != LG_NVML_OK) {
		n->events = NULL;
		return;
	}
	for (unsigned i = 0; i < n->n; i++)
		(void)ASK(n, &n->device[i], REGISTER, LG_NVML_EVENT_XID, n->events);
}

static void *open_nvml(const struct lg_device_reader *r, struct lg_device_out *o)
{
	struct nvml *n = lg_calloc(1, sizeof *n);
	char driver[80] = "";
	unsigned count = 0;
	void *lib;
	int rc;

	if (!n)
		return NULL;
	n->o = o;
	n->first = r->first;
	lg_device_doing(o, LOAD, -1);
	lib = dlopen(r->arg, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		lg_device_say(o, LG_DEVICE_NONE, -1, 0, "%s", dlerror());
		lg_free(n);
		return NULL;
	}
#define CALL(id, args, name, older) FIND(n, lib, id);
	LG_NVML_CALLS(CALL)
#undef CALL
	rc = CALL_IT(n, INIT);
	/* The library alone is in many images. */
	if (rc != LG_NVML_OK)
		return refuse(n, rc == LG_NVML_DRIVER_NOT_LOADED ? LG_DEVICE_NONE : LG_DEVICE_FAILED, INIT,
			      rc);
	if (CALL_IT(n, DRIVER, driver, sizeof driver - 1) != LG_NVML_OK)
		driver[0] = 0;
	driver[sizeof driver - 1] = 0;
	rc = CALL_IT(n, COUNT, &count);
	if (rc != LG_NVML_OK)
		return refuse(n, LG_DEVICE_FAILED, COUNT, rc);
	if (!count) {
		lg_device_say(o, LG_DEVICE_NONE, -1, 0, "NVML, driver %s: no devices", driver);
		lg_free(n);
		return NULL;
	}
	lg_device_say(o, LG_DEVICE_READY, -1, count, "NVML, driver %s", *driver ? driver : "of unknown version");
	open_devices(n, count);
	open_events(n);
	return n;
}

/* -- sweeps -- */

static void put_memory(struct nvml *n, struct device *d)
{
	struct lg_nvml_memory_v2 v2 = { .version = LG_NVML_MEMORY_V2 };
	struct lg_nvml_memory v1;

	if (ASK(n, d, MEMORY_V2, &v2)) {
		lg_device_put(n->o, LG_DC_MEM_USED, (double)v2.used);
		lg_device_put(n->o, LG_DC_MEM_TOTAL, (double)v2.total);
	} else if (ASK(n, d, MEMORY, &v1)) {
		lg_device_put(n->o, LG_DC_MEM_USED, (double)v1.used);
		lg_device_put(n->o, LG_DC_MEM_TOTAL, (double)v1.total);
	}
}

static void put_often(struct nvml *n, struct device *d)
{
	struct lg_nvml_utilization u;
	unsigned long long bits;
	unsigned v;

	if (ASK(n, d, UTILIZATION, &u)) {
		lg_device_put(n->o, LG_DC_UTIL, u.gpu);
		lg_device_put(n->o, LG_DC_MEM_UTIL, u.memory);
	}
	if (ASK(n, d, POWER, &v))
		lg_device_put(n->o, LG_DC_POWER, v / 1e3);
	if (ASK(n, d, LIMIT, &v))
		lg_device_put(n->o, LG_DC_POWER_LIMIT, v / 1e3);
	if (ASK(n, d, CLOCK, LG_NVML_CLOCK_SM, &v))
		lg_device_put(n->o, LG_DC_CLOCK_SM, v);
	if (ASK(n, d, CLOCK, LG_NVML_CLOCK_MEM, &v))
		lg_device_put(n->o, LG_DC_CLOCK_MEM, v);
	if (ASK(n, d, CLOCK_MOST, LG_NVML_CLOCK_SM, &v))
		lg_device_put(n->o, LG_DC_CLOCK_SM_MOST, v);
	if (ASK(n, d, REASONS, &bits))
		lg_device_put(n->o, LG_DC_THROTTLE, (double)bits);
	if (ASK(n, d, TEMPERATURE, LG_NVML_TEMPERATURE_GPU, &v))
		lg_device_put(n->o, LG_DC_TEMP, v);
	put_memory(n, d);
}

static void put_seldom(struct nvml *n, struct device *d)
{
	unsigned corrected, uncorrected, pending, failed, v;
	unsigned long long errors;

	if (ASK(n, d, PSTATE, &v))
		lg_device_put(n->o, LG_DC_PSTATE, v);
	if (ASK(n, d, ECC, LG_NVML_ECC_CORRECTED, LG_NVML_ECC_VOLATILE, &errors))
		lg_device_put(n->o, LG_DC_ECC_SBE, (double)errors);
	if (ASK(n, d, ECC, LG_NVML_ECC_UNCORRECTED, LG_NVML_ECC_VOLATILE, &errors))
		lg_device_put(n->o, LG_DC_ECC_DBE, (double)errors);
	if (ASK(n, d, REPLAY, &v))
		lg_device_put(n->o, LG_DC_PCIE_REPLAY, v);
	if (ASK(n, d, ROWS, &corrected, &uncorrected, &pending, &failed)) {
		lg_device_put(n->o, LG_DC_ROWS_CORRECTABLE, corrected);
		lg_device_put(n->o, LG_DC_ROWS_UNCORRECTABLE, uncorrected);
		lg_device_put(n->o, LG_DC_ROWS_PENDING, pending != 0);
		lg_device_put(n->o, LG_DC_ROWS_FAILURE, failed != 0);
	}
}

/* Which processes have memory of it. */
static void say_users(struct nvml *n, struct device *d)
{
	struct lg_device_packet p = { .kind = LG_DEVICE_USERS, .device = number_of(n, d) };
	struct lg_nvml_process_v1 old[LG_DEVICE_USERS_MAX];
	unsigned k = LG_DEVICE_USERS_MAX;

	p.ts = lg_monotonic_ns();
	memset(n->processes, 0, sizeof n->processes);
	if (n->f_PROCESSES) {
		if (!ASK(n, d, PROCESSES, &k, n->processes))
			return;
	} else {
		memset(old, 0, sizeof old);
		if (!ASK(n, d, PROCESSES_V1, &k, old))
			return;
		for (unsigned i = 0; i < LG_DEVICE_USERS_MAX; i++) {
			n->processes[i].pid = old[i].pid;
			n->processes[i].bytes = old[i].bytes;
		}
	}
	for (unsigned i = 0; i < k && i < LG_DEVICE_USERS_MAX; i++) {
		unsigned long long bytes = n->processes[i].bytes;

		p.u.user[p.n++] = (struct lg_device_user){ .pid = (int32_t)n->processes[i].pid,
							   .bytes = bytes == ~0ULL ? 0 : bytes };
	}
	lg_device_send(n->o, &p);
}

static void put_pcie(struct nvml *n, struct device *d)
{
	unsigned kb;

	d->pcie = lg_monotonic_ns();
	if (ASK(n, d, PCIE, LG_NVML_PCIE_RX, &kb))
		lg_device_put(n->o, LG_DC_PCIE_RX, kb * 1e3);
	if (ASK(n, d, PCIE, LG_NVML_PCIE_TX, &kb))
		lg_device_put(n->o, LG_DC_PCIE_TX, kb * 1e3);
}

static void say_events(struct nvml *n)
{
	for (int i = 0; n->events && i < EVENTS_AT_ONCE; i++) {
		struct lg_device_packet p = { .kind = LG_DEVICE_XID, .ts = lg_monotonic_ns() };
		struct lg_nvml_event e = { .device = NULL };
		int rc = CALL_IT(n, WAIT, n->events, &e, 0);

		if (rc != LG_NVML_OK) {
			/* Without a time to wait it says so when there is none. Else: none will be told. */
			if (rc != LG_NVML_TIMEOUT)
				n->events = NULL;
			return;
		}
		if (!(e.type & LG_NVML_EVENT_XID) || e.data > LG_DEVICE_XID_MAX)
			continue;
		for (unsigned k = 0; k < n->n; k++)
			if (n->device[k].handle == e.device && e.device) {
				p.device = n->first + (int32_t)k;
				p.n = (uint32_t)e.data;
				lg_device_send(n->o, &p);
				break;
			}
	}
}

static void sweep_one(struct nvml *n, struct device *d, bool seldom, int64_t *pcie_left)
{
	lg_device_begin(n->o, number_of(n, d));
	put_often(n, d);
	if (seldom)
		put_seldom(n, d);
	if (*pcie_left > 0 && lg_monotonic_ns() - d->pcie >= SECOND) {
		int64_t began = lg_monotonic_ns();

		put_pcie(n, d);
		*pcie_left -= lg_monotonic_ns() - began;
	}
	lg_device_end(n->o);
	if (seldom && !d->lost)
		say_users(n, d);
}

static void sweep(void *self, struct lg_device_out *o, bool seldom)
{
	struct nvml *n = self;
	int64_t pcie_left = o->period / 4;
	unsigned first = n->first_pcie;
	bool moved = false;

	/* From the one whose throughput was not asked for the longest. */
	for (unsigned i = 0; i < n->n; i++) {
		struct device *d = &n->device[(first + i) % n->n];

		if (pcie_left <= 0 && !moved) {
			moved = true;
			n->first_pcie = (first + i) % n->n;
		}
		if (!d->lost)
			sweep_one(n, d, seldom, &pcie_left);
	}
	say_events(n);
}

const struct lg_device_reader lg_device_nvml = {
	.name = "NVML",
	.arg = "libnvidia-ml.so.1",
	.open = open_nvml,
	.sweep = sweep,
	.call_name = call_name,
};
