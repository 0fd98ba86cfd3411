/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_agent.c - laggard agent: one loop over jobs, children and signals, always on. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/order.h"
#include "cli/agent.h"
#include "cli/load.h"
#include "fleet/questions.h"

#define SECOND LG_AGENT_SECOND
#define TIDY_EVERY (600 * SECOND)
#define DEFAULT_FILE "/etc/laggard/agent.conf"
enum { TICK_MS = 250, OPTIONS_MAX = 32 };

struct told {
	const char *config; /* NULL = the default file, if it is there */
	const char *key[OPTIONS_MAX], *value[OPTIONS_MAX];
	size_t n;
	bool json, status;
};

void lg_agent_trouble(struct lg_agent *a, const char *fmt, ...)
{
	char text[LG_AGENT_TEXT];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (strcmp(text, a->said)) /* what goes on is said once */
		lg_say("%s", text);
	memcpy(a->said, text, sizeof a->said);
}

/* ---- settings: defaults, the file, the environment, the command line ------------------------------ */

static int settings_of(const struct told *t, struct lg_agent_settings *ret, struct lg_error *err)
{
	const char *store = getenv("LAGGARD_STORE");
	int rc;

	*ret = lg_agent_defaults();
	rc = lg_agent_read(ret, t->config ? t->config : DEFAULT_FILE, t->config != NULL, err);
	if (!rc && store && *store)
		rc = lg_agent_set(ret, "store", store, err);
	for (size_t i = 0; i < t->n && !rc; i++)
		rc = lg_agent_set(ret, t->key[i], t->value[i], err);
	if (!rc && *ret->state != '/')
		rc = lg_fail(err, LG_E_USAGE, LG_NO_OFFSET, "state: want a folder from the root, not \"%s\"", ret->state);
	if (!rc && !*ret->node)
		rc = lg_fail(err, LG_E_USAGE, LG_NO_OFFSET, "node: want a name");
	if (!rc && *ret->store) {
		struct lg_fleet_options o = { .store = ret->store };
		struct lg_fleet *f = NULL;
		bool file = !strncmp(ret->store, "sqlite:", 7);

		/* Whether it answers is the sender's matter; whether it is one is said at once. */
		rc = file ? 0 : lg_fleet_open(&f, &o, err);
		lg_fleet_close(f);
	}
	return rc;
}

/* ---- batches -------------------------------------------------------------------------------------- */

static void describe_node(struct lg_agent *a)
{
	struct utsname u;
	struct lg_fleet_node row = { .node = a->node, .name = a->set.node,
				     .ver = (uint64_t)(lg_agent_now() + a->wall_offset) / 1000 };

	row.kernel = uname(&u) ? "" : u.release;
	lg_fleet_add_node(a->batch, &row);
}

static void flush(struct lg_agent *a)
{
	uint64_t now_us = (uint64_t)(lg_agent_now() + a->wall_offset) / 1000, last;
	struct lg_error err = { .offset = LG_NO_OFFSET };
	size_t rows = lg_fleet_batch_rows(a->batch, LG_FLEET_T_RANK_STEP) +
		      lg_fleet_batch_rows(a->batch, LG_FLEET_T_STALL);
	struct lg_fleet_batch_row row = { .node = a->node,
					  .agent = a->agent_id,
					  .seq = ++a->seq,
					  .t0_us = now_us,
					  .rows = (uint32_t)rows,
					  .ver = now_us };
	char *bytes = NULL;
	size_t n = 0;
	int rc;

	a->batch_due = false;
	if (!rows && !lg_fleet_batch_rows(a->batch, LG_FLEET_T_JOB) &&
	    !lg_fleet_batch_rows(a->batch, LG_FLEET_T_NODE)) {
		a->seq--;
		if (*a->set.store)
			(void)!lg_spool_look(&a->spool, &last, &err);
		return;
	}
	describe_node(a);
	row.dropped = a->spool.dropped_rows;
	lg_fleet_add_batch(a->batch, &row);
	rc = lg_fleet_batch_pack(a->batch, &bytes, &n, &err);
	if (rc) {
		a->spool.dropped_rows += rows;
		lg_agent_trouble(a, "%s", err.message);
		return;
	}
	a->rows += rows;
	if (lg_fleet_put(a->own, bytes, n, &err))
		lg_agent_trouble(a, "%s", err.message);
	if (*a->set.store && (lg_spool_look(&a->spool, &last, &err) ||
			      lg_spool_add(&a->spool, a->seq, (uint32_t)rows, bytes, n, &err)))
		lg_agent_trouble(a, "%s", err.message);
	lg_free(bytes);
}

