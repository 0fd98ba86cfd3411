/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judge.h - what lies behind every importer, on a trace that somebody made up: the analyses, every report,
 * every format of convert, and a comparison of the trace with itself.
 *
 * Property: no number is infinite, shares are shares, no loss is negative, the parts of a step lie end to end
 * and are as long as it is, a run has not changed against itself, and what is said to be JSON (or a protocol
 * buffer) is. What is broken is said in a line, then abort().
 */
#ifndef LG_FUZZ_JUDGE_H
#define LG_FUZZ_JUDGE_H
#include <stddef.h>
#include <stdint.h>

struct lg_trace;

void fuzz_judge(const struct lg_trace *t);

/* NULL, or what is wrong with text as RFC 8259 has it, UTF-8 and depth (at most 64) included. */
const char *fuzz_json_fault(const char *text, size_t n);
/* NULL, or what is wrong with the fields of a protocol buffer, whose nested messages are not known here. */
const char *fuzz_protobuf_fault(const char *bytes, size_t n);

#endif /* LG_FUZZ_JUDGE_H */
