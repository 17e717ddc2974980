//! How much memory an event takes while it waits for a sink.

use std::sync::Arc;

use isotherm_core::survey::TargetSurvey;
use isotherm_core::{Allocations, Mapping, TargetSnapshot};
use isotherm_record::Activity;

use crate::{Event, Missed};

/// About how many bytes of memory the event takes that nothing but its waiting needs. Memory that several events share
/// is divided among them.
pub(super) fn bytes(event: &Event) -> usize {
    let of_event = match event {
        Event::Targets(infos) => {
            let info = |info: &isotherm_record::TargetInfo| {
                size_of_val(info) + info.command.len() + info.cgroup.as_ref().map_or(0, String::len)
            };
            infos.iter().map(|(_, of)| size_of_val(of) + shared(of, info(of))).sum()
        }
        Event::Attributes(_) | Event::Pace { .. } | Event::End(_) => 0,
        Event::Schemes(schemes) => size_of_val(&**schemes),
        Event::Snapshot(record) => {
            let targets = record.snapshot.targets.iter().map(snapshot_bytes);
            targets.sum::<usize>() + infos_bytes(&record.infos)
        }
        Event::Survey(record) => {
            let targets = record.survey.targets.iter().map(survey_bytes);
            targets.sum::<usize>() + infos_bytes(&record.infos)
        }
        Event::Panel(panel) => {
            let mappings = panel.targets.iter().map(|target| size_of_val(target.by_mapping.as_slice()));
            size_of_val(&**panel) + size_of_val(panel.targets.as_slice()) + mappings.sum::<usize>()
        }
        Event::Activity(activity) => activity_bytes(activity),
        Event::Mark(mark) => mark.text.len(),
        Event::Allocations(found) => allocations_bytes(found),
        Event::Notice(notice) => notice.text.len(),
        Event::Missed(Missed { counts, .. }) => size_of_val(counts.as_slice()),
    };
    size_of::<Event>() + of_event
}

/// The share of a holder of `bytes` bytes, of which the source of the run is another one.
fn shared<T: ?Sized>(held: &Arc<T>, bytes: usize) -> usize {
    bytes / (Arc::strong_count(held) - 1).max(1)
}

/// The texts count where [`Event::Targets`] says that they are new.
fn infos_bytes(infos: &isotherm_record::TargetInfos) -> usize {
    shared(infos, size_of_val(&**infos))
}

/// Where others hold the mappings as well as the source of the run, they hold the names too: these are not counted, as
/// listing the names of thousands of targets for each event takes longer than the rest of the event.
fn mapping_bytes(mappings: &Arc<[Mapping]>) -> usize {
    let names = match Arc::strong_count(mappings) {
        ..=2 => mappings.iter().map(|of| shared(&of.name, of.name.len())).sum(),
        _ => 0,
    };
    shared(mappings, size_of_val(&**mappings) + names)
}

fn snapshot_bytes(target: &TargetSnapshot) -> usize {
    size_of_val(target) + size_of_val(target.regions.as_slice()) + mapping_bytes(&target.mappings)
}

fn survey_bytes(target: &TargetSurvey) -> usize {
    size_of_val(target)
        + size_of_val(target.by_mapping.as_slice())
        + size_of_val(target.by_node.as_slice())
        + target.by_block.own_bytes()
        + mapping_bytes(&target.mappings)
}

fn activity_bytes(activity: &Activity) -> usize {
    let schemes = activity.schemes.iter().map(|scheme| {
        let refusals = size_of_val(scheme.total.refusals.as_slice());
        size_of_val(scheme) + refusals + size_of_val(scheme.last.regions.as_slice())
    });
    size_of_val(activity) + size_of_val(activity.memory.as_slice()) + schemes.sum::<usize>()
}

fn allocations_bytes(found: &Allocations) -> usize {
    let stacks = found.stacks.iter().map(|(_, stack)| shared(stack, size_of_val(&**stack)));
    size_of_val(found) + size_of_val(found.calls.as_slice()) + stacks.sum::<usize>()
}
