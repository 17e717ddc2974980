//! Keys and the actions they trigger.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// The action of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Quit,
    Suspend,
    Redraw,
    Help,
    /// Cancels the selection, then the cursor.
    Back,
    Pause,
    Up,
    Down,
    PageUp,
    PageDown,
    ZoomIn,
    ZoomOut,
    /// All addresses.
    AllAddresses,
    Select,
    Earlier,
    Later,
    Now,
    LessTime,
    MoreTime,
    NextSort,
    PreviousSort,
    Reverse,
    NextTarget,
    PreviousTarget,
    /// Switches between the tables of mappings and schemes.
    Schemes,
    /// Switches between the tables of mappings and processes.
    Processes,
    /// Shows processes as a tree of cgroups, or not.
    Group,
    /// Selects a line of the table, from 0: zooms into a mapping, selects a process, or shows the last application of a
    /// scheme.
    Line(usize),
}

/// The keys and what they do, for the help on the screen.
pub const HELP: [(&str, &str); 17] = [
    ("q  Ctrl-C", "quit"),
    ("Space  p", "pause the screen; the monitor continues"),
    ("↑ ↓  k j", "move the cursor through the addresses"),
    ("PgUp PgDn", "move it by half a screen"),
    ("+  Enter", "zoom into the addresses at the cursor, or the selection"),
    ("v", "start a selection at the cursor; Esc cancels it"),
    ("1 to 9", "zoom into that mapping; select that process, that scheme"),
    ("-", "zoom out"),
    ("Home  0", "all addresses"),
    ("← →  h l", "back and forth in time"),
    ("End", "back to now"),
    ("[ ]", "less time, more time"),
    ("s S  r", "sort by the next, previous column; reverse"),
    ("t  g", "table of processes or mappings; tree of cgroups"),
    ("a", "switch to the table of schemes and back"),
    ("Tab", "next target; Shift-Tab: previous"),
    ("? F1  Ctrl-L", "help; redraw"),
];

/// The action of a key, if it has one.
pub fn action(key: KeyEvent) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(Action::Quit),
            KeyCode::Char('z') => Some(Action::Suspend),
            KeyCode::Char('l') => Some(Action::Redraw),
            _ => None,
        };
    }
    Some(match key.code {
        KeyCode::Char('q') => Action::Quit,
        KeyCode::Char('?') | KeyCode::F(1) => Action::Help,
        KeyCode::Esc => Action::Back,
        KeyCode::Char(' ' | 'p') => Action::Pause,
        KeyCode::Up | KeyCode::Char('k') => Action::Up,
        KeyCode::Down | KeyCode::Char('j') => Action::Down,
        KeyCode::PageUp => Action::PageUp,
        KeyCode::PageDown => Action::PageDown,
        KeyCode::Enter | KeyCode::Char('+' | '=') => Action::ZoomIn,
        KeyCode::Char('-') => Action::ZoomOut,
        KeyCode::Home | KeyCode::Char('0') => Action::AllAddresses,
        KeyCode::Char('v') => Action::Select,
        KeyCode::Left | KeyCode::Char('h') => Action::Earlier,
        KeyCode::Right | KeyCode::Char('l') => Action::Later,
        KeyCode::End => Action::Now,
        KeyCode::Char('[') => Action::LessTime,
        KeyCode::Char(']') => Action::MoreTime,
        KeyCode::Char('s') => Action::NextSort,
        KeyCode::Char('S') => Action::PreviousSort,
        KeyCode::Char('r') => Action::Reverse,
        KeyCode::Char('a') => Action::Schemes,
        KeyCode::Char('t') => Action::Processes,
        KeyCode::Char('g') => Action::Group,
        KeyCode::Tab => Action::NextTarget,
        KeyCode::BackTab => Action::PreviousTarget,
        KeyCode::Char(digit @ '1'..='9') => Action::Line(digit.to_digit(10)? as usize - 1),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_changes_the_action_of_a_letter() {
        let key = |code, modifiers| action(KeyEvent::new(code, modifiers));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Action::Quit));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(key(KeyCode::Char('l'), KeyModifiers::CONTROL), Some(Action::Redraw));
        assert_eq!(key(KeyCode::Char('l'), KeyModifiers::NONE), Some(Action::Later));
        assert_eq!(key(KeyCode::Char('S'), KeyModifiers::SHIFT), Some(Action::PreviousSort));
        assert_eq!(key(KeyCode::Char('9'), KeyModifiers::NONE), Some(Action::Line(8)));
    }
}
