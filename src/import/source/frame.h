/* SPDX-License-Identifier: Apache-2.0 */
/* frame.h - frames and threads as text profiles print them. */
#ifndef LG_IMPORT_SOURCE_FRAME_H
#define LG_IMPORT_SOURCE_FRAME_H
#include "store/builder.h"

/*
 * One frame of a text: "forward (model.py:12)" and "<module> (a.py)" are Python's, "poll (libc.so.6)"
 * native, "do_syscall_64_[k]" kernel, "foo_[j]" and "foo_[i]" jitted and inlined (FlameGraph's
 * suffixes); any other text is a function of unknown kind.
 */
lg_frm lg_frame_from_text(struct lg_builder *b, const char *p, size_t n);
lg_frm lg_frame_python(struct lg_builder *b, const char *name, const char *file, uint32_t line);
/* A process that the file does not number: pid -1. rank -1 = none. */
lg_prc lg_process_unnumbered(struct lg_builder *b, const char *comm, int32_t rank, int32_t world);
/* A thread of p that has no number: tid -1. */
lg_thr lg_thread_unnumbered(struct lg_builder *b, lg_prc p, const char *name, int is_main);

#endif /* LG_IMPORT_SOURCE_FRAME_H */
