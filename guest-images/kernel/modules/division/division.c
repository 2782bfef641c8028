// A rate is computed for an interval that nobody has checked.
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/proc_fs.h>

static unsigned int bytes = 4096;

static noinline unsigned int rate(unsigned int interval) { return bytes / interval; }  // crash

static ssize_t on_write(struct file *file, const char __user *from, size_t size, loff_t *at) {
  unsigned int interval;
  int wrong = kstrtouint_from_user(from, size, 0, &interval);
  if (wrong) return wrong;
  pr_info("division: %u bytes a second\n", rate(interval));
  return size;
}

static const struct proc_ops operations = {.proc_write = on_write};

static int __init start(void) {
  return proc_create("division", 0200, NULL, &operations) ? 0 : -ENOMEM;
}
module_init(start);
MODULE_LICENSE("GPL");
