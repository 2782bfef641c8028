/* Drivers of virtio's source of random bytes, console and vsock, without interrupts: each buffer is waited for in a loop.
 *
 * Words of the command line: `random` prints what the first gives; `hvc` greets on the console and sends back what is typed there, up to
 * the end of the line; `vsock` asks port 7000 of the host a question and prints what it answers. kernel.c includes this.
 */

/* The devices, by where they are, and their numbers in virtio 1.2, 5. */
enum { RNG = 2, RNG_KIND = 4, CONSOLE = 3, CONSOLE_KIND = 3, VSOCK = 4, VSOCK_KIND = 19 };

static struct ring queues[3];
static uint8_t buffers[3][512];

static volatile uint32_t *slot(int device, uint32_t offset) {
  return (volatile uint32_t *)(0xd0000000ul + 0x1000ul * device + offset);
}

static void start(const char *name, int device, uint32_t kind, int count) {
  check(name, *slot(device, 0) == 0x74726976 && *slot(device, 8) == kind);
  *slot(device, 0x24) = 1, *slot(device, 0x20) = 1;
  *slot(device, 0x70) = 11;
  for (int n = 0; n < count; n++) {
    queues[n].available.index = queues[n].used.index = 0;
    *slot(device, 0x30) = n, *slot(device, 0x38) = 4;
    *slot(device, 0x80) = (uint32_t)(uint64_t)queues[n].descriptors;
    *slot(device, 0x90) = (uint32_t)(uint64_t)&queues[n].available;
    *slot(device, 0xa0) = (uint32_t)(uint64_t)&queues[n].used;
    *slot(device, 0x44) = 1;
  }
  *slot(device, 0x70) = 15;
}

/* Gives a queue its one buffer, and waits until it comes back: how many bytes it has. */
static uint32_t give(int device, int queue, uint32_t length, int is_writable) {
  struct ring *ring = &queues[queue];
  uint16_t before = ring->used.index;
  ring->descriptors[0].at = (uint64_t)buffers[queue], ring->descriptors[0].length = length;
  ring->descriptors[0].flags = is_writable ? 2 : 0;
  ring->available.index++;
  asm volatile("" ::: "memory");
  *slot(device, 0x50) = queue;
  while (ring->used.index == before) asm volatile("pause" ::: "memory");
  return ring->used.ring[before % 4].length;
}

static void use_random(void) {
  start("random", RNG, RNG_KIND, 1);
  uint32_t length = give(RNG, 0, 16, 1);
  for (uint32_t n = 0; n < length; n++) print_number(buffers[0][n]), print(n + 1 < length ? " " : "\r\n");
}

static void say(const char *text) {
  uint32_t length = 0;
  while (text[length]) buffers[1][length] = text[length], length++;
  give(CONSOLE, 1, length, 0);
}

static void use_console(void) {
  start("console", CONSOLE, CONSOLE_KIND, 2);
  print("columns: "), print_number(*slot(CONSOLE, 0x100) & 0xffff), print("\r\n");
  say("a console of virtio\r\n");
  for (int is_end = 0; !is_end;) {
    uint32_t length = give(CONSOLE, 0, sizeof buffers[0] - 1, 1);
    for (uint32_t n = 0; n < length; n++) is_end |= buffers[0][n] == '\r';
    buffers[0][length] = 0;
    say((const char *)buffers[0]);
  }
  say("\n");
  if (has_word("dies")) say("Kernel panic - not syncing: by virtio\r\n---[ end Kernel panic - not syncing: by virtio ]---\r\n");
}

static struct __attribute__((packed)) {
  uint64_t from, to;
  uint32_t from_port, to_port, length;
  uint16_t kind, op;
  uint32_t flags, room, taken;
} header;
enum { REQUEST = 1, RESPONSE, RESET, SHUTDOWN, BYTES };

static void send_packet(int op, const char *text) {
  uint32_t length = 0;
  while (text[length]) buffers[1][sizeof header + length] = text[length], length++;
  header.from = 3, header.to = 2, header.from_port = 1025, header.to_port = 7000, header.length = length;
  header.kind = 1, header.op = op, header.flags = 0, header.room = 400, header.taken = 0;
  for (uint32_t n = 0; n < sizeof header; n++) buffers[1][n] = ((volatile uint8_t *)&header)[n];
  give(VSOCK, 1, sizeof header + length, 0);
}

static void use_vsock(void) {
  start("vsock", VSOCK, VSOCK_KIND, 3);
  for (int op = REQUEST; op != RESET;) {
    if (op == REQUEST) send_packet(REQUEST, "");
    uint32_t length = give(VSOCK, 0, sizeof buffers[0] - 1, 1);
    buffers[0][length] = 0;
    op = buffers[0][30];
    if (op == RESPONSE) send_packet(BYTES, "question");
    if (op == BYTES) print("answer: "), print((const char *)buffers[0] + sizeof header), print("\r\n");
    if (op == SHUTDOWN) send_packet(RESET, ""), op = RESET;
    else if (op == RESET) print("refused\r\n");
  }
}
