/* SPDX-License-Identifier: Apache-2.0 */
/*
 * import.h - any readable file becomes a sealed trace. Types are told by content, never by name.
 */
#ifndef LG_IMPORT_IMPORT_H
#define LG_IMPORT_IMPORT_H
#include <stdbool.h>

#include "import/source/head.h"
#include "store/builder.h"

struct lg_importer {
	const char *name, *summary;
	/* 0 = not mine ... 100 = certain; sees the first bytes only. */
	int (*sniff)(const struct lg_head *h);
	/* Read the file into b. Damage after a good start is a diag row, not an error. */
	int (*run)(const char *path, struct lg_builder *b, struct lg_error *err);
	/*
	 * Optional: read a pipe as it comes instead of a copy of it, where streams() says that
	 * this one can be. head: what has been read from fd already.
	 */
	bool (*streams)(const uint8_t *head, size_t n);
	int (*run_stream)(int fd, const uint8_t *head, size_t n, struct lg_builder *b,
			  struct lg_error *err);
	bool beside; /* run() changes nothing but b: it may read another file in another thread meanwhile */
};

/* Facts about an input that survive the merge. */
struct lg_import_info {
	const char *path, *format; /* borrowed from the caller / static */
	char host[65];
	int64_t first, last;       /* ns on the merged clock */
	/* How it was put on the clock of the file `join_to` (lg_join.how); NULL = it is the reference, or
	 * alone. Add join_offset to its own times; they are good to join_error ns; by common steps
	 * or collectives, nine of ten of these are. */
	const char *join_how, *join_to;
	int64_t join_offset, join_error;
	size_t join_matches;       /* collectives or steps that agree */
	bool join_sure;
	char left_out[256];        /* why nothing of it is in the trace; "" = it is there */
	bool other_run;            /* it is a trace, but of another run: left_out says so */
	bool unread;               /* it is none that can be read: left_out says why */
	int32_t rank;              /* the one rank that it is of; -1 = of several, or nobody says */
	uint64_t rows_sample, rows_state, rows_span, rows_counter, lost_events;
};

/*
 * Read n_paths files of one run into one trace; info has n_paths entries, filled in order.
 * "-" is standard input where the format allows streaming.
 */
int lg_import(const char *const *paths, size_t n_paths, struct lg_trace **ret,
	      struct lg_import_info *info, struct lg_error *err) LG_MUST_CHECK;

/*
 * The same for files of which nobody named those with may_leave_out (NULL = all were named): if such a one
 * turns out to be no trace, its info says so, and that is no failure unless it holds for every file.
 */
int lg_import_found(const char *const *paths, size_t n_paths, const bool *may_leave_out,
		    struct lg_trace **ret, struct lg_import_info *info, struct lg_error *err) LG_MUST_CHECK;

/* Where packed files are unpacked whose readers go back and forth: a folder; NULL = in memory. Set before the
 * first import. */
extern const char *lg_import_scratch;
/* The most bytes of one input that are kept in memory as a file: of a pipe, or unpacked. As above. */
extern uint64_t lg_import_room;

/* Files of ranks that were started anew meanwhile are of another run, also within a day: they are left out.
 * Otherwise they are one trace, with a row of diag. Set before the first import. */
extern bool lg_import_parts_runs;
/* Told before each file: its place in paths, of how many. NULL = nobody. Set before the first import. */
extern void (*lg_import_reads)(size_t i, size_t n);

/* For a drawing: arguments that no analysis reads are kept, and so are arrows from operator to operator.
 * Set before the first import. */
extern bool lg_import_keeps_all;

/* Is this a folder that is one input, not one of inputs? perf record --threads writes such. */
bool lg_import_is_folder(const char *path);
/* Is this a regular file, or such a folder, of a kind that can be read? By its first bytes, which of a text
 * often leave it open: any text can be a job's log, any JSON a trace. */
enum lg_import_known { LG_IMPORT_NO, LG_IMPORT_PERHAPS, LG_IMPORT_YES };
enum lg_import_known lg_import_knows(const char *path);

/*
 * Reads what a later lg_import() may ask the kernel for and a confined process is refused: perf's own clock
 * (perf_event_open), by which a perf.data without a clock id is told from one of another boot. Takes a tenth
 * of a millisecond or so, and is left out where none of the files can be one, by their first bytes.
 */
void lg_import_before_confined(const char *const *paths, size_t n);

#endif /* LG_IMPORT_IMPORT_H */
