# What gdb does around each `monitor`. A command of gretel's may go elsewhere, which is no stop, and gdb keeps registers, frames and
# memory that it has read: it is made to forget them. Where the position is another one, it looks which libraries are loaded there and
# turns to the thread that runs there; where it is not, the frame that was selected stays so.
#
# And what it does for a process that it finds while it connects, or behind a `monitor`, and that it did not see start: it loads the
# program's symbols where the process has the program, and those of its libraries. By itself gdb does so for the selected process alone.
import re

gretel_seen = set()


def gretel_when():
    try:
        return gdb.execute("monitor when", to_string=True)
    except gdb.error:
        return ""


def gretel_position(when):
    found = re.match(r"position (\S+):|.*", when)
    return found.group(1) or found.group(0)


def gretel_before():
    global gretel_place
    try:
        level = gdb.selected_frame().level()
    except Exception:
        level = 0
    gretel_place = gretel_position(gretel_when()), level


def gretel_turn(when):
    task = re.search(r"process (\d+), thread (\d+)", when)
    runs = [int(it) for it in task.groups()] if task else []
    for inferior in gdb.inferiors():
        for thread in inferior.threads():
            if list(thread.ptid[:2]) == runs:
                thread.switch()


def gretel_lives(inferior):
    try:
        inferior.threads()[0].switch()
        gdb.selected_frame().read_register("pc").fetch_lazy()
        return True
    except (gdb.error, IndexError):
        return False


def gretel_load(inferior):
    file = inferior.progspace.filename
    listed = gdb.execute("info sharedlibrary", to_string=True)
    if file and listed.startswith("No shared libraries"):
        gdb.execute('symbol-file "%s"' % file, to_string=True)


def gretel_names():
    selected = gdb.selected_thread()
    for inferior in gdb.inferiors():
        known = inferior.num, inferior.pid
        if inferior.pid and known not in gretel_seen and gretel_lives(inferior):
            gretel_seen.add(known)
            gretel_load(inferior)
    if selected and selected.is_valid():
        selected.switch()


def gretel_connected():
    inferior = gdb.selected_inferior()
    gretel_seen.add((inferior.num, inferior.pid))
    gretel_names()


def gretel_behind():
    position, level = gretel_place
    for cache in ("register-cache", "dcache"):
        gdb.execute("maintenance flush " + cache, to_string=True)
    when = gretel_when()
    try:
        if gretel_position(when) != position:
            gretel_turn(when)
            gretel_names()
            gdb.execute("sharedlibrary", to_string=True)
        elif level:
            gdb.execute("frame %d" % level, to_string=True)
    except gdb.error:
        pass


gdb.execute("define hook-monitor\npython gretel_before()\nend")
gdb.execute("define hookpost-monitor\npython gretel_behind()\nend")
