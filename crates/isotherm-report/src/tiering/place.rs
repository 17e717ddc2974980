//! The bytes of memory that lie in the fast tier, for each of its sizes.

use isotherm_core::tiering::Patience;

/// A part of a unit, which is placed by its bytes in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    /// Bytes in memory.
    pub(super) present: u64,
    /// Accesses to pages in a second, as the last survey tells: each page that it found touched counts once.
    pub(super) surveyed: f64,
    /// Bytes whose accesses are not known.
    pub(super) unknown: f64,
    /// Accesses to pages that samples found since the start of the look.
    pub(super) sampled: f64,
    /// The exponentially decaying mean of the accesses per byte in a second. `None` before the first look.
    pub(super) temperature: Option<f64>,
    /// Which of the last looks found it accessed: bit 0 is for the last one.
    pub(super) looks: u16,
    /// When a look found it accessed last, or saw it first, in seconds.
    pub(super) accessed_at: Option<f32>,
    /// Whether it was there at the first look, and no look has found it accessed.
    pub(super) never_accessed: bool,
    /// Where it lies, for each size of the fast tier.
    pub(super) places: Box<[Place]>,
}

impl Part {
    /// A part without memory, for this many sizes of the fast tier.
    pub(super) fn new(sizes: usize) -> Self {
        Self { places: vec![Place::default(); sizes].into(), ..Self::default() }
    }
}

/// Where a part lies with one size of the fast tier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Its bytes in the fast tier by first touch.
    pub(super) first: u64,
    /// Its bytes in the fast tier as isotherm moves them.
    pub(super) moved: u64,
    /// When some of it was promoted last, and when demoted, in seconds. Long ago if it never was.
    pub(super) promoted_at: f32,
    pub(super) demoted_at: f32,
}

impl Default for Place {
    fn default() -> Self {
        Self { first: 0, moved: 0, promoted_at: f32::NEG_INFINITY, demoted_at: f32::NEG_INFINITY }
    }
}

/// A size of the fast tier, and what happened with it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Size {
    /// Bytes of the fast tier.
    pub(super) bytes: u64,
    /// Of these, in use by first touch.
    pub(super) first_used: u64,
    /// Of these, in use as isotherm moves memory.
    pub(super) moved_used: u64,
    /// Accesses that the slow tier served: in all, and in the second half of the time.
    pub(super) first: Served,
    pub(super) moved: Served,
    pub(super) best: Served,
    pub(super) promoted: u64,
    pub(super) demoted: u64,
    /// How much evidence memory needs to make room for other memory.
    pub(super) patience: Patience,
}

/// Accesses: in all, and in the second half of the time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Served {
    pub(super) all: f64,
    pub(super) late: f64,
}

impl Served {
    pub(super) fn add(&mut self, accesses: f64, late: bool) {
        self.all += accesses;
        self.late += if late { accesses } else { 0.0 };
    }
}

/// Gives a part another number of bytes in memory. New memory goes to the fast tier while there is room. Freed
/// memory was in both tiers in the shares of the part.
pub(super) fn resize(part: &mut Part, present: u64, sizes: &mut [Size]) {
    let before = std::mem::replace(&mut part.present, present);
    for (place, size) in part.places.iter_mut().zip(sizes) {
        let bytes = size.bytes;
        for (fast, used) in [(&mut place.first, &mut size.first_used), (&mut place.moved, &mut size.moved_used)] {
            let kept = if present >= before {
                *fast + (present - before).min(bytes - *used)
            } else {
                share(*fast, present, before)
            };
            *used = *used - *fast + kept;
            *fast = kept;
        }
    }
}

/// Gives `bytes` of one part to another, in the shares in which it lies in both tiers.
pub(super) fn transfer(from: &mut Part, to: &mut Part, bytes: u64) {
    for (from_place, to_place) in from.places.iter_mut().zip(&mut to.places) {
        let places = [(&mut from_place.first, &mut to_place.first), (&mut from_place.moved, &mut to_place.moved)];
        for (fast, other) in places {
            // What stays cannot be more than what is left.
            let given = share(*fast, bytes, from.present).max(fast.saturating_sub(from.present - bytes));
            *fast -= given;
            *other += given;
        }
    }
    from.present -= bytes;
    to.present += bytes;
}

/// `bytes` times `part`, divided by `whole`.
pub(super) fn share(bytes: u64, part: u64, whole: u64) -> u64 {
    (u128::from(bytes) * u128::from(part) / u128::from(whole.max(1))) as u64
}
