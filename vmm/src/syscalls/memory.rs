//! Calls on the address space.

use super::commands::REMAP_TO;
use super::constants::{MADVICE, MAP, MEMPOLICY, MLOCK2, MLOCKALL, MSYNC, PROTECTION, REMAP};
use super::rows;
use super::shape::Beyond::{Mappings, Memory, Registers};
use super::shape::Extent::{ArgTimes, Iovec, Pages, Struct, Unknown};
use super::shape::Kind::{Address, By, Enum, Fd, Flags, Hex, In, Int, Out, Pid, Size, Unsigned};
use super::shape::Mapping::{Attach, Discard, Heap, Map, Move, Protect, Unmap};
use super::shape::Served::{Missing, Mixed, Ours};
use super::structs::INT;

rows! {
    9 mmap(addr: Address, length: Size, prot: Flags(&PROTECTION), flags: Flags(&MAP), fd: Fd,
        offset: Hex) -> Address, Mixed, Mappings(Map);
    10 mprotect(addr: Address, len: Size, prot: Flags(&PROTECTION)) -> Int, Ours, Mappings(Protect);
    11 munmap(addr: Address, length: Size) -> Int, Ours, Mappings(Unmap);
    12 brk(addr: Address) -> Address, Ours, Mappings(Heap);
    25 mremap(old_address: Address, old_size: Size, new_size: Size, flags: Flags(&REMAP),
        new_address: By(&REMAP_TO)) -> Address, Ours, Mappings(Move);
    26 msync(addr: Address, length: Size, flags: Flags(&MSYNC)) -> Int, Ours;
    27 mincore(addr: Address, length: Size, vec: Out(Pages(1))) -> Int, Ours;
    28 madvise(addr: Address, length: Size, advice: Enum(MADVICE)) -> Int, Ours, Mappings(Discard);
    149 mlock(addr: Address, len: Size) -> Int, Ours;
    150 munlock(addr: Address, len: Size) -> Int, Ours;
    151 mlockall(flags: Flags(&MLOCKALL)) -> Int, Ours;
    152 munlockall() -> Int, Ours;
    216 remap_file_pages(addr: Address, size: Size, prot: Flags(&PROTECTION), pgoff: Size,
        flags: Flags(&MAP)) -> Int, Ours, Mappings(Attach);
    237 mbind(addr: Address, len: Size, mode: Flags(&MEMPOLICY), nodemask: Address, maxnode: Size,
        flags: Hex) -> Int, Ours;
    238 set_mempolicy(mode: Flags(&MEMPOLICY), nodemask: Address, maxnode: Size) -> Int, Ours;
    239 get_mempolicy(mode: Out(Struct(&INT)), nodemask: Out(Unknown), maxnode: Size, addr: Address,
        flags: Hex) -> Int, Ours;
    256 migrate_pages(pid: Pid, maxnode: Size, old_nodes: Address, new_nodes: Address) -> Int, Missing;
    279 move_pages(pid: Pid, count: Size, pages: Address, nodes: Address, status: Out(ArgTimes(1, &INT)),
        flags: Hex) -> Int, Missing;
    310 process_vm_readv(pid: Pid, local_iov: Out(Iovec(2)), liovcnt: Size, remote_iov: Address,
        riovcnt: Size, flags: Hex) -> Size, Ours;
    311 process_vm_writev(pid: Pid, local_iov: In(Iovec(2)), liovcnt: Size, remote_iov: Address,
        riovcnt: Size, flags: Hex) -> Size, Ours, Memory;
    323 userfaultfd(flags: Hex) -> Fd, Missing;
    325 mlock2(addr: Address, len: Size, flags: Flags(&MLOCK2)) -> Int, Ours;
    329 pkey_mprotect(addr: Address, len: Size, prot: Flags(&PROTECTION), pkey: Int) -> Int, Ours,
        Mappings(Protect);
    330 pkey_alloc(flags: Hex, access_rights: Hex) -> Int, Ours, Registers;
    331 pkey_free(pkey: Int) -> Int, Ours;
    440 process_madvise(pidfd: Fd, vec: In(Iovec(2)), vlen: Size, advice: Enum(MADVICE),
        flags: Hex) -> Size, Missing, Mappings(Discard);
    447 memfd_secret(flags: Hex) -> Fd, Missing;
    450 set_mempolicy_home_node(start: Address, len: Size, home_node: Size, flags: Hex) -> Int, Missing;
    453 map_shadow_stack(addr: Address, size: Size, flags: Unsigned) -> Address, Missing, Mappings(Attach);
    462 mseal(addr: Address, len: Size, flags: Hex) -> Int, Missing;
}
