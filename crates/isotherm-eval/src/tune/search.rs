//! Which values are tried next.

use rand::{RngExt as _, SeedableRng};
use rand_pcg::Pcg64;

use super::surrogate::{Belief, Place, Surrogate};
use super::{Changes, Objective};

/// How values are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Search {
    /// By a model of the runs so far, which begins with estimates from recordings.
    #[default]
    Model,
    /// By chance.
    Random,
    /// At even distances.
    Grid,
}

impl Search {
    /// All ways.
    pub const ALL: [Self; 3] = [Self::Model, Self::Random, Self::Grid];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Random => "random",
            Self::Grid => "grid",
        }
    }
}

/// Values that may be tried: places from 0 to 1, and what is estimated there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) at: Vec<f64>,
    pub(super) estimate: Changes,
}

/// Values that were tried, and what came of one run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tried {
    pub(super) at: Vec<f64>,
    pub(super) changes: Changes,
}

/// Evenly spread places, the ends of the ranges first: the sequence of Halton (1960), whose nth place is the same
/// whatever comes after it.
pub(super) fn spread(parameters: usize, count: usize) -> Vec<Vec<f64>> {
    const PRIMES: [u32; 8] = [2, 3, 5, 7, 11, 13, 17, 19];
    let ends = [vec![0.0; parameters], vec![1.0; parameters]];
    let inner = (1..).map(|nth: u32| {
        // Bases repeat beyond the table, with an offset, so that their places differ.
        (0..parameters).map(|of| inverse(nth + (of / PRIMES.len()) as u32 * 7, PRIMES[of % PRIMES.len()])).collect()
    });
    ends.into_iter().chain(inner).take(count).collect()
}

/// The digits of a number behind the point, in reverse order.
fn inverse(mut number: u32, base: u32) -> f64 {
    let (mut value, mut part) = (0.0, 1.0);
    while number > 0 {
        part /= f64::from(base);
        value += part * f64::from(number % base);
        number /= base;
    }
    value
}

/// What is known of all figures.
#[derive(Clone, Debug)]
pub(super) struct Models {
    models: [Surrogate; 4],
    /// Places with estimates, in the order of the candidates. Empty if nothing was estimated.
    estimated: Vec<Candidate>,
}

impl Models {
    /// Models of these runs. Candidates have estimates if `is_estimated`.
    pub(super) fn of(tried: &[Tried], candidates: &[Candidate], is_estimated: bool) -> Self {
        let estimated = if is_estimated { candidates.to_vec() } else { Vec::new() };
        let models = std::array::from_fn(|figure| {
            let places = tried.iter().map(|tried| Self::place(&estimated, &tried.at, figure)).collect();
            let values: Vec<f64> = tried.iter().map(|tried| tried.changes.all()[figure]).collect();
            Surrogate::of(places, &values)
        });
        Self { models, estimated }
    }

    /// What is believed of each figure at a place.
    pub(super) fn at(&self, at: &[f64]) -> [Belief; 4] {
        std::array::from_fn(|figure| self.models[figure].at(&Self::place(&self.estimated, at, figure)))
    }

    /// The expected figures at a place.
    pub(super) fn expected(&self, at: &[f64]) -> Changes {
        Changes::of(self.at(at).map(|belief| belief.mean))
    }

    fn place(estimated: &[Candidate], at: &[f64], figure: usize) -> Place {
        Place { at: at.to_vec(), estimate: between(estimated, at).all()[figure] }
    }
}

/// The estimate at a place between candidates: the mean of the nearest two for each parameter, by their distances.
fn between(estimated: &[Candidate], at: &[f64]) -> Changes {
    let mut near: Vec<(f64, [f64; 4])> =
        estimated.iter().map(|candidate| (distance(&candidate.at, at), candidate.estimate.all())).collect();
    near.sort_by(|a, b| a.0.total_cmp(&b.0));
    near.truncate(2 * at.len());
    match near.first() {
        None => Changes::default(),
        Some((0.0, exact)) => Changes::of(*exact),
        Some(_) => {
            let weights: f64 = near.iter().map(|(distance, _)| 1.0 / distance).sum();
            let mean = |figure: usize| near.iter().map(|(distance, all)| all[figure] / distance).sum::<f64>() / weights;
            Changes::of(std::array::from_fn(mean))
        }
    }
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

/// A search for the best values.
#[derive(Clone, Debug)]
pub(super) struct Course<'a> {
    pub(super) search: Search,
    pub(super) objective: &'a Objective,
    pub(super) parameters: usize,
    /// How many runs there will be.
    pub(super) runs: usize,
    pub(super) candidates: Vec<Candidate>,
    pub(super) is_estimated: bool,
    pub(super) seed: u64,
}

