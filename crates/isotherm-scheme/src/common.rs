//! What all forms of schemes share: names, actions, and the rules for a list of schemes.

use std::collections::BTreeMap;
use std::time::Duration;

use isotherm_core::NodeId;
use isotherm_core::scheme::{Action, DestinationError, Destinations, Moves, Scheme};
use isotherm_core::units::{self, A_TIME, QuantityError};

use crate::diagnostic::{Diagnostic, Diagnostics, Position};
use crate::value::lookup;

/// What an action looks like, for messages.
pub const AN_ACTION: &str = "an action such as pageout";

/// The action of this name, without the nodes that it moves memory to.
///
/// # Errors
/// If isotherm has no such action: which one is near to it.
pub fn action(name: &str) -> Result<Action, String> {
    match name {
        "lru_prio" | "lru_deprio" => Err(format!(
            "isotherm has no action {name}, which sorts physical pages in the kernel's lists; use willneed or cold"
        )),
        _ => lookup(name, "action", &Action::ALL.map(|action| (action.name(), action))),
    }
}

/// What a memory node looks like, for messages.
pub const A_NODE: &str = "the number of a memory node, such as 1";

/// What a weight of a target node looks like, for messages.
pub const A_NODE_WEIGHT: &str = "a weight: a whole number from 1 to 1000";

/// Reads the number of a memory node.
///
/// # Errors
/// If the text is not a whole number, or is larger than any node's number.
pub fn node_number(text: &str) -> Result<NodeId, String> {
    // The kernel has at most 1,024 nodes (MAX_NUMNODES of all architectures).
    let number = text.parse().ok().filter(|&number: &u32| number < 1024);
    number.map(NodeId).ok_or_else(|| QuantityError::form(A_NODE, text).to_string())
}

/// Reads the weight of a target node.
///
/// # Errors
/// If the text is not a whole number from 1 to 1000.
pub fn node_weight(text: &str) -> Result<u32, String> {
    let weight = text.parse().ok().filter(|weight| (1..=1000).contains(weight));
    weight.ok_or_else(|| QuantityError::form(A_NODE_WEIGHT, text).to_string())
}

/// Nodes and weights as destinations. What is wrong with them is reported at `position`.
pub fn destinations(
    nodes: &[(NodeId, u32)],
    position: Position,
    diagnostics: &mut Diagnostics,
) -> Option<Destinations> {
    checked(Destinations::new(nodes), position, diagnostics)
}

/// The first of `nodes` that has room as destinations. What is wrong with them is reported at `position`.
pub fn first_with_room(nodes: &[NodeId], position: Position, diagnostics: &mut Diagnostics) -> Option<Destinations> {
    checked(Destinations::first_with_room(nodes), position, diagnostics)
}

fn checked(
    to: Result<Destinations, DestinationError>,
    position: Position,
    diagnostics: &mut Diagnostics,
) -> Option<Destinations> {
    match to {
        Ok(to) => Some(to),
        Err(error) => diagnostics.fail(position, error.to_string()),
    }
}

/// The action with these nodes, if it is one that moves memory to nodes that the scheme names. `position` is that of
/// the action; `to` comes with its own. `how` says how the form of the file names nodes.
///
/// A node that is missing, and one that the action does not need, is reported.
pub fn with_destinations(
    action: Action,
    to: Option<(Destinations, Position)>,
    position: Position,
    how: &str,
    diagnostics: &mut Diagnostics,
) -> Option<Action> {
    let needs_nodes = action.destinations().is_some();
    if let Some((_, at)) = to
        && !needs_nodes
    {
        let hint = match action.moves() {
            Some(Moves::Hot) => "finds its target itself; use migrate_hot to name one",
            Some(Moves::Cold) => "finds its target itself; use migrate_cold to name one",
            None => "does not move memory between nodes; leave the target node out",
        };
        return diagnostics.fail(at, format!("the action {action} {hint}"));
    }
    match to {
        Some((to, _)) => Some(action.with_destinations(to)),
        None if needs_nodes => {
            diagnostics.fail(position, format!("the action {action} needs to know where to move memory; {how}"))
        }
        None => Some(action),
    }
}

/// Reports an action that needs a system call inside the target if `inside` does not allow one. `how` says how the form
/// of the file allows it.
pub fn check_inside(action: Action, inside: bool, position: Position, how: &str, diagnostics: &mut Diagnostics) {
    if action.needs_inside() && !inside {
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
