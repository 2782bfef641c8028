// Two entries of a list are one buffer, the second of which is cleared while it is in the list; the first is then taken out.
#include <linux/list.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/slab.h>
#include <linux/string.h>

struct request { char text[32]; struct list_head list; };
static LIST_HEAD(requests);

static noinline void forget(struct request *request) { memset(request, 0, sizeof *request); }
static noinline void finish(struct request *request) { list_del(&request->list); }  // crash

static ssize_t on_write(struct file *file, const char __user *from, size_t size, loff_t *at) {
  struct request *both = kcalloc(2, sizeof *both, GFP_KERNEL);
  if (!both) return -ENOMEM;
  list_add(&both[0].list, &requests);
  list_add(&both[1].list, &requests);
  forget(&both[1]);
  finish(&both[0]);
  return size;
}

static const struct proc_ops operations = {.proc_write = on_write};

static int __init start(void) {
  return proc_create("list-corruption", 0200, NULL, &operations) ? 0 : -ENOMEM;
}
module_init(start);
MODULE_LICENSE("GPL");
