/*
 * A kernel in one file: rings, SYSCALL, a page fault, the timer and the serial port, on the machine that `gretel record
 * --kernel` has. It is entered in 64-bit mode with the first 4 GiB mapped to themselves, as Linux is; rsi points to the boot
 * parameters. It prints a line for each part, PASS, and what the command line asks for:
 *
 *   echo    echoes what is typed up to a carriage return
 *   spin    counts timer interrupts in a busy loop, whose number it prints
 *   disk    prints the first words of the disk's sector 1, writes to sector 2, and reads that back
 *   net     sends a frame with "hello", and sends back what comes, up to a frame with "end"
 *   chain   walks a chain of items, the last of which leads nowhere: a page fault in ring 0, and a panic
 *   tick    the same in the handler of the timer's interrupt
 *   race    works at a job that the timer's interrupt takes away: a page fault some instructions behind the interrupt
 *   divide  divides by a zero that it has computed: an exception without a handler, and a triple fault
 *   wild    calls a function by a pointer that text has overwritten: an address that is not canonical, and a panic
 *   astray  the same with an address at which nothing is mapped
 *   bug     finds a sum to be another than it should be, and gives up by UD2: an exception without a handler, and a triple fault
 *   refuse  the same in a function that only gives up, and decides on the way what it says
 *   clear   clears a page with one instruction between two loops, the second of which ends as chain does
 *   switch  reads the time and changes the base of GS that SWAPGS brings, as Linux does for a task, and ends as chain does
 *   smap    walks a chain into a page that is a program's, under SMAP: a page fault, and a panic
 *   storm   raises an exception whose handler raises it again, on a stack that each of them begins anew
 *   lost    goes on with page tables that lead to themselves, and have nothing of it: a triple fault
 *   idle    takes the timer's interrupts, and nothing that is typed
 *   panic, reset, triple, halt, wait: ends so; else it switches the machine off
 */
#include <stdint.h>

#define COM1 0x3f8
#define APIC 0xfee00000ul
#define HUGE_PAGE (2ul << 20)
/* Unmapped by fault(), and mapped again by the handler. */
#define PROBE 0xa00000ul

typedef struct { uint64_t ip, cs, flags, sp, ss; } frame;

struct gate { uint16_t low; uint16_t selector; uint8_t stack, kind; uint16_t middle; uint32_t high, zero; } idt[256];
static struct __attribute__((packed)) { uint32_t zero; uint64_t rsp[3]; uint64_t ist[8]; uint8_t rest[16]; } tss;
static uint64_t gdt[8] = {0, 0, 0x00af9b000000ffff, 0x00cf93000000ffff, 0x00cff3000000ffff, 0x00affb000000ffff};
enum { CODE = 0x10, DATA = 0x18, USER_DATA = 0x20 | 3, USER_CODE = 0x28 | 3, TASK = 0x30 };

static char kernel_stack[8192] __attribute__((aligned(16)));
static volatile uint64_t ticks, faults, calls, user_level, received;
static volatile char typed;
static uint64_t *page_directory;
static const char *command_line;

asm(".globl _start\n"
    "_start: lea stack_top(%rip), %rsp\n"
    "  mov %rsi, %rdi\n"
    "  call kernel_main\n"
    "1: hlt\n  jmp 1b\n"
    ".bss\n.align 16\n.skip 16384\nstack_top:\n.text\n"
    /* What SYSCALL leads to: it counts, and goes back. */
    ".globl on_syscall\n"
    "on_syscall: incq calls(%rip)\n"
    "  sysretq\n"
    /* Goes to ring 3 at rdi with the stack rsi; the handler of INT 0x30 comes back behind it. */
    ".globl enter_user\n"
    "enter_user: push %rbx\n  push %rbp\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
    "  mov %rsp, saved_stack(%rip)\n"
    "  push $0x23\n  push %rsi\n  push $0x202\n  push $0x2b\n  push %rdi\n"
    "  iretq\n"
    ".globl back_in_kernel\n"
    "back_in_kernel: pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbp\n  pop %rbx\n  ret\n");
