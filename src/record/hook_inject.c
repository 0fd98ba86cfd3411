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
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

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

/* Kept ------------------------------------------------------------------------------------------- */

/* Can nobody but root and us put anything at path, which is resolved? */
static int nobody_else_writes(const char *path, struct lg_error *err)
{
	char part[PATH_MAX];
	size_t n = strlen(path);
	struct stat st;

	for (size_t i = 0; i <= n; i++) {
		if (i && i < n && path[i] != '/')
			continue;
		snprintf(part, sizeof part, "%.*s", i ? (int)i : 1, path);
		if (lstat(part, &st))
			return lg_fail_errno(err, errno, "%.200s", part);
		if (!S_ISDIR(st.st_mode) || (st.st_uid && st.st_uid != geteuid()) || st.st_mode & 022)
			return lg_fail(err, LG_E_PERM, LG_NO_OFFSET, "%.150s: others may write to %.150s, and "
				       "the hook runs in every Python of the job; --dir names another folder",
				       path, part);
	}
	return 0;
}

/* Where it is to be kept, made where it is missing; ret has PATH_MAX bytes. */
static int kept_base(char *ret, const char *dir, char **env, struct lg_error *err)
{
	const char *home = lg_env_value(env, "HOME");
	mode_t mode = geteuid() ? 0700 : 0711; /* root's is passed through by whoever the job runs as */
	char path[512];

	if (dir) {
		snprintf(path, sizeof path, "%s", dir);
	} else if (!geteuid()) {
		snprintf(path, sizeof path, "/run/laggard");
	} else if (home && *home == '/' && strlen(home) < 400) {
		snprintf(path, sizeof path, "%s/.cache", home);
		(void)!mkdir(path, 0700);
		snprintf(path, sizeof path, "%s/.cache/laggard", home);
	} else {
		return lg_fail(err, LG_E_USAGE, LG_NO_OFFSET, "HOME is not set: --dir names a folder for the hook");
	}
	if (!mkdir(path, mode))
		(void)!chmod(path, mode); /* whatever the umask */
	else if (errno != EEXIST)
		return lg_fail_errno(err, errno, "cannot make %.200s", path);
	if (!realpath(path, ret))
		return lg_fail_errno(err, errno, "%.200s", path);
	/* It becomes a part of PYTHONPATH, and of what a shell, JSON and YAML read. */
	for (const char *p = ret; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("/._-+@=,", *p))
			return lg_fail(err, LG_E_USAGE, LG_NO_OFFSET, "%.200s: the folder's path has a character that "
				       "is not safe in PYTHONPATH; --dir names another", ret);
	return nobody_else_writes(ret, err);
}

static bool is_whole(int dir)
{
	struct stat st;
	bool whole = true;

	for (size_t i = 0; i < lg_hook_n_files; i++)
		whole &= !fstatat(dir, lg_hook_files[i].path, &st, AT_SYMLINK_NOFOLLOW) &&
			 S_ISREG(st.st_mode) && (size_t)st.st_size == lg_hook_files[i].size;
	return whole;
}

/* One line, which leaves no name behind: it runs as a part of the program's own main module. */
#define ATTACH_FORM "__import__('sys').path.insert(0, '%s'); __import__('laggard._attach')._attach.start('%s')\n"

/* Under another name first: whoever finds NAME finds all of it. where: its path, in the end. */
static int unpack_kept(int base, const char *name, const char *where, struct lg_error *err)
{
	char fresh[48], attach[2 * PATH_MAX + sizeof ATTACH_FORM];
	uint64_t random;
	int fd, rc;

	if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
		return lg_fail_errno(err, errno, "getrandom");
	snprintf(fresh, sizeof fresh, ".env-%016" PRIx64, random);
	rc = make_dir(base, fresh, 0755, err);
	if (rc)
		return rc;
	fd = openat(base, fresh, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return lg_fail_errno(err, errno, "cannot write the Python hook");
	rc = make_dir(fd, "laggard", 0755, err);
	for (size_t i = 0; !rc && i < lg_hook_n_files; i++)
		rc = write_file(fd, lg_hook_files[i].path, lg_hook_files[i].data, lg_hook_files[i].size, err);
	snprintf(attach, sizeof attach, ATTACH_FORM, where, where);
	rc = rc ?: write_file(fd, LG_HOOK_ATTACH, attach, strlen(attach), err);
	close(fd);
	if (!rc && renameat(base, fresh, base, name) && errno != EEXIST && errno != ENOTEMPTY)
		rc = lg_fail_errno(err, errno, "cannot write the Python hook");
	lg_runtime_dir_discard(base, fresh); /* there still where it failed, or somebody was faster */
	return rc;
}

int lg_hook_keep(char *ret, size_t size, const char *dir, char **env, struct lg_error *err)
{
	char path[PATH_MAX], name[32];
	uint64_t hash = XXH3_64bits(LG_VERSION ATTACH_FORM, sizeof LG_VERSION ATTACH_FORM);
	int base, fd, rc = kept_base(path, dir, env, err);

	if (rc)
		return rc;
	for (size_t i = 0; i < lg_hook_n_files; i++)
		hash = XXH3_64bits_withSeed(lg_hook_files[i].data, lg_hook_files[i].size, hash);
	snprintf(name, sizeof name, "env-%016" PRIx64, hash);
	if ((size_t)snprintf(ret, size, "%s/%s", path, name) >= size)
		return lg_fail(err, LG_E_LIMIT, LG_NO_OFFSET, "%.200s: too long a path", path);
	base = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (base < 0)
		return lg_fail_errno(err, errno, "%.200s", path);
	if (faccessat(base, name, F_OK, AT_SYMLINK_NOFOLLOW))
		rc = unpack_kept(base, name, ret, err);
	fd = rc ? -1 : openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (!rc && (fd < 0 || !is_whole(fd)))
		rc = lg_fail(err, LG_E_IO, LG_NO_OFFSET, "%.300s is not whole: remove it, and ask again", ret);
	if (fd >= 0)
		close(fd);
	close(base);
	return rc;
}
