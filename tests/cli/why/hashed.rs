//! Values that a hash function made: what it computes is left out, and the key that was hashed is there.

use crate::{Place, skipped};

const PROGRAM: &str = r#"
    #include <functional>
    #include <string>
    int main(int argc, char **argv) {
        std::string key = std::string("mi") + argv[argc - 1];
        unsigned long hash = std::hash<std::string>{}(key);
        return *(int *)(hash | 1ul << 63);
    }"#;

#[test]
fn behind_a_hash_is_the_key() {
    let place = Place::new();
    place.write("prog.cc", PROGRAM);
    if place.sh("g++ -g -O1 -w -o prog prog.cc").code != 0 {
        return skipped("what a hash was made of", "g++ is not here");
    }
    place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./prog", "lk"]);
    let ran = place.gretel(&["why", "rec"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out().contains("\"milk\"") && ran.out().contains("argument 1, byte 0"), "{}", ran.out());
    assert!(ran.out().contains("steps of hash functions are left out"), "{}", ran.out());
    let all = place.gretel(&["why", "rec", "--all"]);
    let of_hash = |text: &str| text.matches("_Hash_bytes").count();
    assert!(of_hash(&all.out()) > of_hash(&ran.out()) + 10, "{}", all.out());
}
