/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_top.c - the verdict of the last seconds, again and again: of a job that runs, or of a recording.
 *
 * Live: a child records into a ring, as `record --ring` does. For each picture it is asked to write what
 * the ring holds, and a second child, which gives up its privileges as every reader of files does, judges
 * that and draws. This process holds the screen and the keys, and reads nothing from outside but the lines
 * drawn.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/order.h"
#include "cli/bounds.h"
#include "cli/load.h"
#include "cli/pids.h"
#include "cli/top_lines.h"
#include "picture/accounts.h"
#include "picture/machine.h"
#include "record/runtime_dir.h"
#include "record/session.h"
#include "report/convert.h"
#include "report/report.h"

extern char **environ;

#define SECOND INT64_C(1000000000)
enum { EVERY = 256, LAST, JOB, BATCH };

struct options {
	struct lg_pids pids;
	int64_t every_ns, last_ns;
	bool batch;
	long count; /* pictures; 0 = until told to end */
};

/* ---- the screen ---------------------------------------------------------------------------------- */

struct screen {
	struct lg_term_options term;
	unsigned width, height;
	size_t skip; /* lines of the picture that are above the screen */
	struct lg_top_view view;
	size_t found, n_found; /* which of the lines that hold what is searched for */
	char prompt;           /* '/' or '\\': what is typed goes there; 0 = keys */
	bool raw;
	struct termios was;
	int signals;
};

/* Buttons and the wheel, in decimal (xterm's control sequences: 1000, 1006). */
#define MOUSE_ON "\033[?1000h\033[?1006h"
#define MOUSE_OFF "\033[?1006l\033[?1000l"

static void say_to_screen(const char *s)
{
	fputs(s, stdout);
	fflush(stdout);
}

static void measure(struct screen *s)
{
	struct winsize w;

	s->width = s->term.width ? s->term.width : 80;
	s->height = 0;
	if (s->raw && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) && w.ws_col && w.ws_row) {
		s->width = w.ws_col;
		s->height = w.ws_row;
	}
}

/* The second screen, without echo; Ctrl-C stays a signal. */
static void enter(struct screen *s)
{
	struct termios t;

	if (s->raw || !isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &s->was))
		return;
	t = s->was;
	t.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	t.c_cc[VMIN] = 0;
	t.c_cc[VTIME] = 0;
	if (tcsetattr(STDIN_FILENO, TCSANOW, &t))
		return;
	s->raw = true;
	say_to_screen("\033[?1049h\033[?25l" MOUSE_ON);
}

static void leave(struct screen *s)
{
	if (!s->raw)
		return;
	say_to_screen(MOUSE_OFF "\033[?25h\033[?1049l");
	(void)tcsetattr(STDIN_FILENO, TCSANOW, &s->was);
	s->raw = false;
}

/* A line of the screen: what an earlier picture left behind its end is erased. */
static void put_line(const struct lg_top_line *l, bool marked, bool last)
{
	fputs(marked ? "\033[7m" : "", stdout);
	fwrite(l->at, 1, l->n, stdout);
	fputs(marked ? "\033[0m" : "", stdout);
	fputs(last ? "\033[K" : "\033[K\n", stdout);
}

/* The line that the search is at, or 0; counts those that hold it. */
static size_t find(struct screen *s, const struct lg_top_line *l, size_t n)
{
	size_t at = 0;

	s->n_found = 0;
	for (size_t i = 1; i < n; i++)
		s->n_found += lg_top_holds(&l[i], s->view.find);
	s->found = s->n_found ? s->found % s->n_found : 0;
	for (size_t i = 1, k = 0; i < n && !at; i++)
		if (lg_top_holds(&l[i], s->view.find) && k++ == s->found)
			at = i;
	return at;
}

