use super::*;

#[test]
fn a_folder_with_other_things_in_it_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("mine"), "x").unwrap();
    for force in [false, true] {
        let refused = Recording::create(dir.path(), force);
        assert!(matches!(refused, Err(RecordingError::Occupied { recording: false, .. })));
    }
    assert_eq!(fs::read(dir.path().join("mine")).unwrap(), b"x");
}

#[test]
fn an_earlier_recording_is_replaced_only_by_force() {
    let dir = tempfile::tempdir().unwrap();
    let recording = Recording::create(&dir.path().join("new/dir"), false).unwrap();
    fs::write(recording.journal(), "x").unwrap();
    let refused = Recording::create(recording.dir(), false);
    assert!(matches!(refused, Err(RecordingError::Occupied { recording: true, .. })));
    Recording::create(recording.dir(), true).unwrap();
    assert!(!recording.journal().exists());
}

#[test]
fn the_names_of_a_recording_are_its_own_and_no_others() {
    for own in [
        "journal",
        "program",
        "core",
        "core.17",
        "positions.4",
        "files/0123456789abcdef",
        "flight/000000/journal",
        "flight/1000000/checkpoints",
        "flight/000001/files/0123456789abcdef",
    ] {
        assert!(own::is_own_file(Path::new(own)), "{own}");
    }
    for other in [
        "",
        "mine",
        "core.x",
        "core.",
        "files",
        "files/mine",
        "files/0123456789ABCDEF",
        "flight/1/journal",
        "flight/000000/core",
        "flight/../journal",
        "../journal",
        "/journal",
        "/etc/passwd",
        "files/../journal",
        "journal/journal",
    ] {
        assert!(!own::is_own_file(Path::new(other)), "{other}");
    }
}

/// A folder with a journal, a segment and a content.
fn filled() -> (tempfile::TempDir, Recording) {
    let dir = tempfile::tempdir().unwrap();
    let recording = Recording::create(&dir.path().join("rec"), false).unwrap();
    recording.segment(3).create().unwrap();
    fs::write(recording.segment(3).journal(), "x").unwrap();
    fs::write(recording.journal(), "x").unwrap();
    fs::create_dir(recording.dir().join("files")).unwrap();
    fs::write(recording.dir().join("files/0123456789abcdef"), "x").unwrap();
    (dir, recording)
}

#[test]
fn a_recording_is_removed_with_its_folder_or_not_at_all() {
    let (_dir, recording) = filled();
    for other in ["mine", "files/mine", "flight/mine", "flight/000003/mine"] {
        let path = recording.dir().join(other);
        fs::write(&path, "x").unwrap();
        let refused = recording.remove(&[]).unwrap_err();
        assert!(refused.to_string().contains(other), "{refused}");
        fs::remove_file(path).unwrap();
    }
    std::os::unix::fs::symlink("/etc/passwd", recording.core()).unwrap();
    assert!(matches!(recording.remove(&[]), Err(RecordingError::OtherThings { .. })));
    assert!(recording.journal().is_file() && recording.dir().join("files/0123456789abcdef").is_file());
    fs::remove_file(recording.core()).unwrap();
    assert!(recording.remove(&[]).unwrap() > 0);
    assert!(!recording.dir().exists());
}

#[test]
fn what_is_being_recorded_is_not_removed() {
    for segment in [false, true] {
        let (_dir, recording) = filled();
        assert!(!recording.is_being_recorded());
        let journal = if segment { recording.segment(3).journal() } else { recording.journal() };
        let file = File::open(journal).unwrap();
        file.lock().unwrap();
        assert!(recording.is_being_recorded());
        assert!(matches!(recording.remove(&[]), Err(RecordingError::Busy { .. })));
        assert!(matches!(Recording::create(recording.dir(), true), Err(RecordingError::Busy { .. })));
        drop(file);
        recording.remove(&[]).unwrap();
    }
}
