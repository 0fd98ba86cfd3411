/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/serve.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/confine.h"

enum { WORD_BYTES = 16, CONNECTIONS = 32, IDLE_S = 30, REQUEST_BYTES = 16 << 10, PAIR = 3 };

struct lg_server {
	int sock, pair; /* to listen on; to the process that answers */
	pid_t pid;
	uint16_t port;
	char word[2 * WORD_BYTES + 1], address[96];
	const struct lg_document *documents;
	size_t n;
	const struct lg_live *live; /* in place of documents; */
	const char *live_path, *live_type, *token;
	/* Where it answers: */
	int file[LG_DOCUMENTS_MAX];
	uint64_t bytes[LG_DOCUMENTS_MAX];
};

/* libmicrohttpd brings a TLS library along, which no other command shall load. Never unloaded. */
static struct {
	__typeof__(MHD_start_daemon) *start;
	__typeof__(MHD_stop_daemon) *stop;
	__typeof__(MHD_lookup_connection_value) *header;
	__typeof__(MHD_create_response_from_buffer) *of_buffer;
	__typeof__(MHD_create_response_from_fd_at_offset64) *of_file;
	__typeof__(MHD_add_response_header) *add_header;
	__typeof__(MHD_queue_response) *queue;
	__typeof__(MHD_destroy_response) *destroy;
} mhd;

static int open_library(struct lg_error *err)
{
	static const char file[] = "libmicrohttpd.so.12";
	void *lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	const struct {
		const char *name;
		void *at;
	} wanted[] = {
		{ "MHD_start_daemon", &mhd.start },
		{ "MHD_stop_daemon", &mhd.stop },
		{ "MHD_lookup_connection_value", &mhd.header },
		{ "MHD_create_response_from_buffer", &mhd.of_buffer },
		{ "MHD_create_response_from_fd_at_offset64", &mhd.of_file },
		{ "MHD_add_response_header", &mhd.add_header },
		{ "MHD_queue_response", &mhd.queue },
		{ "MHD_destroy_response", &mhd.destroy },
	};

	if (!lib)
		return lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET,
			       "%s is not here: apt-get install libmicrohttpd12 (or libmicrohttpd12t64); without it, "
			       "laggard explain --html and laggard convert write the same as files", file);
	for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
		*(void **)wanted[i].at = dlsym(lib, wanted[i].name);
		if (!*(void **)wanted[i].at)
			return lg_fail(err, LG_E_UNSUPPORTED, LG_NO_OFFSET, "%s has no %s", file, wanted[i].name);
	}
	return 0;
}

/* Takes as long whether the first or the last character differs. */
static bool is_word(const char *a, const char *word, size_t n)
{
	unsigned differ = 0;

	for (size_t i = 0; i < n; i++) {
		differ |= (unsigned char)a[i] ^ (unsigned char)word[i];
		if (!a[i])
			return false;
	}
	return !differ;
}

/* A name by which a browser may call us, whatever the port: `ssh -L` brings its own. */
static bool is_of_this_machine(const char *host)
{
	static const char *const names[] = { "127.0.0.1", "localhost", "[::1]" };

	for (size_t i = 0; host && i < sizeof names / sizeof *names; i++) {
		size_t n = strlen(names[i]);

		if (!strncasecmp(host, names[i], n) && (!host[n] || host[n] == ':'))
			return true;
	}
	return false;
}

/* The document's number, s->n if there is none. */
static size_t document_at(const struct lg_server *s, const char *url)
{
	size_t n = strlen(s->word), i = 0;

	if (url[0] != '/' || strnlen(url + 1, n + 1) <= n || !is_word(url + 1, s->word, n) ||
	    url[1 + n] != '/')
		return s->n;
	while (i < s->n && strcmp(url + n + 2, s->documents[i].name))
		i++;
	return i;
}

