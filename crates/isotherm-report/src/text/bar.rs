//! A bar with parts in several colours.

use super::{Colour, Terminal, cut};
use crate::colour::Rgb;

/// A part of a bar: its length, its colour, and its character with and without Unicode.
pub(crate) type Part = (u64, Rgb, &'static str, &'static str);

/// A bar, as plain and as styled text. A length of `largest` takes all `columns`.
pub(crate) fn stacked(parts: &[Part], largest: u64, columns: usize, terminal: &Terminal) -> (String, String) {
    let (mut text, mut styled) = (String::new(), String::new());
    let (mut sum, mut drawn) = (0_u64, 0);
    for &(bytes, colour, unicode, ascii) in parts {
        sum = sum.saturating_add(bytes);
        let end = (sum as f64 / largest.max(1) as f64 * columns as f64).round() as usize;
        let n = end.saturating_sub(drawn);
        drawn = end;
        let shade = if terminal.colour == Colour::None { unicode } else { "█" };
        let part = if terminal.unicode { shade } else { ascii }.repeat(n);
        if n > 0 {
            styled += &terminal.paint(&part, Some(colour), None);
        }
        text += &part;
    }
    (cut(&text, columns, terminal), styled)
}
