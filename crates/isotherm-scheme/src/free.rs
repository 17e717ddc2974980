//! Schemes with free parameters: files in which a range stands in place of a value, to be tuned.
//!
//! A range is `LOW..HIGH` or `LOW..USUAL..HIGH` where a scheme has one value, such as `age: {min: 1s..60s}`. Where a
//! field may have bounds of its own, the free one is marked by the open end: `age: 1s..60s..` has a free minimum, and
//! `access_frequency: ..0.1Hz..10Hz` a free maximum.

use std::time::Duration;

use isotherm_core::scheme::Scheme;
use isotherm_core::units;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::document::Document;
use crate::tree::{Node, Value};

/// Fields whose value may be two bounds.
const CONDITIONS: [&str; 4] = ["size", "access_rate", "access_frequency", "age"];

/// From this ratio of its ends on, a range is searched by ratios, not by differences.
const MANY_TIMES: f64 = 8.0;

/// What a number stands for, and how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    Time,
    Frequency,
    Share,
    Bytes,
    Number,
}

impl Quantity {
    /// The quantities that a value may be. The field decides where numbers without a unit are read differently.
    fn of(field: &str) -> &'static [Self] {
        match field {
            "size" | "bytes" => &[Self::Bytes],
            "access_rate" | "margin" => &[Self::Share],
            "access_frequency" => &[Self::Frequency],
            "age" | "time" | "period" | "apply_interval" | "never_accessed" => &[Self::Time],
            "swappiness" | "looks" => &[Self::Number],
            _ => &[Self::Time, Self::Frequency, Self::Share, Self::Bytes, Self::Number],
        }
    }

    fn read(self, text: &str) -> Option<f64> {
        let text = text.trim();
        match self {
            Self::Time => units::parse_duration(text).ok().map(|time| time.as_secs_f64()),
            Self::Frequency => units::parse_hertz(text).ok(),
            Self::Share => units::parse_share(text).ok(),
            Self::Bytes => units::parse_bytes(text).ok().map(|bytes| bytes as f64),
            Self::Number => units::parse_count(text).ok().map(|count| count as f64),
        }
    }

    /// A value near to this one that is written in a few digits.
    fn rounded(self, value: f64) -> f64 {
        let step = match value {
            0.0 => return 0.0,
            value => 10_f64.powf(value.abs().log10().floor() - 2.0),
        };
        let short = (value / step).round() * step;
        match self {
            Self::Time => short.max(1e-9),
            Self::Bytes if value >= 4096.0 => (value / 4096.0).round() * 4096.0,
            Self::Bytes | Self::Number => value.round(),
            Self::Frequency | Self::Share => short,
        }
    }

    /// As schemes have it.
    fn written(self, value: f64) -> String {
        match self {
            Self::Time => {
                let time = Duration::from_secs_f64(value);
                match time.as_nanos() {
                    ns if ns % 1_000_000_000 == 0 => format!("{}s", time.as_secs()),
                    ns if ns % 1_000_000 == 0 => format!("{}ms", time.as_millis()),
                    ns if ns % 1000 == 0 => format!("{}us", time.as_micros()),
                    ns => format!("{ns}ns"),
                }
            }
            Self::Frequency => format!("{}Hz", short(value)),
            Self::Share => format!("{}%", short(value * 100.0)),
            Self::Bytes if value >= 1024.0 && value % 1024.0 == 0.0 => format!("{}K", value / 1024.0),
            Self::Bytes | Self::Number => format!("{value}"),
        }
    }

    /// For people.
    fn shown(self, value: f64) -> String {
        match self {
            Self::Time => units::setting::duration(Duration::from_secs_f64(value)),
            Self::Frequency => format!("{} Hz", short(value)),
            Self::Share => format!("{} %", short(value * 100.0)),
            Self::Bytes => units::setting::bytes(value as u64),
            Self::Number => format!("{value}"),
        }
    }
}

/// A number in six decimals at most, without zeros at the end.
fn short(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Which part of a field is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The whole value.
    Value,
    /// The minimum of two bounds.
    Min,
    /// The maximum of two bounds.
    Max,
}

