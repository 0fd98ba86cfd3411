/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_abi.h - the numbers of the perf.data format.
 *
 * Kernel records and sample bits: include/uapi/linux/perf_event.h. What perf itself adds (types
 * from 64 on, header features): tools/perf/Documentation/perf.data-file-format.txt. Kept here and
 * not taken from <linux/perf_event.h>: files are newer than the headers of the build machine.
 */
#ifndef LG_IMPORT_PERFDATA_PERF_ABI_H
#define LG_IMPORT_PERFDATA_PERF_ABI_H
#include <stdint.h>

enum {
	PD_MMAP = 1, PD_LOST, PD_COMM, PD_EXIT, PD_THROTTLE, PD_UNTHROTTLE, PD_FORK, PD_READ,
	PD_SAMPLE, PD_MMAP2, PD_AUX, PD_ITRACE_START, PD_LOST_SAMPLES, PD_SWITCH,
	PD_SWITCH_CPU_WIDE, PD_NAMESPACES, PD_KSYMBOL, PD_BPF_EVENT, PD_CGROUP, PD_TEXT_POKE,
	PD_AUX_OUTPUT_HW_ID, PD_CALLCHAIN_DEFERRED, PD_KERNEL_MAX = 63,
	PD_USER = 64,
	PD_HEADER_ATTR = 64, PD_HEADER_EVENT_TYPE, PD_HEADER_TRACING_DATA, PD_HEADER_BUILD_ID,
	PD_FINISHED_ROUND, PD_ID_INDEX, PD_AUXTRACE_INFO, PD_AUXTRACE, PD_AUXTRACE_ERROR,
	PD_THREAD_MAP, PD_CPU_MAP, PD_STAT_CONFIG, PD_STAT, PD_STAT_ROUND, PD_EVENT_UPDATE,
	PD_TIME_CONV, PD_HEADER_FEATURE, PD_COMPRESSED, PD_FINISHED_INIT, PD_COMPRESSED2,
	PD_BPF_METADATA, PD_SCHEDSTAT_CPU, PD_SCHEDSTAT_DOMAIN, PD_USER_MAX = 127,
	/* simpleperf (Android): system/extras/simpleperf/record.h; misc is the high half of the size */
	PD_SIMPLE_FIRST = 32768, PD_SIMPLE_SPLIT = 32772, PD_SIMPLE_SPLIT_END = 32773,
	PD_SIMPLE_CALLCHAIN = 32775, PD_SIMPLE_UNWINDING = 32776, PD_SIMPLE_TRACING_DATA = 32777,
	PD_SIMPLE_LAST = 32768 + 63
};

/* enum perf_event_sample_format */
enum {
	PDS_IP = 1 << 0, PDS_TID = 1 << 1, PDS_TIME = 1 << 2, PDS_ADDR = 1 << 3,
	PDS_READ = 1 << 4, PDS_CALLCHAIN = 1 << 5, PDS_ID = 1 << 6, PDS_CPU = 1 << 7,
	PDS_PERIOD = 1 << 8, PDS_STREAM_ID = 1 << 9, PDS_RAW = 1 << 10,
	PDS_BRANCH_STACK = 1 << 11, PDS_REGS_USER = 1 << 12, PDS_STACK_USER = 1 << 13,
	PDS_WEIGHT = 1 << 14, PDS_DATA_SRC = 1 << 15, PDS_IDENTIFIER = 1 << 16,
	PDS_TRANSACTION = 1 << 17, PDS_REGS_INTR = 1 << 18, PDS_PHYS_ADDR = 1 << 19,
	PDS_AUX = 1 << 20, PDS_CGROUP = 1 << 21, PDS_DATA_PAGE_SIZE = 1 << 22,
	PDS_CODE_PAGE_SIZE = 1 << 23, PDS_WEIGHT_STRUCT = 1 << 24, PDS_KNOWN = (1 << 25) - 1
};

/* enum perf_event_read_format */
enum { PDR_ENABLED = 1, PDR_RUNNING = 2, PDR_ID = 4, PDR_GROUP = 8, PDR_LOST = 16 };

