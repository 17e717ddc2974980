//! The one-line form of the DAMON papers: `<min/max size> <min/max access rate> <min/max age> <action>`.
//!
//! The two bounds of a pair are two words, or one word with a slash: `4K/max`. `min`, `max` and `null` stand for no
//! bound. `#` begins a comment. `inside` after the action allows a call inside the target. `node=1` after the action is
//! the node to move memory to, and `node=0:3,1:1` are several, each with its weight.

use std::fmt::Display;
use std::time::Duration;

use isotherm_core::scheme::{ClosedInterval, Condition, Destinations, Quota, Scheme};
use isotherm_core::units::{self, QuantityError};

use crate::common::{
    Names, action, at_least_one, check_inside, destinations, first_with_room, node_number, node_weight,
    with_destinations,
};
use crate::diagnostic::{Diagnostics, Position};
use crate::message::shortened;

const FORM: &str = "<min size> <max size> <min access rate> <max access rate> <min age> <max age> <action>, \
                    such as: 4K max 0% 0% 5s max pageout";

/// Whether a text is in this form: its first line that is not a comment begins neither YAML nor JSON.
pub(crate) fn are_lines(text: &str) -> bool {
    let first = text.lines().map(without_comment).find(|line| !line.trim().is_empty());
    first.is_some_and(|line| {
        let is_yaml = line.contains(": ")
            || line.trim_end().ends_with(':')
            || line.trim_start().starts_with(['-', '[', '{', '%']);
        !is_yaml && line.split_whitespace().count() > 1
    })
}

fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default()
}

struct Word<'a> {
    text: &'a str,
    position: Position,
}

pub(crate) fn schemes(text: &str, diagnostics: &mut Diagnostics) -> Vec<Scheme> {
    let mut names = Names::default();
    let mut schemes = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let words = words(without_comment(line), i + 1);
        let Some(first) = words.first() else { continue };
        let scheme = scheme(&words, first.position, diagnostics);
        let name = names.name(None, schemes.len(), first.position, diagnostics);
        schemes.push(scheme.map(|scheme| Scheme { name: name.into(), ..scheme }));
    }
    at_least_one(schemes, Position::START, diagnostics)
}

/// The words of a line. A slash separates words too.
fn words(line: &str, number: usize) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut column = 1;
    for word in line.split_inclusive(|c: char| c.is_whitespace() || c == '/') {
        let text = word.trim_end_matches(|c: char| c.is_whitespace() || c == '/');
        if !text.is_empty() {
            words.push(Word { text, position: Position { line: number, column } });
        }
        column += word.chars().count();
    }
    words
}

fn scheme(words: &[Word<'_>], start: Position, diagnostics: &mut Diagnostics) -> Option<Scheme> {
    let [size_min, size_max, rate_min, rate_max, age_min, age_max, action_word, rest @ ..] = words else {
        return diagnostics.fail(start, format!("expected 7 words, found {}: {FORM}", words.len()));
    };
    let mut inside = false;
    let mut to = None;
    for more in rest {
        if more.text == "inside" && !inside {
            inside = true;
        } else if let (Some(nodes), None) = (more.text.strip_prefix("node="), &to) {
            to = Some((target_nodes(nodes, more.position, diagnostics)?, more.position));
        } else {
            // The lengths of lines with quotas and watermarks in the files of old versions of DAMON's tools.
            let hint = match words.len() {
                9 | 12 | 17 | 18 => "; write quotas and watermarks in YAML (docs/schemes.md)",
                _ => "",
            };
            let message = format!(
                "unexpected \"{}\"{hint}; a line is {FORM}, and may end with node=1 and with inside",
                shortened(more.text)
            );
            return diagnostics.fail(more.position, message);
        }
    }
    let size = bounds([size_min, size_max], (0, u64::MAX), diagnostics, units::parse_bytes);
    let rate = bounds([rate_min, rate_max], (0.0, 1.0), diagnostics, rate);
    let age = bounds([age_min, age_max], (Duration::ZERO, Duration::MAX), diagnostics, units::parse_duration);
    let action = match action(&action_word.text.to_lowercase()) {
        Ok(action) => action,
        Err(message) => return diagnostics.fail(action_word.position, message),
    };
    check_inside(action, inside, action_word.position, "add the word inside at the end of the line", diagnostics);
    let how = "add the word node=1 after the action, with the number of a memory node";
    let action = with_destinations(action, to, action_word.position, how, diagnostics);
    let condition = Condition { size: size?, rate: rate?, age: age?, hz: Condition::ANY.hz };
    let action = action?;
    Some(Scheme { inside, quota: Quota::default_of(action), ..Scheme::new("", condition, action) })
}

/// Reads nodes such as `1`, `0:3,1:1` with weights, or `0|1` for the first that has room.
fn target_nodes(text: &str, position: Position, diagnostics: &mut Diagnostics) -> Option<Destinations> {
    if text.contains('|') {
        let nodes: Result<Vec<_>, _> = text.split('|').map(node_number).collect();
        return match nodes {
            Ok(nodes) => first_with_room(&nodes, position, diagnostics),
            Err(message) => diagnostics.fail(position, message),
        };
    }
    let mut nodes = Vec::new();
    for one in text.split(',') {
        let (number, weight) = one.split_once(':').unwrap_or((one, "1"));
        match (node_number(number), node_weight(weight)) {
            (Ok(node), Ok(weight)) => nodes.push((node, weight)),
            (Err(message), _) | (_, Err(message)) => return diagnostics.fail(position, message),
        }
    }
    destinations(&nodes, position, diagnostics)
}

/// Reads an access rate. A whole number without a sign is in per cent, as in the papers.
fn rate(text: &str) -> Result<f64, QuantityError> {
    units::parse_share_of(text, if text.contains('.') { 1.0 } else { 100.0 })
}

fn bounds<T: PartialOrd + Copy, E: Display>(
    [min, max]: [&Word<'_>; 2],
    limits: (T, T),
    diagnostics: &mut Diagnostics,
    read: impl Fn(&str) -> Result<T, E>,
) -> Option<ClosedInterval<T>> {
    let mut bound = |word: &Word<'_>, none: T| match word.text {
        "min" => Some(limits.0),
        "max" => Some(limits.1),
        "null" => Some(none),
        text => match read(text) {
            Ok(value) => Some(value),
            Err(error) => diagnostics.fail(word.position, format!("{error}; min, max and null are no bound")),
        },
    };
    let (least, most) = (bound(min, limits.0), bound(max, limits.1));
    ClosedInterval::new(least?, most?).or_else(|| {
        let (min_text, max_text) = (shortened(min.text), shortened(max.text));
        let message = format!("the minimum {min_text} is larger than the maximum {max_text}; swap them");
        diagnostics.fail(min.position, message)
    })
}
