//! Rows of surveys: what a survey found in one target, as columns and back.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::survey::{
    Kinds, MappingSums, NodeSums, PageSums, SurveyCost, SurveySnapshot, TargetSurvey, TotalSums, Unseen, WINDOWS,
};
use isotherm_core::{Mapping, NodeId, TargetId};

use crate::time::nanoseconds;
use crate::{blocks, columns};

/// The cost of a survey, and its CPU time if that was measured.
pub(crate) type Cost = (SurveyCost, Option<Duration>);

/// The column of a target of a survey. `cost` is for the first target, which also has what is known of all of them.
pub(crate) fn to_column(survey: &SurveySnapshot, target: &TargetSurvey, cost: Option<Cost>) -> columns::Survey {
    let total = survey.total.filter(|_| cost.is_some()).map(|TotalSums { sums, shared }| columns::SurveyTotal {
        sums: sums_column(&sums),
        shared_bytes: shared,
        within_bytes: within_column(&sums).collect(),
        nodes: nodes_column(&survey.by_node),
    });
    let mappings = target.by_mapping.iter();
    columns::Survey {
        time_ns: nanoseconds(survey.time),
        interval_ns: nanoseconds(survey.interval),
        cost: cost.map(|(SurveyCost { reads, clears }, cpu)| columns::SurveyCost {
            reads,
            clears,
            cpu_ns: cpu.map(nanoseconds),
        }),
        total,
        left_out: survey.left_out.clone().filter(|_| cost.is_some()),
        windows_ns: WINDOWS.map(nanoseconds).to_vec(),
        within_bytes: mappings.clone().flat_map(|found| within_column(&found.sums)).collect(),
        mappings: mappings
            .map(|MappingSums { mapping, sums }| columns::Surveyed { mapping: mapping.get(), sums: sums_column(sums) })
            .collect(),
        blocks: blocks::to_columns(&target.by_block, survey.time),
        nodes: nodes_column(&target.by_node),
    }
}

fn sums_column(sums: &PageSums) -> columns::Sums {
    columns::Sums {
        figures: (&sums.figures).into(),
        kinds: (sums.kinds != Kinds::default()).then(|| kinds_column(&sums.kinds)),
        mapped_again_bytes: sums.mapped_again,
    }
}

/// What was accessed within each window, less what was within the one before.
fn within_column(sums: &PageSums) -> impl Iterator<Item = u64> + use<> {
    let mut before = 0;
    sums.within.into_iter().map(move |bytes| bytes.wrapping_sub(std::mem::replace(&mut before, bytes)))
}

/// The sums that the columns hold. `within` has what was accessed within each window.
fn sums(found: &columns::Sums, within: [u64; WINDOWS.len()]) -> PageSums {
    PageSums {
        kinds: found.kinds.as_ref().map(kinds).unwrap_or_default(),
        mapped_again: found.mapped_again_bytes,
        within,
        ..PageSums::of((&found.figures).into())
    }
}

fn kinds_column(Kinds { lazily_freed, unseen }: &Kinds) -> columns::Kinds {
    columns::Kinds {
        lazily_freed_bytes: *lazily_freed,
        locked_bytes: unseen[Unseen::Locked],
        shared_bytes: unseen[Unseen::Shared],
        guest_bytes: unseen[Unseen::Guest],
        device_bytes: unseen[Unseen::Device],
        io_uring_bytes: unseen[Unseen::IoUring],
        hugetlb_bytes: unseen[Unseen::Hugetlb],
        other_bytes: unseen[Unseen::Other],
    }
}

fn kinds(found: &columns::Kinds) -> Kinds {
    let unseen = [
        (Unseen::Locked, found.locked_bytes),
        (Unseen::Shared, found.shared_bytes),
        (Unseen::Guest, found.guest_bytes),
        (Unseen::Device, found.device_bytes),
        (Unseen::IoUring, found.io_uring_bytes),
        (Unseen::Hugetlb, found.hugetlb_bytes),
        (Unseen::Other, found.other_bytes),
    ];
    Kinds { lazily_freed: found.lazily_freed_bytes, unseen: unseen.into_iter().collect() }
}

fn nodes_column(by_node: &[NodeSums]) -> Option<Vec<columns::OnNode>> {
    let on_node = |NodeSums { node, sums }: &NodeSums| columns::OnNode {
        node: node.0,
        figures: (&sums.figures).into(),
        within_bytes: within_column(sums).collect(),
    };
    (!by_node.is_empty()).then(|| by_node.iter().map(on_node).collect())
}