/* ---- beginning and end ---------------------------------------------------------------------------- */

static int make_folder(const char *path, struct lg_error *err)
{
	struct stat st;

	if (mkdir(path, 0700) && errno != EEXIST)
		return lg_fail_errno(err, errno, "cannot make the folder %.300s", path);
	if (lstat(path, &st) || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 022)
		return lg_fail(err, LG_E_PERM, LG_NO_OFFSET, "%.300s is to be a folder of this user that no other may write to", path);
	return 0;
}

/* Files of rings whose agent was killed. */
static void sweep_rings(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (fd >= 0 && !d)
		close(fd);
	while (d && (e = readdir(d)))
		if (strstr(e->d_name, ".lag"))
			unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
}

static int open_state(struct lg_agent *a, struct lg_error *err)
{
	char path[LG_AGENT_TEXT + 32], store[LG_AGENT_TEXT + 32];
	struct lg_fleet_options own = { .store = store, .write = true };
	uint32_t from;
	uint64_t last = 0;
	int rc = make_folder(a->set.state, err);

	/* Children of one that was killed end soon. */
	for (int64_t until = lg_agent_now() + 5 * SECOND; !rc;) {
		rc = lg_agent_lock(&a->set, &a->lock, err);
		if (rc != LG_E_PERM || lg_agent_now() > until)
			break;
		usleep(100000);
		rc = 0;
	}
	snprintf(path, sizeof path, "%s/ring", a->set.state);
	if (!rc)
		rc = make_folder(path, err);
	snprintf(path, sizeof path, "%s/spool", a->set.state);
	rc = rc ?: lg_spool_open(&a->spool, path, a->set.spool_bytes, err);
	rc = rc ?: lg_spool_look(&a->spool, &last, err);
	snprintf(store, sizeof store, "sqlite:%s/agent.db", a->set.state);
	rc = rc ?: lg_fleet_open(&a->own, &own, err) ?: lg_fleet_init(a->own, &from, err);
	/* Numbers of batches rise, whatever was lost: no later one takes the name of one that waits. */
	a->seq = LG_MAX(last, (uint64_t)(lg_agent_now() + a->wall_offset) / 1000);
	return rc;
}

static void tell_systemd(const char *what)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	size_t n = path ? strlen(path) : 0;
	int fd;

	if (!n || n >= sizeof to.sun_path || (*path != '/' && *path != '@'))
		return;
	memcpy(to.sun_path, path, n);
	if (*path == '@')
		to.sun_path[0] = 0;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	(void)!sendto(fd, what, strlen(what), MSG_NOSIGNAL, (struct sockaddr *)&to,
		      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
	close(fd);
}

