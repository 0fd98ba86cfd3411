/* SPDX-License-Identifier: Apache-2.0 */
/* tier.c - probing from the best tier downwards. */
#include "record/tier.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

const char *lg_tier_name(enum lg_tier tier)
{
	switch (tier) {
	case LG_TIER_BPF: return "bpf";
	case LG_TIER_PERF: return "perf";
	case LG_TIER_OWN: return "own";
	case LG_TIER_PROCFS: return "procfs";
	case LG_TIER_AUTO: break;
	}
	return "auto";
}

const struct lg_source *lg_tier_main(enum lg_tier tier)
{
	switch (tier) {
#ifdef LG_HAVE_SOURCE_BPF
	case LG_TIER_BPF: return &lg_source_bpf;
#endif
#ifdef LG_HAVE_SOURCE_TRACEPOINTS
	case LG_TIER_PERF: return &lg_source_tracepoints;
#endif
#ifdef LG_HAVE_SOURCE_PERF
	case LG_TIER_OWN: return &lg_source_perf;
#endif
	case LG_TIER_PROCFS: return &lg_source_procfs;
	default: return NULL;
	}
}

const char *lg_tier_limits(enum lg_tier tier)
{
	switch (tier) {
	case LG_TIER_PERF:
		return "holders of kernel locks other than mmap_lock";
	case LG_TIER_OWN:
		return "other users' processes, who holds kernel locks, who wakes whom, "
		       "where threads wait";
	case LG_TIER_PROCFS:
		return "anything shorter than 20 ms, stacks, wakers, lock holders";
	default:
		return "";
	}
}

void lg_probe_source(const struct lg_source *src, const char *name, struct lg_probe *ret)
{
	struct lg_error err = { 0 };
	int rc;

	*ret = (struct lg_probe){ 0 };
	if (!src) {
		snprintf(ret->why, sizeof ret->why, "this build has no %s source", name);
		return;
	}
	rc = src->probe(ret, &err);
	if (!rc)
		return;
	ret->works = false;
	if (!*ret->why)
		snprintf(ret->why, sizeof ret->why, "%.*s", (int)sizeof ret->why - 1, err.message);
}

/* Tier own needs less than lg_source_perf's own probe, which tries the whole machine. */
static void probe_own(struct lg_probe *ret)
{
	struct perf_event_attr a = { .size = sizeof a,
				     .type = PERF_TYPE_SOFTWARE,
				     .config = PERF_COUNT_SW_TASK_CLOCK,
				     .sample_period = 10 * 1000 * 1000,
				     .sample_type = PERF_SAMPLE_TID,
				     .context_switch = 1, /* Linux 4.3 */
				     .exclude_kernel = 1,
				     .disabled = 1 };
	int fd;

	*ret = (struct lg_probe){ 0 };
	if (!lg_tier_main(LG_TIER_OWN)) {
		snprintf(ret->why, sizeof ret->why, "this build has no perf source");
		return;
	}
	fd = (int)syscall(SYS_perf_event_open, &a, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (fd >= 0) {
		close(fd);
		ret->works = true;
		return;
	}
	snprintf(ret->why, sizeof ret->why, "perf events of own processes: %s", strerror(errno));
	snprintf(ret->fix, sizeof ret->fix, "sudo sysctl kernel.perf_event_paranoid=2");
}

int lg_tier_choose(enum lg_tier first, bool forced, enum lg_tier *ret_tier,
		   void (*why)(void *arg, enum lg_tier tier, const struct lg_probe *p), void *arg,
		   struct lg_error *err)
{
	enum lg_tier t = first == LG_TIER_AUTO ? LG_TIER_BPF : first;
	struct lg_probe p;

	for (; t <= LG_TIER_PROCFS; t++) {
		if (t == LG_TIER_OWN)
			probe_own(&p);
		else
			lg_probe_source(lg_tier_main(t), lg_tier_name(t), &p);
		if (p.works) {
			*ret_tier = t;
			return 0;
		}
		if (why)
			why(arg, t, &p);
		if (forced)
			return lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET,
				       "--tier %s does not work here: %s%s%s", lg_tier_name(t),
				       *p.why ? p.why : "no reason given", *p.fix ? "; try: " : "",
				       p.fix);
	}
	return lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET,
		       "no way to record works here, not even /proc");
}
