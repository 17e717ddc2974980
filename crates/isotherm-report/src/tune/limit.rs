//! The rule for a limit on memory.

use std::collections::BTreeMap;
use std::time::Duration;

use isotherm_core::units;
use isotherm_record::{Cgroup, Limit};

use super::advice::{Advice, Topic};
use super::facts::{Facts, UNKNOWN_CGROUP, UNKNOWN_SWAP};

/// The part of the working set that is added to it. The limit counts also page cache and memory of the kernel, which no
/// process maps and surveys do not see, and the target was watched for a part of its life only. A fifth is a choice,
/// not a measured value; `memory.high` makes an error harmless, since it slows the target and does not end it.
const MARGIN: f64 = 0.2;

/// The margin is at least this much, so that a small process has room for page tables, sockets and the like.
const LEAST_MARGIN: u64 = 16 << 20;

/// The working set of a shorter window says little about what a limit would take away: memory that is used again every
/// ten seconds would be read back every ten seconds.
const LEAST_WINDOW: Duration = Duration::from_secs(10);

/// With a larger share of the resident memory unknown or unobservable, the limit would rest on assumptions.
const MOST_UNSEEN: f64 = 0.25;

/// A limit must be below the resident memory by at least this part of it, or it would save nothing.
const LEAST_SAVED: f64 = 0.05;

/// A limit is a multiple of this.
const STEP: u64 = 1 << 20;

/// Advises a limit that the target would have stayed below. The error says why no limit is advised.
pub(super) fn advise(facts: &Facts<'_>) -> Result<Advice, String> {
    let found = facts.working_set;
    let Some(window) = found.longest().filter(|window| window.length() >= LEAST_WINDOW) else {
        return Err(format!("no window of {} or more is known", units::duration(LEAST_WINDOW)));
    };
    let (Some(resident), Some(most)) = (found.resident_bytes, found.resident_max_bytes) else {
        return Err("the resident memory is not known".into());
    };
    // The upper bound of an estimate has all that may be in use.
    let unknown = found.unknown_bytes.filter(|_| !window.is_estimated()).unwrap_or(0);
    let unseen = found.unobservable_bytes.unwrap_or(0).saturating_add(unknown);
    if unseen as f64 > resident as f64 * MOST_UNSEEN {
        return Err(format!(
            "{} of the resident memory is unobservable or unknown, and all of it may be in use",
            units::percent(unseen as f64 / resident.max(1) as f64)
        ));
    }
    let idle_file = window.idle.and_then(|idle| idle.file_bytes).unwrap_or(0);
    // Without swap, only mappings of files can make room.
    let no_swap = facts.no_swap().ok_or(UNKNOWN_SWAP)?;
    let cgroup = facts.surroundings.cgroup.as_ref().ok_or(UNKNOWN_CGROUP)?;
    let needed = match no_swap {
        true => window.peak_needed_bytes.max(most.saturating_sub(idle_file)),
        false => window.peak_needed_bytes,
    };
    let varied = window.peak_bytes.saturating_sub(window.median_bytes);
    let share = (needed as f64 * MARGIN) as u64;
    let margin = share.max(varied).max(LEAST_MARGIN);
    let limit = needed.saturating_add(margin).div_ceil(STEP).saturating_mul(STEP);
    let length = units::duration(window.length());
    if let Some(Limit { path, bytes }) = cgroup.lowest_limit.as_ref().filter(|lowest| lowest.bytes <= limit) {
        return Err(format!(
            "the cgroup {path} is limited to {} already, which is no more than what would be advised: {}",
            units::bytes(*bytes),
            units::bytes(limit)
        ));
    }
    if limit as f64 > most as f64 * (1.0 - LEAST_SAVED) {
        let with = match no_swap {
            true => "without swap only mappings of files can be reclaimed, so that".to_owned(),
            false => format!("the working set within {length} is {} at most, so that", units::bytes(window.peak_bytes)),
        };
        return Err(format!(
            "{with} a limit ({} with its margin) would not be below the resident memory ({})",
            units::bytes(limit),
            units::bytes(most)
        ));
    }
    let mut text = format!(
        "Set memory.high of the cgroup to {}. The working set within {length} was {} at its peak",
        units::bytes(limit),
        units::bytes(window.peak_bytes),
    );
    let other = needed.saturating_sub(window.peak_bytes);
    if other > 0 {
        let what = match (no_swap, window.is_estimated()) {
            (true, _) => "anonymous memory that cannot be reclaimed without swap, or unobservable or unknown",
            (false, false) => "unobservable or unknown",
            (false, true) => "within the bounds of the estimate",
        };
        text += &format!("; {} more counts as needed, because it is {what}", units::bytes(other));
    }
    let why = match margin {
        _ if margin == share => units::percent(MARGIN),
        _ if margin == varied => "as much as the working set varied".to_owned(),
        _ => "the minimum".to_owned(),
    };
    text += &format!(
        ". The margin is {} ({why}): the limit also counts page cache and memory of the kernel, which surveys do not \
         see, and the surveys cover {} only. The resident memory was {} at most. Above memory.high the kernel \
         reclaims and slows the target; memory.max would end it.",
        units::bytes(margin),
        facts.covered(),
        units::bytes(most),
    );
    let mut unknown = vec![format!("What is used less often than every {length} would be read back when it is used.")];
    unknown.extend(cgroup_notes(cgroup));
    let figures = BTreeMap::from([
        ("limit_bytes", limit),
        ("margin_bytes", margin),
        ("needed_bytes", needed),
        ("peak_bytes", window.peak_bytes),
        ("window_ns", window.window_ns),
        ("resident_max_bytes", most),
    ]);
    Ok(Advice {
        topic: Topic::MemoryLimit,
        text,
        figures,
        unknown,
        scheme: None,
        command: Some(command(cgroup, limit / STEP)),
    })
}

