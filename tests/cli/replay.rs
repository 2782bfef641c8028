//! Record and replay: as native while recording, the same again on every engine, from the folder alone.

use crate::{DAMAGED, Place, engines, finished, ran, skipped};
use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Text with some structure, 200 kB.
fn text() -> String {
    (0..10_000_u32).map(|n| format!("{} line {}\n", n.wrapping_mul(2_654_435_761), n % 97)).collect()
}

/// Each applet's output and status are the native ones, and its recording replays the same on every engine.
#[test]
fn applets_run_as_natively_and_replay_the_same() {
    let place = Place::new();
    place.write("text", text());
    fs::create_dir(place.path("tree")).unwrap();
    place.write("tree/a", "one");
    place.write("tree/b", "two");
    let applets: &[&[&str]] = &[
        &["sha256sum", "text"],
        &["gzip", "-c", "text"],
        &["sort", "text"],
        &["awk", "{ n[$3] += $1 } END { for (k in n) print k, n[k] }", "text"],
        &["sed", "s/line/row/", "text"],
        &["tar", "c", "tree"],
        &["find", "tree", "-name", "b"],
        &["ls", "-l", "tree"],
        &["sh", "-c", "echo $((6 * 7)); exit 7"],
        &["cat", "no-such-file"],
    ];
    for (n, applet) in applets.iter().enumerate() {
        let native = ran(&mut place.command("busybox", applet));
        for engine in engines() {
            let recording = format!("{engine}-{n}");
            let start = ["record", "--engine", engine, "-o", &recording, "--", "busybox"];
            let recorded = place.gretel(&[&start[..], applet].concat());
            assert_eq!(recorded.code, native.code, "{applet:?} on {engine}: {}", recorded.err);
            assert!(recorded.out == native.out, "{applet:?} on {engine}: other output than natively");
            let digests: Vec<_> = engines()
                .iter()
                .map(|replayer| place.replay(&recording, replayer)["digest"].clone())
                .collect();
            assert!(digests.windows(2).all(|pair| pair[0] == pair[1]), "{applet:?}: {digests:?}");
        }
    }
}

/// What a program finds of itself in /proc and /dev is its own; gretel's descriptors and memory are not there.
#[test]
fn programs_find_themselves_in_proc_and_not_gretel() {
    let place = Place::new();
    for engine in engines() {
        for (n, (applet, out, code)) in [
            (&["readlink", "/proc/self/exe"][..], "/busybox\n", 0),
            (&["sh", "-c", "echo said >/dev/stdout"], "said\n", 0),
            (&["sh", "-c", "grep -c '\\[stack\\]' /proc/self/maps"], "1\n", 0),
            (&["cat", "/proc/self/comm"], "busybox\n", 0),
            (&["sh", "-c", "cd /proc && read name rest <self/status && echo $name"], "Name:\n", 0),
            (&["cat", "/proc/sys/kernel/hostname"], "gretel\n", 0),
            (&["cat", "/sys/devices/system/cpu/online"], "0\n", 0),
            (&["readlink", "/proc/self/fd/3"], "", 1),
        ]
        .into_iter()
        .enumerate()
        {
            let recording = format!("{engine}-{n}");
            let start = ["record", "--engine", engine, "-o", &recording, "--", "busybox"];
            let recorded = place.gretel(&[&start[..], applet].concat());
            assert_eq!(recorded.code, code, "{applet:?}: {}", recorded.err);
            assert!(recorded.out.ends_with(out.as_bytes()), "{applet:?}: {:?}", recorded.out);
            assert!(!out.is_empty() || recorded.out.is_empty(), "{applet:?}: {:?}", recorded.out);
            place.replay(&recording, engine);
        }
    }
}

/// Replay reads no file but the recording's, and shows the same output.
#[test]
fn replay_needs_only_the_folder() {
    let place = Place::new();
    let input = place.write("input", "b\na\n");
    let busybox = fs::read("/bin/busybox").or_else(|_| fs::read("/usr/bin/busybox")).unwrap();
    let program = place.write("busybox", busybox);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&program, mode).unwrap();
    assert_eq!(place.gretel(&["record", "-o", "rec", "--", "./busybox", "sort", "input"]).out(), "a\nb\n");
    fs::remove_file(input).unwrap();
    fs::remove_file(program).unwrap();
    for engine in engines() {
        let replayed = place.gretel(&["replay", "rec", "--engine", engine, "--output"]);
        assert_eq!((replayed.code, replayed.out()), (0, "a\nb\n".to_owned()), "{}", replayed.err);
    }
}

