/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "symbols/demangle.h"

static void expect(const char *name, const char *want)
{
	char buf[1024];
	const char *have = lg_demangle(name, buf, sizeof buf);

	if (strcmp(have, want))
		fail_msg("%s: \"%s\", not \"%s\"", name, have, want);
}

/* Symbols of RFC 2603 and of the v0 description's examples, and what rustc prints for them. */
static void names_of_rust_v0(void **state)
{
	(void)state;
	expect("_RNvC6_123foo3bar", "123foo::bar");
	expect("_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar");
	expect("_RINvNtC3std3mem8align_ofdE", "std::mem::align_of::<f64>");
	expect("_RINvC7mycrate3foolNtB2_3BarE", "mycrate::foo::<i32, mycrate::Bar>");
	expect("_RNvMs_C7mycrateNtB4_3Foo3new", "<mycrate::Foo>::new");
	expect("_RNvXs0_C7mycrateNtB5_3FooNtNtC4core5clone5Clone5clone",
	       "<mycrate::Foo as core::clone::Clone>::clone");
	expect("_RNCNvC4main4main0B3_", "main::main::{closure#0}");
	expect("_RNCNvC4main4mains_0B3_", "main::main::{closure#1}");
	expect("_RINvC1a1bRhQtPmOySjAxj3_TlEThcEE",
	       "a::b::<&u8, &mut u16, *const u32, *mut u64, [usize], [i64; 3], (i32,), (u8, char)>");
	expect("_RINvC1a1bFEuFUKClEmFKv6stdcallE_E", "_RINvC1a1bFEuFUKClEmFKv6stdcallE_E");
	expect("_RINvC1a1bFEuFUKClEmE", "a::b::<fn(), unsafe extern \"C\" fn(i32) -> u32>");
	expect("_RINvC1a1bDNtC1c5TraitEL_E", "a::b::<dyn c::Trait>");
	expect("_RINvC1a1bDINtC1c5TraithEp4ItemmEL_E", "a::b::<dyn c::Trait<u8, Item = u32>>");
	expect("_RINvC1a1bFG_RL0_hERL0_hE", "a::b::<for<'a> fn(&'a u8) -> &'a u8>");
	expect("_RINvC1a1bKb1_Kc41_Klnff_Kp", "_RINvC1a1bKb1_Kc41_Klnff_Kp");
	expect("_RINvC1a1bKb1_Kc41_Klnff_KpE", "a::b::<true, 'A', -255, _>");
	expect("_RNvC1au8gdel_5qa", "a::g\xc3\xb6" "del");
	expect("_RNvC1au9gdel_5qa", "_RNvC1au9gdel_5qa"); /* longer than what is there */
	expect("_RNvC8punycodeu10mnchen_3ya", "punycode::m\xc3\xbcnchen");
	expect("_RINvC1a1bKc0_Kca_E", "a::b::<'\\u{0}', '\\u{a}'>");
	expect("_RNvC1a1b.llvm.123456", "a::b");
}

static void names_of_rust_before_v0(void **state)
{
	(void)state;
	expect("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write");
	expect("_ZN4core3fmt5write17h0123456789abcdefE.llvm.99", "core::fmt::write");
	expect("_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$"
	       "3bar17h930b740aa94f1d3aE",
	       "<Test + 'static as foo::Bar<Test>>::bar");
	expect("_ZN33_$LT$alloc..vec..Vec$LT$T$GT$$GT$4push17h0123456789abcdefE",
	       "<alloc::vec::Vec<T>>::push");
	expect("_ZN3foo28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE", "foo::{{closure}}");
}

static void names_of_cxx_are_not_taken_for_rust(void **state)
{
	char buf[64];

	(void)state;
	expect("_ZN3foo3barEv", "foo::bar()");
	expect("_ZNKSt6vectorIiSaIiEE4sizeEv", "std::vector<int, std::allocator<int> >::size() const");
	expect("main", "main");
	expect("_Z", "_Z");
	expect("_R", "_R");
	expect("_ZN", "_ZN");
	expect("", "");
	assert_false(lg_rust_demangle("_ZN3foo17h0123456789abcdeE", buf, sizeof buf));
	assert_false(lg_rust_demangle("_ZN17h0123456789abcdefE", buf, sizeof buf));
}

static void long_names_are_cut(void **state)
{
	char buf[16];

	(void)state;
	assert_string_equal(lg_demangle("_RNvNtC5crate6module8function", buf, sizeof buf),
			    "crate::modul...");
	assert_string_equal(lg_demangle("_ZN5crate6module8functionEv", buf, sizeof buf), "crate::modul...");
	assert_string_equal(lg_demangle("_ZN5crate6module17h0123456789abcdefE", buf, sizeof buf),
			    "crate::module");
}

/* Each level doubles: 2^60 times the same tuple if it were printed in full. */
static void references_that_explode_end(void **state)
{
	char name[2048] = "_RINvC1a1bTllE", buf[1024];
	size_t prev = 8, n = strlen(name) - 2;

	(void)state;
	for (int i = 0; i < 60; i++) {
		static const char digits[] =
			"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
		char ref[8];
		size_t here = n, v = prev - 1;

		if (v < 62)
			snprintf(ref, sizeof ref, "B%c_", digits[v]);
		else
			snprintf(ref, sizeof ref, "B%c%c_", digits[v / 62], digits[v % 62]);
		n += (size_t)snprintf(name + 2 + n, sizeof name - 2 - n, "T%s%sE", ref, ref);
		prev = here;
	}
	snprintf(name + 2 + n, sizeof name - 2 - n, "E");
	(void)lg_demangle(name, buf, sizeof buf);
	assert_int_equal(strlen(buf), sizeof buf - 1);
	memset(name, 'N', sizeof name - 1);
	memcpy(name, "_R", 2);
	assert_false(lg_rust_demangle(name, buf, sizeof buf));
}

/* A name of a few hundred bytes that stands for 2^60: P<A, A>, P<P<A, A>, P<A, A> > ... */
static void doublings_end_with_the_buffer(void **state)
{
	char name[2048] = "_Z1f1A1PIS_S_E", buf[1024];

	(void)state;
	for (unsigned i = 1; i < 60; i++) {
		static const char digit[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
		char ref[8], *end = name + strlen(name);

		if (i < 36)
			snprintf(ref, sizeof ref, "S%c_", digit[i]);
		else
			snprintf(ref, sizeof ref, "S%c%c_", digit[i / 36], digit[i % 36]);
		snprintf(end, (size_t)(name + sizeof name - end), "S0_I%s%sE", ref, ref);
	}
	assert_true(lg_demangle(name, buf, sizeof buf) == buf);
	assert_int_equal(strlen(buf), sizeof buf - 1);
	assert_memory_equal(buf, "f(A, P<A, A>, P<P<A, A>, P<A, A> >,", 35);
	assert_string_equal(buf + sizeof buf - 4, "...");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_of_rust_v0),
		cmocka_unit_test(names_of_rust_before_v0),
		cmocka_unit_test(doublings_end_with_the_buffer),
		cmocka_unit_test(names_of_cxx_are_not_taken_for_rust),
		cmocka_unit_test(long_names_are_cut),
		cmocka_unit_test(references_that_explode_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
