//! What the cells of a heatmap measure.

use std::time::Duration;

/// Idle for this long is as cold as the colours show.
const COLDEST: Duration = Duration::from_secs(1800);

/// What the cells of a heatmap measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    /// The access rate, from samples.
    #[default]
    Rate,
    /// The share of the memory that was accessed within a survey interval, from surveys.
    Touched,
    /// For how long blocks of 2 MiB have been idle, from surveys.
    IdleTime,
}

impl Measure {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Touched => "touched",
            Self::IdleTime => "idle-time",
        }
    }

    /// The title of the scale, and what its cold and its hot end mean.
    pub(crate) fn scale(self) -> [&'static str; 3] {
        match self {
            Self::Rate => ["access rate", "0", "1"],
            Self::Touched => ["touched share", "0", "1"],
            Self::IdleTime => ["idle", "30 min", "0"],
        }
    }

    /// The place of an idle time on the scale, which is logarithmic: 1 for 0, and 0 for half an hour or more.
    pub(crate) fn heat(idle: Duration) -> f32 {
        let log = |time: Duration| time.as_secs_f64().ln_1p();
        (1.0 - log(idle) / log(COLDEST)).clamp(0.0, 1.0) as f32
    }
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
}
