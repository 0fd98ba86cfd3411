/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_python.c - run a Python as `laggard record -- CMD` would and see whether the hook is in.
 * torch is not imported (that takes seconds): its version comes from the package's metadata.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "record/probe.h"

static const char script[] =
	"import sys\n"
	/* -c puts the current folder first, which may be anybody's. */
	"sys.path[:] = [p for p in sys.path if p]\n"
	"try:\n"
	"    from importlib.metadata import version\n"
	"    torch = 'torch ' + version('torch')\n"
	"except Exception:\n"
	"    torch = 'no torch'\n"
	"hook = 'laggard._inject' in sys.modules\n"
	"print('%d.%d.%d|%s|%s|%d' % (sys.version_info[0], sys.version_info[1],\n"
	"      sys.version_info[2], sys.executable, torch, hook))\n";

enum { PATIENCE_MS = 20000 };

/* What the script printed, or a negative errno. */
static int run_python(const char *python, char **env, char *out, size_t size)
{
	char name[4096], code[sizeof script], flag[] = "-c";
	char *argv[] = { name, flag, code, NULL };
	posix_spawn_file_actions_t fa;
	struct pollfd pfd;
	int fds[2], rc, status, left = PATIENCE_MS;
	size_t n = 0;
	pid_t pid;

	snprintf(name, sizeof name, "%s", python);
	memcpy(code, script, sizeof script);
	if (pipe2(fds, O_CLOEXEC))
		return -errno;
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_adddup2(&fa, fds[1], STDOUT_FILENO);
	posix_spawn_file_actions_addopen(&fa, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&fa, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	rc = posix_spawnp(&pid, name, &fa, NULL, argv, env);
	posix_spawn_file_actions_destroy(&fa);
	close(fds[1]);
	if (rc) {
		close(fds[0]);
		return -rc;
	}
	pfd = (struct pollfd){ .fd = fds[0], .events = POLLIN };
	while (n + 1 < size && left > 0) {
		ssize_t got;

		if (poll(&pfd, 1, 1000) == 0) {
			left -= 1000;
			continue;
		}
		got = read(fds[0], out + n, size - 1 - n);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		n += (size_t)got;
	}
	out[n] = 0;
	close(fds[0]);
	if (left <= 0)
		kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return left <= 0 ? -ETIMEDOUT : WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -EIO;
}

void lg_probe_python(const char *python, char **env, struct lg_check *ret)
{
	char out[1024], version[16] = "", path[512] = "", torch[128] = "";
	char **with = env;
	struct lg_error err = { 0 };
	struct lg_hook *hook = NULL;
	int rc, reached = 0;

	*ret = (struct lg_check){ .name = "python", .grade = LG_GRADE_MISSING };
	snprintf(ret->lost, sizeof ret->lost, "steps and stages of Python programs");
#ifdef LG_HAVE_HOOK
	if (lg_hook_prepare(&hook, NULL, env, &with, &err)) {
		snprintf(ret->found, sizeof ret->found, "the hook cannot be unpacked: %.200s",
			 err.message);
		return;
	}
#else
	(void)err;
#endif
	rc = run_python(python, with, out, sizeof out);
#ifdef LG_HAVE_HOOK
	lg_hook_free(hook);
#else
	(void)hook;
#endif
	if (rc) {
		snprintf(ret->found, sizeof ret->found, "%.100s does not run: %s", python,
			 strerror(-rc));
		return;
	}
	if (sscanf(out, "%15[^|]|%511[^|]|%127[^|]|%d", version, path, torch, &reached) != 4) {
		snprintf(ret->found, sizeof ret->found, "%.100s answers strangely", python);
		return;
	}
	snprintf(ret->found, sizeof ret->found, "%.120s: Python %s, %.60s%s", path, version, torch,
		 reached ? ", hook works" : ", the hook does not reach it");
	if (!reached) {
		snprintf(ret->fix, sizeof ret->fix,
			 "start Python without -I, -E and -S, 3.8 or newer");
		return;
	}
	ret->grade = LG_GRADE_OK;
	ret->lost[0] = 0;
	if (strncmp(torch, "no ", 3))
		return;
	ret->grade = LG_GRADE_LIMITED;
	snprintf(ret->lost, sizeof ret->lost,
		 "nothing if your job uses another Python; else its stages");
	snprintf(ret->fix, sizeof ret->fix, "put the job's python3 first on PATH");
}
