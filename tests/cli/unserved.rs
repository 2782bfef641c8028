//! What a program asks for and is not given: said at once and at the end, in the JSON, and by `--strict`.

use crate::{OTHER, Place};
use serde_json::{Value, json};
use std::fs;

const ASKS: &str = r#"
    #define _GNU_SOURCE
    #include <signal.h>
    #include <sys/prctl.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    int main(void) {
        for (int n = 0; n < 3; n++) acct("/nowhere");
        prctl(PR_SET_MM, PR_SET_MM_BRK, 0, 0, 0);
        struct sigevent by_thread = { .sigev_notify = SIGEV_THREAD };
        syscall(SYS_mq_notify, 0, &by_thread);
        return 5;
    }"#;

#[test]
fn what_was_not_served_is_counted_in_the_summary() {
    let place = Place::new();
    let Some(_) = place.compile("asks", ASKS) else { return };
    let recorded = place.gretel(&["record", "--json", "summary.json", "-o", "rec", "--", "./asks"]);
    assert_eq!(recorded.code, 5, "{}", recorded.err);
    for line in [
        "gretel: system call acct (163) is not supported: EPERM; first at acct(\"/nowhere\")",
        "gretel: not served: system call acct (163): EPERM, 3 times",
        "gretel: not served: mq_notify with SIGEV_THREAD: ENOSYS, once",
        "gretel: not served: prctl PR_SET_MM: EPERM, once",
    ] {
        assert_eq!(recorded.err.lines().filter(|it| *it == line).count(), 1, "{line}: {}", recorded.err);
    }
    let summary: Value = serde_json::from_slice(&fs::read(place.path("summary.json")).unwrap()).unwrap();
    assert_eq!((&summary["end"], &summary["status"]), (&json!("exited"), &json!(5)), "{summary}");
    let acct = &summary["unserved"][0];
    assert_eq!(acct["times"], 3, "{summary}");
    assert_eq!(acct["first"], "acct(\"/nowhere\")", "{summary}");
    let replayed = place.gretel(&["replay", "rec"]);
    assert_eq!((replayed.code, replayed.err.as_str()), (0, ""), "a replay says nothing of it again");
}

#[test]
fn a_strict_recording_ends_at_the_first_thing_that_is_not_served() {
    let place = Place::new();
    let Some(_) = place.compile("asks", ASKS) else { return };
    place.write(
        "summary.json",
        "of another recording, which was longer than this one's summary is ".repeat(99),
    );
    let recorded =
        place.gretel(&["record", "--strict", "--json", "summary.json", "-o", "rec", "--", "./asks"]);
    assert_eq!(recorded.code, OTHER, "{}", recorded.err);
    assert!(recorded.err.contains("by --strict: system call acct (163)"), "{}", recorded.err);
    assert_eq!(place.replay("rec", "soft")["end"], "stopped");
    let summary: Value = serde_json::from_slice(&fs::read(place.path("summary.json")).unwrap()).unwrap();
    assert_eq!(summary["end"], "stopped", "{summary}");
    assert_eq!((&summary["unserved"][0]["answer"], &summary["unserved"][1]), (&json!("EPERM"), &Value::Null));
    let reason = summary["stopped_by"].as_str().unwrap();
    assert!(reason.contains("by --strict: system call acct (163)"), "{reason}");
    let plain = place.gretel(&["record", "--strict", "-o", "plain", "--", "busybox", "true"]);
    assert_eq!(plain.code, 0, "{}", plain.err);
}