void on_syscall(void);
void enter_user(void *code, void *stack);
void back_in_kernel(void);
volatile uint64_t saved_stack;

/* Ring 3: two system calls, then back. */
asm(".section .user, \"ax\"\n"
    ".globl user_code\n"
    "user_code: mov $1, %eax\n  syscall\n  syscall\n  int $0x30\n"
    ".skip 4096\n.globl user_stack\nuser_stack:\n.text\n");
extern char user_code[], user_stack[];

static void out8(uint16_t port, uint8_t value) { asm volatile("outb %0, %1" ::"a"(value), "Nd"(port)); }
static void out16(uint16_t port, uint16_t value) { asm volatile("outw %0, %1" ::"a"(value), "Nd"(port)); }
static uint8_t in8(uint16_t port) {
  uint8_t value;
  asm volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
  return value;
}
static void write_msr(uint32_t index, uint64_t value) {
  asm volatile("wrmsr" ::"c"(index), "a"((uint32_t)value), "d"((uint32_t)(value >> 32)));
}
static void apic(uint32_t offset, uint32_t value) { *(volatile uint32_t *)(APIC + offset) = value; }

static void print(const char *text) {
  for (; *text; text++) out8(COM1, *text);
}
static void print_number(uint64_t n) {
  char digits[21] = {0}, *at = digits + 20;
  do *--at = '0' + n % 10;
  while (n /= 10);
  print(at);
}
static void panic(const char *why) {
  print("[    0.000000] Kernel panic - not syncing: "), print(why), print("\r\n");
  out8(0x505, 1);
}
static int has_word(const char *word) {
  for (const char *at = command_line; *at; at++) {
    const char *a = at, *b = word;
    while (*b && *a == *b) a++, b++;
    if (!*b) return 1;
  }
  return 0;
}

/* The disk: a virtio device in memory with one queue of four descriptors. */
#define DISK 0xd0000000ul
static struct { uint64_t at; uint32_t length; uint16_t flags, next; } descriptors[4] __attribute__((aligned(16)));
static volatile struct { uint16_t flags, index, ring[4]; } available;
static volatile struct { uint16_t flags, index; struct { uint32_t id, length; } ring[4]; } used __attribute__((aligned(4)));
static struct { uint32_t kind, zero; uint64_t sector; } request;
static char sector[512];
static volatile uint8_t disk_status;
static volatile uint64_t disk_interrupts;

static volatile uint32_t *disk(uint32_t offset) { return (volatile uint32_t *)(DISK + offset); }

/* The network card: another one with a queue for each direction, each with one buffer. */
#define NET 0xd0001000ul
enum { RECEIVE, SEND };
static struct ring {
  struct { uint64_t at; uint32_t length; uint16_t flags, next; } descriptors[4] __attribute__((aligned(16)));
  volatile struct { uint16_t flags, index, ring[4]; } available;
  volatile struct { uint16_t flags, index; struct { uint32_t id, length; } ring[4]; } used __attribute__((aligned(4)));
} rings[2];
/* What is in front of a frame, an Ethernet header, and text. */
static struct __attribute__((packed)) { uint8_t virtio[12], to[6], from[6], kind[2]; char text[1500]; } frames[2];
static volatile uint64_t net_interrupts;

static volatile uint32_t *net(uint32_t offset) { return (volatile uint32_t *)(NET + offset); }

/* Crashes, each at the end of some calls, loops and stores. */
static struct item { struct item *next; uint64_t weight; } items[16];
static volatile uint64_t total, visits;

