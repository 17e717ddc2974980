//! Joins what several recordings say of the same time.

use std::time::Duration;

/// An item of one recording, and the time for which it holds: after `since`, up to `until`.
#[derive(Clone, Debug)]
pub(super) struct Piece<T> {
    pub(super) since: Duration,
    /// The time of the item.
    pub(super) end: Duration,
    /// Its time, or a later one if no item follows.
    pub(super) until: Duration,
    pub(super) item: T,
}

impl<T> Piece<T> {
    /// An item that holds at its time alone.
    pub(super) fn at(time: Duration, item: T) -> Self {
        Self { since: time, end: time, until: time, item }
    }

    fn covers(&self, time: Duration) -> bool {
        time == self.end || (self.since < time && time <= self.until)
    }
}

/// The items of one recording, in the order of their ends.
pub(super) type Pieces<'a, T> = Box<dyn Iterator<Item = Piece<T>> + 'a>;

/// What all recordings say of one time.
#[derive(Clone, Debug)]
pub(super) struct Moment<T> {
    pub(super) time: Duration,
    /// The items that hold at this time, in the order of the recordings.
    pub(super) shares: Vec<Share<T>>,
}

/// What one recording says of one time.
#[derive(Clone, Debug)]
pub(super) struct Share<T> {
    /// The index of the recording.
    pub(super) of: usize,
    /// The time for which the item holds.
    pub(super) since: Duration,
    pub(super) end: Duration,
    pub(super) item: T,
    /// Whether no moment before has the item.
    pub(super) is_new: bool,
}

/// The moments of several recordings, in the order of time.
///
/// Each item of each recording is in a moment of the time for which it holds. There are few moments: the next one is at
/// the end of the first item that is not done yet. An item is done when a moment has it that is before its end by less
/// than the length of the shortest item of the moment. So an item that holds for long is in several moments, the last
/// of them near its end. If a recording ends during an item of another one that is not done, there is a moment too: so
/// recordings that end at about the same time are all in the last moment. A recording is opened when the time of the
/// moments reaches its start, and is closed after its last item.
pub(super) struct Join<'a, T> {
    inputs: Vec<Input<'a, T>>,
    /// The time of the last moment.
    last: Duration,
}

/// The items of one recording that are not in the past.
struct Input<'a, T> {
    /// Opens the recording. No item holds before `start`.
    open: Option<Box<dyn FnOnce() -> Pieces<'a, T> + 'a>>,
    start: Duration,
    rest: Option<Pieces<'a, T>>,
    current: Option<Piece<T>>,
    /// Whether a moment has the current item, and whether it needs no further moment.
    is_shown: bool,
    is_done: bool,
    next: Option<Piece<T>>,
}

impl<'a, T> Input<'a, T> {
    fn read(&mut self) -> Option<Piece<T>> {
        let piece = self.rest.as_mut()?.next();
        if piece.is_none() {
            self.rest = None;
        }
        piece
    }

    fn begin(&mut self) {
        if let Some(open) = self.open.take() {
            self.rest = Some(open());
            self.current = self.read();
        }
    }

    /// The first item that is not done.
    fn pending(&mut self) -> Option<&Piece<T>> {
        if self.is_done && self.next.is_none() {
            self.next = self.read();
        }
        if self.is_done { self.next.as_ref() } else { self.current.as_ref() }
    }

    /// Until when the last item holds, if it is done.
    fn end(&self) -> Option<Duration> {
        let is_last = self.is_done && self.next.is_none();
        self.current.as_ref().filter(|_| is_last).map(|piece| piece.until)
    }

    /// Leaves behind what does not reach `time`, and what is done if the next item ends at `time` as well.
    fn advance(&mut self, time: Duration) {
        while self.current.as_ref().is_some_and(|piece| piece.until < time)
            || (self.is_done && self.next.as_ref().is_some_and(|next| next.end <= time))
        {
            self.current = self.next.take().or_else(|| self.read());
            (self.is_shown, self.is_done) = (false, false);
        }
    }
}

impl<'a, T> Join<'a, T> {
    pub(super) fn new() -> Self {
        Self { inputs: Vec::new(), last: Duration::ZERO }
    }

    /// Adds a recording whose items all hold after `start`, or at it.
    pub(super) fn add(&mut self, start: Duration, open: impl FnOnce() -> Pieces<'a, T> + 'a) {
        let open: Option<Box<dyn FnOnce() -> Pieces<'a, T> + 'a>> = Some(Box::new(open));
        self.inputs.push(Input { open, start, rest: None, current: None, is_shown: false, is_done: false, next: None });
    }

