//! The result of a tuning, for people and programs.

use std::path::PathBuf;

use isotherm_report::tuning::{Baseline, Changed, Expected, Map, Parameter, Point, Profile, Tick, Tuning};
use isotherm_report::{Format, Options};

use super::course::tried;
use super::search::{Course, Models, Tried, mean_at};
use super::store::Store;
use super::{Changes, Search, TuneOptions, Tuned};
use crate::EvalError;
use crate::statistics::{deviation, mean};

/// Places along a range in the picture, and along each side of a map.
const ALONG: usize = 40;
const SIDE: usize = 24;

/// Ticks of an axis.
const TICKS: usize = 5;

/// The part of the normal distribution within which a figure lies with 95 %.
const SURE: f64 = 1.96;

/// Makes the result, and writes its files.
pub(super) fn made(
    options: &TuneOptions,
    course: &Course<'_>,
    recordings: &[PathBuf],
    store: &Store,
) -> Result<Tuned, EvalError> {
    let tried = tried(&store.runs);
    let failed = store.runs.iter().filter(|kept| kept.run.failed.is_some()).count();
    let result = Maker { options, course, tried: &tried }.make(recordings, store);
    let mut files = Vec::new();
    if let Some(best) = &result.best {
        files.push(store.write("tuned.yaml", options.schemes.text(&best.values).as_bytes())?);
    }
    for (name, format) in [("tuning.json", Format::Json), ("tuning.svg", Format::Svg)] {
        let mut text = Vec::new();
        result.write(format, &Options::default(), &mut text)?;
        files.push(store.write(name, &text)?);
    }
    Ok(Tuned { result, files, failed })
}

struct Maker<'a> {
    options: &'a TuneOptions,
    course: &'a Course<'a>,
    tried: &'a [Tried],
}

