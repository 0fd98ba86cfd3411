/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_mcp.c - the Model Context Protocol over standard input and output, so that an assistant can ask.
 *
 * Messages are JSON-RPC 2.0, a line each (modelcontextprotocol.io, revision 2025-11-25: base protocol,
 * stdio transport, lifecycle, tools). A tool is one of our commands: it runs as a process of its own,
 * without input, and what it prints is the answer. So an assistant can do no more than read what these
 * commands read, with their bounds of memory; none of them writes a file.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/command.h"
#include "cli/own_command.h"
#include "import/value/value.h"
#include "report/json_write.h"

enum { LINE_MAX_BYTES = 1 << 20, ANSWER_MAX_BYTES = 4 << 20, SAID_MAX_BYTES = 8 << 10 };
enum { ARGS_MAX = 4096, PARAMS = 3 };
/* JSON-RPC 2.0, section 5.1. */
enum { PARSE_ERROR = -32700, INVALID_REQUEST = -32600, NO_METHOD = -32601, INVALID_PARAMS = -32602,
       INTERNAL_ERROR = -32603 };

enum param_kind { PATHS, TEXT, NUMBER };

struct param {
	const char *name;
	enum param_kind kind;
	bool required;
	const char *option; /* of the command; NULL: it stands for itself, behind the options */
	const char *about;
};

static const struct tool {
	const char *name, *about; /* name: of the command, too */
	struct param param[PARAMS];
} tools[] = {
	{ "explain",
	  "Who made the training steps late: findings with severity, confidence, lost time, culprit, evidence, fix and "
	  "trade-off, as JSON. Files of one run together: a laggard recording, torch.profiler, Nsight or Chrome traces, "
	  "perf.data, job logs, Flight Recorder dumps, nvidia-smi output, py-spy dumps.",
	  { { "files", PATHS, true, NULL, "files or folders of one run" },
	    { "cost_per_hour", NUMBER, false, "--cost-per-hour", "what the run costs an hour" } } },
	{ "steps", "Every step of a run and where its time went, as JSON, one object a step.",
	  { { "files", PATHS, true, NULL, "files or folders of one run" } } },
	{ "query",
	  "SQL (SQLite, SELECT only) over every row of a trace and of its verdict, as JSON. Tables: step, part, cause, "
	  "finding, evidence, stage, span, state, sample, process, thread, mark, diag and others; "
	  "SELECT name, sql FROM sqlite_master lists them.",
	  { { "files", PATHS, true, NULL, "files or folders of one run" },
	    { "sql", TEXT, true, NULL, "one SELECT; use LIMIT" } } },
	{ "diff", "What changed between two runs, and how much of it each difference explains, as JSON.",
	  { { "before", TEXT, true, NULL, "file or folder of the run before" },
	    { "after", TEXT, true, NULL, "file or folder of the run after" } } },
	{ "memory",
	  "What fills a GPU's memory, what grows, and why a request failed, as JSON: of a PyTorch memory snapshot or a "
	  "job's log.",
	  { { "files", PATHS, true, NULL, "files of one run" } } },
	{ "hang",
	  "Where each rank of a run that does not move stands, and whom the others wait for, as JSON: of Flight Recorder "
	  "dumps, py-spy dumps, logs or recordings.",
	  { { "files", PATHS, true, NULL, "files or folders of one run" } } },
	{ "rules",
	  "The catalogue of findings, or one of them: what it means, from which numbers on, fix, trade-off, sources.",
	  { { "id", TEXT, false, NULL, "such as host.lock_held" } } },
};
enum { N_TOOLS = sizeof tools / sizeof *tools };

/* ---- answers ------------------------------------------------------------------------------------- */

struct request {
	const struct lg_doc *doc;
	uint32_t message;
	struct lg_json *j;
};

/* Begin an answer: who asked. False: nobody waits for one (a notification). */
static bool begin(const struct request *r, const char *what)
{
	uint32_t id = lg_value_get(r->doc, r->message, "id");

	if (!id)
		return false;
	lg_json_open_flat(r->j, '{');
	lg_json_key_str(r->j, "jsonrpc", "2.0");
	lg_json_key(r->j, "id");
	if (lg_value_is(r->doc, id, LG_TEXT))
		lg_json_str(r->j, lg_value_text(r->doc, id));
	else if (lg_value_is(r->doc, id, LG_INT))
		lg_json_int(r->j, lg_value_int(r->doc, id, 0));
	else
		lg_json_null(r->j);
	lg_json_key(r->j, what);
	lg_json_open(r->j, '{');
	return true;
}

static void end(const struct request *r)
{
	lg_json_close(r->j, '}');
	lg_json_close(r->j, '}');
}

