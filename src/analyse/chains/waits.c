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

static const struct {
	const char *prefix; /* the function's name starts with this */
	uint8_t class;
} wait_functions[] = {
	{ "futex_wait", LG_WAIT_FUTEX },		 /* kernel/futex/waitwake.c */
	{ "futex_lock_pi", LG_WAIT_FUTEX },		 /* kernel/futex/pi.c */
	{ "__futex_wait", LG_WAIT_FUTEX },
	{ "do_futex", LG_WAIT_FUTEX },
	{ "ep_poll", LG_WAIT_POLL },			 /* fs/eventpoll.c */
	{ "do_epoll_wait", LG_WAIT_POLL },
	{ "do_poll", LG_WAIT_POLL },			 /* fs/select.c */
	{ "do_sys_poll", LG_WAIT_POLL },
	{ "poll_schedule_timeout", LG_WAIT_POLL },
	{ "do_select", LG_WAIT_POLL },
	{ "core_sys_select", LG_WAIT_POLL },
	{ "io_cqring_wait", LG_WAIT_POLL },		 /* io_uring/io_uring.c */
	{ "eventfd_read", LG_WAIT_PIPE },		 /* fs/eventfd.c */
	{ "anon_pipe_", LG_WAIT_PIPE },			 /* fs/pipe.c, since 6.15 */
	{ "pipe_", LG_WAIT_PIPE },
	{ "fifo_open", LG_WAIT_PIPE },
	{ "do_semtimedop", LG_WAIT_ANSWER },		 /* ipc/sem.c, msg.c, mqueue.c */
	{ "__do_semtimedop", LG_WAIT_ANSWER },
	{ "do_msgrcv", LG_WAIT_ANSWER },
	{ "do_msgsnd", LG_WAIT_ANSWER },
	{ "wq_sleep", LG_WAIT_ANSWER },
	{ "n_tty_", LG_WAIT_ANSWER },			 /* drivers/tty/n_tty.c: a terminal that is full */
	{ "request_wait_answer", LG_WAIT_ANSWER },	 /* fs/fuse/dev.c: the file system's daemon */
	{ "p9_client_rpc", LG_WAIT_ANSWER },		 /* net/9p/client.c */
	{ "flock_lock_inode_wait", LG_WAIT_FILE_LOCK },	 /* fs/locks.c */
	{ "posix_lock_inode_wait", LG_WAIT_FILE_LOCK },
	{ "locks_lock_inode_wait", LG_WAIT_FILE_LOCK },
	{ "do_lock_file_wait", LG_WAIT_FILE_LOCK },
	{ "fcntl_setlk", LG_WAIT_FILE_LOCK },
	{ "__break_lease", LG_WAIT_FILE_LOCK },
	{ "unix_stream_", LG_WAIT_SOCKET },		 /* net/unix/af_unix.c */
	{ "unix_dgram_", LG_WAIT_SOCKET },
	{ "unix_wait_for_peer", LG_WAIT_SOCKET },
	{ "sk_wait_data", LG_WAIT_SOCKET },		 /* net/core/sock.c */
	{ "sk_stream_wait_memory", LG_WAIT_SOCKET },	 /* net/core/stream.c */
	{ "tcp_recvmsg", LG_WAIT_SOCKET },
	{ "inet_csk_accept", LG_WAIT_SOCKET },
	{ "inet_wait_for_connect", LG_WAIT_SOCKET },
	{ "__skb_wait_for_more_packets", LG_WAIT_SOCKET },
	{ "hrtimer_nanosleep", LG_WAIT_SLEEP },		 /* kernel/time/hrtimer.c */
	{ "do_nanosleep", LG_WAIT_SLEEP },
	{ "common_nsleep", LG_WAIT_SLEEP },
	{ "do_sigtimedwait", LG_WAIT_SLEEP },
	{ "rwsem_down_", LG_WAIT_LOCK },		 /* kernel/locking/rwsem.c */
	{ "__down_read", LG_WAIT_LOCK },
	{ "__down_write", LG_WAIT_LOCK },
	{ "down_read", LG_WAIT_LOCK },
	{ "down_write", LG_WAIT_LOCK },
	{ "__mutex_lock", LG_WAIT_LOCK },		 /* kernel/locking/mutex.c */
	{ "mutex_lock", LG_WAIT_LOCK },
	{ "__ww_mutex_lock", LG_WAIT_LOCK },
	{ "rt_mutex_slowlock", LG_WAIT_LOCK },
	{ "percpu_rwsem_wait", LG_WAIT_LOCK },		 /* kernel/locking/percpu-rwsem.c */
	{ "__percpu_down_read", LG_WAIT_LOCK },
	{ "io_schedule", LG_WAIT_DISK },		 /* kernel/sched/core.c */
	{ "bit_wait_io", LG_WAIT_DISK },
	{ "folio_wait_", LG_WAIT_DISK },		 /* mm/filemap.c */
	{ "wait_on_page_", LG_WAIT_DISK },
	{ "__wait_on_buffer", LG_WAIT_DISK },
	{ "submit_bio_wait", LG_WAIT_DISK },
	{ "jbd2_log_wait_commit", LG_WAIT_DISK },
	{ "blk_mq_get_tag", LG_WAIT_DISK },
	{ "rq_qos_wait", LG_WAIT_DISK },
	{ "wbt_wait", LG_WAIT_DISK },
	{ "balance_dirty_pages", LG_WAIT_DISK },	 /* mm/page-writeback.c */
	{ "rpc_wait_bit_killable", LG_WAIT_DISK },	 /* net/sunrpc: NFS */
	{ "do_wait", LG_WAIT_CHILD },			 /* kernel/exit.c */
	{ "kernel_wait4", LG_WAIT_CHILD },
	{ "do_signal_stop", LG_WAIT_STOP },		 /* kernel/signal.c */
	{ "ptrace_stop", LG_WAIT_STOP },
	{ "do_jobctl_trap", LG_WAIT_STOP },
	{ "do_freezer_trap", LG_WAIT_STOP },
	{ "shrink_node", LG_WAIT_RECLAIM },		 /* mm/vmscan.c */
	{ "do_try_to_free_pages", LG_WAIT_RECLAIM },
	{ "try_to_free_", LG_WAIT_RECLAIM },
	{ "reclaim_throttle", LG_WAIT_RECLAIM },
	{ "mem_cgroup_handle_over_high", LG_WAIT_RECLAIM },
	{ "compact_zone", LG_WAIT_RECLAIM },		 /* mm/compaction.c */
	{ "handle_userfault", LG_WAIT_FAULT },
	{ "nvidia_", LG_WAIT_GPU },			 /* out-of-tree GPU drivers' ioctl waits */
	{ "_nv", LG_WAIT_GPU },
	{ "amdgpu_", LG_WAIT_GPU },
	{ "kfd_wait_on_events", LG_WAIT_GPU },		 /* drivers/gpu/drm/amd/amdkfd */
	{ "dma_fence_", LG_WAIT_GPU },			 /* drivers/dma-buf/dma-fence.c */
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

static uint8_t class_of_name(const char *name)
{
	for (size_t i = 0; i < sizeof wait_functions / sizeof *wait_functions; i++)
		if (!strncmp(name, wait_functions[i].prefix, strlen(wait_functions[i].prefix)))
			return wait_functions[i].class;
	return LG_WAIT_UNKNOWN;
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

/* What whoever ended a wait in `function` did for it: the words between "waited for X" and the function. */
static const struct {
	const char *prefix, *did, *detail;
} endings[] = {
	{ "futex", "to release the lock or semaphore that they share", "shared_lock" },
	{ "__futex", "to release the lock or semaphore that they share", "shared_lock" },
	{ "do_futex", "to release the lock or semaphore that they share", "shared_lock" },
	{ "do_semtimedop", "to post the semaphore", "shared_lock" },
	{ "__do_semtimedop", "to post the semaphore", "shared_lock" },
	{ "do_msgrcv", "to send a message", "pipe" },
	{ "do_msgsnd", "to take a message", "pipe" },
	{ "wq_sleep", "to serve the message queue", "pipe" },
	{ "pipe_read", "to write into the pipe", "pipe" },
	{ "anon_pipe_read", "to write into the pipe", "pipe" },
	{ "pipe_write", "to read from the pipe", "pipe" },
	{ "anon_pipe_write", "to read from the pipe", "pipe" },
	{ "pipe_", "to serve the pipe", "pipe" },
	{ "fifo_open", "to open the pipe", "pipe" },
	{ "eventfd_read", "to signal the event", "pipe" },
	{ "n_tty_write", "to read from the terminal", "pipe" },
	{ "n_tty_", "to write to the terminal", "pipe" },
	{ "unix_stream_sendmsg", "to read what it had sent", "answer" },
	{ "unix_wait_for_peer", "to read what it had sent", "answer" },
	{ "sk_stream_wait_memory", "to read what it had sent", "answer" },
	{ "unix_", "to answer", "answer" },
	{ "sk_wait_data", "to answer", "answer" },
	{ "tcp_recvmsg", "to answer", "answer" },
	{ "__skb_wait_for_more_packets", "to answer", "answer" },
	{ "inet_csk_accept", "to connect", "answer" },
	{ "inet_wait_for_connect", "to accept the connection", "answer" },
	{ "request_wait_answer", "to answer for its file system", "answer" },
	{ "p9_client_rpc", "to answer for its file system", "answer" },
};

const char *lg_peer_words(const char *function, const char **ret_detail)
{
	*ret_detail = NULL;
	for (size_t i = 0; function && i < sizeof endings / sizeof *endings; i++)
		if (!strncmp(function, endings[i].prefix, strlen(endings[i].prefix))) {
			*ret_detail = endings[i].detail;
			return endings[i].did;
		}
	switch (function ? class_of_name(function) : LG_WAIT_UNKNOWN) {
	case LG_WAIT_CHILD:
		return "to end";
	case LG_WAIT_POLL: /* of a socket, a pipe, an event: which is not on the stack */
		return "to signal it";
	default:
		return "to go on";
	}
}
