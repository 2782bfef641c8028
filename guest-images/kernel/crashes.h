/* How the kernel crashes: what its command line can ask for, as the head of kernel.c has it. */

static void link_items(void) {
  for (int n = 0; n < 16; n++) items[n].next = &items[n + 1], items[n].weight = 7 * n % 5;
  items[15].next = (struct item *)0x7000000000;
}
__attribute__((noinline)) static void chain(void) {
  link_items();
  print_number(walk(items));
}
static void tick(void) {
  link_items();
  crashes_in_timer = 1;
  apic(0x380, 100000);
  for (;;) asm volatile("sti\n hlt");
}
/* So few rounds that the branch records of the crash go back to the interrupt. */
__attribute__((noinline)) static void race(void) {
  job = items;
  takes_job = 1;
  apic(0x380, 100000);
  asm volatile("sti");
  for (;;) {
    uint64_t sum = ticks;
    for (int n = 0; n < 20; n++) {
      sum = (sum << 1 | sum >> 63) + n;
      asm volatile("" : "+r"(sum));
    }
    job->weight += sum;
  }
}
__attribute__((noinline)) static uint64_t share(const uint64_t *of, uint64_t count) {
  uint64_t sum = 0;
  for (uint64_t n = 0; n < 4; n++) sum += of[n];
  return sum / count;
}
__attribute__((noinline)) static void divide(void) {
  uint64_t of[4] = {total + 3, visits + 5, total, 9};
  for (uint64_t n = 4; n-- > 0;) print_number(share(of, n));
}

static struct account {
  uint64_t balance, expected;
} account;
__attribute__((noinline)) static void audit(const struct account *of) {
  if (of->balance != of->expected) __builtin_trap();
}
__attribute__((noinline, noreturn)) static void refuse(const struct account *of) {
  if (of->balance > 1000) visits += total;
  asm volatile("" ::: "memory");
  __builtin_trap();
}
__attribute__((noinline)) static void review(const struct account *of) {
  if (of->balance != of->expected) refuse(of);
}
__attribute__((noinline)) static void bug(void) {
  link_items();
  asm volatile("" ::: "memory");
  account.expected = 17;
  for (int n = 0; n < 8; n++) account.balance += items[n].weight;
  if (has_word("refuse")) review(&account);
  audit(&account);
}

static uint64_t page[512];
__attribute__((noinline)) static void clear(void) {
  link_items();
  for (int n = 0; n < 100; n++) total += items[n & 7].weight;
  uint64_t *to = page, count = 512;
  asm volatile("rep stosq" : "+D"(to), "+c"(count) : "a"(0ul) : "memory");
  print_number(walk(items + 8));
}
static struct {
  char name[16];
  uint64_t (*read)(uint64_t);
} sensor;
__attribute__((noinline)) static uint64_t twice(uint64_t n) { return 2 * n; }
__attribute__((noinline)) static void rename_sensor(const char *name) {
  volatile char *to = sensor.name;
  while (*name) *to++ = *name++;
}
__attribute__((noinline)) static void wild(void) {
  sensor.read = twice;
  for (uint64_t n = 0; n < 8; n++) total += sensor.read(n);
  rename_sensor(has_word("astray") ? "a-sensor-of-name" "pqrst" : "a-sensor-of-a-long-name");
  total += sensor.read(total);
}

/* Memory of a processor's own, to which GS leads, as in Linux; and a task's base of GS, which Linux writes while SWAPGS has it. */
static struct { uint64_t sum, items, selector, began, waited; } own;
__attribute__((noinline)) static void switch_to(uint64_t base) {
  uint32_t low, high, processor;
  asm volatile("rdtsc" : "=a"(low), "=d"(high));
  own.began = (uint64_t)high << 32 | low;
  uint8_t line;
  asm volatile("inb %1, %0" : "=a"(line) : "Nd"((uint16_t)(COM1 + 5)));
  own.sum += line;
  asm volatile("mov %%ds, %0" : "=r"(own.selector));
  asm volatile("swapgs\n wrgsbase %0\n swapgs" ::"r"(base) : "memory");
  asm volatile("add %0, %%gs:0" ::"r"(base) : "memory");
  asm volatile("rdtscp" : "=a"(low), "=d"(high), "=c"(processor));
  own.waited += ((uint64_t)high << 32 | low) - own.began + processor;
}
__attribute__((noinline)) static void switch_tasks(void) {
  uint64_t cr4;
  asm volatile("mov %%cr4, %0" : "=r"(cr4));
  asm volatile("mov %0, %%cr4" ::"r"(cr4 | 1 << 16)); /* FSGSBASE */
  link_items();
  own.items = (uint64_t)(items + 14);
  asm volatile("wrgsbase %0" ::"r"(&own));
  for (uint64_t n = 0; n < 16; n++) switch_to(0x1000 * n + 0x40);
  struct item *first;
  asm volatile("mov %%gs:8, %0" : "=r"(first)::"memory");
  print_number(walk(first));
}

#define PROGRAM 0xc00000ul
/* Under SMAP, along a chain that leads into a program's page: the one of ring_3() is the kernel's again, which has its data there. */
__attribute__((noinline)) static void astray_in_program(void) {
  uint64_t cr3, cr4;
  page_directory[(uint64_t)user_code / HUGE_PAGE] &= ~4ul;
  page_directory[PROGRAM / HUGE_PAGE] |= 4;
  asm volatile("mov %%cr3, %0\n mov %0, %%cr3" : "=r"(cr3)::"memory");
  link_items();
  items[3].next = (struct item *)PROGRAM;
  asm volatile("mov %%cr4, %0" : "=r"(cr4));
  asm volatile("mov %0, %%cr4" ::"r"(cr4 | 1 << 21)); /* SMAP */
  print_number(walk(items));
}

static uint64_t nowhere[512] __attribute__((aligned(4096)));
static void lose(void) {
  for (int n = 1; n < 512; n++) nowhere[n] = (uint64_t)nowhere | 3;
  asm volatile("mov %0, %%cr3" ::"r"(nowhere) : "memory");
}

asm("handler_without_an_instruction: ud2\n");
extern char handler_without_an_instruction[];
static void storm(void) {
  tss.ist[1] = (uint64_t)(kernel_stack + sizeof kernel_stack);
  gate(6, handler_without_an_instruction, 0);
  idt[6].stack = 1;
  asm volatile("ud2");
}
