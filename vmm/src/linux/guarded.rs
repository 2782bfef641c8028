//! The recording's folder, which does not exist for the guest.
//!
//! A file is known by device and number, so no way leads to it: not a link, not a bind mount, not `..`. The list of files is read
//! from the folder whenever that has changed. Listing the folder above leaves its name out ([`Guarded::list`]). A path whose last
//! folder is guarded leads nowhere either, so no name is made there. What the path to the recording goes over
//! ([`Guarded::is_on_the_way`]) may not be renamed or removed: EBUSY, as of a mount point.
//!
//! Example: `-o rec`, and the guest calls `truncate("rec/../rec/journal", 0)`. [`super::proc::find`] looks the path up first, finds a
//! file of the recording, and answers ENOENT.

use super::{host, int, long, word};
use crate::gate::Input;
use std::cell::RefCell;
use std::ffi::{CStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

/// Device and number of a file.
type Identity = [u64; 2];

/// A folder that changed so shortly before it was read may change again with the same time of change: clocks of file systems
/// tick with the kernel's timer.
const TICK: Duration = Duration::from_millis(20);

/// What the guest is kept from. The default keeps it from nothing, as at replay.
#[derive(Clone, Default)]
pub(crate) struct Guarded(Option<Rc<Inner>>);

struct Inner {
    /// The device of all the files.
    device: u64,
    /// The folders and links that the recording's path names.
    way: Vec<Identity>,
    /// The folder above, and the recording's name there.
    above: Option<(Identity, Vec<u8>)>,
    listed: RefCell<Listed>,
}

/// What is in the folder.
#[derive(Default)]
struct Listed {
    folders: Vec<Folder>,
    files: Vec<Identity>,
}

/// A folder, as it was when it was read.
struct Folder {
    open: File,
    path: PathBuf,
    /// When it changed last; `None` if that was just before it was read.
    changed: Option<(i64, i64)>,
}

impl Guarded {
    /// Guards a folder and all that is in it, or will be.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn folder(path: &Path) -> io::Result<Guarded> {
        let device = fs::metadata(path)?.dev();
        let listed = RefCell::new(Listed::read(path)?);
        Ok(Guarded(Some(Rc::new(Inner { device, way: way(path), above: above(path), listed }))))
    }

    /// Whether what is open is the recording's. Of a file that cannot be looked at, it is not known: true.
    pub(super) fn hides(&self, file: RawFd) -> bool {
        let Some(inner) = &self.0 else { return false };
        let Ok([device, number, ..]) = host::stat(file) else { return true };
        device == inner.device && inner.listed.borrow_mut().has([device, number])
    }

    /// Whether what a path names, links not followed, is on the way to the recording. Of what cannot be looked at, though it is there, it
    /// is not known: true.
    pub(super) fn is_on_the_way(&self, directory: RawFd, path: &CStr) -> bool {
        let Some(inner) = &self.0 else { return false };
        match host::look_up(directory, path, libc::O_NOFOLLOW).and_then(|file| host::stat(file.as_raw_fd())) {
            Ok([device, number, ..]) => inner.way.contains(&[device, number]),
            Err(error) => {
                [libc::EMFILE, libc::ENFILE, libc::ENOMEM].iter().any(|it| error == -i64::from(*it))
            }
        }
    }

    /// Lists a folder as getdents does, by calls that fill a buffer, without the recording; names begin at `name_at` of a record.
    pub(super) fn list(&self, folder: RawFd, name_at: usize, list: &mut dyn FnMut() -> Input) -> Input {
        loop {
            let mut input = list();
            let Some((above, name)) = self.0.as_ref().and_then(|inner| inner.above.as_ref()) else {
                return input;
            };
            let Input::Bytes { result: result @ 1.., writes } = &mut input else { return input };
            if !host::stat(folder).is_ok_and(|[device, number, ..]| *above == [device, number]) {
                return input;
            }
            writes.iter_mut().for_each(|write| write.bytes = without(&write.bytes, name, name_at));
            *result = writes.iter().map(|write| long(write.bytes.len() as u64)).sum();
            // Nothing at all would be the end of the folder.
            if *result > 0 {
                return input;
            }
        }
    }

    /// openat2 with rules for the way, which leads to nothing that is guarded. Only the host can follow rules, so it is asked twice:
    /// which file it would be, and for it. A new one is looked at once it is there: the last folder of its path is not known before.
    pub(super) fn open_by(&self, directory: RawFd, path: &CStr, how: [u64; 3]) -> Result<OwnedFd, i64> {
        let missing = -i64::from(libc::ENOENT);
        if self.0.is_none() {
            return host::open_by(directory, path, how);
        }
        let [flags, _, rules] = how;
        let only_path = libc::O_PATH | (int(flags) & (libc::O_NOFOLLOW | libc::O_DIRECTORY));
        let found = host::open_by(directory, path, [word(only_path.into()), 0, rules]);
        match found {
            Ok(found) if self.hides(found.as_raw_fd()) => return Err(missing),
            Ok(_) => return host::open_by(directory, path, how),
            Err(_) => {}
        }
        let made = host::open_by(directory, path, how)?;
        let name = PathBuf::from(OsString::from_vec(host::path_of(&made)?));
        let folder = name.parent().and_then(|folder| File::open(folder).ok());
        if folder.is_some_and(|folder| self.hides(folder.as_raw_fd())) {
            let _ = fs::remove_file(&name);
            return Err(missing);
        }
        Ok(made)
    }

    /// Which of the files that a program begins with is the recording's.
    pub(crate) fn inherited(&self, others: &[OwnedFd]) -> Option<String> {
        let standard = [("standard input", 0), ("standard output", 1), ("standard error", 2)];
        let standard = standard.into_iter().map(|(name, stream)| (name.to_owned(), stream));
        let others = others.iter().map(|file| (format!("descriptor {}", file.as_raw_fd()), file.as_raw_fd()));
        let here = File::open(".").ok();
        let here = here.iter().map(|here| ("working directory".to_owned(), here.as_raw_fd()));
        let mut all = here.chain(standard).chain(others);
        all.find(|(_, file)| is_open(*file) && self.hides(*file)).map(|(name, _)| name)
    }
}

