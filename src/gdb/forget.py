# What gdb does behind each `monitor`: a command of gretel's may have gone elsewhere, and gdb keeps registers, frames and memory that it
# has read. Where nothing has moved, the frame that was selected stays so.


def gretel_place():
    frame = gdb.newest_frame()
    return frame.pc(), int(frame.read_register("rsp")), gdb.selected_thread().ptid


def gretel_forget():
    try:
        place, level = gretel_place(), gdb.selected_frame().level()
    except Exception:
        place, level = None, 0
    for cache in ("register-cache", "dcache"):
        gdb.execute("maintenance flush " + cache, to_string=True)
    try:
        if level and place == gretel_place():
            gdb.execute("frame %d" % level, to_string=True)
    except Exception:
        pass


gdb.execute("define hookpost-monitor\npython gretel_forget()\nend")