/* What the reader asked for, below the picture. */
static void put_foot(const struct screen *s, size_t below)
{
	const struct lg_top_view *v = &s->view;

	if (below || s->skip)
		printf("... %zu more below, %zu above; ? for keys ", below, s->skip);
	if (v->sort)
		printf("sort: %s%s  ", lg_top_column(v->sort), v->turned ? ", turned" : "");
	if (*v->filter || s->prompt == '\\')
		printf("filter: %s%s  ", v->filter, s->prompt == '\\' ? "_" : "");
	if (*v->find || s->prompt == '/')
		printf("search: %s%s (%zu of %zu)", v->find, s->prompt == '/' ? "_" : "",
		       s->n_found ? s->found + 1 : 0, s->n_found);
	fputs("\033[K", stdout);
}

/* The picture's first line, and as many of the others, from s->skip on, as there is room for. */
static void show(struct screen *s, const char *picture, size_t n, bool seek)
{
	bool foot = s->view.sort || *s->view.filter || *s->view.find || s->prompt;
	struct lg_top_line *l;
	size_t lines, room, body, more, at;

	if (!s->raw) {
		fwrite(picture, n, 1, stdout);
		fputs("\n", stdout);
		fflush(stdout);
		return;
	}
	l = lg_top_lines(picture, n, &s->view, &lines);
	if (!l)
		return;
	at = find(s, l, lines);
	room = s->height ? LG_MAX(s->height, 3u) : SIZE_MAX;
	body = lines <= room - foot ? lines - LG_MIN(lines, (size_t)1) : room - 2;
	more = lines - LG_MIN(lines, (size_t)1) - body;
	if (seek && at && (at <= s->skip || at > s->skip + body))
		s->skip = at - 1;
	s->skip = LG_MIN(s->skip, more);
	foot |= more != 0;
	fputs("\033[H", stdout);
	for (size_t i = 0; i < lines && i <= body + s->skip; i++)
		if (!i || i > s->skip)
			put_line(&l[i], at && i == at, !foot && i + 1 == lines);
	if (foot)
		put_foot(s, more - s->skip);
	say_to_screen("\033[J");
	lg_free(l);
}

enum wish {
	NOTHING, QUIT, PAUSE, EARLIER, LATER, HELP, UP, DOWN, PAGE_UP, PAGE_DOWN, TOP,
	FIND, FIND_NEXT, FILTER, SORT_NEXT, SORT_BEFORE, TURN, TYPED
};

/* As in htop where it has the same. */
static const char keys_help[] =
	"laggard top: keys\n"
	"  h ? F1         these keys\n"
	"  up down PgUp PgDn Home  what does not fit\n"
	"  / F3           search; F3: the next\n"
	"  \\ F4           only what holds a text\n"
	"  F6 > < I       sort ranks; turn round\n"
	"  space Z p      stop, go on; also a click\n"
	"  left right [ ] wheel    earlier, later\n"
	"  q F10 Ctrl-C   end\n";

static enum wish wish_of(char key)
{
	switch (key) {
	case 'q':
	case 'Q':
	case 4: /* Ctrl-D */
		return QUIT;
	case ' ':
	case 'p':
	case 'Z':
		return PAUSE;
	case '[':
		return EARLIER;
	case ']':
		return LATER;
	case 'h':
	case '?':
		return HELP;
	case '/':
		return FIND;
	case '\\':
		return FILTER;
	case '>':
	case '.':
		return SORT_NEXT;
	case '<':
	case ',':
		return SORT_BEFORE;
	case 'I':
		return TURN;
	default:
		return NOTHING;
	}
}

/* Behind ESC [ or ESC O (xterm's control sequences): *ret_n, how many bytes more than one it is. */
static enum wish escape_wish(const char *at, ssize_t n, ssize_t *ret_n)
{
	static const struct { const char *keys; enum wish w; } known[] = {
		{ "A", UP }, { "B", DOWN }, { "C", LATER }, { "D", EARLIER }, { "H", TOP }, { "1~", TOP },
		{ "5~", PAGE_UP }, { "6~", PAGE_DOWN }, { "P", HELP }, { "11~", HELP }, { "21~", QUIT },
		{ "R", FIND_NEXT }, { "13~", FIND_NEXT }, { "S", FILTER }, { "14~", FILTER },
		{ "17~", SORT_NEXT },
	};