fn is_open(file: RawFd) -> bool {
    host::stat(file).is_ok()
}

impl Listed {
    fn has(&mut self, file: Identity) -> bool {
        if !self.folders.iter().all(Folder::is_as_it_was)
            && let Some(path) = self.folders.first().map(|folder| folder.path.clone())
        {
            // While it cannot be read, as by another user that the program has become, what is known stays.
            if let Ok(listed) = Listed::read(&path) {
                *self = listed;
            }
        }
        self.files.contains(&file)
    }

    /// Reads the folder.
    fn read(path: &Path) -> io::Result<Listed> {
        let mut waiting = vec![path.to_owned()];
        let mut listed = Listed::default();
        while let Some(path) = waiting.pop() {
            let open = File::open(&path)?;
            let metadata = open.metadata()?;
            listed.files.push(identity(&metadata));
            let changed = settled(&metadata);
            for entry in fs::read_dir(&path)? {
                let entry = entry?;
                // One that has gone meanwhile is no file of the recording.
                let Ok(metadata) = entry.metadata() else { continue };
                match metadata.is_dir() {
                    true => waiting.push(entry.path()),
                    false => listed.files.push(identity(&metadata)),
                }
            }
            listed.folders.push(Folder { open, path, changed });
        }
        Ok(listed)
    }
}

impl Folder {
    fn is_as_it_was(&self) -> bool {
        let now = self.open.metadata().map(|now| (now.mtime(), now.mtime_nsec())).ok();
        self.changed.is_some() && now == self.changed
    }
}

/// When a folder changed, if a later change would be told from that one.
fn settled(metadata: &Metadata) -> Option<(i64, i64)> {
    let age = SystemTime::now().duration_since(metadata.modified().ok()?).ok()?;
    (age > TICK).then(|| (metadata.mtime(), metadata.mtime_nsec()))
}

