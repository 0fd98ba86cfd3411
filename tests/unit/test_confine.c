/* SPDX-License-Identifier: Apache-2.0 */
/* test_confine.c - what a reader of files can no longer do, and what it still can. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/confine.h"

static void *touch(void *arg)
{
	*(int *)arg = 1;
	return NULL;
}

/* Exit status of a child that is confined: the number of the first expectation that fails. */
static int confined(bool network, pid_t other)
{
	char *const argv[] = { NULL };
	pthread_t thread;
	int ran = 0;

	if (lg_confine_to_files(network, NULL))
		return 1;
	if (pthread_create(&thread, NULL, touch, &ran) || pthread_join(thread, NULL) || !ran)
		return 2;
	if (fork() != -1 || errno != ENOSYS)
		return 3;
	if (execv("/bin/true", argv) != -1 || errno != ENOSYS)
		return 4;
	if (kill(other, 0) != -1 || errno != ENOSYS)
		return 5;
	if (syscall(SYS_tgkill, other, other, 0) != -1 || errno != ENOSYS)
		return 6;
	if (syscall(SYS_tgkill, getpid(), getpid(), 0))
		return 7;
	if ((socket(AF_UNIX, SOCK_STREAM, 0) >= 0) != network)
		return 8;
	if (getppid() != other)
		return 9;
	return 0;
}

static void files_and_threads_remain(void **state)
{
	(void)state;
	if (LG_CONFINE_SANITIZER) {
		print_message("a sanitizer makes calls of its own: there is no filter of system calls under one\n");
		skip();
	}
	for (int network = 0; network < 2; network++) {
		pid_t parent = getpid(), child = fork();
		int status;

		assert_true(child >= 0);
		if (!child)
			_exit(confined(network, parent));
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
	}
}

/* Exit status of a child that may make only some calls, among many rules; as above. */
static int only_listed(void)
{
	enum { MADE_UP = 20000, N_MADE_UP = 80 }; /* numbers that no kernel has, so that jumps go far */
	struct lg_syscall_rule rule[N_MADE_UP + 5] = {
		{ .nr = SYS_lseek, .when = { { .arg = 0, .used = 1, .equal = 1, .value = 77 },
					     { .arg = 1, .used = 1, .value = 4 } } },
		{ .nr = SYS_getppid },
		{ .nr = SYS_lseek, .when = { { .arg = 0, .used = 1, .equal = 1, .value = 78 } } },
		{ .nr = SYS_exit_group },
	};
	size_t n = 4;

	for (uint32_t i = 0; i < N_MADE_UP; i++)
		rule[n++] = (struct lg_syscall_rule){ .nr = MADE_UP - 2 * i,
						      .when = { { .arg = 0, .used = 1, .value = 1 },
								{ .arg = 1, .used = 1, .value = 1 } } };
	rule[n++] = (struct lg_syscall_rule){ .nr = SYS_dup };
	if (lg_confine_syscalls(rule, n, NULL))
		return 1;
	if (getppid() <= 0)
		return 2;
	/* No such descriptor, where the call is let through. */
	if (lseek(77, 8, SEEK_SET) != -1 || errno != EBADF || lseek(78, 4, SEEK_SET) != -1 || errno != EBADF)
		return 3;
	if (lseek(77, 12, SEEK_SET) != -1 || errno != ENOSYS ||
	    lseek(79, 8, SEEK_SET) != -1 || errno != ENOSYS)
		return 4;
	if (dup(77) != -1 || errno != EBADF)
		return 5;
	if (close(77) != -1 || errno != ENOSYS || syscall(SYS_getuid) != -1 || errno != ENOSYS)
		return 6;
	return 0;
}

static void only_what_is_listed_remains(void **state)
{
	pid_t child;
	int status;

	(void)state;
	if (LG_CONFINE_SANITIZER)
		skip(); /* as above */
	child = fork();
	assert_true(child >= 0);
	if (!child)
		_exit(only_listed());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files_and_threads_remain),
		cmocka_unit_test(only_what_is_listed_remains),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
