/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/debug_file.h"

#include <dlfcn.h>
#include <elfutils/libdwelf.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/alloc.h"
#include "symbols/elf_symbols.h"
#include "symbols/options.h"

#define UNPACKED_MAX ((size_t)256 << 20)

struct lg_symbol_options lg_symbol_options;

static int open_regular(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	if (fd >= 0 && (fstat(fd, &st) || !S_ISREG(st.st_mode))) {
		close(fd);
		return -1;
	}
	return fd;
}

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
	return open_regular(path);
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

static int by_build_id(const char *build_id, const char *debug_dir)
{
	char path[4096];
	int fd;

	if (strlen(build_id) < 3)
		return -1;
	snprintf(path, sizeof path, "%s/.build-id/%.2s/%s.debug", debug_dir, build_id, build_id + 2);
	fd = open_regular(path);
	if (fd >= 0 && !same_id(fd, build_id)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* CRC-32 of IEEE 802.3, zlib's, over the whole file (GDB manual, "Separate Debug Files"). */
static bool same_crc(int fd, GElf_Word want)
{
	uint8_t buf[65536];
	uLong crc = crc32(0, NULL, 0);
	off_t at = 0;
	ssize_t n;

	while ((n = pread(fd, buf, sizeof buf, at)) > 0) {
		crc = crc32(crc, buf, (uInt)n);
		at += n;
	}
	return !n && (GElf_Word)crc == want;
}

static int by_link(Elf *elf, int fd, const char *build_id, const char *debug_dir)
{
	char self[32], folder[2048], path[4608];
	GElf_Word crc;
	const char *name = dwelf_elf_gnu_debuglink(elf, &crc);
	ssize_t n;
	char *slash;

	/* A name, not a path: the file must not lead us elsewhere. */
	if (!name || !*name || strchr(name, '/') || strlen(name) > 255 || fd < 0)
		return -1;
	snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
	n = readlink(self, folder, sizeof folder - 1);
	if (n <= 0)
		return -1;
	folder[n] = 0;
	slash = strrchr(folder, '/');
	if (folder[0] != '/' || !slash)
		return -1;
	*slash = 0;
	for (int i = 0; i < 3; i++) {
		struct stat a, b;
		int found;

		if (i == 2 && !debug_dir)
			break;
		snprintf(path, sizeof path, "%s%s%s/%s", i == 2 ? debug_dir : "", folder,
			 i == 1 ? "/.debug" : "", name);
		found = open_regular(path);
		if (found < 0)
			continue;
		/* The link of a file may name the file itself (eu-strip -f without a new name). */
		if ((fstat(fd, &a) || fstat(found, &b) || a.st_ino != b.st_ino || a.st_dev != b.st_dev) &&
		    (*build_id ? same_id(found, build_id) : same_crc(found, crc)))
			return found;
		close(found);
	}
	return -1;
}

int lg_debug_file_open(Elf *elf, int fd, const char *build_id, const char *debug_dir)
{
	int found = debug_dir ? by_build_id(build_id, debug_dir) : -1;

	if (found < 0)
		found = by_link(elf, fd, build_id, debug_dir);
	return found >= 0 ? found : lg_debuginfod_open(build_id, false);
}

/* -- mini debug info -- */

/*
 * liblzma by dlopen: needed only where a distribution ships mini debug info (Fedora, RHEL), and
 * there it is always installed.
 */
typedef int xz_decode_fn(uint64_t *memlimit, uint32_t flags, const void *allocator,
			 const uint8_t *in, size_t *in_pos, size_t in_size, uint8_t *out,
			 size_t *out_pos, size_t out_size);
#define XZ_OK 0
#define XZ_BUF_ERROR 10 /* lzma/base.h: the output is too small */

static char *unpack_xz(const void *in, size_t n, size_t *ret_n)
{
	void *lib = dlopen("liblzma.so.5", RTLD_NOW | RTLD_LOCAL);
	xz_decode_fn *decode = NULL;
	char *out = NULL;

	if (lib)
		*(void **)&decode = dlsym(lib, "lzma_stream_buffer_decode");
	for (size_t size = 4 * n + 65536; decode && size <= UNPACKED_MAX; size *= 2) {
		uint64_t limit = UNPACKED_MAX;
		size_t in_pos = 0, out_pos = 0;
		char *bigger = lg_realloc(out, size, 1);
		int rc;

		if (!bigger)
			break;
		out = bigger;
		rc = decode(&limit, 0, NULL, in, &in_pos, n, (uint8_t *)out, &out_pos, size);
		if (rc == XZ_OK) {
			*ret_n = out_pos;
			dlclose(lib);
			return out;
		}
		if (rc != XZ_BUF_ERROR)
			break;
	}
	lg_free(out);
	if (lib)
		dlclose(lib);
	return NULL;
}

char *lg_mini_debug(Elf *elf, size_t *ret_n)
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
			return unpack_xz(data->d_buf, data->d_size, ret_n);
	}
	return NULL;
}
