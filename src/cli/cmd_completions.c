/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_completions.c - what shells complete, from the command table: names and summaries of commands, and the
 * options that stand in a command's help, which is where they are described once.
 */
#include <getopt.h>
#include <string.h>

#include "base/out.h"
#include "cli/command.h"
#include "cli/load.h"
#include "rules/rules.h"

enum shell { BASH, ZSH, FISH };

enum { ON_A_LINE = 4 };

struct known_option {
	const char *name; /* with its dashes */
	const char *about;
	int n_name, n_about;
};

static bool is_name(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
}

/* The options of a help text's line, "  -o FILE        where to": their number. */
static size_t options_of(const char *line, struct known_option ret[ON_A_LINE])
{
	const char *end = line + strcspn(line, "\n"), *p = line + 2;
	size_t n = 0;

	if (strncmp(line, "  -", 3))
		return 0;
	while (p && n < ON_A_LINE) {
		struct known_option *x = &ret[n++];
		const char *next = NULL;

		*x = (struct known_option){ .name = p };
		while (is_name(*p)) {
			p++;
			x->n_name++;
		}
		/* A value may follow, then another option; two spaces part them from the text. */
		for (; p < end && strncmp(p, "  ", 2); p++)
			if (!strncmp(p, ", -", 3)) {
				next = p + 2;
				break;
			}
		if (!next)
			p += strspn(p, " ");
		for (size_t i = 0; !next && i < n; i++) {
			ret[i].about = p;
			ret[i].n_about = (int)(end - p);
		}
		p = next;
	}
	return n;
}

static const char *next_line(const char *line)
{
	line += strcspn(line, "\n");
	return line + !!*line;
}

#define EACH_OPTION(x, help)                                                                                 \
	for (const char *line_ = (help); *line_; line_ = next_line(line_))                                   \
		for (struct known_option on_[ON_A_LINE], *x = on_, *end_ = on_ + options_of(line_, on_);     \
		     x < end_; x++)

/* Within '...' of all three shells. */
static void put_quoted(struct lg_out *o, enum shell shell, const char *s, int n)
{
	for (; n-- > 0 && *s; s++) {
		if (*s == '\'')
			lg_out_puts(o, shell == FISH ? "\\'" : "'\\''");
		else if (*s == '\\' && shell == FISH)
			lg_out_puts(o, "\\\\");
		else if (*s == ':' && shell == ZSH)
			lg_out_puts(o, "\\:");
		else
			lg_out_write(o, s, 1);
	}
}

static void put_options(struct lg_out *o, const struct lg_command *cmd)
{
	EACH_OPTION(x, cmd->help)
		lg_out_printf(o, "%.*s ", x->n_name, x->name);
	lg_out_puts(o, "--help");
}

static void put_rules(struct lg_out *o)
{
	for (enum lg_rule_id i = LG_R_NONE + 1; i < LG_R_MAX; i++)
		lg_out_printf(o, "%s ", lg_policy(i)->id);
}

static void put_commands(struct lg_out *o)
{
	for (size_t i = 0; i < lg_n_commands; i++)
		lg_out_printf(o, "%s%s", i ? " " : "", lg_commands[i]->name);
}

static void bash(struct lg_out *o)
{
	lg_out_puts(o, "# laggard completions bash\n_laggard()\n{\n\tlocal cur=${COMP_WORDS[COMP_CWORD]} "
		       "before=${COMP_WORDS[COMP_CWORD-1]} words=\n\tCOMPREPLY=()\n"
		       "\tif [ \"$COMP_CWORD\" -eq 1 ]; then\n\t\twords='");
	put_commands(o);
	lg_out_puts(o, "'\n\telif [ \"$before\" = --fail-on ] || [ \"${COMP_WORDS[1]} $COMP_CWORD\" = 'rules 2' ] && "
		       "[ \"${cur#-}\" = \"$cur\" ]; then\n\t\twords='");
	put_rules(o);
	lg_out_puts(o, "'\n\telif [ \"${cur#-}\" != \"$cur\" ]; then\n\t\tcase ${COMP_WORDS[1]} in\n");
	for (size_t i = 0; i < lg_n_commands; i++) {
		lg_out_printf(o, "\t\t%s) words='", lg_commands[i]->name);
		put_options(o, lg_commands[i]);
		lg_out_puts(o, "' ;;\n");
	}
	lg_out_puts(o, "\t\tesac\n\tfi\n\tif [ -n \"$words\" ]; then\n"
		       "\t\tCOMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n\tfi\n}\n"
		       "complete -o bashdefault -o default -F _laggard laggard\n");
}

