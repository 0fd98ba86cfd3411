/* SPDX-License-Identifier: Apache-2.0 */
/* Who asked a disk for how much: bytes are told of who wrote them, and once. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "record/disks.h"
#include "store/builder.h"

enum { CHUNK = 1 << 20, CHUNKS = 24 };
static const double all_bytes = (double)CHUNK * (double)CHUNKS;

static void takes_the_sums_that_reached_the_block_layer(void **state)
{
	static const char text[] = "rchar: 323934931\nwchar: 323929600\nsyscr: 632687\nsyscw: 632675\n"
				   "read_bytes: 40960\nwrite_bytes: 323932160\ncancelled_write_bytes: 0\n";
	uint64_t rd = 0, wr = 0;

	(void)state;
	assert_true(lg_disks_parse_io(text, &rd, &wr));
	assert_int_equal(rd, 40960);
	assert_int_equal(wr, 323932160);
	assert_false(lg_disks_parse_io("", &rd, &wr));
	assert_false(lg_disks_parse_io("rchar: 1\nread_bytes: 2\n", &rd, &wr));
}

/* False where this file system has no disk behind it. */
static bool write_and_sync(int fd, char *chunk)
{
	for (int i = 0; i < CHUNKS; i++)
		if (pwrite(fd, chunk, CHUNK, (off_t)i * CHUNK) != CHUNK)
			return false;
	return !fsync(fd);
}

static double told_of(struct lg_builder *b, int32_t pid)
{
	struct lg_trace *t = lg_builder_trace(b);
	double sum = 0;

	for (size_t i = 0; i < t->counter.n; i++) {
		lg_trk k = t->counter.track[i];

		if (!strcmp(lg_string(t, t->track.name[k]), "io.written") &&
		    t->process.pid[t->track.prc[k]] == pid)
			sum += t->counter.value[i];
	}
	return sum;
}

static void what_a_child_wrote_is_not_told_again_of_its_parent(void **state)
{
	char path[] = "disks-XXXXXX", *chunk = calloc(1, CHUNK), byte = 0;
	int fd = mkstemp(path), go[2], status, n = 0;
	struct lg_builder *b;
	struct lg_disks *d;
	pid_t child;

	(void)state;
	assert_true(fd >= 0 && chunk && !pipe(go));
	unlink(path);
	assert_int_equal(lg_builder_new(&b, NULL), 0);
	assert_int_equal(lg_disks_new(&d, b, NULL), 0);
	lg_disks_read(d, 1000000000);
	child = fork();
	if (!child) {
		close(go[1]);
		status = !write_and_sync(fd, chunk);
		(void)!read(go[0], &byte, 1); /* is seen before it is gone */
		_exit(status);
	}
	assert_true(lg_thread_start(b, getpid(), child, child, 1000000001));
	/* Times of the test's own, close together: whatever the disk does, it was busy. */
	for (int i = 1; i < 100 && told_of(b, child) < all_bytes; i++) {
		usleep(50000);
		lg_disks_read(d, 1000000000 + i * 1000);
	}
	close(go[1]);
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WEXITSTATUS(status) || told_of(b, child) < all_bytes) {
		print_message("no disk behind this directory\n");
		skip();
	}
	/* Another write, so that a disk is busy and the processes are read: a fast one is so for no tick. */
	do {
		assert_true(write_and_sync(fd, chunk));
		lg_disks_read(d, 1000200000 + ++n * 1000);
	} while (n < 20 && told_of(b, getpid()) < all_bytes);
	assert_true(told_of(b, child) < 1.5 * all_bytes);
	assert_true(told_of(b, getpid()) >= all_bytes);
	assert_true(told_of(b, getpid()) < (n + 0.5) * all_bytes);
	lg_disks_free(d);
	lg_builder_free(b);
	free(chunk);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(takes_the_sums_that_reached_the_block_layer),
		cmocka_unit_test(what_a_child_wrote_is_not_told_again_of_its_parent),
	};

	return cmocka_run_group_tests_name("disks", tests, NULL, NULL);
}
