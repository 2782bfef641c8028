//! A disk that gets full while a kernel is recorded: what a replay does not need is left out, and what was recorded replays.

use super::KERNEL;
use crate::room::on_small_disk;
use crate::{Place, WRITE, skipped};

/// How a shell calls gretel, as `gretel`, with the options that all recordings here have.
fn functions() -> String {
    let gretel = env!("CARGO_BIN_EXE_gretel");
    format!(
        "gretel() {{ {gretel} \"$@\"; }}
         # What no compression makes less is in the recording once as a file, and in each checkpoint and core once more.
         head -c 300000 /dev/urandom >initrd
         record() {{ gretel record --kernel {KERNEL} --initrd initrd -o full/rec --cmdline \"$@\"; }}
         # Leaves so many kilobytes.
         leave() {{ head -c $((($(df --output=avail -k full | tail -n 1) - $1) * 1024)) /dev/zero >full/filler; }}\n"
    )
}

#[test]
fn a_start_without_room_leaves_a_folder_that_the_next_may_use() {
    let place = Place::new();
    let lines = format!(
        "{}leave 200
         record echo </dev/null; echo recorded $?
         find full/rec -mindepth 1
         rm full/filler
         printf 'x\\r' | record echo >/dev/null; echo recorded $?",
        functions()
    );
    let Some(ran) = on_small_disk(&place, 2, &lines) else {
        return skipped("a full disk", "no file system can be mounted here");
    };
    assert_eq!(ran.out(), format!("recorded {WRITE}\nrecorded 0\n"), "{}", ran.err);
    assert!(ran.err.contains("No space left on device"), "{}", ran.err);
}

#[test]
fn a_checkpoint_without_room_is_left_out() {
    let place = Place::new();
    let lines = format!(
        "{}leave 600
         printf 'some text\\r' | record 'echo wait'; echo recorded $?
         gretel replay full/rec; echo replayed $?
         gretel replay full/rec --to 2000 >moment; echo shown $?
         gretel record --from full/rec -o next </dev/null; echo from $?",
        functions()
    );
    let Some(ran) = on_small_disk(&place, 2, &lines) else {
        return skipped("a full disk", "no file system can be mounted here");
    };
    let (out, err) = (ran.out(), &ran.err);
    for part in ["received: 10", "recorded 0\n", "replayed 0\n", "shown 0\n", "from 123\n"] {
        assert!(out.contains(part), "no `{part}` in: {out}{err}");
    }
    let said = [
        "a checkpoint is left out, for full/rec/checkpoints cannot be written: No space left on device",
        "2 checkpoints could not be written; the recording replays without them",
        "has no checkpoint that can be used",
    ];
    for part in said {
        assert_eq!(err.matches(part).count(), 1, "`{part}` once in: {err}");
    }
}

#[test]
fn a_journal_without_room_ends_a_recording_that_replays() {
    let place = Place::new();
    let lines = format!(
        "{}mkfifo in
         record echo <in >printed 2>said & recorder=$!
         exec 3>in
         until grep -q 'type: ' printed; do sleep 0.05; kill -0 $recorder || exit 98; done
         leave 0
         base64 -w0 </dev/urandom | head -c 20000 >&3
         exec 3>&-
         wait $recorder; echo recorded $?
         cat said >&2
         rm full/filler
         gretel replay full/rec; echo replayed $?",
        functions()
    );
    let Some(ran) = on_small_disk(&place, 2, &lines) else {
        return skipped("a full disk", "no file system can be mounted here");
    };
    let (out, err) = (ran.out(), &ran.err);
    assert!(out.contains(&format!("recorded {WRITE}\n")) && out.contains("replayed 123\n"), "{out}{err}");
    for part in [
        "cannot write the journal full/rec/journal from offset 0x",
        "No space left on device",
        "free some space there, or record to another disk with -o",
        "what was recorded before is in full/rec",
        "it has no end: the recorder was killed, or could not write",
        "were replayed and are as recorded",
    ] {
        assert!(err.contains(part), "no `{part}` in: {err}");
    }
}

#[test]
fn a_core_without_room_is_told_and_the_recording_is_whole() {
    let place = Place::new();
    let lines = format!(
        "{}leave 450
         record panic; echo recorded $?
         ls full/rec
         gretel replay full/rec; echo replayed $?
         gretel core --at end full/rec >kernel; echo shown $?",
        functions()
    );
    let Some(ran) = on_small_disk(&place, 2, &lines) else {
        return skipped("a full disk", "no file system can be mounted here");
    };
    let (out, err) = (ran.out(), &ran.err);
    assert!(out.contains(&format!("recorded {WRITE}\n")) && !out.contains("\ncore\n"), "{out}{err}");
    assert!(out.contains("replayed 0\n") && out.contains("shown 0\n"), "{out}{err}");
    for part in [
        "kernel panic: asked for",
        "cannot write full/rec/core: No space left",
        "without it: gretel core --at end full/rec",
    ] {
        assert!(err.contains(part), "no `{part}` in: {err}");
    }
}