static void zsh(struct lg_out *o)
{
	lg_out_puts(o, "#compdef laggard\n# laggard completions zsh\n_laggard()\n{\n\tlocal -a known\n"
		       "\tif (( CURRENT == 2 )); then\n\t\tknown=(\n");
	for (size_t i = 0; i < lg_n_commands; i++) {
		lg_out_printf(o, "\t\t\t'%s:", lg_commands[i]->name);
		put_quoted(o, ZSH, lg_commands[i]->summary, (int)strlen(lg_commands[i]->summary));
		lg_out_puts(o, "'\n");
	}
	lg_out_puts(o, "\t\t)\n\t\t_describe command known\n\t\treturn\n\tfi\n"
		       "\tif [[ $words[CURRENT-1] == --fail-on || ( \"$words[2] $CURRENT\" == 'rules 3' && "
		       "$PREFIX != -* ) ]]; then\n"
		       "\t\tcompadd -- ");
	put_rules(o);
	lg_out_puts(o, "\n\t\treturn\n\tfi\n\tif [[ $PREFIX != -* ]]; then\n\t\t_files\n\t\treturn\n\tfi\n"
		       "\tcase $words[2] in\n");
	for (size_t i = 0; i < lg_n_commands; i++) {
		lg_out_printf(o, "\t(%s) known=(\n", lg_commands[i]->name);
		EACH_OPTION(x, lg_commands[i]->help) {
			lg_out_printf(o, "\t\t'%.*s:", x->n_name, x->name);
			put_quoted(o, ZSH, x->about, x->n_about);
			lg_out_puts(o, "'\n");
		}
		lg_out_puts(o, "\t\t'--help:explain the command'\n\t) ;;\n");
	}
	lg_out_puts(o, "\tesac\n\t_describe -o option known\n}\n"
		       "if [ \"$funcstack[1]\" = _laggard ]; then\n\t_laggard \"$@\"\nelse\n"
		       "\tcompdef _laggard laggard\nfi\n");
}

static void fish(struct lg_out *o)
{
	lg_out_puts(o, "# laggard completions fish\n");
	for (size_t i = 0; i < lg_n_commands; i++) {
		const struct lg_command *cmd = lg_commands[i];

		lg_out_printf(o, "complete -c laggard -n __fish_use_subcommand -f -a %s -d '", cmd->name);
		put_quoted(o, FISH, cmd->summary, (int)strlen(cmd->summary));
		lg_out_puts(o, "'\n");
		EACH_OPTION(x, cmd->help) {
			bool is_long = x->name[1] == '-';

			lg_out_printf(o, "complete -c laggard -n '__fish_seen_subcommand_from %s' -%c %.*s -d '",
				      cmd->name, is_long ? 'l' : 's', x->n_name - 1 - is_long,
				      x->name + 1 + is_long);
			put_quoted(o, FISH, x->about, x->n_about);
			lg_out_puts(o, "'\n");
		}
	}
	lg_out_puts(o, "complete -c laggard -n '__fish_seen_subcommand_from rules' -f -a '");
	put_rules(o);
	lg_out_puts(o, "'\n");
}

static int run(int argc, char **argv)
{
	static const struct option longs[] = { { "help", no_argument, NULL, 'h' }, { 0 } };
	static void (*const write[])(struct lg_out *o) = { [BASH] = bash, [ZSH] = zsh, [FISH] = fish };
	static const char *const shells[] = { [BASH] = "bash", [ZSH] = "zsh", [FISH] = "fish" };
	struct lg_out *o;
	int c, i = BASH;

	opterr = 0;
	optind = 0; /* glibc: start anew */
	while ((c = getopt_long(argc, argv, ":h", longs, NULL)) != -1)
		return lg_option_rest(&lg_cmd_completions, c, argv[optind - 1]);
	while (optind < argc && i <= FISH && strcmp(argv[optind], shells[i]))
		i++;
	if (optind + 1 != argc || i > FISH)
		return lg_usage(&lg_cmd_completions, "it wants a shell: bash, zsh or fish");
	o = lg_stdout_open();
	if (!o)
		return LG_EXIT_FAILED;
	write[i](o);
	return lg_finish(o);
}

const struct lg_command lg_cmd_completions = {
	.name = "completions",
	.args = "bash|zsh|fish",
	.summary = "print what a shell needs to complete laggard's commands and options",
	.help =
	"make install puts them where the shells look. For one session:\n"
	"\n"
	"example:\n"
	"  source <(laggard completions bash)\n",
	.run = run,
};
