/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python_attach.h - have a CPython that runs read and run a file, by its own remote interface.
 *
 * Since 3.14 (PEP 768; Python/remote_debugging.c): who may write its memory leaves a path beside the state
 * of its main thread, which runs that file when it comes to its next line of Python. Nothing is stopped or
 * traced.
 */
#ifndef LG_RECORD_PYTHON_ATTACH_H
#define LG_RECORD_PYTHON_ATTACH_H
#include <stdint.h>

#include "base/error.h"
#include "record/far_memory.h"

/*
 * runtime: where its _PyRuntime is. script: an absolute path, as both see it. 0: it was told.
 * LG_E_UNSUPPORTED: an older version, or one that was told not to listen; LG_E_PERM: its files are not ours,
 * or its memory.
 */
int lg_python_attach(struct lg_far *far, int32_t pid, uint64_t runtime, const char *script,
		     struct lg_error *err) LG_MUST_CHECK;

#endif /* LG_RECORD_PYTHON_ATTACH_H */
