/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - the command table and what every command shares: messages, help, durations. */
#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/out.h"
#include "base/place.h"
#include "base/printable.h"
#include "cli/bounds.h"
#include "cli/command.h"
#include "cli/load.h"
#include "symbols/options.h"

const struct lg_command *const lg_commands[] = {
#ifdef LG_HAVE_RECORD
	&lg_cmd_record, &lg_cmd_hang, &lg_cmd_env, &lg_cmd_trigger, &lg_cmd_top, &lg_cmd_agent, &lg_cmd_view,
	&lg_cmd_roofline, &lg_cmd_determinism, &lg_cmd_selftest,
#endif
	&lg_cmd_explain, &lg_cmd_convert, &lg_cmd_steps, &lg_cmd_memory, &lg_cmd_diff, &lg_cmd_query,
	&lg_cmd_mcp, &lg_cmd_fleet,
#ifdef LG_HAVE_DOCTOR
	&lg_cmd_doctor,
#endif
	&lg_cmd_rules, &lg_cmd_completions,
};
enum { N_COMMANDS = sizeof lg_commands / sizeof *lg_commands };
const size_t lg_n_commands = N_COMMANDS;

/* 4 KiB of a path, and what is said of it. */
enum { LINE_MAX_BYTES = 6 << 10 };

void lg_say(const char *fmt, ...)
{
	char line[LINE_MAX_BYTES], shown[2 * LINE_MAX_BYTES];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	fprintf(stderr, "laggard: %s\n", lg_show(shown, sizeof shown, line, false));
}

void lg_complain(const struct lg_error *err)
{
	const char *text = *err->message ? err->message : lg_error_text(err->code);

	if (err->code == LG_E_NOMEM && lg_bounds())
		lg_say("%s: this needs more than the %llu MiB that it may take; --max-memory SIZE raises that", text,
		       (unsigned long long)(lg_bounds() >> 20));
	else if (!err->offset)
		lg_say("%s (at its first byte)", text);
	else if (err->offset != LG_NO_OFFSET)
		lg_say("%s (byte %llu)", text, (unsigned long long)err->offset);
	else
		lg_say("%s", text);
}

int lg_usage(const struct lg_command *cmd, const char *fmt, ...)
{
	char line[LINE_MAX_BYTES], shown[2 * LINE_MAX_BYTES];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	fprintf(stderr, "laggard %s: %s; see laggard %s --help\n", cmd->name,
		lg_show(shown, sizeof shown, line, false), cmd->name);
	return LG_EXIT_USAGE;
}

/* Text to stdout; a full disk or closed pipe is a failure. */
static int say(const char *const *parts)
{
	struct lg_out *o = lg_stdout_open();

	if (!o)
		return LG_EXIT_FAILED;
	for (; *parts; parts++)
		lg_out_puts(o, *parts);
	return lg_finish(o);
}

int lg_help(const struct lg_command *cmd)
{
	const char *parts[] = { "usage: laggard ", cmd->name, " ", cmd->args, "\n\n", cmd->summary,
				"\n\n", cmd->help, NULL };

	return say(parts);
}

int lg_option_rest(const struct lg_command *cmd, int c, const char *word)
{
	if (c == 'h')
		return lg_help(cmd);
	return lg_usage(cmd, c == ':' ? "%s wants a value" : "no option \"%s\"", word);
}

/* Damerau-Levenshtein (optimal string alignment) distance of short words. */
static unsigned distance(const char *a, const char *b)
{
	enum { MAX = 16 };
	unsigned d[MAX + 1][MAX + 1];
	size_t n = strlen(a), m = strlen(b);

	if (n > MAX || m > MAX)
		return MAX;
	for (size_t i = 0; i <= n; i++) {
		for (size_t j = 0; j <= m; j++) {
			unsigned best;

			if (!i || !j) {
				d[i][j] = (unsigned)(i + j);
				continue;
			}
			best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
			if (d[i - 1][j] + 1 < best)
				best = d[i - 1][j] + 1;
			if (d[i][j - 1] + 1 < best)
				best = d[i][j - 1] + 1;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
			    d[i - 2][j - 2] + 1 < best)
				best = d[i - 2][j - 2] + 1;
			d[i][j] = best;
		}
	}
	return d[n][m];
}

