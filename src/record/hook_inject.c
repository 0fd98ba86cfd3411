/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hook_inject.c - a private directory with the Python hook and room for mark rings, and an
 * environment that makes a command use both.
 *
 *	/dev/shm/laggard-XXXXXX/         flock()ed while its recorder lives
 *	                        lock
 *	                        py/      on PYTHONPATH
 *	                        marks/   LAGGARD_MARKS, 0700
 *
 * A recorder that was killed leaves its directory behind; the next one takes the lock, finds it
 * free and removes it. The lock and not a pid decides, so pid namespaces that share /dev/shm are
 * safe from each other.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "record/hook_inject.h"
#include "record/session.h"

#define PREFIX "laggard-"
#define NEEDED (32u << 20) /* free bytes below which /dev/shm is not worth trying: 64 MB docker */

struct lg_hook {
	char root[256], marks[288];
	int lock;
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

/* Remove what lies under fd, at most depth levels down; symbolic links are not followed. */
static void empty_dir(int fd, int depth)
{
	DIR *d = fdopendir(fd); /* takes fd */
	struct dirent *e;

	if (!d) {
		close(fd);
		return;
	}
	while ((e = readdir(d))) {
		int sub;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (unlinkat(dirfd(d), e->d_name, 0) == 0 || depth == 0)
			continue;
		sub = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (sub >= 0)
			empty_dir(sub, depth - 1);
		unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
	}
	closedir(d);
}

static void remove_dir(int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0)
		empty_dir(fd, 4);
	unlinkat(at, name, AT_REMOVEDIR);
}

/* Directories of dead recorders of this user. */
static void remove_stale(const char *base)
{
	DIR *d = opendir(base);
	struct dirent *e;

	while (d && (e = readdir(d))) {
		struct stat st;
		int dir, lock;

		if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) ||
		    strlen(e->d_name) != strlen(PREFIX) + 6)
			continue;
		dir = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (dir < 0)
			continue;
		lock = openat(dir, "lock", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		if (lock >= 0 && fstat(dir, &st) == 0 && st.st_uid == geteuid() &&
		    flock(lock, LOCK_EX | LOCK_NB) == 0)
			remove_dir(dirfd(d), e->d_name);
		if (lock >= 0)
			close(lock);
		close(dir);
	}
	if (d)
		closedir(d);
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

static const char *env_value(char **env, const char *name)
{
	size_t n = strlen(name);

	for (; env && *env; env++)
		if (!strncmp(*env, name, n) && (*env)[n] == '=')
			return *env + n + 1;
	return NULL;
}

static int make_dir(int at, const char *path, mode_t mode, struct lg_error *err)
{
	if (mkdirat(at, path, mode) || fchmodat(at, path, mode, 0))
		return lg_fail_errno(err, errno, "cannot make %s for the Python hook", path);
	return 0;
}

static int unpack(struct lg_hook *h, struct lg_error *err)
{
	int dir = open(h->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc;

	if (dir < 0)
		return lg_fail_errno(err, errno, "cannot open %s", h->root);
	h->lock = openat(dir, "lock", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (h->lock < 0 || flock(h->lock, LOCK_EX | LOCK_NB))
		rc = lg_fail_errno(err, errno, "cannot lock %s", h->root);
	else if (fchmod(dir, 0755))
		rc = lg_fail_errno(err, errno, "cannot open %s to others", h->root);
	else if (!(rc = make_dir(dir, "py", 0755, err)) &&
		 !(rc = make_dir(dir, "py/laggard", 0755, err)))
		rc = make_dir(dir, "marks", 0700, err);
	for (size_t i = 0; !rc && i < lg_hook_n_files; i++) {
		char path[128];

		snprintf(path, sizeof path, "py/%s", lg_hook_files[i].path);
		rc = write_file(dir, path, lg_hook_files[i].data, lg_hook_files[i].size, err);
	}
	close(dir);
	return rc;
}

static int make_env(struct lg_hook *h, char **env, struct lg_error *err)
{
	const char *old = env_value(env, "PYTHONPATH");
	size_t n = 0, k = 0, size;

	while (env && env[n])
		n++;
	size = strlen(h->root) + (old ? strlen(old) : 0) + 32;
	h->env = lg_calloc(n + 3, sizeof *h->env);
	h->path = lg_calloc(size, 1);
	h->where = lg_calloc(sizeof h->marks + 16, 1);
	if (!h->env || !h->path || !h->where)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	/* An empty entry means the current directory: no colon where there was nothing. */
	snprintf(h->path, size, "PYTHONPATH=%s/py%s%s", h->root, old && *old ? ":" : "",
		 old ? old : "");
	snprintf(h->where, sizeof h->marks + 16, "LAGGARD_MARKS=%s", h->marks);
	for (size_t i = 0; i < n; i++)
		if (strncmp(env[i], "PYTHONPATH=", 11) && strncmp(env[i], "LAGGARD_MARKS=", 14))
			h->env[k++] = env[i];
	h->env[k++] = h->path;
	h->env[k] = h->where;
	return 0;
}

static bool roomy(const char *dir)
{
	struct statvfs v;

	return access(dir, W_OK | X_OK) == 0 && statvfs(dir, &v) == 0 &&
	       (uint64_t)v.f_bavail * v.f_frsize >= NEEDED;
}

int lg_hook_prepare(struct lg_hook **ret_hook, char **env, char ***ret_env, struct lg_error *err)
{
	const char *base = "/dev/shm", *tmp = env_value(env, "TMPDIR");
	struct lg_hook *h = lg_calloc(1, sizeof *h);
	int rc;

	if (!h)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	h->lock = -1;
	remove_stale(base);
	if (!roomy(base))
		base = tmp && *tmp == '/' && strlen(tmp) < 200 && roomy(tmp) ? tmp : "/tmp";
	snprintf(h->root, sizeof h->root, "%s/" PREFIX "XXXXXX", base);
	if (!mkdtemp(h->root)) {
		rc = lg_fail_errno(err, errno, "cannot make a directory in %s", base);
		h->root[0] = 0;
	} else {
		snprintf(h->marks, sizeof h->marks, "%s/marks", h->root);
		rc = unpack(h, err);
		if (!rc)
			rc = make_env(h, env, err);
	}
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
	if (h->root[0])
		remove_dir(AT_FDCWD, h->root);
	if (h->lock >= 0)
		close(h->lock);
	lg_free(h->env);
	lg_free(h->path);
	lg_free(h->where);
	lg_free(h);
}
