/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elf_symbols.c - libelf finds the sections, this file keeps (address, size, name offset).
 *
 *   MAIN     the file itself: .symtab, else .dynsym
 *   DEBUG    its debug file: .symtab; without one
 *   MINI     .gnu_debugdata unpacked: .symtab
 *
 * Bit 31 of sym.name says that the string table of DEBUG or MINI is meant, bit 30 that the symbol is global
 * (preferred where several share an address). Symbols without a size (assembler) reach to the
 * next symbol; those with one do not reach beyond it: in a stripped library an address between
 * two exported functions belongs to neither, and naming it after the first would be a lie.
 */
#include "symbols/elf_symbols.h"

#include <elfutils/libdwelf.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "symbols/debug_file.h"
#include "symbols/elf_internal.h"
#include "symbols/file_budget.h"
#include "symbols/shrunk.h"

#define NAME_PART 0x80000000u
#define NAME_GLOBAL 0x40000000u
#define NAME_OFFSET 0x3fffffffu
/* libtorch_cuda.so, the largest known, has less than half a million symbols and 0.3 GB of names. */
#define SYMBOLS_MAX (2u << 20)
#define FORGET_AFTER 65536u /* symbols read: the pages of their names are not needed yet */
#define SECTION_BYTES 320u   /* of libelf's, for each section */
#define SIZELESS_MAX 65536 /* an assembler function is not longer */
#define LOOK_BACK 16       /* nested or overlapping symbols before the nearest one */

static void hex_of(const void *bytes, size_t n, char out[LG_BUILD_ID_HEX])
{
	const uint8_t *p = bytes;

	if (n > (LG_BUILD_ID_HEX - 1) / 2)
		n = (LG_BUILD_ID_HEX - 1) / 2;
	for (size_t i = 0; i < n; i++)
		snprintf(out + 2 * i, 3, "%02x", p[i]);
}

static void read_build_id(Elf *elf, char out[LG_BUILD_ID_HEX])
{
	const void *bytes;
	ssize_t n = dwelf_elf_gnu_build_id(elf, &bytes);

	out[0] = 0;
	if (n > 0)
		hex_of(bytes, (size_t)n, out);
}

bool lg_elf_build_id_of(int fd, char ret_hex[LG_BUILD_ID_HEX])
{
	Elf *elf;

	elf_version(EV_CURRENT);
	/* Not mapped: a few small reads instead of setting up a mapping of 200 MB. */
	elf = elf_begin(fd, ELF_C_READ, NULL);
	ret_hex[0] = 0;
	if (!elf)
		return false;
	read_build_id(elf, ret_hex);
	elf_end(elf);
	return ret_hex[0] != 0;
}

static Elf_Scn *section_of_type(Elf *elf, uint32_t type, GElf_Shdr *ret)
{
	Elf_Scn *scn = NULL;

	while ((scn = elf_nextscn(elf, scn)))
		if (gelf_getshdr(scn, ret) && ret->sh_type == type)
			return scn;
	return NULL;
}

static bool in_code(Elf *elf, size_t shndx)
{
	GElf_Shdr sh;
	Elf_Scn *scn = elf_getscn(elf, shndx);

	return scn && gelf_getshdr(scn, &sh) && (sh.sh_flags & SHF_EXECINSTR);
}

/* The file's first byte where it is mapped (libelf: from its first page on), else NULL. */
static char *mapped(Elf *elf, size_t *ret_n)
{
	char *p = elf_rawfile(elf, ret_n);

	return (uintptr_t)p & ((uintptr_t)sysconf(_SC_PAGESIZE) - 1) ? NULL : p;
}

/* The tables have been gone through from end to end; of their pages few are looked at again. A file
 * that is mapped (libelf: from its first page on) can be forgotten: it comes back where it is read. */
static void forget_pages(Elf *elf)
{
	size_t n = 0;
	char *p = mapped(elf, &n);

	if (p)
		(void)madvise(p, n, MADV_DONTNEED);
}

