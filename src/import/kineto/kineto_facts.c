/* SPDX-License-Identifier: Apache-2.0 */
/* kineto_facts.c - the fields beside traceEvents: devices, versions, ranks, the profiler's own log. */
#include <stdio.h>

#include "base/alloc.h"
#include "import/kineto/kineto_import.h"

enum { FACTS_MAX = 4096, LINES_MAX = 1000 };

static void fact(struct kineto *k, const char *key, const struct lg_slice *value)
{
	if (!value->n || k->n_facts >= FACTS_MAX)
		return;
	if (lg_grow(&k->facts, &k->facts_cap, k->n_facts + 1, sizeof *k->facts)) {
		k->failed = LG_E_NOMEM;
		return;
	}
	k->buf_n = 0;
	k->facts[k->n_facts].key = lg_intern(k->b, key);
	k->facts[k->n_facts++].value = kin_text(k, value);
}

static void text_fact(struct kineto *k, const char *key, const char *value)
{
	struct lg_slice s = { .p = value, .n = (uint32_t)strlen(value), .kind = '"' };

	fact(k, key, &s);
}

/* One entry of deviceProperties. */
static void device(struct kineto *k, const struct lg_slice *obj)
{
	static const struct {
		const char *json, *key;
	} keys[] = {
		{ "name", "name" },
		{ "totalGlobalMem", "memory" },
		{ "numSms", "sms" },
		{ "warpSize", "warp" },
		{ "maxThreadsPerMultiprocessor", "threads_per_sm" },
		{ "regsPerMultiprocessor", "regs_per_sm" },
		{ "sharedMemPerMultiprocessor", "smem_per_sm" },
	};
	struct lg_slice key, v, found[sizeof keys / sizeof *keys] = { 0 };
	const char *p = obj->p + 1, *end = obj->p + obj->n;
	int64_t id = -1, major = -1, minor = 0;
	char name[64], text[48];

	while (lg_json_member(&p, end, &key, &v)) {
		if (LG_SLICE_IS(&key, "id"))
			(void)lg_json_fixed(&v, 0, &id);
		else if (LG_SLICE_IS(&key, "computeMajor"))
			(void)lg_json_fixed(&v, 0, &major);
		else if (LG_SLICE_IS(&key, "computeMinor"))
			(void)lg_json_fixed(&v, 0, &minor);
		for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
			if (lg_slice_is(&key, keys[i].json, strlen(keys[i].json)))
				found[i] = v;
	}
	if (id < 0)
		return;
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
		snprintf(name, sizeof name, "gpu.%lld.%s", (long long)id, keys[i].key);
		if (found[i].p)
			fact(k, name, &found[i]);
	}
	if (major >= 0) {
		snprintf(name, sizeof name, "gpu.%lld.compute", (long long)id);
		snprintf(text, sizeof text, "%lld.%lld", (long long)major, (long long)minor);
		text_fact(k, name, text);
	}
}

/* On-demand traces write it behind the events, with "ranks" as a string. */
static void distributed(struct kineto *k, const struct lg_slice *obj)
{
	struct lg_slice key, v;
	const char *p = obj->p + 1, *end = obj->p + obj->n;

	while (lg_json_member(&p, end, &key, &v)) {
		if (LG_SLICE_IS(&key, "rank"))
			(void)lg_json_fixed(&v, 0, &k->rank);
		else if (LG_SLICE_IS(&key, "world_size"))
			(void)lg_json_fixed(&v, 0, &k->world);
		else if (LG_SLICE_IS(&key, "backend"))
			fact(k, "dist.backend", &v);
		else if (LG_SLICE_IS(&key, "nccl_version"))
			fact(k, "dist.nccl", &v);
		else if (LG_SLICE_IS(&key, "pg_config"))
			fact(k, "dist.groups", &v);
	}
}

/* Lines of the profiler's log: "INFO": ["...", ...]. Added as marks when the time is known. */
static void lines(struct kineto *k, const char *name, const struct lg_slice *array)
{
	struct lg_slice v;
	const char *p = array->p + 1, *end = array->p + array->n;
	int n = 0;

	while (n++ < LINES_MAX && lg_json_element(&p, end, &v))
		if (v.kind == '"')
			fact(k, name, &v);
}

