//! What is best: a score of runtime and memory, or the most memory within bounds.

use exmex::{Express, FlatEx};

use super::surrogate::Belief;
use crate::EvalError;

/// The figures of which scores are made, as changes to runs without a scheme.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Changes {
    /// Of the runtime, in per cent.
    pub runtime: f64,
    /// Of the resident memory of the program, in per cent.
    pub rss: f64,
    /// Of the memory of the system that is not free, in per cent of the resident memory of the program without a
    /// scheme.
    pub system: f64,
    /// Of the share of time in which some task waits for memory (PSI some), in points of per cent.
    pub pressure: f64,
}

impl Changes {
    /// The names of the figures in scores.
    pub const NAMES: [&'static str; 4] = ["runtime", "rss", "system", "pressure"];

    /// The figures in the order of their names.
    pub fn all(self) -> [f64; 4] {
        [self.runtime, self.rss, self.system, self.pressure]
    }

    /// Figures in the order of their names.
    pub fn of([runtime, rss, system, pressure]: [f64; 4]) -> Self {
        Self { runtime, rss, system, pressure }
    }
}

/// The score of the tuner of the DAMON papers, DAMOOS: the mean of what is saved of both.
const DEFAULT: &str = "-(0.5 * runtime + 0.5 * rss)";

/// A run that is slower by more than this is worth nothing, in per cent. As in DAMOOS.
const TOO_SLOW: f64 = 20.0;

/// What such a run scores.
const WORTHLESS: f64 = -1000.0;

/// The indices of figures that bounds are about, in [`Changes::NAMES`].
const RUNTIME: usize = 0;
const PRESSURE: usize = 3;

/// How many standard deviations a figure is above the mean at most, with 95 %.
const ONE_SIDED: f64 = 1.645;

/// What is best. A higher score is better.
#[derive(Clone, Debug)]
pub struct Objective {
    text: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Score { expression: Box<FlatEx<f64>>, figures: Vec<usize> },
    MostMemory { slowdown: Option<f64>, pressure: Option<f64> },
}

impl Default for Objective {
    fn default() -> Self {
        match Self::score(DEFAULT) {
            Ok(objective) => objective,
            Err(_) => Self::most_memory(Some(1.0), None),
        }
    }
}

impl Objective {
    /// A score, as an expression with the names of [`Changes`].
    ///
    /// # Errors
    /// If the text is no expression, or has other names.
    pub fn score(text: &str) -> Result<Self, EvalError> {
        let wrong = |what: String| EvalError::Score { text: text.into(), what };
        let expression: FlatEx<f64> = exmex::parse(text).map_err(|error| wrong(error.to_string()))?;
        let mut figures = Vec::new();
        for name in expression.var_names() {
            let figure = Changes::NAMES.iter().position(|known| known == name);
            figures.push(figure.ok_or_else(|| wrong(format!("there is no figure {name:?}")))?);
        }
        if figures.is_empty() {
            return Err(wrong("it has no figure".into()));
        }
        let text = format!("the highest {text}");
        Ok(Self { text, kind: Kind::Score { expression: Box::new(expression), figures } })
    }

    /// The least resident memory, if the runtime does not become longer by more than `slowdown` per cent, and the
    /// pressure not higher by more than `pressure` points of per cent.
    pub fn most_memory(slowdown: Option<f64>, pressure: Option<f64>) -> Self {
        let slowdown_text = slowdown.map(|percent| format!("a slowdown of at most {percent} %"));
        let pressure_text = pressure.map(|percent| format!("at most {percent} % more pressure (PSI some)"));
        let bounds: Vec<String> = slowdown_text.into_iter().chain(pressure_text).collect();
        let text = format!("the least resident memory, with {}", bounds.join(" and "));
        Self { text, kind: Kind::MostMemory { slowdown, pressure } }
    }

    /// What it is, in words.
    pub fn about(&self) -> &str {
        &self.text
    }

    /// The score of what is believed: of the expected changes. Within bounds, the runtime and the pressure count as
    /// high as they are with 95 % at most, so that a bound is not kept by luck alone.
    pub(super) fn of_beliefs(&self, beliefs: [Belief; 4]) -> f64 {
        let mut figures = beliefs.map(|belief| belief.mean);
        if let Kind::MostMemory { .. } = self.kind {
            for figure in [RUNTIME, PRESSURE] {
                figures[figure] += ONE_SIDED * beliefs[figure].deviation;
            }
        }
        self.of(Changes::of(figures))
    }

    /// The score of changes. A score that is not a number is worthless.
    pub fn of(&self, changes: Changes) -> f64 {
        let score = match &self.kind {
            Kind::Score { .. } if changes.runtime > TOO_SLOW => WORTHLESS,
            Kind::Score { expression, figures } => {
                let all = changes.all();
                let values: Vec<f64> = figures.iter().map(|figure| all[*figure]).collect();
                expression.eval(&values).unwrap_or(WORTHLESS)
            }
            Kind::MostMemory { slowdown, pressure } => {
                let over = |change: f64, bound: &Option<f64>| bound.map_or(0.0, |bound| (change - bound).max(0.0));
                let over = over(changes.runtime, slowdown) + over(changes.pressure, pressure);
                // What is over the bounds is worse than all that is within, and the worse the further.
                if over > 0.0 { -200.0 - over.min(700.0) } else { -changes.rss }
            }
        };
        if score.is_finite() { score.max(WORTHLESS) } else { WORTHLESS }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    fn changes(runtime: f64, rss: f64) -> Changes {
        Changes { runtime, rss, ..Changes::default() }
    }

    #[test]
    fn the_default_is_that_of_the_papers_tool() {
        let score = Objective::default();
        assert_eq!(score.of(changes(2.0, -40.0)), 19.0);
        assert_eq!(score.of(changes(20.5, -90.0)), WORTHLESS);
    }

    #[test]
    fn a_score_has_the_figures_by_name() {
        let score = Objective::score("min(0, 1 - runtime) * 100 - system - pressure / 2").unwrap();
        let all = Changes { runtime: 2.0, rss: 7.0, system: -5.0, pressure: 1.0 };
        assert_eq!(score.of(all), -95.5);
        assert_eq!(Objective::score("1 / rss").unwrap().of(changes(0.0, 0.0)), WORTHLESS);
        for (text, part) in [("-(runtime", "runtime"), ("-time", "\"time\""), ("1 + 1", "no figure")] {
            let error = Objective::score(text).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("runtime, rss, system, pressure"), "{error}");
        }
    }

    #[test]
    fn within_bounds_the_most_memory_is_best_and_beyond_them_the_least_excess() {
        let most = Objective::most_memory(Some(1.0), Some(0.1));
        assert!(most.of(changes(0.9, -30.0)) > most.of(changes(0.0, -20.0)));
        assert!(most.of(changes(0.0, 50.0)) > most.of(changes(1.5, -90.0)));
        assert!(most.of(changes(1.5, -20.0)) > most.of(changes(3.0, -90.0)));
        assert!(most.of(Changes { pressure: 0.2, ..changes(0.0, -90.0) }) < -200.0);
    }
}
