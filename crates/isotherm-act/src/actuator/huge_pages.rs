//! Huge pages, from outside and ahead of use.

use isotherm_core::AddrRange;
use isotherm_core::scheme::{Action, Outcome, RefusalReason};
use isotherm_kernel::madvise::Advice;

use super::{ProcessActuator, read_or_refused};
use crate::call_method::CallMethod;
use crate::check::check;
use crate::dense::{Filling, LEAST_TO_FILL, dense, fills_up};
use crate::held::Held;
use crate::inside::InsideCall;
use crate::outside::advise_ranges;

impl ProcessActuator {
    /// Collapses blocks with enough present memory into huge pages. The rest is neither applied nor refused. The kernel
    /// refuses blocks in which this actuator has forbidden huge pages, so that they are allowed there first.
    pub(super) fn back_with_huge_pages(&mut self, held: &mut Held, ranges: &[AddrRange], outcomes: &mut [Outcome]) {
        let dense = dense(&self.root, held.pid, ranges);
        let Some(dense) = read_or_refused(held, dense, ranges, outcomes) else { return };
        let blocks: Vec<AddrRange> = dense.iter().map(|(_, block)| *block).collect();
        let mut block_outcomes = vec![Outcome::default(); blocks.len()];
        advise_ranges(held, Advice::Collapse, &blocks, &mut block_outcomes);
        let is_unsuitable = |of: &Outcome| of.refusal.is_some_and(|why| why.reason == RefusalReason::Unsuitable);
        let refused: Vec<usize> = (0..blocks.len()).filter(|nth| is_unsuitable(&block_outcomes[*nth])).collect();
        if !refused.is_empty() && self.forbidden.contains(&held.target()) {
            let again: Vec<AddrRange> = refused.iter().map(|nth| blocks[*nth]).collect();
            self.apply_inside(held, InsideCall::HugePage, &again, &mut vec![Outcome::default(); again.len()]);
            let mut results = vec![Outcome::default(); again.len()];
            advise_ranges(held, Advice::Collapse, &again, &mut results);
            refused.into_iter().zip(results).for_each(|(nth, result)| block_outcomes[nth] = result);
        }
        for ((index, _), block) in dense.into_iter().zip(block_outcomes) {
            let outcome = &mut outcomes[index];
            outcome.applied += block.applied;
            if let Some(refusal) = block.refusal {
                outcome.refuse(block.refused, refusal);
            }
        }
    }

    /// Allows huge pages in the whole mappings of the ranges that fill up, unless the target has forbidden them there.
    /// What lies in other mappings, or in those where this was done before, is neither applied nor refused.
    pub(super) fn allow_huge_pages_ahead(&mut self, held: &mut Held, ranges: &[AddrRange], outcomes: &mut [Outcome]) {
        let (target, now) = (held.target(), self.began.elapsed());
        let found = held.mapped_within(ranges).and_then(|mut mapped| {
            mapped.retain(|mapping| {
                mapping.size() >= LEAST_TO_FILL
                    && ranges.iter().any(|range| mapping.intersection(*range).is_some())
                    && self.ahead.is_due(target, *mapping, now)
            });
            Ok((fills_up(&self.root, held.pid, &mapped)?, mapped))
        });
        let Some((filling, looked_at)) = read_or_refused(held, found, ranges, outcomes) else { return };
        let (refusing, allowing): (Vec<Filling>, Vec<Filling>) =
            filling.into_iter().partition(|filling| self.is_forbidden(held, filling));
        let allowing: Vec<AddrRange> = allowing.iter().map(|filling| filling.mapping).collect();
        let mut of_filling = vec![Outcome::default(); allowing.len()];
        if !allowing.is_empty() {
            self.apply_inside(held, InsideCall::HugePage, &allowing, &mut of_filling);
        }
        for mapping in looked_at {
            let forbidden = || {
                let is_it = refusing.iter().any(|filling| filling.mapping == mapping);
                is_it.then_some(Some(RefusalReason::Unsuitable.into()))
            };
            let allowed = allowing.iter().position(|allowing| *allowing == mapping);
            let allowed = allowed.map(|nth| of_filling[nth].refusal).or_else(forbidden);
            self.ahead.saw(target, mapping, allowed == Some(None), now);
            let Some(refusal) = allowed else { continue };
            for (range, outcome) in ranges.iter().zip(outcomes.iter_mut()) {
                let Some(part) = mapping.intersection(*range) else { continue };
                match refusal {
                    None => outcome.applied += part.size(),
                    Some(why) => outcome.refuse(part.size(), why),
                }
            }
        }
    }

    /// Whether the target has forbidden huge pages in a mapping. The kernel tells by refusing to make one there.
    fn is_forbidden(&mut self, held: &mut Held, filling: &Filling) -> bool {
        let Some(block) = filling.block.filter(|_| !self.forbidden.contains(&held.target())) else { return false };
        let Self { collapses, inside, migration, .. } = self;
        let method = CallMethod::Outside(Advice::Collapse);
        let can_tell = collapses.get_or_insert_with(|| check(Action::Collapse, method, inside, migration).is_ok());
        let mut outcome = [Outcome::default()];
        if *can_tell {
            advise_ranges(held, Advice::Collapse, &[block], &mut outcome);
        }
        outcome[0].refusal.is_some_and(|why| why.reason == RefusalReason::Unsuitable)
    }
}
