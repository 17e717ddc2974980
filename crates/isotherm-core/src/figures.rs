//! What is known of some memory: one type, with one `+`.
//!
//! [`Figures`] are what is known of the bytes of a region, of the pages of a block, or of the bytes of many snapshots
//! multiplied by their time: the unit is that of the [`Count`]. A new figure is a new field here. [`Figures::map`]
//! and [`Figures::with`] name every field, so that whatever scales, divides or adds figures has the new one, too.
//!
//! A figure of which a part can be unknown is a [`Quantity`]. The sum of a known and an unknown quantity is a lower
//! bound.

use std::iter::Sum;
use std::ops::{Add, AddAssign};

/// A number of bytes or pages, or one multiplied by a time.
pub trait Count: Copy + Default + PartialOrd {
    /// The sum. The largest number stands for all larger ones.
    #[must_use]
    fn plus(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl Count for $integer {
            fn plus(self, other: Self) -> Self {
                self.saturating_add(other)
            }
        }
    )*};
}

integers!(u16, u64, u128);

impl Count for f64 {
    fn plus(self, other: Self) -> Self {
        self + other
    }
}

/// A quantity of which a part may be unknown: then it is the least that there may be. The default is exactly zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quantity<N = u64> {
    least: N,
    /// Whether there may be more.
    is_bound: bool,
}

impl<N: Count> Quantity<N> {
    /// So much, and no more.
    pub const fn exact(quantity: N) -> Self {
        Self { least: quantity, is_bound: false }
    }

    /// So much, and perhaps more.
    pub const fn at_least(least: N) -> Self {
        Self { least, is_bound: true }
    }

    /// Nothing is known.
    pub fn unknown() -> Self {
        Self::at_least(N::default())
    }

    /// The quantity, if there is no more.
    pub fn known(self) -> Option<N> {
        (!self.is_bound).then_some(self.least)
    }

    /// The least that there is: 0 if nothing is known.
    pub const fn least(self) -> N {
        self.least
    }

    /// Whether there may be more than [`least`](Self::least).
    pub const fn is_bound(self) -> bool {
        self.is_bound
    }

    /// Whether nothing is known.
    pub fn is_unknown(self) -> bool {
        self == Self::unknown()
    }

    /// The same in another unit, or a part of it.
    #[must_use]
    pub fn map<M: Count>(self, change: impl FnOnce(N) -> M) -> Quantity<M> {
        Quantity { least: change(self.least), is_bound: self.is_bound }
    }

    /// A quantity made of both. It is exact if both are.
    #[must_use]
    pub fn with<O: Count, M: Count>(self, other: Quantity<O>, join: impl FnOnce(N, O) -> M) -> Quantity<M> {
        Quantity { least: join(self.least, other.least), is_bound: self.is_bound || other.is_bound }
    }
}

/// `None` is what is unknown.
impl<N: Count> From<Option<N>> for Quantity<N> {
    fn from(quantity: Option<N>) -> Self {
        quantity.map_or_else(Self::unknown, Self::exact)
    }
}

impl<N: Count> Add for Quantity<N> {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.with(other, N::plus)
    }
}

/// What is known of some memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures<N = u64> {
    /// What is in memory.
    pub present: N,
    /// Of the present memory, what was accessed since the survey before.
    pub touched: N,
    /// Of the present memory, what cannot be observed.
    pub unobservable: N,
    /// Of the present memory, that for which it is not known whether it was accessed since the survey before. The
    /// other figures of a sum count it as accessed in the same share as the known memory; [`touched`](Self::touched)
    /// does so if there is known memory.
    pub unknown: N,
    /// What is in swap, and so not in memory.
    pub swapped: Quantity<N>,
}

impl<N: Count> Figures<N> {
    /// Those of memory of which nothing is known. A source of figures begins with these, and says what it knows.
    pub fn unknown() -> Self {
        Self { swapped: Quantity::unknown(), ..Self::default() }
    }

    /// The same, with so much in swap.
    #[must_use]
    pub fn with_swapped(self, swapped: impl Into<Quantity<N>>) -> Self {
        Self { swapped: swapped.into(), ..self }
    }

    /// Each figure in another unit, or a part of it.
    #[must_use]
    pub fn map<M: Count>(self, mut change: impl FnMut(N) -> M) -> Figures<M> {
        self.with(self, |figure, _| change(figure))
    }

    /// Figures made of both, each of the same figure of both.
    #[must_use]
    pub fn with<O: Count, M: Count>(self, other: Figures<O>, mut join: impl FnMut(N, O) -> M) -> Figures<M> {
        Figures {
            present: join(self.present, other.present),
            touched: join(self.touched, other.touched),
            unobservable: join(self.unobservable, other.unobservable),
            unknown: join(self.unknown, other.unknown),
            swapped: self.swapped.with(other.swapped, join),
        }
    }

    /// What is in memory, or known to be in swap.
    pub fn kept(&self) -> N {
        self.present.plus(self.swapped.least())
    }

    /// The figures that are parts of the present memory.
    pub const fn of_present(&self) -> [N; 3] {
        [self.touched, self.unobservable, self.unknown]
    }

    /// With no part larger than the present memory, and no more in memory and in swap than `size`.
    #[must_use]
    pub fn limited_to(self, size: N) -> Self
    where
        N: std::ops::Sub<Output = N>,
    {
        let least = |one: N, other: N| if other < one { other } else { one };
        let present = least(self.present, size);
        let limited = self.map(|part| least(part, present));
        Self { swapped: self.swapped.map(|bytes| least(bytes, size - present)), ..limited }
    }
}

impl<N: Count> Add for Figures<N> {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.with(other, N::plus)
    }
}

impl<N: Count> AddAssign for Figures<N> {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl<N: Count> Sum for Figures<N> {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_of_a_known_and_an_unknown_amount_is_a_lower_bound() {
        let all = [Quantity::exact(3_u64), Quantity::unknown(), Quantity::exact(4)];
        let sum = all.into_iter().fold(Quantity::default(), Add::add);
        assert_eq!((sum, sum.known(), sum.least()), (Quantity::at_least(7), None, 7));
        assert_eq!(Quantity::exact(3_u64) + Quantity::exact(4), Quantity::exact(7));
        assert!((Quantity::<u64>::unknown() + Quantity::default()).is_unknown());
    }

    #[test]
    fn no_part_is_larger_than_the_whole() {
        let figures = Figures { present: 9_u64, touched: 8, unobservable: 1, unknown: 0, swapped: Quantity::exact(5) };
        assert_eq!(figures.limited_to(7), Figures { present: 7, touched: 7, swapped: Quantity::exact(0), ..figures });
        assert_eq!(figures.limited_to(11), Figures { swapped: Quantity::exact(2), ..figures });
    }
}