/* Adds to the total with interrupts off, as code does that they share it with. */
__attribute__((noinline)) static void add(uint64_t weight) {
  uint64_t flags;
  asm volatile("pushfq\n pop %0\n cli" : "=r"(flags)::"memory");
  total += weight;
  visits++;
  asm volatile("push %0\n popfq" ::"r"(flags) : "memory", "cc");
}
__attribute__((noinline)) static uint64_t walk(const struct item *item) {
  uint64_t longest = 0;
  for (; item; item = item->next) {
    if (item->weight > longest) longest = item->weight;
    add(item->weight);
  }
  return longest;
}
static volatile int crashes_in_timer, takes_job;
static struct item *volatile job;

#define HANDLER __attribute__((interrupt)) static void
HANDLER on_timer(frame *f) {
  (void)f;
  ticks++;
  if (crashes_in_timer) walk(items + 14);
  if (takes_job) job = (struct item *)0x7000000000;
  apic(0xb0, 0);
}
HANDLER on_serial(frame *f) {
  (void)f;
  while (in8(COM1 + 5) & 1) {
    typed = in8(COM1);
    received++;
    print((char[]){typed, 0});
  }
  in8(COM1 + 2);
  apic(0xb0, 0);
}
HANDLER on_disk(frame *f) {
  (void)f;
  *disk(0x64) = *disk(0x60);
  disk_interrupts++;
  apic(0xb0, 0);
}
HANDLER on_net(frame *f) {
  (void)f;
  *net(0x64) = *net(0x60);
  net_interrupts++;
  apic(0xb0, 0);
}
HANDLER on_page_fault(frame *f, uint64_t code) {
  uint64_t address;
  (void)f;
  asm volatile("mov %%cr2, %0" : "=r"(address));
  if (address >= PROBE + HUGE_PAGE) panic("page fault");
  if (address == PROBE + 8 && code == 2) faults++;
  page_directory[PROBE / HUGE_PAGE] |= 1;
}
HANDLER on_user(frame *f) {
  user_level = f->cs & 3;
  f->ip = (uint64_t)back_in_kernel;
  f->cs = CODE;
  f->ss = DATA;
  f->sp = saved_stack;
}

static void gate(int vector, void *handler, int level) {
  uint64_t at = (uint64_t)handler;
  idt[vector] = (struct gate){at, CODE, 0, 0x8e | level << 5, at >> 16, at >> 32, 0};
}

static void set_up(void) {
  struct __attribute__((packed)) { uint16_t limit; uint64_t base; } table;
  uint64_t *top, at = (uint64_t)&tss;
  asm volatile("mov %%cr3, %0" : "=r"(top));
  page_directory = (uint64_t *)(*(uint64_t *)(*top & ~0xffful) & ~0xffful);
  gdt[6] = 0x67 | (at & 0xffffff) << 16 | 0x89ul << 40 | (at >> 24 & 0xff) << 56;
  gdt[7] = at >> 32;
  tss.rsp[0] = (uint64_t)(kernel_stack + sizeof kernel_stack);
  table.limit = sizeof gdt - 1, table.base = (uint64_t)gdt;
  asm volatile("lgdt %0\n ltr %1" ::"m"(table), "r"((uint16_t)TASK));
  gate(14, on_page_fault, 0);
  gate(0x30, on_user, 3);
  gate(0x40, on_timer, 0);
  gate(0x41, on_serial, 0);
  gate(0x42, on_disk, 0);
  gate(0x43, on_net, 0);
  table.limit = sizeof idt - 1, table.base = (uint64_t)idt;
  asm volatile("lidt %0" ::"m"(table));
  /* The 8259s would interrupt, too. */
  out8(0x21, 0xff), out8(0xa1, 0xff);
}

static void check(const char *what, int holds) {
  print(what);
  print(holds ? ": ok\r\n" : ": FAIL\r\n");
  if (!holds) out16(0x604, 0x2000 | 5 << 10);
}

static void fault(void) {
  page_directory[PROBE / HUGE_PAGE] &= ~1ul;
  asm volatile("invlpg (%0)" ::"r"(PROBE));
  *(volatile uint64_t *)(PROBE + 8) = 7;
  check("page fault", faults == 1 && *(volatile uint64_t *)(PROBE + 8) == 7);
}