/// A free parameter of a scheme.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// The name: the fields that lead to it, such as `age.min`, after the name of the scheme if there are several.
    pub name: String,
    /// The lowest value, in seconds, hertz, bytes, as a share of 1, or as a number.
    pub low: f64,
    /// The highest value.
    pub high: f64,
    /// The value that is usual.
    pub usual: Option<f64>,
    quantity: Quantity,
    form: Form,
    /// Where the range stands in the text.
    start: usize,
    length: usize,
}

impl Parameter {
    /// The value at a place of the range, from 0 to 1: by ratios if the ends differ many times, else by differences.
    pub fn at(&self, place: f64) -> f64 {
        let place = place.clamp(0.0, 1.0);
        let value = match self.is_by_ratio() {
            true => self.low * (self.high / self.low).powf(place),
            false => self.low + (self.high - self.low) * place,
        };
        self.quantity.rounded(value).clamp(self.low, self.high)
    }

    /// The place of a value: the inverse of [`at`](Self::at).
    pub fn place(&self, value: f64) -> f64 {
        let place = match self.is_by_ratio() {
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        place.clamp(0.0, 1.0)
    }

    /// A value for people.
    pub fn shown(&self, value: f64) -> String {
        self.quantity.shown(value)
    }

    fn is_by_ratio(&self) -> bool {
        self.low > 0.0 && self.high / self.low >= MANY_TIMES
    }
}

/// A scheme file with free parameters.
#[derive(Clone, Debug)]
pub struct FreeSchemes {
    file: String,
    text: String,
    /// The free parameters, in the order of the file.
    pub parameters: Vec<Parameter>,
}

impl FreeSchemes {
    /// Reads `text`. `file` is its name in messages.
    ///
    /// # Errors
    /// All errors in the text; if there is no free parameter; if the schemes are wrong with the lowest or the highest
    /// values.
    pub fn parse(file: &str, text: &str) -> Result<Self, Diagnostics> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let document = Document::parse(file, text)?;
        let Some(root) = document.root() else {
            let message = "only the YAML form has free parameters; write the scheme in YAML (docs/schemes.md)";
            return Err(Diagnostics::of_file(file, message.into()));
        };
        let mut finder = Finder { text, found: Vec::new(), diagnostics: Diagnostics::new(file) };
        let list = root.get("schemes").unwrap_or(root);
        if let Value::List(schemes) = &list.value {
            for (nth, scheme) in schemes.iter().enumerate() {
                let name = match (schemes.len(), scheme.get("name").map(|name| &name.value)) {
                    (1, _) => String::new(),
                    (_, Some(Value::Text(name))) => format!("{name}."),
                    _ => format!("scheme-{}.", nth + 1),
                };
                finder.walk(scheme, &name, "", true);
            }
        }
        let parameters = finder.diagnostics.into_result(finder.found)?;
        let schemes = Self { file: file.into(), text: text.into(), parameters };
        if schemes.parameters.is_empty() {
            // Other errors tell more.
            schemes.with(&[])?;
            let message = "no parameter is free; write a range in place of a value, such as age: {min: 1s..60s}";
            return Err(Diagnostics::of_file(file, message.into()));
        }
        for place in [0.0, 1.0] {
            schemes.with(&schemes.values(&vec![place; schemes.parameters.len()]))?;
        }
        Ok(schemes)
    }

    /// The values of the parameters at places from 0 to 1.
    pub fn values(&self, places: &[f64]) -> Vec<f64> {
        self.parameters.iter().zip(places).map(|(parameter, place)| parameter.at(*place)).collect()
    }

    /// The places of values: the inverse of [`values`](Self::values).
    pub fn places(&self, values: &[f64]) -> Vec<f64> {
        self.parameters.iter().zip(values).map(|(parameter, value)| parameter.place(*value)).collect()
    }

    /// The usual values, if each parameter has one.
    pub fn usual(&self) -> Option<Vec<f64>> {
        self.parameters.iter().map(|parameter| parameter.usual).collect()
    }

    /// The text with these values in place of the ranges.
    pub fn text(&self, values: &[f64]) -> String {
        let mut text = self.text.clone();
        for (parameter, value) in self.parameters.iter().zip(values).rev() {
            let written = parameter.quantity.written(*value);
            let written = match parameter.form {
                Form::Value => written,
                Form::Min => format!("{written}.."),
                Form::Max => format!("..{written}"),
            };
            text.replace_range(parameter.start..parameter.start + parameter.length, &written);
        }
        text
    }

