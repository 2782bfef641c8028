//! Build-ids: a linker's digest of what it linked, by which a file is known whatever it is called.

use super::Core;
use object::Object;
use object::elf::{FileHeader64, NT_GNU_BUILD_ID, PT_LOAD, PT_NOTE};
use object::read::elf::{FileHeader, ProgramHeader};

type Endian = object::LittleEndian;

/// So many bytes of a module's beginning hold its headers and, as linkers lay files out, its notes.
const BEGINNING: usize = 4096;

/// The build-id of an ELF file, if it has one.
#[must_use]
pub fn of_file(bytes: &[u8]) -> Option<Vec<u8>> {
    object::File::parse(bytes).ok()?.build_id().ok().flatten().map(<[u8]>::to_vec)
}

/// As tools write it.
#[must_use]
pub fn text(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Core {
    /// The build-id of the file whose beginning is mapped at `start`, if the core holds it. (Linux writes the first page of
    /// each ELF file that is mapped, unless coredump_filter says otherwise.)
    #[must_use]
    pub fn build_id_at(&self, start: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; BEGINNING];
        if !self.read(start, &mut bytes) {
            return None;
        }
        let header = FileHeader64::<Endian>::parse(&bytes[..]).ok()?;
        let endian = Endian::default();
        let headers = header.program_headers(endian, &bytes[..]).ok()?;
        let first = headers.iter().find(|it| it.p_type(endian) == PT_LOAD && it.p_offset(endian) == 0)?;
        for note in headers.iter().filter(|it| it.p_type(endian) == PT_NOTE) {
            let at = note.p_vaddr(endian).checked_sub(first.p_vaddr(endian))?;
            let size = usize::try_from(note.p_memsz(endian)).ok().filter(|size| *size <= BEGINNING)?;
            let mut data = vec![0; size];
            if !self.read(start.checked_add(at)?, &mut data) {
                continue;
            }
            let align = note.p_align(endian);
            let mut notes =
                object::read::elf::NoteIterator::<FileHeader64<Endian>>::new(endian, align, &data).ok()?;
            while let Ok(Some(note)) = notes.next() {
                if note.name() == b"GNU" && note.n_type(endian) == NT_GNU_BUILD_ID {
                    return Some(note.desc().to_vec());
                }
            }
        }
        None
    }
}
