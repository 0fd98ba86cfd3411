/* SPDX-License-Identifier: Apache-2.0 */
/*
 * i386.c - source of i386.elf, made with
 *   gcc -m32 -O1 -nostdlib -static -fno-pic -no-pie -fomit-frame-pointer -fno-stack-protector \
 *     -fcf-protection=none -fasynchronous-unwind-tables -Wl,--build-id=none,-z,noseparate-code -s \
 *     i386.c -o i386.elf
 * test_unwind.c knows where its frames keep what (objdump -d i386.elf).
 */
volatile int sink;

__attribute__((noinline, regparm(1))) int leaf(int n)
{
	return n + sink;
}

__attribute__((noinline, regparm(1))) int middle(int n)
{
	return leaf(n) + leaf(n + 1);
}

__attribute__((noinline, regparm(1))) int outer(int n)
{
	volatile int room[12];

	room[0] = n;
	return middle(room[0]) + 1;
}

void _start(void)
{
	__asm__ volatile(".cfi_undefined eip");
	sink = outer(3);
	for (;;)
		;
}
