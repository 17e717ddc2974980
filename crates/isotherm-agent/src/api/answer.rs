//! The answers to requests.

use std::sync::Arc;

use hyper::body::Bytes;
use isotherm_report::LivePage;
use serde::Serialize;
use tokio::sync::broadcast;

use super::Problem;
use super::problem::PROBLEM;
use crate::hub::Following;
use crate::streams::{Live, Place};
use crate::view::Streamed;

/// The media type of JSON.
pub const JSON: &str = "application/json";

/// The media type of a recording that is a stream.
pub const ARROW: &str = "application/vnd.apache.arrow.stream";

/// The media type of server-sent events.
pub const EVENTS: &str = "text/event-stream";

/// The media types of pages and of pictures.
pub const HTML: &str = "text/html; charset=utf-8";
pub const SVG: &str = "image/svg+xml";

/// An answer.
pub enum Answer {
    /// It was done, and there is nothing to say.
    Done,
    /// A document.
    Document {
        /// The status.
        status: u16,
        /// The media type.
        media: &'static str,
        /// The document.
        bytes: Bytes,
    },
    /// The live page.
    Page(&'static LivePage),
    /// Events, until the client goes away or the group does.
    Stream(Place, broadcast::Receiver<Arc<Streamed>>),
    /// A heatmap that goes on, as long.
    Live(Place, Box<Live>),
    /// A recording of the events, as long.
    Recording(Place, Box<Following>),
}

impl Answer {
    /// A value as JSON.
    ///
    /// # Errors
    /// If it cannot be written as JSON.
    pub fn json(value: &impl Serialize) -> Result<Self, Problem> {
        let bytes = serde_json::to_vec(value).map_err(|error| Problem::new(500, error.to_string()))?;
        Ok(Self::Document { status: 200, media: JSON, bytes: bytes.into() })
    }

    /// Bytes of a media type.
    pub fn bytes(media: &'static str, bytes: impl Into<Bytes>) -> Self {
        Self::Document { status: 200, media, bytes: bytes.into() }
    }
}

impl From<Problem> for Answer {
    fn from(problem: Problem) -> Self {
        // A problem consists of text and numbers.
        let bytes = serde_json::to_vec(&problem).unwrap_or_default();
        Self::Document { status: problem.status, media: PROBLEM, bytes: bytes.into() }
    }
}
