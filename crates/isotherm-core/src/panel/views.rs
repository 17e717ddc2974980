//! Counts a page frame that several targets map once. It is accessed if one of them has accessed it.
//!
//! All views of a page have the same place ([`kin`](super::kin)), so that all of them are in the panel, or none is.
//! Where the pages of one place are different ones, as after a fork and writes, they are probably accessed alike: for
//! the bounds, they count as one that was drawn.

use super::estimate::{COUNT, Watched};
use super::member::Member;
use super::window::{Window, repeats};

/// The pages of a panel by their page frames.
#[derive(Debug, Default)]
pub(super) struct Views<'a>(Vec<View<'a>>);

/// A page of the panel that has a frame.
#[derive(Debug)]
struct View<'a> {
    frame: u64,
    member: &'a Member,
    /// The pages that share its accessed bit.
    same: &'a [Member],
    /// The windows within which its target has not run.
    at_rest: [bool; COUNT],
}

impl<'a> Views<'a> {
    /// Room for so many pages, so that adding them takes no more memory.
    pub(super) fn of(pages: usize) -> Self {
        Self(Vec::with_capacity(pages))
    }

    /// Adds pages of the panel that share an accessed bit.
    pub(super) fn add(&mut self, same: &'a [Member], at_rest: [bool; COUNT]) {
        let views = same.iter().filter_map(|member| Some((member, member.frame?)));
        self.0.extend(views.map(|(member, frame)| View { frame, member, same, at_rest }));
    }

    /// The sums of all pages with each frame counted once. Surveys have found that so many pages are those
    /// of frames that count more than once.
    pub(super) fn count_once(
        mut self,
        mut sums: [Watched; COUNT],
        excess: f64,
        windows: &[Window; COUNT],
    ) -> [Watched; COUNT] {
        self.0.sort_unstable_by_key(|view| (view.member.place, view.frame));
        for (nth, repeats) in repeats(windows).into_iter().enumerate() {
            match repeats {
                true => sums[nth] = sums[nth - 1],
                false => self.count_in(nth, &mut sums[nth], excess, &windows[nth]),
            }
        }
        sums
    }

    fn count_in(&self, nth: usize, known: &mut Watched, excess: f64, window: &Window) {
        // The pages of the memory for which a page of the panel stands, and the variance of its number.
        let (each, variance) = (known.pages / known.members.max(1.0), known.squares / known.members.max(1.0));
        let mut again = 0.0;
        let alike = self.0.chunk_by(|a, b| a.member.place == b.member.place);
        for alike in alike.filter(|alike| alike.len() > 1 && window.has(alike[0].member)) {
            let mut frames = 0.0;
            for views in alike.chunk_by(|a, b| a.frame == b.frame) {
                frames += 1.0;
                if views.len() == 1 {
                    continue;
                }
                let (mut of_frame, mut weights) = (None, 0.0);
                let weight = |view: &View<'_>| window.weigh(view.same).0;
                for view in views {
                    let weight = weight(view);
                    weights += weight;
                    if view.at_rest[nth] {
                        known.add_at_rest(-weight, each);
                    } else {
                        let seen = window.seen(view.member);
                        known.add(seen, -weight);
                        of_frame = of_frame.max(Some(seen));
                    }
                }
                let first = weight(&views[0]);
                match of_frame {
                    Some(seen) => known.add(seen, first),
                    None => known.add_at_rest(first, each),
                }
                again += weights - first;
            }
            known.squares += variance * (frames * frames - alike.len() as f64);
        }
        known.members -= again;
        known.pages -= again * each;
        // Of the rest, it is not known which pages are the same ones. It may be in use or not.
        known.again = (excess - (again + 2.0 * again.sqrt()) * each).max(0.0);
    }
}