fn by_node(found: Option<&[columns::OnNode]>, windows: &Windows) -> Result<Vec<NodeSums>, &'static str> {
    let on_node = |found: &columns::OnNode| {
        let sums = PageSums { within: windows.bytes(&found.within_bytes)?, ..PageSums::of((&found.figures).into()) };
        Ok(NodeSums { node: NodeId(found.node), sums })
    };
    found.unwrap_or_default().iter().map(on_node).collect()
}

/// The sums by mapping, by block and by node that a column holds. They are not checked.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn read(
    found: &columns::Survey,
    id: TargetId,
    mappings: Arc<[Mapping]>,
) -> Result<TargetSurvey, &'static str> {
    let windows = Windows::new(&found.windows_ns)?;
    if found.within_bytes.len() != found.mappings.len() * windows.count {
        return Err(OTHER_WINDOWS);
    }
    let by_mapping = found.mappings.iter().zip(found.within_bytes.chunks(windows.count)).map(|(found, within)| {
        let sums = sums(&found.sums, windows.bytes(within)?);
        MappingSums::new(found.mapping as usize, &mappings, sums).ok_or(NO_MAPPING)
    });
    let by_mapping = by_mapping.collect::<Result<_, &'static str>>()?;
    Ok(TargetSurvey {
        id,
        mappings,
        by_mapping,
        by_block: blocks::read(&found.blocks, Duration::from_nanos(found.time_ns))?,
        by_node: by_node(found.nodes.as_deref(), &windows)?,
    })
}

/// The cost that a column holds.
pub(crate) fn cost(found: &columns::Survey) -> Option<Cost> {
    let columns::SurveyCost { reads, clears, cpu_ns } = found.cost.as_ref()?;
    Some((SurveyCost { reads: *reads, clears: *clears }, cpu_ns.map(Duration::from_nanos)))
}

/// The sums over all targets that a column holds, also those of each node.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn total(found: &columns::Survey) -> Result<(Option<TotalSums>, Vec<NodeSums>), &'static str> {
    let Some(total) = &found.total else { return Ok((None, Vec::new())) };
    let windows = Windows::new(&found.windows_ns)?;
    let sums = sums(&total.sums, windows.bytes(&total.within_bytes)?);
    let by_node = by_node(total.nodes.as_deref(), &windows)?;
    Ok((Some(TotalSums { sums, shared: total.shared_bytes }), by_node))
}

/// Where the bytes of each of [`WINDOWS`] stand among those of the windows of a file.
struct Windows {
    count: usize,
    places: [usize; WINDOWS.len()],
}

impl Windows {
    /// A window that the file lacks takes the bytes of the next longer one, or of the longest.
    fn new(of_file: &[u64]) -> Result<Self, &'static str> {
        let Some(last) = of_file.len().checked_sub(1) else { return Err("a survey has no windows") };
        if !of_file.is_sorted_by(|a, b| a < b) {
            return Err("the windows of a survey are out of order");
        }
        let place = |window| of_file.partition_point(|&found| found < nanoseconds(window)).min(last);
        Ok(Self { count: of_file.len(), places: WINDOWS.map(place) })
    }

    /// `less` has what was accessed within each window of the file, less what was within the one before.
    fn bytes(&self, less: &[u64]) -> Result<[u64; WINDOWS.len()], &'static str> {
        if less.len() != self.count {
            return Err(OTHER_WINDOWS);
        }
        let mut within = 0_u64;
        let within: Vec<u64> = less
            .iter()
            .map(|bytes| {
                within = within.wrapping_add(*bytes);
                within
            })
            .collect();
        Ok(self.places.map(|place| within[place]))
    }
}

/// Why a survey cannot be read.
pub(crate) const NO_MAPPING: &str = "a survey has a mapping that is not there";
const OTHER_WINDOWS: &str = "a survey has more or fewer sums than windows";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_that_is_missing_takes_the_bytes_of_the_next_longer_one() {
        let seconds = |s: u64| s * 1_000_000_000;
        let windows = Windows::new(&[seconds(1), seconds(3), seconds(60), seconds(61)]).unwrap();
        assert_eq!(windows.bytes(&[1, 2, 57, 1]), Ok([1, 3, 60, 60, 60, 60, 61, 61, 61, 61, 61]));
        assert!(windows.bytes(&[1]).is_err());
        assert!(Windows::new(&[]).is_err());
        assert!(Windows::new(&[2, 1]).is_err());
    }
}
