/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_this_machine.h - was a recording that does not say so made on this machine?
 *
 * Host name, release and build ids stand at the end of a perf.data file: one that is cut off, or whose
 * perf was killed, has none of them. Its records can still show that it was made in this machine's
 * present boot; then its files are those here that are the same inode and were not changed since.
 */
#ifndef LG_IMPORT_PERFDATA_PERF_THIS_MACHINE_H
#define LG_IMPORT_PERFDATA_PERF_THIS_MACHINE_H
#include "import/perfdata/perf_spaces.h"

enum lg_pd_proof {
	LG_PD_UNPROVEN,
	LG_PD_BY_KERNEL,  /* at the same random address, with a text as long to the byte */
	LG_PD_BY_PROCESS, /* one of the recording still runs, at the same random addresses */
	LG_PD_BY_FILE     /* it maps an inode that was made since this machine started */
};

struct lg_pd_inode { /* what a MMAP2 record says of a file */
	lg_str name;
	uint32_t maj, min;
	uint64_t ino, gen; /* gen: 0 = not told (perf's own records about what was mapped before) */
	bool refused;      /* by lg_pd_home() */
	int64_t ts;        /* when it was mapped first; INT64_MIN: before the first record */
};

struct lg_pd_here {
	const struct lg_trace *trace;
	struct lg_pd_inode *inode;
	size_t n, cap;
	struct lg_map by_key;
	size_t inodes_tried, spaces_tried;
	uint32_t lives;            /* processes that were looked at */
	enum lg_pd_proof proof;
	int32_t pid;               /* that proves it */
	lg_str name;               /* or the file */
	bool other;                /* it is known to be another boot, or machine */
	bool kernel_tried, clock_tried, clock_known;
	int32_t clockid;           /* of the recording; -1 = perf's own */
	int64_t first_ts;
	int64_t clock_now, wall_now, boot, slept;
	size_t refused;            /* files that are here but may be others */
};

struct lg_pd_kernel_text { /* as the recording has it */
	const char *symbol;        /* that lies at `at` */
	uint64_t at, end;
};

void lg_pd_here_done(struct lg_pd_here *h);
/* Its number, from 1; 0: out of memory. */
uint32_t lg_pd_here_inode(struct lg_pd_here *h, const struct lg_pd_inode *f);
/* Looks at what has become known since the last call. True: proven by this call. */
bool lg_pd_here_prove(struct lg_pd_here *h, const struct lg_pd_spaces *s, const struct lg_pd_kernel_text *k);
/* Is fd that inode (its number), with the content that was recorded? */
bool lg_pd_home(struct lg_pd_here *h, uint32_t inode, int fd);
/* Address of one symbol in this boot's kallsyms; 0 = hidden or not there. */
uint64_t lg_pd_running_symbol(const char *name);

#endif /* LG_IMPORT_PERFDATA_PERF_THIS_MACHINE_H */
