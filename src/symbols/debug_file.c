/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/debug_file.h"

#include <dlfcn.h>
#include <elfutils/libdwelf.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <lzma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/alloc.h"
#include "symbols/elf_symbols.h"
#include "symbols/file_budget.h"
#include "symbols/open_foreign.h"
#include "symbols/options.h"

#define UNPACKED_MAX ((size_t)256 << 20)
#define DECODER_MAX ((uint64_t)80 << 20) /* what "xz -9" takes */

struct lg_symbol_options lg_symbol_options;

/* -- debuginfod: by dlopen, since few users have servers and it brings curl along -- */

typedef struct debuginfod_client *begin_fn(void);
typedef int find_fn(struct debuginfod_client *c, const unsigned char *id, int n, char **ret_path);

int lg_debuginfod_open(const char *build_id, bool executable)
{
	static struct debuginfod_client *client;
	static find_fn *find[2];
	static bool tried, dead;
	char *path = NULL;
	int fd;

	if (!lg_symbol_options.debuginfod || !*build_id || dead)
		return -1;
	if (!tried) {
		void *lib = dlopen("libdebuginfod.so.1", RTLD_NOW | RTLD_LOCAL);
		begin_fn *begin = NULL;

		tried = true;
		if (lib) {
			*(void **)&begin = dlsym(lib, "debuginfod_begin");
			*(void **)&find[0] = dlsym(lib, "debuginfod_find_debuginfo");
			*(void **)&find[1] = dlsym(lib, "debuginfod_find_executable");
		}
		client = begin ? begin() : NULL;
	}
	if (!client || !find[executable])
		return -1;
	/* Length 0: the id is hex text. */
	fd = find[executable](client, (const unsigned char *)build_id, 0, &path);
	free(path); /* its own malloc() */
	/* ENOENT is "no server has it"; after any other error (no network) asking again for each
	 * of hundreds of files would only take its time-out each time. */
	if (fd < 0 && fd != -ENOENT)
		dead = true;
	return fd < 0 ? -1 : fd;
}

/* -- files -- */

static bool same_id(int fd, const char *build_id)
{
	char id[LG_BUILD_ID_HEX];

	return lg_elf_build_id_of(fd, id) && !strcmp(id, build_id);
}

/* perf-buildid-cache(1); file: what of it. */
static int open_in_cache(const char *build_id, const char *file)
{
	char path[4352];

	if (!*lg_symbol_options.cache || strlen(build_id) < 3 || strlen(build_id) >= LG_BUILD_ID_HEX)
		return -1;
	snprintf(path, sizeof path, "%s/.build-id/%.2s/%s/%s", lg_symbol_options.cache, build_id, build_id + 2,
		 file);
	return lg_foreign_open_path(path, 0);
}

int lg_build_id_kallsyms_open(const char *build_id)
{
	return open_in_cache(build_id, "kallsyms");
}

int lg_build_id_open(const char *build_id)
{
	int fd;

	if (strlen(build_id) < 3 || strlen(build_id) >= LG_BUILD_ID_HEX)
		return -1;
	fd = open_in_cache(build_id, "elf");
	if (fd >= 0 && !same_id(fd, build_id)) {
		close(fd);
		fd = -1;
	}
	return fd >= 0 ? fd : lg_debuginfod_open(build_id, true);
}

/* CRC-32 of IEEE 802.3, zlib's, over the whole file (GDB manual, "Separate Debug Files"). */
static bool same_crc(int fd, GElf_Word want, uid_t owner)
{
	uint8_t buf[65536];
	uLong crc = crc32(0, NULL, 0);
	off_t at = 0;
	ssize_t n = 1;

	while ((n = pread(fd, buf, sizeof buf, at)) > 0) {
		if (!lg_file_spend(LG_COST_SUMMED, owner, (uint64_t)n))
			return false;
		crc = crc32(crc, buf, (uInt)n);
		at += n;
	}
	return !n && (GElf_Word)crc == want;
}

/* The folder that fd's file lies in, as a path; "" when that is not known. */
static void folder_of(int fd, char *buf, size_t size)
{
	char self[32], *slash;
	ssize_t n;

	snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
	n = readlink(self, buf, size - 1);
	buf[n > 0 ? n : 0] = 0;
	slash = strrchr(buf, '/');
	if (buf[0] == '/' && slash)
		*slash = 0;
	else
		buf[0] = 0;
}

/* A name, not a path: the file must not lead us elsewhere. */
static bool is_name(const char *s)
{
	return *s && strcmp(s, ".") && strcmp(s, "..") && !strchr(s, '/');
}

