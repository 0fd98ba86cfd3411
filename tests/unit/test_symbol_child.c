/* SPDX-License-Identifier: Apache-2.0 */
/* The process that reads symbols, its answers, and what opens files that others name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "symbols/open_foreign.h"
#include "symbols/shrunk.h"
#include "symbols/symbol_child.h"

struct got {
	char name[8][64];
	size_t n;
};

static void named(void *self, size_t first, size_t count, const char *name)
{
	struct got *g = self;

	for (size_t i = first; i < first + count && i < 8; i++)
		snprintf(g->name[i], sizeof g->name[i], "%s", name);
	g->n += count;
}

static int file_of(const char *text)
{
	int fd = memfd_create("map", MFD_CLOEXEC);

	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	return fd;
}

static struct lg_symbol_end ask(struct lg_symbol_child *c, int fd, struct got *g, size_t bytes, uid_t owner)
{
	static const uint64_t pcs[] = { 0x10, 0x1004, 0x1008, 0x2000 };
	struct lg_symbol_job job = { .kind = LG_ASK_PERF_MAP, .fd = fd, .owner = owner, .pcs = pcs, .n = 4,
				     .budget_ms = 5000, .name_bytes = bytes, .build_id = "" };
	struct lg_symbol_end end;

	*g = (struct got){ .n = 0 };
	lg_symbol_child_names(c, &job, named, g, &end);
	return end;
}

static void names_what_it_is_asked_for(void **state)
{
	struct lg_symbol_child *c;
	struct lg_symbol_end end;
	struct got g;
	int fd = file_of("1000 10 _ZN2at3addEv\n2000 8 last\n"), junk = file_of("no map at all\n");

	(void)state;
	assert_int_equal(lg_symbol_child_new(&c, NULL), 0);
	end = ask(c, fd, &g, 1000, 0);
	assert_false(end.no_file || end.cut || end.gone || end.signal);
	assert_int_equal(g.n, 3);
	assert_string_equal(g.name[0], "");
	assert_string_equal(g.name[1], "at::add()");
	assert_string_equal(g.name[2], "at::add()");
	assert_string_equal(g.name[3], "last");
	/* Another user's file: a process that has seen none. */
	(void)ask(c, junk, &g, 1000, 65534);
	assert_int_equal(g.n, 0);
	end = ask(c, fd, &g, 12, 0);
	assert_true(end.cut && g.n == 2);
	lg_symbol_child_free(c);
	close(fd);
	close(junk);
}

/* A reader that dies is replaced, a keeper that dies is not; neither is waited for without an end. */
static void a_death_costs_one_file(void **state)
{
	char path[64];
	struct lg_symbol_child *c;
	struct lg_symbol_end end;
	struct got g;
	int fd = file_of("1000 10 name\n"), keeper = 0, reader = 0;
	FILE *f;

	(void)state;
	assert_int_equal(lg_symbol_child_new(&c, NULL), 0);
	snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
	f = fopen(path, "re");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%d", &keeper), 1);
	fclose(f);
	assert_true(ask(c, fd, &g, 1000, 0).signal == 0 && g.n == 2);
	snprintf(path, sizeof path, "/proc/%d/task/%d/children", keeper, keeper);
	f = fopen(path, "re");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%d", &reader), 1);
	fclose(f);
	assert_int_equal(kill(reader, SIGBUS), 0);
	end = ask(c, fd, &g, 1000, 0);
	assert_int_equal(end.signal, SIGBUS);
	assert_false(end.gone);
	end = ask(c, fd, &g, 1000, 0);
	assert_true(!end.signal && g.n == 2);
	assert_int_equal(kill(keeper, SIGKILL), 0);
	/* Its reader follows it (PR_SET_PDEATHSIG) and may still answer what it is asked before. */
	for (int asked = 0; asked < 1000; asked++) {
		end = ask(c, fd, &g, 1000, 0);
		if (end.gone)
			break;
		assert_true(!end.signal && g.n == 2);
	}
	assert_true(end.gone);
	assert_true(ask(c, fd, &g, 1000, 0).gone && !g.n);
	lg_symbol_child_free(c);
	close(fd);
}

static size_t packet(char *buf, enum lg_say_kind kind, const void *rest, size_t n)
{
	struct lg_say s = { .kind = kind };

	memcpy(buf, &s, sizeof s);
	memcpy(buf + sizeof s, rest, n);
	return sizeof s + n;
}

static size_t record(char *buf, uint32_t first, uint32_t count, uint16_t len, const char *name)
{
	struct lg_say_name r = { first, count, len };

	memcpy(buf, &r, sizeof r);
	memcpy(buf + sizeof r, name, strlen(name));
	return sizeof r + strlen(name);
}

static bool taken(uint32_t first, uint32_t count, uint16_t len, const char *name)
{
	struct lg_answer a = { .n_pcs = 4, .next = 1, .bytes_left = 100 };
	char rest[128], buf[256];
	struct got g = { .n = 0 };
	size_t n = record(rest, first, count, len, name);

	n = packet(buf, LG_SAY_NAMES, rest, n);
	return lg_answer_names(&a, buf, n, named, &g) && g.n == count;
}

