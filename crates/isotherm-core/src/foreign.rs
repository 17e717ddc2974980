//! Foreign text: names, commands and other text that isotherm did not write itself. It must not act on a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character controls a terminal, is invisible, or changes the direction of text.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{61c}' | '\u{180e}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

/// The text with unsafe characters written as escapes such as `\x1b`.
pub fn sanitise(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return text.into();
    }
    let mut clean = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            c if !is_unsafe(c) => clean.push(c),
            '\n' => clean.push_str("\\n"),
            '\t' => clean.push_str("\\t"),
            c if u32::from(c) < 0x100 => _ = write!(clean, "\\x{:02x}", u32::from(c)),
            c => _ = write!(clean, "\\u{{{:x}}}", u32::from(c)),
        }
    }
    clean.into()
}

/// The text of a message of several lines, where line feeds stay as they are and all else is as [`sanitise`] has it.
pub fn sanitise_lines(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| c != '\n' && is_unsafe(c)) {
        return text.into();
    }
    text.split('\n').map(sanitise).collect::<Vec<_>>().join("\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_written_out() {
        assert_eq!(sanitise("a\x1b[31m\u{9b}\n\u{202e}z"), "a\\x1b[31m\\x9b\\n\\u{202e}z");
        assert!(matches!(sanitise("[heap]"), Cow::Borrowed("[heap]")));
    }

    #[test]
    fn lines_stay_lines() {
        assert_eq!(sanitise_lines("a\n\x1b]0;x\x07b\n"), "a\n\\x1b]0;x\\x07b\n");
        assert!(matches!(sanitise_lines("a\nb"), Cow::Borrowed("a\nb")));
    }
}
