//! How much memory a part of a recording may take when it is read.

/// The most bytes of a batch, decompressed, and of a snapshot or a survey, unless the user says otherwise.
const MOST: u64 = 512 << 20;
/// The bytes of a batch, decompressed, that are always allowed. A recorder buffers 512 KiB, and the row that exceeds
/// them.
const SMALL: u64 = 16 << 20;
/// How many times the size of a batch it may have when it is decompressed, above that.
const EXPANSION: u64 = 64;
/// The same for names and commands. Long names that differ little compress well, and take no more memory than they are
/// long.
const SMALL_TEXT: u64 = 64 << 20;
const EXPANSION_TEXT: u64 = 1024;
/// About how many bytes an entry of a list of structs takes when it is read: a region, a mapping or a block.
const ENTRY: u64 = 200;
/// The most entries of all lists of a batch, unless the user says otherwise.
const MOST_ENTRIES: u64 = 3 << 20;

/// The limits of one recording: those of every recording, or what the user allows for each of its parts, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits(Option<u64>);

impl Limits {
    pub(crate) fn new(max_memory: Option<u64>) -> Self {
        Self(max_memory)
    }

    /// The most bytes that a snapshot or a survey may take.
    pub(crate) fn of_part(self) -> u64 {
        self.0.unwrap_or(MOST)
    }

    /// The limit that a batch of `len` bytes exceeds, in bytes, if it has so many bytes decompressed, of which `text`
    /// are not counted in `bytes`, and so many entries.
    pub(crate) fn exceeded(self, len: u64, bytes: u64, text: u64, entries: u64) -> Option<u64> {
        let allowed = |small: u64, expansion: u64| self.0.unwrap_or(MOST.min(small + expansion * len));
        let most_entries = self.0.map_or(MOST_ENTRIES, |most| most / ENTRY);
        [(bytes, allowed(SMALL, EXPANSION)), (text, allowed(SMALL_TEXT, EXPANSION_TEXT)), (entries, most_entries)]
            .into_iter()
            .zip([1, 1, ENTRY])
            .find(|((value, most), _)| value > most)
            .map(|((_, most), size)| self.0.unwrap_or(most * size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_batch_may_take_less_than_a_large_one_and_the_user_has_the_last_word() {
        let exceeded = |len, bytes, text, entries| Limits::default().exceeded(len, bytes, text, entries);
        assert_eq!(exceeded(0, SMALL, SMALL_TEXT, MOST_ENTRIES), None);
        assert_eq!(exceeded(0, SMALL + 1, 0, 0), Some(SMALL));
        assert_eq!(exceeded(1 << 20, SMALL + 1, 0, 0), None);
        assert_eq!(exceeded(1 << 30, MOST + 1, 0, 0), Some(MOST));
        assert_eq!(exceeded(0, 0, SMALL_TEXT + 1, 0), Some(SMALL_TEXT));
        assert_eq!(exceeded(1 << 30, 0, 0, MOST_ENTRIES + 1), Some(MOST_ENTRIES * ENTRY));
        let allows = |most| Limits::new(Some(most)).exceeded(0, 100 << 20, 100 << 20, 1 << 20);
        assert_eq!((allows(1 << 30), allows(10 << 20)), (None, Some(10 << 20)));
    }
}
