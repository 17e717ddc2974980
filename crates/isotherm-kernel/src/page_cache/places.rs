//! The places of files in one space of addresses.

use std::collections::HashMap;

use isotherm_core::survey::BLOCK_SIZE;
use isotherm_core::{AddrRange, FileId, PAGE_SIZE};

/// Gives each file a place, which it keeps as long as it does not outgrow it.
///
/// A place is a power of two of pages, so that a file that grows moves rarely: what is known of its pages is lost then.
/// Small files share a block; a larger one begins with a block of its own. A place is not given to another file later.
#[derive(Debug)]
pub(super) struct Places {
    of: HashMap<FileId, AddrRange>,
    next: u64,
}

impl Default for Places {
    /// The first block stays empty: address 0 stands for the beginning of a survey.
    fn default() -> Self {
        Self { of: HashMap::new(), next: BLOCK_SIZE }
    }
}

impl Places {
    /// The place of a file of so many bytes: its pages. `None` if it has none, or there is no place left.
    pub(super) fn place(&mut self, id: FileId, bytes: u64) -> Option<AddrRange> {
        let size = bytes.checked_next_multiple_of(PAGE_SIZE).filter(|size| *size > 0)?;
        let known = self.of.get(&id).filter(|place| place.size() >= size).copied();
        let place = match known {
            Some(place) => place,
            None => {
                let whole = size.checked_next_power_of_two()?;
                let start = self.next.checked_next_multiple_of(whole.min(BLOCK_SIZE))?;
                let place = AddrRange::new(start, start.checked_add(whole)?)?;
                self.next = place.end();
                self.of.insert(id, place);
                place
            }
        };
        AddrRange::new(place.start(), place.start() + size)
    }

    /// Forgets the files of which `keep` does not hold.
    pub(super) fn retain(&mut self, keep: impl Fn(&FileId) -> bool) {
        self.of.retain(|id, _| keep(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(inode: u64) -> FileId {
        FileId { device: (8, 1), inode }
    }

    #[test]
    fn a_file_keeps_its_place_until_it_outgrows_it_and_no_two_places_overlap() {
        let mut places = Places::default();
        let small = places.place(id(1), 5000).unwrap();
        assert_eq!((small.start(), small.size()), (BLOCK_SIZE, 8192));
        let large = places.place(id(2), 3 * BLOCK_SIZE + 1).unwrap();
        assert_eq!((large.start() % BLOCK_SIZE, large.size()), (0, 3 * BLOCK_SIZE + PAGE_SIZE));
        let grown = places.place(id(2), 4 * BLOCK_SIZE).unwrap();
        assert_eq!((grown.start(), grown.size()), (large.start(), 4 * BLOCK_SIZE));
        let outgrown = places.place(id(2), 4 * BLOCK_SIZE + 1).unwrap();
        assert!(outgrown.start() >= grown.end(), "{outgrown:?}");
        assert_eq!(places.place(id(1), 100).unwrap().start(), small.start());
        assert_eq!(places.place(id(3), 0), None);
        assert_eq!(places.place(id(3), u64::MAX), None);
        places.retain(|file| *file != id(1));
        assert!(places.place(id(1), 100).unwrap().start() >= outgrown.end());
    }
}
