// A driver waits in a loop for a device that never says that it is ready; interrupts go on, and the kernel's watchdog finds it.
#include <linux/module.h>
#include <linux/processor.h>
#include <linux/proc_fs.h>

static unsigned int status;

static noinline void wait_until_ready(void) {
  while (!(READ_ONCE(status) & 1)) cpu_relax();  // crash
}

static ssize_t on_write(struct file *file, const char __user *from, size_t size, loff_t *at) {
  wait_until_ready();
  return size;
}

static const struct proc_ops operations = {.proc_write = on_write};

static int __init start(void) {
  return proc_create("soft-lockup", 0200, NULL, &operations) ? 0 : -ENOMEM;
}
module_init(start);
MODULE_LICENSE("GPL");
