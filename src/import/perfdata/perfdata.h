/* SPDX-License-Identifier: Apache-2.0 */
/* perfdata.h - files of perf record (and simpleperf): file mode, pipe mode, folders, both byte orders. */
#ifndef LG_IMPORT_PERFDATA_PERFDATA_H
#define LG_IMPORT_PERFDATA_PERFDATA_H
#include "import/import.h"

extern const struct lg_importer lg_import_perfdata;

/* Is this folder one recording (perf record --threads, --kcore)? ret: the path of the file in it that is to
 * be read in its place. */
bool lg_perfdata_is_folder(const char *folder, char *ret, size_t size);

/* Finds out how far perf's own clock is ahead of CLOCK_MONOTONIC: see lg_import_before_confined(). */
void lg_perfdata_clock(void);

/* A whole file in memory, for tests and fuzzing: nothing else of the machine is looked at. */
int lg_perfdata_read_memory(const uint8_t *p, size_t n, struct lg_builder *b,
			    struct lg_error *err) LG_MUST_CHECK;

/* The same for the files of a folder, n > 0: `data`, then data.0 and on. */
struct lg_perfdata_part {
	const uint8_t *p;
	size_t n;
};
int lg_perfdata_read_parts(const struct lg_perfdata_part *part, size_t n, struct lg_builder *b,
			   struct lg_error *err) LG_MUST_CHECK;

#endif /* LG_IMPORT_PERFDATA_PERFDATA_H */
