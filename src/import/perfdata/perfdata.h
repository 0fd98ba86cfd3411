/* SPDX-License-Identifier: Apache-2.0 */
/* perfdata.h - files of perf record (and simpleperf): file mode, pipe mode, both byte orders. */
#ifndef LG_IMPORT_PERFDATA_PERFDATA_H
#define LG_IMPORT_PERFDATA_PERFDATA_H
#include "import/import.h"

extern const struct lg_importer lg_import_perfdata;

/* A whole file in memory, for tests and fuzzing: nothing else of the machine is looked at. */
int lg_perfdata_read_memory(const uint8_t *p, size_t n, struct lg_builder *b,
			    struct lg_error *err) LG_MUST_CHECK;

#endif /* LG_IMPORT_PERFDATA_PERFDATA_H */