    /// The time of the next moment.
    fn time(&mut self) -> Option<Duration> {
        loop {
            let time = self.inputs.iter_mut().filter_map(|input| input.pending().map(|piece| piece.end)).min();
            let closed = self.inputs.iter_mut().filter(|input| input.open.is_some());
            match closed.min_by_key(|input| input.start) {
                Some(input) if time.is_none_or(|time| input.start <= time) => input.begin(),
                _ => return time.map(|time| self.first_end(time).unwrap_or(time)),
            }
        }
    }
}

impl<T> Join<'_, T> {
    /// The first end of a recording before `time` that lies in an item which no moment has.
    fn first_end(&mut self, time: Duration) -> Option<Duration> {
        let last = self.last;
        let ends = self.inputs.iter().filter_map(Input::end).filter(|&end| last < end && end < time);
        let end = ends.min()?;
        let mut pending = self.inputs.iter_mut().filter_map(Input::pending);
        pending.any(|piece| piece.covers(end)).then_some(end)
    }
}

impl<T: Clone> Iterator for Join<'_, T> {
    type Item = Moment<T>;

    fn next(&mut self) -> Option<Moment<T>> {
        let time = self.time()?;
        let mut shares = Vec::new();
        for (of, input) in self.inputs.iter_mut().enumerate() {
            input.advance(time);
            if let Some(piece) = input.current.as_ref().filter(|piece| piece.covers(time)) {
                let Piece { since, end, ref item, .. } = *piece;
                shares.push(Share { of, since, end, item: item.clone(), is_new: !input.is_shown });
                input.is_shown = true;
            }
        }
        let shortest = shares.iter().map(|share| share.end.saturating_sub(share.since)).min().unwrap_or_default();
        for share in &shares {
            if let Some(input) = self.inputs.get_mut(share.of) {
                input.is_done |= share.end <= time || share.end - time < shortest;
            }
        }
        self.last = time;
        Some(Moment { time, shares })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The pieces with these ends. Each holds since the end before; the first since `start`.
    fn pieces(start: u32, ends: &[u32]) -> Vec<Piece<u32>> {
        let since = std::iter::once(start).chain(ends.iter().copied());
        since
            .zip(ends)
            .map(|(since, &end)| Piece { since: MS * since, end: MS * end, until: MS * end, item: end })
            .collect()
    }

    fn join(all: &[(u32, &[u32])]) -> Join<'static, u32> {
        let mut join = Join::new();
        for (start, ends) in all {
            let pieces = pieces(*start, ends);
            join.add(MS * *start, move || Box::new(pieces.into_iter()));
        }
        join
    }

    /// The time of each moment, and the items of each recording, with a minus where a moment before has it.
    fn told(join: Join<'_, u32>) -> Vec<(u128, Vec<(usize, i64)>)> {
        let sign = |share: &Share<u32>| if share.is_new { i64::from(share.item) } else { -i64::from(share.item) };
        join.map(|moment| {
            let shares = moment.shares.iter().map(|share| (share.of, sign(share))).collect();
            (moment.time.as_millis(), shares)
        })
        .collect()
    }

    #[test]
    fn items_of_about_one_time_share_a_moment() {
        let found = told(join(&[(0, &[100, 200, 300]), (30, &[130, 230, 330])]));
        let first = [(100, vec![(0, 100), (1, 130)]), (200, vec![(0, 200), (1, 230)]), (300, vec![(0, 300), (1, 330)])];
        assert_eq!(found, first);
    }

    #[test]
    fn the_last_moment_of_a_long_item_is_near_its_end() {
        let found = told(join(&[(0, &[100, 200]), (0, &[2000, 3000])]));
        let expected = [(100, vec![(0, 100), (1, 2000)]), (200, vec![(0, 200), (1, -2000)]), (2000, vec![(1, -2000)])];
        assert_eq!(found[..3], expected);
    }

    #[test]
    fn the_last_moment_has_all_recordings_that_end_at_about_the_same_time() {
        let found = told(join(&[(0, &[60, 110]), (0, &[100, 200]), (0, &[120, 190])]));
        let first = [(60, vec![(0, 60), (1, 100), (2, 120)]), (110, vec![(0, 110), (1, 200), (2, -120)])];
        assert_eq!(found[..2], first);
        assert_eq!(found[2..], [(190, vec![(1, -200), (2, 190)])]);
        // The first one ends where the other one has an item that no moment has.
        let found = told(join(&[(0, &[100, 200]), (0, &[90, 190, 290])]));
        assert_eq!(found.last(), Some(&(200, vec![(0, -200), (1, 290)])));
    }

    #[test]
    fn a_long_item_is_in_each_moment_of_its_time() {
        let found = told(join(&[(0, &[100, 200, 300]), (0, &[250, 300])]));
        let second =
            [(100, vec![(0, 100), (1, 250)]), (200, vec![(0, 200), (1, -250)]), (300, vec![(0, 300), (1, 300)])];
        assert_eq!(found, second);
    }

    #[test]
    fn the_last_item_may_hold_for_longer() {
        let mut join = join(&[(0, &[100, 200, 300])]);
        let only = Piece { since: Duration::ZERO, end: MS * 90, until: MS * 250, item: 90 };
        join.add(Duration::ZERO, || Box::new(std::iter::once(only)));
        let expected =
            [(90, vec![(0, 100), (1, 90)]), (200, vec![(0, 200), (1, -90)]), (250, vec![(0, 300), (1, -90)])];
        assert_eq!(told(join), expected);
    }

    #[test]
    fn recordings_one_after_another_share_no_moment_and_are_open_one_at_a_time() {
        let open = Cell::new((0, 0));
        struct Counted<'a>(&'a Cell<(u32, u32)>, std::vec::IntoIter<Piece<u32>>);
        impl Iterator for Counted<'_> {
            type Item = Piece<u32>;
            fn next(&mut self) -> Option<Piece<u32>> {
                self.1.next()
            }
        }
        impl Drop for Counted<'_> {
            fn drop(&mut self) {
                self.0.set((self.0.get().0 - 1, self.0.get().1));
            }
        }
        let mut join = Join::new();
        for nth in 0..20_u32 {
            let open = &open;
            join.add(MS * nth * 1000, move || {
                let (now, most) = open.get();
                open.set((now + 1, most.max(now + 1)));
                Box::new(Counted(open, pieces(nth * 1000, &[nth * 1000 + 100, nth * 1000 + 200]).into_iter()))
            });
        }
        assert!(join.by_ref().all(|moment| moment.shares.len() == 1));
        assert_eq!(open.get(), (0, 1));
    }

    #[test]
    fn items_of_one_recording_and_one_time_are_all_there() {
        let mut join = Join::new();
        join.add(Duration::ZERO, || Box::new([1, 2, 2].into_iter().map(|at| Piece::at(MS * at, at))));
        join.add(Duration::ZERO, || Box::new([2, 3].into_iter().map(|at| Piece::at(MS * at, at))));
        let items: Vec<(usize, u32)> =
            join.flat_map(|moment| moment.shares).filter(|s| s.is_new).map(|s| (s.of, s.item)).collect();
        assert_eq!(items, [(0, 1), (0, 2), (1, 2), (0, 2), (1, 3)]);
    }

    proptest! {
        #![proptest_config(proptest::test_runner::Config {
            cases: 300,
            rng_seed: proptest::test_runner::RngSeed::Fixed(1),
            failure_persistence: None,
            ..Default::default()
        })]

        /// Each item is new once, at a time for which it holds, and moments are in the order of time.
        #[test]
        fn each_item_is_new_in_one_moment_of_its_time(
            all in prop::collection::vec((0_u32..50, prop::collection::vec(1_u32..40, 0..12)), 1..5),
        ) {
            let all: Vec<(u32, Vec<u32>)> = all
                .into_iter()
                .map(|(start, steps)| {
                    let ends = steps.iter().scan(start, |end, step| { *end += step; Some(*end) });
                    (start, ends.collect())
                })
                .collect();
            let borrowed: Vec<(u32, &[u32])> = all.iter().map(|(start, ends)| (*start, &ends[..])).collect();
            let moments: Vec<_> = join(&borrowed).collect();
            prop_assert!(moments.is_sorted_by(|a, b| a.time < b.time));
            for (of, (start, ends)) in all.iter().enumerate() {
                let shares = || moments.iter().flat_map(|m| m.shares.iter().map(move |s| (m.time, s)));
                let new: Vec<u32> = shares().filter(|(_, s)| s.of == of && s.is_new).map(|(_, s)| s.item).collect();
                prop_assert_eq!(&new, ends);
                prop_assert!(shares().all(|(time, s)| s.since < time && time <= s.end));
                // Some moment of each item is near its end.
                for end in ends {
                    let near = |m: &Moment<u32>| {
                        let shortest = m.shares.iter().map(|s| s.end - s.since).min().unwrap();
                        let is_near = MS * *end - m.time.min(MS * *end) < shortest;
                        is_near && m.shares.iter().any(|s| s.of == of && s.item == *end)
                    };
                    prop_assert!(moments.iter().any(near));
                }
                // A recording has a share in each moment of its time.
                let (first, last) = (MS * *start, MS * ends.last().copied().unwrap_or(*start));
                let inside = moments.iter().filter(|m| first < m.time && m.time <= last);
                prop_assert!(inside.clone().all(|m| m.shares.iter().any(|s| s.of == of)));
            }
        }
    }
}
