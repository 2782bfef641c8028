//! An editor that says nothing for a while.

use super::recorded;
use crate::editor::Editor;
use crate::{Place, engines};
use serde_json::json;
use std::thread::sleep;
use std::time::Duration;

/// Meanwhile it gets ready for a step back, which is to be seen in nothing but its speed.
#[test]
fn an_editor_that_says_nothing_finds_all_as_it_was() {
    let place = Place::new();
    let computes = r#"static volatile long sink;
        int main(void) {
            for (long i = 0; i < 300000000; i++) sink = i;
            *(volatile int *)8 = 1;
            return 0;
        }"#;
    for engine in engines() {
        if !recorded(&place, "computes", computes, &["-O1"], engine) {
            return;
        }
        let mut editor = Editor::launch(&place, &json!({ "recording": "rec" }));
        editor.begin();
        let before = (editor.at(), editor.position(), editor.value("sink"));
        // Questions end what it does in between, and it goes on after each.
        for silence in [150, 300, 1500] {
            sleep(Duration::from_millis(silence));
            assert_eq!((editor.at(), editor.position(), editor.value("sink")), before, "{engine}");
        }
        // A wish to stop that came before is none behind it.
        editor.ask("pause", json!({ "threadId": 0 }));
        sleep(Duration::from_millis(150));
        assert_eq!(editor.run("stepBack"), "step", "{engine}");
        assert_eq!(editor.value("sink"), "299999999");
        sleep(Duration::from_millis(150));
        assert_eq!(editor.run("continue"), "exception", "{engine}");
        assert_eq!((editor.at(), editor.position(), editor.value("sink")), before, "{engine}");
        assert_eq!(editor.leave(), 0);
        std::fs::remove_dir_all(place.path("rec")).unwrap();
    }
}
