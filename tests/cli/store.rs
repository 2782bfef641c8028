//! Files that recordings share: on the disk once, whole without the store, checked when they are read; and packs.

use crate::{DAMAGED, Place, Ran, USAGE, WRITE, engines, ran, skipped};
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// All files below a folder.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => all.extend(files(&path)),
            false => all.push(path),
        }
    }
    all.sort();
    all
}

/// What folders take on the disk, in bytes, each file once.
fn on_disk(dirs: &[PathBuf]) -> u64 {
    let found = dirs.iter().flat_map(|dir| files(dir)).map(|path| fs::metadata(path).expect("a file"));
    found
        .map(|file| ((file.dev(), file.ino()), file.blocks() * 512))
        .collect::<HashMap<_, _>>()
        .values()
        .sum()
}

/// The files of a recording that hold contents.
fn contents(place: &Place, recording: &str) -> Vec<PathBuf> {
    files(&place.path(recording).join("files"))
}

fn record(place: &Place, recording: &str) -> Option<Ran> {
    let program = ["/usr/bin/ls", "/bin/ls"].into_iter().find(|program| Path::new(program).exists());
    let Some(program) = program else {
        skipped("a dynamic program", "there is no ls");
        return None;
    };
    let made = place.gretel(&["record", "--engine", "soft", "-o", recording, "--", program, "/"]);
    assert_eq!(made.code, 0, "{}", made.err);
    if contents(place, recording).is_empty() {
        skipped("a dynamic program", "ls is static here");
        return None;
    }
    Some(made)
}

#[test]
fn ten_recordings_of_a_dynamic_program_hold_one_copy() {
    let place = Place::new();
    let Some(_) = record(&place, "rec-0") else { return };
    let folders: Vec<PathBuf> =
        (0..10).map(|n| place.path(&format!("rec-{n}"))).chain([place.store()]).collect();
    let one = on_disk(&folders);
    (1..10).for_each(|n| drop(record(&place, &format!("rec-{n}"))));
    let ten = on_disk(&folders);
    // The ring of crumbs is most of what each has for itself.
    let own = on_disk(&[place.path("rec-9")])
        - files(&place.store())
            .iter()
            .fold(0, |all, file| all + fs::metadata(file).expect("a file").blocks() * 512);
    assert!(own < 500_000 && ten <= one + 9 * own + 100_000, "one {one}, ten {ten}, own {own}");
    // A recording is whole without the store, and without the others.
    fs::remove_dir_all(place.store()).unwrap();
    (0..9).for_each(|n| fs::remove_dir_all(place.path(&format!("rec-{n}"))).unwrap());
    for engine in engines() {
        place.replay("rec-9", engine);
    }
}

#[test]
fn what_is_altered_or_missing_is_told_by_name() {
    let place = Place::new();
    let Some(_) = record(&place, "rec") else { return };
    for content in contents(&place, "rec") {
        let bytes = fs::read(&content).unwrap();
        let name = content.file_name().unwrap().to_str().unwrap().to_owned();
        let below = format!("rec/files/{name}");
        let mut altered = bytes.clone();
        altered[0] ^= 1;
        place.replace(&below, &altered);
        let replayed = place.gretel(&["replay", "rec"]);
        assert_eq!(replayed.code, DAMAGED, "{}", replayed.err);
        assert!(replayed.err.contains(&below) && replayed.err.contains("put back"), "{}", replayed.err);
        fs::remove_file(&content).unwrap();
        let replayed = place.gretel(&["replay", "rec"]);
        assert_eq!(replayed.code, DAMAGED, "{}", replayed.err);
        assert!(replayed.err.contains(&below), "{}", replayed.err);
        // Listing needs none of them.
        assert!(place.gretel(&["ls"]).out().contains("exited 0"));
        // The remedy that the message gives.
        fs::hard_link(place.store().join(name), &content).unwrap();
        place.replay("rec", "soft");
    }
}

/// Services have no home; disks are read-only, full, or another one.
#[test]
fn a_recording_is_made_wherever_the_store_cannot_be() {
    let place = Place::new();
    let Some(_) = record(&place, "rec") else { return };
    place.write("file", "no folder");
    let not_a_folder = place.path("file");
    let elsewhere = place.path("data");
    let cases: [(&str, &[(&str, &Path)]); 5] = [
        ("none", &[]),
        ("home", &[("HOME", &not_a_folder)]),
        ("proc", &[("HOME", Path::new("/proc"))]),
        ("given", &[("GRETEL_STORE", &not_a_folder)]),
        ("data", &[("XDG_DATA_HOME", &elsewhere), ("HOME", &not_a_folder)]),
    ];
    for (name, variables) in cases {
        let mut command =
            place.command(env!("CARGO_BIN_EXE_gretel"), &["record", "--engine", "soft", "-o", name]);
        command.args(["--", "/usr/bin/ls", "/"]).env_clear().envs(variables.iter().copied());
        let made = ran(&mut command);
        assert_eq!(made.code, 0, "{name}: {}", made.err);
        let links = |recording: &str| fs::metadata(&contents(&place, recording)[0]).unwrap().nlink();
        // Without a home they are beside the recordings.
        let expected = match name {
            "none" => 2,
            "home" | "proc" => links("none"),
            "data" => 2,
            _ => 1,
        };
        assert_eq!(links(name), expected, "{name}");
        place.replay(name, "soft");
    }
    assert!(place.path(".gretel-files").is_dir() && place.path("data/gretel/files").is_dir());
}

