/* SPDX-License-Identifier: Apache-2.0 */
/*
 * demangle.h - names as the programmer wrote them. C++ by libiberty's demangler, Rust (both
 * manglings) here. Both in bounded time and memory, whatever the name.
 */
#ifndef LG_SYMBOLS_DEMANGLE_H
#define LG_SYMBOLS_DEMANGLE_H
#include <stdbool.h>
#include <stddef.h>

/*
 * "std::sort(...)" from "_ZSt4sort...", "core::fmt::write" from "_RNvNt...". What is not mangled
 * (or damaged) comes back as it is; else buf is filled, cut at its end with "...", and returned.
 */
const char *lg_demangle(const char *name, char *buf, size_t size);
/* Rust only; false when name is no Rust symbol. Crate hashes are left out. */
bool lg_rust_demangle(const char *name, char *buf, size_t size);

#endif /* LG_SYMBOLS_DEMANGLE_H */
