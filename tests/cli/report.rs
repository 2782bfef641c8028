//! `gretel report`: the page is whole, says what the other commands say, and has no markup but gretel's own.

use crate::{DAMAGED, Place, USAGE, skipped};
use std::process::Command;

const PROGRAM: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    #include <unistd.h>
    int main(int count, char **arguments) {
        char line[64] = "";
        if (fork() == 0) return 0;
        fgets(line, sizeof line, stdin);
        return *(int *)strtol(line, 0, 16) + count;
    }"#;

/// An argument that would be a script if nobody cared.
const SCRIPT: &str = "<script>alert(1)</script>";

fn recorded() -> Option<Place> {
    let place = Place::new();
    place.compile("reported", PROGRAM)?;
    place.write("input", "780\n");
    let gretel = env!("CARGO_BIN_EXE_gretel");
    let ran = place.sh(&format!("{gretel} record --engine soft -o rec -- ./reported '{SCRIPT}' <input"));
    assert_eq!(ran.code, 128 + 11, "{}", ran.err);
    Some(place)
}

#[test]
fn a_page_has_all_that_is_known() {
    let Some(place) = recorded() else { return };
    let ran = place.gretel(&["report", "rec", "-o", "page.html"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let page = std::fs::read_to_string(place.path("page.html")).expect("the page");
    for section in ["crash", "why", "suffix", "branches", "time", "machine"] {
        assert!(page.contains(&format!("<section id=\"{section}\"")), "no {section}");
    }
    assert!(page.contains("SIGSEGV") && page.contains("0x780"), "the crash");
    assert!(page.contains("bytes 0 to 2 of what it read"), "the input");
    assert!(
        page.contains("In short: it was made of bytes 0 to 2 of what the read of descriptor 0"),
        "the sentence"
    );
    assert!(page.contains("certified"), "the suffix");
    assert!(!page.contains(SCRIPT) && page.contains("&lt;script&gt;"), "the argument is no markup");
    assert!(!page.contains("http://") && !page.contains("https://"), "it needs no network");
    // What a step was made of is a link to it, and nothing is told by a drawing alone.
    let links: Vec<&str> =
        page.split("href=\"#step-").skip(1).filter_map(|it| it.split('"').next()).collect();
    assert!(
        !links.is_empty() && links.iter().all(|to| page.contains(&format!("<li id=\"step-{to}\""))),
        "{links:?}"
    );
    assert_eq!(
        page.matches("<table").count(),
        page.matches("<table class=\"facts\"").count() + page.matches("<thead>").count()
    );
    // On paper it is black on white, whatever the screen has.
    assert!(page.contains("@media screen and (prefers-color-scheme: dark)"), "the colours");
    // What is there is not overwritten unless it is said.
    let ran = place.gretel(&["report", "rec", "-o", "page.html"]);
    assert!(ran.code != 0 && ran.err.contains("--force"), "{}", ran.err);
    let ran = place.gretel(&["report", "rec", "-o", "page.html", "--force", "--fuel", "0"]);
    assert!(ran.code == 0 && ran.err.contains("no suffix: --fuel 0"), "{}", ran.err);
    // A core alone tells less.
    let ran = place.gretel(&["report", "rec/core", "--exe", "reported", "-o", "core.html"]);
    assert!(ran.code == 0 && ran.err.contains("a core alone does not tell"), "{}", ran.err);
    let page = std::fs::read_to_string(place.path("core.html")).expect("the page");
    assert!(page.contains("<section id=\"why\""), "where the value came from, over the suffix");
    // Of nothing there is no page.
    place.write("text", "no core");
    for input in ["nowhere", "text"] {
        let ran = place.gretel(&["report", input, "-o", "none.html"]);
        assert!(ran.code == DAMAGED && !place.path("none.html").exists(), "{input}: {}", ran.err);
    }
    let ran = place.gretel(&["report", "rec", "-o", "other.html", "--fuel", "much"]);
    assert_eq!(ran.code, USAGE, "{}", ran.err);
}

/// Whoever interrupts it finds no empty page that would be in the way of the next one, and the old page as it was.
#[test]
fn an_interrupted_report_leaves_no_empty_page() {
    let Some(place) = recorded() else { return };
    place.write("old.html", "old");
    for output in ["new.html", "old.html"] {
        let arguments = ["report", "rec", "-o", output, "--force"];
        let mut child = place.command(env!("CARGO_BIN_EXE_gretel"), &arguments).spawn().expect("gretel runs");
        std::thread::sleep(std::time::Duration::from_millis(100));
        child.kill().expect("it is ended");
        child.wait().expect("it ends");
        // Where the machine was fast, it is whole.
        let page = std::fs::read_to_string(place.path(output)).ok();
        let is_whole = page.as_ref().is_some_and(|page| page.contains("</html>"));
        let before = (output == "old.html").then(|| "old".to_owned());
        assert!(is_whole || page == before, "{output}: {page:?}");
    }
}

#[test]
fn threads_are_shown_with_their_places_and_below_their_process() {
    let program = r#"
        #include <pthread.h>
        #include <signal.h>
        #include <stdlib.h>
        #include <unistd.h>
        #include <sys/wait.h>
        static void *waits(void *argument) { pause(); return argument; }
        int main(void) {
            pthread_t thread;
            if (fork() == 0) return 0;
            wait(0);
            pthread_create(&thread, 0, waits, 0);
            usleep(1000);
            abort();
        }"#;
    let place = Place::new();
    if place.compile("threads", program).is_none() {
        return;
    }
    let gretel = env!("CARGO_BIN_EXE_gretel");
    assert_eq!(place.sh(&format!("{gretel} record --engine soft -o rec -- ./threads")).code, 128 + 6);
    assert_eq!(place.gretel(&["report", "rec", "-o", "page.html", "--fuel", "0"]).code, 0);
    let page = std::fs::read_to_string(place.path("page.html")).expect("the page");
    let threads =
        page.split("<details><summary>2 threads").nth(1).and_then(|it| it.split("</details>").next());
    assert!(threads.is_some_and(|it| it.contains("pause")), "where the other one waits: {threads:?}");
    // The child is a process of its own, the thread is not.
    assert_eq!(page.matches(">\u{21b3} ").count(), 1);
    // Nothing is known of why an abort was sent: no colon behind its name.
    assert!(page.contains("<b>SIGABRT</b></p>"), "the signal");
}

/// What a cut core lacks is said, and the page is of the rest.
#[test]
fn a_page_about_a_damaged_core_says_so() {
    let Some(place) = recorded() else { return };
    let core = std::fs::read(place.path("rec/core")).expect("the core");
    std::fs::write(place.path("cut"), &core[..core.len() / 2]).expect("it is written");
    let ran = place.gretel(&["report", "cut", "--exe", "reported", "--fuel", "1", "-o", "page.html"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("the core is damaged, the page is of what it has: offset 0x"), "{}", ran.err);
    let page = std::fs::read_to_string(place.path("page.html")).expect("the page");
    assert!(
        page.contains("The core is damaged.") && page.contains("is missing (the file is cut)"),
        "the damage"
    );
    assert!(page.contains("SIGSEGV"), "the crash");
    let whole = place.gretel(&["report", "rec", "--fuel", "0", "-o", "whole.html"]);
    assert!(whole.code == 0 && !whole.err.contains("damaged"), "{}", whole.err);
}

#[test]
fn a_browser_has_nothing_to_say_about_it() {
    let browser = ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|it| it.status.success()));
    let Some(browser) = browser else {
        skipped("a browser opens the report", "chromium is not installed");
        return;
    };
    let Some(place) = recorded() else { return };
    assert_eq!(place.gretel(&["report", "rec", "-o", "page.html"]).code, 0);
    let page = place.path("page.html");
    let ran = place.sh(&format!(
        "timeout 60 {browser} --headless --no-sandbox --disable-gpu --user-data-dir=profile --enable-logging=stderr \
         --dump-dom file://{} 2>log >dom",
        page.display()
    ));
    assert_eq!(ran.code, 0, "{}", ran.err);
    let log = std::fs::read_to_string(place.path("log")).expect("the log");
    assert!(!log.contains("CONSOLE"), "{log}");
    let dom = std::fs::read_to_string(place.path("dom")).expect("what it made of the page");
    // The script ran: the timeline is gone through by keyboard, and says which event is chosen.
    let said = dom.split("<p class=\"event note\">").nth(1).unwrap_or_default();
    let is_said = said.split("</p>").next().is_some_and(|it| it.contains(": "));
    let is_slider = dom.contains("role=\"slider\"") && dom.contains("aria-valuetext=\"");
    assert!(is_said && is_slider, "{}", &dom[dom.len().saturating_sub(9000)..]);
}

/// The page has the history of the memory that the value was in, if that was freed.
#[test]
fn a_use_after_free_and_a_double_free_are_told_with_who_freed() {
    let program = r#"
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        struct session { char user[24]; int (*check)(const char *); };
        __attribute__((noinline)) static void drop(struct session *it) { free(it); }
        int main(void) {
            char line[64] = "";
            struct session *session = calloc(1, sizeof *session);
            fgets(line, sizeof line, stdin);
            drop(session);
            if (line[0] == 'd') drop(session);
            memcpy(malloc(32), line, 32);
            return session->check(session->user);
        }"#;
    let place = Place::new();
    if place.compile("freed", program).is_none() {
        return;
    }
    let gretel = env!("CARGO_BIN_EXE_gretel");
    for (input, code, calls) in [("AAAABBBBCCCCDDDDEEEEFFFFGGGGHHHH", 11, 1), ("double", 6, 2)] {
        place.write("input", input);
        let ran = place.sh(&format!("{gretel} record --engine soft --force -o rec -- ./freed <input"));
        assert_eq!(ran.code, 128 + code, "{}", ran.err);
        let ran = place.gretel(&["report", "rec", "--fuel", "0", "--force", "-o", "page.html"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let page = std::fs::read_to_string(place.path("page.html")).expect("the page");
        let memory = page.split("<section id=\"heap\"").nth(1).and_then(|it| it.split("</section>").next());
        let memory = memory.unwrap_or_else(|| panic!("{input}: no history"));
        assert_eq!(memory.matches(">free(0x").count(), calls, "{memory}");
        assert!(memory.contains("drop, freed.c:6 \u{2190} main, freed.c:11"), "{memory}");
    }
}
