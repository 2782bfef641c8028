use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use xxhash_rust::xxh3::xxh3_64;

/// A folder for a recording, and one for data.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let place = Place { dir: tempfile::tempdir().unwrap() };
        for name in ["rec", "other"] {
            fs::create_dir(place.path(name)).unwrap();
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn store(&self) -> Store {
        let stores = Stores { given: Some(self.path("store")), data: None };
        stores.make(&self.path("rec")).expect("a store in a temporary directory")
    }
}

fn links(path: &Path) -> u64 {
    fs::metadata(path).unwrap().nlink()
}

#[test]
fn names_are_sixteen_digits() {
    assert_eq!(name(0xabc), "0000000000000abc");
    assert_eq!(digest_in("0000000000000abc"), Some(0xabc));
    for other in ["", "abc", "0000000000000ABC", "+000000000000abc", "0000000000000abc0", "000000000000zabc"]
    {
        assert_eq!(digest_in(other), None, "{other}");
    }
}

#[test]
fn the_same_bytes_are_on_disk_once_and_only_their_owner_reads_them() {
    let (place, bytes) = (Place::new(), vec![7; 100_000]);
    let (store, digest) = (place.store(), xxh3_64(&bytes));
    let [first, second] = ["rec", "other"].map(|name| place.path(name).join(super::name(digest)));
    assert_eq!(super::place(Some(&store), &first, digest, &bytes).unwrap(), Placed::Written);
    assert_eq!(super::place(Some(&store), &second, digest, &bytes).unwrap(), Placed::Linked);
    // A second time in the same recording.
    assert_eq!(super::place(Some(&store), &second, digest, &bytes).unwrap(), Placed::Linked);
    assert_eq!(fs::metadata(&first).unwrap().ino(), fs::metadata(&second).unwrap().ino());
    assert_eq!((links(&first), fs::metadata(&first).unwrap().permissions().mode() & 0o777), (3, 0o400));
    assert_eq!(fs::metadata(store.dir()).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(read(&place.path("rec"), digest).unwrap(), bytes);
    // What a recording has is never swept; what none has, is.
    assert_eq!(store.sweep().unwrap(), 0);
    fs::remove_file(first).unwrap();
    assert_eq!(store.sweep().unwrap(), 0);
    fs::remove_file(second).unwrap();
    assert!(store.sweep().unwrap() >= 100_000);
    assert_eq!(store.files().unwrap(), [] as [PathBuf; 0]);
}

#[test]
fn another_file_of_the_same_digest_is_not_taken_from_the_store() {
    let (place, bytes) = (Place::new(), vec![7; 50_000]);
    let (store, digest) = (place.store(), xxh3_64(&bytes));
    let mut other = bytes.clone();
    other[49_999] = 8;
    let path = place.path("rec").join(name(digest));
    for planted in [&other[..], &bytes[..100], b""] {
        fs::write(store.dir().join(name(digest)), planted).unwrap();
        assert_eq!(super::place(Some(&store), &path, digest, &bytes).unwrap(), Placed::Written);
        assert_eq!((fs::read(&path).unwrap(), links(&path)), (bytes.clone(), 1));
        fs::remove_file(&path).unwrap();
    }
    // In the recording itself there is no room for two.
    super::place(None, &path, digest, &bytes).unwrap();
    assert!(super::place(None, &path, digest, &other).is_err());
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn many_recorders_at_once_have_one_copy() {
    let (place, bytes) = (Place::new(), vec![9; 300_000]);
    let (store, digest) = (place.store(), xxh3_64(&bytes));
    let paths: Vec<PathBuf> = (0..8).map(|n| place.path("rec").join(n.to_string())).collect();
    std::thread::scope(|scope| {
        for path in &paths {
            scope.spawn(|| super::place(Some(&store), path, digest, &bytes).unwrap());
        }
        // And somebody who sweeps all the while.
        scope.spawn(|| (0..100).for_each(|_| assert_eq!(store.sweep().unwrap(), 0)));
    });
    assert_eq!(links(&paths[0]), 9);
    assert!(paths.iter().all(|path| fs::read(path).unwrap() == bytes));
}

#[test]
fn a_store_is_where_the_environment_says() {
    let place = Place::new();
    let (rec, data) = (place.path("rec"), place.path("data"));
    let made = |variables: &[(&str, &Path)]| {
        let of =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, path)| (*path).into());
        Stores::of_environment(of).make(&rec).map(|store| store.dir().to_owned())
    };
    let beside = fs::canonicalize(&rec).unwrap().with_file_name(".gretel-files");
    assert_eq!(made(&[("HOME", &data)]), Some(data.join(".local/share/gretel/files")));
    assert_eq!(made(&[("HOME", &data), ("XDG_DATA_HOME", &data)]), Some(data.join("gretel/files")));
    let given = place.path("given");
    assert_eq!(made(&[("GRETEL_STORE", &given), ("XDG_DATA_HOME", &data)]), Some(given));
    // Nothing is set, or nothing that counts.
    assert_eq!(made(&[]), Some(beside.clone()));
    assert_eq!(
        made(&[("HOME", Path::new("relative")), ("GRETEL_STORE", Path::new(""))]),
        Some(beside.clone())
    );
    // Another file system, and no folder.
    assert_eq!(made(&[("HOME", Path::new("/proc"))]), Some(beside.clone()));
    fs::write(place.path("file"), "").unwrap();
    assert_eq!(made(&[("HOME", &place.path("file"))]), Some(beside));
    assert_eq!(made(&[("GRETEL_STORE", &place.path("file"))]), None);
}