static enum MHD_Result send_text(struct MHD_Connection *c, unsigned status, const char *text)
{
	struct MHD_Response *r = mhd.of_buffer(strlen(text), (void *)(uintptr_t)text,
								 MHD_RESPMEM_PERSISTENT);
	enum MHD_Result rc;

	if (!r)
		return MHD_NO;
	(void)mhd.add_header(r, "Content-Type", "text/plain; charset=utf-8");
	(void)mhd.add_header(r, "X-Content-Type-Options", "nosniff");
	rc = mhd.queue(c, status, r);
	mhd.destroy(r);
	return rc;
}

static enum MHD_Result send_document(struct MHD_Connection *c, const struct lg_server *s, size_t i)
{
	static const char *const always[][2] = {
		{ "X-Content-Type-Options", "nosniff" },
		{ "X-Frame-Options", "DENY" },
		{ "Referrer-Policy", "no-referrer" },
		{ "Cross-Origin-Resource-Policy", "same-origin" },
		{ "Cache-Control", "no-store" },
	};
	int file = dup(s->file[i]);
	struct MHD_Response *r = file >= 0 ? mhd.of_file(s->bytes[i], file, 0) : NULL;
	enum MHD_Result rc;

	if (!r) {
		if (file >= 0)
			close(file);
		return MHD_NO;
	}
	for (size_t k = 0; k < sizeof always / sizeof *always; k++)
		(void)mhd.add_header(r, always[k][0], always[k][1]);
	(void)mhd.add_header(r, "Content-Type", s->documents[i].type);
	rc = mhd.queue(c, MHD_HTTP_OK, r);
	mhd.destroy(r);
	return rc;
}

/* A copy that nobody writes to meanwhile; the caller's to free. NULL: there was none to be had. */
static char *copy_live(const struct lg_live *l, size_t *ret_n)
{
	char *copy = lg_calloc(LG_LIVE_BYTES, 1);

	for (unsigned i = 0; copy && i < 1000; i++) {
		uint32_t before = atomic_load(&l->writes);
		size_t n = atomic_load(&l->n);

		if (before & 1 || n > LG_LIVE_BYTES) {
			usleep(1000);
			continue;
		}
		memcpy(copy, l->text, n);
		atomic_thread_fence(memory_order_acquire);
		if (atomic_load(&l->writes) != before)
			continue;
		*ret_n = n;
		return copy;
	}
	lg_free(copy);
	return NULL;
}

bool lg_live_write(struct lg_live *l, const char *text, size_t n)
{
	if (n > LG_LIVE_BYTES)
		return false;
	atomic_fetch_add(&l->writes, 1);
	memcpy(l->text, text, n);
	atomic_store(&l->n, (uint32_t)n);
	atomic_fetch_add(&l->writes, 1);
	return true;
}

static enum MHD_Result send_live(struct MHD_Connection *c, const struct lg_server *s, const char *url)
{
	static const char bearer[] = "Bearer ";
	const char *said = mhd.header(c, MHD_HEADER_KIND, "Authorization");
	size_t n = strlen(s->token), bytes = 0;
	struct MHD_Response *r;
	enum MHD_Result rc;
	char *copy;

