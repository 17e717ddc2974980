//! What came of tuning a scheme: the best values, the runs, and what other values would cost. `isotherm-eval` finds it;
//! here it is shown.

mod svg;
mod text;

use std::io::Write;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{Format, Options, ReportError, escape, png};

/// A result of `isotherm scheme tune`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Tuning {
    /// The workload, or the recordings.
    pub subject: String,
    /// What is best, in words.
    pub objective: String,
    /// How values were chosen: `model`, `random` or `grid`.
    pub search: String,
    /// The free parameters.
    pub parameters: Vec<Parameter>,
    /// Runs without a scheme. `None` if no run was made.
    pub baseline: Option<Baseline>,
    /// The best values. `None` if every run failed.
    pub best: Option<Point>,
    /// The usual values, if the ranges name them.
    pub usual: Option<Point>,
    /// The runs of schemes, in their order.
    pub runs: Vec<Point>,
    /// For each parameter: what is expected along its range, with the best values of the others.
    pub profiles: Vec<Profile>,
    /// What is expected over the ranges of the first two parameters.
    pub map: Option<Map>,
    /// What the figures do not tell.
    pub notes: Vec<String>,
}

/// A free parameter.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Parameter {
    /// The name, such as `age.min`.
    pub name: String,
    /// The lowest value, in seconds, hertz, bytes, as a share of 1, or as a number.
    pub low: f64,
    /// The highest value.
    pub high: f64,
    /// Some values from the lowest to the highest, with their places, for an axis.
    pub ticks: Vec<Tick>,
}

/// A value of a parameter, for an axis.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Tick {
    /// The place, from 0 to 1.
    pub at: f64,
    /// The value for people.
    pub label: String,
}

/// Runs without a scheme.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Baseline {
    /// The number of runs.
    pub runs: u64,
    /// The mean runtime, in seconds.
    pub seconds: f64,
    /// The standard deviation of the runtime, in per cent of the mean. `None` of a single run.
    pub deviation_percent: Option<f64>,
    /// The mean resident memory, in bytes.
    pub rss_bytes: f64,
}

/// Changes to runs without a scheme.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Changed {
    /// The runtime, in per cent.
    pub runtime: f64,
    /// The resident memory, in per cent.
    pub rss: f64,
    /// The score.
    pub score: f64,
}

/// Values, and what they give.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Point {
    /// The values of the parameters.
    pub values: Vec<f64>,
    /// The values for people.
    pub shown: Vec<String>,
    /// Their places in the ranges, from 0 to 1.
    pub at: Vec<f64>,
    /// The changes: of a run, or what is expected by all runs.
    pub changed: Changed,
    /// Runs at these values.
    pub runs: u64,
}

/// What is expected along the range of a parameter.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Profile {
    /// The index of the parameter.
    pub parameter: usize,
    /// Values from the lowest to the highest.
    pub points: Vec<Expected>,
}

/// What is expected of a value.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Expected {
    /// The place, from 0 to 1.
    pub at: f64,
    /// The value for people.
    pub shown: String,
    /// The changes.
    pub changed: Changed,
    /// The bounds of what is believed of the runtime, with 95 %.
    pub runtime_between: [f64; 2],
    /// The bounds of what is believed of the resident memory, with 95 %.
    pub rss_between: [f64; 2],
    /// The runtime that was estimated from recordings, before any run.
    pub estimated_runtime: Option<f64>,
    /// The resident memory that was estimated.
    pub estimated_rss: Option<f64>,
}

/// What is expected over the ranges of two parameters.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Map {
    /// The number of places along each range.
    pub side: usize,
    /// The score at each place: row by row, from the lowest value of the second parameter on.
    pub scores: Vec<f64>,
}

impl Tuning {
    /// The formats that there are.
    pub const FORMATS: [Format; 4] = [Format::Text, Format::Json, Format::Svg, Format::Png];

    /// Writes it.
    ///
    /// # Errors
    /// If `out` cannot be written to, the picture cannot be drawn, or there is no such format.
    pub fn write(&self, format: Format, options: &Options, out: &mut dyn Write) -> Result<(), ReportError> {
        let picture = || svg::draw(self, options.picture).standalone();
        match format {
            Format::Text => text::write(out, &options.terminal, self)?,
            Format::Json => writeln!(out, "{}", escape::json(self)?)?,
            Format::Svg => out.write_all(picture().as_bytes())?,
            Format::Png => out.write_all(&png::from_svg(&picture())?)?,
            Format::Html => return Err(ReportError::Picture("there is no page of this report".into())),
        }
        Ok(())
    }

