//! Packs of recordings: what goes in comes out, and what somebody else has made does no harm.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tar::{Builder, EntryType, Header};
use vmm::contents::{Stores, name};
use vmm::pack::{PackError, Packed, pack, unpack};
use vmm::recording::Recording;

const CONTENT: &[u8] = &[7; 20_000];
/// XXH3-64 of it.
fn content_name() -> String {
    name(vmm::journal::schema::digest_executable(CONTENT))
}

/// A folder that looks like a recording: packs do not look into journals.
fn recording(dir: &Path) -> Recording {
    let recording = Recording::create(dir, false).unwrap();
    let content = format!("files/{}", content_name());
    let segment = format!("flight/000004/files/{}", content_name());
    for folder in ["files", "flight/000004/files"] {
        fs::create_dir_all(dir.join(folder)).unwrap();
    }
    let mut core = vec![0; 1 << 20];
    core[600_000] = 1;
    let files: [(&str, &[u8]); 7] = [
        ("program", b"elf"),
        ("core", &core),
        ("crumbs-0", b""),
        (&content, CONTENT),
        (&segment, CONTENT),
        ("flight/000004/journal", b"events"),
        ("journal", b"events"),
    ];
    files.iter().for_each(|(name, bytes)| fs::write(dir.join(name), bytes).unwrap());
    recording
}

/// All files below a folder with their bytes.
fn all(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = Recording::open(dir).unwrap().inventory().unwrap();
    assert_eq!(files.others, [] as [PathBuf; 0]);
    let mut all: Vec<_> =
        files.files.into_iter().map(|(name, _)| (name.clone(), fs::read(dir.join(name)).unwrap())).collect();
    all.sort();
    all
}

fn without_store(_: &Recording) -> Option<vmm::contents::Store> {
    None
}

#[test]
fn what_is_packed_is_unpacked() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let from = recording(&path("rec"));
    let packed = pack(&from, &path("rec.tar.zst")).unwrap();
    assert_eq!(packed.files, 7);
    assert_eq!(fs::metadata(path("rec.tar.zst")).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(fs::metadata(path("rec.tar.zst")).unwrap().len() < 2000);
    let again = pack(&from, &path("rec.tar.zst"));
    assert!(matches!(again, Err(PackError::Write { .. })), "never over a file that exists");
    let stores = Stores { given: Some(path("store")), data: None };
    let unpacked = unpack(&path("rec.tar.zst"), &path("out"), |recording| recording.store(&stores)).unwrap();
    assert_eq!((unpacked, all(&path("out"))), (packed, all(&path("rec"))));
    // The content in both places and in the store is one file, and holes are holes.
    let found = |name: &str| fs::metadata(path("out").join(name)).unwrap();
    assert_eq!(found(&format!("files/{}", content_name())).nlink(), 3);
    assert_eq!((found("program").nlink(), found("journal").nlink()), (2, 1));
    assert!(found("core").blocks() * 512 < 100_000, "{} blocks", found("core").blocks());
    assert_eq!(found("core").permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_is_cut_or_altered_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    pack(&recording(&path("rec")), &path("whole")).unwrap();
    let whole = fs::read(path("whole")).unwrap();
    let refused = |bytes: &[u8], what: &str| {
        fs::write(path("bad"), bytes).unwrap();
        let error = unpack(&path("bad"), &path("out"), without_store).expect_err(what);
        assert!(matches!(error, PackError::Damaged { .. }), "{what}: {error}");
        assert!(error.to_string().contains("/bad cannot be unpacked"), "{what}: {error}");
        assert!(!path("out").exists(), "{what}");
    };
    for length in [0, 3, 6, 20, whole.len() / 2, whole.len() - 5, whole.len() - 1] {
        refused(&whole[..length], &format!("{length} bytes"));
    }
    let mut noticed = 0;
    for at in (4..whole.len()).step_by(whole.len() / 60) {
        let mut altered = whole.clone();
        altered[at] ^= 0x10;
        fs::write(path("bad"), altered).unwrap();
        match unpack(&path("bad"), &path("out"), without_store) {
            // Some bits mean nothing, or the same: which zeros of a core are copied to where.
            Ok(_) => assert_eq!(all(&path("out")), all(&path("rec")), "a bit at {at}"),
            Err(error) => {
                assert!(matches!(error, PackError::Damaged { .. }), "{error}");
                noticed += 1;
            }
        }
        let _ = fs::remove_dir_all(path("out"));
    }
    assert!(noticed > 40, "{noticed}");
    refused(&[&whole[..], b"more"].concat(), "something behind it");
    refused(b"hello, I am text", "text");
    // An empty folder that was there stays.
    fs::create_dir(path("out")).unwrap();
    fs::write(path("bad"), &whole[..whole.len() / 2]).unwrap();
    assert!(unpack(&path("bad"), &path("out"), without_store).is_err());
    assert_eq!(fs::read_dir(path("out")).unwrap().count(), 0);
    fs::write(path("out/mine"), "x").unwrap();
    assert!(matches!(unpack(&path("whole"), &path("out"), without_store), Err(PackError::Recording(_))));
    assert_eq!(fs::read_dir(path("out")).unwrap().count(), 1);
}

/// A tar of one's own making: whatever name, kind and size its entries say.
fn tar_of(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (name, kind, bytes) in entries {
        let mut header = Header::new_ustar();
        // Not `set_path`, which refuses what we want.
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o777);
        header.set_size(bytes.len() as u64);
        if matches!(kind, EntryType::Symlink | EntryType::Link) {
            header.set_link_name("/etc/passwd").unwrap();
        }
        header.set_cksum();
        builder.append(&header, *bytes).unwrap();
    }
    builder.into_inner().unwrap()
}

