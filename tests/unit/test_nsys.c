/* SPDX-License-Identifier: Apache-2.0 */
#include <sqlite3.h>

#include "feed_trace.h"


static const char *database(const char *sql)
{
	static char path[64];
	sqlite3 *db;
	char *err = NULL;

	strcpy(path, "/tmp/laggard-nsys-XXXXXX");
	close(mkstemp(path));
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	if (sqlite3_exec(db, sql, NULL, NULL, &err) != SQLITE_OK)
		fail_msg("%s", err);
	sqlite3_close(db);
	return path;
}

#define STRINGS \
	"CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT);"                                         \
	"INSERT INTO StringIds VALUES(1,'cudaLaunchKernel_v7000'),(2,'void gemm<float>(int)'),(3,'gemm'),"    \
	"(4,'ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)'),"                    \
	"(5,'cudaStreamSynchronize_v3020'),(6,'python3'),(7,'pthread_cond_wait'),(8,'outer'),(9,'libx.so');"
#define G "79037469296" /* 4711 << 24 | 4720 */
#define GP "79037464576" /* 4711 << 24, as globalPid has */

static const char newest[] =
	STRINGS
	"CREATE TABLE META_DATA_EXPORT(name TEXT, value TEXT);"
	"INSERT INTO META_DATA_EXPORT VALUES('EXPORT_SCHEMA_VERSION','3.25.0');"
	"CREATE TABLE TARGET_INFO_SESSION_START_TIME(utcEpochNs INTEGER, utcTime TEXT);"
	"INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES(1700000000000000000,'x');"
	"CREATE TABLE TARGET_INFO_GPU(vmId INTEGER, id INTEGER, name TEXT, totalMemory INTEGER);"
	"INSERT INTO TARGET_INFO_GPU VALUES(1,0,'GPU X',1000);"
	"CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER,"
	" correlationId INTEGER, nameId INTEGER, returnValue INTEGER, callchainId INTEGER);"
	"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES(100,110,0," G ",7,1,0,NULL),(120,130,0," G ",8,1,0,NULL),"
	"(300,900,0," G ",9,5,0,NULL),(950,940,0," G ",10,1,0,NULL);"
	"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,"
	" correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER, registersPerThread"
	" INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER,"
	" staticSharedMemory INTEGER, dynamicSharedMemory INTEGER);"
	"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(200,400,0,7,7," GP ",2,3,32,4,1,1,128,1,1,8,8),"
	"(400,700,0,9,8," GP ",4,3,32,4,1,1,128,1,1,0,0),(700,800,0,7,77," GP ",2,3,32,4,1,1,128,1,1,0,0);"
	"CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,"
	" correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER);"
	"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES(800,900,0,7,9," GP ",4096,1,0,2);"
	"CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION(start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,"
	" correlationId INTEGER, globalPid INTEGER, syncType INTEGER, eventId INTEGER);"
	"INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES(800,900,0,7,9," GP ",2,5);"
	"CREATE TABLE NVTX_EVENTS(start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER,"
	" textId INTEGER, domainId INTEGER);"
	"INSERT INTO NVTX_EVENTS VALUES(50,1000,59,'step 12'," G ",NULL,0),(60,200,59,'forward'," G ",NULL,0),"
	"(70,90,59,'aten::mm, seq = 42, op_id = 5'," G ",NULL,0),(95,96,59,NULL," G ",8,0),"
	"(97,98,60,'ncclAllReduce'," G ",NULL,1),(99,NULL,34,'here'," G ",NULL,0),(0,NULL,75,'NCCL'," G ",NULL,1);"
	"CREATE TABLE OSRT_API(start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER);"
	"INSERT INTO OSRT_API VALUES(500,600," G ",7);"
	"CREATE TABLE SCHED_EVENTS(start INTEGER, cpu INTEGER, isSchedIn INTEGER, globalTid INTEGER);"
	"INSERT INTO SCHED_EVENTS VALUES(600,3,0," G "),(10,3,1," G "),(700,3,1," G ");"
	"CREATE TABLE COMPOSITE_EVENTS(id INTEGER PRIMARY KEY, start INTEGER, cpu INTEGER, threadState INTEGER,"
	" globalTid INTEGER, cpuCycles INTEGER);"
	"INSERT INTO COMPOSITE_EVENTS VALUES(1,55,3,1," G ",1000);"
	"CREATE TABLE SAMPLING_CALLCHAINS(id INTEGER, symbol INTEGER, module INTEGER, kernelMode INTEGER,"
	" stackDepth INTEGER);"
	"INSERT INTO SAMPLING_CALLCHAINS VALUES(1,8,9,NULL,1),(1,3,9,NULL,0);"
	"CREATE TABLE PROCESSES(globalPid INTEGER, pid INTEGER, name TEXT);"
	"INSERT INTO PROCESSES VALUES(" GP ",4711,'python3'),(1,1,'init');"
	"CREATE TABLE ThreadNames(nameId INTEGER, priority INTEGER, globalTid INTEGER);"
	"INSERT INTO ThreadNames VALUES(6,0," G ");";

