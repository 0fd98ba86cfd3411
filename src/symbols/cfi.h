/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cfi.h - one section of call frame information (DWARF 5, 6.4; LSB 5.0 core, 10.6 for .eh_frame).
 *
 * Read here and not by libdw: libdw sizes its table of registers by the largest number that a
 * program names, 2 GB for eight damaged bytes (elfutils, libdw/cfi.c, enough_registers()). Here a
 * look-up touches one entry and a few fixed tables, whatever the bytes say.
 */
#ifndef LG_SYMBOLS_CFI_H
#define LG_SYMBOLS_CFI_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "symbols/frame_rules.h"

struct lg_cfi_range {
	uint64_t from, to;
	size_t fde;
};

struct lg_cfi {
	const uint8_t *p; /* NULL = the file has no such section */
	size_t n;
	uint64_t vaddr;   /* of p[0] */
	uint8_t word;     /* bytes of an address: 4 or 8 */
	bool eh;          /* .eh_frame, else .debug_frame */
	/* the sorted table of .eh_frame_hdr: pairs of i32 (function, entry) from table_base; NULL = none */
	const uint8_t *table;
	size_t n_table;
	uint64_t table_base;
	/* made when first needed, where there is no such table */
	bool indexed;
	struct lg_cfi_range *range;
	size_t n_range, range_cap;
};

struct lg_cfi_cur {
	const uint8_t *p, *end;
	bool bad;
};

struct lg_cfi_cie {
	uint64_t code_align;
	int64_t data_align;
	uint64_t ra_reg;
	uint8_t pointers; /* DW_EH_PE_* of addresses */
	bool sized, signal;
	struct lg_cfi_cur program;
};

struct lg_cfi_fde {
	struct lg_cfi_cie cie;
	uint64_t from, to;
	struct lg_cfi_cur program;
};

/* Use the table of .eh_frame_hdr (n bytes at vaddr), if it is one of ours; where .eh_frame is, by it. */
bool lg_cfi_header(struct lg_cfi *c, const uint8_t *hdr, size_t n, uint64_t vaddr, uint64_t *ret_frames);
/* 1 = found, 0 = nothing covers vaddr, or LG_E_NOMEM. */
int lg_cfi_find(struct lg_cfi *c, uint64_t vaddr, struct lg_cfi_fde *ret) LG_MUST_CHECK;
/* cfi_run.c: what the programs of *f say at vaddr; ret->found stays false where they say nonsense. */
int lg_cfi_run(const struct lg_cfi *c, const struct lg_cfi_fde *f, uint64_t vaddr,
	       enum lg_machine machine, struct lg_exprs *x, struct lg_frame_rules *ret) LG_MUST_CHECK;
void lg_cfi_done(struct lg_cfi *c);

/* An address encoded as enc at the cursor; pc: vaddr of the section. */
uint64_t lg_cfi_pointer(const struct lg_cfi *c, struct lg_cfi_cur *k, uint8_t enc);

static inline uint64_t lg_cfi_uint(struct lg_cfi_cur *k, unsigned size)
{
	uint64_t v = 0;

	if ((size_t)(k->end - k->p) < size) {
		k->bad = true;
		k->p = k->end;
		return 0;
	}
	for (unsigned i = size; i--;)
		v = v << 8 | k->p[i];
	k->p += size;
	return v;
}

static inline int64_t lg_cfi_int(struct lg_cfi_cur *k, unsigned size)
{
	unsigned up = 64 - 8 * size;

	return (int64_t)(lg_cfi_uint(k, size) << up) >> up;
}

static inline uint64_t lg_cfi_leb(struct lg_cfi_cur *k, bool is_signed)
{
	uint64_t v = 0;
	unsigned shift = 0;
	uint8_t b;

	do {
		b = (uint8_t)lg_cfi_uint(k, 1);
		if (shift < 64)
			v |= (uint64_t)(b & 0x7f) << shift;
		shift += 7;
	} while (b & 0x80);
	if (is_signed && b & 0x40 && shift < 64)
		v |= UINT64_MAX << shift;
	return v;
}

static inline uint64_t lg_cfi_uleb(struct lg_cfi_cur *k)
{
	return lg_cfi_leb(k, false);
}

static inline int64_t lg_cfi_sleb(struct lg_cfi_cur *k)
{
	return (int64_t)lg_cfi_leb(k, true);
}

#endif /* LG_SYMBOLS_CFI_H */
