/* SPDX-License-Identifier: Apache-2.0 */
#include "import/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "import/import.h"
#include "import/source/packing.h"
#include "import/source/source.h"

enum { PIECE = 256 << 10 };

const char *lg_import_scratch;

bool lg_is_packed(const uint8_t *head, size_t n)
{
	return lg_is_gzip(head, n) || lg_is_zstd(head, n) || lg_is_xz(head, n);
}

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

int lg_unpack(const char *name, const char *path, int *ret_fd, const char **ret_damage, struct lg_error *err)
{
	LG_AUTOFREE uint8_t *piece = lg_realloc(NULL, PIECE, 1);
	const char *folder = "";
	struct lg_source *s;
	int rc, fd, failed = 0;
	size_t k;

	if (!piece)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	rc = lg_source_open(&s, path, err);
	if (rc)
		return rc;
	fd = scratch(&folder);
	failed = fd < 0 ? errno : 0;
	while (!failed && (k = lg_source_read(s, piece, PIECE)))
		failed = put(fd, piece, k);
	*ret_damage = lg_source_damage(s);
	lg_source_close(s);
	if (!failed) {
		*ret_fd = fd;
		return 0;
	}
	if (fd >= 0)
		close(fd);
	return *folder ? lg_fail_errno(err, failed, "%s: cannot unpack it into %s (TMPDIR may name another folder)",
				       name, folder)
		       : lg_fail_errno(err, failed, "%s: cannot unpack it into memory", name);
}
