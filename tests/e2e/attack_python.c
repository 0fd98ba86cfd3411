/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attack_python.c - a program that looks like CPython 3.13 to who reads its memory, and holds what no
 * CPython would. Its file is called python3.13, which the recorder looks for, RANK is set, and it is
 * uid 65534 where it can be.
 *
 *   python3.13 loop           frames that are each other's callers
 *   python3.13 claims         code objects, strings and tables that say they have 2^60 bytes
 *   python3.13 names          names and paths of ESC, newlines and commands to a CI runner
 *   python3.13 storm          in each frame another code object with a table of 60 KiB, without end
 *   python3.13 fill           the same, and no two have the same content
 *   python3.13 gone           code objects in pages that come and go
 *   python3.13 lines          one line table of 64 KiB, and all positions in it
 *   python3.13 forks          processes that are Python too, each for a moment
 *   python3.13 fuse FOLDER DEVICE   code objects in a file whose server answers no read
 *   python3.13 fault          the same in a page of userfaultfd(2); exits with 4 where users may not
 *
 * Until it is killed, or for ATTACK_SECONDS.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/fuse.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Where 3.13 keeps it: record/python_layout.c. */
enum {
	KEY_AT = 2164, INTERPRETER_AT = 632, LOCK_AT = 16, FRAME_AT = 72, PTHREAD_AT = 152,
	LINE_AT = 68, FILE_AT = 112, NAME_AT = 128, TABLE_AT = 136, UNITS_AT = 200,
	FRAMES = 24, TABLE = 60 << 10, OBJECT = 256
};

/* What who looks for an interpreter finds it by. */
#define EXPORTED __attribute__((visibility("default"), aligned(16)))
char _PyRuntime[4096] EXPORTED;
unsigned long Py_Version EXPORTED = 0x030d00f0;

struct frame { /* _PyInterpreterFrame */
	uint64_t code, previous, x[5], position;
	char y[6];
	uint8_t owner;
};

static uint64_t state[64], interpreter[64], lock[64]; /* lock: what it says of who has it is never true */
static struct frame frame[FRAMES];

static uint64_t draw(void)
{
	static uint64_t x;

	if (!x)
		x = 88172645463325252u ^ (uint64_t)getpid() << 32;
	x ^= x << 13;
	x ^= x >> 7;
	return x ^= x << 17;
}

