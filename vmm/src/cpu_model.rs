//! The processor that the guest sees: a named model, as data, the same on every host, so that a recording
//! replays on another machine.
//!
//! The models are the levels v2, v3 and v4 of the psABI and nothing more: no RDRAND, no ERMS, no AES. Family and model
//! are those of the first processor of each level (Nehalem, Haswell, Skylake-X), so that libraries which choose by
//! them choose well; the brand string tells the truth. A model says what CPUID announces, not what can be executed:
//! docs/decisions/0012-cpu-models.md.

use iced_x86::{CpuidFeature, Instruction};
use x86::xsave::{Layout, component};

/// A named model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Model {
    /// x86-64-v2: SSE4.2.
    #[default]
    V2,
    /// x86-64-v3: AVX2, FMA, F16C, BMI, MOVBE, LZCNT, XSAVE.
    V3,
    /// x86-64-v4: AVX-512 F, BW, CD, DQ, VL.
    V4,
}

impl Model {
    /// All of them.
    pub const ALL: [Model; 3] = [Model::V2, Model::V3, Model::V4];

    /// The model's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Model::V2 => "x86-64-v2",
            Model::V3 => "x86-64-v3",
            Model::V4 => "x86-64-v4",
        }
    }

    /// The model of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Model> {
        Model::ALL.into_iter().find(|model| model.name() == name)
    }

    /// The state components that its system has enabled: XCR0. Without XSAVE, those of FXSAVE.
    #[must_use]
    pub fn components(self) -> u64 {
        match self {
            Model::V2 => component::LEGACY,
            Model::V3 => component::LEGACY | component::AVX,
            Model::V4 => component::ALL,
        }
    }

    /// Whether it has XSAVE.
    #[must_use]
    pub fn has_xsave(self) -> bool {
        self != Model::V2
    }

    /// The least model that has what an instruction needs; `None` if no model has it.
    #[must_use]
    pub fn for_instruction(i: &Instruction) -> Option<Model> {
        use CpuidFeature as F;
        let level = |feature: &CpuidFeature| match feature {
            F::AVX | F::AVX2 | F::FMA | F::F16C | F::BMI1 | F::BMI2 | F::LZCNT | F::MOVBE | F::XSAVE => {
                Some(Model::V3)
            }
            F::AVX512F | F::AVX512BW | F::AVX512CD | F::AVX512DQ | F::AVX512VL => Some(Model::V4),
            F::INTEL8086
            | F::INTEL186
            | F::INTEL286
            | F::INTEL386
            | F::INTEL486
            | F::X64
            | F::CMOV
            | F::CX8 => Some(Model::V2),
            F::FPU | F::FPU287 | F::FPU387 | F::MMX | F::FXSR | F::SSE | F::SSE2 | F::SSE3 | F::SSSE3 => {
                Some(Model::V2)
            }
            F::SSE4_1 | F::SSE4_2 | F::POPCNT | F::CMPXCHG16B => Some(Model::V2),
            _ => None,
        };
        let levels: Option<Vec<Model>> = i.cpuid_features().iter().map(level).collect();
        levels?.into_iter().max()
    }

    /// The leaves that are not all zero.
    #[must_use]
    pub fn leaves(self) -> Vec<Leaf> {
        let mut leaves = LEAVES.to_vec();
        let (signature, features) = match self {
            Model::V2 => (0x0001_06a3, V2_ECX),
            Model::V3 => (0x0003_06c3, V2_ECX | V3_ECX),
            Model::V4 => (0x0005_0654, V2_ECX | V3_ECX),
        };
        // "GenuineIntel", and the highest leaf.
        let highest = if self.has_xsave() { 0xd } else { 7 };
        leaves.push(leaf(0, highest, 0x756e_6547, 0x6c65_746e, 0x4965_6e69));
        leaves.push(leaf(1, signature, 1 << 16 | 8 << 8, features, FEATURES_EDX));
        // LAHF and SAHF in 64-bit mode; LZCNT.
        leaves.push(leaf(0x8000_0001, 0, 0, if self == Model::V2 { 1 } else { 1 | 1 << 5 }, EXTENDED_EDX));
        for (n, words) in self.brand().into_iter().enumerate() {
            let [eax, ebx, ecx, edx] = words;
            leaves.push(leaf(0x8000_0002 + u32::try_from(n).unwrap_or(0), eax, ebx, ecx, edx));
        }
        if self.has_xsave() {
            let ebx = if self == Model::V4 { V3_EBX | V4_EBX } else { V3_EBX };
            leaves.push(Leaf { leaf: 7, subleaf: Some(0), result: Cpuid { ebx, ..Cpuid::default() } });
            leaves.extend(xsave_leaves(self.components(), &Layout::MODEL));
        }
        leaves
    }

    /// What CPUID returns for a leaf and subleaf: zeroes where the model has nothing.
    #[must_use]
    pub fn cpuid(self, leaf: u32, subleaf: u32) -> Cpuid {
        let leaves = self.leaves();
        let found = leaves
            .iter()
            .find(|entry| entry.leaf == leaf && entry.subleaf.is_none_or(|wanted| wanted == subleaf));
        found.map_or_else(Cpuid::default, |entry| entry.result)
    }

    /// The brand string, in three leaves of four registers.
    fn brand(self) -> [[u32; 4]; 3] {
        let text = format!("gretel model CPU {}", self.name());
        let byte = |at: usize| text.as_bytes().get(at).copied().unwrap_or(0);
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| byte(at + n)));
        std::array::from_fn(|n| std::array::from_fn(|k| word(16 * n + 4 * k)))
    }
}

