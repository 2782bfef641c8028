//! What retires, and which event of which processor counts it.
//!
//! Sources: rr, src/PerfCounters.cc and PerfCounters_x86.h (conditional branches and models); Linux,
//! tools/perf/pmu-events/arch/x86 (taken branches); Intel SDM vol. 3, "Architectural Performance Monitoring", and AMD64
//! PPR, core performance monitor events (instructions).

use super::event::{Event, Scope, What};

/// A processor as CPUID names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Who makes it.
    pub vendor: Vendor,
    /// Family, with the extended family added.
    pub family: u32,
    /// Model, with the extended model.
    pub model: u32,
}

/// Who makes a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// "GenuineIntel".
    Intel,
    /// "AuthenticAMD".
    Amd,
    /// Anyone else.
    Other,
}

/// The events of a microarchitecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Events {
    /// The microarchitecture's name.
    pub name: &'static str,
    /// Retired conditional branches, taken or not: of all the one that counts the same in every run.
    pub conditional_branches: u64,
    /// Retired taken branches, if there is an event for them.
    pub taken_branches: Option<u64>,
    /// Retired instructions. Interrupts and page faults count too, so that runs differ.
    pub instructions: u64,
    /// With a second counter beside it, the one for conditional branches counts wrongly after fast string instructions
    /// and masked moves (an erratum that rr's authors found).
    pub one_counter: bool,
    /// How many more branches may retire before an interrupt of the counter stops the program; `None`: no bound is known.
    pub skid: Option<u32>,
}

const INSTRUCTIONS: u64 = 0xc0;

const fn intel(
    name: &'static str,
    conditional_branches: u64,
    taken_branches: Option<u64>,
    skid: u32,
) -> Events {
    Events {
        name,
        conditional_branches,
        taken_branches,
        instructions: INSTRUCTIONS,
        one_counter: false,
        skid: Some(skid),
    }
}

const NEHALEM: Events = intel("Nehalem", 0x01c4, None, 100);
const SANDY_BRIDGE: Events = intel("Sandy Bridge", 0x01c4, Some(0x20c4), 100);
const IVY_BRIDGE: Events = intel("Ivy Bridge", 0x01c4, Some(0x20c4), 100);
const HASWELL: Events = intel("Haswell", 0x01c4, Some(0x20c4), 100);
const BROADWELL: Events = intel("Broadwell", 0x01c4, Some(0x20c4), 100);
const SKYLAKE: Events = Events { one_counter: true, ..intel("Skylake", 0x01c4, Some(0x20c4), 100) };
const ICE_LAKE: Events = intel("Ice Lake", 0x11c4, Some(0x20c4), 100);
const GOLDEN_COVE: Events = intel("Golden Cove", 0x11c4, Some(0x20c4), 125);
const LION_COVE: Events = intel("Lion Cove", 0x100_0000_11c4, None, 125);
const SILVERMONT: Events = intel("Silvermont", 0x7ec4, Some(0x80c4), 100);
const GOLDMONT: Events = intel("Goldmont", 0x7ec4, Some(0x80c4), 100);
const TREMONT: Events = intel("Tremont", 0x7ec4, None, 100);
/// AMD's stop late, and now and then without a bound.
const ZEN: Events = Events {
    name: "Zen",
    conditional_branches: 0xd1,
    taken_branches: Some(0xc4),
    instructions: INSTRUCTIONS,
    one_counter: false,
    skid: None,
};

/// Intel's family 6 by model. Processors with two sorts of cores are there for their large ones.
const INTEL: &[(&[u32], Events)] = &[
    (&[0x1a, 0x1e, 0x1f, 0x2e, 0x25, 0x2c, 0x2f], NEHALEM),
    (&[0x2a, 0x2d], SANDY_BRIDGE),
    (&[0x3a, 0x3e], IVY_BRIDGE),
    (&[0x3c, 0x3f, 0x45, 0x46], HASWELL),
    (&[0x3d, 0x47, 0x4f, 0x56], BROADWELL),
    (&[0x4e, 0x55, 0x5e, 0x8e, 0x9e, 0xa5, 0xa6], SKYLAKE),
    (&[0x6a, 0x6c, 0x7d, 0x7e, 0x8c, 0x8d, 0xa7], ICE_LAKE),
    (&[0x8f, 0xcf, 0xad, 0xae, 0x97, 0x9a, 0xb7, 0xba, 0xbf, 0xaa], GOLDEN_COVE),
    (&[0xbd, 0xc5, 0xc6], LION_COVE),
    (&[0x37, 0x4a, 0x4c, 0x4d, 0x5a], SILVERMONT),
    (&[0x5c, 0x5f, 0x7a], GOLDMONT),
    (&[0x86, 0x96, 0x9c], TREMONT),
];

