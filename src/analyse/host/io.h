/* SPDX-License-Identifier: Apache-2.0 */
/* io.h - waits for a disk: the waiter's own request, and who else loads the disk. */
#ifndef LG_ANALYSE_HOST_IO_H
#define LG_ANALYSE_HOST_IO_H
#include "analyse/chains/chains.h"
#include "analyse/chains/tally.h"

struct lg_io_story {
	enum lg_io_kind kind;
	const char *call;  /* system call; NULL = unknown */
	const char *disk;  /* NULL = not known which */
	lg_thr other;      /* who kept the disk busy; 0 = nobody that the numbers name */
	bool by_job;       /* the one who waits for the disk is of the job */
};

/* Culprit, detail and evidence of a host.io_wait. */
void lg_io_tell(struct lg_case *c, struct lg_finding *f, const struct lg_cause_sum *s,
		struct lg_io_story *ret);
const char *lg_io_title(struct lg_case *c, const struct lg_finding *f, const struct lg_io_story *st,
			const char *ranks, const char *every);

#endif /* LG_ANALYSE_HOST_IO_H */
