//! How formats 1 and 2 write targets, nodes, permissions and refusals: as pids, as a part of names, as letters and as
//! error numbers.

use std::time::Duration;

use isotherm_core::scheme::{Refusal, RefusalReason};
use isotherm_core::{Mapping, NodeId, Permissions, TargetId};

use crate::TargetInfo;

/// The text between the name and the node of a mapping of physical memory.
const NODE: &str = ", node ";

/// The number of a target in the `pid` columns and in JSON: the pid of a process, 0 for physical memory.
///
/// A cgroup has no number of its own. It becomes 0 here, and recorders of formats 1 and 2 refuse it.
pub fn pid_column(id: TargetId) -> u32 {
    id.pid().unwrap_or(0)
}

/// Whether a target has a number in the `pid` columns.
pub(crate) fn has_pid_column(id: TargetId) -> bool {
    !matches!(id, TargetId::Cgroup(_))
}

/// The target with this number in a `pid` column.
///
/// These formats hold no boot time, so that the start is counted from the Unix epoch. It is zero without `info`.
pub fn identity(pid: u32, info: Option<&TargetInfo>) -> TargetId {
    match pid {
        0 => TargetId::PhysicalMemory,
        pid => TargetId::process(pid, Duration::from_nanos(info.map_or(0, |info| info.started_unix_ns))),
    }
}

/// The permissions of a mapping as four letters, as in `/proc/PID/maps`: `rw-p`.
pub fn permission_letters(permissions: Permissions) -> String {
    let letter = |is, letter| if is { letter } else { '-' };
    [
        letter(permissions.read, 'r'),
        letter(permissions.write, 'w'),
        letter(permissions.execute, 'x'),
        if permissions.shared { 's' } else { 'p' },
    ]
    .into_iter()
    .collect()
}

/// The permissions of a mapping of the target with this number. Physical memory has none: `----`.
pub(crate) fn permissions_column(pid: u32, permissions: Permissions) -> String {
    if pid == 0 { "----".to_owned() } else { permission_letters(permissions) }
}

/// Reads permissions from four letters such as `rw-p`. `None` if the letters are invalid.
pub(crate) fn permissions(letters: &str) -> Option<Permissions> {
    let &[r, w, x, s] = letters.as_bytes() else { return None };
    let is = |found: u8, letter: u8| if found == letter { Some(true) } else { (found == b'-').then_some(false) };
    Some(Permissions {
        read: is(r, b'r')?,
        write: is(w, b'w')?,
        execute: is(x, b'x')?,
        shared: if s == b'p' { false } else { is(s, b's')? },
    })
}

/// Moves the node of a mapping of physical memory out of its name.
pub(crate) fn split_node(mapping: &mut Mapping) {
    let found = mapping.name.rsplit_once(NODE).and_then(|(name, node)| Some((name.into(), node.parse().ok()?)));
    if let Some((name, node)) = found {
        (mapping.name, mapping.node) = (name, Some(NodeId(node)));
    }
}

/// The refusal that an error number of Linux means. A number that has several meanings becomes [`RefusalReason::Other`].
pub(crate) fn refusal(errno: i32) -> Refusal {
    let reason = match errno {
        3 => RefusalReason::TargetGone,        // ESRCH
        4 => RefusalReason::Interrupted,       // EINTR
        1 | 13 => RefusalReason::NotPermitted, // EPERM, EACCES
        11 | 16 | 110 => RefusalReason::Busy,  // EAGAIN, EBUSY, ETIMEDOUT
        22 => RefusalReason::Unsuitable,       // EINVAL
        38 | 95 => RefusalReason::Unsupported, // ENOSYS, EOPNOTSUPP
        _ => RefusalReason::Other,             // ENOMEM: too little memory, or not mapped
    };
    reason.with_code(errno)
}

#[cfg(test)]
mod tests {
    use isotherm_core::AddrRange;

    use super::*;

    #[test]
    fn permissions_are_read_as_they_are_written() {
        for letters in ["rw-p", "r-xp", "---p", "rwxs", "-w-s"] {
            assert_eq!(permissions(letters).map(permission_letters).as_deref(), Some(letters));
        }
        assert_eq!(permissions("----"), Some(Permissions::NONE));
        assert_eq!(permissions_column(0, Permissions::NONE), "----");
        for letters in ["", "rw-", "rw-pp", "xw-p", "rw-x", "äp-"] {
            assert_eq!(permissions(letters), None, "{letters}");
        }
    }

    #[test]
    fn the_node_of_physical_memory_is_split_off_its_name() {
        let split = |name: &str| {
            let mut mapping = Mapping { name: name.into(), ..Mapping::anonymous(AddrRange::new(0, 4096).unwrap()) };
            split_node(&mut mapping);
            (mapping.name.to_string(), mapping.node)
        };
        assert_eq!(split("System RAM, node 1"), ("System RAM".into(), Some(NodeId(1))));
        assert_eq!(split("System RAM"), ("System RAM".into(), None));
        assert_eq!(split("System RAM, node x"), ("System RAM, node x".into(), None));
    }
}
