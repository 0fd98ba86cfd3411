/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_devices.c - what is said of devices that are asked while a recording goes on, from the
 * library's answers to the verdict, and what a library can do that hangs, dies, lies or wants out.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/confine.h"
#include "base/order.h"
#include "outcome.h"
#include "record/device/device_child.h"
#include "record/device/devices.h"
#include "record/device/nvml.h"
#include "record/device/sysfs_gpu.h"
#include "store/builder.h"
#include "store/merge.h"

enum { HZ = 200, OFTEN_US = 5000, PATIENCE_S = 60, SOME = 90, FEW = 20 };

static char folder[] = "/tmp/laggard-devices-XXXXXX"; /* the process that asks may not read ours */
static char said[1024];
static int as_rank = -1; /* what this process is in the next recordings */

static void copy(const char *from, const char *name)
{
	char path[256], buf[65536];
	int in = open(from, O_RDONLY), out;
	ssize_t n;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	out = open(path, O_WRONLY | O_CREAT, 0755);
	assert_true(in >= 0 && out >= 0);
	while ((n = read(in, buf, sizeof buf)) > 0)
		assert_int_equal(write(out, buf, (size_t)n), n);
	close(in);
	close(out);
}

static int set_up(void **state)
{
	const char *current = getenv("LG_NVML"), *old = getenv("LG_NVML_OLD");

	(void)state;
	if (!current || !old || !mkdtemp(folder) || chmod(folder, 0755))
		return -1;
	copy(current, "current.so");
	copy(old, "old.so");
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	(void)st, (void)kind, (void)at;
	return remove(path);
}

