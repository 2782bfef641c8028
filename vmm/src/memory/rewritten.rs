//! Which instructions are rewritten to UD2, so that they leave the guest on every host.

use iced_x86::{Instruction, Mnemonic};
use x86::decode::{machine_read, stores_x87_pointers};
use x86::machine::MachineRead;

/// Which machine read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One that the CPU crate has no semantics for.
    Machine(MachineRead),
    /// FNSTENV, FNSAVE or FXSAVE.
    X87Pointers,
    /// LAR, LSL, VERR or VERW, which tell of descriptor tables.
    Selector,
    /// INS or OUTS with a count: #GP, but hosts that let ring 3 use ports look at the count first.
    PortString,
    /// One that no CPU model has, and that some processors and hosts run, or refuse in another way.
    Undefined,
}

impl Kind {
    /// What `instruction` reads; `None` if it is no machine read.
    #[must_use]
    pub fn of(instruction: &Instruction) -> Option<Kind> {
        let other = || match instruction {
            i if stores_x87_pointers(i) => Some(Kind::X87Pointers),
            i if asks_for_selector(i) => Some(Kind::Selector),
            i if is_counted_port_string(i) => Some(Kind::PortString),
            i if is_of_no_model(i) => Some(Kind::Undefined),
            _ => None,
        };
        machine_read(instruction).map(Kind::Machine).or_else(other)
    }
}

fn asks_for_selector(i: &Instruction) -> bool {
    matches!(i.mnemonic(), Mnemonic::Lar | Mnemonic::Lsl | Mnemonic::Verr | Mnemonic::Verw)
}

fn is_counted_port_string(i: &Instruction) -> bool {
    use Mnemonic::{Insb, Insd, Insw, Outsb, Outsd, Outsw};
    let string = matches!(i.mnemonic(), Insb | Insw | Insd | Outsb | Outsw | Outsd);
    string && (i.has_rep_prefix() || i.has_repne_prefix())
}

/// The instructions of virtual machine monitors, those that wait for a store, and the privileged forms of XSAVE.
fn is_of_no_model(i: &Instruction) -> bool {
    use Mnemonic::{
        Clgi, Invlpga, Monitor, Monitorx, Mwait, Mwaitx, Skinit, Stgi, Vmcall, Vmfunc, Vmload, Vmmcall,
        Vmrun, Vmsave, Xrstors, Xrstors64, Xsaves, Xsaves64,
    };
    let monitors = matches!(
        i.mnemonic(),
        Vmcall | Vmfunc | Vmmcall | Vmrun | Vmload | Vmsave | Clgi | Stgi | Skinit | Invlpga
    );
    let waits = matches!(i.mnemonic(), Monitor | Monitorx | Mwait | Mwaitx);
    monitors || waits || matches!(i.mnemonic(), Xsaves | Xsaves64 | Xrstors | Xrstors64)
}
