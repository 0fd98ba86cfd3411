/* SPDX-License-Identifier: Apache-2.0 */
/* each.h - walk a vector, one element after the other. */
#ifndef LG_BASE_EACH_H
#define LG_BASE_EACH_H

/* For each element of v[0..n), pointed to by `one`; v may be NULL where n is 0. Both stay as they are. */
#define LG_EACH(one, v, n) LG_EACH_WHILE(1, one, v, n)
/* The same, as long as cond holds. */
#define LG_EACH_WHILE(cond, one, v, n)                                                           \
	for (__typeof__(&*(v)) one = (v), one##_end = (n) ? one + (n) : one; (cond) && one != one##_end; \
	     one++)
/* Those of which cond holds. */
#define LG_EACH_WHERE(cond, one, v, n) \
	LG_EACH(one, v, n)             \
		if (!(cond)) { } else

/* For each run [i, j) of neighbours in [from, to): alike holds, an expression of j, of all but the first. */
#define LG_EACH_RUN(i, j, from, to, alike) LG_EACH_RUN_WHILE(1, i, j, from, to, alike)
#define LG_EACH_RUN_WHILE(cond, i, j, from, to, alike)                                            \
	for (size_t i = (from), j; (cond) && i < (to) && ({                                        \
		     for (j = i + 1; j < (to) && (alike);)                                         \
			     j++;                                                                  \
		     true;                                                                         \
	     });                                                                                   \
	     i = j)

/* Leaves in v[0..n) only those of which cond holds, in their order. */
#define LG_KEEP(one, v, n, cond)                          \
	do {                                              \
		size_t kept_ = 0;                         \
		LG_EACH(one, v, n)                        \
			if (cond)                         \
				(v)[kept_++] = *one;      \
		(n) = kept_;                              \
	} while (0)

#endif /* LG_BASE_EACH_H */
