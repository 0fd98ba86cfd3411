/* SPDX-License-Identifier: Apache-2.0 */
/* nsys_gpu.c - CUDA API calls, then kernels, copies, fills and waits joined to them. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "import/nsys/nsys.h"

static uint64_t call_key(int64_t global, int64_t correlation)
{
	return lg_mix64((uint64_t)correlation ^ lg_mix64((uint64_t)global >> 24 & 0xffffff)) | 1;
}

/* "cudaLaunchKernel_v7000" is cudaLaunchKernel. */
static lg_str api_name(struct lg_nsys *n, lg_str s)
{
	const char *name = lg_string(lg_builder_trace(n->b), s), *v = strrchr(name, '_');
	char text[256];
	size_t k;

	if (!v || v[1] != 'v' || !isdigit((unsigned char)v[2]) || strspn(v + 2, "0123456789") != strlen(v + 2))
		return s;
	k = (size_t)(v - name);
	if (k >= sizeof text)
		return s;
	memcpy(text, name, k); /* interning may move the pool */
	return lg_intern_n(n->b, text, k);
}

static void read_calls(struct lg_nsys *n)
{
	static const char *const cols[] = { "start", "end", "globalTid", "correlationId", "nameId" };
	struct lg_nsys_cursor c;

	if (!lg_nsys_open(n, &c, "CUPTI_ACTIVITY_KIND_RUNTIME", cols, 5, NULL))
		return;
	while (lg_nsys_next(n, &c)) {
		int64_t gtid = lg_nsys_int(&c, 2, 0), corr = lg_nsys_int(&c, 3, -1);
		struct lg_span_row row = { .kind = LG_SPAN_RUNTIME, .seq = corr };
		size_t k;

		if (!lg_nsys_times(n, lg_nsys_int(&c, 0, 0), lg_nsys_int(&c, 1, INT64_MAX), &row.ts,
			       &row.dur))
			continue;
		row.thr = lg_nsys_thread(n, gtid);
		row.name = api_name(n, lg_nsys_string(n, lg_nsys_int(&c, 4, -1)));
		k = strlen(lg_string(lg_builder_trace(n->b), row.name));
		if (k > 11 && !strcmp(lg_string(lg_builder_trace(n->b), row.name) + k - 11, "Synchronize"))
			row.kind = LG_SPAN_WAIT;
		lg_add_span(n->b, &row);
		if (corr < 0 || lg_grow(&n->call, &n->cap_call, n->n_call + 1, sizeof *n->call))
			continue;
		n->call[n->n_call++] = (struct lg_nsys_call){ .thr = row.thr, .ts = row.ts };
		(void)!lg_map_set(&n->call_of, call_key(gtid, corr), (uint32_t)n->n_call);
		(void)!lg_map_set(&n->call_of, call_key(0, corr), (uint32_t)n->n_call);
	}
}

/* Columns that every GPU table has (or had in some generation). */
enum { START, END, DEVICE, STREAM, CORR, GPID, REST };
#define GPU_COLS "start", "end", "deviceId", "streamId", "correlationId", "globalPid"

static lg_trk stream_track(struct lg_nsys *n, lg_prc prc, int64_t device, int64_t stream)
{
	char name[32];
	lg_trk gpu;

	snprintf(name, sizeof name, "GPU %d", (int)device);
	gpu = lg_track_get(n->b, &(struct lg_track_row){ .kind = LG_TRACK_GPU, .prc = prc,
							 .name = lg_intern(n->b, name),
							 .index = (int32_t)device });
	snprintf(name, sizeof name, "stream %d", (int)stream);
	return lg_track_get(n->b, &(struct lg_track_row){ .kind = LG_TRACK_STREAM, .prc = prc,
							  .name = lg_intern(n->b, name), .parent = gpu,
							  .index = (int32_t)stream });
}

