//! A row on a walk: the pieces of its regions, and what is known of them.

use std::cell::OnceCell;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AddrRange, Frequency, Mapping, RegionSnapshot, TargetSnapshot, is_memory};
use isotherm_record::Row;

use super::walk::Detail;
use crate::parts::Parts;

/// A row on a walk.
pub struct Visit<'a> {
    /// The row.
    pub row: Row<'a>,
    /// What it has.
    pub detail: Detail,
    /// The start of the time that the row covers. The end is the time of the row.
    pub since: Duration,
    /// Whether it is the first row of its snapshot.
    pub first_of_snapshot: bool,
    /// The recorded time since the previous snapshot, or since the start of the run: the time in which the cost arose.
    /// Several recorders have snapshots of one time, with a cost each, if their recordings were merged.
    pub elapsed: Duration,
    /// Whether the target is selected. Rows of other targets are visited too, because costs are those of all targets.
    pub chosen: bool,
    pub(super) address: Option<AddrRange>,
    /// The frequency in hertz from which on memory is hot.
    pub(super) hot: f64,
    /// What [`known`](Self::known) has computed.
    pub(super) known: OnceCell<Vec<KnownPiece<'a>>>,
}

impl<'a> Visit<'a> {
    /// What is known of the mapped and selected memory, piece by piece in the order of addresses. It is computed once
    /// for all accumulators.
    pub(crate) fn known(&self) -> &[KnownPiece<'a>] {
        self.known.get_or_init(|| {
            let Row { samples, aggregation, target, .. } = self.row;
            let mut all = Vec::with_capacity(target.regions.len() + 16);
            for (region, places) in target.mapped_regions() {
                let share = Share::of(region, samples, aggregation);
                let parts = Parts::of(region, share, self.hot);
                for piece in pieces_of(target, region, places, self.address) {
                    all.push(KnownPiece { bytes: piece.present(), piece, parts, share });
                }
            }
            all
        })
    }

    /// The selected addresses.
    pub(crate) fn address(&self) -> Option<AddrRange> {
        self.address
    }

    /// The frequency in hertz from which on memory is hot.
    pub(crate) fn hot(&self) -> f64 {
        self.hot
    }

    /// The length of the time that the row covers.
    pub fn span(&self) -> Duration {
        self.row.time.saturating_sub(self.since)
    }

    /// The mapped and selected pieces of the regions, in the order of addresses.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        pieces(&self.row, self.address)
    }

    /// The pieces with their bytes in memory.
    pub fn present_pieces(&self) -> impl Iterator<Item = (Piece<'_>, u64)> {
        self.pieces().map(|piece| (piece, piece.present()))
    }

    /// The selected part of a range.
    pub fn clip(&self, range: AddrRange) -> Option<AddrRange> {
        self.address.map_or(Some(range), |wanted| wanted.intersection(range))
    }

    /// The selected parts of the mappings with their names, in the order of addresses.
    pub fn mapped(&self) -> impl Iterator<Item = (AddrRange, Arc<str>)> {
        let mappings = &self.row.target.mappings;
        let memory = mappings.iter().filter(|mapping| is_memory(mappings, mapping));
        memory.filter_map(|mapping| Some((self.clip(mapping.range)?, mapping.label())))
    }
}

/// The part of one region that lies in one mapping.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece<'a> {
    /// The addresses.
    pub range: AddrRange,
    /// The region.
    pub region: &'a RegionSnapshot,
    /// The mapping.
    pub mapping: &'a Mapping,
    /// The place of the mapping among those of the target.
    pub nth_mapping: usize,
    /// The bytes of all pieces of the region, selected or not. What is in memory of a region lies in them: a region of
    /// a survey can span large gaps between mappings.
    pub whole: u64,
}

impl Piece<'_> {
    /// Its bytes in memory. The present bytes of a region are divided among its mapped parts by their size. Without a
    /// survey, all mapped bytes count.
    pub fn present(&self) -> u64 {
        let size = self.range.size();
        match self.region.pages {
            None => size,
            // Most regions lie in one mapping.
            Some(pages) if size == self.whole => pages.present,
            Some(pages) => (u128::from(pages.present) * u128::from(size) / u128::from(self.whole.max(1))) as u64,
        }
    }
}

