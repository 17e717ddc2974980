//! The fields of a map: known, missing and unknown ones.

use crate::diagnostic::{Diagnostic, Diagnostics, Position};
use crate::message::{alternatives, did_you_mean, shortened};
use crate::tree::{Key, Node, Value};

/// The fields of a map. Unknown ones have been reported.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    position: Position,
    what: &'a str,
    map: &'a [(Key, Node)],
    has_unknown: bool,
}

impl<'a> Fields<'a> {
    /// Reads `node` as a map, and reports each field of it that is not in `known`.
    ///
    /// `what` names the map in messages, with its article: `a quota`. None if the node is not a map, which is reported.
    pub fn open(node: &'a Node, what: &'a str, known: &[&str], diagnostics: &mut Diagnostics) -> Option<Self> {
        let Value::Map(map) = &node.value else {
            let message = format!("expected {what}, a map with {}; found {}", alternatives(known), node.shown());
            return diagnostics.fail(node.position, message);
        };
        let mut has_unknown = false;
        for (key, _) in map.iter().filter(|(key, _)| !known.contains(&key.name.as_str())) {
            has_unknown = true;
            let message =
                format!("{what} has no field \"{}\"; {}", shortened(&key.name), did_you_mean(&key.name, known));
            diagnostics.push(Diagnostic::new(key.position, message));
        }
        Some(Self { position: node.position, what, map, has_unknown })
    }

    /// Whether a field is unknown. A missing field is then likely to be that one, misspelt, and needs no second
    /// message.
    pub fn has_unknown(&self) -> bool {
        self.has_unknown
    }

    /// The value of a field. None if the field is left out or null.
    pub fn get(&self, name: &str) -> Option<&'a Node> {
        let (_, node) = self.map.iter().find(|(key, _)| key.name == name)?;
        (!matches!(node.value, Value::Null)).then_some(node)
    }

    /// The result of `read` for the value of a field, or `default` if the field is left out or null.
    pub fn get_or<T>(&self, name: &str, default: T, read: impl FnOnce(&'a Node) -> Option<T>) -> Option<T> {
        match self.get(name) {
            Some(node) => read(node),
            None => Some(default),
        }
    }

    /// The value of a field that must be given. A missing one is reported.
    pub fn require(&self, name: &str, diagnostics: &mut Diagnostics) -> Option<&'a Node> {
        let found = self.get(name);
        if found.is_none() && !self.has_unknown {
            let message = format!("{} needs the field {name}", self.what);
            diagnostics.push(Diagnostic::new(self.position, message));
        }
        found
    }
}
