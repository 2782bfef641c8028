// A timer takes a job away while a task is at it: the task has looked whether there is one, and looks again where it uses it.
#include <linux/hrtimer.h>
#include <linux/module.h>
#include <linux/proc_fs.h>

struct job { unsigned long left, turns; };

static struct job only = {0, 0};
static struct job *job = &only;
static struct hrtimer timer;

static enum hrtimer_restart on_timer(struct hrtimer *timer) {
  WRITE_ONCE(job, READ_ONCE(job) ? NULL : &only);
  hrtimer_forward_now(timer, ns_to_ktime(50021));
  return HRTIMER_RESTART;
}

static noinline unsigned long checksum(unsigned long of) {
  for (int n = 0; n < 64; n++) of = (of << 1) ^ (of & 1 ? 0x42f0e1eba9ea3693 : n);
  return of;
}

static noinline void take_turn(void) {
  unsigned long sum;
  if (!READ_ONCE(job)) return;
  sum = checksum(READ_ONCE(only.turns));
  READ_ONCE(job)->turns += sum | 1;  // crash
}

static ssize_t on_write(struct file *file, const char __user *from, size_t size, loff_t *at) {
  hrtimer_start(&timer, ns_to_ktime(50021), HRTIMER_MODE_REL);
  for (int n = 0; n < 10000000; n++) take_turn();
  hrtimer_cancel(&timer);
  return size;
}

static const struct proc_ops operations = {.proc_write = on_write};

static int __init start(void) {
  hrtimer_init(&timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
  timer.function = on_timer;
  return proc_create("interrupt-race", 0200, NULL, &operations) ? 0 : -ENOMEM;
}
module_init(start);
MODULE_LICENSE("GPL");