    /// The schemes with these values.
    ///
    /// # Errors
    /// If they are wrong, for example because a minimum is larger than its maximum.
    pub fn with(&self, values: &[f64]) -> Result<Vec<Scheme>, Diagnostics> {
        crate::parse(&self.file, &self.text(values))
    }
}

/// Finds the ranges in a document.
struct Finder<'a> {
    text: &'a str,
    found: Vec<Parameter>,
    diagnostics: Diagnostics,
}

impl Finder<'_> {
    /// Looks at a value below the fields `path`. `is_scheme` says that it is a scheme, whose conditions have bounds.
    fn walk(&mut self, node: &Node, path: &str, field: &str, is_scheme: bool) {
        match &node.value {
            Value::Null => {}
            Value::List(items) => {
                for (nth, item) in items.iter().enumerate() {
                    self.walk(item, &format!("{path}.{}", nth + 1), field, false);
                }
            }
            Value::Map(fields) => {
                for (key, value) in fields {
                    let is_condition = is_scheme && CONDITIONS.contains(&&*key.name);
                    let dot = if path.is_empty() || path.ends_with('.') { "" } else { "." };
                    let below = format!("{path}{dot}{}", key.name);
                    // Bounds are of the quantity of their field.
                    let field = if matches!(&*key.name, "min" | "max") { field } else { &*key.name };
                    match &value.value {
                        Value::Text(text) => self.scalar(value, text, below, field, is_condition),
                        Value::Null | Value::List(_) | Value::Map(_) => self.walk(value, &below, field, false),
                    }
                }
            }
            Value::Text(text) => self.scalar(node, text, path.to_owned(), field, false),
        }
    }

    fn scalar(&mut self, node: &Node, text: &str, name: String, field: &str, is_condition: bool) {
        let parts: Vec<&str> = text.split("..").map(str::trim).collect();
        let (form, name, parts) = match (is_condition, &parts[..]) {
            (false, [_, _] | [_, _, _]) => (Form::Value, name, &parts[..]),
            (true, [numbers @ .., ""]) if numbers.len() > 1 => (Form::Min, format!("{name}.min"), numbers),
            (true, ["", numbers @ ..]) if numbers.len() > 1 => (Form::Max, format!("{name}.max"), numbers),
            _ => return,
        };
        let read = |quantity: &Quantity| {
            let values: Option<Vec<f64>> = parts.iter().map(|part| quantity.read(part)).collect();
            Some((*quantity, values?))
        };
        // A text with dots may be a name.
        let Some((quantity, values)) = Quantity::of(field).iter().find_map(read) else { return };
        let (low, usual, high) = match values[..] {
            [low, high] => (low, None, high),
            [low, usual, high] => (low, Some(usual), high),
            _ => return,
        };
        if !(low < high && usual.is_none_or(|usual| (low..=high).contains(&usual))) {
            let message = format!("the range {text} of {name} is not in order; write LOW..HIGH or LOW..USUAL..HIGH");
            return self.diagnostics.push(Diagnostic::new(node.position, message));
        }
        let Some(start) = self.start(node, text) else {
            let message = format!("the range of {name} must stand in one line, without escapes");
            return self.diagnostics.push(Diagnostic::new(node.position, message));
        };
        self.found.push(Parameter { name, low, high, usual, quantity, form, start, length: text.len() });
    }

    /// Where the text of a scalar begins, after its quote.
    fn start(&self, node: &Node, text: &str) -> Option<usize> {
        let line = self.text.split_inclusive('\n').nth(node.position.line - 1)?;
        let (column, _) = line.char_indices().nth(node.position.column - 1)?;
        // Both are parts of the same text.
        let start = line.as_ptr() as usize - self.text.as_ptr() as usize + column;
        let quote = usize::from(self.text[start..].starts_with(['"', '\'']));
        self.text[start + quote..].starts_with(text).then_some(start + quote)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_and_replaced_in_the_text_of_the_user() {
        let text = "# mine, with a comment\nschemes:\n  - name: cold..er\n    age: {min: 1s..5s..60s, max: 2h}\n    \
                    access_frequency: ..0.1Hz..10Hz\n    action: pageout\n    \
                    quota: {bytes: '1M..1G', period: 1s}  # é 1s..2s\n";
        let schemes = FreeSchemes::parse("a.yaml", text).unwrap();
        let names: Vec<&str> = schemes.parameters.iter().map(|parameter| &*parameter.name).collect();
        assert_eq!(names, ["age.min", "access_frequency.max", "quota.bytes"]);
        assert_eq!(schemes.usual(), None);
        assert_eq!(schemes.parameters[0].usual, Some(5.0));
        let written = schemes.text(&schemes.values(&[0.5, 0.5, 0.0]));
        let expected =
            text.replace("1s..5s..60s", "7750ms").replace("..0.1Hz..10Hz", "..1Hz").replace("1M..1G", "1024K");
        assert_eq!(written, expected);
        let [scheme] = &schemes.with(&[2.0, 1.0, 4096.0]).unwrap()[..] else { panic!() };
        assert_eq!((scheme.condition.age.min(), scheme.condition.hz.max()), (Duration::from_secs(2), 1.0));
    }

    #[test]
    fn a_free_bound_of_a_condition_is_beside_an_open_end() {
        let schemes =
            FreeSchemes::parse("a.yaml", "- {action: pageout, age: 1s..3s.., size: 4K.., access_rate: 0%..5%}")
                .unwrap();
        assert_eq!((schemes.parameters.len(), &*schemes.parameters[0].name), (1, "age.min"));
        assert!(schemes.text(&[2.5]).contains("age: 2500ms.., size: 4K.., access_rate: 0%..5%"));
    }

    #[test]
    fn several_schemes_have_their_names_and_values_keep_their_quantity() {
        let text = "[{name: a, action: pageout, age: {min: 0s..1m}}, {action: cold, access_rate: {max: 0%..8%}}]";
        let schemes = FreeSchemes::parse("a.yaml", text).unwrap();
        let names: Vec<&str> = schemes.parameters.iter().map(|parameter| &*parameter.name).collect();
        assert_eq!(names, ["a.age.min", "scheme-2.access_rate.max"]);
        let values = schemes.values(&[0.5, 0.5]);
        assert_eq!(schemes.parameters[1].shown(values[1]), "4 %");
        assert_eq!(schemes.parameters[0].shown(values[0]), "30 s");
        assert!((schemes.parameters[0].place(30.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn what_cannot_be_tuned_is_an_error_with_its_place() {
        for (text, part) in [
            ("- {action: pageout}", "no parameter is free"),
            ("- {action: pageot, age: {min: 1s..2s}}", "did you mean pageout?"),
            ("- {action: pageout, age: {min: 60s..1s}}", "1:32: the range 60s..1s of age.min is not in order"),
            ("- {action: pageout, age: {min: 1s..9s..2s}}", "not in order"),
            ("- {action: pageout, age: {min: 1s..60s, max: 5s}}", "larger than the maximum"),
            ("4K max 0 0 5s max pageout", "only the YAML form"),
        ] {
            let error = FreeSchemes::parse("a.yaml", text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn values_are_written_as_they_are_read() {
        let text =
            "- {action: pageout, size: {min: 4K..1G}, age: {min: 1ms..1h}, access_frequency: {max: 1mHz..100Hz}}";
        let schemes = FreeSchemes::parse("a.yaml", text).unwrap();
        for place in (0..=100).map(|nth| f64::from(nth) / 100.0) {
            let values = schemes.values(&[place; 3]);
            let [scheme] = &schemes.with(&values).unwrap()[..] else { panic!() };
            let condition = &scheme.condition;
            assert_eq!(condition.size.min() as f64, values[0]);
            assert!((condition.age.min().as_secs_f64() - values[1]).abs() < 1e-9);
            assert!((condition.hz.max() - values[2]).abs() < 1e-6, "{place}");
            let again = schemes.parameters[1].at(schemes.parameters[1].place(values[1]));
            assert!((again / values[1] - 1.0).abs() < 1e-2);
        }
    }
}
