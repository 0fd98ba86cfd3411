/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/own_command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/command.h"

static void take(struct lg_printed *b)
{
	char spare[4096];
	bool full = b->n == b->max;
	ssize_t n = read(b->fd, full ? spare : b->p + b->n, full ? sizeof spare : b->max - b->n);

	if (n < 0 && errno == EINTR)
		return;
	if (n <= 0) {
		close(b->fd);
		b->fd = -1;
	} else if (full) {
		b->cut = true;
	} else {
		b->n += (size_t)n;
	}
}

static void become(char *const *argv, int out, int err)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	if (dup2(null, 0) == 0 && dup2(out, 1) == 1 && (err < 0 || dup2(err, 2) == 2))
		execv("/proc/self/exe", argv);
	_exit(LG_EXIT_FAILED);
}

int lg_run_own_command(char *const *argv, struct lg_printed *out, struct lg_printed *said)
{
	int a[2], b[2] = { -1, -1 }, status = 0;
	pid_t pid;

	if (pipe2(a, O_CLOEXEC))
		return -1;
	if (said && pipe2(b, O_CLOEXEC)) {
		close(a[0]);
		close(a[1]);
		return -1;
	}
	pid = fork();
	if (!pid)
		become(argv, a[1], b[1]);
	close(a[1]);
	out->fd = a[0];
	if (said) {
		close(b[1]);
		said->fd = b[0];
	}
	while (pid > 0 && (out->fd >= 0 || (said && said->fd >= 0))) {
		struct pollfd p[] = { { .fd = out->fd, .events = POLLIN },
				      { .fd = said ? said->fd : -1, .events = POLLIN } };

		if (poll(p, 2, -1) < 0 && errno != EINTR)
			break;
		if (p[0].revents)
			take(out);
		if (p[1].revents)
			take(said);
	}
	if (out->fd >= 0)
		close(out->fd);
	if (said && said->fd >= 0)
		close(said->fd);
	if (pid < 0)
		return -1;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : LG_EXIT_FAILED;
}

static size_t words(const char *const *v)
{
	size_t n = 0;

	while (v[n])
		n++;
	return n;
}

_Noreturn void lg_become_record(const char *const *options, const char *file, char *const *cmd)
{
	const char *const *job = (const char *const *)cmd;
	size_t n = words(options), m = words(job);
	const char **argv = lg_calloc(n + m + 6, sizeof *argv);

	if (!argv || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		_exit(LG_EXIT_FAILED);
	argv[0] = "laggard";
	argv[1] = "record";
	memcpy(argv + 2, options, n * sizeof *argv);
	argv[n + 2] = "-o";
	argv[n + 3] = file;
	argv[n + 4] = "--";
	memcpy(argv + n + 5, job, m * sizeof *argv);
	execv("/proc/self/exe", (char *const *)(const void *)argv);
	_exit(LG_EXIT_FAILED);
}