impl Maker<'_> {
    fn make(&self, recordings: &[PathBuf], store: &Store) -> Tuning {
        // Other searches choose without a model; their pictures have one of their runs.
        let models = Models::of(self.tried, &self.course.candidates, self.course.is_estimated);
        let best = self.best(&models, failed_all(store));
        let along = |parameter: usize| best.as_ref().map(|best| self.profile(&models, &best.at, parameter));
        let profiles = (0..self.course.parameters).filter_map(along).collect();
        let map = best.as_ref().filter(|_| self.course.parameters > 1).map(|best| self.map(&models, &best.at));
        let usual = self.options.schemes.usual().map(|values| self.options.schemes.places(&values));
        let usual = usual.filter(|at| self.options.workload.is_none() || self.runs_at(at) > 0);
        Tuning {
            subject: self.subject(recordings),
            objective: self.options.objective.about().into(),
            search: self.options.search.name().into(),
            parameters: self.parameters(),
            baseline: baseline(store),
            usual: usual.map(|at| self.expected(&models, at)),
            runs: self.tried.iter().map(|tried| self.point(tried.at.clone(), tried.changes, 1)).collect(),
            profiles,
            map,
            notes: self.notes(store, best.as_ref()),
            best,
        }
    }

    fn subject(&self, recordings: &[PathBuf]) -> String {
        match &self.options.workload {
            Some((workload, _)) => workload.name.clone(),
            None => recordings.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "),
        }
    }

    /// The best values: of those that ran, or by the estimates if there is no program.
    fn best(&self, models: &Models, failed_all: bool) -> Option<Point> {
        let at = match &self.options.workload {
            Some(_) if failed_all => return None,
            Some(_) => self.course.best(self.tried)?,
            None => {
                let score = |at: &[f64]| self.options.objective.of(models.expected(at));
                let places = self.course.candidates.iter().map(|candidate| &candidate.at);
                places.max_by(|a, b| score(a).total_cmp(&score(b)))?.clone()
            }
        };
        Some(self.expected(models, at))
    }

    fn runs_at(&self, at: &[f64]) -> u64 {
        self.tried.iter().filter(|tried| tried.at == at).count() as u64
    }

    /// What is expected of values.
    fn expected(&self, models: &Models, at: Vec<f64>) -> Point {
        let runs = self.runs_at(&at);
        let changes = match self.options.search {
            Search::Random | Search::Grid if runs > 0 => mean_at(self.tried, &at),
            Search::Model | Search::Random | Search::Grid => models.expected(&at),
        };
        self.point(at, changes, runs)
    }

    fn point(&self, at: Vec<f64>, changes: Changes, runs: u64) -> Point {
        let values = self.options.schemes.values(&at);
        let shown = self.shown(&values);
        Point { values, shown, at, changed: self.changed(changes), runs }
    }

    fn changed(&self, changes: Changes) -> Changed {
        Changed { runtime: changes.runtime, rss: changes.rss, score: self.options.objective.of(changes) }
    }

    fn shown(&self, values: &[f64]) -> Vec<String> {
        self.options.schemes.parameters.iter().zip(values).map(|(parameter, value)| parameter.shown(*value)).collect()
    }

    fn parameters(&self) -> Vec<Parameter> {
        let of = |parameter: &isotherm_scheme::Parameter| {
            let ticks = (0..TICKS).map(|nth| {
                let at = nth as f64 / (TICKS - 1) as f64;
                Tick { at, label: parameter.shown(parameter.at(at)) }
            });
            Parameter { name: parameter.name.clone(), low: parameter.low, high: parameter.high, ticks: ticks.collect() }
        };
        self.options.schemes.parameters.iter().map(of).collect()
    }

    fn profile(&self, models: &Models, best: &[f64], parameter: usize) -> Profile {
        let none = Models::of(&[], &self.course.candidates, self.course.is_estimated);
        let points = (0..=ALONG).map(|nth| {
            let mut at = best.to_vec();
            at[parameter] = nth as f64 / ALONG as f64;
            let beliefs = models.at(&at);
            let estimate = self.course.is_estimated.then(|| none.expected(&at));
            let of = &self.options.schemes.parameters[parameter];
            let between =
                |figure: usize| [-SURE, SURE].map(|times| beliefs[figure].mean + times * beliefs[figure].deviation);
            Expected {
                at: at[parameter],
                shown: of.shown(of.at(at[parameter])),
                changed: self.changed(Changes::of(beliefs.map(|belief| belief.mean))),
                runtime_between: between(0),
                rss_between: between(1),
                estimated_runtime: estimate.map(|estimate| estimate.runtime),
                estimated_rss: estimate.map(|estimate| estimate.rss),
            }
        });
        Profile { parameter, points: points.collect() }
    }

    fn map(&self, models: &Models, best: &[f64]) -> Map {
        let scores = (0..SIDE * SIDE).map(|nth| {
            let mut at = best.to_vec();
            at[0] = (nth % SIDE) as f64 / (SIDE - 1) as f64;
            at[1] = (nth / SIDE) as f64 / (SIDE - 1) as f64;
            self.options.objective.of(models.expected(&at))
        });
        Map { side: SIDE, scores: scores.collect() }
    }

    fn notes(&self, store: &Store, best: Option<&Point>) -> Vec<String> {
        let mut notes = Vec::new();
        let without = self.options.objective.of(Changes::default());
        if best.is_some_and(|best| best.changed.score <= without) {
            notes.push(format!("no values are better than no scheme at all, whose score is {without:.1}"));
        }
        if self.course.is_estimated {
            let fault = isotherm_core::units::duration(self.options.fault);
            notes.push(format!(
                "estimates assume that the program waits {fault} for each page that comes back (--fault)"
            ));
        }
        if self.options.workload.is_none() {
            notes.push("no run was made: figures are estimates from recordings".into());
        }
        let made = self.tried.len();
        if self.options.workload.is_some() && made < self.options.runs {
            notes.push(format!("{made} of {} runs were made; --resume makes the others", self.options.runs));
        }
        if crate::Machine::read().is_emulated() {
            notes.push("the processors are emulated, so that times say little".into());
        }
        if let Some(why) = store.runs.iter().rev().find_map(|kept| kept.run.failed.as_deref()) {
            notes.push(format!("runs that failed count as worthless; the last: {why}"));
        }
        notes
    }
}

/// Whether no run of a scheme succeeded.
fn failed_all(store: &Store) -> bool {
    store.runs.iter().filter(|kept| kept.at.is_some()).all(|kept| kept.run.failed.is_some())
}

fn baseline(store: &Store) -> Option<Baseline> {
    let without: Vec<_> = store.runs.iter().filter(|kept| kept.at.is_none()).map(|kept| &kept.run).collect();
    if without.is_empty() {
        return None;
    }
    let seconds: Vec<f64> = without.iter().map(|run| run.seconds).collect();
    let rss: Vec<f64> = without.iter().map(|run| run.rss).collect();
    Some(Baseline {
        runs: without.len() as u64,
        seconds: mean(&seconds),
        deviation_percent: deviation(&seconds).map(|deviation| 100.0 * deviation / mean(&seconds)),
        rss_bytes: mean(&rss),
    })
}
