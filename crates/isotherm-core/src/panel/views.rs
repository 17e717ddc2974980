//! Counts a page frame that several targets map once. It is accessed if one of them has accessed it.
//!
//! An address belongs to the panel in all targets, or in none. A process and its children map what they share at the
//! same address, so that all of its views are in the panel, or none is. Where the pages at one address are different
//! ones, as after a fork and writes, they are probably accessed alike: for the bounds, they count as one that was
//! drawn.

use super::estimate::{COUNT, Sums};
use super::member::{Member, Tick};

/// The pages of a panel by their page frames.
#[derive(Debug, Default)]
pub(super) struct Views<'a>(Vec<View<'a>>);

/// A page of the panel that has a frame.
#[derive(Debug)]
struct View<'a> {
    frame: u64,
    member: &'a Member,
    weight: f64,
    /// The windows within which its target has not run.
    at_rest: [bool; COUNT],
}

impl<'a> Views<'a> {
    /// Adds a page of the panel, which counts with this weight.
    pub(super) fn add(&mut self, member: &'a Member, weight: f64, at_rest: [bool; COUNT]) {
        self.0.extend(member.frame.map(|frame| View { frame, member, weight, at_rest }));
    }

    /// What is left of the sums of all pages if each frame counts once. Surveys have found that so many pages are those
    /// of frames that count more than once. Each window holds the accesses that the readings after `begin` have found.
    pub(super) fn count_once(mut self, mut sums: Sums, excess: f64, begin: &[Tick; COUNT], now: Tick) -> Sums {
        self.0.sort_unstable_by_key(|view| (view.member.addr, view.frame));
        // The pages of the memory for which a page of the panel stands, and the variance of its number.
        let (each, variance) = (sums.pages / sums.members.max(1.0), sums.squares / sums.members.max(1.0));
        for alike in self.0.chunk_by(|a, b| a.member.addr == b.member.addr).filter(|alike| alike.len() > 1) {
            let frames = alike.chunk_by(|a, b| a.frame == b.frame).count() as f64;
            sums.squares += variance * (frames * frames - alike.len() as f64);
        }
        let is_same = |a: &View<'_>, b: &View<'_>| (a.member.addr, a.frame) == (b.member.addr, b.frame);
        let mut again = 0.0;
        for views in self.0.chunk_by(is_same).filter(|views| views.len() > 1) {
            for (nth, known) in sums.within.iter_mut().enumerate() {
                let mut of_frame = None;
                for view in views {
                    if view.at_rest[nth] {
                        known.rest(-view.weight, each);
                    } else {
                        let seen = view.member.within(begin[nth], now);
                        known.add(seen, -view.weight);
                        of_frame = of_frame.max(Some(seen));
                    }
                }
                match of_frame {
                    Some(seen) => known.add(seen, views[0].weight),
                    None => known.rest(views[0].weight, each),
                }
            }
            again += views[1..].iter().map(|view| view.weight).sum::<f64>();
        }
        sums.members -= again;
        sums.pages -= again * each;
        // The rest is mapped at different addresses, such as libraries. It may be in use or not.
        sums.again = (excess - (again + 2.0 * again.sqrt()) * each).max(0.0);
        sums
    }
}
