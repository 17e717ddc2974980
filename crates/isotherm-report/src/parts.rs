//! Into which parts the memory of a region falls, by its temperature.

use isotherm_core::RegionSnapshot;

use crate::source::Share;

/// Memory that is accessed at least so often is hot, in hertz. Memory that is accessed less often is warm, and memory
/// without accesses is cold.
pub const HOT_HZ: f64 = 10.0;

/// The shares of the memory of a region. Their sum is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Parts {
    /// Accessed at least as often as the limit says.
    pub hot: f64,
    /// Accessed less often.
    pub warm: f64,
    /// Not accessed.
    pub cold: f64,
    /// Not observable.
    pub unobservable: f64,
    /// Of which nothing is known yet.
    pub unknown: f64,
}

impl Parts {
    /// The parts of a region with these shares. Memory is hot from `hot` hertz on.
    ///
    /// Without a survey, the samples speak for the whole region. With one, only what the survey found touched is hot or
    /// warm, and the rest is cold; if samples found an access and the survey before them none, all that is known is.
    pub fn of(region: &RegionSnapshot, share: Share, hot: f64) -> Self {
        let (is_hot, is_accessed) = (share.hz >= hot, share.hz > 0.0 || share.accessed > 0.0);
        let Some(pages) = region.pages else {
            let unobservable = 1.0 - share.observed - share.unknown;
            let unseen = Self { unobservable, unknown: share.unknown, ..Self::default() };
            return unseen.with(is_hot, share.observed, if is_accessed { 1.0 } else { 0.0 });
        };
        let of = |bytes: u64| bytes as f64 / pages.present.max(1) as f64;
        let unobservable = of(pages.unobservable).min(1.0);
        let unknown = of(pages.unknown).min(1.0 - unobservable);
        let observable = 1.0 - unobservable;
        // The touched bytes have a part for those that are not known.
        let touched = match pages.touched {
            0 if is_accessed => 1.0,
            touched => (of(touched) / observable.max(f64::MIN_POSITIVE)).min(1.0),
        };
        Self { unobservable, unknown, ..Self::default() }.with(is_hot, observable - unknown, touched)
    }

    /// Divides the share `known` by its temperature.
    fn with(self, is_hot: bool, known: f64, touched: f64) -> Self {
        let (used, cold) = (known * touched, known * (1.0 - touched));
        if is_hot { Self { hot: used, cold, ..self } } else { Self { warm: used, cold, ..self } }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use isotherm_core::{AddrRange, Figures};

    use super::*;

    fn region(nr_accesses: u32, pages: Option<Figures>) -> RegionSnapshot {
        let range = AddrRange::new(0, 1 << 20).unwrap();
        RegionSnapshot { nr_accesses, nr_samples: 20, pages, ..RegionSnapshot::new(range) }
    }

    fn of(region: &RegionSnapshot) -> Parts {
        Parts::of(region, Share::of(region, 20, Duration::from_millis(100)), HOT_HZ)
    }

    #[test]
    fn a_survey_tells_which_part_of_a_region_is_in_use() {
        let pages = Figures { present: 100, touched: 40, unobservable: 20, ..Figures::default() };
        let parts = of(&region(0, Some(pages)));
        assert_eq!((parts.hot, parts.unobservable, parts.unknown), (0.0, 0.2, 0.0));
        assert!((parts.warm - 0.4).abs() < 1e-9 && (parts.cold - 0.4).abs() < 1e-9, "{parts:?}");
        let hot = of(&region(20, Some(pages)));
        assert!((hot.hot - 0.4).abs() < 1e-9 && hot.warm == 0.0);
    }

    #[test]
    fn what_is_not_known_is_neither_hot_nor_cold() {
        let pages = Figures { present: 100, unknown: 100, ..Figures::default() };
        assert_eq!(of(&region(0, Some(pages))), Parts { unknown: 1.0, ..Parts::default() });
        let unsampled = RegionSnapshot { nr_samples: 0, ..region(0, None) };
        assert_eq!(of(&unsampled), Parts { unknown: 1.0, ..Parts::default() });
    }
}