static void refuse(const struct request *r, int code, const char *why)
{
	if (!begin(r, "error"))
		return;
	lg_json_key_int(r->j, "code", code);
	lg_json_key_str(r->j, "message", why);
	end(r);
}

static void initialize(const struct request *r, uint32_t params)
{
	static const char *const versions[] = { "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05" };
	const char *wanted = lg_value_text(r->doc, lg_value_get(r->doc, params, "protocolVersion"));
	size_t i = 0;

	while (i < sizeof versions / sizeof *versions && strcmp(wanted, versions[i]))
		i++;
	if (!begin(r, "result"))
		return;
	lg_json_key_str(r->j, "protocolVersion", versions[i < sizeof versions / sizeof *versions ? i : 0]);
	lg_json_key(r->j, "capabilities");
	lg_json_open(r->j, '{');
	lg_json_key(r->j, "tools");
	lg_json_open(r->j, '{');
	lg_json_close(r->j, '}');
	lg_json_close(r->j, '}');
	lg_json_key(r->j, "serverInfo");
	lg_json_open(r->j, '{');
	lg_json_key_str(r->j, "name", "laggard");
	lg_json_key_str(r->j, "version", LG_VERSION);
	lg_json_close(r->j, '}');
	lg_json_key_str(r->j, "instructions",
	    "laggard finds who makes a training step late, and proves it. Begin with explain; ask query for the "
	    "rows behind a number; rules says what a finding's id means. What is listed under limits was not seen: "
	    "say so.");
	end(r);
}

static void list_param(struct lg_json *j, const struct param *p)
{
	static const char *const type[] = { [PATHS] = "array", [TEXT] = "string", [NUMBER] = "number" };

	lg_json_key(j, p->name);
	lg_json_open(j, '{');
	lg_json_key_str(j, "type", type[p->kind]);
	if (p->kind == PATHS) {
		lg_json_key(j, "items");
		lg_json_open(j, '{');
		lg_json_key_str(j, "type", "string");
		lg_json_close(j, '}');
		lg_json_key_int(j, "minItems", 1);
	}
	lg_json_key_str(j, "description", p->about);
	lg_json_close(j, '}');
}

static void list_tool(struct lg_json *j, const struct tool *t)
{
	lg_json_open(j, '{');
	lg_json_key_str(j, "name", t->name);
	lg_json_key_str(j, "description", t->about);
	lg_json_key(j, "annotations");
	lg_json_open(j, '{');
	lg_json_key(j, "readOnlyHint");
	lg_json_bool(j, true);
	lg_json_close(j, '}');
	lg_json_key(j, "inputSchema");
	lg_json_open(j, '{');
	lg_json_key_str(j, "type", "object");
	lg_json_key(j, "properties");
	lg_json_open(j, '{');
	for (size_t k = 0; k < PARAMS && t->param[k].name; k++)
		list_param(j, &t->param[k]);
	lg_json_close(j, '}');
	lg_json_key(j, "required");
	lg_json_open(j, '[');
	for (size_t k = 0; k < PARAMS && t->param[k].name; k++)
		if (t->param[k].required)
			lg_json_str(j, t->param[k].name);
	lg_json_close(j, ']');
	lg_json_close(j, '}');
	lg_json_close(j, '}');
}

static void list_tools(const struct request *r)
{
	if (!begin(r, "result"))
		return;
	lg_json_key(r->j, "tools");
	lg_json_open(r->j, '[');
	for (size_t i = 0; i < N_TOOLS; i++)
		list_tool(r->j, &tools[i]);
	lg_json_close(r->j, ']');
	end(r);
}

/* ---- a call -------------------------------------------------------------------------------------- */

struct words {
	char *v[ARGS_MAX + 1];
	size_t n;
	char number[32];
};

static bool add(struct words *w, const char *s)
{
	if (w->n == ARGS_MAX)
		return false;
	w->v[w->n++] = (char *)(uintptr_t)s;
	return true;
}

