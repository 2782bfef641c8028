//! No file is executed any more: landlock. Rights to read and write stay, since the program has those of the user natively, and the
//! recorder writes where the program may.

use landlock::{
    ABI, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus,
};

/// The first interface that lets files be moved between folders: one before it refuses that to every confined process.
const NEEDED: ABI = ABI::V2;

/// From now on the calling thread, and those that it starts, execute no file.
pub(super) fn confine() -> Result<(), String> {
    // What the crate says of a kernel without it, or of a container that does not let it through, is for its users.
    offered()?;
    let root = PathFd::new("/").map_err(|error| format!("landlock: {error}"))?;
    match restrict(root).map_err(|error| format!("landlock: {error}"))? {
        RulesetStatus::NotEnforced => Err("landlock: this kernel does not enforce it".to_owned()),
        _ => Ok(()),
    }
}

fn restrict(root: PathFd) -> Result<RulesetStatus, RulesetError> {
    let everywhere = PathBeneath::new(root, AccessFs::Refer);
    Ok(handled()?.create()?.add_rule(everywhere)?.restrict_self()?.ruleset)
}

/// The right to execute, which no rule gives, and that to move files, which is given everywhere: it is taken unless it is named.
fn handled() -> Result<Ruleset, RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::Execute | AccessFs::Refer)
}

/// Whether this kernel has it, of an interface that is new enough.
pub(super) fn offered() -> Result<(), String> {
    const VERSION: u32 = 1;
    // SAFETY: without attributes, the call only tells the version of the interface.
    match unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, VERSION) } {
        version if version >= NEEDED as i64 => Ok(()),
        version if version > 0 => {
            Err(format!("landlock: version {version}, and {} is needed", NEEDED as i64))
        }
        _ => Err(format!("landlock is not to be had here: {}", std::io::Error::last_os_error())),
    }
}