static size_t span_of(const struct lg_trace *t, uint8_t kind, const char *name)
{
	for (size_t i = 0; i < t->span.n; i++)
		if (t->span.kind[i] == kind && !strcmp(lg_string(t, t->span.name[i]), name))
			return i;
	fail_msg("no span %s of kind %d", name, kind);
	return 0;
}

static void every_table_becomes_rows(void **state)
{
	const int64_t base = INT64_C(1700000000000000000);
	const char *path = database(newest);
	struct lg_trace *t = feed_read(path, "nsys");
	size_t k, i;

	(void)state;
	k = span_of(t, LG_SPAN_KERNEL, "void gemm<float>(int)");
	assert_int_equal(t->span.ts[k], base + 200);
	assert_int_equal(t->span.seq[k], 7);
	assert_int_equal(t->thread.tid[t->span.peer[k]], 4720);
	assert_int_equal(t->track.kind[t->span.track[k]], LG_TRACK_STREAM);
	assert_int_equal(t->track.index[t->span.track[k]], 7);
	assert_int_equal(t->track.kind[t->track.parent[t->span.track[k]]], LG_TRACK_GPU);
	assert_int_equal(t->process.pid[t->track.prc[t->span.track[k]]], 4711);
	assert_string_equal(lg_string(t, t->span.args[k]), "grid=4,1,1\tblock=128,1,1\tregs=32\tsmem=16");
	(void)span_of(t, LG_SPAN_COLLECTIVE,
		      "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)");
	k = span_of(t, LG_SPAN_COPY, "Memcpy HtoD (Pageable -> Device)");
	assert_int_equal(t->span.bytes[k], 4096);
	k = span_of(t, LG_SPAN_WAIT, "Stream Wait Event");
	assert_true(t->span.flags[k] & LG_SPAN_ASYNC);
	(void)span_of(t, LG_SPAN_WAIT, "cudaStreamSynchronize");
	(void)span_of(t, LG_SPAN_RUNTIME, "cudaLaunchKernel");
	k = span_of(t, LG_SPAN_STEP, "step 12");
	assert_int_equal(t->span.seq[k], 12);
	k = span_of(t, LG_SPAN_STAGE, "forward");
	assert_int_equal(t->span.stage[k], LG_STAGE_FORWARD);
	k = span_of(t, LG_SPAN_OP, "aten::mm");
	assert_int_equal(t->span.seq[k], 42);
	(void)span_of(t, LG_SPAN_NOTE, "outer");
	(void)span_of(t, LG_SPAN_COLLECTIVE, "ncclAllReduce");
	(void)span_of(t, LG_SPAN_SYSCALL, "pthread_cond_wait");
	assert_int_equal(feed_marks(t, "nvtx.mark"), 1);
	assert_int_equal(t->state.n, 1);
	assert_int_equal(t->state.dur[0], 590);
	assert_int_equal(t->sample.n, 1);
	assert_int_equal(t->stack.depth[t->sample.stack[0]], 2);
	assert_string_equal(lg_string(t, t->frame.name[t->stack.frame[t->sample.stack[0]]]), "gemm");
	assert_int_equal(t->flow.n, 4); /* two kernels, the copy and the wait; kernel 77 has no call */
	assert_int_equal(feed_diags(t, LG_DIAG_PARTIAL), 1);
	assert_int_equal(feed_diags(t, LG_DIAG_FILE_DAMAGED), 1); /* the call that ends before it starts */
	assert_string_equal(feed_meta(t, "nsys.schema"), "3.25.0");
	assert_string_equal(feed_meta(t, "gpu.0.name"), "GPU X");
	assert_int_equal(t->clock.n, 1);
	for (i = 1; i < t->process.n; i++)
		assert_int_not_equal(t->process.pid[i], 1);
	unlink(path);
	lg_trace_free(t);
}

