/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_steps.c - the steps as a table. */
#include <getopt.h>
#include <math.h>

#include "cli/bounds.h"
#include "cli/load.h"
#include "report/report.h"

static int run(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "csv", no_argument, NULL, 'c' },
		{ "step-regex", required_argument, NULL, 'r' },
		LG_MAX_MEMORY_OPTION,
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	struct lg_loaded l = { 0 };
	struct lg_error err = { 0 };
	struct lg_out *o;
	int c, as = 0, rc;

	opterr = 0;
	optind = 0;
	while ((c = getopt_long(argc, argv, ":h", longs, NULL)) != -1) {
		switch (c) {
		case 'j':
		case 'c':
			as = c;
			break;
		case 'r':
			rc = lg_step_regex_option(&lg_cmd_steps, optarg);
			if (rc >= 0)
				return rc;
			break;
		case LG_MAX_MEMORY:
			rc = lg_max_memory_option(&lg_cmd_steps, optarg);
			if (rc >= 0)
				return rc;
			break;
		default:
			return lg_option_rest(&lg_cmd_steps, c, argv[optind - 1]);
		}
	}
	if (optind >= argc)
		return lg_usage(&lg_cmd_steps, "no FILE given");
	if (lg_load_run(argv + optind, (size_t)(argc - optind), &l, &err) ||
	    lg_judge(&l, 0, (double)NAN, &err) || lg_out_open(&o, "-", LG_OUT_PLAIN, &err)) {
		lg_complain(&err);
		lg_loaded_done(&l);
		return LG_EXIT_FAILED;
	}
	if (as == 'j')
		lg_steps_json(l.verdict, o);
	else if (as == 'c')
		lg_steps_csv(l.verdict, o);
	else
		lg_steps_table(l.verdict, o);
	rc = lg_finish(o);
	lg_loaded_done(&l);
	return rc;
}

const struct lg_command lg_cmd_steps = {
	.name = "steps",
	.args = "FILE... [--json|--csv] [--step-regex RE]",
	.summary = "list every step: where its time went and its largest cause",
	.help =
	"  --json     one object a step\n"
	"  --csv      for a spreadsheet; milliseconds with all six decimals\n"
	"  --step-regex RE   what a step's line looks like in a job's log (laggard-explain(1))\n"
	LG_MAX_MEMORY_HELP
	"\n"
	"example:\n"
	"  laggard steps run.lag --csv > steps.csv\n",
	.run = run,
};