int lg_debug_candidate(const struct lg_debug_names *d, int fd, const char *debug_dir, unsigned which)
{
	static const char *const below[] = { "", "/.debug", "" };
	char folder[2048], path[4608];
	struct stat st;

	if (which == LG_DEBUG_BY_SERVER)
		return lg_debuginfod_open(d->build_id, false);
	if ((which == LG_DEBUG_BY_ID || which == LG_DEBUG_IN_TREE) && !debug_dir)
		return -1;
	if (which == LG_DEBUG_BY_ID) {
		if (strlen(d->build_id) < 3)
			return -1;
		snprintf(path, sizeof path, "%s/.build-id/%.2s/%s.debug", debug_dir, d->build_id, d->build_id + 2);
		return lg_foreign_open_path(path, 0);
	}
	if (which > LG_DEBUG_IN_TREE || !is_name(d->link) || fd < 0)
		return -1;
	folder_of(fd, folder, sizeof folder);
	if (!*folder)
		return -1;
	snprintf(path, sizeof path, "%s%s%s/%s", which == LG_DEBUG_IN_TREE ? debug_dir : "", folder,
		 below[which - LG_DEBUG_BESIDE], d->link);
	if (which == LG_DEBUG_IN_TREE)
		return lg_foreign_open_path(path, 0);
	/* Whoever can write there chose what it is called. */
	return fstat(fd, &st) ? -1 : lg_foreign_open_plain(path, st.st_uid);
}

lg_debug_open_fn *lg_debug_opener = lg_debug_candidate;

static bool belongs(const struct lg_debug_names *d, int fd, int found, unsigned which)
{
	struct stat a, b;

	if (which == LG_DEBUG_BY_SERVER)
		return true; /* asked for by its id; an executable's debug file need not repeat it */
	if (which == LG_DEBUG_BY_ID)
		return same_id(found, d->build_id);
	/* The link of a file may name the file itself (eu-strip -f without a new name). */
	if (fstat(fd, &a) || fstat(found, &b) || (a.st_ino == b.st_ino && a.st_dev == b.st_dev))
		return false;
	return *d->build_id ? same_id(found, d->build_id) : same_crc(found, d->crc, a.st_uid);
}

int lg_debug_file_open(Elf *elf, int fd, const char *build_id, const char *debug_dir)
{
	struct lg_debug_names d = { .crc = 0 };
	GElf_Word crc = 0;
	const char *link = dwelf_elf_gnu_debuglink(elf, &crc);

	snprintf(d.build_id, sizeof d.build_id, "%s", build_id);
	if (link && strlen(link) < sizeof d.link && is_name(link)) {
		snprintf(d.link, sizeof d.link, "%s", link);
		d.crc = crc;
	}
	for (unsigned which = 0; which < LG_DEBUG_CANDIDATES; which++) {
		bool by_link = which >= LG_DEBUG_BESIDE && which <= LG_DEBUG_IN_TREE;
		int found = by_link ? !*d.link : !*d.build_id;

		if (found)
			continue; /* nothing to ask by */
		found = lg_debug_opener(&d, fd, debug_dir, which);
		if (found >= 0 && belongs(&d, fd, found, which))
			return found;
		if (found >= 0)
			close(found);
	}
	return -1;
}

/* -- mini debug info -- */

static char *unpack_xz(const void *in, size_t n, uid_t owner, size_t *ret_n)
{
	lzma_stream xz = { .next_in = in, .avail_in = n };
	lzma_ret rc = lzma_stream_decoder(&xz, DECODER_MAX, 0);
	size_t size = 0;
	char *out = NULL;

	while (rc == LZMA_OK && !xz.avail_out) {
		size_t more = size ? size : 4 * n + 65536;
		char *bigger = more <= UNPACKED_MAX && lg_file_spend(LG_COST_UNPACKED, owner, more)
				       ? lg_realloc(out, size + more, 1) : NULL;

		if (!bigger)
			break;
		out = bigger;
		xz.next_out = (uint8_t *)out + size;
		xz.avail_out = more;
		size += more;
		rc = lzma_code(&xz, LZMA_FINISH);
	}
	*ret_n = (size_t)xz.total_out;
	lzma_end(&xz);
	if (rc == LZMA_STREAM_END)
		return out;
	lg_free(out);
	return NULL;
}

char *lg_mini_debug(Elf *elf, uid_t owner, size_t *ret_n)
{
	Elf_Scn *scn = NULL;
	size_t names;

	if (elf_getshdrstrndx(elf, &names))
		return NULL;
	while ((scn = elf_nextscn(elf, scn))) {
		GElf_Shdr sh;
		const char *s = gelf_getshdr(scn, &sh) ? elf_strptr(elf, names, sh.sh_name) : NULL;
		Elf_Data *data = s && !strcmp(s, ".gnu_debugdata") && sh.sh_type != SHT_NOBITS
					 ? elf_rawdata(scn, NULL) : NULL;

		if (data && data->d_size && data->d_buf)
			return unpack_xz(data->d_buf, data->d_size, owner, ret_n);
	}
	return NULL;
}