/* Add the functions of one symbol table; the part's strings are taken from the table it links. */
static int add_table(struct lg_elf *e, unsigned part_i, Elf_Scn *scn, const GElf_Shdr *sh)
{
	struct lg_elf_part *p = &e->part[part_i];
	Elf_Scn *str_scn = elf_getscn(p->elf, sh->sh_link);
	size_t n = sh->sh_entsize ? sh->sh_size / sh->sh_entsize : 0;
	const char *id = elf_getident(p->elf, NULL);
	/* libelf copies a whole table that does not lie as the processor wants it. */
	bool copied = sh->sh_offset % 8 || !id || id[EI_DATA] != ELFDATA2LSB;
	Elf_Data *data, *str;

	n = n < SYMBOLS_MAX ? n : SYMBOLS_MAX;
	if (!lg_file_spend(LG_COST_KEPT, e->owner, n * sizeof *e->sym + (copied ? sh->sh_size : 0)))
		return 0;
	data = elf_getdata(scn, NULL);
	str = str_scn ? elf_getdata(str_scn, NULL) : NULL;
	/* A section without bytes in the file (SHT_NOBITS) has a size all the same. */
	if (!data || !data->d_buf || !str || !str->d_buf || !str->d_size ||
	    ((const char *)str->d_buf)[str->d_size - 1])
		return 0;
	p->str = str->d_buf;
	p->n_str = str->d_size;
	for (size_t i = 0; i < n; i++) {
		GElf_Sym s;
		unsigned type;

		if (!gelf_getsym(data, (int)i, &s))
			break;
		if (i % FORGET_AFTER == FORGET_AFTER - 1)
			forget_pages(p->elf);
		type = GELF_ST_TYPE(s.st_info);
		if (s.st_shndx == SHN_UNDEF || !s.st_name || s.st_name >= p->n_str ||
		    s.st_name > NAME_OFFSET || !s.st_value)
			continue;
		/* '$' starts mapping symbols, which name no function (AArch64 ELF ABI). */
		if (type != STT_FUNC && type != STT_GNU_IFUNC &&
		    (type != STT_NOTYPE || p->str[s.st_name] == '$' ||
		     !in_code(p->elf, s.st_shndx)))
			continue;
		if (lg_grow(&e->sym, &e->cap, e->n + 1, sizeof *e->sym))
			return LG_E_NOMEM;
		e->sym[e->n++] = (struct lg_elf_sym){
			.addr = s.st_value,
			.size = s.st_size > UINT32_MAX ? UINT32_MAX : (uint32_t)s.st_size,
			.name = (uint32_t)s.st_name | (part_i ? NAME_PART : 0u) |
				(GELF_ST_BIND(s.st_info) == STB_GLOBAL ? NAME_GLOBAL : 0u)
		};
	}
	return 0;
}

/* libelf has allocated what it keeps of each section already; a file has up to 2^32. */
static bool paid(const struct lg_elf *e, Elf *elf)
{
	size_t n = 0;

	return !elf || elf_kind(elf) != ELF_K_ELF ||
	       (!elf_getshdrnum(elf, &n) && lg_file_spend(LG_COST_KEPT, e->owner, n * SECTION_BYTES));
}

static Elf *begin(const struct lg_elf *e, int fd)
{
	static char *const anywhere = (char *)1; /* libelf tells where only after it has read there */
	size_t n = 0;
	Elf *elf;
	char *p;

	lg_shrunk_watch(anywhere, SIZE_MAX - 1);
	elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	p = elf ? mapped(elf, &n) : NULL;
	if (p)
		lg_shrunk_watch(p, n);
	lg_shrunk_let_go(anywhere);
	if (!paid(e, elf)) {
		lg_shrunk_let_go(p);
		elf_end(elf);
		elf = NULL;
	}
	return elf;
}

bool lg_elf_need_debug(struct lg_elf *e)
{
	struct lg_elf_part *p = &e->part[LG_ELF_DEBUG];

	if (e->debug_tried)
		return p->elf != NULL;
	e->debug_tried = true;
	if (e->part[LG_ELF_MAIN].fd < 0)
		return false;
	p->fd = lg_debug_file_open(e->part[LG_ELF_MAIN].elf, e->part[LG_ELF_MAIN].fd, e->build_id,
				   e->debug_dir);
	if (p->fd >= 0)
		p->elf = begin(e, p->fd);
	return p->elf != NULL;
}