/* enum perf_branch_sample_type */
#define PDB_CALL_STACK ((uint64_t)1 << 11)
#define PDB_HW_INDEX ((uint64_t)1 << 17)
#define PDB_COUNTERS ((uint64_t)1 << 19)

/* perf_event_attr: position of what is read here, and bits of its flag word */
enum {
	PDA_TYPE = 0, PDA_SIZE = 4, PDA_CONFIG = 8, PDA_PERIOD = 16, PDA_SAMPLE_TYPE = 24,
	PDA_READ_FORMAT = 32, PDA_FLAGS = 40, PDA_BRANCH_TYPE = 72, PDA_REGS_USER = 80,
	PDA_CLOCKID = 92, PDA_REGS_INTR = 96, PDA_SIZE_VER0 = 64, PDA_SIZE_MAX = 4096
};
#define PDF_FREQ ((uint64_t)1 << 10)
#define PDF_ENABLE_ON_EXEC ((uint64_t)1 << 12)
#define PDF_SAMPLE_ID_ALL ((uint64_t)1 << 18)
#define PDF_USE_CLOCKID ((uint64_t)1 << 25)
#define PDF_CONTEXT_SWITCH ((uint64_t)1 << 26)

enum { PD_TYPE_HARDWARE, PD_TYPE_SOFTWARE, PD_TYPE_TRACEPOINT, PD_TYPE_CACHE, PD_TYPE_RAW };

/* perf_event_header.misc */
enum {
	PDM_CPUMODE = 7, PDM_KERNEL = 1, PDM_USER = 2, PDM_HYPERVISOR = 3, PDM_GUEST_KERNEL = 4,
	PDM_GUEST_USER = 5,
	PDM_MMAP_DATA = 1 << 13, PDM_COMM_EXEC = 1 << 13, PDM_SWITCH_OUT = 1 << 13,
	PDM_SWITCH_PREEMPT = 1 << 14, PDM_MMAP_BUILD_ID = 1 << 14, PDM_LOST_SAMPLES_BPF = 1 << 15
};

/* enum perf_callchain_context: at or above MAX an address is a marker */
#define PDC_KERNEL ((uint64_t)-128)
#define PDC_USER ((uint64_t)-512)
#define PDC_USER_DEFERRED ((uint64_t)-640)
#define PDC_GUEST_KERNEL ((uint64_t)-2176)
#define PDC_GUEST_USER ((uint64_t)-2560)
#define PDC_MAX ((uint64_t)-4095)

/* Header features (tools/perf/util/header.h); simpleperf's begin at 128. */
enum {
	PDH_TRACING_DATA = 1, PDH_BUILD_ID, PDH_HOSTNAME, PDH_OSRELEASE, PDH_VERSION, PDH_ARCH,
	PDH_NRCPUS, PDH_CPUDESC, PDH_CPUID, PDH_TOTAL_MEM, PDH_CMDLINE, PDH_EVENT_DESC,
	PDH_CPU_TOPOLOGY, PDH_NUMA_TOPOLOGY, PDH_BRANCH_STACK, PDH_PMU_MAPPINGS, PDH_GROUP_DESC,
	PDH_AUXTRACE, PDH_STAT, PDH_CACHE, PDH_SAMPLE_TIME, PDH_MEM_TOPOLOGY, PDH_CLOCKID,
	PDH_DIR_FORMAT, PDH_BPF_PROG_INFO, PDH_BPF_BTF, PDH_COMPRESSED, PDH_CPU_PMU_CAPS,
	PDH_CLOCK_DATA, PDH_HYBRID_TOPOLOGY, PDH_PMU_CAPS,
	PDH_SIMPLE_FILE = 128, PDH_SIMPLE_META_INFO, PDH_SIMPLE_FILE2 = 132, PDH_MAX = 256
};

#define PD_MAGIC2 0x32454c4946524550u         /* "PERFILE2" read as little-endian */
#define PD_MAGIC2_SWAPPED 0x50455246494c4532u /* the same, written by the other byte order */
#define PD_MAGIC1 0x454c494646524550u         /* "PERFFILE": before Linux 3.3 */
enum { PD_RECORD_HEADER = 8, PD_FILE_HEADER = 104, PD_PIPE_HEADER = 16 };

#endif /* LG_IMPORT_PERFDATA_PERF_ABI_H */
