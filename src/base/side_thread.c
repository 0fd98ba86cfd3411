/* SPDX-License-Identifier: Apache-2.0 */
#include "base/side_thread.h"

#include <signal.h>

#include "base/alloc.h"

struct task {
	void (*work)(void *arg);
	void *arg;
};

static void *run(void *arg)
{
	struct task task = *(struct task *)arg;

	lg_free(arg);
	task.work(task.arg);
	return NULL;
}

void lg_side_thread_start(struct lg_side_thread *a, bool worth, void (*work)(void *arg), void *arg)
{
	struct task *task = worth ? lg_calloc(1, sizeof *task) : NULL;
	sigset_t all, old;

	a->threaded = false;
	if (task) {
		*task = (struct task){ work, arg };
		/* Signals are the caller's business. */
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &old);
		a->threaded = !pthread_create(&a->thread, NULL, run, task);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
	}
	if (a->threaded)
		return;
	lg_free(task);
	work(arg);
}

void lg_side_thread_wait(struct lg_side_thread *a)
{
	if (a->threaded)
		pthread_join(a->thread, NULL);
	a->threaded = false;
}
