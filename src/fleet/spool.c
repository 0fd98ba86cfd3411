/* SPDX-License-Identifier: Apache-2.0 */
#include "fleet/spool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

enum { NAME = 64, BATCH_BYTES_MAX = 128 << 20 };

int lg_spool_open(struct lg_spool *s, const char *path, uint64_t most_bytes, struct lg_error *err)
{
	struct stat st;

	*s = (struct lg_spool){ .dir = -1, .most_bytes = most_bytes };
	if (mkdir(path, 0700) && errno != EEXIST)
		return lg_fail_errno(err, errno, "cannot make the folder %.300s", path);
	s->dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (s->dir < 0 || fstat(s->dir, &st))
		return lg_fail_errno(err, errno, "cannot open the folder %.300s", path);
	if (st.st_uid == geteuid() && !(st.st_mode & 077))
		return 0;
	lg_spool_close(s);
	return lg_fail(err, LG_E_PERM, LG_NO_OFFSET, "%.300s is to be a folder of this user that no other may enter (mode 0700)",
		       path);
}

void lg_spool_close(struct lg_spool *s)
{
	if (s->dir >= 0)
		close(s->dir);
	s->dir = -1;
}

static bool parse_name(const char *name, uint64_t *ret_seq, uint32_t *ret_rows)
{
	unsigned long long seq;
	unsigned rows;
	int end = 0;

	if (sscanf(name, "%16llx-%8x.batch%n", &seq, &rows, &end) != 2 || (size_t)end != strlen(name) || end != 31)
		return false;
	*ret_seq = seq;
	*ret_rows = rows;
	return true;
}

struct found {
	uint64_t seq, bytes;
	uint32_t rows;
	char name[NAME];
};

/* Of the files whose number is at least `from`, the first one; what there is in all into s. */
static int walk(struct lg_spool *s, uint64_t from, struct found *ret, uint64_t *ret_last, bool tidy,
		struct lg_error *err)
{
	int fd = openat(s->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!d) {
		int no = errno;

		if (fd >= 0)
			close(fd);
		return lg_fail_errno(err, no, "cannot read the spool");
	}
	*ret = (struct found){ .seq = UINT64_MAX };
	*ret_last = s->bytes = s->files = s->rows = 0;
	while ((e = readdir(d))) {
		struct found f = { 0 };
		struct stat st;

		if (tidy && !strncmp(e->d_name, "new.", 4))
			unlinkat(s->dir, e->d_name, 0);
		if (!parse_name(e->d_name, &f.seq, &f.rows) ||
		    fstatat(s->dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW))
			continue;
		f.bytes = (uint64_t)st.st_size;
		s->bytes += f.bytes;
		s->rows += f.rows;
		s->files++;
		if (f.seq > *ret_last)
			*ret_last = f.seq;
		if (f.seq < from || f.seq >= ret->seq)
			continue;
		snprintf(f.name, sizeof f.name, "%s", e->d_name);
		*ret = f;
	}
	closedir(d);
	return 0;
}

int lg_spool_look(struct lg_spool *s, uint64_t *ret_last, struct lg_error *err)
{
	struct found first;

	return walk(s, 0, &first, ret_last, true, err);
}

/* Remove the oldest that is not being sent. False: there is none. */
static bool drop_oldest(struct lg_spool *s)
{
	struct lg_error ignored;
	struct found f;
	uint64_t last;

	for (uint64_t from = 0; !walk(s, from, &f, &last, false, &ignored) && f.seq != UINT64_MAX;
	     from = f.seq + 1) {
		int fd = openat(s->dir, f.name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
		bool gone = fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB) && !unlinkat(s->dir, f.name, 0);

		if (fd >= 0)
			close(fd);
		if (!gone)
			continue;
		s->bytes -= f.bytes < s->bytes ? f.bytes : s->bytes;
		s->rows -= f.rows;
		s->files--;
		s->dropped_rows += f.rows;
		s->dropped_files++;
		return true;
	}
	return false;
}