/// What a reader has to know about the cgroup.
fn cgroup_notes(cgroup: &Cgroup) -> Vec<String> {
    let mut notes = vec![];
    if cgroup.version == 1 {
        notes.push("memory.high needs cgroups of version 2; memory is accounted by version 1 here.".into());
    }
    if cgroup.path == "/" {
        notes.push("The target is in the root cgroup, which has no limit; start it in one of its own.".into());
    }
    if let Some(others) = cgroup.other_processes.filter(|&others| others > 0 && cgroup.path != "/") {
        let (plural, verb) = if others == 1 { ("", "is") } else { ("es", "are") };
        notes.push(format!(
            "{others} other process{plural} {verb} in the cgroup {}, and would need room as well.",
            cgroup.path
        ));
    }
    if let Some(current) = cgroup.current_bytes {
        notes.push(format!("{} are charged to the cgroup now, page cache included.", units::bytes(current)));
    }
    if let Some(Limit { path, bytes }) = &cgroup.lowest_limit {
        notes.push(format!("The cgroup {path} is limited to {} now.", units::bytes(*bytes)));
    }
    if let Some(high) = cgroup.high_bytes {
        notes.push(format!("memory.high is {} now.", units::bytes(high)));
    }
    notes
}

/// The command that sets the limit: on the cgroup if the targets have one to themselves.
fn command(cgroup: &Cgroup, mebibytes: u64) -> String {
    let own = Some(cgroup).filter(|cgroup| {
        cgroup.version == 2 && cgroup.path != "/" && cgroup.other_processes == Some(0) && is_plain(&cgroup.path)
    });
    let unit = own
        .and_then(|cgroup| cgroup.path.rsplit('/').next())
        .filter(|unit| [".service", ".scope", ".slice"].iter().any(|kind| unit.ends_with(kind)));
    match (unit, own.and_then(|cgroup| cgroup.directory.as_deref()).filter(|directory| is_plain(directory))) {
        (Some(unit), _) => format!("systemctl set-property --runtime '{unit}' MemoryHigh={mebibytes}M"),
        (None, Some(directory)) => format!("echo {mebibytes}M > '{directory}/memory.high'"),
        (None, None) => format!("systemd-run --scope -p MemoryHigh={mebibytes}M COMMAND"),
    }
}

