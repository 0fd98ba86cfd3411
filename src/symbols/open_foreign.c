/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/open_foreign.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/nsfs.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
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

int lg_foreign_look_mapped(int32_t pid, uint64_t start, uint64_t end, struct stat *ret)
{
	char path[96];

	snprintf(path, sizeof path, "/proc/%d/map_files/%llx-%llx", (int)pid, (unsigned long long)start,
		 (unsigned long long)end);
	return regular(lg_patient_open(pid, path, LOOK), ret);
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

bool lg_foreign_mounts(int32_t pid)
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

int lg_foreign_root(int32_t pid)
{
	char path[48];

	snprintf(path, sizeof path, "/proc/%d/root", (int)pid);
	return open(path, LOOK | O_DIRECTORY);
}
