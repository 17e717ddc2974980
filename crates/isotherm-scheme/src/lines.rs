//! The lines of the DAMON papers: `<min/max size> <min/max access rate> <min/max age> <action>`.
//!
//! Each end of a pair is a word of its own, or both are one with a slash between them; `min`, `max` and `null` stand for no bound.
//! Rates are in percent, with the sign or without. `#` begins a comment.

use std::time::Duration;

use isotherm_core::scheme::{ClosedInterval, Condition, Scheme};

use crate::complaint::Complaints;
use crate::parts::{Names, action, at_least_one, may_act};
use crate::units::{self, A_SHARE, A_SIZE, A_TIME};
use crate::{Complaint, Place};

const FORM: &str = "<min size> <max size> <min access rate> <max access rate> <min age> <max age> <action>, \
                    such as: 4K max 0% 0% 5s max pageout";

/// Whether a text is of lines: its first line that says something is no beginning of YAML or JSON.
pub(crate) fn are_lines(text: &str) -> bool {
    let first = text.lines().map(without_comment).find(|line| !line.trim().is_empty());
    first.is_some_and(|line| {
        let yaml = line.contains(": ")
            || line.trim_end().ends_with(':')
            || line.trim_start().starts_with(['-', '[', '{', '%']);
        !yaml && line.split_whitespace().count() > 1
    })
}

fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default()
}

/// A word and where it begins.
struct Word<'a> {
    text: &'a str,
    place: Place,
}

pub(crate) fn schemes(text: &str, complaints: &mut Complaints) -> Vec<Scheme> {
    let mut names = Names::default();
    let mut made = Vec::new();
    for (nth, line) in text.lines().enumerate() {
        let words = words(without_comment(line), nth + 1);
        if words.is_empty() {
            continue;
        }
        let scheme = scheme(&words, complaints);
        let name = names.name(None, made.len(), words[0].place, complaints);
        made.push(scheme.map(|scheme| Scheme { name: name.into(), ..scheme }));
    }
    at_least_one(made, Place { line: 1, column: 1 }, complaints)
}

/// The words of a line; a slash parts them, too.
fn words(line: &str, number: usize) -> Vec<Word<'_>> {
    let parts = line.split(|c: char| c.is_whitespace() || c == '/').filter(|word| !word.is_empty());
    let place = |word: &str| {
        let bytes_before = word.as_ptr() as usize - line.as_ptr() as usize;
        Place { line: number, column: line[..bytes_before].chars().count() + 1 }
    };
    parts.map(|text| Word { text, place: place(text) }).collect()
}

fn scheme(words: &[Word<'_>], complaints: &mut Complaints) -> Option<Scheme> {
    let [size_min, size_max, rate_min, rate_max, age_min, age_max, wanted, rest @ ..] = words else {
        let message = format!("this line has {} words where 7 were expected: {FORM}", words.len());
        return complaints.at(words[0].place, message);
    };
    let inside = match rest {
        [] => false,
        [inside] if inside.text == "inside" => true,
        [more, ..] => {
            let why = match words.len() {
                9 | 12 | 17 | 18 => " (quotas and watermarks are written in YAML: docs/schemes.md)",
                _ => "",
            };
            let message =
                format!("{:?} is too much{why}; a line is {FORM}, and `inside` if that is allowed", more.text);
            return complaints.at(more.place, message);
        }
    };
    let sizes = pair([size_min, size_max], (0, u64::MAX), A_SIZE, complaints, units::size);
    let rates = pair([rate_min, rate_max], (0.0, 1.0), A_SHARE, complaints, |text| units::share(text, Some(100.0)));
    let ages =
        pair([age_min, age_max], (Duration::ZERO, Duration::MAX), A_TIME, complaints, |text| units::time(text, None));
    let named = action(&wanted.text.to_lowercase()).map_err(|why| complaints.push(Complaint::new(wanted.place, why)));
    let action = named.ok()?;
    may_act(action, inside, wanted.place, "add the word `inside` at the end of the line", complaints);
    let condition = Condition { size: sizes?, rate: rates?, age: ages? };
    Some(Scheme { inside, ..Scheme::new("", condition, action) })
}

fn pair<T: PartialOrd + Copy>(
    [min, max]: [&Word<'_>; 2],
    ends: (T, T),
    wanted: &str,
    complaints: &mut Complaints,
    read: impl Fn(&str) -> Result<T, String>,
) -> Option<ClosedInterval<T>> {
    let mut end = |word: &Word<'_>, none: T| match word.text {
        "min" => Some(ends.0),
        "max" => Some(ends.1),
        "null" => Some(none),
        text => {
            let read = read(text)
                .map_err(|why| if why.contains("expected") { format!("{why} (or min, max, null)") } else { why });
            read.map_err(|why| complaints.push(Complaint::new(word.place, why))).ok()
        }
    };
    let (least, most) = (end(min, ends.0), end(max, ends.1));
    ClosedInterval::new(least?, most?).or_else(|| {
        let message =
            format!("{} is over {}; exchange them, expected the least and the most: {wanted}", min.text, max.text);
        complaints.at(min.place, message)
    })
}