/// Whether a path means itself between single quotes.
fn is_plain(path: &str) -> bool {
    !path.contains(|c: char| c == '\'' || c.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::surroundings::{Surroundings, Swap};
    use crate::tune::working_set::{Idle, Window, WorkingSet};

    const MIB: u64 = 1 << 20;

    fn found(peak: u64) -> WorkingSet {
        let idle = Idle { bytes: 500 * MIB, anonymous_bytes: Some(450 * MIB), file_bytes: Some(50 * MIB) };
        let window = Window {
            window_ns: 30_000_000_000,
            median_bytes: peak.saturating_sub(10 * MIB),
            peak_bytes: peak,
            peak_needed_bytes: peak + 20 * MIB,
            idle: Some(idle),
            ..Window::default()
        };
        WorkingSet {
            covered_ns: Some(60_000_000_000),
            resident_bytes: Some(1000 * MIB),
            resident_max_bytes: Some(1000 * MIB),
            unobservable_bytes: Some(10 * MIB),
            unknown_bytes: Some(10 * MIB),
            windows: vec![window],
            ..WorkingSet::default()
        }
    }

    fn on(found: &WorkingSet, surroundings: &Surroundings) -> Result<Advice, String> {
        advise(&Facts { working_set: found, blocks: None, surroundings, target_options: "--pid 7" })
    }

    fn swap(free: u64) -> Surroundings {
        let swap = Some(Swap { total_bytes: 1 << 30, free_bytes: free });
        Surroundings { swap, cgroup: Some(Cgroup::default()), ..Surroundings::default() }
    }

    #[test]
    fn no_limit_is_advised_for_a_cgroup_that_is_not_known() {
        let reason = on(&found(400 * MIB), &Surroundings { cgroup: None, ..swap(1 << 30) }).unwrap_err();
        assert!(reason.starts_with("a limit is for all processes of a cgroup"), "{reason}");
    }

    #[test]
    fn a_lower_limit_of_a_cgroup_above_is_told() {
        let limited = |mib: u64| Cgroup {
            path: "/a/b".into(),
            lowest_limit: Some(Limit { path: "/a".into(), bytes: mib * MIB }),
            ..Cgroup::default()
        };
        let with = |mib| on(&found(400 * MIB), &Surroundings { cgroup: Some(limited(mib)), ..swap(1 << 30) });
        assert!(with(504).unwrap_err().starts_with("the cgroup /a is limited to 504 MiB already"));
        let notes = with(600).unwrap().unknown;
        assert!(notes.contains(&"The cgroup /a is limited to 600 MiB now.".to_owned()), "{notes:?}");
    }

    #[test]
    fn the_limit_is_what_is_needed_and_a_margin() {
        let advice = on(&found(400 * MIB), &swap(1 << 30)).unwrap();
        assert_eq!((advice.figures["needed_bytes"], advice.figures["margin_bytes"]), (420 * MIB, 84 * MIB));
        assert_eq!(advice.figures["limit_bytes"], 504 * MIB);
        assert!(advice.text.contains("margin is 84 MiB (20 %): the limit"), "{}", advice.text);
        assert_eq!(advice.command.as_deref(), Some("systemd-run --scope -p MemoryHigh=504M COMMAND"));
        let small = on(&found(20 * MIB), &swap(1 << 30)).unwrap();
        assert_eq!(small.figures["margin_bytes"], LEAST_MARGIN);
        let mut varies = found(400 * MIB);
        varies.windows[0].median_bytes = 250 * MIB;
        assert_eq!(on(&varies, &swap(1 << 30)).unwrap().figures["margin_bytes"], 150 * MIB);
    }

    #[test]
    fn anonymous_memory_needs_swap_to_make_room() {
        // Of 1,000 MiB, 50 MiB are idle and in files.
        let reason = on(&found(400 * MIB), &swap(0)).unwrap_err();
        assert!(reason.starts_with("without swap only mappings of files"), "{reason}");
        let reason = on(&found(400 * MIB), &Surroundings::default()).unwrap_err();
        assert!(reason.starts_with("whether there is swap is not known"), "{reason}");
    }

    #[test]
    fn there_is_no_limit_without_a_long_window_or_with_much_unseen() {
        let mut short = found(400 * MIB);
        short.windows[0].window_ns = 5_000_000_000;
        assert!(on(&short, &swap(1)).unwrap_err().contains("no window of 10 s"));
        let mut unseen = found(400 * MIB);
        unseen.unobservable_bytes = Some(300 * MIB);
        assert!(on(&unseen, &swap(1)).unwrap_err().starts_with("31 % of the resident memory is unobservable"));
        assert!(on(&found(900 * MIB), &swap(1)).unwrap_err().contains("would not be below the resident memory"));
    }

    #[test]
    fn the_command_is_for_a_cgroup_that_has_no_other_process() {
        let own = Cgroup {
            path: "/system.slice/redis.service".into(),
            directory: Some("/sys/fs/cgroup/system.slice/redis.service".into()),
            version: 2,
            other_processes: Some(0),
            ..Cgroup::default()
        };
        let of = |cgroup: Cgroup| command(&cgroup, 64);
        assert_eq!(of(own.clone()), "systemctl set-property --runtime 'redis.service' MemoryHigh=64M");
        let directory = Some("/sys/fs/cgroup/a".into());
        let plain = Cgroup { path: "/a".into(), directory, ..own.clone() };
        assert_eq!(of(plain.clone()), "echo 64M > '/sys/fs/cgroup/a/memory.high'");
        let generic = "systemd-run --scope -p MemoryHigh=64M COMMAND";
        for other in [
            Cgroup { other_processes: Some(3), ..own.clone() },
            Cgroup { version: 1, ..own.clone() },
            Cgroup { path: "/".into(), ..plain.clone() },
            Cgroup { path: "/a'; reboot; '".into(), ..plain },
        ] {
            assert_eq!(of(other), generic);
        }
        let notes = cgroup_notes(&Cgroup { other_processes: Some(3), ..own });
        assert_eq!(
            notes,
            ["3 other processes are in the cgroup /system.slice/redis.service, and would need room as well."]
        );
    }
}