/* The symbols that the file was stripped of. */
static int add_stripped(struct lg_elf *e)
{
	struct lg_elf_part *p = &e->part[LG_ELF_MINI];
	unsigned i = LG_ELF_DEBUG;
	GElf_Shdr sh;
	Elf_Scn *scn;
	size_t n;

	if (!lg_elf_need_debug(e)) {
		p->image = lg_mini_debug(e->part[LG_ELF_MAIN].elf, e->owner, &n);
		if (p->image)
			p->elf = elf_memory(p->image, n);
		if (!paid(e, p->elf)) {
			elf_end(p->elf);
			p->elf = NULL;
		}
		i = LG_ELF_MINI;
	}
	scn = e->part[i].elf ? section_of_type(e->part[i].elf, SHT_SYMTAB, &sh) : NULL;
	return scn ? add_table(e, i, scn, &sh) : 0;
}

static int by_addr(const void *a, const void *b)
{
	const struct lg_elf_sym *x = a, *y = b;

	if (x->addr != y->addr)
		return x->addr < y->addr ? -1 : 1;
	return x->name < y->name ? -1 : x->name > y->name;
}

static int load_symbols(struct lg_elf *e)
{
	Elf *elf = e->part[0].elf;
	GElf_Shdr sh;
	Elf_Scn *scn = section_of_type(elf, SHT_SYMTAB, &sh);
	size_t n_phdr = 0;
	int rc = 0;

	if (!elf_getphdrnum(elf, &n_phdr))
		for (size_t i = 0; i < n_phdr && i < 4096; i++) {
			GElf_Phdr ph;

			if (!gelf_getphdr(elf, (int)i, &ph) || ph.p_type != PT_LOAD ||
			    e->n_load == sizeof e->load / sizeof e->load[0])
				continue;
			e->load[e->n_load].offset = ph.p_offset;
			e->load[e->n_load].vaddr = ph.p_vaddr;
			e->load[e->n_load++].size = ph.p_filesz;
		}
	if (scn) {
		rc = add_table(e, 0, scn, &sh);
	} else {
		scn = section_of_type(elf, SHT_DYNSYM, &sh);
		if (scn)
			rc = add_table(e, 0, scn, &sh);
		if (!rc)
			rc = add_stripped(e);
	}
	if (e->n)
		qsort(e->sym, e->n, sizeof *e->sym, by_addr);
	return rc;
}

void lg_elf_forget(struct lg_elf *e)
{
	for (size_t i = 0; i < LG_ELF_PARTS; i++)
		if (e->part[i].elf && e->part[i].fd >= 0)
			forget_pages(e->part[i].elf);
}

static int opened(struct lg_elf **ret, struct lg_elf *e, const char *debug_dir,
		  struct lg_error *err)
{
	int rc;

	if (!e->part[0].elf || elf_kind(e->part[0].elf) != ELF_K_ELF) {
		lg_elf_free(e);
		return lg_fail(err, LG_E_FORMAT, 0, "not an ELF file");
	}
	read_build_id(e->part[0].elf, e->build_id);
	if (debug_dir && !(e->debug_dir = lg_strdup(debug_dir))) {
		lg_elf_free(e);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	rc = load_symbols(e);
	lg_elf_forget(e);
	if (rc) {
		lg_elf_free(e);
		return lg_fail(err, rc, LG_NO_OFFSET, "%s", lg_error_text(rc));
	}
	*ret = e;
	return 0;
}

static struct lg_elf *blank(void)
{
	struct lg_elf *e = lg_calloc(1, sizeof *e);

