/* SPDX-License-Identifier: Apache-2.0 */
/*
 * args.h - read span.args: "key=value" pairs separated by tabs. Which keys: the importer's header.
 */
#ifndef LG_STORE_ARGS_H
#define LG_STORE_ARGS_H
#include <string.h>

#include "store/trace.h"

/* The value's first byte in args, *ret_n its length; NULL when the key is not there. */
static inline const char *lg_arg(const char *args, const char *key, size_t *ret_n)
{
	size_t n = strlen(key);

	while (*args) {
		const char *end = strchrnul(args, '\t');

		if ((size_t)(end - args) > n && args[n] == '=' && !memcmp(args, key, n)) {
			*ret_n = (size_t)(end - args) - n - 1;
			return args + n + 1;
		}
		args = *end ? end + 1 : end;
	}
	*ret_n = 0;
	return NULL;
}

static inline const char *lg_span_arg(const struct lg_trace *t, size_t row, const char *key,
				      size_t *ret_n)
{
	return lg_arg(lg_string(t, t->span.args[row]), key, ret_n);
}

/* Between two ranks of a group: each counts its own, so that one number is not one transfer (torch's
 * ProcessGroupNCCL::pointToPoint). */
static inline bool lg_span_p2p(const struct lg_trace *t, size_t row)
{
	size_t n;
	const char *is = lg_span_arg(t, row, "coll", &n);

	return is && n == 4 && (!memcmp(is, "send", 4) || !memcmp(is, "recv", 4));
}

/* Text k of a list of arguments, ["", "[1, 1]", "False"], which may be NULL; NULL = there are fewer. */
static inline const char *lg_arg_listed(const char *list, size_t n, size_t k, size_t *ret_n)
{
	const char *end = list ? list + n : NULL, *close;

	for (size_t i = 0; list && list < end; i++, list = close + 1) {
		const char *open = memchr(list, '"', (size_t)(end - list));

		close = open ? memchr(open + 1, '"', (size_t)(end - open - 1)) : NULL;
		if (!close)
			break;
		*ret_n = (size_t)(close - open - 1);
		if (i == k)
			return open + 1;
	}
	return NULL;
}

#endif /* LG_STORE_ARGS_H */
