//! What /proc tells of a process's memory in numbers, and the memory itself (`mem`).

use super::super::{Guest, Kernel, Served, errno};
use super::{Of, gone};
use crate::memory::access::AccessError;
use crate::memory::vma::Backing;
use crate::ram::{PAGE, PAGE_LEN, Virt};

/// Sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) mapped: u64,
    pub(super) locked: u64,
    pub(super) data: u64,
    pub(super) stack: u64,
    /// Code of the program, and of libraries.
    pub(super) code: u64,
    pub(super) library: u64,
    /// What of it is in memory: of nobody's file, of files, and shared.
    pub(super) resident: [u64; 3],
}

/// What is in memory of each mapping, in pages. Which pages are is what this run came to, so it is an input.
pub(super) fn resident(kernel: &Kernel, guest: &mut Guest<'_>, of: Of) -> Served<Vec<u64>> {
    let Some(task) = kernel.shown(of) else { return Ok(Vec::new()) };
    let space = guest.spaces.get(task.space);
    let ram = guest.memory.ram();
    let count = |start, end| space.resident(ram, &(start..end)).len() as u64;
    let pages: Vec<u64> = space.mappings().iter().map(|(start, it)| count(start, it.end)).collect();
    let told = guest.input_bytes(&mut || Ok(pages.iter().flat_map(|pages| pages.to_le_bytes()).collect()))?;
    Ok(told.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes"))).collect())
}

pub(super) fn sizes(kernel: &Kernel, guest: &mut Guest<'_>, of: Of) -> Served<Sizes> {
    let resident = resident(kernel, guest, of)?;
    let Some(task) = kernel.shown(of) else { return Ok(Sizes::default()) };
    let program = kernel.groups.get(of.group).map(|group| group.path.to_string_lossy().into_owned());
    let mut sizes = Sizes::default();
    for ((start, mapping), pages) in guest.spaces.get(task.space).mappings().iter().zip(resident) {
        let length = mapping.end - start;
        sizes.mapped += length;
        if mapping.attributes.locked {
            sizes.locked += length;
        }
        let kind = match &mapping.backing {
            Backing::Zero("[stack]") => {
                sizes.stack += length;
                0
            }
            Backing::Zero(_) => 0,
            Backing::File(content, _) => {
                if mapping.rights.execute {
                    let own = program.as_ref().is_some_and(|path| *path == content.name);
                    *(if own { &mut sizes.code } else { &mut sizes.library }) += length;
                }
                1
            }
            Backing::Copied(..) => 1,
            Backing::Shared(..) => 2,
        };
        if mapping.rights.write && kind != 2 && !matches!(mapping.backing, Backing::Zero("[stack]")) {
            sizes.data += length;
        }
        sizes.resident[kind] += pages * PAGE;
    }
    Ok(sizes)
}

pub(super) fn statm(kernel: &mut Kernel, guest: &mut Guest<'_>, of: Of) -> Served<Vec<u8>> {
    let sizes = sizes(kernel, guest, of)?;
    let [own, files, shared] = sizes.resident;
    let pages =
        [sizes.mapped, own + files + shared, files + shared, sizes.code, 0, sizes.data + sizes.stack, 0];
    let text: Vec<String> = pages.iter().map(|bytes| (bytes / PAGE).to_string()).collect();
    Ok(format!("{}\n", text.join(" ")).into_bytes())
}

/// The parts of a range in single pages.
fn pieces(at: Virt, length: usize) -> impl Iterator<Item = (Virt, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let here = at.checked_add(done as u64)?;
        let in_page = usize::try_from(here % PAGE).expect("inside a page");
        let part = (length - done).min(PAGE_LEN - in_page);
        done += part;
        (part > 0).then_some((here, part))
    })
}

/// Reads a process's memory, whatever its rights are.
pub(super) fn read(
    kernel: &Kernel,
    guest: &mut Guest<'_>,
    of: Of,
    mut from: Virt,
    segments: &[(Virt, usize)],
) -> Served {
    let Some(task) = kernel.shown(of) else { return Ok(0) };
    let theirs = task.space;
    let mut done = 0;
    for &(to, length) in segments {
        for (address, part) in pieces(from, length) {
            let mut bytes = vec![0; part];
            let there = guest.spaces.get(theirs).read_original(guest.memory, address, &mut bytes);
            if !there {
                return if done > 0 { Ok(done) } else { errno(libc::EIO) };
            }
            guest.write(to + (address - from), &bytes)?;
            done += part as u64;
        }
        from = from.wrapping_add(length as u64);
    }
    Ok(done)
}

/// Writes a process's memory: what the process itself may not write as well, as a debugger does, unless others would see it.
pub(super) fn write(kernel: &Kernel, guest: &mut Guest<'_>, of: Of, at: Virt, bytes: &[u8]) -> Served {
    let Some(task) = kernel.shown(of) else { return gone() };
    let theirs = task.space;
    let mut done = 0;
    for (address, part) in pieces(at, bytes.len()) {
        match guest.spaces.get_mut(theirs).force(guest.memory, address, &bytes[done..done + part]) {
            Ok(()) => done += part,
            Err(AccessError::Bad) if done == 0 => return errno(libc::EIO),
            Err(AccessError::Bad) => break,
            Err(AccessError::Space(error)) => return Err(error.into()),
        }
    }
    Ok(done as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_at_pages() {
        let all: Vec<_> = pieces(PAGE - 1, PAGE_LEN + 2).collect();
        assert_eq!(all, [(PAGE - 1, 1), (PAGE, PAGE_LEN), (2 * PAGE, 1)]);
        assert_eq!(pieces(5, 0).count(), 0);
        assert_eq!(pieces(Virt::MAX, 2).next(), Some((Virt::MAX, 1)));
    }
}