fn identity(metadata: &Metadata) -> Identity {
    [metadata.dev(), metadata.ino()]
}

/// The folder above a folder, wherever links lead, and its name there.
fn above(folder: &Path) -> Option<(Identity, Vec<u8>)> {
    let real = folder.canonicalize().ok()?;
    let above = fs::metadata(real.parent()?).ok()?;
    Some((identity(&above), real.file_name()?.as_bytes().to_vec()))
}

/// The records of a folder's listing but for one name.
fn without(mut records: &[u8], name: &[u8], name_at: usize) -> Vec<u8> {
    const LENGTH: usize = 16;
    let mut others = Vec::with_capacity(records.len());
    while let Some([low, high]) = records.get(LENGTH..LENGTH + 2) {
        let length = usize::from(u16::from_le_bytes([*low, *high])).clamp(1, records.len());
        let (record, behind) = records.split_at(length);
        let called = record.get(name_at..).unwrap_or_default().split(|byte| *byte == 0).next();
        if called != Some(name) {
            others.extend_from_slice(record);
        }
        records = behind;
    }
    others
}

/// What a path names before its end: folders, and links with what they lead to.
fn way(path: &Path) -> Vec<Identity> {
    let above = path.ancestors().filter(|above| !above.as_os_str().is_empty());
    above
        .flat_map(|above| [fs::metadata(above), fs::symlink_metadata(above)])
        .flatten()
        .map(|it| identity(&it))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn files_that_are_made_later_are_guarded_and_those_that_are_removed_are_not() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("rec");
        fs::create_dir(&folder).expect("a folder");
        let guarded = Guarded::folder(&folder).expect("it is there");
        let hides = |path: &Path| guarded.hides(File::open(path).expect("a file").as_raw_fd());
        fs::write(dir.path().join("other"), "").expect("a file");
        assert!(hides(&folder) && !hides(dir.path()) && !hides(&dir.path().join("other")));
        for (n, name) in ["flight/1/journal", "core"].into_iter().enumerate() {
            std::thread::sleep(TICK * u32::try_from(n).expect("small"));
            let file = folder.join(name);
            fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
            fs::write(&file, "").expect("a file");
            fs::hard_link(&file, dir.path().join("link")).expect("a link");
            assert!(hides(&file) && hides(&dir.path().join("link")), "{name}");
            fs::remove_file(dir.path().join("link")).expect("it is there");
        }
        fs::rename(folder.join("core"), dir.path().join("core")).expect("it is there");
        assert!(!hides(&dir.path().join("core")));
        assert!(!Guarded::default().hides(File::open(&folder).expect("a folder").as_raw_fd()));
    }

    #[test]
    fn a_listing_leaves_the_recordings_name_out() {
        let record = |name: &str, length: u16| {
            let mut record = vec![7; 16];
            record.extend(length.to_le_bytes());
            record.push(libc::DT_DIR);
            record.extend(name.as_bytes());
            record.resize(length.into(), 0);
            record
        };
        let [first, own, last] =
            [("a", 24), ("rec", 24), ("rec2", 32)].map(|(name, length)| record(name, length));
        let all = [&first[..], &own, &last].concat();
        assert_eq!(without(&all, b"rec", 19), [first, last].concat());
        assert!(without(&own, b"rec", 19).is_empty() && without(&[], b"rec", 19).is_empty());
    }

    #[test]
    fn what_a_recordings_path_goes_over_is_known() {
        let dir = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(dir.path().join("a/rec")).expect("a folder");
        symlink("a", dir.path().join("link")).expect("a link");
        let guarded = Guarded::folder(&dir.path().join("link/rec")).expect("it is there");
        let top = File::open(dir.path()).expect("a folder");
        let on_the_way = |path| guarded.is_on_the_way(top.as_raw_fd(), path);
        assert!(on_the_way(c"a") && on_the_way(c"link") && on_the_way(c"a/rec") && on_the_way(c".."));
        fs::create_dir(dir.path().join("b")).expect("a folder");
        assert!(!on_the_way(c"b") && !on_the_way(c"missing"));
    }
}
