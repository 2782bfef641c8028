//! What it would take to go past a place.

use x86::op::Gpr;

/// What would have helped most. `registers` are those that an address hangs on.
pub(super) fn advice(why: &str, registers: u16) -> String {
    let text = match why {
        "an address that nothing determines" | "what a store at an unknown address may have overwritten" => {
            return of_address(registers);
        }
        "a pointer that lies nowhere any more" => {
            "the value of the memory that it was in; or records of the way before"
        }
        "an instruction that unknown jumps may reach" => {
            "records of indirect branches (ret-ind, any), which name the jump that led there"
        }
        "a region that seemed to lead nowhere" => "more records, or more --fuel: there were too many ways",
        "code that is in no file of the program" => "the file of the library that this address is in",
        "a system call whose number is not known" => "crumbs: they have the number of each call",
        "a system call of unknown effect" => "a row for it in the table of system calls (docs/syscalls.md)",
        "a system call that wrote an unknown amount" => "crumbs with the call's arguments and result",
        "a system call that wrote too much" => "a recording, which has what it wrote",
        "a system call that unmapped memory, where is not known" => "crumbs with the call's arguments",
        "a system call that changed what is mapped" | "memory that was unmapped later" => {
            "a recording, which has what the memory held before"
        }
        "another thread may have run here" => "crumbs of all threads, which tell when each of them ran",
        "a thread that went on where the crumbs do not tell" => "a longer ring of crumbs (record --crumbs N)",
        "a thread that has ended since, or another process, ran here" => {
            "a recording, which has the registers that the thread ended with"
        }
        "a question that the solver did not answer" => {
            "records of the way before, or crumbs: with more of the values known the question is easier"
        }
        "memory that the core does not hold" => {
            "a core with all memory (Linux: coredump_filter; gretel's own have it)"
        }
        "a store whose address became known too late" => "records up to there, so that fewer ways are tried",
        "no semantics" => "semantics of this instruction (docs/instructions.md)",
        "reads the machine" => "the value that it gave: a recording has it",
        "a masked access whose mask is not known" => "the value of the mask register there",
        _ => "nothing that is recorded today",
    };
    text.to_owned()
}

/// What an address needs that hangs on these registers.
pub(super) fn of_address(registers: u16) -> String {
    let names: Vec<&str> = (0..16).filter(|n| registers >> n & 1 == 1).map(|n| Gpr::NAMES[n]).collect();
    match &names[..] {
        [] => "the address of this access".to_owned(),
        [one] => format!("the value of {one} there: it was overwritten since, and nothing tells it"),
        all => format!(
            "the values of {} there: they were overwritten since, and nothing tells them",
            all.join(", ")
        ),
    }
}
