/* SPDX-License-Identifier: Apache-2.0 */
#include "record/runtime_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#define NEEDED (32u << 20) /* free bytes below which a tmpfs is not worth trying: 64 MB docker */
#define NAME_LENGTH 16
#define PATIENCE 1         /* seconds to spend on removing */
#define DEPTH 4

const char *lg_env_value(char **env, const char *name)
{
	size_t n = strlen(name);

	for (; env && *env; env++)
		if (!strncmp(*env, name, n) && (*env)[n] == '=')
			return *env + n + 1;
	return NULL;
}

/* Removing ---------------------------------------------------------------------------------------- */

static int64_t seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

/* Remove what lies under fd, at most depth levels down; symbolic links are not followed. Who may write
 * there may also go on writing: until, in seconds(). */
static void empty_dir(int fd, int depth, int64_t until)
{
	DIR *d = fdopendir(fd); /* takes fd */
	struct dirent *e;

	if (!d) {
		close(fd);
		return;
	}
	while ((e = readdir(d)) && seconds() <= until) {
		int sub;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (unlinkat(dirfd(d), e->d_name, 0) == 0 || depth == 0)
			continue;
		sub = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (sub >= 0)
			empty_dir(sub, depth - 1, until);
		unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
	}
	closedir(d);
}

void lg_runtime_dir_discard(int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0)
		empty_dir(fd, DEPTH, seconds() + PATIENCE);
	unlinkat(at, name, AT_REMOVEDIR);
}

