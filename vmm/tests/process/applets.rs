//! The applets of a static busybox, compared with what they print natively.

use crate::harness::{Run, engines, skipped};
use std::fs;
use std::path::Path;
use vmm::process::Step;

const BUSYBOX: &str = "/bin/busybox";

/// Runs applets in a folder with some files, on each engine.
fn applets(commands: &[(&[&str], &str)]) {
    if !Path::new(BUSYBOX).exists() {
        skipped("busybox", &format_args!("there is no {BUSYBOX}"));
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    fill(folder.path());
    for (arguments, stdin) in commands {
        let mut run = Run::new(Path::new(BUSYBOX), arguments);
        run.directory = folder.path().to_owned();
        run.stdin = stdin.as_bytes().to_vec();
        let (expected, status) = run.natively();
        for kind in engines() {
            let ran = run.on(kind);
            let shown = String::from_utf8_lossy(&ran.stdout).into_owned();
            assert_eq!(ran.end, Step::Exited(status.expect("a status")), "{arguments:?}: {shown}");
            assert!(ran.stdout == expected, "{arguments:?} on {}: {shown}", kind.name());
            for other in engines() {
                ran.replay_on(other);
            }
        }
    }
}

/// The files that the applets work on: texts, a binary, a link, an empty directory.
fn fill(folder: &Path) {
    let words: Vec<String> =
        (0..1500_u32).map(|n| format!("{:05} word{}", n * 7919 % 10007, n % 97)).collect();
    let noise: Vec<u8> = (0..50_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.join(name), bytes).expect("a file");
    write("words", words.join("\n").as_bytes());
    write("noise", &noise);
    write("short", b"one\ntwo\nthree\n");
    fs::create_dir_all(folder.join("tree/deep/empty")).expect("a directory");
    write("tree/deep/file", b"deep\n");
    std::os::unix::fs::symlink("deep/file", folder.join("tree/link")).expect("a link");
}

#[test]
fn digests_and_compression() {
    applets(&[
        (&["sha256sum", "noise", "words"], ""),
        (&["md5sum", "noise"], ""),
        (&["sha512sum", "-"], "some input"),
        (&["cksum", "noise"], ""),
        (&["gzip", "-c", "words"], ""),
        (&["bzip2", "-c", "words"], ""),
        (&["base64", "short"], ""),
    ]);
}

#[test]
fn texts() {
    applets(&[
        (&["sort", "words"], ""),
        (&["sort", "-rnu", "words"], ""),
        (&["awk", "{ sum[$2] += $1 } END { for (w in sum) print w, sum[w], sum[w] / 7 }", "words"], ""),
        (&["sed", "-n", "s/word\\(.\\)/<\\1>/p", "words"], ""),
        (&["grep", "-c", "word1", "words"], ""),
        (&["grep", "-nE", "^0+1.*(3|5)$", "words"], ""),
        (&["wc", "words", "noise"], ""),
        (&["cut", "-d", " ", "-f", "2", "words"], ""),
        (&["tr", "a-z", "A-Z"], "some input\n"),
        (&["head", "-n", "3", "words"], ""),
        (&["tail", "-n", "3", "words"], ""),
        (&["uniq", "-c"], "a\na\nb\n"),
        (&["od", "-c", "short"], ""),
        (&["hexdump", "-C", "noise"], ""),
        (&["diff", "short", "words"], ""),
        (&["seq", "1", "3", "20"], ""),
        (&["expr", "6", "*", "7"], ""),
        (&["dc", "-e", "2 64 ^ p"], ""),
    ]);
}

#[test]
fn files_and_folders() {
    applets(&[
        (&["cat", "short", "-"], "from standard input\n"),
        (&["ls", "-la", "tree"], ""),
        (&["ls", "-lR", "."], ""),
        (&["find", ".", "-type", "f"], ""),
        (&["tar", "c", "tree", "short"], ""),
        (&["stat", "short"], ""),
        (&["readlink", "-f", "tree/link"], ""),
        (&["du", "-a", "tree"], ""),
        (&["dd", "if=noise", "bs=1000", "count=3", "skip=2"], ""),
        (&["cat", "missing"], ""),
        (&["test", "-f", "missing"], ""),
        (&["pwd"], ""),
        (&["printenv", "PATH"], ""),
        (&["echo", "a", "b"], ""),
        (&["id", "-u"], ""),
        (&["true"], ""),
        (&["false"], ""),
    ]);
}

/// Commands that change files: in a folder of their own natively and for each engine, which must then be equal.
#[test]
fn changes_to_files() {
    const COMMANDS: &[&[&str]] = &[
        &["cp", "short", "copy"],
        &["mv", "copy", "moved"],
        &["ln", "-sf", "moved", "soft"],
        &["ln", "moved", "hard"],
        &["rm", "soft"],
        &["mkdir", "-p", "tree/new/newer"],
        &["rmdir", "tree/new/newer"],
        &["touch", "-d", "2020-02-02 02:02:02", "short", "fresh"],
        &["chmod", "600", "short"],
        &["dd", "if=noise", "of=part", "bs=1000", "count=3"],
        &["truncate", "-s", "5", "words"],
        &["gzip", "noise"],
        &["tar", "cf", "all.tar", "tree", "moved"],
        &["tar", "xf", "all.tar", "-C", "tree/new"],
        &["sed", "-i", "s/two/TWO/", "moved"],
        &["cp", "-r", "tree/deep", "deeper"],
    ];
    if !Path::new(BUSYBOX).exists() {
        skipped("busybox", &format_args!("there is no {BUSYBOX}"));
        return;
    }
    let run = |folder: &Path, arguments: &[&str]| {
        let mut run = Run::new(Path::new(BUSYBOX), arguments);
        run.directory = folder.to_owned();
        run
    };
    let native = tempfile::tempdir().expect("a folder");
    fill(native.path());
    let outputs: Vec<_> = COMMANDS.iter().map(|arguments| run(native.path(), arguments).natively()).collect();
    let wanted = listing(native.path());
    assert!(wanted.len() > 12 && outputs.iter().all(|(_, status)| *status == Some(0)), "{outputs:?}");
    for kind in engines() {
        let folder = tempfile::tempdir().expect("a folder");
        fill(folder.path());
        let recordings: Vec<_> =
            COMMANDS.iter().map(|arguments| run(folder.path(), arguments).on(kind)).collect();
        for (arguments, ran) in COMMANDS.iter().zip(&recordings) {
            assert_eq!(ran.end, Step::Exited(0), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stdout));
        }
        assert_eq!(listing(folder.path()), wanted, "on {}", kind.name());
        // A replay touches nothing: the folder may be gone.
        drop(folder);
        recordings.iter().for_each(|ran| engines().into_iter().for_each(|other| ran.replay_on(other)));
    }
}

/// All files below a folder with their modes and contents.
fn listing(folder: &Path) -> Vec<(String, u32, Vec<u8>)> {
    use std::os::unix::fs::PermissionsExt;
    let mut found = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(path) = left.pop() {
        let metadata = fs::symlink_metadata(&path).expect("it is there");
        let name = path.strip_prefix(folder).expect("below the folder").to_string_lossy().into_owned();
        let bytes = if metadata.is_file() { fs::read(&path).expect("a file") } else { Vec::new() };
        // Archives hold times of modification, which differ.
        let comparable = !name.ends_with(".tar") && !name.ends_with(".gz");
        found.push((name, metadata.permissions().mode(), if comparable { bytes } else { Vec::new() }));
        if metadata.is_dir() {
            left.extend(
                fs::read_dir(&path).expect("a directory").map(|entry| entry.expect("an entry").path()),
            );
        }
    }
    found.sort();
    found
}
