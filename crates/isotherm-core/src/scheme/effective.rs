//! The filters of a scheme after those that hold by default.

use std::borrow::Cow;

use crate::Snapshot;

use super::{Actuator, Filter, FilterKind, Moves, PageInspector, PageKind, Scheme};

/// The filters of a scheme after those that hold by default.
pub(super) struct Effective<'a> {
    pub filters: Cow<'a, [Filter]>,
    /// The number of the first filters that reject memory because it is where the scheme would move it to.
    pub by_place: usize,
    /// The index of the filter that checks memory once more.
    pub second_look: Option<usize>,
}

/// The filters of a scheme after those that hold by default.
///
/// A scheme that moves memory between nodes does not touch memory that is on a node where its action would leave it.
/// With a survey, it is known which pages are in memory. Without a survey, a scheme that takes memory away reads that
/// just before it acts, and does not touch absent pages.
/// With a survey, a scheme that takes memory away, or moves it, checks each page once more just before it acts. It does
/// not touch cold memory that has been accessed since the survey, or hot memory that has not, unless two surveys have
/// found it accessed. Memory that cannot be observed is not checked: no survey clears its accessed bits. There is no
/// such check if the scheme has a filter for young pages, if one look at hot memory is enough, or if it is not known
/// which pages are young.
pub(super) fn effective_filters<'a>(
    scheme: &'a Scheme,
    snapshot: &Snapshot,
    actuator: &mut impl Actuator,
    inspector: &mut impl PageInspector,
) -> Effective<'a> {
    let action = scheme.action;
    let moves = action.moves();
    let reject = |pages, matching| Filter { kind: FilterKind::Pages(pages), matching, allow: false };
    let mut filters = Vec::new();
    if moves.is_some() {
        let nodes = actuator.left_nodes(scheme.action).into_iter().map(PageKind::Node);
        filters.extend(nodes.filter(|&node| inspector.tells(node).is_ok()).map(|node| reject(node, true)));
    }
    let by_place = filters.len();
    let surveyed = !snapshot.histories.is_empty();
    if !surveyed && action.takes_away() && inspector.tells(PageKind::Present).is_ok() {
        filters.push(reject(PageKind::Present, false));
    }
    let mut second_look = None;
    let decides_itself = scheme.page_kinds().any(|kind| kind == PageKind::Young);
    let looks_again = action.takes_away() || (moves == Some(Moves::Hot) && scheme.looks > 1);
    if !decides_itself && surveyed && looks_again && inspector.tells(PageKind::Young).is_ok() {
        second_look = Some(filters.len());
        filters.push(reject(PageKind::Young, moves != Some(Moves::Hot)));
    }
    if filters.is_empty() {
        return Effective { filters: Cow::Borrowed(&scheme.filters), by_place, second_look };
    }
    filters.extend(scheme.filters.iter().cloned());
    Effective { filters: Cow::Owned(filters), by_place, second_look }
}