	*ret_n = 0;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		ssize_t len = (ssize_t)strlen(known[i].keys);

		if (len <= n && !memcmp(at, known[i].keys, (size_t)len)) {
			*ret_n = len - 1;
			return known[i].w;
		}
	}
	return NOTHING;
}

/* "<BUTTON;X;YM": *ret_n, how long it is. The wheel moves in a recording, a click stops and goes on. */
static enum wish mouse_wish(const char *at, ssize_t n, ssize_t *ret_n)
{
	int button = 0;
	ssize_t i = 1;

	for (; i < n && at[i] >= '0' && at[i] <= '9' && button < 1000; i++)
		button = button * 10 + at[i] - '0';
	while (i < n && at[i] != 'M' && at[i] != 'm')
		i++;
	*ret_n = i < n ? i : n - 1;
	if (i >= n || at[i] != 'M') /* let go */
		return NOTHING;
	return button == 64 ? EARLIER : button == 65 ? LATER : button == 0 ? PAUSE : NOTHING;
}

/* Typed behind / or \: Enter keeps it, Escape takes it away. */
static enum wish type(struct screen *s, const char *keys, ssize_t n)
{
	char *text = s->prompt == '/' ? s->view.find : s->view.filter;

	for (ssize_t i = 0; i < n && s->prompt; i++) {
		size_t len = strlen(text);

		if (keys[i] == 27 && n - i >= 3 && keys[i + 1] == 'O' && keys[i + 2] == 'R') {
			s->found++;
			i += 2;
		} else if (keys[i] == 4) { /* Ctrl-D */
			return QUIT;
		} else if (keys[i] == 27 || keys[i] == '\r' || keys[i] == '\n') {
			if (keys[i] == 27)
				*text = 0;
			s->prompt = 0;
			break; /* what came with Escape is another key's */
		} else if ((keys[i] == 127 || keys[i] == 8) && len) {
			text[len - 1] = 0;
		} else if (keys[i] >= ' ' && keys[i] < 127 && len + 1 < LG_TOP_TEXT) {
			text[len] = keys[i];
			text[len + 1] = 0;
		}
	}
	return TYPED;
}

/* What changes the view is done at once. */
static enum wish change(struct screen *s, enum wish w, const char *rest, ssize_t n)
{
	if (w == SORT_NEXT || w == SORT_BEFORE)
		s->view.sort = (s->view.sort + (w == SORT_NEXT ? 1 : LG_TOP_COLUMNS - 1)) % LG_TOP_COLUMNS;
	else if (w == TURN)
		s->view.turned = !s->view.turned;
	else if (w == FIND_NEXT && *s->view.find)
		s->found++;
	else if (w == FIND || w == FIND_NEXT || w == FILTER) {
		s->prompt = w == FILTER ? '\\' : '/';
		s->found = 0;
		*(w == FILTER ? s->view.filter : s->view.find) = 0;
		return type(s, rest, n);
	}
	return w;
}

/* The first key that is one; an end among them is heard in any case. */
static enum wish first_wish(struct screen *s, const char *keys, ssize_t n)
{
	enum wish first = NOTHING;

	if (s->prompt)
		return type(s, keys, n);
	for (ssize_t i = 0; i < n && first != QUIT; i++) {
		enum wish w;

		if (n - i >= 3 && keys[i] == 27 && (keys[i + 1] == '[' || keys[i + 1] == 'O')) {
			ssize_t more = 0;

			i += 2;
			w = keys[i] == '<' ? mouse_wish(keys + i, n - i, &more)
					   : escape_wish(keys + i, n - i, &more);
			i += more;
		} else {
			w = wish_of(keys[i]);
		}
		if (first == NOTHING && w >= FIND)
			return change(s, w, keys + i + 1, n - i - 1);
		if (first == NOTHING || w == QUIT)
			first = w;
	}
	return first;
}

