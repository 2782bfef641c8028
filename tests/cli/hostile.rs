//! Recordings that somebody has altered, programs that want too much, and what leads to gretel itself.

use crate::{DAMAGED, HOST, OTHER, PROGRAM, Place, Ran, WRITE, engines, skipped};
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::io::Write;

/// Makes system calls for a second.
const GOES_ON: &str = "#include <unistd.h>\n\
    int main(void) { for (int i = 0; i < 1000; i++) usleep(1000); return 7; }";

/// Records a program that goes on for a while, and runs a line of shell meanwhile, when the recording has begun.
fn altered(place: &Place, recording: &str, line: &str) -> Ran {
    let gretel = env!("CARGO_BIN_EXE_gretel");
    place.sh(&format!(
        "{gretel} record --engine soft --contexts -o {recording} -- ./goes-on & \
         until test -s {recording}/journal; do sleep 0.01; done; {line}; wait $!"
    ))
}

#[test]
fn crumbs_that_somebody_cuts_are_lost_and_the_recording_is_not() {
    let place = Place::new();
    let Some(_) = place.compile("goes-on", GOES_ON) else { return };
    let recorded = altered(&place, "rec", "truncate -s 0 rec/crumbs-0 rec/contexts-0");
    assert_eq!(recorded.code, 7, "{}", recorded.err);
    assert!(recorded.err.contains("truncated while they are written"), "{}", recorded.err);
    assert_eq!(place.replay("rec", "soft")["status_or_signal"], 7);
}

#[test]
fn a_journal_that_somebody_takes_away_is_no_recording() {
    let place = Place::new();
    let Some(_) = place.compile("goes-on", GOES_ON) else { return };
    for (name, how) in [("cut", "truncate -s 0"), ("removed", "rm")] {
        let recorded = altered(&place, name, &format!("{how} {name}/journal"));
        assert_eq!(recorded.code, WRITE, "{}", recorded.err);
        assert!(recorded.err.contains("journal was removed, replaced or cut"), "{}", recorded.err);
        assert!(!recorded.err.contains("recorded in"), "{}", recorded.err);
    }
}

#[test]
fn bytes_behind_the_end_of_a_journal_are_reported() {
    let place = Place::new();
    assert_eq!(place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "busybox", "true"]).code, 0);
    let mut journal = OpenOptions::new().append(true).open(place.path("rec/journal")).unwrap();
    journal.write_all(b"more").unwrap();
    let replayed = place.gretel(&["replay", "--engine", "soft", "rec"]);
    assert_eq!(replayed.code, DAMAGED, "{}", replayed.err);
    assert!(replayed.err.contains("behind its end record"), "{}", replayed.err);
    assert!(replayed.err.contains("(4 bytes cannot be used)"), "{}", replayed.err);
    assert!(replayed.out().contains("exited 0"), "{}", replayed.out());
}

/// An instruction without semantics: the recorder says so and stops, and the recording has an end that says that.
#[test]
fn a_recorder_that_cannot_go_on_was_not_killed() {
    let place = Place::new();
    let source = "#include <stdio.h>\nint main(void) { unsigned table = 0; puts(\"before\"); fflush(stdout);\n\
        asm volatile(\"sldt %0\" : \"=r\"(table)); return 0; }";
    let Some(_) = place.compile("table", source) else { return };
    let recorded = place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./table"]);
    assert_eq!((recorded.code, recorded.out()), (OTHER, "before\n".to_owned()), "{}", recorded.err);
    for engine in engines() {
        let replayed = place.gretel(&["replay", "--json", "--engine", engine, "rec"]);
        assert_eq!(replayed.code, 0, "{}", replayed.err);
        assert!(
            replayed.err.contains("could not go on") && !replayed.err.contains("killed"),
            "{}",
            replayed.err
        );
        let result: Value = serde_json::from_str(&replayed.out()).unwrap();
        assert_eq!((&result["end"], &result["equal"]), (&"stopped".into(), &true.into()));
    }
}