static void reap(struct lg_agent *a)
{
	struct rusage used;
	int status;
	pid_t pid;

	while ((pid = wait4(-1, &status, WNOHANG, &used)) > 0)
		lg_agent_child_ended(a, pid, status, (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
				     (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6);
}

static void reload(struct lg_agent *a, const struct told *t)
{
	struct lg_error err = { .offset = LG_NO_OFFSET };
	struct lg_agent_settings fresh;

	if (settings_of(t, &fresh, &err)) {
		lg_agent_trouble(a, "the settings stay as they were: %s", err.message);
		return;
	}
	memcpy(fresh.state, a->set.state, sizeof fresh.state); /* where it stands it stays */
	a->set = fresh;
	a->spool.most_bytes = fresh.spool_bytes;
	a->node = lg_fleet_node_number(a->set.node);
	if (a->sender > 0)
		kill(a->sender, SIGTERM);
	lg_say("the settings were read again");
}

/* ---- the loop ------------------------------------------------------------------------------------- */

static void set_clock(struct lg_agent *a)
{
	struct timespec wall;

	clock_gettime(CLOCK_REALTIME, &wall);
	a->wall_offset = wall.tv_sec * SECOND + wall.tv_nsec - lg_agent_now();
}

/* False: it is to end. */
static bool take_signals(struct lg_agent *a, const struct told *t, int fd)
{
	struct signalfd_siginfo si;

	while (read(fd, &si, sizeof si) == (ssize_t)sizeof si) {
		if (si.ssi_signo == SIGTERM || si.ssi_signo == SIGINT)
			return false;
		if (si.ssi_signo == SIGHUP)
			reload(a, t);
	}
	return true;
}

static void wait_a_little(const struct lg_agent *a, int signals)
{
	struct pollfd p[2] = { { .fd = signals, .events = POLLIN }, { .fd = a->judge_fd, .events = POLLIN } };

	(void)poll(p, 2, TICK_MS);
}

static void watch(struct lg_agent *a, const struct told *t, int signals)
{
	int64_t looked = 0, flushed = lg_agent_now(), tidied = flushed, sent_at = 0;
	uint64_t n;

	while (take_signals(a, t, signals)) {
		struct lg_error err = { .offset = LG_NO_OFFSET };
		int64_t now = lg_agent_now();

		set_clock(a);
		reap(a);
		if (*a->set.store && a->sender <= 0 && now - sent_at > SECOND) {
			a->sender = lg_agent_send_start(&a->set, a->sent, a->lock);
			sent_at = now;
		}
		for (size_t i = 0; i < a->n_jobs; i++)
			lg_agent_take_steps(a, &a->job[i]);
		lg_agent_take_stalls(a);
		if (now - looked >= a->set.scan_ns) {
			lg_agent_look(a);
			looked = now;
		}
		lg_agent_windows(a);
		lg_agent_reckon(a);
		if (a->batch_due || now - flushed >= a->set.flush_ns) {
			flush(a);
			lg_agent_write_state(a);
			flushed = now;
		}
		if (now - tidied >= TIDY_EVERY) {
			uint64_t wall = (uint64_t)(now + a->wall_offset) / 1000,
				 keep = (uint64_t)a->set.keep_ns / 1000;

			for (enum lg_fleet_table_id i = 0; i < LG_FLEET_N_TABLES; i++)
				if (lg_fleet_forget(a->own, i, wall > keep ? wall - keep : 0, &n, &err))
					lg_agent_trouble(a, "%s", err.message);
			tidied = now;
		}
		wait_a_little(a, signals);
	}
}

static void finish(struct lg_agent *a)
{
	tell_systemd("STOPPING=1");
	lg_agent_end_jobs(a);
	flush(a);
	if (a->sender > 0) {
		kill(a->sender, SIGTERM);
		(void)waitpid(a->sender, NULL, 0);
	}
	lg_agent_write_state(a);
}

static int run_agent(struct lg_agent *a, const struct told *t)
{
	static const int taken[] = { SIGTERM, SIGINT, SIGHUP, SIGCHLD };
	struct lg_error err = { .offset = LG_NO_OFFSET };
	char rings[LG_AGENT_TEXT + 32];
	int signals, rc;
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < LG_COUNT(taken); i++)
		sigaddset(&set, taken[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	set_clock(a);
	a->began = lg_agent_now();
	a->node = lg_fleet_node_number(a->set.node);
	a->judge_fd = a->lock = -1;
	a->sent = mmap(NULL, sizeof *a->sent, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (getrandom(&a->agent_id, sizeof a->agent_id, 0) != (ssize_t)sizeof a->agent_id || signals < 0 ||
	    a->sent == MAP_FAILED) {
		lg_say("%s", strerror(errno));
		return LG_EXIT_FAILED;
	}
	rc = open_state(a, &err) ?: lg_fleet_batch_new(&a->batch, &err) ?:
	     lg_node_jobs_new(&a->found, getpid(), &err) ?: lg_agent_serve(a, &err);
	if (rc) {
		lg_complain(&err);
		return LG_EXIT_FAILED;
	}
	snprintf(rings, sizeof rings, "%s/ring", a->set.state);
	sweep_rings(rings);
	describe_node(a);
	lg_agent_write_state(a);
	tell_systemd("READY=1");
	watch(a, t, signals);
	finish(a);
	return LG_EXIT_OK;
}

static void close_agent(struct lg_agent *a)
{
	lg_serve_close(a->server);
	lg_fleet_close(a->own);
	lg_fleet_batch_free(a->batch);
	lg_node_jobs_free(a->found);
	if (a->spool.dir > 0)
		lg_spool_close(&a->spool);
	lg_free(a);
}

/* ---- the command ---------------------------------------------------------------------------------- */

/* The exit status, or -1: go on. Every setting is an option of the same name. */
static int parse(int argc, char **argv, struct told *t)
{
	const struct lg_command *cmd = &lg_cmd_agent;

	for (int i = 1; i < argc; i++) {
		const char *a = argv[i], *eq;
		char name[32];

		if (!strcmp(a, "status") && !t->status) {
			t->status = true;
			continue;
		}
		if (!strcmp(a, "--help") || !strcmp(a, "-h"))
			return lg_help(cmd);
		if (!strcmp(a, "--json")) {
			t->json = true;
			continue;
		}
		if (strncmp(a, "--", 2))
			return lg_usage(cmd, "no argument \"%s\"", a);
		eq = strchr(a, '=');
		snprintf(name, sizeof name, "%.*s", (int)(eq ? eq - a - 2 : 31), a + 2);
		if (strcmp(name, "config") && !lg_agent_is_setting(name))
			return lg_usage(cmd, "no option \"%s\"", a);
		if (!eq && i + 1 >= argc)
			return lg_usage(cmd, "%s wants a value", a);
		if (t->n == OPTIONS_MAX)
			return lg_usage(cmd, "too many options");
		if (!strcmp(name, "config")) {
			t->config = eq ? eq + 1 : argv[++i];
			continue;
		}
		t->key[t->n] = eq ? NULL : a + 2;
		if (eq) {
			argv[i][eq - a] = 0;
			t->key[t->n] = argv[i] + 2;
		}
		t->value[t->n++] = eq ? eq + 1 : argv[++i];
	}
	if (t->json && !t->status)
		return lg_usage(cmd, "--json goes with status");
	return -1;
}

static int run(int argc, char **argv)
{
	struct told t = { 0 };
	struct lg_error err = { .offset = LG_NO_OFFSET };
	struct lg_agent *a;
	int rc = parse(argc, argv, &t);

	if (rc >= 0)
		return rc;
	a = lg_calloc(1, sizeof *a);
	if (!a)
		return lg_usage(&lg_cmd_agent, "out of memory");
	rc = settings_of(&t, &a->set, &err);
	if (rc) {
		lg_complain(&err);
		rc = rc == LG_E_USAGE ? LG_EXIT_USAGE : LG_EXIT_FAILED;
	} else if (t.status) {
		rc = lg_agent_status(&a->set, t.json);
	} else {
		rc = run_agent(a, &t);
	}
	close_agent(a);
	return rc;
}

const struct lg_command lg_cmd_agent = {
	.name = "agent",
	.args = "[status [--json]] [OPTION]...",
	.summary = "watch the jobs of this node, always, and tell a store",
	.help =
	"Finds training jobs by itself, has their steps from the marks of the hook (laggard env), and evidence of what\n"
	"slow steps were lost to. laggard fleet asks the store; what this node found is in agent.db of its folder, too.\n\n"
	"  status               how it fares: jobs, rows, spool, cost (exit status 3: it cannot send)\n"
	"  --config FILE        settings, KEY = VALUE (default /etc/laggard/agent.conf, if it is there)\n"
	"  --state DIR          its folder (default /var/lib/laggard)\n"
	"  --store STORE        send to sqlite:PATH or http(s)://HOST:PORT/DB (default: LAGGARD_STORE; none)\n"
	"  --user NAME          the store's user\n"
	"  --token-file FILE    its token, in the first line of FILE\n"
	"  --ca-file FILE       who vouches for an https store\n"
	"  --cluster NAME       jobs of different clusters are different ones\n"
	"  --node NAME          this node (default: its host name)\n"
	"  --budget SHARE       of a CPU for each rank (default 0.5%)\n"
	"  --freq HZ            CPU samples a second and CPU (default 19; 0 = none)\n"
	"  --window DUR         ask so often what was lost (default 20s)\n"
	"  --scan DUR           look for jobs so often (default 5s)\n"
	"  --flush DUR          a batch of rows so often (default 10s)\n"
	"  --jobs N             jobs that are watched at once (default 4)\n"
	"  --keep DUR           its own rows (default 24h)\n"
	"  --spool-size SIZE    of batches that wait (default 1G)\n"
	"  --textfile FILE      metrics for node_exporter\n"
	"  --metrics PORT       metrics on 127.0.0.1, to who has the token in metrics.token of its folder\n"
	"  --json               status as JSON\n\n"
	"example:\n"
	"  laggard agent --store sqlite:/var/lib/laggard/fleet.db\n",
	.run = run,
};