static void answers_are_a_strangers(void **state)
{
	struct lg_debug_names d = { .build_id = "00ff", .link = "a.debug" };
	struct lg_say_id id = { "00ff" };
	char buf[1024], hex[LG_BUILD_ID_HEX];
	struct lg_say head;

	(void)state;
	assert_true(taken(1, 3, 4, "name"));
	assert_false(taken(0, 1, 4, "name")); /* answered before */
	assert_false(taken(1, 4, 4, "name"));
	assert_false(taken(4, 1, 4, "name"));
	assert_false(taken(2, UINT32_MAX, 4, "name"));
	assert_false(taken(1, 0, 4, "name"));
	assert_false(taken(1, 1, 5, "name")); /* longer than the packet */
	assert_false(taken(1, 1, 0, ""));
	assert_false(lg_answer_head(buf, sizeof head - 1, &head));
	packet(buf, 9, "", 0);
	assert_false(lg_answer_head(buf, sizeof head, &head));
	assert_true(lg_answer_id(buf, packet(buf, LG_SAY_OPENED, &id, sizeof id), hex));
	assert_false(lg_answer_id(buf, packet(buf, LG_SAY_OPENED, &id, sizeof id - 1), hex));
	memcpy(id.hex, "00/f", 4);
	assert_false(lg_answer_id(buf, packet(buf, LG_SAY_OPENED, &id, sizeof id), hex));
	memset(id.hex, 'a', sizeof id.hex);
	assert_false(lg_answer_id(buf, packet(buf, LG_SAY_OPENED, &id, sizeof id), hex));
	assert_true(lg_answer_debug(buf, packet(buf, LG_SAY_WANT_DEBUG, &d, sizeof d), &d));
	memcpy(d.link, "../x", 5);
	assert_false(lg_answer_debug(buf, packet(buf, LG_SAY_WANT_DEBUG, &d, sizeof d), &d));
	memset(d.link, 'x', sizeof d.link);
	assert_false(lg_answer_debug(buf, packet(buf, LG_SAY_WANT_DEBUG, &d, sizeof d), &d));
}

static void opens_regular_files_alone(void **state)
{
	static const char *const good[] = { "/file", "/in", "/up" };
	static const char *const bad[] = { "/pipe", "/to_pipe", "/dev", "/out", "/etc" };
	char dir[] = "/tmp/foreign.XXXXXX", path[128], text[256];
	struct stat st;
	int root, fd;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(text, sizeof text, "cd %s && echo inside > file && mkfifo pipe && ln -s /file in && "
		 "ln -s pipe to_pipe && ln -s ../../../../file up && ln -s /dev/full dev && mkdir etc && "
		 "ln -s /etc/nothing out", dir);
	assert_int_equal(system(text), 0);
	root = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		fd = lg_foreign_open(lg_foreign_look(root, good[i], 0, &st));
		assert_true(fd >= 0 && read(fd, text, 6) == 6 && !memcmp(text, "inside", 6));
		close(fd);
	}
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(lg_foreign_look(root, bad[i], 0, &st), -1);
	assert_int_equal(lg_foreign_look(root, "/in", LG_FOREIGN_NO_LINK, &st), -1);
	snprintf(path, sizeof path, "%s/pipe", dir);
	assert_int_equal(lg_foreign_open_path(path, 0), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(lg_foreign_open_path("/dev/full", 0), -1);
	assert_int_equal(lg_foreign_open(-1), -1);
	close(root);
	snprintf(text, sizeof text, "rm -r %s", dir);
	assert_int_equal(system(text), 0);
}

static void a_file_that_shrank_reads_as_zeros(void **state)
{
	long page = sysconf(_SC_PAGESIZE);
	int fd = memfd_create("file", MFD_CLOEXEC);
	size_t before = lg_shrunk_pages();
	char *p;

	(void)state;
	signal(SIGBUS, SIG_DFL); /* cmocka has a handler, which would be kept */
	lg_shrunk_guard();
	assert_int_equal(ftruncate(fd, 2 * page), 0);
	p = mmap(NULL, (size_t)(2 * page), PROT_READ, MAP_PRIVATE, fd, 0);
	assert_true(p != MAP_FAILED);
	lg_shrunk_watch(p, (size_t)(2 * page));
	assert_int_equal(ftruncate(fd, page), 0);
	assert_int_equal(((volatile char *)p)[page + 7], 0);
	assert_int_equal(lg_shrunk_pages(), before + 1);
	lg_shrunk_let_go(p);
	munmap(p, (size_t)(2 * page));
	close(fd);
}

/* A process may have 65530 mappings: not each page of a large file becomes one. */
static void a_file_that_shrank_takes_few_mappings(void **state)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE), n = 50000 * page;
	int fd = memfd_create("file", MFD_CLOEXEC);
	size_t before = lg_shrunk_pages();
	char *p;

	(void)state;
	signal(SIGBUS, SIG_DFL);
	lg_shrunk_guard();
	assert_int_equal(ftruncate(fd, (off_t)n), 0);
	p = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
	assert_true(p != MAP_FAILED);
	lg_shrunk_watch(p, n);
	assert_int_equal(ftruncate(fd, 0), 0);
	for (size_t at = 0; at < n; at += 2 * page)
		assert_int_equal(((volatile char *)p)[at], 0);
	assert_true(lg_shrunk_pages() - before < 20000);
	lg_shrunk_let_go(p);
	munmap(p, n);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_what_it_is_asked_for),
		cmocka_unit_test(a_death_costs_one_file),
		cmocka_unit_test(answers_are_a_strangers),
		cmocka_unit_test(opens_regular_files_alone),
		cmocka_unit_test(a_file_that_shrank_reads_as_zeros),
		cmocka_unit_test(a_file_that_shrank_takes_few_mappings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