	if (!said || strncmp(said, bearer, sizeof bearer - 1) || strlen(said) != sizeof bearer - 1 + n ||
	    !is_word(said + sizeof bearer - 1, s->token, n))
		return send_text(c, MHD_HTTP_UNAUTHORIZED, "send the token\n");
	if (strcmp(url, s->live_path))
		return send_text(c, MHD_HTTP_NOT_FOUND, "nothing here\n");
	copy = copy_live(s->live, &bytes);
	if (!copy)
		return MHD_NO;
	r = mhd.of_buffer(bytes, copy, MHD_RESPMEM_MUST_COPY);
	lg_free(copy);
	if (!r)
		return MHD_NO;
	(void)mhd.add_header(r, "Content-Type", s->live_type);
	(void)mhd.add_header(r, "X-Content-Type-Options", "nosniff");
	rc = mhd.queue(c, MHD_HTTP_OK, r);
	mhd.destroy(r);
	return rc;
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *c, const char *url, const char *method,
			      const char *version, const char *data, size_t *n_data, void **state)
{
	const struct lg_server *s = arg;
	size_t i;

	(void)version;
	(void)data;
	(void)n_data;
	(void)state;
	if (strcmp(method, "GET") && strcmp(method, "HEAD"))
		return send_text(c, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET\n");
	if (!is_of_this_machine(mhd.header(c, MHD_HEADER_KIND, "Host")))
		return send_text(c, MHD_HTTP_FORBIDDEN, "call 127.0.0.1 or localhost\n");
	if (s->live)
		return send_live(c, s, url);
	i = document_at(s, url);
	return i < s->n ? send_document(c, s, i) : send_text(c, MHD_HTTP_NOT_FOUND, "nothing here\n");
}

/* ---- the process that answers --------------------------------------------------------------------- */

/* The socket to listen on, then the documents, as they come over the pair. False: there will be none. */
static bool receive(struct lg_server *s)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * (1 + LG_DOCUMENTS_MAX))];
	} room;
	int all[1 + LG_DOCUMENTS_MAX];
	char byte;
	struct iovec io = { &byte, 1 };
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1, .msg_control = &room,
			    .msg_controllen = sizeof room };
	struct cmsghdr *c;
	struct stat st;

	if (recvmsg(PAIR, &m, MSG_CMSG_CLOEXEC) != 1)
		return false;
	c = CMSG_FIRSTHDR(&m);
	if (!c || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(sizeof(int) * (1 + s->n)))
		return false;
	memcpy(all, CMSG_DATA(c), sizeof(int) * (1 + s->n));
	s->sock = all[0];
	for (size_t i = 0; i < s->n; i++) {
		if (fstat(all[1 + i], &st))
			return false;
		s->file[i] = all[1 + i];
		s->bytes[i] = (uint64_t)st.st_size;
	}
	return true;
}

static void serve(struct lg_server *s)
{
	struct lg_error ignored;
	char byte;

	/* A terminal's Ctrl-C comes to both: the parent ends us. */
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	lg_confine_to_socket(s->pair, PAIR);
	/* Where that cannot be done, it is served as who called us. */
	(void)!lg_confine_to_own_user(&ignored);
	(void)!lg_confine_to_files(false, &ignored);
	if (!receive(s))
		return;
	if (mhd.start(MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, answer, s,
		      MHD_OPTION_LISTEN_SOCKET, s->sock, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS,
		      MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S,
		      MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)REQUEST_BYTES, MHD_OPTION_END))
		while (read(PAIR, &byte, 1) > 0)
			;
}

/* ---- its parent ---------------------------------------------------------------------------------- */

static int start_process(struct lg_server *s, struct lg_error *err)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return lg_fail(err, LG_E_IO, LG_NO_OFFSET, "socketpair: %s", strerror(errno));
	s->pid = fork();
	if (!s->pid) {
		s->pair = pair[1];
		serve(s);
		_exit(0);
	}
	s->pair = pair[0];
	close(pair[1]);
	return s->pid > 0 ? 0 : lg_fail(err, LG_E_IO, LG_NO_OFFSET, "fork: %s", strerror(errno));
}

struct lg_live_page {
	const struct lg_live *live;
	const char *path, *type, *token;
};

