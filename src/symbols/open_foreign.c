/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/open_foreign.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/nsfs.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/patient.h"

#define LOOK (O_PATH | O_CLOEXEC)

/*
 * Files of /proc, /sys, tracefs ... are regular ones, and to open or read them may act: it takes messages
 * from the kernel's log, it pauses tracing. Who has a mount namespace of his own binds them to any name in
 * it. All these filesystems are made of nothing, and say so.
 */
static bool is_of_the_kernel(int fd)
{
	struct statfs s;

	if (fstatfs(fd, &s))
		return true;
	return !s.f_blocks && s.f_type != TMPFS_MAGIC && s.f_type != RAMFS_MAGIC &&
	       s.f_type != HUGETLBFS_MAGIC && s.f_type != FUSE_SUPER_MAGIC;
}

static int regular(int fd, struct stat *ret)
{
	if (fd >= 0 && (fstat(fd, ret) || !S_ISREG(ret->st_mode) || is_of_the_kernel(fd))) {
		close(fd);
		errno = EINVAL;
		return -1;
	}
	return fd;
}

/* Linux before 5.6: component by component, no links at all. Mapped files are named without any. */
static int walk(int root, const char *path)
{
	int at = openat(root, root == AT_FDCWD && *path == '/' ? "/" : ".", LOOK | O_DIRECTORY);

	while (at >= 0 && *path) {
		char name[256];
		size_t n;
		int next;

		path += strspn(path, "/");
		n = strcspn(path, "/");
		if (!n)
			break;
		if (n >= sizeof name || !strncmp(path, "..", n < 2 ? 2 : n)) {
			close(at);
			return -1;
		}
		memcpy(name, path, n);
		name[n] = 0;
		path += n;
		next = openat(at, name, LOOK | O_NOFOLLOW);
		close(at);
		at = next;
	}
	return at;
}

static int look_in(int root, const char *path, unsigned flags)
{
	struct open_how how = { .flags = LOOK | (flags ? O_NOFOLLOW : 0),
				.resolve = (root == AT_FDCWD ? 0 : RESOLVE_IN_ROOT) | RESOLVE_NO_MAGICLINKS |
					   (flags & LG_FOREIGN_NO_LINKS ? RESOLVE_NO_SYMLINKS : 0) };
	/* EAGAIN: something was renamed meanwhile (openat2(2)); who never stops is not waited for. */
	int fd = -1;

	for (int i = 0; i < 8 && fd < 0; i++) {
		fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
		if (fd < 0 && errno != EAGAIN)
			break;
	}
	/* EPERM: a container's filter that knows no such call. */
	return fd < 0 && (errno == ENOSYS || errno == EPERM) ? walk(root, path) : fd;
}

int lg_foreign_look(int root, const char *path, unsigned flags, struct stat *ret)
{
	int fd = root == AT_FDCWD && !(flags & LG_FOREIGN_NO_LINKS)
			 ? open(path, LOOK | (flags & LG_FOREIGN_NO_LINK ? O_NOFOLLOW : 0))
			 : look_in(root, path, flags);

	return regular(fd, ret);
}

int lg_foreign_open(int looked)
{
	char path[48];
	int fd, e;

	if (looked < 0)
		return -1;
	snprintf(path, sizeof path, "/proc/self/fd/%d", looked);
	/* Not to wait for the holder of a lease (fcntl(2), F_SETLEASE). */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	e = errno;
	close(looked);
	errno = e;
	return fd;
}

int lg_foreign_open_path(const char *path, unsigned flags)
{
	struct stat st;

	return lg_foreign_open(lg_foreign_look(AT_FDCWD, path, flags, &st));
}

int lg_foreign_open_plain(const char *path, uid_t owner)
{
	struct stat st;
	int fd = lg_foreign_look(AT_FDCWD, path, LG_FOREIGN_NO_LINKS, &st);

	if (fd >= 0 && !geteuid() && st.st_uid != owner &&
	    (!(st.st_mode & S_IROTH) || (st.st_uid && owner != (uid_t)-1))) {
		close(fd);
		errno = EACCES;
		return -1;
	}
	return lg_foreign_open(fd);
}

int lg_foreign_open_at(int folder, const char *name)
{
	struct stat st;

	return lg_foreign_open(regular(openat(folder, name, LOOK), &st));
}

/* -- what a process sees -- */

struct seen {
	int32_t pid;
	unsigned flags;
	bool trusted;
	uint64_t start, end; /* a mapping; 0: path in the process's root folder */
	char path[4200];
};

