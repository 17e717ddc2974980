//! Escaping of names and commands. They come from the watched process, and must not act on a terminal or a page.

use std::io;

pub use isotherm_core::sanitise;

use isotherm_core::is_unsafe;
use serde::Serialize;

use crate::ReportError;

/// The text, [sanitised](sanitise) and escaped for content and attributes of XML and HTML.
pub fn markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in sanitise(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// JSON for a `<script>` block: `<`, `>` and `&` are escaped, so the text cannot end the block.
pub fn json_in_html(out: &mut dyn io::Write, value: &impl Serialize) -> Result<(), ReportError> {
    Ok(value.serialize(&mut serde_json::Serializer::with_formatter(out, EscapingFormatter { in_html: true }))?)
}

/// JSON on one line, with all control characters escaped, also those of C1.
pub fn json(value: &impl Serialize) -> Result<String, ReportError> {
    let mut out = Vec::new();
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, EscapingFormatter { in_html: false }))?;
    String::from_utf8(out).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e).into())
}

/// Escapes DEL and the C1 controls too. serde_json does not, and a terminal may interpret them.
struct EscapingFormatter {
    /// Whether `<`, `>` and `&` are escaped, too.
    in_html: bool,
}

impl serde_json::ser::Formatter for EscapingFormatter {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let is_escaped = |c: char| is_unsafe(c) || self.in_html && matches!(c, '<' | '>' | '&');
        // Most fragments are plain, and some have megabytes.
        let is_plain = |&byte: &u8| matches!(byte, b' '..=b'%' | b'\''..=b';' | b'=' | b'?'..=b'~');
        if fragment.as_bytes().iter().all(is_plain) || !fragment.contains(is_escaped) {
            return writer.write_all(fragment.as_bytes());
        }
        for c in fragment.chars() {
            if is_escaped(c) {
                c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(writer, "\\u{unit:04x}"))?;
            } else {
                write!(writer, "{c}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_cannot_be_opened_or_closed() {
        assert_eq!(markup("</script>\"'&"), "&lt;/script&gt;&quot;&#39;&amp;");
    }

    #[test]
    fn json_in_a_page_cannot_end_its_script_and_reads_back_the_same() {
        let name = "</script><!-- & \u{2028}\u{9b}\x7f\"\\";
        let mut out = Vec::new();
        json_in_html(&mut out, &name).unwrap();
        let json = String::from_utf8(out).unwrap();
        assert!(!json.contains(['<', '>', '&', '\u{2028}', '\u{9b}', '\x7f']), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), name);
    }
}
