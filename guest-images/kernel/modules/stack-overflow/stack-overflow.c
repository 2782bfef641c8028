// Groups may hold groups; one that holds itself is summed up by a function that calls itself, until the kernel's stack is full.
#include <linux/module.h>
#include <linux/proc_fs.h>

struct group { struct group *inner; unsigned long members; };

static struct group inner = {NULL, 3};
static struct group outer = {&inner, 4};

static noinline unsigned long sum(struct group *group, unsigned long *largest) {
  unsigned long of_inner[4] = {0};  // crash
  if (!group) return 0;
  of_inner[group->members % 4] = sum(group->inner, &of_inner[0]);
  if (of_inner[0] < group->members) *largest = group->members;
  return group->members + of_inner[group->members % 4];
}

static noinline void include(struct group *in, struct group *what) { in->inner = what; }

static ssize_t on_write(struct file *file, const char __user *from, size_t size, loff_t *at) {
  unsigned long largest = 0;
  include(&inner, &outer);
  return sum(&outer, &largest) > largest ? size : -EINVAL;
}

static const struct proc_ops operations = {.proc_write = on_write};

static int __init start(void) {
  return proc_create("stack-overflow", 0200, NULL, &operations) ? 0 : -ENOMEM;
}
module_init(start);
MODULE_LICENSE("GPL");
