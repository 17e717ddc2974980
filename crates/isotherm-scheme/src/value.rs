//! Reading values: each method returns the value, or adds a [`Diagnostic`](crate::Diagnostic) at the value's position
//! and returns `None`.

use std::fmt::Display;

use isotherm_core::scheme::ClosedInterval;
use isotherm_core::units::QuantityError;

use crate::diagnostic::Diagnostics;
use crate::fields::Fields;
use crate::message::{did_you_mean, shortened};
use crate::tree::{Node, Value};

impl Node {
    /// The value of the field `name`, if this is a map that has it.
    pub fn get(&self, name: &str) -> Option<&Self> {
        match &self.value {
            Value::Map(fields) => fields.iter().find(|(key, _)| key.name == name).map(|(_, node)| node),
            _ => None,
        }
    }

    /// The text of a scalar. `expected` says what the scalar should be, for the message.
    pub fn text(&self, expected: &str, diagnostics: &mut Diagnostics) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => diagnostics.fail(self.position, format!("expected {expected}, found {}", self.shown())),
        }
    }

    /// The result of `read` for the text of a scalar.
    pub fn scalar<T, E: Display>(
        &self,
        expected: &str,
        diagnostics: &mut Diagnostics,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        match read(self.text(expected, diagnostics)?) {
            Ok(value) => Some(value),
            Err(error) => diagnostics.fail(self.position, error.to_string()),
        }
    }

    /// The value that belongs to one of several words. `what` names the kind of word.
    pub fn word<T: Copy>(&self, what: &str, words: &[(&str, T)], diagnostics: &mut Diagnostics) -> Option<T> {
        self.scalar(what, diagnostics, |found| lookup(found, what, words))
    }

    /// A boolean.
    pub fn flag(&self, diagnostics: &mut Diagnostics) -> Option<bool> {
        const EXPECTED: &str = "true or false";
        self.scalar(EXPECTED, diagnostics, |text| match text {
            "true" | "yes" | "on" => Ok(true),
            "false" | "no" | "off" => Ok(false),
            other => Err(QuantityError::form(EXPECTED, other)),
        })
    }

    /// The items of a list.
    pub fn items(&self, what: &str, diagnostics: &mut Diagnostics) -> Option<&[Self]> {
        match &self.value {
            Value::List(items) => Some(items),
            _ => {
                let message = format!("expected a list of {what} (one line with - for each), found {}", self.shown());
                diagnostics.fail(self.position, message)
            }
        }
    }

    /// The items of a list, each read by `read`. All items are read, so that the errors of all are reported.
    pub fn list<T>(
        &self,
        what: &str,
        diagnostics: &mut Diagnostics,
        mut read: impl FnMut(&Self, &mut Diagnostics) -> Option<T>,
    ) -> Option<Vec<T>> {
        let items = self.items(what, diagnostics)?;
        let values: Vec<Option<T>> = items.iter().map(|item| read(item, diagnostics)).collect();
        values.into_iter().collect()
    }

    /// Two bounds: `{min: A, max: B}` or `A..B` (either may be left out), `[A, B]`, or one value for both.
    ///
    /// `min` stands for `limits.0`, `max` for `limits.1`, and null for the limit of that side.
    pub fn bounds<T: PartialOrd + Copy, E: Display>(
        &self,
        expected: &str,
        limits: (T, T),
        diagnostics: &mut Diagnostics,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Option<ClosedInterval<T>> {
        let bound = |node: &Self, none: T, diagnostics: &mut Diagnostics| match &node.value {
            Value::Null => Some(none),
            Value::Text(text) if text == "min" => Some(limits.0),
            Value::Text(text) if text == "max" => Some(limits.1),
            _ => node.scalar(expected, diagnostics, &read),
        };
        let (min, max) = match &self.value {
            Value::Null => (Some(limits.0), Some(limits.1)),
            Value::Text(text) if text.contains("..") => {
                let (min, max) = text.split_once("..").unwrap_or_default();
                let mut end = |text: &str, none: T| match text.trim() {
                    "" => Some(none),
                    text => bound(&Self { value: Value::Text(text.into()), ..self.clone() }, none, diagnostics),
                };
                (end(min, limits.0), end(max, limits.1))
            }
            Value::Text(_) => {
                let both = bound(self, limits.0, diagnostics);
                (both, both)
            }
            Value::List(items) => match items.as_slice() {
                [min, max] => (bound(min, limits.0, diagnostics), bound(max, limits.1, diagnostics)),
                _ => {
                    let message = format!("expected two bounds, the minimum and the maximum, found {}", items.len());
                    return diagnostics.fail(self.position, message);
                }
            },
            Value::Map(_) => {
                let fields = Fields::open(self, "a pair of bounds", &["min", "max"], diagnostics)?;
                let mut field = |name, none| fields.get(name).map_or(Some(none), |node| bound(node, none, diagnostics));
                (field("min", limits.0), field("max", limits.1))
            }
        };
        let (min, max) = (min?, max?);
        ClosedInterval::new(min, max).or_else(|| diagnostics.fail(self.position, self.reversed()))
    }

    /// Why these bounds are not bounds.
    fn reversed(&self) -> String {
        let bounds = match &self.value {
            Value::List(items) => items.first().zip(items.get(1)),
            _ => self.get("min").zip(self.get("max")),
        };
        match bounds {
            Some((min, max)) => {
                format!("the minimum {} is larger than the maximum {}; swap them", min.shown(), max.shown())
            }
            None => "the minimum is larger than the maximum; swap them".into(),
        }
    }
}

/// The value of the word `found`.
pub(crate) fn lookup<T: Copy>(found: &str, what: &str, words: &[(&str, T)]) -> Result<T, String> {
    match words.iter().find(|(name, _)| *name == found) {
        Some((_, value)) => Ok(*value),
        None => {
            let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
            Err(format!("there is no {what} \"{}\"; {}", shortened(found), did_you_mean(found, &names)))
        }
    }
}
