/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waits.c - what a sleeping thread waits for, told by the kernel functions on its stack.
 *
 * These are the kernel's own wait functions (file in the comment), the same knowledge as
 * /proc/PID/wchan; nothing here looks at a program's name. The innermost frame that matches wins,
 * so folio_wait_bit below filemap_fault is a disk wait and not just a page fault.
 */
#include <stdlib.h>
#include <string.h>

#include "analyse/chains/chains.h"
#include "base/alloc.h"

struct lg_wait_cache {
	uint8_t *frame_class; /* by frame row: enum + 1; 0 = not looked at */
	uint8_t *stack_class; /* by stack row: enum + 1 */
};

#define RELEASED "to release the lock or semaphore that they share"

static const struct {
	const char *prefix; /* the function's name starts with this; the first one counts */
	uint8_t class;
	const char *did, *detail; /* NULL, or see lg_peer_words() */
} wait_functions[] = {
#define W(prefix, class) { prefix, LG_WAIT_##class, NULL, NULL }
#define ENDED(prefix, class, did, detail) { prefix, LG_WAIT_##class, did, detail }
	ENDED("futex_wait", FUTEX, RELEASED, "shared_lock"), /* kernel/futex/waitwake.c */
	ENDED("futex_lock_pi", FUTEX, RELEASED, "shared_lock"), /* kernel/futex/pi.c */
	ENDED("__futex_wait", FUTEX, RELEASED, "shared_lock"),
	ENDED("do_futex", FUTEX, RELEASED, "shared_lock"),
	W("ep_poll", POLL), /* fs/eventpoll.c */
	W("do_epoll_wait", POLL),
	W("do_poll", POLL), /* fs/select.c */
	W("do_sys_poll", POLL),
	W("poll_schedule_timeout", POLL),
	W("do_select", POLL),
	W("core_sys_select", POLL),
	W("io_cqring_wait", POLL), /* io_uring/io_uring.c */
	ENDED("eventfd_read", PIPE, "to signal the event", "pipe"), /* fs/eventfd.c */
	ENDED("anon_pipe_read", PIPE, "to write into the pipe", "pipe"),
	ENDED("anon_pipe_write", PIPE, "to read from the pipe", "pipe"),
	ENDED("anon_pipe_", PIPE, "to serve the pipe", "pipe"), /* fs/pipe.c, since 6.15 */
	ENDED("pipe_read", PIPE, "to write into the pipe", "pipe"),
	ENDED("pipe_write", PIPE, "to read from the pipe", "pipe"),
	ENDED("pipe_", PIPE, "to serve the pipe", "pipe"),
	ENDED("fifo_open", PIPE, "to open the pipe", "pipe"),
	/* ipc/sem.c, msg.c, mqueue.c */
	ENDED("do_semtimedop", ANSWER, "to post the semaphore", "shared_lock"),
	ENDED("__do_semtimedop", ANSWER, "to post the semaphore", "shared_lock"),
	ENDED("do_msgrcv", ANSWER, "to send a message", "pipe"),
	ENDED("do_msgsnd", ANSWER, "to take a message", "pipe"),
	ENDED("wq_sleep", ANSWER, "to serve the message queue", "pipe"),
	ENDED("n_tty_write", ANSWER, "to read from the terminal", "pipe"),
	/* drivers/tty/n_tty.c: a terminal that is full */
	ENDED("n_tty_", ANSWER, "to write to the terminal", "pipe"),
	/* fs/fuse/dev.c: the file system's daemon */
	ENDED("request_wait_answer", ANSWER, "to answer for its file system", "answer"),
	/* net/9p/client.c */
	ENDED("p9_client_rpc", ANSWER, "to answer for its file system", "answer"),
	W("flock_lock_inode_wait", FILE_LOCK), /* fs/locks.c */
	W("posix_lock_inode_wait", FILE_LOCK),
	W("locks_lock_inode_wait", FILE_LOCK),
	W("do_lock_file_wait", FILE_LOCK),
	W("fcntl_setlk", FILE_LOCK),
	W("__break_lease", FILE_LOCK),
	ENDED("unix_stream_sendmsg", SOCKET, "to read what it had sent", "answer"),
	ENDED("unix_stream_", SOCKET, "to answer", "answer"), /* net/unix/af_unix.c */
	ENDED("unix_dgram_", SOCKET, "to answer", "answer"),
	ENDED("unix_wait_for_peer", SOCKET, "to read what it had sent", "answer"),
	ENDED("sk_wait_data", SOCKET, "to answer", "answer"), /* net/core/sock.c */
	/* net/core/stream.c */
	ENDED("sk_stream_wait_memory", SOCKET, "to read what it had sent", "answer"),
	ENDED("tcp_recvmsg", SOCKET, "to answer", "answer"),
	ENDED("inet_csk_accept", SOCKET, "to connect", "answer"),
	ENDED("inet_wait_for_connect", SOCKET, "to accept the connection", "answer"),
	ENDED("__skb_wait_for_more_packets", SOCKET, "to answer", "answer"),
	W("hrtimer_nanosleep", SLEEP), /* kernel/time/hrtimer.c */
	W("do_nanosleep", SLEEP),
	W("common_nsleep", SLEEP),
	W("do_sigtimedwait", SLEEP),
	W("rwsem_down_", LOCK), /* kernel/locking/rwsem.c */
	W("__down_read", LOCK),
	W("__down_write", LOCK),
	W("down_read", LOCK),
	W("down_write", LOCK),
	W("__mutex_lock", LOCK), /* kernel/locking/mutex.c */
	W("mutex_lock", LOCK),
	W("__ww_mutex_lock", LOCK),
	W("rt_mutex_slowlock", LOCK),
	W("percpu_rwsem_wait", LOCK), /* kernel/locking/percpu-rwsem.c */
	W("__percpu_down_read", LOCK),
	W("io_schedule", DISK), /* kernel/sched/core.c */
	W("bit_wait_io", DISK),
	W("folio_wait_", DISK), /* mm/filemap.c */
	W("wait_on_page_", DISK),
	W("__wait_on_buffer", DISK),
	W("submit_bio_wait", DISK),
	W("jbd2_log_wait_commit", DISK),
	W("blk_mq_get_tag", DISK),
	W("rq_qos_wait", DISK),
	W("wbt_wait", DISK),
	W("balance_dirty_pages", DISK), /* mm/page-writeback.c */
	W("rpc_wait_bit_killable", DISK), /* net/sunrpc: NFS */
	W("do_wait", CHILD), /* kernel/exit.c */
	W("kernel_wait4", CHILD),
	W("do_signal_stop", STOP), /* kernel/signal.c */
	W("ptrace_stop", STOP),
	W("do_jobctl_trap", STOP),
	W("do_freezer_trap", STOP),
	W("shrink_node", RECLAIM), /* mm/vmscan.c */
	W("do_try_to_free_pages", RECLAIM),
	W("try_to_free_", RECLAIM),
	W("reclaim_throttle", RECLAIM),
	W("mem_cgroup_handle_over_high", RECLAIM),
	W("compact_zone", RECLAIM), /* mm/compaction.c */
	W("handle_userfault", FAULT),
	W("nvidia_", GPU), /* out-of-tree GPU drivers' ioctl waits */
	W("_nv", GPU),
	W("amdgpu_", GPU),
	W("kfd_wait_on_events", GPU), /* drivers/gpu/drm/amd/amdkfd */
	W("dma_fence_", GPU), /* drivers/dma-buf/dma-fence.c */
#undef W
#undef ENDED
};

