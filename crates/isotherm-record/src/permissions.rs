//! Permissions of mappings as four letters.

use isotherm_core::{Permissions, TargetId};

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

/// The permissions of a mapping of `target`. Physical memory has none: `----`.
pub(crate) fn letters_of(target: TargetId, permissions: Permissions) -> String {
    if target == TargetId::PhysicalMemory { "----".to_owned() } else { permission_letters(permissions) }
}

/// Reads permissions from four letters such as `rw-p`. `None` if the letters are invalid.
pub(crate) fn parse(letters: &str) -> Option<Permissions> {
    let &[r, w, x, s] = letters.as_bytes() else { return None };
    let is = |found: u8, letter: u8| if found == letter { Some(true) } else { (found == b'-').then_some(false) };
    Some(Permissions {
        read: is(r, b'r')?,
        write: is(w, b'w')?,
        execute: is(x, b'x')?,
        shared: if s == b'p' { false } else { is(s, b's')? },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_read_as_they_are_written() {
        for letters in ["rw-p", "r-xp", "---p", "rwxs", "-w-s"] {
            assert_eq!(parse(letters).map(permission_letters).as_deref(), Some(letters));
        }
        assert_eq!(parse("----"), Some(Permissions::NONE));
        assert_eq!(letters_of(TargetId::PhysicalMemory, Permissions::NONE), "----");
        for letters in ["", "rw-", "rw-pp", "xw-p", "rw-x", "äp-"] {
            assert_eq!(parse(letters), None, "{letters}");
        }
    }
}
