/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cfi.c - the entries of a section of call frame information, and which one covers an address.
 *
 * Linkers sort .eh_frame into .eh_frame_hdr; what they left unsorted (.debug_frame) is walked
 * once and sorted here. Little-endian only, like the machines whose stacks are unwound.
 */
#include "symbols/cfi.h"

#include <dwarf.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

struct entry {
	struct lg_cfi_cur body; /* behind the id */
	size_t next, cie;       /* of the section; cie: an entry's own if it is one */
	bool is_cie;
};

static uint64_t as_address(const struct lg_cfi *c, uint64_t v)
{
	return c->word == 4 ? (uint32_t)v : v;
}

/*
 * Bases other than the place itself (of text, of the GOT) and aligned or indirect pointers are not
 * written into tables of frames by any linker of our machines: bad, so that nothing is guessed.
 */
uint64_t lg_cfi_pointer(const struct lg_cfi *c, struct lg_cfi_cur *k, uint8_t enc)
{
	uint64_t base = 0, v;

	if ((enc & 0xf0) == DW_EH_PE_pcrel)
		base = c->vaddr + (uint64_t)(k->p - c->p);
	else if (enc & 0xf0)
		k->bad = true;
	switch (enc & 0x0f) {
	case DW_EH_PE_absptr: v = lg_cfi_uint(k, c->word); break;
	case DW_EH_PE_uleb128: v = lg_cfi_uleb(k); break;
	case DW_EH_PE_udata2: v = lg_cfi_uint(k, 2); break;
	case DW_EH_PE_udata4: v = lg_cfi_uint(k, 4); break;
	case DW_EH_PE_udata8: v = lg_cfi_uint(k, 8); break;
	case DW_EH_PE_sleb128: v = (uint64_t)lg_cfi_sleb(k); break;
	case DW_EH_PE_sdata2: v = (uint64_t)lg_cfi_int(k, 2); break;
	case DW_EH_PE_sdata4: v = (uint64_t)lg_cfi_int(k, 4); break;
	case DW_EH_PE_sdata8: v = (uint64_t)lg_cfi_int(k, 8); break;
	default:
		k->bad = true;
		v = 0;
	}
	return as_address(c, base + v);
}

/* False where nothing follows. A body that says nothing is bad. */
static bool entry_at(const struct lg_cfi *c, size_t at, struct entry *ret)
{
	struct lg_cfi_cur k = { .p = c->p + at, .end = c->p + c->n };
	unsigned size = 4;
	uint64_t n, id, self;
	size_t id_at;

	*ret = (struct entry){ .body.bad = true };
	if (at >= c->n || c->n - at < 4)
		return false;
	n = lg_cfi_uint(&k, 4);
	if (n == UINT32_MAX) {
		n = lg_cfi_uint(&k, 8);
		size = c->eh ? 4 : 8; /* the id of .eh_frame has four bytes in any case (LSB) */
	}
	if (k.bad || n > (uint64_t)(k.end - k.p))
		return false;
	ret->next = (size_t)(k.p - c->p) + (size_t)n;
	k.end = k.p + n;
	/* An empty one ends a list; linkers put several lists behind each other. */
	if (n < size)
		return true;
	id_at = (size_t)(k.p - c->p);
	id = lg_cfi_uint(&k, size);
	self = c->eh ? 0 : size == 4 ? UINT32_MAX : UINT64_MAX;
	ret->body = k;
	ret->is_cie = id == self;
	ret->cie = ret->is_cie ? at : c->eh ? id_at - (size_t)id : (size_t)id;
	/* .eh_frame counts back from the id. */
	if (!ret->is_cie && c->eh && id > id_at)
		ret->body.bad = true;
	return true;
}

