//! Memory that processes share, where the first one crashes and others go on: what is asked is about the one that crashed, and a store
//! is told of the process that made it.

use crate::gdb::{gdb, has_gdb, in_order};
use crate::{Place, engines};
use serde_json::Value;

/// A worker stores an index in a board that both map, and waits; the parent crashes over the index.
pub(crate) const BOARD: &str = r#"
    #include <sys/mman.h>
    #include <unistd.h>
    struct board { long next; long turns; };
    static struct board *board;
    static long table[4];
    __attribute__((noinline)) void choose(long next) { board->next = next; board->turns++; }
    int main(void) {
        int there[2], back[2];
        char byte = 0;
        board = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        pipe(there);
        pipe(back);
        if (!fork()) {
            close(there[1]);
            while (read(there[0], &byte, 1) == 1) {
                choose(byte == 3 ? 1L << 40 : byte);
                write(back[1], &byte, 1);
            }
            _exit(0);
        }
        close(there[0]);
        long sum = 0;
        for (byte = 1; byte < 5; byte++) {
            write(there[1], &byte, 1);
            char answer;
            read(back[0], &answer, 1);
            sum += *(volatile long *)&table[board->next];
        }
        return sum;
    }"#;

/// Records it; gives the parent, the worker, and the address of the index.
fn recorded(place: &Place, engine: &str) -> Option<(String, String, String)> {
    place.compile("board", BOARD)?;
    let _ = std::fs::remove_dir_all(place.path("rec"));
    let ran = place.gretel(&["record", "--engine", engine, "-o", "rec", "--", "./board"]);
    assert_eq!(ran.code, 128 + 11, "{}", ran.err);
    let events = |options: &[&str]| -> Vec<Value> {
        let ran = place.gretel(&[&["events", "rec", "--json"], options].concat());
        ran.out().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let fork = events(&["--kind", "fork"]).remove(0);
    let mapped = events(&["--call", "mmap"])
        .into_iter()
        .rfind(|call| call["text"].as_str().is_some_and(|text| text.contains("MAP_SHARED|MAP_ANONYMOUS")));
    let text = mapped.expect("the board")["text"].as_str().unwrap_or_default().to_owned();
    let address = text.rsplit("= ").next().expect("an address").trim().to_owned();
    Some((fork["pid"].to_string(), fork["started"].to_string(), address))
}

#[test]
fn a_store_to_shared_memory_is_told_of_who_made_it() {
    let place = Place::new();
    for engine in engines() {
        let Some((parent, worker, board)) = recorded(&place, engine) else { return };
        let ran = place.gretel(&["last-write", "rec", &board, "8", "--count", "9", "--json"]);
        assert!(
            ran.err
                .contains(&format!("process {parent} crashed, and others went on; this is about {parent}")),
            "{}",
            ran.err
        );
        let writes: Vec<Value> =
            ran.out().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let stores: Vec<&Value> = writes.iter().filter(|write| write["kind"] == "write").collect();
        let told =
            |write: &Value| (write["pid"].to_string(), write["function"].clone(), write["after"].clone());
        let store = |after: &str| (worker.clone(), Value::from("choose"), Value::from(after));
        assert_eq!(
            stores.iter().map(|write| told(write)).collect::<Vec<_>>(),
            ["0000000000010000", "0200000000000000", "0100000000000000"].map(store),
            "{writes:?}"
        );
        let ran = place.gretel(&["memory", "rec", &board, "8", "--json"]);
        let accesses: Vec<Value> =
            ran.out().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        // Each store of the worker's is followed by the parent's load, and nothing else is told.
        let all: Vec<(String, &str)> = accesses
            .iter()
            .map(|it| (it["pid"].to_string(), it["kind"].as_str().unwrap_or_default()))
            .collect();
        let turn = [(worker.clone(), "write"), (parent.clone(), "read")];
        assert!(all.ends_with(&[turn.clone(), turn.clone(), turn].concat()), "{all:?}");
        // What the first process had is what is asked about without --pid.
        let ran = place.gretel(&["calls", "rec", "main"]);
        assert!(ran.out().contains(&format!("thread {parent}")), "{}{}", ran.out(), ran.err);
    }
}

#[test]
fn gdb_begins_where_the_first_process_crashed() {
    if !has_gdb("gdb of a process that crashed before others ended") {
        return;
    }
    let place = Place::new();
    let Some((parent, worker, _)) = recorded(&place, "soft") else { return };
    let commands = ["info inferiors", "print board->next", "bt", "reverse-continue", "continue", "continue"];
    let ran = gdb(&place, &["rec"], &commands);
    in_order(
        &ran,
        &[&format!("* 1    process {parent}"), "= 1099511627776", "main () at", "received signal SIGSEGV"],
    );
    assert!(!ran.err.contains("panicked"), "{}", ran.err);
    // What the worker stored is seen where the parent waited for it; the worker's own store, in the worker.
    let commands = [
        "watch -l board->next",
        "reverse-continue",
        "bt",
        "delete",
        "monitor goto 0",
        "break choose if next > 1000",
        "continue",
        "info inferiors",
    ];
    let ran = gdb(&place, &["rec"], &commands);
    in_order(
        &ran,
        &[
            "Old value = 1099511627776",
            "New value = 2",
            "read",
            "in main () at",
            "hit Breakpoint 2",
            "choose (next=1099511627776)",
            &format!("* 2    process {worker}"),
        ],
    );
    // At the very end nobody lives any more, which is no reason to fail.
    let ran = gdb(&place, &["rec", "--at", "end"], &["reverse-continue", "continue", "info threads"]);
    assert!(!ran.err.contains("panicked") && !ran.err.contains("connection closed"), "{}", ran.err);
    let ran = place.gretel(&["gdb", "rec", "--pid", "999999"]);
    let named =
        format!("there is no process 999999 in the recording, but {parent} (board), {worker} (board)");
    assert!(ran.code == crate::USAGE && ran.err.contains(&named), "{}", ran.err);
}
