//! Fields of maps: those that are known, those that are missing, and those that were meant.

use isotherm_core::scheme::ClosedInterval;

use crate::complaint::Complaints;
use crate::tree::{Key, Node, Value};
use crate::units::expected;
use crate::{Complaint, Place};

/// A map whose fields are all known.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    /// Where it begins.
    pub place: Place,
    what: &'a str,
    map: &'a [(Key, Node)],
    /// Whether a field in it is unknown: then one that is missing was likely meant by that, and is not missed.
    pub is_strange: bool,
}

impl<'a> Fields<'a> {
    /// Opens `node`, which is `what`, as a map with none but `known` fields.
    pub fn open(node: &'a Node, what: &'a str, known: &[&str], complaints: &mut Complaints) -> Option<Self> {
        let Value::Map(map) = &node.value else {
            return complaints
                .at(node.place, format!("expected {what}, with {}; found {}", either(known), node.what()));
        };
        let mut is_strange = false;
        for (key, _) in map.iter().filter(|(key, _)| !known.contains(&key.name.as_str())) {
            is_strange = true;
            let message = format!("{what} has no field {:?}; {}", key.name, meant(&key.name, known));
            complaints.push(Complaint::new(key.place, message));
        }
        Some(Self { place: node.place, what, map, is_strange })
    }

    /// The value of a field; none if it is left out, or null.
    pub fn get(&self, name: &str) -> Option<&'a Node> {
        let (_, node) = self.map.iter().find(|(key, _)| key.name == name)?;
        (!matches!(node.value, Value::Null)).then_some(node)
    }

    /// The value of a field that must be there.
    pub fn need(&self, name: &str, complaints: &mut Complaints) -> Option<&'a Node> {
        let found = self.get(name);
        if found.is_none() && !self.is_strange {
            complaints.push(Complaint::new(self.place, format!("{} needs the field {name}", self.what)));
        }
        found
    }
}

/// `default` if there is no node, else what `read` makes of it.
pub fn or<'a, T>(node: Option<&'a Node>, default: T, read: impl FnOnce(&'a Node) -> Option<T>) -> Option<T> {
    match node {
        None => Some(default),
        Some(node) => read(node),
    }
}

/// The text of a scalar, where `wanted` was expected.
pub fn text<'a>(node: &'a Node, wanted: &str, complaints: &mut Complaints) -> Option<&'a str> {
    match &node.value {
        Value::Text(text) => Some(text),
        _ => complaints.at(node.place, format!("expected {wanted}, found {}", node.what())),
    }
}

/// What `read` makes of a scalar; an error of it is told at the scalar's place.
pub fn scalar<T>(
    node: &Node,
    wanted: &str,
    complaints: &mut Complaints,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Option<T> {
    let found = text(node, wanted, complaints)?;
    read(found).map_err(|message| complaints.push(Complaint::new(node.place, message))).ok()
}

/// One of some words.
pub(crate) fn word<T: Copy>(node: &Node, what: &str, words: &[(&str, T)], complaints: &mut Complaints) -> Option<T> {
    scalar(node, what, complaints, |found| one_of(found, what, words))
}

/// The value of the word `found`.
pub(crate) fn one_of<T: Copy>(found: &str, what: &str, words: &[(&str, T)]) -> Result<T, String> {
    let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
    let known = words.iter().find(|(name, _)| *name == found);
    known.map(|(_, value)| *value).ok_or_else(|| format!("there is no {what} {found:?}; {}", meant(found, &names)))
}

/// True or false.
pub fn flag(node: &Node, complaints: &mut Complaints) -> Option<bool> {
    scalar(node, "true or false", complaints, |text| match text {
        "true" | "yes" | "on" => Ok(true),
        "false" | "no" | "off" => Ok(false),
        other => Err(expected("true or false", other)),
    })
}

/// The items of a list.
pub fn list<'a>(node: &'a Node, what: &str, complaints: &mut Complaints) -> Option<&'a [Node]> {
    match &node.value {
        Value::List(items) => Some(items),
        _ => complaints
            .at(node.place, format!("expected a list of {what} (a line with - for each), found {}", node.what())),
    }
}

/// Two bounds: `{min: A, max: B}`, of which either may be left out, `[A, B]`, or one value for both. `min`, `max` and null
/// stand for the ends of what there is.
pub(crate) fn bounds<T: PartialOrd + Copy>(
    node: &Node,
    wanted: &str,
    ends: (T, T),
    complaints: &mut Complaints,
    read: impl Fn(&str) -> Result<T, String>,
) -> Option<ClosedInterval<T>> {
    let mut end = |node: &Node, left_out: T| match &node.value {
        Value::Null => Some(left_out),
        Value::Text(text) if text == "min" => Some(ends.0),
        Value::Text(text) if text == "max" => Some(ends.1),
        _ => scalar(node, wanted, complaints, &read),
    };
    let (min, max) = match &node.value {
        Value::Null => (Some(ends.0), Some(ends.1)),
        Value::Text(_) => {
            let both = end(node, ends.0);
            (both, both)
        }
        Value::List(items) => match items.as_slice() {
            [min, max] => (end(min, ends.0), end(max, ends.1)),
            _ => {
                let message = format!("expected two bounds, the least and the most, found {}", items.len());
                return complaints.at(node.place, message);
            }
        },
        Value::Map(_) => {
            let fields = Fields::open(node, "a pair of bounds", &["min", "max"], complaints)?;
            let mut of = |name, left_out| match fields.get(name) {
                None => Some(left_out),
                Some(Node { value: Value::Text(text), .. }) if text == "min" => Some(ends.0),
                Some(Node { value: Value::Text(text), .. }) if text == "max" => Some(ends.1),
                Some(node) => scalar(node, wanted, complaints, &read),
            };
            (of("min", ends.0), of("max", ends.1))
        }
    };
    let (min, max) = (min?, max?);
    ClosedInterval::new(min, max).or_else(|| complaints.at(node.place, reversed(node)))
}

/// What is wrong with bounds of which the least is over the most.
fn reversed(node: &Node) -> String {
    let ends = match &node.value {
        Value::List(items) => (items.first(), items.get(1)),
        _ => (node.get("min"), node.get("max")),
    };
    match ends {
        (Some(min), Some(max)) => format!("the least, {}, is over the most, {}; exchange them", min.what(), max.what()),
        _ => "the least is over the most; exchange them".into(),
    }
}

/// Which of `known` was likely meant, or all of them.
pub(crate) fn meant(found: &str, known: &[&str]) -> String {
    let found = found.to_lowercase();
    if let [one] =
        known.iter().filter(|name| found.len() > 2 && name.starts_with(&found)).collect::<Vec<_>>().as_slice()
    {
        return format!("did you mean {one}?");
    }
    let near = known.iter().map(|name| (strsim::damerau_levenshtein(&found, name), name)).min();
    match near {
        Some((distance, name)) if distance <= (name.chars().count() + 1) / 3 => format!("did you mean {name}?"),
        _ => format!("expected {}", either(known)),
    }
}

/// The names, as a person would list them.
pub(crate) fn either(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}
