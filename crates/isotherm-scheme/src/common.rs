//! What all forms of schemes share: names, actions, and the rules for a list of schemes.

use std::collections::BTreeMap;
use std::time::Duration;

use isotherm_core::scheme::{Action, ActionKind, Scheme};
use isotherm_core::units::{self, A_TIME};

use crate::diagnostic::{Diagnostic, Diagnostics, Position};
use crate::value::lookup;

/// What an action looks like, for messages.
pub const AN_ACTION: &str = "an action such as pageout";

/// The action of this name.
///
/// # Errors
/// If isotherm has no such action: which one is near to it.
pub fn action(name: &str) -> Result<Action, String> {
    match name {
        "lru_prio" | "lru_deprio" => Err(format!(
            "isotherm has no action {name}, which sorts physical pages in the kernel's lists; use willneed or cold"
        )),
        "migrate_hot" | "migrate_cold" => {
            Err(format!("isotherm has no action {name}: it does not move memory between nodes yet; remove the scheme"))
        }
        _ => lookup(name, "action", &ActionKind::ALL.map(|kind| (kind.name(), kind.into()))),
    }
}

/// Reports an action that needs a system call inside the target if `inside` does not allow one. `how` says how the form
/// of the file allows it.
pub fn check_inside(action: Action, inside: bool, position: Position, how: &str, diagnostics: &mut Diagnostics) {
    if action.kind().needs_inside() && !inside {
        let message = format!(
            "the action {action} needs a system call inside the target, which stops the target for a moment; \
             to allow it, {how}"
        );
        diagnostics.push(Diagnostic::new(position, message));
    }
}

/// Reads a time above zero.
///
/// # Errors
/// If the text is not a time, or the time is zero.
pub fn positive_duration(text: &str) -> Result<Duration, String> {
    match units::parse_duration(text) {
        Ok(Duration::ZERO) => Err(format!("the time must be above zero; write {A_TIME}")),
        Ok(time) => Ok(time),
        Err(error) => Err(error.to_string()),
    }
}

/// The names of the schemes in a file. No two schemes have the same name.
#[derive(Debug, Default)]
pub struct Names(BTreeMap<String, Position>);

impl Names {
    /// The name of the scheme with this index, counted from 0: `given`, or `scheme-` and its number. `position` is
    /// that of the scheme.
    ///
    /// A name that another scheme has is reported.
    pub fn name(
        &mut self,
        given: Option<(&str, Position)>,
        index: usize,
        position: Position,
        diagnostics: &mut Diagnostics,
    ) -> String {
        let (name, position) = match given {
            Some((name, position)) => (name.to_owned(), position),
            None => (format!("scheme-{}", index + 1), position),
        };
        if let Some(first) = self.0.get(&name) {
            let line = first.line;
            let message = format!("the scheme in line {line} has the name {name:?} too; give each scheme its own name");
            diagnostics.push(Diagnostic::new(position, message));
        }
        self.0.insert(name.clone(), position);
        name
    }
}

/// The schemes that could be read. A file without any scheme is reported.
pub fn at_least_one(schemes: Vec<Option<Scheme>>, position: Position, diagnostics: &mut Diagnostics) -> Vec<Scheme> {
    if schemes.is_empty() {
        diagnostics.push(Diagnostic::new(position, "there is no scheme; write at least one"));
    }
    schemes.into_iter().flatten().collect()
}
