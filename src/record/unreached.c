/* SPDX-License-Identifier: Apache-2.0 */
#include "record/unreached.h"

#include <stdio.h>
#include <string.h>

bool lg_is_python(const char *cmdline)
{
	const char *p = cmdline, *end = p + strcspn(p, " ");
	const char *base = memrchr(p, '/', (size_t)(end - p));

	base = base ? base + 1 : p;
	base += *base == '-'; /* a login shell's way */
	if (!strncmp(base, "python", 6))
		base += 6;
	else if (!strncmp(base, "pypy", 4))
		base += 4;
	else
		return false;
	/* "python3.13t", "python3-dbg"; not "python3-config" and its like */
	base += strspn(base, "0123456789.");
	base += *base == 'd' || *base == 't';
	if (!strncmp(base, "-dbg", 4))
		base += 4;
	return base == end;
}

char lg_python_isolated(const char *cmdline)
{
	const char *p = strchr(cmdline, ' ');

	/* Options of the interpreter end at the first word that is none, and at -c and -m
	 * (Python/initconfig.c, config_parse_cmdline). */
	while (p && *++p == '-' && p[1] && p[1] != ' ') {
		const char *end = p + strcspn(p, " ");
		bool next = !strncmp(p, "--check-hash-based-pycs", (size_t)(end - p));

		for (p++; p < end && p[0] != '-'; p++) {
			if (*p == 'I' || *p == 'E' || *p == 'S')
				return *p;
			if (*p == 'c' || *p == 'm')
				return 0;
			if (*p == 'W' || *p == 'X') { /* the rest of the word, or the next one */
				next = p + 1 == end;
				break;
			}
		}
		p = *end ? end : NULL;
		if (p && next)
			p = strchr(p + 1, ' ');
	}
	return 0;
}

bool lg_unreached_python(const struct lg_trace *t, bool reached, char *line, size_t size)
{
	for (lg_prc p = 1; p < t->process.n; p++) {
		const char *cmd = lg_string(t, t->process.cmdline[p]);
		uint32_t role = t->process.role[p];
		const char *comm = lg_string(t, t->process.comm[p]);
		char opt;

		/* The arguments are read a moment after an exec: they may be those of what it was before, or
		 * missing. The name came with the exec. */
		if ((role != LG_ROLE_JOB && role != LG_ROLE_RANK) ||
		    !(lg_is_python(cmd) || lg_is_python(comm)))
			continue;
		opt = lg_is_python(cmd) ? lg_python_isolated(cmd) : 0;
		cmd = *cmd ? cmd : comm;
		if (opt)
			snprintf(line, size,
				 "no marks came from pid %d (%.100s): with -%c Python %s, by which the hook "
				 "comes; run it without, or mark steps by hand", t->process.pid[p], cmd, opt,
				 opt == 'S' ? "does not load sitecustomize" : "ignores PYTHONPATH");
		else if (!reached)
			snprintf(line, size,
				 "no marks came from pid %d (%.100s): the hook did not reach it; is PYTHONPATH "
				 "cleared on the way, or Python started with -I, -E or -S?",
				 t->process.pid[p], cmd);
		else
			continue;
		return true;
	}
	return false;
}
