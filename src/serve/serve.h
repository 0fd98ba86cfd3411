/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve.h - a few documents for a browser on this machine.
 *
 * Listens on 127.0.0.1 alone. Other users of the machine reach that, too, and so do pages that a browser
 * shows: what is served lies below a random word of 128 bits, which only who started us was told, and is
 * given only to who calls us by a name of this machine (a name that an attacker's DNS points here is
 * refused). There are no other paths, no files are looked up, and nothing is changed by a request.
 * Requests are read by a process of its own without privileges, to which the open documents are passed.
 */
#ifndef LG_SERVE_SERVE_H
#define LG_SERVE_SERVE_H
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { LG_DOCUMENTS_MAX = 8 };

struct lg_document {
	const char *name; /* below the random word; "" is that folder itself */
	const char *type; /* Content-Type */
};

struct lg_server;

/*
 * A page that changes, in memory that its writer and the process that answers share (mmap(), before it is
 * served). One writes it.
 */
enum { LG_LIVE_BYTES = 1 << 20 };
struct lg_live {
	_Atomic uint32_t writes; /* odd while it is being written */
	_Atomic uint32_t n;
	char text[LG_LIVE_BYTES];
};
/* What does not fit is left out: false. */
bool lg_live_write(struct lg_live *l, const char *text, size_t n);

/*
 * Serve it at that path, without a random word, to who sends "Authorization: Bearer TOKEN". Borrowed for the server's
 * life: all strings. The server is at work when this returns; no lg_serve_start().
 */
int lg_serve_live(struct lg_server **ret, uint16_t port, const char *path, const char *type,
		  const char *token, const struct lg_live *live, struct lg_error *err) LG_MUST_CHECK;

/*
 * Take a port, 0 for any, and start the process that will answer: from here on a browser may call, and waits
 * until lg_serve_start(). Before the caller gives up system calls (base/confine.h). documents: static.
 */
int lg_serve_open(struct lg_server **ret, uint16_t port, const struct lg_document *documents, size_t n,
		  struct lg_error *err) LG_MUST_CHECK;
/* "http://127.0.0.1:PORT/WORD/"; the server's. */
const char *lg_serve_address(const struct lg_server *s);
uint16_t lg_serve_port(const struct lg_server *s);
/* Answer: file[i], an open regular file that stays the caller's, is the i-th document. */
int lg_serve_start(struct lg_server *s, const int *file, struct lg_error *err) LG_MUST_CHECK;
/* Serve until one of these signals comes, which are blocked; an error if the server ends by itself. */
int lg_serve_until(struct lg_server *s, const sigset_t *signals, struct lg_error *err) LG_MUST_CHECK;
void lg_serve_close(struct lg_server *s); /* ends the process */

#endif /* LG_SERVE_SERVE_H */