	elf_version(EV_CURRENT);
	for (size_t i = 0; e && i < LG_ELF_PARTS; i++)
		e->part[i].fd = -1;
	return e;
}

int lg_elf_open(struct lg_elf **ret, int fd, const char *debug_dir, struct lg_error *err)
{
	struct lg_elf *e = blank();
	struct stat st;

	if (!e)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	e->part[0].fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (e->part[0].fd < 0) {
		int os_errno = errno;

		lg_elf_free(e);
		return lg_fail_errno(err, os_errno, "ELF file");
	}
	e->owner = fstat(fd, &st) ? (uid_t)-1 : st.st_uid;
	e->part[0].elf = begin(e, e->part[0].fd);
	return opened(ret, e, debug_dir, err);
}

int lg_elf_open_memory(struct lg_elf **ret, const void *image, size_t n, struct lg_error *err)
{
	struct lg_elf *e = blank();

	if (e)
		e->part[0].image = lg_calloc(n ? n : 1, 1);
	if (!e || !e->part[0].image) {
		lg_elf_free(e);
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	memcpy(e->part[0].image, image, n);
	e->part[0].elf = elf_memory(e->part[0].image, n);
	return opened(ret, e, NULL, err);
}

void lg_elf_free(struct lg_elf *e)
{
	if (!e)
		return;
	for (unsigned i = 0; i < LG_ELF_CFI; i++)
		lg_cfi_done(&e->cfi[i]);
	lg_elf_dwarf_done(e);
	for (size_t i = 0; i < LG_ELF_PARTS; i++) {
		if (e->part[i].elf) {
			if (e->part[i].fd >= 0)
				lg_shrunk_let_go(mapped(e->part[i].elf, &(size_t){ 0 }));
			elf_end(e->part[i].elf);
		}
		if (e->part[i].fd >= 0)
			close(e->part[i].fd);
		lg_free(e->part[i].image);
	}
	lg_free(e->debug_dir);
	lg_free(e->sym);
	lg_free(e);
}

const char *lg_elf_build_id(const struct lg_elf *e)
{
	return e->build_id;
}

bool lg_elf_vaddr(const struct lg_elf *e, uint64_t offset, uint64_t *ret_vaddr)
{
	for (size_t i = 0; i < e->n_load; i++)
		if (offset >= e->load[i].offset && offset - e->load[i].offset < e->load[i].size) {
			*ret_vaddr = e->load[i].vaddr + (offset - e->load[i].offset);
			return true;
		}
	return false;
}

static const char *name_of(const struct lg_elf *e, const struct lg_elf_sym *s)
{
	unsigned other = e->part[LG_ELF_DEBUG].str ? LG_ELF_DEBUG : LG_ELF_MINI;

	return e->part[s->name & NAME_PART ? other : LG_ELF_MAIN].str + (s->name & NAME_OFFSET);
}

/* Is a the better name of an address that both start at? */
static bool better(const struct lg_elf *e, const struct lg_elf_sym *a, const struct lg_elf_sym *b)
{
	uint32_t global = NAME_GLOBAL;
	size_t x, y;

	if ((a->name & global) != (b->name & global))
		return a->name & global;
	x = strspn(name_of(e, a), "_");
	y = strspn(name_of(e, b), "_");
	/* "_Z" starts a mangled name; it is not an underscore of its own. */
	return x != y ? x < y : strlen(name_of(e, a)) < strlen(name_of(e, b));
}

const char *lg_elf_find(const struct lg_elf *e, uint64_t vaddr, uint64_t *ret_offset)
{
	size_t lo = 0, hi = e->n;
	const struct lg_elf_sym *best = NULL;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (e->sym[mid].addr <= vaddr)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (size_t back = 0; back < LOOK_BACK && back < lo; back++) {
		const struct lg_elf_sym *s = &e->sym[lo - 1 - back];
		uint64_t reach = s->size;

		if (best && best->addr != s->addr)
			break;
		if (!reach && s->addr == e->sym[lo - 1].addr)
			reach = SIZELESS_MAX;
		if (vaddr - s->addr < reach && (!best || better(e, s, best)))
			best = s;
	}
	if (!best)
		return NULL;
	*ret_offset = vaddr - best->addr;
	return name_of(e, best);
}