/* DLProf's ranges are dictionaries: what they say is a line of Python and a call. */
static void payloads_of_pyprof_are_calls(void **state)
{
	static const char sql[] =
		"CREATE TABLE StringIds(id INTEGER, value TEXT);"
		"CREATE TABLE NVTX_EVENTS(start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER);"
		"INSERT INTO NVTX_EVENTS VALUES(10,900,59,'{''traceMarker'': [''net.py:41'', "
		"''/x/site-packages/torch/nn/modules/module.py:1102'', ''net.py:28'', "
		"''/x/site-packages/torch/nn/functional.py:7''], ''funcStack'': ''/<module>/net/Linear::linear''}'," G "),"
		"(20,800,59,'{''mod'': ''torch.nn.functional'', ''op'': ''linear'', ''args'': []}'," G "),"
		"(910,920,59,'{''traceMarker'': [''net'," G "),(930,940,59,'{''traceMarker'': [''a.py:3'']}'," G ");";
	const char *path = database(sql);
	struct lg_trace *t = feed_read(path, "nsys");
	size_t k = span_of(t, LG_SPAN_PYTHON, "net.py(28): Linear::linear");

	(void)state;
	assert_string_equal(lg_string(t, t->frame.file[t->stack.frame[t->span.stack[k]]]), "net.py");
	assert_int_equal(t->frame.line[t->stack.frame[t->span.stack[k]]], 28);
	(void)span_of(t, LG_SPAN_OP, "torch.nn.functional.linear");
	(void)span_of(t, LG_SPAN_NOTE, "{'traceMarker': ['net");
	(void)span_of(t, LG_SPAN_PYTHON, "a.py(3): ");
	unlink(path);
	lg_trace_free(t);
}

static void the_oldest_generation_has_little_and_is_read(void **state)
{
	const char *path = database(
		STRINGS "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, \"end\" INTEGER, deviceId INTEGER,"
			"streamId INTEGER, correlationId INTEGER, shortName INTEGER);"
			"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(5,9,0,7,1,3);");
	struct lg_trace *t = feed_read(path, "nsys");

	(void)state;
	assert_int_equal(t->span.n, 1);
	assert_string_equal(feed_meta(t, "nsys.schema"), "before 2.0");
	assert_string_equal(feed_meta(t, "import.clock"), "relative");
	unlink(path);
	lg_trace_free(t);
}

/* A schema that tries to be clever: what it hides behind the name of a table is not read. */
static void views_triggers_and_computed_columns_do_not_run(void **state)
{
	const char *path = database(
		"CREATE TABLE t(a);INSERT INTO t VALUES(1);"
		"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT a AS start, a AS end, a AS deviceId FROM t;"
		"CREATE TABLE OSRT_API(start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER GENERATED ALWAYS"
		" AS (length(hex(start))) VIRTUAL);"
		"INSERT INTO OSRT_API(start,end,globalTid) VALUES(1,2," G ");");
	struct lg_import_info info;
	struct lg_error err = { 0 };
	struct lg_trace *t;

	(void)state;
	assert_true(lg_import(&path, 1, &t, &info, &err) < 0);
	assert_null(strchr(err.message, '\n'));
	unlink(path);
}

static void other_databases_are_refused(void **state)
{
	const char *path = database("CREATE TABLE t(a);");
	struct lg_import_info info;
	struct lg_error err = { 0 };
	struct lg_trace *t;

	(void)state;
	assert_true(lg_import(&path, 1, &t, &info, &err) < 0);
	assert_non_null(strstr(err.message, "without a table of Nsight Systems"));
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_table_becomes_rows),
		cmocka_unit_test(payloads_of_pyprof_are_calls),
		cmocka_unit_test(the_oldest_generation_has_little_and_is_read),
		cmocka_unit_test(views_triggers_and_computed_columns_do_not_run),
		cmocka_unit_test(other_databases_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
