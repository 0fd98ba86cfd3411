/* SPDX-License-Identifier: Apache-2.0 */
/*
 * error.h - one code and one caller-owned line of text for every failure.
 *
 * Functions return 0 or a negative LG_E_*; outputs (ret_*) are untouched on failure.
 * The message is written once, where the fault is found; callers may prefix context.
 * No allocation, no thread-local state; err may be NULL.
 */
#ifndef LG_BASE_ERROR_H
#define LG_BASE_ERROR_H
#include <stdarg.h>
#include <stdint.h>

#define LG_ERRC_MAP(X) /* name, value, text: append, never renumber */                          \
	X(NOMEM, -1, "out of memory")                                                           \
	X(IO, -2, "input/output error")                                                         \
	X(FORMAT, -3, "malformed input")                                                        \
	X(UNSUPPORTED, -4, "unsupported version or feature")                                    \
	X(LIMIT, -5, "input exceeds a safety limit")                                            \
	X(PERM, -6, "permission denied")                                                        \
	X(USAGE, -7, "wrong usage")                                                             \
	X(NOTFOUND, -8, "not found")

enum lg_errc {
#define X(name, value, text) LG_E_##name = value,
	LG_ERRC_MAP(X)
#undef X
};

#define LG_NO_OFFSET UINT64_MAX

struct lg_error {
	int code;           /* LG_E_* */
	int os_errno;       /* 0 when the kernel was not involved */
	uint64_t offset;    /* byte offset in the input, or LG_NO_OFFSET */
	char message[488];  /* one line, always terminated */
};

#define LG_MUST_CHECK __attribute__((warn_unused_result))
#define LG_PRINTF(f, a) __attribute__((format(printf, f, a)))

/* Fill err (may be NULL) and return code, so that `return lg_fail(...)` reads naturally. */
int lg_fail(struct lg_error *err, int code, uint64_t offset, const char *fmt, ...) LG_PRINTF(4, 5);
/* As lg_fail() with LG_E_IO or LG_E_PERM chosen from os_errno, whose text is appended. */
int lg_fail_errno(struct lg_error *err, int os_errno, const char *fmt, ...) LG_PRINTF(3, 4);
/* Put context before a message that is already there. Returns err's code. */
int lg_error_prefix(struct lg_error *err, const char *fmt, ...) LG_PRINTF(2, 3);
/* The fixed text of a code; never NULL. */
const char *lg_error_text(int code);

#endif /* LG_BASE_ERROR_H */
