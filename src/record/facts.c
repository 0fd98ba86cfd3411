/* SPDX-License-Identifier: Apache-2.0 */
/* facts.c - machine, clock and cost rows of a recording. */
#include "record/facts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "record/procfs.h"

#define CLOCK_EVERY_NS (10 * INT64_C(1000000000))
#define STEP_NS (100 * INT64_C(1000000))

static int64_t read_clock(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t lg_monotonic_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

static void meta_file(struct lg_builder *b, const char *key, const char *path)
{
	char text[256];

	if (lg_proc_read(path, text, sizeof text) <= 0)
		return;
	text[strcspn(text, "\n")] = 0;
	lg_meta_set(b, 0, key, text);
}

static void cpu_model(struct lg_builder *b)
{
	char text[4096], *p, *end;

	if (lg_proc_read("/proc/cpuinfo", text, sizeof text) <= 0)
		return;
	p = strstr(text, "model name");
	p = p ? strchr(p, ':') : NULL;
	if (!p)
		return;
	p += 1 + strspn(p + 1, " ");
	end = strchr(p, '\n');
	lg_add_meta(b, &(struct lg_meta_row){
			       .ts = INT64_MIN,
			       .key = lg_intern(b, "host.cpu_model"),
			       .value = lg_intern_n(b, p, end ? (size_t)(end - p) : strlen(p)) });
}

void lg_facts_machine(struct lg_builder *b, const struct lg_record_options *opt, enum lg_tier tier)
{
	static const char *const profiles[] = { "light", "default", "deep" };
	struct utsname u;

	if (!uname(&u)) {
		lg_meta_set(b, 0, "host.name", u.nodename);
		lg_meta_set(b, 0, "host.kernel", u.release);
		lg_meta_set(b, 0, "host.arch", u.machine);
	}
	lg_meta_setf(b, 0, "host.cpus", "%ld", sysconf(_SC_NPROCESSORS_ONLN));
	lg_meta_setf(b, 0, "host.memory_bytes", "%llu",
		     (unsigned long long)sysconf(_SC_PHYS_PAGES) *
			     (unsigned long long)sysconf(_SC_PAGE_SIZE));
	cpu_model(b);
	meta_file(b, "record.boot_id", "/proc/sys/kernel/random/boot_id");
	lg_meta_set(b, 0, "record.tier", lg_tier_name(tier));
	lg_meta_set(b, 0, "record.version", LG_VERSION);
	if (opt->cmdline)
		lg_meta_set(b, 0, "record.cmdline", opt->cmdline);
	lg_meta_setf(b, 0, "record.freq_hz", "%u", opt->freq_hz);
	lg_meta_set(b, 0, "record.profile", profiles[opt->profile]);
	lg_meta_setf(b, 0, "record.pid", "%d", (int)getpid());
	if (opt->ring_ns)
		lg_meta_setf(b, 0, "record.ring_ns", "%lld", (long long)opt->ring_ns);
}

/* The tightest of a few readings: monotonic before and after, the other clock between. */
static void read_pair(clockid_t id, int64_t *ret_ts, int64_t *ret_value, int64_t *ret_error)
{
	int64_t best = INT64_MAX;

	for (int i = 0; i < 5; i++) {
		int64_t a = read_clock(CLOCK_MONOTONIC), v = read_clock(id);
		int64_t z = read_clock(CLOCK_MONOTONIC);

		if (z - a >= best)
			continue;
		best = z - a;
		*ret_ts = a + (z - a) / 2;
		*ret_value = v;
		*ret_error = (z - a + 1) / 2;
	}
}

void lg_facts_clocks(struct lg_builder *b, struct lg_clock_watch *w, int64_t now, bool force)
{
	static const clockid_t ids[] = { CLOCK_REALTIME, CLOCK_BOOTTIME };

	if (!force && now < w->next)
		return;
	w->next = now + CLOCK_EVERY_NS;
	for (size_t i = 0; i < 2; i++) {
		struct lg_clock_row r = { .clock = (uint32_t)ids[i],
					  .source = lg_intern(b, "record") };

		read_pair(ids[i], &r.ts, &r.value, &r.error);
		lg_add_clock(b, &r);
		if (ids[i] != CLOCK_REALTIME)
			continue;
		if (w->started && llabs(r.value - r.ts - w->offset) > STEP_NS)
			lg_add_diag_now(b, LG_DIAG_CLOCK_STEPPED, r.ts, 1, "by %+.3f s",
					(double)(r.value - r.ts - w->offset) * 1e-9);
		w->offset = r.value - r.ts;
		w->started = true;
	}
}

struct lg_cost lg_facts_cost(const struct lg_cost *since)
{
	struct lg_cost c = { .wall_ns = lg_monotonic_ns() };
	struct rusage u;

	c.cpu_ns = read_clock(CLOCK_PROCESS_CPUTIME_ID);
	if (!getrusage(RUSAGE_SELF, &u))
		c.rss_bytes = (int64_t)u.ru_maxrss * 1024;
	if (since) {
		c.cpu_ns -= since->cpu_ns;
		c.wall_ns -= since->wall_ns;
	}
	return c;
}