static int open_server(struct lg_server **ret, uint16_t port, const struct lg_document *documents, size_t n,
		       const struct lg_live_page *page, struct lg_error *err)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct lg_server *s = lg_calloc(1, sizeof *s);
	socklen_t len = sizeof at;
	uint8_t word[WORD_BYTES];
	int rc;

	if (!s)
		return lg_fail(err, LG_E_NOMEM, LG_NO_OFFSET, "out of memory");
	*s = (struct lg_server){ .sock = -1, .pair = -1, .documents = documents, .n = n };
	if (page) {
		s->live = page->live;
		s->live_path = page->path;
		s->live_type = page->type;
		s->token = page->token;
	}
	rc = open_library(err);
	if (rc)
		goto failed;
	s->sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s->sock < 0 || bind(s->sock, (struct sockaddr *)&at, len) || listen(s->sock, CONNECTIONS) ||
	    getsockname(s->sock, (struct sockaddr *)&at, &len) ||
	    getrandom(word, sizeof word, 0) != (ssize_t)sizeof word) {
		rc = lg_fail(err, LG_E_IO, LG_NO_OFFSET, "cannot listen on 127.0.0.1, port %u: %s", port,
			     strerror(errno));
		goto failed;
	}
	for (size_t i = 0; i < sizeof word; i++)
		snprintf(s->word + 2 * i, 3, "%02x", word[i]);
	s->port = ntohs(at.sin_port);
	snprintf(s->address, sizeof s->address, "http://127.0.0.1:%u/%s/", s->port, s->word);
	rc = start_process(s, err);
	if (rc)
		goto failed;
	*ret = s;
	return 0;
failed:
	lg_serve_close(s);
	return rc;
}

int lg_serve_open(struct lg_server **ret, uint16_t port, const struct lg_document *documents, size_t n,
		  struct lg_error *err)
{
	return open_server(ret, port, documents, n, NULL, err);
}

int lg_serve_live(struct lg_server **ret, uint16_t port, const char *path, const char *type,
		  const char *token, const struct lg_live *live, struct lg_error *err)
{
	struct lg_live_page page = { live, path, type, token };
	int rc = open_server(ret, port, NULL, 0, &page, err);

	if (rc)
		return rc;
	rc = lg_serve_start(*ret, NULL, err);
	if (rc)
		lg_serve_close(*ret);
	return rc;
}

const char *lg_serve_address(const struct lg_server *s)
{
	return s->address;
}

uint16_t lg_serve_port(const struct lg_server *s)
{
	return s->port;
}

int lg_serve_start(struct lg_server *s, const int *file, struct lg_error *err)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * (1 + LG_DOCUMENTS_MAX))];
	} room = { .align = { .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
			      .cmsg_len = CMSG_LEN(sizeof(int) * (1 + s->n)) } };
	char byte = 0;
	struct iovec io = { &byte, 1 };
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1, .msg_control = &room,
			    .msg_controllen = CMSG_SPACE(sizeof(int) * (1 + s->n)) };

	memcpy(CMSG_DATA(&room.align), &s->sock, sizeof(int));
	if (s->n)
		memcpy(CMSG_DATA(&room.align) + sizeof(int), file, sizeof(int) * s->n);
	if (sendmsg(s->pair, &m, MSG_NOSIGNAL) == 1)
		return 0;
	return lg_fail(err, LG_E_IO, LG_NO_OFFSET, "the server has ended: %s", strerror(errno));
}

int lg_serve_until(struct lg_server *s, const sigset_t *signals, struct lg_error *err)
{
	int ends = signalfd(-1, signals, SFD_CLOEXEC);
	struct pollfd p[] = { { .fd = ends, .events = POLLIN }, { .fd = s->pair, .events = POLLIN } };

	while (ends >= 0 && poll(p, 2, -1) < 0 && errno == EINTR)
		;
	if (ends >= 0)
		close(ends);
	if (p[0].revents & POLLIN)
		return 0;
	return lg_fail(err, LG_E_IO, LG_NO_OFFSET, "the server has ended");
}

void lg_serve_close(struct lg_server *s)
{
	if (!s)
		return;
	if (s->pair >= 0)
		close(s->pair);
	if (s->sock >= 0)
		close(s->sock);
	if (s->pid > 0)
		(void)waitpid(s->pid, NULL, 0);
	lg_free(s);
}
