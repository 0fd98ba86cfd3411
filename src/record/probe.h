/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe.h - what this machine permits, found by doing it: every check opens, loads or reads the
 * real thing and undoes it. No check looks at a kernel version.
 */
#ifndef LG_RECORD_PROBE_H
#define LG_RECORD_PROBE_H
#include "record/session.h"

enum lg_grade { LG_GRADE_OK, LG_GRADE_LIMITED, LG_GRADE_MISSING };

struct lg_check {
	char name[32];
	enum lg_grade grade;
	char found[256]; /* what is there, or why it does not work */
	char lost[256];  /* what is not seen without it; "" when OK */
	char fix[256];   /* the command that gets it; "" when there is none */
};

/*
 * Fill ret (at most max) and *ret_n. dir: where recordings go. program: path of this binary, for
 * the setcap commands. env: where this user's own folders are. Takes about as long as loading the BPF
 * programs, under a second.
 */
void lg_probe_machine(const char *dir, const char *program, char **env, struct lg_check *ret, size_t max,
		      size_t *ret_n);

/* Does the hook reach this Python, and which torch does it have? python: path or name. */
void lg_probe_python(const char *python, char **env, struct lg_check *ret);

#endif /* LG_RECORD_PROBE_H */
