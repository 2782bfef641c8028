use super::*;
use object::elf::{EM_386, EM_X86_64};

/// Where the program of [`file`] is.
const START: u32 = 0x10_0000;

fn note(owner: &[u8], kind: u32, content: &[u8], align: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [owner.len(), content.len()] {
        out.extend(u32::try_from(word).unwrap().to_le_bytes());
    }
    out.extend(kind.to_le_bytes());
    out.extend(owner);
    out.resize(out.len().next_multiple_of(align), 0);
    out.extend(content);
    out.resize(out.len().next_multiple_of(align), 0);
    out
}

/// The note that is looked for.
fn pvh(entry: u32) -> Vec<u8> {
    note(OWNER, PHYS32_ENTRY, &entry.to_le_bytes(), 4)
}

/// An ELF file of 64 bits: 16 bytes of code at [`START`], and these notes, aligned so.
fn file(notes: &[u8], align: u64) -> Vec<u8> {
    const CODE_AT: u64 = 64 + 2 * 56;
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let halves =
        |file: &mut Vec<u8>, halves: &[u16]| file.extend(halves.iter().flat_map(|n| n.to_le_bytes()));
    halves(&mut file, &[2, EM_X86_64.0]);
    file.extend(1_u32.to_le_bytes());
    for word in [u64::from(START), 64, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    halves(&mut file, &[64, 56, 2, 0, 0, 0]);
    let notes_at = CODE_AT + 16;
    let length = notes.len() as u64;
    let start = u64::from(START);
    for (kind, words) in [
        (PT_LOAD, [CODE_AT, 0xffff_8000_0000_0000, start, 16, 16, 4096]),
        (PT_NOTE, [notes_at, 0, 0, length, length, align]),
    ] {
        file.extend(kind.0.to_le_bytes());
        file.extend(4_u32.to_le_bytes());
        file.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }
    file.extend([0xf4; 16]);
    file.extend(notes);
    file
}

fn said(notes: &[u8]) -> String {
    entry(&file(notes, 4)).unwrap_err().to_string()
}

#[test]
fn the_entry_is_the_one_of_xens_note() {
    assert_eq!(entry(&file(&pvh(START + 4), 4)), Ok(Some(START + 4)));
    let others = [note(b"GNU\0", 18, &[0; 4], 4), note(OWNER, 6, b"linux\0", 4)].concat();
    assert_eq!(entry(&file(&others, 4)), Ok(None));
    assert_eq!(entry(&file(&[others, pvh(START)].concat(), 4)), Ok(Some(START)), "behind others");
    let wide = note(OWNER, PHYS32_ENTRY, &u64::from(START).to_le_bytes(), 4);
    assert_eq!(entry(&file(&wide, 4)), Ok(Some(START)), "as Linux has it");
    let property = note(b"GNU\0", 5, &[0; 16], 8);
    let last = [property, note(OWNER, PHYS32_ENTRY, &START.to_le_bytes(), 8)].concat();
    assert_eq!(entry(&file(&last, 8)), Ok(Some(START)), "padded to 8");
    assert_eq!(entry(&file(&last[..last.len() - 4], 8)), Ok(Some(START)), "without padding at its end");
    assert_eq!(entry(&file(&[], 4)), Ok(None));
}

#[test]
fn what_is_wrong_with_a_note_is_said_with_its_offset() {
    // The notes begin at 0xc0.
    let behind = [note(b"GNU\0", 1, &[0; 16], 4), note(OWNER, PHYS32_ENTRY, &[0; 6], 4)].concat();
    assert_eq!(said(&behind), "its PVH note at offset 0xe0 has 6 bytes, an entry has 4 or 8");
    let mut long = pvh(START);
    long[4] = 5;
    assert_eq!(
        said(&long),
        "its note at offset 0xc0 is damaged: a name of 4 and a content of 5 bytes do not fit into its segment"
    );
    long[..4].copy_from_slice(&[0xff; 4]);
    assert!(said(&long).contains("a name of 4294967295"));
    let high = note(OWNER, PHYS32_ENTRY, &0xffff_ffff_8100_0000_u64.to_le_bytes(), 4);
    assert!(said(&high).contains("0xffffffff81000000 is no physical address of 32 bits"));
    for outside in [START - 1, START + 16] {
        assert!(said(&pvh(outside)).contains(&format!("{outside:#x} is not in what the file has loaded")));
    }
    let mut cut = file(&pvh(START), 4);
    cut.truncate(cut.len() - 1);
    assert_eq!(
        entry(&cut).unwrap_err().to_string(),
        "it is cut: its notes, 20 bytes at offset 0xc0, are not in it"
    );
}

/// Whatever is damaged, the file is read or refused.
#[test]
fn no_file_ends_gretel() {
    let whole = file(&[note(b"GNU\0", 3, &[9; 20], 4), pvh(START + 8)].concat(), 4);
    let mut seed = 15_u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        usize::try_from(seed >> 33).unwrap() % below
    };
    let (mut found, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..=random(3) {
            let at = random(bytes.len());
            bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random(5)];
        }
        bytes.truncate(bytes.len() - [0, random(60)][random(2)]);
        match entry(&bytes) {
            Ok(Some(_)) => found += 1,
            Ok(None) => {}
            Err(_) => refused += 1,
        }
    }
    assert!(found > 1000 && refused > 1000, "{found} had an entry, {refused} were refused");
}

/// Files of 32 bits have notes, too.
#[test]
fn a_file_of_32_bits_has_an_entry() {
    let notes = pvh(START);
    let mut file = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let words = |file: &mut Vec<u8>, words: &[u32]| file.extend(words.iter().flat_map(|n| n.to_le_bytes()));
    file.extend([2, EM_386.0].into_iter().flat_map(u16::to_le_bytes));
    words(&mut file, &[1, START, 52, 0, 0]);
    file.extend([52, 32, 2, 0, 0, 0_u16].into_iter().flat_map(u16::to_le_bytes));
    words(&mut file, &[PT_LOAD.0, 116, START, START, 16, 16, 5, 4]);
    words(&mut file, &[PT_NOTE.0, 132, 0, 0, 20, 20, 4, 4]);
    file.extend([0xf4; 16]);
    file.extend(notes);
    assert_eq!(entry(&file), Ok(Some(START)));
}