/* NULL, or what is wrong with it. behind: those that stand behind "--", else the options. */
static const char *add_param(const struct request *r, const struct param *p, uint32_t v, bool behind,
			     struct words *w)
{
	if (behind == !!p->option)
		return NULL;
	if (!v)
		return p->required ? "is missing" : NULL;
	if (p->kind == NUMBER) {
		if (!lg_value_is(r->doc, v, LG_INT) && !lg_value_is(r->doc, v, LG_REAL))
			return "is no number";
		snprintf(w->number, sizeof w->number, "%.17g", lg_value_real(r->doc, v, 0));
		return add(w, p->option) && add(w, w->number) ? NULL : "are too many";
	}
	if (p->kind == TEXT) {
		if (!lg_value_is(r->doc, v, LG_TEXT))
			return "is no text";
		return add(w, lg_value_text(r->doc, v)) ? NULL : "are too many";
	}
	if (!lg_value_is(r->doc, v, LG_LIST) || !lg_value_count(r->doc, v))
		return "is no list of paths";
	for (uint32_t i = 0; i < lg_value_count(r->doc, v); i++) {
		uint32_t path = lg_value_at(r->doc, v, i);

		if (!lg_value_is(r->doc, path, LG_TEXT))
			return "is no list of paths";
		if (!add(w, lg_value_text(r->doc, path)))
			return "are too many";
	}
	return NULL;
}

/* False: what is wrong is in why. */
static bool command_of(const struct request *r, const struct tool *t, uint32_t args, struct words *w,
		       char *why, size_t size)
{
	w->n = 0;
	if (!add(w, "laggard") || !add(w, t->name) || !add(w, "--json"))
		return false;
	for (int behind = 0; behind < 2; behind++) {
		if (behind && !add(w, "--"))
			return false;
		for (size_t k = 0; k < PARAMS && t->param[k].name; k++) {
			const struct param *p = &t->param[k];
			const char *wrong = add_param(r, p, lg_value_get(r->doc, args, p->name), behind, w);

			if (!wrong)
				continue;
			snprintf(why, size, "%s: \"%s\" %s", t->name, p->name, wrong);
			return false;
		}
	}
	w->v[w->n] = NULL;
	return true;
}

static void put_content(struct lg_json *j, const char *text, size_t n)
{
	lg_json_open(j, '{');
	lg_json_key_str(j, "type", "text");
	lg_json_key(j, "text");
	lg_json_str_n(j, text, n);
	lg_json_close(j, '}');
}

static void put_result(const struct request *r, int status, const struct lg_printed *out,
		       const struct lg_printed *said)
{
	static const char was_cut[] = "The answer was cut here: ask for less.";
	bool ok = status == LG_EXIT_OK || status == LG_EXIT_FINDING;

	if (!begin(r, "result"))
		return;
	lg_json_key(r->j, "content");
	lg_json_open(r->j, '[');
	if (ok)
		put_content(r->j, out->p, out->n);
	if (ok && out->cut)
		put_content(r->j, was_cut, strlen(was_cut));
	if (said->n || !ok)
		put_content(r->j, said->p, said->n);
	lg_json_close(r->j, ']');
	lg_json_key(r->j, "isError");
	lg_json_bool(r->j, !ok);
	end(r);
}

static void call_tool(const struct request *r, uint32_t params)
{
	const char *name = lg_value_text(r->doc, lg_value_get(r->doc, params, "name"));
	struct lg_printed out = { .max = ANSWER_MAX_BYTES }, said = { .max = SAID_MAX_BYTES };
	LG_AUTOFREE struct words *w = lg_calloc(1, sizeof *w);
	char why[256] = "too many paths";
	size_t i = 0;
	int status;

	while (i < N_TOOLS && strcmp(tools[i].name, name))
		i++;
	out.p = lg_calloc(1, out.max);
	said.p = lg_calloc(1, said.max);
	if (!w || !out.p || !said.p) {
		refuse(r, INTERNAL_ERROR, "out of memory");
	} else if (i == N_TOOLS) {
		refuse(r, INVALID_PARAMS, "no such tool");
	} else if (!command_of(r, &tools[i], lg_value_get(r->doc, params, "arguments"), w, why, sizeof why)) {
		refuse(r, INVALID_PARAMS, why);
	} else {
		status = lg_run_own_command(w->v, &out, &said);
		if (status < 0)
			refuse(r, INTERNAL_ERROR, strerror(errno));
		else
			put_result(r, status, &out, &said);
	}
	lg_free(out.p);
	lg_free(said.p);
}

static void answer(const struct request *r)
{
	const char *method = lg_value_text(r->doc, lg_value_get(r->doc, r->message, "method"));
	uint32_t params = lg_value_get(r->doc, r->message, "params");

	if (!*method) {
		/* An answer to what we never asked is no request. */
		if (!lg_value_get(r->doc, r->message, "result") && !lg_value_get(r->doc, r->message, "error"))
			refuse(r, INVALID_REQUEST, "no method");
	} else if (!strcmp(method, "initialize")) {
		initialize(r, params);
	} else if (!strcmp(method, "ping")) {
		if (begin(r, "result"))
			end(r);
	} else if (!strcmp(method, "tools/list")) {
		list_tools(r);
	} else if (!strcmp(method, "tools/call")) {
		call_tool(r, params);
	} else {
		refuse(r, NO_METHOD, "no such method");
	}
}

