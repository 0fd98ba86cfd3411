/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_doctor.c - laggard doctor: what this machine permits, what is lost, how to get it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/out.h"
#include "cli/command.h"
#include "cli/load.h"
#include "record/probe.h"
#include "record/tier.h"

extern char **environ;

enum { CHECKS_MAX = 32 };

static const char *const grades[] = { "ok", "limited", "missing" };

static void json_string(struct lg_out *o, const char *key, const char *value)
{
	lg_out_printf(o, "\"%s\": ", key);
	lg_out_json_string(o, value, strlen(value));
}

static void as_json(struct lg_out *o, const char *tier, const struct lg_check *c, size_t n)
{
	lg_out_puts(o, "{\"schema\": 1, ");
	json_string(o, "laggard", LG_VERSION);
	lg_out_puts(o, ", ");
	json_string(o, "tier", tier);
	lg_out_puts(o, ", ");
	lg_out_puts(o, "\"checks\": [");
	for (size_t i = 0; i < n; i++) {
		lg_out_puts(o, i ? ",\n  {" : "\n  {");
		json_string(o, "name", c[i].name);
		lg_out_puts(o, ", ");
		json_string(o, "grade", grades[c[i].grade]);
		lg_out_puts(o, ", ");
		json_string(o, "found", c[i].found);
		lg_out_puts(o, ", ");
		json_string(o, "lost", c[i].lost);
		lg_out_puts(o, ", ");
		json_string(o, "fix", c[i].fix);
		lg_out_puts(o, "}");
	}
	lg_out_puts(o, "\n]}\n");
}

static void as_text(struct lg_out *o, const char *tier, const char *limits,
		    const struct lg_check *c, size_t n)
{
	lg_out_printf(o, "record would use tier %s%s%s\n", tier, *limits ? "; not seen: " : "",
		      limits);
	for (size_t i = 0; i < n; i++) {
		lg_out_printf(o, "%-8s %-16s %s\n", c[i].grade ? grades[c[i].grade] : "OK",
			      c[i].name, c[i].found);
		if (c[i].grade && *c[i].lost)
			lg_out_printf(o, "%-8s %-16s lost: %s\n", "", "", c[i].lost);
		if (c[i].grade && *c[i].fix)
			lg_out_printf(o, "%-8s %-16s try:  %s\n", "", "", c[i].fix);
	}
}

static bool same_file(const char *path)
{
	const char *dirs = getenv("PATH");
	char name[4096], *real = NULL;
	bool same = false;

	/* Is `path` the first python3 on PATH? Then it need not be tried twice. */
	while (dirs && *dirs && !real) {
		size_t n = strcspn(dirs, ":");

		snprintf(name, sizeof name, "%.*s/python3", (int)n, dirs);
		if (!access(name, X_OK))
			real = realpath(name, NULL);
		dirs += n + (dirs[n] == ':');
	}
	if (real) {
		char *other = realpath(path, NULL);

		same = other && !strcmp(real, other);
		free(other); /* from realpath(), not from lg_alloc */
	}
	free(real);
	return same;
}

static int run(int argc, char **argv)
{
	static struct lg_check checks[CHECKS_MAX];
	static const char debian[] = "/usr/bin/python3";
	struct lg_error err = { .offset = LG_NO_OFFSET };
	struct lg_out *o;
	enum lg_tier tier;
	const char *name = "none", *limits = "everything";
	char program[4096] = "laggard";
	bool json = false;
	ssize_t len;
	size_t n;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--json"))
			json = true;
		else if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
			return lg_help(&lg_cmd_doctor);
		else
			return lg_usage(&lg_cmd_doctor, "unknown argument %s", argv[i]);
	}
	len = readlink("/proc/self/exe", program, sizeof program - 1);
	if (len > 0)
		program[len] = 0;
	if (!lg_tier_choose(LG_TIER_AUTO, false, &tier, NULL, NULL, &err)) {
		name = lg_tier_name(tier);
		limits = lg_tier_limits(tier);
	}
	lg_probe_machine(".", program, environ, checks, CHECKS_MAX - 2, &n);
	lg_probe_python("python3", environ, &checks[n++]);
	if (!access(debian, X_OK) && !same_file(debian))
		lg_probe_python(debian, environ, &checks[n++]);
	o = lg_stdout_open();
	if (!o)
		return LG_EXIT_FAILED;
	if (json)
		as_json(o, name, checks, n);
	else
		as_text(o, name, limits, checks, n);
	return lg_finish(o);
}

const struct lg_command lg_cmd_doctor = {
	.name = "doctor",
	.args = "[--json]",
	.summary = "say what this machine permits, what is lost without it and how to get it",
	.help = "Every line was found by trying it, and undone. Changes nothing.\n\n"
		"  --json    the same as JSON on standard output\n\n"
		"Example:\n"
		"  laggard doctor\n",
	.run = run,
};
