//! The marks of a recording: those of a selection, and which of their labels have room.

use isotherm_record::{Mark, Needs};
use schemars::JsonSchema;
use serde::Serialize;

use crate::ReportError;
use crate::source::{Accumulator, Seen, Selection};

/// The marks of the selected time, in the order of time: the first [`Mark::MOST`].
#[derive(Debug, Default)]
pub(crate) struct Marks {
    selection: Selection,
    pub(crate) marks: Vec<Mark>,
}

impl Marks {
    /// Those of a selection, before its walk.
    pub(crate) fn new(selection: &Selection) -> Self {
        Self { selection: selection.clone(), marks: vec![] }
    }
}

impl Accumulator for Marks {
    fn needs(&self) -> Needs {
        Needs::MARKS
    }

    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError> {
        if let Seen::Mark(mark) = event
            && self.selection.holds_time(mark.time)
            && self.marks.len() < Mark::MOST
        {
            self.marks.push((*mark).clone());
        }
        Ok(())
    }
}

/// A mark in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Mark")]
pub(crate) struct MarkOut {
    /// The time since the start of the recording.
    time_ns: u64,
    /// What it is called.
    text: String,
}

/// A report in JSON, with the marks of its time.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Marked<T> {
    #[serde(flatten)]
    report: T,
    /// The marks of the selected time, in the order of time: at most 10,000.
    marks: Vec<MarkOut>,
}

impl<T> Marked<T> {
    pub(crate) fn new(report: T, marks: &[Mark]) -> Self {
        let out = |mark: &Mark| MarkOut { time_ns: mark.time.as_nanos() as u64, text: mark.text.to_string() };
        Self { report, marks: marks.iter().map(out).collect() }
    }
}

/// The label of a mark, at its place on a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Label {
    /// Which mark it is of.
    pub(crate) nth: usize,
    /// Where it begins, and how wide it may be.
    pub(crate) start: f64,
    pub(crate) room: f64,
}

/// The labels that have room between marks. `marks` has the place of each, in rising order, and how wide its label is
/// with the gap after it.
///
/// A label begins at its mark and ends at the next one, unless that is nearer than `least`: then it goes on, and those
/// of the marks below it are left out. Near the end of the line, at `right`, a label ends there.
pub(crate) fn labels(marks: &[(f64, f64)], right: f64, least: f64) -> Vec<Label> {
    let mut labels = vec![];
    let mut free = f64::NEG_INFINITY;
    for (nth, &(at, wide)) in marks.iter().enumerate() {
        let wide = wide.min(right);
        if at < free {
            continue;
        }
        let next = marks[nth + 1..].iter().map(|&(next, _)| next).find(|next| next - at >= least);
        let room = wide.min(next.unwrap_or(right).min(right) - at);
        let (start, room) = if room < wide.min(least) { (right - wide, wide) } else { (at, room) };
        if start >= free {
            labels.push(Label { nth, start, room });
            free = start + room;
        }
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_end_at_the_next_mark_and_are_left_out_where_there_is_no_room() {
        let shown = |marks: &[(f64, f64)]| -> Vec<(usize, f64, f64)> {
            labels(marks, 100.0, 10.0).iter().map(|label| (label.nth, label.start, label.room)).collect()
        };
        assert_eq!(shown(&[(0.0, 30.0), (50.0, 30.0)]), [(0, 0.0, 30.0), (1, 50.0, 30.0)]);
        assert_eq!(shown(&[(0.0, 30.0), (20.0, 30.0)]), [(0, 0.0, 20.0), (1, 20.0, 30.0)], "cut at the next one");
        assert_eq!(shown(&[(0.0, 30.0), (5.0, 30.0), (40.0, 5.0)]), [(0, 0.0, 30.0), (2, 40.0, 5.0)]);
        assert_eq!(shown(&[(95.0, 30.0)]), [(0, 70.0, 30.0)], "it ends at the end of the line");
        assert_eq!(shown(&[(50.0, 30.0), (98.0, 40.0)]), [(0, 50.0, 30.0)]);
        let dense: Vec<(f64, f64)> = (0..100).map(|nth| (f64::from(nth), 30.0)).collect();
        assert!(labels(&dense, 100.0, 10.0).len() >= 7);
    }
}