static bool write_all(int fd, const char *p, size_t n)
{
	while (n) {
		ssize_t k = write(fd, p, n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return false;
		p += k;
		n -= (size_t)k;
	}
	return true;
}

static int write_file(struct lg_spool *s, const char *name, const void *bytes, size_t n, struct lg_error *err)
{
	char new[NAME + 8];
	int fd, rc = 0;

	snprintf(new, sizeof new, "new.%s", name);
	unlinkat(s->dir, new, 0);
	fd = openat(s->dir, new, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return lg_fail_errno(err, errno, "cannot write to the spool");
	if (!write_all(fd, bytes, n) || fsync(fd))
		rc = lg_fail_errno(err, errno, "cannot write to the spool");
	close(fd);
	if (!rc && renameat(s->dir, new, s->dir, name))
		rc = lg_fail_errno(err, errno, "cannot write to the spool");
	if (rc)
		unlinkat(s->dir, new, 0);
	return rc;
}

int lg_spool_add(struct lg_spool *s, uint64_t seq, uint32_t rows, const void *bytes, size_t n,
		 struct lg_error *err)
{
	char name[NAME];
	int rc = 0;

	while (s->bytes + n > s->most_bytes && drop_oldest(s))
		;
	snprintf(name, sizeof name, "%016" PRIx64 "-%08" PRIx32 ".batch", seq, rows);
	if (s->bytes + n > s->most_bytes)
		rc = lg_fail(err, LG_E_LIMIT, LG_NO_OFFSET, "the spool has no room for a batch of %zu bytes", n);
	/* A full disk has room again where older ones go. */
	while (!rc && (rc = write_file(s, name, bytes, n, err)) && err && err->os_errno == ENOSPC &&
	       drop_oldest(s))
		rc = 0;
	if (rc) {
		s->dropped_rows += rows;
		s->dropped_files++;
		return rc;
	}
	s->bytes += n;
	s->rows += rows;
	s->files++;
	return 0;
}

int lg_spool_oldest(struct lg_spool *s, struct lg_spooled *ret, struct lg_error *err)
{
	struct found f;
	uint64_t last, from = 0;
	struct stat st;
	int rc;

	*ret = (struct lg_spooled){ .fd = -1 };
	for (;;) {
		rc = walk(s, from, &f, &last, false, err);
		if (rc || f.seq == UINT64_MAX)
			return rc;
		ret->fd = openat(s->dir, f.name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
		if (ret->fd >= 0 && !flock(ret->fd, LOCK_EX | LOCK_NB) && !fstat(ret->fd, &st) &&
		    st.st_nlink && S_ISREG(st.st_mode) && st.st_size <= BATCH_BYTES_MAX)
			break;
		if (ret->fd >= 0)
			close(ret->fd);
		from = f.seq + 1; /* it is being dropped, or is none of ours */
	}
	ret->seq = f.seq;
	ret->rows = f.rows;
	ret->n = (size_t)st.st_size;
	ret->bytes = lg_calloc(ret->n + 1, 1);
	if (ret->bytes && pread(ret->fd, ret->bytes, ret->n, 0) == (ssize_t)ret->n)
		return 1;
	rc = ret->bytes ? lg_fail_errno(err, errno ? errno : EIO, "cannot read the spool")
			: lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	lg_spool_done(s, ret, false);
	return rc;
}

void lg_spool_done(struct lg_spool *s, struct lg_spooled *one, bool sent)
{
	char name[NAME];

	snprintf(name, sizeof name, "%016" PRIx64 "-%08" PRIx32 ".batch", one->seq, one->rows);
	if (sent)
		unlinkat(s->dir, name, 0); /* while it is locked: it is not dropped as well */
	if (one->fd >= 0)
		close(one->fd);
	lg_free(one->bytes);
	*one = (struct lg_spooled){ .fd = -1 };
}
