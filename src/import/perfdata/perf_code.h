/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_code.h - addresses of an imported recording to frames of the trace.
 *
 * Where this machine has the very code that was recorded (same build id; without one, same host; where the
 * file says neither, what perf_this_machine.h proves),
 * an address becomes its function when it is first seen, and all addresses of one function
 * become one frame whose pc is an address in it: raw addresses make ten times as many stacks.
 * Everything else stays file + offset.
 */
#ifndef LG_IMPORT_PERFDATA_PERF_CODE_H
#define LG_IMPORT_PERFDATA_PERF_CODE_H
#include "import/perfdata/perf_header.h"
#include "import/perfdata/perf_this_machine.h"

struct lg_pd_dso;
struct lg_pd_kcore;
struct lg_kallsyms;
struct lg_unwind_map;

struct lg_pd_code {
	struct lg_builder *b;
	const struct lg_pd_header *h;
	struct lg_pd_spaces spaces;
	struct lg_pd_here home;   /* used where the file does not say where it was made */
	struct lg_pd_dso *dso;
	size_t n_dso, dso_cap;
	struct lg_map dso_by_key;    /* name and build id -> index + 1 */
	struct lg_map frame_at;      /* dso and offset -> frame */
	struct lg_map frame_of_name; /* function's symbol -> frame */
	struct lg_map kernel_at;     /* kernel address -> frame */
	/*
	 * The kernel's functions, each NULL where there is none: perf's copy, of which the core alone holds;
	 * all of them, the recording's own or this machine's; programs that the recording tells of.
	 */
	struct lg_kallsyms *core, *kallsyms, *programs;
	struct lg_pd_kcore *kcore;   /* the recorded kernel's own table, beside the file; NULL = none */
	uint64_t kernel_end, kernel_ref; /* of the record for the kernel's text */
	char kernel_ref_name[32];    /* symbol that kernel_ref is the address of */
	int64_t kernel_shift;        /* to add to get this boot's address: kallsyms */
	int64_t core_shift;          /* or that of the boot that perf copied */
	uint32_t kernel_version;     /* changes with the kernel's code */
	bool closed;                 /* look at nothing outside of the file (tests, fuzzing) */
	bool kernel_tried, same_host, same_kernel, core_only;
	bool live_due;               /* kallsyms can be had from this machine, which takes tens of ms */
	lg_frm unknown;              /* what lies in no mapping: a broken chain's garbage, mostly */
	lg_str s_kernel, s_guest, s_hypervisor, s_unknown, kernel_build_id;
	size_t frames, unnamed;
	size_t strange_maps;         /* files of JITs that somebody else wrote */
	/* --inline and --lines (symbols/options.h): frames of code inlined at an address. */
	lg_frm *inlined;             /* outermost first, lists one after the other */
	size_t n_inlined, inlined_cap;
	struct lg_map inlined_at;    /* dso and offset -> first << 8 | number of them */
	const lg_frm *here;          /* of the last lg_pd_code_frame() */
	size_t n_here;
	/* jitdump: code comes and goes without a record of its own. */
	uint64_t now;                /* time of the sample that is looked at */
	uint64_t reuse_at;           /* the next time that an address becomes another function */
};

enum lg_pd_context { LG_PD_USER, LG_PD_KERNEL, LG_PD_GUEST_KERNEL, LG_PD_GUEST_USER, LG_PD_HYPERVISOR };

int lg_pd_code_init(struct lg_pd_code *c, struct lg_builder *b, const struct lg_pd_header *h,
		    struct lg_error *err) LG_MUST_CHECK;
void lg_pd_code_done(struct lg_pd_code *c);
/* The kernel's own mapping ("[kernel.kallsyms]_stext") or a module's. */
void lg_pd_code_kernel_map(struct lg_pd_code *c, uint64_t start, uint64_t len, uint64_t pgoff,
			   const char *name, lg_str build_id);
/* Number of the file a record names, for lg_pd_map. */
uint32_t lg_pd_code_inode(struct lg_pd_code *c, const struct lg_pd_inode *f);
/* Kernel code that came (len > 0) or went at run time. */
void lg_pd_code_ksymbol(struct lg_pd_code *c, uint64_t addr, uint64_t len, const char *name);
/* The frame at addr; space: index in spaces, for user addresses. 0 when memory is exhausted. */
lg_frm lg_pd_code_frame(struct lg_pd_code *c, enum lg_pd_context ctx, uint32_t space, uint64_t addr);
/*
 * A number for what lies at a user's address: its file and place there, the same for every process that
 * has mapped it. 0: it cannot be said, or not yet.
 */
uint64_t lg_pd_code_place(const struct lg_pd_code *c, uint32_t space, uint64_t addr);
/* Fetch what lg_pd_code_frame() will look at for the address that has this place. */
void lg_pd_code_ahead(const struct lg_pd_code *c, uint64_t place);
/* Some JIT used addresses again before now: forget what was known of them. */
void lg_pd_code_reused(struct lg_pd_code *c);
/* What is mapped at addr, for unwinding (a lg_unwind_find_fn has the space in its self). */
bool lg_pd_code_map(struct lg_pd_code *c, uint32_t space, uint64_t addr, struct lg_unwind_map *ret);

#endif /* LG_IMPORT_PERFDATA_PERF_CODE_H */
