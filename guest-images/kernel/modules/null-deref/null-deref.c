// A driver looks up what it was asked for, finds nothing, and follows the null pointer.
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/string.h>
#include <linux/uaccess.h>

struct device_state { const char *name; unsigned long writes; };
static struct device_state known[] = {{"disk", 0}, {"net", 0}};

static noinline struct device_state *find(const char *name) {
  for (size_t n = 0; n < ARRAY_SIZE(known); n++)
    if (!strcmp(known[n].name, name)) return &known[n];
  return NULL;
}

static noinline void count_write(struct device_state *device) {
  device->writes++;  // crash
}

static ssize_t on_write(struct file *file, const char __user *from, size_t size, loff_t *at) {
  char name[16] = {0};
  if (size >= sizeof name || copy_from_user(name, from, size)) return -EINVAL;
  count_write(find(strim(name)));
  return size;
}

static const struct proc_ops operations = {.proc_write = on_write};

static int __init start(void) {
  return proc_create("null-deref", 0200, NULL, &operations) ? 0 : -ENOMEM;
}
module_init(start);
MODULE_LICENSE("GPL");