/* What "z..." says of the entries that use it; letters that are not known end the list, as in libgcc. */
static void augmentation(const struct lg_cfi *c, const char *letters, struct lg_cfi_cur data,
			 struct lg_cfi_cie *ret)
{
	for (; *letters; letters++) {
		switch (*letters) {
		case 'R':
			ret->pointers = (uint8_t)lg_cfi_uint(&data, 1);
			break;
		case 'P': {
			uint8_t enc = (uint8_t)lg_cfi_uint(&data, 1);

			data.bad = false;
			(void)lg_cfi_pointer(c, &data, enc & 0x0f); /* the personality itself is nobody's */
			break;
		}
		case 'L':
			(void)lg_cfi_uint(&data, 1);
			break;
		case 'S':
			ret->signal = true;
			break;
		case 'B': /* AArch64: return addresses are signed with the B key */
		case 'G': /* AArch64: tagged stack memory */
			break;
		default:
			return;
		}
		if (data.bad)
			return;
	}
}

static bool cie_of(const struct lg_cfi *c, size_t at, struct lg_cfi_cie *ret)
{
	struct entry e;
	struct lg_cfi_cur *k = &e.body;
	const char *letters;
	uint8_t version;
	size_t room, n;

	*ret = (struct lg_cfi_cie){ .pointers = DW_EH_PE_absptr };
	if (!entry_at(c, at, &e) || e.body.bad || !e.is_cie)
		return false;
	version = (uint8_t)lg_cfi_uint(k, 1);
	letters = (const char *)k->p;
	room = (size_t)(k->end - k->p);
	n = strnlen(letters, room);
	/* Letters without a "z" have data whose size only their compiler knew (gcc 2's "eh"). */
	if (n == room || (n && *letters != 'z') || (version != 1 && version != 3 && version != 4))
		return false;
	k->p += n + 1;
	if (version == 4 && (lg_cfi_uint(k, 1) != c->word || lg_cfi_uint(k, 1)))
		return false; /* addresses of another size, or in segments */
	ret->code_align = lg_cfi_uleb(k);
	ret->data_align = lg_cfi_sleb(k);
	ret->ra_reg = version == 1 ? lg_cfi_uint(k, 1) : lg_cfi_uleb(k);
	if (n) {
		uint64_t size = lg_cfi_uleb(k);

		if (k->bad || size > (uint64_t)(k->end - k->p))
			return false;
		augmentation(c, letters + 1, (struct lg_cfi_cur){ .p = k->p, .end = k->p + size }, ret);
		k->p += size;
		ret->sized = true;
	}
	ret->program = *k;
	return !k->bad;
}

/* Range and program of the entry e under *cie. */
static bool fde_of(const struct lg_cfi *c, const struct entry *e, const struct lg_cfi_cie *cie,
		   struct lg_cfi_fde *ret)
{
	struct lg_cfi_cur k = e->body;
	uint64_t n;

	ret->cie = *cie;
	ret->from = lg_cfi_pointer(c, &k, cie->pointers);
	n = lg_cfi_pointer(c, &k, cie->pointers & 0x0f);
	if (k.bad || !n || n > UINT64_MAX - ret->from)
		return false;
	ret->to = ret->from + n;
	if (cie->sized) {
		uint64_t size = lg_cfi_uleb(&k);

		if (k.bad || size > (uint64_t)(k.end - k.p))
			return false;
		k.p += size;
	}
	ret->program = k;
	return true;
}

static bool fde_at(const struct lg_cfi *c, size_t at, struct lg_cfi_fde *ret)
{
	struct lg_cfi_cie cie;
	struct entry e;

	return entry_at(c, at, &e) && !e.body.bad && !e.is_cie && cie_of(c, e.cie, &cie) &&
	       fde_of(c, &e, &cie, ret);
}

static int by_from(const void *a, const void *b)
{
	const struct lg_cfi_range *x = a, *y = b;

	if (x->from != y->from)
		return x->from < y->from ? -1 : 1;
	return x->to < y->to ? -1 : x->to > y->to;
}

