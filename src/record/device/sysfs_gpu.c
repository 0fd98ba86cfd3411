/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sysfs_gpu.c - see sysfs_gpu.h. Which files a card has is found once; only those are read again.
 *
 * A card that sleeps (runtime power management) is not woken up to be asked: power/runtime_status says
 * so, and then its sample is empty.
 */
#include "record/device/sysfs_gpu.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/order.h"
#include "record/procfs.h"
#include "record/session.h"

enum { AMD = 0x1002, INTEL = 0x8086, NVIDIA = 0x10de, CARDS_MOST = 256, HWMONS_MOST = 16, PATH_BYTES = 256 };
enum call { NO_CALL, LIST, READ };

/* A number in a file of its own. */
struct number {
	enum lg_device_counter what;
	const char *file; /* below the card; "hwmon:" below its hwmon */
	double scale;
	bool seldom;
};

/* Of several that say the same the first that is there counts. */
static const struct number amd[] = {
	{ LG_DC_UTIL, "device/gpu_busy_percent", 1, false },
	{ LG_DC_MEM_UTIL, "device/mem_busy_percent", 1, false },
	{ LG_DC_MEM_USED, "device/mem_info_vram_used", 1, false },
	{ LG_DC_MEM_TOTAL, "device/mem_info_vram_total", 1, true },
	{ LG_DC_POWER, "hwmon:power1_average", 1e-6, false },
	{ LG_DC_POWER, "hwmon:power1_input", 1e-6, false },
	{ LG_DC_POWER_LIMIT, "hwmon:power1_cap", 1e-6, false },
	{ LG_DC_TEMP, "hwmon:temp1_input", 1e-3, false },
	{ LG_DC_CLOCK_SM, "hwmon:freq1_input", 1e-6, false },
	{ LG_DC_CLOCK_MEM, "hwmon:freq2_input", 1e-6, false },
	{ LG_DC_PCIE_REPLAY, "device/pcie_replay_count", 1, true },
};
static const struct number intel[] = {
	{ LG_DC_CLOCK_SM, "device/tile0/gt0/freq0/act_freq", 1, false },
	{ LG_DC_CLOCK_SM, "gt/gt0/rps_act_freq_mhz", 1, false },
	{ LG_DC_CLOCK_SM, "gt_act_freq_mhz", 1, false },
	{ LG_DC_CLOCK_SM_MOST, "device/tile0/gt0/freq0/rp0_freq", 1, true },
	{ LG_DC_CLOCK_SM_MOST, "gt/gt0/rps_RP0_freq_mhz", 1, true },
	{ LG_DC_CLOCK_SM_MOST, "gt_RP0_freq_mhz", 1, true },
	{ LG_DC_POWER_LIMIT, "hwmon:power1_max", 1e-6, false },
	{ LG_DC_TEMP, "hwmon:temp2_input", 1e-3, false }, /* xe: the package */
	{ LG_DC_TEMP, "hwmon:temp1_input", 1e-3, false },
};

/* Intel's reasons, in NVML's bits. PL1, PL2, PL4 are power limits; the rest is heat or the board's supply. */
static const struct {
	const char *name;
	uint32_t bit;
} reasons[] = {
	{ "pl1", LG_THROTTLE_SW_POWER_CAP }, { "pl2", LG_THROTTLE_SW_POWER_CAP },
	{ "pl4", LG_THROTTLE_HW_POWER_BRAKE }, { "thermal", LG_THROTTLE_HW_THERMAL },
	{ "prochot", LG_THROTTLE_HW_THERMAL }, { "ratl", LG_THROTTLE_HW_THERMAL },
	{ "vr_thermalert", LG_THROTTLE_HW_THERMAL }, { "vr_tdc", LG_THROTTLE_HW_SLOWDOWN },
};

enum { FILES_MOST = 16 };
_Static_assert(LG_COUNT(amd) <= FILES_MOST && LG_COUNT(intel) <= FILES_MOST, "a path each");

struct card {
	char dir[PATH_BYTES], hwmon[PATH_BYTES];
	unsigned vendor;
	struct {
		char path[PATH_BYTES];
		const struct number *n;
	} file[FILES_MOST];
	size_t n_files;
	char mem_temp[PATH_BYTES], energy[PATH_BYTES], reason[PATH_BYTES]; /* "" = none */
	double last_uj;
	int64_t last_ts;
};

