//! A model of what runs give: a Gaussian process over the values of the parameters (Rasmussen and Williams, "Gaussian
//! Processes for Machine Learning", 2006, chapters 2 and 5).
//!
//! What a trial on recordings estimates is the mean before the first run. The runs say how much of the estimate holds,
//! and what it leaves out. How smooth the figures are and how much they scatter is chosen by the likelihood of the
//! runs.

/// What is known of a figure at one place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Belief {
    /// The expected value.
    pub(super) mean: f64,
    /// The standard deviation of what is believed of it. The scatter of single runs is not part of it.
    pub(super) deviation: f64,
}

/// A place in the ranges of the parameters, each from 0 to 1, and what is estimated there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place {
    pub(super) at: Vec<f64>,
    /// The estimate of the figure; 0 without recordings.
    pub(super) estimate: f64,
}

/// Lengths over which a figure changes, as parts of the range.
const LENGTHS: [f64; 5] = [0.08, 0.16, 0.32, 0.64, 1.28];

/// By how much a figure differs over the range, in per cent.
const SCALES: [f64; 7] = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0];

/// By how much single runs differ, in per cent.
const NOISES: [f64; 6] = [0.1, 0.3, 1.0, 2.0, 4.0, 8.0];

/// By how much the estimate may be wrong as a whole: as a part of itself, and beside it in per cent.
const WRONG: [f64; 2] = [0.5, 2.0];

/// What is believed before any run.
const USUAL: Shape = Shape { length: 0.32, scale: 8.0, noise: 1.0 };

#[derive(Clone, Copy, Debug, PartialEq)]
struct Shape {
    length: f64,
    scale: f64,
    noise: f64,
}

impl Shape {
    fn covariance(&self, a: &Place, b: &Place) -> f64 {
        let square: f64 = a.at.iter().zip(&b.at).map(|(a, b)| (a - b).powi(2)).sum();
        // Matérn, 5/2.
        let d = (5.0 * square).sqrt() / self.length;
        let near = self.scale.powi(2) * (1.0 + d + d * d / 3.0) * (-d).exp();
        near + WRONG[0].powi(2) * a.estimate * b.estimate + WRONG[1].powi(2)
    }

    /// How likely it is before any run, as a logarithm: smooth figures and little scatter are.
    fn prior(&self) -> f64 {
        let apart = |value: f64, usual: f64| -0.5 * (value / usual).ln().powi(2);
        apart(self.length, 0.4) + 0.25 * apart(self.scale, 6.0) + 0.25 * apart(self.noise, 1.0)
    }
}

/// A model of one figure.
#[derive(Clone, Debug)]
pub(super) struct Surrogate {
    places: Vec<Place>,
    shape: Shape,
    /// The lower triangle of the Cholesky factor of the covariances, by rows.
    factor: Vec<Vec<f64>>,
    weights: Vec<f64>,
}

impl Surrogate {
    /// A model of runs at places. Without any, it has the estimates.
    pub(super) fn of(places: Vec<Place>, values: &[f64]) -> Self {
        let apart: Vec<f64> = places.iter().zip(values).map(|(place, value)| value - place.estimate).collect();
        let mut best: Option<(f64, Self)> = None;
        if apart.iter().all(|value| *value == 0.0) {
            // A figure that this machine does not tell, such as the pressure.
            let shape = Shape { length: 0.32, scale: 0.01, noise: 0.1 };
            let shape = if places.is_empty() { USUAL } else { shape };
            let factor = factor(&places, shape);
            return Self { places, shape, factor, weights: apart };
        }
        for (length, scale, noise) in LENGTHS
            .into_iter()
            .flat_map(|length| SCALES.into_iter().map(move |scale| (length, scale)))
            .flat_map(|(length, scale)| NOISES.into_iter().map(move |noise| (length, scale, noise)))
        {
            let shape = Shape { length, scale, noise };
            let factor = factor(&places, shape);
            let weights = solve(&factor, &apart);
            let fit: f64 = apart.iter().zip(&weights).map(|(value, weight)| value * weight).sum();
            let volume: f64 = factor.iter().enumerate().map(|(nth, row)| row[nth].ln()).sum();
            let likelihood = shape.prior() - 0.5 * fit - volume;
            if best.as_ref().is_none_or(|(most, _)| likelihood > *most) {
                best = Some((likelihood, Self { places: places.clone(), shape, factor, weights }));
            }
        }
        best.map_or(Self { places: vec![], shape: USUAL, factor: vec![], weights: vec![] }, |(_, model)| model)
    }

