/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_header.h - what a perf.data file says about itself: events, machine, clocks, build ids.
 *
 * In a file the description stands before (attributes) and behind (features) the records, in a
 * pipe it comes as records; both end up here.
 */
#ifndef LG_IMPORT_PERFDATA_PERF_HEADER_H
#define LG_IMPORT_PERFDATA_PERF_HEADER_H
#include "import/perfdata/perf_attrs.h"
#include "import/perfdata/perf_formats.h"

struct lg_pd_build_id {
	lg_str path;
	lg_str hex;
	uint16_t misc;
};

struct lg_pd_header {
	struct lg_builder *b;
	bool swap, pipe, simpleperf, old_magic;
	bool in_folder;                  /* perf record --threads: the samples are in files beside */
	bool thread_per_cpu;             /* and it had one thread a CPU */
	bool of_tasks;                   /* of processes or threads that were named, not of CPUs */
	int32_t named[16];               /* their numbers, those of processes (-p) */
	size_t n_named;
	uint64_t data_at, data_size;
	struct lg_pd_attrs attrs;
	struct lg_pd_formats formats;
	char hostname[65], osrelease[65], version[65], arch[33];
	uint32_t n_cpus;
	uint8_t word; /* bytes of an address of the recorded machine's kernel */
	struct lg_pd_build_id *build_id;
	size_t n_build_ids, build_ids_cap;
	struct lg_map build_id_of; /* path -> index + 1 */
	bool has_clock_data;
	uint32_t clockid;                /* of the pair */
	uint64_t clock_ns, wall_ns;
	uint64_t features_damaged;       /* features that could not be read */
	uint64_t damaged_at;
	uint64_t behind, behind_at;      /* bytes of the file behind all of its parts */
	bool joined;                     /* they are another perf.data file */
};

/*
 * The head of the file (both kinds) and, of a file, everything that is not a record. fd is read
 * with pread, its position is not moved; -1 for a pipe. LG_E_FORMAT with the offset when it is no
 * perf.data file or has no events.
 */
int lg_pd_header_read(struct lg_pd_header *h, int fd, const uint8_t *head, size_t n_head,
		      struct lg_error *err) LG_MUST_CHECK;
/* Content of one feature. */
int lg_pd_header_feature(struct lg_pd_header *h, uint32_t id, const uint8_t *p, size_t n,
			 struct lg_error *err) LG_MUST_CHECK;
/* HEADER_ATTR, HEADER_BUILD_ID, HEADER_FEATURE, EVENT_UPDATE ... Others are not touched. */
int lg_pd_header_record(struct lg_pd_header *h, uint32_t type, const uint8_t *rec, uint16_t size,
			struct lg_error *err) LG_MUST_CHECK;
/* Event names and tracepoint formats, once the first sample is near. */
void lg_pd_header_settle(struct lg_pd_header *h);
/* Build id of a file by its path; 0 = not told. */
lg_str lg_pd_header_build_id(const struct lg_pd_header *h, lg_str path);
void lg_pd_header_done(struct lg_pd_header *h);

/* 100 where head is one of ours. */
int lg_pd_sniff(const uint8_t *head, size_t n);
bool lg_pd_is_pipe(const uint8_t *head, size_t n);
/* Is the whole header of a file there, and does it tell of files beside it? */
bool lg_pd_is_folder(const uint8_t *head, size_t n);

#endif /* LG_IMPORT_PERFDATA_PERF_HEADER_H */