struct cards {
	struct card *v;
	size_t n;
	int32_t first;
};

static const char *root_of(const char *root)
{
	return root ? root : "/sys";
}

/* false: it is not there, or no number. A card that sleeps says EPERM or EBUSY. */
static bool read_number(const char *path, double *ret)
{
	char text[64], *end;
	ssize_t n = *path ? lg_proc_read(path, text, sizeof text) : -1;

	if (n <= 0)
		return false;
	*ret = strtod(text, &end);
	return end != text && (*end == '\n' || !*end);
}

static unsigned vendor_of(const char *dir)
{
	char path[PATH_BYTES + 32], text[32];

	snprintf(path, sizeof path, "%s/device/vendor", dir);
	return lg_proc_read(path, text, sizeof text) > 0 ? (unsigned)strtoul(text, NULL, 16) : 0;
}

/* "card12": its number; -1: something else, such as a connector of it. */
static long card_number(const char *name)
{
	char *end;
	long n;

	if (strncmp(name, "card", 4) || name[4] < '0' || name[4] > '9')
		return -1;
	n = strtol(name + 4, &end, 10);
	return *end || n >= CARDS_MOST ? -1 : n;
}

/* Numbers of the cards that can be read, in order. */
static size_t list_cards(const char *root, long *number, size_t most)
{
	char dir[PATH_BYTES];
	bool there[CARDS_MOST] = { false };
	struct dirent *e;
	size_t n = 0;
	DIR *d;

	snprintf(dir, sizeof dir, "%s/class/drm", root_of(root));
	d = opendir(dir);
	while (d && (e = readdir(d))) {
		long k = card_number(e->d_name);
		unsigned vendor;

		if (k < 0)
			continue;
		snprintf(dir, sizeof dir, "%s/class/drm/card%ld", root_of(root), k);
		vendor = vendor_of(dir);
		there[k] = vendor == AMD || vendor == INTEL;
	}
	if (d)
		closedir(d);
	for (long k = 0; k < CARDS_MOST && n < most; k++)
		if (there[k])
			number[n++] = k;
	return n;
}

bool lg_sysfs_has_gpus(const char *root)
{
	long one;

	return list_cards(root, &one, 1) > 0;
}

int32_t lg_sysfs_count_nvidia(const char *root)
{
	char path[PATH_BYTES + 300], text[32];
	struct dirent *e;
	int32_t n = 0;
	DIR *d;

	snprintf(path, sizeof path, "%s/bus/pci/devices", root_of(root));
	d = opendir(path);
	while (d && (e = readdir(d))) {
		snprintf(path, sizeof path, "%s/bus/pci/devices/%s/vendor", root_of(root), e->d_name);
		if (lg_proc_read(path, text, sizeof text) <= 0 || strtoul(text, NULL, 16) != NVIDIA)
			continue;
		snprintf(path, sizeof path, "%s/bus/pci/devices/%s/class", root_of(root), e->d_name);
		/* PCI class 03: a display controller, with a display (00) or without (02) */
		n += lg_proc_read(path, text, sizeof text) > 0 && strtoul(text, NULL, 16) >> 16 == 3;
	}
	if (d)
		closedir(d);
	return n;
}

/* -- opening -- */

/* The first that is below a card's hwmon. */
static void find_hwmon(struct card *c)
{
	char dir[PATH_BYTES + 32];
	struct dirent *e;
	int looked = 0;
	DIR *d;

	snprintf(dir, sizeof dir, "%s/device/hwmon", c->dir);
	d = opendir(dir);
	while (d && !*c->hwmon && looked++ < HWMONS_MOST && (e = readdir(d)))
		if (!strncmp(e->d_name, "hwmon", 5) &&
		    (size_t)snprintf(c->hwmon, sizeof c->hwmon, "%s/%s", dir, e->d_name) >= sizeof c->hwmon)
			c->hwmon[0] = 0;
	if (d)
		closedir(d);
}