impl Cpu {
    /// The processor that CPUID leaf 1 EAX names.
    #[must_use]
    pub fn from_signature(vendor: Vendor, signature: u32) -> Cpu {
        let field = |at: u32, bits: u32| signature >> at & ((1 << bits) - 1);
        let family = field(8, 4);
        let extended = |base: u32, more: u32| if matches!(family, 6 | 15) { base | more } else { base };
        Cpu {
            vendor,
            family: if family == 15 { family + field(20, 8) } else { family },
            model: extended(field(4, 4), field(16, 4) << 4),
        }
    }

    /// Its events, if they are known.
    #[must_use]
    pub fn events(&self) -> Option<Events> {
        match (self.vendor, self.family) {
            (Vendor::Intel, 6) => {
                INTEL.iter().find(|(models, _)| models.contains(&self.model)).map(|(_, events)| *events)
            }
            // Zen 1 to 5: families 17h, 19h, 1Ah.
            (Vendor::Amd, 0x17 | 0x19 | 0x1a) => Some(ZEN),
            _ => None,
        }
    }
}

/// What a counter of a group counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Conditional branches.
    ConditionalBranches,
    /// Instructions.
    Instructions,
    /// Taken branches.
    TakenBranches,
}

impl Counted {
    /// Its name, as shown.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Counted::ConditionalBranches => "conditional branches",
            Counted::Instructions => "instructions",
            Counted::TakenBranches => "taken branches",
        }
    }
}

impl Events {
    /// The counters to open, and what each counts; the first is that which positions rely on.
    #[must_use]
    pub fn counters(&self, scope: Scope) -> Vec<(Counted, Event)> {
        let counter = |counted, code| (counted, Event::counter(What::Raw(code), scope));
        let mut counters = vec![counter(Counted::ConditionalBranches, self.conditional_branches)];
        if !self.one_counter {
            counters.push(counter(Counted::Instructions, self.instructions));
            counters.extend(self.taken_branches.map(|code| counter(Counted::TakenBranches, code)));
        }
        counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_names_a_processor_and_its_events() {
        let events = |vendor, signature| {
            let cpu = Cpu::from_signature(vendor, signature);
            cpu.events().map(|events| (events.name, events.conditional_branches))
        };
        assert_eq!(events(Vendor::Intel, 0x0005_0654), Some(("Skylake", 0x01c4)), "Skylake-SP");
        assert_eq!(events(Vendor::Intel, 0x000c_06f2), Some(("Golden Cove", 0x11c4)), "Emerald Rapids");
        assert_eq!(events(Vendor::Intel, 0x000c_0662), Some(("Lion Cove", 0x100_0000_11c4)), "Arrow Lake");
        assert_eq!(events(Vendor::Intel, 0x0005_06c9), Some(("Goldmont", 0x7ec4)));
        assert_eq!(events(Vendor::Amd, 0x00a2_0f12), Some(("Zen", 0xd1)), "Zen 3, family 19h");
        assert_eq!(events(Vendor::Amd, 0x0060_0f20), None, "Piledriver, family 15h");
        assert_eq!(events(Vendor::Intel, 0x0000_0f4a), None, "Pentium 4");
        assert_eq!(events(Vendor::Other, 0x0005_0654), None);
    }

    #[test]
    fn no_model_is_in_two_rows() {
        let mut models: Vec<u32> = INTEL.iter().flat_map(|(models, _)| models.iter().copied()).collect();
        models.sort_unstable();
        let all = models.len();
        models.dedup();
        assert_eq!(models.len(), all);
    }

    #[test]
    fn where_a_second_counter_does_harm_there_is_one() {
        assert_eq!(SKYLAKE.counters(Scope::GuestUser).len(), 1);
        let zen: Vec<Counted> = ZEN.counters(Scope::User).iter().map(|(counted, _)| *counted).collect();
        assert_eq!(zen, [Counted::ConditionalBranches, Counted::Instructions, Counted::TakenBranches]);
    }
}
