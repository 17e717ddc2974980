//! Searches on landscapes whose truth is known.

use super::*;

/// A program, of which memory is reclaimed after an age: what is reclaimed and comes back costs time.
struct Landscape {
    /// The age, as a place, from which on memory is idle for long.
    knee: f64,
    /// The most that is slower, in per cent.
    cost: f64,
    /// The memory that is idle, in per cent.
    idle: f64,
    parameters: usize,
    /// The scatter of single runs, in per cent.
    noise: f64,
}

impl Landscape {
    fn truth(&self, at: &[f64]) -> Changes {
        // Other parameters have a best value in the middle.
        let apart: f64 = at[1..].iter().map(|at| (at - 0.6).powi(2)).sum();
        let runtime = self.cost / (1.0 + ((at[0] - self.knee) * 25.0).exp()) + 20.0 * apart;
        Changes { runtime, rss: -self.idle * (1.0 - at[0] * at[0]), ..Changes::default() }
    }

    fn run(&self, at: &[f64], rng: &mut Pcg64) -> Changes {
        let mut noise = || self.noise * ((0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0);
        let truth = self.truth(at);
        Changes { runtime: truth.runtime + noise(), rss: truth.rss + noise(), ..Changes::default() }
    }

    /// An estimate with faults of half their price, and without what other parameters do.
    fn estimate(&self, at: &[f64]) -> Changes {
        let truth = self.truth(&at[..1]);
        Changes { runtime: truth.runtime / 2.0, rss: truth.rss * 1.1, ..truth }
    }

    /// How far the score of what a search finds is from the best there is, on the mean of many searches.
    fn lost(&self, objective: &Objective, search: Search, is_estimated: bool, runs: usize) -> f64 {
        let candidates = |seed: u64| -> Vec<Candidate> {
            let _ = seed;
            let places = spread(self.parameters, 64);
            let estimate = |at: &[f64]| if is_estimated { self.estimate(at) } else { Changes::default() };
            places.into_iter().map(|at| Candidate { estimate: estimate(&at), at }).collect()
        };
        let score = |at: &[f64]| objective.of(self.truth(at));
        let best = spread(self.parameters, 4000).iter().map(|at| score(at)).fold(f64::NEG_INFINITY, f64::max);
        const SEARCHES: u64 = 12;
        let lost = (0..SEARCHES).map(|seed| {
            let (parameters, seed) = (self.parameters, seed * 1000);
            let candidates = candidates(seed);
            let course = Course { search, objective, parameters, runs, candidates, is_estimated, seed };
            let (mut tried, mut rng) = (Vec::new(), Pcg64::seed_from_u64(seed + 7));
            for _ in 0..runs {
                let at = course.next(&tried);
                tried.push(Tried { changes: self.run(&at, &mut rng), at });
            }
            best - course.best(&tried).map_or(WORST, |at| score(&at))
        });
        lost.sum::<f64>() / SEARCHES as f64
    }
}

const WORST: f64 = -1000.0;

fn landscapes() -> [Landscape; 3] {
    [
        Landscape { knee: 0.35, cost: 60.0, idle: 40.0, parameters: 1, noise: 1.5 },
        Landscape { knee: 0.7, cost: 15.0, idle: 70.0, parameters: 1, noise: 1.0 },
        Landscape { knee: 0.5, cost: 30.0, idle: 50.0, parameters: 2, noise: 1.0 },
    ]
}

#[test]
fn a_model_finds_better_values_than_chance_and_a_grid_at_the_same_number_of_runs() {
    let objective = Objective::default();
    let mut sums = [0.0; 4];
    for (nth, landscape) in landscapes().iter().enumerate() {
        let lost = |search, is_estimated| landscape.lost(&objective, search, is_estimated, 12);
        let all = [lost(Search::Model, true), lost(Search::Model, false), lost(Search::Random, false)];
        let all = [all[0], all[1], all[2], lost(Search::Grid, false)];
        println!("landscape {nth}: points of score lost by model with estimates, model, random, grid: {all:.2?}");
        sums = std::array::from_fn(|of| sums[of] + all[of]);
    }
    println!("sums: {sums:.2?}");
    assert!(sums[1] < sums[2].min(sums[3]), "{sums:?}");
    assert!(sums[0] < 0.8 * sums[2].min(sums[3]), "{sums:?}");
}

#[test]
fn a_bound_is_kept_on_the_mean() {
    let landscape = Landscape { knee: 0.35, cost: 30.0, idle: 40.0, parameters: 1, noise: 0.5 };
    let objective = Objective::most_memory(Some(1.0), None);
    let [model, random] = [(Search::Model, true), (Search::Random, false)]
        .map(|(search, is_estimated)| landscape.lost(&objective, search, is_estimated, 14));
    println!("points of memory lost within a bound by model, random: {model:.2} {random:.2}");
    assert!(model < random, "{model} {random}");
}

#[test]
fn places_are_spread_and_a_grid_has_its_ends() {
    assert_eq!(spread(1, 5), [[0.0], [1.0], [0.5], [0.25], [0.75]]);
    let objective = Objective::default();
    let course = Course {
        search: Search::Grid,
        objective: &objective,
        parameters: 2,
        runs: 10,
        candidates: vec![],
        is_estimated: false,
        seed: 0,
    };
    assert_eq!((course.grid(0), course.grid(8)), (vec![0.0, 0.0], vec![1.0, 1.0]));
    assert_eq!(course.grid(1), [0.5, 0.0]);
}

#[test]
fn estimates_are_met_and_lie_between() {
    let of = |at: f64, runtime: f64| Candidate { at: vec![at], estimate: Changes { runtime, ..Changes::default() } };
    let estimated = [of(0.0, 1.0), of(0.5, 3.0), of(1.0, 9.0)];
    assert_eq!(between(&estimated, &[0.5]).runtime, 3.0);
    assert!((between(&estimated, &[0.25]).runtime - 2.0).abs() < 1e-9);
    assert_eq!(between(&[], &[0.5]), Changes::default());
}
