// A session is freed while it is the current one; what a program has written is put in its place, and is followed as a pointer.
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

struct line { unsigned long closes; };
struct session { struct line *line; char name[88]; };

static struct line line;
static struct session *current_session;

static noinline int open_session(void) {
  current_session = kzalloc(sizeof *current_session, GFP_KERNEL);
  if (!current_session) return -ENOMEM;
  current_session->line = &line;
  return 0;
}

static noinline void drop_session(void) { kfree(current_session); }

static noinline char *keep_text(const char __user *from, size_t size) {
  char *text = kzalloc(sizeof(struct session), GFP_KERNEL);
  if (text && copy_from_user(text, from, min(size, sizeof(struct session) - 1))) {
    kfree(text);
    text = NULL;
  }
  return text;
}

static noinline void close_session(struct session *session) {
  session->line->closes++;  // crash
}

static ssize_t on_write(struct file *file, const char __user *from, size_t size, loff_t *at) {
  if (open_session()) return -ENOMEM;
  drop_session();
  if (!keep_text(from, size)) return -EFAULT;
  close_session(current_session);
  return size;
}

static const struct proc_ops operations = {.proc_write = on_write};

static int __init start(void) {
  return proc_create("use-after-free", 0200, NULL, &operations) ? 0 : -ENOMEM;
}
module_init(start);
MODULE_LICENSE("GPL");