fn unpacked(dir: &Path, tar: &[u8]) -> Result<Packed, PackError> {
    fs::write(dir.join("pack"), zstd::bulk::compress(tar, 1).unwrap()).unwrap();
    unpack(&dir.join("pack"), &dir.join("a/out"), without_store)
}

#[test]
fn a_hostile_pack_writes_nothing_anywhere() {
    let dir = tempfile::tempdir().unwrap();
    let (file, journal) = (EntryType::Regular, ("journal", EntryType::Regular, &b"events"[..]));
    let long = "files/".to_owned() + &"0".repeat(80);
    let hostile: Vec<(&str, EntryType)> = vec![
        ("../evil", file),
        ("../../journal", file),
        ("files/../../evil", file),
        ("/tmp/gretel-evil", file),
        ("files/../journal", file),
        ("evil", file),
        ("", file),
        (&long, file),
        ("files/0123456789abcdef", file),
        ("core", EntryType::Symlink),
        ("core", EntryType::Link),
        ("core", EntryType::Fifo),
        ("core", EntryType::Char),
        ("core", EntryType::GNUSparse),
        ("flight", EntryType::Directory),
        ("core", EntryType::GNULongName),
        ("core", EntryType::XHeader),
        ("journal", file),
    ];
    for (name, kind) in hostile {
        let bytes: &[u8] = if kind == file { b"evil" } else { b"" };
        let error = unpacked(dir.path(), &tar_of(&[journal, (name, kind, bytes)])).expect_err(name);
        assert!(matches!(error, PackError::Damaged { .. }), "{name} {kind:?}: {error}");
        assert!(!dir.path().join("a/out").exists() && !dir.path().join("a/evil").exists(), "{name}");
    }
    assert!(!Path::new("/tmp/gretel-evil").exists());
    // Nothing of a recording in it.
    for entries in [&[][..], &[("core", file, &b"x"[..])]] {
        assert!(unpacked(dir.path(), &tar_of(entries)).unwrap_err().to_string().contains("no journal"));
    }
    assert_eq!(unpacked(dir.path(), &tar_of(&[journal])).unwrap(), Packed { files: 1, bytes: 6 });
}

#[test]
fn sizes_are_what_there_is() {
    let dir = tempfile::tempdir().unwrap();
    // A size that is a lie.
    let mut tar = tar_of(&[("journal", EntryType::Regular, b"events")]);
    let mut header = Header::from_byte_slice(&tar[..512]).clone();
    header.set_size(1 << 50);
    header.set_cksum();
    tar[..512].copy_from_slice(header.as_bytes());
    assert!(matches!(unpacked(dir.path(), &tar), Err(PackError::Damaged { .. })));
    // Half a gigabyte of zeros behind the end, and as a file: the one is refused, the other takes no room.
    let zeros = vec![0; 64 << 20];
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.write_all(&tar_of(&[("journal", EntryType::Regular, b"events")])).unwrap();
    (0..8).for_each(|_| encoder.write_all(&zeros).unwrap());
    fs::write(dir.path().join("pack"), encoder.finish().unwrap()).unwrap();
    let error = unpack(&dir.path().join("pack"), &dir.path().join("a/out"), without_store).unwrap_err();
    assert!(error.to_string().contains("behind its end"), "{error}");
    let tar = tar_of(&[("core", EntryType::Regular, &zeros), ("journal", EntryType::Regular, b"events")]);
    unpacked(dir.path(), &tar).unwrap();
    let core = fs::metadata(dir.path().join("a/out/core")).unwrap();
    assert_eq!((core.len(), core.blocks()), (64 << 20, 0));
}