/// Leaf 0xD for these state components: subleaf 0 (XCR0's bits, and the size of an image), and one for each component
/// beyond x87 and SSE (its size and its offset). No XSAVEOPT, no XSAVEC, no supervisor states.
pub(crate) fn xsave_leaves(components: u64, layout: &Layout) -> Vec<Leaf> {
    let small = |n: usize| u32::try_from(n).unwrap_or(0);
    let size = small(layout.size(components));
    let bits = u32::try_from(components).unwrap_or(0);
    let entry = |subleaf, eax, ebx, ecx| Leaf {
        leaf: 0xd,
        subleaf: Some(subleaf),
        result: Cpuid { eax, ebx, ecx, edx: 0 },
    };
    let held = layout.places().into_iter().filter(|(component, ..)| components & component != 0);
    let places =
        held.map(|(component, at, size)| entry(component.trailing_zeros(), small(size), small(at), 0));
    std::iter::once(entry(0, bits, size, size)).chain(places).collect()
}

/// What CPUID returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpuid {
    /// EAX.
    pub eax: u32,
    /// EBX.
    pub ebx: u32,
    /// ECX.
    pub ecx: u32,
    /// EDX.
    pub edx: u32,
}

/// One leaf of the model; `subleaf` is `None` where ECX does not matter.
#[derive(Clone, Copy, Debug)]
pub struct Leaf {
    /// EAX on input.
    pub leaf: u32,
    /// ECX on input.
    pub subleaf: Option<u32>,
    /// The result.
    pub result: Cpuid,
}

/// Ticks of the time stamp counter per second: it counts nanoseconds.
pub const TSC_HZ: u64 = 1_000_000_000;

/// Leaf 1 EDX, which is also AT_HWCAP: FPU, VME, DE, PSE, TSC, MSR, PAE, MCE, CX8, APIC, SEP, MTRR, PGE, MCA, CMOV, PAT,
/// PSE36, CLFLUSH, MMX, FXSR, SSE, SSE2.
pub const FEATURES_EDX: u32 = 0x078b_fbff;
/// Leaf 1 ECX of v2: SSE3, SSSE3, CMPXCHG16B, SSE4.1, SSE4.2, POPCNT.
const V2_ECX: u32 = 1 | 1 << 9 | 1 << 13 | 1 << 19 | 1 << 20 | 1 << 23;
/// Leaf 1 ECX of v3: FMA, MOVBE, XSAVE, OSXSAVE, AVX, F16C.
const V3_ECX: u32 = 1 << 12 | 1 << 22 | 1 << 26 | 1 << 27 | 1 << 28 | 1 << 29;
/// Leaf 7 EBX of v3: BMI1, AVX2, BMI2.
const V3_EBX: u32 = 1 << 3 | 1 << 5 | 1 << 8;
/// Leaf 7 EBX of v4: AVX-512 F, DQ, CD, BW, VL.
const V4_EBX: u32 = 1 << 16 | 1 << 17 | 1 << 28 | 1 << 30 | 1 << 31;
/// Leaf 0x8000_0001 EDX: SYSCALL, NX, LM.
const EXTENDED_EDX: u32 = 1 << 11 | 1 << 20 | 1 << 29;

const fn leaf(leaf: u32, eax: u32, ebx: u32, ecx: u32, edx: u32) -> Leaf {
    Leaf { leaf, subleaf: None, result: Cpuid { eax, ebx, ecx, edx } }
}

/// A leaf 4 entry: `kind` 1 data, 2 instructions, 3 both; lines of 64 bytes.
const fn cache(subleaf: u32, kind: u32, level: u32, ways: u32, sets: u32) -> Leaf {
    let result = Cpuid { eax: kind | level << 5 | 1 << 8, ebx: (ways - 1) << 22 | 63, ecx: sets - 1, edx: 0 };
    Leaf { leaf: 4, subleaf: Some(subleaf), result }
}

