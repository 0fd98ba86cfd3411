/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int lg_fail(struct lg_error *err, int code, uint64_t offset, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return code;
	err->code = code;
	err->os_errno = 0;
	err->offset = offset;
	va_start(ap, fmt);
	vsnprintf(err->message, sizeof err->message, fmt, ap);
	va_end(ap);
	return code;
}

int lg_fail_errno(struct lg_error *err, int os_errno, const char *fmt, ...)
{
	int code = os_errno == EACCES || os_errno == EPERM ? LG_E_PERM
		   : os_errno == ENOMEM			   ? LG_E_NOMEM
							   : LG_E_IO;
	va_list ap;
	size_t n;

	if (!err)
		return code;
	err->code = code;
	err->os_errno = os_errno;
	err->offset = LG_NO_OFFSET;
	va_start(ap, fmt);
	vsnprintf(err->message, sizeof err->message, fmt, ap);
	va_end(ap);
	n = strlen(err->message);
	snprintf(err->message + n, sizeof err->message - n, ": %s", strerror(os_errno));
	return code;
}

int lg_error_prefix(struct lg_error *err, const char *fmt, ...)
{
	char old[sizeof err->message];
	va_list ap;
	size_t n;

	if (!err)
		return LG_E_IO;
	memcpy(old, err->message, sizeof old);
	va_start(ap, fmt);
	vsnprintf(err->message, sizeof err->message, fmt, ap);
	va_end(ap);
	n = strlen(err->message);
	snprintf(err->message + n, sizeof err->message - n, "%s", old);
	return err->code;
}

const char *lg_error_text(int code)
{
	switch (code) {
#define X(name, value, text)                                                                       \
	case LG_E_##name:                                                                          \
		return text;
		LG_ERRC_MAP(X)
#undef X
	default:
		return "success";
	}
}