    /// What is believed at a place.
    pub(super) fn at(&self, place: &Place) -> Belief {
        let shared: Vec<f64> = self.places.iter().map(|known| self.shape.covariance(known, place)).collect();
        let mean = place.estimate + shared.iter().zip(&self.weights).map(|(a, b)| a * b).sum::<f64>();
        let known: f64 = forward(&self.factor, &shared).iter().map(|part| part * part).sum();
        let variance = self.shape.covariance(place, place) - known;
        Belief { mean, deviation: variance.max(0.0).sqrt() }
    }
}

/// The Cholesky factor of the covariances of runs.
fn factor(places: &[Place], shape: Shape) -> Vec<Vec<f64>> {
    let mut rows: Vec<Vec<f64>> = Vec::with_capacity(places.len());
    for (i, place) in places.iter().enumerate() {
        let mut row = Vec::with_capacity(i + 1);
        for j in 0..=i {
            let known: f64 = (0..j).map(|k| row[k] * rows.get(j).map_or(row[k], |other: &Vec<f64>| other[k])).sum();
            let left = shape.covariance(place, &places[j]) - known;
            // The scatter of runs keeps the diagonal above zero.
            row.push(if i == j { (left + shape.noise.powi(2)).max(1e-9).sqrt() } else { left / rows[j][j] });
        }
        rows.push(row);
    }
    rows
}

/// The solution x of L x = b.
fn forward(factor: &[Vec<f64>], b: &[f64]) -> Vec<f64> {
    let mut x: Vec<f64> = Vec::with_capacity(b.len());
    for (row, b) in factor.iter().zip(b) {
        let known: f64 = row.iter().zip(&x).map(|(l, x)| l * x).sum();
        x.push((b - known) / row[x.len()]);
    }
    x
}

/// The solution x of L Lᵀ x = b.
fn solve(factor: &[Vec<f64>], b: &[f64]) -> Vec<f64> {
    let mut x = forward(factor, b);
    for i in (0..x.len()).rev() {
        let known: f64 = (i + 1..x.len()).map(|k| factor[k][i] * x[k]).sum();
        x[i] = (x[i] - known) / factor[i][i];
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(at: f64, estimate: f64) -> Place {
        Place { at: vec![at], estimate }
    }

    #[test]
    fn systems_are_solved() {
        let places: Vec<Place> = [0.1, 0.4, 0.9].map(|at| place(at, 0.0)).into();
        let shape = Shape { length: 0.3, scale: 2.0, noise: 0.5 };
        let b = [1.0, -2.0, 3.0];
        let x = solve(&factor(&places, shape), &b);
        for (i, b) in b.into_iter().enumerate() {
            let noise = x[i] * shape.noise.powi(2);
            let found: f64 = (0..3).map(|j| shape.covariance(&places[i], &places[j]) * x[j]).sum();
            assert!((found + noise - b).abs() < 1e-9);
        }
    }

    #[test]
    fn runs_are_believed_where_they_were_made_and_the_estimate_elsewhere() {
        let none = Surrogate::of(vec![], &[]);
        assert_eq!(none.at(&place(0.3, 7.0)).mean, 7.0);
        assert!(none.at(&place(0.3, 0.0)).deviation > 4.0);

        let places: Vec<Place> = (0..=8).map(|nth| place(f64::from(nth) / 8.0, 0.0)).collect();
        let values: Vec<f64> = places.iter().map(|place| 10.0 * (3.0 * place.at[0]).sin()).collect();
        let model = Surrogate::of(places, &values);
        for at in [0.05, 0.31, 0.77] {
            let believed = model.at(&place(at, 0.0));
            assert!((believed.mean - 10.0 * (3.0 * at).sin()).abs() < 0.3, "{believed:?}");
            assert!(believed.deviation < 1.0, "{believed:?}");
        }
    }

    #[test]
    fn an_estimate_that_is_wrong_by_a_factor_is_mended_by_runs() {
        let truth = |at: f64| 2.0 * at * at * 10.0;
        let places: Vec<Place> = [0.2, 0.5, 1.0].map(|at| place(at, at * at * 10.0)).into();
        let values: Vec<f64> = places.iter().map(|place| truth(place.at[0])).collect();
        let model = Surrogate::of(places, &values);
        let believed = model.at(&place(0.8, 6.4)).mean;
        assert!((believed - truth(0.8)).abs() < 1.0, "{believed}");
    }
}