/// The leaves that all models have.
const LEAVES: &[Leaf] = &[
    // The caches are described by leaf 4.
    leaf(2, 0x00ff_ff01, 0, 0, 0),
    cache(0, 1, 1, 8, 64),
    cache(1, 2, 1, 4, 128),
    cache(2, 3, 2, 8, 512),
    cache(3, 3, 3, 16, 8192),
    leaf(0x8000_0000, 0x8000_0008, 0, 0, 0),
    // 256 KiB of level 2, 8 ways, lines of 64 bytes.
    leaf(0x8000_0006, 0, 0, 256 << 16 | 6 << 12 | 64, 0),
    // The time stamp counter is invariant.
    leaf(0x8000_0007, 0, 0, 0, 1 << 8),
    // 48 bits of physical and of linear address.
    leaf(0x8000_0008, 48 << 8 | 48, 0, 0, 0),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_has_its_features_and_none_of_the_next() {
        let bits = |word: u32| (0..32).filter(move |bit| word >> bit & 1 == 1).collect::<Vec<u32>>();
        assert_eq!(bits(Model::V2.cpuid(1, 0).ecx), [0, 9, 13, 19, 20, 23]);
        assert_eq!(bits(Model::V3.cpuid(1, 0).ecx), [0, 9, 12, 13, 19, 20, 22, 23, 26, 27, 28, 29]);
        assert_eq!(Model::V4.cpuid(1, 0).ecx, Model::V3.cpuid(1, 0).ecx);
        assert_eq!(Model::V2.cpuid(7, 0), Cpuid::default());
        assert_eq!(bits(Model::V3.cpuid(7, 0).ebx), [3, 5, 8]);
        assert_eq!(bits(Model::V4.cpuid(7, 0).ebx), [3, 5, 8, 16, 17, 28, 30, 31]);
        assert_eq!(Model::V4.cpuid(7, 1), Cpuid::default());
        assert_eq!(
            Model::ALL.map(|model| bits(model.cpuid(0x8000_0001, 0).ecx)),
            [vec![0], vec![0, 5], vec![0, 5]]
        );
    }

    #[test]
    fn the_extended_state_is_where_its_leaf_says() {
        assert_eq!(Model::V2.cpuid(0xd, 0), Cpuid::default());
        assert_eq!(Model::V3.cpuid(0xd, 0), Cpuid { eax: 7, ebx: 832, ecx: 832, edx: 0 });
        assert_eq!(Model::V4.cpuid(0xd, 0), Cpuid { eax: 0xe7, ebx: 2688, ecx: 2688, edx: 0 });
        assert_eq!(Model::V4.cpuid(0xd, 1), Cpuid::default(), "no XSAVEOPT, no XSAVEC");
        assert_eq!(Model::V4.cpuid(0xd, 2), Cpuid { eax: 256, ebx: 576, ecx: 0, edx: 0 });
        assert_eq!(Model::V4.cpuid(0xd, 7), Cpuid { eax: 1024, ebx: 1664, ecx: 0, edx: 0 });
        assert_eq!(Model::V3.cpuid(0xd, 5), Cpuid::default());
    }

    #[test]
    fn a_model_is_found_by_the_name_that_its_brand_string_has() {
        for model in Model::ALL {
            let leaves = [0x8000_0002, 0x8000_0003, 0x8000_0004].map(|leaf| model.cpuid(leaf, 0));
            let words = leaves.into_iter().flat_map(|c| [c.eax, c.ebx, c.ecx, c.edx]);
            let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).take_while(|byte| *byte != 0).collect();
            assert_eq!(String::from_utf8_lossy(&bytes), format!("gretel model CPU {}", model.name()));
            assert_eq!(Model::named(model.name()), Some(model));
        }
        assert_eq!(Model::named("x86-64-v9"), None);
    }

    #[test]
    fn an_instruction_needs_the_level_that_has_it() {
        let needs = |bytes: &[u8]| {
            let mut decoder = iced_x86::Decoder::new(64, bytes, iced_x86::DecoderOptions::NONE);
            Model::for_instruction(&decoder.decode())
        };
        assert_eq!(needs(&[0x66, 0x0f, 0xef, 0xc0]), Some(Model::V2), "pxor");
        assert_eq!(needs(&[0x0f, 0x01, 0xd0]), Some(Model::V3), "xgetbv");
        assert_eq!(needs(&[0xc5, 0xfd, 0xfc, 0xc1]), Some(Model::V3), "vpaddb ymm");
        assert_eq!(needs(&[0x62, 0xf1, 0x7d, 0x48, 0xfc, 0xc1]), Some(Model::V4), "vpaddb zmm");
        assert_eq!(needs(&[0x66, 0x0f, 0x38, 0xdc, 0xc1]), None, "aesenc");
    }

    #[test]
    fn caches_have_their_sizes() {
        let size = |subleaf| {
            let Cpuid { ebx, ecx, .. } = Model::V2.cpuid(4, subleaf);
            (u64::from(ebx >> 22) + 1) * 64 * (u64::from(ecx) + 1)
        };
        assert_eq!([size(0), size(1), size(2), size(3)], [32 << 10, 32 << 10, 256 << 10, 8 << 20]);
        assert_eq!(Model::V2.cpuid(4, 4), Cpuid::default());
    }
}