/* Wait for so long (-1: for ever), for a key or the end. */
static enum wish wait_for_wish(struct screen *s, int64_t ns)
{
	struct pollfd p[] = { { .fd = s->signals, .events = POLLIN },
			      { .fd = s->raw ? STDIN_FILENO : -1, .events = POLLIN } };
	char keys[64];
	ssize_t n;

	if (poll(p, 2, ns < 0 ? -1 : (int)(ns / 1000000)) <= 0)
		return NOTHING;
	if (p[0].revents)
		return QUIT;
	n = read(STDIN_FILENO, keys, sizeof keys);
	return n == 0 ? QUIT : first_wish(s, keys, n);
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * SECOND + t.tv_nsec;
}

/*
 * The picture for so long (-1: for ever), or until a key says otherwise: moving in it, and the list of keys,
 * are done with here. live: there is no other time to go to.
 */
static enum wish show_for(struct screen *s, const char *picture, size_t n, int64_t ns, bool live)
{
	int64_t until = now_ns() + ns;
	bool helped = false;

	show(s, picture, n, false);
	for (;;) {
		size_t page = s->height > 4 ? s->height - 3 : 1, was = s->skip;
		enum wish w = wait_for_wish(s, ns < 0 || helped ? -1 : LG_MAX(until - now_ns(), 0));

		if (live && (w == EARLIER || w == LATER))
			w = w == EARLIER ? UP : DOWN;
		if (w == QUIT || (!helped && w != NOTHING && w < HELP))
			return w;
		if (w == NOTHING && !helped && ns >= 0 && now_ns() >= until)
			return w;
		if (w == NOTHING)
			continue;
		helped = w == HELP && !helped;
		if (helped) {
			struct lg_top_view view = s->view;

			s->view = (struct lg_top_view){ 0 };
			show(s, keys_help, sizeof keys_help - 1, false);
			s->view = view;
			s->skip = was;
			continue;
		}
		if (w == UP || w == PAGE_UP)
			s->skip -= LG_MIN(s->skip, w == UP ? 1 : page);
		else if (w == DOWN || w == PAGE_DOWN)
			s->skip += w == DOWN ? 1 : page;
		else if (w == TOP)
			s->skip = 0;
		show(s, picture, n, w >= FIND);
	}
}

/* ---- a picture ----------------------------------------------------------------------------------- */

static int draw(struct lg_loaded *l, const struct screen *s, const char *head, struct lg_out *o,
		struct lg_error *err)
{
	struct lg_machine m;
	struct lg_top how = { .machine = &m, .head = head, .width = s->width, .colour = s->term.colour,
			      .utf8 = s->term.utf8 };
	struct lg_accounts a;
	int rc = lg_judge(l, 0, (double)NAN, err) ?: lg_accounts_make(&a, l->verdict, err);

	if (rc)
		return rc;
	rc = lg_machine_make(&m, l->verdict, &a, err);
	if (!rc)
		lg_report_top(l->verdict, &a, &how, o);
	lg_accounts_done(&a);
	return rc;
}

static void time_of_day(char *ret, size_t size)
{
	time_t now = time(NULL);
	struct tm tm;

	*ret = 0;
	if (localtime_r(&now, &tm))
		strftime(ret, size, "%H:%M:%S", &tm);
}

/* ---- of a recording ------------------------------------------------------------------------------ */

