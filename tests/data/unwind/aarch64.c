/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aarch64.c - source of aarch64.elf, made on any machine with
 *   clang --target=aarch64-linux-gnu -O1 -nostdlib -static -fuse-ld=lld -fomit-frame-pointer \
 *     -fasynchronous-unwind-tables -mbranch-protection=pac-ret -Wl,--build-id=none -s aarch64.c
 * test_unwind.c knows where its frames keep what (llvm-objdump -d aarch64.elf).
 */
volatile int sink;

__attribute__((noinline)) int leaf(int n)
{
	return n + sink;
}

__attribute__((noinline)) int middle(int n)
{
	return leaf(n) + leaf(n + 1);
}

__attribute__((noinline)) int outer(int n)
{
	volatile int room[12];

	room[0] = n;
	return middle(room[0]) + 1;
}

void _start(void)
{
	__asm__ volatile(".cfi_undefined x30");
	sink = outer(3);
	for (;;)
		;
}