#[test]
fn a_killed_recorder_leaves_contents_for_all_that_its_journal_names() {
    let place = Place::new();
    let Some(_) = record(&place, "rec") else { return };
    for milliseconds in [20, 60, 120, 250] {
        let name = format!("killed-{milliseconds}");
        let mut command =
            place.command(env!("CARGO_BIN_EXE_gretel"), &["record", "--engine", "soft", "-o", &name]);
        command.args(["--", "/bin/sh", "-c", "while :; do /usr/bin/ls / >/dev/null; done"]);
        let mut child: Child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(milliseconds));
        child.kill().unwrap();
        child.wait().unwrap();
        let replayed = place.gretel(&["replay", &name]);
        // Before there is a journal there is no recording, and before that not even a folder.
        assert_eq!(replayed.code, DAMAGED, "{}", replayed.err);
        if !place.path(&name).exists() {
            assert!(replayed.err.contains("there is no recording"), "{}", replayed.err);
            continue;
        }
        let usable =
            ["were replayed and are as recorded", "is not a recording", "nothing of it can be replayed"];
        assert!(usable.iter().any(|text| replayed.err.contains(text)), "{}", replayed.err);
    }
}

#[test]
fn a_pack_replays_on_another_machine() {
    let place = Place::new();
    let Some(_) = record(&place, "rec") else { return };
    let packed = place.gretel(&["pack", "rec"]);
    assert_eq!(packed.code, 0, "{}", packed.err);
    let again = place.gretel(&["pack", "rec"]);
    assert_eq!(again.code, WRITE, "{}", again.err);
    let there = Place::new();
    fs::copy(place.path("rec.tar.zst"), there.path("rec.tar.zst")).unwrap();
    let unpacked = there.gretel(&["unpack", "rec.tar.zst"]);
    assert_eq!(unpacked.code, 0, "{}", unpacked.err);
    for engine in engines() {
        assert_eq!(there.replay("rec", engine)["digest"], place.replay("rec", engine)["digest"]);
    }
    // It is shared there too.
    assert!(contents(&there, "rec").iter().all(|file| fs::metadata(file).unwrap().nlink() == 2));
    let occupied = there.gretel(&["unpack", "rec.tar.zst"]);
    assert_eq!(occupied.code, USAGE, "{}", occupied.err);
    there.gretel(&["unpack", "rec.tar.zst", "-o", "second"]);
    assert!(contents(&there, "rec").iter().all(|file| fs::metadata(file).unwrap().nlink() == 3));
    // Other tools read it as well.
    if there.sh("command -v zstd tar").code == 0 {
        let listed = there.sh("zstd -dc rec.tar.zst | tar t");
        assert!(listed.out().lines().last() == Some("journal"), "{}{}", listed.out(), listed.err);
    }
    let bytes = fs::read(there.path("rec.tar.zst")).unwrap();
    there.write("cut.tar.zst", &bytes[..bytes.len() / 2]);
    let cut = there.gretel(&["unpack", "cut.tar.zst"]);
    assert_eq!(cut.code, DAMAGED, "{}", cut.err);
    assert!(cut.err.contains("cut.tar.zst cannot be unpacked") && !there.path("cut").exists(), "{}", cut.err);
    let unnamed = there.gretel(&["unpack", "cut"]);
    assert_eq!(unnamed.code, USAGE, "{}", unnamed.err);
    assert_eq!(there.gretel(&["pack", "there-is-none"]).code, DAMAGED);
}

#[test]
fn a_flight_recorder_is_packed_as_well() {
    let place = Place::new();
    let Some(_) = record(&place, "rec") else { return };
    let line = "n=0; while [ $n -lt 40 ]; do n=$((n+1)); /usr/bin/ls / >/dev/null; head -c 200000 /dev/urandom; done";
    let start =
        ["record", "--engine", "soft", "--flight", "6M", "--checkpoint-every", "0.05", "-o", "flight-1"];
    let made = place.gretel(&[&start[..], &["--", "/bin/sh", "-c", line]].concat());
    assert_eq!(made.code, 0, "{}", made.err);
    assert_eq!(place.gretel(&["pack", "flight-1", "-o", "pack"]).code, 0);
    let before = place.replay("flight-1", "soft");
    assert!(before["begins"].is_string(), "the oldest segments are gone: {before}");
    let removed = place.gretel(&["rm", "flight-1"]);
    assert_eq!(removed.code, 0, "{}", removed.err);
    let unpacked = place.gretel(&["unpack", "pack", "-o", "flight-2"]);
    assert_eq!(unpacked.code, 0, "{}", unpacked.err);
    assert_eq!(place.replay("flight-2", "soft")["digest"], before["digest"]);
}
