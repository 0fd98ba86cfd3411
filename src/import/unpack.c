/* SPDX-License-Identifier: Apache-2.0 */
#include "import/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "import/import.h"
#include "import/source/packing.h"
#include "import/source/source.h"

enum { PIECE = 256 << 10 };

const char *lg_import_scratch;
uint64_t lg_import_room = UINT64_MAX;

/* What unpacks to more than this many times its size is to fill a disk: recordings shrink by 3 to 10. */
enum { GROWTH = 64 };
#define ALWAYS ((uint64_t)256 << 20)

/* Nameless; *ret_folder: "" = in memory. */
static int scratch(const char **ret_folder)
{
	char path[4096];
	int n, fd;

	*ret_folder = lg_import_scratch ? lg_import_scratch : "";
	n = snprintf(path, sizeof path, "%s/laggard-XXXXXX", *ret_folder);
	if (**ret_folder && n > 0 && (size_t)n < sizeof path) {
		fd = mkostemp(path, O_CLOEXEC);
		if (fd >= 0) {
			unlink(path);
			return fd;
		}
	}
	*ret_folder = "";
	return memfd_create("laggard-unpacked", MFD_CLOEXEC);
}

static int put(int fd, const uint8_t *p, size_t n)
{
	while (n) {
		ssize_t k = write(fd, p, n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return k ? errno : ENOSPC;
		p += k;
		n -= (size_t)k;
	}
	return 0;
}

/* The most that may be written to fd for a file of this size. */
static uint64_t room_for(int fd, const char *path, bool in_memory)
{
	uint64_t room = ALWAYS, left = UINT64_MAX;
	struct statvfs v;
	struct stat st;

	if (!stat(path, &st) && st.st_size > 0)
		room += (uint64_t)st.st_size * GROWTH;
	if (in_memory)
		left = lg_import_room;
	else if (!fstatvfs(fd, &v))
		left = (uint64_t)v.f_bavail * v.f_frsize / 2;
	return room < left ? room : left;
}

static int too_large(const char *name, uint64_t room, const char *folder, struct lg_error *err)
{
	return lg_fail(err, LG_E_LIMIT, LG_NO_OFFSET,
		       "%s unpacks to more than %llu MiB, the most that is written for it %s%s: unpack it by hand, "
		       "or name a folder with more room in TMPDIR",
		       name, (unsigned long long)(room >> 20), *folder ? "to " : "to memory", folder);
}

int lg_unpack(const char *name, const char *path, int *ret_fd, const char **ret_damage, struct lg_error *err)
{
	LG_AUTOFREE uint8_t *piece = lg_realloc(NULL, PIECE, 1);
	const char *folder = "";
	struct lg_source *s;
	int rc, fd, failed = 0;
	uint64_t room, n = 0;
	size_t k;

	if (!piece)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	rc = lg_source_open(&s, path, err);
	if (rc)
		return rc;
	fd = scratch(&folder);
	failed = fd < 0 ? errno : 0;
	room = room_for(fd, path, !*folder);
	while (!failed && n <= room && (k = lg_source_read(s, piece, PIECE))) {
		n += k;
		failed = put(fd, piece, k);
	}
	*ret_damage = lg_source_damage(s);
	lg_source_close(s);
	if (!failed && n <= room) {
		*ret_fd = fd;
		return 0;
	}
	if (fd >= 0)
		close(fd);
	if (!failed)
		return too_large(name, room, folder, err);
	return *folder ? lg_fail_errno(err, failed, "%s: cannot unpack it into %s (TMPDIR may name another folder)",
				       name, folder)
		       : lg_fail_errno(err, failed, "%s: cannot unpack it into memory", name);
}
