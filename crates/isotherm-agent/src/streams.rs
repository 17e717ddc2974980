//! Streams that clients follow, and how many there may be at once.
//!
//! A stream lasts, so that streams without a bound could take all connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use isotherm_report::{LiveHeatmap, ReportError};
use isotherm_run::{Event, EventSink};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, mpsc};

use crate::api::Problem;
use crate::encoded::encoded;
use crate::hub::Following;
use crate::serving::Serving;
use crate::view::Streamed;

/// The most streams at once, of all clients together. It is half of the connections that a listener has at once, so
/// that there is room for requests.
pub const MOST_STREAMS: usize = 128;

/// The streams that are open.
pub struct Streams(Arc<Semaphore>);

/// The place of a stream among them, until it is dropped.
pub struct Place {
    _permit: OwnedSemaphorePermit,
}

impl Default for Streams {
    /// None is open.
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST_STREAMS)))
    }
}

impl Streams {
    /// Opens a stream.
    ///
    /// # Errors
    /// 503 if as many are open as there may be.
    pub fn open(&self) -> Result<Place, Problem> {
        let permit = Arc::clone(&self.0).try_acquire_owned();
        permit.map(|permit| Place { _permit: permit }).map_err(|_| {
            let detail = format!("{MOST_STREAMS} streams are open, which is the most at once; try again when one ends");
            Problem::new(503, detail)
        })
    }

    /// How many are open.
    pub fn count(&self) -> usize {
        MOST_STREAMS - self.0.available_permits()
    }
}

/// How often a stream without events says that it is there.
const ALIVE: Duration = Duration::from_secs(15);

/// How often the columns of a heatmap are told that have changed.
const COLUMNS: Duration = Duration::from_secs(1);

/// Writes events as they come. Those that a slow client misses are counted.
pub fn events(mut events: broadcast::Receiver<Arc<Streamed>>) -> mpsc::Receiver<Bytes> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        // The head of the answer goes out with the first bytes.
        let mut bytes = Bytes::from_static(b": isotherm\n\n");
        while sender.send(bytes).await.is_ok() {
            bytes = match tokio::time::timeout(ALIVE, events.recv()).await {
                Err(_) => Bytes::from_static(b": \n\n"),
                Ok(Ok(event)) => encoded(&event),
                Ok(Err(broadcast::error::RecvError::Lagged(count))) => {
                    format!("event: missed\ndata: {{\"event\":\"missed\",\"count\":{count}}}\n\n").into()
                }
                Ok(Err(broadcast::error::RecvError::Closed)) => return,
            };
        }
    });
    receiver
}

/// Records events as they come, until the run ends. Those that a slow client misses are counted.
pub fn recording(following: Following) -> mpsc::Receiver<Bytes> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let Following { mut recording, mut events } = following;
        let mut last = Duration::ZERO;
        loop {
            let Ok(bytes) = recording.take() else { return };
            if !bytes.is_empty() && sender.send(bytes.into()).await.is_err() {
                return;
            }
            let event = match tokio::time::timeout(ALIVE, events.recv()).await {
                // Whether the client is there is found out with the next event.
                Err(_) => continue,
                Ok(Ok(event)) => event,
                Ok(Err(broadcast::error::RecvError::Lagged(count))) => Event::Missed(missed(last, count)),
                Ok(Err(broadcast::error::RecvError::Closed)) => return,
            };
            if let Event::Snapshot(record) = &event {
                last = record.snapshot.time;
            }
            if matches!(event, Event::End(_)) || recording.event(&event).is_err() {
                return;
            }
        }
    });
    receiver
}

/// So many events that a client was too slow for. Most of them were snapshots.
fn missed(time: Duration, count: u64) -> isotherm_run::Missed {
    let missed = isotherm_record::Missed { time, kind: isotherm_record::MissedKind::Snapshots, count };
    isotherm_run::Missed { counts: vec![missed], ..Default::default() }
}