#[test]
fn a_ring_that_was_removed_is_not_said_to_have_been_left_out() {
    let place = Place::new();
    assert_eq!(place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "busybox", "true"]).code, 0);
    fs::remove_file(place.path("rec/crumbs-0")).unwrap();
    let shown = place.gretel(&["core", "--crumbs", "rec"]);
    assert_eq!(shown.code, DAMAGED);
    assert!(shown.err.contains("or its crumbs-0 was removed"), "{}", shown.err);
}

/// A FIFO that nobody writes to, and a device without an end, in each place where a file is read whole.
#[test]
fn what_is_no_regular_file_is_refused_at_once() {
    let place = Place::new();
    assert_eq!(place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "busybox", "true"]).code, 0);
    let refused = |arguments: &[&str], code: i32, what: &str| {
        let ran = place.gretel(arguments);
        assert_eq!(ran.code, code, "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(what), "{arguments:?}: {}", ran.err);
    };
    let not_regular = "not a regular file";
    refused(&["core", "/dev/zero"], DAMAGED, not_regular);
    refused(&["core", "--exe", "/dev/zero", "/dev/zero"], DAMAGED, not_regular);
    for file in ["crumbs-0", "program", "journal"] {
        let path = place.path(&format!("rec/{file}"));
        let kept = place.path("kept");
        fs::rename(&path, &kept).unwrap();
        for make in [&["mkfifo"][..], &["ln", "-s", "/dev/zero"]] {
            assert!(place.command(make[0], &make[1..]).arg(&path).status().unwrap().success());
            match file {
                "crumbs-0" => refused(&["core", "--crumbs", "rec"], DAMAGED, not_regular),
                "program" => refused(&["replay", "--engine", "soft", "rec"], DAMAGED, not_regular),
                _ => refused(&["replay", "rec"], DAMAGED, "is not a recording"),
            }
            fs::remove_file(&path).unwrap();
        }
        fs::rename(&kept, &path).unwrap();
    }
    place.replay("rec", "soft");
}

#[test]
fn a_program_whose_linker_is_a_device_is_refused() {
    let place = Place::new();
    let file = place.write("empty.c", "int main(void) { return 0; }\n");
    let file = file.to_str().expect("temporary directories have plain names");
    let made = place.command("gcc", &["-o", "lost", "-Wl,--dynamic-linker=/dev/zero", file]).status();
    if !made.is_ok_and(|status| status.success()) {
        return skipped("a program with another linker", "gcc cannot make it");
    }
    let refused = place.gretel(&["record", "-o", "rec", "--", "./lost"]);
    assert_eq!(refused.code, PROGRAM, "{}", refused.err);
    assert!(
        refused.err.contains("/dev/zero") && refused.err.contains("not a regular file"),
        "{}",
        refused.err
    );
}

/// Uses 40 MiB, and crashes.
const LARGE: &str = "#include <stdlib.h>\n#include <string.h>\n\
    int main(void) { memset(malloc(40 << 20), 7, 40 << 20); *(volatile int *)8 = 1; }";

