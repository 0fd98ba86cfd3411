/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attack_lock.c - holds the mmap_lock of a process of one's own for ever: a page of a FUSE file that was
 * written to is mapped over, which writes it back first (fuse_vma_close() in fs/fuse/file.c), and the server
 * does not answer. As uid 65534, in a user namespace of its own.
 *
 *   attack_lock FOLDER DEVICE READY [MODE [NAME]]
 *
 * exec: holds the exec_update_lock instead, in an execve() that closes a file of that mount, which the server
 * is asked to flush (do_close_on_exec()).
 * overlay: holds no lock, but runs code of a file of an overlay upon that FUSE mount; who looks at the file
 * asks the server in the attacker's name, and it does not answer either. NAME: for a job to be found by.
 * kept: the same, and the overlay is where `laggard env` told a rank to make its marks.
 * passed: that code runs in a process outside of the namespaces, which was passed the file.
 * chroot: and so does code of no file, in a process whose root folder is the overlay.
 *
 * The server is what is started and ended: with it ends the wait. READY is made when it is on. Exits with 4
 * where there is no such namespace or file system.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Counts its argument down to zero. */
#ifdef __x86_64__
static const unsigned char loop[] = { 0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3 };
#else
static const unsigned char loop[] = { 0x00, 0x04, 0x00, 0xf1, 0xe1, 0xff,
				      0xff, 0x54, 0xc0, 0x03, 0x5f, 0xd6 };
#endif

/* Shared with the server: from now on it answers nothing. */
static volatile int *silent;

static const char *mode = "", *ready;
static int outer[2]; /* to the process that stays outside */

static bool is(const char *name)
{
	return !strcmp(mode, name);
}

static void is_on(void)
{
	close(open(ready, O_WRONLY | O_CREAT, 0644));
}

static void answer(int fd, uint64_t unique, int error, const void *p, size_t n)
{
	struct fuse_out_header h = { .len = (uint32_t)(sizeof h + n), .error = error, .unique = unique };
	char buf[8192];

	memcpy(buf, &h, sizeof h);
	memcpy(buf + sizeof h, p, n);
	if (write(fd, buf, sizeof h + n) < 0 && errno != ENOENT)
		_exit(3);
}

static void serve(int fd, uint64_t valid)
{
	static char buf[1 << 18], page[4096];
	struct fuse_in_header in;

	memcpy(page, loop, sizeof loop);
	while (read(fd, buf, sizeof buf) > 0) {
		struct fuse_attr file = { .ino = 2, .size = 4096, .blocks = 8,
					  .mode = S_IFREG | 0666, .nlink = 1 };
		struct fuse_init_out init = { .major = 7, .minor = 31, .max_readahead = 65536,
					      .max_write = 65536 };
		/* Of a lock: for long. Of an overlay: each look asks again. */
		struct fuse_entry_out entry = { .nodeid = 2, .entry_valid = valid,
						.attr_valid = valid, .attr = file };
		struct fuse_attr_out got = { .attr_valid = valid, .attr = file };
		struct fuse_open_out opened = { .fh = 1 };
		struct fuse_statfs_out space = { { .blocks = 100, .bsize = 4096, .namelen = 255,
						   .frsize = 4096 } };

		memcpy(&in, buf, sizeof in);
		if (in.nodeid == 1) {
			got.attr.ino = 1;
			got.attr.mode = S_IFDIR | 0777;
		}
		if (*silent)
			continue;
		if (in.opcode == FUSE_INIT)
			answer(fd, in.unique, 0, &init, sizeof init);
		else if (in.opcode == FUSE_LOOKUP && !strcmp(buf + sizeof in, "file"))
			answer(fd, in.unique, 0, &entry, sizeof entry);
		else if (in.opcode == FUSE_LOOKUP)
			answer(fd, in.unique, -ENOENT, "", 0);
		else if (in.opcode == FUSE_GETATTR)
			answer(fd, in.unique, 0, &got, sizeof got);
		else if (in.opcode == FUSE_STATFS)
			answer(fd, in.unique, 0, &space, sizeof space);
		else if (in.opcode == FUSE_OPEN || in.opcode == FUSE_OPENDIR)
			answer(fd, in.unique, 0, &opened, sizeof opened);
		else if (in.opcode == FUSE_READ)
			answer(fd, in.unique, 0, page, sizeof page);
		else if (in.opcode == (is("exec") ? FUSE_FLUSH : FUSE_WRITE))
			is_on(); /* and no answer */
		else if (in.opcode != FUSE_FORGET && in.opcode != FUSE_BATCH_FORGET)
			answer(fd, in.unique, -ENOSYS, "", 0);
	}
	_exit(0);
}

