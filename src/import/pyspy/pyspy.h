/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyspy.h - py-spy dump (text and --json), speedscope files (py-spy and others), py-spy chrometrace.
 *
 * All become sample rows. A dump is one sample a thread, weight 1, event "py-spy dump", and a mark
 * "pyspy.thread" (value 0 idle, 1 active, 2 holds the GIL; text: the innermost frame). Timed profiles
 * (speedscope with a time unit, chrometrace) have the weight in ns, event "py-spy".
 */
#ifndef LG_IMPORT_PYSPY_PYSPY_H
#define LG_IMPORT_PYSPY_PYSPY_H
#include "import/import.h"

extern const struct lg_importer lg_import_pyspy_dump, lg_import_speedscope, lg_import_pyspy_trace;

/* pyspy_json.c reads the JSON of `py-spy dump --json`. */
int lg_pyspy_dump_json(const char *path, struct lg_builder *b, struct lg_error *err);
/* Mark and sample of one thread of a dump; innermost frame last in stack. n counts the threads. */
void lg_pyspy_thread(struct lg_builder *b, lg_thr thr, lg_stk stack, int state, uint64_t n);
/* A thread by the id that a dump prints (0 or a pthread address = not the kernel's number). */
lg_thr lg_pyspy_thread_get(struct lg_builder *b, int32_t pid, uint64_t id, const char *name);

#endif /* LG_IMPORT_PYSPY_PYSPY_H */