/* Folders of dead recorders. Only this user can have put anything into base. */
static void remove_stale(int base)
{
	int fd = openat(base, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!d && fd >= 0)
		close(fd);
	while (d && (e = readdir(d))) {
		struct stat st;
		char path[NAME_MAX + 8];
		int lock;

		if (strspn(e->d_name, "0123456789abcdef") != NAME_LENGTH || e->d_name[NAME_LENGTH])
			continue;
		snprintf(path, sizeof path, "%s/lock", e->d_name);
		lock = openat(base, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		if (lock < 0)
			continue;
		if (!fstat(lock, &st) && S_ISREG(st.st_mode) && !flock(lock, LOCK_EX | LOCK_NB))
			lg_runtime_dir_discard(base, e->d_name);
		close(lock);
	}
	if (d)
		closedir(d);
}

void lg_runtime_dir_remove(struct lg_runtime_dir *d)
{
	const char *name = strrchr(d->path, '/');
	int base;

	if (d->fd < 0)
		return;
	base = openat(d->fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (base >= 0 && name)
		lg_runtime_dir_discard(base, name + 1);
	if (base >= 0)
		close(base);
	if (d->lock >= 0)
		close(d->lock);
	close(d->fd);
	d->fd = d->lock = -1;
}

/* Making ------------------------------------------------------------------------------------------ */

/* Ours, or root's: and nobody else can take away or put aside what is ours in it. */
static bool holds_fast(int dir)
{
	struct stat st;

	return !fstat(dir, &st) && (st.st_uid == 0 || st.st_uid == geteuid()) &&
	       (!(st.st_mode & 022) || st.st_mode & S_ISVTX);
}

/* Open BASE, made where it is missing; -1 with errno. Root's may be passed through by whoever the
 * command runs as, who has been told the name inside; listed by nobody. */
static int open_base(const char *path)
{
	mode_t mode = geteuid() ? 0700 : 0711;
	char around[512];
	const char *name = strrchr(path, '/');
	struct stat st;
	int outer, fd = -1;

	snprintf(around, sizeof around, "%.*s", (int)(name - path), path);
	outer = open(around, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (outer < 0)
		return -1;
	if (!holds_fast(outer)) {
		errno = EPERM;
	} else if (!mkdirat(outer, name + 1, 0700) || errno == EEXIST) {
		/* Looked at before it is opened: whatever lies there may be another's. */
		fd = openat(outer, name + 1, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd >= 0 && (fstat(fd, &st) || st.st_uid != geteuid() || st.st_mode & 022)) {
			close(fd);
			fd = -1;
			errno = EPERM;
		} else if (fd >= 0 && (st.st_mode & 07777) != mode && fchmodat(fd, ".", mode, 0)) {
			close(fd);
			fd = -1;
		}
	}
	close(outer);
	return fd;
}

/* The same; what others put there before is left to them. path, of a folder that all may write to, gets a
 * name then that they cannot know. It stays, empty: whoever made it anew could lie in wait for what is left
 * in environments. */
static int open_base_or_beside(char *path, size_t size)
{
	int fd = open_base(path);
	size_t n = strlen(path);
	uint64_t random;

	if (fd >= 0 || (errno != EPERM && errno != ENOTDIR && errno != ELOOP) || (strncmp(path, "/dev/shm/", 9) && strncmp(path, "/tmp/", 5)) ||
	    getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
		return fd;
	snprintf(path + n, size - n, "-%016" PRIx64, random);
	return open_base(path);
}

static bool is_roomy_memory(int dir)
{
	struct statfs s;

	return !fstatfs(dir, &s) && s.f_type == TMPFS_MAGIC &&
	       (uint64_t)s.f_bavail * (uint64_t)s.f_bsize >= NEEDED;
}

static int make_in(struct lg_runtime_dir *d, int base, const char *base_path, struct lg_error *err)
{
	uint64_t random;

	if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
		return lg_fail_errno(err, errno, "getrandom");
	snprintf(d->path, sizeof d->path, "%.256s/%016" PRIx64, base_path, random);
	if (mkdirat(base, strrchr(d->path, '/') + 1, 0700))
		return lg_fail_errno(err, errno, "cannot make a folder in %s", base_path);
	d->fd = openat(base, strrchr(d->path, '/') + 1, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	d->lock = d->fd < 0 ? -1 : openat(d->fd, "lock", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (d->lock < 0 || flock(d->lock, LOCK_EX | LOCK_NB) || fchmod(d->lock, 0644) ||
	    fchmod(d->fd, 0711)) {
		int e = errno;

		lg_runtime_dir_remove(d);
		return lg_fail_errno(err, e, "cannot lock %s", d->path);
	}
	d->memory = is_roomy_memory(d->fd);
	return 0;
}

enum { BASES = 4 };

/* The bases to try, best first, "" where there is none. */
static void list_bases(char bases[BASES][256], bool rings, char **env)
{
	const char *runtime = lg_env_value(env, "XDG_RUNTIME_DIR"), *home = lg_env_value(env, "HOME");
	unsigned uid = geteuid();

	memset(bases, 0, BASES * sizeof *bases);
	if (!uid)
		snprintf(bases[0], sizeof bases[0], "/run/laggard");
	else if (runtime && *runtime == '/' && strlen(runtime) < 200)
		snprintf(bases[0], sizeof bases[0], "%s/laggard", runtime);
	/* Code comes before all from where nobody else can write at all, rings from memory. */
	snprintf(bases[rings ? 1 : 2], sizeof bases[0], "/dev/shm/laggard-%u", uid);
	if (uid && home && *home == '/' && strlen(home) < 200)
		snprintf(bases[rings ? 2 : 1], sizeof bases[0], "%s/.cache/laggard", home);
	snprintf(bases[3], sizeof bases[0], "/tmp/laggard-%u", uid);
}

int lg_runtime_dir_make(struct lg_runtime_dir *ret, bool rings, char **env, struct lg_error *err)
{
	char bases[BASES][256];
	const char *home = lg_env_value(env, "HOME");
	char cache[256];
	int rc = LG_E_IO;

	*ret = (struct lg_runtime_dir){ .fd = -1, .lock = -1 };
	list_bases(bases, rings, env);
	/* A service's account may have none yet. Whether it is safe there is looked at below. */
	if (geteuid() && home && *home == '/' && strlen(home) < 200) {
		snprintf(cache, sizeof cache, "%s/.cache", home);
		(void)!mkdir(cache, 0700);
	}
	/* For rings first only memory will do. */
	for (int pass = !rings; pass < 2; pass++)
		for (int i = 0; i < BASES; i++) {
			int base = *bases[i] ? open_base_or_beside(bases[i], sizeof bases[i]) : -1;

			if (base < 0) {
				if (*bases[i])
					rc = lg_fail_errno(err, errno, "cannot make %s", bases[i]);
				continue;
			}
			if (!pass && !is_roomy_memory(base)) {
				close(base);
				continue;
			}
			remove_stale(base);
			rc = make_in(ret, base, bases[i], err);
			close(base);
			if (!rc)
				return 0;
		}
	return lg_error_prefix(err, "no safe place for the Python hook: ");
}
