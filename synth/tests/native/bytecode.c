// An interpreter with computed goto that has a part elsewhere, as a compiler with a profile leaves it: the first of its labels.
#include <stdlib.h>

long bytecode(const unsigned char *code, long x);

__asm__(".section .text.unlikely\n"
        "        ud2\n"
        "damaged:\n"
        "        call abort\n"
        "        .text\n"
        "        .globl bytecode\n"
        "        .type bytecode, @function\n"
        "bytecode:\n"
        "        movzbl (%rdi), %eax\n"
        "        inc %rdi\n"
        "        jmp *table(, %rax, 8)\n"
        "increment:\n"
        "        inc %rsi\n"
        "        movzbl (%rdi), %eax\n"
        "        inc %rdi\n"
        "        jmp *table(, %rax, 8)\n"
        "end:\n"
        "        mov %rsi, %rax\n"
        "        ret\n"
        "        .size bytecode, . - bytecode\n"
        "        .section .rodata\n"
        "        .balign 8\n"
        "table:  .quad damaged, increment, end\n"
        "        .quad 0\n"
        "        .text\n");

int main(void) { return bytecode((const unsigned char[]){1, 1, 2}, 1) == 3 ? 0 : 1; }