static int make_index(struct lg_cfi *c)
{
	struct lg_cfi_cie cie;
	size_t cie_at = SIZE_MAX;
	bool has_cie = false;
	struct entry e;

	for (size_t at = 0; entry_at(c, at, &e); at = e.next) {
		struct lg_cfi_fde f;

		if (e.body.bad || e.is_cie)
			continue;
		if (e.cie != cie_at) {
			cie_at = e.cie;
			has_cie = cie_of(c, cie_at, &cie);
		}
		/* What the linker threw away stays behind with address 0. */
		if (!has_cie || !fde_of(c, &e, &cie, &f) || !f.from)
			continue;
		if (lg_grow(&c->range, &c->range_cap, c->n_range + 1, sizeof *c->range))
			return LG_E_NOMEM;
		c->range[c->n_range++] = (struct lg_cfi_range){ f.from, f.to, at };
	}
	if (c->n_range)
		qsort(c->range, c->n_range, sizeof *c->range, by_from);
	c->indexed = true;
	return 0;
}

/* struct { i32 function, entry } both from the start of the header */
static uint64_t table_at(const struct lg_cfi *c, size_t i, unsigned column)
{
	struct lg_cfi_cur k = { .p = c->table + 8 * i + (size_t)4 * column,
				.end = c->table + 8 * c->n_table };

	return as_address(c, c->table_base + (uint64_t)lg_cfi_int(&k, 4));
}

static bool find_in_table(const struct lg_cfi *c, uint64_t vaddr, size_t *ret)
{
	size_t lo = 0, hi = c->n_table;
	uint64_t at;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (table_at(c, mid, 0) <= vaddr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo)
		return false;
	at = table_at(c, lo - 1, 1);
	if (at < c->vaddr || at - c->vaddr >= c->n)
		return false;
	*ret = (size_t)(at - c->vaddr);
	return true;
}

static bool find_in_index(const struct lg_cfi *c, uint64_t vaddr, size_t *ret)
{
	size_t lo = 0, hi = c->n_range;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (c->range[mid].from <= vaddr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo || vaddr >= c->range[lo - 1].to)
		return false;
	*ret = c->range[lo - 1].fde;
	return true;
}

int lg_cfi_find(struct lg_cfi *c, uint64_t vaddr, struct lg_cfi_fde *ret)
{
	size_t at;
	int rc;

	if (!c->p)
		return 0;
	if (c->table)
		return find_in_table(c, vaddr, &at) && fde_at(c, at, ret) && vaddr >= ret->from &&
		       vaddr < ret->to;
	rc = c->indexed ? 0 : make_index(c);
	if (rc)
		return rc;
	return find_in_index(c, vaddr, &at) && fde_at(c, at, ret);
}

bool lg_cfi_header(struct lg_cfi *c, const uint8_t *hdr, size_t n, uint64_t vaddr, uint64_t *ret_frames)
{
	struct lg_cfi place = { .p = hdr, .n = n, .vaddr = vaddr, .word = c->word };
	struct lg_cfi_cur k = { .p = hdr, .end = hdr + n };
	uint8_t version = (uint8_t)lg_cfi_uint(&k, 1), frames = (uint8_t)lg_cfi_uint(&k, 1);
	uint8_t count = (uint8_t)lg_cfi_uint(&k, 1), table = (uint8_t)lg_cfi_uint(&k, 1);
	uint64_t entries;

	*ret_frames = k.bad || version != 1 ? 0 : lg_cfi_pointer(&place, &k, frames);
	if (k.bad || version != 1)
		return false;
	/* What every linker writes; anything else is sorted here again. */
	if (count == DW_EH_PE_omit || table != (DW_EH_PE_datarel | DW_EH_PE_sdata4))
		return true;
	entries = lg_cfi_pointer(&place, &k, count);
	if (k.bad || !entries || entries > (uint64_t)(k.end - k.p) / 8)
		return true;
	c->table = k.p;
	c->n_table = (size_t)entries;
	c->table_base = vaddr;
	return true;
}

void lg_cfi_done(struct lg_cfi *c)
{
	lg_free(c->range);
	*c = (struct lg_cfi){ 0 };
}