/// A piece, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownPiece<'a> {
    pub(crate) piece: Piece<'a>,
    /// Its bytes in memory.
    pub(crate) bytes: u64,
    /// Into which parts its memory falls, and which share of its samples found an access.
    pub(crate) parts: Parts,
    pub(crate) share: Share,
}

/// The mapped pieces of the regions of a row inside `address`, in the order of addresses. Address space without access
/// permission has none, unless a region has more in memory or in swap than fits into its other parts.
pub fn pieces<'a>(row: &Row<'a>, address: Option<AddrRange>) -> impl Iterator<Item = Piece<'a>> + use<'a> {
    let target = row.target;
    let regions = target.mapped_regions();
    regions.flat_map(move |(region, places)| pieces_of(target, region, places, address))
}

/// The pieces of a region in the mappings at these places.
fn pieces_of<'a>(
    target: &'a TargetSnapshot,
    region: &'a RegionSnapshot,
    places: Range<usize>,
    address: Option<AddrRange>,
) -> impl Iterator<Item = Piece<'a>> {
    let mappings = &*target.mappings;
    let parts = places.filter_map(move |nth| Some((nth, mappings[nth].range.intersection(region.range)?)));
    let parts = parts.map(move |(nth, range)| (nth, range, is_memory(mappings, &mappings[nth])));
    let (fits, all) = parts.clone().fold((0, 0), |(fits, all): (u64, u64), (_, range, is_memory)| {
        (fits + if is_memory { range.size() } else { 0 }, all + range.size())
    });
    let has_more = region.pages.is_some_and(|pages| pages.kept() > fits);
    let whole = if has_more { all } else { fits };
    parts.filter_map(move |(nth_mapping, range, is_memory)| {
        let range = address.map_or(Some(range), |wanted| wanted.intersection(range))?;
        let mapping = &mappings[nth_mapping];
        (is_memory || has_more).then_some(Piece { range, region, mapping, nth_mapping, whole })
    })
}

/// If a smaller share of the samples can be observed, surveys tell what is known.
const MOST: f64 = 0.5;

/// Shares of the samples of a region.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The share of samples that could be observed, 0 to 1.
    pub observed: f64,
    /// The share of samples that found an access, 0 to `observed`.
    pub accessed: f64,
    /// The share of the memory that was not sampled, and that no survey found idle. It is no part of
    /// `observed`.
    pub unknown: f64,
    /// How often a page of the observed memory is accessed, in hertz.
    pub hz: f64,
}

impl Share {
    /// The shares of a region. Of memory that samples cannot observe, a survey tells the frequency, or that it does not
    /// know.
    pub fn of(region: &RegionSnapshot, samples: u32, aggregation: Duration) -> Self {
        let by_samples = (1.0 - region.unobservable_share(samples)).clamp(0.0, 1.0);
        let (known, not_known) = region.pages.map_or((0.0, 0.0), |pages| {
            let rest = pages.present.saturating_sub(pages.unobservable.saturating_add(pages.unknown));
            let of = |bytes: u64| bytes as f64 / pages.present.max(1) as f64;
            (of(rest), of(pages.unknown))
        });
        let by_survey = if region.frequency.is_some() { known } else { 0.0 };
        let observed = by_samples.max(by_survey);
        if region.nr_samples == 0 && region.nr_accesses == 0 && by_survey == 0.0 {
            let idle = region.pages.map_or(0.0, |pages| {
                let other = pages.touched.saturating_add(pages.unobservable).saturating_add(pages.unknown);
                pages.present.saturating_sub(other) as f64 / pages.present.max(1) as f64
            });
            let known = observed.min(idle);
            return Self { observed: known, accessed: 0.0, unknown: observed - known, hz: 0.0 };
        }
        let accessed = region.access_rate(samples).min(observed);
        let unknown = if by_samples < MOST { not_known.min(1.0 - observed) } else { 0.0 };
        let share = Self { observed, accessed, unknown, hz: 0.0 };
        // Without a frequency, each sample has found one access at most.
        let found = || share.rate().unwrap_or(0.0) * f64::from(samples) / aggregation.as_secs_f64().max(1e-9);
        Self { hz: region.frequency.map_or_else(found, Frequency::hz), ..share }
    }

    /// The access rate of the observed samples, 0 to 1. None if there are none.
    pub fn rate(self) -> Option<f64> {
        (self.observed > 0.0).then(|| self.accessed / self.observed)
    }
}
