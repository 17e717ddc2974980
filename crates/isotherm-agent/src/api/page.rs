//! What the live page asks for besides the operations of programs.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use isotherm_core::units;
use isotherm_kernel::unix_ns;
use isotherm_report::{LiveHeatmap, LivePage, Selection, live_heatmap, live_page};

use super::{Answer, Call, Problem};
use crate::daemon::Daemon;
use crate::history::{self, Kept};
use crate::streams::Live;

/// Where the page is.
pub const PAGE: &str = "/";

/// The page. It is the same for all.
static LIVE: LazyLock<Option<LivePage>> = LazyLock::new(|| live_page().ok());

pub fn page(_: &Daemon, _: &Call) -> Result<Answer, Problem> {
    LIVE.as_ref().map(Answer::Page).ok_or_else(|| Problem::new(500, "the page cannot be made"))
}

/// What the page draws of a group over some time.
pub fn heatmap(daemon: &Daemon, call: &Call) -> Result<Answer, Problem> {
    let kept = kept(daemon, call)?;
    let selection = Selection { time: Some(kept.time), ..Selection::default() };
    Answer::json(&live_heatmap(&kept.recordings, &selection)?)
}

/// The picture of a time has about so many columns.
const COLUMNS: u32 = 600;

/// What the page draws of a group over the last time, and then the columns that change.
pub fn live(daemon: &Daemon, call: &Call) -> Result<Answer, Problem> {
    let group = daemon.groups.get(call.group())?;
    let place = daemon.streams.open()?;
    // What comes while the history is read is not missed.
    let (events, started_unix_ns) = group.hub.events();
    let (from, to) = period(call, unix_ns() / 1_000_000)?;
    // A column is no shorter than what fills it.
    let aggregation = group.hub.known().snapshot.map_or(Duration::ZERO, |record| record.snapshot.aggregation);
    let column = aggregation.max(Duration::from_millis(to - from) / COLUMNS);
    let kept = kept(daemon, call)?;
    let selection = Selection { time: Some(kept.time), ..Selection::default() };
    let (heatmap, first) = LiveHeatmap::begin(&kept.recordings, &selection, column)?;
    let serving = Arc::clone(&daemon.serving);
    Ok(Answer::Live(place, Box::new(Live { first, heatmap, events, started_unix_ns, serving })))
}

/// What is kept of a group of the time that is asked for.
pub fn kept(daemon: &Daemon, call: &Call) -> Result<Kept, Problem> {
    daemon.groups.get(call.group())?;
    let (from, to) = period(call, unix_ns() / 1_000_000)?;
    Ok(history::open(&daemon.history_of(call.group())?, from, to)?)
}

/// The time that is asked for, in milliseconds since the Unix epoch.
fn period(call: &Call, now: u64) -> Result<(u64, u64), Problem> {
    let moment = |name: &str| {
        let text = call.query.get(name);
        let wrong = |text| Problem::new(400, format!("{name}: {text:?} are no milliseconds since the Unix epoch"));
        text.map(|text| text.parse::<u64>().map_err(|_| wrong(text))).transpose()
    };
    let (from, to) = (moment("from")?, moment("to")?.unwrap_or(now).min(now));
    let from = match (from, call.query.get("last")) {
        (Some(_), Some(_)) => return Err(Problem::new(400, "from and last contradict each other; leave out one")),
        (Some(from), None) => from,
        (None, Some(text)) => {
            let last = units::parse_duration(text).map_err(|error| Problem::new(400, format!("last: {error}")))?;
            to.saturating_sub(last.max(Duration::from_secs(1)).as_millis() as u64)
        }
        (None, None) => 0,
    };
    if from > to {
        return Err(Problem::new(400, "the time that is asked for ends before it begins, or begins in the future"));
    }
    Ok((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(query: &str) -> Result<(u64, u64), u16> {
        let call = Call { query: super::super::query(query), ..Call::default() };
        period(&call, 100_000).map_err(|problem| problem.status)
    }

    #[test]
    fn a_time_is_asked_for_by_its_ends_or_its_length() {
        for (query, expected) in [
            ("", Ok((0, 100_000))),
            ("last=10s", Ok((90_000, 100_000))),
            ("last=1ms", Ok((99_000, 100_000))),
            ("last=10s&to=50000", Ok((40_000, 50_000))),
            ("from=1000&to=2000", Ok((1000, 2000))),
            ("from=1000&to=999999", Ok((1000, 100_000))),
            ("from=2000&to=1000", Err(400)),
            ("from=200000", Err(400)),
            ("from=1&last=1s", Err(400)),
            ("from=-1", Err(400)),
            ("last=soon", Err(400)),
        ] {
            assert_eq!(asked(query), expected, "{query}");
        }
    }
}