static uint64_t address(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

/* A str of characters of one byte, in the form of 3.12 and 3.13, that says it has so many. */
static void *make_string(const char *text, uint64_t says)
{
	char *s = calloc(1, 4096);

	memcpy(s + 16, &says, sizeof says);
	s[32] = (char)(1 << 2 | 1 << 5 | 1 << 6);
	strcpy(s + 40, text);
	return s;
}

static void *make_bytes(const void *p, size_t n, uint64_t says)
{
	char *b = calloc(1, 32 + n);

	memcpy(b + 16, &says, sizeof says);
	memcpy(b + 32, p, n);
	return b;
}

static char *make_code(char *c, const void *name, const void *file, const void *table)
{
	int line = 7;

	memcpy(c + LINE_AT, &line, 4);
	memcpy(c + FILE_AT, &file, 8);
	memcpy(c + NAME_AT, &name, 8);
	memcpy(c + TABLE_AT, &table, 8);
	return c;
}

static void put(int i, const char *code, uint64_t unit)
{
	frame[i].code = address(code);
	frame[i].position = address(code) + UNITS_AT + 2 * unit;
	frame[i].previous = i + 1 < FRAMES ? address(&frame[i + 1]) : 0;
}

/* To be seen: at its sampling and in its waits. */
static void be_seen(int naps)
{
	struct timespec t = { .tv_nsec = 1 };

	for (int i = 0; i < 64; i++)
		lock[i] = i & 1 ? draw() : address(state);
	for (int i = 0; i < naps; i++)
		(void)clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
	for (volatile int i = 0; i < 20000; i++)
		;
}

static void loop(void)
{
	char *c = make_code(calloc(1, OBJECT), make_string("round", 5), make_string("a.py", 4),
			    make_bytes("", 1, 0));

	for (int i = 0; i < FRAMES; i++) {
		put(i, c, 0);
		frame[i].previous = address(&frame[i ? 0 : 1]);
	}
	for (;;)
		be_seen(1);
}

static void claims(void)
{
	const uint64_t says[] = { 1ull << 60, UINT64_MAX, 1ull << 63, UINT32_MAX };

	for (int i = 0; i < FRAMES; i++)
		put(i, make_code(calloc(1, OBJECT), make_string("claims", says[i % 4]),
				 make_string("b.py", says[i / 4 % 4]), make_bytes("\xff\xff", 2, says[i % 3])),
		    draw() % 65536);
	for (;;)
		be_seen(1);
}

static void names(void)
{
	static const char *const text[] = { "\033]0;owned\007\033[2J", "two\nlines", "\n::error::hostile",
					    "::error::hostile", "##[error]hostile", "\t=1+1,\"x\"" };
	enum { N = sizeof text / sizeof *text };

	for (int i = 0; i < FRAMES; i++)
		put(i, make_code(calloc(1, OBJECT), make_string(text[i % N], strlen(text[i % N])),
				 make_string(text[i / N % N], strlen(text[i / N % N])), make_bytes("", 1, 0)),
		    0);
	for (;;)
		be_seen(1);
}

/* Every word of 64 MiB is the address of one object, a str and a bytes: at each begins a code object. */
static void storm(void)
{
	enum { WORDS = 8 << 20 };
	uint64_t *all = calloc(WORDS, 8), table[TABLE / 8];
	char *one;

	memset(table, 0xff, sizeof table);
	one = make_bytes(table, sizeof table, sizeof table);
	one[32] = (char)(1 << 2 | 1 << 5 | 1 << 6);
	for (int i = 0; i < WORDS; i++)
		all[i] = address(one);
	for (;;) {
		for (int i = 0; i < FRAMES; i++)
			put(i, (char *)(all + draw() % (WORDS - 64)), draw() % 65536);
		be_seen(1);
	}
}

/* Objects of 60 KiB, no two alike. */
static void fill(void)
{
	enum { OBJECTS = 1 << 12 };
	char *all = calloc(OBJECTS, OBJECT), *name = make_string("filler", 6), *bytes;
	uint64_t table[TABLE / 8], n = 0;

	memset(table, 0xff, sizeof table);
	bytes = make_bytes(table, sizeof table, sizeof table);
	for (;;) {
		for (int i = 0; i < FRAMES; i++, n++) {
			char *c = make_code(all + n % OBJECTS * OBJECT, name, name, bytes);
			int line = (int)(n & INT32_MAX);

			memcpy(c + LINE_AT, &line, 4); /* another one, then, for who was here before */
			put(i, c, draw() % 65536);
		}
		be_seen(1);
	}
}

static void *come_and_go(void *at)
{
	for (;;) {
		mprotect(at, 1 << 20, PROT_NONE);
		madvise(at, 1 << 20, MADV_DONTNEED);
		mprotect(at, 1 << 20, PROT_READ | PROT_WRITE);
		memset(at, 0x41, 1 << 20);
	}
	return NULL;
}

static void gone(void)
{
	char *at = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t t;

	pthread_create(&t, NULL, come_and_go, at);
	for (;;) {
		for (int i = 0; i < FRAMES; i++)
			put(i, at + draw() % ((1 << 20) - 64), 0);
		be_seen(1);
	}
}

static void lines(void)
{
	unsigned char table[TABLE];
	char *c;

	memset(table, 0x80 | 15 << 3, sizeof table); /* no location, one unit */
	c = make_code(calloc(1, OBJECT), make_string("lines", 5), make_string("c.py", 4),
		      make_bytes(table, sizeof table, sizeof table));
	for (;;) {
		for (int i = 0; i < FRAMES; i++)
			put(i, c, draw() % 60000);
		be_seen(1);
	}
}

static void forks(void)
{
	char *c = make_code(calloc(1, OBJECT), make_string("forked", 6), make_string("d.py", 4),
			    make_bytes("", 1, 0));

	put(FRAMES - 1, c, 0);
	state[FRAME_AT / 8] = address(&frame[FRAMES - 1]);
	for (;;) {
		pid_t p = fork();

		if (!p)
			_exit(0);
		if (p > 0)
			waitpid(p, NULL, 0);
		be_seen(0);
	}
}

static void withheld(const char *page)
{
	for (int i = 0; i < FRAMES; i++)
		put(i, page + 64 * i, 0);
	for (;;)
		be_seen(1);
}

/* -- FUSE: a file whose first page is promised -- */

static void answer(int fd, uint64_t unique, int error, const void *p, size_t n)
{
	struct fuse_out_header h = { .len = (uint32_t)(sizeof h + n), .error = error, .unique = unique };
	char buf[512];

	memcpy(buf, &h, sizeof h);
	memcpy(buf + sizeof h, p, n);
	if (write(fd, buf, sizeof h + n) < 0)
		_exit(3);
}

static void serve(int fd)
{
	static char buf[1 << 18];
	struct fuse_in_header in;

	while (read(fd, buf, sizeof buf) > 0) {
		struct fuse_attr attr = { .ino = 2, .size = 4096, .blocks = 8, .mode = S_IFREG | 0666,
					  .nlink = 1 };
		struct fuse_init_out init = { .major = FUSE_KERNEL_VERSION,
					      .minor = FUSE_KERNEL_MINOR_VERSION,
					      .max_readahead = 65536, .max_write = 65536 };
		struct fuse_entry_out entry = { .nodeid = 2, .entry_valid = 1000, .attr_valid = 1000,
						.attr = attr };
		struct fuse_attr_out got = { .attr_valid = 1000, .attr = attr };
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
		else if (in.opcode != FUSE_READ && in.opcode != FUSE_FORGET && in.opcode != FUSE_BATCH_FORGET)
			answer(fd, in.unique, -ENOSYS, "", 0);
	}
	_exit(0);
}

/* As fusermount(1) does it for every user; in a user namespace of its own none of root's reads gets there. */
static int mounted(const char *folder, const char *device)
{
	char how[128];
	int fd = open(device, O_RDWR);

	snprintf(how, sizeof how, "fd=%d,rootmode=40000,user_id=65534,group_id=65534", fd);
	if (fd < 0 || unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("withheld", folder, "fuse", MS_NOSUID | MS_NODEV, how))
		exit(4);
	return fd;
}

static void fuse(const char *folder, int fd)
{
	char path[4096];
	int file;
	char *at;

	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve(fd);
	}
	close(fd);
	snprintf(path, sizeof path, "%s/file", folder);
	file = open(path, O_RDONLY);
	at = file < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0);
	if (at == MAP_FAILED)
		exit(3);
	withheld(at);
}

