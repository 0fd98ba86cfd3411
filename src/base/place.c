/* SPDX-License-Identifier: Apache-2.0 */
#include "base/place.h"

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

#include "base/alloc.h"

struct lg_place {
	char *path;
	const char *name;       /* last part of path */
	int dir, fd;            /* dir: -1 for a stream */
	char tmp[NAME_MAX + 1]; /* in dir; empty once it is gone */
	dev_t dev;
	ino_t ino;
};

static uid_t owner_uid = (uid_t)-1;
static gid_t owner_gid = (gid_t)-1;

void lg_place_owner(uid_t uid, gid_t gid)
{
	owner_uid = uid;
	owner_gid = gid;
}

/* The number behind -, /dev/stdout and their like, which lead to what the caller has opened
 * already: the name itself must be neither opened anew nor replaced. -1: another name. */
static int own_descriptor(const char *path)
{
	static const struct { const char *name; int fd; } names[] = {
		{ "-", 1 }, { "/dev/stdout", 1 }, { "/dev/stderr", 2 },
	};
	static const char *const folders[] = { "/dev/fd/", "/proc/self/fd/" };

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (!strcmp(path, names[i].name))
			return names[i].fd;
	for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
		const char *number = path + strlen(folders[i]);
		unsigned long v;
		char *end;

		if (strncmp(path, folders[i], strlen(folders[i])))
			continue;
		v = strtoul(number, &end, 10);
		if (*number >= '0' && *number <= '9' && !*end && v <= INT_MAX)
			return (int)v;
	}
	return -1;
}

/* 0: a file may be put there. */
static int check_name(const struct lg_place *p, struct stat *ret_st, struct lg_error *err)
{
	struct stat behind;

	if (fstatat(p->dir, p->name, ret_st, AT_SYMLINK_NOFOLLOW)) {
		*ret_st = (struct stat){ 0 };
		return errno == ENOENT ? 0 : lg_fail_errno(err, errno, "cannot create %s", p->path);
	}
	if (S_ISLNK(ret_st->st_mode) && !fstatat(p->dir, p->name, &behind, 0) && !S_ISREG(behind.st_mode))
		return lg_fail(err, LG_E_USAGE, LG_NO_OFFSET,
			       "cannot create %s: it is a symbolic link to something that is no file", p->path);
	if (S_ISDIR(ret_st->st_mode))
		return lg_fail_errno(err, EISDIR, "cannot create %s", p->path);
	if (S_ISBLK(ret_st->st_mode) || S_ISSOCK(ret_st->st_mode))
		return lg_fail(err, LG_E_USAGE, LG_NO_OFFSET, "cannot create %s: it is a %s", p->path,
			       S_ISBLK(ret_st->st_mode) ? "disk" : "socket");
	return 0;
}

/* A FIFO that somebody else laid out would hold us until they read it. */
static bool is_strange(const struct stat *st)
{
	return S_ISFIFO(st->st_mode) && st->st_uid && st->st_uid != geteuid() && st->st_uid != owner_uid;
}

static int open_stream(struct lg_place *p, struct lg_error *err)
{
	int node = openat(p->dir, p->name, O_PATH | O_NOFOLLOW | O_CLOEXEC), rc = 0;
	char again[64];
	struct stat st;

	if (node < 0 || fstat(node, &st)) {
		rc = lg_fail_errno(err, errno, "cannot create %s", p->path);
	} else if ((!S_ISCHR(st.st_mode) && !S_ISFIFO(st.st_mode)) || is_strange(&st)) {
		rc = lg_fail(err, LG_E_USAGE, LG_NO_OFFSET, "cannot create %s: it is another user's FIFO",
			     p->path);
	} else {
		/* What was looked at, whatever the name leads to by now. */
		snprintf(again, sizeof again, "/proc/self/fd/%d", node);
		p->fd = open(again, O_WRONLY | O_NOCTTY | O_CLOEXEC);
		if (p->fd < 0)
			rc = lg_fail_errno(err, errno, "cannot create %s", p->path);
	}
	if (node >= 0)
		close(node);
	close(p->dir);
	p->dir = -1;
	return rc;
}

