/* SPDX-License-Identifier: Apache-2.0 */
/* detail_advice.c - findings whose advice depends on their detail (analyse/io.c, analyse/waits.c). */
#include <string.h>

#include "advise/advise.h"

static const struct {
	const char *id, *detail;
	struct lg_advice words;
} advice[] = {
	{ "host.io_wait", "own_sync",
	  { .fix = "The job waits until what it wrote itself is on the disk: write checkpoints to memory or to a "
		   "local NVMe first and copy them from a side thread or process (torch.distributed.checkpoint."
		   "async_save, a background os.fsync), sync less often and once a file instead of once a "
		   "record, save from one rank or sharded instead of all ranks to one disk, and write to a "
		   "temporary file that is renamed when it is whole.",
	    .tradeoff = "A crash in between loses the newest checkpoint; the copy in memory takes room until it is "
			"written.",
	    .confirm = "Leave the sync out for a minute, or let the file lie in /dev/shm: the waits go with it." } },
	{ "host.io_wait", "own_write",
	  { .fix = "The job waits for its own writes: move them to a side thread, write larger pieces to a local "
		   "NVMe, and keep logs and checkpoints off the disk that the data comes from. Where the wait is "
		   "in balance_dirty_pages, the disk is slower than what is written to it: write less, or raise "
		   "vm.dirty_background_bytes so that writing begins earlier.",
	    .tradeoff = "Data reaches the disk later, and lies in memory until then.",
	    .confirm = "Let the file lie in /dev/shm for a minute: the waits go with it." } },
	{ "host.io_wait", "own_read",
	  { .fix = "The job waits for what it reads itself: read ahead (more workers and prefetch_factor, "
		   "posix_fadvise WILLNEED, larger sequential shards instead of small files), keep the "
		   "training set in memory or on a local NVMe, and give the page cache room.",
	    .tradeoff = "Local copies take space and time at the start; readers ahead take memory.",
	    .confirm = "Read the files once into the page cache (vmtouch, cat > /dev/null) and watch whether the waits "
		       "go." } },
	{ "host.io_wait", "other_load",
	  { .fix = "Take the other program off this disk or limit it: io.max or io.weight of its cgroup, ionice -c3 "
		   "(bfq), smaller and rarer pieces, another disk; or keep what the job reads and writes on a disk of "
		   "its own.",
	    .tradeoff = "A limited program takes longer.",
	    .confirm = "kill -STOP the named process for a minute: the waits go with it and return after kill "
		       "-CONT." } },
	{ "host.waited_for", "shared_lock",
	  { .fix = "The step and the named program share a lock, a semaphore or a condition in memory: let that program "
		   "hold it for less time (its function in the finding is what it did meanwhile) or give the job one "
		   "of its own (a copy, two buffers in turn, one lock a rank), and take it with a time limit or "
		   "only if it is free, and come back a step later.",
	    .tradeoff = "What is shared may be a step old, or takes the room of a copy.",
	    .confirm = "Let the step go on without it for a minute (a copy, a lock of its own): the slow steps go with "
		       "it." } },
	{ "host.waited_for", "pipe",
	  { .fix = "The step stands at a pipe, a message queue or an event whose other end is the named program: read "
		   "and write it in a side thread, give it more room (F_SETPIPE_SZ, a longer queue), or make that program "
		   "faster (its function is in the finding).",
	    .tradeoff = "What arrives is a step old; more room is memory.",
	    .confirm = "Put a constant, or /dev/null, in its place for a minute: the slow steps go with it." } },
};

const struct lg_advice *lg_detail_advice(const struct lg_finding *f)
{
	for (size_t i = 0; f->detail && i < sizeof advice / sizeof *advice; i++)
		if (!strcmp(advice[i].id, f->id) && !strcmp(advice[i].detail, f->detail))
			return &advice[i].words;
	return NULL;
}
