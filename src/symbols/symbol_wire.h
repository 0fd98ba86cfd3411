/* SPDX-License-Identifier: Apache-2.0 */
/*
 * symbol_wire.h - what the recorder and its process that reads symbols say to each other.
 *
 * One packet a message over a socket pair (SOCK_SEQPACKET): a head, then what the kind says.
 *
 *   ASK_BUILD_ID  + the file     -> OPENED
 *   ASK_EXPORTS   + the file     -> EXPORTS
 *   ASK_ELF, ASK_PERF_MAP, ASK_PYTHON + file, then ASK_PCS until n addresses are there
 *                                -> OPENED, NAMES ..., DONE
 *   ASK_LEAVE                    the next file is another user's: an unused process takes over
 *   ... -> WANT_DEBUG, answered by ASK_DEBUG with a file or without one
 *   READER, from the parent of the process that reads from now on: its pid
 *   ... -> DIED, from the parent of the process that read: nothing more comes of that file
 *
 * seq is the number of the question. Both run the same program, so bytes are as the compiler lays them. The
 * recorder believes nothing of what comes back: symbol_answer.h.
 */
#ifndef LG_SYMBOLS_SYMBOL_WIRE_H
#define LG_SYMBOLS_SYMBOL_WIRE_H
#include <stdint.h>

#include "symbols/debug_file.h"
#include "symbols/elf_symbols.h"

enum lg_ask_kind { LG_ASK_BUILD_ID = 1, LG_ASK_ELF, LG_ASK_PERF_MAP, LG_ASK_PCS, LG_ASK_LEAVE, LG_ASK_DEBUG,
		   LG_ASK_EXPORTS, LG_ASK_PYTHON };
enum lg_say_kind {
	LG_SAY_OPENED = 1, LG_SAY_NAMES, LG_SAY_WANT_DEBUG, LG_SAY_DONE, LG_SAY_READER, LG_SAY_DIED,
	LG_SAY_EXPORTS
};

/* What is asked for by ASK_EXPORTS. */
enum lg_export { LG_EXPORT_RUNTIME, LG_EXPORT_EVAL, LG_EXPORT_VERSION, LG_EXPORT_CODE, LG_EXPORTS };
#define LG_EXPORT_NAMES { "_PyRuntime", "_PyEval_EvalFrameDefault", "Py_Version", "PyCode_Type" }

enum {
	LG_PACKET_BYTES = 16384,
	LG_PACKET_PCS = 2000,
	LG_JOB_PCS_MAX = 1 << 20, /* addresses of one question */
	LG_SYMBOL_BYTES = 1024,   /* of a name and its NUL: some have many kB, the head says it */
};

struct lg_ask {
	uint32_t kind, seq;
	uint32_t n;         /* addresses in all, or in this packet */
	uint32_t budget_ms; /* after it the reader ends itself */
};

struct lg_say {
	uint32_t kind, seq;
	uint32_t n;     /* NAMES: bytes of records; WANT_DEBUG: which candidate */
	int32_t status; /* OPENED: 0 or LG_E_*; DIED: the signal, or 0; READER: the pid */
};

/* After OPENED; "" where the file has none. */
struct lg_say_id {
	char hex[LG_BUILD_ID_HEX];
} __attribute__((aligned(4)));

/* After EXPORTS: as in struct lg_elf_export, 0 = there is none. */
struct lg_say_exports {
	uint64_t at[LG_EXPORTS], size[LG_EXPORTS];
} __attribute__((packed));

/* A record of NAMES, without gaps: this, then len bytes. Addresses first, first + 1 ... have this name. */
struct lg_say_name {
	uint32_t first, count;
	uint16_t len;
} __attribute__((packed));

#endif /* LG_SYMBOLS_SYMBOL_WIRE_H */
