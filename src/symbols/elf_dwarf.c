/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/elf_dwarf.h"

#include <endian.h>
#include <gelf.h>
#include <string.h>

#include "symbols/elf_internal.h"
#include "symbols/file_budget.h"

/* Does it hold more than what every linker leaves behind? */
static bool has_units(Dwarf *d)
{
	Dwarf_CU *cu = NULL;

	return d && !dwarf_get_units(d, NULL, &cu, NULL, NULL, NULL, NULL);
}

/* GNU's older way to pack a section: "ZLIB", its size in big endian, the stream. */
static uint64_t gnu_size(Elf_Scn *scn)
{
	Elf_Data *data = elf_rawdata(scn, NULL);
	uint64_t n = 0;

	if (data && data->d_buf && data->d_size >= 12 && !memcmp(data->d_buf, "ZLIB", 4))
		memcpy(&n, (const char *)data->d_buf + 4, sizeof n);
	return be64toh(n);
}

/* libdw unpacks what is packed as soon as it is begun, and asks nobody. */
static Dwarf *begin(const struct lg_elf *e, Elf *elf)
{
	Elf_Scn *scn = NULL;
	uint64_t unpacked = 0;
	size_t names;

	if (!elf || elf_getshdrstrndx(elf, &names))
		return NULL;
	while ((scn = elf_nextscn(elf, scn))) {
		GElf_Shdr sh;
		GElf_Chdr packed;
		const char *s = gelf_getshdr(scn, &sh) ? elf_strptr(elf, names, sh.sh_name) : NULL;
		uint64_t n = 0;

		if (!s || sh.sh_type == SHT_NOBITS)
			continue;
		if (sh.sh_flags & SHF_COMPRESSED)
			n = gelf_getchdr(scn, &packed) ? packed.ch_size : 0;
		else if (!strncmp(s, ".zdebug", 7))
			n = gnu_size(scn);
		unpacked = n > UINT64_MAX - unpacked ? UINT64_MAX : unpacked + n;
	}
	return !unpacked || lg_file_spend(LG_COST_UNPACKED, e->owner, unpacked)
		       ? dwarf_begin_elf(elf, DWARF_C_READ, NULL) : NULL;
}

static Dwarf *main_dwarf(struct lg_elf *e)
{
	if (!e->main_dwarf && e->part[LG_ELF_MAIN].elf)
		e->main_dwarf = begin(e, e->part[LG_ELF_MAIN].elf);
	return e->main_dwarf;
}

Dwarf *lg_elf_dwarf(struct lg_elf *e)
{
	if (e->dwarf_tried)
		return e->dwarf;
	e->dwarf_tried = true;
	if (has_units(main_dwarf(e))) {
		e->dwarf = e->main_dwarf;
	} else if (lg_elf_need_debug(e)) {
		e->dwarf = begin(e, e->part[LG_ELF_DEBUG].elf);
		if (e->dwarf && !has_units(e->dwarf)) {
			dwarf_end(e->dwarf);
			e->dwarf = NULL;
		}
	}
	return e->dwarf;
}

void lg_elf_dwarf_done(struct lg_elf *e)
{
	lg_elf_lines_free(e->lines);
	e->lines = NULL;
	if (e->dwarf && e->dwarf != e->main_dwarf)
		dwarf_end(e->dwarf);
	if (e->main_dwarf)
		dwarf_end(e->main_dwarf);
	e->dwarf = e->main_dwarf = NULL;
}
