/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pythons.h - the CPython processes of the job: where they keep their frames, and what those are called.
 *
 * The BPF programs read addresses of code objects in the thread's own context (bpf/python.bpf.h). Here each
 * object is copied once out of the process, with few process_vm_readv() calls when it is first seen, and not
 * looked into: the copies are a file that the process which reads symbols gets at the end
 * (symbols/python_code.h). One thread.
 */
#ifndef LG_RECORD_PYTHONS_H
#define LG_RECORD_PYTHONS_H
#include <stdbool.h>
#include <sys/types.h>

#include "record/bpf/records.h"
#include "store/builder.h"
#include "symbols/symbol_wire.h"

struct lg_pythons;
struct lg_symbolizer;

struct lg_python_range {
	uint64_t lo, hi; /* of the function that runs Python; both 0: not known */
};

/* forks: the recorder will be forked while it records, see below. NULL without memory. */
struct lg_pythons *lg_pythons_new(struct lg_builder *b, bool forks);
/*
 * Around a fork whose child writes what there is (session.c): lend in the parent before it; apart in the
 * child, which from then on shares with the parent neither a reader of memory nor a file.
 */
void lg_pythons_lend(struct lg_pythons *p);
void lg_pythons_apart(struct lg_pythons *p);
void lg_pythons_free(struct lg_pythons *p);
/*
 * pid has mapped an interpreter: name of the file, base (its mapping's start less its offset in the file),
 * what it exports, whose the process is. False, with the reason said once: its frames cannot be read.
 */
bool lg_pythons_add(struct lg_pythons *p, int32_t pid, const char *name, uint64_t base,
		    const struct lg_say_exports *exports, uid_t owner);
/* Have it run a file (python_attach.h), where it is and what it exports as above. */
int lg_pythons_attach(struct lg_pythons *p, int32_t pid, uint64_t base, const struct lg_say_exports *exports,
		      const char *script, struct lg_error *err) LG_MUST_CHECK;
void lg_pythons_fork(struct lg_pythons *p, int64_t ts, int32_t parent, int32_t pid);
/* Told late, pid may have been added since as what it runs now: then it stays. */
void lg_pythons_exec(struct lg_pythons *p, int64_t ts, int32_t pid);
/* NULL = pid is none that is known. */
const struct lg_bpf_python_layout *lg_pythons_layout(struct lg_pythons *p, int32_t pid);
/* Address of its lock, the main interpreter's; 0 = not known. */
uint64_t lg_pythons_gil(struct lg_pythons *p, int32_t pid);
struct lg_python_range lg_pythons_eval(struct lg_pythons *p, int32_t pid);
/*
 * Frames as the programs tell them (LG_BPF_PYTHON_*), at most LG_BPF_PYTHON_FRAMES, of one stack; 0 = its
 * code object could not be read any more, or it is a mark and no frame.
 */
void lg_pythons_frames(struct lg_pythons *p, int32_t pid, const uint64_t *told, size_t n, int64_t now,
		       lg_frm *ret);
/* Frames told for a thread's next CPU sample, at most LG_BPF_PYTHON_FRAMES; taken by it, if it is the one.
 * gil: LG_SAMPLE_GIL, _NO_GIL, 0. */
void lg_pythons_sample(struct lg_pythons *p, int32_t tid, int64_t ts, const uint64_t *told, size_t n,
		       uint8_t gil);
size_t lg_pythons_take(struct lg_pythons *p, int32_t tid, int64_t ts, uint64_t *told, uint8_t *ret_gil);
/*
 * Where a thread that has not run since pid was found sleeps: no program saw it there. Asked at the end, of
 * one process's threads one after the other; at most LG_BPF_PYTHON_FRAMES. 0: it runs no Python, or is not
 * known.
 */
size_t lg_pythons_asleep(struct lg_pythons *p, int32_t pid, int32_t tid, uint64_t *told);
/* Hand the copies over; says what was not read. */
int lg_pythons_resolve(struct lg_pythons *p, struct lg_symbolizer *s) LG_MUST_CHECK;

#endif /* LG_RECORD_PYTHONS_H */
