/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inlines.c - two indexes over libdw's tree, each made when first needed.
 *
 *   ranges of units   -> unit        (.debug_aranges is optional, clang leaves it out)
 *   ranges of functions of one unit -> function; from there down to the address
 */
#include "symbols/inlines.h"

#include <dwarf.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "symbols/elf_dwarf.h"
#include "symbols/elf_internal.h"

enum {
	DEPTH_MAX = 64,
	RANGES_MAX = 1 << 16,
	/* Scopes and ranges passed by in one file, a few seconds of time: who makes a function of millions of
	 * them has each address look through all. */
	STEPS_MAX = 1 << 26
};

struct range {
	uint64_t from, to;
	Dwarf_Off die;
	uint32_t unit; /* of the list of units: index in unit[] */
};

struct unit {
	Dwarf_Off die;
	bool tried;
	struct range *fn;
	size_t n, cap;
};

struct lg_elf_lines {
	struct range *range; /* of units */
	size_t n, cap;
	struct unit *unit;
	size_t n_unit, unit_cap, steps;
};

static _Atomic size_t cut;

size_t lg_inlines_cut(void)
{
	return cut;
}

static int by_start(const void *pa, const void *pb)
{
	const struct range *a = pa, *b = pb;

	if (a->from != b->from)
		return a->from < b->from ? -1 : 1;
	return a->to > b->to ? -1 : a->to < b->to; /* what encloses comes first */
}

/* One more of what is passed by; false: it was too many. */
static bool step(struct lg_elf_lines *l)
{
	if (l->steps < STEPS_MAX) {
		l->steps++;
		return true;
	}
	cut += l->steps++ == STEPS_MAX;
	return false;
}

static void add_ranges(struct lg_elf_lines *l, Dwarf_Die *die, uint32_t unit, struct range **list, size_t *n,
		       size_t *cap)
{
	Dwarf_Addr base, from, to;
	ptrdiff_t at = 0;
	int rounds = 0;

	while ((at = dwarf_ranges(die, at, &base, &from, &to)) > 0 && rounds++ < RANGES_MAX &&
	       step(l)) {
		/* From 0 on: the linker threw the code away. */
		if (!from || to <= from || lg_grow(list, cap, *n + 1, sizeof **list))
			continue;
		(*list)[(*n)++] = (struct range){ from, to, dwarf_dieoffset(die), unit };
	}
}

static const struct range *find(const struct range *list, size_t n, uint64_t addr)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (list[mid].from <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	/* Ranges are disjoint but for damage and nested functions: look back a little. */
	for (size_t back = 0; back < 8 && back < lo; back++)
		if (addr < list[lo - 1 - back].to)
			return &list[lo - 1 - back];
	return NULL;
}

static struct lg_elf_lines *lines_of(struct lg_elf *e)
{
	struct lg_elf_lines *l = e->lines;
	Dwarf *d = lg_elf_dwarf(e);
	Dwarf_CU *cu = NULL;
	Dwarf_Die die;
	uint8_t kind;

	if (l || !d)
		return l;
	l = e->lines = lg_calloc(1, sizeof *l);
	while (l && !dwarf_get_units(d, cu, &cu, NULL, &kind, &die, NULL)) {
		if (kind != DW_UT_compile && kind != DW_UT_partial && kind != DW_UT_skeleton)
			continue;
		if (lg_grow(&l->unit, &l->unit_cap, l->n_unit + 1, sizeof *l->unit))
			break;
		l->unit[l->n_unit] = (struct unit){ .die = dwarf_dieoffset(&die) };
		add_ranges(l, &die, (uint32_t)l->n_unit++, &l->range, &l->n, &l->cap);
	}
	if (l && l->n)
		qsort(l->range, l->n, sizeof *l->range, by_start);
	return l;
}

void lg_elf_lines_free(struct lg_elf_lines *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->n_unit; i++)
		lg_free(l->unit[i].fn);
	lg_free(l->unit);
	lg_free(l->range);
	lg_free(l);
}

/* Functions with code below die: at the top, in namespaces and classes. */
static void add_functions(struct lg_elf_lines *l, struct unit *u, Dwarf_Die *die, int depth)
{
	Dwarf_Die child;

	if (depth > DEPTH_MAX || dwarf_child(die, &child))
		return;
	do {
		switch (dwarf_tag(&child)) {
		case DW_TAG_subprogram:
			add_ranges(l, &child, 0, &u->fn, &u->n, &u->cap);
			break;
		case DW_TAG_namespace: case DW_TAG_class_type: case DW_TAG_structure_type:
		case DW_TAG_union_type: case DW_TAG_module:
			add_functions(l, u, &child, depth + 1);
			break;
		default:
			break;
		}
	} while (!dwarf_siblingof(&child, &child));
}