/* The number of the mount that a file of ours is in; -1 = not known. */
static long mount_of(int fd)
{
	char path[48], line[256];
	long id = -1;
	FILE *in;

	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	in = fopen(path, "re");
	while (in && id < 0 && fgets(line, sizeof line, in))
		(void)sscanf(line, "mnt_id: %ld", &id);
	if (in)
		fclose(in);
	return id;
}

/* The mount of our own root folder, which mountinfo does not have where that is no mount's (chroot(2)). */
static long mount_of_root(void)
{
	int fd = open("/", LOOK | O_DIRECTORY);
	long id = fd < 0 ? -1 : mount_of(fd);

	if (fd >= 0)
		close(fd);
	return id;
}

/* Does /proc/OF/mountinfo have that mount? */
static bool has_mount(const char *of, long id)
{
	char path[48], *line = NULL;
	size_t cap = 0;
	bool found = false;
	FILE *in;

	snprintf(path, sizeof path, "/proc/%s/mountinfo", of);
	in = fopen(path, "re");
	while (in && !found && getline(&line, &cap, in) > 0)
		found = strtol(line, NULL, 10) == id;
	free(line);
	if (in)
		fclose(in);
	return found;
}

/* Does a mount namespace of a user namespace that is not ours decide what pid sees? False where not known. */
static bool mounts_by_himself(int32_t pid)
{
	char path[48];
	struct stat ours, its;
	int mounts, owner;
	bool known;

	snprintf(path, sizeof path, "/proc/%d/ns/mnt", (int)pid);
	mounts = open(path, O_RDONLY | O_CLOEXEC);
	owner = mounts < 0 ? -1 : ioctl(mounts, NS_GET_USERNS);
	known = owner >= 0 && !fstat(owner, &its) && !stat("/proc/self/ns/user", &ours);
	if (mounts >= 0)
		close(mounts);
	if (owner >= 0)
		close(owner);
	return known && its.st_ino != ours.st_ino;
}

/*
 * Who mounts in a user namespace of his own serves himself what is there: to close such a file asks his
 * server, which need not answer. It reaches others by a descriptor that is passed on and by chroot(2), so
 * what counts is the mount of the very file: it is to be of our mount namespace, or of that of a container. A
 * user may mount FUSE in ours as well (fusermount3(1)).
 */
static bool is_mounted_by_root(int fd, int32_t pid)
{
	long id = mount_of(fd);
	struct statfs fs;
	char path[48];

	if (id < 0 || fstatfs(fd, &fs) || fs.f_type == FUSE_SUPER_MAGIC)
		return false;
	snprintf(path, sizeof path, "%d", (int)pid);
	/* In this order: nobody gets back from a namespace of his own into ours. */
	return has_mount("self", id) || id == mount_of_root() || (has_mount(path, id) && !mounts_by_himself(pid));
}

/* An errand. */
static int look(const void *told, size_t n, void *answer, size_t room, size_t *ret_n, int *ret_fd)
{
	const struct seen *s = told;
	char path[96];
	int root;

	(void)n;
	(void)room;
	if (s->end) {
		snprintf(path, sizeof path, "/proc/%d/map_files/%llx-%llx", (int)s->pid,
			 (unsigned long long)s->start, (unsigned long long)s->end);
		*ret_fd = regular(open(path, LOOK), answer);
	} else {
		snprintf(path, sizeof path, "/proc/%d/root", (int)s->pid);
		root = open(path, LOOK | O_DIRECTORY);
		*ret_fd = root < 0 ? -1 : lg_foreign_look(root, s->path, s->flags, answer);
		if (root >= 0)
			close(root);
	}
	if (*ret_fd < 0)
		return ENOENT;
	if (!s->trusted && !is_mounted_by_root(*ret_fd, s->pid)) {
		close(*ret_fd);
		*ret_fd = -1;
		return EXDEV;
	}
	*ret_n = sizeof(struct stat);
	return 0;
}

static int ask(const struct seen *s, size_t n, struct stat *ret)
{
	int fd, rc = lg_patient_send(s->pid, look, s, n, ret, sizeof *ret, NULL, &fd);

	errno = rc;
	return rc ? -1 : fd;
}

int lg_foreign_look_seen(int32_t pid, const char *path, unsigned flags, bool trusted, struct stat *ret)
{
	struct seen s = { .pid = pid, .flags = flags, .trusted = trusted };
	size_t n = strlen(path) + 1;

	if (n > sizeof s.path) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(s.path, path, n);
	return ask(&s, offsetof(struct seen, path) + n, ret);
}

int lg_foreign_look_mapped(int32_t pid, uint64_t start, uint64_t end, bool trusted, struct stat *ret)
{
	struct seen s = { .pid = pid, .trusted = trusted, .start = start, .end = end };

	return ask(&s, offsetof(struct seen, path), ret);
}
