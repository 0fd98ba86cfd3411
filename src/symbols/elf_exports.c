/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/elf_exports.h"

#include <gelf.h>
#include <stdbool.h>
#include <string.h>

#include "base/error.h"

#define SYMBOLS_MAX (2 << 20)

static void look_up(Elf_Data *data, const char *str, size_t n_str, uint64_t bias, struct lg_elf_export *v,
		    size_t n)
{
	GElf_Sym s;

	for (int i = 0; i < SYMBOLS_MAX && gelf_getsym(data, i, &s); i++) {
		if (s.st_shndx == SHN_UNDEF || !s.st_value || s.st_name >= n_str)
			continue;
		for (size_t k = 0; k < n; k++)
			if (!strcmp(str + s.st_name, v[k].name)) {
				v[k].at = s.st_value - bias;
				v[k].size = s.st_size;
			}
	}
}

/* What an address in the code is more than its offset in the file. */
static bool code_bias(Elf *elf, uint64_t *ret)
{
	size_t n = 0;

	if (elf_getphdrnum(elf, &n))
		return false;
	for (size_t i = 0; i < n && i < 4096; i++) {
		GElf_Phdr ph;

		if (gelf_getphdr(elf, (int)i, &ph) && ph.p_type == PT_LOAD && (ph.p_flags & PF_X)) {
			*ret = ph.p_vaddr - ph.p_offset;
			return true;
		}
	}
	return false;
}

int lg_elf_exports(int fd, struct lg_elf_export *v, size_t n)
{
	Elf_Scn *scn = NULL;
	uint64_t bias;
	GElf_Shdr sh;
	Elf *elf;

	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	if (!elf || elf_kind(elf) != ELF_K_ELF || !code_bias(elf, &bias)) {
		elf_end(elf);
		return LG_E_FORMAT;
	}
	while ((scn = elf_nextscn(elf, scn))) {
		Elf_Data *data, *str;

		if (!gelf_getshdr(scn, &sh) || sh.sh_type != SHT_DYNSYM)
			continue;
		data = elf_getdata(scn, NULL);
		scn = elf_getscn(elf, sh.sh_link);
		str = scn ? elf_getdata(scn, NULL) : NULL;
		if (data && data->d_buf && str && str->d_buf && str->d_size &&
		    !((const char *)str->d_buf)[str->d_size - 1])
			look_up(data, str->d_buf, str->d_size, bias, v, n);
		break;
	}
	elf_end(elf);
	return 0;
}
