//! Finds out the size, the colours and the characters of the terminal.

use std::io::{IsTerminal, stdout};

use isotherm_report::{Colour, Terminal};

/// The properties of the terminal on standard output. If standard output is a file or a pipe, they have defaults.
pub fn terminal() -> Terminal {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(|name| std::env::var(name).ok());
    let locale = locale.into_iter().find(|value| !value.is_empty()).unwrap_or_default().to_ascii_lowercase();
    let unicode = locale.contains("utf-8") || locale.contains("utf8");
    if !stdout().is_terminal() {
        return Terminal { unicode, ..Terminal::default() };
    }
    let colour = match supports_color::on(supports_color::Stream::Stdout) {
        Some(level) if level.has_16m => Colour::True,
        Some(level) if level.has_256 => Colour::Ansi256,
        _ => Colour::None,
    };
    let size = rustix::termios::tcgetwinsize(stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
    let (columns, rows) = size.map_or((80, 24), |size| (size.ws_col.into(), size.ws_row.into()));
    Terminal { columns, rows, colour, unicode }
}
