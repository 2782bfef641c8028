//! What a child has from the process that forked it: who asks about the child is led to before the fork.

use crate::{Place, engines};

const PROGRAM: &str = r#"
    #include <sys/wait.h>
    #include <unistd.h>
    static long value;
    __attribute__((noinline)) void choose(long now) { value = now; getppid(); }
    int main(void) {
        choose(9);
        if (fork() == 0) _exit(0);
        choose(7);
        if (fork() == 0) return *(volatile char *)value;
        wait(0);
        choose(8);
        wait(0);
        return 0;
    }"#;

#[test]
fn who_wrote_what_a_child_inherits_is_found_before_the_fork() {
    let place = Place::new();
    if place.compile("inherited", PROGRAM).is_none() {
        return;
    }
    for engine in engines() {
        let _ = std::fs::remove_dir_all(place.path("rec"));
        let ran = place.gretel(&["record", "--engine", engine, "-o", "rec", "--", "./inherited"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let ran = place.gretel(&["last-write", "rec", "value", "8", "--count", "3"]);
        let out = ran.out();
        let writes: Vec<&str> = out.lines().filter(|line| line.contains(" write ")).collect();
        assert_eq!(writes.len(), 2, "{out}{}", ran.err);
        assert!(writes[0].contains("0x9 -> 0x7") && writes[1].contains("0x0 -> 0x9"), "{out}");
        assert!(ran.err.contains("has not written to them since"), "{}", ran.err);
        let ran = place.gretel(&["why", "rec"]);
        let out = ran.out();
        let started = out.split("was started by thread").nth(1).expect(&out);
        assert!(started.lines().nth(1).is_some_and(|values| values.contains("= 0x7")), "{out}");
        assert!(out.contains("choose"), "{out}");
    }
}