static const char *name_of(Dwarf_Die *die)
{
	Dwarf_Attribute a;
	const char *s = NULL;

	if (dwarf_attr_integrate(die, DW_AT_linkage_name, &a) ||
	    dwarf_attr_integrate(die, DW_AT_MIPS_linkage_name, &a))
		s = dwarf_formstring(&a);
	if (!s && dwarf_attr_integrate(die, DW_AT_name, &a))
		s = dwarf_formstring(&a);
	return s;
}

static uint64_t number(Dwarf_Die *die, unsigned attr)
{
	Dwarf_Attribute a;
	Dwarf_Word v;

	return dwarf_attr(die, attr, &a) && !dwarf_formudata(&a, &v) ? v : 0;
}

static bool holds(struct lg_elf_lines *l, Dwarf_Die *die, uint64_t addr)
{
	Dwarf_Addr base, from, to;
	ptrdiff_t at = 0;

	while ((at = dwarf_ranges(die, at, &base, &from, &to)) > 0 && step(l))
		if (from <= addr && addr < to)
			return true;
	return false;
}

/* From a function down the scopes that hold addr; the inlined ones into chain, outermost first. */
static size_t inlined_at(struct lg_elf_lines *l, Dwarf_Die *function, uint64_t addr,
			 Dwarf_Die chain[DEPTH_MAX])
{
	Dwarf_Die die = *function, child;
	size_t n = 0;

	for (int depth = 0; depth < 4 * DEPTH_MAX && !dwarf_child(&die, &child); depth++) {
		bool found = false;

		do {
			int tag = dwarf_tag(&child);

			if (tag == DW_TAG_inlined_subroutine || tag == DW_TAG_lexical_block ||
			    tag == DW_TAG_try_block || tag == DW_TAG_catch_block)
				found = holds(l, &child, addr);
		} while (!found && step(l) && !dwarf_siblingof(&child, &child));
		if (!found)
			break;
		if (dwarf_tag(&child) == DW_TAG_inlined_subroutine) {
			if (n == DEPTH_MAX)
				break;
			chain[n++] = child;
		}
		die = child;
	}
	return n;
}

size_t lg_elf_source(struct lg_elf *e, uint64_t vaddr, struct lg_source_frame *ret, size_t max)
{
	struct lg_elf_lines *l = lines_of(e);
	const struct range *r = l ? find(l->range, l->n, vaddr) : NULL;
	Dwarf_Die cu, function, chain[DEPTH_MAX];
	struct lg_source_frame at = { 0 };
	Dwarf_Files *files = NULL;
	size_t n_files = 0, n_chain = 0, n = 0;
	struct unit *u;
	Dwarf_Line *line;
	int number_of_line;

	if (!r || !max)
		return 0;
	u = &l->unit[r->unit];
	if (!dwarf_offdie(e->dwarf, u->die, &cu))
		return 0;
	if (!u->tried) {
		u->tried = true;
		add_functions(l, u, &cu, 0);
		if (u->n)
			qsort(u->fn, u->n, sizeof *u->fn, by_start);
	}
	line = dwarf_getsrc_die(&cu, vaddr);
	if (line) {
		at.file = dwarf_linesrc(line, NULL, NULL);
		if (!dwarf_lineno(line, &number_of_line) && number_of_line > 0)
			at.line = (uint32_t)number_of_line;
	}
	r = find(u->fn, u->n, vaddr);
	if (!r || !dwarf_offdie(e->dwarf, r->die, &function)) {
		ret[0] = at;
		return at.file != NULL;
	}
	n_chain = inlined_at(l, &function, vaddr, chain);
	if (n_chain && dwarf_getsrcfiles(&cu, &files, &n_files))
		files = NULL;
	while (n_chain && n + 1 < max) {
		Dwarf_Die *die = &chain[--n_chain];
		uint64_t file = number(die, DW_AT_call_file);

		at.name = name_of(die);
		ret[n++] = at;
		at.file = files && file < n_files ? dwarf_filesrc(files, file, NULL, NULL) : NULL;
		at.line = (uint32_t)number(die, DW_AT_call_line);
	}
	at.name = name_of(&function);
	ret[n++] = at;
	return n;
}
