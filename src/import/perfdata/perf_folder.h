/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_folder.h - perf record --threads: a folder with `data`, which describes the recording and holds what
 * was there before, and data.0, data.1 ..., one a thread of perf, which hold nothing but records.
 *
 * No file has ends of rounds, and one that got the buffers of several CPUs is not in order. So each is looked
 * through once for the least time that still comes from every place on; then the one that may still hold
 * the oldest record is always the next to be read, and what is older than all that comes is final.
 */
#ifndef LG_IMPORT_PERFDATA_PERF_FOLDER_H
#define LG_IMPORT_PERFDATA_PERF_FOLDER_H
#include "base/error.h"
#include "base/map.h"
#include "import/perfdata/perf_file.h"

struct lg_pd;

/* The files beside `data`, opened, in the order of their numbers; empty ones are left out. */
struct lg_pd_members {
	struct lg_pd_member {
		uint32_t number;
		int fd; /* -1: it cannot be read, see error */
		int error;
		uint64_t size;
	} *at;
	size_t n, cap;
	size_t missing;         /* numbers without a file: below the highest, or below `wanted` */
	uint32_t first_missing;
	uint32_t end;           /* the highest number and one; empty files count */
	/* By PERF_RECORD_ID_INDEX: CPUs of each event, and the most of them */
	struct lg_map seen;     /* event and CPU */
	uint32_t *cpus;
	size_t n_cpus, cpus_cap;
	uint32_t wanted;
};

/* path: of the `data`. Nothing is found beside a file of another name. */
int lg_pd_members_open(struct lg_pd_members *m, const char *path, struct lg_error *err) LG_MUST_CHECK;
int lg_pd_members_add(struct lg_pd_members *m, const struct lg_pd_member *one) LG_MUST_CHECK;
void lg_pd_members_done(struct lg_pd_members *m);

/* PERF_RECORD_ID_INDEX: on which CPUs events were opened. */
int lg_pd_members_index(struct lg_pd *p, const struct lg_pd_record *r) LG_MUST_CHECK;
/* At the end: where perf had one thread, and so one file, a CPU, count what is missing behind the last. */
void lg_pd_members_check(struct lg_pd *p);

/* All records of p->file[0, n_files), handed to order and rows. */
int lg_pd_folder_walk(struct lg_pd *p, struct lg_error *err) LG_MUST_CHECK;

#endif /* LG_IMPORT_PERFDATA_PERF_FOLDER_H */
