/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/demangle.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The C++ demangler of the ABI library, loaded when the first mangled name comes: laggard is C
 * and need not link libstdc++, which is there wherever a C++ program was recorded.
 */
typedef char *demangle_fn(const char *name, char *out, size_t *len, int *status);

static demangle_fn *cxx_demangler(void)
{
	static demangle_fn *fn;
	static bool tried;

	if (!tried) {
		void *lib = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL);

		if (!lib)
			lib = dlopen("libc++abi.so.1", RTLD_NOW | RTLD_LOCAL);
		if (lib)
			*(void **)&fn = dlsym(lib, "__cxa_demangle");
		tried = true;
	}
	return fn;
}

const char *lg_demangle(const char *name, char *buf, size_t size)
{
	demangle_fn *fn;
	int status = -1;
	char *out;
	size_t n;

	if (name[0] != '_' || (name[1] != 'Z' && name[1] != 'R') || size < 4)
		return name;
	if (lg_rust_demangle(name, buf, size))
		return buf;
	fn = name[1] == 'Z' ? cxx_demangler() : NULL;
	out = fn ? fn(name, NULL, NULL, &status) : NULL;
	if (!out)
		return name;
	n = strlen(out);
	if (n < size)
		memcpy(buf, out, n + 1);
	else
		snprintf(buf, size, "%.*s...", (int)size - 4, out);
	free(out); /* its own malloc(), not ours */
	return buf;
}