static void ring_3(void) {
  uint64_t *top, efer = 0xd01;
  asm volatile("mov %%cr3, %0" : "=r"(top));
  *top |= 4;
  *(uint64_t *)(*top & ~0xffful) |= 4;
  page_directory[(uint64_t)user_code / HUGE_PAGE] |= 4;
  asm volatile("mov %0, %%cr3" ::"r"(top) : "memory");
  write_msr(0xc0000080, efer);
  write_msr(0xc0000081, (uint64_t)(DATA | 3) << 48 | (uint64_t)CODE << 32);
  write_msr(0xc0000082, (uint64_t)on_syscall);
  write_msr(0xc0000084, 0x200);
  enter_user(user_code, user_stack);
  check("ring 3", user_level == 3 && calls == 2);
}

static void timer(void) {
  apic(0xf0, 0x1ff);
  apic(0x3e0, 0xb);
  apic(0x320, 0x20040);
  apic(0x380, 100000);
  while (ticks < 5) asm volatile("sti\n hlt\n cli");
  check("timer", ticks == 5);
  if (has_word("spin")) {
    uint64_t turns = 0;
    asm volatile("sti");
    while (ticks < 200) turns++;
    asm volatile("cli");
    print("turns: ");
    print_number(turns);
    print("\r\n");
  }
  apic(0x380, 0);
}

static void echo(void) {
  /* The I/O APIC has line 4 be vector 0x41. */
  *(volatile uint32_t *)0xfec00000 = 0x18, *(volatile uint32_t *)0xfec00010 = 0x41;
  out8(COM1 + 1, 1);
  print("type: ");
  while (typed != '\r') asm volatile("sti\n hlt\n cli");
  print("\nreceived: ");
  print_number(received);
  print("\r\n");
}

/* Reads (0) or writes (1) one sector: its status. */
static uint8_t transfer(uint32_t kind, uint64_t number) {
  uint16_t before = used.index;
  request.kind = kind, request.sector = number;
  disk_status = 0xff;
  descriptors[0].at = (uint64_t)&request, descriptors[0].length = 16, descriptors[0].flags = 1, descriptors[0].next = 1;
  descriptors[1].at = (uint64_t)sector, descriptors[1].length = 512, descriptors[1].flags = kind ? 1 : 3, descriptors[1].next = 2;
  descriptors[2].at = (uint64_t)&disk_status, descriptors[2].length = 1, descriptors[2].flags = 2;
  available.index++;
  *disk(0x50) = 0;
  while (used.index == before) asm volatile("sti\n hlt\n cli" ::: "memory");
  return disk_status;
}

static void use_disk(void) {
  /* The I/O APIC has line 5 be vector 0x42. */
  *(volatile uint32_t *)0xfec00000 = 0x1a, *(volatile uint32_t *)0xfec00010 = 0x42;
  check("disk", *disk(0) == 0x74726976 && *disk(8) == 2);
  *disk(0x24) = 1, *disk(0x20) = 1;
  *disk(0x70) = 11;
  *disk(0x38) = 4;
  *disk(0x80) = (uint32_t)(uint64_t)descriptors;
  *disk(0x90) = (uint32_t)(uint64_t)&available;
  *disk(0xa0) = (uint32_t)(uint64_t)&used;
  *disk(0x44) = 1;
  *disk(0x70) = 15;
  check("read", transfer(0, 1) == 0 && disk_interrupts == 1);
  sector[16] = 0;
  print("sector 1: "), print(sector), print("\r\n");
  for (int n = 0; n < 512; n++) sector[n] = n;
  print(transfer(1, 2) == 0 ? "write: ok\r\n" : "write: refused\r\n");
  sector[7] = 0;
  transfer(0, 2);
  print(sector[7] == 7 ? "sector 2: as written\r\n" : "sector 2: as before\r\n");
}

