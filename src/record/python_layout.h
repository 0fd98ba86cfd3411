/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python_layout.h - where each version of CPython keeps what is read of it, in bytes, x86-64.
 *
 * From the headers of each version: Include/internal/pycore_runtime.h, pycore_interp.h, pycore_frame.h,
 * Include/cpython/{pystate,code,frameobject}.h. Bugfix releases do not change them. Builds without the GIL
 * have other ones and are refused; a layout that is not the build's is noticed, because no thread state names
 * the thread that it was found by (python_innermost()).
 */
#ifndef LG_RECORD_PYTHON_LAYOUT_H
#define LG_RECORD_PYTHON_LAYOUT_H
#include <stdbool.h>
#include <stdint.h>

#include "record/bpf/records.h"

enum { LG_PYTHON_FIRST = 8, LG_PYTHON_LAST = 14 };

struct lg_python_layout {
	uint16_t tls_key;      /* in _PyRuntime: the pthread key of a thread's state */
	uint16_t interpreter;  /* in _PyRuntime: the first interpreter */
	uint16_t first_thread; /* in an interpreter: the state of its latest thread */
	uint16_t gil;          /* the lock in _PyRuntime, or in an interpreter what points to it */
	bool gil_of_interpreter;
	struct lg_bpf_python_layout walk; /* .tls is the process's own */
	struct {
		uint16_t line, file, name, table, units; /* name: the qualified one since 3.11 */
	} code;
};

/* Of 3.minor; NULL = not known. */
const struct lg_python_layout *lg_python_layout(unsigned minor);

#endif /* LG_RECORD_PYTHON_LAYOUT_H */