static int replay(char **paths, size_t n, const struct options *opt, struct screen *s, struct lg_error *err)
{
	struct lg_loaded l;
	const char *name = strrchr(paths[0], '/');
	int64_t at, length;
	bool paused = false;
	long shown = 0;
	int rc = lg_load(paths, n, &l, err);

	if (rc)
		return rc;
	length = l.trace->first <= l.trace->last ? l.trace->last - l.trace->first + 1 : 0;
	at = LG_MIN(opt->last_ns, length);
	if (!opt->batch)
		enter(s);
	for (enum wish w = NOTHING; w != QUIT && !rc;) {
		int64_t from = at - LG_MIN(opt->last_ns, at);
		struct lg_window window = { l.trace->first + from, l.trace->first + at };
		struct lg_loaded part = l;
		struct lg_out *o;
		char head[160];

		measure(s);
		part.verdict = NULL;
		rc = lg_window_trace(&part.trace, l.trace, &window, err);
		if (rc)
			break;
		snprintf(head, sizeof head, "%.1f to %.1f s of %.1f s%s  %s",
			 (double)from / 1e9, (double)at / 1e9, (double)length / 1e9, paused ? ", paused" : "", name ? name + 1 : paths[0]);
		rc = lg_out_memory(&o, err);
		rc = rc ?: draw(&part, s, head, o, err);
		w = NOTHING;
		if (!rc && s->raw)
			w = show_for(s, lg_out_view(o), lg_out_bytes(o),
				     paused || at >= length ? -1 : opt->every_ns, false);
		else if (!rc)
			show(s, lg_out_view(o), lg_out_bytes(o), false);
		lg_out_abort(o);
		lg_verdict_free(part.verdict);
		lg_window_trace_free(part.trace);
		shown++;
		if (!s->raw && (at >= length || (opt->count && shown >= opt->count)))
			break;
		if (w == PAUSE)
			paused = !paused;
		if (w == EARLIER)
			at -= opt->every_ns;
		else if (w == LATER || (w == NOTHING && !paused))
			at += opt->every_ns;
		at = LG_MAX(LG_MIN(at, length), LG_MIN(opt->every_ns, length));
	}
	leave(s);
	lg_loaded_done(&l);
	return rc;
}

/* ---- live ---------------------------------------------------------------------------------------- */

static void say(void *arg, const char *text)
{
	(void)arg;
	(void)text;
}

/* The recorder: its exit status tells how it ended. SIGUSR1 is blocked: it waits until it is asked for. */
static pid_t start_recorder(const struct options *opt, const char *path)
{
	pid_t pid = fork();
	struct lg_record_options r = { .out = path, .freq_hz = 99, .device_hz = 1, .confine = true,
				       .quiet = true, .profile = LG_PROFILE_DEFAULT, .ring_ns = opt->last_ns,
				       .pids = opt->pids.v, .n_pids = opt->pids.n, .job = opt->pids.job,
				       .env = environ, .cmdline = "laggard top", .say = say };
	struct lg_error err = { .offset = LG_NO_OFFSET };
	int status = LG_EXIT_FAILED;

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGTERM); /* nobody else would end it */
	if (lg_record(&r, &status, &err)) {
		lg_complain(&err);
		status = LG_EXIT_FAILED;
	}
	_exit(status);
}

/* In a child: judge the file and write the picture to fd. */
static void judge_aside(char *path, const struct screen *s, const char *head, int fd)
{
	struct lg_error err = { .offset = LG_NO_OFFSET };
	struct lg_loaded l;
	struct lg_out *o;
	size_t done = 0;
	int rc = lg_load(&path, 1, &l, &err) ?: lg_out_memory(&o, &err) ?: draw(&l, s, head, o, &err);

	if (rc) {
		dprintf(fd, "laggard top  %s\n%s\n", head, err.message);
		_exit(LG_EXIT_FAILED);
	}
	while (done < lg_out_bytes(o)) {
		ssize_t n = write(fd, lg_out_view(o) + done, lg_out_bytes(o) - done);

		if (n <= 0 && errno != EINTR)
			break;
		done += n > 0 ? (size_t)n : 0;
	}
	_exit(LG_EXIT_OK);
}

/* Into the new *ret, of PICTURE_BYTES. */
static int picture_of(char *path, const struct screen *s, const char *head, char **ret, size_t *ret_n,
		      struct lg_error *err)
{
	enum { PICTURE_BYTES = 1 << 20 };
	char *picture = malloc(PICTURE_BYTES);
	size_t n = 0;
	ssize_t got;
	int p[2];
	pid_t pid;

