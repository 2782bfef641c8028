//! What runs out: descriptors, and the disk. What was recorded stays, and replays.

use crate::{Place, WRITE, engines, skipped};
use std::fs;

/// Opens all that it may, then tries to get at its recording's files, and goes on with what makes a recording grow.
const OPENS_ALL: &str = r#"
    #include <errno.h>
    #include <fcntl.h>
    #include <stdio.h>
    #include <sys/random.h>
    #include <sys/stat.h>
    #include <unistd.h>
    static char bytes[16384], path[4096];
    static void refused(const char *what, int result) { if (result != -1) printf("%s %s\n", what, path); }
    int main(int argc, char **argv) {
        int n = 0;
        while (open("/etc/passwd", O_RDONLY) >= 0) n++;
        printf("%s\n", errno == ENFILE ? "full" : "not full");
        const char *names[] = {"journal", "crumbs-0", "program", "flight/000000/journal", "flight/000001/journal"};
        for (int k = 0; k < 400; k++) {
            getrandom(bytes, sizeof bytes, 0);
            snprintf(path, sizeof path, "%s/%s", argv[1], names[k % 5]);
            refused("unlink", unlink(path));
            refused("rename", rename(path, "taken"));
            refused("chmod", chmod(path, 0777));
            refused("truncate", truncate(path, 0));
        }
        snprintf(path, sizeof path, "%s", argv[1]);
        refused("rename", rename(path, "taken"));
        return n > 100 ? 5 : 6;
    }"#;

#[test]
fn a_program_that_opens_all_files_leaves_gretel_its_own() {
    let place = Place::new();
    let Some(_) = place.compile("opens", OPENS_ALL) else { return };
    let gretel = env!("CARGO_BIN_EXE_gretel");
    for engine in engines() {
        for options in ["", "--flight 1M"] {
            let line = format!(
                "ulimit -n 256; {gretel} record --engine {engine} {options} --force -o rec -- ./opens $PWD/rec"
            );
            let recorded = place.sh(&line);
            assert_eq!((recorded.code, recorded.out().as_str()), (5, "full\n"), "{}", recorded.err);
            assert!(recorded.err.contains("the program is told ENFILE"), "{}", recorded.err);
            for replayer in engines() {
                assert_eq!(place.replay("rec", replayer)["end"], "exited");
            }
        }
    }
}

/// Reads so many times 16 kB of random bytes, and ends with status 5.
const READER: &str = "
    #include <sys/random.h>
    static unsigned char bytes[16384];
    int main(void) { for (int n = 0; n < 2000; n++) getrandom(bytes, sizeof bytes, 0); return 5; }";

/// Runs lines of the shell where `full` is a folder on a small file system that is mounted for them alone.
pub(crate) fn on_small_disk(place: &Place, megabytes: u32, lines: &str) -> Option<crate::Ran> {
    fs::create_dir_all(place.path("full")).unwrap();
    let mount = format!("mount -t tmpfs -o size={megabytes}m none full");
    let ways = ["unshare -m", "unshare -rm"];
    let way = ways.into_iter().find(|way| place.sh(&format!("{way} sh -c '{mount}'")).code == 0)?;
    place.write("lines", format!("{mount} || exit 99\n{lines}"));
    Some(place.sh(&format!("{way} sh lines")))
}

#[test]
fn what_was_recorded_before_the_disk_was_full_replays() {
    let place = Place::new();
    let Some(_) = place.compile("reader", READER) else { return };
    let gretel = env!("CARGO_BIN_EXE_gretel");
    for engine in engines() {
        for options in ["", "--flight 64M"] {
            let lines = format!(
                "{gretel} record --engine {engine} {options} -o full/rec -- ./reader; echo recorded $?
                 {gretel} replay full/rec --engine soft; echo replayed $?"
            );
            let Some(ran) = on_small_disk(&place, 6, &lines) else {
                return skipped("a full disk", "no file system can be mounted here");
            };
            assert!(ran.out().contains(&format!("recorded {WRITE}\n")), "{}{}", ran.out(), ran.err);
            assert!(
                ran.out().contains("incomplete") && ran.out().contains("replayed 123\n"),
                "{}",
                ran.out()
            );
            let named =
                if options.is_empty() { "full/rec/journal" } else { "full/rec/flight/000000/journal" };
            for part in [
                named,
                "No space left on device",
                "free some space there",
                "were replayed and are as recorded",
            ] {
                assert!(ran.err.contains(part), "no `{part}` in: {}", ran.err);
            }
        }
    }
}

#[test]
fn a_flight_recorder_whose_window_fits_needs_no_more_room() {
    let place = Place::new();
    let Some(_) = place.compile("reader", READER) else { return };
    let gretel = env!("CARGO_BIN_EXE_gretel");
    let lines = format!(
        "{gretel} record --engine soft --flight 2M -o full/rec -- ./reader; echo recorded $?
         {gretel} replay full/rec --engine soft; echo replayed $?"
    );
    let Some(ran) = on_small_disk(&place, 6, &lines) else {
        return skipped("a full disk", "no file system can be mounted here");
    };
    assert!(
        ran.out().contains("recorded 5\n") && ran.out().contains("replayed 0\n"),
        "{}{}",
        ran.out(),
        ran.err
    );
}

/// Has a megabyte that no compression makes less, and reads two hundred kilobytes a second.
const SLOW: &str = "
    #include <sys/random.h>
    #include <unistd.h>
    static unsigned char table[1 << 20], bytes[4096];
    int main(void) {
        getrandom(table, sizeof table, 0);
        for (;;) { getrandom(bytes, sizeof bytes, 0); usleep(20000); }
    }";

/// A disk that has room for the journal and not for a checkpoint stops the window; it moves when there is room again.
#[test]
fn a_window_that_had_no_room_moves_again() {
    let place = Place::new();
    let Some(_) = place.compile("slow", SLOW) else { return };
    let gretel = env!("CARGO_BIN_EXE_gretel");
    let lines = format!(
        "comes() {{ n=0; until eval \"$1\"; do sleep 0.05; n=$((n + 1)); [ $n -lt 1200 ] && kill -0 $! || exit 98; done; }}
         {gretel} record --engine soft --flight 4M -o full/rec -- ./slow 2>said &
         comes '[ -d full/rec/flight/000002 ]'
         # What a window frees that moves once more is filled, too.
         fill() {{ free=$(df --output=avail -k full | tail -n 1); [ $free -le 900 ] || head -c $(((free - 900) * 1024)) /dev/zero >>full/filler; }}
         comes 'fill; grep -q \"does not move until one can be\" said'
         newest=$(ls full/rec/flight | tail -n 1)
         rm full/filler
         comes 'grep -q \"window moves\" said'
         comes '[ ! -d full/rec/flight/$newest ]'
         kill $!; wait $!; echo recorded $?; cat said >&2
         {gretel} replay full/rec --engine soft; echo replayed $?"
    );
    // Room for the window, and for what the filler takes.
    let Some(ran) = on_small_disk(&place, 12, &lines) else {
        return skipped("a full disk", "no file system can be mounted here");
    };
    assert!(
        ran.out().contains("recorded 143\n") && ran.out().contains("replayed 0\n"),
        "{}{}",
        ran.out(),
        ran.err
    );
    for said in
        ["the flight recorder's window does not move until one can be", "the flight recorder's window moves"]
    {
        assert_eq!(ran.err.matches(said).count(), 1, "{}", ran.err);
    }
}