void kin_field(struct kineto *k, const struct lg_slice *key, const struct lg_slice *v)
{
	static const struct {
		const char *json, *key;
	} plain[] = {
		{ "record_shapes", "torch.profiler.record_shapes" },
		{ "with_stack", "torch.profiler.with_stack" },
		{ "profile_memory", "torch.profiler.profile_memory" },
		{ "with_flops", "torch.profiler.with_flops" },
		{ "with_modules", "torch.profiler.with_modules" },
		{ "trace_id", "trace.id" },
		{ "schemaVersion", "kineto.schema" },
		{ "cuda_runtime_version", "cuda.runtime" },
		{ "cuda_driver_version", "cuda.driver" },
		{ "cupti_version", "cupti.version" },
		{ "hip_runtime_version", "hip.runtime" },
		{ "hip_driver_version", "hip.driver" },
		{ "roctracer_version", "roctracer.version" },
		{ "host_name", "host.name" },
		{ "PT_PROFILER_JOB_NAME", "job.name" },
		{ "PT_PROFILER_JOB_VERSION", "job.version" },
		{ "PT_PROFILER_JOB_ATTEMPT_INDEX", "job.attempt" },
		{ "traceName", "trace.name" },
	};

	if (LG_SLICE_IS(key, "baseTimeNanoseconds")) {
		int64_t base;

		if (lg_json_fixed(v, 0, &base) && base >= 0 && base < INT64_MAX / 2) {
			k->base = base;
			k->base_known = true;
			if (!k->n_events)
				k->applied = base;
		}
	} else if (LG_SLICE_IS(key, "deviceProperties") && v->kind == '[') {
		struct lg_slice d;
		const char *p = v->p + 1, *end = v->p + v->n;

		while (lg_json_element(&p, end, &d))
			if (d.kind == '{')
				device(k, &d);
	} else if (LG_SLICE_IS(key, "distributedInfo") && v->kind == '{') {
		distributed(k, v);
	} else if (LG_SLICE_IS(key, "INFO") && v->kind == '[') {
		lines(k, "kineto.INFO", v);
	} else if (LG_SLICE_IS(key, "WARNING") && v->kind == '[') {
		lines(k, "kineto.WARNING", v);
	} else if (LG_SLICE_IS(key, "ERROR") && v->kind == '[') {
		lines(k, "kineto.ERROR", v);
	} else {
		for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
			if (lg_slice_is(key, plain[i].json, strlen(plain[i].json)))
				fact(k, plain[i].key, v);
	}
}

/* The number behind "NAME = " of the profiler's account of its own records; 0 = none, or no such name. */
static uint64_t counted(const char *line, const char *name)
{
	const char *p = strstr(line, name);
	uint64_t n = 0;

	if (!p)
		return 0;
	p += strlen(name);
	p += strspn(p, " =");
	for (; *p >= '0' && *p <= '9' && n < UINT64_MAX / 16; p++)
		n = n * 10 + (uint64_t)(*p - '0');
	return n;
}

/*
 * What the profiler says of its own losses (kineto, CuptiActivityProfiler.cpp: "Record counts: ..."). Records out
 * of the window's range, or of calls that it leaves out on purpose, are none.
 */
static void own_account(struct kineto *k, const char *text, int64_t ts)
{
	static const char *const odd[] = { "Invalid ext correlations", "CPU GPU out-of-order",
					   "Unexpected CUDA events" };
	const char *counts = strstr(text, "Record counts:");
	char line[512];

	if (!counts)
		return;
	snprintf(line, sizeof line, "%s", counts); /* the builder's strings move when one is added */
	if (counted(line, "CUPTI stopped early?"))
		lg_add_diag_now(k->b, LG_DIAG_PARTIAL, ts, 1, "the profiler says that CUPTI stopped early: what the "
				"device did after that is not in the trace");
	for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
		uint64_t n = counted(line, odd[i]);
		char number[32];

		if (n)
			lg_add_diag_now(k->b, LG_DIAG_NOT_UNDERSTOOD, ts, n, "the profiler says of its records of the "
					"device: %s = %s", odd[i], lg_count_text(n, number, sizeof number));
	}
}

/* The first of its errors or warnings stands for all. */
static void complaints(struct kineto *k, const char *key, const char *what, int64_t ts)
{
	const struct lg_trace *t = lg_builder_trace(k->b);
	const char *first = NULL;
	uint64_t n = 0;

	for (size_t i = 0; i < k->n_facts; i++)
		if (!strcmp(lg_string(t, k->facts[i].key), key) && !n++)
			first = lg_string(t, k->facts[i].value);
	if (n)
		lg_add_diag_now(k->b, LG_DIAG_PARTIAL, ts, n, "the profiler reported %llu %s%s: %.200s",
				(unsigned long long)n, what, n == 1 ? "" : "s", first);
}

void kin_facts_add(struct kineto *k, lg_prc prc)
{
	struct lg_trace *t = lg_builder_trace(k->b);
	int64_t first = k->last_ts;

	for (size_t i = 0; i < t->span.n; i++)
		if (t->span.ts[i] < first)
			first = t->span.ts[i];
	for (size_t i = 0; i < k->n_facts; i++) {
		lg_str key = k->facts[i].key;
		const char *name = lg_string(t, key);

		if (!strncmp(name, "kineto.", 7) && strcmp(name, "kineto.schema"))
			lg_add_mark(k->b, &(struct lg_mark_row){ .ts = first,
								 .name = key,
								 .text = k->facts[i].value });
		else
			lg_add_meta(k->b, &(struct lg_meta_row){ .ts = INT64_MIN,
								 /* of the machine: merge.c looks there */
								 .prc = strcmp(name, "host.name") ? prc
												  : 0,
								 .key = key,
								 .value = k->facts[i].value });
	}
	for (size_t i = 0; i < k->n_facts; i++)
		if (!strcmp(lg_string(t, k->facts[i].key), "kineto.INFO"))
			own_account(k, lg_string(t, k->facts[i].value), first);
	complaints(k, "kineto.ERROR", "error", first);
	complaints(k, "kineto.WARNING", "warning", first);
	if (k->world > 0)
		lg_meta_setf(k->b, prc, "dist.world", "%lld", (long long)k->world);
	lg_meta_set(k->b, prc, "trace.format", "kineto");
}
