/* SPDX-License-Identifier: Apache-2.0 */
/*
 * far_memory.h - memory of other processes, whose users may withhold it.
 *
 * A page of a file is read by the file's server, and a FUSE server (which every user can run, where there is
 * fusermount) need not answer. Who reads such a page waits for it, and no signal ends that. So a process of
 * its own reads:
 *
 *   recorder --fork--> keeper --fork--> reader, again and again
 *
 * It has CAP_SYS_PTRACE and nothing else, and looks at nothing that it reads. A read that is not answered in
 * time costs its reader, who is killed and may take until the page comes to die. One thread.
 */
#ifndef LG_RECORD_FAR_MEMORY_H
#define LG_RECORD_FAR_MEMORY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lg_far;

/* Of one read or write: ranges, bytes in all. */
enum { LG_FAR_RANGES = 32, LG_FAR_BYTES = 72 << 10, LG_FAR_WRITE = 1 << 10 };

struct lg_far_range {
	uint64_t at;
	void *to;
	size_t n, got; /* got: fewer than n where a page is not there */
};

/*
 * Before there is anything to hide from a fork. NULL without memory. Who may not look into processes of
 * others reads by itself: it is only he who could withhold something.
 */
struct lg_far *lg_far_new(void);
void lg_far_free(struct lg_far *f); /* NULL is fine */
/* Before a fork of the recorder that will ask instead of it. */
void lg_far_lend(struct lg_far *f);
/* False, and nothing is read: pid gives no memory, or so many gave none that nobody is asked any more. */
bool lg_far_read(struct lg_far *f, int32_t pid, struct lg_far_range *range, size_t n);
/* What range[i].to holds is written there instead, LG_FAR_WRITE bytes in all at most; got: how many were. */
bool lg_far_write(struct lg_far *f, int32_t pid, struct lg_far_range *range, size_t n);
/* Reads so far that got no answer. */
unsigned lg_far_withheld(const struct lg_far *f);

#endif /* LG_RECORD_FAR_MEMORY_H */
