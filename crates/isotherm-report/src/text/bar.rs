//! A bar with parts in several colours.

use super::{Colour, Terminal};
use crate::colour::Rgb;

/// A part of a bar: its length, its colour, and its character with and without Unicode.
pub(crate) type Part = (u64, Rgb, &'static str, &'static str);

/// A bar of at most `columns`, as plain and as styled text. A length of `largest` takes all of them.
pub(crate) fn stacked(parts: &[Part], largest: u64, columns: usize, terminal: &Terminal) -> (String, String) {
    let (mut text, mut styled) = (String::new(), String::new());
    let (mut sum, mut drawn) = (0_u64, 0);
    for &(bytes, colour, unicode, ascii) in parts {
        sum = sum.saturating_add(bytes);
        let end = ((sum as f64 / largest.max(1) as f64 * columns as f64).round() as usize).min(columns);
        let n = end.saturating_sub(drawn);
        drawn = end;
        let shade = if terminal.colour == Colour::None { unicode } else { "█" };
        let part = if terminal.unicode { shade } else { ascii }.repeat(n);
        if n > 0 {
            styled += &terminal.paint(&part, Some(colour), None);
        }
        text += &part;
    }
    (text, styled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_at_most_its_columns_however_long_its_parts_are() {
        let parts: [Part; 3] =
            [(u64::MAX, [1; 3], "█", "#"), (u64::MAX, [2; 3], "▓", "+"), (1 << 20, [3; 3], "░", ".")];
        for largest in [0, 1, u64::MAX] {
            for colour in [Colour::None, Colour::True] {
                let terminal = Terminal { colour, ..Terminal::default() };
                let (text, styled) = stacked(&parts, largest, 40, &terminal);
                assert_eq!(text.chars().count(), 40, "{largest} {colour:?}");
                assert!(styled.chars().count() < 40 + 80, "{largest} {colour:?}: {styled}");
            }
        }
    }
}
