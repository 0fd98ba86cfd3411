/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hook_inject.c - the Python hook and room for mark rings, each in a folder that nobody can take over
 * (runtime_dir.h), and an environment that makes a command use both.
 *
 *	py/      on PYTHONPATH
 *	marks/   LAGGARD_MARKS, 0700, of the user whom the command runs as; in memory where there is some
 *
 * A recorder that was killed leaves its folders behind; the next one takes the locks, finds them free
 * and removes them. The lock and not a pid decides, so pid namespaces that share a folder are safe from
 * each other. The hook asks the same lock whether its recorder lives (laggard/_leave.py).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "record/hook_inject.h"
#include "record/runtime_dir.h"
#include "record/session.h"

struct lg_hook {
	struct lg_runtime_dir code, rings; /* rings: fd -1 where code is good for them too */
	char marks[544];
	char **env;     /* own array; strings of the caller but for the two below */
	char *path, *where;
};

static const char *current; /* the marks directory in force */

const char *lg_hook_marks_dir(const struct lg_hook *h)
{
	return h->marks;
}

const char *lg_hook_current_dir(void)
{
	return current;
}

static int write_file(int dir, const char *path, const void *data, size_t n, struct lg_error *err)
{
	int fd = openat(dir, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644), bad = 0;
	const char *p = data;

	if (fd < 0)
		return lg_fail_errno(err, errno, "cannot write the Python hook");
	while (n && !bad) {
		ssize_t k = write(fd, p, n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0) {
			bad = k ? errno : ENOSPC;
		} else {
			p += k;
			n -= (size_t)k;
		}
	}
	if (!bad && fchmod(fd, 0644)) /* whatever the umask: the command may run as another user */
		bad = errno;
	close(fd);
	return bad ? lg_fail_errno(err, bad, "cannot write the Python hook") : 0;
}

static int make_dir(int at, const char *path, mode_t mode, struct lg_error *err)
{
	if (mkdirat(at, path, mode) || fchmodat(at, path, mode, 0))
		return lg_fail_errno(err, errno, "cannot make %s for the Python hook", path);
	return 0;
}

static int unpack(struct lg_hook *h, const struct lg_user *user, struct lg_error *err)
{
	const struct lg_runtime_dir *rings = h->rings.fd >= 0 ? &h->rings : &h->code;
	int rc;

	if (!(rc = make_dir(h->code.fd, "py", 0755, err)) &&
	    !(rc = make_dir(h->code.fd, "py/laggard", 0755, err)))
		rc = make_dir(rings->fd, "marks", 0700, err);
	for (size_t i = 0; !rc && i < lg_hook_n_files; i++) {
		char path[128];

		snprintf(path, sizeof path, "py/%s", lg_hook_files[i].path);
		rc = write_file(h->code.fd, path, lg_hook_files[i].data, lg_hook_files[i].size, err);
	}
	if (!rc && user && fchownat(rings->fd, "marks", user->uid, user->gid, AT_SYMLINK_NOFOLLOW))
		rc = lg_fail_errno(err, errno, "cannot give the mark rings to the command's user");
	snprintf(h->marks, sizeof h->marks, "%s/marks", rings->path);
	return rc;
}

static int make_env(struct lg_hook *h, char **env, struct lg_error *err)
{
	const char *old = lg_env_value(env, "PYTHONPATH");
	size_t n = 0, k = 0, size;

	while (env && env[n])
		n++;
	size = strlen(h->code.path) + (old ? strlen(old) : 0) + 32;
	h->env = lg_calloc(n + 3, sizeof *h->env);
	h->path = lg_calloc(size, 1);
	h->where = lg_calloc(sizeof h->marks + 16, 1);
	if (!h->env || !h->path || !h->where)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	/* An empty entry means the current directory: no colon where there was nothing. */
	snprintf(h->path, size, "PYTHONPATH=%s/py%s%s", h->code.path, old && *old ? ":" : "",
		 old ? old : "");
	snprintf(h->where, sizeof h->marks + 16, "LAGGARD_MARKS=%s", h->marks);
	for (size_t i = 0; i < n; i++)
		if (strncmp(env[i], "PYTHONPATH=", 11) && strncmp(env[i], "LAGGARD_MARKS=", 14))
			h->env[k++] = env[i];
	h->env[k++] = h->path;
	h->env[k] = h->where;
	return 0;
}

int lg_hook_prepare(struct lg_hook **ret_hook, const struct lg_user *user, char **env, char ***ret_env,
		    struct lg_error *err)
{
	struct lg_hook *h = lg_calloc(1, sizeof *h);
	struct lg_error ignored;
	int rc;

	if (!h)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	h->code.fd = h->code.lock = h->rings.fd = h->rings.lock = -1;
	rc = lg_runtime_dir_make(&h->code, false, env, err ? err : &ignored);
	if (!rc && !h->code.memory)
		rc = lg_runtime_dir_make(&h->rings, true, env, err ? err : &ignored);
	if (!rc)
		rc = unpack(h, user, err);
	if (!rc)
		rc = make_env(h, env, err);
	if (rc) {
		lg_hook_free(h);
		return rc;
	}
	current = h->marks;
	*ret_hook = h;
	*ret_env = h->env;
	return 0;
}

void lg_hook_free(struct lg_hook *h)
{
	if (!h)
		return;
	if (current == h->marks)
		current = NULL;
	lg_runtime_dir_remove(&h->rings);
	lg_runtime_dir_remove(&h->code);
	lg_free(h->env);
	lg_free(h->path);
	lg_free(h->where);
	lg_free(h);
}