#[test]
fn a_store_that_others_may_write_to_is_not_used() {
    let place = Place::new();
    let dir = place.path("store");
    let stores = Stores { given: Some(dir.clone()), data: None };
    fs::create_dir(&dir).unwrap();
    for (mode, usable) in [(0o777, false), (0o770, false), (0o755, true), (0o700, true)] {
        fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(stores.make(&place.path("rec")).is_some(), usable, "{mode:o}");
    }
    fs::rename(&dir, place.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink(place.path("elsewhere"), &dir).unwrap();
    assert_eq!(stores.make(&place.path("rec")), None, "a link may lead anywhere");
}

#[test]
fn what_is_missing_or_altered_is_told_by_name() {
    let place = Place::new();
    let folder = place.path("rec");
    let text = |digest| read(&folder, digest).unwrap_err().to_string();
    assert!(text(5).contains("rec/0000000000000005") && text(5).contains("put back"), "{}", text(5));
    fs::write(folder.join(name(5)), "x").unwrap();
    assert!(text(5).contains("is not what was recorded"), "{}", text(5));
    fs::create_dir(folder.join(name(6))).unwrap();
    assert!(text(6).contains("not a regular file"), "{}", text(6));
}

#[test]
fn a_file_that_is_there_is_shared_later() {
    let (place, bytes) = (Place::new(), vec![3; 70_000]);
    let (store, digest) = (place.store(), xxh3_64(&bytes));
    let [first, second, third] = ["1", "2", "3"].map(|name| place.path("rec").join(name));
    for path in [&first, &second] {
        fs::write(path, &bytes).unwrap();
        assert_eq!(digest_of_file(path).unwrap(), digest);
        share(&store, path, digest).unwrap();
    }
    assert_eq!((links(&first), links(&second)), (3, 3));
    fs::write(&third, "another one").unwrap();
    share(&store, &third, digest).unwrap();
    assert_eq!((links(&third), fs::read(&third).unwrap()), (1, b"another one".to_vec()));
    assert_eq!(fs::read_dir(place.path("rec")).unwrap().count(), 3);
}

#[test]
fn a_large_file_is_kept_with_its_holes_and_linked() {
    let place = Place::new();
    let (store, source) = (place.store(), place.path("image"));
    let bytes = [vec![0; 3 * PIECE], vec![7; 100], vec![0; 2 * PIECE]].concat();
    fs::write(&source, &bytes).unwrap();
    let [first, second] = ["rec", "other"].map(|name| place.path(name));
    let digest = place_file(Some(&store), &first, &source).unwrap();
    assert_eq!((digest, place_file(Some(&store), &second, &source).unwrap()), (xxh3_64(&bytes), digest));
    let kept = first.join(super::name(digest));
    let found = fs::metadata(&kept).unwrap();
    assert!(found.blocks() * 512 < bytes.len() as u64 / 2, "{} blocks", found.blocks());
    assert_eq!((links(&kept), found.len()), (3, bytes.len() as u64));
    let mut read = Vec::new();
    open(&second, digest).unwrap().read_to_end(&mut read).unwrap();
    assert!(read == bytes);
    // The source's own changes are nobody's.
    fs::write(&source, b"other").unwrap();
    assert_eq!(read, super::read(&first, digest).unwrap());
    fs::set_permissions(&kept, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&kept, b"other").unwrap();
    assert!(matches!(open(&first, digest), Err(ContentError::Altered { .. })));
    assert!(matches!(open(&first, digest + 1), Err(ContentError::Read { .. })));
}
