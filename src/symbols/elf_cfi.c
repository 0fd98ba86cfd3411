/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/elf_cfi.h"

#include <gelf.h>
#include <string.h>

#include "symbols/elf_internal.h"
#include "symbols/file_budget.h"

enum { UNPACKED_MAX = 1 << 28 }; /* .debug_frame of the largest programs has 50 MB */

/* The first section of that name that has content. */
static Elf_Scn *section_of_name(Elf *elf, const char *name, GElf_Shdr *ret)
{
	Elf_Scn *scn = NULL;
	size_t names;

	if (elf_getshdrstrndx(elf, &names))
		return NULL;
	while ((scn = elf_nextscn(elf, scn))) {
		const char *s = gelf_getshdr(scn, ret) ? elf_strptr(elf, names, ret->sh_name) : NULL;

		if (s && !strcmp(s, name) && ret->sh_type != SHT_NOBITS)
			return scn;
	}
	return NULL;
}

/* File content behind an address as linked, up to the end of what is loaded with it. */
static const uint8_t *loaded(const struct lg_elf *e, uint64_t vaddr, size_t *ret_n)
{
	const struct lg_elf_part *main = &e->part[LG_ELF_MAIN];
	size_t size = 0;
	const char *file = elf_rawfile(main->elf, &size);

	for (size_t i = 0; file && i < e->n_load; i++) {
		uint64_t into = vaddr - e->load[i].vaddr, at = e->load[i].offset + into, n;

		if (vaddr < e->load[i].vaddr || into >= e->load[i].size || at < into || at >= size)
			continue;
		n = e->load[i].size - into;
		*ret_n = n < size - at ? (size_t)n : size - (size_t)at;
		return (const uint8_t *)file + at;
	}
	return NULL;
}

static bool eh_frame_header(Elf *elf, GElf_Phdr *ret)
{
	size_t n = 0;

	if (elf_getphdrnum(elf, &n))
		return false;
	for (size_t i = 0; i < n && i < 4096; i++)
		if (gelf_getphdr(elf, (int)i, ret) && ret->p_type == PT_GNU_EH_FRAME)
			return true;
	return false;
}

static void eh_frame(struct lg_elf *e, struct lg_cfi *c)
{
	Elf *elf = e->part[LG_ELF_MAIN].elf;
	uint64_t frames = 0;
	const uint8_t *hdr = NULL;
	GElf_Shdr sh;
	GElf_Phdr ph;
	Elf_Scn *scn = section_of_name(elf, ".eh_frame", &sh);
	Elf_Data *data = scn ? elf_rawdata(scn, NULL) : NULL;
	size_t n;

	c->eh = true;
	if (eh_frame_header(elf, &ph))
		hdr = loaded(e, ph.p_vaddr, &n);
	if (hdr && !lg_cfi_header(c, hdr, n < ph.p_filesz ? n : (size_t)ph.p_filesz, ph.p_vaddr, &frames))
		frames = 0;
	if (data && data->d_buf) {
		c->p = data->d_buf;
		c->n = data->d_size;
		c->vaddr = sh.sh_addr;
	} else if (frames) { /* the section headers are gone */
		c->p = loaded(e, frames, &c->n);
		c->vaddr = frames;
	}
	if (frames != c->vaddr)
		c->table = NULL;
}

/* .debug_frame of one part of the file, unpacked. */
static void debug_frame(const struct lg_elf *e, unsigned which, struct lg_cfi *c)
{
	const struct lg_elf_part *part = &e->part[which];
	GElf_Shdr sh;
	GElf_Chdr packed;
	Elf_Scn *scn = part->elf ? section_of_name(part->elf, ".debug_frame", &sh) : NULL;
	Elf_Data *data;

	if (!scn)
		return;
	/* libdw may have unpacked it already: then it no longer says that it is packed. */
	if (sh.sh_flags & SHF_COMPRESSED &&
	    (!gelf_getchdr(scn, &packed) || packed.ch_size > UNPACKED_MAX ||
	     !lg_file_spend(LG_COST_UNPACKED, e->owner, packed.ch_size) || elf_compress(scn, 0, 0) < 0))
		return;
	data = elf_getdata(scn, NULL);
	if (!data || !data->d_buf)
		return;
	c->p = data->d_buf;
	c->n = data->d_size;
	c->vaddr = sh.sh_addr;
}

static void find_sections(struct lg_elf *e)
{
	Elf *elf = e->part[LG_ELF_MAIN].elf;
	GElf_Ehdr eh;

	e->cfi_tried = true;
	if (!gelf_getehdr(elf, &eh) || eh.e_ident[EI_DATA] != ELFDATA2LSB)
		return;
	e->machine = eh.e_machine == EM_X86_64 && eh.e_ident[EI_CLASS] == ELFCLASS64 ? LG_MACHINE_X86_64
		     : eh.e_machine == EM_AARCH64 && eh.e_ident[EI_CLASS] == ELFCLASS64
			     ? LG_MACHINE_AARCH64
		     : eh.e_machine == EM_386 ? LG_MACHINE_I386
					      : LG_MACHINE_NONE;
	for (unsigned i = 0; i < LG_ELF_CFI; i++)
		e->cfi[i].word = eh.e_ident[EI_CLASS] == ELFCLASS64 ? 8 : 4;
	eh_frame(e, &e->cfi[0]);
	debug_frame(e, LG_ELF_MAIN, &e->cfi[1]);
	/* A debug file is worth opening for it only if the file itself says nothing. */
	if (!e->cfi[0].p && !e->cfi[1].p && lg_elf_need_debug(e))
		debug_frame(e, LG_ELF_DEBUG, &e->cfi[1]);
}

struct lg_cfi *lg_elf_cfi(struct lg_elf *e, unsigned which, enum lg_machine machine)
{
	if (!e->cfi_tried)
		find_sections(e);
	return e->cfi[which].p && e->machine == machine ? &e->cfi[which] : NULL;
}