/* Gives the one buffer of a queue to the card, and waits until it comes back: how many bytes it has. */
static uint32_t exchange(int queue, uint32_t length) {
  struct ring *ring = &rings[queue];
  uint16_t before = ring->used.index;
  ring->descriptors[0].at = (uint64_t)&frames[queue], ring->descriptors[0].length = length;
  ring->descriptors[0].flags = queue == RECEIVE ? 2 : 0;
  ring->available.index++;
  *net(0x50) = queue;
  asm volatile("cli" ::: "memory");
  while (ring->used.index == before) asm volatile("sti\n hlt\n cli" ::: "memory");
  return ring->used.ring[before % 4].length;
}

static void send(const char *text) {
  uint32_t length = 0;
  for (int n = 0; n < 6; n++) frames[SEND].to[n] = 0xff, frames[SEND].from[n] = *((volatile uint8_t *)net(0x100) + n);
  frames[SEND].kind[0] = 0x88, frames[SEND].kind[1] = 0xb5;
  while (text[length] && length < 1499) frames[SEND].text[length] = text[length], length++;
  frames[SEND].text[length] = 0;
  exchange(SEND, 26 + length + 1);
}

static void use_net(void) {
  /* The I/O APIC has line 6 be vector 0x43. */
  *(volatile uint32_t *)0xfec00000 = 0x1c, *(volatile uint32_t *)0xfec00010 = 0x43;
  check("net", *net(0) == 0x74726976 && *net(8) == 1);
  *net(0x24) = 1, *net(0x20) = 1;
  *net(0x70) = 11;
  for (int n = 0; n < 2; n++) {
    *net(0x30) = n, *net(0x38) = 4;
    *net(0x80) = (uint32_t)(uint64_t)rings[n].descriptors;
    *net(0x90) = (uint32_t)(uint64_t)&rings[n].available;
    *net(0xa0) = (uint32_t)(uint64_t)&rings[n].used;
    *net(0x44) = 1;
  }
  *net(0x70) = 15;
  send("hello");
  for (int is_end = 0; !is_end;) {
    uint32_t length = exchange(RECEIVE, sizeof frames[0]);
    frames[RECEIVE].text[length < 26 ? 0 : length - 26 > 1499 ? 1499 : length - 26] = 0;
    const char *text = frames[RECEIVE].text;
    print("received: "), print(text), print("\r\n");
    is_end = text[0] == 'e' && text[1] == 'n' && text[2] == 'd' && !text[3];
    send(text);
  }
}

#include "virtio.h"

#include "crashes.h"

void kernel_main(const uint8_t *parameters) {
  command_line = (const char *)(uint64_t) * (const uint32_t *)(parameters + 0x228);
  set_up();
  fault();
  ring_3();
  timer();
  if (has_word("echo")) echo();
  if (has_word("disk")) use_disk();
  if (has_word("net")) use_net();
  if (has_word("random")) use_random();
  if (has_word("hvc")) use_console();
  if (has_word("vsock")) use_vsock();
  print("PASS\r\n");
  if (has_word("chain")) chain();
  if (has_word("tick")) tick();
  if (has_word("race")) race();
  if (has_word("divide")) divide();
  if (has_word("bug") || has_word("refuse")) bug();
  if (has_word("clear")) clear();
  if (has_word("wild") || has_word("astray")) wild();
  if (has_word("switch")) switch_tasks();
  if (has_word("smap")) astray_in_program();
  if (has_word("storm")) storm();
  if (has_word("lost")) lose();
  if (has_word("panic")) panic("asked for");
  if (has_word("reset")) out8(0x64, 0xfe);
  if (has_word("triple")) {
    idt[3] = idt[8] = idt[13] = (struct gate){0};
    asm volatile("int3");
  }
  if (has_word("halt")) asm volatile("cli\n hlt");
  if (has_word("idle")) for (apic(0x380, 100000000);;) asm volatile("sti\n hlt");
  if (has_word("wait")) asm volatile("sti\n hlt");
  out16(0x604, 0x2000 | 5 << 10);
}