static int open_file(struct lg_place *p, struct lg_error *err)
{
	enum { TRIES = 100 };
	struct stat st;
	uint64_t random;

	for (int i = 0; i < TRIES && p->fd < 0; i++) {
		if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
			break;
		/* Hidden: a folder that is read as a whole must not find it. */
		snprintf(p->tmp, sizeof p->tmp, ".%.200s.%016" PRIx64 ".tmp", p->name, random);
		p->fd = openat(p->dir, p->tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (p->fd < 0 && errno != EEXIST)
			break;
	}
	if (p->fd < 0) {
		p->tmp[0] = 0;
		return lg_fail_errno(err, errno, "cannot create %s", p->path);
	}
	if (fstat(p->fd, &st))
		return lg_fail_errno(err, errno, "cannot create %s", p->path);
	p->dev = st.st_dev;
	p->ino = st.st_ino;
	/* Where the file system knows no owners (vfat) the file stays as the mount gives it. */
	if (owner_uid != (uid_t)-1 && fchown(p->fd, owner_uid, owner_gid))
		return errno == EPERM ? 0 : lg_fail_errno(err, errno, "cannot give %s away", p->path);
	return 0;
}

static int open_named(struct lg_place *p, struct lg_error *err)
{
	LG_AUTOFREE char *folder = lg_strdup(p->path);
	char *slash;
	struct stat st;
	int rc;

	if (!folder)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	slash = strrchr(folder, '/');
	p->name = slash ? p->path + (slash - folder) + 1 : p->path;
	if (slash)
		slash[slash == folder] = 0; /* "/x" lies in "/" */
	p->dir = open(slash ? folder : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (p->dir < 0)
		return lg_fail_errno(err, errno, "cannot create %s", p->path);
	if (!*p->name)
		return lg_fail_errno(err, *p->path ? EISDIR : ENOENT, "cannot create \"%s\"", p->path);
	rc = check_name(p, &st, err);
	if (rc)
		return rc;
	return S_ISCHR(st.st_mode) || S_ISFIFO(st.st_mode) ? open_stream(p, err) : open_file(p, err);
}

int lg_place_open(struct lg_place **ret, const char *path, struct lg_error *err)
{
	struct lg_place *p = lg_calloc(1, sizeof *p);
	int own = own_descriptor(path), rc = 0;

	if (!p || !(p->path = lg_strdup(path))) {
		lg_free(p);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	p->dir = p->fd = -1;
	if (own < 0) {
		rc = open_named(p, err);
	} else {
		p->fd = fcntl(own, F_DUPFD_CLOEXEC, 3);
		if (p->fd < 0)
			rc = lg_fail_errno(err, errno, "cannot write %s",
					   strcmp(path, "-") ? path : "to standard output");
	}
	if (rc) {
		lg_place_free(p);
		return rc;
	}
	*ret = p;
	return 0;
}

int lg_place_fd(const struct lg_place *p)
{
	return p->fd;
}

bool lg_place_is_file(const struct lg_place *p)
{
	return p->dir >= 0;
}

int lg_place_close(struct lg_place *p, struct lg_error *err)
{
	int fd = p->fd;

	p->fd = -1;
	if (fd >= 0 && close(fd))
		return lg_fail_errno(err, errno, "cannot write %s",
				     strcmp(p->path, "-") ? p->path : "standard output");
	return 0;
}

/* Does the name of our making still lead to what we made? In a folder of another user it need not. */
static bool is_ours(const struct lg_place *p)
{
	struct stat st;

	return !fstatat(p->dir, p->tmp, &st, AT_SYMLINK_NOFOLLOW) && st.st_dev == p->dev &&
	       st.st_ino == p->ino;
}

int lg_place_keep(struct lg_place *p, struct lg_error *err)
{
	struct stat st;
	int rc;

	if (!p->tmp[0])
		return 0;
	rc = check_name(p, &st, err);
	if (rc)
		return rc;
	if (S_ISCHR(st.st_mode) || S_ISFIFO(st.st_mode))
		return lg_fail_errno(err, EEXIST, "cannot create %s", p->path);
	if (!is_ours(p))
		return lg_fail(err, LG_E_IO, LG_NO_OFFSET,
			       "cannot create %s: somebody moved what was written beside it", p->path);
	if (renameat(p->dir, p->tmp, p->dir, p->name))
		return lg_fail_errno(err, errno, "cannot create %s", p->path);
	p->tmp[0] = 0;
	return 0;
}

void lg_place_free(struct lg_place *p)
{
	if (!p)
		return;
	if (p->tmp[0] && is_ours(p))
		(void)unlinkat(p->dir, p->tmp, 0);
	if (p->fd >= 0)
		close(p->fd);
	if (p->dir >= 0)
		close(p->dir);
	lg_free(p->path);
	lg_free(p);
}