static int unknown(const char *name)
{
	const char *near = NULL;
	unsigned best = 3;

	for (size_t i = 0; i < N_COMMANDS; i++) {
		unsigned x = distance(name, lg_commands[i]->name);

		if (x < best) {
			best = x;
			near = lg_commands[i]->name;
		}
	}
	if (near)
		lg_say("no command \"%s\"; did you mean \"%s\"?", name, near);
	else
		lg_say("no command \"%s\"; see laggard --help", name);
	return LG_EXIT_USAGE;
}

static const char examples[] =
	"examples:\n"
	"  laggard record -o run.lag -- torchrun --nproc-per-node 8 train.py\n"
	"  laggard explain run.lag\n";

static int help_all(void)
{
	const char *parts[4 * N_COMMANDS + 8];
	size_t n = 0;

	parts[n++] = "laggard finds who makes your training step late, and proves it.\n\n"
		     "usage: laggard COMMAND [OPTION]... [FILE]...\n\n";
	for (size_t i = 0; i < N_COMMANDS; i++) {
		static const char pad[] = "          ";
		size_t len = strlen(lg_commands[i]->name);

		parts[n++] = "  ";
		parts[n++] = lg_commands[i]->name;
		parts[n++] = pad + (len < sizeof pad - 1 ? len : sizeof pad - 2);
		parts[n++] = lg_commands[i]->summary;
		parts[n++] = "\n";
		if (n + 6 > sizeof parts / sizeof *parts) {
			parts[n] = NULL;
			if (say(parts))
				return LG_EXIT_FAILED;
			n = 0;
		}
	}
	parts[n++] = "\nlaggard COMMAND --help explains one; laggard --version [--json].\n\n";
	parts[n++] = examples;
	parts[n] = NULL;
	return say(parts);
}

static int version(int json)
{
	const char *plain[] = { "laggard " LG_VERSION "\n", NULL };
	const char *js[] = { "{\"laggard\": \"" LG_VERSION "\", \"schema\": 1}\n", NULL };

	return say(json ? js : plain);
}

static bool number(const char *text, unsigned *ret)
{
	char *end;
	unsigned long v;

	if (!text || *text < '0' || *text > '9')
		return false;
	errno = 0;
	v = strtoul(text, &end, 10);
	*ret = (unsigned)v;
	return !*end && !errno && v < UINT32_MAX;
}

bool lg_invoker(uid_t *ret_uid, gid_t *ret_gid)
{
	/* Only root's environment is to be believed: another user could name anybody here. */
	return !getuid() && !geteuid() && number(getenv("SUDO_UID"), ret_uid) && *ret_uid &&
	       number(getenv("SUDO_GID"), ret_gid);
}

int main(int argc, char **argv)
{
	uid_t uid;
	gid_t gid;

	if (lg_invoker(&uid, &gid)) {
		lg_place_owner(uid, gid);
		lg_symbol_options.caller = uid;
	}

	/* Left alone, glibc learns from the first big block that is freed to keep such blocks in its heap,
	 * where what an import needs for a while only stays resident until the end. */
	mallopt(M_MMAP_THRESHOLD, 256 << 10);
	if (argc < 2) {
		fprintf(stderr, "usage: laggard COMMAND [OPTION]... [FILE]...; laggard --help lists "
				"the commands\n\n%s", examples);
		return LG_EXIT_USAGE;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		bool json = argc > 2 && !strcmp(argv[2], "--json");

		if (argc > 2 + json) {
			lg_say("%s goes with --json or alone, not with \"%s\"", argv[1], argv[2 + json]);
			return LG_EXIT_USAGE;
		}
		return version(json);
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		for (size_t i = 0; argc > 2 && i < N_COMMANDS; i++)
			if (!strcmp(argv[2], lg_commands[i]->name))
				return lg_help(lg_commands[i]);
		return argc > 2 && argv[1][0] == 'h' ? unknown(argv[2]) : help_all();
	}
	for (size_t i = 0; i < N_COMMANDS; i++)
		if (!strcmp(argv[1], lg_commands[i]->name))
			return lg_commands[i]->run(argc - 1, argv + 1);
	return unknown(argv[1]);
}