/// A reader that has seen enough is no failure.
#[test]
fn a_closed_pipe_behind_replay_is_no_failure() {
    let place = Place::new();
    assert_eq!(place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "busybox", "true"]).code, 0);
    let gretel = env!("CARGO_BIN_EXE_gretel");
    let script = format!("{{ {gretel} replay --engine soft rec; echo $? >code; }} | true");
    assert_eq!(ran(&mut place.command("sh", &["-c", &script])).err, "");
    assert_eq!(fs::read_to_string(place.path("code")).unwrap(), "0\n");
}

#[test]
fn standard_input_is_recorded() {
    let place = Place::new();
    let mut command =
        place.command(env!("CARGO_BIN_EXE_gretel"), &["record", "-o", "rec", "--", "busybox", "wc", "-l"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text().as_bytes()).unwrap();
    let recorded = finished(&child.wait_with_output().unwrap());
    assert_eq!((recorded.code, recorded.out().trim()), (0, "10000"));
    assert_eq!(place.gretel(&["replay", "rec", "--output"]).out().trim(), "10000");
}

/// A recording with two lines read, and a recorder that waits for a third.
fn waiting_recorder(place: &Place) -> Child {
    let mut command =
        place.command(env!("CARGO_BIN_EXE_gretel"), &["record", "-o", "rec", "--", "busybox", "cat"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    for line in ["first\n", "second\n"] {
        child.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
        // Longer than the journal's flush interval.
        sleep(Duration::from_millis(400));
    }
    child
}

/// A signal that is not for gretel takes the vCPU out of KVM as well; the program must not notice.
#[test]
fn a_recorder_that_is_stopped_and_continued_goes_on() {
    if !engines().contains(&"kvm") {
        return;
    }
    let place = Place::new();
    let source = r#"
        #include <unistd.h>
        int main(void) {
            write(1, "ready\n", 6);
            for (volatile long i = 0; i < 200000000; i++) {}
            write(1, "done\n", 5);
            return 3;
        }"#;
    if place.compile("spin", source).is_none() {
        return;
    }
    let arguments = ["record", "-o", "rec", "--engine", "kvm", "--", "./spin"];
    let mut command = place.command(env!("CARGO_BIN_EXE_gretel"), &arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    for signal in ["-STOP", "-CONT", "-STOP", "-CONT"] {
        assert!(place.command("kill", &[signal, &child.id().to_string()]).status().unwrap().success());
        sleep(Duration::from_millis(20));
    }
    let recorded = finished(&child.wait_with_output().unwrap());
    assert_eq!((recorded.code, recorded.out()), (3, "done\n".to_owned()), "{}", recorded.err);
    place.replay("rec", "kvm");
}

/// What a killed recorder wrote before replays, and the message says that there is no end.
#[test]
fn a_killed_recorder_leaves_what_it_recorded() {
    let place = Place::new();
    let mut child = waiting_recorder(&place);
    child.kill().unwrap();
    child.wait().unwrap();
    for engine in engines() {
        let replayed = place.gretel(&["replay", "rec", "--engine", engine, "--output"]);
        assert_eq!(
            (replayed.code, replayed.out()),
            (DAMAGED, "first\nsecond\n".to_owned()),
            "{}",
            replayed.err
        );
        assert!(replayed.err.contains("the recorder was killed"), "{}", replayed.err);
    }
}

/// A signal to the recorder is the program's, which ends by it as natively.
#[test]
fn a_signal_ends_the_program_and_its_recording_is_complete() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129), ("-USR1", 138)] {
        let place = Place::new();
        let child = waiting_recorder(&place);
        let pid = child.id().to_string();
        assert!(place.command("kill", &[signal, &pid]).status().unwrap().success());
        let recorded = finished(&child.wait_with_output().unwrap());
        assert_eq!(recorded.code, code, "{signal}: {}", recorded.err);
        assert!(recorded.err.contains("ended by SIG"), "{}", recorded.err);
        for engine in engines() {
            let replayed = place.replay("rec", engine);
            assert_eq!(
                (&replayed["end"], &replayed["status_or_signal"]),
                (&"killed".into(), &(code - 128).into())
            );
        }
    }
}

/// Replay does not believe a journal that belongs to another program.
#[test]
fn another_program_is_noticed() {
    let place = Place::new();
    assert_eq!(place.gretel(&["record", "-o", "rec", "--", "busybox", "true"]).code, 0);
    let mut program = fs::read(place.path("rec/program")).unwrap();
    let last = program.len() - 1;
    program[last] ^= 1;
    place.replace("rec/program", program);
    let replayed = place.gretel(&["replay", "rec"]);
    assert_eq!(replayed.code, DAMAGED);
    assert!(replayed.err.contains("not the program that was recorded"), "{}", replayed.err);
}

/// The recorder's own files stay private, whatever the umask.
#[test]
fn recordings_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let script = format!("umask 0; exec {} record -o rec -- busybox true", env!("CARGO_BIN_EXE_gretel"));
    assert_eq!(ran(&mut place.command("sh", &["-c", &script])).code, 0);
    for (name, private) in [("rec/journal", 0o600), ("rec/program", 0o400), ("rec/crumbs-0", 0o600)] {
        let mode = fs::metadata(place.path(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, private, "{name}");
    }
    let mode = fs::metadata(place.path("rec")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

/// A full disk ends the recording with its own code, and what is on the disk replays.
#[test]
fn a_full_disk_is_reported_and_the_rest_replays() {
    let place = Place::new();
    fs::create_dir(place.path("small")).unwrap();
    // Noise, which the journal cannot compress.
    let noise = fs::File::open("/dev/urandom").unwrap();
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut std::io::Read::take(noise, 8 << 20), &mut bytes).unwrap();
    place.write("noise", bytes);
    let gretel = env!("CARGO_BIN_EXE_gretel");
    let script = format!(
        "mount -t tmpfs -o size=6m tmpfs small || exit 77\n\
         {gretel} record -o small/rec -- busybox sha256sum noise; echo record $?\n\
         {gretel} replay small/rec; echo replay $?"
    );
    let done = ran(&mut place.command("unshare", &["-m", "sh", "-c", &script]));
    if !done.out().contains("record ") {
        return skipped("a full disk", "a small file system cannot be mounted by this user");
    }
    assert!(done.out().contains(&format!("record {}\n", crate::WRITE)), "{}{}", done.out(), done.err);
    assert!(done.err.contains("cannot write the journal small/rec/journal from offset"), "{}", done.err);
    assert!(done.err.contains("No space left") && done.err.contains("--disk SIZE"), "{}", done.err);
    assert!(done.out().contains(&format!("replay {DAMAGED}\n")), "{}{}", done.out(), done.err);
    assert!(done.err.contains("events before it were replayed and are as recorded"), "{}", done.err);
}

/// Who ends a replay that writes checkpoints keeps those that were there, and no part of the new ones.
#[test]
fn a_replay_that_writes_checkpoints_is_interrupted() {
    let place = Place::new();
    let source =
        "int main(void) { volatile long sum = 0; for (long n = 0; n < 600000000; n++) sum += n; return 5; }";
    if place.compile("computes", source).is_none() {
        return;
    }
    for engine in engines() {
        let start =
            ["record", "--engine", engine, "--checkpoint-every", "0", "-o", engine, "--", "./computes"];
        assert_eq!(place.gretel(&start).code, 5);
        let new = place.path(engine).join("checkpoints.new");
        let old = place.path(engine).join("checkpoints");
        place.write(&format!("{engine}/checkpoints"), "old");
        let arguments = ["replay", engine, "--engine", engine, "--checkpoint-every", "0.01"];
        let mut command = place.command(env!("CARGO_BIN_EXE_gretel"), &arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        while !new.exists() && child.try_wait().unwrap().is_none() {
            sleep(Duration::from_millis(5));
        }
        assert!(place.command("kill", &["-INT", &child.id().to_string()]).status().unwrap().success());
        let ran = finished(&child.wait_with_output().unwrap());
        assert_eq!((ran.code, ran.out().as_str()), (130, ""), "{engine}: {}", ran.err);
        assert!(ran.err.contains("interrupted: no checkpoint is written"), "{engine}: {}", ran.err);
        assert!(!new.exists() && fs::read(&old).unwrap() == b"old", "{engine}");
    }
}

/// Who goes to where the program does not stand is told where it stands.
#[test]
fn a_position_that_there_is_not_is_said() {
    let place = Place::new();
    if place.compile("ends", "int main(void) { return 0; }").is_none() {
        return;
    }
    assert_eq!(place.gretel(&["record", "-o", "rec", "--", "./ends"]).code, 0);
    let ran = place.gretel(&["replay", "rec", "--to", "1+99999999"]);
    assert_eq!((ran.code, ran.out().starts_with("position 2: ")), (0, true), "{}{}", ran.out(), ran.err);
    assert!(ran.err.contains("does not stand at 1+99999999, but at 2 behind it"), "{}", ran.err);
    let ran = place.gretel(&["replay", "rec", "--to", "2"]);
    assert!(ran.code == 0 && ran.err.is_empty(), "{}", ran.err);
}
