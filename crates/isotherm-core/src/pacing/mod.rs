//! Pacing: how often to sample and to survey, so that a run keeps its budget and observes what it should.
//!
//! - [`Controller`] divides the [`Budget`] between samples and surveys, by what each has cost.
//! - [`IntervalTuner`] chooses the sampling interval by what samples observe.
//! - [`Pacer`] joins both for the driver of a monitor.
//!
//! How a survey and the panel use what they are given is theirs: `survey/plan.rs` and `panel/size.rs`.

mod budget;
mod intervals;
mod pacer;
mod recent;
mod survey_cost;

pub use budget::{Budget, Controller, Pace, Shares, Start};
pub use intervals::{Affordable, IntervalTuner, IntervalsGoal};
pub use pacer::{PaceOptions, Pacer, SurveyInterval};