/* Times, track and launch of a GPU row. 0 = leave it out. */
static int gpu_row(struct lg_nsys *n, const struct lg_nsys_cursor *c, struct lg_span_row *row)
{
	int64_t gpid = lg_nsys_int(c, GPID, 0);
	uint32_t at;
	lg_prc prc;

	row->seq = lg_nsys_int(c, CORR, -1);
	if (!lg_nsys_times(n, lg_nsys_int(c, START, 0), lg_nsys_int(c, END, INT64_MAX), &row->ts, &row->dur))
		return 0;
	at = row->seq >= 0 ? lg_map_get(&n->call_of, call_key(gpid, row->seq)) : 0;
	n->gpu_rows++;
	n->orphans += !at && n->n_call;
	row->peer = at ? n->call[at - 1].thr : 0;
	prc = gpid ? lg_nsys_process(n, gpid) : row->peer ? lg_thread_process(n->b, row->peer) : 0;
	row->track = stream_track(n, prc, lg_nsys_int(c, DEVICE, 0), lg_nsys_int(c, STREAM, 0));
	if (at)
		lg_add_flow(n->b, &(struct lg_flow_row){ .ts = n->call[at - 1].ts, .ts_to = row->ts,
							 .thr = row->peer, .kind = LG_FLOW_LAUNCH,
							 .id = (uint64_t)row->seq });
	return 1;
}

/* "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)", "void rcclKernel...": not "mynccl". */
static int is_collective(const char *name)
{
	const char *p = strcasestr(name, "ncclKernel"), *q = strcasestr(name, "ncclDevKernel");

	p = q && (!p || q < p) ? q : p;
	if (p && (p == name || !isalpha((unsigned char)p[-1])))
		return 1;
	return !strncasecmp(name, "rccl", 4);
}

static void read_kernels(struct lg_nsys *n)
{
	enum { DEMANGLED = REST, SHORT, REGS, GX, GY, GZ, BX, BY, BZ, SSMEM, DSMEM, GRAPH };
	static const char *const cols[] = { GPU_COLS, "demangledName", "shortName", "registersPerThread",
					    "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ",
					    "staticSharedMemory", "dynamicSharedMemory", "graphNodeId" };
	struct lg_nsys_cursor c;
	char args[256];

	if (!lg_nsys_open(n, &c, "CUPTI_ACTIVITY_KIND_KERNEL", cols, sizeof cols / sizeof *cols, NULL))
		return;
	while (lg_nsys_next(n, &c)) {
		struct lg_span_row row = { .kind = LG_SPAN_KERNEL };
		int k;

		if (!gpu_row(n, &c, &row))
			continue;
		row.name = lg_nsys_string(n, lg_nsys_int(&c, DEMANGLED, -1));
		if (!row.name)
			row.name = lg_nsys_string(n, lg_nsys_int(&c, SHORT, -1));
		if (is_collective(lg_string(lg_builder_trace(n->b), row.name)))
			row.kind = LG_SPAN_COLLECTIVE;
		k = snprintf(args, sizeof args, "grid=%d,%d,%d\tblock=%d,%d,%d",
			     (int)lg_nsys_int(&c, GX, 0), (int)lg_nsys_int(&c, GY, 0),
			     (int)lg_nsys_int(&c, GZ, 0), (int)lg_nsys_int(&c, BX, 0),
			     (int)lg_nsys_int(&c, BY, 0), (int)lg_nsys_int(&c, BZ, 0));
		if (!lg_nsys_is_null(&c, REGS))
			k += snprintf(args + k, sizeof args - (size_t)k, "\tregs=%d\tsmem=%lld",
				      (int)lg_nsys_int(&c, REGS, 0),
				      (long long)(lg_nsys_int(&c, SSMEM, 0) + lg_nsys_int(&c, DSMEM, 0)));
		if (!lg_nsys_is_null(&c, GRAPH))
			snprintf(args + k, sizeof args - (size_t)k, "\tgraph=%lld",
				 (long long)lg_nsys_int(&c, GRAPH, 0));
		row.args = lg_intern(n->b, args);
		lg_add_span(n->b, &row);
	}
}

