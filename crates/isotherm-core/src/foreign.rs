//! Foreign text: names, commands and other text that isotherm did not write itself. It must not act on a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character controls a terminal, is invisible, or changes the direction of text. Invisible are those with
/// the Unicode property `Default_Ignorable_Code_Point`: terminals do not agree on how many columns they take.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}')
        || matches!(c, '\u{180b}'..='\u{180f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}')
        || matches!(c, '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}')
        || matches!(c, '\u{e0000}'..='\u{e0fff}')
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

/// The longest text of a name or a command line that came from the kernel, in bytes, before it is written as text.
pub const LONGEST_NAME: usize = 4096;

/// Bytes as text, without loss: names of the kernel are bytes, in any encoding or none.
///
/// A byte that is not part of a valid UTF-8 sequence is written as `\xff`. A backslash that stands before `x` and two
/// hexadecimal digits is written as `\x5c`. All else stays as it is, so a name in UTF-8 is its own text.
/// [`bytes_of`] is the inverse.
pub fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if escapes(text.as_bytes()).next().is_none() => return text.into(),
        _ => {}
    }
    let mut text = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid();
        let mut from = 0;
        for at in escapes(valid.as_bytes()) {
            text.push_str(&valid[from..at]);
            text.push_str("\\x5c");
            from = at + 1;
        }
        text.push_str(&valid[from..]);
        chunk.invalid().iter().for_each(|byte| _ = write!(text, "\\x{byte:02x}"));
    }
    text.into()
}

/// The bytes that [`text_of`] wrote as this text.
pub fn bytes_of(text: &str) -> Cow<'_, [u8]> {
    let text = text.as_bytes();
    let mut bytes = Vec::new();
    let mut from = 0;
    for at in escapes(text) {
        bytes.extend_from_slice(&text[from..at]);
        let digit = |index: usize| (text[index] as char).to_digit(16).unwrap_or_default() as u8;
        bytes.push(digit(at + 2) << 4 | digit(at + 3));
        from = at + 4;
    }
    if from == 0 {
        return text.into();
    }
    bytes.extend_from_slice(&text[from..]);
    bytes.into()
}

/// Where a backslash, `x` and two hexadecimal digits stand.
fn escapes(text: &[u8]) -> impl Iterator<Item = usize> {
    let is_escape = |four: &[u8]| four[..2] == *b"\\x" && four[2..].iter().all(u8::is_ascii_hexdigit);
    text.windows(4).enumerate().filter(move |(_, four)| is_escape(four)).map(|(at, _)| at)
}

/// The text of a name of the kernel. A name of more than `most` bytes becomes `…` and its end, because the end of a
/// path is more informative than its beginning.
pub fn end_of(bytes: &[u8], most: usize) -> Cow<'_, str> {
    if bytes.len() <= most {
        return text_of(bytes);
    }
    let mut end = &bytes[bytes.len() - most..];
    // A character that the cut goes through is left out.
    while let [0x80..=0xbf, rest @ ..] = end {
        end = rest;
    }
    format!("…{}", text_of(end)).into()
}

/// The text of a command line. One of more than `most` bytes becomes its beginning and `…`.
pub fn start_of(bytes: &[u8], most: usize) -> Cow<'_, str> {
    if bytes.len() <= most {
        return text_of(bytes);
    }
    let mut end = most;
    while end > 0 && matches!(bytes[end], 0x80..=0xbf) {
        end -= 1;
    }
    format!("{}…", text_of(&bytes[..end])).into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_in_utf_8_is_its_own_text_and_other_bytes_are_written_out() {
        assert!(matches!(text_of("/tmp/Ω\\012 \\x \x1b".as_bytes()), Cow::Borrowed("/tmp/Ω\\012 \\x \x1b")));
        assert_eq!(text_of(b"/a\xff\xfeb"), "/a\\xff\\xfeb");
        assert_eq!(text_of(b"/a\\xff"), "/a\\x5cxff", "four characters, and not a byte");
        assert_eq!(bytes_of("/a\\x5cxff").as_ref(), b"/a\\xff");
    }

    proptest! {
        #[test]
        fn any_bytes_come_back_from_their_text(
            bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(b'\\'), Just(b'x'), Just(b'f')], 0..40)
        ) {
            let back = bytes_of(&text_of(&bytes)).into_owned();
            prop_assert_eq!(back, bytes);
        }
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        assert_eq!(end_of("/Ωab".as_bytes(), 5), "/Ωab");
        assert_eq!(end_of("/Ωab".as_bytes(), 4), "…Ωab");
        assert_eq!(end_of("/Ωab".as_bytes(), 3), "…ab");
        assert_eq!(start_of("abΩc".as_bytes(), 5), "abΩc");
        assert_eq!(start_of("abΩc".as_bytes(), 4), "abΩ…");
        assert_eq!(start_of("abΩc".as_bytes(), 3), "ab…");
    }

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