	if (!picture || pipe2(p, O_CLOEXEC)) {
		free(picture);
		*ret = NULL;
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	}
	pid = fork();
	if (!pid)
		judge_aside(path, s, head, p[1]);
	close(p[1]);
	do {
		got = read(p[0], picture + n, PICTURE_BYTES - n);
		n += got > 0 ? (size_t)got : 0;
	} while (n < PICTURE_BYTES && (got > 0 || (got < 0 && errno == EINTR)));
	close(p[0]);
	if (pid > 0)
		(void)waitpid(pid, NULL, 0);
	*ret = picture;
	*ret_n = n;
	return n ? 0 : lg_fail(err, LG_E_IO, LG_NO_OFFSET, "the last seconds could not be judged");
}

/* Has the recorder written the file? False: it has ended, or was not heard of for too long. */
static bool wait_for_dump(const char *path, pid_t recorder, struct screen *s, enum wish *w)
{
	enum { PATIENCE_MS = 15000, LOOK_MS = 20 };

	for (int ms = 0; ms < PATIENCE_MS && *w != QUIT; ms += LOOK_MS) {
		struct stat st;

		if (!stat(path, &st))
			return true;
		if (waitpid(recorder, NULL, WNOHANG) == recorder)
			return false;
		*w = wait_for_wish(s, LOOK_MS * INT64_C(1000000));
	}
	return false;
}

static int watch(const struct options *opt, const struct lg_runtime_dir *dir, struct screen *s,
		 struct lg_error *err)
{
	char path[sizeof dir->path + 32], head[96], when[16], *picture = NULL;
	size_t n = 0;
	enum wish w;
	pid_t recorder;
	int rc = 0;

	snprintf(path, sizeof path, "%s/top.lag", dir->path);
	recorder = start_recorder(opt, path);
	if (recorder < 0)
		return lg_fail(err, LG_E_IO, LG_NO_OFFSET, "fork: %s", strerror(errno));
	w = wait_for_wish(s, opt->every_ns);
	for (unsigned i = 1; w != QUIT && !rc; i++) {
		snprintf(path, sizeof path, "%s/top-%u.lag", dir->path, i);
		if (kill(recorder, SIGUSR1) || !wait_for_dump(path, recorder, s, &w)) {
			if (w != QUIT)
				rc = lg_fail(err, LG_E_IO, LG_NO_OFFSET, "the recorder has ended");
			break;
		}
		if (!opt->batch)
			enter(s);
		measure(s);
		time_of_day(when, sizeof when);
		snprintf(head, sizeof head, "%s  the last %.0f s", when, (double)opt->last_ns / 1e9);
		rc = picture_of(path, s, head, &picture, &n, err);
		unlink(path);
		if (!rc && opt->count && i >= (unsigned long)opt->count) {
			show(s, picture, n, false);
			w = QUIT;
		} else if (!rc) {
			w = show_for(s, picture, n, opt->every_ns, true);
			while (w == PAUSE && show_for(s, picture, n, -1, true) == QUIT)
				w = QUIT;
		}
		free(picture);
		picture = NULL;
	}
	leave(s);
	kill(recorder, SIGTERM);
	(void)waitpid(recorder, NULL, 0);
	return rc;
}

/* ---- the command --------------------------------------------------------------------------------- */

