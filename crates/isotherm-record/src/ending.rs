//! How a recording ends.

/// How a recording ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With the end marker: the recorder finished it.
    Whole,
    /// After a whole message, without the end marker: it is still being recorded, or the recorder was killed.
    Unfinished,
    /// Within a message: the recorder was killed while it wrote, or the file was cut.
    CutShort {
        /// How many bytes from the start are readable.
        at: u64,
    },
}