#[test]
fn too_little_memory_for_a_core_is_an_error_and_no_abort() {
    let place = Place::new();
    let Some(_) = place.compile("large", LARGE) else { return };
    assert_eq!(place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./large"]).code, 128 + 11);
    let gretel = env!("CARGO_BIN_EXE_gretel");
    for mib in (80..400).step_by(20) {
        let shown = place.sh(&format!("ulimit -v {}; {gretel} core rec", mib << 10));
        assert!([0, HOST, DAMAGED].contains(&shown.code), "{mib} MiB: {} {}", shown.code, shown.err);
        assert!(shown.code == 0 || shown.err.contains("memory"), "{mib} MiB: {}", shown.err);
    }
}

/// A terabyte of which three pages are touched.
const SPARSE: &str = "#include <sys/mman.h>\nchar *volatile p;\nint main(void) {\n\
    p = mmap(0, 1UL << 40, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);\n\
    p[5] = 1; p[1UL << 39] = 2; p[(1UL << 39) + 90000] = 3;\n    *(volatile int *)8 = 1; }";

#[test]
fn the_core_of_a_program_with_a_terabyte_is_as_large_as_what_it_touched() {
    let place = Place::new();
    let Some(_) = place.compile("sparse", SPARSE) else { return };
    for engine in engines() {
        let recorded = place.gretel(&["record", "--engine", engine, "-o", engine, "--", "./sparse"]);
        assert_eq!(recorded.code, 128 + 11, "{}", recorded.err);
        let core = place.path(&format!("{engine}/core"));
        assert!(fs::metadata(&core).unwrap().len() < 64 << 20);
        let shown = place.gretel(&["core", engine]);
        assert!(shown.code == 0 && shown.out().contains("(not in the core)"), "{}{}", shown.out(), shown.err);
        let values = ["-batch", "-ex", "p p[5] + p[1UL << 39] * 10 + p[(1UL << 39) + 90000] * 100", "sparse"];
        match place.command("gdb", &values).arg(&core).output() {
            Err(error) => skipped("gdb", &error.to_string()),
            Ok(shown) => assert!(String::from_utf8_lossy(&shown.stdout).contains("= 321"), "{shown:?}"),
        }
    }
}

/// An overflow that the sanitizer finds; it aborts, with shadow memory of terabytes.
const OVERFLOW: &str = "#include <stdlib.h>\nconst char *__asan_default_options(void) { return \"abort_on_error=1\"; }\n\
    int main(int argc, char **argv) { volatile int *p = malloc(40); return p[10 * argc]; }";

#[test]
fn a_program_under_address_sanitizer_leaves_a_core() {
    let place = Place::new();
    let file = place.write("sanitized.c", OVERFLOW);
    let file = file.to_str().expect("temporary directories have plain names");
    let made = place.command("gcc", &["-g", "-fsanitize=address", "-o", "sanitized", file]).status();
    if !made.is_ok_and(|status| status.success()) {
        return skipped("a program under AddressSanitizer", "gcc cannot make it (is libasan installed?)");
    }
    for engine in engines() {
        let recorded = place.gretel(&["record", "--engine", engine, "-o", engine, "--", "./sanitized"]);
        assert_eq!(recorded.code, 128 + 6, "{}", recorded.err);
        assert!(recorded.err.contains("heap-buffer-overflow"), "{}", recorded.err);
        let shown = place.gretel(&["core", engine]);
        assert!(shown.code == 0 && shown.out().contains("main+"), "{}{}", shown.out(), shown.err);
    }
}

/// Tries every call that takes a path, by several ways, on the folder in /proc of the process whose number it is given, and on its own
/// descriptors as far as they are not open; says which answers are not ENOENT.
const REACHES: &str = r#"
    #define _GNU_SOURCE
    #include <errno.h>
    #include <fcntl.h>
    #include <stdio.h>
    #include <string.h>
    #include <sys/stat.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    static const char *path;
    static void is(const char *call, long result) {
        if (result != -1 || errno != ENOENT) printf("%s %s: %ld %d\n", call, path, result, errno);
    }
    static int folder;
    static void all(const char *way) {
        char buffer[4096];
        unsigned long how[3] = {0, 0, 0}, beneath[3] = {0, 0, 0x10}, times[4] = {1, 0, 1, 0};
        char *none[] = {0};
        path = way;
        is("open", syscall(SYS_open, path, O_RDONLY));
        is("open to write", syscall(SYS_open, path, O_RDWR | O_CREAT, 0600));
        is("openat", syscall(SYS_openat, folder, path[0] == '/' ? path + 1 : path, O_PATH | O_NOFOLLOW));
        is("openat2", syscall(SYS_openat2, AT_FDCWD, path, how, sizeof how));
        is("openat2 below", syscall(SYS_openat2, folder, path[0] == '/' ? path : "/proc/self/none", beneath, sizeof beneath));
        is("stat", syscall(SYS_stat, path, buffer));
        is("lstat", syscall(SYS_lstat, path, buffer));
        is("newfstatat", syscall(SYS_newfstatat, AT_FDCWD, path, buffer, 0));
        is("statx", syscall(SYS_statx, AT_FDCWD, path, 0, 0x7ff, buffer));
        is("access", syscall(SYS_access, path, 0));
        is("faccessat2", syscall(SYS_faccessat2, AT_FDCWD, path, 0, AT_SYMLINK_NOFOLLOW));
        is("readlink", syscall(SYS_readlink, path, buffer, sizeof buffer));
        is("chmod", syscall(SYS_chmod, path, 0777));
        is("fchmodat", syscall(SYS_fchmodat, AT_FDCWD, path, 0777));
        is("chown", syscall(SYS_chown, path, 0, 0));
        is("lchown", syscall(SYS_lchown, path, 0, 0));
        is("fchownat", syscall(SYS_fchownat, AT_FDCWD, path, 0, 0, 0));
        is("utimensat", syscall(SYS_utimensat, AT_FDCWD, path, times, 0));
        is("utimes", syscall(SYS_utimes, path, times));
        is("futimesat", syscall(SYS_futimesat, AT_FDCWD, path, times));
        is("truncate", syscall(SYS_truncate, path, 0));
        is("statfs", syscall(SYS_statfs, path, buffer));
        is("chdir", syscall(SYS_chdir, path));
        is("execve", syscall(SYS_execve, path, none, none));
        is("link", syscall(SYS_link, path, "folder/link"));
        is("linkat", syscall(SYS_linkat, AT_FDCWD, path, AT_FDCWD, "folder/link", AT_SYMLINK_FOLLOW));
        is("rename", syscall(SYS_rename, path, "folder/name"));
        is("rename to", syscall(SYS_rename, "way", path));
        is("unlink", syscall(SYS_unlink, path));
        is("rmdir", syscall(SYS_rmdir, path));
        is("mkdir", syscall(SYS_mkdir, path, 0700));
        is("mknod", syscall(SYS_mknod, path, 0100600, 0));
        is("symlink", syscall(SYS_symlink, "x", path));
    }
    static void every_way(const char *number, const char *name) {
        const char *ways[] = {"/proc/%s%s", "way/%s%s", "root/proc/%s%s", "folder/../way/%s%s", "/proc/self/../%s%s"};
        for (unsigned w = 0; w < sizeof ways / sizeof *ways; w++) {
            char text[200];
            snprintf(text, sizeof text, ways[w], number, name);
            all(text);
        }
    }
    int main(int argc, char **argv) {
        const char *names[] = {"", "/mem", "/exe", "/cwd", "/maps", "/fd", "/fd/0", "/fd/1", "/fd/3", "/fd/4", "/fd/5", "/fd/6", "/task",
                               "/root" "/etc/passwd", "/ns/mnt"};
        char own[20], name[20];
        if (argc != 2 || symlink("/proc", "way") || symlink("/proc/self/root", "root") || mkdir("folder", 0700)) return 1;
        folder = open("/", O_PATH | O_DIRECTORY);
        for (unsigned n = 0; n < sizeof names / sizeof *names; n++) every_way(argv[1], names[n]);
        snprintf(own, sizeof own, "%d", getpid());
        for (int n = folder + 1; n < 40; n++) {
            snprintf(name, sizeof name, "/fd/%d", n);
            every_way(own, name);
        }
        puts("all tried");
        return 0;
    }"#;

/// A program reaches no process outside, and of the recorder, which has its number, nothing that is open.
#[test]
fn no_process_outside_can_be_reached_through_proc() {
    let place = Place::new();
    let Some(_) = place.compile("reaches", REACHES) else { return };
    for engine in engines() {
        let folder = place.path(engine);
        fs::create_dir(&folder).unwrap();
        let gretel = env!("CARGO_BIN_EXE_gretel");
        let line = format!(
            "cd {engine} && {gretel} record --engine {engine} -o ../rec-{engine} -- ../reaches $$; exit $?"
        );
        let recorded = place.sh_with_streams_alone(&line);
        assert_eq!((recorded.out().as_str(), recorded.code), ("all tried\n", 0), "{}", recorded.err);
        assert_eq!(fs::read_dir(folder.join("folder")).unwrap().count(), 0, "a link to what gretel has open");
        for replayer in engines() {
            assert_eq!(place.replay(&format!("rec-{engine}"), replayer)["status_or_signal"], 0);
        }
    }
}
