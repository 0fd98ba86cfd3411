/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/elf_dwarf.h"

#include "symbols/elf_internal.h"

/* Does it hold more than what every linker leaves behind? */
static bool has_units(Dwarf *d)
{
	Dwarf_CU *cu = NULL;

	return d && !dwarf_get_units(d, NULL, &cu, NULL, NULL, NULL, NULL);
}

static Dwarf *main_dwarf(struct lg_elf *e)
{
	if (!e->main_dwarf && e->part[LG_ELF_MAIN].elf)
		e->main_dwarf = dwarf_begin_elf(e->part[LG_ELF_MAIN].elf, DWARF_C_READ, NULL);
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
		e->dwarf = dwarf_begin_elf(e->part[LG_ELF_DEBUG].elf, DWARF_C_READ, NULL);
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
