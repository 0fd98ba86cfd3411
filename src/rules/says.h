/* SPDX-License-Identifier: Apache-2.0 */
/*
 * says.h - what findings and limits say, from the one table (rules.def): skeletons that printf() fills with
 * facts. They are constants, so that the compiler holds each fact against its place.
 */
#ifndef LG_RULES_SAYS_H
#define LG_RULES_SAYS_H

#define SAYS(name, what, text) static const char LG_SAYS_##name##_##what[] = text;
#include "rules/rules.def"

#endif /* LG_RULES_SAYS_H */
