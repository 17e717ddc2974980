//! What the cells of a heatmap measure.

use std::time::Duration;

use crate::colour::{Rgb, of_rate};

/// Idle for this long is as cold as the colours show.
const COLDEST: Duration = Duration::from_secs(1800);

/// What the cells of a heatmap measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    /// How often a page is accessed, from samples of several lengths and from surveys.
    #[default]
    Rate,
    /// The share of the memory that was accessed within a survey interval, from surveys.
    Touched,
    /// For how long blocks of 2 MiB have been idle, from surveys.
    IdleTime,
}

impl Measure {
    /// Each with its name on the command line and what it is.
    pub const NAMES: [(Self, &'static str, &'static str); 3] = [
        (Self::Rate, "rate", "How often a page is accessed, in hertz, from samples and surveys"),
        (Self::Touched, "touched", "How much memory was touched within a survey interval"),
        (Self::IdleTime, "idle-time", "For how long memory has been idle, from surveys"),
    ];

    /// The frequencies at which the scale of colours begins to be logarithmic, and at which it ends.
    pub(crate) const HERTZ: [f64; 2] = [0.05, 200.0];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }

    /// The title of the scale, and what its cold and its hot end mean.
    pub(crate) fn scale(self) -> [&'static str; 3] {
        match self {
            Self::Rate => ["frequency in Hz, logarithmic", "0", "200"],
            Self::Touched => ["touched share, logarithmic", "0", "1"],
            Self::IdleTime => ["idle, logarithmic", "30 min", "0"],
        }
    }

    /// What the values of cells are called: `frequency`.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Rate => "frequency",
            Self::Touched => "touched share",
            Self::IdleTime => "idle",
        }
    }

    /// Ticks of the scale: the place of each from 0 (cold) to 1 (hot), and its label.
    pub(crate) fn ticks(self) -> Vec<(f64, &'static str)> {
        match self {
            Self::Rate => [(0.1, "0.1"), (1.0, "1"), (10.0, "10"), (100.0, "100")]
                .map(|(hz, label)| (f64::from(Self::heat_of(hz)), label))
                .into(),
            Self::Touched => [(0.01, "0.01"), (0.05, "0.05"), (0.2, "0.2"), (0.5, "0.5")]
                .map(|(value, label)| (place(value), label))
                .into(),
            Self::IdleTime => [(300, "5 min"), (60, "1 min"), (10, "10 s"), (2, "2 s")]
                .map(|(seconds, label)| (Self::heat(Duration::from_secs(seconds)).into(), label))
                .into(),
        }
    }

    /// The colour of a cell with this value, 0 to 1.
    pub(crate) fn colour(self, value: f64) -> Rgb {
        match self {
            Self::Touched => of_rate(place(value)),
            Self::Rate | Self::IdleTime => of_rate(value),
        }
    }

    /// The place of a frequency in hertz on the scale, which is logarithmic: 0 for none, and 1 for 200 Hz or more.
    pub fn heat_of(hz: f64) -> f32 {
        let [from, to] = Self::HERTZ;
        let log = |hz: f64| (hz / from).ln_1p();
        (log(hz) / log(to)).clamp(0.0, 1.0) as f32
    }

    /// The place of an idle time on the scale, which is logarithmic: 1 for 0, and 0 for half an hour or more.
    pub(crate) fn heat(idle: Duration) -> f32 {
        let log = |time: Duration| time.as_secs_f64().ln_1p();
        (1.0 - log(idle) / log(COLDEST)).clamp(0.0, 1.0) as f32
    }
}

/// The place of a rate on the scale of colours. The scale is logarithmic, so that rarely accessed memory differs from
/// memory without accesses: a rate of 0.01 lies at 0.15, and one of 0.1 at 0.52.
fn place(rate: f64) -> f64 {
    /// By how many rates that can be told apart the scale begins to be logarithmic.
    const STRETCH: f64 = 99.0;
    (rate.clamp(0.0, 1.0) * STRETCH).ln_1p() / STRETCH.ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_idle_for_longer_is_colder() {
        let heat = |seconds| Measure::heat(Duration::from_secs(seconds));
        assert_eq!((heat(0), heat(1800), heat(100_000)), (1.0, 0.0, 0.0));
        assert!(heat(1) > heat(10) && heat(10) > heat(600));
    }

    #[test]
    fn rarely_accessed_memory_differs_from_memory_without_accesses() {
        assert_eq!((place(0.0), place(1.0)), (0.0, 1.0));
        let distance = |a: Rgb, b: Rgb| a.iter().zip(b).map(|(&a, b)| u32::from(a.abs_diff(b))).sum::<u32>();
        assert!(distance(Measure::Touched.colour(0.0), Measure::Touched.colour(0.05)) > 100);
        assert!(distance(Measure::Touched.colour(0.5), Measure::Touched.colour(1.0)) > 50);
        let colour = |hz| Measure::Rate.colour(Measure::heat_of(hz).into());
        for (less, more) in [(0.0, 0.2), (0.2, 2.0), (2.0, 20.0), (20.0, 200.0)] {
            assert!(distance(colour(less), colour(more)) > 50, "{less} Hz and {more} Hz");
        }
    }

    #[test]
    fn ticks_go_from_cold_to_hot() {
        for measure in [Measure::Rate, Measure::Touched, Measure::IdleTime] {
            let places: Vec<f64> = measure.ticks().into_iter().map(|(place, _)| place).collect();
            assert!(places.is_sorted() && places[0] > 0.1 && places[places.len() - 1] < 0.95, "{places:?}");
        }
    }
}