impl Course<'_> {
    /// The places to try after these. It depends on nothing else, so that a search that was cut goes on as it would
    /// have.
    pub(super) fn next(&self, tried: &[Tried]) -> Vec<f64> {
        let nth = tried.len();
        match self.search {
            Search::Random => {
                let mut rng = Pcg64::seed_from_u64(self.seed.wrapping_add(nth as u64));
                (0..self.parameters).map(|_| rng.random()).collect()
            }
            Search::Grid => self.grid(nth),
            Search::Model => {
                // Without estimates, a model needs a few runs first.
                let first = if self.is_estimated { 0 } else { (2 + self.parameters).min(self.runs.div_ceil(2)) };
                match spread(self.parameters, first).into_iter().nth(nth) {
                    Some(at) => at,
                    None => self.by_model(tried),
                }
            }
        }
    }

    /// Even distances: of one parameter all runs, of several as many values of each as the runs suffice for.
    fn grid(&self, nth: usize) -> Vec<f64> {
        let side = (1..=self.runs).take_while(|side| side.pow(self.parameters as u32) <= self.runs).last().unwrap_or(1);
        let mut rest = nth;
        let mut at = Vec::new();
        for _ in 0..self.parameters {
            at.push(if side == 1 { 0.5 } else { (rest % side) as f64 / (side - 1) as f64 });
            rest /= side;
        }
        at
    }

    /// Where most is to be gained, by what is believed: the expected improvement over the best (Mockus, 1978). The last
    /// runs are at the best places, so that they are no luck.
    fn by_model(&self, tried: &[Tried]) -> Vec<f64> {
        let models = Models::of(tried, &self.candidates, self.is_estimated);
        let left = self.runs.saturating_sub(tried.len());
        let best = Self::best_by(tried, |at| self.objective.of_beliefs(models.at(at)));
        if left <= self.runs / 5
            && let Some((best, _)) = best
        {
            return best;
        }
        let mut places: Vec<Vec<f64>> = self.candidates.iter().map(|candidate| candidate.at.clone()).collect();
        let mut rng = Pcg64::seed_from_u64(self.seed.wrapping_add(tried.len() as u64));
        if let Some((best, _)) = &best {
            // As in DAMOOS: also within a tenth of the range around the best.
            let near = |rng: &mut Pcg64| best.iter().map(|at| near(*at, rng)).collect();
            places.extend((0..64).map(|_| near(&mut rng)));
        }
        let gain = |at: &Vec<f64>| {
            let beliefs = models.at(at);
            let Some((_, best)) = best else {
                return self.objective.of(Changes::of(beliefs.map(|belief| belief.mean)));
            };
            draws()
                .map(|draw| {
                    let figures = std::array::from_fn(|of| beliefs[of].mean + beliefs[of].deviation * draw[of]);
                    (self.objective.of(Changes::of(figures)) - best).max(0.0)
                })
                .sum()
        };
        let gains: Vec<f64> = places.iter().map(gain).collect();
        let most = (0..places.len()).max_by(|a, b| gains[*a].total_cmp(&gains[*b]));
        most.map_or_else(|| vec![0.5; self.parameters], |nth| places.swap_remove(nth))
    }

    /// The best of the places that were tried. A model tells it by all runs, and without one, the mean of the runs at
    /// each place does.
    pub(super) fn best(&self, tried: &[Tried]) -> Option<Vec<f64>> {
        let best = match self.search {
            Search::Model => {
                let models = Models::of(tried, &self.candidates, self.is_estimated);
                Self::best_by(tried, |at| self.objective.of_beliefs(models.at(at)))
            }
            Search::Random | Search::Grid => Self::best_by(tried, |at| self.objective.of(mean_at(tried, at))),
        };
        best.map(|(at, _)| at)
    }

    /// The place that was tried with the highest score, and that score.
    fn best_by(tried: &[Tried], score: impl Fn(&[f64]) -> f64) -> Option<(Vec<f64>, f64)> {
        let scored = tried.iter().map(|tried| (&tried.at, score(&tried.at)));
        scored.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, score)| (at.clone(), score))
    }
}

/// The mean of the runs at a place.
pub(super) fn mean_at(tried: &[Tried], at: &[f64]) -> Changes {
    let there: Vec<[f64; 4]> = tried.iter().filter(|tried| tried.at == at).map(|tried| tried.changes.all()).collect();
    let mean = |figure: usize| there.iter().map(|all| all[figure]).sum::<f64>() / there.len().max(1) as f64;
    Changes::of(std::array::from_fn(mean))
}

fn near(at: f64, rng: &mut Pcg64) -> f64 {
    (at + rng.random_range(-0.1..0.1)).clamp(0.0, 1.0)
}

/// Draws from the normal distribution for each figure, the same at every call, so that places are compared fairly.
fn draws() -> impl Iterator<Item = [f64; 4]> {
    const COUNT: u32 = 64;
    (1..=COUNT).map(|nth| {
        let uniform = [2, 3, 5, 7].map(|base| inverse(nth, base).clamp(1e-6, 1.0 - 1e-6));
        // Box and Muller (1958).
        let pair = |a: f64, b: f64| {
            let (radius, angle) = ((-2.0 * a.ln()).sqrt(), std::f64::consts::TAU * b);
            [radius * angle.cos(), radius * angle.sin()]
        };
        let ([a, b], [c, d]) = (pair(uniform[0], uniform[1]), pair(uniform[2], uniform[3]));
        [a, b, c, d]
    })
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