/* The child waits for ever, unless this machine does not let it. */
static void ended(int sig)
{
	(void)sig;
	_exit(4);
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
	file = open(path, O_RDWR | O_CLOEXEC);
	if (is("exec"))
		execl("/bin/true", "true", NULL);
	at = file < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (at == MAP_FAILED)
		_exit(3);
	at[0] = 1;
	(void)mmap(at, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	for (;;)
		pause();
}

static void pass(int fd)
{
	union {
		char bytes[CMSG_SPACE(sizeof fd)];
		struct cmsghdr align;
	} room = { .align = { CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS } };
	struct iovec one = { "", 1 };
	struct msghdr m = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = &room,
			    .msg_controllen = sizeof room };

	memcpy(CMSG_DATA(&room.align), &fd, sizeof fd);
	if (sendmsg(outer[0], &m, 0) < 0)
		_exit(4);
}

static int passed(void)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} room;
	char byte;
	struct iovec one = { &byte, 1 };
	struct msghdr m = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = &room,
			    .msg_controllen = sizeof room };
	int fd = -1;

	if (recvmsg(outer[1], &m, 0) <= 0 || !CMSG_FIRSTHDR(&m))
		_exit(4);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
	return fd;
}

/* In no namespace of its own, but for what chroot(2) asks. */
static void run_outside(void)
{
	int fd, flags = MAP_PRIVATE | (is("chroot") ? MAP_ANONYMOUS : 0);
	void *at;

	alarm(60);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	fd = passed();
	if (is("chroot") && (unshare(CLONE_NEWUSER) || fchdir(fd) || chroot(".")))
		_exit(4);
	at = mmap(NULL, 4096, PROT_READ | PROT_EXEC | (is("chroot") ? PROT_WRITE : 0), flags,
		  is("chroot") ? -1 : fd, 0);
	if (at == MAP_FAILED)
		_exit(4);
	if (is("chroot"))
		memcpy(at, loop, sizeof loop);
	((void (*)(uint64_t))at)(1);
	*silent = 1;
	for (;;)
		((void (*)(uint64_t))at)(1000000000);
}

static void run_overlay(const char *folder)
{
	char path[4096], how[8400], *const argv[] = { "sleep", "60", NULL };
	char *const env[] = { "RANK=0", "WORLD_SIZE=1", "LAGGARD_MARKS=/dev/shm/laggard-65534/kept", NULL };
	int file;
	void *at;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(path, sizeof path, "%s/none", folder);
	(void)mkdir(path, 0755);
	snprintf(how, sizeof how, "lowerdir=%s/fuse:%s/none", folder, folder);
	snprintf(path, sizeof path, "%s/merged", folder);
	if (mkdir(path, 0755) || mount("overlay", path, "overlay", 0, how))
		_exit(4);
	if (is("kept")) {
		if (mount(path, "/dev/shm", NULL, MS_BIND, NULL))
			_exit(4);
		*silent = 1;
		is_on();
		execve("/bin/sleep", argv, env);
		_exit(4);
	}
	if (!is("chroot"))
		snprintf(path, sizeof path, "%s/merged/file", folder);
	file = open(path, O_RDONLY);
	if (is("passed") || is("chroot")) {
		pass(file);
		while (!*silent)
			usleep(1000);
		is_on();
		for (;;)
			pause();
	}
	at = file < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
	if (at == MAP_FAILED)
		_exit(4);
	((void (*)(uint64_t))at)(1); /* its page is there */
	*silent = 1;
	is_on();
	for (;;)
		((void (*)(uint64_t))at)(1000000000);
}

int main(int argc, char **argv)
{
	bool overlay;
	char how[128], path[4096];
	pid_t child;
	int fd;

	if (argc < 4)
		return 2;
	ready = argv[3];
	mode = argc > 4 ? argv[4] : "";
	overlay = *mode && !is("exec");
	silent = mmap(NULL, sizeof *silent, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (silent == MAP_FAILED)
		return 3;
	if (!geteuid() && (setgroups(0, NULL) || setgid(65534) || setuid(65534)))
		return 3;
	(void)prctl(PR_SET_DUMPABLE, 1);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(60);
	if ((is("passed") || is("chroot")) && !socketpair(AF_UNIX, SOCK_STREAM, 0, outer) && !fork())
		run_outside();
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
		return 4;
	put("/proc/self/setgroups", "deny");
	put("/proc/self/uid_map", "0 65534 1");
	put("/proc/self/gid_map", "0 65534 1");
	fd = open(argv[2], O_RDWR | O_CLOEXEC);
	snprintf(how, sizeof how, "fd=%d,rootmode=40777,user_id=0,group_id=0", fd);
	snprintf(path, sizeof path, "%s%s", argv[1], overlay ? "/fuse" : "");
	if (overlay && (mount("tmpfs", argv[1], "tmpfs", 0, NULL) || mkdir(path, 0755)))
		return 4;
	if (fd < 0 || mount("withheld", path, "fuse", MS_NOSUID | MS_NODEV, how))
		return 4;
	(void)signal(SIGCHLD, ended);
	child = fork();
	if (!child) {
		close(fd); /* the connection ends with the server's alone */
		if (overlay)
			run_overlay(argv[1]);
		hold(argv[1]);
	}
	serve(fd, overlay ? 0 : 1000);
}
