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
pub fn json_in_html(value: &impl Serialize) -> Result<String, ReportError> {
    let json = json(value)?;
    Ok(json.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e"))
}

/// JSON on one line, with all control characters escaped, also those of C1.
pub fn json(value: &impl Serialize) -> Result<String, ReportError> {
    let mut out = Vec::new();
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, EscapingFormatter))?;
    String::from_utf8(out).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e).into())
}

/// Escapes DEL and the C1 controls too. serde_json does not, and a terminal may interpret them.
struct EscapingFormatter;

impl serde_json::ser::Formatter for EscapingFormatter {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        if !fragment.contains(is_unsafe) {
            return writer.write_all(fragment.as_bytes());
        }
        for c in fragment.chars() {
            if is_unsafe(c) {
                write!(writer, "\\u{:04x}", u32::from(c))?;
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
        let json = json_in_html(&name).unwrap();
        assert!(!json.contains(['<', '>', '&', '\u{2028}', '\u{9b}', '\x7f']), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), name);
    }
}