/* ---- lines --------------------------------------------------------------------------------------- */

/* Of a message whose id nobody can read. */
static void put_error(struct lg_json *j, int code, const char *why)
{
	lg_json_open_flat(j, '{');
	lg_json_key_str(j, "jsonrpc", "2.0");
	lg_json_key(j, "id");
	lg_json_null(j);
	lg_json_key(j, "error");
	lg_json_open(j, '{');
	lg_json_key_int(j, "code", code);
	lg_json_key_str(j, "message", why);
	lg_json_close(j, '}');
	lg_json_close(j, '}');
}

/* What is answered to a line; nothing, where nobody waits. */
static void answer_line(char *line, size_t n, struct lg_out *o)
{
	struct lg_doc doc = { 0 };
	struct lg_error err = { 0 };
	struct lg_json j = { .o = o };
	struct request r = { .doc = &doc, .j = &j };

	if (lg_doc_json(&doc, line, n, &err) || doc.cut) {
		put_error(&j, PARSE_ERROR, "this is no JSON");
	} else if (lg_value_is(&doc, doc.root, LG_LIST)) { /* revision 2025-03-26 has batches */
		uint64_t empty;

		lg_json_open_flat(&j, '[');
		empty = lg_out_bytes(o);
		for (uint32_t i = 0; i < lg_value_count(&doc, doc.root); i++) {
			r.message = lg_value_at(&doc, doc.root, i);
			answer(&r);
		}
		if (lg_out_bytes(o) == empty)
			lg_out_clear(o);
		else
			lg_json_close(&j, ']');
	} else if (lg_value_is(&doc, doc.root, LG_DICT)) {
		r.message = doc.root;
		answer(&r);
	} else {
		put_error(&j, INVALID_REQUEST, "a message is an object");
	}
	lg_doc_done(&doc);
}

/* Read a line of up to LINE_MAX_BYTES; -1: there is none any more; 0: empty, or too long and answered. */
static ssize_t read_line(char *line, struct lg_out *o)
{
	size_t n = 0;
	int c;

	while ((c = getc(stdin)) != EOF && c != '\n') {
		if (n < LINE_MAX_BYTES)
			line[n] = (char)c;
		n++;
	}
	if (c == EOF && !n)
		return -1;
	if (n > LINE_MAX_BYTES) {
		struct lg_json j = { .o = o };

		put_error(&j, INVALID_REQUEST, "the line is longer than 1 MiB");
		return 0;
	}
	while (n && (line[n - 1] == '\r' || line[n - 1] == ' '))
		n--;
	line[n] = 0;
	return (ssize_t)n;
}

static int serve(void)
{
	struct lg_error err = { 0 };
	LG_AUTOFREE char *line = lg_calloc(1, LINE_MAX_BYTES + 1);
	struct lg_out *o;
	ssize_t n;

	if (!line || lg_out_memory(&o, &err)) {
		lg_say("out of memory");
		return LG_EXIT_FAILED;
	}
	while ((n = read_line(line, o)) >= 0) {
		if (n)
			answer_line(line, (size_t)n, o);
		if (lg_out_bytes(o)) {
			lg_out_puts(o, "\n");
			if (lg_out_failed(o) || !fwrite(lg_out_view(o), lg_out_bytes(o), 1, stdout) ||
			    fflush(stdout))
				break;
		}
		lg_out_clear(o);
	}
	lg_out_abort(o);
	return n < 0 ? LG_EXIT_OK : LG_EXIT_FAILED;
}

static int run(int argc, char **argv)
{
	static const struct option longs[] = { { "help", no_argument, NULL, 'h' }, { 0 } };
	int c;

	opterr = 0;
	optind = 0; /* glibc: start anew */
	while ((c = getopt_long(argc, argv, ":h", longs, NULL)) != -1)
		return lg_option_rest(&lg_cmd_mcp, c, argv[optind - 1]);
	if (optind < argc)
		return lg_usage(&lg_cmd_mcp, "it takes no argument: files are named by who asks");
	return serve();
}

const struct lg_command lg_cmd_mcp = {
	.name = "mcp",
	.args = "",
	.summary = "answer an assistant's questions (Model Context Protocol over standard input and output)",
	.help =
	"A client of the protocol starts it. Tools, all of which only read: explain, steps, query, diff, memory,\n"
	"hang (of files), rules. Each answers with what the command of that name prints with --json.\n"
	"\n"
	"example, as such clients are told of it:\n"
	"  {\"mcpServers\": {\"laggard\": {\"command\": \"laggard\", \"args\": [\"mcp\"]}}}\n",
	.run = run,
};
