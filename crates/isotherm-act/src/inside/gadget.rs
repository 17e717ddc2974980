//! Finds the two instruction [sequences](super::code) in the target's own code that a call needs. No code is written
//! into the target.

use std::io;

use isotherm_core::AddrRange;

use super::code::{CALL, RESTORERS};

/// The number of bytes of code that are read at a time.
const PIECE: usize = 256 << 10;

/// The maximum number of bytes of code that are read of one target. Both sequences are in the C library, or at the
/// start of a program without one.
const MAX_CODE: u64 = 128 << 20;

/// The addresses of the two sequences in a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gadgets {
    /// The address of [`CALL`].
    pub call: u64,
    /// The address of one of [`RESTORERS`].
    pub restorer: u64,
    /// The index of the encoding in [`RESTORERS`].
    pub restorer_kind: u32,
}

/// Searches the ranges of `code`, which `read` reads. Returns `None` if one of the sequences is missing.
pub(super) fn find(
    code: impl IntoIterator<Item = AddrRange>,
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<usize>,
) -> Option<Gadgets> {
    let overlap = RESTORERS[0].len() as u64 - 1;
    let (mut call, mut restorer) = (None, None);
    let mut buffer = vec![0; PIECE];
    let mut searched = 0;
    for range in code {
        let mut at = range.start();
        while at < range.end() && searched < MAX_CODE {
            let wanted = (range.end() - at).min(PIECE as u64);
            // Code that cannot be read is left out.
            let length = read(at, &mut buffer[..wanted as usize]).unwrap_or(0);
            let bytes = &buffer[..length];
            let place = |pattern: &[u8]| Some(at + find_in(bytes, pattern)? as u64);
            call = call.or_else(|| place(CALL));
            restorer = restorer.or_else(|| {
                RESTORERS.iter().zip(0..).find_map(|(pattern, kind)| place(pattern).map(|place| (place, kind)))
            });
            if let (Some(call), Some((restorer, restorer_kind))) = (call, restorer) {
                return Some(Gadgets { call, restorer, restorer_kind });
            }
            searched += wanted;
            if length as u64 <= overlap || wanted < PIECE as u64 {
                break;
            }
            at += length as u64 - overlap;
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
    fn both_sequences_are_found_at_any_address() {
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
    fn a_call_without_a_restorer_is_not_enough() {
        let mut code = vec![0x90; 100];
        assert_eq!(found(&code), None);
        code[10..13].copy_from_slice(CALL);
        assert_eq!(found(&code), None);
    }
}
