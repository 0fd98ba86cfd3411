/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waits.c - what a sleeping thread waits for, told by the kernel functions on its stack.
 *
 * These are the kernel's own wait functions (file in the comment), the same knowledge as
 * /proc/PID/wchan; nothing here looks at a program's name. The innermost frame that matches wins,
 * so folio_wait_bit below filemap_fault is a disk wait and not just a page fault.
 */
#include "analyse/chains/chains.h"

struct lg_wait_cache {
	uint8_t *frame_class; /* by frame row: enum + 1; 0 = not looked at */
	uint8_t *stack_class; /* by stack row: enum + 1 */
};

static const struct {
	const char *prefix; /* the function's name starts with this; the first one counts */
	uint8_t class;
	const char *did, *detail; /* NULL, or see lg_peer_words() */
} wait_functions[] = {
#define WAIT(prefix, class) { prefix, LG_WAIT_##class, NULL, NULL },
#define ENDED(prefix, class, did, detail) { prefix, LG_WAIT_##class, did, detail },
#include "rules/names.def"
};

int lg_waits_new(struct lg_case *c)
{
	struct lg_wait_cache *w = lg_calloc(1, sizeof *w);

	if (w) {
		w->frame_class = lg_calloc(c->t->frame.n, 1);
		w->stack_class = lg_calloc(c->t->stack.n, 1);
	}
	if (!w || !w->frame_class || !w->stack_class) {
		lg_waits_free(w);
		return LG_E_NOMEM;
	}
	c->waits = w;
	return 0;
}

void lg_waits_free(struct lg_wait_cache *w)
{
	if (!w)
		return;
	lg_free(w->frame_class);
	lg_free(w->stack_class);
	lg_free(w);
}

enum { WAIT_FUNCTIONS = sizeof wait_functions / sizeof *wait_functions };

/* WAIT_FUNCTIONS: it is none of them. */
static size_t row_of_name(const char *name)
{
	size_t i = 0;

	while (i < WAIT_FUNCTIONS &&
	       strncmp(name, wait_functions[i].prefix, strlen(wait_functions[i].prefix)))
		i++;
	return i;
}

static uint8_t class_of_name(const char *name)
{
	size_t i = row_of_name(name);

	return i < WAIT_FUNCTIONS ? wait_functions[i].class : LG_WAIT_UNKNOWN;
}

static uint8_t class_of_frame(struct lg_case *c, lg_frm f)
{
	uint8_t *slot = &c->waits->frame_class[f];

	if (*slot)
		return (uint8_t)(*slot - 1);
	*slot = LG_WAIT_UNKNOWN + 1;
	if (c->t->frame.kind[f] == LG_FRAME_KERNEL)
		*slot = (uint8_t)(class_of_name(lg_string(c->t, c->t->frame.name[f])) + 1);
	return (uint8_t)(*slot - 1);
}

static uint8_t class_of_stack(struct lg_case *c, lg_stk stack)
{
	uint8_t class = LG_WAIT_UNKNOWN;

	if (c->waits->stack_class[stack])
		return (uint8_t)(c->waits->stack_class[stack] - 1);
	for (lg_stk s = stack; s && class == LG_WAIT_UNKNOWN; s = c->t->stack.parent[s])
		class = class_of_frame(c, c->t->stack.frame[s]);
	c->waits->stack_class[stack] = (uint8_t)(class + 1);
	return class;
}

enum lg_wait_class lg_wait_class_of(struct lg_case *c, uint32_t row)
{
	const struct lg_state_tab *s = &c->t->state;

	switch (s->reason[row]) {
	case LG_WHY_STOPPED:
	case LG_WHY_TRACED:
		return LG_WAIT_STOP;
	case LG_WHY_IOWAIT:
		return LG_WAIT_DISK;
	default:
		return s->stack[row] ? class_of_stack(c, s->stack[row]) : LG_WAIT_UNKNOWN;
	}
}

lg_str lg_wait_name_of(struct lg_case *c, uint32_t row)
{
	const struct lg_trace *t = c->t;
	lg_stk stack = t->state.stack[row];
	bool known = stack && class_of_stack(c, stack) != LG_WAIT_UNKNOWN;

	for (lg_stk s = stack; s; s = t->stack.parent[s]) {
		lg_frm f = t->stack.frame[s];
		const char *name = lg_string(t, t->frame.name[f]);

		/* kernel/sched/core.c and kernel/time: how it slept, not for what */
		if (known ? class_of_frame(c, f) != LG_WAIT_UNKNOWN
			  : *name && !strstr(name, "schedule") && strncmp(name, "wait_", 5) &&
				    strncmp(name, "__wait_", 7))
			return t->frame.name[f];
	}
	return 0;
}

const char *lg_lock_text(const struct lg_case *c, lg_str lock)
{
	const char *name = lg_string(c->t, lock);

	return class_of_name(name) == LG_WAIT_FILE_LOCK ? "file lock" : name;
}

const char *lg_peer_words(const char *function, const char **ret_detail)
{
	size_t i = function ? row_of_name(function) : WAIT_FUNCTIONS;

	*ret_detail = i < WAIT_FUNCTIONS ? wait_functions[i].detail : NULL;
	if (*ret_detail)
		return wait_functions[i].did;
	switch (i < WAIT_FUNCTIONS ? wait_functions[i].class : LG_WAIT_UNKNOWN) {
	case LG_WAIT_CHILD:
		return "to end";
	case LG_WAIT_POLL: /* of a socket, a pipe, an event: which is not on the stack */
		return "to signal it";
	default:
		return "to go on";
	}
}

/* ---- waits for a disk ---- */

static const struct {
	const char *name;
	uint8_t kind;
} calls[] = {
#define CALL(name, kind) { name, LG_IO_##kind },
#include "rules/names.def"
};

/* The name behind __x64_sys_, __arm64_sys_, __do_sys_ ...; NULL: no entry of a system call. */
static const char *call_of(const char *function)
{
	const char *name = strstr(function, "_sys_");

	return name && !strncmp(function, "__", 2) ? name + 5 : NULL;
}

static uint8_t kind_of_frame(const char *function, const char **ret_call)
{
	const char *call = call_of(function);

	for (size_t i = 0; call && i < sizeof calls / sizeof *calls; i++)
		if (!strcmp(calls[i].name, call)) {
			*ret_call = calls[i].name;
			return calls[i].kind;
		}
	/* mm/filemap.c: the page of a mapped file is not in memory */
	if (!strcmp(function, "filemap_fault")) {
		*ret_call = "a page fault";
		return LG_IO_READ;
	}
	return LG_IO_UNKNOWN;
}

enum lg_io_kind lg_io_kind_of(const struct lg_case *c, uint32_t row, const char **ret_call)
{
	const struct lg_trace *t = c->t;
	lg_stk s = row < t->state.n ? t->state.stack[row] : 0;

	*ret_call = NULL;
	for (; s; s = t->stack.parent[s]) {
		lg_frm f = t->stack.frame[s];
		uint8_t kind = t->frame.kind[f] != LG_FRAME_KERNEL
				       ? LG_IO_UNKNOWN
				       : kind_of_frame(lg_string(t, t->frame.name[f]), ret_call);

		if (kind)
			return (enum lg_io_kind)kind;
	}
	return LG_IO_UNKNOWN;
}