static int tear_down(void **state)
{
	(void)state;
	return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void keep_line(void *arg, const char *line)
{
	(void)arg;
	snprintf(said + strlen(said), sizeof said - strlen(said), "%s\n", line);
}

static void begin_to_play(const char *play)
{
	if (setenv("NVML_PLAYS", play, 1))
		abort();
}

/* A recording with nothing but devices, in which that is played, until it has so many rows of a counter of
 * the second device, or for so many ms. */
struct until {
	const char *counter;
	size_t rows;
	int ms;
};

static size_t rows_of(const struct lg_trace *t, const char *name)
{
	size_t n = 0;

	for (size_t i = 0; i < t->counter.n; i++)
		n += t->track.index[t->counter.track[i]] == 1 &&
		     !strcmp(lg_string(t, t->track.name[t->counter.track[i]]), name);
	return n;
}

static bool is_over(struct lg_builder *b, const struct until *u, int64_t began)
{
	struct lg_trace *t = lg_builder_trace(b);

	if (lg_monotonic_ns() - began > PATIENCE_S * 1000 * MS)
		return true;
	if (u->ms)
		return lg_monotonic_ns() - began > u->ms * MS;
	/* Whoever has given up says nothing more. */
	return rows_of(t, u->counter) >= u->rows || (t->diag.n && strstr(said, "not asked any more"));
}

static struct lg_trace *record_from(const struct lg_device_reader *r, const struct until *u)
{
	const struct lg_device_reader *const readers[] = { r };
	struct lg_devices *d;
	struct lg_builder *b;
	struct lg_trace *t;
	int64_t began = lg_monotonic_ns();

	said[0] = 0;
	assert_int_equal(lg_builder_new(&b, NULL), 0);
	d = lg_devices_new(readers, 1, HZ);
	assert_non_null(d);
	assert_true(lg_thread_start(b, 1, getpid(), getpid(), lg_monotonic_ns()));
	if (as_rank >= 0) {
		lg_prc p = lg_process_get(b, getpid());
		struct lg_process_row row = lg_process_read(b, p);

		row.role = LG_ROLE_RANK;
		row.rank = as_rank;
		lg_process_write(b, p, &row);
	}
	lg_devices_begin(d, b, keep_line, NULL);
	do {
		usleep(OFTEN_US);
		lg_devices_read(d);
	} while (!is_over(b, u, began));
	lg_devices_end(d);
	lg_devices_free(d);
	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	return t;
}

static struct lg_trace *record_until(const char *play, const char *library, const struct until *u)
{
	char path[256];
	struct lg_device_reader r = lg_device_nvml;

	begin_to_play(play);
	snprintf(path, sizeof path, "%s/%s.so", folder, library);
	r.arg = path;
	return record_from(&r, u);
}

static struct lg_trace *record_some(const char *play, const char *library, const char *counter, size_t rows)
{
	return record_until(play, library, &(struct until){ .counter = counter, .rows = rows });
}

static struct lg_trace *record_ms(const char *play, int ms)
{
	return record_until(play, "current", &(struct until){ .ms = ms });
}

static struct outcome record(const char *play)
{
	return judge(record_some(play, "current", "gpu.power", SOME));
}

/* Values of a counter of a device: their number, and the last one. */
static size_t values(const struct lg_trace *t, const char *name, int gpu, double *ret_last)
{
	size_t n = 0;

	*ret_last = (double)NAN;
	for (size_t i = 0; i < t->counter.n; i++) {
		lg_trk k = t->counter.track[i];

		if (t->track.index[k] != gpu || strcmp(lg_string(t, t->track.name[k]), name))
			continue;
		assert_int_equal(t->track.kind[t->track.parent[k]], LG_TRACK_GPU);
		*ret_last = t->counter.value[i];
		n++;
	}
	return n;
}

static bool has_evidence(const struct lg_finding *f, const char *words)
{
	for (size_t i = 0; f && i < f->n_evidence; i++)
		if (strstr(f->evidence[i].text, words))
			return true;
	return false;
}

static bool has_diag(const struct lg_trace *t, enum lg_diag_id id, const char *words)
{
	for (size_t i = 0; i < t->diag.n; i++)
		if (t->diag.id[i] == id && strstr(lg_string(t, t->diag.text[i]), words))
			return true;
	return false;
}

static void assert_whole(const struct lg_trace *t)
{
	if (t->diag.n)
		fail_msg("%zu losses, the first: %s", t->diag.n, lg_string(t, t->diag.text[0]));
}

static void cards_under_work_are_healthy(void **state)
{
	struct outcome o = record("healthy");
	double last;

	(void)state;
	if (o.v->n_findings)
		fail_msg("%s", o.v->findings[0].title);
	assert_whole(o.t);
	assert_true(values(o.t, "gpu.util", 0, &last) >= 40 && last == 97);
	assert_true(values(o.t, "gpu.mem_util", 0, &last) && last == 45);
	assert_true(values(o.t, "gpu.power", 1, &last) && last == 610);
	assert_true(values(o.t, "gpu.power_limit", 1, &last) && last == 700);
	assert_true(values(o.t, "gpu.clock_sm", 1, &last) && last == 1980);
	assert_true(values(o.t, "gpu.clocks.max.sm", 1, &last) && last == 1980);
	assert_true(values(o.t, "gpu.clock_mem", 1, &last) && last == 2619);
	assert_true(values(o.t, "gpu.temp", 1, &last) && last == 62);
	assert_true(values(o.t, "gpu.mem_used", 1, &last) && last == 60.0 * (1 << 30)); /* not what is reserved */
	assert_true(values(o.t, "gpu.mem_total", 1, &last) && last == 80.0 * (1 << 30));
	assert_true(values(o.t, "gpu.throttle", 1, &last) && last == 0);
	assert_true(values(o.t, "gpu.ecc_dbe", 1, &last) && last == 0);
	assert_true(values(o.t, "gpu.pcie.replay", 1, &last) && last == 3);
	assert_true(values(o.t, "gpu.pcie_rx", 0, &last) && last == 12e9);
	assert_true(values(o.t, "gpu.pcie_tx", 0, &last) && last == 3e9);
	assert_int_equal(values(o.t, "gpu.remapped_rows.pending", 0, &last), 0); /* it has no such function */
	assert_int_equal(values(o.t, "gpu.process_mem", 0, &last), 0);
	assert_string_equal(lg_meta_get(o.t, "record.devices"), "2 of NVML, driver 550.54.15");
	assert_string_equal(lg_meta_get(o.t, "gpu.1.name"), "Stand-in 80GB");
	assert_string_equal(lg_meta_get(o.t, "gpu.1.uuid"), "GPU-00000000-0000-0000-0000-000000000001");
	assert_string_equal(said, "asking 2 devices (NVML, driver 550.54.15) 200 times a second\n");
	done(&o);
}

static void an_old_driver_has_functions_without_a_version(void **state)
{
	struct outcome o = judge(record_some("hot", "old", "gpu.power", SOME));
	double last;

	(void)state;
	assert_non_null(find(o.v, "gpu.throttled"));
	assert_whole(o.t);
	assert_true(values(o.t, "gpu.util", 1, &last) >= 40 && last == 97);
	assert_true(values(o.t, "gpu.mem_used", 1, &last) && last == 60.5 * (1 << 30));
	done(&o);
}

static void a_hot_card_is_throttled(void **state)
{
	struct outcome o = record("hot");
	const struct lg_finding *f = find(o.v, "gpu.throttled");

	(void)state;
	assert_non_null(f);
	assert_non_null(strstr(f->title, "device 1 is throttled (too hot)"));
	assert_true(f->lost_share > 0.1 && f->lost_share < 0.35); /* 44 % slower, half of the time */
	done(&o);
}

static void a_power_limit_that_came_down_is_a_throttle(void **state)
{
	struct outcome o = record("capped");
	const struct lg_finding *f = find(o.v, "gpu.throttled");

	(void)state;
	assert_non_null(f);
	assert_string_equal(f->detail, "power");
	assert_non_null(strstr(f->title, "device 1"));
	done(&o);
}

static void busy_cards_that_draw_nothing_spin(void **state)
{
	struct outcome o = record("spins");

	(void)state;
	assert_non_null(find(o.v, "gpu.util_lies"));
	assert_null(find(o.v, "gpu.throttled"));
	done(&o);
}

/* Silence is no all-clear where nothing was judged. */
static void few_readings_are_said_to_be_too_few(void **state)
{
	struct outcome o = judge(record_some("hot", "current", "gpu.power", 8));

	(void)state;
	assert_null(find(o.v, "gpu.throttled"));
	assert_true(has_limit(o.v, "too few to judge clocks and utilisation, which takes 30"));
	done(&o);
	o = record("healthy");
	assert_false(has_limit(o.v, "too few"));
	done(&o);
}

static void errors_of_memory_and_of_the_driver_are_told(void **state)
{
	struct lg_trace *t = record_some("errors", "current", "gpu.ecc_dbe", 3);
	struct outcome o;
	double last;

	(void)state;
	assert_int_equal(values(t, "gpu.xid_79", 1, &last), 3);
	assert_true(last == 2);
	assert_true(values(t, "gpu.xid_48", 1, &last) == 2 && last == 1);
	assert_true(values(t, "gpu.ecc_dbe", 1, &last) && last == 2);
	assert_true(values(t, "gpu.ecc_dbe", 0, &last) && last == 0);
	o = judge(t);
	assert_true(has_limit(o.v, "errors that the driver reported (Xid)"));
	assert_true(has_limit(o.v, "gpu.xid_79 of device 1 is at 2, 2 more than when the input began"));
	assert_true(has_limit(o.v, "gpu.ecc_dbe of device 1 is at 2, 2 more than when the input began"));
	assert_true(has_limit(o.v, "gpu.ecc_sbe of device 1 is at 40"));
	done(&o);
	o = record("healthy");
	assert_false(has_limit(o.v, "Xid"));
	assert_false(has_limit(o.v, "ECC"));
	done(&o);
}

static void the_processes_that_hold_memory_are_known(void **state)
{
	char pid[16];
	struct outcome o;
	struct lg_trace *t;
	double last;

	(void)state;
	snprintf(pid, sizeof pid, "%d", (int)getpid());
	assert_int_equal(setenv("NVML_PID", pid, 1), 0);
	t = record_some("healthy", "current", "gpu.process_mem", 1);
	assert_true(values(t, "gpu.process_mem", 1, &last) && last == 59.0 * (1 << 30));
	for (lg_trk k = 1; k < t->track.n; k++)
		if (!strcmp(lg_string(t, t->track.name[k]), "gpu.process_mem"))
			assert_int_equal(t->process.pid[t->track.prc[k]], getpid());
	assert_whole(t);
	lg_trace_free(t);
	/* One that no source has told of: another PID namespace's, perhaps. */
	assert_int_equal(setenv("NVML_PID", "4194303", 1), 0);
	t = record_some("healthy", "current", "gpu.power", SOME);
	assert_int_equal(values(t, "gpu.process_mem", 1, &last), 0);
	assert_true(has_diag(t, LG_DIAG_PARTIAL, "memory of devices"));
	lg_trace_free(t);
	/* Whose device is slow: the rank's, whatever else holds of it. */
	snprintf(pid, sizeof pid, "%d", (int)getpid());
	assert_int_equal(setenv("NVML_PID", pid, 1), 0);
	o = record("hot");
	assert_true(has_evidence(find(o.v, "gpu.throttled"), "device 1 is used by pid "));
	done(&o);
	as_rank = 5;
	o = record("hot");
	assert_true(has_evidence(find(o.v, "gpu.throttled"), "device 1 is rank 5's (pid "));
	done(&o);
	as_rank = -1;
	assert_int_equal(unsetenv("NVML_PID"), 0);
}

static void what_a_card_has_not_is_not_made_up(void **state)
{
	struct lg_trace *t = record_some("parted", "current", "gpu.power", FEW);
	double last;

	(void)state;
	assert_int_equal(values(t, "gpu.util", 0, &last), 0);
	assert_true(values(t, "gpu.power", 0, &last) > 0);
	assert_true(has_diag(t, LG_DIAG_PARTIAL, "device 1 is parted (MIG)"));
	lg_trace_free(t);
	t = record_ms("has-nothing", 1000);
	assert_int_equal(t->counter.n, 0);
	assert_whole(t);
	lg_trace_free(t);
}

/* Nothing is missed where there is nothing; what should be there is. */
static void a_library_without_devices_is_silent(void **state)
{
	static const struct {
		const char *play, *library, *diag;
	} rows[] = {
		{ "healthy", "there-is-none", NULL }, { "no-devices", "current", NULL },
		{ "no-driver", "current", NULL }, { "no-driver", "old", NULL },
		{ "may-not", "current", "may not be opened by every user" },
		{ "mismatch", "current", "of different versions" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct lg_trace *t = record_until(rows[i].play, rows[i].library,
						  &(struct until){ .ms = rows[i].diag ? 3000 : 500 });

		assert_int_equal(t->counter.n, 0);
		assert_int_equal(t->diag.n, rows[i].diag != NULL);
		if (rows[i].diag)
			assert_true(has_diag(t, LG_DIAG_NO_FEATURE, rows[i].diag));
		assert_int_equal(*said != 0, rows[i].diag != NULL);
		lg_trace_free(t);
	}
}

static void who_hangs_costs_no_time_and_is_named(void **state)
{
	int64_t began = lg_monotonic_ns();
	struct lg_trace *t = record_ms("hangs-at-once", 2500);
	double last;

	(void)state;
	assert_true(lg_monotonic_ns() - began < 4000 * MS);
	assert_true(has_diag(t, LG_DIAG_PARTIAL, "nvmlInit_v2 has not returned for 2."));
	assert_true(has_diag(t, LG_DIAG_PARTIAL, "when the recording ended"));
	lg_trace_free(t);
	/* In the middle: what came before counts, and it is given up after five seconds. */
	began = lg_monotonic_ns();
	t = record_some("hangs", "current", "gpu.power", 1000);
	assert_true(lg_monotonic_ns() - began < PATIENCE_S * 1000 * MS);
	assert_true(has_diag(t, LG_DIAG_PARTIAL, "nvmlDeviceGetPowerUsage of device 1 has not returned for 5."));
	assert_true(has_diag(t, LG_DIAG_PARTIAL, "they are not asked any more"));
	assert_non_null(strstr(said, "devices are not asked any more: NVML: nvmlDeviceGetPowerUsage of device 1"));
	assert_true(values(t, "gpu.util", 0, &last) > 10);
	lg_trace_free(t);
}

static void who_dies_takes_nobody_along(void **state)
{
	struct lg_trace *t = record_some("crashes-at-once", "current", "gpu.power", 1000);
	double last;

	(void)state;
	assert_true(has_diag(t, LG_DIAG_PARTIAL, "ended the process that asks, in nvmlInit_v2"));
	lg_trace_free(t);
	t = record_some("crashes", "current", "gpu.power", 1000);
	assert_true(has_diag(t, LG_DIAG_PARTIAL, "ended the process that asks, in nvmlDeviceGetClockInfo of device"));
	assert_true(values(t, "gpu.util", 0, &last) > 10);
	lg_trace_free(t);
	t = record_some("ends", "current", "gpu.power", 1000);
	assert_true(has_diag(t, LG_DIAG_PARTIAL, "the process that asks ended, in nvmlDeviceGetPowerUsage"));
	lg_trace_free(t);
	t = record_ms("lost", 2000);
	assert_true(has_diag(t, LG_DIAG_PARTIAL, "device 1 is lost"));
	assert_true(values(t, "gpu.util", 0, &last) > values(t, "gpu.util", 1, &last) + 10);
	lg_trace_free(t);
}

/* The texts, too: whatever is in a trace may be printed. */
static void assert_clean(const struct lg_trace *t)
{
	for (size_t i = 0; i < t->meta.n; i++)
		for (const char *s = lg_string(t, t->meta.value[i]); *s; s++)
			assert_true(*s >= ' ' && *s <= '~');
	for (size_t i = 0; i < t->counter.n; i++)
		assert_true(isfinite(t->counter.value[i]) && t->counter.value[i] < 1e15);
}

static void answers_that_cannot_be_are_left_out(void **state)
{
	struct lg_trace *t = record_some("garbage", "current", "gpu.clock_sm", FEW);
	double last;

	(void)state;
	assert_clean(t);
	assert_int_equal(values(t, "gpu.util", 0, &last), 0);
	assert_int_equal(values(t, "gpu.temp", 0, &last), 0);
	assert_true(values(t, "gpu.clock_sm", 63, &last) > 0 && last == 1980);
	assert_int_equal(values(t, "gpu.process_mem", 0, &last), 0);
	assert_true(has_diag(t, LG_DIAG_NOT_UNDERSTOOD, "cannot be"));
	assert_true(has_diag(t, LG_DIAG_PARTIAL, "only 64 of 1000 devices"));
	lg_trace_free(t);
	t = record_some("many", "current", "gpu.clock_sm", FEW);
	assert_true(values(t, "gpu.util", 63, &last) > 0);
	assert_int_equal(values(t, "gpu.util", 64, &last), 0);
	lg_trace_free(t);
}

/* Whoever has taken it over can say what he likes: it is bounded, and ends. */
static void lies_are_bounded(void **state)
{
	struct lg_trace *t = record_some("lies", "current", "gpu.clock_sm", 1000);

	(void)state;
	assert_clean(t);
	assert_true(has_diag(t, LG_DIAG_PARTIAL, "says what cannot be") ||
		    has_diag(t, LG_DIAG_NOT_UNDERSTOOD, "cannot be"));
	assert_true(t->counter.n < 100000);
	lg_trace_free(t);
}

static void a_library_can_do_nothing_but_answer(void **state)
{
	struct lg_trace *t;

	(void)state;
	if (LG_CONFINE_SANITIZER) {
		print_message("a sanitizer needs the calls that are refused\n");
		skip();
	}
	t = record_ms("breaks-out", 1000);
	assert_string_equal(lg_meta_get(t, "record.devices"), "1 of NVML, driver 550.54.15");
	lg_trace_free(t);
}

static void doctor_says_what_is_there(void **state)
{
	char path[256];
	struct lg_device_reader r = lg_device_nvml;
	const struct lg_device_reader *const readers[] = { &r };
	struct lg_probe p = { 0 };
	struct lg_devices *d;

	(void)state;
	r.arg = path;
	snprintf(path, sizeof path, "%s/current.so", folder);
	begin_to_play("healthy");
	d = lg_devices_new(readers, 1, 1);
	lg_devices_probe(d, &p);
	lg_devices_free(d);
	assert_true(p.works);
	assert_string_equal(p.found, "2 devices (NVML, driver 550.54.15)");
	snprintf(path, sizeof path, "%s/there-is-none.so", folder);
	p = (struct lg_probe){ 0 };
	d = lg_devices_new(readers, 1, 1);
	lg_devices_probe(d, &p);
	lg_devices_free(d);
	assert_false(p.works);
	assert_non_null(strstr(p.why, "cannot open shared object file"));
	begin_to_play("hangs-at-once");
	snprintf(path, sizeof path, "%s/current.so", folder);
	p = (struct lg_probe){ 0 };
	d = lg_devices_new(readers, 1, 1);
	lg_devices_probe(d, &p);
	lg_devices_free(d);
	assert_false(p.works);
	assert_non_null(strstr(p.why, "nvmlInit_v2 has not returned for"));
}

/* Files below the folder: a made-up /sys. */
struct file {
	const char *path, *text;
};

static void make_files(const char *root, const struct file *f, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char path[256];
		int fd;

		snprintf(path, sizeof path, "%s/%s/%s", folder, root, f[i].path);
		for (char *s = path + strlen(folder) + 1; (s = strchr(s, '/')); s++) {
			*s = 0;
			if (mkdir(path, 0755))
				assert_int_equal(errno, EEXIST);
			*s = '/';
		}
		fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
		assert_true(fd >= 0);
		assert_int_equal(write(fd, f[i].text, strlen(f[i].text)), (ssize_t)strlen(f[i].text));
		close(fd);
	}
}

static struct lg_trace *record_files(const char *root, int32_t first, const struct until *u)
{
	struct lg_device_reader r = lg_device_sysfs;
	char path[256];

	snprintf(path, sizeof path, "%s/%s", folder, root);
	r.arg = path;
	r.first = first;
	return record_from(&r, u);
}

#define CARD "class/drm/card"
/* Three cards of AMD behind the board's own display, and a connector; one has the newer file of power. */
static const struct file amd[] = {
	{ CARD "0/device/vendor", "0x1a03\n" }, { CARD "1-DP-1/device/vendor", "0x1002\n" },
	{ CARD "1/device/vendor", "0x1002\n" }, { CARD "2/device/vendor", "0x1002\n" },
	{ CARD "1/device/product_name", "Instinct MI210\n" }, { CARD "1/device/unique_id", "8f00ba12c0de0001\n" },
	{ CARD "1/device/gpu_busy_percent", "98\n" }, { CARD "1/device/mem_busy_percent", "33\n" },
	{ CARD "1/device/mem_info_vram_used", "60129542144\n" },
	{ CARD "1/device/mem_info_vram_total", "68702699520\n" },
	{ CARD "1/device/pp_dpm_sclk", "0: 500Mhz\n1: 1200Mhz *\n2: 1700Mhz\n" },
	{ CARD "1/device/hwmon/hwmon3/power1_input", "281000000\n" },
	{ CARD "1/device/hwmon/hwmon3/power1_cap", "300000000\n" },
	{ CARD "1/device/hwmon/hwmon3/temp1_input", "55000\n" },
	{ CARD "1/device/hwmon/hwmon3/temp1_label", "edge\n" },
	{ CARD "1/device/hwmon/hwmon3/temp3_input", "71000\n" },
	{ CARD "1/device/hwmon/hwmon3/temp3_label", "mem\n" },
	{ CARD "1/device/hwmon/hwmon3/freq1_input", "1700000000\n" },
	{ CARD "1/device/hwmon/hwmon3/freq2_input", "1600000000\n" },
	{ CARD "2/device/gpu_busy_percent", "98\n" }, { CARD "2/device/mem_busy_percent", "30\n" },
	{ CARD "2/device/hwmon/hwmon4/power1_average", "270000000\n" },
	{ CARD "2/device/hwmon/hwmon4/power1_cap", "300000000\n" },
	{ CARD "2/device/hwmon/hwmon4/freq1_input", "1690000000\n" },
	{ CARD "3/device/vendor", "0x1002\n" }, { CARD "3/device/gpu_busy_percent", "97\n" },
	{ CARD "3/device/mem_busy_percent", "31\n" },
	{ CARD "3/device/hwmon/hwmon5/power1_average", "275000000\n" },
	{ CARD "3/device/hwmon/hwmon5/power1_cap", "300000000\n" },
	{ CARD "3/device/hwmon/hwmon5/freq1_input", "1695000000\n" },
};

static void cards_of_amd_are_read_from_files(void **state)
{
	static const struct file slow[] = {
		{ CARD "2/device/hwmon/hwmon4/freq1_input", "1100000000\n" },
	};
	static const struct file spins[] = {
		{ CARD "1/device/hwmon/hwmon3/power1_input", "95000000\n" },
		{ CARD "2/device/hwmon/hwmon4/power1_average", "95000000\n" },
		{ CARD "2/device/hwmon/hwmon4/freq1_input", "1690000000\n" },
		{ CARD "3/device/hwmon/hwmon5/power1_average", "95000000\n" }, { CARD "3/device/mem_busy_percent", "0\n" },
		{ CARD "1/device/mem_busy_percent", "0\n" }, { CARD "2/device/mem_busy_percent", "0\n" },
	};
	static const struct until enough = { .counter = "gpu.power", .rows = SOME };
	struct outcome o;
	double last;

	(void)state;
	make_files("amd", amd, LG_COUNT(amd));
	o = judge(record_files("amd", 0, &enough));
	if (o.v->n_findings)
		fail_msg("%s", o.v->findings[0].title);
	assert_whole(o.t);
	assert_true(values(o.t, "gpu.util", 0, &last) && last == 98);
	assert_true(values(o.t, "gpu.mem_util", 0, &last) && last == 33);
	assert_true(values(o.t, "gpu.mem_used", 0, &last) && last == 60129542144.0);
	assert_true(values(o.t, "gpu.mem_total", 0, &last) && last == 68702699520.0);
	assert_true(values(o.t, "gpu.power", 0, &last) && fabs(last - 281) < 1e-6);
	assert_true(values(o.t, "gpu.power", 1, &last) && fabs(last - 270) < 1e-6);
	assert_true(values(o.t, "gpu.power_limit", 0, &last) && fabs(last - 300) < 1e-6);
	assert_true(values(o.t, "gpu.temp", 0, &last) && fabs(last - 55) < 1e-6);
	assert_true(values(o.t, "gpu.mem_temp", 0, &last) && fabs(last - 71) < 1e-6);
	assert_true(values(o.t, "gpu.clock_sm", 0, &last) && fabs(last - 1700) < 1e-6);
	assert_true(values(o.t, "gpu.clock_mem", 0, &last) && fabs(last - 1600) < 1e-6);
	assert_true(values(o.t, "gpu.clocks.max.sm", 0, &last) && last == 1700);
	assert_int_equal(values(o.t, "gpu.temp", 1, &last), 0);
	assert_string_equal(lg_meta_get(o.t, "gpu.0.name"), "Instinct MI210 (card1)");
	assert_string_equal(lg_meta_get(o.t, "gpu.0.uuid"), "GPU-8f00ba12c0de0001");
	assert_string_equal(lg_meta_get(o.t, "gpu.1.name"), "AMD (card2)");
	done(&o);
	make_files("amd", slow, LG_COUNT(slow));
	o = judge(record_files("amd", 0, &enough));
	assert_non_null(find(o.v, "gpu.throttled"));
	assert_non_null(strstr(find(o.v, "gpu.throttled")->title, "device 1 is clocked 35 % lower than its peers"));
	done(&o);
	make_files("amd", spins, LG_COUNT(spins));
	o = judge(record_files("amd", 0, &enough));
	assert_non_null(find(o.v, "gpu.util_lies"));
	done(&o);
}

static void cards_of_intel_are_read_from_files(void **state)
{
	static const struct file i915[] = {
		{ CARD "0/device/vendor", "0x8086\n" }, { CARD "0/gt/gt0/rps_act_freq_mhz", "1250\n" },
		{ CARD "0/gt/gt0/rps_RP0_freq_mhz", "2050\n" },
		{ CARD "0/gt/gt0/throttle_reason_status", "1\n" }, { CARD "0/gt/gt0/throttle_reason_pl1", "1\n" },
		{ CARD "0/gt/gt0/throttle_reason_thermal", "1\n" },
		{ CARD "0/gt/gt0/throttle_reason_prochot", "0\n" },
		{ CARD "0/device/hwmon/hwmon1/power1_max", "120000000\n" },
		/* xe */
		{ CARD "1/device/vendor", "0x8086\n" }, { CARD "1/device/tile0/gt0/freq0/act_freq", "2000\n" },
		{ CARD "1/device/tile0/gt0/freq0/rp0_freq", "2400\n" },
		{ CARD "1/device/tile0/gt0/freq0/throttle/reason_pl1", "0\n" },
		{ CARD "1/device/hwmon/hwmon2/temp2_input", "64000\n" },
		{ CARD "1/device/hwmon/hwmon2/power1_max", "0\n" },
		/* asleep: not to be woken */
		{ CARD "2/device/vendor", "0x8086\n" }, { CARD "2/device/power/runtime_status", "suspended\n" },
		{ CARD "2/gt_act_freq_mhz", "300\n" },
	};
	static const struct until enough = { .counter = "gpu.clock_sm", .rows = FEW };
	struct lg_trace *t;
	double last;

	(void)state;
	make_files("intel", i915, LG_COUNT(i915));
	t = record_files("intel", 0, &enough);
	assert_whole(t);
	assert_true(values(t, "gpu.clock_sm", 0, &last) && last == 1250);
	assert_true(values(t, "gpu.clocks.max.sm", 0, &last) && last == 2050);
	assert_true(values(t, "gpu.throttle", 0, &last) &&
		    last == (LG_THROTTLE_SW_POWER_CAP | LG_THROTTLE_HW_THERMAL));
	assert_true(values(t, "gpu.power_limit", 0, &last) && fabs(last - 120) < 1e-6);
	assert_true(values(t, "gpu.clock_sm", 1, &last) && last == 2000);
	assert_true(values(t, "gpu.clocks.max.sm", 1, &last) && last == 2400);
	assert_true(values(t, "gpu.temp", 1, &last) && fabs(last - 64) < 1e-6);
	assert_true(values(t, "gpu.throttle", 1, &last) && last == 0);
	assert_int_equal(values(t, "gpu.power_limit", 1, &last), 0); /* 0 is none */
	assert_int_equal(values(t, "gpu.clock_sm", 2, &last), 0);
	assert_string_equal(lg_meta_get(t, "gpu.2.name"), "Intel (card2)");
	lg_trace_free(t);
}

/* Power is what energy rises by; files that hold nonsense are no readings. */
static void energy_becomes_power_and_nonsense_nothing(void **state)
{
	static const struct file odd[] = {
		{ CARD "0/device/vendor", "0x8086\n" }, { CARD "0/gt_act_freq_mhz", "fast\n" },
		{ CARD "0/device/hwmon/hwmon1/power1_max", "" },
		{ CARD "0/device/hwmon/hwmon1/energy1_input", "1000000\n" },
		{ CARD "1/device/vendor", "0x1002\n" }, { CARD "1/device/gpu_busy_percent", "4294967295\n" },
		{ CARD "1/device/mem_info_vram_used", "nan\n" }, { CARD "1/device/pp_dpm_sclk", ":::::\n" },
		{ CARD "1/device/hwmon/hwmon2/temp1_input", "-9e99\n" },
		{ CARD "1/device/product_name", "\033[2J::error::\n" },
	};
	struct lg_device_reader r = lg_device_sysfs;
	const struct lg_device_reader *const readers[] = { &r };
	struct lg_devices *d;
	struct lg_builder *b;
	struct lg_trace *t;
	char path[256];
	double last;

	(void)state;
	make_files("odd", odd, LG_COUNT(odd));
	snprintf(path, sizeof path, "%s/odd", folder);
	r.arg = path;
	assert_int_equal(lg_builder_new(&b, NULL), 0);
	d = lg_devices_new(readers, 1, HZ);
	lg_devices_begin(d, b, NULL, NULL);
	for (int i = 0; i < 100; i++) {
		char energy[32];
		const struct file f = { CARD "0/device/hwmon/hwmon1/energy1_input", energy };

		snprintf(energy, sizeof energy, "%d\n", 1000000 + (i + 1) * 2000000);
		make_files("odd", &f, 1);
		usleep(OFTEN_US);
		lg_devices_read(d);
	}
	lg_devices_end(d);
	lg_devices_free(d);
	assert_int_equal(lg_builder_seal(b, &t, NULL), 0);
	assert_clean(t);
	assert_true(values(t, "gpu.power", 0, &last) > 2 && last > 1); /* 2 J in 5 ms and more */
	for (size_t i = 0; i < t->counter.n; i++)
		assert_string_equal(lg_string(t, t->track.name[t->counter.track[i]]), "gpu.power");
	assert_true(has_diag(t, LG_DIAG_NOT_UNDERSTOOD, "cannot be"));
	lg_trace_free(t);
}

static void numbers_begin_behind_those_of_nvidia(void **state)
{
	static const struct file pci[] = {
		{ "bus/pci/devices/0000:01:00.0/vendor", "0x10de\n" },
		{ "bus/pci/devices/0000:01:00.0/class", "0x030200\n" },
		{ "bus/pci/devices/0000:01:00.1/vendor", "0x10de\n" }, /* its sound */
		{ "bus/pci/devices/0000:01:00.1/class", "0x040300\n" },
		{ "bus/pci/devices/0000:02:00.0/vendor", "0x10de\n" },
		{ "bus/pci/devices/0000:02:00.0/class", "0x030000\n" },
		{ "bus/pci/devices/0000:03:00.0/vendor", "0x1002\n" },
		{ "bus/pci/devices/0000:03:00.0/class", "0x030000\n" },
		{ CARD "0/device/vendor", "0x10de\n" }, { CARD "3/device/vendor", "0x1002\n" },
		{ CARD "3/device/gpu_busy_percent", "7\n" },
	};
	static const struct file none[] = { { CARD "0/device/vendor", "0x1a03\n" } };
	struct lg_trace *t;
	char path[256];
	double last;

	(void)state;
	make_files("mixed", pci, LG_COUNT(pci));
	make_files("none", none, 1);
	snprintf(path, sizeof path, "%s/mixed", folder);
	assert_true(lg_sysfs_has_gpus(path));
	assert_int_equal(lg_sysfs_count_nvidia(path), 2);
	t = record_files("mixed", 2, &(struct until){ .ms = 1000 });
	assert_true(values(t, "gpu.util", 2, &last) && last == 7);
	assert_whole(t);
	lg_trace_free(t);
	snprintf(path, sizeof path, "%s/none", folder);
	assert_false(lg_sysfs_has_gpus(path));
	assert_int_equal(lg_sysfs_count_nvidia(path), 0);
	t = record_files("none", 0, &(struct until){ .ms = 300 });
	assert_whole(t);
	assert_int_equal(t->counter.n, 0);
	lg_trace_free(t);
	snprintf(path, sizeof path, "%s/nowhere", folder);
	assert_false(lg_sysfs_has_gpus(path));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cards_under_work_are_healthy),
		cmocka_unit_test(an_old_driver_has_functions_without_a_version),
		cmocka_unit_test(a_hot_card_is_throttled),
		cmocka_unit_test(a_power_limit_that_came_down_is_a_throttle),
		cmocka_unit_test(busy_cards_that_draw_nothing_spin),
		cmocka_unit_test(few_readings_are_said_to_be_too_few),
		cmocka_unit_test(errors_of_memory_and_of_the_driver_are_told),
		cmocka_unit_test(the_processes_that_hold_memory_are_known),
		cmocka_unit_test(what_a_card_has_not_is_not_made_up),
		cmocka_unit_test(a_library_without_devices_is_silent),
		cmocka_unit_test(who_hangs_costs_no_time_and_is_named),
		cmocka_unit_test(who_dies_takes_nobody_along),
		cmocka_unit_test(answers_that_cannot_be_are_left_out),
		cmocka_unit_test(lies_are_bounded),
		cmocka_unit_test(a_library_can_do_nothing_but_answer),
		cmocka_unit_test(doctor_says_what_is_there),
		cmocka_unit_test(cards_of_amd_are_read_from_files),
		cmocka_unit_test(cards_of_intel_are_read_from_files),
		cmocka_unit_test(energy_becomes_power_and_nonsense_nothing),
		cmocka_unit_test(numbers_begin_behind_those_of_nvidia),
	};

	return cmocka_run_group_tests_name("devices", tests, set_up, tear_down);
}