/* The exit status, or -1: go on. */
static int parse(int argc, char **argv, struct options *opt)
{
	static const struct option longs[] = {
		{ "job", required_argument, NULL, JOB },
		{ "every", required_argument, NULL, EVERY },
		{ "last", required_argument, NULL, LAST },
		{ "batch", no_argument, NULL, BATCH },
		LG_MAX_MEMORY_OPTION,
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	const struct lg_command *cmd = &lg_cmd_top;
	int c, rc = 0;

	opterr = 0;
	optind = 0; /* glibc: start anew */
	while (!rc && (c = getopt_long(argc, argv, ":hp:n:", longs, NULL)) != -1) {
		if (c == 'p')
			rc = lg_pids_option(cmd, optarg, &opt->pids);
		else if (c == JOB)
			rc = lg_job_option(cmd, optarg, &opt->pids);
		else if (c == 'n')
			rc = lg_parse_number(optarg, 1, 1000000, &opt->count) ? 0
			     : lg_usage(cmd, "-n wants a number of pictures, not \"%s\"", optarg);
		else if (c == BATCH)
			opt->batch = true;
		else if (c == EVERY || c == LAST)
			*(c == EVERY ? &opt->every_ns : &opt->last_ns) = lg_parse_duration(optarg);
		else if (c == LG_MAX_MEMORY)
			rc = LG_MAX(lg_max_memory_option(cmd, optarg), 0);
		else
			return lg_option_rest(cmd, c, argv[optind - 1]);
	}
	if (rc)
		return rc;
	if (opt->every_ns < SECOND / 2 || opt->last_ns < SECOND)
		return lg_usage(cmd, "--every wants a duration of half a second or more, --last one of a second or "
				     "more");
	if (optind < argc && (opt->pids.n || opt->pids.job))
		return lg_usage(cmd, "-p and --job look at living processes, FILE at a recording: give one of them");
	return -1;
}

static int live(struct options *opt, struct screen *s, struct lg_error *err)
{
	struct lg_runtime_dir dir;
	int rc = opt->pids.job ? lg_job_pids(&opt->pids, true) : 0;

	if (rc)
		return rc;
	rc = lg_runtime_dir_make(&dir, false, environ, err);
	if (rc)
		return rc;
	rc = watch(opt, &dir, s, err);
	lg_runtime_dir_remove(&dir);
	return rc;
}

static int run(int argc, char **argv)
{
	struct options opt = { .every_ns = 3 * SECOND, .last_ns = 30 * SECOND };
	struct lg_error err = { .offset = LG_NO_OFFSET };
	struct screen s = { .term = lg_terminal() };
	sigset_t taken;
	int rc = parse(argc, argv, &opt);

	if (rc < 0) {
		sigemptyset(&taken);
		sigaddset(&taken, SIGINT);
		sigaddset(&taken, SIGTERM);
		sigaddset(&taken, SIGHUP);
		s.signals = signalfd(-1, &taken, SFD_CLOEXEC);
		sigaddset(&taken, SIGUSR1);
		sigprocmask(SIG_BLOCK, &taken, NULL);
		opt.batch |= !isatty(STDOUT_FILENO);
		if (optind < argc)
			rc = replay(argv + optind, (size_t)(argc - optind), &opt, &s, &err);
		else
			rc = live(&opt, &s, &err);
		if (rc && *err.message)
			lg_complain(&err);
		rc = rc ? LG_EXIT_FAILED : LG_EXIT_OK;
	}
	lg_pids_free(&opt.pids);
	return rc;
}

const struct lg_command lg_cmd_top = {
	.name = "top",
	.args = "[-p PID,... | --job JOB | FILE...] [OPTION]...",
	.summary = "the last seconds of a job, live: steps, ranks side by side, who stalls whom",
	.help =
	"Of a job that runs, of the whole machine where none is named, or of a recording, which is played.\n"
	"Keys: ? lists them; space or a click stops and goes on, left and right or the wheel move in a recording, up and\n"
	"down show what does not fit the screen, / searches, \\ filters, F6 or < > sort the ranks, q ends.\n\n"
	"  -p PID,...           the ranks' processes (repeatable)\n"
	"  --job JOB            slurm:ID, ray:NAME, container:ID, cgroup:PATH or match:REGEX (laggard-record(1))\n"
	"  --last DUR           show so much (default 30s)\n"
	"  --every DUR          a picture so often (default 3s); of a recording: go on by so much\n"
	"  --batch              no screen, no keys: a picture below the other; so where output is no terminal\n"
	"  -n N                 end after N pictures\n"
	LG_MAX_MEMORY_HELP
	"\n"
	"example:\n"
	"  laggard top --job match:train.py\n",
	.run = run,
};