/// A heatmap of a group that goes on.
pub struct Live {
    /// What is drawn at first.
    pub first: Value,
    /// What makes the columns that follow.
    pub heatmap: LiveHeatmap,
    /// The events of the group since before the heatmap was made.
    pub events: broadcast::Receiver<Event>,
    /// When its run began, since the Unix epoch.
    pub started_unix_ns: u64,
    /// Counts the CPU time that it takes.
    pub serving: Arc<Serving>,
}

/// Tells a heatmap, and then once a second the columns that have changed, until another run of the group begins.
pub fn live(live: Live) -> mpsc::Receiver<Bytes> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        let Live { first, heatmap, mut events, started_unix_ns, serving } = live;
        let (mut heatmap, mut bytes) = (Some(heatmap), event("heatmap", first));
        let (mut told, mut is_over) = (Instant::now(), false);
        while sender.send(bytes).await.is_ok() {
            let mut taken = Vec::new();
            loop {
                match tokio::time::timeout(ALIVE, events.recv()).await {
                    Err(_) => break,
                    // The next run has another clock.
                    Ok(_) if is_over => return,
                    Ok(Ok(event)) => taken.push(event),
                    Ok(Err(broadcast::error::RecvError::Lagged(_))) => {
                        heatmap.iter_mut().for_each(LiveHeatmap::missed);
                        continue;
                    }
                    Ok(Err(broadcast::error::RecvError::Closed)) => return,
                }
                is_over = matches!(taken.last(), Some(Event::End(_)));
                if is_over || matches!(taken.last(), Some(Event::Snapshot(_))) && told.elapsed() >= COLUMNS {
                    break;
                }
            }
            if taken.is_empty() {
                bytes = Bytes::from_static(b": \n\n");
                continue;
            }
            told = Instant::now();
            // Requests are answered meanwhile.
            let (Some(mut drawn), serving) = (heatmap.take(), Arc::clone(&serving)) else { return };
            let draw = move || {
                let last = taken.len() - 1;
                for (nth, recorded) in taken.iter().enumerate().filter_map(|(nth, event)| Some((nth, recorded(event)?)))
                {
                    drawn.event(recorded, started_unix_ns, nth == last)?;
                }
                Ok::<_, ReportError>((event("columns", drawn.columns()), drawn))
            };
            match tokio::task::spawn_blocking(move || serving.counted(draw).0).await {
                Ok(Ok((next, drawn))) => (bytes, heatmap) = (next, Some(drawn)),
                // There is too much to keep, or it failed in an unforeseen way.
                Ok(Err(_)) | Err(_) => return,
            }
        }
    });
    receiver
}

/// The event as a recording has it. `None` if a heatmap has no need of it.
fn recorded(event: &Event) -> Option<isotherm_record::Event> {
    match event {
        Event::Snapshot(record) => Some(isotherm_record::Event::Snapshot((**record).clone())),
        Event::Survey(record) => Some(isotherm_record::Event::Survey((**record).clone())),
        Event::Targets(_)
        | Event::Attributes(_)
        | Event::Schemes(_)
        | Event::Panel(_)
        | Event::Activity(_)
        | Event::Mark(_)
        | Event::Allocations(_)
        | Event::Pace { .. }
        | Event::Notice(_)
        | Event::Missed(_)
        | Event::End(_) => None,
    }
}

/// An object as a server-sent event of this name.
fn event(name: &str, mut data: Value) -> Bytes {
    data["event"] = name.into();
    format!("event: {name}\ndata: {data}\n\n").into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn streams_are_bounded_and_one_that_ends_makes_room() {
        let streams = Streams::default();
        let mut open: Vec<Place> = (0..MOST_STREAMS).map(|_| streams.open().unwrap()).collect();
        let problem = streams.open().err().unwrap();
        assert!(problem.status == 503 && problem.title == "Service Unavailable", "{problem:?}");
        open.pop();
        assert_eq!(streams.count(), MOST_STREAMS - 1);
        assert!(streams.open().is_ok());
    }
}
