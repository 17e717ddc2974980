//! Marks: named moments of a run, and reading them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{bytes_of, start_of};

use crate::columns;
use crate::time::nanoseconds;

/// A moment of a run that somebody gave a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When it was, since the start of the run.
    pub time: Duration,
    /// What it is called.
    pub text: MarkText,
}

impl Mark {
    /// How many marks a run takes at most, and how many of a recording reports show.
    pub const MOST: usize = 10_000;

    pub(crate) fn to_column(&self) -> columns::Mark {
        columns::Mark { time_ns: nanoseconds(self.time), text: Arc::clone(&self.text.0) }
    }
}

/// What a mark is called: never empty, without white space at its ends, and at most [`LONGEST`](Self::LONGEST) bytes.
///
/// Bytes that are not UTF-8 are escaped, as in names of the kernel ([`isotherm_core::text_of`]). Control characters are
/// not: they are to be escaped where the text is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkText(Arc<str>);

impl MarkText {
    /// The most bytes of a text. Of a longer one, the beginning and `…` are kept.
    pub const LONGEST: usize = 256;

    /// The text that these bytes are, in UTF-8 or not. `None` if there is nothing but white space.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.trim_ascii();
        (!bytes.is_empty()).then(|| Self(start_of(bytes, Self::LONGEST).into()))
    }
}

impl std::ops::Deref for MarkText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MarkText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The mark that these columns hold.
///
/// # Errors
/// When it has no text.
pub(crate) fn read(found: columns::Mark) -> Result<Mark, &'static str> {
    let text = MarkText::new(&bytes_of(&found.text)).ok_or("a mark has no text")?;
    Ok(Mark { time: Duration::from_nanos(found.time_ns), text })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_an_end_and_no_white_space_around_it() {
        let text = |bytes: &[u8]| MarkText::new(bytes).map(|text| text.to_string());
        assert_eq!(text(b"  load \xff begins\r\n").unwrap(), "load \\xff begins");
        assert_eq!((text(b""), text(b" \t\n")), (None, None));
        let long = text("ü".repeat(200).as_bytes()).unwrap();
        assert_eq!(long, format!("{}…", "ü".repeat(128)));
        // What was cut once stays as it is when it is read.
        let short = MarkText::new(&[0xff; 256]).unwrap();
        assert_eq!(MarkText::new(&bytes_of(&short)), Some(short));
    }
}
