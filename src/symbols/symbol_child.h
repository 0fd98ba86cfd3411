/* SPDX-License-Identifier: Apache-2.0 */
/*
 * symbol_child.h - the process that reads what other users wrote: ELF files, perf maps, mangled names.
 *
 * It has no privileges and opens nothing: descriptors come over a socket, names go back (symbol_wire.h). When
 * it dies, the file that it read has no names, and the next file finds a new one.
 *
 *   recorder --fork--> keeper --fork--> reader, again and again
 *
 * Both have a user of their own, so that no other user's process may signal them.
 *
 * The keeper is forked before the recorder has anything to hide: no events, no map of the kernel, nothing of
 * other processes. It only waits for its reader and forks the next. (A fork of the recorder itself, later,
 * would carry all that along, and the limits of memory would count it.) A reader sees files of one owner.
 */
#ifndef LG_SYMBOLS_SYMBOL_CHILD_H
#define LG_SYMBOLS_SYMBOL_CHILD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "symbols/symbol_answer.h"

struct lg_symbol_child;

struct lg_symbol_job {
	/* LG_ASK_ELF: pcs are offsets in the file, as linked into frames; LG_ASK_PERF_MAP, LG_ASK_PYTHON */
	enum lg_ask_kind kind;
	int fd;              /* stays the caller's */
	uid_t owner;         /* of the file */
	const uint64_t *pcs;
	size_t n;            /* at most LG_JOB_PCS_MAX */
	uint32_t budget_ms;
	size_t name_bytes;   /* of names that are wanted at most */
	const char *build_id; /* refuse a file that has another; "" = any */
};

/* How a job ended. */
struct lg_symbol_end {
	bool no_file, other_build; /* not an ELF file, or too large; replaced since */
	bool cut;                  /* name_bytes were not enough */
	int signal;                /* that ended the reader; 0 = none */
	bool late, stopped;        /* it did not answer in time; it did not even run */
	bool gone;                 /* there is no child any more */
};

/* Before the process has threads. LG_E_UNSUPPORTED where it could not be confined: then there is none. */
int lg_symbol_child_new(struct lg_symbol_child **ret, struct lg_error *err) LG_MUST_CHECK;
/* The child is gone when it returns. NULL is fine. */
void lg_symbol_child_free(struct lg_symbol_child *c);
/*
 * Before a fork of the recorder that will ask instead of it: what that leaves behind, whole or half asked, is
 * nobody's answer later, and its reader is not the next one's.
 */
void lg_symbol_child_lend(struct lg_symbol_child *c);
/* The GNU build id of an ELF file; false: it has none, or could not be read in time. */
bool lg_symbol_child_build_id(struct lg_symbol_child *c, int fd, uid_t owner, char ret_hex[LG_BUILD_ID_HEX]);
/* What LG_EXPORT_NAMES are in an ELF file; false: it could not be read in time. */
bool lg_symbol_child_exports(struct lg_symbol_child *c, int fd, uid_t owner, struct lg_say_exports *ret);
/* Call named for what has a name, in order. */
void lg_symbol_child_names(struct lg_symbol_child *c, const struct lg_symbol_job *job, lg_named_fn *named,
			   void *self, struct lg_symbol_end *ret);

/* symbol_reader.c: be the keeper. Says DONE when it is confined, or with a status why it is not. */
void lg_symbol_keeper(int sock, pid_t recorder) __attribute__((noreturn));

#endif /* LG_SYMBOLS_SYMBOL_CHILD_H */
