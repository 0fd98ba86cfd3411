/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From which share of the time on each cause on a device is told. One knob of a healthy loop is turned up
 * until the finding comes: there its share must be what the rule's threshold says (laggard rules ID), neither
 * less (an accusation for nothing) nor much more (a cause that is kept quiet). Below, nothing is loud at all.
 */
#include "gpu_outcome.h"

static void loader(struct gpu_plan *p, int64_t x)
{
	p->loader_single = true;
	p->loader_ns = x;
}

static void pageable(struct gpu_plan *p, int64_t x)
{
	p->copy = COPY_PAGEABLE;
	p->copy_ns = x;
}

static void pinned(struct gpu_plan *p, int64_t x)
{
	p->copy = COPY_PINNED_SAME;
	p->copy_ns = x;
}

static void allocator(struct gpu_plan *p, int64_t x)
{
	p->n_alloc = 1;
	p->alloc_ns = x;
}

static void exposed(struct gpu_plan *p, int64_t x)
{
	p->n_comm = 4;
	p->comm_ns = x;
}

static void small_messages(struct gpu_plan *p, int64_t x)
{
	p->n_comm = 100;
	p->comm_ns = x;
}

static void launches(struct gpu_plan *p, int64_t x)
{
	p->launch_ns = x;
}

static void optimizer(struct gpu_plan *p, int64_t x)
{
	p->optimizer_kernels = (int)x;
}

static void zeros(struct gpu_plan *p, int64_t x)
{
	p->zero_kernels = (int)x;
}

static void compiler(struct gpu_plan *p, int64_t x)
{
	p->compile_ns = x;
}

static void layout(struct gpu_plan *p, int64_t x)
{
	p->n_layout = (int)x;
}

static void saves(struct gpu_plan *p, int64_t x)
{
	p->side = "torch/serialization.py(629): save";
	p->side_ns = x;
}

static void unused(struct gpu_plan *p, int64_t x)
{
	p->unused_ns = x;
}

static const struct floor {
	const char *id;
	double share, until; /* of the threshold; told at the latest there (a kernel more may be a jump) */
	void (*turn)(struct gpu_plan *p, int64_t x);
	int64_t least, most; /* of the knob: silent there, told there */
} floors[] = {
	{ "data.loader_wait", 0.01, 0.02, loader, MS, 12 * MS },
	{ "data.pageable_copy", 0.03, 0.031, pageable, 20 * US, 3 * MS },
	{ "data.serial_copy", 0.03, 0.031, pinned, 20 * US, 3 * MS },
	{ "gpu.allocator_sync", 0.01, 0.011, allocator, US, 3 * MS },
	{ "comms.exposed", 0.03, 0.031, exposed, 10 * US, MS },
	{ "comms.small_messages", 0.03, 0.031, small_messages, 500, 40 * US },
	{ "gpu.launch_bound", 0.10, 0.11, launches, 8 * US, 120 * US },
	{ "gpu.unfused_optimizer", 0.02, 0.06, optimizer, 1, 400 },
	{ "gpu.zero_grad_fill", 0.01, 0.011, zeros, 1, 400 },
	{ "compile.in_step", 0.01, 0.011, compiler, 10 * US, 30 * MS },
	{ "gpu.layout", 0.01, 0.02, layout, 1, 100 },
	{ "side.checkpoint", 0.01, 0.02, saves, 100 * US, 30 * MS },
	{ "comms.ddp_flags", 0.01, 0.011, unused, 10 * US, 3 * MS },
};

static struct outcome at(const struct floor *f, int64_t x)
{
	struct gpu_plan p = gpu_healthy;

	p.n_steps = 12;
	f->turn(&p, x);
	return explain(&p);
}

static bool is_told(const struct floor *f, int64_t x)
{
	struct outcome o = at(f, x);
	bool told = find(o.v, f->id) != NULL;

	done(&o);
	return told;
}

static void told_from_its_threshold_on(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof floors / sizeof *floors; i++) {
		const struct floor *f = &floors[i];
		int64_t silent = f->least, told = f->most;
		struct outcome o;
		double share;

		if (is_told(f, silent) || !is_told(f, told))
			fail_msg("%s: not silent at %lld, or not told at %lld", f->id, (long long)silent, (long long)told);
		while (told - silent > 1 + silent / 100) {
			int64_t x = silent + (told - silent) / 2;

			*(is_told(f, x) ? &told : &silent) = x;
		}
		o = at(f, told);
		share = find(o.v, f->id)->lost_share;
		if (share < f->share || share > f->until)
			fail_msg("%s: told from %.4f of the time on, its threshold is %.2f", f->id, share, f->share);
		done(&o);
		o = at(f, silent);
		if (loud(o.v))
			fail_msg("%s: below its threshold %s is %s", f->id, o.v->findings[0].id, lg_severity_text(o.v->findings[0].severity));
		done(&o);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(told_from_its_threshold_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