static void fault(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register all = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd < 0) /* of one's own faults only */
		fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	all.range.start = address(at);
	all.range.len = 4096;
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &all))
		exit(4);
	withheld(at);
}

int main(int argc, char **argv)
{
	const char *seconds = getenv("ATTACK_SECONDS"), *what = argc > 1 ? argv[1] : "";
	int32_t made[2] = { 1 }; /* Py_tss_t */
	pthread_key_t key;
	int fd = -1;

	if (!strcmp(what, "fuse") && argc > 3)
		fd = mounted(argv[2], argv[3]);
	if (!getenv("ATTACK_AS_ROOT") && !geteuid() && (setgroups(0, NULL) || setgid(65534) || setuid(65534)))
		return 3;
	alarm(seconds ? (unsigned)atoi(seconds) : 60);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (pthread_key_create(&key, NULL) || pthread_setspecific(key, state))
		return 3;
	made[1] = (int32_t)key;
	memcpy(_PyRuntime + KEY_AT - sizeof made[0], made, sizeof made);
	*(uint64_t *)(void *)(_PyRuntime + INTERPRETER_AT) = address(interpreter);
	interpreter[LOCK_AT / 8] = address(lock);
	state[PTHREAD_AT / 8] = (uint64_t)pthread_self();
	state[FRAME_AT / 8] = address(frame);
	if (!strcmp(what, "loop"))
		loop();
	if (!strcmp(what, "claims"))
		claims();
	if (!strcmp(what, "names"))
		names();
	if (!strcmp(what, "storm"))
		storm();
	if (!strcmp(what, "fill"))
		fill();
	if (!strcmp(what, "gone"))
		gone();
	if (!strcmp(what, "lines"))
		lines();
	if (!strcmp(what, "forks"))
		forks();
	if (fd >= 0)
		fuse(argv[2], fd);
	if (!strcmp(what, "fault"))
		fault();
	return 2;
}