int lg_waits_new(struct lg_case *c, struct lg_error *err)
{
	struct lg_wait_cache *w = lg_calloc(1, sizeof *w);

	if (w) {
		w->frame_class = lg_calloc(c->t->frame.n, 1);
		w->stack_class = lg_calloc(c->t->stack.n, 1);
	}
	if (!w || !w->frame_class || !w->stack_class) {
		lg_waits_free(w);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	c->waits = w;
	return 0;
}

void lg_waits_free(struct lg_wait_cache *w)
{
	if (!w)
		return;
	lg_free(w->frame_class);
	lg_free(w->stack_class);
	lg_free(w);
}

enum { WAIT_FUNCTIONS = sizeof wait_functions / sizeof *wait_functions };

/* WAIT_FUNCTIONS: it is none of them. */
static size_t row_of_name(const char *name)
{
	size_t i = 0;

	while (i < WAIT_FUNCTIONS &&
	       strncmp(name, wait_functions[i].prefix, strlen(wait_functions[i].prefix)))
		i++;
	return i;
}

static uint8_t class_of_name(const char *name)
{
	size_t i = row_of_name(name);

	return i < WAIT_FUNCTIONS ? wait_functions[i].class : LG_WAIT_UNKNOWN;
}

static uint8_t class_of_frame(struct lg_case *c, lg_frm f)
{
	uint8_t *slot = &c->waits->frame_class[f];

	if (*slot)
		return (uint8_t)(*slot - 1);
	*slot = LG_WAIT_UNKNOWN + 1;
	if (c->t->frame.kind[f] == LG_FRAME_KERNEL)
		*slot = (uint8_t)(class_of_name(lg_string(c->t, c->t->frame.name[f])) + 1);
	return (uint8_t)(*slot - 1);
}

static uint8_t class_of_stack(struct lg_case *c, lg_stk stack)
{
	uint8_t class = LG_WAIT_UNKNOWN;

	if (c->waits->stack_class[stack])
		return (uint8_t)(c->waits->stack_class[stack] - 1);
	for (lg_stk s = stack; s && class == LG_WAIT_UNKNOWN; s = c->t->stack.parent[s])
		class = class_of_frame(c, c->t->stack.frame[s]);
	c->waits->stack_class[stack] = (uint8_t)(class + 1);
	return class;
}

enum lg_wait_class lg_wait_class_of(struct lg_case *c, uint32_t row)
{
	const struct lg_state_tab *s = &c->t->state;

	switch (s->reason[row]) {
	case LG_WHY_STOPPED:
	case LG_WHY_TRACED:
		return LG_WAIT_STOP;
	case LG_WHY_IOWAIT:
		return LG_WAIT_DISK;
	default:
		return s->stack[row] ? class_of_stack(c, s->stack[row]) : LG_WAIT_UNKNOWN;
	}
}

lg_str lg_wait_name_of(struct lg_case *c, uint32_t row)
{
	const struct lg_trace *t = c->t;
	lg_stk stack = t->state.stack[row];
	bool known = stack && class_of_stack(c, stack) != LG_WAIT_UNKNOWN;

	for (lg_stk s = stack; s; s = t->stack.parent[s]) {
		lg_frm f = t->stack.frame[s];
		const char *name = lg_string(t, t->frame.name[f]);

		/* kernel/sched/core.c and kernel/time: how it slept, not for what */
		if (known ? class_of_frame(c, f) != LG_WAIT_UNKNOWN
			  : *name && !strstr(name, "schedule") && strncmp(name, "wait_", 5) &&
				    strncmp(name, "__wait_", 7))
			return t->frame.name[f];
	}
	return 0;
}

const char *lg_lock_text(const struct lg_case *c, lg_str lock)
{
	const char *name = lg_string(c->t, lock);

	return class_of_name(name) == LG_WAIT_FILE_LOCK ? "file lock" : name;
}

const char *lg_peer_words(const char *function, const char **ret_detail)
{
	size_t i = function ? row_of_name(function) : WAIT_FUNCTIONS;

	*ret_detail = i < WAIT_FUNCTIONS ? wait_functions[i].detail : NULL;
	if (*ret_detail)
		return wait_functions[i].did;
	switch (i < WAIT_FUNCTIONS ? wait_functions[i].class : LG_WAIT_UNKNOWN) {
	case LG_WAIT_CHILD:
		return "to end";
	case LG_WAIT_POLL: /* of a socket, a pipe, an event: which is not on the stack */
		return "to signal it";
	default:
		return "to go on";
	}
}