/* false: it is too long, or not there. */
static bool find(const struct card *c, const char *file, char path[PATH_BYTES])
{
	bool sensor = !strncmp(file, "hwmon:", 6);
	int n = sensor ? snprintf(path, PATH_BYTES, "%s/%s", c->hwmon, file + 6)
		       : snprintf(path, PATH_BYTES, "%s/%s", c->dir, file);

	if ((!sensor || *c->hwmon) && n < PATH_BYTES && !access(path, R_OK))
		return true;
	path[0] = 0;
	return false;
}

static void find_numbers(struct card *c, const struct number *v, size_t n)
{
	uint64_t have = 0;

	for (size_t i = 0; i < n; i++) {
		if (have >> v[i].what & 1 || !find(c, v[i].file, c->file[c->n_files].path))
			continue;
		have |= UINT64_C(1) << v[i].what;
		c->file[c->n_files++].n = &v[i];
	}
}

/* The temperature of its memory is the one that is called so. */
static void find_memory_sensor(struct card *c)
{
	for (int i = 1; i < 8; i++) {
		char file[32], path[PATH_BYTES], text[32] = "";

		snprintf(file, sizeof file, "hwmon:temp%d_label", i);
		if (!find(c, file, path) || lg_proc_read(path, text, sizeof text) <= 0)
			continue;
		text[strcspn(text, "\n")] = 0;
		snprintf(file, sizeof file, "hwmon:temp%d_input", i);
		if (!strcmp(text, "mem") || !strcmp(text, "vram")) {
			(void)find(c, file, c->mem_temp);
			return;
		}
	}
}

static void open_card(struct card *c)
{
	static const char *const dirs[] = { "device/tile0/gt0/freq0/throttle/reason_", "gt/gt0/throttle_reason_" };

	find_hwmon(c);
	find_memory_sensor(c);
	if (c->vendor == AMD) {
		find_numbers(c, amd, LG_COUNT(amd));
		return;
	}
	find_numbers(c, intel, LG_COUNT(intel));
	/* Channel 1 is the card, 2 the package: i915 has the card's, xe both or the second. */
	if (!find(c, "hwmon:energy1_input", c->energy))
		(void)find(c, "hwmon:energy2_input", c->energy);
	for (size_t i = 0; i < LG_COUNT(dirs) && !*c->reason; i++) {
		char file[64];

		snprintf(file, sizeof file, "%spl1", dirs[i]);
		if (find(c, file, c->reason))
			c->reason[strlen(c->reason) - 3] = 0;
	}
}

static void name_card(const struct card *c, struct lg_device_out *o, int32_t device)
{
	struct lg_device_packet p = { .kind = LG_DEVICE_IS, .device = device };
	char path[PATH_BYTES], text[64] = "";

	if (find(c, "device/product_name", path) && lg_proc_read(path, text, sizeof text) > 0)
		text[strcspn(text, "\n")] = 0;
	snprintf(p.u.is.name, sizeof p.u.is.name, "%s%s(%s)", *text ? text : c->vendor == AMD ? "AMD" : "Intel", " ",
		 strrchr(c->dir, '/') + 1);
	text[0] = 0;
	if (find(c, "device/unique_id", path) && lg_proc_read(path, text, sizeof text) > 0) {
		text[strcspn(text, "\n")] = 0;
		snprintf(p.u.is.uuid, sizeof p.u.is.uuid, "GPU-%s", text);
	}
	lg_device_send(o, &p);
}

static void *open_cards(const struct lg_device_reader *r, struct lg_device_out *o)
{
	long number[LG_DEVICES_MAX];
	size_t n, room = r->first < LG_DEVICES_MAX ? (size_t)(LG_DEVICES_MAX - r->first) : 0;
	struct cards *k = lg_calloc(1, sizeof *k);

	lg_device_doing(o, LIST, -1);
	n = list_cards(r->arg, number, room);
	if (k)
		k->v = lg_calloc(n + 1, sizeof *k->v);
	if (!k || !k->v || !n) {
		lg_device_say(o, LG_DEVICE_NONE, -1, 0, "no device of AMD or Intel in %s/class/drm",
			      root_of(r->arg));
		if (k)
			lg_free(k->v);
		lg_free(k);
		return NULL;
	}
	k->n = n;
	k->first = r->first;
	lg_device_say(o, LG_DEVICE_READY, -1, (uint32_t)n, "the kernel's files in %s/class/drm", root_of(r->arg));
	for (size_t i = 0; i < n; i++) {
		struct card *c = &k->v[i];

		lg_device_doing(o, LIST, k->first + (int32_t)i);
		snprintf(c->dir, sizeof c->dir, "%s/class/drm/card%ld", root_of(r->arg), number[i]);
		c->vendor = vendor_of(c->dir);
		open_card(c);
		name_card(c, o, k->first + (int32_t)i);
	}
	return k;
}