/* CUpti_ActivityMemoryKind less one, as nsys numbers it (ENUM_CUDA_MEM_KIND). */
static const char *mem_kind(int64_t k)
{
	static const char *const name[] = { "Pageable", "Pinned", "Device", "Array", "Managed",
					    "Device Static", "Managed Static" };

	return k >= 0 && k < 7 ? name[k] : "Unknown";
}

static const char *copy_kind(int64_t k)
{
	static const char *const name[] = { "Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD",
					    "DtoA", "DtoD", "HtoH", "PtoP", "HtoD", "DtoH", "DtoD" };

	return k >= 0 && k < 14 ? name[k] : "Unknown";
}

/* Copies, and fills, which have no source. */
static void read_copies(struct lg_nsys *n, bool fills)
{
	enum { BYTES = REST, KIND, SRC, DST, N_COPY, N_FILL = SRC };
	static const char *const copy[] = { GPU_COLS, "bytes", "copyKind", "srcKind", "dstKind" };
	static const char *const fill[] = { GPU_COLS, "bytes", "memKind" };
	struct lg_nsys_cursor c;
	char name[64];

	if (!lg_nsys_open(n, &c, fills ? "CUPTI_ACTIVITY_KIND_MEMSET" : "CUPTI_ACTIVITY_KIND_MEMCPY",
			  fills ? fill : copy, fills ? N_FILL : N_COPY, NULL))
		return;
	while (lg_nsys_next(n, &c)) {
		struct lg_span_row row = { .kind = LG_SPAN_COPY };
		int64_t bytes = lg_nsys_int(&c, BYTES, 0);

		if (!gpu_row(n, &c, &row))
			continue;
		row.bytes = bytes > 0 ? (uint64_t)bytes : 0;
		if (fills)
			snprintf(name, sizeof name, "Memset (%s)", mem_kind(lg_nsys_int(&c, KIND, 2)));
		else
			snprintf(name, sizeof name, "Memcpy %s (%s -> %s)", copy_kind(lg_nsys_int(&c, KIND, 0)),
				 mem_kind(lg_nsys_int(&c, SRC, -1)), mem_kind(lg_nsys_int(&c, DST, -1)));
		row.name = lg_intern(n->b, name);
		if (!fills && row.dur > 0 && row.bytes) {
			snprintf(name, sizeof name, "bw=%.3g", (double)row.bytes / (double)row.dur);
			row.args = lg_intern(n->b, name);
		}
		lg_add_span(n->b, &row);
	}
}

static void read_waits(struct lg_nsys *n)
{
	enum { KIND = REST, EVENT };
	static const char *const cols[] = { GPU_COLS, "syncType", "eventId" };
	static const char *const name[] = { "Unknown Sync", "Event Sync", "Stream Wait Event", "Stream Sync",
					    "Context Sync" };
	struct lg_nsys_cursor c;
	char args[48];

	if (!lg_nsys_open(n, &c, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", cols, sizeof cols / sizeof *cols, NULL))
		return;
	while (lg_nsys_next(n, &c)) {
		struct lg_span_row row = { .kind = LG_SPAN_WAIT };
		int64_t kind = lg_nsys_int(&c, KIND, 0);

		if (!gpu_row(n, &c, &row))
			continue;
		row.name = lg_intern(n->b, name[kind > 0 && kind < 5 ? kind : 0]);
		row.flags = kind == 2 ? LG_SPAN_ASYNC : 0;
		if (lg_nsys_int(&c, EVENT, 0) > 0) {
			snprintf(args, sizeof args, "event=%lld", (long long)lg_nsys_int(&c, EVENT, 0));
			row.args = lg_intern(n->b, args);
		}
		lg_add_span(n->b, &row);
	}
}

void lg_nsys_read_gpu(struct lg_nsys *n)
{
	read_calls(n);
	read_kernels(n);
	read_copies(n, false);
	read_copies(n, true);
	read_waits(n);
}