    /// What being wrong costs: sentences on values beside the best.
    pub fn sentences(&self) -> Vec<String> {
        let Some(best) = &self.best else { return Vec::new() };
        let mut sentences = Vec::new();
        for profile in &self.profiles {
            let name = &self.parameters[profile.parameter].name;
            let best_at = best.at[profile.parameter];
            let lowest = profile.points.first();
            let highest = profile.points.last();
            let ends = [lowest, highest].into_iter().flatten().filter(|end| (end.at - best_at).abs() > 0.05);
            let matters = |end: &&Expected| (end.changed.score - best.changed.score).abs() >= LEAST_SHOWN;
            for end in ends.filter(matters) {
                sentences.push(format!(
                    "{name} of {} instead of {} would change the score by {}: runtime {} instead of {}, memory {} \
                     instead of {}",
                    end.shown,
                    best.shown[profile.parameter],
                    signed(end.changed.score - best.changed.score),
                    percent(end.changed.runtime),
                    percent(best.changed.runtime),
                    percent(end.changed.rss),
                    percent(best.changed.rss),
                ));
            }
            let near = |point: &&Expected| point.changed.score >= best.changed.score - ABOUT_AS_GOOD;
            // The part of the range around the best in which all is about as good.
            let (below, above) = profile.points.split_at(profile.points.partition_point(|point| point.at < best_at));
            let of_best = &best.shown[profile.parameter];
            let first = below.iter().rev().take_while(near).last().map_or(of_best, |point| &point.shown);
            let last = above.iter().take_while(near).last().map_or(of_best, |point| &point.shown);
            if first != last {
                sentences
                    .push(format!("{name} from {first} to {last} is within {ABOUT_AS_GOOD} point of the best score"));
            }
        }
        sentences
    }
}

/// The least difference of scores that is shown as one.
const LEAST_SHOWN: f64 = 0.05;

/// Scores that differ by this are about the same.
const ABOUT_AS_GOOD: f64 = 1.0;

/// A change with its sign.
fn percent(change: f64) -> String {
    format!("{} %", signed(change))
}

fn signed(value: f64) -> String {
    let text = format!("{value:+.1}");
    if text == "-0.0" { "+0.0".into() } else { text }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    /// A tuning of so many parameters, whose best value is at a quarter of each range.
    pub(super) fn example(parameters: usize) -> Tuning {
        let score = |at: &[f64]| 10.0 - 40.0 * at.iter().map(|at| (at - 0.25).powi(2)).sum::<f64>();
        let point = |at: &[f64], runs: u64| Point {
            values: at.to_vec(),
            shown: at.iter().map(|at| format!("{at} s")).collect(),
            at: at.to_vec(),
            changed: Changed { runtime: 1.0, rss: -20.0, score: score(at) },
            runs,
        };
        let best = vec![0.25; parameters];
        let along = |parameter: usize| {
            let points = (0..=20).map(|nth| {
                let mut at = best.clone();
                at[parameter] = f64::from(nth) / 20.0;
                let changed = Changed { runtime: 5.0 * at[parameter], rss: -20.0, score: score(&at) };
                Expected {
                    at: at[parameter],
                    shown: format!("{} s", at[parameter]),
                    changed,
                    runtime_between: [changed.runtime - 1.0, changed.runtime + 1.0],
                    rss_between: [-22.0, -18.0],
                    estimated_runtime: Some(4.0 * at[parameter]),
                    estimated_rss: None,
                }
            });
            Profile { parameter, points: points.collect() }
        };
        let tick = |at: f64| Tick { at, label: format!("{at} s") };
        let named = |nth: usize| Parameter {
            name: format!("p<{nth}>"),
            low: 0.0,
            high: 1.0,
            ticks: [0.0, 0.5, 1.0].map(tick).into(),
        };
        let side = 5;
        let scores = (0..side * side).map(|nth| score(&[(nth % side) as f64 / 4.0, (nth / side) as f64 / 4.0]));
        Tuning {
            subject: "a & b".into(),
            objective: "the highest -rss".into(),
            search: "model".into(),
            parameters: (0..parameters).map(named).collect(),
            baseline: Some(Baseline { runs: 2, seconds: 10.0, deviation_percent: Some(0.5), rss_bytes: 1e9 }),
            best: Some(point(&best, 3)),
            usual: Some(point(&vec![0.75; parameters], 1)),
            runs: vec![point(&vec![0.0; parameters], 1), point(&best, 1)],
            profiles: (0..parameters).map(along).collect(),
            map: (parameters > 1).then(|| Map { side, scores: scores.collect() }),
            notes: vec!["a note".into()],
        }
    }

    fn written(tuning: &Tuning, format: Format) -> String {
        let mut out = Vec::new();
        tuning.write(format, &Options::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn text_tells_the_best_the_usual_and_what_being_wrong_costs() {
        let text = written(&example(1), Format::Text);
        for part in ["a & b", "p<0>", "0.25 s", "usual", "2 runs", "would change the score by -22.5", "a note"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.contains("from 0.1 s to 0.4 s is within 1 point"), "{text}");
        let none = Tuning { best: None, usual: None, profiles: vec![], ..example(1) };
        assert!(written(&none, Format::Text).contains("no run succeeded"));
    }

    #[test]
    fn pictures_have_the_landscape_of_each_parameter_and_of_two() {
        let one = written(&example(1), Format::Svg);
        assert!(one.starts_with("<svg") && one.contains("p&lt;0&gt;") && !one.contains("p<0>"), "{one}");
        let two = written(&example(2), Format::Svg);
        assert!(two.len() > one.len() && two.matches("class=\"cell\"").count() == 25, "{two}");
        let mut png = Vec::new();
        example(3).write(Format::Png, &Options::default(), &mut png).unwrap();
        assert_eq!(&png[1..4], b"PNG");
    }

    #[test]
    fn json_is_by_its_schema() {
        let schema = crate::schema::named("scheme-tune").unwrap();
        let document: serde_json::Value = serde_json::from_str(&written(&example(2), Format::Json)).unwrap();
        assert!(jsonschema::is_valid(&schema, &document));
    }
}