/* -- sweeps -- */

static bool sleeps(const struct card *c)
{
	char path[PATH_BYTES + 40], text[32];

	snprintf(path, sizeof path, "%s/device/power/runtime_status", c->dir);
	return lg_proc_read(path, text, sizeof text) > 0 && !strncmp(text, "suspended", 9);
}

/* Lines such as "2: 2100Mhz *", a level each. */
static void put_highest_level(const struct card *c, struct lg_device_out *o)
{
	char path[PATH_BYTES + 40], text[1024];
	double most = 0;

	snprintf(path, sizeof path, "%s/device/pp_dpm_sclk", c->dir);
	if (lg_proc_read(path, text, sizeof text) <= 0)
		return;
	for (const char *p = strchr(text, ':'); p; p = strchr(p + 1, ':')) {
		double mhz = strtod(p + 1, NULL);

		most = mhz > most ? mhz : most;
	}
	if (most > 0)
		lg_device_put(o, LG_DC_CLOCK_SM_MOST, most);
}

/* Energy, in microjoules, of which power is the rise. */
static void put_power(struct card *c, struct lg_device_out *o)
{
	double uj;
	int64_t now = lg_monotonic_ns();

	if (!read_number(c->energy, &uj))
		return;
	if (c->last_ts && uj > c->last_uj)
		lg_device_put(o, LG_DC_POWER, (uj - c->last_uj) * 1e-6 / ((double)(now - c->last_ts) * 1e-9));
	c->last_uj = uj;
	c->last_ts = now;
}

static void put_reasons(const struct card *c, struct lg_device_out *o)
{
	uint32_t bits = 0;
	bool any = false;

	for (size_t i = 0; i < LG_COUNT(reasons) && *c->reason; i++) {
		char path[PATH_BYTES + 32];
		double on;

		snprintf(path, sizeof path, "%s%s", c->reason, reasons[i].name);
		if (!read_number(path, &on))
			continue;
		any = true;
		bits |= on > 0 ? reasons[i].bit : 0;
	}
	if (any)
		lg_device_put(o, LG_DC_THROTTLE, bits);
}

static void sweep_card(struct card *c, struct lg_device_out *o, bool seldom)
{
	double v;

	for (size_t i = 0; i < c->n_files; i++)
		/* A limit of 0 is none. */
		if ((seldom || !c->file[i].n->seldom) && read_number(c->file[i].path, &v) &&
		    (v > 0 || c->file[i].n->what != LG_DC_POWER_LIMIT))
			lg_device_put(o, c->file[i].n->what, v * c->file[i].n->scale);
	if (read_number(c->mem_temp, &v))
		lg_device_put(o, LG_DC_MEM_TEMP, v * 1e-3);
	if (c->vendor == AMD && seldom)
		put_highest_level(c, o);
	put_power(c, o);
	put_reasons(c, o);
}

static void sweep(void *self, struct lg_device_out *o, bool seldom)
{
	struct cards *k = self;

	for (size_t i = 0; i < k->n; i++) {
		int32_t device = k->first + (int32_t)i;

		lg_device_doing(o, READ, device);
		lg_device_begin(o, device);
		if (!sleeps(&k->v[i]))
			sweep_card(&k->v[i], o, seldom);
		lg_device_end(o);
	}
}

static const char *call_name(uint32_t call)
{
	return call == LIST ? "listing the files" : call == READ ? "reading a file" : NULL;
}

const struct lg_device_reader lg_device_sysfs = {
	.name = "sysfs",
	.open = open_cards,
	.sweep = sweep,
	.call_name = call_name,
};
