//! Two places in the target's own code, which it is sent to: code is never written.

use std::io;

use isotherm_core::AddrRange;

/// `syscall; ret`: the system call itself.
pub(super) const CALL: &[u8] = &[0x0f, 0x05, 0xc3];

/// Ways to write `mov $15, %eax; syscall`, which is `rt_sigreturn`: where signal handlers return to.
pub(super) const RESTORERS: [&[u8]; 2] =
    [&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05], &[0xb8, 15, 0, 0, 0, 0x0f, 0x05]];

/// Code is read in pieces of this size.
const PIECE: usize = 256 << 10;

/// Not more than this is read of one target: what is needed is in the C library, or at the start of a program without
/// one.
const MOST: u64 = 128 << 20;

/// Where the two are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gadgets {
    pub call: u64,
    pub restorer: u64,
    /// Which of [`RESTORERS`] it is.
    pub restorer_kind: u32,
}

/// Looks for them in these ranges of code, as `read` gives it; nothing if one of them is missing.
pub(super) fn find(
    code: impl IntoIterator<Item = AddrRange>,
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<usize>,
) -> Option<Gadgets> {
    let overlap = RESTORERS[0].len() as u64 - 1;
    let (mut call, mut restorer) = (None, None);
    let mut buffer = vec![0; PIECE];
    let mut looked_at = 0;
    for range in code {
        let mut at = range.start();
        while at < range.end() && looked_at < MOST {
            let wanted = (range.end() - at).min(PIECE as u64);
            // What cannot be read is left out.
            let told = read(at, &mut buffer[..wanted as usize]).unwrap_or(0);
            let bytes = &buffer[..told];
            let place = |pattern: &[u8]| Some(at + find_in(bytes, pattern)? as u64);
            call = call.or_else(|| place(CALL));
            restorer = restorer.or_else(|| {
                RESTORERS.iter().zip(0..).find_map(|(pattern, kind)| place(pattern).map(|place| (place, kind)))
            });
            if let (Some(call), Some((restorer, restorer_kind))) = (call, restorer) {
                return Some(Gadgets { call, restorer, restorer_kind });
            }
            looked_at += wanted;
            if told as u64 <= overlap || wanted < PIECE as u64 {
                break;
            }
            at += told as u64 - overlap;
        }
    }
    None
}

fn find_in(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    bytes.windows(pattern.len()).position(|window| window == pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: &[u8]) -> Option<Gadgets> {
        let range = AddrRange::new(0x1000, 0x1000 + code.len() as u64).unwrap();
        find([range], |at, buffer| {
            let from = (at - 0x1000) as usize;
            let part = &code[from..(from + buffer.len()).min(code.len())];
            buffer[..part.len()].copy_from_slice(part);
            Ok(part.len())
        })
    }

    #[test]
    fn both_places_are_found_wherever_they_are() {
        for at in [0, 7, PIECE - 4, PIECE - 1, PIECE, 3 * PIECE] {
            for restorer in RESTORERS {
                let mut code = vec![0x90; 4 * PIECE];
                code[at..at + 3].copy_from_slice(CALL);
                code[at + 20..at + 20 + restorer.len()].copy_from_slice(restorer);
                let found = found(&code).unwrap();
                assert_eq!(found.call, 0x1000 + at as u64);
                assert_eq!(found.restorer, 0x1000 + at as u64 + 20);
                assert_eq!(RESTORERS[found.restorer_kind as usize], restorer);
            }
        }
    }

    #[test]
    fn one_alone_does_not_do() {
        let mut code = vec![0x90; 100];
        assert_eq!(found(&code), None);
        code[10..13].copy_from_slice(CALL);
        assert_eq!(found(&code), None);
    }
}
