/*
 * A program without a system that a PVH loader enters (Xen's direct boot ABI for x86): it checks what the ABI promises, prints on COM1
 * what it was given, and ends as its command line asks:
 *
 *   poll    echoes what is typed up to a carriage return, without an interrupt
 *   exit    with status 3 of isa-debug-exit
 *   crash   walks a chain, the last item of which leads nowhere (32 bits: ends in UD2), without an IDT: a triple fault
 *   else it switches the machine off
 *
 * It is built twice, for 64 bits, where the entry goes to long mode first, and for 32 bits, where it stays as it was entered.
 */
#include <stdint.h>

#define COM1 0x3f8

/* XEN_ELFNOTE_PHYS32_ENTRY. */
asm(".pushsection .note.pvh, \"a\", @note\n"
    "  .balign 4\n  .long 4, 4, 18\n  .asciz \"Xen\"\n  .long pvh_start\n"
    ".popsection\n");

/* What the registers were at the entry: ebx, cr0, cr4, eflags, tr. */
uint32_t entry[5];

asm(".section .text.start, \"ax\"\n.code32\n.globl pvh_start\n"
    "pvh_start: mov $stack_top, %esp\n"
    "  mov %ebx, entry\n"
    "  mov %cr0, %eax\n  mov %eax, entry+4\n"
    "  mov %cr4, %eax\n  mov %eax, entry+8\n"
    "  pushf\n  popl entry+12\n"
    "  str %ax\n  movzwl %ax, %eax\n  mov %eax, entry+16\n"
#ifdef __x86_64__
    /* The first 4 GiB are mapped to themselves by pages of 2 MiB. */
    "  movl $pointers+3, top\n"
    "  mov $directories+3, %eax\n  mov $pointers, %edi\n  mov $4, %ecx\n"
    "1: mov %eax, (%edi)\n  add $0x1000, %eax\n  add $8, %edi\n  loop 1b\n"
    "  mov $0x83, %eax\n  mov $directories, %edi\n  mov $2048, %ecx\n"
    "2: mov %eax, (%edi)\n  add $0x200000, %eax\n  add $8, %edi\n  loop 2b\n"
    "  mov $top, %eax\n  mov %eax, %cr3\n"
    "  mov $0x20, %eax\n  mov %eax, %cr4\n"
    "  mov $0xc0000080, %ecx\n  rdmsr\n  or $0x100, %eax\n  wrmsr\n"
    "  mov %cr0, %eax\n  or $0x80000000, %eax\n  mov %eax, %cr0\n"
    "  lgdt table\n  ljmp $8, $3f\n"
    ".code64\n"
    "3: mov $16, %eax\n  mov %eax, %ds\n  mov %eax, %es\n  mov %eax, %ss\n"
#endif
    "  call pvh_main\n"
    "4: hlt\n  jmp 4b\n"
    ".data\n.balign 8\n"
    "gdt: .quad 0, 0x00af9b000000ffff, 0x00cf93000000ffff\n"
    "table: .word 23\n  .long gdt, 0\n"
    ".bss\n.balign 4096\n"
    "top: .skip 4096\npointers: .skip 4096\ndirectories: .skip 4 * 4096\n"
    ".skip 16384\nstack_top:\n.text\n");

struct start_info {
  uint32_t magic, version, flags, module_count;
  uint64_t modules, command_line, rsdp, map;
  uint32_t map_count, reserved;
};
struct module { uint64_t at, size, command_line, reserved; };
struct area { uint64_t start, size; uint32_t kind, reserved; };

static uint8_t in8(uint16_t port) {
  uint8_t value;
  asm volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
  return value;
}
static void out8(uint16_t port, uint8_t value) { asm volatile("outb %0, %1" ::"a"(value), "Nd"(port)); }
static void out16(uint16_t port, uint16_t value) { asm volatile("outw %0, %1" ::"a"(value), "Nd"(port)); }

static void print(const char *text) {
  for (; *text; text++) out8(COM1, *text);
}
static void print_hex(uint64_t n) {
  print("0x");
  int shift = 60;
  while (shift && !(n >> shift & 15)) shift -= 4;
  for (; shift >= 0; shift -= 4) out8(COM1, "0123456789abcdef"[n >> shift & 15]);
}
static void *pointer(uint64_t at) { return (void *)(uintptr_t)at; }

static void check(const char *what, int holds) {
  print(what);
  print(holds ? ": ok\r\n" : ": FAIL\r\n");
}
static int has_word(const char *at, const char *word) {
  for (; *at; at++) {
    const char *a = at, *b = word;
    while (*b && *a == *b) a++, b++;
    if (!*b) return 1;
  }
  return 0;
}

static struct item { struct item *next; uint32_t weight; } items[8];
static volatile uint32_t total;

__attribute__((noinline)) static void add(uint32_t weight) { total += weight; }
__attribute__((noinline)) static void walk(const struct item *item) {
  for (; item; item = item->next) {
    if (item->weight & 1) add(item->weight);
#ifndef __x86_64__
    /* Without paging there is no address that leads nowhere. */
    if ((uintptr_t)item->next == (uintptr_t)0x8000000000) __builtin_trap();
#endif
  }
}
static void crash(void) {
  for (int n = 0; n < 7; n++) items[n].next = &items[n + 1], items[n].weight = n;
  items[7].next = (struct item *)(uintptr_t)0x8000000000;
  walk(items);
}

/* By the line's status alone: whether something has been received (1). */
static void poll(void) {
  uint8_t byte;
  do {
    while (!(in8(COM1 + 5) & 1)) {}
    byte = in8(COM1), out8(COM1, byte);
  } while (byte != '\r');
  print("\n");
}

void pvh_main(void) {
  const struct start_info *info = pointer(entry[0]);
  check("magic", info->magic == 0x336ec578);
  check("version", info->version == 1 && !info->flags && !info->reserved);
  check("state", (entry[1] & ~0x10u) == 1 && entry[2] == 0 && !(entry[3] & 0x20300));
  check("rsdp", *(uint64_t *)pointer(info->rsdp) == 0x2052545020445352);
  const char *command_line = pointer(info->command_line);
  print("command line: "), print(command_line), print("\r\n");
  const struct area *map = pointer(info->map);
  for (uint32_t n = 0; n < info->map_count; n++) {
    print("memory: "), print_hex(map[n].start), print(" "), print_hex(map[n].size), print(" ");
    print_hex(map[n].kind), print(map[n].reserved ? " FAIL\r\n" : "\r\n");
  }
  const struct module *modules = pointer(info->modules);
  for (uint32_t n = 0; n < info->module_count; n++) {
    print("module: "), print_hex(modules[n].size), print(" bytes, ");
    const char *content = pointer(modules[n].at);
    for (uint64_t k = 0; k < modules[n].size; k++) out8(COM1, content[k]);
    print("\r\n");
  }
  if (has_word(command_line, "poll")) poll();
  print("END\r\n");
  if (has_word(command_line, "exit")) out8(0xf4, 3);
  if (has_word(command_line, "crash")) crash();
  out16(0x604, 0x2000 | 5 << 10);
}
